"""Process that imports what workers need while a command does: its local cluster starts from it.

Workers are forked from it, each in no time; started anew, one after the command's own imports, each
takes seconds for the same.  Importing this is cheap.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

MALLOC = {"MALLOC_TRIM_THRESHOLD_": 256 << 20, "MALLOC_MMAP_THRESHOLD_": 32 << 20}
"""Freed bytes that a worker keeps for its next block, and the size from which it keeps none.

Getting pages again can cost a task as much as its products; Dask's default gives all back.
"""
ARENAS = {"MALLOC_ARENA_MAX": 2}
"""Arenas of a worker, whose one thread computes: with more of them, freed memory gets gaps."""
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 1)
"""Threads of the BLAS of a worker, as Dask sets them unless the user does."""
SAFE = "PYTHONSAFEPATH"
"""Variable by which files of the working directory are not taken for modules."""
METHOD, SPAWN = "distributed.worker.multiprocessing-method", "distributed.nanny.pre-spawn-environ"

_started: set[int] = set()
"""This process, once it has started the other."""


def start(*modules: str) -> None:
    """Start the process, which imports modules, where systems fork and there is a core for it."""
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2 or os.getpid() in _started:
        return
    usual = {**MALLOC, **ARENAS, **THREADS}
    own = {name: os.environ.get(name, str(value)) for name, value in usual.items()} | {SAFE: "1"}
    before = {name: os.environ.get(name) for name in own}
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(modules))
    multiprocessing.resource_tracker.ensure_running()  # which heeds Ctrl-C again once it has begun
    os.environ.update(own)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    if not _started:
        atexit.register(_end)
    _started.add(os.getpid())


def _end() -> None:
    """End the process, which otherwise holds the output of this one until it has imported."""
    pid = multiprocessing.forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    if os.getpid() in _started and pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def workers_start_from_it() -> AbstractContextManager[Any]:
    """Have workers that start inside be forked from the process, unless the user says otherwise."""
    import dask
    from distributed.config import defaults

    usual = all(
        dask.config.get(name) == dask.config.get(name, config=defaults) for name in (METHOD, SPAWN)
    )
    if os.getpid() not in _started or not usual:
        return nullcontext()
    settings: AbstractContextManager[Any] = dask.config.set({METHOD: "forkserver"})
    return settings
