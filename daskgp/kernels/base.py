"""What every kernel offers: value, diagonal, and the vector-Jacobian products of both.

Kernels are values: frozen, hashable, comparable, picklable.  Letters: X (n, d) and Z (m, d)
inputs, K = k(X, Z) a tile (n, m), K_bar the derivative of some objective by K.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from daskgp.backend import is_numpy, namespace, to_host
from daskgp.errors import InputError, SettingError
from daskgp.typing import Array

if TYPE_CHECKING:
    from daskgp.kernels.compose import Product, Sum

VARIANCE_BOUNDS = (1e-4, 1e4)
ALPHA_BOUNDS = (1e-2, 1e3)
PERIOD_BOUNDS = (1e-2, 1e1)  # times the range of the input
LENGTHSCALE_BOUNDS = (1e-3, 1e1)  # times the range of the input


class KernelGradient(NamedTuple):
    """Gradient of an objective through a kernel tile.

    ``log_parameters`` (k,) is always float64 on the host; ``X`` (n, d) and ``Z`` (m, d) have
    the dtype and device of the inputs.  ``Z`` is None where the kernel had one argument only.
    """

    log_parameters: np.ndarray
    X: Array
    Z: Array | None


class Pullback(Protocol):
    """From the cotangent K_bar (n, m) to the gradient; may be called more than once."""

    def __call__(self, K_bar: Array, overwrite: bool = False) -> KernelGradient:
        """The gradient; ``overwrite`` allows K_bar's memory to be used."""


class Kernel(ABC):
    """A covariance function k(x, z) of two rows of inputs."""

    @abstractmethod
    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> Array:
        """The tile K(X, Z).

        Parameters
        ----------
        X : (n, d) array
        Z : (m, d) array, optional
            K(X, X) without it, exactly symmetric and with the diagonal of ``diag``.
        out : (n, m) array, optional
            Where to put K, of the inputs' dtype.

        Returns
        -------
        (n, m) array
            Of the inputs' dtype (float32 or float64) on the inputs' device.

        Raises
        ------
        InputError
            If shapes do not agree with each other or with the kernel.
        """

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """The diagonal k(x, x) of K(X, X), shape (n,)."""

    @abstractmethod
    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[Array, Pullback]:
        """The tile K(X, Z) and the function from K_bar to the gradient.

        Both share one evaluation.  The function keeps K, so K comes back read-only: copy it
        to change it.  Without Z the gradients of both arguments are added up in ``.X``.

        Parameters
        ----------
        X : (n, d) array
        Z : (m, d) array, optional
        work : (tiles, n, m) array, optional
            Memory to work in, of the inputs' dtype; K is part of it and valid until it is used
            again.  Fresh memory can cost a loop over tiles as much time as the kernel.
        """

    @property
    @abstractmethod
    def tiles(self) -> int:
        """Tiles of memory that a pullback takes, K among them."""

    def vjp(self, X: Array, Z: Array | None, K_bar: Array) -> KernelGradient:
        """Gradient of sum(K_bar * K(X, Z)) with K_bar held fixed; K_bar is not modified."""
        _, pull = self.pullback(X, Z)
        return pull(K_bar)

    @abstractmethod
    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        """Gradient of sum(diag_bar * diag(X)) with diag_bar (n,) held fixed."""

    @property
    @abstractmethod
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the positive hyper-parameters, in the order of ``log_parameters``."""

    @property
    @abstractmethod
    def log_parameters(self) -> np.ndarray:
        """Natural logarithms of the hyper-parameters, (k,) float64; a lengthscale None is 1."""

    @abstractmethod
    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Kernel:
        """The same kernel with other hyper-parameters; ``values`` has shape (k,)."""

    @abstractmethod
    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        """Bounds (k, 2) of ``log_parameters`` for inputs whose columns have ranges ``spread``."""

    @abstractmethod
    def resolve(self, median: np.ndarray, distance: float) -> Kernel:
        """Fill in lengthscales left None, and spread ARD ones over the dimensions.

        Parameters
        ----------
        median : (d,) array
            Median distance between rows along each dimension, for ARD lengthscales.
        distance : float
            Median Euclidean distance between rows, for isotropic lengthscales; taken in
            proportion where the kernel acts on some dimensions only.

        Raises
        ------
        InputError
            If the kernel's dimensions do not fit d.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """A description that JSON can hold; ``from_dict`` reads it."""

    def __add__(self, other: Kernel | float) -> Sum:
        from daskgp.kernels.compose import Sum

        return Sum.of(self, other)

    def __radd__(self, other: float) -> Sum:
        from daskgp.kernels.compose import Sum

        return Sum.of(other, self)

    def __mul__(self, other: Kernel | float) -> Product:
        from daskgp.kernels.compose import Product

        return Product.of(self, other)

    def __rmul__(self, other: float) -> Product:
        from daskgp.kernels.compose import Product

        return Product.of(other, self)

    def _check_count(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        values = np.asarray(values, dtype=np.float64)
        names = self.parameter_names
        if values.shape != (len(names),):
            raise InputError(
                f"{len(names)} log-parameters are needed ({', '.join(names)}), "
                f"not an array of shape {values.shape}"
            )
        return values


class Inputs(NamedTuple):
    """Checked arguments of a kernel: Z is None for K(X, X)."""

    xp: Any
    X: Array
    Z: Array | None
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, m) of the tile."""
        return len(self.X), len(self.X if self.Z is None else self.Z)


def check_inputs(X: Array, Z: Array | None = None) -> Inputs:
    """The inputs as two-dimensional float32 or float64 arrays on one device."""
    xp = namespace(X, Z)
    if is_numpy(xp):
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
    given = [array for array in (X, Z) if array is not None]
    single = all(array.dtype == np.float32 for array in given)
    dtype: np.dtype[Any] = np.dtype(np.float32 if single else np.float64)
    X = X.astype(dtype, copy=False)
    return Inputs(xp, X, None if Z is None else Z.astype(dtype, copy=False), dtype)


def check_out(inputs: Inputs, out: Array | None) -> Array:
    """``out`` if it fits the tile, a new array if there is none."""
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
    """``tiles`` arrays of the tile's shape, cut out of ``work`` if there is one."""
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


