"""The command ``daskgp update``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.options import (
    Lock,
    cluster_options,
    fill_option,
    fill_values,
    ignore_option,
    lock_options,
    store_options,
)
from daskgp.cli.run import command, result, since

if TYPE_CHECKING:
    from daskgp.estimators import GaussianProcess
    from daskgp.update.growing import Growth


@command()
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
@fill_option
@ignore_option
@store_options("data", model="model_store")
@lock_options
@cluster_options
def update(
    model_store: str,
    data: str,
    hold: bool,
    window: float | None,
    along: str | None,
    fill: tuple[str, ...],
    ignore_errors: bool,
    lock: Lock,
    cluster: Workers,
) -> None:
    """Add new rows of the dataset store DATA to MODEL, in place.

    DATA is the store that MODEL was fitted to, which has grown, or another one of new rows.  The
    command may be stopped and repeated, also by a scheduler: MODEL is the old model or the new one,
    and rows that it has seen are not added again.  With --window old rows are forgotten.
    """
    from daskgp.data.stores import locks
    from daskgp.estimators.replacing import look

    began = time.perf_counter()
    fills = fill_values(fill)
    cluster.check()
    with repeatable(), locks.hold(model_store, *lock, resume=True) as claim:
        pending = look(model_store, data, ignore_errors, window, along, not hold, fills)
        growth = pending.change
        estimator = pending.gp
        if growth.changes or not hold:
            big = cluster.chosen or not hold or pending.pays_a_cluster
            with cluster.executor_if(big, estimator.device) as executor:
                if hold:
                    pending.write(claim, executor)
                else:
                    estimator = pending.retrain(claim, executor)
    result(
        model=model_store,
        rows=_added(growth, estimator) if hold else growth.new,
        skipped=growth.first,
        total=estimator.n_rows_,
        objective=estimator.objective_,
        seconds=since(began),
    )


def _added(growth: Growth, estimator: GaussianProcess) -> int:
    """Return how many new rows a model has learned from: those with missing values it has not."""
    notes = estimator._fitted.seen[len(growth.fit.seen) :]
    learned = [note["rows"] for note in notes if note["what"] == "update"]
    return min(growth.new, sum(learned)) if learned else growth.new


@contextmanager
def repeatable() -> Iterator[None]:
    """Add to an interrupt that the command may be repeated."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(
            "the model is either the old or the new one; the same command may be repeated"
        )
        raise
