"""NumPy and CuPy: where arrays are, rows and hyper-parameters made there, and what they take."""

import importlib
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import click
import datasets
import harness
import numpy as np

from daskgp import kernels
from daskgp.arrays import backend
from daskgp.errors import DaskgpError
from daskgp.models.values import Block, Theta, move

ROWS, BLOCKS, D = 240, 4, 3
TOLERANCES = {"float64": 1e-10, "float32": 1e-4}
"""Largest relative difference from NumPy in float64, by the type of the rows."""


class Machine(NamedTuple):
    """Place of arrays: their module, and "cpu" or "gpu"."""

    xp: Any
    device: str

    def wait(self) -> None:
        """Wait until all work that was asked for is done."""
        if self.device == "gpu":
            self.xp.cuda.get_current_stream().synchronize()

    def seconds(self, function: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
        """Return the fewest seconds of some calls, and the last result."""
        best = float("inf")
        for _ in range(repeats):
            self.wait()
            began = time.perf_counter()
            found = function()
            self.wait()
            best = min(best, time.perf_counter() - began)
        return best, found

    def peak(self, function: Callable[[], Any]) -> int:
        """Return the most bytes of a call: what the device's pool took, or Python's."""
        if self.device == "gpu":
            pool = self.xp.get_default_memory_pool()
            pool.free_all_blocks()
            before = pool.total_bytes()
            function()
            self.wait()
            return pool.total_bytes() - before
        tracemalloc.start()
        function()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    def blocks(self, n: int, size: int, d: int, dtype: str, first: int = 0) -> Iterator[Block]:
        """Yield rows of a low-discrepancy sequence in blocks, made in place."""
        for start in range(first, first + n, size):
            X, y = datasets.sequence(self.xp, start, min(start + size, first + n), d)
            yield Block(X.astype(dtype), y)

    def rows(self, n: int, d: int, dtype: str = "float64", first: int = 0) -> Block:
        """Return some rows of that sequence."""
        return next(self.blocks(n, n, d, dtype, first))

    def theta(self, d: int, inducing: int = 0, lengthscale: float = 0.3) -> Theta:
        """Return Matérn-3/2 with a lengthscale per feature, and inducing inputs if wanted."""
        scales = tuple(lengthscale * (1 + 0.1 * j) for j in range(d))
        Z = HOST.rows(inducing, d, first=10_000_000).X if inducing else None
        return move(Theta(kernels.Matern32(lengthscale=scales), 0.1, Z), self.device)


HOST = Machine(np, "cpu")
Check = Callable[[Machine, str], list]
"""Arrays and numbers of a method, given where and the type of the rows."""


def evaluated(
    model: Any, theta: Theta, windows: Callable[[], Iterable[tuple[Block, Sequence[Block]]]]
) -> tuple[float, np.ndarray, Any, Any]:
    """Return value and gradient of a method that sums summaries, what blocks need, and the sum.

    ``windows`` yields each block with those before it, anew for either pass; there is no Dask.
    """
    prepared = model.prepare(theta)
    total = reduce(model.combine, (model.local(prepared, *window) for window in windows()))
    objective = model.objective(prepared, total)
    gradient = objective.gradient.to_vector(True)
    for block, near in windows() if objective.cotangent is not None else ():
        through = model.local_vjp(prepared, block, objective.cotangent, near)
        gradient = gradient + through.to_vector(True)
    return objective.value, gradient, prepared, total


def machine_of(name: str) -> Machine:
    """Return the machine of an array module; a plain line where there is no GPU."""
    if name == "numpy":
        return HOST
    try:
        backend.resolve_device("gpu")
    except DaskgpError as error:
        raise click.ClickException(str(error)) from error
    return Machine(importlib.import_module("cupy"), "gpu")


def blocks(machine: Machine, dtype: str) -> list[Block]:
    """Return the rows that methods are checked on."""
    return list(machine.blocks(ROWS, ROWS // BLOCKS, D, dtype))


def places(machine: Machine, dtype: str) -> Any:
    """Return the places (40, 3) that they predict."""
    return machine.rows(40, D, dtype, first=5_000).X


def checking(checks: Mapping[str, Check]) -> Callable[[dict, harness.Options], dict]:
    """Return what measures the differences of each check in both types, and says what failed."""

    def measure(key: dict, options: harness.Options) -> dict[str, Any]:
        machine, found = machine_of(key["array_module"]), {}
        for name, check in checks.items():
            wanted = check(HOST, "float64")
            found[name] = {t: distance(check(machine, t), wanted) for t in TOLERANCES}
        worse = [f"{n} ({t})" for n, r in found.items() for t in r if not r[t] <= TOLERANCES[t]]
        failed = {"failed": f"beyond tolerance: {', '.join(worse)}"} if worse else {}
        return {"differences": found, **failed}

    return measure


def distance(found: list, wanted: list) -> float:
    """Return the largest relative difference, by norms, of any array or number."""
    worst = 0.0
    for pair in zip(found, wanted, strict=True):
        here, there = (np.asarray(backend.to_host(a), np.float64) for a in pair)
        if here.size:
            scale = max(np.linalg.norm(there), 1e-300)
            worst = max(worst, float(np.linalg.norm(here - there) / scale))
    return worst


def keys(options: harness.Options) -> Iterator[dict]:
    """Yield the one run of all checks."""
    machine_of(options.array_module)
    yield {"array_module": options.array_module}


def table(records: list[dict], options: harness.Options) -> str:
    """Return a line per check: its name and the differences in both types."""
    found = (record.get("differences", {}) for record in records)
    lines = ([n, *(f"{row[t]:.1e}" for t in TOLERANCES)] for run in found for n, row in run.items())
    return harness.markdown(["", *TOLERANCES], lines)