def check_cotangent(inputs: Inputs, K_bar: Array) -> Array:
    """K_bar in the tile's dtype, InputError if its shape is another."""
    namespace(inputs.X, K_bar)
    if K_bar.shape != inputs.shape:
        raise InputError(f"K_bar has shape {K_bar.shape}, the tile {inputs.shape}: they must agree")
    return K_bar.astype(inputs.dtype, copy=False)


def select_columns(X: Array, active_dims: tuple[int, ...] | None, name: str) -> Array:
    """The columns a kernel acts on."""
    if active_dims is None:
        return X
    check_dims(active_dims, X.shape[1], name)
    return X[:, list(active_dims)]


def check_dims(active_dims: tuple[int, ...] | None, d: int, name: str) -> None:
    """InputError unless every active dimension is one of d columns."""
    if active_dims is not None and max(active_dims) >= d:
        raise InputError(
            f"{name} has active_dims={active_dims}, the inputs have {d} columns: "
            f"dimensions count from 0 to {d - 1}"
        )


def scatter_columns(gradient: Array, active_dims: tuple[int, ...] | None, d: int) -> Array:
    """The gradient of all d columns from that of the active ones."""
    if active_dims is None:
        return gradient
    full = namespace(gradient).zeros((len(gradient), d), dtype=gradient.dtype)
    full[:, list(active_dims)] = gradient
    return full


def column_sums(A: Array, B: Array) -> np.ndarray:
    """Sums over rows of A * B, (d,) float64 on the host."""
    return to_host((A.astype(np.float64) * B).sum(axis=0))


def read_only(K: Array) -> Array:
    """K, protected against writing where the array module can."""
    if is_numpy(namespace(K)):
        K = K.view()
        K.flags.writeable = False
    return K


def positive(value: Any, name: str) -> float:
    """A positive finite number, else SettingError."""
    if isinstance(value, bool | str) or not np.isscalar(value):
        raise SettingError(f"{name} must be a positive number, not {value!r}")
    number = float(value)  # type: ignore[arg-type]
    if not (math.isfinite(number) and number > 0):
        raise SettingError(f"{name} must be positive and finite, not {value!r}")
    return number


def positive_or_many(value: Any, name: str) -> float | tuple[float, ...]:
    """A positive number or a non-empty tuple of them, else SettingError."""
    if np.ndim(value) == 0:
        return positive(value.item() if isinstance(value, np.ndarray) else value, name)
    if np.ndim(value) != 1 or not len(value):
        raise SettingError(f"{name} must be a number or one number a dimension, not {value!r}")
    return tuple(positive(v, f"{name}[{i}]") for i, v in enumerate(value))


def dimensions(value: Any, name: str) -> tuple[int, ...] | None:
    """Distinct column numbers as a tuple, or None for all columns, else SettingError."""
    if value is None:
        return None
    dims = (value,) if isinstance(value, int | np.integer) else tuple(value)
    whole = all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in dims)
    if not (dims and whole and min(dims) >= 0 and len(set(dims)) == len(dims)):
        raise SettingError(
            f"active_dims of {name} must be distinct column numbers from 0, not {value!r}"
        )
    return tuple(int(v) for v in dims)


def exp_of_log(values: np.ndarray, like: float | tuple[float, ...] | None) -> Any:
    """Parameters from their logarithms: a tuple if ``like`` is one, else a float."""
    numbers = np.exp(values)
    return tuple(map(float, numbers)) if isinstance(like, tuple) else float(numbers[0])


def indexed(name: str, value: float | tuple[float, ...] | None) -> tuple[str, ...]:
    """Parameter names: ``name``, or ``name[0]``, ``name[1]``, ... for a tuple."""
    if isinstance(value, tuple):
        return tuple(f"{name}[{i}]" for i in range(len(value)))
    return (name,)
