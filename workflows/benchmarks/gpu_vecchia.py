"""Microseconds per row on a GPU of sums over rows given their neighbours.

    python workflows/benchmarks/gpu_vecchia.py [--rows 262144] [--neighbours 30]

Needs CuPy and the package's mathematics; neither Dask nor Zarr is imported.

- ``weights``: the weights of each row and its neighbours, Matérn-3/2.
- ``scores``: value, gradient and Fisher information.

``--array-module numpy`` runs the same on the host.
"""

import harness
import numpy as np
from peers import arrays

from daskgp.models.markov.conditionals import Conditionals, scores, weights

PARTS = {
    "weights": weights,
    "scores": lambda theta, c: scores(theta, c, np.eye(1), 1),
}


def keys(options: harness.Options) -> harness.Keys:
    arrays.machine_of(options.array_module)
    return harness.runs(options, "array_module", part=options.parts)


def measure(key: dict, options: harness.Options) -> dict:
    machine, n, d = arrays.machine_of(key["array_module"]), options.rows, options.features
    xp, theta = machine.xp, machine.theta(d, 0, 0.1)
    rows = machine.rows(n, d)
    near = np.maximum(np.arange(n)[:, None] - 1 - np.arange(options.neighbours), -1)
    c = Conditionals(rows.X, rows.y, None, xp.arange(n), xp.asarray(near))
    PARTS[key["part"]](theta, c)  # what is made once is there
    seconds, _ = machine.seconds(lambda: PARTS[key["part"]](theta, c), 3)
    return {"run_s": seconds, "us_a_row": 1e6 * seconds / n}


table = harness.reporting("part array_module", "run_s us_a_row")
SIZES = {"rows": (262_144, 200), "neighbours": (30, 5), "features": 8}
harness.command(globals(), parts=PARTS, array_module="cupy", **SIZES)
