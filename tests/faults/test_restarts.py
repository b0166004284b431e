"""A cluster that is restarted or gone while a fit runs: the round is done again, or one line."""

import os
import re
import signal
import socket
import threading
import time
from functools import partial

import dask
import numpy as np
import pytest
from commands import dataset, refused, rows, start, stop_when, succeed
from distributed import Client

import daskgp
from daskgp.errors import InputError, RunError
from daskgp.models.additive import Additive
from daskgp.runtime import connect, versions

FIT = ("--model", "sgpr", "--set", "n_inducing=20", "--set", "tol=1e-14")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "train.zarr", *rows(), step=50)


def outcome(model):
    return model.objective_, model.kernel_.log_parameters.tobytes()


def evaluations(model, number=4):
    return lambda: (model / "checkpoint" / "evaluations" / "c" / str(number) / "0").exists()


@pytest.fixture
def disturbed(monkeypatch):
    """``disturbed(act)``: ``act()`` runs once, a moment after the third evaluation began."""
    evaluate, timers = Additive.evaluate, []

    def plan(act):
        left = [2, 1, 0]

        def evaluated(self, theta, rows):
            if left and left.pop(0) == 0:
                timers.append(threading.Timer(0.02, act))
                timers[-1].start()
            return evaluate(self, theta, rows)

        monkeypatch.setattr(Additive, "evaluate", evaluated)

    yield plan
    assert timers, "nothing was disturbed"
    timers[0].join()


def lma():
    return daskgp.LMA(n_support=10, block_rows=30, max_iter=3, progress=False)


@pytest.mark.slow
def test_a_cluster_that_somebody_else_restarts_does_the_round_again(data, cluster, disturbed):
    cluster.start(2).wait()
    given = daskgp.open_dataset(data)
    with daskgp.connect(cluster.address):
        wanted = outcome(lma().fit(*given))
        other = Client(cluster.address, set_as_default=False)
        disturbed(lambda: other.restart(wait_for_workers=False))
        assert outcome(lma().fit(*given)) == wanted
        other.close()


@pytest.mark.slow
def test_a_scheduler_that_comes_back_is_given_the_round_again(data, cluster, disturbed, caplog):
    cluster.start(1).wait()
    given = daskgp.open_dataset(data)

    def restart():
        cluster.kill_scheduler()
        cluster.kill_workers()
        cluster.start(2)

    with daskgp.connect(cluster.address):
        wanted = outcome(lma().fit(*given))
        disturbed(restart)
        assert outcome(lma().fit(*given)) == wanted
    assert "the cluster lost work, which is done again" in caplog.text


@pytest.mark.slow
def test_a_cluster_that_stays_without_workers_is_one_line(data, cluster, disturbed):
    cluster.start(1).wait()
    with (
        daskgp.connect(cluster.address),
        dask.config.set({"daskgp.worker-timeout": 3}),
    ):
        disturbed(cluster.kill_workers)
        with pytest.raises(RunError, match="had no workers for 3 s: start some, then run again"):
            lma().fit(*daskgp.open_dataset(data))


@pytest.mark.slow
def test_a_fit_whose_scheduler_is_gone_goes_on_from_its_checkpoint(
    data, cluster, disturbed, tmp_path
):
    cluster.start(1).wait()
    given, kept = daskgp.open_dataset(data), str(tmp_path / "checkpoint.zarr")

    def stop():
        cluster.kill_scheduler()
        cluster.kill_workers()

    with daskgp.connect(cluster.address, timeout=3):
        disturbed(stop)
        with pytest.raises(RunError, match="is gone and did not come back: start it") as caught:
            lma().fit(*given, checkpoint=kept)
    assert "\n" not in str(caught.value)
    cluster.start(1).wait()
    with daskgp.connect(cluster.address):
        resumed = outcome(lma().fit(*given, checkpoint=kept))
        assert resumed == outcome(lma().fit(*given))


@pytest.mark.slow
def test_the_command_whose_scheduler_is_gone_ends_with_one_line_and_is_resumed(
    data, cluster, tmp_path
):
    cluster.start(1).wait()
    killed, whole = tmp_path / "killed.zarr", tmp_path / "whole.zarr"
    options = (*FIT, "--scheduler", cluster.address)
    process = start("fit", data, killed, *options)
    deadline = time.monotonic() + 60
    while not evaluations(killed)():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    cluster.kill_scheduler()
    cluster.kill_workers()
    _, stderr = process.communicate(timeout=180)
    assert process.returncode == 1
    line = stderr.splitlines()[-1]
    assert "is gone and did not come back" in line
    assert "--resume continues from here" in line
    assert "Traceback" not in stderr
    cluster.start(1).wait()
    resumed = succeed("fit", data, killed, *options, "--resume")
    assert resumed["objective"] == succeed("fit", data, whole, *options)["objective"]


@pytest.mark.slow
def test_a_prediction_whose_workers_are_all_killed_is_finished_by_new_ones(data, cluster, tmp_path):
    cluster.start(2).wait()
    model = daskgp.SGPR(n_inducing=10, optimizer=None, progress=False)
    model.fit(*daskgp.open_dataset(data))
    inputs = dataset(tmp_path / "in.zarr", *rows(800, seed=2), step=16)
    model.predict_store(inputs, str(tmp_path / "wanted.zarr"))
    flags = tmp_path / "found.zarr" / "done" / "c"

    def replace():
        while not flags.exists() or len(os.listdir(flags)) < 5:
            time.sleep(0.002)
        cluster.kill_workers()
        cluster.start(2)

    other = threading.Thread(target=replace)
    with daskgp.connect(cluster.address):
        other.start()
        model.predict_store(inputs, str(tmp_path / "found.zarr"))
        other.join()
    for name in ("mean", "variance"):
        found, wanted = (
            daskgp.data.stores.groups.open_group(str(tmp_path / f"{which}.zarr"), "store")[name][
                ...
            ]
            for which in ("found", "wanted")
        )
        assert found.tobytes() == wanted.tobytes()


