"""The command ``daskgp report``."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.options import (
    SETTINGS,
    cluster_options,
    column_options,
    device_option,
    store_options,
)
from daskgp.cli.run import command, result, since
from daskgp.cli.score import TARGET
from daskgp.errors import SettingError
from daskgp.typing import Device


@command()
@click.argument("model_store", metavar="MODEL")
@click.argument("test", required=False)
@click.option(
    "--output",
    metavar="FILE",
    help="New HTML file to write.  [default: MODEL with .html]",
)
@column_options(TARGET)
@device_option
@store_options("test", model="model_store")
@cluster_options
def report(
    model_store: str,
    test: str | None,
    output: str | None,
    columns: dict[str, Any],
    device: Device | None,
    cluster: Workers,
) -> None:
    """Write a report of the fitted MODEL, one HTML page with tables and figures.

    With TEST, rows that MODEL was not fitted to, it also has the scores and the calibration of
    `daskgp check`.  TEST is a dataset store or any source of `daskgp convert`.
    """
    from daskgp.assess.check import refuse
    from daskgp.cli import pages
    from daskgp.estimators import load_one

    began = time.perf_counter()
    path = output or f"{model_store.rstrip('/').removesuffix('.zarr')}.html"
    pages.refuse(path, "--output")
    cluster.check()
    model = load_one(model_store, device)
    held: tuple[str, Any] | None = None
    more: dict[str, int] = {}
    if test is None:
        _refuse_columns(columns)
        if cluster.chosen:
            raise SettingError(
                "--scheduler, --workers and --memory-limit are for the rows of TEST: name them "
                "after MODEL, or leave the options out"
            )
    else:
        refuse(model.solved_, 8)
        checked, more = _checked(model, test, columns, cluster)
        held = test, checked
    pages.write_report(path, model, model_store, pages.source_of(model), held)
    result(report=path, model=model_store, **more, seconds=since(began))


def _refuse_columns(columns: dict[str, Any]) -> None:
    """Raise SettingError for options that name columns of TEST, where there is none."""
    for name, value in columns.items():
        if value != SETTINGS.get(name):
            option = {"fill_values": "fill"}.get(name, name).replace("_", "-")
            raise SettingError(f"--{option} is for the rows of TEST: name them after MODEL")


def _checked(
    model: Any, test: str, columns: dict[str, Any], cluster: Workers
) -> tuple[Any, dict[str, int]]:
    """Return what a check of other rows finds, and what was left out of them."""
    from daskgp.cli.sources import left_out, rows_to_compare
    from daskgp.estimators import check
    from daskgp.fit.scratch import scratch_rows

    rows = rows_to_compare(model, test, columns)
    with ExitStack() as stack:
        url = stack.enter_context(scratch_rows(model.store))
        X, y, more = stack.enter_context(rows(url))
        stack.enter_context(cluster.executor(model.solved_.device))
        checked = check(model, X, y)
        return checked, left_out(y.size, checked.n, more)
