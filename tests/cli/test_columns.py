"""Columns beside the target that likelihoods take, from csv to csv."""

import numpy as np
import pytest
from sklearn.base import clone

import daskgp
from tests.commands import refused, succeed

pd = pytest.importorskip("pandas")


def test_counts_with_an_exposure_become_rates(tmp_path):
    rng = np.random.default_rng(0)
    X, people = rng.uniform(size=(60, 2)), rng.uniform(0.5, 40.0, 60).round(2)
    cases = rng.poisson(people * np.exp(0.5 * np.sin(6 * X[:, 0]))).astype(float)
    table = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "cases": cases, "people": people})
    table[:45].to_csv(tmp_path / "a.csv", index=False)
    table[45:].to_csv(tmp_path / "b.csv", index=False)
    table[["u", "v"]].to_csv(tmp_path / "places.csv", index=False)
    a, b, model = (tmp_path / name for name in ("a.csv", "b.csv", "m.zarr"))
    columns, store = ("--target", "cases", "--exposure", "people"), tmp_path / "a.zarr"
    settings = ("--model", "sgpr", "--set", "likelihood=poisson", "--set", "n_inducing=9")
    settings += ("--set", "optimizer=null")
    succeed("convert", a, store, *columns)
    succeed("fit", store, model, *settings)
    succeed("predict", model, tmp_path / "places.csv", tmp_path / "rates.csv")
    rates = pd.read_csv(tmp_path / "rates.csv")
    loaded = daskgp.load(str(model))
    mean = loaded.predict(X, include_noise=True)
    np.testing.assert_allclose(rates["cases_mean"], mean)
    arrays = X[:45], cases[:45]
    named = clone(loaded).fit(str(a), "cases", exposure="people")
    assert named.score(*arrays, exposure=people[:45]) == loaded.score(*arrays, exposure=people[:45])
    found = succeed("score", model, b, *columns)
    there = loaded.predict(X[45:], include_noise=True, exposure=people[45:])
    assert np.isclose(found["rmse"], np.sqrt(np.mean((cases[45:] - there) ** 2)))
    line = refused("score", model, b, "--target", "cases")
    assert "the rows of the fit had exposure, and these have none" in line
    succeed("convert", b, tmp_path / "b.zarr", *columns)
    assert succeed("update", model, tmp_path / "b.zarr", "--hold-hyperparameters")["total"] == 60
    line = refused("fit", a, tmp_path / "no.zarr", *columns, "--model", "sgpr")
    assert "exposure is given, and SGPR with likelihood='gaussian' does not take it" in line
