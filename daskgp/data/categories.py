"""Columns of text and categories: numbers in their place, and the names that these stand for."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Number
from typing import Any, NamedTuple, TypeAlias

import dask.array as da
import numpy as np
import zarr

from daskgp.data import reading
from daskgp.errors import InputError
from daskgp.models import categories
from daskgp.models.categories import UnseenError, is_number, numbers_of, shown

logger: logging.Logger = logging.getLogger("daskgp")

CATEGORIES = "categories"
"""Attribute of a dataset store with the levels of its features that are categories."""
MOST = 1_000
"""Most levels of a feature."""
FEW = 20
"""Rows below which one level a row is not told."""

Levels: TypeAlias = Mapping[str, tuple[str, ...]]
"""Names of the levels of features that are categories, by the names of the features."""


# -- names ---------------------------------------------------------------------------------------


def is_missing(value: Any) -> bool:
    """Return whether a value of a column of text is a missing one: none, NaN or nothing."""
    if isinstance(value, str):
        return not value.strip()
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA is neither
        return True


def names_of(values: Iterable[Any]) -> tuple[str, ...] | None:
    """Return the levels that values of a column are, in order; None for what are no names.

    Text that reads as a number, a time or a number with commas is no name of a category.
    """
    present = [value for value in values if not is_missing(value)]
    if not present or not all(isinstance(value, str) for value in present):
        return None
    names = tuple(sorted({str(value) for value in present}))
    return None if any(map(_is_other, names)) else names


def _is_other(name: str) -> bool:
    """Return whether a text is more likely a number or a time than a name."""
    plain = name.strip()
    return (
        is_number(plain)
        or bool(re.fullmatch(reading.COMMAS, plain))
        or bool(re.match(reading.DATE, plain))
    )


def check(name: str, levels: Sequence[str], rows: float = np.inf) -> None:
    """Raise InputError for a feature with too many levels; warn of nearly one in each row."""
    if len(levels) > MOST:
        raise InputError(
            f"feature {name!r} has {len(levels):,} different values ({shown(levels)}), and a "
            f"category at most {MOST:,}: leave the column out, or group its values"
        )
    if FEW <= rows < 2 * len(levels):
        logger.warning(
            "feature %r has %d different values in %d rows, as if each named a row: leave it "
            "out, unless rows of the same value are alike",
            *(name, len(levels), int(rows)),
        )


class Coding(NamedTuple):
    """Feature of text whose levels are known; ``takes_new`` says what others are.

    They are a new level of a model that takes them, after the last, and are refused else.
    """

    name: str
    levels: tuple[str, ...]
    takes_new: bool = False

    def of(self, values: Any) -> np.ndarray:
        """Return the numbers of X for texts (...), NaN for missing ones.

        Raises
        ------
        InputError
            For a text that is no level.
        """
        numbers = numbers_of(self.levels)
        places = range(len(self.levels)) if numbers is None else numbers
        number = dict(zip(self.levels, map(float, places), strict=True))
        own = np.asarray(values, object)
        found = np.full(own.shape, np.nan)
        for at, value in np.ndenumerate(own):
            if not is_missing(value):
                found[at] = self._number(number, value)
        return found

    def _number(self, number: Mapping[str, float], value: Any) -> float:
        text = _text(value)
        known = number.get(text)
        if known is not None:
            return known
        if not self.takes_new:
            raise UnseenError(self.name, repr(text), self.levels)
        numbers = numbers_of(self.levels)
        return float(len(self.levels) if numbers is None else numbers.max() + 1.0)


class Recoding(NamedTuple):
    """Feature that a store has by other places of its levels than a model."""

    name: str
    own: tuple[str, ...]
    levels: tuple[str, ...]
    takes_new: bool = False

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the numbers (n,) of the model for those of the store; InputError for others."""
        places = categories.codes(self.name, values, self.own, False)
        known = ~np.isnan(places)
        present = np.unique(places[known]).astype(int)
        table = np.full(len(self.own), np.nan)
        coding = Coding(self.name, self.levels, self.takes_new)
        table[present] = coding.of([self.own[place] for place in present])
        found = np.full(np.shape(values), np.nan)
        found[known] = table[places[known].astype(int)]
        return found


def recodings(
    names: Sequence[str], own: Levels, known: Levels, takes_new: bool
) -> list[Recoding | None]:
    """Return what turns the numbers of columns into those of a model, None for nothing.

    ``own`` are the levels of the columns as far as they are said, ``known`` those of the model.
    """
    found: list[Recoding | None] = []
    for name in names:
        said, wanted = own.get(name, ()), known.get(name, ())
        same = not said or not wanted or said == wanted
        plain = all(numbers_of(levels) is not None for levels in (said, wanted))
        found.append(None if same or plain else Recoding(name, said, wanted, takes_new))
    return found


def stored(said: Any) -> dict[str, tuple[str, ...]]:
    """Return the levels that an attribute says; nothing of what is none."""
    if not isinstance(said, Mapping):
        return {}
    return {
        str(name): tuple(map(str, levels))
        for name, levels in said.items()
        if isinstance(levels, list | tuple)
    }


