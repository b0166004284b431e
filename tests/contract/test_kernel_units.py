"""Numbers in a kernel are in the units of the data, in every method and by every way in."""

import logging
import shutil

import numpy as np
import pytest
import xarray as xr
from sklearn.base import clone

import daskgp
from daskgp import kernels
from daskgp.errors import SettingError
from daskgp.kernels import RBF, Linear, Matern32, Matern52, Periodic
from tests.contract import cases
from tests.golden.test_golden import STORES
from tests.golden.write import MODELS, load, rows
from tests.logs import warnings_in

every = pytest.mark.parametrize("name", cases.SETTINGS)
QUIET = {"progress": False}


def in_wide_units():
    X, y = cases.rows()
    return X * [40.0, 0.05] + 7.0, 30.0 * y + 200.0


@every
def test_numbers_come_back_as_they_were_written(name):
    X, y = in_wide_units()
    kernel = (kernels.RBF if name == "ssgp" else Matern32)((35.0, 0.04), variance=950.0)
    model = cases.fixed(name, kernel=kernel, max_iter=1).fit(X, y)
    found = np.exp(model.kernel_.log_parameters)
    written = {row.name: row.value for row in model.hyperparameters_}
    reported = [written[key] for key in kernel.parameter_names]
    np.testing.assert_allclose(reported, found, rtol=1e-12)
    if name not in cases.UNTRAINED or name == "cggp":
        np.testing.assert_allclose(found, (950.0, 35.0, 0.04), rtol=1e-9)


@pytest.mark.parametrize(
    "kernel",
    [
        Matern32((35.0, 0.04), variance=950.0),
        RBF(20.0, 900.0) + 3.0 * Linear(0.01),
        Periodic(0.8, 60.0, 900.0, active_dims=0) * Matern52(30.0, 1.3),
        RBF(30.0, 500.0, active_dims=0) + kernels.Constant(400.0) * RBF(0.03, 2.0, active_dims=1),
        "matern12(lengthscale=(35, 0.04), variance=950)",
    ],
    ids=str,
)
def test_the_exact_gp_is_dense_with_the_kernel_of_the_user(kernel):
    """The oracle knows no scaling: K is the kernel as it is written, at the rows as they are."""
    X, y = in_wide_units()
    T, noise = X[:7] + np.array([3.0, 0.01]), 45.0
    k = kernels.parse(kernel) if isinstance(kernel, str) else kernel
    model = daskgp.ExactGP(kernel, noise_variance=noise / y.var(), optimizer=None, **QUIET)
    mean, std = model.fit(X, y).predict(T, return_std=True)
    middle = X.mean(axis=0)  # linear kernels pass through it
    A, B = X - middle, T - middle
    cross, C = k(B, A), k(A) + noise * np.eye(len(A))
    np.testing.assert_allclose(mean, y.mean() + cross @ np.linalg.solve(C, y - y.mean()), rtol=1e-8)
    variance = k.diag(B) - (cross * np.linalg.solve(C, cross.T).T).sum(axis=1)
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-6)
    evidence = -0.5 * (
        (y - y.mean()) @ np.linalg.solve(C, y - y.mean()) + np.linalg.slogdet(2 * np.pi * C)[1]
    )
    assert model.log_marginal_likelihood() == pytest.approx(evidence, rel=1e-8)


def test_a_kernel_means_what_fixed_means():
    X, y = in_wide_units()
    written = daskgp.ExactGP(RBF(25.0, 800.0), fixed=["lengthscale", "variance"], **QUIET)
    told = daskgp.ExactGP(RBF(), fixed={"lengthscale": 25.0, "variance": 800.0}, **QUIET)
    for one in (written, told):
        rows = {row.name: row.value for row in one.fit(X, y).hyperparameters_}
        assert (rows["lengthscale"], rows["variance"]) == pytest.approx((25.0, 800.0))
    assert written.objective_ == pytest.approx(told.objective_, abs=0.05)
    with pytest.raises(SettingError, match="'variance', whose value the kernel leaves open"):
        daskgp.ExactGP(RBF(25.0), fixed="variance", **QUIET).fit(X, y)


