"""Prediction by a local method: rows are grouped by the blocks near them, which are held."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Self

import dask
import numpy as np
import zict
from distributed import get_worker
from distributed.system import MEMORY_LIMIT

from daskgp import backend
from daskgp.errors import StoreError
from daskgp.flow import devices
from daskgp.flow.nearby import Nearby
from daskgp.model import TILE_ROWS, LocalModel, Moments, Theta, Want, move
from daskgp.scaling import Scaling

_GUARD = threading.Lock()
_making: dict[tuple[str, tuple[int, ...]], threading.Lock] = {}
CACHE_SHARE, DEVICE_SHARE = 0.1, 0.25
"""Share of a process's memory, and of a GPU's, for factored blocks; ``daskgp.cache-bytes`` of
Dask's configuration sets another number of bytes."""


@dataclass(frozen=True, eq=False)
class Local:
    """A solved local method: what ``moments`` needs, on one device.

    ``token`` tells it from others.
    """

    model: LocalModel
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

        Rows conditioned on the same blocks are predicted together, ``most`` of them at a time;
        those that are not ``usable`` come out as 0.
        """
        total = _Gathered.empty(len(X), self.scaling.y_scale.size, want)
        places = np.flatnonzero(usable)
        for blocks, members in self.nearby.groups(np.asarray(X, np.float64)[usable]):
            near = cached((self.token, blocks), partial(self._condition, blocks), self.device)
            step = most if want != "covariance" else len(members)
            for start in range(0, len(members), step):
                rows = places[members[start : start + step]]
                inputs = backend.to_device(scaled[rows], self.device)
                found = self.model.predict(self.theta, self.state, inputs, near, want)
                total.put(rows, move(found, "cpu"))
        if total.far:
            _say_far(self.token)
        return total.moments()

    def _condition(self, blocks: tuple[int, ...]) -> Any:
        """What predictions need of the training rows of some blocks."""
        read = self.nearby.read(blocks)
        rows = [move(self.scaling.block(*part), self.device) for part in read]
        if any(len(a.X) < len(X) for a, (X, _) in zip(rows, read, strict=True)):
            raise StoreError("training rows that the model reads back are gone: fit again")
        return self.model.condition(self.theta, self.state, rows)


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


def cached(key: tuple[str, tuple[int, ...]], make: Callable[[], Any], device: str) -> Any:
    """What ``make`` gives, or what it gave before in this process if that is still held."""
    with _GUARD:
        lock = _making.setdefault(key, threading.Lock())
    with lock:  # other threads wait for what one of them makes
        held = _held(device)
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
def _held(device: str) -> Any:
    """What this process holds of a device, of which the least recently used is dropped first."""
    return zict.LRU(_budget(device), {}, weight=lambda key, value: value.nbytes)


@devices.gives_up
def _drop() -> None:
    _held("gpu").clear()


def _budget(device: str) -> float:
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
    return CACHE_SHARE * float(limit or MEMORY_LIMIT)
