"""Bad input: exit code 2 or a ValueError, one plain line, and nothing half-written.

Most cases go through the command, which says what the Python interface says; those that only
Python can be given (arrays, settings of other types) are at the end.
"""

import os
import resource
import shutil
import subprocess

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from commands import dataset, files, one_line, refused, rows, start, succeed
from scipy.sparse import csr_array

import daskgp
from daskgp.errors import InputError, SettingError

WRITER = f"daskgp {daskgp.__version__}"
SMALL = ("kernel=matern32(1.0)", "n_inducing=20", "max_iter=2")
FIT = ("--model", "sgpr", *(f"--set={setting}" for setting in SMALL))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "train.zarr", *rows(), names=["lon", "lat"])


@pytest.fixture(scope="module")
def fitted(data, tmp_path_factory, scheduler):
    url = str(tmp_path_factory.mktemp("model") / "model.zarr")
    succeed("fit", data, url, *FIT, "--scheduler", scheduler)
    return url


@pytest.fixture
def broken(fitted, tmp_path):
    """A copy of the fitted model to break."""
    return shutil.copytree(fitted, tmp_path / "broken.zarr")


def store(path, **arrays):
    """A Zarr group with these arrays, each in chunks of 50 rows."""
    group = zarr.create_group(path)
    for name, values in arrays.items():
        chunks = (50, *values.shape[1:])
        dtype = "string" if values.dtype.kind == "U" else values.dtype
        array = group.create_array(name, shape=values.shape, chunks=chunks, dtype=dtype)
        if values.size:
            array[...] = values
    return path


def refuse_fit(data, tmp_path, *options, code=2):
    """The line of a fit that must fail, and nothing may be left of it."""
    before = sorted(os.listdir(tmp_path))
    line = refused("fit", data, tmp_path / "m.zarr", *(options or FIT), code=code)
    assert sorted(os.listdir(tmp_path)) == before
    return line


# -- datasets --------------------------------------------------------------------------------

X, Y = rows()
STORES = {
    "no X": ({"y": Y}, "has no array 'X': it holds y"),
    "no y": ({"X": X}, "has no y, only X"),
    "nothing": ({}, "has no array 'X': it holds no arrays"),
    "unequal rows": ({"X": X, "y": Y[:-1]}, "X has 300 rows but y has 299"),
    "X a vector": ({"X": Y, "y": Y}, "array 'X' has 1 dimensions, not 2"),
    "X a cube": ({"X": X[:, :, None], "y": Y}, "array 'X' has 3 dimensions, not 2"),
    "y a cube": ({"X": X, "y": X[:, :, None]}, "array 'y' has 3 dimensions, not 1 or 2"),
    "text": ({"X": X.astype("U8"), "y": Y}, "numbers are needed"),
    "complex": ({"X": X, "y": Y + 1j}, "array 'y' has type complex128, but numbers are needed"),
}


@pytest.mark.parametrize("case", STORES)
def test_a_store_that_is_no_dataset(case, tmp_path):
    arrays, says = STORES[case]
    data = store(tmp_path / "data.zarr", **arrays)
    assert says in refuse_fit(data, tmp_path)
    assert says in refused("plan", data, *FIT)


def test_a_missing_store(fitted, data, tmp_path):
    missing = tmp_path / "missing.zarr"
    says = f"at {missing}: the path does not exist"
    assert says in refuse_fit(missing, tmp_path)
    assert says in refused("predict", missing, data, tmp_path / "p.zarr")
    assert says in refused("predict", fitted, missing, tmp_path / "p.zarr")
    assert says in refused("score", fitted, missing)
    assert says in refused("score", missing, data)
    assert says in refused("plan", missing, *FIT)
    assert says in refused("info", missing)
    line = refused("convert", tmp_path / "missing.csv", tmp_path / "d.zarr", "--target", "y")
    assert "missing.csv" in line
    assert os.listdir(tmp_path) == []


def test_a_path_that_is_no_store(data, tmp_path):
    (tmp_path / "file").write_text("hello")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        assert "is not a Zarr group" in refuse_fit(tmp_path / name, tmp_path)
        assert "is not a Zarr group" in refused("score", tmp_path / name, data)


