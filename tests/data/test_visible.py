"""Workers that do not see a store are named before the first round."""

import os
import shutil

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

import daskgp
from daskgp.data import visibility
from daskgp.errors import InputError
from daskgp.output import store as to_store
from daskgp.output.job import Job
from daskgp.runtime.executor import Executor


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Two workers; the second works in another folder, so that relative paths differ for it."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        second = sorted(client.scheduler_info()["workers"])[1]
        client.run(os.chdir, str(elsewhere), workers=[second])
        first = sorted(client.scheduler_info()["workers"])[0]
        yield client, first, second, elsewhere


@pytest.fixture
def arrays(make_store, tmp_path):
    """Write so many rows to t.zarr; its arrays."""

    def make(n=60):
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((n, 2)), rng.standard_normal(n)
        group = zarr.open_group(make_store(X, y, rows=20, url=tmp_path / "t.zarr"))
        return group["X"], group["y"]

    return make


def relative(monkeypatch, client, first, folder):
    monkeypatch.chdir(folder)
    client.run(os.chdir, str(folder), workers=[first])
    group = zarr.open_group("t.zarr", mode="r")
    return group["X"], group["y"]


def test_a_worker_that_does_not_see_the_training_data_is_named(
    apart, arrays, tmp_path, monkeypatch
):
    client, first, second, elsewhere = apart
    arrays()
    X, y = relative(monkeypatch, client, first, tmp_path)
    settings = {"n_inducing": 5, "optimizer": None}
    with pytest.raises(InputError, match=f"worker {second} does not see the training data") as e:
        daskgp.SGPR(**settings).fit(X, y)
    assert "store=" in str(e.value)
    assert "t.zarr" in str(e.value)
    assert "\n" not in str(e.value)
    shutil.copytree(tmp_path / "t.zarr", elsewhere / "t.zarr")
    assert daskgp.SGPR(**settings).fit(X, y).n_rows_ == 60
    (elsewhere / "t.zarr" / "y" / "c" / "2").unlink()  # described but not there
    with pytest.raises(InputError, match=f"worker {second} does not see .*other contents"):
        daskgp.SGPR(**settings).fit(X, y)


def test_stores_of_this_process_alone_are_refused(apart, tmp_path):
    client = apart[0]
    X, y = np.random.default_rng(0).standard_normal((2, 60))
    model = daskgp.SGPR(n_inducing=5, optimizer=None, store="memory://scratch")
    with pytest.raises(InputError, match="does not see the training data"):
        model.fit(X[:, None], y)
    fitted = model.set_params(store=str(tmp_path)).fit(X[:, None], y)
    near, far = str(tmp_path / "near.zarr"), "memory://visible-test/far.zarr"
    for url in (near, far):
        with daskgp.data.dataset_writer(url, ["x0"], ["y"], 20) as writer:
            writer.append(X[:, None], y)
    executor = Executor(client)
    with pytest.raises(InputError, match="does not see the input"):
        to_store.write(Job(fitted.solved_, far, str(tmp_path / "p.zarr")), executor)
    with pytest.raises(InputError, match="does not see the output"):
        to_store.write(Job(fitted.solved_, near, "memory://visible-test/p.zarr"), executor)
    assert not daskgp.data.exists("memory://visible-test/p.zarr")


def test_a_look_notices_what_is_removed_in_between(arrays, tmp_path):
    X, _ = arrays()
    before = visibility.look(X)
    assert visibility.look(X) == before
    (tmp_path / "t.zarr" / "X" / "c" / "2" / "0").unlink()
    assert visibility.look(X) != before
    shutil.rmtree(tmp_path / "t.zarr")
    with pytest.raises(FileNotFoundError):
        visibility.look(X)


def append(url, n):
    """More rows at the end of a store, as its owner adds them."""
    group = zarr.open_group(url, mode="r+")
    for name in ("X", "y"):
        array, before = group[name], group[name].shape[0]
        array.resize((before + n, *array.shape[1:]))
        array[before:] = np.ones((n, *array.shape[1:]))


def test_a_look_is_at_the_rows_there_were(arrays, tmp_path):
    X, _ = arrays(50)
    before = visibility.look(X)
    append(tmp_path / "t.zarr", 25)
    assert visibility.look(X) == before
    shorter = zarr.open_group(tmp_path / "t.zarr", mode="r+")["X"]
    shorter.resize((40, 2))
    assert visibility.look(X) != before


def test_a_prediction_beside_an_append_takes_the_rows_there_were(
    scheduler, arrays, tmp_path, monkeypatch
):
    X, y = arrays(50)
    source, output = str(tmp_path / "t.zarr"), str(tmp_path / "p.zarr")
    model = daskgp.SGPR(n_inducing=5, optimizer=None).fit(X[:], y[:])
    check, grown = visibility.check, []

    def grows(executor, array, what, remedy):
        if what == "the input" and not grown:
            append(source, 25)
            grown.append(what)
        check(executor, array, what, remedy)

    monkeypatch.setattr(visibility, "check", grows)
    with Client(scheduler):
        assert model.predict_store(source, output) == (50, 0)
        assert model.predict_store(source, output, resume=True) == (35, 40)  # a ragged last chunk
    found = zarr.open_group(output, mode="r")["mean"][...]
    np.testing.assert_allclose(found, model.predict(zarr.open_group(source)["X"][...]), rtol=1e-9)
