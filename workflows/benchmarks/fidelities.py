"""Show what a cheap model brings to few expensive values: accuracy, coverage and time.

    python workflows/benchmarks/fidelities.py --out results.jsonl
    python workflows/benchmarks/fidelities.py --out results.jsonl --functions drawn
    python workflows/benchmarks/fidelities.py --out results.jsonl --table

Functions of one, two and four columns have a cheap form that errs (Forrester et al. 2007, Xiong et
al. 2013), known at a Latin hypercube of places; the expensive one is known at a few of these, with
noise of a hundredth of its variance.  Scores are of the expensive function at 1,000 other places,
in units of its standard deviation.  ``drawn`` are two Matérn-5/2 fields of correlation 0.9, of
which both forms have the noise: ``known`` is the dense answer given the true parameters, and
``errors`` a joint fit that is given the noise.

``alone`` sees the expensive values alone; ``joint`` both as
joint targets with one kernel; ``two`` both with a sum of two, the first of rank 1; ``feature``
predicts the expensive one from places and what a model of the cheap one predicts there.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import harness
import numpy as np
from datasets import functions
from scipy.stats import qmc

import daskgp
from daskgp.kernels import Coregion, Matern52

NOISE, PLACES, LEAST = 0.01, 1_000, 1e-3


class Case(NamedTuple):
    """A function and its cheap form, number of columns, and of places of each."""

    expensive: Callable[[np.ndarray], np.ndarray]
    cheap: Callable[[np.ndarray], np.ndarray]
    n_columns: int
    n_cheap: int
    n_expensive: int


LENGTH, MIXED = 0.3, np.array([[1.0, 0.9], [0.9, 1.0]])
CASES = {
    "forrester": Case(functions.forrester, functions.cheap_forrester, 1, 40, 8),
    "currin": Case(functions.currin, functions.cheap_currin, 2, 400, 25),
    "park": Case(functions.park, functions.cheap_park, 4, 600, 40),
    "drawn": Case(np.copy, np.copy, 1, 40, 8),
}


def keys(options: harness.Options) -> harness.Keys:
    lists = {"function": options.functions, "how": options.how}
    for key in harness.runs(options, **lists, seed=range(options.seeds)):
        if key["function"] == "drawn" or key["how"] not in ("known", "errors"):
            yield key


def measure(key: dict, options: harness.Options) -> dict:
    case, rng = CASES[key["function"]], np.random.default_rng(key["seed"])
    X = np.maximum(qmc.LatinHypercube(case.n_columns, rng=rng).random(case.n_cheap), LEAST)
    Z = np.maximum(rng.uniform(size=(PLACES, case.n_columns)), LEAST)
    if key["function"] == "drawn":
        y, f = drawn(X, Z, rng)
        y[case.n_expensive :, 1] = np.nan
    else:
        f = case.expensive(Z)
        y = np.full((len(X), 2), np.nan)
        y[:, 0] = case.cheap(X)
        few = case.expensive(X[: case.n_expensive])
        y[: len(few), 1] = few + np.sqrt(NOISE) * f.std() * rng.standard_normal(len(few))
    began = time.perf_counter()
    mean, std = HOW[key["how"]](X, y, Z)
    return {
        "columns": case.n_columns,
        "n": case.n_expensive,
        "rmse": float(np.sqrt(np.mean((mean - f) ** 2)) / f.std()),
        "coverage": float((np.abs(mean - f) < 1.96 * std).mean()),
        "seconds_all": time.perf_counter() - began,
    }


def drawn(X: np.ndarray, Z: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return y of both forms at X, and f of the expensive one at Z."""
    K = Matern52(LENGTH)(np.vstack([X, Z])) + 1e-9 * np.eye(len(X) + len(Z))
    f = np.linalg.cholesky(K) @ rng.standard_normal((len(K), 2)) @ np.linalg.cholesky(MIXED).T
    y = f[: len(X)] + np.sqrt(NOISE) * rng.standard_normal((len(X), 2))
    return y, f[len(X) :, 1]


def known(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Any:
    at, of = np.nonzero(np.isfinite(y))
    kernel = Matern52(LENGTH)
    C = kernel(X)[np.ix_(at, at)] * MIXED[np.ix_(of, of)] + NOISE * np.eye(len(at))
    cross = kernel(Z, X)[:, at] * MIXED[1, of]
    variance = MIXED[1, 1] - np.einsum("ij,ji->i", cross, np.linalg.solve(C, cross.T))
    return cross @ np.linalg.solve(C, y[at, of]), np.sqrt(variance)


def errors(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Any:
    model = daskgp.ExactGP(Matern52(), targets="joint", progress=False)
    return of_last(model.fit(X, y, y_variance=np.full(y.shape, NOISE)), Z)


def alone(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Any:
    own = np.isfinite(y[:, 1])
    return fitted(Matern52(ard=True), X[own], y[own, 1]).predict(Z, return_std=True)


def joint(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Any:
    return of_last(fitted(Matern52(ard=True), X, y, targets="joint"), Z)


def two(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Any:
    shared = Coregion("target", rank=1) * Matern52(ard=True)
    return of_last(fitted(shared + Coregion("target") * Matern52(ard=True), X, y, "joint"), Z)


def feature(X: np.ndarray, y: np.ndarray, Z: np.ndarray) -> Any:
    cheap, own = fitted(Matern52(ard=True), X, y[:, 0]), np.isfinite(y[:, 1])
    seen = [np.column_stack([places, cheap.predict(places)]) for places in (X[own], Z)]
    model = fitted(Matern52(ard=True), seen[0], y[own, 1], mean="linear")
    return model.predict(seen[1], return_std=True)


def fitted(kernel: Any, X: np.ndarray, y: np.ndarray, targets: str = "separate", **own: Any) -> Any:
    return daskgp.ExactGP(kernel, targets=targets, progress=False, **own).fit(X, y)


def of_last(model: Any, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, std = model.predict(Z, return_std=True)
    return mean[:, -1], std[:, -1]


HOW = {"known": known, "errors": errors}
HOW |= {"alone": alone, "joint": joint, "two": two, "feature": feature}


def table(records: list[dict], options: harness.Options) -> str:
    numbers = "n rmse coverage seconds_all runs"
    return harness.report(harness.medians(records, "function", "how"), "function how", numbers)


harness.command(
    globals(),
    functions=harness.Some(tuple(CASES), ("forrester", "currin", "park")),
    how=harness.Some(tuple(HOW), ("known", "errors", "alone", "joint", "feature")),
    seeds=(10, 1),
)
