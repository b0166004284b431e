"""Longitude and latitude in estimators, stores and the command."""

import logging
from functools import partial
from pathlib import Path

import dask.array as da
import numpy as np
import oracle
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import invoke, refused, succeed
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import daskgp
from daskgp import kernels
from daskgp.data import dataset_writer, open_dataset
from daskgp.errors import InputError, SettingError
from daskgp.models.columns import RADIUS

QUIET = {"progress": False}
PLACE = ("lon", "lat")
KERNEL = kernels.Matern32(3_000.0)
FIXED = {"kernel": KERNEL, "optimizer": None, **QUIET}


def globe(n=120, seed=0):
    """Longitude, latitude (n, 2) of places on the sphere and a smooth target with noise."""
    rng = np.random.default_rng(seed)
    lon, lat = rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))
    points = chords(lon, lat) / RADIUS
    y = np.sin(2 * points[:, 0]) + points[:, 1] * points[:, 2] + 0.1 * rng.standard_normal(n)
    return np.stack([lon, lat], axis=1), y


def chords(lon, lat):
    lon, lat = np.radians(lon), np.radians(lat)
    points = [np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)]
    return RADIUS * np.stack(points, axis=-1)


def frame(X):
    return pd.DataFrame(X, columns=list(PLACE))


def store(url, X, y, names=PLACE, **attributes):
    with dataset_writer(url, names, ("t",), 40, attributes=attributes) as writer:
        writer.append(X, y)
    return url


def grid(names=("a", "b"), attributes=None):
    """A field on a grid whose coordinates have CF attributes."""
    attributes = attributes or ({"units": "degrees_east"}, {"standard_name": "latitude"})
    lon, lat = np.arange(-180.0, 180.0, 30.0), np.arange(-75.0, 80.0, 30.0)
    coords = {
        name: (name, values, own)
        for name, values, own in zip(names, (lon, lat), attributes, strict=True)
    }
    place = chords(*(part.ravel() for part in np.meshgrid(lon, lat, indexing="ij"))) / RADIUS
    y = (np.sin(2 * place[:, 0]) + place[:, 2]).reshape(len(lon), len(lat))
    return xr.DataArray(y, coords, names, "t")


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.floats(500.0, 20_000.0), st.floats(0.5, 5.0))
def test_the_exact_gp_is_that_of_chordal_distances(seed, length, days):
    rng = np.random.default_rng(seed)
    X, y = globe(60, seed)
    X = np.column_stack([X[:, 1], rng.uniform(0, 10, 60), X[:, 0]])  # latitude, day, longitude
    kernel = kernels.Matern32((length, days), variance=1.3)
    common = {"kernel": kernel, "mean": "zero", "noise_variance": 0.2, "standardize": False}
    model = daskgp.ExactGP(geographic=(2, 0), optimizer=None, **common, **QUIET).fit(X[:50], y[:50])
    mean, cov = model.predict(X[50:], return_cov=True)
    own = np.column_stack([chords(X[:, 2], X[:, 0]) / length, X[:, 1] / days])
    r = np.sqrt(3) * np.linalg.norm(own[:, None] - own[None], axis=-1)
    K = 1.3 * (1 + r) * np.exp(-r)
    wanted = oracle.posterior(K[:50, :50], K[50:, :50], K[50:, 50:], y[:50, None], 0.2)
    np.testing.assert_allclose(mean, wanted[0][:, 0], atol=1e-9)
    np.testing.assert_allclose(cov, wanted[1], atol=1e-9)


def test_lengthscales_are_given_and_reported_in_km():
    X, y = globe()
    X = frame(X).assign(day=np.linspace(0, 9, len(X)))
    kernel = kernels.Matern32((700.0, 2.0), active_dims=("lon", "lat", "day"))
    first = daskgp.ExactGP(kernel=kernel, optimizer=None, geographic=PLACE, **QUIET).fit(X, y)
    lengths = {row.name: (row.value, row.unit) for row in first.hyperparameters_}
    assert lengths["lengthscale[0]"] == (pytest.approx(700.0), "km")
    assert lengths["lengthscale[1]"][1] == "day"
    np.testing.assert_allclose(first.kernel_.lengthscale, (700.0, 2.0))
    again = clone(first).set_params(kernel=first.kernel_).fit(X, y)
    np.testing.assert_allclose(again.predict(X), first.predict(X), rtol=1e-9)


