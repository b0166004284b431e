"""Learning by mini-batches from rows that come call by call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from daskgp.arrays.backend import resolve_device
from daskgp.data import Rows, partition
from daskgp.data.blocks import sampling
from daskgp.data.rows import Beside
from daskgp.errors import InputError, SettingError
from daskgp.fit import by_batches, hyperparameters, rounds, run, targets, work
from daskgp.fit.by_batches import Bound, Left
from daskgp.fit.fitted import Fit, note, ranges_of
from daskgp.fit.recipe import Outcome, Problem, Recipe
from daskgp.models import scaling
from daskgp.models.fills import Fills
from daskgp.runtime.executor import Executor
from daskgp.train.stochastic import Run, Stopped, ascend
from daskgp.update.changing import (
    described,
    known_ranges,
    more_rows,
)


def learned(recipe: Recipe, fit: Fit | None, X: Any, y: Any, beside: Beside) -> Fit:
    """Return a fit that has learned from more rows, in one pass over them.

    Raises
    ------
    Stopped
        If numbers are not finite; its ``outcome`` is the fit of the step before.
    """
    if recipe.target_transform is not None:
        raise SettingError(
            f"partial_fit with target_transform={recipe.target_transform!r} is not supported: "
            "use fit, or transform y first"
        )
    if recipe.calibrate is not None:
        raise SettingError(
            f"partial_fit with calibrate={recipe.calibrate!r} has no rows to hold out: use "
            "fit, or leave calibrate out"
        )
    resolve_device(recipe.device)
    executor = Executor(None, False, here=True)
    rows = _read(recipe, fit, (X, y), beside, executor)
    fills, rows = rows.fills, run.left_by_regressor(recipe, rows, executor, "")
    work.check(recipe, rows, None)
    if not len(rows):
        raise InputError("no rows: there is nothing to learn from; give at least one")
    spans = recipe.spans(rows)
    if rows.beside:
        targets.check_columns(rows, spans, executor, recipe.observed_by)
    if recipe.codes is not None:
        targets.check(rows, spans, executor, recipe.codes)
    if fit is not None:
        sums, scale, fit = described(recipe, fit, rows, executor)
    else:
        sums = sampling.describe(rows, spans, executor)
        run.check_columns(recipe, sums, rows)
        scale = run.scaled(recipe, sums, rows)
        scaling.warn_of_missing(sums.dropped, rows.weight is not None)
    units, before = partition.alone(spans), 0 if fit is None else fit.n
    stage = rounds.Rounds(rows, units, scale, executor, recipe.dtype, recipe.device)
    bound, left = _begun(recipe, fit, stage, sums)
    try:
        outcome = _followed(bound._replace(rows=before + sums.rows), left, before)
    except Stopped as error:
        if error.outcome is not None:
            error.outcome = _remembered(recipe, fit, error.outcome, sums, fills)
        raise
    found = _remembered(recipe, fit, outcome, sums, fills)
    return replace(found, seen=[*found.seen, note("update", sums, rows)])


def _read(
    recipe: Recipe,
    fit: Fit | None,
    given: tuple[Any, Any],
    beside: Beside,
    executor: Executor,
) -> Rows:
    """Return the rows of a call, in the columns of the first ones if there were any."""
    if fit is None:
        return run.marked(recipe, recipe.rows_of(*given, None, True, beside), executor)
    fit.posterior.refuse_separate("partial_fit")
    rows = more_rows(recipe, fit, given, beside)
    fit.refuse_without_columns(rows.arrays, beside)
    return run.marked(recipe, rows, executor, known_ranges(fit))


def _begun(
    recipe: Recipe, fit: Fit | None, stage: rounds.Rounds, sums: scaling.Sums
) -> tuple[Bound, Left]:
    """Return the bound, and the run that it goes on from."""
    if fit is not None:
        return by_batches.resumed(recipe, stage, fit.posterior, fit.left, fit.history)
    start = hyperparameters.start(recipe, stage, sums)
    bound = Bound.begun(Problem(recipe, stage, start, sums), recipe.seed())
    return bound, Left(Run.begin(bound.first_parameters()), None, sums, streamed=True)


def _remembered(
    recipe: Recipe, fit: Fit | None, outcome: Outcome, sums: scaling.Sums, fills: Fills
) -> Fit:
    """Return what is learned, from so many rows as the outcome has seen."""
    number, left = outcome.left
    found = run.remembered(recipe, outcome._replace(left=left), sums, fills)
    if fit is not None:
        ranges = ranges_of(sums, outcome.stage.rows.columns, fit.posterior.ranges)
        learned = {name: getattr(found, name) for name in ("objective", "history", "left")}
        found = replace(fit, posterior=replace(found.posterior, ranges=ranges), **learned)
    return replace(found, n=number)


def _followed(bound: Bound, left: Left, before: float) -> Outcome:
    """Make one pass over the rows of a call, which follow ``before`` others."""
    assert left.run is not None
    assert left.sums is not None
    recipe, pieces, begun = bound.recipe, bound.batches(), left.run.step
    seen = np.cumsum([before, *(sum(p.size for p in batch) for batch in pieces)])
    executor, none = bound.stage.executor, by_batches.no_rows(bound.stage.rows)

    def finished(run: Run, history: by_batches.History) -> Outcome:
        rows = float(seen[run.step - begun])
        outcome = bound._replace(rows=rows).concluded(run, history, rows, begun)
        now = left._replace(run=run, learned=learning.arrays())
        return outcome._replace(left=(int(rows), now))

    learning = bound.learning(executor, lambda: pieces.pop(0), _nowhere, none)
    learning.bases = learning.bases._replace(covariance=recipe.inputs.count, most=None)
    # a model that ``fit`` has begun keeps to its setting
    follows = bound.trainer.learns(recipe) or (left.streamed and recipe.optimizer is not None)
    if follows:
        learning.let_go()
    if left.learned is not None:
        learning.restore(left.learned)
    ascent = bound.ascent(left.sums, follows)
    ascent = replace(ascent, steps=begun + len(pieces), patience=None)
    with by_batches.keeping_the_last(finished):
        now, history = ascend(learning, left.run, ascent, bound.describe, by_batches.WATCHED)
    return finished(now, history)


def _nowhere() -> np.ndarray:
    return np.zeros((0, 3), np.int64)
