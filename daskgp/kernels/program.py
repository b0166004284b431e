"""Kernels as flat programs for compiled code: leaves, the columns they act on, and their terms.

A kernel made of known leaves by sums and products is a sum of products of leaves.  Letters:
X (g, w, d) sets of rows, K_i = k(X_i, X_i) (w, w), u = x / scale a feature, r^2 = |u - u'|^2, p the
logarithm of a hyper-parameter, in the order of ``log_parameters``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from daskgp.arrays.backend import namespace
from daskgp.kernels.averaged import Averaged, averages
from daskgp.kernels.base import Kernel
from daskgp.kernels.categories import Categorical, Coregion, Table, check_codes
from daskgp.kernels.checks import flat, groups_of
from daskgp.kernels.compose import Constant, Product, Sum
from daskgp.kernels.linear import Linear
from daskgp.kernels.periodic import Periodic
from daskgp.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic
from daskgp.kernels.units import has_rotation
from daskgp.kernels.unrolled import unrolled
from daskgp.typing import Array

MOST_TERMS = 32
"""Most terms of a program, and most leaves."""
CONSTANT, LINEAR, PERIODIC, RBF_CODE, MATERN12, MATERN32, MATERN52, RATIONAL, TABLE = range(9)
CODES: dict[type[Kernel], int] = {
    Constant: CONSTANT,
    Linear: LINEAR,
    Periodic: PERIODIC,
    RBF: RBF_CODE,
    Matern12: MATERN12,
    Matern32: MATERN32,
    Matern52: MATERN52,
    RationalQuadratic: RATIONAL,
    Coregion: TABLE,
    Categorical: TABLE,
}
"""Code of each class; of no class derived from it, whose values may be others."""


RADIAL = (RBF, Matern12, Matern32, Matern52)
"""Classes whose averages compiled code takes."""


class Program(NamedTuple):
    """A kernel as arrays.

    ``leaves`` (L, 4) are the code, first hyper-parameter, and first and last but one entry in
    ``columns`` of each leaf; ``columns`` (c, 2) the number of a column and of the hyper-parameter
    that scales it; ``values`` (l,) the hyper-parameters, or (g, l) those of each of g sets of rows;
    ``terms`` (t, f) the leaves whose product is a term, -1 where it has fewer.

    ``levels`` (L, 3) are the number of levels of each leaf over categories, where in ``tables`` its
    B begins, and how many derivatives by hyper-parameters of its own follow; ``values`` has these
    too, but they do not enter it.

    Where columns are rotated, leaves are those of columns X ``mix`` (n, e), and ``gather`` (k, l)
    makes derivatives by the k hyper-parameters of the kernel from those by ``values``.

    Where there are averages, leaves are those of X with the coordinates of nodes beside.  The
    columns of a leaf of averages are those of one node after another; in ``levels`` it has the
    number of nodes, and where their weights begin in ``tables``.
    """

    leaves: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    terms: np.ndarray
    levels: np.ndarray
    tables: np.ndarray
    mix: np.ndarray | None = None
    gather: np.ndarray | None = None

    def check(self, X: Array) -> None:
        """Raise InputError unless rows X (..., d) have codes where leaves are over categories."""
        for (code, _, start, _), (count, *_) in zip(self.leaves, self.levels, strict=True):
            if code == TABLE:
                column = int(self.columns[start, 0])
                check_codes(X[..., column], int(count), column)

    def mixed(self, X: Array) -> np.ndarray:
        """Return the columns that leaves act on, of rows X (..., d)."""
        return X if self.mix is None else X @ namespace(X).asarray(self.mix)

    def gathered(self, slopes: Array) -> np.ndarray:
        """Return derivatives (..., k, s) by the kernel's own hyper-parameters."""
        return slopes if self.gather is None else namespace(slopes).asarray(self.gather) @ slopes


