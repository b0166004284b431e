"""Fit a model to a dataset store and predict another, as the TOML file beside it says.

    daskgp workflow fit_predict --config fit_predict.toml

Prints one line of JSON: what was fitted, what was predicted, and the score where the inputs carry
their targets.  A run that was stopped goes on where it was with --resume.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import dask
import dask.array as da
from common import config_option, connect, new_model, one_line_errors, read_config

import daskgp

NEEDED = {"train", "inputs", "model_store", "output", "model"}


def fitted(config: dict[str, Any], resume: bool) -> Any:
    """Return the model in the store if there is one, else one fitted now and saved."""
    store = config["model_store"]
    if resume and Path(store).exists():
        return daskgp.load(store)
    X, y = daskgp.open_dataset(config["train"])
    model = new_model("the configuration", config)
    model.fit(X, y, checkpoint=f"{store}.checkpoint")
    model.save(store)
    return model


def score(config: dict[str, Any]) -> dict[str, float]:
    """Scores of the predictions where the inputs have targets, else nothing."""
    try:
        _, y = daskgp.open_dataset(config["inputs"])
    except daskgp.errors.StoreError:
        return {}
    mean, variance = (da.from_zarr(config["output"], name) for name in ("mean", "variance"))
    (values,) = dask.compute(daskgp.metrics.summary(y, mean, variance))
    return {name: float(value) for name, value in values.items()}


@click.command()
@config_option
@click.option("--resume", is_flag=True, help="Go on with stores that a stopped run left.")
@one_line_errors
def main(path: Path, resume: bool) -> None:
    """Fit, predict, score."""
    began, config = time.perf_counter(), read_config(path, NEEDED, {"settings"})
    new_model(str(path), config)  # what is wrong with it shows before a cluster starts
    with connect(config):
        model = fitted(config, resume)
        written = model.predict_store(config["inputs"], config["output"], resume=resume)
        result = {
            "model": config["model_store"],
            "kernel": repr(model.kernel_),
            "rows_fitted": model.n_rows_,
            "rows_predicted": written.rows,
            "rows_skipped": written.skipped,
            **score(config),
            "seconds": round(time.perf_counter() - began, 3),
        }
    click.echo(json.dumps(result))


if __name__ == "__main__":
    main()
