"""Promises of interactive maps: whole pages, cells on zoom, and plain lines; in a real browser."""

import socket
import sys

import numpy as np
import pytest
import xarray as xr

import daskgp
from daskgp.errors import InputError
from tests.browser import opened

pytest.importorskip("holoviews")
FIGURE = "const plot = [...Bokeh.documents[0]._all_models.values()].find(m => m.type == 'Figure');"
IMAGES = (
    "[...Bokeh.documents[0]._all_models.values()].filter(m => m.type == 'Figure')"
    ".flatMap(f => f.renderers.filter(r => r.glyph.type == 'Image'))"
    ".map(r => [r.data_source.data.dw[0], r.data_source.data.image[0].shape[1]])"
)


def grid(rows=60, columns=80, chunks=None):
    """A map in longitude and latitude, of which one corner is not known."""
    lon, lat = np.linspace(0, 20, columns), np.linspace(60, 45, rows)
    f = np.sin(lon)[None] * np.cos(lat)[:, None]
    f[:5, :5] = np.nan
    axes = {
        "lat": ("lat", lat, {"units": "degrees_north"}),
        "lon": ("lon", lon, {"units": "degrees_east"}),
    }
    of = {"units": "degC"}
    fields = {
        "temperature": (("lat", "lon"), 10 + f, of),
        "temperature_std": (("lat", "lon"), 0.5 + 0.4 * np.abs(f), of),
    }
    maps = xr.Dataset(fields, axes)
    return maps.chunk(chunks) if chunks else maps


def test_a_page_shows_mean_and_spread_without_a_network(tmp_path):
    pytest.importorskip("PyQt6.QtWebEngineCore")
    path = tmp_path / "map.html"
    daskgp.plot.explore(grid(), title="Temperatures", path=path)
    assert path.stat().st_size < 10 * 2**20
    seen = opened(path.as_uri(), "document.title", IMAGES)
    assert seen["loaded"]
    title, images = seen["returned"]
    assert title == "Temperatures"
    assert [pixels for _, pixels in images] == [80, 80]
    assert seen["outside"] == []
    assert not [line for line in seen["console"] if line.startswith("Error")]
    assert seen["colours"] > 200


@pytest.mark.slow
def test_a_view_that_zooms_in_reads_its_cells_anew():
    pytest.importorskip("PyQt6.QtWebEngineCore")
    panel = pytest.importorskip("panel")
    layout = daskgp.plot.explore(grid(1200, 1600, {"lat": 300, "lon": 400}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pages = {"map": lambda: panel.pane.HoloViews(layout)}
    server = panel.serve(pages, port=port, threaded=True, show=False)
    zoom = (
        f"{FIGURE} plot.x_range.setv({{start: 5, end: 6}});"
        "Bokeh.index.find_one(plot).trigger_ranges_update_event(); 0"
    )
    try:
        seen = opened(f"http://localhost:{port}/map", IMAGES, zoom, IMAGES, wait=8.0)
    finally:
        server.stop()
    before, _, after = seen["returned"]
    assert before[0][0] == pytest.approx(20, abs=1.0)
    assert after[0][0] == pytest.approx(1.0, abs=0.2)
    assert after[0][1] == pytest.approx(80, abs=8)  # the cells of a degree


def test_uneven_axes_and_single_fields_are_drawn():
    maps = grid().isel(lat=np.r_[0:20, 25:60])
    layout = daskgp.plot.explore({"height": maps.temperature.rename(lat="b", lon="a")})
    assert len(layout) == 1


def test_what_is_lazy_stays_so():
    maps, read = grid(600, 800, {"lat": 100, "lon": 100}), []

    def noted(block):
        read.append(block.shape)
        return block

    lazy = maps.assign({n: maps[n].copy(data=maps[n].data.map_blocks(noted)) for n in maps})
    read.clear()  # of what dask looks at
    daskgp.plot.explore(lazy)
    assert len(read) <= 2 * 48  # each block once, for the range of the colours


@pytest.mark.parametrize(
    ("maps", "says"),
    [
        (np.ones((3, 4)), "maps is a ndarray"),
        (xr.Dataset({"f": ("x", np.ones(3))}), "no variable of two dimensions"),
        (grid().expand_dims(time=2), "has dimensions .*choose one of the others"),
        (grid() * np.nan, "no finite value"),
    ],
    ids=["array", "line", "cube", "nothing"],
)
def test_what_is_no_map_is_refused(maps, says):
    with pytest.raises(InputError, match=says):
        daskgp.plot.explore(maps)


def test_missing_libraries_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datashader", None)
    with pytest.raises(InputError, match=r"need datashader: pip install 'daskgp\[interactive\]'"):
        daskgp.plot.explore(grid())


def test_a_page_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="cannot write the map"):
        daskgp.plot.explore(grid(), path=tmp_path / "taken")
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]
