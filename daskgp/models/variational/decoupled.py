"""Decoupled variational GPs and SVGP: the bound of a mini-batch and its gradient.

[DGP] = Cheng & Boots 2017.  Letters as in posterior.py; a (m, p) are the weights of the m
functions of the mean that the covariance does not have, C their covariances.  A step is one map
over parts of a batch, each with some of the sampled columns of C, and a small solve::

    prepared = model.prepare(parameters)
    total = sum(model.local(prepared, block, draw) for each part)
    bound = model.bound(prepared, total)

``bound`` holds the value and the gradient for every parameter.  Both are unbiased: rows of a
batch stand for all, and columns of C for all in the quadratic form of the mean.  The gradient of
that form is taken for its left argument alone, whose columns are sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp import likelihoods
from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number, to_host, wide
from daskgp.kernels import Kernel
from daskgp.likelihoods import Likelihood
from daskgp.models.method import Declared
from daskgp.models.pathwise import PathDraw, Paths, PathState, by_inducing
from daskgp.models.values import TILE_ROWS, Block, Footprint, Moments, Shape, Theta, Want
from daskgp.models.variational import basis, posterior
from daskgp.models.variational.inducing_functions import Points, Pull, Through
from daskgp.models.variational.parameters import (
    FormName,
    Parameters,
    State,
    mean_functions,
    split_gradient,
    zero_gradient,
    zero_points,
    zeros_like,
)
from daskgp.typing import Array

FLOOR = 1e-10
"""Smallest variance of a row passed to a likelihood."""


class Prepared(NamedTuple):
    """Parameters, what they describe, and the factors that all rows share.

    ``rounded`` are the factors in the precision of the rows.
    """

    parameters: Parameters
    kernel: Kernel
    likelihood: Likelihood
    offset: Array
    factors: posterior.Factors
    jitter: float
    kl: float
    rounded: posterior.Factors


class Draw(NamedTuple):
    """Weight of each row; columns of the mean's functions and the weight of each."""

    weight: float
    columns: np.ndarray
    column_weight: float


class Sums(NamedTuple):
    """Part of the bound from some rows and columns, its gradient so far, and sums through Z.

    The latter are those of ``posterior.Sums``; ``curvature`` is its gram without what would
    make a precision smaller, for likelihoods that are not log-concave; ``explained`` estimates h.
    """

    value: float
    gradient: Parameters
    projected: Array
    gram: Array
    root: Array
    adjoint: Array
    curvature: Array
    explained: Array

    @property
    def through(self) -> posterior.Sums:
        """Sums that go back through Z."""
        return posterior.Sums(self.projected, self.gram, self.root, self.adjoint)


class Bound(NamedTuple):
    """An estimate of the evidence lower bound and its gradient."""

    value: float
    gradient: Parameters


