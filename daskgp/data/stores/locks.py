"""Locks: one run at a time writes a store, and the lock of a dead run is told from a live one's.

A lock is an object beside the store that only one writer can create.  It names its run and holds
a counter that the run increments.  Whether a run lives is asked of the operating system on its own
machine, and seen from the counter on any other.  No decision reads a clock that can be set.  The
lock of a dead run is replaced under a second lock, so that only one of many runs gets it.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from daskgp.data.stores import groups, objects, remote
from daskgp.data.stores.lock_owner import Holder
from daskgp.errors import DaskgpError, RunError, SettingError, StoreError

logger: logging.Logger = logging.getLogger("daskgp")

MISSED = 3.5
"""Heartbeats without a change after which a run on another host counts as dead."""
POLL = 0.25
"""Seconds between two checks of a lock that is waited for."""
CLEAR = "add --clear-lock (clear_lock=True in Python)"
CLEARING = 5.0
"""Seconds to wait for another run that is replacing the lock of a dead one, which takes no time."""


def lock_url(store: str) -> str:
    """Return the URL of the lock of a store."""
    return objects.beside(store, ".lock")


@dataclass(frozen=True)
class Claim:
    """A run's lock on a store; it travels to the tasks, which check it before they write."""

    url: str
    run: str
    carried: remote.Carried | None = dataclasses.field(default=None, compare=False)

    def held(self) -> bool:
        """Return whether the lock exists and is this run's."""
        return self._found() == self.run

    def taken(self) -> bool:
        """Return whether the lock exists and is another run's."""
        return self._found() not in (self.run, None)

    def _found(self) -> str | None:
        content = objects.read(self.url)
        return None if content is None else Holder.parse(content).run

    def check(self) -> None:
        """Raise RunError if the lock is gone or another run's."""
        if not self.held():
            raise RunError(
                f"the lock {self.url} no longer belongs to this run, because somebody cleared "
                "it: the run stops; wait until no other run is at work, and run it again, "
                "with --resume if it is a fit or a prediction"
            )


@dataclass(frozen=True)
class _Free(Claim):
    """Claim on what needs no lock, because others see nothing of it before it is whole."""

    def _found(self) -> str | None:
        return self.run


NOT_NEEDED = _Free("", "")


@contextmanager
def hold(
    store: str, wait: float = 0.0, clear: bool = False, resume: bool = False
) -> Iterator[Claim]:
    """Hold the lock of a store for the duration of a ``with`` block.

    Parameters
    ----------
    store : str
        URL of the store that the run is about to write.
    wait : float
        Seconds to wait for another run to end.
    clear : bool
        Whether to take over the lock of a run that is dead.
    resume : bool
        Whether to take over that of a run on this host whose process is certainly gone.  A run on
        a host of the same name, such as this one before a restart, counts as dead if it gives no
        sign of life for a while.

    Raises
    ------
    RunError
        If another run holds the lock, or the lock of a dead one is not taken over.
    """
    if not 0 <= wait < math.inf:
        raise SettingError(f"wait={wait}: a number of seconds, 0 or more, is needed")
    url = lock_url(store)
    claim = Claim(url, uuid.uuid4().hex, remote.carried(url))
    holder, stop = Holder.here(claim.run), threading.Event()
    heart = threading.Thread(target=_beat, args=(claim, holder, stop), daemon=True)
    _take(claim, holder, wait, _Over(clear, resume))
    try:
        heart.start()
        yield claim
    except BaseException as error:
        try:
            _give_back(claim, heart, stop)
        except DaskgpError as second:  # the first error is the one to show
            error.add_note(str(second))
        raise
    _give_back(claim, heart, stop)


def _give_back(claim: Claim, heart: threading.Thread, stop: threading.Event) -> None:
    stop.set()
    if heart.is_alive():
        heart.join()
    with groups.writing(claim.url, "the lock"):
        if claim.held():
            objects.delete(claim.url)


def holder_of(store: str) -> str | None:
    """Return who holds the lock of a store, and whether it still runs; None if nobody does."""
    content = objects.read(lock_url(store))
    if content is None:
        return None
    holder = Holder.parse(content)
    running = {True: "running", False: "no longer running", None: "not seen from here"}
    return f"{holder}, {running[holder.alive()]}"


