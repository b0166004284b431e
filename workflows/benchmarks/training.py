"""Show how far from the optimum the default training ends.

    [DASKGP_DATA=folder] python workflows/benchmarks/training.py --out results.jsonl [--cases a,b]
    python workflows/benchmarks/training.py --out results.jsonl --table

The rows of each case, the fields of ``fields.py`` (seed 0) and with DASKGP_DATA kin40k, protein and
the land-surface temperatures, are prepared in blocks once.  LMA is then trained on them by default,
and on all rows (``train_blocks=None``) to convergence from three starts: where the default ended,
and with lengthscales a fifth and five times of those, variance 1 and noise variance 0.1.  At the
hyper-parameters where each ended, the evidence of all rows is computed with the same blocks and the
support inputs of the default, in nats of the standardised target.

Fields are given the family of their kernel (the temperatures ``matern12()``), tables nothing.  Each
training runs in a process of its own; results are appended to the file, and a script that was
interrupted goes on where it was.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import click
import common
import dask
import defaults
import fields
import numpy as np
import spatial

import daskgp

TABLES = ("kin40k", "protein")
CASES = (*fields.CASES, "satellite", *TABLES)
FACTORS = {"again": None, "short": 0.2, "long": 5.0}
"""Of the lengthscales; None to go on where the default ended."""

TRAININGS = ("default", *FACTORS)


def rows_of(case: str, folder: Path, tiny: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y of a case."""
    if case in fields.CASES:
        field = fields.stored(folder, case, 0, tiny)
        return field.X, field.y
    if case in TABLES:
        table = defaults.load(case, 2_000 if tiny else None)
        return table.X, table.y
    field = spatial.satellite(Path(os.environ["DASKGP_DATA"], "spatial", "satellite.npz"))
    small = field.thinned(2_000 if tiny else len(field.y))
    return small.X, small.y


def store_of(case: str, folder: Path, tiny: bool) -> Path:
    """Return the rows of a case in blocks, prepared once."""
    path = folder / f"{case}{'-tiny' if tiny else ''}.zarr"
    if not path.exists():
        daskgp.prepare(rows_of(case, folder, tiny), str(path), progress=False)
    return path


def settings_of(case: str) -> dict[str, Any]:
    """Return what the estimator is told: a field's family and the settings of its question."""
    if case in fields.CASES:
        found = fields.CASES[case]
        return {"kernel": f"{found.truth.family}()", **found.settings}
    return {"kernel": "matern12()"} if case == "satellite" else {}


def start(training: str, ended: dict) -> dict[str, Any]:
    """Return the kernel and the noise variance that a training on all rows starts from."""
    kernel, factor = daskgp.kernels.from_dict(ended["kernel"]), FACTORS[training]
    if factor is None:
        return {"kernel": kernel, "noise_variance": ended["noise_variance"]}
    logs = np.array(kernel.log_parameters)
    for i, name in enumerate(kernel.parameter_names):
        logs[i] = logs[i] + np.log(factor) if "lengthscale" in name else 0.0
    return {"kernel": kernel.with_log_parameters(logs), "noise_variance": 0.1}


def measure(key: dict, threads: int, folder: Path, tol: float, max_iter: int) -> dict:
    """Train once and return the evidence of all rows where that ended, in this process."""
    case, training, tiny = key["case"], key["training"], key["tiny"]
    X, y = daskgp.open_dataset(str(store_of(case, folder, tiny)))
    ending = folder / f"{case}{'-tiny' if tiny else ''}-default.npz"
    settings = {**settings_of(case), "progress": False}
    if training != "default":
        with np.load(ending) as found:
            settings |= start(training, json.loads(str(found["ended"])))
            settings["support"] = found["support"]
        settings |= {"train_blocks": None, "tol": tol, "max_iter": max_iter}
    began = time.perf_counter()
    with dask.config.set(num_workers=threads), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = daskgp.LMA(**settings).fit(X, y)
        fitted = time.perf_counter()
        noise = float(np.ravel(model.noise_variance_)[0])
        ended = {"kernel": model.kernel_.to_dict(), "noise_variance": noise}
        settings |= {"kernel": model.kernel_, "noise_variance": noise}
        settings["support"] = model.support_ if training == "default" else settings["support"]
        whole = daskgp.LMA(**settings | {"optimizer": None}).fit(X, y)
    if training == "default":
        np.savez(ending, ended=json.dumps(ended), support=model.support_)
    last = model.history_[-1] if model.history_ else {}
    return {
        "n": int(X.shape[0]),
        "fit_s": fitted - began,
        "evidence": float(whole.objective_),
        "ended": str(model.kernel_),
        "noise_variance": noise,
        "iterations": len(model.history_),
        "evaluations": last.get("evaluations"),
        "warnings": sorted({str(warning.message) for warning in said}),
    }


def table(records: list[dict]) -> str:
    """Return a row per case: how much evidence the default lacks, and the seconds."""
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
            seconds = [common.cell(runs[name], "fit_s", ",.0f") for name in TRAININGS]
            lines.append([case, f"{runs['default']['n']:,}", *cells, *seconds])
    return common.markdown([*heads, *(f"{name} s" for name in FACTORS)], lines)


@click.command()
@click.option("--out", type=Path, help="File of results, which is appended to; rows lie beside.")
@click.option("--cases", default=",".join(CASES), callback=common.among(CASES))
@click.option("--trainings", default=",".join(TRAININGS), callback=common.among(TRAININGS))
@click.option("--tiny", is_flag=True, help="A tenth of the rows, for tests.")
@click.option("--tol", default=1e-8, show_default=True, help="tol of the trainings on all rows.")
@click.option("--max-iter", default=200, show_default=True, help="Their iterations.")
@click.option("--threads", default=2, show_default=True)
@click.option("--table", "only_table", is_flag=True, help="Only print what the file holds.")
@click.option("--here", "key", hidden=True)
def main(
    out: Path | None,
    cases: list[str],
    trainings: list[str],
    tiny: bool,
    tol: float,
    max_iter: int,
    threads: int,
    only_table: bool,
    key: str | None,
) -> None:
    """Train each case in processes of their own and print a table."""
    if out is None:
        raise click.UsageError("give --out=FILE, where results are kept")
    folder = out.parent / "fields"
    if key:
        print(json.dumps(measure(json.loads(key), threads, folder, tol, max_iter)))
        return
    ledger = common.Ledger(out)
    if not only_table:
        data = os.environ.get("DASKGP_DATA")
        present = [case for case in cases if case in fields.CASES or data]
        runs = ({"case": c, "training": t, "tiny": tiny} for c in present for t in trainings)
        options = [f"--out={out}", f"--tol={tol}", f"--max-iter={max_iter}"]
        ledger.measure(__file__, runs, threads, options=options)
    print(table(ledger.records()))


if __name__ == "__main__":
    main()
