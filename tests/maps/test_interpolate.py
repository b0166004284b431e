"""Maps in one line, against the same done by hand and a dense optimal interpolation."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import daskgp
import daskgp.xarray
from daskgp import kernels
from daskgp.data import polygons
from daskgp.errors import InputError, SettingError

LON, LAT = np.linspace(5.0, 9.0, 9), np.linspace(45.0, 48.0, 7)
FIELD = ("lon", "lat")
KERNEL = kernels.Matern32(lengthscale=1.5, variance=2.0)
GIVEN = {"kernel": KERNEL, "optimizer": None, "mean": "zero", "standardize": False}
PLANE = GIVEN | {"geographic": False, "noise_variance": 0.1}


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"lon": rng.uniform(5, 9, n), "lat": rng.uniform(45, 48, n)})
    table["height"] = rng.uniform(0, 2, n)
    table["temp"] = np.sin(table.lon) + np.cos(table.lat) + 0.1 * rng.standard_normal(n)
    return table


def grid():
    longitude = ("lon", LON, {"units": "degrees_east"})
    return xr.Dataset(coords={"lon": longitude, "lat": ("lat", LAT, {"units": "degrees_north"})})


def cube():
    rng = np.random.default_rng(1)
    days = pd.date_range("2021-03-01", periods=3)
    there = {"time": days, "lat": LAT, "lon": LON}
    values = xr.DataArray(rng.standard_normal((3, 7, 9)), there, ("time", "lat", "lon"), name="sst")
    values.attrs = {"units": "K", "standard_name": "sea_surface_temperature"}
    return values.where(values < 1.0)


def first_guess():
    lon, lat = np.linspace(4, 10, 4), np.linspace(44, 49, 6)
    return xr.DataArray(2 * lon[:, None] - lat, {"lon": lon, "lat": lat}, FIELD)


def dense(X, y, Z, noise=0.1):
    K = KERNEL(X) + noise * np.eye(len(X))
    across = KERNEL(Z, X)
    mean = across @ np.linalg.solve(K, y)
    return mean, KERNEL.diag(Z) - np.einsum("ij,ji->i", across, np.linalg.solve(K, across.T))


def cells(maps):
    return np.stack([one.ravel() for one in np.meshgrid(maps.lon, maps.lat, indexing="ij")], axis=1)


def test_a_map_of_rows_is_that_of_the_model():
    table = rows().drop(columns="height")
    maps, model = daskgp.interpolate(table, grid(), return_model=True)
    mean, std = model.predict(grid(), return_std=True)
    np.testing.assert_array_equal(maps.temp, mean)
    np.testing.assert_array_equal(maps.temp_std, std)
    assert isinstance(model, daskgp.ExactGP)
    assert maps.lon.attrs["units"] == "degrees_east"


def test_optimal_interpolation_is_the_dense_one():
    table, guess = rows(), first_guess()
    maps = daskgp.interpolate(
        table, grid(), target="temp", features=FIELD, method="exact", background=guess, **PLANE
    )
    X = table[[*FIELD]].to_numpy()
    mean, variance = dense(X, table.temp - (2 * table.lon - table.lat), cells(maps))
    away = mean.reshape(9, 7) + 2 * LON[:, None] - LAT
    np.testing.assert_allclose(maps.temp.transpose(*FIELD), away, atol=1e-8)
    np.testing.assert_allclose(
        maps.temp_std.transpose(*FIELD) ** 2, variance.reshape(9, 7), atol=1e-8
    )


def test_a_background_may_be_a_variable_of_both():
    table, there = rows(), grid()
    table["guess"] = 2 * table.lon - table.lat
    there["guess"] = 2 * there.lon - there.lat
    given = {"target": "temp", "features": FIELD, "method": "exact", **PLANE}
    by_name = daskgp.interpolate(table, there, background="guess", **given)
    by_field = daskgp.interpolate(rows(), grid(), background=first_guess(), **given)
    np.testing.assert_allclose(by_name.temp.transpose(*FIELD), by_field.temp.transpose(*FIELD))


def test_cells_beside_land_of_a_background_on_the_same_grid_keep_it(caplog):
    sea = (2 * grid().lon - grid().lat).rename("temp")
    sea = sea.where((abs(sea.lon - 7) > 1) | (abs(sea.lat - 46.5) > 0.6))
    gappy = (sea + 0.1 * np.sin(sea.lon)).where(sea.lat != sea.lat[3]).rename("temp")
    rounded = sea.assign_coords({dim: sea[dim].astype(np.float32) for dim in FIELD})
    for guess in (sea, rounded, sea.chunk()):
        maps = daskgp.interpolate(gappy, target="temp", background=guess, method="exact", **PLANE)
        assert "outside the background" not in caplog.text
        np.testing.assert_array_equal(maps.temp.notnull().transpose(*sea.dims), sea.notnull())
        assert float(abs(maps.temp - sea).max()) < 0.3


def test_cells_at_the_ends_of_a_rounded_background_are_inside(caplog):
    whole = {"lon": np.arange(51, 61) / 10, "lat": np.arange(452, 460) / 10}
    sea = xr.Dataset(coords=whole)
    sea = (2 * sea.lon - sea.lat).rename("temp")
    rounded = sea.assign_coords({dim: sea[dim].astype(np.float32) for dim in FIELD})
    assert float(rounded.lat[0]) > sea.lat[0]  # so that the first row would be outside
    given = {"method": "exact", "optimizer": None, "kernel": "rbf(1.0)", "geographic": False}
    maps = daskgp.interpolate(sea + 0.1, target="temp", background=rounded, **given)
    assert "outside the background" not in caplog.text
    np.testing.assert_allclose(maps.temp.transpose(*sea.dims), sea + 0.1, atol=1e-5)


def test_rows_outside_a_background_are_left_out_and_told(caplog):
    half = first_guess().sel(lon=slice(0, 6.5))
    table = rows().drop(columns="height")
    maps = daskgp.interpolate(table, grid(), background=half)
    outside = int((table.lon > half.lon.max().item()).sum())
    assert f"{outside} of 60 values lie outside the background" in caplog.text
    assert maps.temp.sel(lon=8).isnull().all()
    assert maps.temp.sel(lon=5).notnull().all()


def test_gaps_of_a_grid_are_filled_and_keep_their_names():
    gappy = cube()
    maps = gappy.gp.interpolate()
    assert maps.sst.dims == ("time", "lat", "lon")
    assert maps.sst.attrs["units"] == maps.sst_std.attrs["units"] == "K"
    assert maps.sst.attrs["standard_name"] == "sea_surface_temperature"
    assert maps.sst.notnull().all()
    lazy = gappy.to_dataset().chunk(time=1).gp.interpolate()
    assert lazy.sst.chunks[0] == (1, 1, 1)
    np.testing.assert_allclose(lazy.sst, maps.sst, atol=1e-6)


def test_a_variable_of_both_is_a_feature():
    there = grid().assign(height=(FIELD, np.random.default_rng(2).uniform(0, 2, (9, 7))))
    maps, model = daskgp.interpolate(rows(), there, return_model=True)
    assert [*model.feature_names_in_] == ["lon", "lat", "height"]
    assert "height" not in maps


def test_cells_far_from_rows_have_no_values():
    there = {"lon": np.linspace(5, 40, 36), "lat": LAT}
    table = rows().drop(columns="height")
    free = daskgp.interpolate(table, there)
    limit = float(free.temp_std.median())
    sure = daskgp.interpolate(table, there, max_std=limit)
    assert (sure.temp.notnull() == (free.temp_std <= limit)).all()
    near = daskgp.interpolate(table, there, min_neighbours=3)
    assert near.temp.sel(lon=7).notnull().all()
    assert near.temp.sel(lon=40).isnull().all()
    assert (near.temp.isnull() == near.temp_std.isnull()).all()


def test_neighbours_are_counted_where_the_correlation_is_half():
    table = pd.DataFrame({"x": [0.0, 0.1, 10.0], "y": [1.0, 2.0, 3.0]})
    given = {**GIVEN, "noise_variance": 0.1, "method": "exact", "target": "y"}
    half = np.linspace(0, 3, 3001)
    reach = half[np.argmin(np.abs(KERNEL(half[:, None], np.zeros((1, 1)))[:, 0] - 1.0))]
    places = np.array(
        [0.1 - 0.99 * reach, 0.1 - 1.02 * reach, 10 + 0.98 * reach, 10 + 1.02 * reach]
    )
    one = daskgp.interpolate(table, {"x": places}, min_neighbours=1, **given)
    assert [*one.y.notnull().values] == [True, True, True, False]
    two = daskgp.interpolate(table, {"x": places}, min_neighbours=2, **given)
    assert [*two.y.notnull().values] == [True, False, False, False]


def test_a_mask_leaves_out_rows_and_cells(tmp_path):
    wanted = xr.DataArray(LON < 7.1, {"lon": LON}, ("lon",))
    table = rows().drop(columns="height")
    maps, model = daskgp.interpolate(table, grid(), mask=wanted, return_model=True)
    assert model.n_rows_ == int((table.lon < 7.25).sum())
    assert maps.temp.sel(lon=slice(5, 7)).notnull().all()
    assert maps.temp.sel(lon=slice(7.2, 9)).isnull().all()
    ring = [[4, 44], [7.25, 44], [7.25, 49], [4, 49], [4, 44]]
    feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    path = tmp_path / "half.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    same = daskgp.interpolate(table, grid(), mask=str(path))
    np.testing.assert_array_equal(same.temp, maps.temp)
    gaps = cube().gp.interpolate(mask=wanted)
    assert gaps.sst.isel(lon=0).notnull().all()
    assert gaps.sst.isel(lon=-1).isnull().all()


def test_holes_are_outside():
    outer = np.array([[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], float)
    hole = outer / 4 + 1
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 5, (2, 500))
    wanted = (abs(x - 2) < 2) & (abs(y - 2) < 2) & ~((abs(x - 1.5) < 0.5) & (abs(y - 1.5) < 0.5))
    np.testing.assert_array_equal(polygons.inside((outer, hole), x, y), wanted)


def test_each_node_of_a_tree_is_a_map():
    tree = xr.DataTree.from_dict(
        {"/": xr.Dataset(), "/a": cube().to_dataset(), "/b": cube()[:2].to_dataset()}
    )
    found = daskgp.interpolate(tree, target="sst")
    assert isinstance(found, xr.DataTree)
    assert dict(found["b"].sizes) == {"time": 2, "lat": 7, "lon": 9}


def test_a_file_is_a_source(tmp_path):
    rows().drop(columns="height").to_csv(tmp_path / "rows.csv", index=False)
    grid().to_netcdf(tmp_path / "grid.nc", engine="scipy")
    maps = daskgp.interpolate(
        str(tmp_path / "rows.csv"), str(tmp_path / "grid.nc"), min_neighbours=1
    )
    wanted = daskgp.interpolate(rows().drop(columns="height"), grid(), min_neighbours=1)
    np.testing.assert_allclose(maps.temp, wanted.temp, atol=1e-8)


def test_grid_mappings_are_kept(tmp_path):
    there = grid().assign_coords(spatial_ref=((), 0, {"crs_wkt": "GEOGCRS[]"}))
    maps = daskgp.interpolate(rows().drop(columns="height"), there)
    assert maps.temp.attrs["grid_mapping"] == "spatial_ref"
    maps.to_netcdf(tmp_path / "maps.nc", engine="scipy")
    with xr.open_dataset(tmp_path / "maps.nc", engine="scipy") as again:
        np.testing.assert_array_equal(again.temp, maps.temp)


TABLE = rows()
OBSERVED = TABLE.rename(columns={"height": "time"}).assign(time=pd.Timestamp("2024-02-01"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"like": None}, "the source has no grid of its own"),
        ({}, r"features lon, lat: give target= \(--target\), one of height, temp"),
        ({"source": OBSERVED}, r"give target= \(--target\), such as temp$"),  # and no time
        ({"target": "tmep"}, "tmep"),
        ({"like": {"u": LON}, "target": "temp"}, "no name in common"),
        ({"target": "temp", "features": ["lon", "depth"]}, "feature 'depth' is not in both"),
        ({"target": "temp", "method": "kriging"}, "unknown"),
        ({"target": "temp", "method": 3}, "method is 3"),
        ({"target": "temp", "method": daskgp.SGPR(), "kernel": "rbf"}, "settings of its own"),
        ({"target": "temp", "max_std": -1.0}, "max_std"),
        ({"target": "temp", "min_neighbours": 0}, "min_neighbours"),
        ({"target": "temp", "background": "guess"}, "the source does not have"),
        ({"target": "temp", "background": 3.0}, "background is 3.0"),
        ({"target": "temp", "background": first_guess() + 0 * cube()}, "dimension 'time'"),
        ({"target": "temp", "background": first_guess()[:1]}, "1 value along 'lon'"),
        ({"target": "temp", "background": first_guess().assign_coords(lon=range(4))}, "at any row"),
        ({"target": "temp", "mask": 3}, "mask is 3"),
        ({"target": "temp", "mask": first_guess().astype(str)}, "mask holds <U"),
        ({"target": "temp", "mask": first_guess() > 1e6}, "leaves out all rows"),
        (
            {"target": "temp", "mask": "nowhere.geojson"},
            "neither a variable of the grid nor a file",
        ),
        ({"target": "temp", "like": 3}, "like is 3"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(given, said):
    with pytest.raises((InputError, SettingError), match=said) as caught:
        daskgp.interpolate(**({"source": TABLE, "like": grid()} | given))
    assert "\n" not in str(caught.value)


def test_a_damaged_geojson_is_told(tmp_path):
    for text in ("{", "[]", '{"type": "Point", "coordinates": [1, 2]}'):
        (tmp_path / "bad.geojson").write_text(text)
        with pytest.raises(InputError, match=r"bad\.geojson"):
            daskgp.interpolate(TABLE, grid(), target="temp", mask=str(tmp_path / "bad.geojson"))


def test_fill_values_are_no_differences_from_a_background():
    table = rows()
    table.loc[:19, "temp"] = -9999.0
    given = {"target": "temp", "features": FIELD, "method": "exact", **PLANE}
    maps = daskgp.interpolate(table, grid(), background=first_guess(), **given)
    wanted = daskgp.interpolate(table[20:], grid(), background=first_guess(), **given)
    np.testing.assert_allclose(maps.temp, wanted.temp, atol=1e-8)


def test_files_and_lazy_frames_have_backgrounds_and_masks(tmp_path):
    frames = pytest.importorskip("dask.dataframe")
    table = rows().drop(columns="height")
    table.to_csv(tmp_path / "rows.csv", index=False)
    first_guess().to_dataset(name="guess").to_netcdf(tmp_path / "guess.nc", engine="scipy")
    wanted = xr.DataArray(LON < 7.1, {"lon": LON}, ("lon",))
    more = {"mask": wanted, "min_neighbours": 2}
    here = daskgp.interpolate(table, grid(), background=first_guess(), **more)
    assert 0 < here.temp.notnull().sum() < here.temp.size
    for source in (str(tmp_path / "rows.csv"), frames.from_pandas(table, npartitions=3)):
        guess = str(tmp_path / "guess.nc")
        there = daskgp.interpolate(source, grid(), background=guess, **more)
        np.testing.assert_allclose(there.temp, here.temp, atol=1e-8)


def test_a_gappy_file_has_a_mask(tmp_path):
    cube().to_netcdf(tmp_path / "cube.nc", engine="scipy")
    wanted = xr.DataArray(LON < 7.1, {"lon": LON}, ("lon",))
    there = daskgp.interpolate(str(tmp_path / "cube.nc"), mask=wanted)
    np.testing.assert_allclose(there.sst, cube().gp.interpolate(mask=wanted).sst, atol=1e-8)


def test_dates_written_as_numbers_have_neighbours():
    days = pd.date_range("2021-01-01", periods=60)
    table = rows().assign(day=days.strftime("%Y%m%d").astype(int)).drop(columns="height")
    there = {"lon": LON, "lat": LAT, "day": days[:1]}
    maps = daskgp.interpolate(table, there, min_neighbours=1)
    as_times = daskgp.interpolate(table.assign(day=days), there, min_neighbours=1)
    np.testing.assert_allclose(maps.temp, as_times.temp, atol=1e-6)
    assert maps.temp.notnull().any()


def test_masks_end_half_a_step_beyond_their_coordinates():
    wanted = xr.DataArray([True, True, True], {"lon": [8.0, 7.0, 6.0]}, ("lon",))
    maps = daskgp.interpolate(rows().drop(columns="height"), grid(), mask=wanted)
    inside = maps.temp.notnull().all("lat")
    np.testing.assert_array_equal(inside, (LON >= 5.5) & (LON <= 8.5))


def test_polygons_know_longitudes_by_either_convention():
    ring = np.array([[-10, 40], [-5, 40], [-5, 50], [-10, 50], [-10, 40]], float)
    shape = polygons.Polygons(((ring,),), ("lon", "lat"))
    found = shape.hold(np.array([-7.0, 353.0, 7.0]), np.full(3, 45.0))
    assert [*found] == [True, True, False]


def test_the_features_of_polygons_are_found_by_name():
    for features in (("nav_lat", "year", "nav_lon"), ("y", "year", "x"), ("Northing", "Easting")):
        across, up = polygons.across_and_up(features)
        assert across in ("nav_lon", "x", "Easting")
        assert up in ("nav_lat", "y", "Northing")


def test_times_are_found_among_times_alone():
    days = pd.date_range("2021-01-01", periods=60, tz="UTC")
    table = rows().assign(day=days).drop(columns="height")
    there = {"lon": LON, "lat": LAT, "day": days[:2].tz_localize(None)}
    ends = {"day": days[[0, -1]].tz_localize(None)}
    level = xr.DataArray(np.ones(2), ends, ("day",))
    given = {"target": "temp", "background": level, "mask": level > 0}
    assert daskgp.interpolate(table, there, **given).temp.notnull().any()
    numbers = table.assign(day=days.strftime("%Y%m%d").astype(int))
    for what in ("background", "mask"):
        with pytest.raises(InputError, match=f"{what} has times along 'day'"):
            daskgp.interpolate(numbers, there, target="temp", **{what: given[what]})


def test_coordinates_that_are_there_twice_are_told():
    twice = xr.DataArray(np.ones(3), {"lon": [4.0, 6.0, 6.0]}, ("lon",))
    for given in ({"background": twice}, {"mask": twice > 0}):
        with pytest.raises(InputError, match="a coordinate twice along 'lon'"):
            daskgp.interpolate(TABLE, grid(), target="temp", **given)


def test_text_has_no_neighbours():
    table = rows().assign(kind="a").drop(columns="height")
    there = grid().assign(kind=(FIELD, np.full((9, 7), "a")))
    with pytest.raises(InputError, match="'kind' is text"):
        daskgp.interpolate(table, there, target="temp", min_neighbours=1)


@pytest.mark.parametrize(
    ("include_noise", "said"), [(False, "the field, without noise"), (True, "new values, noise")]
)
def test_a_spread_says_whether_it_includes_noise(include_noise, said):
    table = rows().drop(columns="height")
    std = daskgp.interpolate(table, grid(), method="vecchia", include_noise=include_noise).temp_std
    assert std.attrs["comment"].startswith(f"that of {said}")
    assert ("of a new observation of temp" in std.attrs["long_name"]) == include_noise


def test_counts_are_mapped_as_rates():
    table = rows().drop(columns="height")
    table["temp"] = np.random.default_rng(0).poisson(np.exp(table.temp)).astype(float)
    how = {"method": "vecchia", "likelihood": "poisson", "return_model": True}
    maps, model = daskgp.interpolate(table, grid(), **how)
    mean, std = model.predict(grid(), return_std=True, include_noise=True)
    np.testing.assert_array_equal(maps.temp, mean)
    np.testing.assert_array_equal(maps.temp_std, std)
    assert maps.temp_std.attrs["comment"] == "that of new values, noise included"
    assert (maps.temp > 0).all()


def places(n=80, west=-4.0, east=4.0):
    """Rows of a field in longitude and latitude, with an elevation in metres."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"lon": rng.uniform(west, east, n), "lat": rng.uniform(-4, 4, n)})
    table["elevation"] = rng.uniform(100, 900, n)
    return table.assign(t=np.sin(table.lat) + np.cos(table.lon) - table.elevation / 300)


