"""Places along a Hilbert curve: neighbours on it are neighbours in space."""

from __future__ import annotations

import numpy as np


def quantised(place: np.ndarray, bits: int) -> np.ndarray:
    """Return places from 0 to 1 as unsigned integers of some bits."""
    cells = (np.clip(place, 0.0, 1.0) * 2.0**bits).astype(np.uint64)
    return np.minimum(cells, np.uint64(2**bits - 1))


def hilbert_keys(places: np.ndarray, bits: int) -> np.ndarray:
    """Return places along the Hilbert curve through a cube of 2^bits cells per side.

    Parameters
    ----------
    places : ndarray (k, n)
        Coordinates from 0 to 1.
    bits : int
        Bits per coordinate; k times bits are at most 64.

    Returns
    -------
    keys : ndarray (n,) of uint64

    Notes
    -----
    The transform of Skilling, Programming the Hilbert curve (2004), on all points at once.

    Examples
    --------
    >>> hilbert_keys(np.array([[0.2, 0.2, 0.7, 0.7], [0.2, 0.7, 0.7, 0.2]]), 1)
    array([0, 1, 2, 3], dtype=uint64)
    """
    return _interleaved(_transposed(quantised(places, bits), bits), bits)


def _transposed(cells: np.ndarray, bits: int) -> np.ndarray:
    """Turn cells (k, n) into keys with their bits dealt out to rows: Skilling's AxesToTranspose."""
    x, one = cells.copy(), np.uint64(1)
    for shift in range(bits - 1, 0, -1):
        bit, below = np.uint64(shift), np.uint64(2**shift - 1)
        for row in x:
            chosen = np.uint64(0) - ((row >> bit) & one)  # all bits where this one is set
            swap = (x[0] ^ row) & below & ~chosen
            x[0] ^= (below & chosen) ^ swap
            row ^= swap
    for i in range(1, len(x)):  # Gray code
        x[i] ^= x[i - 1]
    turn = np.zeros_like(x[0])
    for shift in range(bits - 1, 0, -1):
        chosen = np.uint64(0) - ((x[-1] >> np.uint64(shift)) & one)
        turn ^= np.uint64(2**shift - 1) & chosen
    x ^= turn
    return x


def _interleaved(x: np.ndarray, bits: int) -> np.ndarray:
    """Return one integer from the bits of rows, the highest of each row first."""
    key, one = np.zeros_like(x[0]), np.uint64(1)
    for shift in range(bits - 1, -1, -1):
        for row in x:
            key = (key << one) | ((row >> np.uint64(shift)) & one)
    return key
