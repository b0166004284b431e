"""What LMA costs: a block against its operations, and a whole run as the rows grow.

    python workflows/benchmarks/lma.py [--only blocks] [--only scale]

``blocks``: seconds of the summary of one block given those near it, and of its gradient, on one
BLAS thread and in time of the processor.  Operations are those that the equations of the method
ask for, kernels apart; rates are their number over the seconds, kernels included, beside those of a
matrix product and of LAPACK's Cholesky of the window's order measured in the same run.  The floor
is the time of these operations at these two rates.

``scale``: a rough field in random order, written chunk by chunk to Zarr, then daskgp's command
line with fixed hyper-parameters, prepare, fit and predict of a tenth as many places; seconds of
whole commands, and the largest sum of resident memory of client and workers in any of them.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import common
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.linalg import lapack

from daskgp import data, kernels
from daskgp.data.blocks import hilbert
from daskgp.models.markov.lma import LMA
from daskgp.models.values import Block, Theta
from daskgp.runtime.process import single_blas_thread

CHUNK = 65_536
NOISE = 0.1
PLACES_CHUNK = 4_096


# -- one block -------------------------------------------------------------------------------


def operations(b: int, c: int, m: int) -> tuple[float, float]:
    """Operations of a summary and of its gradient, beside a Cholesky factor in each.

    A block of b rows and c near it, m support inputs, one target; symmetric products are counted
    once.
    """
    w, r = b + c, m + 1
    window = w * m**2 + w**2 * m + w**2 * r  # A; A A'; L_R^-1 [A, y]
    gram = b * r**2
    solves = c**2 * (b + r) + b**2 * r + b**3  # P and U; C^-1 [E, e]; C^-1
    through = 2 * b * r**2 + b**2 * r + 2 * b**2 * c + 2 * b * c * r  # [E, e]_bar, C_bar and Y
    features = 2 * b * c * m + 4 * b * w * m + 2 * b * c * m  # E; Y A and Y' E; H' of both
    kernel = 2 * b * c * w + 3 * w * m**2  # R_bar; the cotangents of K(X, S) and K(S, S)
    return float(window + gram), float(window + solves + through + features + kernel)


def best(function: Callable[[], object], repeats: int) -> float:
    """Fewest seconds of the processor of a few calls after a first."""
    function()
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        function()
        seconds.append(time.process_time() - began)
    return min(seconds)


def rates(order: int, repeats: int) -> tuple[float, float]:
    """Operations a second of a matrix product and of LAPACK's Cholesky."""
    A = np.random.default_rng(0).standard_normal((order, order))
    product = 2 * order**3 / best(lambda: A @ A, repeats)
    K = np.asfortranarray(A @ A.T + order * np.eye(order))
    copies = [K.copy(order="F") for _ in range(repeats + 1)]  # each is overwritten
    seconds = best(lambda: lapack.dpotrf(copies.pop(), lower=1, clean=0, overwrite_a=1), repeats)
    return product, order**3 / 3 / seconds


