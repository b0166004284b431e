"""Stochastic ascent: every step sees a mini-batch, and Adam moves each parameter by itself.

Parameters are a tuple of arrays that may get more rows on the way, as a basis grows; Adam's
count of steps for a row starts where the row began.  A run is a plain value at any step: it is kept
every so often, and one that goes on from there takes the same path to the last bit.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from daskgp.errors import NumericalError
from daskgp.runtime.progress import ShowProgress
from daskgp.train.callbacks import StopTraining
from daskgp.train.optimizers import Describe, Diary, Moments, adam_step, keep_diary

logger: logging.Logger = logging.getLogger("daskgp")

PARTS = ("parameters", "first", "second", "ages")
"""Fields of a run that are tuples with an array for each parameter."""
AVERAGING = 3.0
"""Power of the weights in an average, in which the last fifth of the steps prevails."""
REMEDY = (
    "training stopped and the estimator holds the step before: lower learning_rate or natural, "
    "raise noise_variance or standardize the data"
)


class Found(NamedTuple):
    """An estimate of the objective, a gradient for each parameter, and parameters set outright.

    ``settled`` are parameters that the step computed by itself, as natural gradients do.
    """

    value: float
    gradient: Any
    settled: Mapping[str, np.ndarray]


class Problem(Protocol):
    """The problem that is maximised; batches follow one another."""

    def advance(self, parameters: Any, step: int) -> tuple[Any, Found]:
        """Return the parameters, with rows added if needed, and what the next batch says."""

    def conditioner(self, name: str, parameters: Any, step: int) -> Conditioner | None:
        """Return what changes the coordinates of a parameter; None for no change."""

    def validate(self, parameters: Any) -> float:
        """Return the score of held-out rows; NaN without any."""

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Return what a resumed run needs beside its own state, such as the place in the stream."""


class Conditioner(Protocol):
    """Other coordinates u of a parameter x = P u in which it is easier to move."""

    @property
    def fresh(self) -> bool:
        """True if the coordinates are not those of the step before."""

    def pull(self, gradient: np.ndarray) -> np.ndarray:
        """Return P' g."""

    def push(self, move: np.ndarray) -> np.ndarray:
        """Return P u."""