def test_kernels_of_space_and_time_are_named_by_their_features():
    X, y = globe(200)
    day = np.random.default_rng(3).uniform(0, 9, len(X))
    X, y = frame(X).assign(day=day), y + np.sin(day)
    kernel = kernels.Matern32(active_dims=PLACE) * kernels.RBF(active_dims=("day",))
    model = daskgp.SGPR(kernel=kernel, n_inducing=30, max_iter=10, geographic=PLACE, **QUIET)
    model.fit(X, y)
    units = {row.name: row.unit for row in model.hyperparameters_}
    assert (units["0.lengthscale"], units["1.lengthscale"]) == ("km", "day")
    plain = daskgp.SGPR(kernel=kernel, n_inducing=30, max_iter=2, **QUIET).fit(X, y)
    assert plain.kernel_.parts[0].active_dims == (0, 1)


@pytest.mark.parametrize(
    ("model", "name", "learned"),
    [
        (daskgp.SGPR, "inducing", "inducing_"),
        (daskgp.LMA, "support", "support_"),
        (daskgp.SVGP, "inducing", "inducing_"),
    ],
)
def test_inputs_are_given_and_reported_as_longitude_and_latitude(model, name, learned):
    X, y = globe()
    places = globe(9, seed=5)[0]
    small = {"max_iter": 3} if model is daskgp.SVGP else {"optimizer": None}
    common = {"kernel": KERNEL, "geographic": (0, 1), **small, **QUIET}
    kept = model(**{name: places}, **common).fit(X, y)
    if model is not daskgp.SVGP:  # which trains them
        np.testing.assert_allclose(getattr(kept, learned), places, atol=1e-9)
    chosen = model(**{f"n_{name}": 9, name: "kmeans"}, **common).fit(X, y)
    inputs = getattr(chosen, learned)
    assert inputs.shape == (9, 2)
    assert (np.abs(inputs) <= (180.0, 90.0)).all()
    if model is not daskgp.SVGP:
        scaled = chosen.solved_.scaling.places(chosen.solved_.theta.inputs)
        np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), RADIUS)


def test_rows_on_the_equator_differ_from_those_off_it():
    lon = np.linspace(-180, 175, 72)
    X = np.stack([lon, np.zeros(72)], axis=1)
    model = daskgp.ExactGP(geographic=(0, 1), **FIXED).fit(X, np.sin(np.radians(lon)))
    std = model.predict(np.array([[90.0, 0.0], [90.0, 60.0]]), return_std=True)[1]
    assert std[1] > 3 * std[0]


def test_a_linear_mean_and_a_region_along_a_meridian_stay_finite():
    lat = np.linspace(40, 41, 50)
    X = np.stack([np.full(50, 90.0), lat], axis=1)
    y = 3 * lat + 0.01 * np.sin(9 * lat)
    model = daskgp.ExactGP(geographic=(0, 1), mean="linear", **FIXED).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=0.05)
    assert np.abs(model.predict(np.array([[91.0, 40.5]])) - 121.5).max() < 5


@pytest.mark.parametrize(
    ("columns", "setting", "message"),
    [
        ({"lat": 91.0}, PLACE, "'lat' has latitudes from"),
        ({"lon": -200.0}, PLACE, "'lon' has longitudes from"),
        ({}, ("lat", "lon"), "give longitude first"),
        ({}, ("lon",), "give two columns"),
        ({}, ("lon", "y"), "geographic names 'y'"),
    ],
)
def test_what_is_no_place_is_refused(columns, setting, message):
    X, y = globe()
    X = frame(X)
    for name, value in columns.items():
        X.loc[7, name] = value
    with pytest.raises((InputError, SettingError), match=message) as raised:
        daskgp.ExactGP(geographic=setting, **FIXED).fit(X, y)
    assert "\n" not in str(raised.value)


def test_rows_without_a_place_are_left_out_and_predicted_as_missing():
    X, y = globe()
    X[3, 0] = np.nan
    model = daskgp.ExactGP(geographic=(0, 1), **FIXED).fit(X, y)
    assert model.n_rows_ == len(X) - 1
    predicted = model.predict(np.array([[np.nan, 0.0], [np.inf, 0.0], [0.0, 0.0]]))
    np.testing.assert_array_equal(np.isnan(predicted), [True, True, False])
    with pytest.raises(InputError, match="latitudes from 95"):
        model.predict(np.array([[0.0, 95.0]]))


