"""Scores of several saved models on several test stores, as the TOML file beside it says.

    daskgp workflow evaluate --config evaluate.toml

A table goes to stderr and the same as JSON to stdout and, if asked for, to a file.
"""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import click
from common import SHOWN, config_option, connect, one_line_errors, read_config, report, scores

import daskgp


@click.command()
@config_option
@one_line_errors
def main(path: Path) -> None:
    """Score every model on every test store, each in one pass."""
    config = read_config(path, {"models", "tests"}, {"output"})
    for key in ("models", "tests"):
        if not config[key]:
            raise click.UsageError(f"{path}: {key} is empty: name one store or more")
    rows = []
    with connect(config):
        models = {url: daskgp.load(url) for url in config["models"]}
        for (name, model), test in product(models.items(), config["tests"]):
            began = time.perf_counter()
            found = scores(model, *daskgp.open_dataset(test))
            seconds = time.perf_counter() - began
            shown = {key: found[key] for key in (*SHOWN, "crps", "n")}
            rows.append({"model": name, "test": test, **shown, "seconds": round(seconds, 3)})
    report("Scores", rows, config.get("output"))


if __name__ == "__main__":
    main()
