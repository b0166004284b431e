import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp.arrays import batched, linalg
from daskgp.arrays.backend import to_host
from daskgp.errors import InputError, NumericalError

DTYPES = [np.float64, np.float32]
SIZES = [1, 2, 7, 129, 300]  # below, at and above the blocks of the triangle copies
TOLERANCE = {np.float64: 1e-10, np.float32: 2e-3}


def positive_definite(m, dtype, rng):
    B = rng.normal(size=(m, m + 3))
    return (B @ B.T / m + np.eye(m)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", SIZES)
def test_cholesky(xp, rng, m, dtype):
    A = positive_definite(m, dtype, rng)
    given_A = xp.asarray(A.copy())
    L, jitter = linalg.cholesky(given_A, jitter=0.0)
    host = to_host(L)
    assert host.dtype == dtype
    assert jitter == 0
    assert not np.triu(host, 1).any()
    np.testing.assert_allclose(host @ host.T, A, atol=TOLERANCE[dtype])
    np.testing.assert_array_equal(to_host(given_A), A)


@pytest.mark.parametrize("m", SIZES)
def test_cholesky_adds_what_it_reports(xp, rng, m):
    A = positive_definite(m, np.float64, rng)
    L, jitter = linalg.cholesky(xp.asarray(A), jitter=1e-3)
    L = to_host(L)
    assert jitter == 1e-3
    np.testing.assert_allclose(L @ L.T, A + 1e-3 * np.diag(A).mean() * np.eye(m), atol=1e-10)


def test_cholesky_in_place(rng):
    A = positive_definite(200, np.float64, rng)
    scratch = A.copy()
    L, _ = linalg.cholesky(scratch, overwrite=True, jitter=0.0)
    assert L is scratch
    np.testing.assert_allclose(L @ L.T, A, atol=1e-10)


@pytest.mark.parametrize("m", [65, 128, 300])
def test_large_factors_are_made_of_tiles(rng, m, monkeypatch):
    A = positive_definite(m, np.float64, rng)
    one, _ = linalg.cholesky(A, jitter=0.0)
    less = linalg.cholesky_less(A, 0.1 * np.eye(m)[:, :3], 0.5)
    monkeypatch.setattr(linalg, "_LARGE", 64)
    monkeypatch.setattr(linalg, "_TILE", 48)
    scratch = A.copy()
    L, _ = linalg.cholesky(scratch, jitter=0.0, overwrite=True)
    assert L is scratch
    np.testing.assert_allclose(L, one, atol=1e-13)
    np.testing.assert_array_equal(np.triu(L, 1), 0)
    np.testing.assert_allclose(linalg.cholesky_less(A, 0.1 * np.eye(m)[:, :3], 0.5), less)
    A[-1, -1] = -1
    with pytest.raises(NumericalError, match="not positive definite"):
        linalg.cholesky(A, jitter=0.0)
    scratch = A.copy()
    assert linalg._host_factor(scratch, A, 0.0) is None
    np.testing.assert_array_equal(scratch, A)


@pytest.mark.slow
def test_a_factor_larger_than_the_buffers_of_threads(rng):
    X = rng.uniform(0, 60, 16_000)
    A = np.exp(-np.abs(X[:, None] - X))
    L, _ = linalg.cholesky(A, jitter=1e-6)
    v = rng.normal(size=len(X))
    np.testing.assert_allclose(L @ (L.T @ v), A @ v + 1e-6 * v, atol=1e-9)


def lay_out(A, layout):
    if layout == "fortran":
        return np.asfortranarray(A)
    if layout == "strided":
        wide = np.full((2 * A.shape[0], 2 * A.shape[1]), np.nan, A.dtype)
        wide[::2, ::2] = A
        return wide[::2, ::2]
    A = A.copy()
    A.flags.writeable = False
    return A


@pytest.mark.parametrize("layout", ["fortran", "strided", "read-only"])
def test_arguments_of_any_layout(rng, layout):
    A, K = positive_definite(20, np.float64, rng), rng.normal(size=(5, 20))
    L, _ = linalg.cholesky(lay_out(A, layout), overwrite=True, jitter=0.0)
    np.testing.assert_allclose(L @ L.T, A, atol=1e-12)
    inverse = linalg.inverse_lower_t(lay_out(L, layout))
    np.testing.assert_allclose(L.T @ inverse, np.eye(20), atol=1e-12)
    assert L.flags.c_contiguous
    assert inverse.flags.c_contiguous
    for solve, factor in ((linalg.whiten_rows, L.T), (linalg.unwhiten_rows, L)):
        found = solve(lay_out(L, layout), lay_out(K, layout), overwrite=True)
        np.testing.assert_allclose(found @ factor, K, atol=1e-12)
    S = np.zeros((20, 20)) if layout == "read-only" else lay_out(np.zeros((20, 20)), layout)
    linalg.add_gram_lower(S, lay_out(K, layout))
    np.testing.assert_allclose(np.tril(S), np.tril(K.T @ K), atol=1e-12)


@pytest.mark.parametrize("m", [3, 300])
def test_jitter_is_raised_and_logged(xp, caplog, m):
    A = np.ones((m, m))
    with caplog.at_level(logging.WARNING, "daskgp.arrays.linalg"):
        L, jitter = linalg.cholesky(xp.asarray(A - 1e-7 * np.eye(m)), jitter=0.0)
    assert 1e-7 <= jitter <= 1e-5
    assert f"a {m} x {m} matrix needed a jitter" in caplog.text
    L = to_host(L)
    np.testing.assert_allclose(L @ L.T, A, atol=2e-5)


def test_failed_attempts_leave_no_trace(rng):
    # rank 150 of 300: LAPACK gets far before it fails, in place, several times over
    B = rng.normal(size=(300, 150))
    A = B @ B.T - 1e-7 * np.eye(300)
    L, jitter = linalg.cholesky(A.copy(), jitter=0.0, overwrite=True)
    assert jitter > 0
    np.testing.assert_allclose(L @ L.T, A + jitter * np.diag(A).mean() * np.eye(300), atol=1e-9)


def test_not_positive_definite(xp):
    with pytest.raises(NumericalError, match="2 x 2 matrix is not positive definite even with"):
        linalg.cholesky(xp.asarray(np.array([[1.0, 3.0], [3.0, 1.0]])))


def test_jitter_beyond_the_largest_is_still_tried_once(xp):
    _, jitter = linalg.cholesky(xp.asarray(np.eye(2)), jitter=0.1)
    assert jitter == 0.1


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 9), (300, 40), (40, 0), (0, 3)])
def test_cholesky_less(xp, rng, n, m, overwrite):
    A, G = rng.normal(size=(n, m)), rng.normal(size=(n, n + 3))
    K = A @ A.T + G @ G.T
    mine = xp.asarray(K.copy())
    L = to_host(linalg.cholesky_less(mine, xp.asarray(A), 0.5, overwrite))
    np.testing.assert_allclose(L, np.linalg.cholesky(G @ G.T + 0.5 * np.eye(n)), atol=1e-10)
    assert not np.triu(L, 1).any()
    assert overwrite or np.array_equal(to_host(mine), K)


