"""What was stopped goes on with the same bits, and stored models hold all that they need."""

import gc
import os
import re
import shutil
import signal

import dask.array as da
import numpy as np
import pytest
import zarr
from commands import dataset, invoke, refused, rows, start, stop_when, succeed
from effective import effective
from fits import forget, outcome, same_bits, zarr_rows
from sklearn.base import clone

import daskgp
from daskgp import CaGP, ExpertsGP, kernels
from daskgp.errors import RunError, StoreError
from daskgp.fit.experts import Objectives
from daskgp.fit.svi import Steps
from daskgp.models.actions.cagp import CaGP as ComputationAware
from daskgp.models.additive import Additive

N = 120
KERNEL = kernels.Matern32((0.5, 0.8), variance=1.4)
CHOSEN = np.random.default_rng(3).standard_normal((N, 12))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table():
    return rows(N, seed=5)


@pytest.fixture(scope="module")
def T():
    return rows(15, seed=1)[0]


# -- fits ------------------------------------------------------------------------------------


def actions(**settings):
    fixed = {"n_actions": 8, "kernel": kernels.Matern32((1.0, 1.0), variance=1.0), "tol": 1e-12}
    return effective(CaGP, **{"optimizer": "l-bfgs", "max_iter": 2, **fixed, **settings})


def experts(**settings):
    few = {"kernel": KERNEL, "n_experts": 5, "n_inducing": 12, "max_iter": 5, "tol": 1e-14}
    return effective(ExpertsGP, **few, **settings)


BATCHES = {"optimizer": "adam", "batch_rows": 20, "block_rows": 10, "support": 8}
ROUNDS = (Objectives, ("map", "evaluate"))
FITS = {
    "cagp": (ComputationAware, ("evaluate",)),
    "cagp-mini-batches": actions(**BATCHES),
    "cagp-support": actions(support=4),
    "cagp-projected": actions(loss="projected"),
    "cagp-eigen": actions(actions="eigen"),
    "cagp-given": actions(actions=CHOSEN),
    "experts": ROUNDS,
    "experts-fedavg": experts(training="fedavg", sampling_rate=0.5),
    "experts-fedprox": experts(training="fedprox", sampling_rate=0.5),
    "experts-admm": experts(training="admm"),
    "experts-pxadmm": experts(training="pxadmm"),
    "experts-exact": experts(training="admm", expert="exact"),
}
"""What a method evaluates, and estimators of it."""


class Stopped(Exception):
    """Stands for a kill."""


@pytest.fixture
def calls(monkeypatch):
    """Count evaluations, of which ``stop`` may be made."""
    counter = {"made": 0, "stop": None}

    def counting(evaluate):
        def counted(self, *arguments):
            if counter["made"] == counter["stop"]:
                raise Stopped
            counter["made"] += 1
            return evaluate(self, *arguments)

        return counted

    def count(owner, names):
        for name in names:
            monkeypatch.setattr(owner, name, counting(getattr(owner, name)))
        return counter

    return count


@pytest.mark.parametrize("kind", [kind for kind in FITS if "-" in kind])
def test_a_stopped_fit_goes_on_and_ends_with_the_same_bits(kind, table, T, tmp_path, calls):
    counter, model = calls(*FITS[kind.partition("-")[0]]), FITS[kind]
    whole = clone(model).fit(*table)
    made = counter["made"]
    for stop in {1, made - 1}:  # with stages, also in the last
        url = str(tmp_path / f"checkpoint-{stop}.zarr")
        counter.update(made=0, stop=stop)
        with pytest.raises(Stopped):
            clone(model).fit(*table, checkpoint=url)
        counter.update(made=0, stop=None)
        resumed = clone(model).fit(*table, checkpoint=url)
        assert counter["made"] < made  # what was evaluated is not evaluated again
        assert outcome(resumed, T) == outcome(whole, T)
    counter.update(made=0)
    assert outcome(clone(model).fit(*table, checkpoint=url), T) == outcome(whole, T)
    assert counter["made"] == 0
    for other in ({"random_state": 3}, {"noise_variance": 0.2}):
        with pytest.raises(StoreError, match="belongs to other data or settings"):
            clone(model).set_params(**other).fit(*table, checkpoint=url)


# -- stores ----------------------------------------------------------------------------------

