"""Values that stand for missing ones: known fill values, and others far from the rest of a column.

A pass over the rows keeps, of each column, the outermost distinct values with their counts, and a
sample of rows whose *distinct* values have a spread that no repeated value distorts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Limits: TypeAlias = tuple[float, float]
Fills: TypeAlias = tuple[tuple[float, ...], ...]
"""Values of each column that read as missing."""

CLOSE, HUGE = 1e-6, 1e9
"""Relative difference up to which values are a huge fill value, such as one printed with few
digits, and the least size of these."""
ROUNDED = 2.0**-24
"""The same of others, such as one rounded to float32: a million is not 999999.9."""
KEPT, SAMPLED = 16, 1024
"""Distinct values kept at each end of a column, and rows in the sample."""
FAR = 5.0
"""Least gap before values that are told, in quartile ranges of the distinct others."""
OFTEN, TOGETHER = 5, 3
"""Times that a repeated value is more frequent than the next ones, and most such values told."""
LEAST_ROWS, LEAST_VALUES = 20, 10
"""Least rows of a column, and distinct values in the sample, for values to be told as far."""
CROWDED = 3.0
"""Least gap before a known fill value that is told, in ranges of the outermost others."""
BESIDE, SPACED = 0.375, 4.0
"""Least gap before a repeated value that is told beside distinct others, in ranges of all these and
in the largest of the gaps between the outermost ones."""
SHARE, REPEATED, OTHERS, DISTINCT = 0.01, 5, 40, 0.9
"""Least share and number of rows that have such a value, and number of others in the sample with
the share of them that are distinct."""
RARE, RARE_KNOWN, UNLIKELY = 1e-4, 1e-2, 0.2
"""Chance of as far a value under a tail like that of the others, below which one row is told, or
one with a known fill value, and below which a repeated or known value may be a fill value."""

SURE = (
    *(-float(f"{'9' * k}.{'9' * m}") for k in (3, 4, 5, 6) for m in (0, 1, 2) if k + m < 8),
    *(-32767.0, -32768.0, -999.25, -9999000.0, -2147483647.0, -2147483648.0, 2147483647.0),
    *(-9.99e8, -9.99e33, -9.2233720368547758e18, 9.2233720368547758e18, 1.8446744073709552e19),
    *(sign * value for sign in (1, -1) for value in (9.969209968386869e36, 9.969e36, 9.97e36)),
    *(sign * value for sign in (1, -1) for value in (9.999e20, 1e15)),
    *(sign * 10.0**power for sign in (1, -1) for power in range(19, 39)),
    *(sign * value for sign in (1, -1) for value in (3.4028234663852886e38, 3.4e38, 1.79e308)),
    *(1.7976931348623157e308, -1.7976931348623157e308),
)
"""Fill values that no measurement has."""
_REPEATED = (
    *(-99.0, -99.9, -99.99, -999.0, -777.0, -7777.0, -888.0, -8888.0),
    *(999.0, 999.9, 9999.0, 9999.9, 99999.0, 999999.0, 32767.0, 65535.0, 4294967295.0),
)
KNOWN = dict.fromkeys(SURE, 1) | dict.fromkeys(_REPEATED, 2)
"""Fill values in common use, and the least rows that have to have one."""
_KNOWN = np.array(sorted(KNOWN))
_MODEST = _KNOWN[np.abs(_KNOWN) < HUGE]
APART = {1: 1.0, 2: 10.0}
"""Least distance of a known fill value among places from those of the fit, in ranges of these, by
the rows that have to have it among rows."""
_APART = np.array([APART[KNOWN[v]] for v in _KNOWN])


class Ends(NamedTuple):
    """Outermost values of k columns, a sample of rows, and how many rows have given values."""

    rows: np.ndarray
    """Number of finite values (k,)."""
    values: np.ndarray
    """Lowest distinct values of each column and of its negative, ascending (k, 2, KEPT), or NaN."""
    counts: np.ndarray
    keys: np.ndarray
    sample: np.ndarray
    given: np.ndarray
    """Rows with each given value (k, g)."""


class Fill(NamedTuple):
    """A value of a column that is a fill value, or looks like one."""

    column: int
    value: float
    rows: int
    left_out: bool
    """True if it is taken for a missing value; else it is only told."""
    others: Limits
    """Lowest and highest of the other values."""


def matches(values: np.ndarray, fill: float) -> np.ndarray:
    """Return the mask of values that are a fill value, up to rounding."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.abs(values - fill) <= _slack(fill))


