"""Trends that are integrated over: universal kriging, of every method that takes a trend."""

import dataclasses

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import dataset, invoke
from sklearn.base import clone

import daskgp
from daskgp import kernels
from daskgp.cli.settings import build_estimator
from daskgp.errors import InputError, SettingError
from tests import oracle
from tests.contract import cases

every = pytest.mark.parametrize("name", cases.TRENDED)
T = np.random.default_rng(5).uniform(-2, 6, (9, 2))
RAW = {"standardize": False}
EXACTLY = {
    "exact": {},
    "sgpr": {"inducing": cases.rows()[0], "n_inducing": 512},
    "lma": {"markov_order": 4},
    "pic": {"block_rows": 150},
    "vecchia": {"n_neighbours": 150, "predict_neighbours": 150},
}
"""Settings at which a method is the exact GP."""


def functions(X, columns=(0, 1)):
    return np.column_stack([np.ones(len(X)), X[:, list(columns)]])


def slanted():
    X, y = cases.rows()
    return X, y + 20 + X @ [5.0, -3.0]


def universal(C, H, k, h, prior, y):
    """Mean, covariance, coefficients and their covariance by the textbook, dense."""
    G = np.linalg.inv(H.T @ np.linalg.solve(C, H))
    b = G @ H.T @ np.linalg.solve(C, y)
    apart = h - k @ np.linalg.solve(C, H)
    mean = h @ b + k @ np.linalg.solve(C, y - H @ b)
    return mean, prior - k @ np.linalg.solve(C, k.T) + apart @ G @ apart.T, b, G


def contrasts(C, H, y):
    """Log density of orthonormal contrasts of the targets, which have no trend."""
    A = np.linalg.qr(H, mode="complete")[0][:, H.shape[1] :]
    return oracle.evidence(A.T @ C @ A, A.T @ y, 0.0)


def test_these_methods_take_a_trend():
    assert {"sgpr", "lma", "pic", "vecchia", "ssgp", "exact"} <= {*cases.TRENDED}


@pytest.mark.parametrize("name", sorted(set(cases.SETTINGS) - set(cases.TRENDED)))
@pytest.mark.parametrize("mean", ["linear", ["x0"]])
def test_other_methods_refuse_one_in_a_line_that_names_the_alternatives(name, mean):
    with pytest.raises(SettingError, match=r"choose mean='ols'.*a fitted regressor, or") as refusal:
        cases.fixed(name, mean=mean).fit(*cases.rows())
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", EXACTLY)
@pytest.mark.parametrize(("mean", "columns"), [("linear", (0, 1)), (["x1"], (1,)), ([], ())])
def test_an_exact_method_is_universal_kriging(name, mean, columns):
    (X, y), k, s = slanted(), cases.KERNEL, 0.1
    model = cases.fixed(name, mean=mean, **RAW, **EXACTLY[name]).fit(X, y)
    C, H, h = k(X) + s * np.eye(len(X)), functions(X, columns), functions(T, columns)
    found = universal(C, H, k(T, X), h, k(T), y)
    mean, covariance = model.predict(T, return_cov=True)
    np.testing.assert_allclose(mean, found[0], rtol=1e-6)
    np.testing.assert_allclose(covariance, found[1], rtol=1e-6, atol=1e-6)
    std = model.predict(T, return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(std**2, np.diag(found[1]) + s, rtol=1e-6)
    np.testing.assert_allclose([row.value for row in model.trend_], found[2], rtol=1e-6)
    errors = [row.standard_error for row in model.trend_]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(found[3])), rtol=1e-6)
    wanted = contrasts(C, H, y[:, None])
    assert model.log_marginal_likelihood() == pytest.approx(wanted, rel=1e-6)


