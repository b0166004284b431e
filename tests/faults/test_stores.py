"""Stores that fail for a moment, are damaged, or fill up while they are written."""

import os
import pickle
import shutil

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import dataset, files, predictions, refused, rows, succeed

import daskgp
from daskgp.data import behind, reading
from daskgp.errors import InputError, RunError, StoreError

SMALL = ("kernel=matern32(1.0)", "n_inducing=20", "tol=1e-14", "max_iter=12")
FIT = ("--model", "sgpr", *(f"--set={setting}" for setting in SMALL))


@pytest.fixture
def data(tmp_path):
    return dataset(tmp_path / "train.zarr", *rows(400), step=50)


class Failing(zarr.storage.LocalStore):
    """A store whose reads of chunks fail the first times, as a network does."""

    left = 0

    async def get(self, key, *rest, **more):
        if "/c/" in f"/{key}" and Failing.left:
            Failing.left -= 1
            raise ConnectionResetError("connection reset by peer")
        return await super().get(key, *rest, **more)


def opened(data):
    return zarr.open_group(Failing(data, read_only=True), mode="r")


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_a_read_that_fails_for_a_moment_is_repeated_under_every_scheduler(
    data, scheduler, monkeypatch, caplog
):
    monkeypatch.setattr(Failing, "left", 0)
    X = opened(data)["X"]
    wanted = reading.read(X, slice(50, 150))
    Failing.left = 2
    with dask.config.set(scheduler=scheduler):
        rows_read = dask.compute(dask.delayed(reading.read, traverse=False)(X, slice(50, 150)))[0]
    assert rows_read.tobytes() == wanted.tobytes()
    assert "connection reset by peer" in caplog.text


def test_a_read_that_keeps_failing_names_array_and_rows(data, monkeypatch):
    X = opened(data)["X"]
    monkeypatch.setattr(Failing, "left", 1000)
    line = r"array .*train\.zarr/X, rows 50 to 99 cannot be read: connection reset by peer$"
    with pytest.raises(RunError, match=line):
        reading.read(X, slice(50, 100))
    assert Failing.left == 1000 - reading.ATTEMPTS


def test_what_reading_again_does_not_mend_is_not_read_again(data, monkeypatch):
    seen = []

    class Refusing:
        def __getitem__(self, rows):
            seen.append(rows)
            raise PermissionError("permission denied")

    with pytest.raises(RunError, match="rows 0 to 9 cannot be read: permission denied"):
        reading.read(Refusing(), slice(0, 10))
    assert len(seen) == 1


