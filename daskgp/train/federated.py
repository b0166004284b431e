"""Shared hyper-parameters of experts that each keep their own data: FedAvg, FedProx and ADMM.

Letters: M experts, k entries of a vector theta of logs of hyper-parameters (and inducing inputs),
L_i the log-likelihood of expert i, N the number of values of y over all of them.  Its loss is
f_i = -M L_i / N, so that the mean of the f_i is minus FACT's objective ([OPT] eq. 13) per value
and ``rho``, ``mu`` and ``lipschitz`` mean the same for any number of rows.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np

from daskgp import checks
from daskgp.errors import StoreError
from daskgp.train.callbacks import StopTraining
from daskgp.train.federated_rounds import (
    Experts,
    Federated,
    FederatedName,
    Notes,
    State,
    Updates,
    evaluate_all,
)
from daskgp.train.optimizers import OTHER_RUN, Describe, Diary, Tape, keep_diary

logger: logging.Logger = logging.getLogger("daskgp")

WINDOW = 10
"""Rounds that the objective of FedAvg and FedProx is averaged over to see whether it moves."""
PATIENCE = 3
"""Rounds in a row that must look converged: one alone may be where an oscillation turns."""


def check(settings: Federated) -> None:
    """Raise SettingError for a setting out of range."""
    checks.choice("method", settings.method, get_args(FederatedName))
    for name, least in (("max_iter", 1), ("local_steps", 1), ("seed", 0)):
        checks.whole(name, getattr(settings, name), least)
    for name in ("tol", "learning_rate", "rho", "mu", "lipschitz"):
        checks.positive(name, getattr(settings, name), or_zero=name in ("mu", "lipschitz"))
    checks.share("sampling_rate", settings.sampling_rate)


def fact(experts: Experts, vector: np.ndarray) -> tuple[float, np.ndarray]:
    """Return FACT's objective, the sum over all experts, and its gradient (k,) at a vector (k,).

    [OPT] eq. 13; one evaluation per expert.
    """
    values, gradients = evaluate_all(experts, vector)
    return sum(values.tolist()), np.sum(gradients, axis=0)


def train_experts(
    experts: Experts,
    start: np.ndarray,
    bounds: np.ndarray,
    settings: Federated,
    describe: Describe,
    tape: Tape | None = None,
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Train the shared hyper-parameters of experts, with a message to each and back per round.

    Parameters
    ----------
    experts : Experts
        Their objectives and sizes.
    start : ndarray (k,)
    bounds : ndarray (k, 2)
        Infinite where there is no bound; every step is clipped to them.
    settings : Federated
    describe : callable
        Named hyper-parameters of a vector, for the history.
    tape : Tape, optional
        Keeps a row per round, and plays rows back.

    Returns
    -------
    vector : ndarray (k,)
        The global vector; for FedAvg and FedProx an average of the last ones.
    history : list of dict
        One entry per round: iteration, evaluations (total over experts), objective, gradient_norm,
        seconds, for the ADMMs primal_residual and dual_residual, and the hyper-parameters by
        name.  All belong to the global vector at the start of the round, except ADMM's
        objective and gradient, which are summed over the experts at their own vectors.  Experts
        not drawn count in the objective with their latest value; until all have been drawn once
        it is scaled up by counts, as is the gradient of a sample.
    """
    check(settings)
    updates = Updates(experts, bounds, settings)
    total = int(np.sum(experts.counts))
    trail: list[np.ndarray] = []
    rounds: list[Notes] = []
    with keep_diary(describe, settings.max_iter, settings.progress) as diary:
        for before, notes, after in _rounds(updates, np.clip(start, *bounds.T), tape, diary):
            trail.append(after)
            rounds.append(notes)
            residuals = {"primal_residual": notes.primal, "dual_residual": notes.dual}
            try:
                diary.note(
                    before,
                    evaluations=len(trail) * updates.evaluations,
                    objective=notes.objective,
                    gradient_norm=notes.gradient_norm,
                    **({} if settings.averages else residuals),
                )
            except StopTraining:
                logger.info("training was stopped after %d rounds", len(trail))
                break
            if _settled(settings, rounds, total, len(start)):
                break
        else:
            logger.warning(
                "training by %s stopped at max_iter=%d before tol was met",
                settings.method,
                settings.max_iter,
            )
    _warn_of_a_fall(settings, rounds)
    return np.clip(_result(settings, trail), *bounds.T), diary.entries


def _warn_of_a_fall(settings: Federated, notes: Sequence[Notes]) -> None:
    """Warn if training ended below where it began, as with steps that are too large."""
    if notes[-1].objective < notes[0].objective:
        larger = "rho and lipschitz" if settings.method == "pxadmm" else "rho"
        logger.warning(
            "training by %s ended at an objective of %.6g, below %.6g where it began: choose %s",
            settings.method,
            notes[-1].objective,
            notes[0].objective,
            "a smaller learning_rate" if settings.averages else f"larger {larger}",
        )


def _rounds(
    updates: Updates, start: np.ndarray, tape: Tape | None, diary: Diary
) -> Iterator[tuple[np.ndarray, Notes, np.ndarray]]:
    """Yield the global vector before, notes and global vector after each round, kept ones first.

    A row of the tape is the vector before, the notes, the seconds, and the state after.
    """
    state, k = updates.begin(start), len(start)
    head = k + len(Notes._fields) + 1
    shapes = [part.shape for part in state]
    ends = np.cumsum([head, *(part.size for part in state)])
    kept = tape.read() if tape else np.empty((0, 0))
    if len(kept):
        logger.info("continuing after %d kept rounds", len(kept))
    for number in range(updates.settings.max_iter):
        if number < len(kept):
            row = kept[number]
            if len(row) != ends[-1] or not np.array_equal(row[:k], state.vector):
                raise StoreError(OTHER_RUN)
            diary.add(row[head - 1])
        else:
            began = time.perf_counter()
            notes, after = updates.round(state, number)
            seconds = [time.perf_counter() - began]
            row = np.concatenate([state.vector, notes, seconds, *(part.ravel() for part in after)])
            if tape:
                tape.append(number, row)
        parts = np.split(row[head:], ends[1:-1] - head)
        before, state = state.vector, State(*map(np.reshape, parts, shapes))
        yield before, Notes(*map(float, row[k : head - 1])), state.vector


def _settled(settings: Federated, notes: Sequence[Notes], total: int, k: int) -> bool:
    """Return whether the last rounds all meet the test that ``Federated.tol`` describes."""
    if not settings.averages:
        last = [max(n.primal, n.dual) for n in notes[-PATIENCE:]]
        return len(last) == PATIENCE and max(last) < settings.tol * math.sqrt(k)
    span = 2 * WINDOW + PATIENCE - 1
    if len(notes) < span:
        return False
    tail = np.array([n.objective for n in notes[-span:]]) / total
    means = np.convolve(tail, np.full(WINDOW, 1 / WINDOW), mode="valid")
    return bool((np.abs(means[WINDOW:] - means[:-WINDOW]) < settings.tol).all())


def _result(settings: Federated, trail: Sequence[np.ndarray]) -> np.ndarray:
    """Return the trained vector (k,), from the global ones after each round."""
    if not settings.averages:
        return trail[-1]
    return np.mean(trail[-min(WINDOW, max(1, len(trail) // 10)) :], axis=0)
