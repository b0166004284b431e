"""Columns of X as methods see them: places on the sphere, and kernels of features by name."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp import kernels, testing
from daskgp.errors import InputError, SettingError
from daskgp.kernels import units
from daskgp.kernels.columns import rescaled
from daskgp.models.columns import RADIUS, Columns, chosen, on_sphere
from daskgp.models.scaling import identity

NAMES = ("day", "lat", "height", "lon")
COLUMNS = Columns(NAMES, (3, 1))

longitudes = st.floats(-180.0, 360.0)
latitudes = st.floats(-90.0, 90.0)
places = st.lists(st.tuples(longitudes, latitudes), min_size=1, max_size=8).map(np.array)


def haversine(a, b):
    """Great-circle distance in km by the textbook."""
    (lon, lat), (lon2, lat2) = np.radians(a), np.radians(b)
    half = np.sin((lat2 - lat) / 2) ** 2
    half += np.cos(lat) * np.cos(lat2) * np.sin((lon2 - lon) / 2) ** 2
    return 2 * RADIUS * np.arcsin(np.sqrt(min(half, 1.0)))


@given(places)
def test_distances_are_chords_of_the_great_circle(X):
    points = on_sphere(*X.T)
    for i, a in enumerate(X):
        chord = 2 * RADIUS * np.sin(haversine(a, X[0]) / (2 * RADIUS))
        np.testing.assert_allclose(np.linalg.norm(points[i] - points[0]), chord, atol=2e-3)


@given(places)
def test_places_come_back(X):
    columns = Columns(("lon", "lat"), (0, 1))
    inputs = columns.inputs(X)
    np.testing.assert_allclose(np.linalg.norm(inputs, axis=1), RADIUS)
    np.testing.assert_allclose(columns.inputs(columns.places(inputs)), inputs, atol=1e-6)
    np.testing.assert_allclose(columns.onto(0.3 * inputs), inputs, atol=1e-6)


@given(latitudes, st.integers(0, 180))
def test_a_longitude_and_a_whole_turn_more_have_the_same_bits(lat, degrees):
    west, east = (on_sphere(np.array([lon]), np.array([lat])) for lon in (-degrees, 360 - degrees))
    assert west.tobytes() == east.tobytes()


@given(longitudes, st.sampled_from([-90.0, 90.0]))
def test_a_pole_has_the_same_bits_from_every_longitude(lon, pole):
    there = on_sphere(np.array([lon, 0.0]), np.array([pole, pole]))
    assert there[0].tobytes() == there[1].tobytes()


def test_other_columns_keep_their_values_and_their_order():
    X = np.array([[7.0, 10.0, 0.5, -20.0], [8.0, -30.0, 0.6, 40.0]])
    inputs = COLUMNS.inputs(X)
    assert COLUMNS.inputs_names == ("day", "lon/lat x", "lon/lat y", "lon/lat z", "height")
    np.testing.assert_array_equal(inputs[:, [0, 4]], X[:, [0, 2]])
    np.testing.assert_allclose(inputs[:, 1:4], on_sphere(X[:, 3], X[:, 1]))
    np.testing.assert_allclose(COLUMNS.places(inputs), X)
    assert COLUMNS.where == (0, (1, 2, 3), 4, (1, 2, 3))
    assert COLUMNS.order(["lon", "lat"]) == ["lon/lat x", "lon/lat y", "lon/lat z"]
    assert COLUMNS.order("day") == "day"
    assert COLUMNS.lengths([3.0, 500.0, 0.1, 500.0]) == [3.0, 500.0, 500.0, 500.0, 0.1]


def test_missing_and_infinite_values_are_told_apart():
    points = on_sphere(np.array([np.nan, np.inf, 0.0]), np.array([0.0, 0.0, np.nan]))
    assert np.isnan(points[[0, 2]]).any(axis=1).all()
    assert np.isinf(points[1]).all()


@pytest.mark.parametrize(
    ("setting", "known", "pair"),
    [
        (("lon", "lat"), None, (3, 1)),
        ((3, 1), None, (3, 1)),
        (["3", "1"], None, (3, 1)),
        (np.array([3, 1]), None, (3, 1)),
        (None, ("lon", "lat"), (3, 1)),
        (False, ("lon", "lat"), None),
        (None, None, None),
    ],
)
def test_columns_are_chosen_by_name_or_number(setting, known, pair):
    assert chosen(setting, NAMES, known) == pair


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lon", "geographic='lon': give two columns"),
        (("lon",), "give two columns, those of longitude and latitude"),
        (True, "give two columns"),
        (("lon", "lat", "day"), "give two columns"),
        (("lon", "lon"), "names one column twice"),
        (("lon", "latitude"), "'latitude', but the columns of X are 'day, lat, height, lon'"),
        ((3, 9), "geographic names 9"),
        ((3, -1), "geographic names -1"),
        (("lon", True), "geographic names True"),
    ],
)
def test_columns_that_are_no_pair_are_refused(setting, message):
    with pytest.raises(SettingError, match=message) as raised:
        chosen(setting, NAMES, None)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("lon", "lat"), [(0.0, 90.5), (0.0, -91.0), (-181.0, 0.0), (361.0, 0.0)])
def test_angles_of_no_place_are_refused(lon, lat):
    with pytest.raises(InputError, match=r"'l(on|at)' has .* which are not degrees from") as raised:
        COLUMNS.inputs(np.array([[0.0, lat, 0.0, lon]]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kernel", "resolved"),
    [
        (kernels.RBF(), kernels.RBF()),
        (kernels.RBF(ard=True), kernels.RBF(ard=True, active_dims=(0, (1, 2, 3), 4))),
        (kernels.RBF((1.0, 2.0, 3.0)), kernels.RBF((1.0, 2.0, 3.0), active_dims=(0, (1, 2, 3), 4))),
        (kernels.RBF(active_dims=("lon", "lat")), kernels.RBF(active_dims=(1, 2, 3))),
        (kernels.RBF(active_dims=(3, 1)), kernels.RBF(active_dims=(1, 2, 3))),
        (kernels.Periodic(active_dims="day"), kernels.Periodic(active_dims=(0,))),
        (
            kernels.Matern32((500.0, 2.0), active_dims=("lon", "lat", "day")),
            kernels.Matern32((500.0, 2.0), active_dims=((1, 2, 3), 0)),
        ),
        (
            kernels.RBF(2.0, ard=True, active_dims=(("lon", "lat"), "day")),
            kernels.RBF((2.0, 2.0), active_dims=((1, 2, 3), 0)),
        ),
        (
            kernels.Linear((1.0, 2.0, 3.0)),
            kernels.Linear((1.0, 2.0, 3.0), active_dims=(0, (1, 2, 3), 4)),
        ),
        (
            kernels.RBF(active_dims=("lat", "lon")) * kernels.RBF(active_dims=("day",)),
            kernels.RBF(active_dims=(1, 2, 3)) * kernels.RBF(active_dims=(0,)),
        ),
    ],
)
def test_kernels_of_features_become_kernels_of_columns(kernel, resolved):
    assert COLUMNS.kernel(kernel) == resolved


def test_names_are_resolved_without_a_sphere_too():
    plain = Columns(NAMES)
    assert plain.kernel(kernels.RBF(active_dims=("lon", "day"))) == kernels.RBF(active_dims=(3, 0))
    untouched = kernels.RBF(ard=True, active_dims=(2, 1))
    assert plain.kernel(untouched) is untouched


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (kernels.RBF(active_dims=("lon",)), "without 'lat': longitude and latitude are one place"),
        (kernels.RBF(active_dims=(3,)), "without 'lat'"),
        (kernels.RBF(active_dims=("lon", "Lat")), "'Lat', but the features are"),
        (kernels.RBF(active_dims=(9,)), "9, but the features are"),
        (
            kernels.RBF((1.0, 2.0, 3.0, 4.0)),
            r"4 lengthscales for 3 features \(day, lat/lon, height",
        ),
        (kernels.RBF(ard=True, active_dims=(("lon", "day"), "lat")), "put them in one group"),
    ],
)
def test_kernels_that_do_not_fit_the_features_are_refused(kernel, message):
    with pytest.raises(SettingError, match=message) as raised:
        COLUMNS.kernel(kernel)
    assert "\n" not in str(raised.value)


def test_a_kernel_with_names_cannot_be_called():
    with pytest.raises(InputError, match="names of features that an estimator's fit knows"):
        kernels.RBF(active_dims=("lon", "lat"))(np.zeros((2, 2)))


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.RBF((0.8, 1.7), active_dims=((0, 2), 1)),
        kernels.Matern12((0.8, 1.7), active_dims=(1, (0, 2))),
        kernels.RationalQuadratic((0.8, 1.7), active_dims=((0, 2), 1)),
        kernels.Linear((0.8, 1.7), active_dims=((0, 2), 1)),
        kernels.Periodic(active_dims=((0, 2), 1)),
    ],
)
def test_a_group_of_columns_shares_a_lengthscale(kernel):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9, 3))
    testing.check_kernel(kernel, X, rng.standard_normal((5, 3)))
    described = json.loads(json.dumps(kernel.to_dict()))
    assert kernels.from_dict(described) == kernel
    if isinstance(kernel, kernels.RBF):
        each = kernels.RBF((0.8, 1.7, 0.8))
        np.testing.assert_allclose(kernel(X), each(X), rtol=1e-14)


def test_text_names_features():
    assert kernels.parse("rbf(active_dims=('lon', 'lat')) * matern12(active_dims='day')") == (
        kernels.RBF(active_dims=("lon", "lat")) * kernels.Matern12(active_dims=("day",))
    )


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4))
def test_lengths_in_km_are_scaled_and_come_back(length, scale):
    kernel = kernels.RBF((3.0, length), active_dims=("day", "lon", "lat"))
    inside, x_scale = COLUMNS.kernel(kernel), np.array([7.0, scale, scale, scale, 2.0])
    scaling = identity(5, 1)
    scaling = dataclasses.replace(scaling, x_scale=x_scale)
    scaled = units.in_model_units(inside, 5, scaling.size)
    assert scaled.variance is None
    np.testing.assert_allclose(scaled.lengthscale, (3.0 / 7.0, length / scale))
    users = COLUMNS.users_kernel(units.in_users_units(scaled, 5, scaling.size))
    assert users.active_dims == (0, (1, 3))
    np.testing.assert_allclose(users.lengthscale, (3.0, length))
    assert COLUMNS.kernel(users).active_dims == inside.active_dims
    before = COLUMNS.scaled_as_before(inside, x_scale)  # km on the sphere alone
    np.testing.assert_allclose(before.lengthscale, (3.0, length / scale))


def test_open_lengthscales_stay_open_in_other_units():
    open_one = kernels.RBF(ard=True) + kernels.Matern32(active_dims=(0,))
    assert rescaled(open_one, np.array([2.0, 3.0])) == open_one
