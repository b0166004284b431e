"""Watchers for checks: whether anything is computed, and how values change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import dask.base
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
from distributed import Client

STEP = 1e-5


@contextmanager
def no_compute() -> Iterator[None]:
    """Fail if anything is computed by Dask inside the context.

    This holds for any scheduler: one that is set, one that is named in a call, or a distributed
    client.  The whole process is watched, other threads included.

    Examples
    --------
    >>> import dask.array as da
    >>> from daskgp import testing
    >>> lazy = da.ones(10).sum()
    >>> with testing.no_compute():
    ...     lazy = lazy + 1
    >>> with testing.no_compute():
    ...     lazy.compute()
    Traceback (most recent call last):
    AssertionError: something was computed where nothing should be
    """

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was computed where nothing should be")

    with ExitStack() as stack:
        for module in (dask.local, dask.threaded, dask.multiprocessing):
            stack.enter_context(mock.patch.object(module, "get_async", refuse))
        for method in ("compute", "persist", "get", "submit", "map"):
            stack.enter_context(mock.patch.object(Client, method, refuse))
        stack.enter_context(mock.patch.object(dask.base, "get_scheduler", return_value=refuse))
        yield


def central_differences(
    function: Callable[[np.ndarray], float], at: np.ndarray, step: float = STEP
) -> np.ndarray:
    """Return the gradient (k,) of a scalar function of a vector (k,), by central differences.

    Examples
    --------
    >>> central_differences(lambda v: float(v @ v), np.array([1.0, 2.0])).round(6)
    array([2., 4.])
    """
    at = np.asarray(at, np.float64)
    gradient = np.empty(at.size)
    for i in range(at.size):
        move = np.zeros(at.size)
        move[i] = step
        ahead, behind = (at.ravel() + move).reshape(at.shape), (at.ravel() - move).reshape(at.shape)
        gradient[i] = (function(ahead) - function(behind)) / (2 * step)
    return gradient.reshape(at.shape)


def agree(found: Any, wanted: Any, what: str = "", rtol: float = 1e-8, atol: float = 0.0) -> None:
    """Raise AssertionError, which names ``what``, unless two arrays are alike."""
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=what)
