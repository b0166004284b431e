"""Docstrings of estimators: what a class inherits is written once, and each class shows it all."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass

HEADING = re.compile(r"^(\w+)\n-{3,}\n", re.MULTILINE)


def complete(kind: type) -> None:
    """Add to the docstring of a class what those of its bases say of its settings and attributes.

    Entries of its own stand first and replace inherited ones of the same name.
    """
    if not vars(kind).get("__doc__"):
        return
    own, known = _sections(kind), {*_settings(kind)}
    for title in ("Parameters", "Attributes"):
        entries = list(_entries(own.pop(title, "")))
        named = {name for names, _ in entries for name in names}
        for base in kind.__mro__[1:]:
            for names, entry in _entries(_sections(base).get(title, "")):
                if not named & {*names} and (title == "Attributes" or known >= {*names}):
                    entries.append((names, entry))
                    named |= {*names}
        if entries:
            own[title] = "\n".join(entry for _, entry in entries)
    own |= {title: own.pop(title) for title in [*own] if title == "Examples"}  # they come last
    titled = [f"{title}\n{'-' * len(title)}\n{text}" for title, text in own.items() if title]
    kind.__doc__ = "\n\n".join([own[""], *titled])


def _sections(kind: type) -> dict[str, str]:
    """Return the text of each section of a docstring by its title, what comes before as ""."""
    first, *rest = HEADING.split(inspect.cleandoc(vars(kind).get("__doc__") or ""))
    titled = zip(rest[::2], rest[1::2], strict=True)
    return {"": first.strip()} | {title: text.strip() for title, text in titled}


def _entries(section: str) -> Iterator[tuple[list[str], str]]:
    """Yield the names that each entry of a section is about, and its lines."""
    for entry in re.split(r"\n(?=\S)", section) if section else ():
        yield entry.partition("\n")[0].partition(" : ")[0].split(", "), entry


def _settings(kind: type) -> Iterator[str]:
    """Yield the settings of a class of which ``dataclass`` has not been made yet."""
    own = inspect.get_annotations(kind)
    for base in kind.__mro__[1:]:
        if is_dataclass(base):
            yield from (one.name for one in fields(base) if one.init and one.name not in own)
            break
    for name in own:
        value = vars(kind).get(name)
        if not (isinstance(value, Field) and not value.init):
            yield name
