"""Show what scheduler and messages cost with tens to a thousand workers.

    python workflows/benchmarks/many_workers.py --out results.jsonl [--workers 64,256]
    python workflows/benchmarks/many_workers.py --out results.jsonl --table

A real scheduler and real workers over TCP run a pass of this package, ``map_reduce`` with its tree
sum: each task sleeps as long as the work on its chunk takes, and returns sums of m inducing inputs,
m² numbers, which the reduction moves between workers.  Workers of one thread share the event loops
of a few processes on this machine, so that all of their messages are handled by its cores alone: a
cluster has a core for each, and its scheduler more time.

``efficiency`` is the time of the work alone, on all workers, over that of the pass; ``beside`` what
is left per task.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import harness
import numpy as np
from distributed import Client, LocalCluster, Worker

from daskgp.runtime.executor import Executor, map_reduce

PROCESSES, PER_WORKER = 2, 4
"""Processes that hold the workers, and tasks per worker in a pass."""


def keys(options: harness.Options) -> harness.Keys:
    yield from harness.runs(options, "inducing", workers=options.workers, chunk_s=options.chunk_s)


def work(seconds: float, inducing: int, piece: int) -> np.ndarray:
    """Return sums after so many seconds."""
    time.sleep(seconds)
    return np.full((inducing, inducing), float(piece))


async def serve(address: str, number: int) -> None:
    """Run so many workers in this process until the scheduler ends."""
    own = {"nthreads": 1, "memory_limit": None, "dashboard": False, "heartbeat_interval": "30s"}
    workers = [Worker(address, **own) for _ in range(number)]
    for start in range(0, number, 16):
        await asyncio.gather(*workers[start : start + 16])
    await asyncio.gather(*(worker.finished() for worker in workers))


@contextmanager
def cluster(number: int) -> Iterator[Client]:
    """Start a scheduler, and so many workers in a few other processes."""
    with (
        LocalCluster(n_workers=0, processes=True, dashboard_address=None) as own,
        Client(own) as client,
    ):
        parts = [len(part) for part in np.array_split(np.arange(number), PROCESSES)]
        words = [sys.executable, __file__, "--serve", own.scheduler_address]
        quiet = {"DISTRIBUTED__WORKER__PROFILE__ENABLED": "false", "LOGGING__DISTRIBUTED": "error"}
        environment = os.environ | {f"DASK_{name}": value for name, value in quiet.items()}
        running = [subprocess.Popen([*words, str(part)], env=environment) for part in parts if part]
        try:
            client.wait_for_workers(number, timeout=300)
            yield client
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()


def measure(key: dict, options: harness.Options) -> dict:
    number, seconds, m = key["workers"], key["chunk_s"], key["inducing"]
    tasks = PER_WORKER * number
    with cluster(number):
        executor = Executor.current(show=False)
        task = partial(work, 0.0, 2)
        map_reduce(task, np.add, range(number), executor, "warm")
        began = time.perf_counter()
        total = map_reduce(partial(work, seconds, m), np.add, range(tasks), executor, "pass")
        took = time.perf_counter() - began
    assert total[0, 0] == tasks * (tasks - 1) / 2
    alone = PER_WORKER * seconds
    return {
        "tasks": tasks,
        "pass_s": took,
        "efficiency": alone / took,
        "beside_ms": 1e3 * (took - alone) / tasks,
        "moved_gb": 8e-9 * m * m * tasks,
    }


table = harness.reporting(
    "workers chunk_s", "tasks pass_s efficiency beside_ms moved_gb processor_s peak_mib"
)

if sys.argv[1:2] == ["--serve"]:
    asyncio.run(serve(sys.argv[2], int(sys.argv[3])))
else:
    harness.command(
        globals(),
        workers=([64, 256, 1_024], [4]),
        chunk_s=([1.0, 10.0], [0.05]),
        inducing=(512, 16),
    )
