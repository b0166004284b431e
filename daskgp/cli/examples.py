"""The command ``daskgp examples``."""

from __future__ import annotations

import os
import shlex
import shutil
import uuid
from pathlib import Path

import click

from daskgp.cli.options import json_option
from daskgp.cli.run import command, result
from daskgp.errors import InputError, StoreError


@command()
@click.argument("name", required=False)
@click.argument("folder", required=False)
@json_option
def examples(name: str | None, folder: str | None, as_json: bool) -> None:
    """Write the small data set NAME and print commands to run on it; without NAME list them.

    The files go into the new FOLDER, by default one with the name of the data set.
    """
    from daskgp.cli.sample_data import EXAMPLES, write

    if name is None:
        about = {known: one.about for known, one in EXAMPLES.items()}
        if as_json:
            result(examples=about)
            return
        width = max(map(len, about))
        click.echo("\n".join(f"{known:{width}}  {text}" for known, text in about.items()))
        return
    if name not in EXAMPLES:
        from daskgp.checks import meant

        hint = meant(name, list(EXAMPLES)) or f"choose one of {', '.join(EXAMPLES)}"
        raise InputError(f"no example {name!r}: {hint}")
    if folder is not None and "://" in folder:
        raise InputError(f"{folder} is not on this machine: give a local folder")
    place = Path(folder or name)
    _refuse_taken(place)
    made, commands = EXAMPLES[name].make(), EXAMPLES[name].commands
    part = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}")
    try:
        part.mkdir()
        write(made, part)
        if place.is_dir():
            place.rmdir()  # which is empty
        os.rename(part, place)
    except OSError as error:
        said = error.strerror or str(error)
        raise StoreError(f"cannot write the example to {place}: {said}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    if as_json:
        result(folder=str(place), files=list(made), commands=list(commands))
    else:
        click.echo("\n".join([f"cd {shlex.quote(str(place))}", *commands]))


def _refuse_taken(place: Path) -> None:
    """Raise an error unless a new folder can be made at a place, or an empty one is there."""
    if not place.name:
        raise StoreError(f"{place} names no folder to be made: give a new FOLDER, or none")
    if os.path.lexists(place) and not (place.is_dir() and not any(place.iterdir())):
        raise StoreError(f"{place} exists already: remove it or give another FOLDER")
    if not place.absolute().parent.is_dir():
        raise StoreError(
            f"{place} cannot be made: there is no folder {place.absolute().parent}: make it first"
        )