def damage(data, kind, chunk="X/c/3/0"):
    path = os.path.join(data, chunk)
    with open(path, "r+b") as file:
        if kind == "truncated":
            file.truncate(os.path.getsize(path) // 2)
        elif kind == "empty":
            file.truncate(0)
        elif kind == "one bit":
            whole = file.read()
            file.seek(len(whole) // 2)
            file.write(bytes([whole[len(whole) // 2] ^ 1]))
        else:
            file.write(np.random.default_rng(0).bytes(os.path.getsize(path)))


@pytest.mark.parametrize("kind", ["truncated", "garbage", "empty", "one bit"])
def test_a_damaged_chunk_is_refused_by_name(data, kind):
    damage(data, kind)
    model = daskgp.SGPR(n_inducing=5, optimizer=None, block_rows=50, progress=False)
    line = (
        r"array .*train\.zarr/X, rows 150 to 199 cannot be read: damaged chunk: .*: convert again"
    )
    with pytest.raises(StoreError, match=line) as caught:
        model.fit(*daskgp.open_dataset(data))
    assert "\n" not in str(caught.value)


def test_a_damaged_chunk_is_one_line_of_the_command(data, tmp_path, scheduler):
    model = tmp_path / "m.zarr"
    succeed("fit", data, model, *FIT, "--scheduler", scheduler)
    damage(data, "garbage")
    other, out = tmp_path / "other.zarr", tmp_path / "out.zarr"
    for command in (("fit", data, other, *FIT), ("predict", model, data, out)):
        line = refused(*command, "--scheduler", scheduler)
        assert "rows 150 to 199 cannot be read: damaged chunk" in line
    assert not other.exists()


def test_a_dataset_that_lost_the_description_of_an_array_is_refused_as_one(here, data, tmp_path):
    os.remove(os.path.join(data, "X/zarr.json"))
    line = refused("fit", data, tmp_path / "m.zarr", *FIT)
    assert line.endswith("is damaged: array 'X' lacks its zarr.json: convert again")


@pytest.mark.parametrize("chunk", ["t/c/0", "x/c/0"])
def test_a_damaged_chunk_of_a_grid_is_refused_in_one_line(here, tmp_path, chunk):
    grid = xr.Dataset({"t": ("x", np.arange(200.0))}, {"x": np.arange(200.0)})
    grid.to_zarr(tmp_path / "g.zarr", consolidated=False)
    damage(tmp_path / "g.zarr", "garbage", chunk)
    line = refused("convert", tmp_path / "g.zarr", tmp_path / "d.zarr", "--target", "t")
    assert f"cannot read {tmp_path / 'g.zarr'}: " in line
    assert line.endswith("; check that the file is whole and of the format its name says")


def test_a_missing_chunk_is_warned_of(data, caplog):
    os.remove(os.path.join(data, "X/c/3/0"))
    model = daskgp.SGPR(n_inducing=5, optimizer=None, progress=False)
    model.fit(*daskgp.open_dataset(data))
    assert "50 rows with missing values are left out" in caplog.text
    assert model.n_rows_ == 350
    shutil.rmtree(os.path.join(data, "y/c"))
    lost = "no usable rows: file.*train.zarr/X lacks 1 of 8 chunks, which read as missing values: w"
    with pytest.raises(InputError, match=lost):
        model.fit(*daskgp.open_dataset(data))


def fill(folder, free):
    """Leave so many bytes free."""
    size = os.statvfs(folder)
    with open(folder / "ballast", "wb") as file:
        file.write(bytes(size.f_bavail * size.f_frsize - free))


@pytest.mark.slow
def test_a_fit_whose_disk_fills_up_goes_on_where_there_is_space_again(
    data, small_disk, tmp_path, scheduler
):
    model, whole = small_disk / "m.zarr", tmp_path / "whole.zarr"
    options = (*FIT, "--scheduler", scheduler)
    fill(small_disk, 48 * 1024)
    line = refused("fit", data, model, *options)
    assert "the disk is full: free some space" in line
    assert "--resume continues from here" in line
    kept = len(list(model.rglob("evaluations/c/*/0")))
    assert kept > 1
    os.remove(small_disk / "ballast")
    succeed("fit", data, model, *options, "--resume")
    succeed("fit", data, whole, *options)
    mine, theirs = files(model), files(whole)
    assert set(mine) == set(theirs)
    assert [name for name in mine if name != "zarr.json" and mine[name] != theirs[name]] == []


# -- lazily ----------------------------------------------------------------------------------

DAMAGED = (
    r"array .*train\.zarr/X, rows 150 to 1\d9 cannot be read: damaged chunk: .*: convert again"
)


@pytest.fixture
def model():
    return daskgp.SGPR(n_inducing=5, optimizer=None, progress=False).fit(*rows(100))


LAZY = {
    "the array itself": lambda model, X: X,
    "a part of it": lambda model, X: X[120:190, 1],
    "chosen rows": lambda model, X: X[[3, 170, 390]],
    "other chunks": lambda model, X: X.rechunk((70, 2)) + 1,
    "a prediction": lambda model, X: model.predict(X, return_std=True)[1],
    "an average": lambda model, X: model.predict_average(X)[0],
    "of a Zarr array": lambda model, X: model.predict(behind(X)),
    "of Dask's own": lambda model, X: model.predict(da.from_zarr(behind(X))),
}


@pytest.mark.parametrize("case", LAZY)
def test_a_damaged_chunk_that_is_read_lazily_is_refused_by_name(case, data, model):
    found = LAZY[case](model, daskgp.open_dataset(data)[0])
    wanted = np.asarray(found)
    assert np.isfinite(wanted).all()
    damage(data, "garbage")
    with pytest.raises(StoreError, match=DAMAGED) as caught:
        found.compute()
    assert "\n" not in str(caught.value)
    assert len(pickle.dumps(dict(found.dask))) < 200_000


def test_sound_chunks_beside_a_damaged_one_are_read(data, model):
    X, _ = daskgp.open_dataset(data)
    damage(data, "garbage")
    assert np.isfinite(model.predict(X)[:150].compute()).all()


def test_lazy_parts_are_those_of_the_array(data):
    X, y = daskgp.open_dataset(data)
    values, targets = behind(X)[...], behind(y)[...]
    for key in (slice(7, 230, 3), slice(None, None, -1), [9, 3, 300], 5, (slice(None), 1)):
        np.testing.assert_array_equal(X[key].compute(), values[key])
    np.testing.assert_array_equal(X[targets > 2].compute(), values[targets > 2])
    np.testing.assert_array_equal(X[y > 2].compute(), values[targets > 2])


def test_a_lazy_read_that_fails_for_a_moment_is_repeated(data, monkeypatch, caplog):
    monkeypatch.setattr(Failing, "left", 0)
    X = reading.from_zarr(opened(data)["X"])
    Failing.left = 2
    assert X[:50].compute().shape == (50, 2)
    assert "connection reset by peer" in caplog.text


def test_a_prediction_whose_disk_fills_up_goes_on_where_there_is_space_again(
    data, small_disk, tmp_path, scheduler
):
    model, out, whole = tmp_path / "m.zarr", small_disk / "out.zarr", tmp_path / "whole.zarr"
    daskgp.SGPR(n_inducing=5, optimizer=None, progress=False).fit(*rows(100)).save(model)
    fill(small_disk, 96 * 1024)
    line = refused("predict", model, data, out, "--scheduler", scheduler)
    assert "the disk is full: free some space" in line
    assert "--resume (resume=True) continues from here" in line
    done = zarr.open_group(out, mode="r")["done"][...]
    assert 0 < done.sum() < len(done)
    os.remove(small_disk / "ballast")
    found = succeed("predict", model, data, out, "--resume", "--scheduler", scheduler)
    assert found["skipped"] >= 50 * done.sum()
    succeed("predict", model, data, whole, "--scheduler", scheduler)
    assert predictions(out) == predictions(whole)
