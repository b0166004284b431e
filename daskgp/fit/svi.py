"""Stochastic training of variational GPs: passes over a batch, growth of bases, coordinates."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from daskgp.arrays.linalg import inverse_from_factor, whiten_rows
from daskgp.data.blocks import ordering
from daskgp.fit.constraints import LogPrior
from daskgp.fit.minibatches import Batch, Share
from daskgp.kernels import Kernel
from daskgp.kernels.lengthscales import correlation_lengths
from daskgp.models.method import Pass
from daskgp.models.values import Block, Piece, Theta, add_lists, move
from daskgp.models.variational import preconditioner
from daskgp.models.variational.basis import make
from daskgp.models.variational.decoupled import Decoupled, Draw, Prepared, Sums, observed_by
from daskgp.models.variational.inducing_functions import Points, Pull
from daskgp.models.variational.parameters import Parameters, with_covariance, with_mean
from daskgp.models.variational.preconditioner import Blocks
from daskgp.runtime import device_memory
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread
from daskgp.train.stochastic import Conditioner, Found

Precondition = Literal["blocks", "jacobi", None]

GROUP = 4_096
"""Maximum number of functions of the mean whose coordinates are changed together."""
REFRESH = 100
"""Number of steps after which the coordinates are brought up to date with the kernel."""
SAMPLE = 8_192
"""Number of functions from which the order of neighbours is determined."""
REMEDY = f"choose fewer functions or a smaller batch_rows, {device_memory.ANOTHER}"
VALIDATION_ROWS = 2_048
"""Rows per task of validation."""


def diverging() -> AbstractContextManager[Any]:
    """Return a context that silences NumPy: a step with non-finite numbers raises an error."""
    return np.errstate(over="ignore", invalid="ignore")


@dataclass(frozen=True, eq=False)
class Steps:
    """Sums over the rows of a batch, for one step of training.

    Parameters
    ----------
    model : Decoupled
    count : float
        Number of training rows, which a batch stands for.
    columns : int
        Functions of the mean that are drawn for each step.
    seed : int
    executor : Executor
    dtype, device : str
    """

    model: Decoupled
    count: float
    columns: int
    seed: int
    executor: Executor
    dtype: str
    device: str

    def sums(self, prepared: Prepared, shares: list[Share], step: int) -> Sums:
        """Return the sums over a batch, one task per share."""
        total = sum(share.size for share in shares)
        drawn, weight = self._columns(prepared.parameters, step)
        own = [Draw(self.count / total, js, weight) for js in np.array_split(drawn, len(shares))]
        over = self._pass("step", partial(_sums, self.model), self.model.combine)
        result: Sums = self._batch(shares).sum(over, prepared, own=own)
        return result

    def inputs(self, shares: list[Share]) -> np.ndarray:
        """Return the inputs (n, d) of the rows of a batch."""
        over = Pass("functions", _inputs, add_lists, cut=False, in_place=False)
        return np.concatenate(Batch(tuple(shares), self.executor).sum(over))

    def density(self, prepared: Prepared, rows: Block) -> float:
        """Return the mean log predictive density of rows and their targets."""
        if not len(rows.X):
            return float("nan")
        state = move(self.model.posterior(prepared), "cpu")
        parts = [
            rows.at(slice(i, i + VALIDATION_ROWS)) for i in range(0, len(rows.X), VALIDATION_ROWS)
        ]
        shares = [Share((part,), (slice(0, len(part.X)),)) for part in parts]
        over = self._pass("validate", partial(_density, self.model), operator.add)
        over = replace(over, described="{rows} rows that are held out")
        total = self._batch(shares).sum(over, prepared, state)
        return float(total) / rows.y.size

    def _pass(self, what: str, function: Any, combine: Any) -> Pass:
        return Pass(
            f"{self.model.name}-{what}",
            function,
            combine,
            cut=False,
            described="{rows} rows of a batch",
            remedy=REMEDY,
            in_place=False,
        )

    def _batch(self, shares: list[Share]) -> Batch:
        return Batch(tuple(shares), self.executor, self.device)

    def _columns(self, own: Parameters, step: int) -> tuple[np.ndarray, float]:
        """Return the functions of the mean drawn for a step, and the weight of each."""
        number = len(own.weights)
        if self.model.form == "direct":
            number += len(own.shared_weights)
        if number <= self.columns:
            return np.arange(number), 1.0
        rng = np.random.default_rng([self.seed, 10, step])
        return np.sort(rng.permutation(number)[: self.columns]), number / self.columns


class Bases(NamedTuple):
    """Sizes of the bases: functions of the covariance, of the mean beyond them, and added per step.

    ``scaled`` functions have lengthscales of their own.  After ``most`` steps the bases grow no
    more: the data may have fewer distinct rows.
    """

    covariance: int
    mean: int
    step: int
    scaled: bool
    shared: bool
    most: int | None


@dataclass
class Learning:
    """The ``Problem`` that defines a step of training.

    Parameters
    ----------
    steps : Steps
    kernel : Kernel
        Kernel of the right kind, with any hyper-parameters.
    offset : ndarray (p,)
        Constant of the latent function.
    take : callable
        Returns the shares of the next batch.
    place : callable
        Returns the place in the stream of batches.
    bases : Bases
    natural : float, optional
        Rate of natural gradients; None leaves q to Adam.
    precondition : {"blocks", "jacobi", None}
    validation : Block
        Held-out rows.
    prior : LogPrior, optional
        Prior of hyper-parameters that follow the bound.
    """

    steps: Steps
    kernel: Kernel
    offset: np.ndarray
    take: Callable[[], list[Share]]
    place: Callable[[], np.ndarray]
    bases: Bases
    natural: float | None
    precondition: Precondition
    validation: Block
    prior: LogPrior | None = None
    _blocks: Blocks | None = field(default=None, init=False)
    _prepared: Prepared | None = field(default=None, init=False)

    # -- Problem -----------------------------------------------------------------------------

    def advance(self, parameters: Parameters, step: int) -> tuple[Parameters, Found]:
        """Add functions, then estimate the bound and its gradient from the next batch."""
        shares = self.take()
        parameters = self._grown(parameters, shares, step)
        # small solves side by side: more BLAS threads would gain less
        with single_blas_thread(), ThreadPoolExecutor(1) as beside:
            precision = beside.submit(self._precision, parameters)
            prepared, pull = self._prepare(parameters)
            total = self.steps.sums(prepared, shares, step)
            following = beside.submit(self._natural_step, parameters, total, precision.result())
            bound = self.steps.model.bound(prepared, total, pull)
            settled = following.result()
        self._prepared = prepared
        value, gradient = bound
        if self.prior is not None and self.prior.terms:
            k = len(parameters.kernel)
            more, slope = self.prior(np.concatenate([parameters.kernel, parameters.likelihood]))
            value += more
            gradient = gradient._replace(
                kernel=gradient.kernel + slope[:k], likelihood=gradient.likelihood + slope[k:]
            )
        return parameters, Found(value, gradient, settled)

    def conditioner(self, name: str, parameters: Parameters, step: int) -> Conditioner | None:
        """Return coordinates of the mean's weights, and of the root of a direct covariance."""
        direct = self.steps.model.form == "direct"  # the hybrid's other parameters are whitened
        if self.precondition == "jacobi" and (
            name == "weights" or (direct and name in ("shared_weights", "root"))
        ):
            return self._jacobi(name, parameters)
        if self.precondition != "blocks" or name != "weights":
            return None
        self._blocks = self._regrouped(parameters, step)
        return self._blocks

    def validate(self, parameters: Parameters) -> float:
        """Return the mean log predictive density of held-out rows."""
        return self.steps.density(self._prepare(parameters)[0], self.validation)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the place in the stream, and the groups of functions."""
        members = self._blocks.members if self._blocks else []
        order = np.concatenate([*members, np.zeros(0, np.int64)]).astype(np.int64)
        sizes = np.array([len(group) for group in members], np.int64)
        seed = np.array(self.steps.seed)
        return {"where": self.place(), "order": order, "sizes": sizes, "seed": seed}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the groups of functions; their factors are computed at the next step."""
        members = np.split(arrays["order"], np.cumsum(arrays["sizes"])[:-1])
        self._blocks = Blocks(members, []) if len(arrays["sizes"]) else None

    def let_go(self) -> None:
        """Take gradients with respect to all parameters from now on."""
        model = replace(self.steps.model, frozen=False)
        self.steps = replace(self.steps, model=model)

    # -- parts -------------------------------------------------------------------------------

    def _precision(self, parameters: Parameters) -> np.ndarray | None:
        """Return S^-1, from which natural gradients start; None without them."""
        if self.natural is None:
            return None
        with diverging():
            return inverse_from_factor(parameters.root)

    def _natural_step(
        self, parameters: Parameters, total: Sums, precision: np.ndarray | None
    ) -> dict[str, np.ndarray]:
        if self.natural is None or precision is None:
            return {}
        with diverging():
            w, root = self.steps.model.natural_step(parameters, total, self.natural, precision)
        return {"shared_weights": w, "root": root}

    def _prepare(self, parameters: Parameters) -> tuple[Prepared, Pull]:
        model, dtype = self.steps.model, self.steps.dtype
        with single_blas_thread():
            return model.prepare_with_pull(self.kernel, parameters, self.offset, dtype)

    def _grown(self, parameters: Parameters, shares: list[Share], step: int) -> Parameters:
        """Add functions at rows of the batch until the bases are full, [DGP] Algorithm 1."""
        bases = self.bases
        covariance = min(bases.step, bases.covariance - len(parameters.root))
        mean = min(bases.step, bases.mean - len(parameters.weights))
        if (covariance <= 0 and mean <= 0) or (bases.most is not None and step >= bases.most):
            return parameters
        rows = _unseen(self.steps.inputs(shares), parameters, self.steps.dtype)
        if covariance > 0:
            chosen, rows = rows[:covariance], rows[covariance:]  # the mean has these functions too
            parameters = self._with_covariance(parameters, chosen)
        if mean > 0 and len(rows):
            parameters = with_mean(parameters, rows[:mean], bases.scaled)
        return parameters

    def _with_covariance(self, parameters: Parameters, inputs: np.ndarray) -> Parameters:
        """Add functions of the covariance, none of which changes q in the hybrid form."""
        model, bases, old = self.steps.model, self.bases, len(parameters.root)
        grown = with_covariance(parameters, inputs, model.form, bases.scaled, bases.shared)
        if model.form == "direct" or not len(parameters.weights):
            return grown
        # what the new functions explain of the mean's own ones belongs to them from now on
        explained = self._prepare(grown)[0].factors.explained
        return grown._replace(
            shared_weights=np.concatenate([parameters.shared_weights, explained[old:]])
        )

    def _jacobi(self, name: str, parameters: Parameters) -> Blocks:
        functions = make(self.steps.model.basis, self.kernel.with_log_parameters(parameters.kernel))
        points = parameters.residual if name == "weights" else parameters.covariance
        own = functions.own(points)
        return Blocks([np.arange(len(own))], [own])

    def _regrouped(self, parameters: Parameters, step: int) -> Blocks:
        """Return groups of functions and their factors; only those that changed are computed."""
        old, count = self._blocks or Blocks([], []), len(parameters.weights)
        known = sum(map(len, old.members))
        full = count > known and count >= self.bases.mean
        short = step == self.bases.most and count < self.bases.mean
        if full or short:  # no more functions will come: group neighbours
            members = groups(self.kernel, parameters, GROUP)
            return Blocks(members, self._factors(parameters, members), fresh=True)
        stale = step % REFRESH == 0 or len(old.factors) < len(old.members)
        factors = self._factors(parameters, old.members) if stale else old.factors
        if count == known:
            return Blocks(old.members, factors)
        new = [np.arange(known, count)]
        return Blocks([*old.members, *new], [*factors, *self._factors(parameters, new)])

    def _factors(self, parameters: Parameters, members: Sequence[np.ndarray]) -> list[np.ndarray]:
        functions = make(self.steps.model.basis, self.kernel.with_log_parameters(parameters.kernel))
        Z, P = parameters.covariance, parameters.residual
        if self.steps.model.form == "direct":
            blocks = (functions.gram(_some(P, group))[0] for group in members)
            return [preconditioner.root(C, float(C.trace()) / len(C)) for C in blocks]
        assert self._prepared is not None
        L, b, factors = self._prepared.factors.factor, len(parameters.root), []
        for group in members:
            both = (np.concatenate(pair) for pair in zip(Z, _some(P, group), strict=True))
            C = functions.gram(Points(*both))[0]
            A, own = whiten_rows(L, C[b:, :b]), C[b:, b:]
            factors.append(preconditioner.root(own - A @ A.T, float(own.trace()) / len(own)))
        return factors


