"""``daskgp update``: a model store that takes new rows in place."""

import json
import re
import shlex
import shutil

import numpy as np
import pandas
import pytest
import zarr
from commands import dataset, invoke, killed_before, refused, succeed
from fits import equal, forget

import daskgp
from daskgp.data import dataset_writer, reading
from daskgp.data.stores import models
from daskgp.data.stores.checkpoints import Checkpoint, Snapshots
from daskgp.errors import SettingError, StoreError
from daskgp.kernels import Matern52
from tests.contract import cases

X, Y = cases.rows(400)
T = cases.rows(9, seed=3)[0]


def grow(path, n, step=32, X=X, Y=Y):
    """Make or extend a dataset to the first n of the rows."""
    if not path.exists():
        return dataset(path, X[:n], Y[:n], step=step)
    group = zarr.open_group(path, mode="r+")
    before = group["X"].shape[0]
    for name, values in (("X", X), ("y", Y)):
        group[name].resize((n, *values.shape[1:]))
        group[name][before:n] = values[before:n]
    return str(path)


LINE = np.argsort(X[:, 0])
X_LINE, Y_LINE = X[LINE], Y[LINE]


def ordered(path, n, step=32):
    """Make or extend a dataset to the first n of the rows in the order of their first feature."""
    return grow(path, n, step, X_LINE, Y_LINE)


def one(name):
    """A case with the same hyper-parameters, units and inputs for any rows, blocks in order."""
    places = cases.rows(8, seed=5)[0]
    settings = {"standardize": False, "mean": "zero"}
    if name == "sgpr":
        return cases.fixed(name, **settings, inducing=places, n_inducing=512)
    blocks = {"block_rows": 10, "neighbours": "order", "order": "x0"}
    return cases.fixed(name, **settings, support=places, n_support=256, **blocks)


def fit(data, model, estimator):
    """What ``daskgp fit`` does, without a cluster."""
    estimator.fit(*daskgp.open_dataset(data)).save(model)


@pytest.fixture
def fitted(tmp_path):
    """A dataset of 200 rows and a model of it."""
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    grow(data, 200)
    fit(data, model, cases.fixed("sgpr"))
    return data, model


def test_a_grown_dataset_gives_its_new_rows_alone(fitted, monkeypatch):
    data, model = fitted
    wanted = daskgp.load(model).update(X[200:300], Y[200:300])
    grow(data, 300)
    seen = []

    def reads(array, key, rows):
        if isinstance(array, zarr.Array) and str(data) in str(array.store_path):
            seen.append((rows.start, rows.stop))
        return original(array, key, rows)

    original = reading._read
    monkeypatch.setattr(reading, "_read", reads)
    said = succeed("update", model, data)
    assert (said["rows"], said["skipped"], said["total"]) == (100, 200, 300)
    assert min(first for first, _ in seen) == 192  # the chunk that was not full, and those after it
    found = daskgp.load(model)
    equal(cases.moments(found, T), cases.moments(wanted, T), rtol=1e-10)
    assert found.objective_ == pytest.approx(wanted.objective_, rel=1e-12)
    again = succeed("update", model, data)
    assert (again["rows"], again["skipped"], again["total"]) == (0, 300, 300)


def test_a_store_made_of_the_table_of_the_fit_gives_its_new_rows_alone(tmp_path):
    table, store, model = (tmp_path / name for name in ("t.csv", "t.zarr", "m.zarr"))
    rows = pandas.DataFrame(X[:90], columns=["a", "b"]).assign(y=Y[:90])
    rows.loc[7, "y"] = np.nan
    rows[:60].to_csv(table, index=False)
    settings = "--model", "sgpr", "--set", "n_inducing=12", "--set", "max_iter=2"
    succeed("fit", table, model, "--target", "y", *settings)
    succeed("convert", table, store, "--target", "y")
    rows[60:].to_csv(table, index=False)
    succeed("convert", table, store, "--append")
    told = invoke("update", model, store)
    assert f"{store} has the rows of {table} that the model has seen" in told.stderr
    assert json.loads(told.stdout)["rows"] == 30
    assert daskgp.load(model).n_rows_ == 89
    assert succeed("update", model, store)["rows"] == 0
    assert succeed("update", model, store, "--retrain")["total"] == 89


