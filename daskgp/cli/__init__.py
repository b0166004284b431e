"""The daskgp command: results on stdout, progress and logs on stderr, one line for an error.

Exit codes: 0 for success, 2 for bad arguments or input, 1 for a failure of the run, 130 for an
interrupt, 143 for SIGTERM.  A command is imported when it is asked for, and imports what it needs
when it runs, so that ``--help`` is instant.
"""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import Any

import click

from daskgp.cli.run import Main

__all__ = ["main"]


class Commands(UserDict[str, str]):
    """Commands by name, each read from the module of this name when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        module = self.data[name]
        return getattr(import_module(f"daskgp.cli.{module}"), module)


NAMES = """
check convert cross-validate examples fit forget info interpolate map plan predict prepare report
score update workflow
"""
COMMANDS = Commands({name: name.replace("-", "_") for name in NAMES.split()})


@click.group(cls=Main, commands=COMMANDS, invoke_without_command=True)
@click.version_option(package_name="daskgp", prog_name="daskgp")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Gaussian-process regression on Dask and Zarr, for data larger than memory.

    Stores are Zarr groups at a local path or any fsspec URL (s3://...).

    \b
    Common tasks:
      try      daskgp examples stations
      map      daskgp interpolate data.csv map.nc --resolution lon=0.5,lat=0.5
      test     daskgp cross-validate data.csv --target y --blocks auto
      fit      daskgp fit data.csv model.zarr --target y --report report.html
      predict  daskgp predict model.zarr --resolution lon=0.5,lat=0.5 map.zarr
      check    daskgp check model.zarr test.csv --target y
      update   daskgp update model.zarr train.zarr
      scale    daskgp convert 'parts/*.parquet' train.zarr --target y
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with the control character
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
