"""Decoupled GPs on a device that refuses what a GPU refuses: the numbers of the host."""

import numpy as np
import pytest

from daskgp import kernels, likelihoods
from daskgp.fit.minibatches import Share
from daskgp.fit.svi import Steps
from daskgp.models.values import Block, Theta, move
from daskgp.models.variational.decoupled import Draw
from daskgp.runtime.executor import Executor
from tests.agree import assert_close
from tests.models import test_decoupled
from tests.models.test_cagp_device import KERNELS

RBF = kernels.RBF(lengthscale=(0.7, 1.3), variance=1.2)
N, B, M = 17, 4, 6

forms = pytest.mark.parametrize("form", ["hybrid", "direct", "shared"])
both_bases = pytest.mark.parametrize("kind", ["kernel", "generalized"])


pytestmark = pytest.mark.usefixtures("gpu")


def problem(form, kind="kernel", likelihood="gaussian", **of):
    """A model, any parameters, and rows."""
    made = test_decoupled.problem(
        form, kind, likelihood, **{"n": N, "b": B, "m": M, "jitter": 1e-6} | of
    )
    return made.model, made.prepared, made.rows


def on(device, model, prepared, rows, columns, dtype="float64", parts=1):
    """Sums, the bound of them, and moments; what is solved is solved on the host."""
    there, arrays = move(prepared, device), []
    cut = np.array_split(np.arange(len(rows.X)), parts), np.array_split(columns, parts)
    total = None
    for few, drawn in zip(*cut, strict=True):
        block = move(Block(rows.X[few].astype(dtype), rows.y[few].astype(dtype)), device)
        sums = model.local(there, block, Draw(3.0, drawn, 2.0))
        arrays += [*sums[2:], *sums.gradient[2:]]
        sums = move(sums, "cpu")
        total = sums if total is None else model.combine(total, sums)
    state = move(model.posterior(prepared), device)
    X = move(np.random.default_rng(2).uniform(0, 1, (6, 2)).astype(dtype), device)
    moments = []
    for want in ("mean", "variance", "covariance"):
        few = model.predict(Theta(prepared.kernel, 1.0), state, X, None, want)
        moments.append(move(few, "cpu"))
        arrays += [m for m in few[:3] if m is not None]
    return arrays, (tuple(total), tuple(model.bound(prepared, total)), tuple(moments))


def assert_same(gpu, given, columns=None, rtol=1e-7, **cut):
    columns = np.arange(0, M, 2) if columns is None else columns
    _, wanted = on("cpu", *given, columns, **cut)
    arrays, found = on("gpu", *given, columns, **cut)
    assert [type(array) for array in arrays] == [gpu.ndarray] * len(arrays)
    assert_close(found, wanted, rtol)


@forms
@both_bases
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_sums_bound_and_predictions(gpu, form, kind, likelihood):
    assert_same(gpu, problem(form, kind, likelihood))


@pytest.mark.parametrize("likelihood", likelihoods.NAMES)
@pytest.mark.parametrize("natural", [False, True])
def test_every_likelihood_and_natural_gradients(gpu, likelihood, natural):
    given = problem("hybrid", "kernel", likelihood, natural=natural)
    assert_same(gpu, given)
    if natural:
        model, prepared, rows = given
        own, columns = prepared.parameters, np.arange(M)
        found, wanted = (
            model.natural_step(own, model.combine(sums, sums), 0.5)
            for sums in (
                move(
                    model.local(move(prepared, at), move(rows, at), Draw(1.0, columns, 1.0)), "cpu"
                )
                for at in ("gpu", "cpu")
            )
        )
        assert_close(found, wanted)


@forms
@both_bases
def test_a_frozen_mean(gpu, form, kind):
    assert_same(gpu, problem(form, kind, frozen=True))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("form", ["hybrid", "shared"])
def test_every_kernel(gpu, kernel, form):
    assert_same(gpu, problem(form, kernel=kernel))


@forms
def test_parts_without_rows_or_columns(gpu, form):
    given = problem(form, "generalized")
    assert_same(gpu, given, columns=np.zeros(0, int))
    assert_same(gpu, given, columns=np.array([1]), parts=3)
    model, prepared, rows = given
    none = move(Block(rows.X[:0], rows.y[:0]), "gpu")
    found = model.local(move(prepared, "gpu"), none, Draw(1.0, np.arange(M), 1.0))
    assert {type(array) for array in (*found[2:], *found.gradient[2:])} == {gpu.ndarray}


@pytest.mark.parametrize(("form", "b"), [("hybrid", B), ("shared", B), ("direct", 0)])
@pytest.mark.parametrize("m", [0, M])
def test_one_kind_of_functions_alone(gpu, form, b, m):
    assert_same(gpu, problem(form, b=b, m=m), columns=np.arange(min(m, 2)))


@forms
@both_bases
def test_float32(gpu, form, kind):
    given = problem(form, kind)
    (*_, moments), columns = on("cpu", *given, np.arange(M))[1], np.arange(M)
    arrays, (_, bound, found) = on("gpu", *given, columns, dtype="float32")
    assert [type(array) for array in arrays] == [gpu.ndarray] * len(arrays)
    wanted = on("cpu", *given, columns)[1][1]
    assert bound[0] == pytest.approx(wanted[0], rel=1e-5)
    for f, w in zip(bound[1], wanted[1], strict=True):
        assert np.linalg.norm(f - w) <= 1e-3 * np.linalg.norm(w)
    np.testing.assert_allclose(found[2].covariance, moments[2].covariance, atol=1e-4)


# --- the steps that Dask runs


@forms
def test_steps(form):
    model, prepared, rows = problem(form, "generalized", "bernoulli")
    shares = [Share((rows,), (slice(0, 7),)), Share((rows,), (slice(7, N),))]
    wanted, found = (
        Steps(model, 100.0, 3, 5, Executor(None, False), "float64", device)
        for device in ("cpu", "gpu")
    )
    assert_close(tuple(found.sums(prepared, shares, 2)), tuple(wanted.sums(prepared, shares, 2)))
    density = found.density(prepared, rows)
    assert density == pytest.approx(wanted.density(prepared, rows), rel=1e-9)
