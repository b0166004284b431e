"""A fit: read, describe, scale, start, arrange, train, solve, remember."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from daskgp import data
from daskgp.arrays import linalg
from daskgp.checks import LARGEST
from daskgp.data import partition, reading, visibility
from daskgp.data.blocks import filling, sampling
from daskgp.data.convert.layout import layout_of
from daskgp.data.feature_units import alike, count_of, of_differences
from daskgp.data.folds import SHARE
from daskgp.data.regressor import Known, residuals
from daskgp.data.rows import ARGUMENTS, COLUMNS, Beside, store_behind
from daskgp.data.seen import noticed
from daskgp.data.stores import remote
from daskgp.data.stores.checkpoints import Place
from daskgp.data.whole_dates import named_as_time
from daskgp.errors import InputError, MemoryRunError, SettingError
from daskgp.fit import (
    barriers,
    hyperparameters,
    joint,
    means,
    rounds,
    separate,
    sites,
    targets,
    warm,
    work,
)
from daskgp.fit.fitted import Fit, note, ranges_of
from daskgp.fit.plan import Plan, Workload, make_plan
from daskgp.fit.recipe import Outcome, Problem, Recipe
from daskgp.fit.scratch import kept_rows, ordered, residual, scratch_rows
from daskgp.kernels import Coregion, Kernel
from daskgp.kernels.averaged import QUARTER, averages, negative, too_wide
from daskgp.kernels.compose import tables
from daskgp.kernels.rotated import PROJECT, rotations
from daskgp.models import scaling
from daskgp.models.categories import UnseenError, shown
from daskgp.models.columns import KILOMETRES, RADIUS, kind_of_name, lowest, warn_of_angles
from daskgp.models.fills import Fills
from daskgp.posterior.layers import Layer, chain
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import ProcessSetting
from daskgp.train.stochastic import Stopped

logger: logging.Logger = logging.getLogger("daskgp")

_JITTER_ONCE = ProcessSetting(linalg.jitter_told_once)

Calibrate: TypeAlias = Callable[
    [Recipe, Fit, data.Rows, data.Rows, Executor, warm.Other | None], list[Layer]
]
"""Returns the layers that rows left out tell, see ``daskgp.assess.calibration``."""


def fitted(
    recipe: Recipe,
    X: Any,
    y: Any,
    checkpoint: Place | None = None,
    keep: str | None = None,
    beside: Beside | None = None,
    start: warm.Other | None = None,
    calibrate: Calibrate | None = None,
) -> Fit:
    """Return a fit to rows wherever they lie.

    Parameters
    ----------
    recipe : Recipe
    X, y
        As for an estimator's ``fit``.
    checkpoint : Place, optional
        Where training is kept, under a lock that is held.
    keep : str, optional
        URL for rows that predictions read back.
    beside : mapping, optional
        What rows have beside y, as ``data.rows_of`` takes it.
    start : Other, optional
        Model to start training from.
    calibrate : callable, optional
        How to learn the spread of predictions.
    """
    if checkpoint and recipe.random_state is None and not recipe.traits.keeps_seed:
        raise SettingError(
            "random_state=None draws other rows each time, so no fit could continue from the "
            "checkpoint: set random_state to a whole number"
        )
    if y is None:
        raise InputError(f"{recipe.name} requires y to be passed, but the target y is None")
    executor = Executor.current(recipe.progress, recipe.device)
    # sizes first: what cannot fit in memory is refused before anything is written
    beside = {} if beside is None else beside
    sizes = recipe.rows_of(X, y, None, executor.shares_memory, beside)
    _warn_of_arrays(X, y, beside)
    dataset = noticed(X, y, sizes)
    recipe = recipe if recipe.barriers is None else barriers.read(recipe, sizes)
    _say(recipe, sizes, y, beside)
    limit = executor.memory_per_task()  # of all workers, before tasks may end some
    load, plan = planned(recipe, sizes, limit, keep)
    if all(given is None for given in beside.values()):
        known = {name: a for name, a in sizes.arrays.items() if name in ARGUMENTS}
        if not known:
            data.warn_of_left_behind(y)
        beside = dict.fromkeys(ARGUMENTS, False) | known  # the store is not asked again
    try:
        with _JITTER_ONCE, scratch_rows(recipe.store) as spill:
            shared = executor.shares_memory
            whole = marked(recipe, recipe.rows_of(X, y, spill, shared, beside), executor)
            _refuse_inside(recipe, whole, executor)
            rows = left_by_regressor(recipe, whole, executor, residual(spill))
            with rows_url(recipe, keep, spill) as place, executor.memory_is_kept():
                given = checkpoint, place, start, whole.fills
                fit, sums = run(recipe, rows, executor, *given)
                if calibrate is not None and recipe.calibrate is not None:
                    layers = calibrate(recipe, fit, rows, whole, executor, start)
                    fit = fit.of(fit.posterior.with_layers(*layers))
            if rows is not whole:  # the checksum is that of what they were before a regressor
                sums = sums._replace(checksum=_checksum_of(recipe, whole, executor))
    except MemoryRunError as error:
        raise work.out_of_memory(error, plan, limit, load.knob) from error
    url = None if dataset is None else dataset.url
    sources = () if dataset is None else (dataset.source(executor),)
    posterior = replace(fit.posterior, rows_checksum=int(sums.checksum))
    values = fit.values.tolist() if fit.posterior.joint or fit.each else []
    seen = [note("fit", sums, whole, url, values) | _columns_of(sizes, y)]
    return replace(fit.of(posterior).lying_at(url), seen=seen, sources=sources)


def _columns_of(rows: data.Rows, y: Any) -> dict[str, Any]:
    """Return a note of the columns that the store of y has numbers beside it from, if any."""
    group = store_behind(y, "y") if rows.beside else None
    if group is None:
        return {}
    choices = layout_of(remote.address(group)).choices
    return {"columns": {name: choices[name][0] for name in rows.beside if name in choices}}


def _checksum_of(recipe: Recipe, rows: data.Rows, executor: Executor) -> int:
    if recipe.targets == "joint":
        return joint.checksum_of(recipe, rows, executor)
    return sampling.checksum_of(rows, recipe.spans(rows), executor)


def planned(
    recipe: Recipe, rows: data.Rows, limit: int | None, keep: str | None
) -> tuple[Workload, Plan]:
    """Return the work that a fit to rows of that size will be; PlanError if it is too much.

    A task may use ``limit`` bytes.
    """
    if recipe.targets == "joint":
        recipe, rows = joint.planned(recipe, rows)
    elif rows.n_targets > 1:
        separate.refuse_one_error(rows)
    work.check(recipe, rows, len(rows))
    if recipe.calibrate not in (None, "loo"):
        work.check(recipe, rows, len(rows) - len(rows) // SHARE)  # of the fit without some rows
    recipe.asked.check_names(recipe.kernel(rows), rows.n_features)
    load = work.work_of(recipe, rows)
    work.refuse(load, limit)
    plan = make_plan(load)
    work.refuse_full_disk(plan.bytes_written, str(recipe.store or tempfile.gettempdir()))
    if keep is not None:
        work.refuse_full_disk(plan.bytes_on_disk, keep)
    if recipe.store is not None and not plan.bytes_written:
        logger.info("store=%s is not used: tasks read the rows where they are", recipe.store)
    return load, plan


def run(
    recipe: Recipe,
    rows: data.Rows,
    executor: Executor,
    checkpoint: Place | None = None,
    keep: str = "",
    start: warm.Other | None = None,
    fills: Fills = (),
) -> tuple[Fit, scaling.Sums]:
    """Return a fit to rows that tasks can read, and sums over them.

    ``fills`` are what columns had in place of missing values.
    """
    given = executor, checkpoint, keep, start
    solve = partial(solved, executor, fills)
    if recipe.targets == "joint":
        fit, sums = joint.run(solve, recipe, rows, *given)
        return fit.of(_reading(recipe, fit.posterior)), sums
    if rows.n_targets > 1 and separate.counted(recipe, rows, executor) is not None:
        return separate.run(run, recipe, rows, *given, fills)
    spans = recipe.spans(rows)
    sums = _described(recipe, rows, spans, executor)
    if recipe.likelihood is None:
        return solve(recipe, rows, sums, checkpoint, keep, start), sums
    fit, observed = sites.run(solve, recipe, rows, sums, *given)
    return fit.of(_reading(recipe, fit.posterior.observed_by(observed))), sums


def _reading(recipe: Recipe, posterior: Posterior) -> Posterior:
    """Return a posterior of rows that a fit has made, which reads fill values of places."""
    return replace(posterior, finds_fills=isinstance(recipe.fill_values, str))


def solved(
    executor: Executor,
    fills: Fills,
    recipe: Recipe,
    rows: data.Rows,
    sums: scaling.Sums,
    checkpoint: Place | None,
    keep: str,
    start: warm.Other | None,
) -> Fit:
    """Return a fit to rows with these sums."""
    spans = recipe.spans(rows)
    scale = scaled(recipe, sums, rows)
    units = partition.alone(spans)
    stage = rounds.Rounds(rows, units, scale, executor, recipe.dtype, recipe.device)
    if recipe.barriers is not None:
        stage = replace(stage, barriers=barriers.in_model(recipe, rows, scale))
    if start is not None:
        begun = warm.start(recipe, stage, sums, start)
    else:
        begun = hyperparameters.start(recipe, stage, sums)
        begun = recipe.trainer.begin(Problem(recipe, stage, begun, sums, f"{keep}-first"))
    try:
        problem = Problem(recipe, stage, begun, sums, keep, checkpoint).arranged()
        outcome = recipe.trainer.learn(problem)
    except Stopped as error:
        if error.outcome is not None:
            error.outcome = remembered(recipe, error.outcome, sums, fills)
        raise
    kernel, names = outcome.theta.kernel, rows.columns.inputs_names
    hyperparameters.warn_of_periods(kernel, outcome.stage.scaling, sums, names)
    hyperparameters.warn_of_footprints(outcome.theta, outcome.stage.scaling, sums, names)
    return remembered(recipe, outcome, sums, fills)


def remembered(recipe: Recipe, outcome: Outcome, sums: scaling.Sums, fills: Fills) -> Fit:
    """Return what is learned from rows with these sums."""
    stage, rows = outcome.stage, outcome.stage.rows
    posterior = Posterior(
        recipe.method_of(stage),
        outcome.theta,
        outcome.state,
        stage.scaling,
        rows.feature_names,
        rows.target_names,
        rows.y.ndim == 1,
        stage.dtype,
        stage.device,
        outcome.kept,
        target_units=rows.target_units,
        geographic=rows.geographic,
        feature_units=rows.feature_units if any(rows.feature_units) else (),
        fills=fills,
        ranges=ranges_of(sums, rows.columns),
        finds_fills=isinstance(recipe.fill_values, str),
        categories=rows.categories,
        unseen=recipe.unseen,
        rows_checksum=int(sums.checksum),
        reference=rows.reference,
    )
    regressor = means.regressor(recipe.mean, rows)
    known = None if regressor is None else Known.of(regressor, rows)
    posterior = replace(posterior, layers=chain.of_fit(posterior.parts(known)))
    return Fit(
        posterior,
        int(sums.rows),
        outcome.objective,
        outcome.history,
        outcome.errors,
        outcome.total,
        left=outcome.left,
    )


# -- rows --------------------------------------------------------------------------------------


def marked(
    recipe: Recipe, rows: data.Rows, executor: Executor, known: filling.Known = None
) -> data.Rows:
    """Return rows that read fill values as missing, which the model will know, too.

    ``known`` are ranges of the columns of other rows.
    """
    _check_seen(rows, executor)
    classes = recipe.codes is not None
    spans = recipe.spans(rows)
    return filling.marked(rows, recipe.fill_values, spans, executor, known, classes)


def _refuse_inside(recipe: Recipe, rows: data.Rows, executor: Executor) -> None:
    """Raise InputError for rows inside of barriers, if there are any of them."""
    if recipe.barriers is not None:
        barriers.refuse_inside(recipe.barriers, rows, recipe.spans(rows), executor)


def left_by_regressor(recipe: Recipe, rows: data.Rows, executor: Executor, url: str) -> data.Rows:
    """Return rows with what a regressor leaves of y, kept at a URL; else the same rows."""
    regressor = means.regressor(recipe.mean, rows)
    if regressor is None:
        return rows
    left = residuals(rows, regressor, executor, url)
    _check_seen(left, executor)
    return left


def _check_seen(rows: data.Rows, executor: Executor) -> None:
    """Raise InputError for rows that not all workers see."""
    for array in rows.arrays.values():
        remedy = f"put it in {visibility.HERE}, with store= where fit writes it"
        visibility.check(executor, array, "the training data", remedy)


def rows_url(recipe: Recipe, keep: str | None, spill: str) -> AbstractContextManager[str]:
    """Return the context of a URL for rows that a fit writes: for predictions, or beside it."""
    if recipe.method.keeps_rows:
        return kept_rows(keep, recipe.store)
    return nullcontext(ordered(spill))


def _warn_of_arrays(X: Any, y: Any, beside: Beside) -> None:
    """Warn of rows that are moved against one another, and of packed numbers."""
    named = {ARGUMENTS[name]: a for name, a in beside.items()}
    reading.warn_of_moved(X, y=y, **named)
    data.warn_of_packed(X, y=y, **named)


def _say(recipe: Recipe, rows: data.Rows, y: Any, beside: Beside) -> None:
    """Say what is taken of the data that nobody has asked for, and what is not."""
    _say_geographic(recipe, rows)
    _say_categories(recipe, rows)
    _say_unused(recipe, y, beside)


def _say_unused(recipe: Recipe, y: Any, given: Beside) -> None:
    """Warn of numbers in the store of y that another likelihood takes, unless they are given."""
    asked = [name for name in COLUMNS if name not in recipe.columns and given.get(name) is None]
    for name in data.beside_in_store(y, asked):
        logger.warning(
            "the store of y has %s, which likelihood=%r does not take: it is not used; fit "
            "with likelihood=%r, or give %s=False in Python",
            *(name, recipe.observed_by.name, COLUMNS[name], name),
        )


def _say_geographic(recipe: Recipe, rows: data.Rows) -> None:
    """Log that the data themselves name columns of longitude and latitude."""
    if rows.geographic is not None and recipe.geographic is None:
        lon, lat = (rows.feature_names[j] for j in rows.geographic)
        logger.info(
            "features %r and %r are longitude and latitude by their attributes: distances are "
            "taken on the sphere, in km (geographic=False for those in degrees)",
            lon,
            lat,
        )


def _say_categories(recipe: Recipe, rows: data.Rows) -> None:
    """Warn of categories with several levels that the kernel does not look at."""
    if recipe.targets == "joint":
        recipe, rows = joint.planned(recipe, rows)
    columns = rows.columns
    several = [j for j, levels in columns.categories.items() if len(levels) > 1]
    own = recipe.kernel(rows).categories(rows.n_features) if several else ()
    for name in (columns.inputs_names[j] for j in several if j not in own):
        logger.warning(
            "feature %r is a category that the kernel does not use: add "
            "kernels.Categorical(%r) to the kernel, or leave the feature out",
            *(name, name),
        )


# -- their description -------------------------------------------------------------------------


def _described(
    recipe: Recipe, rows: data.Rows, spans: Sequence[partition.Span], executor: Executor
) -> scaling.Sums:
    """Return sums over rows; InputError for rows to which nothing can be fitted."""
    if rows.beside:
        targets.check_columns(rows, spans, executor, recipe.observed_by)
    if recipe.codes is not None:
        targets.check(rows, spans, executor, recipe.codes)
        if recipe.codes.sized_by_data and not recipe.of_part:
            targets.check_classes(rows, spans, executor)
    return described(recipe, rows, spans, executor)


def described(
    recipe: Recipe, rows: data.Rows, spans: Sequence[partition.Span], executor: Executor
) -> scaling.Sums:
    """Return sums over rows whose targets are possible; InputError as for other rows."""
    transform = None
    if recipe.target_transform is not None:
        transform = targets.transformed(rows, spans, executor, recipe.target_transform)
    try:
        sums = sampling.describe(rows, spans, executor, transform)
    except UnseenError as error:
        raise InputError(
            f"feature {error.name!r} has {error.value}, which is none of the levels of its kernel, "
            f"{shown(error.levels)}: give the kernel all levels, or leave these rows out"
        ) from None
    check_columns(recipe, sums, rows)
    work.check(recipe, rows, int(sums.rows))
    scaling.warn_of_missing(sums.dropped, rows.weight is not None)
    measured: Sequence[str] = rows.target_names if recipe.codes is None else ()
    if measured and not rows.beside:  # values at a limit are repeated
        scaling.warn_of_few_values(sums, measured, np.dtype(rows.y.dtype))
    names = rows.columns.inputs_names
    units = dict(zip(rows.feature_names, rows.feature_units, strict=False))
    times = {name for name, unit in units.items() if count_of(unit)}
    times |= {name for name in rows.feature_names if named_as_time(name)}
    others = [name * (name not in times) for name in names]
    scaling.warn_of_row_numbers(sums, others, partial(_first_of_input, rows))
    _warn_of_rounding(rows, sums)
    if rows.geographic is not None or recipe.geographic is None:
        own = rows.feature_names, rows.feature_units, ranges_of(sums, rows.columns)
        warn_of_angles(*own, rows.geographic)
    return sums


def _first_of_input(rows: data.Rows, j: int) -> np.ndarray:
    """Return the values of an input that is a column of X, in the first rows."""
    values = rows.values("X", 0, min(len(rows), scaling.FIRST_ROWS))
    return np.asarray(values[:, rows.columns.where[j]], np.float64)


def _warn_of_rounding(rows: data.Rows, sums: scaling.Sums) -> None:
    """Warn of columns of float32 or float16 whose differences are near its rounding."""
    deviation = np.sqrt(np.diag(sums.scatter) / sums.weight)
    largest = np.maximum(np.abs(sums.low), np.abs(sums.high))
    places = [(j, at) for j, at in enumerate(rows.columns.where) if isinstance(at, int)]
    targets = [(j, rows.n_features + j) for j in range(rows.n_targets) if sums.transform is None]
    for name, what, names, columns, share in (
        ("X", "feature", rows.feature_names, places, scaling.COARSE_PLACES),
        ("y", "target", rows.target_names, targets, scaling.COARSE_TARGETS),
    ):
        dtype = np.dtype(rows.arrays[name].dtype)
        own, at = [j for j, _ in columns], [at for _, at in columns]
        if not scaling.may_round(dtype, largest[at], share * deviation[at]):
            continue
        first = rows.values(name, 0, min(len(rows), scaling.FIRST_ROWS)).reshape(-1, len(names))
        step, said = (
            scaling.steps(first[:, own], largest[at]),
            [f"{what} {names[j]!r}" for j in own],
        )
        if told := scaling.of_steps(step, deviation[at], said, dtype, share):
            logger.warning("%s", told)


def check_columns(recipe: Recipe, sums: scaling.Sums, rows: data.Rows) -> None:
    """Raise InputError for columns to which no kernel, or not this one, can be fitted."""
    names = rows.columns.inputs_names
    largest = LARGEST if recipe.standardize else scaling.LARGEST_SCALED[recipe.dtype]
    data.refuse_lost(rows, sums.rows)
    scaling.check(sums, names, rows.target_names, scaling.Given.of(rows.arrays), 1.0 / largest)
    kernel = recipe.kernel(rows).resolve(np.ones(rows.n_features), 1.0)
    varies = ~scaling.constant(sums, rows.n_features)
    seen = [unit for unit in kernel.units(rows.n_features) if unit.columns]
    if seen and all(scaling.left_out(unit, varies) for unit in seen):
        columns = sorted({j for unit in seen for j in unit.columns})
        constant = ", ".join(repr(names[j]) for j in columns)
        raise InputError(
            f"the kernel sees only {constant}, the same in every row: give it a feature that "
            "varies by active_dims"
        )
    for one in tables(kernel):
        if isinstance(one, Coregion):
            one.check_rank(len(one.level_names))
    units = dict(zip(rows.feature_names, rows.feature_units, strict=False))
    each = [KILOMETRES if j in sums.sphere else units.get(name, "") for j, name in enumerate(names)]
    _check_rotations(kernel, names, each)
    _check_footprints(kernel, sums, names, each)
    scaling.warn_of_columns(sums, recipe.tied(rows), names, recipe.beside_places(rows))


def _check_rotations(kernel: Kernel, names: Sequence[str], units: Sequence[str]) -> None:
    """Raise SettingError for rotations that change nothing, and warn of units that differ."""
    for _, one in rotations(kernel):
        if one.is_idle(len(names)):
            columns = ", ".join(repr(names[j]) for j in one.columns)
            raise SettingError(
                f"Rotated turns {columns}, but its kernel has one lengthscale for them, which no "
                "rotation changes: give it one for each, such as Matern32(ard=True), or leave "
                "Rotated out"
            )
        in_degrees = [j for j in one.columns if kind_of_name(names[j]) and not units[j]]
        in_degrees += [j for j in one.columns if units[j].startswith("degree")]
        if len(in_degrees) == len(one.columns):
            logger.warning(
                "Rotated turns %s, degrees of longitude and latitude, which differ in "
                "length: the angle is not that on the ground, and there is no azimuth: %s",
                " and ".join(repr(names[j]) for j in one.columns),
                PROJECT,
            )
        known = [j for j in one.columns if units[j]]
        other = next((j for j in known if not alike(units[j], units[known[0]])), None)
        if other is not None:
            logger.warning(
                "Rotated turns %r in %r and %r in %r: the angle refers to these units; for "
                "the angle on the ground, give both coordinates in one unit",
                *(names[known[0]], units[known[0]], names[other], units[other]),
            )


def _check_footprints(
    kernel: Kernel, sums: scaling.Sums, names: Sequence[str], units: Sequence[str]
) -> None:
    """Raise InputError for radii below 0, or in another unit than the coordinates."""
    for one in averages(kernel):
        for j, places in one.extents(len(names)).items():
            if not one.of_points and sums.low[j] < 0:
                raise InputError(negative(f"feature {names[j]!r}", *lowest(sums.low[j])))
            if one.sphere and not one.of_points and sums.high[j] > QUARTER * RADIUS:
                most = f"with {sums.high[j]:.6g}"
                raise InputError(too_wide(f"feature {names[j]!r}", most))
            for i in places:
                wanted = of_differences(units[i])
                if units[j] and wanted and not alike(units[j], wanted):
                    raise InputError(
                        f"feature {names[j]!r} is in {units[j]!r} and the coordinate {names[i]!r} "
                        f"in {wanted!r}: convert the footprint to the unit of the coordinates"
                    )


def scaled(recipe: Recipe, sums: scaling.Sums, rows: data.Rows) -> scaling.Scaling:
    """Return the units that the method works in, and the mean function.

    Raise InputError for numbers that these units cannot hold.
    """
    coded, p = recipe.codes is not None, rows.n_targets
    mean, tied = "zero" if coded else means.described(recipe.mean), recipe.tied(rows)
    others = recipe.categories(rows), recipe.extents(rows), recipe.known(rows)
    scale = scaling.solve(sums, rows.n_features, mean, recipe.standardize, tied, *others)
    if coded:
        scale = replace(scale, intercept=np.zeros(p), y_scale=np.ones(p))
    else:
        scale = means.of_columns(scale, rows, int(sums.rows))
    if recipe.latent is not None:
        scale = replace(scale, y_scale=np.full(p, recipe.latent))
    names = rows.columns.inputs_names, rows.target_names
    scaling.check_range(sums, scale, recipe.dtype, *names)
    _warn_of_footprints(recipe.extents(rows), sums, scale, names[0])
    return scale


def _warn_of_footprints(
    extents: Iterable[int], sums: scaling.Sums, scale: scaling.Scaling, names: Sequence[str]
) -> None:
    """Warn about extents that are left out, as nothing says how far they reach."""
    sizes = np.maximum(np.abs(sums.low), np.abs(sums.high))
    left = [repr(names[j]) for j in extents if not scale.uses[j] and sizes[j] > 0]
    if left:
        logger.warning(
            "footprints %s lie along constant coordinates, from which no lengthscale can be "
            "learned, and are left out of the fit: give the lengthscale in the kernel to "
            "include them",
            ", ".join(left),
        )
