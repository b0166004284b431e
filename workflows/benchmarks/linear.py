"""Growth with the rows of a fit without training, of an update, and of predictions.

    python workflows/benchmarks/linear.py [--rows 100000,1000000,10000000] [--methods sgpr]
    python workflows/benchmarks/linear.py --rows 100000000 --methods sgpr
    python workflows/benchmarks/linear.py --methods vecchia,vecchia-trained

Rows of a sum of waves with a little noise, in chunks of a Zarr store on disk; hyper-parameters are
given, so that each method passes over the rows once for their scale and once for its sums.
``vecchia-trained`` learns them by its defaults.  ``update`` adds a tenth as many rows of a second
store; ``predict`` writes mean and standard deviation at ``--places`` places of a third.  Worker
processes have a thread each; memory is that of the client and all workers.  The second table has
the processor seconds of a fit by its rounds of tasks, of the client, which schedules them and works
between them, and of the workers.  VecchiaGP gets its places in an order that keeps near ones
together.  LMA is in growth.py; steps on mini-batches do not depend on the rows.
"""

import shutil
import time
from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np
import zarr

import daskgp

FEATURES, CHUNK, PLACES_CHUNK = 3, 65_536, 16_384
METHODS = ("sgpr", "ssgp", "experts", "vecchia", "vecchia-trained")
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
    if key["method"].startswith("vecchia"):
        places = sorted_places(places)
    with daskgp.connect(n_workers=options.threads, memory_limit="2GiB"):
        model, seconds = made(key["method"], m), {}
        with harness.rounds() as stages:
            seconds["fit_s"] = harness.seconds_of(lambda: model.fit(*sizes["train"]))
        began = time.perf_counter()
        model.update(*sizes["new"])
        seconds["update_s"], began = time.perf_counter() - began, time.perf_counter()
        model.predict_store(places, str(folder / "out.zarr"))
        seconds["predict_s"] = time.perf_counter() - began
    mean = zarr.open_array(folder / "out.zarr", path="mean")[:]
    y = np.asarray(daskgp.open_dataset(places)[1])
    rmse = float(daskgp.metrics.rmse(y, mean))
    return {**seconds, "rate": rows / seconds["fit_s"], "rmse": rmse, "stages": stages}


def sorted_places(path: str) -> str:
    """Return a store of the same places in which near ones are together."""
    near = path.replace("places", "near")
    if not Path(near).exists():
        daskgp.prepare(path, near, "hilbert", 4_096, progress=False)
    return near


def made(method: str, number: int) -> Any:
    if method == "vecchia-trained":
        return daskgp.VecchiaGP("matern52(ard=true)", progress=False)
    kernel = daskgp.kernels.Matern52(lengthscale=(0.92,) * FEATURES)
    if method == "vecchia":
        return daskgp.VecchiaGP(kernel, **PLAIN)
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
    numbers = "fit_s rate update_s predict_s rmse processor_s largest_mib peak_mib"
    shown = harness.report(records, "method rows", numbers)
    return "\n".join([shown, "", *lines, "", by_stage(records)])


def by_stage(records: list[dict]) -> str:
    """Return a line for each run with the processor seconds of the rounds of its fit."""
    rows = []
    for record in records:
        stages = record.get("stages", {}).items()
        told = (f"{name} {client:.1f} + {workers:.1f}" for name, (client, workers) in stages)
        rows.append((record["key"]["method"], f"{record['key']['rows']:,}", ", ".join(told)))
    heads = ("method", "rows", "processor seconds of the fit by rounds, client + workers")
    return harness.markdown(heads, rows)


harness.command(
    globals(),
    methods=METHODS,
    rows=([100_000, 1_000_000, 10_000_000], [2_000, 4_000]),
    inducing=(128, 16),
    places=(1_000_000, 200),
)
