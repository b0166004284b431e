"""Separate targets that have rows of their own: a fit of each to those in which it is known.

Targets without gaps share kernel and factorisation.  Where some are missing, or each has error
variances of its own, nothing is shared: the model of each is what a fit to it alone would be.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar, TypeAlias

import numpy as np

from daskgp import data
from daskgp.data.partition import Span
from daskgp.data.rows import Y_VARIANCE, is_zarr
from daskgp.data.stores.checkpoints import Place
from daskgp.errors import DaskgpError, InputError, SettingError
from daskgp.fit import hyperparameters, joint, means, warm, work
from daskgp.fit.fitted import Fit, note, ranges_of
from daskgp.fit.recipe import Recipe
from daskgp.fit.scratch import ordered
from daskgp.fit.turns import RowsInTurns
from daskgp.models import scaling
from daskgp.models.fills import Fills
from daskgp.posterior.posterior import Posterior
from daskgp.posterior.separate import Separate
from daskgp.runtime.executor import Executor, map_reduce
from daskgp.train.stochastic import Stopped

logger: logging.Logger = logging.getLogger("daskgp")

Run: TypeAlias = Callable[..., tuple[Fit, scaling.Sums]]
"""Returns the fit to rows of one target, see ``daskgp.fit.run.run``, and sums over them."""

ALONE = "fit each target on its own, y[:, j] (--target with one name)"


def refuse_one_error(rows: data.Rows) -> None:
    """Raise InputError for error variances that several targets share, whatever their units."""
    p = rows.n_targets
    if rows.y_variance is not None and rows.y_variance.shape[1:] != (p,):
        raise InputError(
            f"y_variance is one number per row, and y has {p} targets of units of their own: give "
            f"y_variance {(len(rows), p)}, or leave it out (y_variance=False where the store has "
            "it); all targets share sample_weight"
        )


def counted(recipe: Recipe, rows: data.Rows, executor: Executor) -> np.ndarray | None:
    """Return the numbers of values (p,) of several targets that have rows of their own, or errors.

    None for targets that share all of their rows.

    Raises
    ------
    InputError
        If a target has fewer than two values.
    SettingError
        If a setting does not go with rows of their own.
    """
    counts, some, every = values(rows, recipe.spans(rows), executor)
    shared = some == every and rows.y_variance is None
    if shared or not some:  # no row at all is what a fit to all of them says
        return None
    _check(recipe, rows, counts)
    _check_values(recipe, rows, executor)
    pairs = zip(rows.target_names, counts, strict=True)
    named = ", ".join(f"{name} {n}" for name, n in pairs)
    logger.info("separate targets of %d rows, each fitted to its own: %s", len(rows), named)
    scaling.warn_of_missing(len(rows) - some, rows.weight is not None)
    return counts


def values(
    rows: data.Rows, spans: Sequence[Span], executor: Executor
) -> tuple[np.ndarray, int, int]:
    """Return the numbers of values of each target (p,), of rows with one, and of rows with all."""
    found: np.ndarray = map_reduce(partial(_known, rows), np.add, spans, executor, "values")
    return found[:-2], int(found[-2]), int(found[-1])


def _known(rows: data.Rows, span: Span) -> np.ndarray:
    """Return the numbers of values of each target, of rows with one, and of those with all."""
    X, y = rows.read(*span)
    known = ~np.isnan(y[:, : rows.n_targets]) & ~np.isnan(X).any(axis=1)[:, None]
    return np.array([*known.sum(axis=0), known.any(axis=1).sum(), known.all(axis=1).sum()])


def _check(recipe: Recipe, rows: data.Rows, counts: np.ndarray) -> None:
    """Raise an error for what targets with rows of their own do not go with."""
    n = len(rows)
    for name, count in zip(rows.target_names, counts.tolist(), strict=True):
        if count < 2:
            raise InputError(
                f"target {name!r} has {count} usable value{'s' * (count != 1)} in {n} rows: two or "
                "more of each are needed, leave it out"
            )
    settings = {
        f"likelihood={recipe.observed_by.name!r}": recipe.codes is not None,
        f"calibrate={recipe.calibrate!r}": recipe.calibrate is not None,
        "mean= a fitted regressor": means.regressor(recipe.mean, rows) is not None,
    }
    for setting, given in settings.items():
        if given:
            gaps = int(n - counts.min())
            why = "have error variances of their own" if not gaps else "have gaps"
            raise SettingError(
                f"the {rows.n_targets} targets {why}, so each is fitted to its own rows, "
                f"which {setting} does not allow: {ALONE}, or leave out rows in which one is "
                "missing, for example with dropna()"
            )


def _check_values(recipe: Recipe, rows: data.Rows, executor: Executor) -> None:
    """Raise InputError for a target to whose rows nothing can be fitted, before the first fit."""
    names, given = rows.columns.inputs_names, scaling.Given.of(rows.arrays)
    found = joint.sums_of_targets(recipe, rows, executor)
    for name, sums in zip(rows.target_names, found, strict=True):
        with _about(name):
            scaling.check(sums, names, [name], given)
            work.check(recipe, rows, int(sums.rows))


@dataclass(frozen=True, eq=False)
class OfTargets(RowsInTurns):
    """Rows of each target: those of all, with its y and errors."""

    kinds: ClassVar[Mapping[str, int]] = {"targets": 1}

    def written(self) -> list[data.Rows]:
        """Return the rows of each target."""
        rows, p = self.rows, self.rows.n_targets
        names = ["y", *([Y_VARIANCE] if rows.y_variance is not None else [])]
        if is_zarr(rows.X):
            shapes = {f"{name}{j}": (len(rows),) for name in names for j in range(p)}
            found, _ = self.arrays("targets", 0, partial(_columns, rows, names), shapes)
        else:
            found = {f"{k}{j}": rows.arrays[k][:, j] for k in names for j in range(p)}
        d, units = len(rows.feature_names), rows.target_units
        return [
            rows.with_arrays(
                {**rows.arrays, **{name: found[f"{name}{j}"] for name in names}},
                target_names=(rows.target_names[j],),
                target_units=units[j : j + 1],
                fills=_fills_of(rows.fills, d, j),
            )
            for j in range(p)
        ]


def _columns(rows: data.Rows, names: Sequence[str], span: Span) -> tuple[Any, ...]:
    """Return the columns of y and of error variances, one after another."""
    return *(column for name in names for column in rows.values(name, *span).T), None


def _fills_of(fills: Fills, d: int, target: int) -> Fills:
    """Return the fill values of d features and a target."""
    return (*fills[:d], *fills[d + target : d + target + 1])


def run(
    run_one: Run,
    recipe: Recipe,
    rows: data.Rows,
    executor: Executor,
    checkpoint: Place | None,
    keep: str,
    start: warm.Other | None,
    fills: Fills,
) -> tuple[Fit, scaling.Sums]:
    """Return the fit of each target to its own rows, as one, and sums over the values of all.

    Parameters
    ----------
    run_one : callable
        The fit of one target.
    recipe, rows, executor, checkpoint, keep, start, fills
        As for a fit; the rows that each keeps lie inside of ``keep``.
    """
    if start is not None:
        _check_start(rows, start.posterior)
    of_targets, d = OfTargets(rows, executor, keep), len(rows.feature_names)
    fits, found, history = list[Fit](), list[scaling.Sums](), list[dict[str, Any]]()
    try:
        for j, own in enumerate(of_targets.written()):
            place = f"{keep}/{j}"
            begun = None if start is None else start._replace(posterior=_of(start.posterior, j))
            tape = None if checkpoint is None else checkpoint.part(j)
            given = executor, tape, place, begun, _fills_of(fills, d, j)
            try:
                with scaling.missing_on_purpose(), _about(own.target_names[0]):
                    fit, sums = run_one(recipe, own, *given)
            finally:
                data.remove(ordered(place))
            history = hyperparameters.continued(history, fit.history)
            fits.append(replace(fit, seen=[note("fit", sums, own)]))
            found.append(sums)
    except Stopped as error:
        error.outcome = None  # an estimator would take that of one target for its own
        raise
    finally:
        of_targets.clear()
    total = reduce(scaling.combine, found)
    made = together(
        fits,
        history,
        target_names=rows.target_names,
        target_units=rows.target_units,
        fills=fills,
        ranges=ranges_of(total, rows.columns),
    )
    return made, total


@contextmanager
def _about(target: str) -> Iterator[None]:
    """Name a target in what the fit to it in this thread says, and in a note of its failure."""
    own, name = threading.get_ident(), f"target {target!r}"

    def named(record: logging.LogRecord) -> bool:
        if record.thread == own and name not in (said := record.getMessage()):
            record.msg, record.args = f"{name}: {said}", ()
        return True

    logger.addFilter(named)
    try:
        yield
    except DaskgpError as error:
        if name not in str(error):
            error.add_note(f"so it is for {name}, which has rows of its own")
        raise
    finally:
        logger.removeFilter(named)


def together(fits: Sequence[Fit], history: list[dict[str, Any]], **described: Any) -> Fit:
    """Return fits of targets as one; ``described`` as for ``Separate.of``."""
    posterior = Separate.of([fit.posterior for fit in fits], **described)
    known = [fit.objective for fit in fits if fit.objective is not None]
    objective = sum(known) if len(known) == len(fits) else None
    number = sum(fit.n for fit in fits)
    return Fit(posterior, number, objective, history, each=tuple(fits))


def _check_start(rows: data.Rows, posterior: Posterior) -> None:
    """Raise SettingError for a model of other targets."""
    if posterior.n_targets > 1 and posterior.target_names != rows.target_names:
        raise SettingError(
            f"start is a model of the targets {', '.join(posterior.target_names)}, but the rows "
            f"have {', '.join(rows.target_names)}: start from a model of the same targets in the "
            "same order, or of one"
        )


def _of(posterior: Posterior, target: int) -> Posterior:
    """Return the model of a target to start from; one of a single target is that of all."""
    if posterior.each:
        return posterior.each[target]
    if posterior.n_targets == 1 or posterior.joint:  # which a start refuses
        return posterior
    own = posterior.scaling
    return replace(posterior, scaling=replace(own, y_scale=own.y_scale[[target]]))
