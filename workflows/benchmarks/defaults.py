"""Show which method to take on which data, with default settings alone.

    DASKGP_DATA=folder python workflows/benchmarks/defaults.py --out results.jsonl [--methods a,b]
    python workflows/benchmarks/defaults.py --out results.jsonl --table

Data are those of ``DASKGP_DATA/uci`` (files NAME.npz with X, y and test_mask, of which split 0 is
used; what is absent is left out) and two generated sets: Friedman's first function (20,000 rows of
ten features, of which five matter; noise of variance 1) and a smooth function of four features
whose noise grows with one of them.  Scores are those of predictions of y with its noise, in units
of the standard deviation of the training target.

Each method runs in a process of its own; results are appended to the file, and a script that was
interrupted goes on where it was.  daskgp's estimators have no setting at all and are given the data
as they are.  The peers are given standardised inputs and targets, without constant columns:

- ``gpboost``: GPBoost's Vecchia approximation, Matérn-3/2 with a lengthscale per feature
  (``matern_ard``), random ordering, 20 neighbours to fit and 60 to predict, L-BFGS.
- ``gpboost-vif``: its ``full_scale_vecchia``, the same with 30 neighbours to fit and 200 inducing
  points by k-means++.
- ``gpytorch``: GPyTorch's SVGP, 1,024 inducing inputs that start at centres of k-means and are
  trained, whitened, Matérn-3/2 with a lengthscale per feature, float32, batches of 1,024, Adam at
  0.01 and a tenth of that after half, and again after three quarters, of 100 epochs or of 3,000
  steps, whichever are more.
- ``trees``: scikit-learn's HistGradientBoostingRegressor, learning rate 0.05, at most 3,000 trees,
  stopped when a tenth of the rows has not improved for 50; it has no variance.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import common
import dask
import numpy as np
import peers

import daskgp
from daskgp import metrics

UCI = ("bike", "elevators", "keggdirected", "kin40k", "pol", "protein")
EXACT_ROWS = 5_000


class Table(NamedTuple):
    """Rows to learn from and rows to predict."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


# -- data ------------------------------------------------------------------------------------


def uci(name: str) -> Table:
    """Return split 0 of a set of DASKGP_DATA."""
    found = np.load(Path(os.environ["DASKGP_DATA"], "uci", f"{name}.npz"))
    X, y = found["X"], np.ravel(found["y"])
    test = found["test_mask"][:, 0].astype(bool)
    return Table(X[~test], y[~test], X[test], y[test])


def friedman() -> Table:
    """Return Friedman's first function with unit noise variance."""
    from sklearn.datasets import make_friedman1

    X, y = make_friedman1(22_000, n_features=10, noise=1.0, random_state=0)
    return Table(X[:20_000], y[:20_000], X[20_000:], y[20_000:])


