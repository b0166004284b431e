"""What ``plan`` says against what a fit then takes, for every estimator.

    python workflows/benchmarks/plan.py [--cases "sgpr;lma, float32"] [--scale 0.2] [--time]

Each case runs in processes of its own: a client that fits and predicts on a local cluster of one
worker with one thread.  Memory is the largest resident size of each process as the operating
system counts it (``VmHWM``: this needs Linux).  A line of JSON a case, then a table.  ``--time``
adds the seconds of an iteration, which are of use on a quiet machine only.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import daskgp
from daskgp import data

FEATURES, CHUNK, PLACES = 4, 8_192, 4_096
FEW = {"inducing": "random"}
CASES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "exact": (3_072, "ExactGP", {}),
    "sgpr": (4_096, "SGPR", {"n_inducing": 1_280, **FEW}),
    "sgpr, float32": (4_096, "SGPR", {"n_inducing": 1_280, "dtype": "float32", **FEW}),
    "sgpr, large blocks": (600_000, "SGPR", {"n_inducing": 32, "block_rows": 600_000}),
    "lma": (4_096, "LMA", {"n_support": 256, "support": "random", "train_blocks": 4}),
    "lma, float32": (
        4_096,
        "LMA",
        {"n_support": 256, "support": "random", "train_blocks": 4, "dtype": "float32"},
    ),
    "pic": (
        4_096,
        "PIC",
        {"block_rows": 2_048, "n_support": 256, "support": "random", "train_blocks": 1},
    ),
    "experts": (8_192, "ExpertsGP", {"n_inducing": 640, "n_experts": 4, **FEW}),
    "experts, rbcm": (
        8_192,
        "ExpertsGP",
        {"n_inducing": 640, "n_experts": 8, "aggregation": "rbcm", **FEW},
    ),
    "experts, exact": (
        6_144,
        "ExpertsGP",
        {"expert": "exact", "aggregation": "rbcm", "n_experts": 3},
    ),
    "opticom": (4_096, "OptiComGP", {"level": 5}),
    "cagp": (6_144, "CaGP", {"n_actions": 768}),
    "cagp, random": (6_144, "CaGP", {"n_actions": 384, "actions": "random"}),
    "cagp, support": (12_288, "CaGP", {"n_actions": 768, "support": 2}),
    "cggp": (12_288, "CGGP", {"max_iter": 3}),
    "decoupled": (
        16_384,
        "DecoupledGP",
        {"n_mean": 2_048, "n_covariance": 768, "validation": None, "n_added": 512},
    ),
    "svgp": (16_384, "SVGP", {"n_inducing": 1_280, **FEW}),
    "svgp, float32": (16_384, "SVGP", {"n_inducing": 1_280, "dtype": "float32", **FEW}),
    "ssgp": (4_096, "SparseSpectrumGP", {"n_spectral": 768}),
}
"""Rows, estimator and settings."""
ITERATIONS = {"decoupled": 6, "svgp": 3, "svgp, float32": 3}
"""Of training, for methods whose steps are short or whose bases grow; 2 for others."""


def peak() -> int:
    """Bytes of this process at most, since it started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def write(path: Path, rows: int) -> None:
    """A seeded dataset."""
    names = tuple(f"x{j}" for j in range(FEATURES))
    with data.dataset_writer(str(path), names, ("y",), CHUNK) as writer:
        for start in range(0, rows, CHUNK):
            rng = np.random.default_rng(start)
            X = rng.uniform(-2, 2, (min(CHUNK, rows - start), FEATURES))
            writer.append(X, np.sin(2 * X).sum(axis=1) + 0.1 * rng.standard_normal(len(X)))


def estimator_of(case: str, store: str, scale: float) -> daskgp.GaussianProcess:
    """The estimator of a case, whose sizes are multiplied by ``scale``."""
    _, name, settings = CASES[case]
    kind = getattr(daskgp, name)
    sized = {
        key: max(8, int(value * scale)) if key.startswith("n_") and key != "n_experts" else value
        for key, value in settings.items()
    }
    more = {"store": store, "progress": False}
    if "max_iter" not in settings and "max_iter" in kind().get_params():
        more["max_iter"] = ITERATIONS.get(case, 2)
    return kind("matern32" if name == "CGGP" else None, **sized, **more)