@pytest.mark.parametrize("overwrite", [False, True])
def test_cholesky_less_of_what_is_not_positive_definite(xp, rng, overwrite):
    A = rng.normal(size=(200, 30))
    K = A @ A.T
    B = rng.normal(size=(200, 3))
    wanted = B @ B.T
    L = to_host(linalg.cholesky_less(xp.asarray(K + wanted), xp.asarray(A), 0.0, overwrite))
    assert np.diag(L).min() > 0
    np.testing.assert_allclose(L @ L.T, wanted, atol=1e-3)
    with pytest.raises(NumericalError, match="positive definite"):
        linalg.cholesky_less(xp.asarray(K), xp.asarray(A), -1.0, overwrite)
    with pytest.raises(NumericalError, match="NaN"):
        linalg.cholesky_less(xp.asarray(K * np.nan), xp.asarray(A), 1.0, overwrite)


@pytest.mark.parametrize("where", [(0, 0), (1, 2)])
def test_nan_is_named(xp, where):
    A = np.eye(3)
    A[where] = A[where[::-1]] = np.nan
    with pytest.raises(NumericalError, match="look for NaN"):
        linalg.cholesky(xp.asarray(A))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_solves(xp, rng, m, dtype, order):
    L = np.linalg.cholesky(positive_definite(m, np.float64, rng)).astype(dtype)
    given_L = xp.asarray(np.asarray(L, order=order))
    for shape in [(m,), (m, 1), (m, 4)]:
        B = rng.normal(size=shape).astype(dtype)
        X, Y = (f(given_L, xp.asarray(B)) for f in (linalg.solve_lower, linalg.solve_lower_t))
        assert X.shape == Y.shape == shape
        assert X.dtype == Y.dtype == dtype
        np.testing.assert_allclose(L @ to_host(X), B, atol=TOLERANCE[dtype])
        np.testing.assert_allclose(L.T @ to_host(Y), B, atol=TOLERANCE[dtype])


