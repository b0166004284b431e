"""Fit several models to one dataset store and compare them, as the TOML file beside it says.

    daskgp workflow compare_models --config compare_models.toml

A table goes to stderr and the same as JSON to stdout and, if asked for, to a file: seconds of fit
and prediction, and scores on the test store.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from common import (
    SHOWN,
    check_keys,
    config_option,
    connect,
    new_model,
    one_line_errors,
    read_config,
    report,
    scores,
)

import daskgp


def compared(name: str, model: Any, train: Any, test: Any) -> dict[str, Any]:
    """Seconds and scores of one model."""
    began = time.perf_counter()
    model.fit(*train)
    fitted = time.perf_counter()
    found = scores(model, *test)
    return {
        "name": name,
        "fit_s": round(fitted - began, 3),
        "predict_s": round(time.perf_counter() - fitted, 3),
        **{key: found[key] for key in SHOWN},
    }


@click.command()
@config_option
@one_line_errors
def main(path: Path) -> None:
    """Fit and score model by model, on the same rows."""
    config = read_config(path, {"train", "test", "models"}, {"output"})
    if not config["models"]:
        raise click.UsageError(f"{path}: no [models.NAME]: give one or more")
    models = {}
    for name, table in config["models"].items():
        what = f"{path} [models.{name}]"
        check_keys(what, table, {"model"}, {"settings"})
        models[name] = new_model(what, table)
    train, test = (daskgp.open_dataset(config[key]) for key in ("train", "test"))
    with connect(config):
        rows = [compared(name, model, train, test) for name, model in models.items()]
    report(f"Models of {config['train']}", rows, config.get("output"))


if __name__ == "__main__":
    main()