def size_of(folder: str) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def seconds_of(estimator: daskgp.GaussianProcess, whole: float) -> float:
    """Seconds of an evaluation, the first ones left out, or of a step of a fit without training."""
    if isinstance(estimator, daskgp.CGGP):
        return whole / (estimator.n_iter_ + 1)
    first, last = estimator.history_[0], estimator.history_[-1]
    return (last["seconds"] - first["seconds"]) / (last["evaluations"] - first["evaluations"])


def predict(estimator: daskgp.GaussianProcess, folder: str) -> None:
    """Predict the places of a store: means and variances where there are any."""
    if isinstance(estimator, daskgp.CGGP):
        estimator.predict(data.open_inputs(f"{folder}/test.zarr")).compute()
        return
    estimator.predict_store(f"{folder}/test.zarr", f"{folder}/predictions.zarr")


def measure(case: str, folder: str, scale: float, timed: bool) -> dict[str, Any]:
    """The plan of a case, and what it takes in this process and its worker."""
    with daskgp.connect(n_workers=1, memory_limit="16GiB") as client:
        X, y = daskgp.open_dataset(f"{folder}/train.zarr")
        estimator = estimator_of(case, folder, scale)
        plan = estimator.plan(X, y)
        began = time.perf_counter()
        estimator.fit(X, y)
        seconds = seconds_of(estimator, time.perf_counter() - began)
        found = {"worker": max(client.run(peak).values()), "client": peak()}
        predict(estimator, folder)
        found["predicting"] = max(client.run(peak).values())
        estimator.save(f"{folder}/model.zarr")
        planned = estimator.plan(X, y, measure=True).seconds if timed else None
    most = max(plan.bytes_per_worker, plan.bytes_predict)
    return {
        "case": case,
        "rows": plan.rows,
        "worker": (plan.bytes_per_worker, found["worker"]),
        "predicting": (most, found["predicting"]),
        "client": (plan.bytes_client, found["client"]),
        "disk": (plan.bytes_on_disk, size_of(f"{folder}/model.zarr")),
        "seconds": (planned, seconds),
    }


def apart(case: str, scale: float, timed: bool) -> dict[str, Any]:
    """A case in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        rows = max(1_024, int(CASES[case][0] * scale))
        write(Path(folder, "train.zarr"), rows)
        write(Path(folder, "test.zarr"), min(rows, PLACES))
        words = [sys.executable, __file__, "--here", folder, "--cases", case, "--scale", str(scale)]
        words += ["--time"] if timed else []
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{case}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def report(found: list[Mapping[str, Any]]) -> Table:
    """Planned and measured, side by side."""
    table = Table(title="planned : measured, MB")
    for column in ("case", "rows", "worker", "predicting", "client", "disk", "seconds"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for row in found:
        cells = [_pair(*row[what]) for what in ("worker", "predicting", "client", "disk")]
        planned, seconds = row["seconds"]
        cells.append("–" if planned is None else f"{planned:.3g} : {seconds:.3g}")
        table.add_row(row["case"], f"{row['rows']:,}", *cells)
    return table


def _pair(planned: float, measured: float) -> str:
    return f"{planned / 1e6:,.3g} : {measured / 1e6:,.3g} = {planned / measured:.2f}"


def _cases(ctx: click.Context, option: click.Parameter, text: str) -> list[str]:
    for name in text.split(";"):
        if name not in CASES:
            raise click.BadParameter(f"{name!r} is none of {'; '.join(CASES)}")
    return text.split(";")


@click.command()
@click.option("--cases", default=";".join(CASES), callback=_cases, help="Names, with ; between.")
@click.option("--scale", default=1.0, show_default=True, help="Of rows and inducing inputs.")
@click.option("--time", "timed", is_flag=True, help="Also plan and measure seconds.")
@click.option("--here", hidden=True)
def main(cases: list[str], scale: float, timed: bool, here: str | None) -> None:
    """Measure and print."""
    if here:
        print(json.dumps(measure(cases[0], here, scale, timed)))
        return
    found = []
    for case in cases:
        found.append(apart(case, scale, timed))
        print(json.dumps(found[-1]), flush=True)
    Console(width=150).print(report(found))


if __name__ == "__main__":
    main()
