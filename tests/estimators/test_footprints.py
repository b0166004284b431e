"""Measurements that are averages over areas: fits and predictions against dense block kriging."""

import logging

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from agree import assert_close

import daskgp
from daskgp.errors import InputError, SettingError
from daskgp.fit.hyperparameters import warn_of_footprints
from daskgp.kernels import RBF, Averaged, Matern32, from_dict
from daskgp.models import scaling
from daskgp.models.values import Theta

LENGTHS, VARIANCE, NOISE, LEVEL = 1.3, 0.8, 0.01, 3.0
ANGLES = np.arange(8) * np.pi / 4
RINGS = np.sqrt((1 + np.array([[[-1.0]], [[1.0]]]) / np.sqrt(3)) / 2)
NODES = (RINGS * np.c_[np.cos(ANGLES), np.sin(ANGLES)]).reshape(16, 2)
WEIGHTS = np.full(16, 1 / 16)
CORNER = np.array([100.0, 200.0])


def dense(A, B):
    """Block covariances of rows of coordinates and a radius, by two rings of nodes in a disc."""
    total = 0.0
    for w, x in zip(WEIGHTS, NODES, strict=True):
        for v, z in zip(WEIGHTS, NODES, strict=True):
            left, right = A[:, :2] + A[:, 2:] * x, B[:, :2] + B[:, 2:] * z
            r = np.sqrt(3.0) * np.sqrt(((left[:, None] - right) ** 2).sum(axis=-1)) / LENGTHS
            total = total + w * v * VARIANCE * (1 + r) * np.exp(-r)
    return total


def kriged(X, y, T):
    """Dense block kriging with the mean of y."""
    S, K = dense(X, X) + NOISE * np.eye(len(X)), dense(T, X)
    mean = y.mean() + K @ np.linalg.solve(S, y - y.mean())
    variance = np.diag(dense(T, T)) - (K * np.linalg.solve(S, K.T).T).sum(axis=1)
    return mean, np.sqrt(variance)


@pytest.fixture(scope="module")
def measured():
    """Discs and points of a field, and places to predict: points and discs."""
    rng = np.random.default_rng(0)
    radius = np.where(rng.uniform(size=60) < 0.4, 0.0, rng.uniform(0.1, 0.6, 60))
    X = np.c_[CORNER + rng.uniform(0, 5, (60, 2)), radius]
    S = dense(X, X) + NOISE * np.eye(60)
    y = LEVEL + np.linalg.cholesky(S) @ rng.standard_normal(60)
    T = np.c_[CORNER + rng.uniform(0, 5, (10, 2)), np.where(np.arange(10) % 2, 0.0, 0.5)]
    names = ["east", "north", "radius"]
    return pd.DataFrame(X, columns=names), y, pd.DataFrame(T, columns=names)


def told(model, y, **settings):
    """A model of known hyper-parameters."""
    scale = y.std() if settings.get("standardize", True) else 1.0
    return model.set_params(
        kernel=Matern32(LENGTHS, VARIANCE),
        noise_variance=NOISE / scale**2,
        optimizer=None,
        progress=False,
        footprint="radius",
        **settings,
    )


MODELS = {
    "exact": lambda X: daskgp.ExactGP(),
    "vecchia": lambda X: daskgp.VecchiaGP(n_neighbours=59, predict_neighbours=60),
    "sgpr": lambda X: daskgp.SGPR(inducing=X.to_numpy()),
}


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_those_of_dense_block_kriging(measured, name, standardize):
    X, y, T = measured
    model = told(MODELS[name](X), y, standardize=standardize).fit(X, y)
    mean, std = model.predict(T, return_std=True)
    for found, wanted in zip((mean, std), kriged(X.to_numpy(), y, T.to_numpy()), strict=True):
        assert_close(found, wanted, 1e-8, 1e-8 if name != "sgpr" else 1e-6)


def test_few_neighbours_come_close(measured):
    X, y, T = measured
    mean, std = told(daskgp.VecchiaGP(n_neighbours=20), y).fit(X, y).predict(T, return_std=True)
    wanted = kriged(X.to_numpy(), y, T.to_numpy())
    assert_close(mean, wanted[0], 0.05, 0.05)
    assert_close(std, wanted[1], 0.1, 0.02)


