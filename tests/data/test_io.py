"""Rows from wherever they lie, and model stores that come back bit for bit or not at all."""

import copy
import dataclasses
import itertools
import json
import shutil
import threading

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from dask.callbacks import Callback
from fsspec.implementations.local import LocalFileSystem

import daskgp
from daskgp import data, kernels
from daskgp.data import rows_of
from daskgp.data.stores import groups, locks, models
from daskgp.data.stores.checkpoints import Checkpoint
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.estimators import save_into
from daskgp.testing import no_compute


def table(n=57, d=3, p=0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((n, p) if p else n)


def assert_rows(rows, X, y):
    assert (len(rows), rows.n_features) == X.shape
    assert rows.n_targets == (1 if y.ndim == 1 else y.shape[1])
    edges = [0, 5, 6, len(rows)] if rows.chunks is None else [0, *np.cumsum(rows.chunks)]
    parts = [rows.read(a, b) for a, b in itertools.pairwise(edges)]
    np.testing.assert_array_equal(np.concatenate([a for a, _ in parts]), X)
    np.testing.assert_array_equal(np.concatenate([b for _, b in parts]), y.reshape(len(y), -1))


# -- datasets ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["plain", "file", "memory"])
@pytest.mark.parametrize("p", [0, 2])
def test_a_store_opens_lazily_from_any_url(tmp_path, make_store, where, p):
    X, y = table(p=p)
    path = {
        "plain": tmp_path / "a.zarr",
        "file": f"file://{tmp_path}/a.zarr",
        "memory": f"memory://{tmp_path.name}{where}{p}/a.zarr",
    }[where]
    url = make_store(X, y, rows=10, url=path)
    found_X, found_y = daskgp.open_dataset(url)
    assert found_X.chunks == ((10,) * 5 + (7,), (3,))
    assert found_y.chunks[0] == found_X.chunks[0]
    assert (found_X.dtype, found_X.shape, found_y.shape) == (X.dtype, X.shape, y.shape)
    np.testing.assert_array_equal(found_X.compute(), X)
    np.testing.assert_array_equal(found_y.compute(), y)
    rows = rows_of(found_X, found_y, "memory://unused", True)
    assert_rows(rows, X, y)
    assert not data.exists("memory://unused")


def test_sharded_stores_are_read_in_whole_shards(make_store):
    X, y = table()
    found_X, found_y = daskgp.open_dataset(make_store(X, y, rows=5, shards=20))
    assert found_X.chunks[0] == (20, 20, 17)
    rows = rows_of(found_X, found_y, "memory://unused", False)
    assert rows.chunks == (20, 20, 17)
    assert_rows(rows, X, y)


def test_dask_arrays_over_a_store_are_recognised_and_not_copied(make_store):
    X, y = table()
    url = make_store(X, y, feature_names=["a", "b", "c"], target_names=["t"])
    for pair in (
        daskgp.open_dataset(url),
        tuple(da.from_zarr(url, component=name) for name in "Xy"),
        tuple(zarr.open_group(url, mode="r")[name] for name in "Xy"),
    ):
        rows = rows_of(*pair, "memory://unused-store", False)
        assert isinstance(rows.X, zarr.Array)
        assert rows.X.path == "X"
        assert (rows.feature_names, rows.target_names) == (("a", "b", "c"), ("t",))
        assert_rows(rows, X, y)
    assert not data.exists("memory://unused-store")


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X + 1,
        lambda X: X[5:],
        lambda X: X[:, ::-1],
        lambda X: X.astype("f4"),
        lambda X: X.rechunk(13),
        lambda X: da.concatenate([X[:20], X[20:] * 2]),
    ],
)
def test_what_was_done_to_an_array_of_a_store_is_not_lost(tmp_path, make_store, change):
    X, y = daskgp.open_dataset(make_store(*table()))
    X = change(X)
    y = y[-len(X) :]
    rows = rows_of(X, y, str(tmp_path / "spill.zarr"), True)
    assert_rows(rows, X.compute(), y.compute())


