"""Checkpoints: a run that was stopped goes on and ends with the same bits."""

import json
import os

import numpy as np
import pytest
import zarr
from commands import files, foreign
from effective import effective
from quick import quick

from daskgp import CGGP, SGPR, SVGP, ExactGP
from daskgp.data.stores import lock_owner, locks
from daskgp.data.stores.checkpoints import Checkpoint, Snapshots
from daskgp.errors import MemoryRunError, RunError, SettingError, StoreError
from daskgp.models.additive import Additive
from daskgp.runtime.executor import Executor

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 6, (150, 2))
Y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * RNG.standard_normal(150)


class Stopped(Exception):
    """Stands for a kill."""


@pytest.fixture
def evaluations(monkeypatch):
    """Counts evaluations; ``stop`` of them may be made."""
    counter = {"made": 0, "stop": None}
    evaluate = Additive.evaluate

    def counted(self, theta, rows):
        if counter["made"] == counter["stop"]:
            raise Stopped
        counter["made"] += 1
        return evaluate(self, theta, rows)

    monkeypatch.setattr(Additive, "evaluate", counted)
    return counter


def model(**settings):
    usual = {"n_inducing": 15, "max_iter": 8, "tol": 1e-12, "block_rows": 40}
    return effective(SGPR, **{"kernel": "matern32(1.0)", **usual, **settings})


def svgp(**settings):
    return SVGP(
        **{"n_inducing": 10, "batch_rows": 50, "max_iter": 6, "progress": False, **settings}
    )


def outcome(fitted):
    state = [np.asarray(a).tobytes() for a in fitted.solved_.state]
    history = [{k: v for k, v in entry.items() if k != "seconds"} for entry in fitted.history_]
    return fitted.objective_, fitted.kernel_, fitted.noise_variance_, history, state


@pytest.mark.parametrize(
    "settings",
    [
        {"train_blocks": 2, "kernel": "matern32"},
        {"optimizer": "adam"},
        *(pytest.param(s, marks=pytest.mark.slow) for s in ({}, {"train_inducing": True})),
    ],
)
@pytest.mark.parametrize("stop", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, evaluations, settings, stop):
    whole = model(**settings).fit(X, Y)
    wanted = evaluations["made"]
    assert wanted > stop
    url = str(tmp_path / "checkpoint.zarr")
    evaluations.update(made=0, stop=stop)
    with pytest.raises(Stopped):
        model(**settings).fit(X, Y, checkpoint=url)
    evaluations.update(made=0, stop=None)
    resumed = model(**settings).fit(X, Y, checkpoint=url)
    assert evaluations["made"] == wanted - stop
    assert outcome(resumed) == outcome(whole)
    evaluations.update(made=0)
    again = model(**settings).fit(X, Y, checkpoint=url)
    assert evaluations["made"] == 0
    assert outcome(again) == outcome(whole)


def test_a_row_that_a_kill_cut_off_is_computed_again(tmp_path, evaluations):
    url = str(tmp_path / "checkpoint.zarr")
    whole = model().fit(X, Y, checkpoint=url)
    wanted = evaluations["made"]
    array = zarr.open_group(url, mode="r+")["evaluations"]
    array.resize((4, array.shape[1]))
    array.resize((5, array.shape[1]))  # grown, its last row never written
    evaluations.update(made=0)
    resumed = model().fit(X, Y, checkpoint=url)
    assert evaluations["made"] == wanted - 4
    assert outcome(resumed) == outcome(whole)


def test_a_checkpoint_travels_by_url(tmp_path):
    url = f"memory://{tmp_path.name}/checkpoint.zarr"
    first = model().fit(X, Y, checkpoint=url)
    assert outcome(model().fit(X, Y, checkpoint=url)) == outcome(first)


long = np.random.default_rng(5).uniform(0, 6, (510, 2))
moved = long.copy()
moved[250] += 0.5  # in the middle, which the text of a long array leaves out


