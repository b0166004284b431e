"""Predictions that a scheduler repeats: inputs that grow, runs that overlap, locks and records."""

import dataclasses
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np
import psutil
import pytest
import zarr
from commands import (
    ONE_THREAD,
    dataset,
    files,
    foreign,
    invoke,
    one_line,
    predictions,
    refused,
    rows,
    start,
    stop_when,
    succeed,
)
from dask.callbacks import Callback

import daskgp
from daskgp.data.stores import lock_owner, locks, objects
from daskgp.errors import FullDiskError, InputError, RunError, SettingError, StoreError
from daskgp.runtime.process import single_blas_thread

STEP = 100


@pytest.fixture(scope="module")
def model():
    settings = {"n_inducing": 20, "optimizer": None, "kernel": "matern32(1.0)", "progress": False}
    return daskgp.SGPR(**settings).fit(*rows())


@pytest.fixture(scope="module")
def stored(model, tmp_path_factory):
    url = str(tmp_path_factory.mktemp("model") / "model.zarr")
    model.save(url)
    return url


def inputs(path, n, step=STEP):
    X, _ = rows(n, seed=7)
    return dataset(path, X, X[:, 0], step)


def append(path, n, seed):
    """More rows at the end of a dataset store, as its owner adds them."""
    added, target = rows(n, seed=seed)
    group = zarr.open_group(path, mode="r+")
    for name, values in (("X", added), ("y", target)):
        array = group[name]
        before = array.shape[0]
        array.resize((before + n, *array.shape[1:]))
        array[before:] = values


@contextmanager
def counted():
    """How many tasks of each kind run in the block."""
    counts = {"predict": 0, "check": 0}

    def count(key, *_):
        counts["check"] += bool(re.match(r"predict-check-", str(key)))
        counts["predict"] += bool(re.match(r"predict-[0-9a-f]{8}-\d+-0$", str(key)))

    with Callback(posttask=count), single_blas_thread():
        yield counts