# -- taking ----------------------------------------------------------------------------------


class _Held(RunError):
    """Error for a lock of another run; ``decided`` says that no more checks of it are needed."""

    decided = True


class _Over(NamedTuple):
    """Locks of dead runs to take over: ``any``, or those of hosts with this one's name."""

    any: bool
    near: bool

    def takes(self, other: Holder) -> bool:
        return self.any or (self.near and other.is_near())


class _Watch:
    """Repeated checks of one lock, from which its run is judged."""

    def __init__(self) -> None:
        self.content: bytes | None = None  # a lock is empty until its run has written it
        self.since, self.changes = 0.0, 0

    def alive(self, content: bytes, holder: Holder) -> bool | None:
        """Return whether the run lives; None as long as that cannot be told."""
        known = holder.alive()
        if known is not None:
            return known
        now = time.monotonic()
        if content != self.content:
            self.content, self.since, self.changes = content, now, self.changes + 1
        if now - self.since > MISSED * holder.every:
            return False
        return True if self.changes > 1 else None


def _take(claim: Claim, holder: Holder, wait: float, take: _Over) -> None:
    watch, end = _Watch(), time.monotonic() + wait
    while True:
        try:
            return _try_to_take(claim, holder, watch, take)
        except _Held as error:
            if error.decided and time.monotonic() >= end:
                raise
        time.sleep(POLL)


def _try_to_take(claim: Claim, holder: Holder, watch: _Watch, take: _Over) -> None:
    """Create the lock, or raise an error that describes the lock in its place."""
    with groups.writing(claim.url, "the lock"):
        while not objects.create(claim.url, holder.content()):
            content = objects.read(claim.url)
            if content is None:  # removed in between
                continue
            other = Holder.parse(content)
            alive = watch.alive(content, other)
            if alive is not False:
                raise _held(claim.url, other, alive, take)
            if not take.takes(other):
                remedy = f"add --resume to continue from it, or {CLEAR.removeprefix('add ')}"
                raise RunError(
                    f"the lock {claim.url} was left by {other}, which is no longer running: "
                    f"{remedy if other.is_near() else CLEAR}"
                )
            if _replaced(claim, holder, content):
                logger.info("the lock %s was left by %s: taken over", claim.url, other)
                return


def _replaced(claim: Claim, holder: Holder, content: bytes) -> bool:
    """Replace the lock of a dead run by this run's; return False if it has changed already.

    A second lock is held for that moment: without it, a run that has looked could replace a lock
    that a quicker one has created since.
    """
    guard = Claim(f"{claim.url}.clearing", claim.run)
    _take(guard, holder, CLEARING, _Over(any=True, near=True))
    try:
        same = objects.read(claim.url) == content
        if same:
            objects.replace(claim.url, holder.content())
        return same
    finally:
        if guard.held():
            objects.delete(guard.url)


def _held(url: str, other: Holder, alive: bool | None, take: _Over) -> _Held:
    wait = "wait for it with --wait SECONDS (wait= in Python)"
    if alive is None and not take.any:
        sure = f"{MISSED * other.every:g}"
        wait += f", or, if it is dead, {CLEAR}, which first looks for a sign of life for {sure} s"
    kept = ", so its lock is not cleared" if alive and take.any else ""
    work = "may be at work" if alive is None else "is at work"
    error = _Held(f"{other} {work} and holds the lock {url}{kept}: {wait}")
    error.decided = alive is not None or not take.takes(other)
    return error


def _beat(claim: Claim, holder: Holder, stop: threading.Event) -> None:
    """Increment the counter of the lock until the run ends or has lost the lock."""
    for beat in itertools.count(1):
        if stop.wait(holder.every):
            return
        try:
            claim.check()
            with groups.writing(claim.url, "the lock"):
                objects.replace(claim.url, dataclasses.replace(holder, beat=beat).content())
        except (OSError, StoreError) as error:  # such as a full disk: tried again at the next beat
            logger.warning(
                "the lock %s cannot be written (%s) and is tried again: if this "
                "goes on, other runs may take the lock for that of a dead run",
                claim.url,
                groups.first_line(error),
            )
        except RunError as error:
            logger.error("%s", error)
            return
