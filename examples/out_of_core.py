"""Fit a store that need not fit into memory, on a local cluster of processes.

The store is written chunk by chunk, each worker reads its own chunks, and predictions go chunk
by chunk into another store.  No step holds all the rows.
"""

import sys
import tempfile
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import zarr

import daskgp
from daskgp import metrics


def write_dataset(url, rows, chunk, seed):
    """Write a dataset store: X and y, chunked alike along rows, and the names of the columns."""
    group = zarr.create_group(url)
    X = group.create_array("X", shape=(rows, 2), chunks=(chunk, 2), dtype="f8")
    y = group.create_array("y", shape=(rows,), chunks=(chunk,), dtype="f8")
    rng = np.random.default_rng(seed)
    for start in range(0, rows, chunk):
        part = slice(start, min(start + chunk, rows))
        inputs = rng.uniform(0, 10, (part.stop - start, 2))
        X[part] = inputs
        noise = 0.1 * rng.standard_normal(len(inputs))
        y[part] = np.sin(inputs[:, 0]) * np.cos(inputs[:, 1] / 2) + noise
    group.attrs.update({"feature_names": ["east", "north"], "target_names": ["height"]})


def main(folder, rows=50_000, chunk=5_000, inducing=100, workers=2):
    train, test = f"{folder}/train.zarr", f"{folder}/test.zarr"
    write_dataset(train, rows, chunk, seed=0)
    write_dataset(test, rows // 10, chunk, seed=1)
    model = daskgp.SGPR(n_inducing=inducing, max_iter=20)

    with daskgp.connect(n_workers=workers):
        X, y = daskgp.open_dataset(train)  # lazy: nothing is read yet
        print(daskgp.plan(model, X, y))
        model.fit(X, y)
        model.save(f"{folder}/model.zarr")

        model = daskgp.load(f"{folder}/model.zarr")
        model.predict_store(test, f"{folder}/predictions.zarr")

        _, y_test = daskgp.open_dataset(test)
        mean = da.from_zarr(f"{folder}/predictions.zarr/mean")
        variance = da.from_zarr(f"{folder}/predictions.zarr/variance")
        scores = dask.compute(metrics.summary(y_test, mean, variance))[0]  # one pass
    print({name: round(float(score), 4) for name, score in scores.items()})
    return scores


if __name__ == "__main__":  # worker processes import this file and must not run it
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
