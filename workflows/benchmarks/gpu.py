"""The methods on a GPU: their numbers against NumPy's, and their rates against the device's own.

    python workflows/benchmarks/gpu.py [--only check] [--only sgpr] [--json]

Needs CuPy and the package's mathematics; neither Dask nor Zarr is imported.

``check``: every method's sums, value, gradient and predictions against NumPy's in float64, for rows
in float64 and in float32: the largest relative difference of any of them, by norms.
``ceilings``: operations a second of a matrix product, and bytes a second of a copy.
``sgpr``: one value and gradient of the bound, rows made a block at a time; 4 n m² operations.
``lma``: one pass for the value, blocks conditioned on the one before.
``cagp``: one value and gradient of the bound, which sees every pair of rows.
``memory``: the peak of the device's memory as rows grow and their blocks do not.

``--array-module numpy`` runs the same on the host, for small sizes.  The exit code tells of checks
that failed; rates that stay behind what is asked for on an H200 are marked ``ok False`` alone.
"""

from __future__ import annotations

import importlib
import itertools
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import click
import numpy as np

from daskgp import kernels, likelihoods
from daskgp.arrays import backend
from daskgp.errors import DaskgpError
from daskgp.kernels.weights import Weights
from daskgp.models.actions import cagp
from daskgp.models.actions.cagp import CaGP, Panel
from daskgp.models.exact import Exact, Rows
from daskgp.models.experts import inner_products
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.models.markov.lma import LMA
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.sparse.ssgp import SparseSpectrum
from daskgp.models.values import Block, Theta, move
from daskgp.models.variational.decoupled import Decoupled, Draw
from daskgp.models.variational.parameters import Parameters

TOLERANCES = {"float64": 1e-10, "float32": 1e-4}
"""Largest relative difference from NumPy in float64, by the type of the rows."""
GEMM_SHARE, LMA_SECONDS, CAGP_SECONDS, GROWTH = 0.5, 10.0, 15.0, 1.1
"""What is asked for: a share of the product's rate, seconds, and a ratio of memory."""
NOISE = 0.1
FEATURES = 3


class Machine(NamedTuple):
    """Where arrays are: their module, and "cpu" or "gpu"."""

    xp: Any
    device: str

    def wait(self) -> None:
        """Until all work that was asked for is done."""
        if self.device == "gpu":
            self.xp.cuda.get_current_stream().synchronize()

    def seconds(self, function: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
        """Fewest seconds of a few calls, and the last result."""
        best = float("inf")
        for _ in range(repeats):
            self.wait()
            began = time.perf_counter()
            found = function()
            self.wait()
            best = min(best, time.perf_counter() - began)
        return best, found

    def peak(self, function: Callable[[], Any]) -> int:
        """Most bytes that a call has at a time: what the device's pool took, or Python's."""
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


def machine_of(name: str) -> Machine:
    """The array module by its name; a plain line where there is no GPU."""
    if name == "numpy":
        return Machine(np, "cpu")
    try:
        backend.resolve_device("gpu")
    except DaskgpError as error:
        raise click.ClickException(str(error)) from error
    return Machine(importlib.import_module("cupy"), "gpu")


# -- rows that need no storing ---------------------------------------------------------------


def rows_of(machine: Machine, start: int, stop: int, d: int, dtype: str) -> Block:
    """Rows of a low-discrepancy sequence and a smooth noisy function of them, made in place."""
    xp = machine.xp
    i = xp.arange(start + 1, stop + 1, dtype=np.float64)[:, None]
    steps = xp.asarray(np.modf(np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0][:d]))[0])
    X = i * steps
    X -= X.astype(np.int64)  # X is positive: this is its fraction
    noise = xp.sin(12.9898 * i) * 43758.5453
    y = xp.sin(6 * X.sum(axis=1, keepdims=True)) + 0.3 * xp.sin(noise)
    return Block(X.astype(dtype), y)


def blocks_of(machine: Machine, n: int, size: int, d: int, dtype: str) -> Iterator[Block]:
    """All rows, block after block."""
    for start in range(0, n, size):
        yield rows_of(machine, start, min(start + size, n), d, dtype)


