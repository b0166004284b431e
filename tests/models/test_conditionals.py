"""Conditionals of rows: forms agree, and sums are those of the densities they stand for."""

from dataclasses import dataclass

import numpy as np
import oracle
import pytest
from agree import assert_close

from daskgp.arrays.backend import to_host
from daskgp.errors import NumericalError
from daskgp.kernels import (
    RBF,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
)
from daskgp.kernels.program import program
from daskgp.models import inducing
from daskgp.models.markov import conditionals
from daskgp.models.markov.conditionals import Conditionals, combined, scores, summed, weights
from daskgp.models.markov.windows import summary_of, window_of
from daskgp.models.values import Block, Theta, add, variances
from daskgp.testing import central_differences
from tests.maths import fakearray
from tests.maths.test_kernels import KERNELS

D = 3
S = 0.3


@dataclass(frozen=True)
class Own(Matern32):
    """A user's kernel, computed by its own code."""


def chosen(rng, n, k, s=1, d=D, noise=False, often=False, dtype=np.float64):
    """Random rows, each conditioned on its nearest earlier ones."""
    X, y = rng.normal(size=(n, d)).astype(dtype), rng.normal(size=(n, s)).astype(dtype)
    near = np.full((n, k), -1)
    for i in range(n):
        first = np.argsort(((X[:i] - X[i]) ** 2).sum(axis=1))[:k]
        near[i, : len(first)] = first
    each = np.column_stack([rng.uniform(0.5, 2, n), rng.uniform(0, 1, n)]) if noise else None
    return Conditionals(X, y, each, np.arange(n), near, rng.uniform(1, 3, n) if often else None)


def symmetric(rng, s):
    W = rng.normal(size=(s, s))
    return W @ W.T + np.eye(s)


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.fixture
def by_arrays(monkeypatch):
    """Return a function that gives results of a function by array functions alone."""

    def call(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(conditionals, "compiled", lambda: None)
            return function(*arguments)

    return call


def dense(theta, c, A=None):
    """Weights of each row from its dense covariance."""
    result = np.zeros((len(c.own), c.width))
    for i, rows in enumerate(c.rows):
        there = np.flatnonzero(rows >= 0)
        own = rows[there]
        K = theta.kernel(c.X[own].astype(np.float64))
        if A is not None:
            K = K - A[own] @ A[own].T
        noise = None if c.noise is None else c.noise[own]
        K += np.diag(np.broadcast_to(variances(theta.noise_variance, noise), len(own)))
        before = np.linalg.solve(K[:-1, :-1], K[:-1, -1])
        variance = K[-1, -1] - K[-1, :-1] @ before
        result[i, there] = np.append(-before, 1.0) / np.sqrt(variance)
    return result


def assert_same(found, wanted, tolerance=1e-10):
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, tolerance, tolerance)


# --- forms


def test_compiled_code_is_there():
    pytest.importorskip("numba", exc_type=ImportError)
    assert conditionals.compiled() is not None


@pytest.mark.whole
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_forms_agree(rng, by_arrays, kernel):
    theta, W = Theta(kernel, S), symmetric(rng, 2)
    c = chosen(rng, 19, 5, s=2, noise=True, often=True)
    w = weights(theta, c)
    assert_close(w, dense(theta, c), 1e-10, 1e-10)
    assert_close(w, by_arrays(weights, theta, c), 1e-10, 1e-10)
    assert_same(scores(theta, c, W, 2), by_arrays(scores, theta, c, W, 2))


@pytest.mark.parametrize("noise", [False, True])
def test_a_users_kernel_agrees(rng, noise):
    c, W = chosen(rng, 20, 5, s=3, noise=noise), symmetric(rng, 3)
    own, known = (Theta(kind((0.7, 1.2, 0.9), 1.3), S) for kind in (Own, Matern32))
    assert program(own.kernel, D) is None
    assert_close(weights(own, c), weights(known, c))
    assert_same(scores(own, c, W, 2), scores(known, c, W, 2))


def test_many_columns(rng, by_arrays):
    c = chosen(rng, 30, 7, d=20)
    theta = Theta(Matern52(tuple(rng.uniform(2, 4, 20))) * 1.4 + Linear(), S)
    assert_close(weights(theta, c), by_arrays(weights, theta, c))
    assert_same(scores(theta, c, np.eye(1), 1), by_arrays(scores, theta, c, np.eye(1), 1), 1e-9)


