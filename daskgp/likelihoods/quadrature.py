"""Quadrature over Gaussians of f, one node at a time.

By Gauss-Hermite where what is averaged is as wide as the Gaussian, otherwise by the trapezoidal
rule on a scale that is fine where the integrand is narrow and reaches over the Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import scipy.special

from daskgp.arrays.backend import namespace, number
from daskgp.typing import Array

NODES = 32
"""Nodes of Gauss-Hermite quadrature."""
LEAST_VARIANCE = 1e-12
"""Smaller variances of f count as this one: derivatives divide by its square root."""
LOG_2PI = math.log(2 * math.pi)
MODE_STEPS, LEAP, CLOSE = 60, 2.0, 1e-3
"""Most Newton steps to a mode, the longest of them, and the last one relative to its width."""
WIDE_NODES, FAR = 96, 9.0
"""Nodes of the trapezoidal rule, and standard deviations over which they reach."""
MOST_LOG_RATE = 50.0
"""Expected rates grow linearly from here on: they and their slopes stay finite in float32."""


def arguments(y: Array, mean: Array, variance: Array) -> tuple[Any, Array, Array, Array]:
    """Return the array module and the arguments in float64, variances broadcast to the means."""
    xp = namespace(y, mean, variance)
    y, mean, variance = (a.astype(np.float64, copy=False) for a in (y, mean, variance))
    if variance.ndim < mean.ndim:
        variance = variance[:, None]
    return xp, y, mean, xp.broadcast_to(xp.maximum(variance, LEAST_VARIANCE), mean.shape)


@cache
def hermite() -> tuple[tuple[float, float], ...]:
    """Return nodes and weights of Gauss-Hermite quadrature, the weights adding up to 1."""
    nodes, weights = np.polynomial.hermite.hermgauss(NODES)
    return tuple(zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True))


def averages(
    terms: Callable[[Array], tuple[Array, ...]], xp: Any, mean: Array, variance: Array
) -> tuple[Array, Array, list[Array]]:
    """Average terms of f under q by quadrature; the first is the slope of a function of f.

    Returned are that function's derivatives with respect to mean and variance, and the averages of
    the other terms.  The nodes are taken one at a time, so that no array is larger than the
    arguments.
    """
    spread = xp.sqrt(2 * variance)
    totals: list[Array] = []
    by_spread: Array = 0.0
    for x, w in hermite():
        values = terms(mean + x * spread)
        by_spread = by_spread + w * x * values[0]
        weighted = [w * term for term in values]
        totals = [t + u for t, u in zip(totals, weighted, strict=True)] if totals else weighted
    return totals[0], by_spread / spread, totals[1:]


def log_sum_exp(terms: Iterable[Array], xp: Any) -> np.ndarray:
    """Return the log of the sum of exponentials, taking the terms one at a time."""
    rest = iter(terms)
    top = next(rest)
    total = xp.ones_like(top)
    for term in rest:
        above = xp.maximum(top, term)
        total = total * xp.exp(top - above) + xp.exp(term - above)
        top = above
    return top + xp.log(total)


def expected_exp(log_rate: Array, xp: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return e^log_rate, which grows linearly beyond a hopeless rate, and its derivative."""
    slope = xp.exp(xp.minimum(log_rate, MOST_LOG_RATE))
    return slope * (1 + xp.maximum(log_rate - MOST_LOG_RATE, 0)), slope


def logistic(f: Array, xp: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 / (1 + e^-f), and log(1 + e^f), of which it is the derivative."""
    small = xp.exp(-xp.abs(f))
    return xp.where(f > 0, 1.0, small) / (1 + small), xp.maximum(f, 0) + xp.log1p(small)


def log_integral(
    log_p: Callable[[Array], Any], value: Callable[[Array], Array], mean: Array, variance: Array
) -> np.ndarray:
    """Return the log of the integral of p(y | f) q(f) df, however narrow p(y | f) is.

    Parameters
    ----------
    log_p : callable
        log p(y | f) with two derivatives.
    value : callable
        log p(y | f).
    mean, variance : (n, p) array
    """
    xp = namespace(mean)
    mode = mean
    for _ in range(MODE_STEPS):
        _, slope, curvature = log_p(mode)
        width = 1 / xp.sqrt(1 / variance + xp.maximum(-curvature, 0))
        step = xp.clip((slope - (mode - mean) / variance) * width**2, -LEAP, LEAP)
        mode = mode + step
        if not number((xp.abs(step) > CLOSE * width).any()):
            break

    def terms() -> Iterable[Array]:
        for z, log_weight in _reaching(FAR * xp.sqrt(variance) / width, xp):
            f = mode + width * z
            yield value(f) - 0.5 * (f - mean) ** 2 / variance + log_weight

    return log_sum_exp(terms(), xp) + xp.log(width) - 0.5 * (LOG_2PI + xp.log(variance))


def probability_below(
    below: Callable[[np.ndarray], np.ndarray],
    log_density: Callable[[np.ndarray], np.ndarray],
    at: np.ndarray,
    width: np.ndarray,
    reach: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
) -> np.ndarray:
    """Return the average of P(y' <= y | f) = P(f <= t) over f, where t has a density.

    It is integrated over t or f, whichever is the wider.

    Parameters
    ----------
    below : callable
        P(y' <= y | f) at values of f.
    log_density : callable
        Log density of t, but for a constant.
    at, width, reach : ndarray
        The mode of t, its width, and how far from the mode the density is to be looked at.
    mean, std : ndarray
        Moments of f.
    """
    narrow = std > width
    over_t = total = np.zeros(mean.shape)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        if narrow.any():
            top = log_density(at)
            for z, log_weight in _reaching(reach / width, np):
                t = at + width * z
                w = np.exp(log_density(t) - top + log_weight)
                total = total + w
                over_t = over_t + w * scipy.special.ndtr((t - mean) / std)
            over_t = over_t / total
        if narrow.all():
            return np.asarray(over_t)
        spread = math.sqrt(2.0) * std
        over_f = np.asarray(sum(w * below(mean + x * spread) for x, w in hermite()))
    return np.where(narrow, over_t, over_f)


def average_near(
    function: Callable[[np.ndarray], np.ndarray],
    at: np.ndarray,
    width: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
) -> np.ndarray:
    """Return the average of a function of f that changes over a width about a place."""
    narrow = std > width
    near = total = np.zeros(mean.shape)
    if narrow.any():
        reach = np.where(narrow, (np.abs(at - mean) + FAR * std) / width, 1.0)
        for z, log_weight in _reaching(reach, np):
            f = at + width * z
            w = np.exp(log_weight - 0.5 * ((f - mean) / std) ** 2)
            total, near = total + w, near + w * function(f)
        near = near / np.where(total > 0, total, 1.0)
    if narrow.all():
        return np.asarray(near)
    spread = math.sqrt(2.0) * std
    over_f = np.asarray(sum(w * function(mean + x * spread) for x, w in hermite()))
    return np.where(narrow, near, over_f)


def _reaching(reach: Array, xp: Any) -> Iterator[tuple[Array, Array]]:
    """Yield nodes, dense within one of 0 and as far as ``reach``, and logs of their weights.

    The nodes are sinh u for equidistant u.
    """
    end = xp.log(reach + xp.sqrt(reach**2 + 1))
    step = xp.log(2 * end / (WIDE_NODES - 1))
    for share in np.linspace(-1.0, 1.0, WIDE_NODES).tolist():
        grown = xp.exp(share * end)
        yield 0.5 * (grown - 1 / grown), xp.log(0.5 * (grown + 1 / grown)) + step
