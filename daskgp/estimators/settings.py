"""Checks of the settings that estimators share; each names the setting and its allowed values."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import fields
from functools import cache
from numbers import Integral
from types import NoneType
from typing import Any, get_type_hints

from daskgp import kernels, likelihoods
from daskgp.checks import choice, is_number, meant, options, place, positive, shown, whole
from daskgp.data.valid import numbers_of
from daskgp.errors import SettingError
from daskgp.estimators import requirements
from daskgp.fit import constraints, means
from daskgp.kernels import Kernel
from daskgp.likelihoods import Likelihood
from daskgp.models.method import Declared
from daskgp.registry import IMPORT

_VALUES: dict[Any, tuple[Any, ...]] = {bool: (True, False), NoneType: (None,)}

JITTER = {"float64": 1e-8, "float32": 1e-5}
"""Jitter relative to the prior variance; rounding of float32 tiles must stay below it."""


def check_settings(estimator: Any, besides: Collection[str] = ()) -> None:
    """Raise SettingError for a common setting out of range, or any setting without effect.

    Settings in ``besides`` have an effect whatever the others are.
    """
    _check_choices(estimator)
    place("store", estimator.store, "a folder")
    positive("noise_variance", estimator.noise_variance, squared=True)
    tol: Any = estimator.tol
    if tol is not None or type(estimator).tol is not None:  # the method may choose it
        positive("tol", tol)
    whole("max_iter", estimator.max_iter, 1)
    if estimator.random_state is not None:
        whole("random_state", estimator.random_state, 0)
    if estimator.optimizer == "trust-region" and estimator._inputs.trained:
        raise SettingError(
            "optimizer='trust-region' trains only hyper-parameters, not inputs or actions: "
            "choose 'auto' or 'l-bfgs'"
        )
    if estimator.block_rows is not None:
        whole("block_rows", estimator.block_rows, 1)
    _whole_or_none("train_blocks", estimator.train_blocks, estimator.traits.knows_enough_blocks)
    if hasattr(estimator, "training_rows"):
        _whole_or_none("training_rows", estimator.training_rows, True)
    kernel_of(estimator.kernel)
    numbers_of(estimator.fill_values)
    positive("learning_rate", estimator.learning_rate)
    constraints.Asked(estimator.fixed, estimator.limits, estimator.prior).check()
    requirements.check(estimator, besides)
    estimator._check_own()
    model, name = estimator._model(), type(estimator).__name__
    _check_kernel(estimator, model)
    sites = by_sites(model, estimator.likelihood)
    _check_sites(sites, model, name)
    likelihood = sites or likelihoods.by_name(model.likelihood_name)
    if estimator.targets == "joint" and not takes_sites(model):
        raise SettingError(
            f"targets='joint' takes a noise variance per row, the evidence and the variance of f, "
            f"which {name} does not have all: choose VecchiaGP, LMA, SGPR or ExactGP"
        )
    if estimator.targets == "joint" and not estimator._inputs.takes_categories:
        raise SettingError(
            f"targets='joint' makes the targets a category, for which {name} has no "
            f"{estimator._inputs.label}: choose VecchiaGP, LMA, SGPR or ExactGP"
        )
    codes = None if likelihood.standardised and sites is None else likelihood
    means.check(estimator.mean, model, codes, name, estimator.target_transform)
    missing = model.why_no_variance() if estimator.calibrate is not None else None
    if missing:
        raise SettingError(f"calibrate={estimator.calibrate!r} needs a variance: {missing}")
    unable = model.why_no_loo() if estimator.calibrate == "loo" else None
    if unable:
        raise SettingError(f"calibrate='loo': {unable}; or choose 'random'")


def by_sites(model: Declared, name: str) -> Likelihood | None:
    """Return the likelihood that Gaussian sites stand for; None for that of the method."""
    if name == "gaussian" or model.likelihood_name != "gaussian":
        return None
    return likelihoods.by_name(name)


def takes_sites(model: Declared) -> bool:
    """Return True if Gaussian sites of any likelihood go with a method."""
    if model.likelihood_name != "gaussian" or model.noisy:
        return False
    return model.takes_noise and model.has_evidence and model.why_no_variance() is None


def _check_sites(likelihood: Likelihood | None, model: Declared, name: str) -> None:
    """Raise SettingError for a likelihood whose sites a method cannot take."""
    if likelihood is None or takes_sites(model):
        return
    raise SettingError(
        f"likelihood={likelihood.name!r} takes a noise variance per row, the evidence and the "
        f"variance of f, which {name} does not have all: choose VecchiaGP, LMA, SGPR or SVGP"
    )


def _check_kernel(estimator: Any, model: Declared) -> None:
    """Raise SettingError for a kernel that a method would ignore, or cannot be fitted with."""
    name, given = type(estimator).__name__, estimator.kernel
    if not model.uses_kernel:
        if given is not None:
            raise SettingError(
                f"kernel={shown(given)} has no effect, as {name} has no kernel: leave kernel out"
            )
        return
    for kernel in estimator._kernels():
        needed = model.why_no_kernel(kernel)
        if needed:
            raise SettingError(f"{name} needs {needed}, not {shown(kernel)}: set kernel=")


OF_THEIR_OWN = {
    "hurdle": "amounts with zeros have an estimator of their own: fit daskgp.HurdleGP",
    "categorical": "classes have an estimator of their own: fit daskgp.GPClassifier",
}
"""Where likelihoods are that several models make."""


def _check_choices(estimator: Any) -> None:
    """Raise SettingError for a setting that is none of the values it may have."""
    likelihood = getattr(estimator, "likelihood", None)
    if isinstance(likelihood, str):
        likelihoods.REGISTRY.knows(likelihood)  # which imports the package that has it
    for name, allowed in choices(type(estimator)).items():
        if name == "likelihood" and isinstance(likelihood, str) and likelihood not in allowed:
            known = f"choose one of {', '.join(map(repr, allowed))}, or {IMPORT}"
            hint = OF_THEIR_OWN.get(likelihood) or meant(likelihood, allowed, known)
            raise SettingError(f"likelihood={shown(likelihood)}: {hint}")
        choice(name, getattr(estimator, name), allowed, IMPORT if name == "likelihood" else "")
    for name, hints in _own_numbers(type(estimator)).items():
        _check_number(name, getattr(estimator, name), hints)


def choices(kind: type) -> dict[str, tuple[Any, ...]]:
    """Return the settings of a class that take one of several values, with these values.

    They are the settings that are annotated with strings, booleans and None alone.
    """
    annotated = dict(_annotated(kind))
    if "likelihood" in annotated:
        annotated["likelihood"] = [*likelihoods.REGISTRY]  # and those that users register
    return {
        name: tuple(value for part in parts for value in _VALUES.get(part, (part,)))
        for name, parts in annotated.items()
        if all(part in _VALUES or isinstance(part, str) for part in parts)
    }


@cache
def _annotated(kind: type) -> dict[str, list[Any]]:
    """Return the types and words that each setting of a class may have, which is slow to read."""
    hints = get_type_hints(kind)
    return {field.name: options(hints[field.name]) for field in fields(kind) if field.init}


def _own_numbers(kind: type) -> dict[str, list[Any]]:
    """Return the settings of classes outside the package that take numbers, with all they take.

    Those of the package check their settings themselves.
    """
    several = (one for one in kind.__mro__ if not one.__module__.startswith("daskgp."))
    own = {name for one in several for name in inspect.get_annotations(one)}
    return {
        name: parts
        for name, parts in _annotated(kind).items()
        if name in own
        and {int, float} & set(parts)
        and all(part in (int, float, *_VALUES) or isinstance(part, str) for part in parts)
    }


def _check_number(name: str, value: Any, hints: list[Any]) -> None:
    """Raise SettingError unless a setting is a number of a type, or a word, that it may be."""
    if isinstance(value, bool):
        known = bool in hints
    elif is_number(value):
        known = float in hints or isinstance(value, Integral)
    else:
        known = (value is None and NoneType in hints) or (isinstance(value, str) and value in hints)
    if not known:
        number = "a number" if float in hints else "a whole number"
        values = [one for part in hints for one in _VALUES.get(part, (part,))]
        others = "".join(f" or {one!r}" for one in values if one not in (int, float))
        raise SettingError(f"{name}={shown(value)}: {number}{others} is needed")


def kernel_of(value: Any) -> Kernel:
    """Return the kernel of a setting, which is a kernel, its text, or None for the default."""
    if value is None:
        return kernels.Matern32(ard=True)
    if isinstance(value, str):
        return kernels.parse(value)
    if isinstance(value, type) and issubclass(value, Kernel):
        name = value.__name__
        raise SettingError(f"kernel={name} is a class: give a kernel, such as {name}()")
    if not isinstance(value, Kernel):
        raise SettingError(
            f"kernel={shown(value)}: give a kernel of daskgp.kernels or its text, such as "
            "'matern32(ard=true)'"
        )
    return value


def _whole_or_none(name: str, value: Any, auto: bool) -> None:
    """Raise SettingError unless a setting is a number from 1, None or, if allowed, "auto"."""
    if value is None or (auto and type(value) is str and value == "auto"):
        return
    if isinstance(value, str):
        or_auto = " 'auto'" if auto else ""
        raise SettingError(
            f"{name}={shown(value)}: choose a whole number of at least 1,{or_auto} or None"
        )
    whole(name, value, 1)
