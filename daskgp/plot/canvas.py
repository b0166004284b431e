"""Common parts of all figures: axes, sizes, colours, reference lines, files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import dask
import numpy as np

from daskgp.errors import InputError
from daskgp.typing import Path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawn = TypeVar("Drawn", "Axes", np.ndarray)
INK = "#35456b"
ALARM = "#c8102e"
GREY = "0.45"
LINES = (INK, "#d9822b", "#3f8f6b", "#8a4f9e", "#4f9ec4", "#7a6a53", "#e38fb1", "#b3a125")
"""Colours of lines, in this order and then again from the start."""
MARKS = "osD^vPX*"
"""Marks of lines, in the same order."""
BAR: dict[str, Any] = {"aspect": 24, "pad": 0.02}


def check_matplotlib() -> None:
    """Raise InputError if matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise InputError("figures need matplotlib: pip install 'daskgp[plot]'") from error


def panels_on(
    given: Axes | Sequence[Axes] | np.ndarray | None,
    number: int,
    size: tuple[float, float],
    path: Path | None,
    columns: int | None = None,
    **options: Any,
) -> np.ndarray:
    """Return the axes of ``number`` panels: those given, or those of a new figure.

    A new figure of ``size`` in inches has ``columns`` panels per row, by default all of them.  It
    is one of pyplot, which a notebook or ``pyplot.show`` shows, unless it is for a file.

    Raises
    ------
    InputError
        If there are no panels, other than one Axes per panel is given, or matplotlib is missing.
    """
    check_matplotlib()
    if not number:
        raise InputError("panels is empty: give at least one by its label")
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if given is not None:
        axes = np.array(given, dtype=object).ravel()
        if len(axes) != number or not all(isinstance(ax, Axes) for ax in axes):
            raise InputError(
                f"{len(axes)} axes are given for {number} panels: give a matplotlib Axes for each"
            )
        return axes
    # Room between the label of a colour bar and the panel after it; bars as high as their maps.
    layout = ConstrainedLayoutEngine(wspace=0.06, compress=True)
    if path is None:
        from matplotlib import pyplot

        fig = pyplot.figure(figsize=size, layout=layout)
    else:
        fig = Figure(figsize=size, dpi=150, layout=layout)
    columns = columns or number
    axes = fig.subplots(-(-number // columns), columns, squeeze=False, **options).ravel()
    for ax in axes[number:]:
        ax.set_visible(False)
    for ax in axes[max(number - columns, 0) : number]:  # none is below these
        ax.tick_params(labelbottom=True)
    return np.asarray(axes[:number])


def panel_on(given: Axes | None, size: tuple[float, float], path: Path | None) -> Axes:
    """Return the axes given, or those of a new figure, as ``panels_on`` does."""
    ax: Axes = panels_on(given, 1, size, path)[0]
    return ax


def finished(drawn: Drawn, title: str, path: Path | None) -> Drawn:
    """Return axes with a title, that of the figure for several; saved if ``path`` is given."""
    ax: Axes = drawn[0] if isinstance(drawn, np.ndarray) else drawn
    fig = ax.figure
    if title and isinstance(drawn, np.ndarray):
        fig.suptitle(title)
    elif title:
        ax.set_title(title)
    if path is not None:
        fig.figure.draw_without_rendering()  # numbers of axes need room once they have their size
        try:
            fig.figure.savefig(path)  # of the whole figure, where axes are of a part of it
        except (OSError, ValueError) as error:
            raise InputError(f"cannot write the figure {os.fspath(path)}: {error}") from error
    return drawn


def in_memory(*values: Any) -> tuple[Any, ...]:
    """Return values with what is lazy among them computed, all at once."""
    computed: tuple[Any, ...] = dask.compute(*values)
    return computed


def finite_values(name: str, values: Any, n: int) -> np.ndarray:
    """Return values (n,), some of them finite; raise InputError for others."""
    values = np.asarray(values, np.float64)
    if values.shape != (n,):
        raise InputError(f"{name} has shape {values.shape} but X has {n} points: give shape ({n},)")
    if not np.isfinite(values).any():
        raise InputError(
            f"{name} holds no finite value to draw: give values of which some are finite"
        )
    return values


def draw_reference(ax: Axes, x: np.ndarray, mean: np.ndarray, std: np.ndarray, name: str) -> None:
    """Draw a mean and two standard deviations about it, for comparison."""
    ax.plot(x, mean, color=LINES[1], linewidth=0.9, label=name)
    label: str | None = f"{name} ± two standard deviations"
    for edge in (mean - 2 * std, mean + 2 * std):
        ax.plot(x, edge, color=LINES[1], linewidth=0.9, linestyle="--", label=label)
        label = None


def tidy(ax: Axes) -> None:
    """Leave a panel only two of its edges and add a thin grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
