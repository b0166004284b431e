"""Show if the defaults hold on every shape of data.

    python workflows/benchmarks/shapes.py --out results.jsonl [--cases a,b] [--tiny]
    python workflows/benchmarks/shapes.py --out results.jsonl --table

Rows and values are drawn from a known Gaussian process (see ``datasets``): fields of 500 × 300
cells with gaps, exponential and Matérn-3/2, the same five times longer than wide, a survey along
lines, and small sets of uneven density.

- ``default``: LMA without a setting; ``kernel``: LMA that is told the family of the kernel alone.
- ``band``, ``pic``: LMA with ``neighbours="order"``, the paper's band, and PIC, told the family.
- ``true``, ``true-band``, ``true-pic``: the same with the true hyper-parameters, not trained.
- ``exact-true``, ``exact``: the exact GP with the true ones and with those of its own evidence,
  from the true ones on, for at most 8,000 rows.

RMSE is against values without noise; coverage and NLPD are of y.  Of fields with three seeds the
band, PIC and theirs with the true hyper-parameters take the first.
"""

import warnings

import datasets
import harness
import numpy as np

import daskgp
from daskgp import metrics
from daskgp.estimators import GaussianProcess

FIRST_SEED = ("band", "pic", "true-band", "true-pic")
EXACT = ("exact-true", "exact")
METHODS = ("default", "kernel", "band", "pic", "true", "true-band", "true-pic", *EXACT)
EXACT_ROWS = 8_000
LEAST_NOISE = 1e-6
"""Noise variance, in units of the kernel's, that methods are given where the truth has none."""


def keys(options: harness.Options) -> harness.Keys:
    """Yield the runs that make sense, the fields' first seeds first."""
    for seed in range(max(case.seeds for case in datasets.CASES.values())):
        for name in options.cases:
            for method in options.methods:
                if seed >= datasets.CASES[name].seeds or (seed and method in FIRST_SEED):
                    continue
                rows = len(datasets.stored(options.folder, name, seed, options.tiny).y)
                if method not in EXACT or rows <= EXACT_ROWS:
                    yield {"case": name, "seed": seed, "method": method, "tiny": options.tiny}


def model(method: str, case: datasets.Case) -> GaussianProcess:
    """Return the estimator with its settings."""
    if method == "default":
        return daskgp.LMA(**case.settings)
    family, kind = f"{case.truth.family}()", method.removeprefix("true").strip("-")
    noise = max(case.truth.noise, LEAST_NOISE * case.truth.variance)
    known = {"kernel": case.truth.kernel, "noise_variance": noise}
    known |= {"mean": "zero", "standardize": False}
    if method in EXACT:
        return daskgp.ExactGP(**known, **({} if method == "exact" else {"optimizer": None}))
    given = {**known, "optimizer": None} if method.startswith("true") else {"kernel": family}
    if kind == "pic":
        return daskgp.PIC(**given)
    order = {"neighbours": "order"} if kind == "band" else {}
    return daskgp.LMA(**given, **case.settings, **order)


def measure(key: dict, options: harness.Options) -> dict:
    field = datasets.stored(options.folder, key["case"], key["seed"], key["tiny"])
    estimator = model(key["method"], datasets.CASES[key["case"]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = harness.fitted(estimator, field)
    return {
        "n": len(field.y),
        **found.scored(field.y_test, "coverage", "nlpd"),
        "rmse": float(metrics.rmse(field.f_test, found.mean)),
        "rmse_y": float(metrics.rmse(field.y_test, found.mean)),
        "objective": float(estimator.objective_),
        "kernel": str(estimator.kernel_),
        "noise_variance": float(np.ravel(estimator.noise_variance_)[0]),
        "warnings": sorted({str(warning.message) for warning in caught}),
    }


def table(records: list[dict], options: harness.Options) -> str:
    down = {"case": list(datasets.CASES), "seed": range(3)}
    return harness.tables(records, "rmse coverage nlpd seconds peak_mib", down, method=METHODS)


harness.command(globals(), limit=None, cases=datasets.CASES, methods=METHODS)
