"""LMA against its dense definition: [LMA] eqs. 1-4, Theorem 1, and the joint Gaussian it is."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskgp import kernels, testing
from daskgp.models.exact import Exact
from daskgp.models.markov.lma import LMA, markov_covariance
from daskgp.models.values import Across, Block, Shape, Theta
from tests import oracle
from tests.measured import peak

KERNEL = kernels.Matern32(lengthscale=(0.4, 0.9), variance=1.4) + kernels.Linear(variance=0.3)
SIZES = (9, 4, 7, 1, 8, 5)
NOISE = 0.05


def problem(sizes=SIZES, d=2, p=2, m=5, seed=0, kernel=KERNEL, noise=NOISE):
    """Rows in a line, cut into blocks, and hyper-parameters."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (sum(sizes), d))
    X = X[np.argsort(X[:, 0])]
    y = np.sin(5 * X @ np.ones((d, p)) + np.arange(p)) + 0.1 * rng.standard_normal((len(X), p))
    return X, y, Theta(kernel, noise, rng.uniform(0, 1, (m, d)))


def cut(sizes):
    """Indices of the rows of each block."""
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


def following(count, order):
    """What [LMA] Definition 1 conditions each block on."""
    return [tuple(range(i + 1, min(i + 1 + order, count))) for i in range(count)]


def earlier(count, number, seed=0):
    """Some of the blocks before each: windows of no regular shape."""
    rng = np.random.default_rng(seed)
    return [tuple(np.sort(rng.permutation(i)[:number]).tolist()) for i in range(count)]


def around(count, reach):
    return [tuple(range(max(0, i - reach), min(i + reach + 1, count))) for i in range(count)]


def fit(theta, X, y, rows, near, model=None):
    """Prepared, total, state, log evidence and gradient."""
    model = model or LMA()
    prepared, blocks = model.prepare(theta), [Block(X[i], y[i]) for i in rows]
    total = None
    for i, block in enumerate(blocks):
        found = model.local(prepared, block, [blocks[j] for j in near[i]])
        total = found if total is None else model.combine(total, found)
    objective = model.objective(prepared, total)
    gradient = objective.gradient.to_vector(with_inputs=True)
    for i, block in enumerate(blocks):
        given = [blocks[j] for j in near[i]]
        through = model.local_vjp(prepared, block, objective.cotangent, given)
        gradient = gradient + through.to_vector(with_inputs=True)
    return model.posterior(prepared, total), objective.value, gradient


def predict(theta, state, X, y, rows, given, T, want="covariance", model=None):
    """Posterior at T given the blocks ``given``."""
    model = model or LMA()
    blocks = [Block(X[rows[j]], y[rows[j]]) for j in given]
    return model.predict(theta, state, T, model.condition(theta, state, blocks), want)


def dense_evidence(theta, X, y, completed):
    Q = oracle.nystrom(theta.kernel, X, theta.inputs, 1e-8)
    return oracle.evidence(Q + completed, y, 0.0)


def dense_residual(theta, X):
    return oracle.residual(theta.kernel, X, theta.inputs, theta.noise_variance)


# -- the evidence ----------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1, 2, 3, len(SIZES) - 1])
@pytest.mark.parametrize("p", [1, 2])
def test_evidence_is_that_of_the_markov_completion(order, p):
    X, y, theta = problem(p=p)
    rows = cut(SIZES)
    _, value, _ = fit(theta, X, y, rows, following(len(rows), order))
    completed = oracle.markov_completion(dense_residual(theta, X), rows, order)
    assert value == pytest.approx(dense_evidence(theta, X, y, completed), rel=1e-8)


