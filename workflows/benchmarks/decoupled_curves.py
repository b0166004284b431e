"""Bound and error of decoupled and stochastic variational GPs on the way, by steps and by time.

    DASKGP_DATA=folder python workflows/benchmarks/decoupled_curves.py [--data kin40k]
        [--methods svdgp,svi] [--figure curves.png]

After the experiments of Cheng & Boots 2017 ([DGP], section 4) with other data: split 0, targets
standardised.  ``svdgp`` and ``svi`` are the paper's own algorithm and its baseline.  Both have
functions with lengthscales of their own (eq. 19) that begin at rows of the batches, 128 a step.
Adam alone learns all of them, the hyper-parameters and q, by one rate, that of 0.1, 0.01 and 0.001
with the largest bound after 100 steps.  Noise starts at the variance of y; nothing is averaged.

- ``svdgp``: 16,384 functions of the mean and 128 others of the covariance, eqs. 7-9.
- ``svi``: 1,024 functions of both.
- ``decoupled``, ``svgp``, ``ivsgpr``: ``DecoupledGP`` with 16,384 and 128 functions, ``SVGP`` with
  1,024 and with 256, all by their defaults; ``decoupled-bound`` learns hyper-parameters from the
  bound.

The bound is an evidence lower bound of all rows, per row, with the exact KL[q || p]; the expected
log-likelihood is that of the rows to predict, as in the paper, or of rows trained on.  Seconds are
those of training: the choice of a rate and the scores on the way do not count.
"""

import tempfile
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np
from datasets import Split

import daskgp
from daskgp import metrics

PAPERS: dict[str, Any] = {
    "basis": "generalized",
    "inducing": "stream",
    "n_added": 128,
    "hyperparameters": "bound",
    "noise_variance": 1.0,
    "average": False,
}
DIRECT = {"parametrization": "direct", "share": False, "precondition": None}
DECOUPLED, MOVING = {"n_mean": 16_384, "n_covariance": 128}, {"train_mean_points": True}
BOTH = {"n_mean": 1_024, "n_covariance": 1_024, "natural": None}
METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "svdgp": (daskgp.DecoupledGP, {**PAPERS, **DIRECT, **DECOUPLED, **MOVING}),
    "svi": (daskgp.DecoupledGP, {**PAPERS, **BOTH}),
    "decoupled": (daskgp.DecoupledGP, DECOUPLED),
    "decoupled-bound": (daskgp.DecoupledGP, {**DECOUPLED, "hyperparameters": "bound"}),
    "svgp": (daskgp.SVGP, {"n_inducing": 1_024}),
    "ivsgpr": (daskgp.SVGP, {"n_inducing": 256}),
}
RATES = (0.1, 0.01, 0.001)
CHOSEN_AFTER, LAST, TRAINED, STOPPED = 100, 10, 10_000, 100_000
"""Steps until a rate is chosen, last ones that count, rows trained on that are scored, no end."""


def keys(options: harness.Options) -> harness.Keys:
    lists = {"data": datasets.present(options.data), "method": options.methods}
    return harness.runs(options, "rows kernel dtype", steps=[options.marks[-1]], **lists)


def measure(key: dict, options: harness.Options) -> dict:
    """Fit again and again from where the checkpoint is, and score."""
    split = datasets.table(key["data"], key["rows"]).standardised()
    rate = best_rate(split, key, options) if "average" in METHODS[key["method"]][1] else None
    curve, setup, rows = [], None, len(split.y)
    with tempfile.TemporaryDirectory() as kept:
        for mark in options.marks:
            began = time.perf_counter()
            model = fitted(split, key, options, mark, rate, checkpoint=str(Path(kept, "run")))
            seconds, ends = time.perf_counter() - began, harness.marks(model)
            setup = seconds - ends[-1] if setup is None else setup
            mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
            error, bound = metrics.nmse(split.y_test, mean), harness.bound_of(model, split, rows)
            curve.append((mark, setup + ends[mark - 1], float(error), bound))
    outcome = harness.Outcome(curve[-1][1], None, mean, std**2)
    scored = outcome.scored(split.y_test, "nmse", "nlpd", "coverage")
    own = split.drawn(TRAINED)
    trained = harness.bound_of(model, own._replace(X_test=own.X, y_test=own.y), rows)
    bounds = {"bound": curve[-1][3], "trained": trained}
    return {**scored, **bounds, "chosen_rate": rate, "curve": curve}


def fitted(
    split: Split, key: dict, options: harness.Options, mark: int, rate: float | None, **run: Any
) -> Any:
    """Return an estimator after so many steps."""
    kind, settings = METHODS[key["method"]]
    sizes = {"batch_rows": options.batch_rows, "dtype": key["dtype"], "max_iter": mark}
    if rate is not None:  # a run that is stopped, since short ones refuse average=False
        sizes |= {"learning_rate": rate, "mean_learning_rate": rate, "max_iter": STOPPED}
        run["callback"] = lambda entry: entry["iteration"] > mark
    settings = harness.lowered(settings | sizes, len(split.y) // 3)
    return kind(key["kernel"], **settings, progress=False).fit(split.X, split.y, **run)


def best_rate(split: Split, key: dict, options: harness.Options) -> float:
    """Return the rate with the largest bound after some steps, from the batches of the last."""
    bounds, after = {}, min(CHOSEN_AFTER, options.marks[-1])
    for rate in RATES:
        with suppress(daskgp.errors.NumericalError):
            model = fitted(split, key, options, after, rate)
            bounds[rate] = np.mean([entry["objective"] for entry in model.history_[-LAST:]])
    return max(bounds, key=bounds.__getitem__)


def table(records: list[dict], options: harness.Options) -> str:
    """Return scores and seconds, then the bound and the error on the way."""
    numbers = "nmse bound trained nlpd coverage chosen_rate fit_s peak_mib"
    curves = [
        {"key": record["key"] | {"steps": mark}, "fit_s": seconds, "nmse": error, "bound": bound}
        for record in records
        for mark, seconds, error, bound in record.get("curve", [])
    ]
    parts = (records, numbers), (curves, "fit_s nmse bound")
    return "\n\n".join(harness.report(part, "data method steps", names) for part, names in parts)


def figure(records: list[dict], path: Path) -> None:
    """Draw the curves of each set in a file of its own, whose name ends with that of the set."""
    import drawing

    for (data,), runs in harness.grouped(records, "data").items():
        drawn, axes = drawing.panels(4, 5.6, 2)
        for number, run in enumerate(run for run in runs if "curve" in run):
            steps, seconds, *scores = zip(*run["curve"], strict=True)
            for ax, (y, x) in zip(axes, product(scores, (steps, seconds)), strict=True):
                ax.plot(x, y, label=run["key"]["method"], ms=4, lw=1.2, **drawing.style(number))
        for ax, (y, x) in zip(axes, product(("nMSE", "bound"), ("steps", "s")), strict=True):
            drawing.finish(ax, "xy" if y == "nMSE" else "x", xlabel=x, ylabel=y)
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
        drawn.savefig(path.with_stem(f"{path.stem}-{data}"), dpi=150)


harness.command(
    globals(),
    limit=None,
    data=harness.Some(datasets.UCI, ("kin40k", "protein", "keggdirected")),
    methods=METHODS,
    marks=([100, 200, 300, 500, 700, 1_000, 1_400, 2_000], [20, 40]),
    batch_rows=(1_024, 100),
    rows=(None, 400),
    dtype="float32",
    kernel="rbf(ard=true)",
)
