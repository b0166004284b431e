"""Counts whose rows may have an exposure."""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from daskgp.arrays.backend import namespace
from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity, beside
from daskgp.typing import Array

LEAST_COUNT = 1e-6
"""Lower limit of the mean count."""
LARGEST_LOG_COUNT = 34.0
"""Counts beyond e^34 are not told from one another."""
LARGEST_EXPOSURE = 1e30
"""Exposures beyond it, or below its inverse, are no exposures in any unit."""


class Counts(Likelihood):
    """Counts with the mean e^f, or ``exposure`` e^(f + ``offset``) of rows that have these."""

    discrete: ClassVar[bool] = True
    interval: ClassVar[tuple[float, float]] = (0.0, math.inf)
    columns: ClassVar[tuple[str, ...]] = ("exposure", "offset")
    _takes: ClassVar[str] = "whole numbers of at least 0: give counts, or take another likelihood"

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(y_mean, LEAST_COUNT)).astype(np.float64)

    def _of_columns(self, values: Mapping[str, Array]) -> Likelihood:
        return Exposed(self, _shift(values))

    def _wrong(
        self, name: str, y: np.ndarray, given: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, str]:
        wrong, needed = super()._wrong(name, y, given)
        own, largest = given[name], LARGEST_EXPOSURE
        if name == "exposure":
            if not (own > 0).all():
                return wrong | ~(own > 0), "positive ones: leave rows without exposure out"
            needed = f"those from {1.0 / largest:g} to {largest:g}: give them in another unit"
            return wrong | (own > largest) | (own < 1.0 / largest), needed
        if wrong.any():
            return wrong, needed
        needed = f"logs of exposures, no farther from 0 than {math.log(largest):.3g}"
        return np.abs(own) > math.log(largest), needed


def _shift(values: Mapping[str, Array]) -> np.ndarray:
    """Return the log of the exposures, offsets included."""
    shift: Array = 0.0
    if "exposure" in values:
        shift = namespace(values["exposure"]).log(values["exposure"].astype(np.float64))
    return shift + values["offset"].astype(np.float64) if "offset" in values else shift


@dataclass(frozen=True, eq=False)
class Exposed(Likelihood):
    """Counts of rows whose f is greater by a ``shift`` (n,)."""

    counts: Counts
    shift: Any

    discrete: ClassVar[bool] = True
    interval: ClassVar[tuple[float, float]] = Counts.interval
    _takes: ClassVar[str] = Counts._takes

    @property
    def name(self) -> str:
        return self.counts.name

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return self.counts.parameter_names

    @property
    def log_parameters(self) -> np.ndarray:
        return self.counts.log_parameters

    @property
    def log_bounds(self) -> np.ndarray:
        return self.counts.log_bounds

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Exposed:
        return self._with(counts=self.counts.with_log_parameters(values))

    def log_p(self, y: Array, f: Array) -> LogDensity:
        return self.counts.log_p(y, self._moved(f))

    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return self.counts.below(y, self._moved(f))

    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.counts.sample(self._moved(f), rng)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        return self.counts.expected(y, self._moved(mean), variance)

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        return self.counts.log_density(y, self._moved(mean), variance)

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        return self.counts.cdf(y, self._moved(mean), std)

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        return self.counts.quantile(level, self._moved(mean), std)

    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        return self.counts.response(self._moved(mean), variance)

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        return self.counts.offset(y_mean / np.exp(self.shift).mean())

    def _moved(self, f: Array) -> np.ndarray:
        return f + beside(self.shift, f)
