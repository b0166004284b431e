"""Kernels over categories: a column of codes 0, 1, ... says which variable a row is of, or station.

Letters: L the number of levels, c(x) the code of a row, B (L, L) the covariance of the levels.
"""

# ruff: noqa: D102 - the base class documents what its kernels override

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from daskgp.arrays.backend import namespace, number, to_host
from daskgp.checks import logs_of, parameter, shown, whole
from daskgp.errors import InputError, SettingError
from daskgp.kernels.base import (
    VARIANCE_BOUNDS,
    Derived,
    Kernel,
    KernelGradient,
    Pullback,
    Unit,
)
from daskgp.kernels.checks import (
    check_cotangent,
    check_inputs,
    check_out,
    check_work,
    column_of,
    one_if_open,
    positive_or_many,
    positive_or_open,
    read_only,
)
from daskgp.kernels.radial import replaced
from daskgp.typing import Array

ANGLE_BOUNDS = (0.01, np.pi - 0.01)
SIGNED_BOUNDS = (0.01, np.pi / 2)
"""Bounds of an angle whose cosine would otherwise have either sign for the same covariance."""
CORRELATION_BOUNDS = (1e-3, 1.0 - 1e-3)
START = 0.5
"""Correlation of two levels, or about it, that training starts from."""

Levels: TypeAlias = int | Sequence[str] | None
"""Number of the levels or their names in the order of their codes; None while it is open."""


