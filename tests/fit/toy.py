"""Two toy methods that only sum: the contract and the rounds without any Gaussian process.

Their sums run over numbers of very different size, so another order of addition shows in the
bits.  They live in a module because workers import them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.kernels import Constant
from daskgp.models.additive import Additive
from daskgp.models.values import Block, Footprint, Moments, Objective, Shape, Theta, ThetaBar, add


class Stats(NamedTuple):
    """Weighted products with y (d, p), their number, and the windows seen."""

    total: np.ndarray
    count: float


class State(NamedTuple):
    total: np.ndarray


@dataclass(frozen=True)
class Sum(Additive):
    """T = s X' y over chunks with s the noise variance; objective |T|^2 / 2."""

    name: ClassVar[str] = "toy-sum"
    state_type: ClassVar[type] = State

    def prepare(self, theta: Theta) -> Theta:
        return theta

    def local(self, prepared: Theta, block: Block, near: Sequence[Block] = ()) -> Stats:
        return Stats(prepared.noise_variance * self._sum(block, near), float(len(block.X)))

    def combine(self, a: Stats, b: Stats) -> Stats:
        return add(a, b)

    def posterior(self, prepared: Theta, total: Stats) -> State:
        return State(total.total)

    def objective(self, prepared: Theta, total: Stats) -> Objective:
        direct = ThetaBar(np.zeros(1), 0.0, None)
        return Objective(0.5 * float((total.total**2).sum()), direct, total.total)

    def local_vjp(
        self, prepared: Theta, block: Block, cotangent: Any, near: Sequence[Block] = ()
    ) -> ThetaBar:
        local = prepared.noise_variance * self._sum(block, near)
        return ThetaBar(np.zeros(1), float((local * cotangent).sum()), None)

    def predict(
        self, theta: Theta, state: State, X: Any, near: Any = None, want: str = "mean"
    ) -> Moments:
        return Moments(X @ state.total)

    def exact_limit(self, theta: Theta, X: Any) -> tuple[Sum, Theta]:
        return self, theta

    def footprint(self, shape: Shape) -> Footprint:
        return Footprint(0, 8, 8, 8, 1.0, 8, 8)

    def _sum(self, block: Block, near: Sequence[Block]) -> np.ndarray:
        return block.X.T @ block.y


@dataclass(frozen=True)
class Near(Sum):
    """Adds to a block's own products those of its sums with the blocks near it."""

    name: ClassVar[str] = "toy-near"
    divisible: ClassVar[bool] = False

    def _sum(self, block: Block, near: Sequence[Block]) -> np.ndarray:
        own = block.X.sum(axis=0)
        total = block.X.T @ block.y
        for lag, later in enumerate(near, start=1):
            total = total + np.outer(own, later.y.sum(axis=0)) / lag
        return total


@dataclass(frozen=True)
class Deadly(Sum):
    """Kills its worker process the first time any block is summarised, once for a marker."""

    marker: str = ""

    def _sum(self, block: Block, near: Sequence[Block]) -> np.ndarray:
        time.sleep(0.05)  # others are at work, and some are done
        if float(block.y[0, 0]) > 0 and claim(self.marker):
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._sum(block, near)


class Flaky:
    """Reads like an array and fails the first times with a transient error."""

    def __init__(self, values: np.ndarray, marker: str, times: int = 1) -> None:
        self.values, self.marker, self.times = values, marker, times
        self.shape, self.ndim, self.dtype = values.shape, values.ndim, values.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        if any(claim(f"{self.marker}-{i}") for i in range(self.times)):
            raise OSError("connection reset by the store")
        return self.values[rows]


def claim(marker: str) -> bool:
    """True for one caller among all processes."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def theta(s: float = 1.3) -> Theta:
    return Theta(Constant(1.0), s)


def data(n: int = 1000, d: int = 3, p: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Rows over ten orders of magnitude."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-5, 5, (n, 1))
    return X, rng.standard_normal((n, p))


def window_sums(
    X: np.ndarray, y: np.ndarray, spans: Sequence[tuple[int, int]], reach: int, s: float
) -> np.ndarray:
    """What the rounds should give: every block with the blocks after it, one after another."""
    total = np.zeros((X.shape[1], y.shape[1]))
    blocks = [Block(X[a:b], y[a:b]) for a, b in spans]
    for i, block in enumerate(blocks):
        total += block.X.T @ block.y
        for lag in range(1, reach + 1):
            if i + lag < len(blocks):
                later = blocks[i + lag].y.sum(axis=0)
                total += np.outer(block.X.sum(axis=0), later) / lag
    return s * total
