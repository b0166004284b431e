"""Computation-aware GPs against their dense definitions, and the laws of [CAGP]."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse.linalg
from hypothesis import given
from hypothesis import strategies as st

from daskgp import kernels, testing
from daskgp.data import Rows, partition
from daskgp.data.partition import Span
from daskgp.errors import NumericalError
from daskgp.fit.rounds import Rounds
from daskgp.kernels.weights import Weights
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.krylov import residual_directions
from daskgp.models.actions.passes import Paired
from daskgp.models.actions.sums import Factored, Panel, PointSums, RowSums, functions
from daskgp.models.scaling import identity
from daskgp.models.values import Block, Theta, add
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread
from daskgp.testing import central_differences
from tests import oracle
from tests.actions import evaluated

KERNEL = kernels.Matern32(lengthscale=(0.7, 1.3), variance=1.4) + kernels.Linear(variance=0.3)
THETA = Theta(KERNEL, 0.1)
LOSSES = {"elbo": oracle.aware_bound, "projected": oracle.projected_evidence}
every_loss = pytest.mark.parametrize("loss", LOSSES)
forms = pytest.mark.parametrize("form", ["dense", "by owner"])


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """As tasks run; threads would wait for each other over matrices of 20 rows."""
    with single_blas_thread():
        yield


def problem(n=24, d=2, p=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(X @ np.ones((d, p)) + np.arange(p)) + 0.1 * rng.standard_normal((n, p))
    return X, y


def actions(form, n=24, t=5, seed=1):
    """Actions on n points; by owner they are runs of points, none of them empty."""
    rng = np.random.default_rng(seed)
    if form == "dense":
        return Weights.dense(rng.standard_normal((n, t)))
    cuts = np.sort(rng.permutation(n - 1)[: t - 1]) + 1
    owner = np.repeat(np.arange(t), np.diff([0, *cuts, n]))
    return Weights(rng.uniform(0.5, 1.5, n) * rng.choice([-1, 1], n), owner, t)


def matrix(of):
    """S."""
    if of.owner is None:
        return of.values
    S = np.zeros((len(of), of.count))
    S[np.arange(len(of)), of.owner] = of.values
    return S


def at(of, rows):
    return Weights(of.values[rows], None if of.owner is None else of.owner[rows], of.count)


class Piece(NamedTuple):
    """Rows that are met at once, their points' weights if they have any, and how they count."""

    block: Block
    own: Weights | None
    weight: float | None = 1.0


def pieces_of(X, y, of, cuts=()):
    """All rows, each a point, cut before some of them."""
    for rows in np.split(np.arange(len(X)), cuts):
        yield Piece(Block(X[rows], y[rows]), at(of, rows))


def panels_of(X, of, cuts=()):
    return [Panel(X[rows], at(of, rows), rows) for rows in np.split(np.arange(len(X)), cuts)]


class Total(NamedTuple):
    """What all rows and points say: sums over points, what they give, and sums over rows."""

    points: PointSums
    factored: Factored
    rows: RowSums | None


def total_of(model, theta, pieces, panels):
    pieces = [(p, functions(theta.kernel, panels, p.block.X)) for p in pieces]
    points = functools.reduce(
        model.combine,
        [model.at_points(F, p.block, p.own) for p, F in pieces if p.own is not None],
    )
    factored = model.factor(theta.noise_variance, points)
    counted = [
        model.at_rows(theta, p.block, F, factored, p.weight)
        for p, F in pieces
        if p.weight is not None
    ]
    rows = functools.reduce(model.combine, counted) if model.needs_rows else None
    return Total(points, factored, rows)


def objective_of(model, total):
    return model.objective(total.factored, total.rows)


def value_and_gradient(model, theta, pieces, panels):
    """Value, and gradient by the logarithms of kernel parameters and noise, and by weights."""
    pieces = list(pieces)
    objective = objective_of(model, total_of(model, theta, pieces, panels))
    kernel, noise = 0.0, objective.noise
    by_weights = np.concatenate([np.zeros_like(p.weights.values) for p in panels])
    start = 0
    for p in pieces:
        F = functions(theta.kernel, panels, p.block.X)
        through, by_noise, found, own = model.pull(
            theta, p.block, F, panels, objective.cotangent, p.own, p.weight
        )
        kernel, noise = kernel + through, noise + by_noise
        by_weights += np.concatenate(found)
        if own is not None:
            by_weights[start : start + len(own)] += own
            start += len(own)
    return objective.value, np.concatenate([kernel, [noise]]), by_weights


def run(model, theta, X, y, of, T, want="covariance"):
    """Value and moments at T where all rows are points."""
    panels = panels_of(X, of)
    total = total_of(model, theta, pieces_of(X, y, of), panels)
    state = model.posterior(total.factored, len(X))
    value = objective_of(model, total).value
    return value, model.predict(theta, state, T, panels, want)


