"""Settings as text or TOML, typed and checked against an estimator's constructor."""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

import numpy as np

from daskgp import checks, kernels
from daskgp.checks import OF_METHODS, meant, nearest, shown, unknown_setting
from daskgp.cli.methods import AUTO, MODELS
from daskgp.cli.run import numeric
from daskgp.errors import SettingError
from daskgp.registry import IMPORT
from daskgp.typing import Predictor

if TYPE_CHECKING:
    from daskgp.choose.auto import AutoGP
    from daskgp.estimators import GaussianProcess

FIELDS = "varying"
"""Setting whose value may be fields in a netCDF file or a Zarr store."""
UNITS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
WORDS = {"true": True, "false": False}


def build_estimator(
    model: str | None,
    assignments: Sequence[str] = (),
    config: str | None = None,
    mean: str | None = None,
    more: Mapping[str, Any] | None = None,
    of_start: Mapping[str, Any] | None = None,
) -> GaussianProcess | AutoGP:
    """Build the estimator that ``--model``, ``--mean``, ``--set`` and ``--config`` describe.

    Parameters
    ----------
    model : str, optional
        Name in the registry, or auto, the default; wins over ``model`` in the file.
    assignments : sequence of str
        ``key=value``; the value is read as TOML, or as plain text if it is not TOML.  They
        win over the file.
    config : str, optional
        A TOML file with ``model`` at its top and settings under ``[settings]``.
    mean : str, optional
        The setting ``mean``, which wins over the others.
    more : mapping, optional
        Settings that options of their own give, which win over the others, too.
    of_start : mapping, optional
        Settings of the model to start from, over which all others win.

    Raises
    ------
    SettingError
        If the model or a setting is unknown or of the wrong type; the message names it.
    """
    from daskgp.choose.auto import AutoGP
    from daskgp.estimators import COMPOSED, ESTIMATORS

    in_file, settings = read_config(config) if config else (None, {})
    name = model or in_file or AUTO
    if name != AUTO and not ESTIMATORS.knows(name):
        for composed in COMPOSED:
            if name.lower() in (composed.lower(), composed.lower().replace("gp", "")):
                raise SettingError(
                    f"model {name!r} is made of several, which commands do not fit: fit "
                    f"daskgp.{composed} in Python and save it, info and score then take its store"
                )
        known = [*ESTIMATORS, AUTO]
        hint = meant(name, known, f"Known are {', '.join(known)}")
        raise SettingError(f"unknown model {name!r}: {hint}; or {IMPORT}")
    kind: Any = AutoGP if name == AUTO else ESTIMATORS[name]
    if mean is not None:
        assignments = (*assignments, f"mean={mean}")
    assigned = (_assignment(text, "--set", "n_inducing=512") for text in assignments)
    settings = settings | dict(assigned)
    typed = typed_settings(name, kind, settings)
    estimator: GaussianProcess | AutoGP = kind(**{**(of_start or {}), **typed, **(more or {})})
    estimator._check()
    return estimator