@pytest.mark.parametrize("chunks", [(5, 20, 1, 31), (57,), (0, 40, 17), (1,) * 57])
def test_other_dask_arrays_are_written_once_with_ragged_chunks(tmp_path, chunks):
    X, y = table(p=2)
    spill = str(tmp_path / "spill.zarr")
    rows = rows_of(
        da.from_array(X, chunks=(chunks, 2)),
        da.from_array(y, chunks=(11, 1)),
        spill,
        True,
        max(chunks),
    )
    assert_rows(rows, X, y)
    assert isinstance(rows.X, zarr.Array)
    assert rows.X.chunks[0] == rows.y.chunks[0] == max(chunks)
    with pytest.raises(StoreError, match="exists already"):
        rows_of(da.from_array(X), da.from_array(y), spill, True)


def test_every_chunk_is_written_by_one_task(tmp_path, monkeypatch):
    X, y = table()
    X, y = da.from_array(X, chunks=(9, 3)), da.from_array(y, chunks=4)
    written = []
    put = zarr.Array.__setitem__

    def note(self, selection, value):
        if self.name.endswith(("X", "y")):
            start, stop, _ = np.atleast_1d(selection)[0].indices(57)
            written.append((self.name, start, stop))
        put(self, selection, value)

    monkeypatch.setattr(zarr.Array, "__setitem__", note)
    rows_of(X, y, str(tmp_path / "spill.zarr"), True, 9)
    whole = [(a, min(a + 9, 57)) for a in range(0, 57, 9)]
    for name in ("/X", "/y"):
        assert sorted((a, b) for n, a, b in written if n == name) == whole


