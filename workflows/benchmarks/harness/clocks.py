"""Seconds of calls, rounds and the steps of a training, and the rate of a matrix product."""

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil


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


class _Rounds(logging.Handler):
    """Processor seconds of this process and of its children by rounds of tasks."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seconds: dict[str, np.ndarray] = {}
        self._spent = _spent()

    def emit(self, record: logging.LogRecord) -> None:
        """Count what was spent since the last record to the round that has ended."""
        found = re.match(r'daskgp_round_seconds{round="([^"]+)"', record.getMessage())
        if found:
            self.count(found[1])

    def count(self, name: str) -> None:
        """Count what was spent since the last call to a name."""
        last, self._spent = self._spent, _spent()
        self.seconds[name] = self.seconds.get(name, np.zeros(2)) + self._spent - last


def _spent() -> np.ndarray:
    """Return the processor seconds of this process, and of those under it."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    each = [one.user + one.system for one in times]
    return np.array([each[0], sum(each[1:])])


@contextmanager
def rounds() -> Iterator[dict[str, list[float]]]:
    """Yield what will have the processor seconds of client and workers by rounds of tasks.

    Those between two rounds count to the second; workers have to outlive the context.
    """
    logger, handler, found = logging.getLogger("daskgp"), _Rounds(), dict[str, list[float]]()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.count("end")
        found |= {name: seconds.tolist() for name, seconds in handler.seconds.items()}


def product_rate(size: int = 4_096, dtype: str = "float64") -> float:
    """Return the operations per second of a large matrix product."""
    A = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
    return 2 * size**3 / best_of(3, lambda: A @ A)[0]
