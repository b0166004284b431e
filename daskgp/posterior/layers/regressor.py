"""Regressors whose residuals a method models."""

# ruff: noqa: D102 - the base class documents what its layers override

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskgp.data.regressor import Known
from daskgp.models.values import Moments
from daskgp.posterior.layers.base import Layer, Parts, Places, register


@register
@dataclass(frozen=True, eq=False)
class RegressorLayer(Layer):
    """Predictions of a ``known`` regressor, once for each of ``times`` columns of a target."""

    known: Known
    times: int = 1

    name = "regressor"
    linear = False
    stored = False

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        assert at is not None
        added = self.known.regressor(at.given).repeat(self.times, axis=1)
        return inner._replace(mean=inner.mean + added)

    def unpredicted(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return y - self.known.regressor(X)

    @property
    def described(self) -> Any:
        return None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"places": self.known.places, "values": self.known.values}

    @property
    def identity(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {self.name: self.known.regressor.token}, {}

    @classmethod
    def of_fit(cls, parts: Parts) -> RegressorLayer | None:
        if parts.known is None:
            return None
        return cls(parts.known, len(parts.scaling.y_scale) // parts.known.regressor.n_targets)

    def check(self) -> None:
        self.known.check()
