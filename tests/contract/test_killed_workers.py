"""Every estimator: workers that die in fit and in prediction change no bit of what comes out."""

import contextlib
import os
import signal
import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from commands import dataset, rows
from distributed import Client

import daskgp
from daskgp.estimators import ESTIMATORS
from daskgp.runtime.executor import Executor
from tests.contract import cases


def made(name):
    return cases.make(name, **({} if name in cases.STEPPED else {"max_iter": 1}))


def kill(pid):
    with contextlib.suppress(ProcessLookupError):  # the nanny was quicker
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Training rows and places to predict at."""
    folder = tmp_path_factory.mktemp("data")
    places, nothing = rows(120, seed=1)
    train = dataset(folder / "train.zarr", *rows(200), step=40)
    return train, dataset(folder / "places.zarr", places, nothing, step=20)


@pytest.fixture(scope="module")
def one():
    """Address of one worker."""
    with daskgp.connect(n_workers=1) as client:
        yield client.scheduler.address


@pytest.fixture(scope="module")
def four():
    """Address of four workers that are started again when they die."""
    with daskgp.connect(n_workers=4) as client:
        yield client.scheduler.address


def predicted(model, places, output):
    if model.solved_.method.why_no_variance():  # there is none to be stored
        return model.predict(da.from_zarr(places, "X")).compute().tobytes()
    model.predict_store(places, str(output))
    group = zarr.open_group(output, mode="r")
    return [group[name][...].tobytes() for name in ("mean", "variance")]


def fitted(name, train, folder):
    model = made(name)
    model.set_params(store=str(folder), progress=False)
    return model.fit(*daskgp.open_dataset(train))


def learned(model):
    state = [np.asarray(part).tobytes() for part in model.solved_.state]
    return model.objective_, model.kernel_.log_parameters.tobytes(), model.noise_variance_, state


@pytest.fixture
def killing(monkeypatch):
    """``killing(client, number, least)``: of so many workers one dies in that round from now on."""
    submitted, left = Executor._submitted, {}

    def submit(self, client, *rest):
        if left.get(client) == 0:
            victim = min(client.run(os.getpid).values())
            left["timer"] = threading.Timer(0.01, kill, (victim,))
            left["timer"].start()
        left[client] = left.get(client, -1) - 1
        return submitted(self, client, *rest)

    monkeypatch.setattr(Executor, "_submitted", submit)

    def plan(client, number, least):
        client.wait_for_workers(least, timeout=120)
        left.clear()
        left[client] = number

    yield plan
    assert "timer" in left, "no worker was killed"
    left["timer"].join()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_four_workers_of_which_one_is_killed_give_the_bits_of_one(
    name, stores, one, four, tmp_path, killing
):
    train, places = stores
    with Client(one):
        wanted = fitted(name, train, tmp_path / "one")
        moments = predicted(wanted, places, tmp_path / "wanted.zarr")
    with Client(four) as client:
        killing(client, 4, 3)
        found = fitted(name, train, tmp_path / "four")
        assert learned(found) == learned(wanted)
        assert predicted(found, places, tmp_path / "found.zarr") == moments


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in cases.NO_SPREAD])
def test_a_worker_killed_while_it_predicts_changes_nothing(name, stores, four, tmp_path, killing):
    train, places = stores
    with Client(four) as client:
        model = fitted(name, train, tmp_path / "kept")
        wanted = predicted(model, places, tmp_path / "wanted.zarr")
        killing(client, 0, 2)
        assert predicted(model, places, tmp_path / "found.zarr") == wanted


@pytest.mark.slow
def test_rounds_go_on_while_workers_come_back(stores, four, tmp_path):
    """All workers die at once: what they kept for the gradient is made again by new ones."""
    train, _ = stores
    with Client(four) as client:
        client.wait_for_workers(4, timeout=120)
        began = time.monotonic()
        wanted = fitted("lma", train, tmp_path / "wanted")
        seconds = time.monotonic() - began
        pids = client.run(os.getpid).values()
        timer = threading.Timer(seconds / 2, lambda: [os.kill(pid, signal.SIGKILL) for pid in pids])
        timer.start()
        found = fitted("lma", train, tmp_path / "found")
        timer.join()
    assert learned(found) == learned(wanted)


# -- beside fits and stored predictions ------------------------------------------------------


def slowly(block):
    time.sleep(0.05)
    return block


@pytest.fixture
def dasks_own(stores):
    """Places and targets as a Dask array of the user's own, which no store is behind."""
    places, targets = (zarr.open_group(stores[1], mode="r")[name][...] for name in ("X", "y"))
    return (
        da.from_array(places, chunks=(5, 2)).map_blocks(slowly, dtype=float),
        da.from_array(targets, chunks=5),
    )


def kill_one(client, seconds=0.15):
    """Kill a worker in a moment; the timer."""
    client.wait_for_workers(3, timeout=120)
    timer = threading.Timer(seconds, os.kill, (min(client.run(os.getpid).values()), signal.SIGKILL))
    timer.start()
    return timer


@pytest.mark.slow
def test_a_worker_killed_during_a_score_changes_nothing(stores, four, tmp_path, killing, dasks_own):
    train, places = stores
    with Client(four) as client:
        model = fitted("sgpr", train, tmp_path)
        for given in (daskgp.open_dataset(places), dasks_own):
            wanted = model.score(*given)
            killing(client, 0, 2)
            assert model.score(*given) == wanted


@pytest.mark.slow
def test_a_score_is_computed_again_where_all_workers_are_lost(stores, four, tmp_path, dasks_own):
    train, _ = stores
    with Client(four) as client, Client(four, set_as_default=False) as other:
        client.wait_for_workers(2, timeout=120)
        model = fitted("sgpr", train, tmp_path)
        wanted = model.score(*dasks_own)
        timer = threading.Timer(0.15, other.restart, kwargs={"wait_for_workers": False})
        timer.start()
        assert model.score(*dasks_own) == wanted
        timer.join()


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True], ids=["lazy", "persisted"])
def test_a_worker_killed_while_a_dask_array_is_predicted_changes_nothing(
    kept, stores, four, tmp_path, dasks_own
):
    train, X = stores[0], dasks_own[0]
    with Client(four) as client:
        model = fitted("lma", train, tmp_path)
        wanted = dask.compute(*model.predict(X, return_std=True))
        lazy = model.predict(client.persist(X) if kept else X, return_std=True)
        timer = kill_one(client)
        found = dask.compute(*lazy)
        timer.join()
    assert [part.tobytes() for part in found] == [part.tobytes() for part in wanted]


@pytest.mark.slow
def test_a_worker_killed_while_rows_are_written_for_a_fit_changes_nothing(
    stores, four, tmp_path, killing, dasks_own
):
    def fit(folder):
        return made("sgpr").set_params(store=str(tmp_path / folder)).fit(*dasks_own)

    with Client(four) as client:
        wanted = fit("wanted")
        killing(client, 0, 2)
        assert learned(fit("found")) == learned(wanted)
    assert not [*tmp_path.glob("*/*")]  # the rows are gone
