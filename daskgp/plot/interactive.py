"""Interactive maps: zoom, pan and values under the pointer, by HoloViews, Datashader and Bokeh."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from daskgp.data import crs, grids
from daskgp.data.stores import objects
from daskgp.errors import InputError
from daskgp.plot import places
from daskgp.plot.coasts import Coast, lines_given, lines_on
from daskgp.plot.fields import FIELD_COLOURS, STD_COLOURS, range_of
from daskgp.plot.places import Places
from daskgp.typing import Path

if TYPE_CHECKING:
    from holoviews import Layout

SIZE = 520
"""Pixels of the longer side of a panel."""
VALUES = 1_450_000
"""Values of all images in a file, which nothing draws anew: 7.7 MB."""
TOGETHER = 3
"""Most panels of which the pointer shows all values."""
LOOKED_AT = 200
"""Points along a side that tell the range of the colours."""
EVEN = 1e-6
"""Relative differences of the steps of an axis below which they are the same."""


def explore(maps: Any, *, title: str = "", coast: Coast = True, path: Path | None = None) -> Layout:
    """Return an interactive map of predictions on a grid, one panel each of mean, spread and so on.

    Panels move and zoom together, and the pointer shows coordinates and values, of mean and spread
    together where there are up to three panels on one grid with even steps.  What is lazy stays
    so: a view reads and averages the cells that it shows, so that maps of 10^7 cells open at once
    and zoom to their cells, in a notebook or under ``panel serve``.

    Parameters
    ----------
    maps : Dataset or mapping of str to DataArray
        As for ``plot.maps``: each target, quantile and sample has a panel.
    title : str
        Title of the page and of the whole map.
    coast : bool, path, or sequence of arrays of shape (k, 2) or of geometries
        As for ``plot.maps``.
    path : path, optional
        File of HTML to write: one page of up to 10 MB that needs no network and no server.  Each of
        its pixels is the mean of k by k cells if there are too many of these, as titles then say.

    Returns
    -------
    holoviews.Layout

    Raises
    ------
    InputError
        If there is nothing to draw, a map has other than two dimensions, the file cannot be
        written, or the libraries are missing.

    Examples
    --------
    >>> import numpy as np, xarray as xr, daskgp
    >>> side = {"x": np.arange(5.0), "y": np.arange(4.0)}
    >>> mean = xr.DataArray(np.ones((4, 5)), coords=side, dims=("y", "x"), name="height_mean")
    >>> len(daskgp.plot.explore({"mean": mean, "half": mean / 2}))
    2
    """
    check_libraries()
    import holoviews as hv

    if not isinstance(maps, Mapping):
        kind = type(maps).__name__
        raise InputError(f"maps is a {kind}: give a Dataset of predictions, or DataArrays by title")
    shores = lines_given(coast)
    fields = {name: _field(name, field) for name, field in places.panels_of(maps).items()}
    if not fields:
        raise InputError("maps has no variable of two dimensions: give predictions on a grid")
    if "bokeh" not in hv.Store.renderers:
        hv.extension("bokeh", logo=False)
    joint = len(fields) <= TOGETHER and _on_one_grid(list(fields.values()))
    images = len(fields) * (len(fields) if joint else 1)
    panels = []
    for name, field in fields.items():
        others = {n: f for n, f in fields.items() if joint and n != name}
        cells = 0 if path is None else math.ceil(math.sqrt(field.size * images / VALUES))
        panels.append(_panel({name: field} | others, shores, cells))
    layout = hv.Layout(panels).cols(2).opts(shared_axes=True, merge_tools=True, title=title)
    if path is not None:
        _write(layout, title, path)
    return layout


def check_libraries() -> None:
    """Raise InputError if a library of interactive maps is missing."""
    try:
        import bokeh  # noqa: F401
        import datashader  # noqa: F401
        import holoviews  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"interactive maps need {error.name}: pip install 'daskgp[interactive]'"
        ) from error


def _field(title: str, field: Any) -> Any:
    """Return a field of two dimensions, in single precision."""
    field = field.squeeze(drop=True)
    if field.ndim != 2:
        raise InputError(
            f"{title!r} has dimensions {dict(field.sizes)}: a map has two, choose one of the "
            "others with isel or sel"
        )
    return field.astype(np.float32)


def _on_one_grid(fields: list[Any]) -> bool:
    """Return whether fields have the same axes, with even steps."""
    x, y = places.axes_of(fields[0])
    same = all(
        field.dims == fields[0].dims and all(field[d].equals(fields[0][d]) for d in field.dims)
        for field in fields
    )
    return same and x.ndim == 1 and _is_even(x.values) and _is_even(y.values)


def _panel(fields: Mapping[str, Any], coast: bool | list[np.ndarray], cells: int) -> Any:
    """Return the image of the first field, with coastlines and the values of the others.

    In a file it has a pixel for so many ``cells`` along each side; otherwise it is drawn anew for
    each view (0).
    """
    import holoviews as hv
    from holoviews.operation.datashader import rasterize

    title, field = next(iter(fields.items()))
    where, sides = _places(field)
    what, spread = places.described(field) or title, places.is_spread(title)
    even = where.x.ndim == 1 and all(_is_even(axis) for axis in (where.x, where.y))
    kind = hv.Image if even else hv.QuadMesh
    shown = {f"v{i}": one.drop_attrs() for i, one in enumerate(fields.values())}
    values = [
        hv.Dimension(key, label=name, unit=places.unit_of(one) or None)
        for key, (name, one) in zip(shown, fields.items(), strict=True)
    ]
    image = kind(next(iter(shown.values())).to_dataset(name="v0").assign(shown), sides, values)
    pixels = {}
    if cells:
        x, y = places.axes_of(field)
        size = y.shape if y.ndim == 2 else (y.size, x.size)
        pixels = {"width": math.ceil(size[1] / cells), "height": math.ceil(size[0] / cells)}
    drawn = rasterize(image, aggregator="mean", dynamic=not cells, **pixels).opts(
        cmap=STD_COLOURS if spread else FIELD_COLOURS,
        clim=_limits(title, field, spread),
        colorbar=True,
        clabel=what,
        title=title + (f" (means of {cells} × {cells} cells)" if cells > 1 else ""),
        tools=["hover"],
        bgcolor="#d9d9d9",
        **_shape(where),
        **_numbered(where),
    )
    frame = {"xlim": _ends(where.x), "ylim": _ends(where.y)}
    lines = lines_on(where, frame["xlim"], frame["ylim"], coast)
    if not lines:
        return drawn
    colour = "#999999" if spread else "black"
    return (drawn * hv.Path(lines, sides).opts(color=colour, line_width=0.8)).opts(**frame)


def _shape(where: Places) -> dict[str, Any]:
    """Return the size of a panel, true on the ground where its axes have one unit."""
    if where.aspect is None:
        return {"frame_width": SIZE, "frame_height": 3 * SIZE // 4}
    width, height = where.extent
    longest = "frame_height" if where.aspect * height > width else "frame_width"
    return {longest: SIZE, "data_aspect": where.aspect}


def _places(field: Any) -> tuple[Places, list[Any]]:
    """Return the places of a field, and its axes as HoloViews has them."""
    import holoviews as hv

    axes = places.axes_of(field)
    (first, second), units = axes, [places.unit_of(axis) for axis in axes]
    where = Places(
        first.values,
        second.values,
        names=(places.name_of(first), places.name_of(second)),
        units=(units[0], units[1]),
        renamed=False,
        crs=crs.wkt_of(grids.reference_of(field)[1]),
    )
    named = zip(axes, units, strict=True)
    return where, [
        hv.Dimension(str(axis.name), label=places.name_of(axis), unit=unit or None)
        for axis, unit in named
    ]


def _numbered(where: Places) -> dict[str, Any]:
    """Return what numbers axes in metres in km, where these are many."""
    from bokeh.models import CustomJSTickFormatter

    options: dict[str, Any] = {}
    for i, axis in enumerate("xy"):
        if where.in_km(i):
            options[f"{axis}formatter"] = CustomJSTickFormatter(code="return `${tick / 1000}`")
            options[f"{axis}label"] = where.label(i)
    return options


def _limits(title: str, field: Any, spread: bool) -> tuple[float, float]:
    """Return the ends of the colours, by some points of a field."""
    some = field.isel({d: slice(None, None, -(-n // LOOKED_AT)) for d, n in field.sizes.items()})
    values = np.ravel(some.values).astype(np.float64)
    if not np.isfinite(values).any():
        raise InputError(f"{title!r} holds no finite value to draw: give a field that has some")
    return range_of(values, 0 if spread else 1, 99)


def _is_even(values: np.ndarray) -> bool:
    """Return whether the steps of an axis are the same."""
    steps = np.diff(values)
    if not len(steps) or steps.dtype.kind == "m":
        return bool(len(steps) and (steps == steps[0]).all())
    return bool(np.abs(steps - steps.mean()).max() <= EVEN * abs(steps.mean()))


def _ends(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _write(layout: Any, title: str, path: Path) -> None:
    """Write a page that holds all that it shows; a file that is there is replaced whole."""
    import holoviews as hv
    from bokeh.resources import INLINE

    page = io.BytesIO()
    hv.save(layout, page, fmt="html", backend="bokeh", resources=INLINE, title=title or "Map")
    text = re.sub(rb'<link[^>]*href="http[^>]*>', b"", page.getvalue())  # icons
    try:
        objects.replace(os.fspath(path), text)
    except OSError as error:
        raise InputError(f"cannot write the map {os.fspath(path)}: {error}") from error
