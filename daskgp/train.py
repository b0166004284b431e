"""Training loops: an optimiser over rounds.  They know an objective, not a model."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from rich.progress import TextColumn
from scipy.optimize import minimize

from daskgp.errors import NumericalError, SettingError, StoreError
from daskgp.flow.cluster import ShowProgress, progress_bar, wants_progress
from daskgp.typing import OptimizerName

logger = logging.getLogger("daskgp")

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Evaluation(NamedTuple):
    """One evaluation: parameters, value to maximise and gradient."""

    vector: np.ndarray
    value: float
    gradient: np.ndarray


class Tape(Protocol):
    """Evaluations that are kept, so that a stopped run goes on as if it had not stopped."""

    def read(self) -> np.ndarray:
        """Rows (count, 2 k + 1) kept so far, in order: vector, value, gradient."""

    def append(self, index: int, row: np.ndarray) -> None:
        """Keep row number ``index``."""


@dataclass(frozen=True)
class Training:
    """Settings of a training loop.

    ``tol`` is the relative change of the objective per value of y below which L-BFGS stops, and
    the largest entry of its gradient below which Adam does.
    """

    optimizer: OptimizerName = "l-bfgs"
    max_iter: int = 100
    tol: float = 1e-6
    learning_rate: float = 0.05
    progress: ShowProgress = "auto"


@dataclass
class _Evaluator:
    """Evaluates, counts, and plays kept evaluations back before it computes new ones."""

    evaluate: Evaluate
    tape: Tape | None
    scale: float
    kept: list[Evaluation] = field(default_factory=list)
    last: Evaluation | None = None
    count: int = 0

    def __post_init__(self) -> None:
        for row in self.tape.read() if self.tape else ():
            k = len(row) // 2
            self.kept.append(Evaluation(row[:k], float(row[k]), row[k + 1 :]))
        if self.kept:
            logger.info("continuing after %d kept evaluations", len(self.kept))

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Loss per value of y and its gradient."""
        if self.count < len(self.kept):
            found = self.kept[self.count]
            if not np.array_equal(found.vector, vector):
                raise StoreError(
                    "the checkpoint belongs to other data or settings: remove it and fit again"
                )
        else:
            found = Evaluation(vector.copy(), *self.evaluate(vector))
            self._refuse_nan(found)
            if self.tape:
                row = np.concatenate([found.vector, [found.value], found.gradient])
                self.tape.append(self.count, row)
        self.count, self.last = self.count + 1, found
        return -found.value / self.scale, -found.gradient / self.scale

    def _refuse_nan(self, found: Evaluation) -> None:
        if not (np.isfinite(found.value) and np.isfinite(found.gradient).all()):
            raise NumericalError(
                "the objective or its gradient is not finite: standardize the data, raise "
                "noise_variance or start from other hyper-parameters"
            )


def maximise(
    evaluate: Evaluate,
    start: np.ndarray,
    bounds: np.ndarray,
    scale: float,
    training: Training,
    describe: Callable[[np.ndarray], dict[str, Any]],
    tape: Tape | None = None,
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Maximise an objective under bounds.

    Parameters
    ----------
    evaluate : callable
        Value and gradient (k,) at a vector (k,).
    start : ndarray (k,)
    bounds : ndarray (k, 2)
        Infinite where there is none.
    scale : float
        Number of values of y; tolerances are per value.
    training : Training
        Settings.
    describe : callable
        Named hyper-parameters of a vector, for the history.
    tape : Tape, optional
        Keeps evaluations and plays them back.

    Returns
    -------
    vector : ndarray (k,)
        The best point seen.
    history : list of dict
        One entry an iteration: iteration, evaluations, objective, gradient_norm, seconds and the
        hyper-parameters by name.
    """
    run = {"l-bfgs": _lbfgs, "adam": _adam}.get(training.optimizer)
    if run is None:
        raise SettingError(
            f"unknown optimizer {training.optimizer!r}: choose 'l-bfgs', 'adam' or None"
        )
    evaluator = _Evaluator(evaluate, tape, scale)
    history: list[dict[str, Any]] = []
    began = time.perf_counter()
    shown = wants_progress(training.progress)
    with progress_bar(TextColumn("{task.fields[note]}"), disable=not shown) as bar:
        task = bar.add_task("train", total=training.max_iter, note="")

        def note(vector: np.ndarray, loss: float, gradient: np.ndarray) -> None:
            entry = {
                "iteration": len(history) + 1,
                "evaluations": evaluator.count,
                "objective": -loss * scale,
                "gradient_norm": float(np.abs(gradient).max() * scale),
                "seconds": time.perf_counter() - began,
                **describe(vector),
            }
            history.append(entry)
            logger.debug("iteration %(iteration)d: objective %(objective).6g", entry)
            bar.update(task, advance=1, note=f"objective {entry['objective']:.6g}")

        best = run(evaluator, np.clip(start, *bounds.T), bounds, training, note)
    return best, history


Note = Callable[[np.ndarray, float, np.ndarray], None]


def _lbfgs(
    loss: _Evaluator, start: np.ndarray, bounds: np.ndarray, training: Training, note: Note
) -> np.ndarray:
    def callback(intermediate_result: Any) -> None:
        found = loss.last
        assert found is not None
        note(intermediate_result.x, intermediate_result.fun, found.gradient / loss.scale)

    result: Any = minimize(
        loss,  # type: ignore[call-overload]  # its stubs know no fun that returns its gradient
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=callback,
        options={"maxiter": training.max_iter, "ftol": training.tol, "gtol": training.tol},
    )
    if result.status == 2:
        logger.warning("training stopped early after %d iterations: %s", result.nit, result.message)
    if result.nit >= training.max_iter:
        logger.info("training stopped at max_iter=%d before tol was met", training.max_iter)
    return np.asarray(result.x)


def _adam(
    loss: _Evaluator, start: np.ndarray, bounds: np.ndarray, training: Training, note: Note
) -> np.ndarray:
    """Adam (Kingma & Ba 2015) with full gradients, projected onto the bounds."""
    x, best, lowest = start.copy(), start.copy(), np.inf
    first, second = np.zeros_like(x), np.zeros_like(x)
    for t in range(1, training.max_iter + 1):
        value, gradient = loss(x)
        note(x, value, gradient)
        if value < lowest:
            best, lowest = x.copy(), value
        if np.abs(gradient).max() < training.tol:
            break
        first += 0.1 * (gradient - first)
        second += 0.001 * (gradient**2 - second)
        step = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        x = np.clip(x - training.learning_rate * step, *bounds.T)
    return best
