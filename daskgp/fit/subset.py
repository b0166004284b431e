"""Hyper-parameters by the exact evidence of some rows: where training starts, or all there is."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from daskgp import kernels, train
from daskgp.data.blocks import sampling
from daskgp.errors import NumericalError
from daskgp.fit import rounds
from daskgp.kernels import Kernel, rotated
from daskgp.kernels.units import has_rotation, left_open
from daskgp.models.exact import Exact
from daskgp.models.values import Block, Shape, Theta
from daskgp.runtime.process import solve_threads
from daskgp.runtime.progress import ShowProgress
from daskgp.train import callbacks, newton
from daskgp.train.callbacks import calling

logger: logging.Logger = logging.getLogger("daskgp")

ROWS = 768
"""Rows of the subset: half of them drawn at random, half the nearest to some of those."""
SEEDS = 6
SCREEN = 384
"""Rows on which starts are compared."""
SHRINK = (1.0, 0.25, 0.0625)
"""Lengthscales that are tried, as multiples of median distances."""
QUIET = 0.01
"""Noise variance that is tried besides the one set, for targets of variance 1."""
ITERATIONS = 30
"""Most iterations of a search of starts."""
TRAIN_ITERATIONS, TRAIN_TOL = 50, 0.01
"""Most iterations and the tolerance of training on the subset alone."""
NO_NOISE = 100.0
"""Multiple of its lower bound below which a noise variance counts as none."""
COARSE = 0.2
"""Nats per value of the evidence of the subset above which a loss is put down to few inputs."""
NOTHING = 0.95
"""Share of the variance of y above which noise is all that was learned."""
RIVAL = 15.0
"""Difference in the evidence of the subset, in nats, below which more rows decide on a kernel."""
SMOOTHNESS = (kernels.Matern12, kernels.Matern32, kernels.Matern52)
"""Kernels from which ``kernel=None`` takes the one with the largest evidence."""

PEAKS, LEAST_PLACES = 4, 8
"""Most peaks of a spectrum that periods start at, and least distinct places for a spectrum."""
MOST_CYCLES, FINENESS = 4096, 5
"""Most cycles over the range of a column in a spectrum, and frequencies per cycle."""
FOUND = ("lengthscale", "period", "variance", "angle", "correlation")
"""Hyper-parameters that a kernel may have values of, which a search then keeps."""
TRIED = 4
"""Most starts that are trained on the subset."""

Bounds = Callable[[Theta], np.ndarray]


class Distances(NamedTuple):
    """Median absolute difference per column (d,) and median Euclidean distance of a sample.

    ``variance`` is that of targets which have no scale of their own.
    """

    per_column: np.ndarray
    euclidean: float
    variance: float = 1.0


def median_distances(X: np.ndarray, rows: int = 1000) -> Distances:
    """Return medians over the pairs of at most ``rows`` rows, without zeros; 1 if all are zero."""
    X = X[:: max(1, -(-len(X) // rows))]
    columns = np.array([_positive_median(pdist(X[:, [j]])) for j in range(X.shape[1])])
    return Distances(columns, _positive_median(pdist(X)))


def _positive_median(distances: np.ndarray) -> float:
    distances = distances[distances > 0]
    return float(np.median(distances)) if len(distances) else 1.0


class Start(NamedTuple):
    """Hyper-parameters to start from, and the curvature of the evidence of that many ``rows``.

    ``rivals`` are those of other kernels whose evidence is hardly less, ``others`` those of the
    rest, which many rows may favour all the same; ``searched`` is the best of all by the exact
    evidence, if there was a search, also where the start is another one;
    ``sample`` (N, d) are scaled rows that inputs are chosen from; ``refined`` says that blocks have
    trained them; ``evidence`` is there if the kernel says all, so that nothing was searched for.
    """

    theta: Theta
    curvature: newton.Curvature | None = None
    rows: int = 0
    rivals: tuple[Theta, ...] = ()
    others: tuple[Theta, ...] = ()
    searched: Searched | None = None
    sample: np.ndarray | None = None
    refined: bool = False
    evidence: Evidence | None = None


def smooth_and_rough() -> list[Kernel]:
    """Return the kernels to choose from by default; starts are compared with the first one."""
    middle = len(SMOOTHNESS) // 2
    line = [SMOOTHNESS[middle], *SMOOTHNESS[:middle], *SMOOTHNESS[middle + 1 :]]
    return [one(ard=True) for one in line]


def subset_rows(stage: rounds.Rounds, sample: sampling.Drawn, keys: sampling.Keys) -> Block:
    """Return rows for the evidence: scattered ones show long lengthscales, near ones short ones.

    They are drawn by the keys of the sample; all rows if there are no more than ROWS.  Of a trend
    they miss the least squares fit.
    """
    p = stage.rows.n_targets
    drawn = sample.smallest(ROWS)
    if len(sample.keys) <= ROWS:
        return _targets(drawn.rows, p)
    scattered = sample.smallest(ROWS // 2)
    near = sampling.draw_near(
        stage.rows,
        stage.spans,
        stage.scaling,
        scattered.rows.X[:: -(-len(scattered.keys) // SEEDS)],
        (ROWS - len(scattered.keys)) // SEEDS,
        keys,
        stage.executor,
    )
    both = sampling.Drawn.join([scattered, near])
    return _targets(both.rows.at(np.unique(both.keys, return_index=True)[1]), p)


def _targets(rows: Block, number: int) -> Block:
    """Return rows without trend functions."""
    return rows._replace(y=rows.y[:, :number])


@dataclass(frozen=True)
class Evidence:
    """Exact evidence of a subset of rows, to be maximised within bounds.

    Parameters
    ----------
    few : Block
    bounds : callable
        Returns the bounds (k, 2) of the vector of hyper-parameters.
    tol : float
        As for training.
    prior : callable
        Returns the log prior, for as many rows, as a function of vectors of the kind of a theta.
    instead : Theta, optional
        Start without the numbers in the kernel.
    """

    few: Block
    bounds: Bounds
    tol: float
    prior: Callable[[Theta], train.Evaluate]
    instead: Theta | None = None

    def _posterior(self, theta: Theta) -> train.Evaluate:
        """Return evidence and prior as a function of vectors of the kind of a theta."""
        return train.plus(evidence(self.few, theta), self.prior(theta))

    def value(self, theta: Theta) -> float:
        """Return the log evidence at hyper-parameters; minus infinity if it cannot be computed."""
        try:
            return self._posterior(theta)(theta.to_vector(False))[0]
        except NumericalError:
            return -np.inf

    def search(self, theta: Theta) -> newton.Search:
        """Return a trust-region search that starts from hyper-parameters."""
        bounds = self.bounds(theta)
        coordinates = with_noise(theta.kernel.coordinates(newton.varies(bounds)[:-1]))
        return newton.Search(self._posterior(theta), bounds, coordinates, self.tol)

    def _misses(self, trained: Theta) -> bool:
        """Return True if the start without the numbers in the kernel is better as it is."""
        if self.instead is None:
            return False
        quiet = replace(self.instead, noise_variance=min(self.instead.noise_variance, QUIET))
        least = self.value(trained) + COARSE * self.few.y.size
        return any(self.value(start) > least for start in (self.instead, quiet))

    def warn_of_nothing(self, begun: Theta, trained: Theta) -> None:
        """Warn if training ended in noise alone, where exact evidence from some start does not."""
        alone = trained.noise_variance >= NOTHING * self.few.y.var()
        if callbacks.timed() or not (alone or self._misses(trained)):
            return  # a search has chosen the start itself, and has other uses for the time
        try:
            starts = [replace(begun, inputs=None)]  # the exact evidence has none
            starts += [self.instead] if self.instead is not None else []
            found = [start.from_vector(self.best(start).vector) for start in starts]
            best = max(found, key=self.value)
        except NumericalError:  # nothing is known that would help
            return
        gained = (self.value(best) - self.value(trained)) / self.few.y.size
        if np.isfinite(gained) and gained > COARSE:
            logger.warning(
                "training from the values in the kernel ended %s; the exact evidence of %d "
                "rows is %.2g nats per value higher with a noise variance of %.2g: leave the "
                "lengthscales out of the kernel to have a start searched for",
                "with nothing but noise" if alone else "far from the best",
                len(self.few.X),
                gained,
                best.noise_variance,
            )

    def best(self, theta: Theta, curvature: newton.Curvature | None = None) -> newton.Arrived:
        """Maximise from hyper-parameters; a curvature that is passed in is not verified."""
        search = self.search(theta)
        search.verify = curvature is None
        return search.run(theta.to_vector(False), curvature, ITERATIONS, _unnoted)


class Searched(NamedTuple):
    """The hyper-parameters with the largest exact evidence of a subset of rows."""

    evidence: Evidence
    theta: Theta

    def lost(self, trained: Theta) -> float:
        """Return how much less the exact evidence is at other hyper-parameters, nats per value."""
        best, found = self.evidence.value(self.theta), self.evidence.value(trained)
        return (best - found) / self.evidence.few.y.size

    def warn_of_coarse(self, trained: Theta, inputs: str, remedy: str) -> None:
        """Warn if the exact evidence contradicts hyper-parameters trained with few inputs."""
        lost = self.lost(trained)
        if np.isfinite(lost) and lost > COARSE:
            logger.warning(
                "%s do not resolve the data: the exact evidence of %d rows is %.2g nats per value "
                "lower at the hyper-parameters found (noise variance %.2g) than at its best "
                "(%.2g): %s",
                inputs,
                len(self.evidence.few.X),
                lost,
                trained.noise_variance,
                self.theta.noise_variance,
                remedy,
            )


def search(
    evidence: Evidence,
    choices: Sequence[Kernel],
    noise_variance: float,
    distances: Distances,
    periods: Periods,
) -> Start:
    """Return the start of largest evidence and prior.

    Parameters
    ----------
    evidence : Evidence
        That of the rows that decide.
    choices : sequence of Kernel
        Kernels to choose from; numbers that they leave open are searched for, others stay.
    noise_variance : float
        Noise variance to start from, besides QUIET.
    distances : Distances
        Median distances that lengthscales start at; those per column are multiplied by sqrt(d).
    periods : Periods
        Periods that those left open start at.
    """
    block = evidence.few
    thin = block.at(slice(None, None, -(-len(block.X) // SCREEN)))
    kept = given(choices[0], block.X.shape[1])

    def within(theta: Theta) -> np.ndarray:
        limits = evidence.bounds(theta)
        varies = kept & newton.varies(limits)[:-1]
        limits[:-1][varies] = theta.kernel.log_parameters[varies, None]
        return limits

    whole = replace(evidence, bounds=within, instead=None)
    screen = replace(whole, few=thin)
    starts = [
        best
        for own in periods.apart
        for turned in _candidates(choices[0], noise_variance, distances, own)
        for best in _apart(turned, screen.value)
    ]
    if len(starts) > TRIED:
        starts = sorted(starts, key=screen.value, reverse=True)[:TRIED]
    tried = [(screen.best(theta), theta) for theta in starts]
    first = max(tried, key=lambda pair: screen.value(pair[1].from_vector(pair[0].vector)))
    begun = first[1].from_vector(first[0].vector)
    curvature = first[0].curvature.scaled(len(block.X) / len(thin.X))._replace(exact=False)
    arrived = []
    for kernel in choices:
        theta = replace(begun, kernel=_like(kernel, begun.kernel, block.X.shape[1]))
        optimum = whole.best(theta, curvature)
        arrived.append(theta.from_vector(optimum.vector))
    values = [whole.value(theta) for theta in arrived]
    best = int(np.argmax(values))
    rest = [i for i in range(len(values)) if i != best]
    near = [i for i in rest if values[i] > values[best] - RIVAL]
    rivals = tuple(arrived[i] for i in near)
    others = tuple(arrived[i] for i in rest if i not in near)
    found = at(evidence, arrived[best])._replace(rivals=rivals, others=others)
    return found._replace(searched=Searched(whole, arrived[best]))


def given(kernel: Kernel, d: int) -> np.ndarray:
    """Return a mask (k,) of lengthscales, periods, variances and angles that a kernel has set."""
    names = kernel.resolve(np.ones(d), 1.0).parameter_names
    known = [any(word in name for word in FOUND) for name in names]
    return np.array(known, dtype=bool) & ~left_open(kernel, d)


class Periods(NamedTuple):
    """Periods to start at: those of a spectrum, best first, for the ``places`` left open.

    Attributes
    ----------
    places : tuple of int
        Positions in the vector of hyper-parameters.
    found : tuple of tuple of float
        Periods for each place.
    """

    places: tuple[int, ...] = ()
    found: tuple[tuple[float, ...], ...] = ()

    @property
    def apart(self) -> list[Periods]:
        """One choice of periods each, the k-th of several places taking the k-th next."""
        number = max(map(len, self.found), default=1)
        return [
            self._replace(
                found=tuple((own[(i + k) % len(own)],) for k, own in enumerate(self.found))
            )
            for i in range(number)
        ]

    def resolved(self, kernel: Kernel, distances: Distances, shrink: float = 1.0) -> Kernel:
        """Return a kernel whose lengthscales left open are distances, and periods the first.

        Variances left open are that of the targets.
        """
        made = kernel.resolve(shrink * distances.per_column, shrink * distances.euclidean)
        if not self.places and distances.variance == 1.0:
            return made
        values = made.log_parameters.copy()
        first = self.apart[0].found
        values[list(self.places)] = np.log([own[0] for own in first])
        spread = [name.rpartition(".")[2] == "variance" for name in made.parameter_names]
        values[left_open(kernel, len(distances.per_column)) & spread] += np.log(distances.variance)
        return made.with_log_parameters(values)


def periods(kernel: Kernel, block: Block, p: int) -> Periods:
    """Return the periods to start at where a kernel leaves some open, from rows with p targets."""
    d = block.X.shape[1]
    resolved, is_open = kernel.resolve(np.ones(d), 1.0), left_open(kernel, d)
    places, found = [], []
    for j, (name, unit) in enumerate(zip(resolved.parameter_names, resolved.units(d), strict=True)):
        if not (is_open[j] and name.endswith("period") and unit.columns):
            continue
        peaks = [peak for i in unit.columns for peak in _peaks(*_waves(block, i, p))]
        best = [period for _, period in sorted(peaks, reverse=True)[:PEAKS]]
        if best:
            # a wave whose halves are alike has its peak at half of its period
            places.append(j)
            found.append((*best, 2.0 * best[0]))
    return Periods(tuple(places), tuple(found))


def _waves(block: Block, column: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a column x (n,), and targets (n, r) whose waves along it may show.

    A wave whose height depends on other columns may be gone on average over them, so that the
    targets times these columns and their squares are there too.
    """
    others = np.delete(block.X, column, axis=1)
    spread = others.std(axis=0)
    others = (others - others.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    heights = np.hstack([np.ones((len(others), 1)), others, others**2 - 1.0])
    Y = block.y[:, :p] - block.y[:, :p].mean(axis=0)
    return block.X[:, column], (heights[:, :, None] * Y[:, None, :]).reshape(len(Y), -1)


def _peaks(x: np.ndarray, Y: np.ndarray) -> list[tuple[float, float]]:
    """Return power and period of the highest peaks of the spectrum of Y (n, p) along x (n,)."""
    x = x - x.min()
    reach, gaps = float(x.max()), np.diff(np.unique(x))
    if len(gaps) < LEAST_PLACES:
        return []
    # one cycle over the data at least, and two places a cycle
    cycles = np.arange(1.0, min(0.5 * reach / float(gaps.min()), MOST_CYCLES), 1.0 / FINENESS)
    line = np.column_stack([np.ones(len(x)), x])
    rest = Y - line @ np.linalg.lstsq(line, Y, rcond=None)[0]
    turns = (2 * np.pi / reach) * x
    power = np.concatenate(
        [
            (np.abs(np.exp(1j * np.outer(part, turns)) @ rest) ** 2).sum(axis=1)
            for part in np.array_split(cycles, 1 + len(cycles) // 256)
        ]
    )
    padded = np.concatenate([[-np.inf], power, [-np.inf]])
    peaks = np.flatnonzero((power > padded[:-2]) & (power >= padded[2:]))
    highest = peaks[np.argsort(power[peaks])[::-1][:PEAKS]]
    return [(float(power[i]), float(reach / cycles[i])) for i in highest]


def at(evidence: Evidence, theta: Theta) -> Start:
    """Return a start at hyper-parameters, with the curvature of the evidence at them."""
    run, vector = evidence.search(theta), theta.to_vector(False)
    curvature = run.differences(vector, run.evaluate(vector)[1])
    return Start(theta, curvature._replace(exact=False), len(evidence.few.X))


def _candidates(
    kernel: Kernel, noise_variance: float, distances: Distances, periods: Periods
) -> list[list[Theta]]:
    """Return starts on several parts of the ridge, the one at median distances first.

    There is a list of them for each choice of angles.
    """
    d = len(distances.per_column)
    is_open, noises = left_open(kernel, d), (noise_variance, min(noise_variance, QUIET))
    found = []
    for shrink in SHRINK:
        resolved = periods.resolved(kernel, distances, shrink)
        turned = rotated.starts(resolved, is_open, d) if has_rotation(kernel) else [resolved]
        found.append([[(one, noise) for noise in noises] for one in turned])
    return [
        [Theta(*pair) for pair in dict.fromkeys(itertools.chain.from_iterable(pairs))]
        for pairs in zip(*found, strict=True)
    ]


def _apart(starts: Sequence[Theta], value: Callable[[Theta], float]) -> list[Theta]:
    """Return the best start at median distances and the best of the others."""
    first = [theta for theta in starts if theta.kernel == starts[0].kernel]
    others = [theta for theta in starts if theta.kernel != starts[0].kernel]
    return [max(group, key=value) for group in (first, others) if group]


def _like(kernel: Kernel, trained: Kernel, d: int) -> Kernel:
    """Return a kernel of d columns with the hyper-parameters of another of the same kind."""
    if type(kernel) is type(trained):
        return trained
    values = trained.log_parameters
    return kernel.resolve(np.ones(d), 1.0).with_log_parameters(values)


def _unnoted(vector: np.ndarray, value: float, gradient: np.ndarray, gain: float) -> None:
    """Record nothing: the history is that of the training that follows."""


def solve_bytes(number: int, features: int, targets: int, tiles: int) -> int:
    """Return the bytes that an evaluation of the evidence of ``number`` rows takes."""
    shape = Shape(number, features, targets, number, 0, 8, tiles, number)
    return Exact().footprint(shape).solve


def evidence(block: Block, theta: Theta) -> train.Evaluate:
    """Return the exact log evidence of scaled rows, and its gradient, as a function of a vector."""
    model = Exact()

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        with solve_threads(len(block.X)):
            objective = model.objective(replace(theta.from_vector(vector), inputs=None), block)
        gradient = objective.gradient.to_vector(with_inputs=False)
        train.refuse_nan(objective.value, gradient)
        return objective.value, gradient

    return evaluate


def with_noise(coordinates: np.ndarray) -> np.ndarray:
    """Return training coordinates (k + 1, k + 1) of a kernel and, last, the noise variance."""
    k = len(coordinates)
    extended = np.eye(k + 1)
    extended[:k, :k] = coordinates
    return extended


def trained_on(
    theta: Theta,
    block: Block,
    bounds: np.ndarray,
    prior: train.Evaluate,
    progress: ShowProgress,
) -> Theta:
    """Return the theta of largest evidence of scaled rows, and prior, within bounds (k, 2).

    Only the kernel and the noise variance are trained.
    """
    coordinates = with_noise(theta.kernel.coordinates(newton.varies(bounds)[:-1]))
    settings = train.Training(
        "auto",
        TRAIN_ITERATIONS,
        TRAIN_TOL,
        progress=progress,
        coordinates=coordinates,
        remedy="start from other hyper-parameters, or choose hyperparameters='bound'",
    )
    start = theta.to_vector(with_inputs=False)
    objective = train.plus(evidence(block, theta), prior)
    with calling(None):  # this history is not kept
        best = train.maximise(objective, start, bounds, block.y.size, settings, lambda _: {}).vector
    trained = theta.from_vector(best)
    if bounds[-1, 0] < bounds[-1, 1] and trained.noise_variance < NO_NOISE * np.exp(bounds[-1, 0]):
        logger.warning(
            "the evidence of %d rows finds no noise (variance %.1e of standardised targets), "
            "which makes predictions overconfident if there is some: choose a larger "
            "n_subset, or hyperparameters='bound'",
            len(block.X),
            trained.noise_variance,
        )
    return trained
