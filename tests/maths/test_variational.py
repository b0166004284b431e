"""Factors, rows and what goes back through Z, against plain NumPy and over every array module.

An objective is a function of K, K_x, T, the mean's weights on Z and C[Z, residual] a alone; the
kernels are not needed here, so sizes go beyond the blocks in which triangles are worked on.
"""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp.arrays import linalg
from daskgp.arrays.backend import to_host
from daskgp.models.variational import posterior

SIZES = [1, 5, 129, 300]  # below and above the blocks of a triangle
N, P = 7, 2


class Given(NamedTuple):
    """What q is made of, and the derivatives of some objective by means and variances of rows."""

    K: np.ndarray
    K_x: np.ndarray
    T: np.ndarray
    weights: np.ndarray
    mixed: np.ndarray
    g: np.ndarray
    s: np.ndarray


def problem(b, seed=0, n=N, p=P, signs=-1.0):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(b, b + 3))
    return Given(
        K=B @ B.T / b + np.eye(b),
        K_x=rng.normal(size=(n, b)) / np.sqrt(b),
        T=np.tril(rng.normal(size=(b, b)), -1) / b + np.diag(rng.uniform(0.5, 1.5, b)),
        weights=rng.normal(size=(b, p)),
        mixed=rng.normal(size=(b, p)),
        g=rng.normal(size=(n, p)),
        s=signs * rng.uniform(0.1, 1.0, n),
    )


def sent(of, xp, dtype=np.float64):
    return Given(*(xp.asarray(part.astype(dtype)) for part in of))


def hybrid_of(of):
    """Mean, variance less the prior's, and KL but for the residual's own: eqs. 12 to 14."""
    inverse, L = np.linalg.inv(of.K), np.linalg.cholesky(of.K)
    m = L @ (of.weights - np.linalg.solve(L, of.mixed))
    S = L @ of.T @ of.T.T @ L.T
    less = np.diag(of.K_x @ inverse @ (S - of.K) @ inverse @ of.K_x.T)
    logdet = np.linalg.slogdet(S).logabsdet - np.linalg.slogdet(of.K).logabsdet
    p = of.weights.shape[1]
    kl = 0.5 * p * (np.trace(S @ inverse) - len(S) - logdet)
    return of.K_x @ inverse @ m, less, kl + 0.5 * (m * (inverse @ (m + 2 * of.mixed))).sum()


def direct_of(of):
    """The same of the direct form, eqs. 8 and 9; its mean has no residual here."""
    B = of.T @ of.T.T
    R, p = B @ np.linalg.inv(np.eye(len(B)) + of.K @ B), of.weights.shape[1]
    logdet = np.linalg.slogdet(np.eye(len(B)) + of.K @ B).logabsdet
    less = -np.diag(of.K_x @ R @ of.K_x.T)
    return of.K_x @ of.weights, less, 0.5 * p * (logdet - np.trace(of.K @ R))


def objective(dense, of):
    mean, less, kl = dense(of)
    return float((of.g * mean).sum() + (of.s * less).sum()) - kl


def factors(form, of):
    if form == "direct":
        return posterior.direct(of.K, of.T, of.weights)
    L, _ = linalg.cholesky(of.K, jitter=0.0)
    return posterior.hybrid(L, of.T, of.weights, of.mixed)


def rows_of(form, f, of):
    return getattr(posterior, f"{form}_rows")(f, of.K_x)


DENSE = {"hybrid": hybrid_of, "direct": direct_of}
both_forms = pytest.mark.parametrize("form", DENSE)
sizes = pytest.mark.parametrize("b", SIZES)


# -- values --------------------------------------------------------------------------------------


@both_forms
@sizes
def test_rows_and_divergence(xp, form, b):
    of = problem(b)
    mean, less, kl = DENSE[form](of)
    there = sent(of, xp)
    f = factors(form, there)
    rows = rows_of(form, f, there)
    np.testing.assert_allclose(to_host(rows.mean), mean, atol=1e-10)
    np.testing.assert_allclose(to_host(rows.less), less, atol=1e-10)
    np.testing.assert_array_equal(to_host(there.K_x), of.K_x)
    found = posterior.hybrid_kl(f, there.weights) if form == "hybrid" else posterior.direct_kl(f, P)
    assert isinstance(found, float)
    assert found == pytest.approx(kl, rel=1e-9)


@pytest.mark.parametrize("p", [1, 3])
def test_the_divergence_of_the_prior_is_zero(p):
    of = problem(6, p=p)
    f = posterior.hybrid(np.linalg.cholesky(of.K), np.eye(6), 0 * of.weights, 0 * of.mixed)
    assert posterior.hybrid_kl(f, 0 * of.weights) == pytest.approx(0, abs=1e-12)
    f = posterior.direct(of.K, 0 * of.T, of.weights)
    assert posterior.direct_kl(f, p) == pytest.approx(0, abs=1e-12)
    np.testing.assert_array_equal(posterior.direct_rows(f, of.K_x).less, 0)


