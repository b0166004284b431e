"""A fit that is killed just before one of the changes that it makes on disk, whichever it is."""

import os
import shutil
import subprocess
import sys

import pytest
import zarr
from commands import ONE_THREAD, dataset, rows, succeed

import daskgp

FIT = ("--model", "sgpr", *(f"--set={s}" for s in ("n_inducing=8", "max_iter=4")))
KILLED = """
import os, sys
from daskgp.cli import main

left, store = int(sys.argv.pop(1)), sys.argv.pop(1)
made = 0

def counted(change):
    def call(*arguments, **more):
        global made
        if store in str(arguments) or more.get("dir_fd") is not None:
            if made == left:
                os._exit(9)
            made += 1
        return change(*arguments, **more)
    return call

for name in ("replace", "link", "unlink", "remove", "mkdir", "rmdir", "rename"):
    setattr(os, name, counted(getattr(os, name)))
try:
    main(prog_name="daskgp")
finally:
    print(made, file=sys.stderr)
"""


def fit(data, store, scheduler, left):
    """A fit that lives for so many changes of its store."""
    words = ("fit", data, store, *FIT, "--scheduler", scheduler)
    script = [sys.executable, "-c", KILLED, str(left), store.name, *map(str, words)]
    return subprocess.run(
        script, capture_output=True, text=True, timeout=120, env={**os.environ, **ONE_THREAD}
    )


@pytest.mark.slow
def test_a_fit_killed_before_any_change_on_disk_goes_on_to_the_same_bits(tmp_path, scheduler):
    data, whole = dataset(tmp_path / "train.zarr", *rows(200), step=50), tmp_path / "whole.zarr"
    undisturbed = fit(data, whole, scheduler, 10**6)
    assert undisturbed.returncode == 0, undisturbed.stderr
    changes = int(undisturbed.stderr.splitlines()[-1])
    assert changes > 100
    for left in (*range(0, changes - 40, 11), *range(changes - 40, changes, 3)):
        store = tmp_path / "killed.zarr"
        assert fit(data, store, scheduler, left).returncode == 9, left
        succeed("fit", data, store, *FIT, "--resume", "--scheduler", scheduler)
        sums = [zarr.open_group(p, mode="r").attrs["checksum"] for p in (store, whole)]
        assert sums[0] == sums[1], left
        left_over = {path.name for path in tmp_path.iterdir()}
        assert left_over == {"train.zarr", "whole.zarr", "killed.zarr"}, left
        assert daskgp.load(store).n_rows_ == 200
        shutil.rmtree(store)
