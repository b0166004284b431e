"""Empirical variograms of rows, and what a fitted method expects of the same pairs.

Pairs lie within blocks and between blocks.  A task reads one block or two and sums over their pairs
by distance, so that memory is bounded by the rows of a block, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from daskgp import data
from daskgp.assess.scores import aligned
from daskgp.checks import positive, shown, whole
from daskgp.checks import rows as rows_of
from daskgp.data import feature_units, partition, visibility
from daskgp.data.blocks import filling
from daskgp.data.partition import Span
from daskgp.data.regressor import Regressor
from daskgp.data.rows import Beside
from daskgp.errors import InputError, SettingError
from daskgp.fit.scratch import scratch_rows
from daskgp.kernels import Kernel
from daskgp.kernels.rotated import rotations
from daskgp.kernels.units import has_rotation
from daskgp.models.columns import KILOMETRES
from daskgp.models.scaling import Scaling, complete_rows
from daskgp.models.values import add
from daskgp.posterior.posterior import Posterior, check_columns, refuse_other_units
from daskgp.runtime.executor import Executor, map_reduce
from daskgp.runtime.process import single_blas_thread
from daskgp.typing import Path

BLOCK_ROWS, TILE_ROWS = 1_024, 256
"""Most rows of a block, and of those that are compared with another block at a time."""
REACH = 1 / 3
"""Longest distance, as a share of the diagonal of the box around the rows, as gstat takes it."""


@dataclass(frozen=True, eq=False)
class Variogram:
    """Semivariances of pairs of rows by their distance, and those that a model expects.

    Attributes
    ----------
    edges : ndarray, shape (k + 1,)
        Bounds of the classes of distances, each with its lower bound, the last with both.
    distance : ndarray, shape (k,)
        Mean distance of the pairs of a class, NaN for a class without pairs.
    pairs : ndarray of int, shape (k,)
        Number of pairs.
    semivariance : ndarray, shape (k,) or (k, p)
        Mean of (y_i - y_j)^2 / 2, in y's units squared.
    expected : ndarray, shape (k,) or (k, p), or None
        Mean of what a model expects of the same pairs, in the same units.
    noise_variance : float, ndarray (p,), or None
        Noise variance of the model in the same units: the nugget.
    target_names, target_units : tuple of str
        Names of the targets, and their units if known.
    distance_unit : str
        Unit of distances, empty if not known.
    directions : tuple of str
        Names of the q axes of a model with rotated columns.
    along : ndarray, shape (k, q) or (k, q, p), or None
        What such a model expects along each of its axes at these distances, without its trend.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([0.0, 2.0, 2.0])
    >>> found = daskgp.variogram(X, y, bins=[0, 2, 4])
    >>> found.edges, found.semivariance
    (array([0., 2., 4.]), array([2., 1.]))
    """

    edges: np.ndarray
    distance: np.ndarray
    pairs: np.ndarray
    semivariance: np.ndarray
    expected: np.ndarray | None
    noise_variance: Any
    target_names: tuple[str, ...]
    target_units: tuple[str, ...]
    distance_unit: str
    directions: tuple[str, ...] = ()
    along: np.ndarray | None = None

    def __str__(self) -> str:
        """Return a table, a line per class of distances."""
        lines = []
        for k, distance in enumerate(self.distance):
            heading = f"distance ({self.distance_unit})" if self.distance_unit else "distance"
            line = {heading: float(distance), "pairs": int(self.pairs[k])}
            parts = {"semivariance": self.semivariance, "expected": self.expected}
            if self.along is not None:
                each = (self.along[:, j] for j in range(len(self.directions)))
                named = zip(self.directions, each, strict=True)
                parts |= {f"expected {name}": own for name, own in named}
            for name, values in parts.items():
                if values is None:
                    continue
                own = np.atleast_1d(values[k])
                several = zip(self.target_names, own, strict=True) if len(own) > 1 else ()
                line |= {f"{name} of {t}": float(v) for t, v in several} or {name: float(own[0])}
            lines.append(line)
        return aligned(lines)


class Wanted(NamedTuple):
    """Pairs that a variogram is made of, as `daskgp.variogram` takes them."""

    bins: Any
    max_distance: float | None
    columns: Sequence[str | int] | None
    n_pairs: int
    seed: int

    def check(self) -> None:
        """Raise SettingError for settings that cannot be."""
        whole("n_pairs", self.n_pairs, 1)
        whole("random_state", self.seed, 0)
        if self.max_distance is not None:
            positive("max_distance", self.max_distance)


def of_rows(
    X: Any,
    y: Any,
    beside: Beside,
    posterior: Posterior | None,
    wanted: Wanted,
    geographic: Any,
    fill_values: Any,
    store: Path | None,
    executor: Executor,
) -> Variogram:
    """Return the variogram of rows, and what a posterior expects of their pairs."""
    with scratch_rows(store) as spill:
        place = geographic if posterior is None else posterior.geographic or False
        rows = data.rows_of(X, y, spill, executor.shares_memory, None, beside, place)
        for array in rows.arrays.values():
            remedy = f"put it in {visibility.HERE}, with store= where it is written"
            visibility.check(executor, array, "the dataset", remedy)
        features = _positions(wanted.columns, rows.feature_names)
        used = rows.columns.inputs_of(features)
        expected = None if posterior is None else _expected(posterior, rows)
        units = _units(rows, features, wanted.columns is not None)
        pieces = _pieces(rows, wanted.n_pairs, wanted.seed)
        if posterior is not None:
            rows = replace(rows, fills=posterior.fills)
        rows = filling.marked(rows, fill_values, _blocks(pieces), executor)
        reach = partial(_reach, rows, used, pieces, executor)
        edges = _edges(wanted.bins, wanted.max_distance, reach)
        task = partial(_sums, rows, used, edges, expected)
        total: Sums = map_reduce(task, add, pieces, executor, "variogram")
    flat = rows.y.ndim == 1
    own = 0 if flat else slice(None)
    with np.errstate(invalid="ignore"):  # classes without pairs have no mean
        distance, semivariance, mean = (
            None if s is None else (s.T / total.pairs).T for s in total[1:]
        )
    assert distance is not None
    assert semivariance is not None
    directions: tuple[str, ...] = ()
    along = None
    if expected is not None and has_rotation(expected.kernel):
        directions, along = expected.along(distance[:, 0], used, rows.columns.inputs_names)
    return Variogram(
        edges,
        distance[:, 0],
        total.pairs.astype(np.int64),
        semivariance[:, own],
        None if mean is None else mean[:, own],
        None if expected is None else expected.nugget[own],
        rows.target_names,
        rows.target_units,
        next((unit for unit in units if units == [unit] * len(units)), ""),
        directions,
        None if along is None else along[..., own],
    )


class Sums(NamedTuple):
    """Sums over pairs by class of distance: their number (k,), distances (k, 1), values (k, p)."""

    pairs: np.ndarray
    distance: np.ndarray
    square: np.ndarray
    expected: np.ndarray | None = None


class Block(NamedTuple):
    """Rows X (n, d) and y (n, p) with their weights (n,), error variances (n,) and mean (n, p)."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    error: np.ndarray
    mean: np.ndarray | None

    def at(self, rows: slice) -> Block:
        """Return some of the rows."""
        mean = None if self.mean is None else self.mean[rows]
        return Block(self.X[rows], self.y[rows], self.weight[rows], self.error[rows], mean)


