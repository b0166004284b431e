"""Keys of rows: curves that visit every cell, and lines on which neighbours are near."""

import itertools
import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from daskgp.data.blocks.hilbert import hilbert_keys
from daskgp.data.blocks.ordering import (
    BITS,
    Order,
    check_order,
    make_order,
)
from daskgp.data.blocks.sampling import row_keys
from daskgp.errors import InputError, SettingError

NAMES = ("a", "b", "c", "d", "e", "f")


def made(order, X, n_blocks=20, names=NAMES, **settings):
    X = np.asarray(X, np.float64)
    names = names[: X.shape[1]]
    return make_order(order, X, X.min(axis=0), X.max(axis=0), names, n_blocks, **settings)


def uniform(n=500, d=2, seed=0):
    return np.random.default_rng(seed).uniform(-1.0, 2.0, (n, d))


# -- the curve -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "bits"), [(1, 4), (2, 1), (2, 2), (2, 5), (3, 1), (3, 2), (3, 4), (4, 2)]
)
def test_the_curve_visits_every_cell_once_and_steps_to_a_neighbour(k, bits):
    side = 2**bits
    cells = np.array(list(itertools.product(range(side), repeat=k))).T
    keys = hilbert_keys((cells + 0.5) / side, bits)
    np.testing.assert_array_equal(np.sort(keys), np.arange(side**k))
    path = cells[:, np.argsort(keys)]
    np.testing.assert_array_equal(np.abs(np.diff(path, axis=1)).sum(axis=0), 1)


def test_a_small_curve_is_the_one_in_the_books():
    cells = np.array([[0, 1, 1, 0, 0, 0, 1, 1], [0, 0, 1, 1, 2, 3, 3, 2]])
    np.testing.assert_array_equal(hilbert_keys((cells + 0.5) / 4, 2), np.arange(8))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_full_keys_begin_with_those_of_coarser_curves(k):
    """The cells of a finer curve lie within one cell of a coarser one: so neighbours stay near."""
    places = uniform(300, k).T / 3.0 + 1.0 / 3.0
    bits = BITS[k]
    full = hilbert_keys(places, bits)
    for coarse in (2, 4, 6):
        shift = np.uint64(k * (bits - coarse))
        groups = full >> shift
        for group in np.unique(groups):
            cells = (places[:, groups == group] * 2**coarse).astype(int)
            assert (cells == cells[:, :1]).all()


