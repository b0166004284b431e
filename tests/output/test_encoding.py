"""Chunks, shards, types, packing and compression of maps, in stores and in files."""

import importlib.util
import warnings

import dask
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import refused, rows, succeed

import daskgp
from daskgp.data import encoding as encodings
from daskgp.errors import SettingError, StoreError
from daskgp.output import labelled
from daskgp.runtime.process import single_blas_thread

SIZES = {"chunks": {"x0": 4, "x1": 5}, "shards": {"x0": 8, "x1": 10}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    X, y = rows(60)
    fitted = daskgp.ExactGP("rbf(1.0)", optimizer=None, progress=False).fit(X, y)
    fitted.store_url = str(tmp_path_factory.mktemp("model") / "m.zarr")
    fitted.save(fitted.store_url)
    return fitted


@pytest.fixture(autouse=True)
def one_thread():
    with single_blas_thread():
        yield


def grid(n=21, chunks=(3, 7)):
    """A grid whose own chunks divide none of those that are asked for."""
    places = xr.Dataset(coords={"x0": np.arange(n) * 0.125, "x1": np.linspace(0, 3, 14)})
    field = xr.DataArray(np.zeros((n, 14)), dims=("x0", "x1"))
    return places.assign(z=field.chunk(x0=chunks[0], x1=chunks[1]))


def opened(url):
    return xr.open_zarr(url).load()


# -- stores ----------------------------------------------------------------------------------


def test_a_map_in_shards_is_that_in_chunks_of_the_grid(model, tmp_path, default_client):
    plain, sharded = tmp_path / "plain.zarr", tmp_path / "sharded.zarr"
    model.predict_store(grid(), plain)
    model.predict_store(grid(), sharded, encoding=SIZES, quantiles=(0.1, 0.9))
    for name in ("mean", "std"):
        array = zarr.open_array(sharded / name)
        assert (array.chunks, array.shards) == ((4, 5), (8, 10))
        np.testing.assert_allclose(opened(sharded)[name], opened(plain)[name], rtol=1e-12)
    array = zarr.open_array(sharded / "quantiles")
    assert (array.chunks, array.shards) == ((4, 5, 2), (8, 10, 2))
    assert zarr.open_array(sharded / "chunks" / "done").shape == (3, 2, 2)


def test_a_map_in_shards_grows_with_its_grid_and_keeps_them(model, tmp_path):
    url = tmp_path / "map.zarr"
    model.predict_store(grid(13), url, encoding=SIZES)
    grown = model.predict_store(grid(21), url, resume=True, encoding=SIZES)
    assert (grown.rows, grown.skipped) == (8 * 14, 13 * 14)
    whole = tmp_path / "whole.zarr"
    model.predict_store(grid(21), whole, encoding=SIZES)
    np.testing.assert_allclose(opened(url)["mean"], opened(whole)["mean"], rtol=1e-12)
    assert model.predict_store(grid(21), url, resume=True) == (0, 21 * 14)
    line = r"have shards of x0=8, x1=10, but this run has x0=4: a map keeps those it has"
    with pytest.raises(StoreError, match=line):
        model.predict_store(grid(21), url, resume=True, encoding={**SIZES, "shards": {"x0": 4}})
    with pytest.raises(StoreError, match="are float64, but this run has float32: a map keeps its"):
        model.predict_store(grid(21), url, resume=True, encoding={"dtype": "float32"})


def test_a_map_of_which_tasks_share_a_shard_is_refused_before_it_is_written(model, tmp_path):
    url = tmp_path / "map.zarr"
    model.predict_store(grid(13), url, encoding=SIZES)
    values = zarr.open_array(url / "std")[:]
    group = zarr.open_group(url, use_consolidated=False)
    dims = {"dimension_names": ("x0", "x1"), "attributes": group["std"].attrs.asdict()}
    how = {"shape": values.shape, "dtype": "f8", "chunks": (4, 5), "shards": (12, 10), **dims}
    group.create_array("std", overwrite=True, **how)[:] = values
    before = zarr.open_array(url / "mean")[:]
    with pytest.raises(
        StoreError, match=r"'std' lies in shards of 12 x 10 and a task writes 8 x 1"
    ):
        model.predict_store(grid(21), url, resume=True)
    np.testing.assert_array_equal(zarr.open_array(url / "mean")[:], before)


def test_a_map_of_float32_takes_half_and_has_the_rounded_values(model, tmp_path):
    plain, half = tmp_path / "plain.zarr", tmp_path / "half.zarr"
    model.predict_store(grid(), plain)
    model.predict_store(grid(13), half, encoding={"dtype": "float32"})
    model.predict_store(grid(), half, resume=True)
    made, wanted = opened(half), opened(plain)
    for name in ("mean", "std"):
        assert made[name].dtype == np.float32
        np.testing.assert_allclose(made[name], wanted[name], rtol=1e-6)


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ({"chunk": 1}, r"^encoding=\{'chunk': 1\}: give a mapping of chunks, shards, dtype"),
        ({"chunks": 10}, r"^chunks=10: give numbers of cells by dimension, such as \{'lat': 100\}"),
        ({"chunks": {"x0": 0}}, r"^chunks of x0=0: a whole number of at least 1 is needed"),
        ({"chunks": {"z": 5}}, r"^chunks has a size for 'z', the dimensions .* are x0, x1: give"),
        ({"shards": {"x0": 8}}, r"^shards hold several chunks: give chunks, too"),
        (
            {"chunks": {"x0": 3}, "shards": {"x0": 8}},
            r"^shards of 8 along 'x0' cut chunks of 3: give a multiple",
        ),
        ({"dtype": "float16"}, r"^dtype='float16': give one of float64, float32, int16"),
        ({"dtype": "int16"}, r"^dtype int16 and scale_factor, .* belong together"),
        ({"compression": 5}, r"^compression: a prediction store holds floats, which Zarr compress"),
        ({"compression": 11}, r"^compression=11: give a level from 0 to 9"),
    ],
)
@pytest.mark.whole
def test_encodings_that_do_not_fit_are_refused_before_work_starts(model, tmp_path, encoding, line):
    with pytest.raises(SettingError, match=line):
        model.predict_store(grid(), tmp_path / "map.zarr", encoding=encoding)
    assert [*tmp_path.iterdir()] == []


