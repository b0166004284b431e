"""The command ``daskgp check``."""

from __future__ import annotations

from typing import Any

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.options import (
    cluster_options,
    column_options,
    device_option,
    json_option,
    store_options,
)
from daskgp.cli.run import command, result
from daskgp.cli.score import TARGET
from daskgp.typing import Device


@command()
@click.argument("model_store", metavar="MODEL")
@click.argument("test")
@column_options(TARGET)
@click.option("--figures", metavar="DIR", help="Folder for figures, as PNG.")
@click.option(
    "--regions",
    type=click.IntRange(min=1),
    default=8,
    metavar="N",
    help="Number of regions with scores of their own, a power of 2.  [default: 8]",
)
@json_option
@device_option
@store_options("test", model="model_store")
@cluster_options
def check(
    model_store: str,
    test: str,
    columns: dict[str, Any],
    figures: str | None,
    regions: int,
    as_json: bool,
    device: Device | None,
    cluster: Workers,
) -> None:
    """Compare the predictions of MODEL with the rows of TEST: scores and calibration.

    Scores are those of all rows, by region and by distance to the training data.  Rows that MODEL
    was fitted to say nothing.  TEST is a dataset store or any source of `daskgp convert`, from
    which the features and targets of MODEL are taken by default.
    """
    from daskgp.assess.check import refuse
    from daskgp.cli.sources import left_out, rows_to_compare
    from daskgp.estimators import check as run
    from daskgp.estimators import load_one
    from daskgp.fit.scratch import scratch_rows

    if figures is not None:
        from daskgp import plot
        from daskgp.cli import pages

        pages.refuse_figures(figures)
    cluster.check()
    estimator = load_one(model_store, device)
    refuse(estimator.solved_, regions)
    rows = rows_to_compare(estimator, test, columns)
    with (
        scratch_rows(estimator.store) as url,
        rows(url) as (X, y, more),
        cluster.executor(estimator.solved_.device),
    ):
        checked = run(estimator, X, y, regions=regions)
        more = left_out(y.size, checked.n, more)
    drawn = [] if figures is None else plot.check(checked, figures)
    if as_json:
        result(**checked.to_dict(), **more, figures=drawn)
    else:
        click.echo("\n\n".join([str(checked), *[f"figures: {', '.join(drawn)}"] * bool(drawn)]))