def test_an_address_of_an_unknown_kind(data, tmp_path):
    assert "warp" in refuse_fit("warp://bucket/data.zarr", tmp_path)
    assert "warp" in refused("fit", data, "warp://bucket/m.zarr", *FIT)


def changed(column, value, rows_=slice(None)):
    both = np.column_stack([X, Y])
    both[rows_, column] = value
    return both[:, :2], both[:, 2]


VALUES = {
    "NaN features": (changed(0, np.nan), "all 300 rows have a missing value (NaN)"),
    "NaN targets": (changed(2, np.nan), "/y lacks 3 of 3 chunks, which read as missing values"),
    "an infinite feature": (changed(1, np.inf, 7), "feature 'lat' has 1 infinite value:"),
    "infinite targets": (changed(2, -np.inf), "target 'y' has 300 infinite values"),
    "constant columns": (changed(slice(2), 5.0), "in every row, 'lon' (5), 'lat' (5)"),
    "few rows": (changed(0, np.nan, slice(15, None)), "20 inducing inputs for 15 usable rows"),
}


@pytest.mark.parametrize("case", VALUES)
def test_values_that_cannot_be_fitted(case, tmp_path, scheduler):
    values, says = VALUES[case]
    data = dataset(tmp_path / "data.zarr", *values, names=["lon", "lat"])
    assert says in refuse_fit(data, tmp_path, *FIT, "--scheduler", scheduler)


def test_zero_rows_and_fewer_than_inducing_inputs(fitted, tmp_path, scheduler):
    cluster = ("--scheduler", scheduler)
    empty = store(tmp_path / "empty.zarr", X=X[:0], y=Y[:0])
    assert "no rows" in refuse_fit(empty, tmp_path, *FIT, *cluster)
    assert "no rows" in refused("predict", fitted, empty, tmp_path / "p.zarr", *cluster)
    assert "no rows" in refused("score", fitted, empty, *cluster)
    few = dataset(tmp_path / "few.zarr", X[:19], Y[:19])
    assert "20 inducing inputs for 19" in refuse_fit(few, tmp_path, *FIT, *cluster)
    assert sorted(os.listdir(tmp_path)) == ["empty.zarr", "few.zarr"]


# -- names and settings ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ["--model", "sgrp"],
            "unknown model 'sgrp': did you mean 'svgp'? Known are sgpr, lma, pic, vecchia,",
        ),
        (["--model", "sgpr", "--set", "kernel=matern42"], "unknown kernel 'matern42'"),
        (["--model", "sgpr", "--set", "n_inducin=9"], "did you mean 'n_inducing'?"),
        (["--model", "cagp", "--set", "actions=cgs"], "actions='cgs': "),
        (["--model", "cagp", "--set", "loss=evidence"], "one of 'elbo', 'projected' is needed"),
        (["--model", "cagp", "--set", "n_actions=301"], "301 actions for 300 usable rows: choose"),
        (["--model", "sgpr", "--memory-limit", "lots"], "memory limit 'lots' cannot be read"),
        (["--model", "sgpr", "--scheduler", "warp://here"], "no Dask scheduler answers at warp"),
        (["--model", "sgpr", "--config", "no-such.toml"], "cannot read the configuration no-such"),
    ],
)
def test_names_and_settings_that_do_not_exist(options, says, data, tmp_path):
    assert says in refused("fit", data, tmp_path / "m.zarr", *options)
    assert os.listdir(tmp_path) == []


# -- output stores ---------------------------------------------------------------------------


def test_an_output_that_exists(data, fitted, tmp_path, scheduler):
    before = files(fitted)
    assert "exists already" in refused("fit", data, fitted, *FIT)
    assert files(fitted) == before
    line = refused("predict", fitted, data, data)
    assert "a dataset store exists already and is not a prediction store: choose another" in line
    np.savez(tmp_path / "t.npz", X=X, y=Y)
    line = refused("convert", tmp_path / "t.npz", data, "--target", "y")
    assert "exists already: remove it" in line