def test_columns_by_number_and_any_order_are_the_same(measured):
    X, y, T = measured
    wanted = told(daskgp.ExactGP(), y).fit(X, y).predict(T)
    names = ["radius", "east", "north"]
    assert_close(told(daskgp.ExactGP(), y).fit(X[names], y).predict(T[names]), wanted, 1e-12)
    model = told(daskgp.ExactGP(), y).set_params(footprint=2).fit(X.to_numpy(), y)
    assert_close(model.predict(T.to_numpy()), wanted, 1e-12)
    kernel = Averaged(Matern32(LENGTHS, VARIANCE), "radius", ("east", "north"))
    model = told(daskgp.ExactGP(), y).set_params(footprint=None, kernel=kernel).fit(X, y)
    assert_close(model.predict(T), wanted, 1e-12)


def test_offsets_to_the_nodes_are_the_average_over_them(measured):
    X, y, T = measured
    names = [f"{axis}{j}" for j in range(16) for axis in ("dx", "dy")]

    def offsets(table):
        made = table[["radius"]].to_numpy() * NODES.reshape(1, -1)
        return table[["east", "north"]].join(pd.DataFrame(made, columns=names))

    wanted = told(daskgp.ExactGP(), y).fit(X, y).predict(T, return_std=True)
    model = told(daskgp.ExactGP(), y).set_params(footprint=names).fit(offsets(X), y)
    for found, other in zip(model.predict(offsets(T), return_std=True), wanted, strict=True):
        assert_close(found, other, 1e-9, 1e-9)


def in_line():
    """Pairs of points that are averaged, along and across a line."""
    rng = np.random.default_rng(0)
    x, ones = rng.uniform(0, 5000, 40), np.ones(40)
    X = np.c_[x, 7 * ones, 200 * ones, 50 * ones, -200 * ones, -50 * ones]
    return X, np.sin(x / 800)


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("lengths", [500.0, (500.0, 300.0)], ids=["tied", "for each"])
def test_offsets_across_a_line_count(lengths, standardize):
    X, y = in_line()
    kernel = Averaged(Matern32(lengths, VARIANCE, active_dims=(0, 1)), (2, 3, 4, 5))
    settings = {"mean": "constant", "standardize": standardize, "optimizer": None}
    settings["noise_variance"] = NOISE / (y.var() if standardize else 1.0)
    model = daskgp.ExactGP(kernel, progress=False, **settings).fit(X, y)
    K = kernel(X)
    wanted = y.mean() + K @ np.linalg.solve(K + NOISE * np.eye(len(X)), y - y.mean())
    found, std = model.predict(X, return_std=True)
    assert_close(found, wanted, 1e-9)
    variance = np.diag(K - K @ np.linalg.solve(K + NOISE * np.eye(len(X)), K))
    assert_close(std**2, variance, 1e-7)


def test_offsets_of_which_nothing_says_the_lengthscale_are_left_out(caplog):
    X, y = in_line()
    kernel = Averaged(Matern32(ard=True), (2, 3, 4, 5))
    model = daskgp.ExactGP(kernel, optimizer=None, mean="constant", progress=False)
    with caplog.at_level(logging.WARNING):
        found = model.fit(X, y).predict(X)
    assert "footprints 'x3', 'x5' lie along constant coordinates" in caplog.text
    X[:, [3, 5]] = 0.0
    assert_close(model.fit(X, y).predict(X), found, 1e-12)


def test_intervals_of_one_coordinate():
    rng = np.random.default_rng(0)
    X = np.c_[np.linspace(0, 6, 30), np.where(np.arange(30) % 2, 0.4, 0.0)]
    kernel, y = Averaged(RBF(1.0), 1, order=8), rng.standard_normal(30)
    model = daskgp.ExactGP(RBF(1.0), optimizer=None, standardize=False, footprint=1, progress=False)
    found = model.fit(X, y).predict(X, return_std=True)
    S = kernel(X) + 0.1 * np.eye(30)
    wanted = y.mean() + kernel(X) @ np.linalg.solve(S, y - y.mean())
    assert_close(found[0], wanted, 1e-3, 1e-3)  # by three nodes


