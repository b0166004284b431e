"""Sparse grids against their definition, and the combination technique where it is exact."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskgp import kernels
from daskgp.models.sparse import sparse_grid

SMALL = st.tuples(st.integers(1, 5), st.integers(1, 5)).filter(
    lambda pair: sparse_grid.n_points(*pair) <= 1_500
)


def defined(d, level):
    """Points of all partial grids, as [OPT] eqs. 18 and 19 have them."""
    found = {}
    for index in product(range(1, level + d), repeat=d):
        if level <= sum(index) <= level + d - 1:
            axes = [[i / 2**one for i in range(1, 2**one)] for one in index]
            found[index] = set(product(*axes))
    return found


@settings(max_examples=30, deadline=None)
@given(size=SMALL)
def test_a_grid_is_its_definition(size):
    d, level = size
    grid, wanted = sparse_grid.build(d, level), defined(d, level)
    assert len(grid.points) == sparse_grid.n_points(d, level)
    assert set(map(tuple, grid.points)) == set.union(*wanted.values())
    top = [points for index, points in wanted.items() if sum(index) == level + d - 1]
    assert set.union(*top) == set.union(*wanted.values())
    assert len(grid.levels) == len(grid.members) == len(wanted)
    for index, members in zip(grid.levels, grid.members, strict=True):
        assert set(map(tuple, grid.points[members])) == wanted[tuple(index)]
        assert len(set(members)) == len(members)
    sizes = [len(members) for members in grid.members]
    np.testing.assert_array_equal(sparse_grid.partial_sizes(grid.levels), sizes)


@settings(max_examples=30, deadline=None)
@given(size=SMALL)
def test_the_coefficients_sum_to_one_and_count_each_point_once(size):
    grid = sparse_grid.build(*size)
    assert grid.coefficients.sum() == 1.0
    counted = np.zeros(len(grid.points))
    for c, members in zip(grid.coefficients, grid.members, strict=True):
        counted[members] += c
    np.testing.assert_array_equal(counted, 1.0)


@given(d=st.integers(1, 60), most=st.integers(1, 10**7))
def test_the_largest_level_is_the_largest(d, most):
    level = sparse_grid.largest_level(d, most)
    assert sparse_grid.n_points(d, level) <= most < sparse_grid.n_points(d, level + 1)


def test_one_dimension_has_one_grid():
    grid = sparse_grid.build(1, 4)
    np.testing.assert_array_equal(grid.points[:, 0], np.arange(1, 16) / 16)
    np.testing.assert_array_equal(grid.levels, [[4]])
    np.testing.assert_array_equal(grid.coefficients, [1.0])


def test_many_dimensions_can_be_had():
    grid = sparse_grid.build(70, 2)
    assert grid.points.shape == (141, 70)
    assert len(grid.levels) == 71


@pytest.mark.parametrize(("d", "level"), [(2, 4), (3, 3), (4, 2)])
def test_the_technique_is_exact_for_products_of_kernels(d, level):
    # the projections of a tensor product commute: they combine to that on the whole sparse grid
    grid = sparse_grid.build(d, level)
    parts = [kernels.Matern12(0.6, active_dims=(j,)) for j in range(d)]
    kernel = parts[0]
    for part in parts[1:]:
        kernel = kernel * part
    X = np.random.default_rng(0).uniform(-0.2, 1.2, (20, d))

    def projected(Z):
        K = kernel(X, Z)
        return K @ np.linalg.solve(kernel(Z), K.T)

    pairs = zip(grid.coefficients, grid.members, strict=True)
    combined = sum(c * projected(grid.points[members]) for c, members in pairs)
    np.testing.assert_allclose(combined, projected(grid.points), atol=1e-9)
