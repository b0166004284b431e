"""Rows that are drawn by their content: whatever their order, precision and chunks."""

import numpy as np
import pytest
from fits import same_bits

from daskgp.data import partition, rows_of
from daskgp.data.blocks.sampling import Keys, describe, draw
from daskgp.models import scaling
from daskgp.runtime.executor import Executor

EXECUTOR = Executor(None, False, here=True)
NUMBER = 80


def table(n=900, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.0, 3.0, (n, 3)), rng.standard_normal((n, 1))


def keys_of(X, y, seed=(0, 1)):
    rows = rows_of(X, y, None, True)
    return Keys.by_content(seed, rows, describe(rows, spans_of(rows), EXECUTOR))


def spans_of(rows, cut=100):
    return partition.blocks(len(rows), None, cut)


def drawn(X, y, cut=100, keys=None):
    """X and y of a sample, in their own units."""
    rows, keys = rows_of(X, y, None, True), keys or keys_of(X, y)
    plain = scaling.identity(X.shape[1], y.shape[1])
    return draw(rows, spans_of(rows, cut), plain, NUMBER, keys, EXECUTOR).rows[:2]


@pytest.mark.parametrize("cut", [1, 37, 900])
def test_neither_order_nor_chunks_matter(cut):
    X, y = table()
    line = np.random.default_rng(1).permutation(len(X))
    same_bits(drawn(X[line], y[line], cut), drawn(X, y))


def test_single_precision_draws_the_same_rows():
    X, y = table()
    same_bits(
        drawn(*(a.astype(np.float32) for a in (X, y))), [a.astype(np.float32) for a in drawn(X, y)]
    )


def test_a_constant_column_and_other_targets_draw_the_same_rows():
    X, y = table()
    wanted = drawn(X, y)[0]
    beside = drawn(np.insert(X, 1, 7.5, axis=1), np.exp(y))[0]
    np.testing.assert_array_equal(np.delete(beside, 1, axis=1), wanted)


def test_another_seed_draws_other_rows():
    X, y = table()
    one, two = (drawn(X, y, keys=keys_of(X, y, (seed, 1)))[1] for seed in (0, 1))
    assert len(np.intersect1d(one, two)) < NUMBER // 4


def test_rows_that_share_their_inputs_are_told_apart_by_targets():
    X, y = table()
    X[1::2] = X[::2]
    found = drawn(X, y)
    line = np.random.default_rng(1).permutation(len(X))
    same_bits(drawn(X[line], y[line]), found)
    assert len(np.unique(found[0], axis=0)) > 0.8 * NUMBER  # copies are not drawn together


def test_rows_that_repeat_are_drawn_by_number():
    X, y = table()
    X, y = np.round(X[:, :1]), np.round(y)
    assert keys_of(X, y) == Keys((0, 1))
    values, counts = np.unique(drawn(X, y)[0], return_counts=True)
    assert len(values) == 5
    assert counts.max() < NUMBER // 2


def test_rows_at_one_place_are_drawn_in_their_share():
    rng = np.random.default_rng(3)
    X, y = rng.uniform(size=(20_000, 2)), rng.standard_normal((20_000, 1))
    X[:8_000] = 0.3, 0.7
    for seed in range(8):
        there = drawn(X, y, 5_000, keys_of(X, y, (seed, 1)))[0][:, 0] == 0.3
        assert 0.2 < there.mean() < 0.6
    assert keys_of(X, np.round(y, -9)) == Keys((0, 1))  # copies in all columns: by number


def test_whole_turns_of_longitude_are_none():
    X, y = table()
    keys = keys_of(X, y)._replace(longitude=0)
    X[:, 0] = np.linspace(-180.0, 179.0, len(X))
    turned = X.copy()
    turned[:, 0] += 360.0
    np.testing.assert_array_equal(keys.of(0, X, y), keys.of(0, turned, y))


def test_times_that_single_precision_rounds_are_told_apart():
    X, y = 1.7e9 + np.arange(5_000.0)[:, None], np.zeros((5_000, 1))
    y[::2] = 1.0
    keys = keys_of(X, y)
    assert keys.dtype == "float64"
    found = np.sort(drawn(X, y)[0][:, 0])
    assert np.median(np.diff(found)) > 20


def test_values_of_any_size_have_keys():
    X, y = table()
    for unit in (1e-60, 1e60):
        keys = keys_of(unit * X, y)
        assert keys.dtype == "float64"
        found = keys.of(0, unit * X, y)
        assert len(np.unique(found)) == len(X)
    assert keys_of(X, y).dtype == "float32"
