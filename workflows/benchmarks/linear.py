"""Growth with the rows of a fit without training, of an update, and of predictions.

    python workflows/benchmarks/linear.py [--rows 100000,1000000,10000000] [--methods sgpr]
    python workflows/benchmarks/linear.py --rows 100000000 --methods sgpr

Rows of a sum of waves with a little noise, in chunks of a Zarr store on disk; hyper-parameters are
given, so that each method passes over the rows once for their scale and once for its sums.
``update`` adds a tenth as many rows of a second store; ``predict`` writes mean and standard
deviation at ``--places`` places of a third.  Worker processes have a thread each; memory is that of
the client and all workers.  LMA is in growth.py; steps on mini-batches do not depend on the rows.
"""

import shutil
import time
from typing import Any

import datasets
import harness
import numpy as np
import zarr

import daskgp

FEATURES, CHUNK, PLACES_CHUNK = 3, 65_536, 16_384
METHODS = ("sgpr", "ssgp", "experts")
PLAIN = {"noise_variance": 0.02, "optimizer": None, "progress": False}


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "inducing", method=options.methods, rows=sorted(options.rows))


def measure(key: dict, options: harness.Options) -> dict:
    rows, m, folder = key["rows"], key["inducing"], options.folder
    sizes = {"train": rows, "new": max(rows // 10, 1), "places": options.places}
    for seed, (name, number) in enumerate(sizes.items()):
        path, chunk = folder / f"{name}-{number}.zarr", PLACES_CHUNK if name == "places" else CHUNK
        if not path.exists():
            starts = range(0, number, chunk)
            parts = ((min(chunk, number - s), FEATURES, (seed + 1) * 10**9 + s) for s in starts)
            drawn = (datasets.sines(*part) for part in parts)
            datasets.write(path, drawn, number, chunk)
        sizes[name] = daskgp.open_dataset(str(path))
    shutil.rmtree(folder / "out.zarr", ignore_errors=True)
    places = str(folder / f"places-{options.places}.zarr")
    with daskgp.connect(n_workers=options.threads, memory_limit="2GiB"):
        model, seconds = made(key["method"], m), {}
        began = time.perf_counter()
        model.fit(*sizes["train"])
        seconds["fit_s"], began = time.perf_counter() - began, time.perf_counter()
        model.update(*sizes["new"])
        seconds["update_s"], began = time.perf_counter() - began, time.perf_counter()
        model.predict_store(places, str(folder / "out.zarr"))
        seconds["predict_s"] = time.perf_counter() - began
    mean, y = zarr.open_array(folder / "out.zarr", path="mean")[:], np.asarray(sizes["places"][1])
    rmse = float(daskgp.metrics.rmse(y, mean))
    return {**seconds, "rate": rows / seconds["fit_s"], "rmse": rmse}


def made(method: str, number: int) -> Any:
    kernel = daskgp.kernels.Matern52(lengthscale=(0.92,) * FEATURES)
    if method == "ssgp":
        return daskgp.SparseSpectrumGP(kernel, n_spectral=number // 2, **PLAIN)
    sizes = {"n_inducing": number, "inducing": "random"}
    if method == "experts":
        return daskgp.ExpertsGP(kernel, n_experts=20, **sizes, **PLAIN)
    return daskgp.SGPR(kernel, **sizes, **PLAIN)


def table(records: list[dict], options: harness.Options) -> str:
    """Return all runs, then the slopes of the logarithms."""
    timed, lines = ("fit_s", "update_s", "predict_s"), []
    for (method,), runs in harness.grouped(records, "method").items():
        slopes = ", ".join(f"{name} {harness.slope(runs, 'rows', name)}" for name in timed[:2])
        lines.append(f"log-log slopes of {method}: {slopes}")
    shown = harness.report(records, "method rows", "fit_s rate update_s predict_s rmse peak_mib")
    return "\n".join([shown, "", *lines])


harness.command(
    globals(),
    methods=METHODS,
    rows=([100_000, 1_000_000, 10_000_000], [2_000, 4_000]),
    inducing=(128, 16),
    places=(1_000_000, 200),
)
