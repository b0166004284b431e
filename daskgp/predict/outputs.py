"""Quantiles and probabilities from the mean and the standard deviation of a Gaussian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from daskgp.checks import whole
from daskgp.data.map_store import Outputs
from daskgp.errors import SettingError
from daskgp.models.values import Moments
from daskgp.predict.posterior import Solved


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


def refuse_not_gaussian(solved: Solved, what: str) -> None:
    """Raise SettingError where a new observation is not Gaussian."""
    if solved.likelihood is not None:
        raise SettingError(
            f"{what} of new observations of likelihood {solved.likelihood.name!r} are not made: "
            "leave include_noise out for those of f"
        )


def quantiles(mean: np.ndarray, std: np.ndarray, argument: tuple[float, ...]) -> np.ndarray:
    """Return quantiles (..., q), at the levels of ``argument``, of Gaussians by mean and std."""
    return np.asarray(mean)[..., None] + np.asarray(std)[..., None] * ndtri(np.array(argument))


def exceedance(mean: np.ndarray, std: np.ndarray, argument: float) -> np.ndarray:
    """Return the probabilities (...) that Gaussians exceed a number; without spread 0 or 1."""
    away = np.asarray(mean, np.float64) - argument
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(away == 0.0, np.where(np.asarray(std) > 0, 0.0, -np.inf), away / std)
    return np.asarray(ndtr(scores))


def arrays(moments: Moments, wanted: Outputs) -> dict[str, np.ndarray]:
    """Return what a map holds of the moments (n, p), by name."""
    assert moments.variance is not None
    mean, std = np.asarray(moments.mean), np.sqrt(moments.variance)
    found = {"mean": mean, "std": std}
    if wanted.variance:
        found["variance"] = np.asarray(moments.variance)
    if wanted.quantiles:
        found["quantiles"] = quantiles(mean, std, wanted.quantiles)
    if wanted.exceedance is not None:
        found["exceedance"] = exceedance(mean, std, wanted.exceedance)
    return found
