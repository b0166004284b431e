"""Refuse what cannot fit, before a fit or after its memory ran out, with the setting that would."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import numpy as np
from distributed.system import MEMORY_LIMIT

from daskgp import data
from daskgp.errors import DeviceMemoryError, MemoryRunError, PlanError
from daskgp.fit.plan import Plan
from daskgp.runtime import device_memory

SHARE = 0.7
"""Share of a worker's memory limit that a task may plan for; Dask pauses workers at 0.8."""
MOST_EXPERTS = 1 << 20
"""Most experts that a refusal suggests."""


def needed(plan: Plan) -> int:
    """Bytes that a worker must have for a fit that is of use."""
    fitting = plan.bytes_per_worker - plan.bytes_held
    predicting = plan.bytes_predict - plan.bytes_held_predicting
    return max(fitting, predicting)


def refuse(
    plan: Plan,
    limit: int | None,
    planned: Callable[[int], Plan],
    fewer: str = "fewer inputs of the method",
) -> None:
    """Raise PlanError if the plan needs more than a task's memory limit or the client's memory.

    ``planned`` gives the plan for blocks of so many rows; ``fewer`` is what to choose where none
    fits.
    """
    _refuse_client(plan)
    if _inside(plan, limit):
        return
    fits = _most(plan.block_rows, lambda k: _inside(planned(k), limit))
    if fits < 1:
        raise PlanError(
            f"a task needs {_size(needed(planned(1)))} with one row, a worker thread has "
            f"{_size(limit or MEMORY_LIMIT)}: give the workers more memory or choose {fewer}"
        )
    raise PlanError(
        f"a block of {plan.block_rows} rows needs {_size(needed(plan))}, a worker thread "
        f"has {_size(limit or MEMORY_LIMIT)}: set block_rows to at most {fits} (where the chunks "
        "of the store are larger than that, rewrite it with smaller ones)"
    )


def refuse_batch(
    plan: Plan, limit: int | None, planned: Callable[[int], Plan], batch_rows: int
) -> None:
    """As ``refuse``, for a method of mini-batches; ``planned`` gives the plan for others."""
    _refuse_client(plan)
    if _inside(plan, limit):
        return
    fits = _most(batch_rows, lambda k: _inside(planned(k), limit))
    remedy = f"set batch_rows to at most {fits}" if fits else "choose fewer inputs of the method"
    raise PlanError(
        f"a batch of {batch_rows} rows needs {_size(needed(plan))}, a worker thread has "
        f"{_size(limit or MEMORY_LIMIT)}: {remedy} or give the workers more memory"
    )


def _inside(plan: Plan, limit: int | None) -> bool:
    """Whether a worker thread with so many bytes holds what the plan needs."""
    return limit is None or needed(plan) <= SHARE * limit


def _refuse_client(plan: Plan) -> None:
    if plan.bytes_client > SHARE * MEMORY_LIMIT:
        raise PlanError(
            f"the solve for {plan.rows} rows needs {_size(plan.bytes_client)}, this machine has "
            f"{_size(MEMORY_LIMIT)}: use fewer rows or inducing inputs, or another method"
        )


def _most(below: int, fits: Callable[[int], bool]) -> int:
    """The largest number of rows below a bound that fits, 0 where one row does not."""
    found, too_many = 0, below
    while too_many - found > 1:
        middle = (found + too_many) // 2
        if fits(middle):
            found = middle
        else:
            too_many = middle
    return found


def out_of_memory(
    error: MemoryRunError, plan: Plan, limit: int | None, planned: Callable[[int], Plan]
) -> MemoryRunError:
    """The error of tasks that ran out of memory although their plan fits, with what will.

    Their blocks need more than was planned, so half of the plan is asked for.
    """
    fits = _most(plan.block_rows, lambda k: 2 * planned(k).bytes_per_task <= plan.bytes_per_task)
    remedy = f"set block_rows to at most {fits}" if fits else "choose fewer inputs of the method"
    return _short_of_memory(error, f"blocks of {plan.block_rows} rows", limit, remedy)


def batch_out_of_memory(
    error: MemoryRunError,
    plan: Plan,
    limit: int | None,
    planned: Callable[[int], Plan],
    batch_rows: int,
) -> MemoryRunError:
    """As ``out_of_memory``; ``planned`` gives the plan for batches of so many rows."""
    fits = _most(batch_rows, lambda k: 2 * planned(k).bytes_per_task <= plan.bytes_per_task)
    remedy = f"set batch_rows to at most {fits}" if fits else "choose fewer inputs of the method"
    return _short_of_memory(error, f"batches of {batch_rows} rows", limit, remedy)


def experts_out_of_memory(
    error: MemoryRunError,
    plan: Plan,
    limit: int | None,
    planned: Callable[[int], Plan],
    count: int,
) -> MemoryRunError:
    """As ``out_of_memory``; ``planned`` gives the plan for another number of experts."""
    more = [k for k in (count << i for i in range(1, 64)) if k <= min(plan.rows, MOST_EXPERTS)]
    enough = (k for k in more if 2 * planned(k).bytes_per_task <= plan.bytes_per_task)
    fits = next(enough, None)
    remedy = f"set n_experts to at least {fits}" if fits else "choose fewer inputs of the method"
    where = f"experts of up to {-(-plan.rows // count)} rows"
    return _short_of_memory(error, where, limit, remedy)


def _short_of_memory(
    error: MemoryRunError, where: str, limit: int | None, remedy: str
) -> MemoryRunError:
    if isinstance(error, DeviceMemoryError):
        if error.divided:
            return error  # other blocks would be cut to the same rows
        return DeviceMemoryError(error.seen, where, f"{remedy}, {device_memory.ANOTHER}")
    having = f" ({_size(limit)} a worker thread)" if limit else ""
    where = f"{where}, most likely out of memory{having}"
    return MemoryRunError(error.seen, where, f"{remedy} or give the workers more memory")


def refuse_full_disk(wanted: int, url: str) -> None:
    """Raise PlanError if a folder of this machine has less room than a fit will write there."""
    place = data.local_folder(url)
    if place is None:
        return
    free = shutil.disk_usage(place).free
    if wanted > free:
        raise PlanError(
            f"the fit writes up to {_size(wanted)} to {place}, which has {_size(free)} free: free "
            "some space or choose another place"
        )


def refuse_experts(
    plan: Plan, limit: int | None, planned: Callable[[int], Plan], count: int
) -> None:
    """Raise PlanError if so many experts need more memory than there is.

    ``planned`` gives the plan for another number of experts.
    """

    def fits(found: Plan) -> bool:
        return _inside(found, limit) and found.bytes_client <= SHARE * MEMORY_LIMIT

    if fits(plan):
        return
    wanted = (
        f"{count} {'expert' if count == 1 else 'experts'} of up to {-(-plan.rows // count)} rows "
        f"{'needs' if count == 1 else 'need'} "
        f"{_size(needed(plan))} in a task and {_size(plan.bytes_client)} in the client, "
        f"where there are {_size(limit or MEMORY_LIMIT)} and {_size(MEMORY_LIMIT)}"
    )
    tried = {count >> k for k in range(1, 64)} | {count << k for k in range(1, 64)}
    possible = [k for k in tried if 1 <= k <= min(plan.rows, MOST_EXPERTS)]
    for other in sorted(possible, key=lambda k: abs(np.log(k / count))):
        if fits(planned(other)):
            raise PlanError(f"{wanted}: n_experts={other} fits")
    raise PlanError(f"{wanted}: choose another aggregation, fewer inducing inputs or more memory")


def _size(number: float) -> str:
    return f"{number / 2**30:.2f} GiB"
