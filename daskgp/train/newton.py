"""Trust-region maximisation with curvature, for few parameters.

Letters: x (k,) the parameters, g (k,) the gradient and B (k, k) the negative Hessian of the
objective at x, s (k,) a step.  The model of the gain of a step is g's - s'Bs / 2.  B starts as an
estimate, follows the gradients seen by symmetric updates (Nocedal & Wright 2006, section 6.2)
and is made anew from differences of gradients before a run may say that it has
arrived.  Steps are measured in coordinates u = T x, so that a long step along a ridge costs no
more than a short one across it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

Gradient = Callable[[np.ndarray], tuple[float, np.ndarray]]
Note = Callable[[np.ndarray, float, np.ndarray, float], None]

REACH = 2.0
"""Length of the step, in coordinates, whose gain is the predicted one."""
FLOOR = 1e-3
"""Least curvature, in nats per squared coordinate: below it a direction is flat."""
NEAR = 0.3
"""Distance, in coordinates, within which a curvature from differences is good."""
STEPS: dict[str, tuple[float, ...]] = {"float64": (1e-3, 1e-2, 1e-1), "float32": (3e-2, 1e-1)}
"""Steps of differences, in coordinates, by the precision of the objective; the first that will do.
"""
NOISY = 0.005
"""Share of the curvature that rounding may change before differences take a longer step."""
BOLD = 0.1
"""Cosine between a step and what B lacks along it above which the rank-one update is bounded."""
ATOP = 1e-9
"""Distance from a bound below which a parameter counts as being at it."""
REFRESHES = 8
"""Most times that a run makes curvature from differences."""
FLAT = 0.01
"""Share of a parameter along directions without curvature above which it has no standard error."""
HIDDEN = 3.0
"""Times the noise of a curvature below which a direction has none that is known."""
CLOSE = 1e-4
"""Share of a step of differences over which gradients differ by what B says and rounding alone."""


class Curvature(NamedTuple):
    """The negative Hessian B (k, k) of an objective.

    ``exact`` says that it was made from differences of gradients of the objective at ``point``
    (k,), or of its kind on other rows; steps since then may have corrected it.  ``noise`` is the
    curvature that rounding feigns, where that was seen, and ``rounding`` at most the length of the
    rounding of a gradient.
    """

    point: np.ndarray
    matrix: np.ndarray
    exact: bool = False
    noise: float = 0.0
    rounding: float = 0.0

    def scaled(self, factor: float) -> Curvature:
        """Return the curvature for ``factor`` times as many rows of the same kind."""
        noise, rounding = self.noise * factor, self.rounding * factor
        return self._replace(matrix=self.matrix * factor, noise=noise, rounding=rounding)


class Arrived(NamedTuple):
    """End of a run.

    ``gain`` is what another step is predicted to gain, in nats; ``converged`` says that it is
    below what was asked for, ``cut`` that the iterations ran out.
    """

    vector: np.ndarray
    curvature: Curvature
    gain: float
    converged: bool
    cut: bool = False


@dataclass
class Search:
    """One run of the trust region.

    Parameters
    ----------
    evaluate : callable
        Value to maximise and its gradient (k,) at x.
    bounds : ndarray (k, 2)
    coordinates : ndarray (k, k)
        T; steps are measured by |T s|.
    tol : float
        Predicted gain, in nats per parameter that varies, below which the run has arrived.
    precision : {"float64", "float32"}
        Precision of the objective.
    verify : bool
        Whether curvature at the end must be from differences.
    sampled : callable, optional
        Estimate of the gradient (k,) at x that differences are taken of.
    information : callable, optional
        Expected curvature (k, k) at x, that of the Fisher information, which takes the place of
        differences and of what steps say.
    """

    evaluate: Gradient
    bounds: np.ndarray
    coordinates: np.ndarray
    tol: float
    precision: str = "float64"
    verify: bool = True
    sampled: Callable[[np.ndarray], np.ndarray] | None = None
    information: Callable[[np.ndarray], np.ndarray] | None = None
    radius: float = 1.0
    _refreshes: int = field(default=0, init=False)

    def run(
        self, start: np.ndarray, curvature: Curvature | None, max_iter: int, note: Note
    ) -> Arrived:
        """Maximise from ``start``; ``note`` is called for every iteration.

        The last note is of the point that is returned.  Without a curvature the first is made
        from differences.
        """
        x, least = np.clip(start, *self.bounds.T), self.tol * varies(self.bounds).sum()
        value, g = self.evaluate(x)
        B = curvature if curvature and not self.information else self._curvature(x, g)
        refused, cut = 0, False
        for left in reversed(range(max_iter)):
            B, gain = self._checked(x, g, B, least)
            if left:
                note(x, value, g, gain)
            if gain <= least:
                break
            s = self._step(x, g, B.matrix, self.radius)
            hoped = _gain(g, B.matrix, s)
            length = self._length(s)
            if hoped <= 4 * np.finfo(float).eps * abs(value):
                break  # rounding hides what is left
            trial, gradient = self.evaluate(x + s)
            fresh = B.exact and np.array_equal(B.point, x)
            # a step too long says little about B at x, unless that is an estimate
            if self.information is None and (trial >= value or not fresh or self.sampled):
                B = _updated(B, s, g - gradient, self.coordinates)
            share = (trial - value) / hoped
            self._fit_radius(share, length)
            if share > 1e-4:
                x, value, g, refused = np.clip(x + s, *self.bounds.T), trial, gradient, 0
                B = B if self.information is None else self._curvature(x, g)
                continue
            refused += 1
            if refused == 2 and not fresh and self._may_refresh:
                B = self.differences(x, g)
        else:
            cut = True
        B, gain = self._checked(x, g, B, least)
        if not left:
            note(x, value, g, gain)
        return Arrived(x, B, gain, gain <= least and self._trusted(x, B), cut)

    def _checked(
        self, x: np.ndarray, g: np.ndarray, B: Curvature, least: float
    ) -> tuple[Curvature, float]:
        """Return B and the gain that it predicts; B is made anew if it says untrusted to stop."""
        gain = self._potential(x, g, B.matrix)
        if gain <= least and not self._trusted(x, B) and self._may_refresh:
            B = self.differences(x, g)
            gain = self._potential(x, g, B.matrix)
        return B, gain

    def _curvature(self, x: np.ndarray, g: np.ndarray) -> Curvature:
        """Return B at x: the information if there is any, else from differences."""
        if self.information is None:
            return self.differences(x, g)
        return Curvature(x.copy(), self.information(x), True)

    def differences(self, x: np.ndarray, g: np.ndarray) -> Curvature:
        """Return B at x, where the gradient is g, from one more gradient per parameter.

        B is symmetric but for rounding and what the steps leave out: where it is not, steps are
        lengthened.
        """
        self._refreshes += 1
        g = g if self.sampled is None else self.sampled(x)
        best, taken = None, 0.0
        for step in STEPS[self.precision]:
            found = self._differences(x, g, step)
            if best is not None and found.noise >= best.noise:
                return self._told(best, g, taken)  # longer steps are worse: most was not rounding
            small = found.noise <= NOISY * np.linalg.norm(found.matrix, 2)
            if small and best is None:
                return self._told(found, g, step)
            best, taken = found, step
            if small:
                break
        assert best is not None
        return best

    def _told(self, B: Curvature, g: np.ndarray, step: float) -> Curvature:
        """Return B, from differences over ``step``, with the noise that is rounding.

        The rest is what the step leaves out.  A gradient close to g tells, if the least curvatures
        depend on it.
        """
        free = varies(self.bounds)
        values = np.linalg.eigvalsh(B.matrix[np.ix_(free, free)])
        if not (np.abs(values) <= HIDDEN * B.noise).any():
            return B._replace(noise=0.0)
        inverse = np.linalg.inv(self.coordinates)
        move = self._inside(B.point, CLOSE * step * inverse[:, free].sum(axis=1))
        rounding = float(np.linalg.norm(self._gradient(B.point + move) - g + B.matrix @ move))
        noise = rounding / step * float(np.linalg.norm(self.coordinates, 2))
        return B._replace(noise=min(noise, B.noise))

    def _gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient (k,) that differences are taken of."""
        return self.evaluate(x)[1] if self.sampled is None else self.sampled(x)

    def _inside(self, x: np.ndarray, move: np.ndarray) -> np.ndarray:
        """Return a move from x, turned round if it would leave the bounds."""
        low, high = self.bounds.T
        return move if ((x + move >= low) & (x + move <= high)).all() else -move

    def _differences(self, x: np.ndarray, g: np.ndarray, step: float) -> Curvature:
        """Return B from differences over steps of one length, in coordinates."""
        inverse, free = np.linalg.inv(self.coordinates), varies(self.bounds)
        turned = np.zeros_like(inverse)
        for j in np.flatnonzero(free):
            direction = step * inverse[:, j]
            move = self._inside(x, direction)
            fell = g - self._gradient(x + move)
            turned[free, j] = fell[free] / (step if move is direction else -step)
        B = turned @ self.coordinates  # by x on both sides
        noise = float(np.linalg.norm(B - B.T, 2)) / 2
        return Curvature(x.copy(), 0.5 * (B + B.T), True, noise, noise * step)

    def _fit_radius(self, share: float, length: float) -> None:
        """Adapt the radius to a step of that length that gained a share of what was hoped."""
        if share < 0.25:
            self.radius = 0.25 * length
        elif share > 0.75 and length > 0.9 * self.radius:
            self.radius *= 2.0

    def _trusted(self, x: np.ndarray, B: Curvature) -> bool:
        """Return whether the curvature is from differences near x, if that is asked for."""
        near = NEAR if self.sampled is None else 2 * NEAR  # that of a sample is rough anyway
        return not self.verify or (B.exact and self._length(x - B.point) < near)

    @property
    def _may_refresh(self) -> bool:
        return self._refreshes < REFRESHES

    def _potential(self, x: np.ndarray, g: np.ndarray, B: np.ndarray) -> float:
        """Return the gain, in nats, that the model predicts within REACH."""
        return _gain(g, B, self._step(x, g, B, REACH))

    def _length(self, s: np.ndarray) -> float:
        return float(np.linalg.norm(self.coordinates @ s))

    def _step(self, x: np.ndarray, g: np.ndarray, B: np.ndarray, radius: float) -> np.ndarray:
        """Return the step of largest model gain within the radius and the bounds."""
        low, high = self.bounds.T - x
        s = np.zeros_like(x)
        free = varies(self.bounds) & ~(((low >= 0) & (g < 0)) | ((high <= 0) & (g > 0)))
        while free.any():
            s[free] = self._free_step(g - B @ np.where(free, 0.0, s), B, free, radius)
            over = free & ((s < low) | (s > high))
            if not over.any():
                break
            s[over] = np.clip(s, low, high)[over]
            free &= ~over
        return s if _gain(g, B, s) > 0 else self._uphill(x, g, B, radius)

    def _uphill(self, x: np.ndarray, g: np.ndarray, B: np.ndarray, radius: float) -> np.ndarray:
        """Return a step along the gradient for which the model gains; zero at the optimum.

        Bounds that cut one step after another short can leave a step that loses.
        """
        low, high = self.bounds.T - x
        blocked = ((low >= 0) & (g < 0)) | ((high <= 0) & (g > 0))
        uphill = np.where(varies(self.bounds) & ~blocked, g, 0.0)
        uphill /= (self.coordinates**2).sum(axis=0)
        length = self._length(uphill)
        if not length:
            return np.zeros_like(x)
        for halvings in range(60):
            s = np.clip(0.5**halvings * radius / length * uphill, low, high)
            if _gain(g, B, s) > 0:
                return s
        return np.zeros_like(x)

    def _free_step(
        self, g: np.ndarray, B: np.ndarray, free: np.ndarray, radius: float
    ) -> np.ndarray:
        """Return the step of some parameters: (B + mu M) s = g with |T s| at most the radius."""
        pairs = np.ix_(free, free)
        root = np.linalg.cholesky((self.coordinates.T @ self.coordinates)[pairs])
        whitened = np.linalg.solve(root, np.linalg.solve(root, B[pairs]).T)
        values, vectors = np.linalg.eigh(0.5 * (whitened + whitened.T))
        along = vectors.T @ np.linalg.solve(root, g[free])
        z = vectors @ (along / np.maximum(values + _shift(values, along, radius), FLOOR))
        return np.linalg.solve(root.T, z)


