"""Ends of training from outside: a function of the user's that sees every entry, and a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Callback: TypeAlias = Callable[[dict[str, Any]], Any]
_PRESENT: ContextVar[Callback | None] = ContextVar("callback", default=None)


class StopTraining(Exception):
    """Raised inside a loop that is to end, with the best point so far: by a callback or late."""


@dataclass
class Deadline:
    """Time of ``time.monotonic`` after which training ends, and whether it has ended any."""

    at: float
    passed: bool = False


_DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def until(at: float) -> Iterator[Deadline]:
    """End the training in the block, with the best point so far, at a time of ``monotonic``."""
    deadline = Deadline(at)
    token = _DEADLINE.set(deadline)
    try:
        yield deadline
    finally:
        _DEADLINE.reset(token)


def heed() -> None:
    """Raise StopTraining if the deadline has passed; called once there is a point to return."""
    deadline = _DEADLINE.get()
    if deadline is not None and time.monotonic() > deadline.at:
        deadline.passed = True
        raise StopTraining


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
        If it returns True, or the deadline has passed.
    """
    heed()
    callback = _PRESENT.get()
    if callback is None:
        return
    with calling(None):  # a fit inside the callback is not what it watches
        answer = callback(dict(entry))
    if isinstance(answer, bool | np.bool_) and answer:  # comparisons of NumPy give the latter
        raise StopTraining
