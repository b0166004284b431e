"""Maps in GeoTIFF files, read again by rasterio."""

import os
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import daskgp
from daskgp.data import geotiffs
from daskgp.errors import FullDiskError, InputError, SettingError, StoreError

rasterio = pytest.importorskip("rasterio")


def field(dims=("lat", "lon"), dtype=np.float64, **axes):
    """A Dataset whose values tell where they are: 1,000 times the first axis and the second."""
    axes = axes or {"lat": np.arange(45, 48, 0.5), "lon": np.arange(5, 9, 0.5)}
    coords = {name: axes[name] for name in dims}
    values = 1000.0 * axes[dims[0]].astype(float)[:, None] + axes[dims[1]].astype(float)
    std = (dims, np.sqrt(np.abs(values)).astype(dtype), {"units": "K"})
    said = {"units": "K", "long_name": "air temperature", "ancillary_variables": "temp_std"}
    return xr.Dataset({"temp_std": std, "temp": (dims, values.astype(dtype), said)}, coords)


def at(path, band, x, y):
    """The value of a band at places, as GIS programs find it."""
    with rasterio.open(path) as file:
        return np.array([one[0] for one in file.sample(list(zip(x, y, strict=True)), band)])


def everywhere(maps, path, across="lon", up="lat"):
    """Values of all cells in the file, in the order of the maps."""
    x, y = xr.broadcast(maps[across], maps[up])
    found = at(path, 1, np.ravel(x), np.ravel(y)).reshape(x.shape)
    return xr.DataArray(found, {d: maps[d] for d in x.dims}, x.dims)


