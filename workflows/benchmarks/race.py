"""Seconds until trained inducing inputs predict well, beside GPyTorch and GPflow.

    DASKGP_DATA=folder python workflows/benchmarks/race.py --out results.jsonl [--methods a,b]
    python workflows/benchmarks/race.py --out results.jsonl --table

kin40k, split 0, standardised; a Matérn-3/2 kernel with a lengthscale per feature that starts at
the median distance of the rows, noise variance 0.1.  All train the same inducing inputs, which
start at centres of k-means, with the hyper-parameters for ``--training-s`` seconds, or until the
NLPD of the rows to predict is at most -0.40.  Each is scored whenever its seconds have grown by a
tenth; scores, imports and what is prepared for all do not count, starts and compiling do.

- ``sgpr``: L-BFGS on all rows, daskgp in float64 and float32, GPflow by its own interface to SciPy,
  GPyTorch by PyTorch's, with the line search of Wolfe.
- ``svgp``: ``--steps`` steps on 1,024 rows.  daskgp as it is by default; GPyTorch with Adam in
  float32, whose rate of 0.01 falls at a half and three quarters; GPflow with natural gradients
  (0.1) for q and Adam (0.01) for all else, in float64.
- ``decoupled``, ``cagp``: daskgp alone, with no inducing inputs to share: 16,384 functions of the
  mean and 128 of the covariance, as many steps as SVGP; 512 learned actions on all rows, float32.
"""

import importlib
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np
from peers import gpflow, gpytorch
from scipy.spatial.distance import pdist
from sklearn.cluster import MiniBatchKMeans

import daskgp
from daskgp import kernels, metrics

ALL_ROWS = {"optimizer": "l-bfgs", "max_iter": 10_000, "tol": 1e-12}
SGPR = {**ALL_ROWS, "train_inducing": True}
OURS: dict[str, tuple[Any, dict[str, Any]]] = {
    "daskgp sgpr": (daskgp.SGPR, SGPR),
    "daskgp sgpr float32": (daskgp.SGPR, {**SGPR, "dtype": "float32"}),
    "daskgp svgp": (daskgp.SVGP, {}),
    "daskgp decoupled": (daskgp.DecoupledGP, {}),
    "daskgp cagp": (daskgp.CaGP, {**ALL_ROWS, "n_actions": 512, "dtype": "float32"}),
}
PEERS: dict[str, tuple[str, Callable]] = {
    "gpflow sgpr": ("gpflow", gpflow.train_sgpr),
    "gpytorch sgpr": ("gpytorch", gpytorch.train_sgpr),
    "gpflow svgp": ("gpflow", gpflow.train_svgp),
    "gpytorch svgp": ("gpytorch", gpytorch.train_svgp),
}
METHODS = (*OURS, *PEERS)
TARGET, GROWTH = -0.4, 1.1


class Race:
    """Scores of a training on the way, outside its clock, which begins with the first start."""

    def __init__(self, split: datasets.Split, options: harness.Options) -> None:
        self.split, self.end = split, options.training_s
        self.curve: list[tuple[float, float, float]] = []
        self.next, self.began = min(5.0, options.training_s), time.perf_counter()

    def over(self, predict: Callable, seconds: float | None = None) -> bool:
        """Score if it is time, after so many seconds, and return whether the training is over."""
        seconds = time.perf_counter() - self.began if seconds is None else seconds
        if seconds < self.next:
            return False
        before, y = time.perf_counter(), self.split.y_test
        mean, variance = map(np.ravel, predict(self.split.X_test))
        nlpd, rmse = metrics.nlpd(y, mean, variance), metrics.rmse(y, mean)
        self.curve.append((seconds, float(nlpd), float(rmse)))
        self.next = min(GROWTH * seconds, self.end) if seconds < self.end else np.inf
        self.began += time.perf_counter() - before
        return bool(nlpd <= TARGET) or seconds >= self.end


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "rows inducing", method=options.methods)