@pytest.mark.slow
def test_an_equal_radius_of_all_rows_is_not_scaled_away(measured, caplog):
    X, y, T = measured
    X = X.assign(radius=0.4)
    with caplog.at_level(logging.WARNING):
        model = told(daskgp.ExactGP(), y).fit(X, y)
        daskgp.SGPR(n_inducing=20, footprint="radius", max_iter=2, progress=False).fit(X, y)
    assert "left out" not in caplog.text
    assert "outside the range" not in caplog.text  # inducing inputs are points
    assert_close(model.predict(T), kriged(X.to_numpy(), y, T.to_numpy())[0], 1e-8)


def test_single_precision(measured):
    X, y, T = measured
    wanted = told(daskgp.ExactGP(), y).fit(X, y).predict(T)
    found = told(daskgp.ExactGP(), y, dtype="float32").fit(X, y).predict(T)
    assert_close(found, wanted, 1e-3, 1e-3)


def test_a_fit_learns_the_kernel_of_points(tmp_path):
    rng = np.random.default_rng(3)
    radius = np.where(np.arange(90) % 4, 0.6, 0.0)
    X = pd.DataFrame(np.c_[rng.uniform(0, 6, (90, 2)), radius], columns=["e", "n", "radius"])
    S = dense(X.to_numpy(), X.to_numpy()) + NOISE * np.eye(90)
    y = np.linalg.cholesky(S) @ rng.standard_normal(90)
    model = daskgp.ExactGP(Matern32(), progress=False, footprint="radius").fit(X, y)
    found = {row.name: row for row in model.hyperparameters_}
    for name, wanted in (("lengthscale", LENGTHS), ("variance", VARIANCE)):
        row = found[name]
        # within three standard errors on the scale of logarithms
        assert abs(np.log(row.value / wanted)) < 3 * row.standard_error / row.value
    model.save(str(tmp_path / "model"))
    again = daskgp.load(str(tmp_path / "model"))
    assert again.footprint == "radius"
    assert_close(again.predict(X[:9]), model.predict(X[:9]), 1e-12)


def test_rows_are_added(measured):
    X, y, T = measured
    inducing = X[:20].to_numpy()
    model = told(daskgp.SGPR(inducing=inducing), y, mean="zero", standardize=False)
    wanted = model.fit(X, y).predict(T)
    assert_close(model.fit(X[:40], y[:40]).update(X[40:], y[40:]).predict(T), wanted, 1e-6)


@pytest.mark.slow
def test_points_are_predicted_from_areas_better_than_without_footprints():
    rng = np.random.default_rng(1)
    X = np.c_[rng.uniform(0, 5, (90, 2)), np.full(90, 0.8)]
    T = np.c_[rng.uniform(1, 4, (80, 2)), np.zeros(80)]
    both = np.vstack([X, T])
    f = np.linalg.cholesky(dense(both, both) + 1e-9 * np.eye(170)) @ rng.standard_normal(170)
    y, errors = f[:90] + 0.02 * rng.standard_normal(90), {}
    for footprint in ("radius", None):
        settings = {"kernel": Matern32(), "progress": False, "footprint": footprint}
        columns = ["e", "n", "radius"] if footprint else ["e", "n"]
        rows, places = (pd.DataFrame(A, columns=["e", "n", "radius"])[columns] for A in (X, T))
        mean, std = daskgp.ExactGP(**settings).fit(rows, y).predict(places, return_std=True)
        inside = np.mean(np.abs(mean - f[90:]) < 1.96 * std)
        errors[footprint] = inside, np.sqrt(np.mean((mean - f[90:]) ** 2))
    assert errors["radius"][0] > 0.88 > errors[None][0]
    assert errors["radius"][1] < errors[None][1]


def test_a_wide_footprint_is_told_of(measured, caplog):
    X, y, _ = measured
    model = told(daskgp.ExactGP(), y)
    with caplog.at_level(logging.WARNING):
        model.set_params(kernel=Matern32(0.3, VARIANCE)).fit(X, y)
    assert "the widest footprint, 'radius' = 0.5" in caplog.text
    assert "kernels.Averaged(..., order=5)" in caplog.text


