"""Snapshots of a long run: the latest whole one is read, whatever stopped the writing."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import zarr
from commands import ONE_THREAD, files

from daskgp import SGPR
from daskgp.data.stores import groups
from daskgp.data.stores.checkpoints import SLOTS, STEP, Snapshots
from daskgp.errors import StoreError

IDENTITY = {"settings": {"n_mean": "7"}, "data": "abc"}


def arrays(step, rows=5):
    """What might be kept of a step, some of it empty."""
    return {
        "weights": np.full((rows, 2), float(step)),
        "none": np.zeros((0, 3)),
        "nothing": np.zeros((0, 0)),
        "order": np.arange(rows) + step,
        "counts": np.array([step, -np.inf, 0.0]),
    }


def same(found, wanted):
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype, name
        np.testing.assert_array_equal(found[name], values)


@pytest.fixture
def url(tmp_path):
    return str(tmp_path / "checkpoint")


@pytest.fixture
def kept(url):
    return Snapshots(url, IDENTITY)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_latest_is_read_and_two_are_kept(kept, url, count):
    for i in range(count):
        kept.write(100 * (i + 1), arrays(i, rows=5 + i))  # arrays grow
    same(kept.read(), arrays(count - 1, rows=4 + count))
    group = zarr.open_group(url, mode="r")
    steps = sorted(group[slot].attrs[STEP] for slot in SLOTS if slot in group)
    assert steps == [100 * (i + 1) for i in range(count)][-2:]


def test_a_snapshot_travels_by_url(tmp_path):
    kept = Snapshots(f"memory://{tmp_path.name}/checkpoint", IDENTITY)
    for step in (1, 2, 3):
        kept.write(step, arrays(step))
        same(kept.read(), arrays(step))
    kept.remove()
    assert kept.read() is None


@pytest.mark.parametrize("begun", [1, 2, 3])
@pytest.mark.parametrize("fails", [0, 2, 4, "mark"])
def test_a_snapshot_that_was_not_finished_is_passed_over(kept, begun, fails, monkeypatch):
    for step in range(begun):
        kept.write(step, arrays(step))
    left, write = [fails], groups.write_array

    def stopping(group, name, values):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        write(group, name, values)

    with monkeypatch.context() as during:
        if fails == "mark":
            during.setattr(zarr.core.attributes.Attributes, "__setitem__", _stop)
        else:
            during.setattr(groups, "write_array", stopping)
        with pytest.raises(KeyboardInterrupt):
            kept.write(begun, arrays(begun))
    same(kept.read(), arrays(begun - 1))
    kept.write(begun, arrays(begun))  # the unfinished one makes way
    same(kept.read(), arrays(begun))
    kept.write(begun + 1, arrays(begun + 1))
    same(kept.read(), arrays(begun + 1))


def _stop(*_):
    raise KeyboardInterrupt


WRITER = """
import itertools, sys
import numpy as np
from daskgp.data.stores.checkpoints import Snapshots
kept = Snapshots(sys.argv[1], {"settings": {"n_mean": "7"}, "data": "abc"})
for step in itertools.count(1):
    kept.write(step, {f"a{i}": np.full(1000, float(step)) for i in range(8)})
    print(step, flush=True)
"""


@pytest.mark.parametrize("after", [1, 4])
def test_a_process_killed_while_it_writes_leaves_a_whole_one(kept, url, after):
    command = [sys.executable, "-c", WRITER, url]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **ONE_THREAD}
    )
    for _ in range(after):
        last = int(process.stdout.readline())
    time.sleep(0.002 * after)  # somewhere in the next
    process.send_signal(signal.SIGKILL)
    rest = process.communicate(timeout=60)[0].split()
    last = int(rest[-1]) if rest else last
    found = kept.read()
    assert len(found) == 8
    (value,) = set(np.concatenate(list(found.values())))
    assert value in (last, last + 1)
    kept.write(1000, arrays(7))
    same(kept.read(), arrays(7))


@pytest.mark.parametrize("other", [{"data": "xyz"}, {"settings": {"n_mean": "8"}}, {"more": 1}])
def test_a_run_of_other_data_or_settings_is_refused(kept, url, other):
    kept.write(3, arrays(3))
    with pytest.raises(StoreError, match="belongs to other data or settings: remove it") as error:
        Snapshots(url, {**IDENTITY, **other}).read()
    assert "\n" not in str(error.value)
    same(kept.read(), arrays(3))


def test_what_is_not_a_snapshot_is_refused_and_left_alone(tmp_path):
    X = np.random.default_rng(0).uniform(0, 3, (40, 1))
    model = SGPR(n_inducing=5, max_iter=1)
    model.fit(X, np.sin(X[:, 0]), checkpoint=str(tmp_path / "tape"))
    model.save(tmp_path / "model")
    zarr.create_array(tmp_path / "array", data=X)
    (tmp_path / "file").write_text("hello")
    before = files(tmp_path)
    said = {"tape": "belongs to other data or settings", "model": "is not a checkpoint"}
    for name, words in said.items():
        with pytest.raises(StoreError, match=words):
            Snapshots(str(tmp_path / name), IDENTITY).read()
    with pytest.raises(StoreError, match="checkpoint"):
        Snapshots(str(tmp_path / "array"), IDENTITY).read()
    with pytest.raises(StoreError, match=r"cannot write checkpoint .* File exists"):
        Snapshots(str(tmp_path / "file"), IDENTITY).write(1, arrays(1))
    assert files(tmp_path) == before


def test_nothing_is_there_before_the_first_and_once_all_is_forgotten(kept, tmp_path):
    assert kept.read() is None
    assert os.listdir(tmp_path) == []
    kept.write(1, arrays(1))
    kept.remove()
    assert os.listdir(tmp_path) == []
    assert kept.read() is None


def test_a_kill_in_the_removal_of_snapshots_leaves_a_whole_one_or_none(tmp_path, monkeypatch):
    kept = Snapshots(str(tmp_path / "s"), {"a": 1})
    for step in (1, 2):
        kept.write(step, {"x": np.full(2, step), "z": np.ones(1)})
    (tmp_path / "s" / "zarr.json").unlink()
    np.testing.assert_array_equal(kept.read()["x"], [2, 2])

    def killed(url):
        for name in ("slot-0", "slot-1"):
            shutil.rmtree(tmp_path / "s" / name / "z")
        raise SystemExit

    monkeypatch.setattr(groups, "remove", killed)
    with pytest.raises(SystemExit):
        kept.remove()
    monkeypatch.undo()
    assert kept.read() is None
    kept.write(3, {"x": np.zeros(2)})
    np.testing.assert_array_equal(kept.read()["x"], [0, 0])
