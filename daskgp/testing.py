"""Conformance checks that ship with the package: what holds for every kernel and every method.

Use them on a kernel or a method of your own; the tests of daskgp run them over its registries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast
from unittest import mock

import dask.base
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
from distributed import Client

from daskgp.data.blocks.draws import Central
from daskgp.errors import InputError
from daskgp.fit.task import TaskRounds
from daskgp.kernels import Kernel, KernelGradient
from daskgp.kernels.weights import Weights
from daskgp.models.additive import Additive
from daskgp.models.experts.ensemble import Ensemble
from daskgp.models.method import Conditioned
from daskgp.models.values import Block, Moments, Theta, Want, variances

STEP = 1e-5


@contextmanager
def no_compute() -> Iterator[None]:
    """Fail if anything is computed by Dask inside the context.

    This holds for any scheduler: one that is set, one that is named in a call, or a distributed
    client.  The whole process is watched, other threads included.

    Examples
    --------
    >>> import dask.array as da
    >>> from daskgp import testing
    >>> lazy = da.ones(10).sum()
    >>> with testing.no_compute():
    ...     lazy = lazy + 1
    >>> with testing.no_compute():
    ...     lazy.compute()
    Traceback (most recent call last):
    AssertionError: something was computed where nothing should be
    """

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("something was computed where nothing should be")

    with ExitStack() as stack:
        for module in (dask.local, dask.threaded, dask.multiprocessing):
            stack.enter_context(mock.patch.object(module, "get_async", refuse))
        for method in ("compute", "persist", "get", "submit", "map"):
            stack.enter_context(mock.patch.object(Client, method, refuse))
        stack.enter_context(mock.patch.object(dask.base, "get_scheduler", return_value=refuse))
        yield


def central_differences(
    function: Callable[[np.ndarray], float], at: np.ndarray, step: float = STEP
) -> np.ndarray:
    """Return the gradient (k,) of a scalar function of a vector (k,), by central differences.

    Examples
    --------
    >>> central_differences(lambda v: float(v @ v), np.array([1.0, 2.0])).round(6)
    array([2., 4.])
    """
    at = np.asarray(at, np.float64)
    gradient = np.empty(at.size)
    for i in range(at.size):
        move = np.zeros(at.size)
        move[i] = step
        ahead, behind = (at.ravel() + move).reshape(at.shape), (at.ravel() - move).reshape(at.shape)
        gradient[i] = (function(ahead) - function(behind)) / (2 * step)
    return gradient.reshape(at.shape)


def check_kernel(kernel: Kernel, X: np.ndarray, Z: np.ndarray, rtol: float = 1e-6) -> None:
    """Check a kernel's laws at X (n, d) and Z (m, d), two sets of distinct rows.

    It is symmetric with the stated diagonal, positive semi-definite and equal to its pullback's
    value; sums of weighted columns are those of the tile, and all gradients those of central
    differences.  Columns that it treats alike are tied.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> X, Z = np.split(np.random.default_rng(0).uniform(size=(9, 2)), [5])
    >>> testing.check_kernel(kernels.Matern32(0.5), X, Z)  # AssertionError if a law is broken
    """
    _check_ties(kernel, X, Z)
    K = kernel(X)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(np.diag(K), kernel.diag(X), rtol=1e-12)
    assert np.linalg.eigvalsh(K).min() >= -1e-10 * np.trace(K), "K(X, X) has a negative eigenvalue"
    np.testing.assert_allclose(kernel(X, Z), kernel(Z, X).T, rtol=1e-9, atol=1e-12)
    value, pull = kernel.pullback(X, Z)
    np.testing.assert_allclose(value, kernel(X, Z), rtol=1e-13)
    single = kernel(X.astype(np.float32), Z.astype(np.float32))
    assert single.dtype == np.float32, "K is not of the inputs' type"
    out = np.empty_like(value)
    np.testing.assert_array_equal(kernel(X, Z, out=out), out)
    np.testing.assert_allclose(out, value, rtol=1e-13)
    bar = np.random.default_rng(0).standard_normal(value.shape)
    weights = Weights.dense(np.random.default_rng(1).standard_normal((len(X), 2)))
    np.testing.assert_allclose(
        kernel.weighted(X, weights, Z), weights.values.T @ value, rtol=1e-6, atol=1e-9
    )
    _check_diagonal(kernel, X, np.random.default_rng(2).standard_normal(len(X)), rtol)
    _check_pullback(kernel, X, Z, bar, pull(bar.copy()), rtol)


def _check_diagonal(kernel: Kernel, X: np.ndarray, bar: np.ndarray, rtol: float) -> None:
    """Check that the gradient of the diagonal is that of central differences."""
    gradient = kernel.diag_vjp(X, bar)
    wanted = central_differences(
        lambda v: float(bar @ kernel.with_log_parameters(v).diag(X)), kernel.log_parameters
    )
    np.testing.assert_allclose(
        gradient.log_parameters, wanted, rtol=rtol, atol=rtol * len(X), err_msg="diagonal"
    )
    wanted = central_differences(lambda A: float(bar @ kernel.diag(A)), X)
    np.testing.assert_allclose(
        gradient.X, wanted, rtol=rtol, atol=rtol * len(X), err_msg="diagonal"
    )


def _check_pullback(
    kernel: Kernel,
    X: np.ndarray,
    Z: np.ndarray,
    bar: np.ndarray,
    found: KernelGradient,
    rtol: float,
) -> None:
    """Check that the gradient of sum(bar * K(X, Z)) is that of central differences."""

    def contracted(kernel: Kernel, X: np.ndarray, Z: np.ndarray) -> float:
        return float((bar * kernel(X, Z)).sum())

    scale = rtol * max(1.0, float(np.abs(bar).sum()) ** 0.5)
    for what, gradient, wanted in (
        (
            "hyper-parameters",
            found.log_parameters,
            central_differences(
                lambda v: contracted(kernel.with_log_parameters(v), X, Z), kernel.log_parameters
            ),
        ),
        ("X", found.X, central_differences(lambda A: contracted(kernel, A, Z), X)),
        ("Z", found.Z, central_differences(lambda A: contracted(kernel, X, A), Z)),
    ):
        np.testing.assert_allclose(
            np.asarray(gradient),
            wanted,
            rtol=rtol,
            atol=scale,
            err_msg=f"gradient with respect to {what}",
        )


def _check_ties(kernel: Kernel, X: np.ndarray, Z: np.ndarray) -> None:
    """Check that groups of tied columns are disjoint and contain interchangeable columns."""
    d = X.shape[1]
    groups = kernel.tied_columns(d)
    listed = [j for group in groups for j in group]
    assert len(set(listed)) == len(listed), f"groups {groups} of tied columns overlap"
    assert set(listed) <= set(range(d)), f"groups {groups} of tied columns have none of {d}"
    # as all hyper-parameters differ, columns that are still alike share one
    resolved = kernel.resolve(np.ones(d), 1.0)
    moved = 0.3 * np.random.default_rng(1).standard_normal(len(resolved.parameter_names))
    odd = resolved.with_log_parameters(resolved.log_parameters + moved)
    K = odd(X, Z)
    seen = [j for j in range(d) if not np.allclose(odd(X, Z + 0.1 * np.eye(d)[j]), K)]
    for i, j in combinations(seen, 2):
        line = list(range(d))
        line[i], line[j] = j, i
        tied = any({i, j} <= set(group) for group in groups)
        assert tied or not np.allclose(odd(X[:, line], Z[:, line]), K), (
            f"columns {i} and {j} share a hyper-parameter: tied_columns must have them in a group"
        )


def rows_of(*units: Sequence[Block]) -> TaskRounds:
    """Return rows in memory as a method takes them, each unit a sequence of scaled blocks."""
    return TaskRounds.of(units)


def check_model(
    model: Additive, theta: Theta, X: np.ndarray, y: np.ndarray, noise: np.ndarray | None = None
) -> None:
    """Check a method's laws on rows X (n, d), y (n, p) in scaled units.

    Summaries combine to the summary of all rows and in any grouping; the gradient is that of
    central differences; at its exact limit, where it has one, the method is the exact GP.
    ``noise`` (n, 2) is that of ``Block``, for rows with noise variances of their own.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(12, 2)), rng.standard_normal((12, 1))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1, X[:4])
    >>> from daskgp.models.sparse.sgpr import SGPR
    >>> testing.check_model(SGPR(), theta, X, y)
    """
    check_additive(model, theta, X, y, noise)
    check_gradient(model, theta, X, y, noise=noise)
    if model.exact_limit(theta, X) is not None:
        check_exact_limit(model, theta, X, y, noise)


def check_additive(
    model: Additive, theta: Theta, X: np.ndarray, y: np.ndarray, noise: np.ndarray | None = None
) -> None:
    """Check ``local(A ++ B) == combine(local(A), local(B))``, also for empty and one-row parts.

    B is given A as its neighbour: additive methods ignore it, and the summaries of others follow
    the chain rule, p(A) p(B | A).

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(12, 2)), rng.standard_normal((12, 1))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1, X[:4])
    >>> from daskgp.models.sparse.sgpr import SGPR
    >>> testing.check_additive(SGPR(), theta, X, y)
    """
    prepared = model.prepare(theta)
    rows = Block(X, y, noise)
    whole = model.local(prepared, rows)
    for cut in (0, 1, len(X) // 3, len(X)):
        A, B = rows.at(slice(0, cut)), rows.at(slice(cut, None))
        parts = model.local(prepared, A), model.local(prepared, B, (A,))
        both = model.combine(*parts)
        for name, a, b in zip(whole._fields, whole, both, strict=True):
            if a is None:
                assert b is None, name
                continue
            a, b = np.asarray(a), np.asarray(b)
            if a.ndim == 2 and a.shape[0] == a.shape[1] != len(X):
                a, b = np.tril(a), np.tril(b)  # symmetric sums fill the lower triangle only
            np.testing.assert_allclose(
                a, b, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(a).max(initial=0)), err_msg=name
            )


def value_and_gradient(
    model: Additive, theta: Theta, X: np.ndarray, y: np.ndarray, noise: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return the objective and gradient (k,) of one block, without any Dask."""
    evaluation = model.evaluate(theta, rows_of([Block(X, y, noise)]))
    return evaluation.value, evaluation.gradient.to_vector(with_inputs=True)


