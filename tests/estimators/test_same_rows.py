"""What a process keeps of the rows of one model is never taken for those of another."""

import numpy as np
import pytest

import daskgp

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, (300, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.standard_normal(300)
OTHER = np.where(np.arange(300) // 100 == 1, -Y, Y)
PLACES = X[:5] + 0.01
KERNEL = "matern32(lengthscale=2, variance=1)"
FIXED = {"noise_variance": 0.01, "optimizer": None, "mean": "zero", "standardize": False}
ROWS = [
    (daskgp.VecchiaGP, {"n_neighbours": 299, "predict_neighbours": 300}),
    (daskgp.VecchiaGP, {"n_neighbours": 299, "predict_neighbours": 200}),
    (daskgp.VecchiaGP, {"n_neighbours": 299, "predict_neighbours": 300, "n_support": 20}),
    (daskgp.LMA, {"n_support": 20, "markov_order": 1}),
    (daskgp.PIC, {"n_support": 20}),
    (daskgp.ExpertsGP, {}),
]


def fit(form, y, **noise):
    cls, settings = form
    return cls(KERNEL, progress=False, **FIXED, **settings).fit(X, y, **noise)


@pytest.mark.parametrize("form", ROWS)
def test_models_of_the_same_places_with_other_targets_differ(form):
    one, other = fit(form, Y), fit(form, OTHER)
    assert one.solved_.token != other.solved_.token
    assert one.solved_.token == fit(form, Y).solved_.token
    np.testing.assert_allclose(fit(form, -Y).predict(PLACES), -one.predict(PLACES), rtol=1e-6)
    apart = np.abs(other.predict(X[100:200]) - one.predict(X[100:200]))
    assert np.median(apart) > 0.5


def test_other_noise_gives_other_predictions():
    form, w = ROWS[0], np.linspace(0.2, 3.0, 300)
    for errors in (w, 2 * w, w[::-1]):
        found = fit(form, Y, y_variance=errors).predict(PLACES, return_std=True)
        exact = daskgp.ExactGP(KERNEL, progress=False, **FIXED).fit(X, Y, y_variance=errors)
        np.testing.assert_allclose(found, exact.predict(PLACES, return_std=True), rtol=1e-6)


@pytest.mark.slow
def test_stored_models_and_updates_are_told_apart(tmp_path):
    form = ROWS[0]
    for name, y in (("a", Y), ("b", OTHER)):
        fit(form, y).save(str(tmp_path / f"{name}.zarr"))
    one, other = (daskgp.load(tmp_path / f"{name}.zarr") for name in "ab")
    assert one.solved_.token == fit(form, Y).solved_.token
    np.testing.assert_array_equal(one.predict(PLACES), fit(form, Y).predict(PLACES))
    np.testing.assert_array_equal(other.predict(PLACES), fit(form, OTHER).predict(PLACES))
    new = X[:50] + 0.5
    one.update(new, np.ones(50))
    again = daskgp.load(tmp_path / "a.zarr").update(new, np.zeros(50))
    assert np.abs(one.predict(new) - again.predict(new)).min() > 0.1
    one.save(str(tmp_path / "c.zarr"))
    loaded = daskgp.load(tmp_path / "c.zarr")
    assert loaded.solved_.token == one.solved_.token
    np.testing.assert_array_equal(loaded.predict(PLACES), one.predict(PLACES))
