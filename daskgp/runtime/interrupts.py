"""Ctrl-C that ends work in good order before it ends the process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def first(end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` at the first Ctrl-C in the block; the next one is raised as usual.

    Threads other than the main one get no signals, and a handler that is not Python's own stays.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def heed(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end()

    signal.signal(signal.SIGINT, heed)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
