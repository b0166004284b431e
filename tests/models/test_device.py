"""Every method of the registry, all of it on a device that refuses what a GPU refuses."""

import itertools
from dataclasses import fields, replace
from functools import partial
from typing import get_type_hints

import numpy as np
import pytest

from daskgp import kernels
from daskgp.checks import options
from daskgp.kernels import fused
from daskgp.models import collapsed
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.cggp import CGGP
from daskgp.models.additive import Additive
from daskgp.models.exact import Exact
from daskgp.models.experts.ensemble import Ensemble
from daskgp.models.markov.lma import LMA
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Theta, move
from daskgp.models.variational.decoupled import Decoupled, Draw
from daskgp.testing import MethodAt
from tests.agree import assert_close
from tests.contract import cases
from tests.maths import fakecuda
from tests.models import test_cagp_device as cagp
from tests.models import test_decoupled_device as decoupled
from tests.models.test_cagp_device import COMPOSITE, KERNELS

ARD = kernels.Matern32(lengthscale=(0.5, 0.8), variance=1.4)
N, SIZES = 17, (7, 1, 9)
WANTS = ("mean", "variance", "covariance")


def variants(subject):
    """A method, and it with every other value of a setting that is a word."""
    method = subject.method
    if hasattr(method, "tile_rows"):
        method = replace(method, tile_rows=4)
    yield replace(subject, method=method)
    hints = get_type_hints(type(method))
    for field in fields(method):
        words = options(hints[field.name])
        for word in words if all(isinstance(one, str) for one in words) else ():
            if word != getattr(method, field.name):
                yield replace(subject, method=replace(method, **{field.name: word}))


def is_additive(method):
    """Whether a method is a sum of summaries of blocks, and no combination of experts.

    Those are in test_experts_device.
    """
    summed = getattr(type(method), "summed", None) is Additive.summed
    return summed and Ensemble not in type(method).__mro__


SUBJECTS = [
    one
    for name in cases.SETTINGS
    if is_additive(cases.method(name))
    for one in variants(cases.method_at(name, ARD))
]
"""Every method that sums over blocks, with every setting that changes what it computes."""
every = pytest.mark.parametrize("subject", SUBJECTS, ids=[repr(one.method) for one in SUBJECTS])


@pytest.fixture(autouse=True)
def small_tiles(gpu, monkeypatch):
    """On a device too, blocks are more than one tile."""
    monkeypatch.setattr(collapsed, "DEVICE_TILES", 1)


def blocks_of(dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (N, 2))
    y = np.sin(5 * X @ np.ones((2, 2)) + np.arange(2)) + 0.2 * rng.standard_normal((N, 2))
    edges = np.cumsum((0, *SIZES))
    return [Block(X[a:b].astype(dtype), y[a:b]) for a, b in itertools.pairwise(edges)]


def theta_of(kernel):
    return Theta(kernel, 0.1, np.random.default_rng(1).uniform(0, 1, (5, 2)))


def arrays_of(value):
    """All arrays of one dimension or more in nested tuples."""
    if isinstance(value, tuple | list):
        return [array for part in value for array in arrays_of(part)]
    return [value] if getattr(value, "shape", ()) else []


def copied(stats):
    """Sums that no later one overwrites."""
    return tuple(None if part is None else np.array(part) for part in stats)


def noisy(block):
    """The rows with noise variances of their own."""
    noise = np.random.default_rng(len(block.X)).uniform(0.1, 1, (len(block.X), 2))
    return block._replace(noise=noise)


