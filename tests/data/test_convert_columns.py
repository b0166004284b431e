"""Columns of a conversion: times as days, text that is refused, frames of other libraries."""

import datetime
import gc

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import daskgp
from daskgp import convert
from daskgp.errors import InputError

DAYS = "days since 1970-01-01"
WHEN = pd.to_datetime(
    ["2021-03-04", "2021-03-05 06:00", None, "1969-12-31", "2021-03-04 00:00:01"], format="ISO8601"
)


def table():
    values = np.random.default_rng(0).normal(size=(5, 2))
    return pd.DataFrame(values, columns=["a", "y"]).assign(when=WHEN)[["a", "when", "y"]]


def expected():
    days = (WHEN.to_numpy() - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    return np.column_stack([table()["a"], days, table()["y"]])


def rows(store):
    group = zarr.open_group(str(store), mode="r")
    return np.column_stack([group[name][...] for name in ("X", "y")])


def said(store):
    return zarr.open_group(str(store), mode="r").attrs["feature_units"]


def message(*arguments, **settings):
    with pytest.raises(InputError) as caught:
        convert(*arguments, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def forms(frame, folder):
    """The same table in every form that is read."""
    pa, dd = pytest.importorskip("pyarrow"), pytest.importorskip("dask.dataframe")
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_csv(folder / "t.csv.gz", index=False)
    frame.to_parquet(folder / "t.parquet", row_group_size=2)
    arrow = pa.Table.from_pandas(frame)
    return {
        "csv": folder / "t.csv",
        "gz": folder / "t.csv.gz",
        "parquet": folder / "t.parquet",
        "pandas": frame,
        "dask": dd.from_pandas(frame, npartitions=2),
        "arrow": arrow,
        "stream": pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(2)),
    }


FORMS = ["csv", "parquet", "npz", "pandas", "index", "zone", "nullable", "dask", "arrow", "stream"]


@pytest.mark.parametrize("form", FORMS)
def test_times_become_days_since_1970_in_every_form(tmp_path, form):
    out, frame = tmp_path / "o.zarr", table()
    np.savez(tmp_path / "t.npz", **{name: frame[name].to_numpy() for name in frame})
    source = {
        **forms(frame, tmp_path),
        "npz": tmp_path / "t.npz",
        "index": frame.set_index("when"),
        "zone": frame.assign(when=frame["when"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")),
        "nullable": frame.convert_dtypes(),
    }[form]
    done = convert(source, out, "y", ["a", "when"], block_rows=2)
    assert done[:4] == (5, 0, ("a", "when"), ("y",))
    np.testing.assert_allclose(rows(out), expected(), rtol=1e-15)
    assert said(out) == ["", DAYS]
    daskgp.prepare(out, tmp_path / "blocks.zarr", order=["a"])
    assert said(tmp_path / "blocks.zarr") == ["", DAYS]


def test_polars_frames_are_converted(tmp_path):
    polars = pytest.importorskip("polars")
    convert(polars.from_pandas(table()), tmp_path / "o.zarr", "y", block_rows=2)
    np.testing.assert_allclose(rows(tmp_path / "o.zarr"), expected(), rtol=1e-15)


def test_times_with_zones_and_dates_in_a_csv_and_arrow(tmp_path):
    text = "when,y\n2021-03-04T01:00:00+01:00,1\n2021-03-04 12:00,2\n2021-03-06Z,3\n2021-04,4\n"
    (tmp_path / "t.csv").write_text(text.replace("06Z", "06T00Z"))
    convert(tmp_path / "t.csv", tmp_path / "o.zarr", "y")
    np.testing.assert_allclose(rows(tmp_path / "o.zarr")[:, 0], [18690, 18690.5, 18692, 18718])
    pa = pytest.importorskip("pyarrow")
    arrow = pa.table({"when": [datetime.date(1970, 1, 3), None], "y": [1.0, 2.0]})
    convert(arrow, tmp_path / "p.zarr", "y")
    np.testing.assert_array_equal(rows(tmp_path / "p.zarr")[:, 0], [2.0, np.nan])


@pytest.mark.parametrize(("early", "late"), [("", "Z"), ("+02:00", ""), ("Z", "+02:00"), ("", "")])
def test_times_of_which_some_have_no_zone_are_told(early, late, tmp_path, caplog):
    times = [f"2021-03-04T01:00{early},1", ",1"] * 40 + [f"2021-03-05 02:00:00{late},2"]
    (tmp_path / "t.csv").write_text("\n".join(["when,y", *times]))
    convert(tmp_path / "t.csv", tmp_path / "o.zarr", "y", block_rows=30)
    wanted = (
        f"column 'when' of {tmp_path / 't.csv'} has times with and without a time zone (row 81 "
        f"is the first {'without' if early else 'with'} one), and those without are read as UTC: "
        "write the time zone of all of them"
    )
    assert caplog.messages == [wanted] * (bool(early) != bool(late))


ADVICE = "correct such cells or leave them empty; write two classes as 0 and 1"


@pytest.mark.parametrize("form", ["csv", "parquet", "pandas", "arrow"])
def test_columns_of_text_and_categories_are_all_named(tmp_path, form):
    frame = table().assign(city="Oslo", kind=pd.Categorical(list("uvuvu")))
    source = forms(frame, tmp_path)[form]
    said = message(source, tmp_path / "o.zarr", "y")
    assert said.startswith("columns 'city', 'kind' of ")
    assert "hold neither numbers nor times" in said
    assert said.endswith("the features to use, with --features a,when (features= in Python)")
    assert ": leave them out by" in said
    assert convert(source, tmp_path / "n.zarr", "y", ["a", "kind"]).rows == 5
    wide = frame.assign(**dict.fromkeys(map("f{}".format, range(9)), 1.0))
    said = message(wide, tmp_path / "o.zarr", "y")
    assert said.endswith("with --features or features=")  # more than a line has room for
    said = message(source, tmp_path / "o.zarr", "kind")
    assert said.startswith("column 'kind' of ")
    assert said.endswith("a target needs numbers: " + ADVICE)
    assert convert(source, tmp_path / "o.zarr", "y", ["a", "when"]).rows == 5


def test_grids_in_memory_and_in_stores_of_zarr_are_converted(tmp_path):
    values = np.arange(6.0).reshape(2, 3)
    coords = {"time": np.array(["2020-01-01", "2020-01-02"], "M8[ns]"), "x": np.arange(3.0)}
    field = xr.DataArray(values, coords, ("time", "x"), "temp", {"units": "K"})
    field.coords["x"].attrs["units"] = "m"
    store = zarr.storage.MemoryStore()
    field.to_dataset().to_zarr(store, consolidated=False)

    class Session:
        """The part of an Icechunk session that is used."""

        def __init__(self):
            self.store = store

    for i, source in enumerate(
        (field, field.to_dataset(), field.chunk(x=2), store, Session(), zarr.open_group(store))
    ):
        out = tmp_path / f"{i}.zarr"
        assert convert(source, out, "temp").features == ("time", "x")
        np.testing.assert_array_equal(rows(out)[:, 2], values.ravel())
        assert said(out) == [DAYS, "m"]
        assert zarr.open_group(str(out)).attrs["target_units"] == ["K"]


@pytest.mark.whole
@pytest.mark.parametrize("package", ["icechunk", "obstore"])
def test_stores_of_other_packages_are_converted(package, tmp_path):
    made = pytest.importorskip(package)
    if package == "icechunk":
        source = made.Repository.create(made.in_memory_storage()).writable_session("main")
        store = source.store
    else:
        source = store = zarr.storage.ObjectStore(made.store.MemoryStore())
    field = xr.DataArray(np.arange(3.0), {"x": np.arange(3.0)}, ("x",), "temp")
    field.to_dataset().to_zarr(store, consolidated=False)
    assert convert(source, tmp_path / "o.zarr", "temp").rows == 3


def test_other_objects_are_refused_in_one_line(tmp_path):
    for source in (b"x", 3, np.zeros((3, 2)), object(), [table()], []):
        said = message(source, tmp_path / "o.zarr", "y")
        assert said.startswith(f"source is a {type(source).__name__}: give the path or URL of a")


def test_fits_take_arrow_tables_and_dask_frames_with_the_names_of_their_columns():
    pa, dd = pytest.importorskip("pyarrow"), pytest.importorskip("dask.dataframe")
    frame = table()[["a", "y"]].assign(b=np.arange(5.0))
    whole = daskgp.ExactGP("rbf(1.0)", optimizer=None).fit(frame[["a", "b"]], frame["y"])
    expected = whole.predict(frame[["a", "b"]])
    for form in (pa.Table.from_pandas(frame), dd.from_pandas(frame, npartitions=2)):
        X = form.select(["a", "b"]) if isinstance(form, pa.Table) else form[["a", "b"]]
        model = daskgp.ExactGP("rbf(1.0)", optimizer=None).fit(X, form["y"])
        assert list(model.feature_names_in_) == ["a", "b"]
        found = model.predict(X)
        assert isinstance(found, np.ndarray if isinstance(form, pa.Table) else da.Array)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)


def test_fits_name_columns_of_text_in_arrow_tables_and_dask_frames():
    pa, dd = pytest.importorskip("pyarrow"), pytest.importorskip("dask.dataframe")
    frame = table()[["a"]].assign(city=["Oslo", *"1234"])
    for form in (pa.Table.from_pandas(frame), dd.from_pandas(frame, npartitions=2)):
        with pytest.raises(InputError, match=r"^column 'city' (holds text|has type str)"):
            daskgp.ExactGP().fit(form, np.zeros(5))


def test_text_that_holds_dates_is_read_or_has_a_remedy(tmp_path):
    dask_frame = pytest.importorskip("dask.dataframe")
    pyarrow = pytest.importorskip("pyarrow")
    days = pd.date_range("2020-01-01", periods=6)
    iso = pd.DataFrame({"t": days.strftime("%Y-%m-%d"), "y": np.arange(6.0)})
    convert(dask_frame.from_pandas(iso, npartitions=2), tmp_path / "d.zarr", "y")
    np.testing.assert_array_equal(rows(tmp_path / "d.zarr")[:, 0], 18262 + np.arange(6))
    said = message(pyarrow.Table.from_pandas(iso), tmp_path / "o.zarr", "y")
    assert "not numbers: if it holds times, cast it to timestamps, or leave it out" in said
    with pytest.raises(InputError, match=r"make times of it, as pandas\.to_datetime does; else"):
        daskgp.ExactGP(progress=False).fit(iso[["t"]], iso["y"])
    for order in ("%d/%m/%Y", "%d.%m.%Y"):
        other = iso.assign(t=days.strftime(order))
        with pytest.raises(
            InputError, match=r"make times of it, as pandas\.to_datetime does; else"
        ):
            daskgp.ExactGP(progress=False).fit(other[["t"]], other["y"])


PLAIN = ["lon,lat,z", "1,2,10", "3,4,20", "5,6,30"]


def csv_of(folder, lines):
    path = folder / "in.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.whole
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["# lon,lat,z", *PLAIN[1:]], ""),
        (["lon, lat, z", *PLAIN[1:]], ""),
        (["# stations of 2020", *PLAIN], ""),
        (["# by me, in 2020", "#", "", "# units: m, m, K", *PLAIN], ""),
        (["# stations", "# lon,lat,z", *PLAIN[1:]], ""),
        (["sep=,", *PLAIN], ""),
        ([PLAIN[0], *(f"{line}," for line in PLAIN[1:])], ""),
        (["# first", PLAIN[0], *(f"{line}," for line in PLAIN[1:])], ""),
        (["index,lon,lat,z", *(f"{i}.0,{line}" for i, line in enumerate(PLAIN[1:]))], "numbers"),
        ([",lon,lat,z", *(f"{i}.0,{line}" for i, line in enumerate(PLAIN[1:]))], "no name and num"),
        (
            ["Unnamed: 0,lon,lat,z", *(f"{i}.0,{line}" for i, line in enumerate(PLAIN[1:]))],
            "has no name and numbers the rows",
        ),
        (["lon,lat,z,", *(f"{line}," for line in PLAIN[1:])], "is empty"),
        ([",lon,lat,z", *(f"{i},{line}" for i, line in enumerate(PLAIN[1:]))], "numbers the rows"),
        (
            [",lon,lat,z", *(f"{i},{line}" for i, line in enumerate(PLAIN[1:], 1))],
            "numbers the rows",
        ),
        (
            [",lon,lat,z", *(f"{i},{line}" for i, line in zip((7, 9, 8), PLAIN[1:], strict=True))],
            "holds whole numbers, as the index",
        ),
        (
            [",lon,lat,z", *(f"{i},{line}" for i, line in zip((0, 2, 4), PLAIN[1:], strict=True))],
            "holds whole numbers, as the index",
        ),
    ],
    ids=[
        *("comment", "blanks", "comment above", "comments above", "two comments", "separator"),
        *("comma of rows", "comment and comma", "index by name", "floats", "unnamed floats"),
        *("trailing comma", "index", "index from 1", "shuffled", "filtered"),
    ],
)
def test_headers_as_other_software_writes_them_give_the_same_columns(lines, said, tmp_path, caplog):
    found = convert(csv_of(tmp_path, lines), tmp_path / "out.zarr", target="z")
    X, y = daskgp.open_dataset(tmp_path / "out.zarr")
    assert (found.features, found.targets) == (("lon", "lat"), ("z",))
    np.testing.assert_array_equal(X.compute(), [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(y.compute(), [10, 20, 30])
    assert (said in caplog.text) if said else not caplog.text


@pytest.mark.whole
@pytest.mark.parametrize("name", ["index", "Unnamed: 0"])
def test_numbers_of_rows_of_a_data_frame_are_left_out_unless_they_are_all(name, tmp_path, caplog):
    frame = pd.DataFrame({"lon": [1.0, 3, 5], "z": [10.0, 20, 30]}).reset_index(names=name)
    assert convert(frame, tmp_path / "a.zarr", target="z").features == ("lon",)
    assert "numbers the rows: left out" in caplog.text
    assert convert(frame, tmp_path / "b.zarr", "z", [name, "lon"]).features == (name, "lon")
    frame.to_parquet(tmp_path / "t.parquet")
    assert convert(tmp_path / "t.parquet", tmp_path / "p.zarr", target="z").features == ("lon",)
    only = (
        frame[["index", "z"]] if name == "index" else frame.assign(index=[0, 1, 2])[["index", "z"]]
    )
    assert convert(only, tmp_path / "c.zarr", target="z").features == ("index",)
    kept = frame.rename(columns={name: "index"}).assign(index=[0.0, 2.0, 1.0])
    assert convert(kept, tmp_path / "d.zarr", target="z").features == ("index", "lon")


STORED = "__index_level_0__"


@pytest.mark.whole
@pytest.mark.parametrize("source", ["file", "folder", "many", "arrow", "stream", "polars"])
@pytest.mark.parametrize("order", [[0, 2, 3, 5], [4, 0, 3, 1]], ids=["filtered", "shuffled"])
def test_an_index_without_a_name_that_arrow_holds_is_left_out(source, order, tmp_path, caplog):
    pa = pytest.importorskip("pyarrow")
    whole = pd.DataFrame({"lon": np.sqrt(np.arange(6.0)), "z": np.arange(6) ** 2.0})
    frame, path = whole.iloc[order], tmp_path / "t.parquet"
    if source == "folder":
        frame = frame.assign(year=[2020, 2021, 2020, 2021]).sort_values("year", kind="stable")
        frame.to_parquet(path, partition_cols=["year"])
        frame = frame.drop(columns="year")
    elif source == "many":
        path = tmp_path / "parts"
        path.mkdir()
        for i in (0, 2):
            frame[i : i + 2].to_parquet(path / f"{i}.parquet")
    else:
        frame.to_parquet(path)
    given = path
    if source in ("arrow", "stream"):
        given = pa.Table.from_pandas(frame)
    if source == "stream":
        given = given.to_reader(max_chunksize=2)
    if source == "polars":
        given = pytest.importorskip("polars").read_parquet(path)
    found = convert(given, tmp_path / "a.zarr", target="z")
    assert found.features == (("lon", "year") if source == "folder" else ("lon",))
    assert caplog.text.count("left out") == 1
    assert f"column '{STORED}' of" in caplog.text
    assert "has no name and holds whole numbers" in caplog.text
    X, y = daskgp.open_dataset(tmp_path / "a.zarr")
    np.testing.assert_array_equal(X[:, 0].compute(), frame["lon"])
    np.testing.assert_array_equal(y.compute(), frame["z"])


def test_an_index_without_a_name_is_a_feature_where_it_is_named_or_holds_times(tmp_path, caplog):
    pa = pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"lon": [1.0, 3, 5], "z": [10.0, 20, 30]}, index=[4, 2, 9])
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (tmp_path / "t.parquet", pa.Table.from_pandas(frame)):
        store = tmp_path / f"{type(source).__name__}.zarr"
        assert convert(source, store, "z", [STORED]).features == (STORED,)
        np.testing.assert_array_equal(daskgp.open_dataset(store)[0].compute(), [[4], [2], [9]])
    frame.index = pd.to_datetime(["2020-01-03", "2020-01-01", "2020-01-09"])
    frame.to_parquet(tmp_path / "times.parquet")
    found = convert(tmp_path / "times.parquet", tmp_path / "times.zarr", target="z")
    assert found.features == ("lon", STORED)
    assert not caplog.text


