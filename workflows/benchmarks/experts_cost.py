"""Cost of sparse experts beside SGPR: a fit and predictions of a store.

    python workflows/benchmarks/experts_cost.py [--rows 1000000]

Hyper-parameters and inducing inputs are given.  The floor is the operations of a pass over rows at
the rate of a matrix product on one thread, times the number of workers: for a row and m inducing
inputs, m² for whitening and m² for the symmetric product of the fit, m² and 2 m² for the variance
of a prediction.
"""

import shutil
from typing import Any

import datasets
import harness
import numpy as np
from threadpoolctl import threadpool_limits

import daskgp
from daskgp import kernels

FEATURES = 8
MODELS = ("experts", "SGPR")


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "rows inducing", turn=range(options.repeats), model=MODELS)


def measure(key: dict, options: harness.Options) -> dict:
    rows, m = key["rows"], key["inducing"]
    path = datasets.store(options.folder, datasets.sines, rows, FEATURES, options.chunk)
    settings: dict[str, Any] = {
        "kernel": kernels.RBF((2.3,) * FEATURES, ard=True),
        "noise_variance": 0.01,
        "inducing": np.random.default_rng(1).uniform(-2, 2, (m, FEATURES)),
        "optimizer": None,
        "progress": False,
    }
    own = {"n_experts": options.experts, "partition": "chunks"}
    experts = key["model"] == "experts"
    model = daskgp.ExpertsGP(**own, **settings) if experts else daskgp.SGPR(**settings)
    with threadpool_limits(1):
        floor = rows * m**2 / harness.product_rate(1_024) / options.threads
    output = options.folder / "experts-predictions.zarr"

    def predict() -> None:
        shutil.rmtree(output, ignore_errors=True)
        model.predict_store(path, str(output))

    with daskgp.connect(n_workers=options.threads):
        X, y = daskgp.open_dataset(path)
        few = slice(0, min(rows, 2 * options.chunk))
        model.fit(X[few], y[few])  # imports and BLAS of the workers
        fit_s = harness.seconds_of(lambda: model.fit(X, y))
        predict_s = harness.seconds_of(predict)
    floors = {"fit_floor_s": 2 * floor, "predict_floor_s": 3 * floor}
    return {"fit_s": fit_s, "predict_s": predict_s, **floors}


def table(records: list[dict], options: harness.Options) -> str:
    """Return the medians of the turns."""
    rows = harness.medians(records, "model", "rows", "inducing")
    return harness.report(rows, "model rows", "fit_s predict_s fit_floor_s predict_floor_s runs")


harness.command(
    globals(),
    rows=(1_000_000, 4_000),
    chunk=(10_000, 500),
    experts=(100, 4),
    inducing=(128, 16),
    repeats=(3, 1),
)
