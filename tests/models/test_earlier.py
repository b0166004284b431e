"""Orders of rows, and the nearest of those before each: brute force, for points of any kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskgp.models.markov.conditionals import compiled
from daskgp.models.markov.earlier import _among, nearest, nearest_earlier, ranks


def brute_force(points, rank, own, number):
    """Distances (g, k) to the nearest points of lower rank; infinite where there are fewer."""
    away = np.linalg.norm(points[own, None] - points[None], axis=2)
    away[rank[None] >= rank[own, None]] = np.inf
    away = np.sort(away, axis=1)[:, :number]
    return np.pad(away, ((0, 0), (0, number - away.shape[1])), constant_values=np.inf)


def check(points, rank, own, number):
    """Hold both forms against brute force; return what the compiled one finds, if there is one."""
    check_found(points, rank, own, number, _among(points, rank, points[own], rank[own], number))
    found = nearest_earlier(points, rank, own, number)
    return check_found(points, rank, own, number, found)


def check_found(points, rank, own, number, found):
    """Hold what is found against brute force: points as far away may stand for one another."""
    assert found.shape == (len(own), number)
    there = found >= 0
    away = np.linalg.norm(points[own, None] - points[found], axis=2)
    away = np.where(there, away, np.inf)
    np.testing.assert_allclose(away, brute_force(points, rank, own, number), rtol=1e-12, atol=0)
    for i, near, exist in zip(own, found, there, strict=True):
        assert len(np.unique(near[exist])) == exist.sum()
        assert (rank[near[exist]] < rank[i]).all()
    return found


def points_of(kind, n, d, seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d))
    if kind == "duplicates":
        points = points[rng.integers(0, max(1, n // 3), n)]
    elif kind == "copies":
        points[:] = points[0]
    elif kind == "collinear":
        points = rng.normal(size=(n, 1)) * np.linspace(1, 2, d)
    elif kind == "grid":
        points = np.round(2 * points)
    return points


# -- orders ----------------------------------------------------------------------------------


def test_all_rows_have_different_ranks():
    for seed in (0, 1, 2**31, 2**32 - 1):
        assert len(np.unique(ranks(np.arange(200_000), seed))) == 200_000


@given(st.lists(st.integers(0, 2**40), unique=True, max_size=50), st.integers(0, 2**32 - 1))
def test_a_rank_is_that_of_the_number_alone(places, seed):
    places = np.array(places, np.int64)
    whole = ranks(places, seed)
    parts = [ranks(part, seed) for part in np.array_split(places, 4)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert len(np.unique(whole)) == len(whole)


def test_seeds_give_other_orders():
    orders = [np.argsort(ranks(np.arange(2_000), seed)) for seed in range(6)]
    for i, one in enumerate(orders):
        for other in [np.arange(2_000), *orders[:i]]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.1


def test_a_part_of_the_order_lies_anywhere():
    rank = ranks(np.arange(10_000), 3)
    first = np.sort(np.argsort(rank)[:1_000])
    assert abs(np.mean(first) - 5_000) < 4 * 10_000 / np.sqrt(12 * 1_000)


def test_later_rows_come_after_all_others_in_the_same_order():
    places, later = np.arange(1_000), 700
    rank, plain = ranks(places, 5, later), ranks(places, 5)
    assert rank[later:].min() > rank[:later].max()
    np.testing.assert_array_equal(rank[:later], plain[:later])
    np.testing.assert_array_equal(np.argsort(rank[later:]), np.argsort(plain[later:]))


# -- neighbours ------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["scattered", "duplicates", "copies", "collinear", "grid"]),
    n=st.integers(1, 60),
    d=st.sampled_from([1, 2, 3, 20]),
    number=st.integers(1, 70),
    seed=st.integers(0, 2**16),
)
def test_neighbours_are_those_of_brute_force(kind, n, d, number, seed):
    points, rank = points_of(kind, n, d, seed), ranks(np.arange(n), seed)
    check(points, rank, np.arange(n), number)


@pytest.mark.parametrize("kind", ["scattered", "duplicates", "copies", "grid"])
@pytest.mark.parametrize("d", [1, 3, 20])
def test_many_rows_in_many_trees(kind, d):
    points, rank = points_of(kind, 3_000, d, 1), ranks(np.arange(3_000), 1)
    own = np.r_[np.argsort(rank)[:300], 7:3_000:11]  # the first of the order too
    check(points, rank, np.unique(own), 9)


@pytest.mark.parametrize("kind", ["duplicates", "copies", "grid"])
def test_of_points_as_far_away_the_earlier_one_is_nearer(kind):
    if compiled() is None:
        pytest.skip("numba is not installed")
    points, rank = points_of(kind, 900, 2, 4), ranks(np.arange(900), 4)
    found = nearest_earlier(points, rank, np.arange(900), 7)
    for i in range(0, 900, 7):
        away = ((points - points[i]) ** 2).sum(axis=1)
        earlier = np.flatnonzero(rank < rank[i])
        order = earlier[np.lexsort([rank[earlier], away[earlier]])][:7]
        np.testing.assert_array_equal(found[i][found[i] >= 0], order)


@pytest.mark.parametrize("n", [1, 5, 3_000])
def test_rows_nearest_to_places(n):
    points, at = points_of("scattered", n, 3, 0), points_of("scattered", 50, 3, 1)
    away = np.linalg.norm(points[None] - at[:, None], axis=2)
    expected = np.argsort(away, axis=1)[:, :20]
    np.testing.assert_array_equal(nearest(points, at, 20), expected)


@given(st.lists(st.integers(0, 299), min_size=1, max_size=20), st.integers(0, 100))
def test_some_rows_find_what_all_find(own, seed):
    points, rank = points_of("scattered", 300, 2, 0), ranks(np.arange(300), seed)
    whole = nearest_earlier(points, rank, np.arange(300), 6)
    np.testing.assert_array_equal(nearest_earlier(points, rank, np.array(own), 6), whole[own])


def test_more_neighbours_than_rows_are_all_earlier_ones():
    points, rank = points_of("scattered", 20, 2, 0), ranks(np.arange(20), 0)
    found = check(points, rank, np.arange(20), 30)
    line = np.argsort(rank)
    for place, i in enumerate(line):
        assert set(found[i][found[i] >= 0]) == set(line[:place])


def test_what_is_empty():
    points = np.zeros((1, 2))
    rank = ranks(np.arange(1), 0)
    assert (nearest_earlier(points, rank, np.array([0]), 3) == -1).all()
    assert nearest_earlier(points, rank, np.array([], int), 3).shape == (0, 3)
    assert nearest_earlier(points, rank, np.array([0]), 0).shape == (1, 0)


def test_rows_after_all_others_may_have_one_another():
    points, later = points_of("scattered", 40, 2, 0), 30
    rank = ranks(np.arange(40), 0, later)
    found = check(points, rank, np.arange(40), 5)
    assert (found[:later] < later).all()
    assert (found[later:] >= later).any()
