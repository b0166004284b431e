"""Rotated kernels: kernels of rows that are rotated by hand."""

import logging
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from agree import assert_close

import daskgp
from daskgp import kernels
from daskgp.errors import InputError, SettingError
from daskgp.fit.conditionals import _moved
from daskgp.kernels import RBF, Linear, Matern12, Matern32, Rotated, from_dict, parse
from daskgp.kernels.lengthscales import distance_units, in_units
from daskgp.kernels.program import program, tiles
from daskgp.kernels.spectrum import random_features
from daskgp.kernels.units import in_model_units, in_users_units, left_open, opened, reopened
from daskgp.models.exact import Exact
from daskgp.models.markov.earlier import nearest
from daskgp.models.markov.vecchia import in_units as points_of
from daskgp.models.values import Block, Theta
from daskgp.testing import central_differences

A = np.radians(30.0)
R = np.array([[np.cos(A), np.sin(A)], [-np.sin(A), np.cos(A)]])
ALONG = Matern32((2.5, 0.5), 0.8)
KERNEL = Rotated(ALONG, angle=30.0)


def field(n, seed=0, noise=0.01):
    """Rows of a field that is stretched 5 : 1 at 30 degrees, drawn by its dense covariance."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 8, (n, 2))
    u = X @ R.T / np.array(ALONG.lengthscale)
    r = np.sqrt(3.0) * np.sqrt(((u[:, None] - u) ** 2).sum(axis=-1))
    K = 0.8 * (1 + r) * np.exp(-r)
    return X, K, np.linalg.cholesky(K + noise * np.eye(n)) @ rng.standard_normal(n)


# -- values --------------------------------------------------------------------------------------


def test_it_is_the_kernel_of_rows_that_are_rotated_by_hand():
    X, K, _ = field(30)
    assert_close(KERNEL(X), K, 1e-10, 1e-12)
    Z = X[:7] + 0.3
    assert_close(KERNEL(X, Z), ALONG(X @ R.T, Z @ R.T), 1e-10, 1e-12)


def test_other_columns_stay_as_they_are():
    X = np.random.default_rng(0).normal(size=(9, 3))
    kernel, plain = Rotated(RBF((2.0, 0.5, 3.0)), columns=(2, 0), angle=30.0), X.copy()
    plain[:, [2, 0]] = X[:, [2, 0]] @ R.T
    assert_close(kernel(X), RBF((2.0, 0.5, 3.0))(plain), 1e-12)


def test_three_columns_have_an_angle_for_each_pair_the_first_pair_first():
    turned = Rotated(RBF((3.0, 2.0, 0.5)), columns=(0, 1, 2), angle=(30.0, 40.0, 50.0))
    wanted = np.eye(3)
    for (i, j), a in zip(((0, 1), (0, 2), (1, 2)), np.radians(turned.angle), strict=True):
        step = np.eye(3)
        step[i, i] = step[j, j] = np.cos(a)
        step[i, j], step[j, i] = np.sin(a), -np.sin(a)
        wanted = step @ wanted
    assert_close(turned.rotation, wanted, 1e-14, 1e-14)
    assert_close(wanted @ wanted.T, np.eye(3), 1e-14, 1e-14)


def test_with_all_numbers_it_is_any_linear_map():
    """A positive definite matrix M of r^2 = (x - z)' M (x - z) has such lengthscales and angles."""
    M = np.array([[2.0, 0.7], [0.7, 0.5]])
    values, vectors = np.linalg.eigh(M)
    angle = np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0]))
    X = np.random.default_rng(0).normal(size=(6, 2))
    r2 = np.einsum("nmi,ij,nmj->nm", X[:, None] - X, M, X[:, None] - X)
    assert_close(Rotated(RBF(tuple(values**-0.5)), angle=angle)(X), np.exp(-0.5 * r2), 1e-10)


