"""Maps of two-dimensional fields."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from daskgp.errors import InputError
from daskgp.plot import places
from daskgp.plot.canvas import (
    ALARM,
    BAR,
    finished,
    finite_values,
    panels_on,
)
from daskgp.plot.coasts import Coast, lines_given, lines_on
from daskgp.plot.places import Places
from daskgp.typing import Path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIELD_COLOURS = "viridis"
STD_COLOURS = "magma"
RESIDUAL_COLOURS = "RdBu_r"
RESIDUALS = 3.0
"""Standard deviations at either end of the colours of residuals."""
MOST_ROWS = 200_000
"""Most rows whose residuals are drawn."""


def posterior_map(
    X: Any = None,
    truth: Any = None,
    mean: Any = None,
    std: Any = None,
    *,
    observed: Any = None,
    names: tuple[str, ...] | None = None,
    label: str = "",
    title: str = "",
    marked: np.ndarray | None = None,
    coast: Coast = True,
    axes: Sequence[Axes] | np.ndarray | None = None,
    path: Path | None = None,
) -> np.ndarray:
    """Plot predictive mean and standard deviation of a field beside the truth and measurements.

    All but the standard deviation share a colour scale, which spans all but the outermost hundredth
    of the values of truth and mean at either end. Points that fill a regular grid are drawn as
    images, others as dots. DataArrays say by themselves where they lie: longitude, and what else CF
    attributes or its name say runs to the right, does so, otherwise the last dimension; the axes
    have the names and units of the coordinates, km for large distances in metres, and a size that
    is true on the ground. Longitude and latitude get coastlines.

    Parameters
    ----------
    X : array, shape (n, 2), or Dataset, optional
        Places, of which the first column runs to the right.  None for DataArrays, or instead of
        them a Dataset with variables named ``mean`` and ``std`` or ``variance``, or so after the
        name of a target, as ``temperature_mean``.
    truth, mean, std : arrays, shape (n,), or DataArrays over the two dimensions of a grid
        True values (NaN where unknown; None leaves the panel out), predictive means and standard
        deviations.  What is lazy is computed, all at once.  Of the sides of a labelled grid at most
        2,000 evenly spaced points are drawn.
    observed : array, shape (n,), or DataArray, optional
        Measurements at the same places, NaN where there are none; their panel comes first.
    names : pair of str, optional
        Labels of the axes, with units: ``("longitude (°)", "latitude (°)")``; by default those
        of the data, such as the columns of a table X, or x and y.
    label : str
        Name of the field, with units: ``"temperature (°C)"``; by default that of DataArrays.
    title : str
        Title of the whole figure.
    marked : array, shape (m, 2), optional
        Places to mark on the panel of the standard deviation, such as inducing inputs.
    coast : bool, path, or sequence of arrays of shape (k, 2) or of geometries
        Coastlines: those that come with the package, on maps in longitude and latitude (True); none
        (False); or others in the units of the axes: lines, geometries of shapely or geopandas, or
        the path of a GeoJSON file.
    axes : Axes, one per panel, optional
        Where to draw; a new figure by default.
    path : path, optional
        File to save the figure to; its extension gives the format.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, one per panel; four panels of a new figure are in two rows

    Raises
    ------
    InputError
        If a shape does not fit, there is nothing finite to draw, or matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).uniform(size=(50, 2))
    >>> axes = Figure().subplots(1, 2)
    >>> axes = daskgp.plot.posterior_map(X, mean=X[:, 0], std=X[:, 1], axes=axes)
    >>> len(axes)
    2
    """
    if isinstance(X, Mapping):
        X, (mean, std) = None, places.results_of(X)
    shores = lines_given(coast)
    panels = {"observed": observed, "truth": truth, "mean": mean, "standard deviation": std}
    if mean is None or std is None:
        raise InputError(
            "a map of a posterior needs mean= and std=, and X (n, 2) unless they are DataArrays"
        )
    panels = {name: values for name, values in panels.items() if values is not None}
    where, panels, whats = places.placed(X, panels, names)
    what = next(filter(None, whats.values()), "")
    drawn_on = _map_axes(axes, where, len(panels), path)
    columns = len(panels) if axes is not None else _columns(len(panels))
    field = np.concatenate([values for name, values in panels.items() if name in ("truth", "mean")])
    shared = range_of(field, 1, 99)
    first_end = min(columns, len(panels) - 1) - 1
    for i, (ax, (name, values)) in enumerate(zip(drawn_on, panels.items(), strict=True)):
        last = ax is drawn_on[-1]
        limits = range_of(values, 0, 99) if last else shared
        image = _draw(ax, where, values, limits, STD_COLOURS if last else FIELD_COLOURS)
        _dress(ax, where, image, name, shores, i % columns == 0, i >= len(panels) - columns)
        if name in ("mean", "standard deviation"):
            # The end of the first row, so that panels of all rows stay the same size.
            end, beyond = (ax, values) if last else (drawn_on[first_end], field)
            spread = places.described(std) if last and hasattr(std, "dims") else what
            _bar(image, end, beyond, limits, label or spread)
    if marked is not None:
        _mark(drawn_on[-1], marked, size=5, edge=0.3)
    return finished(drawn_on, title, path)


def maps(
    X: Any,
    panels: Mapping[str, Any] | None = None,
    *,
    one_scale: bool = False,
    names: tuple[str, ...] | None = None,
    label: str = "",
    title: str = "",
    below: float | None = None,
    marked: np.ndarray | None = None,
    lines: Sequence[np.ndarray] = (),
    coast: Coast = True,
    axes: Sequence[Axes] | np.ndarray | None = None,
    path: Path | None = None,
) -> np.ndarray:
    """Plot fields over the same places side by side, each on a colour scale of its own.

    Spreads, panels whose title ends in std, variance or standard deviation, have other colours.

    Parameters
    ----------
    X : array, shape (n, 2), or mapping of str to DataArray
        Places; the first column runs to the right.  DataArrays over the two dimensions of a grid
        say by themselves where they lie, as for `posterior_map`: they, or the Dataset of a stored
        map, are given alone, ``maps({"SGPR": mean, "LMA": other})``.  Each target, quantile and
        sample of a prediction has a panel.
    panels : mapping of str to array, shape (n,), optional
        Values by the title of their panel.
    one_scale : bool
        Whether all panels share one colour scale, for comparing values of one kind.
    below : float, optional
        Values below it are drawn in red and excluded from the colour scales; a panel's title gives
        their share.
    marked : array, shape (k, 2), optional
        Places to mark on every panel, such as training inputs.
    lines : sequence of arrays, shape (k, 2)
        Lines to draw on every panel, such as the borders of blocks.
    names, label, title, coast, axes, path
        As in `posterior_map`.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, one per panel

    Raises
    ------
    InputError
        If a shape does not fit, there is nothing to draw, or matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).uniform(size=(50, 2))
    >>> panels = {"SGPR": X[:, 0], "LMA": X[:, 1]}
    >>> axes = daskgp.plot.maps(X, panels, axes=Figure().subplots(1, 2))
    >>> [ax.get_title() for ax in axes]
    ['SGPR', 'LMA']
    """
    if isinstance(X, Mapping) and panels is None:
        X, panels = None, places.panels_of(X)
    if isinstance(X, str | os.PathLike):
        raise InputError(
            f"X is the path {os.fspath(X)}: open it with xarray.open_dataset or open_zarr first, "
            "or draw it by `daskgp map`"
        )
    if not panels:
        raise InputError("panels is empty: give at least one field by its title")
    shores = lines_given(coast)
    where, fields, whats = places.placed(X, panels, names)
    every = np.concatenate(list(fields.values()))
    drawn_on = _map_axes(axes, where, len(fields), path)
    columns = len(fields) if axes is not None else _columns(len(fields))
    for i, (ax, (name, values)) in enumerate(zip(drawn_on, fields.items(), strict=True)):
        spread = not one_scale and places.is_spread(name)
        scaled = every if one_scale else values
        shown = scaled if below is None or not (scaled >= below).any() else scaled[scaled >= below]
        limits = range_of(shown, 0 if one_scale or spread or below is not None else 1, 99)
        image = _draw(ax, where, values, limits, STD_COLOURS if spread else FIELD_COLOURS)
        if not one_scale:
            _bar(image, ax, values, limits, label or whats[name])
        if below is not None:
            image.set_cmap(image.get_cmap().with_extremes(under=ALARM))
            name += f": {np.mean(values < below):.1%} below {below:g}"
        _dress(ax, where, image, name, shores, i % columns == 0, i >= len(fields) - columns)
        frame = ax.axis()
        for line in lines:
            line = places.two_columns("lines", line)
            ax.plot(line[:, 0], line[:, 1], color="white", linewidth=0.8)
        ax.axis(frame)
        if marked is not None:
            _mark(ax, marked, size=6, edge=0.4)
    if one_scale:
        what = next(filter(None, whats.values()), "")
        _bar(image, list(drawn_on), every, limits, label or what)
    return finished(drawn_on, title, path)


def residuals(
    X: Any = None,
    y: Any = None,
    mean: Any = None,
    std: Any = None,
    *,
    names: tuple[str, ...] | None = None,
    title: str = "",
    coast: Coast = True,
    ax: Axes | None = None,
    path: Path | None = None,
) -> Axes:
    """Plot a map of what predictions miss, (y - mean) / std, in standard deviations.

    Of a model that fits, the values have mean 0 and variance 1, and rows that were not trained on
    show no pattern: patches of one colour are structure that it misses, such as a lengthscale that
    is too long, and pale or dark regions are where it is too cautious or too sure.  The colours end
    at three standard deviations; the largest residuals are drawn on top.

    Parameters
    ----------
    X : array, shape (n, 2), optional
        Places of rows; the first column runs to the right.  None for DataArrays.
    y, mean, std : arrays, shape (n,), or DataArrays over the two dimensions of a grid
        Observed values, predictive means, and predictive standard deviations with noise,
        ``model.predict(X, return_std=True, include_noise=True)``.  What is lazy is computed, all at
        once; of more than 200,000 rows every k-th is.
    names, title, coast, path
        As in `posterior_map`.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If a shape does not fit, there is nothing finite to draw, or matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).uniform(size=(50, 2))
    >>> y, mean, std = X[:, 0], np.zeros(50), np.ones(50)
    >>> ax = daskgp.plot.residuals(X, y, mean, std, ax=Figure().subplots())
    >>> ax.get_xlabel()
    'x'
    """
    if y is None or mean is None or std is None:
        raise InputError("residuals need y, mean= and std=, with noise (include_noise=True)")
    shores, known = lines_given(coast), {"y": y, "mean": mean, "std": std}
    if X is not None:
        thin = slice(None, None, -(-max(len(X), 1) // MOST_ROWS))
        X, known = X[thin], {name: values[thin] for name, values in known.items()}
    where, arrays, _ = places.placed(X, known, names)
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = (arrays["y"] - arrays["mean"]) / arrays["std"]
    missed = finite_values("the residual", missed, len(missed))
    if where.shape is None:
        order = np.argsort(np.abs(missed))
        missed = missed[order]
        where = replace(where, x=where.x[order], y=where.y[order])
    ax = _map_axes(None if ax is None else [ax], where, 1, path)[0]
    limits = (-RESIDUALS, RESIDUALS)
    image = _draw(ax, where, missed, limits, RESIDUAL_COLOURS)
    _dress(ax, where, image, "", shores)
    _bar(image, ax, missed, limits, "(y - mean) / standard deviation")
    return finished(ax, title, path)


def range_of(values: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Return percentiles of what is finite, as the ends of colours."""
    bottom, top = np.percentile(values[np.isfinite(values)], (low, high))
    return float(bottom), float(top) if top > bottom else float(bottom) + 1.0