def dense_run(theta, X, y, S, T):
    k = theta.kernel
    return oracle.aware_posterior(k(X), k(T, X), k(T), y, theta.noise_variance, S)


def exact_run(theta, X, y, T):
    k = theta.kernel
    return oracle.posterior(k(X), k(T, X), k(T), y, theta.noise_variance)


def fresh(number=7, d=2, seed=3):
    return np.random.default_rng(seed).standard_normal((number, d))


# --- values


@every_loss
@forms
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("noise", [1.0, 0.1, 1e-3])
def test_objective_and_posterior_are_those_of_the_dense_definitions(loss, form, p, noise):
    (X, y), of, T = problem(p=p), actions(form), fresh()
    theta = Theta(KERNEL, noise)
    value, found = run(CaGP(loss), theta, X, y, of, T)
    mean, covariance = dense_run(theta, X, y, matrix(of), T)
    assert value == pytest.approx(LOSSES[loss](KERNEL(X), y, noise, matrix(of)), rel=1e-8)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-8, atol=1e-9)


@forms
def test_the_bound_is_equation_11_as_printed(form):
    (X, y), of, s = problem(p=1), actions(form), 0.1
    S, K = matrix(of), KERNEL(X)
    n, i = S.shape
    W, G = S.T @ (K + s * np.eye(n)) @ S, S.T @ K @ S
    v = np.linalg.solve(W, S.T @ y)
    mean, covariance = dense_run(THETA, X, y, S, X)
    logdets = np.linalg.slogdet(W).logabsdet - np.linalg.slogdet(S.T @ S).logabsdet
    loss = 0.5 * (
        (((y - mean) ** 2).sum() + np.trace(covariance)) / s
        + (n - i) * np.log(s)
        + n * np.log(2 * np.pi)
        + (v.T @ G @ v).item()
        - np.trace(np.linalg.solve(W, G))
        + logdets
    )
    value, _ = run(CaGP(), THETA, X, y, of, T=X)
    assert value == pytest.approx(-loss, rel=1e-10)


@forms
def test_the_posterior_is_that_of_an_exact_gp_given_the_projected_targets(form):
    """Lemma S1."""
    (X, y), of, T = problem(), actions(form), fresh()
    S = oracle.projected_targets(matrix(of))
    np.testing.assert_allclose(S.T @ S, np.eye(S.shape[1]), atol=1e-12)
    mean, covariance = oracle.posterior(
        S.T @ KERNEL(X) @ S, KERNEL(T, X) @ S, KERNEL(T), S.T @ y, THETA.noise_variance
    )
    _, found = run(CaGP(), THETA, X, y, of, T)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9, atol=1e-10)


@forms
def test_targets_share_their_variance_and_add_up(form):
    (X, y), of, T = problem(p=3), actions(form), fresh()
    for loss in LOSSES:
        value, found = run(CaGP(loss), THETA, X, y, of, T)
        each = [run(CaGP(loss), THETA, X, y[:, [j]], of, T) for j in range(3)]
        assert value == pytest.approx(sum(v for v, _ in each), rel=1e-10)
        np.testing.assert_allclose(found.mean, np.hstack([m.mean for _, m in each]), atol=1e-11)
        np.testing.assert_allclose(found.covariance, each[0][1].covariance, atol=1e-12)


def test_variance_is_the_diagonal_of_the_covariance_and_the_mean_comes_alone():
    (X, y), of, T = problem(), actions("by owner"), fresh()
    _, full = run(CaGP(), THETA, X, y, of, T)
    _, marginal = run(CaGP(), THETA, X, y, of, T, "variance")
    _, mean = run(CaGP(), THETA, X, y, of, T, "mean")
    np.testing.assert_allclose(marginal.variance, np.diag(full.covariance), rtol=1e-10)
    assert marginal.covariance is None
    assert mean.variance is None
    assert mean.covariance is None
    for other in (mean, marginal):
        np.testing.assert_allclose(other.mean, full.mean, rtol=1e-12)


# --- sums over rows


def assert_sums_close(found, wanted, rtol=1e-10):
    for name, f, w in zip(wanted._fields, found, wanted, strict=True):
        if w is None:
            assert f is None, name
            continue
        atol = rtol * max(1.0, np.abs(w).max(initial=0))
        np.testing.assert_allclose(f, w, rtol, atol, err_msg=name)


rows = st.integers(1, 30)


