"""Trend functions as further right sides: the evidence of contrasts and its gradient."""

import numpy as np
import pytest

from daskgp import kernels, testing
from daskgp.models import trend
from daskgp.models.exact import Exact
from daskgp.models.markov.lma import LMA
from daskgp.models.markov.vecchia import Vecchia
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.sparse.ssgp import SparseSpectrum
from daskgp.models.values import Block, Theta
from tests import oracle

N, S = 30, 0.2
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((N, 2)), RNG.standard_normal((N, 2))
COLUMNS = (X - X.mean(axis=0)) / X.std(axis=0)
H = np.column_stack([np.ones(N), COLUMNS @ trend.uncorrelated(COLUMNS.T @ COLUMNS / N)])
NOISE = np.column_stack([RNG.uniform(0.5, 2, N), RNG.uniform(0, 0.1, N)])
MATERN = kernels.Matern32((0.8, 1.1), variance=1.3)
CASES = {
    "exact": (Exact(trend=3), Theta(MATERN, S)),
    "sgpr": (SGPR(jitter=0.0, trend=3), Theta(MATERN, S, X.copy())),
    "lma": (LMA(jitter=1e-12, trend=3), Theta(MATERN, S, X[:5].copy())),
    "vecchia": (Vecchia(trend=3, n_neighbours=N), Theta(MATERN, S)),
    "full-scale": (
        Vecchia(jitter=1e-12, trend=3, n_neighbours=N),
        Theta(MATERN, S, X[:5].copy()),
    ),
    "ssgp": (
        SparseSpectrum(trend=3),
        Theta(kernels.RBF((0.8, 1.1), variance=1.3), S, RNG.standard_normal((6, 2))),
    ),
}


def covariance(name, theta):
    if name != "ssgp":
        return theta.kernel(X)
    phases = X @ (theta.inputs / theta.kernel.lengthscale).T
    Phi = np.hstack([np.cos(phases), np.sin(phases)])
    return theta.kernel.variance / len(theta.inputs) * Phi @ Phi.T


def test_functions_are_uncorrelated_and_columns_that_say_nothing_new_have_none():
    np.testing.assert_allclose(H.T @ H, N * np.eye(3), atol=1e-12)
    same = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert trend.uncorrelated(same).shape == (3, 2)


@pytest.mark.parametrize("noise", [None, NOISE], ids=["alike", "by-row"])
@pytest.mark.parametrize("name", CASES)
def test_evidence_is_that_of_contrasts_and_products_give_generalised_least_squares(name, noise):
    model, theta = CASES[name]
    rows = testing.rows_of([Block(X, np.hstack([Y, H]), noise)])
    d = np.full(N, S) if noise is None else S * noise[:, 0] + noise[:, 1]
    C = covariance(name, theta) + np.diag(d)
    A = np.linalg.qr(H, mode="complete")[0][:, 3:]
    found = model.evaluate(theta, rows)
    assert found.value == pytest.approx(oracle.evidence(A.T @ C @ A, A.T @ Y, 0.0), rel=1e-9)
    vector = theta.to_vector(False)
    for i, slope in enumerate(found.gradient.to_vector(False)):
        step = 1e-5 * np.eye(len(vector))[i]
        up, down = (model.evaluate(theta.from_vector(vector + e), rows) for e in (step, -step))
        assert slope == pytest.approx((up.value - down.value) / 2e-5, rel=1e-5, abs=1e-6)
    state, _ = model.solve(theta, rows)
    B, root = trend.posterior(state.trend, 3)
    G = np.linalg.inv(H.T @ np.linalg.solve(C, H))
    np.testing.assert_allclose(root @ root.T, G, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(B, G @ H.T @ np.linalg.solve(C, Y), rtol=1e-8, atol=1e-10)


def test_functions_that_some_rows_do_not_tell_apart_do_not_stop_training():
    model, theta = CASES["exact"]
    alike = np.column_stack([H[:, :2], H[:, 1]])
    found = model.evaluate(theta, testing.rows_of([Block(X, np.hstack([Y, alike]))]))
    two = Exact(trend=2).evaluate(theta, testing.rows_of([Block(X, np.hstack([Y, H[:, :2]]))]))
    a, b = (one.gradient.to_vector(False) for one in (found, two))
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
