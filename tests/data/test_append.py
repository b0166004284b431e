"""Rows added to a dataset store: all or none, whatever happens, and of the same columns alone."""

import gzip
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import ONE_THREAD, refused, succeed

import daskgp
from daskgp import convert
from daskgp.data.stores import locks
from daskgp.errors import DaskgpError, InputError, RunError

KILLED = """
import os, shutil, sys
from daskgp.data.convert.convert import convert

store, source, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
made = left = 0

def counted(change):
    def call(*arguments, **more):
        global made
        if f"{store}.{left}" in str(arguments):
            if made == left:
                os._exit(9)
            made += 1
        return change(*arguments, **more)
    return call

for name in ("replace", "link", "unlink", "remove", "mkdir", "rmdir", "rename"):
    setattr(os, name, counted(getattr(os, name)))
for left in range(last):
    child = os.fork()  # before any thread was started
    if not child:
        convert(source, f"{store}.{left}", append=True)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        break
    assert code == 9, code
print(left)
"""


def table(n, seed=0):
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(n, 3)), columns=["a", "b", "y"])


@pytest.fixture
def store(tmp_path):
    """A dataset of 10 rows in chunks of 4."""
    convert(table(10), tmp_path / "d.zarr", "y", block_rows=4)
    return tmp_path / "d.zarr"


def rows(store):
    group = zarr.open_group(str(store), mode="r")
    assert group.attrs["complete"] is True
    return np.column_stack([group[name][...] for name in ("X", "y")])


