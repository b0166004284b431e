"""Expectations of a softmax against sampling, product quadrature and differences."""

import numpy as np
from scipy.special import logsumexp, softmax

from daskgp.likelihoods import Bernoulli
from daskgp.likelihoods.categorical import expected

RNG = np.random.default_rng(0)
MEAN = np.array([[0.0, 1.0, -2.0], [8.0, -3.0, 7.0], [0.1, 0.2, 0.3], [-40.0, 0.0, 30.0]])
VARIANCE = np.array([[1.0, 0.1, 4.0], [9.0, 1e-13, 2.0], [1e-4, 1.0, 3.0], [1.0, 1.0, 1.0]])


def test_expectations_are_those_of_samples():
    f = MEAN + np.sqrt(VARIANCE) * RNG.standard_normal((100_000, *MEAN.shape))
    p = softmax(f, axis=-1)
    found = expected(MEAN, VARIANCE)
    np.testing.assert_allclose(found.probability, p.mean(axis=0), atol=5e-3)
    np.testing.assert_allclose(found.spread, (p * (1 - p)).mean(axis=0), atol=5e-3)
    np.testing.assert_allclose(found.log_total, logsumexp(f, axis=-1).mean(axis=0), atol=3e-2)
    np.testing.assert_allclose(found.probability.sum(axis=1), 1.0, rtol=1e-12)


def test_probabilities_are_the_slopes_of_the_total_and_spreads_theirs():
    for c in range(3):
        step = np.zeros(MEAN.shape)
        step[:, c] = 1e-3
        above, under = expected(MEAN + step, VARIANCE), expected(MEAN - step, VARIANCE)
        found = expected(MEAN, VARIANCE)
        slope = (above.log_total - under.log_total) / 2e-3
        np.testing.assert_allclose(found.probability[:, c], slope, atol=2e-5)
        bend = (above.probability - under.probability)[:, c] / 2e-3
        np.testing.assert_allclose(found.spread[:, c], bend, atol=2e-5)


def test_two_classes_are_those_of_a_logit():
    mean, variance = np.array([[1.5, 0.0]]), np.array([[0.8, 0.0]])
    one = Bernoulli("logit").response(mean[:, :1], variance[:, :1])[0]
    np.testing.assert_allclose(expected(mean, variance).probability[:, :1], one, atol=1e-6)