def test_so_does_one_of_the_table_of_a_fit_in_python(tmp_path, caplog):
    table, store = str(tmp_path / "t.csv"), str(tmp_path / "t.zarr")
    rows = pandas.DataFrame(X[:90], columns=["a", "b"]).assign(y=Y[:90])
    rows[:60].to_csv(table, index=False)
    model = daskgp.SGPR(n_inducing=12, max_iter=2, progress=False).fit(table, "y")
    model.save(tmp_path / "m.zarr")
    daskgp.convert(rows, store, "y", progress=False)
    for one in (model, daskgp.load(tmp_path / "m.zarr")):
        caplog.clear()
        one.update(*daskgp.open_dataset(store))
        assert f"{store} has the rows of {table} that the model has seen" in caplog.text
        assert one.n_rows_ == 90


@pytest.mark.parametrize("change", ["y", "X"])
def test_a_store_of_other_rows_than_those_of_the_table_is_added_whole(change, tmp_path):
    table, store, model = (tmp_path / name for name in ("t.csv", "t.zarr", "m.zarr"))
    pandas.DataFrame(X[:60], columns=["a", "b"]).assign(y=Y[:60]).to_csv(table, index=False)
    settings = "--model", "sgpr", "--set", "n_inducing=12", "--set", "max_iter=2"
    succeed("fit", table, model, "--target", "y", *settings)
    rows = pandas.DataFrame(X[:90], columns=["a", "b"]).assign(y=Y[:90])
    rows.loc[9, {"X": "a", "y": "y"}[change]] += 1e-3
    daskgp.convert(rows, store, target="y")
    assert succeed("update", model, store)["total"] == 150


def test_a_table_is_refused_with_the_command_that_makes_a_store_of_it(tmp_path):
    store, model, table = (tmp_path / name for name in ("d.zarr", "m.zarr", "new rows.csv"))
    when = pandas.date_range("2024-01-01", periods=60)
    rows = pandas.DataFrame({"day": when, "site": ["b", "c", "d"] * 20, "level": Y[:60]})
    daskgp.convert(rows[:40], store, target="level", features=["day", "site"])
    fit(store, model, daskgp.SGPR(n_inducing=9, optimizer=None, progress=False))
    rows[40:].assign(site="c", more=1.0).to_csv(table, index=False)
    for command in ("update", "forget"):
        told = refused(command, model, table)
        words = shlex.split(told.partition("convert it first: ")[2])
    assert succeed(*words[1:])["features"] == ["day", "site"]
    wanted = daskgp.load(model).update(*daskgp.open_dataset(words[3]))
    assert succeed("update", model, words[3])["total"] == 60
    places = rows[["day", "site"]]
    np.testing.assert_array_equal(daskgp.load(model).predict(places), wanted.predict(places))
    daskgp.convert(rows[40:].assign(site="c"), tmp_path / "o.zarr", "level", ["day", "site"])
    assert "(daskgp convert --like MODEL)" in refused("update", model, tmp_path / "o.zarr")


def test_rows_of_another_store_are_added_once(fitted, tmp_path):
    _, model = fitted
    new = dataset(tmp_path / "new.zarr", X[200:250], Y[200:250], step=20)
    assert succeed("update", model, new)["total"] == 250
    assert succeed("update", model, new)["rows"] == 0
    said = [(note["what"], note["rows"], note["span"]) for note in daskgp.load(model)._fitted.seen]
    assert said == [("fit", 200, [0, 200]), ("update", 50, [0, 50])]
    shown = invoke("info", model).stdout
    assert "rows seen" in shown
    assert "new.zarr" in re.sub(r"[\s│]", "", shown)


