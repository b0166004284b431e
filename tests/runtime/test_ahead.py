"""Workers of a command are forked from a process that imports what they need meanwhile."""

import subprocess
import sys

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
    return "daskgp.estimators" in sys.modules, os.getppid()

if __name__ == "__main__":
    before = dict(os.environ)
    ahead.start("daskgp.cli.workers")
    assert os.environ == before
    from daskgp.runtime.connect import connect
    with connect(n_workers=2) as client:
        found = client.run(imported)
    started, = {parent for _, parent in found.values()}
    assert started == forkserver._forkserver._forkserver_pid != os.getpid()
    assert all(there for there, _ in found.values())
"""


@pytest.fixture
def started(monkeypatch):
    monkeypatch.setattr(ahead, "_started", {ahead.os.getpid()})


def test_workers_are_forked_from_it_and_have_what_it_imported(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


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