def _slack(fill: Any) -> Any:
    """Return how far from fill values a value may be."""
    size = np.abs(fill)
    return np.where(size < HUGE, ROUNDED, CLOSE) * size


def without(values: np.ndarray, fills: Fills) -> np.ndarray:
    """Return values (n, k) with NaN for the fill values of each column; themselves if none are."""
    found = None
    for j, own in enumerate(fills):
        for fill in own:
            wrong = matches(values[:, j], fill)
            if wrong.any():
                if found is None:
                    found = values.astype(np.result_type(values.dtype, np.float32))
                found[wrong, j] = np.nan
    return values if found is None else found


def far(values: np.ndarray, ranges: Sequence[Limits | None]) -> np.ndarray:
    """Return the mask of known fill values (n, k) far outside the ranges of their columns.

    Of a column whose range is not known there are none.
    """
    found = np.zeros(values.shape, bool)
    for j, limits in enumerate(ranges):
        if limits is None:
            continue
        size = limits[1] - limits[0] or 1.0 + abs(limits[0])
        out = np.flatnonzero((values[:, j] < limits[0] - size) | (values[:, j] > limits[1] + size))
        x = values[out, j].astype(np.float64)
        at = np.searchsorted(_KNOWN, x)
        for near in (np.maximum(at - 1, 0), np.minimum(at, len(_KNOWN) - 1)):
            same = np.abs(x - _KNOWN[near]) <= _slack(_KNOWN[near])
            away = np.maximum(limits[0] - x, x - limits[1]) >= _APART[near] * size
            found[out[same & away], j] = True
    return found


def lonely(values: np.ndarray, limits: Limits | None) -> float | None:
    """Return a known fill value among places (n,) that stands apart from all others.

    At least two others lie within the ``limits`` of the fit, and none beyond the middle between
    these and the value, so that no regular axis has one.  It is outside by the width of the limits,
    a positive one by more, or repeated and the only negative one.
    """
    if limits is None or limits[0] == limits[1]:  # predictions do not depend on a constant
        return None
    (low, high), size = limits, limits[1] - limits[0]
    values = values.astype(np.float64)  # the largest numbers are beyond those of float16
    out = ((values < low) | (values > high)) & (np.abs(values) < HUGE)
    if not out.any():
        return None
    each, counts = np.unique(values[out].astype(np.float64), return_counts=True)
    known = _MODEST[np.argmin(np.abs(each[:, None] - _MODEST), axis=1)]
    same = np.abs(each - known) <= _slack(known)
    within = np.unique(values[(values >= low) & (values <= high)])
    for fill, count in zip(each[same], counts[same], strict=True) if len(within) > 1 else ():
        gap = max(low - fill, fill - high)
        far = gap >= size * (1.0 if fill < 0.0 else CROWDED)
        sign = 1.0 if fill < low else -1.0
        others = sign * each[each != fill]
        if far and (others >= sign * fill + gap / 2.0).all():
            return float(fill)
        if count > 1 and fill < 0.0 <= low and (others > 0.0).all():
            return float(fill)
    return None


def united(one: Fills, other: Fills) -> Fills:
    """Return the fill values of both, by column; either may be empty for none at all."""
    if not one or not other:
        return one or other
    return tuple(tuple(dict.fromkeys(a + b)) for a, b in zip(one, other, strict=True))


