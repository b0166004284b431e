"""How time and memory grow with the rows, and what Dask costs.

    python workflows/benchmarks/scale.py [--rows 100000 --rows 1000000 --rows 10000000]

For each number of rows: a dataset in Zarr on disk, an embedded cluster, one value and gradient of
SGPR's bound (two rounds).  Then, at one size, the value round on one worker beside the same loop
in one process without Dask.  Each measurement runs in processes of its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import daskgp
from daskgp import data, kernels
from daskgp.data import partition
from daskgp.fit import rounds
from daskgp.models.scaling import identity
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Theta
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread

FEATURES = 3
CHUNK = 32_768


def write(path: Path, rows: int) -> None:
    """A seeded dataset, written chunk by chunk."""
    names = tuple(f"x{j}" for j in range(FEATURES))
    with data.dataset_writer(str(path), names, ("y",), CHUNK) as writer:
        for start in range(0, rows, CHUNK):
            rng = np.random.default_rng(start)
            X = rng.uniform(-2, 2, (min(CHUNK, rows - start), FEATURES))
            writer.append(X, np.sin(3 * X).sum(axis=1) + 0.1 * rng.standard_normal(len(X)))


def stage_of(path: Path, executor: Executor) -> tuple[rounds.Rounds, Theta]:
    """Rounds over a dataset store, and hyper-parameters."""
    X, y = daskgp.open_dataset(str(path))
    rows = data.rows_of(X, y, "", shared_memory=True)
    windows = partition.alone(partition.blocks(len(rows), rows.chunks))
    return rounds.Rounds(SGPR(), rows, windows, identity(FEATURES, 1), executor), _theta()


def _theta(inducing: int = 512) -> Theta:
    Z = np.random.default_rng(0).uniform(-2, 2, (inducing, FEATURES))
    return Theta(kernels.Matern32(lengthscale=(1.0,) * FEATURES), 0.05, Z)


def peak() -> float:
    """Peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(function: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def measure_rounds(path: Path, workers: int, gradient: bool) -> dict[str, float]:
    """Seconds of the rounds on a cluster, and the peak memory of all its processes."""
    with daskgp.connect(n_workers=workers) as client:
        stage, theta = stage_of(path, Executor(client, show=False))
        work = stage.value_and_gradient if gradient else stage.total
        # the first blocks warm up imports and BLAS
        warm = rounds.Rounds(
            stage.model, stage.rows, stage.windows[:2], stage.scaling, stage.executor
        )
        warm.value_and_gradient(theta)
        seconds = timed(lambda: work(theta))
        return {"seconds": seconds, "peak_mib": peak() + sum(client.run(peak).values())}


def measure_loop(path: Path) -> dict[str, float]:
    """Seconds of the value round as a plain loop in this process, one BLAS thread."""
    stage, theta = stage_of(path, Executor(None, show=False))
    model = stage.model

    def loop() -> None:
        with single_blas_thread():
            prepared, total = model.prepare(theta), None
            for span in stage.spans:
                block = stage.scaling.block(*stage.rows.read(*span))
                part = model.local(prepared, block)
                total = part if total is None else model.combine(total, part)

    return {"seconds": timed(loop), "peak_mib": peak()}


def apart(*arguments: str) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise click.ClickException(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.splitlines()[-1])


def report(sizes: list[int], found: list[dict[str, float]]) -> Table:
    """Seconds and memory against rows."""
    table = Table(title="Value and gradient of SGPR's bound from Zarr, m = 512")
    for column in ("rows", "seconds", "rows/s", "peak MiB"):
        table.add_column(column, justify="right")
    for n, r in zip(sizes, found, strict=True):
        row = f"{n:,}", f"{r['seconds']:.2f}", f"{n / r['seconds']:,.0f}", f"{r['peak_mib']:.0f}"
        table.add_row(*row)
    return table


@click.command()
@click.option("--rows", multiple=True, default=(100_000, 1_000_000, 10_000_000))
@click.option("--workers", default=2, show_default=True)
@click.option("--overhead-rows", default=1_000_000, show_default=True)
@click.option("--here", hidden=True)
@click.option("--path", type=Path, hidden=True)
def main(
    rows: tuple[int, ...], workers: int, overhead_rows: int, here: str | None, path: Path | None
) -> None:
    """Measure and print the tables."""
    if here and path:
        single = here == "round"
        found = (
            measure_loop(path)
            if here == "loop"
            else measure_rounds(path, 1 if single else workers, gradient=not single)
        )
        print(json.dumps(found))
        return
    console, found, sizes = Console(width=100), [], sorted(rows)
    with tempfile.TemporaryDirectory() as folder:
        for n in sorted({*sizes, overhead_rows}):
            write(Path(folder, f"{n}.zarr"), n)
        for n in sizes:
            arguments = (f"--path={folder}/{n}.zarr", f"--workers={workers}", "--here=scale")
            found.append(apart(*arguments))
        console.print(report(sizes, found))
        seconds, memory = ([r[key] for r in found] for key in ("seconds", "peak_mib"))
        if len(sizes) > 1:
            slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
            print(
                f"log-log slope of time {slope:.3f}; memory from the last but one size to the "
                f"last {memory[-1] / memory[-2]:.2f}x"
            )
        store = f"--path={folder}/{overhead_rows}.zarr"
        loops, on_dask = (
            [apart(store, f"--here={h}")["seconds"] for _ in range(3)] for h in ("loop", "round")
        )
        ratio = min(on_dask) / min(loops)
        print(
            f"one value round of {overhead_rows:,} rows on one worker {min(on_dask):.2f} s, the "
            f"same loop without Dask {min(loops):.2f} s: ratio {ratio:.3f}"
        )


if __name__ == "__main__":
    main()
