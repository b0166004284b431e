"""Local methods on real clusters: rows that reach the workers, and what these say and share."""

import subprocess
import sys

import dask
import numpy as np
import pytest
from commands import rows
from fits import forget

import daskgp
from daskgp import LMA
from daskgp.output import store as to_store
from daskgp.posterior import training_rows

SETTINGS = {"n_support": 10, "block_rows": 40, "max_iter": 1, "progress": False}


@pytest.mark.usefixtures("default_client")
def test_predictions_are_written_by_workers_and_rows_in_memory_reach_them(make_store, tmp_path):
    inputs = make_store(*rows(200, seed=1), rows=30, url=tmp_path / "in.zarr")
    model = LMA(**SETTINGS, markov_order=2).fit(*rows())  # rows of this process
    assert model.predict_store(inputs, str(tmp_path / "out.zarr")) == (200, 0)
    mean, std = model.predict(rows(200, seed=1)[0], return_std=True, include_noise=True)
    written = daskgp.data.stores.groups.open_group(str(tmp_path / "out.zarr"), "predictions")
    np.testing.assert_allclose(written["mean"][...], mean, rtol=1e-9)
    np.testing.assert_allclose(written["variance"][...], std**2, rtol=1e-9)


@pytest.mark.usefixtures("default_client")
def test_a_model_of_this_process_is_predicted_by_workers(make_store, tmp_path, client):
    """A fit without workers holds its rows in memory; later it is used with some."""
    with dask.config.set(scheduler="threads"):
        model = LMA(**SETTINGS).fit(*rows())
    inputs = make_store(*rows(150, seed=1), rows=30, url=tmp_path / "in.zarr")
    lazily = model.predict(daskgp.open_dataset(inputs)[0])
    np.testing.assert_allclose(lazily.compute(), model.predict(rows(150, seed=1)[0]), rtol=1e-8)


@pytest.mark.usefixtures("default_client")
def test_workers_say_that_rows_are_far(make_store, tmp_path):
    X = np.array([[1e6, 1e6], [1.0, 1.0]])
    inputs = make_store(X, X[:, 0], rows=1, url=tmp_path / "in.zarr")
    model = LMA("rbf(lengthscale=0.2)", **SETTINGS).fit(*rows(seed=4))
    with pytest.warns(UserWarning, match="lie far from all training rows"):
        model.predict(daskgp.open_dataset(inputs)[0]).compute()


FAR_RUN = """
import dask.array as da, daskgp, numpy as np
if __name__ == "__main__":
    X = np.random.default_rng(0).uniform(0, 3, (200, 2))
    model = daskgp.LMA("rbf(lengthscale=0.2)", n_support=10, block_rows=40, optimizer=None)
    model.fit(X, X[:, 0])
    with daskgp.connect(n_workers=2):
        places = np.full((10, 2), 1e6)
        model.predict(da.from_array(places, chunks=(1, 2))).compute()
"""


@pytest.mark.slow
def test_a_warning_of_workers_is_shown_once(tmp_path):
    """By the client; workers of a local cluster write to the same terminal."""
    (tmp_path / "run.py").write_text(FAR_RUN)
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr.count("lie far from all training rows") == 1


def test_places_of_successive_chunks_share_factors(make_store, tmp_path, monkeypatch):
    """Chunks of places in any order hold places of the same cells."""
    model = LMA(**SETTINGS, markov_order=2).fit(*rows())
    inputs = make_store(*rows(200, seed=1), rows=30, url=tmp_path / "in.zarr")
    made = []
    condition = type(model.solved_.method).condition
    monkeypatch.setattr(
        type(model.solved_.method),
        "condition",
        lambda *args, **more: (made.append(1), condition(*args, **more))[1],
    )
    written = {}
    for together in (0, 30 * 2 * 8 * 3, to_store.TOGETHER):
        forget()
        made.clear()
        monkeypatch.setattr(to_store, "TOGETHER", together)
        monkeypatch.setattr(training_rows, "_budget", lambda *_: 0.0)  # nothing is kept
        out = str(tmp_path / f"{together}.zarr")
        with dask.config.set(scheduler="synchronous"):
            assert model.predict_store(inputs, out) == (200, 0)
        group = daskgp.data.stores.groups.open_group(out, "predictions")
        written[together] = len(made), group["mean"][...], group["variance"][...]
    counts = [number for number, *_ in written.values()]
    assert counts[0] > counts[1] > counts[2]
    for _, mean, variance in written.values():
        np.testing.assert_allclose(mean, written[0][1], rtol=1e-8)
        np.testing.assert_allclose(variance, written[0][2], rtol=1e-8)
