"""Cholesky factors and triangular solves, with names that say the formula.

A kernel tile K is (rows, m) in C order and is worked on by rows, so BLAS sees K' in Fortran
order and every product and solve here happens in place.  On the host these are the routines of
``blas``; any other array module takes the generic path through its own ``linalg``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from daskgp.arrays import backend, blas
from daskgp.arrays.backend import namespace, number
from daskgp.errors import InputError, NumericalError
from daskgp.typing import Array

logger: logging.Logger = logging.getLogger(__name__)


class _Told:
    """Whether warnings of jitter are given once, and whether one has been given."""

    once = given = False

    def wanted(self) -> bool:
        """Return whether a warning is given now."""
        first, self.given = not self.given, True
        return first or not self.once


_told = _Told()


def jitter_told_once() -> Callable[[], None]:
    """Warn only once of jitter in this process until the function that is returned is called."""
    _told.once, _told.given = True, False

    def each_time() -> None:
        _told.once = False

    return each_time


_LARGEST_JITTER = 1e-4
_SMALLEST_JITTER = 1e-10
_WIDE = 256  # columns of a triangle multiplied at a time
_TILE = 2_048  # rows and columns of a tile of a large factor
_LARGE = 8_192  # OpenBLAS's threads write past their buffers in potrf and syrk from about 15,000 on
BLOCK = 128  # rows and columns of a triangle copied at a time: two such blocks stay in cache


def cholesky(A: Array, jitter: float = 1e-8, overwrite: bool = False) -> tuple[Array, float]:
    """Return the factor L of L L' = A + jitter mean(diag A) I, and the jitter used.

    Parameters
    ----------
    A : (m, m) array
        Symmetric, both triangles filled; float32 or float64.
    jitter : float, default 1e-8
        Relative to the mean of the diagonal.  Where the factorisation fails it is raised
        tenfold (from 1e-10 if 0) up to 1e-4, with a logged warning.
    overwrite : bool, default False
        Allow L to take A's memory.

    Returns
    -------
    L : (m, m) array
        Lower triangular, C order, zeros above the diagonal.
    jitter : float
        The jitter used, relative to the mean of the diagonal.

    Raises
    ------
    NumericalError
        If A contains NaN or infinity, or is not positive definite with a jitter of 1e-4.

    Examples
    --------
    >>> L, used = cholesky(np.array([[4.0, 2.0], [2.0, 2.0]]), jitter=0.0)
    >>> L
    array([[2., 0.],
           [1., 1.]])
    """
    xp = namespace(A)
    m = _square(A, "A")
    mean = number(xp.diagonal(A).mean()) if m else 0.0
    if not np.isfinite(mean):
        raise NumericalError(
            f"the {m} x {m} matrix to factor has a diagonal of mean {mean}: "
            "look for NaN or infinity in the inputs and hyper-parameters"
        )
    factor = _host_factor if xp is np else _device_factor
    scratch = _scratch(A, overwrite, common_type(A)) if xp is np else A
    tried = jitter
    while True:
        L = factor(scratch, A, tried * mean)
        if L is not None:
            break
        following = max(10 * tried, _SMALLEST_JITTER)
        if following > 1.0001 * _LARGEST_JITTER:
            raise NumericalError(
                f"the {m} x {m} matrix is not positive definite even with {tried:.0e} of its mean "
                f"diagonal ({mean:.3g}) added: look for NaN, or raise the noise variance or jitter"
            )
        tried = following
    if tried != jitter and _told.wanted():
        logger.warning(
            "a %d x %d matrix needed a jitter of %.0e of its mean diagonal, where %.0e was "
            "asked for: rows or inducing inputs nearly coincide, or the noise variance is "
            "very small",
            m, m, tried, jitter,
        )  # fmt: skip
    return L, tried


def cholesky_less(K: Array, A: Array, added: float | Array, overwrite: bool = False) -> Array:
    """Return the factor L of L L' = K - A A' + D with D diagonal.

    Parameters
    ----------
    K : (n, n) array
        Symmetric, both triangles filled.
    A : (n, m) array
        Both in float64.
    added : float or (n,) array
        Diagonal of D; where the factorisation fails, jitter is added, as in ``cholesky``.
    overwrite : bool, default False
        Allow L to take K's memory.
    """
    n = _square(K, "K")
    if namespace(K, A) is np and 0 < n <= _LARGE:
        L = _scratch(K, overwrite, common_type(K))
        diagonal = np.einsum("ii->i", L)
        before = diagonal.copy()
        # half the work of a product, which would need memory of its own
        blas.add_outer(L, np.ascontiguousarray(A, L.dtype), -1.0)
        if _host_factor(L, K, added) is not None:
            return L
        diagonal[...] = before  # all the rest is K again, from the triangle that syrk left alone
        K, overwrite = L, True
    return cholesky(less_product(K, A, added, overwrite), jitter=0.0, overwrite=True)[0]


def less_product(K: Array, A: Array, added: float | Array, overwrite: bool = False) -> Array:
    """Return K - A A' + D with D of diagonal ``added``, in K's memory if ``overwrite``."""
    R = K if overwrite else K.copy()
    R -= A @ A.T
    add_to_diagonal(R, added)
    return R


def _scratch(A: Array, overwrite: bool, dtype: Any) -> Array:
    """Return the array to work in: A itself if it may be and is in C order, else a copy."""
    usable = overwrite and A.flags.c_contiguous and A.flags.writeable and A.dtype == dtype
    return A if usable else np.array(A, dtype=dtype, order="C")


def _host_factor(
    scratch: np.ndarray, A: np.ndarray, added: float | np.ndarray
) -> np.ndarray | None:
    """Factor ``scratch`` in place; on failure restore it and return None."""
    diagonal = np.einsum("ii->i", scratch)
    before = diagonal.copy()
    diagonal += added
    large = len(scratch) > _LARGE
    done = _factored_by_tiles(scratch) if large else blas.factor(scratch) == 0
    if done and np.isfinite(diagonal).all():
        _clear_upper(scratch)
        return scratch
    _mirror(scratch.T)  # the strict upper triangle was left alone
    diagonal[...] = before
    return None


def _factored_by_tiles(A: np.ndarray) -> bool:
    """Put the factor in the lower triangle tile by tile; False if A is not positive definite.

    The strict upper triangle is left alone, as by ``blas.factor``.
    """
    lower = ~_above(_TILE)
    for j in range(0, len(A), _TILE):
        own = slice(j, min(j + _TILE, len(A)))
        corner = A[own, own] - A[own, :j] @ A[own, :j].T
        if blas.factor(corner):
            return False
        np.copyto(A[own, own], corner, where=lower[: len(corner), : len(corner)])
        for i in range(own.stop, len(A), _TILE):
            rows = slice(i, min(i + _TILE, len(A)))
            part = A[rows, own] - A[rows, :j] @ A[own, :j].T
            A[rows, own] = whiten_rows(corner, part, overwrite=True)
    return True


def _device_factor(scratch: Array, A: Array, added: float) -> Array | None:
    if not A.size:
        return A
    xp = namespace(A)
    scratch, diagonal = A.copy(), xp.arange(len(A))
    scratch[diagonal, diagonal] += added
    try:
        L = backend.cholesky(xp)(scratch)
    except np.linalg.LinAlgError:
        return None
    return L if number(xp.isfinite(xp.diagonal(L)).all()) else None


def _clear_upper(A: np.ndarray) -> None:
    for i in range(0, len(A), BLOCK):
        stop = min(i + BLOCK, len(A))
        A[i:stop, stop:] = 0
        corner = A[i:stop, i:stop]
        np.copyto(corner, 0, where=_above(stop - i))


def _mirror(A: np.ndarray) -> None:
    """Copy the strict lower triangle to the upper one, block by block."""
    for i in range(0, len(A), BLOCK):
        stop = min(i + BLOCK, len(A))
        for j in range(0, i, BLOCK):
            A[j : j + BLOCK, i:stop] = A[i:stop, j : j + BLOCK].T
        corner = A[i:stop, i:stop]
        np.copyto(corner, corner.T.copy(), where=_above(stop - i))


@functools.cache
def _above(m: int) -> np.ndarray:
    """Return the mask (m, m) of the entries above the diagonal; cached for the sizes of blocks."""
    return ~np.tri(m, dtype=bool)


def solve_lower(L: Array, B: Array) -> Array:
    """Return L^-1 B for L (m, m) lower triangular and B (m,) or (m, p)."""
    return _solve(L, B, transpose=False)


def solve_lower_t(L: Array, B: Array) -> Array:
    """Return L^-T B for L (m, m) lower triangular and B (m,) or (m, p)."""
    return _solve(L, B, transpose=True)


def solve_from_factor(L: Array, B: Array) -> Array:
    """Return (L L')^-1 B for L (m, m) lower triangular and B (m,) or (m, p)."""
    return solve_lower_t(L, solve_lower(L, B))


def _solve(L: Array, B: Array, transpose: bool) -> Array:
    xp = namespace(L, B)
    m = _square(L, "L")
    if B.shape[0] != m:
        raise InputError(f"B has {B.shape[0]} rows, the factor has {m}: they must agree")
    if xp is not np:
        return _device_solve(L, B, trans=int(transpose))
    dtype = common_type(L, B)
    X = np.array(B, dtype=dtype, order="C")
    columns = X.reshape(m, X.size // max(m, 1))
    blas.solve(_divisor(L, dtype), columns, left=True, transpose=transpose)
    return X


def _device_solve(L: Array, B: Array, trans: int = 0, overwrite: bool = False) -> Array:
    """Return L^-1 B, or L^-T B; cuBLAS needs one dtype and at least one entry."""
    xp = namespace(L, B)
    dtype = common_type(L, B)
    if not B.size:
        return B.astype(dtype)
    L, B = L.astype(dtype, copy=False), B.astype(dtype, copy=False)
    solve = backend.solve_triangular(xp)
    return solve(L, B, trans=trans, lower=True, overwrite_b=overwrite)


def whiten_rows(L: Array, K: Array, overwrite: bool = False) -> Array:
    """Return K L^-T: each row k of K (n, m) becomes L^-1 k.

    Parameters
    ----------
    L : (m, m) array
        Lower triangular.
    K : (n, m) array
        Rows to whiten.
    overwrite : bool, default False
        Work in K's memory where its layout allows.
    """
    return _solve_rows(L, K, "K", True, overwrite)


def unwhiten_rows(L: Array, A: Array, overwrite: bool = False) -> Array:
    """Return A L^-1: each row a of A (n, m) becomes L^-T a.  Arguments as in ``whiten_rows``."""
    return _solve_rows(L, A, "A", False, overwrite)


def _solve_rows(L: Array, rows: Array, name: str, transpose: bool, overwrite: bool) -> Array:
    """Return A L^-T, or A L^-1 unless ``transpose``, for rows A (n, m)."""
    xp = namespace(L, rows)
    m = _square(L, "L")
    if rows.ndim != 2 or rows.shape[1] != m:
        raise InputError(
            f"{name} has shape {rows.shape}, the factor has {m} columns: they must agree"
        )
    if xp is not np:
        return _device_solve(L, rows.T, int(not transpose), overwrite).T
    found = _scratch(rows, overwrite, common_type(L, rows))
    blas.solve(_divisor(L, found.dtype), found, transpose=transpose)
    return found


def _triangle(L: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the factor in a dtype, its rows or its columns contiguous."""
    L = L.astype(dtype, copy=False)
    return L if L.flags.c_contiguous or L.flags.f_contiguous else np.ascontiguousarray(L)


def _divisor(L: np.ndarray, dtype: Any) -> np.ndarray:
    """Return ``_triangle(L, dtype)``; raise NumericalError if it is singular."""
    diagonal = L.diagonal()
    if not diagonal.all():
        zero = int(np.flatnonzero(diagonal == 0)[0])
        raise NumericalError(f"the factor has a zero at diagonal entry {zero}")
    return _triangle(L, dtype)


def product(A: Array, B: Array, out: Array) -> Array:
    """Compute A B in ``out``, of their common dtype and of any strides, and return it.

    CuPy's products need ``out`` contiguous; otherwise the product is copied there.
    """
    xp = namespace(A, B, out)
    if xp is np or out.flags.c_contiguous:
        xp.matmul(A, B, out=out)
    else:
        out[...] = xp.matmul(A, B)
    return out


def times_lower(A: Array, L: Array) -> Array:
    """Return A L (n, m) for L (m, m) lower triangular, without the products with its zeros."""
    return _times(A, L, transpose=False)


def times_lower_t(A: Array, L: Array) -> Array:
    """Return A L' (n, m) for L (m, m) lower triangular, without the products with its zeros."""
    return _times(A, L, transpose=True)


def _times(A: Array, L: Array, transpose: bool) -> Array:
    xp = namespace(L, A)
    _square(L, "L")
    if xp is not np:
        return A @ (L.T if transpose else L)
    result = np.array(A, dtype=np.result_type(A, L), order="C")
    blas.multiply(_triangle(L, result.dtype), result, transpose=transpose)
    return result


def lower_over_lower(A: Array, L: Array) -> Array:
    """Return A L^-1 (m, m) for lower triangular A and L."""
    xp, m = namespace(A, L), _square(A, "A")
    if xp is not np:
        return xp.tril(unwhiten_rows(L, A))
    result = np.array(A, dtype=common_type(A, L), order="C")
    L = _divisor(L, result.dtype)
    for i in range(0, m, _WIDE):
        stop = min(i + _WIDE, m)
        blas.solve(L[:stop, :stop], result[i:stop, :stop])
    return result


def lower_of_columns(A: Array, B: Array) -> Array:
    """Return the lower triangle of A' B (m, m) for A and B (n, m), with zeros above it."""
    xp, m = namespace(A, B), A.shape[1]
    if xp is not np:
        return xp.tril(A.T @ B)
    result = np.zeros((m, m), np.result_type(A, B))
    for i in range(0, m, _WIDE):
        stop = min(i + _WIDE, m)
        np.matmul(A[:, i:stop].T, B[:, :stop], out=result[i:stop, :stop])
        corner = result[i:stop, i:stop]
        np.copyto(corner, 0, where=_above(stop - i))
    return result


def inverse_lower_t(L: Array) -> Array:
    """Return L^-T (m, m), upper triangular, in C order."""
    xp, m = namespace(L), _square(L, "L")
    if xp is not np:
        return _device_solve(L, xp.eye(m, dtype=L.dtype), 1)
    inverse = np.eye(m, dtype=common_type(L))
    L = _divisor(L, inverse.dtype)
    for i in range(0, m, _WIDE):
        blas.solve(L[i:, i:], inverse[i : i + _WIDE, i:], transpose=True)
    return inverse


def add_gram_lower(S: Array, A: Array) -> Array:
    """Add A'A to S in place and return S; only its lower triangle is guaranteed.

    Parameters
    ----------
    S : (m, m) array
        Running sum; its entries above the diagonal are undefined afterwards.
    A : (n, m) array
        Rows.  A float32 A with a float64 S is multiplied in float32 and added in float64.
    """
    xp = namespace(S, A)
    m = _square(S, "S")
    if A.ndim != 2 or A.shape[1] != m:
        raise InputError(f"A has shape {A.shape}, the sum has {m} columns: they must agree")
    if xp is np and S.dtype == A.dtype and A.flags.c_contiguous and S.flags.c_contiguous:
        blas.add_gram(S, A)  # NumPy's product fills both triangles, which takes a sixth longer
    else:
        S += xp.tril(A.T @ A)
    return S


def add_to_diagonal(A: Array, added: float | Array) -> None:
    """Add a number, or one per row, to the diagonal of A (m, m) in place."""
    diagonal = namespace(A).arange(len(A))
    A[diagonal, diagonal] += added


def row_squares(A: Array) -> Array:
    """Return the squared norms (n,) of the rows of A (n, m)."""
    squares: Array = namespace(A).einsum("ij,ij->i", A, A)
    return squares


def symmetrize(S: Array) -> Array:
    """Copy the lower triangle of S (m, m) to the upper one in place and return S."""
    xp = namespace(S)
    _square(S, "S")
    if xp is np:
        _mirror(S)
    else:
        S[...] = xp.tril(S) + xp.tril(S, -1).T
    return S


def logdet_factor(L: Array) -> float:
    """Return log |L L'|, that is 2 sum log diag L.

    Examples
    --------
    >>> logdet_factor(np.diag([1.0, np.e]))
    2.0
    """
    xp = namespace(L)
    return 2.0 * number(xp.log(xp.diagonal(L).astype(np.float64)).sum())


def inverse_from_factor(L: Array) -> Array:
    """Return (L L')^-1, both triangles, from the lower triangular factor L (m, m)."""
    xp = namespace(L)
    m = _square(L, "L")
    if xp is not np:
        half = _device_solve(L, xp.eye(m, dtype=L.dtype))
        return half.T @ half
    inverse = np.array(L, dtype=common_type(L), order="C")
    if m and (zero := blas.invert_product(inverse)):
        raise NumericalError(
            f"the {m} x {m} factor has a zero at diagonal entry {zero - 1}: it has no inverse"
        )
    return symmetrize(inverse)


def between_inverses(L: Array, M: Array) -> Array:
    """Return L^-T M L^-1 for symmetric M (m, m)."""
    xp, m = namespace(L, M), _square(L, "L")
    if xp is not np:
        full = solve_lower_t(L, solve_lower_t(L, M).T)
        return 0.5 * (full + full.T)
    result = unwhiten_rows(L, M)
    L = _triangle(L, result.dtype)
    for j in range(0, m, _WIDE):  # the lower triangle alone
        own = slice(j, min(j + _WIDE, m))
        blas.solve(L[j:, j:], result[j:, own], left=True, transpose=True)
    return symmetrize(result)


def common_type(*arrays: np.ndarray) -> Any:
    """Return float32 if all arrays are float32, else float64."""
    return np.float32 if all(a.dtype == np.float32 for a in arrays) else np.float64


def _square(A: Array, name: str) -> int:
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise InputError(f"{name} has shape {A.shape}: a square matrix is needed")
    return A.shape[0]
