"""Spectra that change from place to place: random cosines whose amplitudes depend on the place.

With p(w; theta) the spectral density of a kernel of variance v, frequencies w_k drawn from a
density q, and u and t normal numbers,

    f(x) = sum_k a_k(x) (u_k cos w_k'x + t_k sin w_k'x)
    a_k(x)^2 = v(x) p(w_k; theta(x)) / m q(w_k)

has the covariance sqrt(v(x) v(z)) int sqrt(p(w; theta(x)) p(w; theta(z))) cos w'(x - z) dw: that of
the kernel where theta is the same at both places, and so v(x) at one (an evolutionary spectrum,
Priestley 1965).  That of RBF is the kernel of Gibbs (1997).  q is the mean of p at a few values of
theta, so that there are frequencies enough for all of them.

Where a frequency is made of several random numbers, as that of a product of kernels is, p and q are
densities of these numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from daskgp.arrays.backend import namespace
from daskgp.errors import SettingError
from daskgp.kernels.base import Kernel
from daskgp.kernels.program import CODES, CONSTANT, LINEAR, PERIODIC, RATIONAL, Program, program
from daskgp.kernels.spectrum import (
    FREEDOM,
    check_features,
    shares_beyond,
    shells,
    squares_beyond,
)
from daskgp.typing import Array

DEGREES = {CODES[kind]: freedom for kind, freedom in FREEDOM.items()}
"""Degrees of freedom of spectral densities, by the code of a leaf."""
SAME = 1e-9
"""Difference of logarithms that is rounding."""
APART = math.log(1.5)
"""Distance of the logarithms of hyper-parameters up to which one density does for both."""
MOST_DENSITIES = 16
"""Most densities that the frequencies of a term are drawn from."""


class Waves(NamedTuple):
    """Frequencies (q, d) of a kernel, and what they are made of.

    ``numbers`` (q, c) are the random numbers of the leaves of a term side by side, ``terms`` (q,)
    the numbers of terms, and ``logs`` (q,) the logarithms of m times the densities drawn from.
    """

    frequencies: Array
    numbers: Array
    terms: np.ndarray
    logs: Array


def check_evolving(kernel: Kernel, d: int, logs: np.ndarray) -> Program:
    """Return the program of a kernel whose spectrum may change as its hyper-parameters do.

    Parameters
    ----------
    kernel : Kernel
    d : int
        Number of columns of the inputs.
    logs : ndarray (s, l)
        Logarithms of its hyper-parameters, relative to the common ones.

    Raises
    ------
    SettingError
        If it has no such spectrum.
    """
    check_features(kernel, d)
    known = program(kernel, d)
    if known is not None and known.mix is not None:
        raise SettingError(
            "sample paths of hyper-parameters that vary over space need columns that are not "
            "rotated: take Rotated out of the kernel, or fit with varying=None"
        )
    if known is None:
        raise SettingError(
            "sample paths of hyper-parameters that vary over space need a kernel of at most 32 "
            "terms: choose a simpler kernel, or fit with varying=None"
        )
    periodic = [leaf for leaf in known.leaves if leaf[0] == PERIODIC]
    if any(np.ptp(logs[:, _columns(known, leaf)[:, 1]], axis=0).max() > SAME for leaf in periodic):
        raise SettingError(
            "sample paths need a period that is the same everywhere, as waves of different periods "
            "have no common phase: name the hyper-parameters that vary, without it, such as "
            "varying=('variance', 'noise_variance')"
        )
    return known


def draw_waves(
    known: Program, values: np.ndarray, m: int, d: int, rng: np.random.Generator
) -> Waves:
    """Draw about m frequencies of each term of a kernel whose hyper-parameters vary.

    Parameters
    ----------
    known : Program
    values : ndarray (s, l)
        Hyper-parameters at some places, which are like those at all others.
    m, d : int
        Numbers of frequencies and of columns of the inputs.
    rng : numpy Generator
    """
    width = max(sum(_width(known, leaf) for leaf in leaves) for leaves in _terms(known))
    drawn = [Waves(np.zeros((0, d)), np.zeros((0, width)), np.zeros(0, np.int64), np.zeros(0))]
    for term, leaves in enumerate(_terms(known)):
        if any(leaf[0] == LINEAR for leaf in leaves):
            continue
        waves = [leaf for leaf in leaves if leaf[0] != CONSTANT]
        chosen = _apart(values, _shapes(known, waves)) if waves else values[:1]
        count = -(-m // len(chosen)) if waves else 1  # a constant is the cosine of frequency 0
        if len(waves) == 1 and int(waves[0][0]) in DEGREES:
            numbers, logs = _in_strata(known, waves[0], chosen, count, rng)
        else:
            each = [[_drawn(known, leaf, own, count, rng) for leaf in waves] for own in chosen]
            numbers = np.concatenate([np.hstack([np.zeros((count, 0)), *own]) for own in each])
            logs = np.log(count) + special.logsumexp(_densities(known, waves, numbers, chosen), 0)
        frequencies = np.zeros((len(numbers), d))
        for leaf, own in zip(waves, _apiece(known, waves, numbers), strict=True):
            frequencies[:, _columns(known, leaf)[:, 0]] += _frequencies(known, leaf, own, values[0])
        padded = np.zeros((len(numbers), width))
        padded[:, : numbers.shape[1]] = numbers
        drawn.append(Waves(frequencies, padded, np.full(len(numbers), term), logs))
    return Waves(*map(np.concatenate, zip(*drawn, strict=True)))


def evolving_features(known: Program, waves: Waves, values: np.ndarray, X: Array) -> np.ndarray:
    """Return the features of places X (n, d), whose inner products are covariances.

    Parameters
    ----------
    known : Program
    waves : Waves
    values : ndarray (n, l)
        Hyper-parameters at the places.
    X : (n, d) array

    Returns
    -------
    (n, 2 q + r) array
        a cos Xw', a sin Xw' for q frequencies, and sqrt(v_j) x_j for the columns of linear kernels.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> known, values = program(RBF(1.0), 1), np.array([[1.0, 0.5], [4.0, 1.0]])
    >>> waves = draw_waves(known, values, 4_000, 1, np.random.default_rng(0))
    >>> A = evolving_features(known, waves, values, np.array([[0.0], [0.3]]))
    >>> gibbs = 2.0 * np.sqrt(2 * 0.5 / 1.25) * np.exp(-(0.3**2) / 1.25)
    >>> bool(np.abs(A @ A.T - [[1.0, gibbs], [gibbs, 4.0]]).max() < 0.05)
    True
    """
    xp, q = namespace(X), len(waves.terms)
    linear = []
    amplitudes, features = xp.empty((len(X), q)), xp.empty((len(X), 2 * q))
    for term, leaves in enumerate(_terms(known)):
        heights = [values[:, leaf[1]] for leaf in leaves if leaf[0] != LINEAR]
        height = math.prod(heights, start=np.ones(len(values)))
        for leaf in (leaf for leaf in leaves if leaf[0] == LINEAR):
            for column, p in _columns(known, leaf):
                slopes = xp.asarray(np.sqrt(height * values[:, p]))
                linear.append(slopes * X[:, column])
        own = np.flatnonzero(waves.terms == term)
        if len(own):
            rows = slice(own[0], own[-1] + 1)
            of_term = [leaf for leaf in leaves if leaf[0] != CONSTANT]
            logs = _densities(known, of_term, waves.numbers[rows], values) - waves.logs[rows]
            amplitudes[:, rows] = xp.exp(0.5 * (logs + xp.asarray(np.log(height))[:, None]))
    phases = X @ waves.frequencies.T
    xp.multiply(amplitudes, xp.cos(phases), out=features[:, :q])
    xp.multiply(amplitudes, xp.sin(phases), out=features[:, q:])
    return features if not linear else xp.concatenate([features, xp.stack(linear, axis=1)], axis=1)


def count_features(known: Program, waves: Waves) -> int:
    """Return the number 2 q + r of features."""
    linear = [leaf for leaves in _terms(known) for leaf in leaves if leaf[0] == LINEAR]
    return 2 * len(waves.terms) + sum(len(_columns(known, leaf)) for leaf in linear)


# -- leaves, as rows of a program ------------------------------------------------------------


def _terms(known: Program) -> list[list[np.ndarray]]:
    """Return the leaves of each term."""
    return [[known.leaves[i] for i in term if i >= 0] for term in known.terms]


def _columns(known: Program, leaf: np.ndarray) -> np.ndarray:
    """Return the columns of a leaf, each with the number of what scales it (c, 2)."""
    return known.columns[leaf[2] : leaf[3]]


def _shapes(known: Program, waves: Sequence[np.ndarray]) -> list[int]:
    """Return the numbers of the hyper-parameters that spectra depend on."""
    found: set[int] = set()
    for leaf in waves:
        columns = _columns(known, leaf)[:, 1]
        found.update(columns.tolist())
        if leaf[0] == RATIONAL:
            found.add(int(columns[-1]) + 1)
        if leaf[0] == PERIODIC:
            found.add(int(leaf[1]) + 1)
    return sorted(found)


def _apart(values: np.ndarray, shapes: list[int]) -> np.ndarray:
    """Return some of the hyper-parameters (s, l), to one of which each of the others is close."""
    logs = np.log(values[:, shapes])
    chosen = [int(np.abs(logs - np.median(logs, axis=0)).max(axis=1).argmin())]
    away = np.abs(logs - logs[chosen[0]]).max(axis=1)
    while away.max() > APART and len(chosen) < MOST_DENSITIES:
        chosen.append(int(away.argmax()))
        away = np.minimum(away, np.abs(logs - logs[chosen[-1]]).max(axis=1))
    return values[chosen]


def _width(known: Program, leaf: np.ndarray) -> int:
    """Return the number of random numbers of a leaf: frequencies, and what they are scaled by."""
    count = len(_columns(known, leaf))  # none of a constant
    return 2 * count if leaf[0] == PERIODIC else count + int(leaf[0] == RATIONAL)


def _apiece(known: Program, waves: Sequence[np.ndarray], numbers: Array) -> list[Array]:
    """Return the random numbers of each leaf."""
    ends = np.cumsum([0, *(_width(known, leaf) for leaf in waves)])
    return [numbers[:, i:j] for i, j in itertools.pairwise(ends)]


def _drawn(
    known: Program, leaf: np.ndarray, values: np.ndarray, m: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw the random numbers (m, c) of a leaf for hyper-parameters (l,)."""
    scales = values[_columns(known, leaf)[:, 1]]
    if leaf[0] == PERIODIC:  # Poisson numbers up and down, see ``spectrum``
        mean = np.full((m, _width(known, leaf)), 0.5 / values[leaf[1] + 1] ** 2)
        return rng.poisson(mean).astype(np.float64)
    points = rng.standard_normal((m, len(scales))) / scales
    if leaf[0] == RATIONAL:
        alpha = values[_columns(known, leaf)[-1, 1] + 1]
        t = rng.gamma(alpha, size=(m, 1)) / alpha
        return np.hstack([points * np.sqrt(t), t])
    freedom = DEGREES[int(leaf[0])]
    if np.isfinite(freedom):
        points /= np.sqrt(rng.chisquare(freedom, (m, 1)) / freedom)
    return points


