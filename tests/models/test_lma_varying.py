"""LMA whose hyper-parameters vary a window at a time, against the dense joint Gaussian that it is.

Support inputs come first, each given those before it; a block is given them and the rows near it.
"""

from functools import reduce

import numpy as np
import pytest
from agree import assert_close
from models.test_lma import NOISE, cut, earlier

from daskgp.kernels import Matern32
from daskgp.models.markov.lma import LMA
from daskgp.models.values import Block, Theta
from daskgp.models.varying import Varying

SIZES, M, JITTER = (9, 4, 7, 1, 8), 6, 1e-8
NEAR = earlier(len(SIZES), 2)


def varied(size, m=M, seed=0):
    rng = np.random.default_rng(seed)
    knots, logs = rng.uniform(size=(4, 2)), size * rng.normal(size=(4, 4))
    field = Varying(knots, logs, np.array([0, 1]), np.zeros((4, 4)))
    kernel = Matern32(lengthscale=(0.4, 0.9), variance=1.4)
    return Theta(kernel, NOISE, rng.uniform(size=(m, 2)), field)


def rows(seed=1, p=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(sum(SIZES), 2))
    return X[np.argsort(X[:, 0])], rng.normal(size=(sum(SIZES), p))


def own(theta, places):
    """Hyper-parameters (n, k + 1) of places."""
    common = np.append(np.exp(theta.kernel.log_parameters), theta.noise_variance)
    return common * np.exp(theta.varying.at(places))


def matern(theta, place, A, B):
    """Covariance of f with the hyper-parameters of a place, and noise variances of B."""
    variance, *lengths, _ = own(theta, place[None])[0]
    r = np.sqrt(3.0) * np.sqrt((((A[:, None] - B) / lengths) ** 2).sum(axis=2))
    return variance * (1.0 + r) * np.exp(-r), own(theta, B)[:, -1]


def summed(model, prepared, blocks):
    """Sums over all blocks."""
    each = [model.local(prepared, b, [blocks[j] for j in NEAR[i]]) for i, b in enumerate(blocks)]
    return reduce(model.combine, each)


class Joint:
    """A Gaussian that grows by values given some of those that it has."""

    def __init__(self):
        self.C = np.zeros((0, 0))

    def add(self, given, weights, spread):
        """Values with these weights of those ``given`` and a covariance of what is left."""
        n, m = len(self.C), len(weights)
        W = np.zeros((m, n))
        W[:, given] = weights
        C = np.zeros((n + m, n + m))
        C[:n, :n], C[n:, :n] = self.C, W @ self.C
        C[:n, n:], C[n:, n:] = C[n:, :n].T, W @ self.C @ W.T + spread
        self.C = C
        return np.arange(n, n + m)


def conditional(K, given):
    """Weights and covariance of the last values given the first."""
    W = np.linalg.solve(K[:given, :given], K[:given, given:]).T
    return W, K[given:, given:] - W @ K[:given, given:]


def dense(theta, X, near, T):
    """Joint covariance of all rows y and, by window, of places f; positions of either."""
    S, joint, at = theta.inputs, Joint(), {}
    for j in range(len(S)):
        K, _ = matern(theta, S[j], S[: j + 1], S[: j + 1])
        variance = K[0, 0]
        K += JITTER * variance * np.eye(j + 1)
        joint.add(np.arange(j), *conditional(K, j))
    support = np.arange(len(S))

    def window(place, given, new, noisy):
        both = np.concatenate([S, *(X[i] for i in given), new])
        K, noise = matern(theta, place, both, both)
        K[np.diag_indices(len(S))] += JITTER * K[0, 0]
        rows_, n = np.arange(len(S), len(both)), len(both) - len(new)
        noised = rows_ if noisy else np.arange(len(S), n)
        K[noised, noised] += noise[noised]
        known = np.concatenate([support, *(at[i] for i in given)]).astype(int)
        return joint.add(known, *conditional(K, n))

    blocks = cut(SIZES)
    X = [X[i] for i in blocks]
    for i, block in enumerate(X):
        at[i] = window(block.mean(axis=0), list(near[i]), block, True)
    y, by_place = np.concatenate([at[i] for i in range(len(X))]), []
    for places, given in T:
        middle = np.concatenate([X[i] for i in given]).mean(axis=0)
        by_place.append(window(middle, given, places, False))
    return joint.C, y, by_place


@pytest.mark.parametrize("size", [0.0, 0.4])
def test_evidence_and_predictions_are_those_of_the_joint_gaussian(size):
    theta, (X, y), rng = varied(size), rows(), np.random.default_rng(5)
    model, blocks = LMA(jitter=JITTER), cut(SIZES)
    T = [(rng.uniform(size=(3, 2)), given) for given in ([0, 1], [2, 3, 4])]
    C, at, places = dense(theta, X, NEAR, T)
    found = [Block(X[i], y[i]) for i in blocks]
    prepared = model.prepare(theta)
    total = summed(model, prepared, found)
    state = model.posterior(prepared, total)
    C_y = C[np.ix_(at, at)]
    logdet, solved = np.linalg.slogdet(C_y)[1], np.linalg.solve(C_y, y)
    evidence = -0.5 * ((y * solved).sum() + y.shape[1] * (logdet + len(y) * np.log(2 * np.pi)))
    assert_close(model.objective(prepared, total).value, evidence, 1e-8, 1e-8)
    for (X_new, given), new in zip(T, places, strict=True):
        near = model.condition(theta, state, [found[i] for i in given])
        moments = model.predict(theta, state, X_new, near, "variance")
        across = C[np.ix_(new, at)]
        assert_close(moments.mean, across @ solved, 1e-7, 1e-8)
        spread = np.diag(C)[new] - (across * np.linalg.solve(C_y, across.T).T).sum(axis=1)
        assert_close(moments.variance, spread, 1e-6, 1e-7)
    if size == 0.0:
        same = model.prepare(Theta(theta.kernel, NOISE, theta.inputs))
        assert_close(summed(model, same, found).gram, total.gram, 1e-6, 1e-6)