def heteroscedastic() -> Table:
    """Return a smooth function of four features; the noise of one end is ten times the other's."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (22_000, 4))
    f = np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1]) + X[:, 2] ** 2 + 0.5 * X[:, 3]
    y = f + 0.05 * 10 ** ((1 + X[:, 0]) / 2) * rng.standard_normal(len(f))
    return Table(X[:20_000], y[:20_000], X[20_000:], y[20_000:])


GENERATED = {"friedman": friedman, "heteroscedastic": heteroscedastic}
SETS = (*UCI, *GENERATED)


def load(name: str, rows: int | None) -> Table:
    """Return a set, thinned to so many training rows and a ninth of that to predict."""
    table = GENERATED[name]() if name in GENERATED else uci(name)
    if rows is None:
        return table
    rng = np.random.default_rng(0)
    train, test = (
        rng.permutation(len(y))[:most] for y, most in ((table.y, rows), (table.y_test, rows // 9))
    )
    return Table(table.X[train], table.y[train], table.X_test[test], table.y_test[test])


def here(name: str) -> bool:
    """Tell if a set is generated or lies in DASKGP_DATA."""
    data = os.environ.get("DASKGP_DATA")
    return name in GENERATED or bool(data and Path(data, "uci", f"{name}.npz").exists())


# -- methods ---------------------------------------------------------------------------------


def with_daskgp(make: Callable[[], daskgp.estimators.GaussianProcess], rows: int | None = None):
    """Return a function that fits an estimator, to so many rows at most, and predicts."""

    def measure(table: Table, threads: int) -> peers.Outcome:
        picked = np.random.default_rng(0).permutation(len(table.y))[:rows]
        began = time.perf_counter()
        model = make()
        model.set_params(progress=False)
        with dask.config.set(num_workers=threads):
            model.fit(table.X[picked], table.y[picked])
            fitted = time.perf_counter()
            mean, std = model.predict(table.X_test, return_std=True, include_noise=True)
        return peers.Outcome(fitted - began, time.perf_counter() - fitted, mean, std**2)

    return measure


def with_peer(fit: Callable[..., peers.Outcome]):
    """Return a function that standardises, runs a peer and scales its prediction back."""

    def measure(table: Table, threads: int) -> peers.Outcome:
        varies = table.X.std(axis=0) > 0
        shift, scale = table.X[:, varies].mean(axis=0), table.X[:, varies].std(axis=0)
        X, X_test = ((part[:, varies] - shift) / scale for part in (table.X, table.X_test))
        centre, unit = table.y.mean(), table.y.std()
        found = fit(X, (table.y - centre) / unit, X_test, threads)
        variance = None if found.variance is None else unit**2 * found.variance
        return found._replace(mean=centre + unit * found.mean, variance=variance)

    return measure


METHODS: dict[str, Callable[[Table, int], peers.Outcome]] = {
    "lma": with_daskgp(daskgp.LMA),
    "sgpr": with_daskgp(daskgp.SGPR),
    "svgp": with_daskgp(daskgp.SVGP),
    "decoupled": with_daskgp(daskgp.DecoupledGP),
    "experts": with_daskgp(daskgp.ExpertsGP),
    "cagp": with_daskgp(daskgp.CaGP),
    "ssgp": with_daskgp(daskgp.SparseSpectrumGP),
    "exact": with_daskgp(daskgp.ExactGP, EXACT_ROWS),
    "gpboost": with_peer(peers.vecchia),
    "gpboost-vif": with_peer(peers.full_scale_vecchia),
    "gpytorch": with_peer(peers.svgp),
    "trees": with_peer(peers.trees),
}


def measure(key: dict, threads: int) -> dict:
    """Return scores and seconds of one method on one set, in this process."""
    table = load(key["set"], key["rows"])
    found = METHODS[key["method"]](table, threads)
    unit = table.y.std()
    y, mean = table.y_test / unit, np.ravel(found.mean) / unit
    sizes = {"n": len(table.y), "d": table.X.shape[1]}
    score = {"rmse": float(metrics.rmse(y, mean))}
    variance = None if found.variance is None else np.ravel(found.variance) / unit**2
    if variance is not None and variance.min() <= 0:
        score["not_positive"] = int((variance <= 0).sum())  # and so no density
    elif variance is not None:
        score["nlpd"] = float(metrics.nlpd(y, mean, variance))
        score["coverage"] = float(metrics.coverage(y, mean, variance))
    return {**sizes, **score, "fit_s": found.fit_s, "predict_s": found.predict_s, **found.remarks}


# -- tables ----------------------------------------------------------------------------------

COLUMNS = {
    "RMSE": ("rmse", ".3f"),
    "NLPD": ("nlpd", ".2f"),
    "coverage of 95 %": ("coverage", ".3f"),
    "seconds": ("seconds", ",.0f"),
    "processor seconds": ("processor_s", ",.0f"),
    "peak MiB": ("peak_mib", ",.0f"),
}


def tables(records: list[dict]) -> str:
    """Return a table per score, a row per method and a column per set."""
    found = {(record["key"]["method"], record["key"]["set"]): record for record in records}
    methods = [name for name in METHODS if any(method == name for method, _ in found)]
    sets = [name for name in SETS if any(other == name for _, other in found)]
    parts = []
    for title, (column, form) in COLUMNS.items():
        lines = (
            [name, *(words(found.get((name, data)), column, form) for data in sets)]
            for name in methods
        )
        parts.append(common.markdown([title, *sets], lines))
    return "\n\n".join(parts)


def words(record: dict | None, column: str, form: str) -> str:
    """Return a number, or why there is none."""
    if record and "ended_after_s" in record:
        return f"> {record['ended_after_s'] / 60:.0f} min" if column == "seconds" else "–"
    return "failed" if record and "failed" in record else common.cell(record, column, form)


@click.command()
@click.option("--out", type=Path, help="File of results, which is appended to.")
@click.option("--sets", default=",".join(SETS), callback=common.among(SETS))
@click.option("--methods", default=",".join(METHODS), callback=common.among(METHODS))
@click.option("--rows", type=click.IntRange(min=50), help="Training rows.  [default: all]")
@click.option("--threads", default=2, show_default=True)
@click.option("--limit", default=20.0, show_default=True, help="Minutes for each run.")
@click.option("--table", is_flag=True, help="Only print what the file holds.")
@click.option("--here", "key", hidden=True)
def main(
    out: Path | None,
    sets: list[str],
    methods: list[str],
    rows: int | None,
    threads: int,
    limit: float,
    table: bool,
    key: str | None,
) -> None:
    """Measure each method on each set in a process of its own and print tables."""
    if key:
        print(json.dumps(measure(json.loads(key), threads)))
        return
    if out is None:
        raise click.UsageError("give --out=FILE, where results are kept")
    ledger = common.Ledger(out)
    if not table:
        pairs = ((name, method) for method in methods for name in sets if here(name))
        keys = ({"set": name, "method": method, "rows": rows} for name, method in pairs)
        ledger.measure(__file__, keys, threads, 60 * limit)
    print(tables(ledger.records()))


if __name__ == "__main__":
    main()