@given(
    n=rows,
    t=st.integers(1, 6),
    p=st.integers(1, 3),
    form=st.sampled_from(["dense", "by owner"]),
    cuts=st.lists(st.integers(0, 30), max_size=4).map(sorted),
    also=st.lists(st.integers(0, 30), max_size=4).map(sorted),
    seed=st.integers(0, 2**16),
)
def test_any_cut_of_rows_and_points_gives_the_same_sums(n, t, p, form, cuts, also, seed):
    (X, y), of = problem(n, p=p, seed=seed), actions(form, n, min(n, t), seed)
    S, K, s = matrix(of), KERNEL(X), THETA.noise_variance
    found = total_of(CaGP(), THETA, pieces_of(X, y, of, cuts), panels_of(X, of, also))
    assert_sums_close(found.points, PointSums(S.T @ K @ S, S.T @ y, S.T @ S))
    kept = found.factored.columns
    S, F = S[:, kept], (K @ S).T[kept]
    W = S.T @ K @ S + s * S.T @ S
    A, e = np.linalg.solve(np.linalg.cholesky(W), F), y - F.T @ np.linalg.solve(W, S.T @ y)
    gap = np.trace(K) - (A**2).sum()
    wanted = RowSums(A @ A.T, A @ e, (e**2).sum(), gap, np.trace(K), n)
    assert_sums_close(found.rows, wanted)


@every_loss
@forms
@pytest.mark.parametrize("cuts", [(5, 17), (1, 1, 23), (24,)])
def test_any_cut_of_rows_and_points_gives_the_same_gradient(loss, form, cuts):
    (X, y), of = problem(), actions(form)
    found = value_and_gradient(CaGP(loss), THETA, pieces_of(X, y, of, cuts), panels_of(X, of, (9,)))
    whole = value_and_gradient(CaGP(loss), THETA, pieces_of(X, y, of), panels_of(X, of))
    for f, w in zip(found, whole, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-9, atol=1e-10)


def test_a_weight_counts_rows():
    (X, y), of = problem(), actions("by owner")
    F, block = functions(KERNEL, panels_of(X, of), X[:6]), Block(X[:6], y[:6])
    own = at(of, slice(0, 6))
    points = CaGP().at_points(F, block, own)
    factored = CaGP().factor(THETA.noise_variance, points)
    first, once = (CaGP().at_rows(THETA, block, F, factored) for _ in range(2))
    assert_sums_close(CaGP().at_rows(THETA, block, F, factored, 3.0), add(add(first, once), once))


@every_loss
def test_points_may_be_some_rows_alone(loss):
    """Rows that are no points are rows of S that are zero."""
    (X, y), (T, s) = problem(30), (fresh(), THETA.noise_variance)
    chosen = np.sort(np.random.default_rng(5).permutation(30)[:12])
    of = actions("by owner", 12, 4)
    S = np.zeros((30, 4))
    S[chosen] = matrix(of)
    panels = panels_of(X[chosen], of)
    points = [p._replace(weight=None) for p in pieces_of(X[chosen], y[chosen], of, (5,))]
    pieces = [Piece(Block(X[:7], y[:7]), None), *points, Piece(Block(X[7:], y[7:]), None)]
    value, parameters, weights = value_and_gradient(CaGP(loss), THETA, pieces, panels)
    assert value == pytest.approx(LOSSES[loss](KERNEL(X), y, s, S), rel=1e-8)

    everywhere = Weights.dense(S)
    wanted = value_and_gradient(
        CaGP(loss), THETA, pieces_of(X, y, everywhere), panels_of(X, everywhere)
    )
    np.testing.assert_allclose(parameters, wanted[1], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(weights, wanted[2][chosen, of.owner], rtol=1e-8, atol=1e-9)
    state = CaGP(loss).posterior(total_of(CaGP(loss), THETA, pieces, panels).factored, 12)
    found = CaGP(loss).predict(THETA, state, T, panels, "covariance")
    mean, covariance = dense_run(THETA, X, y, S, T)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9, atol=1e-10)
    assert state.points == 12


def test_mini_batches_are_unbiased():
    """The mean over all batches of a partition of the rows is the whole, gradient included."""
    (X, y), of = problem(24), actions("by owner")
    panels = panels_of(X, of)
    points = [p._replace(weight=None) for p in pieces_of(X, y, of)]
    whole = value_and_gradient(CaGP(), THETA, pieces_of(X, y, of), panels)
    found = []
    for batch in np.random.default_rng(0).permutation(24).reshape(6, 4):
        drawn = Piece(Block(X[batch], y[batch]), None, weight=6.0)
        found.append(value_and_gradient(CaGP(), THETA, [drawn, *points], panels))
    assert np.std([value for value, *_ in found]) > 0.1
    for f, w in zip(zip(*found, strict=True), whole, strict=True):
        np.testing.assert_allclose(np.mean(f, axis=0), w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("draws", "wide"), [(32, 20), (3, 4)], ids=["of all rows", "of some"])
