"""Chains of layers, from the inside out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskgp.models.values import Moments
from daskgp.posterior.layers.base import REGISTRY, Distribution, Layer, Parts

Chain = tuple[Layer, ...]
LAYERS = "layers"
"""Attribute of a model store with the names of its layers; their descriptions are beside it."""


def of_fit(parts: Parts) -> Chain:
    """Return the layers that follow from a fit."""
    made = (kind.of_fit(parts) for kind in REGISTRY.values())
    return tuple(layer for layer in made if layer is not None)


def joined(*layers: Layer) -> Chain:
    """Return layers in their order; of several of a kind the last one."""
    last = {layer.name: layer for layer in layers}
    return tuple(last[name] for name in REGISTRY if name in last)


def renewed(layers: Iterable[Layer], parts: Parts, number: int = 1) -> Chain:
    """Return layers as they are with other parts of a fit, that has targets ``number`` times."""
    return tuple(type(layer).of_fit(parts) or layer.repeated(number) for layer in layers)


def described(layers: Iterable[Layer]) -> dict[str, Any]:
    """Return what a model store notes of layers."""
    told = {layer.name: layer.described for layer in layers}
    return {LAYERS: [*told], **{name: said for name, said in told.items() if said is not None}}


def arrays(layers: Iterable[Layer]) -> dict[str, np.ndarray]:
    """Return the arrays that a model store has of layers."""
    return {f"{layer.name}_{k}": array for layer in layers for k, array in layer.arrays.items()}


def restored(attributes: Mapping[str, Any], own: Mapping[str, np.ndarray], parts: Parts) -> Chain:
    """Return the layers of a model store, whose first versions do not list them.

    Raises
    ------
    SettingError
        If it has a layer of an unknown kind.
    """
    found = []
    for name in attributes.get(LAYERS, REGISTRY):
        kind, prefix = REGISTRY.find(name), f"{name}_"
        layer = kind.of_fit(parts)
        if layer is None and (LAYERS in attributes or name in attributes):
            mine = {k.removeprefix(prefix): a for k, a in own.items() if k.startswith(prefix)}
            layer = kind.restored(attributes.get(name), mine)
        found += [] if layer is None else [layer]
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Outer:
    """Layers around a Gaussian: what they make of its mean and standard deviation, at any place."""

    layers: Sequence[Layer] = ()

    @property
    def keeps_moments(self) -> bool:
        """True if the mean and standard deviation of a prediction are those of the Gaussian."""
        return all(layer.keeps_moments for layer in self.layers)

    @property
    def increasing(self) -> bool:
        """True if what is predicted are increasing functions of Gaussian values, but for tails."""
        return all(layer.increasing for layer in self.layers)

    @property
    def graded(self) -> bool:
        """True if quantiles say something of what is predicted."""
        return all(layer.graded for layer in self.layers)

    def of_rows(self, beside: Mapping[str, Any]) -> Outer:
        """Return the layers of rows with numbers (n,) that a likelihood takes beside y."""
        return Outer([layer.of_rows(beside) for layer in self.layers]) if beside else self

    def moments(self, inner: Moments) -> Moments:
        """Return mean and variance of what is predicted, given those of the Gaussian."""
        for layer in self.layers:
            inner = layer.moments(inner, None)
        return inner

    def over(self, mean: Any, std: Any) -> Distribution:
        """Return the distributions (...), given means and standard deviations of Gaussians."""
        found = Distribution(np.asarray(mean, np.float64), np.asarray(std, np.float64))
        for layer in self.layers:
            found = layer.over(found)
        return found

    def quantiles(self, mean: Any, std: Any, levels: Sequence[float]) -> np.ndarray:
        """Return quantiles (..., q) at the levels."""
        found = self.over(mean, std)
        return np.stack([found.quantile(level) for level in levels], axis=-1)

    def exceedance(self, mean: Any, std: Any, limit: float | tuple[float, ...]) -> np.ndarray:
        """Return the probabilities (..., p) of exceeding a number, or that of each target."""
        return self.over(mean, std).exceedance(np.asarray(limit, np.float64))

    def outward(self, values: Any) -> Any:
        """Return values (..., p), given those of the Gaussian."""
        for layer in self.layers:
            values = layer.outward(values)
        return values

    def wider(self, level: float) -> float:
        """Return the width of central intervals of a level relative to those of the Gaussian."""
        return float(np.prod([layer.wider(level) for layer in self.layers]))

    def supports(self, y: Any) -> Any:
        """Return True for each value that can be observed, and for missing ones (NaN)."""
        possible = np.isfinite(y) | np.isnan(y)
        for layer in self.layers:
            possible = possible & layer.supports(y)
        return possible

    def refuse(self, count: int) -> None:
        """Raise InputError if ``count`` values, more than 0, cannot be observed."""
        for layer in self.layers:
            layer.refuse(count)

    def check(self, what: str) -> None:
        """Raise SettingError if the distribution has no ``what``, quantiles for example."""
        for layer in self.layers:
            layer.refuse_ungraded(what)
