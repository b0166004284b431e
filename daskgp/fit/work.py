"""The work that a recipe is for some rows, and the refusal of rows that it is not for."""

from __future__ import annotations

import numpy as np

from daskgp.data import Rows
from daskgp.errors import InputError, SettingError
from daskgp.fit import hyperparameters, means
from daskgp.fit.arrange import Arrangement
from daskgp.fit.plan import Knob, Plan, Workload, make_plan, probes_in_blocks, spilled_bytes
from daskgp.fit.recipe import Recipe
from daskgp.models import scaling
from daskgp.models.method import Declared

NOISY = (
    "the rows have weights, and experts with noise_in_experts=True do not tell noise from f: fit "
    "with noise_in_experts=False"
)
SMALL_CHUNKS = " (and rewrite a store with larger chunks)"


def check(recipe: Recipe, rows: Rows, n: int | None) -> None:
    """Raise InputError for settings or sizes of data that the method cannot be fitted with.

    ``n`` counts the usable rows; None if more of them will follow.
    """
    arrangement, name = recipe.arrangement, recipe.name
    recipe.trainer.check(recipe, rows)
    check_noise(recipe.method, rows, name)
    check_arrangement(recipe.method, arrangement, name)
    arrangement.check(rows, name)
    if n is None:
        return
    if n == 0:
        raise InputError("no rows: the training data has length 0")
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

    work = Workload(
        recipe.method.of_units(len(planned.units)),
        recipe.kernel(rows),
        rows,
        planned.units,
        own.planned(rows.n_features),
        Knob("block_rows", largest, units, plan, note=SMALL_CHUNKS),
        probes_in_blocks(len(rows), max(largest, 1), own.count, block_rows=largest),
        np.dtype(recipe.dtype).itemsize,
        block_rows=planned.block_rows,
        window_rows=planned.window_rows,
        near_rows=planned.near_rows,
        per_task=planned.per_task,
        written=spilled_bytes(rows) + _residual_bytes(recipe, rows) + planned.written,
        train_units=hyperparameters.SECOND if isinstance(trained, str) else trained,
        iterations=None if recipe.optimizer is None else recipe.max_iter,
    )
    return recipe.trainer.workload(recipe, work)


def _residual_bytes(recipe: Recipe, rows: Rows) -> int:
    """Return the bytes of what a regressor leaves of y, which is written for tasks to read."""
    known = means.regressor(recipe.mean, rows) is None or rows.chunks is None
    return 0 if known else 8 * len(rows) * rows.n_targets


# -- what a method declares that it takes ------------------------------------------------------


def refuse_weights(model: Declared, rows: Rows) -> None:
    """Raise SettingError for rows with weights if a method does not tell noise from f."""
    if model.noisy and rows.weight is not None:
        raise SettingError(NOISY)


def check_noise(method: Declared, rows: Rows, name: str) -> None:
    """Raise SettingError for noise variances of rows that a method would ignore.

    ``name`` is that of the estimator.
    """
    for setting, given in (("y_variance", rows.y_variance), ("sample_weight", rows.weight)):
        if given is not None and not method.takes_noise:
            raise SettingError(
                f"{setting} is given, and {name} would ignore it, as its method does not say "
                f"takes_noise: leave it out ({setting}=False where the store has it)"
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
