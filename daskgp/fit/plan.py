"""What a fit will need, before it starts; and the refusal of what cannot fit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from distributed.system import MEMORY_LIMIT

from daskgp import data
from daskgp.data import Rows
from daskgp.data.partition import Span
from daskgp.errors import DeviceMemoryError, MemoryRunError, PlanError
from daskgp.kernels import Kernel
from daskgp.models.sparse import selection
from daskgp.models.values import Ensemble, Model, Shape
from daskgp.runtime import device_memory
from daskgp.runtime.map_reduce import FAN_IN

COPIES = 4
"""Copies of a raw block that reading, cleaning and scaling hold at once."""
EMPTY_STORE = 12_000
"""Bytes of a model store without what it holds."""
SENT = 2
"""Copies of what a round shares: as the client packs it, and as a local scheduler has it."""
SHARE = 0.7
"""Share of a worker's memory limit that a task may plan for; Dask pauses workers at 0.8."""
MOST_EXPERTS = 1 << 20
"""Most experts that a refusal suggests."""
PROCESS, CLIENT = 190_000_000, 280_000_000
"""Bytes of a worker, and of a client with the scheduler of a local cluster, with few rows."""


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
        Peak of a worker process with one thread while it fits, the bare process included.
    bytes_predict : int
        Peak of such a worker while it predicts means and variances.
    reads_rows : bool
        Whether predictions read training rows back; a fit whose predictions would not fit is
        refused then.
    bytes_client : int
        Peak of the client process, the bare process included: of the small solve, or of the
        choice of inducing inputs.
    bytes_on_disk : int
        Size of the model store, with the training rows that predictions read back.
    bytes_written : int
        Training rows that the fit itself writes, to ``store`` or a temporary folder.
    operations : float
        Floating-point operations of one value and gradient of the objective.
    seconds : float or None
        Seconds of an iteration of training, or of the whole fit where nothing is trained; None
        unless it was measured.
    bytes_held, bytes_held_predicting : int
        What of ``bytes_per_worker`` and ``bytes_predict`` is held only where there is room, such
        as factors that wait for the gradient.
    bytes_device : int
        What a map task takes on a GPU, where it is cut to less if there is not as much.
    """

    rows: int
    block_rows: int
    tasks: int
    bytes_per_task: int
    bytes_per_worker: int
    bytes_predict: int
    reads_rows: bool
    bytes_client: int
    bytes_on_disk: int
    bytes_written: int
    operations: float
    seconds: float | None = None
    bytes_held: int = 0
    bytes_held_predicting: int = 0
    bytes_device: int = 0


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
    bytes_written: int = 0,
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
    tasks = -(-len(spans) // per_task)
    held = window_rows + (per_task - 1) * largest
    task = _raw_bytes(rows, held) + _chunk_bytes(rows, largest) + need.task
    on_device = model.footprint(shape._replace(device=True)).task
    choice = _choice_bytes(n_inputs, len(rows), d)
    return Plan(
        rows=len(rows),
        block_rows=largest,
        tasks=tasks,
        bytes_per_task=task,
        bytes_per_worker=PROCESS + _with_waiting(task, need.stats, tasks),
        bytes_predict=PROCESS + _raw_bytes(rows, near_rows) + need.predict,
        reads_rows=model.keeps_rows,
        bytes_client=CLIENT + max(need.solve + SENT * need.shared, choice),
        bytes_on_disk=EMPTY_STORE + need.state,
        bytes_written=bytes_written,
        operations=need.operations,
        bytes_device=2 * 8 * held * (d + p) + on_device,
    )


def with_held(plan: Plan, fitting: int, predicting: int) -> Plan:
    """The plan of workers that also hold so many bytes because there is room for them."""
    return replace(
        plan,
        bytes_per_worker=plan.bytes_per_worker + fitting,
        bytes_predict=plan.bytes_predict + predicting,
        bytes_held=fitting,
        bytes_held_predicting=predicting,
    )


def rows_bytes(rows: Rows) -> int:
    """Bytes of rows in a store, before they are compressed."""
    return 8 * len(rows) * (rows.n_features + rows.n_targets)


def _with_waiting(task: int, stats: int, tasks: int) -> int:
    """Bytes of a task beside the summaries that wait for it, or of the sum of as many as there are.

    A lone worker holds all summaries that are added together.
    """
    together = min(tasks, FAN_IN)
    return max(task + (together - 1) * stats, (together + 1) * stats)


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
