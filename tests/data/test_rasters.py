"""Grids that come in GeoTIFF files, as other programs write them."""

import pickle

import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import daskgp
from daskgp.data import gridded, grids
from daskgp.errors import InputError
from tests.commands import refused, succeed

rasterio = pytest.importorskip("rasterio")


def written(path, values, crs="EPSG:4326", corner=(5.0, 48.0), step=0.5, **how):
    """Write bands (k, h, w), north up, whose north-western corner is given."""
    values = np.asarray(values)
    profile = {"driver": "GTiff", "count": len(values), "dtype": values.dtype, "crs": crs}
    profile |= {"height": values.shape[1], "width": values.shape[2]}
    transform = rasterio.Affine(step, 0, corner[0], 0, -step, corner[1])
    names = how.pop("descriptions", None)
    with rasterio.open(
        path, "w", transform=how.pop("transform", transform), **profile, **how
    ) as file:
        file.write(values)
        if names:
            file.descriptions = names
    return str(path)


@pytest.fixture
def terrain(tmp_path):
    """Heights in whole metres on 6 x 8 cells, one of which is missing, without a description."""
    heights = np.arange(48, dtype=np.int16).reshape(1, 6, 8) * 10
    heights[0, 2, 3] = -9999
    return written(tmp_path / "elevation.tif", heights, nodata=-9999)


def table(n=60, **names):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"lon": rng.uniform(5, 9, n), "lat": rng.uniform(45, 48, n)})
    rows["elevation"] = rng.uniform(0, 500, n)
    rows["temp"] = np.sin(rows.lon) - rows.elevation / 200 + 0.1 * rng.standard_normal(n)
    return rows.rename(columns=names)


LAT, LON = np.arange(47.75, 45, -0.5), np.arange(5.25, 9, 0.5)


def test_bands_are_variables_over_the_centres_of_cells(terrain):
    with gridded.open_grid(terrain) as grid:
        assert grid.elevation.dims == ("lat", "lon")
        np.testing.assert_array_equal(grid.lat, LAT)
        np.testing.assert_array_equal(grid.lon, LON)
        assert grid.lat.attrs == {"standard_name": "latitude", "units": "degrees_north"}
        assert np.isnan(grid.elevation[2, 3])
        assert grid.elevation[5, 7] == 470
        assert len(pickle.dumps(grids.Stored(grid.elevation.variable))) < 5_000
        stored = pickle.loads(pickle.dumps(grids.Stored(grid.elevation.variable)))
        np.testing.assert_array_equal(stored[slice(0, 2), slice(0, 3)][1], [80, 90, 100])


@pytest.mark.whole
@pytest.mark.parametrize("longer", [False, True])
def test_a_map_is_made_on_a_geotiff_with_its_heights(terrain, longer):
    names = {"lon": "longitude", "lat": "latitude"} if longer else {}
    rows = table(**names)
    maps = daskgp.interpolate(rows, terrain, target="temp")
    axes = {names.get(name, name): own for name, own in (("lat", LAT), ("lon", LON))}
    same = xr.Dataset(coords=axes)
    heights = np.arange(48.0).reshape(6, 8) * 10
    heights[2, 3] = np.nan
    same["elevation"] = (tuple(axes), heights)
    wanted = daskgp.interpolate(rows, same, target="temp")
    assert maps.temp.dims == tuple(axes)
    np.testing.assert_allclose(maps.temp, wanted.temp, atol=1e-8)
    assert int(maps.temp.isnull().sum()) == 1
    assert maps.temp.attrs["grid_mapping"] == "spatial_ref"


def test_a_geotiff_goes_in_and_out_of_the_commands(terrain, tmp_path):
    table().to_csv(tmp_path / "rows.csv", index=False)
    model, out = tmp_path / "m.zarr", tmp_path / "out.tif"
    succeed("fit", tmp_path / "rows.csv", model, "--model", "exact", "--target", "temp")
    found = succeed("predict", model, terrain, out)
    assert found["rows"] == 47
    with rasterio.open(out) as file, rasterio.open(terrain) as grid:
        assert file.transform == grid.transform
        assert file.crs == grid.crs
        assert np.isnan(file.read(1)[2, 3])
    found = succeed("predict", model, terrain, tmp_path / "map.zarr")
    again = succeed("predict", model, terrain, tmp_path / "map.zarr", "--resume")
    assert again["rows"] == 0
    with xr.open_zarr(tmp_path / "map.zarr") as maps, rasterio.open(out) as file:
        np.testing.assert_array_equal(file.read(1), maps["mean"])
    like = succeed("interpolate", tmp_path / "rows.csv", tmp_path / "i.nc", "--like", terrain,
                   "--target", "temp")  # fmt: skip
    assert like["cells"] == 48


def test_a_geotiff_is_a_source_of_rows(terrain, tmp_path):
    made = daskgp.convert(terrain, str(tmp_path / "rows.zarr"), target="elevation")
    assert (made.rows, made.features) == (47, ("lat", "lon"))
    model = daskgp.ExactGP(optimizer=None).fit(terrain, "elevation")
    assert list(model.feature_names_in_) == ["lat", "lon"]
    filled = daskgp.interpolate(terrain)
    assert int(filled.elevation.isnull().sum()) == 0
    assert dict(model.make_grid(like=terrain).sizes) == {"lat": 6, "lon": 8}


