"""Dates written as whole numbers: read as the times that they are, or warned of."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import refused, succeed
from logs import warnings_in

import daskgp
from daskgp import data
from daskgp.data import feature_units, whole_dates
from daskgp.errors import InputError

DAYS = feature_units.DAYS
FIXED = {"kernel": "matern32((60.0, 2.0), 1.0)", "noise_variance": 0.01, "optimizer": None}
QUIET = {"progress": False}
CODES = {form.written: form.coded for form in whole_dates.FORMS}


def model(**more):
    return daskgp.ExactGP(**FIXED, **QUIET, **more)


def rows(n=60, seed=0):
    """Days since 1970 of two years, a second feature and a target that is smooth in time."""
    rng = np.random.default_rng(seed)
    day = np.sort(rng.choice(730, n, replace=False)) + 18_262.0
    x = rng.uniform(0, 5, n)
    return pd.DataFrame({"date": day, "x": x, "z": np.sin(day / 40) + np.cos(x)})


def written(table, code="%Y%m%d"):
    """The same rows with their dates as whole numbers."""
    days = pd.to_datetime(table.date, unit="D")
    return table.assign(date=days.dt.strftime(code).astype(np.int64))


@pytest.fixture
def halves(tmp_path):
    """Rows of a fit and others, as csv files with dates as whole numbers."""
    table = rows()
    for name, part in (("fit", table[::2]), ("new", table[1::2])):
        written(part).to_csv(tmp_path / f"{name}.csv", index=False)
    return table[::2], table[1::2], tmp_path


# -- the numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", whole_dates.FORMS, ids=lambda form: form.written)
def test_every_date_is_that_of_pandas(form):
    step = "D" if form.written in ("yyyymmdd", "yyyyddd") else "11D"
    times = pd.date_range("1700-01-01", "2299-12-31", freq=step, unit="s")
    times += pd.to_timedelta(np.arange(len(times)) % 86_400, unit="s")
    text = times.strftime(form.coded)
    wanted = pd.to_datetime(text, format=form.coded).to_numpy("M8[s]").astype(np.int64) / 86_400
    values = text.astype(np.int64).to_numpy(np.float64)
    np.testing.assert_allclose(whole_dates.days_of(values, form), wanted, rtol=0, atol=1e-9)
    assert whole_dates.form_of(values) == form


@pytest.mark.parametrize(
    "values",
    [[20210229], [20211301], [20210100], [202113], [2021366], [2021010124], [3000], [-20210101]],
)
def test_numbers_that_are_no_dates_are_not_taken_for_some(values):
    assert whole_dates.form_of(np.array(values, float)) is None


@pytest.mark.parametrize("calendar", ["noleap", "all_leap", "360_day"])
def test_calendars_are_those_of_cftime(calendar):
    cftime = pytest.importorskip("cftime")
    dates = cftime.num2date(np.arange(-800, 800, 7), DAYS, calendar=calendar)
    values = np.array([date.year * 10_000 + date.month * 100 + date.day for date in dates], float)
    found = whole_dates.days_of(values, whole_dates.FORMS[0], calendar)
    np.testing.assert_array_equal(found, np.arange(-800, 800, 7))


# -- sources -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["%Y%m%d", "%Y%j"])
@pytest.mark.parametrize("name", ["date", "obs_time", "YEARMODA"])
def test_a_fit_of_dates_as_numbers_is_that_of_the_times(code, name, tmp_path, caplog):
    table = rows()
    plain = table.rename(columns={"date": name})
    written(table, code).rename(columns={"date": name}).to_csv(tmp_path / "d.csv", index=False)
    found = model().fit(f"{tmp_path}/d.csv", "z")
    (line,) = warnings_in(caplog)
    assert f"column {name!r}" in line
    assert "holds dates written yyyy" in line
    assert found.solved_.feature_units == (DAYS, "")
    wanted = model().fit(plain[[name, "x"]], plain.z)
    assert found.objective_ == pytest.approx(wanted.objective_, rel=1e-12)


def test_months_are_their_first_days(tmp_path):
    month = np.arange(np.datetime64("2019-01"), np.datetime64("2021-01"))
    text = [str(one).replace("-", "") for one in month]
    pd.DataFrame({"month": text, "z": np.arange(24.0)}).to_csv(tmp_path / "d.csv", index=False)
    daskgp.convert(f"{tmp_path}/d.csv", f"{tmp_path}/d.zarr", "z", **QUIET)
    X, _ = daskgp.open_dataset(f"{tmp_path}/d.zarr")
    np.testing.assert_array_equal(X[:, 0], month.astype("M8[D]").astype(float))


@pytest.mark.parametrize(
    ("units", "values", "wanted"),
    [
        ("day as %Y%m%d.%f", [20201231.5, 20210101.0, 20210201.25], [0.5, 1.0, 32.25]),
        ("month as %Y%m.%f", [202012, 202101.5, 202102], [-30, 16.5, 32]),
        ("", [20201231, 20210101, 20210301], [0, 1, 60]),
        ("YYYYMMDD", [20201231, 20210101, 20210301], [0, 1, 60]),
    ],
)
@pytest.mark.parametrize("kind", ["file", "object"])
def test_a_grid_of_such_times_is_read_and_predicted(units, values, wanted, kind, tmp_path):
    z = np.sin(np.arange(12.0)).reshape(3, 4)
    grid = xr.Dataset(
        {"z": (("time", "x"), z)},
        {"time": ("time", np.array(values), {"units": units} if units else {}), "x": np.arange(4)},
    )
    days = np.array(wanted) + 18_627.0
    plain = grid.assign_coords(time=("time", days, {"units": DAYS}))
    grid.to_netcdf(tmp_path / "g.nc")
    source = f"{tmp_path}/g.nc" if kind == "file" else grid
    found, known = model().fit(source, "z"), model().fit(plain, "z")
    assert found.solved_.feature_units[0] == DAYS
    assert found.objective_ == pytest.approx(known.objective_, rel=1e-12)
    on_grid = found.predict(grid)
    np.testing.assert_allclose(on_grid, known.predict(plain), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(on_grid.time, grid.time)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        found.predict_store("g.nc", "map")
    with xr.open_zarr(f"{tmp_path}/map", consolidated=False) as made:
        np.testing.assert_allclose(made["mean"], on_grid, rtol=1e-9, atol=1e-12)


def test_arrays_of_a_labelled_fit_are_read_by_their_units():
    time = ("time", np.array([20201231, 20210101, 20210301]), {"units": "day as %Y%m%d.%f"})
    coords = {"time": time, "x": np.arange(4)}
    y = xr.DataArray(np.sin(np.arange(12.0)).reshape(3, 4), coords, ("time", "x"), "z")
    found = model().fit(y, y)
    assert found.solved_.feature_units == (DAYS, "")
    assert found.solved_.scaling.x_shift[0] == pytest.approx(18_627 + 61 / 3)


def test_numbers_stay_where_they_are_asked_for_or_are_no_dates(halves, caplog):
    _, _, folder = halves
    source = f"{folder}/fit.csv"
    daskgp.convert(source, f"{folder}/raw.zarr", "z", dates=False, **QUIET)
    X, _ = daskgp.open_dataset(f"{folder}/raw.zarr")
    assert float(X[0, 0]) > 2e7
    (folder / "s.csv").write_text("time,x,z\n" + "\n".join(f"{i * 977},1,2" for i in range(9)))
    daskgp.convert(f"{folder}/s.csv", f"{folder}/s.zarr", "z", **QUIET)
    assert float(daskgp.open_dataset(f"{folder}/s.zarr")[0][-1, 0]) == 8 * 977
    assert not warnings_in(caplog)


def test_dates_are_named_where_no_name_tells(halves):
    _, _, folder = halves
    table = pd.read_csv(folder / "fit.csv").rename(columns={"date": "when"})
    table.to_csv(folder / "w.csv", index=False)
    store = f"{folder}/w.zarr"
    succeed("convert", f"{folder}/w.csv", store, "--target", "z", "--dates", "when")
    assert data.units_of(daskgp.open_dataset(store)[0], ["", ""]) == (DAYS, "")
    line = refused("convert", f"{folder}/w.csv", f"{folder}/n", "--target", "z", "--dates", "x")
    assert "column 'x'" in line
    assert "does not hold dates of one of the forms yyyymmdd" in line
    line = refused("convert", f"{folder}/w.csv", f"{folder}/n", "--target", "z", "--dates", "q")
    assert "date 'q' is not in" in line
    assert not (folder / "n").exists()


def test_a_later_number_that_is_no_date_is_named(tmp_path):
    days = np.arange(np.datetime64("2000-01-01"), np.datetime64("2000-02-01"))
    lines = [f"{str(day).replace('-', '')},{i}" for i, day in enumerate(days)]
    (tmp_path / "d.csv").write_text("\n".join(["date,z", *lines, "20000230,1"]))
    with pytest.raises(InputError, match=r"'date' .* holds 20000230 in row 32, .*dates=False"):
        daskgp.convert(f"{tmp_path}/d.csv", f"{tmp_path}/d.zarr", "z", block_rows=16, **QUIET)
    assert not (tmp_path / "d.zarr").exists()


@pytest.mark.parametrize("rows", [200, 12])
@pytest.mark.parametrize("bad", [20200230, -9999])
def test_one_that_is_no_date_among_many_is_named(rows, bad, tmp_path, caplog):
    day = np.arange(np.datetime64("2020-01-01"), np.datetime64("2020-07-19"))[:200:10][:rows]
    day = day if rows < 20 else np.arange(day[0], day[0] + 200)
    date = np.array([int(str(one).replace("-", "")) for one in day])
    date[4] = bad
    table = pd.DataFrame({"date": date, "z": np.sin(np.arange(len(date)) / 9)})
    table.to_csv(tmp_path / "d.csv", index=False)
    says = (
        rf"holds {bad} in row 5, which is not a date written yyyymmdd: correct it or leave it empty"
    )
    for dates in ("date", None)[: 1 + (rows > 20)]:
        with pytest.raises(InputError, match=says):
            daskgp.convert(f"{tmp_path}/d.csv", f"{tmp_path}/d.zarr", "z", dates=dates, **QUIET)
    caplog.clear()
    daskgp.ExactGP(optimizer=None, fill_values=None, **QUIET).fit(table[["date"]], table.z)
    assert f"correct {bad}, which is not a date, and give times" in caplog.text


OTHERS = {"%d%m%Y": "ddmmyyyy", "%m%d%Y": "mmddyyyy", "%y%m%d": "yymmdd or ddmmyy"}


@pytest.mark.parametrize("code", OTHERS)
def test_dates_that_do_not_begin_with_the_year_are_told(code, tmp_path, caplog):
    table = written(rows(), code)
    model().fit(table[["date", "x"]], table.z)
    (line,) = warnings_in(caplog)
    assert line.startswith(f"feature 'date' holds dates written {OTHERS[code]}, such as ")
    assert f"format={code!r}" in line
    table.to_csv(tmp_path / "d.csv", index=False)
    says = rf"give times, pandas\.to_datetime\(values.*format={code!r}.*or leave it out of dates"
    with pytest.raises(InputError, match=says):
        daskgp.convert(f"{tmp_path}/d.csv", f"{tmp_path}/d.zarr", "z", dates="date", **QUIET)
    caplog.clear()
    other = table.rename(columns={"date": "count"})
    model().fit(other[["count", "x"]], other.z)
    assert not warnings_in(caplog)


def test_dates_of_which_day_and_month_pass_for_one_another_are_both():
    days = pd.to_datetime([f"2021-{month:02d}-{day:02d}" for month in (3, 4) for day in (1, 2, 12)])
    assert whole_dates.others_of(days.strftime("%d%m%Y").astype(int)) == ["ddmmyyyy", "mmddyyyy"]


@pytest.mark.parametrize(
    "values",
    [
        18_262 + 9 * np.arange(400),
        20_101 + np.arange(300),
        1_012_000 + np.arange(300),
        10_000 * np.arange(1, 90),
        101 + 100 * np.arange(90),
        (np.arange(24)[:, None] * 10_000 + np.arange(0, 60, 5) * 100).ravel(),  # hhmmss
        3_600 * np.arange(500),
    ],
)
def test_counts_are_no_dates_that_do_not_begin_with_the_year(values):
    assert not whole_dates.others_of(values)


@pytest.mark.parametrize("stand_in", ["0001-01-01", "9999-12-31"])
def test_days_that_stand_for_missing_times_are_told(stand_in, tmp_path, caplog):
    days = pd.date_range("2020-01-01", periods=18).strftime("%Y-%m-%d").to_list()
    table = pd.DataFrame({"date": [*days[:-1], stand_in], "z": np.sin(np.arange(18) / 4)})
    table.to_csv(tmp_path / "d.csv", index=False)
    alone = daskgp.ExactGP(optimizer=None, **QUIET)
    alone.fit(f"{tmp_path}/d.csv", "z")
    ends = ("0001-01-01", days[-2]) if stand_in < "2" else (days[0], "9999-12-31")
    assert warnings_in(caplog) == [
        f"feature 'date' goes from {ends[0]} to {ends[1]}: if {stand_in} stands for a missing "
        "time, leave it empty (NaT)"
    ]
    caplog.clear()
    early = pd.date_range("0900-01-01", periods=18, freq="900D", unit="s")
    alone.fit(pd.DataFrame({"date": early}), table.z)
    assert not caplog.messages


# -- models and stores that are there -------------------------------------------------------------


def test_places_come_in_the_form_of_the_training_rows(halves):
    first, second, folder = halves
    found = model().fit(f"{folder}/fit.csv", "z")
    wanted = model().fit(first[["date", "x"]], first.z).predict(second[["date", "x"]])
    new = pd.read_csv(folder / "new.csv")
    for places in (new[["date", "x"]], new[["date", "x"]].to_numpy()):
        np.testing.assert_allclose(found.predict(places), wanted, rtol=1e-9)
    found.predict_store(f"{folder}/new.csv", f"{folder}/out.csv")
    np.testing.assert_allclose(pd.read_csv(folder / "out.csv").z_mean, wanted, rtol=1e-9)
    rmse = np.sqrt(np.mean((wanted - second.z) ** 2))
    assert daskgp.check(found, f"{folder}/new.csv", "z").scores["rmse"] == pytest.approx(rmse)


@pytest.mark.whole
@pytest.mark.parametrize("bad", [20200230, -9999, 99999999, 0])
def test_a_place_whose_date_is_none_leaves_the_others_alone(bad, halves):
    fit, new, folder = halves
    fitted = model().fit(fit.assign(date=pd.to_datetime(fit.date, unit="D"))[["date", "x"]], fit.z)
    places = written(new).drop(columns="z")
    wanted = fitted.predict(places, return_std=True)
    places.iloc[4, 0] = bad
    for found, right in zip(fitted.predict(places, return_std=True), wanted, strict=True):
        assert np.isnan(found[4])
        np.testing.assert_array_equal(np.delete(found, 4), np.delete(right, 4))
    most = places.copy()
    most.iloc[:20, 0] = bad
    found = fitted.predict(most)
    assert np.isnan(found[:20]).all()
    np.testing.assert_array_equal(found[20:], wanted[0][20:])
    fitted.save(str(folder / "m.zarr"))
    places.to_csv(folder / "places.csv", index=False)
    line = refused("predict", folder / "m.zarr", folder / "places.csv", folder / "out.csv")
    assert f"holds {bad} in row 5, which is not a date written yyyymmdd: correct it" in line


def test_arrays_and_stores_that_say_no_unit_are_not_taken_for_days(halves):
    _, second, folder = halves
    found = model().fit(f"{folder}/fit.csv", "z")
    wanted = found.predict(second[["date", "x"]].to_numpy())
    new = written(second)
    store = zarr.create_array(f"{folder}/X", data=new[["date", "x"]].to_numpy(), chunks=(10, 2))
    np.testing.assert_allclose(found.predict(store), wanted, rtol=1e-9)
    rows = new[["date", "x"]].to_numpy(), second.z.to_numpy()
    update = daskgp.SGPR(n_inducing=5, **FIXED, **QUIET).fit(f"{folder}/fit.csv", "z").update
    with pytest.raises(InputError, match=r"'date' of X is in 'yyyymmdd', .* convert it"):
        update(*rows)
    days = second[["date", "x"]].to_numpy(), second.z.to_numpy()
    one, other = (daskgp.check(found, *part, **QUIET).scores for part in (rows, days))
    assert one == pytest.approx(other, rel=1e-9)


def test_a_model_of_plain_numbers_keeps_them(halves):
    first, second, folder = halves
    raw = written(first), written(second)
    found = model().fit(raw[0][["date", "x"]], first.z)
    wanted = found.predict(raw[1][["date", "x"]])
    found.predict_store(f"{folder}/new.csv", f"{folder}/out.csv")
    np.testing.assert_array_equal(pd.read_csv(folder / "out.csv").z_mean, wanted)
    rmse = np.sqrt(np.mean((wanted - second.z) ** 2))
    assert daskgp.check(found, f"{folder}/new.csv", "z").scores["rmse"] == pytest.approx(rmse)
    found.save(f"{folder}/m.zarr")
    line = refused("score", f"{folder}/m.zarr", folder / "new.csv", "--target=z", "--dates=date")
    assert "fitted with plain numbers there" in line


def test_stores_take_more_dates_as_what_they_have(halves):
    first, second, folder = halves
    for dates, wanted in ((None, second.date), (False, written(second).date)):
        store = f"{folder}/{dates}.zarr"
        daskgp.convert(f"{folder}/fit.csv", store, "z", dates=dates, **QUIET)
        daskgp.convert(f"{folder}/new.csv", store, append=True, **QUIET)
        daskgp.convert(f"{folder}/new.csv", f"{store}-like", features="date", like=store, **QUIET)
        X, _ = daskgp.open_dataset(store)
        np.testing.assert_array_equal(X[len(first) :, 0], wanted)
        places = data.open_inputs(f"{store}-like")
        np.testing.assert_array_equal(np.asarray(places)[:, 0], wanted)


# -- arrays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["%Y%m%d", "%Y%m", "%Y%j"])
@pytest.mark.parametrize("name", ["date", "b"])
def test_dates_in_arrays_are_warned_of(code, name, caplog):
    table = written(rows(), code).rename(columns={"date": name})
    model().fit(table[[name, "x"]], table.z)
    (line,) = warnings_in(caplog)
    assert line.startswith(f"feature {name!r} holds dates written yyyy")


@pytest.mark.parametrize(
    "values",
    [
        20_200_101 + np.arange(30) % 28,  # of one month, whose differences are right
        20_000_000 + 977 * np.arange(30),
        np.arange(30) * 7 + 18_262,
    ],
)
def test_other_numbers_are_not(values, caplog):
    X = np.stack([values, np.cos(np.arange(30.0))], axis=1)
    model().fit(X, np.sin(np.arange(30.0)))
    assert not warnings_in(caplog)


# -- times of day, and months behind a point -------------------------------------------------------

HOURS, EVERY = np.arange(24.0), np.arange(0.0, 60.0, 7.0)
TIMES = {
    "hhmm": np.add.outer(100 * HOURS, [0, 30]),
    "hhmmss": np.add.outer(10_000 * HOURS, 100 * EVERY + EVERY),
    "yyyy.mm": np.add.outer(np.arange(2000, 2004), np.arange(1, 13) / 100),
}


@pytest.mark.parametrize("written", TIMES)
def test_times_of_day_and_months_are_told_with_what_makes_times_of_them(written, caplog):
    values = TIMES[written].ravel()
    sample = np.stack([values, values[::-1]], axis=1)
    whole_dates.warn(("time", "x"), sample, ())
    (line,) = warnings_in(caplog)
    assert (
        f"feature 'time' holds times written {written}, such as {values[-1]:.10g}, whose " in line
    )
    remedy = line.partition("give times, ")[2]
    made = eval(remedy, {"pandas": pd, "values": pd.Series(values)})  # noqa: S307 - as a user does
    assert (made.diff().dropna() > pd.Timedelta(0)).all()


@pytest.mark.parametrize(
    "values",
    [
        *(np.arange(0.0, 2_400.0, step) for step in (1, 10, 20, 25, 50, 100)),
        np.arange(0.0, 240_000.0, 1_000.0),
        np.arange(0.0, 1_440.0, 30.0),
        np.linspace(0, 24, 97),
        2000 + np.arange(48) / 12,
        np.round(2000 + np.arange(48) / 12, 2),
        np.arange(1900.0, 2000.0),
        TIMES["hhmm"].ravel()[:19],
        -TIMES["hhmm"].ravel(),
    ],
)
def test_plain_times_are_not_told_as_times_of_day(values, caplog):
    whole_dates.warn(("time", "x"), np.stack([values, values], axis=1), ())
    whole_dates.warn(("x",), TIMES["hhmm"].reshape(-1, 1), ())
    assert not warnings_in(caplog)