@pytest.mark.parametrize("there", ["a folder", "a file", "a Zarr group", "a model store"])
def test_an_output_that_is_something_else(there, data, fitted, tmp_path):
    other = tmp_path / "other"
    if there == "a file":
        other.write_text("mine")
    elif there == "a folder":
        other.mkdir()
        (other / "mine").write_text("keep")
    elif there == "a Zarr group":
        zarr.create_group(other)
    else:
        other = fitted
    np.savez(tmp_path / "t.npz", X=X, y=Y)
    commands = {
        "dataset": ("convert", tmp_path / "t.npz", other, "--target", "y"),
        "model": ("fit", data, other, *FIT),
        "prediction": ("predict", fitted, data, other),
    }
    for kind, command in commands.items():
        if kind in there:
            continue
        for options in ((), ("--resume",)) if kind != "dataset" else ((),):
            line = refused(*command, *options)
            says = f"{there} exists already and is not a {kind} store: choose another path"
            assert line.endswith(says), line


# -- model stores ----------------------------------------------------------------------------


def refuse_model(model, data, tmp_path):
    before = sorted(os.listdir(tmp_path))
    line = refused("predict", model, data, tmp_path / "p.zarr")
    assert line == refused("score", model, data)
    assert sorted(os.listdir(tmp_path)) == before
    with pytest.raises(ValueError, match="model store") as error:
        daskgp.load(str(model))
    assert line == f"Error: {error.value}"
    return line


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"complete": False}, "is incomplete: run the same fit with --resume, or remove it"),
        (
            {"version": 99},
            f"versions 1 and 2: fit again or use the version that wrote it, {WRITER}",
        ),
        ({"checksum": "0"}, "is damaged: its checksum does not match, fit again"),
        ({"model": None}, "is damaged: its description is missing"),
    ],
)
def test_a_model_store_that_says_it_is_not_usable(attributes, says, broken, data, tmp_path):
    zarr.open_group(broken, mode="r+").attrs.update(attributes)
    assert says in refuse_model(broken, data, tmp_path)


@pytest.mark.parametrize("damage", ["flipped", "cut", "removed", "array removed"])
def test_a_model_store_with_a_damaged_array(damage, broken, data, tmp_path):
    damage_in(broken, broken, damage)
    line = refuse_model(broken, data, tmp_path)
    assert f"model store {broken} is damaged: " in line
    assert line.count(str(broken)) == 1
    assert line.endswith("fit again")


@pytest.mark.parametrize("damage", ["flipped", "cut", "removed", "array removed"])
def test_damaged_sums_are_found_by_an_update_and_spare_predictions(damage, broken, data, tmp_path):
    wanted = daskgp.load(broken).predict(X[:5])
    damage_in(broken, broken / "sums", damage)
    np.testing.assert_array_equal(daskgp.load(broken).predict(X[:5]), wanted)
    before = files(broken)
    new = dataset(tmp_path / "new.zarr", X[:9], Y[:9])
    assert "is damaged" in refused("update", broken, new)
    assert files(broken) == before


