"""Sample paths: draws of f that are functions of any place (Wilson et al. 2020).

Letters: phi(x) random features of the kernel and w ~ N(0, I), so that g = phi' w is a draw of the
prior.  Matheron's rule turns it into one of the posterior: given inducing values u ~ q(u) at inputs
Z it is g(x) + k(x, Z) K_ZZ^-1 (u - g(Z)); given targets y = f + e it is g(x) + m(x; y - g(X) - e),
with m(x; y) the mean that the method predicts from y, and e a draw of the noise.  t = p S columns
hold S paths of p targets, those of a target side by side.

Where hyper-parameters vary over space g is a draw with the spectrum that each place has
(``kernels.evolving``), and m(x; y) the mean given hyper-parameters at x.  Near x, where rows tell
of it, both are those of one kernel; to the extent that hyper-parameters change from there to the
rows, the covariance of paths is not that of the method but the error of its mean for such a g.

Rows are worked on in tiles of one shape, whatever their number: a product of another shape may
round in another way, and a path is to have the same bits in every chunk.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, to_host, wide
from daskgp.errors import SettingError
from daskgp.kernels import Averaged, Kernel
from daskgp.kernels.averaged import moved, on_sphere
from daskgp.kernels.evolving import (
    Waves,
    check_evolving,
    count_features,
    draw_waves,
    evolving_features,
)
from daskgp.kernels.program import Program
from daskgp.kernels.spectrum import random_features
from daskgp.models.method import Declared
from daskgp.models.values import Footprint, Moments, Shape, Theta, Want
from daskgp.models.varying import Varying
from daskgp.typing import Array

FREQUENCIES = 2_048
"""Default number of frequencies of each term of a kernel."""
TILE = 256
"""Rows of a tile."""
PAGE = 256
"""Training rows whose noise is drawn together."""
FEATURES, WEIGHTS, VALUES, NOISE, COEFFICIENTS = range(5)
"""Streams of random numbers."""


class Prior(NamedTuple):
    """Draws of the prior: phi(x) = [a cos Wx, a sin Wx, s x] and w (q, t).

    ``frequencies`` W (m, d), ``amplitudes`` a (m,), ``slopes`` s (r, d).
    """

    frequencies: Array
    amplitudes: Array
    slopes: Array
    weights: Array

    def __call__(self, X: Array) -> Array:
        """Return the draws (n, t) at scaled rows X (n, d)."""
        values = [self._tile(tile)[: len(X)] for tile in tiles(X)]
        return namespace(X).concatenate(values)[: len(X)]

    def _tile(self, X: Array) -> Array:
        xp, m = namespace(X), len(self.frequencies)
        features = xp.empty((len(X), 2 * m + len(self.slopes)))
        phases = X @ self.frequencies.T
        xp.cos(phases, out=features[:, :m])
        xp.sin(phases, out=features[:, m : 2 * m])
        features[:, :m] *= self.amplitudes
        features[:, m : 2 * m] *= self.amplitudes
        features[:, 2 * m :] = X @ self.slopes.T
        return features @ self.weights


class Field(NamedTuple):
    """Arrays of ``Varying``."""

    knots: Array
    logs: Array
    columns: Array
    errors: Array


class EvolvingPrior(NamedTuple):
    """Draws of a prior whose hyper-parameters vary: features of ``kernels.evolving``, w (q, t)."""

    program: Program
    waves: Waves
    field: Field
    weights: Array

    def __call__(self, X: Array) -> Array:
        """Return the draws (n, t) at scaled rows X (n, d)."""
        varying, known = Varying(*map(to_host, self.field)), Program(*map(to_host, self.program))
        values = [self._tile(varying, known, tile)[: len(X)] for tile in tiles(X)]
        return namespace(X).concatenate(values)[: len(X)]

    def _tile(self, varying: Varying, known: Program, X: Array) -> Array:
        own = known.values * np.exp(varying.at(X)[:, :-1])
        waves = self.waves._replace(terms=to_host(self.waves.terms))
        return evolving_features(known, waves, own, X) @ self.weights


class AveragedPrior(NamedTuple):
    """Averages of draws over the nodes of footprints.

    Node a has the weight ``weights`` (a,); its coordinates, ``columns`` (m,), are moved by the
    columns ``footprints`` (o,) times ``moves`` (a, o, m), or (a, o, 2) of three along a sphere.
    """

    prior: Prior
    weights: Array
    moves: Array
    columns: Array
    footprints: Array

    @classmethod
    def of(cls, prior: Prior, kernel: Averaged, d: int) -> AveragedPrior:
        """Return the averages of draws of the function at points."""
        own, columns = kernel.extents(d), np.array(kernel.coordinate_columns(d), np.int64)
        weights, moves = kernel.unit_moves(d)
        return cls(prior, weights, moves, columns, np.array(list(own), np.int64))

    def __call__(self, X: Array) -> Array:
        """Return the averages (n, t) at scaled rows X (n, d)."""
        own, columns = to_host(self.footprints).tolist(), to_host(self.columns).tolist()
        centres, total = X.copy(), 0.0
        centres[:, own] = 0.0
        for weight, move in zip(to_host(self.weights), self.moves, strict=True):
            offsets = X[:, own] @ move.astype(X.dtype)
            nodes = (on_sphere if offsets.shape[1] < len(columns) else moved)(
                centres, columns, offsets
            )
            total = total + float(weight) * self.prior(nodes)
        return total


AnyPrior: TypeAlias = Prior | EvolvingPrior | AveragedPrior


class PathState(NamedTuple):
    """Draws of the prior, and what the method needs to turn them into draws of the posterior."""

    prior: AnyPrior
    update: Any

    @property
    def points(self) -> np.ndarray:
        """Number () of points that predictions read back."""
        return np.asarray(self.update.points)


class Update(NamedTuple):
    """Weights V (m, t) of the kernel at inputs Z (m, d), and a constant (t,)."""

    inputs: Array
    weights: Array
    offset: Array


class ActionUpdate(NamedTuple):
    """Weights V (actions, t), and the number () of points that predictions read back."""

    weights: Array
    points: np.ndarray


@dataclass(frozen=True)
class PathDraw:
    """Seed and sizes of sample paths, and the random numbers that they are made of.

    Parameters
    ----------
    kernel : Kernel
        Of the model, in its units.
    n_features : int
        Number of columns d of the inputs.
    n_targets, n_samples : int
        Numbers p and S.
    seed : int
    n_frequencies : int, optional
        Frequencies of each term of the kernel; default ``FREQUENCIES``.
    trend : (r, t) array, optional
        Draws of the coefficients of trend functions: the paths are those of what these leave.
    varying : Varying, optional
        Hyper-parameters that vary over space.
    """

    kernel: Kernel
    n_features: int
    n_targets: int
    n_samples: int
    seed: int
    n_frequencies: int | None = None
    trend: Array | None = field(default=None, compare=False)
    varying: Varying | None = None

    @property
    def prior(self) -> AnyPrior:
        """Draws of the prior, which a process makes once."""
        return _prior(self)

    def values(self, n: int) -> np.ndarray:
        """Return normal numbers (n, t) for the inducing values."""
        return self.normal(n, VALUES)

    def noise(self, start: int, stop: int) -> np.ndarray:
        """Return normal numbers (stop - start, t) for training rows by their numbers."""
        first, last = start // PAGE, -(-stop // PAGE)
        pages = [self.normal(PAGE, NOISE, page) for page in range(first, last)]
        drawn = np.concatenate([np.empty((0, self.width)), *pages])
        return drawn[start - first * PAGE : stop - first * PAGE]

    @property
    def width(self) -> int:
        """Number of columns t."""
        return self.n_targets * self.n_samples

    def coefficients(self, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
        """Return draws (r, t) of coefficients with mean (r, p) and a root (r, r) of covariance."""
        return np.asarray(self.repeated(mean) + root @ self.normal(len(root), COEFFICIENTS))

    def repeated(self, values: Array) -> Array:
        """Return columns of targets (..., p) once for each of their paths (..., t).

        Further columns are those of trend functions, whose draws are taken off.
        """
        xp, p = namespace(values), self.n_targets
        found = xp.repeat(values[..., :p], self.n_samples, axis=-1)
        if self.trend is None or values.shape[-1] == p:
            return found
        return found - values[..., p:] @ xp.asarray(self.trend)

    def stream(self, *stream: int) -> np.random.Generator:
        """Return a generator of the numbers of one stream."""
        return np.random.default_rng([self.seed, *stream])

    def normal(self, n: int, *stream: int) -> np.ndarray:
        """Return normal numbers (n, t); those of the first paths are the same however many."""
        drawn = self.stream(*stream).standard_normal((self.n_samples, n, self.n_targets))
        return np.ascontiguousarray(drawn.transpose(1, 2, 0)).reshape(n, self.width)


def at_points(kernel: Kernel) -> Kernel:
    """Return the kernel of a function at points, where that of its averages is given."""
    return kernel.kernel if isinstance(kernel, Averaged) else kernel


@lru_cache(maxsize=2)
def _prior(draw: PathDraw) -> AnyPrior:
    number = FREQUENCIES if draw.n_frequencies is None else draw.n_frequencies
    if draw.varying is not None:
        return _evolving(draw, draw.varying, number)
    kernel = at_points(draw.kernel)
    drawn = random_features(kernel, number, draw.n_features, draw.stream(FEATURES))
    prior = Prior(*drawn, draw.normal(2 * len(drawn[0]) + len(drawn[2]), WEIGHTS))
    if isinstance(draw.kernel, Averaged):
        return AveragedPrior.of(prior, draw.kernel, draw.n_features)
    return prior


def _evolving(draw: PathDraw, varying: Varying, number: int) -> EvolvingPrior:
    logs = varying.spread[:, :-1]
    known = check_evolving(draw.kernel, draw.n_features, logs)
    values = known.values * np.exp(logs)
    waves = draw_waves(known, values, number, draw.n_features, draw.stream(FEATURES))
    weights = draw.normal(count_features(known, waves), WEIGHTS)
    return EvolvingPrior(known, waves, Field(**varying.arrays), weights)


def by_inducing(
    draw: PathDraw,
    inputs: Array,
    factor: Array,
    mean: Array,
    root: Callable[[Array], Array],
    more: tuple[Array, Array, Array] | None = None,
) -> tuple[Paths, PathState]:
    """Return paths from the posterior of inducing values.

    Parameters
    ----------
    draw : PathDraw
    inputs : (m, d) array
        Z.
    factor : (m, m) array
        L of K_ZZ = L L'.
    mean : (m, p) array
        Weights V of the posterior mean k(x, Z) V.
    root : callable
        Turns normal numbers (r, t) into draws (m, t) of L^-1 (u - E u).
    more : tuple of arrays, optional
        Inputs (b, d) and weights (b, p) of further functions of the mean, and its constant (p,).
    """
    xp, prior = namespace(factor), draw.prior
    whitened = root(xp.asarray(draw.values(len(factor))))
    whitened = whitened - linalg.solve_lower(factor, xp.asarray(prior(inputs)))
    weights = draw.repeated(wide(mean)) + linalg.solve_lower_t(factor, whitened)
    offset = xp.zeros(draw.width)
    if more is not None:
        inputs = xp.concatenate([inputs, more[0]])
        weights = xp.concatenate([weights, draw.repeated(wide(more[1]))])
        offset = draw.repeated(wide(more[2]))
    return Inducing(), PathState(prior, Update(inputs, weights, offset))


def tiles(X: Array) -> Iterator[Array]:
    """Yield rows X (n, d) in float64 and in tiles of TILE rows, the last one filled up."""
    xp = namespace(X)
    for start in range(0, max(len(X), 1), TILE):
        tile = X[start : start + TILE].astype(np.float64, copy=False)
        if len(tile) < TILE:
            more = xp.zeros((TILE - len(tile), X.shape[1]))
            tile = xp.concatenate([tile, more + tile[:1] if len(tile) else more])
        yield xp.ascontiguousarray(tile)


@dataclass(frozen=True)
class Paths(Declared):
    """Base of the sample paths of a method: a mean (n, t) without a variance."""

    name: ClassVar[str] = "sample paths"
    state_type: ClassVar[Any] = PathState

    @abstractmethod
    def updates(self, theta: Theta, update: Any, tiles: Sequence[Array], near: Any) -> list[Array]:
        """Return what turns draws of the prior into those of the posterior, tile by tile."""

    def predict(
        self, theta: Theta, state: PathState, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the paths (n, t) at rows X (n, d)."""
        own = list(tiles(X))
        updates = self.updates(theta, state.update, own, near)
        values = [state.prior(tile) + more for tile, more in zip(own, updates, strict=True)]
        return Moments(namespace(X).concatenate(values)[: len(X)])

    def footprint(self, shape: Shape) -> Footprint:
        """Raise: paths are not planned."""
        raise SettingError("sample paths are not planned")


