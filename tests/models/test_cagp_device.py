"""Computation-aware GPs on a device that refuses what a GPU refuses: the numbers of the host."""

import numpy as np
import pytest

from daskgp import kernels
from daskgp.data import Rows, partition
from daskgp.data.partition import Span
from daskgp.fit.rounds import Rounds
from daskgp.kernels.categories import Table
from daskgp.kernels.weights import Weights
from daskgp.models.actions import passes
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.passes import Paired
from daskgp.models.actions.sums import Panel, functions
from daskgp.models.scaling import identity
from daskgp.models.values import Block, Theta, move
from daskgp.runtime.executor import Executor
from tests.actions import evaluated, solved
from tests.agree import assert_close

COMPOSITE = (
    kernels.Matern32(lengthscale=(0.5, 0.8), variance=1.4)
    + 0.3 * kernels.Linear(variance=0.3)
    + kernels.RBF(0.9) * kernels.Periodic(period=1.3, active_dims=[0])
)
OTHERS = (Table, kernels.Averaged)
MEASURED = [kind for kind in kernels.REGISTRY.values() if not issubclass(kind, OTHERS)]
KERNELS = {**{kind.name: kind() for kind in MEASURED}, "composite": COMPOSITE}
N, T = 17, 4

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
every_loss = pytest.mark.parametrize("loss", ["elbo", "projected"])
forms = pytest.mark.parametrize("form", ["dense", "by owner"])


pytestmark = pytest.mark.usefixtures("gpu")


def problem(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2))
    y = np.sin(5 * X @ np.ones((2, 2)) + np.arange(2)) + 0.2 * rng.standard_normal((n, 2))
    return X, y


