"""Show if memory grows over many fits on one cluster, and what more workers bring.

    python workflows/benchmarks/soak.py [--cycles 200] [--parts local,apart,workers]

A cycle fits SGPR and predicts a store, again and again by the same client, scheduler and workers:
``local``, those of a local cluster, whose scheduler lives in the client, then ``apart``, processes
of their own, started as the guide to clusters says.  The table has the resident memory of each
process after the tenth cycle, every fifty and at the end, and the growth in percent.  ``workers``:
the seconds of a short fit of SGPR over TCP on one, two and four workers.
"""

from __future__ import annotations

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
WORKERS, TASKS = (1, 2, 4), 32


def keys(options: harness.Options) -> Iterator[dict]:
    for part in options.parts:
        if part == "workers":
            for number in WORKERS:
                yield {"part": part, "workers": number, "rows": options.scaling_rows}
        else:
            sizes = {"rows": options.rows, "cycles": options.cycles}
            yield {"part": part, "workers": options.threads, **sizes}


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
    """Return memory and seconds of the cycles, or the fewest seconds of a fit."""
    rows, folder = key["rows"], options.folder
    chunk = 2_000 if "cycles" in key else max(1, rows // TASKS)
    path = folder / f"soak-{rows}-{chunk}.zarr"
    if not path.exists():
        datasets.write_drawn(path, datasets.sines, rows, 3, chunk)
    if key["part"] == "workers":
        with apart(folder, key["workers"]):
            return {"fit_s": harness.best_of(options.repeats, lambda: fit(path))[0]}
    cluster = local(key["workers"]) if key["part"] == "local" else apart(folder, key["workers"])
    with cluster as processes:
        return cycles(path, folder, key["cycles"], processes)


def fit(path: Path) -> None:
    """Evaluate the bound and its gradient on all rows, from inputs drawn at random."""
    model = daskgp.SGPR(n_inducing=512, inducing="random", max_iter=2, progress=False)
    model.fit(*daskgp.open_dataset(str(path)))


def cycles(path: Path, folder: Path, number: int, processes: dict[str, int]) -> dict:
    """Return the resident MiB of all processes after some cycles and after all."""
    looks, began, output = {}, time.perf_counter(), folder / "soak-predictions.zarr"
    for i in range(1, number + 1):
        model = daskgp.SGPR(n_inducing=64, max_iter=3, progress=False)
        model.fit(*daskgp.open_dataset(str(path)))
        model.predict_store(str(path), str(output))
        shutil.rmtree(output)
        if i in (min(SETTLED, number - 1), number) or i % EVERY == 0:
            gc.collect()
            sizes = {n: psutil.Process(pid).memory_info().rss for n, pid in processes.items()}
            looks[i] = {name: size / 2**20 for name, size in sizes.items()}
    return {"mib": looks, "step_s": (time.perf_counter() - began) / number}


def table(records: list[dict], options: harness.Options) -> str:
    """Return the memory of each process and its growth, and the seconds by workers."""
    memory, speed = [], []
    for r in records:
        looks = list(r.get("mib", {}).items())
        for name in looks[0][1] if looks else ():
            first, last = looks[0][1][name], looks[-1][1][name]
            seen = ", ".join(f"{sizes[name]:.1f} ({cycle})" for cycle, sizes in looks)
            memory.append([r["key"]["part"], name, seen, f"{100 * (last / first - 1):+.2f} %"])
        if r["key"]["part"] == "workers" and "fit_s" in r:
            speed.append([str(r["key"]["workers"]), f"{r['fit_s']:.2f}"])
    grown = harness.markdown(["cluster", "process", "MiB (after cycles)", "growth"], memory)
    return f"{grown}\n\n{harness.markdown(['workers', 'seconds'], speed)}"


harness.command(
    globals(),
    limit=None,
    parts=("local", "apart", "workers"),
    cycles=(200, 3),
    rows=(20_000, 4_000),
    scaling_rows=(200_000, 3_200),
    repeats=(3, 1),
)
