"""Whether memory grows over many fits on one cluster, and what more workers bring.

    python workflows/benchmarks/soak.py [--cycles 200] [--workers 2] [--only memory|scaling]

A cycle fits SGPR and predicts a store, again and again by the same client, scheduler and workers,
which are processes of their own.  Their resident memory is printed after the tenth cycle and at
the end, a line of JSON each, with its growth in percent.  Then the value and gradient of SGPR's
bound on one, two and four workers, and how many times as fast as one they are.
"""

from __future__ import annotations

import gc
import json
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
from daskgp.flow import io

FEATURES, CHUNK = 3, 2_000
SETTLED = 10
"""Cycles after which memory should grow no more."""
WORKERS = (1, 2, 4)


def write(path: Path, rows: int, chunk: int) -> str:
    """A seeded dataset; its path as text."""
    names = [f"x{j}" for j in range(FEATURES)]
    with io.dataset_writer(str(path), names, ("y",), chunk) as writer:
        for start in range(0, rows, chunk):
            rng = np.random.default_rng(start)
            X = rng.uniform(-2, 2, (min(chunk, rows - start), FEATURES))
            writer.append(X, np.sin(3 * X).sum(axis=1) + 0.1 * rng.standard_normal(len(X)))
    return str(path)


@contextmanager
def scheduler(folder: Path) -> Iterator[tuple[str, int]]:
    """Address of a scheduler in a process of its own, and the number of the process."""
    note = folder / "scheduler.json"
    words = ("-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with subprocess.Popen(
        [sys.executable, *words, "--scheduler-file", str(note)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            with Client(scheduler_file=str(note), timeout=60) as client:
                yield client.scheduler.address, process.pid
        finally:
            process.terminate()


@contextmanager
def cluster(folder: Path, number: int) -> Iterator[dict[str, list[int]]]:
    """A client with so many workers; the processes of each kind."""
    with scheduler(folder) as (address, pid):
        words = ("-m", "dask", "worker", address, "--nthreads", "1", "--no-dashboard")
        with subprocess.Popen(
            [sys.executable, *words, "--nworkers", str(number)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as started:
            try:
                with daskgp.connect(address, timeout=60) as client:
                    client.wait_for_workers(number, timeout=60)
                    workers = sorted(client.run(_pid).values())
                    yield {"client": [psutil.Process().pid], "scheduler": [pid], "workers": workers}
            finally:
                started.terminate()


def _pid() -> int:
    return psutil.Process().pid


def resident(processes: dict[str, list[int]]) -> dict[str, float]:
    """Resident MiB of the processes of each kind."""
    gc.collect()
    return {
        kind: round(sum(psutil.Process(pid).memory_info().rss for pid in pids) / 2**20, 1)
        for kind, pids in processes.items()
    }


def cycle(data: str, folder: Path) -> None:
    """A fit and a prediction."""
    model = daskgp.SGPR(n_inducing=64, max_iter=3, progress=False)
    model.fit(*daskgp.open_dataset(data))
    output = folder / "predictions.zarr"
    model.predict_store(data, str(output))
    shutil.rmtree(output)


def soak(folder: Path, cycles: int, number: int, rows: int) -> None:
    """Print the memory of all processes after some cycles and after all."""
    data, settled = write(folder / "data.zarr", rows, CHUNK), {}
    with cluster(folder, number) as processes:
        began = time.perf_counter()
        for i in range(1, cycles + 1):
            cycle(data, folder)
            if i == min(SETTLED, cycles - 1):
                settled = resident(processes)
                print(json.dumps({"cycle": i, **settled}), flush=True)
        seconds, found = time.perf_counter() - began, resident(processes)
    growth = {kind: round(100 * (mib / settled[kind] - 1), 2) for kind, mib in found.items()}
    last = {"cycle": cycles, **found, "growth_percent": growth}
    print(json.dumps({**last, "seconds_per_cycle": round(seconds / cycles, 3)}), flush=True)


def scaling(folder: Path, rows: int) -> None:
    """Print the seconds of a value and gradient by the number of workers."""
    data = write(folder / "large.zarr", rows, max(1, rows // 32))
    seconds = {}
    for number in WORKERS:
        with cluster(folder, number):
            fit_once(data)  # imports, BLAS and the file cache
            began = time.perf_counter()
            fit_once(data)
            seconds[number] = time.perf_counter() - began
    for number, taken in seconds.items():
        speedup = round(seconds[WORKERS[0]] / taken, 2)
        print(json.dumps({"workers": number, "seconds": round(taken, 2), "speedup": speedup}))


def fit_once(data: str) -> None:
    """Evaluations of the bound and its gradient on all rows, from inputs drawn at random."""
    model = daskgp.SGPR(n_inducing=512, inducing="random", max_iter=2, progress=False)
    model.fit(*daskgp.open_dataset(data))


@click.command(help=__doc__)
@click.option("--cycles", default=200, type=click.IntRange(min=2), show_default=True)
@click.option("--workers", default=2, type=click.IntRange(min=1), show_default=True)
@click.option("--rows", default=20_000, show_default=True, help="Rows of a cycle.")
@click.option("--scaling-rows", default=400_000, show_default=True)
@click.option("--only", type=click.Choice(["memory", "scaling"]))
def main(cycles: int, workers: int, rows: int, scaling_rows: int, only: str | None) -> None:
    with tempfile.TemporaryDirectory() as place:
        if only != "scaling":
            soak(Path(place), cycles, workers, rows)
        if only != "memory":
            scaling(Path(place), scaling_rows)


if __name__ == "__main__":
    main()