def test_angles_count_modulo_half_a_turn():
    X = np.random.default_rng(0).normal(size=(6, 2))
    for angle in (210.0, -150.0, 390.0):
        assert_close(Rotated(ALONG, angle=angle)(X), KERNEL(X), 1e-10)
    assert_close(Rotated(ALONG)(X), ALONG(X), 1e-10)  # open: no rotation
    assert_close(Rotated(ALONG, angle=0)(X), ALONG(X), 1e-10)


# -- settings ------------------------------------------------------------------------------------


def test_numbers_come_back_from_text_and_dictionaries():
    text = "2*rotated(rbf([5, 1]), columns=('east', 'north'), angle=30) + rotated"
    wanted = 2 * Rotated(RBF((5.0, 1.0)), ("east", "north"), 30.0) + Rotated()
    assert parse(text) == wanted == from_dict(wanted.to_dict())
    assert parse("rotated(kernel=linear() + rbf, columns=(2, 0))") == Rotated(
        Linear() + RBF(), columns=(2, 0)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotated(3.0), "such as Matern32.., not 3.0"),
        (lambda: Rotated(RBF() + Rotated()), "already holds a rotated kernel: add or multiply"),
        (lambda: Rotated(columns=1), "columns=1: give 2 to 6"),
        (lambda: Rotated(columns=(0, 0)), "columns of Rotated must be distinct"),
        (lambda: Rotated(columns=((0, 1), 2)), "give 2 to 6 by number or name"),
        (lambda: Rotated(angle=(1.0, 2.0)), "for 2 columns: give degrees, or leave it out"),
        (lambda: Rotated(angle=np.inf), "give degrees"),
        (lambda: Rotated(columns=(0, 1, 2), angle=3.0), "degrees for each of the 3 pairs"),
        (lambda: from_dict({"kernel": "rotated", "parts": "rbf"}), "has no setting 'parts'"),
    ],
)
def test_settings_that_are_refused(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def test_columns_that_are_not_there():
    with pytest.raises(InputError, match="Rotated has columns="):
        Rotated(columns=(0, 3))(np.zeros((2, 2)))


def test_degrees_have_an_angle_of_their_own_and_no_azimuth(caplog):
    table, _, y = field(60)
    for names, azimuth in ((["easting", "northing"], True), (["lon", "lat"], False)):
        caplog.clear()
        own = pd.DataFrame(np.asarray(table), columns=names)
        kernel = Rotated(RBF((2.0, 1.0)), angle=30.0)
        with caplog.at_level(logging.WARNING):
            model = daskgp.ExactGP(kernel, optimizer=None, progress=False).fit(own, y)
        assert ("azimuth" in str(model.hyperparameters_)) == azimuth
        assert ("'lon' and 'lat', degrees of longitude and latitude" in caplog.text) != azimuth
        assert ("111.2 * cos(middle latitude) * longitude" in caplog.text) != azimuth


def test_units_of_turned_coordinates_that_differ_are_told(caplog):
    table, _, y = field(60)
    own = xr.Dataset(
        {name: ("row", np.asarray(table)[:, j]) for j, name in enumerate(("east", "north"))}
    )
    own["east"].attrs["units"], own["north"].attrs["units"] = "km", "m"
    kernel = Rotated(RBF((2.0, 1.0)), angle=30.0)
    with caplog.at_level(logging.WARNING):
        daskgp.ExactGP(kernel, optimizer=None, progress=False).fit(own, xr.DataArray(y, dims="row"))
    assert "Rotated turns 'east' in 'km' and 'north' in 'm'" in caplog.text


def test_columns_have_names_but_are_no_place_on_the_sphere():
    X = np.random.default_rng(0).uniform(1, 5, (12, 3))
    table, y = pd.DataFrame(X, columns=["time", "lon", "lat"]), X[:, 0]
    kernel = Rotated(ALONG, columns=("lon", "lat"), angle=30.0)
    given = {"kernel": Rotated(RBF((2.0, 2.0, 1.0)), kernel.columns, 30.0), "optimizer": None}
    flat = daskgp.ExactGP(geographic=False, **given).fit(table, y)
    assert flat.kernel_.columns == (1, 2)
    with pytest.raises(SettingError, match=r"one place on the sphere.*: project them to metres"):
        daskgp.ExactGP(geographic=("lon", "lat"), **given).fit(table, y)
    with pytest.raises(SettingError, match="Rotated has columns with 'height'"):
        daskgp.ExactGP(Rotated(columns=("lon", "height"))).fit(table, y)


def test_columns_that_turn_share_a_scale_and_their_lengthscales_a_unit():
    kernel = Rotated(RBF((5.0, 1.0, 3.0)), columns=(0, 2), angle=30.0)
    assert kernel.tied_columns(3) == ((0, 2),)
    assert [unit.columns for unit in kernel.units(3)] == [(), (0, 2), (1,), (0, 2), ()]
    of_three = RBF((1.0, 2.0, 3.0)) + Rotated(RBF(), columns=(1, 2))
    assert of_three.tied_columns(3) == ((0, 1, 2),)  # the second part has one lengthscale


def test_open_numbers_stay_open_and_angles_are_told_from_0_to_180():
    mask = left_open(Rotated(ALONG) + RBF(1.0, 1.0), 2)
    np.testing.assert_array_equal(np.flatnonzero(mask), [3])
    assert opened(KERNEL) == Rotated(Matern32(ard=True))

    def size(unit):
        return 2.0**unit.of_inputs

    there = in_model_units(KERNEL, 2, size)
    assert there.angle == 210.0
    assert in_users_units(there, 2, size).angle == pytest.approx(30.0)
    assert reopened(there, Rotated(Matern32(ard=True))) == Rotated(Matern32(ard=True))


# -- programs, neighbours and waves --------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "known"),
    [
        (Rotated(Matern32((3.0, 0.7, 2.0), 2.0), angle=30.0), True),
        (Rotated(RBF((1.0, 2.0, 0.5)), (0, 1, 2), (20.0, 50.0, 400.0)) + Linear(), True),
        (Rotated(kernels.RationalQuadratic((1.0, 2.0, 0.6), 0.7) * 2.0 + Matern12(0.8)), True),
        (2.0 * Rotated(RBF((1.3, 0.4), active_dims=((2, 1), 0)), (2, 0), 100.0) + RBF(), True),
        (Rotated(RBF((1.3, 0.4), active_dims=(2, 0)), (1, 0), 100.0), False),
        (Rotated(Linear((1.0, 2.0, 3.0))), False),
    ],
)
def test_programs_have_its_values_and_derivatives(kernel, known):
    rng = np.random.default_rng(0)
    made, X = program(kernel, 3), rng.normal(size=(2, 6, 3))
    assert (made is not None) == known
    if made is None:
        return
    K, by_log = tiles(made, X, slopes=True)
    for i, rows in enumerate(X):
        bars = rng.normal(size=(6, 6))
        found = (by_log[:, i] * (bars + bars.T)).sum(axis=(1, 2))
        value, pull = kernel.pullback(rows)
        assert_close(K[i], value, 1e-12, 1e-12)
        assert_close(found, pull(bars + bars.T).log_parameters, 1e-11, 1e-11)