@dataclass(frozen=True)
class Decoupled(Declared):
    """Settings of the decoupled GP.

    Parameters
    ----------
    form : {"hybrid", "direct"}
        Parametrisation of the posterior; "hybrid" with no functions of the mean is SVGP.
    basis : {"kernel", "generalized"}
        Functions k(., z), or those of [DGP] eq. 19.
    likelihood : str
        Name of the likelihood.
    natural : bool
        Whether q on Z is learned by natural gradients, which need sums of their own.
    frozen : bool
        Whether the kernel and the mean's own functions stay fixed: their gradient is left at
        zero, which saves most of the work on the mean.
    jitter : float
        Added to the diagonal of C[Z, Z], relative to its mean.
    n_mean, batch_rows : int
        Number of functions of the mean beyond those of the covariance, and of rows in a batch;
        for plans.
    """

    form: FormName = "hybrid"
    basis: str = "kernel"
    likelihood: str = "gaussian"
    natural: bool = False
    frozen: bool = False
    jitter: float = 1e-8
    n_mean: int = 0
    batch_rows: int = 1024

    name: ClassVar[str] = "decoupled"
    state_type: ClassVar[Any] = State
    takes_noise: ClassVar[bool] = True
    takes_columns: ClassVar[bool] = True

    @property
    def likelihood_name(self) -> str:
        """Name of the likelihood of y given f."""
        return self.likelihood

    # -- a step ------------------------------------------------------------------------------

    def why_no_update(self) -> str | None:
        """Return how it learns from more rows."""
        return "it learns from more rows by partial_fit(X, y)"

    def why_no_forget(self) -> str | None:
        """Return that learning from mini-batches cannot be undone."""
        return "what mini-batches have taught it cannot be undone: fit the rows that stay"

    def prepare(
        self, kernel: Kernel, parameters: Parameters, offset: Array, dtype: str = "float64"
    ) -> Prepared:
        """Factor the covariance's functions, of the kind of ``kernel``; ``offset`` is (p,).

        Rows will come in ``dtype``.
        """
        return self.prepare_with_pull(kernel, parameters, offset, dtype)[0]

    def prepare_with_pull(
        self, kernel: Kernel, parameters: Parameters, offset: Array, dtype: str = "float64"
    ) -> tuple[Prepared, Pull]:
        """Return ``prepare``, with the pullback of its kernel matrix for ``bound``."""
        parameters = _as(parameters, np.float64)
        logs = {name: to_host(getattr(parameters, name)) for name in ("kernel", "likelihood")}
        parameters = parameters._replace(**logs)
        kernel = kernel.with_log_parameters(parameters.kernel)
        likelihood = likelihoods.by_name(self.likelihood, parameters.likelihood)
        functions = basis.make(self.basis, kernel)
        Z, T, w = parameters.covariance, parameters.root, parameters.shared_weights
        gram, pull = functions.gram(Z)
        gram = gram.copy()
        if self.form == "direct":
            factors = posterior.direct(gram, T, w)
            kl = posterior.direct_kl(factors, parameters.weights.shape[1])
            rounded = _as(factors, dtype)
            return Prepared(parameters, kernel, likelihood, offset, factors, 0.0, kl, rounded), pull
        factor, jitter = linalg.cholesky(gram, self.jitter, overwrite=True)
        mixed = functions.among(parameters.residual, parameters.weights, Z).T
        factors = posterior.hybrid(factor, T, w, mixed)
        kl = posterior.hybrid_kl(factors, w)
        rounded = _as(factors, dtype)
        return Prepared(parameters, kernel, likelihood, offset, factors, jitter, kl, rounded), pull

    def local(self, prepared: Prepared, block: Block, draw: Draw) -> Sums:
        """Return expected log-likelihood of rows, quadratic form of columns, their gradients."""
        own, (b, p) = prepared.parameters, self._sizes(prepared)
        xp, zero = namespace(block.X), zero_gradient(own)
        sums = Sums(0.0, zero, xp.zeros((b, p)), *(xp.zeros((0, 0)),) * 5)
        if len(block.X):
            sums = self._rows(prepared, block, draw.weight)
        if len(draw.columns):
            sums = self.combine(sums, self._columns(prepared, block.X.dtype, draw))
        return sums

    def combine(self, a: Sums, b: Sums) -> Sums:
        """Return the sums over both parts."""
        gradient = Parameters(*map(_plus, a.gradient, b.gradient))
        rest = (_plus(x, y) for x, y in zip(a[2:], b[2:], strict=True))
        return Sums(a.value + b.value, gradient, *rest)

    def bound(self, prepared: Prepared, total: Sums, pull: Pull | None = None) -> Bound:
        """Return value and gradient from all parts' sums; none for T with natural gradients.

        Without ``pull`` the kernel matrix is computed again.
        """
        own, factors = prepared.parameters, prepared.factors
        if self.form == "hybrid":
            w = own.shared_weights
            explained = total.explained if total.explained.size else zeros_like(w)
            through = posterior.hybrid_through(factors, total.through, w, explained)
        else:
            p = own.weights.shape[1]
            through = posterior.direct_through(factors, total.through, own.root, p)
        functions, Z = basis.make(self.basis, prepared.kernel), own.covariance
        gram_bar = through.gram
        if pull is None:
            _, pull = functions.gram(Z)
        # the jitter scales with the mean diagonal
        share = prepared.jitter * number(gram_bar.trace()) / max(len(gram_bar), 1)
        linalg.add_to_diagonal(gram_bar, share)
        by_gram = pull(gram_bar)
        kernel, points, scales = by_gram.log_parameters, *by_gram.points
        gradient = total.gradient
        if through.residual is not None and len(own.weights):
            mixed = functions.among_vjp(own.residual, own.weights, Z, through.residual.T)
            assert mixed.others is not None
            kernel = kernel + mixed.log_parameters
            points, scales = points + mixed.others.inputs, scales + mixed.others.log_scales
            gradient = gradient._replace(
                mean_points=gradient.mean_points + mixed.points.inputs,
                mean_scales=gradient.mean_scales + mixed.points.log_scales,
                weights=gradient.weights + mixed.weights,
            )
        if self.frozen:
            names = ("kernel", "mean_points", "mean_scales")
            still = {name: zeros_like(getattr(own, name)) for name in names}
            kernel, gradient = np.zeros_like(kernel), gradient._replace(**still)
        gradient = gradient._replace(
            kernel=gradient.kernel + kernel,
            covariance_points=gradient.covariance_points + points,
            covariance_scales=gradient.covariance_scales + scales,
            shared_weights=gradient.shared_weights + through.weights,
            root=through.root,
        )
        return Bound(total.value - prepared.kl, gradient)

    def natural_step(
        self, parameters: Parameters, total: Sums, rate: float, precision: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the hybrid form's w and T after a natural-gradient step.

        The memory of ``precision``, S^-1 if already known, is reused.
        """
        curvature = total.curvature if total.curvature.size else total.gram
        w = parameters.shared_weights
        if precision is None:
            precision = linalg.inverse_from_factor(parameters.root)
        return posterior.natural(w, precision, total.projected, curvature, rate)

    # -- parts of a step ---------------------------------------------------------------------

    def _rows(self, prepared: Prepared, block: Block, weight: float) -> Sums:
        own, f, X = prepared.parameters, _as(prepared.rounded, block.X.dtype), block.X
        hybrid = self.form == "hybrid"
        functions = basis.make(self.basis, prepared.kernel)
        K_x, pull = functions.values(_as(own.covariance, X.dtype), X)
        rows = (posterior.hybrid_rows if hybrid else posterior.direct_rows)(f, K_x)
        residual, a = _as(own.residual, X.dtype), own.weights.astype(X.dtype, copy=False)
        mean, kernel = rows.mean + prepared.offset, prepared.kernel
        if len(a):
            mean = mean + functions.mixed(residual, a, X).T
        variance = _positive(kernel.diag(X) + rows.less)
        likelihood = observed_by(prepared, block)
        expected = likelihood.expected(block.y, mean, variance)
        g = (weight * expected.by_mean).astype(X.dtype, copy=False)
        s = (weight * expected.by_variance.sum(axis=1)).astype(X.dtype, copy=False)
        curvature = g[:0, :0]
        if self.natural and not prepared.likelihood.log_concave:
            xp = namespace(s)
            curvature = posterior.weighted_gram(rows.whitened, xp.minimum(s, 0))
        if hybrid:
            K_bar, sums = posterior.hybrid_back(f, rows, g, s, self.natural)
        else:
            K_bar, sums = posterior.direct_back(f, rows, g, s)
        by_Z, by_prior = pull(K_bar, overwrite=True), kernel.diag_vjp(X, s)
        gradient = zero_gradient(own)._replace(
            kernel=by_Z.log_parameters + by_prior.log_parameters,
            likelihood=weight * expected.by_log,
            covariance_points=wide(by_Z.points.inputs),
            covariance_scales=wide(by_Z.points.log_scales),
        )
        if len(a) and self.frozen:
            gradient = gradient._replace(weights=wide(functions.spread(residual, X, g)))
        elif len(a):
            gradient = _with_mean(gradient, functions.mixed_vjp(residual, a, X, g.T))
        # matrices stay in the precision of the rows until the small solve
        none, value = sums.gram[:0, :0], weight * expected.value
        sums = sums._replace(projected=wide(sums.projected))
        return Sums(value, gradient, *sums, curvature, none)

    def _columns(self, prepared: Prepared, dtype: Any, draw: Draw) -> Sums:
        """Return minus the mean's quadratic form a' C a / 2, from some of its columns."""
        own, functions = prepared.parameters, basis.make(self.basis, prepared.kernel)
        all_points, a = mean_functions(own, self.form)
        points, a = _as(all_points, dtype), a.astype(dtype, copy=False)
        columns = namespace(a).asarray(draw.columns)
        sampled = Points(*(part[columns] if len(part) else part for part in points))
        column = -draw.column_weight * a[columns]
        if self.frozen and len(a) == len(own.weights):  # none of Z, which may move, among them
            products = functions.among(sampled, column, points).T
            bars = Through(np.zeros(len(own.kernel)), zero_points(points), None, products)
        else:
            bars = functions.among_vjp(points, a, sampled, column.T)
        assert bars.weights is not None
        # for the left argument: its whole gradient, and half of that for what both share
        kernel = 0.5 * bars.log_parameters
        value = 0.5 * number((wide(a) * wide(bars.weights)).sum())
        gradient = split_gradient(zero_gradient(own)._replace(kernel=kernel), bars, own, self.form)
        xp, (b, p) = namespace(a), self._sizes(prepared)
        none = explained = xp.zeros((0, 0))
        if self.form == "hybrid":
            mixed = functions.among(sampled, -column, _as(own.covariance, dtype))
            explained = linalg.solve_lower(prepared.factors.factor, wide(mixed.T))
        return Sums(value, gradient, xp.zeros((b, p)), none, none, none, none, explained)

    def _sizes(self, prepared: Prepared) -> tuple[int, int]:
        """Return the number of functions of the covariance, and of targets."""
        return len(prepared.parameters.covariance_points), prepared.parameters.weights.shape[1]

    # -- prediction --------------------------------------------------------------------------

    def posterior(self, prepared: Prepared) -> State:
        """Return what prediction needs from the parameters."""
        own, f = prepared.parameters, prepared.factors
        return State(*own[1:], prepared.offset, f.factor, f.spread, f.coefficients)

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the posterior of f at X (n, d), [DGP] eqs. 8, 12, 13."""
        functions, dtype = basis.make(self.basis, theta.kernel), X.dtype
        Z = _as(Points(state.covariance_points, state.covariance_scales), dtype)
        K_x, _ = functions.values(Z, X)
        f = posterior.Factors(
            state.factor, state.spread, state.coefficients, *(state.factor[:0],) * 2
        )
        hybrid = self.form == "hybrid"
        rows = (posterior.hybrid_rows if hybrid else posterior.direct_rows)(_as(f, dtype), K_x)
        mean = rows.mean + state.offset
        if len(state.weights):
            residual = _as(Points(state.mean_points, state.mean_scales), dtype)
            mean = mean + functions.mixed(residual, state.weights.astype(dtype), X).T
        if want == "mean":
            return Moments(mean)
        if want == "variance":
            return Moments(mean, variance=theta.kernel.diag(X) + rows.less)
        covariance = theta.kernel(X)
        if hybrid:
            covariance = covariance - rows.whitened @ rows.whitened.T
            return Moments(mean, covariance=covariance + rows.spread @ rows.spread.T)
        return Moments(mean, covariance=covariance - rows.spread @ rows.spread.T)

    def stands_for_rows(self, theta: Theta, state: State) -> tuple[str, Array]:
        """Return the places of the functions of mean and covariance."""
        points = state.covariance_points, state.mean_points
        return "inducing input", namespace(points[0]).concatenate(points)

    def why_no_paths(self) -> str | None:
        """Return which setting rules out sample paths; None if none does."""
        if self.basis == "kernel":
            return None
        return (
            "basis='generalized' smooths f and has no sample paths: fit with basis='kernel', or "
            "sample_y for few rows"
        )

    def paths(self, theta: Theta, state: State, draw: PathDraw) -> tuple[Paths, PathState]:
        """Return sample paths: of the hybrid form S = T T', of the direct one (I + L'BL)^-1.

        Here L L' = K(Z, Z), and B = T T' of the direct form.
        """
        Z, T, factor, mean = state.covariance_points, state.root, state.factor, state.coefficients
        if self.form == "hybrid":
            mean = linalg.solve_lower_t(factor, mean)

            def root(normal: Array) -> Array:
                return T @ normal
        else:
            factor, _ = linalg.cholesky(theta.kernel(Z), self.jitter)
            half = factor.T @ T
            inner, _ = linalg.cholesky(namespace(T).eye(len(T)) + half @ half.T, jitter=0.0)

            def root(normal: Array) -> Array:
                return linalg.solve_lower_t(inner, normal)

        more = state.mean_points, state.weights, state.offset
        return by_inducing(draw, Z, factor, mean, root, more)

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint: a batch's tile by Z with pullback, sums, a step's factors."""
        b, p, d = shape.inputs, shape.targets, shape.features
        rows, batch = min(self.batch_rows, shape.block_rows), min(self.batch_rows, shape.rows)
        small = 8 * (b * (d + p) + self.n_mean * (2 * d + p))
        learned, shared = small + 8 * b * b, small + (2 * 8 + shape.itemsize) * b * b
        stats = learned + 2 * shape.itemsize * b * b
        tiles = (shape.kernel_tiles + 4) * shape.itemsize * rows * b
        entries = float(batch) * (b + 2 * self.n_mean)
        return Footprint(
            task=tiles + 2 * stats + shared,
            stats=stats,
            solve=(shape.kernel_tiles + 10) * 8 * b * b + 5 * learned,
            state=small + 8 * 3 * b * b // 2,
            predict=(shape.kernel_tiles + 3) * 8 * b * TILE_ROWS + 3 * 8 * b * b + small,
            shared=shared,
            operations=10.0 * batch * b * b + 11.0 * b**3 + 60.0 * entries,
        )


def _with_mean(gradient: Parameters, bars: Through) -> Parameters:
    assert bars.weights is not None
    return gradient._replace(
        kernel=gradient.kernel + bars.log_parameters,
        mean_points=wide(bars.points.inputs),
        mean_scales=wide(bars.points.log_scales),
        weights=wide(bars.weights),
    )


def _as(parts: Any, dtype: Any) -> Any:
    """Return a tuple of arrays, cast to a dtype."""
    return type(parts)(*(part.astype(dtype, copy=False) for part in parts))


def observed_by(prepared: Prepared, block: Block) -> Likelihood:
    """Return the likelihood of the rows of a block."""
    found = prepared.likelihood.of_rows(block.noise)
    return found if block.observed is None else found.with_columns(block.observed.given)


def _positive(variance: Array) -> Array:
    """Return variances that rounding may have left at or below zero, raised to FLOOR."""
    xp = namespace(variance)
    return xp.maximum(variance, FLOOR)


def _plus(a: Any, b: Any) -> Any:
    """Return the sum, where either may be (0, 0) for nothing."""
    if getattr(a, "shape", None) == (0, 0):
        return b
    if getattr(b, "shape", None) == (0, 0):
        return a
    return a + b