@pytest.mark.parametrize("kernel", [Matern32(0.7), Own(0.7)])
def test_many_neighbours_are_left_to_lapack(rng, kernel, monkeypatch):
    c, theta = chosen(rng, 30, 12), Theta(kernel, S)
    w, sums = weights(theta, c), scores(theta, c, np.eye(1), 1)
    monkeypatch.setattr(conditionals, "MOST_COMPILED", 11)
    assert_close(weights(theta, c), w)
    assert_same(scores(theta, c, np.eye(1), 1), sums)


def test_steps_do_not_show(rng, by_arrays, monkeypatch):
    c, theta = chosen(rng, 40, 5, s=2, often=True), Theta(Matern32(0.7), S)
    w, sums = weights(theta, c), scores(theta, c, np.eye(2), 1)
    monkeypatch.setattr(conditionals, "ROWS", 7)
    monkeypatch.setattr(conditionals, "TILE_NUMBERS", 1)
    for call in (lambda function, *arguments: function(*arguments), by_arrays):
        assert_close(call(weights, theta, c), w)
        assert_close(call(combined, w, c, c.X), combined(w, c, c.X))
        assert_same(call(scores, theta, c, np.eye(2), 1), sums)


def test_other_array_modules(rng):
    device = fakearray.module("device")
    theta = Theta(Matern32((0.7, 1.1, 0.9)) + Constant(0.4), S)
    c = chosen(rng, 20, 5, s=2, noise=True, often=True)
    there = Conditionals(*map(device.asarray, c))
    assert_close(to_host(weights(theta, there)), weights(theta, c))
    found = scores(theta, there, device.asarray(np.eye(2)), 2)
    found = found._replace(square=to_host(found.square))
    assert_same(found, scores(theta, c, np.eye(2), 2))


def test_without_numba(monkeypatch, caplog):
    conditionals.compiled.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with caplog.at_level("INFO"):
        assert conditionals.compiled() is None
        assert conditionals.compiled() is None
    assert caplog.text.count("numba is not installed") == 1
    conditionals.compiled.cache_clear()


# --- values


@pytest.mark.parametrize("kernel", [Matern32((0.7, 0.5, 0.9), 1.3), RBF(0.8) + Periodic(0.9)])
@pytest.mark.parametrize("noise", [False, True])
def test_all_earlier_rows_give_the_exact_evidence(rng, kernel, noise):
    n, theta = 14, Theta(kernel, S)
    c = chosen(rng, n, n - 1, s=2, noise=noise)

    def exact(vector):
        at = theta.from_vector(vector)
        K = at.kernel(c.X)
        d = np.broadcast_to(variances(at.noise_variance, c.noise), n)
        return sum(oracle.evidence(K + np.diag(d), c.y[:, i : i + 1], 0.0) for i in range(2))

    found, vector = scores(theta, c, np.eye(2), 2), theta.to_vector(False)
    constant = n * np.log(2 * np.pi)
    assert_close(-found.logdet - 0.5 * np.trace(found.square) - constant, exact(vector))
    assert_close(found.gradient, central_differences(exact, vector), 1e-5, 1e-6)


@pytest.mark.parametrize("own", [False, True])
def test_gradient_is_that_of_the_value(rng, own):
    c, W = chosen(rng, 25, 4, s=3, noise=True, often=True), symmetric(rng, 3)
    theta = Theta(Own((0.7, 1.0, 1.4), 1.2) if own else Matern52((0.7, 1.0, 1.4), 1.2), S)

    def value(vector):
        sums = scores(theta.from_vector(vector), c, W, 2)
        return -sums.logdet - 0.5 * (W * sums.square).sum()

    vector = theta.to_vector(False)
    wanted = central_differences(value, vector)
    assert_close(scores(theta, c, W, 2).gradient, wanted, 1e-5, 1e-6)