def test_two_columns_of_a_data_frame_with_one_name_are_refused(tmp_path):
    frame = table()
    twice = pd.concat([frame, frame[["a"]]], axis=1)
    assert "has several columns named 'a': give each a name of its own" in message(
        twice, tmp_path / "o.zarr", "y"
    )


@pytest.mark.whole
@pytest.mark.parametrize("code", ["utf-16", "latin-1"])
@pytest.mark.parametrize("deep", [0, 40_000])
def test_a_csv_in_another_encoding_is_refused_with_the_remedy(code, deep, tmp_path):
    lines = [*PLAIN[:2], *PLAIN[1:2] * deep, "1,2,3\u00e4"]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding=code)
    said = message(tmp_path / "t.csv", tmp_path / "o.zarr", "z")
    plain = code.replace("latin-1", "latin1")
    assert said.endswith(
        f"it is not UTF-8 text: save it as UTF-8, for example with iconv -f {plain} -t utf-8"
    )


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_files_are_closed(tmp_path):
    convert(csv_of(tmp_path, PLAIN), tmp_path / "o.zarr", target="z")
    gc.collect()
    message(csv_of(tmp_path, [*PLAIN, "1,x,3"]), tmp_path / "p.zarr", "z")
    gc.collect()


def with_empty(form, folder, n=7):
    """A table in some form: features a and b, of which b is empty, and a target."""
    frame = pd.DataFrame({"a": np.arange(n) ** 2.0, "b": np.full(n, np.nan), "z": np.ones(n)})
    frame = frame.assign(b=None) if form.startswith("null ") else frame
    return forms(frame, folder)[form.removeprefix("null ")]