def test_rows_that_were_appended_twice_are_told(fitted, tmp_path):
    data, model = fitted
    again = "the new rows, 30 of them, are those that the model has learned from"
    grow(data, 230)
    assert again not in invoke("update", model, data).stderr
    new = pandas.DataFrame(X[200:230], columns=["x0", "x1"]).assign(y=Y[200:230])
    new.to_csv(tmp_path / "new.csv", index=False)
    succeed("convert", tmp_path / "new.csv", data, "--append")
    told = invoke("update", model, data)
    assert again in told.stderr
    assert json.loads(told.stdout)["total"] == 260
    gone = dataset(tmp_path / "gone.zarr", X[200:230], Y[200:230])
    assert succeed("forget", model, gone)["total"] == 230
    assert succeed("forget", model, dataset(tmp_path / "more.zarr", X[:30], Y[:30]))["total"] == 200
    back = invoke("update", model, tmp_path / "more.zarr")
    assert json.loads(back.stdout)["total"] == 230
    assert again not in back.stderr  # which it had lost


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (daskgp.SGPR(n_inducing=20), "forget them once, by daskgp forget or model.forget"),
        (daskgp.LMA(n_support=8, block_rows=50), "fit all rows again, each once"),
    ],
)
def test_the_remedy_for_rows_given_twice_is_one_that_the_model_has(model, remedy, caplog):
    model.set_params(kernel="rbf", optimizer=None).fit(X[:200], Y[:200])
    model.update(X[200:250], Y[200:250]).update(X[200:250], Y[200:250])
    assert f"and now count twice: {remedy}, unless they" in caplog.text
    if "forget" in remedy:
        model.forget(X[200:250], Y[200:250])
    else:
        with pytest.raises(SettingError, match="LMA has no forget here"):
            model.forget(X[200:250], Y[200:250])


@pytest.mark.parametrize("change", ["row", "fewer", "chunks"])
def test_rows_that_changed_are_refused(fitted, change, tmp_path):
    data, model = fitted
    before = daskgp.load(model).solved_.token
    if change == "row":
        grow(data, 220)
        zarr.open_group(data, mode="r+")["y"][70] = 9.0
        said = "rows 64 to 95 have changed since the model saw them"
    elif change == "fewer":
        zarr.open_group(data, mode="r+")["X"].resize((150, 2))
        zarr.open_group(data, mode="r+")["y"].resize((150,))
        said = "has 150 rows, the model has seen 200: a dataset may grow but not shrink"
    else:
        data.rename(tmp_path / "old.zarr")
        grow(data, 220, step=40)
        said = "has chunks of 40 rows, those that the model has seen had 32"
    assert said in refused("update", model, data)
    assert daskgp.load(model).solved_.token == before


def test_rows_written_again_with_the_same_values_count_as_seen(fitted):
    data, model = fitted
    grow(data, 230)
    group = zarr.open_group(data, mode="r+")
    group["X"][:100], group["y"][:100] = X[:100], Y[:100]
    assert succeed("update", model, data)["rows"] == 30


@pytest.mark.parametrize("name", ["svgp", "decoupled"])
def test_methods_of_mini_batches_learn_from_new_rows(name, tmp_path):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    grow(data, 200)
    fit(data, model, cases.make(name))
    grow(data, 300)
    assert succeed("update", model, data)["total"] == 300
    assert len(daskgp.load(model).history_) > 8


def test_methods_that_cannot_say_what_to_do(tmp_path):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    grow(data, 60)
    fit(data, model, cases.fixed("exact"))
    grow(data, 80)
    told = refused("update", model, data)
    assert "ExactGP has no update here: its fit is not a sum over rows" in told
    assert told.endswith("daskgp update --retrain; SGPR, LMA and VecchiaGP take new rows")


def test_rows_with_missing_values_are_not_counted_and_targets_have_their_names(tmp_path):
    model, named = tmp_path / "m.zarr", {"targets": ("pm10",)}
    data = dataset(tmp_path / "d.zarr", X[:200], Y[:200], **named)
    fit(data, model, cases.fixed("sgpr"))
    values = Y[200:300].copy()
    values[:30] = -999.0
    new = dataset(tmp_path / "new.zarr", X[200:300], values, **named)
    told = invoke("update", model, new)
    said = json.loads(told.stdout)
    assert (said["rows"], said["total"]) == (70, 270)
    assert "-999 in 30 rows of target 'pm10'" in told.stderr
    assert "(--fill none) keeps it" in told.stderr


