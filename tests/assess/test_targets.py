"""Scores of each of several targets, beside those of all values together."""

import json

import numpy as np
import pytest
import zarr
from commands import invoke

import daskgp
from daskgp import metrics


def pair(n, seed=0):
    """Rows with two targets of very different units, the second with gaps."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    y = np.column_stack([np.sin(5 * X[:, 0]), 50 * np.cos(5 * X[:, 0])])
    y += rng.normal(size=y.shape) * [0.1, 5.0]
    y[::5, 1] = np.nan
    return X, y


@pytest.fixture(scope="module", params=["separate", "joint"])
def fitted(request):
    X, y = pair(60)
    known = slice(None) if request.param == "joint" else np.isfinite(y).all(axis=1)
    model = daskgp.ExactGP("matern52()", targets=request.param, optimizer=None, progress=False)
    return model.fit(X[known], y[known])


def test_score_has_those_of_each_target(fitted, tmp_path, make_store):
    X, y = pair(80, seed=1)
    mean, std = fitted.predict(X, return_std=True, include_noise=True)
    fitted.save(f"{tmp_path}/model.zarr")
    result = invoke("score", f"{tmp_path}/model.zarr", make_store(X, y, 30))
    said = json.loads(result.stdout)
    assert said["n"] == np.isfinite(y).sum()
    assert list(said["targets"]) == ["y0", "y1"]
    each = metrics.summary(y, mean, std**2, multioutput="raw_values")
    for j, own in enumerate(said["targets"].values()):
        for name in ("rmse", "mae", "nlpd", "crps", "n", "interval_score_95"):
            assert own[name] == pytest.approx(each[name][j], rel=1e-8)
    assert said["rmse"] == pytest.approx(metrics.rmse(y, mean))


def test_cross_validation_has_one_of_each_target(fitted, tmp_path):
    X, y = pair(60)
    y[:, 1][np.arange(60) >= 30] = np.nan
    held = str(tmp_path / "held")
    found = daskgp.cross_validate(
        daskgp.ExactGP("matern52()", targets="joint", optimizer=None, progress=False),
        *(X, y),
        groups=np.arange(60) % 2,
        folds=2,
        predictions=held,
    )
    assert (found.rows == sum(own.rows for own in found.targets.values())).all()
    mean = zarr.open_group(held)["mean"][:]
    for j, name in enumerate(("y0", "y1")):
        own, known = found.targets[name], np.isfinite(y[:, j])
        assert own.rows.sum() == known.sum()
        assert own.pooled["rmse"] == pytest.approx(metrics.rmse(y[:, j], mean[:, j]))
        assert own.mean["rmse"] == pytest.approx(np.mean(own.scores["rmse"]))
    assert "by target" in str(found)


def test_one_target_has_no_scores_of_targets(make_store):
    X, y = pair(40)
    model = daskgp.ExactGP(optimizer=None, progress=False)
    found = daskgp.cross_validate(model, X, y[:, 0], folds=2)
    assert found.targets == {}
    assert "target" not in str(found)
    checked = daskgp.check(model.fit(X, y[:, 0]), *[a[:20] for a in (X, y[:, 0])])
    assert checked.targets == {}
    assert "targets" not in checked.to_dict()


def test_a_fold_without_a_value_of_a_target_has_no_score_of_it():
    X, y = pair(60)
    y[30:, 1] = np.nan
    model = daskgp.ExactGP("matern52()", targets="joint", optimizer=None, progress=False)
    groups = np.where(np.arange(60) < 30, np.arange(60) % 2, 2)
    found = daskgp.cross_validate(model, X, y, groups=groups, folds=3)
    own = found.targets["y1"]
    assert (own.rows == 0).sum() == 1
    assert np.isnan(own.scores["rmse"][own.rows == 0]).all()
    assert np.isfinite(own.pooled["rmse"])


def test_check_has_those_of_each_target():
    X, y = pair(60)
    known = np.isfinite(y).all(axis=1)
    model = daskgp.ExactGP("matern52()", optimizer=None, progress=False).fit(X[known], y[known])
    X, y = pair(80, seed=1)
    mean = model.predict(X)
    found = daskgp.check(model, X, y)
    for j, own in enumerate(found.targets.values()):
        seen = np.isfinite(y[:, j])
        assert own["n"] == seen.sum()
        assert own["rmse"] == pytest.approx(metrics.rmse(y[:, j], mean[:, j]))
        assert own["r2"] == pytest.approx(1.0 - metrics.nmse(y[:, j], mean[:, j]))
    assert found.to_dict()["targets"] == found.targets
    assert "by target" in str(found)
