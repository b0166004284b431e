"""Plans against what real processes take: a client and a worker of their own for each fit."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from commands import invoke, succeed

import daskgp
from daskgp.cli.tables import describe_plan
from daskgp.data import Rows
from daskgp.errors import PlanError, SettingError
from daskgp.estimators import ESTIMATORS
from daskgp.fit.work import SHARE, needed, work_of
from daskgp.runtime.executor import Executor
from tests.contract.cases import sized

BENCHMARK = Path(__file__).parents[2] / "workflows" / "benchmarks" / "plan.py"
FACTOR = 1.5
CASES = re.findall(r'^    "([a-z0-9-]+)": \(', BENCHMARK.read_text(), re.MULTILINE)
SIZES = {
    "n_inducing": 10,
    "n_support": 10,
    "n_neighbours": 10,
    "level": 2,
    "n_actions": 10,
    "n_covariance": 10,
    "n_mean": 20,
    "n_spectral": 10,
}
"""Settings that make a method small, whichever has them."""


def measured(case, *options):
    words = [sys.executable, str(BENCHMARK), "--cases", case, *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[0])
    return record["planned"], record["taken"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_planned_memory_is_what_processes_take(case):
    planned, taken = measured(case)
    ratios = {k: planned[k] / taken[k] for k in ("worker", "predicting", "client", "disk")}
    assert all(1 / FACTOR < ratio < FACTOR for ratio in ratios.values()), ratios


@pytest.mark.slow
@pytest.mark.parametrize("case", ["exact", "sgpr", "experts", "cagp", "cggp", "ssgp"])
def test_planned_seconds_are_what_an_iteration_takes(case):
    planned, taken = measured(case, "--time")
    assert taken["time"] / 2 < planned["time"] < taken["time"] * 2


def data(n=400):
    X = np.random.default_rng(0).uniform(0, 5, (n, 2))
    return X, np.sin(X[:, 0])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_measures_an_iteration_and_is_left_as_it_was(name, tmp_path):
    model = ESTIMATORS[name](**sized(ESTIMATORS[name], SIZES), store=str(tmp_path), progress=False)
    before = model.get_params()
    found = daskgp.plan(model, *data(), measure=True)
    assert found.seconds > 0
    assert daskgp.plan(model, *data()).seconds is None
    assert model.get_params() == before
    assert not hasattr(model, "solved_")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_refuses_what_no_worker_can_hold_and_writes_nothing(name, tmp_path):
    model = ESTIMATORS[name](**sized(ESTIMATORS[name], SIZES), store=str(tmp_path))
    X, y = (da.from_array(part, chunks=(100, *part.shape[1:])) for part in data())
    with dask.config.set(num_workers=10_000), pytest.raises(PlanError, match="memory"):
        model.fit(X, y)
    assert not list(tmp_path.iterdir())


LARGE = {
    "sgpr": {"block_rows": 400_000},
    "ssgp": {"block_rows": 400_000},
    "lma": {"block_rows": 6_000},
    "pic": {"block_rows": 8_000},
    "vecchia": {"block_rows": 100_000},
    "opticom": {"block_rows": 400_000},
    "cagp": {"block_rows": 100_000},
    "experts": {"n_experts": 4},
    "svgp": {"batch_rows": 400_000},
    "decoupled": {"batch_rows": 400_000},
}
FEWER = {"block_rows": 64, "batch_rows": 64, "n_experts": 1_024}


def nothing(*_):
    raise AssertionError("work began")


@pytest.mark.parametrize("name", LARGE)  # tasks of the others need the same for any block
def test_a_fit_that_workers_cannot_hold_names_what_fits_before_any_work(
    name, tmp_path, monkeypatch
):
    settings = {
        **sized(ESTIMATORS[name], SIZES),
        **LARGE[name],
        "store": str(tmp_path),
        "progress": False,
    }
    ((setting, given),) = LARGE[name].items()
    made = ESTIMATORS[name](**settings)
    few = ESTIMATORS[name](**{**settings, setting: FEWER[setting]})
    given_rows = da.zeros((1_600_000, 5), chunks=(100_000, 5)), da.zeros(1_600_000, chunks=100_000)
    least, most = (needed(model.plan(*given_rows)) for model in (few, made))
    assert least < most
    limit = int((least + most) / 2 / SHARE)
    monkeypatch.setattr(Executor, "memory_per_task", lambda self: limit)
    monkeypatch.setattr(Executor, "_compute", nothing)
    line = rf"needs? .* GiB.*{setting} to at (?:most|least) (\d+)"
    with pytest.raises(PlanError, match=line) as caught:
        made.fit(*given_rows)
    assert "\n" not in str(caught.value)
    fits = int(re.search(line, str(caught.value))[1])
    assert min(given, FEWER[setting]) < fits < max(given, FEWER[setting])
    with pytest.raises(AssertionError, match="work began"):
        made.set_params(**{setting: fits}).fit(*given_rows)
    assert not list(tmp_path.iterdir())


def test_an_exact_fit_that_workers_cannot_hold_asks_for_fewer_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(Executor, "memory_per_task", lambda self: 400 << 20)
    monkeypatch.setattr(Executor, "_compute", nothing)
    with pytest.raises(PlanError, match="choose fewer rows or another method"):
        daskgp.ExactGP(store=str(tmp_path)).fit(np.zeros((6_000, 2)), np.zeros(6_000))


def test_a_plan_is_held_against_the_memory_of_real_workers(tmp_path):
    model = daskgp.LMA(n_support=10, block_rows=3_000, store=str(tmp_path))
    given = da.zeros((30_000, 2), chunks=(3_000, 2)), da.zeros(30_000, chunks=3_000)
    with (
        daskgp.connect(n_workers=1, memory_limit="600MiB"),
        pytest.raises(PlanError, match=r"worker thread, which has 0\.59 GiB: set block_rows to"),
    ):
        model.fit(*given)
    assert not list(tmp_path.iterdir())


def test_rows_that_the_disk_has_no_room_for_are_refused(tmp_path):
    n = shutil.disk_usage(tmp_path).free // (8 * 101) + 65_536
    X, y = da.zeros((n, 100), chunks=(65_536, 100)), da.zeros(n, chunks=65_536)
    with pytest.raises(PlanError, match=r"GiB to .*, which has .* free"):
        daskgp.SGPR(n_inducing=10, store=str(tmp_path)).fit(X, y)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("staged", [False, True])
def test_iterations_of_a_stage_are_not_said_to_be_those_of_the_fit(staged, capsys):
    planned = dataclasses.replace(daskgp.SGPR().plan(*data()), seconds=2.0)
    describe_plan("lma", planned, None, None, 1, 20, "cpu", staged)
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    said = (
        "max_iter=20 per stage at most 40 s per stage"
        if staged
        else "max_iter=20 at most 40 s fits"
    )
    assert said in text


def test_a_plan_says_how_many_workers_are_busy(capsys):
    planned = dataclasses.replace(daskgp.SGPR().plan(*data()), tasks=10, task_seconds=1.0)
    assert planned.busy(4) == pytest.approx(10 / 12)  # three turns, the last with two idle
    assert planned.most_workers == pytest.approx(1.0 / 0.005)
    with pytest.raises(SettingError, match="threads=0"):
        planned.busy(0)
    describe_plan("sgpr", planned, None, None, 4, 20, "cpu")
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "10; 4 workers are busy for 83% of a round" in text
    assert "one scheduler keeps busy about 200 workers" in text


def test_the_seconds_of_a_task_are_those_of_the_blocks_trained_on():
    X, y = np.random.default_rng(0).uniform(size=(2, 4_000, 2))
    model = daskgp.SGPR(n_inducing=20, block_rows=500, train_blocks=4, progress=False)
    with dask.config.set(num_workers=2):
        plan = model.plan(X, y[:, 0], measure=True)
    assert plan.task_seconds == pytest.approx(plan.seconds / 2)  # four of eight tasks, in two turns
    assert daskgp.SGPR(n_inducing=20, optimizer=None).plan(X, y[:, 0], True).task_seconds is None


def test_which_estimators_train_in_stages():
    staged = {
        daskgp.LMA(): True,
        daskgp.PIC(optimizer="l-bfgs"): False,
        daskgp.LMA(train_support=True): False,
        daskgp.CaGP(actions="cg"): True,
        daskgp.CaGP(actions="cg", refreshes=1): False,
        daskgp.CaGP(): False,
        daskgp.SGPR(): False,
    }
    rows = Rows(np.zeros((900, 2)), np.zeros(900), None, ("a", "b"), ("y",))
    for estimator, said in staged.items():
        assert work_of(estimator.recipe(), rows).staged is said


def test_the_command_measures_an_iteration_on_its_workers(tmp_path):
    np.savez(tmp_path / "train.npz", X=data()[0], y=data()[1])
    store = str(tmp_path / "train.zarr")
    daskgp.convert(str(tmp_path / "train.npz"), store, target="y")
    chosen = ("--model", "sgpr", "--set", "n_inducing=10", "--set", "max_iter=20")
    printed = invoke("plan", store, *chosen, "--measure", "--workers", "1").stdout
    text = re.sub(r"[\s│]+", " ", printed)
    assert "an iteration about" in text
    assert "on 1 worker" in text
    assert "max_iter=20 at most" in text
    found = succeed("plan", store, *chosen, "--json")
    assert found["seconds"] is None


def test_a_plan_is_printed_in_readable_units():
    plan = daskgp.SGPR(n_inducing=64).plan(da.empty((100_000, 3), chunks=10_000), da.empty(100_000))
    text = str(dataclasses.replace(plan, seconds=0.25))
    assert re.search(r"^memory of a worker +\d+\.\d MiB$", text, re.MULTILINE)
    assert re.search(r"^rows +100,000$", text, re.MULTILINE)
    assert re.search(r"^seconds of an iteration +0.25$", text, re.MULTILINE)
    assert "seconds" not in str(plan)