@dataclass(frozen=True, eq=False)
class Expected:
    """Semivariances of pairs that a fitted method expects."""

    kernel: Kernel
    scaling: Scaling
    noise: float
    regressor: Regressor | None

    def mean(self, X: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """Return the mean function (n, p) at rows X (n, d), with their inputs."""
        mean, trend = np.zeros((len(X), len(self.scaling.y_scale))), self.scaling.trend
        mean += self.scaling.mean_function(self.scaling.inputs(inputs))
        if trend is not None:
            mean = mean + trend.fitted(X[:, trend.columns])
        return mean if self.regressor is None else mean + self.regressor(X)

    def semivariance(self, a: Block, b: Block) -> np.ndarray:
        """Return expected semivariances (n, m, p) of rows without noise, in y's units."""
        X, Z = self.scaling.inputs(a.X), self.scaling.inputs(b.X)
        prior = (self.kernel.diag(X)[:, None] + self.kernel.diag(Z)) / 2
        latent = prior - self.kernel(X, Z)
        assert a.mean is not None
        assert b.mean is not None
        trend = (a.mean[:, None] - b.mean) ** 2 / 2
        return np.asarray(latent[:, :, None] * self.scaling.y_scale**2 + trend)

    def along(
        self, distance: np.ndarray, columns: Sequence[int], names: Sequence[str]
    ) -> tuple[tuple[str, ...], np.ndarray | None]:
        """Return names of the turned axes, and semivariances (k, q, p) at distances along them.

        There are none unless the distances are over all columns that are rotated.
        """
        (_, rotated), *_ = rotations(self.kernel)
        if not set(rotated.columns) <= set(columns):
            return (), None
        d = len(self.scaling.x_scale)
        axes = rotated.axes(d)[list(rotated.columns)] / self.scaling.x_scale
        away = distance[:, None, None] * axes
        X, found = np.zeros((1, d)), []
        for Z in away.transpose(1, 0, 2):
            prior = (self.kernel.diag(X) + self.kernel.diag(Z)) / 2
            found.append(prior - self.kernel(X, Z)[0])
        latent = np.stack(found, axis=1)[:, :, None]
        given = [names[j] for j in rotated.columns]
        named = [f"along axis {i}" for i in range(len(given))]
        if len(given) == 2:
            angle = float(rotated.angles[0]) % rotated.period
            named = [f"along {angle:.0f} degrees from {given[0]} to {given[1]}", "across"]
        return tuple(named), np.asarray(latent * self.scaling.y_scale**2 + self.nugget)

    @property
    def nugget(self) -> np.ndarray:
        """Noise variance (p,) of a row of weight 1 without an error of its own, in y's units."""
        return np.asarray(self.noise * self.scaling.y_scale**2)

    def noise_of(self, block: Block) -> np.ndarray:
        """Return the noise variances (n, p) of rows, in y's units."""
        return self.nugget / block.weight[:, None] + block.error[:, None]


def _sums(
    rows: data.Rows,
    columns: list[int],
    edges: np.ndarray,
    expected: Expected | None,
    pair: tuple[Span, Span],
) -> Sums:
    """Return the sums over the pairs of two blocks, or within one if they are the same."""
    with single_blas_thread():
        first = _read(rows, pair[0], expected)
        second = first if pair[0] == pair[1] else _read(rows, pair[1], expected)
        X, y, Z, z = first.X, first.y, second.X, second.y
        k, p = len(edges) - 1, y.shape[1]
        total = Sums(np.zeros(k), np.zeros((k, 1)), np.zeros((k, p)))
        for start in range(0, len(X), TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            away = distances(X[tile, columns], Z[:, columns])
            index = np.searchsorted(edges, away, side="right") - 1
            index[away == edges[-1]] = k - 1
            wanted = (index >= 0) & (index < k)
            if Z is X:  # each pair once, and no row with itself
                wanted &= np.arange(len(Z)) > np.arange(start, start + len(away))[:, None]
            i, j = np.nonzero(wanted)
            index = index[i, j]
            values = [away[i, j][:, None], (y[tile][i] - z[j]) ** 2 / 2]
            if expected is not None:
                noise = expected.noise_of(first)[tile][i] + expected.noise_of(second)[j]
                values.append(expected.semivariance(first.at(tile), second)[i, j] + noise / 2)
            found = np.bincount(index, minlength=k).astype(np.float64)
            total = add(total, Sums(found, *(_by_class(index, v, k) for v in values)))
        return total


def _by_class(index: np.ndarray, values: np.ndarray, k: int) -> np.ndarray:
    return np.stack([np.bincount(index, column, minlength=k) for column in values.T], axis=1)


def distances(X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """Return the distances (n, m) of rows, in the units of their columns."""
    return np.asarray(cdist(X, Z))


def _read(rows: data.Rows, span: Span, expected: Expected | None = None) -> Block:
    given, y = (part.astype(np.float64) for part in rows.raw(*span))
    X = rows.columns.inputs(given)
    keep = complete_rows(X, y) & ~(np.isinf(X).any(axis=1) | np.isinf(y).any(axis=1))
    X, y, p = X[keep], y[keep], rows.n_targets
    mean = None if expected is None else expected.mean(given[keep], X)
    weight, error = y[:, p:].T if rows.n_noise else (np.ones(len(y)), np.zeros(len(y)))
    return Block(X, y[:, :p], weight, error, mean)


def _pieces(rows: data.Rows, n_pairs: int, seed: int) -> list[tuple[Span, Span]]:
    """Return pairs of blocks, all of them or about as many as have ``n_pairs`` pairs of rows."""
    spans = partition.blocks(len(rows), rows.chunks, BLOCK_ROWS)
    n, m = len(rows), len(spans)
    if n < 2:
        raise InputError(f"{rows_of(n)} {'has' if n == 1 else 'have'} no pairs: give at least 2")
    if n * (n - 1) // 2 <= n_pairs:
        return [(spans[i], spans[j]) for i in range(m) for j in range(i, m)]
    size = -(-n // m)
    rng, number = np.random.default_rng([seed, n]), max(2, n_pairs // size**2)
    within = rng.choice(m, min(m, max(1, number // 2)), replace=False)
    chosen = {(int(i), int(i)) for i in within}
    number = min(number, len(chosen) + m * (m - 1) // 2)
    while len(chosen) < number:
        i, j = sorted(int(i) for i in rng.integers(m, size=2))
        chosen |= {(i, j)} if i < j else set()
    return [(spans[i], spans[j]) for i, j in sorted(chosen)]


def _reach(
    rows: data.Rows, columns: list[int], pieces: list[tuple[Span, Span]], executor: Executor
) -> float:
    """Return the longest distance to look at, from the rows of the blocks alone."""
    spans = _blocks(pieces)
    task = partial(_box, rows, columns)
    low, high = map_reduce(task, _around_both, spans, executor, "box")
    diagonal = float(np.sqrt(((high - low) ** 2).sum()))
    if not 0 < diagonal < np.inf:
        raise InputError(
            "there are no distances: the rows lie in one place, or all lack a value: give "
            "rows at two places or more"
        )
    return REACH * diagonal


def _blocks(pieces: list[tuple[Span, Span]]) -> list[Span]:
    """Return the blocks that are read."""
    return sorted({span for pair in pieces for span in pair})


def _box(rows: data.Rows, columns: list[int], span: Span) -> tuple[np.ndarray, np.ndarray]:
    X = _read(rows, span).X[:, columns]
    return X.min(axis=0, initial=np.inf), X.max(axis=0, initial=-np.inf)


def _around_both(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.minimum(a[0], b[0]), np.maximum(a[1], b[1])


def _edges(bins: Any, longest: float | None, reach: Any) -> np.ndarray:
    if np.ndim(bins) == 0:
        return np.linspace(0.0, longest or reach(), whole("bins", bins, 1) + 1)
    edges = np.asarray(bins, np.float64)
    if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all() or edges[0] < 0:
        raise SettingError(f"bins={shown(bins)}: give a number, or increasing bounds from 0 on")
    if longest is not None:
        raise SettingError("max_distance has no effect beside the bounds in bins: leave one out")
    return edges


def _positions(columns: Sequence[str | int] | None, names: tuple[str, ...]) -> list[int]:
    """Return the positions of columns given by names or positions, all by default."""
    if columns is None:
        return list(range(len(names)))
    known = {name: j for j, name in enumerate(names)} | {j: j for j in range(len(names))}
    odd = [column for column in columns if column not in known]
    if odd or not len(columns):
        raise SettingError(
            f"columns={shown(list(columns))}: choose among {', '.join(names)}, or positions"
        )
    return [known[column] for column in columns]


def _units(rows: data.Rows, features: Sequence[int], named: bool) -> list[str]:
    """Return the units of distances along features, empty if unknown.

    Raises
    ------
    SettingError
        If two differ, or nobody ``named`` features of which some are places on the sphere or times.
    """
    place, known = rows.geographic or (), rows.feature_units or ("",) * len(rows.feature_names)
    units = [feature_units.of_differences(known[j]) for j in features]
    units = ["degrees" if feature_units.plain(u).startswith("degrees") else u for u in units]
    units = [KILOMETRES if j in place else u for j, u in zip(features, units, strict=True)]
    times = {j for j in features if feature_units.count_of(known[j]) is not None}
    near = {*features} & {*place} or {*features} - times or times  # of which others are told apart
    first = next((u for j, u in zip(features, units, strict=True) if j in near and u), "")
    odd = {
        rows.feature_names[j]: unit
        for j, unit in zip(features, units, strict=True)
        if not feature_units.alike(unit, first) or (not named and j not in near)
    }
    if odd:
        names = [rows.feature_names[j] for j in features]
        (name, unit), *_ = odd.items()
        rest = [name for name in names if name not in odd]
        raise SettingError(
            f"distances over {', '.join(names)} would mix {first or repr(rest[0])} and "
            f"{unit or repr(name)}: choose columns of one unit, such as columns={rest}"
        )
    return units


def _expected(posterior: Posterior, rows: data.Rows) -> Expected:
    check_columns(posterior, rows.X, rows.feature_names)
    refuse_other_units(posterior, rows)
    posterior.refuse_transformed("an expected variogram", "leave the model out")
    posterior.refuse_targets_together("an expected variogram")
    if posterior.theta.varying is not None:
        raise SettingError(
            "the hyper-parameters of this model vary over space, so no single variogram is "
            "expected everywhere: leave the model out"
        )
    if posterior.likelihood is not None:
        raise InputError(
            f"with likelihood {posterior.likelihood.name!r} y is not f plus noise, so its "
            "variogram is not that of the kernel: leave the model out"
        )
    if posterior.n_targets != rows.n_targets:
        raise InputError(
            f"y has {rows.n_targets} targets, but the model was fitted with "
            f"{posterior.n_targets}: give the same, or leave the model out"
        )
    regressor = None if posterior.known is None else posterior.known.regressor
    return Expected(
        posterior.theta.kernel, posterior.scaling_of_mean, posterior.theta.noise_variance, regressor
    )