def test_thin_chunks_are_written_as_thick_ones(tmp_path):
    X = da.random.default_rng(0).normal(size=(300, 3), chunks=(1, 3))
    rows = rows_of(X, X[:, 0], str(tmp_path / "spill.zarr"), True)
    assert rows.chunks == (300,)
    X = da.zeros((100_000, 4), chunks=(500, 4))
    rows = rows_of(X, X[:, 0], str(tmp_path / "more.zarr"), True, 60_000)
    assert rows.X.chunks == (2**20 // 32, 4)


def test_what_is_lost_of_a_spilled_store_is_missing_and_not_zero(tmp_path):
    spill = tmp_path / "spill.zarr"
    X = np.arange(90).reshape(30, 3)
    rows = rows_of(da.from_array(X), da.from_array(X[:, 0] % 2 == 0), str(spill), True, 10)
    shutil.rmtree(spill / "X" / "c" / "1")
    (spill / "y" / "c" / "2").unlink()
    found, y = rows.read(0, 30)
    assert np.isnan(found[10:20]).all()
    np.testing.assert_array_equal(found[:10], X[:10])
    assert np.isnan(y[20:]).all()
    np.testing.assert_array_equal(y[:20, 0], X[:20, 0] % 2 == 0)


@pytest.mark.parametrize("name", ["X", "y"])
@pytest.mark.parametrize("shards", [None, 20])
def test_a_lost_chunk_that_reads_as_a_number_is_told(name, shards, tmp_path, make_store, caplog):
    X, y = table(60)
    url = make_store(X, y, 20 if shards is None else 10, shards=shards)
    daskgp.open_dataset(url)
    assert not caplog.text
    chunk = {"X": ("1", "0"), "y": ("1",)}[name]
    (tmp_path / "data.zarr" / name / "c").joinpath(*chunk).unlink()
    daskgp.open_dataset(url)
    assert caplog.text.count("lacks") == 1
    assert f"{url}/{name} lacks 1 of 3 chunks, whose rows read as 0: write them" in caplog.text


@pytest.mark.whole
@pytest.mark.parametrize("form", [2, 3])
def test_a_lost_chunk_is_told_by_a_fit_and_a_prediction(form, tmp_path, caplog):
    X, y = table(60)
    for url, fill in ((tmp_path / "zero.zarr", 0.0), (tmp_path / "nan.zarr", np.nan)):
        group = zarr.create_group(url, zarr_format=form)
        for name, a in (("X", X), ("y", y)):
            how = {"chunks": (20, *a.shape[1:]), "dtype": "f8", "fill_value": fill}
            group.create_array(name, shape=a.shape, **how)[...] = a
        for chunk in (("X", "1.0"), ("y", "2")) if form == 2 else (("X", "c/1/0"), ("y", "c/2")):
            (url / "/".join(chunk)).unlink()
    model = daskgp.ExactGP(optimizer=None, progress=False)
    model.fit(*daskgp.open_dataset(tmp_path / "nan.zarr"))
    assert model.n_rows_ == 20
    assert "lacks" not in caplog.text
    model.fit(*daskgp.open_dataset(tmp_path / "zero.zarr"))
    assert caplog.text.count("lacks 1 of 3 chunks, whose rows read as 0") == 2
    caplog.clear()
    model.predict_store(str(tmp_path / "zero.zarr"), str(tmp_path / "out.zarr"))
    assert caplog.text.count("lacks 1 of 3 chunks") == 1
    assert "X lacks" in caplog.text


@pytest.mark.parametrize("lazy_y", [False, True])
def test_numpy_rows_are_written_by_this_process_and_not_through_a_graph(tmp_path, lazy_y):
    X, y = table()
    sizes = []
    keep = {"posttask": lambda key, result, *_: sizes.append(np.size(result))}
    with dask.config.set(scheduler="sync"), Callback(**keep):
        given = da.from_array(y, chunks=10) if lazy_y else y
        rows = rows_of(X, given, str(tmp_path / "spill.zarr"), False, 10)
    assert max(sizes, default=0) <= y.size
    assert lazy_y or not sizes
    assert_rows(rows, X, y)


def test_a_failed_spill_leaves_nothing_behind(tmp_path):
    def fail(block):
        raise OSError("no such bucket")

    spill = tmp_path / "spill.zarr"
    X = da.ones((20, 2), chunks=5).map_blocks(fail, dtype=float)
    with pytest.raises(StoreError, match="no such bucket"):
        rows_of(X, da.ones(20), str(spill), True)
    assert not spill.exists()


def test_numpy_stays_in_memory_where_tasks_see_it_and_is_written_where_not(tmp_path):
    X, y = table()
    near = rows_of(X, y, str(tmp_path / "no.zarr"), True)
    assert near.X is X
    assert not (tmp_path / "no.zarr").exists()
    far = rows_of(X, y, str(tmp_path / "yes.zarr"), False)
    assert isinstance(far.X, zarr.Array)
    for rows in (near, far):
        assert_rows(rows, X, y)
        assert rows.feature_names == ("x0", "x1", "x2")
        assert rows.target_names == ("y",)


def test_numpy_reaches_the_workers_of_a_cluster(default_client):
    X, y = table()
    settings = {"n_inducing": 10, "optimizer": None, "block_rows": 9}
    far = daskgp.SGPR(**settings).fit(X, y)
    assert far.predict(X[:3], return_std=True)[0].shape == (3,)
    here = daskgp.SGPR(**settings)
    with dask.config.set(scheduler="threads"):
        here.fit(X, y)
    assert far.objective_ == pytest.approx(here.objective_, rel=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_written_chunks_are_no_larger_than_blocks_are_wanted(tmp_path, shared):
    X, y = table()
    lazy = rows_of(da.from_array(X), da.from_array(y), str(tmp_path / "a.zarr"), shared, 10)
    assert lazy.chunks == (10,) * 5 + (7,)
    far = rows_of(X, y, str(tmp_path / "b.zarr"), False, 10)
    assert far.chunks == lazy.chunks
    for rows in (lazy, far):
        assert_rows(rows, X, y)


def test_sizes_are_found_without_writing():
    with no_compute():
        rows = rows_of(da.ones((57, 3), chunks=9), da.ones(57), None, False, 9)
    assert (len(rows), rows.n_features, rows.chunks) == (57, 3, (9,) * 6 + (3,))


def test_lists_and_data_frames(tmp_path):
    X, y = table()
    frame = pd.DataFrame(X, columns=["lon", "lat", "t"])
    rows = rows_of(frame, pd.Series(y, name="temp"), "memory://unused", True)
    assert (rows.feature_names, rows.target_names) == (("lon", "lat", "t"), ("temp",))
    assert_rows(rows, X, y)
    assert_rows(rows_of(X.tolist(), y.tolist(), "memory://unused", True), X, y)
    several = rows_of(frame, pd.DataFrame({"u": y, "v": -y}), "memory://unused", True)
    assert several.target_names == ("u", "v")
    assert_rows(several, X, np.column_stack([y, -y]))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.array([["a"]]), np.ones(1), "X has type <U1 and holds 'a', but numbers"),
        (da.ones((3, 2)), da.ones(4), "X has 3 rows but y has 4"),
        (da.ones((6, 2), chunks=3)[da.ones(6, chunks=3) > 0], da.ones(6), "unknown chunk sizes"),
        (da.ones((3, 2)).astype(object), da.ones(3), "X has type object"),
    ],
)
def test_rows_that_do_not_fit_are_refused(X, y, message):
    with pytest.raises(InputError, match=message):
        rows_of(X, y, "memory://unused-refused", True)
    assert not data.exists("memory://unused-refused")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": ((20, 2), (10, 2)), "y": ((20,), (5,))}, r"chunks of 10 rows but y of 5.*convert"),
        ({"X": ((20, 2), (10, 1)), "y": ((20,), (10,))}, "hold 1 of 2 columns"),
    ],
)
def test_stores_that_are_not_aligned_are_refused(tmp_path, arrays, message):
    group = zarr.create_group(tmp_path / "bad.zarr")
    for name, (shape, chunks) in arrays.items():
        group.create_array(name, shape=shape, chunks=chunks, dtype="f8")
    with pytest.raises(StoreError, match=message) as caught:
        daskgp.open_dataset(tmp_path / "bad.zarr")
    assert "\n" not in str(caught.value)


