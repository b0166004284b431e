"""Features that are categories: the numbers that stand for their levels, and the codes of kernels.

A column of X holds the place of a name among the levels, from 0, or, where all names are numbers,
these numbers.  Kernels see places.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from daskgp.errors import InputError

SHOWN = 5
"""Levels that a message lists."""
TO_PREDICT = (
    "leave these rows out, fit again with such rows, or set unseen='new' (daskgp predict "
    "--unseen new) to take them for a level of which nothing is known"
)
TO_LEARN = (
    "leave these rows out, or train again on all rows, fit(..., start=model) or daskgp update "
    "--retrain"
)
"""Remedies for a level that a model does not know, in places and in more rows."""


def is_number(text: str) -> bool:
    """Return whether a text reads as a finite number."""
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


@lru_cache(maxsize=256)
def numbers_of(levels: tuple[str, ...]) -> np.ndarray | None:
    """Return the numbers (L,) that levels are; None where they are names."""
    if not levels or not all(map(is_number, levels)):
        return None
    found = np.array([float(name) for name in levels])
    found.flags.writeable = False
    return found


def of_numbers(values: np.ndarray) -> tuple[str, ...]:
    """Return the levels of a column of numbers, in their order; missing ones are none."""
    values = np.asarray(values, np.float64)
    return tuple(map(text_of, np.unique(values[~np.isnan(values)]).tolist()))


def text_of(number: float) -> str:
    """Return a number as the name of a level."""
    return f"{number:.15g}"


def shown(levels: Sequence[str]) -> str:
    """Return the first levels as a message lists them."""
    more = len(levels) - SHOWN
    return ", ".join(levels[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")


class UnseenError(InputError):
    """A level that a model does not know: a value of a feature with other ``levels``."""

    def __init__(
        self, name: str, value: str, levels: Sequence[str], remedy: str = TO_PREDICT
    ) -> None:
        super().__init__(
            f"feature {name!r} has {value}, which the fit has not seen; it knows {shown(levels)}: "
            f"{remedy}"
        )
        self.name, self.value, self.levels, self.remedy = name, value, levels, remedy

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        # workers send it to the client
        return type(self), (self.name, self.value, self.levels, self.remedy)

    def to_learn(self, own: Sequence[str]) -> UnseenError:
        """Return the error of rows to learn from, whose column has levels of its ``own``.

        Where these are names, one stands in the place of its number.
        """
        named = (
            self.value.isdigit() and int(self.value) < len(own) and numbers_of(tuple(own)) is None
        )
        value = repr(own[int(self.value)]) if named else self.value
        return UnseenError(self.name, value, self.levels, TO_LEARN)


def codes(name: str, values: np.ndarray, levels: tuple[str, ...], takes_new: bool) -> np.ndarray:
    """Return the places (n,) of numbers of a column of X among its levels; NaN stays.

    Others than the levels are those of a new one, after the last, if the model ``takes_new``.

    Raises
    ------
    InputError
        If there are others.
    """
    values = np.asarray(values, np.float64)
    known, numbers = ~np.isnan(values), numbers_of(levels)
    if numbers is None:
        numbers = np.arange(len(levels), dtype=np.float64)
        if takes_new:  # whoever turned names into places has told new ones
            numbers = np.append(numbers, len(levels))
    order = np.argsort(numbers)
    place = order[np.minimum(np.searchsorted(numbers, values, sorter=order), len(numbers) - 1)]
    other = known & (numbers[place] != values)
    if other.any() and not takes_new:
        raise UnseenError(name, f"{values[other][0]:.10g}", levels)
    found = np.where(other, float(len(levels)), place.astype(np.float64))
    return np.where(known, found, np.nan)


def numbers_at(places: np.ndarray, levels: tuple[str, ...]) -> np.ndarray:
    """Return the numbers of X that stand for the levels nearest to places (n,)."""
    nearest = np.clip(np.round(places), 0, max(len(levels) - 1, 0))
    numbers = numbers_of(levels)
    return nearest if numbers is None else numbers[nearest.astype(int)]
