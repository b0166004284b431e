"""A trust region, L-BFGS and Adam over rounds of one objective, and what all loops share."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
from scipy.optimize import minimize

from daskgp.checks import shown
from daskgp.errors import NumericalError, SettingError, StoreError
from daskgp.runtime.progress import Amount, ShowProgress, progress_line
from daskgp.train import callbacks, newton
from daskgp.typing import OptimizerName

logger: logging.Logger = logging.getLogger("daskgp")

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]
Describe = Callable[[np.ndarray], dict[str, Any]]
FEW = 64
"""Most hyper-parameters that the trust region trains."""
LAST = 5
"""Last iterations of L-BFGS, whose gain decides when it stops."""
OTHER_RUN = "the checkpoint belongs to other data or settings: remove it and fit again"


class Evaluation(NamedTuple):
    """One evaluation: parameters, value to maximise, gradient, and how long it took."""

    vector: np.ndarray
    value: float
    gradient: np.ndarray
    seconds: float

    def to_row(self) -> np.ndarray:
        """Return the numbers (2 k + 2,) to keep."""
        return np.concatenate([self.vector, [self.value], self.gradient, [self.seconds]])

    @staticmethod
    def from_row(row: np.ndarray) -> Evaluation:
        """Return the evaluation of kept numbers (2 k + 2,)."""
        k = len(row) // 2 - 1
        return Evaluation(row[:k], float(row[k]), row[k + 1 : -1], float(row[-1]))


class Tape(Protocol):
    """Rows that are kept, so that a stopped run goes on as if it had not stopped.

    ``maximise`` keeps a row per evaluation, ``train_experts`` a row per round.
    """

    def read(self) -> np.ndarray:
        """Return the rows (count, width) kept so far, in order; of any width if there are none."""

    def append(self, index: int, row: np.ndarray) -> None:
        """Keep row number ``index``."""


@dataclass(frozen=True)
class Training:
    """Settings of a training loop.

    ``tol`` is in nats per hyper-parameter, of which a vector has ``hyperparameters`` (all its
    entries if None; inducing inputs and the like do not count).  The trust region stops where it
    predicts a smaller gain, L-BFGS where LAST iterations have brought less, and Adam where the
    mean of ``patience`` steps differs by less from the mean of those before, three times in a row.
    "auto" is the trust region for vectors of hyper-parameters alone, FEW at most, and L-BFGS for
    others.

    Adam's learning rate falls linearly to ``decay`` times what it was.  The objective of ``noisy``
    runs is an estimate, so the last point is taken instead of the best.  ``corrections`` are the
    pairs of past steps that L-BFGS remembers.  The trust region measures steps in
    ``coordinates`` (k, k) and starts with ``curvature``; ``precision`` is that of the objective.
    ``remedy`` is what to do about a run that ended for want of iterations.
    ``sampled`` is an estimate of the objective, from fewer rows, that curvature is taken from.
    ``information`` is the Fisher information at a vector, the curvature of the trust region.
    Without ``verify`` curvature at the end need not be from differences.  A ``quiet`` run leaves
    it to the caller to say that it ended early.
    """

    optimizer: OptimizerName = "auto"
    max_iter: int = 100
    tol: float = 0.1
    learning_rate: float = 0.05
    progress: ShowProgress = "auto"
    patience: int = 10
    decay: float = 1.0
    noisy: bool = False
    corrections: int = 10
    hyperparameters: int | None = None
    coordinates: np.ndarray | None = None
    curvature: newton.Curvature | None = None
    precision: str = "float64"
    verify: bool = True
    sampled: Evaluate | None = None
    information: Callable[[np.ndarray], np.ndarray] | None = None
    remedy: str = "raise max_iter"
    quiet: bool = False

    def nats(self, bounds: np.ndarray) -> float:
        """Return the gain, in nats, below which training a vector with bounds (k, 2) stops."""
        return self.tol * int(newton.varies(bounds)[: self.hyperparameters].sum())

    def chosen(self, size: int) -> str:
        """Return the optimizer for a vector of ``size`` entries; SettingError if unknown."""
        if self.optimizer not in get_args(OptimizerName):
            known = ", ".join(map(repr, get_args(OptimizerName)))
            raise SettingError(f"unknown optimizer {shown(self.optimizer)}: choose {known} or None")
        if self.optimizer == "auto":
            small = size <= FEW and size == (self.hyperparameters or size)
            return "trust-region" if small else "l-bfgs"
        return self.optimizer


class Trained(NamedTuple):
    """Result of training: parameters (k,), an entry per iteration, and the curvature if known.

    ``early`` says why it ended before it had converged, if it did; ``stopped`` that a callback
    wished so.
    """

    vector: np.ndarray
    history: list[dict[str, Any]]
    curvature: newton.Curvature | None = None
    early: str = ""
    stopped: bool = False


@dataclass
class _Evaluator:
    """Counter of evaluations, which plays kept ones back before it computes new ones."""

    evaluate: Evaluate
    tape: Tape | None
    scale: float
    diary: Diary
    kept: list[Evaluation] = field(default_factory=list)
    last: Evaluation | None = None
    best: Evaluation | None = None
    count: int = 0
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept.extend(map(Evaluation.from_row, self.tape.read() if self.tape else ()))
        if self.kept:
            logger.info("continuing after %d kept evaluations", len(self.kept))

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss per value of y and its gradient."""
        evaluation = self.last = self.found(vector, self.evaluate)
        if self.best is None or evaluation.value > self.best.value:
            self.best = evaluation
        callbacks.heed(min(self.seconds[-2:], default=None))
        return -evaluation.value / self.scale, -evaluation.gradient / self.scale

    def found(self, vector: np.ndarray, evaluate: Evaluate) -> Evaluation:
        """Return the next evaluation, kept or made."""
        if self.count < len(self.kept):
            evaluation = self.kept[self.count]
            if not np.array_equal(evaluation.vector, vector):
                raise StoreError(OTHER_RUN)
            self.diary.add(evaluation.seconds)
        else:
            began = time.perf_counter()
            found = evaluate(vector)
            evaluation = Evaluation(vector.copy(), *found, time.perf_counter() - began)
            if evaluate is self.evaluate:  # estimates of the gradient take less
                self.seconds.append(evaluation.seconds)
            refuse_nan(evaluation.value, evaluation.gradient)
            if self.tape:
                self.tape.append(self.count, evaluation.to_row())
        self.count += 1
        return evaluation


