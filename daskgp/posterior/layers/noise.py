"""Gaussian noise of new observations."""

# ruff: noqa: D102 - the base class documents what its layers override

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskgp.models.values import Moments
from daskgp.posterior.layers.base import Layer, Parts, Places, register


@register
@dataclass(frozen=True, eq=False)
class Noise(Layer):
    """Gaussian noise of a ``variance`` that all new observations have."""

    variance: float

    name = "noise"
    of_observations = True

    def moments(self, inner: Moments, at: Places | None) -> Moments:
        if inner.noisy or (at is not None and at.left_out):  # the method has added it
            return inner
        if inner.covariance is not None:
            covariance = np.array(inner.covariance, np.float64)
            covariance[np.diag_indices(len(covariance))] += self.variance
            return inner._replace(covariance=covariance)
        return inner._replace(
            variance=None if inner.variance is None else inner.variance + self.variance
        )

    @property
    def described(self) -> None:
        return None  # hyper-parameters have it

    @classmethod
    def of_fit(cls, parts: Parts) -> Noise | None:
        return cls(parts.noise_variance) if parts.likelihood is None else None
