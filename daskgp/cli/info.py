"""The command ``daskgp info``."""

from __future__ import annotations

import click

from daskgp.cli.options import json_option, store_options
from daskgp.cli.run import command, result


@command()
@click.argument("store")
@json_option
@store_options("store")
def info(store: str, as_json: bool) -> None:
    """Show what a dataset, model or prediction STORE holds."""
    if as_json:
        from daskgp.cli import profile

        result(**profile.of_store(store))
        return
    from daskgp.cli.tables import describe

    describe(store)
