"""The command ``daskgp workflow``: scripts that are installed with the package.

Each is run by a process of its own.
"""

from __future__ import annotations

from pathlib import Path

import click

import daskgp
from daskgp.cli.options import json_option
from daskgp.cli.run import command, result
from daskgp.errors import InputError, SettingError

NOT_RUN = ("common", "demo")
"""Scripts that others import, or that make data of their own."""


@command(context_settings={"ignore_unknown_options": True})
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--template", is_flag=True, help="Print the settings file to start from.")
@json_option
def workflow(name: str | None, arguments: tuple[str, ...], template: bool, as_json: bool) -> None:
    """Run the workflow NAME, a script with settings in a TOML file; without NAME list them.

    \b
    daskgp workflow cross_validate --template > folds.toml
    daskgp workflow cross_validate --config folds.toml
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with the control character
    if as_json and name is not None:
        raise SettingError("--json is for the list of workflows: leave it out to run one")
    if name is None:
        about = {known: _summary(_folder() / f"{known}.py") for known in _names()}
        width = max(map(len, about), default=0)
        if as_json:
            result(workflows=about)
        else:
            click.echo("\n".join(f"{known:{width}}  {text}" for known, text in about.items()))
    elif template:
        click.echo(_script(name).with_suffix(".toml").read_text(), nl=False)
    else:
        import subprocess
        import sys

        raise SystemExit(subprocess.call([sys.executable, str(_script(name)), *arguments]))


def _folder() -> Path:
    """Return the folder of the scripts: in the package, or beside it in a checkout."""
    package = Path(daskgp.__file__).parent
    installed = package / "workflows"
    return installed if installed.is_dir() else package.parent / "workflows"


def _names() -> list[str]:
    """Return the names of the workflows."""
    return sorted(path.stem for path in _folder().glob("*.py") if path.stem not in NOT_RUN)


def _script(name: str) -> Path:
    """Return the script of a workflow; InputError if there is none of the name."""
    from daskgp.checks import meant

    known = _names()
    if name not in known:
        hint = meant(name, known) or f"choose one of {', '.join(known)}"
        raise InputError(f"no workflow {name!r}: {hint}")
    return _folder() / f"{name}.py"


def _summary(path: Path) -> str:
    """Return the first paragraph of the docstring of a script."""
    import ast

    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())
