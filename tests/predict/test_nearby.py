"""Blocks near one another, and the rows that prediction reads back."""

import threading
import time
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from commands import rows
from fits import forget
from hypothesis import given
from hypothesis import strategies as st

from daskgp import LMA, ExactGP, kernels
from daskgp.data.blocks.around import Band, EqualCells, NearestBlocks, NearestRows, around_of
from daskgp.data.blocks.layout import Layout
from daskgp.data.blocks.neighbours import earlier
from daskgp.data.blocks.ordering import make_order
from daskgp.data.partition import Span
from daskgp.kernels.lengthscales import correlation_lengths
from daskgp.models.markov.lma import LMA as LowRankMarkov
from daskgp.posterior import neighbour_rows as near_rows
from daskgp.posterior import training_rows
from daskgp.posterior.neighbour_rows import Nearby
from daskgp.runtime import process


def layout_of(count, block_rows=3, last=2):
    """Blocks along a line; the last one is ragged."""
    n = (count - 1) * block_rows + last
    X = np.linspace(0, 1, n)[:, None]
    order = make_order("x0", X, X[0], X[-1], ("x0",), count)
    cuts = order.keys(X)[block_rows::block_rows]
    centroids = np.array([X[i : i + block_rows].mean(axis=0) for i in range(0, n, block_rows)])
    return Layout(order, n, block_rows, cuts, centroids)


# -- which blocks ----------------------------------------------------------------------------


@given(
    count=st.integers(1, 60),
    number=st.integers(0, 70),
    d=st.integers(1, 3),
    kind=st.sampled_from(["random", "coincident", "away", "grid"]),
    seed=st.integers(0, 2**16),
)
def test_earlier_blocks_are_the_nearest_of_those_before(count, number, d, kind, seed):
    rng = np.random.default_rng(seed)
    places = rng.standard_normal((count, d))
    if kind == "coincident":
        places[count // 3 :] = places[0]
    elif kind == "away":  # late blocks are nearest to one another
        places = np.cumsum(np.abs(places), axis=0) * (1 + np.arange(count))[:, None]
        places = places[rng.permutation(count)] if seed % 2 else places[::-1]
    elif kind == "grid":
        places = np.round(places)
    layout = layout_of(count)
    windows = earlier(layout, places[:, None], number)
    assert [window.own for window in windows] == list(layout.spans)
    index = {span: i for i, span in enumerate(layout.spans)}
    for i, window in enumerate(windows):
        near = [index[span] for span in window.near]
        assert near == sorted(set(near))
        assert len(near) == min(number, i)
        assert all(j < i for j in near)
        away = np.sqrt(((places[:i] - places[i]) ** 2).sum(axis=1))
        found, wanted = np.sort(away[near]), np.sort(away)[: len(near)]
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-300)
    assert windows[0].near == ()


def test_a_block_along_a_line_is_near_the_lines_beside_it():
    along = np.linspace(-5.0, 5.0, 8)
    ends = [np.column_stack([along + 10.0 * k, np.zeros(8)]) for k in (1, 2)]
    beside = [np.column_stack([along, np.full(8, y)]) for y in (4.0, 8.0)]
    places = np.array([*ends, *beside, np.column_stack([along, np.zeros(8)])])
    layout = layout_of(len(places))
    near = earlier(layout, places, 2)[-1].near
    # centroids are 4, 8, 10 and 20 away, but the rows at the end of a line touch the next one
    assert layout.spans[2] in near
    assert layout.spans[3] in near or layout.spans[0] in near
    assert layout.spans[1] not in near