def test_projected_axes_have_the_names_that_the_model_has(tmp_path):
    values = np.zeros((2, 4, 5))
    utm = {"crs": "EPSG:32632", "corner": (500_000, 5_200_000), "step": 100.0}
    path = written(tmp_path / "two.tif", values, descriptions=("slope", "aspect"), **utm)
    with gridded.open_grid(path) as grid:
        assert list(grid.data_vars) == ["slope", "aspect"]
        assert grid.slope.dims == ("y", "x")
        assert grid.x.attrs == {"standard_name": "projection_x_coordinate", "units": "m"}
        np.testing.assert_array_equal(grid.x, 500_050 + 100 * np.arange(5.0))
        np.testing.assert_array_equal(grid.y, 5_199_950 - 100 * np.arange(4.0))
    with gridded.open_grid(path, ("northing", "easting", "time")) as grid:
        assert grid.slope.dims == ("northing", "easting")
    with gridded.open_grid(path, ("lon", "lat")) as grid:  # which it does not have
        assert grid.slope.dims == ("y", "x")
    same = written(tmp_path / "same.tif", values, descriptions=("a", "a"), **utm)
    with gridded.open_grid(same) as grid:
        assert list(grid.data_vars) == ["band_1", "band_2"]


def test_a_single_row_and_a_band_named_as_an_axis_are_grids(tmp_path):
    path = written(tmp_path / "lon.tif", np.ones((1, 1, 8)))
    with gridded.open_grid(path) as grid:
        assert dict(grid.sizes) == {"lat": 1, "lon": 8}
        assert list(grid.data_vars) == ["band_1"]
        assert grid.band_1.dims == ("lat", "lon")
        np.testing.assert_array_equal(grid.lat, [47.75])


def test_a_raster_without_a_reference_system_has_no_features_but_its_axes(tmp_path, caplog):
    values = np.sin(np.arange(48.0)).reshape(1, 6, 8)
    values[0, 2, 3] = np.nan
    path = written(tmp_path / "plain.tif", values, None)
    found = daskgp.interpolate(path, method=daskgp.ExactGP("rbf", optimizer=None))
    assert np.isfinite(found["plain"]).all()
    assert "spatial_ref" not in caplog.text


def test_damaged_files_and_those_without_a_place_are_refused(terrain, tmp_path):
    table().to_csv(tmp_path / "rows.csv", index=False)
    rng = np.random.default_rng(0)
    whole = written(tmp_path / "whole.tif", rng.standard_normal((1, 300, 300)), step=0.01)
    content = open(whole, "rb").read()  # noqa: SIM115
    for name, held in (("half", content[: len(content) // 2]), ("text", b"heights")):
        path = tmp_path / f"{name}.tif"
        path.write_bytes(held)
        given = ("interpolate", tmp_path / "rows.csv", tmp_path / "map.nc", "--target", "temp")
        line = refused(*given, "--like", path)
        assert f"cannot read {path}: it is not a whole GeoTIFF: fetch or write it again" in line
        with pytest.raises(InputError, match="not a whole GeoTIFF"):
            daskgp.convert(str(path), str(tmp_path / "rows.zarr"), target=name)
    turned = rasterio.Affine(0.5, 0.1, 5, 0.1, -0.5, 48)
    path = written(tmp_path / "turned.tif", np.zeros((1, 6, 8)), transform=turned)
    with pytest.raises(InputError, match="is rotated, so it has no axes"):
        daskgp.interpolate(table(), path, target="temp")
    with pytest.warns(rasterio.errors.NotGeoreferencedWarning):
        path = written(tmp_path / "bare.tif", np.zeros((1, 6, 8)), None, (0, 0), 1,
                       transform=rasterio.Affine.identity())  # fmt: skip
    with pytest.warns(rasterio.errors.NotGeoreferencedWarning):
        nowhere = written(tmp_path / "nowhere.tif", np.zeros((1, 6, 8)), "EPSG:3035", (0, 0), 1,
                          transform=rasterio.Affine.identity())  # fmt: skip
    for one in (path, nowhere):
        with pytest.raises(InputError, match="does not say where its cells are: give it a place"):
            daskgp.interpolate(table(), one, target="temp")
    path = written(tmp_path / "paris.tif", np.zeros((1, 6, 8)), "EPSG:4807")  # NTF (Paris)
    with pytest.raises(InputError, match="angles in grads, from Paris, and not degrees"):
        daskgp.interpolate(table(), path, target="temp")
    fsspec.filesystem("memory").pipe("/x/dem.tif", content)
    with pytest.raises(InputError, match="is not on this machine: copy the GeoTIFF here"):
        daskgp.convert("memory://x/dem.tif", str(tmp_path / "rows.zarr"), target="dem")
    assert not (tmp_path / "rows.zarr").exists()
