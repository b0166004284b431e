"""The command ``daskgp prepare``."""

from __future__ import annotations

import time

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.options import (
    cluster_options,
    fill_option,
    fill_values,
    geographic_option,
    names_of,
    names_or_false,
    store_options,
)
from daskgp.cli.run import command, result, since


@command()
@click.argument("source")
@click.argument("destination")
@click.option(
    "--order",
    default="auto",
    metavar="NAME",
    help="auto, hilbert, pca, kmeans, random, a feature, or up to three: a,b.  [default: auto]",
)
@click.option(
    "--block-rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum rows per block.  [default: 256]",
)
@geographic_option
@fill_option
@store_options("source", destination="destination")
@cluster_options
def prepare(
    source: str,
    destination: str,
    order: str,
    block_rows: int | None,
    geographic: str | None,
    fill: tuple[str, ...],
    cluster: Workers,
) -> None:
    """Rewrite the dataset store SOURCE in blocks of nearby rows as the new store DESTINATION."""
    began = time.perf_counter()
    cluster.come()
    from daskgp.data.blocks.prepare import prepare as run

    chosen = names_of(order) if "," in order else order
    with cluster.executor():
        more = {"geographic": names_or_false(geographic), "fill_values": fill_values(fill)}
        prepared = run(source, destination, chosen, block_rows, **more)
    result(dataset=destination, **prepared._asdict(), seconds=since(began))