def program(kernel: Kernel, d: int) -> Program | None:
    """Return the program of a kernel of d columns; None if it has parts or terms beyond the known.

    Raises
    ------
    InputError
        If the kernel's dimensions do not fit d.

    Examples
    --------
    >>> from daskgp.kernels import RBF, Linear
    >>> program(2.0 * (RBF(1.0) + Linear()), 1).terms
    array([[0, 1],
           [0, 2]])
    """
    if next(averages(kernel), None) is not None:  # see averaged_program
        return None
    if has_rotation(kernel):
        plain = unrolled(kernel, d)
        known = None if plain is None else program(plain.kernel, plain.mix.shape[1])
        if known is None or plain is None:
            return None
        return known._replace(mix=plain.mix, gather=plain.gather)
    flat = list(_leaves(kernel))
    if len(flat) > MOST_TERMS or any(type(leaf) not in CODES for leaf in flat):
        return None
    terms = _terms(kernel, itertools.count())
    if terms is None:
        return None
    leaves: list[tuple[int, int, int, int]] = []
    columns: list[tuple[int, int]] = []
    levels: list[tuple[int, int, int]] = []
    tables: list[np.ndarray] = [np.zeros(0)]
    first = 0
    for leaf in flat:
        leaf.diag(np.zeros((1, d)))  # checks the number of columns
        levels.append((0, 0, 0))
        if isinstance(leaf, Table):
            B, slopes = leaf.covariance, leaf.slopes()
            levels[-1] = len(B), sum(map(len, tables)), len(slopes)
            tables += [B.ravel(), slopes.ravel()]
        own = list(_columns(leaf, first, d))
        leaves.append((CODES[type(leaf)], first, len(columns), len(columns) + len(own)))
        columns += own
        first += len(leaf.parameter_names)
    longest = max(map(len, terms))
    return Program(
        np.array(leaves, np.int64),
        np.array(columns, np.int64).reshape(-1, 2),
        np.exp(kernel.log_parameters),
        np.array([term + (-1,) * (longest - len(term)) for term in terms], np.int64),
        np.array(levels, np.int64),
        np.concatenate(tables),
    )


class OfAreas(NamedTuple):
    """Program of a kernel with averages over areas, for compiled code."""

    program: Program
    areas: tuple[Averaged, ...]


def with_nodes(X: Array, areas: tuple[Averaged, ...]) -> np.ndarray:
    """Return rows X (..., d) with the coordinates of the nodes of areas beside.

    Raises
    ------
    InputError
        If a radius is negative.
    """
    beside = [X]
    for area in areas:
        area.areas(X)
        places = list(area.coordinate_columns(X.shape[-1]))
        beside += [nodes[..., places] for nodes in area.nodes(X)[1]]
    return namespace(X).concatenate(beside, axis=-1) if areas else X


def averaged_program(kernel: Kernel, d: int) -> OfAreas | None:
    """Return the program of a kernel with averages; None if compiled code cannot take it.

    The average of a product is that of one factor times the others, unless two are of the
    coordinates: such a kernel has none, and nor has one whose factor is not radial.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> averaged_program(2.0 * Averaged(RBF(1.0, active_dims=0), 1), 2).program.levels
    array([[0, 0, 0],
           [8, 0, 0]])
    """
    marked = _without_averages(kernel, None, d)
    known = None if marked is None else program(marked.kernel, d)
    if marked is None or known is None or known.mix is not None:
        return None
    own = tuple(dict.fromkeys(area for area in marked.areas if area is not None))
    levels, tables, begin = known.levels.copy(), [known.tables], len(known.tables)
    leaves = known.leaves.copy()
    columns: list[tuple[int, int]] = []
    first = dict(zip(own, np.cumsum([d, *(_sizes(area, d)[2] for area in own)]), strict=False))
    for f, area in enumerate(marked.areas):
        start, stop = known.leaves[f, 2:]
        leaves[f, 2] = len(columns)
        at, nodes = known.columns[start:stop].tolist(), 1
        if area is not None:
            weights, places, _ = _sizes(area, d)
            nodes = len(weights)
            levels[f] = nodes, begin, 0
            tables.append(weights)
            begin += nodes
            beside = {j: int(first[area]) + i for i, j in enumerate(places)}
            step = {j: len(places) * (j in beside) for j, _ in at}
            at = [(beside.get(j, j) + a * step[j], p) for a in range(nodes) for j, p in at]
        columns += at
        leaves[f, 3] = len(columns)
    made = known._replace(
        leaves=leaves,
        columns=np.array(columns, np.int64).reshape(-1, 2),
        levels=levels,
        tables=np.concatenate(tables),
    )
    return OfAreas(made, own)


