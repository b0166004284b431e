"""The work that a recipe is for some rows, and the refusal of what cannot be done."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import numpy as np
from distributed.system import MEMORY_LIMIT

from daskgp.data import Rows, local_folder
from daskgp.data.rows import COLUMNS
from daskgp.errors import DeviceMemoryError, InputError, MemoryRunError, PlanError, SettingError
from daskgp.fit import hyperparameters, means
from daskgp.fit.arrange import Arrangement
from daskgp.fit.plan import Knob, Plan, Workload, make_plan, probes_in_blocks, spilled_bytes
from daskgp.fit.recipe import Recipe
from daskgp.likelihoods import Likelihood
from daskgp.models import scaling
from daskgp.models.method import Declared
from daskgp.runtime import device_memory

SHARE = 0.7
"""Share of a worker's memory limit that a plan may use; Dask pauses workers at 0.8."""
SMALL_CHUNKS = " (and rewrite a store with larger chunks)"


def check(recipe: Recipe, rows: Rows, n: int | None) -> None:
    """Raise InputError for settings or sizes of data that the method cannot be fitted with.

    ``n`` counts the usable rows; None if more of them will follow.
    """
    arrangement, name = recipe.arrangement, recipe.name
    recipe.trainer.check(recipe, rows)
    if recipe.likelihood is not None:
        check_sites(recipe.likelihood, rows)
    else:
        check_columns(recipe, rows.beside)
    check_noise(recipe.method, rows, name)
    check_arrangement(recipe.method, arrangement, name)
    arrangement.check(rows, name)
    if n is None:
        return
    if n == 0:
        raise InputError("no rows: the training data has length 0; give rows at two places or more")
    if n == 1:
        raise scaling.one_row()
    if recipe.target_transform is not None and rows.y_variance is not None:
        raise SettingError(
            f"y_variance is that of y and target_transform={recipe.target_transform!r} takes "
            "noise of the transformed y: leave one of them out (y_variance=False where the "
            "store has it), or give sample_weight"
        )
    if recipe.calibrate is not None and rows.y_variance is not None:
        raise SettingError(
            f"calibrate={recipe.calibrate!r} learns a factor on the whole spread, and y_variance "
            "is known: leave one of them out (y_variance=False where the store has it)"
        )
    if recipe.calibrate is not None:
        refuse_weights(recipe.method, rows)
    recipe.inputs.check(n)
    arrangement.check_number(n)
    recipe.trainer.check_number(recipe, rows, n)


def work_of(recipe: Recipe, rows: Rows, value: int | None = None) -> Workload:
    """Return what a fit to rows works on, on request with another value of its knob."""
    if value is not None:
        recipe, value = recipe.trainer.with_knob(recipe, value)
    planned, own = recipe.arrangement.planned(rows, value), recipe.inputs
    rows, largest = planned.rows, planned.largest
    units, trained = f"blocks of {largest} rows", recipe.train_blocks

    def plan(value: int) -> Plan:
        return make_plan(work_of(recipe, rows, value))

    written = spilled_bytes(rows) + _residual_bytes(recipe, rows) + planned.written
    work = Workload(
        **vars(planned) | {"written": written},
        method=recipe.method.of_units(len(planned.units)),
        kernel=recipe.kernel(rows),
        n_inputs=own.planned(rows.n_features),
        knob=Knob("block_rows", largest, units, plan, note=SMALL_CHUNKS),
        probes=probes_in_blocks(len(rows), max(largest, 1), own.count, block_rows=largest),
        itemsize=np.dtype(recipe.dtype).itemsize,
        train_units=hyperparameters.SECOND if isinstance(trained, str) else trained,
        iterations=None if recipe.optimizer is None else recipe.max_iter,
    )
    return recipe.trainer.workload(recipe, work)


def _residual_bytes(recipe: Recipe, rows: Rows) -> int:
    """Return the bytes of what a regressor leaves of y, which is written for tasks to read."""
    known = means.regressor(recipe.mean, rows) is None or rows.chunks is None
    return 0 if known else 8 * len(rows) * rows.n_targets


def check_columns(recipe: Recipe, given: Iterable[str]) -> None:
    """Raise SettingError for numbers beside y that the likelihood of a method does not take."""
    by_sites = recipe.likelihood is not None
    taken = recipe.columns if recipe.method.takes_columns or by_sites else ()
    column = next((name for name in given if name not in taken), None)
    if column is not None:
        raise SettingError(
            f"{column} is given, and {recipe.name} with likelihood={recipe.observed_by.name!r} "
            f"does not take it: leave it out, or choose VecchiaGP, LMA, SGPR or SVGP with "
            f"likelihood={COLUMNS[column]!r}"
        )


def check_sites(likelihood: Likelihood, rows: Rows) -> None:
    """Raise SettingError for rows with what no site takes: errors, or several targets."""
    if rows.y_variance is not None:
        likelihood.of_rows(np.zeros((0, 2)))
    likelihood.with_columns({name: np.zeros(0) for name in rows.beside})
    if rows.n_targets > 1:
        raise SettingError(
            f"y has {rows.n_targets} targets, whose sites of likelihood={likelihood.name!r} would "
            "each have a noise of their own: fit each target on its own, y[:, j], or choose SVGP"
        )


# -- what a method declares that it takes ------------------------------------------------------


def refuse_weights(model: Declared, rows: Rows) -> None:
    """Raise SettingError for rows with weights if a method does not tell noise from f."""
    if model.noisy and rows.weight is not None:
        raise SettingError(model.no_weights())