def test_neighbours_are_near_along_the_turned_axes():
    X = field(200)[0]
    units = distance_units(KERNEL, np.ptp(X, axis=0))
    along = in_units(X, units)
    wanted = X @ R.T / np.array(ALONG.lengthscale)
    ratio = np.linalg.norm(along[1:] - along[0], axis=1) / np.linalg.norm(
        wanted[1:] - wanted[0], axis=1
    )
    assert_close(ratio, np.full(199, ratio[0]), 1e-3)
    found = nearest(points_of(X, units), points_of(X[:5], units), 9)
    by_correlation = np.argsort(-KERNEL(X[:5], X), axis=1)[:, :9]
    np.testing.assert_array_equal(found, by_correlation)
    # beside a column that does not matter, or one that is the same everywhere
    more = distance_units(Rotated(Matern32((2.5, 0.5), active_dims=(0, 1)), angle=30.0), [8, 8, 1])
    assert more.shape == (2, 3)
    assert (more[:, 2] == 0).all()


def test_neighbours_are_looked_for_again_once_axes_have_turned_or_stretched():
    def units(angle, lengths=(2.5, 0.5)):
        return distance_units(Rotated(Matern32(lengths), angle=angle), [8.0, 8.0])

    assert not _moved(units(30.0), units(30.5))
    assert not _moved(units(30.0), units(210.0, (5.0, 1.0)))  # the same proportions
    assert not _moved(units(30.0), units(120.0, (0.5, 2.5)))
    assert _moved(units(30.0), units(75.0))
    assert _moved(units(30.0), units(30.0, (2.5, 1.5)))


