"""Figures from small arrays: the only door to matplotlib.

Every function returns a ``matplotlib.figure.Figure`` that belongs to no window and no global
state, and saves it where ``path`` is given. Arrays are drawn as they are, so give at most some
hundred thousand points; thin out before that.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from daskgp import metrics
from daskgp.checks import shown
from daskgp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "calibration",
    "history",
    "maps",
    "posterior_lines",
    "posterior_map",
    "traces",
    "tradeoff",
]

Path: TypeAlias = str | os.PathLike[str]

FIELD_COLOURS = "viridis"
STD_COLOURS = "magma"
INK = "#35456b"
ALARM = "#c8102e"
GREY = "0.45"
LINES = (INK, "#d9822b", "#3f8f6b", "#8a4f9e", "#4f9ec4", "#7a6a53")
"""Colours of lines, in this order and then from the start again."""


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
) -> "Figure":
    """Truth, predictive mean and standard deviation of a two-dimensional field, side by side.

    Truth and mean share a colour scale, which spans all but the outermost hundredth of the true
    values. Points that fill a regular grid are drawn as images, others as dots.

    Parameters
    ----------
    X : array, shape (n, 2)
        Places; the first column runs to the right.
    truth, mean, std : arrays, shape (n,)
        True values (NaN where unknown), predictive means and standard deviations.
    names : pair of str
        What the columns of X are, with units: ``("longitude (°)", "latitude (°)")``.
    label : str
        What the field is, with units: ``"temperature (°C)"``.
    title : str
        Title of the whole figure.
    marked : array, shape (m, 2), optional
        Places to mark on the panel of the standard deviation, such as inducing inputs.
    path : path, optional
        File to save the figure to; the end of its name gives the format.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If a shape does not fit, nothing finite is there to draw, or matplotlib is missing.
    """
    X = _columns("X", X)
    panels = {"truth": truth, "mean": mean, "standard deviation": std}
    panels = {name: _values(name, v, len(X)) for name, v in panels.items()}
    grid = _as_grid(X)
    fig, axes = _canvas(_map_size(X), columns=3, sharex=True, sharey=True)
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
            bar = fig.colorbar(drawn, ax=beside, extend=_extend(beyond, limits), **_BAR)
            bar.set_label(label)
    axes[0].set_ylabel(names[1])
    if marked is not None:
        places = _columns("marked", marked)
        frame = axes[2].axis()
        axes[2].scatter(
            places[:, 0], places[:, 1], s=5, c="white", edgecolors="black", linewidths=0.3
        )
        axes[2].axis(frame)  # places beside the map do not widen it
    return _finished(fig, title, path)


def history(
    history: Sequence[Mapping[str, Any]],
    *,
    against: str = "evaluations",
    value: str = "objective",
    title: str = "",
    path: Path | None = None,
) -> "Figure":
    """Objective of a fit, or what else its history holds, over its rounds or its time.

    Parameters
    ----------
    history : sequence of mappings
        ``history_`` of an estimator: entries with the name `against`, some with `value`.
    against : {"evaluations", "iteration", "seconds"}
        What runs along the horizontal axis.
    value : str, default "objective"
        What is drawn, such as "validation", the score of held-out rows, or "noise_variance".
    title, path
        As in `posterior_map`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If the history is empty or has no such entry, or matplotlib is missing.
    """
    if not len(history):
        raise InputError("history is empty: it has entries after a fit with an optimizer")
    if against not in history[0]:
        there = ", ".join(map(str, history[0]))
        raise InputError(f"history has no {shown(against)}: choose against= among {there}")
    entries = [entry for entry in history if value in entry]
    if not entries:
        there = ", ".join(dict.fromkeys(key for entry in history for key in entry))
        raise InputError(f"history has no {shown(value)}: choose value= among {there}")
    along = np.array([float(entry[against]) for entry in entries])
    drawn = np.array([float(entry[value]) for entry in entries])
    fig, (ax,) = _canvas((6.0, 3.6))
    ax.plot(along, drawn, color=INK, marker="o", markersize=3, linewidth=1.4)
    ax.annotate(
        f"{drawn[-1]:,.1f}" if value == "objective" else f"{drawn[-1]:.3g}",
        (along[-1], drawn[-1]),
        xytext=(-2, -6),
        textcoords="offset points",
        ha="right",
        va="top",
    )
    names = {"evaluations": "evaluations of the objective", "seconds": "time (s)"}
    values = {
        "objective": "objective (nats)",
        "validation": "log predictive density of held-out rows (nats)",
    }
    ax.set_xlabel(names.get(against, against))
    ax.set_ylabel(values.get(value, value))
    _tidy(ax)
    return _finished(fig, title, path)


def calibration(
    y_true: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    *,
    levels: np.ndarray | None = None,
    title: str = "",
    path: Path | None = None,
) -> "Figure":
    """Share of observed values inside central predictive intervals against their level.

    Below the diagonal predictions are too sure of themselves, above it too careful.

    Parameters
    ----------
    y_true, mean, variance : arrays, shape (n,) or (n, p)
        Observed values, predictive means and predictive variances, noise included.
    levels : array, optional
        Nominal levels between 0 and 1; by default 0.05 to 0.95 in steps of 0.05, and 0.99.
    title, path
        As in `posterior_map`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        As `daskgp.metrics.coverage` does, or if matplotlib is missing.
    """
    levels = np.append(np.linspace(0.05, 0.95, 19), 0.99) if levels is None else np.asarray(levels)
    shares = np.array([metrics.coverage(y_true, mean, variance, float(q)) for q in levels])
    fig, (ax,) = _canvas((4.4, 4.4))
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="calibrated")
    ax.fill_between(levels, levels, shares, color=INK, alpha=0.12, linewidth=0)
    ax.plot(levels, shares, color=INK, marker="o", markersize=3.5, linewidth=1.4, label="observed")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("nominal level of the interval")
    ax.set_ylabel("share of values inside")
    ax.legend(loc="upper left", frameon=False)
    _tidy(ax)
    return _finished(fig, title, path)


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
) -> "Figure":
    """Fields over the same places side by side, on one colour scale.

    Parameters
    ----------
    X : array, shape (n, 2)
        Places; the first column runs to the right.
    panels : mapping of str to array, shape (n,)
        Values by the title of their panel.
    below : float, optional
        Values below it are drawn in red and leave the colour scale; a panel's title says their
        share.
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
        If a shape does not fit, nothing is there to draw, or matplotlib is missing.
    """
    X = _columns("X", X)
    fields = {name: _values(name, v, len(X)) for name, v in panels.items()}
    if not fields:
        raise InputError("panels is empty: give at least one field by its title")
    every = np.concatenate(list(fields.values()))
    shown = every if below is None or not (every >= below).any() else every[every >= below]
    limits, grid = _range(shown, 0, 99), _as_grid(X)
    width, height = _map_size(X)
    size = (width / 3 * len(fields) + 0.5, height)
    fig, axes = _canvas(size, columns=len(fields), sharex=True, sharey=True)
    for ax, (name, values) in zip(axes, fields.items(), strict=True):
        drawn = _draw(ax, X, values, grid, limits, FIELD_COLOURS)
        if below is not None:
            drawn.set_cmap(drawn.get_cmap().with_extremes(under=ALARM))
            name += f": {np.mean(values < below):.1%} below {below:g}"
        ax.set_title(name)
        ax.set_xlabel(names[0])
        frame = ax.axis()
        for line in lines:
            line = _columns("lines", line)
            ax.plot(line[:, 0], line[:, 1], color="white", linewidth=0.8)
        if marked is not None:
            places = _columns("marked", marked)
            ax.scatter(
                places[:, 0], places[:, 1], s=6, c="white", edgecolors="black", linewidths=0.4
            )
        ax.axis(frame)
    axes[0].set_ylabel(names[1])
    bar = fig.colorbar(drawn, ax=axes, extend=_extend(every, limits), **_BAR)
    bar.set_label(label)
    return _finished(fig, title, path)


def posterior_lines(
    x: np.ndarray,
    panels: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    points: tuple[np.ndarray, np.ndarray] | None = None,
    reference: tuple[np.ndarray, np.ndarray] | None = None,
    breaks: Sequence[float] = (),
    columns: int | None = None,
    names: tuple[str, str] = ("x", "y"),
    title: str = "",
    path: Path | None = None,
) -> "Figure":
    """Posteriors along one input, side by side: the mean and two standard deviations around it.

    Parameters
    ----------
    x : array, shape (n,)
        Places in rising order.  A place that is there twice, with two values, shows a jump.
    panels : mapping of str to (mean, std), each of shape (n,)
        Predictive means and standard deviations by the title of their panel.
    points : (places, values), optional
        Observations to draw on every panel.
    reference : (mean, std), each of shape (n,), optional
        A posterior to draw on every panel as thin lines, dashed at two standard deviations.
    breaks : sequence of float
        Places of dotted vertical lines, such as the borders of blocks.
    columns : int, optional
        Panels a row; all in one row by default.
    names : pair of str
        What runs along the axes, with units.
    title, path
        As in `posterior_map`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If a shape does not fit, nothing is there to draw, or matplotlib is missing.
    """
    x = np.asarray(x, np.float64)
    if x.ndim != 1 or not len(panels):
        raise InputError(f"x has shape {x.shape}, of {len(panels)} panels: give (n,) and one panel")
    wide = min(columns or len(panels), len(panels))
    rows = -(-len(panels) // wide)
    size = (5.2 * wide, 3.6) if rows == 1 else (4.2 * wide, 2.6 * rows)
    fig, axes = _canvas(size, wide, rows, sharex=True, sharey=True)
    if rows > 1:
        axes[0].locator_params(axis="x", nbins=5)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    known = [] if reference is None else [_values("reference", v, len(x)) for v in reference]
    for i, (ax, (name, pair)) in enumerate(zip(axes, panels.items(), strict=False)):
        mean, std = (_values(name, values, len(x)) for values in pair)
        for place in breaks:
            ax.axvline(place, color=GREY, linewidth=0.8, linestyle=":")
        if points is not None:
            ax.plot(*points, linestyle="", marker=".", markersize=3, color="0.6")
        ax.fill_between(x, mean - 2 * std, mean + 2 * std, color=INK, alpha=0.18, linewidth=0)
        ax.plot(x, mean, color=INK, linewidth=1.4)
        if known:
            _draw_reference(ax, x, *known)
        ax.set_title(name)
        ax.set_xlabel(names[0] if i + wide >= len(panels) else "")
        ax.set_ylabel(names[1] if i % wide == 0 else "")
        _tidy(ax)
    return _finished(fig, title, path)


def tradeoff(
    settings: Sequence[float],
    panels: Mapping[str, Mapping[str, np.ndarray]],
    *,
    name: str = "setting",
    reference: Mapping[str, float] | None = None,
    title: str = "",
    path: Path | None = None,
) -> "Figure":
    """What a setting does, such as to error and time: a panel each, with a logarithmic scale.

    The scale is linear near 0 where a panel holds values that are not greater than 0.

    Parameters
    ----------
    settings : sequence of k floats
        Values of the setting, at equal distances along the horizontal axis.
    panels : mapping of str to mapping of str to array, shape (k,)
        By the label of a panel its lines, by their names.
    name : str
        What the setting is.
    reference : mapping of str to float, optional
        By the label of a panel a value to draw as a dashed line.
    title, path
        As in `posterior_map`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If a shape does not fit, nothing is there to draw, or matplotlib is missing.
    """
    if not len(panels):
        raise InputError("panels is empty: give at least one by its label")
    along = np.arange(len(settings))
    fig, axes = _canvas((4.6 * len(panels), 3.6), len(panels))
    for ax, (label, rows) in zip(axes, panels.items(), strict=True):
        _draw_lines(ax, along, rows, marker="o", markersize=4)
        if reference and label in reference:
            ax.axhline(reference[label], color=GREY, linewidth=1, linestyle="--")
        ax.set_yscale(_scale_of(rows))
        ax.set_xticks(along, [f"{value:g}" for value in settings])
        ax.set_xlabel(name)
        ax.set_ylabel(label)
        _tidy(ax)
    axes[0].legend(frameon=False)
    return _finished(fig, title, path)


def traces(
    panels: Mapping[str, Mapping[str, np.ndarray]],
    *,
    name: str = "iteration",
    reference: Mapping[str, float] | None = None,
    title: str = "",
    path: Path | None = None,
) -> "Figure":
    """What becomes of values step by step, such as hyper-parameters in training: a panel each.

    Parameters
    ----------
    panels : mapping of str to mapping of str to array, shape (k,)
        By the label of a panel its lines, by their names; lines may differ in length.
    name : str
        What a step is.
    reference : mapping of str to float, optional
        By the label of a panel a value to draw as a dashed line.
    title, path
        As in `posterior_map`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If nothing is there to draw, or matplotlib is missing.
    """
    if not len(panels):
        raise InputError("panels is empty: give at least one by its label")
    fig, axes = _canvas((3.6 * len(panels), 3.4), len(panels))
    for ax, (label, rows) in zip(axes, panels.items(), strict=True):
        _draw_lines(ax, None, rows)
        if reference and label in reference:
            ax.axhline(reference[label], color=GREY, linewidth=1, linestyle="--")
        ax.set_yscale(_scale_of(rows))
        ax.set_xlabel(name)
        ax.set_ylabel(label)
        _tidy(ax)
    axes[0].legend(frameon=False)
    return _finished(fig, title, path)


def _draw_lines(
    ax: "Axes", along: np.ndarray | None, rows: Mapping[str, np.ndarray], **marks: Any
) -> None:
    """Lines by their names; dashed from the seventh on, as colours repeat."""
    for i, (row, values) in enumerate(rows.items()):
        steps = np.arange(1, len(values) + 1) if along is None else along
        values, colour = _values(row, values, len(steps)), LINES[i % len(LINES)]
        style = "-" if i < len(LINES) else "--"
        ax.plot(steps, values, color=colour, linestyle=style, linewidth=1.4, label=row, **marks)


def _scale_of(rows: Mapping[str, np.ndarray]) -> str:
    return "log" if all((np.asarray(values) > 0).all() for values in rows.values()) else "symlog"


_BAR: dict[str, Any] = {"shrink": 0.9, "aspect": 28, "pad": 0.02}


def _canvas(
    size: tuple[float, float], columns: int = 1, rows: int = 1, **options: Any
) -> tuple["Figure", Sequence["Axes"]]:
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise InputError("figures need matplotlib: pip install 'daskgp[plot]'") from error
    # Room between the label of a colour bar and the panel after it.
    fig = Figure(figsize=size, dpi=150, layout=ConstrainedLayoutEngine(wspace=0.06))
    return fig, fig.subplots(rows, columns, squeeze=False, **options).ravel()


def _finished(fig: "Figure", title: str, path: Path | None) -> "Figure":
    if title:
        fig.suptitle(title)
    if path is not None:
        try:
            fig.savefig(path)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot write the figure {os.fspath(path)}: {error}") from error
    return fig


def _columns(name: str, X: np.ndarray) -> np.ndarray:
    X = np.asarray(X, np.float64)
    if X.ndim != 2 or X.shape[1] != 2 or not len(X):
        raise InputError(f"{name} has shape {X.shape}: a map needs points of shape (n, 2)")
    return X


def _values(name: str, values: np.ndarray, n: int) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.shape != (n,):
        raise InputError(f"{name} has shape {values.shape} but X has {n} points: give shape ({n},)")
    if not np.isfinite(values).any():
        raise InputError(f"{name} holds no finite value to draw")
    return values


def _range(values: np.ndarray, low: float, high: float) -> tuple[float, float]:
    bottom, top = np.percentile(values[np.isfinite(values)], (low, high))
    return float(bottom), float(top) if top > bottom else float(bottom) + 1.0


def _extend(values: np.ndarray, limits: tuple[float, float]) -> str:
    """Which ends of a colour bar get an arrow because values lie beyond them."""
    below, above = np.nanmin(values) < limits[0], np.nanmax(values) > limits[1]
    return {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[below, above]


def _as_grid(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Axes of a regular grid and the order that lays the points out on it; None if scattered."""
    x, y = np.unique(X[:, 0]), np.unique(X[:, 1])
    if min(len(x), len(y)) < 2 or len(x) * len(y) != len(X) or len(np.unique(X, axis=0)) != len(X):
        return None
    return x, y, np.lexsort((X[:, 0], X[:, 1]))


def _draw(
    ax: "Axes",
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


def _draw_reference(ax: "Axes", x: np.ndarray, mean: np.ndarray, std: np.ndarray) -> None:
    ax.plot(x, mean, color=LINES[1], linewidth=0.9)
    for edge in (mean - 2 * std, mean + 2 * std):
        ax.plot(x, edge, color=LINES[1], linewidth=0.9, linestyle="--")


def _map_size(X: np.ndarray) -> tuple[float, float]:
    """Inches of a figure of three panels with about the shape of the field."""
    width, height = np.ptp(X, axis=0)
    shape = np.clip(height / width, 0.5, 1.4) if width > 0 and height > 0 else 1.0
    return 13.0, 3.6 * float(shape) + 1.0


def _tidy(ax: "Axes") -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