def check_noise(method: Declared, rows: Rows, name: str) -> None:
    """Raise SettingError for noise variances of rows that a method would ignore.

    ``name`` is that of the estimator.
    """
    for setting, given in (("y_variance", rows.y_variance), ("sample_weight", rows.weight)):
        if given is not None and not method.takes_noise:
            raise SettingError(
                f"{setting} is given, and {name} would ignore it, because its method does not "
                f"declare takes_noise: leave it out ({setting}=False where the store has it)"
            )


def check_arrangement(method: Declared, arrangement: Arrangement, name: str) -> None:
    """Raise SettingError for units without the neighbours that a method needs, or the reverse.

    So are rows that predictions would miss.
    """
    given = type(arrangement).__name__
    if method.takes_neighbours != arrangement.nearby:
        has, needs = ("", "does not say") if arrangement.nearby else ("no ", "says")
        raise SettingError(
            f"{name} has rows in {given}, with {has}neighbours, and its method {needs} "
            "takes_neighbours: return another arrangement of daskgp.fit.arrange from _arrangement, "
            f"such as {'AsStored' if arrangement.nearby else 'Blocks'}"
        )
    if method.keeps_rows and not arrangement.keeps_rows:
        raise SettingError(
            f"{name} has rows in {given}, which predictions cannot read back, and its method says "
            "keeps_rows: return another arrangement of daskgp.fit.arrange from _arrangement, such "
            "as Blocks"
        )


# -- memory and disk -----------------------------------------------------------------------------


def needed(plan: Plan) -> int:
    """Return the bytes that a worker must have both to fit and to predict."""
    fitting = plan.bytes_per_worker - plan.bytes_held
    predicting = plan.bytes_predict - plan.bytes_held_predicting
    return max(fitting, predicting)


def refuse(work: Workload, limit: int | None) -> None:
    """Raise PlanError for work that needs more than the memory of a task or of the client."""
    if work.subset_bytes > SHARE * MEMORY_LIMIT:
        raise PlanError(
            f"n_subset={work.n_subset} needs {_size(work.subset_bytes)} for its kernel matrices, "
            f"but this machine has {_size(MEMORY_LIMIT)}: choose fewer, or hyperparameters='bound'"
        )
    plan, knob = make_plan(work), work.knob
    if _inside(plan, limit):
        return
    remedy = knob.remedy(lambda other: _inside(other, limit))
    if remedy is None and plan.bytes_client > SHARE * MEMORY_LIMIT:
        raise PlanError(
            f"the solve for {plan.rows} rows needs {_size(plan.bytes_client)}, but this machine "
            f"has {_size(MEMORY_LIMIT)}: use fewer rows or inducing inputs, or another method"
        )
    needs = [(needed(plan), "a worker thread", limit or MEMORY_LIMIT)]
    needs += [(plan.bytes_client, "the client", MEMORY_LIMIT)]
    size, place, has = max(needs, key=lambda need: need[0] / need[2])
    advice = knob.otherwise if remedy is None else remedy + knob.note
    raise PlanError(
        f"{knob.units} need {_size(size)} in {place}, which has {_size(has)}: "
        f"{advice} or give the workers more memory"
    )


def _inside(plan: Plan, limit: int | None) -> bool:
    """Return True if a plan fits the client and a worker thread with ``limit`` bytes."""
    client = plan.bytes_client <= SHARE * MEMORY_LIMIT
    return client and (limit is None or needed(plan) <= SHARE * limit)


def out_of_memory(
    error: MemoryRunError, plan: Plan, limit: int | None, knob: Knob
) -> MemoryRunError:
    """Return the error of tasks that ran out of memory although their plan fits, with a remedy.

    They need more than was planned, so the remedy is a setting whose plan needs half as much.
    """
    remedy = knob.remedy(lambda other: 2 * other.bytes_per_task <= plan.bytes_per_task)
    return _short_of_memory(error, knob.units, limit, remedy or knob.otherwise)


def _short_of_memory(
    error: MemoryRunError, where: str, limit: int | None, remedy: str
) -> MemoryRunError:
    if isinstance(error, DeviceMemoryError):
        if error.divided:
            return error  # blocks of any size would be cut to as few rows
        return DeviceMemoryError(error.seen, where, f"{remedy}, {device_memory.ANOTHER}")
    having = f" ({_size(limit)} per worker thread)" if limit else ""
    where = f"{where}, most likely out of memory{having}"
    return MemoryRunError(error.seen, where, f"{remedy} or give the workers more memory")


def refuse_full_disk(wanted: int, url: str, what: str = "the fit") -> None:
    """Raise PlanError if a folder of this machine has less room than will be written to it."""
    place = local_folder(url)
    if place is None:
        return
    free = shutil.disk_usage(place).free
    if wanted > free:
        raise PlanError(
            f"{what} writes up to {_size(wanted)} to {place}, which has {_size(free)} free: free "
            "some space or choose another place"
        )


def refuse_large_map(cells: int, each: int) -> None:
    """Raise PlanError for a map of so many cells of ``each`` bytes beyond the memory there is."""
    if cells * each > MEMORY_LIMIT:
        raise PlanError(
            f"the map has {cells:,} cells, whose mean and standard deviation take "
            f"{_size(cells * each)} of memory, but there are only {_size(MEMORY_LIMIT)}: give "
            "larger steps or a smaller extent, chunks to the grid, or write it part by part "
            "with daskgp fit and daskgp predict"
        )


def _size(number: float) -> str:
    return f"{number / 2**30:.2f} GiB"