class Table(Kernel):
    """Base class of kernels of one column of codes, k(x, z) = B[c(x), c(z)].

    A class derived from it is a frozen dataclass with the fields ``column`` and ``levels``, and has
    ``covariance`` and ``slopes``.
    """

    column: int | str | None
    levels: Levels

    @property
    @abstractmethod
    def covariance(self) -> np.ndarray:
        """B (L, L), exactly symmetric.

        Examples
        --------
        >>> Categorical(0, 0.5, levels=2).covariance
        array([[1. , 0.5],
               [0.5, 1. ]])
        """

    @abstractmethod
    def slopes(self) -> np.ndarray:
        """Return the derivatives (k, L, L) of B by the logarithms of the hyper-parameters.

        Examples
        --------
        >>> Categorical(0, 0.5, levels=2).slopes()[1]  # by the correlation
        array([[0. , 0.5],
               [0.5, 0. ]])
        """

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of the levels, their codes where they have none; empty while they are open.

        Examples
        --------
        >>> Categorical(0, levels=2).level_names
        ('0', '1')
        """
        names = self.levels
        if isinstance(names, Sequence):
            return tuple(names)
        return tuple(map(str, range(names or 0)))

    def _settle(self) -> None:
        """Check column and levels and keep them in one form."""
        kind = type(self).__name__
        if self.column is not None and column_of(self.column) is None:
            raise SettingError(
                f"column of {kind} must be the number of a column, from 0, or the name of a "
                f"feature, not {shown(self.column)}"
            )
        object.__setattr__(self, "column", column_of(self.column))
        object.__setattr__(self, "levels", _levels(self.levels, kind))

    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> np.ndarray:
        inputs = check_inputs(X, Z)
        out = check_out(inputs, out)
        x = self.codes(inputs.X)
        z = x if inputs.Z is None else self.codes(inputs.Z)
        out[...] = inputs.xp.asarray(self.covariance, dtype=inputs.dtype)[x][:, z]
        return out

    def diag(self, X: Array) -> np.ndarray:
        inputs = check_inputs(X)
        variances = inputs.xp.asarray(np.diag(self.covariance), dtype=inputs.dtype)
        return variances[self.codes(inputs.X)]

    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        inputs = check_inputs(X)
        own = self._indicators(inputs.X, np.dtype(np.float64))
        B_bar = np.diag(to_host(own.T @ diag_bar.astype(np.float64)))
        return KernelGradient(self._by_log(B_bar), inputs.xp.zeros_like(inputs.X), None)

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
            x = self._indicators(inputs.X, inputs.dtype)
            z = x if inputs.Z is None else self._indicators(inputs.Z, inputs.dtype)
            B_bar = (x.T @ K_bar).astype(np.float64) @ z.astype(np.float64)
            zeros = inputs.xp.zeros_like
            Z_bar = None if inputs.Z is None else zeros(inputs.Z)
            return KernelGradient(self._by_log(to_host(B_bar)), zeros(inputs.X), Z_bar)

        return read_only(K), pull

    def _indicators(self, X: Array, dtype: np.dtype[Any]) -> np.ndarray:
        """Return the matrix (n, L) that is 1 at the level of each row and 0 elsewhere."""
        levels = namespace(X).arange(len(self.level_names))
        return (self.codes(X)[:, None] == levels).astype(dtype)

    def _by_log(self, B_bar: np.ndarray) -> np.ndarray:
        """Return the gradient (k,) from that by the entries of B (L, L)."""
        return np.asarray(np.tensordot(self.slopes(), B_bar, 2))

    def codes(self, X: Array) -> np.ndarray:
        """Return the codes (n,) of rows X (n, d) as integers.

        Raises
        ------
        InputError
            If one is not a whole number from 0 to L - 1, or the kernel has no levels.

        Examples
        --------
        >>> Categorical(1, levels=2).codes(np.array([[0.3, 1.0], [0.7, 0.0]]))
        array([1, 0])
        """
        count = self._count(X.shape[1])
        (column,) = self.categories(X.shape[1])
        return check_codes(X[:, column], count, column)

    def _count(self, d: int) -> int:
        """Return the number of levels for inputs of d columns; InputError if anything is open."""
        self.categories(d)
        self._check_levels()
        return len(self.level_names)

    def _check_levels(self) -> None:
        if self.levels is None:
            raise InputError(
                f"{type(self).__name__} of column {self.column!r} has no levels yet: give their "
                "number or names, levels=3"
            )

    def categories(self, d: int) -> tuple[int, ...]:
        kind = type(self).__name__
        if self.column is None:
            raise InputError(f"{kind} has no column: give that of the codes, {kind}(0)")
        if isinstance(self.column, str):
            raise InputError(
                f"{kind} has column={self.column!r}, the name of a feature that an estimator's fit "
                "knows: give its number to call the kernel itself"
            )
        if self.column >= d:
            raise InputError(
                f"{kind} has column={self.column}, but the inputs have {d} columns: they count "
                f"from 0 to {d - 1}"
            )
        return (self.column,)


@dataclass(frozen=True)
class Coregion(Table):
    """Kernel of any covariances of levels, k(x, z) = B[c(x), c(z)].

    Times a kernel of other columns it is the linear model of coregionalisation of variables that
    are observed at different places.  B_ij = s_i s_j u_i'u_j with variances s_i^2 and unit vectors
    u_i = (cos a_1, sin a_1 cos a_2, ..., sin a_1 ... sin a_m) of angles between 0 and pi.

    Parameters
    ----------
    column : int or str
        The column of the codes 0, 1, ..., L - 1, by number or name.
    rank : int, optional
        None for any positive definite B, level i having i angles.  For rank r, B = WW' + D with W
        (L, r) and D diagonal; the full form if it has no more hyper-parameters.
    variance : float or sequence of float, optional
        Variances s_i^2 of the levels.  What is None begins at 1, and angles at correlations of
        about 1/2, and is found by ``fit``.
    angle : sequence of float, optional
        Angles in radians, those of one level after another.
    levels : int or sequence of str, optional
        Their number or their names, in the order of the codes; by default as many as there are
        variances.

    Raises
    ------
    SettingError
        If a parameter is not positive and finite, or their numbers do not fit the levels.

    Examples
    --------
    >>> import numpy as np
    >>> k = Coregion(0, variance=(1.0, 4.0), angle=[np.pi / 3])  # cos(pi / 3) = 1/2
    >>> k(np.array([[0.0], [1.0]])).round(6)
    array([[1., 1.],
           [1., 4.]])
    """

    column: int | str | None = None
    rank: int | None = None
    variance: float | Sequence[float] | None = field(default=None, kw_only=True)
    angle: Sequence[float] | None = field(default=None, kw_only=True)
    levels: Levels = field(default=None, kw_only=True)

    name: ClassVar[str] = "coregion"

    def __post_init__(self) -> None:
        self._settle()
        variance, angle = self.variance, self.angle
        if self.rank is not None:
            object.__setattr__(self, "rank", whole("rank of Coregion", self.rank, 1))
        if variance is not None:
            variance = positive_or_many(variance, "variance of Coregion")
        if isinstance(variance, tuple) and self.levels is None:
            object.__setattr__(self, "levels", len(variance))
        if self.levels is None:
            if angle is not None:
                raise SettingError("Coregion has angles but no levels: give their number, levels=2")
        elif variance is not None and not isinstance(variance, tuple):
            variance = (variance,) * len(self.level_names)
        object.__setattr__(self, "variance", variance)
        if isinstance(variance, tuple):
            self._check_number("variances", variance, len(self.level_names))
        if angle is not None:
            angle = tuple(parameter(a, f"angle[{i}] of Coregion") for i, a in enumerate(angle))
            self._check_number("angles", angle, sum(self._angle_counts))
            object.__setattr__(self, "angle", angle)

    def check_rank(self, count: int) -> None:
        """Raise SettingError for a rank of more than the number of levels, which fits refuse.

        Examples
        --------
        >>> Coregion(0, rank=2).check_rank(3)
        """
        if self.rank is not None and self.rank > count:
            raise SettingError(
                f"Coregion has rank={self.rank} for {count} levels: give at most {count}, or leave "
                "rank out for any covariance"
            )

    def _check_number(self, what: str, values: tuple[float, ...], needed: int) -> None:
        if len(values) != needed:
            raise SettingError(
                f"Coregion has {len(values)} {what} for {len(self.level_names)} levels: give "
                f"{needed}"
            )

    @property
    def _angle_counts(self) -> list[int]:
        """Numbers of the angles of the levels."""
        full = list(range(len(self.level_names)))
        low = full if self.rank is None else [min(i + 1, self.rank) for i in full]
        return low if sum(low) < sum(full) else full

    @property
    def _is_full(self) -> bool:
        counts = self._angle_counts
        return counts == list(range(len(counts)))

    @property
    def _parts(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Variances (L,), and the angles of each level."""
        counts = self._angle_counts
        variances = np.full(len(counts), 1.0) if self.variance is None else self.variance
        angles = self._start() if self.angle is None else np.asarray(self.angle)
        each = np.broadcast_to(np.asarray(variances), len(counts))
        return each, np.split(angles, np.cumsum(counts)[:-1])

    def _start(self) -> np.ndarray:
        """Return angles (a,) of correlations of about ``START``."""
        counts = self._angle_counts
        L = len(counts)
        if not sum(counts):
            return np.zeros(0)
        if self._is_full:
            C = np.linalg.cholesky(START + (1.0 - START) * np.eye(L))
            return np.concatenate([_angles(C[i, : i + 1]) for i in range(L)])
        units = [np.append(np.full(m, np.sqrt(START / m)), np.sqrt(1 - START)) for m in counts]
        return np.concatenate([_angles(u) for u in units])

    def _placed(self, i: int, u: np.ndarray) -> np.ndarray:
        """Return a vector of level i in the columns of all vectors: its last may be its own."""
        counts = self._angle_counts
        shared = 0 if self._is_full else max(counts)
        placed = np.zeros(shared + len(counts))
        placed[: counts[i]], placed[shared + i] = u[:-1], u[-1]
        return placed

    @property
    def _vectors(self) -> np.ndarray:
        """The vectors u_i, one a row."""
        angles = self._parts[1]
        return np.array([self._placed(i, _unit(own)) for i, own in enumerate(angles)])

    @property
    def correlation(self) -> np.ndarray:
        """Correlations u_i'u_j (L, L) of the levels.

        Examples
        --------
        >>> Coregion(0, variance=(1.0, 4.0), angle=[np.pi / 3]).correlation.round(6)
        array([[1. , 0.5],
               [0.5, 1. ]])
        """
        self._check_levels()
        U = self._vectors
        half = np.tril(U @ U.T, -1)
        return np.asarray(half + half.T + np.eye(len(U)))

    @property
    def covariance(self) -> np.ndarray:
        """Covariance B (L, L) of the levels.

        Examples
        --------
        >>> Coregion(0, variance=(1.0, 4.0), angle=[np.pi / 3]).covariance.round(6)
        array([[1., 1.],
               [1., 4.]])
        """
        B, variances = self.correlation, self._parts[0]
        s = np.sqrt(variances)
        B *= np.outer(s, s)
        np.fill_diagonal(B, variances)
        return B

    def slopes(self) -> np.ndarray:
        (variances, angles), U, B = self._parts, self._vectors, self.covariance
        s, L = np.sqrt(variances), len(variances)
        by_log = np.zeros((len(self.parameter_names), L, L))
        for i in range(L):
            by_log[i, i] += 0.5 * B[i]
            by_log[i, :, i] += 0.5 * B[i]
        turns = ((i, j) for i, own in enumerate(angles) for j in range(len(own)))
        for at, (i, j) in enumerate(turns, L):
            turned = angles[i].copy()
            turned[j] += np.pi / 2  # its cosine is the derivative of the sine, and so on
            step = _unit(turned)
            step[:j] = 0.0
            row = angles[i][j] * s[i] * s * (U @ self._placed(i, step))
            row[i] = 0.0
            by_log[at, i], by_log[at, :, i] = row, row
        return by_log

    @property
    def parameter_names(self) -> tuple[str, ...]:
        names = self.level_names
        pairs = ((i, j) for i, m in enumerate(self._angle_counts) for j in range(m))
        # angle j of a level is that with the axis that level j brings, unless these are shared
        axes = names if self._is_full else tuple(map(str, range(len(names))))
        angles = (f"angle[{names[i]},{axes[j]}]" for i, j in pairs)
        return (*(f"variance[{name}]" for name in names), *angles)

    @property
    def log_parameters(self) -> np.ndarray:
        variances, angles = self._parts
        return np.log(np.concatenate([variances, *angles]))

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Any:
        values = np.exp(logs_of(self.parameter_names, values)).tolist()
        L = len(self.level_names)
        return replaced(self, variance=tuple(values[:L]), angle=tuple(values[L:]))

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        self.categories(len(spread))
        counts, full = self._angle_counts, self._is_full
        angles = [
            SIGNED_BOUNDS if not full and j == i else ANGLE_BOUNDS
            for i, m in enumerate(counts)
            for j in range(m)
        ]
        pairs = np.array([VARIANCE_BOUNDS] * len(counts) + angles, np.float64)
        return np.log(pairs.reshape(-1, 2))

    def resolve(self, median: np.ndarray, distance: float) -> Any:
        self._count(len(median))
        variances, angles = self._parts
        each = tuple(map(float, np.concatenate(angles)))
        return replaced(self, variance=tuple(map(float, variances)), angle=each)

    def units(self, n_features: int) -> tuple[Unit, ...]:
        (column,), L = self.categories(n_features), len(self.level_names)
        own = tuple(Unit((), 0, 2, (column, i)) for i in range(L))
        return own + (Unit(),) * sum(self._angle_counts)

    def derived(self) -> tuple[Derived, ...]:
        C, names = self.correlation, self.level_names
        slopes, root = self.slopes(), np.sqrt(np.diag(self.covariance))
        by_log = slopes / np.outer(root, root)
        by_log[: len(names)] = 0.0  # variances leave correlations as they are
        return tuple(
            Derived(f"correlation[{names[j]},{names[i]}]", float(C[i, j]), by_log[:, i, j])
            for i in range(len(names))
            for j in range(i)
        )


