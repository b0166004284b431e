"""Executor of graphs, maps over pieces of work, and their sums in a fixed order.

The tree of a sum has the same shape whatever the workers, so its result has the same bits.
"""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import dask
import dask.local
import dask.threaded
from dask import delayed
from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.system import CPU_COUNT
from distributed import Client, Future, KilledWorker
from distributed.system import MEMORY_LIMIT

from daskgp.arrays import backend
from daskgp.arrays.backend import aligned, resolve_device
from daskgp.errors import InputError, MemoryRunError
from daskgp.runtime import forked, gpus, recovery, versions
from daskgp.runtime.process import freed_memory_is_kept, single_blas_thread, this_worker
from daskgp.runtime.progress import TASKS, Advance, Amount, Counting, ShowProgress, progress_line
from daskgp.typing import Device

logger: logging.Logger = logging.getLogger("daskgp")

FAN_IN = 8
"""Neighbours that a node of a sum adds up."""


@dataclass(frozen=True)
class Executor:
    """The caller's Dask client if there is one, otherwise the scheduler Dask is set to.

    ``client`` is None for the threaded, process and synchronous schedulers.  ``here`` keeps work
    in this process, whatever Dask is set to.  ``resources`` are what tasks ask of a worker.
    """

    client: Client | None
    show: ShowProgress = "auto"
    here: bool = False
    resources: Mapping[str, float] | None = None

    @classmethod
    def current(cls, show: ShowProgress = "auto", device: Device = "cpu") -> Executor:
        """Return what Dask itself would compute with here; with "gpu", on workers that have one.

        Raises
        ------
        DeviceError
            If a GPU is asked for and not available.
        InputError
            If the client of Dask is asynchronous.
        """
        get = _get_of_dask()
        forked.check(get)
        owner = getattr(get, "__self__", None)
        if not isinstance(owner, Client):
            local = cls(None, show)
            if device == "gpu" and local.shares_memory:
                resolve_device(device)
            return local
        versions.check(owner)
        return cls(owner, show, resources=gpus.claim(owner) if device == "gpu" else None)

    @property
    def shares_memory(self) -> bool:
        """True if tasks can see this process's arrays; False for unknown schedulers."""
        if self.here:
            return True
        if self.client is not None:
            return False
        get = get_scheduler()
        if isinstance(get, functools.partial):  # dask's wrapping of a concurrent.futures executor
            return isinstance(getattr(get.args[0], "__self__", None), ThreadPoolExecutor)
        return get in (None, dask.threaded.get, dask.local.get_sync)

    def threads(self) -> int:
        """Return the number of tasks that run at a time."""
        if self.client is None:
            return int(dask.config.get("num_workers", None) or CPU_COUNT)
        return max(1, sum(int(w["nthreads"]) for w in self._workers(self.client)))

    def processes(self) -> int:
        """Return the number of processes that tasks run in."""
        return 1 if self.client is None else max(1, len(self._workers(self.client)))

    def memory_per_task(self) -> int | None:
        """Return the bytes a task may use: a worker's limit over its threads; None if unlimited."""
        if self.client is None:
            threads = int(dask.config.get("num_workers", None) or CPU_COUNT)
            return int(MEMORY_LIMIT // threads)
        workers = self._workers(self.client)
        limits = [int(w["memory_limit"]) // w["nthreads"] for w in workers if w["memory_limit"]]
        return min(limits) if limits else None

    def _workers(self, client: Client) -> list[dict[str, Any]]:
        """Return what the scheduler says of each worker that may run the tasks."""

        def look() -> list[dict[str, Any]]:
            return list(client.scheduler_info(n_workers=-1)["workers"].values())

        workers = recovery.until_done(client, look, (OSError, *recovery.LOST))
        return [worker for worker in workers if not self.resources or gpus.declares(worker)]

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Call a function in each worker; results by address, none without a client."""
        client = self.client
        if client is None:
            return {}

        def run() -> dict[str, Any]:
            return dict(client.run(function, *arguments))

        # a worker that has just died is still listed
        return recovery.until_done(client, run, (OSError, *recovery.LOST))

    def compute(
        self,
        root: Delayed,
        watch: Sequence[Delayed] = (),
        label: str = "",
        amount: Amount = TASKS,
    ) -> Any:
        """Compute the value of ``root``; progress counts the tasks in ``watch``."""
        return self._compute([root], watch, label, amount)[0]

    def compute_all(
        self, nodes: Sequence[Delayed], label: str = "", amount: Amount = TASKS
    ) -> list[Any]:
        """Compute the values of all nodes, which no worker has to hold all at once."""
        return self._compute(nodes, nodes, label, amount)

    def _compute(
        self, nodes: Sequence[Delayed], watch: Sequence[Delayed], label: str, amount: Amount
    ) -> list[Any]:
        with _memory_is_named(), _round_logged(label, len(watch)):
            line = functools.partial(self._line, label, len(watch), amount)
            if self.client is None:
                with line() as advance:
                    return self._computed_here(nodes, watch, advance)
            submit = functools.partial(self._submitted, self.client, nodes, watch, line)
            return recovery.until_done(self.client, submit)

    def _computed_here(
        self, nodes: Sequence[Delayed], watch: Sequence[Delayed], advance: Advance | None
    ) -> list[Any]:
        with _counting(watch, advance), single_blas_thread():
            # dask.compute would first search for what to simplify in graphs that have nothing
            graph = HighLevelGraph.merge(*(node.dask for node in nodes)).to_dict()
            get = get_scheduler(**self._local) or dask.threaded.get
            return list(get(graph, [node.key for node in nodes]))

    def _submitted(
        self,
        client: Client,
        nodes: Sequence[Delayed],
        watch: Sequence[Delayed],
        line: Callable[[], AbstractContextManager[Advance | None]],
    ) -> list[Any]:
        with line() as advance:
            futures = self._futures(client, nodes, watch, advance)
            try:
                recovery.settle(client, futures, gpus.declares if self.resources else None)
                return aligned(list(client.gather(futures)))
            finally:  # another live future of this key would be as lost as this one
                for future in futures:
                    future.release()

    def _futures(
        self,
        client: Client,
        nodes: Sequence[Delayed],
        watch: Sequence[Delayed],
        advance: Advance | None,
    ) -> list[Future]:
        """Return futures of the nodes; those of watched nodes live until they are counted."""
        more = [] if advance is None or watch is nodes else watch
        current = recovery.renewed(client, [*nodes, *more])
        # theta and cotangents are one node on purpose; their size is bounded by m, not by n
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"}):
            futures = client.compute(
                current,
                retries=recovery.RETRIES,
                optimize_graph=False,
                resources=dict(self.resources or {}),
            )
        if advance is not None:
            for future in futures[len(nodes) :] if more else futures:
                future.add_done_callback(lambda _: advance())
        return list(futures[: len(nodes)])

    def persist(
        self, nodes: Sequence[Delayed], label: str = "", amount: Amount = TASKS
    ) -> list[Delayed]:
        """Compute the nodes and return them with their values, which stay where they were made."""
        client = self.client
        if client is not None:
            keep = functools.partial(recovery.keep, client, nodes, self.resources)
            return recovery.until_done(client, keep)
        with self._line(label, len(nodes), amount) as advance:
            counting = _counting(nodes, advance)
            with counting, single_blas_thread(), _memory_is_named():
                return list(dask.persist(*nodes, **self._local))

    @property
    def _local(self) -> dict[str, str]:
        return {"scheduler": "threads"} if self.here else {}

    def memory_is_kept(self) -> AbstractContextManager[Any]:
        """Return a context in which this process keeps freed memory, as workers do, if it works."""
        return freed_memory_is_kept if self.shares_memory else nullcontext()

    def memory(self) -> int:
        """Return the bytes of all workers, each counted as the smallest, or of this machine."""
        if self.client is None:
            return int(MEMORY_LIMIT)
        workers = self._workers(self.client)
        return len(workers) * min((int(w["memory_limit"] or 0) for w in workers), default=0)

    def _line(
        self, label: str, total: int, amount: Amount
    ) -> AbstractContextManager[Advance | None]:
        show = self.show if label and total else False
        return progress_line(label, total, amount, show)


def _counting(nodes: Sequence[Delayed], advance: Advance | None) -> AbstractContextManager[Any]:
    """Return a context in which the ends of tasks of a local scheduler are counted."""
    return Counting({node.key for node in nodes}, advance) if advance else nullcontext()


def _get_of_dask() -> Any:
    """Return what Dask would compute with; InputError for a client in an event loop."""
    try:
        return get_scheduler()
    except RuntimeError as error:
        if "asynchronous" not in str(error):
            raise
        raise InputError(
            "the client of Dask is asynchronous and this call would block its event loop: "
            "call from a thread, await asyncio.to_thread(model.fit, X, y), or make the "
            "client without asynchronous=True"
        ) from None


@contextmanager
def _memory_is_named() -> Iterator[None]:
    """Raise MemoryRunError for tasks that ran out of memory or killed their workers."""
    try:
        yield
    except KilledWorker as error:
        raise MemoryRunError("workers died repeatedly") from error
    except MemoryError as error:
        raise MemoryRunError("tasks ran out of memory") from error


@contextmanager
def _round_logged(label: str, tasks: int) -> Iterator[None]:
    """Log one line when a round has ended, in Prometheus' text exposition format."""
    began = time.perf_counter()
    yield
    if label:
        seconds = time.perf_counter() - began
        logger.info('daskgp_round_seconds{round="%s",tasks="%d"} %.3f', label, tasks, seconds)


def chosen(executor: Executor, device: Device) -> str:
    """Describe where tasks would compute; without workers nothing is computed to find out."""
    if device == "cpu":
        return "cpu"
    if executor.client is None:
        _, reason = backend.count_gpus()
        reasons, where = [reason], ""
    else:
        reasons = list(executor.everywhere(backend.why_no_gpu).values())
        where = f" on {reasons.count('')} of {len(reasons)} workers"
    if "" in reasons:
        return f"gpu{where}"
    return f"{'none' if device == 'gpu' else 'cpu'}: {reasons[0]}"


def map_reduce(
    task: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    pieces: Sequence[Any],
    executor: Executor,
    label: str,
    shared: Sequence[Delayed] = (),
    amount: Amount | None = None,
) -> Any:
    """Sum ``task(piece, *shared)`` over pieces of work.

    Parameters
    ----------
    task : callable
        Pure; given a piece and the values of ``shared``.
    combine : callable
        Associative; sums neighbours, FAN_IN at a time, in the order of the pieces.
    pieces : sequence
        Small values that say what a task works on, such as the span of its rows.
    executor : Executor
        Where to run.
    label : str
        Names the tasks on the dashboard and in the progress.
    shared : sequence of Delayed
        Values that are broadcast once.
    amount : Amount, optional
        Rows of all pieces, for the progress; by default those of spans of rows.
    """
    nodes = mapped(task, [(piece, *shared) for piece in pieces], label)
    return tree_sum(nodes, combine, executor, label, amount=amount or _rows_in(pieces))


def map_all(
    task: Callable[..., list[Any]],
    pieces: Sequence[Any],
    executor: Executor,
    label: str,
    shared: Sequence[Delayed] = (),
) -> list[Any]:
    """Return the lists that ``task(piece, *shared)`` gives, joined in the order of the pieces."""
    nodes = mapped(task, [(piece, *shared) for piece in pieces], label)
    lists = executor.compute_all(nodes, label, _rows_in(pieces))
    return list(itertools.chain.from_iterable(lists))


def _rows_in(pieces: Sequence[Any]) -> Amount:
    """Return the rows of spans of rows; of other pieces they are not known."""
    numbers = [getattr(piece, "rows", None) for piece in pieces]
    known = [number for number in numbers if isinstance(number, int)]
    return Amount(sum(known)) if len(known) == len(numbers) else TASKS


def mapped(
    task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], label: str
) -> list[Delayed]:
    """Return a node for each tuple of arguments."""
    tag = uuid.uuid4().hex[:8]  # a round is never mistaken for an earlier one
    call = delayed(functools.partial(_run, task), pure=False, traverse=False)
    return [call(*values, dask_key_name=f"{label}-{tag}-{i}") for i, values in enumerate(arguments)]


def _run(task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task; in a worker, on arguments with the bits that they have in one process."""
    return task(*(arguments if this_worker() is None else aligned(arguments)))


def tree_sum(
    nodes: list[Delayed],
    combine: Callable[[Any, Any], Any],
    executor: Executor,
    label: str,
    in_place: bool = True,
    amount: Amount = TASKS,
) -> Any:
    """Sum nodes, FAN_IN neighbours at a time, in their order.

    A ``combine`` that adds ``in_place`` is given a copy: a task may run again on the same inputs.
    """
    fold = functools.partial(_fold, combine, in_place)
    root = _tree(nodes, fold, f"{label}-sum-{uuid.uuid4().hex[:8]}")
    return executor.compute(root, nodes, label, amount)


def _tree(nodes: list[Delayed], fold_in_order: Callable[..., Any], name: str) -> Delayed:
    fold = delayed(fold_in_order, pure=False, traverse=False)
    for level in itertools.count():
        groups = [nodes[i : i + FAN_IN] for i in range(0, len(nodes), FAN_IN)]
        if len(nodes) == 1:
            return nodes[0]
        nodes = [
            fold(*group, dask_key_name=f"{name}-{level}-{i}") if len(group) > 1 else group[0]
            for i, group in enumerate(groups)
        ]
    raise AssertionError("unreachable")


def _fold(combine: Callable[[Any, Any], Any], in_place: bool, first: Any, *others: Any) -> Any:
    total = copy.deepcopy(first) if in_place else first
    for other in others:
        total = combine(total, other)
    return total


def node(name: str, value: Any) -> Delayed:
    """Return a value as one node of a graph."""
    return delayed(value, name=f"{name}-{uuid.uuid4().hex[:8]}", traverse=False)
