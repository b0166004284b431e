"""Hyper-parameters that vary over space: each row has its own, and knots tell them all."""

from dataclasses import replace

import numpy as np
import pytest
from agree import assert_close
from models.test_conditionals import (
    D,
    Own,
    S,
    assert_same,
    by_arrays,  # noqa: F401 - a fixture
    chosen,
    dense,
    symmetric,
)

from daskgp.arrays.backend import to_host
from daskgp.kernels import Matern32
from daskgp.models.markov.conditionals import (
    Conditionals,
    log_densities,
    prior_variances,
    scores,
    weights,
)
from daskgp.models.pathwise import PathDraw
from daskgp.models.values import Theta, move
from daskgp.models.varying import BLENDED, Varying
from daskgp.testing import central_differences
from tests.maths import fakearray
from tests.maths.test_kernels import KERNELS


@pytest.fixture
def rng():
    return np.random.default_rng(46)


def field(rng, kernel, knots=5, size=0.7, columns=(0, 2)):
    """A field of hyper-parameters of a kernel, at random knots."""
    places, k = rng.normal(size=(knots, len(columns))), len(kernel.log_parameters) + 1
    logs = size * rng.normal(size=(knots, k))
    return Varying(places, logs, np.array(columns), np.zeros((knots, k)))


def varied(rng, kernel=None, **more):
    kernel = Matern32((0.7, 1.2, 0.9), 1.3) if kernel is None else kernel
    return Theta(kernel, S, varying=field(rng, kernel, **more))


def own_of(theta, x):
    """Hyper-parameters at one row, as those of all rows."""
    return Theta(theta.kernel, S).from_vector(theta.to_vector(False) + theta.varying.at(x[None])[0])


# --- the field


@pytest.mark.parametrize("knots", [1, 2, BLENDED, BLENDED + 1, 40])
def test_weights_of_knots_are_positive_and_sum_to_one(rng, knots):
    varying, X = varied(rng, knots=knots).varying, rng.normal(size=(200, D))
    near, w = varying.blend(X)
    assert near.shape == (200, min(knots, BLENDED))
    assert (w >= 0).all()
    assert_close(w.sum(axis=1), np.ones(200))


@pytest.mark.parametrize("knots", [2, BLENDED, 40])
def test_the_field_is_continuous(rng, knots):
    varying = varied(rng, knots=knots).varying
    start, stop = rng.normal(size=(2, D))
    line = start + np.linspace(0, 1, 20_001)[:, None] * (stop - start)
    steps = np.abs(np.diff(varying.at(line), axis=0)).max(axis=0)
    assert (steps < 5e-3 * np.ptp(varying.logs, axis=0)).all()


def test_knots_may_lie_at_the_same_distance():
    turns = np.arange(12) * np.pi / 6
    knots = np.column_stack([np.cos(turns), np.sin(turns)])
    varying = Varying(knots, np.ones((12, 2)), np.array([0, 1]), np.zeros((12, 2)))
    assert_close(varying.at(np.zeros((1, 2))), np.ones((1, 2)))


def test_far_from_all_knots_it_is_their_mean(rng):
    varying = varied(rng, knots=4).varying
    assert_close(varying.at(np.full((1, D), 1e9))[0], varying.logs.mean(axis=0), 1e-6, 1e-6)


def test_other_columns_and_missing_values_do_not_matter(rng):
    varying, X = varied(rng).varying, rng.normal(size=(4, D))
    moved = X + np.array([0.0, 9.0, 0.0])
    assert (varying.at(X) == varying.at(moved)).all()
    assert np.isfinite(varying.at(np.full((1, D), np.nan))).all()


# --- conditionals


@pytest.mark.whole
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_each_row_has_its_own_hyperparameters(rng, by_arrays, kernel):  # noqa: F811
    theta, W = varied(rng, kernel), symmetric(rng, 2)
    c = chosen(rng, 19, 5, s=2, noise=True, often=True)
    each = [
        dense(own_of(theta, c.X[i]), c._replace(own=c.own[[i]], near=c.near[[i]])) for i in c.own
    ]
    assert_close(weights(theta, c), np.concatenate(each), 1e-10, 1e-10)
    assert_close(by_arrays(weights, theta, c), np.concatenate(each), 1e-10, 1e-10)
    for knots in (False, True):
        assert_same(scores(theta, c, W, 2, knots), by_arrays(scores, theta, c, W, 2, knots))