def test_mini_batches_that_are_drawn_are_unbiased(monkeypatch, draws, wide):
    monkeypatch.setattr("daskgp.fit.task.DRAWS", draws)
    monkeypatch.setattr("daskgp.fit.task.DRAW_ROWS", wide)
    (X, y), of = problem(20), actions("by owner", 20, 3)
    X[4, 0] = np.nan  # drawn like any other row, and left out
    rows = Rows(X, y, None, ("a", "b"), ("u", "v"))
    units = partition.alone((Span(0, 6), Span(6, 12), Span(12, 20)))
    stage = Rounds(rows, units, identity(2, 2), Executor(None, False))
    pairs = Paired(stage, stage, 19, 2, 3)
    whole = evaluated(CaGP(), pairs, THETA, of)
    found = [evaluated(CaGP(), pairs, THETA, of, (8, seed)) for seed in range(80)]
    for name in ("value", "kernel", "noise", "weights"):
        each = np.array([getattr(f, name) for f in found])
        error = each.std(axis=0) / np.sqrt(len(each))
        assert (error > 0).any()
        distance = np.abs(each.mean(axis=0) - getattr(whole, name))
        assert (distance <= 4 * error + 1e-9).all(), name


@every_loss
def test_rows_alone_are_points_too_and_an_action_per_row_is_the_exact_gp(loss):
    X, y = problem()
    model, theta = CaGP(loss).exact_limit(THETA, X)
    rows = testing.rows_of([Block(X[:15], y[:15]), Block(X[15:], y[15:])])
    state, value = model.solve(theta, rows)
    assert value == pytest.approx(oracle.evidence(KERNEL(X), y, THETA.noise_variance), rel=1e-9)
    objective = model.evaluate(theta, rows)
    assert objective.value == pytest.approx(value, rel=1e-12)

    def of(vector):
        moved = THETA.from_vector(vector)
        return oracle.evidence(moved.kernel(X), y, moved.noise_variance)

    wanted = central_differences(of, THETA.to_vector(False))
    found = [*objective.gradient.kernel, objective.gradient.noise]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert state.points == len(X)
    with pytest.raises(TypeError, match="no actions: give an ActionTheta"):
        model.evaluate(THETA, rows)


# --- gradients


