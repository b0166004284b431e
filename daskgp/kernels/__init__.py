"""Kernels: value, diagonal and vector-Jacobian products; sums, products and their text form.

The registry names every kernel that text and stores may use.
"""

from __future__ import annotations

from daskgp.kernels.averaged import Averaged
from daskgp.kernels.base import REGISTRY, Derived, Kernel, KernelGradient, Pullback, Unit
from daskgp.kernels.categories import Categorical, Coregion, with_levels
from daskgp.kernels.compose import Constant, Product, Sum
from daskgp.kernels.linear import Linear
from daskgp.kernels.numbers import Numbers
from daskgp.kernels.periodic import Periodic
from daskgp.kernels.registry import from_dict, parse, register
from daskgp.kernels.rotated import Rotated
from daskgp.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic

__all__ = [
    "RBF",
    "REGISTRY",
    "Averaged",
    "Categorical",
    "Constant",
    "Coregion",
    "Derived",
    "Kernel",
    "KernelGradient",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Numbers",
    "Periodic",
    "Product",
    "Pullback",
    "RationalQuadratic",
    "Rotated",
    "Sum",
    "Unit",
    "from_dict",
    "parse",
    "register",
    "with_levels",
]
