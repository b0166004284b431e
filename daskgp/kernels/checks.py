"""Checks of kernels' arguments and settings, each with a message that says what to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from daskgp.arrays.backend import namespace, to_host
from daskgp.checks import parameter, shown
from daskgp.errors import InputError, SettingError
from daskgp.typing import Array

Dims: TypeAlias = Sequence[Any]
"""Active dimensions: numbers or names of columns, and tuples of them that share a lengthscale."""


class Inputs(NamedTuple):
    """Checked arguments of a kernel: Z is None for K(X, X)."""

    xp: Any
    X: Array
    Z: Array | None
    dtype: np.dtype
    shape: tuple[int, int]
    """Shape (n, m) of the tile."""


def check_inputs(X: Array, Z: Array | None = None) -> Inputs:
    """Return the inputs as two-dimensional float32 or float64 arrays on one device."""
    xp = namespace(X, Z)
    if xp is np:
        X = np.asarray(X)
        Z = None if Z is None else np.asarray(Z)
    for name, array in (("X", X), ("Z", Z)):
        if array is not None and array.ndim != 2:
            raise InputError(
                f"{name} has shape {array.shape}: kernels take (rows, columns), "
                "a single column being x[:, None]"
            )
    if Z is not None and X.shape[1] != Z.shape[1]:
        raise InputError(f"X has {X.shape[1]} columns, Z has {Z.shape[1]}: they must agree")
    single = X.dtype == np.float32 and (Z is None or Z.dtype == np.float32)
    dtype: np.dtype[Any] = np.dtype(np.float32 if single else np.float64)
    X = X.astype(dtype, copy=False)
    Z = None if Z is None else Z.astype(dtype, copy=False)
    return Inputs(xp, X, Z, dtype, (len(X), len(X if Z is None else Z)))


def check_out(inputs: Inputs, out: Array | None) -> np.ndarray:
    """Return ``out`` if it fits the tile, or a new array if it is None."""
    if out is None:
        return inputs.xp.empty(inputs.shape, dtype=inputs.dtype)
    namespace(inputs.X, out)
    if out.shape != inputs.shape or out.dtype != inputs.dtype:
        raise InputError(
            f"out is {out.dtype} of shape {out.shape}, "
            f"the tile is {inputs.dtype} of shape {inputs.shape}: they must agree"
        )
    return out


def check_work(inputs: Inputs, work: Array | None, tiles: int) -> Any:
    """Return ``tiles`` arrays of the tile's shape, cut out of ``work`` unless it is None."""
    if work is None:
        return [inputs.xp.empty(inputs.shape, dtype=inputs.dtype) for _ in range(tiles)]
    namespace(inputs.X, work)
    if work.ndim != 3 or len(work) < tiles or work.shape[1:] != inputs.shape:
        raise InputError(
            f"work has shape {work.shape}: this pullback needs {(tiles, *inputs.shape)}"
        )
    if work.dtype != inputs.dtype:
        raise InputError(f"work is {work.dtype}, the tile {inputs.dtype}: they must agree")
    return work[:tiles]


def check_cotangent(inputs: Inputs, K_bar: Array) -> np.ndarray:
    """Return K_bar in the tile's dtype; raise InputError if its shape is another."""
    namespace(inputs.X, K_bar)
    if K_bar.shape != inputs.shape:
        raise InputError(f"K_bar has shape {K_bar.shape}, the tile {inputs.shape}: they must agree")
    return K_bar.astype(inputs.dtype, copy=False)


def select_columns(X: Array, active_dims: Dims | None, name: str) -> np.ndarray:
    """Return the columns that a kernel acts on."""
    if active_dims is None:
        return X
    check_dims(active_dims, X.shape[1], name)
    return X[:, flat(active_dims)]


def flat(active_dims: Dims) -> list[Any]:
    """Return active dimensions one by one, those of groups too."""
    return [j for entry in active_dims for j in members(entry)]


def members(entry: Any) -> tuple[Any, ...]:
    """Return the columns of an active dimension: itself, or those of a group."""
    return entry if isinstance(entry, tuple) else (entry,)


def groups_of(active_dims: Dims | None, d: int) -> list[tuple[int, ...]]:
    """Return the columns of each active dimension; each of d columns by itself for None."""
    return [members(entry) for entry in (range(d) if active_dims is None else active_dims)]