def measure_block(rows: int, order: int, support: int, repeats: int) -> dict:
    """Seconds, operations and rates of one block of so many rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, ((order + 1) * rows, 3))
    y = np.sin(6 * X).sum(axis=1, keepdims=True) + rng.standard_normal((len(X), 1))
    *near, own = (Block(X[i : i + rows], y[i : i + rows]) for i in range(0, len(X), rows))
    theta = Theta(kernels.Matern32(lengthscale=(0.3,) * 3), NOISE, rng.uniform(0, 1, (support, 3)))
    model = LMA(order)
    prepared = model.prepare(theta)
    cotangent = model.objective(prepared, model.local(prepared, own, near)).cotangent

    def pulled() -> None:
        K, pull = theta.kernel.pullback(X)
        K_S, pull_S = theta.kernel.pullback(X, theta.inputs)
        pull(K)
        pull_S(K_S)

    seconds = {
        "local": best(lambda: model.local(prepared, own, near), repeats),
        "gradient": best(lambda: model.local_vjp(prepared, own, cotangent, near), repeats),
    }
    kernel = {
        "local": best(lambda: (theta.kernel(X), theta.kernel(X, theta.inputs)), repeats),
        "gradient": best(pulled, repeats),
    }
    product, cholesky = rates(len(X), repeats)
    counted = operations(rows, order * rows, support)
    found = {"block_rows": rows, "window_rows": len(X), "gemm": product, "cholesky": cholesky}
    for (name, taken), number in zip(seconds.items(), counted, strict=True):
        factor = len(X) ** 3 / 3
        found[name] = {
            "seconds": taken,
            "kernel_s": kernel[name],
            "operations": factor + number,
            "of_gemm": (factor + number) / taken / product,
            "of_cholesky": (factor + number) / taken / cholesky,
            "floor": (factor / cholesky + number / product) / taken,
        }
    return found


def report_blocks(results: list[dict], order: int, support: int) -> Table:
    """Seconds and rates against the rows of a block."""
    table = Table(title=f"One block, Markov order {order}, {support} support inputs, one thread")
    headings = "rows", "window", "GEMM", "Cholesky", "", "ms", "kernel ms", "GFLOP", "GFLOP/s"
    for heading in (*headings, "/ GEMM", "/ Cholesky", "floor / time"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in results:
        for name in ("local", "gradient"):
            one = row[name]
            table.add_row(
                f"{row['block_rows']:,}",
                f"{row['window_rows']:,}",
                f"{row['gemm'] / 1e9:.1f}",
                f"{row['cholesky'] / 1e9:.1f}",
                name,
                f"{1e3 * one['seconds']:.1f}",
                f"{1e3 * one['kernel_s']:.1f}",
                f"{one['operations'] / 1e9:.2f}",
                f"{one['operations'] / one['seconds'] / 1e9:.1f}",
                *(f"{one[key]:.2f}" for key in ("of_gemm", "of_cholesky", "floor")),
            )
    return table


# -- a whole run -----------------------------------------------------------------------------


def field(X: np.ndarray, seed: int) -> np.ndarray:
    """Noisy values of a sum of waves of many lengths."""
    waves = np.random.default_rng(0)
    lengths = np.geomspace(0.01, 1, 24)
    turns = waves.standard_normal((24, 2)) / lengths[:, None]
    values = np.sin(2 * np.pi * X @ turns.T + waves.uniform(0, 2 * np.pi, 24)) @ np.sqrt(lengths)
    return values + np.sqrt(NOISE) * np.random.default_rng(seed).standard_normal(len(X))


def write(folder: Path, rows: int) -> None:
    """The field at random places, and a tenth as many in an order that keeps neighbours together.

    Places with the same blocks near them share a factor, which is made once in each chunk.
    """
    with data.dataset_writer(str(folder / "train.zarr"), ("a", "b"), ("y",), CHUNK) as writer:
        for start in range(0, rows, CHUNK):
            X = np.random.default_rng(start + 1).uniform(0, 1, (min(CHUNK, rows - start), 2))
            writer.append(X, field(X, start + 2))
    places = np.random.default_rng(1).uniform(0, 1, (max(1, rows // 10), 2))
    places = places[np.argsort(hilbert.hilbert_keys(places.T, 31))]
    with data.dataset_writer(str(folder / "places.zarr"), ("a", "b"), (), PLACES_CHUNK) as writer:
        writer.append(places)


def measure_scale(
    rows: int, block_rows: int, order: int, support: int, cluster: tuple[str, ...]
) -> dict:
    """Seconds and memory of the commands on a cluster with some options."""
    settings = {
        "kernel": "matern32(lengthscale=0.2)",
        "optimizer": "none",
        "n_support": min(support, rows // 2),
        "markov_order": order,
        "noise_variance": NOISE,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    blocks = ("--order", "hilbert", "--block-rows", str(block_rows))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder, rows)
        commands = (
            ("prepare", "train.zarr", "blocks.zarr", *blocks),
            ("fit", "blocks.zarr", "model.zarr", "--model", "lma", *words),
            ("predict", "model.zarr", "places.zarr", "out.zarr"),
        )
        ran = {c[0]: common.daskgp(folder, *c, *cluster) for c in commands}
    seconds = {name: part.seconds for name, part in ran.items()}
    peaks = {f"{name}_mib": part.peak_mib for name, part in ran.items()}
    return {"rows": rows, **seconds, **peaks, "peak_mib": max(peaks.values())}


def report_scale(results: list[dict], title: str) -> Table:
    """Seconds and memory against rows."""
    table = Table(title=title)
    for heading in ("rows", "prepare s", "fit s", "predict s", "fit rows/s", "peak MiB"):
        table.add_column(heading, justify="right")
    for row in results:
        table.add_row(
            f"{row['rows']:,}",
            *(f"{row[name]:.1f}" for name in ("prepare", "fit", "predict")),
            f"{row['rows'] / row['fit']:,.0f}",
            f"{row['peak_mib']:,.0f}",
        )
    return table


def slopes(results: list[dict]) -> str:
    """How seconds and memory grow."""
    sizes = np.log([row["rows"] for row in results])
    found = (
        f"{name} {np.polyfit(sizes, np.log([row[name] for row in results]), 1)[0]:.3f}"
        for name in ("fit", "predict")
    )
    peaks = [row["peak_mib"] for row in results]
    return (
        f"log-log slopes of time: {', '.join(found)}; largest memory {max(peaks) / min(peaks):.2f} "
        "times the smallest"
    )


@click.command()
@click.option("--only", multiple=True, type=click.Choice(["blocks", "scale"]))
@click.option("--blocks", multiple=True, default=(128, 256, 512, 1024), show_default=True)
@click.option("--markov-order", default=2, show_default=True)
@click.option("--support", default=256, show_default=True)
@click.option("--repeats", default=5, show_default=True)
@click.option("--rows", multiple=True, default=(250_000, 1_000_000, 4_000_000), show_default=True)
@click.option("--block-rows", default=256, show_default=True, help="Rows of a block in scale.")
@click.option("--workers", default=2, show_default=True)
@click.option("--memory-limit", default="2GiB", show_default=True, help="Of each worker.")
def main(
    only: tuple[str, ...],
    blocks: tuple[int, ...],
    markov_order: int,
    support: int,
    repeats: int,
    rows: tuple[int, ...],
    block_rows: int,
    workers: int,
    memory_limit: str,
) -> None:
    """Measure and print the tables."""
    console, found = Console(width=140), []
    if not only or "blocks" in only:
        with single_blas_thread():
            for size in sorted(blocks):
                found.append(measure_block(size, markov_order, support, repeats))
                print(json.dumps(found[-1]), flush=True)
        console.print(report_blocks(found, markov_order, support))
    if not only or "scale" in only:
        found, cluster = [], ("--workers", str(workers), "--memory-limit", memory_limit)
        for n in sorted(rows):
            found.append(measure_scale(n, block_rows, markov_order, support, cluster))
            print(json.dumps(found[-1]), flush=True)
        title = f"Blocks of {block_rows}, Markov order {markov_order}, {support} support inputs"
        console.print(report_scale(found, title))
        if len(found) > 1:
            print(slopes(found))


if __name__ == "__main__":
    main()
