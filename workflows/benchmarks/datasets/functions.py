"""Rows of functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskgp import kernels
from datasets.split import Split


def friedman() -> Split:
    """Return Friedman's first function, of five features of ten, with unit noise variance."""
    from sklearn.datasets import make_friedman1

    X, y = make_friedman1(22_000, n_features=10, noise=1.0, random_state=0)
    return Split(X[:20_000], y[:20_000], X[20_000:], y[20_000:])


def heteroscedastic() -> Split:
    """Return a smooth function of four features; the noise of one end is ten times the other's."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (22_000, 4))
    f = np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1]) + X[:, 2] ** 2 + 0.5 * X[:, 3]
    y = f + 0.05 * 10 ** ((1 + X[:, 0]) / 2) * rng.standard_normal(len(f))
    return Split(X[:20_000], y[:20_000], X[20_000:], y[20_000:])


def smooth(rows: int, features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw X and y of a smooth function with noise of variance 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features))
    return X, np.sin(X @ np.linspace(1, 0.2, features)) + 0.1**0.5 * rng.standard_normal(rows)


def sines(rows: int, features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw X in a cube and y, a sum of waves along its sides with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, features))
    return X, np.sin(2 * X).sum(axis=1) + 0.1 * rng.standard_normal(rows)


def rough(rows: int, features: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw X in the unit cube and y, waves of many lengths with noise of variance 0.1."""
    waves, rng = np.random.default_rng(0), np.random.default_rng(seed + 1)
    lengths = np.geomspace(0.01, 1, 24)
    turns = waves.standard_normal((24, features)) / lengths[:, None]
    X = rng.uniform(0, 1, (rows, features))
    phase = 2 * np.pi * X @ turns.T + waves.uniform(0, 2 * np.pi, 24)
    return X, np.sin(phase) @ np.sqrt(lengths) + 0.1**0.5 * rng.standard_normal(rows)


def griewank(X: np.ndarray) -> np.ndarray:
    """Return the function of Griewank (1981) at the rows of X (n, d)."""
    waves = np.cos(X / np.sqrt(np.arange(1, X.shape[1] + 1)))
    return 1 + (X**2).sum(axis=1) / 4000 - waves.prod(axis=1)


def ackley(X: np.ndarray) -> np.ndarray:
    """Return the function of [OPT] eq. 47 at the rows of X (n, d)."""
    far = np.exp(-0.2 * np.sqrt(np.mean(X**2, axis=1)))
    return -20 * far - np.exp(np.mean(np.cos(2 * np.pi * X), axis=1)) + 20 + np.e


def ackley_square(rows: int, noise: float, seed: int, side: int = 50) -> Split:
    """Return rows at random in [-1, 1]² with noise of a variance, places on a grid without."""
    rng, line = np.random.default_rng(seed), np.linspace(-1, 1, side)
    X = rng.uniform(-1, 1, (rows, 2))
    y = ackley(X) + np.sqrt(noise) * rng.standard_normal(rows)
    places = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    return Split(X, y, places, ackley(places))


def two_lengths(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows at random in [-1, 1]² with targets of an exact GP of two lengthscales.

    They are 0.3 and 1.3; standard deviations are 0.2 of f and 0.1 of noise.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 2))
    K = kernels.RBF((0.3, 1.3), 0.04, ard=True)(X)
    K[np.diag_indices(rows)] += 0.01
    return X, np.linalg.cholesky(K) @ rng.standard_normal(rows)


def sequence(xp: Any, start: int, stop: int, d: int) -> tuple[Any, Any]:
    """Return X (n, d) of a low-discrepancy sequence and y (n, 1), made by an array module."""
    i = xp.arange(start + 1, stop + 1, dtype=np.float64)[:, None]
    steps = xp.asarray(np.modf(np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0][:d]))[0])
    X = i * steps
    X -= X.astype(np.int64)  # X is positive: this is its fraction
    noise = xp.sin(12.9898 * i) * 43758.5453
    return X, xp.sin(6 * X.sum(axis=1, keepdims=True)) + 0.3 * xp.sin(noise)


def currin(X: np.ndarray) -> np.ndarray:
    """Return the function of Currin et al. (1991) at the rows of X (n, 2) in the unit square."""
    a, b = X.T
    over = 2300 * a**3 + 1900 * a**2 + 2092 * a + 60
    return -np.expm1(-0.5 / np.maximum(b, 1e-9)) * over / (100 * a**3 + 500 * a**2 + 4 * a + 20)


def cheap_currin(X: np.ndarray) -> np.ndarray:
    """Return its cheap form of Xiong et al. (2013), a mean of four places about each."""
    steps = [(i, j) for i in (0.05, -0.05) for j in (0.05, -0.05)]
    return np.mean([currin(np.maximum(X + step, [-1.0, 0.0])) for step in steps], axis=0)


def park(X: np.ndarray) -> np.ndarray:
    """Return the function of Park (1991) at the rows of X (n, 4) in the unit cube, but x0 = 0."""
    a, b, c, d = X.T
    root = np.sqrt(1 + (b + c**2) * d / a**2)
    return a / 2 * (root - 1) + (a + 3 * d) * np.exp(1 + np.sin(c))


def cheap_park(X: np.ndarray) -> np.ndarray:
    """Return its cheap form of Xiong et al. (2013)."""
    a, b, c, _ = X.T
    return (1 + np.sin(a) / 10) * park(X) - 2 * a + b**2 + c**2 + 0.5


def forrester(X: np.ndarray) -> np.ndarray:
    """Return the function of Forrester et al. (2007) at the rows of X (n, 1)."""
    return (6 * X[:, 0] - 2) ** 2 * np.sin(12 * X[:, 0] - 4)


def cheap_forrester(X: np.ndarray) -> np.ndarray:
    """Return its cheap form."""
    return 0.5 * forrester(X) + 10 * (X[:, 0] - 0.5) - 5
