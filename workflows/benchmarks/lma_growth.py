"""Growth of a whole run of LMA with the rows.

    python workflows/benchmarks/lma_growth.py [--rows 250000,1000000,4000000]

A rough field in random order in a Zarr store, then daskgp's command line with fixed
hyper-parameters: prepare, fit and predict of a tenth as many places, in an order that keeps
neighbours together.  Seconds of whole commands, and the largest sum of resident memory of client
and workers in any of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import datasets
import harness

CHUNK, PLACES_CHUNK = 65_536, 4_096


def keys(options: harness.Options) -> Iterator[dict]:
    for rows in sorted(options.rows):
        yield {"rows": rows, "block": options.block_rows, "support": options.support}


def measure(key: dict, options: harness.Options) -> dict:
    """Return the seconds and memory of the commands."""
    rows = key["rows"]
    settings = {
        "kernel": "matern32(lengthscale=0.2)",
        "optimizer": "none",
        "n_support": min(key["support"], rows // 2),
        "markov_order": options.markov_order,
        "noise_variance": 0.1,
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    cluster = ("--workers", str(options.threads), "--memory-limit", options.memory_limit)
    hilbert = ("--order", "hilbert", "--block-rows")
    with tempfile.TemporaryDirectory() as temporary:
        folder, chunk = Path(temporary), str(min(PLACES_CHUNK, rows // 10))
        datasets.write_drawn(folder / "train.zarr", datasets.rough, rows, 2, CHUNK)
        datasets.write_drawn(folder / "drawn.zarr", datasets.rough, rows // 10, 2, CHUNK)
        harness.daskgp(folder, "prepare", "drawn.zarr", "places.zarr", *hilbert, chunk)
        commands = (
            ("prepare", "train.zarr", "blocks.zarr", *hilbert, str(key["block"])),
            ("fit", "blocks.zarr", "model.zarr", "--model", "lma", *words),
            ("predict", "model.zarr", "places.zarr", "out.zarr"),
        )
        ran = {words[0]: harness.daskgp(folder, *words, *cluster) for words in commands}
    seconds = {f"{name}_s": part.seconds for name, part in ran.items()}
    return {**seconds, "command_mib": max(part.peak_mib for part in ran.values())}


def table(records: list[dict], options: harness.Options) -> str:
    """Return seconds and memory against rows, and how they grow."""
    for record in (r for r in records if "fit_s" in r):
        record["rate"] = record["key"]["rows"] / record["fit_s"]
    numbers = "prepare_s fit_s predict_s rate command_mib"
    shown = harness.report(records, "rows block support", numbers)
    slopes = (
        f"{name} {harness.slope(records, 'rows', f'{name}_s')}" for name in ("fit", "predict")
    )
    return f"{shown}\n\nlog-log slopes of time: {', '.join(slopes)}"


harness.command(
    globals(),
    rows=([250_000, 1_000_000, 4_000_000], [1_000, 3_000]),
    block_rows=(256, 100),
    markov_order=2,
    support=(256, 32),
    memory_limit="2GiB",
)
