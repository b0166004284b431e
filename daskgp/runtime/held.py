"""Settings of the process that hold while tasks work."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Held:
    """A setting that holds while anybody is inside; entered by many threads of a process at once.

    Parameters
    ----------
    hold : callable
        Makes the setting and returns what takes it back.  Called by the first to enter; the last
        to leave takes back.
    """

    def __init__(self, hold: Callable[[], Callable[[], None]]) -> None:
        self._hold, self._lock, self._inside = hold, threading.Lock(), 0
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
