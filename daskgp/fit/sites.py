"""Gaussian sites: any likelihood by Gaussian regressions on pseudo-targets, one after another.

The posterior of f is approximated by that of a Gaussian regression in which each row has a site, a
pseudo-target t with the noise variance v (conjugate-computation variational inference, Khan & Lin
2017).  Where f at a row is N(m, s^2) given all sites, with g = E[d log p(y|f) / df] and h =
E[d^2 log p(y|f) / df^2], the next ones are 1 / v = -h and t / v = g - h m: a natural-gradient step
on the bound

    log Z + sum_i (E log p(y_i | f_i) - E log N(t_i | f_i, v_i)),

where Z is the evidence of the regression.  The log density of a row that has a weight counts by it,
wherever log p stands here.  Given the sites, its gradient by the hyper-parameters is
that of log Z, so that training takes turns with sites; parameters of the likelihood follow the sum.

Where targets are measured, likelihood and sites are those of targets in a unit of their own, their
spread, as are the parameters of the likelihood; rows have pseudo-targets in the unit of y.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from daskgp import data
from daskgp.data.blocks import sampling
from daskgp.data.blocks.hilbert import hilbert_keys
from daskgp.data.partition import Span, alone
from daskgp.data.rows import BOUNDS, WEIGHT, Y_VARIANCE, is_zarr
from daskgp.data.stores.checkpoints import Place
from daskgp.errors import NumericalError
from daskgp.fit import hyperparameters, rounds, warm
from daskgp.fit.constraints import NOISE, Asked, fixed_values
from daskgp.fit.fitted import Fit
from daskgp.fit.recipe import Recipe
from daskgp.fit.turns import RowsInTurns
from daskgp.likelihoods import Expectation, Likelihood
from daskgp.models import scaling
from daskgp.models.values import Want
from daskgp.posterior.layers import Response
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.executor import Executor, map_all, node
from daskgp.runtime.process import single_blas_thread
from daskgp.train import callbacks

logger: logging.Logger = logging.getLogger("daskgp")

NO_NOISE = 1e-10
"""Noise variance that rows have beside that of their sites, which is less by it."""
PRECISIONS = 1e-4, 1e9
"""Least and largest precision of a site; the least one is that of a row of weight 1."""
ALONE = 2.0
"""Variance of f under which sites begin, of each row alone."""
STEPS, LEAP, CLOSE = 30, 1.0, 0.01
"""Steps in which they do, the most that a mean moves in one of them, and what it moves at last."""
MOST, CAUTIOUS, SETTLED = 40, 20, 3_000
"""Most turns, most of these with cautious sites, and rows for which the bound changes by ``tol``
nats in the last one; for more rows in proportion."""
ASTRAY = 0.25
"""Change of the bound in the last turn, in nats a row, from which on f is lost."""
LEAST_SHARE = 0.1
"""Least share of new sites in those that follow, which is halved where the bound falls."""
EASED = 0.5
"""Share of new sites after the last cautious ones."""
STILL = 0.02
"""Change of the logs of hyper-parameters, and of parameters of the likelihood, below which the
former are trained no more."""
GROUP, LEADING, BITS = 512, 3, 60
"""Most near rows whose sites are found together when they join others, and columns and bits of the
curve that tells which are near."""
FIRST = 65_536
"""Most rows whose columns beside y tell the mean of f under which sites begin."""
TINY = 1e-12
"""Least variance of f."""
SOME = 20_000
"""Targets by which a likelihood begins, about."""
WIDE = 2.0
"""Spread with which measured targets with outliers begin, so that the first fit takes them for
noise: f would follow them for good."""
SHIFT = 0.02
"""Difference of the log of a parameter by which its curvature is found."""
CALM = 0.1
"""Change of the same below which sites of targets with outliers are no longer cautious ones."""
REACH = 1.0
"""Most that the log of a parameter moves in a step."""
AT_BOUND = 1e-3
"""Distance of the log of a parameter from a bound at which it has no standard error."""


class Sums(NamedTuple):
    """Sums over rows under q: of log p(y|f) - log N(t|f, v), and its slopes by parameters.

    ``shifted`` (k, k) are the slopes where the log of each parameter in turn is greater by SHIFT.
    """

    value: float
    slope: np.ndarray
    shifted: np.ndarray
    rows: int

    def plus(self, other: Sums) -> Sums:
        """Return the sums over both sets of rows."""
        value, slope = self.value + other.value, self.slope + other.slope
        return Sums(value, slope, self.shifted + other.shifted, self.rows + other.rows)

    def moved(self, likelihood: Likelihood) -> Likelihood:
        """Return the likelihood with parameters a Newton step further up.

        Those that would leave their bounds stay there, and the others move as if they were fixed.
        """
        logs, limits = likelihood.log_parameters, likelihood.log_bounds
        outwards = np.where(self.slope > 0, limits[:, 1] - logs, logs - limits[:, 0])
        free = np.flatnonzero(outwards > 0)
        if not len(free):
            return likelihood
        values, vectors = np.linalg.eigh(self._curvature[np.ix_(free, free)])
        values = np.maximum(np.abs(values), 1e-6 * max(self.rows, 1))
        step = np.zeros(len(logs))
        step[free] = vectors @ ((vectors.T @ self.slope[free]) / values)
        moved = np.clip(logs + np.clip(step, -REACH, REACH), *limits.T)
        return likelihood.with_log_parameters(moved)

    def errors(self, likelihood: Likelihood) -> np.ndarray:
        """Return the standard errors of the logs of parameters (k,) under q.

        They are NaN at a bound, and where there is no maximum.
        """
        if not len(self.slope):
            return np.empty(0)
        values, vectors = np.linalg.eigh(self._curvature)
        inverse = np.divide(1.0, values, where=values > 0, out=np.full(len(values), np.nan))
        logs, limits = likelihood.log_parameters, likelihood.log_bounds
        inside = np.abs(logs[:, None] - limits).min(axis=1) > AT_BOUND
        return np.where(inside, np.sqrt((vectors**2) @ inverse), np.nan)

    @property
    def _curvature(self) -> np.ndarray:
        """Negative Hessian (k, k) by the logs of parameters."""
        curvature = (self.slope - self.shifted) / SHIFT
        return np.asarray(0.5 * (curvature + curvature.T))


class _Pace(NamedTuple):
    """Share of new sites in those of the next turn, and whether these are cautious ones.

    Those have pseudo-targets no farther from q than y.
    """

    share: float
    cautious: bool

    def after(self, turn: int, moves: float, fell: bool) -> _Pace:
        """Return that after a turn in which parameters moved, and the bound fell or did not."""
        if self.cautious and (moves < CALM or turn >= CAUTIOUS):
            return _Pace(EASED, False)
        return self._replace(share=max(0.5 * self.share, LEAST_SHARE) if fell else self.share)


Solve: TypeAlias = Callable[
    [Recipe, data.Rows, scaling.Sums, Place | None, str, warm.Other | None], Fit
]
"""Fits a recipe to rows with these sums, under a checkpoint, with rows kept at a URL, from a
start."""


class Begun(NamedTuple):
    """Beginning of sites: a likelihood, q at the rows, and the unit of targets.

    q is that of each row alone with a prior mean ``offset``, or that of a ``posterior``.
    """

    likelihood: Likelihood
    offset: float
    posterior: Posterior | None = None
    unit: float = 1.0

    @classmethod
    def of(
        cls, recipe: Recipe, stored: Stored, ends: tuple[float, float], start: warm.Other | None
    ) -> Begun:
        """Return the beginning for targets with a mean and a largest value, ``ends``.

        It is that of a model which has the likelihood.
        """
        likelihood, rows, (y_mean, largest) = recipe.likelihood, stored.rows, ends
        assert likelihood is not None
        before = None if start is None else start.posterior.likelihood
        if start is not None and before is not None and before.name == likelihood.name:
            return cls(before, 0.0, start.posterior, start.posterior.latent_unit)
        (some, beside), unit = stored.some(), 1.0
        _warn_of_one_side(beside)
        if likelihood.sized_by_data:  # the last class may be in none of them
            some = np.append(some, largest)
        if likelihood.standardised and recipe.standardize:
            unit = likelihood.spread(some, beside) or 1.0
            some, beside = some / unit, {name: own / unit for name, own in beside.items()}
        outliers = has_outliers(likelihood)
        likelihood = likelihood.start((WIDE if outliers else 1.0) * some, beside)
        free = not (isinstance(recipe.mean, str) and recipe.mean == "zero")
        usual = likelihood
        if rows.beside:
            first = observed(rows, Span(0, min(len(rows), FIRST)), unit)
            usual = likelihood.with_columns(first.beside) if first.known.any() else likelihood
        offset = float(usual.offset(np.array([y_mean]))[0]) if free else 0.0
        if outliers:  # all rows would be some, of a prior mean far from them
            offset = float(np.median(some))
        return cls(likelihood, offset, unit=unit)


def _warn_of_one_side(beside: Mapping[str, np.ndarray]) -> None:
    """Warn of bounds that are open on the same side in all rows."""
    for name, other in (BOUNDS, BOUNDS[::-1]):
        if name in beside and len(beside[name]) and np.isinf(beside[name]).all():
            logger.warning(
                "%s is infinite in all rows, so no row is measured and any f on that side of "
                "%s fits: give rows with a finite one too; both bounds of a measured row are "
                "equal",
                name,
                other,
            )


def _unsettled(change: float, rows: int) -> None:
    """Warn that the bound still changes; NumericalError where it does so for most of the rows."""
    if change > ASTRAY * rows:
        raise NumericalError(
            f"the sites of {rows} rows go astray, as the bound changes by {change:.3g} nats after "
            f"{MOST} iterations: choose another likelihood, or for positive amounts none and "
            "target_transform='log'"
        )
    logger.warning(
        "sites have not converged after %d iterations: the bound still changes by "
        "%.3g nats for %d rows; fit again with start=model to go on, or choose "
        "another likelihood",
        *(MOST, change, rows),
    )


class Turn(NamedTuple):
    """A fit to sites, what it trained, and sums over the rows under its q."""

    fit: Fit
    sums: Sums

    @property
    def bound(self) -> float:
        """Bound on the evidence of the rows."""
        assert self.fit.objective is not None
        return self.fit.objective + self.sums.value


def run(
    solve: Solve,
    recipe: Recipe,
    rows: data.Rows,
    sums: scaling.Sums,
    executor: Executor,
    checkpoint: Place | None,
    keep: str,
    start: warm.Other | None,
) -> tuple[Fit, Response]:
    """Return the Gaussian regression on the last sites of rows, and the layer of the likelihood.

    The objective of the fit is the bound.

    Parameters
    ----------
    solve : callable
    recipe : Recipe
        With a likelihood.
    rows : data.Rows
        With targets as they were observed.
    sums : Sums
        Their description.
    executor, checkpoint, keep, start
        As for a fit.
    """
    stored = Stored(rows, executor, keep)
    target = rows.n_features
    if sums.low[target] == sums.high[target] and not rows.beside:
        logger.warning(
            "target %r is %g in all %d rows, which say nothing of how f varies, and "
            "predictions are nearly certain of this value: give rows with other values too",
            *(rows.target_names[0], sums.low[target], int(sums.rows)),
        )
    ends = float(sums.mean[target]), float(sums.high[target])
    begun = Begun.of(recipe, stored, ends, start)
    turns = _Turns(solve, recipe, sums, checkpoint, begun)
    try:
        with callbacks.ended() as ended:
            fit, likelihood = turns.taken(stored, start, ended)
    finally:
        stored.clear()
    return fit, Response(likelihood, begun.unit, of_method=False)


@dataclass(frozen=True)
class _Turns:
    """Fits to sites and the sites that follow, in turns.

    Attributes
    ----------
    solve : callable
    recipe : Recipe
    sums : Sums
        Description of the rows as they were observed.
    checkpoint : Place, optional
    begun : Begun
    """

    solve: Solve
    recipe: Recipe
    sums: scaling.Sums
    checkpoint: Place | None
    begun: Begun

    def taken(
        self, stored: Stored, start: warm.Other | None, ended: Callable[[], bool]
    ) -> tuple[Fit, Likelihood]:
        """Return the fit to the last sites, or to those at which training ended; likelihood."""
        begun = self.begun
        inner, likelihood, other = gaussian(self.recipe, begun.unit), begun.likelihood, start
        sites, errors, history = stored.first(self.begun), None, list[dict[str, Any]]()
        bound, was, moves = -np.inf, None, np.inf
        pace = _Pace(1.0, has_outliers(likelihood))
        careful = pace.cautious  # whether the sites fitted are
        for i in range(MOST):
            recipe = inner if i else self._first(inner)
            with silent():
                fit = self._fitted(recipe, stored, sites, i, other)
            if not i:
                stored = stored.in_order(self.recipe, self.sums, fit.posterior)
                sites = stored.first(self.begun)
            if recipe is not inner:
                likelihood = likelihood.with_scatter(fit.posterior.theta.noise_variance)
            sites, found = stored.following(sites, fit.posterior, likelihood, pace, i)
            turn = Turn(fit, found)
            theta = np.append(fit.posterior.theta.to_vector(False), likelihood.log_parameters)
            gained = turn.bound - bound
            tol = self.recipe.tol * max(1.0, found.rows / SETTLED)
            moves = np.inf if was is None else np.abs(theta - was).max()
            logger.info("sites, turn %d: the bound is %.8g nats", i + 1, turn.bound)
            history = hyperparameters.continued(history, _told(fit.history, likelihood))
            if history:
                history[-1]["bound"] = turn.bound
            errors = fit.errors if inner.optimizer is not None else errors
            own = found.errors(likelihood)
            alike = recipe is inner and not pace.cautious
            bound = turn.bound if alike else -np.inf  # that of other noise, or sites
            was, likelihood = theta, found.moved(likelihood)
            other = warm.Other(fit.posterior, inner.inputs)
            inner = replace(inner, begun_from=fit.posterior.token)
            if moves < STILL and not careful:
                inner = inner.changed(optimizer=None)
            careful, pace = pace.cautious, pace.after(i, moves, fell=gained < -tol)
            if abs(gained) < tol or ended() or not callbacks.has_room(0.0):
                break
        else:
            _unsettled(abs(gained), found.rows)
        last = self._solved(inner.changed(optimizer=None), sites, None, stored.keep, other, stored)
        learned = replace(last, errors=errors, likelihood_errors=own)
        return replace(learned, objective=turn.bound, history=history), likelihood

    def _first(self, inner: Recipe) -> Recipe:
        """Return the recipe of the first turn, where targets that scatter may have more noise.

        What a kernel misses is noise then, as in a regression on targets that are measured: with
        that of sites alone the search for a start would end at rough or at smooth kernels.
        """
        likelihood, own = self.begun.likelihood, self.recipe
        scatters = likelihood.log_concave and np.isinf(likelihood.interval[1])
        if not scatters or self.begun.posterior is not None or inner.optimizer is None:
            return inner
        free = replace(inner, asked=own.asked, noise_variance=own.noise_variance)
        return replace(free, begins_at_spread=not likelihood.standardised)

    def _fitted(
        self,
        recipe: Recipe,
        stored: Stored,
        sites: data.Rows,
        number: int,
        start: warm.Other | None,
    ) -> Fit:
        """Return the fit of a turn, whose rows lie at a place of their own."""
        tape = None if self.checkpoint is None else self.checkpoint.part(number)
        return self._solved(recipe, sites, tape, stored.place(number), start, stored)

    def _solved(
        self,
        recipe: Recipe,
        sites: data.Rows,
        checkpoint: Place | None,
        keep: str,
        start: warm.Other | None,
        stored: Stored,
    ) -> Fit:
        sums = sampling.describe(sites, recipe.spans(sites), stored.executor)
        return self.solve(recipe, sites, sums, checkpoint, keep, start)


@dataclass(frozen=True, eq=False)
class Stored(RowsInTurns):
    """Rows as they were observed, and sites beside them."""

    kinds: ClassVar[Mapping[str, int]] = {"sites": MOST + 1}

    @property
    def observed(self) -> str:
        """URL of the rows in another order."""
        return f"{self.keep}-observed"

    def some(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the targets of rows at even distances (r,), and columns beside them."""
        task = partial(_some, self.rows, -(-len(self.rows) // SOME))
        parts = map_all(task, self.spans, self.executor, "targets")
        names = parts[0][1] if parts else {}
        beside = {name: np.concatenate([one[1][name] for one in parts]) for name in names}
        return np.concatenate([one[0] for one in parts]), beside

    def in_order(self, recipe: Recipe, sums: scaling.Sums, posterior: Posterior) -> Stored:
        """Return the same rows in an order in which near ones are predicted together."""
        given = posterior.scaling, self.executor, recipe.dtype, recipe.device
        stage = rounds.Rounds(self.rows, alone(recipe.spans(self.rows)), *given)
        own = stage, posterior.theta, sums, self.observed
        return replace(self, rows=recipe.arrangement.in_order(*own))

    def clear(self) -> None:
        """Remove what is not kept beyond the turns."""
        self._remove(self.observed)
        super().clear()

    def first(self, begun: Begun) -> data.Rows:
        """Return rows with the sites that they begin with."""
        if begun.posterior is not None:
            pace = _Pace(1.0, has_outliers(begun.likelihood))
            task = partial(_following, self.rows, None, begun.likelihood, pace)
            return self.written(task, 0, (node("posterior", begun.posterior),))[0][0]
        return self.written(partial(_alone, self.rows, begun), 0)[0][0]

    def following(
        self,
        sites: data.Rows,
        posterior: Posterior,
        likelihood: Likelihood,
        pace: _Pace,
        number: int,
    ) -> tuple[data.Rows, Sums]:
        """Return rows with the sites of the next turn, and sums over them under q."""
        task = partial(_following, self.rows, sites, likelihood, pace)
        cheaper = replace(posterior, method=posterior.method.at_own_rows())
        (following,), parts = self.written(task, number + 1, (node("posterior", cheaper),))
        return following, reduce(Sums.plus, parts)

    def joining(self, posterior: Posterior) -> tuple[data.Rows, list[float]]:
        """Return rows with sites that join those of a posterior, and parts of a bound."""
        task = partial(_joining, self.rows)
        (joined,), parts = self.written(task, 0, (node("posterior", posterior),))
        return joined, parts

    def written(
        self, task: Callable[..., Any], number: int, shared: tuple[Any, ...] = (), sets: int = 1
    ) -> tuple[list[data.Rows], list[Any]]:
        """Return rows with each of the sets of sites that tasks give, and what else they return."""
        own = {"y": self.rows.y.shape, Y_VARIANCE: (len(self.rows),)}
        shapes = {f"{name}{i or ''}": shape for i in range(sets) for name, shape in own.items()}
        arrays, found = self.arrays("sites", number, task, shapes, shared)
        return self._sets([*arrays.values()]), found

    def _sets(self, arrays: list[Any]) -> list[data.Rows]:
        """Return rows with each two of the arrays, targets and their variances."""
        return [with_sites(self.rows, *arrays[i : i + 2]) for i in range(0, len(arrays), 2)]


def with_sites(rows: data.Rows, targets: Any, variances: Any) -> data.Rows:
    """Return rows with pseudo-targets and their noise variances, in the place of observations."""
    given = rows.with_other_y(targets, passing=is_zarr(rows.X))
    gone = {WEIGHT, *given.beside}
    arrays = {name: a for name, a in given.arrays.items() if name not in gone}
    return given.with_arrays({**arrays, Y_VARIANCE: variances})


def _told(history: list[dict[str, Any]], likelihood: Likelihood) -> list[dict[str, Any]]:
    """Return the history of a fit to sites with the likelihood's parameters, without a noise."""
    values = np.exp(likelihood.log_parameters).tolist()
    own = dict(zip(likelihood.parameter_names, values, strict=True))
    return [{k: v for k, v in entry.items() if k != NOISE} | own for entry in history]


def gaussian(recipe: Recipe, unit: float = 1.0) -> Recipe:
    """Return the recipe of the regression on sites, which have noise variances of their own.

    ``unit`` is that of the latent function, in the one of targets.
    """
    asked = recipe.asked
    fixed = {**fixed_values(asked.fixed), NOISE: NO_NOISE * unit**2}  # in the units of the data
    return replace(
        recipe,
        likelihood=None,
        latent=unit,
        asked=Asked(fixed, asked.limits, asked.prior),
        noise_variance=NO_NOISE,
        calibrate=None,
        fill_values=None,
    )


def _alone(rows: data.Rows, begun: Begun, span: Span) -> tuple[np.ndarray, np.ndarray, None]:
    """Return the sites of rows whose f have a prior of their own."""
    own = observed(rows, span, begun.unit)
    prior = np.full(own.y.shape, begun.offset), np.full(own.y.shape, ALONE)
    found = _at_modes(begun.likelihood.with_columns(own.beside), own.y, *prior, own.weight)
    return *sited(own.known, *found, begun.unit), None


def _at_modes(
    likelihood: Likelihood,
    y: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    weight: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return t / v and 1 / v (n,) about modes of f, whose priors have these moments (n, 1)."""
    mode, precision, w = mean, 1.0 / variance, 1.0 if weight is None else weight[:, None]
    for _ in range(STEPS):
        found = likelihood.log_p(y, mode)
        precision = 1.0 / variance + w * np.maximum(-found.curvature, PRECISIONS[0])
        step = (w * found.slope - (mode - mean) / variance) / precision
        mode = mode + np.clip(step, -LEAP, LEAP)
        if np.abs(step).max(initial=0.0) < CLOSE:
            break
    expected = likelihood.expected(y, mode, 1.0 / precision[:, 0])
    return natural(expected, mode, weight, y if has_outliers(likelihood) else None)


class Observed(NamedTuple):
    """Mask (r,) of the complete rows of a span, targets (n, 1), columns beside, and weights."""

    known: np.ndarray
    y: np.ndarray
    beside: dict[str, np.ndarray]
    weight: np.ndarray | None


def observed(rows: data.Rows, span: Span, unit: float = 1.0) -> Observed:
    """Return what rows of a span observed; targets that are measured are in a ``unit``."""
    X, y = rows.raw(*span)
    known = scaling.complete_rows(X, y)
    weight = None if rows.weight is None else np.asarray(y[known, rows.n_targets], np.float64)
    beside = {name: own / unit for name, own in rows.beside_in(y[known]).items()}
    return Observed(known, np.asarray(y[known, :1], np.float64) / unit, beside, weight)


def _some(
    rows: data.Rows, stride: int, span: Span
) -> list[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Return the targets of every so many rows of a span that miss nothing, and columns beside."""
    known, y, beside, _ = observed(rows, span)
    own = (span.start + np.flatnonzero(known)) % stride == 0
    return [(y[own, 0], {name: values[own] for name, values in beside.items()})]


def has_outliers(likelihood: Likelihood) -> bool:
    """Return whether measured targets far from f tell hardly anything of it."""
    return likelihood.standardised and not likelihood.log_concave


def natural(
    expected: Expectation,
    mean: np.ndarray,
    weight: np.ndarray | None,
    within: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return t / v and 1 / v (n,) of sites of rows with weights where q has means (n, 1).

    What is ``expected`` is that without the weights.  Precisions are such that no t is beyond the
    y (n, 1) that it is to stay ``within``.  Without these, sites of outliers pull at f from
    thousands of spreads away: near their optimum that is right, but where a region or all rows
    are outliers of a q that is far off, they throw f there.
    """
    # -h is negative where log p is convex: then the least that sites have
    second = -2.0 * expected.by_variance
    if within is not None:
        gap = within - mean
        some = np.abs(gap) > TINY
        least = np.divide(expected.by_mean, gap, where=some, out=np.zeros_like(second))
        second = np.maximum(second, least)
    second = weighted_precision(second, weight)
    return (expected.weighted(weight).by_mean + mean * second)[:, 0], second[:, 0]


def weighted_precision(second: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return precisions (n, C) of sites of rows with weights (n,), None for 1, within bounds.

    The least one counts by the weight, so that many rows of little weight add no information.
    """
    w = 1.0 if weight is None else weight[:, None]
    least, most = PRECISIONS
    return np.asarray(np.minimum(w * np.maximum(second, least), most))


def sited(
    known: np.ndarray, first: np.ndarray, second: np.ndarray, unit: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return pseudo-targets and their noise variances (n,), of rows that are ``known``.

    They are in the unit of y, t / v and 1 / v in a ``unit`` of it.
    """
    targets, variances = np.full(len(known), np.nan), np.ones(len(known))
    targets[known] = first / second * unit
    variances[known] = (1.0 / second - NO_NOISE) * unit**2
    return targets, variances


def more(
    posterior: Posterior, rows: data.Rows, executor: Executor, url: str
) -> tuple[data.Rows, float, Callable[[], None]]:
    """Return more rows with their sites, what they add to the bound, and how to remove them.

    Sites of the posterior stay; those of near rows are found together.
    """
    stored = Stored(rows, executor, url)
    found, values = stored.joining(posterior)
    return found, float(np.sum(values)), stored.clear


def _joining(
    rows: data.Rows, span: Span, posterior: Posterior
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the sites of rows that join those of a posterior, and what these add to the bound."""
    unit = posterior.latent_unit
    known, y, beside, weight = observed(rows, span, unit)
    X, likelihood = rows.raw(*span)[0][known], posterior.likelihood
    assert likelihood is not None
    first, second, value = np.zeros(len(y)), np.ones(len(y)), 0.0
    alone = posterior.method.why_no_joint() is not None or posterior.theta.varying is not None
    for group in near_groups(posterior.scaled(X)):
        with single_blas_thread():
            want: Want = "variance" if alone else "covariance"
            prior = posterior.moments(X[group], want, gaussian=True)
        spread: Any = prior.variance if alone else prior.covariance
        joint = np.diag(spread[:, 0]) if alone else spread[:, :, 0]
        of_group = likelihood.with_columns({name: values[group] for name, values in beside.items()})
        given = of_group, y[group], prior.mean / unit, joint / unit**2
        own_weight = None if weight is None else weight[group]
        first[group], second[group], own = _together(*given, own_weight)
        value += own
    return *sited(known, first, second, unit), value


def near_groups(X: np.ndarray) -> list[np.ndarray]:
    """Return groups of rows X (n, d) that are near one another."""
    spread = np.ptp(X, axis=0) if len(X) else np.zeros(X.shape[1])
    columns = np.argsort(spread, kind="stable")[::-1][:LEADING]
    columns = columns[spread[columns] > 0]
    keys = np.zeros(len(X), np.uint64)
    if len(columns):
        places = (X[:, columns] - X[:, columns].min(axis=0)) / spread[columns]
        keys = hilbert_keys(places.T, BITS // len(columns))
    return np.array_split(np.argsort(keys, kind="stable"), max(1, -(-len(X) // GROUP)))


def _together(
    likelihood: Likelihood,
    y: np.ndarray,
    mean: np.ndarray,
    covariance: np.ndarray,
    weight: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return t / v and 1 / v (n,) of rows with a joint prior of f, and their part of the bound."""
    variance = np.maximum(np.diagonal(covariance), TINY)
    first, second = _at_modes(likelihood, y, mean, variance[:, None], weight)
    expected, m, s = None, mean, variance
    for _ in range(STEPS):
        root = np.linalg.cholesky(covariance + np.diag(1.0 / second))
        part = solve_triangular(root, covariance, lower=True)
        before = m
        m = mean + part.T @ solve_triangular(root, (first / second)[:, None] - mean, lower=True)
        s = np.maximum(variance - (part**2).sum(axis=0), TINY)
        expected = likelihood.expected(y, m, s)
        if (np.abs(m - before)[:, 0] < CLOSE * np.sqrt(s)).all():
            break
        first, second = natural(expected, m, weight)
    t, v = first / second, 1.0 / second
    of_sites = np.log(2 * np.pi * v) + ((t - m[:, 0]) ** 2 + s) / v
    if expected is None:
        return first, second, 0.0
    value = expected.weighted(weight).value + 0.5 * float(of_sites.sum())
    return first, second, value


def _following(
    rows: data.Rows,
    sites: data.Rows | None,
    likelihood: Likelihood,
    pace: _Pace,
    span: Span,
    posterior: Posterior,
) -> tuple[np.ndarray, np.ndarray, Sums | None]:
    """Return the next sites of rows, a share of them new, and sums under q, which has ``sites``."""
    unit = posterior.latent_unit
    known, y, beside, weight = observed(rows, span, unit)
    likelihood = likelihood.with_columns(beside)
    with single_blas_thread():
        found = posterior.moments(rows.raw(*span)[0][known], "variance", gaussian=True)
    assert found.variance is not None
    mean, variance = found.mean / unit, found.variance[:, 0] / unit**2
    expected = likelihood.expected(y, mean, variance)
    first, second = natural(expected, mean, weight, y if pace.cautious else None)
    expected = expected.weighted(weight)
    if sites is None:
        return *sited(known, first, second, unit), None
    own = sites.raw(*span)[1][known]
    t, v = own[:, 0] / unit, own[:, -1] / unit**2 + NO_NOISE
    of_sites = np.log(2 * np.pi * v) + ((t - mean[:, 0]) ** 2 + variance) / v
    value = expected.value + 0.5 * float(of_sites.sum())
    slopes, logs = [expected.by_log], likelihood.log_parameters
    for axis in np.eye(len(logs)):
        shifted = likelihood.with_log_parameters(logs + SHIFT * axis)
        slopes.append(shifted.expected(y, mean, variance).weighted(weight).by_log)
    sums = Sums(value, slopes[0], np.reshape(slopes[1:], (len(logs), len(logs))), len(y))
    first = (1.0 - pace.share) * t / v + pace.share * first
    second = (1.0 - pace.share) / v + pace.share * second
    return *sited(known, first, second, unit), sums


@contextmanager
def silent() -> Iterator[None]:
    """Leave out the remarks of this thread on fits to sites that will change."""
    own = threading.get_ident()

    def serious(record: logging.LogRecord) -> bool:
        other = record.thread != own or record.name != logger.name
        return other or record.levelno >= logging.ERROR or record.msg.startswith("sites")

    logger.addFilter(serious)
    try:
        yield
    finally:
        logger.removeFilter(serious)
