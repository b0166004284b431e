"""Numbers of every method on a GPU against NumPy's in float64.

    python workflows/benchmarks/gpu_check.py

Needs CuPy and the package's mathematics, neither Dask nor Zarr.  Sums, values, gradients and
predictions for rows in float64 and in float32: the largest relative difference of any of them,
by norms.  It ends with an error where one is beyond 1e-10 or 1e-4.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import harness
import numpy as np
from peers import arrays
from peers.arrays import HOST, ROWS, D, Machine, blocks, places

from daskgp import likelihoods
from daskgp.kernels.weights import Weights
from daskgp.models import inducing
from daskgp.models.actions import cagp
from daskgp.models.exact import Exact
from daskgp.models.markov import conditionals
from daskgp.models.markov.lma import LMA, State
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.sparse.ssgp import SparseSpectrum
from daskgp.models.values import Block, Theta, move
from daskgp.models.variational import decoupled

INDUCING = 24


def reduced(model: Any, inputs: int, machine: Machine, dtype: str) -> list:
    """Return value, gradient and predictions of a method that sums summaries of blocks."""
    at, own = machine.theta(D, inputs), blocks(machine, dtype)
    if isinstance(model, OptiCom):
        at = replace(at, inputs=machine.xp.asarray(sparse_grid.build(D, model.level).points))
    reach = getattr(model, "markov_order", 0)
    windows = [(block, tuple(own[max(i - reach, 0) : i])) for i, block in enumerate(own)]
    value, gradient, prepared, total = arrays.evaluated(model, at, lambda: windows)
    state = model.posterior(prepared, total)
    read = model.condition(at, state, own) if model.keeps_rows else None
    wants, X = ("mean", "variance", "covariance"), places(machine, dtype)
    moments = [part for w in wants for part in model.predict(at, state, X, read, w)[:3]]
    return [value, gradient, *(part for part in moments if part is not None)]


def windows_together(machine: Machine, dtype: str) -> list:
    """Return value and gradient of LMA, windows side by side, factors kept or made again."""
    model, own = LMA(jitter=1e-6), blocks(machine, dtype)
    prepared = model.prepare(machine.theta(D, INDUCING))
    windows = [(block, tuple(own[i + 1 : i + 2])) for i, block in enumerate(own)]
    total, kept = model.local_and_windows(prepared, windows)
    objective = model.objective(prepared, total)
    gradients = (
        model.local_vjp_many(prepared, windows, objective.cotangent, factors).to_vector(True)
        for factors in (kept, None)
    )
    return [objective.value, *gradients]


def conditioned(features: bool, machine: Machine, dtype: str) -> list:
    """Return sums over rows given earlier ones, with gradient and information for the kernel's."""
    rows, at = machine.rows(ROWS, D, dtype), machine.theta(D, INDUCING)
    xp, k = machine.xp, 9
    near = np.arange(ROWS)[:, None] - 1 - np.arange(k)
    near, own = xp.asarray(np.maximum(near, -1)), xp.arange(ROWS)
    c = conditionals.Conditionals(rows.X, rows.y, None, own, near)
    A = LMA(jitter=1e-6).features(at, State(inducing.prepare(at, 1e-6).factor, *[own] * 2), rows.X)
    A = A if features else None
    w = conditionals.weights(at, c, A)
    found = conditionals.scores(at, c, xp.eye(1), 1)
    return [w, *conditionals.summed(w, c, A)[:4], *found[:4]]


def projected(loss: cagp.LossName, dense: bool, machine: Machine, dtype: str) -> list:
    """Return value, gradient and predictions of the computation-aware GP."""
    at, block, t = machine.theta(D), machine.rows(ROWS, D, dtype), 12
    values = np.random.default_rng(1).standard_normal((ROWS, t) if dense else ROWS)
    owner = None if dense else np.arange(ROWS) * t // ROWS
    weights, model = Weights(machine.xp.asarray(values), owner, t), cagp.CaGP(loss)
    panels = [cagp.Panel(block.X, weights)]
    F = cagp.functions(at.kernel, panels, block.X)
    factored = model.factor(at.noise_variance, model.at_points(F, block, weights))
    sums = model.at_rows(at, block, F, factored) if model.needs_rows else None
    objective = model.objective(factored, sums)
    found = model.pull(at, block, F, panels, objective.cotangent, weights)
    state, X = model.posterior(factored, ROWS), places(machine, dtype)
    moments = model.predict(at, state, X, panels, "variance")
    gradients = found[0], found[2][0][1] + found[3]
    return [objective.value, *gradients, moments.mean, moments.variance]


def stepped(likelihood: str, machine: Machine, dtype: str) -> list:
    """Return a step's bound and gradient, and predictions, of the decoupled GP."""
    rng, m, b = np.random.default_rng(0), 16, 10
    kernel, none = machine.theta(D).kernel, np.zeros((0, D))
    own = decoupled.Parameters(
        kernel.log_parameters,
        likelihoods.by_name(likelihood).log_parameters,
        HOST.rows(b, D, first=9_000).X,
        none,
        HOST.rows(m, D, first=8_000).X,
        none,
        *(0.3 * rng.standard_normal((k, 1)) for k in (m, b)),
        np.tril(0.1 * rng.standard_normal((b, b))) + np.eye(b),
    )
    model = decoupled.Decoupled(likelihood=likelihood, jitter=1e-6)
    host = model.prepare(kernel, own, np.zeros(1), dtype)
    X, y, *_ = machine.rows(ROWS, D, dtype)
    if likelihood != "gaussian":
        y = (y > 0).astype(np.float64)
        y += 0.5 * (likelihood in ("gamma", "lognormal"))
        y = 0.5 * y + 0.25 if likelihood == "beta" else y
    draw, prepared = decoupled.Draw(2.0, np.arange(m), 1.0), move(host, machine.device)
    bound = model.bound(host, move(model.local(prepared, Block(X, y), draw), "cpu"))
    state, at = move(model.posterior(host), machine.device), places(machine, dtype)
    moments = model.predict(Theta(kernel, 1.0), state, at, None, "variance")
    return [bound.value, *bound.gradient, moments.mean, moments.variance]


CHECKS: dict[str, arrays.Check] = {
    "sgpr": partial(reduced, SGPR(1e-6, tile_rows=50), INDUCING),
    "exact": partial(reduced, Exact(), 0),
    "ssgp": partial(reduced, SparseSpectrum(tile_rows=50), INDUCING),
    "opticom": partial(reduced, OptiCom(3, jitter=1e-6), 0),
    "pic": partial(reduced, LMA(markov_order=0, jitter=1e-6), INDUCING),
    "lma": partial(reduced, LMA(jitter=1e-6), INDUCING),
    "lma, paper": partial(reduced, LMA(prediction="paper", jitter=1e-6), INDUCING),
    "lma, side by side": windows_together,
    "conditionals": partial(conditioned, False),
    "conditionals, residual": partial(conditioned, True),
    "cagp": partial(projected, "elbo", False),
    "cagp, dense": partial(projected, "elbo", True),
    "cagp, projected": partial(projected, "projected", False),
    **{f"decoupled, {name}": partial(stepped, name) for name in likelihoods.NAMES},
}


keys, measure, table = arrays.keys, arrays.checking(CHECKS), arrays.table
harness.command(globals(), array_module="cupy")
