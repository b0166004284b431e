"""Seconds of calls and of the steps of a training, and the rate of a matrix product."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def evaluation_seconds(model: Any) -> float:
    """Return the seconds of one value and gradient in training, the first ones left out."""
    first, last = model.history_[0], model.history_[-1]
    return (last["seconds"] - first["seconds"]) / (last["evaluations"] - first["evaluations"])


def step_seconds(marks: Sequence[float], warm: int = 10) -> dict[str, float]:
    """Return median and mean seconds of steps after the first ones, from those at their ends."""
    steps = np.diff([0.0, *marks])[min(warm, len(marks) - 1) :]
    return {"step_s": float(np.median(steps)), "mean_s": float(np.mean(steps))}


def marks(model: Any) -> list[float]:
    """Return the seconds at the ends of an estimator's steps."""
    return [entry["seconds"] for entry in model.history_]


def best_of(
    repeats: int, function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[float, Any]:
    """Return the fewest seconds of some calls after a first, and the last result."""
    found, seconds = function(), []
    for _ in range(repeats):
        began = clock()
        found = function()
        seconds.append(clock() - began)
    return min(seconds), found


def seconds_of(function: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def product_rate(size: int = 4_096, dtype: str = "float64") -> float:
    """Return the operations per second of a large matrix product."""
    A = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
    return 2 * size**3 / best_of(3, lambda: A @ A)[0]