@dataclass(frozen=True)
class Categorical(Table):
    """Kernel of levels that are all alike, k(x, z) = v where they are the same, v rho elsewhere.

    Times a kernel of other columns it shares what is the same at all levels, such as stations or
    sensors, and leaves each its own: B = v (rho 11' + (1 - rho) I), with two hyper-parameters for
    any number of levels.

    Parameters
    ----------
    column : int or str
        The column of the codes 0, 1, ..., L - 1, by number or name.
    correlation : float, optional
        Correlation rho of two levels, between 0 and 1; None begins at 1/2, and is found by ``fit``.
    variance : float, optional
        k(x, x).  None counts as 1 when the kernel is called, and is found by ``fit``.
    levels : int or sequence of str, optional
        Their number or their names, in the order of the codes.

    Raises
    ------
    SettingError
        If a parameter is not positive and finite.

    Examples
    --------
    >>> import numpy as np
    >>> k = Categorical(0, correlation=0.25, variance=2.0, levels=("rural", "urban"))
    >>> k(np.array([[0.0], [1.0]]))
    array([[2. , 0.5],
           [0.5, 2. ]])
    """

    column: int | str | None = None
    correlation: float | None = None
    variance: float | None = None
    levels: Levels = field(default=None, kw_only=True)

    name: ClassVar[str] = "categorical"
    parameter_names: ClassVar[tuple[str, ...]] = ("variance", "correlation")

    def __post_init__(self) -> None:
        self._settle()
        for key in ("variance", "correlation"):
            value = positive_or_open(getattr(self, key), f"{key} of Categorical")
            object.__setattr__(self, key, value)

    @property
    def covariance(self) -> np.ndarray:
        """Covariance B (L, L) of the levels.

        Examples
        --------
        >>> Categorical(0, 0.5, levels=2).covariance
        array([[1. , 0.5],
               [0.5, 1. ]])
        """
        self._check_levels()
        v, rho = np.exp(self.log_parameters)
        L = len(self.level_names)
        return np.asarray(v * (rho + (1.0 - rho) * np.eye(L)))

    def slopes(self) -> np.ndarray:
        v, rho = np.exp(self.log_parameters)
        L = len(self.level_names)
        return np.array([self.covariance, v * rho * (1.0 - np.eye(L))])

    @property
    def log_parameters(self) -> np.ndarray:
        rho = START if self.correlation is None else self.correlation
        return np.log([one_if_open(self.variance), rho])

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Any:
        v, rho = map(float, np.exp(logs_of(self.parameter_names, values)))
        return replaced(self, variance=v, correlation=rho)

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        self.categories(len(spread))
        return np.log([VARIANCE_BOUNDS, CORRELATION_BOUNDS])

    def resolve(self, median: np.ndarray, distance: float) -> Any:
        self._count(len(median))
        rho = START if self.correlation is None else self.correlation
        if rho >= 1.0:
            raise SettingError(f"Categorical has correlation={rho:g}: give one between 0 and 1")
        return replaced(self, variance=one_if_open(self.variance), correlation=rho)

    def units(self, n_features: int) -> tuple[Unit, ...]:
        return (Unit((), 0, 2), Unit())


