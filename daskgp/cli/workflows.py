"""Workflows: scripts that are installed with the package, each run by a process of its own."""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import daskgp
from daskgp.errors import InputError

NOT_RUN = ("common", "demo")
"""Scripts that others import, or that make data of their own."""


def folder() -> Path:
    """Return the folder of the scripts: in the package, or beside it in a checkout."""
    package = Path(daskgp.__file__).parent
    installed = package / "workflows"
    return installed if installed.is_dir() else package.parent / "workflows"


def names() -> list[str]:
    """Return the names of the workflows."""
    return sorted(path.stem for path in folder().glob("*.py") if path.stem not in NOT_RUN)


def listed() -> list[str]:
    """Return a line per workflow: its name and what it does."""
    known = names()
    width = max(map(len, known), default=0)
    return [f"{name:{width}}  {_what(folder() / f'{name}.py')}" for name in known]


def template(name: str) -> str:
    """Return the settings file that a workflow comes with."""
    return _script(name).with_suffix(".toml").read_text()


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a workflow and return its exit code."""
    return subprocess.call([sys.executable, str(_script(name)), *arguments])


def _script(name: str) -> Path:
    """Return the script of a workflow; InputError if there is none of the name."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}"
        raise InputError(f"no workflow {name!r}: {hint}")
    return folder() / f"{name}.py"


def _what(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(said.partition("\n\n")[0].split())
