"""Units of features: kept by models, converted where times count otherwise, refused where not."""

import builtins
import json

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import invoke, refused, succeed
from hypothesis import given
from hypothesis import strategies as st

import daskgp
from daskgp.data import feature_units, gridded
from daskgp.data.feature_units import DAYS
from daskgp.errors import InputError

SETTINGS = {"n_inducing": 12, "optimizer": None, "kernel": "matern32(ard=true)", "progress": False}
WHEN = pd.date_range("2019-12-30", periods=40, freq="5h30min")
HOURS = (WHEN.to_numpy() - np.datetime64("2000-01-01")) / np.timedelta64(1, "h")
DEPTH = np.linspace(0, 9, 40) ** 1.5
Y = np.sin(np.arange(40.0) / 5) + DEPTH / 30


def frame():
    return pd.DataFrame({"time": WHEN, "depth": DEPTH})


def store(path, units, X=None, y=Y, names=("time", "depth")):
    """A dataset store that counts its times in some unit."""
    said = {"feature_units": units} if units else {}
    X = np.column_stack([HOURS, DEPTH]) if X is None else X
    with daskgp.data.dataset_writer(str(path), names, ("y",), 10, attributes=said) as writer:
        writer.append(X, y)
    return str(path)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A model whose times are hours, and its store."""
    folder = tmp_path_factory.mktemp("units")
    data = store(folder / "d.zarr", ["hours since 2000-01-01", "m"])
    daskgp.SGPR(**SETTINGS).fit(*daskgp.open_dataset(data)).save(str(folder / "m.zarr"))
    return folder


@pytest.fixture
def model(stored):
    return daskgp.load(stored / "m.zarr")


@pytest.fixture
def wanted(model):
    return model.predict(np.column_stack([HOURS, DEPTH]))


def test_models_keep_units_and_info_shows_them(stored, model):
    assert model.solved_.feature_units == ("hours since 2000-01-01", "m")
    for name in ("d.zarr", "m.zarr"):
        told = " ".join(invoke("info", stored / name).stdout.split())
        assert "time in hours since 2000-01-01, depth in m" in told


def test_stores_and_models_without_units_stay_as_they_were(tmp_path, wanted):
    data = store(tmp_path / "d.zarr", None)
    fitted = daskgp.SGPR(**SETTINGS).fit(*daskgp.open_dataset(data))
    fitted.save(str(tmp_path / "m.zarr"))
    said = zarr.open_group(str(tmp_path / "m.zarr"), mode="r").attrs["model"]
    assert "feature_units" not in said
    assert "units" not in invoke("info", tmp_path / "d.zarr").stdout
    again = daskgp.load(tmp_path / "m.zarr")
    assert again.solved_.token == fitted.solved_.token
    np.testing.assert_array_equal(again.predict(np.column_stack([HOURS, DEPTH])), wanted)


PLACES = {
    "frame": frame,
    "zones": lambda: frame().assign(time=WHEN.tz_localize("UTC").tz_convert("Asia/Tokyo")),
    "dask": lambda: dd.from_pandas(frame(), npartitions=3),
    "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(frame()),
    "table": lambda: xr.Dataset({"time": ("i", WHEN), "depth": ("i", DEPTH)}),
    "lazy": lambda: xr.Dataset({"time": ("i", WHEN), "depth": ("i", DEPTH)}).chunk(i=7),
    "minutes": lambda: xr.Dataset(
        {
            "time": ("i", HOURS * 60 - 60, {"units": "minutes since 2000-1-1 01:00:00"}),
            "depth": ("i", DEPTH, {"units": "metres"}),
        }
    ),
}


@pytest.mark.parametrize("kind", PLACES)
def test_times_are_converted_to_the_unit_of_the_model(kind, model, wanted):
    found = model.predict(PLACES[kind]())
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_times_are_converted_wherever_places_come_in(model, wanted, stored, tmp_path):
    days = store(tmp_path / "days.zarr", [DAYS, ""], np.column_stack([HOURS / 24 + 10957, DEPTH]))
    X, _ = daskgp.open_dataset(days)
    np.testing.assert_allclose(model.predict(X), wanted, rtol=1e-9)
    _, cov = model.predict(frame(), return_cov=True)
    _, std = model.predict(frame(), return_std=True)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    one, other = model.predict_average(frame()), model.predict_average(X)
    np.testing.assert_allclose(one, [float(v) for v in other], rtol=1e-9)
    succeed("predict", stored / "m.zarr", days, tmp_path / "p.zarr")
    found = zarr.open_group(str(tmp_path / "p.zarr"), mode="r")["mean"][...]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    own = succeed("score", stored / "m.zarr", stored / "d.zarr", "--workers", 1)
    score = succeed("score", stored / "m.zarr", days, "--workers", 1)
    assert score["rmse"] == pytest.approx(own["rmse"], rel=1e-9)
    lma = daskgp.LMA(n_support=8, optimizer=None, kernel="matern32(ard=true)", progress=False)
    lma.fit(*daskgp.open_dataset(stored / "d.zarr")).predict_store(days, str(tmp_path / "l.zarr"))
    found = zarr.open_group(str(tmp_path / "l.zarr"), mode="r")["mean"][...]
    np.testing.assert_allclose(found, lma.predict(np.column_stack([HOURS, DEPTH])), rtol=1e-9)


@pytest.mark.parametrize("form", ["nc", "zarr", "object", "lazy"])
def test_maps_count_the_times_of_a_grid_as_the_model_does(form, model, tmp_path):
    coords = {"time": WHEN[:6].to_numpy("M8[ns]"), "depth": ("depth", DEPTH[:5], {"units": "m"})}
    grid = xr.Dataset({"y": (("time", "depth"), np.zeros((6, 5)))}, coords)
    lines = np.stack(np.meshgrid(HOURS[:6], DEPTH[:5], indexing="ij"), -1).reshape(-1, 2)
    source = {"object": grid, "lazy": grid.chunk(time=2)}.get(form, tmp_path / f"g.{form}")
    if form == "nc":
        grid.to_netcdf(source)
    elif form == "zarr":
        grid.to_zarr(source, consolidated=False)
    model.predict_store(source, str(tmp_path / "m.zarr"))
    found = xr.open_zarr(tmp_path / "m.zarr")
    np.testing.assert_allclose(found["mean"].values.ravel(), model.predict(lines), rtol=1e-9)
    np.testing.assert_array_equal(found.time, grid.time)


def test_a_variable_of_times_along_two_dimensions_is_read_in_parts(model, tmp_path):
    when, depth = WHEN[:30].to_numpy("M8[ns]").reshape(6, 5), DEPTH[:30].reshape(6, 5)
    grid = xr.Dataset({"time": (("a", "b"), when), "depth": (("a", "b"), depth)})
    grid.to_zarr(tmp_path / "g.zarr", consolidated=False)
    model.predict_store(tmp_path / "g.zarr", str(tmp_path / "m.zarr"))
    found = xr.open_zarr(tmp_path / "m.zarr")["mean"].values.ravel()
    np.testing.assert_allclose(
        found, model.predict(np.column_stack([HOURS, DEPTH])[:30]), rtol=1e-9
    )


def test_a_grid_that_is_made_says_its_units(model):
    made = model.make_grid({"time": 12.0}, {"depth": (2, 2)})
    assert made.time.attrs == {"units": "hours since 2000-01-01"}
    found = xr.decode_cf(made).time.values
    assert np.datetime64("2019-12-29T12") <= found[0] <= WHEN[0]
    np.testing.assert_array_equal(model.predict(made), model.predict(xr.decode_cf(made)))


CONTRADICTORY = {
    "plain": (
        "depth",
        {"units": "feet"},
        "feature 'depth' of the grid is in 'feet', but the model",
    ),
    "times": ("time", {"units": "K"}, "in 'K', but the model was fitted with it in 'hours since"),
    "calendar": (
        "time",
        {"units": "days since 2000-01-01", "calendar": "360_day"},
        "convert its times to that calendar with xarray's convert_calendar",
    ),
}


ALIKE = [
    *(("metre", "Meters"), ("m", "metres"), ("km", "kilometers"), ("cm", "centimetre")),
    *(("mm", "millimeters"), ("micrometer", "µm"), ("feet", "ft"), ("nmile", "nautical_mile")),
    *(
        ("degree", "deg"),
        ("degrees", "arc_degree"),
        ("degreeE", "degrees_east"),
        ("°", "degrees_N"),
    ),
    *(("rad", "radians"), ("hr", "hours"), ("Days", "d"), ("sec", "s"), ("min", "minutes")),
    *(("degree_Celsius", "degC"), ("deg C", "Celsius"), ("Kelvin", "degree_K"), ("C", "degC")),
    *(
        ("degrees north", "degrees_north"),
        ("%", "percent"),
        ("none", "(0 - 1)"),
        ("kg/kg", "kg kg**-1"),
    ),
    *(("m s-1", "m/s"), ("m s**-1", "m s^-1"), ("kg m-3", "kg/m^3"), ("W m-2", "W/m2")),
    *(("mm/day", "mm d-1"), ("s-1", "1/s"), ("m.s-1", "metres/second"), ("µg/m3", "μg m-3")),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_spellings_of_a_unit_mean_the_same(one, other):
    assert feature_units.conversion(one, other) is None
    assert feature_units.conversion(other, one) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("m", "km"), ("mm", "m"), ("ft", "m"), ("degrees", "rad"), ("min", "s"), ("h", "d")),
        *(("m s-1", "km s-1"), ("m s-1", "m s-2"), ("m/s", "s/m"), ("kg kg-1", "g kg-1")),
        *(("1", "%"), ("none", "percent"), ("mm", "mm/day"), ("m2", "m3")),
    ],
)
def test_units_that_differ_are_not_taken_for_the_same(one, other):
    with pytest.raises(ValueError, match="convert it"):
        feature_units.conversion(one, other)


@pytest.mark.parametrize(
    ("unit", "per_day"),
    [("Hours", 24), ("hr", 24), ("min", 1440), ("secs", 86400), ("ms", 8.64e7), ("msec", 8.64e7)],
)
@pytest.mark.parametrize("zone", ["", " UTC", " GMT", "Z", " +00:00", " 0:00 +0000"])
def test_counts_of_times_are_read_as_cf_spells_them(unit, per_day, zone):
    assert feature_units.count_of(f"{unit} since 1970-01-02{zone}") == (per_day, 1.0, "")


@pytest.mark.parametrize("case", CONTRADICTORY)
def test_units_that_contradict_are_refused_in_one_line(case, model, stored, tmp_path):
    if case == "calendar":
        pytest.importorskip("cftime")
    name, said, says = CONTRADICTORY[case]
    places = xr.Dataset({"time": ("i", HOURS), "depth": ("i", DEPTH)})
    places[name].attrs = said
    with pytest.raises(InputError) as caught:
        model.predict(places)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    units = ["", ""]
    units[name == "depth"] = said["units"] + (" (360_day)" if case == "calendar" else "")
    data = store(tmp_path / "d.zarr", units)
    told = refused("predict", stored / "m.zarr", data, tmp_path / "p.zarr")
    assert f"feature '{name}' of {data} is in" in told
    assert not (tmp_path / "p.zarr").exists()


def test_streams_and_variograms_take_rows_in_the_units_of_the_model(stored, tmp_path):
    stream = daskgp.SVGP(n_inducing=8, progress=False)
    stream.partial_fit(*daskgp.open_dataset(stored / "d.zarr"))
    stream.partial_fit(np.column_stack([HOURS, DEPTH]), Y)
    assert stream.solved_.feature_units == ("hours since 2000-01-01", "m")
    days = store(tmp_path / "days.zarr", [DAYS, ""])
    says = r"of X is in 'days since 1970-01-01', .* convert it"
    with pytest.raises(InputError, match=says):
        stream.partial_fit(*daskgp.open_dataset(days))
    with pytest.raises(InputError, match=says):
        daskgp.variogram(*daskgp.open_dataset(days), model=daskgp.load(stored / "m.zarr"))


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["frame", "dask", "arrow", "table"])
def test_columns_of_times_are_fitted_as_days(kind):
    model = daskgp.SGPR(**SETTINGS).fit(
        PLACES[kind](), xr.DataArray(Y, dims="i") if kind == "table" else Y
    )
    assert model.solved_.feature_units == (DAYS, "")
    plain = daskgp.SGPR(**SETTINGS).fit(np.column_stack([HOURS / 24 + 10957, DEPTH]), Y)
    np.testing.assert_allclose(
        model.predict(frame()),
        plain.predict(np.column_stack([HOURS / 24 + 10957, DEPTH])),
        rtol=1e-9,
    )


@given(
    st.floats(-1e5, 1e5),
    st.sampled_from(["days", "hours", "minutes", "seconds"]),
    st.sampled_from(["days", "h", "min", "s"]),
    st.datetimes(
        pd.Timestamp("1700-01-01").to_pydatetime(), pd.Timestamp("2200-01-01").to_pydatetime()
    ),
    st.datetimes(
        pd.Timestamp("1700-01-01").to_pydatetime(), pd.Timestamp("2200-01-01").to_pydatetime()
    ),
)
def test_counts_of_one_time_agree(value, one, two, first, second):
    first, second = (when.replace(microsecond=0) for when in (first, second))
    own, other = f"{one} since {first:%Y-%m-%d %H:%M:%S}", f"{two} since {second:%Y-%m-%dT%H:%M:%S}"
    there, back = (
        feature_units.conversion(*pair) or (0, 1) for pair in ((own, other), (other, own))
    )
    converted = (value - there[0]) * there[1]
    unit = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    exact = (value * unit[one[0]] + (first - second).total_seconds()) / unit[two[0]]
    assert converted == pytest.approx(exact, rel=1e-9, abs=1e-3 / unit[two[0]])
    assert (converted - back[0]) * back[1] == pytest.approx(value, rel=1e-6, abs=1e-2)


# -- marks of times ------------------------------------------------------------------------------


def in_unit(unit):
    """The same six times in several units and types."""
    times = np.datetime64("2019-12-31", "s") + np.arange(6) * np.timedelta64(7, "h")
    if unit in ("s", "ms", "ns"):
        return ("time", times.astype(f"M8[{unit}]"))
    count = feature_units.count_of(unit)
    days = (times - np.datetime64(0, "s")) / np.timedelta64(1, "D")
    return ("time", (days - count.origin) * count.per_day, {"units": unit})


def test_marks_and_checksums_of_times_do_not_depend_on_their_unit():
    found = set()
    for unit in (
        "s",
        "ms",
        "ns",
        "hours since 2000-01-01",
        "days since 1990-05-01",
        "min since 2019-1-1",
    ):
        coords = {"time": in_unit(unit), "depth": DEPTH[:3]}
        grid = xr.Dataset(coords=coords)
        for model in (DAYS, "hours since 2000-01-01"):
            with gridded.opened(grid, ("time", "depth"), units=(model, "")) as grids:
                box = grids.reader().read(tuple(slice(0, n) for n in grids.shape), ())
                found.add((model, int(grids.marks[0, 0]), box.checksum(box.shape)))
    assert len(found) == 2  # one for each model
    later = xr.Dataset(
        coords={"time": in_unit("s")[1] + np.timedelta64(1, "s"), "depth": DEPTH[:3]}
    )
    with gridded.opened(later, ("time", "depth"), units=(DAYS, "")) as grids:
        assert int(grids.marks[0, 0]) not in {mark for _, mark, _ in found}


def test_a_map_goes_on_where_its_grid_is_written_in_another_unit(model, tmp_path):
    coords = {"time": in_unit("hours since 2000-01-01"), "depth": DEPTH[:3]}
    values = {"y": (("time", "depth"), np.zeros((6, 3)))}
    xr.Dataset(values, coords).to_zarr(tmp_path / "g.zarr", consolidated=False)
    model.predict_store(tmp_path / "g.zarr", str(tmp_path / "m.zarr"))
    before = xr.open_zarr(tmp_path / "m.zarr")["mean"].values
    coords["time"] = in_unit("days since 1990-05-01")
    xr.Dataset(values, coords).to_zarr(tmp_path / "g.zarr", mode="w", consolidated=False)
    assert model.predict_store(tmp_path / "g.zarr", str(tmp_path / "m.zarr"), resume=True).rows == 0
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "m.zarr")["mean"].values, before)


# -- other calendars -----------------------------------------------------------------------------


def climate(calendar, start="2001-02-25", periods=8):
    times = xr.date_range(start, periods=periods, calendar=calendar, use_cftime=True)
    lat = np.linspace(-40, 40, 5)
    field = np.sin(np.arange(periods * 5.0)).reshape(periods, 5)
    return xr.Dataset(
        {"tas": (("time", "lat"), field, {"units": "K"})},
        {
            "time": ("time", times, {"long_name": "day"}),
            "lat": ("lat", lat, {"units": "degrees_north"}),
        },
    )


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "all_leap", "julian", "standard"])
@pytest.mark.parametrize("form", ["nc", "zarr", "object"])
def test_a_grid_of_another_calendar_is_fitted_and_mapped(calendar, form, tmp_path):
    cftime = pytest.importorskip("cftime")
    data = climate(calendar)
    source = data if form == "object" else tmp_path / f"g.{form}"
    if form == "nc":
        data.to_netcdf(source)
    elif form == "zarr":
        data.to_zarr(source, consolidated=False)
    model = daskgp.SGPR(**SETTINGS).fit(source, "tas")
    suffix = "" if calendar == "standard" else f" ({calendar})"
    assert model.solved_.feature_units == (DAYS + suffix, "degrees_north")
    days = cftime.date2num(data.time.values, DAYS, calendar=calendar)
    rows = np.stack(np.meshgrid(days, data.lat, indexing="ij"), -1).reshape(-1, 2)
    plain = daskgp.SGPR(**SETTINGS).fit(rows, data.tas.values.ravel())
    model.save(str(tmp_path / "m.zarr"))
    again = daskgp.load(tmp_path / "m.zarr")
    again.predict_store(source, str(tmp_path / "map.zarr"))
    found = xr.open_zarr(tmp_path / "map.zarr")
    if calendar != "standard":
        assert [*found.time.values] == [*data.time.values]
        assert found.time.attrs == data.time.attrs
    np.testing.assert_allclose(found["mean"].values.ravel(), plain.predict(rows), rtol=1e-6)


def test_days_of_calendars_are_not_mixed(tmp_path):
    pytest.importorskip("cftime")
    model = daskgp.SGPR(**SETTINGS).fit(climate("noleap"), "tas")
    usual = climate("noleap").convert_calendar("standard", use_cftime=False)
    with pytest.raises(InputError, match="fitted with it in 'days since 1970-01-01 \\(noleap\\)'"):
        model.predict(usual)
    daskgp.convert(climate("noleap"), tmp_path / "d.zarr", "tas")
    with pytest.raises(InputError, match="convert_calendar"):
        daskgp.convert(usual, tmp_path / "d.zarr", append=True)
    later = climate("noleap", "2001-03-05", 3)
    assert daskgp.convert(later, tmp_path / "d.zarr", append=True).rows == 15
    said = json.loads((tmp_path / "d.zarr" / "zarr.json").read_text())["attributes"]
    assert said["feature_units"] == [f"{DAYS} (noleap)", "degrees_north"]


def test_without_cftime_a_line_says_to_install_it(tmp_path, monkeypatch):
    pytest.importorskip("cftime")
    climate("noleap").to_netcdf(tmp_path / "g.nc")
    ordinary = builtins.__import__

    def without(name, *more):
        if name == "cftime":
            raise ImportError(name)
        return ordinary(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("xarray.coding.times.cftime", None, raising=False)
    with pytest.raises(InputError, match="pip install cftime"):
        daskgp.convert(climate_of(tmp_path), tmp_path / "o.zarr", "tas")
    with pytest.raises(InputError, match="pip install cftime"):
        feature_units.count_of("days since 1970-01-01 (noleap)")


def climate_of(folder):
    return folder / "g.nc"


def test_lazy_dates_are_counted_in_tasks():
    pytest.importorskip("cftime")
    data = climate("noleap")
    lazy = data.assign(when=(("time", "lat"), np.repeat(data.time.values[:, None], 5, 1)))
    lazy = lazy.chunk(time=3)
    assert isinstance(lazy.when.data, da.Array)
    model = daskgp.SGPR(**SETTINGS).fit(data, "tas")
    renamed = lazy[["when"]].rename(time="row", when="time").drop_vars("row")
    found = model.predict(renamed)
    np.testing.assert_allclose(found.values, model.predict(data[["tas"]].tas).values, rtol=1e-9)


@pytest.mark.parametrize("form", ["nc", "zarr"])
@pytest.mark.parametrize("missing", [[2], [0], [4], [0, 4], range(5)])
@pytest.mark.parametrize("kind", ["f8", "i4"])
def test_missing_times_of_another_calendar_are_missing(form, missing, kind, tmp_path):
    pytest.importorskip("cftime")
    units = {"units": "days since 2000-01-01", "calendar": "noleap"}
    days = np.arange(1.0, 6.0)
    days[[*missing]] = np.nan if kind == "f8" else -999
    made = xr.Dataset({"y": ("i", np.arange(5.0)), "t": ("i", days.astype(kind), units)})
    if kind == "i4":
        made["t"].encoding["_FillValue"] = np.int32(-999)
    source = tmp_path / f"t.{form}"
    made.to_netcdf(source) if form == "nc" else made.to_zarr(source, consolidated=False)
    daskgp.convert(source, tmp_path / "d.zarr", "y", "t")
    group = zarr.open_group(str(tmp_path / "d.zarr"), mode="r")
    count = feature_units.count_of(group.attrs["feature_units"][0])
    found = group["X"][:, 0] + count.origin
    wanted = np.where(np.isin(np.arange(5), [*missing]), np.nan, 10950 + np.arange(1.0, 6.0))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NaT])
@pytest.mark.parametrize("at", [0, 2])
def test_missing_dates_of_cftime_are_missing(nothing, at, tmp_path):
    cftime = pytest.importorskip("cftime")
    dates = np.array([cftime.DatetimeNoLeap(2000, 1, day) for day in range(1, 6)], object)
    dates[at] = nothing
    made = xr.Dataset({"y": ("i", np.arange(5.0)), "t": ("i", dates)})
    daskgp.convert(made, tmp_path / "d.zarr", "y", "t")
    found = zarr.open_group(str(tmp_path / "d.zarr"), mode="r")["X"][:, 0]
    assert np.flatnonzero(np.isnan(found)).tolist() == [at]
    assert found[4] == 10954


@pytest.mark.parametrize(
    ("unit", "unit_of_time"),
    [(DAYS, "D"), ("hours since 2000-01-01", "h"), ("minutes since 1999-12-31T12:00", "m")],
)
def test_a_count_is_told_as_its_date(unit, unit_of_time):
    origin = np.datetime64(unit.split("since ")[1], "m")
    for count in (-400, 0, 1, 6_000):
        date = origin + np.timedelta64(count, unit_of_time)
        told = feature_units.text_of(float(count), unit)
        assert np.datetime64(told) == date
        assert ("T" in told) == (date != date.astype("datetime64[D]"))


@pytest.mark.parametrize("unit", ["", "km", "days", "days since 2000-01-01 noleap", "K"])
def test_other_numbers_are_told_as_numbers(unit):
    assert feature_units.text_of(3.14159265, unit) == "3.14159"
    assert feature_units.text_of(1e12, DAYS) == "1e+12"
    assert feature_units.text_of(np.nan, DAYS, ".3g") == "nan"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("before", "own", "how"),
    [
        ((500, 520), (498e3, 522e3), "about 1000 times as large"),
        ((498e3, 522e3), (500, 520), "about 1000 times as small"),
        ((-60, -40), (-1.0, -0.8), "about 57.3 times as small"),
        ((-5, 30), (270, 299), "about 273.15 higher"),
        ((270, 299), (-5, 30), "about 273.15 lower"),
        ((0, 10e3), (20e3, 30e3), ""),  # the tile beside
        ((0, 1), (100, 1000), ""),  # depths farther below
        ((1, 10), (1e3, 1e4), ""),  # another decade
        ((1, 10), (-1e4, -1e3), ""),
        ((0, 260), (261, 520), ""),  # days of another season
        ((5, 5), (5e3, 5e3), ""),
    ],
)
def test_ranges_that_are_those_before_in_another_unit_are_told(before, own, how, caplog):
    feature_units.warn_of_other("a", own, before, "b.csv", "a.csv")
    told = f"'a' of b.csv goes from {own[0]:.6g} to {own[1]:.6g}, in a.csv from {before[0]:.6g} to"
    assert len(caplog.messages) == bool(how)
    assert told * bool(how) in caplog.text
    assert how in caplog.text


@pytest.mark.parametrize(
    ("unit", "told"),
    [
        ("", (1, 1, 1)),
        ("1", (1, 1, 1)),
        ("metres", (1, 0, 0)),
        ("hPa", (1, 0, 0)),
        ("kelvin", (0, 0, 1)),
        ("degrees", (0, 1, 0)),
    ],
)
def test_a_known_unit_is_mistaken_for_its_like_alone(unit, told):
    cases = (((498e3, 522e3), (500, 520)), ((40, 60), (0.8, 1.0)), ((200, 330), (20, 20)))
    found = (feature_units.other_unit(own, before, unit) for before, own in cases)
    assert tuple(one is not None for one in found) == told
