"""Numbers of kernels in the units of the data and in those of a model; which are left open."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from daskgp.kernels.base import Kernel, Unit
from daskgp.kernels.radial import replaced
from daskgp.kernels.rotated import Rotated, in_period

K = TypeVar("K", bound=Kernel)

NUMBERS = ("lengthscale", "period", "variance", "angle", "correlation")
"""Fields of kernels that fits find where they are left open."""
Size = Callable[[Unit], float | None]
"""Returns the size of a unit of the model in the user's; None if there is no such size."""


def has_rotation(kernel: Kernel) -> bool:
    """Return whether a kernel or a part of it is rotated.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> has_rotation(RBF() + Rotated()), has_rotation(RBF())
    (True, False)
    """
    return isinstance(kernel, Rotated) or any(map(has_rotation, getattr(kernel, "parts", ())))


def left_open(kernel: Kernel, d: int) -> np.ndarray:
    """Return a mask (k,) of the hyper-parameters of the resolved kernel that a kernel leaves open.

    Examples
    --------
    >>> from daskgp.kernels import RBF, Linear
    >>> left_open(RBF(2.0) + Linear(0.5), 3)  # variance, lengthscale, variance
    array([ True, False, False])
    """
    parts = getattr(kernel, "parts", None)
    if parts is not None:
        masks = [left_open(part, d) for part in parts]
        if isinstance(kernel, Rotated):
            masks.append(np.full(len(kernel.angles), kernel.angle is None))
        return np.concatenate(masks)
    near, far = (kernel.resolve(np.full(d, distance), distance) for distance in (1.0, 2.0))
    names = [name.partition("[")[0] for name in near.parameter_names]
    empty = [getattr(kernel, name, 1.0) is None for name in names]
    return np.array(empty, dtype=bool) | (near.log_parameters != far.log_parameters)


def known_columns(kernel: Kernel, d: int) -> tuple[int, ...]:
    """Return the columns, of d, that hyper-parameters are in the unit of, none of them left open.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> known_columns(RBF(2.0, active_dims=0) + RBF(active_dims=1), 3)
    (0,)
    """
    own = kernel.resolve(np.ones(d), 1.0).units(d)
    pairs = list(zip(own, left_open(kernel, d), strict=True))
    open_ones = {j for unit, is_open in pairs if is_open for j in unit.columns}
    return tuple(sorted({j for unit, _ in pairs for j in unit.columns} - open_ones))


def without_unit(kernel: Kernel, d: int, size: Size) -> list[str]:
    """Return the names of the numbers of a kernel of d columns whose unit has no size.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> without_unit(RBF(2.0), 3, lambda unit: None if unit.columns else 1.0)
    ['lengthscale']
    """
    resolved, is_open = kernel.resolve(np.ones(d), 1.0), left_open(kernel, d)
    named = zip(resolved.parameter_names, resolved.units(d), is_open, strict=True)
    return [name for name, unit, free in named if not free and size(unit) is None]


def in_model_units(kernel: Kernel, d: int, size: Size) -> Kernel:
    """Return a kernel of d columns with numbers in a model's units from one in the user's.

    Numbers that are left open stay so; those whose unit has no size stay as they are.  Angles are
    in their second period, from where training can turn them either way.
    """
    made = _rescaled(kernel, d, size, -1.0)
    return in_period(made, 1) if has_rotation(made) else made


def in_users_units(kernel: Kernel, d: int, size: Size) -> Kernel:
    """Return a kernel of d columns with numbers in the user's units from one in a model's."""
    made = _rescaled(kernel, d, size, 1.0)
    return in_period(made, 0) if has_rotation(made) else made


def _rescaled(kernel: Kernel, d: int, size: Size, sign: float) -> Kernel:
    resolved, is_open = kernel.resolve(np.ones(d), 1.0), left_open(kernel, d)
    sizes = [size(unit) for unit in resolved.units(d)]
    shifts = np.array([0.0 if one is None else sign * np.log(one) for one in sizes])
    shifts[is_open] = 0.0
    if not shifts.any():
        return kernel
    moved = resolved.with_log_parameters(resolved.log_parameters + shifts)
    return reopened(moved, kernel)


def opened(kernel: K) -> K:
    """Return a kernel with all numbers left open that its class can leave open.

    Examples
    --------
    >>> from daskgp.kernels import RBF
    >>> opened(RBF((1.0, 2.0), 3.0)) == RBF(ard=True)
    True
    """
    parts: Any = getattr(kernel, "parts", None)
    if parts is not None:
        like: Any = kernel
        made: K = like.with_parts(tuple(map(opened, parts)))
        return replaced(made, angle=None) if isinstance(made, Rotated) else made
    own = dataclasses.fields(kernel)  # type: ignore[arg-type]
    names = [field.name for field in own if field.name in NUMBERS and field.default is None]
    return replaced(kernel, **dict.fromkeys(names))


def reopened(kernel: K, like: Kernel) -> K:
    """Return a kernel with the numbers left open that another of the same structure leaves open."""
    parts: Any = getattr(kernel, "parts", None)
    if parts is not None:
        pairs = zip(parts, like.parts, strict=True)  # type: ignore[attr-defined]
        of_parts: Any = kernel
        made: K = of_parts.with_parts(tuple(reopened(*pair) for pair in pairs))
        is_open = isinstance(like, Rotated) and like.angle is None
        return replaced(made, angle=None) if is_open else made
    names = (field.name for field in dataclasses.fields(like))  # type: ignore[arg-type]
    left = {name: None for name in names if getattr(like, name) is None}
    return replaced(kernel, **left)
