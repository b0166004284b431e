"""Tails of residuals: a table where they are not normal, and none where they may be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import t as student

from daskgp.models.transform import Transform
from daskgp.posterior.layers import TransformLayer
from daskgp.posterior.layers.chain import Outer
from daskgp.posterior.layers.tails import CRITICAL, LEVELS, Tails, _anderson_darling

HEAVY = Tails((0.5, 0.9, 0.99), (0.5, 1.6, 3.4))


def residuals(kind, n, rng):
    z = {
        "normal": lambda: rng.standard_normal(n),
        "t": lambda: rng.standard_t(3, n),
        "mixture": lambda: rng.standard_normal(n) * np.where(rng.random(n) < 0.05, 5, 1),
        "uniform": lambda: rng.uniform(-1, 1, n),
    }[kind]()
    return z / np.sqrt(np.mean(z**2))


def test_widths_are_the_quantiles_of_residuals():
    scale = np.sqrt(student(3).var())
    tails = Tails.of(student(3).rvs(200_000, random_state=0) / scale)
    assert tails.levels == LEVELS
    wanted = student(3).ppf(0.5 + np.array(LEVELS) / 2) / scale
    np.testing.assert_allclose(tails.widths, wanted, rtol=0.05)
    np.testing.assert_allclose(tails.widths[:20], wanted[:20], rtol=0.015)


def test_normal_residuals_have_none_but_for_one_sample_in_a_hundred():
    rng = np.random.default_rng(0)
    found = [Tails.of(residuals("normal", 1_000, rng)) for _ in range(1_000)]
    assert 1 <= sum(tails is not None for tails in found) <= 25
    for tails in filter(None, found):  # and those that have differ by sampling error
        sizes = np.array(tails.widths)
        np.testing.assert_allclose(2 * ndtr(sizes) - 1, tails.levels, atol=0.1)


@pytest.mark.parametrize("kind", ["t", "mixture", "uniform"])
def test_intervals_cover_other_residuals_like_those(kind):
    rng = np.random.default_rng(1)
    tails, others = Tails.of(residuals(kind, 1_000, rng)), residuals(kind, 100_000, rng)
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):
        width = tails.residual(ndtri(0.5 + level / 2))
        error = np.sqrt(level * (1 - level) / 1_000)
        assert np.mean(np.abs(others) <= width) == pytest.approx(level, abs=3 * error + 0.01)


def test_few_residuals_tell_no_tails():
    z = residuals("t", 199, np.random.default_rng(0))
    assert Tails.of(z) is None
    assert Tails.of(residuals("t", 200, np.random.default_rng(0))).levels[-1] == 0.95


def test_the_statistic_is_that_of_anderson_and_darling():
    size = np.sort(np.abs(np.random.default_rng(0).standard_normal(30)))
    edges = np.append(0.0, np.append(2 * ndtr(size) - 1, 1.0))
    total = 0.0  # n times the integral of (F_n - F)^2 / F (1 - F)
    for i in range(31):
        u = np.linspace(edges[i], edges[i + 1], 20_001)[1:-1]
        total += np.mean((i / 30 - u) ** 2 / (u * (1 - u))) * (edges[i + 1] - edges[i])
    assert _anderson_darling(size) == pytest.approx(30 * total, rel=1e-2)
    assert _anderson_darling(size) < CRITICAL


@given(st.lists(st.floats(-50, 50), min_size=200, max_size=260), st.floats(-40, 40))
@settings(deadline=None, max_examples=50)
def test_residuals_and_normal_scores_are_inverses_and_increase(z, u):
    tails = Tails.of(np.array(z))
    if tails is None:
        return
    assert tails.normal_score(tails.residual(u)) == pytest.approx(u, rel=1e-6, abs=1e-6)
    assert tails.residual(-u) == -tails.residual(u)
    assert tails.residual(u + 1.0) > tails.residual(u)


@pytest.mark.parametrize("transform", [None, Transform("log", np.zeros(1))])
def test_quantiles_probabilities_and_scores_are_of_one_distribution(transform):
    around = [] if transform is None else [TransformLayer(transform)]
    outer, levels = Outer([HEAVY, *around]), (0.001, 0.2, 0.5, 0.95, 0.995)
    mean, std = np.array([[0.3]]), np.array([[0.7]])
    found, distribution = outer.quantiles(mean, std, levels)[0, 0], outer.over(mean, std)
    for level, q in zip(levels, found, strict=True):
        assert outer.exceedance(mean, std, q) == pytest.approx(1 - level, rel=1e-9)
        assert distribution.below(distribution.score(q)) == pytest.approx(level, rel=1e-9)
    plain = Outer(around).quantiles(mean, std, (0.5,))
    np.testing.assert_array_equal(found[2], plain[0, 0, 0])
    z = found if transform is None else np.log(found)
    assert z[4] == pytest.approx(0.3 + 0.7 * 3.4)


def test_missing_and_certain_predictions_stay():
    outer = Outer([HEAVY])
    mean, std = np.array([1.0, np.nan, 1.0]), np.array([0.0, 1.0, np.inf])
    found = outer.quantiles(mean, std, (0.1, 0.5))
    np.testing.assert_array_equal(found, [[1, 1], [np.nan, np.nan], [-np.inf, 1]])
    np.testing.assert_array_equal(outer.exceedance(mean, std, 0.0), [1.0, np.nan, 0.5])
