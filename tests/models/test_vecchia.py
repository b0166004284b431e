"""Vecchia against its dense definition: rows drawn one after another, each given its neighbours."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskgp import kernels, testing
from daskgp.arrays import backend
from daskgp.data.partition import Span, Unit
from daskgp.fit.task import TaskRounds
from daskgp.kernels.lengthscales import correlation_lengths
from daskgp.models.exact import Exact
from daskgp.models.markov import vecchia
from daskgp.models.markov.earlier import ranks
from daskgp.models.markov.lma import LMA
from daskgp.models.markov.vecchia import Vecchia
from daskgp.models.values import Block, Shape, Theta, move, variances
from tests import oracle

KERNEL = kernels.Matern32(lengthscale=(0.4, 0.9), variance=1.4)
NOISE = 0.05
N = 40
T = np.random.default_rng(1).uniform(0, 1, (9, 2))


def problem(n=N, d=2, p=1, m=0, seed=0, kernel=KERNEL, s=NOISE, differ=False):
    """Rows, maybe with noise variances of their own, and hyper-parameters."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    y = np.sin(5 * X @ np.ones((d, p)) + np.arange(p)) + 0.1 * rng.standard_normal((n, p))
    noise = np.column_stack([rng.uniform(0.5, 2, n), rng.uniform(0, 0.3, n)]) if differ else None
    return Block(X, y, noise), Theta(kernel, s, rng.uniform(0, 1, (m, d)) if m else None)


def noises(theta, rows):
    return np.broadcast_to(variances(theta.noise_variance, rows.noise), len(rows.X))


def scaled(theta, X, spread):
    """Inputs in units of distance."""
    return X / correlation_lengths(theta.kernel, spread)


def line_of(model, theta, rows):
    """Rows in their order, and for each the rows that it is conditioned on, by brute force."""
    rank = ranks(np.arange(len(rows.X)), model.seed, model.later)
    points = scaled(theta, rows.X, np.ptp(rows.X, axis=0))
    line = np.argsort(rank)
    near = []
    for place, i in enumerate(line):
        before = line[:place]
        away = np.linalg.norm(points[before] - points[i], axis=1)
        near.append(before[np.argsort(away)[: model.n_neighbours]])
    return line, near


def residual(theta, X, noise):
    if theta.inputs is None:
        return theta.kernel(X) + np.diag(noise)
    return oracle.residual(theta.kernel, X, theta.inputs, noise)


def low_rank(theta, X):
    if theta.inputs is None:
        return np.zeros((len(X), len(X)))
    return oracle.nystrom(theta.kernel, X, theta.inputs, 1e-8)


def covariance(model, theta, rows, places=None, jointly=False, held=None):
    """Covariance of rows, and of places, which are drawn last given their nearest rows.

    ``held`` is the order and the neighbours, if they are not those of ``theta``.
    """
    n, places = len(rows.X), np.zeros((0, rows.X.shape[1])) if places is None else places
    both = np.concatenate([rows.X, places])
    line, near = held or line_of(model, theta, rows)
    groups, spread = [np.array([i]) for i in line], np.ptp(rows.X, axis=0)
    points, at = scaled(theta, rows.X, spread), scaled(theta, places, spread)
    nearest = [
        np.argsort(np.linalg.norm(points - one, axis=1))[: model.predict_neighbours] for one in at
    ]
    if jointly:
        groups.append(n + np.arange(len(places)))
        near = [*near, np.unique(np.concatenate(nearest))]
    else:
        groups += [np.array([n + i]) for i in range(len(places))]
        near = [*near, *nearest]
    noise = np.concatenate([noises(theta, rows), np.zeros(len(places))])
    R = residual(theta, both, noise)
    return oracle.sequential_completion(R, groups, near) + low_rank(theta, both)


def given_all(rows):
    return testing.rows_of([rows])


def posterior(model, theta, rows, places=T, want="variance", stage=None):
    """Posterior at places given all rows."""
    state, _ = model.solve(theta, stage or given_all(rows))
    near = model.condition(theta, state, [rows])
    return model.predict(theta, state, places, near, want)


def close(found, wanted, tolerance=1e-10):
    size = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * size)


WAYS = pytest.mark.parametrize(
    ("m", "p", "differ"), [(0, 1, False), (0, 3, True), (6, 1, True), (6, 2, False)]
)