def test_a_users_kernel_agrees(rng):
    c, W = chosen(rng, 20, 5, s=3, noise=True), symmetric(rng, 3)
    known = varied(rng)
    own = replace(known, kernel=Own((0.7, 1.2, 0.9), 1.3))
    assert_close(weights(own, c), weights(known, c))
    assert_same(scores(own, c, W, 2, True), scores(known, c, W, 2, True))
    assert_close(prior_variances(own, c.X), prior_variances(known, c.X))


@pytest.mark.parametrize("compiled", [True, False])
def test_the_same_everywhere_gives_the_bits_of_common_ones(rng, by_arrays, compiled):  # noqa: F811
    theta, c, W = varied(rng, size=0.0), chosen(rng, 20, 5), np.eye(1)
    common = replace(theta, varying=None)
    call = (lambda f, *a: f(*a)) if compiled else by_arrays
    assert (call(weights, theta, c) == call(weights, common, c)).all()
    found, wanted = (call(scores, one, c, W, 1) for one in (theta, common))
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(one, other)


def test_steps_do_not_show(rng, monkeypatch):
    from daskgp.models.markov import conditionals

    theta, c, W = varied(rng), chosen(rng, 40, 4), np.eye(1)
    whole = weights(theta, c), *scores(theta, c, W, 1, True)
    monkeypatch.setattr(conditionals, "ROWS", 7)
    assert_same((weights(theta, c), *scores(theta, c, W, 1, True)), whole)


def test_other_array_modules(rng):
    device, theta = fakearray.module("device"), varied(rng)
    c, W = chosen(rng, 20, 5, s=2, noise=True, often=True), np.eye(2)
    there = Conditionals(*map(device.asarray, c))
    assert_close(to_host(weights(theta, there)), weights(theta, c))
    assert_close(to_host(prior_variances(theta, there.X)), prior_variances(theta, c.X))
    found = scores(theta, there, device.asarray(W), 2, True)
    assert_same(map(to_host, found), scores(theta, c, W, 2, True))
    assert_close(log_densities(theta, there, W, 2), log_densities(theta, c, W, 2))


def test_gradient_at_knots_is_that_of_the_log_density(rng):
    theta, W = varied(rng, knots=3), symmetric(rng, 2)
    c = chosen(rng, 25, 5, s=2, noise=True, often=True)
    shape = theta.varying.logs.shape

    def value(logs):
        other = replace(theta, varying=replace(theta.varying, logs=logs.reshape(shape)))
        found = scores(other, c, W, 2)
        return -0.5 * float(2 * found.logdet + (W * found.square).sum())

    slope = central_differences(value, theta.varying.logs.ravel())
    assert_close(scores(theta, c, W, 2, True).gradient, slope, 1e-6, 1e-6)


def test_information_at_knots_adds_up_to_that_of_all(rng):
    theta, W = varied(rng, knots=3), symmetric(rng, 2)
    c = chosen(rng, 25, 5, s=2, often=True)
    common, each = scores(theta, c, W, 2), scores(theta, c, W, 2, True)
    K, k = theta.varying.logs.shape
    assert_close(each.gradient.reshape(K, k).sum(axis=0), common.gradient)
    assert_close(each.information.reshape(K, k, K, k).sum(axis=(0, 2)), common.information)


def test_log_densities_are_those_of_the_sums(rng):
    theta, W, c = varied(rng), symmetric(rng, 2), chosen(rng, 25, 5, s=2)
    found = scores(theta, c, W, 2)
    wanted = -0.5 * (2 * found.logdet + (W * found.square).sum())
    assert_close(log_densities(theta, c, W, 2).sum(), wanted)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_prior_variances_are_those_of_each_place(rng, kernel):
    theta, X = varied(rng, kernel), rng.normal(size=(7, D))
    wanted = [own_of(theta, x).kernel.diag(x[None])[0] for x in X]
    assert_close(prior_variances(theta, X), np.array(wanted))


@pytest.mark.usefixtures("gpu")
def test_draws_of_the_prior_are_the_same_on_a_device(rng):
    kernel = Matern32((0.7, 1.2, 0.9), 1.3)
    varying, X = varied(rng, kernel, columns=(0, 1)).varying, rng.normal(size=(6, D))
    draw = PathDraw(kernel, D, 2, 3, 0, 40, varying=varying)
    there = move(draw.prior, "gpu")(move(X, "gpu"))
    assert_close(to_host(there), draw.prior(X))