def test_the_finer_order_that_is_told_is_one_that_kernels_take(caplog):
    kernel = Averaged(Matern32(0.05, VARIANCE), 3, shape="box", order=8)
    sums, scale = scaling.local(np.full((2, 4), 5.0), np.zeros((2, 1))), scaling.identity(4, 1)
    with caplog.at_level(logging.WARNING):
        warn_of_footprints(Theta(kernel, NOISE), scale, sums, ["x", "y", "z", "radius"])
    assert "kernels.Averaged(..., order=9)" in caplog.text


@pytest.mark.parametrize(("noise", "told"), [(0.01, None), (0.0025, 5), (1e-4, 9)])
def test_orders_are_told_of_by_the_noise(noise, told, caplog):
    kernel = 2.0 * Averaged(Matern32(1.0, 0.5), 1, order=4) + 0.1 * RBF(5.0)
    sums, scale = scaling.local(np.full((2, 2), 0.9), np.zeros((2, 1))), scaling.identity(2, 1)
    with caplog.at_level(logging.WARNING):
        warn_of_footprints(Theta(kernel, noise), scale, sums, ["depth", "half"])
    assert ("order=" in caplog.text) == (told is not None)
    assert told is None or f"order={told})" in caplog.text


def test_intervals_of_a_rough_function_are_predicted_as_sure_as_they_are():
    rng = np.random.default_rng(0)
    half = np.where(np.arange(120) % 4, rng.uniform(0.3, 1.0, 120), 0.0)
    X, T = np.c_[rng.uniform(1, 19, 120), half], np.c_[np.linspace(1, 19, 60), np.zeros(60)]
    integrals, noise = Averaged(Matern32(1.0, 1.0), 1, order=40), 1e-3 * np.eye(120)
    K, k = integrals(X), integrals(X, T)
    own = Averaged(Matern32(1.0, 1.0), 1).resolve(np.ones(2), 1.0)
    assert own.order == 8
    weights = np.linalg.solve(own(X) + noise, own(X, T))
    claimed = 1.0 - (weights * own(X, T)).sum(0)
    true = 1.0 - 2.0 * (weights * k).sum(0) + (weights * ((K + noise) @ weights)).sum(0)
    best = 1.0 - (k * np.linalg.solve(K + noise, k)).sum(0)
    assert_close(np.sqrt(true / claimed), 1.0, 0.05)
    assert true.mean() < 1.01 * best.mean()


def test_models_of_before_keep_the_order_that_they_had():
    described = Averaged(Matern32(1.0, 1.0), 1).to_dict()
    assert from_dict(described) == Averaged(Matern32(1.0, 1.0), 1)
    assert from_dict(described | {"order": None}).order == 3
    offsets = Averaged(Matern32(1.0, 1.0), (1, 2))
    assert from_dict(offsets.to_dict() | {"order": None}) == offsets


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"footprint": "size"}, "footprint with 'size', but the features are"),
        ({"kernel": Averaged(), "footprint": "radius"}, "both give footprints"),
        ({"mean": ["radius"]}, "'radius', which is the footprint of each row"),
        ({"footprint": ["radius"]}, "has 1 columns of offsets for 2 coordinates"),
        ({"footprint": 1.5}, "footprint=1.5 of Averaged: give the column"),
    ],
)
def test_settings_that_do_not_fit_are_refused(measured, settings, message):
    X, y, _ = measured
    given = {"footprint": "radius", **settings}
    with pytest.raises(SettingError, match=message):
        daskgp.ExactGP(progress=False, **given).fit(X, y)


def test_offsets_take_a_constant_mean(measured):
    X, y, _ = measured
    X = X.assign(other=0.1)
    model = daskgp.ExactGP(mean="linear", footprint=["radius", "other"], progress=False)
    with pytest.raises(SettingError, match="may lie around another: choose mean='constant'"):
        model.fit(X, y)


@pytest.mark.parametrize(
    "other",
    [Matern32(), Averaged(footprint="other"), Averaged(footprint=("radius",), columns=("east",))],
)
def test_kernels_to_choose_from_have_the_same_footprints(measured, other):
    X, y, _ = measured
    X = X.assign(other=0.1)

    class Choosing(daskgp.ExactGP):
        def _kernels(self):
            return [Averaged(), other]

    with pytest.raises(SettingError, match="to choose from, differ in their footprints"):
        Choosing(progress=False).fit(X, y)


