"""The command ``daskgp cross-validate``."""

from __future__ import annotations

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

USUAL = "vecchia"
"""Method without ``--model``."""


@command()
@click.argument("data")
@estimator_options
@column_options("Column to predict, or several: a,b; DATA then is a grid or a table.")
@click.option(
    "--folds",
    metavar="N",
    help="Number of folds; 1 holds out a fifth of the rows; loo each row.  [default: 5]",
)
@click.option(
    "--groups", metavar="NAME", help="Column whose rows of a value are held out together: station."
)
@click.option(
    "--blocks",
    metavar="SIZE",
    help="Hold out blocks of a size in the units of the features, or in km on the sphere; of each "
    "column apart, x=10,y=20; or auto.",
)
@click.option("--time", metavar="NAME", help="Column along which the past predicts the future.")
@click.option("--max-rows", type=click.IntRange(min=1), help="Most rows that a fit is given.")
@click.option("--metrics", metavar="A,B", help="Scores.  [default: rmse,mae,nlpd,crps,...]")
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

    DATA is a dataset store; or, with --target, any source of `daskgp convert`, such as a csv.
    Folds are random rows unless --groups, --blocks or --time say how far from the others held-out
    rows are to lie.  A column of --groups is no feature unless --features has it.
    """
    cluster.check()
    from daskgp import plot
    from daskgp.choose.auto import AutoGP
    from daskgp.cli import pages
    from daskgp.cli.settings import build_estimator
    from daskgp.data.folds import Wanted
    from daskgp.estimators.cross_validation import validated

    if report is not None:
        pages.refuse(report)
    if figures is not None:
        pages.refuse_figures(figures)
    model = build_estimator(*described, settings_in(columns))
    if isinstance(model, AutoGP):
        if described.model is not None or described.config is not None:
            raise SettingError(
                "model 'auto' chooses by folds of its own: name the method to cross-validate, such "
                f"as --model {USUAL}"
            )
        model = build_estimator(*described._replace(model=USUAL), settings_in(columns))
    number = _folds(folds)
    asked = Wanted(1 if isinstance(number, str) else number, _blocks(blocks), groups, time, seed)
    more: dict[str, Any] = {} if metrics is None else {"metrics": names_or_none(metrics)}
    rows = _rows(data, columns | {name: getattr(model, name) for name in SETTINGS})
    with cluster.executor(model.device):
        found = validated(model, rows, number, asked, max_rows, predictions=predictions, **more)
    if described.model is None and described.config is None:
        note(f"without --model, the method is {USUAL}")
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
    """Return the size of blocks, sizes by column, or "auto"."""
    if text is None or "=" not in text:
        return None if text is None else numeric(text)
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): numeric(size.strip()) for name, _, size in pairs}
