"""Maps of labelled results: axes, units and colours come from the data."""

import json
import sys

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.dates import AutoDateFormatter

import daskgp
from daskgp import kernels, plot
from daskgp.errors import InputError
from daskgp.plot import coasts, places

EAST, NORTH = {"units": "degrees_east"}, {"units": "degrees_north"}


def pair(dims=("lat", "lon"), lat=None, lon=None, **said):
    """Mean and standard deviation of a temperature, 100 lat + lon and half of that."""
    lat = np.array([60.0, 50.0, 40.0]) if lat is None else lat
    lon = np.linspace(-10, 20, 4) if lon is None else lon
    coords = {"lat": ("lat", lat, NORTH), "lon": ("lon", lon, EAST)}
    values = 100 * lat[:, None] + lon
    mean = xr.DataArray(values, coords, ("lat", "lon"), "temperature_mean", {"units": "K", **said})
    return tuple(field.transpose(*dims) for field in (mean, (mean / 2).rename("temperature_std")))


def mesh(ax):
    (drawn,) = (c for c in ax.collections if isinstance(c, QuadMesh))
    return drawn


def bars(axes):
    drawn = (ax for ax in axes[0].figure.axes if ax.get_visible())
    return [ax.get_ylabel() for ax in drawn if ax not in axes]


@pytest.mark.parametrize("dims", [("lat", "lon"), ("lon", "lat")])
def test_longitude_runs_to_the_right_and_latitude_upwards(dims):
    mean, std = pair(dims)
    axes = plot.posterior_map(mean=mean, std=std)
    assert [ax.get_title() for ax in axes] == ["mean", "standard deviation"]
    assert [ax.get_xlabel() for ax in axes] == ["lon (°E)"] * 2
    assert [ax.get_ylabel() for ax in axes] == ["lat (°N)", ""]
    image = mesh(axes[0]).get_array()
    assert image.shape == (3, 4)
    np.testing.assert_allclose(image[0], mean.sel(lat=40))  # rows run upwards
    np.testing.assert_allclose(mesh(axes[1]).get_array(), image / 2)
    assert axes[0].get_xlim()[0] < -10 < 20 < axes[0].get_xlim()[1]
    # a degree of longitude at 50 degrees north is 0.64 of one of latitude
    assert axes[0].get_aspect() == pytest.approx(1 / np.cos(np.deg2rad(50)))
    assert bars(axes) == ["temperature (K)"] * 2


def test_other_dimensions_lie_as_in_xarray_unless_cf_says_otherwise():
    depth = ("depth", np.arange(3.0), {"units": "m", "long_name": "depth below the ice"})
    section = xr.DataArray(np.zeros((3, 4)), {"depth": depth}, ("depth", "along"), "salt")
    (ax,) = plot.maps({"salt": section})
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("along", "depth below the ice (m)")
    assert ax.get_aspect() == "auto"
    (ax,) = plot.maps({"salt": section.assign_coords(depth=(*depth[:2], {"axis": "X"}))})
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("depth", "along")


def test_long_distances_in_metres_are_numbered_in_km_and_stay_metres():
    metres = [{"standard_name": f"projection_{c}_coordinate", "units": "m"} for c in "xy"]
    coords = {"x": ("x", np.arange(0, 50_000, 1e4), metres[0])}
    coords["y"] = ("y", np.arange(0, 30_000, 1e4), metres[1])
    (ax,) = plot.maps({"a": xr.DataArray(np.eye(5, 3), coords, ("x", "y"))})
    assert ax.get_xlabel() == "projection x coordinate (km)"
    assert ax.xaxis.get_major_formatter()(20_000.0, 0) == "20"
    assert ax.get_xlim()[1] > 40_000
    assert ax.get_aspect() == 1
    (ax,) = plot.maps({"a": xr.DataArray(np.eye(5, 3), coords, ("x", "y"))}, names=("a (m)", "b"))
    assert ax.get_xlabel() == "a (m)"
    assert ax.xaxis.get_major_formatter()(20_000.0, 0) != "20"


