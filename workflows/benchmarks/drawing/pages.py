"""Tables of the benchmark pages, read from their Markdown."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path

PAGES = Path(__file__).parents[3] / "docs" / "benchmarks"
DRAWN = PAGES.parent / "_static" / "benchmarks"
Values = Sequence[float | None]
Series = Mapping[str, Values]
Points = Mapping[str, tuple[float | None, float | None]]


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
