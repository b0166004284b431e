"""Computation-aware GPs against their dense definitions, and the laws of [CAGP]."""

from unittest import mock

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
from daskgp.models.actions import cagp
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.krylov import residual_directions
from daskgp.models.actions.passes import Paired
from daskgp.models.actions.sums import Panel, functions
from daskgp.models.scaling import identity
from daskgp.models.values import Block, Theta
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread
from daskgp.testing import central_differences
from tests import oracle
from tests.actions import evaluated, solved
from tests.agree import assert_close

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


def pairs_of(X, y, of, cuts=(), chosen=None):
    """Rows, in units cut before some of them; all are points, or those that are chosen."""
    units = [[Block(X[rows], y[rows])] for rows in np.split(np.arange(len(X)), cuts)]
    rows = points = testing.rows_of(*units)
    if chosen is not None:
        points = testing.rows_of([Block(X[chosen], y[chosen])])
    return Paired(rows, points, len(X), y.shape[1], of.count)


def run(model, theta, X, y, of, T, want="covariance"):
    """Value and moments at T where all rows are points."""
    state, value = solved(model, pairs_of(X, y, of), theta, of)
    return value, model.predict(theta, state, T, [Panel(X, of)], want)


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


# --- sums over rows


@given(
    n=st.integers(1, 30),
    t=st.integers(1, 6),
    p=st.integers(1, 3),
    loss=st.sampled_from([*LOSSES]),
    form=st.sampled_from(["dense", "by owner"]),
    cuts=st.lists(st.integers(0, 30), max_size=4).map(sorted),
    panel=st.integers(1, 30),
    seed=st.integers(0, 2**16),
)
def test_any_cut_of_rows_and_points_gives_the_same(n, t, p, loss, form, cuts, panel, seed):
    (X, y), of = problem(n, p=p, seed=seed), actions(form, n, min(n, t), seed)
    whole = evaluated(CaGP(loss), pairs_of(X, y, of), THETA, of)
    with mock.patch.object(cagp, "PANEL_ROWS", panel):
        found = evaluated(CaGP(loss), pairs_of(X, y, of, cuts), THETA, of)
    assert found.value == pytest.approx(LOSSES[loss](KERNEL(X), y, 0.1, matrix(of)), rel=1e-7)
    assert_close(tuple(found), tuple(whole), rtol=1e-8, atol=1e-8)


