"""Seconds and bytes read to add rows of a store that grows, beside a fit of all its rows.

    python workflows/benchmarks/update.py [--rows 1000000] [--methods sgpr,lma]

A smooth function with noise, in the order of its first feature as of a time.  A model of the first
half of the rows is updated ten times (`append`, medians), and compared with a fit of all rows with
the same hyper-parameters (`refit`, which trains nothing): the largest difference of means and
standard deviations at 1,000 places.  Bytes are those that the process reads from files.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median

import datasets
import harness
import numpy as np
import psutil
import zarr

import daskgp
from daskgp.data import dataset_writer

PLAIN = {"noise_variance": 0.1, "mean": "zero", "standardize": False, "optimizer": None}
METHODS = ("sgpr", "lma")


def keys(options: harness.Options) -> harness.Keys:
    return harness.runs(options, "rows features", method=options.methods)


def measure(key: dict, options: harness.Options) -> dict:
    n, count = key["rows"], options.appends
    X, y = datasets.smooth(n, key["features"])
    line = np.argsort(X[:, 0])
    X, y = X[line], y[line]
    path = options.folder / f"update-{key['method']}-{n}.zarr"
    new = n // 2 // count // options.block_rows * options.block_rows
    first = n - count * new
    model, appends = made(key["method"], X, options), []
    model.fit(*grown(path, X, y, first, options.chunk))
    for end in range(first + new, n + 1, new):
        rows = grown(path, X, y, end, options.chunk)
        appends.append(cost(lambda rows=rows: model.update(*rows)))
    again, rows = made(key["method"], X, options), daskgp.open_dataset(str(path))
    refit_s, refit_mib = cost(lambda: again.fit(*rows))
    T = X[np.random.default_rng(2).choice(n, min(n, 1_000), replace=False)] + 0.01
    found, wanted = (np.stack(one.predict(T, return_std=True)) for one in (model, again))
    append_s, append_mib = (median(part) for part in zip(*appends, strict=True))
    told = {"append_s": append_s, "append_mib": append_mib, "refit_s": refit_s}
    return told | {"refit_mib": refit_mib, "differs": float(abs(found - wanted).max())}


def made(method: str, X: np.ndarray, options: harness.Options) -> daskgp.SGPR | daskgp.LMA:
    """Return an estimator that keeps its hyper-parameters and inducing inputs."""
    number = options.inducing if method == "sgpr" else options.support
    Z = X[np.random.default_rng(1).choice(len(X), number, replace=False)]
    kernel = daskgp.kernels.Matern32(lengthscale=(2.0,) * X.shape[1])
    if method == "sgpr":
        return daskgp.SGPR(kernel, inducing=Z, progress=False, **PLAIN)
    blocks = {"order": "x0", "neighbours": "order", "block_rows": options.block_rows}
    return daskgp.LMA(kernel, support=Z, progress=False, **blocks, **PLAIN)


def grown(path: Path, X: np.ndarray, y: np.ndarray, end: int, chunk: int) -> tuple:
    """Write rows up to ``end`` that a store does not have yet, and open it."""
    if not path.exists():
        names = [f"x{j}" for j in range(X.shape[1])]
        with dataset_writer(str(path), names, ("y",), chunk) as writer:
            writer.append(X[:end], y[:end])
    group = zarr.open_group(path, mode="r+")
    for name, values in (("X", X), ("y", y)):
        before = group[name].shape[0]
        group[name].resize((end, *values.shape[1:]))
        group[name][before:end] = values[before:end]
    return daskgp.open_dataset(str(path))


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of work and the MiB that it reads."""
    counters = psutil.Process().io_counters
    before = counters().read_chars
    seconds = harness.seconds_of(work)
    return seconds, (counters().read_chars - before) / 2**20


table = harness.reporting("method rows", "append_s append_mib refit_s refit_mib differs")
SIZES = {"rows": (1_000_000, 600), "features": (8, 3), "appends": (10, 3), "chunk": (20_000, 50)}
BLOCKS = {"inducing": (512, 20), "support": (64, 10), "block_rows": (250, 20)}
harness.command(globals(), methods=METHODS, **SIZES, **BLOCKS)