SOLVES = {linalg.whiten_rows: np.transpose, linalg.unwhiten_rows: np.asarray}
"""Functions that solve for rows, and what of the factor their result is multiplied by."""
both_solves = pytest.mark.parametrize("solve", SOLVES, ids=lambda solve: solve.__name__)


@both_solves
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "m"), [(0, 9), (1, 9), *((5, m) for m in SIZES)])
def test_solves_for_rows(xp, rng, solve, n, m, dtype):
    L = np.linalg.cholesky(positive_definite(m, np.float64, rng)).astype(dtype)
    K = rng.normal(size=(n, m)).astype(dtype)
    given_K = xp.asarray(K.copy())
    found = solve(xp.asarray(L), given_K)
    assert found.dtype == dtype
    np.testing.assert_allclose(to_host(found) @ SOLVES[solve](L), K, atol=TOLERANCE[dtype])
    np.testing.assert_array_equal(to_host(given_K), K)
    again = solve(xp.asarray(L), given_K, overwrite=True)
    np.testing.assert_array_equal(to_host(again), to_host(found))


@both_solves
def test_solves_for_rows_in_place(rng, solve):
    L = np.linalg.cholesky(positive_definite(9, np.float64, rng))
    K = rng.normal(size=(5, 9))
    untouched = solve(L, K)
    assert solve(L, K, overwrite=True) is K
    np.testing.assert_array_equal(K, untouched)


def test_only_the_lower_triangle_of_a_factor_is_read(rng):
    L = np.linalg.cholesky(positive_definite(9, np.float64, rng))
    K = rng.normal(size=(5, 9))
    dirty = L + np.triu(np.full((9, 9), 7.0), 1)
    np.testing.assert_array_equal(linalg.whiten_rows(dirty, K), linalg.whiten_rows(L, K))
    np.testing.assert_array_equal(linalg.solve_lower_t(dirty, K.T), linalg.solve_lower_t(L, K.T))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sum_dtype", DTYPES)
def test_add_gram_lower(xp, rng, dtype, sum_dtype):
    A, start = rng.normal(size=(11, 6)).astype(dtype), rng.normal(size=(6, 6)).astype(sum_dtype)
    S = xp.asarray(start.copy())
    assert linalg.add_gram_lower(S, xp.asarray(A)) is S
    expected = start.astype(np.float64) + A.astype(np.float64).T @ A
    tolerance = 1e-12 if dtype == sum_dtype == np.float64 else 1e-5
    np.testing.assert_allclose(np.tril(to_host(S)), np.tril(expected), atol=tolerance)
    assert S.dtype == sum_dtype


def test_add_gram_lower_of_no_rows(xp):
    S = xp.asarray(np.eye(3))
    linalg.add_gram_lower(S, xp.asarray(np.empty((0, 3))))
    np.testing.assert_array_equal(to_host(S), np.eye(3))


@given(st.integers(0, 300), st.integers(0, 2**31))
def test_symmetrize_copies_the_lower_triangle(m, seed):
    S = np.random.default_rng(seed).normal(size=(m, m))
    expected = np.tril(S) + np.tril(S, -1).T
    assert linalg.symmetrize(S) is S
    np.testing.assert_array_equal(S, expected)


def test_symmetrize_on_a_device(fake):
    S = fake("a").asarray(np.array([[1.0, 9.0], [2.0, 3.0]]))
    np.testing.assert_array_equal(to_host(linalg.symmetrize(S)), [[1.0, 2.0], [2.0, 3.0]])


@pytest.mark.parametrize("m", SIZES)
def test_determinant_and_inverse(xp, rng, m):
    A = positive_definite(m, np.float64, rng)
    L = xp.asarray(np.linalg.cholesky(A))
    np.testing.assert_allclose(linalg.logdet_factor(L), np.linalg.slogdet(A)[1], rtol=1e-12)
    inverse = to_host(linalg.inverse_from_factor(L))
    np.testing.assert_array_equal(inverse, inverse.T)
    np.testing.assert_allclose(inverse @ A, np.eye(m), atol=1e-10)


