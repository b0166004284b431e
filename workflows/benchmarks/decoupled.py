"""Scores of decoupled and stochastic variational GPs after as many steps, beside other methods.

    [DASKGP_DATA=folder] python workflows/benchmarks/decoupled.py [--data kin40k]

Standardised targets, noise included; [DGP] = Cheng & Boots 2017.  ``kin40k`` and others of
DASKGP_DATA/uci, split 0, are in memory.  ``ghcn``, place and day of a million daily maxima drawn at
random and the waves of the year, is read from a Zarr store, with 100,000 others to predict; without
DASKGP_DATA it is a generated network.

- ``decoupled``, ``svgp``: ``DecoupledGP`` with 16,384 and 128 functions, ``SVGP`` with 1,024.
- ``ivsgpr``: the incremental variational sparse GP of [DGP] section 5 with 256 inducing inputs,
  whose mirror ascent is the natural gradient of ``SVGP``.
- ``vsgpr``, ``gpr``: ``SGPR`` with 1,024 trained inducing inputs on 4,096 rows drawn at random, and
  ``ExactGP`` on 1,024, both in float64 by at most 100 iterations of L-BFGS.
- ``gpytorch``: GPyTorch's SVGP with 1,024 learned inducing inputs that begin at random rows, by
  Adam at 0.01, with all rows in memory.

The bound is an evidence lower bound of all rows, per row, whose expected log-likelihood is that of
the rows to predict, as the VLB of [DGP]: KL[q || p] is exact, with all columns of its quadratic
form.  ``decoupled_curves.py`` has the bound and the error on the way.
"""

from typing import Any

import datasets
import harness
from datasets import Split
from peers import gpytorch

import daskgp

DASKGP: dict[str, tuple[Any, dict[str, Any]]] = {
    "decoupled": (daskgp.DecoupledGP, {"n_mean": 16_384, "n_covariance": 128}),
    "svgp": (daskgp.SVGP, {"n_inducing": 1_024}),
    "ivsgpr": (daskgp.SVGP, {"n_inducing": 256, "natural": 0.1}),
    "vsgpr": (daskgp.SGPR, {"n_inducing": 1_024, "train_inducing": True}),
    "gpr": (daskgp.ExactGP, {}),
}
FULL = {"vsgpr": 4_096, "gpr": 1_024}
"""Rows of the methods that take all of them in each iteration."""


def keys(options: harness.Options) -> harness.Keys:
    lists = {"data": datasets.present(options.data), "method": options.methods}
    return harness.runs(options, "steps rows kernel dtype", **lists)


def measure(key: dict, options: harness.Options) -> dict:
    split, fit = (
        rows_of(key, options),
        with_gpytorch if key["method"] == "gpytorch" else with_daskgp,
    )
    outcome, marks = fit(split, key, options)
    step = {} if key["method"] in FULL else harness.step_seconds(marks)
    scored = outcome.scored(split.y_test, "nmse", "nlpd", "coverage")
    return {"n": len(split.y), **scored, **step, "iterations": len(marks)}


def rows_of(key: dict, options: harness.Options) -> Split:
    """Return the rows of a set, those of stations lazily from a store."""
    if key["data"] != "ghcn":
        return datasets.table(key["data"], key["rows"]).standardised()
    network = datasets.stations(365 if options.tiny else 3_653, 15 if options.tiny else 1_205)
    split = network.drawn(key["rows"] or 1_000_000)
    path = options.folder / f"ghcn-{len(split.y)}-{options.chunk}.zarr"
    chunks = range(0, len(split.y), options.chunk)
    parts = ((split.X[i : i + options.chunk], split.y[i : i + options.chunk]) for i in chunks)
    if not path.exists():
        datasets.write(path, parts, len(split.y), options.chunk)
    X, y = daskgp.open_dataset(str(path))
    return split._replace(X=X, y=y)


Fitted = tuple[harness.Outcome, list[float]]
"""Prediction with the bound, and seconds at the ends of steps."""


def with_daskgp(split: Split, key: dict, options: harness.Options) -> Fitted:
    """Fit an estimator."""
    (kind, settings), steps, rows = DASKGP[key["method"]], key["steps"], len(split.y)
    if key["method"] in FULL:
        split, steps = split.drawn(FULL[key["method"]]).varying(), min(100, steps)
    else:
        settings = settings | {"batch_rows": options.batch_rows, "dtype": key["dtype"]}
    settings = harness.lowered(settings, max(1, len(split.y) // 2))
    model = kind(key["kernel"], **settings, max_iter=steps)
    outcome, bound = harness.fitted(model, split), harness.bound_of(model, split, rows)
    return outcome._replace(remarks={"bound": bound}), harness.marks(model)


def with_gpytorch(split: Split, key: dict, options: harness.Options) -> Fitted:
    """Train GPyTorch's SVGP from random rows; its seconds are those of steps alone."""
    model = gpytorch.random_svgp(split, key["kernel"], key["dtype"])
    marks = list(model.steps(key["steps"], options.batch_rows))
    mean, variance = model.predict(split.X_test)
    moments, share = (mean, variance - model.noise), model.divergence / len(split.y)
    bound = harness.bound_per_row(split.y_test, moments, model.noise, share)
    return harness.Outcome(marks[-1], None, mean, variance, {"bound": bound}), marks


table = harness.reporting(
    "data method steps", "n nmse bound nlpd coverage fit_s step_s iterations peak_mib"
)
harness.command(
    globals(),
    limit=None,
    data=("kin40k", "protein", "keggdirected", "ghcn"),
    methods=(*DASKGP, "gpytorch"),
    steps=(2_000, 40),
    batch_rows=(1_024, 100),
    rows=(None, 500),
    chunk=(20_000, 200),
    dtype="float32",
    kernel="rbf(ard=true)",
)
