"""Random features of kernels: their inner product is the kernel, on average over the draws."""

import numpy as np
import pytest

from daskgp import kernels
from daskgp.errors import SettingError
from daskgp.kernels.evolving import check_evolving, draw_waves, evolving_features
from daskgp.kernels.program import PERIODIC, program
from daskgp.kernels.spectrum import random_features

K = {
    "rbf": kernels.RBF((0.5, 1.5), variance=2.0),
    "matern12": kernels.Matern12(0.7),
    "matern32": kernels.Matern32((0.7, 2.0)),
    "matern52": kernels.Matern52(0.7, active_dims=(1,)),
    "rational quadratic": kernels.RationalQuadratic((0.8, 1.1), alpha=0.7, variance=1.3),
    "periodic": kernels.Periodic(0.6, period=0.9, active_dims=(0,)),
    "periodic in two columns": kernels.Periodic(1.2, period=2.0),
    "sum": kernels.RBF(2.0, variance=0.5) + kernels.Matern12(0.3, active_dims=(0,)) + 0.4,
    "product": kernels.RBF(2.0, active_dims=(0,)) * kernels.Periodic(0.8, active_dims=(1,)) * 1.7,
    "product on the same columns": kernels.RBF(1.0) * kernels.Matern32(0.9),
    "product of sums": (kernels.RBF(1.0) + 0.5) * (kernels.Matern52(0.9, active_dims=(1,)) + 0.2),
    "linear": kernels.Linear((0.5, 2.0)) + kernels.RBF(1.0, variance=0.3),
    "scaled linear": kernels.Linear(active_dims=(1,)) * 3.0 + 0.5,
}
X = np.random.default_rng(3).uniform(-1, 1, (9, 2))


def features(kernel, m, seed=0, at=X):
    W, a, slopes = random_features(kernel, m, 2, np.random.default_rng(seed))
    phases = at @ W.T
    return np.concatenate([a * np.cos(phases), a * np.sin(phases), at @ slopes.T], axis=1)


@pytest.mark.parametrize("kernel", K.values(), ids=K)
def test_features_have_the_kernel_as_inner_product(kernel):
    Phi, m = features(kernel, 40_000), 40_000
    most = max(kernel.diag(X))
    np.testing.assert_allclose(Phi @ Phi.T, kernel(X), atol=4 * most / np.sqrt(2 * m))


@pytest.mark.parametrize("kernel", [K["matern32"], K["rbf"]])
def test_the_error_is_what_is_said(kernel):
    m = 50
    draws = np.array([features(kernel, m, s) @ features(kernel, m, s).T for s in range(200)])
    error = np.sqrt(((draws - kernel(X)) ** 2).mean(axis=0))
    variance = kernel.diag(X)[0]
    assert error.max() < 1.2 * variance / np.sqrt(2 * m)
    assert error.max() > 0.5 * variance / np.sqrt(2 * m)
    np.testing.assert_allclose(np.diagonal(draws[0]), variance)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32"])
@pytest.mark.parametrize("step", [1e-3, 1e-2, 0.1])
def test_differences_over_short_distances_are_those_of_the_kernel(name, step):
    """They come from a few high frequencies of many."""
    kernel, places = K[name], np.array([[0.0, 0.0], [step, 0.0]])
    values = kernel(places)
    for seed in range(5):
        one, other = features(kernel, 2_048, seed=seed, at=places)
        found = ((one - other) ** 2).sum()
        assert found == pytest.approx(2 * (values[0, 0] - values[0, 1]), rel=0.12)


@pytest.mark.parametrize("kernel", K.values(), ids=K)
def test_features_that_change_have_the_kernel_of_each_place(kernel):
    rng, known, m = np.random.default_rng(4), program(kernel, 2), 20_000
    logs = rng.uniform(-0.8, 0.8, (2, len(known.values)))
    for code, first in known.leaves[:, :2]:
        if code == PERIODIC:
            logs[:, first + 2] = logs[0, first + 2]
    check_evolving(kernel, 2, logs)
    values = known.values * np.exp(logs)
    waves = draw_waves(known, values, m, 2, rng)
    own = np.repeat([0, 1], [5, 4])
    Phi = evolving_features(known, waves, values[own], X)
    covariance = Phi @ Phi.T
    for i, each in enumerate(values):
        there = kernel.with_log_parameters(np.log(each))
        wanted, here = there(X[own == i]), np.flatnonzero(own == i)
        tolerance = 8 * wanted.max() / np.sqrt(2 * m)
        np.testing.assert_allclose(covariance[np.ix_(here, here)], wanted, atol=tolerance)


def test_the_same_everywhere_has_the_amplitudes_of_common_ones():
    kernel = K["matern32"]
    known = program(kernel, 2)
    waves = draw_waves(known, known.values[None], 50, 2, np.random.default_rng(0))
    Phi = evolving_features(known, waves, known.values[None], np.zeros((1, 2)))
    _, amplitudes, _ = random_features(kernel, 50, 2, np.random.default_rng(0))
    np.testing.assert_allclose(Phi[0, :50], amplitudes, rtol=1e-9)


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (K["product"], "a period that is the same everywhere"),
        (sum((kernels.RBF(1.0) for _ in range(40)), kernels.RBF(1.0)), "at most 32 terms"),
        (kernels.Linear() * kernels.RBF(1.0), "a product of Linear with another kernel"),
    ],
)
def test_a_kernel_whose_spectrum_cannot_change_is_refused(kernel, says):
    with pytest.raises(SettingError, match=says) as refusal:
        check_evolving(kernel, 2, np.arange(3.0)[:, None] * np.ones(len(kernel.log_parameters)))
    assert "\n" not in str(refusal.value)


class Own(kernels.RBF):
    """A class that the package does not know may have any values."""


@pytest.mark.parametrize(
    ("kernel", "named"),
    [
        (Own(1.0), "Own has no spectrum"),
        (kernels.Linear() * kernels.RBF(1.0), "a product of Linear with another kernel"),
        (kernels.Linear() * kernels.Linear(), "a product of Linear with another kernel"),
    ],
)
def test_a_kernel_without_a_spectrum_is_refused(kernel, named):
    with pytest.raises(SettingError, match=named) as refusal:
        features(kernel, 5)
    assert "RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic" in str(refusal.value)
    assert "\n" not in str(refusal.value)
