"""Show which method to take on which data, with default settings alone.

    DASKGP_DATA=folder python workflows/benchmarks/defaults.py --out results.jsonl [--methods a,b]
    python workflows/benchmarks/defaults.py --out results.jsonl --table
    make bench-quick     # two generated sets of 4,000 rows, drawn as a figure

Data are those of ``DASKGP_DATA/uci``, split 0 (what is absent is left out), and two generated sets:
Friedman's first function (20,000 rows of ten features, of which five matter; noise of variance 1)
and a smooth function of four features whose noise grows with one of them; and the fields of
``datasets`` (``--sets satellite,air,stations,terrain,exponential,survey``).  Scores are those of
predictions of y with its noise, in units of the standard deviation of the training target.

daskgp's estimators have no setting at all and are given the data as they are; the exact GP has
5,000 rows.  The peers are given standardised inputs and targets, without constant columns:

- ``gpboost``: GPBoost's Vecchia approximation, Matérn-3/2 with a lengthscale per feature
  (``matern_ard``), random ordering, 20 neighbours to fit and 60 to predict, L-BFGS; for fields of
  two coordinates of one unit exponential with one lengthscale and a mean, 50 neighbours to predict.
- ``gpboost-vif``: its ``full_scale_vecchia``, the same with 30 neighbours to fit and 200 inducing
  points by k-means++.
- ``gpytorch``: GPyTorch's SVGP, 1,024 inducing inputs that start at centres of k-means and are
  trained, whitened, Matérn-3/2 with a lengthscale per feature, float32, batches of 1,024, Adam at
  0.01 and a tenth of that after half, and again after three quarters, of 100 epochs or of 3,000
  steps, whichever are more.
- ``trees``: scikit-learn's HistGradientBoostingRegressor, learning rate 0.05, at most 3,000 trees,
  stopped when a tenth of the rows has not improved for 50; it has no variance.
"""

from pathlib import Path

import datasets
import harness
import numpy as np
from peers import gpboost, gpytorch, scikit_learn

import daskgp

SETS = (*datasets.UCI, "friedman", "heteroscedastic", *datasets.FIELDS)
ISOTROPIC = ("satellite", "exponential", "survey")
"""Fields of two coordinates of one unit, in which peers have one lengthscale."""
EXACT_ROWS = 5_000
DASKGP = {
    "lma": daskgp.LMA,
    "vecchia": daskgp.VecchiaGP,
    "sgpr": daskgp.SGPR,
    "svgp": daskgp.SVGP,
    "decoupled": daskgp.DecoupledGP,
    "experts": daskgp.ExpertsGP,
    "cagp": daskgp.CaGP,
    "ssgp": daskgp.SparseSpectrumGP,
    "exact": daskgp.ExactGP,
}
PEERS = {
    "gpboost": gpboost.vecchia,
    "gpboost-vif": gpboost.full_scale_vecchia,
    "gpytorch": gpytorch.svgp,
    "trees": scikit_learn.trees,
}
METHODS = (*DASKGP, *PEERS)


def keys(options: harness.Options) -> harness.Keys:
    present = datasets.present(options.sets)
    for method in options.methods:
        yield from harness.runs(options, "rows", set=present, method=[method])


def measure(key: dict, options: harness.Options) -> dict:
    split, method = datasets.table(key["set"], key["rows"], options.folder), key["method"]
    sizes, unit = {"n": len(split.y), "d": split.X.shape[1]}, split.y.std()
    scores = ("rmse", "nlpd", "coverage")
    if method in PEERS:
        field = key["set"] in ISOTROPIC
        given = split.standardised(inputs=not field)
        peer = gpboost.exponential if field and method == "gpboost" else PEERS[method]
        return {**sizes, **peer(given, options.threads).scored(given.y_test, *scores)}
    drawn = split.drawn(EXACT_ROWS) if method == "exact" else split
    found = harness.fitted(DASKGP[method](), drawn)
    scaled = found._replace(mean=found.mean / unit, variance=found.variance / unit**2)
    return {**sizes, **scaled.scored(np.asarray(split.y_test) / unit, *scores)}


def table(records: list[dict], options: harness.Options) -> str:
    scores = "rmse nlpd coverage seconds processor_s peak_mib"
    return harness.tables(records, scores, {"method": METHODS}, set=SETS)


def figure(records: list[dict], path: Path) -> None:
    """Draw RMSE and NLPD of every method against its time, a column for each set."""
    import drawing

    sets = [name for name in SETS if any(record["key"]["set"] == name for record in records)]
    drawn, axes = drawing.panels(2 * len(sets), 5, 2)
    for at, ax in enumerate(axes):
        score, name = ("rmse", "nlpd")[at // len(sets)], sets[at % len(sets)]
        own = [record for record in records if record["key"]["set"] == name]
        found = {r["key"]["method"]: (r["processor_s"], r.get(score)) for r in own}
        drawing.points(ax, found, f"processor seconds|{score.upper()}", beside=False, title=name)
    handles = axes[0].get_legend_handles_labels()
    drawn.legend(*handles, loc="outside upper center", ncols=4)
    drawn.savefig(path)


harness.command(globals(), limit=20.0, sets=SETS, methods=METHODS, rows=(None, 400))
