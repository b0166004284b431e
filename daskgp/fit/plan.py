"""Plan of a fit: its tasks, memory and disk, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from daskgp.data import Rows
from daskgp.data.partition import Span
from daskgp.kernels import Kernel
from daskgp.models import inducing
from daskgp.models.method import Method
from daskgp.models.values import Shape
from daskgp.runtime.executor import FAN_IN

COPIES = 4
"""Copies of a raw block that reading, cleaning and scaling hold at once."""
EMPTY_STORE = 12_000
"""Bytes of an empty model store."""
SENT = 2
"""Copies of the values that a round shares: one packed by the client, one in a local scheduler."""
PROCESS, CLIENT = 190_000_000, 280_000_000
"""Bytes of a worker, and of a client with the scheduler of a local cluster, with few rows."""


@dataclass(frozen=True)
class Plan:
    """Resources that a fit needs.

    Attributes
    ----------
    rows, block_rows, tasks : int
        Training rows, rows of the largest block, and map tasks per round.
    bytes_per_task : int
        Peak memory of one map task with its raw rows.
    bytes_per_worker : int
        Peak memory of a worker process with one thread while it fits, the bare process included.
    bytes_predict : int
        Peak memory of such a worker while it predicts means and variances.
    reads_rows : bool
        Whether predictions read training rows back; if so, a fit whose predictions would not fit
        in memory is refused.
    bytes_client : int
        Peak memory of the client process, the bare process included: in the small solve, or in
        the choice of inducing inputs.
    bytes_on_disk : int
        Size of the model store, with the training rows that predictions read back.
    bytes_written : int
        Size of the training rows that the fit itself writes, to ``store`` or a temporary folder.
    operations : float
        Floating-point operations per value and gradient of the objective.
    seconds : float or None
        Seconds per iteration of training, or of the whole fit if nothing is trained; None unless
        measured.  Methods that train in stages make up to ``max_iter`` iterations in each.
    bytes_held, bytes_held_predicting : int
        Parts of ``bytes_per_worker`` and ``bytes_predict`` that are used only if there is room,
        such as factors that wait for the gradient.
    bytes_device : int
        GPU memory of a map task, which is cut into smaller pieces if there is less.
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
    model: Method,
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
    """Return the plan of fitting ``model`` with ``n_inputs`` inducing or support inputs.

    ``window_rows`` counts the rows of a block and of the blocks its summary is conditioned on,
    ``near_rows`` those that predictions are conditioned on, ``per_task`` the blocks per task.
    """
    largest = max((span.rows for span in spans), default=0)
    d, p = rows.n_features, rows.n_targets
    shape = Shape(
        len(rows), d, p, largest, n_inputs, itemsize, kernel.tiles, window_rows, near_rows
    )
    need = model.footprint(shape)
    tasks = -(-len(spans) // per_task)
    task_rows = window_rows + (per_task - 1) * largest
    task = _raw_bytes(rows, task_rows) + _chunk_bytes(rows, largest) + need.task
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
        bytes_device=2 * 8 * task_rows * (d + p) + on_device,
    )


def with_held(plan: Plan, fitting: int, predicting: int) -> Plan:
    """Return the plan of workers that also hold that many bytes because there is room for them."""
    return replace(
        plan,
        bytes_per_worker=plan.bytes_per_worker + fitting,
        bytes_predict=plan.bytes_predict + predicting,
        bytes_held=fitting,
        bytes_held_predicting=predicting,
    )


def rows_bytes(rows: Rows) -> int:
    """Return the bytes of rows in a store, before compression."""
    return 8 * len(rows) * (rows.n_features + rows.n_targets)


def _with_waiting(task: int, stats: int, tasks: int) -> int:
    """Return the bytes of a task beside the summaries that wait for it, or of adding them up.

    A lone worker holds all summaries that are added together.
    """
    together = min(tasks, FAN_IN)
    return max(task + (together - 1) * stats, (together + 1) * stats)


def _choice_bytes(n_inputs: int, n: int, d: int) -> int:
    """Return the bytes of the sample and of the greedy selection's factor, one row per input."""
    sample = min(n, inducing.sample_rows(n_inputs))
    return 8 * sample * (n_inputs + 2 * d)


def _chunk_bytes(rows: Rows, block_rows: int) -> int:
    """Return the bytes of the rest of a chunk, decoded whole even if the block is a part of it."""
    rest = max(rows.chunks or (0,), default=0) - block_rows
    return 8 * max(rest, 0) * (rows.n_features + rows.n_targets)


def _raw_bytes(rows: Rows, block_rows: int) -> int:
    return COPIES * 8 * block_rows * (rows.n_features + rows.n_targets)