# -- labelled data and stores ----------------------------------------------------------------


def test_cf_attributes_are_recognised_said_and_switched_off(caplog):
    field = grid()
    with caplog.at_level(logging.INFO, "daskgp"):
        model = daskgp.ExactGP(**FIXED).fit(field, field)
    said = [r.getMessage() for r in caplog.records if "longitude" in r.getMessage()]
    assert len(said) == 1
    assert "'a' and 'b'" in said[0]
    assert "geographic=False" in said[0]
    assert model.solved_.geographic == (0, 1)
    ends = xr.Dataset(coords={"a": [-180.0, 180.0], "b": [10.0, 90.0]})
    for part in model.predict(ends, return_std=True):
        np.testing.assert_allclose(part[0], part[1], rtol=0, atol=1e-10)
    off = daskgp.ExactGP(geographic=False, **FIXED | {"kernel": "matern32"}).fit(field, field)
    assert off.solved_.geographic is None


@pytest.mark.parametrize(
    "attributes",
    [
        ({"units": "degreesE"}, {"units": "degree_north"}),
        ({"standard_name": "longitude"}, {"standard_name": "latitude"}),
    ],
)
def test_other_spellings_of_cf_are_recognised(attributes):
    field = grid(attributes=attributes)
    assert daskgp.ExactGP(**FIXED).fit(field, field).solved_.geographic == (0, 1)


@pytest.mark.parametrize(
    "attributes",
    [
        ({"units": "degrees_east"}, {}),
        ({"units": "degrees"}, {"units": "degrees"}),
        ({"units": "degrees_east"}, {"units": "degrees_east"}),
    ],
)
def test_half_a_place_is_not_taken_for_one(attributes):
    field = grid(attributes=attributes)
    model = daskgp.ExactGP(**FIXED | {"kernel": "matern32"}).fit(field, field)
    assert model.solved_.geographic is None


def test_stores_keep_what_is_longitude_and_latitude(tmp_path):
    X, y = globe()
    url = store(f"{tmp_path}/d.zarr", X, y, geographic=list(PLACE))
    model = daskgp.LMA(n_support=10, block_rows=30, **FIXED).fit(*open_dataset(url))
    direct = daskgp.LMA(n_support=10, block_rows=30, geographic=(0, 1), **FIXED).fit(X, y)
    np.testing.assert_allclose(model.predict(X), direct.predict(X), atol=1e-12)
    off = daskgp.ExactGP(geographic=False, **FIXED).fit(*open_dataset(url))
    assert off.solved_.geographic is None
    lazily = model.predict(open_dataset(url)[0])
    assert isinstance(lazily, da.Array)
    np.testing.assert_array_equal(lazily.compute(), model.predict(X))
    model.predict_store(url, f"{tmp_path}/p.zarr")
    np.testing.assert_array_equal(zarr.open(f"{tmp_path}/p.zarr")["mean"][...], model.predict(X))
    assert model.score(*open_dataset(url)) == pytest.approx(model.score(X, y))


def test_blocks_of_a_prepared_store_are_near_on_the_sphere(tmp_path):
    X, y = globe(400)
    url = store(f"{tmp_path}/d.zarr", X, y)
    daskgp.prepare(url, f"{tmp_path}/b.zarr", block_rows=20, geographic=PLACE, **QUIET)
    rows = open_dataset(f"{tmp_path}/b.zarr")[0].compute()
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(X, axis=0))
    middles = chords(*rows.T).reshape(20, 20, 3).mean(axis=1)
    centroids = zarr.open(f"{tmp_path}/b.zarr")["block_centroids"][...]
    np.testing.assert_allclose(centroids, middles, atol=1e-6)
    model = daskgp.LMA(n_support=10, **FIXED).fit(*open_dataset(f"{tmp_path}/b.zarr"))
    assert model.solved_.geographic == (0, 1)
    with pytest.raises(InputError, match="made with geographic=lon, lat, not geographic=False"):
        daskgp.LMA(geographic=False, **FIXED).fit(*open_dataset(f"{tmp_path}/b.zarr"))
    with pytest.raises(SettingError, match="both in km: give them the same"):
        daskgp.prepare(url, f"{tmp_path}/c.zarr", lengthscales=[1.0, 2.0], geographic=PLACE)
    with pytest.raises(SettingError, match="one place on the sphere: name both"):
        daskgp.prepare(url, f"{tmp_path}/c.zarr", order="lon", geographic=PLACE)


