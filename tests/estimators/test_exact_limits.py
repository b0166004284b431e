"""A method that approximates nothing is the exact GP: evidence, moments and covariance."""

import numpy as np
import pytest
from commands import rows
from effective import effective
from fits import equal
from sklearn.base import clone

from daskgp import LMA, SGPR, CaGP, ExactGP, ExpertsGP, kernels

X, Y = rows(60)
T = rows(15, seed=1)[0]
KNOWN = {"kernel": kernels.Matern32((0.5, 0.8), variance=1.4), "optimizer": None}
ONE = {"n_experts": 1, "ridge": 0.0, "inducing": X}
BLOCKS = {"n_support": 12, "block_rows": 15, "markov_order": 3}
TURNED = np.linalg.qr(np.random.default_rng(0).standard_normal((60, 60)))[0]
LIMITS = {
    "inducing inputs at the rows": (SGPR(**KNOWN, inducing=X), 1e-5),
    "all nearest blocks": (LMA(**KNOWN, **BLOCKS), 1e-7),
    "all blocks in order": (LMA(**KNOWN, **BLOCKS, neighbours="order"), 1e-7),
    "one exact expert": (effective(ExpertsGP, **KNOWN, **ONE, expert="exact"), 1e-4),
    "one sparse expert": (effective(ExpertsGP, **KNOWN, **ONE), 1e-4),
    "as many actions": (CaGP(**KNOWN, n_actions=60), 1e-6),
    "as many actions of rows as they lie": (CaGP(**KNOWN, n_actions=60, order=None), 1e-6),
    "as many random actions": (CaGP(**KNOWN, n_actions=60, actions="random"), 1e-6),
    "as many given actions": (CaGP(**KNOWN, actions=TURNED), 1e-6),
    "as many projected targets": (CaGP(**KNOWN, n_actions=60, loss="projected"), 1e-6),
}
"""Estimators of 60 rows, and how near they come."""


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("name", LIMITS)
def test_it_is_the_exact_gp(name, p):
    made, near = LIMITS[name]
    y = np.column_stack([Y, -3 * Y + X[:, 0]]) if p == 2 else Y
    model, exact = clone(made).fit(X, y), ExactGP(**KNOWN).fit(X, y)
    assert model.objective_ == pytest.approx(exact.objective_, rel=near)
    evidence = exact.log_marginal_likelihood()
    assert model.log_marginal_likelihood() == pytest.approx(evidence, rel=near)
    equal(model.predict(T, True), exact.predict(T, True), rtol=near, atol=near)
    covariances = [one.predict(T, return_cov=True)[1] for one in (model, exact)]
    np.testing.assert_allclose(*covariances, atol=10 * near)