def test_rows_and_csv_files_have_no_encoding(model, tmp_path, make_store):
    X, y = rows(25)
    with pytest.raises(SettingError, match="holds rows, whose predictions have its chunks"):
        model.predict_store(make_store(X, y), tmp_path / "p.zarr", encoding={"dtype": "float32"})
    (tmp_path / "a.csv").write_text("x0,x1\n1,2\n")
    with pytest.raises(SettingError, match="is written whole"):
        model.predict_store(tmp_path / "a.csv", tmp_path / "b.csv", encoding={"dtype": "float32"})


def test_the_command_makes_shards(model, tmp_path):
    places, url = tmp_path / "grid.zarr", tmp_path / "map.zarr"
    grid().to_zarr(places, consolidated=False)
    how = ("--chunks", "x0=4,x1=5", "--shards", "x0=8,x1=10", "--dtype", "float32")
    succeed("predict", model.store_url, places, url, *how)
    array = zarr.open_array(url / "mean")
    assert (array.chunks, array.shards, array.dtype) == ((4, 5), (8, 10), np.float32)
    line = refused("predict", model.store_url, places, tmp_path / "b.zarr", "--chunks", "x0=1.5")
    assert "--chunks has '1.5' for 'x0': give a number of cells" in line


# -- files -----------------------------------------------------------------------------------


@pytest.fixture
def maps():
    rng = np.random.default_rng(0)
    coords = {"lat": np.linspace(50, 60, 40), "lon": np.linspace(0, 10, 30)}
    values = 280 + 10 * rng.standard_normal((40, 30))
    values[0, :3] = np.nan
    fields = {"temp": (("lat", "lon"), values, {"units": "K"})}
    return xr.Dataset({**fields, "temp_std": (("lat", "lon"), np.abs(values - 280))}, coords)


def written(maps, path, **given):
    labelled.write(maps, str(path), encodings.checked(given))
    engine = "zarr" if path.suffix == ".zarr" else None
    return xr.open_dataset(path, engine=engine).load()


