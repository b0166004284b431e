"""Rows with noise variances of their own: the laws of every method hold for them too."""

import numpy as np
import pytest

from daskgp import kernels, likelihoods, testing
from daskgp.errors import SettingError
from daskgp.kernels.weights import Weights
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.cggp import CGGP
from daskgp.models.actions.passes import Paired
from daskgp.models.actions.sums import ActionTheta, Panel
from daskgp.models.exact import Exact
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.models.markov.lma import LMA
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.sparse.ssgp import SparseSpectrum
from daskgp.models.values import Block, Theta, variances
from daskgp.testing import central_differences, combine_experts, rows_of

N = 40
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 2, (N, 2))
Y = np.sin(3 * X[:, :1]) + 0.3 * RNG.standard_normal((N, 1))
TARGETS = {"one target": Y, "two targets": np.hstack([Y, -(Y**2)])}
NOISE = np.column_stack([RNG.uniform(0.3, 2.0, N), 10.0 ** RNG.uniform(-6, 1, N)])
THETA = Theta(kernels.Matern32(lengthscale=(0.7, 0.5), variance=1.3), 0.2)
AT_INPUTS = Theta(THETA.kernel, 0.2, X[::5] + 0.01)
METHODS = {
    "exact": (Exact(), THETA),
    "sgpr": (SGPR(), AT_INPUTS),
    "ssgp": (SparseSpectrum(), Theta(THETA.kernel, 0.2, RNG.standard_normal((6, 2)))),
    "lma": (LMA(), AT_INPUTS),
}
AGGREGATIONS = ("poe", "gpoe", "bcm", "rbcm", "grbcm", "npae", "optimal")
targets = pytest.mark.parametrize("y", TARGETS.values(), ids=TARGETS)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize(("of", "theta"), [(ExactExperts, THETA), (SparseExperts, AT_INPUTS)])
def test_experts(of, theta, aggregation):
    fixed = 2 if aggregation == "grbcm" else 0
    testing.check_ensemble(of(3, aggregation), theta, X, Y, fixed, NOISE)


def moments(model, theta, blocks):
    """Mean and variance beside the rows of blocks."""
    if hasattr(model, "aggregation"):
        return combine_experts(model, theta, [[block] for block in blocks], X + 0.02)[1][:2]
    (state, _), near = model.solve(theta, rows_of(blocks)), None
    if isinstance(model, CaGP):
        near = [Panel(Block.join(blocks).X, theta.weights)]
    elif model.keeps_rows:
        near = model.condition(theta, state, blocks)
    found = model.predict(theta, state, X + 0.02, near, "variance")
    return found.mean, found.variance