# -- inputs that grow ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_work_of_ten_appends_is_that_of_their_rows(model, tmp_path):
    source, output = inputs(tmp_path / "in.zarr", 4_050), str(tmp_path / "out.zarr")
    assert model.predict_store(source, output, resume=True) == (4_050, 0)
    total = 4_050
    for i in range(10):
        append(source, 130, seed=i)
        ragged, total = total % STEP, total + 130
        with counted() as counts:
            written = model.predict_store(source, output, resume=True)
        assert written == (130 + ragged, total - 130 - ragged)
        assert counts == {"predict": -(-(130 + ragged) // STEP), "check": 0}
    whole = str(tmp_path / "whole.zarr")
    model.predict_store(source, whole)
    assert predictions(output) == predictions(whole)


def test_an_input_that_did_not_grow_costs_nothing(model, tmp_path):
    source, output = inputs(tmp_path / "in.zarr", 250), str(tmp_path / "out.zarr")
    model.predict_store(source, output, resume=True)
    before = files(output)
    with counted() as counts:
        assert model.predict_store(source, output, resume=True) == (0, 250)
    assert counts == {"predict": 0, "check": 0}
    assert files(output) == before


def test_a_run_with_nothing_to_do_starts_no_cluster(
    model, stored, tmp_path, scheduler, monkeypatch
):
    source, output = inputs(tmp_path / "in.zarr", 250), str(tmp_path / "out.zarr")
    succeed("predict", stored, source, output, "--scheduler", scheduler)
    before = predictions(output)

    def connect(*_, **__):
        raise RunError("a cluster is started")

    monkeypatch.setattr("daskgp.runtime.connect.connect", connect)
    again = ("predict", stored, source, output, "--resume")
    found = succeed(*again)
    assert (found["rows"], found["skipped"]) == (0, 250)
    assert predictions(output) == before
    assert "a cluster is started" in refused(*again, "--verify", "--workers", "1", code=1)
    append(source, 1, seed=1)
    assert "a cluster is started" in refused(*again, "--workers", "1", code=1)


def test_few_rows_are_fitted_in_the_process_of_the_command_as_on_a_cluster(
    tmp_path, scheduler, monkeypatch
):
    X, y = rows(250, seed=7)
    source = dataset(tmp_path / "in.zarr", X, y, STEP)
    settings = ("kernel=matern32(1.0)", "n_inducing=20", "max_iter=3")
    options = ("--model", "sgpr", *(f"--set={setting}" for setting in settings))

    def fit(name, *more):
        return ("fit", source, str(tmp_path / name), *options, *more)

    succeed(*fit("there.zarr", "--scheduler", scheduler))

    def connect(*_, **__):
        raise RunError("a cluster is started")

    monkeypatch.setattr("daskgp.runtime.connect.connect", connect)
    monkeypatch.setattr("daskgp.runtime.ahead.start", connect)  # a table this small needs none
    table = tmp_path / "in.csv"
    np.savetxt(table, np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")
    succeed("fit", table, tmp_path / "table.zarr", "--target", "y", *options)
    monkeypatch.setattr("daskgp.runtime.ahead.start", lambda *_: None)
    succeed(*fit("here.zarr"))
    here, there = (daskgp.load(tmp_path / name) for name in ("here.zarr", "there.zarr"))
    for mine, other in zip(
        here.predict(X, return_std=True), there.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(mine, other)
    assert "a cluster is started" in refused(*fit("asked.zarr", "--workers", "1"), code=1)
    monkeypatch.setattr("daskgp.output.store.SMALL", here.plan(X, y).operations * 3)
    succeed(*fit("most.zarr"))
    monkeypatch.setattr("daskgp.output.store.SMALL", 0.0)
    assert "a cluster is started" in refused(*fit("more.zarr"), code=1)


def test_few_new_rows_are_predicted_in_the_process_of_the_command(
    model, stored, tmp_path, monkeypatch
):
    source, output = inputs(tmp_path / "in.zarr", 250), str(tmp_path / "out.zarr")

    def connect(*_, **__):
        raise RunError("a cluster is started")

    monkeypatch.setattr("daskgp.runtime.connect.connect", connect)
    assert succeed("predict", stored, source, output)["rows"] == 250
    model.predict_store(source, str(tmp_path / "whole.zarr"))
    for name in ("mean", "variance"):
        assert files(f"{output}/{name}") == files(f"{tmp_path}/whole.zarr/{name}")
    append(source, 50, seed=1)
    assert not model.needs_cluster(source, output)
    assert model.needs_cluster(source, output, chosen=True)
    monkeypatch.setattr("daskgp.output.store.SMALL", 4.0 * 50 * (20 * 20 + 2 * 20) - 1)
    assert model.needs_cluster(source, output)
    assert "a cluster is started" in refused("predict", stored, source, output, "--resume", code=1)
    assert model.predict_store(source, output, resume=True) == (100, 200)
    assert not model.needs_cluster(source, output, chosen=True)
    assert model.needs_cluster(source, output, chosen=True, verify=True)


def test_an_output_is_predicted_once_all_rows_of_the_input_are_there(model, tmp_path):
    source, output = inputs(tmp_path / "in.zarr", 250), str(tmp_path / "out.zarr")
    assert not model.is_predicted(source, output)
    model.predict_store(source, output)
    assert model.is_predicted(source, output)
    copy = shutil.copytree(source, tmp_path / "copy.zarr", copy_function=shutil.copyfile)
    assert not model.is_predicted(copy, output)  # until it was compared
    zarr.open_group(output, mode="r+").attrs["complete"] = False
    assert not model.is_predicted(source, output)
    model.predict_store(source, output, resume=True)
    append(source, 1, seed=1)
    assert not model.is_predicted(source, output)
    other = inputs(tmp_path / "other.zarr", 250)
    model.predict_store(other, tmp_path / "grows.zarr")
    zarr.open_group(tmp_path / "grows.zarr", mode="r+")["done"].resize((9,))  # by another run
    assert not model.is_predicted(other, tmp_path / "grows.zarr")
    with pytest.raises(StoreError, match="were made by another model"):
        daskgp.SGPR(n_inducing=5, optimizer=None).fit(*rows()).is_predicted(source, output)


def test_shards_and_several_columns_of_chunks_count_as_chunks(model, tmp_path):
    X, _ = rows(400)
    group = zarr.create_group(str(tmp_path / "in.zarr"))
    array = group.create_array("X", shape=(330, 2), chunks=(10, 1), shards=(50, 1), dtype="f8")
    array[...] = X[:330]
    source, output = str(tmp_path / "in.zarr"), str(tmp_path / "out.zarr")
    assert model.predict_store(source, output, resume=True) == (330, 0)
    array.resize((400, 2))
    array[330:] = X[330:]
    with counted() as counts:
        assert model.predict_store(source, output, resume=True) == (100, 300)
    assert counts == {"predict": 2, "check": 0}
    array[120, 1] += 1e-9  # the second column alone
    with pytest.raises(StoreError, match="rows 100 to 149 of the input have changed"):
        model.predict_store(source, output, resume=True)


CHILD = """
import os, signal, sys
model, source, output, left = *sys.argv[1:4], int(sys.argv[4])

def watch(event, args):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir") and f"{output}/" in str(args[0]):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

import daskgp
fitted = daskgp.load(model)
sys.addaudithook(watch)
fitted.predict_store(source, output, resume=True, clear_lock=True)
"""


def killed_after(writes, model, source, output):
    """Kill a run right before one more write into its output; whether it got so far."""
    command = [sys.executable, "-c", CHILD, model, source, output, str(writes)]
    environment = {**os.environ, **ONE_THREAD, "DASK_SCHEDULER": "sync"}
    code = subprocess.run(command, env=environment, capture_output=True, timeout=120).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.slow
def test_a_growth_may_be_killed_before_any_of_its_writes(model, stored, tmp_path):
    source, grown = inputs(tmp_path / "in.zarr", 250), tmp_path / "grown.zarr"
    model.predict_store(source, str(grown))
    append(source, 170, seed=3)
    whole = str(tmp_path / "whole.zarr")
    model.predict_store(source, whole)
    for writes in range(100):
        output = tmp_path / f"{writes}.zarr"
        shutil.copytree(grown, output)
        if not killed_after(writes, stored, source, str(output)):
            break
        done = zarr.open_group(output, mode="r")["done"][...]
        mean = zarr.open_group(output, mode="r")["mean"]
        for i in np.flatnonzero(done):  # a flag never stands for rows that are not written
            if (i + 1) * STEP <= mean.shape[0] or mean.shape[0] == 420:
                assert not np.isnan(mean[i * STEP : (i + 1) * STEP]).any()
        written = model.predict_store(source, str(output), resume=True, clear_lock=True)
        assert written.rows + written.skipped == 420
        # what Zarr had not moved into its place yet stays beside it
        litter = {name for name in files(output) if name.endswith(".partial")}
        assert len(litter) <= 1
        found = {k: v for k, v in predictions(output).items() if k not in litter}
        assert found == predictions(whole)
    assert 15 < writes < 99


def left_by_a_kill(folder, what):
    """What a kill leaves before a store has its first object."""
    folder.mkdir()
    if what:
        (folder / f"zarr.{32 * '0'}.partial").write_text('{"attr')
    return str(folder)


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("what", ["", "half an object"])
def test_a_folder_without_a_store_is_nothing(what, resume, model, tmp_path):
    source = inputs(tmp_path / "in.zarr", 250)
    output = left_by_a_kill(tmp_path / "out.zarr", what)
    assert not model.is_predicted(source, output)
    assert model.predict_store(source, output, resume=resume) == (250, 0)
    assert model.is_predicted(source, output)


def test_a_folder_with_anything_else_is_left_alone(model, tmp_path):
    source, output = inputs(tmp_path / "in.zarr", 250), tmp_path / "out.zarr"
    output.mkdir()
    (output / "zarr.partial").write_text("mine")
    with pytest.raises(StoreError, match="a folder exists already and is not a prediction store"):
        model.predict_store(source, str(output), resume=True)
    assert files(output) == {"zarr.partial": b"mine"}


@pytest.mark.parametrize("options", [(), ("--resume",)])
def test_a_fit_takes_a_folder_without_a_store_too(options, tmp_path, scheduler):
    source = inputs(tmp_path / "in.zarr", 250)
    store = left_by_a_kill(tmp_path / "m.zarr", "half an object")
    settings = ("--set", "n_inducing=5", "--set", "optimizer=none", "--scheduler", scheduler)
    assert succeed("fit", source, store, "--model", "sgpr", *settings, *options)["rows"] == 250
    daskgp.load(store)


def test_rows_that_a_killed_fit_had_not_begun_to_keep_are_written(tmp_path, scheduler):
    source, store = inputs(tmp_path / "in.zarr", 250), tmp_path / "m.zarr"
    marks = {"format": "daskgp-model", "version": 1, "complete": False}
    zarr.create_group(store, attributes=marks)
    (store / f"zarr.{32 * '1'}.partial").write_text("{")
    left_by_a_kill(store / "rows", "half an object")
    chosen = [f"--set={text}" for text in ("n_support=5", "block_rows=50", "optimizer=none")]
    options = ("--model", "lma", *chosen, "--scheduler", scheduler, "--resume")
    assert succeed("fit", source, store, *options)["rows"] == 250
    daskgp.load(store)


@pytest.mark.slow
def test_a_run_may_be_killed_before_its_output_is_a_store(model, stored, tmp_path):
    source, whole = inputs(tmp_path / "in.zarr", 250), str(tmp_path / "whole.zarr")
    model.predict_store(source, whole)
    output = tmp_path / "out.zarr"
    assert killed_after(0, stored, source, str(output))
    assert len(files(output)) == 1  # what Zarr had not moved into its place yet
    assert model.predict_store(source, str(output), resume=True) == (250, 0)
    assert predictions(output) == predictions(whole)


# -- inputs that changed ---------------------------------------------------------------------


def test_a_copy_of_the_input_is_compared_once(model, tmp_path):
    source, output = inputs(tmp_path / "in.zarr", 330), str(tmp_path / "out.zarr")
    model.predict_store(source, output)
    copy, X = str(tmp_path / "copy.zarr"), zarr.open_group(source, mode="r")["X"][...]
    shutil.copytree(source, copy)
    with counted() as counts:
        assert model.predict_store(copy, output, resume=True) == (0, 330)
    assert counts == {"predict": 0, "check": 4}
    assert zarr.open_group(output, mode="r").attrs["input"] == copy
    with counted() as counts:
        assert model.predict_store(copy, output, resume=True) == (0, 330)
    assert counts == {"predict": 0, "check": 0}
    shifted = dataset(tmp_path / "shifted.zarr", X + 1e-9, X[:, 0])
    with pytest.raises(StoreError, match=r"rows 0 to 99 of the input .*\(4 of 4 chunks compared\)"):
        model.predict_store(shifted, output, resume=True)


def test_a_chunk_that_is_written_again_with_the_same_rows_is_accepted(model, tmp_path):
    source, output = inputs(tmp_path / "in.zarr", 330), str(tmp_path / "out.zarr")
    model.predict_store(source, output)
    X = zarr.open_group(source, mode="r+")["X"]
    X[100:200] = X[100:200]
    with counted() as counts:
        assert model.predict_store(source, output, resume=True) == (0, 330)
    assert counts["check"] == 1
    (Path(output) / "done" / "c" / "3").unlink()
    X[310] = X[310] + 1e-9  # not predicted yet
    assert model.predict_store(source, output, resume=True) == (30, 300)
    X[100:200] = X[100:200] + 1e-9
    before = files(output)
    says = "rows 100 to 199 of the input have changed.*remove the predictions"
    with pytest.raises(StoreError, match=says):
        model.predict_store(source, output, resume=True)
    assert files(output) == before


def test_verify_reads_what_looks_unchanged(model, tmp_path):
    source, output = inputs(tmp_path / "in.zarr", 330), str(tmp_path / "out.zarr")
    model.predict_store(source, output)
    with counted() as counts:
        assert model.predict_store(source, output, resume=True, verify=True) == (0, 330)
    assert counts["check"] == 4
    store = zarr.open_group(output, mode="r+")
    store["input_checksum"][2] = 5  # as if other rows had been there, under the same mark
    assert model.predict_store(source, output, resume=True) == (0, 330)
    with pytest.raises(StoreError, match="rows 200 to 299 of the input have changed") as error:
        model.predict_store(source, output, resume=True, verify=True)
    assert not hasattr(error.value, "__notes__")  # to go on does not correct it


def test_an_input_that_changed_is_refused_before_the_output_grows(model, tmp_path):
    source, output = inputs(tmp_path / "in.zarr", 250), str(tmp_path / "out.zarr")
    model.predict_store(source, output)
    append(source, 170, seed=3)
    zarr.open_group(source, mode="r+")["X"][10, 0] += 1e-9
    before = files(output)
    with pytest.raises(StoreError, match="rows 0 to 99 of the input have changed"):
        model.predict_store(source, output, resume=True)
    assert files(output) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("fewer rows", "have 250 rows, the input .* has 200: an input may grow but not shrink"),
        ("other chunks", "with chunk_rows 100, .* has 50"),
        ("other type", "with type float64, .* has float32"),
        ("other columns", r"with columns \['x0', 'x1'\], .* has \['a', 'b'\]"),
        ("another model", r"were made by another model \(model_checksum 7, not "),
        ("an old store", "have format version 1, this daskgp writes version 2"),
        ("no description", "are damaged and do not describe their input"),
    ],
)
def test_an_input_of_another_layout_is_refused(change, says, model, tmp_path):
    source, output = inputs(tmp_path / "in.zarr", 250), str(tmp_path / "out.zarr")
    model.predict_store(source, output)
    X, y = rows(250, seed=7)
    other = tmp_path / "other.zarr"
    if change == "fewer rows":
        source = dataset(other, X[:200], y[:200])
    elif change == "other chunks":
        source = dataset(other, X, y, step=50)
    elif change == "other columns":
        source = dataset(other, X, y, names=["a", "b"])
    elif change == "other type":
        group = zarr.create_group(other, attributes={"feature_names": ["x0", "x1"]})
        group.create_array("X", shape=X.shape, chunks=(STEP, 2), dtype="f4")[...] = X
        source = str(other)
    elif change == "another model":
        zarr.open_group(output, mode="r+").attrs["model_checksum"] = "7"
    elif change == "an old store":
        zarr.open_group(output, mode="r+").attrs["version"] = 1
    else:
        zarr.open_group(output, mode="r+").attrs["input_layout"] = None
    before = files(output)
    with pytest.raises(StoreError, match=says) as error:
        model.predict_store(source, output, resume=True)
    assert "\n" not in str(error.value)
    assert files(output) == before


# -- runs that overlap -----------------------------------------------------------------------


def long_run(tmp_path, stored, scheduler, *options):
    """A run of some seconds in a process of its own, its command and whether it is at work."""
    source, output = inputs(tmp_path / "in.zarr", 400, step=4), tmp_path / "out.zarr"
    command = ("predict", stored, source, output, "--resume", "--scheduler", scheduler)
    process = start(*command, *options)
    flags = output / "done" / "c"
    return process, command, lambda: flags.exists() and len(os.listdir(flags)) > 5


def wait_until(ready, timeout=60.0):
    deadline = time.monotonic() + timeout
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_run_stops_or_waits_where_another_is_at_work(stored, tmp_path, scheduler):
    process, command, ready = long_run(tmp_path, stored, scheduler)
    wait_until(ready)
    os.killpg(process.pid, signal.SIGSTOP)  # halted for a while, and alive
    lock = tmp_path / "out.zarr.lock"
    os.utime(lock, (0, 0))  # times of files tell nothing
    line = refused(*command, code=1)
    assert f"process {process.pid} on host {platform.node()} is at work" in line
    assert f"holds the lock {lock}" in line
    assert "wait for it with --wait SECONDS" in line
    line = refused(*command, "--clear-lock", code=1)
    assert "is at work" in line
    assert "so its lock is not cleared" in line
    assert lock.exists()
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGCONT)
    found = succeed(*command, "--wait", "100")
    assert (found["rows"], found["skipped"]) == (0, 400)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert json.loads(stdout)["rows"] == 400
    assert not lock.exists()


@pytest.mark.parametrize(
    "option",
    [(), pytest.param(("--clear-lock",), marks=pytest.mark.slow)],
    ids=["resume", "clear-lock"],
)
def test_the_lock_of_a_killed_run_is_explained_and_taken_over(stored, tmp_path, scheduler, option):
    process, command, ready = long_run(tmp_path, stored, scheduler)
    code, _ = stop_when(process, ready)
    assert code == -signal.SIGKILL
    once, output = [word for word in command if word != "--resume"], tmp_path / "out.zarr"
    line, lock = refused(*once, code=1), tmp_path / "out.zarr.lock"
    left = f"the lock {lock} was left by process {process.pid} on host {platform.node()}, which"
    assert f"{left} is no longer running: add --resume to continue from it" in line
    assert "or --clear-lock" in line
    time.sleep(0.5)  # the workers finish what they had begun
    chunks = {name: output / "mean" / "c" / name for name in os.listdir(output / "done" / "c")}
    kept = {name: path.stat().st_mtime_ns for name, path in chunks.items()}
    shown = re.sub(r"[\s│]+", " ", invoke("info", output).stdout)
    assert f"lock held by process {process.pid} on host" in shown
    assert "no longer running" in shown
    assert "--resume continues" in shown
    record = json.loads((tmp_path / "out.zarr.run.json").read_text())
    assert (record["finished"], record["exit"]) == (None, None)  # it never came to an end
    done = invoke(*command, *option)
    found = json.loads(done.stdout)
    assert (done.exit_code, found["rows"] + found["skipped"]) == (0, 400)
    assert 0 < found["skipped"] == 4 * len(kept) < 400
    assert {name: path.stat().st_mtime_ns for name, path in chunks.items()} == kept
    assert not lock.exists()
    assert "exist already" in refused(*once)
    succeed("predict", stored, command[2], tmp_path / "whole.zarr")
    assert predictions(output) == predictions(tmp_path / "whole.zarr")


@pytest.mark.slow
@pytest.mark.parametrize("taken", [False, True], ids=["cleared by hand", "taken by another"])
def test_a_run_whose_lock_is_lost_stops(taken, stored, tmp_path, scheduler):
    process, command, ready = long_run(tmp_path, stored, scheduler)
    wait_until(ready)
    lock, place = tmp_path / "out.zarr.lock", tmp_path / "out.zarr.run.json"
    if taken:
        foreign(tmp_path / "out.zarr")
        place.write_text("another's")
    else:
        lock.unlink()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no longer belongs to this run" in one_line(stderr)
    if taken:
        assert place.read_text() == "another's"
        assert "runs" not in zarr.open_group(tmp_path / "out.zarr", mode="r").attrs
        assert "elsewhere" in lock.read_text()
        return
    record = json.loads(place.read_text())
    assert record["exit"] == 1
    assert "no longer belongs to this run" in record["error"]
    assert succeed(*command)["rows"] > 0


@pytest.mark.parametrize(
    ("how", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "terminated", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_stopped_leaves_its_record_and_no_lock(
    how, code, word, stored, tmp_path, scheduler
):
    process, command, ready = long_run(tmp_path, stored, scheduler)
    found, stderr = stop_when(process, ready, how)
    assert found == code
    line = one_line(stderr)
    assert line == f"Error: {word}: the same command with --resume continues from here"
    assert not (tmp_path / "out.zarr.lock").exists()
    record = json.loads((tmp_path / "out.zarr.run.json").read_text())
    assert (record["exit"], record["error"]) == (code, line.removeprefix("Error: "))
    assert record["rows"] is None
    remembered = zarr.open_group(tmp_path / "out.zarr", mode="r").attrs["runs"]
    assert remembered == [record]
    assert succeed(*command)["skipped"] > 0


# -- locks -----------------------------------------------------------------------------------


@contextmanager
def beating(store, **said):
    stop = threading.Event()

    def beat():
        count = 0
        while not stop.wait(0.05):
            count += 1
            foreign(store, **said, beat=count)
            os.utime(f"{store}.lock", (9e9, 9e9) if count % 2 else (0, 0))  # clocks that jump

    foreign(store, **said)
    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def cannot_hold(says, store, **options):
    """The message of a lock that cannot be had."""
    with pytest.raises(RunError, match=says) as error, locks.hold(store, **options):
        pass
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_run_on_another_host_is_judged_by_its_heartbeat(tmp_path):
    store = str(tmp_path / "p.zarr")
    with beating(store):
        line = cannot_hold("process 4 on host elsewhere may be at work", store)
        assert "add --clear-lock" in line
        assert "first looks for a sign of life for 0.35 s" in line
        cannot_hold("so its lock is not cleared", store, clear=True)
        cannot_hold("is at work", store, wait=0.8)
    cannot_hold(
        "was left by process 4 on host elsewhere, which is no longer running", store, wait=5.0
    )
    with locks.hold(store, clear=True) as claim:
        assert claim.held()
    assert not Path(f"{store}.lock").exists()


@pytest.mark.parametrize("machine", ["another", ""], ids=["of the same name", "of an old version"])
def test_a_run_on_a_machine_that_may_be_another_is_judged_by_its_heartbeat(machine, tmp_path):
    store, mine = str(tmp_path / "p.zarr"), json.loads(lock_owner.Holder.here("abc").content())
    mine.pop("beat")
    said = {**mine, "machine": machine, "started": 0.0, "every": 0.1}  # no process here is as old
    with beating(store, **said):
        cannot_hold("may be at work", store)
        cannot_hold("is at work", store, resume=True)
        cannot_hold("so its lock is not cleared", store, clear=True)
    cannot_hold("add --resume to continue from it, or --clear-lock", store, wait=2.0)
    with locks.hold(store, resume=True) as claim:  # as after the machine was started again
        assert claim.held()
    assert os.listdir(tmp_path) == []


def test_a_lock_of_an_earlier_version_is_read(tmp_path):
    store, mine = str(tmp_path / "p.zarr"), json.loads(lock_owner.Holder.here("abc").content())
    mine.pop("machine")
    foreign(store, **mine)
    assert locks.holder_of(store).startswith(f"process {os.getpid()} on host {platform.node()}")


def test_a_machine_without_a_number_of_its_own_judges_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_owner, "BOOT", str(tmp_path / "none"))
    monkeypatch.setattr(uuid, "getnode", lambda: 0x00_1B_21_00_00_01)  # of a manufacturer
    assert lock_owner.Holder.here("abc").alive()
    monkeypatch.setattr(uuid, "getnode", lambda: 0x02_42_AC_11_00_02)  # as containers have it
    assert lock_owner.Holder.here("abc").alive() is None


@pytest.mark.parametrize("started", [-1e9, 0.0, 4e9])
def test_a_process_of_the_same_number_is_another_one(started, tmp_path):
    store = str(tmp_path / "p.zarr")
    mine = json.loads(lock_owner.Holder.here("abc").content())
    foreign(store, **{**mine, "started": started})
    cannot_hold("which is no longer running", store)
    foreign(store, **mine)
    cannot_hold("is at work", store, clear=True)


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_changes_no_verdict(jump, tmp_path, monkeypatch):
    store, create, boot = str(tmp_path / "p.zarr"), psutil.Process.create_time, psutil.boot_time
    with locks.hold(store):
        # the kernel moves the time of its boot with the clock, and with it those of processes
        monkeypatch.setattr(psutil.Process, "create_time", lambda self: create(self) + jump)
        monkeypatch.setattr(psutil, "boot_time", lambda: boot() + jump)
        monkeypatch.setattr(time, "time", lambda: 1.7e9 + jump)
        cannot_hold("is at work", store, clear=True)
    assert not Path(f"{store}.lock").exists()


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_remembered_boot_time_changes_no_verdict(jump, tmp_path, monkeypatch):
    create, boot = psutil.Process.create_time, psutil.boot_time
    since, known = create(psutil.Process()) - boot(), {"boot": boot(), "now": boot()}

    def asked():
        known["boot"] = known["now"]
        return known["now"]

    # psutil before 7.1 counts from the boot time that it was last asked for
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: since + known["boot"])
    monkeypatch.setattr(psutil, "boot_time", asked)
    store = str(tmp_path / "p.zarr")
    with locks.hold(store):
        known["now"] += jump
        cannot_hold("is at work", store, clear=True)


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_heartbeat_is_judged_alike_while_the_clock_is_set(jump, tmp_path, monkeypatch):
    store, clock, looks = str(tmp_path / "p.zarr"), time.time, []

    def jumping():
        looks.append(clock())
        return clock() + jump * len(looks)  # each time it is read

    monkeypatch.setattr(time, "time", jumping)
    with beating(store):
        cannot_hold("so its lock is not cleared", store, clear=True)
    with locks.hold(store, clear=True) as claim:  # its run has ended
        assert claim.held()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff", b'{"run": NaN}'])
def test_a_lock_that_cannot_be_read_is_no_sign_of_life(content, tmp_path, monkeypatch):
    monkeypatch.setattr(lock_owner.Holder, "every", 0.1)
    store = str(tmp_path / "p.zarr")
    Path(f"{store}.lock").write_bytes(content)
    cannot_hold("an unknown run", store)
    assert Path(f"{store}.lock").read_bytes() == content


def test_a_lock_that_is_still_being_written_is_not_that_of_a_dead_run(tmp_path, monkeypatch):
    store = str(tmp_path / "p.zarr")
    lock, owner = Path(f"{store}.lock"), lock_owner.Holder.here("abc")
    lock.touch()  # its run has created it
    monkeypatch.setattr(time, "sleep", lambda _: lock.write_bytes(owner.content()))
    cannot_hold("is at work and holds the lock", store, clear=True)
    assert lock.read_bytes() == owner.content()


def left_by_the_dead(store, run):
    """The lock of a run on this machine whose process is gone."""
    gone = json.loads(lock_owner.Holder.here(run).content())
    foreign(store, **{**gone, "started": gone["started"] - 100})


@pytest.mark.whole
@pytest.mark.parametrize("dead", [True, False])
def test_one_of_many_gets_the_lock(dead, tmp_path, monkeypatch):
    rng, many, rounds = random.Random(0), 6, 6

    def slowly(act):
        def acted(*given):
            time.sleep(rng.uniform(0.0, 0.006))  # disks take their time
            return act(*given)

        return acted

    for name in ("create", "read", "replace", "delete"):
        monkeypatch.setattr(objects, name, slowly(getattr(objects, name)))
    monkeypatch.setattr(locks, "POLL", 0.01)
    together, refusals = threading.Barrier(many), []

    def take(store):
        together.wait()
        try:
            with locks.hold(store, clear=True) as claim:
                together.wait()  # until all have tried
                assert claim.held()
                return True
        except RunError as error:
            refusals.append(str(error))
            together.wait()
            return False

    with ThreadPoolExecutor(many) as pool:
        for i in range(rounds):
            store = str(tmp_path / f"{i}.zarr")
            if dead:
                left_by_the_dead(store, "abc")
            assert sum(pool.map(take, [store] * many)) == 1
    assert all("is at work and holds the lock" in line for line in refusals)
    assert os.listdir(tmp_path) == []


RACER = """
import os, sys, time
from daskgp.data.stores import locks
from daskgp.errors import RunError

folder, me, many, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

def together(name):
    open(f"{folder}/{name}-{me}", "x").close()
    while not all(os.path.exists(f"{folder}/{name}-{i}") for i in range(many)):
        time.sleep(0.001)

for i in range(rounds):
    together(f"start-{i}")
    try:
        with locks.hold(f"{folder}/{i}.zarr", clear=True) as claim:
            together(f"tried-{i}")
            print("got" if claim.held() else "lost")
    except RunError as error:
        together(f"tried-{i}")
        print("refused" if "is at work and holds the lock" in str(error) else error)
"""


@pytest.mark.slow
def test_one_of_many_processes_gets_the_lock_of_a_dead_run(tmp_path):
    many, rounds = 4, 20
    for i in range(rounds):
        left_by_the_dead(str(tmp_path / f"{i}.zarr"), "abc")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, tmp_path, *map(str, (me, many, rounds))],
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(many)
    ]
    try:
        said = [process.communicate(timeout=120)[0].split("\n")[:-1] for process in racers]
    finally:
        for process in racers:
            process.kill()
    ends = [sorted(each) for each in zip(*said, strict=True)]
    assert ends == [["got", *["refused"] * (many - 1)]] * rounds
    assert not [name for name in os.listdir(tmp_path) if "lock" in name]


