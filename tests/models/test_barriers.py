"""Lines that edges cross: one pair after another, in a plane and on a sphere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskgp.models.markov import barriers
from daskgp.models.markov.barriers import Barriers, Sight, between
from daskgp.models.markov.earlier import nearest, nearest_earlier, ranks


def side(p, q, r):
    return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])


def crossed(a, b, c, d):
    """Whether the segments from a to b and from c to d cross, by the signs of four areas."""
    return side(c, d, a) * side(c, d, b) < 0 and side(a, b, c) * side(a, b, d) < 0


def crossed_arcs(a, b, c, d):
    """Whether two arcs of great circles cross: where their planes meet, between both ends."""
    where = np.cross(np.cross(a, b), np.cross(c, d))
    if not where.any():
        return False
    return any(
        within(at, a, b) and within(at, c, d)
        for at in (where / np.linalg.norm(where), -where / np.linalg.norm(where))
    )


def within(at, a, b):
    whole = np.arccos(np.clip(a @ b, -1, 1))
    return np.arccos(np.clip(a @ at, -1, 1)) + np.arccos(np.clip(at @ b, -1, 1)) < whole + 1e-7


def places(seed, c, n, e, size=0.4):
    """Places and edges, on the unit sphere if there are three coordinates."""
    rng = np.random.default_rng(seed)
    points, starts = rng.normal(size=(n, c)), rng.normal(size=(e, c))
    stops = starts + size * rng.normal(size=(e, c))
    if c == 3:
        points, starts, stops = (
            a / np.linalg.norm(a, axis=1, keepdims=True) for a in (points, starts, stops)
        )
    return points, np.concatenate([starts, stops], axis=1)


def seen_by_all(points, edges, rounding=1e-12):
    every = np.tile(np.arange(len(points)), (len(points), 1))
    return Sight(edges, points, points, rounding).sees(np.arange(len(points)), every)


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3]))
@settings(max_examples=40)
def test_those_are_seen_to_which_no_edge_lies_on_the_way(seed, c):
    points, edges = places(seed, c, 9, 13)
    cross = crossed if c == 2 else crossed_arcs
    hidden = [
        [any(cross(a, b, edge[:c], edge[c:]) for edge in edges) and a is not b for b in points]
        for a in points
    ]
    np.testing.assert_array_equal(seen_by_all(points, edges), ~np.array(hidden))


@pytest.mark.whole
@pytest.mark.parametrize("c", [2, 3])
def test_compiled_and_array_functions_agree(c, monkeypatch):
    points, edges = places(1, c, 50, 300)
    seen = seen_by_all(points, edges)
    np.testing.assert_array_equal(seen, seen.T)
    monkeypatch.setattr(barriers, "compiled", lambda name: None)
    np.testing.assert_array_equal(seen_by_all(points, edges), seen)
    i, j = np.divmod(np.arange(2500), 50)
    np.testing.assert_array_equal(~between(edges, points[i], points[j], 1e-12), seen.ravel())


@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3]))
@settings(max_examples=20)
def test_the_order_and_the_direction_of_edges_do_not_matter(seed, c):
    points, edges = places(seed, c, 12, 40)
    seen, rng = seen_by_all(points, edges), np.random.default_rng(seed)
    turned = np.concatenate([edges[:, c:], edges[:, :c]], axis=1)
    for other in (rng.permutation(edges), turned):
        np.testing.assert_array_equal(seen_by_all(points, other), seen)


def test_no_line_slips_through_between_two_edges():
    wall = np.array([[1.0, -1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 1.0]])
    points = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.5], [2.0, 2.5]])
    assert seen_by_all(points, wall).tolist() == [
        [True, False, True, True],
        [False, True, True, True],
        [True, True, True, True],
        [True, True, True, True],
    ]


def test_a_row_on_an_edge_sees_both_sides():
    wall = np.array([[1.0, -1.0, 1.0, 1.0]])
    for at in (1.0, 1.0 + 1e-14, 1.0 - 1e-14):
        assert seen_by_all(np.array([[0.0, 0.0], [at, 0.3], [2.0, 0.0]]), wall)[1].all()


def test_arcs_go_over_the_pole_and_the_date_line():
    def at(lon, lat):
        lon, lat = np.radians([lon, lat])
        return [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]

    wall = np.array([[*at(180, -5), *at(180, 5)], [*at(0, 89), *at(180, 89)]])
    points = np.array([at(179, 0), at(-179, 0), at(90, 85), at(-90, 85), at(0, 0)])
    seen = seen_by_all(points, wall)
    assert not seen[0, 1]
    assert not seen[2, 3]
    assert seen[0, 4]
    assert seen[1, 4]


def brute_force(points, edges, rank, own, number):
    """The nearest earlier rows that are seen, by sorting all."""
    found = np.full((len(own), number), -1)
    for g, i in enumerate(own):
        earlier = [
            j
            for j in np.argsort(np.linalg.norm(points - points[i], axis=1))
            if rank[j] < rank[i]
            and not any(crossed(points[i], points[j], edge[:2], edge[2:]) for edge in edges)
        ]
        found[g, : len(earlier[:number])] = earlier[:number]
    return found


@pytest.mark.whole
@pytest.mark.parametrize("code", ["compiled", "arrays"])
def test_neighbours_are_the_nearest_that_are_seen(code, monkeypatch):
    if code == "arrays":
        monkeypatch.setattr(barriers, "compiled", lambda name: None)
        monkeypatch.setattr("daskgp.models.markov.earlier.compiled", lambda: None)
    points, edges = places(3, 2, 80, 30, 0.8)
    rank, own = ranks(np.arange(80), 0), np.arange(80)
    sight = Sight(edges, points, points, 1e-12)
    found = nearest_earlier(points, rank, own, 6, sees=sight.sees)
    np.testing.assert_array_equal(found, brute_force(points, edges, rank, own, 6))
    places_of = Sight(edges, points[:7], points, 1e-12)
    near = nearest(points, points[:7], 80, sees=places_of.sees)
    for i in range(7):
        last = np.where(own == i, 80, own)  # so that all others are earlier
        wanted = brute_force(points, edges, last, own[i : i + 1], 79)
        np.testing.assert_array_equal(near[i], [i, *wanted[0]])


def test_rows_of_several_kinds_have_their_share_of_those_that_are_seen():
    points, edges = places(5, 2, 200, 25, 0.8)
    rank, own, kinds = ranks(np.arange(200), 0), np.arange(200), np.arange(200) % 2
    sight = Sight(edges, points, points, 1e-12)
    found = nearest_earlier(points, rank, own, 6, kinds, sight.sees)
    for i, near in zip(own, found, strict=True):
        for kind in (0, 1):
            there = [j for j in near if j >= 0 and kinds[j] == kind]
            others = np.flatnonzero((kinds == kind) & (rank < rank[i]))
            seen = others[sight.sees(np.array([i]), others[None])[0]]
            order = seen[np.argsort(np.linalg.norm(points[seen] - points[i], axis=1))]
            assert sorted(there) == sorted(order[:3])


def test_a_tree_of_edges_is_made_once_and_goes_with_them():
    _, edges = places(0, 3, 1, 100)
    tree, place = barriers.tree_of(edges), id(edges)
    assert barriers.tree_of(edges) is tree
    assert sorted(map(tuple, tree.edges)) == sorted(map(tuple, edges))
    del edges
    assert place not in barriers._TREES


def test_places_are_those_of_the_columns_that_say_so():
    axes = np.array([[2.0, 0.0], [10.0, -3.0], [2.0, 0.5]])
    found = Barriers(np.zeros((1, 4)), axes).places(np.array([[1.0, 7.0, 3.0]]))
    np.testing.assert_allclose(found, [[16.0, -2.5]])
