"""What cannot be used is named in one line: a column, a coordinate, a calendar, an address."""

import datetime
import os
import subprocess
import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import daskgp
from daskgp.data import reading
from daskgp.errors import InputError, StoreError

MODEL = {"n_inducing": 5, "optimizer": None, "progress": False}


def refused(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- columns -------------------------------------------------------------------------------------


FRAME = pd.DataFrame({"a": np.arange(9.0), "b": np.arange(9.0) ** 2})
COLUMNS = {
    "text": (["Oslo", *"123456", 7.0, 8.0], "column 'city' holds text such as 'Oslo'.*encode it"),
    "long text": (["x" * 90] * 8 + ["1"], r"such as 'x{20}\.\.\.'"),
    "gaps": ([None, np.nan, *["Rome"] * 6, "2.5"], "column 'city' holds text such as 'Rome'"),
    "text of dates": (["2001-02-03"] * 9, "'city' holds text such as '2001-02-03'.*make times"),
    "dates": (pd.date_range("2001", periods=9), "column 'city' holds dates or times.*days since"),
    "zones": (pd.date_range("2001", periods=9, tz="UTC"), "column 'city' holds dates or times"),
    "spans": (pd.to_timedelta(np.arange(9), "h"), "column 'city' holds dates or times"),
    "days": ([datetime.date(2001, 1, 2)] * 9, "column 'city' holds dates or times"),
    "objects": (
        pd.Series([1.0, None] + [1.5] * 7, dtype=object),
        r"column 'city' has type object, but numbers .*: turn it into numbers by .astype\(float\)",
    ),
    "one text": (pd.Series([1.0, pd.NA, "n/a"] + [1.5] * 6), "'city' holds text such as 'n/a'"),
    "commas": (["1,5"] * 9, r"text such as '1,5'.*with a point and without commas.*decimal=','"),
    "codes": (["1", "2", "3"] * 3, r"'city' holds text such as '1'.*by .astype\(float\)"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_a_column_of_text_or_dates_is_named(case):
    values, says = COLUMNS[case]
    frame, y = FRAME.assign(city=values), np.arange(9.0)
    fitted = daskgp.SGPR(**MODEL).fit(FRAME.assign(city=1.0 * y), y)
    lines = [refused(daskgp.SGPR(**MODEL).fit, FRAME, frame["city"])]
    if case not in ("dates", "zones"):  # of X, which become days
        lines.append(refused(daskgp.SGPR(**MODEL).fit, frame, y))
        lines.append(refused(fitted.predict, frame))
    for line in lines:
        assert pd.Series([line]).str.contains(says, regex=True).all(), line
    if case == "days":  # times are features, but not targets
        remedies = ["days since the first", "pandas.to_datetime", "pandas.to_datetime"]
        assert all(remedy in line for remedy, line in zip(remedies, lines, strict=True))


def test_numbers_that_may_be_missing_are_numbers():
    nullable = FRAME.assign(c=pd.array([1, None, *range(7)], "Int64"))
    plain = FRAME.assign(c=[1.0, np.nan, *np.arange(7.0)])
    y = pd.Series(np.sin(np.arange(9.0)), dtype="Float64")
    found, wanted = (
        daskgp.SGPR(**MODEL).fit(X, t).predict(X) for X, t in ((nullable, y), (plain, y.to_numpy()))
    )
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(found[1])


def test_numbers_of_dask_that_may_be_missing_are_numbers():
    nullable = FRAME.assign(c=pd.array([1, None, *range(7)], "Int64"))
    plain = FRAME.assign(c=[1.0, np.nan, *np.arange(7.0)])
    y = np.sin(np.arange(9.0))
    lazy = dd.from_pandas(nullable, npartitions=2)
    found, wanted = (daskgp.SGPR(**MODEL).fit(X, y).objective_ for X in (lazy, plain))
    assert found == pytest.approx(wanted, rel=1e-12)


def test_dates_of_arrow_are_days_and_columns_of_times_have_names_of_their_own():
    arrow, dates = pytest.importorskip("pyarrow"), pd.date_range("2001", periods=9)
    days = pd.array(dates.date, pd.ArrowDtype(arrow.date32()))
    found = reading.timed(FRAME.assign(day=days))["day"]
    np.testing.assert_array_equal(found, 11323.0 + np.arange(9))
    twice = pd.DataFrame({"a": dates, "b": 1.0}).rename(columns={"b": "a"})
    says = "X has several columns 'a': give each a name of its own"
    assert refused(daskgp.SGPR(**MODEL).fit, twice, np.arange(9.0)) == says


# -- coordinates ---------------------------------------------------------------------------------


def curvilinear():
    a, b = np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 2, 6))
    lat, lon = b + 0.1 * a, a + 0.05 * b
    coords = {"lat": (("j", "i"), lat), "lon": (("j", "i"), lon)}
    return xr.DataArray(np.sin(3 * lat) + lon, coords, ("j", "i"), "t")


def test_a_curvilinear_grid_says_how_its_coordinates_are_given():
    y = curvilinear()
    for X in (y, y.to_dataset()):
        line = refused(daskgp.SGPR(**MODEL).fit, X, y)
        assert "coordinates lat, lon have two or more dimensions (a curvilinear grid)" in line
    assert "X = y.coords.to_dataset()[['lat', 'lon']].reset_coords(), or drop" in line
    X = y.coords.to_dataset()[["lat", "lon"]].reset_coords()
    model = daskgp.SGPR(**MODEL).fit(X, y)
    assert list(model.feature_names_in_) == ["lat", "lon"]
    mean = model.predict(X)
    assert mean.dims == ("j", "i")
    xr.testing.assert_allclose(model.predict(y).drop_vars(["lat", "lon"]), mean)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (lambda y: y + 1j, "Complex data not supported: y has type complex128"),
        (lambda y: y.astype("M8[s]"), "y holds dates or times, but numbers are needed"),
        (lambda y: y.astype(str), "y holds text such as '0.0', but numbers are needed: turn it"),
    ],
    ids=["complex", "times", "text"],
)
def test_a_labelled_target_that_is_no_number_is_refused(values, says):
    at = {"x": np.arange(9.0)}
    y = xr.DataArray(values(np.arange(9.0)), at, "x")
    assert says in refused(daskgp.SGPR(**MODEL).fit, xr.Dataset(coords=at), y)