@pytest.mark.parametrize(
    ("first", "second", "data"),
    quick(
        5,
        [
            ({}, {"n_inducing": 14}, None),
            ({}, {"kernel": "rbf(ard=true)"}, None),
            ({}, {"random_state": 1}, None),
            ({}, {"noise_variance": 0.2}, None),
            ({}, {"block_rows": 39}, None),
            ({"inducing": X[:5]}, {"inducing": X[1:6]}, None),
            ({"inducing": long}, {"inducing": moved}, None),
            ({}, {}, (X, Y + 1.0)),
            ({}, {}, (X[:-1], Y[:-1])),
            ({}, {}, (X * [1.0, 1.0 + 1e-9], Y)),
        ],
    ),
)
def test_a_checkpoint_of_other_data_or_settings_is_refused(tmp_path, first, second, data):
    rows = (long, np.sin(long[:, 0])) if "inducing" in first else (X, Y)
    url = str(tmp_path / "checkpoint.zarr")
    model(**{"max_iter": 1, **first}).fit(*rows, checkpoint=url)
    with pytest.raises(StoreError, match="belongs to other data or settings: remove it"):
        model(**{"max_iter": 1, **first, **second}).fit(*(data or rows), checkpoint=url)


def test_progress_bars_do_not_matter(tmp_path):
    url = str(tmp_path / "checkpoint.zarr")
    first = model(progress=False).fit(X, Y, checkpoint=url)
    assert outcome(model(progress="auto").fit(X, Y, checkpoint=url)) == outcome(first)


def test_what_is_not_a_checkpoint_is_refused_and_left_alone(tmp_path):
    other = tmp_path / "other.zarr"
    model(optimizer=None).fit(X, Y).save(other)
    with pytest.raises(StoreError, match="is not a checkpoint: choose another place"):
        model().fit(X, Y, checkpoint=str(other))
    assert zarr.open_group(other, mode="r").attrs["format"] == "daskgp-model"


@pytest.mark.parametrize("make", [model, svgp])
def test_a_folder_with_other_things_is_no_place_for_a_checkpoint(make, tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "notes.txt").write_text("precious")
    with pytest.raises(StoreError, match="results is a folder with other things in it"):
        make(max_iter=1).fit(X, Y, checkpoint=str(folder))
    assert files(tmp_path) == {"results/notes.txt": b"precious"}


