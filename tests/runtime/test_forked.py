"""Children forked after a fit predict, fit and end, with the bits of their parent."""

import functools
import multiprocessing
import os
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path

import dask
import dask.array as da
import joblib
import numpy as np
import pytest
from dask.tokenize import tokenize_lock
from distributed import Client, LocalCluster
from fits import same_bits as same

import daskgp
from daskgp.arrays import backend
from daskgp.data import reading
from daskgp.errors import DeviceError, RunError
from daskgp.fit import scratch
from daskgp.posterior import training_rows
from daskgp.predict import stored
from daskgp.runtime import process

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 3, (120, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(120)
SECONDS = 60
"""Longest that a child may take, which takes one."""


def new(kind=daskgp.SGPR):
    small = {"n_support": 8, "block_rows": 30} if kind is daskgp.LMA else {"n_inducing": 8}
    kernel = daskgp.kernels.Matern32((0.8, 0.8), variance=1.2)
    return kind(kernel, optimizer=None, noise_variance=0.01, progress=False, **small)


def outcome(model):
    """What a fitted model gives at a few rows, and what its like gives when it is fitted."""
    again = new(type(model)).fit(X, Y)
    mean, std = model.predict(X[:5], return_std=True)
    parts = [mean, std, model.sample_y(X[:5], random_state=1), model.score(X, Y)]
    return [*parts, again.predict(X[:5]), again.objective_]


def in_child(job):
    """What a job returns in a forked process; an error of it is raised here."""
    context = multiprocessing.get_context("fork")
    answers, answer = context.Pipe(False)

    def run():
        try:
            answer.send(job())
        except Exception as error:  # noqa: BLE001 - the parent raises it
            traceback.print_exc()
            answer.send(error)

    child = context.Process(target=run)
    child.start()
    try:
        assert answers.poll(SECONDS), "the child hangs"
        found = answers.recv()
        child.join(SECONDS)
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()
    if isinstance(found, Exception):
        raise found
    return found


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A method that keeps nothing, one that keeps rows, and that one loaded."""
    plain, local = new().fit(X, Y), new(daskgp.LMA).fit(X, Y)
    url = str(tmp_path_factory.mktemp("store") / "model.zarr")
    local.save(url)
    return plain, local, daskgp.load(url)


@pytest.mark.slow
def test_a_child_predicts_samples_scores_and_fits(models):
    for model in models:
        same(in_child(functools.partial(outcome, model)), outcome(model))


def test_a_child_of_a_thread_does_too(models):
    found = []
    apart = threading.Thread(target=lambda: found.extend(in_child(lambda: outcome(models[1]))))
    apart.start()
    apart.join()
    same(found, outcome(models[1]))


def test_lazy_predictions_of_the_parent_are_computed_by_a_child(models):
    lazy = models[1].predict(da.from_array(X, chunks=50))
    same(in_child(lazy.compute), lazy.compute())


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ThreadPool])
def test_threads_given_to_dask_are_made_anew(models, kind):
    with kind(1) as pool, dask.config.set(pool=pool):
        wanted = outcome(models[0])
        same(in_child(lambda: outcome(models[0])), wanted)
        assert in_child(lambda: dask.config.get("pool")._max_workers) == 1


def test_processes_given_to_dask_are_refused():
    context = multiprocessing.get_context("spawn")
    refused = pytest.raises(RunError, match="forked from one with a Dask ProcessPoolExecutor")
    with ProcessPoolExecutor(1, context) as pool, dask.config.set(scheduler=pool), refused:
        in_child(lambda: new().fit(X, Y))


def test_processes_of_joblib_predict_and_fit(models):
    jobs = [joblib.delayed(outcome)(models[0]) for _ in range(2)]
    for found in joblib.Parallel(2, backend="multiprocessing", timeout=SECONDS)(jobs):
        same(found, outcome(models[0]))


def test_locks_that_threads_hold_are_free_in_a_child(models):
    wanted, local = outcome(models[1]), models[2]
    held = [
        tokenize_lock,
        dask.threaded.pools_lock,
        stored._GUARD,
        training_rows._GUARD,
        process._blas_limit._lock,
        reading._few_at_a_time._lock,
        reading._held().lock,
        training_rows._cache("cpu", training_rows.CACHE_BYTES).lock,
    ]
    ready, end = threading.Event(), threading.Event()

    def hold():
        for lock in held:
            lock.acquire()
        ready.set()
        end.wait(SECONDS)
        for lock in held:
            lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert ready.wait(SECONDS)
        found = in_child(lambda: outcome(local))
    finally:
        end.set()
        holder.join()
    same(found, wanted)


def test_a_fork_waits_for_settings_that_are_being_changed():
    lock, late = dask.config.config_lock, 0.3
    lock.acquire()
    threading.Timer(late, lock.release).start()
    before = time.monotonic()
    assert in_child(lambda: dask.config.set(some=1).config["some"]) == 1
    assert time.monotonic() - before >= late


def test_a_child_cannot_use_the_client_of_its_parent_but_its_own(models):
    model, lazily = models[0], da.from_array(X, chunks=50)
    wanted, chunked = outcome(model), model.predict(lazily).compute()

    def cluster():
        return LocalCluster(n_workers=1, processes=False, dashboard_address=":0")

    def with_threads():
        with dask.config.set(scheduler="threads"):
            return outcome(model)

    def with_its_own():
        with cluster() as own, Client(own):
            return model.predict(lazily).compute()

    with cluster() as first, Client(first) as client:
        same(client.submit(np.multiply, np.ones(3), 2).result(), 2 * np.ones(3))
        for job in (lambda: new().fit(X, Y), lambda: model.predict(lazily)):
            with pytest.raises(RunError, match="forked from one with a Dask Client") as error:
                in_child(job)
            assert "\n" not in str(error.value)
            assert "spawn" in str(error.value)
        same(in_child(lambda: model.predict(X[:5])), wanted[0])
        same(in_child(with_threads), wanted)
        same(in_child(with_its_own), chunked)
    same(in_child(lambda: outcome(model)), wanted)


def test_a_child_that_ends_leaves_the_temporary_rows_of_its_parent(monkeypatch):
    ends = []
    monkeypatch.setattr(scratch.atexit, "register", lambda *call, **_: ends.append(call))
    folder = Path(scratch._temporary_folder())
    ((remove, *arguments),) = ends
    in_child(lambda: remove(*arguments))
    assert folder.is_dir()
    remove(*arguments)
    assert not folder.exists()


def test_a_child_of_a_process_that_computed_on_a_gpu_is_told(monkeypatch):
    cupy = object()
    monkeypatch.setattr(backend, "_working", {cupy: ""})
    monkeypatch.setattr(backend, "_cupy", lambda: (cupy, ""))
    assert backend.resolve_device("gpu") == "gpu"
    with pytest.raises(DeviceError, match="start processes by 'spawn'"):
        in_child(lambda: backend.resolve_device("gpu"))
