"""Spread of predictions that rows left out tell."""

# ruff: noqa: D102 - the base class documents what its layers override

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskgp.models.values import Moments
from daskgp.posterior.layers.base import Layer, Places, register


@register
@dataclass(frozen=True, eq=False)
class Spread(Layer):
    """Learned ``factor`` on standard deviations."""

    factor: float

    name = "spread"

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        square, (variance, covariance) = self.factor**2, inner[1:3]
        return inner._replace(
            variance=None if variance is None else variance * square,
            covariance=None if covariance is None else covariance * square,
        )

    @property
    def spread(self) -> float:
        return self.factor

    def of_paths(self, values: Any, mean: Callable[[], Any]) -> Any:
        centre = mean()
        return centre + self.factor * (values - centre)

    @property
    def described(self) -> float:
        return self.factor

    @classmethod
    def restored(cls, described: float, arrays: dict[str, np.ndarray]) -> Spread:
        return cls(float(described))
