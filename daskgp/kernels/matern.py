"""The Matern family of half-integer orders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from daskgp.arrays.backend import is_numpy, namespace
from daskgp.kernels.radial import Coincidence
from daskgp.kernels.stationary import Lengthscale, Stationary, times
from daskgp.typing import Array


@dataclass(frozen=True)
class Matern12(Stationary):
    """Exponential kernel, k = v exp(-r); its derivative at r = 0 is taken as 0.

    Examples
    --------
    >>> float(Matern12()(np.array([[0.0]]), np.array([[2.0]]))[0, 0])  # exp(-2)
    0.135335283
    """

    lengthscale: Lengthscale = None
    variance: float = 1.0
    ard: bool = field(default=False, kw_only=True)
    active_dims: tuple[int, ...] | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "matern12"
    _smoothness: ClassVar[float] = 0.5
    _formula: ClassVar[str | None] = "matern12"
    _scale: ClassVar[float] = 1.0
    _slope: ClassVar[float] = -0.5

    def _evaluate(self, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        xp = namespace(q)
        coincident = q <= same.least
        needed = not is_numpy(xp) or bool(coincident.any())
        xp.sqrt(q, out=aside)
        if needed and not same.exact:  # the root turns a zero's rounding into 1e-8
            aside[coincident] = 0
        xp.negative(aside, out=q)
        xp.exp(q, out=q)
        times(q, self.variance)
        if needed:  # so that k / r is 0
            aside[coincident] = np.inf

    def _weigh(self, K_bar: Array, K: Array, aside: Array, D: Array) -> float:
        # dk/dr^2 = -k / (2 r)
        namespace(K).multiply(K_bar, K, out=D)
        D /= aside
        return 0.0


@dataclass(frozen=True)
class Matern32(Stationary):
    """Matern kernel of order 3/2, k = v (1 + s) exp(-s) with s = sqrt(3) r.

    Examples
    --------
    >>> float(Matern32()(np.array([[0.0]]), np.array([[1.0]]))[0, 0])  # (1 + 3^.5) exp(-3^.5)
    0.483357725
    """

    lengthscale: Lengthscale = None
    variance: float = 1.0
    ard: bool = field(default=False, kw_only=True)
    active_dims: tuple[int, ...] | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "matern32"
    _smoothness: ClassVar[float] = 1.5
    _formula: ClassVar[str | None] = "matern32"
    _scale: ClassVar[float] = 3.0
    _slope: ClassVar[float] = -1.5

    def _evaluate(self, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        xp = namespace(q)
        xp.sqrt(q, out=q)
        xp.negative(q, out=aside)
        xp.exp(aside, out=aside)
        times(aside, self.variance)
        q += 1
        q *= aside


@dataclass(frozen=True)
class Matern52(Stationary):
    """Matern kernel of order 5/2, k = v (1 + s + s^2 / 3) exp(-s) with s = sqrt(5) r.

    Examples
    --------
    >>> float(Matern52()(np.array([[0.0]]), np.array([[1.0]]))[0, 0])
    0.523994108
    """

    lengthscale: Lengthscale = None
    variance: float = 1.0
    ard: bool = field(default=False, kw_only=True)
    active_dims: tuple[int, ...] | None = field(default=None, kw_only=True)

    name: ClassVar[str] = "matern52"
    _smoothness: ClassVar[float] = 2.5
    _formula: ClassVar[str | None] = "matern52"
    _scale: ClassVar[float] = 5.0
    _slope: ClassVar[float] = -5.0 / 6.0

    def _evaluate(self, q: Array, aside: Array, work: Array, same: Coincidence) -> None:
        xp = namespace(q)
        xp.sqrt(q, out=aside)
        xp.negative(aside, out=work)
        xp.exp(work, out=work)
        times(work, self.variance)
        aside += 1
        aside *= work  # v (1 + s) exp(-s)
        q *= work
        q *= 1.0 / 3.0
        q += aside