@given(
    count=st.integers(1, 40),
    number=st.integers(1, 50),
    d=st.integers(1, 6),
    kind=st.sampled_from(["random", "coincident", "flat", "long", "rare"]),
    blind=st.sampled_from(["none", "some", "all"]),
    seed=st.integers(0, 2**16),
)
def test_places_are_served_by_blocks_near_them(count, number, d, kind, blind, seed):
    rng = np.random.default_rng(seed)
    layout = layout_of(count)
    landmarks = rng.uniform(0, 1, (count, 1, d)) + 0.1 * rng.uniform(0, 1, (count, 4, d))
    landmarks[..., 0] = np.linspace(0, 1, count)[:, None]  # as the layout has it
    if kind == "coincident":
        landmarks[:] = landmarks[:1, :1]
    elif kind == "flat":
        landmarks[..., 1:] = 0.5
    elif kind == "long":
        landmarks[..., -1] *= 1e6
    elif kind == "rare":
        landmarks[..., -1] = 0.0
        landmarks[0, 0, -1] = 1.0
    lengths = rng.uniform(0.1, 2.0, d)
    if blind != "none":
        lengths[int(blind == "some") :] = np.inf
    around = EqualCells(number, lengths, landmarks)
    X = np.concatenate([landmarks[:, 0], rng.uniform(-1, 2, (20, d)), landmarks[0]])
    X[:, 0] = np.clip(X[:, 0], 0, 1)
    along = OfOne(layout)  # whose order sees the first column alone
    found = list(around.groups(along, X))
    members = np.concatenate([m for _, m in found])
    np.testing.assert_array_equal(np.sort(members), np.arange(len(X)))
    assert len({blocks for blocks, _ in found}) == len(found)
    for blocks, places in found:
        assert list(blocks) == sorted(set(blocks))
        assert len(blocks) == min(number, count)
        assert 0 <= blocks[0] <= blocks[-1] < count
        one = int(places[0])  # alone it is served by the same
        ((again, _),) = around.groups(along, X[[one]])
        assert again == blocks
    if not np.isfinite(lengths).any():
        for blocks, places in found:
            assert set(along.blocks_of(X[places])) <= set(blocks)


class OfOne:
    """A layout for inputs of which only the first column is looked at."""

    def __init__(self, layout):
        self.layout, self.n_blocks = layout, layout.n_blocks

    def blocks_of(self, X):
        return self.layout.blocks_of(X[:, :1])


