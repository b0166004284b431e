"""Maps of two-dimensional fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daskgp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from daskgp.plot.canvas import ALARM, BAR, Path, finished, finite_values, map_points, new_figure

FIELD_COLOURS = "viridis"
STD_COLOURS = "magma"


def posterior_map(
    X: np.ndarray,
    truth: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    *,
    names: tuple[str, str] = ("x", "y"),
    label: str = "",
    title: str = "",
    marked: np.ndarray | None = None,
    path: Path | None = None,
) -> Figure:
    """Plot truth, predictive mean and standard deviation of a two-dimensional field side by side.

    Truth and mean share a colour scale, which spans all but the outermost hundredth of their values
    at either end. Points that fill a regular grid are drawn as images, others as dots.

    Parameters
    ----------
    X : array, shape (n, 2)
        Places; the first column runs to the right.
    truth, mean, std : arrays, shape (n,)
        True values (NaN where unknown), predictive means and standard deviations.
    names : pair of str
        Names of the columns of X, with units: ``("longitude (°)", "latitude (°)")``.
    label : str
        Name of the field, with units: ``"temperature (°C)"``.
    title : str
        Title of the whole figure.
    marked : array, shape (m, 2), optional
        Places to mark on the panel of the standard deviation, such as inducing inputs.
    path : path, optional
        File to save the figure to; its extension gives the format.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If a shape does not fit, there is nothing finite to draw, or matplotlib is missing.
    """
    X = map_points("X", X)
    panels = {"truth": truth, "mean": mean, "standard deviation": std}
    panels = {name: finite_values(name, v, len(X)) for name, v in panels.items()}
    grid = _as_grid(X)
    fig, axes = new_figure(_map_size(X), columns=3, sharex=True, sharey=True)
    field = np.concatenate([panels["truth"], panels["mean"]])
    scales = [(_range(field, 1, 99), FIELD_COLOURS, axes[:2])] * 2
    scales += [(_range(panels["standard deviation"], 0, 99), STD_COLOURS, axes[2:])]
    for ax, (name, values), scale in zip(axes, panels.items(), scales, strict=True):
        limits, colours, beside = scale
        drawn = _draw(ax, X, values, grid, limits, colours)
        ax.set_title(name)
        ax.set_xlabel(names[0])
        ax.ticklabel_format(useOffset=False)
        if name != "truth":
            beyond = field if name == "mean" else values
            bar = fig.colorbar(drawn, ax=beside, extend=_extend(beyond, limits), **BAR)
            bar.set_label(label)
    axes[0].set_ylabel(names[1])
    if marked is not None:
        places = map_points("marked", marked)
        frame = axes[2].axis()
        axes[2].scatter(
            places[:, 0], places[:, 1], s=5, c="white", edgecolors="black", linewidths=0.3
        )
        axes[2].axis(frame)  # places outside the map do not widen it
    return finished(fig, title, path)


def maps(
    X: np.ndarray,
    panels: Mapping[str, np.ndarray],
    *,
    names: tuple[str, str] = ("x", "y"),
    label: str = "",
    title: str = "",
    below: float | None = None,
    marked: np.ndarray | None = None,
    lines: Sequence[np.ndarray] = (),
    path: Path | None = None,
) -> Figure:
    """Plot fields over the same places side by side, on one colour scale.

    Parameters
    ----------
    X : array, shape (n, 2)
        Places; the first column runs to the right.
    panels : mapping of str to array, shape (n,)
        Values by the title of their panel.
    below : float, optional
        Values below it are drawn in red and excluded from the colour scale; a panel's title gives
        their share.
    marked : array, shape (k, 2), optional
        Places to mark on every panel, such as training inputs.
    lines : sequence of arrays, shape (k, 2)
        Lines to draw on every panel, such as the borders of blocks.
    names, label, title, path
        As in `posterior_map`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If a shape does not fit, there is nothing to draw, or matplotlib is missing.
    """
    X = map_points("X", X)
    fields = {name: finite_values(name, v, len(X)) for name, v in panels.items()}
    if not fields:
        raise InputError("panels is empty: give at least one field by its title")
    every = np.concatenate(list(fields.values()))
    shown = every if below is None or not (every >= below).any() else every[every >= below]
    limits, grid = _range(shown, 0, 99), _as_grid(X)
    width, height = _map_size(X)
    size = (width / 3 * len(fields) + 0.5, height)
    fig, axes = new_figure(size, columns=len(fields), sharex=True, sharey=True)
    for ax, (name, values) in zip(axes, fields.items(), strict=True):
        drawn = _draw(ax, X, values, grid, limits, FIELD_COLOURS)
        if below is not None:
            drawn.set_cmap(drawn.get_cmap().with_extremes(under=ALARM))
            name += f": {np.mean(values < below):.1%} below {below:g}"
        ax.set_title(name)
        ax.set_xlabel(names[0])
        frame = ax.axis()
        for line in lines:
            line = map_points("lines", line)
            ax.plot(line[:, 0], line[:, 1], color="white", linewidth=0.8)
        if marked is not None:
            places = map_points("marked", marked)
            ax.scatter(
                places[:, 0], places[:, 1], s=6, c="white", edgecolors="black", linewidths=0.4
            )
        ax.axis(frame)
    axes[0].set_ylabel(names[1])
    bar = fig.colorbar(drawn, ax=axes, extend=_extend(every, limits), **BAR)
    bar.set_label(label)
    return finished(fig, title, path)


def _range(values: np.ndarray, low: float, high: float) -> tuple[float, float]:
    bottom, top = np.percentile(values[np.isfinite(values)], (low, high))
    return float(bottom), float(top) if top > bottom else float(bottom) + 1.0


def _extend(values: np.ndarray, limits: tuple[float, float]) -> str:
    """Return which ends of a colour bar get an arrow because values lie beyond them."""
    below, above = np.nanmin(values) < limits[0], np.nanmax(values) > limits[1]
    return {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[below, above]


def _as_grid(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return axes of a regular grid and the order of the points on it; None if scattered."""
    x, y = np.unique(X[:, 0]), np.unique(X[:, 1])
    if min(len(x), len(y)) < 2 or len(x) * len(y) != len(X) or len(np.unique(X, axis=0)) != len(X):
        return None
    return x, y, np.lexsort((X[:, 0], X[:, 1]))


def _draw(
    ax: Axes,
    X: np.ndarray,
    values: np.ndarray,
    grid: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    limits: tuple[float, float],
    colours: str,
) -> Any:
    colour: dict[str, Any] = {
        "cmap": colours,
        "vmin": limits[0],
        "vmax": limits[1],
        "rasterized": True,
    }
    if grid is None:
        # Dots that together cover the panel about once, whatever their number.
        size = np.clip(180_000 / len(X), 0.5, 40.0)
        ax.set_facecolor("0.85")
        ax.margins(0.01)
        return ax.scatter(X[:, 0], X[:, 1], c=values, s=size, linewidths=0, **colour)
    x, y, order = grid
    ax.set_facecolor("0.85")
    image = np.ma.masked_invalid(values[order].reshape(len(y), len(x)))
    return ax.pcolormesh(x, y, image, shading="nearest", **colour)


def _map_size(X: np.ndarray) -> tuple[float, float]:
    """Return the inches of a figure of three panels with about the shape of the field."""
    width, height = np.ptp(X, axis=0)
    shape = np.clip(height / width, 0.5, 1.4) if width > 0 and height > 0 else 1.0
    return 13.0, 3.6 * float(shape) + 1.0
