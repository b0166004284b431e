"""Combined experts: how well they predict with fixed hyper-parameters that all share.

    python workflows/benchmarks/experts.py [--experts 2,20] [--seeds 10] [--figure boxes.png]

After section 5.1.2 of the paper on optimal weights ([OPT]): 10,000 rows of the Ackley function
drawn at random in [-1, 1]² with noise of the variance that the model has (``--noise 0`` for none),
2,500 places on a grid, RBF kernel with fixed hyper-parameters, mean zero; 128 rows drawn at random
as inducing inputs of all sparse experts.  RMSE and NLPD are against the function without noise,
NLPD of predictions with noise; seconds are those of fit and prediction.

"optimal" has weights from the projection with the default shrinkage of sparse experts, "g = 0" and
"g = 0.1" others; "paper" the paper's with its variance, "paper linear" with the error variance of
the weighted sum; "one GP" is SGPR with the same inducing inputs, "trivial" the mean of y.

The figure has a box for each rule and number of experts: quartiles over lengthscales and seeds,
with a dotted line at the mean ([OPT], figures 9 to 12).
"""

import logging
from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np

import daskgp
from daskgp import ExpertsGP, kernels

PAPERS = {"weights": "paper", "ridge": 1e-12}  # a ridge of 0 refuses singular systems
RULES = ("PoE", "gPoE", "BCM", "rBCM", "grBCM", "NPAE")
METHODS: dict[str, dict[str, Any]] = {
    **{name: {"aggregation": name.lower()} for name in RULES},
    "optimal": {},
    "g = 0": {"shrinkage": 0.0},
    "g = 0.1": {"shrinkage": 0.1},
    "paper": {**PAPERS, "variance": "paper"},
    "paper linear": {**PAPERS, "variance": "linear"},
}
SPARSE_ONLY = ("g = 0", "g = 0.1", "paper linear")
"""Not measured with exact experts, which have no shrinkage and a dear variance."""
LENGTHSCALES = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
SCORES = {"rmse": ("RMSE", ".3f"), "nlpd": ("NLPD", ".2f"), "seconds": ("seconds", ".2f")}


def keys(options: harness.Options) -> harness.Keys:
    seeds = range(1, options.seeds + 1)
    return harness.runs(options, "expert rows", seed=seeds, experts=options.experts)


def measure(key: dict, options: harness.Options) -> dict:
    """Return lists of scores over lengthscales, for each method."""
    logging.getLogger("daskgp").setLevel(logging.ERROR)  # paper's weights are ill-conditioned
    split = datasets.ackley_square(key["rows"], options.noise, key["seed"])
    constant = (np.full(len(split.y_test), part) for part in (split.y.mean(), split.y.var()))
    trivial, row = harness.Outcome(0.0, 0.0, *constant), {}
    shared = {"mean": "zero", "standardize": False, "optimizer": None, "noise_variance": 0.025}
    own = {"expert": key["expert"], "n_experts": key["experts"], "partition": "chunks"}
    names = [n for n in options.methods if key["expert"] == "sparse" or n not in SPARSE_ONLY]
    if key["expert"] == "sparse":
        shared["inducing"] = split.X[: options.inducing]  # rows are in random order
    for reach in options.lengthscales:
        settings, found = {**shared, "kernel": kernels.RBF(reach, 1.0)}, {"trivial": trivial}
        if key["expert"] == "sparse":
            found["one GP"] = harness.fitted(daskgp.SGPR(**settings), split)
        for name in names:
            found[name] = harness.fitted(ExpertsGP(**own, **settings, **METHODS[name]), split)
        for name, outcome in found.items():
            scores = outcome.scored(split.y_test, "rmse", "nlpd")
            scores["seconds"] = outcome.fit_s + outcome.predict_s
            for score in SCORES:
                row.setdefault(name, {}).setdefault(score, []).append(scores.get(score))
    return row


def values(records: list[dict], name: str, score: str) -> list[float]:
    """Return all values of a score."""
    return [v for r in records for v in r.get(name, {}).get(score, []) if v is not None]


def spread(records: list[dict], name: str, score: str) -> tuple[float, float]:
    """Return the mean of a score, or median of seconds, over all runs, and its deviation."""
    found = values(records, name, score)
    middle = np.median if score == "seconds" else np.mean
    return (float(middle(found)), float(np.std(found))) if found else (np.nan, np.nan)


def table(records: list[dict], options: harness.Options) -> str:
    """Return a table per score: mean ± standard deviation over lengthscales and draws."""
    names = [n for n in (*METHODS, "one GP", "trivial") if any(n in r for r in records)]
    groups, parts = harness.grouped(records, "expert", "experts"), []
    for score, (title, form) in SCORES.items():
        lines = []
        for labels, runs in groups.items():
            found = [spread(runs, name, score) for name in names]
            cells = (f"{m:{form}} ± {s:{form}}".replace("nan ± nan", "–") for m, s in found)
            cells = (cell.replace("-", "−") for cell in cells)
            lines.append([*map(str, labels), *cells])
        parts.append(harness.markdown([title, "M", *names], lines))
    return "\n\n".join(parts)


def figure(records: list[dict], path: Path) -> None:
    """Draw boxes of errors and densities, without the paper's weights: they need other axes."""
    import drawing

    groups = {str(count): runs for (count,), runs in harness.grouped(records, "experts").items()}
    names = [name for name in (*RULES, "optimal", "one GP") if name in records[0]]
    drawn, axes = drawing.panels(2, 6.6, 2)
    for ax, (score, (title, _)) in zip(axes, list(SCORES.items())[:2], strict=True):
        found = {n: [values(runs, n, score) for runs in groups.values()] for n in names}
        drawing.boxes(ax, list(groups), found, f"experts|{title}")
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    drawn.savefig(path, dpi=150)


harness.command(
    globals(),
    methods=METHODS,
    experts=([2, 4, 8, 10, 20, 40, 80, 100], [4]),
    expert="sparse",
    noise=0.025,
    rows=(10_000, 600),
    inducing=(128, 16),
    seeds=1,
    lengthscales=(LENGTHSCALES, [0.4, 1.2]),
)