def varies(bounds: np.ndarray) -> np.ndarray:
    """Return a mask (k,) of the parameters whose bounds (k, 2) leave them a choice."""
    return np.asarray(bounds[:, 0] < bounds[:, 1])


def _shift(values: np.ndarray, along: np.ndarray, radius: float) -> float:
    """Return the least mu that makes all curvatures at least FLOOR and the step short enough."""
    low = max(0.0, FLOOR - float(values.min()))

    def length(mu: float) -> float:
        return float(np.linalg.norm(along / np.maximum(values + mu, FLOOR)))  # rounding may leave 0

    if length(low) <= radius:
        return low
    high = low + float(np.linalg.norm(along)) / radius + float(np.abs(values).max())
    for _ in range(60):
        mu = 0.5 * (low + high)
        low, high = (mu, high) if length(mu) > radius else (low, mu)
    return high


def _gain(g: np.ndarray, B: np.ndarray, s: np.ndarray) -> float:
    return float(g @ s - 0.5 * s @ B @ s)


def _updated(curvature: Curvature, s: np.ndarray, y: np.ndarray, T: np.ndarray) -> Curvature:
    """Return the curvature after a step s along which the gradient fell by y: the new B s is y.

    This is the symmetric rank-one update or, where that would change B by much along directions
    that the step says little about, the smallest change in coordinates T (Powell's).  A difference
    that rounding explains says nothing.
    """
    B = curvature.matrix
    missing, metric = y - B @ s, T.T @ (T @ s)
    along, squared = float(missing @ s), float(s @ metric)
    if squared == 0 or np.linalg.norm(missing) <= curvature.rounding:
        return curvature
    if abs(along) > BOLD * np.linalg.norm(np.linalg.solve(T.T, missing)) * squared**0.5:
        return curvature._replace(matrix=B + np.outer(missing, missing) / along)
    both = np.outer(missing, metric) / squared
    changed = B + both + both.T - along / squared**2 * np.outer(metric, metric)
    return curvature._replace(matrix=changed)