def test_a_radius_below_zero_is_refused(measured):
    X, y, T = measured
    message = "'radius' is the radius of footprints and is negative, as low as -1"
    with pytest.raises(InputError, match=message):
        told(daskgp.ExactGP(), y).fit(X.assign(radius=-1.0), y)
    model = told(daskgp.ExactGP(), y).fit(X, y)
    with pytest.raises(InputError, match=message):
        model.predict(T.assign(radius=-1.0))
    wide = told(daskgp.ExactGP(), y).fit(X.assign(radius=0.5 + 0.001 * X["radius"]), y)
    assert np.isfinite(wide.predict(T.assign(radius=0.0))).all()  # far below those of the fit
    fills = np.where(np.arange(len(X)) == 3, -9999.0, 0.4)
    with pytest.raises(InputError, match=r"as low as -9999: .*, or fill_values=\[-9999\] if"):
        told(daskgp.ExactGP(), y).fit(X.assign(radius=fills), y)
    gaps = told(daskgp.ExactGP(fill_values=[-9999]), y).fit(X.assign(radius=fills), y)
    assert gaps.n_rows_ == len(X) - 1
    with pytest.raises(SettingError, match="'radius', which holds text or codes of categories"):
        told(daskgp.ExactGP(), y).fit(X.assign(radius="wide"), y)
    with pytest.raises(InputError, match="radius"):
        model.predict(T[["east", "north"]])


def test_another_unit_than_that_of_the_coordinates_is_refused(measured):
    X, y, _ = measured
    units = {"east": "m", "north": "m", "radius": "km"}
    grid = X.rename_axis("row").to_xarray().reset_coords()
    for name, unit in units.items():
        grid[name].attrs["units"] = unit
    field = xr.DataArray(y, dims="row")
    with pytest.raises(InputError, match="'radius' is in 'km' and the coordinate 'east' in 'm'"):
        told(daskgp.ExactGP(), y).fit(grid, field)
    grid["radius"].attrs["units"] = "metres"
    assert np.isfinite(told(daskgp.ExactGP(), y).fit(grid, field).objective_)


def test_a_grid_of_points_is_not_taken_for_one_in_another_unit(measured, recwarn):
    X, y, T = measured
    model = told(daskgp.ExactGP(), y).fit(X.assign(radius=0.5 + 0.001 * X["radius"]), y)
    grid = xr.Dataset(coords={name: sorted(T[name]) for name in ("east", "north")})
    model.predict(grid.assign(radius=0.0))
    assert not [one for one in recwarn if "in another unit" in str(one.message)]
    with pytest.warns(UserWarning, match="'radius' of the grid is from 500 to 500"):
        model.predict(grid.assign(radius=500.0))


@pytest.mark.slow
def test_a_trend_is_that_of_the_centres(measured):
    X, y, T = measured
    y = y + 2.0 * (X["east"].to_numpy() - 100)
    model = daskgp.ExactGP(mean="linear", footprint="radius", progress=False).fit(X, y)
    assert_close(model.predict(T), 2.0 * (T["east"] - 100) + LEVEL, 1.0, 2.5)


RADIUS = 6371.0088


def chord(A, B):
    """Distances through the Earth in km, of degrees east and north."""
    P, Q = (
        RADIUS * np.c_[np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b)]
        for a, b in (np.radians(A).T, np.radians(B).T)
    )
    return np.sqrt(((P[:, None] - Q) ** 2).sum(axis=-1))


def destination(rows, node):
    """Degrees of places at a distance and a bearing from rows of degrees and radii in km."""
    lon, lat, radius = np.radians(rows[:, 0]), np.radians(rows[:, 1]), rows[:, 2]
    bearing, angle = np.pi / 2 - np.arctan2(node[1], node[0]), radius * np.hypot(*node) / RADIUS
    north = np.arcsin(np.sin(lat) * np.cos(angle) + np.cos(lat) * np.sin(angle) * np.cos(bearing))
    east = lon + np.arctan2(
        np.sin(bearing) * np.sin(angle) * np.cos(lat),
        np.cos(angle) - np.sin(lat) * np.sin(north),
    )
    return np.degrees(np.c_[east, north])


