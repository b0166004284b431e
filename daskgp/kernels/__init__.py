"""Kernels: value, diagonal and vector-Jacobian products; sums, products and their text form.

The registry names every kernel that text and stores may use.
"""

from __future__ import annotations

import textwrap
from typing import Any

from daskgp.errors import SettingError
from daskgp.kernels.base import Kernel, KernelGradient, Pullback
from daskgp.kernels.compose import Product, Sum
from daskgp.kernels.linear import Constant, Linear
from daskgp.kernels.matern import Matern12, Matern32, Matern52
from daskgp.kernels.parse import build as _build
from daskgp.kernels.parse import parse as _parse
from daskgp.kernels.periodic import Periodic
from daskgp.kernels.stationary import RBF, RationalQuadratic

__all__ = [
    "RBF",
    "REGISTRY",
    "Constant",
    "Kernel",
    "KernelGradient",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "Pullback",
    "RationalQuadratic",
    "Sum",
    "from_dict",
    "parse",
]

DEEPEST = 100
"""Most levels of sums and products in a description."""

REGISTRY: dict[str, type[Kernel]] = {
    RBF.name: RBF,
    Matern12.name: Matern12,
    Matern32.name: Matern32,
    Matern52.name: Matern52,
    RationalQuadratic.name: RationalQuadratic,
    Periodic.name: Periodic,
    Linear.name: Linear,
    Constant.name: Constant,
}


def parse(text: str) -> Kernel:
    """The kernel written as text.

    Names are those of the registry, numbers are constant kernels, ``+`` and ``*`` combine.
    The text is read, never evaluated.

    Raises
    ------
    SettingError
        If a part is not a kernel; the message names the part and the known names.

    Examples
    --------
    >>> parse("rbf(lengthscale=2) + 0.1*linear()").parameter_names
    ('0.variance', '0.lengthscale', '1.0.variance', '1.1.variance')
    """
    return _parse(text, REGISTRY)


def from_dict(description: dict[str, Any]) -> Kernel:
    """The kernel that ``Kernel.to_dict`` described.

    Raises
    ------
    SettingError
        If the description is not one of a known kernel.

    Examples
    --------
    >>> from_dict(Matern32(2.0).to_dict()) == Matern32(2.0)
    True
    """
    return _from_dict(description, DEEPEST)


def _from_dict(description: Any, levels: int) -> Kernel:
    if not levels:
        raise SettingError(f"sums and products of kernels are nested more than {DEEPEST} deep")
    if not isinstance(description, dict) or "kernel" not in description:
        seen = textwrap.shorten(f"{description!r:.200}", 60)
        raise SettingError(f"{seen} does not describe a kernel: it has no 'kernel' entry")
    settings = dict(description)
    name = settings.pop("kernel")
    for kind in (Sum, Product):
        if name == kind.name:
            parts = settings.get("parts")
            if not isinstance(parts, list) or len(settings) != 1:
                raise SettingError(f"a {name} of kernels is described by a list 'parts' alone")
            return kind(tuple(_from_dict(part, levels - 1) for part in parts))
    if not isinstance(name, str) or name not in REGISTRY:
        raise SettingError(f"unknown kernel {name!r}: choose one of {', '.join(REGISTRY)}")
    return _build(REGISTRY[name], [], settings, f"kernel {name!r}")