def test_gaps_at_a_pole_and_on_the_date_line_are_as_those_of_the_exact_gp():
    X, y = globe(1_500)
    middles = chords(np.array([0.0, 180.0]), np.array([90.0, -20.0]))
    away = np.linalg.norm(chords(*X.T)[:, None] - middles, axis=2)
    gap = (away < 2_500).any(axis=1)
    common = {**FIXED, "noise_variance": 0.02, "geographic": (0, 1)}
    exact = daskgp.ExactGP(**common).fit(X[~gap], y[~gap])
    local = daskgp.LMA(n_support=64, block_rows=64, predict_rows=128, **common)
    local.fit(X[~gap], y[~gap])
    (mean, std), (own, own_std) = (m.predict(X[gap], return_std=True) for m in (exact, local))
    np.testing.assert_allclose(own_std / std, 1.0, atol=0.1)
    assert np.abs(own - mean).max() < 0.5 * std.max()


@pytest.mark.parametrize("order", [("lon", "lat", "day"), ("day", "lat", "lon"), "hilbert"])
def test_blocks_along_a_curve_are_near_in_space_and_time(order, tmp_path):
    rng = np.random.default_rng(0)
    X, y = globe(4_000)
    X = np.insert(X, 1, rng.uniform(0, 20, len(X)), axis=1)
    names = ("lon", "day", "lat")
    url, blocks = (f"{tmp_path}/{name}.zarr" for name in ("d", "b"))
    store(url, X, y, names)
    common = {"lengthscales": [2_000.0, 4.0, 2_000.0], "geographic": PLACE}
    daskgp.prepare(url, blocks, order, block_rows=40, **common, **QUIET)
    rows = open_dataset(blocks)[0].compute().reshape(100, 40, 3)
    for part in (chords(rows[..., 0], rows[..., 2]), rows[..., 1:2]):
        within, all_rows = part.var(axis=1).sum(axis=-1).mean(), part.var(axis=(0, 1)).sum()
        assert within < 0.15 * all_rows
    with pytest.raises(SettingError, match="columns of lon, day, lat, or one of 'auto'"):
        daskgp.prepare(url, f"{tmp_path}/c.zarr", order=("lon", "lat", "day", "x"), **common)


def test_stores_of_versions_without_the_setting_load(tmp_path, monkeypatch):
    X, y = globe()
    model = daskgp.SGPR(n_inducing=10, **FIXED).fit(X, y)
    before = model.get_params(deep=False)
    before.pop("geographic")
    monkeypatch.setattr(daskgp.SGPR, "get_params", lambda self, deep=True: before)
    model.save(f"{tmp_path}/m.zarr")
    monkeypatch.undo()
    loaded = daskgp.load(f"{tmp_path}/m.zarr")
    assert loaded.solved_.geographic is None
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_more_rows_are_of_the_columns_of_the_first(tmp_path):
    field = grid()
    model = daskgp.SVGP(n_inducing=8, batch_rows=20, **QUIET).partial_fit(field, field)
    X, y = globe()
    model.partial_fit(X, y)
    assert model.solved_.geographic == (0, 1)


def test_a_plan_is_measured_with_names_of_columns():
    X, y = globe(300)
    kernel = kernels.Matern32(active_dims=PLACE)
    model = daskgp.SGPR(kernel=kernel, n_inducing=10, geographic=PLACE, **QUIET)
    assert model.plan(frame(X), y, measure=True).seconds > 0


# -- the command -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_converts_fits_predicts_and_tells(tmp_path):
    X, y = globe()
    frame(X).assign(t=y).to_csv(f"{tmp_path}/d.csv", index=False)
    plain, known = f"{tmp_path}/plain.zarr", f"{tmp_path}/known.zarr"
    source = ["convert", f"{tmp_path}/d.csv"]
    succeed(*source, plain, "--target", "t")
    said = succeed(*source, known, "--target", "t", "--geographic", "lon,lat")
    assert said["geographic"] == ["lon", "lat"]
    fit = ["--model", "sgpr", "--set", "n_inducing=10", "--set", "max_iter=2"]
    succeed("fit", plain, f"{tmp_path}/a.zarr", *fit, "--set", "geographic=lon,lat")
    succeed("fit", known, f"{tmp_path}/b.zarr", *fit)
    one, two = (daskgp.load(f"{tmp_path}/{name}.zarr") for name in "ab")
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    succeed("fit", known, f"{tmp_path}/off.zarr", *fit, "--set", "geographic=false")
    assert daskgp.load(f"{tmp_path}/off.zarr").solved_.geographic is None
    line = refused("fit", plain, f"{tmp_path}/c.zarr", *fit, "--set", "geographic=lon")
    assert "give two columns" in line
    line = refused(*source, f"{tmp_path}/e.zarr", "--geographic", "lon,la")
    assert "'la'" in line
    succeed("prepare", known, f"{tmp_path}/blocks.zarr", "--block-rows", "30")
    assert zarr.open(f"{tmp_path}/blocks.zarr").attrs["geographic"] == ["lon", "lat"]


