"""Numbers that a method learns beside the noise variance, where it has no kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from daskgp.checks import logs_of, parameter
from daskgp.kernels.base import Kernel, KernelGradient, Pullback
from daskgp.kernels.stationary import RBF
from daskgp.typing import Array

BOUNDS = (1e-4, 1e4)
_PLAIN = RBF(1.0)


@dataclass(frozen=True)
class Numbers(Kernel):
    """Positive numbers that a method learns, as it does those of a kernel.

    The numbers are the fields of a class derived from it, which is registered as kernels are; a
    method has them as ``theta.kernel``.  As a kernel it is exp(-r^2 / 2) whatever they are, where r
    is the distance of scaled inputs: by it rows are near one another.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from daskgp import kernels
    >>> @dataclass(frozen=True)
    ... class Power(kernels.Numbers):
    ...     power: float = 2.0
    ...     name = "power"
    ...     bounds = {"power": (0.5, 8.0)}
    >>> Power().parameter_names, Power(3.0).with_log_parameters([0.0])
    (('power',), Power(power=1.0))
    """

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Least and largest value that training may reach, by name; 1e-4 and 1e4 by default."""

    def __post_init__(self) -> None:
        for name in self.parameter_names:
            parameter(getattr(self, name), name)

    def __call__(self, X: Array, Z: Array | None = None, out: Array | None = None) -> np.ndarray:
        """Return the tile K(X, Z), see ``Kernel``."""
        return _PLAIN(X, Z, out)

    def diag(self, X: Array) -> np.ndarray:
        """Return the diagonal, of ones."""
        return _PLAIN.diag(X)

    def pullback(
        self, X: Array, Z: Array | None = None, work: Array | None = None
    ) -> tuple[np.ndarray, Pullback]:
        """Return the tile, and the gradient by inputs alone."""
        K, pull = _PLAIN.pullback(X, Z, work)

        def by_inputs(K_bar: Array, overwrite: bool = False) -> KernelGradient:
            return self._without(pull(K_bar, overwrite))

        return K, by_inputs

    def diag_vjp(self, X: Array, diag_bar: Array) -> KernelGradient:
        """Return the gradient of the diagonal, of zeros."""
        return self._without(_PLAIN.diag_vjp(X, diag_bar))

    def _without(self, gradient: KernelGradient) -> KernelGradient:
        return gradient._replace(log_parameters=np.zeros(len(self.parameter_names)))

    @property
    def tiles(self) -> int:
        """Number of tiles that a pullback takes."""
        return _PLAIN.tiles

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(field.name for field in fields(self))

    @property
    def log_parameters(self) -> np.ndarray:
        """Logarithms of the fields, (k,)."""
        return np.log([float(getattr(self, name)) for name in self.parameter_names])

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Self:
        """Return the same with other numbers."""
        numbers = np.exp(logs_of(self.parameter_names, values)).tolist()
        named: dict[str, Any] = dict(zip(self.parameter_names, numbers, strict=True))
        return replace(self, **named)

    def log_bounds(self, spread: np.ndarray) -> np.ndarray:
        """Return the logarithms of ``bounds``, (k, 2)."""
        pairs = [self.bounds.get(name, BOUNDS) for name in self.parameter_names]
        return np.log(np.array(pairs, np.float64).reshape(-1, 2))

    def resolve(self, median: np.ndarray, distance: float) -> Self:
        """Return the same: no number is left open."""
        return self