def damage_in(store, folder, damage):
    """Damage the largest chunk of the model in a store, or of its sums."""
    chunks = (p for p in folder.rglob("c/**/*") if p.is_file())
    own = (p for p in chunks if folder != store or p.relative_to(store).parts[0] != "sums")
    place = max(own, key=lambda p: p.stat().st_size)
    content = bytearray(place.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 0xFF
        place.write_bytes(content)
    elif damage == "cut":
        place.write_bytes(content[: len(content) // 2])
    elif damage == "removed":
        place.unlink()
    else:
        shutil.rmtree(folder / place.relative_to(folder).parts[0])


def test_what_is_no_model_is_told_as_what_it_is(data, fitted, tmp_path):
    remedy = "give a store that save or `daskgp fit` has written"
    assert f"is not a daskgp model store but a dataset store: {remedy}" in refused(
        "score", data, data
    )
    daskgp.load(fitted).predict_store(data, tmp_path / "p.zarr")
    (tmp_path / "t.csv").write_text("a,b")
    for place, says in (
        (data, "is not a daskgp model store but a dataset store: give a store that save"),
        (tmp_path / "p.zarr", "is not a daskgp model store but a prediction store: give"),
        (f"{data}/X", "it is an array, not a Zarr group: give the store that it is in"),
        (tmp_path / "t.csv", "it is not a Zarr group but a file: give a store that save"),
        (tmp_path, "it is not a Zarr group: check the path"),
    ):
        with pytest.raises(ValueError, match=says):
            daskgp.load(place)


def test_a_store_whose_metadata_are_cut_is_damaged(data, fitted, tmp_path):
    for place, remedy in ((fitted, "fit again"), (data, "convert again")):
        cut = shutil.copytree(place, tmp_path / remedy[:3])
        (cut / "zarr.json").write_text("{")
        line = refused("predict", *((cut, data) if place is fitted else (fitted, cut)), "o.zarr")
        assert f"at {cut} is damaged, its metadata cannot be read (" in line
        assert line.endswith(f": {remedy}, or restore a copy of it")


def test_a_store_that_names_no_known_class(broken, data, tmp_path):
    """A name from a file is looked up in the registry and never imported."""
    from daskgp.data import checksum
    from daskgp.data.stores import models as stores

    found = stores.read(str(broken))
    model = {**found.attributes, "model": "os.system"}
    digest = checksum(found.arrays, model)
    zarr.open_group(broken, mode="r+").attrs.update({"model": model, "checksum": digest})
    assert "unknown model 'os.system'" in refuse_model(broken, data, tmp_path)


# -- features at prediction ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "names", "says"),
    [
        (
            3,
            ["lon", "lat", "height"],
            "X has 3 features, but sgpr is expecting 2 features as input: lon",
        ),
        (1, ["lon"], "X has 1 features, but sgpr is expecting 2 features as input: lon, lat"),
        (2, ["lat", "lon"], "X has feature 'lat' where the model was fitted with 'lon'"),
        (2, ["lon", "depth"], "X has feature 'depth' where the model was fitted with 'lat'"),
    ],
)
def test_features_other_than_at_the_fit(columns, names, says, fitted, tmp_path, scheduler):
    inputs = np.column_stack([X, Y])[:, :columns]
    test = dataset(tmp_path / "t.zarr", inputs, Y, names=names)
    assert says in refused("predict", fitted, test, tmp_path / "p.zarr")
    assert says in refused("score", fitted, test, "--scheduler", scheduler)
    assert os.listdir(tmp_path) == ["t.zarr"]
    with pytest.raises(ValueError, match="feature") as error:
        daskgp.load(fitted).predict(daskgp.open_dataset(test)[0])
    assert says in str(error.value)


def test_targets_other_than_at_the_fit(fitted, tmp_path, scheduler):
    test = dataset(tmp_path / "t.zarr", X, X, targets=("y", "z"))
    line = refused("score", fitted, test, "--scheduler", scheduler)
    assert "y has 2 targets, but the model was fitted with 1: give y" in line


# -- disks -----------------------------------------------------------------------------------


def every_writer(data, fitted, tmp_path, target, scheduler):
    """The three commands that write, with the same target."""
    np.savez(tmp_path / "t.npz", X=X, y=Y)
    yield ("convert", tmp_path / "t.npz", target, "--target", "y")
    yield ("fit", data, target, *FIT, "--scheduler", scheduler)
    yield ("predict", fitted, data, target, "--scheduler", scheduler)


def test_a_target_below_a_file(data, fitted, tmp_path, scheduler):
    (tmp_path / "file").write_text("hello")
    target = tmp_path / "file" / "out.zarr"
    for command in every_writer(data, fitted, tmp_path, target, scheduler):
        line = refused(*command)
        assert "part of the path is a file" in line
    assert (tmp_path / "file").read_text() == "hello"


def test_a_target_in_a_folder_that_may_not_be_written(data, fitted, tmp_path, scheduler):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    if os.access(folder, os.W_OK):  # as root permissions do not hold
        folder = "/sys/kernel"
        if not os.path.isdir(folder):
            pytest.skip("every folder can be written here")
    for command in every_writer(data, fitted, tmp_path, f"{folder}/out.zarr", scheduler):
        assert re_any(refused(*command), "permission denied", "read-only")


def re_any(line, *parts):
    return any(part in line for part in parts)


DISK = "256k"


def test_a_disk_that_is_full(data, fitted, small_disk, tmp_path, scheduler):
    (small_disk / "ballast").write_bytes(bytes(250 * 1024))
    target = small_disk / "out.zarr"
    for command in every_writer(data, fitted, tmp_path, target, scheduler):
        assert "the disk is full: free some space" in refused(*command)
        assert os.listdir(small_disk) == ["ballast"]


def test_a_disk_that_fills_up_in_the_middle(fitted, small_disk, tmp_path, scheduler):
    many, y = rows(40_000, seed=3)
    source, target = tmp_path / "t.npz", small_disk / "out.zarr"
    np.savez(source, X=many, y=y)
    options = ("--target", "y", "--block-rows", "2000")
    assert "the disk is full" in refused("convert", source, target, *options)
    assert os.listdir(small_disk) == []
    inputs = dataset(tmp_path / "in.zarr", many, y, step=2_000)
    predict = ("predict", fitted, inputs, target)
    assert "the disk is full" in refused(*predict, "--scheduler", scheduler)
    # what is done is kept and marked, and the run goes on where there is room again
    assert zarr.open_group(target, mode="r").attrs["complete"] is False
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    found = succeed(*predict, "--resume", "--scheduler", scheduler)
    assert found["skipped"] > 0
    assert found["rows"] + found["skipped"] == 40_000
    succeed(*predict[:3], tmp_path / "whole.zarr", "--scheduler", scheduler)
    whole = zarr.open_group(tmp_path / "whole.zarr", mode="r")
    for name in ("mean", "variance"):
        resumed = zarr.open_group(target, mode="r")[name][...]
        np.testing.assert_array_equal(resumed, whole[name][...])


def small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, 8_192))


