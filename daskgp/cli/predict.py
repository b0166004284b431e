"""The command ``daskgp predict``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.options import (
    Lock,
    NewGrid,
    Wanted,
    cluster_options,
    device_option,
    encoding_options,
    fill_option,
    fill_values,
    lock_options,
    mask_option,
    new_grid_options,
    output_options,
    read_fills,
    store_options,
)
from daskgp.cli.run import Failure, command, numeric, outcome, result
from daskgp.errors import SettingError
from daskgp.typing import Device, UnseenName

if TYPE_CHECKING:
    from daskgp.cli.record import Record
    from daskgp.output.job import Job, Written

    Stored: TypeAlias = Callable[[Job, str], AbstractContextManager[Job]]
    """How predictions go into a file by way of a store."""


@command()
@click.argument("model_store", metavar="MODEL")
@click.argument("inputs", metavar="[INPUT]")
@click.argument("output", required=False, metavar="OUTPUT")
@click.option("--resume", is_flag=True, help="Predict only the chunks that OUTPUT lacks.")
@new_grid_options
@mask_option
@fill_option
@output_options
@encoding_options
@click.option(
    "--exposure",
    metavar="VALUE",
    help="Exposure of new counts: a number, or a column or variable of INPUT.  [default: 1]",
)
@click.option("--offset", metavar="VALUE", help="Offset of the log of their rate, likewise.")
@click.option("--trials", metavar="VALUE", help="Trials of new successes, likewise.")
@click.option(
    "--unseen",
    type=click.Choice(get_args(UnseenName)),
    help="Refuse levels of categories that the fit has not seen, or predict them as a new "
    "level.  [default: as of the fit]",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Compare all predicted parts of INPUT, not only those written since.",
)
@click.option(
    "--record",
    metavar="FILE",
    help="File for the JSON record of the run, however it ends.  [default: OUTPUT.run.json]",
)
@device_option
@store_options("inputs", "like", model="model_store", destination="output")
@lock_options
@cluster_options
def predict(
    model_store: str,
    inputs: str,
    output: str | None,
    resume: bool,
    grid: NewGrid,
    mask: str | None,
    fill: tuple[str, ...],
    wanted: Wanted,
    encoding: Mapping[str, Any],
    exposure: str | None,
    offset: str | None,
    trials: str | None,
    unseen: UnseenName | None,
    verify: bool,
    record: str | None,
    device: Device | None,
    lock: Lock,
    cluster: Workers,
) -> None:
    """Predict at the places of INPUT into the store OUTPUT.

    INPUT is a dataset store, a grid (Zarr group or netCDF file with the features by name) or a csv.
    For a dataset store, OUTPUT gets mean and variance of y at its rows.  For a grid, OUTPUT is a
    map with its coordinates: mean and standard deviation of y.  It may be a netCDF file, map.nc, or
    a GeoTIFF, map.tif, with a band of each.  Without INPUT, --like or --resolution make the grid.
    For a csv, OUTPUT is a csv with the columns of INPUT, and mean and standard deviation of y.  In
    an Icechunk repository, NAME.icechunk or NAME.icechunk/GROUP, a run is one commit.

    Spreads are those of new observations y, noise included, as include_noise=True gives them in
    Python.

    The command may be repeated, also by a scheduler: with --resume it predicts the rows that INPUT
    has gained, and all that an earlier run left undone.
    """
    from daskgp.cli.record import Record

    if output is None and grid.given:
        inputs, output = f"a grid like {', '.join(grid.given)}", inputs
    elif output is None:
        raise click.UsageError("Missing argument 'OUTPUT'.", click.get_current_context())
    elif grid.given:
        raise SettingError("--like, --resolution and --extent make the grid: leave INPUT out")
    run = Record(model_store, inputs, output, record)
    with run.asked_for():
        fills = fill_values(fill)
        cluster.check()
        if cluster.chosen:
            cluster.come()
        from daskgp.estimators import load_one
        from daskgp.output import csv, job

        model = load_one(model_store, device)
        posterior = read_fills(model, fills)
        source: Any = inputs
        posterior = posterior if unseen is None else posterior.taking(unseen)
        if grid.given:
            csv.refuse_made(output)
            source = model.make_grid(grid.steps, grid.ends, grid.like)
        arrays = job.wanted(posterior, *wanted)
        texts = {"trials": trials, "exposure": exposure, "offset": offset}
        given = {name: numeric(text) for name, text in texts.items() if text is not None}
        beside = job.checked_beside(posterior, **given)
        settings = resume, model_store, verify, mask, arrays, model._windows
        asked = job.Job(posterior, source, output, *settings, beside=beside)
        asked = asked._replace(notes=model._fitted.seen)
        if encoding:
            asked = _stored_as(asked, encoding)
        stored = csv.stored if csv.is_csv(output) else _as_map(output)
        if stored is None:
            figures = _into_store(asked, cluster, run, lock)
        elif record or any(lock):
            raise SettingError(
                "--record, --wait and --clear-lock are for stores: a file has neither a "
                "record nor a lock, so leave them out"
            )
        else:
            figures = run.done(*_into_file(asked, cluster, stored))
    result(**figures)


def _stored_as(job: Job, encoding: Mapping[str, Any]) -> Job:
    """Return a prediction into a map that is stored as options say."""
    from daskgp.data import encoding as encodings

    return job._replace(encoding=encodings.checked(encoding))


def _into_store(job: Job, cluster: Workers, run: Record, lock: Lock) -> dict[str, Any]:
    """Predict into a store under its lock, with a record of the run; return its figures."""
    from daskgp.data import prediction_store
    from daskgp.output.store import held, needs_cluster, write_held

    with held(job, *lock) as (job, claim):
        prediction_store.refuse_taken(job.output, job.resume)  # before a cluster is started for it
        much = needs_cluster(job, cluster.chosen)  # left to be computed
        with cluster.executor_if(much, job.posterior.device) as executor, run.kept(claim):
            return run.done(*write_held(job, executor, claim, run.begin))


def _as_map(output: str) -> Stored | None:
    """Return how predictions become the file of a map; None for an output of another name."""
    from daskgp.output import mapfile

    return mapfile.stored if mapfile.is_file(output) else None


def _into_file(job: Job, cluster: Workers, stored: Stored) -> Written:
    """Predict the rows of a csv into another, or a grid into the file of a map."""
    from daskgp.fit.scratch import scratch_rows
    from daskgp.output import csv, store

    try:
        with scratch_rows(None) as url, stored(job, url) as inner:
            much = store.needs_cluster(inner, cluster.chosen)
            with cluster.executor_if(much, job.posterior.device) as executor:
                return csv.without_prediction(inner, store.write(inner, executor))
    except KeyboardInterrupt as error:  # there is nothing to resume
        code, line = outcome(error)
        raise Failure(f"{line}: nothing was written, run it again", code) from error
