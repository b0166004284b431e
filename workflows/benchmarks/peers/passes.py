"""Passes of methods over rows on one machine, without Dask: what a task of each does."""

from collections.abc import Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import harness
import numpy as np

from daskgp.arrays.backend import number, to_host
from daskgp.kernels.weights import Weights
from daskgp.models.actions import cagp
from daskgp.models.markov import conditionals
from daskgp.models.markov.lma import LMA
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, add, move
from daskgp.models.variational import decoupled
from peers import arrays
from peers.arrays import HOST, Machine

SHORT = 0.1
"""Lengthscale of methods that condition rows on others nearby."""


def sgpr(machine: Machine, options: harness.Options, rows: int) -> float:
    """Return SGPR's bound with its whole gradient, rows streamed by block."""
    at, sizes = machine.theta(options.features, options.inducing), (options.block, options.features)
    blocks = partial(machine.blocks, rows, *sizes, options.dtype)
    value, gradient, *_ = arrays.evaluated(SGPR(), at, lambda: ((b, ()) for b in blocks()))
    return value if np.isfinite(gradient).all() else np.nan


def lma(machine: Machine, options: harness.Options, rows: int) -> float:
    """Return LMA's evidence, blocks conditioned on the one before, some windows at a time."""
    model = LMA()
    prepared, total = model.prepare(machine.theta(options.features, options.support, SHORT)), None
    blocks = list(machine.blocks(rows, options.window, options.features, options.dtype))
    windows: list[tuple[Block, Sequence[Block]]] = [(blocks[0], ())]
    windows += [(block, (before,)) for before, block in pairwise(blocks)]
    for start in range(0, len(windows), options.together):
        part = model.local_many(prepared, windows[start : start + options.together])
        total = part if total is None else model.combine(total, part)
    return model.objective(prepared, total).value


def neighbours(machine: Machine, options: harness.Options, rows: int) -> conditionals.Conditionals:
    """Return rows, each with those just before it as its neighbours."""
    block, xp = machine.rows(rows, options.features, options.dtype), machine.xp
    own = xp.arange(rows)
    near = xp.maximum(own[:, None] - 1 - xp.arange(options.neighbours), -1)
    return conditionals.Conditionals(block.X, block.y, None, own, near)


def vecchia(machine: Machine, options: harness.Options, rows: int) -> float:
    """Return the log density of rows given their neighbours, with gradient and information."""
    given, at = neighbours(machine, options, rows), machine.theta(options.features, 0, SHORT)
    found = conditionals.scores(at, given, machine.xp.eye(1), 1)
    return float(sum(to_host(part).sum() for part in found[:4]))


def vecchia_weights(machine: Machine, options: harness.Options, rows: int) -> float:
    """Return the sum of the weights of rows and their neighbours, which a posterior needs."""
    given, at = neighbours(machine, options, rows), machine.theta(options.features, 0, SHORT)
    return number(conditionals.weights(at, given).sum())


def svgp(machine: Machine, options: harness.Options, steps: int) -> float:
    """Return the bound after so many natural steps on batches, solved on the host as in a fit."""
    m, d = options.inducing, options.features
    kernel, none = HOST.theta(d).kernel, np.zeros((0, d))
    Z, log_noise = HOST.rows(m, d, first=8_000_000).X, np.log([0.1])
    w, nothing = np.zeros((m, 1)), np.zeros((0, 1))
    at = decoupled.Parameters(
        kernel.log_parameters, log_noise, Z, none, none, none, nothing, w, np.eye(m)
    )
    model, value = decoupled.Decoupled(natural=True), np.nan
    draw = decoupled.Draw(options.rows / options.batch, np.arange(0), 1.0)
    for step in range(steps):
        batch = machine.rows(options.batch, d, options.dtype, first=step * options.batch)
        prepared, pull = model.prepare_with_pull(kernel, at, np.zeros(1), options.dtype)
        sums = move(model.local(move(prepared, machine.device), batch, draw), "cpu")
        value = model.bound(prepared, sums, pull).value
        shared, root = model.natural_step(at, sums, 0.1)
        at = at._replace(shared_weights=shared, root=root)
    return value


def computation_aware(machine: Machine, options: harness.Options, n: int) -> float:
    """Return the computation-aware bound, with its gradient, all rows its points."""
    d, dtype, model = options.cagp_features, options.cagp_dtype, cagp.CaGP()
    at, tile = machine.theta(d), cagp.TILE_ROWS * (8 if machine.device == "gpu" else 1)
    t, values = min(options.actions, n), machine.xp.ones(n)
    owner, blocks = np.arange(n) * t // n, list(machine.blocks(n, tile, d, dtype))
    edges = np.cumsum([0, *(len(block.X) for block in blocks)]).tolist()
    own = [Weights(values[a:b], owner[a:b], t) for a, b in pairwise(edges)]
    X = machine.xp.concatenate([block.X for block in blocks])
    panel = cagp.Panel(X, Weights(values, owner, t))
    F = [cagp.functions(at.kernel, [panel], block.X) for block in blocks]
    tiles: list[tuple[Block, Any, Weights]] = list(zip(blocks, F, own, strict=True))
    points = reduce(add, (model.at_points(f, b, w) for b, f, w in tiles))
    factored = model.factor(at.noise_variance, points)
    sums = reduce(add, (model.at_rows(at, b, f, factored) for b, f, _ in tiles))
    objective = model.objective(factored, sums)
    for block, f, weights in tiles:
        model.pull(at, block, f, [panel], objective.cotangent, weights)
    return objective.value