def theta_of(machine: Machine, m: int, d: int, lengthscale: float = 0.3) -> Theta:
    """Matérn-3/2 with a lengthscale a feature, and inducing inputs if m > 0."""
    Z = rows_of(Machine(np, "cpu"), 10_000_000, 10_000_000 + m, d, "float64").X if m else None
    kernel = kernels.Matern32(lengthscale=tuple(lengthscale * (1 + 0.1 * j) for j in range(d)))
    return move(Theta(kernel, NOISE, Z), machine.device)


# -- check -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Held:
    """Experts' rows, as predictions of a method that reads them back want them."""

    model: Any
    theta: Theta
    state: Any
    blocks: Sequence[Block]

    def __len__(self) -> int:
        return len(self.blocks)

    def rows(self, i: int) -> Block:
        """Rows of expert i."""
        return self.blocks[i]

    def conditioned(self, *experts: int) -> Any:
        """What the method made of the rows of some experts together."""
        return self.model.condition(self.theta, self.state, [self.blocks[i] for i in experts])


ROWS, PLACES, INDUCING, BLOCKS = 240, 40, 24, 4


def checked_blocks(machine: Machine, dtype: str) -> list[Block]:
    return list(blocks_of(machine, ROWS, ROWS // BLOCKS, FEATURES, dtype))


def places_of(machine: Machine, dtype: str) -> Any:
    return rows_of(machine, 5_000, 5_000 + PLACES, FEATURES, dtype).X


def reduced(model: Any, inputs: int) -> Callable[[Machine, str], list]:
    """Value, gradient and predictions of a method that sums summaries of blocks."""

    def found(machine: Machine, dtype: str) -> list:
        theta, blocks = theta_of(machine, inputs, FEATURES), checked_blocks(machine, dtype)
        if isinstance(model, OptiCom):
            points = sparse_grid.build(FEATURES, model.level).points
            theta = Theta(theta.kernel, NOISE, machine.xp.asarray(points))
        prepared = model.prepare(theta)
        reach = getattr(model, "markov_order", 0)
        near = [tuple(blocks[max(i - reach, 0) : i]) for i in range(len(blocks))]
        parts = [model.local(prepared, block, few) for block, few in zip(blocks, near, strict=True)]
        total = reduce(model.combine, parts)
        objective = model.objective(prepared, total)
        gradient = objective.gradient.to_vector(True)
        for block, few in zip(blocks, near, strict=True):
            if objective.cotangent is not None:
                through = model.local_vjp(prepared, block, objective.cotangent, few)
                gradient = gradient + through.to_vector(True)
        state = model.solve(prepared, total)
        read = model.condition(theta, state, blocks) if model.keeps_rows else None
        X = places_of(machine, dtype)
        moments = [
            model.predict(theta, state, X, read, want)[:3]
            for want in ("mean", "variance", "covariance")
        ]
        return [objective.value, gradient, *(a for m in moments for a in m if a is not None)]

    return found


def combined(model: Any, inputs: int) -> Callable[[Machine, str], list]:
    """Values of experts, weights and predictions of a method that combines experts."""

    def found(machine: Machine, dtype: str) -> list:
        theta, blocks = theta_of(machine, inputs, FEATURES), checked_blocks(machine, dtype)
        prepared = model.prepare(theta)
        each = [move(model.summarise(prepared, [block]), "cpu") for block in blocks]
        cross = None
        if model.needs_cross:
            weights = [machine.xp.asarray(e.weights) for e in each]
            functions = list(zip([block.X for block in blocks], weights, strict=True))
            sums = [
                inner_products.cross_sums(theta.kernel, block, alpha, i, functions, len(blocks))
                for i, (block, (_, alpha)) in enumerate(zip(blocks, functions, strict=True))
            ]
            cross = reduce(inner_products.combine, sums)
        host = move(prepared, "cpu")
        state = move(model.solve(host, each, cross), machine.device)
        read = Held(model, theta, state, blocks) if model.keeps_rows else None
        moments = model.predict(theta, state, places_of(machine, dtype), read, "variance")
        return [*(e.value for e in each), moments.mean, moments.variance]

    return found


def windows_together(machine: Machine, dtype: str) -> list:
    """Value and gradient of LMA with windows side by side, their factors kept or made again."""
    model, theta = LMA(jitter=1e-6), theta_of(machine, INDUCING, FEATURES)
    prepared, blocks = model.prepare(theta), checked_blocks(machine, dtype)
    windows = [(block, tuple(blocks[i + 1 : i + 2])) for i, block in enumerate(blocks)]
    total, kept = model.local_and_windows(prepared, windows)
    objective = model.objective(prepared, total)
    gradients = [
        model.local_vjp_many(prepared, windows, objective.cotangent, own).to_vector(True)
        for own in (kept, None)
    ]
    return [objective.value, *gradients]


def experts_together(machine: Machine, dtype: str) -> list:
    """Objectives, gradients and weights of exact experts side by side."""
    theta, blocks = theta_of(machine, 0, FEATURES), checked_blocks(machine, dtype)
    blocks.append(Block(blocks[0].X[1:], blocks[0].y[1:]))  # of another size
    objectives = Exact().objective_many(theta, [Rows(*block) for block in blocks])
    each = ExactExperts(len(blocks)).summarise_many(theta, [[block] for block in blocks])
    gradients = [found.gradient.to_vector(False) for found in objectives]
    return [*(f.value for f in objectives), *gradients, *(a for one in each for a in one)]


def projected(loss: cagp.LossName, dense: bool) -> Callable[[Machine, str], list]:
    """Value, gradient and predictions of the computation-aware GP."""

    def found(machine: Machine, dtype: str) -> list:
        theta, t, d = theta_of(machine, 0, FEATURES), 12, FEATURES
        block = rows_of(machine, 0, ROWS, d, dtype)
        values = np.random.default_rng(1).standard_normal(ROWS * (t if dense else 1))
        owner = None if dense else np.arange(ROWS) * t // ROWS
        weights = Weights(
            machine.xp.asarray(values.reshape(ROWS, t) if dense else values), owner, t
        )
        run = passes(CaGP(loss), theta, [block], weights)
        X, panels = places_of(machine, dtype), [Panel(block.X, weights)]
        moments = run.model.predict(theta, run.state(ROWS), X, panels, "variance")
        return [run.value, run.kernel, run.weights, moments.mean, moments.variance]

    return found


def decoupled(likelihood: str) -> Callable[[Machine, str], list]:
    """A step's bound and gradient, and predictions, of the decoupled GP."""

    def found(machine: Machine, dtype: str) -> list:
        rng, d, m, b = np.random.default_rng(0), FEATURES, 16, 10
        kernel = theta_of(machine, 0, d).kernel
        none = np.zeros((0, d))
        own = Parameters(
            kernel.log_parameters,
            likelihoods.by_name(likelihood).log_parameters,
            rows_of(Machine(np, "cpu"), 9_000, 9_000 + b, d, "float64").X,
            none,
            rows_of(Machine(np, "cpu"), 8_000, 8_000 + m, d, "float64").X,
            none,
            *(0.3 * rng.standard_normal((k, 1)) for k in (m, b)),
            np.tril(0.1 * rng.standard_normal((b, b))) + np.eye(b),
        )
        model = Decoupled(likelihood=likelihood, jitter=1e-6)
        host = model.prepare(kernel, own, np.zeros(1), dtype)
        X, y = rows_of(machine, 0, ROWS, d, dtype)
        if likelihood != "gaussian":
            y = (y > 0).astype(np.float64)
        prepared = move(host, machine.device)
        sums = move(model.local(prepared, Block(X, y), Draw(2.0, np.arange(m), 1.0)), "cpu")
        bound = model.bound(host, sums)
        state = move(model.solve(host), machine.device)
        at = places_of(machine, dtype)
        moments = model.predict(Theta(kernel, 1.0), state, at, None, "variance")
        return [bound.value, *bound.gradient, moments.mean, moments.variance]

    return found


RULES = ("poe", "gpoe", "bcm", "rbcm", "grbcm", "npae", "optimal")
CHECKS: dict[str, Callable[[Machine, str], list]] = {
    "sgpr": reduced(SGPR(1e-6, tile_rows=50), INDUCING),
    "exact": reduced(Exact(), 0),
    "ssgp": reduced(SparseSpectrum(tile_rows=50), INDUCING),
    "opticom": reduced(OptiCom(3, jitter=1e-6), 0),
    "pic": reduced(LMA(markov_order=0, jitter=1e-6), INDUCING),
    "lma": reduced(LMA(jitter=1e-6), INDUCING),
    "lma, paper": reduced(LMA(prediction="paper", jitter=1e-6), INDUCING),
    "lma, side by side": windows_together,
    "exact experts, side by side": experts_together,
    **{f"exact experts, {rule}": combined(ExactExperts(BLOCKS, rule), 0) for rule in RULES},
    **{
        f"sparse experts, {rule}": combined(SparseExperts(BLOCKS, rule, jitter=1e-6), INDUCING)
        for rule in RULES
    },
    "cagp": projected("elbo", dense=False),
    "cagp, dense": projected("elbo", dense=True),
    "cagp, projected": projected("projected", dense=False),
    **{f"decoupled, {name}": decoupled(name) for name in likelihoods.NAMES},
}


def distance(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Largest relative difference, by norms, of any array or number."""
    worst = 0.0
    for f, w in zip(found, wanted, strict=True):
        here, there = (np.asarray(backend.to_host(a), np.float64) for a in (f, w))
        if not here.size:
            continue
        worst = max(worst, float(np.linalg.norm(here - there) / max(np.linalg.norm(there), 1e-300)))
    return worst


def check(machine: Machine, _: Settings) -> Iterator[dict]:
    """Each method in both types against NumPy in float64."""
    for name, function in CHECKS.items():
        wanted = function(Machine(np, "cpu"), "float64")
        for dtype, tolerance in TOLERANCES.items():
            worst = distance(function(machine, dtype), wanted)
            ok = bool(worst <= tolerance)
            yield {"check": name, "dtype": dtype, "difference": worst, "ok": ok}


# -- rates -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """Sizes of the measured problems."""

    gemm: int
    repeats: int
    rows: int
    inducing: int
    features: int
    block: int
    dtype: str
    lma_rows: int
    support: int
    lma_block: int
    lma_together: int
    cagp_rows: int
    actions: int
    cagp_features: int
    cagp_dtype: str


def gemm_rate(machine: Machine, size: int, dtype: str, repeats: int) -> float:
    """Operations a second of a square matrix product."""
    A = machine.xp.ones((size, size), dtype=dtype)
    out = machine.xp.empty((size, size), dtype=dtype)
    machine.seconds(lambda: machine.xp.matmul(A, A, out=out))
    return 2 * size**3 / machine.seconds(lambda: machine.xp.matmul(A, A, out=out), repeats)[0]


def copy_rate(machine: Machine, size: int, repeats: int) -> float:
    """Bytes a second, read and written, of a copy."""
    A = machine.xp.ones((size, size), dtype=np.float64)
    out = machine.xp.empty((size, size), dtype=np.float64)
    machine.seconds(lambda: machine.xp.copyto(out, A))
    return 2 * A.nbytes / machine.seconds(lambda: machine.xp.copyto(out, A), repeats)[0]


def ceilings(machine: Machine, s: Settings) -> Iterator[dict]:
    """What the device itself reaches."""
    for dtype in ("float64", "float32"):
        rate = gemm_rate(machine, s.gemm, dtype, s.repeats)
        yield {"ceiling": "gemm", "dtype": dtype, "tflops": rate / 1e12}
    yield {"ceiling": "copy", "gb_a_second": copy_rate(machine, s.gemm, s.repeats) / 1e9}


def bound_of(machine: Machine, s: Settings, rows: int) -> Callable[[], tuple[float, np.ndarray]]:
    """SGPR's bound and its whole gradient, rows streamed by block."""
    model, theta = SGPR(), theta_of(machine, s.inducing, s.features)

    def run() -> tuple[float, np.ndarray]:
        def blocks() -> Iterator[Block]:
            return blocks_of(machine, rows, s.block, s.features, s.dtype)

        prepared = model.prepare(theta)
        total = reduce(model.combine, (model.local(prepared, block) for block in blocks()))
        objective = model.objective(prepared, total)
        gradient = objective.gradient.to_vector(True)
        for block in blocks():
            gradient += model.local_vjp(prepared, block, objective.cotangent).to_vector(True)
        return objective.value, gradient

    return run


def sgpr(machine: Machine, s: Settings) -> Iterator[dict]:
    """One value and gradient of SGPR's bound."""
    run = bound_of(machine, s, s.rows)
    bound_of(machine, s, min(s.rows, 2 * s.block))()  # what is made once
    seconds, (value, gradient) = machine.seconds(run)
    operations, rate = (
        4.0 * s.rows * s.inducing**2,
        gemm_rate(machine, s.gemm, "float64", s.repeats),
    )
    share = operations / seconds / rate
    yield {
        "method": "sgpr",
        "rows": s.rows,
        "inducing": s.inducing,
        "dtype": s.dtype,
        "value": value,
        "gradient_norm": float(np.linalg.norm(gradient)),
        "seconds": seconds,
        "tflops": operations / seconds / 1e12,
        "gemm_share": share,
        "wanted_share": GEMM_SHARE,
        "ok": bool(np.isfinite(value)) and share >= GEMM_SHARE,
    }


def lma(machine: Machine, s: Settings) -> Iterator[dict]:
    """One pass for the value of LMA, some windows at a time."""
    model, theta = LMA(), theta_of(machine, s.support, s.features, 0.1)

    def run(rows: int) -> float:
        prepared, total = model.prepare(theta), None
        before: tuple[Block, ...] = ()
        windows: list[tuple[Block, tuple[Block, ...]]] = []

        def add(total: Any) -> Any:
            found = model.local_many(prepared, windows)
            windows.clear()
            return found if total is None else model.combine(total, found)

        for block in blocks_of(machine, rows, s.lma_block, s.features, s.dtype):
            windows.append((block, before))
            before = (block,)
            if len(windows) == s.lma_together:
                total = add(total)
        if windows:
            total = add(total)
        return model.objective(prepared, total).value

    run(min(s.lma_rows, 2 * s.lma_together * s.lma_block))
    seconds, value = machine.seconds(lambda: run(s.lma_rows))
    w, m = 2 * s.lma_block, s.support
    window = w * m**2 + w**2 * m + w**3 / 3 + w**2 * (m + 1) + s.lma_block * (m + 1) ** 2
    operations = window * s.lma_rows / s.lma_block
    yield {
        "method": "lma",
        "rows": s.lma_rows,
        "support": m,
        "block": s.lma_block,
        "dtype": s.dtype,
        "value": value,
        "seconds": seconds,
        "tflops": operations / seconds / 1e12,
        "wanted_seconds": LMA_SECONDS,
        "ok": bool(np.isfinite(value)) and seconds <= LMA_SECONDS,
    }


class Passed(NamedTuple):
    """One value and gradient of the computation-aware GP."""

    model: CaGP
    factored: cagp.Factored
    value: float
    kernel: np.ndarray
    weights: Any

    def state(self, points: int) -> cagp.State:
        """What prediction needs."""
        return self.model.solve(self.factored, points)


def passes(model: CaGP, theta: Theta, blocks: Sequence[Block], weights: Weights) -> Passed:
    """Sums over points and rows, the objective, and its gradient by kernel and actions.

    All rows are points: ``weights`` are the actions over them.
    """
    xp = backend.namespace(blocks[0].X)
    panel = Panel(xp.concatenate([block.X for block in blocks]), weights)
    edges = np.cumsum([0, *(len(block.X) for block in blocks)]).tolist()
    spans = [slice(a, b) for a, b in itertools.pairwise(edges)]
    F = [cagp.functions(theta.kernel, [panel], block.X) for block in blocks]
    tiles = [
        (block, f, part_of(weights, at)) for block, f, at in zip(blocks, F, spans, strict=True)
    ]
    points = reduce(model.combine, (model.at_points(f, block.y, own) for block, f, own in tiles))
    factored, rows = model.factor(theta.noise_variance, points), None
    if model.needs_rows:
        sums = (model.at_rows(theta, block, f, factored) for block, f, _ in tiles)
        rows = reduce(model.combine, sums)
    objective = model.objective(factored, rows)
    kernel = np.zeros(len(theta.kernel.log_parameters))
    learned = xp.zeros_like(weights.values)
    for (block, f, own), at in zip(tiles, spans, strict=True):
        found = model.pull(theta, block, f, [panel], objective.cotangent, own)
        kernel += found[0]
        learned += found[1][0]
        learned[at] += found[2]
    return Passed(model, factored, objective.value, kernel, learned)


def part_of(weights: Weights, at: slice) -> Weights:
    """The weights of some points."""
    owner = None if weights.owner is None else weights.owner[at]
    return Weights(weights.values[at], owner, weights.count)


def cagp_pass(machine: Machine, s: Settings) -> Iterator[dict]:
    """One value and gradient of the computation-aware bound."""
    theta = theta_of(machine, 0, s.cagp_features)

    def run(n: int) -> float:
        tile = cagp.TILE_ROWS * (8 if machine.device == "gpu" else 1)
        blocks = list(blocks_of(machine, n, tile, s.cagp_features, s.cagp_dtype))
        t = min(s.actions, n)
        values = machine.xp.ones(n, dtype=np.float64)
        return passes(CaGP(), theta, blocks, Weights(values, np.arange(n) * t // n, t)).value

    run(min(s.cagp_rows, 4_096))
    seconds, value = machine.seconds(lambda: run(s.cagp_rows))
    yield {
        "method": "cagp",
        "rows": s.cagp_rows,
        "actions": s.actions,
        "features": s.cagp_features,
        "dtype": s.cagp_dtype,
        "value": value,
        "seconds": seconds,
        "pairs_a_second": 2 * s.cagp_rows**2 / seconds,
        "wanted_seconds": CAGP_SECONDS,
        "ok": bool(np.isfinite(value)) and seconds <= CAGP_SECONDS,
    }


def memory(machine: Machine, s: Settings) -> Iterator[dict]:
    """The peak of device memory: that of a block, however many there are."""
    few, many = 2 * s.block, 8 * s.block
    bound_of(machine, s, few)()
    small, large = (machine.peak(bound_of(machine, s, rows)) for rows in (few, many))
    yield {
        "memory": "sgpr",
        "block": s.block,
        "rows": [few, many],
        "peak_mib": [small / 2**20, large / 2**20],
        "ok": large <= GROWTH * small,
    }


PARTS: dict[str, Callable[[Machine, Settings], Iterator[dict]]] = {
    "check": check,
    "ceilings": ceilings,
    "sgpr": sgpr,
    "lma": lma,
    "cagp": cagp_pass,
    "memory": memory,
}


def line(row: dict) -> str:
    """A result in words."""
    cells = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values())
    return "  ".join(f"{k} {cell}" for k, cell in zip(row, cells, strict=True))


COUNT = click.IntRange(min=1)


@click.command()
@click.option("--only", type=click.Choice(list(PARTS)), multiple=True, help="Parts; all of them.")
@click.option("--array-module", default="cupy", type=click.Choice(["cupy", "numpy"]))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "--gemm", default=8_192, show_default=True, type=COUNT, help="Order of the measured product."
)
@click.option("--repeats", default=5, show_default=True, type=COUNT, help="Runs of a ceiling.")
@click.option("--rows", default=10_000_000, show_default=True, type=COUNT, help="Rows of sgpr.")
@click.option("--inducing", default=1_024, show_default=True, type=COUNT)
@click.option("--features", default=8, show_default=True, type=click.IntRange(1, 8))
@click.option(
    "--block", default=131_072, show_default=True, type=COUNT, help="Rows of a block of sgpr."
)
@click.option("--dtype", default="float64", type=click.Choice(list(TOLERANCES)), show_default=True)
@click.option("--lma-rows", default=1_000_000, show_default=True, type=COUNT)
@click.option("--support", default=512, show_default=True, type=COUNT)
@click.option("--lma-block", default=512, show_default=True, type=COUNT)
@click.option(
    "--lma-together", default=16, show_default=True, type=COUNT, help="Windows solved together."
)
@click.option("--cagp-rows", default=1_800_000, show_default=True, type=COUNT)
@click.option("--actions", default=512, show_default=True, type=COUNT)
@click.option("--cagp-features", default=7, show_default=True, type=click.IntRange(1, 8))
@click.option(
    "--cagp-dtype", default="float32", type=click.Choice(list(TOLERANCES)), show_default=True
)
def main(only: tuple[str, ...], array_module: str, as_json: bool, **sizes: Any) -> None:
    """Check the methods on a GPU and measure them against its ceilings."""
    if sizes["actions"] > sizes["cagp_rows"]:
        raise click.UsageError(
            f"{sizes['actions']} actions of {sizes['cagp_rows']} rows: choose fewer --actions"
        )
    machine, failed = machine_of(array_module), []
    for part in only or PARTS:
        for row in PARTS[part](machine, Settings(**sizes)):
            click.echo(json.dumps(row) if as_json else line(row))
            if part == "check" and not row["ok"]:
                failed.append(f"{row['check']} ({row['dtype']})")
    if failed:
        raise click.ClickException(f"beyond tolerance: {', '.join(failed)}")


if __name__ == "__main__":
    main()
