"""The command ``daskgp plan``."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.options import (
    SETTINGS,
    Model,
    cluster_options,
    column_options,
    estimator_options,
    json_option,
    settings_in,
    store_options,
)
from daskgp.cli.run import command, note, result


@command()
@click.argument("data")
@estimator_options()
@column_options("Column to fit, or several: a,b; DATA then is a grid or a table.")
@json_option
@click.option(
    "--measure", is_flag=True, help="Run on a few blocks to tell how long an iteration takes."
)
@store_options("data")
@cluster_options
def plan(
    data: str,
    described: Model,
    columns: dict[str, Any],
    as_json: bool,
    measure: bool,
    cluster: Workers,
) -> None:
    """Show what a fit to DATA will need, without starting it.

    DATA is a dataset store, or with --target any source of `daskgp convert`, which is converted to
    count its rows.  With --model auto the plan is that of the most expensive candidate.
    """
    from daskgp.choose.auto import AutoGP
    from daskgp.cli.settings import build_estimator
    from daskgp.cli.sources import training_rows
    from daskgp.cli.tables import describe_plan
    from daskgp.errors import PlanError
    from daskgp.fit.scratch import scratch_rows
    from daskgp.fit.work import refuse, work_of
    from daskgp.runtime.connect import local_memory_limit
    from daskgp.runtime.executor import chosen

    cluster.check()
    estimator = build_estimator(*described, settings_in(columns))
    columns |= {name: getattr(estimator, name) for name in SETTINGS}
    training = training_rows(data, columns, until="again")
    started, device = bool(cluster.scheduler or measure), estimator.device
    with (
        scratch_rows(estimator.store) as url,
        training(url) as (X, y, _),
        cluster.executor(device, started) as executor,
    ):
        others: list[Any] = []
        if isinstance(estimator, AutoGP):
            estimator, others = estimator._costliest(X, y)
        rows, remedy = estimator.recipe().rows_of(X, y, spill="", shared_memory=True), None
        threads = executor.threads() if started else cluster.workers or executor.threads()
        limit = local_memory_limit(cluster.memory_limit or "auto") or None
        if started:
            limit = executor.memory_per_task()
        needs, work = estimator.plan(X, y).beside(others), work_of(estimator.recipe(), rows)
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
