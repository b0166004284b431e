"""Units of targets."""

# ruff: noqa: D102 - the base class documents what its layers override

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskgp.models.scaling import Scaling
from daskgp.models.values import Moments
from daskgp.posterior.layers.base import Layer, Parts, Places, register


@register
@dataclass(frozen=True, eq=False)
class Units(Layer):
    """Units of (transformed) targets and their mean function, by the ``scaling`` of a fit."""

    scaling: Scaling

    name = "units"

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        assert at is not None
        return self.scaling.moments(inner, at.scaled)

    @property
    def unit(self) -> np.ndarray:
        return self.scaling.y_scale

    @property
    def described(self) -> Any:
        return None  # the scaling is beside the layers

    @classmethod
    def of_fit(cls, parts: Parts) -> Units:
        return cls(parts.scaling)