@pytest.mark.whole
@pytest.mark.parametrize("dims", [("lat", "lon"), ("lon", "lat")])
@pytest.mark.parametrize("turned", [(), ("lat",), ("lon",), ("lat", "lon")])
def test_north_is_up_whatever_the_order(tmp_path, dims, turned):
    maps = field(dims)
    maps = maps.isel(dict.fromkeys(turned, slice(None, None, -1)))
    daskgp.to_geotiff(maps, tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert (file.width, file.height, file.count) == (8, 6, 2)
        assert tuple(file.bounds) == (4.75, 44.75, 8.75, 47.75)
        assert file.transform.a > 0 > file.transform.e
        assert file.crs.to_epsg() == 4326
        assert file.descriptions == ("temp", "temp_std")
        assert file.units == ("K", "K")
        assert np.isnan(file.nodata)
        assert file.tags(1)["long_name"] == "air temperature"
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert file.dtypes == ("float64", "float64")
    xr.testing.assert_equal(
        everywhere(maps, tmp_path / "map.tif"), maps.temp.transpose("lon", "lat")
    )
    assert os.listdir(tmp_path) == ["map.tif"]


def test_missing_values_are_nodata_and_float32_stays(tmp_path):
    maps = field(dtype=np.float32)
    maps["temp"] = maps.temp.where(maps.lon < 8).assign_attrs(maps.temp.attrs)
    daskgp.to_geotiff(maps, tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.dtypes == ("float32", "float32")
        values = file.read(1, masked=True)
    np.testing.assert_array_equal(values.mask[::-1], maps.temp.isnull())


def test_longitudes_of_the_globe_begin_in_the_west(tmp_path):
    maps = field(lat=np.linspace(-80, 80, 9), lon=np.arange(0, 360, 10.0))
    daskgp.to_geotiff(maps, tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert (file.bounds.left, file.bounds.right) == (-185, 175)
    west = maps.assign_coords(lon=(maps.lon + 180) % 360 - 180).sortby("lon")
    found = everywhere(west, tmp_path / "map.tif")
    xr.testing.assert_equal(found, west.temp.transpose("lon", "lat"))


def test_longitudes_across_the_date_line_stay_and_are_told(tmp_path, caplog):
    maps = field(lat=np.linspace(-10, 10, 5), lon=np.arange(170, 191, 2.0))
    daskgp.to_geotiff(maps, tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert (file.bounds.left, file.bounds.right) == (169, 191)
    assert "longitudes of the map go to 190" in caplog.text
    half = field(lat=np.linspace(-10, 10, 5), lon=np.arange(200, 221, 2.0))
    daskgp.to_geotiff(half, tmp_path / "half.tif")
    with rasterio.open(tmp_path / "half.tif") as file:
        assert (file.bounds.left, file.bounds.right) == (-161, -139)


def utm(**more):
    """Metres of a projected system, in which float32 has steps of half a metre northwards."""
    axes = {"y": 5_200_000 + np.arange(0.0, 60, 10), "x": 500_000 + np.arange(0.0, 40, 5)}
    return field(("y", "x"), **axes).assign_coords(more)


def test_metres_keep_their_digits_and_their_system(tmp_path):
    maps = utm(spatial_ref=((), 0, {"crs_wkt": rasterio.crs.CRS.from_epsg(32632).to_wkt()}))
    daskgp.to_geotiff(maps, tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.crs.to_epsg() == 32632
        assert tuple(file.bounds) == (499_997.5, 5_199_995, 500_037.5, 5_200_055)
    found = everywhere(maps, tmp_path / "map.tif", "x", "y")
    xr.testing.assert_equal(found.drop_vars("spatial_ref", errors="ignore"),
                            maps.temp.transpose("x", "y").drop_vars("spatial_ref"))  # fmt: skip


def test_a_map_without_a_name_is_one_of_values(tmp_path):
    daskgp.to_geotiff(utm().temp.rename(None), tmp_path / "map.tif", crs=32632)
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.descriptions == ("values",)


def test_steps_of_one_from_zero_are_as_others(tmp_path):
    maps = field(("y", "x"), y=np.arange(-3.5, 0), x=np.arange(0.5, 5))
    daskgp.to_geotiff(maps, tmp_path / "map.tif", crs="EPSG:32632")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert tuple(file.bounds) == (0, -4, 5, 0)
    found = everywhere(maps, tmp_path / "map.tif", "x", "y")
    xr.testing.assert_equal(found, maps.temp.transpose("x", "y"))


def test_a_system_is_given_or_warned_about(tmp_path, caplog):
    daskgp.to_geotiff(utm(), tmp_path / "given.tif", crs="EPSG:32632")
    with rasterio.open(tmp_path / "given.tif") as file:
        assert file.crs.to_epsg() == 32632
    assert not caplog.text
    daskgp.to_geotiff(utm(), tmp_path / "none.tif")
    with rasterio.open(tmp_path / "none.tif") as file:
        assert file.crs is None
    assert "the map states no coordinate reference system" in caplog.text


def test_a_turned_pole_is_refused_as_no_geotiff_holds_it(tmp_path):
    cf = {"grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": 39.25}
    cf["grid_north_pole_longitude"] = -162.0
    maps = field(("rlat", "rlon"), rlat=np.arange(5.0), rlon=np.arange(6.0))
    maps["rlat"].attrs["standard_name"] = "grid_latitude"
    maps["rlon"].attrs["standard_name"] = "grid_longitude"
    with pytest.raises(InputError, match=r"system that a GeoTIFF cannot hold .*: reproject"):
        daskgp.to_geotiff(maps.assign(pole=((), 0, cf)), tmp_path / "map.tif")
    assert not os.listdir(tmp_path)


def test_times_become_bands_where_they_are_asked_for(tmp_path):
    days = np.array(["2024-05-01", "2024-05-02"], "M8[ns]")
    one = field()
    cube = xr.concat([one, one + 1], "time").assign_coords(time=days)
    cube = cube.transpose("lat", "time", "lon")
    cube["temp"].attrs = one.temp.attrs
    with pytest.raises(InputError, match=r"has 2 values along 'time'.*--bands time\)"):
        daskgp.to_geotiff(cube, tmp_path / "map.tif")
    daskgp.to_geotiff(cube, tmp_path / "map.tif", bands="time")
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.descriptions == (
            "temp time=2024-05-01", "temp time=2024-05-02",
            "temp_std time=2024-05-01", "temp_std time=2024-05-02",
        )  # fmt: skip
        values = file.read()
    np.testing.assert_array_equal(values[1] - values[0], 1)
    np.testing.assert_array_equal(values[0][::-1], one.temp)
    daskgp.to_geotiff(cube.isel(time=[0]), tmp_path / "one.tif")
    with rasterio.open(tmp_path / "one.tif") as file:
        assert file.descriptions == ("temp", "temp_std")


CURVED = xr.Dataset(
    {"temp": (("j", "i"), np.zeros((3, 4)))},
    {"lat": (("j", "i"), np.ones((3, 4))), "lon": (("j", "i"), np.ones((3, 4)))},
)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("maps", "said"),
    [
        (field(lat=np.array([45, 46, 48.0]), lon=np.arange(4.0)), "'lat' of the map is not evenly"),
        (field(lat=np.array([45.0]), lon=np.arange(5.0, 9)), "needs numbers, two or more"),
        (field(("a", "b"), a=np.arange(3.0), b=np.arange(4.0)), "or x and y; they are a, b"),
        (CURVED, "curvilinear grid, by lat and lon"),
        (field().assign(flag=("lat", np.zeros(6))), "'flag' of the map lies on lat, not on"),
        (field().assign(t=(("lat", "lon"), np.full((6, 8), "a"))), "'t' of the map holds <U1"),
        (field().drop_vars(["temp", "temp_std"]), "has no variable with a map"),
        ({"temp": 1}, "maps is {'temp': 1}: give a Dataset"),
        ("no.nc", "no.nc"),
    ],
)  # fmt: skip
def test_what_is_no_map_is_refused(tmp_path, maps, said):
    with pytest.raises(InputError) as error:
        daskgp.to_geotiff(maps, tmp_path / "map.tif")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert not os.listdir(tmp_path)


def test_names_and_systems_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(SettingError, match="not the name of a GeoTIFF: end it in"):
        daskgp.to_geotiff(field(), tmp_path / "map.png")
    with pytest.raises(InputError, match="'EPSG:0' is not a coordinate reference system"):
        daskgp.to_geotiff(field(), tmp_path / "map.tif", crs="EPSG:0")
    with pytest.raises(InputError, match="bands names 'tmie', which is not a dimension of the map"):
        daskgp.to_geotiff(field(), tmp_path / "map.tif", bands="tmie")
    known = utm(crs=((), 0, {"spatial_ref": rasterio.crs.CRS.from_epsg(32632).to_wkt()}))
    with pytest.raises(InputError, match=r"UTM zone 32N \(EPSG:32632\) and crs='EPSG:32633'"):
        daskgp.to_geotiff(known, tmp_path / "map.tif", crs="EPSG:32633")
    (tmp_path / "map.tif").write_bytes(b"mine")
    with pytest.raises(StoreError, match="exists already"):
        daskgp.to_geotiff(field(), tmp_path / "map.tif")
    assert (tmp_path / "map.tif").read_bytes() == b"mine"


def test_without_the_extra_a_line_says_what_to_install(tmp_path):
    script = f"""
import sys
sys.modules["rasterio"] = None
import daskgp, xarray as xr
try:
    daskgp.to_geotiff(xr.Dataset(), {str(tmp_path / "map.tif")!r})
except daskgp.InputError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "need rioxarray and rasterio: pip install 'daskgp[geo]'" in done.stdout


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(45, 48, 50), rng.uniform(5, 9, 50)])
    y = xr.DataArray(np.sin(X[:, 0]) + X[:, 1], dims="row", attrs={"units": "K"}, name="temp")
    X = xr.Dataset({"lat": ("row", X[:, 0]), "lon": ("row", X[:, 1])})
    return daskgp.ExactGP(optimizer=None).fit(X, y)


def test_a_prediction_becomes_a_geotiff(model, tmp_path):
    grid = model.make_grid({"lon": 0.5, "lat": 0.25})
    written = model.predict_store(grid, str(tmp_path / "map.tif"), quantiles=(0.05, 0.95))
    assert written.rows == grid.sizes["lon"] * grid.sizes["lat"]
    mean, std, quantiles = model.predict(
        grid, return_std=True, include_noise=True, quantiles=(0.05, 0.95)
    )
    with rasterio.open(tmp_path / "map.tif") as file:
        assert file.descriptions == (
            "mean", "std", "quantiles quantile=0.05", "quantiles quantile=0.95",
        )  # fmt: skip
        assert file.units == ("K",) * 4
        values = file.read()[:, ::-1]
    wanted = [mean, std, quantiles[..., 0], quantiles[..., 1]]
    for own, one in zip(values, wanted, strict=True):
        np.testing.assert_allclose(own, one.transpose("lat", "lon"), rtol=1e-12)
    assert os.listdir(tmp_path) == ["map.tif"]


def test_a_store_becomes_a_geotiff_block_by_block(model, tmp_path, monkeypatch):
    monkeypatch.setattr(geotiffs, "BLOCK", 50)
    axes = {"lon": np.arange(5, 9.1, 0.125), "lat": np.arange(48, 44.9, -0.125)}
    grid = xr.Dataset(coords=axes).chunk()
    grid["elevation"] = (("lat", "lon"), np.zeros((25, 33)))
    grid.chunk({"lat": 7, "lon": 10}).to_zarr(tmp_path / "grid.zarr", consolidated=False)
    model.predict_store(str(tmp_path / "grid.zarr"), str(tmp_path / "map.zarr"))
    daskgp.to_geotiff(str(tmp_path / "map.zarr"), tmp_path / "map.tif")
    with xr.open_zarr(tmp_path / "map.zarr") as maps, rasterio.open(tmp_path / "map.tif") as file:
        np.testing.assert_array_equal(file.read(1), maps["mean"].transpose("lat", "lon"))
        np.testing.assert_array_equal(file.read(2), maps["std"].transpose("lat", "lon"))


def test_stores_that_are_no_maps_are_refused(model, tmp_path):
    path = str(tmp_path / "map.tif")
    with pytest.raises(SettingError, match="is written whole: predict into a store to resume"):
        model.predict_store(model.make_grid({"lon": 1, "lat": 1}), path, resume=True)
    with pytest.raises(SettingError, match="a file has none"):
        model.predict_store(model.make_grid({"lon": 1, "lat": 1}), path, wait=1)
    np.savez(tmp_path / "rows.npz", X=np.full((4, 2), 46.0), y=np.zeros(4))
    daskgp.convert(str(tmp_path / "rows.npz"), str(tmp_path / "rows.zarr"), target="y")
    with pytest.raises(InputError, match=r"would hold a map and .* holds rows"):
        model.predict_store(str(tmp_path / "rows.zarr"), path)
    uneven = xr.Dataset(coords={"lon": [5.0, 6, 9], "lat": [45.0, 46]})
    with pytest.raises(InputError, match="'lon' of an xarray object is not evenly spaced"):
        model.predict_store(uneven, path)
    assert not os.path.exists(path)
    model.predict_store(model.make_grid({"lon": 1, "lat": 1}), str(tmp_path / "map.zarr"))
    chunk = next((tmp_path / "map.zarr" / "mean" / "c").rglob("0/0"))
    chunk.write_bytes(chunk.read_bytes()[:20])
    with pytest.raises(InputError, match="cannot read"):
        daskgp.to_geotiff(str(tmp_path / "map.zarr"), path)
    assert not os.path.exists(path)


def test_a_small_disk_is_told_before_work(small_disk):
    maps = field(lat=np.linspace(40, 50, 800), lon=np.linspace(5, 9, 700))
    with pytest.raises(FullDiskError, match=r"takes up to \d+ MB .* free some space"):
        daskgp.to_geotiff(maps, small_disk / "map.tif")
    assert not os.listdir(small_disk)


def test_a_disk_that_fills_up_leaves_nothing(small_disk, monkeypatch):
    monkeypatch.setattr(geotiffs, "check_room", lambda *_: None)
    rng = np.random.default_rng(0)
    maps = field(lat=np.linspace(40, 50, 800), lon=np.linspace(5, 9, 700))
    maps = maps + rng.standard_normal((800, 700))
    with pytest.raises(StoreError, match="cannot write the map"):
        daskgp.to_geotiff(maps, small_disk / "map.tif")
    assert not os.listdir(small_disk)
