"""Directions and energies of linear systems, against the whole matrix."""

import numpy as np
import pytest
import scipy.sparse.linalg
from hypothesis import given
from hypothesis import strategies as st

from daskgp import kernels
from daskgp.models.actions.krylov import energy, residual_directions


def system(n=24, p=1, noise=0.1, seed=0):
    """A = K + s I and targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    K = kernels.Matern32(lengthscale=0.9, variance=1.4)(X)
    y = np.sin(2 * X @ np.ones((2, p)) + np.arange(p)) + 0.1 * rng.standard_normal((n, p))
    return K + noise * np.eye(n), y


class Times:
    """Products with A, counted."""

    def __init__(self, A):
        self.A, self.calls = A, 0

    def __call__(self, V):
        assert V.ndim == 2
        self.calls += 1
        return self.A @ V


def directions(A, y, number, tol=0.0):
    return residual_directions(Times(A), y, number, tol)


def left_by(A, D, y):
    """What is left of y where D D' y is taken for the solution: relative, of the worst column."""
    size = np.linalg.norm(y, axis=0)
    left = np.linalg.norm(y - A @ (D @ (D.T @ y)), axis=0)
    return (left / np.where(size > 0, size, 1)).max()


@pytest.mark.parametrize("noise", [1.0, 1e-2, 1e-6])
@pytest.mark.parametrize("p", [1, 3])
def test_directions_are_conjugate(p, noise):
    A, y = system(60, p, noise)
    D, _ = directions(A, y, 20)
    assert D.shape == (60, 20)
    assert D.flags.c_contiguous
    np.testing.assert_allclose(D.T @ A @ D, np.eye(20), atol=1e-9)


def test_directions_are_conjugate_even_once_the_residual_is_rounding_alone():
    A, y = system(100, noise=1e-2)
    D, residuals = directions(A, y, 100)
    assert residuals[-1] < 1e-14
    np.testing.assert_allclose(D.T @ A @ D, np.eye(D.shape[1]), atol=1e-8)
    assert left_by(A, D, y) < 1e-13


def test_directions_span_the_krylov_space():
    A, y = system()
    powers = [y[:, 0]]
    for _ in range(5):
        powers.append(A @ powers[-1] / np.linalg.norm(A @ powers[-1]))
    for i in range(1, 7):
        basis, _ = np.linalg.qr(np.stack(powers[:i], axis=1))
        D = directions(A, y, i).actions
        assert D.shape[1] == i
        np.testing.assert_allclose(basis @ (basis.T @ D), D, atol=1e-8)


