"""Where tasks run: clients, threads and memory."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import dask
import dask.local
import dask.threaded
from dask.base import get_scheduler
from dask.delayed import Delayed
from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed import Client, Future, KilledWorker, LocalCluster, Security, WorkerPlugin
from distributed.core import rpc
from distributed.system import MEMORY_LIMIT

from daskgp.arrays.backend import check_device, resolve_device
from daskgp.checks import shown
from daskgp.errors import InputError, MemoryRunError
from daskgp.runtime import gpus, preload, recovery, tls, versions
from daskgp.runtime.process import freed_memory_is_kept as freed_memory_is_kept
from daskgp.runtime.process import memory_is_kept
from daskgp.runtime.process import single_blas_thread as single_blas_thread
from daskgp.runtime.process import solve_threads as solve_threads
from daskgp.runtime.progress import (
    Counting,
    ShowProgress,
    progress_bar,
    round_logged,
    wants_progress,
)
from daskgp.typing import Device

logger = logging.getLogger("daskgp")


@contextmanager
def connect(
    address: str | None = None,
    *,
    n_workers: int | None = None,
    memory_limit: str | int = "auto",
    timeout: float = 30.0,
    log_level: int = logging.WARNING,
    device: Device = "auto",
) -> Iterator[Client]:
    """A Dask client for the duration of a ``with`` block.

    Parameters
    ----------
    address : str, optional
        Scheduler to connect to, such as ``"tcp://host:8786"``.  Without it a local cluster of
        processes is started, and closed again at the end of the block.
    n_workers : int, optional
        Worker processes of the local cluster, each with one thread; default one a core, or one
        a GPU.
    memory_limit : str or int
        Memory of each local worker, such as ``"2GiB"``.
    timeout : float
        Seconds to wait for a scheduler at ``address``, and again for its first worker.
    log_level : int
        Least level of the messages of a local cluster on stderr.
    device : {"auto", "cpu", "gpu"}
        Of the local cluster.  With "gpu" it has a worker for each GPU, which dask-cuda starts if
        there are several; "auto" does so where there are GPUs and no more workers are asked for.
        With "gpu" the cluster at ``address`` must have workers with one.

    Raises
    ------
    InputError
        If no scheduler answers at ``address``, it has no worker within ``timeout``, or a memory
        limit cannot be read.
    DeviceError
        If there is no GPU for "gpu".
    SettingError
        If there is no such device.
    """
    check_device(device)
    if address is not None:
        _refuse_unusable(address, timeout)
        with preload.short_records(), Client(address, timeout=timeout) as client:
            versions.check(client)
            if device == "gpu":
                gpus.claim(client)
            yield client
        return
    with (
        memory_is_kept(),
        preload.short_records(),
        dask.config.set({LOST_WORKER: NEVER}),
        _local_cluster(n_workers, memory_limit, log_level, device) as cluster,
        Client(cluster) as client,
    ):
        preload.dask_setup(cluster.scheduler)
        client.register_plugin(_IgnoreInterrupts())
        client.register_plugin(preload.ForgetNames())
        yield client


def _local_cluster(
    n_workers: int | None, memory_limit: str | int, log_level: int, device: Device
) -> LocalCluster:
    limit = local_memory_limit(memory_limit)
    options: dict[str, Any] = {"dashboard_address": ":0", "silence_logs": log_level}
    with_gpus = gpus.to_start(device, n_workers)
    if with_gpus:
        return gpus.start(with_gpus, None if memory_limit == "auto" else limit, **options)
    return LocalCluster(
        n_workers=n_workers or CPU_COUNT, threads_per_worker=1, memory_limit=limit, **options
    )


def _refuse_unusable(address: str, timeout: float) -> None:
    """InputError unless a scheduler with workers answers.

    Tried with a client that is not Dask's default, which a failed one would stay.
    """
    tls.refuse_unprepared(address)
    try:
        with ThreadPoolExecutor(1) as apart:  # where no event loop runs
            apart.submit(asyncio.run, _ask(address, timeout)).result()
        with Client(address, timeout=timeout, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=timeout)
            return
    except TimeoutError as error:
        # distributed says so of a scheduler that does not answer, too
        silent = "workers" not in str(error)
        cause: Exception = error
    except (OSError, ValueError) as error:
        silent, cause = True, error
    if silent:
        raise InputError(
            f"no Dask scheduler answers at {address}"
            f"{tls.UNTRUSTED if tls.encrypted(address) else ''}: check the address or leave it out "
            "to start a local cluster"
        ) from cause
    raise InputError(
        f"the Dask scheduler at {address} has no workers after {timeout:g} s: start some with "
        f"`dask worker {address}`, or leave the address out"
    ) from cause


async def _ask(address: str, timeout: float) -> None:
    """Have a word with a scheduler; a client would wait for ever for one that keeps silent."""
    arguments = Security().get_connection_args("client")
    async with rpc(address, timeout=timeout, connection_args=arguments) as scheduler:
        await asyncio.wait_for(scheduler.identity(), timeout)


class _IgnoreInterrupts(WorkerPlugin):
    """Ctrl-C reaches the workers of a terminal too; they end with the client, without a word."""

    name = "daskgp-ignore-interrupts"

    def setup(self, worker: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


LOST_WORKER, NEVER = "distributed.deploy.lost-worker-timeout", "1000 days"
"""Seconds after which a local cluster gives a worker up that was away: each is started again."""


def local_memory_limit(memory_limit: str | int = "auto") -> int:
    """Bytes of each one-thread worker of a local cluster; 0 for no limit."""
    if memory_limit == "auto":
        return int(MEMORY_LIMIT // CPU_COUNT)
    try:
        limit = parse_bytes(memory_limit)
    except ValueError as error:
        raise InputError(
            f"memory limit {shown(memory_limit)} cannot be read: write a size such as '2GiB'"
        ) from error
    return min(int(limit), int(MEMORY_LIMIT))


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
        """What Dask itself would compute with here; with "gpu" on workers that have one.

        Raises
        ------
        DeviceError
            If a GPU is asked for and cannot be had.
        """
        get = get_scheduler()
        owner = getattr(get, "__self__", None)
        if not isinstance(owner, Client):
            found = cls(None, show)
            if device == "gpu" and found.shares_memory:
                resolve_device(device)
            return found
        versions.check(owner)
        return cls(owner, show, resources=gpus.claim(owner) if device == "gpu" else None)

    @property
    def shares_memory(self) -> bool:
        """Whether tasks can see this process's arrays; no for schedulers that are not known."""
        if self.here:
            return True
        if self.client is not None:
            return False
        get = get_scheduler()
        if isinstance(get, functools.partial):  # dask's wrapping of a concurrent.futures executor
            return isinstance(getattr(get.args[0], "__self__", None), ThreadPoolExecutor)
        return get in (None, dask.threaded.get, dask.local.get_sync)

    def threads(self) -> int:
        """Tasks that run at a time."""
        if self.client is None:
            return int(dask.config.get("num_workers", None) or CPU_COUNT)
        return max(1, sum(int(w["nthreads"]) for w in self._workers(self.client)))

    def processes(self) -> int:
        """Processes that tasks run in."""
        return 1 if self.client is None else max(1, len(self._workers(self.client)))

    def memory_per_task(self) -> int | None:
        """Bytes that one task may use: a worker's limit over its threads; None if unlimited."""
        if self.client is None:
            threads = int(dask.config.get("num_workers", None) or CPU_COUNT)
            return int(MEMORY_LIMIT // threads)
        workers = self._workers(self.client)
        limits = [int(w["memory_limit"]) // w["nthreads"] for w in workers if w["memory_limit"]]
        return min(limits) if limits else None

    def _workers(self, client: Client) -> list[dict[str, Any]]:
        """What the scheduler says of each worker that may run the tasks."""

        def look() -> list[dict[str, Any]]:
            return list(client.scheduler_info(n_workers=-1)["workers"].values())

        found = recovery.until_done(client, look, (OSError, *recovery.LOST))
        return [worker for worker in found if not self.resources or gpus.declares(worker)]

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """What a function gives in each worker, by their addresses; nothing without a client."""
        client = self.client
        if client is None:
            return {}

        def run() -> dict[str, Any]:
            return dict(client.run(function, *arguments))

        # a worker that has just died is still on the list
        return recovery.until_done(client, run, (OSError, *recovery.LOST))

    def compute(self, root: Delayed, watch: Sequence[Delayed] = (), label: str = "") -> Any:
        """The value of ``root``; progress counts the tasks in ``watch``."""
        return self._compute([root], watch, label)[0]

    def compute_all(self, nodes: Sequence[Delayed], label: str = "") -> list[Any]:
        """The values of all nodes, which no worker needs to hold together."""
        return self._compute(nodes, nodes, label)

    def _compute(self, nodes: Sequence[Delayed], watch: Sequence[Delayed], label: str) -> list[Any]:
        with _memory_is_named(), round_logged(label, len(watch)):
            if self.client is None:
                return self._computed_here(nodes, watch, label)
            submit = functools.partial(self._submitted, self.client, nodes, watch, label)
            return recovery.until_done(self.client, submit)

    def _computed_here(
        self, nodes: Sequence[Delayed], watch: Sequence[Delayed], label: str
    ) -> list[Any]:
        with self._bar(label, len(watch)) as advance:
            names = {node.key for node in watch}
            counting = Counting(names, advance) if advance else nullcontext()
            with counting, single_blas_thread():
                return list(dask.compute(*nodes, **self._local))

    def _submitted(
        self, client: Client, nodes: Sequence[Delayed], watch: Sequence[Delayed], label: str
    ) -> list[Any]:
        with self._bar(label, len(watch)) as advance:
            futures = self._futures(client, nodes, watch, advance)
            try:
                recovery.settle(client, futures, gpus.declares if self.resources else None)
                return list(client.gather(futures))
            finally:  # one of the same key that still lives would be as lost as this one
                for future in futures:
                    future.release()

    def _futures(
        self,
        client: Client,
        nodes: Sequence[Delayed],
        watch: Sequence[Delayed],
        advance: Callable[[], None] | None,
    ) -> list[Future]:
        """Futures of the nodes; those of what is watched live until they are counted."""
        more = [] if advance is None or watch is nodes else watch
        given = recovery.renewed(client, [*nodes, *more])
        # theta and cotangents are one node on purpose; their size is bounded by m, not by n
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"}):
            futures = client.compute(
                given,
                retries=recovery.RETRIES,
                optimize_graph=False,
                resources=dict(self.resources or {}),
            )
        if advance is not None:
            for future in futures[len(nodes) :] if more else futures:
                future.add_done_callback(lambda _: advance())
        return list(futures[: len(nodes)])

    def persist(self, nodes: Sequence[Delayed]) -> list[Delayed]:
        """The nodes with their values, which stay where they were made."""
        client = self.client
        if client is not None:
            keep = functools.partial(recovery.keep, client, nodes, self.resources)
            return recovery.until_done(client, keep)
        with single_blas_thread(), _memory_is_named():
            return list(dask.persist(*nodes, **self._local))

    @property
    def _local(self) -> dict[str, str]:
        return {"scheduler": "threads"} if self.here else {}

    def memory(self) -> int:
        """Bytes of all workers, each with as much as the smallest, or of this machine."""
        if self.client is None:
            return int(MEMORY_LIMIT)
        workers = self._workers(self.client)
        return len(workers) * min((int(w["memory_limit"] or 0) for w in workers), default=0)

    @contextmanager
    def _bar(self, label: str, total: int) -> Iterator[Callable[[], None] | None]:
        if not label or not total or not wants_progress(self.show):
            yield None
            return
        with progress_bar() as progress:
            task = progress.add_task(label, total=total)
            yield lambda: progress.advance(task)


@contextmanager
def _memory_is_named() -> Iterator[None]:
    """Tasks that ran out of memory, or killed their workers, as one kind of error."""
    try:
        yield
    except KilledWorker as error:
        raise MemoryRunError("workers died repeatedly") from error
    except MemoryError as error:
        raise MemoryRunError("tasks ran out of memory") from error
