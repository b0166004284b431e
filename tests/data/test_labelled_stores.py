"""Other readers of Zarr open every store, and find names and units in it."""

import json
import shutil
from functools import partial

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import daskgp
from daskgp import kernels
from daskgp.data import rows
from daskgp.data.stores import checkpoints
from tests.contract import cases

FITS = {name: partial(cases.fixed, name) for name in cases.SETTINGS} | {
    "trained": partial(cases.make, "sgpr")
}


def table(n=180, p=0):
    X = np.random.default_rng(0).uniform(0, 3, (n, 2))
    y = np.stack([np.sin(3 * X[:, 0]) + X[:, 1], X[:, 0] * X[:, 1]], axis=1)
    return X, y[:, 0] if p == 0 else y[:, :p]


def opened(url, group=None):
    """What xarray makes of a store: every array, and nothing else."""
    found = xr.open_zarr(url, group=group, consolidated=False)
    there = zarr.open_group(url, path=group or "", mode="r")
    assert set(found.variables) == set(there.array_keys())
    for name, array in there.arrays():
        dims = array.metadata.dimension_names or ()  # a scalar has none
        assert len(dims) == array.ndim
        assert found[name].shape == array.shape
    return found.load()


def dataset(url, p=0, units=None, n=180):
    X, y = table(n, p)
    names = ["level"] if p in (0, 1) else ["level", "flow"]
    said = {} if units is None else {rows.UNITS: units}
    with daskgp.data.dataset_writer(
        url, ["a", "b"], names, 50, multi_target=p > 0, attributes=said
    ) as writer:
        writer.append(X, y)
    return str(url)


@pytest.mark.parametrize("p", [0, 1, 2])
def test_dataset_stores_and_prepared_ones(p, tmp_path):
    url = dataset(tmp_path / "t.zarr", p)
    found = opened(url)
    assert found.X.dims == ("row", "feature")
    assert found.y.dims == ("row", "target")[: 1 + (p > 0)]
    np.testing.assert_array_equal(found.X, table(p=p)[0])
    daskgp.prepare(url, str(tmp_path / "p.zarr"), block_rows=40)
    prepared = opened(tmp_path / "p.zarr")
    assert prepared.block_centroids.dims == ("block", "feature")
    assert {"X", "y", "block_cuts", "block_centroids"} == set(prepared.variables)


@pytest.mark.parametrize("name", FITS)
def test_model_stores_of_every_method_with_the_rows_they_keep(name, tmp_path):
    model = FITS[name]().fit(*table())
    model.save(tmp_path / "m.zarr")
    found = opened(tmp_path / "m.zarr")
    assert found.scaling_x_shift.dims == ("feature",)
    if model.solved_.rows is not None:
        assert opened(tmp_path / "m.zarr", "rows").X.dims == ("row", "feature")


@pytest.mark.parametrize("p", [0, 1, 2])
def test_prediction_stores_name_what_they_hold(p, tmp_path):
    units = ["m"] if p < 2 else ["m", "m3 s-1"]
    source = dataset(tmp_path / "t.zarr", p, units)
    model = cases.fixed("sgpr").fit(*daskgp.open_dataset(source))
    model.save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr")
    assert loaded.solved_.target_units == tuple(units)
    loaded.predict_store(source, str(tmp_path / "out.zarr"))
    found = opened(tmp_path / "out.zarr")
    assert found["mean"].dims == found.variance.dims == ("row", "target")[: 1 + (p > 0)]
    assert found["mean"].attrs["long_name"].startswith("posterior mean of level")
    assert "variance of a new observation of level" in found.variance.attrs["long_name"]
    assert found.done.dims == ("chunk",)
    wanted = ("m", "(m)2") if p < 2 else (None, None)  # no unit is that of both targets
    assert (found["mean"].attrs.get("units"), found.variance.attrs.get("units")) == wanted
    assert found.attrs.get("target_units") == units
    np.testing.assert_allclose(found["mean"], model.predict(table(p=p)[0]), rtol=1e-9)


def test_units_come_along_through_blocks_and_prepared_stores(tmp_path):
    source = dataset(tmp_path / "t.zarr", units=["m"])
    daskgp.prepare(source, str(tmp_path / "p.zarr"), block_rows=30)
    for url in (source, tmp_path / "p.zarr"):
        model = cases.fixed("lma").fit(*daskgp.open_dataset(url))
        assert model.solved_.target_units == ("m",)
    X, y = daskgp.open_dataset(source)
    assert cases.fixed("sgpr").fit(X[5:], y[5:]).solved_.target_units == ()


