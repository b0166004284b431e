"""The command ``daskgp convert``."""

from __future__ import annotations

import time
from typing import Any

import click

from daskgp.cli.options import (
    Lock,
    column_options,
    lock_options,
    store_options,
)
from daskgp.cli.run import command, result, since


@command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("destination")
@column_options(
    "Column to predict, or several: a,b.  [default: none, a store of places to predict at]"
)
@click.option(
    "--block-rows", type=click.IntRange(min=1), metavar="N", help="Rows per chunk of DESTINATION."
)
@click.option(
    "--append", is_flag=True, help="Add the rows to DESTINATION, which keeps its columns."
)
@click.option(
    "--like",
    metavar="STORE",
    help="Dataset store or model from which to take the features, the units of times and the "
    "levels of text.",
)
@store_options("like", destination="destination")
@lock_options
def convert(
    sources: tuple[str, ...],
    destination: str,
    columns: dict[str, Any],
    block_rows: int | None,
    append: bool,
    like: str | None,
    lock: Lock,
) -> None:
    """Convert SOURCE (csv, parquet, npz, netCDF, Zarr grid) to the dataset store DESTINATION.

    SOURCE is a file, a pattern ('parts/*.parquet'), a folder, or several of them.
    """
    from daskgp.data.convert.convert import convert as run

    began, more = time.perf_counter(), columns | lock._asdict()
    more |= {"append": append, "like": like}
    converted = run(sources, destination, block_rows=block_rows, **more)
    known = {"geographic": list(converted.geographic)} if converted.geographic else {}
    result(
        dataset=destination,
        rows=converted.rows,
        skipped=converted.skipped,
        features=list(converted.features),
        targets=list(converted.targets),
        **known,
        seconds=since(began),
    )