LOCAL = daskgp.LMA(KERNEL, n_support=8, block_rows=40, max_iter=3)
STORED = {
    "lma, rows in a store": (LOCAL, "store"),
    "lma, prepared rows": (LOCAL, "prepared"),
    "vecchia, support inputs": (
        daskgp.VecchiaGP(KERNEL, n_neighbours=8, n_support=8, block_rows=60, max_iter=3),
        "zarr",
    ),
    "opticom, given bounds": (
        daskgp.OptiComGP(
            "rbf(ard=true)", level=4, bounds=np.array([[0.0, 3.0], [-1.0, 4.0]]), max_iter=1
        ),
        "memory",
    ),
    "cagp, eigenvectors": (actions(actions="eigen", max_iter=1), "memory"),
    "cagp, a support": (actions(support=4, max_iter=1), "store"),
    "cagp, rows as they lie": (actions(order=None, max_iter=1), "zarr"),
    "cagp, given actions": (actions(actions=CHOSEN, max_iter=1), "lazy"),
    "experts in blocks": (experts(partition="block"), "zarr"),
    "experts of chunks": (experts(expert="exact", partition="chunks"), "lazy"),
    "experts in blocks of a store": (experts(expert="exact", partition="block"), "store"),
}


@pytest.mark.parametrize("kind", STORED)
def test_a_saved_model_holds_all_it_needs(kind, table, T, temporary, tmp_path):
    (made, where), folder = STORED[kind], tmp_path / "kept"
    source, prepared = str(tmp_path / "t.zarr"), str(tmp_path / "prepared.zarr")
    given = zarr_rows(source, *table)
    if where in ("memory", "lazy"):
        given = table if where == "memory" else [da.from_array(a, chunks=25) for a in table]
    elif where == "prepared":
        daskgp.prepare(table, prepared, order="hilbert", block_rows=40, progress=False)
        given = daskgp.open_dataset(prepared)
    model = clone(made).set_params(**({"store": str(folder)} if where == "store" else {}))
    model.fit(*given)
    wanted = *model.predict(T, return_std=True), model.predict(T, return_cov=True)[1]
    learned = model.history_, model.objective_, model.n_rows_, model.solved_.token
    settings = {name: repr(value) for name, value in model.get_params().items()}
    model.save(tmp_path / "m.zarr")
    del model
    gc.collect()
    for gone in (source, prepared, folder, *temporary.iterdir()):
        shutil.rmtree(gone, ignore_errors=True)
    (tmp_path / "m.zarr").rename(tmp_path / "moved.zarr")
    forget()
    found = daskgp.load(tmp_path / "moved.zarr")
    assert type(found) is type(made)
    assert (found.history_, found.objective_, found.n_rows_, found.solved_.token) == learned
    assert {name: repr(value) for name, value in found.get_params().items()} == settings
    same_bits((*found.predict(T, return_std=True), found.predict(T, return_cov=True)[1]), wanted)
    found.save(tmp_path / "again.zarr")  # and once more from a store
    forget()
    same_bits([daskgp.load(tmp_path / "again.zarr").predict(T)], wanted[:1])


# -- commands --------------------------------------------------------------------------------


def options(model, *settings):
    return ("--model", model, *(part for text in settings for part in ("--set", text)))


SHORT = ("max_iter=3", "tol=1e-14")
NPAE = ("kernel=matern32(1.0)", "n_experts=5", "aggregation=npae", *SHORT)
SPARSE = (*NPAE, "n_inducing=12", "partition=random")
SUPPORT = ("kernel=matern32(0.5)", "n_support=12", "block_rows=40", *SHORT)
STEPS = ("n_inducing=10", "batch_rows=32", "max_iter=130", "gradients=client")
COMMANDS = {
    "lma": (options("lma", *SUPPORT), Additive, 2, True),
    "exact experts": (options("experts", *NPAE, "expert=exact"), Objectives, 2, True),
    "exact experts in blocks": (
        options("experts", *NPAE, "expert=exact", "partition=block"),
        Objectives,
        2,
        True,
    ),
    "exact experts of chunks": (
        options("experts", *NPAE, "expert=exact", "partition=chunks"),
        Objectives,
        2,
        False,
    ),
    "sparse experts": (options("experts", *SPARSE), Objectives, 2, False),
    "cagp": (options("cagp", "n_actions=20", *SHORT), ComputationAware, 2, None),
    "svgp": (options("svgp", *STEPS), Steps, 105, False),
}
"""Options, what is evaluated and how often before a failure, and whether rows are kept by then."""