def test_a_window_of_a_method_that_cannot_forget_names_the_remedy(tmp_path):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    grow(data, 60)
    fit(data, model, cases.fixed("exact"))
    said = refused("update", model, data, "--window", 50)
    assert "ExactGP has no forget here" in said
    assert "; daskgp update --retrain with this window fits the rows in it" in said


def test_training_goes_on_from_where_it_was(tmp_path, scheduler):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    grow(data, 200)
    fit(data, model, daskgp.SGPR(n_inducing=12, progress=False))
    first = daskgp.load(model)
    grow(data, 400)
    said = succeed("update", model, data, "--retrain", "--scheduler", scheduler)
    assert said["total"] == 400
    found = daskgp.load(model)
    assert found.kernel_ != first.kernel_
    assert len(found.history_) <= len(first.history_) + 1  # of twice the rows
    assert [note["what"] for note in found._fitted.seen] == ["fit", "fit"]
    assert not (model / models.CHECKPOINT).exists()
    new = dataset(tmp_path / "new.zarr", X[:9], Y[:9])
    told = refused("update", model, new, "--retrain")
    assert "--retrain takes all rows from one dataset, but the model has also seen" in told
    assert told.endswith(f"then daskgp fit {new} NEW.zarr --from {model}")


@pytest.mark.slow
def test_a_store_whose_rows_were_all_forgotten_does_not_stand_in_the_way_of_training(tmp_path):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    grow(data, 60)
    fit(data, model, daskgp.SGPR(n_inducing=12, max_iter=2, progress=False))
    new = dataset(tmp_path / "new.zarr", X[200:240], Y[200:240])
    succeed("update", model, new)
    assert f"has also seen {new}" in refused("update", model, data, "--retrain")
    succeed("forget", model, new)
    assert succeed("update", model, data, "--retrain")["total"] == 60


def test_a_model_may_start_from_another(tmp_path, scheduler):
    data, one, two = (tmp_path / name for name in ("d.zarr", "a.zarr", "b.zarr"))
    grow(data, 300)
    fit(data, one, daskgp.SGPR(n_inducing=12, progress=False))
    settings = "--model", "sgpr", "--set", "n_inducing=12", "--scheduler", scheduler
    said = succeed("fit", data, two, *settings, "--from", one)
    first, second = daskgp.load(one), daskgp.load(two)
    assert len(second.history_) <= 2 < len(first.history_) + 1
    assert said["objective"] >= first.objective_ - 0.1
    np.testing.assert_allclose(second.inducing_, first.inducing_)


def test_a_fit_from_a_model_takes_its_method_and_settings(tmp_path, scheduler):
    data, one, two = (tmp_path / name for name in ("d.zarr", "a.zarr", "b.zarr"))
    grow(data, 60)
    kernel = Matern52(ard=True)
    fit(data, one, daskgp.ExactGP(kernel, mean="zero", max_iter=2, progress=False))
    command = "fit", data, two, "--from", one
    told = refused(*command, "--model", "auto")
    assert told.endswith("leave --model out to train exact again, or leave --from out")
    assert "--time-budget belongs to --model auto" in refused(*command, "--time-budget", "9")
    assert not two.exists()
    succeed(*command, "--set", "max_iter=3", "--scheduler", scheduler)
    found = daskgp.load(two)
    assert isinstance(found, daskgp.ExactGP)
    assert (type(found.kernel), found.mean, found.max_iter) == (Matern52, "zero", 3)


def test_old_versions_go_and_readers_of_the_last_one_stay(fitted):
    data, model = fitted
    places = []
    for n in (230, 260, 290):
        grow(data, n)
        succeed("update", model, data)
        places.append(sorted(path.name for path in (model / models.MODELS).glob("[0-9]")))
    assert places == [["2"], ["2", "3"], ["3", "4"]]
    assert sorted(path.name for path in model.iterdir()) == ["models", "zarr.json"]
    assert daskgp.load(model).n_rows_ == 290


def test_a_store_is_read_again_if_it_is_replaced_meanwhile(fitted, monkeypatch):
    data, model = fitted
    original, calls = models._arrays, []

    def replaced(*given, **more):
        if not calls:
            calls.append(1)
            for n in (230, 260):
                grow(data, n)
                succeed("update", model, data)
            raise StoreError("gone")
        return original(*given, **more)

    monkeypatch.setattr(models, "_arrays", replaced)
    assert daskgp.load(model).n_rows_ == 260


