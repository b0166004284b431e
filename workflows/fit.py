"""Fit a model to a dataset store and save it, as the TOML file beside it says.

    daskgp workflow fit --config fit.toml

Prints one line of JSON: what was fitted and how well it explains its rows.  A fit that was stopped
goes on from its checkpoint when the same command is given again, and ends with the same bits.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from common import config_option, connect, new_model, one_line_errors, read_config

import daskgp


@click.command()
@config_option
@one_line_errors
def main(path: Path) -> None:
    """Fit and save."""
    began = time.perf_counter()
    config = read_config(path, {"data", "output", "model"}, {"settings", "checkpoint"})
    model = new_model(str(path), config)
    if Path(config["output"]).exists():
        raise click.UsageError(f"{config['output']} exists: remove it or name another output")
    with connect(config):
        X, y = daskgp.open_dataset(config["data"])
        model.fit(X, y, checkpoint=config.get("checkpoint"))
        model.save(config["output"])
    result = {
        "model": config["output"],
        "kernel": repr(model.kernel_),
        "noise_variance": float(model.noise_variance_),
        "rows": model.n_rows_,
        "log_marginal_likelihood": model.log_marginal_likelihood(),
        "iterations": model.n_iter_,
        "seconds": round(time.perf_counter() - began, 3),
    }
    click.echo(json.dumps(result))


if __name__ == "__main__":
    main()
