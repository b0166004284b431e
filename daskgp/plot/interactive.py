"""Interactive maps: zoom, pan and values under the pointer, by HoloViews, Datashader and Bokeh."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from daskgp.data.stores import objects
from daskgp.errors import InputError
from daskgp.plot import places
from daskgp.plot.canvas import Path
from daskgp.plot.coasts import coastlines
from daskgp.plot.fields import FIELD_COLOURS, STD_COLOURS, range_of
from daskgp.plot.places import Places

if TYPE_CHECKING:
    from holoviews import Layout

SIZE = 520
"""Pixels of the longer side of a panel."""
SIDE = 700
"""Most pixels along a side of an image in a file, which nothing draws anew."""
LOOKED_AT = 200
"""Points along a side that tell the range of the colours."""
EVEN = 1e-6
"""Relative differences of the steps of an axis below which they are the same."""


def explore(maps: Any, *, title: str = "", path: Path | None = None) -> Layout:
    """Return an interactive map of predictions on a grid, one panel each of mean, spread and so on.

    Panels move and zoom together, and the pointer shows coordinates and values.  What is lazy stays
    so: a view reads and averages the cells that it shows, so that maps of 10^7 cells open at once
    and zoom to their cells, in a notebook or under ``panel serve``.

    Parameters
    ----------
    maps : Dataset or mapping of str to DataArray
        As for ``plot.maps``: each target, quantile and sample has a panel.
    title : str
        Title of the page and of the whole map.
    path : path, optional
        File of HTML to write: one page that needs no network and no server, whose images have at
        most 700 pixels along a side.

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
    fields = places.panels_of(maps)
    if not fields:
        raise InputError("maps has no variable of two dimensions: give predictions on a grid")
    if "bokeh" not in hv.Store.renderers:
        hv.extension("bokeh", logo=False)
    panels = [_panel(title, field, path is not None) for title, field in fields.items()]
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


def _panel(title: str, field: Any, fixed: bool) -> Any:
    """Return the image of a field, whose pixels are fixed in a file, with coastlines."""
    import holoviews as hv
    from holoviews.operation.datashader import rasterize

    field = field.squeeze(drop=True)
    if field.ndim != 2:
        raise InputError(
            f"{title!r} has dimensions {dict(field.sizes)}: a map has two, choose one of the "
            "others with isel or sel"
        )
    where, sides = _places(field)
    what, spread = places.described(field) or title, places.is_spread(title)
    even = where.x.ndim == 1 and all(_is_even(axis) for axis in (where.x, where.y))
    kind = hv.Image if even else hv.QuadMesh
    image = kind(field.rename("value").astype(np.float32), sides, hv.Dimension("value", label=what))
    pixels = {"width": min(field.shape[1], SIDE), "height": min(field.shape[0], SIDE)}
    drawn = rasterize(
        image, aggregator="mean", dynamic=not fixed, **(pixels if fixed else {})
    ).opts(
        cmap=STD_COLOURS if spread else FIELD_COLOURS,
        clim=_limits(title, field, spread),
        colorbar=True,
        clabel=what,
        title=title,
        tools=["hover"],
        bgcolor="#d9d9d9",
        **_shape(where),
    )
    if not where.geographic:
        return drawn
    frame = {"xlim": _ends(where.x), "ylim": _ends(where.y)}
    lines = coastlines(frame["xlim"], frame["ylim"], max(where.extent))
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
    where = Places(first.values, second.values, units=(units[0], units[1]), renamed=False)
    named = zip(axes, units, strict=True)
    return where, [
        hv.Dimension(str(axis.name), label=places.name_of(axis), unit=unit or None)
        for axis, unit in named
    ]


def _limits(title: str, field: Any, spread: bool) -> tuple[float, float]:
    """Return the ends of the colours, by some points of a field."""
    some = field.isel({d: slice(None, None, -(-n // LOOKED_AT)) for d, n in field.sizes.items()})
    values = np.ravel(some.values).astype(np.float64)
    if not np.isfinite(values).any():
        raise InputError(f"{title!r} holds no finite value to draw")
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
    try:
        objects.replace(os.fspath(path), page.getvalue())
    except OSError as error:
        raise InputError(f"cannot write the map {os.fspath(path)}: {error}") from error
