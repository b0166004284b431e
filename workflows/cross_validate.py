"""Cross-validate a model on the rows of a dataset store, as the TOML file beside it says.

    python workflows/cross_validate.py --config workflows/cross_validate.toml

A table goes to stderr and the same as JSON to stdout and, if asked for, to a file: the scores of
each fold and their mean.  Rows stay in the store; each fold writes the rows it trains on to the
``store`` of its settings once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import dask.array as da
import numpy as np
from common import SHOWN, config_option, connect, new_model, plainly, read_config, report, scores

import daskgp


def folds(n: int, count: int, how: str, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the indices of the rows to train on and to test with for each fold, both in order.

    "blocks" leaves out rows that follow one another, which shows how well a model predicts away
    from its data; "random" leaves out rows that have others between them.
    """
    rows = np.arange(n)
    fold = rows * count // n
    if how == "random":
        np.random.default_rng(seed).shuffle(fold)
    for i in range(count):
        yield rows[fold != i], rows[fold == i]


def check(path: Path, config: dict[str, Any], n: int) -> None:
    """Raise UsageError for folds that cannot be made."""
    count, how = config.get("folds", 5), config.get("split", "blocks")
    if not isinstance(count, int) or not 2 <= count <= n:
        raise click.UsageError(f"{path}: folds={count!r}: a whole number from 2 to {n} is needed")
    if how not in ("blocks", "random"):
        raise click.UsageError(f"{path}: split={how!r}: choose 'blocks' or 'random'")


def cross_validated(config: dict[str, Any], X: da.Array, y: da.Array, path: Path) -> list[Any]:
    """Return a row of scores for each fold."""
    split = config.get("folds", 5), config.get("split", "blocks"), config.get("seed", 0)
    rows = []
    for i, (train, test) in enumerate(folds(len(X), *split)):
        began = time.perf_counter()
        model = new_model(str(path), config).fit(X[train], y[train])
        found = scores(model, X[test], y[test])
        shown = {key: found[key] for key in (*SHOWN, "n")}
        seconds = round(time.perf_counter() - began, 3)
        rows.append({"fold": str(i), **shown, "seconds": seconds})
    return rows


@click.command()
@config_option
@plainly
def main(path: Path) -> None:
    """Fit and score fold by fold."""
    config = read_config(path, {"data", "model"}, {"settings", "folds", "split", "seed", "output"})
    new_model(str(path), config)  # what is wrong with it shows before a cluster starts
    X, y = daskgp.open_dataset(config["data"])
    check(path, config, len(X))
    with connect(config):
        rows = cross_validated(config, X, y, path)
    names = [name for name in rows[0] if name != "fold"]
    mean = {name: float(np.mean([row[name] for row in rows])) for name in names}
    title = f"{config['model']} on {config['data']}"
    report(title, [*rows, {"fold": "mean", **mean}], config.get("output"))


if __name__ == "__main__":
    main()
