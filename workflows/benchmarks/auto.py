"""Show what AutoGP chooses within a budget, how good it is, and if the budget holds.

    DASKGP_DATA=folder python workflows/benchmarks/auto.py --out results.jsonl [--sets a,b]
    python workflows/benchmarks/auto.py --out results.jsonl --table

Data are those of ``defaults.py``, which gives every single method and the peers the same rows
(split 0); scores are in units of the standard deviation of the training target.  ``over`` is the
time of the fit over the budget, ``held_out`` the NLPD that the search promised, from a fit to
fewer rows.  Of fields whose places lie in gaps the task is "gaps", and the search is told of some
of the places.
"""

import sys
import time

import datasets
import harness
import numpy as np

import daskgp

SETS = (*datasets.UCI, "friedman", "heteroscedastic", *datasets.FIELDS)
GAPS = ("satellite", "air", "stations", "exponential", "survey")
"""Fields whose places lie in regions without rows."""
PLACES = 5_000
"""Places that the search is told of."""


def keys(options: harness.Options) -> harness.Keys:
    present = datasets.present(options.sets)
    yield from harness.runs(options, "rows", set=present, budget=options.budgets)


def measure(key: dict, options: harness.Options) -> dict:
    split = datasets.table(key["set"], key["rows"], options.folder)
    unit, gaps = split.y.std(), key["set"] in GAPS
    task = "gaps" if gaps else "interpolate"
    model = daskgp.AutoGP(time_budget=key["budget"], task=task, progress=False)
    began = time.perf_counter()
    model.fit(split.X, split.y, places=split.drawn_places(PLACES) if gaps else None)
    fitted = time.perf_counter()
    scores = daskgp.check(model.best_, split.X_test, split.y_test).scores
    checked = time.perf_counter()
    best = model.chosen_
    print(model.leaderboard_, file=sys.stderr)
    return {
        "n": len(split.y),
        "d": split.X.shape[1],
        "remark": f"{best.label}, {best.kernel}, {len(model.leaderboard_)} trials",
        "over": (fitted - began) / key["budget"],
        "held_out": best.scores["nlpd"] - np.log(unit),
        "rmse": scores["rmse"] / unit,
        "nlpd": scores["nlpd"] - np.log(unit),
        "coverage": scores["coverage_95"],
        "fit_s": fitted - began,
        "predict_s": checked - fitted,
    }


table = harness.reporting("set budget", "rmse nlpd held_out coverage over processor_s largest_mib")
harness.command(
    globals(),
    limit=60.0,
    sets=SETS,
    budgets=([600.0], [20.0]),
    rows=(None, 400),
)
