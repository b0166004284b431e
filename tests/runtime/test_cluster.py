"""Where tasks run: what each scheduler can see, and settings that hold while tasks work."""

import contextlib
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import dask
import numpy as np
import pytest
import zarr
from distributed import LocalCluster
from threadpoolctl import threadpool_info

import daskgp
from daskgp.data import Rows, partition
from daskgp.data.blocks import sampling
from daskgp.errors import InputError
from daskgp.runtime.connect import connect
from daskgp.runtime.executor import Executor, map_reduce
from daskgp.runtime.process import ProcessSetting, single_blas_thread
from tests.fit import toy


def _blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_the_blas_limit_holds_whichever_thread_enters_first_and_leaves_last():
    with single_blas_thread():
        pass  # this thread has set a limit once
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        before = _blas_threads()
        first.submit(single_blas_thread().__enter__).result()
        assert first.submit(_blas_threads).result() == {1}
        second.submit(single_blas_thread().__enter__).result()
        first.submit(single_blas_thread().__exit__).result()
        assert second.submit(_blas_threads).result() == {1}
        second.submit(single_blas_thread().__exit__).result()
        assert _blas_threads() == before


@pytest.mark.parametrize(
    ("scheduler", "shared"),
    [
        (None, True),
        ("threads", True),
        ("sync", True),
        ("processes", False),
        (ThreadPoolExecutor, True),
        (ProcessPoolExecutor, False),
    ],
)
def test_memory_is_shared_with_threads_only(scheduler, shared):
    with contextlib.ExitStack() as stack:
        if isinstance(scheduler, type):
            scheduler = stack.enter_context(scheduler(1))
        stack.enter_context(dask.config.set(scheduler=scheduler))
        assert Executor.current(False).shares_memory is shared


def test_memory_is_not_shared_with_a_cluster(default_client):
    assert not Executor.current(False).shares_memory


@pytest.fixture
def pool():
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.slow
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


def test_a_setting_holds_until_the_last_leaves():
    log = []

    def hold():
        log.append("made")
        return lambda: log.append("taken back")

    held = ProcessSetting(hold)
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(held)
    second.enter_context(held)
    first.close()
    assert log == ["made"]
    second.close()
    assert log == ["made", "taken back"]
    with held:
        assert log == ["made", "taken back", "made"]


class Asking:
    """Reads like an array and notes how many chunks Zarr would fetch at a time."""

    def __init__(self, values):
        self.values, self.shape, self.ndim, self.dtype = values, values.shape, values.ndim, "f8"
        self.seen = []

    def __getitem__(self, rows):
        self.seen.append(zarr.config.get("async.concurrency"))
        return self.values[rows]


@pytest.mark.parametrize(("user", "seen"), [(10, 4), (2, 2)])
def test_tasks_fetch_few_chunks_at_a_time(user, seen):
    X, y = toy.data(100)
    asking = Asking(X)
    rows = Rows(asking, y, None, tuple("abc"), tuple("uv"))
    with zarr.config.set({"async.concurrency": user}):
        sampling.describe(rows, partition.blocks(100, None, 10), Executor(None, False))
        assert zarr.config.get("async.concurrency") == user
    assert asking.seen == 10 * [seen]


def test_a_scheduler_without_workers_is_not_waited_for_without_end():
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        with (
            pytest.raises(InputError, match=r"has no workers after 0\.5 s: start some") as caught,
            connect(address, timeout=0.5),
        ):
            pass
        assert "\n" not in str(caught.value)
        cluster.scale(1)
        with connect(address) as client:
            assert client.submit(int, "7").result() == 7


@pytest.mark.slow
def test_a_script_without_a_main_guard_ends_in_one_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import daskgp\nwith daskgp.connect(n_workers=2):\n    print('never')\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("Traceback") == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("daskgp.errors.RunError: the workers of the local cluster ended")
    assert 'belongs under `if __name__ == "__main__":`' in last


@pytest.mark.parametrize("pieces", [1, 3, 20])
def test_the_sum_of_a_round_that_is_shown_comes_back(client, pieces):
    """A round of one task is its own sum, which must outlive the tasks that are counted."""
    executor = Executor(client, show=True)
    found = map_reduce(_squared, _plus, range(pieces), executor, "shown")
    assert found == sum(i * i for i in range(pieces))


def _squared(i):
    return i * i


def _plus(a, b):
    return a + b
