"""Kinds by name: those of the package, those that users register, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from daskgp.checks import meant, shown
from daskgp.errors import SettingError

T = TypeVar("T", bound=Callable[..., Any])

IMPORT = "import the module that registers it (on the command line, --plugin MODULE)"
"""Remedy for a name that is not known."""


class Registry(dict[str, T]):
    """Kinds by their names in settings and stores.

    An installed package names its own as entry points, the estimator "idw" as ``idw =
    "package.module:IDW"`` in the group ``daskgp.estimators``; the module is imported when the name
    is looked up, and registers it.

    Parameters
    ----------
    what : str
        Word for one of the kinds, such as "kernel".
    group : str
        Group of their entry points.
    known : mapping
        Those of the package.
    """

    what: str
    group: str

    def __init__(self, what: str, group: str, known: Mapping[str, T]) -> None:
        super().__init__(known)
        self.what, self.group = what, group

    def add(self, name: str, kind: T) -> None:
        """Add a kind; SettingError if its name is that of another."""
        if (before := self.get(name)) is not None:
            refuse_taken(name, before, kind, self.what)
        self[name] = kind

    def find(self, name: object) -> T:
        """Return the kind of a name; SettingError, with those there are, if it is unknown."""
        if isinstance(name, str) and self.knows(name):
            return self[name]
        known = ", ".join(self)
        text = name if isinstance(name, str) else ""
        hint = meant(text, self, f"choose one of {known}, or {IMPORT}")
        raise SettingError(f"unknown {self.what} {shown(name)}: {hint}")

    def knows(self, name: str) -> bool:
        """Return whether a name is registered, after an import of the package that has it."""
        if name not in self:
            for point in entry_points(group=self.group, name=name):
                self._import(point)
        return name in self

    def _import(self, point: EntryPoint) -> None:
        """Import the module of an entry point; SettingError unless it registers the name."""
        has = f"an installed package has {point.value} as the {self.what} {point.name!r}"
        try:
            point.load()
        except Exception as error:  # each module has its own
            what = type(error).__name__
            raise SettingError(
                f"{has}, which cannot be imported ({what}: {error}): install it anew, or leave it "
                "out"
            ) from error
        if point.name not in self:
            raise SettingError(f"{has}, which does not register that name: decorate the class")


def refuse_taken(name: str, before: T, kind: T, what: str) -> None:
    """Raise SettingError if a name is that of another kind, not of one that is defined again."""
    if _address(before) != _address(kind):  # the same as in a notebook that is run again
        raise SettingError(
            f"the name {name!r} is that of the {what} {before.__name__}: give {kind.__name__} its "
            "own name"
        )


def _address(kind: Callable[..., Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