def search_settings(
    model: str | None,
    config: str | None,
    options: Mapping[str, Any],
    start: GaussianProcess | None = None,
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the model of ``fit``, the settings that its own options give, and those of ``start``.

    By default it is auto, or the method of the model to start from, whose settings then are taken.

    Raises
    ------
    SettingError
        If another model is given options of auto, a time cannot be read, or auto is to start from
        a model.
    """
    from daskgp.estimators.replacing import unfitted

    name = model or (read_config(config)[0] if config else None)
    of_start = {}
    if start is not None and name == AUTO:
        raise SettingError(
            "--from starts the training of one method, and --model auto searches for one: leave "
            f"--model out to train {start.model_name} again, or leave --from out"
        )
    if start is not None and name is None:
        name, of_start = start.model_name, unfitted(start).get_params(deep=False)
    name = name or AUTO
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if name != AUTO:
            option = f"--{key.replace('_', '-')}"
            raise SettingError(
                f"{option} belongs to --model auto and the model is {name}: leave one of them out"
            )
    if "time_budget" in given:
        given["time_budget"] = seconds_of(given["time_budget"])
    return name, given, of_start


def seconds_of(text: str) -> float:
    """Return the seconds that a text such as "10min" or "600" says."""
    parts = re.fullmatch(r"([\d.]+)\s*(s|min|h|d)?", text.strip())
    try:
        seconds = float(parts[1]) * UNITS[parts[2] or "s"] if parts else 0.0
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise SettingError(
            f"--time-budget is {text!r}: give seconds greater than 0, or a time such as 90s, 10min "
            "or 2h"
        )
    return seconds


def read_config(path: str) -> tuple[str | None, dict[str, Any]]:
    """Read model and settings from a TOML file."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise SettingError(
            f"cannot read the configuration {path} ({error.strerror}): check the path"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"configuration {path} is not TOML ({error}): correct it") from error
    for key in content:
        if key not in ("model", "settings"):
            raise SettingError(
                f"configuration {path}: unknown key {shown(key)}: write `model` at the top, "
                "and settings under [settings]"
            )
    model, settings = content.get("model"), content.get("settings", {})
    if not isinstance(model, str | None):
        raise SettingError(f"configuration {path}: model={shown(model)}: a name is needed")
    if not isinstance(settings, dict):
        raise SettingError(
            f"configuration {path}: settings={shown(settings)}: write a [settings] table"
        )
    return model, settings


@dataclass(frozen=True)
class _Text:
    """Value from the command line: its text, and its value as TOML."""

    text: str

    @property
    def value(self) -> Any:
        try:
            parsed = tomllib.loads(f"value = {self.text}")
        except tomllib.TOMLDecodeError:
            return self.text
        return parsed["value"] if len(parsed) == 1 else self.text


def _assignment(text: str, option: str, example: str) -> tuple[str, _Text]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SettingError(f"{option} {shown(text)}: write key=value, such as {option} {example}")
    return key.strip(), _Text(value.strip())


def plain_settings(assignments: Sequence[str], option: str, example: str) -> dict[str, Any] | None:
    """Return the values of ``key=value``, read as TOML or as plain text; None if there are none."""
    texts = dict(_assignment(text, option, example) for text in assignments)
    values = {key: WORDS.get(text.text.lower(), text.value) for key, text in texts.items()}
    return values or None


