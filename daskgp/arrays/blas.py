"""BLAS and LAPACK on arrays in C order, in place and side by side in threads.

SciPy's own functions hold Python's lock while they compute, so tasks in threads of one process wait
for one another, and NumPy has only some of the routines.  These are SciPy's, called at the
addresses that it publishes for Cython.  To them A in C order is A' in Fortran order, and the lower
triangle of A is the upper one of A'.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

_TYPES = {"f": ("s", ctypes.c_float), "d": ("d", ctypes.c_double)}
"""Letter of the routines and C type of numbers, by the letter of a dtype."""


def multiply(L: np.ndarray, A: np.ndarray, left: bool = False, transpose: bool = False) -> None:
    """Put A L, or L A if ``left``, in A's memory, with L' for L if ``transpose``.

    L is lower triangular, in C or Fortran order; its other triangle is not read.
    """
    _triangular("trmm", L, A, left, transpose)


def solve(L: np.ndarray, A: np.ndarray, left: bool = False, transpose: bool = False) -> None:
    """Put A L^-1, or L^-1 A if ``left``, in A's memory; as ``multiply``."""
    _triangular("trsm", L, A, left, transpose)


def add_outer(S: np.ndarray, A: np.ndarray, times: float) -> None:
    """Add ``times`` A A' to the lower triangle of S; the other one is neither read nor set."""
    _check_order(S, len(A))
    numbers = float(times), A, _leading(A), 1.0, S, _leading(S)
    _call("syrk", S, "U", "T", *A.shape, *numbers)


def add_gram(S: np.ndarray, A: np.ndarray) -> None:
    """Add A'A to the lower triangle of S; the other one is neither read nor set."""
    _check_order(S, A.shape[1])
    if A.size:
        _call("syrk", S, "U", "N", *A.shape[::-1], 1.0, A, _leading(A), 1.0, S, _leading(S))


def factor(A: np.ndarray) -> int:
    """Put the Cholesky factor of A in its lower triangle; the other one is neither read nor set.

    Returns
    -------
    int
        0, or the number from 1 of the first leading minor that is not positive.
    """
    return _call("potrf", A, "U", len(A), A, _leading(A), 0)


def invert_product(L: np.ndarray) -> int:
    """Put (L L')^-1 in the lower triangle of L; return 0, or the number from 1 of a zero in L."""
    return _call("potri", L, "U", len(L), L, _leading(L), 0)


def _triangular(routine: str, L: np.ndarray, A: np.ndarray, left: bool, transpose: bool) -> None:
    _check_order(L, A.shape[0 if left else 1])
    by_rows = L.shape[1] < 2 or L.strides[1] == L.itemsize
    side, triangle = "R" if left else "L", "U" if by_rows else "L"
    letters = side, triangle, "T" if transpose == by_rows else "N", "N"
    matrix = L if by_rows else L.T
    if A.size:
        _call(routine, A, *letters, *A.shape[::-1], 1.0, matrix, _leading(matrix), A, _leading(A))


@functools.cache
def _routine(name: str) -> Callable[..., None]:
    capsules: dict[str, Any] = {**cython_lapack.__pyx_capi__, **cython_blas.__pyx_capi__}
    capsule = capsules[name]
    python, of = ctypes.pythonapi, ctypes.PYFUNCTYPE
    signature_of = of(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))
    signature = signature_of(capsule)
    pointer_of = of(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address = pointer_of(("PyCapsule_GetPointer", python))(capsule, signature)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (signature.count(b",") + 1))(address)


@functools.cache
def _integer() -> Any:
    """Return the C type of integers, which is as wide as what potrf writes for its result."""
    A, order, info = np.ones((1, 1)), ctypes.c_int64(1), ctypes.c_int64(-1)
    n, last = ctypes.byref(order), ctypes.byref(info)
    _routine("dpotrf")(ctypes.c_char_p(b"U"), n, A.ctypes.data, n, last)
    return ctypes.c_int64 if info.value == 0 else ctypes.c_int


def _call(name: str, like: np.ndarray, *arguments: Any) -> int:
    """Call a routine that changes ``like``, all by address; return the last integer."""
    if not like.flags.writeable:
        raise ValueError("the array to change is read-only")
    letter, real = _TYPES[like.dtype.char]
    function, integer = _routine(letter + name), _integer()
    last, addresses = integer(0), list[Any]()
    for value in arguments:
        if isinstance(value, np.ndarray):
            if value.dtype != like.dtype:
                raise TypeError(f"arrays are {value.dtype} and {like.dtype}: they must agree")
            addresses.append(value.ctypes.data)
        elif isinstance(value, str):
            addresses.append(ctypes.c_char_p(value.encode()))
        elif isinstance(value, float):
            addresses.append(ctypes.byref(real(value)))
        else:
            last = integer(value)
            addresses.append(ctypes.byref(last))
    function(*addresses)
    return int(last.value)


def _check_order(square: np.ndarray, order: int) -> None:
    if square.shape != (order, order):
        raise ValueError(f"shapes {square.shape} and {(order, order)} do not agree")


def _leading(A: np.ndarray) -> int:
    """Return how many entries apart rows are; raise ValueError unless each is contiguous."""
    rows, columns = A.shape
    if not A.size:
        return max(columns, 1)
    apart, rest = divmod(A.strides[0], A.itemsize) if rows > 1 else (columns, 0)
    if (columns > 1 and A.strides[1] != A.itemsize) or rest or apart < columns:
        raise ValueError(f"strides {A.strides} of shape {A.shape}: rows must be contiguous")
    return apart
