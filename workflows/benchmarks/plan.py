"""Show what ``plan`` says beside what a fit then takes, for every estimator.

    python workflows/benchmarks/plan.py [--cases sgpr,lma-float32] [--scale 0.2] [--time]

Each case runs in processes of its own: a client that fits and predicts on a local cluster of one
worker with one thread.  Memory is the largest resident size of each process as the operating
system counts it (``VmHWM``: this needs Linux).  ``--time`` adds the seconds of an iteration, which
are of use on a quiet machine only.  ``--scale`` multiplies rows and inducing inputs.
"""

import shutil
from pathlib import Path
from typing import Any

import datasets
import harness

import daskgp
from daskgp.estimators import GaussianProcess

FEATURES, CHUNK, PLACES = 4, 8_192, 4_096
FEW, FLOAT32 = {"inducing": "random"}, {"dtype": "float32"}
SGPR, LOCAL = {"n_inducing": 1_280, **FEW}, {"n_support": 256, "support": "random"}
RBCM = {"aggregation": "rbcm"}
CASES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "exact": (3_072, "ExactGP", {}),
    "sgpr": (4_096, "SGPR", SGPR),
    "sgpr-float32": (4_096, "SGPR", SGPR | FLOAT32),
    "sgpr-large-blocks": (600_000, "SGPR", {"n_inducing": 32, "block_rows": 600_000}),
    "lma": (4_096, "LMA", LOCAL | {"train_blocks": 4}),
    "lma-float32": (4_096, "LMA", LOCAL | {"train_blocks": 4} | FLOAT32),
    "pic": (4_096, "PIC", LOCAL | {"train_blocks": 1, "block_rows": 2_048}),
    "vecchia": (16_384, "VecchiaGP", {"n_support": 256}),
    "lma-rows": (12_288, "LMA", LOCAL | {"train_with": "vecchia"}),
    "experts": (8_192, "ExpertsGP", {"n_inducing": 640, "n_experts": 4} | FEW),
    "experts-rbcm": (8_192, "ExpertsGP", {"n_inducing": 640, "n_experts": 8} | FEW | RBCM),
    "experts-exact": (6_144, "ExpertsGP", {"expert": "exact", "n_experts": 3} | RBCM),
    "opticom": (4_096, "OptiComGP", {"level": 5}),
    "cagp": (6_144, "CaGP", {"n_actions": 768}),
    "cagp-random": (6_144, "CaGP", {"n_actions": 384, "actions": "random"}),
    "cagp-support": (12_288, "CaGP", {"n_actions": 768, "support": 2}),
    "cggp": (12_288, "CGGP", {"max_iter": 3}),
    "decoupled": (
        16_384,
        "DecoupledGP",
        {"n_mean": 2_048, "n_covariance": 768, "validation": None, "n_added": 512},
    ),
    "svgp": (16_384, "SVGP", SGPR),
    "svgp-float32": (16_384, "SVGP", SGPR | FLOAT32),
    "ssgp": (4_096, "SparseSpectrumGP", {"n_spectral": 768}),
}
"""Rows, estimator and settings."""
ITERATIONS = {"decoupled": 6, "svgp": 3, "svgp-float32": 3}
"""Iterations of training, for methods whose steps are short or whose bases grow; 2 for others."""
PARTS = ("worker", "predicting", "client", "disk")


def keys(options: harness.Options) -> harness.Keys:
    for case in options.cases:
        yield {"case": case, "scale": options.scale, "timed": options.time}


def estimator_of(case: str, store: str, scale: float) -> GaussianProcess:
    """Return the estimator of a case, whose sizes are multiplied by ``scale``."""
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


def peak() -> int:
    """Return the most bytes of this process since it started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def iteration_seconds(estimator: GaussianProcess, whole: float) -> float:
    """Return the seconds of an evaluation, or of a step of a fit without training."""
    if isinstance(estimator, daskgp.CGGP):
        return whole / (estimator.n_iter_ + 1)
    return harness.evaluation_seconds(estimator)


def measure(key: dict, options: harness.Options) -> dict:
    """Return bytes and seconds that are planned and that are taken, here and in the worker."""
    case, scale, folder = key["case"], key["scale"], options.folder / f"plan-{key['case']}"
    shutil.rmtree(folder, ignore_errors=True)
    rows = max(1_024, int(CASES[case][0] * scale))
    for part, number in (("train", rows), ("test", min(rows, PLACES))):
        datasets.write_drawn(folder / f"{part}.zarr", datasets.sines, number, FEATURES, CHUNK)
    model, test = folder / "model.zarr", str(folder / "test.zarr")
    with daskgp.connect(n_workers=1, memory_limit="16GiB") as client:
        X, y = daskgp.open_dataset(str(folder / "train.zarr"))
        estimator = estimator_of(case, str(folder), scale)
        plan = estimator.plan(X, y)
        whole = harness.seconds_of(lambda: estimator.fit(X, y))
        taken = {"worker": max(client.run(peak).values()), "client": peak()}
        if case == "cggp":  # which predicts means alone
            estimator.predict(daskgp.open_dataset(test)[0]).compute()
        else:
            estimator.predict_store(test, str(folder / "predictions.zarr"))
        taken["predicting"] = max(client.run(peak).values())
        estimator.save(str(model))
        planned = {"time": estimator.plan(X, y, measure=True).seconds} if key["timed"] else {}
    taken["disk"] = sum(path.stat().st_size for path in model.rglob("*") if path.is_file())
    taken["time"] = iteration_seconds(estimator, whole)
    most = max(plan.bytes_per_worker, plan.bytes_predict)
    planned |= {"worker": plan.bytes_per_worker, "predicting": most}
    planned |= {"client": plan.bytes_client, "disk": plan.bytes_on_disk}
    shutil.rmtree(folder)
    return {"n": plan.rows, "planned": planned, "taken": taken}


def table(records: list[dict], options: harness.Options) -> str:
    def pair(record: dict, name: str, unit: float) -> str:
        if name not in record["planned"]:
            return "–"
        planned, taken = (record[part][name] / unit for part in ("planned", "taken"))
        return f"{planned:,.3g} : {taken:,.3g} = {planned / taken:.2f}"

    lines = [
        [r["key"]["case"], f"{r['n']:,}", *(pair(r, p, 1e6) for p in PARTS), pair(r, "time", 1)]
        for r in records
        if "planned" in r
    ]
    return harness.markdown(["", "rows", *(f"{part}, MB" for part in PARTS), "seconds"], lines)


harness.command(globals(), cases=CASES, scale=(1.0, 0.05), time=False)
