"""A fit that is killed just before one of the changes that it makes on disk, whichever it is."""

import shutil

import pytest
import zarr
from commands import dataset, killed_before, rows, succeed

import daskgp
from daskgp.data.stores import groups, models

FIT = ("--model", "sgpr", *(f"--set={s}" for s in ("n_inducing=8", "max_iter=4")))


def fit(data, store, scheduler, left):
    """A fit that lives for so many changes of its store."""
    words = "fit", data, store, *FIT, "--scheduler", scheduler
    return killed_before(left, store, *words)


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


def test_folders_that_a_kill_left_before_they_were_arrays_are_replaced_in_silence(tmp_path):
    X, y = rows(30)
    daskgp.ExactGP(optimizer=None, progress=False).fit(X, y).save(tmp_path / "whole.zarr")
    model = models.read(str(tmp_path / "whole.zarr"))
    with groups.creating(str(tmp_path / "killed.zarr"), "model store") as group:
        for left in ("scaling_slope", "of_another_model"):
            (tmp_path / "killed.zarr" / left / "c").mkdir(parents=True)
        models.fill(group, model, {})
    found = {path.name for path in (tmp_path / "killed.zarr").iterdir()}
    assert found == {path.name for path in (tmp_path / "whole.zarr").iterdir()}
