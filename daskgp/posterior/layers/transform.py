"""Transforms of targets, undone."""

# ruff: noqa: D102 - the base class documents what its layers override

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskgp.models.transform import Transform
from daskgp.models.values import Moments
from daskgp.posterior.layers.base import Distribution, Layer, Mapped, Parts, Places, register


@register
@dataclass(frozen=True, eq=False)
class TransformLayer(Layer):
    """Values of y, given those of what a ``transform`` makes of it."""

    transform: Transform

    name = "target_transform"
    gaussian = False
    needs_variance = True

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        assert inner.variance is not None
        unbounded = np.isinf(inner.variance)  # and so are moments of what is transformed
        finite = np.where(unbounded, 0.0, inner.variance)
        found = self.transform.moments(inner.mean, finite)
        mean, variance = (np.where(unbounded, np.inf, part) for part in found)
        return inner._replace(mean=mean, variance=variance)

    def over(self, inner: Distribution) -> Distribution:
        return _Transformed(inner.mean, inner.std, inner, self)

    def outward(self, values: Any) -> np.ndarray:
        return self.transform.inverse(values)

    def inward(self, values: Any) -> np.ndarray:
        return np.where(np.asarray(values) < 0.0, -np.inf, self.transform.forward(values))

    def log_slope(self, values: Any) -> np.ndarray:
        return self.transform.log_slope(values)

    def supports(self, y: Any) -> Any:
        return self.transform.supports(y)

    def refuse(self, count: int) -> None:
        self.transform.refuse(count)

    @property
    def setting(self) -> str:
        return f"target_transform={self.transform.kind!r}"

    @property
    def described(self) -> dict[str, Any]:
        return self.transform.to_dict()

    @property
    def identity(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"transform": self.described}, {}  # as the first versions named it

    @classmethod
    def of_fit(cls, parts: Parts) -> TransformLayer | None:
        transform = parts.scaling.transform
        return None if transform is None else cls(transform)


@dataclass(frozen=True, eq=False)
class _Transformed(Mapped):
    """Distributions of y: at 0 lies what is below the values that a transform takes."""

    layer: TransformLayer

    def log_density(self, y: Any) -> np.ndarray:
        return self.layer.transform.log_density(y, self.mean, self.std**2)