def test_the_sign_of_a_root_is_of_no_account():
    of = problem(6)
    flipped = of._replace(T=of.T * np.array([1, -1, -1, 1, 1, -1]))
    for form in DENSE:
        one, other = (rows_of(form, factors(form, few), few) for few in (of, flipped))
        np.testing.assert_allclose(one.less, other.less, atol=1e-12)
    one, other = (posterior.hybrid_kl(factors("hybrid", few), of.weights) for few in (of, flipped))
    assert one == pytest.approx(other, rel=1e-12)


# -- gradients -----------------------------------------------------------------------------------


def gradient(form, of, natural=False):
    """Cotangents of K, K_x, T, the weights and C[Z, residual] a; rows are met in two parts."""
    f, parts = factors(form, of), []
    for few in (slice(0, 3), slice(3, None)):
        rows = getattr(posterior, f"{form}_rows")(f, of.K_x[few])
        extra = (natural,) if form == "hybrid" else ()
        parts.append(getattr(posterior, f"{form}_back")(f, rows, of.g[few], of.s[few], *extra))
    total = posterior.Sums(*(a + b for a, b in zip(parts[0][1], parts[1][1], strict=True)))
    if form == "direct":
        through = posterior.direct_through(f, total, of.T, of.weights.shape[1])
    else:
        through = posterior.hybrid_through(f, total, of.weights, f.explained)
    return [to_host(part[0]) for part in parts], total, through


@both_forms
@sizes
def test_gradient_along_any_direction_is_a_difference(xp, form, b):
    of, step = problem(b, seed=b), 1e-5
    of = of._replace(T=of.T * np.where(np.arange(b) % 3, 1, -1))  # a learned root may cross zero
    found, _, through = gradient(form, sent(of, xp))
    bars = {
        "K": to_host(through.gram),
        "K_x": np.concatenate(found),
        "T": to_host(through.root),
        "weights": to_host(through.weights),
    }
    if form == "hybrid":
        bars["mixed"] = to_host(through.residual)
    else:
        assert through.residual is None
    rng = np.random.default_rng(1)
    assert not np.triu(bars["T"], 1).any()
    for name, bar in bars.items():
        at, D = getattr(of, name), rng.normal(size=bar.shape) / np.sqrt(b)
        D = D + D.T if name == "K" else np.tril(D) if name == "T" else D
        ahead, behind = (
            objective(DENSE[form], of._replace(**{name: at + move * D})) for move in (step, -step)
        )
        wanted = (ahead - behind) / (2 * step)
        assert (bar * D).sum() == pytest.approx(wanted, rel=1e-6, abs=1e-6), name


@sizes
def test_natural_gradients_have_sums_of_their_own(xp, b):
    of = sent(problem(b), xp)
    (first, total, through), (alike, others, wanted) = (
        gradient("hybrid", of, natural) for natural in (True, False)
    )
    A = np.linalg.solve(np.linalg.cholesky(to_host(of.K)), to_host(of.K_x).T)
    np.testing.assert_allclose(to_host(total.gram), A * to_host(of.s) @ A.T, atol=1e-10)
    assert total.root.size == others.gram.size == through.root.size == 0
    np.testing.assert_allclose(first[0], alike[0], atol=1e-10)
    for name in ("gram", "weights", "residual"):
        found, same = getattr(through, name), getattr(wanted, name)
        np.testing.assert_allclose(to_host(found), to_host(same), atol=1e-9)


@sizes
def test_an_estimate_of_h_stands_for_it_where_a_gradient_is_linear_in_it(b):
    """So that a mean of estimates gives the mean of gradients."""
    of = problem(b)
    f, (_, total, _) = factors("hybrid", of), gradient("hybrid", of)
    rng = np.random.default_rng(2)
    noise = rng.normal(size=of.weights.shape)
    plus, minus, plain = (
        posterior.hybrid_through(f, total, of.weights, f.explained + sign * noise)
        for sign in (1, -1, 0)
    )
    for p, m, wanted in zip(plus, minus, plain, strict=True):
        np.testing.assert_allclose((p + m) / 2, wanted, atol=1e-9)
    assert np.abs(plus.gram - plain.gram).max() > 1e-3


