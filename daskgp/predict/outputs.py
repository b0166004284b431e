"""Arrays that predictions have beside mean and spread: quantiles, probabilities, samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgp.checks import whole
from daskgp.data.map_store import Outputs
from daskgp.errors import SettingError
from daskgp.models.values import Moments
from daskgp.posterior.layers.chain import Outer


def wanted(
    variance: bool,
    quantiles: Sequence[Any] | None,
    exceedance: float | None,
    n_samples: int | None = None,
    random_state: int | None = None,
) -> Outputs:
    """Return the arrays that a map gets, checked."""
    levels = () if quantiles is None else check_levels(quantiles)
    limit, samples = None if exceedance is None else check_threshold(exceedance), None
    if n_samples is not None:
        seed = 0 if random_state is None else whole("random_state", random_state, 0)
        samples = whole("n_samples", n_samples, 1), seed
    elif random_state is not None:
        raise SettingError("random_state belongs to n_samples: give both, or neither")
    return Outputs(variance, levels, limit, samples)


def check_levels(quantiles: Sequence[Any]) -> tuple[float, ...]:
    """Return levels of quantiles; SettingError unless they lie between 0 and 1 and increase."""
    try:
        levels = tuple(float(level) for level in np.atleast_1d(np.array(quantiles, np.float64)))
    except (TypeError, ValueError):
        levels = ()
    inside = all(0.0 < level < 1.0 for level in levels)
    if not levels or not inside or list(levels) != sorted(set(levels)):
        raise SettingError(
            f"quantiles is {quantiles!r:.60}: give levels between 0 and 1 in increasing order, "
            "such as (0.05, 0.95)"
        )
    return levels


def check_threshold(threshold: Any) -> float:
    """Return a threshold; SettingError unless it is a finite number."""
    number = threshold if isinstance(threshold, int | float | np.number) else np.nan
    if isinstance(threshold, bool) or not np.isfinite(number):
        raise SettingError(
            f"threshold is {threshold!r:.60}: give a finite number in units of the target"
        )
    return float(number)


def quantiles(mean: Any, std: Any, argument: tuple[Outer, tuple[float, ...]]) -> np.ndarray:
    """Return quantiles (..., q) at levels, given means and standard deviations of Gaussians."""
    outer, levels = argument
    return outer.quantiles(mean, std, levels)


def exceedance(mean: Any, std: Any, argument: tuple[Outer, float]) -> np.ndarray:
    """Return the probabilities (...) of exceeding a number, given Gaussians."""
    outer, limit = argument
    return outer.exceedance(mean, std, limit)


def arrays(
    moments: Moments, wanted: Outputs, outer: Outer, gaussian: Moments | None = None
) -> dict[str, np.ndarray]:
    """Return what a map holds of the moments (n, p) of new observations, by name.

    ``gaussian`` are those of the Gaussian inside ``outer``; None where they are the same.
    """
    assert moments.variance is not None
    mean, std = np.asarray(moments.mean), np.sqrt(moments.variance)
    found = {"mean": mean, "std": std}
    if wanted.variance:
        found["variance"] = np.asarray(moments.variance)
    if gaussian is not None:
        assert gaussian.variance is not None
        mean, std = np.asarray(gaussian.mean), np.sqrt(gaussian.variance)
    if wanted.quantiles:
        found["quantiles"] = outer.quantiles(mean, std, wanted.quantiles)
    if wanted.exceedance is not None:
        found["exceedance"] = outer.exceedance(mean, std, wanted.exceedance)
    return found