def test_a_store_written_again_at_its_place_has_another_name(tmp_path):
    X, y = table()
    url = tmp_path / "a.zarr"
    names = []
    for _ in range(2):
        with data.dataset_writer(str(url), "abc", "y", 10) as writer:
            writer.append(X, y)
        opened = [*daskgp.open_dataset(url), data.open_inputs(str(url))]
        assert opened[0].name == opened[2].name != opened[1].name
        assert opened[0].name == daskgp.open_dataset(url)[0].name
        names.append([a.name for a in opened])
        shutil.rmtree(url)
    assert not set(names[0]) & set(names[1])


def test_a_store_that_is_being_written_is_no_dataset_yet(tmp_path):
    url = str(tmp_path / "a.zarr")
    with data.dataset_writer(url, "abc", "y", 10) as writer:
        writer.append(*table())
        for opening in (daskgp.open_dataset, data.open_inputs):
            with pytest.raises(StoreError, match=r"is incomplete: wait .* convert again$"):
                opening(url)
    assert len(daskgp.open_dataset(url)[0]) == 57


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (((9,), (3,), "f8"), ((9,), (3,), "f8"), "X has 1 dimensions, 2 are needed"),
        (((9, 2), (3, 2), "f8"), ((9, 1, 1), (3, 1, 1), "f8"), "y has 3 dimensions, 1 or 2"),
        (((9, 2), (3, 2), "c16"), ((9,), (3,), "f8"), "X has type complex128, real numbers"),
        (((9, 2), (3, 2), "f8"), ((9,), (3,), "c8"), "y has type complex64, real numbers"),
        (((9, 2), (3, 2), "f8"), ((8,), (3,), "f8"), "X has 9 rows but y has 8"),
        (((9, 2), (3, 2), "f8"), ((9, 4), (3, 2), "f8"), "chunks of y hold 2 of 4 columns"),
    ],
)
def test_zarr_arrays_that_do_not_fit_are_refused(tmp_path, X, y, message):
    group = zarr.create_group(tmp_path / "a.zarr")
    arrays = [
        group.create_array(name, shape=shape, chunks=chunks, dtype=dtype)
        for name, (shape, chunks, dtype) in (("X", X), ("y", y))
    ]
    with pytest.raises(InputError, match=message) as caught:
        daskgp.SGPR().fit(*arrays)
    assert "\n" not in str(caught.value)