@pytest.mark.parametrize("invert", [linalg.inverse_from_factor, linalg.inverse_lower_t])
def test_singular_factor_has_no_inverse(invert):
    with pytest.raises(NumericalError, match="zero at diagonal entry 1"):
        invert(np.diag([1.0, 0.0]))


def test_empty_matrices():
    empty = np.empty((0, 0))
    assert linalg.cholesky(empty)[0].shape == (0, 0)
    assert linalg.logdet_factor(empty) == 0
    assert linalg.inverse_from_factor(empty).shape == (0, 0)
    assert linalg.solve_lower(empty, np.empty((0, 2))).shape == (0, 2)


def test_shapes_that_do_not_agree(xp):
    L, K = xp.asarray(np.eye(3)), xp.asarray(np.ones((2, 4)))
    with pytest.raises(InputError, match=r"A has shape .2, 4.: a square matrix"):
        linalg.cholesky(K)
    with pytest.raises(InputError, match=r"K has shape .2, 4., the factor has 3 columns"):
        linalg.whiten_rows(L, K)
    with pytest.raises(InputError, match=r"A has shape .2, 4., the factor has 3 columns"):
        linalg.unwhiten_rows(L, K)
    with pytest.raises(InputError, match="B has 2 rows, the factor has 3"):
        linalg.solve_lower(L, K)
    with pytest.raises(InputError, match=r"A has shape .2, 4., the sum has 3 columns"):
        linalg.add_gram_lower(L, K)


def test_statistics_do_not_mix_devices(fake):
    from daskgp.errors import DeviceError

    with pytest.raises(DeviceError, match="two devices"):
        linalg.whiten_rows(np.eye(2), fake("a").asarray(np.eye(2)))


@pytest.mark.parametrize("solve", [linalg.whiten_rows, linalg.unwhiten_rows, linalg.solve_lower])
def test_solves_with_a_singular_factor(solve):
    L = np.eye(200)
    L[150, 150] = 0
    with pytest.raises(NumericalError, match="the factor has a zero at diagonal entry 150"):
        solve(L, np.eye(200))


# -- products with triangles ---------------------------------------------------------------------

EDGES = [0, 1, 255, 256, 257, 600]  # of the strips in which a triangle is multiplied
LOWER, DENSE = "lower", "dense"
PRODUCTS = {
    "times_lower": (DENSE, LOWER, lambda A, L: A @ L),
    "times_lower_t": (DENSE, LOWER, lambda A, L: A @ L.T),
    "lower_of_columns": (DENSE, DENSE, lambda A, B: np.tril(A.T @ B)),
}


