"""Callbacks of training: a function of the user's that sees every entry of the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np

Callback: TypeAlias = Callable[[dict[str, Any]], Any]
_PRESENT: ContextVar[Callback | None] = ContextVar("callback", default=None)


class StopTraining(Exception):
    """Raised by the callback's wish inside a loop, which ends with the best point so far."""


@contextmanager
def calling(callback: Callback | None) -> Iterator[None]:
    """Call a function with every entry of the histories that are written meanwhile."""
    token = _PRESENT.set(callback)
    try:
        yield
    finally:
        _PRESENT.reset(token)


def tell(entry: dict[str, Any]) -> None:
    """Call the present callback, if there is one, with a copy of an entry.

    Raises
    ------
    StopTraining
        If it returns True.
    """
    callback = _PRESENT.get()
    if callback is None:
        return
    with calling(None):  # a fit inside the callback is not what it watches
        answer = callback(dict(entry))
    if isinstance(answer, bool | np.bool_) and answer:  # comparisons of NumPy give the latter
        raise StopTraining
