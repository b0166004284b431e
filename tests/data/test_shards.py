"""Stores with shards: a task writes whole ones, or is refused before it writes anything."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from distributed import Client

import daskgp
from daskgp.errors import StoreError

SETTINGS = {"optimizer": None, "kernel": "matern32(1.0)", "progress": False}


@pytest.fixture
def workers(scheduler):
    """Two worker processes over TCP, which tasks run in."""
    with Client(scheduler) as client:
        yield client


def rows(n, seed=0):
    X = np.random.default_rng(seed).uniform(0, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1]


def sharded(url, X, y, chunk, shard):
    """A dataset store in shards of some rows."""
    group = zarr.create_group(str(url))
    for name, a in (("X", X), ("y", y)):
        shapes = {"chunks": (chunk, *a.shape[1:]), "shards": (shard, *a.shape[1:])}
        group.create_array(name, shape=a.shape, dtype="f8", **shapes)[...] = a
    return str(url)


def rewrite(url, names, **shapes):
    """Write arrays of a store in other chunks or shards, as a copy may have them."""
    for name in names:
        group = zarr.open_group(str(url), mode="r+")
        values, old = group[name][...], group[name]
        made = {"dtype": old.dtype, "fill_value": old.fill_value, "overwrite": True}
        made |= {"attributes": old.attrs.asdict()}
        made |= {"dimension_names": old.metadata.dimension_names, "shape": values.shape}
        group.create_array(name, **made, **shapes)[...] = values
    if group.metadata.consolidated_metadata:
        with warnings.catch_warnings(action="ignore"):
            zarr.consolidate_metadata(group.store)


def test_predictions_at_a_zarr_array_have_its_shards(workers, tmp_path):
    X, y = rows(1_000)
    model = daskgp.SGPR(n_inducing=10, **SETTINGS).fit(X[:100], y[:100])
    group = zarr.open_group(sharded(tmp_path / "d.zarr", X, y, 10, 100))
    mean, std = model.predict(group["X"], return_std=True)
    assert mean.chunks == std.chunks == ((100,) * 10,)
    outputs = [
        group.create_array(name, shape=(1_000,), chunks=(10,), shards=(100,), dtype="f8")
        for name in ("mean", "std")
    ]
    da.store([mean, std], outputs, lock=False)  # a shard by tasks of their own would lose values
    for found, wanted in zip(outputs, model.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(found[...], wanted, rtol=1e-12)


@pytest.mark.parametrize("method", [daskgp.SGPR, daskgp.LMA])
def test_rows_appended_to_shards_update_a_model_as_those_in_memory_do(method, workers, tmp_path):
    X, y = rows(230)
    url = sharded(tmp_path / "d.zarr", X[:70], y[:70], 10, 40)  # the last shard is not full
    few = {"n_inducing": 12} if method is daskgp.SGPR else {"n_support": 12, "block_rows": 40}
    model = method(**few, **SETTINGS).fit(*daskgp.open_dataset(url))
    wanted = method(**few, **SETTINGS).fit(X[:70], y[:70])
    assert model.n_rows_ == 70
    for part in (slice(70, 75), slice(75, 200), slice(200, 230)):
        frame = pd.DataFrame({"x0": X[part, 0], "x1": X[part, 1], "y": y[part]})
        assert daskgp.convert(frame, url, append=True).rows == part.stop - part.start
        model.update(*daskgp.open_dataset(url))
        wanted.update(X[part], y[part])
        found = zarr.open_group(url, mode="r")
        np.testing.assert_array_equal(found["X"][...], X[: part.stop])
        np.testing.assert_array_equal(found["y"][...], y[: part.stop])
    assert model.n_rows_ == 230
    assert found["X"].shards == (40, 2)
    T, _ = rows(20, seed=3)
    np.testing.assert_allclose(model.predict(T), wanted.predict(T), rtol=1e-8)


def test_predictions_go_on_in_shards_of_whole_chunks_alone(workers, tmp_path):
    X, y = rows(400)
    model = daskgp.SGPR(n_inducing=10, **SETTINGS).fit(X[:100], y[:100])
    url, output = sharded(tmp_path / "d.zarr", X[:150], y[:150], 10, 20), tmp_path / "out.zarr"
    assert model.predict_store(url, output, resume=True) == (150, 0)
    values = "mean", "variance"
    rewrite(output, values, chunks=(5,), shards=(20,))
    for name, a in (("X", X), ("y", y)):
        array = zarr.open_group(url, mode="r+")[name]
        array.resize((330, *a.shape[1:]))
        array[150:] = a[150:330]
    assert model.predict_store(url, output, resume=True) == (190, 140)
    found = zarr.open_group(output, mode="r")
    assert found["mean"].shards == (20,)
    mean, std = model.predict(X[:330], return_std=True, include_noise=True)
    np.testing.assert_allclose(found["mean"][...], mean, rtol=1e-12)
    np.testing.assert_allclose(found["variance"][...], std**2, rtol=1e-12)

    rewrite(output, values, chunks=(20,), shards=(80,))
    assert model.predict_store(url, output, resume=True) == (0, 330)  # nothing is written
    array = zarr.open_group(url, mode="r+")["X"]
    array.resize((400, 2))
    array[330:] = X[330:]
    told = r"array 'variance' lies in shards of 80 and a task writes 20.*rewrite it in shards of 20"
    with pytest.raises(StoreError, match=told):
        model.predict_store(url, output, resume=True)
    found = zarr.open_group(output, mode="r")
    assert found["mean"].shape == (330,)
    assert found.attrs["complete"] is True
    rewrite(output, values, chunks=(20,))
    rewrite(output, ["done"], chunks=(4,))
    with pytest.raises(StoreError, match="'done' lies in chunks of 4 and a task writes 1"):
        model.predict_store(url, output, resume=True)
    rewrite(output, ["done"], chunks=(1,))
    assert model.predict_store(url, output, resume=True) == (80, 320)
    found = zarr.open_group(output, mode="r")["mean"][...]
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-12)


def grid(url, n, shards):
    t = np.random.default_rng(0).uniform(0, 3, (100, 30))[:n]
    axes = {"time": np.arange(float(n)), "x": np.arange(30.0)}
    told = {"t": {"chunks": (10, 10), "shards": shards}}
    xr.Dataset({"t": (("time", "x"), t)}, axes).to_zarr(
        url, mode="w", encoding=told, consolidated=False
    )
    return str(url)


def test_maps_go_on_in_shards_of_whole_boxes_alone(workers, tmp_path):
    T = np.random.default_rng(1).uniform(0, 3, (80, 1))
    frame = pd.DataFrame(T, columns=["t"])
    model = daskgp.SGPR(n_inducing=10, **SETTINGS).fit(frame, np.sin(2 * T[:, 0]))
    url, output = grid(tmp_path / "g.zarr", 50, (20, 10)), tmp_path / "map.zarr"
    assert model.predict_store(url, output, resume=True).rows == 1_500
    assert zarr.open_group(output)["mean"].chunks == (20, 10)
    rewrite(output, ["mean", "std"], chunks=(5, 10), shards=(20, 10))
    grid(tmp_path / "g.zarr", 70, (20, 10))
    assert model.predict_store(url, output, resume=True) == (600, 1_500)
    found, t = zarr.open_group(output, mode="r"), xr.open_zarr(url, consolidated=False)["t"].values
    assert found["mean"].shards == (20, 10)
    wanted = model.predict(t.reshape(-1, 1)).reshape(t.shape)
    np.testing.assert_allclose(found["mean"][...], wanted, rtol=1e-12)

    grid(tmp_path / "g.zarr", 90, (20, 10))
    rewrite(output, ["std"], chunks=(20, 10), shards=(20, 30))
    with pytest.raises(StoreError, match="array 'std' lies in shards of 20 x 30 and a task writes"):
        model.predict_store(url, output, resume=True)
    rewrite(output, ["std", "mean"], chunks=(20, 10), shards=(40, 10))
    with pytest.raises(StoreError, match="rewritten in other chunks or shards"):
        model.predict_store(url, output, resume=True)
    assert zarr.open_group(output, mode="r")["mean"].shape == (70, 30)
