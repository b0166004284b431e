"""Numbers of joint targets that users give are in the units of the data, as those they see are."""

import numpy as np
import pandas as pd
import pytest

import daskgp
from daskgp import kernels
from daskgp.errors import SettingError
from daskgp.kernels import Coregion, Matern32, Matern52

PLACES, TARGETS = ["east", "north"], ["zinc", "cadmium"]


def metals(n=60, seed=0, share=0.6):
    """Places and two targets of very different units, of correlation 0.8, with gaps."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 6.0, size=(n, 2))
    K = Matern52(1.5)(X) + 1e-10 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.standard_normal((n, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    y = f * [10.0, 0.5] + [50.0, 2.0] + rng.standard_normal((n, 2)) * [1.0, 0.05]
    y[rng.uniform(size=n) > share, 1] = np.nan
    return pd.DataFrame(X, columns=PLACES), pd.DataFrame(y, columns=TARGETS)


def model(kernel="matern52()", **settings):
    return daskgp.ExactGP(kernel, targets="joint", progress=False, **settings)


def values(fitted):
    return {row.name: row.value for row in fitted.hyperparameters_}


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("column", ["target", 2])
def test_numbers_of_a_joint_kernel_are_those_of_the_data(standardize, column):
    X, y = metals()
    Z, noise = X[:9] + 0.1, {"noise_variance[zinc]": 1.4, "noise_variance[cadmium]": 0.003}
    B = np.array([[90.0, 4.0], [4.0, 0.3]])
    angle = [np.arccos(4.0 / np.sqrt(90.0 * 0.3))]
    kernel = Coregion(column, variance=(90.0, 0.3), angle=angle) * Matern32(1.3)
    own = {"standardize": standardize, "optimizer": None, "fixed": noise}
    fitted = model(kernel, **own).fit(X, y)
    k, known = Matern32(1.3), np.isfinite(y.to_numpy())
    at, of = np.nonzero(known)
    C = k(X.to_numpy())[np.ix_(at, at)] * B[np.ix_(of, of)]
    C += np.diag(np.array([1.4, 0.003])[of])
    left = (y - y.mean()).to_numpy()[known]
    cross = k(Z.to_numpy(), X.to_numpy())[:, at]
    mean, std = fitted.predict(Z, return_std=True)
    for j, name in enumerate(TARGETS):
        c = cross * B[j][of]
        np.testing.assert_allclose(mean[:, j], c @ np.linalg.solve(C, left) + y[name].mean())
        variance = B[j, j] - np.einsum("ij,ji->i", c, np.linalg.solve(C, c.T))
        np.testing.assert_allclose(np.asarray(std)[:, j], np.sqrt(variance), rtol=1e-6)
    found = values(fitted)
    assert found["0.variance[zinc]"] == pytest.approx(90.0)
    assert found["0.variance[cadmium]"] == pytest.approx(0.3)
    assert found["1.lengthscale"] == pytest.approx(1.3)
    assert found["noise_variance[cadmium]"] == pytest.approx(0.003)


def test_what_a_fit_shows_gives_the_same_model():
    X, y = metals()
    first = model().fit(X, y)
    found = values(first)
    kernel = first.kernel_
    assert kernel.parts[0].column == "target"
    assert kernel.parts[0].variance == pytest.approx(
        (found["0.variance[zinc]"], found["0.variance[cadmium]"])
    )
    noise = {name: value for name, value in found.items() if name.startswith("noise_variance")}
    again = model(kernel, optimizer=None, fixed=noise).fit(X, y)
    assert values(again) == pytest.approx(found)
    assert again.kernel_.parameter_names == kernel.parameter_names
    for a, b in zip(
        first.predict(X, return_std=True), again.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(a, b)


def test_kernel_on_the_sphere_has_the_name_of_the_target():
    X, y = metals()
    first = model(geographic=(0, 1), optimizer=None).fit(X, y)
    again = model(first.kernel_, geographic=(0, 1), optimizer=None).fit(X, y)
    assert first.kernel_.parts[0].column == "target"
    assert again.kernel_ == first.kernel_


@pytest.mark.parametrize(
    ("settings", "name", "low", "high"),
    [
        ({"limits": {"0.variance[zinc]": (20.0, 30.0)}}, "0.variance[zinc]", 20.0, 30.0),
        ({"fixed": {"0.variance[zinc]": 40.0}}, "0.variance[zinc]", 40.0, 40.0),
        ({"fixed": {"noise_variance[zinc]": 2.0}}, "noise_variance[zinc]", 2.0, 2.0),
        ({"limits": {"noise_variance[cadmium]": (4.0, 5.0)}}, "noise_variance[cadmium]", 4.0, 5.0),
        (
            {"prior": {"0.variance[cadmium]": "lognormal(0.1, sigma=0.001)"}},
            *("0.variance[cadmium]", 0.0995, 0.1005),
        ),
    ],
)
def test_what_is_said_of_one_target_is_in_its_units(settings, name, low, high):
    X, y = metals()
    fitted = model(max_iter=20, **settings).fit(X, y)
    assert low * (1 - 1e-6) <= values(fitted)[name] <= high * (1 + 1e-6)
    assert values(fitted)["1.variance"] == 1.0
    others = {row.name: row.standard_error for row in fitted.hyperparameters_}
    if "fixed" in settings:
        assert np.isnan(others[name])


def test_variances_that_are_all_fixed_are_those_of_the_product():
    X, y = metals()
    both = {"0.variance[zinc]": 40.0, "0.variance[cadmium]": 0.2}
    found = values(model(fixed=both, max_iter=20).fit(X, y))
    assert [found[name] for name in (*both, "1.variance")] == pytest.approx([40.0, 0.2, 1.0])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fixed": {"noise_variance": 1.0}}, r"name noise_variance\[zinc\] or noise_var"),
        ({"prior": {"noise_variance[zinc]": "lognormal(1, sigma=1)"}}, "limits="),
        ({"limits": {"variance": (1.0, 2.0)}}, r"among 0.*noise_variance\[cadmium\]$"),
        ({"limits": {"0.variance": (1.0, 2.0)}}, r"name 0.variance\[zinc\] or 0.variance\[cad"),
        ({"fixed": {"0.variance": 1.0}}, r"name 0.variance\[zinc\] or 0.variance\[cad"),
        ({"prior": {"0.variance": "lognormal(1, sigma=1)"}}, r"name 0.variance\[zinc\] or"),
        ({"kernel": "coregion('target') * rbf() + rbf(variance=2.0)"}, "leave the number out"),
        (
            {
                "fixed": {"noise_variance[zinc]": 1.0},
                "limits": {"noise_variance[zinc]": (1.0, 2.0)},
            },
            "has limits",
        ),
        ({"optimizer": None, "fixed": {"0.variance[zinc]": 1.0}}, "no effect"),
        ({"kernel": "coregion('target', variance=(1, 2, 3)) * rbf()"}, "levels"),
    ],
)
def test_what_has_no_unit_or_no_meaning_is_refused(settings, words):
    X, y = metals()
    with pytest.raises(SettingError, match=words):
        model(**settings).fit(X, y)


def test_limits_of_a_variance_that_targets_share_are_refused():
    X, y = metals()
    own = model("coregion('target') * rbf() + rbf()", limits={"1.variance": (1.0, 2.0)})
    with pytest.raises(SettingError, match=r"no unit.*standardize=False"):
        own.fit(X, y)


def test_variances_beside_a_text_feature_have_the_units_of_targets():
    X, y = metals()
    fitted = model(None, optimizer=None).fit(X.assign(lab=["a", "b"] * 30), y)
    units = {row.name: row.unit for row in fitted.hyperparameters_}
    assert units["1.variance[zinc]"] == "zinc^2"
    assert units["1.variance[cadmium]"] == "cadmium^2"
    assert "0.variance" not in units or units["0.variance"] in ("", "1")
    spread = np.nanstd(y.to_numpy(), axis=0)
    found = values(fitted)
    assert found["1.variance[zinc]"] == pytest.approx(spread[0] ** 2)
    places = X.assign(lab=["a", "b"] * 30)
    again = model(fitted.kernel_, optimizer=None).fit(places, y)
    np.testing.assert_allclose(again.predict(places), fitted.predict(places))


def test_history_has_the_noise_of_each_target():
    X, y = metals()
    fitted = model(max_iter=20).fit(X, y)
    last = fitted.history_[-1]
    assert "noise_variance" not in last
    own = [last[f"noise_variance[{name}]"] for name in TARGETS]
    np.testing.assert_allclose(own, fitted.noise_variance_, rtol=0.5)  # turns end untrained


def test_the_factor_of_joint_targets_carries_their_units():
    target = Coregion(3, levels=2)
    product = kernels.Categorical(2, levels=2) * target * Matern32()
    powers = dict(zip(product.parameter_names, product.units(4), strict=True))
    assert powers["1.variance[0]"].of_target == 2
    assert powers["0.variance"].of_target == powers["2.variance"].of_target == 0
    both = kernels.Coregion(2, levels=2) * target
    powers = dict(zip(both.parameter_names, both.units(4), strict=True))
    assert powers["0.variance[0]"].of_target == 0
    assert powers["1.variance[0]"].level == (3, 0)


def test_what_one_target_has_alone_is_told_without_another_error():
    X, y = metals()
    fitted = model(optimizer=None, mean="ols").fit(X, y)
    assert not hasattr(fitted, "likelihood_")
    assert "noise_variance_" in dir(fitted)
    with pytest.raises(AttributeError, match="noise_variance_ or hyperparameters_"):
        _ = fitted.likelihood_
    with pytest.raises(AttributeError, match="plane of least squares"):
        _ = fitted.trend_
