"""Places in another unit than the training rows: refused, where predictions would be the prior."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from commands import invoke, refused, succeed

import daskgp
from daskgp import kernels
from daskgp.assess.scores import scores
from daskgp.errors import InputError
from daskgp.runtime.executor import Executor

pytestmark = pytest.mark.whole
FIXED = {"kernel": "matern32(ard=true)", "optimizer": None, "progress": False}
WHEN = pd.Series(pd.date_range("2019-01-01", periods=80, freq="9D"))
DEPTH = np.linspace(0, 9, 80) ** 1.5
Y = np.sin(np.arange(80.0) / 9) + DEPTH / 30
SECONDS = WHEN.to_numpy("M8[s]").astype(np.int64).astype(float)
DATES = WHEN.dt.strftime("%Y%m%d").astype(float).to_numpy()
CODED = {
    "seconds": SECONDS,
    "milliseconds": SECONDS * 1e3,
    "microseconds": SECONDS * 1e6,
    "nanoseconds": SECONDS * 1e9,
}


def table(time, name="time"):
    return pd.DataFrame({name: time, "depth": DEPTH})


def fitted(time, name="time", **more):
    return daskgp.ExactGP(**{**FIXED, **more}).fit(table(time, name), Y)


FORMS = {
    "array": lambda X: X.to_numpy(float),
    "frame": lambda X: X,
    "dask": lambda X: da.from_array(X.to_numpy(float), chunks=(20, 2)),
    "dask frame": lambda X: dd.from_pandas(X, npartitions=3),
    "table": lambda X: xr.Dataset({name: ("i", X[name]) for name in X}),
    "labelled": lambda X: xr.DataArray(X.to_numpy(float), {"j": [*X]}, ("i", "j")),
}


FAR = "places to predict (is|are) far outside the training rows, which tell nothing there: feature"


def predicted(model, X):
    return np.asarray(model.predict(X))


@pytest.mark.parametrize("unit", CODED)
@pytest.mark.parametrize("form", FORMS)
def test_numbers_in_another_unit_of_time_are_refused(unit, form):
    model, places = fitted(WHEN), table(CODED[unit])
    code = {"seconds": "s", "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}[unit]
    with pytest.raises(InputError) as caught:
        predicted(model, FORMS[form](places))
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("feature 'time' of ")
    assert f"as {unit} since 1970 do, but the training rows from 17897 to 18608, in" in line
    assert line.endswith(f"give times, pandas.to_datetime(..., unit={code!r})")


@pytest.mark.parametrize("form", FORMS)
def test_times_of_the_training_rows_and_later_ones_are_predicted(form):
    model = fitted(WHEN)
    days = SECONDS / 86_400
    np.testing.assert_allclose(
        predicted(model, FORMS[form](table(days))), model.predict(table(WHEN)), rtol=1e-9
    )
    assert np.isfinite(predicted(model, FORMS[form](table(days + 10.0)))).all()
    for shift in (8_000.0, -30_000.0):
        with pytest.warns(UserWarning, match=FAR):
            assert np.isfinite(predicted(model, FORMS[form](table(days + shift)))).all()


@pytest.mark.parametrize("form", ["array", "frame", "dask", "table"])
def test_dates_of_which_none_is_valid_are_refused(form):
    model = fitted(WHEN)
    with pytest.raises(InputError, match=r"which are not dates near those of the training rows, "):
        predicted(model, FORMS[form](table(np.full(80, 20_209_999.0))))


@pytest.mark.parametrize("form", ["array", "frame", "dask", "table"])
def test_numbers_that_count_from_something_else_are_no_dates(form):
    with pytest.raises(InputError, match=r"to \d+, which are not dates near those of t"):
        predicted(fitted(WHEN), FORMS[form](table(np.arange(80.0))))


def test_dates_in_lazy_arrays_are_refused_with_their_form():
    with pytest.raises(InputError, match=r"as yyyymmdd do, .* format='%Y%m%d'"):
        predicted(fitted(WHEN), FORMS["dask"](table(DATES)))


DAYS = SECONDS / 86_400
OTHERS = {
    "decimal years": (
        1970 + DAYS / 365.2425,
        "pandas.to_datetime((... - 1970) * 365.2425, unit='D')",
    ),
    "modified Julian days": (DAYS + 40_587, "origin='1858-11-17', unit='D')"),
    "Julian days": (DAYS + 2_440_587.5, "origin='julian', unit='D')"),
    "day numbers of Excel": (DAYS + 25_569, "origin='1899-12-30', unit='D')"),
    "dates written ddmmyyyy": (WHEN.dt.strftime("%d%m%Y").astype(float), "format='%d%m%Y')"),
    "dates written mmddyyyy": (WHEN.dt.strftime("%m%d%Y").astype(float), "format='%m%d%Y')"),
    "dates written yymmdd or ddmmyy": (
        WHEN.dt.strftime("%y%m%d").astype(float),
        "format='%y%m%d' or",
    ),
}


@pytest.mark.parametrize("code", OTHERS)
@pytest.mark.parametrize("form", ["frame", "dask"])
def test_other_codes_of_times_are_refused(code, form):
    numbers, remedy = OTHERS[code]
    with pytest.raises(InputError) as caught:
        predicted(fitted(WHEN), FORMS[form](table(numbers)))
    line = str(caught.value)
    assert line.startswith("feature 'time' of X goes from ")
    assert f"as {code} do, but the training rows from 17897 to 18608, in 'days since" in line
    assert remedy in line
    if remedy.startswith("origin") and form == "frame":  # the remedy gives the times of the rows
        start, origin = remedy.split("'")[1], "julian" if "julian" in remedy else None
        made = pd.to_datetime(numbers, unit="D", origin=origin or pd.Timestamp(start))
        assert abs(made - WHEN).max() < pd.Timedelta("1s")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
def test_times_far_away_are_no_other_codes(form):
    later = WHEN + pd.Timedelta(days=40_587)  # whose days since 1970 are as modified Julian ones
    if form in ("frame", "dask frame", "table"):
        assert np.isfinite(predicted(fitted(WHEN), FORMS[form](table(later)))).all()
    long = pd.Series(pd.date_range("1950-01-01", periods=80, freq="300D"))
    model = fitted(long)
    for year in (1975.0, 2020.0, 2085.0):  # among these, soon after, and of a projection
        places = (year - 1970) * 365.2425 + np.arange(80.0) * 90
        assert np.isfinite(predicted(model, FORMS[form](table(places)))).all()
    assert np.isfinite(predicted(fitted(WHEN), FORMS[form](table(DAYS + 3_652)))).all()


PLAIN = {
    "seconds": ("time", SECONDS),
    "dates": ("obs", DATES),
    "days of something": ("obs", np.arange(80.0) * 9),
    "days of a long time": ("obs", np.linspace(10, 10_950, 80)),
    "years": ("obs", 2019 + np.arange(80) * 9 / 365.25),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("form", ["frame", "table"])
def test_times_for_a_model_of_plain_numbers_are_refused(kind, form):
    name, numbers = PLAIN[kind]
    model = fitted(numbers, name)
    with pytest.raises(InputError, match=r"holds times, but the model was fitted with numbers fr"):
        predicted(model, FORMS[form](table(WHEN, name)))
    assert np.isfinite(predicted(model, FORMS[form](table(numbers, name)))).all()


def test_times_for_plain_numbers_that_are_their_days_are_right():
    days = SECONDS / 86_400
    for name in ("time", "obs"):
        model = fitted(days, name)
        later = table(WHEN + pd.Timedelta(days=700), name)
        np.testing.assert_allclose(
            model.predict(later), model.predict(table(days + 700, name)), rtol=1e-9
        )


def test_plain_seconds_of_a_column_named_as_a_time_are_compared():
    model = fitted(SECONDS)
    for numbers, word in ((SECONDS * 1e3, "milliseconds"), (SECONDS / 86_400, "days")):
        with pytest.raises(InputError, match=f"as {word} since 1970 do, .* in the unit of these"):
            model.predict(table(numbers))
    clock = fitted(np.linspace(0, 10, 80))
    with pytest.warns(UserWarning, match=FAR):
        assert np.isfinite(clock.predict(table(np.linspace(100, 5_000, 80)))).all()


def test_times_are_refused_before_anything_is_written(tmp_path):
    model = fitted(WHEN)
    model.save(str(tmp_path / "m.zarr"))
    table(SECONDS).to_csv(tmp_path / "p.csv", index=False)
    for output in ("o.csv", "o.zarr"):
        source = tmp_path / "p.csv"
        if output == "o.zarr":
            daskgp.convert(source, tmp_path / "p.zarr", progress=False)
            source = tmp_path / "p.zarr"
        line = refused("predict", tmp_path / "m.zarr", source, tmp_path / output)
        assert "as seconds since 1970 do" in line
        assert not (tmp_path / output).exists()
    grid = xr.Dataset(coords={"time": SECONDS[:5], "depth": DEPTH[:4]})
    grid.to_netcdf(tmp_path / "g.nc")
    line = refused("predict", tmp_path / "m.zarr", tmp_path / "g.nc", tmp_path / "o.zarr")
    assert "feature 'time' of the grid" in line
    assert not (tmp_path / "o.zarr").exists()
    table(SECONDS).assign(y=Y).to_csv(tmp_path / "s.csv", index=False)
    told = invoke("score", tmp_path / "m.zarr", tmp_path / "s.csv", "--target", "y").stderr
    assert "as seconds since 1970 do" in told.splitlines()[-1]


def test_updates_extend_the_range_of_times():
    model = daskgp.SGPR(n_inducing=9, **FIXED).fit(table(WHEN), Y)
    with pytest.raises(InputError, match="as seconds since 1970 do"):
        model.update(table(SECONDS), Y)
    model.update(table(WHEN + pd.Timedelta(days=720)), Y)
    assert model.solved_.trained_on[0].high == 18_608 + 720


# -- longitudes ------------------------------------------------------------------------------------


def places(low, high, n=60):
    rng = np.random.default_rng(1)
    return pd.DataFrame({"lon": rng.uniform(low, high, n), "lat": rng.uniform(-50, 50, n)})


def smooth(X):
    return np.sin(np.radians(X.lon)) + X.lat / 50


def on_plane(X, **more):
    return daskgp.ExactGP(**{**FIXED, **more}).fit(X, smooth(X))


TURNS = {
    "whole globe": ((0, 360), (-180, 180), (-20, 340)),
    "other way": ((-180, 180), (0, 360), (-180, 200)),
    "America": ((235, 290), (-125, -70), (225, 300)),
    "west of Greenwich": ((-12, 3), (348, 363), (-14, 30)),
}


@pytest.mark.parametrize("case", TURNS)
@pytest.mark.parametrize("name", ["lon", "Longitude", "nav_lon"])
def test_longitudes_that_differ_by_a_turn_are_refused(case, name):
    trained, wrong, right = (places(*ends).rename(columns={"lon": name}) for ends in TURNS[case])
    model = daskgp.ExactGP(**FIXED).fit(trained, smooth(trained.rename(columns={name: "lon"})))
    says = rf"feature '{name}' of X goes from .*: add 360 to longitudes below, take 360 from those"
    for form in ("array", "frame", "dask"):
        with pytest.raises(InputError, match=says):
            predicted(model, FORMS[form](wrong))
        assert np.isfinite(predicted(model, FORMS[form](right))).all()


@pytest.mark.parametrize(("name", "most"), [("long_term_mean", 300), ("lon", 500), ("lat", 300)])
def test_other_features_go_on_beyond_their_range(name, most):
    trained, beyond = (
        places(*ends).rename(columns={"lon": name, "lat": "b"})
        for ends in ((100, most), (-200, -100))
    )
    model = daskgp.ExactGP(**FIXED).fit(trained, trained.b)
    assert np.isfinite(model.predict(beyond)).all()


def test_longitudes_of_a_grid_and_by_its_units_are_compared(tmp_path):
    lon, lat = np.arange(200.0, 260.0, 5.0), np.arange(-20.0, 20.0, 5.0)
    values = np.sin(np.radians(lon))[:, None] + lat / 50
    axes = {"x": ("x", lon, {"units": "degrees_east"}), "y": lat}
    field = xr.DataArray(values, axes, ("x", "y"), "t")
    model = daskgp.ExactGP(**FIXED, geographic=False).fit(field, field)
    west = field.assign_coords(x=("x", lon - 360, {"units": "degrees_east"}))
    with pytest.raises(InputError, match="'x' of the grid goes from -160 to -105, the training ro"):
        model.predict(west)
    assert np.isfinite(model.predict(field)).all()
    sphere = daskgp.ExactGP("matern32(3000.0)", optimizer=None, geographic=("x", "y"))
    sphere.fit(field, field)
    np.testing.assert_allclose(sphere.predict(west), sphere.predict(field), rtol=1e-6)


def test_a_csv_is_named_as_it_is(tmp_path):
    on_plane(places(0, 360)).save(str(tmp_path / "m.zarr"))
    table(WHEN, "lon").rename(columns={"depth": "lat"}).to_csv(tmp_path / "p.csv", index=False)
    line = refused("predict", tmp_path / "m.zarr", tmp_path / "p.csv", tmp_path / "o.csv")
    assert f"feature 'lon' of {tmp_path / 'p.csv'} holds times" in line


def test_a_period_of_longitude_makes_turns_right():
    trained = places(0, 360, 200)
    parts = kernels.Periodic(period=360.0, active_dims=("lon",)), kernels.RBF(active_dims=("lat",))
    model = on_plane(trained, kernel=parts[0] + parts[1])
    west = trained.assign(lon=trained.lon - 360)
    np.testing.assert_allclose(model.predict(west), model.predict(trained), atol=1e-6)


def test_loaded_models_know_the_range_of_their_rows(tmp_path):
    on_plane(places(0, 360)).save(str(tmp_path / "m.zarr"))
    with pytest.raises(InputError, match="add 360 to longitudes below"):
        daskgp.load(tmp_path / "m.zarr").predict(places(-180, 180))
    places(-180, 180).to_csv(tmp_path / "p.csv", index=False)
    line = refused("predict", tmp_path / "m.zarr", tmp_path / "p.csv", tmp_path / "o.csv")
    assert "feature 'lon' of" in line
    places(0, 360).to_csv(tmp_path / "q.csv", index=False)
    succeed("predict", tmp_path / "m.zarr", tmp_path / "q.csv", tmp_path / "o.csv")


# -- radians, and angles of no place ---------------------------------------------------------------

GLOBE = {"kernel": "matern32(3000.0)", "optimizer": None, "geographic": ("lon", "lat")}
EUROPE = places(5, 30).assign(lat=np.linspace(40, 60, 60))


@pytest.mark.parametrize("settings", [FIXED, {**GLOBE, "progress": False}], ids=["plane", "globe"])
@pytest.mark.parametrize("form", FORMS)
def test_places_in_radians_are_refused(settings, form):
    model = daskgp.ExactGP(**settings).fit(EUROPE, smooth(EUROPE))
    says = r"(X|the grid) has 'lon' from 0\.\d+ to 0\.\d+ and 'lat' from .*, which lie far from"
    with pytest.raises(InputError, match=says):
        predicted(model, FORMS[form](np.radians(EUROPE)))
    for right in (EUROPE, EUROPE.assign(lat=EUROPE.lat / 60), EUROPE * 0.0):
        assert np.isfinite(predicted(model, FORMS[form](right))).all()


def test_axes_in_radians_are_refused():
    model = daskgp.ExactGP(**GLOBE, progress=False).fit(EUROPE, smooth(EUROPE))
    axes = {"lon": np.linspace(5, 30, 9), "lat": np.linspace(40, 60, 7)}
    assert np.isfinite(model.predict(xr.Dataset(coords=axes))).all()
    turned = {name: np.radians(values) for name, values in axes.items()}
    with pytest.raises(InputError, match=r"the grid has 'lon' from .*give degrees"):
        model.predict(xr.Dataset(coords=turned))


@pytest.mark.parametrize("geographic", [("lon", "lat"), (0, 1)])
def test_training_rows_that_may_be_in_radians_are_told(geographic, caplog):
    X = places(-180, 180)
    settings = {**GLOBE, "geographic": geographic, "progress": False}
    daskgp.ExactGP(**settings).fit(X, smooth(X))
    assert "radians" not in caplog.text
    daskgp.ExactGP(**settings).fit(np.radians(X), smooth(X))
    assert "'lon' goes from -2.96" in caplog.text
    assert "if these are radians, convert them with numpy.degrees" in caplog.text


def test_angles_of_no_place_are_told(caplog, tmp_path):
    X = places(20, 220)
    swapped = X.rename(columns={"lon": "lat", "lat": "lon"})
    daskgp.ExactGP(**FIXED).fit(X, smooth(X))
    daskgp.ExactGP(**FIXED, geographic=False).fit(swapped, smooth(X))
    assert not caplog.text
    daskgp.ExactGP(**FIXED).fit(swapped, smooth(X))
    (line,) = caplog.messages
    assert line.startswith("'lat' goes from 2")
    assert "not degrees of latitude: if it is swapped with 'lon', swap their names; else" in line
    swapped.assign(z=smooth(X)).to_csv(tmp_path / "t.csv", index=False)
    done = invoke(
        "fit", tmp_path / "t.csv", tmp_path / "m.zarr", "--target", "z", "--model", "exact"
    )
    assert "which are not degrees of latitude" in done.stderr


def test_columns_in_metres_may_be_called_as_they_are(caplog):
    X = places(0, 90_000).rename(columns={"lon": "x_lon", "lat": "elevation"})
    daskgp.ExactGP(**FIXED).fit(X, X.elevation)
    assert "'x_lon' goes from" in caplog.text
    assert "give it another name, or geographic=False" in caplog.text


# -- places far outside --------------------------------------------------------------------------

PLANE = np.random.default_rng(3).uniform(0, 9, (60, 2))


def on_square(**more):
    X = pd.DataFrame(PLANE, columns=["easting", "depth"])
    return daskgp.ExactGP(**{**FIXED, "kernel": "rbf()", **more}).fit(X, PLANE[:, 0])


@pytest.mark.parametrize("form", FORMS)
def test_places_that_are_nearly_all_far_outside_are_told_once_a_call(form):
    model = on_square()
    metres = pd.DataFrame(1_000 * PLANE + 500, columns=["easting", "depth"])
    for _ in range(2):
        with pytest.warns(UserWarning, match=FAR) as told:
            predicted(model, FORMS[form](metres))
        assert len(told) == 1
        assert told[0].filename == __file__  # the line of the user, not of the package
    line = str(told[0].message)
    low, high = PLANE[:, 0].min(), PLANE[:, 0].max()
    assert "feature 'easting'" in line
    assert f"from {low:.6g} to {high:.6g}" in line
    assert line.endswith(
        "check units (m or km, degrees or radians), the order of the columns and the projection"
    )


def test_stores_maps_and_tables_far_outside_are_told(tmp_path):
    model = on_square()
    grid = xr.Dataset(coords={"easting": np.arange(0.0, 9e3, 100.0), "depth": [1e3, 2e3]})
    masked = grid.assign(land=(("easting",), np.arange(90) < 2))
    metres = pd.DataFrame(1_000 * PLANE, columns=["easting", "depth"])
    metres.to_csv(tmp_path / "p.csv", index=False)
    daskgp.convert(tmp_path / "p.csv", tmp_path / "p.zarr", progress=False)
    for source, output in ((grid, "m.zarr"), ("p.csv", "o.csv"), ("p.zarr", "o.zarr")):
        source = tmp_path / source if isinstance(source, str) else source
        with pytest.warns(UserWarning, match=FAR) as told:
            model.predict_store(source, tmp_path / output)
        assert len(told) == 1
    with pytest.warns(UserWarning, match=FAR):
        scores(model.solved_, 2 * metres, metres.depth, Executor.current(False))
    near = masked.assign_coords(depth=[1.0, 2.0], easting=np.r_[1.0, 2.0, grid.easting[2:]])
    model.predict_store(near, tmp_path / "n.zarr", mask="land")  # cells far away are masked


def test_places_that_go_on_beyond_the_training_rows_are_not_told():
    model, seen = on_square(), pd.DataFrame(PLANE, columns=["easting", "depth"])
    for X in (1.9 * seen, seen + 8.0, seen.iloc[:0], seen * np.nan):
        predicted(model, X)
        predicted(model, FORMS["dask"](X))
    predicted(model, pd.concat([1_000 * seen, seen.iloc[:2]]))
    predicted(model, FORMS["dask"](seen + 60.0))  # blocks may be of a larger map
    for kernel in ("periodic(period=1, lengthscale=0.2)", "rbf() + periodic(period=1)"):
        on_square(kernel=kernel).predict(seen + 900.0)
    globe = places(-12, 3).assign(lat=lambda X: X.lat / 10)
    for turned in (globe.assign(lon=globe.lon % 360), globe.assign(lat=-globe.lat)):
        on_plane(globe, kernel="rbf(lengthscale=20)", geographic=("lon", "lat")).predict(turned)
    year = pd.Series(pd.date_range("2019-01-01", periods=80, freq="4D"))
    fitted(year, kernel="rbf(lengthscale=[9, 3])").predict(table(year + pd.Timedelta(days=320)))


COVARIATES = pd.DataFrame({"east": PLANE[:, 0], "temp": 2.5 * PLANE[:, 1], "day": PLANE[:, 1]})


def on_covariates():
    settings = {**FIXED, "kernel": "rbf(lengthscale=[2, 9e4, 9e4])", "mean": ["temp"]}
    return daskgp.ExactGP(**settings).fit(COVARIATES, COVARIATES.temp)


MOVED = r"feature 'temp' of .*places to predict .*from 1\.\S+ to 21\.\S+, "
KELVIN = COVARIATES.assign(temp=COVARIATES.temp + 273.15)


@pytest.mark.parametrize("form", FORMS)
def test_a_column_in_another_unit_is_told_once_a_call_where_the_kernel_reaches_on(form):
    with pytest.warns(UserWarning, match=f"{MOVED}about 273.15 higher, as in another un") as told:
        predicted(on_covariates(), FORMS[form](KELVIN))
    assert len(told) == 1


@pytest.mark.parametrize(("unit", "told"), [("K", 1), ("hPa", 0)])
def test_a_pressure_is_not_taken_for_a_temperature(unit, told, recwarn):
    levels = xr.DataArray(np.linspace(200.0, 330.0, 30), dims="row", attrs={"units": unit})
    rows = xr.Dataset({"level": levels, "y": ("row", np.sin(np.arange(30.0)))})
    model = daskgp.ExactGP(**{**FIXED, "kernel": "rbf(lengthscale=900)"}).fit(
        rows[["level"]], rows.y
    )
    model.predict(np.array([[20.0]]))
    assert ["273.15 lower" in str(one.message) for one in recwarn] == [True] * told


def test_moved_and_rescaled_columns_are_told_with_their_range():
    model, temp = on_covariates(), COVARIATES.temp
    model.predict(KELVIN.iloc[:0])
    for rows, low in ((KELVIN, KELVIN.temp.min()), (KELVIN.iloc[:1], KELVIN.temp[0])):
        with pytest.warns(UserWarning, match=f"predict goes from {low:.6g} to .*273.15 higher"):
            model.predict(rows)
    for moved in (temp + 50_000, 100 * temp, (1_000 * temp).where(temp.index % 2 == 0, 0.0)):
        with pytest.warns(UserWarning, match=f"{MOVED}more than 10 times that range away: check"):
            model.predict(COVARIATES.assign(temp=moved))
    with pytest.warns(UserWarning, match="feature 'depth' of places .*more than 10 times that"):
        on_square(kernel="linear()").predict(
            pd.DataFrame(PLANE, columns=["easting", "depth"]) + 900
        )


def test_grids_and_files_of_a_column_in_another_unit_are_told_once(tmp_path):
    model, east = on_covariates(), np.arange(6.0)
    grid = xr.Dataset({"temp": ("east", east + 285)}, {"east": east, "day": [1.0, 2.0]})
    KELVIN.to_csv(tmp_path / "k.csv", index=False)
    daskgp.convert(tmp_path / "k.csv", tmp_path / "k.zarr", progress=False, block_rows=16)
    for source in (grid, grid.chunk(east=3)):
        with pytest.warns(UserWarning, match=MOVED) as told:
            np.asarray(model.predict(source))
        assert len(told) == 1
    for source, output in ((grid, "m.zarr"), ("k.csv", "o.csv"), ("k.zarr", "o.zarr")):
        source = tmp_path / source if isinstance(source, str) else source
        with pytest.warns(UserWarning, match=MOVED) as told:
            model.predict_store(source, tmp_path / output)
        assert len(told) == 1


def test_forecasts_and_places_farther_on_are_not_told_as_moved():
    model = on_covariates()
    for further in (
        COVARIATES.assign(day=COVARIATES.day + 500.0),
        COVARIATES.assign(temp=COVARIATES.temp + 60.0),
        COVARIATES.assign(temp=0.0),
    ):
        predicted(model, further)
        predicted(model, FORMS["dask"](further))
    predicted(model, pd.concat([KELVIN, COVARIATES.iloc[:2]]))


def test_swapped_columns_on_the_sphere_are_told():
    globe = places(4, 8).assign(lat=lambda X: 52 + X.lat / 50)
    model = on_plane(globe, kernel="rbf(lengthscale=20)", geographic=("lon", "lat"))
    with pytest.warns(UserWarning, match="feature 'lon' goes from 51.*in the training rows"):
        model.predict(globe.to_numpy()[:, ::-1])


@pytest.mark.parametrize("unit", ["radians", "rad"])
def test_a_grid_in_radians_is_refused_where_the_rows_say_no_unit(unit):
    axes = {name: np.radians([40.0, 50.0]) for name in ("lon", "lat")}
    grid = xr.Dataset(coords={name: (name, v, {"units": unit}) for name, v in axes.items()})
    with pytest.raises(InputError, match=f"'lon' of the grid is in '{unit}', but the train"):
        on_plane(places(0, 60)).predict(grid)
    near = places(0, 60) / 60  # which may be in radians
    assert np.isfinite(on_plane(near).predict(grid)).all()