def acting(rows):
    """Hyper-parameters with actions on some of the rows 0 to N, which share a row's weight.

    The first row has an action of its own.
    """
    owner = np.searchsorted([1, N // 2], np.arange(N), side="right")
    values = np.random.default_rng(1).uniform(0.5, 1.5, N)[rows] / np.bincount(rows)[rows]
    weights = Weights(values, owner[rows], 3)
    return ActionTheta(THETA.kernel, THETA.noise_variance, weights=weights)


EXPERTS = {
    f"{of.__name__} {rule}": (of(3, rule), theta)
    for of, theta in ((ExactExperts, THETA), (SparseExperts, AT_INPUTS))
    for rule in AGGREGATIONS
}
KINDS = {**METHODS, **EXPERTS, "cagp": (CaGP(), acting)}
every = pytest.mark.parametrize("name", KINDS)


def of_parts(name, rows, parts):
    """Moments of a method for blocks of rows, which are lists of their numbers."""
    model, theta = KINDS[name]
    theta = theta(np.concatenate(parts)) if callable(theta) else theta
    return moments(model, theta, [rows.at(part) for part in parts])


@every
def test_half_the_noise_is_the_row_given_twice(name):
    weight = np.random.default_rng(2).integers(1, 4, N)
    weighted = Block(X, Y, np.column_stack([1 / weight, np.zeros(N)]))
    parts = np.split(np.arange(N), [13, 26])
    copies = [np.repeat(part, weight[part]) for part in parts]
    wanted = of_parts(name, Block(X, Y), copies)
    for a, b in zip(of_parts(name, weighted, parts), wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@every
def test_a_row_of_endless_noise_is_a_row_left_out(name):
    noise = np.column_stack([np.ones(N), np.zeros(N)])
    noise[0, 1] = 1e14
    parts = np.split(np.arange(N), [13, 26])
    left = [part[part != 0] for part in parts]
    wanted = of_parts(name, Block(X, Y), left)
    for a, b in zip(of_parts(name, Block(X, Y, noise), parts), wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_an_action_per_row_is_the_exact_gp():
    model, theta = CaGP().exact_limit(THETA, X)
    rows = Block(X, Y, NOISE)
    halves = rows.at(slice(0, 15)), rows.at(slice(15, None))
    _, value = model.solve(theta, rows_of(halves))
    C = THETA.kernel(X) + np.diag(variances(0.2, NOISE))
    wanted = -0.5 * ((Y * np.linalg.solve(C, Y)).sum() + np.linalg.slogdet(C).logabsdet)
    assert value == pytest.approx(wanted - 0.5 * N * np.log(2 * np.pi), rel=1e-10)
    mean, variance = moments(model, theta, [rows])
    K = THETA.kernel(X + 0.02, X)
    np.testing.assert_allclose(mean, K @ np.linalg.solve(C, Y), atol=1e-8)
    explained = np.einsum("ij,ji->i", K, np.linalg.solve(C, K.T))
    np.testing.assert_allclose(variance, THETA.kernel.variance - explained, atol=1e-8)


@targets
@pytest.mark.parametrize("loss", ["elbo", "projected"])
def test_the_gradient_of_actions(loss, y):
    values, owner, k = np.random.default_rng(1).standard_normal(N), np.arange(N) % 5, 4
    rows, model = Block(X, y, NOISE), CaGP(loss)
    rounds = rows_of([rows.at(slice(0, 15)), rows.at(slice(15, None))])

    def evaluated(vector):
        theta = THETA.from_vector(vector[:k])
        weights = Weights(vector[k:], owner, 5)
        acting = ActionTheta(theta.kernel, theta.noise_variance, weights=weights)
        return model.evaluate(acting, rounds)

    start = np.concatenate([THETA.to_vector(False), values])
    gradient = evaluated(start).gradient
    found = np.concatenate([gradient.kernel, [gradient.noise], gradient.weights])
    wanted = central_differences(lambda v: evaluated(v).value, start)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_conjugate_gradients_solve_with_it():
    rows = rows_of([Block(X, Y, NOISE)])
    found = CGGP().weights(THETA, Paired(rows, rows, N, 1, 0), 1e-12, 500).weights
    C = THETA.kernel(X) + np.diag(variances(0.2, NOISE))
    np.testing.assert_allclose(found, np.linalg.solve(C, Y), rtol=1e-6, atol=1e-6)


def test_a_gaussian_likelihood_expects_it():
    mean, variance = 0.5 * Y, np.linspace(0.1, 0.9, N)
    likelihood = likelihoods.by_name("gaussian").with_log_parameters([np.log(0.2)])
    of_rows = likelihood.of_rows(NOISE)
    each = [
        likelihood.with_log_parameters([np.log(d)]).expected(*row)
        for d, *row in zip(
            variances(0.2, NOISE), Y[:, None], mean[:, None], variance[:, None], strict=True
        )
    ]
    found = of_rows.expected(Y, mean, variance)
    assert found.value == pytest.approx(sum(one.value for one in each), rel=1e-12)
    for name in ("by_mean", "by_variance"):
        wanted = np.concatenate([getattr(one, name) for one in each])
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-12)

    def value(logs):
        moved = likelihood.with_log_parameters(logs).of_rows(NOISE)
        return moved.expected(Y, mean, variance).value

    slope = central_differences(value, np.log([0.2]))
    np.testing.assert_allclose(found.by_log, slope, rtol=1e-6)
    d = variances(0.2, NOISE)[:, None] + variance[:, None]
    density = -0.5 * (np.log(2 * np.pi * d) + (Y - mean) ** 2 / d)
    np.testing.assert_allclose(of_rows.log_density(Y, mean, variance), density, rtol=1e-12)
    with pytest.raises(SettingError, match="poisson likelihood has no noise variance per row"):
        likelihoods.by_name("poisson").of_rows(NOISE)