def test_every_command_that_reads_a_source_is_told_the_place(here, tmp_path):
    X, y = globe()
    source, target = f"{tmp_path}/d.csv", ("--target", "t")
    frame(X).assign(t=y).to_csv(source, index=False)
    fit = ("--model", "sgpr", "--set", "n_inducing=10", "--set", "max_iter=2")
    place = ("--geographic", "lon,lat")
    model, flat, stored = (f"{tmp_path}/{name}.zarr" for name in ("m", "flat", "stored"))
    succeed("fit", source, model, *fit, *target, *place)
    succeed("fit", source, flat, *fit, *target)
    found, wanted = daskgp.load(model), daskgp.SGPR(n_inducing=10, max_iter=2, **QUIET)
    assert found.solved_.geographic == (0, 1)
    wanted.set_params(geographic=PLACE).fit(source, "t")
    np.testing.assert_array_equal(found.predict(X), wanted.predict(X))
    succeed("convert", source, stored, *target)
    succeed("fit", stored, f"{tmp_path}/n.zarr", *fit, *place)
    assert daskgp.load(f"{tmp_path}/n.zarr").solved_.geographic == (0, 1)
    assert invoke("plan", source, *fit, *target, *place).exit_code == 0
    scored = succeed("score", model, source, *target)
    assert succeed("score", model, source, *target, *place)["rmse"] == scored["rmse"]
    assert succeed("score", model, stored, *place)["rmse"] == scored["rmse"]
    assert succeed("check", model, source, *target, *place, "--json")["n"] == len(X)
    for command in ("score", "check"):
        line = refused(command, model, source, *target, "--geographic", "none")
        assert "fitted with distances on the sphere, of lon, lat: leave it out" in line
        line = refused(command, flat, stored, *place)
        assert "fitted without longitude and latitude: leave it out" in line
    line = refused("fit", source, f"{tmp_path}/o.zarr", *fit, *target, "--geographic", "lat,lon")
    assert "give longitude first" in line
    assert not Path(f"{tmp_path}/o.zarr").exists()


def test_info_speaks_of_kilometres(tmp_path, capsys):
    from daskgp.cli.tables import describe

    X, y = globe()
    daskgp.SGPR(n_inducing=10, max_iter=2, geographic=PLACE, **QUIET).fit(frame(X), y).save(
        f"{tmp_path}/m.zarr"
    )
    describe(f"{tmp_path}/m.zarr")
    shown = capsys.readouterr().out
    assert "km" in shown
    assert "longitude lon, latitude lat" in shown
    describe(store(f"{tmp_path}/d.zarr", X, y, geographic=list(PLACE)))
    assert "longitude, latitude" in capsys.readouterr().out


def test_grids_with_cf_attributes_convert_to_stores_that_say_so(tmp_path):
    grid().to_dataset().to_netcdf(f"{tmp_path}/g.nc")
    found = daskgp.convert(f"{tmp_path}/g.nc", f"{tmp_path}/g.zarr", target="t")
    assert found.geographic == ("a", "b")
    assert zarr.open(f"{tmp_path}/g.zarr").attrs["geographic"] == ["a", "b"]
    daskgp.convert(f"{tmp_path}/g.nc", f"{tmp_path}/off.zarr", target="t", geographic=False)
    assert "geographic" not in zarr.open(f"{tmp_path}/off.zarr").attrs