@pytest.mark.slow
def test_a_file_system_that_refuses_large_files(tmp_path):
    many, y = rows(4_000)
    np.savez(tmp_path / "t.npz", X=many, y=y)
    target = tmp_path / "out.zarr"
    process = start("convert", tmp_path / "t.npz", target, "--target", "y", before=small_files)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (2, "")
    assert "refuses files of this size" in one_line(stderr)
    assert os.listdir(tmp_path) == ["t.npz"]


# -- Python ----------------------------------------------------------------------------------

ARRAYS = {
    "unequal rows": ((X, Y[:-1]), "X has 300 rows but y has 299"),
    "X a vector": ((Y, Y), "X has 1 dimensions, 2 are needed"),
    "y a cube": ((X, X[:, :, None]), "y has 3 dimensions, 1 or 2 are needed"),
    "text": (
        (X, np.where(Y > 0, "yes", "no")),
        "but numbers are needed: encode it as numbers, two classes as 0 and 1, or fit "
        "daskgp.GPClassifier to labels",
    ),
    "text of numbers": ((X, Y.astype(str)), ", but numbers are needed: give y.astype(float)"),
    "numbers as text of a frame": (
        (pd.DataFrame({"x": Y, "code": np.where(Y > 0, "7", "8")}), Y),
        "numbers by .astype(float), or into a category by .astype('category')",
    ),
    "decimal commas": (
        (np.full(X.shape, "1,5"), Y),
        "X has type <U3 and holds '1,5', but numbers are needed: write numbers with a point",
    ),
    "a mapping": (({"a": X[:, 0]}, Y), "X is of type dict: give numbers, as an array, a list, a"),
    "a set": ((X, set(Y)), "y is of type set: give numbers, as an array"),
    "nothing": ((None, Y), "X is None: give numbers, as an array"),
    "rows of other lengths": (([[1.0], [1.0, 2.0]], Y[:2]), "X has rows of different lengths"),
    "named fields": ((np.zeros(300, [("a", "f8")]), Y), "X has named fields: give a data frame"),
    "a cube": ((X[:, :, None], Y), "make rows of the first of them by X.reshape(len(X), -1), or"),
    "no column": ((X, Y[:, None][:, :0]), "y has no column (shape=(300, 0)): give one target or"),
    "sparse chunks": (
        (da.from_array(X, chunks=(100, 2)).map_blocks(csr_array), Y),
        "a sparse matrix is not supported: give a dense array",
    ),
    "dates": ((X.astype("M8[s]"), Y), "numbers are needed: turn them into numbers, such as days"),
    "objects": (
        (X.astype(object), Y),
        "X has type object, but numbers are needed: give X.astype(flo",
    ),
    "zero rows": ((X[:0], Y[:0]), "no rows: the training data has length 0"),
    "all NaN": ((X * np.nan, Y), "all 300 rows have a missing value"),
    "infinite": (changed(1, np.inf, 7), "feature 'x1' has 1 infinite value:"),
    "too large to square": (changed(0, -1e308, 7), "feature 'x0' has values of up to 1e+308 in"),
    "few rows": ((X[:9], Y[:9]), "20 inducing inputs for 9 usable rows: choose at most 9"),
    "one column, constant": (
        (X[:, :1] * 0 + 2.5, Y),
        "feature 'x0' is constant (2.5 in every row): give at least one feature that varies",
    ),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_cannot_be_fitted(case):
    arrays, says = ARRAYS[case]
    with pytest.raises(ValueError, match=r".") as error:
        daskgp.SGPR(n_inducing=20).fit(*arrays)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_saving_over_a_store_and_below_a_file(fitted, tmp_path):
    model = daskgp.load(fitted)
    with pytest.raises(ValueError, match="exists already"):
        model.save(fitted)
    (tmp_path / "file").write_text("hello")
    with pytest.raises(ValueError, match="part of the path is a file"):
        model.save(str(tmp_path / "file" / "m.zarr"))


def test_masked_entries_are_missing():
    holes = np.zeros(X.shape, bool)
    holes[::7, 0] = True
    missing = np.where(holes, np.nan, X)
    filled = np.where(holes, 1e6, X)
    masked, y = np.ma.array(filled, mask=holes), np.ma.array(Y, mask=np.arange(len(Y)) % 11 == 0)
    settings = {"n_inducing": 20, "optimizer": None, "progress": False}
    plain = daskgp.SGPR(**settings).fit(missing, y.filled(np.nan))
    chunks = (50, *masked.shape[1:])
    lazy = da.from_array(masked, chunks=chunks), da.from_array(y, chunks=50)
    for given in ((masked, y), lazy):
        model = daskgp.SGPR(**settings).fit(*given)
        assert model.n_rows_ == plain.n_rows_ < len(Y)
        np.testing.assert_allclose(model.objective_, plain.objective_, rtol=1e-9)
        found = np.asarray(plain.predict(given[0]))
        np.testing.assert_array_equal(np.isnan(found), holes.any(axis=1))


# -- variational GPs -------------------------------------------------------------------------

LABELS = (Y > 2.0).astype(float)
DECOUPLED = {"n_mean": 30, "n_covariance": 20, "max_iter": 2, "batch_rows": 50}
COUPLED = {"n_inducing": 20, "max_iter": 2, "batch_rows": 50}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ("likelihood=gama",),
            "likelihood='gama': did you mean 'gamma'?",
        ),
        (("likelihod=poisson",), "unknown setting 'likelihod' of model 'svgp': did you mean 'like"),
        (("natural=auto",), "setting natural='auto': a number or none is needed"),
        (("likelihood=bernoulli",), "takes only 0 and 1: code the two classes as 0 and 1"),
        (
            ("likelihood=poisson",),
            "takes whole numbers of at least 0: give counts, or take another",
        ),
    ],
)
def test_svgp_settings_that_the_command_refuses(settings, says, data, tmp_path, scheduler):
    chosen = ("n_inducing=20", "max_iter=2", "batch_rows=50", *settings)
    options = ("--model", "svgp", *(part for text in chosen for part in ("--set", text)))
    assert says in refuse_fit(data, tmp_path, *options, "--scheduler", scheduler)


