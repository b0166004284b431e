"""Rates and memory of methods on a GPU, against the device's own.

    python workflows/benchmarks/gpu.py [--parts sgpr,memory]

Needs CuPy and the package's mathematics; neither Dask nor Zarr is imported.

- ``product float64``, ``product float32``, ``copy``: operations per second of a matrix product, and
  bytes per second, read and written, of a copy.
- ``sgpr``: one value and gradient of the bound, rows made a block at a time, 4 n m² operations.
- ``memory``: the peak of the device's memory for 2 and for 8 blocks of rows.
- ``lma``: one pass for the value, blocks conditioned on the one before, some windows at a time.
- ``cagp``: one value and gradient of the computation-aware bound, which sees every pair of rows.

``--array-module numpy`` runs the same on the host, for small sizes.  "no" marks what stays behind
what is asked for on an H200.
"""

from collections.abc import Callable
from functools import partial, reduce
from itertools import pairwise

import harness
import numpy as np
from peers import arrays
from peers.arrays import Machine

from daskgp.kernels.weights import Weights
from daskgp.models.actions import cagp
from daskgp.models.markov.lma import LMA
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import add

GEMM_SHARE, GROWTH, LMA_SECONDS, CAGP_SECONDS = 0.5, 1.1, 10.0, 15.0
"""Asked for: a share of the product's rate, a ratio of memory, and seconds."""


def product(machine: Machine, options: harness.Options, dtype: str = "float64") -> dict:
    A, out = (machine.xp.ones((options.gemm, options.gemm), dtype=dtype) for _ in range(2))
    machine.seconds(lambda: machine.xp.matmul(A, A, out=out))
    fewest, _ = machine.seconds(lambda: machine.xp.matmul(A, A, out=out), options.repeats)
    return {"tflops": 2 * options.gemm**3 / fewest / 1e12}


def copy(machine: Machine, options: harness.Options) -> dict:
    A, out = (machine.xp.ones((options.gemm, options.gemm)) for _ in range(2))
    machine.seconds(lambda: machine.xp.copyto(out, A))
    fewest, _ = machine.seconds(lambda: machine.xp.copyto(out, A), options.repeats)
    return {"gb_per_s": 2 * A.nbytes / fewest / 1e9}


def bound(machine: Machine, options: harness.Options, rows: int) -> float:
    """Return SGPR's bound with its whole gradient, rows streamed by block."""
    at, sizes = machine.theta(options.features, options.inducing), (options.block, options.features)
    blocks = partial(machine.blocks, rows, *sizes, options.dtype)
    value, gradient, *_ = arrays.evaluated(SGPR(), at, lambda: ((b, ()) for b in blocks()))
    return value if np.isfinite(gradient).all() else np.nan


def timed(machine: Machine, run: Callable[[int], float], few: int, rows: int) -> dict:
    """Measure one run with so many rows, after one with few: what is made once is there."""
    run(min(few, rows))
    seconds, value = machine.seconds(lambda: run(rows))
    return {"value": value, "run_s": seconds, "ok": bool(np.isfinite(value))}


def sgpr(machine: Machine, options: harness.Options) -> dict:
    found = timed(machine, partial(bound, machine, options), 2 * options.block, options.rows)
    rate = 4.0 * options.rows * options.inducing**2 / found["run_s"] / 1e12
    share = rate / product(machine, options)["tflops"]
    ok = found["ok"] and share >= GEMM_SHARE
    return {**found, "tflops": rate, "gemm_share": share, "ok": ok}


def memory(machine: Machine, options: harness.Options) -> dict:
    """Measure the peak of device memory: that of a block, however many there are."""
    few, many = 2 * options.block, 8 * options.block
    bound(machine, options, few)
    peaks = [machine.peak(partial(bound, machine, options, n)) / 2**20 for n in (few, many)]
    return {"rows": [few, many], "array_mib": peaks, "ok": peaks[1] <= GROWTH * peaks[0]}


def lma(machine: Machine, options: harness.Options) -> dict:
    """Measure one pass for the value of LMA, some windows at a time."""
    model, m, size = LMA(), options.support, options.window
    at = machine.theta(options.features, m, 0.1)

    def run(rows: int) -> float:
        prepared, total = model.prepare(at), None
        blocks = list(machine.blocks(rows, size, options.features, options.dtype))
        windows = [(blocks[0], ()), *((block, (before,)) for before, block in pairwise(blocks))]
        for start in range(0, len(windows), options.together):
            part = model.local_many(prepared, windows[start : start + options.together])
            total = part if total is None else model.combine(total, part)
        return model.objective(prepared, total).value

    found, w = timed(machine, run, 2 * options.together * size, options.lma_rows), 2 * size
    window = w * m**2 + w**2 * m + w**3 / 3 + w**2 * (m + 1) + size * (m + 1) ** 2
    rate = window * options.lma_rows / size / found["run_s"]
    ok = found["ok"] and found["run_s"] <= LMA_SECONDS
    return {**found, "tflops": rate / 1e12, "ok": ok}


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
        points = reduce(add, (model.at_points(f, b, w) for b, f, w in tiles))
        factored = model.factor(at.noise_variance, points)
        sums = reduce(add, (model.at_rows(at, b, f, factored) for b, f, _ in tiles))
        objective = model.objective(factored, sums)
        for block, f, weights in tiles:
            model.pull(at, block, f, [panel], objective.cotangent, weights)
        return objective.value

    found = timed(machine, run, 4_096, options.cagp_rows)
    ok = found["ok"] and found["run_s"] <= CAGP_SECONDS
    return {**found, "pairs_per_s": 2 * options.cagp_rows**2 / found["run_s"], "ok": ok}


PARTS = {f"product {dtype}": partial(product, dtype=dtype) for dtype in arrays.TOLERANCES}
PARTS |= {"copy": copy, "sgpr": sgpr, "memory": memory, "lma": lma, "cagp": computation_aware}


def keys(options: harness.Options) -> harness.Keys:
    arrays.machine_of(options.array_module)
    return harness.runs(options, "array_module", part=options.parts)


def measure(key: dict, options: harness.Options) -> dict:
    return PARTS[key["part"]](arrays.machine_of(key["array_module"]), options)


table = harness.reporting("part array_module", "run_s tflops gb_per_s gemm_share pairs_per_s ok")
SGPR_SIZES = {"rows": (10_000_000, 300), "inducing": (1_024, 20), "block": (131_072, 50)}
LMA_SIZES = {"lma_rows": (1_000_000, 300), "support": (512, 10), "window": (512, 30)}
CAGP_SIZES = {"cagp_rows": (1_800_000, 150), "actions": (512, 10), "cagp_features": 7}
OTHERS = {"together": (16, 4), "features": 8, "dtype": "float64", "cagp_dtype": "float32"}
PRODUCT = {"array_module": "cupy", "gemm": (8_192, 64), "repeats": (5, 1)}
DEFAULTS = PRODUCT | SGPR_SIZES | LMA_SIZES | CAGP_SIZES | OTHERS
harness.command(globals(), parts=PARTS, **DEFAULTS)
