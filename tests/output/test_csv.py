"""Predictions of the rows of a csv as another csv: its columns as they were, mean and spread."""

import errno
import gzip
import os

import numpy as np
import pandas as pd
import pytest
from commands import refused, succeed

import daskgp
from daskgp.data.convert import tables
from daskgp.errors import FullDiskError, InputError, SettingError, StoreError
from daskgp.output import csv as to_csv
from daskgp.output import store as to_store


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"lon": rng.uniform(0, 5, n), "depth": rng.uniform(0, 50, n)})


def fitted(targets, **settings):
    frame = table(150)
    first = np.sin(frame.lon) + frame.depth / 20
    y = pd.DataFrame({"heat": first, "salt": 3 * first + 35})[targets]
    return daskgp.SGPR(n_inducing=30, optimizer=None, **settings).fit(frame, y)


@pytest.fixture(scope="module")
def model():
    return fitted("heat")


@pytest.fixture
def places(tmp_path):
    """Texts that a reader would change: codes, quotes, a decimal's zeros, empty fields."""
    path = tmp_path / "places.csv"
    path.write_text(
        'code,depth,note,lon\n007,10.50,"a, b",1\nNA,,plain,2.000\n1e5,30,"say ""so""",3\n'
    )
    return path


def expected(model, frame):
    X = frame[["lon", "depth"]].to_numpy(np.float64)
    return model.predict(X, return_std=True, include_noise=True)


@pytest.mark.parametrize("how", ["python", "shell"])
def test_columns_stay_as_they_were(model, places, tmp_path, how):
    output = str(tmp_path / "out.csv")
    if how == "python":
        written = model.predict_store(str(places), output)
        assert written == (2, 1)
    else:
        model.save(tmp_path / "m.zarr")
        said = succeed("predict", tmp_path / "m.zarr", places, output)
        assert (said["rows"], said["skipped"]) == (2, 1)
    before, after = (pd.read_csv(p, dtype=str, keep_default_na=False) for p in (places, output))
    assert list(after) == [*before, "heat_mean", "heat_std"]
    pd.testing.assert_frame_equal(after[[*before]], before)
    assert after.heat_mean[1] == after.heat_std[1] == ""  # without its depth
    found = pd.read_csv(output)
    for name, values in zip(("heat_mean", "heat_std"), expected(model, found), strict=True):
        np.testing.assert_allclose(found[name], values, rtol=1e-9)
    assert {*os.listdir(tmp_path)} <= {"places.csv", "out.csv", "m.zarr"}


@pytest.mark.parametrize(
    ("empty", "have"), [([], None), ([4], "1 row has"), ([0, 31, 70], "3 rows have")]
)
def test_rows_without_a_prediction_are_told_and_counted(model, tmp_path, caplog, empty, have):
    frame = table(80)
    frame.loc[empty, "depth"] = np.nan
    frame.to_csv(tmp_path / "in.csv", index=False)
    written = model.predict_store(str(tmp_path / "in.csv"), str(tmp_path / "out.csv"))
    found = pd.read_csv(tmp_path / "out.csv")
    assert written == (found.heat_mean.notna().sum(), found.heat_mean.isna().sum())
    assert written.skipped == len(empty)
    said = f"{have} no prediction, because a feature is missing or infinite"
    assert caplog.messages == ([] if have is None else [said])


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_long_table_is_written_in_parts(model, tmp_path, ending, monkeypatch):
    monkeypatch.setattr(tables, "WRITE_ROWS", 64)
    source, output = str(tmp_path / f"in{ending}"), str(tmp_path / f"OUT{ending.upper()}")
    table(1_000, seed=3).to_csv(source, index=False)
    output = output.replace(".GZ", ".gz")
    model.predict_store(source, output)
    if ending == ".csv.gz":
        with gzip.open(output, "rt") as file:
            assert file.readline().startswith("lon,depth,heat_mean")
    found = pd.read_csv(output)
    assert len(found) == 1_000
    np.testing.assert_allclose(found.heat_std, expected(model, found)[1], rtol=1e-9)


