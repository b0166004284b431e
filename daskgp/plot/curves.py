"""Line plots: training, calibration, posteriors of one input, and effects of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from daskgp import metrics
from daskgp.assess.check import Check
from daskgp.assess.cross_validation import CrossValidation
from daskgp.assess.scores import BINS, Sums
from daskgp.assess.variogram import Variogram
from daskgp.checks import shown
from daskgp.data import grids
from daskgp.errors import InputError
from daskgp.estimators.checking import variogram as computed_variogram
from daskgp.plot.canvas import (
    GREY,
    INK,
    LINES,
    MARKS,
    draw_reference,
    finished,
    finite_values,
    in_memory,
    panel_on,
    panels_on,
    tidy,
)
from daskgp.plot.places import squared, with_unit
from daskgp.typing import Path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = "--", "-."
"""Styles of the lines along the axes of a model with rotated columns."""


def history(
    history: Sequence[Mapping[str, Any]],
    *,
    against: str = "evaluations",
    value: str = "objective",
    title: str = "",
    ax: Axes | None = None,
    path: Path | None = None,
) -> Axes:
    """Plot the objective of a fit, or another value of its history, over its rounds or time.

    Parameters
    ----------
    history : sequence of mappings
        ``history_`` of an estimator: entries with the name `against`, some with `value`.
    against : {"evaluations", "iteration", "seconds"}
        Quantity on the horizontal axis.
    value : str, default "objective"
        Quantity to draw, such as "validation", the score of held-out rows, or "noise_variance".
    title : str
        Title of the panel.
    ax : Axes, optional
        Where to draw; a new figure by default.
    path
        As in `posterior_map`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If the history is empty or has no such entry, or matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = daskgp.SGPR(n_inducing=5, max_iter=3).fit(X, np.sin(6 * X[:, 0]))
    >>> ax = daskgp.plot.history(model.history_, ax=Figure().subplots())
    >>> len(ax.lines)
    1
    """
    if not len(history):
        raise InputError("history is empty: fit with an optimizer to have entries")
    if against not in history[0]:
        known = ", ".join(map(str, history[0]))
        raise InputError(f"history has no {shown(against)}: choose against= among {known}")
    entries = [entry for entry in history if value in entry]
    if not entries:
        known = ", ".join(dict.fromkeys(key for entry in history for key in entry))
        raise InputError(f"history has no {shown(value)}: choose value= among {known}")
    along = np.array([float(entry[against]) for entry in entries])
    drawn = np.array([float(entry[value]) for entry in entries])
    ax = panel_on(ax, (6.0, 3.6), path)
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
    tidy(ax)
    return finished(ax, title, path)


def calibration(
    y_true: Any,
    mean: Any = None,
    variance: Any = None,
    *,
    levels: np.ndarray | None = None,
    title: str = "",
    ax: Axes | None = None,
    path: Path | None = None,
) -> Axes:
    """Plot the share of observed values inside central predictive intervals against their level.

    Predictions are overconfident below the diagonal and too cautious above it.

    Parameters
    ----------
    y_true, mean, variance : arrays, shape (n,) or (n, p), or DataArrays
        Observed values, predictive means and predictive variances, noise included.  Those that are
        lazy are read once, chunk by chunk.  Or, for `y_true` alone, what `daskgp.check` or
        `daskgp.cross_validate` returned.
    levels : array, optional
        Nominal levels between 0 and 1; by default 0.05 to 0.95 in steps of 0.05, and 0.99.
    title, ax, path
        As in `history`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        As `daskgp.metrics.coverage` does, or if matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> y = np.random.default_rng(0).standard_normal(500)
    >>> ax = daskgp.plot.calibration(y, np.zeros(500), np.ones(500), ax=Figure().subplots())
    >>> len(ax.lines)  # the diagonal and the shares
    2
    """
    levels = np.append(np.linspace(0.05, 0.95, 19), 0.99) if levels is None else np.asarray(levels)
    if isinstance(y_true, Check | CrossValidation):
        sums = Sums(np.zeros((1, 1)), counts_of(y_true, mean, variance)[None])
        shares = np.array([sums.coverage(float(q)) for q in levels])
    else:
        rows = _on_one_grid(y_true, mean, variance)
        shares = np.array(in_memory(*(metrics.coverage(*rows, level=float(q)) for q in levels)))
    ax = panel_on(ax, (4.4, 4.4), path)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", label="calibrated")
    ax.fill_between(levels, levels, shares, color=INK, alpha=0.12, linewidth=0)
    ax.plot(levels, shares, color=INK, marker="o", markersize=3.5, linewidth=1.4, label="observed")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("nominal level of the interval")
    ax.set_ylabel("share of values inside")
    ax.legend(loc="upper left", frameon=False)
    tidy(ax)
    return finished(ax, title, path)


def counts_of(y_true: Any, mean: Any, variance: Any) -> np.ndarray:
    """Return counts (BINS,) of values by their predictive distribution function."""
    if isinstance(y_true, Check | CrossValidation):
        if mean is not None or variance is not None:
            raise InputError("a check is drawn as it is: leave mean and variance out")
        if not y_true.counts.any():
            raise InputError("classes have no distribution function: take plot.reliability")
        return y_true.counts
    rows = in_memory(*_on_one_grid(y_true, mean, variance))
    metrics.nlpd(*rows)  # which refuses what has no score
    y, m, v = (np.asarray(a, np.float64).ravel() for a in rows)
    known = ~np.isnan(y)
    below = ndtr((y[known] - m[known]) / np.sqrt(v[known]))
    return np.bincount(np.minimum((below * BINS).astype(int), BINS - 1), minlength=BINS)


def _on_one_grid(y: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
    """Return arrays, those of DataArrays with their dimensions in the order of one of them."""
    values = y, mean, variance
    first = next((v for v in values if grids.is_xarray(v)), None)
    if first is None:
        return values
    y, mean, variance = (grids.on_the_grid_of(first, v).data for v in values)
    return y, mean, variance


def posterior_lines(
    x: np.ndarray,
    panels: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    points: tuple[np.ndarray, np.ndarray] | None = None,
    reference: tuple[np.ndarray, np.ndarray] | None = None,
    reference_name: str = "reference",
    breaks: Sequence[float] = (),
    columns: int | None = None,
    names: tuple[str, str] = ("x", "y"),
    title: str = "",
    axes: Sequence[Axes] | np.ndarray | None = None,
    path: Path | None = None,
) -> np.ndarray:
    """Plot posteriors along one input side by side: the mean and two standard deviations.

    Parameters
    ----------
    x : array, shape (n,)
        Places in increasing order.  A place that occurs twice, with two values, shows a jump.
    panels : mapping of str to (mean, std), each of shape (n,)
        Predictive means and standard deviations by the title of their panel.
    points : (places, values), optional
        Observations to draw on every panel.
    reference : (mean, std), each of shape (n,), optional
        A posterior to draw on every panel as thin lines, dashed at two standard deviations.
    reference_name : str
        Its name in the legend, which a new figure has below its panels.
    breaks : sequence of float
        Places of dotted vertical lines, such as the borders of blocks.
    columns : int, optional
        Panels per row; all in one row by default.
    names : pair of str
        Labels of the axes, with units.
    title, axes, path
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
    >>> x = np.linspace(0, 1, 20)
    >>> panels = {"SGPR": (np.sin(x), 0.1 + x), "exact": (np.sin(x), 0.1 + x / 2)}
    >>> axes = daskgp.plot.posterior_lines(x, panels, axes=Figure().subplots(1, 2))
    >>> [ax.get_title() for ax in axes]
    ['SGPR', 'exact']
    """
    x = np.asarray(x, np.float64)
    if x.ndim != 1 or not len(panels):
        raise InputError(f"x has shape {x.shape}, of {len(panels)} panels: give (n,) and one panel")
    per_row = min(columns or len(panels), len(panels))
    rows = -(-len(panels) // per_row)
    size = (4.4 * per_row, 3.7) if rows == 1 else (4.2 * per_row, 2.6 * rows + 0.3)
    new = axes is None
    axes = panels_on(axes, len(panels), size, path, per_row, sharex=True, sharey=True)
    if rows > 1:
        axes[0].locator_params(axis="x", nbins=5)
    known = None
    if reference is not None:
        mean, std = reference
        known = tuple(finite_values("reference", values, len(x)) for values in (mean, std))
    for i, (ax, (name, pair)) in enumerate(zip(axes, panels.items(), strict=True)):
        mean, std = (finite_values(name, values, len(x)) for values in pair)
        for border in breaks:
            label = "borders" if border == breaks[0] else None
            ax.axvline(border, color=GREY, linewidth=0.8, linestyle=":", label=label)
        if points is not None:
            ax.plot(*points, linestyle="", marker=".", markersize=3, color="0.6", label="rows")
        low, high = mean - 2 * std, mean + 2 * std
        band = "mean ± two standard deviations"
        ax.fill_between(x, low, high, color=INK, alpha=0.18, linewidth=0, label=band)
        ax.plot(x, mean, color=INK, linewidth=1.4, label="mean")
        if known is not None:
            draw_reference(ax, x, known[0], known[1], reference_name)
        ax.set_title(name)
        ax.set_xlabel(names[0] if i + per_row >= len(panels) else "")
        ax.set_ylabel(names[1] if i % per_row == 0 else "")
        tidy(ax)
    if new:
        lines = axes[0].get_legend_handles_labels()
        wide = 2 if per_row == 1 else 4
        axes[0].figure.legend(*lines, loc="outside lower center", ncols=wide, frameon=False)
    return finished(axes, title, path)


def tradeoff(
    settings: Sequence[float],
    panels: Mapping[str, Mapping[str, np.ndarray]],
    *,
    name: str = "setting",
    reference: Mapping[str, float] | None = None,
    reference_name: str = "reference",
    title: str = "",
    axes: Sequence[Axes] | np.ndarray | None = None,
    path: Path | None = None,
) -> np.ndarray:
    """Plot the effects of a setting, such as on error and time: one logarithmic panel for each.

    The scale is linear near 0 if a panel has values that are not greater than 0.

    Parameters
    ----------
    settings : sequence of k floats
        Values of the setting, at equal distances along the horizontal axis.
    panels : mapping of str to mapping of str to array, shape (k,)
        Lines by their names, for each panel by its label.
    name : str
        Name of the setting.
    reference : mapping of str to float, optional
        Value to draw as a dashed line, by the label of its panel.
    reference_name : str
        Its name in the legend.
    title, axes, path
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
    >>> rmse, seconds = np.array([0.3, 0.2, 0.1]), np.array([1, 2, 4])
    >>> panels = {"RMSE": {"SGPR": rmse}, "seconds": {"SGPR": seconds}}
    >>> axes = daskgp.plot.tradeoff(
    ...     [64, 128, 256], panels, name="inducing inputs", axes=Figure().subplots(1, 2)
    ... )
    >>> axes[0].get_xlabel()
    'inducing inputs'
    """
    axes = panels_on(axes, len(panels), (4.6 * len(panels), 3.6), path)
    along = np.arange(len(settings))
    _draw_panels(axes, panels, name, reference or {}, reference_name, along)
    for ax in axes:
        ax.set_xticks(along, [f"{value:g}" for value in settings])
    return finished(axes, title, path)


def traces(
    panels: Mapping[str, Mapping[str, np.ndarray]],
    *,
    name: str = "iteration",
    reference: Mapping[str, float] | None = None,
    reference_name: str = "reference",
    title: str = "",
    axes: Sequence[Axes] | np.ndarray | None = None,
    path: Path | None = None,
) -> np.ndarray:
    """Plot values step by step, such as hyper-parameters in training: one panel for each.

    Parameters
    ----------
    panels : mapping of str to mapping of str to array, shape (k,)
        Lines by their names, for each panel by its label; lines may differ in length.
    name : str
        Name of a step.
    reference, reference_name, title, axes, path
        As in `tradeoff`.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, one per panel

    Raises
    ------
    InputError
        If there is nothing to draw, or matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> panels = {"noise": {"Adam": np.array([1.0, 0.5]), "L-BFGS": np.array([1.0, 0.2, 0.1])}}
    >>> (ax,) = daskgp.plot.traces(panels, axes=[Figure().subplots()])
    >>> ax.get_ylabel()
    'noise'
    """
    axes = panels_on(axes, len(panels), (3.6 * len(panels), 3.4), path)
    _draw_panels(axes, panels, name, reference or {}, reference_name)
    return finished(axes, title, path)


def _draw_panels(
    axes: np.ndarray,
    panels: Mapping[str, Mapping[str, np.ndarray]],
    name: str,
    reference: Mapping[str, float],
    reference_name: str,
    along: np.ndarray | None = None,
) -> None:
    """Draw the lines of each panel, marked where their places are given, and its reference."""
    for ax, (label, rows) in zip(axes, panels.items(), strict=True):
        _draw_lines(ax, along, rows)
        if label in reference:  # with a legend of its own for where it is the only one
            style = {"color": GREY, "linewidth": 1, "linestyle": "--"}
            line = ax.axhline(reference[label], label=reference_name, **style)
            ax.legend(handles=[line], frameon=False)
        _scale(ax, rows)
        ax.set_xlabel(name)
        ax.set_ylabel(label)
        tidy(ax)
    axes[0].legend(frameon=False)


def _draw_lines(ax: Axes, along: np.ndarray | None, rows: Mapping[str, np.ndarray]) -> None:
    """Draw lines by their names; dashed once their colours repeat."""
    for i, (row, values) in enumerate(rows.items()):
        steps = np.arange(1, len(values) + 1) if along is None else along
        values, colour = finite_values(row, values, len(steps)), LINES[i % len(LINES)]
        style: dict[str, Any] = {"linestyle": "-" if i < len(LINES) else "--", "linewidth": 1.4}
        if along is not None:
            style |= {"marker": MARKS[i % len(MARKS)], "markersize": 4.5}
        ax.plot(steps, values, color=colour, label=row, **style)


def _scale(ax: Axes, rows: Mapping[str, np.ndarray]) -> None:
    """Give a panel a logarithmic scale, with plain numbers if it spans few decades."""
    from matplotlib.ticker import LogLocator, NullFormatter

    positive = all((np.asarray(values) > 0).all() for values in rows.values())
    ax.set_yscale("log" if positive else "symlog")
    low, high = ax.get_ylim()
    if positive and high < 100 * low:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())


def variogram(
    X: Any,
    y: Any = None,
    model: Any = None,
    *,
    names: tuple[str, str] | None = None,
    title: str = "",
    ax: Axes | None = None,
    path: Path | None = None,
    **options: Any,
) -> Axes:
    """Plot the empirical variogram of rows, and the line that a fitted model expects of them.

    Where the line runs through the points, the model has the smoothness and the scales that the
    data have.  Its noise variance, the nugget, is dotted.  For a model with rotated columns, what
    it expects along its axes is dashed.

    Parameters
    ----------
    X, y : array-like (n, d) and (n,) or (n, p)
        Rows of any kind that ``fit`` takes; or, for X alone, what `daskgp.variogram` returned.
    model : estimator, optional
        A fitted one.
    names : pair of str, optional
        Labels of the axes, by default those of the data.
    title, ax, path
        As in `history`.
    **options
        Settings of `daskgp.variogram`: ``bins``, ``max_distance``, ``columns`` and others.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        As `daskgp.variogram` does, or if matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).uniform(size=(200, 2))
    >>> ax = daskgp.plot.variogram(X, X[:, 0], bins=5, ax=Figure().subplots())
    >>> "distance" in ax.get_xlabel()
    True
    """
    if not isinstance(X, Variogram):
        X = computed_variogram(X, y, model, **options)
    elif y is not None or model is not None or options:
        raise InputError("a computed variogram is drawn as it is: leave y, model and options out")
    ax = panel_on(ax, (6.0, 3.8), path)
    targets = X.target_names
    k, single = len(X.pairs), len(targets) == 1
    measured = X.semivariance.reshape(k, -1)
    expected = None if X.expected is None else X.expected.reshape(k, -1)
    for i, target in enumerate(targets):
        colour = LINES[i % len(LINES)]
        label = "rows" if single else target
        ax.plot(X.distance, measured[:, i], "o", markersize=4, color=colour, label=label)
        if expected is not None:
            line = LINES[1] if single else colour
            nugget = float(np.ravel(X.noise_variance)[i])
            ax.plot(X.distance, expected[:, i], color=line, label="model" if single else None)
            label = "noise of the model" if single else None
            ax.axhline(nugget, color=line, linewidth=1, linestyle=":", label=label)
        if X.along is not None:
            along = X.along.reshape(k, len(X.directions), -1)[:, :, i]
            for values, name, style in zip(along.T, X.directions, cycle(DASHES), strict=False):
                label = name if single else None
                ax.plot(X.distance, values, color=line, linewidth=1, linestyle=style, label=label)
    units = set(X.target_units)
    unit = squared(units.pop()) if len(units) == 1 else ""
    what = f"semivariance of {targets[0]}" if single else "semivariance"
    labels = names or (with_unit("distance", X.distance_unit), with_unit(what, unit))
    ax.set(xlabel=labels[0], ylabel=labels[1], xlim=(0, X.edges[-1]))
    ax.set_ylim(bottom=0)
    if expected is not None or not single:
        ax.legend(frameon=False)
    tidy(ax)
    return finished(ax, title, path)