@pytest.mark.parametrize("where", ["numpy", "zarr", "dask"])
@pytest.mark.parametrize(
    ("likelihood", "y", "says"),
    [
        ("bernoulli", 2 * LABELS, "target 'y' holds 2 and"),
        ("bernoulli-logit", np.where(np.arange(300) == 299, -1.0, LABELS), "'y' holds -1, but"),
        ("poisson", np.where(np.arange(300) == 150, -1.0, LABELS), "target 'y' holds -1, but"),
        ("poisson", LABELS + np.eye(300)[7] * 0.5, "target 'y' holds"),
    ],
)
def test_labels_outside_the_support_of_a_likelihood(likelihood, y, says, where, tmp_path):
    given, kept = (X, y), tmp_path / "kept"
    if where == "zarr":
        given = daskgp.open_dataset(dataset(tmp_path / "t.zarr", X, y))
    if where == "dask":
        given = da.from_array(X, chunks=(50, 2)) * 1.0, da.from_array(y, chunks=50) * 1.0
    for model in (
        daskgp.SVGP(**COUPLED, likelihood=likelihood, store=str(kept)),
        daskgp.DecoupledGP(**DECOUPLED, likelihood=likelihood, store=str(kept)),
    ):
        with pytest.raises(ValueError, match="likelihood takes") as error:
            model.fit(*given, checkpoint=str(tmp_path / "checkpoint"))
        assert says in str(error.value)
        assert "\n" not in str(error.value)
        assert not hasattr(model, "solved_")
        assert not kept.exists() or os.listdir(kept) == []
        assert not (tmp_path / "checkpoint").exists()