def test_every_target_has_a_pair_of_columns(tmp_path):
    model = fitted(["heat", "salt"])
    table(20, seed=4).to_csv(tmp_path / "in.csv", index=False)
    model.predict_store(str(tmp_path / "in.csv"), str(tmp_path / "out.csv"))
    found = pd.read_csv(tmp_path / "out.csv")
    assert list(found)[2:] == ["heat_mean", "heat_std", "salt_mean", "salt_std"]
    mean, std = expected(model, found)
    np.testing.assert_allclose(found[["heat_mean", "salt_mean"]], mean, rtol=1e-9)
    np.testing.assert_allclose(found[["heat_std", "salt_std"]], std, rtol=1e-9)


def test_what_a_csv_cannot_hold_is_refused(model, places, tmp_path):
    source, output = str(places), str(tmp_path / "out.csv")
    for settings, says in (
        ({"resume": True}, "is written whole: convert"),
        ({"n_samples": 3}, "have samples"),
        ({"variance": True}, "the rest is for grids"),
        ({"mask": "land.geojson"}, "leaves out rows and .* has all of"),
        ({"wait": 3.0}, "a file has none"),
    ):
        with pytest.raises(SettingError, match=says):
            model.predict_store(source, output, **settings)
    with pytest.raises(SettingError, match="not on this machine"):
        model.predict_store(source, "s3://bucket/out.csv")
    with pytest.raises(InputError, match=r"^the ndarray is not a csv, .*out.csv is: name a st"):
        model.predict_store(np.zeros((9, 2)), output)
    with pytest.raises(InputError, match=r"in.zarr is not a csv, .*out.csv is: name a store"):
        model.predict_store(str(tmp_path / "in.zarr"), output)
    with pytest.raises(InputError, match="may be several files: predict one at a time"):
        model.predict_store(str(tmp_path / "p*.csv"), output)
    with pytest.raises(InputError, match=r"source .*none.csv does not exist: check the path"):
        model.predict_store(str(tmp_path / "none.csv"), output)
    blind = daskgp.CGGP().fit(table(60), np.arange(60.0))
    with pytest.raises(SettingError, match="variance"):
        blind.predict_store(source, output)
    with pytest.raises(StoreError, match="or name a csv"):
        model.predict_store(source, str(tmp_path / "out.zarr"))
    with pytest.raises(StoreError, match=r"places.csv exists already: remove it"):
        model.predict_store(source, source)
    places.write_text("lon,depth,heat_std\n1,2,3\n")
    with pytest.raises(InputError, match="has a column 'heat_std' already"):
        model.predict_store(source, output)
    places.write_text("lon,height\n1,2\n")
    missing = (
        "'depth' is not in .*places.csv, which has lon, height: rename a column to it, or add it$"
    )
    with pytest.raises(InputError, match=f"feature of the model {missing}"):
        model.predict_store(source, output)
    model.save(tmp_path / "m.zarr")
    assert "leave them out" in refused("predict", tmp_path / "m.zarr", places, output, "--wait", 3)
    assert "would hold a map" in refused(
        "predict", tmp_path / "m.zarr", output, "--resolution", "lon=1"
    )
    assert {*os.listdir(tmp_path)} == {"places.csv", "m.zarr"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("depth,lon,depth\n1,2,3\n", "has two columns 'depth'"),
        ("id,lon,depth\n1,1,2,\n2,2,5,4\n3,3,2,\n", "more fields than its header has names"),
        ("lon,depth\n1,1,2\n2,2,5\n", "more fields than its header has names"),
        ("lon,depth\n1,deep\n", "the model needs numbers or times there"),
        ("", "places.csv"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(model, tmp_path, text, says):
    source = tmp_path / "places.csv"
    source.write_text(text)
    with pytest.raises(InputError, match=says):
        model.predict_store(str(source), str(tmp_path / "out.csv"))
    assert os.listdir(tmp_path) == ["places.csv"]


def test_times_that_are_not_written_as_such_are_told_how_to_write_them(tmp_path):
    when = pd.date_range("2020-01-01", periods=20).strftime("%Y-%m-%d")
    pd.DataFrame({"day": when, "heat": np.arange(20.0)}).to_csv(tmp_path / "a.csv", index=False)
    own = daskgp.ExactGP("rbf", optimizer=None, progress=False)
    own.fit(str(tmp_path / "a.csv"), "heat", features=["day"])
    (tmp_path / "in.csv").write_text("day\n2020-01-02\n15.01.2020\n")
    with pytest.raises(
        InputError, match=r"'15\.01\.2020': the model needs times there, written as"
    ):
        own.predict_store(str(tmp_path / "in.csv"), str(tmp_path / "out.csv"))


@pytest.mark.whole
@pytest.mark.parametrize(
    "text",
    ["lon,depth\n1,2,\n4,5,\n", "# places\nlon,depth\n1,2\n4,5\n", "sep=,\nlon,depth\n1,2\n4,5\n"],
    ids=["trailing comma", "comment", "separator"],
)
def test_tables_as_other_software_writes_them_are_predicted(model, tmp_path, text):
    (tmp_path / "in.csv").write_text(text)
    model.predict_store(str(tmp_path / "in.csv"), str(tmp_path / "out.csv"))
    found = pd.read_csv(tmp_path / "out.csv")
    assert [*found] == ["lon", "depth", "heat_mean", "heat_std"]
    np.testing.assert_array_equal(found[["lon", "depth"]], [[1, 2], [4, 5]])
    wanted = model.predict(np.array([[1.0, 2.0], [4.0, 5.0]]))
    np.testing.assert_allclose(found.heat_mean, wanted, rtol=1e-9)


def test_names_of_columns_stay_as_they_were(model, tmp_path):
    (tmp_path / "in.csv").write_text("code,lon,,code,depth\n1,2,x,3,4\n")
    model.predict_store(str(tmp_path / "in.csv"), f"file://{tmp_path}/out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "code,lon,,code,depth,heat_mean,heat_std"
    assert lines[1].startswith("1,2,x,3,4,")


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    model, places, tmp_path, monkeypatch
):
    grid = model.make_grid({"lon": 1.0, "depth": 10.0})
    with pytest.raises(StoreError, match="there is no folder"):
        model.predict_store(str(places), str(tmp_path / "none" / "out.csv"))
    with monkeypatch.context() as patched:  # permissions do not hold for root
        patched.setattr(os, "access", lambda *given: False)
        for source, output, what in ((str(places), "out.csv", "csv"), (grid, "out.nc", "map")):
            says = f"cannot write the {what} .*{output}: permission denied: choose a path"
            with pytest.raises(StoreError, match=says):
                model.predict_store(source, str(tmp_path / output))
    os.symlink(tmp_path / "nowhere", tmp_path / "out.csv")
    with pytest.raises(StoreError, match="exists already: remove it"):
        model.predict_store(str(places), str(tmp_path / "out.csv"))


def test_an_interrupted_table_is_predicted_again(model, places, tmp_path, monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    model.save(tmp_path / "m.zarr")
    monkeypatch.setattr(to_store, "write", interrupted)
    said = refused("predict", tmp_path / "m.zarr", places, tmp_path / "out.csv", code=130)
    assert "interrupted: nothing was written, run it again" in said
    assert "--resume" not in said
    assert {*os.listdir(tmp_path)} == {"places.csv", "m.zarr"}


def test_a_failure_leaves_no_part_of_a_csv(model, places, tmp_path, monkeypatch):
    def fails(group, wanted, part):
        raise OSError("no space left")

    monkeypatch.setattr(to_csv, "_columns", fails)
    with pytest.raises(OSError, match="no space left"):
        model.predict_store(str(places), str(tmp_path / "out.csv"))
    assert os.listdir(tmp_path) == ["places.csv"]


def test_a_csv_that_cannot_be_written_is_told_in_one_line(model, places, tmp_path, monkeypatch):
    def full(*args, **how):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(FullDiskError, match=r"cannot write the csv .*out\.csv: "):
        model.predict_store(str(places), str(tmp_path / "out.csv"))
    assert os.listdir(tmp_path) == ["places.csv"]