def test_sparse_methods_are_universal_kriging_of_their_own_covariance():
    (X, y), s = slanted(), 0.1
    H, h = functions(X), functions(T)
    model = cases.fixed("sgpr", mean="linear", **RAW).fit(X, y)
    k, Z = model.solved_.theta.kernel, model.inducing_
    Q = oracle.nystrom(k, np.concatenate([X, T]), Z, 1e-8)
    C, K = Q[:150, :150] + s * np.eye(150), Q[150:, :150]
    mean, covariance, b, _ = universal(C, H, K, h, k(T), y)
    found = model.predict(T, return_cov=True)
    np.testing.assert_allclose(found[0], mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], covariance, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose([row.value for row in model.trend_], b, rtol=1e-6)
    gap = (k.diag(X).sum() - np.trace(Q[:150, :150])) / 2 / s
    assert model.objective_ == pytest.approx(contrasts(C, H, y[:, None]) - gap, rel=1e-8)
    model = cases.fixed("ssgp", mean="linear", **RAW).fit(X, y)
    phases = np.concatenate([X, T]) @ model.frequencies_.T
    Phi = np.sqrt(model.kernel_.variance / 10) * np.hstack([np.cos(phases), np.sin(phases)])
    C, K = Phi[:150] @ Phi[:150].T + s * np.eye(150), Phi[150:] @ Phi[:150].T
    mean, covariance, _, _ = universal(C, H, K, h, Phi[150:] @ Phi[150:].T, y)
    found = model.predict(T, return_cov=True)
    np.testing.assert_allclose(found[0], mean, rtol=1e-8)
    np.testing.assert_allclose(found[1], covariance, rtol=1e-6, atol=1e-8)
    assert model.objective_ == pytest.approx(contrasts(C, H, y[:, None]), rel=1e-8)


def test_it_is_the_limit_of_ever_wider_priors_of_the_coefficients():
    (X, y), k, s = slanted(), cases.KERNEL, 0.1
    mean, std = cases.fixed("exact", mean="linear", **RAW).fit(X, y).predict(T, return_std=True)
    apart = []
    for V in (1e2, 1e4, 1e6):
        wide = [k(A, B) + V * functions(A) @ functions(B).T for A, B in ((X, X), (T, X), (T, T))]
        found = oracle.posterior(*wide, y[:, None], s)
        errors = found[0][:, 0] - mean, np.sqrt(np.diag(found[1])) - std
        apart.append(np.abs(errors).max(axis=1))
    assert (apart[1] < 0.02 * apart[0]).all()
    assert (apart[2] < 0.02 * apart[1]).all()


@every
def test_another_trend_of_the_targets_moves_predictions_by_it_alone(name):
    X, y = cases.rows()
    b = [100.0, 7.0, -4.0]
    plain, moved = (
        cases.fixed(name, mean="linear", **RAW).fit(X, z) for z in (y, y + functions(X) @ b)
    )
    mean, std = plain.predict(T, return_std=True)
    found = moved.predict(T, return_std=True)
    np.testing.assert_allclose(found[0], mean + functions(T) @ b, rtol=1e-9)
    np.testing.assert_allclose(found[1], std, rtol=1e-9)
    assert moved.objective_ == pytest.approx(plain.objective_, rel=1e-9)
    values, other = ([row.value for row in model.trend_] for model in (plain, moved))
    np.testing.assert_allclose(other, np.add(values, b), rtol=1e-9)


@every
def test_units_of_columns_do_not_matter(name):
    X, y = slanted()
    model = cases.fixed(name, mean="linear", kernel=_ard(name)).fit(X, y)
    unit = np.array([1e-6, 1e4])
    kernel = cases.in_units(_ard(name), unit, 1e-3)
    other = cases.fixed(name, mean="linear", kernel=kernel).fit(X * unit + 10 * unit, 1e-3 * y)
    for a, b in zip(
        other.predict(T * unit + 10 * unit, return_std=True),
        model.predict(T, return_std=True),
        strict=True,
    ):
        np.testing.assert_allclose(1e3 * a, b, rtol=1e-6)
    errors = np.array([row.standard_error for row in model.trend_][1:])
    again = np.array([row.standard_error for row in other.trend_][1:])
    np.testing.assert_allclose(again * unit * 1e3, errors, rtol=1e-6)


def _ard(name):
    return kernels.RBF((0.8, 0.8)) if name == "ssgp" else cases.KERNEL


