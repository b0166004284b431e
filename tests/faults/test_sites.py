"""Fits by sites that are stopped in the middle, or whose workers die, end with the same bits."""

import os
import signal
import threading

import numpy as np
import pytest
import zarr
from commands import dataset, rows, start, stop_when, succeed
from sklearn.base import clone

import daskgp
from daskgp.errors import RunError
from daskgp.runtime.executor import Executor
from tests.contract import cases

SETTINGS = {"kernel": "matern32()", "likelihood": "poisson", "max_iter": 3}
FIT = ("--model", "vecchia", "--set", "kernel=matern32()", "--set", "likelihood=poisson")


def counts(n):
    X, y = rows(n)
    return X, np.random.default_rng(0).poisson(np.exp(0.5 * y)).astype(float)


@pytest.fixture
def rounds(monkeypatch):
    """``rounds.act`` is called before the round ``rounds.at``; ``rounds.seen`` is their number."""

    class Rounds:
        at, seen = 0, 0

        @staticmethod
        def act():
            raise RunError("stopped")

    def counted(method):
        def run(self, *given, **more):
            Rounds.seen += 1
            if Rounds.seen == Rounds.at:
                Rounds.act()
            return method(self, *given, **more)

        return run

    for name in ("compute", "compute_all"):
        monkeypatch.setattr(Executor, name, counted(getattr(Executor, name)))
    return Rounds


@pytest.mark.parametrize(
    "name", ["exact", *(pytest.param(n, marks=pytest.mark.slow) for n in ("vecchia", "lma"))]
)
@pytest.mark.whole
def test_a_fit_by_sites_that_is_stopped_goes_on_with_the_same_bits(name, rounds, tmp_path):
    (X, y), checkpoint = counts(60), str(tmp_path / "checkpoint")
    model = cases.make(name, **SETTINGS)
    wanted = clone(model).fit(X, y)
    total, rounds.seen, rounds.at = rounds.seen, 0, int(0.7 * rounds.seen)
    with pytest.raises(RunError, match="stopped"):
        clone(model).fit(X, y, checkpoint=checkpoint)
    assert [*(tmp_path / "checkpoint").glob("stage-*")]  # it is past the first turn
    rounds.seen = rounds.at = 0
    found = clone(model).fit(X, y, checkpoint=checkpoint)
    assert rounds.seen < total  # evaluations that were kept are not made again
    assert cases.bits(found, X) == cases.bits(wanted, X)
    assert found.objective_ == wanted.objective_


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vecchia", "sgpr"])
def test_a_worker_killed_in_the_middle_of_a_fit_by_sites_changes_no_bit(name, rounds, tmp_path):
    given = daskgp.open_dataset(dataset(tmp_path / "train.zarr", *counts(300), step=60))
    model, T = cases.make(name, **SETTINGS, store=str(tmp_path)), rows(9)[0]
    with daskgp.connect(n_workers=2) as client:
        client.wait_for_workers(2, timeout=120)
        wanted = cases.bits(clone(model).fit(*given), T)
        killed, timers = [], []

        def kill():
            killed.append(min(client.run(os.getpid).values()))
            timers.append(threading.Timer(0.02, os.kill, (killed[0], signal.SIGKILL)))
            timers[0].start()

        rounds.act, rounds.at, rounds.seen = kill, rounds.seen // 2, 0
        assert cases.bits(clone(model).fit(*given), T) == wanted
        timers[0].join()
        client.wait_for_workers(2, timeout=120)
        assert killed[0] not in client.run(os.getpid).values()


@pytest.mark.slow
def test_the_command_killed_in_the_middle_of_sites_is_resumed_with_the_same_bits(
    tmp_path, scheduler
):
    data = dataset(tmp_path / "train.zarr", *counts(300), step=60)
    killed, whole = tmp_path / "killed.zarr", tmp_path / "whole.zarr"
    options = (*FIT, "--scheduler", scheduler)
    process = start("fit", data, killed, *options)
    code, _ = stop_when(process, lambda: len([*killed.glob("checkpoint/stage-*")]) > 1)
    assert code == -signal.SIGKILL
    succeed("fit", data, killed, *options, "--resume")
    succeed("fit", data, whole, *options)
    found, wanted = (zarr.open_group(p, mode="r").attrs["checksum"] for p in (killed, whole))
    assert found == wanted
    assert {path.name for path in tmp_path.iterdir()} == {"train.zarr", "killed.zarr", "whole.zarr"}