def test_a_curvilinear_file_names_its_coordinates(tmp_path):
    curvilinear().to_dataset().to_netcdf(tmp_path / "g.nc")
    line = refused(daskgp.convert, tmp_path / "g.nc", tmp_path / "o.zarr", "t")
    assert "name some of lat, lon, coordinates of two or more dimensions" in line
    found = daskgp.convert(tmp_path / "g.nc", tmp_path / "o.zarr", "t", ["lat", "lon"])
    assert found.rows == 42


# -- addresses -----------------------------------------------------------------------------------

WEB = "https://example.invalid/data.zarr"


@pytest.mark.parametrize("call", [daskgp.open_dataset, daskgp.load])
def test_a_store_on_a_web_server_is_refused_without_asking_it(call):
    line = refused(call, WEB)
    assert line.startswith(f"no store can be at {WEB}")
    assert "s3://bucket/name.zarr" in line


def test_nothing_is_converted_to_a_web_server(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    assert "no store can be at" in refused(daskgp.convert, tmp_path / "t.csv", WEB, "a")


def test_a_pattern_says_that_it_is_not_expanded(tmp_path):
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    says = "a pattern is not expanded: give one path or address at a time"
    with pytest.raises(StoreError, match=says):
        daskgp.open_dataset(tmp_path / "part-?.zarr")
    odd = tmp_path / "t[1].zarr"  # a name like any other where it is there
    assert daskgp.convert(tmp_path / "a.csv", odd, "a").rows == 9
    assert len(daskgp.open_dataset(odd)[1]) == 9


def test_an_address_is_not_rows():
    line = refused(daskgp.SGPR(**MODEL).fit, "data/*.zarr", np.ones(3))
    assert "'data/*.zarr' is an address" in line
    assert "daskgp.open_dataset" in line


# -- settings of Dask ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-c", "import daskgp; daskgp.SGPR()"], 1),
        (["-m", "daskgp", "convert", "rows.csv", "rows.zarr", "--target", "y"], 2),
    ],
    ids=["python", "command"],
)
def test_query_planning_of_dask_arrays_is_refused(words, code):
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "DASK_ARRAY__QUERY_PLANNING": "True"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code
    last = done.stderr.splitlines()[-1]
    assert "query planning of Dask arrays is on, which daskgp does not support: set " in last
    assert ("Traceback" in done.stderr) == (words[0] == "-c")