@every_loss
@forms
@pytest.mark.parametrize("p", [1, 2])
def test_gradient_is_that_of_the_dense_definition(loss, form, p):
    (X, y), of = problem(14, p=p), actions(form, 14, 4)
    shape, k = of.values.shape, len(KERNEL.log_parameters)

    def dense(v):
        kernel = KERNEL.with_log_parameters(v[:k])
        S = matrix(Weights(v[k + 1 :].reshape(shape), of.owner, of.count))
        return LOSSES[loss](kernel(X), y, np.exp(v[k]), S)

    logs = [*KERNEL.log_parameters, np.log(THETA.noise_variance)]
    wanted = central_differences(dense, np.concatenate([logs, of.values.ravel()]))
    _, parameters, weights = value_and_gradient(
        CaGP(loss), THETA, pieces_of(X, y, of, (5,)), panels_of(X, of, (8,))
    )
    found = np.concatenate([parameters, weights.ravel()])
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@every_loss
@pytest.mark.parametrize(
    "kernel",
    [
        kernels.RBF(lengthscale=0.5),
        kernels.Matern12(lengthscale=(0.5, 2.0)),
        kernels.Matern52(lengthscale=(0.5, 2.0), variance=2.0),
        kernels.RationalQuadratic(lengthscale=0.8, alpha=0.7),
        kernels.Periodic(lengthscale=1.2, period=2.5),
        0.4 * kernels.Matern32(0.7) * kernels.RBF(1.0, active_dims=(0,)) + 0.2 * kernels.Linear(),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_gradient_for_every_kernel(loss, kernel):
    (X, y), of = problem(18), actions("by owner", 18, 4)
    k = len(kernel.log_parameters)

    def value(v):
        theta = Theta(kernel.with_log_parameters(v[:k]), float(np.exp(v[k])))
        moved = Weights(v[k + 1 :], of.owner, of.count)
        total = total_of(CaGP(loss), theta, pieces_of(X, y, moved), panels_of(X, moved))
        return objective_of(CaGP(loss), total).value

    start = np.concatenate([kernel.log_parameters, [np.log(0.1)], of.values])
    found = value_and_gradient(
        CaGP(loss), Theta(kernel, 0.1), pieces_of(X, y, of), panels_of(X, of)
    )
    wanted = central_differences(value, start)
    np.testing.assert_allclose(np.concatenate(found[1:]), wanted, rtol=1e-6, atol=1e-6)


@every_loss
def test_value_and_gradient_agree_with_automatic_differentiation(loss):
    torch = pytest.importorskip("torch")
    (X, y), of = problem(30, p=2), actions("by owner", 30, 6)
    kernel = kernels.Matern32(lengthscale=(0.7, 1.3), variance=1.4)
    value, parameters, weights = value_and_gradient(
        CaGP(loss), Theta(kernel, 0.2), pieces_of(X, y, of), panels_of(X, of)
    )
    logs, entries = (
        torch.tensor(v, requires_grad=True)
        for v in (np.append(kernel.log_parameters, np.log(0.2)), of.values)
    )
    S = entries[:, None] * torch.tensor(matrix(of) != 0)
    found = _torch_value(torch, loss, logs, S, torch.tensor(X), torch.tensor(y))
    found.backward()
    assert value == pytest.approx(found.item(), rel=1e-9)
    np.testing.assert_allclose(parameters, logs.grad.numpy(), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(weights, entries.grad.numpy(), rtol=1e-7, atol=1e-8)


def _torch_value(torch, loss, logs, S, X, y):
    Normal = torch.distributions.MultivariateNormal
    variance, lengthscale, s = logs[0].exp(), logs[1:3].exp(), logs[3].exp()
    r2 = (((X[:, None] - X[None]) / lengthscale) ** 2).sum(-1)
    r = torch.sqrt(torch.clamp(3 * r2, min=1e-30))
    K, eye = variance * (1 + r) * torch.exp(-r), torch.eye(len(X), dtype=torch.float64)
    if loss == "projected":
        Q, _ = torch.linalg.qr(S)
        C = Q.T @ (K + s * eye) @ Q
        return Normal(torch.zeros(len(C), dtype=torch.float64), C).log_prob((Q.T @ y).T).sum()
    C = S @ torch.linalg.solve(S.T @ (K + s * eye) @ S, S.T)
    prior, value = Normal(torch.zeros(len(X), dtype=torch.float64), K), 0.0
    covariance = K - K @ C @ K
    for target in y.T:
        posterior = Normal(K @ C @ target, 0.5 * (covariance + covariance.T))
        misfit = ((target - posterior.mean) ** 2).sum() + torch.trace(covariance)
        value = value - 0.5 * (misfit / s + len(X) * torch.log(2 * torch.pi * s))
        value = value - torch.distributions.kl_divergence(posterior, prior)
    return value


@forms
def test_the_loss_does_not_depend_on_the_lengths_of_actions(form):
    """So its gradient is orthogonal to each."""
    (X, y), of = problem(), actions(form)
    for loss in LOSSES:
        *_, by_weights = value_and_gradient(
            CaGP(loss), THETA, pieces_of(X, y, of), panels_of(X, of)
        )
        D = matrix(Weights(by_weights, of.owner, of.count))
        assert np.abs(D).max() > 1e-2
        np.testing.assert_allclose((D * matrix(of)).sum(axis=0), 0, atol=1e-8)


# --- laws


@st.composite
def problems(draw, least=1):
    """Rows that may repeat, and actions of either form, fewer than rows."""
    n, seed = draw(st.integers(least, 20)), draw(st.integers(0, 2**16))
    X, y = problem(n, draw(st.integers(1, 3)), draw(st.integers(1, 3)), seed)
    if draw(st.booleans()):
        X[n // 2 :] = X[0]
    form, t = draw(st.sampled_from(["dense", "by owner"])), draw(st.integers(1, n))
    theta = Theta(kernels.Matern52(lengthscale=0.9, variance=1.7), draw(st.floats(1e-3, 2.0)))
    return theta, X, y, actions(form, n, t, seed)


@given(problems())
def test_never_more_certain_than_the_exact_gp_nor_less_than_the_prior(given_):
    theta, X, y, of = given_
    T = np.concatenate([X, fresh(5, X.shape[1])])
    _, found = run(CaGP(), theta, X, y, of, T)
    exact = exact_run(theta, X, y, T)[1]
    assert (found.covariance.diagonal() >= exact.diagonal() - 1e-9).all()
    assert (found.covariance.diagonal() <= theta.kernel.variance * (1 + 1e-12)).all()
    # not only the diagonal: the difference is a covariance
    assert np.linalg.eigvalsh(found.covariance - exact).min() >= -1e-8


@given(problems(least=2), st.data())
def test_variance_falls_with_every_action(given_, data):
    """Proposition S1."""
    theta, X, y, of = given_
    T, S = np.concatenate([X, fresh(5, X.shape[1])]), matrix(of)
    i = data.draw(st.integers(1, of.count))
    _, few = run(CaGP(), theta, X, y, Weights.dense(S[:, :i]), T, "variance")
    _, all_ = run(CaGP(), theta, X, y, of, T, "variance")
    assert (all_.variance <= few.variance + 1e-9).all()


@given(problems(), st.integers(0, 2**16))
def test_the_posterior_and_the_losses_see_the_space_of_the_actions_alone(given_, seed):
    """Lemma S4: S and S W are one."""
    theta, X, y, of = given_
    T, t, rng = fresh(5, X.shape[1]), of.count, np.random.default_rng(seed)
    U, _, V = np.linalg.svd(rng.standard_normal((t, t)))
    S = np.linalg.qr(matrix(of))[0]
    other = Weights.dense(S @ (U * rng.uniform(0.3, 3.0, t)) @ V)
    for loss in LOSSES:
        value, found = run(CaGP(loss), theta, X, y, Weights.dense(S), T)
        same, alike = run(CaGP(loss), theta, X, y, other, T)
        assert same == pytest.approx(value, rel=1e-7, abs=1e-6)
        np.testing.assert_allclose(alike.mean, found.mean, atol=1e-7)
        np.testing.assert_allclose(alike.covariance, found.covariance, atol=1e-7)


@given(problems())
def test_as_many_actions_as_rows_give_the_exact_gp(given_):
    theta, X, y, _ = given_
    n, s, T = len(X), theta.noise_variance, fresh(5, X.shape[1])
    S = np.linalg.qr(np.random.default_rng(n).standard_normal((n, n)))[0]
    mean, covariance = exact_run(theta, X, y, T)
    wanted = oracle.evidence(theta.kernel(X), y, s)
    runs_of_one = Weights(np.full(n, 2.0), np.arange(n), n)
    for loss in LOSSES:
        for of in (Weights.dense(S), runs_of_one):
            value, found = run(CaGP(loss), theta, X, y, of, T)
            assert value == pytest.approx(wanted, rel=1e-7, abs=1e-6)
            np.testing.assert_allclose(found.mean, mean, atol=1e-7)
            np.testing.assert_allclose(found.covariance, covariance, atol=1e-7)


@given(problems())
def test_the_bound_never_exceeds_the_evidence(given_):
    theta, X, y, of = given_
    value, _ = run(CaGP(), theta, X, y, of, X, "mean")
    exact = oracle.evidence(theta.kernel(X), y, theta.noise_variance)
    assert value <= exact + 1e-7 * max(1.0, abs(exact))


@pytest.mark.parametrize("i", [1, 2, 4, 7, 12])
def test_with_residual_actions_the_mean_is_the_iterate_of_conjugate_gradients(i):
    (X, y), T, theta = problem(40, p=1), fresh(), Theta(KERNEL, 1.0)  # CG's own rounding is small
    A = KERNEL(X) + np.eye(40)
    D, _ = residual_directions(lambda V: A @ V, y, i, 0.0)
    _, found = run(CaGP(), theta, X, y, Weights.dense(D), T, "variance")
    v, _ = scipy.sparse.linalg.cg(A, y[:, 0], rtol=0.0, atol=0.0, maxiter=i)
    np.testing.assert_allclose(found.mean[:, 0], KERNEL(T, X) @ v, rtol=1e-7, atol=1e-8)
    assert (found.variance >= exact_run(theta, X, y, T)[1].diagonal() - 1e-10).all()


# --- actions that say nothing


def assert_same_as(found, wanted, X, y, theta=THETA):
    """Two sets of actions whose losses, gradients and posteriors are one."""
    T = fresh()
    for loss in LOSSES:
        model = CaGP(loss)
        (one, same), (other, alike) = (run(model, theta, X, y, of, T) for of in (found, wanted))
        assert one == pytest.approx(other, rel=1e-7)
        np.testing.assert_allclose(same.mean, alike.mean, atol=1e-7)
        np.testing.assert_allclose(same.covariance, alike.covariance, atol=1e-7)
        (_, parameters, weights), (_, others, _) = (
            value_and_gradient(model, theta, pieces_of(X, y, of), panels_of(X, of))
            for of in (found, wanted)
        )
        np.testing.assert_allclose(parameters, others, rtol=1e-6, atol=1e-6)
        assert np.isfinite(weights).all()
        total = total_of(model, theta, pieces_of(X, y, found), panels_of(X, found))
        objective = objective_of(model, total)
        kept = model.posterior(total.factored, len(X)).columns
        dropped = np.setdiff1d(np.arange(found.count), kept)
        assert len(kept) == wanted.count
        assert not objective.cotangent.joint[dropped].any()
        assert not objective.cotangent.joint[:, dropped].any()
        assert not objective.cotangent.cross[dropped].any()


@pytest.mark.parametrize("empty", [0, 2, 5], ids=["first", "between", "last"])
def test_actions_without_points_are_dropped(empty):
    (X, y), of = problem(), actions("by owner")
    owner = of.owner + (of.owner >= empty)
    assert_same_as(Weights(of.values, owner, 6), of, X, y)


def test_actions_that_are_zero_are_dropped():
    (X, y), of = problem(), actions("dense")
    S = np.insert(of.values, [0, 3, 5], 0.0, axis=1)
    assert_same_as(Weights.dense(S), of, X, y)
    found, values = actions("by owner"), actions("by owner").values.copy()
    values[found.owner == 1] = 0.0
    some = matrix(found)[:, [0, 2, 3, 4]]
    assert_same_as(Weights(values, found.owner, 5), Weights.dense(some), X, y)


@pytest.mark.parametrize("scale", [1.0, -3.0, 1e-4])
def test_actions_that_repeat_are_dropped(scale):
    (X, y), of = problem(), actions("dense")
    again = scale * of.values[:, [1, 4]]
    for S in ([of.values, again], [again, of.values], [of.values[:, :3], again, of.values[:, 3:]]):
        assert_same_as(Weights.dense(np.concatenate(S, axis=1)), of, X, y)


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1e6, 1e9])
def test_actions_of_any_length_are_kept(scale):
    (X, y), of = problem(), actions("dense")
    S = of.values.copy()
    S[:, 2] *= scale
    assert_same_as(Weights.dense(S), of, X, y)


def test_collinear_actions_are_dropped():
    (X, y), of = problem(), actions("dense")
    mixed = of.values @ np.random.default_rng(4).standard_normal((5, 3))
    found = np.concatenate([mixed[:, :1], of.values, mixed[:, 1:]], axis=1)
    assert_same_as(Weights.dense(found), of, X, y)


def test_more_actions_than_rows_give_the_exact_gp():
    (X, y), T = problem(8), fresh()
    of = Weights.dense(np.random.default_rng(6).standard_normal((8, 13)))
    for loss in LOSSES:
        value, found = run(CaGP(loss), THETA, X, y, of, T)
        mean, covariance = exact_run(THETA, X, y, T)
        assert value == pytest.approx(oracle.evidence(KERNEL(X), y, 0.1), rel=1e-8)
        np.testing.assert_allclose(found.mean, mean, atol=1e-8)
        np.testing.assert_allclose(found.covariance, covariance, atol=1e-8)


@pytest.mark.parametrize("noise", [1e-4, 1e-6, 1e-8])
@forms
def test_rows_that_repeat_with_tiny_noise(form, noise):
    X, y = problem(12)
    X, y = np.repeat(X, 2, axis=0), np.repeat(y, 2, axis=0)  # K is singular
    of, theta, T = actions(form), Theta(KERNEL, noise), fresh()
    value, found = run(CaGP(), theta, X, y, of, T)
    mean, covariance = dense_run(theta, X, y, matrix(of), T)
    assert np.isfinite(value)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-7)
    one, parameters, weights = value_and_gradient(
        CaGP(), theta, pieces_of(X, y, of), panels_of(X, of)
    )
    assert one == value
    assert np.isfinite(parameters).all()
    assert np.isfinite(weights).all()
    _, there = run(CaGP(), theta, X, y, of, X, "variance")
    assert (there.variance >= -1e-9).all()


def test_opposite_actions_on_rows_that_repeat_leave_the_noise_alone():
    """Their S' K S is zero, S' (K + s I) S is not: an action that says nothing of the function."""
    (X, y), T = problem(12), fresh()
    X, y = np.repeat(X, 2, axis=0), np.repeat(y, 2, axis=0)
    S = np.repeat(matrix(actions("by owner", 12, 4)), 2, axis=0)
    useless = np.zeros((24, 1))
    useless[[6, 7], 0] = 1, -1  # orthogonal to the others, so their noise has nothing in common
    of, both = Weights.dense(S), Weights.dense(np.concatenate([S, useless], axis=1))
    _, found = run(CaGP(), THETA, X, y, both, T)
    _, wanted = run(CaGP(), THETA, X, y, of, T)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-10)
    np.testing.assert_allclose(found.covariance, wanted.covariance, atol=1e-10)