@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_evidence_with_any_earlier_blocks_is_that_of_rows_drawn_one_after_another(number):
    X, y, theta = problem()
    rows = cut(SIZES)
    near = earlier(len(rows), number)
    _, value, _ = fit(theta, X, y, rows, near)
    completed = oracle.sequential_completion(dense_residual(theta, X), rows, near)
    assert value == pytest.approx(dense_evidence(theta, X, y, completed), rel=1e-8)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_completion_of_a_band_is_both_of_its_definitions(order):
    X, _, theta = problem()
    rows, R = cut(SIZES), dense_residual(theta, X)
    completed = oracle.markov_completion(R, rows, order)
    count = len(rows)
    backwards = [tuple(range(max(0, i - order), i)) for i in range(count)]
    by_sequence = oracle.sequential_completion(R, rows, backwards)
    np.testing.assert_allclose(by_sequence, completed, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        markov_covariance(R.copy(), SIZES, order), completed, rtol=1e-9, atol=1e-12
    )


def test_blocks_one_after_another_in_either_direction_are_one_model():
    """Conditioning on the blocks after is conditioning on those before, for a band."""
    X, y, theta = problem()
    rows = cut(SIZES)
    for order in (1, 2):
        before = [tuple(range(max(0, i - order), i)) for i in range(len(rows))]
        _, a, gradient = fit(theta, X, y, rows, following(len(rows), order))
        _, b, other = fit(theta, X, y, rows, before)
        assert a == pytest.approx(b, rel=1e-11)
        np.testing.assert_allclose(gradient, other, rtol=1e-8, atol=1e-8)


# -- Theorem 1 -------------------------------------------------------------------------------


def divergence(R, precision):
    """D_KL(R, R-hat) of [LMA] Theorem 1 with precision = R-hat^-1."""
    product = R @ precision
    return 0.5 * (np.trace(product) - np.linalg.slogdet(product).logabsdet - len(R))


def band(rows, order):
    """Whether a pair of rows lies in the B-block band."""
    own = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    return np.abs(own[:, None] - own) <= order


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_the_inverse_is_banded_and_the_band_is_exact(order):
    X, _, theta = problem()
    rows, R = cut(SIZES), dense_residual(theta, X)
    inside = band(rows, order)
    completed = markov_covariance(R.copy(), SIZES, order)
    np.testing.assert_array_equal(completed[inside], R[inside])
    precision = np.linalg.inv(completed)
    assert np.abs(precision[~inside]).max() < 1e-10 * np.abs(precision).max()
    assert np.linalg.eigvalsh(completed).min() > 0


@pytest.mark.parametrize("order", [0, 1, 2])
def test_no_other_banded_inverse_is_nearer_to_the_residual(order):
    X, _, theta = problem()
    rows, R = cut(SIZES), dense_residual(theta, X)
    inside, rng = band(rows, order), np.random.default_rng(0)
    precision = np.linalg.inv(markov_covariance(R.copy(), SIZES, order))
    best = divergence(R, precision)
    half = np.linalg.cholesky(precision)
    tried = 0
    for size in (1e-3, 1e-2, 0.1, 0.5):
        for _ in range(10):
            noise = rng.standard_normal(R.shape) / len(R)
            other = precision + np.where(inside, size * half @ (noise + noise.T) @ half.T, 0.0)
            if np.linalg.eigvalsh(other).min() > 0:
                tried += 1
                assert divergence(R, other) > best
    assert tried > 20
    # completions of other residuals are members of the family too
    for noise in (0.5, 1.1, 2.0):
        other = dense_residual(Theta(KERNEL, noise * NOISE, theta.inputs[:4]), X)
        assert divergence(R, np.linalg.inv(markov_covariance(other, SIZES, order))) > best


def test_the_divergence_falls_with_the_order_to_nothing():
    X, _, theta = problem()
    R = dense_residual(theta, X)
    found = [
        divergence(R, np.linalg.inv(markov_covariance(R.copy(), SIZES, order)))
        for order in range(len(SIZES))
    ]
    assert all(a > b for a, b in itertools.pairwise(found))
    assert abs(found[-1]) < 1e-9


# -- predictions -----------------------------------------------------------------------------