def test_the_ends_of_the_range_are_inside():
    places = np.array([[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    keys = hilbert_keys(places, 31)
    assert len(set(keys.tolist())) == 4
    assert keys.max() < 2**62
    assert hilbert_keys(np.array([[1.0]]), 63)[0] == 2**63 - 1


# -- kinds -----------------------------------------------------------------------------------


def test_a_column_is_sorted_by_itself_and_ties_by_the_others():
    X = uniform(400, 3)
    X[:, 1] = np.round(X[:, 1])
    order = made("b", X)
    assert (order.kind, order.leading, order.columns[0]) == ("column", ("b",), 1)
    line = X[np.argsort(order.keys(X))]
    assert (np.diff(line[:, 1]) >= 0).all()
    for value in np.unique(X[:, 1]):
        tied = line[line[:, 1] == value]
        steps = np.abs(np.diff(tied[:, [0, 2]], axis=0)).sum(axis=1)
        shuffled = np.random.default_rng(0).permutation(tied)[:, [0, 2]]
        assert steps.mean() < 0.3 * np.abs(np.diff(shuffled, axis=0)).sum(axis=1).mean()


@pytest.mark.parametrize("order", ["auto", "hilbert", "a", "pca"])
def test_one_column_is_sorted_to_the_last_bit_that_counts(order):
    X = 1e9 + np.sort(np.random.default_rng(0).uniform(0.0, 1e3, 2000))[:, None]
    keys = made(order, X).keys(X)
    assert (np.diff(keys.astype(object)) > 0).all()


def test_cells_of_a_curve_are_cubes_in_lengthscales():
    X = uniform(400, 2) * [10.0, 1.0]
    wide = made("hilbert", X, lengthscales=[1.0, 1.0])
    assert wide.step[0] == wide.step[1]
    keys = wide.keys(X)
    # a strip ten times longer than wide is followed along its length
    place = np.corrcoef(np.argsort(np.argsort(keys)), X[:, 0])[0, 1]
    assert abs(place) > 0.98
    square = made("hilbert", X, lengthscales=[10.0, 1.0])
    steps = dict(zip(square.columns, square.step, strict=True))
    assert steps[0] == pytest.approx(10.0 * steps[1])
    units = made("hilbert", X)  # standard deviations, so units do not matter
    other = made("hilbert", X * [1e-3, 7.0])
    line = np.argsort(units.keys(X)), np.argsort(other.keys(X * [1e-3, 7.0]))
    np.testing.assert_array_equal(*line)


def test_the_leading_columns_are_those_with_most_lengthscales():
    X = uniform(300, 5)
    order = made("hilbert", X, lengthscales=[1.0, 0.1, np.inf, 0.5, 2.0])
    assert order.columns == (1, 3, 0)
    order = made("hilbert", X, lengthscales=[np.inf, np.inf, np.inf, 0.5, np.inf])
    assert order.columns == (3,)
    order = made("hilbert", X, lengthscales=[np.inf] * 5)
    assert len(order.columns) == 3  # nothing to choose by
    assert made(["e", "c"], X, lengthscales=[1.0, 1.0, np.inf, 1.0, 1.0]).leading == ("e", "c")


def test_the_widest_column_leads_whatever_the_others_are():
    X = np.random.default_rng(0).uniform(size=(50, 3))
    low, high = np.zeros(3), np.array([1.0, 1.0, 1e12])
    order = make_order("auto", X, low, high, ("a", "b", "c"), 4, [1.0, 0.5, np.inf])
    assert order.leading == ("b", "a")
    order = make_order("auto", X, low, np.ones(3), ("a", "b", "c"), 4, [1e12, 1e10, 1.0])
    assert order.leading == ("c", "b", "a")


def test_a_curve_takes_a_place_on_a_sphere_whole():
    """As two features of three, wherever its axes rank."""
    X = uniform(300, 5)
    for lengths, leading in (([0.2, 1.0, 1.0, 0.5, 0.1], 4), ([0.1, 1.0, 1.0, 0.2, 0.3], 3)):
        order = made("hilbert", X, lengthscales=lengths, sphere=(0, 1, 2))
        assert sorted(order.columns) == [0, 1, 2, leading]
    order = made("hilbert", X, lengthscales=[1.0, 1.0, 1.0, 0.2, 0.3], sphere=(0, 1, 2))
    assert order.columns == (3, 4)  # no room for all of it
    named = made(["a", "b", "c", "e"], X, sphere=(0, 1, 2))
    assert (named.kind, named.columns) == ("hilbert", (0, 1, 2, 4))
    twin = Order.from_dict(json.loads(json.dumps(named.to_dict())))
    np.testing.assert_array_equal(twin.keys(X), named.keys(X))
    ties = made("d", np.round(X), sphere=(0, 1, 2)).columns
    assert {0, 1, 2} <= {*ties}


def test_columns_that_are_equally_wide_keep_their_order():
    X = np.random.default_rng(0).uniform(size=(50, 2))
    extents = X.max(axis=0) - X.min(axis=0)
    for rounding in ([1.0, 1.0 + 1e-15], [1.0 + 1e-15, 1.0]):
        order = make_order(
            "auto", X, X.min(axis=0), X.max(axis=0), ("b", "a"), 4, extents * rounding
        )
        assert order.leading == ("b", "a")


def test_auto_is_a_column_a_curve_or_a_chain():
    X = uniform(300, 6)
    scales = np.ones(6)
    assert made("auto", X, lengthscales=scales).kind == "kmeans"
    scales[3:] = np.inf
    assert made("auto", X, lengthscales=scales).kind == "hilbert"
    scales[1:] = np.inf
    found = made("auto", X, lengthscales=scales)
    assert (found.kind, found.leading) == ("column", ("a",))
    constant = X[:, :2] * [1.0, 0.0]
    assert made("auto", constant).columns == (0,)


def test_the_first_principal_component_is_that_of_scaled_inputs():
    rng = np.random.default_rng(1)
    along = rng.standard_normal(400)
    X = np.stack([along, -2.0 * along, 0.1 * rng.standard_normal(400)], axis=1)
    X += 0.01 * rng.standard_normal(X.shape)
    keys = made("pca", X, lengthscales=[1.0, 1.0, 1.0]).keys(X)
    assert np.corrcoef(np.argsort(np.argsort(keys)), X[:, 1])[0, 1] > 0.9
    assert (made("pca", X).direction[np.argmax(np.abs(made("pca", X).direction))]) > 0


def test_clusters_lie_in_a_chain_and_rows_along_it():
    angle = np.random.default_rng(2).uniform(0.0, 0.9 * np.pi, 2000)
    X = np.stack([np.cos(angle), np.sin(angle), 0.0 * angle, angle**0], axis=1)
    X[:, 2:] += 0.01 * np.random.default_rng(3).standard_normal((2000, 2))
    order = made("kmeans", X, n_blocks=30, lengthscales=np.ones(4))
    assert order.centroids.shape == (30, 4)
    keys = order.keys(X)
    assert (keys >> np.uint64(48)).max() == 29
    rank = np.argsort(np.argsort(keys))
    assert abs(np.corrcoef(rank, angle)[0, 1]) > 0.99
    own = keys >> np.uint64(48)
    within = [
        abs(np.corrcoef(rank[own == i], angle[own == i])[0, 1])
        for i in range(30)
        if (own == i).sum() > 2
    ]
    assert np.median(within) > 0.9


def test_there_are_no_more_clusters_than_blocks_or_rows():
    X = uniform(300, 5)
    assert len(made("kmeans", X, n_blocks=7).centroids) == 7
    assert len(made("kmeans", X, n_blocks=1).centroids) == 1
    assert len(made("kmeans", X[[0, 1, 2, 0, 1]], n_blocks=9).centroids) == 3
    assert len(made("kmeans", X, n_blocks=10_000).centroids) == 256


@pytest.mark.parametrize("order", ["hilbert", "pca", "kmeans", "a"])
def test_nearby_rows_come_near_in_the_line(order):
    X = uniform(2000, 2)
    line = X[np.argsort(made(order, X, n_blocks=50).keys(X))]
    blocks = line.reshape(20, 100, 2)
    spread = blocks.var(axis=1).sum(axis=1).mean()
    assert spread < (0.15 if order in ("hilbert", "kmeans") else 0.6) * X.var(axis=0).sum()


# -- at random -------------------------------------------------------------------------------


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 2**70))
def test_a_random_key_depends_on_the_number_of_a_row_and_the_seed_alone(start, n, seed):
    keys = row_keys((seed, 2), 0, start + n)
    assert keys.dtype == np.uint64
    np.testing.assert_array_equal(row_keys((seed, 2), start, n), keys[start:])
    line = made("random", uniform(n + 1, 3), seed=seed)
    twin = Order.from_dict(json.loads(json.dumps(line.to_dict(), allow_nan=False)))
    assert (twin.kind, twin.features, twin.columns, twin.seed) == ("random", NAMES[:3], (), seed)


def random_order(n, seed=0):
    return np.argsort(row_keys((seed, 2), 0, n), kind="stable")


def test_a_random_order_is_uniform_and_another_for_each_seed():
    n = 20_000
    line = random_order(n)
    np.testing.assert_array_equal(np.sort(line), np.arange(n))
    place = np.argsort(line)
    middle, half = (n - 1) / 2, n // 2
    for part in (place[:half], place[half:]):  # four standard deviations of a mean without return
        assert abs(part.mean() - middle) < 4 * n / np.sqrt(12 * 2 * half)
    counts = np.histogram2d(np.arange(n), place, bins=10)[0]
    squares = ((counts - n / 100) ** 2 / (n / 100)).sum()
    assert stats.chi2.sf(squares, 81) > 1e-3
    assert abs(stats.spearmanr(place, np.arange(n)).statistic) < 4 / np.sqrt(n)
    assert abs(stats.spearmanr(place[1:], place[:-1]).statistic) < 4 / np.sqrt(n)
    others = [random_order(n, seed) for seed in (0, 1, 2)]
    np.testing.assert_array_equal(others[0], line)
    for a, b in itertools.combinations(others, 2):
        assert (a == b).mean() < 10 / n


def test_a_sample_of_rows_is_drawn_by_other_numbers():
    sample = np.random.PCG64([0, 1]).random_raw(1000)
    assert abs(np.corrcoef(np.argsort(sample), random_order(1000))[0, 1]) < 0.15


def test_a_place_has_no_random_key():
    line = make_order("random", np.empty((0, 2)), [0.0, 0.0], [1.0, 1.0], ("a", "b"), 5)
    assert (line.leading, line.seed) == ((), 0)
    for X in (uniform(3), uniform(0)):
        with pytest.raises(
            InputError, match=r"no blocks .* run daskgp.prepare again with"
        ) as error:
            line.keys(X)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["pca", "random"])
