"""Show what intervals cover if residuals have heavy tails, with and without ``calibrate``.

    python workflows/benchmarks/tails.py --out results.jsonl [--methods a,b] [--tiny]
    python workflows/benchmarks/tails.py --out results.jsonl --table

A Matérn-3/2 field at places with log-normal coordinates, where rows cluster, has errors that are
normal, of Student's t with three degrees of freedom, or a mixture: one in 20 is five times as wide.
Shares are of 2,000 other values inside central intervals.
"""

import datasets
import harness
import numpy as np

import daskgp

METHODS = {
    "sgpr": daskgp.SGPR(n_inducing=200),
    "lma": daskgp.LMA(),
    "experts": daskgp.ExpertsGP(),
}
ERRORS = ("normal", "t", "mixture")
FIELD, NOISE = datasets.Truth("matern32", 1.0, 1.0, 0.0), 0.5
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


def keys(options: harness.Options) -> harness.Keys:
    whether = {"calibrate": (False, True)}
    yield from harness.runs(options, "rows", errors=ERRORS, method=options.methods, **whether)


def errors(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw errors of a kind."""
    if kind == "t":
        return rng.standard_t(3, n)
    wide = rng.random(n) < 0.05 if kind == "mixture" else False
    return rng.standard_normal(n) * np.where(wide, 5.0, 1.0)


def measure(key: dict, options: harness.Options) -> dict:
    rng = np.random.default_rng(0)
    split = datasets.scattered(key["rows"], datasets.log_normal)(rng, FIELD, False)
    y, y_test = (f + NOISE * errors(key["errors"], len(f), rng) for f in (split.y, split.y_test))
    model = METHODS[key["method"]].set_params(progress=False)
    if key["calibrate"]:
        model.set_params(calibrate="random" if model._model().why_no_loo() else "loo")
    model.fit(split.X, y)
    ends = sorted(0.5 + sign * level / 2 for level in LEVELS for sign in (-1, 1))
    _, found = model.predict(split.X_test, quantiles=ends, include_noise=True)
    n, shares = len(ends), {}
    for i, level in enumerate(sorted(LEVELS, reverse=True)):
        inside = (y_test >= found[:, i]) & (y_test <= found[:, n - 1 - i])
        shares[f"{100 * level:.0f} %"] = 100 * inside.mean()
    scores = daskgp.check(model, split.X_test, y_test).scores
    return {
        "n": len(y),
        **shares,
        **{name: scores[name] for name in ("rmse", "crps", "z_variance")},
    }


def table(records: list[dict], options: harness.Options) -> str:
    names = [f"{100 * level:.0f} %" for level in LEVELS]
    rows = [
        [str(record["key"][name]) for name in ("errors", "method", "calibrate")]
        + [harness.cell(record, name, ".1f") for name in names]
        + [harness.cell(record, name, ".3f") for name in ("rmse", "crps", "z_variance")]
        for record in records
    ]
    heads = ["errors", "method", "calibrate", *names, "RMSE", "CRPS", "variance of z"]
    return harness.markdown(heads, rows)


harness.command(globals(), methods=tuple(METHODS), rows=(4_000, 300))