def on(device, subject, dtype="float64", rows=tuple):
    """What every function of a method gives, all of it computed on one device."""
    model, theta = subject.method, move(subject.theta, device)
    blocks = [move(block, device) for block in rows(blocks_of(dtype))]
    prepared = model.prepare(theta)
    near = [tuple(blocks[max(0, i - 1) : i]) for i in range(len(blocks))]
    each = [model.local(prepared, block, few) for block, few in zip(blocks, near, strict=True)]
    stats, total = [copied(move(part, "cpu")) for part in each], each[0]  # sums overwrite
    for part in each[1:]:
        total = model.combine(total, part)
    objective = model.objective(prepared, total)
    through = [
        tuple(model.local_vjp(prepared, block, objective.cotangent, few))
        for block, few in zip(blocks, near, strict=True)
    ]
    state = model.posterior(prepared, total)
    read = model.condition(theta, state, blocks) if model.keeps_rows else None
    X = move(np.random.default_rng(2).uniform(0, 1, (6, 2)).astype(dtype), device)
    moments = [model.predict(theta, state, X, read, want) for want in WANTS]
    there = arrays_of((each, total, objective.cotangent, state, moments))
    gradient = tuple(objective.gradient)
    numbers = stats, objective.value, gradient, through, [move(m, "cpu") for m in moments]
    return there, numbers


@pytest.mark.parametrize("rows", [tuple, partial(map, noisy)], ids=["alike", "noisy"])
@every
def test_value_gradient_and_predictions(gpu, subject, rows):
    there, found = on("gpu", subject, rows=rows)
    _, wanted = on("cpu", subject, rows=rows)
    assert {type(array) for array in there if array.size} == {gpu.ndarray}
    assert_close(found, wanted)


@pytest.mark.skipif(fakecuda.COMPILER is None, reason="there is no C compiler")
@every
def test_value_gradient_and_predictions_by_compiled_kernels(gpu, monkeypatch, subject):
    monkeypatch.setattr(fused, "THREADS", 8)
    launched = fakecuda.give(gpu).launched
    there, found = on("gpu", subject)
    assert {type(array) for array in there if array.size} == {gpu.ndarray}
    assert_close(found, on("cpu", subject)[1])
    no_kernel = subject.method.name == "ssgp"
    assert set(launched) == (set() if no_kernel else {"tile", "pull_rows", "pull_columns"})


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("model", [SGPR(tile_rows=4), LMA(), Exact()], ids=lambda model: model.name)
def test_every_kernel(model, kernel):
    # K(Z, Z) of a linear kernel has the rank of its columns: its gradient has few digits
    subject = MethodAt(model, theta_of(kernel))
    assert_close(on("gpu", subject)[1], on("cpu", subject)[1], rtol=1e-4)


@every
def test_float32_rows_with_sums_in_float64(gpu, subject):
    _, found = on("gpu", subject, "float32")
    _, wanted = on("cpu", subject)
    (stats, value, *_, moments), (_, exact, *_, expected) = found, wanted
    if not isinstance(subject.method, Exact):  # its summary is the rows themselves
        matrices = [array for array in arrays_of(stats) if array.ndim == 2]
        assert {array.dtype for array in matrices} == {np.dtype(np.float64)}
    assert value == pytest.approx(exact, rel=1e-4)
    np.testing.assert_allclose(moments[0][0], expected[0][0], atol=1e-3)


def test_rows_without_a_block_near_them(gpu):
    # nothing is solved with a matrix that has no entry: cuBLAS refuses it
    model, theta = LMA(), theta_of(ARD)
    block = blocks_of()[0]
    prepared = model.prepare(theta)
    objective = model.objective(prepared, model.local(prepared, block))
    wanted = model.local_vjp(prepared, block, objective.cotangent)
    there = (move(part, "gpu") for part in (prepared, block, objective.cotangent))
    assert_close(tuple(model.local_vjp(*there)), tuple(wanted))


def test_windows_side_by_side(gpu):
    model, blocks = LMA(), [*blocks_of(), *blocks_of(seed=5), *blocks_of(seed=6)]
    prepared = model.prepare(theta_of(ARD))
    windows = [(block, blocks[max(0, i - 1) : i]) for i, block in enumerate(blocks)]
    wanted = model.local_many(prepared, windows)
    there = [(move(block, "gpu"), [move(b, "gpu") for b in near]) for block, near in windows]
    found = model.local_many(move(prepared, "gpu"), there)
    assert isinstance(found.gram, gpu.ndarray)
    assert_close(tuple(move(found, "cpu")), tuple(wanted))


