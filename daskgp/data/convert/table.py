"""Named columns of a source whose rows come in blocks, and what is said of those not read."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from daskgp.checks import meant
from daskgp.data import feature_units
from daskgp.data.categories import Coding
from daskgp.data.gridded import readable
from daskgp.data.valid import Valid
from daskgp.errors import InputError

Names: TypeAlias = tuple[str, ...]

Kind: TypeAlias = str | Coding
"""Content of a column: a word, or text with the levels that it has."""

NAMING = "with --features or features="
REMEDY = f"leave it out by naming the features to use, {NAMING}"
MOST_NAMED = 10
"""Most features that a remedy names."""
OF_TARGET = (
    "a target needs numbers: correct such cells or leave them empty; write two classes as 0 and 1"
)
WRITE_TIMES = (
    "write its times as 2021-03-04T05:06:07 or as numbers, such as seconds since an epoch, or "
    f"{REMEDY}"
)

OF_MODEL = "feature of the model"
"""What a column is that a prediction has to find under its own name."""
PUBLIC = "for a public bucket add --storage-options anon=true (storage_options= in Python)"

EMPTY = "is empty"
"""Reason why a column without any value is no feature by default."""
NUMBERS, TIMES, MISSING = "numbers", "times", "missing values alone"
"""Kinds of columns that are read."""


class ColumnError(InputError):
    """Columns whose content is not read; ``args`` are their names, what was seen, the remedy."""

    def __str__(self) -> str:
        _, seen, remedy = self.args
        return f"{seen}: {remedy}"

    def naming(self, features: Names) -> ColumnError:
        """Return the error with the features that are left in its remedy, if they are few."""
        names, seen, remedy = self.args
        left = [name for name in features if name not in names]
        if not 0 < len(left) <= MOST_NAMED or any("," in name for name in left):
            return self
        listed = f"with --features {shlex.quote(','.join(left))} (features= in Python)"
        return ColumnError(names, seen, remedy.replace(NAMING, listed))


class Other(NamedTuple):
    """Content of a column that is not read, and what to do about it in a feature."""

    seen: str
    remedy: str = REMEDY
    row: int = 0
    """Number of the row that holds it, if it is the only one."""

    def error(self, name: str, source: str, targets: Names) -> ColumnError:
        """Return the error that names the column of a source."""
        remedy = (
            self.remedy if not self.row else f"correct or delete row {self.row}, or {self.remedy}"
        )
        if name in targets:
            remedy = OF_TARGET + (f"; or delete row {self.row}" if self.row else "")
        return ColumnError((name,), f"column {name!r} of {source} {self.seen}", remedy)


@dataclass(frozen=True)
class Table:
    """Columns of a source.

    ``kinds(names)`` tells those of columns (`NUMBERS`, `TIMES` or `MISSING`) and raises InputError
    for all others; ``blocks(kinds, rows)`` yields float64 arrays (r, len(kinds)) of about ``rows``
    rows, the columns in order and times as days since 1970. ``defaults`` are the features if none
    are named (less the targets). ``gridded`` says that points without a target are to be left
    out; ``matrices`` are the columns of arrays that may be named as a whole, and ``listing``
    describes the contents where they are more than the columns. ``attributes`` are those of the
    columns of a grid, such as their units, and ``zeros`` the columns that mask where they are 0.
    ``rows`` are all rows, where the source says so before they are read, and ``unused`` the columns
    that are no default features because of what they hold, with the reason.  ``bare`` are sizes of
    the dimensions of a grid that have no coordinate.  ``valid`` tells
    what values of columns of a grid are measurements, and ``check_mask(name)`` raises InputError
    for one that would leave out nothing.  ``levels(names)`` reads those of columns of text that is
    neither numbers nor times, and none of others; blocks with their `Coding` as a kind have their
    places.  ``reference`` says the coordinate reference system of a grid, if it does.
    """

    columns: Names
    targets: Names
    defaults: Names
    kinds: Callable[[Names], dict[str, str]]
    blocks: Callable[[Mapping[str, Kind], int], Iterator[np.ndarray]]
    gridded: bool = False
    matrices: Mapping[str, Names] = field(default_factory=dict)
    listing: str = ""
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    zeros: Names = ()
    rows: int | None = None
    unused: Mapping[str, str] = field(default_factory=dict)
    bare: Mapping[str, int] = field(default_factory=dict)
    valid: Mapping[str, Valid] = field(default_factory=dict)
    check_mask: Callable[[str], None] = field(default=lambda name: None)
    levels: Callable[[Names], dict[str, Names]] = field(default=lambda names: {})
    reference: Mapping[str, Any] = field(default_factory=dict)

    def unit(self, name: str) -> str:
        """Return the unit of a column, empty where it says none."""
        return feature_units.said_by(self.attributes.get(name, {}))

    def read(self, kinds: Mapping[str, Kind], rows: int, source: str) -> Iterator[np.ndarray]:
        """Yield blocks of columns; explain errors of reading, not those of the consumer."""
        blocks = self.blocks(kinds, rows)
        while True:
            with reading(source):
                block = next(blocks, None)
            if block is None:
                return
            yield block


def no_ends(columns: int) -> np.ndarray:
    """Return the least and the largest values (2, columns) of no rows."""
    return np.repeat([[np.inf], [-np.inf]], columns, axis=1)


def add_ends(ends: np.ndarray, rows: np.ndarray) -> None:
    """Add rows (r, columns) to those that least and largest values are of."""
    ends[0] = np.fmin(ends[0], np.fmin.reduce(rows, axis=0, initial=np.inf))
    ends[1] = np.fmax(ends[1], np.fmax.reduce(rows, axis=0, initial=-np.inf))


def compared(
    blocks: Iterator[np.ndarray],
    kinds: Mapping[str, Kind],
    before: np.ndarray,
    what: str,
    where: str,
    far: bool = False,
    place: Collection[str] = (),
) -> Iterator[np.ndarray]:
    """Yield blocks of columns, then warn of those in another unit than rows before, or swapped.

    ``before`` are the ends (2, columns) of these, to which the blocks are added; ``what`` and
    ``where`` are what messages call the rows of both.  Also told are columns that are ``far`` from
    these; ``place`` are longitude and latitude on the sphere.
    """
    own = no_ends(len(kinds))
    for block in blocks:
        add_ends(own, block)
        yield block
    ranges = {
        name: (ends, others)
        for (name, kind), ends, others in zip(kinds.items(), own.T, before.T, strict=True)
        if kind == NUMBERS and np.isfinite([ends, others]).all()
    }
    feature_units.warn_of_changes(ranges, what, where, far, place=place)
    add_ends(before, own)


def reading(source: str) -> AbstractContextManager[None]:
    """Turn what readers raise for a damaged file into a one-line InputError."""
    return readable(source, PUBLIC)


def check_known(what: str, names: Names, there: Collection[str], source: str) -> None:
    """Raise InputError for the first name that is missing, with the list of those that exist."""
    for name in names:
        if name not in there:
            shown = ", ".join(list(there)[:20]) or "no columns"
            more = f" and {len(there) - 20} more" if len(there) > 20 else ""
            only = next(iter(there)) if len(there) == 1 else ""  # a whole header, perhaps
            mark = next((mark for mark in ";\t|" if mark in only), None)
            if mark:
                more += (
                    f": write the file with commas instead of {mark!r} and points in its numbers, "
                    f"for example from pandas.read_csv(file, sep={mark!r}, decimal=',') where it "
                    "has decimal commas"
                )
            else:
                more += f": {_how_named(what, name, there)}"
            raise InputError(f"{what} {name!r} is not in {source}, which has {shown}{more}")


def _how_named(what: str, name: str, there: Collection[str]) -> str:
    """Return what to do about a name that is not there."""
    if not there:
        return "choose a source that has it"
    if all(map(_is_number, there)):
        return "its first line has to name the columns"
    if what == OF_MODEL:
        return meant(name, there, "rename a column to it, or add it")
    option = {"target": " with --target", "feature": " with --features"}.get(what, "")
    return meant(name, there, f"name one of these{option}, or rename a column")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def refusing(
    source: str, found: Mapping[str, str | Other], targets: Names
) -> Callable[[Names], dict[str, str]]:
    """Return ``Table.kinds`` for what the columns of a source are found to hold."""

    def kinds(names: Names) -> dict[str, str]:
        known, others = {}, {}
        for name in names:
            kind = found[name]
            if isinstance(kind, Other):
                others[name] = kind
            else:
                known[name] = kind
        for name, other in others.items():
            if len(others) == 1 or name in targets:
                raise other.error(name, source, targets)
        if others:
            name, other = next(iter(others.items()))
            raise ColumnError(
                tuple(others),
                f"columns {', '.join(map(repr, others))} of {source} hold neither numbers nor "
                f"times ({name!r} {other.seen})",
                f"leave them out by naming the features to use, {NAMING}",
            )
        return known

    return kinds


def kind_of(dtype: Any) -> str | Other:
    """Return the kind of a column of a NumPy type."""
    if dtype.kind in "fiub":
        return NUMBERS
    if dtype.kind == "M":
        return TIMES
    if dtype.kind == "O":
        return Other("holds Python objects, which convert cannot read")
    return Other(f"has type {dtype}, not numbers")


Reader: TypeAlias = Callable[[str, Names], AbstractContextManager[Table]]