def axes(west=-4.0, east=4.0):
    return {"lon": np.linspace(west, east, 9), "lat": np.linspace(-4, 4, 9)}


def test_axes_of_the_grid_that_are_no_columns_are_refused():
    lon, lat = axes().values()
    height = (("latitude", "longitude"), np.full((9, 9), 300.0))
    grid = xr.Dataset({"elevation": height}, {"latitude": lat, "longitude": lon})
    with pytest.raises(InputError, match=r"latitude and longitude.*grid.rename\(latitude='lat'\)"):
        daskgp.interpolate(places(), grid, target="t")


def test_times_of_a_source_that_the_grid_lacks_are_refused():
    cube = xr.DataArray(
        np.random.default_rng(0).normal(size=(3, 4, 5)),
        {
            "time": np.arange("2025-01-01", "2025-01-04", dtype="M8[D]"),
            "y": range(4),
            "x": range(5),
        },
        name="f",
    )
    with pytest.raises(InputError, match="the source has time, but the grid does not"):
        daskgp.interpolate(cube, {"x": [0.5, 1.5], "y": [1.5, 2.5]}, target="f")
    grid = {"x": [0.5, 1.5], "y": [1.5, 2.5]}
    maps = daskgp.interpolate(cube, grid, target="f", features=["x", "y"])
    assert maps.f.dims == ("x", "y")


