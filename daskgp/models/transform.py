"""Transforms of targets: the Gaussian process is fitted to z = T(y), and predicts y = T^-1(z).

T is log y, the square root, or (y^c - 1) / c of Box & Cox (1964) with the power c of the largest
likelihood of the targets.  A Gaussian z reaches below the values that T takes; there y is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

from daskgp.errors import InputError

LARGEST_LOG = 700.0
"""Larger logarithms of y count as this one, so that y is finite."""
NODES, REACH = 160, 9.0
"""Nodes of Gauss-Legendre quadrature, and the standard deviations that it reaches at least."""
POWERS = np.linspace(0.0, 2.0, 41)
"""Powers of which the likelihood is known; below 0 a Gaussian would reach infinite values of y."""


@dataclass(frozen=True, eq=False)
class Transform:
    """Transform of each target.

    Parameters
    ----------
    kind : {"log", "sqrt", "boxcox"}
    powers : ndarray (p,)
        Power c of each target: 0 for the logarithm, 1/2 for the square root.
    log_slopes : float
        Sum of log T'(y) over the training targets above 0.
    """

    kind: str
    powers: np.ndarray
    log_slopes: float = 0.0

    def supports(self, y: Any) -> Any:
        """Return True for each value that can be transformed, and for missing ones (NaN)."""
        return ~(y < 0.0) if self.kind == "sqrt" else ~(y <= 0.0)

    def refuse(self, count: int) -> None:
        """Raise InputError if ``count`` values, more than 0, cannot be transformed."""
        if count:
            raise InputError(
                f"{count} targets are not {self.takes}, which target_transform={self.kind!r} "
                "takes: leave them out"
            )

    @property
    def takes(self) -> str:
        """Values that can be transformed, in words."""
        return "0 or more" if self.kind == "sqrt" else "above 0"

    def forward(self, y: Any) -> np.ndarray:
        """Return z of targets y (..., p), or (...) of one; -inf or NaN for those not supported."""
        y = np.asarray(y, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.kind == "sqrt":
                return np.sqrt(y)
            return _boxcox(y, self.powers)

    def inverse(self, z: Any) -> np.ndarray:
        """Return y of z (..., p), or (...) of one."""
        z = np.asarray(z, np.float64)
        if self.kind == "sqrt":
            return np.maximum(z, 0.0) ** 2
        return _inverse(z, self.powers)

    def log_slope(self, y: Any) -> np.ndarray:
        """Return log T'(y)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.kind == "sqrt":
                return np.asarray(-math.log(2.0) - 0.5 * np.log(y))
            return np.asarray((self.powers - 1.0) * np.log(y))

    def log_density(self, y: Any, mean: Any, variance: Any) -> np.ndarray:
        """Return the log density of y whose z is Gaussian, with T' as Jacobian.

        A y of 0 has the probability that z is below what T takes.
        """
        z, spread = self.forward(y), np.sqrt(variance)
        away = (z - mean) / spread
        with np.errstate(invalid="ignore"):
            inside = -0.5 * (away**2 + math.log(2 * math.pi)) - np.log(spread)
            found = inside + self.log_slope(y)
            return np.where(np.asarray(y) == 0.0, log_ndtr(away), found)

    def moments(self, mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and variance (n, p) of y whose z is Gaussian with these (n, p)."""
        variance = np.broadcast_to(variance, mean.shape)
        made = np.empty((2, *mean.shape))
        for j, power in enumerate(self.powers):
            made[:, :, j] = self._moments(mean[:, j], variance[:, j], float(power))
        return made[0], made[1]

    def _moments(self, m: np.ndarray, v: np.ndarray, power: float) -> tuple[Any, Any]:
        if self.kind == "sqrt":
            return _of_squares(m, v)
        if power == 0.0:
            first = np.exp(np.minimum(m + 0.5 * v, 0.4 * LARGEST_LOG))
            return first, first**2 * np.expm1(np.minimum(v, 0.1 * LARGEST_LOG))
        return _of_powers(m, v, power)

    def to_dict(self) -> dict[str, Any]:
        """Return the description that a model store keeps."""
        return {"kind": self.kind, "powers": self.powers.tolist(), "log_slopes": self.log_slopes}

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Transform:
        """Return the transform of a description."""
        powers = np.array(said["powers"], np.float64)
        return cls(str(said["kind"]), powers, float(said["log_slopes"]))

    def describe(self) -> str:
        """Describe it for people."""
        if self.kind != "boxcox":
            return self.kind
        return f"boxcox, power {', '.join(f'{power:.4g}' for power in self.powers)}"


class Sums(NamedTuple):
    """Sums over complete rows: their number, those not supported, and sums over positive targets.

    ``logs`` (p,) are sums of log y; ``mean`` and ``scatter`` (p, powers) those of z by power.
    """

    rows: float
    bad: np.ndarray
    logs: np.ndarray
    mean: np.ndarray
    scatter: np.ndarray


def local(kind: str, y: np.ndarray) -> Sums:
    """Return the sums over finite targets y (n, p) of complete rows."""
    p = y.shape[1]
    bad = (~Transform(kind, np.zeros(p)).supports(y)).sum(axis=0).astype(np.float64)
    positive = np.where(y > 0.0, y, 1.0)
    zero = np.zeros((p, len(POWERS)))
    sums = Sums(float(len(y)), bad, np.log(positive).sum(axis=0), zero, zero)
    if kind != "boxcox" or not len(y):
        return sums
    with np.errstate(over="ignore", invalid="ignore"):
        z = _boxcox(positive[:, :, None], POWERS)
        mean = z.mean(axis=0)
        return sums._replace(mean=mean, scatter=((z - mean) ** 2).sum(axis=0))


def combine(a: Sums, b: Sums) -> Sums:
    """Return the sums over both sets of rows."""
    rows = a.rows + b.rows
    share = b.rows / rows if rows else 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        step = b.mean - a.mean
        scatter = a.scatter + b.scatter + a.rows * share * step**2
        mean = a.mean + share * step
    return Sums(rows, a.bad + b.bad, a.logs + b.logs, mean, scatter)


def fitted(kind: str, total: Sums) -> Transform:
    """Return the transform of targets with these sums."""
    p = len(total.logs)
    powers = np.full(p, {"log": 0.0, "sqrt": 0.5}.get(kind, 0.0))
    if kind == "boxcox":
        powers = np.array([_likeliest(total, j) for j in range(p)])
    return Transform(kind, powers, slopes(kind, powers, total))


def slopes(kind: str, powers: np.ndarray, total: Sums) -> float:
    """Return the sum of log T'(y) over targets with these sums."""
    if kind == "sqrt":
        return float(-math.log(2.0) * total.rows * len(powers) - 0.5 * total.logs.sum())
    return float(((powers - 1.0) * total.logs).sum())


def _likeliest(total: Sums, j: int) -> float:
    """Return the power of the largest likelihood, from a parabola through the best of POWERS."""
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.log(total.scatter[j] / total.rows)
        values = -0.5 * total.rows * spread + (POWERS - 1.0) * total.logs[j]
    values = np.where(np.isfinite(values), values, -np.inf)
    best = int(np.argmax(values))
    if not 0 < best < len(POWERS) - 1 or not np.isfinite(values[best - 1 : best + 2]).all():
        return float(POWERS[best])
    below, top, above = values[best - 1 : best + 2]
    bend = below - 2.0 * top + above
    return float(POWERS[best] + 0.5 * (POWERS[1] - POWERS[0]) * (below - above) / (bend or -1.0))


def _boxcox(y: np.ndarray, powers: Any) -> np.ndarray:
    logs = np.log(y)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(powers == 0.0, logs, np.expm1(powers * logs) / powers)


def _inverse(z: np.ndarray, powers: Any) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.maximum(powers * z + 1.0, 0.0)) / powers
        return np.exp(np.minimum(np.where(np.asarray(powers) == 0.0, z, logs), LARGEST_LOG))


