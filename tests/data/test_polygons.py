"""Masks that are polygons of a GeoJSON file, in conversions, fits and maps."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import daskgp
from daskgp.data.polygons import crossing, inside, polygons_in
from daskgp.errors import InputError
from tests.commands import refused, succeed

LON, LAT = np.linspace(0.0, 8.0, 9), np.linspace(40.0, 46.0, 7)
BOX = (1.5, 40.5, 5.5, 44.5)


@pytest.fixture
def shape(tmp_path):
    west, south, east, north = BOX
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    path = tmp_path / "box.geojson"
    path.write_text(json.dumps({"type": "MultiPolygon", "coordinates": [[ring]]}))
    return str(path)


def within(lon, lat):
    west, south, east, north = BOX
    return (lon > west) & (lon < east) & (lat > south) & (lat < north)


def rows(n=80):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"lon": rng.uniform(0, 8, n), "lat": rng.uniform(40, 46, n)})
    return table.assign(y=np.sin(table.lon) + table.lat / 10)


def grid():
    return xr.Dataset(coords={"lat": ("lat", LAT), "lon": ("lon", LON)})


def test_rows_of_a_table_outside_are_left_out(shape, tmp_path):
    table, store = rows(), str(tmp_path / "rows.zarr")
    done = daskgp.convert(table, store, target="y", mask=shape)
    kept = within(table.lon, table.lat)
    assert (done.rows, done.skipped) == (kept.sum(), (~kept).sum())
    np.testing.assert_array_equal(daskgp.open_dataset(store)[1], table.y[kept])
    daskgp.convert(table, store, append=True)
    assert len(daskgp.open_dataset(store)[1]) == 2 * kept.sum()


def test_a_fit_takes_what_lies_inside(shape):
    table = rows()
    model = daskgp.ExactGP(optimizer=None, progress=False).fit(table, "y", mask=shape)
    inner = table[within(table.lon, table.lat)]
    alone = daskgp.ExactGP(optimizer=None, progress=False).fit(inner, "y")
    np.testing.assert_array_equal(model.predict(grid()), alone.predict(grid()))


def test_cells_of_a_map_outside_are_left_out(shape, tmp_path):
    model = daskgp.ExactGP(optimizer=None, progress=False).fit(rows(), "y")
    grid().to_netcdf(tmp_path / "grid.nc", engine="scipy")
    wanted = model.predict(grid())
    for source in (grid(), str(tmp_path / "grid.nc")):
        out = str(tmp_path / f"map-{isinstance(source, str)}.zarr")
        model.predict_store(source, out, mask=shape)
        assert model.predict_store(source, out, mask=shape, resume=True).rows == 0
        with xr.open_zarr(out, consolidated=False) as maps:
            mean, kept = maps["mean"], within(maps.lon, maps.lat)
            np.testing.assert_array_equal(mean.notnull(), kept.transpose(*mean.dims))
            np.testing.assert_allclose(mean, wanted.where(kept).transpose(*mean.dims))


def test_commands_take_polygons(shape, tmp_path):
    rows().to_csv(tmp_path / "rows.csv", index=False)
    model, out = tmp_path / "m.zarr", tmp_path / "map.zarr"
    how = ("--model", "exact", "--set", "optimizer=none", "--mask", shape)
    fitted = succeed("fit", tmp_path / "rows.csv", model, "--target", "y", *how)
    assert fitted["rows"] == within(rows().lon, rows().lat).sum()
    steps = ("--resolution", "lon=1,lat=1", "--extent", "lon=0:8,lat=40:46")
    succeed("predict", model, out, *steps, "--mask", shape)
    with xr.open_zarr(out, consolidated=False) as maps:
        assert int(maps["mean"].notnull().sum()) == 16
    line = refused("fit", tmp_path / "rows.csv", tmp_path / "n.zarr", "--target", "y", "--mask",
                   tmp_path / "no.geojson")  # fmt: skip
    assert "does not exist: check the path" in line


def test_what_polygons_cannot_mask_is_told(shape, tmp_path):
    far = rows().assign(lon=lambda table: table.lon + 50)
    with pytest.raises(InputError, match="masked"):
        daskgp.convert(far, str(tmp_path / "a.zarr"), target="y", mask=shape)
    named = rows().rename(columns={"lon": "u"})
    with pytest.raises(InputError, match="not clear which features they are over"):
        daskgp.convert(named, str(tmp_path / "b.zarr"), target="y", mask=shape)
    (tmp_path / "cut.geojson").write_text('{"type": "Polygon", "coordinates": [[[0, 0], [1')
    with pytest.raises(InputError, match=r"cut\.geojson: it is not GeoJSON"):
        daskgp.convert(
            rows(), str(tmp_path / "c.zarr"), target="y", mask=str(tmp_path / "cut.geojson")
        )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 12))
def test_insides_are_where_a_ray_crosses_an_odd_number_of_edges(seed, corners):
    rng = np.random.default_rng(seed)
    ring = rng.integers(0, 5, (corners, 2)).astype(float)
    ring = np.vstack([ring, ring[:1]])
    x, y = rng.uniform(-1, 6, (2, 60))
    (x0, y0), (x1, y1) = ring[:-1].T[:, None], ring[1:].T[:, None]
    x0, y0, x1, y1 = (np.squeeze(one) for one in (x0, y0, x1, y1))
    with np.errstate(divide="ignore", invalid="ignore"):
        at = x0 + (x1 - x0) * (y[:, None] - y0) / (y1 - y0)
    crossed = ((y0 > y[:, None]) != (y1 > y[:, None])) & (x[:, None] < at)
    np.testing.assert_array_equal(inside((ring,), x, y), crossed.sum(axis=1) % 2 == 1)


def test_polygons_that_overlap_are_united(tmp_path):
    def square(west, east):
        return [[west, 0], [east, 0], [east, 4], [west, 4], [west, 0]]

    hole = [[1, 1], [2, 1], [2, 2], [1, 2], [1, 1]]
    shapes = [[square(0, 6), hole], [square(4, 10)]]
    path = tmp_path / "two.geojson"
    each = [{"type": "Polygon", "coordinates": rings} for rings in shapes]
    x, y = np.array([1.5, 3.0, 5.0, 8.0, 11.0]), np.full(5, 1.5)
    for said in (
        {"type": "MultiPolygon", "coordinates": shapes},
        {"type": "GeometryCollection", "geometries": each},
    ):
        path.write_text(json.dumps(said))
        found = polygons_in(str(path), ("x", "y")).hold(x, y)
        np.testing.assert_array_equal(found, [False, True, True, True, False])


@pytest.mark.parametrize(("ends", "warns"), [((175, -175), True), ((-180, 180), False)])
def test_edges_the_long_way_round_are_said(ends, warns, tmp_path, caplog):
    west, east = ends
    ring = [[west, 0], [east, 0], [east, 4], [west, 4], [west, 0]]
    path = tmp_path / "box.geojson"
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    polygons_in(str(path), ("lon", "lat"))
    assert ("give longitudes from 0 to 360" in caplog.text) == warns
    caplog.clear()
    polygons_in(str(path), ("x", "y"))
    assert not caplog.text


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**16), corners=st.sampled_from([4, 5, 7, 900]))
def test_polygons_that_cross_themselves_are_those_that_shapely_calls_invalid(seed, corners):
    shapely = pytest.importorskip("shapely")
    rng = np.random.default_rng(seed)
    ring = rng.uniform(0, 1, (corners, 2))
    if corners > 100:  # a coast, which mostly does not cross itself
        turn = np.linspace(0, 2 * np.pi, corners, endpoint=False)
        away = 10 + rng.normal(0, 0.01, corners).cumsum()
        ring = away[:, None] * np.column_stack([np.cos(turn), np.sin(turn)])
    ring = np.concatenate([ring, ring[:1]])
    assert (crossing((ring,)) is None) == shapely.Polygon(ring).is_valid


def test_polygons_that_cross_themselves_are_told(caplog):
    bow = {"type": "Polygon", "coordinates": [[[0, 0], [4, 4], [4, 0], [0, 4], [0, 0]]]}
    polygons_in(bow, ("x", "y"))
    (line,) = caplog.messages
    assert line.startswith("polygon 1 of mask crosses itself near (2, 2), so that parts of it may")
    assert line.endswith("make_valid of shapely")
    caplog.clear()
    hole = [[0, 2], [1, 1], [2, 2], [1, 3], [0, 2]]  # which touches the ring around it
    square = {"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], hole]}
    polygons_in(square, ("x", "y"))
    assert caplog.messages == []


SQUARE = [[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]
AROUND = [[2, 0], [3, 2], [2, 4], [3, 6], [6, 2], [3, -2], [2, 0]]


@pytest.mark.parametrize("corners", [1, 200])
@pytest.mark.parametrize(
    ("rings", "crosses"),
    [
        ([[[0, 0], [2, 2], [4, 4], [4, 0], [2, 2], [0, 4], [0, 0]]], True),
        ([[[0, 0], [2, 2], [4, 0], [4, 4], [2, 2], [0, 4], [0, 0]]], False),
        ([SQUARE, AROUND], True),  # at corners of one ring on edges of the other
        ([[[0, 0], [2, 0], [4, 0], [4, 4], [2, 4], [0, 4], [0, 0]], AROUND], True),
        ([SQUARE, [[2, 0], [3, 1], [1, 1], [2, 0]]], False),
        ([SQUARE, [[1, 0], [3, 0], [2, 1], [1, 0]]], False),  # along a part of an edge
        ([[*SQUARE[:3], [2, 4], [2, 6], [2, 4], *SQUARE[3:]]], False),  # out and back again
        ([[*SQUARE, *SQUARE[::-1]]], False),
    ],
)
def test_rings_that_meet_at_a_corner_cross_there_or_touch(rings, crosses, corners):
    for turn in (np.eye(2), np.array([[0.6, 0.8], [-0.8, 0.6]]), np.diag([1.0, -1.0])):
        finer = []
        for ring in rings:
            ring = np.array(ring, float) @ turn
            parts = np.linspace(ring[:-1], ring[1:], corners, endpoint=False, axis=1)
            finer.append(np.concatenate([parts.reshape(-1, 2), ring[:1]]))
        for order in (1, -1):
            found = crossing(tuple(ring[::order] for ring in finer))
            assert (found is not None) == crosses
