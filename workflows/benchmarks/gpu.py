"""Rates and memory of methods on a GPU, against the device's own.

    python workflows/benchmarks/gpu.py [--parts sgpr,memory]

Needs CuPy and the package's mathematics; neither Dask nor Zarr is imported.

- ``product float64``, ``product float32``, ``copy``: operations per second of a matrix product, and
  bytes per second, read and written, of a copy.
- ``sgpr``: one value and gradient of the bound, rows made a block at a time, 4 n m² operations.
- ``memory``: the peak of the device's memory for 2 and for 8 blocks of rows.
- ``lma``: one pass for the value, blocks conditioned on the one before, some windows at a time.
- ``vecchia``, ``vecchia weights``: value, gradient and Fisher information of rows given their
  neighbours, whose windows are factored as stacks; and the weights alone, which a posterior needs.
- ``svgp``: natural steps on batches; the small factors are solved on the host, as in a fit.
- ``cagp``: one value and gradient of the computation-aware bound, which sees every pair of rows.

``--array-module numpy`` runs the same on the host, for small sizes.  "no" marks what stays behind
what is asked for on an H200.
"""

from collections.abc import Callable
from functools import partial

import harness
import numpy as np
from peers import arrays, passes
from peers.arrays import Machine

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


def timed(run: Callable[[int], float], machine: Machine, few: int, rows: int) -> dict:
    """Measure one run with so many rows, after one with few: what is made once is there."""
    run(min(few, rows))
    seconds, value = machine.seconds(lambda: run(rows))
    return {"value": value, "run_s": seconds, "ok": bool(np.isfinite(value))}


def sgpr(machine: Machine, options: harness.Options) -> dict:
    run = partial(passes.sgpr, machine, options)
    found = timed(run, machine, 2 * options.block, options.rows)
    rate = 4.0 * options.rows * options.inducing**2 / found["run_s"] / 1e12
    share = rate / product(machine, options)["tflops"]
    ok = found["ok"] and share >= GEMM_SHARE
    return {**found, "tflops": rate, "gemm_share": share, "ok": ok}


def memory(machine: Machine, options: harness.Options) -> dict:
    """Measure the peak of device memory: that of a block, however many there are."""
    few, many = 2 * options.block, 8 * options.block
    passes.sgpr(machine, options, few)
    run = partial(passes.sgpr, machine, options)
    peaks = [machine.peak(partial(run, n)) / 2**20 for n in (few, many)]
    return {"rows": [few, many], "array_mib": peaks, "ok": peaks[1] <= GROWTH * peaks[0]}


def lma(machine: Machine, options: harness.Options) -> dict:
    size, m = options.window, options.support
    run, w = partial(passes.lma, machine, options), 2 * size
    found = timed(run, machine, 2 * options.together * size, options.lma_rows)
    window = w * m**2 + w**2 * m + w**3 / 3 + w**2 * (m + 1) + size * (m + 1) ** 2
    rate = window * options.lma_rows / size / found["run_s"]
    ok = found["ok"] and found["run_s"] <= LMA_SECONDS
    return {**found, "tflops": rate / 1e12, "ok": ok}


def vecchia(machine: Machine, options: harness.Options, run: Callable = passes.vecchia) -> dict:
    n = options.vecchia_rows
    found = timed(partial(run, machine, options), machine, n, n)
    return {**found, "us_a_row": 1e6 * found["run_s"] / n}


def svgp(machine: Machine, options: harness.Options) -> dict:
    found = timed(partial(passes.svgp, machine, options), machine, 2, options.steps)
    return {**found, "s_a_step": found["run_s"] / options.steps}


def computation_aware(machine: Machine, options: harness.Options) -> dict:
    run = partial(passes.computation_aware, machine, options)
    found = timed(run, machine, 4_096, options.cagp_rows)
    ok = found["ok"] and found["run_s"] <= CAGP_SECONDS
    return {**found, "pairs_per_s": 2 * options.cagp_rows**2 / found["run_s"], "ok": ok}


PARTS = {f"product {dtype}": partial(product, dtype=dtype) for dtype in arrays.TOLERANCES}
PARTS |= {"copy": copy, "sgpr": sgpr, "memory": memory, "lma": lma, "vecchia": vecchia}
PARTS |= {"vecchia weights": partial(vecchia, run=passes.vecchia_weights)}
PARTS |= {"svgp": svgp, "cagp": computation_aware}


def keys(options: harness.Options) -> harness.Keys:
    arrays.machine_of(options.array_module)
    return harness.runs(options, "array_module", part=options.parts)


def measure(key: dict, options: harness.Options) -> dict:
    return PARTS[key["part"]](arrays.machine_of(key["array_module"]), options)


RATES = "tflops gb_per_s gemm_share us_a_row s_a_step pairs_per_s"
table = harness.reporting("part array_module", f"run_s {RATES} ok")
SGPR_SIZES = {"rows": (10_000_000, 300), "inducing": (1_024, 20), "block": (131_072, 50)}
LMA_SIZES = {"lma_rows": (1_000_000, 300), "support": (512, 10), "window": (512, 30)}
VECCHIA_SIZES = {"vecchia_rows": (262_144, 200), "neighbours": (30, 5)}
SVGP_SIZES = {"batch": (1_024, 40), "steps": (20, 3)}
CAGP_SIZES = {"cagp_rows": (1_800_000, 150), "actions": (512, 10), "cagp_features": 7}
OTHERS = {"together": (16, 4), "features": 8, "dtype": "float64", "cagp_dtype": "float32"}
PRODUCT = {"array_module": "cupy", "gemm": (8_192, 64), "repeats": (5, 1)}
SIZES = SGPR_SIZES | LMA_SIZES | VECCHIA_SIZES | SVGP_SIZES | CAGP_SIZES
harness.command(globals(), parts=PARTS, **PRODUCT | SIZES | OTHERS)