def plus(evaluate: Evaluate, other: Evaluate) -> Evaluate:
    """Return the sum of two objectives of the same vectors."""

    def both(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = evaluate(vector)
        more, slope = other(vector)
        return value + more, gradient + slope

    return both


def refuse_nan(value: float, gradient: np.ndarray) -> None:
    """Raise NumericalError unless a value and its gradient (k,) are finite."""
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        raise NumericalError(
            "the objective or its gradient is not finite: standardize the data, raise "
            "noise_variance or start from other hyper-parameters"
        )


@dataclass
class Diary:
    """The history of a run, an entry per iteration."""

    describe: Describe
    show: Callable[[str], None]
    entries: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def note(
        self,
        vector: np.ndarray,
        *,
        evaluations: int,
        objective: float,
        gradient_norm: float,
        **more: float,
    ) -> None:
        """Add what is known of an iteration: the objective and its gradient at a vector (k,)."""
        entry = {
            "iteration": len(self.entries) + 1,
            "evaluations": evaluations,
            "objective": objective,
            "gradient_norm": gradient_norm,
            "seconds": self.elapsed(),
            **more,
            **self.describe(vector),
        }
        self.entries.append(entry)
        logger.debug("iteration %(iteration)d: objective %(objective).6g", entry)
        self.show(f"objective {objective:.6g}")
        callbacks.tell(entry)

    def add(self, seconds: float) -> None:
        """Count seconds of a run that was stopped and is played back."""
        self.began -= seconds

    def elapsed(self) -> float:
        """Return the seconds since the diary was begun."""
        return time.perf_counter() - self.began


@contextmanager
def keep_diary(describe: Describe, max_iter: int, progress: ShowProgress) -> Iterator[Diary]:
    """Yield a diary that moves the progress on while the run lasts."""
    with progress_line("train", max_iter, Amount(unit="iterations"), progress) as advance:
        yield Diary(describe, (lambda note: advance(note=note)) if advance else lambda _: None)


def maximise(
    evaluate: Evaluate,
    start: np.ndarray,
    bounds: np.ndarray,
    scale: float,
    training: Training,
    describe: Describe,
    tape: Tape | None = None,
) -> Trained:
    """Maximise an objective under bounds.

    Parameters
    ----------
    evaluate : callable
        Value and gradient (k,) at a vector (k,).
    start : ndarray (k,)
    bounds : ndarray (k, 2)
        Infinite where there is no bound.
    scale : float
        Number of values of y, by which L-BFGS and Adam divide the objective.
    training : Training
        Settings.
    describe : callable
        Named hyper-parameters of a vector, for the history.
    tape : Tape, optional
        Keeps evaluations and plays them back.

    Returns
    -------
    Trained
        The best point seen, and one entry per iteration: iteration, evaluations, objective,
        gradient_norm, seconds, for the trust region predicted_gain in nats, and the
        hyper-parameters by name.
    """
    run = {"trust-region": _trust_region, "l-bfgs": _lbfgs, "adam": _adam}
    chosen = run[training.chosen(len(start))]
    with keep_diary(describe, training.max_iter, training.progress) as diary:
        evaluator = _Evaluator(evaluate, tape, scale, diary)

        def note(vector: np.ndarray, loss: float, gradient: np.ndarray, **more: float) -> None:
            diary.note(
                vector,
                evaluations=evaluator.count,
                objective=-loss * scale,
                gradient_norm=float(np.abs(gradient).max() * scale),
                **more,
            )

        try:
            best = chosen(evaluator, np.clip(start, *bounds.T), bounds, training, note)
        except callbacks.StopTraining:
            logger.info("training was stopped after %d iterations", len(diary.entries))
            seen = evaluator.last if training.noisy else evaluator.best
            assert seen is not None
            return Trained(seen.vector, diary.entries, stopped=True)
    if best.early and not training.quiet:
        logger.warning("%s", best.early)
    return Trained(best.vector, diary.entries, best.curvature, best.early)


Note = Callable[..., None]


class Best(NamedTuple):
    """The best point seen (k,), the curvature there if known, and why the run ended early."""

    vector: np.ndarray
    curvature: newton.Curvature | None = None
    early: str = ""


def _trust_region(
    loss: _Evaluator, start: np.ndarray, bounds: np.ndarray, training: Training, note: Note
) -> Best:
    scale, k = loss.scale, len(start)

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = loss(vector)
        return -value * scale, -gradient * scale

    def noted(vector: np.ndarray, value: float, gradient: np.ndarray, gain: float) -> None:
        note(vector, -value / scale, gradient / scale, predicted_gain=gain)

    coordinates = np.eye(k) if training.coordinates is None else training.coordinates
    estimate = training.sampled

    def sampled(vector: np.ndarray) -> np.ndarray:
        assert estimate is not None
        found = loss.found(vector, estimate)
        callbacks.heed()
        return found.gradient

    search = newton.Search(
        evaluate,
        bounds,
        coordinates,
        training.tol,
        training.precision,
        training.verify,
        sampled if estimate else None,
        training.information,
    )
    arrived = search.run(start, training.curvature, training.max_iter, noted)
    early = ""
    if arrived.gain > training.nats(bounds):
        left = f", with about {arrived.gain:.2g} nats left to gain"
        # without a better point the gain that curvature promises is refuted
        early = _cut_off(training, left) if arrived.cut else LOST
    return Best(arrived.vector, arrived.curvature, early)


LOST = (
    "training ended where no better point is found, which can happen where rounding hides it: "
    "start from other hyper-parameters, raise noise_variance or, with dtype='float32', choose "
    "'float64'"
)


def _cut_off(training: Training, left: str = "") -> str:
    return f"training ended before it had converged{left}: {training.remedy}"


def _lbfgs(
    loss: _Evaluator, start: np.ndarray, bounds: np.ndarray, training: Training, note: Note
) -> Best:
    """Run L-BFGS; begin it again after 4, 8, 16, ... iterations where inputs are trained, too.

    It takes one curvature for all entries to start with, but an input may curve far less, or more,
    than a hyper-parameter.  So each run has inputs in units in which they curve alike.
    """
    descent = _Descent(
        loss, training, note, np.ones(len(start)), training.nats(bounds) / loss.scale
    )
    vector = start
    while True:
        units, before = descent.units, descent.count
        result: Any = minimize(
            descent,
            vector / units,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds / units[:, None],
            callback=descent.callback,
            options={
                "maxiter": training.max_iter - before,
                "ftol": 1e-15,
                "gtol": 1e-12,
                "maxcor": training.corrections,
            },
        )
        vector = np.asarray(result.x) * units
        if not descent.again():
            break
    early = ""
    if result.status == 2 and not descent.arrived():
        early = (
            f"training stopped early after {descent.count} iterations: no better point was found "
            "along its last direction, which can happen where rounding hides the remaining gain "
            f"({str(result.message).strip(' :')})"
        )
    elif descent.count >= training.max_iter and not descent.arrived():
        early = _cut_off(training)
    return Best(vector, early=early)


@dataclass
class _Descent:
    """Runs of L-BFGS on a loss of vectors in ``units`` (k,), which end for a gain below ``least``.

    A run with trained inputs ends with iteration ``length`` of all, which then doubles.
    """

    loss: _Evaluator
    training: Training
    note: Note
    units: np.ndarray
    least: float
    length: int = 4
    values: list[float] = field(default_factory=list)
    accepted: deque[tuple[np.ndarray, np.ndarray]] = field(default_factory=lambda: deque(maxlen=8))

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the loss of x (k,) and its gradient (k,)."""
        value, gradient = self.loss(x * self.units)
        return value, gradient * self.units

    @property
    def count(self) -> int:
        """Iterations so far."""
        return len(self.values)

    def arrived(self) -> bool:
        """Return whether the last iterations have brought too little to go on."""
        values = self.values
        return len(values) > LAST and values[-LAST - 1] - values[-1] < self.least

    def callback(self, intermediate_result: Any) -> None:
        """Note an iteration; StopIteration ends the run."""
        assert self.loss.last is not None
        vector, gradient = intermediate_result.x * self.units, -self.loss.last.gradient
        self.values.append(intermediate_result.fun)
        self.accepted.append((vector, gradient / self.loss.scale))
        self.note(vector, intermediate_result.fun, gradient / self.loss.scale)
        if self.arrived() or self.full():
            raise StopIteration

    def full(self) -> bool:
        """Return whether a run with trained inputs has had its iterations."""
        only = self.training.hyperparameters in (None, len(self.units))
        return not only and self.count == self.length

    def again(self) -> bool:
        """Return whether another run follows, and choose its units.

        Steps over turns of the gradient, which is the inverse curvature along the path, are made
        equal for hyper-parameters and inputs.
        """
        if self.arrived() or not self.full() or self.count >= self.training.max_iter:
            return False
        vectors, gradients = map(np.array, zip(*self.accepted, strict=True))
        steps, turns = np.diff(vectors, axis=0), np.diff(gradients, axis=0)
        turns[steps == 0] = 0.0  # at a bound
        of, inputs = (
            np.s_[:, : self.training.hyperparameters],
            np.s_[:, self.training.hyperparameters :],
        )
        sizes = [
            np.linalg.norm(part) for part in (steps[inputs], turns[of], turns[inputs], steps[of])
        ]
        if min(sizes) > 0:
            self.units = self.units.copy()
            self.units[inputs[1]] = np.sqrt(sizes[0] * sizes[1] / (sizes[2] * sizes[3]))
        self.accepted.clear()
        self.length *= 2
        return True


class Moments(NamedTuple):
    """Adam's memory of past gradients: their two moments (k,) and their number.

    Moments may have another shape, with a number for each row.
    """

    first: np.ndarray
    second: np.ndarray
    steps: int | np.ndarray


def adam_step(gradient: np.ndarray, moments: Moments) -> tuple[np.ndarray, Moments]:
    """Return Adam's step (k,) at a learning rate of 1, and the moments after (Kingma & Ba 2015)."""
    t = moments.steps + 1
    first = moments.first + 0.1 * (gradient - moments.first)
    second = moments.second + 0.001 * (gradient**2 - moments.second)
    step = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return step, Moments(first, second, t)


def _adam(
    loss: _Evaluator, start: np.ndarray, bounds: np.ndarray, training: Training, note: Note
) -> Best:
    """Run Adam (Kingma & Ba 2015) with full gradients, projected onto the bounds."""
    x, best, lowest = start.copy(), start.copy(), np.inf
    moments, seen = Moments(np.zeros_like(x), np.zeros_like(x), 0), []
    for i in range(training.max_iter):
        value, gradient = loss(x)
        note(x, value, gradient)
        seen.append(value)
        if value < lowest or training.noisy:
            best, lowest = x.copy(), value
        if _arrived(training, seen, training.nats(bounds) / loss.scale):
            break
        step, moments = adam_step(gradient, moments)
        rate = training.learning_rate * (1 - (1 - training.decay) * i / training.max_iter)
        x = np.clip(x - rate * step, *bounds.T)
    else:
        return Best(best, early=_cut_off(training))
    return Best(best)


def _arrived(training: Training, seen: list[float], least: float) -> bool:
    """Return whether Adam may stop, after the losses so far."""
    span, looks = training.patience, 3
    if len(seen) < 2 * span + looks - 1:
        return False
    recent = seen[-2 * span - looks + 1 :]
    means = np.convolve(recent, np.full(span, 1 / span), mode="valid")
    gains = means[:-span] - means[span:]
    # momentum carries Adam past an optimum and back: losses that rise are not an end by themselves
    return bool(((gains if training.noisy else abs(gains)) < least).all())
