"""Sums and products of kernels; the parameters of part i are prefixed "i."."""

# ruff: noqa: D102 - the base class documents what its kernels override

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from scipy.linalg import block_diag

from daskgp.arrays.backend import namespace, number
from daskgp.checks import logs_of, shown
from daskgp.errors import SettingError
from daskgp.kernels.base import (
    OPERATORS,
    VARIANCE_BOUNDS,
    Derived,
    Kernel,
    KernelGradient,
    Pullback,
    Unit,
)
from daskgp.kernels.categories import Coregion, Table
from daskgp.kernels.checks import (
    Inputs,
    check_cotangent,
    check_inputs,
    check_out,
    check_work,
    one_if_open,
    positive_or_open,
    read_only,
)
from daskgp.kernels.weights import WeightedGradient, Weights
from daskgp.typing import Array

K = TypeVar("K", bound=Kernel)

COMPOSITES: dict[str, type[Kernel]] = {}
"""Classes of sums and products by name."""


@dataclass(frozen=True)
class Composite(Kernel):
    """Base class of sums and products: everything about parameters, nothing about values.

    Parameters
    ----------
    parts : tuple of Kernel
        At least one; a part of the composite's own kind is flattened by ``of``.
    """

    parts: tuple[Kernel, ...]

    _known: ClassVar[dict[str, type[Kernel]]] = COMPOSITES
    _spare: ClassVar[int] = 0
    """Tiles that the gradient takes beyond K and those of the parts."""
    _with: ClassVar[Callable[[Any, Any], Any]]
    """Adds to an array, or multiplies it, in place."""
    _of_numbers: ClassVar[Callable[[Any], Any]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise SettingError(f"a {self.name} of kernels needs at least one part")
        for part in self.parts:
            if not isinstance(part, Kernel):
                raise SettingError(f"a {self.name} of kernels cannot hold {shown(part)}")

    @classmethod
    def of(cls, *parts: Kernel | float) -> Self:
        """Return the composite of kernels and positive numbers, flattened.

        Examples
        --------
        >>> from daskgp.kernels import RBF, Sum
        >>> len(Sum.of(RBF(1.0), Sum.of(RBF(2.0), 0.5)).parts)
        3
        """
        flat: list[Kernel] = []
        for part in parts:
            if isinstance(part, type) and issubclass(part, Kernel):
                raise SettingError(f"{part.__name__} is a class: write {part.__name__}()")
            kernel = part if isinstance(part, Kernel) else Constant(part)
            flat.extend(kernel.parts if isinstance(kernel, cls) else [kernel])
        return cls(tuple(flat))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        numbered = enumerate(self.parts)
        return tuple(f"{i}.{name}" for i, part in numbered for name in part.parameter_names)

    @property
    def log_parameters(self) -> np.ndarray:
        return np.concatenate([part.log_parameters for part in self.parts])

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Self:
        values = logs_of(self.parameter_names, values)
        return type(self)(tuple(p.with_log_parameters(values[s]) for p, s in self._slices()))

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        return np.concatenate([part.log_bounds(spread) for part in self.parts])

    def resolve(self, median: np.ndarray, distance: float) -> Self:
        return type(self)(tuple(part.resolve(median, distance) for part in self.parts))

    def with_parts(self, parts: Sequence[Kernel]) -> Self:
        """Return the composite of the same kind of other parts.

        Examples
        --------
        >>> from daskgp.kernels import RBF, Linear
        >>> len((RBF() + Linear()).with_parts([RBF()]).parts)
        1
        """
        return type(self)(tuple(parts))

    def units(self, n_features: int) -> tuple[Unit, ...]:
        return tuple(unit for part in self.parts for unit in part.units(n_features))

    def coordinates(self, varies: np.ndarray | None = None) -> np.ndarray:
        blocks = (
            part.coordinates(None if varies is None else varies[where])
            for part, where in self._slices()
        )
        return np.asarray(block_diag(*blocks))

    def tied_columns(self, d: int) -> tuple[tuple[int, ...], ...]:
        return united(group for part in self.parts for group in part.tied_columns(d))

    def categories(self, d: int) -> tuple[int, ...]:
        return tuple(sorted({j for part in self.parts for j in codes_of(part, d)}))

    def extents(self, d: int) -> dict[int, tuple[int, ...]]:
        return {j: own for part in self.parts for j, own in extents_of(part, d).items()}

    def derived(self) -> tuple[Derived, ...]:
        found: list[Derived] = []
        for i, (part, where) in enumerate(self._slices()):
            for name, value, gradient, unit in derived_of(part):
                by_all = np.zeros(len(self.parameter_names))
                by_all[where] = gradient
                found.append(Derived(f"{i}.{name}", value, by_all, unit))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        self._check_registered()
        return {"kernel": self.name, "parts": [part.to_dict() for part in self.parts]}

    def _combine(self, parts: Iterator[Array], constants: list[float], out: Array) -> np.ndarray:
        """Put the composite of the parts' values and of ``constants`` in ``out`` and return it."""
        kind, first = type(self), next(parts, None)
        if first is None:
            out[...] = kind._of_numbers(constants)
            return out
        if first is not out:
            out[...] = first
        for value in parts:
            out = kind._with(out, value)
        return kind._with(out, kind._of_numbers(constants)) if constants else out

    def _tiles(self) -> list[Kernel]:
        """Return the parts that are not constants: constants need no tile."""
        return [part for part in self.parts if not isinstance(part, Constant)]

    def _constants(self) -> list[float]:
        return [part._height for part in self.parts if isinstance(part, Constant)]

    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> np.ndarray:
        inputs = check_inputs(X, Z)
        out = check_out(inputs, out)

        def values() -> Iterator[Array]:
            tile = out
            for i, part in enumerate(self._tiles()):
                if i == 1:  # the first is put in out, which accumulates the others
                    tile = inputs.xp.empty_like(out)
                yield part(inputs.X, inputs.Z, out=tile)

        return self._combine(values(), self._constants(), out)

    def diag(self, X: Array) -> np.ndarray:
        inputs = check_inputs(X)
        out = inputs.xp.empty(len(inputs.X), dtype=inputs.dtype)
        values = (part.diag(inputs.X) for part in self._tiles())
        return self._combine(values, self._constants(), out)

    @property
    def tiles(self) -> int:
        return 1 + self._spare + sum(part.tiles for part in self._tiles())

    def _pullbacks(
        self, inputs: Inputs, work: Array | None
    ) -> tuple[Array, list[Array], list[Pullback], list[Array]]:
        """Return an empty tile for K, values and pullbacks of the parts, and spare tiles."""
        tiles = self._tiles()
        if work is None:
            work = inputs.xp.empty((self.tiles, *inputs.shape), dtype=inputs.dtype)
        K, *spare = check_work(inputs, work, self.tiles)[: 1 + self._spare]
        start, pairs = 1 + self._spare, []
        for part in tiles:
            pairs.append(part.pullback(inputs.X, inputs.Z, work[start : start + part.tiles]))
            start += part.tiles
        return K, [value for value, _ in pairs], [pull for _, pull in pairs], spare

    def _slices(self) -> Iterator[tuple[Kernel, slice]]:
        start = 0
        for part in self.parts:
            stop = start + len(part.parameter_names)
            yield part, slice(start, stop)
            start = stop

    def _collect(
        self,
        inputs: Inputs,
        gradients: Iterator[KernelGradient],
        constant: Callable[[Constant], float],
    ) -> KernelGradient:
        """Assemble the gradient from those of the tiles, in order, and of each constant."""
        by_log = np.zeros(len(self.parameter_names))
        X_bar = inputs.xp.zeros_like(inputs.X)
        Z_bar = None if inputs.Z is None else inputs.xp.zeros_like(inputs.Z)
        for part, where in self._slices():
            if isinstance(part, Constant):
                by_log[where] = constant(part)
                continue
            gradient = next(gradients)
            by_log[where] = gradient.log_parameters
            X_bar += gradient.X
            if Z_bar is not None:
                Z_bar += gradient.Z
        return KernelGradient(by_log, X_bar, Z_bar)


def united(groups: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Return disjoint groups, merging those that have a column in common."""
    merged: list[set[int]] = []
    for group in groups:
        shared = [other for other in merged if not other.isdisjoint(group)]
        merged = [other for other in merged if other not in shared]
        merged.append(set(group).union(*shared))
    return tuple(sorted(tuple(sorted(group)) for group in merged))


@dataclass(frozen=True)
class Sum(Composite):
    """Sum of kernels.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> (RBF() + 0.5)(np.zeros((1, 1)), np.zeros((1, 1)))
    array([[1.5]])
    """

    name: ClassVar[str] = "sum"
    _with: ClassVar[Callable[[Any, Any], Any]] = operator.iadd
    _of_numbers: ClassVar[Callable[[Any], Any]] = sum

    def weighted(
        self, Z: Array, weights: Weights, X: Array, out: Array | None = None
    ) -> np.ndarray:
        for part in self.parts:
            out = part.weighted(Z, weights, X, out)
        assert out is not None
        return out

    def weighted_vjp(
        self, Z: Array, weights: Weights, X: Array, F_bar: Array, by_inputs: bool = True
    ) -> WeightedGradient:
        gradients = [part.weighted_vjp(Z, weights, X, F_bar, by_inputs) for part in self.parts]
        by_log, by_weights, *by_both = zip(*gradients, strict=True)
        inputs = (sum(parts) for parts in by_both) if by_inputs else (None, None)
        return WeightedGradient(np.concatenate(by_log), sum(by_weights), *inputs)

    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        inputs = check_inputs(X)
        total = number(diag_bar.sum(dtype=np.float64))
        gradients = (part.diag_vjp(inputs.X, diag_bar) for part in self._tiles())
        return self._collect(inputs, gradients, lambda part: part._height * total)

    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[np.ndarray, Pullback]:
        inputs = check_inputs(X, Z)
        K, values, pulls, _ = self._pullbacks(inputs, work)
        self._combine(iter(values), self._constants(), K)

        def pull(K_bar: Array, overwrite: bool = False) -> KernelGradient:
            K_bar = check_cotangent(inputs, K_bar)
            total = number(K_bar.sum(dtype=np.float64)) if self._constants() else 0.0
            gradients = (pull(K_bar) for pull in pulls)
            return self._collect(inputs, gradients, lambda part: part._height * total)

        return read_only(K), pull


@dataclass(frozen=True)
class Product(Composite):
    """Product of kernels.

    Examples
    --------
    >>> from daskgp.kernels import Linear
    >>> (0.5 * Linear())(np.array([[2.0]]), np.array([[3.0]]))
    array([[3.]])
    """

    name: ClassVar[str] = "product"
    _with: ClassVar[Callable[[Any, Any], Any]] = operator.imul
    _of_numbers: ClassVar[Callable[[Any], Any]] = math.prod
    _spare: ClassVar[int] = 1

    def units(self, n_features: int) -> tuple[Unit, ...]:
        """Return units as if one part carried that of the target and the others none.

        It is the last with variances of levels (``Coregion``), else the first over categories, or
        the first of all.
        """
        own = _carrier(self)
        return tuple(
            unit if i == own else unit._replace(of_target=0)
            for i, part in enumerate(self.parts)
            for unit in part.units(n_features)
        )

    def weighted(
        self, Z: Array, weights: Weights, X: Array, out: Array | None = None
    ) -> np.ndarray:
        if len(self._tiles()) != 1:
            return super().weighted(Z, weights, X, out)
        return self._tiles()[0].weighted(Z, self._multiplied(weights), X, out)

    def weighted_vjp(
        self, Z: Array, weights: Weights, X: Array, F_bar: Array, by_inputs: bool = True
    ) -> WeightedGradient:
        if len(self._tiles()) != 1:
            return super().weighted_vjp(Z, weights, X, F_bar, by_inputs)
        weights = self._multiplied(weights)
        gradient = self._tiles()[0].weighted_vjp(Z, weights, X, F_bar, by_inputs)
        by_log = np.zeros(len(self.parameter_names))
        for part, where in self._slices():
            if isinstance(part, Constant):  # K is proportional to it
                by_log[where] = number(namespace(X).vdot(gradient.weights, weights.values))
            else:
                by_log[where] = gradient.log_parameters
        by_weights = gradient.weights * math.prod(self._constants())
        return gradient._replace(log_parameters=by_log, weights=by_weights)

    def _multiplied(self, weights: Weights) -> Weights:
        """Return the weights times the constants."""
        values = weights.values * math.prod(self._constants())
        return Weights(values, weights.owner, weights.count)

    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        inputs = check_inputs(X)
        tiles = self._tiles()
        xp, weights = inputs.xp, diag_bar.astype(inputs.dtype)
        values = [part.diag(inputs.X) for part in tiles]
        gradients = (
            part.diag_vjp(inputs.X, self._without(i, values, weights, xp.empty_like(weights)))
            for i, part in enumerate(tiles)
        )
        whole = number((self.diag(inputs.X) * weights).sum(dtype=np.float64))
        return self._collect(inputs, gradients, lambda part: whole)

    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[np.ndarray, Pullback]:
        inputs = check_inputs(X, Z)
        K, values, pulls, spare = self._pullbacks(inputs, work)
        self._combine(iter(values), self._constants(), K)

        def pull(K_bar: Array, overwrite: bool = False) -> KernelGradient:
            K_bar = check_cotangent(inputs, K_bar)
            gradients = (
                pull(self._without(i, values, K_bar, spare[0]), overwrite=True)
                for i, pull in enumerate(pulls)
            )
            whole = number(inputs.xp.vdot(K_bar, K)) if self._constants() else 0.0
            return self._collect(inputs, gradients, lambda part: whole)

        return read_only(K), pull

    def _without(self, i: int, values: list[Array], cotangent: Array, out: Array) -> np.ndarray:
        """Put the cotangent of factor i, the product's times all other factors, in ``out``."""
        namespace(cotangent).multiply(cotangent, math.prod(self._constants()), out=out)
        for j, value in enumerate(values):
            if j != i:
                out *= value
        return out


COMPOSITES |= {Sum.name: Sum, Product.name: Product}


@dataclass(frozen=True)
class Constant(Kernel):
    """Constant kernel, k = v; a number in a sum or product of kernels becomes one.

    Examples
    --------
    >>> Constant(2.0)(np.zeros((1, 3)), np.ones((2, 3)))
    array([[2., 2.]])
    """

    variance: float | None = None

    name: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "variance", positive_or_open(self.variance, "variance of Constant")
        )

    @property
    def _height(self) -> float:
        """The variance, 1 where it is left out."""
        return one_if_open(self.variance)

    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> np.ndarray:
        out = check_out(check_inputs(X, Z), out)
        out[...] = self._height
        return out

    def diag(self, X: Array) -> np.ndarray:
        inputs = check_inputs(X)
        return inputs.xp.full(len(inputs.X), self._height, dtype=inputs.dtype)

    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        inputs = check_inputs(X)
        return KernelGradient(self._by_log(diag_bar), inputs.xp.zeros_like(inputs.X), None)

    @property
    def tiles(self) -> int:
        return 1

    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[np.ndarray, Pullback]:
        inputs = check_inputs(X, Z)

        def pull(K_bar: Array, overwrite: bool = False) -> KernelGradient:
            K_bar = check_cotangent(inputs, K_bar)
            zeros = inputs.xp.zeros_like
            Z_bar = None if inputs.Z is None else zeros(inputs.Z)
            return KernelGradient(self._by_log(K_bar), zeros(inputs.X), Z_bar)

        K = self(inputs.X, inputs.Z, out=check_work(inputs, work, self.tiles)[0])
        return read_only(K), pull

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("variance",)

    @property
    def log_parameters(self) -> np.ndarray:
        return np.log([self._height])

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Constant:
        return Constant(float(np.exp(logs_of(self.parameter_names, values)[0])))

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        return np.log([VARIANCE_BOUNDS])

    def resolve(self, median: np.ndarray, distance: float) -> Constant:
        return self if self.variance is not None else Constant(1.0)

    def units(self, n_features: int) -> tuple[Unit, ...]:
        return (Unit((), 0, 2),)

    def _by_log(self, cotangent: Array) -> np.ndarray:
        return np.array([self._height * number(cotangent.sum(dtype=np.float64))])


def codes_of(kernel: Kernel, d: int) -> tuple[int, ...]:
    """Return the columns, of d, that hold codes of categories; most kernels have none."""
    return () if type(kernel).categories is Kernel.categories else kernel.categories(d)


def extents_of(kernel: Kernel, d: int) -> dict[int, tuple[int, ...]]:
    """Return the columns, of d, that are lengths around a row's place; most kernels have none."""
    return {} if type(kernel).extents is Kernel.extents else kernel.extents(d)


def beside_places(kernel: Kernel, d: int) -> tuple[int, ...]:
    """Return the columns, of d, that do not say where a row is: codes of categories, and extents.

    >>> from daskgp.kernels import Averaged, Coregion
    >>> beside_places(Averaged(footprint=2, columns=(0, 1)) * Coregion(3), 4)
    (2, 3)
    """
    return tuple(sorted({*codes_of(kernel, d), *extents_of(kernel, d)}))


def derived_of(kernel: Kernel) -> tuple[Derived, ...]:
    """Return numbers that follow from the hyper-parameters; most kernels have none."""
    return () if type(kernel).derived is Kernel.derived else kernel.derived()


def of_class(kind: type[K], kernel: Kernel) -> Iterator[K]:
    """Yield the parts of a kernel that are of a class, the outermost ones.

    Examples
    --------
    >>> from daskgp.kernels import RBF, Averaged
    >>> [part.footprint for part in of_class(Averaged, RBF() + Averaged())]
    ['radius']
    """
    return (part for _, part in numbered(kind, kernel))


def factor_beside(part: Kernel, kernel: Kernel, row: Array) -> float:
    """Return by what a kernel multiplies one of its parts at a row (1, d).

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> part = RBF(1.0)
    >>> factor_beside(part, 2.0 * part + RBF(3.0), np.zeros((1, 1)))
    2.0
    """
    if not isinstance(kernel, Sum | Product):
        return float(kernel is part)
    for i, held in enumerate(kernel.parts):
        if found := factor_beside(part, held, row):
            others = kernel.parts[:i] + kernel.parts[i + 1 :]
            factors = [float(other.diag(row)[0]) for other in others]
            return found * math.prod(factors) if isinstance(kernel, Product) else found
    return 0.0


def numbered(kind: type[K], kernel: Kernel, first: int = 0) -> Iterator[tuple[int, K]]:
    """Yield such parts, each with the number of its first hyper-parameter.

    Examples
    --------
    >>> from daskgp.kernels import RBF, Rotated
    >>> [number for number, _ in numbered(Rotated, RBF() + Rotated())]
    [2]
    """
    if isinstance(kernel, kind):
        yield first, kernel
        return
    for part in getattr(kernel, "parts", ()):
        yield from numbered(kind, part, first)
        first += len(part.parameter_names)


def tables(kernel: Kernel) -> tuple[Table, ...]:
    """Return the parts of a kernel that are over categories."""
    return tuple(of_class(Table, kernel))  # type: ignore[type-abstract]


def names_of_tables(kernel: Kernel) -> tuple[str, ...]:
    """Return the names of the hyper-parameters of parts that are over categories."""
    if isinstance(kernel, Table):
        return kernel.parameter_names
    parts = getattr(kernel, "parts", ())
    if not isinstance(kernel, Composite):
        return tuple(name for part in parts for name in names_of_tables(part))
    inner = (_numbered(i, names_of_tables(part)) for i, part in enumerate(parts))
    return tuple(name for names in inner for name in names)


def redundant(kernel: Kernel) -> tuple[tuple[str, ...], ...]:
    """Return groups of variances that no data tell apart, since factors of a product have them.

    >>> from daskgp.kernels import RBF, Linear
    >>> redundant(2.0 * RBF() + Linear())
    (('0.0.variance', '0.1.variance'),)
    """
    parts = getattr(kernel, "parts", ())
    if not isinstance(kernel, Composite):  # one that holds another, whose names are as they are
        return tuple(group for part in parts for group in redundant(part))
    inner = [(i, group) for i, part in enumerate(parts) for group in redundant(part)]
    groups = [_numbered(i, group) for i, group in inner]
    if isinstance(kernel, Product):
        each = [names for i, part in enumerate(parts) if (names := _numbered(i, _scaling(part)))]
        groups += [tuple(name for names in each for name in names)] if len(each) > 1 else []
    return tuple(groups)


def held(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Return variances that training holds, each with those that say the same.

    In a product with a part over categories, whose variances are those of the levels, they are one
    of each other factor.

    >>> from daskgp.kernels import Coregion, Matern32
    >>> held(Matern32() * Coregion(2, levels=2))
    {'0.variance': ('1.variance[0]', '1.variance[1]')}
    """
    parts = getattr(kernel, "parts", ())
    if not isinstance(kernel, Composite):
        return {name: others for part in parts for name, others in held(part).items()}
    found = {
        f"{i}.{name}": _numbered(i, others)
        for i, part in enumerate(parts)
        for name, others in held(part).items()
    }
    if isinstance(kernel, Product) and tables(kernel):
        own = _carrier(kernel)
        instead = _numbered(own, _scaling(parts[own]))
        for i, part in enumerate(parts):
            if i != own and instead and (names := _numbered(i, _scaling(part))):
                found[names[0]] = instead
    return found


def _carrier(kernel: Product) -> int:
    """Return the number of the factor whose variances have the unit of the target.

    Of factors with variances of levels it is that over the last column, which tells joint targets.
    """
    over = [tables(part) for part in kernel.parts]
    levels = [
        (one.column if isinstance(one.column, int) else -1, i)
        for i, own in enumerate(over)
        for one in own
        if isinstance(one, Coregion)
    ]
    if levels:
        return max(levels)[1]
    return next((i for i, own in enumerate(over) if own), 0)


def _scaling(kernel: Kernel) -> tuple[str, ...]:
    """Return the variances that together are a factor of a kernel; none if there is no such."""
    parts = getattr(kernel, "parts", None)
    if parts is None:
        return tuple(name for name in kernel.parameter_names if name.startswith("variance"))
    if not isinstance(kernel, Composite):
        return _scaling(parts[0])
    each = [_numbered(i, _scaling(part)) for i, part in enumerate(parts)]
    if isinstance(kernel, Product):
        return next(filter(None, each), ())
    return tuple(name for names in each for name in names) if all(each) else ()


def _numbered(i: int, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{i}.{name}" for name in names)


OPERATORS.update({"+": Sum.of, "*": Product.of})
