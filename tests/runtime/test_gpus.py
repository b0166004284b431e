"""A cluster of real processes, one of which has a GPU that is simulated."""

import dask
import numpy as np
import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster

import daskgp
from daskgp.errors import DeviceError, DeviceMemoryError, SettingError
from daskgp.runtime import gpus
from daskgp.runtime.connect import connect
from daskgp.runtime.executor import Executor, chosen, mapped
from tests.fit import gpu


@pytest.fixture(scope="module")
def mixed():
    """Two worker processes, of which the one that declares a GPU has one."""
    options = {"nthreads": 1, "memory_limit": "600MiB", "dashboard_address": None}
    workers = {
        name: {"cls": Nanny, "options": {**options, "resources": resources}}
        for name, resources in (("with", {"GPU": 1}), ("without", {}))
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": None}}
    spawned = dask.config.set({"distributed.worker.multiprocessing-method": "spawn"})
    with (
        spawned,
        SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        with pytest.raises(DeviceError) as caught:
            gpus.claim(client)
        client.refused = str(caught.value)
        client.register_plugin(gpu.FakeGPU())
        yield client


def data(n=60):
    X = np.random.default_rng(0).uniform(0, 1, (n, 2))
    return X, np.sin(5 * X).sum(axis=1)


def address_of(client, declares):
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return next(a for a, worker in workers.items() if gpus.declares(worker) is declares)


@pytest.mark.slow
def test_a_worker_that_only_declares_a_gpu_is_named_before_any_work(mixed):
    assert mixed.refused == (
        f"device='gpu' is not available on 1 of 1 workers, {address_of(mixed, True)}: cupy is not "
        "installed; correct that there, start them without --resources GPU=1, or ask for "
        "device='auto' or 'cpu'"
    )


def test_workers_that_declare_nothing_are_all_asked(mixed, monkeypatch):
    monkeypatch.setattr(gpus, "declares", lambda worker: False)
    expected = r"on 1 of 2 workers, tcp://.*: cupy is not installed; start the workers that have a"
    with pytest.raises(DeviceError, match=expected):
        gpus.claim(mixed)


def test_a_cluster_at_an_address_is_asked_for_its_gpus(mixed, monkeypatch):
    monkeypatch.setattr(gpus, "declares", lambda worker: False)
    with (
        pytest.raises(DeviceError, match="is not available on 1 of 2 workers"),
        daskgp.connect(mixed.scheduler.address, device="gpu"),
    ):
        pass


def test_a_device_that_there_is_not_starts_no_cluster():
    with pytest.raises(SettingError, match="not 'cuda'"), daskgp.connect(device="cuda"):
        pass


def tasks(executor, what):
    return executor.compute_all(mapped(what, [(i,) for i in range(8)], "where"))


def test_tasks_run_where_the_device_is(mixed):
    assert set(tasks(Executor.current(False, "gpu"), gpu.module_of_arrays)) == {"fakearray_device"}
    executor = Executor.current(False, "gpu")
    kept = executor.persist(mapped(gpu.module_of_arrays, [(0,), (1,)], "kept"))
    assert executor.compute_all(kept) == ["fakearray_device"] * 2
    assert executor.threads() == 1
    assert Executor.current(False, "auto").threads() == 2


def test_a_plan_says_where_tasks_would_compute(mixed):
    executor = Executor.current(False)
    assert chosen(executor, "auto") == "gpu on 1 of 2 workers"
    assert chosen(executor, "cpu") == "cpu"
    here = Executor(None)
    assert chosen(here, "auto") == "cpu: cupy is not installed"
    assert chosen(here, "gpu") == "none: cupy is not installed"


def test_each_worker_takes_what_it_has(mixed):
    found = mixed.run(gpu.module_of_arrays)
    assert found == {
        address_of(mixed, True): "fakearray_device",
        address_of(mixed, False): "numpy",
    }


@pytest.mark.parametrize(
    "device",
    [
        "gpu",
        pytest.param("auto", marks=pytest.mark.slow),
        pytest.param("cpu", marks=pytest.mark.slow),
    ],
)
def test_a_fit_gives_the_numbers_of_the_cpu(mixed, tmp_path, device):
    X, y = data()
    settings = {"n_inducing": 5, "max_iter": 1, "block_rows": 20, "progress": False}
    with dask.config.set(scheduler="threads"):
        wanted = daskgp.SGPR(device="cpu", **settings).fit(X, y)
    before = mixed.run(gpu.moves)
    model = daskgp.SGPR(device=device, store=str(tmp_path), **settings).fit(X, y)
    moved = {a: n - before[a] for a, n in mixed.run(gpu.moves).items()}
    assert moved[address_of(mixed, False)] == 0
    assert (moved[address_of(mixed, True)] > 0) is (device == "gpu") or device == "auto"
    assert model.objective_ == pytest.approx(wanted.objective_, rel=1e-9)


def test_a_gpu_that_is_too_small_says_what_fits(mixed, tmp_path):
    X, y = data()
    model = daskgp.ExpertsGP(
        n_experts=2,
        expert="exact",
        optimizer=None,
        device="gpu",
        store=str(tmp_path),
        progress=False,
    )
    mixed.run(gpu.set_limit, 8 * 30 * 29)  # an expert of 30 rows has a matrix of 30 x 30
    try:
        with pytest.raises(DeviceMemoryError) as caught:
            model.fit(X, y)
    finally:
        mixed.run(gpu.set_limit, None)
    assert "the GPU ran out of memory (Out of memory allocating 7,200 bytes" in str(caught.value)
    assert "experts of up to 30 rows: set n_experts to at least 4, use" in str(caught.value)


@pytest.mark.slow
def test_a_local_cluster_of_gpus_declares_them(monkeypatch):
    gpu.install(monkeypatch)
    with connect(device="gpu") as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert [(w["nthreads"], w["resources"]) for w in workers] == [(1, {"GPU": 1})]
        with pytest.raises(DeviceError, match="cupy is not installed"):
            gpus.claim(client)  # a worker has no fake one
