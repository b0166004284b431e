"""Pickled models predict in another process, or say at once that they cannot."""

import copy
import io
import os
import pickle
import subprocess
import sys

import cloudpickle
import dask.array as da
import joblib
import numpy as np
import pytest
import zarr
from distributed import Client

import daskgp
from daskgp.errors import SettingError
from daskgp.estimators import pickling
from tests.contract import cases

KEEPING = cases.those(lambda name: cases.method(name).keeps_rows)
"""Methods that read training rows back to predict."""


def made(name):
    return cases.fixed(name, kernel="rbf(0.5)")


def table(n=240):
    X = np.random.default_rng(0).uniform(0, 3, (n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1]


def on_disk(folder):
    group = zarr.create_group(folder / "t.zarr")
    X, y = table()
    chunks = {"X": (60, 2), "y": (60,)}
    return [group.create_array(n, data=a, chunks=chunks[n]) for n, a in (("X", X), ("y", y))]


@pytest.fixture(params=KEEPING)
def model(request, tmp_path):
    """A model whose training rows lie in a temporary store."""
    return made(request.param).fit(*on_disk(tmp_path))


def stored_at(model):
    return daskgp.data.address(model.solved_.rows.rows.X)


RESTORED = """
import pickle, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    model = pickle.load(file)
with np.load(sys.argv[2]) as arrays:
    np.testing.assert_array_equal(model.predict(arrays["X"]), arrays["mean"])
"""


def test_few_rows_go_along_to_another_process(model, tmp_path):
    X = table(50)[0]
    (tmp_path / "m.pickle").write_bytes(pickle.dumps(model))
    np.savez(tmp_path / "wanted.npz", X=X, mean=model.predict(X))
    rows = zarr.open_array(daskgp.data.stores.remote.location(stored_at(model)))
    os.rename(rows.store.root, tmp_path / "gone")  # as where the process has ended
    command = [sys.executable, "-c", RESTORED, tmp_path / "m.pickle", tmp_path / "wanted.npz"]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("how", ["pickle", "cloudpickle", "joblib"])
def test_every_way_to_pickle_carries_them(how, model):
    if how == "joblib":
        file = io.BytesIO()
        joblib.dump(model, file)
        file.seek(0)
        again = joblib.load(file)
    else:
        again = pickle.loads({"pickle": pickle, "cloudpickle": cloudpickle}[how].dumps(model))
    assert isinstance(again.solved_.rows.rows.X, np.ndarray)
    assert not isinstance(model.solved_.rows.rows.X, np.ndarray)  # the model itself is as it was
    assert again.solved_.token == model.solved_.token
    X = table(50)[0]
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert pickle.loads(pickle.dumps(again)).solved_.token == model.solved_.token


def test_many_rows_are_refused_when_the_model_is_pickled(model, monkeypatch):
    monkeypatch.setattr(pickling, "CARRIED_BYTES", 1_000)
    for dumps in (pickle.dumps, cloudpickle.dumps, lambda m: joblib.dump(m, io.BytesIO())):
        with pytest.raises(SettingError, match=r"lie in a temporary store.*store=.*save\(\)") as e:
            dumps(model)
        assert "\n" not in str(e.value)
        assert type(model).__name__ in str(e.value)


def test_copies_within_a_process_share_the_rows(model, monkeypatch):
    monkeypatch.setattr(pickling, "CARRIED_BYTES", 0)
    X = table(50)[0]
    for again in (copy.copy(model), copy.deepcopy(model)):
        assert stored_at(again) == stored_at(model)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert copy.copy(model).solved_ is model.solved_
    assert copy.deepcopy(model).solved_ is not model.solved_
    assert [copy.deepcopy([model, model])[i].predict(X).shape for i in (0, 1)] == [(50,)] * 2


def test_workers_that_see_the_disk_are_sent_no_rows(model, scheduler, monkeypatch):
    monkeypatch.setattr(pickling, "CARRIED_BYTES", 0)
    X = da.from_array(table(50)[0], chunks=(25, 2))
    wanted = model.predict(X).compute(scheduler="threads")
    with Client(scheduler):
        np.testing.assert_array_equal(model.predict(X).compute(), wanted)


def test_rows_that_last_stay_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(pickling, "CARRIED_BYTES", 0)
    X, y = on_disk(tmp_path)
    fitted = made("lma").set_params(store=str(tmp_path / "kept")).fit(X, y)
    fitted.save(tmp_path / "m.zarr")
    for model in (fitted, daskgp.load(tmp_path / "m.zarr")):
        again = pickle.loads(pickle.dumps(model))
        assert stored_at(again) == stored_at(model)
        np.testing.assert_array_equal(again.predict(X[:9]), model.predict(X[:9]))
    in_memory = made("lma").fit(X[:], y[:])
    assert pickle.loads(pickle.dumps(in_memory)).predict(X[:9]).shape == (9,)


def test_a_store_in_memory_goes_with_the_process_too(tmp_path, monkeypatch):
    unfitted = made("lma").set_params(store=f"memory://{tmp_path.name}")
    model = unfitted.fit(*on_disk(tmp_path))
    assert isinstance(pickle.loads(pickle.dumps(model)).solved_.rows.rows.X, np.ndarray)
    monkeypatch.setattr(pickling, "CARRIED_BYTES", 0)
    with pytest.raises(SettingError, match="temporary store"):
        pickle.dumps(model)


def test_a_model_that_is_not_fitted_is_pickled_as_ever():
    for name in KEEPING:
        model = made(name)
        again = pickle.loads(pickle.dumps(model))
        assert repr(again) == repr(model)
        assert type(copy.deepcopy(model)) is type(model)