def test_information_is_the_covariance_of_scores(rng):
    n, draws = 12, 4000
    theta = Theta(Matern32((0.7, 0.9, 1.1), 1.3), S)
    c = chosen(rng, n, n - 1)
    L = np.linalg.cholesky(theta.kernel(c.X) + S * np.eye(n))
    found = scores(theta, c, np.eye(1), 1).information
    each, sums = [], np.zeros_like(found)
    for _ in range(draws):
        drawn = c._replace(y=L @ rng.standard_normal((n, 1)))
        one = scores(theta, drawn, np.eye(1), 1)
        each.append(one.gradient)
        sums += one.information / draws  # of each row given those before it, whatever they are
    wanted = np.cov(np.array(each).T)
    scale = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)))
    assert np.abs((sums - wanted) / scale).max() < 0.1


def test_features_give_weights_of_the_residual(rng, by_arrays):
    c, theta = chosen(rng, 20, 5, noise=True), Theta(Matern32(1.2), S, rng.normal(size=(11, D)))
    prepared = inducing.prepare(theta, 1e-8)
    A = np.linalg.solve(prepared.factor, theta.kernel(theta.inputs, c.X)).T
    w = weights(theta, c, A)
    assert_close(w, dense(theta, c, A), 1e-8, 1e-8)
    assert_close(by_arrays(weights, theta, c, A), w)
    wanted = None
    for i, near in enumerate(c.near):
        own, before = (Block(*c[:3]).at(rows) for rows in ([i], near[near >= 0]))
        one = summary_of(window_of(prepared, own, [before]), 1)
        wanted = one if wanted is None else add(wanted, one)
    assert_same(summed(w, c, A), wanted, 1e-8)


def test_sums_count_rows_as_often_as_said(rng):
    c, theta = chosen(rng, 20, 5, s=2), Theta(Matern32(0.7), S)
    counts = rng.integers(1, 4, 20)
    twice = np.repeat(np.arange(20), counts)
    often, each = c._replace(often=counts), c._replace(own=c.own[twice], near=c.near[twice])
    assert_same(scores(theta, often, np.eye(2), 2), scores(theta, each, np.eye(2), 2))
    assert_same(*(summed(weights(theta, one), one, c.X) for one in (often, each)))


def test_missing_neighbours_may_stand_anywhere(rng, by_arrays):
    c, theta = chosen(rng, 20, 5), Theta(Matern32(0.7), S)
    near = c.near.copy()
    near[::2, 1] = -1
    near[3] = -1
    gaps = c._replace(near=near)
    w = weights(theta, gaps)
    assert_close(w, dense(theta, gaps))
    assert not w[:, :-1][near < 0].any()
    assert_close(w[3, -1], (1 + S) ** -0.5)
    assert_same(scores(theta, gaps, np.eye(1), 1), by_arrays(scores, theta, gaps, np.eye(1), 1))


def test_rows_without_neighbours(rng, by_arrays):
    c, theta = chosen(rng, 5, 0), Theta(Matern32(0.7), S)
    for call in (lambda function, *arguments: function(*arguments), by_arrays):
        assert_close(call(weights, theta, c), np.full((5, 1), (1 + S) ** -0.5))
        found = call(scores, theta, c, np.eye(1), 1)
        assert_close(found.logdet, 5 * np.log(1 + S))
    nobody = c._replace(own=c.own[:0], near=c.near[:0])
    assert weights(theta, nobody).shape == (0, 1)
    assert scores(theta, nobody, np.eye(1), 1).rows == 0


def test_single_precision_is_computed_in_double(rng, by_arrays):
    c, theta = chosen(rng, 20, 5, dtype=np.float32, noise=True), Theta(RBF(2.0), 1e-4)
    wide = c._replace(X=c.X.astype(np.float64), y=c.y.astype(np.float64))
    for call in (lambda function, *arguments: function(*arguments), by_arrays):
        assert call(weights, theta, c).dtype == np.float64
        assert_close(call(weights, theta, c), weights(theta, wide))
        assert_same(call(scores, theta, c, np.eye(1), 1), scores(theta, wide, np.eye(1), 1))


def test_read_only_and_strided_arrays(rng):
    c, theta = chosen(rng, 20, 5, s=2), Theta(Matern32(0.7), S)
    w = weights(theta, c)
    other = Conditionals(
        np.asfortranarray(c.X), c.y[:, ::-1], None, c.own.astype(np.int32), c.near.astype(np.int32)
    )
    for array in other:
        if array is not None:
            array.flags.writeable = False
    assert_close(weights(theta, other), w)
    assert_close(combined(w, other, other.y)[:, ::-1], combined(w, c, c.y))