# -- at random times -------------------------------------------------------------------------


def fit_among_kills(data, cluster, number, seed, tmp_path):
    """A fit while workers are killed at random times; how many were."""
    rng, killed, over = np.random.default_rng(seed), [], threading.Event()

    def kill():
        with Client(cluster.address, set_as_default=False) as client:
            while len(killed) < number and not over.wait(rng.uniform(0.05, 0.4)):
                client.wait_for_workers(2, timeout=60)
                pids = sorted(client.run(os.getpid, on_error="ignore").values())
                victim = pids[int(rng.integers(len(pids)))]
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

    killer = threading.Thread(target=kill)
    with daskgp.connect(cluster.address):
        killer.start()
        while killer.is_alive():  # one fit after another until all are killed
            found = outcome(lma().fit(*daskgp.open_dataset(data)))
        over.set()
        killer.join()
    return found, len(killed)


@pytest.mark.parametrize("number", [pytest.param(10, marks=pytest.mark.slow)])
def test_workers_killed_at_random_times_change_no_bit_of_a_fit(data, cluster, tmp_path, number):
    cluster.start(2).wait()
    wanted = outcome(lma().fit(*daskgp.open_dataset(data)))
    found, killed = fit_among_kills(data, cluster, number, 0, tmp_path)
    assert killed == number
    assert found == wanted


@pytest.mark.slow
@pytest.mark.parametrize("number", [20])
def test_predictions_killed_at_random_times_are_finished_by_resume(
    data, scheduler, tmp_path, number
):
    model, whole, out = (tmp_path / f"{name}.zarr" for name in ("model", "whole", "out"))
    options = ("--scheduler", scheduler)
    succeed("fit", data, model, "--model", "sgpr", "--set", "n_inducing=20", *options)
    inputs = dataset(tmp_path / "in.zarr", *rows(3_000, seed=2), step=3_000 // (20 * number))
    succeed("predict", model, inputs, whole, *options)
    chunks, rng, flags = 20 * number, np.random.default_rng(0), out / "done" / "c"
    for i in range(number):
        given = ("--resume",) if out.exists() else ()
        process = start("predict", model, inputs, out, *given, *options)
        least = chunks * i // (number + 1) + int(rng.integers(1, 8))
        code, _ = stop_when(process, lambda: flags.exists() and len(os.listdir(flags)) >= least)  # noqa: B023
        assert code == -signal.SIGKILL
    succeed("predict", model, inputs, out, "--resume", *options)
    for name in ("mean", "variance"):
        mine, theirs = (sorted((url / name / "c").rglob("*")) for url in (out, whole))
        assert [p.read_bytes() for p in mine if p.is_file()] == [
            p.read_bytes() for p in theirs if p.is_file()
        ]


# -- other versions, and no scheduler at all -------------------------------------------------


def test_a_cluster_of_another_version_is_refused_with_both():
    mine = {"daskgp": "0.3.0", "python": "3.11.7.final.0", "numpy": "2.4.6", "zarr": "3.1.6"}
    mine |= {"dask": "2026.8.0", "distributed": "2026.8.0"}
    versions.refuse_other("worker a", {**mine, "numpy": "2.3.0", "python": "3.11.9"}, mine)
    for name, other, seen in (
        ("daskgp", "0.0.9", "worker a has daskgp 0.0.9, this process 0.3.0: install"),
        ("daskgp", None, "worker a has no daskgp, this process 0.3.0"),
        ("numpy", "1.26.0", "worker a has numpy 1.26.0, this process 2.4.6"),
        ("python", "3.12.1", "worker a has python 3.12.1, this process 3.11"),
        ("distributed", "2025.1.0", "worker a has distributed 2025.1.0"),
    ):
        with pytest.raises(InputError, match=seen) as caught:
            versions.refuse_other("worker a", {**mine, name: other}, mine)
        assert "\n" not in str(caught.value)


def test_workers_with_another_daskgp_are_refused(cluster, tmp_path, data):
    """Really started with one: what is installed as daskgp comes first on their path."""
    older = tmp_path / "older" / "daskgp-0.0.1.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: daskgp\nVersion: 0.0.1\n")
    cluster.environment["PYTHONPATH"] = str(older.parent)
    cluster.start(1).wait()
    line = r"the scheduler has daskgp 0\.0\.1, this process "
    with pytest.raises(InputError, match=line), daskgp.connect(cluster.address):
        pass
    with Client(cluster.address), pytest.raises(InputError, match=line):
        lma().fit(*daskgp.open_dataset(data))
    said = refused("plan", data, "--scheduler", cluster.address, "--model", "sgpr")
    assert re.search(line, said)


def test_an_address_that_never_answers_is_one_line(data, monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with (
            pytest.raises(InputError, match="no Dask scheduler answers at"),
            daskgp.connect(address, timeout=1),
        ):
            pass
        assert time.monotonic() - began < 20
        monkeypatch.setattr(connect, "connect", partial(daskgp.connect, timeout=1))
        line = refused("plan", data, "--model", "sgpr", "--scheduler", address)
    assert f"no Dask scheduler answers at {address}" in line