# -- the evidence ----------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("k", [1, 4, 12])
@WAYS
def test_evidence_is_that_of_rows_drawn_one_after_another(k, m, p, differ):
    rows, theta = problem(p=p, m=m, differ=differ)
    model = Vecchia(n_neighbours=k)
    C = covariance(model, theta, rows)
    found = model.evaluate(theta, given_all(rows))
    assert found.value == pytest.approx(oracle.evidence(C, rows.y, 0.0), rel=1e-8)
    assert model.value(theta, given_all(rows)) == pytest.approx(found.value, rel=1e-12)


@pytest.mark.whole
@WAYS
def test_gradient_is_that_of_the_evidence_with_the_neighbours_held(m, p, differ):
    rows, theta = problem(p=p, m=m, differ=differ)
    model = Vecchia(n_neighbours=4)
    held = line_of(model, theta, rows)

    def dense(vector):
        C = covariance(model, theta.from_vector(vector), rows, held=held)
        return oracle.evidence(C, rows.y, 0.0)

    wanted = testing.central_differences(dense, theta.to_vector(with_inputs=True))
    found = model.evaluate(theta, given_all(rows)).gradient.to_vector(with_inputs=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("m", [0, 6])
def test_a_trend_leaves_the_evidence_of_contrasts(m):
    rows, theta = problem(p=2, m=m)
    H = np.column_stack([np.ones(N), rows.X - rows.X.mean(axis=0)])
    model = Vecchia(n_neighbours=5, trend=3)
    A = np.linalg.qr(H, mode="complete")[0][:, 3:]
    held = line_of(model, theta, rows)

    def dense(vector):
        C = covariance(model, theta.from_vector(vector), rows, held=held)
        return oracle.evidence(A.T @ C @ A, A.T @ rows.y, 0.0)

    found = model.evaluate(theta, given_all(rows._replace(y=np.hstack([rows.y, H]))))
    vector = theta.to_vector(with_inputs=True)
    wanted = testing.central_differences(dense, vector)
    gradient = found.gradient.to_vector(with_inputs=True)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.whole
@pytest.mark.parametrize("k", [N - 1, N + 20])
@WAYS
def test_with_all_earlier_rows_the_method_is_the_exact_gp(k, m, p, differ):
    rows, theta = problem(p=p, m=m, differ=differ)
    model = Vecchia(n_neighbours=k, predict_neighbours=N, jitter=1e-10)
    plain = Theta(KERNEL, NOISE)
    evidence, slope = testing.value_and_gradient(Exact(), plain, *rows[:2], noise=rows.noise)
    found = model.evaluate(theta, given_all(rows))
    tolerance = 1e-7 if m else 1e-10
    close(found.value, evidence, tolerance)
    vector = found.gradient.to_vector(with_inputs=True)
    close(vector[: len(slope)], slope, tolerance)
    close(vector[len(slope) :], 0.0, 1e-5)  # support inputs no longer matter
    C = KERNEL(rows.X) + np.diag(noises(theta, rows))
    mean, cov = oracle.posterior(C, KERNEL(T, rows.X), KERNEL(T), rows.y, 0.0)
    for want, value in (("variance", np.diag(cov)), ("covariance", cov)):
        moments = posterior(model, theta, rows, want=want)
        close(moments.mean, mean, tolerance)
        close(getattr(moments, want), value, tolerance)
    close(posterior(model, theta, rows, want="mean").mean, mean, tolerance)


def test_more_neighbours_come_closer_to_the_exact_gp():
    rows, theta = problem(n=80)
    L = np.linalg.cholesky(KERNEL(rows.X) + NOISE * np.eye(80))
    rows = rows._replace(y=L @ np.random.default_rng(3).standard_normal((80, 200)))
    exact = oracle.evidence(KERNEL(rows.X), rows.y, NOISE)
    lost = [exact - Vecchia(n_neighbours=k).value(theta, given_all(rows)) for k in (2, 5, 15, 79)]
    assert lost[0] > lost[1] > lost[2] > abs(lost[3])


def test_it_is_lma_with_blocks_of_one_row():
    rows, theta = problem(m=6, p=2, differ=True)
    model, lma = Vecchia(n_neighbours=4), LMA()
    prepared, total = lma.prepare(theta), None
    line, near = line_of(model, theta, rows)
    for i, given_rows in zip(line, near, strict=True):
        one = lma.local(prepared, rows.at([i]), [rows.at(given_rows)] if len(given_rows) else [])
        total = one if total is None else lma.combine(total, one)
    state = lma.posterior(prepared, total)
    found, value = model.solve(theta, given_all(rows))
    assert value == pytest.approx(lma.objective(prepared, total).value, rel=1e-10)
    for name in state._fields:
        close(getattr(found, name), getattr(state, name), 1e-7)


# -- cuts ------------------------------------------------------------------------------------


def cut(rows, edges, near=False):
    """The rows in units, each of which may have all others near it."""
    spans = [Span(a, b) for a, b in zip([0, *edges], [*edges, len(rows.X)], strict=True)]
    whole = TaskRounds.of([[rows.at(slice(*span)) for span in spans]])
    units = [
        Unit(span, near=tuple(other for other in spans if other != span) if near else ())
        for span in spans
    ]
    return TaskRounds(whole.source, tuple(units))


@settings(max_examples=15)
@given(
    edges=st.lists(st.integers(0, N), max_size=5).map(sorted),
    m=st.sampled_from([0, 5]),
    near=st.booleans(),
    differ=st.booleans(),
)
def test_any_cut_gives_the_same_sums(edges, m, near, differ):
    rows, theta = problem(m=m, differ=differ)
    model = Vecchia(n_neighbours=4)
    stages = given_all(rows), cut(rows, edges, near)
    whole, parts = (model.evaluate(theta, stage) for stage in stages)
    assert parts.value == pytest.approx(whole.value, rel=1e-12)
    one, other = (e.gradient.to_vector(with_inputs=True) for e in (whole, parts))
    np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-10 * np.abs(one).max())