def check_gradient(
    model: Additive,
    theta: Theta,
    X: np.ndarray,
    y: np.ndarray,
    rtol: float = 1e-5,
    noise: np.ndarray | None = None,
) -> None:
    """Check that the gradient of the objective is that of central differences.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(12, 2)), rng.standard_normal((12, 1))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1, X[:4])
    >>> from daskgp.models.sparse.sgpr import SGPR
    >>> testing.check_gradient(SGPR(), theta, X, y)
    """
    _, gradient = value_and_gradient(model, theta, X, y, noise)
    wanted = central_differences(
        lambda v: value_and_gradient(model, theta.from_vector(v), X, y, noise)[0],
        theta.to_vector(with_inputs=True),
    )
    np.testing.assert_allclose(gradient, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


def check_exact_limit(
    model: Additive, theta: Theta, X: np.ndarray, y: np.ndarray, noise: np.ndarray | None = None
) -> None:
    """Check that a method at its exact limit gives the exact GP's evidence, mean and variance.

    Raises
    ------
    InputError
        If no finite setting of the method is exact.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(12, 2)), rng.standard_normal((12, 1))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1, X[:4])
    >>> from daskgp.models.sparse.sgpr import SGPR
    >>> testing.check_exact_limit(SGPR(), theta, X, y)
    """
    exact = model.exact_limit(theta, X)
    if exact is None:
        raise InputError(
            f"no setting of {model.name!r} is the exact GP: check_additive and check_gradient "
            "are what can be checked"
        )
    limit, limit_theta = exact
    test = X[:: max(1, len(X) // 7)] + 0.01
    rows, near = Block(X, y, noise), None
    state, value = limit.solve(limit_theta, rows_of([rows]))
    if limit.keeps_rows:
        near = cast(Conditioned, limit).condition(limit_theta, state, [rows])
    moments = limit.predict(limit_theta, state, test, near, "variance")
    computed = value, moments.mean, moments.variance
    for a, b in zip(computed, _dense(theta, rows, test), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def check_ensemble(
    model: Ensemble,
    theta: Theta,
    X: np.ndarray,
    y: np.ndarray,
    fixed: int = 0,
    noise: np.ndarray | None = None,
) -> None:
    """Check the laws of a method that combines experts, on rows X (n, d), y (n, p).

    The rows are split into ``model.n_experts`` experts of different sizes.  Neither the order of
    the experts matters nor how the rows of one are split into blocks; variances are finite and not
    negative; with one expert at its exact limit, where it has one, the method is the exact GP.

    Parameters
    ----------
    model, theta
        Settings, with two experts or more beyond ``fixed``, and hyper-parameters.
    X, y : ndarray
        In scaled units.
    fixed : int, default 0
        Experts at the front whose positions matter: 2 for grBCM, whose first is the communication
        expert and whose second has weight 1.
    noise : ndarray (n, 2), optional
        That of ``Block``, for rows with noise variances of their own.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(18, 2)), rng.standard_normal((18, 1))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1)
    >>> from daskgp.models.experts.exact import ExactExperts
    >>> testing.check_ensemble(ExactExperts(3), theta, X, y)
    """
    test, rows = X[:: max(1, len(X) // 7)] + 0.01, Block(X, y, noise)
    experts = [[block] for block in _ragged(rows, model.n_experts)]
    value, wanted = combine_experts(model, theta, experts, test)
    assert wanted.variance is not None, "a variance was asked for and there is none"
    assert np.isfinite(wanted.variance).all(), "a variance is not finite"
    assert wanted.variance.min() >= 0.0, "a variance is negative"
    turned = experts[:fixed] + experts[fixed:][::-1]
    halves = [[block.at(slice(i, None, 2)) for i in (0, 1)] for (block,) in experts]
    for what, others in (("order of experts", turned), ("blocks of an expert", halves)):
        again, moments = combine_experts(model, theta, others, test)
        for a, b in zip((again, *moments[:2]), (value, *wanted[:2]), strict=True):
            np.testing.assert_allclose(_array(a), _array(b), rtol=1e-6, atol=1e-8, err_msg=what)
    _, alone = combine_experts(model, theta, experts, test, "mean")
    np.testing.assert_allclose(alone.mean, wanted.mean, rtol=1e-9, atol=1e-9, err_msg="mean alone")
    limit = model.exact_limit(theta, X)
    if limit is None:
        return
    value, one = combine_experts(cast(Ensemble, limit[0]), limit[1], [[rows]], test)
    evidence, mean, variance = _dense(theta, rows, test)
    variance = variance + (theta.noise_variance if one.noisy else 0.0)
    for a, b in ((value, evidence), (one.mean, mean), (one.variance, variance)):
        np.testing.assert_allclose(_array(a), b, rtol=1e-6, atol=1e-7, err_msg="exact limit")


def _ragged(rows: Block, count: int) -> list[Block]:
    """Split rows at random into ``count`` blocks, each larger than the one before."""
    n, sizes = len(rows.X), np.arange(1, count + 1)
    order, edges = np.random.default_rng(0).permutation(n), np.cumsum(sizes)[:-1] * n // sizes.sum()
    return [rows.at(part) for part in np.split(order, edges)]


def _array(value: Any) -> np.ndarray:
    return np.asarray(value, np.float64)


class _AllRows(TaskRounds):
    """Rounds whose draws are of all rows."""

    def draw(self, share: float | None) -> Central:
        return Central(1.0, self.seed)


def combine_experts(
    model: Ensemble,
    theta: Theta,
    experts: Sequence[Sequence[Block]],
    X: np.ndarray,
    want: Want = "variance",
) -> tuple[float, Moments]:
    """Return the experts' summed objectives and combined posterior at X (n, d), without any Dask.

    Each expert is a sequence of blocks of rows; sums over rows are over all rows.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(12, 2)), rng.standard_normal((12, 1))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1)
    >>> from daskgp.models.experts.exact import ExactExperts
    >>> experts = [[Block(X[:6], y[:6])], [Block(X[6:], y[6:])]]
    >>> value, moments = testing.combine_experts(ExactExperts(2), theta, experts, X[:3])
    >>> moments.mean.shape
    (3, 1)
    """
    state, value = model.solve(theta, _AllRows.of(experts))
    joined = [Block.join(blocks) for blocks in experts]
    assert isinstance(state, model.state_type)
    near = HeldExperts(model, theta, state, joined) if model.keeps_rows else None
    return value, model.predict(theta, state, X, near, want)


@dataclass(frozen=True, eq=False)
class HeldExperts:
    """Experts' rows in memory, for the predictions of a method that reads them back."""

    model: Any
    theta: Theta
    state: Any
    blocks: Sequence[Block]

    def __len__(self) -> int:
        return len(self.blocks)

    def rows(self, i: int) -> Block:
        """Return the scaled rows of expert i."""
        return self.blocks[i]

    def conditioned(self, *experts: int) -> Any:
        """Condition the method on the rows of some experts together."""
        return self.model.condition(self.theta, self.state, [self.blocks[i] for i in experts])


def _dense(theta: Theta, rows: Block, test: np.ndarray) -> tuple[Any, ...]:
    """Return evidence, mean and variance of the exact GP as defined ([OPT] eqs. 2 and 4)."""
    X, y, noise = rows
    kernel, (n, p) = theta.kernel, y.shape
    C, K = kernel(X) + variances(theta.noise_variance, noise) * np.eye(n), kernel(test, X)
    weights, logdet = np.linalg.solve(C, y), np.linalg.slogdet(C).logabsdet
    evidence = -0.5 * ((y * weights).sum() + p * logdet + p * n * np.log(2 * np.pi))
    variance = np.diag(kernel(test)) - np.einsum("ij,ji->i", K, np.linalg.solve(C, K.T))
    return evidence, K @ weights, variance
