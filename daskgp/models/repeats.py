"""Rows that have the same values, counted in one pass over rows in any order.

The K smallest hashes of all distinct rows, with the number of rows of each, are a random sample of
distinct rows that knows all the copies of each: that of the bottom-k sketch of Cohen & Kaplan
(2007).  Those of two sets of rows give those of both, and below K distinct rows nothing is left
out, so the counts are exact.
"""

from __future__ import annotations

import numpy as np

SIZE = 512
"""Distinct rows K that are kept."""
SHARE = 0.1
"""Share of rows that repeat others from which it is worth a line."""
CHANCE = 0.95
"""Distinct rows, as a share of what rounding alone would leave, below which rows do repeat."""
CROWDING = 10.0
"""How much denser than evenly rows may lie in the cells of rounded values."""
DIGITS = 4
"""Significant digits up to which values are rounded ones."""

_NONE = np.uint64(2**64 - 1)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def hashes(rows: np.ndarray) -> np.ndarray:
    """Hashes (n,) uint64 of rows (n, k) without missing values: equal where all values are."""
    bits = np.ascontiguousarray(rows + 0.0, np.float64).view(np.uint64)  # -0 is 0
    found = np.zeros(len(rows), np.uint64)
    for column in bits.T:  # SplitMix64, Steele, Lea & Flood (2014)
        found ^= column
        found += _STEP
        found ^= found >> np.uint64(30)
        found *= _FACTORS[0]
        found ^= found >> np.uint64(27)
        found *= _FACTORS[1]
        found ^= found >> np.uint64(31)
    return found


def local(rows: np.ndarray) -> np.ndarray:
    """Sketch (2, K) of rows (n, k): hashes in rising order, and how many rows have each."""
    found = hashes(rows)
    if len(found) > 8 * SIZE:  # most need not be sorted, unless few are distinct
        few = found[found <= np.partition(found, 4 * SIZE)[4 * SIZE]]
        sketch = _sketch(*np.unique(few, return_counts=True))
        if exact_count(sketch) is None:
            return sketch
    return _sketch(*np.unique(found, return_counts=True))


def combine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sketch of both sets of rows."""
    found, counts = np.concatenate([a, b], axis=1)
    distinct, place = np.unique(found, return_inverse=True)
    return _sketch(distinct, np.bincount(place, counts.astype(np.float64), len(distinct)))


def _sketch(distinct: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The first K of hashes in rising order; an empty place has the largest one, of no row."""
    sketch = np.stack([np.full(SIZE, _NONE), np.zeros(SIZE, np.uint64)])
    number = min(len(distinct), SIZE)
    sketch[0, :number], sketch[1, :number] = distinct[:SIZE], counts[:SIZE]
    sketch[1, sketch[0] == _NONE] = 0
    return sketch


def exact_count(sketch: np.ndarray) -> int | None:
    """Number of distinct rows; None where there are K or more."""
    number = int((sketch[1] > 0).sum())
    return number if number < SIZE else None


def of_sketch(sketch: np.ndarray) -> tuple[float, float]:
    """Share of the rows that repeat another, and rows per distinct one, estimated."""
    counts = sketch[1][sketch[1] > 0].astype(np.float64)
    if not len(counts):
        return 0.0, 1.0
    return float(counts[counts > 1].sum() / counts.sum()), float(counts.mean())


def telling(sketch: np.ndarray, n: float, sample: np.ndarray) -> bool:
    """True if rows (n, d) repeat more than values that are rounded, as read off a scale, would.

    ``sample`` (N, d) are some of them: on how fine a grid their values lie.
    """
    share, per_row = of_sketch(sketch)
    cells = float(np.prod([_cells(column) for column in sample.T])) / CROWDING
    by_chance = n if not np.isfinite(cells) else cells * -np.expm1(-n / max(cells, 1.0))
    return share >= SHARE and n / per_row < CHANCE * by_chance


def _cells(values: np.ndarray) -> float:
    """Number of values that a column can take between its ends; infinite if they are not rounded.

    They are where the smallest gap is wider than chance would leave it, or where they have few
    digits.
    """
    distinct = np.unique(values)
    number = len(distinct)
    if number == 1:
        return 1.0
    cells = float((distinct[-1] - distinct[0]) / np.diff(distinct).min() + 1.0)
    if cells <= max(number**2 / 20, 10 * number):
        return cells
    return 10.0 * number if _few_digits(distinct) else np.inf


def _few_digits(values: np.ndarray) -> bool:
    """True if values are those of few significant digits."""
    values = values[values != 0.0]
    unit = 10.0 ** (np.floor(np.log10(np.abs(values))) + 1 - DIGITS)
    scaled = values / unit
    return bool((np.abs(scaled - np.rint(scaled)) < 1e-6).all())
