"""The command ``daskgp cross-validate``."""

from __future__ import annotations

from collections.abc import Iterable
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
    names_or_none,
    settings_in,
    store_options,
)
from daskgp.cli.run import command, note, numeric, result
from daskgp.errors import SettingError


@command()
@click.argument("data")
@estimator_options("auto (exact for up to 2,000 rows, else vecchia)")
@column_options("Column to predict, or several: a,b; DATA then is a grid or a table.")
@click.option(
    "--folds",
    metavar="N",
    help="Number of folds; 1 holds out a fifth of the rows, loo each row alone.  [default: 5]",
)
@click.option(
    "--groups",
    metavar="NAME",
    help="Column, such as station: rows with the same value are held out together.",
)
@click.option(
    "--blocks",
    metavar="SIZE",
    help="Hold out blocks of this size: 100km for longitude and latitude, else in the unit "
    "of x and y; x=10,y=20 gives a size for each column; auto, or x,y for auto along "
    "these.",
)
@click.option("--time", metavar="NAME", help="Column along which the past predicts the future.")
@click.option("--max-rows", type=click.IntRange(min=1), help="Maximum number of rows of a fit.")
@click.option("--metrics", metavar="A,B", help="Scores to show.  [default: rmse,mae,nlpd,crps,...]")
@click.option("--predictions", metavar="STORE", help="Also write the predictions of held-out rows.")
@click.option("--report", metavar="FILE", help="Also write a report, as HTML.")
@click.option("--figures", metavar="DIR", help="Folder for figures, as PNG.")
@click.option("--seed", type=int, default=0, help="Seed of the folds.  [default: 0]")
@json_option
@store_options("data", "predictions")
@cluster_options
def cross_validate(
    data: str,
    described: Model,
    columns: dict[str, Any],
    folds: str | None,
    groups: str | None,
    blocks: str | None,
    time: str | None,
    max_rows: int | None,
    metrics: str | None,
    predictions: str | None,
    report: str | None,
    figures: str | None,
    seed: int,
    as_json: bool,
    cluster: Workers,
) -> None:
    """Fit a model to parts of DATA, and score its predictions of the other rows.

    DATA is a dataset store, or with --target any source of `daskgp convert`, such as a csv.
    Without --model nothing is searched: the method is exact for up to 2,000 rows and vecchia for
    more, as in `interpolate`.  The method that the search of `fit` has chosen may be named.  Folds
    are random rows; --groups, --blocks or --time hold out rows that are farther from the others.  A
    column of --groups is not a feature unless --features names it.
    """
    cluster.check()
    from daskgp import plot
    from daskgp.cli import pages
    from daskgp.cli.settings import build_estimator
    from daskgp.data.folds import Wanted
    from daskgp.estimators.cross_validation import validated

    if report is not None:
        pages.refuse(report)
    if figures is not None:
        pages.refuse_figures(figures)
    number = _folds(folds)
    asked = Wanted(1 if isinstance(number, str) else number, _blocks(blocks), groups, time, seed)
    asked.check()
    method = _method(data, columns, described)
    model: Any = build_estimator(*described._replace(model=method), settings_in(columns))
    more: dict[str, Any] = {} if metrics is None else {"metrics": names_or_none(metrics)}
    rows = _rows(data, columns | {name: getattr(model, name) for name in SETTINGS})
    with cluster.executor(model.device):
        found = validated(model, rows, number, asked, max_rows, predictions=predictions, **more)
    if described.model is None and described.config is None:
        note(f"without --model, the method is {method}")
    drawn = [] if figures is None else plot.check(found, figures)
    if report is not None:
        pages.write_cross_validation(report, found, model, data)
    if not as_json:
        also = [f"figures: {', '.join(drawn)}"] if drawn else []
        click.echo("\n\n".join([str(found), *also]))
        return
    targets = {name: own.to_rows() for name, own in found.targets.items()}
    own = {"scheme": found.scheme, "folds": found.to_rows(), "pooled": found.pooled}
    also_targets = {"targets": targets} if targets else {}
    result(**own, **also_targets, predictions=predictions, report=report, figures=drawn)


def _method(data: str, columns: dict[str, Any], described: Model) -> str:
    """Return the method: without a name, or with auto, that of `interpolate` for as many rows."""
    from daskgp.cli.methods import AUTO
    from daskgp.cli.settings import read_config
    from daskgp.maps.kriging import method_for

    config = described.config
    in_file, settings = (None, {}) if config is None else read_config(config)
    name = described.model or in_file or AUTO
    if name != AUTO:
        return name
    found = method_for(_known(data, columns))
    _refuse_search((*settings, *(text.partition("=")[0] for text in described.assignments)), found)
    return found


def _refuse_search(names: Iterable[str], method: str) -> None:
    """Raise SettingError for a setting of AutoGP that the method which stands for it lacks."""
    from inspect import signature

    from daskgp.choose.auto import AutoGP
    from daskgp.estimators import ESTIMATORS

    own = {*signature(AutoGP).parameters} - {*signature(ESTIMATORS[method]).parameters}
    for name in (name.strip() for name in names if name.strip() in own):
        instead = {"time": "give --time in its place", "metric": "name the scores by --metrics"}
        raise SettingError(
            f"{name} is a setting of the search of `daskgp fit`: cross-validate has no search and "
            f"auto is {method} here, so {instead.get(name, 'leave it out')}, or fit first and name "
            "the method that the search has chosen by --model"
        )


def _known(data: str, columns: dict[str, Any]) -> int:
    """Return how many rows have a target."""
    import dask.array as da

    from daskgp.cli.sources import training_rows
    from daskgp.data import open_dataset
    from daskgp.data.convert import sources
    from daskgp.maps.rows import known_in

    if columns["target"] is None:
        training_rows(data, columns)  # which refuses what names columns
        y = open_dataset(data)[1]
        return int((~da.isnan(y.reshape(len(y), -1))).any(axis=1).sum())
    targets = tuple(columns["target"])
    with sources.open_table(data, targets, columns["features"]) as table:
        return known_in(table, targets, data)


def _rows(data: str, columns: dict[str, Any]) -> tuple[Any, Any, dict[str, Any], Any]:
    """Return X and y of a dataset store, or the columns of a source with a target."""
    from daskgp.cli.sources import training_rows
    from daskgp.data import open_dataset
    from daskgp.fit.named import Named

    if columns["target"] is None:
        training_rows(data, columns)  # which refuses what names columns
        return (*open_dataset(data), {}, None)
    return None, None, {}, Named(data, **columns)


def _folds(text: str | None) -> Any:
    """Return the number of folds, or "loo"."""
    if text is None:
        return 5
    number = numeric(text)
    return number if isinstance(number, str) or number != int(number) else int(number)


def _blocks(text: str | None) -> Any:
    """Return the size of blocks, sizes by column, names of columns, or a text."""
    if text is None:
        return None
    if "=" not in text:
        return [name.strip() for name in text.split(",")] if "," in text else numeric(text)
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): numeric(size.strip()) for name, _, size in pairs}
