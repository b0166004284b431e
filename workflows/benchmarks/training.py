"""Show how far from the optimum the default training ends.

    [DASKGP_DATA=folder] python workflows/benchmarks/training.py --out results.jsonl [--cases a,b]
    python workflows/benchmarks/training.py --out results.jsonl --table

The rows of each case, the fields of ``datasets`` (seed 0) and with DASKGP_DATA kin40k, protein
and the land-surface temperatures, are prepared in blocks once.  LMA is then trained on them by
default, and on all rows (``train_blocks=None``) to convergence from three starts: where the default
ended, and with lengthscales a fifth and five times of those, variance 1 and noise variance 0.1.  At
the hyper-parameters where each ended, the evidence of all rows is computed with the same blocks and
the support inputs of the default, in nats of the standardised target.  Fields are given the family
of their kernel (the temperatures ``matern12()``), tables nothing.
"""

import json
import time
import warnings
from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np

import daskgp

FIELDS = tuple(datasets.CASES)
CASES = (*FIELDS, "satellite", "kin40k", "protein")
FACTORS = {"again": None, "short": 0.2, "long": 5.0}
"""Factors of the lengthscales; None to go on where the default ended."""
TRAININGS = ("default", *FACTORS)


def keys(options: harness.Options) -> harness.Keys:
    present = datasets.present(options.cases)
    return harness.runs(options, "tiny", case=present, training=options.trainings)


def measure(key: dict, options: harness.Options) -> dict:
    """Train once and return the evidence of all rows where that ended."""
    case, training, tiny = key["case"], key["training"], key["tiny"]
    X, y = daskgp.open_dataset(str(store(case, options.folder, tiny)))
    ending = options.folder / f"{case}{'-tiny' if tiny else ''}-default.npz"
    settings, more = {**told(case), "progress": False}, {}
    if training != "default":
        with np.load(ending) as found:
            settings |= start(training, json.loads(str(found["ended"])))
            settings["support"] = found["support"]
        more = {"train_blocks": None, "tol": options.tol, "max_iter": options.max_iter}
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = daskgp.LMA(**settings, **more).fit(X, y)
        fitted = time.perf_counter()
        noise = float(np.ravel(model.noise_variance_)[0])
        settings |= {"kernel": model.kernel_, "noise_variance": noise, "optimizer": None}
        if training == "default":
            settings["support"] = model.support_
            ended = json.dumps({"kernel": model.kernel_.to_dict(), "noise_variance": noise})
            np.savez(ending, ended=ended, support=model.support_)
        whole = daskgp.LMA(**settings).fit(X, y)
    last = model.history_[-1] if model.history_ else {}
    return {
        "n": int(X.shape[0]),
        "fit_s": fitted - began,
        "evidence": float(whole.objective_),
        "ended": str(model.kernel_),
        "noise_variance": noise,
        "iterations": len(model.history_),
        "evaluations": last.get("evaluations"),
        "warnings": sorted({str(warning.message) for warning in caught}),
    }


def store(case: str, folder: Path, tiny: bool) -> Path:
    """Return the rows of a case in blocks, prepared once."""
    path = folder / f"{case}{'-tiny' if tiny else ''}.zarr"
    if not path.exists():
        few = 2_000 if tiny else None
        field = case in FIELDS
        split = datasets.stored(folder, case, 0, tiny) if field else datasets.table(case, few)
        daskgp.prepare((split.X, split.y), str(path), progress=False)
    return path


def told(case: str) -> dict[str, Any]:
    """Return what the estimator is told: a field's family and the settings of its question."""
    if case in FIELDS:
        found = datasets.CASES[case]
        return {"kernel": f"{found.truth.family}()", **found.settings}
    return {"kernel": "matern12()"} if case == "satellite" else {}


def start(training: str, ended: dict) -> dict[str, Any]:
    """Return the kernel and the noise variance that a training on all rows starts from."""
    kernel, factor = daskgp.kernels.from_dict(ended["kernel"]), FACTORS[training]
    if factor is None:
        return {"kernel": kernel, "noise_variance": ended["noise_variance"]}
    scales = np.array(["lengthscale" in name for name in kernel.parameter_names])
    logs = np.where(scales, np.array(kernel.log_parameters) + np.log(factor), 0.0)
    return {"kernel": kernel.with_log_parameters(logs), "noise_variance": 0.1}


def table(records: list[dict], options: harness.Options) -> str:
    found = {(record["key"]["case"], record["key"]["training"]): record for record in records}
    heads = ["", "rows", "default's evidence", "best", "lacks nats", "default s"]
    lines = []
    for case in CASES:
        runs = {name: found.get((case, name), {}) for name in TRAININGS}
        values = {name: run["evidence"] for name, run in runs.items() if "evidence" in run}
        if "default" in values:
            best = max(values, key=lambda name: values[name])
            lacks = values[best] - values["default"]
            cells = [f"{values['default']:,.1f}", f"{values[best]:,.1f} ({best})", f"{lacks:.1f}"]
            seconds = [harness.cell(runs[name], "fit_s", ",.0f") for name in TRAININGS]
            lines.append([case, f"{runs['default']['n']:,}", *cells, *seconds])
    return harness.markdown([*heads, *(f"{name} s" for name in FACTORS)], lines)


harness.command(globals(), limit=None, cases=CASES, trainings=TRAININGS, tol=1e-8, max_iter=200)
