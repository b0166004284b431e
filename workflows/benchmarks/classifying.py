"""Accuracy and log score of classes, beside gradient boosting and one-versus-rest SVGP.

    python workflows/benchmarks/classifying.py --out results.jsonl
    python workflows/benchmarks/classifying.py --out results.jsonl --targets fields --methods sgpr
    python workflows/benchmarks/classifying.py --out results.jsonl --table

``fields`` are ten classes in a square: that of the largest of ten smooth random fields with Gumbel
noise, whose own log score stands beside as ``truth``.  ``covertype`` is that of scikit-learn, its
ten measured columns and seven classes, where its cache has it.  A fifth as many rows are held out.
``vecchia`` and ``sgpr`` are the softmax of `GPClassifier`; ``svgp`` has a Bernoulli likelihood for
each class against all others, with probabilities divided by their sum; ``gpflow`` is its SVGP with
a softmax, trained by 5,000 steps of Adam on mini-batches of 256 rows.
"""

import time
from typing import Any

import harness
import numpy as np
from peers import gpflow
from sklearn.datasets import fetch_covtype
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score, log_loss
from sklearn.multiclass import OneVsRestClassifier

import daskgp

CLASSES, WAVES, LENGTH, SPREAD = 10, 300, 0.15, 3.0
MEASURED = 10
"""Columns of covertype that are no indicators."""


def keys(options: harness.Options) -> harness.Keys:
    lists = {"target": options.targets, "method": options.methods}
    return harness.runs(options, "rows", **lists, seed=range(options.seeds))


def measure(key: dict, options: harness.Options) -> dict:
    n, rng = key["rows"], np.random.default_rng(key["seed"])
    X, y, p = DATA[key["target"]](n + max(n // 5, 50), rng)
    model = METHODS[key["method"]](min(options.inducing, n // 2))
    began = time.perf_counter()
    model.fit(X[:n], y[:n])
    fitted = time.perf_counter()
    found = model.predict_proba(X[n:])
    done = time.perf_counter()
    best = model.classes_[found.argmax(axis=1)]
    known = np.isin(y[n:], model.classes_)
    row = {
        "n": n,
        "classes": len(model.classes_),
        "fit_s": fitted - began,
        "predict_s": done - fitted,
        "accuracy": float(accuracy_score(y[n:], best)),
        "log_score": -float(log_loss(y[n:][known], found[known], labels=model.classes_)),
    }
    if p is not None:
        row["truth"] = float(np.log(np.take_along_axis(p, y[:, None], axis=1))[n:].mean())
    return row


def fields(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return places, classes and their probabilities."""
    X, f = rng.uniform(size=(n, 2)), np.zeros((n, CLASSES))
    for c in range(CLASSES):
        w, phase = rng.standard_normal((WAVES, 2)) / LENGTH, rng.uniform(0, 2 * np.pi, WAVES)
        f[:, c] = SPREAD * np.sqrt(2 / WAVES) * np.cos(X @ w.T + phase).sum(axis=1)
    p = np.exp(f - f.max(axis=1, keepdims=True))
    return X, (f + rng.gumbel(size=f.shape)).argmax(axis=1), p / p.sum(axis=1, keepdims=True)


def covertype(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, None]:
    """Return rows of covertype in a random order, without probabilities."""
    X, y = fetch_covtype(download_if_missing=False, return_X_y=True)
    chosen = rng.permutation(len(X))[:n]
    return X[chosen, :MEASURED], y[chosen], None


def softmax(kind: type, **settings: Any) -> daskgp.GPClassifier:
    return daskgp.GPClassifier(kind("matern32(ard=true)", progress=False, **settings))


DATA = {"fields": fields, "covertype": covertype}
METHODS = {
    "vecchia": lambda _: softmax(daskgp.VecchiaGP),
    "sgpr": lambda m: softmax(daskgp.SGPR, n_inducing=m),
    "svgp": lambda m: OneVsRestClassifier(softmax(daskgp.SVGP, n_inducing=m)),
    "gpflow": gpflow.Classifier,
    "boosting": lambda _: HistGradientBoostingClassifier(random_state=0),
}

table = harness.reporting(
    "target method n",
    "classes accuracy log_score truth fit_s predict_s processor_s peak_mib runs",
)
harness.command(
    globals(),
    targets=harness.Some(tuple(DATA), ("fields",)),
    methods=tuple(METHODS),
    seeds=(1, 1),
    rows=(20_000, 60),
    inducing=(256, 10),
)
