"""Fits to transformed targets: every method's predictions, scores and stores are those of y."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from commands import dataset, invoke, succeed
from scipy import stats

import daskgp
from daskgp.errors import InputError, SettingError
from tests.contract import cases

with_spread = pytest.mark.parametrize(
    "name", [name for name in cases.SETTINGS if name not in cases.NO_SPREAD]
)
T = np.random.default_rng(5).uniform(0, 3, (9, 2))


def rows():
    X, y = cases.rows()
    return X, 5 * np.exp(y)


@pytest.mark.sampled
@with_spread
def test_the_logarithm_gives_log_normal_predictions_of_every_method(name):
    X, y = rows()
    plain = cases.fixed(name).fit(X, np.log(y))
    model = cases.fixed(name, target_transform="log").fit(X, y)
    for noise in (False, True):
        m, s = plain.predict(T, return_std=True, include_noise=noise)
        law = stats.lognorm(s, scale=np.exp(m))
        mean, std, found = model.predict(
            T, return_std=True, include_noise=noise, quantiles=(0.05, 0.5, 0.95)
        )
        np.testing.assert_allclose(mean, law.mean(), rtol=1e-9)
        np.testing.assert_allclose(std, law.std(), rtol=1e-7)
        np.testing.assert_allclose(found, law.ppf([[0.05], [0.5], [0.95]]).T, rtol=1e-7)
        np.testing.assert_allclose(model.predict(T, include_noise=noise), mean, rtol=1e-9)
        for limit in (-1.0, 0.0, 4.0):
            chance = model.predict_exceedance(T, limit, include_noise=noise)
            np.testing.assert_allclose(chance, law.sf(limit), atol=1e-9)
    if plain.objective_ is not None and name not in cases.STEPPED:
        wanted = plain.log_marginal_likelihood() - np.log(y).sum()
        assert model.log_marginal_likelihood() == pytest.approx(wanted, rel=1e-9)
    assert model.solved_.token != plain.solved_.token
    if model.solved_.method.why_no_paths() is None:
        paths, own = model.sample_paths(3), plain.sample_paths(3)
        np.testing.assert_allclose(paths(T), np.exp(own(T)), rtol=1e-7)
        lazy = paths(da.from_array(T, chunks=(4, 2)))
        np.testing.assert_array_equal(lazy.compute(), paths(T))


@pytest.fixture(scope="module")
def model():
    X, y = rows()
    return cases.fixed("sgpr", target_transform="boxcox").fit(X, np.column_stack([y, y**2]))


def test_lazy_and_labelled_predictions_are_those_of_arrays(model):
    mean, std, found = model.predict(T, return_std=True, quantiles=(0.1, 0.9))
    lazy = model.predict(da.from_array(T, chunks=(4, 2)), return_std=True, quantiles=(0.1, 0.9))
    for made, wanted in zip(lazy, (mean, std, found), strict=True):
        np.testing.assert_allclose(made.compute(), wanted, rtol=1e-9)
    axes = {"x0": np.linspace(0, 3, 4), "x1": np.linspace(0, 3, 3)}
    field = model.predict(xr.DataArray(np.zeros((4, 3)), axes), quantiles=(0.1, 0.9))[1]
    assert field.dims == ("x0", "x1", "target", "quantile")
    draws = model.sample_y(T, 4_000)
    np.testing.assert_allclose(draws.mean(axis=2), mean, rtol=0.05)
    np.testing.assert_allclose(np.quantile(draws, 0.9, axis=2), found[..., 1], rtol=0.08)
    values = model.sample_paths(2_000)(T)
    np.testing.assert_allclose(values.mean(axis=2), mean, rtol=0.05)
    assert values.shape == (9, 2, 2_000)


def test_scores_have_the_jacobian(tmp_path):
    X, y = rows()
    fitted = cases.fixed("sgpr", target_transform="log").fit(X, y)
    fitted.save(tmp_path / "model.zarr")
    dataset(tmp_path / "test.zarr", X, y)
    found = succeed("score", tmp_path / "model.zarr", tmp_path / "test.zarr")
    m, s = cases.fixed("sgpr").fit(X, np.log(y)).predict(X, return_std=True, include_noise=True)
    law = stats.lognorm(s, scale=np.exp(m))
    assert found["nlpd"] == pytest.approx(-law.logpdf(y).mean(), rel=1e-9)
    assert found["rmse"] == pytest.approx(np.sqrt(((y - law.mean()) ** 2).mean()), rel=1e-9)
    inside = (y >= law.ppf(0.025)) & (y <= law.ppf(0.975))
    assert found["coverage_95"] == pytest.approx(inside.mean())
    wanted = 1 - ((y - law.mean()) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert fitted.score(X, y) == pytest.approx(wanted, rel=1e-9)
    shown = invoke("info", tmp_path / "model.zarr").output
    assert "transform of targets" in shown
    assert "noise std, units of transformed y" in shown


def test_a_map_is_in_the_units_of_the_data(tmp_path):
    X, y = rows()
    fitted = cases.fixed("lma", target_transform="log").fit(X, y)
    grid = xr.Dataset(coords={"x0": np.linspace(0, 3, 4), "x1": np.linspace(0, 3, 3)})
    fitted.predict_store(
        grid, str(tmp_path / "m.zarr"), quantiles=(0.1, 0.9), exceedance=4.0, n_samples=2
    )
    field = xr.open_zarr(tmp_path / "m.zarr")
    mean, found = fitted.predict(grid, quantiles=(0.1, 0.9), include_noise=True)
    np.testing.assert_allclose(field["mean"].values, mean.values, rtol=1e-9)
    np.testing.assert_allclose(field["quantiles"].values, found.values, rtol=1e-9)
    chance = fitted.predict_exceedance(grid, 4.0, include_noise=True)
    np.testing.assert_allclose(field["exceedance"].values, chance.values, rtol=1e-9)
    np.testing.assert_array_equal(field["samples"].values, fitted.sample_paths(2)(grid).values)


def test_what_a_transform_does_not_take_is_refused():
    X, y = rows()
    bad = y.copy()
    bad[[3, 8]] = 0.0, -1.0
    for kind, count in (("log", 2), ("boxcox", 2), ("sqrt", 1)):
        with pytest.raises(InputError, match=f"'y' has others in {count} of 150 rows") as refusal:
            cases.fixed("sgpr", target_transform=kind).fit(X, bad)
        assert "\n" not in str(refusal.value)
    with pytest.raises(SettingError, match="target_transform"):
        cases.fixed("sgpr", target_transform="cube").fit(X, y)
    with pytest.raises(SettingError, match="y_variance is that of y"):
        cases.fixed("sgpr", target_transform="log").fit(X, y, y_variance=np.ones(len(y)))
    with pytest.raises(SettingError, match="likelihood"):
        daskgp.SVGP(likelihood="poisson", target_transform="log").fit(X, np.round(y))
    with pytest.raises(SettingError, match="partial_fit with target_transform='log'"):
        daskgp.SVGP(target_transform="log").partial_fit(X, y)
    fitted = cases.fixed("exact", target_transform="log").fit(X, y)
    for ask in (
        lambda: fitted.predict(T, return_cov=True),
        lambda: fitted.predict_average(T),
        lambda: fitted.predict(T, return_std=True, include_noise=True, y_variance=1.0),
    ):
        with pytest.raises(SettingError, match="target_transform='log'"):
            ask()
