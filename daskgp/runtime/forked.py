"""Children forked from this process: they lack its threads, and find locks as they were.

A child makes pools of threads and locks of its own, drops caches whose locks another thread may
have held, and is told of the clients that it cannot use.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import dask.config
import dask.threaded
import distributed.utils
from distributed import Client

from daskgp.errors import RunError

_of_parent: weakref.WeakSet[Client | Executor] = weakref.WeakSet()


def in_children(renew: Callable[[], None]) -> Callable[[], None]:
    """Have a function called first of all in each process that is forked from this one."""
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=renew)
    return renew


def free_in_children(lock: Any) -> None:
    """Have no process forked while another thread holds a lock, which must never be for long."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )


def check(get: Any) -> None:
    """Raise RunError for a client, or processes, of the process that this one was forked from."""
    call = get.args[0] if isinstance(get, functools.partial) else get  # dask wraps executors
    owner = getattr(call, "__self__", None)
    if owner in _of_parent:
        raise RunError(
            f"this process was forked from one with a Dask {type(owner).__name__}, which cannot be "
            "used here: make a new one here, set dask.config.set(scheduler='threads'), or start "
            "processes by the method 'spawn' or 'forkserver'"
        )


def _cached_properties() -> Iterator[Any]:
    """Yield those of Dask and this package that have a lock, as they do up to Python 3.11."""
    modules = [m for name, m in sys.modules.items() if name.split(".")[0] in ("dask", "daskgp")]
    for kind in {kind for m in modules for kind in vars(m).values() if inspect.isclass(kind)}:
        for value in vars(kind).values():
            if isinstance(value, functools.cached_property) and hasattr(value, "lock"):
                yield value


free_in_children(dask.config.config_lock)


@in_children
def _renew() -> None:
    _of_parent.update(Client._instances)
    sys.modules["dask.tokenize"].tokenize_lock = threading.RLock()  # type: ignore[attr-defined]
    dask.threaded.pools_lock = threading.Lock()
    dask.threaded.main_thread = threading.current_thread()
    dask.threaded.default_pool = None
    dask.threaded.pools.clear()
    distributed.utils._offload_executor = ThreadPoolExecutor(1, "Dask-Offload")
    for cached in _cached_properties():
        cached.lock = threading.RLock()
    for name in ("pool", "scheduler"):
        pool = dask.config.get(name, None)
        if isinstance(pool, ThreadPool):
            threads = pool._processes  # type: ignore[attr-defined]
            dask.config.set({name: ThreadPoolExecutor(threads)})
        elif isinstance(pool, ThreadPoolExecutor):
            dask.config.set({name: ThreadPoolExecutor(pool._max_workers)})
        elif isinstance(pool, Executor):
            _of_parent.add(pool)
