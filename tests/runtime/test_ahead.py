"""Workers of a command are forked from a process that imports what they need meanwhile."""

import os
import subprocess
import sys
import time

import dask
import pytest

from daskgp.runtime import ahead

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not fork safely")

SCRIPT = """
import os, sys
from multiprocessing import forkserver
from pathlib import Path
from daskgp.runtime import ahead

def imported():
    from threadpoolctl import threadpool_info
    threads = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert "PYTHONSAFEPATH" not in os.environ
    return "daskgp.estimators" in sys.modules, os.getppid(), threads

if __name__ == "__main__":
    before = dict(os.environ)
    ahead.start("daskgp.cli.workers")
    assert os.environ == before
    from daskgp.runtime.connect import connect
    with connect(n_workers=2) as client:
        found = client.run(imported)
    started, = {parent for _, parent, _ in found.values()}
    assert started == forkserver._forkserver._forkserver_pid != os.getpid()
    for there, _, threads in found.values():
        assert there and threads == {int(sys.argv[1])}
"""


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setattr(ahead, "_started", {ahead.os.getpid()})


@pytest.mark.whole
@pytest.mark.parametrize(("own", "threads"), [({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, 2)])
def test_workers_are_forked_from_it_and_have_what_it_imported(own, threads, tmp_path):
    path = tmp_path / "scripts" / "script.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    (tmp_path / "zarr.py").write_text("raise RuntimeError('a file of the working directory')")
    names = {f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL")}
    environment = {k: v for k, v in os.environ.items() if k not in names} | own
    done = subprocess.run(
        [sys.executable, path, str(threads)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_command_that_fails_at_once_does_not_wait_for_it(tmp_path):
    code = "import sys; from daskgp.runtime import ahead; ahead.start('slow'); sys.exit(3)"
    (tmp_path / "slow.py").write_text("import time; time.sleep(60)")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 3
    assert time.monotonic() - began < 30


def test_workers_start_anew_where_it_was_not_started(monkeypatch):
    monkeypatch.setattr(ahead, "_started", set())
    with dask.config.set({ahead.METHOD: "spawn"}), ahead.workers_start_from_it():
        assert dask.config.get(ahead.METHOD) == "spawn"


@pytest.mark.whole
@pytest.mark.parametrize(
    "own",
    [{ahead.METHOD: "fork"}, {ahead.SPAWN: {"OMP_NUM_THREADS": 4}}],
    ids=["method", "threads"],
)
def test_settings_of_the_user_are_kept(own, started):
    with dask.config.set({ahead.METHOD: "spawn"}), dask.config.set(own):
        before = dask.config.get(ahead.METHOD)
        with ahead.workers_start_from_it():
            assert dask.config.get(ahead.METHOD) == before


def test_it_is_used_otherwise(started):
    with dask.config.set({ahead.METHOD: "spawn"}), ahead.workers_start_from_it():
        assert dask.config.get(ahead.METHOD) == "forkserver"