@dataclass(frozen=True)
class Inducing(Paths):
    """Paths whose update is a sum of kernels at inducing or training inputs."""

    def updates(
        self, theta: Theta, update: Update, tiles: Sequence[Array], near: Any
    ) -> list[Array]:
        """Return k(x, Z) V and the constant."""
        if not len(update.inputs):
            return [update.offset] * len(tiles)
        return [
            theta.kernel(tile, update.inputs) @ update.weights + update.offset for tile in tiles
        ]


@dataclass(frozen=True)
class ConditionedPaths(Paths):
    """Paths of a method whose mean is conditioned on training rows, here on targets y - g(X) - e.

    Parameters
    ----------
    method : Conditioned
        Its ``predict``, ``condition`` and ``features`` take the update as state.
    """

    method: Any

    keeps_rows: ClassVar[bool] = True

    def features(self, theta: Theta, state: PathState, X: Array) -> Array:
        """Return the method's features of rows X (n, d)."""
        return self.method.features(theta, state.update, X)

    def condition(self, theta: Theta, state: PathState, blocks: Any, features: Any = None) -> Any:
        """Return what the method needs of the rows of blocks."""
        return self.method.condition(theta, state.update, blocks, features)

    def updates(self, theta: Theta, update: Any, tiles: Sequence[Array], near: Any) -> list[Array]:
        """Return the means that the method predicts."""
        return [self.method.predict(theta, update, tile, near).mean for tile in tiles]


@dataclass(frozen=True)
class OfPoints(Paths):
    """Paths whose update is a sum of kernels at points that are read back panel by panel."""

    keeps_rows: ClassVar[bool] = True

    def updates(self, theta: Theta, update: Any, tiles: Sequence[Array], near: Any) -> list[Array]:
        """Return k(x, Z) S V for the actions S, whose weights V (actions, t) are the update."""
        totals: list[Any] = [0.0] * len(tiles)
        for panel in near:
            weights = panel.weights.spread(update.weights.T).T
            for i, tile in enumerate(tiles):
                totals[i] = totals[i] + theta.kernel(tile, panel.X) @ weights
        return totals