def test_a_dataset_is_drawn_by_the_names_of_its_variables():
    mean, std = pair()
    stored = xr.Dataset({"temperature_mean": mean, "temperature_variance": std**2})
    axes = plot.posterior_map(stored, label="t (K)")
    np.testing.assert_allclose(mesh(axes[1]).get_array(), mesh(axes[0]).get_array() / 2)
    assert bars(axes) == ["t (K)"] * 2
    with pytest.raises(InputError, match=r"several variables mean, temperature_mean, salt_mean"):
        plot.posterior_map(stored.assign(salt_mean=mean))
    with pytest.raises(InputError, match=r"the results hold temperature_mean: a mean and a std"):
        plot.posterior_map(stored[["temperature_mean"]])


def test_each_colour_bar_says_what_its_panel_shows():
    mean, std = pair()
    mean = mean.rename("m").assign_attrs(long_name="posterior mean of t")
    std = std.rename("s").assign_attrs(long_name="posterior standard deviation of t")
    axes = plot.posterior_map(mean=mean, std=std)
    assert [bar.partition(" (")[0] for bar in bars(axes)] == [
        "posterior mean of t",
        "posterior standard deviation of t",
    ]


def test_truth_is_put_on_the_grid_of_the_results():
    mean, std = pair()
    truth = (mean + 1).rename("air temperature").assign_attrs(units="K")
    axes = plot.posterior_map(truth=truth.transpose("lon", "lat"), mean=mean, std=std)
    assert [ax.get_title() for ax in axes] == ["truth", "mean", "standard deviation"]
    first, second = (mesh(ax) for ax in axes[:2])
    np.testing.assert_allclose(first.get_array(), second.get_array() + 1)
    assert first.get_clim() == second.get_clim()
    assert bars(axes)[0] == "air temperature (K)"
    with pytest.raises(InputError, match="coordinate 'lat' of y differs"):
        plot.posterior_map(truth=truth.assign_coords(lat=[1.0, 2.0, 3.0]), mean=mean, std=std)


def test_columns_of_a_table_name_the_axes():
    labels = {"dims": ("row", "feature"), "coords": {"feature": ["east", "north"]}}
    X = xr.DataArray(da.from_array(np.random.default_rng(0).uniform(size=(9, 2))), **labels)
    values = xr.DataArray(np.arange(9.0), dims="row")
    axes = plot.posterior_map(X, values, values, values)
    assert (axes[0].get_xlabel(), axes[0].get_ylabel()) == ("east", "north")
    np.testing.assert_allclose(axes[1].collections[0].get_offsets(), X.values)


def test_lazy_predictions_are_computed_once():
    X = np.stack(np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 9)), axis=-1).reshape(-1, 2)
    settings = {"optimizer": None, "store": None}
    model = daskgp.ExactGP(kernels.RBF(), **settings).fit(X, X.sum(axis=1))
    coords = {"x0": np.arange(6) / 6, "x1": np.arange(8) / 8}
    grid = xr.DataArray(da.zeros((6, 8), chunks=(3, 4)), coords, ("x0", "x1"))
    mean, std = model.predict(grid, return_std=True)
    tasks = []
    with (
        dask.config.set(scheduler="synchronous"),
        dask.callbacks.Callback(posttask=lambda key, *_: tasks.append(str(key))),
    ):
        axes = plot.posterior_map(mean=mean, std=std, names=("a", "b"))
    assert sum("grid-" in task for task in tasks) <= 4  # one per chunk, for both
    np.testing.assert_allclose(mesh(axes[0]).get_array(), mean.values)
    assert [axes[0].get_xlabel(), axes[0].get_ylabel()] == ["a", "b"]


