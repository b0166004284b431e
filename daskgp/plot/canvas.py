"""Common parts of all figures: sizes, colours, reference lines, files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from daskgp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Path: TypeAlias = str | os.PathLike[str]
INK = "#35456b"
ALARM = "#c8102e"
GREY = "0.45"
LINES = (INK, "#d9822b", "#3f8f6b", "#8a4f9e", "#4f9ec4", "#7a6a53")
"""Colours of lines, in this order and then again from the start."""
BAR: dict[str, Any] = {"shrink": 0.9, "aspect": 28, "pad": 0.02}


def new_figure(
    size: tuple[float, float], columns: int = 1, rows: int = 1, **options: Any
) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure of ``size`` in inches with its panels, row by row."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise InputError("figures need matplotlib: pip install 'daskgp[plot]'") from error
    # Room between the label of a colour bar and the panel after it.
    fig = Figure(figsize=size, dpi=150, layout=ConstrainedLayoutEngine(wspace=0.06))
    return fig, fig.subplots(rows, columns, squeeze=False, **options).ravel()


def finished(fig: Figure, title: str, path: Path | None) -> Figure:
    """Return a figure with its title, saved if ``path`` is given."""
    if title:
        fig.suptitle(title)
    if path is not None:
        try:
            fig.savefig(path)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot write the figure {os.fspath(path)}: {error}") from error
    return fig


def map_points(name: str, X: np.ndarray) -> np.ndarray:
    """Return points (n, 2); raise InputError for another shape."""
    X = np.asarray(X, np.float64)
    if X.ndim != 2 or X.shape[1] != 2 or not len(X):
        raise InputError(f"{name} has shape {X.shape}: a map needs points of shape (n, 2)")
    return X


def finite_values(name: str, values: np.ndarray, n: int) -> np.ndarray:
    """Return values (n,), some of them finite; raise InputError for others."""
    values = np.asarray(values, np.float64)
    if values.shape != (n,):
        raise InputError(f"{name} has shape {values.shape} but X has {n} points: give shape ({n},)")
    if not np.isfinite(values).any():
        raise InputError(f"{name} holds no finite value to draw")
    return values


def draw_reference(ax: Axes, x: np.ndarray, mean: np.ndarray, std: np.ndarray) -> None:
    """Draw a mean and two standard deviations about it, for comparison."""
    ax.plot(x, mean, color=LINES[1], linewidth=0.9)
    for edge in (mean - 2 * std, mean + 2 * std):
        ax.plot(x, edge, color=LINES[1], linewidth=0.9, linestyle="--")


def tidy(ax: Axes) -> None:
    """Leave a panel only two of its edges and add a thin grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
