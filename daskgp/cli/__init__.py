"""The daskgp command: results on stdout, progress and logs on stderr, one line for an error.

Exit codes: 0 for success, 2 for bad arguments or input, 1 for a failure of the run, 130 for an
interrupt, 143 for SIGTERM.  Each command imports what it needs when it runs, so that ``--help`` is
instant.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from daskgp.cli.options import (
    cluster_options,
    column_options,
    device_option,
    estimator_options,
    extents_of,
    fill_option,
    fill_values,
    geographic_option,
    grid_options,
    json_option,
    lock_options,
    new_grid_options,
    numeric,
    sample_options,
    search_options,
    steps_of,
    store_options,
)
from daskgp.cli.run import (
    Failure,
    Main,
    Workers,
    note,
    outcome,
    result,
    training_rows,
    verbose_option,
)
from daskgp.errors import SettingError
from daskgp.typing import Device

if TYPE_CHECKING:
    import zarr

    from daskgp.cli.record import Record
    from daskgp.data.stores.locks import Claim
    from daskgp.output.job import Job, Written
    from daskgp.posterior.posterior import Posterior

__all__ = ["main"]

COMPILED = ("vecchia",)
"""Methods whose workers always need compiled code for neighbours."""


@click.group(cls=Main, invoke_without_command=True)
@click.version_option(package_name="daskgp", prog_name="daskgp")
@verbose_option
@click.pass_context
def main(ctx: click.Context) -> None:
    """Gaussian-process regression on Dask and Zarr, for data larger than memory.

    Stores are Zarr groups at a local path or any fsspec URL (s3://...).

    \b
    Common tasks:
      fit     daskgp fit data.csv model.zarr --target y --report report.html
      map     daskgp predict model.zarr --resolution lon=0.5,lat=0.5 map.zarr
      check   daskgp check model.zarr test.csv --target y
      update  daskgp update model.zarr train.zarr
      scale   daskgp convert 'parts/*.parquet' train.zarr --target y
    """  # noqa: D301 - click keeps the lines of a paragraph that begins with the control character
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@main.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("destination")
@click.option(
    "--target",
    metavar="NAME",
    help="Column to predict, or several: a,b.  [default: none, a store of places to predict at]",
)
@column_options
@click.option(
    "--block-rows", type=click.IntRange(min=1), metavar="N", help="Rows per chunk of the store."
)
@click.option("--append", is_flag=True, help="Add the rows to DESTINATION, with its columns.")
@click.option("--like", metavar="STORE", help="Dataset with the features and the origin of times.")
@fill_option
@store_options("like", destination="destination")
@lock_options
@verbose_option
def convert(
    sources: tuple[str, ...],
    destination: str,
    target: str | None,
    features: str | None,
    block_rows: int | None,
    y_std: str | None,
    y_variance: str | None,
    weight: str | None,
    mask: str | None,
    append: bool,
    like: str | None,
    geographic: str | None,
    dates: str | None,
    fill: tuple[str, ...],
    wait: float,
    clear_lock: bool,
) -> None:
    """Convert SOURCE (csv, parquet, npz, netCDF, Zarr grid) to the dataset store DESTINATION.

    SOURCE is a file, a pattern ('parts/*.parquet'), a folder, or several of them.
    """
    from daskgp.data.convert.convert import convert as run

    began = time.perf_counter()
    names, targets = _names_or_none(features), _names_or_none(target)
    converted = run(
        sources,
        destination,
        target=targets,
        features=names,
        block_rows=block_rows,
        append=append,
        like=like,
        y_std=y_std,
        y_variance=y_variance,
        weight=weight,
        mask=mask,
        geographic=_names_or_false(geographic),
        dates=_names_or_false(dates),
        fill_values=fill_values(fill),
        wait=wait,
        clear_lock=clear_lock,
    )
    known = {"geographic": list(converted.geographic)} if converted.geographic else {}
    result(
        dataset=destination,
        rows=converted.rows,
        skipped=converted.skipped,
        features=list(converted.features),
        targets=list(converted.targets),
        **known,
        seconds=_since(began),
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _names_or_none(text: str | None) -> list[str] | None:
    return None if text is None else _names(text)


def _names_or_false(text: str | None) -> list[str] | bool | None:
    """Return the columns that an option names; False for none of them."""
    if text is None:
        return None
    return False if text.lower() in ("none", "false") else _names(text)


def _columns(
    features: str | None, geographic: str | None, dates: str | None, **single: str | None
) -> dict[str, Any]:
    """Return what the options of `column_options` name."""
    several = {"geographic": _names_or_false(geographic), "dates": _names_or_false(dates)}
    return {"features": _names_or_none(features), **several, **single}


def _place_in(columns: dict[str, Any]) -> dict[str, Any]:
    """Return ``--geographic`` as a setting of a model, nothing where it is not given."""
    place = columns["geographic"]
    return {} if place is None else {"geographic": place}


@main.command()
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
@verbose_option
def prepare(
    source: str,
    destination: str,
    order: str,
    block_rows: int | None,
    geographic: str | None,
    fill: tuple[str, ...],
    scheduler: str | None,
    workers: int | None,
    memory_limit: str | None,
) -> None:
    """Rewrite the dataset store SOURCE in blocks of nearby rows as the new store DESTINATION."""
    began, cluster = time.perf_counter(), Workers(scheduler, workers, memory_limit)
    cluster.come()
    from daskgp.data.blocks.prepare import prepare as run

    chosen = _names(order) if "," in order else order
    with cluster.executor():
        more = {"geographic": _names_or_false(geographic), "fill_values": fill_values(fill)}
        prepared = run(source, destination, chosen, block_rows, **more)
    result(dataset=destination, **prepared._asdict(), seconds=_since(began))


@main.command()
@click.argument("data")
@click.argument("model_store", metavar="MODEL")
@estimator_options
@search_options
@click.option(
    "--target",
    metavar="NAME",
    help="Column to fit, or several: a,b; DATA then is a grid or a table.",
)
@column_options
@click.option("--report", metavar="FILE", help="Also write a report of the fit, as HTML.")
@click.option("--from", "start", metavar="MODEL", help="Model to start training from.")
@click.option("--resume", is_flag=True, help="Continue a fit that was stopped.")
@click.option("--ignore-errors", is_flag=True, help="Leave out y_variance and weight of DATA.")
@store_options("data", "start", model="model_store")
@lock_options
@cluster_options
@verbose_option
def fit(
    data: str,
    model_store: str,
    model: str | None,
    mean: str | None,
    assignments: tuple[str, ...],
    config: str | None,
    time_budget: str | None,
    memory: str | None,
    task: str | None,
    metric: str | None,
    target: str | None,
    features: str | None,
    y_std: str | None,
    y_variance: str | None,
    weight: str | None,
    mask: str | None,
    geographic: str | None,
    dates: str | None,
    report: str | None,
    start: str | None,
    resume: bool,
    ignore_errors: bool,
    wait: float,
    clear_lock: bool,
    scheduler: str | None,
    workers: int | None,
    memory_limit: str | None,
) -> None:
    """Fit a model to DATA and write it to the new store MODEL.

    DATA is a dataset store; or, with --target, any source of `daskgp convert`, such as a grid or
    'files*.nc', which is converted inside MODEL for as long as the fit lasts.  Without --model the
    method, its kernel and its sizes are chosen by scores of held-out rows, within --time-budget.
    """
    began, cluster = time.perf_counter(), Workers(scheduler, workers, memory_limit)
    cluster.come(*(["daskgp.models.markov.ready"] if model in COMPILED else []))
    from daskgp.cli.report import reporter
    from daskgp.cli.settings import build_estimator, search_settings
    from daskgp.data.stores import checkpoints, locks, models
    from daskgp.estimators import load, save_into

    own = {"time_budget": time_budget, "memory": memory, "task": task, "metric": metric}
    errors = {"y_std": y_std, "y_variance": y_variance, "weight": weight}
    columns = _columns(features, geographic, dates, mask=mask, **errors)
    name, searched = search_settings(model, config, own)
    estimator = build_estimator(name, assignments, config, mean, searched | _place_in(columns))
    write_report = reporter(report)
    columns |= {"geographic": estimator.geographic}
    training = training_rows(data, _names_or_none(target), columns, ignore_errors)
    begun = None if start is None else load(start)
    resumed: dict[str, bool] = {}
    said: dict[str, int] = {}
    if clear_lock and not resume:
        models.refuse_existing(model_store)  # before a lock is cleared in vain
    with locks.hold(model_store, wait, clear_lock, resume) as claim:
        if resume and models.is_complete(model_store):
            estimator, resumed = load(model_store), {"resumed": False}
            models.forget(model_store)  # a kill may have left it
            remark = "is already complete and left unchanged; data and settings are not compared"
            click.echo(f"model store {model_store} {remark}", err=True)
        else:
            with (
                _reserved(model_store, claim, resume) as group,
                training(models.training_url(model_store)) as (X, y, said),
                cluster.executor(estimator.device),
            ):
                url = f"{model_store.rstrip('/')}/{models.CHECKPOINT}"
                place = checkpoints.Place(url, claim)
                noise = (False, False) if ignore_errors else (None, None)
                keep = models.rows_url(model_store)
                estimator._fit(X, y, checkpoint=place, keep=keep, noise=noise, start=begun)
                fitted: Any = getattr(estimator, "best_", estimator)
                if target is not None:
                    fitted._seen[-1]["store"] = data
                claim.check()
                save_into(fitted, group, model_store)
    write_report(estimator, model_store, data)
    result(
        model=model_store,
        rows=estimator.n_rows_,
        objective=estimator.objective_,
        iterations=len(estimator.history_),
        **_choice(estimator),
        **said,
        **resumed,
        seconds=_since(began),
    )


@main.command()
@click.argument("model_store", metavar="MODEL")
@click.argument("data")
@click.option(
    "--hold-hyperparameters/--retrain",
    "hold",
    default=True,
    help="Keep hyper-parameters, or train them on all rows.  [default: keep them]",
)
@click.option("--window", type=float, help="Number of the last rows that MODEL keeps.")
@click.option("--along", metavar="COLUMN", help="Column, such as a time, that --window is along.")
@click.option("--ignore-errors", is_flag=True, help="Leave out y_variance and weight of DATA.")
@store_options("data", model="model_store")
@lock_options
@cluster_options
@verbose_option
def update(
    model_store: str,
    data: str,
    hold: bool,
    window: float | None,
    along: str | None,
    ignore_errors: bool,
    wait: float,
    clear_lock: bool,
    scheduler: str | None,
    workers: int | None,
    memory_limit: str | None,
) -> None:
    """Add rows of the dataset store DATA that MODEL has not seen to it, in place.

    DATA is the store that it was fitted to, which has grown, or another one of new rows.  The
    command may be stopped and repeated, by a scheduler too: MODEL is the old model or the new one,
    and rows that it has seen are not added again.  With --window old rows are forgotten.
    """
    from daskgp.data.stores import locks
    from daskgp.estimators.replacing import look
    from daskgp.runtime.executor import Executor

    began = time.perf_counter()
    cluster = Workers(scheduler, workers, memory_limit)
    with _going_on(), locks.hold(model_store, wait, clear_lock, resume=True) as claim:
        pending = look(model_store, data, ignore_errors, window, along, refit=not hold)
        growth, here = pending.growth, nullcontext(Executor(None))
        estimator = growth.gp
        if growth.changes or not hold:
            start = cluster.chosen or not hold or growth.pays_a_cluster
            with cluster.executor(estimator.device) if start else here as executor:
                if hold:
                    pending.write(claim, executor)
                else:
                    estimator = pending.retrain(claim, executor)
    result(
        model=model_store,
        rows=growth.new,
        skipped=growth.first,
        total=estimator.n_rows_,
        objective=estimator.objective_,
        seconds=_since(began),
    )


@main.command()
@click.argument("model_store", metavar="MODEL")
@click.argument("inputs", metavar="[INPUT]")
@click.argument("output", required=False, metavar="OUTPUT")
@click.option("--resume", is_flag=True, help="Predict only the chunks that OUTPUT lacks.")
@new_grid_options
@grid_options
@sample_options
@click.option(
    "--verify",
    is_flag=True,
    help="Compare all of INPUT that is predicted, not only what was written since.",
)
@click.option(
    "--record",
    metavar="FILE",
    help="Where the JSON record of the run goes, whatever its end.  [default: OUTPUT.run.json]",
)
@device_option
@store_options("inputs", "like", model="model_store", destination="output")
@lock_options
@cluster_options
@verbose_option
def predict(
    model_store: str,
    inputs: str,
    output: str | None,
    resume: bool,
    like: str | None,
    resolution: str | None,
    extent: str | None,
    mask: str | None,
    variance: bool,
    quantiles: str | None,
    exceedance: float | None,
    samples: int | None,
    seed: int | None,
    verify: bool,
    record: str | None,
    device: Device | None,
    wait: float,
    clear_lock: bool,
    scheduler: str | None,
    workers: int | None,
    memory_limit: str | None,
) -> None:
    """Predict at the places of INPUT into the store OUTPUT.

    INPUT is a dataset store, of whose X OUTPUT gets mean and variance of y; or a grid, a Zarr group
    or netCDF file with the features by name, of which OUTPUT becomes a map with its coordinates:
    mean and standard deviation of y.  Without INPUT, --like or --resolution make the grid.  If both
    are csv files, OUTPUT gets the columns of INPUT, and mean and standard deviation of y.

    The command may be repeated, by a scheduler too: with --resume it predicts the rows that INPUT
    has gained, and whatever an earlier run left undone.
    """
    from daskgp.cli.record import Record

    made = [text for text in (like, resolution, extent) if text is not None]
    if output is None and made:
        inputs, output = f"a grid like {', '.join(made)}", inputs
    elif output is None:
        raise click.UsageError("Missing argument 'OUTPUT'.", click.get_current_context())
    elif made:
        raise SettingError("--like, --resolution and --extent make the grid: leave INPUT out")
    if seed is not None and samples is None:
        raise SettingError("--seed belongs to --samples: give both, or neither")
    run = Record(model_store, inputs, output, record)
    with run.asked_for():
        cluster = Workers(scheduler, workers, memory_limit)
        if cluster.chosen:
            cluster.come()
        from daskgp.estimators import load
        from daskgp.output import csv as to_csv
        from daskgp.output import job as outputs
        from daskgp.output.job import Job

        model = load(model_store, device)
        posterior, source = model.solved_, inputs
        if made:
            to_csv.refuse_made(output)
            source = model.make_grid(steps_of(resolution), extents_of(extent), like)
        levels = None if quantiles is None else [numeric(text) for text in _names(quantiles)]
        asked = outputs.wanted(variance, levels, exceedance, samples, seed)
        job = Job(
            posterior, source, output, resume, model_store, verify, mask, asked, model._windows
        )
        if not to_csv.is_csv(output):
            figures = _into_store(job, cluster, run, wait, clear_lock)
        elif record or wait or clear_lock:
            raise SettingError(
                "--record, --wait and --clear-lock are for stores, a csv has neither a record nor "
                "a lock: leave them out"
            )
        else:
            figures = run.done(*_into_csv(job, cluster))
    result(**figures)


def _into_store(
    job: Job, cluster: Workers, run: Record, wait: float, clear_lock: bool
) -> dict[str, Any]:
    """Predict into a store under its lock, with a record of the run; return its figures."""
    from daskgp.data import prediction_store
    from daskgp.data.stores import locks
    from daskgp.output.store import needs_cluster, work_of, write_held
    from daskgp.runtime.executor import Executor

    output, resume, device = job.output, job.resume, job.posterior.device
    with work_of(job):
        pass  # what is wrong with the input is said before the lock is taken
    if clear_lock:
        prediction_store.refuse_taken(output, resume)  # before a lock is cleared in vain
    with locks.hold(output, wait, clear_lock, resume) as claim:
        prediction_store.refuse_taken(output, resume)  # before a cluster is started for it
        here = nullcontext(Executor(None))  # little is left to be computed, or nothing
        where = cluster.executor(device) if needs_cluster(job, cluster.chosen) else here
        with where as executor, run.kept(claim):
            return run.done(*write_held(job, executor, claim, run.begin))


def _into_csv(job: Job, cluster: Workers) -> Written:
    """Predict the rows of a csv into another."""
    from daskgp.fit.scratch import scratch_rows
    from daskgp.output import csv as to_csv
    from daskgp.output import store as to_store
    from daskgp.runtime.executor import Executor

    try:
        with scratch_rows(None) as url, to_csv.stored(job, url) as inner:
            big = to_store.needs_cluster(inner, cluster.chosen)
            here = nullcontext(Executor(None))
            with cluster.executor(job.posterior.device) if big else here as executor:
                return to_store.write(inner, executor)
    except KeyboardInterrupt as error:  # there is nothing to resume
        code, line = outcome(error)
        raise Failure(f"{line}: nothing was written, run it again", code) from error


@main.command()
@click.argument("model_store", metavar="MODEL")
@click.argument("test")
@click.option(
    "--target",
    metavar="NAME",
    help="Column to compare with, or several: a,b; TEST then is a grid or a table.",
)
@column_options
@device_option
@store_options("test", model="model_store")
@cluster_options
@verbose_option
def score(
    model_store: str,
    test: str,
    target: str | None,
    features: str | None,
    y_std: str | None,
    y_variance: str | None,
    weight: str | None,
    mask: str | None,
    geographic: str | None,
    dates: str | None,
    device: Device | None,
    scheduler: str | None,
    workers: int | None,
    memory_limit: str | None,
) -> None:
    """Score the predictions of MODEL on TEST: one line of JSON.

    TEST is a dataset store; or, with --target, any source of `daskgp convert`, of which the
    features of MODEL are taken by default.
    """
    from daskgp.assess.scores import scores
    from daskgp.estimators import load
    from daskgp.fit.scratch import scratch_rows

    began = time.perf_counter()
    cluster = Workers(scheduler, workers, memory_limit)
    estimator = load(model_store, device)
    posterior = estimator.solved_
    errors = {"y_std": y_std, "y_variance": y_variance, "weight": weight}
    columns = _columns(features, geographic, dates, mask=mask, **errors)
    rows = _test_rows(posterior, test, target, columns)
    with (
        scratch_rows(estimator.store) as url,
        rows(url) as (X, y, said),
        cluster.executor(posterior.device) as executor,
    ):
        figures = scores(posterior, X, y, executor)
    result(**figures, **said, seconds=_since(began))


def _test_rows(
    posterior: Posterior, test: str, target: str | None, columns: dict[str, Any]
) -> Callable[[str], AbstractContextManager[tuple[Any, Any, dict[str, int]]]]:
    """Return a context of X, y and what to say of them, with the features of a model by default."""
    from daskgp.models.columns import refuse_other

    names = columns["features"] or posterior.feature_names
    refuse_other(columns["geographic"], names, posterior.columns)
    return training_rows(test, _names_or_none(target), columns, until="again", model=posterior)


@main.command()
@click.argument("model_store", metavar="MODEL")
@click.argument("test")
@click.option(
    "--target",
    metavar="NAME",
    help="Column to compare with, or several: a,b; TEST then is a grid or a table.",
)
@column_options
@click.option("--figures", metavar="DIR", help="Folder for figures, as PNG.")
@click.option(
    "--regions",
    type=click.IntRange(min=1),
    default=8,
    metavar="N",
    help="Regions that are looked at one by one, a power of 2.  [default: 8]",
)
@json_option
@device_option
@store_options("test", model="model_store")
@cluster_options
@verbose_option
def check(
    model_store: str,
    test: str,
    target: str | None,
    features: str | None,
    y_std: str | None,
    y_variance: str | None,
    weight: str | None,
    mask: str | None,
    geographic: str | None,
    dates: str | None,
    figures: str | None,
    regions: int,
    as_json: bool,
    device: Device | None,
    scheduler: str | None,
    workers: int | None,
    memory_limit: str | None,
) -> None:
    """Hold the predictions of MODEL against the rows of TEST: scores and calibration.

    As a whole, by region and by distance to the training data; rows that MODEL was fitted to tell
    nothing.  TEST is a dataset store; or, with --target, any source of `daskgp convert`, of which
    the features of MODEL are taken by default.
    """
    from daskgp.assess.check import check as run
    from daskgp.assess.check import refuse
    from daskgp.estimators import load
    from daskgp.fit.scratch import scratch_rows

    if figures is not None:
        from daskgp import plot

        plot.canvas.check_matplotlib()  # before the work
    cluster = Workers(scheduler, workers, memory_limit)
    estimator = load(model_store, device)
    posterior = estimator.solved_
    refuse(posterior, regions)
    errors = {"y_std": y_std, "y_variance": y_variance, "weight": weight}
    columns = _columns(features, geographic, dates, mask=mask, **errors)
    rows = _test_rows(posterior, test, target, columns)
    with (
        scratch_rows(estimator.store) as url,
        rows(url) as (X, y, said),
        cluster.executor(posterior.device),
    ):
        found = run(estimator, X, y, regions=regions)
    drawn = [] if figures is None else plot.check(found, figures)
    if as_json:
        result(**found.to_dict(), **said, figures=drawn)
    else:
        click.echo("\n\n".join([str(found), *[f"figures: {', '.join(drawn)}"] * bool(drawn)]))


@main.command()
@click.argument("store")
@json_option
@store_options("store")
@verbose_option
def info(store: str, as_json: bool) -> None:
    """Show what a dataset, model or prediction STORE holds."""
    if as_json:
        from daskgp.cli.facts import facts

        result(**facts(store))
        return
    from daskgp.cli.info import describe

    describe(store)


@main.command()
@click.argument("data")
@estimator_options
@click.option(
    "--target",
    metavar="NAME",
    help="Column to fit, or several: a,b; DATA then is a grid or a table.",
)
@column_options
@json_option
@click.option(
    "--measure", is_flag=True, help="Run on a few blocks to tell how long an iteration takes."
)
@store_options("data")
@cluster_options
@verbose_option
def plan(
    data: str,
    model: str | None,
    mean: str | None,
    assignments: tuple[str, ...],
    config: str | None,
    target: str | None,
    features: str | None,
    y_std: str | None,
    y_variance: str | None,
    weight: str | None,
    mask: str | None,
    geographic: str | None,
    dates: str | None,
    as_json: bool,
    measure: bool,
    scheduler: str | None,
    workers: int | None,
    memory_limit: str | None,
) -> None:
    """Show what a fit to DATA will need, without starting it; for model auto, the most of any.

    DATA is a dataset store; or, with --target, any source of `daskgp convert`, which is converted
    to count its rows.
    """
    from daskgp.cli.info import describe_plan
    from daskgp.cli.settings import build_estimator
    from daskgp.errors import PlanError
    from daskgp.estimators import AutoGP
    from daskgp.fit.refusal import refuse
    from daskgp.fit.scratch import scratch_rows
    from daskgp.runtime.connect import local_memory_limit
    from daskgp.runtime.executor import chosen

    cluster = Workers(scheduler, workers, memory_limit)
    single = {"y_std": y_std, "y_variance": y_variance, "weight": weight, "mask": mask}
    columns = _columns(features, geographic, dates, **single)
    estimator = build_estimator(model, assignments, config, mean, _place_in(columns))
    named = columns | {"geographic": estimator.geographic}
    training = training_rows(data, _names_or_none(target), named, until="again")
    started, device = scheduler or measure, estimator.device
    with (
        scratch_rows(estimator.store) as url,
        training(url) as (X, y, _),
        cluster.executor(device, bool(started)) as executor,
    ):
        auto = isinstance(estimator, AutoGP)
        estimator, others = estimator._costliest(X, y) if auto else (estimator, [])
        rows, remedy = estimator._rows_of(X, y, spill="", shared_memory=True), None
        threads = executor.threads() if started else workers or executor.threads()
        limit = local_memory_limit(memory_limit or "auto") or None
        if started:
            limit = executor.memory_per_task()
        needs, work = estimator.plan(X, y).beside(others), estimator._workload(rows)
        try:
            refuse(work, limit)
        except PlanError as error:
            remedy = str(error)
        if measure and remedy is None:
            note("an iteration is timed on some of the rows, which takes as long as a few of them")
            needs = estimator.plan(X, y, measure=True).beside(others)
        where = chosen(executor, device)
    if as_json:
        verdict = {
            "method": estimator.model_name,
            "bytes_limit": limit,
            "device": where,
            "fits": remedy is None,
            "remedy": remedy,
        }
        share = {"workers": threads, "busy": needs.busy(threads)}
        result(**dataclasses.asdict(needs), **share, **verdict)
    else:
        name = estimator.model_name
        describe_plan(name, needs, limit, remedy, threads, work.iterations, where, work.staged)


@contextmanager
def _reserved(url: str, claim: Claim, resume: bool) -> Iterator[zarr.Group]:
    """Yield the store that a fit fills, and say so if ``--resume`` finds nothing in it."""
    from daskgp.data.stores import models

    with models.reserve(url, claim, resume) as group:
        if resume and models.kept_of(group) is None:
            note(f"model store {url} has nothing to resume: the fit starts anew")
        yield group


@contextmanager
def _going_on() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(
            "the model is either the old or the new one; the same command may be repeated"
        )
        raise


def _choice(estimator: Any) -> dict[str, Any]:
    """Return what was chosen by a search, nothing where there was none."""
    board = getattr(estimator, "best_", estimator)._board
    if board is None:
        return {}
    best = board.best
    return {
        "method": best.method,
        "kernel": best.kernel,
        "metric": board.metric,
        "score": best.score,
        "trials": len(board),
    }


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 3)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--template", is_flag=True, help="Print the settings file to start from.")
@verbose_option
def workflow(name: str | None, arguments: tuple[str, ...], template: bool) -> None:
    """Run the workflow NAME, a script with settings in a TOML file; without NAME list them.

    \b
    daskgp workflow cross_validate --template > folds.toml
    daskgp workflow cross_validate --config folds.toml
    """  # noqa: D301 - as above
    from daskgp.cli import workflows

    if name is None:
        click.echo("\n".join(workflows.listed()))
    elif template:
        click.echo(workflows.template(name), nl=False)
    else:
        raise SystemExit(workflows.run(name, arguments))
