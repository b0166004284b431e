"""Helpers of the workflows: their TOML files, clusters, scores and tables."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
import dask
from rich.console import Console
from rich.table import Table

import daskgp

MODELS = {
    "sgpr": daskgp.SGPR,
    "lma": daskgp.LMA,
    "pic": daskgp.PIC,
    "vecchia": daskgp.VecchiaGP,
    "experts": daskgp.ExpertsGP,
    "opticom": daskgp.OptiComGP,
    "cagp": daskgp.CaGP,
    "decoupled": daskgp.DecoupledGP,
    "svgp": daskgp.SVGP,
    "ssgp": daskgp.SparseSpectrumGP,
    "exact": daskgp.ExactGP,
}
CLUSTER = {"scheduler", "workers", "memory_limit"}
SHOWN = ("rmse", "mae", "nlpd", "coverage_95")

config_option = click.option(
    "--config", "path", required=True, type=click.Path(exists=True, path_type=Path)
)


def one_line_errors(main: Callable[..., None]) -> Callable[..., None]:
    """Make a command say what is wrong with its input in one line, and exit with 2."""

    @wraps(main)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            main(*args, **kwargs)
        except daskgp.errors.InputError as error:
            raise click.UsageError(str(error)) from error

    return run


def read_config(path: Path, needed: set[str], optional: set[str]) -> dict[str, Any]:
    """Read the configuration; raise UsageError that names every missing or unknown key."""
    try:
        config = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(f"{path} is no TOML file: {error}") from error
    check_keys(str(path), config, needed, optional | {"cluster"})
    check_keys(f"{path} [cluster]", config.get("cluster", {}), set(), CLUSTER)
    return config


def check_keys(what: str, table: Mapping[str, Any], needed: set[str], optional: set[str]) -> None:
    """Raise UsageError, which names them, for keys that are missing or unknown."""
    unknown, missing = set(table) - needed - optional, needed - set(table)
    if unknown or missing:
        raise click.UsageError(f"{what}: unknown keys {sorted(unknown)}, missing {sorted(missing)}")


def new_model(what: str, table: Mapping[str, Any]) -> Any:
    """Return the unfitted model that ``model`` and ``settings`` of a table describe."""
    name = table["model"]
    if name not in MODELS:
        raise click.UsageError(f"{what}: unknown model {name!r}: {sorted(MODELS)}")
    try:
        return MODELS[name](**table.get("settings", {}))
    except TypeError as error:
        raise click.UsageError(f"{what}: settings of {name}: {error}") from error


def connect(config: Mapping[str, Any]) -> Any:
    """Return the cluster that [cluster] describes, for a ``with`` block."""
    cluster = config.get("cluster", {})
    return daskgp.connect(
        cluster.get("scheduler"),
        n_workers=cluster.get("workers"),
        memory_limit=cluster.get("memory_limit", "auto"),
    )


def scores(model: Any, X: Any, y: Any) -> dict[str, float]:
    """Scores of predictions of new observations, in one pass over the rows."""
    mean, std = model.predict(X, return_std=True, include_noise=True)
    (values,) = dask.compute(daskgp.metrics.summary(y, mean, std**2))
    return {name: float(value) for name, value in values.items()}


def report(title: str, rows: Sequence[Mapping[str, Any]], output: str | None) -> None:
    """Print rows as a table on stderr and as JSON on stdout, and keep the JSON at a path."""
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(v if isinstance(v, str) else f"{v:.4g}" for v in row.values()))
    Console(stderr=True).print(table)
    text = json.dumps(list(rows))
    if output is not None:
        Path(output).write_text(text + "\n")
    click.echo(text)