EMPTY_IN = ["csv", "gz", "parquet", "pandas", "dask", "arrow", "null parquet", "null pandas"]


@pytest.mark.parametrize("form", EMPTY_IN)
def test_an_empty_column_is_left_out_with_one_line(form, tmp_path, caplog):
    found = convert(with_empty(form, tmp_path), tmp_path / "out.zarr", target="z")
    assert found.features == ("a",)
    (line,) = caplog.messages
    assert line.startswith("column 'b' of")
    assert line.endswith("is empty: left out")
    X, _ = daskgp.open_dataset(tmp_path / "out.zarr")
    np.testing.assert_array_equal(X.compute()[:, 0], np.arange(7) ** 2.0)


def test_an_empty_column_of_a_polars_frame_is_left_out(tmp_path):
    polars = pytest.importorskip("polars")
    frame = polars.from_pandas(with_empty("pandas", tmp_path))
    assert convert(frame, tmp_path / "out.zarr", target="z").features == ("a",)


@pytest.mark.parametrize("form", ["csv", "parquet", "pandas", "dask"])
def test_an_empty_column_that_is_named_is_taken_as_said(form, tmp_path, caplog):
    source = with_empty(form, tmp_path)
    found = convert(source, tmp_path / "out.zarr", target="z", features=["a", "b"])
    assert found.features == ("a", "b")
    assert not caplog.text


