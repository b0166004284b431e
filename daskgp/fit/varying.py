"""Training of hyper-parameters that vary over space, on conditionals of rows.

The log density of drawn rows is a function of the hyper-parameters at all knots, through the ones
that each row blends; its gradient and Fisher information come from the same pass.  The logarithms
of hyper-parameter j at the knots differ from the common one by delta_j ~ N(0, tau_j^2 R), so that a
knot moves as far as its own information, and that of knots around, says.  The spreads tau_j, and
the share of what R correlates over space, are those of the largest marginal likelihood of the
quadratic model about the last step (MacKay's fixed point).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from daskgp import train
from daskgp.arrays.backend import namespace, to_host
from daskgp.checks import shown
from daskgp.data import Rows, expected, partition
from daskgp.errors import NumericalError, SettingError
from daskgp.fit import conditionals, constraints, rounds
from daskgp.fit.conditionals import Drawn
from daskgp.fit.recipe import Problem, Recipe, Run
from daskgp.kernels.averaged import averages
from daskgp.kernels.base import Unit
from daskgp.kernels.compose import names_of_tables
from daskgp.models import inducing
from daskgp.models.markov.conditionals import Conditionals
from daskgp.models.markov.earlier import nearest, ranks
from daskgp.models.markov.vecchia import Shared, Vecchia, compact, in_units
from daskgp.models.method import Pass
from daskgp.models.values import Block, Piece, Theta
from daskgp.models.varying import Varying

logger: logging.Logger = logging.getLogger("daskgp")

EACH, MOST = 200, 64
"""Rows drawn for each knot, and most knots, where no number is asked for."""
PLACES = 10_000
"""Rows that knots are chosen from."""
STEPS = 12
"""Most steps."""
LONGEST = 1.5
"""Longest step of a logarithm."""
ENOUGH, ROUGHLY = 1.0, 5.0
"""Gain in nats that another step has to promise, and where held-out rows are compared alone."""
SPREADS = (1e-3, 2.0)
"""Least and largest spread of a logarithm between knots."""
SHARES = (0.0, 0.5, 0.95)
"""Shares of the variance between knots that is correlated over space, of which one is chosen."""
ROUNDS, CLOSE = 30, 0.02
"""Most rounds in which spreads are found, and their change that ends these."""
SURE = 2.0
"""Standard errors that a gain on held-out rows has to be above zero, or a loss below."""
SURER = 4.0
"""Standard errors of a gain on rows without those around them, which have much in common."""
PIECES, GAPS, GAP_ROWS = 8, 128, 64
"""Parts of a block, of which one is left out, most blocks, and most rows of each."""
HUGE = 1e200
"""Stands for a log density that cannot be computed."""
FAR, APART = 20.0, 6.0
"""Standard deviations from the mean of the rows beyond which a given field says nothing of them,
and from which that is likely."""
GAIN, IN_GAPS = "varying_gain", "varying_gain_in_gaps"
"""Entries of ``history_`` with what varying hyper-parameters gain."""
LEAST = 4
"""Least numbers of what is kept of a step, those of ``_gains``."""
TAPE = 8
"""Number of the stage of a checkpoint that has this training."""


@dataclass(frozen=True, eq=False)
class Given:
    """Hyper-parameters at places: X (K, q) of some features, and values (K,) by name.

    Both are in the units of the data.
    """

    features: tuple[str, ...]
    X: np.ndarray
    values: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Variation:
    """Hyper-parameters that are to vary, and how.

    Attributes
    ----------
    knots : int, optional
        Their number; None for one that suits the rows.
    compared : bool
        Whether common hyper-parameters stay where they do better.
    names : tuple of str
        Hyper-parameters that vary; all if there are none.
    over : tuple of str
        Features that they vary over; all if there are none.
    given : Given, optional
        A field that is taken as it is.
    """

    knots: int | None = None
    compared: bool = False
    names: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    given: Given | None = None

    def check(self, recipe: Recipe, rows: Rows) -> None:
        """Raise SettingError for names that the rows or the kernel do not have."""
        features = self.over if self.given is None else self.given.features
        what = "varying_over" if self.given is None else "a coordinate of varying"
        for name in features:
            if name not in rows.feature_names:
                raise SettingError(
                    f"{what} names {name!r}, but the columns of X are "
                    f"{', '.join(rows.feature_names)}: name some of these"
                )
        place = [rows.feature_names[j] for j in rows.geographic or ()]
        if any(name in features for name in place) and not all(name in features for name in place):
            raise SettingError(
                f"{what} names one of {' and '.join(place)}, which are a place on the "
                "sphere: name both or none"
            )
        kernel = recipe.kernel(rows).resolve(np.ones(rows.n_features), 1.0)
        if next(averages(kernel), None) is not None:
            raise SettingError(
                "hyper-parameters that vary over space belong to points, but averages over "
                "areas have several: fit with varying=None, or without footprints"
            )
        named = [*kernel.parameter_names, constraints.NOISE]
        of_levels = {named.index(name) for name in names_of_tables(kernel)}
        for name in self.names if self.given is None else self.given.values:
            found = constraints.matching(named, name)
            if not found:
                raise SettingError(
                    f"varying names {shown(name)}, which is not a hyper-parameter: choose among "
                    f"{', '.join(named)}"
                )
            if of_levels.issuperset(found):
                raise SettingError(
                    f"varying names {shown(name)}, which is one of categories, whose covariance is "
                    "the same everywhere: leave it out"
                )

        self._refuse_fixed(named, recipe.asked.fixed)

    def _refuse_fixed(self, named: Sequence[str], fixed: Any) -> None:
        """Raise SettingError for a hyper-parameter that is to vary and is fixed."""
        kept = {
            j for name in constraints.fixed_values(fixed) for j in constraints.matching(named, name)
        }
        for name in self.names:
            if kept.issuperset(constraints.matching(named, name)):
                raise SettingError(
                    f"{name!r} is fixed and is to vary: leave it out of fixed= or of varying="
                )

    def columns(self, rows: Rows, uses: np.ndarray) -> np.ndarray:
        """Return the numbers of the columns of the inputs that hyper-parameters vary over."""
        names = self.over if self.given is None else self.given.features
        chosen: list[int] = []
        for name, where in zip(rows.feature_names, rows.columns.where, strict=True):
            if not names or name in names:
                chosen += [where] if isinstance(where, int) else where
        return np.array([j for j in sorted(set(chosen)) if uses[j]], np.int64)

    def mask(self, theta: Theta, bounds: np.ndarray) -> np.ndarray:
        """Return which hyper-parameters (k,) vary."""
        names = [*theta.kernel.parameter_names, constraints.NOISE]
        chosen = np.zeros(len(names), bool)
        for name in self.names or names:
            chosen[constraints.matching(names, name)] = True
        chosen[[names.index(name) for name in names_of_tables(theta.kernel)]] = False
        return chosen & (bounds[: len(names), 0] < bounds[: len(names), 1])


class Trained(NamedTuple):
    """Hyper-parameters, and by name the nats a row that varying ones gain on held-out rows.

    There are no gains where nothing was compared.
    """

    theta: Theta
    gains: dict[str, float] = {}  # noqa: RUF012 - read alone


def taken(given: Given, stage: rounds.Rounds, theta: Theta, asked: Variation) -> Theta:
    """Return hyper-parameters with a field as users give it.

    Raises
    ------
    SettingError
        If values are not positive, or have no unit of the data.
    """
    rows, scale = stage.rows, stage.scaling
    columns = asked.columns(rows, scale.uses)
    if not len(columns):
        raise SettingError(
            f"varying has places in {', '.join(given.features)}, which the model leaves out: give "
            "features that vary in the rows"
        )
    X = np.tile(rows.columns.places(scale.x_shift[None]), (len(given.X), 1))
    for j, name in enumerate(given.features):
        X[:, rows.feature_names.index(name)] = given.X[:, j]
    knots = np.asarray(scale.inputs(rows.columns.inputs(X)))[:, columns]
    # in standard deviations where inputs are standardised
    away = np.abs(knots).min(axis=0) * scale.x_shift.any()
    if (away > FAR).any():
        raise SettingError(
            f"varying has places in {', '.join(given.features)} that are all far from the rows, at "
            f"least {away.max():.3g} standard deviations: give them in the units of the rows"
        )
    if (away > APART).any():
        logger.warning(
            "varying has places in %s that all lie far from most rows, at least %.3g "
            "standard deviations from their mean: %s",
            *(", ".join(given.features), away.max(), expected.LIKELY),
        )
    names = [*theta.kernel.parameter_names, constraints.NOISE]
    units = [*theta.kernel.units(len(scale.x_scale)), Unit((), 0, 2)]
    logs, common = np.zeros((len(knots), len(names))), theta.to_vector(False)
    for name, values in given.values.items():
        for j in constraints.matching(names, name):
            size = scale.size(units[j])
            if size is None:
                raise SettingError(
                    f"varying has {name!r}, which has no unit of the data, because columns or "
                    "targets have different scales: fit with standardize=False"
                )
            logs[:, j] = np.log(values / size) - common[j]
    knots, which = np.unique(knots, axis=0, return_inverse=True)  # one where features alone differ
    counts = np.bincount(which.ravel())
    logs = np.stack([np.bincount(which.ravel(), one) / counts for one in logs.T], axis=1)
    return replace(theta, varying=Varying(knots, logs, columns, np.full(logs.shape, np.nan)))


def trained(asked: Variation, model: Vecchia, problem: Problem, run: Run, number: int) -> Trained:
    """Return hyper-parameters that vary from common ones, as far as ``number`` drawn rows say.

    Units are blocks with those in which their rows find their neighbours.
    """
    recipe, stage, theta = problem.recipe, problem.stage, problem.theta
    first = model.first(stage)
    columns = asked.columns(stage.rows, stage.scaling.uses)
    count = asked.knots or min(MOST, min(number, stage.n_rows) // EACH)
    k = len(theta.kernel.log_parameters) + 1
    varies, limits = asked.mask(theta, run.bounds), run.bounds[:k] - theta.to_vector(False)[:, None]
    if count < 2 or not len(columns) or not varies.any():
        logger.info("hyper-parameters do not vary: there are too few rows to tell where")
        return Trained(theta)
    shared = model.shared(theta, first)
    drawn = conditionals.draw(model, stage, shared, number, recipe.seed())
    knots = _knots(to_host(first.X).astype(np.float64)[:, columns], count, recipe.seed())
    zero = np.zeros((len(knots), k))
    start = replace(theta, varying=Varying(knots, zero, columns, zero))
    kept = _Kept(run.tape and run.tape.stage(TAPE))
    search = partial(_searched, kept, drawn, varies=varies, limits=limits)
    if not asked.compared:
        return Trained(search(start))
    found = search(start, held=False, enough=ROUGHLY)
    gain, gaps = kept(lambda: _gains(model, stage, shared, drawn, theta, found, recipe.seed()))
    sure = gain[0] > SURE * gain[1] or gaps[0] > SURER * gaps[1]
    lost = gain[0] < -SURE * gain[1] or gaps[0] < -SURE * gaps[1]
    vary, gains = sure and not lost, {GAIN: float(gain[0]), IN_GAPS: float(gaps[0])}
    logger.info(outcome(gains, vary))
    return Trained(search(found) if vary else theta, gains)


def outcome(gains: Mapping[str, float], vary: bool) -> str:
    """Return what a comparison of common and varying hyper-parameters has told, and which stay."""
    return (
        f"hyper-parameters that vary over space gain {gains[GAIN]:.4f} nats a row on rows held "
        f"out, and {gains[IN_GAPS]:.4f} where those around are held out as well: "
        f"{'they vary' if vary else 'they stay the same everywhere'}"
    )


def _knots(places: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the places (K, q) nearest to the centres of clusters of places (n, q)."""
    places = places[:: -(-len(places) // PLACES)]
    centres = inducing.centres(places, min(count, len(np.unique(places, axis=0))), seed)
    return np.unique(places[nearest(places, centres, 1)[:, 0]], axis=0)


# -- steps -----------------------------------------------------------------------------------


@dataclass
class _Kept:
    """Results, each an array or a pair, that a stopped run goes on from."""

    tape: train.Tape | None

    def __post_init__(self) -> None:
        self._rows = list(self.tape.read()) if self.tape else []
        self._next = 0

    def __call__(self, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Return what is computed, or was before."""
        if self._next < len(self._rows):
            row = self._rows[self._next]
            shape, values = row[:2].astype(int), row[2:]
            self._next += 1
            return values[: shape[0] * shape[1]].reshape(shape)
        found = compute()
        if self.tape:
            width = len(self._rows[0]) if self._rows else 2 + max(found.size, LEAST)
            row = np.zeros(width)
            row[: 2 + found.size] = [*found.shape, *found.ravel()]
            self.tape.append(self._next, row)
            self._rows.append(row)
        self._next += 1
        return found


class _Quadratic(NamedTuple):
    """The log density of drawn rows about logarithms (f,): its value, gradient, information."""

    value: float
    gradient: np.ndarray
    information: np.ndarray

    def gain(self, delta: np.ndarray, step: np.ndarray, precision: np.ndarray) -> float:
        """Return what a step promises under a prior of this precision (f, f)."""
        curvature = self.information + precision
        return float((self.gradient - precision @ delta) @ step - 0.5 * step @ curvature @ step)

    def penalised(self, delta: np.ndarray, precision: np.ndarray) -> float:
        """Return the value with the prior."""
        return self.value - 0.5 * float(delta @ precision @ delta)


@dataclass
class _Density:
    """The log density of drawn rows, those that are not held out if ``held`` is False.

    It is a function of the logarithms (f,) at positions ``free`` of those at all knots (K k,).
    """

    kept: _Kept
    drawn: Drawn
    theta: Theta
    free: np.ndarray
    held: bool | None

    def at(self, delta: np.ndarray, errors: np.ndarray | None = None) -> Theta:
        """Return hyper-parameters with these logarithms."""
        varying = self.theta.varying
        assert varying is not None
        both = np.zeros((2, varying.logs.size))
        both[0, self.free], both[1, self.free] = delta, 0.0 if errors is None else errors
        logs, errors = both.reshape(2, *varying.logs.shape)
        return replace(self.theta, varying=replace(varying, logs=logs, errors=errors))

    def __call__(self, delta: np.ndarray) -> _Quadratic:
        """Return value, gradient and information."""
        value, gradient, *information = self.drawn.worth * self.kept(partial(self._rows, delta))
        return _Quadratic(float(value[0]), gradient, np.array(information))

    def _rows(self, delta: np.ndarray) -> np.ndarray:
        free = self.free
        try:
            value, found = self.drawn.evaluate(self.at(delta), knots=True, held=self.held)
        except NumericalError:  # a step too long
            return np.full((2 + len(free), len(free)), -HUGE)
        rest = found.gradient[free], found.information[np.ix_(free, free)]
        return np.vstack([np.full(len(free), value), *rest])


def _searched(
    kept: _Kept,
    drawn: Drawn,
    theta: Theta,
    varies: np.ndarray,
    limits: np.ndarray,
    held: bool | None = None,
    enough: float = ENOUGH,
) -> Theta:
    """Return hyper-parameters whose field is the most probable one.

    ``held`` is False for training on rows that are not held out.
    """
    assert theta.varying is not None
    K, k = theta.varying.logs.shape
    free = np.flatnonzero(np.tile(varies, K))
    low, high = (np.tile(ends, K)[free] for ends in limits.T)
    density, of = _Density(kept, drawn, theta, free, held), free % k
    delta = theta.varying.logs.ravel()[free]
    now = density(delta)
    prior = _likeliest(now, delta, of, theta.varying.knots)
    for _ in range(STEPS):
        prior = _spread(prior, now, delta)
        precision = prior.precision
        step = np.clip(_mode(now, delta, precision)[0], low, high) - delta
        step *= min(1.0, LONGEST / max(float(np.abs(step).max()), 1e-300))
        before, gained = now.penalised(delta, precision), False
        while not gained and now.gain(delta, step, precision) > enough:
            trial = density(delta + step)
            share = 0.1 * now.gain(delta, step, precision)
            gained = trial.penalised(delta + step, precision) - before > share
            if not gained:
                step = 0.25 * step
        if not gained:
            break
        delta, now = delta + step, trial
    covariance = _mode(now, delta, prior.precision)[1]
    return density.at(delta, np.sqrt(np.diag(covariance)))


def _mode(
    now: _Quadratic, delta: np.ndarray, precision: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the logarithms under the quadratic model."""
    covariance = np.linalg.inv(now.information + precision)
    covariance = 0.5 * (covariance + covariance.T)
    return covariance @ (now.gradient + now.information @ delta), covariance


class _Prior(NamedTuple):
    """Normal prior of the logarithms (f,), of hyper-parameter ``of`` (f,) each, knot by knot.

    Those of one hyper-parameter have the covariance tau^2 R, with R^-1 ``inverse`` (K, K) and tau
    its spread (k,).
    """

    of: np.ndarray
    inverse: np.ndarray
    spreads: np.ndarray

    @property
    def precision(self) -> np.ndarray:
        """Inverse (f, f) of the covariance."""
        found = np.zeros((len(self.of), len(self.of)))
        for j in np.unique(self.of):
            own = np.flatnonzero(self.of == j)
            found[np.ix_(own, own)] = self.inverse / self.spreads[j] ** 2
        return found

    def evidence(self, now: _Quadratic, delta: np.ndarray) -> float:
        """Return the log marginal likelihood of the quadratic model, up to a constant."""
        precision, told = self.precision, now.gradient + now.information @ delta
        mean, curvature = _mode(now, delta, precision)[0], now.information + precision
        return 0.5 * float(
            told @ mean + np.linalg.slogdet(precision)[1] - np.linalg.slogdet(curvature)[1]
        )


def _likeliest(now: _Quadratic, delta: np.ndarray, of: np.ndarray, knots: np.ndarray) -> _Prior:
    """Return the prior of the largest marginal likelihood among several correlations of knots."""
    away = np.sqrt(((knots[:, None] - knots) ** 2).sum(axis=2))
    far = float(np.sqrt(np.mean(away**2))) or 1.0
    best: tuple[float, _Prior] | None = None
    for share in SHARES:
        R = share * np.exp(-away / far)
        R[np.diag_indices(len(R))] = 1.0
        prior = _Prior(of, np.linalg.inv(R), np.full(int(of.max()) + 1, 0.5))
        prior = _spread(prior, now, delta)
        value = prior.evidence(now, delta)
        if best is None or value > best[0]:
            best = value, prior
    assert best is not None
    return best[1]


def _spread(prior: _Prior, now: _Quadratic, delta: np.ndarray) -> _Prior:
    """Return a prior with the spreads of the largest marginal likelihood."""
    for _ in range(ROUNDS):
        mean, covariance = _mode(now, delta, prior.precision)
        spreads = prior.spreads.copy()
        for j in np.unique(prior.of):
            own = np.flatnonzero(prior.of == j)
            unknown = float((prior.inverse * covariance[np.ix_(own, own)]).sum()) / spreads[j] ** 2
            square = float(mean[own] @ prior.inverse @ mean[own])
            known = max(len(own) - unknown, 1e-12)
            spreads[j] = np.clip(np.sqrt(square / known), *SPREADS)
        moved = float(np.abs(np.log(spreads / prior.spreads)).max())
        prior = prior._replace(spreads=spreads)
        if moved < CLOSE:
            break
    return prior


# -- comparison ------------------------------------------------------------------------------


def _gains(
    model: Vecchia,
    stage: rounds.Rounds,
    shared: Shared,
    drawn: Drawn,
    theta: Theta,
    other: Theta,
    seed: int,
) -> np.ndarray:
    """Return the nats a row that ``other`` gains, and their standard errors (2, 2).

    First on rows that are held out, then on rows without those around them.
    """
    W = drawn.weights(theta)
    near = _mean(drawn.gains(theta, other, W, held=True))
    rng = np.random.default_rng([seed, TAPE])
    some = replace(stage, units=partition.sample(stage.units, GAPS, rng))
    pass_ = Pass(
        f"{model.name}-gaps", partial(_left_out, model, seed), _joined, cut=False, located=True,
        in_place=False,
    )  # fmt: skip
    apart = conditionals.made_by(some, pass_, shared, drawn.trend)
    return np.array([near, _mean(apart.gains(theta, other, W))])


def _joined(a: list[Conditionals], b: list[Conditionals]) -> list[Conditionals]:
    return a + b


def _mean(sums: np.ndarray) -> tuple[float, float]:
    """Return the mean of weighted gains, and its standard error, from their sums."""
    total, first, squares, product, second = sums
    if not total:
        return 0.0, 0.0
    mean = first / total
    return mean, float(np.sqrt(max(second - 2 * mean * product + mean**2 * squares, 0.0)) / total)


def _left_out(model: Vecchia, seed: int, piece: Piece, shared: Shared) -> list[Conditionals]:
    """Return some rows of a part of a piece, conditioned on the nearest rows outside the part."""
    assert piece.places is not None
    n = len(piece.own.X)
    part = int(ranks(piece.places[:1], seed)[0] % PIECES) if n else 0
    start, stop = part * n // PIECES, (part + 1) * n // PIECES
    rows = np.arange(start, stop)[:: max(1, (stop - start) // GAP_ROWS)]
    places = np.concatenate([piece.places, *(piece.near_places or ())])
    others = np.flatnonzero(~np.isin(to_host(shared.first.places), places))
    first = shared.first.block.at(namespace(piece.own.X).asarray(others))
    everything = Block.join([piece.own, *piece.near, first])
    outside = np.setdiff1d(np.arange(len(everything.X)), np.arange(start, stop))
    if not len(rows) or not len(outside):
        return []
    points, sees = in_units(everything.X, shared.lengths), None
    if shared.first.barriers:
        xp = namespace(piece.own.X)
        own, rest = (everything.X[xp.asarray(one)] for one in (rows, outside))
        sees = shared.first.barriers.between(own, rest).sees
    near = nearest(points[outside], points[rows], model.n_neighbours, sees=sees)
    return [compact(everything, rows, np.where(near >= 0, outside[near], -1))]
