"""What the figures share: the tables of the benchmark pages, and bars, lines and points.

A table is read from the Markdown of its page, so that a figure cannot disagree with it.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

PAGES = Path(__file__).parents[2] / "docs" / "benchmarks"
DRAWN = PAGES.parent / "_static" / "benchmarks"
# Okabe and Ito's colours, which differ for every kind of sight
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
COLOURS += ["#000000", "#8c8c8c", "#555555"]
PEERS = re.compile("(^|, )(GPflow|GPyTorch|PyTorch|GPBoost)")
STYLE = {"svg.hashsalt": "daskgp", "axes.grid": True, "grid.color": "#e6e6e6"}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
STYLE |= {"axes.titlesize": 10, "axes.axisbelow": True, "axes.linewidth": 0.6, "font.size": 9.5}
mpl.rcParams.update(STYLE)
PLAIN = FuncFormatter(lambda value, _: f"{value:,.12g}".replace("-", "−"))
Axes, Values = Any, Sequence[float | None]
Series, Points = Mapping[str, Values], Mapping[str, tuple[float | None, float | None]]


class Table:
    """Cells of a Markdown table."""

    def __init__(self, text: str) -> None:
        heads, _, *rows = ([c.strip() for c in s[1:-1].split("|")] for s in text.splitlines())
        self.heads, self.rows = [plain(cell) for cell in heads], rows

    @property
    def names(self) -> list[str]:
        """Return the first column."""
        return [plain(row[0]) for row in self.rows]

    def some(self, first: int, last: int | None) -> "Table":
        """Return the table with some of its rows."""
        found = copy(self)
        found.rows = self.rows[first:last]
        return found

    def column(self, at: int, part: int = 0) -> Values:
        """Return the numbers of a column, of cells with several the one in a place."""
        return [(numbers(row[at]) + [None] * 9)[part] for row in self.rows]

    def columns(self, *places: int, part: int = 0) -> dict[str, Values]:
        """Return some columns by their heads."""
        return {self.heads[at]: self.column(at, part) for at in places}

    def turns(self, at: int, names: str) -> dict[str, Values]:
        """Return a column whose rows take turns among some series, by their names."""
        series = names.split("|")
        return {name: self.column(at)[n :: len(series)] for n, name in enumerate(series)}

    def total(self, *places: int) -> Values:
        """Return the sums of some columns, row by row."""
        return [sum(v or 0.0 for v in row) for row in zip(*map(self.column, places), strict=True)]

    def ratio(self, at: int, to: int) -> Values:
        """Return a column as a multiple of another; none where one has no number."""
        pairs = zip(self.column(at), self.column(to), strict=True)
        return [a / b if a and b else None for a, b in pairs]

    def points(self, across: Values, up: Values, named: int = 0) -> Points:
        """Return the places of the rows in a plane, by their names."""
        names = [plain(row[named]).split(",")[0].split(" of ")[0] for row in self.rows]
        return dict(zip(names, zip(across, up, strict=True), strict=True))


Tables = Sequence[Table]
Part = Callable[[Axes, Tables], None]


def plain(text: str) -> str:
    """Return text without Markdown, and Greek letters as they are."""
    return re.sub(r"[`*$]", "", text).replace("\\gamma", "γ")


def numbers(cell: str) -> list[float]:
    """Return the numbers of a cell: none of a dash, or of a run that had not ended."""
    text = re.sub(r",(?=\d{3}\b)", "", cell.replace("−", "-"))
    found = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?", text)
    return [] if cell.startswith(">") else [float(number) for number in found]


def tables(page: str) -> list[Table]:
    """Return the tables of a page."""
    return [Table(text) for text in re.findall(r"(?:^\|.*\n)+", source(page), re.MULTILINE)]


def source(page: str) -> str:
    """Return the Markdown of a page."""
    return (PAGES / f"{page}.md").read_text()


def digest(page: str) -> str:
    """Return what tells the tables of a page from others."""
    rows = re.findall(r"^\|.*\n", source(page), re.MULTILINE)
    return hashlib.sha256("".join(rows).encode()).hexdigest()[:16]


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


# -- parts of figures, given the tables of a page ---------------------------------------------


def bar(table: int, column: int, label: str, **more: Any) -> Part:
    """Return a part with a bar for each row of a table."""

    def part(ax: Axes, t: Tables) -> None:
        bars(ax, t[table].names, t[table].column(column), label, **more)

    return part


def line(
    table: int, columns: int | Sequence[int], labels: str, log: str = "xy", part: int = 0,
    rows: int | None = None, **more: Any,
) -> Part:  # fmt: skip
    """Return a part with a line for some columns of a table against its first."""

    def drawn(ax: Axes, t: Tables) -> None:
        some = t[table].some(0, rows)
        ys = some.columns(*([columns] if isinstance(columns, int) else columns), part=part)
        lines(ax, some.column(0), ys, labels, log, **more)

    return drawn


def turn(table: int, column: int, names: str, label: str, right: float | None = None) -> Part:
    """Return a part with the rows of a column, which take turns among some series."""

    def part(ax: Axes, t: Tables) -> None:
        found = t[table].turns(column, names)
        dots(ax, t[table].names[:: len(found)], found, label, right)

    return part


def beside(t: Tables, height: float, *parts: Part) -> Figure:
    """Return a figure of parts side by side, whose series have their names above once."""
    drawn, axes = panels(len(parts), height)
    for ax, part in zip(axes, parts, strict=True):
        part(ax, t)
    named = [ax for ax in axes if len(ax.get_legend_handles_labels()[0]) > 1 and not ax.texts]
    groups = [ax.get_legend_handles_labels() for ax in named]
    shared = all(any(n in other for other in groups[0][1]) for _, names in groups for n in names)
    if shared and groups and len(named) == len(parts):
        drawn.legend(*groups[0], loc="outside upper center", ncols=min(4, len(groups[0][1])))
        return drawn
    for ax in named:
        sizes = [len(name) for name in ax.get_legend_handles_labels()[1]]
        columns = 3 if sum(sizes) < 25 else 2 if max(sizes) < 19 else 1
        place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.2}
        ax.legend(ncols=columns, columnspacing=1, handletextpad=0.4, **place)
    return drawn


def every_table(t: Tables, score: int, time: int) -> Figure:
    """Draw a score of every method against processor seconds, in a panel for each column."""
    drawn, axes = panels(8, 8.8, 4)
    for at, (ax, head) in enumerate(zip(axes, t[0].heads[1:], strict=True)):
        seconds = dict(zip(t[time].names, t[time].column(at + 1), strict=True))
        scores = zip(t[score].names, t[score].column(at + 1), strict=True)
        found = {name: (seconds.get(name), y) for name, y in scores}
        spread = [y for _, y in found.values() if y is not None]
        log = "xy" if min(spread) > 0 and max(spread) > 3 * min(spread) else "x"
        points(ax, found, f"|{t[score].heads[0]}", log, False, title=head, xlim=(15, 2_500))
    for ax in axes[-2:]:
        ax.set_xlabel("processor seconds of fit and prediction")
    handles, names = axes[0].get_legend_handles_labels()
    timed = [name if name in t[time].names else f"{name} (time not measured)" for name in names]
    drawn.legend(handles, timed, loc="outside upper center", ncols=3)
    return drawn


def broken(name: str) -> str:
    """Return a long name on lines of its own."""
    return "\n".join(wrap(name, 24, break_long_words=False))


def style(number: int) -> dict[str, Any]:
    """Return colour and marker, which tell series apart in grey, too."""
    return {"color": COLOURS[number % 9], "marker": "osD^vPX*h"[number % 9]}


def save(drawn: Figure, page: str, path: Path) -> None:
    """Write a figure as SVG, with the digest of the tables of its page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"Date": None, "Creator": None, "Description": f"tables {digest(page)}"}
    drawn.savefig(path, format="svg", metadata=about)
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
