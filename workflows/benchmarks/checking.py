"""Show what folds tell of predictions in gaps, and what a learned spread is worth.

    DASKGP_DATA=folder python workflows/benchmarks/checking.py --out results.jsonl
    python workflows/benchmarks/checking.py --out results.jsonl --table

Folds: ``LMA`` without a setting on the land-surface temperatures of Heaton et al. 2019 (every third
row and column of the grid: 11,747 cells to learn from, 4,750 in gaps under clouds).  ``gaps`` are
the scores of the places in gaps; ``random`` and ``blocks`` those of ``cross_validate`` on the cells
to learn from in three folds, the blocks made for the places in gaps.

Spread: ``DecoupledGP(calibrate="random")`` and ``SVGP`` without a setting on split 0 of tables;
scores are in units of the standard deviation of the training target, ``nlpd_plain`` without the
factor on the spread.
"""

import datasets
import harness
import numpy as np

import daskgp
from daskgp import metrics

FIELD, SETS = "satellite", ("kin40k", "protein")
STEP, FOLDS = 3, 3


def keys(options: harness.Options) -> harness.Keys:
    for data in datasets.present(options.data):
        whats = ("gaps", "random", "blocks") if data == FIELD else ("decoupled", "svgp")
        yield from harness.runs(options, data=[data], what=whats)


def coarse(split: datasets.Split, step: int) -> datasets.Split:
    """Return every so many rows and columns of a grid."""
    X = np.concatenate([split.X, split.X_test])
    ranks = [np.unique(column, return_inverse=True)[1] for column in X.T]
    keep = np.all([rank % step == 0 for rank in ranks], axis=0)
    train, test = keep[: len(split.X)], keep[len(split.X) :]
    return datasets.Split(split.X[train], split.y[train], split.X_test[test], split.y_test[test])


def measure(key: dict, options: harness.Options) -> dict:
    if key["what"] in ("decoupled", "svgp"):
        return spread(key, options)
    split = coarse(datasets.table(key["data"]), STEP * (6 if options.tiny else 1))
    model = daskgp.LMA()
    if key["what"] == "gaps":
        model.fit(split.X, split.y)
        mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
        return {"n": len(split.y), **metrics.summary(split.y_test, mean, std**2)}
    blocks = split.X_test if key["what"] == "blocks" else None
    found = daskgp.cross_validate(model, split.X, split.y, folds=FOLDS, blocks=blocks)
    return {"n": len(split.y), **found.pooled}


def spread(key: dict, options: harness.Options) -> dict:
    split = datasets.table(key["data"], 400 if options.tiny else None)
    few = {"max_iter": 20} if options.tiny else {}
    decoupled = key["what"] == "decoupled"
    model = daskgp.DecoupledGP(calibrate="random", **few) if decoupled else daskgp.SVGP(**few)
    mean, std = model.fit(split.X, split.y).predict(
        split.X_test, return_std=True, include_noise=True
    )
    unit = split.y.std()
    y, mean, std = (np.asarray(a) / unit for a in (split.y_test, mean, std))
    scores = metrics.summary(y, mean, std**2)
    plain = metrics.nlpd(y, mean, (std / model.spread_) ** 2)
    return {"n": len(split.y), **scores, "nlpd_plain": plain, "spread": model.spread_}


def table(records: list[dict], options: harness.Options) -> str:
    numbers = "n rmse nlpd crps coverage_95 nlpd_plain spread seconds"
    return harness.report(records, "data what", numbers)


harness.command(globals(), data=(FIELD, *SETS))
