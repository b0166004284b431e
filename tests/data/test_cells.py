"""Cells that follow the density of rows, and the nearest rows that serve their places."""

import warnings

import dask.array as da
import numpy as np
import pytest
from fits import forget
from hypothesis import given
from hypothesis import strategies as st

import daskgp
from daskgp import LMA, PIC, ExactGP, kernels
from daskgp.data.blocks.around import NearestRows
from daskgp.data.blocks.cells import Cells
from daskgp.runtime import process


def spread(kind, n, d, rng):
    """Rows of very different density."""
    X = rng.uniform(0, 1, (n, d))
    if kind == "log-normal":
        return np.exp(1.5 * rng.standard_normal((n, d)))
    if kind == "burst":
        dense = rng.uniform(size=n) < 0.8
        X[dense] = 0.5 + 0.01 * X[dense]
    elif kind == "lines":
        X[:, 0] = np.round(10 * X[:, 0]) / 10 + 1e-4 * rng.standard_normal(n)
    elif kind == "twice":
        X[n // 2 :] = X[: n - n // 2]
    elif kind == "one place":
        X[:] = X[0]
    return X


KINDS = ("uniform", "log-normal", "burst", "lines", "twice", "one place")


@given(
    kind=st.sampled_from(KINDS),
    d=st.integers(1, 4),
    number=st.integers(1, 80),
    seed=st.integers(0, 99),
)
def test_the_cell_of_a_place_holds_it_and_depends_on_it_alone(kind, d, number, seed):
    rng = np.random.default_rng(seed)
    X = spread(kind, 300, d, rng)
    cells = Cells(X[::4], number)
    low, high = cells.box
    places = np.concatenate([X, rng.uniform(low - 1, high + 1, (50, d))])
    names = cells.of(places)
    for name in np.unique(names):
        low_edge, high_edge = cells.bounds(int(name))
        own = np.clip(places[names == name], low, high)
        assert np.all((own >= low_edge) & (own <= high_edge))
    few = rng.permutation(len(places))[:7]
    np.testing.assert_array_equal(cells.of(places[few]), names[few])
    assert len(cells.of(places[:0])) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_place_is_served_by_the_rows_nearest_to_it(kind, d):
    """Where every row is a landmark; fewer may miss a row far from those of its block."""
    rng = np.random.default_rng(d)
    X, lengths = spread(kind, 300, d, rng), rng.uniform(0.5, 2.0, d)
    X = X[np.argsort(X[:, 0])]
    blocks, scaled = X.reshape(15, 20, d), X / lengths
    for number in (1, 60, 200, 320):
        around = NearestRows(number, 300, lengths, blocks)
        for key, members in around.groups(None, X):
            parts = around.parts(key, lambda j: blocks[j])
            found = np.concatenate([20 * j + rows for j, rows in parts])
            assert len(np.unique(found)) == len(found) == min(number, 300)
            low, high = Cells(scaled, number).bounds(key[0])
            away = np.linalg.norm(np.maximum(np.maximum(low - scaled, scaled - high), 0), axis=1)
            assert not away[members].any()
            others = np.delete(away, found)
            # which of them is nearer is not asked where an edge is as near as the cell's middle
            assert away[found].max() <= 1.1 * others.min(initial=np.inf)


def test_columns_that_do_not_matter_do_not_cut_cells():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (200, 2))
    around = NearestRows(20, 200, np.array([1.0, np.inf]), X.reshape(10, 20, 2)[:, ::4])
    T = np.column_stack([np.full(30, 0.3), np.linspace(-50, 50, 30)])
    ((key, members),) = around.groups(None, T)
    assert len(members) == 30
    blocks = X.reshape(10, 20, 2)
    found = np.concatenate([20 * j + r for j, r in around.parts(key, lambda j: blocks[j])])
    away = np.abs(X[:, 0] - 0.3)
    assert away[found].max() < 2 * np.sort(away)[20]