def typed_settings(
    model: str, estimator: type[GaussianProcess | AutoGP], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings with the constructor's types; SettingError names the first wrong one."""
    known = list(inspect.signature(estimator).parameters)
    hints = get_type_hints(estimator)
    for name in given:
        if name not in known:
            told = unknown_setting(name, f"model {shown(model)}", known)
            raise SettingError(_of_single(name, known) or told if model == AUTO else told)
    return {
        name: _fields(path) if (path := _path(name, value)) else _typed(name, value, hints[name])
        for name, value in given.items()
    }


def _of_single(name: str, known: Sequence[str]) -> str | None:
    """Return the line of a setting that is none of auto but of single methods, if it is."""
    from daskgp.estimators import ESTIMATORS

    if name in OF_METHODS or nearest(name, known):
        return None
    first = {
        key: one
        for one in reversed(MODELS)
        for key in inspect.signature(ESTIMATORS[one]).parameters
    }
    near = nearest(name, first)
    if near is None:
        return None
    return (
        f"unknown setting {shown(name)} of model {AUTO!r}: {near!r} is a setting of single "
        f"methods: name one, such as --model {first[near]}, or leave it out"
    )


def _typed(name: str, given: Any, hint: Any) -> Any:
    """Return one value as one of the types of its annotation."""
    text = given.text if isinstance(given, _Text) else given
    value = given.value if isinstance(given, _Text) else given
    words = value.strip().lower() if isinstance(value, str) else None
    options = _options(hint)
    if NoneType in options and words in ("none", "null"):
        return None
    if kernels.Kernel in options and isinstance(text, str):
        return kernels.parse(value if isinstance(value, str) else text)
    if bool in options and (isinstance(value, bool) or words in WORDS):
        return value if isinstance(value, bool) else WORDS[str(words)]
    choices = [option for option in options if isinstance(option, str)]
    if value in choices or (isinstance(value, dict) and any(map(_is_mapping, options))):
        return value
    if NUMBERS in options or (isinstance(value, list) and {np.ndarray, NAMES} & set(options)):
        return _several(name, value, options)
    if isinstance(value, str) and float in options:  # numbers that TOML does not take: .1
        value = numeric(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if int in options and number and float(value).is_integer():
        return int(value)
    if float in options and number:
        return float(value)
    if {str, NAMES} & set(options) and isinstance(text, str):
        return _names(text, str in options) if NAMES in options else text
    raise SettingError(f"setting {name}={shown(text)}: {_wanted(options)} is needed")


def _path(name: str, given: Any) -> str | None:
    """Return where the fields lie that are the value of a setting; None for other values."""
    text = given.text.strip("'\"") if isinstance(given, _Text) else given
    files = name == FIELDS and isinstance(text, str) and text.lower().endswith((".nc", ".zarr"))
    return text if files else None


def _fields(source: str) -> Any:
    """Return the fields of a file or a store, read whole; SettingError if there are none."""
    from daskgp.data.gridded import open_grid

    try:
        with open_grid(source) as fields:
            found = fields.load()
    except OSError as error:
        raise SettingError(
            f"{FIELDS}={source}: there is no such file or store: check the path"
        ) from error
    if "format" in found.attrs:
        raise SettingError(
            f"{FIELDS}={source} is a store of daskgp: give fields of hyper-parameters, such as "
            "daskgp.load(...).hyperparameter_map_.to_netcdf(...) writes"
        )
    return found


def _several(name: str, value: Any, options: Sequence[Any]) -> Any:
    if NUMBERS in options:
        return _numbers(name, value)
    if np.ndarray in options:
        return _array(name, value)
    return [part if type(part) is int and int in options else str(part) for part in value]


def _numbers(name: str, value: Any) -> list[float]:
    """Return a list of numbers, one, or text with numbers separated by commas, as a list."""
    parts = value.split(",") if isinstance(value, str) else value
    parts = parts if isinstance(parts, list) else [parts]
    several = [numeric(one) if isinstance(one, str) else one for one in parts]
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in several):
        raise SettingError(
            f"setting {name}={shown(value)}: numbers such as [-9999], 'auto' or none are needed"
        )
    return [float(one) for one in several]


NAMES, NUMBERS = Sequence[str], Sequence[float]
_PLAIN = (NAMES, NUMBERS, NoneType, kernels.Kernel, bool, int, float, str)


_OF_PYTHON = (Predictor, Sequence[Any], os.PathLike[str])
"""Types that no text is of."""


def _options(hint: Any) -> list[Any]:
    """Return the types and allowed words of an annotation."""
    options = [one for one in checks.options(hint) if one not in _OF_PYTHON]
    if all(isinstance(one, str) or one in _PLAIN or _is_mapping(one) for one in options):
        return options
    # NumPy's ArrayLike, which is a union of dozens of types
    plain = [option for option in options if isinstance(option, str) or option is NoneType]
    return [*plain, np.ndarray]


def _is_mapping(option: Any) -> bool:
    return get_origin(option) is Mapping


def _names(text: str, alone: bool) -> str | list[str]:
    """Return a list of names separated by commas, or one name where it may be ``alone``."""
    names = [part.strip() for part in text.split(",")]
    return names[0] if alone and len(names) == 1 else names


def _array(name: str, value: list[Any]) -> np.ndarray:
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SettingError(f"setting {name}: a list of lists of numbers is needed") from error


def _wanted(options: Sequence[Any]) -> str:
    choices = [repr(option) for option in options if isinstance(option, str)]
    if np.ndarray in options:
        words = [f"one of {', '.join(choices)}"] * bool(choices) + ["a list of rows"]
        return " or ".join(words + ["none"] * (NoneType in options))
    if kernels.Kernel in options:
        return "a kernel such as 'matern32(ard=true)'"
    if any(map(_is_mapping, options)):
        return "a table such as {variance=...}" + ", or a name or several," * (NAMES in options)
    if NAMES in options:
        return "a name or several: a,b"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    names |= {NoneType: "none"}
    words = [names[option] for option in names if option in options]
    return " or ".join([f"one of {', '.join(choices)}"] * bool(choices) + words)
