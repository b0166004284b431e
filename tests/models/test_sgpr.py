"""SGPR against its dense definition, and the laws every method keeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskgp import kernels, testing
from daskgp.errors import NumericalError
from daskgp.models.exact import Exact
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Theta
from tests import oracle
from tests.additive import run

KERNEL = kernels.Matern32(lengthscale=(0.7, 1.3), variance=1.4) + kernels.Linear(variance=0.3)


def problem(n=60, d=2, p=2, m=9, seed=0):
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((n, d)), rng.standard_normal((m, d))
    y = np.sin(X @ np.ones((d, p)) + np.arange(p)) + 0.1 * rng.standard_normal((n, p))
    return X, y, Z


@pytest.mark.parametrize("pieces", [1, 7, 59])
@pytest.mark.parametrize("tile_rows", [5, 1024])
def test_bound_and_posterior_are_those_of_the_dense_definition(pieces, tile_rows):
    X, y, Z = problem()
    T = np.random.default_rng(1).standard_normal((11, 2))
    value, found, _ = run(SGPR(tile_rows=tile_rows), Theta(KERNEL, 0.05, Z), X, y, T, pieces=pieces)
    mean, covariance = oracle.sparse_posterior(KERNEL, X, y, Z, 0.05, T)
    assert value == pytest.approx(oracle.titsias_bound(KERNEL, X, y, Z, 0.05), rel=1e-8)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.RBF(lengthscale=0.8),
        kernels.Matern12(lengthscale=(0.5, 2.0)),
        kernels.Matern32(lengthscale=0.8, variance=2.0),
        kernels.Matern52(lengthscale=(0.5, 2.0)),
        kernels.RationalQuadratic(lengthscale=0.8, alpha=0.7),
        kernels.Periodic(lengthscale=1.2, period=2.5),
        kernels.Linear(variance=(0.5, 1.5)) + kernels.Constant(0.3) + kernels.Matern52(0.7),
        kernels.RBF(1.0, active_dims=(0,)) * kernels.Matern32(0.7, active_dims=(1,)),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_gradient_of_the_bound_for_every_kernel(kernel):
    X, y, Z = problem(n=50, m=6)
    testing.check_gradient(SGPR(jitter=1e-6), Theta(kernel, 0.1, Z), X, y, rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 40),
    m=st.integers(1, 12),
    d=st.integers(1, 3),
    p=st.integers(1, 3),
    seed=st.integers(0, 2**16),
    duplicated=st.booleans(),
    noise=st.floats(1e-3, 2.0),
)
def test_bound_never_exceeds_the_evidence_and_variance_stays_within_the_prior(
    n, m, d, p, seed, duplicated, noise
):
    X, y, Z = problem(n, d, p, m, seed)
    if duplicated:
        X[n // 2 :] = X[0]
        Z[m // 2 :] = Z[0]
    kernel = kernels.Matern52(lengthscale=0.9, variance=1.7)
    value, found, _ = run(SGPR(), Theta(kernel, noise, Z), X, y, X, "variance")
    exact, _, _ = run(Exact(), Theta(kernel, noise), X, y, X, "variance")
    assert value <= exact + 1e-7 * abs(exact)
    assert np.all(found.variance >= -1e-10)
    assert np.all(found.variance <= kernel.variance * (1 + 1e-12))


@pytest.mark.parametrize("noise", [1e-1, 1e-3])
@pytest.mark.parametrize("kernel", [kernels.RBF((1.0, 1.0)), kernels.Matern32((1.0, 1.0))])
def test_float32_tiles_give_a_usable_gradient_for_a_smooth_kernel(kernel, noise):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (2_000, 2))
    y = np.sin(2 * X.sum(axis=1, keepdims=True)) + noise**0.5 * rng.standard_normal((2_000, 1))
    theta, model = Theta(kernel, noise, X[rng.choice(2_000, 256, replace=False)]), SGPR(jitter=1e-5)
    value, gradient = testing.value_and_gradient(model, theta, X, y)
    narrow, found = testing.value_and_gradient(model, theta, X.astype(np.float32), y)
    assert narrow == pytest.approx(value, rel=1e-4)
    np.testing.assert_allclose(found[:4], gradient[:4], rtol=5e-3)
    assert np.linalg.norm(found - gradient) < 0.03 * np.linalg.norm(gradient)


def test_a_trace_spoiled_by_rounding_is_an_error_not_a_bound():
    X, y, Z = problem(n=60)
    prepared = SGPR().prepare(Theta(KERNEL, 1e-3, Z))
    total = SGPR().local(prepared, Block(X, y))
    spoiled = total._replace(trace=np.trace(total.gram) - 0.1)
    with pytest.raises(NumericalError, match=r"negative beyond rounding .* use dtype='float64'"):
        SGPR().objective(prepared, spoiled)