@pytest.mark.parametrize("moment", ["arrays", "attributes"])
def test_an_update_that_fails_leaves_the_old_model(fitted, monkeypatch, moment):
    data, model = fitted
    before = daskgp.load(model).solved_.token
    grow(data, 230)

    def fails(*given, **more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if moment == "arrays":
            patch.setattr(models.groups, "write_array", fails)
        else:
            patch.setattr(zarr.Group, "update_attributes", fails)
        assert "disk is full" in refused("update", model, data)
    assert daskgp.load(model).solved_.token == before
    assert succeed("update", model, data)["total"] == 230
    assert daskgp.load(model).solved_.token != before


@pytest.mark.slow
@pytest.mark.parametrize("noisy", [False, True])
def test_a_local_model_can_be_read_whenever_an_update_of_it_stops(noisy, tmp_path, monkeypatch):
    data, model, resized = tmp_path / "d.zarr", tmp_path / "m.zarr", []
    ordered(data, 200)
    fit(data, model, one("lma"))
    more = tmp_path / "more.zarr"
    beside = {"y_variance": np.full(50, 0.3)} if noisy else {}
    with dataset_writer(str(more), ["x0", "x1"], ("y",), 20, beside=[*beside]) as writer:
        writer.append(X_LINE[200:250], Y_LINE[200:250], *beside.values())
    before, original = cases.moments(daskgp.load(model), T), zarr.Array.resize
    for left in range(9):
        forget()
        moments = cases.moments(daskgp.load(model), T)
        equal(moments, before, rtol=0)

        def resize(array, shape, left=left, **named):
            resized.append(array)
            if len(resized) > left:
                raise OSError(28, "No space left on device")
            return original(array, shape, **named)

        resized.clear()
        with monkeypatch.context() as patch:
            patch.setattr(zarr.Array, "resize", resize)
            stopped = invoke("update", model, more).exit_code
        if not stopped:
            break
    assert left >= 2
    errors = np.concatenate([np.full(200, 1e-40), np.full(50, 0.3 * noisy + 1e-40)])
    wanted = one("lma").fit(X_LINE[:250], Y_LINE[:250], y_variance=errors)
    equal(cases.moments(daskgp.load(model), T), cases.moments(wanted, T), rtol=1e-9)


@pytest.mark.parametrize("estimator", [daskgp.SGPR(n_inducing=12), cases.make("svgp")])
def test_training_begins_anew_where_a_checkpoint_is_of_other_rows(estimator, tmp_path, scheduler):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    grow(data, 200)
    fit(data, model, estimator.set_params(progress=False))
    grow(data, 300)

    place = str(model / models.CHECKPOINT)
    of_others = {"settings": {}, "data": "others"}
    if isinstance(estimator, daskgp.SGPR):
        Checkpoint(place, of_others).append(0, np.zeros(9))
    else:
        Snapshots(place, of_others).write(3, {"where": np.zeros(3)})
    command = "update", model, data, "--retrain", "--scheduler", scheduler
    assert succeed(*command)["total"] == 300
    assert not (model / models.CHECKPOINT).exists()


@pytest.mark.parametrize("name", ["sgpr", "exact", "lma"])
def test_training_on_a_window_keeps_the_columns(name, tmp_path, scheduler):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    table = pandas.DataFrame({"day": np.sort(X[:, 0]), "lon": 50 * X[:, 1], "y": Y})
    table["lat"] = 20 * np.cos(X[:, 1])
    columns = {"target": "y", "block_rows": 32, "geographic": ("lon", "lat")}
    daskgp.convert(table[:120], data, **columns)
    made = cases.make(name, kernel="matern32")
    fit(data, model, made)
    columns.pop("block_rows"), columns.pop("geographic")
    daskgp.convert(table[120:150], data, append=True, **columns)
    window = ("--window", 100) if name != "lma" else ()
    command = "update", model, data, "--retrain", "--scheduler", scheduler, *window
    assert succeed(*command)["total"] == (150 if name == "lma" else 100)
    found = daskgp.load(model)
    assert sorted(found.feature_names_in_) == ["day", "lat", "lon"]
    assert found.solved_.geographic is not None
    cases.moments(found, found.solved_.columns.places(found.solved_.scaling.x_shift[None]))


def test_a_lock_is_heeded(fitted):
    from daskgp.data.stores import locks

    data, model = fitted
    grow(data, 230)
    with locks.hold(str(model)):
        assert "holds the lock" in refused("update", model, data, code=1)
    assert succeed("update", model, data, "--clear-lock")["rows"] == 30


KILLS = [pytest.param(20, marks=pytest.mark.slow), 1]


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("name", ["sgpr", "lma"])
def test_a_model_that_is_killed_at_any_moment_is_the_old_or_the_new_one(name, kills, tmp_path):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    ordered(data, 150)
    fit(data, model, one(name))
    rng, changes = np.random.default_rng(kills), 20
    for n in range(150, 150 + 10 * kills, 10):
        before = daskgp.load(model)
        ordered(data, n + 10)
        if kills > 1 and n == 150:
            twin = shutil.copytree(model, tmp_path / "twin.zarr")
            whole = killed_before(10**6, twin, "update", twin, data, "--window", 120)
            changes = int(whole.stderr.splitlines()[-1])
            shutil.rmtree(twin)
            assert changes > 20
        killed = killed_before(rng.integers(changes), model, "update", model, data, "--window", 120)
        assert killed.returncode == 9, killed.stderr
        left = daskgp.load(model)
        if left.solved_.token == before.solved_.token:
            equal(cases.moments(left, T), cases.moments(before, T), rtol=0)
        else:
            assert [note["what"] for note in left._fitted.seen[-2:]] == ["update", "forget"]
    succeed("update", model, data, "--window", 120)
    found = daskgp.load(model)
    first = found._fitted.known_sources[0].start
    assert found.n_rows_ == n + 10 - first
    wanted = one(name).fit(X_LINE[first : n + 10], Y_LINE[first : n + 10])
    equal(cases.moments(found, T), cases.moments(wanted, T), rtol=1e-8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.zarr", "m.zarr"]


@pytest.mark.parametrize("words", [(), ("--window", 120)])
def test_what_is_left_of_rows_whose_removal_was_killed_does_not_matter(words, tmp_path):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    ordered(data, 200)
    fit(data, model, one("lma"))
    ordered(data, 250)
    (model / "rows-2" / "X").mkdir(parents=True)
    (model / "rows-2" / "X" / "zarr.json").write_text("{}")
    succeed("update", model, data, *words)
    found = daskgp.load(model)
    first = 250 - found.n_rows_
    wanted = one("lma").fit(X_LINE[first:250], Y_LINE[first:250])
    equal(cases.moments(found, T), cases.moments(wanted, T), rtol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"neighbours": "order", "order": "x0"}])