def test_netcdf_is_compressed_and_packed_as_it_is_asked_to_be(maps, tmp_path):
    plain = written(maps, tmp_path / "plain.nc", compression=0)
    xr.testing.assert_identical(plain, maps)
    assert not plain["temp"].encoding.get("zlib")
    usual = written(maps, tmp_path / "usual.nc")
    xr.testing.assert_identical(usual, maps)
    assert usual["temp"].encoding["complevel"] == 4
    assert "_FillValue" not in usual["lat"].encoding
    half = written(maps, tmp_path / "half.nc", dtype="float32", chunks={"lat": 20, "lon": 99})
    assert half["temp"].dtype == np.float32
    assert half["temp"].encoding["chunksizes"] == (20, 30)
    np.testing.assert_allclose(half["temp"], maps["temp"], rtol=1e-6)
    packed = written(maps, tmp_path / "packed.nc", dtype="int16", scale_factor=0.01)
    assert packed["temp"].encoding["dtype"] == np.int16
    np.testing.assert_allclose(packed["temp"], maps["temp"], atol=0.005001)
    assert packed["temp"].attrs == maps["temp"].attrs
    sizes = [(tmp_path / f"{name}.nc").stat().st_size for name in ("plain", "half", "packed")]
    assert sizes == sorted(sizes, reverse=True)


def test_values_beyond_the_integers_are_refused_with_a_scale_that_holds_them(maps, tmp_path):
    line = r"^int16 with scale_factor 0.0001 cannot hold 'temp', which goes from .*: give at least "
    with pytest.raises(SettingError, match=line) as error:
        written(maps, tmp_path / "map.nc", dtype="int16", scale_factor=1e-4)
    enough = float(str(error.value).rpartition(" ")[2]) * 1.05
    written(maps, tmp_path / "map.nc", dtype="int16", scale_factor=enough)
    assert [path.name for path in tmp_path.iterdir()] == ["map.nc"]


@pytest.mark.whole
@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_lazy_maps_whose_chunks_cut_shards_are_written_whole(maps, tmp_path, scheduler):
    lazy = maps.chunk(lat=7, lon=11)
    sizes = {"chunks": {"lat": 5, "lon": 10}, "shards": {"lat": 10, "lon": 20}}
    with dask.config.set(scheduler=scheduler), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        made = written(lazy, tmp_path / "map.zarr", **sizes)
    xr.testing.assert_equal(made, maps)
    array = zarr.open_array(tmp_path / "map.zarr" / "temp")
    assert (array.chunks, array.shards) == ((5, 10), (10, 20))


def test_interpolate_writes_what_its_options_say(tmp_path):
    rng = np.random.default_rng(0)
    table = rng.uniform(0, 6, (60, 2))
    values = np.column_stack([table, np.sin(table[:, 0])])
    source = tmp_path / "rows.csv"
    np.savetxt(source, values, delimiter=",", header="x,y,height", comments="")
    steps = ("--resolution", "x=0.25,y=0.5", "--extent", "x=0:6,y=0:6")
    how = ("--dtype", "int16", "--scale-factor", "0.001", "--chunks", "x=10,y=5")
    succeed("interpolate", source, tmp_path / "a.nc", *steps, *how, "--compression", "9")
    made = xr.open_dataset(tmp_path / "a.nc")["height"]
    told = {name: made.encoding[name] for name in ("dtype", "chunksizes", "complevel")}
    assert told == {"dtype": np.int16, "chunksizes": (5, 10), "complevel": 9}
    succeed("interpolate", source, tmp_path / "b.zarr", *steps)
    plain = xr.open_zarr(tmp_path / "b.zarr")["height"]
    np.testing.assert_allclose(made, plain, atol=0.00051)
    for more, line in (
        (("c.zarr", "--compression", "3"), "compression is a level of netCDF"),
        (("c.nc", "--chunks", "x=10", "--shards", "x=20"), "shards are for Zarr"),
        (("c.nc", "--chunks", "z=10"), "chunks has a size for 'z'"),
        (("c.nc", "--dtype", "int16"), "dtype int16 and scale_factor"),
    ):
        name, *options = more
        assert line in refused("interpolate", source, tmp_path / name, *steps, *options)
    if importlib.util.find_spec("rioxarray"):
        line = refused("interpolate", source, tmp_path / "c.tif", *steps, "--chunks", "x=10")
        assert "is written in tiles of its own" in line
    torn = tmp_path / "torn.nc"
    torn.write_bytes((tmp_path / "a.nc").read_bytes()[:5_000])
    line = refused("interpolate", torn, tmp_path / "c.nc", "--target", "height", "--chunks", "x=10")
    assert f"cannot read {torn}" in line
    left = ["a.nc", "b.zarr", "rows.csv", "torn.nc"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
