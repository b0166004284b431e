"""What a user sees of work that goes on: bars in notebooks, lines of the log, names of tasks."""

import logging
import re

import numpy as np
import pytest
from commands import dataset
from distributed import Client
from jupyter_client.manager import run_kernel

import daskgp

CELL = """
import numpy as np, daskgp
X = np.random.default_rng(0).standard_normal((400, 2))
model = daskgp.SGPR(n_inducing=10, max_iter=3, progress="auto").fit(X, X[:, 0])
"""
LINE = re.compile(r'daskgp_round_seconds\{round="([\w-]+)",tasks="(\d+)"\} (\d+\.\d{3})')


def shown():
    """The kinds of output of a cell that fits, in a real kernel."""
    kinds = set()
    # The blocking client, as that of asyncio now and then misses a message until its timeout.
    with run_kernel(kernel_name="python3") as client:
        cell = client.execute(CELL)
        while True:
            message = client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") == cell:
                kinds.update(message["content"].get("data", ()))
                if message["content"].get("execution_state") == "idle":
                    return kinds


@pytest.mark.filterwarnings("default")
@pytest.mark.slow
def test_a_notebook_shows_bars():
    assert "application/vnd.jupyter.widget-view+json" in shown()


def table(n=400):
    X = np.random.default_rng(0).standard_normal((n, 2))
    return X, X[:, 0]


def test_every_round_leaves_one_line_that_prometheus_can_read(caplog):
    with caplog.at_level(logging.INFO, "daskgp"):
        model = daskgp.SGPR(n_inducing=10, max_iter=2, block_rows=100, progress=False)
        model.fit(*table())
    lines = [m for text in caplog.messages if (m := LINE.fullmatch(text))]
    rounds = {m[1]: int(m[2]) for m in lines}
    assert rounds["sgpr-local"] == rounds["sgpr-gradient"] == rounds["describe"] == 4
    evaluations = len(model.history_)
    assert sum(m[1] == "sgpr-gradient" for m in lines) >= evaluations


def test_tasks_are_grouped_on_the_dashboard_by_what_they_do(scheduler, tmp_path):
    X, y = table()
    store = dataset(tmp_path / "rows.zarr", X, y)
    with Client(scheduler) as client:
        client.run_on_scheduler(_forget)
        model = daskgp.SGPR(n_inducing=10, max_iter=1, block_rows=100, progress=False)
        model.fit(X, y)
        model.predict_store(store, str(tmp_path / "out.zarr"))
        seen = set(client.run_on_scheduler(_prefixes))
    wanted = {"describe", "sgpr-local", "sgpr-local-sum", "sgpr-gradient", "predict"}
    assert wanted | {"predict-write"} <= seen


def _forget(dask_scheduler):
    dask_scheduler.task_prefixes.clear()


def _prefixes(dask_scheduler):
    return list(dask_scheduler.task_prefixes)
