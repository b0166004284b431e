"""Sparse grids in two to six features, beside sparse GPs with as many inducing inputs.

    python workflows/benchmarks/opticom_features.py

A smooth function in a cube, hyper-parameters trained: the combination technique, ``OptiComGP``,
``SGPR`` with the same points, and with as many chosen greedily from the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import harness
import numpy as np

import daskgp
from daskgp import metrics

SIZES = ((2, 4), (2, 6), (3, 4), (3, 5), (4, 4), (6, 3))
"""Features and level."""


def keys(options: harness.Options) -> Iterator[dict]:
    for features, level in ((3, 3),) if options.tiny else SIZES:
        yield {"features": features, "level": level, "rows": options.rows}


def measure(key: dict, options: harness.Options) -> dict:
    """Return the errors of the trained methods."""
    d, level, n = key["features"], key["level"], key["rows"]
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n + n // 2, d))
    f = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, -1]) + (X**2).mean(axis=1)
    y = f[:n] + 0.05 * rng.standard_normal(n)
    shared = {"max_iter": 30, "progress": False}
    optimal = daskgp.OptiComGP(level=level, **shared).fit(X[:n], y)
    points = len(optimal.grid_)
    models = {
        "projection": optimal,
        "combination": daskgp.OptiComGP(level=level, weights="combination", **shared).fit(X[:n], y),
        "sgpr": daskgp.SGPR(inducing=optimal.grid_, **shared).fit(X[:n], y),
        "greedy": daskgp.SGPR(n_inducing=points, **shared).fit(X[:n], y),
    }
    errors = {name: float(metrics.rmse(f[n:], m.predict(X[n:]))) for name, m in models.items()}
    return {"points": points, "grids": len(optimal.levels_), **errors}


table = harness.reporting("features level", "points grids combination projection sgpr greedy")
harness.command(globals(), rows=(4_000, 600))