def test_large_grids_are_thinned_before_they_are_computed(monkeypatch):
    monkeypatch.setattr(places, "MOST_SIDE", 5)
    values = xr.DataArray(da.arange(12 * 4, chunks=8).reshape(12, 4), dims=("a", "b"))
    (ax,) = plot.maps({"v": values})
    np.testing.assert_array_equal(mesh(ax).get_array(), values.values[::3])
    assert ax.get_ylim() == (-1.5, 10.5)


def test_a_curvilinear_grid_lies_where_its_coordinates_say():
    i, j = np.mgrid[0:3, 0:4].astype(float)
    coords = {"lon": (("j", "i"), i + j / 10, EAST), "lat": (("j", "i"), j - i / 10, NORTH)}
    (ax,) = plot.maps({"a": xr.DataArray(i, coords, ("j", "i"))})
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lon (°E)", "lat (°N)")
    corners = mesh(ax).get_coordinates()
    assert corners.shape == (4, 5, 2)
    np.testing.assert_allclose(corners[1:, 1:, 0] - corners[:-1, 1:, 0], 1.0)


def test_times_are_an_axis():
    time = np.array(["2026-01-01", "2026-01-02", "2026-01-04"], "datetime64[ns]")
    values = xr.DataArray(np.ones((2, 3)), {"time": time, "lat": [1.0, 2.0]}, ("lat", "time"))
    (ax,) = plot.maps({"a": values})
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time", "lat (°N)")
    assert isinstance(ax.xaxis.get_major_formatter(), AutoDateFormatter)


def test_what_is_no_map_is_named():
    mean, std = pair()
    times = mean.expand_dims(time=2)
    with pytest.raises(InputError, match=r"'time': 2.*: a map has two, .* isel or sel"):
        plot.posterior_map(mean=times, std=times)
    axes = plot.posterior_map(mean=times[:1], std=std.expand_dims(time=1))  # one is no dimension
    assert mesh(axes[0]).get_array().shape == (3, 4)
    with pytest.raises(InputError, match="needs mean= and std="):
        plot.posterior_map(mean, std)
    with pytest.raises(InputError, match="the places are missing: give X"):
        plot.posterior_map(mean=mean.values, std=std.values)
    with pytest.raises(InputError, match="coordinate 'lat' holds text such as 'a'"):
        plot.maps({"a": mean.assign_coords(lat=list("abc"))})


def lines_of(ax):
    drawn = (c for c in ax.collections if isinstance(c, LineCollection))
    return [line for collection in drawn for line in collection.get_segments()]


def test_longitude_and_latitude_get_coastlines():
    ireland = {"lon": np.linspace(-12, -5, 8), "lat": np.linspace(51, 56, 6)}
    mean, std = pair(**ireland)
    axes = plot.posterior_map(mean=mean, std=std)
    for ax in axes:
        coast = np.concatenate(lines_of(ax))
        # Malin Head, the northernmost point, and Slea Head in the west
        for place in ((-7.37, 55.38), (-10.48, 52.1)):
            assert np.hypot(*(coast - place).T).min() < 0.05
        assert ax.get_xlim() == (-12.5, -4.5)  # which coasts do not widen
    (ax,) = plot.maps({"a": mean.rename(lon="a", lat="b").drop_vars(["a", "b"])})
    assert lines_of(ax) == []


SHORE = np.array([[-9.0, 52.0], [-8.0, 53.0], [-7.0, 52.5]])


class Shape:
    """A geometry as shapely and geopandas have them."""

    def __init__(self, kind, coordinates):
        self.__geo_interface__ = {"type": kind, "coordinates": coordinates}


