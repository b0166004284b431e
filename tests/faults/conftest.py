"""A cluster of separate processes that tests may kill: scheduler and workers, as users do."""

import os
import signal
import socket
import subprocess
import sys

import pytest
from commands import ONE_THREAD
from distributed import Client


class Cluster:
    """A scheduler at one address, and workers that end with it."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler, self.workers = None, []
        self.environment = {**os.environ, **ONE_THREAD}

    def start(self, workers=2, **options):
        """Start the scheduler if it does not run, and some more workers of one thread."""
        if self.scheduler is None:
            where = ("--host", "127.0.0.1", "--port", self.port)
            self.scheduler = self._run("scheduler", *where, "--no-dashboard", "--no-show")
        for _ in range(workers):
            more = [part for pair in options.items() for part in pair]
            self.workers.append(
                self._run("worker", self.address, "--nthreads", 1, "--no-dashboard", *more)
            )
        return self

    def wait(self, workers=None):
        """Until all workers are there."""
        with Client(self.address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(workers or len(self.workers), timeout=60)

    def kill_workers(self):
        """Kill all workers and the nannies that would restart them."""
        for worker in self.workers:
            _kill(worker)
        self.workers = []

    def kill_scheduler(self):
        """Kill the scheduler; its workers end by themselves."""
        _kill(self.scheduler)
        self.scheduler = None

    def close(self):
        self.kill_workers()
        if self.scheduler is not None:
            self.kill_scheduler()

    def _run(self, *arguments):
        folder = self.folder / "logs"
        folder.mkdir(exist_ok=True)
        with open(folder / f"{arguments[0]}-{len(os.listdir(folder))}", "w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *map(str, arguments)],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )


def _kill(process):
    """Kill a process with all that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


@pytest.fixture
def cluster(tmp_path):
    """A cluster that is not running yet."""
    found = Cluster(tmp_path)
    yield found
    found.close()