@pytest.mark.parametrize("left", [[], [f"zarr.{32 * 'a'}.partial"]])
@pytest.mark.parametrize("make", [model, svgp])
def test_a_folder_that_a_kill_left_empty_is_a_place_for_a_checkpoint(make, left, tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in left:
        (folder / name).write_text("{")
    first = make(max_iter=1).fit(X, Y, checkpoint=str(folder))
    assert outcome(make(max_iter=1).fit(X, Y, checkpoint=str(folder))) == outcome(first)


def test_a_checkpoint_without_a_whole_row_is_begun_anew(tmp_path, evaluations):
    url = str(tmp_path / "checkpoint")
    whole = model(max_iter=1).fit(X, Y, checkpoint=url)
    made = evaluations["made"]
    group = zarr.open_group(url, mode="r+")
    group["evaluations"][0] = np.nan
    evaluations.update(made=0)
    assert outcome(model(max_iter=1).fit(X, Y, checkpoint=url)) == outcome(whole)
    assert evaluations["made"] == made
    del group["evaluations"]
    assert outcome(model(max_iter=1).fit(X, Y, checkpoint=url)) == outcome(whole)


def test_what_differs_is_named(tmp_path):
    url = str(tmp_path / "c.zarr")
    model(max_iter=1).fit(X, Y, checkpoint=url)
    other = ExactGP(max_iter=1)
    for given, targets, said in (
        (model(max_iter=1, block_rows=7), Y, r"it was made with \(not the same: block_rows\)"),
        (model(max_iter=1), Y + 1.0, r"it was made with \(not the same: data\)"),
        (other, Y, "other data or settings"),
    ):
        with pytest.raises(StoreError, match=said):
            given.fit(X, targets, checkpoint=url)


def test_a_checkpoint_beside_random_samples_is_refused_before_any_work(tmp_path, evaluations):
    with pytest.raises(SettingError, match=r"random_state=None.*set random_state to a whole"):
        model(random_state=None).fit(X, Y, checkpoint=str(tmp_path / "c.zarr"))
    assert not list(tmp_path.iterdir())
    assert evaluations["made"] == 0


@pytest.mark.parametrize("checkpoint", ["", " ", 3, False])
def test_a_checkpoint_that_is_no_path_is_refused(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=f"checkpoint={checkpoint!r}: give the path or URL of a"):
        model().fit(X, Y, checkpoint=checkpoint)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("store", ["", " "])
def test_a_blank_address_is_refused(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted = model(optimizer=None).fit(X, Y)
    with pytest.raises(StoreError, match=f"the address {store!r} is blank: give a path or a URL"):
        fitted.save(store)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("given", [{"wait": 5.0}, {"clear_lock": True}])
def test_what_is_said_of_the_lock_of_a_checkpoint_needs_one(given):
    name = next(iter(given))
    with pytest.raises(SettingError, match=f"^{name}=.* belongs to a checkpoint: give checkpoint="):
        model().fit(X, Y, **given)


def test_a_kill_in_the_removal_of_a_checkpoint_is_no_obstacle(tmp_path):
    tape = Checkpoint(str(tmp_path / "c.zarr"), {"a": 1})
    tape.append(0, np.ones(3))
    tape.stage(1).append(0, np.ones(3))
    (tmp_path / "c.zarr" / "zarr.json").unlink()
    assert len(tape.read()) == 0
    tape.append(0, np.zeros(3))
    np.testing.assert_array_equal(tape.read(), np.zeros((1, 3)))
    (tmp_path / "c.zarr" / "zarr.json").unlink()
    (tmp_path / "c.zarr" / "mine.txt").write_text("")
    with pytest.raises(StoreError, match="a folder with other things in it"):
        tape.read()


def test_rows_are_kept_one_a_chunk_and_can_be_forgotten(tmp_path):
    tape = Checkpoint(str(tmp_path / "c.zarr"), {"a": 1})
    assert len(tape.read()) == 0
    kept = np.arange(15.0).reshape(3, 5)
    for i, row in enumerate(kept):
        tape.append(i, row)
    np.testing.assert_array_equal(tape.read(), kept)
    assert len(list((tmp_path / "c.zarr" / "evaluations" / "c").iterdir())) == 3
    with pytest.raises(StoreError, match="other data or settings"):
        Checkpoint(tape.url, {"a": 2}).read()
    tape.remove()
    assert not (tmp_path / "c.zarr").exists()


# -- one fit at a time -----------------------------------------------------------------------


@pytest.fixture
def during(monkeypatch):
    """``during(act, number)``: ``act()`` runs once, after so many rounds of the next fit."""

    def plan(act, number=3):
        compute, left = Executor._compute, iter(range(number, -1, -1))

        def computed(self, *given):
            if next(left, None) == 0:
                act()
            return compute(self, *given)

        monkeypatch.setattr(Executor, "_compute", computed)

    return plan


def raised(error):
    def act():
        raise error

    return act


@pytest.mark.parametrize("make", [model, svgp])
def test_a_second_fit_stops_or_waits_where_one_is_at_work(make, tmp_path, during):
    url, refusals = str(tmp_path / "checkpoint"), []

    def fit_again():
        with pytest.raises(RunError, match=r"is at work and holds the lock .*checkpoint\.lock"):
            make().fit(X, Y, checkpoint=url)
        with pytest.raises(RunError, match=f"process {os.getpid()} on host") as caught:
            make().fit(X, Y, checkpoint=url, wait=0.01, clear_lock=True)
        refusals.append(str(caught.value))

    during(fit_again)
    found = make().fit(X, Y, checkpoint=url)
    assert outcome(found) == outcome(make().fit(X, Y))
    assert "\n" not in refusals[0]
    assert not os.path.exists(f"{url}.lock")


@pytest.mark.parametrize("error", [Stopped(), KeyboardInterrupt(), RunError("no workers")])
@pytest.mark.parametrize("make", [model, svgp])
def test_a_fit_that_fails_or_is_interrupted_gives_its_lock_back(make, error, tmp_path, during):
    url = str(tmp_path / "checkpoint")
    during(raised(error))
    with pytest.raises(type(error)):
        make().fit(X, Y, checkpoint=url)
    assert not os.path.exists(f"{url}.lock")
    assert outcome(make().fit(X, Y, checkpoint=url)) == outcome(make().fit(X, Y))


def test_the_lock_of_a_fit_that_was_killed_is_taken_over_on_its_host(tmp_path):
    url = str(tmp_path / "checkpoint")
    gone = json.loads(lock_owner.Holder.here("abc").content())
    foreign(url, **{**gone, "started": gone["started"] - 100})  # another process had this number
    model(max_iter=1).fit(X, Y, checkpoint=url)
    assert not os.path.exists(f"{url}.lock")


def test_the_lock_of_a_fit_that_died_elsewhere_is_cleared_on_request(tmp_path):
    url = str(tmp_path / "checkpoint")
    foreign(url)
    with pytest.raises(RunError, match=r"process 4 on host elsewhere .*clear_lock=True in Python"):
        model(max_iter=1).fit(X, Y, checkpoint=url)
    model(max_iter=1).fit(X, Y, checkpoint=url, clear_lock=True)
    assert not os.path.exists(f"{url}.lock")


def test_a_fit_whose_lock_another_took_writes_no_more(tmp_path, during):
    url = str(tmp_path / "checkpoint")
    during(lambda: foreign(url), 1)
    with pytest.raises(RunError, match="no longer belongs to this run") as caught:
        model().fit(X, Y, checkpoint=url)
    assert not os.path.exists(url)
    assert json.loads((tmp_path / "checkpoint.lock").read_text())["host"] == "elsewhere"
    assert "\n" not in str(caught.value)


def test_the_state_of_long_runs_is_written_under_the_lock_too(tmp_path):
    url = str(tmp_path / "checkpoint")
    with locks.hold(url) as claim:
        kept = Snapshots(url, {}, claim)
        kept.write(100, {"a": X})
        foreign(url)
        with pytest.raises(RunError, match="no longer belongs to this run"):
            kept.write(200, {"a": Y})
    np.testing.assert_array_equal(kept.read()["a"], X)


def test_a_model_is_saved_by_one_at_a_time(tmp_path):
    fitted, url = model(optimizer=None).fit(X, Y), str(tmp_path / "model.zarr")
    with locks.hold(url), pytest.raises(RunError, match="is at work and holds the lock"):
        fitted.save(url)
    assert os.listdir(tmp_path) == []
    fitted.save(url)
    assert os.listdir(tmp_path) == ["model.zarr"]


# -- what a failure says ---------------------------------------------------------------------


def notes(error):
    return getattr(error, "__notes__", [])


def test_a_failure_says_how_training_goes_on(tmp_path, during):
    error, url = RunError("the scheduler is gone"), str(tmp_path / "checkpoint")
    during(raised(error))
    with pytest.raises(RunError):
        model().fit(X, Y)
    assert notes(error) == ["pass checkpoint= to fit, and the progress of training is kept"]
    error = RunError("the scheduler is gone")
    during(raised(error))
    with pytest.raises(RunError):
        model().fit(X, Y, checkpoint=url)
    assert notes(error) == [f"the same fit with checkpoint={url!r} continues from here"]


@pytest.mark.parametrize(
    ("estimator", "error"),
    [
        (model(), MemoryRunError("workers died")),  # its remedy is another setting
        (model(optimizer=None), RunError("no workers")),
        (CGGP(), RunError("no workers")),
    ],
)
def test_nothing_is_said_of_checkpoints_where_they_do_not_help(estimator, error, during):
    during(raised(error), 1)
    with pytest.raises(RunError) as caught:
        estimator.fit(X, Y)
    assert notes(caught.value) == []