def test_places_without_noise(rng):
    n, theta = 12, Theta(Matern32(0.7), S)
    c = chosen(rng, n + 4, n)
    noise = np.tile([1.0, 0.0], (n + 4, 1))
    noise[n:] = 0.0
    near = np.tile(np.arange(n), (4, 1))
    at = c._replace(noise=noise, own=np.arange(n, n + 4), near=near)
    w = weights(theta, at)
    K = theta.kernel(c.X)
    mean, variance = oracle.posterior(K[:n, :n], K[n:, :n], K[n:, n:], c.y[:n], S)[:2]
    assert_close(-(w[:, :-1] @ c.y[:n]) / w[:, -1:], mean)
    assert_close(w[:, -1] ** -2, np.diag(variance) if np.ndim(variance) == 2 else variance)


def test_rows_that_do_not_exist_are_refused(rng, by_arrays):
    c, theta = chosen(rng, 20, 5), Theta(Matern32(0.7), S)
    near = c.near.copy()
    near[3, 0] = 20
    for call in (lambda function, *arguments: function(*arguments), by_arrays):
        with pytest.raises(IndexError):
            call(weights, theta, c._replace(near=near))
        with pytest.raises(IndexError):
            call(combined, weights(theta, c), c, c.X[:19])


def test_far_from_the_origin(rng):
    c, theta = chosen(rng, 20, 5), Theta(Matern12(0.7), S)
    assert_close(weights(theta, c._replace(X=c.X + 1e5)), weights(theta, c), 1e-8, 1e-8)


@pytest.mark.parametrize("kernel", [Matern32(0.7), Own(0.7)])
def test_repeated_rows(rng, kernel):
    c = chosen(rng, 20, 5)
    X = c.X.copy()
    X[7] = X[int(c.near[7, 0])]
    repeated = c._replace(X=X)
    missing = c._replace(X=np.where(np.arange(20)[:, None] == 3, np.nan, X))
    assert np.isfinite(weights(Theta(kernel, 1e-8), repeated)).all()
    for function in (weights, lambda *arguments: scores(*arguments, np.eye(1), 1)):
        with pytest.raises(NumericalError, match="raise the noise variance, or drop"):
            function(Theta(kernel, 1e-17), repeated)
        with pytest.raises(NumericalError, match="look for NaN"):
            function(Theta(kernel, S), missing)


@pytest.mark.whole
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "kernel",
    [
        RBF(0.7),
        Matern12(0.7),
        Matern32(0.7),
        Matern52(0.7),
        RationalQuadratic(0.7, 1.2),
        Periodic(0.9),
        Matern12(0.7) + Constant(0.4),
        RBF(0.7) * Matern12(0.8),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_what_is_not_finite_never_passes_for_a_row_that_is_far_away(rng, kernel, bad):
    c = chosen(rng, 20, 5)
    own = c._replace(X=np.where(np.arange(20)[:, None] == int(c.own[-1]), bad, c.X))
    near = c._replace(X=np.where(np.arange(20)[:, None] == int(c.near[-1, 0]), bad, c.X))
    for rows, noise in ((own, S), (near, S), (c, np.nan)):
        for function in (weights, lambda *arguments: scores(*arguments, np.eye(1), 1)):
            with np.errstate(all="ignore"), pytest.raises(NumericalError):
                function(Theta(kernel, noise), rows)


def test_rows_that_features_explain(rng, by_arrays):
    c = chosen(rng, 20, 5)
    theta = Theta(Matern32(1.2), S, c.X[:10].astype(np.float64))
    prepared = inducing.prepare(theta, 1e-15)
    A = np.linalg.solve(prepared.factor, theta.kernel(theta.inputs, c.X)).T
    noise = np.tile([1.0, 0.0], (20, 1))
    noise[5] = 0.0  # at a support input, so nothing of it is left
    assert np.isfinite(weights(theta, c._replace(noise=None), A)).all()
    for call in (lambda function, *arguments: function(*arguments), by_arrays):
        with pytest.raises(NumericalError, match="raise the noise variance"):
            call(weights, theta, c._replace(noise=noise), A)
