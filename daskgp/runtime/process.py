"""Settings of one process: the threads of its BLAS, and the freed memory that it keeps."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

import dask
from distributed import Worker, get_worker
from threadpoolctl import ThreadpoolController

from daskgp.runtime.ahead import ARENAS, MALLOC, SPAWN
from daskgp.runtime.forked import in_children

DASKS_TRIM = 65_536


class ProcessSetting:
    """Reference-counted process setting: it holds while any thread of the process is inside.

    Parameters
    ----------
    hold : callable
        Makes the setting and returns a function that undoes it.  Called by the first to enter;
        the last to leave undoes the setting.
    """

    def __init__(self, hold: Callable[[], Callable[[], None]]) -> None:
        self._hold = hold
        self._free()
        in_children(self._free)

    def _free(self) -> None:
        """Have no thread inside."""
        self._lock, self._inside = threading.Lock(), 0
        self._take_back: Callable[[], None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._take_back = self._hold()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._take_back is not None:
                self._take_back()
                self._take_back = None


def memory_is_kept() -> AbstractContextManager[Any]:
    """Have workers that start inside keep some freed memory, unless the user says otherwise."""
    environment = dask.config.get(SPAWN, {})
    if environment.get("MALLOC_TRIM_THRESHOLD_") != DASKS_TRIM:
        return nullcontext()
    settings: AbstractContextManager[Any] = dask.config.set(
        {SPAWN: {**environment, **MALLOC, **ARENAS}}
    )
    return settings


TRIM, MMAP, GIVEN_BACK = -1, -3, 64 << 20
"""Options of glibc's mallopt, and the freed memory kept where nobody asks for more."""


def _keep_freed() -> Callable[[], None]:
    """Apply MALLOC to this process; return the undo.  C libraries without it do as they like."""
    if os.name != "posix" or any(name in os.environ for name in MALLOC):
        return lambda: None
    libc: Any = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim")):
        return lambda: None
    libc.mallopt(TRIM, MALLOC["MALLOC_TRIM_THRESHOLD_"])
    libc.mallopt(MMAP, MALLOC["MALLOC_MMAP_THRESHOLD_"])

    def give_back() -> None:
        libc.mallopt(TRIM, GIVEN_BACK)
        libc.malloc_trim(0)

    return give_back


freed_memory_is_kept = ProcessSetting(_keep_freed)
"""Setting to enter while this process itself computes with large arrays that come and go."""


def this_worker() -> Worker | None:
    """Return the Dask worker whose task this thread runs; None elsewhere."""
    try:
        return get_worker()
    except ValueError:
        return None


once: set[tuple[str, str]] = set()
"""Models and warnings that `warn_once` has given in this process."""
_looking = threading.Lock()


def _new(known: set[tuple[str, str]], message: str, of: str) -> bool:
    """Note a warning of a model; return True if it was not known."""
    with _looking:  # threads may find the same at once
        new = (of, message) not in known
        known.add((of, message))
    return new


def warn_once(message: str, of: str = "") -> None:
    """Warn once per process ``of`` a model; a worker leaves it to the client to show it."""
    if not _new(once, message, of):
        return
    worker = this_worker()
    if worker is None:
        warnings.warn_explicit(message, UserWarning, *_users_line())
    else:  # distributed.warn would show it on the worker's stderr as well, often the client's
        worker.log_event("warn", message)


_warned: set[tuple[str, str]] = set()
"""Models and warnings of the calls that `warn_in_call` has given in this process."""


def warn_in_call(message: str, of: str) -> None:
    """Warn once ``of`` a model until `begin_call`; in a worker process, once."""
    if this_worker() is not None:
        warn_once(message, of)
    elif _new(_warned, message, of):
        # without a registry, or Python would show a line only the first time
        warnings.warn_explicit(message, UserWarning, *_users_line())


def _users_line() -> tuple[str, int]:
    """Return file and line of the user's call, of the main thread where this one is of a pool."""
    for frame in (sys._getframe(), sys._current_frames().get(threading.main_thread().ident or 0)):
        while frame is not None:
            name = frame.f_globals.get("__name__", "").partition(".")[0]
            if name not in ("daskgp", "dask", "xarray") and not _is_installed(frame):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
    return __file__, 1


def _is_installed(frame: FrameType) -> bool:
    """Return whether code is of the standard library, or of an installed package."""
    file = frame.f_code.co_filename
    return file.startswith(("<frozen", *map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))))


def begin_call(of: str) -> None:
    """Let `warn_in_call` give its warnings ``of`` a model again."""
    _warned.difference_update(key for key in tuple(_warned) if key[0] == of)


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@functools.cache
def _setter(process: int) -> ThreadPoolExecutor:
    """Return the only thread of a process that sets limits: OpenBLAS heeds the first to do so."""
    return ThreadPoolExecutor(1, thread_name_prefix="daskgp-blas")


def _limit_blas() -> Callable[[], None]:
    setter = _setter(os.getpid())
    limiter: Any = setter.submit(_enter_limit).result()
    return lambda: setter.submit(limiter.__exit__, None, None, None).result()


def _enter_limit() -> Any:
    limiter: Any = _controller().limit(limits=1, user_api="blas")
    limiter.__enter__()  # otherwise the limit would stay this thread's for ever
    return limiter


_blas_limit = ProcessSetting(_limit_blas)


SMALL = 1_536
"""Order of a matrix below which more BLAS threads cost as much as they gain."""


def solve_threads(order: int) -> AbstractContextManager[None]:
    """Return the BLAS limit of a small solve in the client: all threads from order SMALL on."""
    return single_blas_thread() if order < SMALL else nullcontext()


def single_blas_thread() -> ProcessSetting:
    """Limit BLAS to one thread: Dask already runs one task per core."""
    return _blas_limit