def test_appended_rows_are_of_the_place_that_the_store_names(tmp_path):
    X, y = globe(30)
    rows, url = frame(X).assign(t=y, e=0.1, w=2.0), f"{tmp_path}/d.zarr"
    noise = {"y_std": "e", "weight": "w"}
    daskgp.convert(rows, url, "t", PLACE, geographic=PLACE, **noise)
    added = daskgp.convert(rows, url, "t", PLACE, append=True, **noise)
    assert added.geographic == PLACE
    assert daskgp.convert(rows, f"{tmp_path}/p.zarr", like=url).geographic == PLACE
    for setting in (PLACE, False):
        with pytest.raises(SettingError, match="no effect with append"):
            daskgp.convert(rows, url, "t", append=True, geographic=setting, **noise)
    with pytest.raises(InputError, match="latitudes from"):
        daskgp.convert(rows.assign(lat=200.0), url, "t", PLACE, append=True, **noise)
    group = zarr.open_group(url)
    assert group.attrs["geographic"] == [*PLACE]
    assert group.attrs["complete"] is True
    np.testing.assert_array_equal(group["X"][...], np.tile(X, (2, 1)))


def test_blocks_on_the_sphere_keep_errors_and_weights(tmp_path):
    X, y = globe(60)
    order = np.random.default_rng(4).permutation(60)
    error, weight = 0.1 + 0.01 * order, 1.0 + order
    url = f"{tmp_path}/b.zarr"
    given = {"y_variance": error, "sample_weight": weight}
    daskgp.prepare((frame(X), y), url, block_rows=20, geographic=PLACE, **given, **QUIET)
    group = zarr.open_group(url, mode="r")
    assert group.attrs["geographic"] == [*PLACE]
    stored = [group[name][...] for name in ("X", "y", "y_variance", "weight")]
    own = [np.column_stack(parts) for parts in (stored, (X, y, error, weight))]
    np.testing.assert_array_equal(*(rows[np.lexsort(rows.T)] for rows in own))
    kept = daskgp.ExactGP(**FIXED).fit(*open_dataset(url))
    made = daskgp.ExactGP(**FIXED, geographic=PLACE).fit(frame(X), y, **given)
    np.testing.assert_allclose(kept.predict(X), made.predict(X), rtol=0, atol=1e-8)


def test_variograms_have_distances_on_the_sphere():
    X, y = globe(40)
    model = daskgp.ExactGP(**FIXED, geographic=PLACE).fit(frame(X), y)
    bounds = [0.0, 3_000.0, 13_000.0]
    found = daskgp.variogram(frame(X), y, model, bins=bounds, **QUIET)
    points = chords(*X.T)
    i, j = np.triu_indices(40, 1)
    away = np.linalg.norm(points[i] - points[j], axis=1)
    near = away < 3_000.0
    assert found.distance_unit == "km"
    np.testing.assert_array_equal(found.pairs, [near.sum(), (~near).sum()])
    np.testing.assert_allclose(found.distance, [away[near].mean(), away[~near].mean()])
    prior = model.kernel_(np.zeros((1, 2)))[0, 0]
    assert (found.expected < (prior + found.noise_variance) * 1.0001).all()
    assert found.expected[0] < found.expected[1]
    with pytest.raises(SettingError, match="one place on the sphere"):
        daskgp.variogram(frame(X), y, model, columns=["lon"], **QUIET)


def test_swapped_longitude_and_latitude_are_told():
    X, y = globe()
    swapped = pd.DataFrame(X[:, ::-1], columns=list(PLACE))
    with pytest.raises(InputError) as caught:
        daskgp.ExactGP(**FIXED, geographic=PLACE).fit(swapped, y)
    assert "'lat' has latitudes from -17" in str(caught.value)
    says = "if they are swapped, geographic=('lat', 'lon') (--geographic lat,lon); else correct"
    assert says in str(caught.value)
    wrong = frame(X).assign(lat=X[:, 1] + 300)
    with pytest.raises(InputError, match=r"not degrees from -90 to 90: correct them"):
        daskgp.ExactGP(**FIXED, geographic=PLACE).fit(wrong, y)


def in_time():
    X, y = globe(40)
    when = pd.date_range("2020-01-01", periods=40, freq="12h")
    return frame(X).assign(when=when, depth=X[:, 0] ** 2), y