@pytest.fixture(scope="module")
def data(table, tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "t.zarr", *table, names=["lon", "lat"])


@pytest.mark.parametrize("case", COMMANDS)
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_command_that_fails_goes_on(how, case, data, T, tmp_path, scheduler, monkeypatch):
    chosen, owner, left, keeps = COMMANDS[case]
    chosen = (*chosen, "--scheduler", scheduler)
    stopped, whole = tmp_path / "stopped.zarr", tmp_path / "whole.zarr"
    name = "sums" if owner is Steps else "evaluate"
    evaluate, remove, made = getattr(owner, name), daskgp.data.remove, []

    def fail(self, *arguments):
        made.append(arguments)
        if len(made) > left:
            raise RunError("workers died")
        return evaluate(self, *arguments)

    def unable(url):
        """A process that is killed removes nothing."""
        if not str(url).endswith("-ordered"):
            remove(url)

    monkeypatch.setattr(owner, name, fail)
    if how == "killed":
        monkeypatch.setattr(daskgp.data, "remove", unable)
    assert "--resume continues" in refused("fit", data, stopped, *chosen, code=1)
    monkeypatch.undo()
    assert "incomplete" in refused("predict", stopped, data, tmp_path / "p.zarr")
    kept = written(stopped)
    assert keeps in (None, bool(kept))
    resumed = succeed("fit", data, stopped, *chosen, "--resume")
    assert keeps is None or kept == {p: p.stat().st_mtime_ns for p in kept}
    as_undisturbed(resumed, stopped, whole, data, chosen, T)
    assert sorted(os.listdir(tmp_path)) == ["stopped.zarr", "whole.zarr"]
    for model in (stopped, whole):
        assert not {"checkpoint", "rows-ordered"} & set(os.listdir(model))


def written(model):
    """Files of the rows that a fit keeps, and when they were written."""
    files = (p for p in (model / "rows").rglob("*") if p.is_file())
    return {p: p.stat().st_mtime_ns for p in files}


def as_undisturbed(resumed, model, whole, data, chosen, T):
    """Compare what a command ended with that went on with one that was not disturbed."""
    undisturbed = succeed("fit", data, whole, *chosen)
    assert resumed["objective"] == undisturbed["objective"]
    assert resumed["iterations"] == undisturbed["iterations"]
    checksums = {zarr.open_group(p, mode="r").attrs["checksum"] for p in (model, whole)}
    assert len(checksums) == 1
    first, second = (daskgp.load(p) for p in (model, whole))
    assert outcome(first, T) == outcome(second, T)


ADMM = options("experts", *NPAE[:2], "expert=exact", "training=admm", "max_iter=15", "tol=1e-14")
STREAM = options("svgp", *STEPS, "inducing=stream")


@pytest.mark.parametrize(
    ("chosen", "file", "holds", "says"),
    [
        (ADMM, "evaluations/c/2/0", "", "complete no: fit --resume continues"),
        (STREAM, "slot-0/zarr.json", '"step"', "steps kept 100"),
    ],
    ids=["experts", "svgp"],
)
def test_a_killed_command_goes_on(chosen, file, holds, says, data, T, tmp_path, scheduler):
    killed, whole = tmp_path / "killed.zarr", tmp_path / "whole.zarr"
    chosen, kept = (*chosen, "--scheduler", scheduler), killed / "checkpoint" / file
    process = start("fit", data, killed, *chosen)
    code, _ = stop_when(process, lambda: kept.exists() and (not holds or holds in kept.read_text()))
    assert code == -signal.SIGKILL
    assert "incomplete: run the same fit" in refused("predict", killed, data, tmp_path / "p.zarr")
    assert says in re.sub(r"[\s│]+", " ", invoke("info", killed).stdout)
    other = ("--set", "noise_variance=0.5", "--resume", "--clear-lock")
    assert "other data or settings" in refused("fit", data, killed, *chosen, *other)
    assert "exists already" in refused("fit", data, killed, *chosen)
    before = written(killed)
    resumed = succeed("fit", data, killed, *chosen, "--resume", "--clear-lock")
    assert before == {p: p.stat().st_mtime_ns for p in before}
    as_undisturbed(resumed, killed, whole, data, chosen, T)