def _of_powers(m: np.ndarray, v: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and variance of the inverse of Box & Cox by Gauss-Legendre quadrature.

    It goes over the values above those where y is 0, since it would not see the kink there.
    """
    s = np.sqrt(np.maximum(v, np.finfo(np.float64).tiny))
    high = REACH + 4.0 * np.minimum(s, 5.0)
    low = np.clip((-1.0 / power - m) / s, -REACH, high)
    half, first, second = 0.5 * (high - low), np.zeros(m.shape), np.zeros(m.shape)
    nodes = list(zip(*np.polynomial.legendre.leggauss(NODES), strict=True))

    def at(x: float) -> tuple[np.ndarray, np.ndarray]:
        place = low + half * (x + 1.0)
        density = half * np.exp(-0.5 * place**2) / math.sqrt(2 * math.pi)
        return density, _inverse(m + s * place, power)

    for x, w in nodes:
        density, y = at(x)
        first += w * density * y
    for x, w in nodes:
        density, y = at(x)
        second += w * density * (y - first) ** 2
    return first, second + ndtr(low) * first**2


def _of_squares(m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and variance of max(z, 0)^2."""
    s = np.sqrt(v)
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.where(s > 0.0, m / s, np.where(m > 0.0, np.inf, -np.inf))
    below, at = ndtr(a), np.exp(-0.5 * np.minimum(a**2, 2 * LARGEST_LOG)) / math.sqrt(2 * math.pi)
    first = (m**2 + v) * below + m * s * at
    second = (m**4 + 6 * m**2 * v + 3 * v**2) * below + (m**3 * s + 5 * m * s * v) * at
    return first, np.maximum(second - first**2, 0.0)
