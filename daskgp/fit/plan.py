"""Plan of a fit: the work it is, and the tasks, memory and disk that it needs."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from daskgp.checks import whole
from daskgp.data import Rows, is_zarr
from daskgp.data.blocks.around import LANDMARKS
from daskgp.data.partition import Span, default_block_rows
from daskgp.fit import rounds, subset
from daskgp.kernels import Kernel
from daskgp.models import inducing
from daskgp.models.method import Method
from daskgp.models.values import Shape
from daskgp.runtime.executor import FAN_IN, Executor

COPIES = 4
"""Copies of a raw block that reading, cleaning and scaling hold at once."""
EMPTY_STORE = 12_000
"""Bytes of an empty model store."""
SENT = 2
"""Copies of the values that a round shares: one packed by the client, one in a local scheduler."""
PROCESS, CLIENT = 190_000_000, 280_000_000
"""Bytes of a worker, and of a client with the scheduler of a local cluster, with few rows."""
COMPILER = 110_000_000
"""Bytes of numba and its compiled code in a process that uses it."""
ALIKE = 128
"""Number of blocks above which more of them do not change what a worker needs."""
TASK_BYTES = 9_000
"""Bytes of a task in the client with the scheduler of a local cluster, by benchmarks/scale.md."""
NODE_BYTES = 18
"""Bytes of a point in a tree that finds the nearest ones, beside its coordinates."""
UNIT_BYTES = 800
"""Bytes of a window: the rows of a block and of those near it."""
DISPATCH = 0.005
"""Seconds of scheduler and client per task, by workflows/benchmarks/many_workers.py."""
MOST_EXPERTS = 1 << 20
"""Maximum number of experts that a refusal suggests."""


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
        Most that the fit itself writes at a time, to ``store`` or a temporary folder: the training
        rows, and sorted runs of them where they are put in order.
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
    task_seconds : float or None
        Seconds of a map task of an iteration at most; None unless measured, or if nothing is
        trained.

    Examples
    --------
    >>> import dask.array as da, daskgp
    >>> X = da.empty((1_000_000, 8), chunks=(20_000, 8))
    >>> plan = daskgp.SGPR(n_inducing=512).plan(X, X[:, 0])
    >>> plan.rows, plan.tasks, plan.bytes_per_task < 500e6
    (1000000, 50, True)
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
    task_seconds: float | None = None

    def __str__(self) -> str:
        """Return a line per resource."""
        found = self.described()
        if self.seconds is not None:
            found["seconds of an iteration"] = f"{self.seconds:.3g}"
        wide = max(map(len, found))
        return "\n".join(f"{name:{wide}}  {text}" for name, text in found.items())

    def described(self) -> dict[str, str]:
        """Return the resources by what they are, in readable units.

        Examples
        --------
        >>> import dask.array as da, daskgp
        >>> X = da.empty((1_000_000, 8), chunks=(20_000, 8))
        >>> plan = daskgp.SGPR(n_inducing=512).plan(X, X[:, 0])
        >>> plan.described()["rows"]
        '1,000,000'
        """
        return {
            "rows": f"{self.rows:,}",
            "rows of the largest block": f"{self.block_rows:,}",
            "tasks per round": f"{self.tasks:,}",
            "memory of a task": size_text(self.bytes_per_task),
            "memory of a worker": size_text(self.bytes_per_worker),
            "memory of a worker that predicts": size_text(self.bytes_predict),
            "memory of a task on a GPU": size_text(self.bytes_device),
            "memory of the client": size_text(self.bytes_client),
            "model store on disk": size_text(self.bytes_on_disk),
            "rows that the fit writes": size_text(self.bytes_written),
            "operations of an iteration": f"{self.operations:.2g}",
        }

    def beside(self, others: Iterable[Plan]) -> Plan:
        """Return the plan with the most memory and disk of it and others.

        Examples
        --------
        >>> import dask.array as da, daskgp
        >>> X = da.empty((1_000_000, 8), chunks=(20_000, 8))
        >>> plan = daskgp.SGPR(n_inducing=512).plan(X, X[:, 0])
        >>> larger = daskgp.SGPR(n_inducing=1024).plan(X, X[:, 0])
        >>> plan.beside([larger]).bytes_client == larger.bytes_client
        True
        """
        plans = [self, *others]
        names = [one.name for one in fields(self) if one.name.startswith("bytes_")]
        return replace(self, **{name: max(getattr(p, name) for p in plans) for name in names})

    def busy(self, threads: int) -> float:
        """Return the share of a round that threads work, if all tasks take the same time.

        Examples
        --------
        >>> import dask.array as da, daskgp
        >>> X = da.empty((1_000_000, 8), chunks=(20_000, 8))
        >>> plan = daskgp.SGPR(n_inducing=512).plan(X, X[:, 0])  # 50 tasks
        >>> plan.busy(10), plan.busy(100)
        (1.0, 0.5)
        """
        whole("threads", threads, 1)
        return self.tasks / (threads * -(-self.tasks // threads))

    @property
    def most_workers(self) -> float | None:
        """Number of worker threads that one scheduler keeps at work, if a task was timed.

        The scheduler starts a task every 5 ms.

        Examples
        --------
        >>> import dask.array as da, daskgp
        >>> X = da.empty((1_000_000, 8), chunks=(20_000, 8))
        >>> plan = daskgp.SGPR(n_inducing=512).plan(X, X[:, 0])
        >>> plan.most_workers is None  # not measured
        True
        """
        return None if self.task_seconds is None else self.task_seconds / DISPATCH


@dataclass(frozen=True)
class Knob:
    """A setting that the memory of a task depends on.

    Attributes
    ----------
    name : str
    value : int
        Its present value, chosen by the user or by default.
    units : str
        Units that tasks work on with that value, such as "blocks of 1,000 rows".
    planned : callable
        Returns the plan with another value.
    finer : bool
        Whether a larger value, such as more experts, makes smaller units.
    otherwise : str
        Advice if no value fits.
    note : str
        What else a smaller value requires before a fit.
    """

    name: str
    value: int
    units: str
    planned: Callable[[int], Plan]
    finer: bool = False
    otherwise: str = "choose fewer inputs of the method"
    note: str = ""

    def remedy(self, fits: Callable[[Plan], bool]) -> str | None:
        """Return the advice to set the nearest value whose plan fits; None if none does."""
        nearest = self._nearest(lambda value: fits(self.planned(value)))
        if nearest is None:
            return None
        side = "most" if nearest < self.value else "least"
        return f"set {self.name} to at {side} {nearest}"

    def _nearest(self, fits: Callable[[int], bool]) -> int | None:
        if not self.finer:
            return _most(self.value, fits) or None
        most = min(self.planned(self.value).rows, MOST_EXPERTS)
        steps = range(1, 64)
        tried = [v for k in steps for v in (self.value >> k, self.value << k) if 1 <= v <= most]
        tried.sort(key=lambda value: abs(np.log(value / self.value)))
        return next(filter(fits, tried), None)


class Extra(NamedTuple):
    """Bytes that a fit needs beside what the footprint of its method says."""

    task: int = 0
    worker: int = 0
    client: int = 0
    disk: int = 0
    predicting: int = 0

    def with_compiled(self, predicting: bool) -> Extra:
        """Return the same with what compiled code takes in a fit, and in predictions if it does."""
        if importlib.util.find_spec("numba") is None:
            return self
        return self._replace(
            worker=self.worker + COMPILER, predicting=self.predicting + predicting * COMPILER
        )


NOTHING = Extra()


class Probe(NamedTuple):
    """A short run: the settings that its rows need, and the number of rows."""

    settings: Mapping[str, Any]
    rows: int


Probes: TypeAlias = Callable[[int], list[Probe]]
"""Returns the short runs for a number of threads, the smaller one first."""


def probes_in_blocks(n: int, step: int, least: int, **settings: Any) -> Probes:
    """Return the short runs of a method whose tasks work on blocks, some for each thread.

    A run has ``step`` of the ``n`` rows per thread or more, and at least ``least``.
    """

    def probes(threads: int) -> list[Probe]:
        return [Probe(settings, number) for number in sizes(n, step * threads, least)]

    return probes


def sizes(n: int, step: int, least: int) -> list[int]:
    """Return the rows of two runs: ``step``, or ``least`` if that is more, and 2 ``step`` more.

    Both are at most ``n``; if they are the same, ``n`` alone is returned.
    """
    small = min(n, max(step, least))
    large = min(n, small + 2 * step)
    return [small, large] if large > small else [n]


@dataclass(frozen=True)
class Planned:
    """Units of rows as a fit will have them, from the sizes of the data alone.

    Attributes
    ----------
    rows : Rows
    units : sequence of Span
        Rows of each block or expert, or of each part of a batch.
    written : int
        Bytes of training rows that the fit writes, at first those in another order.
    per_task : int
        Units per task.
    window_rows : int, optional
        Rows of a unit with those that its summary is conditioned on; default the largest unit.
    near_rows : int
        Rows that predictions are conditioned on.
    block_rows : int, optional
        Rows of the largest block of rows; default the largest unit.
    searched : int
        Blocks among which near ones are searched for; 0 if they are not.
    """

    rows: Rows
    units: Sequence[Span]
    written: int = 0
    per_task: int = 1
    window_rows: int | None = None
    near_rows: int = 0
    block_rows: int | None = None
    searched: int = 0

    @property
    def largest(self) -> int:
        """Rows of the largest unit."""
        return max((span.rows for span in self.units), default=0)


@dataclass(frozen=True, kw_only=True)
class Workload(Planned):
    """Work of a fit, from its settings and the sizes of the data.

    Attributes
    ----------
    method : Method
    kernel : Kernel
    n_inputs : int
        Number of inducing or support inputs.
    knob : Knob
        The setting that the memory of a task depends on.
    probes : callable
        Returns the short runs by which iterations are timed on a number of threads.
    itemsize : int
        Bytes of an entry of a kernel tile.
    kept, generous : int, bool
        Bytes of residuals that wait for the gradient if there is room, and whether this room is
        that of a generous pass.
    cached : int
        Bytes of factors that predictions keep if there is room.
    extra : Extra
    n_subset : int
        Rows whose exact evidence gives the hyper-parameters, 0 if training does.
    train_units : int, optional
        Units that hyper-parameters are trained on; default all.
    operations : float, optional
        Floating-point operations of an iteration; default those that the method says.
    iterations : int or None
        Maximum number of iterations; None for a fit that makes none.
    staged : bool
        Whether training may begin several times, with so many iterations each time.
    counted : str
        The history's name for what takes about the same time each.
    """

    method: Method
    kernel: Kernel
    n_inputs: int
    knob: Knob
    probes: Probes
    itemsize: int = 8
    kept: int = 0
    generous: bool = False
    cached: int = 0
    extra: Extra = NOTHING
    n_subset: int = 0
    train_units: int | None = None
    operations: float | None = None
    iterations: int | None = None
    staged: bool = False
    counted: str = "evaluations"

    @property
    def trained(self) -> float:
        """Share of the units that hyper-parameters are trained on."""
        if self.train_units is None:
            return 1.0
        return min(1.0, self.train_units / max(len(self.units), 1))

    @property
    def trained_tasks(self) -> int:
        """Tasks of an iteration."""
        return max(1, round(-(-len(self.units) // self.per_task) * self.trained))

    @property
    def subset_bytes(self) -> int:
        """Bytes of the client while hyper-parameters come from a subset of rows."""
        if not self.n_subset:
            return 0
        rows = self.rows
        return subset.solve_bytes(self.n_subset, rows.n_features, rows.n_targets, self.kernel.tiles)


def size_text(number: float) -> str:
    """Return a number of bytes in a readable unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def make_plan(work: Workload) -> Plan:
    """Return the plan of a workload."""
    model, rows, largest = work.method, work.rows, work.largest
    d, p = rows.n_features, rows.n_sides
    window_rows = largest if work.window_rows is None else work.window_rows
    shape = Shape(
        len(rows),
        d,
        p,
        largest,
        work.n_inputs,
        work.itemsize,
        work.kernel.tiles,
        window_rows,
        work.near_rows,
    )
    need, more = model.footprint(shape), work.extra
    tasks = -(-len(work.units) // work.per_task)
    task_rows = window_rows + (work.per_task - 1) * largest
    task = _raw_bytes(rows, task_rows) + _chunk_bytes(rows, largest) + need.task
    on_device = model.footprint(shape._replace(device=True)).task
    choice = _choice_bytes(work.n_inputs, len(rows), d)
    known = TASK_BYTES * tasks + _search_bytes(work, 3) + UNIT_BYTES * work.searched
    client = CLIENT + max(need.solve + SENT * need.shared, choice) + known + more.client
    predict = _raw_bytes(rows, work.near_rows) + need.predict + _search_bytes(work, 2)
    operations = need.operations * work.trained if work.operations is None else work.operations
    return Plan(
        rows=len(rows),
        block_rows=largest if work.block_rows is None else work.block_rows,
        tasks=tasks,
        bytes_per_task=task + more.task,
        bytes_per_worker=PROCESS + _with_waiting(task, need.stats, tasks) + more.task + more.worker,
        bytes_predict=PROCESS + predict + more.predicting,
        reads_rows=model.keeps_rows,
        bytes_client=max(client, work.subset_bytes),
        bytes_on_disk=EMPTY_STORE + need.state + more.disk,
        bytes_written=work.written,
        operations=operations,
        bytes_device=2 * 8 * task_rows * (d + p) + on_device,
    )


def with_kept(plan: Plan, work: Workload, executor: Executor, most_cached: float) -> Plan:
    """Return the plan of workers that also keep what there is room for, in fit and prediction.

    Predictions keep at most ``most_cached`` bytes in a process.
    """
    if not (work.kept or work.cached):
        return plan
    threads = executor.threads()
    room = rounds.KEEP_SHARE * executor.memory() if work.generous else rounds.kept_bytes(executor)
    fitting = int(min(work.kept, room)) // threads
    predicting = int(min(work.cached // threads, most_cached))
    return replace(
        plan,
        bytes_per_worker=plan.bytes_per_worker + fitting,
        bytes_predict=plan.bytes_predict + predicting,
        bytes_held=fitting,
        bytes_held_predicting=predicting,
    )


def in_blocks(rows: Rows, block_rows: int) -> tuple[Rows, list[Span]]:
    """Return rows in blocks of ``block_rows`` rows, as far as these change what a worker needs."""
    cut = rows
    if rows.chunks and not is_zarr(rows.X):  # chunks that a fit will write
        most = max(block_rows, default_block_rows(len(rows)))
        cut = replace(rows, chunks=(min(most, max(rows.chunks)),))
    count = min(-(-len(rows) // block_rows), ALIKE)
    return cut, [Span(0, block_rows)] * count


def spilled_bytes(rows: Rows) -> int:
    """Return the bytes of rows that a fit must write, as tasks could not read them otherwise."""
    return rows_bytes(rows) if rows.chunks is not None and not is_zarr(rows.X) else 0


def rows_bytes(rows: Rows) -> int:
    """Return the bytes of rows and of all numbers beside them in a store, before compression."""
    return 8 * len(rows) * sum(math.prod(a.shape[1:]) for a in rows.arrays.values())


def sorted_bytes(rows: Rows) -> int:
    """Return the most bytes on disk while rows are put in order: the rows, and runs with keys."""
    return rows_bytes(rows) + 8 * len(rows) * (1 + rows.X.shape[1] + rows.width)


def _search_bytes(work: Workload, copies: int) -> int:
    """Return the bytes of the rows that stand for blocks, in so many copies, and of their tree."""
    each = 8 * copies * work.rows.n_features + NODE_BYTES
    return LANDMARKS * work.searched * each


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


def _most(below: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number below a bound that fits, 0 if 1 does not."""
    fitting, too_many = 0, below
    while too_many - fitting > 1:
        middle = (fitting + too_many) // 2
        if fits(middle):
            fitting = middle
        else:
            too_many = middle
    return fitting