def on_the_sphere(A, B, length):
    """Block covariances of rows of degrees and radii in km, by two rings of nodes in a cap."""
    total = 0.0
    for w, x in zip(WEIGHTS, NODES, strict=True):
        for v, z in zip(WEIGHTS, NODES, strict=True):
            r = np.sqrt(3.0) * chord(destination(A, x), destination(B, z)) / length
            total = total + w * v * VARIANCE * (1 + r) * np.exp(-r)
    return total


def caps(corner, width):
    """Caps and points of a field, and places to predict, in degrees and km."""
    rng = np.random.default_rng(0)
    length = 0.3 * width * 111.2
    radius = np.where(rng.uniform(size=50) < 0.4, 0.0, rng.uniform(0.1, 0.5, 50) * length)
    X = np.c_[corner + rng.uniform(0, width, (50, 2)), radius]
    T = np.c_[corner + rng.uniform(0, width, (8, 2)), np.where(np.arange(8) % 2, 0.0, length / 2)]
    S = on_the_sphere(X, X, length) + NOISE * np.eye(50)
    y = LEVEL + np.linalg.cholesky(S) @ rng.standard_normal(50)
    K = on_the_sphere(T, X, length)
    variance = np.diag(on_the_sphere(T, T, length)) - (K * np.linalg.solve(S, K.T).T).sum(axis=1)
    wanted = y.mean() + K @ np.linalg.solve(S, y - y.mean()), np.sqrt(variance)
    names = ["lon", "lat", "radius"]
    return pd.DataFrame(X, columns=names), y, pd.DataFrame(T, columns=names), length, wanted


REGIONS = {"a country": ((5.0, 45.0), 6.0), "the date line": ((176.0, -5.0), 8.0)}
REGIONS |= {"the north": ((-170.0, 75.0), 14.0), "some km": ((8.0, 50.0), 0.05)}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("region", REGIONS)
def test_caps_on_the_sphere_are_those_of_dense_block_kriging(region, name):
    X, y, T, length, wanted = caps(*REGIONS[region])
    model = told(MODELS[name](X), y, geographic=("lon", "lat"))
    model.set_params(kernel=Matern32(length, VARIANCE)).fit(X, y)
    atol = 1e-7 if name != "sgpr" else 1e-5
    for found, own in zip(model.predict(T, return_std=True), wanted, strict=True):
        assert_close(found, own, atol, atol)


@pytest.mark.parametrize("standardize", [True, False])
def test_models_of_caps_are_stored_and_name_the_columns_of_the_user(tmp_path, standardize):
    X, y, T, length, wanted = caps(*REGIONS["a country"])
    kernel = Averaged(Matern32(length, VARIANCE), "radius", ("lon", "lat"))
    model = told(daskgp.ExactGP(), y, geographic=("lon", "lat"), standardize=standardize)
    model.set_params(kernel=kernel, footprint=None).fit(X, y)
    assert_close(model.predict(T), wanted[0], 1e-7)
    model.save(f"{tmp_path}/model.zarr")
    loaded = daskgp.load(f"{tmp_path}/model.zarr")
    np.testing.assert_array_equal(loaded.predict(T), model.predict(T))
    own = loaded.kernel_
    assert (own.columns, own.footprint, own.sphere) == ((0, 1), 2, False)
    again = told(daskgp.ExactGP(), y, geographic=("lon", "lat"), standardize=standardize)
    again.set_params(kernel=own, footprint=None).fit(X, y)
    assert_close(again.predict(T), model.predict(T), 1e-9)
    paths = model.sample_paths(400)(T)
    assert_close(paths.mean(axis=-1), wanted[0], 0.15)


