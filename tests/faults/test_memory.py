"""Tasks that need more memory than their plan says: one line with what fits."""

import re
import time

import dask
import numpy as np
import pytest
from commands import dataset, rows
from distributed import Client

import daskgp
from daskgp.data import Rows
from daskgp.errors import MemoryRunError, RunError
from daskgp.fit import plan, work

LIMIT = 400 << 20


@pytest.fixture(scope="module")
def cluster():
    """One worker with little memory, which dies for good of what is too much."""
    spawned = dask.config.set({"distributed.worker.multiprocessing-method": "spawn"})
    with spawned, daskgp.connect(n_workers=1, memory_limit=LIMIT) as client:
        client.run_on_scheduler(_allow_no_failure)
        yield client.scheduler.address


def _allow_no_failure(dask_scheduler):
    dask_scheduler.allowed_failures = 0


@pytest.fixture
def data(tmp_path):
    return dataset(tmp_path / "train.zarr", *rows(4_000), step=1_000)


def hungry(self, start, stop):
    """Reads rows and holds far more memory than the worker has."""
    held = []
    for _ in range(64):
        held.append(np.ones(64 << 17))
        time.sleep(0.05)
    return _read(self, start, stop)


_read = Rows.read


def greedy(self, start, stop):
    """Asks for more than any machine has."""
    return np.empty((1 << 50,)), _read(self, start, stop)


def patch(read):
    Rows.read = read


def restore():
    Rows.read = _read


def fit(model, data, cluster, read):
    with Client(cluster) as client:
        client.wait_for_workers(1, timeout=60)
        client.run(patch, read)
        try:
            model.set_params(progress=False).fit(*daskgp.open_dataset(data))
        finally:
            client.wait_for_workers(1, timeout=60)
            client.run(restore)


def test_workers_killed_for_memory_name_the_block_that_fits(data, cluster):
    model = daskgp.SGPR(n_inducing=20, optimizer=None)
    line = (
        r"workers died repeatedly on blocks of 2000 rows, most likely out of memory "
        r"\(0\.39 GiB per worker thread\): set block_rows to at most (\d+) or give the workers more"
    )
    with pytest.raises(MemoryRunError, match=line) as caught:
        fit(model, data, cluster, hungry)
    fits = int(re.search(line, str(caught.value))[1])
    assert 100 < fits <= 1_000
    given = daskgp.open_dataset(data)
    present = model.plan(*given).bytes_per_task
    assert model.set_params(block_rows=fits).plan(*given).bytes_per_task <= present / 2


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (
            daskgp.SGPR(n_inducing=20, optimizer=None),
            r"blocks of 2000 rows.*block_rows to at most \d+ or",
        ),
        (
            daskgp.ExpertsGP(n_experts=2, n_inducing=8),
            r"up to 2000 rows.*n_experts to at least \d+ or",
        ),
    ],
)
def test_a_task_without_memory_is_one_line(data, cluster, model, remedy):
    with pytest.raises(RunError, match=f"tasks ran out of memory on .*{remedy}") as caught:
        fit(model, data, cluster, greedy)
    assert "\n" not in str(caught.value)


def test_what_no_smaller_block_mends_asks_for_fewer_inputs():
    small = plan.Plan(10, 4, 3, 1_000, 1_000, 1_000, False, 10, 10, 0, 1.0)
    found = work.out_of_memory(
        MemoryRunError("workers died"),
        small,
        None,
        plan.Knob("block_rows", 4, "blocks of 4 rows", lambda rows: small),
    )
    assert str(found) == (
        "workers died on blocks of 4 rows, most likely out of memory: choose fewer inputs of the "
        "method or give the workers more memory"
    )


def test_a_prediction_without_memory_names_its_chunks(data, cluster, tmp_path):
    model = daskgp.SGPR(n_inducing=20, optimizer=None, progress=False)
    model.fit(*daskgp.open_dataset(data))
    with Client(cluster) as client:
        client.run(_break_moments)
        line = r"on chunks of 1000 rows, .*in chunks of at most 250 rows \(--block-rows\)"
        with pytest.raises(MemoryRunError, match=line):
            model.predict_store(data, str(tmp_path / "p.zarr"))
    assert not (tmp_path / "p.zarr").exists()


def _break_moments():
    from daskgp.posterior.posterior import Posterior

    def moments(*_, **__):
        return np.empty((1 << 50,))

    Posterior.moments = moments
