"""Kernels written as text: ``matern32(ard=true) + linear()``; read, never evaluated."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from daskgp.checks import meant, shown
from daskgp.errors import SettingError
from daskgp.kernels.averaged import Averaged
from daskgp.kernels.base import Kernel
from daskgp.kernels.compose import Constant, Product, Sum
from daskgp.kernels.rotated import Rotated
from daskgp.registry import Registry

_LONGEST = 4000
WORDS: dict[str, bool | None] = {"true": True, "false": False, "none": None}
_NUMBERS = (int, float)
HOLDING: tuple[type[Kernel], ...] = (Rotated, Averaged)
"""Classes whose first setting is a kernel."""


def parse(text: str, registry: Registry[type[Kernel]]) -> Kernel:
    """Return the kernel that ``text`` describes, with names from ``registry``."""
    if len(text) > _LONGEST:
        raise SettingError(f"a kernel of {len(text)} characters is too long: {_LONGEST} at most")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise SettingError(
            f"kernel {shown(text)} cannot be read ({reason}): write e.g. matern32() + linear()"
        ) from error
    return _kernel(tree, registry)


def _kernel(node: ast.expr, registry: Registry[type[Kernel]]) -> Kernel:
    # a long sum is nested to the left: walk down it instead of recursing
    steps: list[tuple[type, ast.expr]] = []
    while isinstance(node, ast.BinOp):
        kinds = {ast.Add: Sum, ast.Mult: Product}
        if type(node.op) not in kinds:
            raise _unknown(node, "kernels can be added and multiplied")
        steps.append((kinds[type(node.op)], node.right))
        node = node.left
    kernel = _leaf(node, registry)
    for kind, right in reversed(steps):
        kernel = kind.of(kernel, _kernel(right, registry))  # type: ignore[attr-defined]
    return kernel


def _leaf(node: ast.expr, registry: Registry[type[Kernel]]) -> Kernel:
    if isinstance(node, ast.Constant) and type(node.value) in _NUMBERS:
        return Constant(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return registry.find(node.id.lower())()
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise _unknown(node, f"write a number or one of {', '.join(registry)}")
    kind = registry.find(node.func.id.lower())
    for keyword in node.keywords:
        if keyword.arg is None:
            raise _unknown(keyword.value, "settings are name=value")
    fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    longer = [""] * len(node.args)

    def setting(name: str, value: ast.expr) -> Any:
        held = kind in HOLDING and name == "kernel"
        return _kernel(value, registry) if held else _setting(name, value)

    values = [
        setting(name, argument) for name, argument in zip(fields + longer, node.args, strict=False)
    ]
    named = {str(k.arg): setting(str(k.arg), k.value) for k in node.keywords}
    return build(kind, values, named, ast.unparse(node))


def _setting(name: str, node: ast.expr) -> Any:
    """Return the value of a setting by name; a column may be named without quotes."""
    if (
        name in ("column", "footprint", "shape", "order")
        and isinstance(node, ast.Name)
        and node.id.lower() not in WORDS
    ):
        return node.id
    return _value(
        node, name in ("active_dims", "column", "columns", "levels", "footprint", "shape", "order")
    )


def _value(node: ast.expr, named: bool = False) -> Any:
    """Return the value of a setting, which may hold text if it is ``named``, as columns are."""
    if named and isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand)  # accepted, so that the kernel can say what is wrong with it
        if type(value) in _NUMBERS:
            return -value
    if isinstance(node, ast.Constant) and type(node.value) in (*_NUMBERS, bool, type(None)):
        return node.value
    if isinstance(node, ast.Name) and node.id.lower() in WORDS:
        return WORDS[node.id.lower()]
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_value(item, named) for item in node.elts)
    raise _unknown(node, "a setting is a number, true, false, none or a list of numbers")


def build(kind: type[Kernel], values: list[Any], named: dict[str, Any], what: str) -> Kernel:
    """Build a kernel of a class from untrusted settings; SettingError names those it has."""
    fields = [field.name for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
    unknown = [name for name in named if name not in fields]
    if unknown:
        hint = meant(unknown[0], fields, f"it has {', '.join(fields)}")
        raise SettingError(f"{what} has no setting {unknown[0]!r}: {hint}")
    try:
        return kind(*values, **named)
    except TypeError as error:
        raise SettingError(f"{what} cannot be built ({error}): it has {', '.join(fields)}") from (
            error
        )


def _unknown(node: ast.expr, remedy: str) -> SettingError:
    return SettingError(f"{shown(ast.unparse(node))} is not part of a kernel: {remedy}")
