"""Settings that have an effect only together with certain others, and the refusal of idle ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from numbers import Number
from typing import Any, NamedTuple, TypeAlias

from daskgp.checks import shown
from daskgp.errors import SettingError


class Needs(NamedTuple):
    """A condition under which a setting has an effect.

    Parameters
    ----------
    setting : str
        The other setting that decides, whose value an error shows.
    holds : callable
        Returns True if an estimator's settings meet the condition.
    remedy : str
        A choice that meets it.
    """

    setting: str
    holds: Callable[[Any], bool]
    remedy: str


Requirements: TypeAlias = Mapping[str, tuple[Needs, ...]]
"""Conditions that settings need, all of them, to have an effect; others always have one."""


def among(setting: str, *values: Any) -> Needs:
    """Return the condition that a setting is one of some values."""
    names = [repr(value) for value in values if value is not None]
    words = " or ".join([", ".join(names[:-1]), names[-1]][len(names) < 2 :])

    def holds(estimator: Any) -> bool:
        actual = getattr(estimator, setting)
        return any(actual is one or (isinstance(actual, str) and actual == one) for one in values)

    return Needs(setting, holds, f"choose {setting}={words}")


def given(setting: str) -> Needs:
    """Return the condition that a setting is not None."""
    return Needs(setting, lambda gp: getattr(gp, setting) is not None, f"set {setting}=")


def chosen(setting: str, *ways: str) -> Needs:
    """Return the condition that a setting names a way of choosing, not the things themselves."""
    return among(setting, *ways)._replace(
        holds=lambda gp: isinstance(getattr(gp, setting), str | None)
    )


ADAM = among("optimizer", "adam")
GAUSSIAN = among("likelihood", "gaussian")
SEPARATE = among("targets", "separate")
TRAINED = Needs("optimizer", lambda gp: gp.optimizer is not None, "choose an optimizer")
REPEATED = TRAINED._replace(
    holds=lambda gp: gp.optimizer is not None or gp.likelihood != "gaussian"
)
"""Condition that something settles: hyper-parameters, or the sites of a likelihood."""


def _fixes(estimator: Any) -> bool:
    """Return whether fixed values count: where nothing is trained, noise variances of each target.

    Those of the kernel are in it, and ``noise_variance`` is one for all.
    """
    told, trained = estimator.fixed, estimator.optimizer is not None
    if trained or estimator.targets != "joint" or not isinstance(told, Mapping):
        return trained
    return all(str(name).startswith("noise_variance[") for name in told)


FIXED = TRAINED._replace(holds=_fixes)
"""Condition that values which are fixed are those of the fit."""


def idle(estimator: Any) -> dict[str, Needs]:
    """Return the non-default settings that have no effect, and the condition that each misses."""
    idle_settings = {}
    for name, default in defaults(type(estimator)).items():
        if alike(getattr(estimator, name), default):
            continue
        for needs in estimator.requirements.get(name, ()):
            if not needs.holds(estimator):
                idle_settings[name] = needs
                break
    return idle_settings


def check(estimator: Any, besides: Collection[str] = ()) -> None:
    """Raise SettingError for a setting without effect, unless it is one of ``besides``."""
    for name, needs in idle(estimator).items():
        if name not in besides:
            seen, other = getattr(estimator, name), getattr(estimator, needs.setting)
            settable = needs.setting in defaults(type(estimator))
            remedy = f"{needs.remedy}, or leave" if settable else "leave"
            raise SettingError(
                f"{name}={shown(seen)} has no effect with {needs.setting}={shown(other)}: "
                f"{remedy} {name} out"
            )


def defaults(kind: type) -> dict[str, Any]:
    """Return the settings of a class of estimators with their defaults."""
    return {name: one.default for name, one in inspect.signature(kind).parameters.items()}


def alike(value: Any, default: Any) -> bool:
    """Return True if a setting has its default."""
    plain = isinstance(value, str | Number) and isinstance(default, str | Number)
    return value is default or (plain and value == default)