def test_candidates_are_the_first_rows_and_those_near(monkeypatch):
    rows, theta = problem()
    model = Vecchia(n_neighbours=N)
    monkeypatch.setattr(vecchia, "FIRST", 8)
    stage = cut(rows, (10, 25))
    first = model.first(stage)
    rank = ranks(np.arange(N), model.seed)
    assert set(first.places) == set(np.argsort(rank)[:8])
    for name, part in zip(("X", "y"), first[1:3], strict=True):
        np.testing.assert_array_equal(part, getattr(rows, name)[first.places])
    units, near = ((0, 10), (10, 25), (25, N)), []
    for own in units:
        for i in range(*own):
            there = np.union1d(np.arange(*own), first.places)
            near.append(there[rank[there] < rank[i]])
    line = np.argsort(rank)
    held = line, [near[i] for i in line]
    C = covariance(model, theta, rows, held=held)
    assert model.value(theta, stage) == pytest.approx(oracle.evidence(C, rows.y, 0.0), rel=1e-9)


def test_the_first_rows_do_not_depend_on_cuts(monkeypatch):
    rows, _ = problem(differ=True)
    monkeypatch.setattr(vecchia, "FIRST", 11)
    whole = Vecchia(seed=3).first(given_all(rows))
    for edges in ((7,), (1, 2, 30), tuple(range(N))):
        found = Vecchia(seed=3).first(cut(rows, edges))
        for a, b in zip(found, whole, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("enough", [0.5, 1.1, 3.0])
def test_the_first_rows_are_the_same_whatever_their_ranks_are_expected_to_be(monkeypatch, enough):
    """With half as many expected there are too few, and all rows are looked at again."""
    rows, _ = problem(differ=True)
    monkeypatch.setattr(vecchia, "FIRST", 11)
    wanted = np.sort(np.argsort(ranks(np.arange(N), 0))[:11])
    monkeypatch.setattr(vecchia, "ENOUGH", enough)
    found = Vecchia().first(cut(rows, (7, 30)))
    np.testing.assert_array_equal(found.places, wanted)
    np.testing.assert_array_equal(found.X, rows.X[wanted])


def test_tasks_hand_on_few_rows_beside_the_first(monkeypatch):
    rows, _ = problem(n=4_000)
    monkeypatch.setattr(vecchia, "FIRST", 500)
    handed, least = [], vecchia._least
    monkeypatch.setattr(vecchia, "_least", lambda *a: handed.append(len(a[1].places)) or least(*a))
    assert len(Vecchia().first(cut(rows, (1_000, 2_000))).places) == 500
    assert max(handed) < 600


# -- predictions -----------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("number", [1, 7, N])
@WAYS
def test_predictions_are_those_of_places_drawn_last(number, m, p, differ):
    rows, theta = problem(p=p, m=m, differ=differ)
    model = Vecchia(n_neighbours=5, predict_neighbours=number)
    for jointly in (False, True):
        S = covariance(model, theta, rows, T, jointly)
        mean, cov = oracle.posterior(S[:N, :N], S[N:, :N], S[N:, N:], rows.y, 0.0)
        if jointly:
            found = posterior(model, theta, rows, want="covariance")
            close(found.covariance, cov, 1e-8)
        else:
            found = posterior(model, theta, rows)
            close(found.variance, np.diag(cov), 1e-8)
        close(found.mean, mean, 1e-8)


def test_a_place_at_a_row_is_what_was_seen_there():
    rows, theta = problem(s=1e-6)
    found = posterior(Vecchia(), theta, rows, rows.X)
    np.testing.assert_allclose(found.mean, rows.y, atol=1e-3)
    assert (found.variance > 0).all()
    assert found.variance.max() < 2e-6
    C = KERNEL(rows.X)
    mean, cov = oracle.posterior(C, C, C, rows.y, 1e-6)
    np.testing.assert_allclose(found.variance, np.diag(cov), rtol=1e-5)
    np.testing.assert_allclose(found.mean, mean, atol=1e-7)


@pytest.mark.parametrize("m", [0, 5])
def test_repeated_rows_and_places(m):
    rows, theta = problem(m=m)
    rows = Block(*(np.concatenate([a, a[:12], a[:12] + 0.01 * i]) for i, a in enumerate(rows[:2])))
    rows.X[52:] = rows.X[:12]
    places = np.concatenate([rows.X[:3], rows.X[:3], T[:2], T[:2]])
    found = posterior(Vecchia(predict_neighbours=64, n_neighbours=63), theta, rows, places)
    mean, cov = oracle.posterior(
        KERNEL(rows.X), KERNEL(places, rows.X), KERNEL(places), rows.y, NOISE
    )
    close(found.mean, mean, 1e-6)
    close(found.variance, np.diag(cov), 1e-6)
    few = posterior(Vecchia(predict_neighbours=2, n_neighbours=2), theta, rows, places)
    assert np.isfinite(few.mean).all()
    assert (few.variance > 0).all()
    if not m:
        assert (few.variance <= KERNEL.variance * (1 + 1e-12)).all()


@pytest.mark.parametrize("m", [0, 5])
def test_far_places_are_marked_where_nothing_is_said_of_them(m):
    rows, theta = problem(kernel=kernels.RBF(0.3), m=m)
    places = np.array([[0.5, 0.5], [9.0, 9.0], [-5.0, 0.5]])
    for want in ("mean", "variance"):
        found = posterior(Vecchia(n_neighbours=5), theta, rows, places, want)
        np.testing.assert_array_equal(found.far, [False, True, True])
    np.testing.assert_allclose(found.mean[1:], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.variance[1:], 1.0, rtol=1e-10)


@pytest.mark.parametrize("noise", [1.0, 30.0])
def test_places_among_rows_are_not_far_however_noisy_these_are(noise):
    rows, theta = problem(s=noise)
    assert not posterior(Vecchia(), theta, rows).far.any()


@pytest.mark.parametrize("m", [0, 12])
def test_neighbouring_places_are_correlated_as_in_the_exact_gp(m):
    rows, theta = problem(n=300, kernel=kernels.Matern32(0.3), m=m)
    rng = np.random.default_rng(2)
    for one in rng.uniform(0.1, 0.9, (5, 2)):
        pair = one + np.array([[-0.02, 0.0], [0.02, 0.0]])
        found = posterior(Vecchia(), theta, rows, pair, "covariance").covariance
        _, wanted = oracle.posterior(
            theta.kernel(rows.X), theta.kernel(pair, rows.X), theta.kernel(pair), rows.y, NOISE
        )
        np.testing.assert_allclose(found, wanted, rtol=0.03)
        np.testing.assert_array_equal(found, found.T)


@settings(max_examples=30)
@given(
    n=st.integers(1, 40),
    d=st.integers(1, 3),
    m=st.sampled_from([0, 1, 7]),
    k=st.integers(1, 6),
    number=st.integers(1, 9),
    seed=st.integers(0, 2**16),
    duplicated=st.booleans(),
    noise=st.floats(1e-4, 2.0),
)
def test_variances_lie_between_nothing_and_the_prior(n, d, m, k, number, seed, duplicated, noise):
    kernel = kernels.Matern52(lengthscale=0.4, variance=1.7)
    rows, theta = problem(n, d, 2, m, seed, kernel, noise)
    if duplicated:
        rows.X[n // 2 :] = rows.X[0]
    model = Vecchia(n_neighbours=k, predict_neighbours=number)
    evaluation = model.evaluate(theta, given_all(rows))
    assert np.isfinite(evaluation.value)
    assert np.isfinite(evaluation.gradient.to_vector(with_inputs=True)).all()
    places = np.concatenate([rows.X, np.random.default_rng(seed).uniform(-0.5, 1.5, (6, d))])
    found = posterior(model, theta, rows, places)
    assert (found.variance > -1e-7).all()
    assert (found.variance <= 1.7 * (1 + 1e-7)).all()
    full = posterior(model, theta, rows, places, "covariance").covariance
    assert np.linalg.eigvalsh(full).min() > -1e-6


# -- leave-one-out ---------------------------------------------------------------------------


@pytest.mark.whole
@WAYS
def test_without_a_row_it_is_the_fit_to_the_others(m, p, differ):
    rows, theta = problem(p=p, m=m, differ=differ)
    model = Vecchia(n_neighbours=N, predict_neighbours=N)
    state, _ = model.solve(theta, given_all(rows))
    found = model.loo(theta, state, rows, model.condition(theta, state, [rows]))
    assert found.noisy
    for i in (0, 13, N - 1):
        rest = np.arange(N) != i
        own, others = rows.at([i]), rows.at(rest)
        one = posterior(model, theta, others, own.X)
        close(found.mean[[i]], one.mean, 1e-7)
        close(found.variance[[i]], one.variance + noises(theta, own), 1e-7)


def test_without_a_row_a_few_neighbours_are_those_of_others():
    rows, theta = problem(p=2, differ=True)
    model = Vecchia(n_neighbours=5, predict_neighbours=6)
    state, _ = model.solve(theta, given_all(rows))
    found = model.loo(theta, state, rows, model.condition(theta, state, [rows]))
    for i in range(N):
        others = rows.at(np.arange(N) != i)
        near = model.condition(theta, state, [others])
        one = model.predict(theta, state, rows.X[[i]], near, "variance")
        close(found.mean[[i]], one.mean, 1e-9)
        close(found.variance[[i]], one.variance + noises(theta, rows.at([i])), 1e-9)


def test_copies_of_a_row_stay_when_it_goes():
    rows, theta = problem()
    rows.X[20:30] = rows.X[:10]
    model = Vecchia(n_neighbours=N, predict_neighbours=3)
    state, _ = model.solve(theta, given_all(rows))
    found = model.loo(theta, state, rows, model.condition(theta, state, [rows]))
    for i in (3, 23):
        others = rows.at(np.arange(N) != i)
        near = model.condition(theta, state, [others])
        one = model.predict(theta, state, rows.X[[i]], near, "variance")
        close(found.mean[[i]], one.mean, 1e-9)


def test_the_only_row_leaves_the_prior():
    rows, theta = problem(n=1)
    model = Vecchia()
    state, _ = model.solve(theta, given_all(rows))
    found = model.loo(theta, state, rows, model.condition(theta, state, [rows]))
    close(found.mean, np.zeros((1, 1)))
    close(found.variance, [KERNEL.variance + NOISE])


# -- columns and arrays of every kind --------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.Matern52(0.5, variance=2.0) * kernels.Periodic(lengthscale=1.2, period=0.8),
        kernels.RationalQuadratic(lengthscale=0.5, alpha=0.7) + kernels.Constant(0.3),
        kernels.RBF(0.5, active_dims=(0,)),
        kernels.Constant(0.7) + kernels.Linear(variance=0.3),
    ],
    ids=["periodic", "sum", "one column", "no length"],
)
@pytest.mark.parametrize("m", [0, 5])
def test_kernels_of_every_kind(kernel, m):
    rows, theta = problem(m=m, kernel=kernel, s=0.1)
    k, n = N, len(rows.X)
    found = Vecchia(n_neighbours=k, predict_neighbours=n).value(theta, given_all(rows))
    wanted = oracle.evidence(kernel(rows.X), rows.y, 0.1)
    assert found == pytest.approx(wanted, rel=1e-6)
    testing.check_gradient(Vecchia(n_neighbours=N), theta, *rows[:2])
    few = posterior(Vecchia(n_neighbours=3, predict_neighbours=4), theta, rows)
    assert np.isfinite(few.mean).all()