def measure(key: dict, options: harness.Options) -> dict:
    split = datasets.table("kin40k", key["rows"]).standardised(inputs=True)
    few = split.X[np.random.default_rng(0).choice(len(split.X), min(2_000, len(split.X)), False)]
    middle, m = float(np.median(pdist(few))), min(key["inducing"], len(split.y) // 2)
    kernel = kernels.Matern32(lengthscale=(middle,) * split.X.shape[1], variance=1.0)
    Z = MiniBatchKMeans(m, n_init=1, random_state=0).fit(split.X).cluster_centers_
    sizes = {"steps": options.steps, "batch": min(options.batch_rows, len(split.y) // 2)}
    module, train = PEERS.get(key["method"], ("daskgp", None))
    importlib.import_module(module)
    race = Race(split, options)
    if train is None:
        ours(*OURS[key["method"]], kernel, Z, race, sizes)
    else:
        train(split, Z, kernel, race.over, **(sizes if "svgp" in key["method"] else {}))
    seconds, nlpd, rmse = race.curve[-1]
    found = {"trained_s": seconds, "nlpd": nlpd, "rmse": rmse, "curve": race.curve}
    return {**found, "reached_s": seconds if nlpd <= TARGET else None}


def ours(kind: Any, settings: dict, kernel: Any, Z: np.ndarray, race: Race, sizes: dict) -> None:
    """Train until it is time to score, and go on."""
    settings = {**settings, "noise_variance": gpytorch.NOISE, "progress": False}
    if kind in (daskgp.SVGP, daskgp.DecoupledGP):
        settings |= {"max_iter": sizes["steps"], "batch_rows": sizes["batch"]}
    if kind in (daskgp.SGPR, daskgp.SVGP):
        settings |= {"inducing": Z}
    if kind is daskgp.DecoupledGP:
        settings |= {"n_mean": min(16_384, len(race.split.y)), "n_covariance": 128}
    model = kind(kernel, **settings)
    logging.getLogger("daskgp").setLevel(logging.ERROR)  # the start is given, on purpose

    def predict(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, std = model.predict(X, return_std=True, include_noise=True)
        return mean, std**2

    done, steps, setup = 0.0, 0, 0.0
    with tempfile.TemporaryDirectory() as kept:
        while True:
            began = time.perf_counter()
            over = lambda entry: entry["seconds"] >= race.next - setup  # noqa
            model.fit(*race.split[:2], checkpoint=str(Path(kept, "run")), callback=over)
            trained = harness.marks(model)
            done, ended = trained[-1], len(trained) == steps
            if not steps:
                setup = time.perf_counter() - began - done
            steps = len(trained)
            if ended:  # converged, or all steps taken
                race.end = 0.0
            if race.over(predict, max(setup + done, race.next)):
                return


def table(records: list[dict], options: harness.Options) -> str:
    """Return a row per method, and the NLPD on the way."""
    shown = harness.report(records, "method", "reached_s trained_s nlpd rmse peak_mib")
    marks = [10.0 * 1.5**n for n in range(20) if 10.0 * 1.5**n <= 1.01 * options.training_s]
    ran = [r for r in records if "curve" in r]
    lines = []
    for before, mark in zip([0.0, *marks], marks, strict=False):
        scores = ([nlpd for s, nlpd, _ in r["curve"] if s <= mark] for r in ran)
        kept = [of if r["trained_s"] > before else [] for r, of in zip(ran, scores, strict=True)]
        lines.append([f"{mark:.0f}", *(harness.cell({"": [None, *of][-1]}, "") for of in kept)])
    return f"{shown}\n\n{harness.markdown(['seconds', *(r['key']['method'] for r in ran)], lines)}"


SIZES = {"steps": (7_000, 40), "batch_rows": (1_024, 100), "inducing": (1_024, 30)}
harness.command(globals(), methods=METHODS, training_s=(900.0, 2.0), rows=(None, 400), **SIZES)