@pytest.mark.parametrize("form", ["csv", "dask"])
def test_a_column_that_is_empty_only_at_its_beginning_stays_a_feature(form, tmp_path, caplog):
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"a": np.arange(300.0) % 7, "b": np.nan, "z": 1.0})
    frame.loc[250:, "b"] = 3.5
    frame.to_csv(tmp_path / "t.csv", index=False)
    source = tmp_path / "t.csv" if form == "csv" else dd.from_pandas(frame, npartitions=6)
    assert convert(source, tmp_path / "out.zarr", target="z").features == ("a", "b")
    assert not caplog.text


def test_a_column_that_is_empty_in_some_of_many_files_stays_a_feature(tmp_path, caplog):
    (tmp_path / "1.csv").write_text("a,b,c,z\n1,,,3\n2,,,3\n")
    (tmp_path / "2.csv").write_text("a,b,c,z\n1,5,,3\n2,6,,3\n")
    assert convert(tmp_path / "*.csv", tmp_path / "o.zarr", target="z").features == ("a", "b")
    assert [line.partition(" of ")[0] for line in caplog.messages] == ["column 'c'"]


def test_an_empty_target_and_a_file_without_rows_are_no_empty_columns(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,z\n1,2,\n3,4,\n")
    assert convert(tmp_path / "t.csv", tmp_path / "o.zarr", target="z").features == ("a", "b")
    (tmp_path / "none.csv").write_text("a,b,z\n")
    assert "has no rows" in message(tmp_path / "none.csv", tmp_path / "p.zarr", "z")


@pytest.mark.parametrize(("first", "names"), [("4.5", None), ("4", ["Unnamed: 0", "lat"])])
@pytest.mark.whole
def test_a_column_without_a_name_that_counts_nothing_or_is_named_is_a_feature(
    first, names, tmp_path
):
    lines = [",lat,z", f"{first},2,10", "3,4,20", "5,6,30"]
    found = convert(csv_of(tmp_path, lines), tmp_path / "out.zarr", "z", names)
    assert found.features == ("Unnamed: 0", "lat")
