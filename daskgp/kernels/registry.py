"""Registry of kernels by name: from text and stores to kernels and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np

from daskgp.checks import shown
from daskgp.errors import InputError, SettingError
from daskgp.kernels.averaged import Averaged, of_before
from daskgp.kernels.base import REGISTRY, Kernel
from daskgp.kernels.categories import Categorical, Coregion
from daskgp.kernels.compose import COMPOSITES, Constant
from daskgp.kernels.linear import Linear
from daskgp.kernels.parse import HOLDING, WORDS
from daskgp.kernels.parse import build as _build
from daskgp.kernels.parse import parse as _parse
from daskgp.kernels.periodic import Periodic
from daskgp.kernels.rotated import Rotated
from daskgp.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic
from daskgp.registry import refuse_taken

K = TypeVar("K", bound=type[Kernel])

DEEPEST = 100
"""Most levels of sums and products in a description."""

for _kind in (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Periodic,
    Linear,
    Constant,
    Coregion,
    Categorical,
    Rotated,
    Averaged,
):
    REGISTRY[_kind.name] = _kind


def register(kind: K) -> K:
    """Make a class of kernels known to ``parse``, ``from_dict`` and ``load``.

    A process that reads text or a store must have registered the class before, under the same
    name: do so in the module that defines the class, so that importing it is enough.

    Parameters
    ----------
    kind : type
        A frozen dataclass, each field with a default, and with a ``name`` of its own in lower
        case.

    Returns
    -------
    type
        The class itself, so that this is a decorator too.

    Raises
    ------
    SettingError
        If the name is taken, or a kernel of the class does not come back from its description.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from daskgp import kernels
    >>> @kernels.register
    ... @dataclass(frozen=True)
    ... class Bump(kernels.RBF):
    ...     name = "bump"
    >>> kernels.parse("bump(2.0)").lengthscale
    2.0
    """
    name = _checked_name(kind)
    if name in COMPOSITES:
        refuse_taken(name, COMPOSITES[name], kind, "kernel")
    before = REGISTRY.get(name)
    REGISTRY.add(name, kind)
    try:
        _check_round_trip(kind)
    except SettingError:
        REGISTRY.pop(name)
        if before is not None:
            REGISTRY[name] = before
        raise
    return kind


def parse(text: str) -> Kernel:
    """Return the kernel written as text.

    Names are those of the registry, numbers are constant kernels, ``+`` and ``*`` combine.
    The text is read, never evaluated.

    Raises
    ------
    SettingError
        If a part is not a kernel; the message names the part and the known names.

    Examples
    --------
    >>> parse("rbf(lengthscale=2) + 0.1*linear()").parameter_names
    ('0.variance', '0.lengthscale', '1.0.variance', '1.1.variance')
    """
    return _parse(text, REGISTRY)


def describe(kernel: Kernel) -> dict[str, Any]:
    """Return ``kernel.to_dict()`` after checking that ``from_dict`` rebuilds the same kernel.

    Raises
    ------
    SettingError
        If it does not, for example because a class is not registered.
    """
    try:
        description = kernel.to_dict()
        same = from_dict(json.loads(json.dumps(description))) == kernel
    except (TypeError, ValueError) as error:
        kind = type(kernel).__name__
        raise SettingError(f"a kernel of class {kind} cannot be stored: {error}") from error
    if not same:
        raise SettingError(
            f"a kernel of class {type(kernel).__name__} cannot be stored: its to_dict() describes "
            f"another kernel; register its class with daskgp.kernels.register"
        )
    return description


def identity(kernel: Kernel) -> str:
    """Return text that differs between different kernels, of registered classes or not."""
    try:
        describe(kernel)
    except SettingError:
        return f"{kernel!r} of {' '.join(map(_address, _kinds(kernel)))}"
    return repr(kernel)


def from_dict(description: dict[str, Any]) -> Kernel:
    """Return the kernel that ``Kernel.to_dict`` described.

    Raises
    ------
    SettingError
        If the description is not that of a known kernel.

    Examples
    --------
    >>> from_dict(Matern32(2.0).to_dict()) == Matern32(2.0)
    True
    """
    return _from_dict(description, DEEPEST)


def unknown(description: Any) -> tuple[str, ...]:
    """Return the names in a kernel's description that no registered class has."""
    names: dict[str, None] = {}
    left = [description]
    while left:
        one = left.pop()
        if not isinstance(one, dict):
            continue
        name, parts = one.get("kernel"), one.get("parts")
        if isinstance(name, str) and name not in COMPOSITES and not REGISTRY.knows(name):
            names[name] = None
        left += parts if isinstance(parts, list) else []
    return tuple(names)