def test_codes_of_categories_are_not_rotated():
    X, levels = np.column_stack([field(20)[0], np.arange(20) % 2]), kernels.Coregion(2, levels=2)
    for kernel in (Rotated(columns=(0, 2)) * levels, Rotated(Matern32() * levels, columns=(0, 2))):
        with pytest.raises(SettingError, match=r"of which 2 holds codes of categories"):
            daskgp.ExactGP(kernel).fit(X, X[:, 0])
    assert (Rotated() * levels).categories(3) == (2,)


def test_waves_have_its_covariance():
    kernel = Rotated(RBF((3.0, 0.7), 2.0) * Matern32(2.0) + Linear((0.5, 2.0)), angle=30.0)
    X = np.random.default_rng(0).normal(size=(4, 2))
    w, a, slopes = random_features(kernel, 20_000, 2, np.random.default_rng(1))
    waves = X @ w.T
    found = np.cos(waves[:, None] - waves) @ a**2
    assert_close(found + (X @ slopes.T) @ (X @ slopes.T).T, kernel(X), 0.02, 0.03)


# -- fits ----------------------------------------------------------------------------------------


def test_the_evidence_has_its_gradient():
    X, _, y = field(25)
    rows, theta = Block(X, y[:, None]), Theta(KERNEL, 0.05)

    def value(vector):
        return Exact().objective(theta.from_vector(vector), rows).value

    found = Exact().objective(theta, rows).gradient.to_vector(False)
    assert_close(found, central_differences(value, theta.to_vector(False)), 1e-5, 1e-6)


@pytest.mark.parametrize(
    "model",
    [
        daskgp.ExactGP(),
        daskgp.SGPR(n_inducing=12),
        daskgp.LMA(n_support=8, block_rows=15),
        daskgp.VecchiaGP(n_neighbours=6),
    ],
    ids=lambda model: type(model).__name__,
)
def test_methods_predict_as_from_rows_that_are_rotated_by_hand(model):
    X, _, y = field(60)
    model.set_params(
        optimizer=None, standardize=False, noise_variance=0.02, progress=False, random_state=0
    )
    found = model.set_params(kernel=KERNEL).fit(X[:50], y[:50]).predict(X[50:], return_std=True)
    if type(model).__name__ in ("SGPR", "LMA"):  # which choose inputs, or blocks, along columns
        assert np.sqrt(np.mean((found[0] - y[50:]) ** 2)) < y.std()
        return
    turned = model.set_params(kernel=ALONG).fit(X[:50] @ R.T, y[:50])
    for own, other in zip(found, turned.predict(X[50:] @ R.T, return_std=True), strict=True):
        assert_close(own, other, 1e-8, 1e-8)


def test_vecchia_given_all_rows_before_is_exact():
    X, _, y = field(40)
    settings = {"optimizer": None, "noise_variance": 0.02, "progress": False}
    exact, vecchia = (
        model.set_params(kernel=KERNEL, **settings).fit(X, y).score(X + 0.1, y)
        for model in (daskgp.ExactGP(), daskgp.VecchiaGP(n_neighbours=39, predict_neighbours=40))
    )
    assert_close(vecchia, exact, 1e-8)


