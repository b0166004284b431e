"""Coordinate reference systems: carried from what is fitted to what is predicted, and compared."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import daskgp
from daskgp.data import crs, grids
from daskgp.errors import InputError
from tests.commands import refused, succeed

rasterio = pytest.importorskip("rasterio")
pyproj = pytest.importorskip("pyproj")

UTM, OTHER, DEGREES = (pyproj.CRS.from_epsg(code) for code in (32632, 32633, 4326))
CORNER = np.array([500_000.0, 5_200_000.0])


def said(system, **more):
    """Attributes of a variable that says a system, as CF has them."""
    return {**system.to_cf(), **more}


def grid(system=UTM, name="crs", as_coordinate=False, n=7):
    """Metres on an even grid of two axes, with a target that has a gap, as netCDF files do."""
    x, y = CORNER[0] + 1_000.0 * np.arange(n + 1), CORNER[1] + 1_000.0 * np.arange(n)
    values = np.sin((x - x[0]) / 3_000) + np.cos((y[:, None] - y[0]) / 2_000)
    values[1, 2] = np.nan
    field = (("y", "x"), values, {"units": "K", "grid_mapping": name})
    found = xr.Dataset({"temp": field}, {"y": y, "x": x})
    if system is not None:
        found[name] = ((), np.bytes_(b""), said(system))
    return found.set_coords(name) if system is not None and as_coordinate else found


def test_texts_of_the_same_system_are_the_same():
    written = [UTM.to_wkt(form) for form in ("WKT1_GDAL", "WKT2_2019", "WKT1_ESRI", "WKT2_2015")]
    for one in written:
        assert all(crs.same(one, other) for other in written)
        assert not crs.same(one, OTHER.to_wkt())
        assert not crs.same(one, DEGREES.to_wkt())
        assert not crs.is_geographic(one)
    for form in ("WKT1_GDAL", "WKT2_2019", "WKT1_ESRI"):
        assert crs.is_geographic(DEGREES.to_wkt(form))
        assert crs.same(DEGREES.to_wkt(form), pyproj.CRS.from_epsg(4258).to_wkt(form))
    assert crs.name_of(UTM.to_wkt()) == "WGS 84 / UTM zone 32N (EPSG:32632)"
    cf = said(UTM)
    del cf["crs_wkt"]
    assert crs.same(crs.wkt_of(cf), UTM.to_wkt())
    assert crs.wkt_of({"grid_mapping_name": "nonsense"}) == ""


def turned(latitude, longitude, **more):
    """A field on axes of degrees about a pole, and the places on the globe of its cells."""
    pole = {"grid_north_pole_latitude": latitude, "grid_north_pole_longitude": longitude, **more}
    r = np.linspace(-5.0, 5.0, 6)
    field = ("rlat", "rlon"), np.sin(r)[:, None] + np.cos(r), {"grid_mapping": "pole"}
    there = {"lon": (("rlat", "rlon"), r + 10 + 0.1 * r[:, None])}
    there["lat"] = ("rlat", "rlon"), r[:, None] + 50 + 0.1 * r
    said = {"grid_mapping_name": "rotated_latitude_longitude", **pole}
    return xr.Dataset({"temp": field, **there, "pole": ((), 0, said)}, {"rlat": r, "rlon": r})


def test_degrees_about_different_poles_are_not_the_same():
    source, other = turned(39.25, -162.0), turned(43.0, -170.0)
    alike = turned(39.25, -162.0, earth_radius=6_371_229.0)
    given = {"target": "temp", "kernel": "rbf(2.0)", "optimizer": None}
    message = "in degrees about a pole at 43.* N, .* in degrees about a pole at 39.25"
    with pytest.raises(InputError, match=message):
        daskgp.interpolate(source, other, features=["rlat", "rlon"], **given)
    found = daskgp.interpolate(source, alike, features=["rlat", "rlon"], **given)
    assert found.temp.notnull().all()
    model = daskgp.ExactGP("rbf(2.0)", optimizer=None, progress=False)
    model.fit(source[["temp", "pole"]], "temp")
    with pytest.raises(InputError, match=message):
        model.predict(other.drop_vars(["temp", "lon", "lat"]))
    model = daskgp.ExactGP("rbf(2.0)", optimizer=None, progress=False, geographic=False)
    model.fit(source, "temp", features=["lon", "lat"])  # which are the same whatever the pole
    assert np.isfinite(model.predict(other.set_coords(["lon", "lat"]))).all()


def test_without_pyproj_names_and_codes_are_compared(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyproj", None)
    esri, gdal = UTM.to_wkt("WKT1_ESRI"), UTM.to_wkt("WKT1_GDAL")
    assert crs.same(gdal, UTM.to_wkt())
    assert not crs.same(gdal, OTHER.to_wkt())
    assert not crs.same(esri, OTHER.to_wkt("WKT1_ESRI"))
    assert crs.wkt_of({"grid_mapping_name": "transverse_mercator"}) == ""


def check_map(maps, fields, name="spatial_ref"):
    """Say that fields of a map are in the system, as rioxarray reads it."""
    import rioxarray  # noqa: F401 - the accessor

    for field in fields:
        assert maps[field].attrs["grid_mapping"] == name
    assert name in maps.coords
    assert maps.rio.crs.to_epsg() == 32632
    assert crs.same(maps[name].attrs["crs_wkt"], UTM.to_wkt())


@pytest.mark.whole
@pytest.mark.parametrize("as_coordinate", [False, True])
def test_a_model_of_a_grid_knows_its_system(tmp_path, as_coordinate):
    grid(as_coordinate=as_coordinate).to_netcdf(tmp_path / "rows.nc")
    daskgp.convert(str(tmp_path / "rows.nc"), str(tmp_path / "rows.zarr"), target="temp")
    X, y = daskgp.open_dataset(str(tmp_path / "rows.zarr"))
    opened = xr.open_dataset(tmp_path / "rows.nc")
    features = opened.drop_vars("temp")
    assert grids.default_features(features) == ("y", "x")
    models = [
        daskgp.ExactGP(optimizer=None).fit(str(tmp_path / "rows.nc"), "temp"),
        daskgp.ExactGP(optimizer=None).fit(X, y),
        daskgp.ExactGP(optimizer=None).fit(features, opened.temp),
    ]
    for j, model in enumerate(models):
        assert list(model.feature_names_in_) == ["y", "x"]
        model.save(str(tmp_path / f"m{j}.zarr"))
        model = daskgp.load(str(tmp_path / f"m{j}.zarr"))
        places = model.make_grid({"x": 500.0, "y": 500.0})
        mean, std = model.predict(places, return_std=True)
        check_map(xr.Dataset({"mean": mean, "std": std}), ["mean", "std"])
        bare = places.drop_vars("spatial_ref")
        check_map(model.predict(bare).to_dataset(name="a"), ["a"])
    model.predict_store(places, str(tmp_path / "map.zarr"))
    model.predict_store(places, str(tmp_path / "map.tif"))
    with xr.open_zarr(tmp_path / "map.zarr") as maps, rasterio.open(tmp_path / "map.tif") as file:
        check_map(maps, ["mean", "std"])
        assert file.crs.to_epsg() == 32632
        np.testing.assert_array_equal(file.read(1)[::-1], maps["mean"].transpose("y", "x"))
    opened.close()


def test_a_grid_keeps_the_name_of_its_mapping(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(CORNER + rng.uniform(0, 7_000, (40, 2)), columns=["x", "y"])
    rows["temp"] = np.sin(rows.x / 3_000)
    model = daskgp.ExactGP(optimizer=None).fit(rows, "temp")
    grid().to_netcdf(tmp_path / "grid.nc")
    model.predict_store(str(tmp_path / "grid.nc"), str(tmp_path / "map.zarr"))
    with xr.open_zarr(tmp_path / "map.zarr") as maps:
        check_map(maps, ["mean", "std"], "crs")
    maps = daskgp.interpolate(rows, str(tmp_path / "grid.nc"), target="temp", features=["x", "y"])
    check_map(maps, ["temp", "temp_std"], "crs")
    maps.to_netcdf(tmp_path / "map.nc")
    with xr.open_dataset(tmp_path / "map.nc", decode_coords="all") as again:
        assert again.rio.crs.to_epsg() == 32632
    like = model.make_grid({"x": 500.0}, like=str(tmp_path / "grid.nc"))
    check_map(model.predict(like).to_dataset(name="a"), ["a"])


def test_gaps_are_filled_in_the_system_of_the_source():
    for as_coordinate in (False, True):
        source = grid(as_coordinate=as_coordinate)
        maps = daskgp.interpolate(source)
        check_map(maps, ["temp", "temp_std"], "crs")
        assert not maps.temp.isnull().any()
        other = source.drop_vars(["temp", "crs"])
        check_map(daskgp.interpolate(source, other), ["temp", "temp_std"])
        both = grid(as_coordinate=True).drop_vars(
            "temp"
        )  # what both have of a system is no feature
        check_map(daskgp.interpolate(source, both), ["temp", "temp_std"], "crs")


@pytest.mark.whole
@pytest.mark.parametrize(("system", "name"), [(OTHER, "UTM zone 33N"), (DEGREES, "WGS 84")])
def test_another_system_is_refused_before_work(tmp_path, system, name):
    source, there = grid(), grid(system).drop_vars("temp")
    guess = there.set_coords("crs").assign(temp=source.temp.fillna(0)).temp
    source.to_netcdf(tmp_path / "rows.nc")
    grid(system).to_netcdf(tmp_path / "other.nc")
    model = daskgp.ExactGP(optimizer=None).fit(str(tmp_path / "rows.nc"), "temp")
    sums = daskgp.SGPR(n_inducing=9, optimizer=None).fit(str(tmp_path / "rows.nc"), "temp")
    model.save(str(tmp_path / "m.zarr"))
    daskgp.convert(str(tmp_path / "rows.nc"), str(tmp_path / "rows.zarr"), target="temp")
    daskgp.convert(str(tmp_path / "other.nc"), str(tmp_path / "far.zarr"), target="temp")
    out = str(tmp_path / "out.zarr")
    for work in (
        lambda: daskgp.interpolate(source, there),
        lambda: daskgp.interpolate(source, background=guess),
        lambda: model.predict(there),
        lambda: model.predict(*daskgp.open_dataset(str(tmp_path / "far.zarr"))[:1]),
        lambda: model.predict_store(str(tmp_path / "far.zarr"), out),
        lambda: model.predict_store(there, out),
        lambda: model.predict_store(str(tmp_path / "other.nc"), str(tmp_path / "out.tif")),
        lambda: model.make_grid(like=there),
        lambda: sums.update(there, grid(system).temp),
        lambda: daskgp.convert(
            str(tmp_path / "other.nc"), str(tmp_path / "rows.zarr"), target="temp", append=True
        ),
    ):
        with pytest.raises(InputError, match=f"is in .*{name}|are in .*{name}") as error:
            work()
        assert "UTM zone 32N (EPSG:32632)" in str(error.value)
        assert "reproject one of them" in str(error.value)
        assert "\n" not in str(error.value)
    line = refused("predict", tmp_path / "m.zarr", tmp_path / "other.nc", out)
    assert f"{name}" in line
    given = ("interpolate", tmp_path / "rows.nc", tmp_path / "map.nc", "--like")
    assert name in refused(*given, tmp_path / "other.nc", "--features", "x,y", "--target", "temp")
    assert not (tmp_path / "out.zarr").exists()


def test_the_commands_carry_the_system(tmp_path):
    grid().to_netcdf(tmp_path / "rows.nc")
    model = daskgp.ExactGP(optimizer=None).fit(str(tmp_path / "rows.nc"), "temp")
    model.save(str(tmp_path / "m.zarr"))
    steps = ("--resolution", "x=500,y=500")
    succeed("predict", tmp_path / "m.zarr", tmp_path / "map.tif", *steps)
    succeed("interpolate", tmp_path / "rows.nc", tmp_path / "fine.tif", *steps)
    for name in ("map.tif", "fine.tif"):
        with rasterio.open(tmp_path / name) as file:
            assert file.crs.to_epsg() == 32632
            assert file.res == (500.0, 500.0)


@pytest.mark.whole
@pytest.mark.parametrize("targets", ["joint", "separate"])
def test_models_of_several_targets_know_it_too(tmp_path, targets):
    source = grid().assign(rain=grid().temp.shift(x=1))
    source["crs"] = grid().crs
    source.to_netcdf(tmp_path / "rows.nc")
    model = daskgp.ExactGP(optimizer=None, targets=targets)
    model.fit(str(tmp_path / "rows.nc"), ["temp", "rain"]).save(str(tmp_path / "m.zarr"))
    model = daskgp.load(str(tmp_path / "m.zarr"))
    check_map(model.predict(model.make_grid({"x": 2000, "y": 2000})).to_dataset(name="a"), ["a"])


METHODS = ("exact", "sgpr", "lma", "pic", "vecchia", "experts", "cagp")


@pytest.mark.whole
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-6), ("float32", 2e-3)])
def test_metres_far_from_zero_lose_no_digits(name, dtype, close):
    rng = np.random.default_rng(0)
    X, places = rng.uniform(0, 1, (150, 2)) * 30_000, rng.uniform(0, 1, (40, 2)) * 30_000
    y = np.sin(X[:, 0] / 5_000) + np.cos(X[:, 1] / 4_000) + 0.1 * rng.standard_normal(150)
    kernel = daskgp.kernels.Matern52(lengthscale=(9_000.0, 8_000.0))
    how = {"kernel": kernel, "optimizer": None, "progress": False, "dtype": dtype}
    found = []
    for corner in (np.zeros(2), CORNER):
        model = daskgp.estimators.loading.ESTIMATORS.find(name)(**how).fit(X + corner, y)
        found.append(np.stack(model.predict(places + corner, return_std=True)))
    np.testing.assert_allclose(found[1], found[0], atol=close)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["exact", "vecchia"])
def test_lengthscales_are_found_in_metres(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 2)) * 30_000
    y = np.sin(X[:, 0] / 5_000) + np.cos(X[:, 1] / 4_000) + 0.1 * rng.standard_normal(300)
    model = daskgp.estimators.loading.ESTIMATORS.find(name)(progress=False).fit(X + CORNER, y)
    assert all(5_000 < length < 50_000 for length in model.kernel_.lengthscale)
    truth = np.sin(X[:, 0] / 5_000) + np.cos(X[:, 1] / 4_000)
    assert np.sqrt(np.mean((model.predict(X + CORNER) - truth) ** 2)) < 0.06
