"""Every name in the reference has an example in its docstring, and every public method of it."""

import importlib
import inspect
import re

import pytest
from docs_text import ROOT

import daskgp

DIRECTIVE = re.compile(
    r"^ *\.\. (currentmodule|module|automodule|autofunction|autoclass):: (\S+)", re.MULTILINE
)


def referenced():
    """Names and objects of the pages of the reference, classes with their public methods."""
    found = {}
    for page in sorted((ROOT / "docs" / "api").rglob("*.md")):
        module = "daskgp"
        for kind, name in DIRECTIVE.findall(page.read_text()):
            if kind.endswith("module"):
                module = name
                if module == "daskgp.errors":  # listed by automodule
                    errors = {n: v for n, v in vars(daskgp.errors).items() if n.endswith("Error")}
                    found.update({f"{module}.{n}": v for n, v in errors.items()})
                continue
            at, own = name.rsplit(".", 1) if "." in name else (module, name)
            value = getattr(importlib.import_module(at), own)
            found[f"{at}.{own}"] = value
            if inspect.isclass(value):
                found.update({f"{at}.{own}.{n}": m for n, m in methods(value)})
    return found


def methods(kind):
    """Public methods that daskgp defines, and what a kernel is called by."""
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        function = getattr(member, "__func__", getattr(member, "fn", member))  # available_if
        if name.startswith("_") and name != "__call__":
            continue
        if name in getattr(kind, "__dataclass_fields__", {}):  # a function that it may be given
            continue
        if inspect.isfunction(function) and function.__module__.startswith("daskgp"):
            yield name, function


def text(name, value):
    """Docstrings of an object, for a method also of those that it overrides."""
    found = [value.__doc__ or ""]
    owner, _, own = name.rpartition(".")
    at, _, kind = owner.rpartition(".")
    if inspect.isfunction(value) and kind[:1].isupper():
        bases = getattr(importlib.import_module(at), kind).__mro__
        found += [vars(base)[own].__doc__ or "" for base in bases if own in vars(base)]
    return "\n".join(found)


REFERENCED = referenced()


def test_the_reference_is_found():
    assert len(REFERENCED) > 300
    for name in daskgp.__all__:
        value = getattr(daskgp, name)
        assert inspect.ismodule(value) or value in REFERENCED.values(), name


@pytest.mark.parametrize("name", REFERENCED)
def test_it_has_an_example(name):
    assert ">>> " in text(name, REFERENCED[name])