def factor_of(kind, m, n, rng):
    """Entries of products of float32 are of size one."""
    if kind == LOWER:
        return np.tril(rng.normal(size=(m, m))) / np.sqrt(m or 1)
    return rng.normal(size=(n, m))


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("m", EDGES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_with_triangles(xp, rng, name, m, dtype):
    first, second, formula = PRODUCTS[name]
    for n, order in [(0, "C"), (1, "C"), (5, "C"), (5, "F")]:
        A, B = (factor_of(kind, m, n, rng).astype(dtype, order=order) for kind in (first, second))
        for part in (A, B):
            part.flags.writeable = False
        found = getattr(linalg, name)(*(xp.asarray(part) for part in (A, B)))
        assert found.dtype == dtype
        wanted = formula(*(part.astype(np.float64) for part in (A, B)))
        tolerance = 1e-11 if dtype == np.float64 else 1e-4
        np.testing.assert_allclose(to_host(found), wanted, atol=tolerance)
        if name == "lower_of_columns":
            assert not np.triu(to_host(found), 1).any()


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_triangles_of_two_precisions(xp, rng, name):
    first, second, formula = PRODUCTS[name]
    A, B = factor_of(first, 7, 3, rng).astype(np.float32), factor_of(second, 7, 3, rng)
    found = getattr(linalg, name)(xp.asarray(A), xp.asarray(B))
    assert found.dtype == np.float64
    np.testing.assert_allclose(to_host(found), formula(A.astype(np.float64), B), atol=1e-6)


@pytest.mark.parametrize("m", EDGES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_inverse_of_a_triangle(xp, rng, m, dtype):
    L = (np.tril(rng.normal(size=(m, m)), -1) / max(m, 1) + 2 * np.eye(m)).astype(dtype)
    given_L = xp.asarray(L.copy())
    found = linalg.inverse_lower_t(given_L)
    assert found.dtype == dtype
    np.testing.assert_array_equal(to_host(given_L), L)
    found, tolerance = to_host(found), 1e-11 if dtype == np.float64 else 1e-5
    assert not np.tril(found, -1).any()
    np.testing.assert_allclose(L.T @ found, np.eye(m), atol=tolerance)


@pytest.mark.parametrize("m", EDGES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_triangle_over_another(xp, rng, m, dtype):
    L = (np.tril(rng.normal(size=(m, m)), -1) / max(m, 1) + 2 * np.eye(m)).astype(dtype)
    A = factor_of(LOWER, m, m, rng).astype(dtype)
    found = to_host(linalg.lower_over_lower(xp.asarray(A), xp.asarray(L)))
    assert found.dtype == dtype
    assert not np.triu(found, 1).any()
    np.testing.assert_allclose(found @ L, A, atol=1e-11 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("m", SIZES)
def test_between_inverses(xp, rng, m):
    L, M = np.linalg.cholesky(positive_definite(m, np.float64, rng)), rng.normal(size=(m, m))
    M = M + M.T
    found = to_host(linalg.between_inverses(xp.asarray(L), xp.asarray(M)))
    np.testing.assert_allclose(L.T @ found @ L, M, atol=1e-9)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("m", [0, 1, 2, 3, 5, 7, 8, 129, 200, 256, 300])
def test_stacks(xp, rng, m):
    A = rng.standard_normal((3, m, m + 2))
    A, K = A @ A.transpose(0, 2, 1) / max(m, 1) + np.eye(m), rng.standard_normal((3, 4, m))
    L, rows = batched.cholesky_stack(xp.asarray(A)), xp.asarray(K)
    np.testing.assert_allclose(to_host(xp.matmul(L, L.transpose(0, 2, 1))), A, rtol=1e-9, atol=1e-9)
    factors = to_host(L)
    for function, turned in (
        (batched.whiten_stack, factors),
        (batched.unwhiten_stack, factors.transpose(0, 2, 1)),
    ):
        wanted = np.linalg.solve(turned, K.transpose(0, 2, 1)).transpose(0, 2, 1)
        np.testing.assert_allclose(to_host(function(L, rows)), wanted, rtol=1e-8, atol=1e-9)
        np.testing.assert_array_equal(to_host(rows), K)
        there = xp.asarray(K)
        function(L, there, overwrite=True)
        np.testing.assert_allclose(to_host(there), wanted, rtol=1e-8, atol=1e-9)
    inverses, wanted = to_host(batched.inverse_stack(L)), np.linalg.inv(A)
    np.testing.assert_allclose(inverses, wanted, rtol=1e-8, atol=1e-9)
    logdets = to_host(batched.logdet_stack(L))
    np.testing.assert_allclose(logdets, np.linalg.slogdet(A)[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("count", [1, 4])
def test_a_stack_is_factored_by_one_call(fake, rng, monkeypatch, count):
    xp, calls = fake("device"), []
    right = xp.linalg.cholesky
    monkeypatch.setattr(xp.linalg, "cholesky", lambda A: calls.append(A.shape) or right(A))
    A = rng.standard_normal((count, 5, 5))
    batched.cholesky_stack(xp.asarray(A @ A.transpose(0, 2, 1) + np.eye(5)))
    assert calls == ([(4, 5, 5)] if count == 4 else [(5, 5)])


def test_one_matrix_of_a_stack_that_needs_jitter(xp, caplog):
    A = np.stack([np.eye(3), np.ones((3, 3)) - 1e-13 * np.eye(3)])
    L = to_host(batched.cholesky_stack(xp.asarray(A)))
    assert "needed a jitter" in caplog.text
    np.testing.assert_array_equal(L[0], np.eye(3))
    np.testing.assert_allclose(L[1] @ L[1].T, A[1], atol=1e-6)


def test_jitter_is_told_once_where_that_is_asked_for(caplog):
    again = linalg.jitter_told_once()
    for _ in range(3):
        linalg.cholesky(np.ones((3, 3)) - 1e-7 * np.eye(3), jitter=0.0)
    assert caplog.text.count("needed a jitter") == 1
    again()
    linalg.cholesky(np.ones((3, 3)) - 1e-7 * np.eye(3), jitter=0.0)
    assert caplog.text.count("needed a jitter") == 2