def test_standardising_changes_nothing_of_what_a_kernel_means():
    X, y = in_wide_units()
    kernel, noise = RBF((30.0, 0.05), 900.0), 20.0
    plain = daskgp.SGPR(
        kernel, inducing=X[:9], noise_variance=noise, optimizer=None, standardize=False, **QUIET
    ).fit(X, y)
    scaled = daskgp.SGPR(
        kernel, inducing=X[:9], noise_variance=noise / y.var(), optimizer=None, **QUIET
    ).fit(X, y)
    for a, b in zip(plain.predict(X, True), scaled.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_variances_are_those_of_transformed_targets():
    X, y = cases.rows()
    model = daskgp.ExactGP(RBF(0.9, 0.6), target_transform="log", optimizer=None, **QUIET).fit(
        X, np.exp(y)
    )
    table = {row.name: row for row in model.hyperparameters_}
    assert table["variance"].value == pytest.approx(0.6)
    assert table["variance"].unit == "log(y)^2"


def test_lengths_on_the_sphere_are_km_and_those_beside_it_in_their_units():
    rng = np.random.default_rng(0)
    X = rng.uniform([-180, -80, 0], [180, 80, 9e3], (90, 3))
    y = 5 + 3 * np.sin(X[:, 2] / 800)
    model = daskgp.ExactGP(
        Matern32((900.0, 365.0), 7.0), geographic=(0, 1), optimizer=None, **QUIET
    ).fit(X, y)
    assert [row.value for row in model.hyperparameters_][:3] == pytest.approx([7.0, 900.0, 365.0])
    np.testing.assert_allclose(model.kernel_.lengthscale, (900.0, 365.0))


def test_shared_variances_of_targets_of_several_scales_are_shares_of_each(caplog):
    X, y = cases.rows()
    both = np.column_stack([y, 1e3 * y])
    with caplog.at_level(logging.INFO, "daskgp"):
        model = daskgp.ExactGP(RBF(0.8, 1.5), optimizer=None, **QUIET).fit(X, both)
    assert "variance of the kernel is taken in standardised units" in caplog.text
    again = daskgp.ExactGP(model.kernel_, optimizer=None, **QUIET).fit(X, both)
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-9)
    mean = model.predict(X)
    np.testing.assert_allclose(mean[:, 1], 1e3 * mean[:, 0], rtol=1e-6, atol=1e-6)


# -- what is left out ------------------------------------------------------------------------