# -- labelled data -------------------------------------------------------------------------


def grid(chunks=None):
    lat, lon = np.linspace(-1, 1, 6), np.linspace(0, 3, 8)
    time = np.array(["2001-01-01", "2001-01-02T12", "2001-03-01"], "M8[ns]")
    values = np.arange(6 * 3 * 8.0).reshape(6, 3, 8)
    array = xr.DataArray(
        values,
        dims=("lat", "time", "lon"),
        coords={"lat": lat, "time": time, "lon": lon},
        name="temp",
    )
    return array if chunks is None else array.chunk(chunks)


def as_table(array):
    days = (array.time.values - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    mesh = np.meshgrid(array.lat, days, array.lon, indexing="ij")
    return np.stack([m.ravel() for m in mesh], axis=1), array.values.ravel()


@pytest.mark.parametrize("chunks", [None, {"lat": 4, "time": 2, "lon": 5}, {"time": 1}])
def test_rows_of_a_grid_are_its_points(tmp_path, chunks):
    y = grid(chunks)
    rows = rows_of(y.coords.to_dataset(), y, str(tmp_path / "spill.zarr"), True)
    assert rows.feature_names == ("time", "lat", "lon") or rows.feature_names == (
        "lat",
        "time",
        "lon",
    )
    X, values = rows.read(0, len(rows))
    wanted_X, wanted = as_table(grid())
    order = [("lat", "time", "lon").index(name) for name in rows.feature_names]
    place = np.argsort(values[:, 0])
    np.testing.assert_array_equal(values[place, 0], wanted)
    np.testing.assert_allclose(X[place], wanted_X[:, order], rtol=0, atol=1e-9)


@pytest.mark.parametrize("p", [0, 2])
def test_no_rows_have_the_columns_of_others(p):
    X, y = table(p=p)
    noise = data.named_beside(y_variance=y**2, sample_weight=np.ones(len(y)))
    rows = rows_of(X, y, None, True, beside=noise, joint=bool(p))
    rows = dataclasses.replace(rows, fills=((-999.0,),) * (3 + max(p, 1)))
    for found, wanted in zip(rows.read(7, 7), rows.read(7, 8), strict=True):
        assert found.shape == (0, wanted.shape[1])


def test_a_grid_with_itself_as_x(tmp_path):
    y = grid()
    rows = rows_of(y, y.transpose("lon", "lat", "time"), str(tmp_path / "s.zarr"), True)
    assert rows.feature_names == ("lat", "time", "lon")
    assert rows.target_names == ("temp",)
    X, values = rows.read(0, len(rows))
    wanted_X, wanted = as_table(y)
    np.testing.assert_allclose(X, wanted_X)
    np.testing.assert_array_equal(values[:, 0], wanted)


@pytest.mark.parametrize("chunked", [False, True])
def test_rows_of_a_labelled_table(tmp_path, chunked):
    X, y = table()
    labelled = xr.DataArray(X, dims=("row", "feature"), coords={"feature": ["a", "b", "c"]})
    target = xr.DataArray(y, dims="row", name="t")
    if chunked:
        labelled, target = labelled.chunk({"row": 20}), target.chunk({"row": 20})
    rows = rows_of(labelled, target, str(tmp_path / "s.zarr"), True)
    assert (rows.feature_names, rows.target_names) == (("a", "b", "c"), ("t",))
    assert_rows(rows, X, y)
    variables = xr.Dataset({name: ("row", X[:, j]) for j, name in enumerate("abc")})
    rows = rows_of(variables, xr.DataArray(y, dims="row", name="t"), str(tmp_path / "u.zarr"), True)
    assert rows.feature_names == ("a", "b", "c")
    assert_rows(rows, X, y)


def test_labelled_and_plain_arrays_do_not_mix():
    y = grid()
    with pytest.raises(InputError, match="y must be a DataArray, not ndarray"):
        rows_of(y, y.values, "memory://unused", True)
    with pytest.raises(InputError, match="X must be an xarray object, not ndarray"):
        rows_of(y.values, y, "memory://unused", True)
    with pytest.raises(InputError, match="align them"):
        rows_of(y, y.isel(lat=slice(3)), "memory://unused", True)
    with pytest.raises(InputError, match="coordinate 'lat' of y differs from that of X"):
        rows_of(y, y.isel(lat=slice(None, None, -1)), "memory://unused", True)


def test_weights_of_an_average_on_other_coordinates_are_called_so():
    rows = pd.DataFrame({"lat": np.linspace(-5.0, 5.0, 20)})
    model = daskgp.ExactGP(optimizer=None, progress=False).fit(rows, np.arange(20.0))
    places = xr.Dataset(coords={"lat": np.arange(5.0)})
    weights = np.cos(np.deg2rad(places["lat"]))[::-1]
    with pytest.raises(InputError, match="coordinate 'lat' of weights differs from that of X"):
        model.predict_average(places, weights)


# -- model stores --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X, y = table(p=2)
    kernel = kernels.Matern32(ard=True) + 0.5 * kernels.RBF(0.3, active_dims=(0, 2))
    return daskgp.SGPR(kernel, n_inducing=9, mean="linear", max_iter=2, tol=0.1).fit(
        pd.DataFrame(X, columns=["a", "b", "c"]), pd.DataFrame(y, columns=["u", "v"])
    )


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "model.zarr")
    return tmp_path / "model.zarr"