def local(parts: Sequence[np.ndarray], keys: np.ndarray, given: Sequence[float] = ()) -> Ends:
    """Return the ends of the columns of one block's arrays (n, .), with a random key a row."""
    columns = [part[:, j] for part in parts for j in range(part.shape[1])]
    k = len(columns)
    rows, values = np.zeros(k), np.full((k, 2, KEPT), np.nan)
    counts, matching = np.zeros((k, 2, KEPT)), np.zeros((k, len(given)))
    for j, column in enumerate(columns):
        x = column.astype(np.float64)
        x = x[np.isfinite(x)]
        rows[j] = len(x)
        for side, signed in enumerate(_both_ends(x)):
            _put(values[j, side], counts[j, side], *signed)
        matching[j] = [np.count_nonzero(matches(x, fill)) for fill in given]
    first = np.argpartition(keys, SAMPLED)[:SAMPLED] if len(keys) > SAMPLED else slice(None)
    sample = np.column_stack([column[first].astype(np.float64) for column in columns])
    return Ends(rows, values, counts, keys[first], sample, matching)


def _both_ends(x: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return distinct values of x and their counts, and those of -x, the lowest KEPT at least."""
    if len(x) > 4 * SAMPLED:  # of many values only those are sorted that lie beyond some others
        some = np.unique(x[:: len(x) // SAMPLED])
        if len(some) > 2 * KEPT:
            outer = x[x <= some[KEPT]], -x[x >= some[-KEPT]]
            return [np.unique(end, return_counts=True) for end in outer]
    values, counts = np.unique(x, return_counts=True)
    return [(values, counts), (-values[::-1], counts[::-1])]


def _put(into: np.ndarray, counted: np.ndarray, values: np.ndarray, counts: np.ndarray) -> None:
    number = min(KEPT, len(values))
    into[:number], counted[:number] = values[:number], counts[:number]


def combine(a: Ends, b: Ends) -> Ends:
    """Return the ends of both sets of rows."""
    values, counts = np.full(a.values.shape, np.nan), np.zeros(a.counts.shape)
    for at in np.ndindex(*values.shape[:2]):
        both = np.concatenate([a.values[at], b.values[at]])
        number = np.concatenate([a.counts[at], b.counts[at]])[~np.isnan(both)]
        distinct, where = np.unique(both[~np.isnan(both)], return_inverse=True)
        _put(values[at], counts[at], distinct, np.bincount(where, number))
    keys, sample = np.concatenate([a.keys, b.keys]), np.concatenate([a.sample, b.sample])
    first = np.argsort(keys)[:SAMPLED]
    return Ends(a.rows + b.rows, values, counts, keys[first], sample[first], a.given + b.given)


def found(
    ends: Ends, measured: Sequence[bool], known: Sequence[Limits | None] | None = None
) -> list[Fill]:
    """Return the values that are fill values, and those that look like ones.

    Parameters
    ----------
    ends : Ends
    measured : sequence of k bools
        Columns of measurements; of others, such as classes and counts, values are only told that
        lie far above all others.
    known : sequence of k pairs or None, optional
        Lowest and highest value of each column that are known from other rows.
    """
    several: list[Fill] = []
    for j, own in enumerate(measured):
        column = _Column(ends, j, None if known is None else known[j])
        several += column.known()
        several += column.far() if own else column.odd_counts()
    return several


class _Column:
    """One column: its outermost values, and the spread of those that are not fill values."""

    def __init__(self, ends: Ends, column: int, known: Limits | None):
        self.column, self.rows, self.limits = column, ends.rows[column], known
        self.counts: dict[float, int] = {}
        for side, sign in enumerate((1.0, -1.0)):
            values, counts = ends.values[column, side], ends.counts[column, side]
            pairs = zip(sign * values, counts, strict=True)
            self.counts |= {float(v): int(c) for v, c in pairs if c}
        sample = ends.sample[:, column]
        self.table, self.sample = ends.sample, sample[np.isfinite(sample)]
        self.whole = bool((self.sample == np.rint(self.sample)).all())
        # ascending; where a column has more values, there are others between the two ends
        self.values = sorted(self.counts)
        low, high = (int((ends.counts[column, side] > 0).sum()) for side in (0, 1))
        self.ends = self.values[:low], self.values[::-1][:high]
        self.left_out: set[float] = set()

    def known(self) -> list[Fill]:
        """Return the known fill values that stand apart from the others."""
        candidates = {v: least for v in self.values if (least := _least_rows(v))}
        self.left_out = set(candidates)
        several = []
        middle = self._middle()
        for v in sorted(candidates, key=lambda v: abs(v - middle)):
            self.left_out.discard(v)
            sure = self._stands_apart(v) if self.counts[v] >= candidates[v] else None
            if sure is not None:
                several.append(self._fill(v, sure))
                self.left_out.add(v)
        return several

    def _stands_apart(self, v: float) -> bool | None:
        """Return True for a known value that is a fill value, False for one to tell, else None."""
        others = self._others(without=v)
        limits = self._range(others)
        if limits is None:
            return None
        gap = max(limits[0] - v, v - limits[1])
        side = [w for w in self.ends[int(v > limits[1])] if w in others]
        if gap <= 0 or self._chance(v, side, 1, without=(v,)) > UNLIKELY or _goes_on(v, others):
            return None
        if gap >= (limits[1] - limits[0]) * (1 - CLOSE):
            return True
        if self.counts[v] < 2:
            return None
        quartiles = self._quartiles(without=(v,))
        if quartiles is None or len(side) < LEAST_VALUES:
            return None
        if gap >= FAR * (quartiles[1] - quartiles[0]):
            return True
        alone = gap >= CROWDED * abs(side[-1] - side[0])
        often = v < 0 <= limits[0] and self.counts[v] >= OFTEN * max(self.counts[w] for w in side)
        return alone and often if alone or often else None

    def far(self) -> list[Fill]:
        """Return values far from all others, or repeated at an end far from them, to be told."""
        several: list[Fill] = []
        if self.rows < LEAST_ROWS:
            return several
        for end in self.ends:
            line = [v for v in end if v not in self.left_out]
            for number in range(min(TOGETHER, len(line) - 1), 0, -1):
                outer, inner = line[:number], line[number:]
                if self._is_far(outer, inner) or (number == 1 and self._is_beside(outer[0], inner)):
                    several += [self._fill(v, False) for v in outer]
                    break
        return several

    def odd_counts(self) -> list[Fill]:
        """Return counts or codes far above all others: one, or some that more rows have than one.

        255 or 99 among counts up to 14 for example, which no repeats at an end of a range show.
        """
        line = [v for v in self.ends[1] if v not in self.left_out]
        if not self.whole or self.rows < LEAST_ROWS:
            return []
        for number in range(min(TOGETHER, len(line) - 2), 0, -1):
            least, others = line[number - 1], self._others(without=line[0])
            below = [v for v in others if v < least]
            gap, size = least - line[number], line[number] - below[0]
            often = min(self.counts[v] for v in line[:number]) >= max(2, self.counts[line[number]])
            if gap >= (CROWDED if often else APART[2]) * size:
                return [self._fill(v, False) for v in line[:number]]
        return []

    def _is_far(self, outer: list[float], inner: list[float]) -> bool:
        """Return whether the outermost values of one end are far from the others.

        Repeated ones also are where they lie as far away as all others spread.
        """
        quartiles = self._quartiles(without=outer)
        if quartiles is None or len(inner) < 2:
            return False
        gap, limits = abs(outer[-1] - inner[0]), self._range(self._beside(outer))
        far = gap >= FAR * (quartiles[1] - quartiles[0])
        if not far and (limits is None or gap < limits[1] - limits[0]):
            return False
        chance = self._chance(outer[-1], inner, len(outer), without=outer)
        rare = RARE if _least_rows(outer[0]) is None else RARE_KNOWN
        if far and len(outer) == 1 and chance < rare and not self._counts_none(outer[0]):
            return True
        usual = max(self.counts[v] for v in inner)
        often = all(self.counts[v] >= OFTEN * usual for v in outer)
        return often and chance < UNLIKELY and not any(map(self._counts_none, outer))

    def _is_beside(self, v: float, inner: list[float]) -> bool:
        """Return whether an end repeats a value, and the others are distinct and not near it."""
        if self.counts[v] < max(REPEATED, SHARE * self.rows) or self._counts_none(v):
            return False
        limits = self._range(self._beside((v,)))
        others = self._sampled((v,))
        if limits is None or len(others) < OTHERS or not _are_distinct(others):
            return False
        gap, steps = max(limits[0] - v, v - limits[1]), np.abs(np.diff(inner))
        if gap < max(BESIDE * (limits[1] - limits[0]), SPACED * steps.max()):
            return False
        return self._chance(v, inner, 1, without=(v,)) < UNLIKELY and not self._is_place(v)

    def _is_place(self, v: float) -> bool:
        """Return whether another column has one value of its own, not v, in the rows that have v.

        So it is with coordinates of a station among those of places that are all distinct.
        """
        own = self.table[:, self.column] == v
        for other in self.table.T:
            here, elsewhere = other[own], other[~own]
            alike = len(here) > 1 and here[0] != v and bool((here == here[0]).all())
            apart = alike and here[0] not in elsewhere
            if apart and _are_distinct(elsewhere[np.isfinite(elsewhere)]):
                return True
        return False

    def _counts_none(self, v: float) -> bool:
        """Return whether a value is the zero of a column of counts."""
        return v == 0.0 and self.whole

    def _chance(
        self, v: float, inner: Sequence[float], number: int, without: Sequence[float]
    ) -> float:
        """Return the chance that ``number`` values reach v, if the tail is like that of ``inner``.

        Of a power-law tail, number * log of the ratio of its distance from the middle to the next
        one is to the mean of the others (Hill 1975) as two exponential variables; lighter tails
        make it smaller still.
        """
        middle, (low, high) = self._middle(without), self._quartiles(without, 1) or (0.0, 0.0)
        tail = [w for w in inner if (w >= high if v > middle else w <= low) and w != middle]
        away = np.array([abs(w - middle) for w in tail])
        if len(away) < 2:
            return 0.0
        hill, m = float(np.mean(np.log(away[:-1] / away[-1]))), len(away) - 1
        ratio = number * np.log(abs(v - middle) / away[0])
        return float((1.0 + ratio / (m * hill)) ** -m) if hill > 0 else 0.0

    def _others(self, without: float) -> list[float]:
        return [w for w in self.values if w not in self.left_out and w != without]

    def _beside(self, outer: Sequence[float]) -> list[float]:
        return [w for w in self.values if w not in self.left_out and w not in outer]

    def _range(self, others: Sequence[float]) -> Limits | None:
        """Return the range of other values; None if there are not two of them."""
        own = [*others, *(self.limits or ())]
        return (min(own), max(own)) if len({*own}) > 1 else None

    def _middle(self, without: Sequence[float] = ()) -> float:
        inside = self._sampled(without)
        if len(inside):
            return float(np.median(inside))
        limits = self._range([v for v in self.values if v not in self.left_out])
        return 0.0 if limits is None else sum(limits) / 2

    def _sampled(self, without: Sequence[float]) -> np.ndarray:
        out = [*self.left_out, *without]
        return self.sample[~np.isin(self.sample, out)] if out else self.sample

    def _quartiles(self, without: Sequence[float], least: int = LEAST_VALUES) -> Limits | None:
        """Return the quartiles of distinct values in the sample; None if there are too few."""
        distinct = np.unique(self._sampled(without))
        if len(distinct) < least:
            return None
        low, high = np.quantile(distinct, [0.25, 0.75]).tolist()
        return low, high

    def _fill(self, v: float, left_out: bool) -> Fill:
        others = self._others(without=v)
        low, high = self._range(others) or (v, v)
        return Fill(self.column, v, self.counts[v], left_out, (low, high))


def _are_distinct(values: np.ndarray) -> bool:
    """Return whether there are enough values, and nearly all of them are distinct."""
    number = len(np.unique(values))
    return number >= LEAST_VALUES and number >= DISTINCT * len(values)


def _goes_on(v: float, others: Sequence[float]) -> bool:
    """Return whether a value continues a few others that are evenly spaced by ratio."""
    if len(others) >= KEPT or min(others, default=0.0) <= 0 or v <= max(others):
        return False
    steps = np.diff(np.log(sorted([*others, v])))
    return bool(steps[-1] <= CROWDED * steps[:-1].mean()) if len(steps) > 1 else False


def _least_rows(v: float) -> int | None:
    """Return how many rows have to have a known fill value; None for other values."""
    with np.errstate(over="ignore"):
        at = int(np.argmin(np.abs(_KNOWN - v)))
    near = float(_KNOWN[at])
    return KNOWN[near] if matches(np.array(v), near) else None
