"""Inducing inputs from a sample, against the definition of the conditional variance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from daskgp import kernels
from daskgp.errors import SettingError
from daskgp.fit import subset
from daskgp.models import inducing


def naive(X, kernel, number):
    """Repeated argmax of k(x, x) - k(x, S) K(S, S)^-1 k(S, x), solved afresh each time."""
    chosen = []
    for _ in range(number):
        S = X[chosen]
        variance = kernel.diag(X).astype(float)
        if chosen:
            K = kernel(X, S)
            variance = variance - (K * np.linalg.solve(kernel(S), K.T).T).sum(axis=1)
        variance[chosen] = -np.inf
        chosen.append(int(np.argmax(variance)))
    return chosen


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 3))
def test_greedy_is_the_argmax_of_the_conditional_variance(seed, number, d):
    X = np.random.default_rng(seed).standard_normal((40, d))
    kernel = kernels.Matern32(lengthscale=0.7, variance=2.0) + kernels.Linear(variance=0.3)
    np.testing.assert_array_equal(inducing.greedy(X, kernel, number), naive(X, kernel, number))


def test_greedy_stops_when_only_duplicates_are_left():
    distinct = np.random.default_rng(0).standard_normal((5, 2))
    X = np.tile(distinct, (8, 1))
    chosen = inducing.greedy(X, kernels.RBF(0.5), 20)
    assert len(chosen) == 5
    np.testing.assert_array_equal(np.unique(X[chosen], axis=0), np.unique(distinct, axis=0))


def test_greedy_asked_for_more_than_there_is_takes_all():
    X = np.arange(6.0)[:, None]
    assert sorted(inducing.greedy(X, kernels.Matern12(0.5), 100)) == list(range(6))
    assert len(inducing.greedy(X[:0], kernels.Matern12(0.5), 3)) == 0


@pytest.mark.parametrize("how", ["greedy", "kmeans", "random"])
def test_chosen_inputs_are_distinct_seeded_and_inside_the_sample(how):
    X = np.random.default_rng(3).standard_normal((60, 2))
    X[30:] = X[0]
    first, again, other = (
        inducing.choose(X, kernels.Matern32(1.0), 12, how, np.random.default_rng(seed))
        for seed in (0, 0, 1)
    )
    assert first.shape == (12, 2)
    assert len(np.unique(first, axis=0)) == 12
    np.testing.assert_array_equal(first, again)
    assert np.all((first >= X.min(axis=0) - 1e-12) & (first <= X.max(axis=0) + 1e-12))
    if how == "random":
        assert not np.array_equal(first, other)
    if how != "kmeans":
        assert {tuple(z) for z in first} <= {tuple(x) for x in X}


def test_a_kernel_too_smooth_to_tell_rows_apart_still_gives_all_inputs_asked_for():
    X = np.random.default_rng(0).uniform(0, 1, (200, 1))
    kernel = kernels.RBF(5.0)
    X = np.unique(X, axis=0)  # in the order in which they are chosen from
    first = inducing.greedy(X, kernel, 30)
    assert len(first) < 10
    found = inducing.choose(X, kernel, 30, "greedy", np.random.default_rng(0))
    np.testing.assert_array_equal(found[: len(first)], X[first])
    assert len(np.unique(found)) == 30


@pytest.mark.parametrize("how", ["greedy", "kmeans", "random"])
def test_no_more_inputs_than_distinct_rows(how):
    X = np.tile(np.arange(4.0)[:, None], (5, 1))
    found = inducing.choose(X, kernels.RBF(0.3), 9, how, np.random.default_rng(0))
    np.testing.assert_allclose(np.sort(found[:, 0]), np.arange(4.0), atol=1e-12)


def test_kmeans_finds_separate_clusters():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    X = (centres[:, None] + 0.01 * rng.standard_normal((3, 30, 2))).reshape(-1, 2)
    found = inducing.choose(X, kernels.RBF(), 3, "kmeans", rng)
    gaps = np.abs(found[:, None] - centres).max(axis=2)
    assert gaps.min(axis=0).max() < 0.02


def test_unknown_selection_names_the_choices():
    with pytest.raises(SettingError, match=r"'best'.*greedy.*kmeans.*random"):
        inducing.choose(np.ones((3, 1)), kernels.RBF(), 2, "best", np.random.default_rng(0))


def test_median_distances_are_those_of_the_pairs():
    X = np.random.default_rng(0).standard_normal((80, 2)) * [1.0, 50.0]
    found = subset.median_distances(X)
    np.testing.assert_allclose(found.per_column, [np.median(pdist(X[:, [j]])) for j in (0, 1)])
    assert found.euclidean == pytest.approx(np.median(pdist(X)))


def test_median_distances_ignore_ties_and_survive_a_single_point():
    mostly_zero = np.zeros((50, 1))
    mostly_zero[0] = 3.0
    assert subset.median_distances(mostly_zero).per_column[0] == 3.0
    alone = subset.median_distances(np.ones((1, 2)))
    np.testing.assert_array_equal(alone.per_column, [1.0, 1.0])
    assert alone.euclidean == 1.0


def test_median_distances_of_a_long_sample_use_a_part_of_it():
    X = np.random.default_rng(0).standard_normal((30_000, 1))
    assert subset.median_distances(X).euclidean == pytest.approx(0.954, rel=0.1)


def test_median_distances_take_no_more_rows_than_said():
    X = np.arange(1999.0)[:, None]
    taken = X[::2]
    assert len(taken) == 1000
    assert subset.median_distances(X).euclidean == np.median(pdist(taken))
    assert subset.median_distances(X[:1000]).euclidean == np.median(pdist(X[:1000]))
