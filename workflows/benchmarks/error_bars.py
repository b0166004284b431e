"""Show what known error variances of measurements bring.

    python workflows/benchmarks/error_bars.py --out results.jsonl [--methods a,b] [--tiny]
    python workflows/benchmarks/error_bars.py --out results.jsonl --table

A Matérn-3/2 field on the unit square at 8,000 places, measured with errors of standard deviations
from 0.05 to 2 (that of the field is 1), evenly on the logarithm.  ``LMA``, ``SGPR`` and, on 4,000
of the rows, ``ExactGP`` without a setting are told these (``known``), or learn one noise variance
for all (``unknown``).  RMSE is against the field; its coverage is that of f's intervals, and
``coverage_y`` that of new measurements, which the ones who know are told the errors of.
"""

import datasets
import harness
import numpy as np

import daskgp
from daskgp import metrics

METHODS = {"lma": daskgp.LMA, "sgpr": daskgp.SGPR, "exact": daskgp.ExactGP}
TOLD = ("known", "unknown")
EXACT_ROWS = 4_000
FIELD = datasets.Truth("matern32", 0.2, 1.0, 0.0)
ERRORS = 0.05, 2.0


def keys(options: harness.Options) -> harness.Keys:
    yield from harness.runs(options, method=options.methods, told=TOLD, seed=range(options.seeds))


def measure(key: dict, options: harness.Options) -> dict:
    rng = np.random.default_rng(key["seed"])
    drawn = datasets.scattered(8_000, datasets.uniform)(rng, FIELD, options.tiny)
    sizes = len(drawn.y), len(drawn.y_test)
    std, std_new = (np.exp(rng.uniform(*np.log(ERRORS), size)) for size in sizes)
    y = drawn.y + std * rng.standard_normal(len(std))
    y_new = drawn.f_test + std_new * rng.standard_normal(len(std_new))
    rows = slice(EXACT_ROWS if key["method"] == "exact" else None)
    known = key["told"] == "known"
    model = METHODS[key["method"]]()
    errors = {"y_variance": std[rows] ** 2} if known else {}
    model.fit(drawn.X[rows], y[rows], **errors)
    mean, latent = model.predict(drawn.X_test, return_std=True)
    new = {"y_variance": std_new**2} if known else {}
    _, observed = model.predict(drawn.X_test, return_std=True, include_noise=True, **new)
    return {
        "n": len(y[rows]),
        "rmse": float(metrics.rmse(drawn.f_test, mean)),
        "coverage": float(metrics.coverage(drawn.f_test, mean, latent**2)),
        "coverage_y": float(metrics.coverage(y_new, mean, observed**2)),
        "nlpd_y": float(metrics.nlpd(y_new, mean, observed**2)),
        "noise_variance": float(model.noise_variance_ * model.solved_.scaling.y_scale[0] ** 2),
    }


def table(records: list[dict], options: harness.Options) -> str:
    numbers = "n rmse coverage coverage_y nlpd_y noise_variance seconds"
    return harness.report(harness.medians(records, "method", "told"), "method told", numbers)


harness.command(globals(), methods=tuple(METHODS), seeds=(3, 1))
