"""Show what scheduler and messages cost with tens to a thousand workers.

    python workflows/benchmarks/many_workers.py --out results.jsonl [--workers 64,256]
    python workflows/benchmarks/many_workers.py --out results.jsonl --table

A real scheduler and real workers over TCP run a pass of this package, ``map_reduce`` with its tree
sum; each task sleeps as long as the work on its chunk takes.  Workers of one thread share the event
loops of a few processes on this machine, so that all of their messages are handled by its cores
alone: a cluster has a core for each.  What they return is therefore small; its transfers between
workers are counted, and ``moved GB`` is that many sums of m inducing inputs, m (m + 1) numbers.

``efficiency`` is the time of the work alone, on all workers, over that of the pass.  ``scheduler``
is the processor time of the process of scheduler and client per task, less what it takes without
tasks.  The tasks per second that it leaves room for bound a cluster: to work 90 % of the time, W
workers need tasks of 10 W times as long at least, the ``shortest task``.
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

PROCESSES, PER_WORKER, IDLE = 2, 4, 4.0
"""Processes that hold the workers, tasks per worker in a pass, and seconds of none before it."""
SWITCH = 2e-4
"""Seconds after which a thread lets others run: hundreds that wake up need not wait 5 ms each."""
CALM = {
    "DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "60s",
    "DISTRIBUTED__ADMIN__TICK__INTERVAL": "5s",
    "DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "60s",
    "DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "LOGGING__DISTRIBUTED": "error",
}
"""Intervals of what workers do beside their tasks, which each does on its own machine elsewhere."""


def keys(options: harness.Options) -> harness.Keys:
    yield from harness.runs(options, "inducing", workers=options.workers, chunk_s=options.chunk_s)


def work(seconds: float, piece: int) -> np.ndarray:
    """Return a sum after so many seconds."""
    time.sleep(seconds)
    return np.array([float(piece)])


async def serve(address: str, number: int) -> None:
    """Run so many workers in this process until the scheduler ends."""
    sys.setswitchinterval(SWITCH)
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
        environment = os.environ | {f"DASK_{name}": value for name, value in CALM.items()}
        running = [subprocess.Popen([*words, str(part)], env=environment) for part in parts if part]
        try:
            client.wait_for_workers(number, timeout=300)
            yield client
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()


def received(dask_worker: Worker) -> int:
    """Return the number of results that a worker was sent by others."""
    return sum(len(entry["keys"]) for entry in dask_worker.transfer_incoming_log)


def measure(key: dict, options: harness.Options) -> dict:
    number, seconds, m = key["workers"], key["chunk_s"], key["inducing"]
    tasks = PER_WORKER * number
    with cluster(number) as client:
        executor = Executor.current(show=False)
        map_reduce(partial(work, 0.0), np.add, range(number), executor, "warm")
        before, spent = sum(client.run(received).values()), time.process_time()
        time.sleep(IDLE)
        idle = (time.process_time() - spent) / IDLE
        began, spent = time.perf_counter(), time.process_time()
        total = map_reduce(partial(work, seconds), np.add, range(tasks), executor, "pass")
        took = time.perf_counter() - began
        spent = max(time.process_time() - spent - idle * took, 0.0) / tasks
        transfers = sum(client.run(received).values()) - before
    assert total[0] == tasks * (tasks - 1) / 2
    alone = PER_WORKER * seconds
    return {
        "tasks": tasks,
        "pass_s": took,
        "efficiency": alone / took,
        "scheduler_ms": 1e3 * spent,
        "idle": idle,
        "shortest_task_s": 10 * number * spent,
        "transfers": transfers,
        "moved_gb": 8e-9 * m * (m + 1) * transfers,
    }


numbers = "tasks pass_s efficiency scheduler_ms shortest_task_s transfers moved_gb"
table = harness.reporting("workers chunk_s", numbers)

if sys.argv[1:2] == ["--serve"]:
    asyncio.run(serve(sys.argv[2], int(sys.argv[3])))
else:
    harness.command(
        globals(),
        workers=([64, 256, 1_024], [4]),
        chunk_s=([1.0, 10.0], [0.05]),
        inducing=(512, 16),
    )
