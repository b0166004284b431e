"""Checking a model: scores of held-out rows that are those of gaps, and a spread that holds.

Rows cover a field but for some gaps.  Folds of random rows promise too much of predictions in the
gaps, blocks that are made for their places do not.  A product of experts is too sure of itself,
until its spread is learned on held-out rows.
"""

import sys
from pathlib import Path

import numpy as np

import daskgp
from daskgp import kernels, metrics, plot

SIDE, LENGTHSCALE, NOISE = 200.0, 15.0, 0.3
"""In km, km and degrees."""


def field(X, seed=0):
    """Return a temperature at X (n, 2): a sum of cosines with the spectrum of Matern-3/2."""
    rng, k = np.random.default_rng(seed), 500
    frequencies = rng.standard_normal((2, k)) / np.sqrt(rng.chisquare(3, k) / 3) / LENGTHSCALE
    waves = np.cos(X @ frequencies + rng.uniform(0, 2 * np.pi, k))
    return 10 + waves @ np.full(k, np.sqrt(2 / k))


def main(rows=3_000, folder=None, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, SIDE, size=(rows, 2))
    y = field(X) + NOISE * rng.standard_normal(rows)
    middles = rng.uniform(0.05 * SIDE, 0.95 * SIDE, size=(40, 2))
    gap = (((X[:, None] - middles) ** 2).sum(axis=2) < 9.0**2).any(axis=1)
    places, hidden, X, y = X[gap], y[gap], X[~gap], y[~gap]

    model = daskgp.SGPR(kernels.Matern32(), n_inducing=min(400, rows // 4))
    mean, std = model.fit(X, y).predict(places, return_std=True, include_noise=True)
    scores = {"gaps": metrics.summary(hidden, mean, std**2)}
    for name, blocks in (("random folds", None), ("blocks like the gaps", places)):
        scores[name] = daskgp.cross_validate(model, X, y, folds=4, blocks=blocks).pooled
    for name, own in scores.items():
        print(f"{name:22s} rmse {own['rmse']:.3f}, nlpd {own['nlpd']:.3f}")

    held = rng.uniform(size=len(X)) < 0.25
    checks = {}
    for how in (None, "random"):
        product = daskgp.ExpertsGP(
            kernels.Matern32(), expert="exact", aggregation="poe", n_experts=8, calibrate=how
        )
        checks[how] = daskgp.check(product.fit(X[~held], y[~held]), X[held], y[held])
        found = checks[how].scores
        print(
            f"calibrate={how!r:8} coverage of 95 % {found['coverage_95']:.3f}, variance of "
            f"standardised residuals {found['z_variance']:.2f}, nlpd {found['nlpd']:.3f}"
        )
    if folder:
        draw(Path(folder), checks, daskgp.check(model, places, hidden))
    return scores, checks


def draw(folder, checks, gaps):
    """Write two figures to a folder."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(8.6, 3.6), layout="constrained")
    titles = ("as fitted", "with a learned spread")
    for ax, found, title in zip(
        fig.subplots(1, 2, sharey=True), checks.values(), titles, strict=True
    ):
        plot.pit(found, title=title, ax=ax)
    fig.savefig(folder / "checking-pit.svg")
    plot.distances(gaps, path=folder / "checking-distances.svg")


if __name__ == "__main__":
    main(folder=sys.argv[1] if len(sys.argv) > 1 else None)