def test_columns_that_the_grid_lacks_are_said(caplog):
    table = places().assign(station="S1")
    daskgp.interpolate(table, axes(), target="t")
    assert "elevation of the source is not a feature, as the grid does not have it" in caplog.text
    assert "station" not in caplog.text


def test_a_covariate_in_another_unit_is_said():
    grid = xr.Dataset({"elevation": (("lat", "lon"), np.full((9, 9), 0.4))}, axes())
    with pytest.warns(
        UserWarning, match="'elevation' of places to predict goes from 0.4 .* another unit"
    ):
        daskgp.interpolate(places(), grid, target="t")


def test_a_background_in_another_unit_is_refused():
    source = xr.DataArray(np.ones((9, 9)), axes(), ("lon", "lat"), "t", {"units": "K"})
    first = source.copy(data=np.full((9, 9), 33.8)).assign_attrs(units="degF")
    with pytest.raises(InputError, match="background is in degF and 't' in K"):
        daskgp.interpolate(source, background=first)


@pytest.mark.parametrize("step", [1.0, 2.0])
def test_longitudes_of_masks_and_backgrounds_may_begin_elsewhere(step):
    lon = np.arange(0, 360, step)
    lat = np.arange(-6, 7, 1.0)
    guess = xr.DataArray(
        np.cos(np.radians(lon))[:, None] + 0 * lat, {"lon": lon, "lat": lat}, ("lon", "lat")
    )
    table, grid = places().drop(columns="elevation"), axes()
    turned = guess.assign_coords(lon=(lon + 180) % 360 - 180).sortby("lon")
    for name, fields in (
        ("background", (guess, turned)),
        ("mask", (guess > -2, turned > -2)),
    ):
        found = [daskgp.interpolate(table, grid, target="t", **{name: own}) for own in fields]
        assert int(found[0].t.isnull().sum()) == 0
        xr.testing.assert_allclose(*found)


