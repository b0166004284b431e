"""LMA whose hyper-parameters vary a window at a time, against the dense joint Gaussian."""

from functools import reduce

import numpy as np
import pytest
from agree import assert_close
from models.test_lma import NOISE, cut, earlier

from daskgp.kernels import Matern32
from daskgp.models.markov.lma import LMA
from daskgp.models.values import Block, Theta
from daskgp.models.varying import Varying

SIZES = (9, 4, 7, 1, 8)
NEAR = earlier(len(SIZES), 2)


def varied(size, seed=0):
    rng = np.random.default_rng(seed)
    knots, logs = rng.uniform(size=(4, 2)), size * rng.normal(size=(4, 4))
    field = Varying(knots, logs, np.array([0, 1]), np.zeros((4, 4)))
    return Theta(Matern32(lengthscale=(0.4, 0.9), variance=1.4), NOISE, None, field)


def own(theta, places):
    """Hyper-parameters (n, k + 1) of places."""
    common = np.append(np.exp(theta.kernel.log_parameters), theta.noise_variance)
    return common * np.exp(theta.varying.at(places))


def matern(theta, place, A):
    """Covariance of f at rows A with the hyper-parameters of a place."""
    variance, *lengths, _ = own(theta, place[None])[0]
    r = np.sqrt(3.0) * np.sqrt((((A[:, None] - A) / lengths) ** 2).sum(axis=2))
    return variance * (1.0 + r) * np.exp(-r)


class Joint:
    """A Gaussian that grows by values given some of those that it has."""

    def __init__(self):
        self.C = np.zeros((0, 0))

    def add(self, K, given):
        """Values that have the covariance K with those ``given``, which come first in it."""
        g, n = len(given), len(self.C)
        W = np.zeros((len(K) - g, n))
        W[:, given] = np.linalg.solve(K[:g, :g], K[:g, g:]).T
        spread = K[g:, g:] - W[:, given] @ K[:g, g:]
        across = W @ self.C
        self.C = np.block([[self.C, across.T], [across, across @ W.T + spread]])
        return np.arange(n, len(self.C))


def dense(theta, X, noise):
    """Covariance of all rows y."""
    joint, at = Joint(), {}
    for i, block in enumerate(cut(SIZES)):
        rows = np.concatenate([*(cut(SIZES)[j] for j in NEAR[i]), block]).astype(int)
        K = matern(theta, X[block].mean(axis=0), X[rows]) + np.diag(noise[rows])
        known = np.concatenate([*(at[j] for j in NEAR[i]), []]).astype(int)
        at[i] = joint.add(K, known)
    order = np.concatenate([at[i] for i in range(len(SIZES))])
    return joint.C[np.ix_(order, order)]


@pytest.mark.whole
@pytest.mark.parametrize("known", [False, True], ids=["", "known errors"])
@pytest.mark.parametrize("size", [0.0, 0.4])
def test_it_is_the_joint_gaussian_of_its_windows(size, known):
    theta, rng, model = varied(size), np.random.default_rng(5), LMA()
    X, y = rng.uniform(size=(sum(SIZES), 2)), rng.normal(size=(sum(SIZES), 2))
    errors = np.column_stack([rng.uniform(0.5, 2, len(X)), rng.uniform(0, 0.1, len(X))])
    errors = errors if known else np.tile([1.0, 0.0], (len(X), 1))
    noise = own(theta, X)[:, -1] * errors[:, 0] + errors[:, 1]
    C = dense(theta, X, noise)
    blocks = [Block(X[i], y[i], errors[i] if known else None) for i in cut(SIZES)]
    prepared = model.prepare(theta)
    each = [model.local(prepared, b, [blocks[j] for j in NEAR[i]]) for i, b in enumerate(blocks)]
    total = reduce(model.combine, each)
    state = model.posterior(prepared, total)
    logdet, solved = np.linalg.slogdet(C)[1], np.linalg.solve(C, y)
    evidence = -0.5 * ((y * solved).sum() + y.shape[1] * (logdet + len(y) * np.log(2 * np.pi)))
    assert_close(model.objective(prepared, total).value, evidence)
    for given in ([0, 1], [2, 3, 4]):
        X_new = rng.uniform(size=(3, 2))
        near = model.condition(theta, state, [blocks[i] for i in given])
        found = model.predict(theta, state, X_new, near, "variance")
        K = matern(theta, near.X.mean(axis=0), np.concatenate([near.X, X_new]))
        rows, n = np.concatenate([cut(SIZES)[i] for i in given]), len(near.X)
        W = np.linalg.solve(K[:n, :n] + np.diag(noise[rows]), K[:n, n:]).T
        assert_close(found.mean, W @ y[rows])
        assert_close(found.variance, np.diag(K[n:, n:] - W @ K[:n, n:]))


def test_a_row_left_out_is_predicted_from_the_others():
    theta, rng, model = varied(0.4), np.random.default_rng(3), LMA()
    X, y = rng.uniform(size=(20, 2)), rng.normal(size=(20, 1))
    everything = Block(X, y)
    prepared = model.prepare(theta)
    state = model.posterior(prepared, model.local(prepared, everything))
    near = model.condition(theta, state, [everything])
    found = model.loo(theta, state, Block(X[4:7], y[4:7]), near)
    K = matern(theta, X.mean(axis=0), X) + np.diag(own(theta, X)[:, -1])
    for i in range(3):
        rest = np.delete(np.arange(20), 4 + i)
        w = np.linalg.solve(K[np.ix_(rest, rest)], K[rest, 4 + i])
        assert_close(found.mean[i], w @ y[rest])
        assert_close(found.variance[i], K[4 + i, 4 + i] - w @ K[rest, 4 + i])
