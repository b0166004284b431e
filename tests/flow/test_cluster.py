"""Where tasks run: what each scheduler can see, and settings that hold while tasks work."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import dask
import numpy as np
import pytest

import daskgp
from daskgp.flow.cluster import Executor
from tests.flow import toy


@pytest.mark.parametrize(
    ("scheduler", "shared"),
    [(None, True), ("threads", True), ("sync", True), ("processes", False), (dask.get, True)],
    ids=str,
)
def test_memory_is_shared_with_threads_only(scheduler, shared):
    with dask.config.set(scheduler=scheduler):
        assert Executor.current(False).shares_memory is shared


@pytest.mark.parametrize(
    ("pool", "shared"), [(ThreadPoolExecutor, True), (ProcessPoolExecutor, False)]
)
def test_memory_is_shared_with_pools_of_threads_only(pool, shared):
    with pool(1) as executor, dask.config.set(scheduler=executor):
        assert Executor.current(False).shares_memory is shared


def test_memory_is_not_shared_with_a_cluster(default_client):
    assert not Executor.current(False).shares_memory


@pytest.fixture
def pool():
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_the_process_scheduler_gives_the_bits_of_threads(tmp_path, pool):
    X, y = np.random.default_rng(0).standard_normal((40, 3)), toy.data(40)[1]
    found = {}
    for scheduler in ("threads", "processes"):
        model = daskgp.SGPR(
            n_inducing=6, max_iter=1, block_rows=20, store=str(tmp_path), progress=False
        )
        pools = {} if scheduler == "threads" else {"pool": pool}  # started once, not a round
        with dask.config.set(scheduler=scheduler, num_workers=2, **pools):
            model.fit(X, y)
        found[scheduler] = [
            np.float64(model.objective_).tobytes(),
            model.kernel_.log_parameters.tobytes(),
            model.predict(X[:5]).tobytes(),
        ]
    assert found["threads"] == found["processes"]
    assert not list(tmp_path.iterdir())  # the temporary store is gone