def check_dims(active_dims: Dims | None, d: int, name: str, setting: str = "active_dims") -> None:
    """Raise InputError unless every active dimension is one of d columns."""
    if active_dims is None:
        return
    if named(active_dims):
        raise InputError(
            f"{name} has {setting}={shown(active_dims)}, names of features that an estimator's "
            "fit knows: give column numbers to call the kernel itself"
        )
    if max(flat(active_dims)) >= d:
        raise InputError(
            f"{name} has {setting}={shown(active_dims)}, but the inputs have {d} columns: "
            f"dimensions count from 0 to {d - 1}"
        )


def named(active_dims: Dims | None) -> bool:
    """Return True if active dimensions are names, which ``kernels.columns`` resolves."""
    return active_dims is not None and any(isinstance(j, str) for j in flat(active_dims))


def all_tied(active_dims: Dims | None, d: int, name: str) -> tuple[tuple[int, ...], ...]:
    """Return the columns that a kernel acts on as one group, or no group if there is only one."""
    check_dims(active_dims, d, name)
    dims = range(d) if active_dims is None else sorted(flat(active_dims))
    return (tuple(dims),) if len(dims) > 1 else ()


def grouped(active_dims: Dims | None, d: int, name: str) -> tuple[tuple[int, ...], ...]:
    """Return the groups of two or more columns among the active dimensions."""
    check_dims(active_dims, d, name)
    entries = (tuple(sorted(group)) for group in groups_of(active_dims, d))
    return tuple(sorted(group for group in entries if len(group) > 1))


def scatter_columns(gradient: Array, active_dims: Dims | None, d: int) -> np.ndarray:
    """Return the gradient of all d columns from that of the active ones."""
    if active_dims is None:
        return gradient
    full = namespace(gradient).zeros((len(gradient), d), dtype=gradient.dtype)
    full[:, flat(active_dims)] = gradient
    return full


def column_sums(A: Array, B: Array) -> np.ndarray:
    """Sum A * B over rows, (d,) float64 on the host."""
    return to_host((A.astype(np.float64) * B).sum(axis=0))


def read_only(K: Array) -> np.ndarray:
    """Return K, write-protected if the array module can do so."""
    if namespace(K) is np:
        K = K.view()
        K.flags.writeable = False
    return K


def positive_or_open(value: Any, name: str) -> float | None:
    """Return a positive finite number, or None for one that a fit finds."""
    return None if value is None else parameter(value, name)


def one_if_open(value: float | None) -> float:
    """Return a number, 1 for one that a fit finds."""
    return 1.0 if value is None else value


def positive_or_many(value: Any, name: str) -> float | tuple[float, ...]:
    """Return a positive number or a non-empty tuple of them, else raise SettingError."""
    try:
        dimension = np.ndim(value)
    except ValueError:  # lists of different lengths
        dimension = 2
    if dimension == 0:
        return parameter(value.item() if isinstance(value, np.ndarray) else value, name)
    if dimension != 1 or not len(value):
        raise SettingError(
            f"{name} must be a number or one number per dimension, not {shown(value)}"
        )
    return tuple(parameter(v, f"{name}[{i}]") for i, v in enumerate(value))


def dimensions(value: Any, name: str, setting: str = "active_dims") -> Dims | None:
    """Return distinct columns as a tuple, None for all columns, else raise SettingError.

    They are numbers from 0 or names; a tuple of them is a group that shares a lengthscale.
    """
    if value is None:
        return None
    entries = (value,) if isinstance(value, int | np.integer | str) else tuple(value)
    dims = tuple(
        tuple(map(column_of, entry)) if isinstance(entry, tuple | list) else column_of(entry)
        for entry in entries
    )
    each = flat(dims)
    if not (all(map(members, dims)) and each and None not in each and len(set(each)) == len(each)):
        raise SettingError(
            f"{setting} of {name} must be distinct column numbers from 0 or names of features, "
            f"not {shown(value)}"
        )
    return dims


def column_of(value: Any) -> int | str | None:
    """Return a column number or name; None for anything else."""
    if isinstance(value, str):
        return value or None
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return int(value) if whole and value >= 0 else None


def exp_of_log(values: np.ndarray, like: float | Sequence[float] | np.ndarray | None) -> Any:
    """Return parameters from their logarithms: a tuple if ``like`` is one, else a float."""
    numbers = np.exp(values)
    return tuple(map(float, numbers)) if isinstance(like, tuple) else float(numbers[0])


def indexed(name: str, value: float | Sequence[float] | np.ndarray | None) -> tuple[str, ...]:
    """Return parameter names: ``name``, or ``name[0]``, ``name[1]``, ... for a tuple."""
    if isinstance(value, tuple):
        return tuple(f"{name}[{i}]" for i in range(len(value)))
    return (name,)