def test_local_models_get_blocks_in_their_own_store(settings, tmp_path):
    data, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    line = np.argsort(X[:, 0])
    dataset(data, X[line][:200], Y[line][:200], step=32)
    fit(data, model, cases.fixed("lma", **settings))
    old = daskgp.load(model)
    before = cases.moments(old, T)
    wanted = daskgp.load(model).update(X[line][200:], Y[line][200:])
    rows = zarr.open_group(model / models.ROWS, mode="r+")
    for name in ("X", "y"):  # what a killed update leaves
        rows[name].resize((217, *rows[name].shape[1:]))
    equal(cases.moments(daskgp.load(model), T), before)
    new = dataset(tmp_path / "n.zarr", X[line][200:], Y[line][200:], step=20)
    assert succeed("update", model, new)["total"] == 400
    forget()
    found = daskgp.load(model)
    equal(cases.moments(found, T), cases.moments(wanted, T), rtol=1e-10)
    equal(cases.moments(old, T), before)  # a reader of the old model goes on
    assert sorted(p.name for p in model.iterdir() if p.name.startswith("rows")) == ["rows"]
    assert "blocks" in invoke("info", model).stdout
    found.save(tmp_path / "copy.zarr")
    equal(cases.moments(daskgp.load(tmp_path / "copy.zarr"), T), cases.moments(wanted, T))