@pytest.mark.parametrize("number", [1, 3, 6])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_no_block_left_out_is_much_nearer_than_one_that_serves(number, d):
    """A cell stands for its places: distances are right to the diagonal of one."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(0, 1, (60, 1, d)) * np.linspace(1, 4, d)
    landmarks = centres + 0.05 * rng.standard_normal((60, 5, d))
    lengths = np.linspace(0.3, 0.6, d)
    around, layout = EqualCells(number, lengths, landmarks), layout_of(60)
    X = rng.uniform(landmarks.min(axis=(0, 1)), landmarks.max(axis=(0, 1)), (300, d))
    ranges = np.ptp(landmarks, axis=(0, 1)) / lengths
    diagonal = np.sqrt(((ranges / around._counts) ** 2).sum())
    assert 30 <= np.prod(around._counts) <= 120  # about as many cells as blocks
    away = np.sqrt((((X[:, None, None] - landmarks) / lengths) ** 2).sum(axis=3)).min(axis=2)
    groups = list(around.groups(layout, X))
    assert len(groups) > 10
    for blocks, members in groups:
        others = np.setdiff1d(np.arange(60), blocks)
        far, near = away[np.ix_(members, blocks)].max(axis=1), away[np.ix_(members, others)]
        assert np.all(far <= near.min(axis=1) + diagonal)


def test_a_column_of_one_value_among_the_landmarks_is_not_cut():
    landmarks = np.random.default_rng(0).uniform(0, 1, (20, 3, 2))
    landmarks[..., 1] = 7.0
    around = EqualCells(2, np.ones(2), landmarks)
    np.testing.assert_array_equal(around._counts, [20, 1])
    assert EqualCells(2, np.ones(2), landmarks[:, :, ::-1])._counts.tolist() == [1, 20]
    assert EqualCells(2, np.ones(2), 0 * landmarks)._counts.tolist() == [1, 1]


def test_nearest_blocks_hold_the_block_of_every_place():
    rng = np.random.default_rng(0)
    for d in (1, 2, 7):
        X = np.exp(rng.standard_normal((600, d)))  # dense and sparse parts
        settings = {"n_support": 5, "block_rows": 30, "optimizer": None, "predict_order": 2}
        model = LMA("rbf", **settings).fit(X, np.sin(X.sum(axis=1)))
        near = model.solved_.rows
        for blocks, members in near.groups(X):
            assert len(blocks) == 3
            assert set(near.layout.blocks_of(X[members])) <= set(blocks)


def test_a_band_is_cut_off_at_both_ends():
    layout = layout_of(4)
    X = np.array([[0.0], [0.35], [0.65], [0.95], [1.0], [-9.0]])
    own = layout.blocks_of(X)
    np.testing.assert_array_equal(own, [0, 1, 2, 3, 3, 0])

    def served(reach):
        found = {}
        for blocks, members in Band(reach).groups(layout, X):
            found[blocks] = members.tolist()
        return found

    assert served(0) == {(0,): [0, 5], (1,): [1], (2,): [2], (3,): [3, 4]}
    assert served(1) == {(0, 1): [0, 5], (0, 1, 2): [1], (1, 2, 3): [2], (2, 3): [3, 4]}
    assert served(2) == {(0, 1, 2): [0, 5], (0, 1, 2, 3): [1, 2], (1, 2, 3): [3, 4]}
    assert served(7) == {(0, 1, 2, 3): [0, 1, 2, 3, 4, 5]}
    assert list(Band(1).groups(layout, X[:0])) == []


def test_what_a_store_keeps_gives_the_same_blocks():
    landmarks = np.random.default_rng(0).uniform(0, 1, (7, 3, 1))
    X = np.linspace(-1, 2, 30)[:, None]
    where, inputs = (np.ones(1), landmarks), np.sort(landmarks, axis=1)
    kinds = (EqualCells(3, *where), NearestBlocks(3, *where), NearestRows(5, 20, *where))
    for around in (Band(2), *kinds):
        again = around_of(around.arrays())
        assert type(again) is type(around)
        pairs = zip(around.groups(layout_of(7), X), again.groups(layout_of(7), X), strict=True)
        for (a, b), (c, e) in pairs:
            assert a == c
            np.testing.assert_array_equal(b, e)
            parts = (kind.parts(a, lambda j: inputs[j]) for kind in (around, again))
            for one, other in zip(*parts, strict=True):
                assert one.block == other.block
                np.testing.assert_array_equal(one.rows, other.rows)


def test_structure_on_top_of_a_large_constant_is_not_lost():
    """No column makes the correlation fall to one half, but near rows matter all the same."""
    rng = np.random.default_rng(0)
    X, T = rng.uniform(0, 3, (400, 2)), rng.uniform(0, 3, (50, 2))
    y = np.sin(6 * X[:, 0]) + np.cos(6 * X[:, 1]) + 5 + 0.05 * rng.standard_normal(400)
    kernel = kernels.RBF(0.3) + kernels.Constant(5.0)
    settings = {"optimizer": None, "noise_variance": 0.01}
    exact = ExactGP(kernel, **settings).fit(X, y).predict(T)
    found = LMA(kernel, n_support=10, block_rows=50, **settings).fit(X, y).predict(T)
    assert np.abs(found - exact).mean() < 0.1


# -- rows of the blocks ----------------------------------------------------------------------


class Reads:
    """Rows in memory that remember what was read."""

    def __init__(self, n, d=1):
        self.X, self.seen = np.arange(float(n * d)).reshape(n, d), []

    def read(self, start, stop):
        self.seen.append(Span(start, stop))
        return self.X[start:stop], self.X[start:stop, :1]


def test_the_blocks_that_serve_a_place_are_read_in_order():
    layout = layout_of(4)
    rows = Reads(layout.rows)
    nearby = Nearby(rows, layout, Band(1))
    ((blocks, _),) = nearby.groups(np.ones((1, 1)))
    assert [part.rows for part in nearby.parts(blocks)] == [None, None]
    (first, _), (second, _) = (nearby.read(part.block) for part in nearby.parts(blocks))
    assert rows.seen == [Span(6, 9), Span(9, 11)]
    np.testing.assert_array_equal(np.concatenate([first, second]), rows.X[6:])


# -- factored blocks are held ----------------------------------------------------------------

SETTINGS = {
    "optimizer": None,
    "n_support": 5,
    "block_rows": 20,
    "markov_order": 1,
    "order": "x0",
    "predict_rows": 50,
}


@pytest.fixture
def factored(monkeypatch):
    """Blocks that were factored, by their first row; nothing is held before or after."""
    seen, condition = [], LowRankMarkov.condition

    def counting(self, theta, state, blocks, features=None):
        found = condition(self, theta, state, blocks, features)
        seen.append((float(blocks[0].X[0, 0]), found.nbytes))
        return found

    forget()
    monkeypatch.setattr(LowRankMarkov, "condition", counting)
    yield seen
    forget()


def one_thread(model, X, step):
    with dask.config.set(scheduler="sync"):
        return dask.compute(*model.predict(da.from_array(X, (step, -1)), return_std=True))


def windows(model, X):
    """How many sets of blocks serve rows X."""
    return len(list(model.solved_.rows.groups(X)))


def blockwise(model, X, step=20):
    """Variances of a few rows after another."""
    parts = [X[i : i + step] for i in range(0, len(X), step)]
    return np.concatenate([model.solved_.moments(part, "variance").variance for part in parts])


def test_a_block_is_factored_once_however_many_chunks_touch_it(factored):
    X, y = rows(200)
    model = LMA(**SETTINGS).fit(X, y)
    assert factored == []
    wanted = one_thread(model, X, 200)
    number = windows(model, X)
    assert 4 <= len(factored) == number
    found = one_thread(model, X, 7)
    assert len(factored) == number
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    held = training_rows._cache("cpu", training_rows.CACHE_BYTES)
    blocks = sum(value.nbytes for (_, key), value in held.items() if key[0] == near_rows.BLOCK)
    assert 0 < blocks == held.total_weight - sum(nbytes for _, nbytes in factored)


def test_a_budget_is_respected_and_the_least_recent_block_goes_first(factored):
    X, y = rows(200)
    X, y = X[np.argsort(X[:, 0])], y[np.argsort(X[:, 0])]
    model = LMA(**{**SETTINGS, "predict_rows": None}, neighbours="order").fit(X, y)
    with dask.config.set({"daskgp.cache-bytes": "100kB"}):
        wanted = blockwise(model, X)
        held = training_rows._cache("cpu", training_rows.CACHE_BYTES)
        largest = max(nbytes for _, nbytes in factored)
        assert 100_000 - largest < held.total_weight <= 100_000
        kept = sum(key[0] != near_rows.BLOCK for _, key in held)
        assert 1 <= kept < 10
        del factored[:]
        blockwise(model, X[-20 * kept :])  # the last ones are still there
        assert factored == []
        blockwise(model, X[:20])
        assert len(factored) == 1
    forget()
    with dask.config.set({"daskgp.cache-bytes": 0}):  # nothing is held, all is right
        del factored[:]
        found = blockwise(model, X, 10)
        assert len(factored) == 20
        assert len(training_rows._cache("cpu", training_rows.CACHE_BYTES)) == 0
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_models_do_not_share_what_they_hold(factored):
    X, y = rows(200)
    first = LMA(**SETTINGS).fit(X, y)
    second = LMA(kernels.RBF(0.5), **SETTINGS).fit(X, y)
    third = LMA(**{**SETTINGS, "predict_rows": 40}).fit(X, y)
    again = LMA(**SETTINGS).fit(X, y)
    other = LMA(**SETTINGS).fit(X, 2 * y + np.sin(9 * X[:, 0]))
    wanted = one_thread(first, X, 200)
    assert len(factored) == windows(first, X)
    for model in (second, third, other):
        del factored[:]
        found = one_thread(model, X, 200)
        assert len(factored) == windows(model, X)
        assert not np.allclose(found[0], wanted[0], rtol=1e-6, atol=0)
    del factored[:]
    for a, b in zip(one_thread(again, X, 200), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    assert factored == []  # the same model


def test_the_budget_is_a_share_of_the_memory_there_is():
    with dask.config.set({"daskgp.cache-bytes": "2 MiB"}):
        assert training_rows._budget("cpu") == 2 * 2**20
    share = training_rows.CACHE_SHARE * training_rows.MEMORY_LIMIT
    assert training_rows._budget("cpu") == pytest.approx(share)
    assert training_rows._budget("cpu", training_rows.CACHE_BYTES) == pytest.approx(
        min(share, training_rows.CACHE_BYTES)
    )
    assert training_rows._budget("cpu", 1e30) == pytest.approx(share)


# -- far rows --------------------------------------------------------------------------------


def test_threads_that_find_the_same_warn_once(monkeypatch):
    line = process._users_line
    monkeypatch.setattr(process, "_users_line", lambda: (time.sleep(0.05), line())[1])
    process.once.clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        several = [threading.Thread(target=process.warn_once, args=("far",)) for _ in range(4)]
        for one in several:
            one.start()
        for one in several:
            one.join()
    assert len(told) == 1


def test_far_rows_are_the_prior_and_said_so_once():
    X, y = rows(200)
    kernel = kernels.RBF(0.5)
    model = LMA(kernel, **SETTINGS, noise_variance=0.01).fit(X, y)
    far = np.array([[1e3, 1.0], [1.0, -1e3], [1.5, 1.5]])
    process.once.clear()
    with pytest.warns(UserWarning, match="lie far from all training rows"):
        mean, std = model.predict(far, return_std=True)
    np.testing.assert_allclose(mean[:2], y.mean(), rtol=1e-9)
    unit = float(model.solved_.scaling.y_scale[0])
    np.testing.assert_allclose(std[:2], unit, rtol=1e-6)
    assert std[2] < 0.5 * unit
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(far)  # said already
        one_thread(model, far, 1)
        process.once.clear()
        model.predict(X)  # none is far


# -- distances of kernels --------------------------------------------------------------------


def test_correlation_lengths_are_those_of_the_kernel():
    spread = np.array([1.0, 2.0])
    half = np.sqrt(2 * np.log(2))  # exp(-r^2 / 2) = 1/2
    step = 10 ** (6 / 240)  # places that are looked at
    found = correlation_lengths(kernels.RBF((0.3, 0.7)), spread)
    for a, b in zip(found, half * np.array([0.3, 0.7]), strict=True):
        assert b <= a <= b * step
    (matern,) = correlation_lengths(kernels.Matern12(0.3), spread[:1])
    assert np.log(2) * 0.3 <= matern <= np.log(2) * 0.3 * step
    scaled = correlation_lengths(7.0 * kernels.RBF((0.3, 0.7)), spread)
    np.testing.assert_array_equal(scaled, found)


@pytest.mark.parametrize("kind", [kernels.Matern12, kernels.Matern52, kernels.RBF])
def test_lengths_far_beyond_the_ranges_keep_the_proportions_of_the_kernel(kind):
    found = correlation_lengths(kind((200.0, 1000.0, 0.5)), np.array([4.0, 2.0, 3.0]))
    np.testing.assert_allclose(found / found[2], [400.0, 2000.0, 1.0], rtol=1e-3)


@pytest.mark.parametrize(
    ("kernel", "finite"),
    [
        (kernels.RBF(0.3, active_dims=(1,)), [False, True]),
        (kernels.RBF(0.3, active_dims=(1,)) * kernels.Matern32(0.2, active_dims=(0,)), [True] * 2),
        (kernels.RBF((0.3, 1e6)), [True, False]),
        (kernels.Linear(), [False, False]),
        (kernels.Constant(), [False, False]),
        (kernels.RBF(0.1) + kernels.Constant(5.0), [True, True]),
        (kernels.RBF(0.1) + kernels.Linear(), [True, True]),
        (kernels.Periodic(lengthscale=0.5, period=0.2), [True, True]),
    ],
    ids=str,
)
def test_columns_that_a_kernel_does_not_tell_apart_have_no_length(kernel, finite):
    found = correlation_lengths(kernel, np.ones(2))
    np.testing.assert_array_equal(np.isfinite(found), finite)
    assert np.all(found > 0)


def test_a_column_of_one_value_has_no_length():
    np.testing.assert_array_equal(
        np.isfinite(correlation_lengths(kernels.RBF(0.3), np.array([1.0, 0.0]))), [True, False]
    )


@pytest.mark.parametrize(
    "kernel", [kernels.Linear(), kernels.RBF(1.0, active_dims=(1,)), "constant() + linear()"]
)
def test_kernels_without_lengths_are_fitted_all_the_same(kernel):
    X, y = rows(60)
    model = LMA(kernel, **{**SETTINGS, "order": "auto"}).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
