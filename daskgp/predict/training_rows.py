"""Prediction by a local method: rows that the same training rows serve are predicted together."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, Self

import dask
import numpy as np
import zict
from distributed import get_worker
from distributed.system import MEMORY_LIMIT

from daskgp.arrays import backend
from daskgp.data.blocks.around import Key
from daskgp.data.blocks.neighbours import Nearby
from daskgp.errors import StoreError
from daskgp.models.method import Conditioned
from daskgp.models.scaling import Scaling
from daskgp.models.values import TILE_ROWS, Block, Moments, Theta, Want, move
from daskgp.runtime import device_memory

_GUARD = threading.Lock()
_making: dict[tuple[str, Key], threading.Lock] = {}
CACHE_SHARE, DEVICE_SHARE = 0.1, 0.25
"""Share of a process's memory, and of a GPU's, for factored rows; ``daskgp.cache-bytes`` of
Dask's configuration sets another number of bytes."""
CACHE_BYTES = 96 * 2**20
"""Most bytes of factored rows of local methods, and of the blocks they come from, on the host."""
BLOCK = -2
"""Stands before the number of a block where others name groups of places."""


class _Block(NamedTuple):
    """A block as it is read back: inputs in the user's units, scaled rows and their features."""

    inputs: np.ndarray
    block: Block
    features: Any

    @property
    def nbytes(self) -> int:
        return int(self.inputs.nbytes + self.features.nbytes + sum(a.nbytes for a in self.block))

    def rows(self, chosen: np.ndarray | None) -> tuple[Block, Any]:
        """Some rows and their features; all of them for None."""
        if chosen is None or len(chosen) == len(self.inputs):
            return self.block, self.features
        there = backend.namespace(self.features).asarray(chosen)
        return Block(*(array[there] for array in self.block)), self.features[there]


@dataclass(frozen=True, eq=False)
class Local:
    """A solved local method: what ``moments`` needs, on one device.

    ``token`` tells it from others.
    """

    model: Conditioned
    theta: Theta
    state: Any
    scaling: Scaling
    nearby: Nearby
    token: str
    device: str

    def moments(
        self,
        X: np.ndarray,
        scaled: np.ndarray,
        usable: np.ndarray,
        want: Want,
        most: int = TILE_ROWS,
    ) -> Moments:
        """Posterior at rows X (n, d) of the user's units, which are ``scaled`` in the model's.

        Rows conditioned on the same training rows are predicted together, ``most`` of them at a
        time; those that are not ``usable`` come out as 0.
        """
        total = _Gathered.empty(len(X), self.scaling.y_scale.size, want)
        places = np.flatnonzero(usable)
        for key, members in self.nearby.groups(np.asarray(X, np.float64)[usable]):
            near = self._cached(key, partial(self._condition, key))
            step = most if want != "covariance" else len(members)
            for start in range(0, len(members), step):
                rows = places[members[start : start + step]]
                inputs = backend.to_device(scaled[rows], self.device)
                found = self.model.predict(self.theta, self.state, inputs, near, want)
                total.put(rows, move(found, "cpu"))
        if total.far:
            _say_far(self.token)
        return total.moments()

    def _cached(self, key: Key, make: Callable[[], Any]) -> Any:
        return cached((self.token, key), make, self.device, CACHE_BYTES)

    def _condition(self, key: Key) -> Any:
        """What predictions need of the training rows that serve a group."""
        parts = self.nearby.parts(key, lambda block: self._block(block).inputs)
        rows = [self._block(part.block).rows(part.rows) for part in parts]
        blocks, features = zip(*rows, strict=True)
        return self.model.condition(self.theta, self.state, blocks, features)

    def _block(self, number: int) -> _Block:
        return self._cached((BLOCK, number), partial(self._read, number))

    def _read(self, number: int) -> _Block:
        X, y = self.nearby.read(number)
        block = move(self.scaling.block(X, y), self.device)
        if len(block.X) < len(X):
            raise StoreError("training rows that the model reads back are gone: fit again")
        features = self.model.features(self.theta, self.state, block.X)
        return _Block(np.asarray(X, np.float64), block, features)


@dataclass(eq=False)
class _Gathered:
    """Moments of groups of rows, put together.

    Rows conditioned on different blocks are correlated through what they share alone: given the
    training rows their residuals are independent.
    """

    mean: np.ndarray
    variance: np.ndarray | None
    covariance: np.ndarray | None
    shared: np.ndarray | None = None
    far: int = 0

    @classmethod
    def empty(cls, n: int, p: int, want: Want) -> Self:
        return cls(
            np.zeros((n, p)),
            np.zeros(n) if want == "variance" else None,
            np.zeros((n, n)) if want == "covariance" else None,
        )

    def put(self, rows: np.ndarray, found: Moments) -> None:
        self.mean[rows] = found.mean
        self.far += 0 if found.far is None else int(np.count_nonzero(found.far))
        if self.variance is not None:
            self.variance[rows] = found.variance
        if self.covariance is not None:
            assert found.shared is not None
            if self.shared is None:
                self.shared = np.zeros((len(self.mean), found.shared.shape[1]))
            across = found.shared @ self.shared.T
            self.covariance[rows] = across
            self.covariance[:, rows] = across.T
            self.covariance[np.ix_(rows, rows)] = found.covariance
            self.shared[rows] = found.shared

    def moments(self) -> Moments:
        return Moments(self.mean, self.variance, self.covariance)


@cache
def _say_far(token: str) -> None:
    """Once per model and process; a worker leaves it to the client to show."""
    message = (
        "some rows lie far from all training rows: the prediction there is the mean function "
        "with the prior's variance"
    )
    try:
        worker = get_worker()
    except ValueError:  # not in a worker
        warnings.warn(message, stacklevel=2)
    else:  # distributed.warn would show it on the worker's stderr as well, often the client's
        worker.log_event("warn", message)


def cached(key: tuple[str, Key], make: Callable[[], Any], device: str, most: float = np.inf) -> Any:
    """What ``make`` gives, or what it gave before in this process if that is still held.

    What is held with the same ``most`` is ``most`` bytes, or the share of memory that there is for
    it if that is less.
    """
    with _GUARD:
        lock = _making.setdefault(key, threading.Lock())
    with lock:  # other threads wait for what one of them makes
        held = _held(device, most)
        try:
            return held[key]
        except KeyError:
            found = make()
            if found.nbytes <= held.n:
                held[key] = found
            return found
        finally:
            with _GUARD:
                _making.pop(key, None)


@cache
def _held(device: str, most: float = np.inf) -> Any:
    """What this process holds of a device, of which the least recently used is dropped first."""
    return zict.LRU(_budget(device, most), {}, weight=lambda key, value: value.nbytes)


@device_memory.gives_up
def _drop() -> None:
    for most in (np.inf, CACHE_BYTES):
        _held("gpu", most).clear()


def _budget(device: str, most: float = np.inf) -> float:
    given = dask.config.get("daskgp.cache-bytes", None)
    if given is not None:
        return float(dask.utils.parse_bytes(given))
    memory = backend.device_memory() if device == "gpu" else None
    if memory is not None:
        return DEVICE_SHARE * memory.total
    try:
        limit = get_worker().memory_manager.memory_limit
    except ValueError:  # not in a worker
        limit = None
    return min(most, CACHE_SHARE * float(limit or MEMORY_LIMIT))