@pytest.mark.parametrize("given", ["file", "lines", "one line", "geometry", "geometries"])
def test_other_coastlines_are_files_lines_and_geometries(given, tmp_path):
    line = SHORE.tolist()
    kinds = {"MultiPolygon": [[line, line]], "LineString": line, "Point": [0, 0]}
    shapes = [{"type": kind, "coordinates": at} for kind, at in kinds.items()]
    file = tmp_path / "coast.geojson"
    features = [{"type": "Feature", "geometry": shape} for shape in shapes]
    file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    coast, n = {
        "file": (file, 3),
        "lines": ([SHORE, SHORE + 1], 2),
        "one line": (SHORE, 1),
        "geometry": (Shape("MultiLineString", [line, line]), 2),
        "geometries": ([Shape("Polygon", [line]), Shape("LineString", line)], 2),
    }[given]
    mean, std = pair(lon=np.linspace(-12, -5, 8), lat=np.linspace(51, 56, 6))
    for ax in plot.posterior_map(mean=mean, std=std, coast=coast):
        drawn = [at for at in lines_of(ax) if (at[0] >= (-9, 51)).all() and at[0, 0] < 0]
        assert len(drawn) == n
        np.testing.assert_allclose(drawn[0], SHORE)
        assert ax.get_xlim() == (-12.5, -4.5)


def test_coastlines_go_on_maps_of_any_axes_or_are_left_out():
    mean, std = pair()
    X = np.random.default_rng(0).uniform(size=(20, 2))
    (ax,) = plot.maps(X, {"a": X[:, 0]}, coast=[SHORE])
    np.testing.assert_allclose(lines_of(ax), [SHORE])  # once: no globe to go round
    for axes in (
        plot.maps({"a": mean}, coast=False),
        plot.posterior_map(mean=mean, std=std, coast=False),
        [plot.residuals(y=mean, mean=mean + 1, std=std, coast=False)],
        plot.maps(X, {"a": X[:, 0]}),
    ):
        assert all(lines_of(ax) == [] for ax in axes)


def test_what_is_no_coastline_is_named(tmp_path):
    mean, _ = pair()
    empty = tmp_path / "empty.geojson"
    empty.write_text('{"type": "Point", "coordinates": [1, 2]}')
    bad = tmp_path / "bad.geojson"
    bad.write_text('{"type": "LineString", "coordinates": [[1, 2], [3]]}')
    cut = tmp_path / "cut.geojson"
    cut.write_text('{"type": "LineStr')
    for coast, said in (
        (tmp_path / "no.geojson", "coast .*no.geojson does not exist: check the path"),
        (empty, "empty.geojson has no line to draw: give geometries"),
        (bad, "bad.geojson has no line to draw"),
        (cut, "cannot read .*cut.geojson: it is not GeoJSON"),
        (Shape("Point", [1, 2]), "coast has no line to draw"),
        (3, "coast=3: give True, False, the path"),
        (None, "coast=None: give True, False, the path"),
        ([[1.0, 2.0], [3.0, 4.0]], r"a line of coast has shape \(2,\)"),
    ):
        with pytest.raises(InputError, match=said):
            plot.maps({"a": mean}, coast=coast)


def test_coastlines_go_round_the_globe_and_are_not_cut():
    mean, _ = pair(lon=np.linspace(0, 350, 36))  # longitudes from 0 to 360
    (ax,) = plot.maps({"a": mean})
    lines = lines_of(ax)
    assert max(np.abs(np.diff(line, axis=0)).max() for line in lines) < 10
    coast = np.concatenate(lines)
    # Gibraltar and its copy in the west, San Francisco
    for place in ((-5.6, 36.0), (354.4, 36.0), (237.5, 37.8)):
        assert np.hypot(*(coast - place).T).min() < 1
    for _, scale in coasts.SCALES:
        for line in coasts._globe(scale)[0]:
            assert not (np.abs(line[:, 0]) > 179.99).all()


def test_columns_of_a_table_called_longitude_and_latitude_are_a_map_with_coasts():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"lon": rng.uniform(-10, 10, 20), "Latitude": rng.uniform(45, 60, 20)})
    ax = plot.residuals(X, np.ones(20), np.zeros(20), np.ones(20))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lon (°E)", "Latitude (°N)")
    assert ax.get_aspect() == pytest.approx(1 / np.cos(np.deg2rad(52.5)), rel=0.1)
    assert lines_of(ax)
    ax = plot.residuals(X, np.ones(20), np.zeros(20), np.ones(20), names=("a", "b"))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")


