"""Conformance checks that ship with the package: what holds for every kernel and every method.

Use them on a kernel or a method of your own; the tests of daskgp run them over its registries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest import mock

import dask.base
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
from distributed import Client

from daskgp.errors import InputError
from daskgp.kernels import Kernel
from daskgp.model import Block, LocalModel, Model, Theta

STEP = 1e-5


@contextmanager
def no_compute() -> Iterator[None]:
    """Fail if anything is computed by Dask inside the block.

    Whatever the scheduler: one that is set, one that is named in a call, or a distributed client.
    The whole process is under watch, other threads too.
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
    """Gradient (k,) of a scalar function of a vector (k,), by central differences."""
    at = np.asarray(at, np.float64)
    found = np.empty(at.size)
    for i in range(at.size):
        move = np.zeros(at.size)
        move[i] = step
        ahead, behind = (at.ravel() + move).reshape(at.shape), (at.ravel() - move).reshape(at.shape)
        found[i] = (function(ahead) - function(behind)) / (2 * step)
    return found.reshape(at.shape)


def check_kernel(kernel: Kernel, X: np.ndarray, Z: np.ndarray, rtol: float = 1e-6) -> None:
    """Check a kernel's laws at X (n, d) and Z (m, d), two sets of distinct rows.

    Symmetric with the stated diagonal, positive semi-definite, equal to its pullback's value, and
    all gradients those of central differences.
    """
    K = kernel(X)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(np.diag(K), kernel.diag(X), rtol=1e-12)
    assert np.linalg.eigvalsh(K).min() >= -1e-10 * np.trace(K), "K(X, X) has a negative eigenvalue"
    np.testing.assert_allclose(kernel(X, Z), kernel(Z, X).T, rtol=1e-9, atol=1e-12)
    value, pull = kernel.pullback(X, Z)
    np.testing.assert_allclose(value, kernel(X, Z), rtol=1e-13)
    bar = np.random.default_rng(0).standard_normal(value.shape)

    def contracted(kernel: Kernel, X: np.ndarray, Z: np.ndarray) -> float:
        return float((bar * kernel(X, Z)).sum())

    found = pull(bar.copy())
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


def check_model(model: Model, theta: Theta, X: np.ndarray, y: np.ndarray) -> None:
    """Check a method's laws on rows X (n, d), y (n, p) in scaled units.

    Summaries combine to the summary of all rows and in any grouping; the gradient is that of
    central differences; at its exact limit, where it has one, the method is the exact GP.
    """
    check_additive(model, theta, X, y)
    check_gradient(model, theta, X, y)
    if model.exact_limit(theta, X) is not None:
        check_exact_limit(model, theta, X, y)


def check_additive(model: Model, theta: Theta, X: np.ndarray, y: np.ndarray) -> None:
    """``local(A ++ B) == combine(local(A), local(B))``, also for empty and one-row parts.

    B is given A as what is near it: additive methods pay no heed, and the summaries of others
    follow the chain rule, p(A) p(B | A).
    """
    prepared = model.prepare(theta)
    whole = model.local(prepared, Block(X, y))
    for cut in (0, 1, len(X) // 3, len(X)):
        A, B = (Block(X[rows], y[rows]) for rows in (slice(0, cut), slice(cut, None)))
        parts = model.local(prepared, A), model.local(prepared, B, (A,))
        both = model.combine(*parts)
        for name, a, b in zip(whole._fields, whole, both, strict=True):
            a, b = np.asarray(a), np.asarray(b)
            if a.ndim == 2 and a.shape[0] == a.shape[1] != len(X):
                a, b = np.tril(a), np.tril(b)  # symmetric sums fill the lower triangle only
            np.testing.assert_allclose(
                a, b, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(a).max(initial=0)), err_msg=name
            )


def value_and_gradient(
    model: Model, theta: Theta, X: np.ndarray, y: np.ndarray
) -> tuple[float, np.ndarray]:
    """Objective and gradient (k,) of one block, without any Dask."""
    prepared, block = model.prepare(theta), Block(X, y)
    objective = model.objective(prepared, model.local(prepared, block))
    gradient = objective.gradient.to_vector(with_inputs=True)
    if objective.cotangent is not None:
        through = model.local_vjp(prepared, block, objective.cotangent)
        gradient = gradient + through.to_vector(with_inputs=True)
    return objective.value, gradient


def check_gradient(
    model: Model, theta: Theta, X: np.ndarray, y: np.ndarray, rtol: float = 1e-5
) -> None:
    """The gradient of the objective is that of central differences."""
    _, gradient = value_and_gradient(model, theta, X, y)
    wanted = central_differences(
        lambda v: value_and_gradient(model, theta.from_vector(v), X, y)[0],
        theta.to_vector(with_inputs=True),
    )
    np.testing.assert_allclose(gradient, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


def check_exact_limit(model: Model, theta: Theta, X: np.ndarray, y: np.ndarray) -> None:
    """At its exact limit a method gives the exact GP's evidence, mean and variance.

    Raises
    ------
    InputError
        If no finite setting of the method is exact.
    """
    found_limit = model.exact_limit(theta, X)
    if found_limit is None:
        raise InputError(
            f"no setting of {model.name!r} is the exact GP: check_additive and check_gradient "
            "are what can be checked"
        )
    limit, at = found_limit
    test = X[:: max(1, len(X) // 7)] + 0.01
    prepared = limit.prepare(at)
    total = limit.local(prepared, Block(X, y))
    state = limit.solve(prepared, total)
    near = None
    if limit.keeps_rows:
        near = cast(LocalModel[Any, Any, Any], limit).condition(at, state, [Block(X, y)])
    moments = limit.predict(at, state, test, near, "variance")
    found = limit.objective(prepared, total).value, moments.mean, moments.variance
    for a, b in zip(found, _dense(theta, X, y, test), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def _dense(theta: Theta, X: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple[Any, ...]:
    """Evidence, mean and variance of the exact GP by their definitions ([OPT] eqs. 2 and 4)."""
    kernel, (n, p) = theta.kernel, y.shape
    C, K = kernel(X) + theta.noise_variance * np.eye(n), kernel(test, X)
    weights, logdet = np.linalg.solve(C, y), np.linalg.slogdet(C).logabsdet
    evidence = -0.5 * ((y * weights).sum() + p * logdet + p * n * np.log(2 * np.pi))
    variance = np.diag(kernel(test)) - np.einsum("ij,ji->i", K, np.linalg.solve(C, K.T))
    return evidence, K @ weights, variance