def with_levels(kernel: Kernel, levels: Mapping[Any, Any]) -> Kernel:
    """Return a kernel whose parts over categories have levels, by their columns.

    Parameters
    ----------
    kernel : Kernel
        Sums and products are gone through.
    levels : mapping of int or str to int or sequence of str
        Number or names of the levels of columns, which are named as the kernel names them; columns
        that it does not name stay as they are.

    Raises
    ------
    SettingError
        If a part has levels already, and they are others.

    Examples
    --------
    >>> from daskgp.kernels import Matern32
    >>> kernel = with_levels(Matern32() * Coregion("variable"), {"variable": ("no2", "pm10")})
    >>> kernel.parts[1].parameter_names
    ('variance[no2]', 'variance[pm10]', 'angle[pm10,no2]')
    """

    def settled(table: Table) -> Kernel:
        if table.column is None or table.column not in levels:
            return table
        kind, found = type(table).__name__, _levels(levels[table.column], type(table).__name__)
        count = found if isinstance(found, int) else len(found or ())
        known = table.levels
        others = isinstance(known, tuple) and isinstance(found, tuple) and known != found
        if known is not None and (others or len(table.level_names) != count):
            raise SettingError(
                f"{kind} of column {table.column!r} has levels={shown(known)}, but the column has "
                f"{shown(found)}: leave levels out, or give those of the column"
            )
        return table if isinstance(known, tuple) else replaced(table, levels=found)

    return _with_tables(kernel, settled)