class _Marked(NamedTuple):
    """A kernel of points, and for each of its leaves the averages that it is in, or None."""

    kernel: Kernel
    areas: tuple[Averaged | None, ...]


def _sizes(area: Averaged, d: int) -> tuple[np.ndarray, tuple[int, ...], int]:
    """Return the weights of nodes, the coordinates, and the number of columns of all nodes."""
    weights, _ = area.nodes(np.zeros((0, d)))
    places = area.coordinate_columns(d)
    return weights, places, len(weights) * len(places)


def _without_averages(kernel: Any, area: Averaged | None, d: int) -> _Marked | None:
    """Return a kernel of points that is averaged over an area, or over those in it."""
    if isinstance(kernel, Averaged):
        if kernel.is_exact:
            return None
        return _without_averages(kernel.kernel, kernel, d)
    if type(kernel) in (Sum, Product):
        parts = [_without_averages(part, area, d) for part in kernel.parts]
        found = [part for part in parts if part is not None]
        several = sum(area is not None and area in part.areas for part in found) > 1
        if len(found) < len(parts) or (several and isinstance(kernel, Product)):
            return None
        made = kernel.with_parts(tuple(part.kernel for part in found))
        return _Marked(made, tuple(itertools.chain(*(part.areas for part in found))))
    if area is None or isinstance(kernel, Constant | Table):
        return _Marked(kernel, (None,))
    dims = getattr(kernel, "active_dims", None)
    own = set(() if dims is None else flat(dims))
    if dims is None or not own.isdisjoint(area.extents(d)):
        return None
    if own.isdisjoint(area.coordinate_columns(d)):
        return _Marked(kernel, (None,))
    return _Marked(kernel, (area,)) if type(kernel) in RADIAL else None


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the parts of a kernel that are no sums or products."""
    if not isinstance(kernel, Sum | Product) or type(kernel) not in (Sum, Product):
        yield kernel
        return
    for part in kernel.parts:
        yield from _leaves(part)


def _terms(kernel: Kernel, numbers: Iterator[int]) -> list[tuple[int, ...]] | None:
    """Return the leaves of each term, numbered from left to right; None if there are too many."""
    if not isinstance(kernel, Sum | Product):
        return [(next(numbers),)]
    parts = [_terms(part, numbers) for part in kernel.parts]
    known = [part for part in parts if part is not None]
    sizes = [len(part) for part in known]
    count = sum(sizes) if isinstance(kernel, Sum) else math.prod(sizes)
    if len(known) < len(parts) or count > MOST_TERMS:
        return None
    if isinstance(kernel, Sum):
        return [term for part in known for term in part]
    return [tuple(itertools.chain(*terms)) for terms in itertools.product(*known)]


def _columns(leaf: Any, first: int, d: int) -> Iterator[tuple[int, int]]:
    """Yield the columns of a leaf, each with the number of the hyper-parameter that scales it."""
    if isinstance(leaf, Constant):
        return
    if isinstance(leaf, Table):
        yield from ((j, first) for j in leaf.categories(d))
        return
    scale = leaf.variance if isinstance(leaf, Linear) else leaf.lengthscale
    after = 0 if isinstance(leaf, Linear) else 2 if isinstance(leaf, Periodic) else 1
    for i, group in enumerate(groups_of(leaf.active_dims, d)):
        own = i if isinstance(scale, tuple) else 0
        yield from ((j, first + after + own) for j in group)


def tiles(
    program: Program, X: Array, slopes: bool = False, Z: Array | None = None
) -> tuple[Array, Array | None]:
    """Return K (g, w, w), and with ``slopes`` the derivatives dK/dp (l, g, w, w).

    They are those of rows X and X, or X and Z.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> X = np.array([[[0.0], [1.0]]])
    >>> K, by_log = tiles(program(RBF(1.0), 1), X, slopes=True)
    >>> by_log[1, 0].round(4)  # by the lengthscale
    array([[0.    , 0.6065],
           [0.6065, 0.    ]])
    """
    xp = namespace(X)
    rows = [program.mixed(A.astype(np.float64, copy=False)) for A in (X, X if Z is None else Z)]
    for one in rows if Z is not None else rows[:1]:
        program.check(one)
    X, Z = rows
    leaves = [_leaf(xp, program, i, X, Z, slopes) for i in range(len(program.leaves))]
    terms = [[i for i in term if i >= 0] for term in program.terms.tolist()]
    K = sum(math.prod(leaves[i][0] for i in term) for term in terms)
    if not slopes:
        return K, None
    by_log = xp.zeros((program.values.shape[-1], *K.shape))
    for i, (_, own) in enumerate(leaves):
        others = [[j for j in term if j != i] for term in terms if i in term]
        factor: Any = sum(math.prod(leaves[j][0] for j in rest) for rest in others)
        for p, slope in own.items():
            by_log[p] += factor * slope
    if program.gather is not None:
        by_log = xp.tensordot(xp.asarray(program.gather), by_log, axes=1)
    return K, by_log


def _leaf(
    xp: Any, program: Program, i: int, X: Array, Z: Array, slopes: bool
) -> tuple[Array, dict[int, Array]]:
    """Return the tile of a leaf, and its derivatives by the logarithms of its own parameters."""
    code, first, start, stop = program.leaves[i].tolist()
    columns, values = program.columns[start:stop].tolist(), program.values
    if values.ndim == 2:  # by number, and of each set of rows
        values = xp.asarray(values).T[:, :, None, None]
    shape = (*X.shape[:2], Z.shape[1])
    if code == CONSTANT:
        K = xp.zeros(shape) + values[first]
        return K, {first: K}
    if code == LINEAR:
        return _linear(xp, columns, values, X, Z)
    if code == TABLE:
        return _table(xp, program, i, X, Z)
    v = values[first]
    squares = {p: xp.zeros(shape) for _, p in columns}
    turned = xp.zeros(shape)
    for column, p in columns:
        difference = X[:, :, column, None] - Z[:, None, :, column]
        if code == PERIODIC:
            angle = (np.pi / values[p]) * difference
            squares[p] += (2.0 / values[first + 1] * xp.sin(angle)) ** 2
            turned += angle * xp.sin(2.0 * angle)
        else:
            difference /= values[p]
            squares[p] += difference * difference
    r2 = sum(squares.values())
    if code == PERIODIC:
        K = v * xp.exp(-0.5 * r2)
        by_period = K * turned * (2.0 / values[first + 1] ** 2)
        return K, {first: K, first + 1: K * r2, first + 2: by_period}
    alpha = values[columns[-1][1] + 1] if code == RATIONAL else 0.0
    K, slope, by_shape = _radial(xp, code, v, r2, alpha)
    by_log = {first: K}
    if slopes:
        by_log |= {p: -2.0 * slope * square for p, square in squares.items()}
    if by_shape is not None:
        by_log[columns[-1][1] + 1] = by_shape
    return K, by_log


def _table(xp: Any, program: Program, i: int, X: Array, Z: Array) -> tuple[Array, dict[int, Array]]:
    """Return the tile of a leaf over categories, and its derivatives."""
    _, first, start, _ = program.leaves[i].tolist()
    count, begin, number = program.levels[i].tolist()
    end = begin + (1 + number) * count**2
    tables = xp.asarray(program.tables[begin:end]).reshape(1 + number, count, count)
    own, other = (A[:, :, program.columns[start, 0]].astype(np.int64) for A in (X, Z))
    K, *slopes = tables[:, own[:, :, None], other[:, None, :]]
    return K, {first + p: slope for p, slope in enumerate(slopes)}


def _linear(
    xp: Any, columns: list[list[int]], values: Array, X: Array, Z: Array
) -> tuple[Array, dict[int, Array]]:
    by_log: dict[int, Array] = {}
    for column, p in columns:
        part = values[p] * (X[:, :, column, None] * Z[:, None, :, column])
        by_log[p] = by_log[p] + part if p in by_log else part
    return xp.zeros_like(part) + sum(by_log.values()), by_log


def tiles_of(kernel: Kernel, X: Array, slopes: bool = False) -> tuple[Array, Array | None] | None:
    """Return the same of a kernel that may have averages, by pairs of their nodes.

    None if a part of it has no program.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> K, _ = tiles_of(2.0 * Averaged(RBF(1.0), 1), np.array([[[0.0, 0.0], [1.0, 2.0]]]))
    >>> K[0].round(3)
    array([[2.   , 1.053],
           [1.053, 1.003]])
    """
    known = program(kernel, X.shape[2])
    if known is not None:
        return tiles(known, X, slopes)
    if isinstance(kernel, Averaged):
        return _averages(kernel, X, slopes)
    if not isinstance(kernel, Sum | Product) or next(averages(kernel), None) is None:
        return None
    parts = [tiles_of(part, X, slopes) for part in kernel.parts]
    if any(part is None for part in parts):
        return None
    K, by_log = zip(*parts, strict=True)
    total = sum(K) if isinstance(kernel, Sum) else math.prod(K)
    if not slopes:
        return total, None
    if isinstance(kernel, Product):
        rest = (math.prod(K[:i] + K[i + 1 :]) for i in range(len(K)))
        by_log = [slope * other for slope, other in zip(by_log, rest, strict=True)]
    return total, namespace(X).concatenate(by_log)


def _averages(kernel: Averaged, X: Array, slopes: bool) -> tuple[Array, Array | None] | None:
    """Return the tiles of averages; sets of points alone have one node each."""
    xp, (g, w, d) = namespace(X), X.shape
    known = None if kernel.is_exact else program(kernel.kernel, d)
    if known is None:
        return None
    with_areas = kernel.areas(X).any(axis=1)
    K = xp.zeros((g, w, w))
    by_log = xp.zeros((len(kernel.parameter_names), g, w, w)) if slopes else None
    for mask in (with_areas, ~with_areas):
        at = xp.asarray(np.flatnonzero(mask))
        if not len(at):
            continue
        weights, nodes = kernel.nodes(X[at])
        each = list(nodes) if mask is with_areas else [next(nodes)]
        weights = weights if mask is with_areas else np.ones(1)
        for a, b in itertools.combinations_with_replacement(range(len(each)), 2):
            weight, Z = float(weights[a] * weights[b]), None if a == b else each[b]
            tile, own = tiles(known, each[a], slopes, Z)
            K[at] += weight * (tile if Z is None else tile + tile.transpose(0, 2, 1))
            if by_log is not None and own is not None:
                other = own if Z is None else own + own.transpose(0, 1, 3, 2)
                by_log[:, at] += weight * other
    return K, by_log


def _radial(xp: Any, code: int, v: Any, r2: Array, alpha: Any) -> tuple[Array, Array, Array | None]:
    """Return k, dk/dr^2 and, for a kernel with a shape parameter, the derivative by its log."""
    if code == RBF_CODE:
        k = v * xp.exp(-0.5 * r2)
        return k, -0.5 * k, None
    if code == RATIONAL:
        b = 1.0 + 0.5 / alpha * r2
        log = xp.log1p(0.5 / alpha * r2)
        k = v * xp.exp(-alpha * log)
        return k, -0.5 * k / b, -alpha * k * (1.0 / b - 1.0 + log)
    if code == MATERN12:
        r = xp.sqrt(r2)
        k = v * xp.exp(-r)
        return k, -0.5 * k / xp.where(r > 0, r, np.inf), None
    s = xp.sqrt((3.0 if code == MATERN32 else 5.0) * r2)
    e = v * xp.exp(-s)
    if code == MATERN32:
        return (1.0 + s) * e, -1.5 * e, None
    return (1.0 + s + s * s / 3.0) * e, (-5.0 / 6.0) * (1.0 + s) * e, None
