"""Parameters of a kernel as settings of its estimator, ``kernel__lengthscale``."""

from __future__ import annotations

import dataclasses
from typing import Any

from daskgp.checks import meant, shown
from daskgp.errors import SettingError
from daskgp.estimators.settings import kernel_of
from daskgp.kernels import Kernel

PREFIX = "kernel__"


def parameters(kernel: Any) -> dict[str, Any]:
    """Return the parameters of a kernel by their names as settings; none for anything else."""
    if not isinstance(kernel, Kernel):
        return {}
    return {PREFIX + name: value for name, value in _parts(kernel).items()}


def replaced(kernel: Any, settings: dict[str, Any]) -> Kernel:
    """Return the kernel with other parameters, named as settings.

    Raises
    ------
    SettingError
        If the kernel has no parameter of that name.
    """
    own = {key.removeprefix(PREFIX): value for key, value in settings.items()}
    resolved: Any = kernel_of(kernel)  # all kernels are dataclasses
    for name in set(own) - set(_parts(resolved)):
        raise SettingError(
            f"{PREFIX}{name}: {meant(name, _parts(resolved), shown(resolved))} has "
            f"{', '.join(_parts(resolved))} to set"
        )
    changed: Kernel = dataclasses.replace(resolved, **own)
    return changed


def _parts(kernel: Any) -> dict[str, Any]:
    return {field.name: getattr(kernel, field.name) for field in dataclasses.fields(kernel)}
