"""Processes that fields are drawn of, on a grid or at scattered places."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.fft
import scipy.linalg
import scipy.signal
import scipy.special

from daskgp import kernels
from datasets.split import Split

PLACES = 2_000
CLIPPED = 1e-6
"""Share of a spectrum that may be negative, and is set to zero, before the torus is doubled."""


class Truth(NamedTuple):
    """Kernel of the process, in the units of X, and the variance of the noise."""

    family: str
    lengthscale: float
    variance: float
    noise: float

    @property
    def kernel(self) -> kernels.Kernel:
        """The kernel with its hyper-parameters."""
        return kernels.parse(
            f"{self.family}(lengthscale={self.lengthscale}, variance={self.variance})"
        )


Draw = Callable[[np.random.Generator, Truth, bool], Split]


def torus(rng: np.random.Generator, shape: tuple[int, int], truth: Truth) -> np.ndarray:
    """Return values on a grid whose cells have side 1."""
    for factor in (2, 4, 8):
        size = [scipy.fft.next_fast_len(factor * n, real=True) for n in shape]
        away = [np.minimum(np.arange(n), n - np.arange(n)) for n in size]
        distance = np.hypot(away[0][:, None], away[1])
        covariance = truth.kernel(distance.reshape(-1, 1), np.zeros((1, 1))).reshape(size)
        spectrum = scipy.fft.rfft2(covariance).real
        if -spectrum[spectrum < 0].sum() < CLIPPED * spectrum.sum():
            break
    white = scipy.fft.rfft2(rng.standard_normal(size))
    values = scipy.fft.irfft2(np.sqrt(np.maximum(spectrum, 0)) * white, s=size)
    return values[: shape[0], : shape[1]]


def grid(shape: tuple[int, int], cell: float) -> Draw:
    """Return how to draw a field on (rows, columns) of cells with gaps like those of clouds."""

    def draw(rng: np.random.Generator, truth: Truth, tiny: bool) -> Split:
        cells = tuple(n // 10 for n in shape) if tiny else shape
        side = 10 * cell if tiny else cell
        f = torus(rng, cells, truth._replace(lengthscale=truth.lengthscale / side)).ravel()
        clouds = torus(rng, cells, Truth("rbf", 0.15 / side, 1.0, 0.0)).ravel()
        places = np.stack(np.meshgrid(*map(np.arange, cells), indexing="ij"), axis=-1)
        X = side * places.reshape(-1, 2)[:, ::-1].astype(float)
        order = np.argsort(clouds)
        share = (105_569 / 150_000, 148_309 / 150_000)
        first, last = (round(part * len(f)) for part in share)
        return noisy(
            rng, truth, X, f, order[:first], rng.permutation(order[first:])[: last - first]
        )

    return draw


def square(rng: np.random.Generator, truth: Truth, tiny: bool) -> Split:
    """Draw a field on the unit square: rows and places at random cells of a fine grid."""
    side, rows, places = (100, 3_000, 1_000) if tiny else (1_000, 90_000, 10_000)
    f = torus(rng, (side, side), truth._replace(lengthscale=truth.lengthscale * side)).ravel()
    cells = rng.permutation(len(f))[: rows + places]
    X = (np.stack(np.unravel_index(cells, (side, side)), axis=-1) + 0.5) / side
    return noisy(rng, truth, X, f[cells], np.arange(rows), np.arange(rows, rows + places))


def survey(rng: np.random.Generator, truth: Truth, tiny: bool) -> Split:
    """Draw a survey along lines: cells of 10 m, lines 400 m apart that waver, a few across."""
    shape = (400, 600) if tiny else (1_600, 2_500)
    rows, places = (3_000, 1_000) if tiny else (105_000, 83_000)
    cell = 0.01
    f = torus(rng, shape, truth._replace(lengthscale=truth.lengthscale / cell)).ravel()
    along = [waver(rng, middle, shape[1], shape[0]) for middle in range(20, shape[0], 40)]
    across = [waver(rng, middle, shape[0], shape[1]) for middle in range(300, shape[1], 600)]
    flown = [line * shape[1] + np.arange(shape[1]) for line in along]
    flown += [np.arange(shape[0]) * shape[1] + line for line in across]
    cells = np.unique(np.concatenate(flown))
    train = np.sort(rng.permutation(cells)[:rows])
    test = np.sort(rng.permutation(np.setdiff1d(np.arange(len(f)), cells))[:places])
    X = cell * np.column_stack([np.arange(len(f)) % shape[1], np.arange(len(f)) // shape[1]])
    return noisy(rng, truth, X, f, train, test)


def waver(rng: np.random.Generator, middle: int, length: int, most: int) -> np.ndarray:
    """Return the cells of a line that strays from its middle by about four cells."""
    steps = np.arange(length) / 150
    strays = sum(rng.normal(0, 2) * np.sin(k * steps + rng.uniform(0, 6.3)) for k in (1, 2, 3))
    return np.clip(np.rint(middle + strays), 0, most - 1).astype(int)


def noisy(
    rng: np.random.Generator,
    truth: Truth,
    X: np.ndarray,
    f: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
) -> Split:
    """Return the rows and places picked, with noise in y."""
    y = f + np.sqrt(truth.noise) * rng.standard_normal(len(f))
    return Split(X[train], y[train], X[test], y[test], f[test])


def scattered(
    rows: int, place: Callable[[np.random.Generator, int], np.ndarray], spread: bool = False
) -> Draw:
    """Return how to draw values at rows and 2,000 places alike, or at places ``spread`` evenly."""

    def draw(rng: np.random.Generator, truth: Truth, tiny: bool) -> Split:
        n, more = (rows // 10, PLACES // 10) if tiny else (rows, PLACES)
        X = place(rng, n if spread else n + more)
        if spread:
            even = rng.uniform(X.min(axis=0), X.max(axis=0), (more, X.shape[1]))
            X = np.concatenate([X, even])
        K = truth.kernel(X, X)
        K[np.diag_indices_from(K)] += 1e-9 * truth.variance
        L = scipy.linalg.cholesky(K, lower=True, overwrite_a=True, check_finite=False)
        f = L @ rng.standard_normal(len(X))
        return noisy(rng, truth, X, f, np.arange(n), np.arange(n, n + more))

    return draw


def lines(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place rows along 20 lines, 0.3 apart and 10 long."""
    which = np.arange(rows) % 20
    return np.column_stack([rng.uniform(0, 10, rows), 0.3 * which + rng.normal(0, 0.01, rows)])


def log_normal(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place rows with independent log-normal coordinates."""
    return np.exp(rng.standard_normal((rows, 2)))


def cluster(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place 80 % of the rows in the middle 1 % of the unit square."""
    X, inside = rng.uniform(size=(rows, 2)), rng.uniform(size=rows) < 0.8
    return np.where(inside[:, None], 0.45 + 0.1 * X, X)


def bursts(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place 80 % of the samples in four bursts that take 1 % of the time."""
    time, inside = rng.uniform(size=rows), rng.uniform(size=rows) < 0.8
    burst = np.array([0.13, 0.37, 0.61, 0.83])[rng.integers(4, size=rows)]
    return np.where(inside, burst + 0.0025 * time, time)[:, None]


def clusters(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place 80 % of the rows in a cluster a tenth as wide as that of the others, in space."""
    dense = rng.uniform(size=rows) < 0.8
    X = rng.standard_normal((rows, 3))
    return np.where(dense[:, None], 0.05 * X, 1 + 0.5 * X)


def uniform(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Place rows evenly in the unit square."""
    return rng.uniform(size=(rows, 2))