def projected(epsg, x, y, unit="m", as_data=True):
    """A map in a projected system, which a variable or a coordinate says."""
    pyproj = pytest.importorskip("pyproj")
    coords = {
        name: (name, values, {"standard_name": f"projection_{name}_coordinate", "units": unit})
        for name, values in (("y", y), ("x", x))
    }
    said = {"grid_mapping": "spatial_ref", "units": "m"}
    field = xr.DataArray(np.ones((len(y), len(x))), coords, ("y", "x"), attrs=said)
    maps = xr.Dataset({"thickness_mean": field, "thickness_std": field})
    maps["spatial_ref"] = ((), 0, pyproj.CRS.from_epsg(epsg).to_cf())
    return maps if as_data else maps.set_coords("spatial_ref")


KAP_FARVEL = (-43.9, 59.77)


@pytest.mark.parametrize(("unit", "as_data"), [("m", True), ("km", False)])
def test_projected_maps_get_coastlines_where_their_system_is_said(unit, as_data):
    pyproj = pytest.importorskip("pyproj")
    scale = 1.0 if unit == "m" else 1e3
    side = np.linspace(-3.5e6, 3.5e6, 30) / scale
    maps = projected(3413, side, side - 1e6 / scale, unit, as_data)
    there = pyproj.Transformer.from_crs(4326, 3413, always_xy=True)
    for axes in (plot.maps(maps), plot.posterior_map(maps)):
        for ax in axes:
            coast = np.concatenate(lines_of(ax)) * scale
            for name, (lon, lat) in {"Kap Farvel": KAP_FARVEL, "Reykjanes": (-22.7, 63.8)}.items():
                place = there.transform(lon, lat)
                assert np.hypot(*(coast - place).T).min() < 60e3, name
            assert ax.get_xlim()[1] == pytest.approx(side[-1], rel=0.05)
    assert not any(map(lines_of, plot.maps(maps, coast=False)))
    assert not any(map(lines_of, plot.maps(maps.drop_vars("spatial_ref"))))


def test_coastlines_of_a_projected_globe_are_cut_where_it_is():
    maps = projected(8857, np.linspace(-17.2e6, 17.2e6, 40), np.linspace(-8.3e6, 8.3e6, 20))
    (ax, _) = plot.maps(maps)
    lines = lines_of(ax)
    assert len(lines) > 50
    assert max(np.abs(np.diff(line, axis=0)).max() for line in lines) < 2e6


def test_maps_without_a_known_place_have_no_coastlines(monkeypatch):
    side = np.linspace(0, 1e5, 5)
    maps = projected(25832, side + 5e5, side + 6.1e6)
    (ax, _) = plot.maps(maps)
    assert lines_of(ax)
    no_text = maps.assign(spatial_ref=((), 0, {"crs_wkt": "LOCAL_CS['none']"}))
    assert not any(map(lines_of, plot.maps(no_text)))
    feet = maps.assign_coords({name: maps[name].assign_attrs(units="ft") for name in "xy"})
    assert not any(map(lines_of, plot.maps(feet)))
    monkeypatch.setitem(sys.modules, "pyproj", None)
    assert not any(map(lines_of, plot.maps(maps)))


def test_places_that_the_caller_calls_longitude_and_latitude_are_on_the_globe():
    X = np.random.default_rng(0).uniform((-10, 45), (10, 60), (40, 2))
    for names in (("lon", "lat"), ("longitude (°)", "latitude (°)")):
        (ax,) = plot.maps(X, {"a": X[:, 0]}, names=names)
        assert lines_of(ax)
        assert (ax.get_xlabel(), ax.get_ylabel()) == names
    for names in (("lon", "lat"), ("lat", "lon")):  # metres, and the other way round
        (ax,) = plot.maps(X * 1e4 if names[0] == "lon" else X, {"a": X[:, 0]}, names=names)
        assert lines_of(ax) == []