def test_a_fit_finds_the_angle(tmp_path):
    X, _, y = field(160)
    model = daskgp.VecchiaGP(Rotated(), progress=False).fit(X[:140], y[:140])
    angle, lengths = model.kernel_.angle, model.kernel_.kernel.lengthscale
    assert abs(angle - 30.0) < 5.0
    assert 3.0 < lengths[0] / lengths[1] < 8.0
    model.save(str(tmp_path / "model"))
    again = daskgp.load(str(tmp_path / "model"))
    assert_close(again.predict(X[140:]), model.predict(X[140:]), 1e-12)
    again.update(X[140:], y[140:])  # whose neighbours are looked for in the same units
    assert_close(again.predict(X[140:]), y[140:], 0.5, 0.5)


def test_an_angle_has_limits_but_no_prior():
    X, _, y = field(40)
    kernel = Rotated(Matern32(ard=True))
    model = daskgp.ExactGP(kernel, limits={"angle": (35.0, 50.0)}, progress=False).fit(X, y)
    assert 35.0 <= round(model.kernel_.angle, 9) <= 50.0
    with pytest.raises(SettingError, match=r"'angle' takes no prior, .* limits={'angle': "):
        daskgp.ExactGP(kernel, prior={"angle": "lognormal(30, 1.1)"}).fit(X, y)


@pytest.fixture(scope="module")
def eastern():
    """A field over names that point east and north, and a model of it."""
    X, _, y = field(150)
    table = pd.DataFrame(X, columns=["easting", "northing"])
    return table, y, daskgp.ExactGP(Rotated(Matern32(ard=True)) * 1.0, progress=False).fit(table, y)


@pytest.mark.parametrize(
    "kernel",
    [Rotated(RBF()), Rotated(RBF(2.0) + Matern32(), angle=30.0), 2.0 * Rotated(Matern32() * RBF())],
)
def test_a_rotation_that_changes_nothing_is_refused(kernel):
    X, _, y = field(40)
    with pytest.raises(
        SettingError, match=r"Rotated turns 'x0', 'x1', .* one lengthscale for them"
    ):
        daskgp.ExactGP(kernel, progress=False).fit(X, y)


def test_angles_have_names_errors_and_units(eastern):
    *_, model = eastern
    known = {row.name: row for row in model.hyperparameters_}
    row = known["0.angle"]
    assert abs(row.value - 30.0) < 4.0 * row.standard_error < 20.0
    assert row.unit == "degrees"
    assert row.value == pytest.approx(model.kernel_.parts[0].angle)
    azimuth = known["0.azimuth"]
    assert azimuth.value == pytest.approx(90.0 - row.value)
    assert azimuth.standard_error == row.standard_error
    learned = model.solved_.theta.kernel
    (derived,) = learned.derived()
    assert derived.gradient[3] == pytest.approx(np.exp(learned.log_parameters[3]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what early matplotlib imports
def test_variograms_have_what_is_expected_along_the_axes_and_across(eastern):
    figure = pytest.importorskip("matplotlib.figure")
    table, y, model = eastern
    found = daskgp.variogram(table, y, model, bins=4, max_distance=2.0)
    assert found.directions[1] == "across"
    assert re.match(r"along \d+ degrees from easting to northing", found.directions[0])
    turned, scale = model.kernel_.parts[0], model.kernel_.parts[1].variance
    for j, axis in enumerate(turned.rotation):
        away = found.distance[:, None] * axis
        wanted = scale * (turned.diag(away) - turned(np.zeros((1, 2)), away)[0])
        assert_close(found.along[:, j], wanted + found.noise_variance, 1e-8)
    assert "expected across" in str(found)
    lines = daskgp.plot.variogram(found, ax=figure.Figure().subplots()).get_lines()
    assert {line.get_linestyle() for line in lines} >= {"--", "-."}
    assert daskgp.variogram(table, y, model, bins=4, columns=["easting"]).along is None
