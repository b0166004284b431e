"""Conversion of many files: by patterns, folders and lists, and what is said of odd ones."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import ONE_THREAD

from daskgp import convert
from daskgp.errors import InputError

DAY = np.timedelta64(1, "D")


def table(n=5, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "y"])


def write(frame, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: frame[name].to_numpy() for name in frame})
    else:
        frame.to_csv(path, index=False)
    return path


def parts(folder, suffix, count=3, n=5):
    """Files of a table in the order of their names, written in another; the whole table."""
    frames = [table(n, seed) for seed in range(count)]
    for i in reversed(range(count)):
        write(frames[i], folder / f"part-{i:03}{suffix}")
    return pd.concat(frames)


def grid(first, days=2, name="temp", seed=0):
    values = np.random.default_rng(seed).normal(size=(days, 3, 4))
    times = np.datetime64(first) + np.arange(days) * DAY
    coords = {"time": times, "lat": np.arange(3.0), "lon": np.arange(4.0)}
    return xr.Dataset({name: (("time", "lat", "lon"), values)}, coords)


def rows(store):
    group = zarr.open_group(str(store), mode="r")
    return np.column_stack([group[name][...] for name in ("X", "y")])


def attributes(store):
    return zarr.open_group(str(store), mode="r").attrs.asdict()


def message(*arguments, **settings):
    with pytest.raises(InputError) as caught:
        convert(*arguments, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz", ".npz"])
def test_files_of_a_pattern_or_folder_are_one_table_in_sorted_order(tmp_path, suffix):
    whole = parts(tmp_path / "parts", suffix)
    (tmp_path / "parts" / "_SUCCESS").touch()
    (tmp_path / "parts" / ".part-000.csv.crc").touch()
    pattern = f"{tmp_path}/parts/part-*{suffix}"
    for i, source in enumerate((pattern, tmp_path / "parts", [pattern])):
        out = tmp_path / f"{i}.zarr"
        assert convert(source, out, "y", block_rows=4) == (15, 0, ("a", "b"), ("y",), ())
        np.testing.assert_array_equal(rows(out), whole)
        assert zarr.open_group(str(out))["X"].chunks == (4, 2)


def test_a_list_of_files_keeps_its_order_and_folders_are_searched_to_the_bottom(tmp_path):
    parts(tmp_path / "p" / "deep" / "er", ".parquet", 2)
    names = [tmp_path / "p" / "deep" / "er" / f"part-{i:03}.parquet" for i in (1, 0)]
    convert(names, tmp_path / "a.zarr", "y")
    np.testing.assert_array_equal(rows(tmp_path / "a.zarr"), pd.concat([table(5, 1), table(5, 0)]))
    convert(tmp_path / "p", tmp_path / "b.zarr", "y")
    np.testing.assert_array_equal(rows(tmp_path / "b.zarr"), pd.concat([table(5, 0), table(5, 1)]))
    assert "is given twice" in message([names[0], tmp_path / "p"], tmp_path / "c.zarr", "y")


def test_a_folder_named_parquet_is_its_files(tmp_path):
    whole = parts(tmp_path / "t.parquet", ".parquet")
    convert(tmp_path / "t.parquet", tmp_path / "o.zarr", "y")
    np.testing.assert_array_equal(rows(tmp_path / "o.zarr"), whole)


def odd(frame, what):
    """A table with other columns or types."""
    if what == "lacks":
        return frame.rename(columns={"b": "c"})
    if what == "more":
        return frame.assign(z=1.0)
    if what == "text":
        return frame.assign(b="x")
    return frame.assign(b=pd.date_range("2020", periods=len(frame)))


ODD = {
    "lacks": "has no column 'b', which ",
    "more": "has a column 'z', which ",
    "text": "column 'b' of ",
    "times": "holds times but numbers in the files before it",
}


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("what", ODD)
def test_a_file_with_other_columns_or_types_is_named_before_anything_is_written(
    tmp_path, suffix, what, monkeypatch
):
    parts(tmp_path / "p", suffix)
    bad = write(odd(table(), what), tmp_path / "p" / f"part-002{suffix}")
    monkeypatch.setattr("daskgp.data.dataset_writer", None)  # would fail
    said = message(tmp_path / "p", tmp_path / "o.zarr", "y")
    assert str(bad) in said
    assert ODD[what] in said
    assert not (tmp_path / "o.zarr").exists()


def test_other_columns_do_not_matter_where_features_are_named(tmp_path):
    parts(tmp_path / "p", ".csv")
    write(table().assign(z="text")[["y", "z", "b", "a"]], tmp_path / "p" / "part-001.csv")
    write(table().astype({"b": int}), tmp_path / "p" / "part-002.csv")
    assert convert(tmp_path / "p", tmp_path / "o.zarr", "y", ["a", "b"]).rows == 15
    np.testing.assert_array_equal(rows(tmp_path / "o.zarr")[5:10], table())


def test_patterns_and_folders_without_files(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").touch()
    out = tmp_path / "o.zarr"
    assert message(f"{tmp_path}/*.csv", out).endswith("*.csv: check the pattern")
    said = message(tmp_path / "empty", out)
    assert f"no file in the folder {tmp_path / 'empty'} can be read: they must end in" in said
    parts(tmp_path / "mixed", ".csv", 1)
    parts(tmp_path / "mixed", ".npz", 1)
    assert "have different formats" in message(tmp_path / "mixed", out, "y")
    assert "must end in one of .csv" in message(f"{tmp_path}/empty/*", out)
    assert not out.exists()


def test_a_damaged_file_among_many_is_named_and_nothing_is_left(tmp_path):
    parts(tmp_path / "p", ".parquet")
    bad = tmp_path / "p" / "part-001.parquet"
    bad.write_bytes(bad.read_bytes()[:-50])
    assert str(bad) in message(tmp_path / "p", tmp_path / "o.zarr", "y")
    late = write(table(300).astype(object), tmp_path / "q" / "part-001.csv")
    parts(tmp_path / "q", ".csv", 1)
    late.write_text(late.read_text() + "1,oops,3\n")
    said = message(tmp_path / "q", tmp_path / "o.zarr", "y", block_rows=50)
    assert f"column 'b' of {late} is not numeric, row 301 holds 'oops'" in said
    assert not (tmp_path / "o.zarr").exists()


@pytest.mark.parametrize("form", ["nc", "zarr"])
def test_grids_are_combined_by_their_coordinates(tmp_path, form):
    pieces = {"b": grid("2020-01-01", 2), "a": grid("2020-01-03", 1, seed=1)}
    winds = {"w": grid("2020-01-01", 3, "wind", 2)}
    (tmp_path / "g").mkdir()
    for name, piece in (pieces | winds).items():
        path = tmp_path / "g" / f"{name}.{form}"
        piece.to_netcdf(path) if form == "nc" else piece.to_zarr(path, consolidated=False)
    whole = xr.concat([pieces["b"], pieces["a"]], "time")["temp"]
    out, features = tmp_path / "o.zarr", ["time", "lat", "lon", "wind"]
    assert convert(tmp_path / "g", out, "temp", features).rows == 36
    days = (whole.time.values - np.datetime64("1970-01-01")) / DAY
    axes = np.meshgrid(days, whole.lat, whole.lon, indexing="ij")
    values = [*axes, winds["w"]["wind"], whole]
    np.testing.assert_array_equal(rows(out), np.stack([np.ravel(v) for v in values], axis=1))
    assert attributes(out)["feature_units"] == ["days since 1970-01-01", "", "", ""]


def test_a_grid_with_other_variables_or_types_is_named(tmp_path):
    grid("2020-01-01").to_netcdf(tmp_path / "a.nc")
    odd = {"tmp": grid("2020-01-03", name="tmp"), "int": grid("2020-01-03")}
    odd["int"] = odd["int"].assign_coords(time=[1, 2])
    for name, piece in odd.items():
        piece.to_netcdf(tmp_path / f"{name}.nc")
        both = [tmp_path / "a.nc", tmp_path / f"{name}.nc"]
        assert str(both[1]) in message(both, tmp_path / "o.zarr", "temp")
    grid("2020-01-02").to_netcdf(tmp_path / "over.nc")
    said = message([tmp_path / "a.nc", tmp_path / "over.nc"], tmp_path / "o.zarr", "temp")
    assert "overlap: coordinate 'time' has 2020-01-02 00:00:00 more than once" in said
    east = grid("2020-01-01").isel(lat=slice(2)).assign_coords(lon=np.arange(4.0) + 9)
    east.to_netcdf(tmp_path / "east.nc")
    said = message([tmp_path / "a.nc", tmp_path / "east.nc"], tmp_path / "o.zarr", "temp")
    assert "do not fit together by their coordinates" in said
    assert not (tmp_path / "o.zarr").exists()


def with_depth(first, depth=0.0, **units):
    """A grid with a variable that has no times, and units."""
    made = grid(first).assign(depth=(("lat", "lon"), np.full((3, 4), depth)))
    for name, unit in units.items():
        made[name].attrs["units"] = unit
    return made


def test_what_files_share_has_the_same_values_and_units(tmp_path):
    with_depth("2020-01-01", np.nan, temp="K", lat="degrees_north").to_netcdf(tmp_path / "a.nc")
    names = ["time", "lat", "depth"]

    def both(other):
        other.to_netcdf(tmp_path / "b.nc")
        return [tmp_path / "a.nc", tmp_path / "b.nc"], tmp_path / "o.zarr", "temp"

    said = message(*both(with_depth("2020-01-03", 5.0)), names)
    assert said == (
        f"variable 'depth' has other values in {tmp_path}/b.nc than in {tmp_path}/a.nc and not the "
        "dimension time: correct it or leave it out"
    )
    said = message(*both(with_depth("2020-01-03", np.nan, temp="degC")), names)
    assert said.startswith(f"variable 'temp' is in 'degC' in {tmp_path}/b.nc, in 'K' in")
    assert "variable 'lat' is in 'm' in" in message(*both(with_depth("2020-01-03", lat="m")))
    assert not (tmp_path / "o.zarr").exists()
    grid("2020-01-03").to_netcdf(tmp_path / "b.nc")  # says nothing
    with_depth("2020-01-05", temp="degC").drop_vars("depth").to_netcdf(tmp_path / "c.nc")
    three = [tmp_path / f"{name}.nc" for name in "bac"]
    said = message(three, tmp_path / "o.zarr", "temp", ["time", "lat"])
    assert said.startswith(f"variable 'temp' is in 'degC' in {tmp_path}/c.nc, in 'K' in {three[1]}")
    alike = with_depth("2020-01-03", np.nan, temp="kelvin", lat="degree_N")
    assert convert(*both(alike), names).rows == 48
    convert(*both(with_depth("2020-01-03", 5.0))[:1], tmp_path / "p.zarr", "temp")  # is not read


MEASURED = """
import resource, sys, time
import pyarrow.dataset, xarray, h5netcdf
from daskgp import convert

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

