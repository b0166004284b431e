"""Rows whose targets have names: matched by these, in whatever order they are given."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from commands import succeed
from scipy.stats import norm

import daskgp
from daskgp.errors import InputError, SettingError
from daskgp.plot import places

PLACES, TARGETS = ["east", "north"], ["zinc", "cadmium"]


def table(n=50, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(size=(n, 2)), columns=PLACES)
    f = np.sin(5 * X.east) + X.north
    y = {"zinc": 50 + 10 * f, "cadmium": 2 + 0.5 * f}
    noisy = pd.DataFrame(y) + rng.normal(size=(n, 2)) * [1.0, 0.05]
    noisy.loc[::3, "cadmium"] = np.nan
    return X, noisy


def joint(**settings):
    X, y = table()
    own = {"targets": "joint", "optimizer": None, "progress": False, **settings}
    return daskgp.SGPR("matern52(0.5)", n_inducing=20, **own).fit(X, y)


@pytest.fixture(scope="module")
def model():
    return joint()


def labelled(y):
    return xr.DataArray(y.to_numpy(), dims=("row", "name"), coords={"name": [*y.columns]})


@pytest.mark.parametrize("targets", ["joint", "separate"])
def test_targets_in_another_order_have_the_same_score(targets):
    model, (X, y) = joint(targets=targets), table(seed=1)
    wanted = model.score(X, y)
    errors = pd.DataFrame(np.full(y.shape, 1.0) * [2.0, 0.01], columns=["a", "b"])
    assert model.score(X, y[TARGETS[::-1]]) == wanted
    with_errors = model.score(X, y, y_variance=errors.to_numpy())
    swapped = {"y_variance": errors.to_numpy()[:, ::-1]}
    assert model.score(X, y[TARGETS[::-1]], **swapped) == with_errors
    found, other = daskgp.check(model, X, y), daskgp.check(model, X, y[TARGETS[::-1]])
    assert found.to_dict() == other.to_dict()


def test_targets_of_labelled_tables_and_stores_are_matched(model, make_store):
    X, y = table(seed=1)
    wanted = model.score(X, y)
    as_array = xr.DataArray(X.to_numpy(), dims=("row", "feature"), coords={"feature": PLACES})
    assert model.score(as_array, labelled(y[TARGETS[::-1]])) == wanted
    names = {"feature_names": PLACES, "target_names": TARGETS[::-1]}
    stored = daskgp.open_dataset(make_store(X, y[TARGETS[::-1]], 20, **names))
    assert model.score(*stored) == pytest.approx(wanted, rel=1e-12)
    found = daskgp.check(model, *stored).targets
    for name, own in daskgp.check(model, X, y).targets.items():
        assert found[name] == pytest.approx(own, abs=1e-9)
    with pytest.raises(InputError, match="convert the source with --target zinc,cadmium"):
        joint().update(*stored)


def test_some_of_the_targets_are_scored(model):
    X, y = table(seed=1)
    mean = model.predict(X)[:, 0]
    zinc = 1 - ((y.zinc - mean) ** 2).mean() / y.zinc.var(ddof=0)
    for given in (y[["zinc"]], y.zinc, y.assign(cadmium=np.nan), labelled(y[["zinc"]])):
        places = X if not isinstance(given, xr.DataArray) else xr.DataArray(
            X.to_numpy(), dims=("row", "feature"), coords={"feature": PLACES}
        )  # fmt: skip
        assert model.score(places, given) == pytest.approx(zinc)
    found = daskgp.check(model, X, y[["zinc"]])
    assert found.n == len(X)
    assert found.targets["zinc"]["n"] == len(X)
    weight = np.ones(len(X))
    assert model.score(X, y[["zinc"]], weight) == pytest.approx(zinc)


def test_update_loo_and_forget_take_targets_by_name():
    X, y = table(seed=2)
    one, other = joint(), joint()
    one.update(X, y)
    other.update(X, y[TARGETS[::-1]])
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    one.forget(X, y)
    other.forget(X, y[TARGETS[::-1]])
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    fitted, (X, y) = joint(), table()
    for a, b in zip(fitted.loo(X, y), fitted.loo(X, y[TARGETS[::-1]]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_names_and_numbers_are_refused(model):
    X, y = table(seed=1)
    other = y.rename(columns={"cadmium": "lead"})
    for ask in (model.score, model.loo, model.update, model.forget):
        with pytest.raises(InputError, match="zinc, lead, but the model was fitted with zinc, cad"):
            ask(X, other)
    with pytest.raises(InputError, match="zinc, lead, but the model"):
        daskgp.check(model, X, other)
    with pytest.raises(InputError, match="y has 1 target, but the model was fitted with 2: zinc"):
        model.score(X, y.zinc.to_numpy())
    assert model.score(X, y.to_numpy()) == model.score(X, y)


@pytest.mark.parametrize("targets", ["joint", "separate"])
def test_each_target_has_a_threshold_of_its_own(targets, tmp_path):
    model, (X, _) = joint(targets=targets), table(seed=1)
    mean, std = map(np.asarray, model.predict(X, return_std=True))
    limits = np.array([55.0, 2.2])
    for given in (limits, [55.0, 2.2], (55, 2.2)):
        found = model.predict_exceedance(X, given)
        np.testing.assert_allclose(found, norm.sf(limits, mean, std), atol=1e-12)
    lazily = da.from_array(X.to_numpy(), chunks=(20, 2))
    np.testing.assert_allclose(model.predict_exceedance(lazily, limits), found, atol=1e-8)
    grid, url = model.make_grid({"east": 0.5, "north": 0.5}), str(tmp_path / "map.zarr")
    model.predict_store(grid, url, exceedance=[55.0, 2.2])
    assert model.is_predicted(grid, url, exceedance=(55.0, 2.2))
    above = xr.open_zarr(url).exceedance
    assert above.attrs["threshold"] == [55.0, 2.2]
    both = model.predict_exceedance(grid, limits, include_noise=True)
    np.testing.assert_allclose(above.values, both.values, atol=1e-12)
    titles = [*places.panels_of(xr.open_zarr(url)[["exceedance"]])]
    assert titles == ["zinc probability above 55", "cadmium probability above 2.2"]
    for wrong in (*[55.0] * (targets == "joint"), [55.0], [1.0, 2.0, 3.0]):
        with pytest.raises(SettingError, match="zinc, cadmium: give one for each"):
            model.predict_exceedance(X, wrong)
    with pytest.raises(SettingError, match="finite"):
        model.predict_exceedance(X, [1.0, np.nan])


def test_the_command_takes_targets_by_name(model, tmp_path):
    X, y = table(seed=1)
    model.save(str(tmp_path / "m.zarr"))
    pd.concat([X, y], axis=1).to_csv(tmp_path / "t.csv", index=False)
    known = succeed("info", str(tmp_path / "m.zarr"), "--json")
    assert known["values"] == model.n_rows_
    assert "rows" not in known

    def scored(target):
        given = str(tmp_path / "m.zarr"), str(tmp_path / "t.csv")
        return succeed("score", *given, "--target", target)["targets"]

    wanted = daskgp.check(model, X, y).targets
    both = scored("cadmium,zinc")
    for name in TARGETS:
        assert both[name]["rmse"] == pytest.approx(wanted[name]["rmse"], rel=1e-6)
    assert scored("zinc")["zinc"] == pytest.approx(both["zinc"])
    grid = str(tmp_path / "g.zarr")
    steps = "--resolution", "east=0.5,north=0.5", "--exceedance", "55,2.2"
    succeed("predict", str(tmp_path / "m.zarr"), grid, *steps)
    assert xr.open_zarr(grid).exceedance.attrs["threshold"] == [55.0, 2.2]