# --- numbers


@every_loss
@forms
def test_float32_tiles_agree_to_their_precision(loss, form):
    (X, y), of, T = problem(200), actions(form, 200, 20), fresh()
    theta = Theta(KERNEL, 0.1)
    value, found = run(CaGP(loss), theta, X, y, of, T, "variance")
    X32, T32 = X.astype(np.float32), T.astype(np.float32)
    narrow, alike = run(CaGP(loss), theta, X32, y, of, T32, "variance")
    assert narrow == pytest.approx(value, rel=1e-4)
    np.testing.assert_allclose(alike.mean, found.mean, atol=1e-3)
    np.testing.assert_allclose(alike.variance, found.variance, atol=1e-3)
    wide = value_and_gradient(CaGP(loss), theta, pieces_of(X, y, of), panels_of(X, of))
    few = value_and_gradient(CaGP(loss), theta, pieces_of(X32, y, of), panels_of(X32, of))
    for f, w in zip(few[1:], wide[1:], strict=True):
        assert np.linalg.norm(f - w) < 1e-3 * np.linalg.norm(w)


def test_inputs_may_be_read_only_and_strided():
    (X, y), of = problem(), actions("by owner")
    wanted = value_and_gradient(CaGP(), THETA, pieces_of(X, y, of), panels_of(X, of))
    strided, fortran = np.repeat(X, 2, axis=0)[::2], np.asfortranarray(y)
    values = of.values.copy()
    for a in (strided, fortran, values, of.owner):
        a.flags.writeable = False
    held = Weights(values, of.owner, of.count)
    found = value_and_gradient(
        CaGP(), THETA, pieces_of(strided, fortran, held), panels_of(strided, held)
    )
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-12, atol=1e-12)