@every_loss
def test_points_may_be_some_rows_alone(loss):
    """Rows that are no points are rows of S that are zero."""
    (X, y), T, model = problem(30), fresh(), CaGP(loss)
    chosen = np.sort(np.random.default_rng(5).permutation(30)[:12])
    of, last = actions("by owner", 12, 4), np.searchsorted(chosen, np.arange(30), "right") - 1
    everywhere = Weights(np.zeros(30), of.owner[np.maximum(last, 0)], 4)
    everywhere.values[chosen] = of.values
    pairs, S = pairs_of(X, y, of, (7,), chosen), matrix(everywhere)
    found = evaluated(model, pairs, THETA, of)
    assert found.value == pytest.approx(LOSSES[loss](KERNEL(X), y, 0.1, S), rel=1e-8)
    wanted = evaluated(model, pairs_of(X, y, everywhere), THETA, everywhere)
    wanted = wanted._replace(weights=wanted.weights[chosen])
    assert_close(tuple(found), tuple(wanted), rtol=1e-8)
    state, _ = solved(model, pairs, THETA, of)
    moments = model.predict(THETA, state, T, [Panel(X[chosen], of)], "covariance")
    mean, covariance = dense_run(THETA, X, y, S, T)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(moments.covariance, covariance, rtol=1e-9, atol=1e-10)
    assert state.points == 12


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
@pytest.mark.parametrize(
    ("form", "kernel"),
    [
        ("by owner", KERNEL),
        ("dense", KERNEL),
        ("by owner", kernels.RBF(lengthscale=0.5)),
        ("by owner", kernels.Matern12(lengthscale=(0.5, 2.0))),
        ("by owner", kernels.Matern52(lengthscale=(0.5, 2.0), variance=2.0)),
        ("by owner", kernels.RationalQuadratic(lengthscale=0.8, alpha=0.7)),
        ("by owner", kernels.Periodic(lengthscale=1.2, period=2.5)),
        (
            "dense",
            0.4 * kernels.Matern32(0.7) * kernels.RBF(1.0, active_dims=(0,))
            + 0.2 * kernels.Linear(),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_gradient_is_that_of_differences(loss, form, kernel):
    """By the weights too, unless they are dense, which are not learned."""
    (X, y), of, k = problem(18), actions(form, 18, 4), len(kernel.log_parameters)

    def at(v):
        theta = Theta(kernel.with_log_parameters(v[:k]), float(np.exp(v[k])))
        moved = of if form == "dense" else Weights(v[k + 1 :], of.owner, of.count)
        return evaluated(CaGP(loss), pairs_of(X, y, moved), theta, moved)

    learned = [] if form == "dense" else of.values
    start = np.concatenate([kernel.log_parameters, [np.log(0.1)], learned])
    _, through, noise, weights = at(start)
    assert (weights is None) == (form == "dense")
    found = np.concatenate([through, [noise], [] if weights is None else weights])
    wanted = central_differences(lambda v: at(v).value, start)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@every_loss
def test_the_loss_does_not_depend_on_the_lengths_of_actions(loss):
    """So its gradient is orthogonal to each."""
    (X, y), of = problem(), actions("by owner")
    weights = evaluated(CaGP(loss), pairs_of(X, y, of), THETA, of).weights
    assert np.abs(weights).max() > 1e-2
    np.testing.assert_allclose(np.bincount(of.owner, weights * of.values), 0, atol=1e-8)


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


def assert_same_as(found, wanted, X, y):
    """Two sets of actions whose losses, gradients and posteriors are one."""
    T = fresh()
    for loss in LOSSES:
        model = CaGP(loss)
        (one, same), (other, alike) = (run(model, THETA, X, y, of, T) for of in (found, wanted))
        assert one == pytest.approx(other, rel=1e-7)
        np.testing.assert_allclose(same.mean, alike.mean, atol=1e-7)
        np.testing.assert_allclose(same.covariance, alike.covariance, atol=1e-7)
        first, second = (evaluated(model, pairs_of(X, y, of), THETA, of) for of in (found, wanted))
        assert_close(tuple(first)[1:3], tuple(second)[1:3], rtol=1e-6, atol=1e-6)
        assert first.weights is None or np.isfinite(first.weights).all()
        state, _ = solved(model, pairs_of(X, y, found), THETA, found)
        assert len(state.columns) == wanted.count


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
    one = evaluated(CaGP(), pairs_of(X, y, of), theta, of)
    assert one.value == value
    assert np.isfinite(one.kernel).all()
    assert one.weights is None or np.isfinite(one.weights).all()
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
    wide = evaluated(CaGP(loss), pairs_of(X, y, of), theta, of)
    few = evaluated(CaGP(loss), pairs_of(X32, y, of), theta, of)
    for f, w in zip(few[1:], wide[1:], strict=True):
        assert w is None or np.linalg.norm(f - w) < 1e-3 * np.linalg.norm(w)


def sums():
    """Sums over points and over rows, and the factored ones."""
    (X, y), of = problem(), actions("by owner")
    F = functions(KERNEL, [Panel(X, of)], X)
    points = CaGP().at_points(F, Block(X, y), of)
    factored = CaGP().factor(THETA.noise_variance, points)
    return points, factored, CaGP().at_rows(THETA, Block(X, y), F, factored)


def test_variances_spoiled_by_rounding_are_an_error_not_a_bound():
    _, factored, rows = sums()
    with pytest.raises(NumericalError, match=r"negative beyond rounding .* use dtype='float64'"):
        CaGP().objective(factored, rows._replace(gap=-1.0))


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
    theta = Theta(kernel, noise)
    found = evaluated(CaGP(), pairs_of(X, y, of, (70, 171)), theta, of).value
    L = np.linalg.cholesky(kernel(X) + noise * np.eye(300))
    evidence = -0.5 * (np.linalg.solve(L, y) ** 2).sum() - np.log(np.diag(L)).sum()
    assert found <= evidence - 150 * np.log(2 * np.pi) + 1e-6 * abs(evidence)
    wanted = by_rows(kernel, X, y, matrix(of), noise)
    assert found == pytest.approx(wanted, rel=1e-5)


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
    points, *_ = sums()
    points.joint[2, 1] = np.nan
    with pytest.raises(NumericalError, match="the actions' covariance is not finite"):
        CaGP(loss).factor(0.1, points)


@every_loss
def test_actions_that_are_all_zero_are_an_error(loss):
    X, y = problem()
    of = Weights.dense(np.zeros((24, 3)))
    with pytest.raises(NumericalError, match="all actions are zero"):
        solved(CaGP(loss), pairs_of(X, y, of), THETA, of)


def test_no_points_to_predict_from_is_an_error():
    state = CaGP().posterior(sums()[1], 24)
    with pytest.raises(NumericalError, match="no points to predict from"):
        CaGP().predict(THETA, state, fresh(), [], "mean")
