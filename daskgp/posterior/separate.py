"""Posterior of separate targets that have rows of their own: one of each, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from daskgp.data import checksum
from daskgp.models.scaling import Scaling, identity
from daskgp.models.transform import Transform
from daskgp.models.values import Moments, Want
from daskgp.posterior.layers import Places, TargetNoise, chain
from daskgp.posterior.posterior import Posterior, through
from daskgp.typing import Device, UnseenName


@dataclass(frozen=True, eq=False)
class Separate(Posterior):
    """Posteriors of ``each`` target, which is independent of the others.

    Method and hyper-parameters are those of the first.  Layers and scaling have the units, the
    noise and the transform of all, the scaling in the user's units of inputs.
    """

    @classmethod
    def of(cls, each: Sequence[Posterior], **described: Any) -> Self:
        """Return the posterior of all targets, of those of each and what describes the rows.

        Parameters
        ----------
        each : sequence of Posterior
        **described
            ``target_names``, ``target_units``, ``fills`` and ``ranges`` of all the rows.
        """
        first = each[0]
        names = "feature_names", "dtype", "device", "geographic", "feature_units"
        own = {name: getattr(first, name) for name in (*names, "categories", "unseen", "reference")}
        scaling = _united([one.scaling for one in each])
        made = cls(
            first.method,
            replace(first.theta, inputs=None, varying=None),
            (),
            scaling,
            vector_target=False,
            finds_fills=first.finds_fills,
            rows_checksum=sum(one.rows_checksum for one in each) % 2**64,
            each=tuple(each),
            **own,
            **described,
        )
        noise = TargetNoise(np.array([one.theta.noise_variance for one in each]))
        layers = (layer for layer in chain.of_fit(made.parts()) if layer.name != "noise")
        return replace(made, layers=chain.joined(*layers, noise))

    @cached_property
    def token(self) -> str:
        """Checksum of all that predictions depend on."""
        return checksum({}, {"each": [one.token for one in self.each], "names": self.target_names})

    @property
    def users_kernel(self) -> Any:
        """Kernels of the columns of X, one of each target, in their units and those of y."""
        return tuple(one.users_kernel for one in self.each)

    def _with(self, each: Sequence[Posterior], **more: Any) -> Self:
        return replace(self, each=tuple(each), **more)

    def taking(self, unseen: UnseenName) -> Self:
        """Return the same that refuses other levels of categories, or takes them for a new one."""
        each = [one.taking(unseen) for one in self.each]
        return self._with(each, unseen=unseen, origin=None)

    def on(self, device: Device) -> Self:
        """Return the same that computes on another device."""
        return self._with([one.on(device) for one in self.each], device=device)

    def reading(self, fill_values: Sequence[float] | None) -> Self:
        """Return the same that reads other fill values of places as missing, too."""
        found = super().reading(fill_values)
        return found._with([one.reading(fill_values) for one in self.each])

    def grouped(self, X: np.ndarray) -> np.ndarray | None:
        """Return an order (n,) of rows X (n, d) in which those near each other are together."""
        return self.each[0].grouped(X)

    def relative_noise(self, X: np.ndarray) -> np.ndarray:
        """Return the noise variances (n, p) at rows X (n, d), relative to the common ones."""
        return np.column_stack([one.relative_noise(X) for one in self.each])

    def noise_at(self, X: np.ndarray) -> np.ndarray:
        """Return noise variances (n, p) at rows X (n, d), in y's units squared."""
        return np.asarray(self.relative_noise(X) * self.noise)

    def refuse_places(self, X: np.ndarray) -> None:
        """Raise InputError for places X (n, d) that have no joint covariance."""
        for one in self.each:
            one.refuse_places(X)

    def moments(
        self, X: np.ndarray, want: Want, include_noise: bool = False, gaussian: bool = False
    ) -> Moments:
        """Return the posterior at X (n, d) in the user's units; NaN for rows with missing values.

        A covariance is (n, n, p), as targets are independent.
        """
        layers = () if gaussian or want == "covariance" else self.outer(include_noise).layers
        if any(layer.needs_variance for layer in layers):
            want = "variance"
        found = [one.moments(X, want, include_noise, gaussian=True) for one in self.each]
        mean, variance, covariance = (
            None if parts[0] is None else np.concatenate(parts, axis=-1)
            for parts in zip(*(one[:3] for one in found), strict=True)
        )
        both = Moments(np.asarray(mean), variance, covariance)
        return through(layers, both, Places(X, X, np.ones(len(X), bool)))


def _united(each: Sequence[Scaling]) -> Scaling:
    """Return the units and mean functions of targets, of inputs in the user's units."""
    d, p = len(each[0].x_shift), len(each)
    slope, intercept = np.zeros((d, p)), np.zeros(p)
    for j, one in enumerate(each):
        slope[one.uses, j] = one.slope[one.uses, 0] / one.x_scale[one.uses]
        intercept[j] = one.intercept[0] - one.x_shift @ slope[:, j]
    transforms = [one.transform for one in each if one.transform is not None]
    transform = None
    if transforms:
        powers = np.concatenate([np.atleast_1d(one.powers) for one in transforms])
        slopes = sum(one.log_slopes for one in transforms)
        transform = Transform(transforms[0].kind, powers, slopes)
    y_scale = np.concatenate([one.y_scale for one in each])
    units = replace(identity(d, p), intercept=intercept, slope=slope, y_scale=y_scale)
    return replace(units, transform=transform)
