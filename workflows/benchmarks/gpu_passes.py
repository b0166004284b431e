"""Seconds of LMA and of the computation-aware GP on a GPU.

    python workflows/benchmarks/gpu_passes.py [--parts lma]

As ``gpu.py`` for SGPR.  ``lma``: one pass for the value, blocks conditioned on the one before, some
windows at a time.  ``cagp``: one value and gradient of the bound, which sees every pair of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise

import harness
import numpy as np
from peers import arrays
from peers.arrays import Machine

from daskgp.kernels.weights import Weights
from daskgp.models.actions import cagp
from daskgp.models.markov.lma import LMA

LMA_SECONDS, CAGP_SECONDS = 10.0, 15.0
"""Asked for on an H200."""


def lma(machine: Machine, options: harness.Options) -> dict:
    """Measure one pass for the value of LMA, some windows at a time."""
    model, at, size = LMA(), machine.theta(options.features, options.support, 0.1), options.block

    def run(rows: int) -> float:
        prepared, total = model.prepare(at), None
        blocks = list(machine.blocks(rows, size, options.features, options.dtype))
        windows = [(blocks[0], ()), *((block, (before,)) for before, block in pairwise(blocks))]
        for start in range(0, len(windows), options.together):
            part = model.local_many(prepared, windows[start : start + options.together])
            total = part if total is None else model.combine(total, part)
        return model.objective(prepared, total).value

    run(min(options.rows, 2 * options.together * size))
    seconds, value = machine.seconds(lambda: run(options.rows))
    w, m = 2 * size, options.support
    window = w * m**2 + w**2 * m + w**3 / 3 + w**2 * (m + 1) + size * (m + 1) ** 2
    rate = window * options.rows / size / seconds
    ok = bool(np.isfinite(value)) and seconds <= LMA_SECONDS
    return {"value": value, "run_s": seconds, "tflops": rate / 1e12, "ok": ok}


def computation_aware(machine: Machine, options: harness.Options) -> dict:
    """Measure one value and gradient of the computation-aware bound, all rows its points."""
    d, dtype, model = options.cagp_features, options.cagp_dtype, cagp.CaGP()
    at, tile = machine.theta(d), cagp.TILE_ROWS * (8 if machine.device == "gpu" else 1)

    def run(n: int) -> float:
        t, values = min(options.actions, n), machine.xp.ones(n)
        owner, blocks = np.arange(n) * t // n, list(machine.blocks(n, tile, d, dtype))
        edges = np.cumsum([0, *(len(block.X) for block in blocks)]).tolist()
        own = [Weights(values[a:b], owner[a:b], t) for a, b in pairwise(edges)]
        X = machine.xp.concatenate([block.X for block in blocks])
        panel = cagp.Panel(X, Weights(values, owner, t))
        F = [cagp.functions(at.kernel, [panel], block.X) for block in blocks]
        tiles = list(zip(blocks, F, own, strict=True))
        points = reduce(model.combine, (model.at_points(f, b.y, w) for b, f, w in tiles))
        factored = model.factor(at.noise_variance, points)
        sums = reduce(model.combine, (model.at_rows(at, b, f, factored) for b, f, _ in tiles))
        objective = model.objective(factored, sums)
        for block, f, weights in tiles:
            model.pull(at, block, f, [panel], objective.cotangent, weights)
        return objective.value

    run(min(options.cagp_rows, 4_096))
    seconds, value = machine.seconds(lambda: run(options.cagp_rows))
    ok = bool(np.isfinite(value)) and seconds <= CAGP_SECONDS
    pairs = 2 * options.cagp_rows**2 / seconds
    return {"value": value, "run_s": seconds, "pairs_per_s": pairs, "ok": ok}


PARTS = {"lma": lma, "cagp": computation_aware}


def keys(options: harness.Options) -> Iterator[dict]:
    arrays.machine_of(options.array_module)
    for part in options.parts:
        yield {"part": part, "array_module": options.array_module}


def measure(key: dict, options: harness.Options) -> dict:
    """Return what one part takes."""
    return PARTS[key["part"]](arrays.machine_of(key["array_module"]), options)


def table(records: list[dict], options: harness.Options) -> str:
    return harness.report(records, "part array_module", "run_s tflops pairs_per_s ok")


harness.command(
    globals(),
    parts=PARTS,
    array_module="cupy",
    rows=(1_000_000, 300),
    support=(512, 10),
    block=(512, 30),
    together=(16, 4),
    features=8,
    dtype="float64",
    cagp_rows=(1_800_000, 150),
    actions=(512, 10),
    cagp_features=7,
    cagp_dtype="float32",
)