def with_name(kernel: Kernel, column: int, name: str) -> Kernel:
    """Return a kernel whose parts over categories have the name of a column for its number.

    Examples
    --------
    >>> with_name(Coregion(2, levels=2), 2, "target").column
    'target'
    """

    def named(table: Table) -> Kernel:
        return replaced(table, column=name) if table.column == column else table

    return _with_tables(kernel, named)


def with_new_level(kernel: Kernel) -> Kernel:
    """Return a kernel whose parts over categories have one more level, of which nothing is known.

    In a `Categorical` kernel it is as the others are to one another; in a `Coregion` it is
    independent of them and has their mean variance.

    Examples
    --------
    >>> with_new_level(Coregion(0, variance=(1.0, 3.0), angle=[np.pi / 3])).covariance.round(6)
    array([[1.      , 0.866025, 0.      ],
           [0.866025, 3.      , 0.      ],
           [0.      , 0.      , 2.      ]])
    """
    return _with_tables(kernel, _wider)


def _wider(table: Table) -> Table:
    """Return a kernel of one more level."""
    count = len(table.level_names) + 1
    if not isinstance(table, Coregion):
        return replaced(table, levels=count)
    variances, angles = table._parts
    wider = Coregion(table.column, table.rank, levels=count)
    right = np.full(wider._angle_counts[-1], np.pi / 2)  # which are those of its own axis
    flat = np.concatenate([*angles, right]).tolist()
    return replaced(wider, variance=(*variances, float(np.mean(variances))), angle=tuple(flat))