def test_float32_rows_agree_to_their_precision():
    rows, theta = problem(m=5)
    narrow, model = rows._replace(X=rows.X.astype(np.float32)), Vecchia(n_neighbours=6)
    a, b = (model.evaluate(theta, given_all(one)) for one in (rows, narrow))
    assert b.value == pytest.approx(a.value, rel=1e-4)
    one, other = (posterior(model, theta, r, T.astype(r.X.dtype)) for r in (rows, narrow))
    np.testing.assert_allclose(other.mean, one.mean, atol=1e-3)
    np.testing.assert_allclose(other.variance, one.variance, atol=1e-3)


@pytest.mark.whole
@pytest.mark.usefixtures("gpu")
@WAYS
def test_arrays_of_a_device_give_the_same(m, p, differ):
    rows, theta = problem(p=p, m=m, differ=differ)
    model, units = Vecchia(n_neighbours=5, predict_neighbours=8), [[rows.at(slice(0, 17))]]
    units.append([rows.at(slice(17, N))])
    here, there = (TaskRounds.of(units, device=name) for name in ("cpu", "gpu"))
    a, b = (model.evaluate(theta, stage) for stage in (here, there))
    assert b.value == pytest.approx(a.value, rel=1e-10)
    one, other = (e.gradient.to_vector(with_inputs=True) for e in (a, b))
    np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-8)
    state, _ = model.solve(theta, here)
    near = model.condition(theta, state, [rows])
    moved, theta_there = move(state, "gpu"), move(theta, "gpu")
    near_there = model.condition(theta_there, moved, [move(rows, "gpu")])
    places = np.concatenate([T, rows.X[:2], [[9.0, 9.0]]])
    for want in ("mean", "variance", "covariance"):
        wanted = model.predict(theta, state, places, near, want)
        found = model.predict(theta_there, moved, move(places, "gpu"), near_there, want)
        for name, value in wanted._asdict().items():
            if value is not None and name != "noisy":
                np.testing.assert_allclose(
                    backend.to_host(getattr(found, name)), value, rtol=1e-8, atol=1e-9
                )
    wanted = model.loo(theta, state, rows, near)
    found = model.loo(theta_there, moved, move(rows, "gpu"), near_there)
    close(backend.to_host(found.mean), wanted.mean, 1e-8)
    close(backend.to_host(found.variance), wanted.variance, 1e-8)


# -- sizes -----------------------------------------------------------------------------------


def test_footprints_grow_with_what_costs():
    model = Vecchia()
    sizes = Shape(1_000_000, 3, 1, 2_048, 256, 8, 3, 9 * 2_048, 2_048)
    base = model.footprint(sizes)
    assert all(value > 0 for value in base)
    more = {
        "rows": ("operations", "state"),
        "block_rows": ("task",),
        "inputs": ("task", "stats", "solve", "state", "operations", "predict", "shared"),
        "window_rows": ("task",),
        "near_rows": ("predict",),
        "targets": ("task", "stats", "state"),
    }
    for field, names in more.items():
        grown = model.footprint(sizes._replace(**{field: 2 * getattr(sizes, field)}))
        assert all(a >= b for a, b in zip(grown, base, strict=True)), field
        assert all(getattr(grown, name) > getattr(base, name) for name in names), field
    few = partial(model.footprint, sizes._replace(inputs=0))
    assert few().solve == 0
    assert few().operations < 0.5 * base.operations
    assert Vecchia(n_neighbours=60).footprint(sizes).operations > 1.9 * base.operations
