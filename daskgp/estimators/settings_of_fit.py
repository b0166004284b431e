"""Settings of a fit, kept beside what it learned, and the refusal of others on a fitted model."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from numbers import Number
from typing import Any

import numpy as np

from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.kernels import Kernel


def of(estimator: Any) -> dict[str, Any]:
    """Return the settings of an estimator, with copies of lists and mappings."""
    settings = estimator.get_params(deep=False).items()
    return {
        name: copy.copy(value) if isinstance(value, list | dict | set) else value
        for name, value in settings
    }


def check(estimator: Any, fitted: Mapping[str, Any], acting: Collection[str]) -> None:
    """Raise SettingError for settings other than those of the fit, unless they are acting ones."""
    now = estimator.get_params(deep=False)
    names = [
        name
        for name, value in now.items()
        if name in fitted and name not in acting and not _same(value, fitted[name])
    ]
    if names:
        seen, was = (_told(names, values) for values in (now, fitted))
        them = "them" if len(names) > 1 else "it"
        raise SettingError(
            f"{' and '.join(seen)}, but the model was fitted with {' and '.join(was)}: set {them} "
            f"back, set_params({', '.join(was)}), or fit again"
        )


def _told(names: list[str], values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={shown(values[name])}" for name in names]


def _same(one: Any, other: Any) -> bool:
    """Return True for values that mean the same, arrays and lists by their entries."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    plain = str | Number | Kernel | set | frozenset | None
    if isinstance(one, plain) or isinstance(other, plain):
        return isinstance(one, plain) and isinstance(other, plain) and bool(one == other)
    try:
        return np.array_equal(np.asarray(one), np.asarray(other))
    except ValueError:  # lists that are no array, such as those with rows of several lengths
        return bool(one == other)
