"""Coordinates of the mean's weights: F^-1 and F^-T, group by group."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp import kernels
from daskgp.models.variational import preconditioner
from daskgp.models.variational.preconditioner import RIDGE, Blocks, root

KERNEL = kernels.RBF(0.5, variance=1.7)


def covariances(m, seed=0):
    """Of functions that are as good as dependent."""
    return KERNEL(np.sort(np.random.default_rng(seed).uniform(0, 3, (m, 1)), axis=0))


def blocks_of(C, members):
    return Blocks(members, [root(C[np.ix_(few, few)], KERNEL.variance) for few in members])


def dense(blocks, m):
    """The matrix of F, with the groups where they belong."""
    F = np.zeros((m, m))
    for few, factor in zip(blocks.members, blocks.factors, strict=True):
        F[np.ix_(few, few)] = np.diag(factor) if factor.ndim == 1 else factor
    return F


def groups(m, cuts, seed):
    return np.split(np.random.default_rng(seed).permutation(m), sorted(cuts))


some_groups = given(
    m=st.integers(1, 30), cuts=st.lists(st.integers(0, 30), max_size=3), seed=st.integers(0, 99)
)


@some_groups
def test_pull_and_push_are_those_of_the_dense_factor(m, cuts, seed):
    rng = np.random.default_rng(seed)
    members = groups(m, cuts, seed)
    lower = [
        np.tril(rng.normal(size=(len(few),) * 2), -1) / 9 + 2 * np.eye(len(few)) for few in members
    ]
    blocks = Blocks(members, lower)
    F, g = dense(blocks, m), rng.normal(size=(m, 2))
    before = g.copy()
    np.testing.assert_allclose(blocks.pull(g), np.linalg.solve(F, g), atol=1e-12)
    np.testing.assert_allclose(blocks.push(g), np.linalg.solve(F.T, g), atol=1e-12)
    np.testing.assert_array_equal(g, before)


@some_groups
def test_a_direction_and_its_slope_agree_in_either_coordinates(m, cuts, seed):
    """a = F^-T u: what a moves for u is g' a = (F^-1 g)' u."""
    rng = np.random.default_rng(seed)
    blocks = blocks_of(covariances(m), groups(m, cuts, seed))
    g, u = rng.normal(size=(m, 2)), rng.normal(size=(m, 2))
    assert (g * blocks.push(u)).sum() == pytest.approx((blocks.pull(g) * u).sum(), rel=1e-9)


@pytest.mark.parametrize("m", [1, 12, 200])
def test_a_step_in_the_coordinates_is_one_by_the_inverse_of_the_block(m):
    C = covariances(m)
    blocks = blocks_of(C, [np.arange(m)])
    g = np.random.default_rng(1).normal(size=(m, 2))
    found = blocks.push(blocks.pull(g))
    ridged = C + RIDGE * KERNEL.variance * np.eye(m)
    np.testing.assert_allclose(ridged @ found, g, atol=1e-3)


def test_in_the_coordinates_the_quadratic_form_is_nearly_the_identity():
    C = covariances(200)
    F = dense(blocks_of(C, [np.arange(200)]), 200)
    values = np.linalg.eigvalsh(np.linalg.solve(F, np.linalg.solve(F, C).T))
    assert np.linalg.cond(C) > 1e12
    # none is stretched: directions of less than the ridge stay short
    assert values.max() <= 1 + 1e-3
    kept = np.linalg.eigvalsh(C) > 10 * RIDGE * KERNEL.variance
    assert (np.sort(values)[-kept.sum() :] > 0.9).all()


def test_groups_leave_out_what_lies_between_them():
    C, members = covariances(40), [np.arange(0, 40, 2), np.arange(1, 40, 2)]
    g = np.random.default_rng(1).normal(size=(40, 1))
    whole = blocks_of(C, members)
    for few in members:
        alone = blocks_of(C[np.ix_(few, few)], [np.arange(20)])
        np.testing.assert_allclose(whole.pull(g)[few], alone.pull(g[few]), rtol=1e-10)
        np.testing.assert_allclose(whole.push(g)[few], alone.push(g[few]), rtol=1e-10)


def test_diagonal_factors_divide():
    own, g = np.array([0.5, 2.0, 4.0]), np.arange(6.0).reshape(3, 2)
    few = Blocks([np.array([2, 0, 1])], [own[[2, 0, 1]]])
    for found in (few.pull(g), few.push(g)):
        np.testing.assert_allclose(found, g / own[:, None])


def test_moves_of_roots_have_as_many_columns_as_rows():
    own, g = np.array([0.5, 2.0]), np.ones((2, 2))
    np.testing.assert_allclose(Blocks([np.arange(2)], [own]).pull(g), [[2, 2], [0.5, 0.5]])


def test_a_factor_is_in_single_precision_and_its_block_is_left_as_it_was():
    C = covariances(50)
    before = C.copy()
    F = root(C, KERNEL.variance)
    assert F.dtype == np.float32
    np.testing.assert_array_equal(C, before)
    np.testing.assert_array_equal(F, np.tril(F))
    wide = F.astype(np.float64)
    ridged = C + preconditioner.RIDGE * KERNEL.variance * np.eye(50)
    np.testing.assert_allclose(wide @ wide.T, ridged, atol=1e-6)


def test_functions_that_repeat_have_a_factor_too():
    C = np.ones((4, 4))
    F = root(C, 1.0).astype(np.float64)
    np.testing.assert_allclose(F @ F.T, C + RIDGE * np.eye(4), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_that_of_what_is_given(dtype):
    g = np.ones((12, 2), dtype)
    blocks = blocks_of(covariances(12), [np.arange(12)])
    assert blocks.pull(g).dtype == blocks.push(g).dtype == dtype


def test_no_functions():
    none, g = Blocks([], []), np.zeros((0, 2))
    assert none.pull(g).shape == none.push(g).shape == (0, 2)
    assert not none.fresh
