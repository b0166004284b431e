"""Cost of sparse experts beside SGPR: a fit and predictions of a store.

    python workflows/benchmarks/experts_cost.py [--rows 1000000]

Hyper-parameters and inducing inputs are given.  The floor is the operations of a pass over rows at
the rate of a matrix product on one thread, times the number of workers: for a row and m inducing
inputs, m² for whitening and m² for the symmetric product of the fit, m² and 2 m² for the variance
of a prediction.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import datasets
import harness
import numpy as np
from threadpoolctl import threadpool_limits

import daskgp
from daskgp import kernels

FEATURES = 8
MODELS = ("experts", "SGPR")
WORK = {"fit": 2, "predict": 3}
"""Operations in units of m² per row."""


def keys(options: harness.Options) -> Iterator[dict]:
    for turn in range(options.repeats):
        for model in MODELS:
            yield {"model": model, "rows": options.rows, "inducing": options.inducing, "turn": turn}


def measure(key: dict, options: harness.Options) -> dict:
    """Return the seconds of a fit and of a prediction, and the rate of a matrix product."""
    rows, path = key["rows"], options.folder / f"experts-{key['rows']}-{options.chunk}.zarr"
    if not path.exists():
        datasets.write_drawn(path, datasets.sines, rows, FEATURES, options.chunk)
    settings: dict[str, Any] = {
        "kernel": kernels.RBF((2.0,) * FEATURES, 1.0, ard=True),
        "noise_variance": 0.01,
        "inducing": np.random.default_rng(1).uniform(-2, 2, (key["inducing"], FEATURES)),
        "optimizer": None,
        "progress": False,
    }
    own = {"n_experts": options.experts, "partition": "chunks"}
    experts = key["model"] == "experts"
    model = daskgp.ExpertsGP(**own, **settings) if experts else daskgp.SGPR(**settings)
    with threadpool_limits(1):
        rate = harness.product_rate(1_024)
    output = options.folder / "experts-predictions.zarr"

    def predict() -> None:
        shutil.rmtree(output, ignore_errors=True)
        model.predict_store(str(path), str(output))

    with daskgp.connect(n_workers=options.threads):
        X, y = daskgp.open_dataset(str(path))
        few = slice(0, min(rows, 2 * options.chunk))
        model.fit(X[few], y[few])  # imports and BLAS of the workers
        fit_s = harness.seconds_of(lambda: model.fit(X, y))
        predict_s = harness.seconds_of(predict)
    return {"fit_s": fit_s, "predict_s": predict_s, "rate": rate}


def table(records: list[dict], options: harness.Options) -> str:
    """Return medians, their ratios and the floor."""
    runs = {r["key"]["model"]: r for r in harness.medians(records, "model", "rows", "inducing")}
    if not all("rate" in runs.get(model, {}) for model in MODELS):
        return harness.report(records, "model turn", "fit_s predict_s")
    ours, theirs = (runs[model] for model in MODELS)
    lines = []
    for work, each in WORK.items():
        seconds, other = ours[f"{work}_s"], theirs[f"{work}_s"]
        operations = each * ours["key"]["rows"] * ours["key"]["inducing"] ** 2
        floor = operations / (ours["rate"] * ours["threads"])
        cells = (seconds, other, seconds / other, floor, floor / seconds)
        lines.append([work, *(f"{cell:.2f}" for cell in cells)])
    return harness.markdown(["", "experts s", "SGPR s", "ratio", "floor s", "floor / time"], lines)


harness.command(
    globals(),
    rows=(1_000_000, 4_000),
    chunk=(10_000, 500),
    experts=(100, 4),
    inducing=(128, 16),
    repeats=(3, 1),
)
