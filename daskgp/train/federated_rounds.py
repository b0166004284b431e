"""Rounds of the methods of federated training: what they do with the experts and with the state.

Letters as in ``federated``; z is the global vector, theta_i that of expert i and psi_i its dual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from daskgp.runtime.progress import ShowProgress
from daskgp.train.optimizers import (
    Evaluate,
    Moments,
    adam_step,
    refuse_nan,
)

Work = Callable[[Evaluate, Any], Any]
"""A module-level function, or a partial of one: what a worker does with an expert's objective."""
FederatedName: TypeAlias = Literal["admm", "pxadmm", "fedavg", "fedprox"]


def evaluate_once(evaluate: Evaluate, vector: np.ndarray) -> tuple[float, np.ndarray]:
    """Return value and gradient (k,) of an expert; NumericalError if they are not finite."""
    value, gradient = evaluate(vector)
    refuse_nan(value, gradient)
    return float(value), gradient


def evaluate_all(experts: Experts, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values (M,) and gradients (M, k) of experts; NumericalError if one is not finite."""
    results = experts.evaluate(vector)
    for value, gradient in results:
        refuse_nan(value, gradient)
    return _columns(results)


class Task(NamedTuple):
    """Message to an expert: where it begins, z, its dual, all (k,), and Adam's moments."""

    vector: np.ndarray
    centre: np.ndarray
    dual: np.ndarray
    moments: Moments


class Learned(NamedTuple):
    """Reply of an expert: where it ended, and value and gradient (k,) where it began."""

    vector: np.ndarray
    moments: Moments
    value: float
    gradient: np.ndarray


def learn(
    evaluate: Evaluate,
    task: Task,
    *,
    steps: int,
    rate: float,
    scale: float,
    weight: float,
    bounds: np.ndarray,
) -> Learned:
    """Take steps of Adam on f + psi' (theta - z) + weight / 2 |theta - z|^2.

    f is minus the expert's log-likelihood times ``scale``.
    """
    theta, moments = task.vector, task.moments
    value, gradient = evaluate_once(evaluate, theta)
    began = value, gradient
    for step in range(steps):
        if step > 0:
            _, gradient = evaluate_once(evaluate, theta)
        slope = -scale * gradient + task.dual + weight * (theta - task.centre)
        move, moments = adam_step(slope, moments)
        theta = np.clip(theta - rate * move, *bounds.T)
    return Learned(theta, moments, *began)


class Notes(NamedTuple):
    """Numbers of a round for the history and the test of convergence; all finite."""

    objective: float
    gradient_norm: float
    primal: float = 0.0
    dual: float = 0.0


class State(NamedTuple):
    """All that a round needs from those before it; parts without a use are (0, k)."""

    vector: np.ndarray  # z (k,)
    thetas: np.ndarray  # (M, k)
    duals: np.ndarray  # (M, k)
    first: np.ndarray  # Adam's moments (M, k)
    second: np.ndarray  # (M, k)
    steps: np.ndarray  # Adam's (M,)
    values: np.ndarray  # latest log-likelihood of each expert (M,), 0 before there is one
    seen: np.ndarray  # 1 where there is one (M,)

    def moments(self, i: int) -> Moments:
        """Return Adam's moments of expert i."""
        return Moments(self.first[i], self.second[i], int(self.steps[i]))


@dataclass(frozen=True)
class Updates:
    """The experts, and a round of each method with them.

    Parameters
    ----------
    experts : Experts
    bounds : ndarray (k, 2)
    settings : Federated
    """

    experts: Experts
    bounds: np.ndarray
    settings: Federated

    def begin(self, start: np.ndarray) -> State:
        """Return the state before the first round, from a vector (k,)."""
        M, k = len(self._all), len(start)
        learning, own = self.settings.method != "pxadmm", not self.settings.averages
        thetas = np.tile(start, (M if own else 0, 1))
        moments, steps = np.zeros((M if learning else 0, k)), np.zeros(M if learning else 0)
        none = np.zeros(M)
        return State(start, thetas, np.zeros_like(thetas), moments, moments, steps, none, none)

    def round(self, state: State, number: int) -> tuple[Notes, State]:
        """Do round ``number``, from 0: a message to each expert that takes part and one back."""
        if self.settings.method == "admm":
            return self._consensus(state)
        if self.settings.method == "pxadmm":
            return self._proximal(state)
        return self._average(state, number)

    @property
    def evaluations(self) -> int:
        """Number of evaluations of all experts in a round."""
        s = self.settings
        each = 1 if s.method == "pxadmm" else s.local_steps
        return each * (self._sample if s.averages else len(self._all))

    def _average(self, state: State, number: int) -> tuple[Notes, State]:
        """Do a round of FedAvg or FedProx: local steps from z, then the average by counts."""
        which, z = self._draw(number), state.vector
        tasks = [Task(z, z, np.zeros_like(z), state.moments(i)) for i in which]
        prox = self.settings.mu if self.settings.method == "fedprox" else 0.0
        vectors, notes, after = self._learn(state, which, tasks, prox)
        z = np.average(vectors, axis=0, weights=self.experts.counts[which])
        return notes, after._replace(vector=self._clip(z))

    def _consensus(self, state: State) -> tuple[Notes, State]:
        """Do a round of ADMM, minimising locally, inexactly (Boyd et al. 2011, eqs. 7.3 to 7.5)."""
        rho, before = self.settings.rho, state.vector
        still = state._replace(first=np.zeros_like(state.first))  # see Federated.local_steps
        tasks = [Task(state.thetas[i], before, state.duals[i], still.moments(i)) for i in self._all]
        thetas, notes, after = self._learn(state, self._all, tasks, rho)
        z = self._clip(np.mean(thetas + state.duals / rho, axis=0))
        after = after._replace(vector=z, thetas=thetas, duals=state.duals + rho * (thetas - z))
        return self._residuals(notes, thetas - z, z - before), after

    def _proximal(self, state: State) -> tuple[Notes, State]:
        """Do a round of ADMM with linearised losses, minimised in closed form (Xie et al. 2019).

        z is taken at the end of a round instead of at the start of the next.
        """
        s, before = self.settings, state.vector
        values, gradients = evaluate_all(self.experts, before)
        notes, after = self._seen(state, self._all, values, gradients)
        slopes = state.duals - self._scale * gradients
        thetas = self._clip(before - slopes / (s.rho + s.lipschitz))
        duals = state.duals + s.rho * (thetas - before)
        z = self._clip(np.mean(thetas + duals / s.rho, axis=0))
        after = after._replace(vector=z, thetas=thetas, duals=duals)
        return self._residuals(notes, thetas - before, z - before), after

    def _learn(
        self, state: State, which: list[int], tasks: list[Task], weight: float
    ) -> tuple[np.ndarray, Notes, State]:
        """Take local steps of some experts; return vectors, notes and the state with moments."""
        s = self.settings
        work = partial(
            learn,
            steps=s.local_steps,
            rate=s.learning_rate,
            scale=self._scale,
            weight=weight,
            bounds=self.bounds,
        )
        replies: list[Learned] = self.experts.map(work, which, tasks)
        notes, state = self._seen(state, which, *_columns([(f.value, f.gradient) for f in replies]))
        first, second, steps = state.first.copy(), state.second.copy(), state.steps.copy()
        for i, f in zip(which, replies, strict=True):
            first[i], second[i], steps[i] = f.moments
        vectors = np.array([f.vector for f in replies])
        return vectors, notes, state._replace(first=first, second=second, steps=steps)

    def _seen(
        self, state: State, which: list[int], values: np.ndarray, gradients: np.ndarray
    ) -> tuple[Notes, State]:
        """Return objective and gradient, and the state, from values (s,) and gradients (s, k)."""
        latest, seen, counts = state.values.copy(), state.seen.copy(), self.experts.counts
        latest[which], seen[which] = values, 1
        objective = latest.sum() * (counts.sum() / counts[seen > 0].sum())
        slope = np.abs(gradients.sum(axis=0)).max() * (counts.sum() / counts[which].sum())
        return Notes(float(objective), float(slope)), state._replace(values=latest, seen=seen)

    def _residuals(self, notes: Notes, apart: np.ndarray, moved: np.ndarray) -> Notes:
        """Add primal and dual residual (Boyd et al. 2011, section 7.1), each over sqrt(M)."""
        primal = np.sqrt(np.mean(np.sum(apart**2, axis=1)))
        dual = self.settings.rho * np.linalg.norm(moved)
        return notes._replace(primal=float(primal), dual=float(dual))

    def _draw(self, number: int) -> list[int]:
        """Draw the experts of a round, in order."""
        random = np.random.default_rng([self.settings.seed, number])
        return sorted(random.choice(len(self._all), self._sample, replace=False).tolist())

    @property
    def _sample(self) -> int:
        return max(1, round(self.settings.sampling_rate * len(self._all)))

    @property
    def _all(self) -> list[int]:
        return list(range(len(self.experts.counts)))

    @property
    def _scale(self) -> float:
        return float(len(self._all) / self.experts.counts.sum())

    def _clip(self, vectors: np.ndarray) -> np.ndarray:
        return np.clip(vectors, *self.bounds.T)


def _columns(pairs: list[tuple[float, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    values, gradients = zip(*pairs, strict=True)
    return np.array(values), np.array(gradients)


class Experts(Protocol):
    """Objectives of M experts, wherever they are."""

    @property
    def counts(self) -> np.ndarray:
        """Number of target values of each expert (M,): rows times outputs."""

    def evaluate(self, vector: np.ndarray) -> list[tuple[float, np.ndarray]]:
        """Return value and gradient (k,) of every expert at one vector (k,), in their order."""

    def map(self, work: Work, which: Sequence[int], arguments: Sequence[Any]) -> list[Any]:
        """Return ``work(evaluate of expert i, argument)`` for the i of ``which``, in that order."""


@dataclass(frozen=True)
class Federated:
    """Settings of distributed training ([OPT] section 2.2.1).

    Parameters
    ----------
    method : {"fedavg", "fedprox", "admm", "pxadmm"}
        FedAvg (McMahan et al. 2017): a random subset of experts takes ``local_steps`` steps of
        Adam from the global vector, which becomes their average weighted by counts.  FedProx (Li
        et al. 2020) adds mu/2 |theta - z|^2, the distance from the global vector z, to each loss.
        ADMM (Boyd et al. 2011, section 7.1) lets each expert start from its own vector and draws
        all to consensus by rho/2 |theta_i - z|^2 and duals.  pxADMM (Xie et al. 2019) replaces the
        local loss by its linearisation at z: one gradient per expert and round, no Adam.
    max_iter : int
        Most rounds.
    tol : float
        FedAvg and FedProx stop when the objective per value, averaged over ten rounds, differs
        by less than ``tol`` from its average over the ten before: steps of Adam do not shrink by
        themselves.  They return the average of the global vectors of the last tenth of the
        rounds, ten at most.  ADMM and pxADMM stop when the primal residual, the root of the mean
        of |theta_i - z|^2, and the dual one, rho |z - z before|, are both below tol sqrt(k)
        (Boyd et al. 2011, section 3.3, over sqrt(M)).  Either must hold three rounds in a row.
    local_steps : int
        Steps of Adam per expert and round.  Each expert keeps its moments; with ADMM the second
        alone, as the duals change the loss from round to round and momentum of the last one
        makes them swing.  ADMM settles with about 20 steps and may not with 5; FedAvg and
        FedProx come closer to FACT's optimum with 5, the more the experts differ.
    learning_rate : float
        Learning rate of Adam: about the largest change of a log hyper-parameter in a step.
    sampling_rate : float
        Share of the experts drawn each round by FedAvg and FedProx.
    rho : float
        Penalty of ADMM and pxADMM on disagreement.
    mu : float
        FedProx's penalty.
    lipschitz : float
        pxADMM's bound on the curvature of the f_i: local steps are gradients over rho +
        lipschitz.  Near an optimum of curvature H it converges where H < 2/3 (rho + 2 lipschitz);
        raise it where the objective runs away.
    seed : int
        Seed of the draws; the draw of a round depends on it and the round alone.
    progress : bool or "auto"
        Whether to show progress on stderr; "auto" shows it on a terminal.
    """

    method: FederatedName
    max_iter: int = 200
    tol: float = 1e-4
    local_steps: int = 20
    learning_rate: float = 0.05
    sampling_rate: float = 1.0
    rho: float = 0.3
    mu: float = 0.3
    lipschitz: float = 2.0
    seed: int = 0
    progress: ShowProgress = "auto"

    @property
    def averages(self) -> bool:
        """True if the global vector is an average of what experts made of the last one."""
        return self.method in ("fedavg", "fedprox")
