"""GPU workers: which exist, what tasks ask for to run there, and a local cluster of them.

A worker says with the resource ``GPU`` that it has one.  The task itself finds out which device it
computes on, because annotations of a graph do not survive its optimisation.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Mapping
from typing import Any

from distributed import Client, LocalCluster
from distributed.system import MEMORY_LIMIT

from daskgp.arrays import backend
from daskgp.errors import DeviceError, InputError
from daskgp.runtime import recovery
from daskgp.runtime.forked import in_children
from daskgp.typing import Device

logger: logging.Logger = logging.getLogger("daskgp")

RESOURCE = "GPU"
"""Resource that ``dask worker --resources GPU=1`` declares."""
DASK_CUDA = "dask_cuda"

in_children(backend.lose_gpus)


def claim(client: Client) -> dict[str, float]:
    """Return what tasks must ask for to run on a GPU: nothing where every worker has one.

    Raises
    ------
    DeviceError
        If a worker that declares a GPU has none, or any worker where none declares one.
    """

    def ask() -> tuple[list[str], dict[str, str]]:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        declared = [address for address, worker in workers.items() if declares(worker)]
        return declared, dict(client.run(backend.why_no_gpu, workers=declared or None))

    declared, reasons = recovery.until_done(client, ask, (OSError, *recovery.LOST))
    lacking = {address: reason for address, reason in reasons.items() if reason}
    if lacking:
        first, reason = next(iter(lacking.items()))
        names = f"{first} and {len(lacking) - 1} others" if len(lacking) > 1 else first
        remedy = f"start the workers that have a GPU with --resources {RESOURCE}=1"
        if declared:
            remedy = f"correct that there, start them without --resources {RESOURCE}=1"
        raise DeviceError(
            f"device='gpu' is not available on {len(lacking)} of {len(reasons)} workers, {names}: "
            f"{reason}; {remedy}, or ask for device='auto' or 'cpu'"
        )
    return {RESOURCE: 1} if declared else {}


def declares(worker: Mapping[str, Any]) -> bool:
    """Return whether a worker, as the scheduler describes it, has the resource."""
    return float((worker.get("resources") or {}).get(RESOURCE, 0)) >= 1


def to_start(device: Device, n_workers: int | None) -> int:
    """Return how many workers of a local cluster get a GPU each; 0 for a cluster of cores.

    Nothing is computed here, so that this process takes no memory of the GPUs.
    """
    if device == "cpu":
        return 0
    count, reason = backend.count_gpus()
    if device == "gpu" and not count:
        raise DeviceError(f"device='gpu' is not available: {reason}; {backend.NO_GPU}")
    if device == "auto" and (not count or (n_workers or 0) > count):
        return 0
    if (n_workers or 0) > count:
        raise InputError(
            f"{n_workers} workers for {count} GPUs: choose {count} at most, one each, or "
            "device='cpu'"
        )
    if count > 1 and n_workers != 1 and importlib.util.find_spec(DASK_CUDA) is None:
        remedy = "pip install 'daskgp[gpu]' for a worker each, or choose one worker for the first"
        if device == "gpu":
            raise DeviceError(f"{count} GPUs need dask-cuda, which is not installed: {remedy}")
        logger.warning("only the first of %d GPUs is used: %s", count, remedy)
        return 1
    return n_workers or count


def start(count: int, memory_limit: int | None, **options: Any) -> LocalCluster:
    """Start a local cluster of ``count`` workers with a GPU and a thread each."""
    limit = int(MEMORY_LIMIT // count) if memory_limit is None else memory_limit
    settings = {
        "n_workers": count,
        "threads_per_worker": 1,
        "memory_limit": limit,
        "resources": {RESOURCE: 1},
        **options,
    }
    if count == 1:  # its worker takes the first GPU that it sees
        return LocalCluster(**settings)
    try:
        dask_cuda = importlib.import_module("dask_cuda")
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(
            f"{count} GPUs need dask-cuda, which cannot be imported ({error}): "
            "pip install 'daskgp[gpu]', or choose one worker for the first"
        ) from error
    cluster: LocalCluster = dask_cuda.LocalCUDACluster(**settings)
    return cluster
