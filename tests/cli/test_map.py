"""Promises of ``daskgp map``: figures, pages and other formats of a stored map, and plain lines."""

import re

import numpy as np
import pytest
import xarray as xr
from commands import refused, succeed

import daskgp
from daskgp import plot
from tests.plot.test_interactive import grid


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maps")
    grid().to_netcdf(folder / "map.nc")
    cube = grid().expand_dims(time=np.array(["2026-03-05", "2026-03-06"], "M8[ns]"))
    cube.to_zarr(folder / "cube.zarr", consolidated=False)
    days = grid().expand_dims(day=[2.0, 3.0]).transpose(..., "day")
    days.to_zarr(folder / "days.zarr", consolidated=False)
    (folder / "table.csv").write_text("lon,lat,y\n1,2,3\n")
    return folder


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("ending", ["png", "svg", "html", "tif", "nc"])
def test_a_stored_map_is_drawn_or_written(ending, stored, tmp_path):
    out = tmp_path / f"out.{ending}"
    said = succeed("map", stored / "map.nc", out)
    assert said["map"] == str(out)
    assert said["variables"] == ["temperature", "temperature_std"]
    assert out.stat().st_size > 1_000
    if ending == "nc":
        with xr.open_dataset(out) as written:
            xr.testing.assert_allclose(written.load(), grid())


def test_a_cube_is_mapped_at_the_nearest_time(stored, tmp_path):
    words = ("map", stored / "cube.zarr", tmp_path / "day.nc", "--at", "time=2026-03-06T04:00")
    assert succeed(*words)["at"] == {"time": "2026-03-06"}
    with xr.open_dataset(tmp_path / "day.nc") as written:
        assert written.time.values == np.datetime64("2026-03-06")
        np.testing.assert_allclose(written.temperature, grid().temperature)


def test_a_cube_has_a_band_of_each_time(stored, tmp_path):
    rasterio = pytest.importorskip("rasterio")
    out = tmp_path / "cube.tif"
    succeed("map", stored / "cube.zarr", out, "--bands", "time", "--crs", "EPSG:4258")
    with rasterio.open(out) as file:
        assert file.descriptions[:2] == (
            "temperature time=2026-03-05", "temperature time=2026-03-06",
        )  # fmt: skip
        assert file.crs.to_epsg() == 4258
        np.testing.assert_allclose(
            np.sort(file.read(2).ravel()), np.sort(np.ravel(grid().temperature))
        )
    assert "--at time=VALUE of map" in refused("map", stored / "cube.zarr", tmp_path / "one.tif")
    succeed("map", stored / "cube.zarr", tmp_path / "one.tif", "--at", "time=2026-03-05")


def test_coastlines_are_those_of_a_file_or_none(stored, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(plot, "maps", lambda fields, coast, **_: seen.append(coast))
    for more in ((), ("--coast", "none"), ("--coast", "lake.geojson")):
        succeed("map", stored / "map.nc", tmp_path / "map.png", *more)
    assert seen == [True, False, "lake.geojson"]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("given", "says", "code"),
    [
        (("map.nc", "out.gif"), "cannot tell the format", 2),
        (("cube.zarr", "out.png"), "but a figure shows two.*--at time=2026-03-05", 2),
        (("days.zarr", "out.png"), "lat, lon, day, .*such as --at day=2$", 2),
        (("cube.zarr", "out.png", "--at", "depth=1"), "with a dimension of .*, time, lat, lon", 2),
        (
            ("cube.zarr", "out.png", "--at", "time=soon"),
            "has time from 2026-03-05 to 2026-03-06",
            2,
        ),
        (("none.zarr", "out.png"), "does not exist", 2),
        (("cube.zarr", "o.png", "--at", "time=2027-03-05"), "from 2026-03-05 to 2026-03-06", 2),
        (("map.nc", "out.tif", "--crs", "EPSG:32632"), "degrees", 2),
        (("table.csv", "out.png"), "no map", 2),
        (("map.nc", "map.nc"), "exists already", 2),
        (("map.nc", "out.png", "--bands", "time"), "are for GeoTIFFs, which out.png is not", 2),
        (("map.nc", "new.nc", "--title", "t"), "--title is for figures and pages", 2),
        (("map.nc", "new.tif", "--coast", "none"), "--coast is for figures and pages", 2),
        (("map.nc", "out.png", "--coast", "no.geojson"), "no.geojson does not exist", 2),
    ],
)
def test_what_cannot_be_is_one_line(given, says, code, stored, monkeypatch):
    monkeypatch.chdir(stored)
    before = sorted(stored.iterdir())
    assert re.search(says, refused("map", *given, code=code))
    assert sorted(stored.iterdir()) == before


def test_a_prediction_store_becomes_a_netcdf_file(tmp_path):
    model = daskgp.ExactGP("rbf", optimizer=None, progress=False)
    table = grid().temperature.isel(lat=slice(None, None, 20), lon=slice(None, None, 20))
    model.fit(table.rename("t"), "t")
    model.predict_store(table.to_dataset(), str(tmp_path / "map.zarr"))
    succeed("map", tmp_path / "map.zarr", tmp_path / "map.nc")
    with xr.open_dataset(tmp_path / "map.nc") as written:
        assert {*written.data_vars} == {"mean", "std"}
        assert written.attrs["source"].startswith("daskgp")
