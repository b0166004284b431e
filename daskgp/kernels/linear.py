"""The linear kernel."""

# ruff: noqa: D102 - the base class documents what its kernels override

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskgp.arrays.backend import namespace
from daskgp.arrays.linalg import product, symmetrize
from daskgp.checks import logs_of
from daskgp.errors import InputError, SettingError
from daskgp.kernels.base import VARIANCE_BOUNDS, Kernel, KernelGradient, Pullback, Unit
from daskgp.kernels.checks import (
    Dims,
    all_tied,
    check_cotangent,
    check_dims,
    check_inputs,
    check_out,
    check_work,
    column_sums,
    dimensions,
    exp_of_log,
    grouped,
    groups_of,
    indexed,
    members,
    named,
    one_if_open,
    positive_or_many,
    read_only,
    scatter_columns,
    select_columns,
)
from daskgp.typing import Array


@dataclass(frozen=True)
class Linear(Kernel):
    """Linear kernel, k = sum_d v_d x_d z_d.

    Parameters
    ----------
    variance : float or sequence of float, optional
        One for all dimensions or one per dimension.  None, one for all, counts as 1 when the kernel
        is called, and is found by ``fit``.
    active_dims : sequence of int or str, optional
        The columns the kernel acts on, by number or name; all by default.  A tuple among them is a
        group whose columns share a variance.

    Raises
    ------
    SettingError
        If a variance is not positive and finite.

    Examples
    --------
    >>> Linear(variance=(1.0, 0.5))(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[7.]])
    """

    variance: float | Sequence[float] | None = None
    active_dims: Dims | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        variance = self.variance
        if variance is not None:
            variance = positive_or_many(variance, "variance of Linear")
        dims = dimensions(self.active_dims, "Linear")
        number = None if dims is None or named(dims) else len(dims)
        if isinstance(variance, tuple) and number not in (None, len(variance)):
            raise SettingError(
                f"Linear has {len(variance)} variances for {number} active_dims: give one each"
            )
        object.__setattr__(self, "variance", variance)
        object.__setattr__(self, "active_dims", dims)

    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> np.ndarray:
        inputs = check_inputs(X, Z)
        xp, out = inputs.xp, check_out(inputs, out)
        A = self._columns(inputs.X)
        B = A if inputs.Z is None else self._columns(inputs.Z)
        product(A, (B * self._variances(B)).T, out)
        if inputs.Z is None:
            symmetrize(out)
            diagonal = xp.arange(len(out))
            out[diagonal, diagonal] = self.diag(X)
        return out

    def diag(self, X: Array) -> np.ndarray:
        A = self._columns(check_inputs(X).X)
        return (A * A * self._variances(A)).sum(axis=1)

    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        inputs = check_inputs(X)
        A = self._columns(inputs.X)
        X_bar = A * self._variances(A)
        X_bar *= diag_bar.astype(inputs.dtype)[:, None]
        by_log = self._by_log(column_sums(A, X_bar))
        X_bar = scatter_columns(2 * X_bar, self.active_dims, inputs.X.shape[1])
        return KernelGradient(by_log, X_bar, None)

    @property
    def tiles(self) -> int:
        return 1

    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[np.ndarray, Pullback]:
        inputs = check_inputs(X, Z)
        K = self(inputs.X, inputs.Z, out=check_work(inputs, work, self.tiles)[0])

        def pull(K_bar: Array, overwrite: bool = False) -> KernelGradient:
            K_bar = check_cotangent(inputs, K_bar)
            d = inputs.X.shape[1]
            A = self._columns(inputs.X)
            B = A if inputs.Z is None else self._columns(inputs.Z)
            variances = self._variances(A)
            X_bar, Z_bar = (K_bar @ B) * variances, (K_bar.T @ A) * variances
            by_log = self._by_log(column_sums(A, X_bar))
            X_bar = scatter_columns(X_bar, self.active_dims, d)
            Z_bar = scatter_columns(Z_bar, self.active_dims, d)
            if inputs.Z is None:
                return KernelGradient(by_log, X_bar + Z_bar, None)
            return KernelGradient(by_log, X_bar, Z_bar)

        return read_only(K), pull

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return indexed("variance", self.variance)

    @property
    def log_parameters(self) -> np.ndarray:
        return np.log(np.atleast_1d(1.0 if self.variance is None else self.variance))

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Linear:
        values = logs_of(self.parameter_names, values)
        return Linear(exp_of_log(values, self.variance), active_dims=self.active_dims)

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        self._check_dims(len(spread))
        return np.log([VARIANCE_BOUNDS] * len(self.parameter_names))

    def resolve(self, median: np.ndarray, distance: float) -> Linear:
        self._check_dims(len(median))
        if self.variance is not None:
            return self
        return Linear(1.0, active_dims=self.active_dims)

    def units(self, n_features: int) -> tuple[Unit, ...]:
        groups = groups_of(self.active_dims, n_features)
        many = isinstance(self.variance, tuple)
        together = groups if many else [tuple(j for group in groups for j in group)]
        return tuple(Unit(columns, -2, 2) for columns in together)

    def tied_columns(self, d: int) -> tuple[tuple[int, ...], ...]:
        tied = grouped if isinstance(self.variance, tuple) else all_tied
        return tied(self.active_dims, d, "Linear")

    def _columns(self, X: Array) -> np.ndarray:
        self._check_dims(X.shape[1])
        return select_columns(X, self.active_dims, "Linear")

    def _check_dims(self, d: int) -> None:
        check_dims(self.active_dims, d, "Linear")
        used = d if self.active_dims is None else len(self.active_dims)
        if isinstance(self.variance, tuple) and len(self.variance) != used:
            raise InputError(
                f"Linear has {len(self.variance)} variances, but the inputs have {used} columns: "
                "give one each, or a single one"
            )

    @property
    def _sizes(self) -> list[int] | None:
        """Numbers of columns that share each variance; None if each column has its own."""
        if not isinstance(self.variance, tuple) or self.active_dims is None:
            return None
        return [len(members(entry)) for entry in self.active_dims]

    def _variances(self, X: Array) -> Any:
        if isinstance(self.variance, Sequence):
            each = np.repeat(self.variance, self._sizes) if self._sizes else self.variance
            return namespace(X).asarray(each, dtype=X.dtype)
        return one_if_open(self.variance)

    def _by_log(self, sums: np.ndarray) -> np.ndarray:
        if not isinstance(self.variance, tuple):
            return np.asarray(sums.sum(keepdims=True))
        if self._sizes is None:
            return sums
        return np.asarray(np.add.reduceat(sums, np.cumsum([0, *self._sizes[:-1]])))
