"""Graphs carry the address of a saved model, and each process reads its store once."""

import os
import shutil

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest

import daskgp
from daskgp import kernels
from daskgp.data.stores import models
from daskgp.errors import InputError, StoreError
from daskgp.predict import stored
from daskgp.testing import no_compute

LIMIT = 100_000
GLOBAL = daskgp.SGPR("rbf(0.5)", n_inducing=150, optimizer=None)
LOCAL = daskgp.LMA("rbf(0.5)", n_support=20, block_rows=40, optimizer=None)
EXPERTS = daskgp.ExpertsGP(n_experts=4, expert="exact", aggregation="rbcm", optimizer=None)
CAGP = daskgp.CaGP("rbf(0.5)", n_actions=20, optimizer=None)
KINDS = {"sgpr": GLOBAL, "lma": LOCAL, "experts": EXPERTS, "cagp": CAGP}


def table(n=400, seed=0):
    X = np.random.default_rng(seed).uniform(0, 3, (n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1]


def saved(url, made=GLOBAL, seed=0):
    from sklearn.base import clone

    model = clone(made).fit(*table(seed=seed))
    model.save(url)
    return model


def places(n=90):
    return da.from_array(table(n, seed=1)[0], chunks=(30, 2))


@pytest.fixture(autouse=True)
def nothing_read():
    stored._kept.clear()


def graph_size(*lazily):
    return len(cloudpickle.dumps([dict(a.__dask_graph__()) for a in lazily]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_of_a_loaded_or_saved_model_is_small(kind, tmp_path):
    model = saved(tmp_path / "m.zarr", KINDS[kind])
    state = len(cloudpickle.dumps(model.solved_))
    for known in (model, daskgp.load(tmp_path / "m.zarr")):
        with no_compute():
            lazily = known.predict(places(), return_std=True)
            average = known.predict_average(places()) if kind != "experts" else ()
        assert graph_size(*lazily) < LIMIT
        assert graph_size(*lazily, *average) < 2 * LIMIT
    if kind == "sgpr":
        assert state > LIMIT
        fresh = daskgp.SGPR(**GLOBAL.get_params()).fit(*table())  # never saved
        assert graph_size(fresh.predict(places())) > LIMIT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("default_client")
def test_workers_give_the_bits_of_this_process(kind, tmp_path):
    model = saved(tmp_path / "m.zarr", KINDS[kind])
    for known in (model, daskgp.load(tmp_path / "m.zarr")):
        lazily = known.predict(places(), return_std=True)
        far = dask.compute(*lazily)
        with dask.config.set(scheduler="threads"):
            near = dask.compute(*lazily)
        assert [a.tobytes() for a in far] == [a.tobytes() for a in near]


def test_a_process_reads_a_store_once(tmp_path, monkeypatch):
    model, read = saved(tmp_path / "m.zarr"), models.read
    lazily = cloudpickle.loads(cloudpickle.dumps(model.predict(places())))
    again = cloudpickle.loads(cloudpickle.dumps(model.predict(places() + 0.1)))
    seen = []

    def counted(url):
        seen.append(url)
        return read(url)

    monkeypatch.setattr(models, "read", counted)
    np.testing.assert_array_equal(lazily.compute(), model.predict(places()).compute())
    again.compute()
    assert seen == [str(tmp_path / "m.zarr")]


def test_methods_beyond_the_limit_are_forgotten_the_oldest_first(tmp_path, monkeypatch):
    sent = []
    for i in range(3):
        model = saved(tmp_path / f"{i}.zarr", seed=i)
        sent.append(cloudpickle.loads(cloudpickle.dumps(stored.sendable(model.solved_))))
    one = stored._size(sent[0].open())
    assert one > 150**2 * 8
    monkeypatch.setattr(stored, "HELD_BYTES", 2 * one)
    for node in sent:
        node.open()
    assert [origin.url[-6:] for origin, _ in stored._kept] == ["1.zarr", "2.zarr"]
    monkeypatch.setattr(stored, "HELD_BYTES", 0)
    cloudpickle.loads(cloudpickle.dumps(sent[0])).open()
    assert [origin.url[-6:] for origin, _ in stored._kept] == ["0.zarr"]  # the last one is held


@pytest.mark.parametrize("kind", ["sgpr", "lma"])
def test_a_store_that_is_replaced_before_it_is_read_is_noticed(kind, tmp_path):
    lazily = saved(tmp_path / "m.zarr", KINDS[kind]).predict(places())
    far = cloudpickle.loads(cloudpickle.dumps(lazily))
    shutil.rmtree(tmp_path / "m.zarr")
    saved(tmp_path / "m.zarr", KINDS[kind], seed=5)
    with pytest.raises(StoreError, match="has changed since it was loaded or saved: load it") as e:
        far.compute()
    assert "\n" not in str(e.value)
    assert np.isfinite(lazily.compute()).all()  # what this process has is whole


def test_training_rows_that_are_replaced_are_noticed_where_they_are_read(tmp_path):
    saved(tmp_path / "m.zarr", LOCAL)
    loaded = daskgp.load(tmp_path / "m.zarr")
    before = loaded.predict(places()).compute()
    shutil.rmtree(tmp_path / "m.zarr")
    saved(tmp_path / "m.zarr", LOCAL, seed=5)
    with pytest.raises(StoreError, match="has changed since it was loaded"):
        loaded.predict(places()).compute()
    assert np.isfinite(before).all()


def test_a_model_whose_store_is_gone_sends_its_state(tmp_path):
    model = saved(tmp_path / "m.zarr")
    shutil.rmtree(tmp_path / "m.zarr")
    far = cloudpickle.loads(cloudpickle.dumps(model.predict(places())))
    np.testing.assert_array_equal(far.compute(), model.predict(places()).compute())


def test_a_store_that_is_gone_when_it_is_read_is_one_plain_line(tmp_path):
    far = cloudpickle.loads(cloudpickle.dumps(saved(tmp_path / "m.zarr").predict(places())))
    shutil.rmtree(tmp_path / "m.zarr")
    with pytest.raises(
        StoreError, match=r"cannot read the model .*m\.zarr.*all workers share"
    ) as e:
        far.compute()
    assert "\n" not in str(e.value)


def test_a_worker_that_does_not_see_the_model_is_named(default_client, tmp_path, monkeypatch):
    """Workers look where a store was that only this process sees now."""
    model = saved(tmp_path / "m.zarr")
    source = str(tmp_path / "in.zarr")
    with daskgp.data.dataset_writer(source, ["x0", "x1"], ["y"], 30) as writer:
        writer.append(*table(60))
    (tmp_path / "m.zarr").rename(tmp_path / "away.zarr")
    known = models.checksum_at(str(tmp_path / "away.zarr"))
    monkeypatch.setattr(models, "checksum_at", lambda url: known)
    with pytest.raises(InputError, match=r"worker tcp.* does not see the model .*m\.zarr") as e:
        model.predict_store(source, str(tmp_path / "out.zarr"))
    assert "share" in str(e.value)
    with pytest.raises(StoreError, match="cannot read the model"):
        model.predict(places()).compute()
    assert not os.path.exists(tmp_path / "out.zarr")


class Own(kernels.RBF):
    """A kernel that workers may not know by name."""


def test_what_workers_cannot_read_is_sent(tmp_path):
    url = f"memory://{tmp_path.name}/m.zarr"
    model = saved(url)
    assert graph_size(model.predict(places())) > LIMIT
    assert graph_size(daskgp.load(url).predict(places())) > LIMIT
    for kernel, known in ((Own(0.5), False), (kernels.RBF(0.5) + Own(0.5), False)):
        assert stored._of_package(kernel) is known
    assert stored._of_package(kernels.RBF(0.5) * kernels.Matern32() + 2.0)


def test_arrays_are_no_source_of_a_prediction_store(tmp_path):
    X, y = table(60)
    model = daskgp.ExactGP(optimizer=None).fit(X, y)
    with pytest.raises(
        InputError, match="the source is a ndarray: give the path of a dataset store"
    ):
        model.predict_store(X, str(tmp_path / "p.zarr"))
    assert not (tmp_path / "p.zarr").exists()