def _unseen(rows: np.ndarray, parameters: Parameters, dtype: str) -> np.ndarray:
    """Return the distinct rows, in their order and at a precision, that have no function yet."""
    known = np.concatenate([parameters.covariance_points, parameters.mean_points])
    known = known.astype(dtype).astype(rows.dtype)
    _, first = np.unique(np.concatenate([known, rows]), axis=0, return_index=True)
    new = np.sort(first[first >= len(known)])
    return rows[new - len(known)]


def _some(points: Points, indices: np.ndarray) -> Points:
    return Points(*(part[indices] if len(part) else part for part in points))


def groups(kernel: Kernel, parameters: Parameters, size: int) -> list[np.ndarray]:
    """Return the indices of the mean's functions in groups of neighbours."""
    inputs, number = parameters.mean_points, -(-len(parameters.mean_points) // size)
    low, high = inputs.min(axis=0), inputs.max(axis=0)
    lengths = correlation_lengths(kernel.with_log_parameters(parameters.kernel), high - low)
    names = [str(j) for j in range(inputs.shape[1])]
    sample = inputs[:: max(1, len(inputs) // SAMPLE)]
    order = ordering.make_order("auto", sample, low, high, names, number, lengths)
    return np.array_split(np.argsort(order.keys(inputs), kind="stable"), number)


# -- tasks -----------------------------------------------------------------------------------


def _sums(model: Decoupled, draw: Draw, piece: Piece, prepared: Prepared) -> Sums:
    with diverging():
        return model.local(prepared, piece.own, draw)


def _inputs(piece: Piece) -> list[np.ndarray]:
    return [np.asarray(piece.own.X, np.float64)]


def _density(model: Decoupled, piece: Piece, prepared: Prepared, state: Any) -> float:
    with diverging():
        predicted = model.predict(Theta(prepared.kernel, 1.0), state, piece.own.X, None, "variance")
        moments, rows = move(predicted, "cpu"), move(piece.own, "cpu")
        likelihood = observed_by(prepared, rows)
        density = likelihood.log_density(rows.y, moments.mean, moments.variance)
        return float(density.sum())
