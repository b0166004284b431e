"""scikit-learn's boosted trees and generalised linear models."""

import time

import numpy as np
from datasets import Split
from harness import Outcome

from peers.tasks import Task


def trees(split: Split, threads: int) -> Outcome:
    """Fit boosted trees; threads are those of OMP_NUM_THREADS, and there is no variance."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    began = time.perf_counter()
    model = HistGradientBoostingRegressor(
        learning_rate=0.05,
        max_iter=3_000,
        early_stopping=True,
        validation_fraction=0.1,
        n_iter_no_change=50,
        random_state=0,
    ).fit(split.X, split.y)
    fitted = time.perf_counter()
    mean = model.predict(split.X_test)
    remarks = {"trees": int(model.n_iter_)}
    return Outcome(fitted - began, time.perf_counter() - fitted, mean, None, remarks)


def spread_trees(split: Split, task: Task) -> Outcome:
    """Fit boosted trees, and a variance that is the mean square error of rows held out.

    They are a tenth at random, which also says when to stop; for gaps they are regions, which
    another fit of as many trees is not shown.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    clock, held = task.clock(), task.held_out(split, False)
    own = {"learning_rate": 0.05, "random_state": 0}
    model = HistGradientBoostingRegressor(
        max_iter=3_000, early_stopping=True, n_iter_no_change=50, **own
    ).fit(split.X[~held], split.y[~held], X_val=split.X[held], y_val=split.y[held])
    number, judge = int(model.n_iter_), model
    if task.gaps:
        held = task.held_out(split, True)
        judge = HistGradientBoostingRegressor(max_iter=number, early_stopping=False, **own)
        judge.fit(split.X[~held], split.y[~held])
    square = np.mean((split.y[held] - judge.predict(split.X[held])) ** 2)
    fitted = clock.seconds
    mean = model.predict(split.X_test)
    variance = np.full(len(mean), square)
    return Outcome(fitted, clock.seconds - fitted, mean, variance, {"trees": number})


def linear_density(split: Split, likelihood: str) -> float:
    """Return the mean log density of y_test by a generalised linear model, quadratic in place."""
    import scipy.stats
    from sklearn.linear_model import LogisticRegression, PoissonRegressor

    shift, scale = split.X.mean(axis=0), split.X.std(axis=0)

    def columns(places: np.ndarray) -> np.ndarray:
        u, v = ((places - shift) / scale).T
        return np.column_stack([u, v, u**2, v**2, u * v])

    X, X_test = columns(split.X), columns(split.X_test)
    if likelihood == "bernoulli":
        classes = LogisticRegression(C=1e6, max_iter=1_000).fit(X, split.y)
        share = classes.predict_proba(X_test)[:, 1]
        return float(scipy.stats.bernoulli.logpmf(split.y_test, share).mean())
    counts = PoissonRegressor(alpha=0, max_iter=1_000).fit(X, split.y)
    return float(scipy.stats.poisson.logpmf(split.y_test, counts.predict(X_test)).mean())
