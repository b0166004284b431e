"""Figures of a search for a method: its trials, and where the one chosen is unsure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daskgp.assess.leaderboard import Leaderboard
from daskgp.checks import shown
from daskgp.errors import InputError
from daskgp.plot.canvas import (
    GREY,
    INK,
    LINES,
    finished,
    finite_values,
    panel_on,
    panels_on,
    tidy,
)
from daskgp.plot.fields import maps
from daskgp.plot.places import columns_on_a_map
from daskgp.typing import Path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PANELS, BINS = 4, 20
"""Most features that get a panel, and classes of each that a line is drawn through."""


def choice(
    leaderboard: Any,
    *,
    title: str = "",
    ax: Axes | None = None,
    path: Path | None = None,
) -> Axes:
    """Plot the scores of all trials of a search with their standard errors, the best at the top.

    Trials on more rows stand above those on fewer.  The line is the score of the constant
    prediction, which is written above where it is far beyond all others, and the trial in colour
    the one whose candidate was chosen.

    Parameters
    ----------
    leaderboard : Leaderboard or estimator
        ``leaderboard_`` of `daskgp.AutoGP`, or a fitted estimator that has one.
    title, ax, path
        As in `history`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If there is no leaderboard, or matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).uniform(size=(60, 1))
    >>> model = daskgp.AutoGP(time_budget=20, candidates=["exact"], progress=False)
    >>> model = model.fit(X, np.sin(6 * X[:, 0]))
    >>> ax = choice(model, ax=Figure().subplots())
    >>> ax.get_xlabel()
    'nlpd of held-out rows'
    """
    board = getattr(leaderboard, "leaderboard_", leaderboard)
    if not isinstance(board, Leaderboard):
        raise InputError(
            f"leaderboard={shown(leaderboard)}: give leaderboard_ of a fitted AutoGP, or the model"
        )
    trials = [trial for trial in board if np.isfinite(trial.score) and trial.method != "mean"]
    ax = panel_on(ax, (7.0, 1.2 + 0.28 * len(trials)), path)
    places = -np.arange(len(trials))
    for place, trial in zip(places, trials, strict=True):
        colour = LINES[1] if trial is board.best else INK
        ax.errorbar(trial.score, place, xerr=trial.error, fmt="o", color=colour, markersize=5)
    for trial in board:
        if trial.method == "mean":
            _draw_mean(ax, trial.score)
    ax.set_yticks(places, [f"{t.label}, {t.kernel}, {t.rows:,} rows"[:90] for t in trials])
    ax.tick_params(axis="y", labelsize=8)
    ax.set_xlabel(f"{board.metric} of held-out rows")
    tidy(ax)
    return finished(ax, title, path)


def _draw_mean(ax: Axes, score: float) -> None:
    """Draw the score of the constant prediction, or say it where it is far beyond all others."""
    low, high = ax.get_xlim()
    text: dict[str, Any] = {"textcoords": "offset points", "color": GREY, "fontsize": 8}
    if score > 2 * high - low:  # a line there would leave trials no room to differ
        corner: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, 2), "ha": "right"}
        ax.annotate(f"the mean: {score:.3g} →", (1.0, 1.0), **corner, **text)
        return
    ax.axvline(score, color=GREY, linewidth=0.9, linestyle="--")
    above = ("data", "axes fraction")
    ax.annotate("the mean", (score, 1.0), xycoords=above, xytext=(2, 2), **text)


def spread(
    X: Any,
    std: Any,
    *,
    names: Sequence[str] | None = None,
    title: str = "",
    axes: Sequence[Axes] | np.ndarray | None = None,
    path: Path | None = None,
) -> np.ndarray:
    """Plot where predictions are unsure: their standard deviations over the features.

    Of two features a map; of others a panel for each of the four features, at most, with which the
    spread changes most, with a line through the medians of equally large classes.

    Parameters
    ----------
    X : array (n, d)
        Places of predictions.
    std : array (n,)
        Predictive standard deviations.
    names : sequence of str, optional
        Names of the features.
    title, axes, path
        As in `posterior_map`.

    Returns
    -------
    ndarray of Axes

    Raises
    ------
    InputError
        If shapes do not fit, there is nothing finite to draw, or matplotlib is missing.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).uniform(size=(100, 3))
    >>> panels = Figure().subplots(1, 3)
    >>> axes = daskgp.plot.spread(X, 1 + X[:, 2], names=("a", "b", "c"), axes=panels)
    >>> [ax.get_xlabel() for ax in axes]
    ['a', 'b', 'c']
    """
    X = np.asarray(X, np.float64)
    if X.ndim != 2 or not len(X):
        raise InputError(f"X has shape {X.shape}: give places (n, d)")
    std = finite_values("std", std, len(X))
    d = X.shape[1]
    labels = [f"x{j}" for j in range(d)] if names is None else [str(name) for name in names]
    if len(labels) != d:
        raise InputError(f"names has {len(labels)} names for {d} features: give one each")
    if d == 2:
        X, pair = columns_on_a_map(X, labels)
        what = "standard deviation"
        return maps(X, {what: std}, names=pair, label=what, title=title, axes=axes, path=path)
    varying = [j for j in range(d) if np.nanmax(X[:, j]) > np.nanmin(X[:, j])] or [0]
    lines = {j: _medians(X[:, j], std) for j in varying}
    swing = sorted(varying, key=lambda j: -float(np.ptp(lines[j][1])))
    chosen = sorted(swing[:MOST_PANELS])
    drawn = panels_on(axes, len(chosen), (3.2 * len(chosen), 3.0), path, sharey=True)
    for ax, j in zip(drawn, chosen, strict=True):
        ax.plot(X[:, j], std, ".", color=INK, markersize=2, alpha=0.35)
        ax.plot(*lines[j], color=LINES[1], linewidth=1.6)
        ax.set_xlabel(labels[j])
        tidy(ax)
    drawn[0].set_ylabel("standard deviation")
    return finished(drawn, title, path)


def _medians(x: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the middles of equally large classes of x, and the medians of std in them."""
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(std))
    order = known[np.argsort(x[known], kind="stable")]
    parts = np.array_split(order, min(BINS, max(len(order), 1)))
    middles = np.array([np.median(x[part]) for part in parts if len(part)])
    medians = np.array([np.median(std[part]) for part in parts if len(part)])
    return middles, medians if len(medians) else np.zeros(1)
