"""Decoupled variational GPs and SVGP against [DGP] with dense inverses, and the laws of bounds."""

from functools import reduce
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp import kernels, likelihoods
from daskgp.kernels import Kernel
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Theta
from daskgp.models.variational.decoupled import Bound, Decoupled, Draw, Sums
from daskgp.models.variational.parameters import Parameters, empty, with_covariance, with_mean
from daskgp.runtime.process import single_blas_thread
from daskgp.testing import central_differences
from tests import oracle

RBF = kernels.RBF(lengthscale=(0.7, 1.3), variance=1.2)
MATERN = kernels.Matern32(lengthscale=(0.9, 0.6), variance=1.4)
SUM = kernels.Matern52(0.8) + 0.3 * kernels.Linear(0.4) + kernels.Constant(0.5)
FORMS = ["hybrid", "direct", "shared"]
NAMES = likelihoods.NAMES
CONCAVE = [name for name in NAMES if likelihoods.by_name(name).log_concave]

every_form = pytest.mark.parametrize("form", FORMS)
both_bases = pytest.mark.parametrize("kind", ["kernel", "generalized"])
every_likelihood = pytest.mark.parametrize("likelihood", NAMES)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """As tasks run; threads would wait for each other over matrices of 20 rows."""
    with single_blas_thread():
        yield


class Problem(NamedTuple):
    """A model, what it has learned so far, and rows."""

    model: Decoupled
    kernel: Kernel
    own: Parameters
    rows: Block
    offset: np.ndarray

    def at(self, **changed):
        return self._replace(own=self.own._replace(**changed))

    @property
    def functions(self):
        """Functions of the quadratic form of the mean, whose columns are drawn."""
        shared = self.own.shared_weights if self.model.form == "direct" else ()
        return len(shared) + len(self.own.weights)

    @property
    def prepared(self):
        return self.model.prepare(self.kernel, self.own, self.offset)