def places_in(rows, X, seed=1):
    """Test inputs of each block: some in it, one where rows are, none for the third."""
    rng = np.random.default_rng(seed)
    places = []
    for i, own in enumerate(rows):
        low, high = X[own, 0].min(), X[own, 0].max()
        T = rng.uniform(0, 1, (0 if i == 2 else 2 + i, X.shape[1]))
        T[:, 0] = rng.uniform(low, high, len(T))
        places.append(np.concatenate([T, X[own[:1]]]) if i == 1 else T)
    return places


@pytest.mark.parametrize("order", [0, 1, 2, 3, len(SIZES) - 1])
def test_the_papers_prediction_is_its_equations_3_and_4(order):
    X, y, theta = problem()
    rows, count = cut(SIZES), len(SIZES)
    places = places_in(rows, X)
    U = np.split(len(X) + np.arange(sum(map(len, places))), np.cumsum([*map(len, places)])[:-1])
    both = np.concatenate([X, *places])
    noise = np.where(np.arange(len(both)) < len(X), NOISE, 0.0)
    R = oracle.residual(KERNEL, both, theta.inputs, noise)
    V = [np.concatenate(pair) for pair in zip(rows, U, strict=True)]
    completed = oracle.markov_completion(R, V, order, rows)
    S = completed + oracle.nystrom(KERNEL, both, theta.inputs, 1e-8)
    D = np.arange(len(X))
    model = LMA(order, "paper")
    state, _, _ = fit(theta, X, y, rows, following(count, order), model)
    for i, given_blocks in enumerate(around(count, order)):
        S_UD = S[np.ix_(U[i], D)]
        mean, cov = oracle.posterior(S[np.ix_(D, D)], S_UD, S[np.ix_(U[i], U[i])], y, 0.0)
        found = predict(theta, state, X, y, rows, given_blocks, places[i], model=model)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(found.covariance, cov, rtol=1e-8, atol=1e-9)
        marginal = predict(theta, state, X, y, rows, given_blocks, places[i], "variance", model)
        np.testing.assert_allclose(marginal.variance, np.diag(cov), rtol=1e-8, atol=1e-9)


def joint(theta, X, rows, near, places, given_blocks):
    """Covariance of training rows and test inputs: the latter are drawn last, given some blocks.

    Test inputs are independent of all else given those, in the residual.
    """
    U = np.split(len(X) + np.arange(sum(map(len, places))), np.cumsum([*map(len, places)])[:-1])
    both = np.concatenate([X, *places])
    noise = np.where(np.arange(len(both)) < len(X), theta.noise_variance, 0.0)
    R = oracle.residual(theta.kernel, both, theta.inputs, noise)
    completed = oracle.sequential_completion(R, [*rows, *U], [*near, *given_blocks])
    return completed + oracle.nystrom(theta.kernel, both, theta.inputs, 1e-8), U


@pytest.mark.parametrize("number", [0, 1, 3, 5])
@pytest.mark.parametrize("p", [1, 2])
def test_the_consistent_prediction_is_that_of_one_joint_gaussian(number, p):
    X, y, theta = problem(p=p)
    rows, count = cut(SIZES), len(SIZES)
    near, places = earlier(count, number), places_in(rows, X)
    rng = np.random.default_rng(3)
    given_blocks = [
        tuple(np.sort([i, *rng.permutation([j for j in range(count) if j != i])[:number]]))
        for i in range(count)
    ]
    S, U = joint(theta, X, rows, near, places, given_blocks)
    assert np.linalg.eigvalsh(S).min() > -1e-10
    D, test = np.arange(len(X)), np.concatenate(U)
    S_UD = S[np.ix_(test, D)]
    mean, cov = oracle.posterior(S[np.ix_(D, D)], S_UD, S[np.ix_(test, test)], y, 0.0)
    state, _, _ = fit(theta, X, y, rows, near)
    found = [predict(theta, state, X, y, rows, given_blocks[i], places[i]) for i in range(count)]
    np.testing.assert_allclose(np.concatenate([f.mean for f in found]), mean, rtol=1e-8, atol=1e-9)
    at = [u - len(X) for u in U]
    for i in range(count):
        wanted = cov[np.ix_(at[i], at[i])]
        np.testing.assert_allclose(found[i].covariance, wanted, rtol=1e-8, atol=1e-9)
        marginal = predict(theta, state, X, y, rows, given_blocks[i], places[i], "variance")
        np.testing.assert_allclose(marginal.variance, np.diag(cov)[at[i]], rtol=1e-8, atol=1e-9)