def test_spread_checks_and_hyperparameters_of_places_are_maps_with_coasts(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"lat": rng.uniform(45, 60, 300), "lon": rng.uniform(-10, 10, 300)})
    (ax,) = plot.spread(X.values, 1 + rng.uniform(size=300), names=("lat", "lon"))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("lon (°E)", "lat (°N)")
    assert lines_of(ax)
    assert bars([ax]) == ["standard deviation"]
    model = daskgp.VecchiaGP(varying=3, max_iter=2, progress=False).fit(X, np.sin(X.lon))
    axes = plot.hyperparameter_map(model.hyperparameter_map_)
    assert all(lines_of(ax) for ax in axes)
    assert axes[-1].get_xlabel() == "lon (°E)"
    assert not any(map(lines_of, plot.hyperparameter_map(model.hyperparameter_map_, coast=False)))
    grid = model.hyperparameter_map(
        xr.Dataset(coords={"lat": np.linspace(46, 59, 5), "lon": np.linspace(-9, 9, 4)})
    )
    assert all(lines_of(ax) for ax in plot.hyperparameter_map(grid))


def test_maps_of_a_prediction_have_their_own_scales_units_and_titles():
    mean, std = pair()
    levels = xr.concat([mean - std, mean + std], xr.Variable("quantile", [0.1, 0.9]))
    stored = xr.Dataset({"std": std, "crs": 0, "mean": mean, "variance": std**2})
    stored["quantiles"], stored["exceedance"] = levels, mean / 1e4
    stored["samples"] = xr.concat([mean, mean], "sample").transpose(..., "sample")
    for name in ("std", "mean", "variance", "quantiles", "samples"):
        words = f"posterior {name} of a new observation of temperature"
        unit = "(K)2" if name == "variance" else "K"
        stored[name].attrs = {"long_name": words, "units": unit}
    stored["exceedance"].attrs = {"threshold": 300.0, "units": "1"}
    axes = plot.maps(stored)
    assert {ax.get_title(): bar for ax, bar in zip(axes, bars(axes), strict=True)} == {
        "mean": "temperature (K)",
        "standard deviation": "a new observation of temperature (K)",
        "variance": "a new observation of temperature (K²)",
        "quantile 0.1": "temperature (K)",
        "quantile 0.9": "temperature (K)",
        "probability above 300": "probability",
        "sample 1": "temperature (K)",
        "sample 2": "temperature (K)",
    }
    limits = [mesh(ax).get_clim() for ax in axes[:3]]
    assert limits[0] == pytest.approx(np.percentile(mean, (1, 99)))
    assert limits[1] == pytest.approx(np.percentile(std, (0, 99)))
    assert limits[2] == pytest.approx(np.percentile(std**2, (0, 99)))
    colours = [mesh(ax).get_cmap().name for ax in axes[:4]]
    assert colours[0] == colours[3] != colours[1] == colours[2]
    assert [ax.get_subplotspec().colspan.start for ax in axes[:4]] == [0, 1, 2, 0]
    with pytest.raises(InputError, match=r"25 panels are more than the 24 of a figure"):
        plot.maps({str(i): mean for i in range(25)})


def test_maps_of_several_targets_name_them():
    mean, _ = pair()
    both = xr.concat([mean, mean + 1], xr.Variable("target", ["ice", "snow"])).rename("mean")
    axes = plot.maps(both.to_dataset())
    assert [ax.get_title() for ax in axes] == ["ice mean", "snow mean"]
    assert bars(axes) == ["ice (K)", "snow (K)"]


def test_bars_are_as_high_as_their_maps():
    axes = plot.maps(dict(zip(("mean", "std"), pair(), strict=True)))
    fig = axes[0].figure
    fig.canvas.draw()
    heights = np.array([ax.get_window_extent().height for ax in fig.axes])
    heights[2:] *= 1.1, 1.05  # two arrows and one, of 5 % each
    assert heights == pytest.approx(np.full(4, heights[0]), rel=0.01)


