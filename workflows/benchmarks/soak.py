"""Show if memory grows over many fits on one cluster.

    python workflows/benchmarks/soak.py [--cycles 200] [--parts local,apart]

A cycle fits SGPR and predicts a store, again and again by the same client, scheduler and workers:
``local``, those of a local cluster, whose scheduler lives in the client, then ``apart``, processes
of their own, started as the guide to clusters says.  The table has the resident memory of each
process after the tenth cycle, every fifty and at the end, and the growth in percent.
"""

import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import datasets
import harness
import psutil
from distributed import Client

import daskgp
from daskgp.runtime import preload

SETTLED, EVERY = 10, 50
"""Cycles after which memory should grow no more, and those between looks at it."""


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "rows cycles", part=options.parts, workers=[options.threads])


@contextmanager
def local(number: int) -> Iterator[dict[str, int]]:
    """Start a local cluster; yield its processes by name, client and scheduler in one."""
    with daskgp.connect(n_workers=number) as client:
        yield {"client": psutil.Process().pid, **workers_of(client)}


@contextmanager
def apart(folder: Path, number: int) -> Iterator[dict[str, int]]:
    """Start scheduler and workers over TCP; yield their processes and the client's by name."""
    note = folder / "scheduler.json"
    note.unlink(missing_ok=True)  # that of an earlier scheduler
    own = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(note))
    lasts = ("--preload", preload.__name__)
    with started("scheduler", *own, *lasts) as pid:
        with Client(scheduler_file=str(note), timeout=60, set_as_default=False) as client:
            address = client.scheduler.address
        many = ("--nthreads", "1", "--nworkers", str(number), "--no-dashboard", *lasts)
        with started("worker", address, *many), daskgp.connect(address, timeout=60) as client:
            client.wait_for_workers(number, timeout=60)
            yield {"client": psutil.Process().pid, "scheduler": pid, **workers_of(client)}


@contextmanager
def started(*words: str) -> Iterator[int]:
    """Run a process of the dask command that keeps short records; yield its id."""
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, **preload.environment()}
    with subprocess.Popen([sys.executable, "-m", "dask", *words], **silent, env=environment) as own:
        try:
            yield own.pid
        finally:
            own.terminate()


def workers_of(client: Client) -> dict[str, int]:
    """Return the processes of the workers by name."""
    return {f"worker {i}": pid for i, pid in enumerate(sorted(client.run(os.getpid).values()))}


def measure(key: dict, options: harness.Options) -> dict:
    folder, number = options.folder, key["workers"]
    path = datasets.store(folder, datasets.sines, key["rows"], 3, 2_000)
    with local(number) if key["part"] == "local" else apart(folder, number) as processes:
        return cycles(path, folder, key["cycles"], processes)


def cycles(path: str, folder: Path, number: int, processes: dict[str, int]) -> dict:
    """Return the resident MiB of all processes after some cycles and after all."""
    looks, began, output = {}, time.perf_counter(), folder / "soak-predictions.zarr"
    for i in range(1, number + 1):
        model = daskgp.SGPR(n_inducing=64, max_iter=3, progress=False)
        model.fit(*daskgp.open_dataset(path))
        model.predict_store(path, str(output))
        shutil.rmtree(output)
        if i in (min(SETTLED, number - 1), number) or i % EVERY == 0:
            gc.collect()
            sizes = {n: psutil.Process(pid).memory_info().rss for n, pid in processes.items()}
            looks[i] = {name: size / 2**20 for name, size in sizes.items()}
    return {"mib": looks, "step_s": (time.perf_counter() - began) / number}


def table(records: list[dict], options: harness.Options) -> str:
    lines = []
    for r in (r for r in records if r.get("mib")):
        looks = list(r["mib"].items())
        for name, last in looks[-1][1].items():
            seen = ", ".join(f"{sizes[name]:.1f} ({cycle})" for cycle, sizes in looks)
            growth = 100 * (last / looks[0][1][name] - 1)
            lines.append([r["key"]["part"], name, seen, f"{growth:+.2f} %"])
    return harness.markdown(["cluster", "process", "MiB (after cycles)", "growth"], lines)


harness.command(
    globals(), limit=None, parts=("local", "apart"), cycles=(200, 3), rows=(20_000, 4_000)
)