def test_distances_do_not_mix_kilometres_and_days(tmp_path):
    X, y = in_time()
    model = daskgp.ExactGP("matern32(ard=true)", optimizer=None, geographic=PLACE, **QUIET)
    model.fit(X[["lon", "lat", "when"]], y)
    for chosen in ({}, {"columns": ["lon", "lat", "when"]}):
        with pytest.raises(SettingError) as caught:
            daskgp.variogram(X[["lon", "lat", "when"]], y, model, **chosen, **QUIET)
        assert str(caught.value) == (
            "distances over lon, lat, when would mix km and days: choose columns of one unit, such "
            "as columns=['lon', 'lat']"
        )
    for columns, unit in ((["lat", "lon"], "km"), (["when"], "days")):
        rows = X[["lon", "lat", "when"]]
        assert daskgp.variogram(rows, y, model, columns=columns, **QUIET).distance_unit == unit
    deep = daskgp.ExactGP("matern32(ard=true)", optimizer=None, geographic=PLACE, **QUIET)
    rows = X[["lon", "lat", "depth"]]
    deep.fit(rows, y)
    with pytest.raises(SettingError, match="would mix km and 'depth'"):
        daskgp.variogram(rows, y, deep, **QUIET)
    daskgp.variogram(rows, y, deep, columns=["lon", "lat", "depth"], **QUIET)


def test_lengthscales_of_times_are_in_their_unit():
    X, y = in_time()
    model = daskgp.ExactGP("matern32(ard=true)", max_iter=1, geographic=PLACE, **QUIET)
    model.fit(X[["lon", "lat", "when", "depth"]], y)
    units = {row.name: row.unit for row in model.hyperparameters_}
    assert [units[f"lengthscale[{j}]"] for j in range(3)] == ["km", "days", "depth"]


@pytest.mark.parametrize(
    ("names", "setting"),
    [
        (["lat", "lon"], ("lat", "lon")),
        (["latitude", "Longitude"], (0, 1)),
        (["lat_deg", "lng"], (0, 1)),
        (["decimalLatitude", "decimalLongitude"], (0, 1)),
        (["XLAT", "XLONG"], (0, 1)),
        (["nav_lat", "nav_lon"], ("nav_lat", "nav_lon")),
        (["Breitengrad", "Längengrad"], (0, 1)),
        (["breitengrad", "laengengrad"], (0, 1)),
        (["latitud", "longitud"], (0, 1)),
        (["clat", "clon"], (0, 1)),
        (["LatDD", "LonDD"], (0, 1)),
        (["lat_deg", "long_deg"], (0, 1)),
        (["lat 2", "long 2"], (0, 1)),
        (["geoLat", "where"], (0, 1)),
        (["up", "station_longitude"], (0, 1)),
    ],
)
def test_longitude_and_latitude_in_the_wrong_order_are_refused_by_their_names(names, setting):
    X = pd.DataFrame(np.random.default_rng(0).uniform(0, 50, (20, 2)), columns=names)
    model = daskgp.ExactGP(geographic=setting, **FIXED)
    with pytest.raises(
        SettingError, match=r"is l\w+tude by its name.*: give longitude first"
    ) as told:
        model.fit(X, X.to_numpy().sum(axis=1))
    assert str(told.value).endswith(f"(--geographic {names[1]},{names[0]})")
    model.set_params(geographic=(1, 0)).fit(X, X.to_numpy().sum(axis=1))


def test_columns_that_contradict_the_attributes_of_the_data_are_refused():
    values = np.random.default_rng(0).uniform(0, 50, (4, 5))
    axes = {"up": np.arange(4.0), "across": np.arange(5.0)}
    field = xr.DataArray(values, axes, ("up", "across"), "t")
    field["up"].attrs["units"], field["across"].attrs["units"] = "degrees_north", "degrees_east"
    model = daskgp.ExactGP(geographic=("up", "across"), **FIXED)
    with pytest.raises(SettingError, match="'up' is latitude by its attributes and 'across'"):
        model.fit(field, field)
    assert model.set_params(geographic=None).fit(field, field).solved_.geographic == (1, 0)


@pytest.mark.whole
@pytest.mark.parametrize(
    "name", ["flat", "lateral", "plot", "along", "lo", "long_term_mean", "long wave"]
)
def test_words_that_only_look_like_longitude_and_latitude_are_names_like_others(name):
    X = pd.DataFrame(np.random.default_rng(0).uniform(0, 50, (20, 2)), columns=[name, "other"])
    for pair in ((0, 1), (1, 0)):
        daskgp.ExactGP(geographic=pair, **FIXED).fit(X, X.to_numpy().sum(axis=1))


def of_sphere(lon, lat):
    """A field whose coordinates have these attributes."""
    return grid(attributes=(lon, lat))


