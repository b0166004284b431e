"""Fit a model to a dataset store and predict another, as the TOML file beside it says.

    python workflows/fit_predict.py --config workflows/fit_predict.toml

Prints one line of JSON: what was fitted, what was predicted, and the score where the inputs carry
their targets.  A run that was stopped goes on where it was with --resume.
"""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path
from typing import Any

import click
import dask
import dask.array as da

import daskgp

MODELS = {
    "sgpr": daskgp.SGPR,
    "lma": daskgp.LMA,
    "pic": daskgp.PIC,
    "experts": daskgp.ExpertsGP,
    "opticom": daskgp.OptiComGP,
    "cagp": daskgp.CaGP,
    "decoupled": daskgp.DecoupledGP,
    "svgp": daskgp.SVGP,
    "ssgp": daskgp.SparseSpectrumGP,
    "exact": daskgp.ExactGP,
}
KEYS = {"train", "inputs", "model_store", "output", "model", "settings", "cluster"}


def read_config(path: Path) -> dict[str, Any]:
    """The configuration, with every missing or unknown key named."""
    config = tomllib.loads(path.read_text())
    unknown, missing = set(config) - KEYS, KEYS - set(config) - {"settings", "cluster"}
    if unknown or missing:
        raise click.UsageError(f"{path}: unknown keys {sorted(unknown)}, missing {sorted(missing)}")
    if config["model"] not in MODELS:
        raise click.UsageError(f"{path}: unknown model {config['model']!r}: {sorted(MODELS)}")
    return config


def fitted(config: dict[str, Any], resume: bool) -> Any:
    """The model in the store if it is there, else one fitted now and saved."""
    store = config["model_store"]
    if resume and Path(store).exists():
        return daskgp.load(store)
    X, y = daskgp.open_dataset(config["train"])
    model = MODELS[config["model"]](**config.get("settings", {}))
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
@click.option("--config", "path", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--resume", is_flag=True, help="Go on with stores that a stopped run left.")
def main(path: Path, resume: bool) -> None:
    """Fit, predict, score."""
    began, config = time.perf_counter(), read_config(path)
    cluster = config.get("cluster", {})
    with daskgp.connect(
        cluster.get("scheduler"),
        n_workers=cluster.get("workers"),
        memory_limit=cluster.get("memory_limit", "auto"),
    ):
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
