"""Bars, dots, boxes, lines and points."""

import re
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from drawing.pages import Points, Series, Values

# Okabe and Ito's colours, which differ for every kind of sight
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
COLOURS += ["#000000", "#8c8c8c", "#555555"]
PEERS = re.compile("(^|, )(GPflow|GPyTorch|PyTorch|GPBoost)")
STYLE = {"svg.hashsalt": "daskgp", "axes.grid": True, "grid.color": "#e6e6e6"}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
STYLE |= {"axes.titlesize": 10, "axes.axisbelow": True, "axes.linewidth": 0.6, "font.size": 9.5}
mpl.rcParams.update(STYLE)
PLAIN = FuncFormatter(lambda value, _: f"{value:,.12g}".replace("-", "−"))
Axes = Any


def panels(count: int, height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure as wide as a page, and its axes."""
    drawn = Figure(figsize=(7.7, height), layout="constrained")
    return drawn, list(drawn.subplots(rows, count // rows, squeeze=False).flat)


def ticks(axis: Any) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks, and no more than have room."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_view_interval()
    wide = high > 400 * low or high > 90_000
    steps = (1,) if wide else (1, 2, 5) if high > 8 * low else (1, 1.5, 2, 3, 4, 5, 7)
    axis.set_major_locator(LogLocator(subs=steps, numticks=30))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_locator(NullLocator())


def finish(ax: Axes, log: str = "", **more: Any) -> None:
    """Set what is asked for, and logarithmic axes."""
    ax.set(**more)
    for letter in log:
        ticks(getattr(ax, f"{letter}axis"))


def bars(ax: Axes, names: Sequence[str], values: Values, label: str, **more: Any) -> None:
    """Draw named bars, each with its number."""
    shown = [value or 0.0 for value in values]
    ax.barh(range(len(names)), shown, color=[COLOURS[4 if PEERS.search(n) else 5] for n in names])
    ax.set_yticks(range(len(names)), [broken(name) for name in names])
    for at, value in enumerate(values):
        text = "not measured" if value is None else f"{value:,.5g}"
        ax.annotate(text, (shown[at], at), (4, 0), textcoords="offset points", va="center")
    ax.set(xlabel=label, xlim=(0, 1.3 * max(shown)), ylim=(len(names) - 0.4, -0.6))
    ax.grid(visible=False, axis="y")
    ax.xaxis.set_major_formatter(PLAIN)
    finish(ax, **more)


def dots(
    ax: Axes,
    names: Sequence[str],
    found: Series,
    label: str,
    at: float | None = None,
    log: str = "",
) -> None:
    """Draw several named numbers on a line for each name, and a line across at what is right."""
    for number, (name, values) in enumerate(found.items()):
        kept = [(value, row) for row, value in enumerate(values) if value is not None]
        ax.plot(*zip(*kept, strict=True), ls="", ms=7, **style(number), label=name)
    if at is not None:
        ax.axvline(at, color="#000000", ls="--", lw=1)
        label += f" (dashed: {at:g})"
    ax.set_yticks(range(len(names)), [broken(name) for name in names])
    ax.set(xlabel=label, ylim=(len(names) - 0.5, -0.5))
    ax.margins(x=0.08)
    finish(ax, log)


def boxes(
    ax: Axes,
    groups: Sequence[str],
    found: Mapping[str, Sequence[Sequence[float]]],
    labels: str,
    log: str = "",
    at: float | None = None,
) -> None:
    """Draw boxes of values, named series side by side in each group, means dotted; ``at`` a line.

    Boxes are of the quartiles, whiskers reach to the last value within 1.5 of their distance.
    """
    width, line = 0.8 / len(found), {"lw": 0.7}
    for number, (name, values) in enumerate(found.items()):
        colour = COLOURS[number % 9]
        ax.boxplot(
            [[v for v in of if v is not None] for of in values],
            positions=[group + (number + 0.5) * width - 0.4 for group in range(len(groups))],
            widths=0.85 * width, manage_ticks=False, patch_artist=True, sym=".",
            showmeans=True, meanline=True, meanprops={"color": "#000000", "ls": ":", "lw": 1},
            boxprops={"facecolor": colour, **line}, flierprops={"ms": 2, "mec": colour},
            medianprops={"color": "#ffffff", "lw": 1}, whiskerprops=line, capprops=line,
        )  # fmt: skip
        ax.plot([], [], color=colour, lw=6, label=name)
    if at is not None:
        ax.axhline(at, color="#000000", ls="--", lw=1)
    ax.set_xticks(range(len(groups)), groups)
    ax.grid(visible=False, axis="x")
    across, up = labels.split("|")
    finish(ax, log, xlabel=across, ylabel=up, xlim=(-0.5, len(groups) - 0.5))


def lines(ax: Axes, x: Values, ys: Series, labels: str, log: str = "xy", **more: Any) -> None:
    """Draw named lines with markers; labels are those of both axes, by |."""
    for number, (name, y) in enumerate(ys.items()):
        kept = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
        if not kept:
            continue
        if len(kept) == 1:  # holds everywhere
            ax.axhline(kept[0][1], color="#000000", ls="--", lw=1.2, label=name)
        else:
            ax.plot(*zip(*kept, strict=True), ms=5, lw=1.3, **style(number), label=name)
    across, up = labels.split("|")
    ax.set(xlabel=across, ylabel=up)
    finish(ax, log, **more)


def points(
    ax: Axes, found: Points, labels: str, log: str = "x", beside: bool = True, **more: Any
) -> None:
    """Draw points with their names beside them; one without a place across is a line."""
    across, up = labels.split("|")
    ax.margins(y=0.1)
    spread = [y for _, y in found.values() if y is not None]
    near = 0.04 * (max(spread) - min(spread))
    for number, (name, (x, y)) in enumerate(found.items()):
        if y is None:
            ax.plot([], [], ls="", ms=7, **style(number), label=name)
        elif x is None:
            ax.axhline(y, ls="--", lw=1.3, color=COLOURS[number % 9], label=name)
        else:
            ax.plot([x], [y], ls="", ms=7, **style(number), label=name)
        if beside and y is not None:
            text = {"textcoords": "offset points", "fontsize": 8.5, "va": "center"}
            right = [u for u, v in found.values() if u and x and u > x and abs(v - y) < near]
            side, offset = ("right", (-7, 0)) if right else ("left", (7, 0))
            if x is None:
                text, offset = text | {"xycoords": ax.get_yaxis_transform()}, (0, 6)
            where = (0.01 if x is None else x, y)
            ax.annotate(name, where, offset, ha=side, **text)
    ax.set(xlabel=across, ylabel=up)
    finish(ax, log, **more)


def broken(name: str) -> str:
    """Return a long name on lines of its own."""
    return "\n".join(wrap(name, 24, break_long_words=False))


def style(number: int) -> dict[str, Any]:
    """Return colour and marker, which tell series apart in grey, too."""
    return {"color": COLOURS[number % 9], "marker": "osD^vPX*h<>"[number % 11]}