@pytest.mark.whole
@pytest.mark.parametrize("form", ["object", "file", "store"])
def test_places_in_radians_are_refused_with_the_remedy(form, tmp_path):
    east = {"standard_name": "longitude", "units": "radian"}
    field = of_sphere(east, {"standard_name": "latitude", "units": "radians"})
    field = field.assign_coords({n: (n, np.radians(field[n].values), field[n].attrs) for n in "ab"})
    says = (
        r"'a' is in 'radian', but longitude and latitude are taken in degrees east and north: make"
    )
    run = partial(daskgp.ExactGP(**FIXED).fit, field, field)
    if form == "file":
        field.to_netcdf(tmp_path / "g.nc")
        run = partial(daskgp.convert, f"{tmp_path}/g.nc", f"{tmp_path}/d.zarr", "t", **QUIET)
    elif form == "store":
        url, says = f"{tmp_path}/s.zarr", says.replace("'a'", "'lon'")
        store(url, *globe(), feature_units=["radian", "radian"])
        run = partial(daskgp.ExactGP(geographic=PLACE, **FIXED).fit, *open_dataset(url))
    with pytest.raises(InputError, match=says):
        run()
    plain = daskgp.ExactGP("matern32(1.0)", optimizer=None, geographic=False, **QUIET)
    assert plain.fit(field, field).solved_.geographic is None


@pytest.mark.whole
def test_places_of_predictions_in_radians_are_refused():
    X, y = globe()
    fitted = daskgp.ExactGP(geographic=PLACE, **FIXED).fit(frame(X), y)
    unit = {"units": "radians"}
    places = xr.Dataset(coords={"lon": ("lon", [0.1, 0.2], unit), "lat": ("lat", [0.3], unit)})
    with pytest.raises(
        InputError, match=r"'lon' of the grid is in 'radians', but the model was fi"
    ):
        fitted.predict(places)
    degrees = places.assign_coords(
        {n: (n, np.degrees(places[n].values), {"units": "°"}) for n in PLACE}
    )
    wanted = fitted.predict(np.degrees([[0.1, 0.3], [0.2, 0.3]]))
    np.testing.assert_allclose(fitted.predict(degrees).values.ravel(), wanted, rtol=1e-9)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        (
            ("degrees_north", "degrees_north"),
            "'lon' is longitude by its name and latitude by its un",
        ),
        (
            ("degrees_north", "degrees_east"),
            "'lon' is longitude by its name and latitude by its un",
        ),
        (("degrees_east", "degrees_E"), "'lat' is latitude by its name and longitude by its units"),
    ],
)
def test_attributes_that_contradict_the_name_of_a_coordinate_are_refused(
    attributes, says, tmp_path
):
    field = grid(PLACE, tuple({"units": unit} for unit in attributes))
    for geographic in (None, PLACE):
        with pytest.raises(InputError, match=says):
            daskgp.ExactGP(geographic=geographic, **FIXED).fit(field, field)
    field.to_netcdf(tmp_path / "g.nc")
    line = refused("convert", f"{tmp_path}/g.nc", f"{tmp_path}/d.zarr", "--target", "t")
    assert line.endswith("correct one of them, or give geographic=False (--geographic none)")
    assert not Path(f"{tmp_path}/d.zarr").exists()
    plain = daskgp.ExactGP("matern32(50.0)", optimizer=None, geographic=False, **QUIET)
    assert plain.fit(field, field).solved_.geographic is None
    twice = grid(PLACE, ({"units": "degrees_north", "standard_name": "longitude"}, {}))
    with pytest.raises(InputError, match="'lon' is longitude by its standard_name 'longitude' and"):
        daskgp.ExactGP(**FIXED).fit(twice, twice)


@pytest.mark.parametrize("fill", [-9999, -999])
def test_places_that_are_fill_values_are_missing_in_fits_of_files(fill, tmp_path):
    X, y = globe(60)
    table = frame(X).assign(t=y)
    table.loc[[3, 4, 5], list(PLACE)] = fill
    table.to_csv(tmp_path / "t.csv", index=False)
    found = daskgp.ExactGP(geographic=PLACE, **FIXED).fit(f"{tmp_path}/t.csv", "t")
    assert found.n_rows_ == 57
    says = rf"'lon' has longitudes from {fill} .*\(fill_values=\[{fill}\], or --fill {fill} of conv"
    with pytest.raises(InputError, match=says):
        daskgp.ExactGP(geographic=PLACE, fill_values=None, **FIXED).fit(f"{tmp_path}/t.csv", "t")
