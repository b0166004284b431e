"""Client of a running cluster, or of a local one that is started for it."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import dask
import dask.local
import dask.threaded
from dask.system import CPU_COUNT
from dask.utils import parse_bytes
from distributed import Client, LocalCluster, Security, WorkerPlugin
from distributed.core import rpc
from distributed.system import MEMORY_LIMIT

from daskgp.arrays.backend import check_device
from daskgp.checks import shown
from daskgp.errors import InputError, RunError
from daskgp.runtime import ahead, gpus, preload, versions
from daskgp.runtime.process import memory_is_kept
from daskgp.typing import Device

TLS = "tls://"
"""Beginning of the address of an encrypted scheduler."""
CERTIFICATES = {
    "distributed.comm.tls.ca-file": "DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
    "distributed.comm.tls.client.cert": "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT",
    "distributed.comm.tls.client.key": "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY",
}
"""Settings of Dask that name the files of a client, and their environment variables."""

UNTRUSTED = ", or its certificates and those of {} do not trust each other".format(
    ", ".join(CERTIFICATES.values())
)


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
    """Yield a Dask client for the duration of a ``with`` block.

    Parameters
    ----------
    address : str, optional
        Scheduler to connect to, such as ``"tcp://host:8786"``.  Without it a local cluster of
        processes is started, and closed again at the end of the block.
    n_workers : int, optional
        Worker processes of the local cluster, each with one thread; by default one per core,
        or one per GPU.
    memory_limit : str or int
        Memory of each local worker, such as ``"2GiB"``.
    timeout : float
        Seconds to wait for a scheduler at ``address``, and again for its first worker.
    log_level : int
        Least level of the messages of a local cluster on stderr.
    device : {"auto", "cpu", "gpu"}
        Device of the local cluster.  With "gpu" it has a worker for each GPU, which dask-cuda
        starts if there are several; "auto" does so where there are GPUs and no more workers are
        asked for.  With "gpu" the cluster at ``address`` must have workers with one.

    Raises
    ------
    InputError
        If no scheduler answers at ``address``, it has no worker within ``timeout``, or a memory
        limit cannot be read.
    RunError
        If the workers of a local cluster end while they start, as they do where a script lacks
        ``if __name__ == "__main__":``.
    DeviceError
        If there is no GPU for "gpu".
    SettingError
        For an unknown device.

    Examples
    --------
    >>> import daskgp
    >>> with daskgp.connect(n_workers=2) as client:  # doctest: +SKIP
    ...     model = daskgp.SGPR().fit(*daskgp.open_dataset("train.zarr"))
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
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(1)  # a worker that imports a script without a guard: who started it says so
    count = gpus.to_start(device, n_workers)
    with (
        nullcontext() if count else ahead.workers_start_from_it(),
        memory_is_kept(),
        preload.short_records(),
        dask.config.set({LOST_WORKER: NEVER}),
        _local_cluster(n_workers, memory_limit, log_level, count) as cluster,
        Client(cluster) as client,
    ):
        preload.dask_setup(cluster.scheduler)
        client.register_plugin(_IgnoreInterrupts())
        client.register_plugin(preload.ForgetNames())
        yield client


ENDED = "Nanny failed to start worker process"
"""Text of distributed about a worker that ended before it could say why."""


def _local_cluster(
    n_workers: int | None, memory_limit: str | int, log_level: int, with_gpus: int
) -> LocalCluster:
    limit = local_memory_limit(memory_limit)
    options: dict[str, Any] = {"dashboard_address": ":0", "silence_logs": log_level}
    try:
        if with_gpus:
            return gpus.start(with_gpus, None if memory_limit == "auto" else limit, **options)
        return LocalCluster(
            n_workers=n_workers or CPU_COUNT, threads_per_worker=1, memory_limit=limit, **options
        )
    except RuntimeError as error:
        if str(error.__cause__) != ENDED:
            raise
        raise RunError(
            "the workers of the local cluster ended while they started: each first imports the "
            'script, whose work belongs under `if __name__ == "__main__":`; if it is there, choose '
            "fewer workers, for which there may be memory"
        ) from None


def _refuse_unusable(address: str, timeout: float) -> None:
    """Raise InputError unless a scheduler with workers answers.

    The client that tries is not Dask's default: a failed one would remain the default.
    """
    _refuse_unprepared(address)
    try:
        with ThreadPoolExecutor(1) as apart:  # where no event loop runs
            apart.submit(asyncio.run, _ask(address, timeout)).result()
        with Client(address, timeout=timeout, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=timeout)
            return
    except TimeoutError as error:
        # distributed raises it for a scheduler that does not answer, too
        silent = "workers" not in str(error)
        cause: Exception = error
    except (OSError, ValueError) as error:
        silent, cause = True, error
    if silent:
        raise InputError(
            f"no Dask scheduler answers at {address}"
            f"{UNTRUSTED if address.startswith(TLS) else ''}: check the address or leave it out "
            "to start a local cluster"
        ) from cause
    raise InputError(
        f"the Dask scheduler at {address} has no workers after {timeout:g} s: start some with "
        f"`dask worker {address}`, or leave the address out"
    ) from cause


def _refuse_unprepared(address: str) -> None:
    """Raise InputError unless the configuration has what an address requires."""
    if not address.startswith(TLS):
        if dask.config.get("distributed.comm.require-encryption", None):
            raise InputError(
                f"the scheduler at {address} is not encrypted, and Dask's configuration requires "
                "that: use its tls:// address"
            )
        return
    for setting, variable in CERTIFICATES.items():
        path = dask.config.get(setting, None)
        if not path:
            raise InputError(f"the scheduler at {address} requires certificates: set {variable}")
        if not Path(path).is_file():
            raise InputError(f"{variable} names {path}, which is not a file: correct it")


async def _ask(address: str, timeout: float) -> None:
    """Ask a scheduler who it is; a client would wait for ever for one that keeps silent."""
    arguments = Security().get_connection_args("client")
    async with rpc(address, timeout=timeout, connection_args=arguments) as scheduler:
        await asyncio.wait_for(scheduler.identity(), timeout)


class _IgnoreInterrupts(WorkerPlugin):
    """Plugin by which workers ignore Ctrl-C in a terminal; they end silently with the client."""

    name = "daskgp-ignore-interrupts"

    def setup(self, worker: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


LOST_WORKER, NEVER = "distributed.deploy.lost-worker-timeout", "1000 days"
"""Setting and time after which a local cluster gives up a lost worker: each is restarted."""


def local_memory_limit(memory_limit: str | int = "auto") -> int:
    """Return the bytes of each one-thread worker of a local cluster; 0 for no limit."""
    if memory_limit == "auto":
        return int(MEMORY_LIMIT // CPU_COUNT)
    try:
        limit = parse_bytes(memory_limit)
    except ValueError as error:
        raise InputError(
            f"memory limit {shown(memory_limit)} cannot be read: write a size such as '2GiB'"
        ) from error
    return min(int(limit), int(MEMORY_LIMIT))
