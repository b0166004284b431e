"""Parts of figures, given the tables of a page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from drawing.marks import Axes, bars, dots, lines, panels, points
from drawing.pages import Tables, digest

Part = Callable[[Axes, Tables], None]


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


def every_table(
    t: Tables,
    score: int,
    time: int,
    xlim: tuple[float, float] = (3, 4_000),
    label: str = "processor seconds of fit and prediction",
) -> Figure:
    """Draw a score of every method against processor seconds, in a panel for each column."""
    drawn, axes = panels(8, 8.8, 4)
    for at, (ax, head) in enumerate(zip(axes, t[0].heads[1:], strict=True)):
        seconds = dict(zip(t[time].names, t[time].column(at + 1), strict=True))
        scores = zip(t[score].names, t[score].column(at + 1), strict=True)
        found = {name: (seconds.get(name), y) for name, y in scores}
        spread = [y for _, y in found.values() if y is not None]
        log = "xy" if min(spread) > 0 and max(spread) > 3 * min(spread) else "x"
        points(ax, found, f"|{t[score].heads[0]}", log, False, title=head, xlim=xlim)
    for ax in axes[-2:]:
        ax.set_xlabel(label)
    handles, names = axes[0].get_legend_handles_labels()
    timed = [name if name in t[time].names else f"{name} (time not measured)" for name in names]
    drawn.legend(handles, timed, loc="outside upper center", ncols=3)
    return drawn


def save(drawn: Figure, page: str, path: Path) -> None:
    """Write a figure as SVG, with the digest of the tables of its page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"Date": None, "Creator": None, "Description": f"tables {digest(page)}"}
    drawn.savefig(path, format="svg", metadata=about)
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