def actions(form, n=N):
    rng = np.random.default_rng(1)
    if form == "dense":
        return Weights.dense(rng.standard_normal((n, T)))
    return Weights(rng.standard_normal(n), np.arange(n) * T // n, T)


def on(device, model, theta, of, dtype, weight=1.0):
    """Sums, objective, gradient and moments; what is solved is solved on the host."""
    X, y = problem()
    block = move(Block(X.astype(dtype), y), device)
    weights = Weights(move(of.values, device), of.owner, T)
    panels = [Panel(block.X, weights, np.arange(N))]
    F = functions(theta.kernel, panels, block.X)
    points = model.at_points(F, block, weights)
    arrays = [F, *points[:3]]
    points = move(points, "cpu")
    factored, rows = model.factor(theta.noise_variance, points), None
    if model.needs_rows and weight is not None:
        rows = model.at_rows(theta, block, F, move(factored, device), weight)
        arrays += [rows.gram, rows.right]
        rows = move(rows, "cpu")
    total = points, rows
    objective = model.objective(factored, rows)
    cotangent = move(objective.cotangent, device)
    through, _, by_panels, by_own = model.pull(theta, block, F, panels, cotangent, weights, weight)
    found = [gradient for _, gradient in by_panels] + [by_own]
    state = move(model.posterior(factored, N), device)
    at = move(problem(6, seed=2)[0].astype(dtype), device)
    moments = []
    for want in ("mean", "variance", "covariance"):
        few = model.predict(theta, state, at, panels, want)
        moments.append(move(few, "cpu"))
        arrays += [m for m in few[:3] if m is not None]
    return arrays + found, (
        total,
        tuple(objective),
        through,
        [move(a, "cpu") for a in found],
        tuple(moments),
    )


@every_kernel
@forms
@every_loss
def test_sums_gradient_and_predictions(gpu, kernel, form, loss):
    model, theta, of = CaGP(loss), Theta(kernel, 0.1), actions(form)
    _, wanted = on("cpu", model, theta, of, "float64")
    arrays, found = on("gpu", model, theta, of, "float64")
    assert [type(array) for array in arrays] == [gpu.ndarray] * len(arrays)
    assert_close(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("weight", [None, 3.0])
@forms
def test_points_that_are_no_rows_and_rows_that_count_more(form, weight):
    # the bound would miss the rows that do not count
    model, theta = CaGP("projected"), Theta(COMPOSITE, 0.1)
    _, wanted = on("cpu", model, theta, actions(form), "float64", weight)
    _, found = on("gpu", model, theta, actions(form), "float64", weight)
    assert_close(found, wanted, rtol=1e-6)


@every_loss
@forms
def test_float32(gpu, loss, form):
    model, theta = CaGP(loss), Theta(COMPOSITE, 0.1)
    _, wanted = on("cpu", model, theta, actions(form), "float64")
    arrays, found = on("gpu", model, theta, actions(form), "float32")
    assert [type(array) for array in arrays] == [gpu.ndarray] * len(arrays)
    (total, objective, through, _, moments), (t, o, k, _, m) = found, wanted
    np.testing.assert_allclose(total[0].joint, t[0].joint, rtol=1e-4, atol=1e-4)
    assert objective[0] == pytest.approx(o[0], rel=1e-4)
    np.testing.assert_allclose(through, k, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(moments[1].variance, m[1].variance, atol=1e-4)


@forms
def test_actions_that_are_dropped(form):
    model, theta, of = CaGP(), Theta(COMPOSITE, 0.1), actions(form)
    if form == "dense":
        of.values[:, 2] = of.values[:, 0] + of.values[:, 1]
    else:
        of.values[of.owner == 2] = 0.0
    _, wanted = on("cpu", model, theta, of, "float64")
    _, found = on("gpu", model, theta, of, "float64")
    assert len(wanted[1][-1].factored.columns) == len(found[1][-1].factored.columns) == T - 1
    assert_close(found, wanted, rtol=1e-6)


# --- the passes that Dask runs


def pairs_of(device, dtype="float64", chosen=None):
    X, y = problem()
    X[3, 0] = np.nan

    def stage(few, spans):
        rows = Rows(X[few], y[few], None, ("a", "b"), ("u", "v"))
        units, executor = partition.alone(spans), Executor(None, False)
        return Rounds(rows, units, identity(2, 2), executor, dtype, device)

    rows = points = stage(slice(None), (Span(0, 7), Span(7, 8), Span(8, N)))
    if chosen is not None:
        points = stage(chosen, partition.parts(0, len(chosen), 7))
    return Paired(rows, points, N - 1, 2, T)


@pytest.mark.parametrize("tile_rows", [3, 2_048])
@pytest.mark.parametrize("subset", [False, True])
@pytest.mark.parametrize("batch", [None, (8, 5)])
@every_loss
def test_passes(monkeypatch, loss, batch, subset, tile_rows):
    monkeypatch.setattr(passes, "TILE_ROWS", tile_rows)
    chosen = np.arange(0, N, 2) if subset else None
    of, theta = actions("by owner", N if chosen is None else len(chosen)), Theta(COMPOSITE, 0.1)
    wanted, found = (
        evaluated(CaGP(loss), pairs_of(device, chosen=chosen), theta, of, batch)
        for device in ("cpu", "gpu")
    )
    assert_close(tuple(found), tuple(wanted), rtol=1e-7)
    state, there = (
        solved(CaGP(loss), pairs_of(device, chosen=chosen), theta, of)[0]
        for device in ("cpu", "gpu")
    )
    assert_close(there, state, rtol=1e-7)


@every_loss
def test_passes_of_dense_actions(loss):
    of, theta = actions("dense"), Theta(COMPOSITE, 0.1)
    wanted, found = (
        evaluated(CaGP(loss), pairs_of(device), theta, of) for device in ("cpu", "gpu")
    )
    assert wanted.weights is None  # dense actions are not learned
    assert_close(tuple(found), tuple(wanted), rtol=1e-7)


def test_products_with_the_covariance_of_all_rows():
    theta, V = Theta(COMPOSITE, 0.1), np.random.default_rng(4).standard_normal((N, 3))
    X, _ = problem()
    complete = np.arange(N) != 3
    V[3] = 0.0
    K = COMPOSITE(X) * complete * complete[:, None]
    for device in ("cpu", "gpu"):
        pairs = pairs_of(device)
        product = pairs.covariance(theta)(V)
        np.testing.assert_allclose(product, K @ V + 0.1 * V, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(pairs.complete, complete)
