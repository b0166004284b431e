"""Labelled grids into maps: coordinates, chunks, masks, growth, and what a repeated run leaves."""

import os
import re
import warnings
from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import files, invoke, refused, start, stop_when, succeed
from scipy.stats import norm

import daskgp
from daskgp.data import axes, prediction_store
from daskgp.data.stores import locks
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.posterior.layers.chain import Outer
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.process import single_blas_thread

FEATURES = ["time", "lat", "lon"]
START = np.datetime64("2020-01-01", "ns")
SETTINGS = {"n_inducing": 20, "optimizer": None, "kernel": "rbf(1.0)", "progress": False}


def table(p=1, n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform([18262, -1, 0], [18272, 1, 2], (n, 3))
    y = np.stack([np.sin(3 * X[:, 1]) + X[:, 2], X[:, 1] * X[:, 2]], axis=1)
    names = ["sst", "salt"][:p]
    return pd.DataFrame(X, columns=FEATURES), pd.DataFrame(y[:, :p], columns=names)


@pytest.fixture(scope="module")
def model():
    X, y = table()
    fitted = daskgp.SGPR(**SETTINGS).fit(X, y["sst"])
    fitted.solved_ = replace(fitted.solved_, target_units=("K",))
    return fitted


@pytest.fixture(autouse=True)
def one_thread():
    with single_blas_thread():
        yield


def grid(days=3, first=0):
    """A grid of some days, with a mask and the field that is not to be read."""
    days = START + (first + np.arange(days)) * np.timedelta64(1, "D")
    land = np.where(np.arange(77).reshape(7, 11) % 5 == 0, np.nan, 1.0)
    field = np.zeros((len(days), 7, 11))
    return xr.Dataset(
        {"sst": (("time", "lat", "lon"), field), "land": (("lat", "lon"), land)},
        coords={
            "time": ("time", days, {"long_name": "day"}),
            "lat": ("lat", np.linspace(-1, 1, 7, dtype="f4"), {"units": "degrees_north"}),
            "lon": ("lon", np.linspace(0, 2, 11), {"units": "degrees_east"}),
            "level": ((), 2.5, {"units": "m"}),
        },
    )


def stored(path, data=None, chunks=(2, 4, 5)):
    data = grid() if data is None else data
    data.to_zarr(path, encoding={"sst": {"chunks": chunks}}, consolidated=False)
    return str(path)


def append(path, data):
    data = data.drop_vars([name for name in data.variables if "time" not in data[name].dims])
    data.to_zarr(path, append_dim="time", consolidated=False)


def opened(url):
    """The map as a reader gets it, without a word about how."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = xr.open_zarr(url).load()
    xr.testing.assert_identical(found, xr.open_zarr(url, consolidated=False).load())
    return found


def wanted(model, data):
    mean, std = model.predict(data, return_std=True, include_noise=True)
    return mean, std


def check(model, url, data, seen=None):
    """The map is that of ``predict`` on the grid, where cells are seen."""
    found = opened(url)
    for name, values in zip(("mean", "std"), wanted(model, data), strict=True):
        values = values if seen is None else values.where(seen)
        np.testing.assert_allclose(found[name], values.transpose(*found[name].dims), rtol=1e-9)
        assert found[name].dims == values.dims
    for name, values in data.coords.items():
        assert found[name].dtype == values.dtype
        assert found[name].attrs == values.attrs
        np.testing.assert_array_equal(found[name], values)
    return found


def test_a_grid_on_disk_becomes_a_map_with_its_coordinates_and_chunks(model, tmp_path):
    source, output = stored(tmp_path / "g.zarr"), str(tmp_path / "m.zarr")
    assert model.predict_store(source, output) == (231, 0)
    found = check(model, output, grid())
    assert set(found.data_vars) == {"mean", "std"}
    assert xr.open_zarr(output)["mean"].chunks == ((2, 1), (4, 3), (5, 5, 1))
    assert found["mean"].attrs == {
        "long_name": "posterior mean of sst",
        "units": "K",
        "ancillary_variables": "std",
    }
    said = "posterior standard deviation of a new observation of sst"
    assert found["std"].attrs == {"long_name": said, "units": "K"}
    assert model.is_predicted(source, output)
    assert model.predict_store(source, output, resume=True) == (0, 231)


def test_a_map_names_the_store_of_its_model(tmp_path):
    X, y = table()
    fitted, url = daskgp.SGPR(**SETTINGS).fit(X, y["sst"]), str(tmp_path / "model.zarr")
    fitted.predict_store(grid(1), str(tmp_path / "before.zarr"))
    assert zarr.open_group(tmp_path / "before.zarr").attrs["model"] is None
    fitted.save(url)
    for name, one in (("saved.zarr", fitted), ("loaded.zarr", daskgp.load(url))):
        one.predict_store(grid(1), str(tmp_path / name))
        assert zarr.open_group(tmp_path / name).attrs["model"] == url


@pytest.mark.parametrize("kind", ["netcdf", "memory", "dask", "array", "transposed", "zarr2"])
def test_any_labelled_grid_is_an_input(kind, model, tmp_path):
    data, output = grid(), str(tmp_path / "m.zarr")
    if kind == "transposed":
        data = data.transpose("lon", "time", "lat")
        source = stored(tmp_path / "g.zarr", data, (11, 2, 3))
    elif kind == "zarr2":
        source = str(tmp_path / "g.zarr")
        data.to_zarr(source, zarr_format=2)
    elif kind == "netcdf":
        source = str(tmp_path / "g.nc")
        data.to_netcdf(source)
    else:
        source = {"memory": data, "dask": data.chunk(time=2, lat=3), "array": data.sst}[kind]
    assert model.predict_store(source, output) == (231, 0)
    found = check(model, output, data)
    assert found["mean"].dims == data.sst.dims
    assert model.predict_store(source, output, resume=True) == (0, 231)
    if kind == "dask":
        assert xr.open_zarr(output)["mean"].chunks == ((2, 1), (3, 3, 1), (11,))


@pytest.mark.parametrize("kind", ["nan", "integers", "booleans", "filled integers", "memory"])
def test_masked_cells_stay_masked_and_are_not_predicted(kind, model, tmp_path, monkeypatch):
    data, seen = grid(), grid().land.notnull().copy()
    seen[:4, :5] = False  # a whole chunk
    data["land"] = {
        "nan": seen.where(seen),
        "memory": seen,
        "integers": seen.astype("i4"),
        "booleans": seen,
        "filled integers": seen.astype("f8").where(seen | (seen.lon > 1)),
    }[kind]
    if kind == "filled integers":
        data.land.encoding = {"dtype": "i2", "_FillValue": -1}
    source, output = stored(tmp_path / "g.zarr", data), str(tmp_path / "m.zarr")
    source = data if kind == "memory" else source
    rows, plain = [], Posterior.moments
    monkeypatch.setattr(
        Posterior,
        "moments",
        lambda self, X, *a, **k: rows.append(len(X)) or plain(self, X, *a, **k),
    )
    count = 3 * int(seen.sum())
    assert model.predict_store(source, output, mask="land") == (count, 0)
    assert sum(rows) == count
    check(model, output, data, seen)
    with pytest.raises(StoreError, match="were made with mask land, but this run has none"):
        model.predict_store(source, output, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 4, 30])
def test_a_new_day_is_predicted_alone_whatever_the_chunks(chunk, model, tmp_path):
    source = stored(tmp_path / "g.zarr", grid(2), (chunk, 4, 5))
    output = str(tmp_path / "m.zarr")
    model.predict_store(source, output)
    for day in range(2, 7):
        before = opened(output)
        append(source, grid(1, day))
        assert not model.is_predicted(source, output)
        assert model.predict_store(source, output, resume=True) == (77, 77 * day)
        found = check(model, output, grid(day + 1))
        xr.testing.assert_identical(found.isel(time=slice(day))["mean"], before["mean"])
    assert not np.isnan(opened(output)["mean"]).any()


def test_a_grid_may_grow_along_every_dimension(model, tmp_path):
    whole = grid(5)
    for days, lats, lons in ((2, 3, 4), (2, 5, 4), (4, 7, 9), (5, 7, 11)):
        part = whole.isel(time=slice(days), lat=slice(lats), lon=slice(lons))
        model.predict_store(part.chunk(time=2, lat=4, lon=3), tmp_path / "m.zarr", resume=True)
        check(model, tmp_path / "m.zarr", part)
    with pytest.raises(StoreError, match=r"have 5 cells along time, .* has 4"):
        model.predict_store(whole.isel(time=slice(4)), tmp_path / "m.zarr", resume=True)


def covariates(n=3):
    rng = np.random.default_rng(1)
    values = rng.uniform(0, 2, (n, 7, 11)).astype("f4")
    data = grid(n)
    return data.drop_vars(["lon", "sst", "land"]).assign(lon=(("time", "lat", "x"), values))


def test_a_grid_that_changed_is_refused_and_one_that_was_copied_is_compared(model, tmp_path):
    source, output = str(tmp_path / "g.zarr"), str(tmp_path / "m.zarr")
    covariates().to_zarr(source, encoding={"lon": {"chunks": (2, 4, 5)}}, consolidated=False)
    assert model.predict_store(source, output) == (231, 0)
    np.testing.assert_allclose(opened(output)["mean"], model.predict(covariates()), rtol=1e-9)
    array = zarr.open_group(source)["lon"]
    array[0, 0, 0] = array[0, 0, 0]  # written, and the same
    assert not model.is_predicted(source, output)
    assert model.predict_store(source, output, resume=True) == (0, 231)
    assert model.is_predicted(source, output)
    array[2, 5, 7] += 0.1
    match = "time 2 to 2, lat 4 to 6, x 5 to 9 of the input have changed"
    with pytest.raises(StoreError, match=match):
        model.predict_store(source, output, resume=True)


def test_a_part_of_a_chunk_that_changed_is_refused_when_the_grid_grows_into_it(model, tmp_path):
    source, output = str(tmp_path / "g.zarr"), str(tmp_path / "m.zarr")
    covariates().to_zarr(source, encoding={"lon": {"chunks": (9, 4, 5)}}, consolidated=False)
    model.predict_store(source, output)
    append(source, covariates(4).isel(time=[3]).assign_coords(time=grid(1, 3).time))
    zarr.open_group(source)["lon"][1, 5, 7] += 0.1
    with pytest.raises(StoreError, match="have changed since they were predicted"):
        model.predict_store(source, output, resume=True)


def test_days_in_other_order_are_another_grid(model, tmp_path):
    data = grid().chunk(time=2)
    model.predict_store(data, tmp_path / "m.zarr")
    with pytest.raises(StoreError, match="have changed"):
        model.predict_store(data.isel(time=[1, 0, 2]), tmp_path / "m.zarr", resume=True)


@pytest.mark.parametrize("p", [2])
def test_two_targets_have_a_dimension_of_their_names(p, tmp_path):
    two = daskgp.SGPR(**SETTINGS).fit(*table(p))
    two.predict_store(grid().chunk(time=2), tmp_path / "m.zarr", variance=True, quantiles=[0.1])
    found = opened(tmp_path / "m.zarr")
    assert found["mean"].dims == ("time", "lat", "lon", "target")
    assert found["quantiles"].dims == ("time", "lat", "lon", "target", "quantile")
    assert list(found.target.values) == ["sst", "salt"]
    mean, std = wanted(two, grid())
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(found["variance"], std**2, rtol=1e-9)
    low = mean - 1.2815515655446004 * std
    np.testing.assert_allclose(found.quantiles[..., 0], low, rtol=1e-9)
    _, lazily = two.predict(grid().chunk(time=2), quantiles=[0.1])
    assert lazily.dims == found["quantiles"].dims


def test_quantiles_and_probabilities_on_request(model, tmp_path):
    output = tmp_path / "m.zarr"
    levels = (0.05, 0.5, 0.95)
    asked = {"quantiles": levels, "exceedance": 1.0, "variance": True}
    model.predict_store(grid(), output, **asked)
    found = opened(output)
    mean, std = wanted(model, grid())
    np.testing.assert_allclose(found.quantiles.sel(quantile=0.5), mean, rtol=1e-9)
    np.testing.assert_allclose(found.quantiles[..., 2], mean + 1.6448536269514722 * std, rtol=1e-9)
    np.testing.assert_allclose(found.exceedance, norm.sf(1.0, mean, std), rtol=1e-9)
    assert found.exceedance.attrs["threshold"] == 1.0
    assert found["mean"].attrs["ancillary_variables"] == "std variance quantiles exceedance"
    assert found.variance.attrs["units"] == "(K)2"
    mean, quantiles = model.predict(grid().chunk(lat=3), include_noise=True, quantiles=levels)
    assert quantiles.name == "sst_quantiles"
    np.testing.assert_allclose(quantiles, found.quantiles, rtol=1e-9)
    probability = model.predict_exceedance(grid().chunk(lat=3), 1.0, include_noise=True)
    assert probability.name == "sst_exceedance"
    np.testing.assert_allclose(probability, found.exceedance, rtol=1e-9)
    assert model.is_predicted(grid(), output, **asked)
    with pytest.raises(StoreError, match="were made with variance True, but this run has none"):
        model.predict_store(grid(), output, resume=True)
    for levels in ((0.5, 0.5), (0, 0.5), (), "a"):
        with pytest.raises(SettingError, match="levels between 0 and 1 in increasing order"):
            model.predict_store(grid(), output, quantiles=levels)
    with pytest.raises(SettingError, match="threshold is nan: give a finite number"):
        model.predict_exceedance(grid(), np.nan)


def test_curvilinear_places_are_features_by_name(model, tmp_path):
    y, x = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(0, 2, 6), indexing="ij")
    places = {
        "lat": (("y", "x"), y + 0.1 * x, {"units": "degrees_north"}),
        "lon": (("y", "x"), x - 0.2 * y),
    }
    data = xr.Dataset(
        {"t2m": (("time", "y", "x"), np.zeros((3, 5, 6)))}, {"time": grid().time, **places}
    )
    for name, source in (
        ("as-coordinates", data),
        ("as-variables", data.reset_coords(["lat", "lon"])),
    ):
        path, output = str(tmp_path / f"{name}.zarr"), str(tmp_path / f"{name}-map.zarr")
        source.to_zarr(path, consolidated=False)
        model.predict_store(path, output)
        found = check(model, output, data)
        assert found["mean"].dims == ("time", "y", "x")
        assert set(found["mean"].coords) == {"time", "lat", "lon", "level"}


@pytest.mark.parametrize("name", ["lma", "experts"])
def test_methods_that_keep_rows_predict_grids_alike(name, tmp_path, monkeypatch):
    monkeypatch.setattr("daskgp.output.store.PART_ROWS", 50)  # several tasks for a chunk
    X, y = table()
    plain = {"kernel": "rbf(1.0)", "optimizer": None, "progress": False}
    kind = {
        "lma": daskgp.LMA(n_support=10, block_rows=40, **plain),
        "experts": daskgp.ExpertsGP(expert="exact", n_experts=3, aggregation="rbcm", **plain),
    }[name]
    kind.fit(X, y["sst"])
    kind.predict_store(grid(), tmp_path / "m.zarr", mask="land")
    mean, std = wanted(kind, grid())
    seen = grid().land.notnull()
    found = opened(tmp_path / "m.zarr")
    np.testing.assert_allclose(found["mean"], mean.where(seen), rtol=1e-8)
    np.testing.assert_allclose(found["std"], std.where(seen), rtol=1e-7)


def test_inputs_that_cannot_be_are_refused_in_one_line(model, tmp_path):
    source, output = stored(tmp_path / "g.zarr"), str(tmp_path / "m.zarr")
    with pytest.raises(InputError, match="feature 'lon' is not in the xarray object, which has"):
        model.predict_store(grid().rename(lon="longitude"), output)
    with pytest.raises(InputError, match="mask 'sea' is not in"):
        model.predict_store(source, output, mask="sea")
    with pytest.raises(InputError, match="no cells, so there is nothing to predict"):
        model.predict_store(grid().isel(time=slice(0)), output)
    with pytest.raises(InputError, match="has a coordinate 'std', a name that every map uses"):
        model.predict_store(grid().assign_coords(std=1.0), output)
    with pytest.raises(InputError, match="has the dimension band, which no feature has"):
        model.predict_store(grid().assign(land=("band", [1.0])), output, mask="land")
    with pytest.raises(StoreError, match="incomplete: wait until it is written"):
        model.predict_store(grid().assign_attrs(complete=False), output)
    rows = tmp_path / "rows.zarr"
    with daskgp.data.dataset_writer(str(rows), FEATURES) as writer:
        writer.append(table()[0].to_numpy())
    with pytest.raises(InputError, match="holds rows: a mask, variance, quantiles and exceedance"):
        model.predict_store(str(rows), output, mask="land")
    X, y = table()
    logs = daskgp.ExactGP("rbf()", optimizer=None, target_transform="log").fit(X, np.exp(y))
    with pytest.raises(InputError, match="of rows predict and predict_exceedance give them"):
        logs.predict_store(str(rows), output, quantiles=[0.5])
    model.predict_store(str(rows), output)
    with pytest.raises(StoreError, match="were made from an input with dims"):
        model.predict_store(source, output, resume=True)
    assert sorted(os.listdir(tmp_path)) == ["g.zarr", "m.zarr", "rows.zarr"]


def test_a_run_that_failed_before_its_first_chunk_leaves_no_map(model, tmp_path, monkeypatch):
    def fail(*_):
        raise StoreError("no")

    monkeypatch.setattr(prediction_store.ChunkWriter, "write", fail)
    with pytest.raises(StoreError, match="no"):
        model.predict_store(grid(), tmp_path / "m.zarr")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("complete", [True, False])
def test_parts_of_a_map_that_xarray_wrote_are_not_resumed(complete, model, tmp_path):
    output, part = str(tmp_path / "m.zarr"), str(tmp_path / "part.zarr")
    model.predict_store(grid(), output)
    whole = xr.open_zarr(output).assign_attrs(complete=complete)
    whole.isel(time=1).to_zarr(part, consolidated=False)
    before = files(part)
    with pytest.raises(StoreError, match=r"part\.zarr do not say which chunks are done, as a part"):
        model.predict_store(grid(), part, resume=True)
    assert files(part) == before


@pytest.mark.parametrize("moment", ["first", "flags", "coordinates", "middle", "last"])
def test_growth_that_was_interrupted_is_repeated(moment, model, tmp_path, monkeypatch):
    source, output = stored(tmp_path / "g.zarr"), str(tmp_path / "m.zarr")
    model.predict_store(source, output)
    append(source, grid(2, 3))
    plain, seen = zarr.Array.resize, []
    stop = {"first": 0, "flags": 2, "coordinates": 3, "middle": 4, "last": 5}[moment]

    def resize(self, shape):
        if len(seen) == stop:
            raise KeyboardInterrupt
        seen.append(self.path)
        plain(self, shape)

    with monkeypatch.context() as patch:
        patch.setattr(zarr.Array, "resize", resize)
        with pytest.raises(KeyboardInterrupt):
            model.predict_store(source, output, resume=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = xr.open_zarr(output).load()  # as it was before
    xr.testing.assert_allclose(found["mean"], model.predict(grid()), rtol=1e-9)
    assert model.predict_store(source, output, resume=True) == (154, 231)
    check(model, output, grid(5))


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    url = str(tmp_path_factory.mktemp("model") / "model.zarr")
    model.save(url)
    return url


def chunks_of(url):
    """Bytes of predicted chunks, and when they were written."""
    paths = [p for name in ("mean", "std") for p in Path(url, name, "c").rglob("*")]
    return {
        str(p.relative_to(url)): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in paths
        if p.is_file()
    }


def killed(run, output, flags):
    """Kill a run once it has written some flags more; return which chunks are done."""
    place = Path(output, "chunks", "done", "c")

    def count():
        return sum(p.name.isdigit() and p.is_file() for p in place.rglob("*"))  # no part of a file

    before, process = count(), start(*run)
    stop_when(process, lambda: count() >= before + flags, timeout=300)
    return prediction_store.opened(output).done()


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_and_predicts_no_cell_twice(model, saved, tmp_path):
    source, output = stored(tmp_path / "g.zarr", grid(20), (1, 4, 5)), str(tmp_path / "m.zarr")
    run = ("predict", saved, source, output, "--mask", "land", "--resume")
    done = killed(run, output, 5)
    assert 5 <= done.sum() < done.size
    before = chunks_of(output)
    seen = grid(20).land.notnull().expand_dims(time=20).values
    cells = done.repeat(4, axis=1)[:, :7].repeat(5, axis=2)[..., :11]
    found = succeed(*run)
    assert found["rows"] == (seen & ~cells).sum()
    assert found["skipped"] == cells.sum()
    whole, after = str(tmp_path / "whole.zarr"), chunks_of(output)
    daskgp.load(saved).predict_store(source, whole, mask="land")
    fresh = chunks_of(whole)
    assert {name: data for name, (data, _) in after.items()} == {
        name: data for name, (data, _) in fresh.items()
    }
    same = [name for name, entry in before.items() if after[name] == entry]
    assert len(same) >= 2 * done.sum()  # what was done was not written again


def test_a_schedule_keeps_the_map_of_a_growing_grid(model, saved, tmp_path):
    source, output = stored(tmp_path / "g.zarr", grid(1), (2, 4, 5)), str(tmp_path / "m.zarr")
    run = ("predict", saved, source, output, "--mask", "land", "--resume", "--clear-lock")
    seen = grid().land.notnull()
    assert succeed(*run)["rows"] == 61
    for day in range(1, 5):
        append(source, grid(1, day))
        if day == 2:
            with locks.hold(output):
                assert "at work" in refused(*run, code=1)
            check_days(output, 2)
        if day == 3:
            killed(run, output, 0)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                xr.open_zarr(output).load()
        found = succeed(*run)
        assert found["rows"] <= 61
        assert day == 3 or found["rows"] == 61
        check(model, output, grid(day + 1), seen)
    assert succeed(*run)["rows"] == 0
    assert "chunks done" in invoke("info", output).stdout


def check_days(output, days):
    assert opened(output).sizes["time"] == days


def test_the_command_says_what_it_cannot_do(saved, tmp_path):
    source = stored(tmp_path / "g.zarr")
    line = refused("predict", saved, source, tmp_path / "m.zarr", "--quantiles", "0.1,x")
    assert "give levels between 0 and 1" in line
    line = refused("predict", saved, source, tmp_path / "m.zarr", "--mask", "sea")
    assert "mask 'sea' is not in" in line


def test_quantiles_and_probabilities_of_arrays(model):
    X = table()[0].to_numpy()[:50]
    mean, std, found = model.predict(X, return_std=True, quantiles=(0.025, 0.975))
    assert found.shape == (50, 2)
    np.testing.assert_allclose(found[:, 1], mean + 1.959963984540054 * std, rtol=1e-12)
    lazy = da.from_array(X, chunks=(20, 3))
    for made, wanted in zip(
        model.predict(lazy, quantiles=(0.025, 0.975)), (mean, found), strict=True
    ):
        np.testing.assert_allclose(made.compute(), wanted, rtol=1e-9)
    chance = model.predict_exceedance(lazy, 0.5)
    np.testing.assert_allclose(chance.compute(), norm.sf(0.5, mean, std), rtol=1e-9)
    with pytest.raises(SettingError, match="quantiles and return_cov exclude each other"):
        model.predict(X, return_cov=True, quantiles=(0.5,))


def test_a_certain_value_exceeds_or_does_not():
    found = Outer().exceedance(np.array([1.0, 2.0, 3.0]), np.zeros(3), 2.0)
    np.testing.assert_array_equal(found, [0.0, 0.0, 1.0])


def test_classes_have_no_quantiles_but_those_of_f(tmp_path):
    X, y = table()
    classes = daskgp.SVGP(n_inducing=8, max_iter=3, likelihood="bernoulli", progress=False)
    classes.fit(X, (y["sst"] > 0).astype(float))
    assert classes.predict(X[:5], quantiles=(0.5,))[1].shape == (5, 1)
    for ask in (
        lambda: classes.predict(X[:5], quantiles=(0.5,), include_noise=True),
        lambda: classes.predict_store(grid(), tmp_path / "m.zarr", exceedance=1.0),
    ):
        with pytest.raises(SettingError, match="of new observations of likelihood 'bernoulli'"):
            ask()


def test_a_grid_that_does_not_exist_yet_has_multiples_of_its_steps(model, saved, tmp_path):
    X = table()[0]
    made = daskgp.load(saved).make_grid({"time": 2, "lat": 0.5, "lon": 0.25})
    xr.testing.assert_identical(made, model.make_grid({"time": 2, "lat": 0.5, "lon": 0.25}))
    assert list(made.coords) == FEATURES
    for name, step in (("time", 2), ("lat", 0.5), ("lon", 0.25)):
        axis = made[name].values
        np.testing.assert_allclose(np.diff(axis), step)
        assert axis[0] <= X[name].min() < axis[1]
        assert axis[-2] < X[name].max() <= axis[-1]
    output = tmp_path / "m.zarr"
    steps = ("--resolution", "lat=0.5,lon=0.25", "--extent", "time=18270,lon=0:1")
    assert succeed("predict", saved, output, *steps)["rows"] == 5 * 5
    found = opened(output)
    np.testing.assert_array_equal(found.lon, [0, 0.25, 0.5, 0.75, 1])
    mean = model.predict(found.drop_vars(["mean", "std"])).transpose(*FEATURES)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9)
    assert succeed("predict", saved, output, *steps, "--resume")["rows"] == 0


def test_a_grid_like_another_has_its_features_on_another_day(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(0, 3, (40, 3)), columns=["lon", "lat", "height"])
    X["day"] = pd.date_range("2024-06-01", periods=40)
    model = daskgp.ExactGP("matern32()", optimizer=None).fit(X, X["height"] + X["lon"])
    axes_of = {"lat": np.arange(3.0), "lon": np.arange(4.0)}
    height = rng.uniform(0, 3, (3, 4))
    terrain = xr.Dataset({"height": (("lat", "lon"), height), "other": 1.0}, axes_of)
    terrain.to_netcdf(tmp_path / "terrain.nc")
    made = model.make_grid(like=terrain, extent={"day": "2024-06-05"})
    wanted = terrain[["height"]].assign_coords(day=pd.to_datetime(["2024-06-05"]))
    expected = model.predict(wanted)
    assert model.predict(made).dims == ("day", "lat", "lon")
    np.testing.assert_array_equal(model.predict(made), expected.transpose("day", "lat", "lon"))
    lazy = model.make_grid(like=terrain.chunk(lat=1), extent={"day": "2024-06-05"})
    assert lazy["height"].chunks[0] == (1, 1, 1)
    model.save(str(tmp_path / "m.zarr"))
    like = ("--like", tmp_path / "terrain.nc", "--extent")
    succeed("predict", tmp_path / "m.zarr", tmp_path / "map.nc", *like, "day=2024-06-05")
    found = xr.open_dataset(tmp_path / "map.nc")["mean"]
    np.testing.assert_allclose(found, model.predict(made), rtol=1e-12)
    ends = {"day": "2024-06-05", "lon": (0, 2)}
    with pytest.raises(SettingError, match=r"like has 'height' along .* of 'lon'"):
        model.make_grid({"lon": 0.5}, ends, like=terrain)
    flat = model.make_grid({"lon": 0.5}, ends | {"height": 1.0}, like=terrain)
    assert dict(flat.sizes) == {"height": 1, "day": 1, "lat": 3, "lon": 5}
    across = {"lon": ("x", np.arange(4.0)), "lat": ("y", np.arange(3.0))}
    numbered = xr.Dataset({"height": (("y", "x"), height)}, across)
    with pytest.raises(SettingError, match=r"like has 'height' along .* of 'lon'"):
        model.make_grid({"lon": 0.5}, ends, like=numbered)


DATES = ("2020-01-08", "2020-01-10")


def test_ends_of_times_are_dates_too(tmp_path):
    when = pd.date_range("2020-01-01", periods=30)
    X = pd.DataFrame({"time": when, "depth": np.arange(30.0) % 7})
    model = daskgp.ExactGP("matern32()", optimizer=None).fit(X, np.arange(30.0))
    steps, dates = {"time": 1, "depth": 1}, (DATES[0], np.datetime64(DATES[1]))
    made = model.make_grid(steps, {"time": dates})
    xr.testing.assert_identical(made, model.make_grid(steps, {"time": (18269, 18271)}))
    assert made.sizes["time"] == 3
    with pytest.raises(SettingError, match=r"give a number \(days since 1970-01-01\)"):
        model.make_grid(steps, {"time": ("soon", "later")})
    for ends in ((20200108, 20200110), ("2020-01-08", "20200110"), np.array(DATES, "M8[ns]")):
        xr.testing.assert_identical(model.make_grid(steps, {"time": ends}), made)
    months = model.make_grid(steps, {"time": (202001, 202002)})  # as they are read of rows
    assert months.time.values[[0, -1]].tolist() == [18262, 18293]
    for ends, says in (
        ((20200230, 20200301), "20200230, which is not a date and far beyond the year 9999"),
        ((20200110, 20200108), "is 2020-01-10 to 2020-01-08: give finite ends"),
    ):
        with pytest.raises(SettingError, match=says):
            model.make_grid(steps, {"time": ends})
    made = model.make_grid(steps, {"time": (0, 1), "depth": (202001, 202002)})
    assert (made.sizes["time"], *made.depth.values) == (2, 202001, 202002)
    model.save(str(tmp_path / "m.zarr"))
    options = ("--resolution", "time=1", "--extent", "time=20200108:20200110,depth=1")
    assert succeed("predict", tmp_path / "m.zarr", tmp_path / "o.zarr", *options)["rows"] == 3
    np.testing.assert_array_equal(
        opened(tmp_path / "o.zarr").time, np.arange("2020-01-08", "2020-01-11", dtype="M8[D]")
    )


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [
        ("hours since 2020-01-01", (24.0 * 8, 24.0 * 10)),
        ("days since 1970-01-01 (noleap)", (18258.0, 18260.0)),
        ("days since 0001-01-01 (360_day)", (726_848.0, 726_850.0)),
    ],
)
def test_ends_are_dates_in_the_calendar_of_a_model(unit, wanted):
    for ends in ((20200109, 20200111), ("2020-01-09", "2020-01-11"), wanted):
        made = axes.make(("t",), {"t": 1.0}, {"t": ends}, {}, None, (unit,))
        assert (made.t[0], made.t[-1]) == wanted
    years = axes.make(("t",), {"t": 1.0}, {"t": (202001, 202003)}, {}, None, (unit,))
    assert years.sizes["t"] == 3  # numbers of days or hours, as they may well be


def on_globe(lon, lat=None, method=daskgp.ExactGP, **settings):
    """A model of rows at longitudes and latitudes."""
    lat = np.random.default_rng(1).uniform(-80, 80, len(lon)) if lat is None else lat
    model = method("matern32()", geographic=("x0", "x1"), optimizer=None, **settings)
    return model.fit(np.column_stack([lon, lat]), np.sin(np.radians(lat)))


@pytest.mark.parametrize("step", [0.5, 7.0, 25.0, 30.0])
@pytest.mark.parametrize("home", [-180.0, 0.0])
def test_grids_on_the_globe_go_all_round_and_end_where_it_does(step, home):
    rng = np.random.default_rng(0)
    lat = rng.uniform(-90, 90, 90)
    model = on_globe(rng.uniform(home, home + 360, 90), lat)
    made = model.make_grid({"x0": step, "x1": step})
    lon = made.x0.values
    assert home <= lon[0]
    assert lon[-1] <= home + 360
    assert lon[-1] < lon[0] + 360  # no meridian twice
    assert lon[0] + 360 - lon[-1] < 2 * step
    assert abs(made.x1).max() <= 90
    assert made.x1[0] - step < lat.min()
    assert lat.max() < made.x1[-1] + step
    said = made.x0.attrs["standard_name"], made.x1.attrs["units"]
    assert said == ("longitude", "degrees_north")
    assert np.isfinite(model.predict(made[{"x0": slice(9), "x1": slice(9)}])).all()


@pytest.mark.parametrize(
    ("low", "high", "start"),
    [(5, 11, 5), (170, 190, 170), (170, 190, 170 - 360), (-20, 20, -20), (-30, 10, -30 + 360)],
)
def test_a_grid_has_the_ranges_of_its_rows_across_any_meridian(low, high, start, tmp_path):
    rng = np.random.default_rng(0)
    lon = np.append(rng.uniform(low, high, 60), [low, high]) + (start - low)
    lon = np.where(lon < -180, lon + 360, np.where(lon > 360, lon - 360, lon))
    model, lat = on_globe(lon), np.random.default_rng(1).uniform(-80, 80, len(lon))
    assert model.solved_.ranges == [pytest.approx([low, high]), [lat.min(), lat.max()]]
    made = model.make_grid({"x0": 0.5, "x1": 20})
    np.testing.assert_allclose(made.x0, np.arange(low, high + 0.1, 0.5))
    model.save(str(tmp_path / "m.zarr"))
    output = str(tmp_path / "map.zarr")
    succeed("predict", tmp_path / "m.zarr", "--resolution", "x0=0.5,x1=20", output)
    np.testing.assert_array_equal(xr.open_zarr(output).x0, made.x0)


def test_ranges_on_the_globe_grow_with_updates():
    model = on_globe(np.linspace(160, 178, 40), method=daskgp.SGPR, n_inducing=10)
    for lon, wanted in (
        (np.linspace(-175, -150, 30), [160, 210]),
        (np.linspace(165, 170, 30), [160, 210]),
        (np.linspace(100, 140, 30), [100, 210]),
        (np.linspace(-140, 80, 60), [-180, 180]),
    ):
        lat = np.full(len(lon), 10.0)
        model.update(np.column_stack([lon, lat]), np.sin(np.radians(lat)))
        assert model.solved_.ranges[0] == pytest.approx(wanted)
    stream = daskgp.SVGP(n_inducing=8, geographic=("x0", "x1"), progress=False)
    for lon in (np.linspace(160, 178, 40), np.linspace(-175, -150, 40)):
        stream.partial_fit(np.column_stack([lon, lon / 10]), lon)
    assert stream.solved_.ranges == [pytest.approx([160, 210]), pytest.approx([-17.5, 17.8])]


def test_a_place_of_no_range_is_asked_for():
    model = on_globe(np.linspace(0, 20, 30), method=daskgp.SGPR, n_inducing=10)
    # as earlier versions stored them
    model.solved_ = replace(model.solved_, ranges=[None, None])
    with pytest.raises(InputError, match="the range of 'x0', 'x1' is not known, because the model"):
        model.make_grid({"x0": 1.0, "x1": 1.0})
    model.update([[5.0, 5.0]], [0.0])
    assert model.solved_.ranges == [None, None]  # that of the others is still unknown


@pytest.mark.whole
@pytest.mark.parametrize(
    ("extent", "step", "wanted"),
    [
        ((-85, 85), 2.0, np.arange(-85, 86, 2)),
        ((-179.75, 179.75), 0.5, np.arange(-179.75, 180, 0.5)),
        ((0.05, 0.5), 0.1, [0.05, 0.15, 0.25, 0.35, 0.45]),
        ((0, 0.3), 0.1, [0, 0.1, 0.2, 0.3]),
        ((3, 9.9), 2.5, [3, 5.5, 8]),
        ((3, 4), 2.5, [3]),
    ],
)
def test_a_grid_stays_within_its_extent(extent, step, wanted):
    for geographic in ((), ("lon", "lat")):
        made = axes.make(
            ("lon", "lat"), {"lon": step}, {"lon": extent, "lat": 0}, {}, None, (), geographic
        )
        np.testing.assert_allclose(made.lon, wanted, atol=1e-12)
        assert extent[0] <= made.lon[0]
        assert made.lon[-1] <= extent[1] + 1e-9 * step


def test_an_extent_beyond_the_poles_is_refused():
    model = on_globe(np.linspace(0, 20, 30))
    for extent in ({"x1": (-95, 85)}, {"x1": 91}, {"x0": (-190, -170)}, {"x0": (350, 370)}):
        with pytest.raises(SettingError, match="but its degrees go from -"):
            model.make_grid({"x0": 1, "x1": 1}, extent)


@pytest.mark.parametrize(
    "ending", [".nc/", ".NC4", ".netcdf", ".png", ".parquet", ".zarr.zip", ".csv.gz"]
)
def test_no_store_has_the_name_of_a_file(ending, saved, tmp_path):
    name = f"{tmp_path}/out{ending}"
    made = ("predict", saved, "--resolution", "time=9,lat=9,lon=9")
    line = refused(*made, name)
    assert ending.lower().startswith(".csv") or f"name it {tmp_path}/out.zarr" in line
    assert (".to_netcdf(" in line) == ending.lower().startswith((".nc", ".netcdf"))
    assert refused(*made, f"{name}/")
    table()[0].assign(y=1.0 * np.arange(len(table()[0]))).to_csv(tmp_path / "in.csv", index=False)
    rows = str(tmp_path / "rows.zarr")
    succeed("convert", tmp_path / "in.csv", rows, "--target", "y")
    before = sorted(os.listdir(tmp_path))
    for what, words in (
        ("dataset", ("convert", tmp_path / "in.csv", name, "--target", "y")),
        ("dataset", ("prepare", rows, name)),
        ("model store", ("fit", rows, name, "--model", "exact")),
    ):
        line = refused(*words)
        assert f"{what} {name.rstrip('/')} would be a Zarr store, which is a folder, not a " in line
    if not name.endswith(".csv.gz"):
        assert "would be a Zarr store" in refused("predict", saved, rows, name)
    with pytest.raises(StoreError, match="would be a Zarr store"):
        daskgp.load(saved).save(name)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_map_may_be_a_netcdf_file(saved, tmp_path):
    made = ("predict", saved, "--resolution", "time=9,lat=9,lon=9")
    succeed(*made, tmp_path / "map.zarr")
    succeed(*made, tmp_path / "map.nc", "--dtype", "float32")
    with (
        xr.open_dataset(tmp_path / "map.nc") as maps,
        xr.open_zarr(tmp_path / "map.zarr", consolidated=False) as stored,
    ):
        assert {maps[name].dtype for name in ("mean", "std")} == {np.dtype("float32")}
        xr.testing.assert_allclose(maps[["mean", "std"]], stored[["mean", "std"]], rtol=1e-5)
    assert "exists already" in refused(*made, tmp_path / "map.nc")
    assert "is written whole" in refused(*made, tmp_path / "other.nc", "--resume")
    model = daskgp.load(saved)
    grid = model.make_grid({"time": 9, "lat": 9, "lon": 9})
    model.predict_store(grid, str(tmp_path / "again.nc"))
    with xr.open_dataset(tmp_path / "again.nc") as maps:
        np.testing.assert_allclose(maps["mean"], model.predict(grid), rtol=1e-9)
    left = {one.name for one in tmp_path.iterdir()} - {"map.zarr", "map.zarr.run.json"}
    assert left == {"again.nc", "map.nc"}


def test_a_store_of_an_earlier_version_that_is_named_as_a_file_is_resumed(model, tmp_path):
    output = str(tmp_path / "map.nc")
    model.predict_store(grid(), str(tmp_path / "map.zarr"))
    os.rename(tmp_path / "map.zarr", output)
    assert model.predict_store(grid(), output, resume=True).rows == 0


def test_a_grid_like_another_has_its_coordinates(model, saved, tmp_path):
    source, output = stored(tmp_path / "g.zarr"), tmp_path / "m.zarr"
    assert succeed("predict", saved, output, "--like", source)["rows"] == 231
    check(model, output, grid().drop_vars("level"))
    made = model.make_grid({"lon": 1.0}, like=grid())
    assert dict(made.sizes) == {"time": 3, "lat": 7, "lon": 3}


@pytest.mark.parametrize(
    ("features", "geographic", "dims"),
    [
        (("lon", "lat", "day"), (), ("day", "lat", "lon")),
        (("Easting", "Northing"), (), ("Northing", "Easting")),
        (("time", "lat", "lon"), (), ("time", "lat", "lon")),
        (("depth", "b", "a"), ("a", "b"), ("depth", "b", "a")),
        (("a", "b", "depth"), ("a", "b"), ("depth", "b", "a")),
        (("salt", "heat"), (), ("salt", "heat")),
    ],
)
def test_a_grid_has_its_dimensions_in_the_order_of_maps(features, geographic, dims):
    step, extent = dict.fromkeys(features, 1.0), dict.fromkeys(features, (0.0, 2.0))
    made = axes.make(features, step, extent, {}, geographic=geographic)
    assert tuple(made.sizes) == dims
    turned = made.transpose(*features)
    assert tuple(axes.make(features, {}, {}, {}, like=turned).sizes) == tuple(made.sizes)
    field = xr.DataArray(np.zeros((3,) * len(features)), turned.coords, features)
    assert tuple(axes.make(features, {}, {}, {}, like=field).sizes) == features
    wider = axes.make((*features, "z"), {"z": 1.0}, {"z": (0, 1)}, {}, like=field)
    assert tuple(wider.sizes) == ("z", *features)


def test_all_that_an_axis_lacks_is_said_at_once():
    known = {"day": (0.0, 9.0), "depth": (0.0, 5.0)}
    with pytest.raises(InputError) as raised:
        axes.make(("lon", "lat", "day", "depth"), {"lon": 1}, {}, known, geographic=("lon", "lat"))
    for said in (
        "the range of 'lon', 'lat' is not",
        "no values of 'lat', 'day', 'depth' are given",
    ):
        assert said in str(raised.value)
    assert "--extent lon=LOW:HIGH,lat=LOW:HIGH" in str(raised.value)
    assert "--resolution lat=STEP,day=STEP,depth=STEP" in str(raised.value)


def test_features_that_are_no_axes_leave_the_order_of_a_grid(model):
    like = xr.Dataset(
        coords={"time": [0.0, 1.0], "lat": [0.0, 1.0, 2.0], "lon": [0.0, 1.0]}
        | {"elev": ("lon", [3.0, 4.0]), "level": 2.5}
    )
    made = axes.make(("elev", "level", "lon", "lat", "time"), {}, {}, {}, like=like)
    assert tuple(made.sizes) == ("time", "lat", "lon")
    some = axes.make(("lon", "lat", "day"), {"lon": 1}, {"lon": (0, 3), "day": 5}, {}, like=like)
    assert tuple(some.sizes) == ("day", "lat", "lon")
    assert some.day.item() == 5


def test_a_grid_that_is_not_known_is_asked_for(model, saved, tmp_path):
    for options, says in (
        (("--resolution", "lon=1"), "no values of 'time', 'lat' are given"),
        (
            ("--resolution", "depth=1"),
            "resolution names 'depth', which is not a feature: choose among time, lat, lon",
        ),
        (("--resolution", "lon"), "--resolution is 'lon': give A=STEP, separated by commas"),
        (
            ("--resolution", "lon=x"),
            "--resolution has 'x' for 'lon': give a number in the unit of the feature",
        ),
        (("--extent", "time=x,lat=0,lon=0"), "extent of 'time' has 'x': give a number"),
        (("--extent", "time=1,lat=2020-01-01,lon=0"), "extent of 'lat' has the date '2020-01-01'"),
        (("--extent", "time=2:1,lat=0,lon=0"), "extent of 'time' is 2 to 1: give finite ends"),
        (("--resolution", "lon=-1,lat=1,time=1"), "resolution of 'lon' is -1"),
        ((), "Missing argument 'OUTPUT'"),
        ((tmp_path / "o.zarr", "--like", "g.zarr"), "leave INPUT out"),
    ):
        assert says in refused("predict", saved, tmp_path / "m.zarr", *options)
    for given, says in (
        ((["lon"],), r"resolution=['lon']: give a dictionary by feature, of time, lat, lon"),
        (({"lon": 1}, [(0, 1)]), "extent=[(0, 1)]: give a dictionary by feature"),
        (({"lon": "a"},), "resolution of 'lon' is 'a': give a number in the unit of the feature"),
        (({"lon": None},), "resolution of 'lon' is None: give a number"),
        (({"lon": [1, 2]},), "resolution of 'lon' is [1, 2]: give a number"),
        (
            ({"time": np.timedelta64(1, "D")},),
            "resolution of 'time' is np.timedelta64(1,'D'): give",
        ),
        (({"lon": 1}, {"lon": (1, 2, 3)}), "extent of 'lon' is (1, 2, 3): give two ends"),
        (({"lon": 1}, {"lon": np.ones(1)}), "give two ends, (low, high), or one value"),
    ):
        with pytest.raises(SettingError, match=re.escape(says)):
            model.make_grid(*given)
    old = daskgp.load(saved)
    # as stores of earlier versions have none
    old.solved_ = replace(old.solved_, ranges=())
    with pytest.raises(
        InputError, match="the range of 'lon' is not known, because the model was stored"
    ):
        old.make_grid({"time": 1, "lat": 1, "lon": 1}, {"time": (0, 1), "lat": (0, 1)})
    assert os.listdir(tmp_path) == []
