"""Predict the rows that an input store has gained, as the TOML file beside it says.

    daskgp workflow predict_scheduled --config predict_scheduled.toml

To be repeated by cron or any other scheduler.  Prints one line of JSON; the exit code is 0 when the
predictions are up to date, 1 when the run failed or another is at work, 2 when a person must look.
"""

from __future__ import annotations

import json
import time
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

import daskgp
from daskgp.errors import DaskgpError, InputError

STORES = {"model", "input", "output"}
GRID = {"mask", "variance", "quantiles", "exceedance", "n_samples", "random_state", "verify"}
KEYS: dict[str, dict[str, Any]] = {
    "schedule": {
        **dict.fromkeys(STORES, str),
        "wait": int | float,
        "clear_lock": bool,
        "verify": bool,
        "mask": str,
        "variance": bool,
        "quantiles": list,
        "exceedance": int | float,
        "n_samples": int,
        "random_state": int,
    },
    "cluster": {"scheduler": str, "workers": int, "memory_limit": str},
}


def read_config(path: Path) -> dict[str, Any]:
    """Read the configuration's tables; raise UsageError that names every bad or missing key."""
    try:
        config = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} is not TOML: {error}") from error
    wrong = [name for name in config if name not in KEYS]
    for table, kinds in KEYS.items():
        found = config.setdefault(table, {})
        if not isinstance(found, dict):
            raise click.UsageError(f"{path}: {table} is no table: write [{table}]")
        right = {name for name, value in found.items() if isinstance(value, kinds.get(name, ()))}
        wrong += [f"{table}.{name}" for name in found if name not in right]
    missing = sorted(STORES - set(config["schedule"]))
    if wrong or missing:
        raise click.UsageError(f"{path}: wrong keys {wrong}, missing in [schedule] {missing}")
    return config


def predict(config: dict[str, Any]) -> dict[str, Any]:
    """Predict, and return what was predicted and how fast."""
    began, cluster, options = time.perf_counter(), config["cluster"], dict(config["schedule"])
    stores = {name: options.pop(name) for name in ("model", "input", "output")}
    model = daskgp.load(stores["model"])
    asked = {name: options[name] for name in GRID if name in options}
    where: Any = nullcontext()  # few new rows cost less here than a cluster does to start
    if model.needs_cluster(stores["input"], stores["output"], chosen=bool(cluster), **asked):
        where = daskgp.connect(
            cluster.get("scheduler"),
            n_workers=cluster.get("workers"),
            memory_limit=cluster.get("memory_limit", "auto"),
        )
    with where:
        written = model.predict_store(stores["input"], stores["output"], resume=True, **options)
    seconds = round(time.perf_counter() - began, 3)
    rate = round(written.rows / max(seconds, 1e-3), 1)
    return {**stores, **written._asdict(), "seconds": seconds, "rows_per_second": rate}


@click.command()
@click.option("--config", "path", required=True, type=click.Path(exists=True, path_type=Path))
def main(path: Path) -> None:
    """Bring predictions up to date."""
    try:
        click.echo(json.dumps(predict(read_config(path))))
    except DaskgpError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2 if isinstance(error, InputError) else 1) from error


if __name__ == "__main__":
    main()
