"""Promises of interactive maps: whole pages, cells on zoom, and plain lines; in a real browser."""

import re
import socket
import sys

import numpy as np
import pytest
import xarray as xr

import daskgp
from daskgp import plot
from daskgp.errors import InputError
from tests.browser import opened

hv = pytest.importorskip("holoviews")
FIGURE = "const plot = [...Bokeh.documents[0]._all_models.values()].find(m => m.type == 'Figure');"
UNDER = """(() => { const said = [];
for (const m of Bokeh.documents[0]._all_models.values()) {
  if (m.type != 'Figure') continue;
  const view = Bokeh.index.find_one(m), box = view.frame.bbox;
  const hover = [...view.tool_views.values()].find(t => t.model.type == 'HoverTool');
  hover._inspect(box.left + 0.25 * box.width, box.top + 0.6 * box.height, 'xy');
  for (const [, tip] of hover.ttmodels) said.push(tip.content.textContent);
}
return said; })()"""
TITLES = (
    "[...Bokeh.documents[0]._all_models.values()].filter(m => m.type == 'Title').map(m => m.text)"
)
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
    pytest.importorskip("PyQt6.QtWebEngineCore", exc_type=ImportError)
    path = tmp_path / "map.html"
    daskgp.plot.explore(grid(), title="Temperatures", path=path)
    assert path.stat().st_size < 10 * 2**20
    assert b'<link rel="icon"' not in path.read_bytes()
    seen = opened(path.as_uri(), "document.title", IMAGES)
    assert seen["loaded"]
    title, images = seen["returned"]
    assert title == "Temperatures"
    assert [pixels for _, pixels in images] == [80, 80]
    assert seen["outside"] == []
    assert not [line for line in seen["console"] if line.startswith("Error")]
    assert seen["colours"] > 200


def test_the_pointer_shows_mean_and_spread_of_a_cell_with_their_units(tmp_path):
    pytest.importorskip("PyQt6.QtWebEngineCore", exc_type=ImportError)
    path, maps = tmp_path / "map.html", grid()
    daskgp.plot.explore(maps, path=path)
    (said,) = opened(path.as_uri(), UNDER)["returned"]
    assert len(said) == 2
    for text in said:
        found = dict(re.findall(r"([a-z][a-z ]*\([^)]*\)): (\S+)", text))
        lon, lat, mean, std = (float(value) for value in found.values())
        assert list(found)[:2] == ["lon (°E)", "lat (°N)"]
        assert (lon, lat) == pytest.approx((5.0, 51.0), abs=0.5)
        cell = maps.sel(lon=lon, lat=lat, method="nearest")
        by_name = {"temperature (degC)": mean, "temperature standard deviation (degC)": std}
        if list(found)[2] != "temperature (degC)":  # its own comes first
            by_name = dict(zip(by_name, (std, mean), strict=True))
        assert list(by_name.values()) == pytest.approx(
            [float(cell.temperature), float(cell.temperature_std)], abs=2e-3
        )
        assert set(found) == {"lon (°E)", "lat (°N)", *by_name}


@pytest.mark.slow
def test_a_page_of_many_cells_has_means_of_blocks_and_says_so(tmp_path, monkeypatch):
    pytest.importorskip("PyQt6.QtWebEngineCore", exc_type=ImportError)
    monkeypatch.setattr(plot.interactive, "VALUES", 4 * 300)
    path, maps = tmp_path / "map.html", grid().fillna(0)
    plot.explore(maps, path=path)
    pixels = IMAGES.replace(".shape[1]", "")
    titles, sizes, values = opened(
        path.as_uri(), TITLES, IMAGES, f"{pixels}.map(([, v]) => [...v])"
    )["returned"]
    assert [text for text in titles if text] == [
        "temperature (means of 4 × 4 cells)",
        "temperature standard deviation (means of 4 × 4 cells)",
    ]
    assert [columns for _, columns in sizes] == [20, 20]
    blocks = maps.coarsen(lat=4, lon=4).mean().sortby("lat")
    for name, shown in zip(maps, values, strict=True):
        np.testing.assert_allclose(np.reshape(shown, (15, 20)), blocks[name], atol=1e-5)


def parts_of(layout, kind):
    """The elements of a kind in all panels."""
    drawn = [one[()] for one in layout.traverse(lambda one: one, [hv.DynamicMap])]
    return [part for one in drawn for part in one.traverse(lambda part: part, [kind])]


def test_pages_take_other_coastlines_or_none():
    maps = grid()
    line = np.array([[1.0, 50.0], [2.0, 51.0]])
    for coast, number in ((True, None), (False, 0), ([line], 2 * 3)):
        found = sum(len(one.split()) for one in parts_of(plot.explore(maps, coast=coast), hv.Path))
        assert found == number if number is not None else found > 10
    with pytest.raises(InputError, match="coast=3"):
        plot.explore(maps, coast=3)


def test_maps_on_other_grids_show_their_own_values():
    maps = grid()
    both = {"fine": maps.temperature, "coarse": maps.temperature[::2, ::2]}
    layout = plot.explore(both)
    assert len(layout) == 2
    several = plot.explore({str(i): maps.temperature for i in range(4)})
    for shown, number in ((layout, 1), (several, 1), (plot.explore(maps), 2)):
        images = [one[()] for one in shown.traverse(lambda x: x, [hv.DynamicMap])]
        found = {
            len(one.vdims) for image in images for one in image.traverse(lambda x: x, [hv.Image])
        }
        assert found == {number}


@pytest.mark.slow
def test_a_view_that_zooms_in_reads_its_cells_anew():
    pytest.importorskip("PyQt6.QtWebEngineCore", exc_type=ImportError)
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
