"""Kernels of rotated columns as kernels of linear combinations of columns.

Compiled code knows sums and products of leaves with a scale for each column, and no angles.  With
f_a = u_a / l_a for the m rotated columns of a leaf, its r^2 has the sum of

    f_a^2 = f_a^2 / 2 for each a, + [(f_a + f_b)^2 + (f_a - f_b)^2] / 4 (m - 1) for each pair a < b.

So a leaf of these combinations, each with a scale of its own, is the same kernel, and derivatives
by lengthscales and angles are linear combinations of those by the scales: with S = -2 dk/dr^2,
those by the scales of f_a + f_b and f_a - f_b differ by S f_a f_b / (m - 1), and as du = W u for a
step of an angle, with W = dR R', dk = -S sum_ab W_ab (l_b / l_a) f_a f_b.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from daskgp.kernels.base import Kernel
from daskgp.kernels.checks import groups_of
from daskgp.kernels.compose import Product, Sum
from daskgp.kernels.radial import replaced
from daskgp.kernels.rotated import Rotated
from daskgp.kernels.stationary import Stationary


class Unrolled(NamedTuple):
    """A kernel of rows X ``mix`` (n, e) that has no rotated part.

    ``gather`` (k, l) makes the derivatives by the k logarithms of hyper-parameters of the rotated
    kernel from those by the l of this one.
    """

    kernel: Kernel
    mix: np.ndarray
    gather: np.ndarray


def unrolled(kernel: Kernel, d: int) -> Unrolled | None:
    """Return a kernel of d columns without rotated parts; None if a part is of some axes alone.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> kernel, X = Rotated(RBF((5.0, 1.0)), angle=30.0), np.array([[0.5, 2.0], [1.0, 0.0]])
    >>> plain, mix, _ = unrolled(kernel, 2)
    >>> bool(np.allclose(plain(X @ mix), kernel(X)))
    True
    """
    made = _Walk(d)
    try:
        plain = made.of(kernel)
    except _OfSomeAxesError:
        return None
    gather = np.zeros((len(kernel.parameter_names), len(plain.parameter_names)))
    for row, column, weight in made.weights:
        gather[row, column] += weight
    return Unrolled(plain, np.hstack(made.mix), gather)


class _OfSomeAxesError(Exception):
    """A leaf whose derivatives by angles are no combinations of those by its scales."""


@dataclass
class _Walk:
    """Columns of rows and weights of derivatives, found from the left to the right."""

    d: int
    own: int = 0
    plain: int = 0
    weights: list[tuple[int, int, float]] = field(default_factory=list)
    mix: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mix.append(np.eye(self.d))

    def of(self, kernel: Any, rotated: Rotated | None = None, angles: int = 0) -> Kernel:
        """Return a kernel without rotated parts; numbers of its angles begin at ``angles``."""
        if isinstance(kernel, Rotated):
            inner = self.of(kernel.kernel, kernel, self.own + len(kernel.kernel.parameter_names))
            self.own += len(kernel.angles)
            return inner
        if type(kernel) in (Sum, Product):
            plain: Kernel = kernel.with_parts([self.of(p, rotated, angles) for p in kernel.parts])
            return plain
        made = None if rotated is None else self._turned(kernel, rotated, angles)
        if made is None:
            count = len(kernel.parameter_names)
            self.weights += [(self.own + j, self.plain + j, 1.0) for j in range(count)]
            is_open = getattr(kernel, "active_dims", ()) is None
            made = replaced(kernel, active_dims=tuple(range(self.d))) if is_open else kernel
        self.own += len(kernel.parameter_names)
        self.plain += len(made.parameter_names)
        return made

    def _turned(self, leaf: Any, rotated: Rotated, angles: int) -> Kernel | None:
        """Return a leaf of combinations of rotated columns; None for one of other columns."""
        if not hasattr(leaf, "active_dims"):
            return None  # a constant
        several = isinstance(getattr(leaf, "lengthscale", None), tuple)
        groups = groups_of(leaf.active_dims, self.d)
        number = {j: 1 + i * several for i, group in enumerate(groups) for j in group}
        turned = [j for j in rotated.columns if j in number]
        if not turned:
            return None
        if not isinstance(leaf, Stationary) or len(turned) < len(rotated.columns):
            raise _OfSomeAxesError
        m, others = len(turned), [j for j in number if j not in turned]
        values = np.exp(leaf.log_parameters)
        lengths = np.array([values[number[j]] for j in turned])
        u = rotated.axes(self.d)[turned].T  # (d, m)
        f, pairs = u / lengths, list(itertools.combinations(range(m), 2))
        combined = [u, *(f[:, [a]] + sign * f[:, [b]] for a, b in pairs for sign in (1.0, -1.0))]
        first = sum(block.shape[1] for block in self.mix)
        self.mix += combined
        scales = [
            *(values[number[j]] for j in others),
            *(math.sqrt(2.0) * lengths),
            *[2.0 * math.sqrt(m - 1)] * (2 * len(pairs)),
        ]
        self._weigh(leaf, [number[j] for j in others], [number[j] for j in turned], len(scales))
        at = self.plain + 1 + len(others) + m
        for k, slope in enumerate(rotated._slopes()):
            W = slope @ rotated.rotation.T * lengths / lengths[:, None]
            for i, (a, b) in enumerate(pairs):
                weight = (m - 1) * (W[a, b] + W[b, a])
                self.weights += [(angles + k, at + 2 * i, -weight)]
                self.weights += [(angles + k, at + 2 * i + 1, weight)]
        columns = (*others, *range(first, first + m + 2 * len(pairs)))
        return _with_scales(leaf, scales, columns)

    def _weigh(self, leaf: Kernel, others: list[int], turned: list[int], count: int) -> None:
        """Add the weights of the derivatives of a leaf with ``count`` scales, but for angles."""
        self.weights.append((self.own, self.plain, 1.0))
        scaled = [*((j, 1.0) for j in others), *((j, 2.0) for j in turned)]
        for i, (j, weight) in enumerate(scaled, start=1):
            self.weights.append((self.own + j, self.plain + i, weight))
        after = len(leaf.parameter_names) - (max(*others, *turned, 0) + 1)
        for i in range(after):  # a shape
            last = self.own + len(leaf.parameter_names) - after + i
            self.weights.append((last, self.plain + 1 + count + i, 1.0))


def _with_scales(leaf: Any, scales: Sequence[float], columns: Sequence[int]) -> Kernel:
    made: Kernel = replaced(
        leaf, lengthscale=tuple(map(float, scales)), ard=True, active_dims=tuple(columns)
    )
    return made
