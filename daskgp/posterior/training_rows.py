"""Training rows that predictions read back: their interface, and the cache of a process."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import dask
import numpy as np
import zict
from distributed.system import MEMORY_LIMIT

from daskgp.arrays import backend
from daskgp.data import Rows
from daskgp.data.blocks import prepared
from daskgp.data.blocks.around import Key
from daskgp.models.method import Method
from daskgp.models.scaling import Scaling
from daskgp.models.values import Moments, Theta, Want, move
from daskgp.runtime import device_memory
from daskgp.runtime.forked import in_children
from daskgp.runtime.process import this_worker

_GUARD = threading.Lock()
_making: dict[tuple[str, Key], threading.Lock] = {}
CACHE_SHARE, DEVICE_SHARE = 0.1, 0.25
"""Share of a process's memory, and of a GPU's, for factored rows; ``daskgp.cache-bytes`` in
Dask's configuration sets a number of bytes instead."""
EXPERT_ROWS = 512
"""Rows of an expert, for a rough estimate of work."""
CACHE_BYTES = 96 * 2**20
"""Maximum bytes of local methods' factored rows, and of the blocks they come from, on the host."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted method on one device; ``token`` identifies it."""

    model: Method
    theta: Theta
    state: Any
    scaling: Scaling
    token: str
    device: str


class NewRows(NamedTuple):
    """Rows to predict at: X (n, d), in the model's units ``scaled`` (n, d), and ``usable`` (n,)."""

    X: np.ndarray
    scaled: np.ndarray
    usable: np.ndarray


@dataclass(frozen=True, eq=False)
class TrainingRows(ABC):
    """Base of the training rows that a fitted method reads back."""

    rows: Rows
    fewer: ClassVar[str] = "fewer inputs of the method"
    """Change of the fit with which predictions need less of a GPU's memory."""
    together: ClassVar[bool] = False
    """True if the rows of one call are better predicted together, however many they are."""

    @property
    @abstractmethod
    def token(self) -> str:
        """Checksum of the rows and of how they are cut."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that a model store keeps beside the rows."""

    @abstractmethod
    def describe(self, state: Any) -> dict[str, str]:
        """Return names and texts that describe the rows to people; ``state`` is that of a fit."""

    @abstractmethod
    def write(self, url: str) -> None:
        """Write the rows to a new dataset store."""

    def lies_at(self, url: str) -> bool:
        """Return True if the rows are read from the store at a URL."""
        return prepared.lies_at(self.rows, url)

    def order(self, X: np.ndarray, usable: np.ndarray) -> np.ndarray | None:
        """Return the order (n,) in which rows X (n, d) are best predicted; None for any."""
        return None

    def operations(self, places: int) -> float:
        """Return about how many floating-point operations go into reading them for some places."""
        return 2.0 * places * len(self.rows) * min(len(self.rows), EXPERT_ROWS)

    def place(self) -> np.ndarray | None:
        """Return a place (1, d) near training rows; None if that does not matter."""
        return None

    def check(self, fit: Fitted) -> bool:
        """Raise StoreError for rows that do not fit a method; True to skip a trial prediction."""
        return False

    @abstractmethod
    def moments(self, fit: Fitted, new: NewRows, want: Want, most: int) -> Moments:
        """Return the posterior at new rows, of which ``most`` are predicted at a time.

        Those that are not ``usable`` may come out as anything.
        """


class Streamed(TrainingRows):
    """Base of training rows that a method's ``predict`` reads itself, part after part."""

    @abstractmethod
    def near(self, fit: Fitted) -> Any:
        """Return what ``predict`` reads them from."""

    def moments(self, fit: Fitted, new: NewRows, want: Want, most: int) -> Moments:
        """Return the posterior at new rows, see ``TrainingRows``."""
        return in_tiles(fit, self.near(fit), new.scaled, want, most)


def in_tiles(fit: Fitted, near: Any, scaled: np.ndarray, want: Want, most: int) -> Moments:
    """Return the posterior at scaled rows (n, d), ``most`` of them at a time."""
    tiles = []
    for start in range(0, max(len(scaled), 1), most):
        inputs = backend.to_device(scaled[start : start + most], fit.device)
        tiles.append(move(fit.model.predict(fit.theta, fit.state, inputs, near, want), "cpu"))
    if len(tiles) == 1:
        return tiles[0]
    mean, variance = (
        None if parts[0] is None else np.concatenate(parts)
        for parts in zip(*((part.mean, part.variance) for part in tiles), strict=True)
    )
    first: Moments = tiles[0]
    return first._replace(mean=mean, variance=variance)


def cached(key: tuple[str, Key], make: Callable[[], Any], device: str, most: float = np.inf) -> Any:
    """Return what ``make`` returns, or what it returned before in this process if still cached.

    All that is cached with the same ``most`` takes ``most`` bytes, or its share of memory if that
    is less.
    """
    with _GUARD:
        lock = _making.setdefault(key, threading.Lock())
    with lock:  # other threads wait for what one of them makes
        entries = _cache(device, most)
        try:
            return entries[key]
        except KeyError:
            made = make()
            if made.nbytes <= entries.n:
                entries[key] = made
            return made
        finally:
            with _GUARD:
                _making.pop(key, None)


@cache
def _cache(device: str, most: float = np.inf) -> Any:
    """Return the cache of this process for a device; the least recently used is dropped first."""
    return zict.LRU(_budget(device, most), {}, weight=lambda key, value: value.nbytes)


@in_children
def _renew() -> None:
    global _GUARD
    _GUARD = threading.Lock()
    _making.clear()
    _cache.cache_clear()


@device_memory.gives_up
def _drop() -> None:
    for most in (np.inf, CACHE_BYTES):
        _cache("gpu", most).clear()


def _budget(device: str, most: float = np.inf) -> float:
    configured = dask.config.get("daskgp.cache-bytes", None)
    if configured is not None:
        return float(dask.utils.parse_bytes(configured))
    memory = backend.device_memory() if device == "gpu" else None
    if memory is not None:
        return DEVICE_SHARE * memory.total
    worker = this_worker()
    limit = worker.memory_manager.memory_limit if worker else None
    return min(most, CACHE_SHARE * float(limit or MEMORY_LIMIT))


def most_kept(memory: float) -> float:
    """Return the most bytes of factors that predictions keep in a process with that memory."""
    return min(CACHE_SHARE * memory, CACHE_BYTES)
