"""Places on a sphere: what every estimator promises of longitude and latitude."""

import numpy as np
import pytest

import daskgp
from daskgp import kernels
from daskgp.estimators.requirements import defaults
from daskgp.models.columns import RADIUS
from tests.contract.cases import NO_SPREAD, SETTINGS, fixed, kind, make, moments
from tests.contract.cases import N as ROWS

GIVEN = {"lma": "support", "pic": "support", "sgpr": "inducing", "svgp": "inducing"}
"""Settings that hold inputs given as longitude and latitude."""


def globe(n=ROWS, seed=0):
    """Longitude and latitude of places all over the sphere (n, 2) in degrees, and a target."""
    rng = np.random.default_rng(seed)
    lon, lat = rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))
    x, y, z = np.moveaxis(chord_places(np.stack([lon, lat], axis=1)), -1, 0) / RADIUS
    return np.stack([lon, lat], axis=1), np.sin(2 * x) + y * z + 0.1 * rng.standard_normal(n)


def chord_places(X):
    """Points in km of longitude and latitude by the textbook."""
    lon, lat = np.radians(X[..., 0]), np.radians(X[..., 1])
    points = [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]
    return RADIUS * np.stack(points, axis=-1)


KERNEL = kernels.Matern32(5_000.0, variance=1.2)


def on_sphere(name, **settings):
    own = {"kernel": kernels.RBF(5_000.0) if name == "ssgp" else KERNEL}
    return fixed(name, **own, geographic=(0, 1), **settings)


def same(model, A, B, **tolerance):
    for a, b in zip(moments(model, A), moments(model, B), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_date_line_and_the_poles_are_places_like_others(name):
    model = on_sphere(name).fit(*globe())
    lat = np.array([-45.0, 0.0, 10.0, 89.0])
    west, east = (np.stack([np.full(4, lon), lat], axis=1) for lon in (-180.0, 180.0))
    same(model, west, east, rtol=0, atol=1e-10)
    for pole in (-90.0, 90.0):
        around = np.stack([np.linspace(-180, 360, 7), np.full(7, pole)], axis=1)
        same(model, around, around[[0] * 7], rtol=0, atol=1e-10)
        near = np.array([[0.0, np.sign(pole) * (90 - 1e-7)], [170.0, np.sign(pole) * (90 - 1e-7)]])
        same(model, near, around[:2], rtol=0, atol=1e-6)
    near = np.array([[180 - 1e-7, 10.0], [-180 + 1e-7, 10.0]])
    same(model, near, near[::-1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_longitudes_from_zero_and_from_minus_180_are_alike(name):
    X, y = globe()
    X = np.round(X)  # whole degrees are exact either way
    other = X + np.array([360.0, 0.0]) * (X[:, :1] < 0)
    model, again = on_sphere(name).fit(X, y), on_sphere(name).fit(other, y)
    for a, b in zip(moments(model, X[:20]), moments(again, other[:20]), strict=True):
        np.testing.assert_array_equal(a, b)


# steps of Adam, as in svgp, are not the same in other axes
@pytest.mark.parametrize(
    "name", sorted({*GIVEN, "vecchia", "exact", "exact-experts", "cggp"} - {"svgp"})
)
def test_turning_the_globe_changes_nothing(name):
    X, y = globe()
    inputs = globe(8, seed=3)[0]
    turned = []
    for angle in (0.0, 77.0):
        turn = np.array([angle, 0.0])
        more = {GIVEN[name]: wrapped(inputs + turn)} if name in GIVEN else {}
        if name in GIVEN:
            more[f"n_{GIVEN[name]}"] = defaults(kind(name))[f"n_{GIVEN[name]}"]
        if name in ("lma", "pic", "vecchia"):  # one block has no order
            more["block_rows"] = ROWS
        if name == "exact-experts":
            more["partition"] = "chunks"
        model = on_sphere(name, **more).fit(wrapped(X + turn), y)
        turned.append(moments(model, wrapped(globe(20, seed=5)[0] + turn)))
    for a, b in zip(*turned, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8)


def wrapped(X):
    return np.stack([(X[:, 0] + 180) % 360 - 180, X[:, 1]], axis=1)


@pytest.mark.sampled
@pytest.mark.parametrize("name", SETTINGS)
def test_a_saved_model_predicts_the_same(name, tmp_path):
    X, y = globe()
    model = on_sphere(name, progress=False).fit(X, y)
    model.save(f"{tmp_path}/model.zarr")
    loaded = daskgp.load(f"{tmp_path}/model.zarr")
    assert loaded.solved_.geographic == (0, 1)
    for a, b in zip(moments(model, X[:20]), moments(loaded, X[:20]), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(set(SETTINGS) - NO_SPREAD))
def test_training_learns_one_lengthscale_of_the_sphere_in_km(name):
    X, y = globe()
    time = np.linspace(0, 1, len(X))[:, None]
    kernel = (kernels.RBF if name == "ssgp" else kernels.Matern32)(ard=True)
    model = make(name, kernel=kernel, geographic=(1, 2)).fit(np.hstack([time, X]), y)
    units = {row.name: row.unit for row in model.hyperparameters_ if "length" in row.name}
    assert units == {"lengthscale[0]": "x0", "lengthscale[1]": "km"}
    reported = {row.name: row.value for row in model.hyperparameters_}
    assert 100 < reported["lengthscale[1]"] < 1e9
    assert model.kernel_.lengthscale[1] == pytest.approx(reported["lengthscale[1]"])