@contextmanager
def to_learn(levels: Levels) -> Iterator[None]:
    """Say what takes more rows with a level that a model does not know, and its name.

    ``levels`` are those of the rows, as far as they are known.
    """
    try:
        yield
    except UnseenError as error:
        raise error.to_learn(levels.get(error.name, ())) from None


# -- numbers -------------------------------------------------------------------------------------


def distinct(name: str, X: Any, j: int, fills: Sequence[float] = ()) -> tuple[str, ...]:
    """Return the levels of a column of numbers of a NumPy, Zarr or Dask array X (n, d).

    NaN and ``fills`` are missing values.

    Raises
    ------
    InputError
        For numbers that are not whole, or too many different ones.
    """
    if isinstance(X, zarr.Array):
        X = reading.from_zarr(X)
    values = da.unique(X[:, j]).compute() if isinstance(X, da.Array) else np.unique(X[:, j])
    values = np.asarray(values, np.float64)
    values = values[~np.isnan(values) & ~np.isin(values, fills)]
    odd = values[values != np.floor(values)]
    if len(odd):
        raise InputError(
            f"feature {name!r} is a category of the kernel and has {odd[0]:g}, which is not a "
            "whole "
            "number: give text, whole numbers or pandas categories"
        )
    levels = categories.of_numbers(values)
    check(name, levels)
    return levels


# -- frames --------------------------------------------------------------------------------------


def coded(
    X: Any, known: Levels | None = None, names: Sequence[str] = (), takes_new: bool = False
) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """Return a data frame with numbers for its text and categories, and the levels of these.

    All else stays as it is.

    Parameters
    ----------
    X : object
        Data frames of pandas and Dask, Arrow tables, and what makes a frame of pandas.
    known : mapping, optional
        Levels that a model knows, by which its columns are coded; else they follow from X.
    names : sequence of str, optional
        What the model calls the columns, in order.
    takes_new : bool
        Whether levels that the model does not know are those of a new one.

    Raises
    ------
    InputError
        For a level that the model does not know, or too many of them.
    """
    texts = [name for name, dtype in _types(X) if _may_be_text(dtype)]
    if not texts or not all(isinstance(name, str) for name, _ in _types(X)):
        return X, {}
    frame = X if is_frame(X) else X.to_pandas()
    columns, found = list(frame.columns), dict[str, tuple[str, ...]]()
    called = dict(zip(columns, names, strict=False))
    for name in (name for name in texts if columns.count(name) == 1):
        own = called.get(name, name)
        levels = known.get(own) if known is not None else levels_of_column(frame[name])
        if levels is not None:
            found[name] = levels
            frame = frame.assign(**{name: _numbers(frame[name], Coding(own, levels, takes_new))})
            if known is None:
                check(name, levels, np.inf if hasattr(frame, "npartitions") else len(frame))
    return (frame if found else X), found


def _types(X: Any) -> list[tuple[Any, Any]]:
    """Return the names and types of the columns of a frame; none of all else."""
    if is_frame(X):
        return list(X.dtypes.items())
    if not hasattr(X, "to_pandas") or not hasattr(X, "columns"):
        return []
    empty = X.schema.empty_table() if hasattr(X, "column_names") else X[:0]
    return list(empty.to_pandas().dtypes.items())


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame of pandas or Dask."""
    return getattr(X, "ndim", 0) == 2 and hasattr(X, "dtypes") and hasattr(X, "assign")


def _may_be_text(dtype: Any) -> bool:
    """Return whether a column of a type may hold text or categories."""
    return hasattr(dtype, "categories") or getattr(dtype, "kind", "O") in "OUST"


def levels_of_column(column: Any) -> tuple[str, ...] | None:
    """Return the levels of a column of a frame, categories in their order; None for no names."""
    values = column.unique()
    values = np.asarray(values.compute() if hasattr(values, "compute") else values, object)
    if not hasattr(column.dtype, "categories"):
        return names_of(values)
    present = [value for value in values if not is_missing(value)]
    ordered = getattr(column.dtype, "categories", ())
    if present and all(isinstance(value, Number) for value in present):
        return categories.of_numbers(np.array(present, np.float64))
    if not all(isinstance(value, str | bool | np.bool_) for value in present):
        return None
    texts = {_text(value) for value in present}
    order = [text for text in map(_text, ordered) if text in texts] or sorted(texts)
    return tuple(order) or None


def _numbers(column: Any, coding: Coding) -> Any:
    """Return a column of a frame by the numbers of its texts."""
    if hasattr(column, "map_partitions"):
        return column.map_partitions(_numbers, coding, meta=(column.name, "f8"))
    return type(column)(coding.of(column.to_numpy()), index=column.index, name=column.name)


def _text(value: Any) -> str:
    """Return the name of a level; that of a number is as of columns of numbers."""
    is_plain = isinstance(value, Number) and not isinstance(value, bool | np.bool_)
    return categories.text_of(float(value)) if is_plain else str(value)
