"""Plan of a fit: its tasks, memory and disk, before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from daskgp.data import Rows
from daskgp.data.partition import Span
from daskgp.kernels import Kernel
from daskgp.models.method import Method
from daskgp.models.sparse import selection
from daskgp.models.values import Shape
from daskgp.runtime.map_reduce import FAN_IN

COPIES = 4
"""Copies of a raw block that reading, cleaning and scaling hold at once."""
EMPTY_STORE = 12_000
"""Bytes of a model store without what it holds."""
SENT = 2
"""Copies of what a round shares: as the client packs it, and as a local scheduler has it."""
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
