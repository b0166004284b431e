"""Mean functions: least squares, a trend that is integrated over, or a regressor."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, get_args

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from daskgp.checks import meant, shown
from daskgp.data import Rows
from daskgp.data.regressor import Regressor
from daskgp.errors import InputError, SettingError
from daskgp.kernels import Kernel
from daskgp.kernels.averaged import averages
from daskgp.likelihoods import Likelihood
from daskgp.models.method import Declared
from daskgp.models.scaling import Scaling
from daskgp.models.trend import collinear
from daskgp.typing import MeanName

logger: logging.Logger = logging.getLogger("daskgp")

WORDS: tuple[str, ...] = get_args(MeanName)
LEAST_SQUARES = ("zero", "constant", "ols")
INTEGRATED = "ExactGP, SGPR, LMA, PIC or SparseSpectrumGP"


def is_regressor(mean: Any) -> bool:
    """Return True for an object that predicts."""
    return hasattr(mean, "predict")


def is_integrated(mean: Any) -> bool:
    """Return True for a trend whose coefficients are integrated over."""
    if isinstance(mean, str):
        return mean not in LEAST_SQUARES
    return not is_regressor(mean)


def check(
    mean: Any, method: Declared, codes: Likelihood | None, name: str, transform: str | None
) -> None:
    """Raise SettingError for a mean function that is none, or that the method does not take.

    ``codes`` is the likelihood of targets that are not measured, ``name`` what messages call the
    method, and ``transform`` that of the targets.
    """
    if isinstance(mean, str):
        if mean not in WORDS:
            words = ", ".join(map(repr, WORDS))
            told = (
                f"choose one of {words}, a list of columns of X for a trend, such as "
                f"mean=[{shown(mean)}], or a fitted regressor"
            )
            raise SettingError(f"mean={shown(mean)}: {meant(mean, WORDS, told)}")
    elif is_regressor(mean):
        _check_regressor(mean, transform)
    elif not (isinstance(mean, Sequence) and all(isinstance(name, str) for name in mean)):
        raise SettingError(
            f"mean={shown(mean)}: give {', '.join(map(repr, WORDS))}, a list of names of columns, "
            "or a fitted regressor, which has predict"
        )
    if isinstance(mean, str) and mean in ("zero", "constant"):
        return
    sites = method.likelihood_name == "gaussian" and is_integrated(mean) and method.takes_trend
    if codes is not None and not sites:
        others = ", or a trend, 'linear' or names of columns" * method.takes_trend
        raise SettingError(
            f"mean={shown(mean)} is a mean of measured targets: with likelihood={codes.name!r} "
            f"choose 'constant' or 'zero'{others}"
        )
    if is_integrated(mean) and not method.takes_trend:
        raise SettingError(
            f"mean={shown(mean)} is a trend whose coefficients are integrated over, which "
            f"{name} does not support: choose mean='ols', least squares without their "
            f"uncertainty, a fitted regressor, or {INTEGRATED}"
        )


def _check_regressor(mean: Any, transform: str | None) -> None:
    name = shown(mean)
    if isinstance(mean, type):
        raise SettingError(f"mean={name} is a class: give a fitted instance of it")
    if hasattr(mean, "fit"):
        try:
            check_is_fitted(mean)
        except NotFittedError as error:
            raise SettingError(
                f"mean={name} is not fitted: fit it to X and y before the GP, which models its "
                "residuals"
            ) from error
    if transform is not None:
        raise SettingError(
            f"mean={name} predicts y, but target_transform={transform!r} "
            "transforms its residuals: fit both to transformed targets, or leave one out"
        )


def columns(
    mean: Any,
    names: Sequence[str],
    categories: Collection[str] = (),
    footprints: Collection[str] = (),
) -> tuple[int, ...] | None:
    """Return the numbers of the columns of a trend that is integrated over; None for other means.

    "linear" leaves out those that are ``categories`` or ``footprints``.

    Raises
    ------
    SettingError
        If a name is no column, that of a category or footprint, or named twice.
    """
    if not is_integrated(mean):
        return None
    if isinstance(mean, str):
        others = {*categories, *footprints}
        return tuple(j for j, name in enumerate(names) if name not in others)
    for i, name in enumerate(mean):
        if name not in names:
            words = ", ".join(map(repr, WORDS))
            raise SettingError(
                f"mean names {shown(name)}, but the columns of X are {shown(', '.join(names))}: "
                + meant(name, names, f"name some of these, or choose {words}")
            )
        if name in categories:
            raise SettingError(
                f"mean names {name!r}, which is a category: a trend is in numbers, and kernels "
                f"take levels, kernels.Categorical({name!r})"
            )
        if name in footprints:
            raise SettingError(
                f"mean names {name!r}, which is the footprint of each row: a trend is in the "
                "coordinates and other features"
            )
        if name in mean[:i]:
            raise SettingError(f"mean={shown(mean)} names {name!r} twice: name it once")
    return tuple(names.index(name) for name in mean)


def check_footprints(mean: Any, kernel: Kernel, names: Sequence[str]) -> None:
    """Raise SettingError for a mean that depends on where rows are, if they are sets of points."""
    offsets = any(part.of_points for part in averages(kernel))
    if offsets and mean not in ("zero", "constant"):
        raise SettingError(
            f"mean={shown(mean)} is that at the place of a row, but footprints of points, "
            f"{', '.join(map(repr, names))}, may lie around another: choose mean='constant'"
        )


def regressor(mean: Any, rows: Rows) -> Regressor | None:
    """Return the regressor of rows; None for other means."""
    if isinstance(mean, str) or not is_regressor(mean):
        return None
    return Regressor(mean, rows.feature_names, rows.n_targets)


def described(mean: Any) -> MeanName | None:
    """Return the mean that is fitted in the first pass; None for that of a trend."""
    if is_integrated(mean):
        return None
    return "constant" if is_regressor(mean) else mean


def of_columns(scale: Scaling, rows: Rows, n: int) -> Scaling:
    """Return the scaling of n rows with the columns of its trend.

    Raise InputError where the rows do not determine it.
    """
    if scale.trend is None:
        return scale
    assert rows.trend is not None
    functions = scale.trend.n_functions
    if n <= functions:
        raise InputError(
            f"{n} usable rows do not determine a trend of {functions} functions: name fewer "
            "columns in mean=, or choose 'constant'"
        )
    names = [rows.feature_names[j] for j in rows.trend]
    for group in scale.trend.collinear():
        logger.warning(
            "%s: standard deviations are infinite at places where this does not hold: leave "
            "one of them out of mean=",
            collinear(group, names),
        )
    return replace(scale, trend=replace(scale.trend, columns=rows.trend))


def with_trend(model: Any, scale: Scaling) -> Any:
    """Return a method for rows whose targets are followed by the trend functions of a scaling."""
    number = 0 if scale.trend is None else scale.trend.n_functions
    declared: Declared = model
    return replace(model, trend=number) if declared.takes_trend else model
