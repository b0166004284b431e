"""Conversion of tables and grids: the rows written, memory held, and what bad input says."""

import gzip
import sys
import tracemalloc

import fsspec
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from daskgp import data
from daskgp.data.convert.convert import convert
from daskgp.data.convert.gridpoints import _tiles
from daskgp.data.gridded import readable
from daskgp.errors import InputError


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(10, 3)), columns=["a", "b", "temp"])
    table["k"] = np.arange(10)
    table.loc[3, "temp"] = np.nan
    table.loc[5, "a"] = np.nan
    return table


@pytest.fixture
def grid():
    """A field on (time, lat, lon) with missing values and a height that varies in space alone."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4, 5, 6))
    values[1, 2:4] = np.nan
    return xr.Dataset(
        {
            "temp": (("time", "lat", "lon"), values),
            "wind": (("time", "lat", "lon"), values**2),
            "height": (("lon", "lat"), rng.normal(size=(6, 5))),
            "name": (("lat",), list("abcde")),
            "other": (("level",), np.arange(3.0)),
        },
        coords={
            "time": np.datetime64("1970-01-11") + np.arange(4).astype("m8[D]"),
            "lat": np.linspace(40.0, 44.0, 5),
            "lon": np.linspace(-3.0, 2.0, 6),
        },
    )


def write_table(table, path):
    path = str(path)
    if path.endswith(".parquet"):
        table.to_parquet(path, row_group_size=4)
    elif path.endswith(".npz"):
        np.savez(path, **{name: table[name].to_numpy() for name in table})
    else:
        table.to_csv(path, index=False)
    return path


def write_grid(grid, path):
    path = str(path)
    if path.endswith(".zarr"):
        grid = grid.drop_vars("name")  # text has no settled form in Zarr v3
        grid.to_zarr(path, encoding={"temp": {"chunks": (2, 3, 6)}}, consolidated=False)
    else:
        grid.to_netcdf(path)
    return path


def stored(path):
    X, y = data.open_dataset(str(path))
    return X.compute(), y.compute()


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npz"])
def test_tables_keep_all_rows_and_take_columns_by_name(tmp_path, frame, name):
    source = write_table(frame, tmp_path / name)
    out = tmp_path / "out.zarr"
    result = convert(source, out, "temp", ["k", "a"], block_rows=4)
    assert result == (10, 0, ("k", "a"), ("temp",), ())
    X, y = stored(out)
    np.testing.assert_array_equal(X, frame[["k", "a"]].to_numpy())
    np.testing.assert_array_equal(y, frame["temp"].to_numpy())
    lazy, _ = data.open_dataset(str(out))
    assert lazy.chunks[0] == (4, 4, 2)
    assert data.column_names(lazy) == ("k", "a")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
def test_default_features_are_the_other_columns(tmp_path, frame, name):
    source = write_table(frame, tmp_path / name)
    assert convert(source, tmp_path / "out.zarr", "temp").features == ("a", "b", "k")


def test_several_targets_become_several_outputs(tmp_path, frame):
    source = write_table(frame, tmp_path / "t.csv")
    convert(source, tmp_path / "out.zarr", ["temp", "b"], "a")
    np.testing.assert_array_equal(stored(tmp_path / "out.zarr")[1], frame[["temp", "b"]])


@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 2)])
def test_npz_matrices(tmp_path, shape):
    X, y = np.arange(21, dtype=np.float32).reshape(7, 3), np.arange(np.prod(shape)).reshape(shape)
    np.savez_compressed(
        tmp_path / "m.npz", X=X, y=y, mask=np.ones((7, 4), bool), note=np.array("n")
    )
    result = convert(tmp_path / "m.npz", tmp_path / "out.zarr", "y", block_rows=3)
    assert result.features == ("x0", "x1", "x2")
    assert result.targets == (("y0", "y1") if shape[1:] == (2,) else ("y",))
    X_out, y_out = stored(tmp_path / "out.zarr")
    np.testing.assert_array_equal(X_out, X)
    np.testing.assert_array_equal(y_out, y if shape[1:] == (2,) else y.ravel())


def test_npz_columns_of_the_matrix_by_name(tmp_path):
    X = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "m.npz", X=X, y=np.ones(3), height=np.zeros(3))
    convert(tmp_path / "m.npz", tmp_path / "out.zarr", "x1", ["height", "x0"])
    X_out, y_out = stored(tmp_path / "out.zarr")
    np.testing.assert_array_equal(X_out, np.stack([np.zeros(3), X[:, 0]], axis=1))
    np.testing.assert_array_equal(y_out, X[:, 1])


@pytest.mark.parametrize("name", ["g.nc", "g.zarr"])
def test_grids_give_rows_of_coordinates_and_variables(tmp_path, grid, name):
    source = write_grid(grid, tmp_path / name)
    out = tmp_path / "out.zarr"
    result = convert(source, out, "temp", ["lon", "time", "height"], block_rows=50)
    assert (result.rows, result.skipped) == (108, 12)
    table = grid[["temp", "height"]].to_dataframe().reset_index().dropna()
    days = (table["time"] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    expected = np.stack([table["lon"], days, table["height"], table["temp"]], axis=1)
    found = np.column_stack(stored(out))
    order = [np.lexsort(rows.T) for rows in (expected, found)]
    np.testing.assert_allclose(found[order[1]], expected[order[0]], rtol=1e-15)


def test_a_grid_gives_the_coordinates_of_the_target_by_default(tmp_path, grid):
    source = write_grid(grid, tmp_path / "g.nc")
    assert convert(source, tmp_path / "a.zarr", "temp").features == ("time", "lat", "lon")
    assert convert(source, tmp_path / "b.zarr", "height").features == ("lon", "lat")
    both = convert(source, tmp_path / "c.zarr", ["temp", "wind"])
    assert (both.rows, both.skipped) == (108, 12)


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    chunks=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    rows=st.integers(1, 60),
)
def test_tiles_cover_a_grid_once_and_hold_their_limit(sizes, chunks, rows):
    dims = dict(zip("abc", sizes, strict=False))
    seen = np.zeros(sizes, int)
    for tile in _tiles(dims, dict(zip("abc", chunks, strict=True)), rows):
        part = seen[tuple(tile.values())]
        assert 0 < part.size <= rows
        part += 1
    assert (seen == 1).all()


def test_a_grid_is_never_in_memory_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("daskgp.data.convert.gridpoints.TILE_ROWS", 10_000)
    shape = (200, 100, 50)
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    coords = {dim: np.arange(n) for dim, n in zip("xyz", shape, strict=True)}
    xr.Dataset({"t": (("x", "y", "z"), values)}, coords).to_netcdf(tmp_path / "g.nc")
    convert(tmp_path / "g.nc", tmp_path / "warm.zarr", "t", block_rows=10_000)
    tracemalloc.start()
    assert convert(tmp_path / "g.nc", tmp_path / "out.zarr", "t", block_rows=10_000).rows == 10**6
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6 * 4 * 8 / 4  # a quarter of the rows


def test_any_fsspec_url_is_a_source(tmp_path, frame, grid):
    with fsspec.open("memory://convert/t.csv.gz", "wb") as file:
        file.write(gzip.compress(frame.to_csv(index=False).encode()))
    assert convert("memory://convert/t.csv.gz", tmp_path / "a.zarr", "temp").rows == 10
    local = write_grid(grid, tmp_path / "g.nc")
    fsspec.filesystem("memory").put(local, "/convert/g.nc")
    assert convert("memory://convert/g.nc", tmp_path / "b.zarr", "temp").rows == 108
    assert convert(f"file://{local}", tmp_path / "c.zarr", "temp").rows == 108


def refused(source, out, *args, **kwargs):
    """The message of an InputError; it is one line and nothing is left behind."""
    with pytest.raises(InputError) as caught:
        convert(source, out, *args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    assert not out.exists()
    return message


BAD_NAMES = [
    ("tmp", None, ["target 'tmp' is not in", "which has a, b, temp, k"]),
    ("temp", ["a", "x"], ["feature 'x' is not in", "a, b, temp, k"]),
    ("temp", ["a", "temp"], ["'temp' is the target and among the features"]),
    ("temp", ["a", "a"], ["features is 'a, a'", "different names"]),
    ("temp", [], ["features is ''"]),
    ("", None, ["target is ''"]),
]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
@pytest.mark.parametrize(("target", "features", "words"), BAD_NAMES)
def test_bad_names(tmp_path, frame, name, target, features, words):
    source = write_table(frame, tmp_path / name)
    message = refused(source, tmp_path / "out.zarr", target, features)
    assert all(word in message for word in words), message


def test_bad_names_of_a_grid(tmp_path, grid):
    source, out = write_grid(grid, tmp_path / "g.nc"), tmp_path / "out.zarr"
    listed = refused(source, out, "tmp").partition("which has ")[2].partition(": ")[0]
    assert set(listed.split(", ")) == {"temp", "wind", "height", "name", "other"}
    message = refused(source, out, "temp", ["lat", "other"])
    assert "feature 'other' is not in" in message
    listed = message.partition("which has ")[2].partition(": ")[0].split(", ")
    assert set(listed) == {"temp", "wind", "height", "name", "time", "lat", "lon"}
    assert "column 'name'" in refused(source, out, "temp", ["name"])
    assert "targets must share one grid" in refused(source, out, ["temp", "height"])


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
def test_text_is_not_a_number(tmp_path, frame, name):
    frame["b"] = frame["b"].astype(str)
    frame.loc[6, "b"] = "n/k"
    if name == "t.npz":
        frame["b"] = frame["b"].astype(object)
        np.savez(
            tmp_path / name,
            **{c: frame[c].to_numpy().astype("U" if c == "b" else float) for c in frame},
        )
        source = tmp_path / name
    else:
        source = write_table(frame, tmp_path / name)
    message = refused(source, tmp_path / "out.zarr", "temp", block_rows=4)
    assert "column 'b'" in message
    assert "naming the features to use" in message
    if name == "t.csv":
        assert "row 7 holds 'n/k'" in message


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
def test_no_rows(tmp_path, frame, name):
    source = write_table(frame[:0].astype(float), tmp_path / name)
    assert "has no rows to convert: it is empty" in refused(source, tmp_path / "o.zarr", "temp")


def test_a_grid_without_values(tmp_path, grid):
    source = write_grid(grid[["temp"]] * np.nan, tmp_path / "g.nc")
    assert "all 120 points of the target are NaN" in refused(source, tmp_path / "o.zarr", "temp")


def test_columns_of_different_length(tmp_path):
    np.savez(tmp_path / "t.npz", a=np.ones(3), y=np.ones(4))
    message = refused(tmp_path / "t.npz", tmp_path / "o.zarr", "y")
    assert "'a'" in message
    assert "3 rows but the target 'y' has 4" in message


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npz", "t.nc"])
def test_damaged_files(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x00\x01garbage\n\x02" * 40)
    message = refused(tmp_path / name, tmp_path / "o.zarr", "y")
    assert str(tmp_path / name) in message


@pytest.mark.parametrize("name", ["t.csv.gz", "t.parquet", "t.npz", "g.nc"])
def test_truncated_files(tmp_path, frame, grid, name):
    path = tmp_path / name
    if name == "g.nc":
        write_grid(grid, path)
    else:
        write_table(pd.concat([frame] * 500), path)
    path.write_bytes(path.read_bytes()[:-200])
    if name == "t.parquet":
        said = f"cannot read {path}: it is not a whole parquet file: fetch or write it again"
    else:
        said = "check that the file is whole"
    assert said in refused(path, tmp_path / "o.zarr", "temp")


@pytest.mark.parametrize("word", ["may", "north", "12 m", "1,5"])
def test_words_in_a_csv_are_no_dates(word, tmp_path):
    (tmp_path / "t.csv").write_text(f'when,y\n"{word}",2.0\n')
    assert "epoch" not in refused(tmp_path / "t.csv", tmp_path / "o.zarr", "y")


ISO = "write its times as 2021-03-04T05:06:07 or as numbers, such as seconds since an epoch"
TWICE = "several columns named {!r}: give each a name of its own"
OF_NOISE = ": errors, weights and masks must be numbers in the file"
THREE = "1,2,3\n"
CSVS = {
    "semicolons": ("a;y\n1;2\n", {}, "write the file with commas instead of ';'"),
    "tabs": ("a\ty\n1\t2\n", {}, "from pandas.read_csv(file, sep='\\t', decimal=',')"),
    "bars": ("a|y\n1|2\n", {}, "instead of '|' and points in its numbers, for example from pandas"),
    "no rows": ("a,y\n", {}, "has no rows to convert: it is empty"),
    "only a target": ("y\n1\n", {}, "has no column beside the target y: add a column for each"),
    "a comma more": (
        f"a,b,y\n{THREE}1,2,3,4\n",
        {},
        "line 3 has 4 fields where 3 are expected: put text with commas in quotes, or take the",
    ),
    "an open quote": (
        f'# above\na,b,y\n{THREE}1,"2,3\n{THREE}',
        {},
        "a quotation mark in line 4 is not closed: close it or take it out",
    ),
    "nothing in it": ("", {}, "it is empty: choose another file"),
    "no names": ("1,2\n3,4\n", {}, "which has 1, 2: its first line has to name the columns"),
    "another name": (
        f"a,b,y\n{THREE}",
        {"target": "z"},
        "name one of these with --target, or rename",
    ),
    "decimal commas": (
        'a,y\n"1,5",2\n"2,5",3\n',
        {},
        "row 1 holds '1,5': write numbers with a point and without commas",
    ),
    "more fields": (f"a,y\n{THREE}", {}, "more fields than its header has names"),
    "more fields deep": ("a,y\n" + 50 * "1,2\n" + THREE + "1,2\n", {}, "line 52"),
    "no blocks": ("a,y\n1,2\n", {"block_rows": 0}, "block_rows must be"),
    "month first": ("t,y\n5/17/2021,2\n", {}, f"is not numeric, row 1 holds '5/17/2021': {ISO}"),
    "points": ("t,y\n17.5.2021 8:00,2\n", {}, f"row 1 holds '17.5.2021 8:00': {ISO}"),
    "a day first": ("t,y\n17.5.2021,2\n", {}, f"row 1 holds '17.5.2021': {ISO}"),
    "a time of day": ("t,y\n17:30,2\n", {}, f"row 1 holds '17:30': {ISO}"),
    "an odd date": (
        "t,y\n" + 150 * "2021-03-04,1\n" + "4.3.2021,1\n",
        {"block_rows": 40},
        f"is not a time, row 151 holds '4.3.2021': {ISO}",
    ),
    "a year": ("t,y\n" + 3 * "2021-03-04,1\n" + "2021,1\n", {}, "row 4 holds '2021': write its t"),
    "part of a year": ("t,y\n2021-03-04,1\n2021.5,1\n", {}, "row 2 holds '2021.5': write its t"),
    "a date": ("t,y\n" + 150 * "1,1\n" + "2021-03-04,1\n", {}, "row 151 holds '2021-03-04'"),
    **{
        last: (f"a,b,y\n{183 * THREE}{last}\n", {"block_rows": 100}, "or delete row 184")
        for last in ("Total,,", ",,60 in all", "# end,,")
    },
    "another case": (f"a,b,y\n{THREE}", {"target": "Y"}, "has a, b, y: did you mean 'y'?"),
    "a feature": (f"a,b,y\n{THREE}", {"features": ["A", "b"]}, "did you mean 'a'?"),
    **{name: (f"{name}\n{THREE}", {}, TWICE.format("y")) for name in ("a,y,y", "y,a,y", "a, y,y")},
    "a,a,y": (f"a,a,y\n{THREE}", {}, TWICE.format("a")),
    "a weight": (f"a,y,w\n1,2,low\n{THREE}", {"weight": "w"}, f"row 1 holds 'low'{OF_NOISE}"),
    "a late weight": (
        f"a,y,w\n{1_499 * THREE}1,2,low\n{THREE}",
        {"weight": "w"},
        f"row 1500 holds 'low'{OF_NOISE}",
    ),
    "errors and weights": (
        "a,y,e,w\n1,2,low,high\n",
        {"y_std": "e", "weight": "w"},
        f"('e' is not numeric, row 1 holds 'low'){OF_NOISE}",
    ),
}


@pytest.mark.whole
@pytest.mark.parametrize("case", CSVS)
def test_a_csv_that_cannot_be_converted_is_refused_with_the_remedy(case, tmp_path):
    text, settings, says = CSVS[case]
    (tmp_path / "t.csv").write_text(text)
    message = refused(tmp_path / "t.csv", tmp_path / "o.zarr", **{"target": "y", **settings})
    assert says in message


def test_sources_that_are_not_there(tmp_path):
    out = tmp_path / "o.zarr"
    assert "t.csv does not exist: check the path" in refused(tmp_path / "t.csv", out, "y")
    (tmp_path / "t.xlsx").write_text("")
    assert "must end in one of .csv" in refused(tmp_path / "t.xlsx", out, "y")
    assert "cannot read nowhere://t.csv" in refused("nowhere://t.csv", out, "y")
    (tmp_path / "d.csv").mkdir()
    assert "cannot read" in refused(tmp_path / "d.csv", out, "y")
    (tmp_path / "d.zarr").mkdir()
    assert "cannot read" in refused(tmp_path / "d.zarr", out, "y")


def test_an_existing_destination_is_left_as_it_is(tmp_path, frame):
    source = write_table(frame, tmp_path / "t.csv")
    (tmp_path / "o.zarr").mkdir()
    (tmp_path / "o.zarr" / "mine").write_text("keep")
    with pytest.raises(InputError, match="exists already"):
        convert(source, tmp_path / "o.zarr", "temp")
    assert (tmp_path / "o.zarr" / "mine").read_text() == "keep"


def test_parquet_without_pyarrow_names_the_extra(tmp_path, frame, monkeypatch):
    source = write_table(frame, tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'daskgp[io]'" in refused(source, tmp_path / "o.zarr", "temp")


def test_netcdf_4_without_h5netcdf_names_the_extra(tmp_path, monkeypatch):
    plugins = xr.backends.plugins
    grid = xr.Dataset({"temp": ("x", [1.0, 2.0])}, {"x": [0.0, 1.0]})
    grid.to_netcdf(tmp_path / "g.nc", engine="h5netcdf")
    for name in ("h5netcdf", "netcdf4"):
        reader = xr.backends.common.BACKEND_ENTRYPOINTS[name][1]
        monkeypatch.setitem(xr.backends.common.BACKEND_ENTRYPOINTS, name, ("not_here", reader))
    plugins.refresh_engines()
    try:
        line = refused(tmp_path / "g.nc", tmp_path / "o.zarr", "temp")
    finally:
        monkeypatch.undo()
        plugins.refresh_engines()
    assert line.endswith("it is netCDF 4, which needs h5netcdf: pip install 'daskgp[io]'")


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("gs://bucket/t.csv", "pip install 'daskgp[gcs]'"),
        ("s3://bucket/t.csv", "pip install 'daskgp[s3]'"),
        ("az://bucket/t.csv", "pip install 'daskgp[azure]'"),
        ("https://example.org/t.csv", "pip install aiohttp requests"),
    ],
)
def test_an_address_whose_library_is_missing_names_its_own_extra(url, command):
    with pytest.raises(InputError) as told, readable(url):
        raise ImportError("a library of fsspec is to be installed")
    assert str(told.value).endswith(f": {command}")


def test_an_error_of_writing_is_not_blamed_on_the_source(tmp_path, frame, monkeypatch):
    def full(self, X, y):
        raise OSError(28, "No space left on device")

    source = write_table(frame, tmp_path / "t.csv")
    monkeypatch.setattr(data.DatasetWriter, "append", full)
    message = refused(source, tmp_path / "o.zarr", "temp")
    assert "cannot write dataset" in message


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz", "m.npz"])
def test_a_table_without_a_target_becomes_inputs_alone(tmp_path, frame, name):
    if name == "m.npz":
        np.savez(tmp_path / name, X=frame[["a", "b", "k"]].to_numpy())
        source, features = tmp_path / name, None
    else:
        source, features = write_table(frame, tmp_path / name), ["a", "b", "k"]
    result = convert(source, tmp_path / "o.zarr", features=features, block_rows=4)
    assert (result.rows, result.skipped, result.targets) == (10, 0, ())
    X = data.open_inputs(str(tmp_path / "o.zarr"))
    assert data.column_names(X) == result.features
    np.testing.assert_array_equal(X.compute(), frame[["a", "b", "k"]].to_numpy())
    with pytest.raises(InputError, match=r"has no y, only X.*--target NAME"):
        data.open_dataset(str(tmp_path / "o.zarr"))


def test_all_columns_are_features_without_a_target(tmp_path, frame):
    source = write_table(frame, tmp_path / "t.csv")
    assert convert(source, tmp_path / "o.zarr").features == ("a", "b", "temp", "k")
    np.savez(tmp_path / "u.npz", a=np.ones(3), b=np.ones(4))
    assert "4 rows but column 'a' has 3" in refused(tmp_path / "u.npz", tmp_path / "u.zarr")


@pytest.mark.parametrize("name", ["g.nc", "g.zarr"])
def test_a_grid_without_a_target_keeps_every_point(tmp_path, grid, name):
    source = write_grid(grid.drop_vars("other"), tmp_path / name)
    result = convert(source, tmp_path / "a.zarr", block_rows=50)
    assert (result.rows, result.features) == (120, ("time", "lat", "lon"))
    X = data.open_inputs(str(tmp_path / "a.zarr")).compute()
    np.testing.assert_array_equal(X[:6, 2], grid["lon"])
    assert convert(source, tmp_path / "b.zarr", features=["height", "lat"]).rows == 30
    X = data.open_inputs(str(tmp_path / "b.zarr")).compute()
    height = grid["height"].transpose("lat", "lon")
    np.testing.assert_array_equal(X[:, 0], height.values.ravel())


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npz", "t.nc"])
def test_a_source_used_as_a_store_says_how_to_convert_it(tmp_path, frame, name):
    path = tmp_path / name
    path.write_text("a,b")
    command = f"convert it first: daskgp convert {path} {tmp_path / 't.zarr'}"
    with pytest.raises(InputError) as caught:
        data.open_inputs(str(path))
    assert str(caught.value).endswith(command)
    with pytest.raises(InputError) as caught:
        data.open_inputs(str(path), ["lon", "the lat"])
    assert str(caught.value).endswith(f"{command} --features 'lon,the lat'")
    with pytest.raises(InputError) as caught:
        data.open_dataset(str(path))
    assert str(caught.value).endswith(command + " --target NAME")


def test_a_matrix_of_another_name(tmp_path):
    A, B, y = np.arange(6.0).reshape(3, 2), np.ones((3, 1)), np.arange(3.0)
    np.savez(tmp_path / "one.npz", A=A, y=y)
    np.savez(tmp_path / "two.npz", A=A, B=B, y=y)
    assert convert(tmp_path / "one.npz", tmp_path / "a.zarr", "y").features == ("A0", "A1")
    np.testing.assert_array_equal(stored(tmp_path / "a.zarr")[0], A)
    assert convert(tmp_path / "two.npz", tmp_path / "b.zarr", "y", "A").features == ("A0", "A1")
    message = refused(tmp_path / "two.npz", tmp_path / "c.zarr", "y")
    assert message.endswith("name some of A (3, 2), B (3, 1), y (3,)")


def test_arrays_are_no_source(tmp_path):
    rows = (np.zeros((5000, 2)), np.zeros(5000))
    with pytest.raises(InputError, match=r"^source is a tuple: give the path or URL of a table"):
        convert(rows, tmp_path / "rows.zarr")
    assert not (tmp_path / "rows.zarr").exists()