def test_a_column_that_has_the_name_of_a_kind_is_given_in_a_list(name):
    X, names = uniform(50), ("a", name)
    assert made(name, X, names=names).kind == name
    assert (made([name], X, names=names).kind, made([name], X, names=names).leading) == (
        "column",
        (name,),
    )
    check_order([name], names, nearby=True)
    with pytest.raises(
        SettingError, match=r"^order='random' does not keep nearby rows together, .*'auto'"
    ):
        check_order("random", names, nearby=True)


@pytest.mark.parametrize("order", ["auto", "hilbert", "pca", "kmeans", "a"])
def test_other_orders_ignore_numbers_of_rows_and_need_no_seed(order):
    """As those in stores from before there were random orders."""
    X = uniform(50)
    line = made(order, X, seed=3)
    assert "seed" not in line.to_dict()
    assert Order.from_dict(line.to_dict()).seed == line.seed == 0


# -- laws ------------------------------------------------------------------------------------

ORDERS = st.sampled_from(["auto", "hilbert", "pca", "kmeans", "a"])


@given(ORDERS, st.integers(1, 5), st.integers(1, 60), st.integers(0, 100))
def test_keys_depend_on_the_row_alone_and_travel_as_json(order, d, n, seed):
    X = uniform(n, d, seed)
    line = made(order, X)
    keys = line.keys(X)
    assert (keys.dtype, keys.shape) == (np.uint64, (n,))
    twin = Order.from_dict(json.loads(json.dumps(line.to_dict(), allow_nan=False)))
    assert (twin.kind, twin.features, twin.columns) == (line.kind, line.features, line.columns)
    np.testing.assert_array_equal(twin.keys(X), keys)
    np.testing.assert_array_equal(line.keys(X[::-1]), keys[::-1])
    np.testing.assert_array_equal(made(order, X).keys(np.asfortranarray(X)), keys)
    np.testing.assert_array_equal(line.keys(np.repeat(X, 3, axis=0)), np.repeat(keys, 3))


