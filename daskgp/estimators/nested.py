"""Parameters of a kernel as settings of its estimator, ``kernel__lengthscale``."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from sklearn.base import BaseEstimator

from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.estimators.settings import kernel_of
from daskgp.kernels import Kernel

PREFIX = "kernel__"


class NestedKernel(BaseEstimator):
    """An estimator whose kernel, a value that never changes, is replaced by ``set_params``."""

    kernel: Kernel | str | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name.

        Parameters
        ----------
        deep : bool
            Also the parameters of a kernel, as ``kernel__lengthscale``.

        Returns
        -------
        dict
        """
        found: dict[str, Any] = super().get_params(deep)
        if deep and isinstance(self.kernel, Kernel):
            found |= {PREFIX + name: value for name, value in _parts(self.kernel).items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Change settings by name; those of the kernel, ``kernel__lengthscale``, last.

        Returns
        -------
        self

        Raises
        ------
        SettingError
            If the kernel has no parameter of that name.
        """
        names = [key for key in params if key.startswith(PREFIX)]
        own = {key.removeprefix(PREFIX): params.pop(key) for key in names}
        super().set_params(**params)
        if own:
            kernel: Any = kernel_of(self.kernel)  # all kernels are dataclasses
            for name in set(own) - set(_parts(kernel)):
                raise SettingError(
                    f"{PREFIX}{name}: {shown(kernel)} has {', '.join(_parts(kernel))} to set"
                )
            self.kernel = dataclasses.replace(kernel, **own)
        return self


def _parts(kernel: Any) -> dict[str, Any]:
    return {field.name: getattr(kernel, field.name) for field in dataclasses.fields(kernel)}