def _frequencies(
    known: Program, leaf: np.ndarray, numbers: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Return the frequencies (m, c) that random numbers of a leaf make for any values (l,)."""
    columns = _columns(known, leaf)
    if leaf[0] != PERIODIC:
        return numbers[:, : len(columns)]
    up, down = np.split(numbers, 2, axis=1)
    return (up - down) * (2 * math.pi / values[columns[:, 1]])


def _in_strata(
    known: Program, leaf: np.ndarray, values: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a frequency from each of ``count`` shells, of the spectrum of each of values (s, l).

    Return them and the logarithms of the sum of the densities that they are drawn from: of a shell,
    that of the spectrum over the shell's share of it.
    """
    columns, freedom = _columns(known, leaf)[:, 1], DEGREES[int(leaf[0])]
    limits, drawn = shells(count), []
    shares = np.diff(limits)
    for own in values:
        beyond = limits[:-1] + shares * (1.0 - rng.uniform(size=count))
        points = rng.standard_normal((count, len(columns)))
        squares = squares_beyond(beyond, len(columns), freedom)
        drawn.append(points * np.sqrt(squares / (points**2).sum(axis=1))[:, None] / own[columns])
    numbers = np.concatenate(drawn)
    logs = _densities(known, [leaf], numbers, values)
    for own, scales in zip(logs, values[:, columns], strict=True):
        beyond = shares_beyond(((numbers * scales) ** 2).sum(axis=1), len(columns), freedom)
        own -= np.log(shares[np.clip(np.searchsorted(limits, beyond) - 1, 0, count - 1)])
    return numbers, np.asarray(special.logsumexp(logs, axis=0))


def _densities(
    known: Program, waves: Sequence[np.ndarray], numbers: Array, values: np.ndarray
) -> np.ndarray:
    """Return the logarithms (n, q) of densities of random numbers for hyper-parameters (n, l).

    They are up to a constant, and to a function of the numbers alone.
    """
    total = namespace(numbers).zeros((len(values), len(numbers)))
    for leaf, own in zip(waves, _apiece(known, waves, numbers), strict=True):
        total += _density(known, leaf, own, values)
    return total


def _density(known: Program, leaf: np.ndarray, numbers: Array, values: np.ndarray) -> np.ndarray:
    xp, columns = namespace(numbers), _columns(known, leaf)[:, 1]
    count = len(columns)
    if leaf[0] == PERIODIC:
        mean = 0.5 / values[:, [leaf[1] + 1]] ** 2
        return xp.asarray(np.log(mean)) * numbers.sum(axis=1) - xp.asarray(2 * count * mean)
    scales = values[:, columns]
    logs = xp.asarray(np.log(scales).sum(axis=1, keepdims=True))
    squares = xp.asarray(scales**2) @ (numbers[:, :count] ** 2).T
    if leaf[0] == RATIONAL:
        alpha, t = values[:, [columns[-1] + 1]], numbers[:, count]
        of_alpha = xp.asarray(alpha * np.log(alpha) - special.gammaln(alpha))
        return logs - 0.5 * squares / t + of_alpha + xp.asarray(alpha) * (xp.log(t) - t)
    freedom = DEGREES[int(leaf[0])]
    if not np.isfinite(freedom):
        return logs - 0.5 * squares
    return logs - 0.5 * (freedom + count) * xp.log1p(squares / freedom)