def test_residuals_are_in_standard_deviations_and_the_largest_on_top():
    X = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 1.0]])
    y, mean, std = np.array([5.0, 1.0, 1.5]), np.zeros(3), np.array([1.0, 2.0, 0.5])
    ax = plot.residuals(X, da.from_array(y), mean, std, names=("a", "b"), title="t")
    dots = ax.collections[0]
    np.testing.assert_allclose(dots.get_array(), [0.5, 3.0, 5.0])
    np.testing.assert_allclose(dots.get_offsets(), X[[1, 2, 0]])
    assert dots.get_clim() == (-3, 3)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("a", "b", "t")
    assert bars([ax]) == ["(y - mean) / standard deviation"]
    with pytest.raises(InputError, match="y holds no finite value"):
        plot.residuals(X, y * np.nan, mean, std)
    with pytest.raises(InputError, match="residuals need y, mean= and std="):
        plot.residuals(X, y, mean)


def test_residuals_of_many_rows_are_those_of_every_kth(monkeypatch):
    monkeypatch.setattr(plot.fields, "MOST_ROWS", 10)
    rng = np.random.default_rng(0)
    X, y = da.from_array(rng.normal(size=(25, 2)), chunks=10), rng.normal(size=25)
    dots = plot.residuals(X, y, np.zeros(25), np.ones(25)).collections[0]
    np.testing.assert_allclose(sorted(dots.get_array()), sorted(y[::3]))


def test_residuals_of_a_grid_lie_on_it():
    mean, std = pair()
    y = (mean + 2 * std).rename("temperature")
    ax = plot.residuals(y=y, mean=mean, std=std)
    assert ax.get_xlabel() == "lon (°E)"
    np.testing.assert_allclose(mesh(ax).get_array(), 2.0)


def test_calibration_takes_labelled_and_lazy_arrays():
    rng = np.random.default_rng(0)
    y, std = rng.normal(size=(60, 40)), rng.uniform(0.5, 2, (60, 40))
    wanted = plot.calibration(y.ravel(), np.zeros(2400), std.ravel() ** 2).lines[1].get_ydata()
    lazily = xr.DataArray(da.from_array(y, chunks=20), dims=("a", "b"))
    mean, variance = lazily * 0, xr.DataArray(std.T**2, dims=("b", "a"))
    for rows in (
        (lazily, mean, variance),
        (lazily.data, da.zeros((60, 40), chunks=30), std**2),
        (y, mean, variance),
    ):
        drawn = plot.calibration(*rows).lines[1]
        np.testing.assert_allclose(drawn.get_ydata(), wanted)


def test_maps_of_interpolate_are_drawn_as_they_are():
    axes = {"lat": np.arange(3.0), "lon": np.arange(4.0)}
    fields = {
        "sst": (("lat", "lon"), np.ones((3, 4)), {"units": "K", "long_name": "sea surface"}),
        "sst_std": (
            ("lat", "lon"),
            np.ones((3, 4)),
            {"units": "K", "long_name": "standard deviation of sea surface"},
        ),
    }
    found = xr.Dataset(fields, axes)
    titles = [ax.get_title() for ax in plot.maps(found[["sst_std", "sst"]])]
    assert titles == ["sst", "sst standard deviation"]
    drawn = plot.posterior_map(found)
    bars = {ax.get_ylabel() for ax in drawn[0].figure.axes if ax not in drawn}
    assert bars == {"sea surface (K)"}
    found.sst_std.attrs["long_name"] = "standard deviation of a new observation of sea surface"
    drawn = plot.posterior_map(found)
    bars = {ax.get_ylabel() for ax in drawn[0].figure.axes if ax not in drawn}
    assert bars == {"sea surface (K)", "a new observation of sea surface (K)"}