def test_a_model_comes_back_bit_for_bit(fitted, saved):
    loaded = daskgp.load(saved)
    assert type(loaded) is daskgp.SGPR
    assert loaded.kernel_ == fitted.kernel_
    assert loaded.history_ == fitted.history_
    assert loaded.get_params() == fitted.get_params()
    for name in ("noise_variance_", "objective_", "n_features_in_", "n_rows_"):
        assert getattr(loaded, name) == getattr(fitted, name)
    assert list(loaded.feature_names_in_) == ["a", "b", "c"]
    assert loaded.solved_.token == fitted.solved_.token
    X = table(5, seed=1)[0]
    for a, b in zip(loaded.predict(X, True), fitted.predict(X, True), strict=True):
        assert a.tobytes() == b.tobytes()
    assert loaded.log_marginal_likelihood() == fitted.log_marginal_likelihood()


def test_a_model_travels_by_url_and_keeps_an_array_setting(tmp_path):
    X, y = table()
    url = f"memory://{tmp_path.name}/model.zarr"
    model = daskgp.SGPR(inducing=X[:7], optimizer=None).fit(X, y)
    model.save(url)
    loaded = daskgp.load(url)
    np.testing.assert_array_equal(loaded.inducing, X[:7])
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(StoreError, match="exists already"):
        model.save(url)
    loaded.fit(X, y)  # settings are whole
    assert loaded.objective_ == model.objective_