def test_a_run_killed_while_it_replaced_a_lock_is_no_obstacle(tmp_path):
    store = str(tmp_path / "p.zarr")
    left_by_the_dead(store, "abc")
    left_by_the_dead(f"{store}.lock", "def")
    Path(f"{store}.lock.lock").rename(f"{store}.lock.clearing")
    with locks.hold(store, clear=True) as claim:
        assert claim.held()
    assert os.listdir(tmp_path) == []


def test_a_heart_beats_and_notices_that_the_lock_is_lost(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(lock_owner, "EVERY", 0.05)
    store = str(tmp_path / "p.zarr")
    here = lock_owner.Holder.here
    quick = classmethod(lambda cls, run: here(run).__class__(**{**vars(here(run)), "every": 0.05}))
    monkeypatch.setattr(lock_owner.Holder, "here", quick)
    with locks.hold(store) as claim:
        beats = lambda: json.loads(Path(claim.url).read_text())["beat"]  # noqa: E731
        wait_until(lambda: beats() > 3)
        foreign(store)
        wait_until(lambda: "no longer belongs to this run" in caplog.text)
        with pytest.raises(RunError, match="no longer belongs to this run"):
            claim.check()
    assert json.loads(Path(claim.url).read_text())["host"] == "elsewhere"


@pytest.mark.parametrize(
    "error", [OSError("a disk"), StoreError("no answer"), FullDiskError("full")]
)
def test_a_heart_beats_again_after_a_failure(error, tmp_path, monkeypatch, caplog):
    read, left = objects.read, [error]

    def failing(url):
        if threading.current_thread() is not threading.main_thread() and left:
            raise left.pop()
        return read(url)

    monkeypatch.setattr(objects, "read", failing)
    here = lock_owner.Holder.here
    quick = classmethod(lambda cls, run: dataclasses.replace(here(run), every=0.02))
    monkeypatch.setattr(lock_owner.Holder, "here", quick)
    with locks.hold(str(tmp_path / "p.zarr")) as claim:
        wait_until(lambda: json.loads(read(claim.url))["beat"] > 2)
    assert f"cannot be written ({error})" in caplog.text


@pytest.mark.parametrize("wait", [-1.0, float("nan"), float("inf")])
def test_a_wait_that_is_no_time_is_refused(wait, tmp_path):
    store = str(tmp_path / "p.zarr")
    with (
        pytest.raises(SettingError, match="a number of seconds, 0 or more"),
        locks.hold(store, wait),
    ):
        pass


def test_a_fit_holds_the_lock_of_its_model(stored, tmp_path):
    data, store = inputs(tmp_path / "in.zarr", 250), str(tmp_path / "m.zarr")
    with locks.hold(store):
        assert "is at work" in refused("fit", data, store, "--model", "sgpr", code=1)
    assert sorted(os.listdir(tmp_path)) == ["in.zarr"]


# -- records ---------------------------------------------------------------------------------


def test_the_record_of_a_run_says_what_it_did(stored, tmp_path, scheduler):
    source, output = inputs(tmp_path / "in.zarr", 250), tmp_path / "out.zarr"
    command = ("predict", stored, source, output, "--resume", "--scheduler", scheduler)
    printed = succeed(*command)
    record = json.loads((tmp_path / "out.zarr.run.json").read_text())
    assert {name: record[name] for name in printed} == printed
    stores = {"model": stored, "input": source, "output": str(output)}
    assert {name: record[name] for name in stores} == stores
    assert (record["exit"], record["error"]) == (0, None)
    assert record["version"] == daskgp.__version__
    started, finished = (datetime.fromisoformat(record[name]) for name in ("started", "finished"))
    assert started.utcoffset().total_seconds() == 0
    assert started <= finished
    append(source, 50, seed=1)
    elsewhere = tmp_path / "records" / "latest.json"
    succeed(*command, "--record", elsewhere)
    latest = json.loads(elsewhere.read_text())
    assert (latest["rows"], latest["skipped"]) == (100, 200)
    assert latest["run"] != record["run"]
    assert json.loads((tmp_path / "out.zarr.run.json").read_text()) == record
    runs = zarr.open_group(output, mode="r").attrs["runs"]
    assert runs == [record, latest]
    shown = re.sub(r"[\s│]+", " ", invoke("info", output).stdout)
    assert "latest runs" in shown
    assert f"{latest['started']} 0 100 200" in shown


def test_lines_of_the_log_have_their_times(stored, tmp_path, scheduler):
    source, output = inputs(tmp_path / "in.zarr", 250), tmp_path / "out.zarr"
    result = invoke("-v", "predict", stored, source, output, "--scheduler", scheduler)
    assert result.exit_code == 0
    lines = [line.split(" ", 2) for line in result.stderr.splitlines()]
    assert f"predicted 250 rows of {source}, found 0 done" in [line[2] for line in lines]
    for when, level, _ in lines:
        assert datetime.fromisoformat(when).tzinfo
        assert level in ("DEBUG", "INFO", "WARNING")


def test_a_store_remembers_its_last_hundred_runs(tmp_path, model):
    from daskgp.data.stores import run_records

    source, output = inputs(tmp_path / "in.zarr", 20), str(tmp_path / "out.zarr")
    model.predict_store(source, output)
    for i in range(103):
        run_records.remember(output, {"run": i})
    runs = zarr.open_group(output, mode="r").attrs["runs"]
    assert [run["run"] for run in runs] == list(range(3, 103))


def test_a_run_that_is_refused_leaves_a_record_where_one_is_asked_for(stored, tmp_path):
    source, output = tmp_path / "none.zarr", tmp_path / "out.zarr"
    line = refused("predict", stored, source, output)
    assert os.listdir(tmp_path) == []
    place = tmp_path / "run.json"
    assert refused("predict", stored, source, output, "--record", place) == line
    record = json.loads(place.read_text())
    assert (record["exit"], f"Error: {record['error']}") == (2, line)
    other = inputs(tmp_path / "in.zarr", 20)
    before = files(other)
    assert "is not a prediction store" in refused("predict", stored, other, other, "--resume")
    assert files(other) == before
    assert sorted(os.listdir(tmp_path)) == ["in.zarr", "run.json"]


def test_a_record_that_cannot_be_written_stops_the_run_before_its_work(stored, tmp_path, scheduler):
    source, output = inputs(tmp_path / "in.zarr", 250), tmp_path / "out.zarr"
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "run.json"
    line = refused("predict", stored, source, output, "--record", place, "--scheduler", scheduler)
    assert line.count("cannot write the record of the run") == 1
    assert sorted(os.listdir(tmp_path)) == ["file", "in.zarr"]
    before = files(source)
    line = refused("predict", stored, source, output, "--record", source, "--scheduler", scheduler)
    assert "Is a directory" in line
    assert files(source) == before


# -- object stores ---------------------------------------------------------------------------


@pytest.fixture
def bucket(monkeypatch):
    """A bucket of an S3 server on loopback."""
    from s3fs import S3FileSystem
    from s3server import Server

    S3FileSystem.clear_instance_cache()  # those of other servers
    with Server(latency=0.0).running() as server:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        S3FileSystem().mkdir("stores")
        yield "s3://stores"
    S3FileSystem.clear_instance_cache()


@pytest.mark.slow
def test_the_same_holds_on_s3(model, bucket):
    source, output = inputs(f"{bucket}/in.zarr", 250), f"{bucket}/out.zarr"
    with locks.hold(output), pytest.raises(RunError, match="is at work"):
        model.predict_store(source, output)
    assert model.predict_store(source, output, resume=True) == (250, 0)
    append(source, 30, seed=1)
    with counted() as counts:
        assert model.predict_store(source, output, resume=True) == (80, 200)
    assert counts == {"predict": 1, "check": 0}
    X = zarr.open_group(source, mode="r+")["X"]
    X[100, 0] += 1e-9
    with counted() as counts, pytest.raises(StoreError, match="rows 100 to 199"):
        model.predict_store(source, output, resume=True)
    assert counts == {"predict": 0, "check": 1}
    assert locks.holder_of(output) is None
    gone = dataclasses.replace(lock_owner.Holder.here("abc"), started=0.0)
    assert objects.create(locks.lock_url(output), gone.content())
    with locks.hold(output, resume=True) as claim:
        assert "running" in locks.holder_of(output)
        assert claim.held()
    assert locks.holder_of(output) is None


def test_input_errors_come_before_the_lock(model, tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        model.predict_store(str(tmp_path / "none.zarr"), str(tmp_path / "deep" / "out.zarr"))
    assert os.listdir(tmp_path) == []