def _from_dict(description: Any, levels: int) -> Kernel:
    if not levels:
        raise SettingError(
            f"sums and products of kernels are nested more than {DEEPEST} deep: write fewer levels"
        )
    if not isinstance(description, dict) or "kernel" not in description:
        seen = shown(description)
        raise SettingError(
            f"{seen} does not describe a kernel: give it an entry 'kernel' with the name of one"
        )
    settings = dict(description)
    name = settings.pop("kernel")
    if isinstance(name, str) and name in COMPOSITES:
        parts = settings.get("parts")
        if not isinstance(parts, list) or len(settings) != 1:
            raise SettingError(
                f"a {name} of kernels is described by a list 'parts' and "
                "nothing else: give only that"
            )
        composite: Any = COMPOSITES[name]
        return composite(tuple(_from_dict(part, levels - 1) for part in parts))
    kind, held = REGISTRY.find(name), []
    if kind in HOLDING and isinstance(settings.get("parts"), list):
        held = [_from_dict(part, levels - 1) for part in settings.pop("parts")]
    if kind is Averaged:
        settings = of_before(settings)
    return _build(kind, held, settings, f"kernel {name!r}")


def _checked_name(kind: Any) -> str:
    """Return the name of a class that may be registered."""
    if not isinstance(kind, type) or not issubclass(kind, Kernel):
        raise SettingError(f"{shown(kind)} is not a kernel class: derive one from kernels.Kernel")
    if not hasattr(kind, "__dataclass_fields__"):
        raise SettingError(
            f"{kind.__name__} is not a dataclass: decorate it @dataclass(frozen=True)"
        )
    name = getattr(kind, "name", None)
    if not (isinstance(name, str) and name.isidentifier() and name == name.lower()):
        raise SettingError(
            f"{kind.__name__}.name is {shown(name)}: a lower-case word is needed, with _ for a "
            "hyphen or space"
        )
    if name in WORDS:
        raise SettingError(f"{kind.__name__}.name is {name!r}, which text reads as a value")
    return name


def _check_round_trip(kind: type[Kernel]) -> None:
    """Raise SettingError unless kernels of a class can be rebuilt from their descriptions."""
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise SettingError(
            f"{kind.__name__} has no {', '.join(missing)}: define all abstract members of "
            "kernels.Kernel"
        )
    try:
        first = kind()
        hash(first)
    except TypeError as error:
        raise SettingError(
            f"{kind.__name__} must be a frozen dataclass whose fields have defaults: {error}"
        ) from error
    with _named(kind, "log_parameters", ", where a number left None counts as 1"):
        logs = first.log_parameters + 0.25
    with _named(kind, "with_log_parameters"):
        others = [first.with_log_parameters(logs)]
    # the kernel may need another number of columns
    with _named(kind, "resolve"), suppress(InputError):
        others.append(first.resolve(np.array([0.5, 0.7]), 0.8))
    for kernel in (first, *others):
        if type(kernel) is not kind:
            raise SettingError(
                f"{kind.__name__} becomes a {type(kernel).__name__} with other hyper-parameters: "
                "with_log_parameters and resolve must return its own class"
            )
        describe(kernel)


@contextmanager
def _named(kind: type, member: str, hint: str = "") -> Iterator[None]:
    """Name the member of a class that fails on its default kernel; InputError is passed on."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # each mistake has its own
        what = f"{type(error).__name__}: {error}"
        raise SettingError(
            f"{kind.__name__}.{member} fails for {kind.__name__}() ({what}): mend it{hint}"
        ) from error


def _address(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _kinds(kernel: Kernel) -> list[type]:
    """Return the classes of a kernel and its parts."""
    parts = getattr(kernel, "parts", ())
    return [type(kernel), *(kind for part in parts for kind in _kinds(part))]