def message(*arguments, error=DaskgpError, **settings):
    with pytest.raises(error) as caught:
        convert(*arguments, append=True, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("n", [1, 2, 3, 11])
def test_rows_are_added_after_those_there_are(store, tmp_path, n):
    table(n, 1)[["y", "b", "a"]].to_csv(tmp_path / "t.csv", index=False)
    before = zarr.open_group(str(store)).attrs.asdict()
    assert convert(tmp_path / "t.csv", store, append=True) == (n, 0, ("a", "b"), ("y",), ())
    np.testing.assert_array_equal(rows(store), pd.concat([table(10), table(n, 1)]))
    after = zarr.open_group(str(store)).attrs.asdict()
    assert after.pop("uuid") != before.pop("uuid")  # caches of the store are out of date
    assert after == before
    assert not (tmp_path / "d.zarr.lock").exists()
    X, _ = daskgp.open_dataset(store)
    assert X.chunks[0] == (*(4,) * ((10 + n) // 4), *(((10 + n) % 4,) if (10 + n) % 4 else ()))


def test_a_store_that_is_written_at_once_has_the_same_chunks(store, tmp_path):
    convert(table(13, 1), store, append=True)
    both = pd.concat([table(10), table(13, 1)])
    convert(both, tmp_path / "whole.zarr", "y", block_rows=4)
    for path in sorted((tmp_path / "whole.zarr").rglob("c/*")):
        if path.is_file():
            other = store / path.relative_to(tmp_path / "whole.zarr")
            assert other.read_bytes() == path.read_bytes()


def test_stores_of_other_software_and_of_places_alone_grow_too(tmp_path):
    group = zarr.create_group(str(tmp_path / "g.zarr"))
    group.create_array("X", shape=(3, 2), chunks=(1, 2), shards=(4, 2), dtype="f4")[...] = 1
    group.create_array("y", shape=(3, 1), chunks=(1, 1), shards=(4, 1), dtype="f4")[...] = 1
    frame = table(6).rename(columns={"a": "x0", "b": "x1"})
    assert convert(frame, tmp_path / "g.zarr", append=True).rows == 6
    np.testing.assert_array_equal(rows(tmp_path / "g.zarr")[3:], np.float32(table(6)))
    convert(table(5), tmp_path / "x.zarr", features=["b"], block_rows=3)
    convert(table(5, 1), tmp_path / "x.zarr", append=True)
    both = pd.concat([table(5), table(5, 1)])[["b"]]
    X = zarr.open_group(str(tmp_path / "x.zarr"))["X"][...]
    np.testing.assert_array_equal(X, both)


def test_other_columns_are_refused_and_the_store_is_as_it_was(store, tmp_path):
    before = rows(store)
    told = message(table(3).rename(columns={"b": "c"}), store)
    assert "feature 'b' is not in the DataFrame, which has a, c, y" in told
    assert "features are b, a, the dataset" in message(table(3), store, features=["b", "a"])
    extra = table(3).assign(z=0.0)
    assert "targets are z, the dataset" in message(extra, store, "z")
    assert "column 'b' of the DataFrame" in message(table(3).assign(b="x"), store)
    days = table(3).assign(b=pd.date_range("2020", periods=3))
    assert "column 'b' holds times, but plain numbers in the dataset" in message(days, store)
    assert "has no rows to convert" in message(table(0), store)
    (tmp_path / "late.csv").write_text("a,b,y\n" + "1,2,3\n" * 200 + "1,oops,3\n")
    assert "row 201 holds 'oops'" in message(tmp_path / "late.csv", store)
    assert "block_rows=5 has no effect with append" in message(table(3), store, block_rows=5)
    assert "no dataset at" in message(table(3), tmp_path / "none" / "none.zarr")
    np.testing.assert_array_equal(rows(store), before)
    assert {path.name for path in tmp_path.iterdir()} == {"d.zarr", "late.csv"}


def test_a_prepared_store_is_not_appended_to(store, tmp_path):
    daskgp.prepare(store, tmp_path / "p.zarr", order=["a"])
    assert "add them to the store that it was made from" in message(table(3), tmp_path / "p.zarr")


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_an_append_that_is_killed_before_any_change_is_repeated(step, store, tmp_path):
    table(9, 1).to_csv(tmp_path / "t.csv", index=False)
    whole = np.concatenate([table(10), table(9, 1)])
    for i in range(60):
        shutil.copytree(store, tmp_path / f"d.zarr.{i}")
    command = [sys.executable, "-c", KILLED, str(store), str(tmp_path / "t.csv"), "60"]
    environment = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    changes = int(done.stdout)
    assert 10 < changes < 59
    unfinished = 0
    for i in range(0, changes, step):
        killed = tmp_path / f"d.zarr.{i}"
        attributes = zarr.open_group(str(killed)).attrs.asdict()
        before = table(10)
        if attributes["complete"]:
            before = rows(killed)
            assert len(before) in (10, 19)
        else:
            unfinished += 1
            with pytest.raises(InputError, match=r"rows are being added to dataset .* repeat its"):
                daskgp.open_dataset(killed)
        convert(tmp_path / "t.csv", killed, append=True)
        np.testing.assert_array_equal(rows(killed), [*np.asarray(before), *whole[10:]])
        assert not (tmp_path / f"d.zarr.{i}.lock").exists()
    assert unfinished > 10 // step


def test_two_runs_do_not_append_at_once(store):
    with locks.hold(str(store)):
        assert "is at work and holds the lock" in message(table(3), store, error=RunError)
    convert(table(3), store, append=True, wait=1.0)
    assert len(rows(store)) == 13


def test_times_keep_the_origin_of_the_store(tmp_path):
    frame = table(4).assign(t=pd.date_range("2000-01-01 12:00", periods=4, freq="h"))
    convert(frame, tmp_path / "d.zarr", "y", "t")
    group = zarr.open_group(str(tmp_path / "d.zarr"))
    group["X"][...] = np.arange(4.0)[:, None] + 12
    group.attrs["feature_units"] = ["hours since 2000-01-01 00:00:00"]
    convert(frame.assign(t=frame["t"] + pd.Timedelta("1D")), tmp_path / "d.zarr", append=True)
    hours = [12, 13, 14, 15, 36, 37, 38, 39]
    np.testing.assert_allclose(rows(tmp_path / "d.zarr")[:, 0], hours, atol=1e-9)
    places = tmp_path / "p.zarr"
    assert convert(frame, places, like=tmp_path / "d.zarr").features == ("t",)
    group = zarr.open_group(str(places))
    np.testing.assert_allclose(group["X"][...].ravel(), hours[:4], atol=1e-9)
    assert group.attrs["feature_units"] == ["hours since 2000-01-01 00:00:00"]
    told = message(table(3).rename(columns={"a": "t"}), tmp_path / "d.zarr")
    assert "column 't' holds numbers, but times in the dataset" in told


def test_times_that_are_not_decoded_are_counted_as_the_store_does(tmp_path):
    frame = table(4).assign(t=pd.date_range("2000-01-01 12:00", periods=4, freq="h"))
    convert(frame, tmp_path / "d.zarr", "y", "t")
    hours = np.arange(12.0, 16.0)
    for unit, values in (("hours since 2000-01-02", hours), ("days since 2000-01-03", hours / 24)):
        coords = {"t": ("t", values, {"units": unit})}
        convert(xr.DataArray(np.ones(4), coords, "t", "y"), tmp_path / "d.zarr", append=True)
    found = (rows(tmp_path / "d.zarr")[:, 0] - 10957) * 24
    np.testing.assert_allclose(found, [*hours, *hours + 24, *hours + 48], atol=1e-9)
    coords = {"t": ("t", hours, {"units": "hours"})}
    told = message(xr.DataArray(np.ones(4), coords, "t", "y"), tmp_path / "d.zarr")
    assert "holds numbers, but times in the dataset" in told


def test_grids_of_earlier_versions_count_days(tmp_path):
    def field(day):
        times = np.array([day], "M8[ns]")
        return xr.DataArray([[1.0, np.nan]], {"t": times, "x": [0.0, 1.0]}, ("t", "x"), "temp")

    convert(field("2020-01-01"), tmp_path / "d.zarr", "temp")
    group = zarr.open_group(str(tmp_path / "d.zarr"))
    group.attrs.put({k: v for k, v in group.attrs.asdict().items() if k != "feature_units"})
    assert convert(field("2020-01-02"), tmp_path / "d.zarr", append=True)[:2] == (1, 1)
    np.testing.assert_array_equal(rows(tmp_path / "d.zarr")[:, 0], [18262, 18263])
    frame = pd.DataFrame({"t": pd.to_datetime(["2020"]), "x": [0.0], "temp": [1.0]})
    assert 'write "days since 1970-01-01" into' in message(frame, tmp_path / "d.zarr")


def test_the_command_appends(store, tmp_path):
    for i in range(2):
        table(3, i + 1).to_csv(tmp_path / f"t{i}.csv", index=False)
    names = [tmp_path / "t0.csv", tmp_path / "t1.csv"]
    done = succeed("convert", *names, store, "--append")
    assert (done["rows"], done["features"], done["targets"]) == (6, ["a", "b"], ["y"])
    np.testing.assert_array_equal(rows(store), pd.concat([table(10), table(3, 1), table(3, 2)]))
    told = refused("convert", names[0], tmp_path / "o.zarr", "--target", "y", "--wait", "3")
    assert "wait=3.0 has no effect with a new dataset" in told
    done = succeed("convert", f"{tmp_path}/t*.csv", tmp_path / "p.zarr", "--like", store)
    assert (done["features"], done["targets"]) == (["a", "b"], [])
    told = refused("convert", names[0], tmp_path / "o.zarr", "--storage-options", "anon=true")
    assert "--storage-options has no effect: no address is one of a remote" in told
    told = refused("convert", names[0], tmp_path / "o.zarr", "--storage-options", "anon")
    assert "write key=value, such as --storage-options anon=true" in told


def test_rows_that_are_those_before_in_another_unit_are_told(tmp_path, caplog):
    before = table(9).assign(a=np.linspace(500, 520, 9))
    files = [tmp_path / "p.csv", tmp_path / "q.csv"]
    for file, factor in zip(files, (1, 1000), strict=True):
        before.assign(a=factor * before.a).to_csv(file, index=False)
    convert(files, tmp_path / "two.zarr", "y")
    convert(files[0], tmp_path / "one.zarr", "y")
    convert(files[1], tmp_path / "one.zarr", append=True)
    told = [line for line in caplog.messages if "as in another unit" in line]
    for line, where in zip(told, ("files before", f"dataset {tmp_path}/one.zarr"), strict=True):
        assert f"'a' of {files[1]} goes from 500000 to 520000, in the {where} from 500 to" in line
    np.testing.assert_array_equal(rows(tmp_path / "two.zarr"), rows(tmp_path / "one.zarr"))


def test_appended_columns_that_are_swapped_or_far_from_the_others_are_told(tmp_path, caplog):
    rng = np.random.default_rng(0)
    lon, lat = rng.uniform(6, 12, 30), rng.uniform(46, 50, 30)
    first = pd.DataFrame({"lon": lon, "lat": lat, "level": lon, "y": lat})
    files = {
        "first": first,
        "same": first.assign(level=first.level + 1),
        "swapped": first.rename(columns={"lon": "lat", "lat": "lon"}),
        "far": first.assign(level=first.level + 40),
    }
    told = {}
    for name, own in files.items():
        own.to_csv(tmp_path / f"{name}.csv", index=False)
        convert(tmp_path / "first.csv", tmp_path / f"{name}.zarr", "y")
        caplog.clear()
        convert(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", append=True)
        told[name] = [line for line in caplog.messages if "check these rows" in line]
    assert not told["first"]
    assert not told["same"]
    assert [line[:5] for line in told["swapped"]] == ["'lon'", "'lat'"]
    assert "as if it were swapped with 'lat'" in told["swapped"][0]
    (line,) = told["far"]
    assert line.startswith("'level' of")
    assert "apart from these by more than their whole range" in line


@pytest.mark.parametrize("geographic", [None, ("lon", "lat")])
def test_longitudes_of_another_range_are_told_unless_they_are_places_on_the_sphere(
    geographic, tmp_path, caplog
):
    rng = np.random.default_rng(0)
    first = pd.DataFrame({"lon": rng.uniform(6, 12, 30), "lat": rng.uniform(46, 50, 30), "y": 1.0})
    first["lon"] -= 20
    convert(first, tmp_path / "d.zarr", "y", geographic=geographic)
    convert(first.assign(lon=first.lon + 360), tmp_path / "d.zarr", append=True)
    told = [line for line in caplog.messages if line.startswith("'lon' of")]
    assert len(told) == (geographic is None)
    assert geographic or "about 360 higher, as in another range: check these rows" in told[0]


@pytest.mark.parametrize("end", ["0.5,0.25", "0.5,0.25\n", "0.5", '"0.5",0.25', "0.5,0.25\n\n"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_csv_that_is_cut_off_in_a_row_is_refused(end, ending, store, tmp_path):
    opened = {"csv": open, "csv.gz": gzip.open}[ending]
    source = tmp_path / f"more.{ending}"
    with opened(source, "wt") as file:
        file.write(table(3).to_csv(index=False) + end)
    given = "1" if end == "0.5" else "2"
    said = f"the last line of {source} has {given} of 3 fields, as if it were cut off"
    assert said in refused("convert", source, store, "--append", "--target", "y")
    assert len(daskgp.open_dataset(store)[0]) == 10
    assert said in refused("convert", source, tmp_path / "new.zarr", "--target", "y")
    assert not (tmp_path / "new.zarr").exists()


@pytest.mark.parametrize("end", ["", "0.5,0.25,1", "0.5,0.25,", "\n\n", '"0.5",0.25,"1"'])
def test_a_csv_that_ends_with_a_whole_row_is_taken(end, store, tmp_path):
    source = tmp_path / "more.csv"
    source.write_text(table(3).to_csv(index=False) + end)
    rows = 3 + bool(end.strip())  # a row may lack its target
    assert convert(source, store, "y", append=True).rows == rows


def test_the_last_row_may_have_lines_in_a_text(store, tmp_path):
    source = tmp_path / "more.csv"
    source.write_text('a,b,y,remark\n1,2,3,"one"\n1,2,3,"two\nlines"\n')
    assert convert(source, store, "y", features=["a", "b"], append=True).rows == 2
