"""Refusal of a fit that needs too much memory, before or after it, naming a setting that fits."""

from __future__ import annotations

import shutil

from distributed.system import MEMORY_LIMIT

from daskgp import data
from daskgp.errors import DeviceMemoryError, MemoryRunError, PlanError
from daskgp.fit.plan import Knob, Plan, Workload, make_plan
from daskgp.runtime import device_memory

SHARE = 0.7
"""Share of a worker's memory limit that a plan may use; Dask pauses workers at 0.8."""


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


def refuse_full_disk(wanted: int, url: str) -> None:
    """Raise PlanError if a folder of this machine has less room than a fit will write to it."""
    place = data.local_folder(url)
    if place is None:
        return
    free = shutil.disk_usage(place).free
    if wanted > free:
        raise PlanError(
            f"the fit writes up to {_size(wanted)} to {place}, which has {_size(free)} free: free "
            "some space or choose another place"
        )


def _size(number: float) -> str:
    return f"{number / 2**30:.2f} GiB"
