"""What a fit will need, before it starts; and the refusal of what cannot fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from distributed.system import MEMORY_LIMIT

from daskgp import selection
from daskgp.errors import MemoryRunError, PlanError
from daskgp.flow.io import Rows
from daskgp.flow.partition import Span
from daskgp.flow.rounds import FAN_IN
from daskgp.kernels import Kernel
from daskgp.model import Ensemble, Model, Shape

COPIES = 4
"""Copies of a raw block that reading, cleaning and scaling hold at once."""
SHARE = 0.7
"""Share of a worker's memory limit that a task may plan for; Dask pauses workers at 0.8."""
MOST_EXPERTS = 1 << 20
"""Most experts that a refusal suggests."""
PROCESS = 200_000_000
"""Bytes of a worker process before it does anything."""


@dataclass(frozen=True)
class Plan:
    """What a fit needs.

    Attributes
    ----------
    rows, block_rows, tasks : int
        Training rows, rows of the largest block, and map tasks a round.
    bytes_per_task : int
        Peak of one map task with its raw rows.
    bytes_per_worker : int
        Peak of a worker process with one thread.
    bytes_client : int
        Peak of the client: of the small solve, or of the choice of inducing inputs.
    bytes_on_disk : int
        Size of the model store.
    operations : float
        Floating-point operations of one value and gradient of the objective.
    """

    rows: int
    block_rows: int
    tasks: int
    bytes_per_task: int
    bytes_per_worker: int
    bytes_client: int
    bytes_on_disk: int
    operations: float


def make_plan(
    model: Model | Ensemble,
    kernel: Kernel,
    rows: Rows,
    spans: Sequence[Span],
    n_inputs: int,
    itemsize: int,
    window_rows: int,
    near_rows: int = 0,
    per_task: int = 1,
) -> Plan:
    """The plan of fitting ``model`` with ``n_inputs`` inducing or support inputs.

    ``window_rows`` are those of a block and of the blocks its summary is conditioned on,
    ``near_rows`` those that predictions are conditioned on, ``per_task`` the blocks of a task.
    """
    largest = max((span.rows for span in spans), default=0)
    d, p = rows.n_features, rows.n_targets
    shape = Shape(
        len(rows), d, p, largest, n_inputs, itemsize, kernel.tiles, window_rows, near_rows
    )
    need = model.footprint(shape)
    held = max(window_rows + (per_task - 1) * largest, near_rows)
    task = _raw_bytes(rows, held) + _chunk_bytes(rows, largest) + need.task
    worker = max(task, (FAN_IN + 1) * need.stats) + PROCESS
    return Plan(
        rows=len(rows),
        block_rows=largest,
        tasks=-(-len(spans) // per_task),
        bytes_per_task=task,
        bytes_per_worker=worker,
        bytes_client=max(need.solve, _choice_bytes(n_inputs, len(rows), d)),
        bytes_on_disk=need.state,
        operations=need.operations,
    )


def _choice_bytes(n_inputs: int, n: int, d: int) -> int:
    """Bytes of the sample and of the greedy selection's factor, a row an input."""
    sample = min(n, selection.sample_rows(n_inputs))
    return 8 * sample * (n_inputs + 2 * d)


def _chunk_bytes(rows: Rows, block_rows: int) -> int:
    """Bytes of the rest of a chunk that is decoded whole though the block is a part of it."""
    rest = max(rows.chunks or (0,), default=0) - block_rows
    return 8 * max(rest, 0) * (rows.n_features + rows.n_targets)


def _raw_bytes(rows: Rows, block_rows: int) -> int:
    return COPIES * 8 * block_rows * (rows.n_features + rows.n_targets)


def refuse(plan: Plan, limit: int | None, planned: Callable[[int], Plan]) -> None:
    """Raise PlanError if the plan needs more than a task's memory limit or the client's memory.

    ``planned`` gives the plan for blocks of so many rows.
    """
    if plan.bytes_client > SHARE * MEMORY_LIMIT:
        raise PlanError(
            f"the solve for {plan.rows} rows needs {_size(plan.bytes_client)}, this machine has "
            f"{_size(MEMORY_LIMIT)}: use fewer rows or inducing inputs, or another method"
        )
    if limit is None or plan.bytes_per_worker <= SHARE * limit:
        return
    fits = _most(plan.block_rows, lambda k: planned(k).bytes_per_worker <= SHARE * limit)
    if fits < 1:
        raise PlanError(
            f"a task needs {_size(planned(1).bytes_per_worker)} with one row, a worker thread has "
            f"{_size(limit)}: give the workers more memory or choose fewer inputs of the method"
        )
    raise PlanError(
        f"a block of {plan.block_rows} rows needs {_size(plan.bytes_per_worker)}, a worker thread "
        f"has {_size(limit)}: set block_rows to at most {fits} (where the chunks of the store are "
        "larger than that, rewrite it with smaller ones)"
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
    having = f" ({_size(limit)} a worker thread)" if limit else ""
    where = f"{where}, most likely out of memory{having}"
    return MemoryRunError(error.seen, where, f"{remedy} or give the workers more memory")


def refuse_experts(
    plan: Plan, limit: int | None, planned: Callable[[int], Plan], count: int
) -> None:
    """Raise PlanError if so many experts need more memory than there is.

    ``planned`` gives the plan for another number of experts.
    """

    def fits(found: Plan) -> bool:
        inside = limit is None or found.bytes_per_worker <= SHARE * limit
        return inside and found.bytes_client <= SHARE * MEMORY_LIMIT

    if fits(plan):
        return
    needed = (
        f"{count} {'expert' if count == 1 else 'experts'} of up to {-(-plan.rows // count)} rows "
        f"{'needs' if count == 1 else 'need'} "
        f"{_size(plan.bytes_per_worker)} in a task and {_size(plan.bytes_client)} in the client, "
        f"where there are {_size(limit or MEMORY_LIMIT)} and {_size(MEMORY_LIMIT)}"
    )
    tried = {count >> k for k in range(1, 64)} | {count << k for k in range(1, 64)}
    possible = [k for k in tried if 1 <= k <= min(plan.rows, MOST_EXPERTS)]
    for other in sorted(possible, key=lambda k: abs(np.log(k / count))):
        if fits(planned(other)):
            raise PlanError(f"{needed}: n_experts={other} fits")
    raise PlanError(f"{needed}: choose another aggregation, fewer inducing inputs or more memory")


def _size(number: float) -> str:
    return f"{number / 2**30:.2f} GiB"