def days(n=400, seed=0):
    """Rows of a yearly wave over twenty years, and the years that follow."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.choice(7_300, n, replace=False)).astype(float)
    y = np.sin(2 * np.pi * t / 365.25) + 0.1 * rng.standard_normal(n)
    known = t < 5_500
    return t[known, None], y[known], t[~known, None], y[~known]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", [daskgp.SGPR, daskgp.ExactGP, daskgp.LMA])
@pytest.mark.parametrize(
    "kernel",
    [
        Periodic(period=365.25) * Matern52(),
        "periodic(period=365.25) * matern52()",
        Periodic() * Matern52(),
        Periodic() + Matern32(),
    ],
    ids=str,
)
def test_the_recipe_for_seasons_forecasts(kind, kernel, caplog):
    X, y, T, truth = days()
    model = kind(kernel, **QUIET).fit(X, y)
    assert np.sqrt(np.mean((model.predict(T) - truth) ** 2)) < 0.13
    (period,) = [row.value for row in model.hyperparameters_ if "period" in row.name]
    assert period == pytest.approx(365.25, rel=0.003)
    assert not [line for line in warnings_in(caplog) if "longer than the data" in line]


@pytest.mark.slow
def test_short_and_two_periods_are_found():
    rng = np.random.default_rng(1)
    hours = np.sort(rng.uniform(0, 24 * 90, 600))[:, None]
    y = np.sin(2 * np.pi * hours[:, 0] / 24) + 0.5 * np.cos(2 * np.pi * hours[:, 0] / (24 * 7))
    y += 0.1 * rng.standard_normal(600)
    model = daskgp.SGPR(Periodic() + Periodic(), n_inducing=60, **QUIET).fit(hours, y)
    found = sorted(row.value for row in model.hyperparameters_ if "period" in row.name)
    assert found == pytest.approx([24.0, 168.0], rel=0.01)


@pytest.mark.slow
def test_a_wave_that_cancels_over_other_columns_is_found():
    rng = np.random.default_rng(4)
    X = rng.uniform(0, [100, 100, 2_000], (600, 3))
    y = np.sin(2 * np.pi * X[:, 2] / 365) * np.cos(X[:, 0] / 30) + 0.1 * rng.standard_normal(600)
    place, season = Matern32(active_dims=(0, 1)), Periodic(active_dims=2)
    model = daskgp.SGPR(place * season, n_inducing=90, max_iter=10, **QUIET).fit(X, y)
    (period,) = [row.value for row in model.hyperparameters_ if "period" in row.name]
    assert period == pytest.approx(365.0, rel=0.02)


@pytest.mark.parametrize("settings", [{"optimizer": None}, {"fixed": ["period"]}])
def test_a_period_longer_than_the_data_is_said(settings, caplog):
    X, y, *_ = days(300)
    daskgp.ExactGP(Periodic(period=20_000.0), **settings, **QUIET).fit(X, y)
    (said,) = [line for line in warnings_in(caplog) if "longer than the data" in line]
    assert said.startswith("period=2e+04 is longer than the data, which span 5")
    assert "of 'x0'" in said


def test_what_is_left_out_is_found_whatever_the_unit_of_the_target():
    X, y = in_wide_units()
    plain = daskgp.ExactGP(Matern32((35.0, 0.04)), fixed="lengthscale", **QUIET).fit(X, y)
    tiny = clone(plain).fit(X, 1e-9 * y)
    ratio = tiny.kernel_.variance / plain.kernel_.variance
    assert ratio == pytest.approx(1e-18, rel=1e-3)


def test_a_kernel_alone_is_a_plain_function():
    X = np.array([[0.0], [2.0]])
    assert RBF(2.0)(X)[0, 1] == pytest.approx(np.exp(-0.5))
    assert Periodic(period=4.0)(X)[0, 1] == pytest.approx(np.exp(-2.0))
    np.testing.assert_array_equal(Linear()(X), Linear(1.0)(X))
    for kernel in (RBF(), Periodic(), Linear(), kernels.Constant(), 2.0 * RBF() + Periodic()):
        assert kernels.from_dict(kernel.to_dict()) == kernel
        assert None not in kernel.resolve(np.ones(1), 1.0).log_parameters


# -- stores ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "method-exact", "method-sgpr", "method-lma", "two-targets-exact", "geographic-sgpr",
        "log-sgpr", "unscaled-sgpr", "sum-sgpr", "periodic-exact", "trend-exact", "weights-exact",
    ],
)  # fmt: skip
def test_a_model_of_an_earlier_version_is_fitted_again_as_it_was(name, tmp_path):
    shutil.unpack_archive(STORES[name], tmp_path)
    model = load(name, tmp_path)
    X, y, more = rows(MODELS[name][1])
    again = clone(model)
    if hasattr(model, "inducing_"):  # which later versions may choose otherwise
        again.set_params(inducing=model.inducing_, n_inducing=512)
    again.fit(X, y, **more)
    wanted, found = (one.predict(X[:9], return_std=True) for one in (model, again))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    equal = again.kernel_.log_parameters, model.kernel_.log_parameters
    np.testing.assert_allclose(*equal, rtol=1e-9, atol=1e-9)


def test_numbers_in_names_are_said_in_words():
    rng = np.random.default_rng(0)
    X = xr.Dataset({name: ("row", rng.uniform(0, 99, 40)) for name in ("x", "day")})
    X["day"].attrs["units"] = "days since 2000-01-01"
    y = np.sin(X["x"]).rename("t")
    both = kernels.Matern52(ard=True) + kernels.RBF(active_dims=["x"])
    told = daskgp.ExactGP(both, optimizer=None, progress=False).fit(X, y).hyperparameters_
    assert "parts of the kernel: 0 is matern52 (ard); 1 is rbf of x" in told.remarks
    assert "0.lengthscale[1] is that of day" in told.remarks


def test_the_part_of_places_on_the_globe_is_named_by_longitude_and_latitude():
    rng = np.random.default_rng(0)
    X = xr.Dataset({name: ("row", rng.uniform(0, 80, 40)) for name in ("day", "lon", "lat")})
    kernel = kernels.Matern32(active_dims=("lon", "lat")) * kernels.RBF(active_dims=("day",))
    model = daskgp.ExactGP(kernel, geographic=("lon", "lat"), optimizer=None, progress=False)
    told = model.fit(X, np.sin(X["day"]).rename("t")).hyperparameters_
    assert "parts of the kernel: 0 is matern32 of lon, lat; 1 is rbf of day" in told.remarks
