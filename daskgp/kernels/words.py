"""Kernels in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from daskgp.kernels.averaged import Averaged
from daskgp.kernels.base import Kernel
from daskgp.kernels.compose import Composite
from daskgp.kernels.rotated import Rotated


def structure(kernel: Kernel, features: Sequence[str]) -> str:
    """Return the structure of a kernel in words, without its hyper-parameters.

    It names the features of a kernel that has not all of them.
    """
    parts = getattr(kernel, "parts", None)
    if isinstance(kernel, Rotated):
        return f"rotated {structure(kernel.kernel, features)}"
    if isinstance(kernel, Averaged):
        return f"averaged {structure(kernel.kernel, features)}"
    if parts is not None:
        sign = " + " if kernel.name == "sum" else " * "
        return sign.join(structure(part, features) for part in parts)
    lengthscale: Any = getattr(kernel, "lengthscale", None)
    several = getattr(kernel, "ard", False) or isinstance(lengthscale, tuple)
    columns: Any = getattr(kernel, "active_dims", None)
    own = [] if columns is None else [j for one in columns for j in np.atleast_1d(one).tolist()]
    names = [*dict.fromkeys(features[j] if isinstance(j, int) else str(j) for j in own)]
    on = f" of {', '.join(names)}" if names and {*names} != {*features} else ""
    return f"{kernel.name}{' (ard)' if several else ''}{on}"


def numbered_parts(kernel: Kernel, prefix: str = "") -> Iterator[tuple[str, Kernel]]:
    """Yield the parts of a sum or product, with what the names of their hyper-parameters begin."""
    if not isinstance(kernel, Composite):
        yield prefix, kernel
        return
    for i, part in enumerate(kernel.parts):
        yield from numbered_parts(part, f"{prefix}{i}.")
