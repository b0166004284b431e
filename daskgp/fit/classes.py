"""Several classes: Gaussian regressions on sites of each, in turns.

The classes have latent fields f_c whose softmax are their probabilities, and under q each field is
independent of the others.  Where f_c at a row is N(m_c, s_c^2), the sites of class c have the
precision 1 / v_c = E p_c (1 - p_c) and t_c = m_c + v_c (1[y = c] - E p_c), a natural-gradient step
on the bound, which is

    sum_c log Z_c + sum_i (E log p(y_i | f_i) - sum_c E log N(t_ic | f_ic, v_ic)).

A step in all classes at once overshoots where rows say much and the prior little, as classes repel
each other: a SHARE of the new sites is taken.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from daskgp import data
from daskgp.data.blocks import sampling
from daskgp.data.partition import Span
from daskgp.data.rows import Beside
from daskgp.fit import barriers, run, sites, warm
from daskgp.fit.fitted import Fit
from daskgp.fit.recipe import Recipe
from daskgp.fit.scratch import scratch_rows
from daskgp.likelihoods import categorical
from daskgp.models import scaling
from daskgp.models.fills import Fills
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.executor import Executor, node
from daskgp.runtime.process import single_blas_thread
from daskgp.train import callbacks

logger: logging.Logger = logging.getLogger("daskgp")

SHARE = 0.6
"""Share of new sites in those that follow, which is halved where the bound falls although
hyper-parameters are as they were."""
TRAINED = 6
"""Most turns in which hyper-parameters are trained."""


def fitted(recipe: Recipe, X: Any, y: Any, classes: int, shared: bool, beside: Beside) -> list[Fit]:
    """Return a fit of each class, whose objective is the bound on the evidence of all.

    Parameters
    ----------
    recipe : Recipe
        Of a method that takes sites, with a likelihood of codes.
    X, y : array-like
        As for an estimator's ``fit``; y are whole numbers from 0 to ``classes`` - 1.
    classes : int
    shared : bool
        Whether the classes have the same hyper-parameters.  These are then means of those with the
        largest evidence for each class, weighted by their precisions: the largest sum of evidences,
        as far as these are quadratic.
    beside : mapping
        What rows have beside y: weights, by which their log densities count.
    """
    executor = Executor.current(recipe.progress, recipe.device)
    if all(given is None for given in beside.values()):
        data.warn_of_left_behind(y)
    sizes = recipe.rows_of(X, y, None, executor.shares_memory, beside)
    recipe = barriers.read(recipe, sizes)
    run.planned(recipe, sizes, executor.memory_per_task(), None)
    with scratch_rows(recipe.store) as spill, ExitStack() as stack:
        read = recipe.rows_of(X, y, spill, executor.shares_memory, beside)
        rows = run.marked(recipe, read, executor)
        barriers.refuse_inside(recipe.barriers, rows, recipe.spans(rows), executor)
        sums = run.described(recipe, rows, recipe.spans(rows), executor)
        urls = [run.rows_url(recipe, None, f"{spill}-{c}") for c in range(classes)]
        places = [stack.enter_context(url) for url in urls]
        stack.enter_context(executor.memory_is_kept())
        stored = sites.Stored(rows, executor, f"{spill}-classes")
        homes = [replace(stored, keep=f"{stored.keep}-{c}") for c in range(classes)]
        try:
            return _Turns(recipe, sums, rows.fills, homes, places, shared).taken(stored)
        finally:
            for one in (stored, *homes):
                one.clear()


@dataclass(frozen=True)
class _Turns:
    """Fits to sites of the classes and the sites that follow, in turns.

    Attributes
    ----------
    recipe : Recipe
    sums : Sums
        Description of the rows as they were observed.
    fills : tuple
        What columns had in place of missing values.
    homes : list of Stored
        Where rows that fits of each class keep lie in the turns.
    places : list of str
        URLs of those that its last fit keeps.
    shared : bool
    """

    recipe: Recipe
    sums: scaling.Sums
    fills: Fills
    homes: list[sites.Stored]
    places: list[str]
    shared: bool

    def taken(self, stored: sites.Stored) -> list[Fit]:
        """Return the fit of each class to its last sites."""
        inner, share, bounds, trained = sites.gaussian(self.recipe), SHARE, [-np.inf], True
        rows, starts, errors = self._first(stored), list[warm.Other](), list[np.ndarray | None]()
        for i in range(sites.MOST):
            held, trained = not trained, inner.optimizer is not None
            with sites.silent():
                fits = self._fitted(inner, rows, i, starts)
            if not i:
                stored = stored.in_order(self.recipe, self.sums, fits[0].posterior)
                rows = self._first(stored)
            rows, value, n = self._following(stored, rows, fits, share, i)
            bounds.append(value + sum(fit.objective or 0.0 for fit in fits))
            gained = bounds[-1] - bounds[-2]
            tol = len(fits) * self.recipe.tol * max(1.0, n / sites.SETTLED)
            logger.info("sites of classes, turn %d: the bound is %.8g nats", i + 1, bounds[-1])
            if inner.optimizer is not None:
                errors, before, starts = [fit.errors for fit in fits], starts, self._starts(fits)
                still = bool(before) and _moved(before, starts) < sites.STILL
                if still or i + 1 >= TRAINED:
                    inner = inner.changed(optimizer=None)
            inner = replace(inner, begun_from=fits[0].posterior.token)
            if gained < -tol and held:  # not as hyper-parameters have moved
                share = max(0.5 * share, sites.LEAST_SHARE)
            if abs(gained) < tol or not callbacks.has_room(0.0):
                break
        else:
            logger.warning(
                "the sites of classes have not converged after %d iterations: the bound "
                "still changes by %.3g nats for %d rows; scale the features, or choose "
                "another kernel",
                sites.MOST,
                abs(gained),
                n,
            )
        last = self._fitted(inner.changed(optimizer=None), rows, None, starts)
        errors = errors or [None] * len(last)
        own = zip(last, errors, strict=True)
        return [replace(fit, objective=bounds[-1], errors=error) for fit, error in own]

    def _fitted(
        self, recipe: Recipe, rows: list[data.Rows], turn: int | None, starts: list[warm.Other]
    ) -> list[Fit]:
        """Return the fit of each class to its sites, which keeps rows beyond the last turn."""
        fits: list[Fit] = []
        for c, (own, home) in enumerate(zip(rows, self.homes, strict=True)):
            place = self.places[c] if turn is None else home.place(turn)
            sums = sampling.describe(own, recipe.spans(own), home.executor)
            start = starts[c] if starts else None
            if fits and start is None and recipe.optimizer is not None:  # the kernel of the first
                first = fits[0].posterior
                start = warm.Other(first, recipe.inputs)
                recipe = replace(recipe, begun_from=first.token)
            given = home.executor, self.fills, recipe, own, sums, None, place, start
            fits.append(run.solved(*given))
        return fits

    def _starts(self, fits: list[Fit]) -> list[warm.Other]:
        """Return the models that the next turn starts from."""
        posteriors = [fit.posterior for fit in fits]
        if self.shared:
            first = posteriors[0]
            units = first.scaling, len(first.scaling.uses)
            kernels = [warm.kernel_of(one, *units) for one in posteriors]
            logs = np.array([kernel.log_parameters for kernel in kernels])
            weights = np.array([_precisions(fit, logs.shape[1]) for fit in fits])
            mean = (weights * logs).sum(axis=0) / weights.sum(axis=0)
            kernel = first.theta.kernel.with_log_parameters(mean)
            posteriors = [replace(first, theta=replace(first.theta, kernel=kernel))] * len(fits)
        return [warm.Other(one, self.recipe.inputs) for one in posteriors]

    def _first(self, stored: sites.Stored) -> list[data.Rows]:
        """Return rows with the sites of each class that they begin with."""
        C = len(self.homes)
        return stored.written(partial(_alone, stored.rows, C), 0, sets=C)[0]

    def _following(
        self,
        stored: sites.Stored,
        rows: list[data.Rows],
        fits: list[Fit],
        share: float,
        turn: int,
    ) -> tuple[list[data.Rows], float, int]:
        """Return rows with the next sites of each class, and a sum over them and their number."""
        q = [
            node("posterior", replace(p, method=p.method.at_own_rows()))
            for p in (fit.posterior for fit in fits)
        ]
        task = partial(_next, stored.rows, rows, share)
        following, parts = stored.written(task, turn + 1, tuple(q), sets=len(rows))
        return following, float(sum(value for value, _ in parts)), sum(n for _, n in parts)


def _precisions(fit: Fit, k: int) -> np.ndarray:
    """Return the precisions (k,) of logs of hyper-parameters; 1 where they are not known."""
    errors = np.full(k, np.nan) if fit.errors is None else fit.errors[:k]
    known = np.isfinite(errors) & (errors > 0)
    return np.where(known, 1.0 / np.where(known, errors, 1.0) ** 2, 1.0)


def _moved(before: list[warm.Other], after: list[warm.Other]) -> float:
    """Return the most that the log of a hyper-parameter has moved."""
    pairs = zip(before, after, strict=True)
    vectors = ([one.posterior.theta.to_vector(False) for one in pair] for pair in pairs)
    return max(float(np.abs(new - old).max()) for old, new in vectors)


def _alone(rows: data.Rows, classes: int, span: Span) -> tuple[Any, ...]:
    """Return the sites of rows, of one class after another, whose f have priors of their own."""
    known, y, _, weight = sites.observed(rows, span)
    mean = np.zeros((len(y), classes))
    found = categorical.expected(mean, np.full_like(mean, sites.ALONE))
    return *_sited(known, *_natural(found, y, mean, weight)), None


def _next(
    rows: data.Rows, before: list[data.Rows], share: float, span: Span, *q: Posterior
) -> tuple[Any, ...]:
    """Return the next sites of rows, of one class after another, and their part of the bound."""
    known, y, _, weight = sites.observed(rows, span)
    X = rows.raw(*span)[0][known]
    with single_blas_thread():
        found = [one.moments(X, "variance", gaussian=True) for one in q]
    mean = np.hstack([one.mean for one in found])
    variance = np.hstack([np.asarray(one.variance)[:, :1] for one in found])
    given = [one.raw(*span)[1][known] for one in before]
    t = np.column_stack([own[:, 0] for own in given])
    v = np.column_stack([own[:, -1] for own in given]) + sites.NO_NOISE
    expected = categorical.expected(mean, variance)
    observed = np.take_along_axis(mean, y.astype(np.intp), axis=1)[:, 0]
    of_sites = np.log(2 * np.pi * v) + ((t - mean) ** 2 + variance) / v
    density = observed - expected.log_total
    density = density if weight is None else weight * density
    value = float(density.sum() + 0.5 * of_sites.sum())
    first, second = _natural(expected, y, mean, weight)
    first = (1.0 - share) * t / v + share * first
    second = (1.0 - share) / v + share * second
    return *_sited(known, first, second), (value, len(y))


def _natural(
    found: categorical.Categories, y: np.ndarray, mean: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return t / v and 1 / v (n, C) of sites where q has means (n, C)."""
    w = 1.0 if weight is None else weight[:, None]
    second = sites.weighted_precision(found.spread, weight)
    slope = w * ((y == np.arange(mean.shape[1])) - found.probability)
    return slope + mean * second, second


def _sited(known: np.ndarray, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
    """Return pseudo-targets and noise variances (n,) of one class after another."""
    pairs = zip(first.T, second.T, strict=True)
    return [array for one, other in pairs for array in sites.sited(known, one, other)]