class Keeper(Protocol):
    """Store in which a run is kept."""

    def write(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep arrays by name; those kept before remain until these are whole."""


@dataclass(frozen=True)
class Ascent:
    """Settings of a run.

    The rate of step t is learning_rate / (1 + slowing sqrt(t)), [DGP] section 4, times that of
    ``rates`` by name; parameters without one stay as they are.  ``bounds`` limit values by name.
    Every ``check_every`` steps held-out rows are scored; after ``patience`` scores without a
    better one the run stops, and the best parameters seen are taken.

    From step ``average_from`` on, averages of the parameters are scored and taken instead, in which
    step t since then, or since they last got rows, weighs about t**AVERAGING (Shamir & Zhang 2013).
    """

    steps: int
    learning_rate: float
    rates: Mapping[str, float]
    bounds: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    slowing: float = 0.1
    check_every: int = 50
    patience: int | None = None
    keep_every: int = 100
    average_from: int | None = None
    progress: ShowProgress = "auto"

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return self.learning_rate / (1 + self.slowing * math.sqrt(step + 1))

    def at_bounds(self, parameters: Any, name: str) -> np.ndarray:
        """Return a mask of the entries of a bounded parameter at a bound that they can leave."""
        values, (low, high) = getattr(parameters, name), self.bounds[name]
        return (np.isclose(values, low) | np.isclose(values, high)) & (low < high)


@dataclass
class Run:
    """A run at some step: all that the following steps depend on, except the data."""

    parameters: Any
    first: Any
    second: Any
    ages: Any
    step: int = 0
    best: Any = None
    score: float = -math.inf
    stale: int = 0
    history: list[np.ndarray] = field(default_factory=list)
    average: Any = None
    averaged: int = 0

    @classmethod
    def begin(cls, parameters: Any) -> Run:
        """Return a run that has not made a step."""
        zeros = type(parameters)(*map(np.zeros_like, parameters))
        ages = type(parameters)(*(np.zeros(len(part)) for part in parameters))
        return cls(parameters, zeros, zeros, ages)

    @property
    def result(self) -> Any:
        """The best parameters, or the last where none were scored."""
        return self.present if self.best is None else self.best

    @property
    def present(self) -> Any:
        """Parameters that would be taken if the run ended here."""
        return self.parameters if self.average is None else self.average

    def going_on(self) -> Run:
        """Return a run that goes on from this one's result, with averages and scores of its own."""
        if self.best is not None:  # Adam's moments belong to another point
            return replace(Run.begin(self.best), step=self.step, history=self.history)
        return replace(self, parameters=self.present, average=None, averaged=0)

    def following_average(self, parameters: Any, begin: int | None) -> tuple[Any, int]:
        """Return the average with one more step, and the steps in it; from step ``begin`` on."""
        if begin is None or self.step < begin:
            return None, 0
        old = self.average
        if old is None or any(a.shape != b.shape for a, b in zip(old, parameters, strict=True)):
            return parameters, 1
        share = (AVERAGING + 1) / (self.averaged + 1 + AVERAGING)
        moved = (a + share * (b - a) for a, b in zip(old, parameters, strict=True))
        return type(parameters)(*moved), self.averaged + 1

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all of the run by name."""
        parts = {name: getattr(self, name) for name in PARTS}
        parts |= {} if self.best is None else {"best": self.best}
        parts |= {} if self.average is None else {"average": self.average}
        arrays = {f"{k}_{name}": part for k, v in parts.items() for name, part in _items(v)}
        counts = [self.step, self.score, self.stale, self.averaged]
        arrays["counts"] = np.array(counts, np.float64)
        arrays["history"] = np.array(self.history)
        return arrays

    @classmethod
    def restore(cls, kind: Callable[..., Any], arrays: Mapping[str, np.ndarray]) -> Run:
        """Return the run that ``arrays`` describe, with parameters of a kind of tuple."""

        def tuple_of(prefix: str) -> Any:
            names = kind._fields  # type: ignore[attr-defined]
            return kind(**{name: np.array(arrays[f"{prefix}_{name}"]) for name in names})

        def optional(prefix: str) -> Any:
            known = any(name.startswith(f"{prefix}_") for name in arrays)
            return tuple_of(prefix) if known else None

        step, score, stale, averaged = arrays["counts"]
        parameters, first, second, ages = map(tuple_of, PARTS)
        return cls(
            parameters,
            first,
            second,
            ages,
            step=int(step),
            best=optional("best"),
            score=float(score),
            stale=int(stale),
            history=list(arrays["history"]),
            average=optional("average"),
            averaged=int(averaged),
        )


class _NotFinite(NumericalError):
    """Error for numbers that are not finite, of a parameter that the message names."""


class Stopped(NumericalError):
    """Error for numbers that are not finite; ``run`` is the last whose gradient was known.

    Whoever concludes it may leave the ``outcome``.
    """

    outcome: Any = None
    run: Run
    history: list[dict[str, Any]]

    def __init__(self, message: str, run: Run, history: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.run, self.history = run, history


def ascend(
    problem: Problem,
    run: Run,
    ascent: Ascent,
    describe: Describe,
    watched: Sequence[str],
    keeper: Keeper | None = None,
) -> tuple[Run, list[dict[str, Any]]]:
    """Maximise an objective from mini-batches.

    Parameters
    ----------
    problem : Problem
    run : Run
        The run to go on from.
    ascent : Ascent
        Settings.
    describe : callable
        Values by name of the parameters ``watched``, put in one vector, for the history.
    watched : sequence of str
        Parameters whose number of entries never changes.
    keeper : Keeper, optional
        Keeps the run every ``keep_every`` steps.

    Returns
    -------
    run : Run
    history : list of dict
        One entry per step: iteration, evaluations, objective (of the batch), gradient_norm,
        seconds, validation, and the parameters watched by name.

    Raises
    ------
    Stopped
        If a gradient is not finite or cannot be had; the message names the parameter.
    """
    with keep_diary(describe, ascent.steps, ascent.progress) as diary:
        kept = run.history
        before = float(kept[-1][2]) if kept else 0.0
        last = run
        try:
            for row in kept[:]:
                _note(diary, row)
        except StopTraining:
            return run, diary.entries
        while run.step < ascent.steps and not _finished(run, ascent):
            try:
                with np.errstate(over="ignore", invalid="ignore"):  # soon an error anyway
                    following = _step(problem, run, ascent, watched, diary, before)
            except StopTraining:
                logger.info("training was stopped at step %d", run.step + 1)
                return run, diary.entries
            except NumericalError as error:
                count = len(run.history) - (run.step - last.step)
                last = replace(last, history=run.history[:count])
                text = f"step {run.step + 1}: {error}{_suspected(error, last, run)}; {REMEDY}"
                raise Stopped(text, last, diary.entries[:count]) from error
            last, run = run, following
            if keeper is not None and run.step % ascent.keep_every == 0:
                keeper.write(run.step, {**run.arrays(), **problem.arrays()})
    if ascent.patience is not None and not _finished(run, ascent):
        logger.warning(
            "training ended before the score of held-out rows had stopped rising: raise max_iter"
        )
    return run, diary.entries


def _step(
    problem: Problem,
    run: Run,
    ascent: Ascent,
    watched: Sequence[str],
    diary: Diary,
    before: float,
) -> Run:
    parameters, estimate = problem.advance(run.parameters, run.step)
    _refuse_nan(estimate)
    moved = _moved(problem, run, ascent, parameters, estimate)
    for name, part in _items(moved[0]):
        if np.isnan(part).any():  # squares of a gradient overflowed
            raise _NotFinite(f"the step of {name} is not finite")
    parameters, step, score = moved[0], run.step + 1, math.nan
    average, averaged = run.following_average(parameters, ascent.average_from)
    best, highest, stale = run.best, run.score, run.stale
    if ascent.patience is not None and step % ascent.check_every == 0:
        present = parameters if average is None else average
        score = problem.validate(present)
        better = score > highest
        best, highest = (present, score) if better else (best, highest)
        stale = 0 if better else stale + 1
    size = max(float(np.abs(part).max(initial=0.0)) for _, part in _items(estimate.gradient))
    seconds = before + diary.elapsed()
    vector = np.concatenate([np.ravel(getattr(parameters, name)) for name in watched])
    row = np.concatenate([[estimate.value, size, seconds, score], vector])
    _note(diary, row)
    run.history.append(row)
    return Run(*moved, step, best, highest, stale, run.history, average, averaged)


def _moved(
    problem: Problem, run: Run, ascent: Ascent, parameters: Any, estimate: Found
) -> tuple[Any, Any, Any, Any]:
    """Return the parameters after a step, and what Adam remembers of them."""
    first, second = (_as_long(m, parameters) for m in (run.first, run.second))
    ages, rate = _as_long(run.ages, parameters), ascent.rate(run.step)
    names = {name for name, _ in _items(parameters)}
    new, moments = dict(estimate.settled), {}
    for name in names - set(estimate.settled):
        x, g = getattr(parameters, name), getattr(estimate.gradient, name)
        age, old = getattr(ages, name), (getattr(first, name), getattr(second, name))
        if ascent.rates.get(name, 0.0) == 0.0 or not x.size:
            new[name] = x
            continue
        conditioner = problem.conditioner(name, parameters, run.step)
        if conditioner is not None:
            g = conditioner.pull(g)
            if conditioner.fresh:
                old, age = (np.zeros_like(x), np.zeros_like(x)), np.zeros(len(x))
        column = age.reshape(-1, *(1,) * (x.ndim - 1))
        move, moment = adam_step(g, Moments(*old, column))
        moments[name] = moment.first, moment.second, age + 1
        if conditioner is not None:
            move = conditioner.push(move)
        x = x + ascent.rates[name] * rate * move
        new[name] = np.clip(x, *ascent.bounds[name]) if name in ascent.bounds else x
    first, second, ages = (
        old._replace(**{name: moment[i] for name, moment in moments.items()})
        for i, old in enumerate((first, second, ages))
    )
    return type(parameters)(**new), first, second, ages


def _note(diary: Diary, row: np.ndarray) -> None:
    value, size, seconds, score = map(float, row[:4])
    more = {} if math.isnan(score) else {"validation": score}
    diary.note(
        row[4:],
        evaluations=len(diary.entries) + 1,
        objective=value,
        gradient_norm=size,
        **more,
        seconds=seconds,
    )


def _suspected(error: NumericalError, last: Run, run: Run) -> str:
    """Name the parameter that the step before moved farthest, unless the error names one."""
    if isinstance(error, _NotFinite):
        return ""
    moves: dict[str, float] = {}
    for name, new in _items(run.parameters):
        old = getattr(last.parameters, name)
        if new.shape == old.shape and new.size:
            moves[name] = float(np.abs(new - old).max() / (1 + np.abs(old).max()))
    name = max(moves, key=moves.__getitem__, default="")
    return f" (the step before moved {name} farthest)" if name and moves[name] else ""


def _finished(run: Run, ascent: Ascent) -> bool:
    return ascent.patience is not None and run.stale >= ascent.patience


def _refuse_nan(estimate: Found) -> None:
    for name, part in _items(estimate.gradient):
        if not np.isfinite(part).all():
            raise _NotFinite(f"the gradient by {name} is not finite")
    for name, part in estimate.settled.items():
        if not np.isfinite(part).all():
            raise _NotFinite(f"the natural step of {name} is not finite")
    if not math.isfinite(estimate.value):
        raise NumericalError("the objective is not finite")


def _as_long(moments: Any, parameters: Any) -> Any:
    """Pad moments with zeros for rows, and columns, that parameters got since."""
    grown = {}
    for name, old in _items(moments):
        shape = getattr(parameters, name).shape[: old.ndim]
        if old.shape != shape:
            new = np.zeros(shape)
            new[tuple(map(slice, old.shape))] = old
            grown[name] = new
    return moments._replace(**grown)


def _items(parts: Any) -> Any:
    return parts._asdict().items()