def test_what_rows_share_and_their_tile_are_left_as_they_were():
    of = problem(5)
    for form in DENSE:
        f = factors(form, of)
        rows = rows_of(form, f, of)
        before = [np.copy(part) for part in (of.K_x, of.g, of.s, *f)]
        extra = (False,) if form == "hybrid" else ()
        getattr(posterior, f"{form}_back")(f, rows, of.g, of.s, *extra)
        for now, then in zip((of.K_x, of.g, of.s, *f), before, strict=True):
            np.testing.assert_array_equal(now, then)


@both_forms
def test_float32_rows_stay_float32(form):
    of = problem(20)
    f, (wanted, sums, _) = factors(form, of), gradient(form, of)
    few = sent(of, np, np.float32)
    narrow = posterior.Factors(*(part.astype(np.float32) for part in f))
    rows = rows_of(form, narrow, few)
    extra = (False,) if form == "hybrid" else ()
    found, total = getattr(posterior, f"{form}_back")(narrow, rows, few.g, few.s, *extra)
    assert {part.dtype for part in (*rows, found, *total)} == {np.dtype(np.float32)}
    np.testing.assert_allclose(found, np.concatenate(wanted), atol=1e-4)
    for f, w in zip(total, sums, strict=True):
        np.testing.assert_allclose(f, w, atol=1e-4)


@pytest.mark.parametrize("signs", [-1.0, 1.0, 0.0, "both"])
def test_weighted_gram(xp, rng, signs):
    A, s = rng.normal(size=(9, 4)), rng.uniform(0.1, 1, 9)
    s = s * (rng.choice([-1, 1], 9) if signs == "both" else signs)
    found = to_host(posterior.weighted_gram(xp.asarray(A), xp.asarray(s)))
    np.testing.assert_allclose(found, A.T @ np.diag(s) @ A, atol=1e-12)


@given(b=st.integers(0, 300), seed=st.integers(0, 2**16))
def test_the_lower_triangle_is_kept_in_place(b, seed):
    A = np.random.default_rng(seed).normal(size=(b, b))
    wanted = np.tril(A)
    assert posterior._lower(A) is A
    np.testing.assert_array_equal(A, wanted)


# -- natural gradients ---------------------------------------------------------------------------


def natural_of(of, projected, curvature, rate):
    """Mean and covariance whose natural parameters are between those of q and those asked for."""
    S, p = of.T @ of.T.T, of.weights.shape[1]
    asked = -2 / p * curvature
    precision = (1 - rate) * np.linalg.inv(S) + rate * (np.eye(len(S)) + asked)
    linear = (1 - rate) * np.linalg.solve(S, of.weights)
    linear += rate * (projected + asked @ of.weights)
    return np.linalg.solve(precision, linear), np.linalg.inv(precision)


@sizes
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("p", [1, 3])
def test_natural_step(xp, b, rate, p):
    of = problem(b, p=p, n=b + 2)
    projected, curvature = of.K_x.T @ of.g, of.K_x.T @ (of.K_x * of.s[:, None])
    precision = np.linalg.inv(of.T @ of.T.T)
    given_ = (of.weights, precision, projected, curvature)
    w, root = posterior.natural(*map(xp.array, given_), rate)
    mean, covariance = natural_of(of, projected, curvature, rate)
    w, root = to_host(w), to_host(root)
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-9)
    np.testing.assert_allclose(w, mean, atol=1e-8)
    np.testing.assert_array_equal(root, np.tril(root))
    assert (np.diag(root) > 0).all()
    if rate == 0.0:
        np.testing.assert_allclose(root, of.T, atol=1e-9)
        np.testing.assert_allclose(w, of.weights, atol=1e-9)


def test_a_natural_step_leaves_its_arguments_but_the_precision_as_they_were():
    of = problem(6)
    given_ = [of.weights, of.K_x.T @ of.g, of.K_x.T @ (of.K_x * of.s[:, None])]
    before = [np.copy(part) for part in given_]
    posterior.natural(given_[0], np.linalg.inv(of.T @ of.T.T), *given_[1:], 0.5)
    for now, then in zip(given_, before, strict=True):
        np.testing.assert_array_equal(now, then)


@given(
    b=st.integers(1, 12),
    n=st.integers(0, 20),
    rate=st.floats(0.0, 1.0),
    scale=st.floats(1e-3, 1e4),
    seed=st.integers(0, 2**16),
)
def test_a_natural_step_never_loses_positive_definiteness(b, n, rate, scale, seed):
    of = problem(b, seed, n=n)
    curvature = of.K_x.T @ (of.K_x * (scale * of.s)[:, None])
    precision = linalg.inverse_from_factor(of.T)
    _, root = posterior.natural(of.weights, precision, of.weights, curvature, rate)
    widest = max(1.0, np.linalg.norm(of.T, 2))
    assert (np.diag(root) > 0).all()
    assert np.linalg.norm(root, 2) <= widest * (1 + 1e-9)