def with_more_levels(kernel: Kernel, levels: Mapping[int, tuple[str, ...]]) -> Kernel:
    """Return a kernel whose parts over categories have more levels, by their columns.

    They begin as `with_new_level` has them.  A part stays as it is where its own levels are not
    among these, and a `Coregion` where they are not the first.

    Examples
    --------
    >>> with_more_levels(Categorical(0, 0.5, levels=("b",)), {0: ("a", "b")}).level_names
    ('a', 'b')
    """

    def wider(table: Table) -> Kernel:
        own = table.level_names
        wanted = levels.get(table.column, ()) if isinstance(table.column, int) else ()
        first = own == wanted[: len(own)]
        if not {*own} < {*wanted} or (isinstance(table, Coregion) and not first):
            return table
        for _ in wanted[len(own) :]:
            table = _wider(table)
        return replaced(table, levels=wanted)

    return _with_tables(kernel, wider)


def with_open_levels(kernel: Kernel) -> Kernel:
    """Return a kernel whose parts over categories find the names of their levels in the rows.

    Of a `Coregion` hyper-parameters are open, too, as their number is that of the levels.

    Examples
    --------
    >>> with_open_levels(Categorical(0, 0.5, levels=("a", "b")))
    Categorical(column=0, correlation=0.5, variance=None, levels=None)
    """

    def opened(table: Table) -> Kernel:
        if not isinstance(table.levels, tuple):
            return table
        if isinstance(table, Coregion):
            return Coregion(table.column, table.rank)
        return replaced(table, levels=None)

    return _with_tables(kernel, opened)


def _with_tables(kernel: Kernel, change: Callable[[Table], Kernel]) -> Kernel:
    """Return a kernel whose parts over categories are changed, also within others."""
    parts: Any = getattr(kernel, "parts", None)
    if parts is not None:
        made: Any = kernel
        changed: Kernel = made.with_parts(tuple(_with_tables(part, change) for part in parts))
        return changed
    return change(kernel) if isinstance(kernel, Table) else kernel


def check_codes(values: Array, count: int, column: int) -> np.ndarray:
    """Return codes of a column as integers; InputError unless all are below ``count``."""
    wrong = ~((values >= 0) & (values < count) & (values == namespace(values).rint(values)))
    if number(wrong.any()):
        raise InputError(
            f"column {column} has {number(values[wrong][0]):.6g}, which is not a code of its "
            f"{count} "
            f"categories: give whole numbers from 0 to {count - 1}"
        )
    return values.astype(np.int64)


def _levels(value: Any, kind: str) -> Levels:
    """Return a number of levels, or their names; SettingError for anything else."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        return whole(f"levels of {kind}", value, 1)
    if not value or not all(isinstance(name, str) and name for name in value):
        raise SettingError(f"levels of {kind} must be a number or names, not {shown(value)}")
    if len(set(value)) < len(value):
        raise SettingError(f"levels of {kind} has a name twice: {shown(value)}")
    return tuple(value)


def _unit(angles: np.ndarray) -> np.ndarray:
    """Return the unit vector (m + 1,) of angles (m,)."""
    heads = np.cumprod(np.append(1.0, np.sin(angles)))
    return np.asarray(heads * np.append(np.cos(angles), 1.0))


def _angles(unit: np.ndarray) -> np.ndarray:
    """Return the angles (m,) of a unit vector (m + 1,) whose last entry is positive."""
    rest = np.sqrt(np.cumsum(unit[:0:-1] ** 2))[::-1]
    return np.arctan2(rest, unit[:-1])
