"""Fill values are told from measurements: by tables of distributions, and whatever the blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp.models import fills

N = 2_000


def found(*columns, keys=None):
    W = np.stack(columns, axis=1).astype(float)
    keys = np.random.default_rng(9).permutation(len(W)).astype(np.uint64) if keys is None else keys
    return fills.found(fills.local((W,), keys), [True] * W.shape[1])


MEASURED = {
    "normal": lambda r: r.normal(size=N),
    "kelvin": lambda r: r.normal(280, 10, N),
    "Student t 3": lambda r: r.standard_t(3, N),
    "Student t 2": lambda r: r.standard_t(2, N),
    "lognormal": lambda r: r.lognormal(0, 2, N),
    "exponential": lambda r: r.exponential(size=N),
    "counts": lambda r: r.poisson(3, N),
    "counts and zeros": lambda r: r.poisson(1_000, N) * (r.random(N) < 0.5),
    "overdispersed counts": lambda r: r.negative_binomial(0.3, 0.01, N),
    "whole numbers": lambda r: r.integers(-20_000, 20_000, N),
    "categories": lambda r: r.choice([1, 2, 100], N),
    "rare class": lambda r: 1_000 * (r.random(N) < 0.01),
    "clipped": lambda r: np.minimum(r.normal(size=N), 1.5),
    "clipped tail": lambda r: np.minimum(r.lognormal(0, 2, N), np.exp(4)),
    "clipped at a fill value": lambda r: np.clip(r.normal(0, 8_000, N), -9_999, 9_999),
    "visibility": lambda r: np.minimum(np.round(r.lognormal(9, 1, N), -2), 9_999),
    "rounded": lambda r: np.round(r.standard_t(3, N), 1),
    "every row twice": lambda r: np.repeat(r.lognormal(0, 2, N // 2), 2),
    "stations": lambda r: np.repeat(r.lognormal(0, 1, N // 20), 20),
    "rain": lambda r: np.where(r.random(N) < 0.7, 0.0, r.gamma(0.5, 10.0, N)),
    "powers of ten": lambda r: 10.0 ** r.integers(14, 21, N),
    "seconds": lambda r: 1.7e9 + 3_600.0 * np.arange(N),
    "two clusters": lambda r: r.normal(size=N) + 20 * (r.random(N) < 0.2),
    "rain without drizzle": lambda r: np.where(r.random(N) < 0.5, 0.0, 0.2 + r.gamma(1, 3.0, N)),
    "occurrence": lambda r: (r.random(N) < 0.5).astype(float),
    "half a detection limit": lambda r: np.where((z := r.normal(10, 3, N)) < 6, 3.0, z),
    "a hurdle": lambda r: np.where(r.random(N) < 0.3, 0.0, r.uniform(2, 10, N)),
    "rounded with zeros": lambda r: np.where(r.random(N) < 0.1, 0, np.round(r.normal(11, 2, N), 1)),
    "a detection limit": lambda r: np.where(r.random(N) < 0.5, 0.5, 0.5 + r.gamma(2, 1.0, N)),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", MEASURED)
def test_measurements_are_left_alone(name):
    for seed in range(5):
        values = MEASURED[name](np.random.default_rng(seed))
        for n in (N, 150, 12):
            assert found(values[:n]) == []


SPREAD = ("normal", "kelvin", "Student t 3", "lognormal", "exponential", "counts", "rain")


@pytest.mark.whole
@pytest.mark.parametrize("rows", [2, 250, 1_900])
@pytest.mark.parametrize("name", SPREAD)
@pytest.mark.parametrize("value", [-9999.0, -999.0, 1e20, 9.97e36, 9.969209968386869e36, -32768.0])
def test_known_fill_values_are_found(name, value, rows):
    r = np.random.default_rng(1)
    values = MEASURED[name](r).astype(float)
    values[r.permutation(N)[:rows]] = value
    (fill,) = found(values)
    assert (fill.value, fill.rows, fill.left_out) == (value, rows, True)
    rest = values[values != value]
    assert fill.others == (rest.min(), rest.max())


@pytest.mark.parametrize("share", [0.03, 0.5, 0.9])
@pytest.mark.parametrize("value", [-1.0, 0.0])
def test_a_value_of_any_share_that_stands_apart_is_told(value, share):
    r = np.random.default_rng(2)
    values = np.where(r.random(300) < share, value, r.uniform(4, 6, 300))
    (fill,) = found(values)
    assert (fill.value, fill.left_out) == (value, False)
    near = np.where(values == value, value, values - 3.7 + value)  # closer than others may be
    assert found(near) == []


@pytest.mark.parametrize("share", [0.015, 0.1, 0.7])
@pytest.mark.parametrize("value", [-5.0, 0.0, 25.0])
def test_a_repeated_value_beside_distinct_others_is_told(value, share):
    r = np.random.default_rng(2)
    values = np.where(np.arange(400) < share * 400, value, r.uniform(5, 18, 400))
    (fill,) = found(values)
    assert (fill.value, fill.rows, fill.left_out) == (value, 400 * share, False)
    for other in (  # few rows, not repeated, a class, another value near, a few others
        np.where(np.arange(400) < 4, value, r.uniform(5, 18, 400)),
        np.where(np.arange(400) < 50, value + np.arange(400) / 1e3, r.uniform(5, 18, 400)),
        np.where(values == value, value, np.rint(values)),
        np.concatenate([values, [0.7 * value + 0.3 * 11.5]]),
        np.concatenate([np.full(int(share * 400), value), np.linspace(5, 18, 30)]),
    ):
        assert [one for one in found(other) if one.rows > 4] == []


def test_a_station_among_places_is_no_fill_value():
    r = np.random.default_rng(4)
    east, north, own = r.uniform(5, 18, 300), r.uniform(40, 53, 300), np.arange(300) % 10 == 0
    assert found(np.where(own, 0.0, east), np.where(own, 34.0, north)) == []
    both = found(np.where(own, 0.0, east), np.where(own, 0.0, north))  # no place
    assert [(fill.column, fill.value) for fill in both] == [(0, 0.0), (1, 0.0)]


def test_those_of_float32_and_several_at_once_are_found():
    values = np.random.default_rng(0).normal(size=N).astype(np.float32)
    values[:9], values[9:20], values[20:23] = 1e20, -999.9, -3.4028235e38
    assert sorted(fill.rows for fill in found(values) if fill.left_out) == [3, 9, 11]


@pytest.mark.parametrize(("value", "rows"), [(-55.0, 40), (77.0, 900), (1e9, 1), (-999.0, 1)])
def test_other_values_far_from_all_are_told(value, rows):
    values = np.random.default_rng(2).normal(size=N)
    values[:rows] = value
    (fill,) = found(values)
    assert (fill.value, fill.rows, fill.left_out) == (value, rows, False)


def test_zeros_far_from_measurements_are_told():
    values = np.random.default_rng(3).normal(1013, 8, N)
    values[:300] = 0.0
    assert [(fill.value, fill.rows, fill.left_out) for fill in found(values)] == [(0.0, 300, False)]


def test_one_row_is_held_against_what_is_known():
    ends = fills.local((np.array([[-9999.0]]),), np.zeros(1, np.uint64))
    assert fills.found(ends, [True]) == []
    (fill,) = fills.found(ends, [True], [(0.0, 10.0)])
    assert fill.left_out
    assert fills.found(ends, [True], [(-12_000.0, 10.0)]) == []


@given(st.integers(0, 2**31), st.integers(1, 6), st.booleans())
def test_blocks_and_their_order_do_not_matter(seed, parts, whole):
    r = np.random.default_rng(seed)
    n = int(r.integers(1, 9_000))
    W = np.round(r.standard_t(3, (n, 2))) if whole else r.standard_t(3, (n, 2))
    W[r.random(n) < 0.3, 0], W[r.random(n) < 0.3, 1] = -9999.0, np.nan
    keys = r.permutation(n).astype(np.uint64)
    ends = [fills.local((W[i::parts],), keys[i::parts], (-9999.0,)) for i in range(parts)]
    several = ends[-1]
    for one in ends[:-1]:
        several = fills.combine(one, several)
    once = fills.local((W,), keys, (-9999.0,))
    for a, b in zip(several, once, strict=True):
        if a is not several.keys and a is not several.sample:
            np.testing.assert_array_equal(a, b)
    line = np.argsort(several.keys), np.argsort(once.keys)
    np.testing.assert_array_equal(several.sample[line[0]], once.sample[line[1]])
    for j in range(2):
        known = W[~np.isnan(W[:, j]), j]
        values, counts = np.unique(known, return_counts=True)
        k = min(len(values), fills.KEPT)
        np.testing.assert_array_equal(once.values[j, 0, :k], values[:k])
        np.testing.assert_array_equal(once.counts[j, 1, :k], counts[::-1][:k])
        assert once.given[j, 0] == (known == -9999.0).sum()


COUNTED = ("counts", "counts and zeros", "overdispersed counts", "rare class")


@pytest.mark.parametrize("name", COUNTED)
def test_counts_and_classes_are_left_alone(name):
    for seed in range(5):
        values = MEASURED[name](np.random.default_rng(seed))
        ends = fills.local((values[:, None].astype(float),), np.arange(N, dtype=np.uint64))
        assert fills.found(ends, [False]) == []


@pytest.mark.parametrize(("value", "count"), [(255, 1), (255, 30), (99, 30), (127, 2)])
def test_counts_far_above_all_others_are_told(value, count):
    values = np.random.default_rng(0).poisson(4, N).astype(float)
    values[:count] = value
    ends = fills.local((values[:, None],), np.arange(N, dtype=np.uint64))
    (fill,) = fills.found(ends, [False])
    assert (fill.value, fill.rows, fill.left_out) == (value, count, False)


def test_known_values_far_outside_a_range_are_told_from_places():
    X = np.array([[-9999, 1e20, -9998, np.nan, 5], [999, 32767, 31, np.inf, 9999]]).T
    wrong = fills.far(X, [(0.0, 10.0), (0.0, 200.0)])
    assert wrong[:, 0].tolist() == [True, True, False, False, False]
    assert wrong[:, 1].tolist() == [False, True, False, False, True]
    assert not fills.far(X, [(-9000.0, 9000.0), None])[[0, 4]].any()
    assert not fills.far(X, []).any()