def problem(
    form="hybrid",
    kind="kernel",
    likelihood="gaussian",
    kernel=RBF,
    n=12,
    b=3,
    m=4,
    d=2,
    p=2,
    seed=0,
    jitter=1e-8,
    natural=False,
    frozen=False,
):
    """Any q: "shared" is the direct form whose mean has the functions of the covariance too."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, d)), 1.5 * rng.standard_normal((n, p))
    if likelihood.startswith("bernoulli"):
        y = (y > 0).astype(float)
    if likelihood == "poisson":
        y = rng.poisson(2.0, (n, p)).astype(float)
    if not likelihoods.by_name(likelihood).supports(y).all():
        y = likelihoods.by_name(likelihood).sample(0.5 * y, rng)

    def scales(count):
        wide = kind == "generalized"
        return 0.3 * rng.standard_normal((count, d)) if wide else np.zeros((0, d))

    own = Parameters(
        kernel=kernel.log_parameters,
        likelihood=likelihoods.by_name(likelihood).log_parameters,
        covariance_points=rng.standard_normal((b, d)),
        covariance_scales=scales(b),
        mean_points=rng.standard_normal((m, d)),
        mean_scales=scales(m),
        weights=0.5 * rng.standard_normal((m, p)),
        shared_weights=rng.standard_normal((0 if form == "direct" else b, p)),
        root=np.tril(0.3 * rng.standard_normal((b, b))) + np.eye(b),
    )
    form = "direct" if form == "shared" else form
    step = {"natural": natural, "frozen": frozen, "jitter": jitter}
    model = Decoupled(form, kind, likelihood, **step)
    return Problem(model, kernel, own, Block(X, y), 0.3 * rng.standard_normal(p))


def sums_of(problem, cuts=(), columns=(), weight=1.0, column_weight=1.0):
    """Of all rows and all columns, cut before some of them; the parts of both go together."""
    X, y = problem.rows.X, problem.rows.y
    rows = np.split(np.arange(len(X)), cuts)
    drawn = np.split(np.arange(problem.functions), columns)
    parts = [
        problem.model.local(problem.prepared, Block(X[of], y[of]), Draw(weight, few, column_weight))
        for of, few in zip(rows, drawn, strict=True)
    ]
    return reduce(problem.model.combine, parts)


def bound_of(problem, cuts=(), columns=()):
    return problem.model.bound(problem.prepared, sums_of(problem, cuts, columns))


def moments_of(problem, T, want="covariance"):
    prepared = problem.prepared
    theta = Theta(prepared.kernel, 1.0)
    return problem.model.predict(theta, problem.model.posterior(prepared), T, None, want)


def assert_gradients_close(found, wanted, rtol=1e-6, but=()):
    """Field by field, beside the largest entry of each."""
    for name in set(Parameters._fields) - set(but):
        f, w = getattr(found, name), getattr(wanted, name)
        atol = rtol * max(1.0, np.abs(w).max(initial=0))
        np.testing.assert_allclose(f, w, rtol=0, atol=atol, err_msg=name)
        assert f.dtype == np.float64, name


def assert_bounds_close(found, wanted, rtol=1e-9, but=()):
    assert found.value == pytest.approx(wanted.value, rel=rtol)
    assert_gradients_close(found.gradient, wanted.gradient, rtol, but)


# --- the paper, with dense inverses


class Functions(NamedTuple):
    """Functions of eq. 19, or f at rows: lengths s c, amplitudes 1 or rho."""

    inputs: np.ndarray
    lengths: np.ndarray
    amplitude: float


class Dense:
    """q of [DGP] eqs. 7-14 at the parameters of a problem."""

    def __init__(self, problem):
        self.problem, self.own = problem, problem.own
        self.kernel = problem.kernel.with_log_parameters(problem.own.kernel)
        self.Z, self.residual = map(self.of, (self.own.covariance, self.own.residual))
        self.K = self.C(self.Z, self.Z)
        if problem.model.form == "hybrid" and len(self.K):
            self.K = self.K + problem.model.jitter * np.diag(self.K).mean() * np.eye(len(self.K))
        self.outputs = self.own.weights.shape[1]

    def of(self, points):
        lengths = self.scale * np.exp(points.log_scales) if self.wide else None
        return Functions(points.inputs, lengths, 1.0)

    def at(self, X):
        """f at rows."""
        if not self.wide:
            return Functions(X, None, 1.0)
        return Functions(X, np.broadcast_to(self.scale, X.shape), np.sqrt(self.kernel.variance))

    @property
    def wide(self):
        return self.problem.model.basis == "generalized"

    @property
    def scale(self):
        return np.exp(self.own.kernel[1:])

    def C(self, P, Q):
        if not self.wide:
            return self.kernel(P.inputs, Q.inputs)
        u, v = P.lengths[:, None], Q.lengths[None]
        squares = u**2 + v**2
        far = (P.inputs[:, None] - Q.inputs[None]) ** 2 / squares
        heights = P.amplitude * Q.amplitude * np.sqrt(2 * u * v / squares).prod(-1)
        return heights * np.exp(-far.sum(-1))

    @property
    def mean_functions(self):
        """alpha and a of the direct form."""
        own = self.own
        if not len(own.shared_weights):
            return self.residual, own.weights
        return self.union, np.concatenate([own.shared_weights, own.weights])

    @property
    def union(self):
        """All functions, those of the covariance first."""
        Z, R = self.Z, self.residual
        lengths = np.concatenate([Z.lengths, R.lengths]) if self.wide else None
        return Functions(np.concatenate([Z.inputs, R.inputs]), lengths, 1.0)

    @property
    def precision(self):
        """(B^-1 + K)^-1 = B (I + K B)^-1, which a singular B has too."""
        B = self.own.root @ self.own.root.T
        return B @ np.linalg.inv(np.eye(len(B)) + self.K @ B)

    @property
    def canonical(self):
        """m~ and S~ of the hybrid form."""
        L, T = np.linalg.cholesky(self.K), self.own.root
        h = np.linalg.solve(L, self.C(self.Z, self.residual) @ self.own.weights)
        return L @ (self.own.shared_weights - h), L @ T @ T.T @ L.T

    def moments(self, F):
        """Mean and covariance of functions: eqs. 8, or 12 and 13; those of rows less the offset."""
        K_x = self.C(F, self.Z)
        if self.problem.model.form == "direct":
            alpha, a = self.mean_functions
            return self.C(F, alpha) @ a, self.C(F, F) - K_x @ self.precision @ K_x.T
        (m, S), inverse = self.canonical, np.linalg.inv(self.K)
        mean = K_x @ inverse @ m + self.C(F, self.residual) @ self.own.weights
        return mean, self.C(F, F) + K_x @ inverse @ (S - self.K) @ inverse @ K_x.T

    def kl(self):
        """Eq. 9, or eq. 14 with the half that its log-determinant lacks."""
        K, p = self.K, self.outputs
        if self.problem.model.form == "direct":
            alpha, a = self.mean_functions
            B = self.own.root @ self.own.root.T
            covariance = np.linalg.slogdet(np.eye(len(K)) + K @ B).logabsdet
            covariance -= np.trace(K @ self.precision)
            return 0.5 * ((a * (self.C(alpha, alpha) @ a)).sum() + p * covariance)
        (m, S), a, r = self.canonical, self.own.weights, self.residual
        inverse = np.linalg.inv(K)
        mean = 0.5 * (m * (inverse @ m)).sum() + 0.5 * (a * (self.C(r, r) @ a)).sum()
        mean += (m * (inverse @ self.C(self.Z, r) @ a)).sum()
        logdet = np.linalg.slogdet(S).logabsdet - np.linalg.slogdet(K).logabsdet
        return mean + 0.5 * p * (np.trace(S @ inverse) - len(K) - logdet)

    def expected(self):
        """E_q log p(y | f) of all rows."""
        X, y = self.problem.rows.X, self.problem.rows.y
        mean, covariance = self.moments(self.at(X))
        of = likelihoods.by_name(self.problem.model.likelihood, self.own.likelihood)
        return of.expected(y, mean + self.problem.offset, np.diag(covariance))

    def bound(self):
        return self.expected().value - self.kl()


def differences(problem):
    """The gradient of the dense bound; that by T of its lower triangle."""
    found = {
        name: central_differences(lambda v, name=name: Dense(problem.at(**{name: v})).bound(), part)
        for name, part in problem.own._asdict().items()
    }
    return Parameters(**{**found, "root": np.tril(found["root"])})


def fresh(number=7, d=2, seed=3):
    return np.random.default_rng(seed).standard_normal((number, d))


# --- q


@every_form
@both_bases
@pytest.mark.parametrize("b", [0, 1, 5])
@pytest.mark.parametrize("m", [0, 6])
def test_posterior_is_that_of_equations_8_12_and_13(form, kind, b, m):
    of, T = problem(form, kind, b=b, m=m), fresh()
    dense, found = Dense(of), moments_of(of, T)
    mean, covariance = dense.moments(dense.at(T))
    np.testing.assert_allclose(found.mean, mean + of.offset, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9, atol=1e-9)


@every_form
def test_variance_is_the_diagonal_of_the_covariance_and_the_mean_comes_alone(form):
    of, T = problem(form), fresh()
    full, marginal, mean = (moments_of(of, T, want) for want in ("covariance", "variance", "mean"))
    np.testing.assert_allclose(marginal.variance, np.diag(full.covariance), rtol=1e-10)
    assert marginal.covariance is full.variance is mean.variance is mean.covariance is None
    for other in (marginal, mean):
        np.testing.assert_allclose(other.mean, full.mean, rtol=1e-12)


def divergence(problem, samples=None):
    """KL of the values of all functions, column by column: by Prop. 1, or of samples its terms."""
    dense, rng = Dense(problem), np.random.default_rng(8)
    mean, S = dense.moments(dense.union)
    K, p = dense.C(dense.union, dense.union), mean.shape[1]
    logdet = np.linalg.slogdet(K).logabsdet - np.linalg.slogdet(S).logabsdet
    if samples is None:
        trace = np.trace(np.linalg.solve(K, S)) - len(K)
        return 0.5 * (p * (logdet + trace) + (mean * np.linalg.solve(K, mean)).sum())
    e = rng.standard_normal((samples, len(K), p))
    f = mean + np.linalg.cholesky(S) @ e
    squares = (f * np.linalg.solve(K, f)).sum((1, 2)) - (e**2).sum((1, 2))
    return 0.5 * (p * logdet + squares)


@every_form
@both_bases
@pytest.mark.parametrize("p", [1, 2])
def test_divergence_is_that_of_the_values_of_all_functions(form, kind, p):
    """All that q changes of the prior is there; without rows the bound is minus the divergence."""
    of = problem(form, kind, p=p, jitter=0.0, seed=4)
    no_rows = bound_of(of).value - Dense(of).expected().value
    assert Dense(of).kl() == pytest.approx(divergence(of), rel=1e-7)
    assert no_rows == pytest.approx(-divergence(of), rel=1e-7)


@pytest.mark.parametrize("form", ["hybrid", "shared"])
def test_divergence_is_the_mean_of_log_ratios_of_samples(form):
    of = problem(form, jitter=0.0, seed=4)
    ratios = divergence(of, samples=40_000)
    kl = Dense(of).expected().value - bound_of(of).value
    assert kl == pytest.approx(ratios.mean(), abs=4 * ratios.std() / 200)
    assert ratios.std() / 200 < 0.02 * kl


def as_hybrid(of):
    """The hybrid parameters of a direct q with shared functions: S~ = K - K (B^-1 + K)^-1 K."""
    dense = Dense(of)
    K, L = dense.K, np.linalg.cholesky(dense.K)
    S = K - K @ dense.precision @ K
    T = np.linalg.cholesky(np.linalg.solve(L, np.linalg.solve(L, S).T))
    h = np.linalg.solve(L, dense.C(dense.Z, dense.residual) @ of.own.weights)
    moved = of.at(root=T, shared_weights=L.T @ of.own.shared_weights + h)
    return moved._replace(model=Decoupled("hybrid", of.model.basis, jitter=0.0))


def as_direct(of):
    """The direct parameters of a hybrid q: B^-1 = -(K + K (S~ - K)^-1 K), below eq. 11."""
    dense = Dense(of)
    K, (m, S) = dense.K, dense.canonical
    B = np.linalg.inv(-(K + K @ np.linalg.inv(S - K) @ K))
    moved = of.at(root=np.linalg.cholesky(B), shared_weights=np.linalg.solve(K, m))
    return moved._replace(model=Decoupled("direct", of.model.basis))


@both_bases
@pytest.mark.parametrize("m", [0, 5])
@pytest.mark.parametrize("seed", [1, 2])
def test_both_forms_of_the_same_posterior_have_one_bound(kind, m, seed):
    direct, T = problem("shared", kind, kernel=RBF, m=m, seed=seed), fresh()
    hybrid = as_hybrid(direct)
    for one, other in ((direct, hybrid), (hybrid, as_direct(hybrid))):
        found, wanted = moments_of(one, T), moments_of(other, T)
        np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-8)
        np.testing.assert_allclose(found.covariance, wanted.covariance, atol=1e-8)
        assert bound_of(one).value == pytest.approx(bound_of(other).value, rel=1e-8)
    # the weights of both are linear in each other: a_Z = L^-T (w - h)
    by, by_hybrid, dense = bound_of(direct).gradient, bound_of(hybrid).gradient, Dense(hybrid)
    on_Z, R = np.linalg.solve(dense.K, by.shared_weights), dense.C(dense.residual, dense.Z)
    wanted = np.linalg.cholesky(dense.K).T @ on_Z
    np.testing.assert_allclose(by_hybrid.likelihood, by.likelihood, rtol=1e-7)
    np.testing.assert_allclose(by_hybrid.shared_weights, wanted, atol=1e-6)
    np.testing.assert_allclose(by_hybrid.weights, by.weights - R @ on_Z, atol=1e-6)


def test_a_state_gives_its_parameters_back():
    for form in FORMS:
        of = problem(form, "generalized", "student-t")
        found = of.model.posterior(of.prepared).parameters(of.kernel)
        for f, w in zip(found, of.own, strict=True):
            np.testing.assert_array_equal(f, w)


# --- gradients


@every_form
@both_bases
@every_likelihood
def test_gradient_by_everything_is_that_of_the_dense_bound(form, kind, likelihood):
    of = problem(form, kind, likelihood, p=1 if likelihood == "poisson" else 2)
    found = bound_of(of, (5,), (2,))
    assert found.value == pytest.approx(Dense(of).bound(), rel=1e-9)
    assert_gradients_close(found.gradient, differences(of))


@every_form
@pytest.mark.parametrize(
    "few",
    [
        {"kernel": MATERN, "m": 3, "p": 1},
        {"kernel": SUM, "m": 3},
        {"b": 3, "m": 0},
        {"b": 1, "m": 1},
        {"b": 1, "m": 6},
        {"kernel": SUM, "jitter": 1e-2},
        {"kernel": SUM, "jitter": 1e-1},
        {"n": 1},  # fewer rows than functions
        {"n": 2, "d": 1, "kind": "generalized", "kernel": kernels.RBF(0.8, 1.3)},
        {"d": 1, "kernel": kernels.RBF(0.8, 1.3)},  # one column, one lengthscale
    ],
    ids=str,
)
def test_gradient_for_other_kernels_and_few_rows_functions_and_columns(form, few):
    of = problem(form, **few)
    found = bound_of(of)
    assert found.value == pytest.approx(Dense(of).bound(), rel=1e-9)
    assert_gradients_close(found.gradient, differences(of))


def test_the_gradient_knows_of_jitter_that_was_raised(caplog):
    of = problem("hybrid", "kernel", b=4, jitter=0.0)
    Z = of.own.covariance_points.copy()
    Z[3] = Z[2]
    of = of.at(covariance_points=Z)
    used = of.prepared.jitter
    assert used > 0
    assert "needed a jitter" in caplog.text
    alike = of._replace(model=Decoupled(jitter=used))
    assert_bounds_close(bound_of(of), bound_of(alike), rtol=1e-6)


@every_likelihood
@both_bases
def test_with_natural_gradients_all_others_are_the_same(likelihood, kind):
    wanted = bound_of(problem("hybrid", kind, likelihood))
    found = bound_of(problem("hybrid", kind, likelihood, natural=True), (5,), (2,))
    assert found.gradient.root.size == 0
    assert_bounds_close(found, wanted, 1e-10, but=["root"])


@every_form
@both_bases
@pytest.mark.parametrize("m", [0, 4])
def test_a_frozen_mean_has_no_gradient_by_what_stays_and_all_of_the_others(form, kind, m):
    still = ["kernel", "mean_points", "mean_scales"]
    of, wanted = problem(form, kind, m=m, frozen=True), bound_of(problem(form, kind, m=m))
    found = bound_of(of, (5,), (m // 2,))
    assert_bounds_close(found, wanted, 1e-10, but=still)
    for name in still:
        part = getattr(found.gradient, name)
        assert part.shape == getattr(of.own, name).shape
        assert not part.any()


# --- SVGP


def svgp(n=40, b=7, d=2, p=2, seed=0, kernel=MATERN, likelihood="gaussian", jitter=1e-8):
    """Without functions of the mean, and for natural gradients."""
    of = problem("hybrid", "kernel", likelihood, kernel, n, b, 0, d, p, seed, jitter, natural=True)
    X, y = of.rows.X, of.rows.y
    if likelihood == "gaussian":
        y = np.sin(X @ np.ones((d, p)) + np.arange(p)) + 0.1 * y
    return of._replace(rows=Block(X, y), offset=np.zeros(p))


def stepped(of, rate=1.0, **drawn):
    """After a natural-gradient step."""
    w, root = of.model.natural_step(of.own, sums_of(of, **drawn), rate)
    return of.at(shared_weights=w, root=root)


def collapsed(of):
    """SGPR with the same inducing inputs: its bound, and its posterior at rows."""
    noise, model = float(np.exp(of.own.likelihood[0])), SGPR(jitter=of.model.jitter)
    theta = Theta(of.kernel.with_log_parameters(of.own.kernel), noise, of.own.covariance_points)
    prepared = model.prepare(theta)
    total = model.local(prepared, of.rows)
    state = model.posterior(prepared, total)
    value = model.objective(prepared, total).value
    return value, lambda T: model.predict(theta, state, T, None, "covariance")


def evidence(of):
    kernel = of.kernel.with_log_parameters(of.own.kernel)
    y, noise = of.rows.y - of.offset, float(np.exp(of.own.likelihood[0]))
    return oracle.evidence(kernel(of.rows.X), y, noise)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("kernel", [RBF, MATERN, SUM], ids=["rbf", "matern", "sum"])
def test_one_natural_step_gives_the_collapsed_posterior(kernel, n, p):
    of, T = stepped(svgp(n, p=p, kernel=kernel)), fresh()
    value, predict = collapsed(of)
    found, wanted = moments_of(of, T), predict(T)
    assert bound_of(of).value == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-7)
    np.testing.assert_allclose(found.covariance, wanted.covariance, atol=1e-7)
    # it is the optimum: nothing by q is left, and the others are those of the collapsed bound
    left = bound_of(of._replace(model=Decoupled())).gradient
    np.testing.assert_allclose(left.shared_weights, 0, atol=1e-7 * n)
    np.testing.assert_allclose(left.root, 0, atol=1e-7 * n)


def test_gradient_at_the_optimum_is_that_of_the_collapsed_bound():
    of = stepped(svgp())
    noise, model = float(np.exp(of.own.likelihood[0])), SGPR()
    theta = Theta(of.kernel, noise, of.own.covariance_points)
    prepared = model.prepare(theta)
    objective = model.objective(prepared, model.local(prepared, of.rows))
    through = model.local_vjp(prepared, of.rows, objective.cotangent)
    found = bound_of(of).gradient
    for name, f in (("kernel", found.kernel), ("inputs", found.covariance_points)):
        wanted = getattr(objective.gradient, name) + getattr(through, name)
        np.testing.assert_allclose(f, wanted, rtol=1e-5, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(found.likelihood, objective.gradient.noise, rtol=1e-6)


@given(
    n=st.integers(1, 20),
    b=st.integers(1, 6),
    p=st.integers(1, 2),
    d=st.integers(1, 3),
    noise=st.floats(1e-2, 2.0),
    spread=st.floats(0.1, 3.0),
    rate=st.floats(0.0, 1.0),
    duplicated=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_no_q_has_a_larger_bound_than_the_collapsed_one(
    n, b, p, d, noise, spread, rate, duplicated, seed
):
    of = svgp(n, b, d, p, seed, kernels.Matern52(0.9, 1.7))
    if duplicated:
        of.rows.X[n // 2 :] = of.rows.X[0]
    of = of.at(
        likelihood=np.log([noise]),
        root=spread * of.own.root,
        shared_weights=spread * of.own.shared_weights,
    )
    (best, _), exact = collapsed(of), evidence(of)
    slack = 1e-7 * max(1.0, abs(exact))
    assert bound_of(of).value <= bound_of(stepped(of, rate)).value + slack
    assert bound_of(stepped(of, rate)).value <= best + slack
    assert best <= exact + slack


@pytest.mark.parametrize("p", [1, 2])
def test_with_all_rows_as_inducing_inputs_it_is_the_exact_gp(p):
    of, T = svgp(n=25, b=25, p=p, jitter=0.0), fresh()
    of = stepped(of.at(covariance_points=of.rows.X))
    noise = float(np.exp(of.own.likelihood[0]))
    X, y = of.rows.X, of.rows.y
    mean, covariance = oracle.posterior(MATERN(X), MATERN(T, X), MATERN(T), y, noise)
    found = moments_of(of, T)
    assert bound_of(of).value == pytest.approx(evidence(of), rel=1e-9)
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-9)


@every_likelihood
@pytest.mark.parametrize("rate", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("m", [0, 4])
def test_a_natural_step_is_one_in_natural_parameters(likelihood, rate, m):
    """Towards those that g and s ask for, where s does not make the precision smaller."""
    of = problem("hybrid", likelihood=likelihood, m=m, natural=True)
    dense, (w, T) = Dense(of), (of.own.shared_weights, of.own.root)
    found, p = dense.expected(), w.shape[1]
    A = np.linalg.solve(np.linalg.cholesky(dense.K), dense.C(dense.Z, dense.at(of.rows.X)))
    asked = -2 / p * A @ np.diag(np.minimum(found.by_variance.sum(1), 0)) @ A.T
    precision = (1 - rate) * np.linalg.inv(T @ T.T) + rate * (np.eye(len(T)) + asked)
    linear = (1 - rate) * np.linalg.solve(T @ T.T, w) + rate * (A @ found.by_mean + asked @ w)
    after = stepped(of, rate, cuts=(5,), columns=(m // 2,)).own
    np.testing.assert_allclose(after.root @ after.root.T, np.linalg.inv(precision), rtol=1e-8)
    np.testing.assert_allclose(after.shared_weights, np.linalg.solve(precision, linear), rtol=1e-8)
    np.testing.assert_array_equal(after.root, np.tril(after.root))
    assert (np.diag(after.root) > 0).all()


@pytest.mark.parametrize("likelihood", CONCAVE)
def test_a_short_natural_step_raises_the_bound(likelihood):
    for seed in range(5):
        of = svgp(seed=seed, likelihood=likelihood)
        assert bound_of(stepped(of, 1e-3)).value > bound_of(of).value


@pytest.mark.parametrize("likelihood", [name for name in CONCAVE if name != "gaussian"])
def test_natural_steps_end_where_no_gradient_by_q_is_left(likelihood):
    of = svgp(n=20, b=4, likelihood=likelihood)
    for _ in range(60):
        of = stepped(of, 0.5)
    found = bound_of(of._replace(model=Decoupled("hybrid", "kernel", likelihood))).gradient
    assert np.abs(found.kernel).max() > 0.1
    np.testing.assert_allclose(found.shared_weights, 0, atol=1e-8)
    np.testing.assert_allclose(found.root, 0, atol=1e-8)


def test_outliers_of_a_student_t_leave_the_precision_positive():
    of = svgp(likelihood="student-t")
    of.rows.y[::3] += 30.0  # the log-density is convex so far out
    for _ in range(5):
        of = stepped(of)
        assert np.linalg.eigvalsh(of.own.root @ of.own.root.T).max() <= 1 + 1e-9


# --- laws of the decoupled q


@st.composite
def problems(draw):
    """Any q with Gaussian noise, rows and functions that may repeat."""
    form, kind = draw(st.sampled_from(FORMS)), draw(st.sampled_from(["kernel", "generalized"]))
    n, d, p = draw(st.integers(1, 15)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    b, m, seed = draw(st.integers(0, 6)), draw(st.integers(0, 8)), draw(st.integers(0, 2**16))
    of = problem(form, kind, "gaussian", kernels.RBF(0.9, 1.7), n, b, m, d, p, seed)
    scale = draw(st.floats(0.01, 2.0))
    own = of.own._replace(
        likelihood=np.log([draw(st.floats(1e-2, 2.0))]),
        weights=scale * of.own.weights,
        root=draw(st.floats(0.05, 3.0)) * of.own.root,
    )
    of = of._replace(own=own)
    if draw(st.booleans()):
        of.rows.X[n // 2 :] = of.rows.X[0]
        own.mean_points[m // 2 :] = of.rows.X[0]
        own.covariance_points[:1] = of.rows.X[0]
    return of


@given(problems())
def test_the_bound_never_exceeds_the_evidence(of):
    exact = evidence(of)
    assert bound_of(of).value <= exact + 1e-7 * max(1.0, abs(exact))


@given(problems())
def test_the_direct_form_is_never_less_certain_than_the_prior(of):
    T = np.concatenate([of.rows.X, fresh(5, of.rows.X.shape[1])])
    if of.model.form == "hybrid" and len(of.own.root):  # nor is a hybrid one whose S is at most I
        of = of.at(root=of.own.root / max(1.0, np.linalg.norm(of.own.root, 2)))
    found = moments_of(of, T)
    prior = of.kernel(T)
    assert np.linalg.eigvalsh(prior - found.covariance).min() >= -1e-8
    assert np.linalg.eigvalsh(found.covariance).min() >= -1e-8


@pytest.mark.parametrize("form", ["hybrid", "direct"])
@pytest.mark.parametrize("p", [1, 2])
def test_without_functions_of_the_covariance_the_best_mean_is_kernel_ridge_regression(form, p):
    of, T = problem(form, kernel=MATERN, b=0, m=12, p=p), fresh()
    X, y = of.rows.X, of.rows.y
    K, noise = MATERN(X), float(np.exp(of.own.likelihood[0]))
    a = np.linalg.solve(K + noise * np.eye(len(X)), y - of.offset)
    best = of.at(mean_points=X, weights=a)
    np.testing.assert_allclose(bound_of(best).gradient.weights, 0, atol=1e-9)
    found = moments_of(best, T)
    np.testing.assert_allclose(found.mean, MATERN(T, X) @ a + of.offset, atol=1e-10)
    np.testing.assert_allclose(found.covariance, MATERN(T), atol=1e-12)

    # any basis: (K_a + K_aX K_Xa / s) a = K_aX y / s
    P = of.own.mean_points
    F = MATERN(P, X)
    a = np.linalg.solve(noise * MATERN(P) + F @ F.T, F @ (y - of.offset))
    np.testing.assert_allclose(bound_of(of.at(weights=a)).gradient.weights, 0, atol=1e-8)


def test_without_any_function_q_is_the_prior():
    T = fresh()
    for form in FORMS:
        of = problem(form, b=0, m=0)
        of = of._replace(own=empty(of.own.kernel, of.own.likelihood, 2, 2))
        found = moments_of(of, T)
        np.testing.assert_allclose(found.mean, np.broadcast_to(of.offset, (7, 2)), atol=1e-12)
        np.testing.assert_allclose(found.covariance, RBF(T), atol=1e-12)
        assert bound_of(of).value == pytest.approx(Dense(of).bound(), rel=1e-12)


# --- parts of a step


@given(
    form=st.sampled_from(FORMS),
    kind=st.sampled_from(["kernel", "generalized"]),
    likelihood=st.sampled_from(NAMES),
    natural=st.booleans(),
    n=st.integers(1, 12),
    m=st.integers(0, 7),
    cuts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 10)), max_size=4),
    seed=st.integers(0, 2**16),
)
def test_any_cut_of_rows_and_columns_gives_the_same_bound(
    form, kind, likelihood, natural, n, m, cuts, seed
):
    """Also parts without rows, without columns, and without either."""
    natural = natural and form == "hybrid"
    of = problem(form, kind, likelihood, n=n, m=m, seed=seed, natural=natural)
    rows, columns = (sorted(few) for few in zip(*cuts, strict=True)) if cuts else ((), ())
    assert_bounds_close(bound_of(of, rows, columns), bound_of(of), 1e-9)
    if natural:
        found, wanted = stepped(of, 0.5, cuts=rows, columns=columns).own, stepped(of, 0.5).own
        np.testing.assert_allclose(found.root, wanted.root, atol=1e-8)
        np.testing.assert_allclose(found.shared_weights, wanted.shared_weights, atol=1e-8)


def assert_mean_is(found, wanted):
    """Bounds whose mean is to be another, and which are not all alike."""
    values = [bound.value for bound in found]
    assert np.std(values) > 1e-3
    mean = Parameters(
        *(
            np.mean(parts, axis=0)
            for parts in zip(*(bound.gradient for bound in found), strict=True)
        )
    )
    assert_bounds_close(Bound(float(np.mean(values)), mean), wanted, 1e-9)


@every_form
@both_bases
@pytest.mark.parametrize(
    ("likelihood", "frozen", "size"),
    [("gaussian", False, 1), ("gaussian", True, 2), ("bernoulli", False, 2)],
)
def test_draws_of_rows_and_columns_are_unbiased(form, kind, likelihood, frozen, size):
    of = problem(form, kind, likelihood, n=6, frozen=frozen)
    X, y, prepared, count = of.rows.X, of.rows.y, of.prepared, of.functions
    draws = [Draw(3.0, np.array(few), count / size) for few in combinations(range(count), size)]
    found = [
        of.model.bound(prepared, of.model.local(prepared, Block(X[few], y[few]), draw))
        for few in np.arange(6).reshape(3, 2)
        for draw in draws
    ]
    assert_mean_is(found, bound_of(of))


@both_bases
def test_draws_bring_no_noise_where_the_covariance_has_the_functions_of_the_mean(kind):
    """The same columns serve the quadratic form and what is explained of it."""
    of = problem("hybrid", kind, b=4, m=4, jitter=0.0)
    of = of.at(mean_points=of.own.covariance_points, mean_scales=of.own.covariance_scales)
    prepared = of.prepared
    for column in range(4):
        total = of.model.local(prepared, of.rows, Draw(1.0, np.array([column]), 4.0))
        found = of.model.bound(prepared, total).gradient.weights
        np.testing.assert_allclose(found, 0, atol=1e-9)


def test_natural_steps_of_mini_batches_ask_for_the_same_on_average():
    of = problem("hybrid", "kernel", "bernoulli", natural=True)
    X, y, prepared, none = of.rows.X, of.rows.y, of.prepared, np.zeros(0, int)
    found = [
        of.model.local(prepared, Block(X[few], y[few]), Draw(4.0, none, 1.0))
        for few in np.arange(12).reshape(4, 3)
    ]
    whole = sums_of(of)
    for name in ("projected", "gram"):
        mean = np.mean([getattr(sums, name) for sums in found], axis=0)
        np.testing.assert_allclose(mean, getattr(whole, name), atol=1e-10)


def test_only_what_is_needed_is_summed():
    """Of natural gradients the sums that the root takes, of others those of the root alone."""
    for natural in (False, True):
        of = problem("hybrid", likelihood="student-t", natural=natural)
        found = sums_of(of)
        sizes = {name: getattr(found, name).size > 0 for name in Sums._fields[2:]}
        assert sizes == {
            "projected": True,
            "gram": natural,
            "root": not natural,
            "adjoint": True,
            "curvature": natural,
            "explained": True,
        }


# --- growth


@both_bases
@pytest.mark.parametrize("start", [0, 3])
def test_new_functions_of_the_covariance_leave_a_hybrid_q_as_it_was(kind, start):
    of, T = problem("hybrid", kind, b=start, m=0), fresh()
    own = with_covariance(of.own, fresh(4, seed=9), "hybrid", kind == "generalized", True)
    grown = of._replace(own=own)
    found, wanted = moments_of(grown, T), moments_of(of, T)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-9)
    np.testing.assert_allclose(found.covariance, wanted.covariance, atol=1e-9)
    assert bound_of(grown).value == pytest.approx(bound_of(of).value, rel=1e-9)
    assert own.covariance_scales.shape == ((start + 4, 2) if kind == "generalized" else (0, 2))


@both_bases
@pytest.mark.parametrize("start", [0, 3])
def test_beside_functions_of_the_mean_they_take_over_what_those_say_of_them(kind, start):
    """The residual is taken less what Z explains of it: then w of the new functions is h."""
    of, T = problem("hybrid", kind, b=start), fresh()
    own = with_covariance(of.own, fresh(4, seed=9), "hybrid", kind == "generalized", True)
    grown = of._replace(own=own)
    h = grown.prepared.factors.explained
    taken = grown.at(shared_weights=np.concatenate([of.own.shared_weights, h[start:]]))
    found, wanted = moments_of(taken, T), moments_of(of, T)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance, wanted.covariance, atol=1e-8)
    assert bound_of(taken).value == pytest.approx(bound_of(of).value, rel=1e-8)


@both_bases
@pytest.mark.parametrize("shared", [False, True])
def test_new_functions_of_a_direct_covariance_begin_with_little_and_no_mean(kind, shared):
    of, T = problem("shared" if shared else "direct", kind), fresh()
    own = with_covariance(of.own, fresh(4, seed=9), "direct", kind == "generalized", shared)
    grown = of._replace(own=own)
    assert len(own.root) == len(own.covariance_points) == 7
    assert len(own.shared_weights) == (7 if shared else 0)
    found, wanted = moments_of(grown, T), moments_of(of, T)
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-12)
    less = np.diag(wanted.covariance - found.covariance)
    assert (less >= 0).all()
    assert 0 < less.max() < 0.05
    assert (np.abs(np.diag(bound_of(grown).gradient.root)) > 1e-6).all()


@every_form
@both_bases
@pytest.mark.parametrize("m", [0, 4])
def test_new_functions_of_the_mean_leave_q_as_it_was(form, kind, m):
    of, T = problem(form, kind, m=m), fresh()
    grown = of._replace(own=with_mean(of.own, fresh(5, seed=9), kind == "generalized"))
    found, wanted = moments_of(grown, T), moments_of(of, T)
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-12)
    np.testing.assert_allclose(found.covariance, wanted.covariance, rtol=1e-12)
    assert bound_of(grown).value == pytest.approx(bound_of(of).value, rel=1e-12)
    assert grown.own.mean_scales.shape == ((m + 5, 2) if kind == "generalized" else (0, 2))


# --- rows of any kind


@every_form
@both_bases
@pytest.mark.parametrize("likelihood", ["gaussian", "student-t", "poisson"])
def test_float32_rows_agree_to_their_precision(form, kind, likelihood):
    of = problem(form, kind, likelihood, n=200, b=12, m=30, jitter=1e-6)
    narrow = of._replace(rows=Block(of.rows.X.astype(np.float32), of.rows.y.astype(np.float32)))
    found, wanted = bound_of(narrow, (70,), (9,)), bound_of(of)
    assert found.value == pytest.approx(wanted.value, rel=1e-5)
    for name, f, w in zip(Parameters._fields, found.gradient, wanted.gradient, strict=True):
        assert f.dtype == np.float64
        assert np.linalg.norm(f - w) <= 1e-3 * np.linalg.norm(w), name
    T = fresh(50)
    found, wanted = moments_of(narrow, T.astype(np.float32)), moments_of(of, T)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-3)
    np.testing.assert_allclose(found.covariance, wanted.covariance, atol=1e-3)


def test_float32_natural_steps_agree_to_their_precision():
    of = problem("hybrid", likelihood="student-t", n=200, b=12, m=30, jitter=1e-6, natural=True)
    narrow = of._replace(rows=Block(of.rows.X.astype(np.float32), of.rows.y.astype(np.float32)))
    found, wanted = stepped(narrow, 0.5).own, stepped(of, 0.5).own
    for name in ("root", "shared_weights"):
        f, w = getattr(found, name), getattr(wanted, name)
        assert f.dtype == np.float64
        assert np.linalg.norm(f - w) <= 1e-3 * np.linalg.norm(w), name


@every_form
def test_rows_and_parameters_may_be_read_only_and_of_any_layout(form):
    of = problem(form, "generalized")

    def strided(A):
        wide = np.full((2 * len(A), *A.shape[1:]), np.nan)
        wide[::2] = A
        return wide[::2]

    own = Parameters(*(np.asfortranarray(strided(part)) for part in of.own))
    X, y = strided(of.rows.X), np.asfortranarray(of.rows.y)
    for part in (*own, X, y):
        part.flags.writeable = False
    given_ = of._replace(own=own, rows=Block(X, y))
    assert_bounds_close(bound_of(given_, (5,), (2,)), bound_of(of), 1e-10)
    np.testing.assert_allclose(
        moments_of(given_, X).covariance, moments_of(of, of.rows.X).covariance, rtol=1e-10
    )


@every_form
def test_a_step_leaves_what_it_is_given_as_it_was(form):
    of = problem(form, natural=form == "hybrid", likelihood="student-t")
    before = [part.copy() for part in (*of.own, of.rows.X, of.rows.y)]
    prepared = of.prepared
    kept = [np.copy(part) for part in prepared.factors]
    total = of.model.local(prepared, of.rows, Draw(1.0, np.arange(of.functions), 1.0))
    sums = [np.copy(part) for part in total[2:]]
    first, second = (of.model.bound(prepared, total) for _ in range(2))
    if form == "hybrid":
        of.model.natural_step(of.own, total, 0.5)
    again = of.model.local(prepared, of.rows, Draw(1.0, np.arange(of.functions), 1.0))
    assert_bounds_close(of.model.bound(prepared, again), first, 1e-14)
    assert_bounds_close(second, first, 1e-14)
    for now, then in (
        ((*of.own, of.rows.X, of.rows.y), before),
        (prepared.factors, kept),
        (total[2:], sums),
    ):
        for f, w in zip(now, then, strict=True):
            np.testing.assert_array_equal(f, w)


@every_form
def test_rows_that_repeat_count_as_often(form):
    of = problem(form, n=5)
    twice = of._replace(rows=Block.join([of.rows, of.rows]))
    sums, prepared = sums_of(of, weight=2.0), of.prepared
    assert_bounds_close(bound_of(twice), of.model.bound(prepared, sums), 1e-10)