def test_masks_of_files_may_be_numbers():
    wanted = xr.DataArray(np.ones((9, 9)), axes(), ("lon", "lat"))
    wanted[:3], wanted[3] = np.nan, 0.0
    maps = daskgp.interpolate(places(), axes(), target="t", mask=wanted)
    np.testing.assert_array_equal(maps.t.notnull().all("lat"), wanted[:, 0].notnull())


def test_masks_may_be_polygons_in_memory():
    ring = [[-2.5, -9], [2.5, -9], [2.5, 9], [-2.5, 9], [-2.5, -9]]
    said = {"type": "Polygon", "coordinates": [ring]}
    for mask in (said, SimpleNamespace(__geo_interface__=said)):
        maps = daskgp.interpolate(places(), axes(), target="t", mask=mask)
        np.testing.assert_array_equal(maps.t.notnull().all("lat"), np.abs(maps.lon) < 2.5)


def test_neighbours_are_within_what_rows_tell_even_if_the_field_is_smooth(caplog):
    table = places().drop(columns="elevation")
    table["t"] = 20 * table.lat + 5 * table.lon  # of a kernel with a long lengthscale
    grid = {"lon": np.linspace(-4, 60, 65), "lat": np.linspace(-4, 4, 5)}
    maps = daskgp.interpolate(table, grid, target="t", kernel="rbf", min_neighbours=3)
    kept = maps.t.notnull()
    assert bool(kept.sel(lon=0).all())
    assert not bool(kept.sel(lon=slice(30, None)).any())
    daskgp.interpolate(table, axes(-1, 1), target="t", kernel="rbf", min_neighbours=1)
    assert "min_neighbours=1 leaves out no cell" in caplog.text
    daskgp.interpolate(table, axes(), target="t", kernel="rbf", max_std=1e-9)
    assert "no cell of the map is left with a value" in caplog.text


