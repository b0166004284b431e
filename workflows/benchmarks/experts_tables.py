"""Combined experts on UCI data: scores of all rules after one training, beside those of the paper.

    DASKGP_DATA=folder python workflows/benchmarks/experts_tables.py [--data kin40k] [--seeds 10]
        [--held] [--training fedavg]

After section 5.2 of the paper on optimal weights ([OPT], tables 2 and 3): four fifths of the rows
at random to train on, another draw for each seed; RBF with a lengthscale per column; 128 inducing
inputs, chosen greedily and then trained, or held there.  All rules share what one training for
each number of experts has learned, by FACT with L-BFGS or another way; "one GP" is SGPR with the
same, "SGPR" has a training of its own on all rows, "trivial" the mean and variance of y.

"optimal" has weights from the projection with the default shrinkage, "g = 0" and "g = 0.1" others,
"printed" those of the paper with its variance.  Scores are of y with its noise in the units of the
files, means ± standard deviations over seeds; the paper's are below, the better of both is bold.
Seconds are those of fit and prediction with hyper-parameters known, and of training.  The paper's
are on a GPU, without a unit.
"""

import csv
import logging
from itertools import product
from pathlib import Path
from typing import Any

import datasets
import harness
import numpy as np

import daskgp
from daskgp import ExpertsGP, kernels

RULES = ("PoE", "gPoE", "BCM", "rBCM", "grBCM", "NPAE")
METHODS: dict[str, dict[str, Any]] = {
    **{name: {"aggregation": name.lower()} for name in RULES},
    "optimal": {},
    "g = 0": {"shrinkage": 0.0},
    "g = 0.1": {"shrinkage": 0.1},
    "printed": {"weights": "paper", "variance": "paper", "ridge": 1e-12},  # 0 refuses singular ones
}
COUNTS = dict.fromkeys(("pol", "elevators"), (4, 10, 20))
COUNTS |= dict.fromkeys(("kin40k", "keggdirected", "protein"), (8, 16, 64))
SCORES = {"rmse": ("RMSE", ".3f"), "nlpd": ("NLPD", ".2f"), "seconds": ("seconds", ".1f")}
COLUMNS = ("SGPR", *METHODS, "one GP")
MORE = {"rmse": "trivial", "nlpd": "trivial", "seconds": "training"}
"""Last column of the table of each score."""
Numbers = dict[str, tuple[float, float]]
"""Mean and standard deviation of a score, by methods."""


def keys(options: harness.Options) -> harness.Keys:
    """Yield one expert, which is SGPR, and several; all of a seed before the next one."""
    for seed, data in product(range(1, options.seeds + 1), datasets.present(options.data)):
        lists = {"data": [data], "seed": [seed], "experts": [1, *(options.experts or COUNTS[data])]}
        yield from harness.runs(options, "rows inducing training rounds held", **lists)


def measure(key: dict, options: harness.Options) -> dict:
    logging.getLogger("daskgp").setLevel(logging.ERROR)  # printed weights are ill-conditioned
    split = datasets.uci(key["data"]).again(0.8, key["seed"], key["rows"])
    own = {"n_inducing": key["inducing"], "train_inducing": not key["held"]}
    own |= {"max_iter": key["rounds"], "random_state": key["seed"]}
    kernel = kernels.RBF(ard=True)
    if key["experts"] == 1:
        constant = (np.full(len(split.y_test), part) for part in (split.y.mean(), split.y.var()))
        sgpr = harness.fitted(daskgp.SGPR(kernel, **own), split)
        found = {"SGPR": sgpr, "trivial": harness.Outcome(0.0, 0.0, *constant)}
    else:
        model = ExpertsGP(kernel, n_experts=key["experts"], training=key["training"], **own)
        found = {"training": harness.fitted(model, split)}
        known = {"kernel": model.kernel_, "noise_variance": model.noise_variance_}
        known |= {"inducing": model.inducing_, "optimizer": None, "random_state": key["seed"]}
        found["one GP"] = harness.fitted(daskgp.SGPR(**known), split)
        for name in options.methods:
            rule = ExpertsGP(n_experts=key["experts"], **known, **METHODS[name])
            found[name] = harness.fitted(rule, split)
    return {name: scored(name, outcome, split) for name, outcome in found.items()}


def scored(name: str, outcome: harness.Outcome, split: datasets.Split) -> dict[str, Any]:
    """Return scores and seconds; of a training the seconds alone."""
    scores = {} if name == "training" else outcome.scored(split.y_test, "rmse", "nlpd")
    return scores | {"seconds": outcome.fit_s + (outcome.predict_s if scores else 0.0)}


def spread(runs: list[dict], score: str) -> Numbers:
    """Return mean and standard deviation over the runs, by methods."""
    found: dict[str, list[float]] = {}
    for run, name in product(runs, (*COLUMNS, MORE[score])):
        value = run.get(name, {}).get(score)
        if value is not None:
            found.setdefault(name, []).append(value)
    deviation = {name: float(np.std(of)) if len(of) > 1 else np.nan for name, of in found.items()}
    return {name: (float(np.mean(of)), deviation[name]) for name, of in found.items()}


def published(data: str, experts: int, score: str) -> Numbers:
    """Return what the paper has; its spread of seconds is left out."""
    with Path(__file__).with_name("published").joinpath("experts.csv").open() as file:
        rows = [
            r for r in csv.DictReader(file) if (r["data"], int(r["experts"])) == (data, experts)
        ]
    spreads = f"{score}_spread"
    return {row["method"]: (float(row[score]), float(row.get(spreads, "nan"))) for row in rows}


def line(labels: list[str], own: Numbers, other: Numbers, score: str) -> list[str]:
    """Return a row of a table; a score is bold where another's is worse."""
    form, cells = SCORES[score][1], []
    for name in (*COLUMNS, MORE[score]):
        middle, deviation = own.get(name, (np.nan, np.nan))
        text = f"{middle:{form}} ± {deviation:{form}}".replace(" ± nan", "").replace("nan", "–")
        better = score != "seconds" and middle < other.get(name, (-np.inf,))[0]
        cells.append(f"**{text}**" if better else text)
    return [*labels, *(cell.replace("-", "−") for cell in cells)]


def table(records: list[dict], options: harness.Options) -> str:
    """Return a table per score, with a row of the paper below each of this package."""
    groups, parts = harness.grouped(records, "data", "training", "held", "experts"), []
    for score, (title, _) in SCORES.items():
        lines = []
        for (data, training, held, count), runs in groups.items():
            if count > 1:
                one = groups.get((data, training, held, 1), [])
                own, paper = spread(runs + one, score), published(data, count, score)
                label = (
                    data
                    + (", held" if held else "")
                    + ("" if training == "fact" else f", {training}")
                )
                lines += [line([label, str(count)], own, paper, score)]
                lines += [line(["[OPT]", ""], paper, own, score)] if paper else []
        parts.append(harness.markdown([title, "M", *COLUMNS, MORE[score]], lines))
    return "\n\n".join(parts)


harness.command(
    globals(),
    limit=None,
    data=COUNTS,
    methods=METHODS,
    experts=([], [4]),
    seeds=(5, 1),
    rows=(None, 400),
    inducing=(128, 16),
    rounds=(100, 3),
    training="fact",
    held=False,
)