def field(kind, n, d, kernel, noise, seed=0):
    """Rows of a draw from a GP, and places with its values."""
    rng = np.random.default_rng(seed)
    X = spread(kind, n + 200, d, rng)
    K = kernel(X) + 1e-9 * np.eye(len(X))
    f = np.linalg.cholesky(K) @ rng.standard_normal(len(X))
    y = f + np.sqrt(noise) * rng.standard_normal(len(X))
    return X[200:], y[200:], X[:200], f[:200]


@pytest.mark.parametrize(
    ("kind", "d", "scale"), [("log-normal", 2, 1.0), ("burst", 1, 0.003), ("lines", 2, 0.15)]
)
def test_uneven_rows_are_predicted_better_than_by_the_band_and_pic(kind, d, scale):
    kernel, noise = kernels.Matern32(scale), 0.01
    X, y, T, f = field(kind, 1_000, d, kernel, noise)
    settings = {
        "optimizer": None,
        "noise_variance": noise,
        "standardize": False,
        "n_support": 20,
        "block_rows": 50,
    }

    def error(model):
        return np.sqrt(np.mean((model.fit(X, y).predict(T) - f) ** 2))

    exact = error(ExactGP(kernel, optimizer=None, noise_variance=noise, standardize=False))
    found = error(LMA(kernel, **settings, predict_rows=128))
    band = error(LMA(kernel, **settings, neighbours="order"))
    pic = error(PIC(kernel, **settings))
    assert found <= 1.02 * min(band, pic)
    assert found <= 1.05 * exact


def uneven(predict_rows=40):
    rng = np.random.default_rng(3)
    X = spread("burst", 400, 2, rng)
    made = LMA(
        kernels.Matern32(0.2),
        optimizer=None,
        n_support=6,
        block_rows=25,
        predict_rows=predict_rows,
        standardize=False,
        noise_variance=0.01,
    )
    return made.fit(X, np.sin(5 * X[:, 0]) + X[:, 1]), X


def test_places_among_dense_and_sparse_rows_are_not_far():
    model, X = uneven()
    process.once.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(
            np.concatenate([X, 0.5 + 0.01 * np.random.default_rng(0).uniform(0, 1, X.shape)])
        )
    with pytest.warns(UserWarning, match="lie far from all training rows"):
        model.predict(np.array([[0.5, 0.5], [40.0, 0.5]]))


def test_predictions_do_not_depend_on_what_else_is_asked(tmp_path):
    model, _ = uneven()
    T = np.random.default_rng(1).uniform(-0.2, 1.2, (150, 2))
    wanted = model.predict(T, return_std=True)
    for step in (1, 40):
        lazily = model.predict(da.from_array(T, (step, -1)), return_std=True)
        for found, expected in zip(lazily, wanted, strict=True):
            np.testing.assert_allclose(found.compute(), expected, rtol=1e-9)
    model.save(str(tmp_path / "m.zarr"))
    forget()
    again = daskgp.load(str(tmp_path / "m.zarr")).predict(T, return_std=True)
    for found, expected in zip(again, wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_joint_covariance_over_cells_is_one():
    model, X = uneven()
    T = np.concatenate([X[:40], X[:10]])  # some twice
    _, covariance = model.predict(T, return_cov=True)
    np.testing.assert_allclose(covariance[:10, :10], covariance[40:, 40:], rtol=1e-7, atol=1e-9)
    assert np.linalg.eigvalsh(covariance).min() > -1e-8


def test_few_rows_and_rows_that_repeat():
    two = LMA(n_support=1, markov_order=0, predict_rows=5, optimizer=None)
    assert np.isfinite(two.fit(np.eye(2), np.arange(2.0)).predict(np.ones((1, 2)))).all()
    X = np.repeat(np.linspace(0, 1, 30), 10)[:, None]
    y = np.sin(5 * X[:, 0])
    settings = {"n_support": 4, "block_rows": 20, "optimizer": None, "noise_variance": 1e-3}
    found = LMA(kernels.RBF(0.5), **settings, predict_rows=45, dtype="float32").fit(X, y).predict(X)
    assert np.abs(found - y).max() < 0.05
