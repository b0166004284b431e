"""Routines of BLAS and LAPACK against dense products, for blocks of larger arrays, too."""

import numpy as np
import pytest

from daskgp.arrays import blas

DTYPES = [np.float32, np.float64]
SIZES = [(0, 3), (1, 1), (1, 4), (5, 1), (7, 130), (130, 7)]


def block(n, m, dtype, rng):
    """Return (n, m) numbers inside a larger array."""
    return rng.normal(size=(n + 3, m + 2)).astype(dtype)[1 : n + 1, 1 : m + 1]


def triangle(m, dtype, order, rng):
    """Return a well-conditioned lower triangle inside a larger array, with numbers above it."""
    L = block(m, m, dtype, rng) if order == "C" else block(m, m, dtype, rng).T
    L /= 2 * m
    L[range(m), range(m)] += 1
    return L


def tolerance(dtype):
    return 1e-12 if dtype == np.float64 else 1e-4


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_triangles(rng, n, m, dtype, order, left, transpose):
    L = triangle(n if left else m, dtype, order, rng)
    before, dense = L.copy(), np.tril(L).T if transpose else np.tril(L)
    A = block(n, m, dtype, rng)
    old = A.copy()
    blas.multiply(L, A, left, transpose)
    np.testing.assert_allclose(A, dense @ old if left else old @ dense, atol=tolerance(dtype))
    blas.solve(L, A, left, transpose)
    np.testing.assert_allclose(A, old, atol=tolerance(dtype))
    np.testing.assert_array_equal(L, before)


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_with_itself(rng, n, m, dtype):
    A, S = block(n, m, dtype, rng), block(n, n, dtype, rng)
    wanted, above = S - 0.5 * (A @ A.T), np.triu(S, 1)
    blas.add_outer(S, A, -0.5)
    np.testing.assert_allclose(np.tril(S), np.tril(wanted), atol=1e2 * tolerance(dtype))
    np.testing.assert_array_equal(np.triu(S, 1), above)


@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_products_of_rows(rng, n, m, dtype):
    A, S = block(n, m, dtype, rng), block(m, m, dtype, rng)
    wanted, above = S + A.T @ A, np.triu(S, 1)
    blas.add_gram(S, A)
    np.testing.assert_allclose(np.tril(S), np.tril(wanted), atol=1e2 * tolerance(dtype))
    np.testing.assert_array_equal(np.triu(S, 1), above)


@pytest.mark.parametrize("m", [1, 5, 130])
@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_and_inverses(rng, m, dtype):
    L = triangle(m, dtype, "C", rng)
    A, above = np.tril(L) @ np.tril(L).T, np.triu(L, 1)
    L[...] = np.tril(A) + above
    assert blas.factor(L) == 0
    np.testing.assert_allclose(np.tril(L) @ np.tril(L).T, A, atol=tolerance(dtype))
    assert blas.invert_product(L) == 0
    inverse = np.tril(L) + np.tril(L, -1).T
    np.testing.assert_allclose(inverse @ A, np.eye(m), atol=10 * tolerance(dtype))
    np.testing.assert_array_equal(np.triu(L, 1), above)


def test_what_fails_is_numbered():
    assert blas.factor(np.diag([1.0, -1.0, 1.0])) == 2
    assert blas.invert_product(np.diag([1.0, 1.0, 0.0])) == 3


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(TypeError, match="float64 and float32"):
        blas.solve(np.eye(3), np.ones((2, 3), np.float32))
    for A in (np.ones((2, 6))[:, ::2], np.ones((3, 2)).T, np.ones((2, 3))[::-1]):
        with pytest.raises(ValueError, match="rows must be contiguous"):
            blas.solve(np.eye(3), A)
    with pytest.raises(ValueError, match="do not agree"):
        blas.multiply(np.eye(3), np.ones((2, 4)))
    with pytest.raises(ValueError, match="do not agree"):
        blas.add_outer(np.eye(3), np.ones((2, 4)), 1.0)
    A = np.ones((2, 3))
    A.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        blas.solve(np.eye(3), A)
