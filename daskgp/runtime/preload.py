"""Preload that lets a cluster work for months: Dask's records of finished work are kept short.

The records say what a cluster did lately, to people who look for errors in Dask.  Some fill up only
after thousands of rounds, one is never shortened; tasks need none of them.

A scheduler with ``--preload daskgp.runtime.preload`` does without that last one, too.  Schedulers
and workers that preload it forget the names of finished tasks, of which Dask keeps 100,000.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import dask
from dask.utils import key_split
from distributed import Scheduler, Worker, WorkerPlugin
from distributed.config import defaults
from distributed.spans import SpansSchedulerExtension
from tornado.ioloop import PeriodicCallback

RECORDS: dict[str, int] = {
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.log-length": 100,
    "distributed.diagnostics.computations.max-history": 10,
    "distributed.worker.profile.enabled": False,
}
"""Messages, transitions and log lines that each process keeps, graphs that the scheduler keeps, and
whether workers note every second where their tasks spent it: 50 KiB or more, for 1,000 seconds."""


def short_records() -> AbstractContextManager[Any]:
    """Shorten the records of schedulers, workers and clients that start inside.

    Settings of the user stay as they are.
    """
    settings: AbstractContextManager[Any] = dask.config.set(
        {
            name: value
            for name, value in RECORDS.items()
            if dask.config.get(name) == dask.config.get(name, config=defaults)
        }
    )
    return settings


def environment() -> dict[str, str]:
    """Return the same settings as environment variables for processes to be started."""
    return {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
        for name, value in RECORDS.items()
    }


class _NoSpans(SpansSchedulerExtension):
    """Extension without a record of the graphs of a cluster's whole life and their task groups.

    Workers label their sums of seconds by these records, so those stay few as well.
    """

    def observe_tasks(self, *_: Any, **__: Any) -> dict[Any, dict[Any, Any]]:
        """Note nothing."""
        return {}

    def heartbeat(self, *_: Any) -> None:
        """Ignore what workers say of their tasks, which the scheduler itself sums."""


FORGET = "daskgp-forget-names"
FORGET_EVERY = 60.0
"""Seconds after which the names of tasks are forgotten."""


def _forget_often(server: Scheduler | Worker) -> None:
    """Empty the cache of the names that task keys begin with, every FORGET_EVERY seconds."""
    if FORGET in server.periodic_callbacks:  # preloaded already, before the plugin
        return
    often = PeriodicCallback(key_split.cache_clear, 1e3 * FORGET_EVERY)
    server.periodic_callbacks[FORGET] = often  # the server stops it when it closes
    server.loop.add_callback(_start, often)


def _start(callback: PeriodicCallback) -> None:
    """Start a callback unless the server has started it itself."""
    if not callback.is_running():
        callback.start()


class ForgetNames(WorkerPlugin):
    """Plugin by which workers of a local cluster forget the names of finished tasks."""

    name = FORGET

    def setup(self, worker: Worker) -> None:
        """Begin to forget names."""
        _forget_often(worker)


def dask_setup(server: Scheduler | Worker) -> None:
    """Forget names of tasks, and in a scheduler keep no record of graphs.

    Dask looks for a function of this name in a module that is preloaded.
    """
    _forget_often(server)
    if isinstance(server, Scheduler):
        server.extensions["spans"] = _NoSpans(server)
