"""Which tool for which work: this package and others on the same rows with equal budgets.

    DASKGP_DATA=folder python workflows/benchmarks/tools.py --threads 1 --out results.jsonl
    python workflows/benchmarks/tools.py --out results.jsonl --table

Sets are thinned to ``--rows`` rows to learn from and ``--places`` places, at random: temperatures
under clouds (``satellite``), a generated field with such gaps (``exponential``), heights
(``terrain``), a table (``elevators``), a generated Matérn-3/2 field on the unit square, of the kind
of the KAUST competition (``square``), a cube of air temperatures (``air``), a generated survey
along lines (``survey``) and another table (``protein``).  ``TASKS`` says what all peers are told:
the smoothness, whether one lengthscale serves all columns, and whether places lie in gaps: then
they are predicted from 200 rows nearby by methods that have such, else from 100.  Peers are given
standardised rows; columns of one unit are as they are.

A fit has ``--budget`` processor seconds.  Methods that improve step by step stop there, the others
take what they need, and ``--limit`` minutes end a run.  Scores are of y with its noise, in standard
deviations of the training target.

- ``daskgp vecchia``, ``lma``, ``sgpr``: no setting at all; ``daskgp vecchia told`` is told what
  peers are, and has 20 neighbours to fit; ``daskgp auto`` has the budget, and is told whether
  places lie in gaps, and of some of them.
- ``gpboost``: Vecchia, 20 neighbours to fit; ``gpboost full-scale``: also 100 inducing points.
- ``gpytorch svgp``: 512 inducing inputs from k-means, Adam at 0.01, which falls at a half and three
  quarters of the budget, batches of 1,024, float32; ``gpytorch vnngp``: 50 neighbours, batches of
  256, all else alike, q starts from the targets.
- ``gpflow sgpr``, ``gpjax sgpr``: 512 inducing inputs from k-means, trained by L-BFGS, float64.
- ``muygps``: 50 neighbours, hyper-parameters by leave-one-out likelihood of 2,000 rows.
- ``fvgp``: the exact GP of 2,500 rows at random, trained by its local optimiser.
- ``trees``: scikit-learn's histogram boosting, at most 3,000 trees, stopped by a tenth held out,
  whose mean square error is its variance everywhere; for gaps that of regions held out.
"""

import time
from pathlib import Path

import datasets
import harness
import numpy as np
from peers import fvgp, gpboost, gpflow, gpjax, muygps, scikit_learn, vnngp
from peers.tasks import Task

import daskgp

TASKS: dict[str, tuple[float, bool, bool]] = {
    "satellite": (0.5, True, True),
    "exponential": (0.5, True, True),
    "terrain": (1.5, False, False),
    "elevators": (1.5, False, False),
    "square": (1.5, True, False),
    "air": (1.5, False, True),
    "survey": (0.5, True, True),
    "protein": (0.5, False, False),
}
"""Smoothness, one lengthscale for all columns, places in gaps."""
SEEN_PLACES = 2_000
"""Places in gaps that AutoGP is told of."""
OURS = ("daskgp vecchia", "daskgp vecchia told", "daskgp lma", "daskgp sgpr", "daskgp auto")
PEERS = {
    "gpboost": gpboost.told,
    "gpboost full-scale": gpboost.full_scale,
    "trees": scikit_learn.spread_trees,
    "muygps": muygps.fitted,
    "gpflow sgpr": gpflow.sgpr_within,
    "gpytorch svgp": vnngp.svgp,
    "gpytorch vnngp": vnngp.vnngp,
    "gpjax sgpr": gpjax.sgpr,
    "fvgp": fvgp.exact,
}
METHODS = (*OURS, *PEERS)
SCORES = ("rmse", "mae", "nlpd", "crps", "interval", "coverage")


def rows_of(name: str, rows: int, places: int, folder: Path) -> datasets.Split:
    """Return so many rows and places of a set, at random."""
    known = datasets.table(name, None, folder) if rows > 1_000 else tiny(name, rows, folder)
    few, rng = known.drawn(rows), np.random.default_rng(1)
    kept = np.sort(rng.permutation(len(known.y_test))[:places])
    return few._replace(X_test=few.X_test[kept], y_test=few.y_test[kept], f_test=None)


def tiny(name: str, rows: int, folder: Path) -> datasets.Split:
    """Return a small field, or all rows of a file."""
    return datasets.table(name, rows if name in datasets.CASES else None, folder)


def keys(options: harness.Options) -> harness.Keys:
    present = datasets.present(options.sets)
    for name in present:
        yield from harness.runs(options, "rows places budget", set=[name], method=options.methods)


def measure(key: dict, options: harness.Options) -> dict:
    name, method, threads = key["set"], key["method"], options.threads
    split = rows_of(name, key["rows"], key["places"], options.folder)
    task = Task(*TASKS[name], key["budget"], threads)
    given = split.standardised(inputs=not task.isotropic)
    sizes = {"n": len(split.y), "d": given.X.shape[1], "places": len(split.y_test)}
    if method in PEERS:
        return {**sizes, **PEERS[method](given, task).scored(given.y_test, *SCORES)}
    centre, unit = split.y.mean(), split.y.std()
    found = ours(split, method.removeprefix("daskgp "), task)
    moments = {"mean": (found.mean - centre) / unit, "variance": found.variance / unit**2}
    return {**sizes, **found._replace(**moments).scored(given.y_test, *SCORES)}


def ours(split: datasets.Split, method: str, task: Task) -> harness.Outcome:
    """Fit an estimator of this package without settings, AutoGP within the budget."""
    began, more, remarks = time.process_time(), {}, {}
    if method == "auto":
        wanted = "gaps" if task.gaps else "interpolate"
        model = daskgp.AutoGP(time_budget=task.seconds, task=wanted, random_state=0)
        more = {"places": split.drawn_places(SEEN_PLACES)} if task.gaps else {}
    elif method == "vecchia told":
        kind = {0.5: daskgp.kernels.Matern12, 1.5: daskgp.kernels.Matern32}[task.smoothness]
        near = {"n_neighbours": 20, "predict_neighbours": task.neighbours}
        model = daskgp.VecchiaGP(kind(ard=not task.isotropic), **near)
    else:
        model = {"vecchia": daskgp.VecchiaGP, "lma": daskgp.LMA, "sgpr": daskgp.SGPR}[method]()
    model.set_params(progress=False).fit(split.X, split.y, **more)
    fitted = time.process_time()
    mean, std = model.predict(split.X_test, return_std=True, include_noise=True)
    if method == "auto":
        remarks = {"remark": f"{model.chosen_.label}, {model.chosen_.kernel}"}
    return harness.Outcome(fitted - began, time.process_time() - fitted, mean, std**2, remarks)


def table(records: list[dict], options: harness.Options) -> str:
    numbers = f"{' '.join(SCORES)} fit_s predict_s seconds peak_mib"
    return harness.tables(records, numbers, {"method": METHODS}, set=tuple(TASKS))


harness.command(
    globals(),
    limit=4.0,
    sets=tuple(TASKS),
    methods=METHODS,
    rows=(20_000, 400),
    places=(5_000, 100),
    budget=(60.0, 5.0),
)