@given(ORDERS, st.integers(1, 5))
def test_missing_infinite_and_far_values_have_keys_without_warnings(order, d):
    X = uniform(50, d)
    line = made(order, X)
    odd = X[:6].copy()
    odd[0, -1], odd[1], odd[2], odd[3, 0] = np.nan, np.inf, -np.inf, 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keys = line.keys(odd)
    assert keys[0] == 0
    low, high = X.min(axis=0), X.max(axis=0)
    np.testing.assert_array_equal(keys[1:], line.keys(np.clip(odd[1:], low, high)))
    assert len(line.keys(X[:0])) == 0


@pytest.mark.parametrize("order", ["auto", "hilbert", "pca", "kmeans", "a"])
def test_a_single_row_has_an_order(order):
    for d in (1, 2, 5):
        line = made(order, np.ones((1, d)))
        np.testing.assert_array_equal(
            line.keys(np.ones((3, d))), line.keys(np.ones((1, d)))[[0] * 3]
        )


def test_many_rows_are_keyed_tile_by_tile():
    X = uniform(10_000, 4)
    for order in ("hilbert", "pca", "c"):
        line = made(order, X)
        parts = [line.keys(part) for part in np.array_split(X, 7)]
        np.testing.assert_array_equal(np.concatenate(parts), line.keys(X))


# -- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (
            "lonn",
            "'lonn' is neither one of auto, hilbert, pca, kmeans, random nor a column (did you "
            "mean "
            "'lon'?)",
        ),
        ("hilbrt", "did you mean 'hilbert'?); X has lon, lat, day, depth"),
        (
            ["lon", "x"],
            "'x' is neither one of auto, hilbert, pca, kmeans, random nor a column; X has lon",
        ),
        (
            [],
            "name 1 to 3 different columns of lon, lat, day, depth, or one of 'auto', 'hilbert', "
            "'pca', 'kmeans', 'random'",
        ),
        (["lon", "lon"], "name 1 to 3 different columns"),
        (["lon", "lat", "day", "depth"], "name 1 to 3 different columns"),
    ],
)
def test_an_unknown_order_is_refused_with_what_there_is(order, words):
    with pytest.raises(SettingError) as caught:
        made(order, uniform(20, 4), names=("lon", "lat", "day", "depth"))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lengthscales", "words"),
    [
        ([1.0], "lengthscales have shape (1,), one for each of the 2 columns is needed: a, b"),
        ([1.0, 0.0], "lengthscale 0 of 'b': it must be greater than 0"),
        ([np.nan, 1.0], "lengthscale nan of 'a': it must be greater than 0"),
        (["x", "y"], "numbers are needed"),
    ],
)
def test_lengthscales_that_are_none_are_refused(lengthscales, words):
    with pytest.raises(SettingError) as caught:
        made("auto", uniform(20, 2), lengthscales=lengthscales)
    assert words in str(caught.value)
