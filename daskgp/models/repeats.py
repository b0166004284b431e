"""Counts of rows that have the same values, from one pass over rows in any order.

The K smallest hashes of all distinct rows, with the number of rows of each, are a random sample of
distinct rows with all copies of each counted: the bottom-k sketch of Cohen & Kaplan (2007).  The
sketches of two sets of rows give that of both, and below K distinct rows nothing is left out, so
the counts are exact.
"""

from __future__ import annotations

import numpy as np

SIZE = 512
"""Number K of distinct rows that are kept."""
SHARE = 0.1
"""Share of repeating rows from which a log message is worthwhile."""
CHANCE = 0.95
"""Distinct rows, as a share of those that rounding alone would leave, below which rows repeat."""
CROWDING = 10.0
"""Factor by which rows may lie denser than evenly in the cells of rounded values."""
DIGITS = 4
"""Significant digits up to which values count as rounded."""

_NONE = np.uint64(2**64 - 1)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def hashes(rows: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return hashes (n,) uint64 of rows (n, k) without missing values: equal if all values are.

    Those of another ``seed``, of 64 bits, are independent of them.
    """
    bits = np.ascontiguousarray(rows + 0.0, np.float64).view(np.uint64)  # -0 becomes 0
    hashed = np.full(len(rows), seed, np.uint64)
    for column in bits.T:  # SplitMix64, Steele, Lea & Flood (2014)
        hashed ^= column
        hashed += _STEP
        hashed ^= hashed >> np.uint64(30)
        hashed *= _FACTORS[0]
        hashed ^= hashed >> np.uint64(27)
        hashed *= _FACTORS[1]
        hashed ^= hashed >> np.uint64(31)
    return hashed


def checksum(rows: np.ndarray) -> int:
    """Return the sum modulo 2^64 of the hashes of rows (n, k), whatever their order.

    Those of two sets of rows add up to that of both.
    """
    return int(hashes(rows).sum(dtype=np.uint64))


def local(rows: np.ndarray) -> np.ndarray:
    """Return the sketch (2, K) of rows (n, k): rising hashes, and how many rows have each."""
    hashed = hashes(rows)
    if len(hashed) > 8 * SIZE:  # most need no sorting, unless few are distinct
        smallest = hashed[hashed <= np.partition(hashed, 4 * SIZE)[4 * SIZE]]
        sketch = _sketch(*np.unique(smallest, return_counts=True))
        if exact_count(sketch) is None:
            return sketch
    return _sketch(*np.unique(hashed, return_counts=True))


def combine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sketch of both sets of rows."""
    hashed, counts = np.concatenate([a, b], axis=1)
    distinct, place = np.unique(hashed, return_inverse=True)
    return _sketch(distinct, np.bincount(place, counts.astype(np.float64), len(distinct)))


def _sketch(distinct: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the first K hashes in rising order; an empty slot has the largest one and no rows."""
    sketch = np.stack([np.full(SIZE, _NONE), np.zeros(SIZE, np.uint64)])
    number = min(len(distinct), SIZE)
    sketch[0, :number], sketch[1, :number] = distinct[:SIZE], counts[:SIZE]
    sketch[1, sketch[0] == _NONE] = 0
    return sketch


def exact_count(sketch: np.ndarray) -> int | None:
    """Return the number of distinct rows; None if there are K or more."""
    number = int((sketch[1] > 0).sum())
    return number if number < SIZE else None


def distinct(sketch: np.ndarray) -> float:
    """Estimate the number of distinct rows, as many as the hashes that are kept lie densely."""
    number = exact_count(sketch)
    if number is not None:
        return float(number)
    return (SIZE - 1) * 2.0**64 / float(sketch[0, -1])


def of_sketch(sketch: np.ndarray) -> tuple[float, float]:
    """Estimate the share of rows that repeat another, and the number of rows per distinct one."""
    counts = sketch[1][sketch[1] > 0].astype(np.float64)
    if not len(counts):
        return 0.0, 1.0
    return float(counts[counts > 1].sum() / counts.sum()), float(counts.mean())


def telling(sketch: np.ndarray, n: float, sample: np.ndarray) -> bool:
    """Return True if rows (n, d) repeat more than rounding, as on a measuring scale, explains.

    ``sample`` (N, d) are some of the rows, which show how fine a grid their values lie on.
    """
    share, per_row = of_sketch(sketch)
    cells = float(np.prod([_cells(column) for column in sample.T])) / CROWDING
    by_chance = n if not np.isfinite(cells) else cells * -np.expm1(-n / max(cells, 1.0))
    return share >= SHARE and n / per_row < CHANCE * by_chance


def _cells(values: np.ndarray) -> float:
    """Return how many values a column can take between its ends; infinite if not rounded.

    Values are rounded if the smallest gap is wider than chance would leave it, or if they have
    few digits.
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
    """Return True if all values have few significant digits."""
    values = values[values != 0.0]
    unit = 10.0 ** (np.floor(np.log10(np.abs(values))) + 1 - DIGITS)
    scaled = values / unit
    return bool((np.abs(scaled - np.rint(scaled)) < 1e-6).all())
