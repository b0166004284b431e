"""The command ``daskgp fit``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.methods import AUTO
from daskgp.cli.options import (
    SETTINGS,
    Lock,
    Model,
    cluster_options,
    column_options,
    estimator_options,
    ignore_option,
    lock_options,
    search_options,
    settings_in,
    store_options,
)
from daskgp.cli.run import command, note, result, since

if TYPE_CHECKING:
    from daskgp.data.stores.groups import Group
    from daskgp.data.stores.locks import Claim
    from daskgp.estimators import GaussianProcess

COMPILED = ("vecchia",)
"""Methods whose workers always need compiled code for neighbours."""
SMALL_FILE = 2**18
"""Bytes of a table below which a fit with a method that is named seldom needs workers."""


@command()
@click.argument("data")
@click.argument("model_store", metavar="MODEL")
@estimator_options()
@search_options
@column_options("Column to fit, or several: a,b; DATA then is a grid or a table.")
@click.option("--report", metavar="FILE", help="Also write a report of the fit, as HTML.")
@click.option(
    "--from",
    "start",
    metavar="MODEL",
    help="Model to start training from; without --model its method and settings are taken.",
)
@click.option("--resume", is_flag=True, help="Continue a fit that was stopped.")
@ignore_option
@store_options("data", "start", model="model_store")
@lock_options
@cluster_options
def fit(
    data: str,
    model_store: str,
    described: Model,
    search: dict[str, Any],
    columns: dict[str, Any],
    report: str | None,
    start: str | None,
    resume: bool,
    ignore_errors: bool,
    lock: Lock,
    cluster: Workers,
) -> None:
    """Fit a model to DATA and write it to the new store MODEL.

    DATA is a dataset store, or with --target any source of `daskgp convert`, such as a grid or
    'files*.nc', which is converted inside MODEL while the fit runs.  Without --model the method,
    its kernel and its sizes are chosen by scores of held-out rows, within --time-budget.
    """
    began = time.perf_counter()
    _begin_to_start(cluster, described.model or start, data)
    from daskgp.cli.pages import reporter
    from daskgp.cli.profile import counted
    from daskgp.cli.settings import build_estimator, search_settings
    from daskgp.cli.sources import training_rows
    from daskgp.data.rows import GIVEN
    from daskgp.data.stores import checkpoints, locks, models
    from daskgp.estimators import load_one, save_into

    begun = None if start is None else load_one(start)
    name, searched, of_start = search_settings(described.model, described.config, search, begun)
    estimator = build_estimator(
        *described._replace(model=name), searched | settings_in(columns), of_start
    )
    write_report = reporter(report, resume)
    _refuse_columns(estimator, columns)
    columns |= {name: getattr(estimator, name) for name in SETTINGS}
    training = training_rows(data, columns, ignore_errors)
    more: dict[str, Any] = {}
    if lock.clear_lock and not resume:
        models.refuse_existing(model_store)  # before a lock is cleared in vain
    with locks.hold(model_store, *lock, resume) as claim:
        if resume and models.is_complete(model_store):
            estimator, more = load_one(model_store), {"resumed": False}
            models.forget(model_store)  # a kill may have left it
            remark = "is already complete and left unchanged; data and settings are not compared"
            click.echo(f"model store {model_store} {remark}", err=True)
        else:
            with (
                _reserved(model_store, claim, resume) as group,
                training(models.rows_url(model_store, models.TRAINING)) as (X, y, more),
            ):
                at = checkpoints.Place(f"{model_store.rstrip('/')}/{models.CHECKPOINT}", claim)
                beside = dict.fromkeys(GIVEN, False) if ignore_errors else {}
                much = cluster.chosen or _pays_a_cluster(estimator, X, y, beside)
                with cluster.executor_if(much, estimator.device):
                    estimator._fit(X, y, at, models.rows_url(model_store), beside, start=begun)
                fitted = _best(estimator)
                if columns["target"] is not None:
                    more = _noted(fitted, data, y, more)
                claim.check()
                save_into(fitted._model_to_save(), group, model_store)
    write_report(estimator, model_store, data)
    result(
        model=model_store,
        **{counted(_best(estimator).solved_): estimator.n_rows_},
        objective=estimator.objective_,
        iterations=len(estimator.history_),
        **_choice(_best(estimator)),
        **more,
        seconds=since(began),
    )


def _begin_to_start(cluster: Workers, model: str | None, data: str) -> None:
    """Begin to start a local cluster, unless the size of the file suggests that none is needed.

    The ``model`` is a method, or one to start from.
    """
    cluster.check()
    small = os.path.isfile(data) and os.path.getsize(data) < SMALL_FILE
    if cluster.chosen or model in (None, AUTO) or not small:
        cluster.come(*(["daskgp.models.markov.ready"] if model in COMPILED else []))


def _pays_a_cluster(estimator: Any, X: Any, y: Any, beside: Mapping[str, Any]) -> bool:
    """Return True if a fit is so much work that it pays to start a cluster.

    Where a round is one task, several workers would do no more than this process.
    """
    from daskgp.output import store

    if not hasattr(estimator, "recipe"):  # trials of AutoGP use their time on all cores
        return True
    plan = estimator._plan(X, y, False, beside)
    rounds = 1 if plan.tasks == 1 else estimator.max_iter
    return plan.operations * rounds > store.SMALL


@contextmanager
def _reserved(url: str, claim: Claim, resume: bool) -> Iterator[Group]:
    """Yield the store that a fit fills, and say so if ``--resume`` finds nothing in it."""
    from daskgp.data.stores import models

    with models.reserve(url, claim, resume) as group:
        if resume and models.kept_of(group) is None:
            note(f"model store {url} has nothing to resume: the fit starts anew")
        yield group


def _refuse_columns(estimator: Any, columns: Mapping[str, Any]) -> None:
    """Raise SettingError for a column that the estimator's likelihood does not take."""
    from daskgp.data.rows import COLUMNS
    from daskgp.fit import work

    if hasattr(estimator, "recipe"):  # AutoGP takes all of them
        work.check_columns(estimator.recipe(), [c for c in COLUMNS if columns[c] is not None])


def _best(estimator: Any) -> Any:
    """Return the model that AutoGP has chosen, another one as it is."""
    return getattr(estimator, "best_", estimator)


def _noted(fitted: Any, source: str, y: Any, more: dict[str, int]) -> dict[str, int]:
    """Note in a model the source of its rows; return what the result adds about them."""
    from daskgp.cli.profile import counted
    from daskgp.cli.sources import left_out

    fitted._fitted.seen[-1]["store"] = source
    given = y.size if counted(fitted.solved_) == "values" else len(y)
    return left_out(given, fitted.n_rows_, more)


def _choice(fitted: GaussianProcess) -> dict[str, Any]:
    """Return what was chosen: whether hyper-parameters vary, and what a search has found."""
    from daskgp.cli.profile import plain, varying_of

    varying, board = varying_of(fitted), fitted._board
    known = {} if varying is None else {"varying": plain(varying)}
    if board is None:
        return known
    best, own = board.best, fitted.solved_.likelihood
    return known | {
        "method": best.method,
        "likelihood": "gaussian" if own is None else own.name,
        "kernel": best.kernel,
        "metric": board.metric,
        "score": best.score,
        "scores": best.scores,
        "trials": len(board),
    }