@every
def test_several_targets_have_trends_of_their_own(name):
    X, y = slanted()
    both = np.column_stack([y, np.cos(X[:, 1]) - 30 * X[:, 0]])
    # a variance would be a share of each target's
    shared = dataclasses.replace(_ard(name), variance=None)
    model = cases.fixed(name, mean=["x0"], kernel=shared).fit(X, both)
    mean, cov = model.predict(T, return_cov=True)
    for j in range(2):
        alone = cases.fixed(name, mean=["x0"], kernel=shared).fit(X, both[:, j])
        for a, b in zip(alone.predict(T, return_cov=True), (mean[:, j], cov[..., j]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
        rows = [row for row in model.trend_ if row.name.endswith(f" of y{j}")]
        for a, b in zip(alone.trend_, rows, strict=True):
            assert a[1:3] == pytest.approx(b[1:3], rel=1e-7)


@every
def test_rows_with_their_own_noise_weigh_by_it(name):
    X, y = slanted()
    e = np.random.default_rng(1).uniform(0.01, 2.0, len(y))
    model = cases.fixed(name, mean="linear", **RAW).fit(X, y, y_variance=e)
    if name in ("lma", "pic"):
        model = cases.fixed(name, mean="linear", **RAW, **EXACTLY[name]).fit(X, y, y_variance=e)
    assert len(model.trend_) == 3
    if name in ("exact", "lma", "pic"):
        k = cases.KERNEL
        C = k(X) + np.diag(0.1 + e)
        mean, covariance, _, G = universal(C, functions(X), k(T, X), functions(T), k(T), y)
        found = model.predict(T, return_std=True)
        np.testing.assert_allclose(found[0], mean, rtol=1e-6)
        np.testing.assert_allclose(found[1] ** 2, np.diag(covariance), rtol=1e-6)
        errors = [row.standard_error for row in model.trend_]
        np.testing.assert_allclose(errors, np.sqrt(np.diag(G)), rtol=1e-6)
    if name == "exact":  # a row of weight 2 is the same row twice, by its least squares too
        twice = cases.fixed(name, mean="linear", **RAW).fit(
            np.concatenate([X, X[:50]]), np.concatenate([y, y[:50]])
        )
        weighed = cases.fixed(name, mean="linear", **RAW).fit(
            X, y, sample_weight=np.where(np.arange(150) < 50, 2.0, 1.0)
        )
        for a, b in zip(twice.trend_, weighed.trend_, strict=True):
            assert a[1:3] == pytest.approx(b[1:3], rel=1e-8)


def test_slopes_are_per_unit_and_those_of_transformed_targets_are_theirs():
    when = pd.date_range("2020", periods=30)
    coords = {"t": when, "h": ("t", np.arange(30.0) ** 0.5, {"units": "m"})}
    y = xr.DataArray(5.0 + np.sin(np.arange(30.0)), coords, ("t",), "rain", {"units": "mm"})
    X = y.reset_coords("h").drop_vars("rain").expand_dims(place=1)
    y = y.drop_vars("h").expand_dims(place=1)
    settings = {"kernel": "rbf()", "mean": "linear", "optimizer": None}
    plain = daskgp.ExactGP(**settings).fit(X, y)
    units = {row.name: row.unit for row in plain.trend_}
    assert units == {"intercept": "mm", "t": "mm/days", "h": "mm/m"}
    transformed = daskgp.ExactGP(target_transform="log", **settings).fit(X, y)
    units = [row.unit for row in transformed.trend_]
    assert units == ["log(rain)", "log(rain)/days", "log(rain)/m"]


@every
def test_a_stored_trend_has_its_table_averages_and_paths(name, tmp_path):
    model = cases.fixed(name, mean=["x1"]).fit(*slanted())
    model.save(tmp_path / "model.zarr")
    loaded = daskgp.load(tmp_path / "model.zarr")
    assert loaded.solved_.token == model.solved_.token
    assert str(loaded.trend_) == str(model.trend_)
    np.testing.assert_array_equal(loaded.predict_average(T), model.predict_average(T))
    np.testing.assert_array_equal(loaded.sample_paths(2)(T), model.sample_paths(2)(T))
    dataset(tmp_path / "in.zarr", T, np.zeros(len(T)))
    loaded.predict_store(str(tmp_path / "in.zarr"), str(tmp_path / "out.zarr"))
    found = zarr.open_group(tmp_path / "out.zarr", mode="r")["mean"][...]
    np.testing.assert_allclose(found.ravel(), model.predict(T), rtol=1e-8)


@every
def test_averages_have_the_uncertainty_of_the_trend(name):
    model = cases.fixed(name, mean="linear").fit(*slanted())
    mean, cov = model.predict(T, return_cov=True)
    found = model.predict_average(T)
    assert found == pytest.approx((mean.mean(), np.sqrt(cov.mean())), rel=1e-8)


@every
def test_sample_paths_have_the_uncertainty_of_the_trend(name):
    X, y = slanted()
    model = cases.fixed(name, mean="linear").fit(X, y)
    mean, cov = model.predict(T, return_cov=True)
    paths = model.sample_paths(400)
    drawn, std = paths(T), np.sqrt(np.diag(cov))
    away = np.abs(drawn.mean(axis=1) - mean) / std * np.sqrt(400)
    assert away.max() < 4.5
    np.testing.assert_allclose(drawn.std(axis=1), std, rtol=0.2)
    lazy = paths(da.from_array(T, chunks=(4, 2)))
    np.testing.assert_array_equal(lazy.compute(), drawn)


def test_training_maximises_the_evidence_of_contrasts():
    X, y = slanted()
    free = cases.make("exact", mean="linear", max_iter=40, tol=1e-3).fit(X, y)
    kernel, noise = free.kernel_, free.noise_variance_
    near = [(kernel, factor * noise) for factor in (0.9, 1.1)]
    for step in 0.1 * np.eye(3):
        for sign in (-1, 1):
            near.append((kernel.with_log_parameters(kernel.log_parameters + sign * step), noise))
    for other, s in near:
        at = cases.fixed("exact", mean="linear", kernel=other, noise_variance=s).fit(X, y)
        assert at.objective_ < free.objective_ + 1e-6


def test_dates_and_places_keep_the_units_that_they_are_given_in():
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(170, 190, 150), rng.uniform(-10, 10, 150)
    X = pd.DataFrame({"lon": lon, "lat": lat})
    y = pd.Series(2.0 * lat + 0.5 * lon + 0.1 * rng.standard_normal(150), name="t")
    settings = {"kernel": kernels.Matern32(500.0), "geographic": ("lon", "lat")}
    for name in ("exact", "sgpr", "lma"):
        model = cases.fixed(name, mean=["lat", "lon"], **settings).fit(X, y)
        found = {row.name: row for row in model.trend_}
        assert found["lat"].value == pytest.approx(2.0, abs=3 * found["lat"].standard_error)
        assert found["lon"].value == pytest.approx(0.5, abs=3 * found["lon"].standard_error)
        assert found["lat"].unit == "t/lat"
        assert model.predict(X).std() == pytest.approx(y.std(), rel=0.05)
        assert np.isfinite(model.sample_paths(2)(X)).all()


def test_units_of_slopes_are_those_of_differences_of_times():
    axes = {"time": pd.date_range("2020-01-01", periods=20), "x": np.linspace(0, 3, 8)}
    y = xr.DataArray(np.add.outer(0.5 * np.arange(20.0), np.sin(axes["x"])), axes, name="sst")
    y.attrs["units"], y["x"].attrs["units"] = "m s-1", "km"
    model = cases.fixed("exact", mean="linear").fit(y, y)
    units = [row.unit for row in model.trend_]
    assert units == ["m s-1", "(m s-1)/days", "(m s-1)/km"]
    logs = cases.fixed("exact", mean="linear", target_transform="log").fit(y, y + 3)
    assert next(iter(logs.trend_)).unit == "log(sst)"


def test_a_grid_is_predicted_with_its_trend():
    model = cases.fixed("lma", mean=["x0"]).fit(*slanted())
    axes = {"x0": np.linspace(0, 3, 4), "x1": np.linspace(0, 3, 3)}
    field = model.predict(xr.DataArray(np.zeros((4, 3)), axes))
    places = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(field.values.ravel(), model.predict(places), rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every
def test_columns_that_say_nothing_new_are_left_out(name, dtype):
    X, y = slanted()
    more = np.column_stack([X, np.full(len(X), 7.0), X[:, 0] - 2 * X[:, 1]])
    kernel = kernels.RBF(0.8, active_dims=(0, 1)) if name == "ssgp" else None
    kernel = kernel or kernels.Matern32(0.8, variance=1.2, active_dims=(0, 1))
    if name == "ssgp":
        more, kernel = more[:, :3], kernels.RBF(0.8)
    wide = np.column_stack([T, np.full(len(T), 7.0), T[:, 0] - 2 * T[:, 1]])[:, : more.shape[1]]
    found = cases.fixed(name, mean="linear", kernel=kernel, dtype=dtype).fit(more, y)
    wanted = cases.fixed(name, mean=["x0", "x1"], kernel=kernel, dtype=dtype).fit(more, y)
    loose = 1e-3 if dtype == "float32" else 1e-6
    for a, b in zip(
        found.predict(wide, return_std=True), wanted.predict(wide, return_std=True), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=loose)
    assert "x2" not in {row.name for row in found.trend_}


def test_a_transform_goes_together_with_a_trend():
    X, y = slanted()
    log = cases.fixed("sgpr", mean="linear", target_transform="log").fit(X, np.exp(0.1 * y))
    plain = cases.fixed("sgpr", mean="linear").fit(X, 0.1 * y)
    mean, std = plain.predict(T, return_std=True)
    np.testing.assert_allclose(log.predict(T), np.exp(mean + std**2 / 2), rtol=1e-8)
    assert log.trend_[1].unit == "log(y)/x0"


def test_means_that_are_none_are_refused():
    X, y = cases.rows()
    for mean, says in (
        (["x0", "lat"], "mean names 'lat', but the columns of X are 'x0, x1': name"),
        (["x0", "x0"], "names 'x0' twice"),
        (["x00"], "mean names 'x00', but the columns of X are 'x0, x1': did you mean 'x0'. Name"),
        ("x0", r"choose one of .* a list of columns of X for a trend, such as mean=\['x0'\], or"),
        ("lineer", "mean='lineer': did you mean 'linear'. Choose one of 'zero', 'constant', 'li"),
        (7, "mean=7: give"),
        ([0], r"mean=\[0\]: give"),
    ):
        with pytest.raises(SettingError, match=says) as refusal:
            cases.fixed("sgpr", mean=mean).fit(X, y)
        assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match="3 usable rows do not determine a trend of 3 functions"):
        cases.fixed("exact", mean="linear").fit(X[:3], y[:3])
    model = cases.fixed("exact").fit(X, y)
    assert not hasattr(model, "trend_")
    assert clone(cases.make("sgpr", mean=["x0"])).mean == ["x0"]


def test_a_store_of_an_earlier_version_stays_least_squares(tmp_path):
    X, y = slanted()
    model = cases.fixed("sgpr", mean="ols").fit(X, y)
    model.mean, model._settings_of_fit = "linear", None  # its name then
    model.save(tmp_path / "model.zarr")
    loaded = daskgp.load(tmp_path / "model.zarr")
    assert loaded.mean == "ols"
    np.testing.assert_array_equal(loaded.predict(T), model.predict(T))


def test_the_command_takes_and_shows_a_trend(tmp_path):
    X, y = slanted()
    dataset(tmp_path / "data.zarr", X, y)
    assert build_estimator("exact", ["mean=ols"], mean="x1").mean == ["x1"]
    assert invoke("plan", tmp_path / "data.zarr", "--model", "lma", "--mean", "x1").exit_code == 0
    for mean, says in (("y", "mean names 'y'"), ("linear", "choose mean='ols'")):
        model = "svgp" if mean == "linear" else "lma"
        failed = invoke("plan", tmp_path / "data.zarr", "--model", model, "--mean", mean)
        assert failed.exit_code == 2
        assert says in failed.output
    fitted = cases.fixed("exact", mean=["x1"]).fit(X, y)
    fitted.save(tmp_path / "model.zarr")
    shown = invoke("info", tmp_path / "model.zarr").output
    for row in fitted.trend_:
        assert all(text in shown for text in (row.name, f"{row.standard_error:.4g}", row.unit))


@pytest.mark.parametrize("name", ["exact", "lma"])
def test_far_from_the_data_intervals_cover_as_they_say(name):
    rng = np.random.default_rng(3)
    X, far = rng.uniform(0, 1, (60, 2)), rng.uniform(1.5, 2.5, (20, 2))
    kernel, s = kernels.Matern32(0.5), 0.05
    both = np.concatenate([X, far])
    f = np.linalg.cholesky(kernel(both) + 1e-10 * np.eye(80)) @ rng.standard_normal((80, 400))
    f += functions(both) @ rng.normal(0, 10, (3, 400))
    y = f[:60] + np.sqrt(s) * rng.standard_normal((60, 400))
    covered = {}  # figures that the guide has
    for mean in ("ols", "linear"):
        model = cases.fixed(name, mean=mean, kernel=kernel, noise_variance=s, **RAW)
        found, std = model.fit(X, y).predict(far, return_std=True)
        covered[mean] = float((np.abs(f[60:] - found) < 1.96 * std).mean())
    assert covered["linear"] == pytest.approx(0.95, abs=0.02)
    assert covered["ols"] < 0.75


def test_plans_of_windows_count_the_functions_of_a_trend():
    X = np.random.default_rng(0).uniform(size=(3000, 6))
    held = [
        daskgp.LMA(mean=mean, block_rows=100, n_support=32).plan(X, X[:, 0]).bytes_held
        for mean in ("ols", "linear")
    ]
    assert held[0] < held[1]