def test_labels_of_rows_that_are_left_out_may_be_anything():
    holed, y = X.copy(), LABELS.copy()
    holed[5, 0], y[5], y[9] = np.nan, 7.0, np.nan
    model = daskgp.SVGP(**COUPLED, likelihood="bernoulli").fit(holed, y)
    assert model.n_rows_ == 298


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("fit", "IN", "", "--model", "sgpr"), "'MODEL': it is blank: give a value (see"),
        (("fit", "IN", " ", "--model", "sgpr"), "'MODEL'"),
        (("fit", "", "OUT", "--model", "sgpr"), "'DATA'"),
        (("fit", "IN", "OUT", "--model", "sgpr", "--config", ""), "'--config'"),
        (("fit", "IN", "OUT", "--model", "sgpr", "--scheduler", ""), "'--scheduler'"),
        (("predict", "M", "IN", "OUT", "--record", " "), "or leave the option out"),
        (("fit", "IN", "OUT", "--model", "sgpr", "--set", ""), "'--set'"),
        (("convert", "IN", ""), "'DESTINATION'"),
        (("prepare", "IN", "OUT", "--order", ""), "'--order'"),
        (("info", ""), "'STORE'"),
    ],
)
def test_blank_text_is_not_taken_for_an_option_left_out(command, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused(*command)
    assert "it is blank" in line
    assert named in line
    assert os.listdir(tmp_path) == []


def test_classes_of_what_has_none():
    model = daskgp.SVGP(**COUPLED).fit(X, Y)
    assert not hasattr(model, "predict_proba")  # as scikit-learn's estimators have it
    with pytest.raises(AttributeError) as error:
        model.predict_proba(X)
    says = "SVGP has no predict_proba, as likelihood='gaussian' has no classes: predict(X, include"
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)


def test_a_likelihood_that_is_set_after_a_fit_needs_another_fit():
    model = daskgp.SVGP(**COUPLED).fit(X, Y)
    model.set_params(likelihood="bernoulli")
    assert not hasattr(model, "predict_proba")  # those would be no probabilities
    assert model.likelihood_.name == "gaussian"
    for door in (model.score, model.partial_fit):
        with pytest.raises(SettingError, match="model was fitted with likelihood='gaussian'"):
            door(X, LABELS)
    model.fit(X, LABELS)
    assert model.predict_proba(X[:3]).shape == (3, 2)


def test_columns_of_one_name_are_refused():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=["a", "b", "a"])
    y = pd.DataFrame({"z": X["b"]})
    twice = pd.concat([y, y], axis=1)
    for own, target, what in ((X, y, "X has several columns 'a'"), (y, twice, "y has several")):
        for settings in ({}, {"targets": "joint"}):
            with pytest.raises(InputError, match=f"{what}.*: give each a name of its own"):
                daskgp.ExactGP(progress=False, **settings).fit(own, target)