@pytest.mark.parametrize("i", [1, 2, 3, 5, 8, 13])
def test_after_so_many_steps_the_solution_is_that_of_conjugate_gradients(i):
    A, y = system(40)
    D, residuals = directions(A, y, i)
    wanted, _ = scipy.sparse.linalg.cg(A, y[:, 0], rtol=0.0, atol=0.0, maxiter=i)
    np.testing.assert_allclose(D @ (D.T @ y[:, 0]), wanted, rtol=1e-7, atol=1e-8)
    left = np.linalg.norm(y[:, 0] - A @ wanted) / np.linalg.norm(y)
    assert residuals[-1] == pytest.approx(left, rel=1e-6)


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("number", [24, 50])
def test_as_many_directions_as_rows_solve_exactly(p, number):
    A, y = system(24, p)
    D, residuals = directions(A, y, number)
    assert D.shape == (24, 24)
    assert len(residuals) == 24
    np.testing.assert_allclose(D @ D.T, np.linalg.inv(A), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(A @ (D @ (D.T @ y)), y, atol=1e-9)


@pytest.mark.parametrize("p", [1, 3])
def test_residuals_are_those_of_the_worst_target(p):
    A, y = system(40, p)
    y[:, 0] *= 100  # relative to each target
    D, residuals = directions(A, y, 12)
    wanted = [left_by(A, D[:, :i], y) for i in range(1, 13)]
    np.testing.assert_allclose(residuals, wanted, rtol=1e-7, atol=1e-12)


def test_a_target_that_is_solved_gets_no_more_actions():
    rng = np.random.default_rng(0)
    A = np.diag(np.arange(1.0, 21))
    y = np.zeros((20, 2))
    y[3, 0] = 5.0  # an eigenvector: one step solves it
    y[10:, 1] = rng.standard_normal(10)
    D, residuals = directions(A, y, 11, 1e-10)
    assert D.shape[1] == 11
    assert np.count_nonzero(np.abs(D[3]) > 1e-12) == 1
    assert residuals[-1] <= 1e-10


@pytest.mark.parametrize("tol", [0.5, 1e-2, 1e-6])
@pytest.mark.parametrize("p", [1, 3])
def test_it_stops_where_the_residual_is_small_enough(p, tol):
    A, y = system(40, p)
    product = Times(A)
    D, residuals = residual_directions(product, y, 40, tol)
    assert product.calls == D.shape[1] == len(residuals) < 40
    assert residuals[-1] <= tol
    assert (residuals[:-1] > tol).all()
    assert left_by(A, D, y) <= tol * (1 + 1e-9)


def test_zero_targets_need_no_direction():
    A, y = system(10, 3)
    D, residuals = directions(A, np.zeros((10, 2)), 4)
    assert D.shape == (10, 0)
    assert residuals.shape == (0,)
    y[:, 1] = 0
    D, residuals = directions(A, y, 10)
    assert D.shape == (10, 10)
    assert np.isfinite(D).all()
    assert np.isfinite(residuals).all()


def test_targets_and_products_are_left_alone():
    A, y = system(20, 2)
    before = y.copy()
    y.flags.writeable = False
    directions(A, y, 5)
    energy(Times(A), y, np.zeros(2), lowest(A), 5)
    np.testing.assert_array_equal(y, before)


@given(
    n=st.integers(1, 20),
    p=st.integers(1, 4),
    number=st.integers(1, 25),
    noise=st.floats(1e-3, 10.0),
    copies=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_laws_of_directions(n, p, number, noise, copies, seed):
    A, y = system(n, p, noise, seed)
    A = np.tile(A - noise * np.eye(n), (copies, copies)) + noise * np.eye(copies * n)
    y = np.tile(y, (copies, 1))  # the rows alike: the space is exhausted early
    D, residuals = directions(A, y, number, 1e-10)
    assert D.shape[1] == len(residuals) <= min(number, copies * n)
    np.testing.assert_allclose(D.T @ A @ D, np.eye(D.shape[1]), atol=1e-8)
    assert left_by(A, D, y) <= max(1e-9, residuals[-1] * (1 + 1e-6))
    # in the norm of A nothing is ever lost
    energies = np.cumsum((D.T @ y) ** 2, axis=0)
    assert (energies <= (y * np.linalg.solve(A, y)).sum(axis=0) * (1 + 1e-8)).all()


# --- energies


def lowest(A):
    return float(np.linalg.eigvalsh(A)[0])


@pytest.mark.parametrize("m", [1, 3])
def test_the_energy_grows_from_below_to_that_of_the_dense_solution(m):
    A, r = system(40, m, noise=1e-2)
    wanted = (r * np.linalg.solve(A, r)).sum(axis=0)
    before = np.zeros(m)
    for steps in range(1, 30):
        found = energy(Times(A), r, np.zeros(m), lowest(A), steps).value
        assert found.shape == (m,)
        assert (found >= before * (1 - 1e-14)).all()
        assert (found <= wanted * (1 + 1e-10)).all()
        before = found
    found = energy(Times(A), r, 1e-12 * wanted, lowest(A), 200)
    assert found.settled
    np.testing.assert_allclose(found.value, wanted, rtol=1e-8)


def test_after_so_many_steps_the_energy_is_that_of_as_many_directions():
    A, r = system(40)
    D = directions(A, r, 7).actions
    for steps in (1, 4, 7):
        found = energy(Times(A), r, np.zeros(1), lowest(A), steps)
        assert not found.settled
        np.testing.assert_allclose(found.value, ((D[:, :steps].T @ r) ** 2).sum(), rtol=1e-8)


def test_it_stops_once_no_more_than_the_tolerance_can_be_missing():
    A, r = system(40, 3, noise=1e-2)
    tol, wanted = np.array([1e-3, 1e-1, 1e-6]), (r * np.linalg.solve(A, r)).sum(axis=0)
    product = Times(A)
    found = energy(product, r, tol, lowest(A), 100)
    assert found.settled
    assert product.calls < 100
    assert (wanted - found.value <= tol).all()
    assert not energy(Times(A), r, tol, lowest(A), product.calls - 1).settled


def test_a_plateau_is_not_taken_for_the_end():
    """Steps that first serve large eigenvalues gain next to nothing."""
    eigenvalues = np.concatenate([np.geomspace(1e2, 1e6, 12), np.full(28, 1e-3)])
    r = np.full((40, 1), 1e-3)
    r[:12] = 1.0
    wanted = (r[:, 0] ** 2 / eigenvalues).sum()
    found = energy(Times(np.diag(eigenvalues)), r, np.array([1e-3 * wanted]), 1e-3, 100)
    assert found.settled
    assert found.value[0] == pytest.approx(wanted, rel=1e-3)


def test_steps_that_run_out_are_reported():
    A, r = system(40, 2)
    assert not energy(Times(A), r, np.full(2, 1e-10), lowest(A), 2).settled
    left = energy(Times(A), r, np.full(2, 1e-10), lowest(A), 0)
    assert not left.settled
    np.testing.assert_array_equal(left.value, 0)


def test_nothing_left_has_no_energy():
    A, r = system(10, 2)
    product = Times(A)
    found = energy(product, np.zeros((10, 2)), np.zeros(2), lowest(A), 5)
    assert found.settled
    assert product.calls == 0
    np.testing.assert_array_equal(found.value, 0)
    r[:, 0] = 0
    found = energy(product, r, np.full(2, 1e-13), lowest(A), 50)
    assert found.settled
    assert found.value[0] == 0
    assert found.value[1] == pytest.approx(r[:, 1] @ np.linalg.solve(A, r[:, 1]), rel=1e-9)


@given(
    n=st.integers(1, 15),
    m=st.integers(1, 3),
    noise=st.floats(1e-2, 10.0),
    seed=st.integers(0, 2**16),
)
def test_more_steps_than_rows_change_nothing(n, m, noise, seed):
    A, r = system(n, m, noise, seed)
    found = energy(
        Times(A), r, np.zeros(m), lowest(A), 20 * n
    )  # a target may settle long before another
    np.testing.assert_allclose(found.value, (r * np.linalg.solve(A, r)).sum(axis=0), rtol=1e-7)
