"""Show what intervals cover between the rows and beyond their range, with a factor learned or not.

    python workflows/benchmarks/beyond.py --out results.jsonl [--functions a,b] [--rows 60,300]
    python workflows/benchmarks/beyond.py --out results.jsonl --table

Values of smooth functions without noise at random places of a cube of side 0.7 are interpolated by
the exact GP; places to predict are in that cube and in the one of side 1 around it.  ``plain`` has
no factor on standard deviations, ``everywhere`` the one of ``calibrate="loo"`` at all places, and
``fading`` is that setting as it is.  Shares are of 2,000 places inside 95 % intervals of f.
"""

from dataclasses import replace

import harness
import numpy as np

import daskgp
from daskgp import kernels
from daskgp.posterior.layers import Fade


def branin(X: np.ndarray) -> np.ndarray:
    a, b = 15 * X[:, 0] - 5, 15 * X[:, 1]
    parabola = b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6
    return parabola**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a)


FUNCTIONS = {
    "sine": (1, lambda X: np.sin(8 * X[:, 0])),
    "bump": (1, lambda X: np.exp(-30 * (X[:, 0] - 0.4) ** 2) + X[:, 0]),
    "branin": (2, branin),
    "waves": (4, lambda X: np.sin(3 * X[:, 0]) * X[:, 1] + np.cos(2 * X[:, 2]) * X[:, 3]),
}
KERNELS = {"matern32": kernels.Matern32, "matern52": kernels.Matern52}
HALF, PLACES = 0.35, 2_000


def keys(options: harness.Options) -> harness.Keys:
    kinds = {"function": options.functions, "kernel": options.kernels}
    yield from harness.runs(options, "", rows=options.rows, **kinds)


def measure(key: dict, options: harness.Options) -> dict:
    d, f = FUNCTIONS[key["function"]]
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5 - HALF, 0.5 + HALF, (key["rows"], d))
    places = rng.uniform(0, 1, (20 * PLACES, d))
    between = (np.abs(places - 0.5) <= HALF).all(axis=1)
    kernel = KERNELS[key["kernel"]]()
    model = daskgp.ExactGP(kernel, calibrate="loo", progress=False).fit(X, f(X))
    fading = model.solved_
    everywhere = replace(
        fading, layers=tuple(one for one in fading.layers if not isinstance(one, Fade))
    )
    found = {"n": len(X), "factor": fading.spread}
    for name, inside in (("between", between), ("beyond", ~between)):
        T = places[inside][:PLACES]
        for how, own in (("plain", everywhere), ("everywhere", everywhere), ("fading", fading)):
            mean, variance = own.moments(T, "variance")[:2]
            square = fading.spread**2 if how == "plain" else 1.0
            away = np.abs(f(T)[:, None] - mean) <= 1.959964 * np.sqrt(variance / square)
            found[f"{name}, {how}"] = 100 * float(away.mean())
    return found


def table(records: list[dict], options: harness.Options) -> str:
    parts = [f"{where}, {how}" for where in ("between", "beyond") for how in HOW]
    rows = [
        [str(record["key"][name]) for name in ("function", "rows", "kernel")]
        + [harness.cell(record, "factor", ".3f")]
        + [harness.cell(record, name, ".0f") for name in parts]
        for record in records
    ]
    return harness.markdown(["function", "rows", "kernel", "factor", *parts], rows)


HOW = ("plain", "everywhere", "fading")
harness.command(
    globals(), functions=tuple(FUNCTIONS), kernels=tuple(KERNELS), rows=([60, 300], [40])
)