def test_sums_over_places_follow_from_sums_of_what_ties_them_to_the_rows():
    X, y, theta = problem()
    rows = cut(SIZES)
    state, _, _ = fit(theta, X, y, rows, following(len(rows), 2))
    T, w = np.random.default_rng(1).uniform(0, 1, (9, 2)), np.random.default_rng(2).uniform(0, 1, 9)
    model, blocks = LMA(), [Block(X[i], y[i]) for i in rows[1:4]]
    near = model.condition(theta, state, blocks)
    wanted = model.predict(theta, state, T, near, "covariance")
    ties = model.across(theta, state, T, near.X)
    ties = Across(w[None] @ ties.features, w[None] @ ties.kernel)
    prior = np.array([w @ KERNEL(T) @ w])
    found = model.predict_from(state, near, ties, prior, "variance")
    np.testing.assert_allclose(found.mean[0], w @ wanted.mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance[0], w @ wanted.covariance @ w, rtol=1e-9)


# -- both ends -------------------------------------------------------------------------------


def test_order_0_is_pic():
    X, y, theta = problem()
    rows, places = cut(SIZES), places_in(cut(SIZES), problem()[0])
    own = np.repeat(np.arange(len(rows)), SIZES)
    U = np.concatenate(places)
    of = np.repeat(np.arange(len(rows)), [len(T) for T in places])
    both, label = np.concatenate([X, U]), np.concatenate([own, of])
    Q = oracle.nystrom(KERNEL, both, theta.inputs, 1e-8)
    S = np.where(label[:, None] == label, KERNEL(both), Q)
    n = len(X)
    mean, cov = oracle.posterior(S[:n, :n], S[n:, :n], S[n:, n:], y, NOISE)
    for model in (LMA(0), LMA(0, "paper")):
        state, value, _ = fit(theta, X, y, rows, following(len(rows), 0), model)
        assert value == pytest.approx(oracle.evidence(S[:n, :n], y, NOISE), rel=1e-8)
        for i, T in enumerate(places):
            found = predict(theta, state, X, y, rows, (i,), T, model=model)
            np.testing.assert_allclose(found.mean, mean[of == i], rtol=1e-8, atol=1e-9)
            wanted = cov[np.ix_(of == i, of == i)]
            np.testing.assert_allclose(found.covariance, wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("how", ["order", "nearest", "one block"])
@pytest.mark.parametrize("prediction", ["consistent", "paper"])
def test_with_all_blocks_the_method_is_the_exact_gp(how, prediction):
    sizes = (sum(SIZES),) if how == "one block" else SIZES
    X, y, theta = problem(sizes)
    rows, count = cut(sizes), len(sizes)
    near = following(count, count) if how == "order" else earlier(count, count)
    model = LMA(count - 1, prediction)
    state, value, gradient = fit(theta, X, y, rows, near, model)
    exact, by_exact = testing.value_and_gradient(Exact(), Theta(KERNEL, NOISE), X, y)
    assert value == pytest.approx(exact, rel=1e-8)
    k = len(by_exact)
    np.testing.assert_allclose(gradient[:k], by_exact, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(gradient[k:], 0.0, atol=1e-6)  # support inputs no longer matter
    T = np.random.default_rng(1).uniform(0, 1, (9, 2))
    mean, cov = oracle.posterior(KERNEL(X), KERNEL(T, X), KERNEL(T), y, NOISE)
    found = predict(theta, state, X, y, rows, range(count), T, model=model)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.covariance, cov, rtol=1e-8, atol=1e-9)


# -- gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL,
        kernels.RBF(lengthscale=0.4),
        kernels.Matern12(lengthscale=(0.3, 0.8)),
        kernels.Matern52(0.5, variance=2.0) * kernels.Periodic(lengthscale=1.2, period=0.8),
        kernels.RationalQuadratic(lengthscale=0.5, alpha=0.7) + kernels.Constant(0.3),
        kernels.RBF(0.5, active_dims=(0,)) * kernels.Matern32(0.7, active_dims=(1,)),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
@pytest.mark.parametrize(
    "near",
    [following(4, 0), following(4, 1), following(4, 2), earlier(4, 2), [(), (0,), (), (0, 2)]],
    ids=["pic", "order 1", "order 2", "nearest 2", "ragged"],
)
def test_gradient_is_that_of_central_differences(kernel, near):
    sizes = (6, 3, 1, 5)
    X, y, theta = problem(sizes, m=4, kernel=kernel, noise=0.1)
    rows = cut(sizes)
    _, _, gradient = fit(theta, X, y, rows, near)
    wanted = testing.central_differences(
        lambda v: evidence(theta.from_vector(v), X, y, rows, near),
        theta.to_vector(with_inputs=True),
    )
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def evidence(theta, X, y, rows, near):
    model = LMA()
    prepared, blocks = model.prepare(theta), [Block(X[i], y[i]) for i in rows]
    found = [model.local(prepared, b, [blocks[j] for j in near[i]]) for i, b in enumerate(blocks)]
    total = found[0]
    for other in found[1:]:
        total = model.combine(total, other)
    return model.objective(prepared, total).value


def test_the_sums_follow_the_laws_of_every_method():
    X, y, theta = problem()
    for model in (LMA(), LMA(2, "paper")):
        testing.check_model(model, theta, X, y)


# -- what every layout gives -----------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    m=st.integers(1, 12),
    d=st.integers(1, 3),
    p=st.integers(1, 3),
    number=st.integers(0, 3),
    seed=st.integers(0, 2**16),
    duplicated=st.booleans(),
    noise=st.floats(1e-4, 2.0),
)
def test_variances_lie_between_nothing_and_the_prior(
    sizes, m, d, p, number, seed, duplicated, noise
):
    kernel = kernels.Matern52(lengthscale=0.4, variance=1.7)
    X, y, theta = problem(sizes, d, p, m, seed, kernel, noise)
    if duplicated:
        X[len(X) // 2 :] = X[0]
        theta.inputs[m // 2 :] = theta.inputs[0]
    rows, count = cut(sizes), len(sizes)
    state, value, gradient = fit(theta, X, y, rows, earlier(count, number, seed))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    rng = np.random.default_rng(seed)
    T = np.concatenate([X, rng.uniform(-0.5, 1.5, (6, d))])
    for i, given_blocks in enumerate(around(count, number)):
        found = predict(theta, state, X, y, rows, given_blocks, T, "variance")
        assert np.all(found.variance >= -1e-7)
        assert np.all(found.variance <= 1.7 * (1 + 1e-7)), i
        full = predict(theta, state, X, y, rows, given_blocks, T)
        np.testing.assert_allclose(np.diag(full.covariance), found.variance, atol=1e-9)
        np.testing.assert_array_equal(full.covariance, full.covariance.T)
        assert np.linalg.eigvalsh(full.covariance).min() >= -1e-7
        assert found.mean.shape == (len(T), p)


def test_the_papers_variance_can_be_negative_and_the_consistent_one_is_not():
    """Six cells of the unit square in snake order: both sides of a window touch one another."""
    X, y, theta, rows, places = snake()
    lowest = {}
    for prediction in ("paper", "consistent"):
        model = LMA(1, prediction)
        state, _, _ = fit(theta, X, y, rows, following(6, 1), model)
        found = [
            predict(theta, state, X, y, rows, given_blocks, T, "variance", model).variance
            for given_blocks, T in zip(around(6, 1), places, strict=True)
        ]
        lowest[prediction] = np.concatenate(found).min()
    assert lowest["paper"] < -0.2
    assert lowest["consistent"] > 0


def snake():
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 1, (30, 2))
    X = X[np.argsort(cell(X), kind="stable")]
    theta = Theta(kernels.Matern32(0.3), 0.01, rng.uniform(0, 1, (1, 2)))
    axis = np.linspace(0, 1, 25)
    T = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    places = [T[cell(T) == i] for i in range(6)]
    return X, np.sin(6 * X.sum(axis=1, keepdims=True)), theta, cut(np.bincount(cell(X))), places


def cell(X):
    """Three cells along the lower half of the unit square, and three back along the upper one."""
    column, upper = np.minimum((3 * X[:, 0]).astype(int), 2), X[:, 1] >= 0.5
    return np.where(upper, 5 - column, column)


# -- arrays of every kind --------------------------------------------------------------------


def test_float32_tiles_agree_to_their_precision():
    sizes = (80, 100, 90)
    X, y, theta = problem(sizes, m=20, kernel=kernels.Matern32(0.4), noise=0.1)
    rows, near, narrow = cut(sizes), following(3, 1), X.astype(np.float32)
    state, value, gradient = fit(theta, X, y, rows, near)
    other, single, found = fit(theta, narrow, y, rows, near)
    assert single == pytest.approx(value, rel=1e-4)
    np.testing.assert_allclose(found[:3], gradient[:3], rtol=1e-3, atol=1e-3)
    assert np.linalg.norm(found - gradient) < 1e-2 * np.linalg.norm(gradient)
    wanted = predict(theta, state, X, y, rows, (0, 1), X[:9] + 0.01, "variance")
    have = predict(theta, other, narrow, y, rows, (0, 1), narrow[:9] + 0.01, "variance")
    np.testing.assert_allclose(have.mean, wanted.mean, atol=1e-3)
    np.testing.assert_allclose(have.variance, wanted.variance, atol=1e-3)


def test_rows_may_be_read_only_and_strided():
    X, y, theta = problem()
    rows, near = cut(SIZES), earlier(len(SIZES), 2)
    state, value, gradient = fit(theta, X, y, rows, near)
    wanted = predict(theta, state, X, y, rows, (0, 1), X[:4] + 0.01)
    strided, fortran = np.repeat(X, 2, axis=0)[::2], np.asfortranarray(y)
    T = np.asfortranarray(X[:4] + 0.01)
    for a in (strided, fortran, T, theta.inputs, *state):
        a.flags.writeable = False
    kept = strided.copy(), fortran.copy()
    _, again, other = fit(theta, strided, fortran, rows, near)
    assert again == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(other, gradient, rtol=1e-9, atol=1e-9)
    found = predict(theta, state, strided, fortran, rows, (0, 1), T)
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-10)
    np.testing.assert_allclose(found.covariance, wanted.covariance, rtol=1e-8, atol=1e-10)
    for a, b in zip((strided, fortran), kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_summaries_do_not_write_to_what_they_are_given():
    X, y, theta = problem()
    rows, model = cut(SIZES), LMA()
    blocks, prepared = [Block(X[i], y[i]) for i in rows], LMA().prepare(theta)
    total = model.local(prepared, blocks[0], blocks[1:3])
    cotangent = model.objective(prepared, total).cotangent
    for a in (X, y, theta.inputs, prepared.factor, cotangent.moments):
        a.flags.writeable = False
    before = [np.array(part) for part in total]
    first = model.local_vjp(prepared, blocks[0], cotangent, blocks[1:3])
    again = model.local_vjp(prepared, blocks[0], cotangent, blocks[1:3])
    np.testing.assert_array_equal(first.to_vector(True), again.to_vector(True))
    for a, b in zip(model.local(prepared, blocks[0], blocks[1:3]), before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_window_that_is_kept_saves_work_and_changes_nothing(dtype):
    X, y, theta = problem()
    model, prepared = LMA(), LMA().prepare(theta)
    own, *near = (Block(X[i].astype(dtype), y[i]) for i in cut(SIZES)[:3])
    total, window = model.local_and_window(prepared, own, near)
    for a, b in zip(total, model.local(prepared, own, near), strict=True):
        np.testing.assert_array_equal(a, b)
    arrays = [a for a in window if isinstance(a, np.ndarray)]
    rows = sum(SIZES[:3])
    assert model.window_bytes(rows, 5, 2) == pytest.approx(sum(a.nbytes for a in arrays), rel=0.3)
    for a in arrays:
        a.flags.writeable = False
    cotangent = model.objective(prepared, total).cotangent
    wanted = model.local_vjp(prepared, own, cotangent, near).to_vector(True)
    for _ in range(2):  # a task may run again on what was kept
        found = model.local_vjp(prepared, own, cotangent, near, window).to_vector(True)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_far_rows_are_marked_where_nothing_is_said_of_them():
    kernel = kernels.RBF(0.3)
    X, y, theta = problem(kernel=kernel)
    rows = cut(SIZES)
    state, _, _ = fit(theta, X, y, rows, following(len(SIZES), 1))
    T = np.array([[0.5, 0.5], [9.0, 9.0], [-5.0, 0.5]])
    found = predict(theta, state, X, y, rows, (0, 1, 2), T, "variance")
    np.testing.assert_array_equal(found.far, [False, True, True])
    np.testing.assert_allclose(found.mean[1:], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.variance[1:], 1.0, rtol=1e-12)


@pytest.mark.parametrize("kernel", [kernels.RBF(0.3), KERNEL], ids=["rbf", "sum"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("size", "near", "m"), [(300, 2, 60), (200, 1, 300), (400, 0, 40)])
def test_the_footprint_is_what_is_measured(kernel, dtype, size, near, m):
    sizes = [size] * (near + 1)
    X, y, theta = problem(sizes, p=1, m=m, kernel=kernel, noise=0.1)
    blocks = [Block(X[rows].astype(dtype), y[rows]) for rows in cut(sizes)]
    model = LMA()
    prepared = model.prepare(theta)
    total = model.local(prepared, blocks[0], blocks[1:])
    cotangent = model.objective(prepared, total).cotangent

    window = sum(sizes)
    shape = Shape(5 * size, 2, 1, size, m, np.dtype(dtype).itemsize, kernel.tiles, window)
    planned = model.footprint(shape)
    local, _ = peak(model.local, prepared, blocks[0], blocks[1:])
    gradient, _ = peak(model.local_vjp, prepared, blocks[0], cotangent, blocks[1:])
    shared = prepared.factor.nbytes
    task = max(local + shared, gradient + cotangent.moments.nbytes + shared)
    assert task / 1.5 < planned.task < task * 1.5
    calls = (
        lambda: model.prepare(theta),
        lambda: model.posterior(prepared, total),
        lambda: model.objective(prepared, total),
    )
    solve, _ = peak(lambda: [call() for call in calls])
    solve += total.gram.nbytes
    assert solve / 1.5 < planned.solve < solve * 1.5
    assert planned.stats == pytest.approx(sum(np.asarray(part).nbytes for part in total), rel=0.01)
    state = oracle.on_disk((*model.posterior(prepared, total), *total)) + 8 * 5 * size * (2 + 1)
    assert planned.state == pytest.approx(state, rel=0.05)


def test_a_factored_window_knows_its_bytes():
    X, y, theta = problem()
    rows = cut(SIZES)
    state, _, _ = fit(theta, X, y, rows, following(len(SIZES), 1))
    near = LMA().condition(theta, state, [Block(X[i], y[i]) for i in rows[:2]])
    w, m, p = 13, 5, 2
    exact = 8 * (w * 2 + w * m + w * w + w * p)
    assert near.nbytes == exact