def test_settings_and_methods_that_are_meant_are_told():
    table = places().drop(columns="elevation")
    for given, said in (
        ({"max_sdt": 1.0}, "unknown setting 'max_sdt' of interpolate: did you mean 'max_std'"),
        ({"method": "krige"}, "choose one of auto, "),
        ({"method": "vecchia", "neighbors": 3}, "did you mean 'n_neighbours'"),
    ):
        with pytest.raises((SettingError, TypeError), match=said):
            daskgp.interpolate(table, axes(), target="t", **given)


def test_a_table_is_no_grid(tmp_path):
    places().to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(InputError, match=r"rows\.csv is not a grid: give .*, or steps of its axes"):
        daskgp.interpolate(places(), str(tmp_path / "rows.csv"), target="t")


def test_an_axis_of_one_value_need_not_be_a_column():
    grid = xr.Dataset(coords={**axes(), "band": [1]})
    grid["elevation"] = ("band", "lat", "lon"), np.full((1, 9, 9), 300.0)
    maps = daskgp.interpolate(places(), grid, target="t")
    assert maps.t.sizes["band"] == 1
    assert maps.attrs["Conventions"] == "CF-1.11"


def test_a_map_says_its_inputs_and_its_background(caplog):
    table = places().drop(columns="elevation").assign(t=lambda one: one.t + 285.0)
    guess = xr.DataArray(np.linspace(10, 14, 9)[:, None] + np.zeros(9), axes(), ("lon", "lat"))
    maps = daskgp.interpolate(
        table, axes(), background=guess.rename("clim"), geographic=("lon", "lat")
    )
    assert maps.attrs["background"] == "clim"
    assert maps.attrs["inputs"] == "lon (km), lat (km)"
    assert "'t' of the background goes from 10" in caplog.text
    assert "about 273.15 lower" in caplog.text


def test_longitudes_beyond_a_turn_are_told():
    with pytest.raises(InputError, match="add or take 360 to bring them there"):
        daskgp.interpolate(
            places().drop(columns="elevation"),
            axes(-364.0, -356.0),
            target="t",
            geographic=("lon", "lat"),
        )