def total_for_errors():
    (X, y), of = problem(), actions("by owner")
    return total_of(CaGP(), THETA, pieces_of(X, y, of), panels_of(X, of))


def test_variances_spoiled_by_rounding_are_an_error_not_a_bound():
    total = total_for_errors()
    spoiled = total._replace(rows=total.rows._replace(gap=-1.0))
    with pytest.raises(NumericalError, match=r"negative beyond rounding .* use dtype='float64'"):
        objective_of(CaGP(), spoiled)


@pytest.mark.parametrize(
    ("variance", "lengthscale", "noise"),
    [(7170.0, (218.0, 300.0), 2e-6), (1e4, 3487.0, 1.2e-3), (1e4, 10.0, 1e-6)],
)
def test_the_bound_keeps_its_digits_where_the_kernel_is_nearly_singular(
    variance, lengthscale, noise
):
    """Training passes there: sums that cancel would promise more than the evidence."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = (np.sin(6 * X[:, 0]) + X[:, 1] + 0.05 * rng.standard_normal(300))[:, None]
    of = actions("by owner", 300, 20)
    kernel = kernels.Matern32(lengthscale=lengthscale, variance=variance)
    found = value_and_gradient(
        CaGP(), Theta(kernel, noise), pieces_of(X, y, of, (70, 171)), panels_of(X, of)
    )
    L = np.linalg.cholesky(kernel(X) + noise * np.eye(300))
    evidence = -0.5 * (np.linalg.solve(L, y) ** 2).sum() - np.log(np.diag(L)).sum()
    assert found[0] <= evidence - 150 * np.log(2 * np.pi) + 1e-6 * abs(evidence)
    wanted = by_rows(kernel, X, y, matrix(of), noise)
    assert found[0] == pytest.approx(wanted, rel=1e-5)


def by_rows(kernel, X, y, S, s):
    """Eq. 11 with nothing that cancels, from a factor of W."""
    K, n, t = kernel(X), len(X), S.shape[1]
    S = S / np.linalg.norm(S, axis=0)
    L = np.linalg.cholesky(S.T @ K @ S + s * S.T @ S)
    A, beta = np.linalg.solve(L, S.T @ K), np.linalg.solve(L, S.T @ y)
    v, e = np.linalg.solve(L.T, beta), y - A.T @ beta
    H = np.linalg.solve(L, np.linalg.solve(L, s * S.T @ S).T)
    misfit = (e**2).sum() + (np.diag(K) - (A**2).sum(axis=0)).sum()
    rest = (beta**2).sum() - s * (v**2).sum() - t + np.trace(H)
    rest += 2 * np.log(np.diag(L)).sum() - np.linalg.slogdet(S.T @ S)[1]
    return -0.5 * float(misfit / s + (n - t) * np.log(s) + n * np.log(2 * np.pi) + rest)


@every_loss
def test_sums_that_are_not_finite_are_an_error(loss):
    points = total_for_errors().points
    points.joint[2, 1] = np.nan
    with pytest.raises(NumericalError, match="the actions' covariance is not finite"):
        CaGP(loss).factor(0.1, points)


@every_loss
def test_actions_that_are_all_zero_are_an_error(loss):
    X, y = problem()
    of = Weights.dense(np.zeros((24, 3)))
    with pytest.raises(NumericalError, match="all actions are zero"):
        total_of(CaGP(loss), THETA, pieces_of(X, y, of), panels_of(X, of))


def test_no_points_to_predict_from_is_an_error():
    state = CaGP().posterior(total_for_errors().factored, 24)
    with pytest.raises(NumericalError, match="no points to predict from"):
        CaGP().predict(THETA, state, fresh(), [], "mean")


def test_only_the_bound_needs_all_rows():
    assert CaGP().needs_rows
    assert not CaGP("projected").needs_rows


def test_the_projected_loss_is_the_same_whether_rows_count_or_not():
    (X, y), of = problem(), actions("by owner")
    panels = panels_of(X, of)
    points = [p._replace(weight=None) for p in pieces_of(X, y, of, (7,))]
    found = value_and_gradient(CaGP("projected"), THETA, points, panels)
    wanted = value_and_gradient(CaGP("projected"), THETA, pieces_of(X, y, of), panels)
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-11, atol=1e-11)
