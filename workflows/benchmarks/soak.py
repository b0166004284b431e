"""Whether memory grows over many fits on one cluster, and what more workers bring.

    python workflows/benchmarks/soak.py [--cycles 200] [--workers 2] [--only local|apart|scaling]

A cycle fits SGPR and predicts a store, again and again by the same client, scheduler and workers:
those of a local cluster, whose scheduler lives in the client, then processes of their own, started
as the guide to clusters says.  The resident memory of each process is printed after the tenth
cycle, every fifty and at the end, a line of JSON each, with its growth in percent.  Then the
seconds of a short fit of SGPR over TCP on one, two and four workers, and how many times as fast as
one they are.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np
import psutil
from distributed import Client

import daskgp
from daskgp.data import dataset_writer
from daskgp.runtime import preload

FEATURES, CHUNK = 3, 2_000
SETTLED = 10
"""Cycles after which memory should grow no more."""
EVERY = 50
"""Cycles after which it is printed on the way."""
WORKERS, TASKS = (1, 2, 4), 32


def write(path: Path, rows: int, chunk: int) -> str:
    """A seeded dataset; its path as text."""
    names = [f"x{j}" for j in range(FEATURES)]
    with dataset_writer(str(path), names, ("y",), chunk) as writer:
        for start in range(0, rows, chunk):
            rng = np.random.default_rng(start)
            X = rng.uniform(-2, 2, (min(chunk, rows - start), FEATURES))
            writer.append(X, np.sin(3 * X).sum(axis=1) + 0.1 * rng.standard_normal(len(X)))
    return str(path)


@contextmanager
def local(number: int) -> Iterator[dict[str, int]]:
    """A local cluster; its processes by name, the first of them client and scheduler in one."""
    with daskgp.connect(n_workers=number) as client:
        yield {"client": psutil.Process().pid, **workers_of(client)}


@contextmanager
def apart(folder: Path, number: int) -> Iterator[dict[str, int]]:
    """Client, scheduler and workers over TCP; their processes by name."""
    note = folder / "scheduler.json"
    note.unlink(missing_ok=True)  # that of an earlier scheduler
    own = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(note))
    lasts = ("--preload", "daskgp.runtime.preload")
    with started("scheduler", *own, *lasts) as pid:
        with Client(scheduler_file=str(note), timeout=60, set_as_default=False) as client:
            address = client.scheduler.address
        many = ("--nthreads", "1", "--nworkers", str(number), "--no-dashboard", *lasts)
        with started("worker", address, *many), daskgp.connect(address, timeout=60) as client:
            client.wait_for_workers(number, timeout=60)
            yield {"client": psutil.Process().pid, "scheduler": pid, **workers_of(client)}


@contextmanager
def started(*words: str) -> Iterator[int]:
    """A process of the dask command that keeps short records."""
    with subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **preload.environment()},
    ) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


def workers_of(client: Client) -> dict[str, int]:
    """Processes of the workers."""
    return {f"worker {i}": pid for i, pid in enumerate(sorted(client.run(os.getpid).values()))}


def resident(processes: dict[str, int]) -> dict[str, float]:
    """Resident MiB of each process."""
    gc.collect()
    return {
        name: round(psutil.Process(pid).memory_info().rss / 2**20, 1)
        for name, pid in processes.items()
    }


def cycle(data: str, folder: Path) -> None:
    """A fit and a prediction."""
    model = daskgp.SGPR(n_inducing=64, max_iter=3, progress=False)
    model.fit(*daskgp.open_dataset(data))
    output = folder / "predictions.zarr"
    model.predict_store(data, str(output))
    shutil.rmtree(output)


def soak(folder: Path, cycles: int, processes: dict[str, int], data: str, name: str) -> None:
    """Print the memory of all processes after some cycles and after all."""
    settled: dict[str, float] = {}
    began = time.perf_counter()
    for i in range(1, cycles + 1):
        cycle(data, folder)
        if i == min(SETTLED, cycles - 1) or (i % EVERY == 0 and i < cycles):
            found = resident(processes)
            settled = settled or found
            print(json.dumps({"cluster": name, "cycle": i, "mib": found}), flush=True)
    seconds, found = time.perf_counter() - began, resident(processes)
    growth = {kind: round(100 * (mib / settled[kind] - 1), 2) for kind, mib in found.items()}
    last = {"cluster": name, "cycle": cycles, "mib": found, "growth_percent": growth}
    print(json.dumps({**last, "seconds_per_cycle": round(seconds / cycles, 3)}), flush=True)


def scaling(folder: Path, rows: int, repeats: int) -> None:
    """Print the seconds of a short fit by the number of workers, the least of some repeats."""
    data = write(folder / "large.zarr", rows, max(1, rows // TASKS))
    seconds: dict[int, float] = {}
    for number in WORKERS:
        with apart(folder, number):
            fit_once(data)  # imports, BLAS and the file cache
            seconds[number] = min(timed(data) for _ in range(repeats))
        speedup = round(seconds[WORKERS[0]] / seconds[number], 2)
        said = {"workers": number, "cores": os.cpu_count(), "seconds": round(seconds[number], 2)}
        print(json.dumps({**said, "speedup": speedup}), flush=True)


def timed(data: str) -> float:
    """Seconds of a fit."""
    began = time.perf_counter()
    fit_once(data)
    return time.perf_counter() - began


def fit_once(data: str) -> None:
    """Evaluations of the bound and its gradient on all rows, from inputs drawn at random."""
    model = daskgp.SGPR(n_inducing=512, inducing="random", max_iter=2, progress=False)
    model.fit(*daskgp.open_dataset(data))


@click.command(help=__doc__)
@click.option("--cycles", default=200, type=click.IntRange(min=2), show_default=True)
@click.option("--workers", default=2, type=click.IntRange(min=1), show_default=True)
@click.option("--rows", default=20_000, show_default=True, help="Rows of a cycle.")
@click.option("--scaling-rows", default=200_000, show_default=True)
@click.option("--repeats", default=3, type=click.IntRange(min=1), show_default=True)
@click.option("--only", type=click.Choice(["local", "apart", "scaling"]))
def main(
    cycles: int, workers: int, rows: int, scaling_rows: int, repeats: int, only: str | None
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        data = write(folder / "data.zarr", rows, CHUNK)
        if only in (None, "local"):
            with local(workers) as processes:
                soak(folder, cycles, processes, data, "local")
        if only in (None, "apart"):
            with apart(folder, workers) as processes:
                soak(folder, cycles, processes, data, "apart")
        if only in (None, "scaling"):
            scaling(folder, scaling_rows, repeats)


if __name__ == "__main__":
    main()