source, out, first, target = sys.argv[1:]
convert(first, out + ".first", target)  # what libraries take is no part of it
before, began = peak(), time.perf_counter()
rows = convert(source, out, target).rows
print(rows, time.perf_counter() - began, before, peak())
"""


def measured(source, out, first, target):
    """Rows, seconds, and megabytes of memory at most before and after a conversion."""
    command = [sys.executable, "-c", MEASURED, *map(str, (source, out, first, target))]
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr
    rows, seconds, before, after = map(float, done.stdout.split())
    print(f"{source}: {rows:,.0f} rows, {seconds:.1f} s, {before:.0f} to {after:.0f} MB")  # noqa: T201
    return int(rows), after - before


SIZES = [20, pytest.param(50_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.slow
def test_200_parquet_files_take_the_memory_of_a_block(tmp_path, n):
    for i in range(200):
        write(table(n, i), tmp_path / "p" / f"{i:03}.parquet")
    source, out = f"{tmp_path}/p/*.parquet", tmp_path / "o.zarr"
    found, more = measured(source, out, tmp_path / "p" / "000.parquet", "y")
    assert found == 200 * n
    assert more < 100  # 240 MB of rows, where there are many
    for i in (0, 73, 199):
        group = zarr.open_group(str(out), mode="r")
        np.testing.assert_array_equal(group["y"][i * n : (i + 1) * n], table(n, i)["y"])


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_50_netcdf_files_take_the_memory_of_a_few_blocks(tmp_path, n):
    space = (90, 180) if n > 1 else (3, 4)
    rng, first = np.random.default_rng(0), np.datetime64("2020-01-01")
    axes = {"lat": np.arange(float(space[0])), "lon": np.arange(float(space[1]))}
    for i in range(50):
        times = first + np.arange(i * n, (i + 1) * n) * DAY
        values = rng.normal(size=(n, *space)).astype("f4")
        coords = {"time": times.astype("M8[ns]"), **axes}
        piece = xr.Dataset({"temp": (("time", "lat", "lon"), values)}, coords)
        piece.to_netcdf(tmp_path / f"{i:03}.nc")
    out = tmp_path / "o.zarr"
    found, more = measured(f"{tmp_path}/*.nc", out, tmp_path / "000.nc", "temp")
    assert found == 50 * n * space[0] * space[1]
    assert more < 250  # 520 MB of rows, where there are many
    days = zarr.open_group(str(out), mode="r")["X"][:, 0]
    assert (np.diff(days) >= 0).all()
    assert days[-1] - days[0] == 50 * n - 1