def standard_errors(x: np.ndarray, curvature: Curvature, bounds: np.ndarray) -> np.ndarray:
    """Return standard errors (k,) of parameters x (k,) from the curvature at their optimum.

    NaN for one at a bound, and for one that directions without curvature, or with less than
    rounding feigns, matter to.
    """
    return errors_along(np.eye(len(x)), x, curvature, bounds)


def errors_along(
    directions: np.ndarray, x: np.ndarray, curvature: Curvature, bounds: np.ndarray
) -> np.ndarray:
    """Return standard errors (m,) of linear functions of parameters, ``directions`` (m, k).

    Those whose bounds are equal are known, and so are those at a bound for the others; otherwise as
    `standard_errors`.
    """
    B, least = curvature.matrix, max(FLOOR, HIDDEN * curvature.noise)
    free = (x > bounds[:, 0] + ATOP) & (x < bounds[:, 1] - ATOP)
    lengths = np.linalg.norm(directions[:, free], axis=1)
    errors, known_of = np.full(len(directions), np.nan), lengths > 0
    if not known_of.any():
        return errors
    values, vectors = np.linalg.eigh(B[np.ix_(free, free)])
    unit = directions[known_of][:, free] / lengths[known_of, None]
    known, shares = values > least, (unit @ vectors) ** 2
    variance = (shares[:, known] / values[known]).sum(axis=1)
    flat = shares[:, ~known].sum(axis=1)
    certain = (flat < FLAT) & (flat <= least * variance)  # they add flat / least or more
    found = np.where(certain, np.sqrt(variance + flat / least), np.nan)
    errors[known_of] = lengths[known_of] * found
    return errors
