"""Rate of SGPR on a GPU against the device's own, and its memory as rows grow.

    python workflows/benchmarks/gpu.py [--parts sgpr,memory]

Needs CuPy and the package's mathematics; neither Dask nor Zarr is imported.

``product float64``, ``product float32``, ``copy``: operations per second of a matrix product, and
bytes per second, read and written, of a copy.  ``sgpr``: one value and gradient of the bound, rows
made a block at a time, 4 n m² operations.  ``memory``: the peak of the device's memory for 2 and
for 8 blocks of rows.  ``--array-module numpy`` runs the same on the host, for small sizes.  What
stays behind what is asked for on an H200 is marked "no".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce

import harness
import numpy as np
from peers import arrays
from peers.arrays import Machine

from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block

GEMM_SHARE, GROWTH = 0.5, 1.1
"""Asked for: a share of the product's rate, and a ratio of memory."""


def product_rate(machine: Machine, options: harness.Options, dtype: str = "float64") -> float:
    A, out = (machine.xp.ones((options.gemm, options.gemm), dtype=dtype) for _ in range(2))
    machine.seconds(lambda: machine.xp.matmul(A, A, out=out))
    fewest, _ = machine.seconds(lambda: machine.xp.matmul(A, A, out=out), options.repeats)
    return 2 * options.gemm**3 / fewest


def product(machine: Machine, options: harness.Options, dtype: str) -> dict:
    return {"tflops": product_rate(machine, options, dtype) / 1e12}


def copy(machine: Machine, options: harness.Options) -> dict:
    A, out = (machine.xp.ones((options.gemm, options.gemm)) for _ in range(2))
    machine.seconds(lambda: machine.xp.copyto(out, A))
    fewest, _ = machine.seconds(lambda: machine.xp.copyto(out, A), options.repeats)
    return {"gb_per_s": 2 * A.nbytes / fewest / 1e9}


def bound(machine: Machine, options: harness.Options, rows: int) -> Callable[[], float]:
    """Return SGPR's bound and its whole gradient as a function, rows streamed by block."""
    model, at = SGPR(), machine.theta(options.features, options.inducing)

    def run() -> float:
        def blocks() -> Iterator[Block]:
            return machine.blocks(rows, options.block, options.features, options.dtype)

        prepared = model.prepare(at)
        total = reduce(model.combine, (model.local(prepared, block) for block in blocks()))
        objective = model.objective(prepared, total)
        gradient = objective.gradient.to_vector(True)
        for block in blocks():
            gradient += model.local_vjp(prepared, block, objective.cotangent).to_vector(True)
        return objective.value if np.isfinite(gradient).all() else np.nan

    return run


def sgpr(machine: Machine, options: harness.Options) -> dict:
    """Measure one value and gradient of SGPR's bound."""
    bound(machine, options, min(options.rows, 2 * options.block))()  # what is made once
    seconds, value = machine.seconds(bound(machine, options, options.rows))
    rate = 4.0 * options.rows * options.inducing**2 / seconds
    share = rate / product_rate(machine, options)
    found = {"value": value, "run_s": seconds, "tflops": rate / 1e12, "gemm_share": share}
    return {**found, "ok": bool(np.isfinite(value)) and share >= GEMM_SHARE}


def memory(machine: Machine, options: harness.Options) -> dict:
    """Measure the peak of device memory: that of a block, however many there are."""
    few, many = 2 * options.block, 8 * options.block
    bound(machine, options, few)()
    peaks = [machine.peak(bound(machine, options, rows)) / 2**20 for rows in (few, many)]
    return {"rows": [few, many], "array_mib": peaks, "ok": peaks[1] <= GROWTH * peaks[0]}


PARTS = {
    "product float64": partial(product, dtype="float64"),
    "product float32": partial(product, dtype="float32"),
    "copy": copy,
    "sgpr": sgpr,
    "memory": memory,
}


def keys(options: harness.Options) -> Iterator[dict]:
    arrays.machine_of(options.array_module)
    for part in options.parts:
        yield {"part": part, "array_module": options.array_module}


def measure(key: dict, options: harness.Options) -> dict:
    """Return what one part takes."""
    return PARTS[key["part"]](arrays.machine_of(key["array_module"]), options)


def table(records: list[dict], options: harness.Options) -> str:
    return harness.report(records, "part array_module", "run_s tflops gb_per_s gemm_share ok")


harness.command(
    globals(),
    parts=PARTS,
    array_module="cupy",
    gemm=(8_192, 64),
    repeats=(5, 1),
    rows=(10_000_000, 300),
    inducing=(1_024, 20),
    features=8,
    block=(131_072, 50),
    dtype="float64",
)