def test_nothing_pickled_is_written(saved):
    marks = (b"\x80\x04", b"\x80\x05", b"cdaskgp", b"pickle", b"numpy.core")
    files = [path for path in saved.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        content = path.read_bytes()
        if path.name == "zarr.json":
            json.loads(content)
            assert not any(mark in content for mark in marks), path
    kinds = {array.dtype.kind for _, array in zarr.open_group(saved, mode="r").arrays()}
    assert kinds == {"f"}


def test_numpy_scalars_among_the_settings_come_back_as_numbers(tmp_path):
    X, y = table()
    settings = {"n_inducing": np.int64(9), "tol": np.float32(0.5)}
    daskgp.SGPR(**settings, max_iter=np.int32(1)).fit(X, y).save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr")
    found = [loaded.n_inducing, loaded.tol, loaded.max_iter]
    assert [type(value) for value in found] == [int, float, int]
    loaded.fit(X, y)
    assert loaded.inducing_.shape == (9, 3)


def test_the_device_of_a_stored_model_can_be_replaced(fitted, tmp_path):
    gpu = copy.deepcopy(fitted).set_params(device="gpu")
    gpu._fitted = fitted._fitted.of(dataclasses.replace(fitted.solved_, device="gpu"))
    gpu.save(tmp_path / "gpu.zarr")
    X = table(5)[0]
    loaded = daskgp.load(tmp_path / "gpu.zarr", device="cpu")
    assert (loaded.device, loaded.solved_.device) == ("cpu", "cpu")
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert daskgp.load(tmp_path / "gpu.zarr").device == "gpu"
    assert gpu.solved_.token != loaded.solved_.token
    with pytest.raises(SettingError, match="device='tpu': choose one of 'auto', 'cpu', 'gpu'"):
        daskgp.load(tmp_path / "gpu.zarr", device="tpu")


def test_saving_that_fails_leaves_nothing(fitted, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("daskgp.data.stores.groups.write_array", fail)
    with pytest.raises(StoreError, match="the disk is full"):
        fitted.save(tmp_path / "m.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_does_not_hide_why_a_fit_failed(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(5, "Input/output error")

    store = str(tmp_path / "m.zarr")
    expected = pytest.raises(RuntimeError, match="the first error")
    with expected as error, locks.hold(store) as claim, models.reserve(store, claim):
        monkeypatch.setattr(LocalFileSystem, "_open", fail)
        monkeypatch.setattr(LocalFileSystem, "cat_file", fail)
        monkeypatch.setattr(groups, "remove", fail)
        raise RuntimeError("the first error")
    assert all("Input/output error" in note for note in error.value.__notes__)
    assert len(error.value.__notes__) == 2


def test_a_lock_whose_heartbeat_cannot_start_is_given_back(tmp_path, monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    store = str(tmp_path / "m.zarr")
    with monkeypatch.context() as broken:
        broken.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start new thread"), locks.hold(store):
            pass
    with locks.hold(store):
        pass


def test_a_kill_while_a_checkpoint_is_removed_leaves_a_complete_model(
    fitted, tmp_path, monkeypatch
):
    store = str(tmp_path / "m.zarr")

    def killed(url):
        raise SystemExit

    with locks.hold(store) as claim, models.reserve(store, claim) as group:
        Checkpoint(f"{store}/checkpoint", {}).append(0, np.ones(3))
        monkeypatch.setattr(groups, "remove", killed)
        with pytest.raises(SystemExit):
            save_into(fitted._model_to_save(), group, store)
        monkeypatch.undo()
    assert models.is_complete(store)
    X = np.random.default_rng(0).uniform(size=(5, fitted.n_features_in_))
    np.testing.assert_array_equal(daskgp.load(store).predict(X), fitted.predict(X))
    models.forget(store)
    assert not (tmp_path / "m.zarr" / "checkpoint").exists()