def grid():
    x, t = np.linspace(0, 1, 8), np.linspace(0, 2, 9)
    values = np.sin(3 * t)[:, None] + x
    return xr.DataArray(values, {"t": t, "x": x}, ("t", "x"), "level", {"units": "m"})


def test_predictions_of_a_grid_have_names_of_their_own(tmp_path):
    y = grid()
    model = cases.fixed("sgpr").fit(y, y)
    mean, std = model.predict(y.chunk({"t": 4}), return_std=True, include_noise=True)
    assert (mean.name, std.name) == ("level_mean", "level_std")
    xr.merge([y, mean, std]).to_zarr(tmp_path / "g.zarr", consolidated=False)
    found = opened(tmp_path / "g.zarr")
    assert set(found.data_vars) == {"level", "level_mean", "level_std"}
    assert found.level_mean.attrs == {"long_name": "posterior mean of level", "units": "m"}
    said = "posterior standard deviation of a new observation of level"
    assert found.level_std.attrs == {"long_name": said, "units": "m"}
    xr.testing.assert_allclose(found.level_mean, model.predict(y))
    average = model.predict_average(y)
    assert [a.name for a in average] == ["level_mean", "level_std"]
    two = cases.fixed("sgpr").fit(*table(p=2))
    places = xr.Dataset(coords={"x0": [0.5, 1.0], "x1": [0.2]})
    assert [a.name for a in two.predict(places, return_std=True)] == ["mean", "std"]


def test_units_of_a_converted_grid_are_kept(tmp_path):
    grid().to_dataset().to_zarr(tmp_path / "g.zarr", consolidated=False)
    daskgp.convert(tmp_path / "g.zarr", tmp_path / "t.zarr", target="level")
    assert zarr.open_group(tmp_path / "t.zarr").attrs["target_units"] == ["m"]


def test_what_a_run_keeps_can_be_looked_at(tmp_path):
    kept = checkpoints.Checkpoint(str(tmp_path / "c.zarr"), {})
    kept.append(0, np.arange(5.0))
    assert opened(tmp_path / "c.zarr").evaluations.shape == (1, 5)
    arrays = {"w": np.ones((3, 3)), "step": np.array(4.0), "v": np.ones(3)}
    checkpoints.Snapshots(str(tmp_path / "s.zarr"), {}).write(1, arrays)
    assert set(opened(tmp_path / "s.zarr", "slot-0").variables) == set(arrays)
    spilled = tmp_path / "spilled.zarr"
    X, y = (da.from_array(a, chunks=(60, *a.shape[1:])) for a in table())
    daskgp.data.rows_of(X, y, str(spilled), False)
    assert opened(spilled).X.dims == ("row", "feature")


@pytest.mark.parametrize("name", ["sgpr", "lma", "cagp"])
def test_stores_without_names_of_dimensions_are_read_as_ever(name, tmp_path):
    source = dataset(tmp_path / "t.zarr")
    model = cases.fixed(name).fit(*daskgp.open_dataset(source))
    model.save(tmp_path / "m.zarr")
    output, part = str(tmp_path / "out.zarr"), table(70)[0]
    model.predict_store(source, output)
    shutil.copytree(tmp_path, tmp_path / "old", ignore=shutil.ignore_patterns("old"))
    stripped = 0
    for path in (tmp_path / "old").rglob("zarr.json"):
        said = json.loads(path.read_text())
        stripped += said.pop("dimension_names", None) is not None
        path.write_text(json.dumps(said))
    assert stripped > 10
    loaded = daskgp.load(tmp_path / "old" / "m.zarr")
    assert loaded.solved_.token == model.solved_.token
    np.testing.assert_array_equal(loaded.predict(part), model.predict(part))
    again = str(tmp_path / "old" / "out.zarr")
    assert loaded.predict_store(source, again, resume=True) == (0, 180)
    old = cases.fixed(name).fit(*daskgp.open_dataset(tmp_path / "old" / "t.zarr"))
    np.testing.assert_array_equal(old.predict(part), model.predict(part))


def test_kernels_and_settings_that_are_arrays_open_too(tmp_path):
    X, y = table()
    kernel = kernels.RBF((0.5, 0.7), ard=True) + kernels.Linear()
    model = cases.fixed("sgpr", kernel=kernel, inducing=X[:9], mean="linear").fit(X, y)
    model.save(tmp_path / "m.zarr")
    assert opened(tmp_path / "m.zarr").setting_inducing.shape == (9, 2)
