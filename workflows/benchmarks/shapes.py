"""Show if the defaults hold on every shape of data.

    python workflows/benchmarks/shapes.py --out results.jsonl [--cases a,b] [--tiny]
    python workflows/benchmarks/shapes.py --out results.jsonl --table

Rows and values are drawn from a known Gaussian process (see ``fields.py``): fields of 500 × 300
cells with gaps, exponential and Matérn-3/2, the same five times longer than wide, a survey along
lines, and small sets of uneven density.  Each method runs in a process of its own; results are
appended to the file, and a script that was interrupted goes on where it was.

- ``default``: LMA without a setting; ``kernel``: LMA that is told the family of the kernel alone.
- ``band``, ``pic``: LMA with ``neighbours="order"``, the paper's band, and PIC, told the family.
- ``true``, ``true-band``, ``true-pic``: the same with the true hyper-parameters, not trained.
- ``exact-true``, ``exact``: the exact GP with the true ones and with those of its own evidence,
  from the true ones on, for at most 8,000 rows.

RMSE is against values without noise; coverage and NLPD are of y.  Of fields with three seeds the
band, PIC and theirs with the true hyper-parameters take the first.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import common
import dask
import fields
import numpy as np

import daskgp
from daskgp import metrics

METHODS = (
    "default",
    "kernel",
    "band",
    "pic",
    "true",
    "true-band",
    "true-pic",
    "exact-true",
    "exact",
)
FIRST_SEED = ("band", "pic", "true-band", "true-pic")
EXACT_ROWS = 8_000
LEAST_NOISE = 1e-6
"""Noise variance, in units of the kernel's, that methods are given where the truth has none."""


def model(method: str, case: fields.Case) -> daskgp.estimators.GaussianProcess:
    """Return the estimator with its settings."""
    if method == "default":
        return daskgp.LMA(**case.settings)
    family, kind = f"{case.truth.family}()", method.removeprefix("true").strip("-")
    noise = max(case.truth.noise, LEAST_NOISE * case.truth.variance)
    known = {"kernel": case.truth.kernel, "noise_variance": noise}
    known |= {"mean": "zero", "standardize": False}
    if method == "exact":
        return daskgp.ExactGP(**known)
    if method == "exact-true":
        return daskgp.ExactGP(**known, optimizer=None)
    given = {**known, "optimizer": None} if method.startswith("true") else {"kernel": family}
    if kind == "pic":
        return daskgp.PIC(**given)
    order = {"neighbours": "order"} if kind == "band" else {}
    return daskgp.LMA(**given, **case.settings, **order)


def measure(key: dict, threads: int, folder: Path) -> dict:
    """Return scores and seconds of one method on one field, in this process."""
    field = fields.stored(folder, key["case"], key["seed"], key["tiny"])
    estimator = model(key["method"], fields.CASES[key["case"]]).set_params(progress=False)
    began = time.perf_counter()
    with dask.config.set(num_workers=threads), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        estimator.fit(field.X, field.y)
        fitted = time.perf_counter()
        mean, std = estimator.predict(field.X_test, return_std=True, include_noise=True)
        done = time.perf_counter()
    return {
        "n": len(field.y),
        "rmse": float(metrics.rmse(field.f_test, mean)),
        "rmse_y": float(metrics.rmse(field.y_test, mean)),
        "coverage": float(metrics.coverage(field.y_test, mean, std**2)),
        "nlpd": float(metrics.nlpd(field.y_test, mean, std**2)),
        "fit_s": fitted - began,
        "predict_s": done - fitted,
        "objective": float(estimator.objective_),
        "kernel": str(estimator.kernel_),
        "noise_variance": float(np.ravel(estimator.noise_variance_)[0]),
        "warnings": sorted({str(warning.message) for warning in said}),
    }


def keys(cases: list[str], methods: list[str], tiny: bool) -> Iterator[dict]:
    """Yield the runs that make sense, the fields' first seeds first."""
    for seed in range(max(case.seeds for case in fields.CASES.values())):
        for name in cases:
            for method in methods:
                key = {"case": name, "seed": seed, "method": method, "tiny": tiny}
                if seed < fields.CASES[name].seeds and not (seed and method in FIRST_SEED):
                    yield key


def possible(key: dict, folder: Path) -> bool:
    """Tell if a method can be run on so many rows, and draw them."""
    field = fields.stored(folder, key["case"], key["seed"], key["tiny"])
    return not key["method"].startswith("exact") or len(field.y) <= EXACT_ROWS


COLUMNS = {
    "RMSE": ("rmse", ".4f"),
    "coverage of 95 %": ("coverage", ".3f"),
    "NLPD": ("nlpd", ".3f"),
    "seconds of fit and prediction": ("seconds", ",.0f"),
    "peak MiB": ("peak_mib", ",.0f"),
}


def tables(records: list[dict]) -> str:
    """Return a table per score, a row per field and a column per method."""
    found = {
        (record["key"]["case"], record["key"]["seed"], record["key"]["method"]): record
        for record in records
    }
    rows = [(case, seed) for case in fields.CASES for seed in range(3)]
    rows = [row for row in rows if any((*row, method) in found for method in METHODS)]
    parts = []
    for title, (column, form) in COLUMNS.items():
        lines = (
            [
                f"{case} {seed}",
                *(common.cell(found.get((case, seed, m)), column, form) for m in METHODS),
            ]
            for case, seed in rows
        )
        parts.append(common.markdown([title, *METHODS], lines))
    return "\n\n".join(parts)


@click.command()
@click.option("--out", type=Path, help="File of results, which is appended to; fields lie beside.")
@click.option("--cases", default=",".join(fields.CASES), callback=common.among(fields.CASES))
@click.option("--methods", default=",".join(METHODS), callback=common.among(METHODS))
@click.option("--tiny", is_flag=True, help="A tenth of the rows, for tests.")
@click.option("--threads", default=2, show_default=True)
@click.option("--table", is_flag=True, help="Only print what the file holds.")
@click.option("--here", "key", hidden=True)
def main(
    out: Path | None,
    cases: list[str],
    methods: list[str],
    tiny: bool,
    threads: int,
    table: bool,
    key: str | None,
) -> None:
    """Measure each method on each field in a process of its own and print tables."""
    if out is None:
        raise click.UsageError("give --out=FILE, where results are kept")
    folder = out.parent / "fields"
    if key:
        print(json.dumps(measure(json.loads(key), threads, folder)))
        return
    ledger = common.Ledger(out)
    if not table:
        runs = (key for key in keys(cases, methods, tiny) if possible(key, folder))
        ledger.measure(__file__, runs, threads, options=[f"--out={out}"])
    print(tables(ledger.records()))


if __name__ == "__main__":
    main()
