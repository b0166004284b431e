"""Cross-validate a model on rows of a dataset store or a table, as the TOML file beside it says.

    daskgp workflow cross_validate --config cross_validate.toml

A table goes to stderr and the same as JSON to stdout and, if asked for, to a file: the scores of
each fold, their mean and its standard error, as ``daskgp.cross_validate`` returns them, and
those of each of several targets.
"""

from __future__ import annotations

from pathlib import Path

import click
from common import (
    check_keys,
    config_option,
    connect,
    new_model,
    one_line_errors,
    read_config,
    report,
)

import daskgp

FOLDS = {"folds", "blocks", "groups", "time", "max_rows", "metrics", "random_state", "predictions"}
COLUMNS = {"features", "mask", "y_variance", "sample_weight", "trials", "exposure", "offset"}
COLUMNS |= {"lower", "upper"}


@click.command()
@config_option
@one_line_errors
def main(path: Path) -> None:
    """Fit and score fold by fold."""
    columns = {"target", *COLUMNS}
    config = read_config(path, {"data", "model"}, {"settings", "output", *FOLDS, *columns})
    if "target" not in config:
        check_keys(f"{path} without target", config, set(), {*config} - COLUMNS)
    model = new_model(str(path), config)  # what is wrong with it shows before a cluster starts
    asked = {name: value for name, value in config.items() if name in FOLDS | COLUMNS}
    named = "target" in config
    X, y = (config["data"], config["target"]) if named else daskgp.open_dataset(config["data"])
    with connect(config):
        found = daskgp.cross_validate(model, X, y, **asked)
    rows = found.to_rows()
    if found.targets:
        parts = {"all": found, **found.targets}
        rows = [{"target": name, **row} for name, own in parts.items() for row in own.to_rows()]
    report(f"{config['model']} on {config['data']}", rows, config.get("output"))


if __name__ == "__main__":
    main()