def _bar(
    image: Any, axes: Any, values: np.ndarray, limits: tuple[float, float], label: str
) -> None:
    """Draw a colour bar, with arrows at the ends beyond which there are values."""
    below, above = np.nanmin(values) < limits[0], np.nanmax(values) > limits[1]
    ends = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[below, above]
    bar = image.axes.figure.colorbar(image, ax=axes, extend=ends, **BAR)
    bar.set_label(label)
    bar.formatter.set_useOffset(False)


def _map_axes(given: Any, where: Places, number: int, path: Path | None) -> np.ndarray:
    """Return the axes of a number of maps; those of a new figure have about the field's shape."""
    (width, height), aspect = where.extent, where.aspect or 1.0
    shape = np.clip(aspect * height / width, 0.5, 1.4) if width > 0 and height > 0 else 1.0
    columns = _columns(number)
    wide = 13.0 / 3 * columns + (0.5 if columns < 3 else 0.0)
    high = (3.3 * float(shape) + 0.4) * -(-number // columns) + 0.5
    return panels_on(given, number, (wide, high), path, columns, sharex=True, sharey=True)


def _columns(number: int) -> int:
    """Return the maps in a row of a new figure."""
    return 2 if number == 4 else min(number, 3)


def _draw(
    ax: Axes, where: Places, values: np.ndarray, limits: tuple[float, float], colours: str
) -> Any:
    options: dict[str, Any] = {
        "cmap": colours,
        "vmin": limits[0],
        "vmax": limits[1],
        "rasterized": True,
    }
    ax.set_facecolor("0.85")
    if where.shape is None:
        # Dots that together cover the panel about once, whatever their number.
        size = np.clip(180_000 / len(where.x), 0.5, 40.0)
        ax.margins(0.01 if size < 40 else 0.05)  # of few, none is cut off
        return ax.scatter(where.x, where.y, c=values, s=size, linewidths=0, **options)
    return ax.pcolormesh(where.x, where.y, where.image(values), shading="nearest", **options)


def _dress(
    ax: Axes,
    where: Places,
    image: Any,
    title: str,
    coast: bool | list[np.ndarray],
    leftmost: bool = True,
    lowest: bool = True,
) -> None:
    """Give a map its title, the labels and numbers of its axes, its aspect and its coastlines."""
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import ScalarFormatter

    ax.set_title(title)
    ax.set_xlabel(where.label(0) if lowest else "")
    ax.set_ylabel(where.label(1) if leftmost else "")
    for i, axis in enumerate((ax.xaxis, ax.yaxis)):
        if where.in_km(i):
            axis.set_major_formatter(lambda metres, _: f"{metres / 1000:g}")
        elif isinstance(numbers := axis.get_major_formatter(), ScalarFormatter):
            numbers.set_useOffset(False)
    if where.aspect is not None:
        ax.set_aspect(where.aspect)
    if lines := lines_on(where, ax.get_xlim(), ax.get_ylim(), coast):
        dark = image.get_cmap().name == STD_COLOURS  # where most is
        ax.add_collection(
            LineCollection(lines, colors="0.6" if dark else "black", linewidths=0.6), autolim=False
        )


def _mark(ax: Axes, marked: Any, size: float, edge: float) -> None:
    """Mark places on a map, which those outside do not widen."""
    frame, marks = ax.axis(), places.two_columns("marked", marked)
    ax.scatter(marks[:, 0], marks[:, 1], s=size, c="white", edgecolors="black", linewidths=edge)
    ax.axis(frame)
