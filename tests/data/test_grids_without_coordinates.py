"""Grids that do not say where their points are, and times that cannot be read: one line each."""

import shutil
from functools import partial

import numpy as np
import pytest
import xarray as xr
import zarr

import daskgp
from daskgp.errors import InputError, StoreError
from tests.commands import refused

VALUES = np.random.default_rng(0).standard_normal((6, 5))
LAT, LON = np.linspace(40.0, 50.0, 6), np.linspace(0.0, 8.0, 5)


def grid(name="sst", dims=("lat", "lon"), **coords):
    return xr.DataArray(VALUES, coords, dims, name)


def quick():
    return daskgp.ExactGP(optimizer=None, progress=False)


BARE = {
    "none": (grid(), "'lat', 'lon'", "lat=np.arange.6., lon=np.arange.5."),
    "the first": (grid(lon=LON), "'lat'", "lat=np.arange.6."),
    "the second": (grid(lat=LAT), "'lon'", "lon=np.arange.5."),
    "no names": (xr.DataArray(VALUES), "'dim_0', 'dim_1'", "dim_0=np.arange.6."),
    "a line": (xr.DataArray(VALUES[0], dims="t", name="sst"), "'t'", "t=np.arange.5."),
    "a cube": (grid().expand_dims(time=2), "'time', 'lat', 'lon'", "time=np.arange.2."),
}


@pytest.mark.parametrize("case", BARE)
def test_dimensions_without_coordinates_are_named(case, tmp_path):
    values, named, remedy = BARE[case]
    says = rf"has no coordinate along {named}, .*assign_coords.{remedy}"
    for X, y in ((values, values), (values.chunk(), values.chunk())):
        with pytest.raises(InputError, match=says) as caught:
            quick().fit(X, y)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=says):
        quick().fit(values.coords.to_dataset(), values)
    file, made = tmp_path / "sst.nc", tmp_path / "d.zarr"
    values.rename("sst").to_netcdf(file)
    with pytest.raises(InputError, match=says):
        quick().fit(str(file), "sst")
    line = refused("convert", file, made, "--target", "sst")
    assert f"no coordinate along {named}" in line
    assert not made.exists()


def test_features_that_are_named_say_what_counts(tmp_path):
    grid(lat=LAT).to_netcdf(tmp_path / "a.nc")
    found = daskgp.convert(tmp_path / "a.nc", tmp_path / "a.zarr", target="sst", features=["lat"])
    assert (found.rows, found.features) == (30, ("lat",))
    one = grid(lat=LAT, lon=LON).expand_dims(depth=1)  # of which there is nothing to tell
    one.to_netcdf(tmp_path / "b.nc")
    found = daskgp.convert(tmp_path / "b.nc", tmp_path / "b.zarr", target="sst")
    assert (found.rows, found.features) == (30, ("lat", "lon"))


def test_a_target_is_not_offered_as_a_feature(tmp_path):
    stations = xr.Dataset({"z": ("s", LAT), "lat": ("s", LAT), "lon": ("s", LAT)})
    stations.to_netcdf(tmp_path / "s.nc")
    with pytest.raises(InputError, match=r"beside the target z: name some of lat, lon$"):
        daskgp.convert(tmp_path / "s.nc", tmp_path / "s.zarr", target="z")


def test_places_without_coordinates_are_named_too():
    model = quick().fit(grid(lat=LAT, lon=LON), grid(lat=LAT, lon=LON))
    for there, named in (
        (grid(), "'lat', 'lon'"),
        (grid(lat=LAT), "'lon'"),
        (grid(lon=LON), "lat"),
    ):
        with pytest.raises(InputError, match=f"has no coordinate along .*{named}"):
            model.predict(there)


def test_tables_of_several_targets_have_their_names():
    X = xr.DataArray(VALUES[:, :2])
    both = xr.DataArray(VALUES[:, 2:4], name="w")
    assert quick().fit(X, both).solved_.target_names == ("y0", "y1")
    named = both.rename(dim_1="target").assign_coords(target=["u", "v"])
    assert quick().fit(X, named).solved_.target_names == ("u", "v")


UNITS = ["months since 2000-01-01", "fortnights since 2000-01-01", "days since the first"]


@pytest.mark.parametrize("unit", UNITS)
def test_times_that_cannot_be_read_are_told_with_their_unit(unit, tmp_path):
    time = xr.Variable("time", np.arange(6.0), {"units": unit})
    values = xr.Dataset({"sst": (("time", "lon"), VALUES)}, {"time": time, "lon": LON})
    values.to_netcdf(tmp_path / "a.nc")
    line = refused("convert", tmp_path / "a.nc", tmp_path / "a.zarr", "--target", "sst")
    assert f"a.nc: times 'time' are in {unit!r}, which cannot be read: write them as days" in line
    assert "decode_times" not in line
    values.to_zarr(tmp_path / "g.zarr", zarr_format=3, consolidated=False)
    with pytest.raises(InputError, match=f"g.zarr: times 'time' are in {unit!r}, which cannot"):
        quick().fit(str(tmp_path / "g.zarr"), "sst")
    for X, y in ((values, "sst"), (values.drop_vars("sst"), values.sst)):
        with pytest.raises(InputError, match=f"^times 'time' are in {unit!r}, which cannot"):
            quick().fit(X, y)


@pytest.mark.parametrize("unit", ["days since 0001-01-01", "hours", "months since 2000-01-01"])
def test_numbers_that_count_times_which_can_be_read_stay_numbers(unit):
    said = {"units": unit, "calendar": "360_day"}
    grid = xr.Dataset({"sst": ("time", np.arange(6.0))}, {"time": ("time", np.arange(6.0), said)})
    model = quick().fit(grid, "sst")
    assert model.solved_.feature_units[0].startswith(unit)
    assert model.solved_.scaling.x_shift[0] == 2.5


def test_a_zip_file_is_named_and_what_is_said_of_it_works(tmp_path):
    grid(lat=LAT, lon=LON).to_dataset().to_zarr(
        tmp_path / "g.zarr", zarr_format=3, consolidated=False
    )
    X, y = LAT[:, None], VALUES[:, 0]
    daskgp.prepare((X, y), tmp_path / "d.zarr", progress=False)
    pack = partial(shutil.make_archive, format="zip")
    zips = {name: pack(str(tmp_path / name), root_dir=tmp_path / f"{name}.zarr") for name in "gd"}
    assert "it is not a Zarr group but a zip file: unpack it, or" in refused("info", zips["d"])
    for what in (daskgp.load, daskgp.open_dataset):
        with pytest.raises(StoreError, match="but a zip file: unpack it, or give what zarr finds"):
            what(zips["d"])
    line = refused("convert", zips["g"], tmp_path / "c.zarr", "--target", "sst")
    assert "g.zip is a zip file: unpack it, or give the Zarr store in it in Python" in line
    group = zarr.open_group(zarr.storage.ZipStore(zips["d"], mode="r"), mode="r")
    found = quick().fit(group["X"], group["y"]).predict(X)
    np.testing.assert_allclose(found, quick().fit(X, y).predict(X), rtol=1e-6)
    store = zarr.storage.ZipStore(zips["g"], mode="r")
    assert daskgp.convert(store, tmp_path / "c.zarr", target="sst").features == ("lat", "lon")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StoreError, match="is not a dataset store: convert it first"):
        daskgp.open_dataset(tmp_path / "a.csv")
