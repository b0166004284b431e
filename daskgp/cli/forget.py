"""The command ``daskgp forget``."""

from __future__ import annotations

import time

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.options import (
    Lock,
    cluster_options,
    ignore_option,
    lock_options,
    store_options,
)
from daskgp.cli.run import command, result, since


@command()
@click.argument("model_store", metavar="MODEL")
@click.argument("data")
@ignore_option
@store_options("data", model="model_store")
@lock_options
@cluster_options
def forget(
    model_store: str,
    data: str,
    ignore_errors: bool,
    lock: Lock,
    cluster: Workers,
) -> None:
    """Remove the rows of the dataset store DATA from MODEL, in place.

    If MODEL was fitted to DATA or updated with it, the rows that it has are removed.  Otherwise all
    rows of DATA must be among those of MODEL.  The command may be stopped and repeated, as `daskgp
    update` may; rows that were removed before are not removed again.
    """
    from daskgp.cli.update import repeatable
    from daskgp.data.stores import locks
    from daskgp.estimators.replacing import look_back

    began = time.perf_counter()
    cluster.check()
    with repeatable(), locks.hold(model_store, *lock, resume=True) as claim:
        pending = look_back(model_store, data, ignore_errors)
        estimator, before = pending.gp, pending.gp.n_rows_
        if pending.change.changes:
            big = cluster.chosen or pending.pays_a_cluster
            with cluster.executor_if(big, estimator.device) as executor:
                pending.write(claim, executor)
    result(
        model=model_store,
        rows=before - estimator.n_rows_,
        skipped=pending.change.size - pending.change.count,
        total=estimator.n_rows_,
        objective=estimator.objective_,
        seconds=since(began),
    )
