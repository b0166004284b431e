"""Ends of training from outside: a function of the user's that sees every entry, and a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from daskgp.checks import shown
from daskgp.errors import SettingError

Callback: TypeAlias = Callable[[dict[str, Any]], Any]
_PRESENT: ContextVar[Callback | None] = ContextVar("callback", default=None)


class StopTraining(Exception):
    """Raised inside a loop that is to end, with the best point so far: by a callback or late."""


@dataclass
class Deadline:
    """Time of ``time.monotonic`` at which training ends, and whether it has ended any.

    Attributes
    ----------
    pace : float
        Seconds of the last evaluation; another one is begun only if it can end in time.
    """

    at: float
    passed: bool = False
    pace: float = 0.0

    def leaves_room(self, evaluations: float) -> bool:
        """Return True if so many evaluations can end in time."""
        return time.monotonic() + evaluations * self.pace <= self.at


_DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


_ENDED: ContextVar[list[bool] | None] = ContextVar("ended", default=None)


@contextmanager
def ended() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether a training in the block was ended from outside."""
    ends: list[bool] = []
    token = _ENDED.set(ends)
    try:
        yield lambda: bool(ends)
    finally:
        _ENDED.reset(token)


def _end() -> StopTraining:
    """Return what ends a training, and take note of it."""
    ends = _ENDED.get()
    if ends is not None:
        ends.append(True)
    return StopTraining()


@contextmanager
def until(at: float) -> Iterator[Deadline]:
    """End the training in the block, with the best point so far, at a time of ``monotonic``."""
    deadline = Deadline(at)
    token = _DEADLINE.set(deadline)
    try:
        yield deadline
    finally:
        _DEADLINE.reset(token)


def heed(seconds: float | None = None) -> None:
    """Raise StopTraining if another evaluation would end after the deadline.

    It is called after every evaluation, once there is a point to return; ``seconds`` is what the
    next one is expected to take, where this one tells it.
    """
    deadline = _DEADLINE.get()
    if deadline is None:
        return
    if seconds is not None:
        deadline.pace = seconds
    if not deadline.leaves_room(1.0):
        deadline.passed = True
        raise _end()


def cut() -> None:
    """Take note that the deadline has ended a training."""
    deadline = _DEADLINE.get()
    if deadline is not None:
        deadline.passed = True
        _end()


def has_room(evaluations: float) -> bool:
    """Return True if so many evaluations like the last one can end before the deadline."""
    deadline = _DEADLINE.get()
    return deadline is None or deadline.leaves_room(evaluations)


def timed() -> bool:
    """Return True within a search, whose fits have a deadline and start where others have ended."""
    return _DEADLINE.get() is not None


@contextmanager
def calling(callback: Callback | None) -> Iterator[None]:
    """Call a function with every entry of the histories that are written meanwhile.

    Raise SettingError for anything else but None.
    """
    if callback is not None and not callable(callback):
        raise SettingError(
            f"callback={shown(callback)}: give a function that takes an entry of history_, or None"
        )
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
    if not has_room(0.0):
        cut()
        raise _end()
    callback = _PRESENT.get()
    if callback is None:
        return
    with calling(None):  # a fit inside the callback is not what it watches
        answer = callback(dict(entry))
    if isinstance(answer, bool | np.bool_) and answer:  # comparisons of NumPy give the latter
        raise _end()
