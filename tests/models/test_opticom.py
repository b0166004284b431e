"""OptiCom against Algorithms 1 and 2 of [OPT], written out densely, and the laws of its weights."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskgp import kernels
from daskgp.errors import InputError, NumericalError
from daskgp.models.scaling import identity
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Shape, Theta
from daskgp.posterior.posterior import Posterior
from tests import oracle
from tests.additive import run
from tests.measured import peak

KERNEL = kernels.Matern32(lengthscale=(0.4, 0.7), variance=1.4)
NOISE = 0.05
SIZES = pytest.mark.parametrize(("d", "level"), [(1, 4), (2, 1), (2, 4), (3, 2), (3, 3)])


def problem(d=2, level=3, n=60, p=2, seed=0, noise=NOISE, kernel=None):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    y = np.sin(5 * X @ np.ones((d, p)) + np.arange(p)) + 0.2 * rng.standard_normal((n, p))
    kernel = kernel or (KERNEL if d == 2 else kernels.Matern52(0.6, variance=1.4))
    return X, y, Theta(kernel, noise, sparse_grid.build(d, level).points)


def algorithms(theta, level, X, y, T, jitter=1e-8):
    """[OPT] Algorithms 1 and 2 as printed, without whitening and a matrix M a pair of grids.

    Matrix A, right side <f_l, f*>, means f_l at the rows and at T, kernel matrices of the grids
    with T, M_l, coefficients of the combination technique and the covariance of Algorithm 2.
    """
    kernel, s, grid = theta.kernel, theta.noise_variance, sparse_grid.build(X.shape[1], level)
    K = kernel(grid.points)
    K = K + jitter * np.mean(np.diag(K)) * np.eye(len(K))
    Kx = kernel(grid.points, X)
    M = K + Kx @ Kx.T / s
    alphas = [np.linalg.solve(M[np.ix_(own, own)], Kx[own] @ y) for own in grid.members]
    b, A = len(alphas), np.zeros((len(alphas),) * 2)
    for i in range(b):
        for j in range(b):
            pair = M[np.ix_(grid.members[i], grid.members[j])]
            A[i, j] = (alphas[i] * (pair @ alphas[j])).sum() / s
    means = [Kx[own].T @ a / s for own, a in zip(grid.members, alphas, strict=True)]
    right = np.array([(mean * y).sum() for mean in means])
    found, covariance = [], np.zeros((len(T), len(T)))
    for c, own, a in zip(grid.coefficients, grid.members, alphas, strict=True):
        Kt, K_l, M_l = kernel(T, grid.points[own]), K[np.ix_(own, own)], M[np.ix_(own, own)]
        found.append(Kt @ a / s)
        through = Kt @ np.linalg.solve(K_l, Kt.T) - Kt @ np.linalg.solve(M_l, Kt.T)
        covariance += c * (kernel(T) - through)
    return A, right, means, found, grid.coefficients, covariance


def risk(y, c, A, right):
    """R(sum c_l f_l), [OPT] eq. 37, by the normal equations."""
    return float((y * y).sum() - 2 * c @ right + c @ A @ c)


# -- the algorithms ------------------------------------------------------------------------


@SIZES
@pytest.mark.parametrize("pieces", [1, 7, 59])
@pytest.mark.parametrize("weights", ["projection", "paper", "combination"])
def test_mean_and_the_papers_variance_are_those_of_the_algorithms(d, level, pieces, weights):
    X, y, theta = problem(d, level)
    T = np.random.default_rng(1).uniform(-0.2, 1.2, (11, d))
    A, right, _, means, plain, covariance = algorithms(theta, level, X, y, T)
    model = OptiCom(level, weights, "paper", ridge=0.0, tile_rows=13)
    _, found, state = run(model, theta, X, y, T, pieces=pieces)
    wanted = {
        "projection": np.linalg.solve(A, right),
        "paper": np.linalg.solve(A, np.diag(A)),
        "combination": plain,
    }[weights]
    np.testing.assert_allclose(state.coefficients, wanted, atol=1e-6)
    mean = sum(c * mean for c, mean in zip(wanted, means, strict=True))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-7)
    _, marginal, _ = run(model, theta, X, y, T, "variance", pieces)
    np.testing.assert_allclose(marginal.variance, np.diag(covariance), atol=1e-7)


@SIZES
@pytest.mark.parametrize("ridge", [0.0, 1e-6, 0.1])
def test_both_right_sides_are_the_same(d, level, ridge):
    # a partial solution is the orthogonal projection of f* in the inner product of all rows
    X, y, theta = problem(d, level)
    A, right, *_ = algorithms(theta, level, X, y, X[:1])
    np.testing.assert_allclose(np.diag(A), right, rtol=1e-7)
    exact = run(OptiCom(level, "projection", ridge=ridge), theta, X, y).state
    paper = run(OptiCom(level, "paper", ridge=ridge), theta, X, y).state
    np.testing.assert_allclose(paper.coefficients, exact.coefficients, atol=1e-8)


@pytest.mark.parametrize("weights", ["projection", "combination"])
@pytest.mark.parametrize("p", [1, 2])
def test_the_linear_variance_is_the_error_of_a_linear_predictor(weights, p):
    X, y, theta = problem(p=p)
    T = np.random.default_rng(1).uniform(-0.2, 1.2, (7, 2))
    model = OptiCom(3, weights)
    _, found, state = run(model, theta, X, y, T)
    # rows of H: what the prediction takes of each y, with the coefficients as they are
    fixed = [algorithms(theta, 3, X, np.eye(len(X))[:, [i]], T)[3] for i in range(len(X))]
    H = np.concatenate([np.tensordot(state.coefficients, column, 1) for column in fixed], axis=1)
    np.testing.assert_allclose(H @ y, found.mean, rtol=1e-6, atol=1e-7)
    Q = oracle.nystrom(theta.kernel, np.concatenate([X, T]), theta.inputs, 1e-8)
    n = len(X)
    cross, data = Q[n:, :n], Q[:n, :n] + NOISE * np.eye(n)
    wanted = theta.kernel(T) - H @ cross.T - cross @ H.T + H @ data @ H.T
    np.testing.assert_allclose(found.covariance, wanted, atol=1e-7)
    _, marginal, _ = run(model, theta, X, y, T, "variance")
    np.testing.assert_allclose(marginal.variance, np.diag(wanted), atol=1e-7)


@pytest.mark.parametrize("variance", ["linear", "paper"])
@pytest.mark.parametrize("weights", ["projection", "combination"])
def test_in_one_dimension_it_is_the_sparse_gp(variance, weights):
    X, y, theta = problem(1, 4)
    T = np.linspace(-0.2, 1.2, 9)[:, None]
    _, found, _ = run(OptiCom(4, weights, variance), theta, X, y, T)
    _, wanted, _ = run(SGPR(), theta, X, y, T)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-10)
    np.testing.assert_allclose(found.covariance, wanted.covariance, atol=1e-10)


def test_its_objective_is_the_bound_of_all_points():
    X, y, theta = problem(2, 3, n=40, noise=0.1)
    prepared = OptiCom(3).prepare(theta)
    total = OptiCom(3).local(prepared, Block(X, y))
    wanted = oracle.titsias_bound(theta.kernel, X, y, theta.inputs, 0.1)
    assert OptiCom(3).objective(prepared, total).value == pytest.approx(wanted, rel=1e-8)


# -- laws of the weights and the variance --------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    d=st.integers(1, 3),
    level=st.integers(1, 3),
    n=st.integers(1, 40),
    p=st.integers(1, 2),
    seed=st.integers(0, 2**16),
    noise=st.floats(1e-2, 2.0),
    lengthscale=st.floats(0.1, 2.0),
    ridge=st.sampled_from([1e-9, 1e-6, 1e-2]),
)
def test_the_risk_is_never_above_that_of_the_combination_technique(
    d, level, n, p, seed, noise, lengthscale, ridge
):
    kernel = kernels.Matern32(lengthscale)
    X, y, theta = problem(d, level, n, p, seed, noise, kernel)
    A, right, _, _, plain, _ = algorithms(theta, level, X, y, X[:1])
    state = run(OptiCom(level, ridge=ridge), theta, X, y).state
    found, rounding = risk(y, state.coefficients, A, right), 1e-6 * float((y * y).sum())
    assert found <= risk(y, plain, A, right) + rounding
    pull = ridge * np.mean(np.diag(A))
    for one in np.eye(len(plain)):
        assert found <= risk(y, one, A, right) + pull * ((one - plain) ** 2).sum() + rounding
    # no combination is below the projection on all points, the sparse GP
    _, sparse, _ = run(SGPR(), theta, X, y, want="mean")
    assert float((y * y).sum() - (sparse.mean * y).sum()) <= found + rounding


@settings(max_examples=30, deadline=None)
@given(
    d=st.integers(1, 3),
    level=st.integers(1, 3),
    n=st.integers(1, 40),
    seed=st.integers(0, 2**16),
    noise=st.floats(1e-3, 2.0),
    duplicated=st.booleans(),
    weights=st.sampled_from(["projection", "combination"]),
)
def test_the_linear_variance_is_never_below_that_of_the_sparse_gp(
    d, level, n, seed, noise, duplicated, weights
):
    X, y, theta = problem(d, level, n, 1, seed, noise)
    if duplicated:
        X[n // 2 :] = X[0]
    T = np.random.default_rng(seed).uniform(-0.5, 1.5, (9, d))
    _, found, _ = run(OptiCom(level, weights), theta, X, y, T)
    _, least, _ = run(SGPR(), theta, X, y, T)
    excess = found.covariance - least.covariance
    scale = max(1.0, np.abs(found.covariance).max())
    assert np.linalg.eigvalsh(excess).min() > -1e-8 * scale


def test_a_ridge_pulls_towards_the_combination_technique():
    X, y, theta = problem(2, 4)
    plain = sparse_grid.build(2, 4).coefficients
    pulled = [run(OptiCom(4, ridge=r), theta, X, y).state.coefficients for r in (0.0, 0.1, 1e9)]
    distances = [np.linalg.norm(c - plain) for c in pulled]
    assert distances[0] > distances[1] > 100 * distances[2]


@pytest.mark.parametrize("weights", ["projection", "paper"])
def test_targets_of_zero_leave_the_combination_technique(weights):
    X, y, theta = problem()
    _, found, state = run(OptiCom(3, weights), theta, X, 0 * y)
    np.testing.assert_array_equal(state.coefficients, sparse_grid.build(2, 3).coefficients)
    assert not found.mean.any()


def test_grids_that_predict_alike_are_told(caplog):
    rng = np.random.default_rng(0)
    W, S, b = np.ones((3, 5, 1)), np.eye(5), rng.standard_normal((5, 1))
    plain = sparse_grid.build(2, 2).coefficients
    with caplog.at_level(logging.WARNING, "daskgp"):
        found = OptiCom(2)._coefficients(W, S, b, 0.1, plain)
    np.testing.assert_allclose(found - plain, np.full(3, np.mean(found - plain)))
    assert sum("3 partial grids have rank 1" in record.message for record in caplog.records) == 1
    with pytest.raises(
        NumericalError, match=r"3 partial grids .* is 1: choose ridge=1e-6 or fewer"
    ):
        OptiCom(2, ridge=0.0)._coefficients(W, S, b, 0.1, plain)


def test_the_papers_variance_can_be_negative_and_the_remedy_is_named():
    X, y, theta = problem(2, 4, n=400, p=1, noise=1e-3, kernel=kernels.Matern32(0.5))
    T = np.random.default_rng(1).uniform(0, 1, (500, 2))
    model = OptiCom(4, variance="paper")
    _, found, state = run(model, theta, X, y, T, "variance")
    assert found.variance.min() < -0.01
    solved = Posterior(model, theta, state, identity(2, 1), ("a", "b"), ("y",), True)
    with pytest.raises(NumericalError, match=r"below zero beyond rounding .* variance='linear'$"):
        solved.moments(T, "variance")
    _, sound, _ = run(OptiCom(4), theta, X, y, T, "variance")
    assert sound.variance.min() > 0


# -- numerics ------------------------------------------------------------------------------


def test_inputs_that_are_no_such_grid_are_refused():
    X, y, theta = problem(2, 3)
    with pytest.raises(
        InputError, match=r"17 inducing inputs are not a sparse grid of level 4: .* 49"
    ):
        run(OptiCom(4), theta, X, y)


def test_float32_tiles_agree_to_their_precision():
    X, y, theta = problem(2, 4, n=300)
    model = OptiCom(4, jitter=1e-5)
    _, wide, state = run(model, theta, X, y, want="variance")
    _, found, narrow = run(model, theta, X.astype(np.float32), y, want="variance")
    np.testing.assert_allclose(narrow.coefficients, state.coefficients, atol=1e-2)
    assert found.mean.dtype == np.float32
    np.testing.assert_allclose(found.mean, wide.mean, atol=1e-3)
    np.testing.assert_allclose(found.variance, wide.variance, atol=1e-3)


def test_a_smooth_kernel_on_a_fine_grid_is_stable():
    # K(Z, Z) has the condition number that the jitter leaves: 1e8 and more
    X, y, theta = problem(2, 6, n=500, p=1, kernel=kernels.RBF(0.8))
    _, wanted, _ = run(SGPR(), theta, X, y, want="variance")
    for weights in ("projection", "combination"):
        _, found, _ = run(OptiCom(6, weights), theta, X, y, want="variance")
        np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-3)
        np.testing.assert_allclose(found.variance, wanted.variance, rtol=0.2)


@pytest.mark.parametrize(("d", "level"), [(2, 6), (5, 3)])
@pytest.mark.parametrize("variance", ["linear", "paper"])
def test_the_plan_is_about_what_is_used(d, level, variance):
    n = 200
    X, y, theta = problem(d, level, n, 1)
    model, block = OptiCom(level, variance=variance), Block(X, y)
    prepared = model.prepare(theta)
    total = model.local(prepared, block)
    m = len(theta.inputs)
    planned = model.footprint(Shape(n, d, 1, n, m, 8, 1, n))

    solve, state = peak(model.posterior, prepared, total)
    objective, _ = peak(model.objective, prepared, total)
    used = max(solve, objective) + total.gram.nbytes + prepared.factor.nbytes
    assert planned.state == pytest.approx(oracle.on_disk((*state, *total)), rel=0.05)
    assert used / 2 < planned.solve < 2 * used
