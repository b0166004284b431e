"""Combined experts: how well they predict with the hyper-parameters that all share.

    python workflows/benchmarks/experts.py [--data ackley] [--experts 2,20] [--figure ackley.png]

After the experiments of the paper on optimal weights ([OPT], section 5).  "optimal" has weights
from the projection with the default shrinkage of sparse experts, "g = 0" and "g = 0.1" others;
"paper" the paper's with its variance, "paper linear" with the error variance of the weighted sum;
"one GP" is SGPR with the same inducing inputs, "trivial" the mean of y.

``ackley``: 10,000 rows drawn at random in [-1, 1]² with noise of the variance that the model has
(``--noise 0`` for none), 2,500 places on a grid, RBF kernel with fixed hyper-parameters, mean zero;
128 rows drawn at random as inducing inputs of all sparse experts.  RMSE and NLPD are against the
function without noise, NLPD of predictions with noise; seconds are those of fit and prediction.

Others, with DASKGP_DATA/uci: four fifths of the rows at random to train on, 128 inducing inputs
chosen greedily, RBF with a lengthscale per column, hyper-parameters of one training by FACT with
L-BFGS, or another with ``--training``; scores are in the units of the files.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np

import daskgp
from daskgp import ExpertsGP, kernels, plot

PAPERS = {"weights": "paper", "ridge": 1e-12}  # a ridge of 0 refuses singular systems
RULES = {"PoE": "poe", "gPoE": "gpoe", "BCM": "bcm", "rBCM": "rbcm", "grBCM": "grbcm"}
METHODS: dict[str, dict[str, Any]] = {
    **{name: {"aggregation": rule} for name, rule in RULES.items()},
    "NPAE": {"aggregation": "npae"},
    "optimal": {},
    "g = 0": {"shrinkage": 0.0},
    "g = 0.1": {"shrinkage": 0.1},
    "paper": {**PAPERS, "variance": "paper"},
    "paper linear": {**PAPERS, "variance": "linear"},
}
SPARSE_ONLY = ("g = 0", "g = 0.1", "paper linear")
"""Not measured with exact experts, which have no shrinkage and a dear variance."""
Problems = Iterator[tuple[datasets.Split, dict[str, Any]]]
"""Rows and settings that all methods share."""
LENGTHSCALES = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
COUNTS = {"ackley": (2, 4, 8, 10, 20, 40, 80, 100), "pol": (4, 10, 20), "elevators": (4, 10, 20)}
COUNTS |= dict.fromkeys(("kin40k", "keggdirected", "protein"), (8, 16, 64))
SCORES = {"rmse": ("RMSE", ".3f"), "nlpd": ("NLPD", ".2f"), "seconds": ("seconds", ".2f")}


def keys(options: harness.Options) -> harness.Keys:
    for data in datasets.present(options.data):
        seeds, counts = range(1, options.seeds + 1), options.experts or COUNTS[data]
        yield from harness.runs(options, "expert rows", data=[data], seed=seeds, experts=counts)


def measure(key: dict, options: harness.Options) -> dict:
    logging.getLogger("daskgp").setLevel(logging.ERROR)  # paper's weights are ill-conditioned
    row: dict[str, Any] = {}
    for split, settings in (ackley if key["data"] == "ackley" else uci)(key, options):
        constant = (np.full(len(split.y_test), part) for part in (split.y.mean(), split.y.var()))
        found = {"trivial": harness.Outcome(0.0, 0.0, *constant)}
        if key["expert"] == "sparse":
            found["one GP"] = harness.fitted(daskgp.SGPR(**settings), split)
        for name in options.methods:
            if key["expert"] == "sparse" or name not in SPARSE_ONLY:
                chunks = {"partition": "chunks"} if key["data"] == "ackley" else {}
                own = {"expert": key["expert"], "n_experts": key["experts"], **chunks}
                model = ExpertsGP(**own, **settings, **METHODS[name])
                found[name] = harness.fitted(model, split)
        for name, outcome in found.items():
            scores = outcome.scored(split.y_test, "rmse", "nlpd")
            scores["seconds"] = outcome.fit_s + outcome.predict_s
            for score in SCORES:
                row.setdefault(name, {}).setdefault(score, []).append(scores.get(score))
    return row


def ackley(key: dict, options: harness.Options) -> Problems:
    """Yield rows with noise and places without for fixed hyper-parameters ([OPT] 5.1.2)."""
    split = datasets.ackley_square(key["rows"] or 10_000, options.noise, key["seed"])
    settings = {"mean": "zero", "standardize": False, "optimizer": None, "noise_variance": 0.025}
    if key["expert"] == "sparse":
        settings["inducing"] = split.X[: options.inducing]  # rows are in random order
    for reach in options.lengthscales:
        yield split, {**settings, "kernel": kernels.RBF(reach, 1.0)}


def uci(key: dict, options: harness.Options) -> Problems:
    """Yield a split with the hyper-parameters of one training."""
    split = datasets.uci(key["data"]).again(0.8, key["seed"], key["rows"])
    own = {"n_experts": key["experts"], "n_inducing": options.inducing, "progress": False}
    own |= {"training": options.training, "max_iter": options.rounds, "random_state": key["seed"]}
    model = ExpertsGP(kernels.RBF(ard=True), **own).fit(split.X, split.y)
    learned = {"kernel": model.kernel_, "noise_variance": model.noise_variance_, "optimizer": None}
    yield split, {**learned, "inducing": model.inducing_, "random_state": key["seed"]}


def spread(records: list[dict], name: str, score: str) -> tuple[float, float]:
    """Return the mean of a score, or median of seconds, over all runs, and its deviation."""
    found = [v for r in records for v in r.get(name, {}).get(score, []) if v is not None]
    middle = np.median if score == "seconds" else np.mean
    return (float(middle(found)), float(np.std(found))) if found else (np.nan, np.nan)


def table(records: list[dict], options: harness.Options) -> str:
    """Return a table per score: mean ± standard deviation over lengthscales and draws."""
    names = [n for n in (*METHODS, "one GP", "trivial") if any(n in r for r in records)]
    groups, parts = harness.grouped(records, "data", "expert", "experts"), []
    for score, (title, form) in SCORES.items():
        lines = []
        for labels, runs in groups.items():
            found = [spread(runs, name, score) for name in names]
            cells = (f"{m:{form}} ± {s:{form}}".replace("nan ± nan", "–") for m, s in found)
            cells = (cell.replace("-", "−") for cell in cells)
            lines.append([*map(str, labels), *cells])
        parts.append(harness.markdown([title, "", "M", *names], lines))
    return "\n\n".join(parts)


def figure(records: list[dict], path: Path) -> None:
    """Draw scores against the number of experts, without the paper's: they need other axes."""
    groups = harness.grouped(records, "experts")
    names, counts = [*RULES, "NPAE", "optimal"], [count for (count,) in groups]

    def middles(name: str, score: str) -> np.ndarray:
        return np.array([spread(runs, name, score)[0] for runs in groups.values()])

    panels = {
        title: {name: middles(name, score) for name in names if name in records[0]}
        for score, (title, _) in SCORES.items()
    }
    one = {title: spread(records, "one GP", score)[0] for score, (title, _) in SCORES.items()}
    reference = one if "one GP" in records[0] else None
    plot.tradeoff(counts, panels, name="experts", reference=reference, path=str(path))


SIZES = {"rows": (None, 600), "inducing": (128, 16), "seeds": 1, "experts": ([], [4])}
OTHERS = {"lengthscales": (LENGTHSCALES, [0.4, 1.2]), "training": "fact", "rounds": (100, 3)}
harness.command(
    globals(), data=COUNTS, methods=METHODS, expert="sparse", noise=0.025, **SIZES, **OTHERS
)