def test_offsets_on_the_sphere_are_to_the_east_and_the_north():
    X, y, T, length, _ = caps(*REGIONS["a country"])
    names = [f"{axis}{j}" for j in range(16) for axis in ("dx", "dy")]

    def offsets(table):
        nodes = NODES.reshape(1, -1)
        made = pd.DataFrame(table[["radius"]].to_numpy() * nodes, columns=names)
        return table[["lat", "lon"]].join(made)  # in whatever order

    known = {"geographic": ("lon", "lat"), "mean": "constant"}
    wanted = told(daskgp.ExactGP(), y, **known).set_params(kernel=Matern32(length, VARIANCE))
    model = told(daskgp.ExactGP(), y, **known).set_params(kernel=Matern32(length, VARIANCE))
    wanted, model = wanted.fit(X, y), model.set_params(footprint=names).fit(offsets(X), y)
    assert_close(model.predict(offsets(T)), wanted.predict(T), 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("model", [daskgp.ExactGP(), daskgp.VecchiaGP()])
def test_caps_are_learned_from(model):
    X, y, T, length, wanted = caps(*REGIONS["a country"])
    model.set_params(kernel="matern32()", footprint="radius", geographic=("lon", "lat"))
    model.set_params(progress=False).fit(X, y)
    assert np.sqrt(np.mean((model.predict(T) - wanted[0]) ** 2)) < 0.3
    table = {one.name: one for one in model.hyperparameters_}
    assert 0.4 * length < table["lengthscale"].value < 2.5 * length
    assert table["lengthscale"].unit == "km"


def test_what_does_not_go_with_caps_is_refused():
    X, y, *_ = caps(*REGIONS["a country"])
    known = {"geographic": ("lon", "lat"), "progress": False, "optimizer": None}
    for kernel, words in (
        (Averaged(Matern32(), "radius", ("lat",)), r"give columns=\('lon', 'lat'\)"),
        (Averaged(RBF(), "radius", order="exact", shape="box"), "not for places on a sphere"),
    ):
        with pytest.raises(SettingError, match=words):
            daskgp.ExactGP(kernel, **known).fit(X, y)
    metres = X.assign(radius=1000 * X["radius"])
    with pytest.raises(InputError, match="'radius' is the radius of footprints on a sphere"):
        daskgp.ExactGP(footprint="radius", **known).fit(metres, y)
    model = daskgp.ExactGP(footprint="radius", **known).fit(X, y)
    with pytest.raises(InputError, match="a quarter of the way round it in"):
        model.predict(metres)
    with pytest.raises(SettingError, match="sphere='yes' of Averaged: choose True"):
        Averaged(RBF(), "radius", sphere="yes")
    with pytest.raises(InputError, match="sphere=True and 2 coordinates"):
        Averaged(RBF(), 2, sphere=True)(np.ones((3, 3)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            daskgp.SparseSpectrumGP(),
            "averages over footprints .* have no spectral points here: choose VecchiaGP",
        ),
        (daskgp.VecchiaGP(varying=4), "belong to points"),
    ],
)
def test_methods_that_cannot_say_so(measured, model, message):
    X, y, _ = measured
    with pytest.raises(SettingError, match=message):
        model.set_params(footprint="radius", progress=False).fit(X, y)


@pytest.mark.parametrize("kind", [daskgp.ExactGP, daskgp.SGPR, daskgp.VecchiaGP])
def test_a_path_of_an_area_is_the_average_of_the_path_in_it(measured, kind):
    X, y, T = measured
    model = told(kind(), y)
    if kind is daskgp.SGPR:
        model.set_params(n_inducing=50)
    paths = model.fit(X, y).sample_paths(400, random_state=0)
    found, places = paths(T.to_numpy()), T.to_numpy()
    mean, std = model.predict(T, return_std=True)
    assert_close(found.mean(axis=1), mean, 0.05, 0.2 * std.max())
    assert_close(found.std(axis=1), std, 0.3, 0.03)
    if kind is daskgp.VecchiaGP:  # whose neighbours are those of each place
        return
    nodes = places[:, None, :2] + places[:, None, 2:] * NODES
    points = np.insert(nodes.reshape(-1, 2), 2, 0.0, axis=1)
    within = paths(points).reshape(len(T), len(NODES), -1)
    assert_close(found, np.einsum("iat,a->it", within, WEIGHTS), 1e-8, 1e-8)


def test_samples_are_those_of_areas(measured):
    X, y, T = measured
    model = told(daskgp.ExactGP(), y).fit(X, y)
    assert model.sample_y(T, 4, random_state=0).shape == (10, 4)
    kernel = 0.5 * Averaged(Matern32(LENGTHS, VARIANCE), "radius")
    model = model.set_params(kernel=kernel, footprint=None).fit(X, y)
    with pytest.raises(SettingError, match="Averaged has no spectrum"):
        model.sample_paths(3)
