"""The command ``daskgp score``."""

from __future__ import annotations

import time
from typing import Any

import click

from daskgp.cli.cluster import Workers
from daskgp.cli.options import cluster_options, column_options, device_option, store_options
from daskgp.cli.run import command, result, since
from daskgp.errors import SettingError
from daskgp.typing import Device

TARGET = "Column of a grid or a table to compare with, or several: a,b.  [default: of MODEL]"


@command()
@click.argument("model_store", metavar="MODEL")
@click.argument("test")
@column_options(TARGET)
@device_option
@store_options("test", model="model_store")
@cluster_options
def score(
    model_store: str,
    test: str,
    columns: dict[str, Any],
    device: Device | None,
    cluster: Workers,
) -> None:
    """Score the predictions of MODEL on TEST: one line of JSON.

    TEST is a dataset store or any source of `daskgp convert`, from which the features and targets
    of MODEL are taken by default.  MODEL may be a saved GPClassifier or HurdleGP.
    """
    from daskgp.assess.scores import scores
    from daskgp.cli.sources import left_out, rows_to_compare
    from daskgp.estimators import GaussianProcess, load
    from daskgp.fit.scratch import scratch_rows

    began = time.perf_counter()
    cluster.check()
    model: Any = load(model_store, device)
    _refuse_labels(model_store, model)
    estimator = model if isinstance(model, GaussianProcess) else model.parts_[0]
    rows = rows_to_compare(estimator, test, columns)
    posterior = estimator.solved_
    with (
        scratch_rows(estimator.store) as url,
        rows(url) as (X, y, more),
        cluster.executor(posterior.device) as executor,
    ):
        if model is estimator:
            figures = scores(posterior, X, y, executor, estimator.fill_values)
        else:
            figures = model.scores(X, y)
        more = left_out(y.size, figures["n"], more)
    result(**figures, **more, seconds=since(began))


def _refuse_labels(model_store: str, model: Any) -> None:
    """Raise SettingError for a classifier of text, as rows of a store or a source hold numbers."""
    labels = getattr(model, "classes_", None)
    if labels is not None and labels.dtype.kind not in "biuf":
        raise SettingError(
            f"the classes of {model_store} are text, such as {labels[0]}, and targets of TEST are "
            "numbers: score it in Python, by daskgp.load(MODEL).scores(X, y)"
        )