def test_a_gradient_leaves_the_tile_of_its_pullback_alone():
    # a pullback goes on using its tile, which no flag of a device array protects
    model, blocks = LMA(), blocks_of()
    prepared = model.prepare(theta_of(COMPOSITE))
    objective = model.objective(prepared, model.local(prepared, blocks[1], blocks[:1]))
    given = prepared, blocks[1], objective.cotangent
    wanted = model.local_vjp(*given, blocks[:1])
    there = [move(part, "gpu") for part in given]
    assert_close(tuple(model.local_vjp(*there, [move(blocks[0], "gpu")])), tuple(wanted))


def test_a_tile_brings_few_numbers_back(gpu):
    model, theta = SGPR(), theta_of(ARD)
    prepared, block = move(model.prepare(theta), "gpu"), move(blocks_of()[2], "gpu")
    gpu.moves = 0
    model.local(prepared, block)
    assert gpu.moves == 1  # the trace of K


@pytest.mark.parametrize("loss", ["elbo", "projected"])
def test_computation_aware_solves_stay_on_the_device(gpu, loss):
    model, theta, F = CaGP(loss), Theta(ARD, 0.1), []
    solved = {}
    for device in ("cpu", "gpu"):
        X, y = cagp.problem()
        block, weights = move(Block(X, y), device), cagp.actions("dense")
        weights = cagp.Weights.dense(move(weights.values, device))
        F = cagp.functions(ARD, [cagp.Panel(block.X, weights)], block.X)
        factored = model.factor(0.1, model.at_points(F, block, weights))
        rows = model.at_rows(theta, block, F, factored) if model.needs_rows else None
        objective, state = model.objective(factored, rows), model.posterior(factored, N)
        if device == "gpu":
            cotangent = objective.cotangent[1:4]
            assert {type(a) for a in (*cotangent, state.factor, state.weights)} == {gpu.ndarray}
        solved[device] = tuple(move(objective, "cpu")), tuple(move(state, "cpu"))
    assert_close(solved["gpu"], solved["cpu"], rtol=1e-6)


def test_conjugate_gradients_predict(gpu):
    X, V = blocks_of()[0].X, np.random.default_rng(3).standard_normal((SIZES[0], 2))
    at, model, theta = blocks_of(seed=4)[2].X, CGGP(), Theta(COMPOSITE, 0.1)
    panels = [cagp.Panel(X, cagp.Weights.dense(V))]
    there = [cagp.Panel(gpu.asarray(X), cagp.Weights.dense(gpu.asarray(V)))]
    found = model.predict(theta, None, gpu.asarray(at), there).mean
    assert isinstance(found, gpu.ndarray)
    assert_close(found.get(), model.predict(theta, None, at, panels).mean)


@pytest.mark.parametrize("form", ["hybrid", "direct", "shared"])
@pytest.mark.parametrize("frozen", [False, True])
def test_decoupled_bound_stays_on_the_device(gpu, form, frozen):
    model, prepared, rows = decoupled.problem(form, "generalized", frozen=frozen)
    assert isinstance(model, Decoupled)
    columns, offset, bounds = np.arange(0, decoupled.M, 2), np.array([0.2, -0.1]), []
    for device in ("cpu", "gpu"):
        own = move(prepared.parameters, device)
        again = model.prepare(prepared.kernel, own, move(offset, device))
        total = model.local(again, move(rows, device), Draw(1.0, columns, 2.0))
        bound = model.bound(again, total)
        if device == "gpu":
            assert {type(part) for part in bound.gradient[2:]} == {gpu.ndarray}
        bounds.append((bound.value, tuple(move(bound.gradient, "cpu"))))
    assert_close(bounds[1], bounds[0])
