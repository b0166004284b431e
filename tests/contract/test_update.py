"""Rows added to a fitted model and taken out again, for every method."""

import copy
import dataclasses
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas
import pandas as pd
import pytest
import zarr
from commands import dataset, files
from fits import equal, forget, zarr_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import warnings_in

import daskgp
from daskgp import kernels
from daskgp.data import Rows
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.fit.task import TaskRounds
from daskgp.models.values import Block
from daskgp.runtime.executor import Executor
from tests.contract import cases

UPDATED = [
    name
    for name in cases.those(lambda name: cases.method(name).why_no_update() is None)
    if name not in cases.LOCAL
]
ADDITIVE = [name for name in UPDATED if name not in cases.PARTED]
T = cases.rows(9, seed=3)[0]
additive, updated = (pytest.mark.parametrize("name", names) for names in (ADDITIVE, UPDATED))


def plain(name, **more):
    """A case with the same hyper-parameters, units and inputs whatever rows it is fitted to."""
    model = cases.fixed(name, standardize=False, mean="zero", **more)
    if cases.has(name, "bounds"):
        return model.set_params(bounds=[[0.0, 3.0], [0.0, 3.0]])
    if cases.has(name, "support") and name in cases.LOCAL - {"vecchia"}:
        return model.set_params(support=cases.rows(8, seed=5)[0], n_support=256)
    if cases.has(name, "n_inducing"):
        return model.set_params(inducing=cases.rows(8, seed=5)[0], n_inducing=512)
    return model


def learned(model):
    return model.objective_, *cases.moments(model, T)


def close(model, wanted, rtol=1e-10):
    equal(learned(model), learned(wanted), rtol=rtol, atol=1e-10)
    assert model.n_rows_ == wanted.n_rows_


@additive
@settings(max_examples=6)
@given(cuts=st.sets(st.integers(40, cases.N - 1), min_size=1, max_size=4), seed=st.integers(0, 9))
def test_updates_give_the_fit_of_all_rows(name, cuts, seed):
    X, y = cases.rows()
    rng = np.random.default_rng(seed)
    y[rng.random(len(y)) < 0.1] = np.nan
    error = rng.uniform(0.01, 0.5, len(y))
    parts = np.split(np.arange(len(y)), sorted(cuts))
    usable = [part for part in parts if np.isfinite(y[part]).any()]
    model = plain(name).fit(X[usable[0]], y[usable[0]], y_variance=error[usable[0]])
    for part in usable[1:]:
        model.update(X[part], y[part], y_variance=error[part])
    close(model, plain(name).fit(X, y, y_variance=error))


@additive
def test_one_row_and_ragged_chunks_are_rows_like_others(name, tmp_path):
    X, y = cases.rows()
    Y = np.column_stack([y, 2 * y + X[:, 0]])
    model = plain(name).fit(X[:60], Y[:60]).update(X[60:61], Y[60:61])
    model.update(*zarr_rows(tmp_path / "n.zarr", X[61:], Y[61:], step=13))
    close(model, plain(name).fit(X, Y))


@additive
def test_forgetting_undoes_an_update(name):
    X, y = cases.rows()
    weight = np.random.default_rng(2).uniform(0.3, 3.0, len(y))
    model = plain(name).fit(X[:100], y[:100])
    wanted = learned(model)
    model.update(X[100:], y[100:], sample_weight=weight[100:])
    model.forget(X[100:], y[100:], sample_weight=weight[100:])
    equal(learned(model), wanted, rtol=1e-9, atol=1e-10)
    assert model.n_rows_ == 100
    model.update(X[100:], y[100:]).forget(X[:100], y[:100])
    close(model, plain(name).fit(X[100:], y[100:]), rtol=1e-8)


@updated
def test_units_and_mean_stay_those_of_the_fit(name):
    X, y = cases.rows()
    model = cases.make(name, mean="ols").fit(X[:100], 50 + 7 * y[:100])
    before = model.solved_
    model.update(X[100:], 50 + 7 * y[100:])
    assert model.solved_.theta is before.theta
    assert model.solved_.scaling is before.scaling
    assert model.solved_.token != before.token
    assert model.n_rows_ == len(y)
    error = np.abs(model.predict(X) - 50 - 7 * y).mean()
    assert error < 7


@updated
def test_a_stored_model_is_updated_as_one_in_memory(name, tmp_path):
    X, y = cases.rows()
    model = cases.make(name).fit(X[:100], y[:100])
    model.save(tmp_path / "a.zarr")
    daskgp.load(tmp_path / "a.zarr").save(tmp_path / "b.zarr")
    loaded = daskgp.load(tmp_path / "b.zarr").update(X[100:], y[100:])
    model.update(X[100:], y[100:])
    assert cases.bits(loaded, T) == cases.bits(model, T)
    loaded.save(tmp_path / "c.zarr")
    again = daskgp.load(tmp_path / "c.zarr")
    assert (again.n_rows_, again.objective_) == (model.n_rows_, model.objective_)
    assert cases.bits(again, T) == cases.bits(model, T)
    assert [note["what"] for note in again._fitted.seen] == ["fit", "update"]


def test_experts_get_equal_random_shares_of_new_rows():
    X, y = cases.rows()
    model = plain("experts").fit(X[:100], y[:100])
    for rows in (slice(100, 101), slice(101, 103), slice(103, None)):
        held = list(model._fitted.totals.rows)
        model.update(X[rows], y[rows])
        counts = np.array(model._fitted.totals.rows) - held
        assert counts.max() - counts.min() <= 1
    assert max(model._fitted.totals.rows) - min(model._fitted.totals.rows) <= 2
    # the same rows for each expert, whichever these are, must give the same sums
    solved = model.solved_
    total = solved.method.local(solved.method.prepare(solved.theta), Block(X, y[:, None]))
    for name, value in model._fitted.totals._asdict().items():
        np.testing.assert_allclose(value.sum(axis=0), getattr(total, name), rtol=1e-9, atol=1e-9)


def test_updated_experts_are_those_of_their_rows():
    X, y = cases.rows()
    model = plain("experts").fit(X[:100], y[:100])
    method, theta = model.solved_.method, model.solved_.theta
    parts = [Block(X[i::4], y[i::4, None]) for i in range(4)]
    first, second = ([b.at(rows) for b in parts] for rows in (slice(20), slice(20, None)))
    prepared, old = method.totals(theta, TaskRounds.of([[b] for b in first]))
    _, new = method.totals(theta, TaskRounds.of([[b] for b in second]))
    both = type(old)(*(a + b for a, b in zip(old, new, strict=True)))
    rows = TaskRounds.of([[b] for b in parts])
    found, wanted = method.concluded(theta, prepared, both, rows), method.solve(theta, rows)
    equal(found[0], wanted[0], rtol=1e-9, atol=1e-9)
    assert found[1] == pytest.approx(wanted[1], rel=1e-10)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"partition": "chunks"}, "partition='chunks' other rows have other experts"),
        ({"partition": "block", "aggregation": "bcm"}, "partition='block' other rows"),
        ({"weights": "paper"}, "weights='paper' takes some central rows"),
    ],
)
def test_experts_that_other_rows_would_rearrange_refuse(settings, said):
    X, y = cases.rows()
    model = cases.fixed("experts", **settings).fit(X, y)
    with pytest.raises(SettingError, match=said):
        model.update(X, y)
    with pytest.raises(SettingError, match="the assignment of rows to experts is not kept"):
        cases.fixed("experts").fit(X, y).forget(X[:5], y[:5])


@updated
def test_rows_that_do_not_suit_leave_the_model_as_it_was(name):
    X, y = cases.rows()
    model = cases.make(name).fit(X, y)
    wanted = cases.bits(model, T), model.objective_, model.n_rows_, model._fitted.seen
    for bad, said in (
        ((X[:, :1], y), "X has 1 features"),
        ((X, np.column_stack([y, y])), "y has 2 targets, but the model was fitted with 1"),
        ((X[:0], y[:0]), "no rows"),
        ((X, np.full(len(y), np.nan)), "no usable rows"),
        ((X, np.where(y > 0, np.inf, y)), "infinite values"),
        ((1e200 * X, y), "cannot be squared"),
    ):
        with pytest.raises(InputError, match=said):
            model.update(*bad)
    assert (cases.bits(model, T), model.objective_, model.n_rows_, model._fitted.seen) == wanted


@additive
def test_rows_that_are_not_the_models_are_not_forgotten(name):
    X, y = cases.rows()
    model = cases.make(name).fit(X, y)
    with pytest.raises(InputError, match="forget leaves no rows"):
        model.forget(X, y)
    with pytest.raises(InputError, match="not rows of the model"):
        model.forget(X[:20], 100 * y[:20])
    beyond = X[:20] + np.where(np.arange(20) >= 5, 50.0, 0.0)[:, None]
    says = (
        r"15 of 20 rows to forget are not rows of the model, first row 6: '\w+' is 5.*, but .* to "
    )
    with pytest.raises(InputError, match=says):
        model.forget(beyond, y[:20])
    with pytest.raises(InputError, match="rows of the model have no sample_weight: leave it out"):
        model.forget(X[:20], y[:20], sample_weight=np.ones(20))


def test_a_row_that_is_forgotten_twice_is_told(caplog):
    X, y = cases.rows()
    twice = np.r_[0:20, 3, 7]
    plain("sgpr").fit(X, y).forget(X[twice], y[twice])
    assert caplog.messages == [
        "2 rows of 22 to forget repeat others of them, first row 21, and are removed as often, "
        "although rows of the model hardly repeat: give each row once"
    ]
    caplog.clear()
    repeated = np.r_[0 : len(y), 3, 7]
    left = plain("sgpr").fit(X[repeated], y[repeated]).forget(X[twice], y[twice])
    assert not caplog.messages
    close(left, plain("sgpr").fit(X[20:], y[20:]), rtol=1e-8)


def test_errors_of_rows_to_forget_are_those_that_they_came_with():
    X, y = cases.rows()
    error = np.linspace(0.1, 0.2, len(y))
    model = plain("sgpr").fit(X, y, y_variance=error)
    with pytest.raises(InputError, match="rows of the model have y_variance and those to forget h"):
        model.forget(X[:20], y[:20])
    model.update(X[:20] + 0.1, y[:20]).forget(X[:20] + 0.1, y[:20])  # of which some have none
    assert model.n_rows_ == len(y)


@pytest.mark.parametrize("name", ADDITIVE)
def test_training_is_advised_where_the_rows_surprise_the_model(name, caplog):
    X, y = cases.rows(400)
    model = cases.make(name, max_iter=20).fit(X[:200], y[:200])
    caplog.clear()
    model.update(X[200:300], y[200:300])
    assert not [line for line in warnings_in(caplog) if "train again" in line]
    model.update(X[300:], 3 * y[300:])
    assert (
        "nats per value less than expected from the others: train again" in warnings_in(caplog)[-1]
    )


@pytest.mark.parametrize(("factor", "shift", "told"), [(1e3, 0.0, True), (1.0, 5.0, False)])
def test_targets_in_another_unit_are_told_before_they_are_added(factor, shift, told, caplog):
    X = np.linspace(0, 1, 40)[:, None]
    y = 300.0 + np.sin(6 * X[:, 0])
    model = daskgp.SGPR(n_inducing=8, optimizer=None, kernel="rbf()", progress=False).fit(X, y)
    model.update(X, factor * y + shift)
    lines = [line for line in caplog.messages if line.startswith("'y' of the new rows goes from")]
    assert len(lines) == told
    assert not told or caplog.messages.index(lines[0]) < len(caplog.messages) - 1  # then surprise


def test_swapped_columns_of_new_rows_are_told_with_how_to_take_them_out(tmp_path, caplog):
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(6, 12, 60), rng.uniform(46, 50, 60)])
    table = pd.DataFrame(X, columns=["lon", "lat"])
    y = np.sin(X[:, 0]) + 0.01 * rng.standard_normal(60)
    model = daskgp.SGPR(n_inducing=9, kernel="rbf", max_iter=5, progress=False).fit(table, y)
    before = model.objective_
    model.update(table.iloc[:5] + 0.01, y[:5])
    assert "swapped" not in caplog.text
    wrong = table.iloc[:20].rename(columns={"lon": "lat", "lat": "lon"})[["lon", "lat"]]
    model.update(wrong, y[:20] + 5.0)
    told = [line for line in caplog.messages if "as if it were swapped with" in line]
    assert [line[:5] for line in told] == ["'lon'", "'lat'"]
    assert "if they are wrong, take them out, forget(X, y) or daskgp forget" in caplog.messages[-1]
    model.forget(wrong, y[:20] + 5.0).forget(table.iloc[:5] + 0.01, y[:5])
    assert model.objective_ == pytest.approx(before, rel=1e-6)


def test_a_store_without_sums_says_so(tmp_path):
    X, y = cases.rows()
    model = cases.make("sgpr").fit(X, y)
    model._fitted = dataclasses.replace(model._fitted, totals=None)  # as stores of earlier versions
    model.save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr")
    with pytest.raises(StoreError, match=r"stored without the sums over its rows.*fit it again"):
        loaded.update(X, y)


# -- blocks ----------------------------------------------------------------------------------

LOCAL = {name: (name, {}) for name in sorted(cases.LOCAL)} | {
    "chain": ("lma", {"neighbours": "order", "markov_order": 2}),
    "vecchia": ("vecchia", {"n_neighbours": 240, "predict_neighbours": 240}),
}
local = pytest.mark.parametrize("case", LOCAL)


def in_line(n=240):
    """Rows in the order of their first feature, as those of a time."""
    X, y = cases.rows(n)
    line = np.argsort(X[:, 0])
    return X[line], y[line]


def blocks(case, **more):
    name, settings = LOCAL[case]
    return plain(name, order="x0", **settings, **more)


@local
@pytest.mark.parametrize("where", ["memory", "store"])
def test_blocks_of_later_rows_follow_the_others(case, where, tmp_path):
    X, y = in_line()
    error = np.random.default_rng(1).uniform(0.01, 0.5, len(y))
    parts = [slice(150), slice(150, 180), slice(180, 240)]
    if where == "store":
        rows = [zarr_rows(tmp_path / f"{p.stop}.zarr", X[p], y[p], step=20) for p in parts]
    else:
        rows = [(X[p], y[p]) for p in parts]
    model = blocks(case).fit(*rows[0])
    for more, p in zip(rows[1:], parts[1:], strict=True):
        model.update(*more, y_variance=error[p])
    known = np.concatenate([np.full(150, 1e-40), error[150:]])
    wanted = blocks(case).fit(X, y, y_variance=known)
    close(model, wanted)
    model.save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr")
    close(loaded, wanted)
    assert loaded.solved_.token == model.solved_.token


@local
def test_a_stored_local_model_is_updated_and_its_store_stays_as_it_was(case, tmp_path):
    X, y = in_line()
    blocks(case).fit(X[:150], y[:150]).save(tmp_path / "m.zarr")
    before = files(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr").update(X[150:180], y[150:180])
    twin = copy.copy(loaded).update(X[210:], y[210:])
    loaded.update(X[180:], y[180:])
    close(loaded, blocks(case).fit(X, y))
    assert twin.n_rows_ == 210
    assert files(tmp_path / "m.zarr") == before


@pytest.mark.parametrize("case", [*LOCAL, "sgpr"])
def test_a_model_takes_its_place_in_its_store_after_an_update(case, tmp_path):
    X, y = in_line()
    url = tmp_path / "m.zarr"
    make = partial(blocks, case) if case in LOCAL else partial(plain, case)
    make().fit(X[:150], y[:150]).save(url, overwrite=True)
    model = daskgp.load(url).update(X[150:180], y[150:180])
    wanted = make().fit(X[:180], y[:180])
    with pytest.raises(
        StoreError, match=r"save\(\.\.\., overwrite=True\) replaces the model there"
    ):
        model.save(url)
    model.save(url, overwrite=True)
    close(model, wanted)
    close(daskgp.load(url), wanted)
    model.update(X[180:], y[180:]).save(url, overwrite=True)
    close(model, make().fit(X, y))
    close(daskgp.load(url), model)


def test_a_store_has_a_whole_model_after_each_change_of_its_metadata(tmp_path, monkeypatch):
    X, y = in_line()
    url, moments, rename = tmp_path / "m.zarr", [], os.replace
    plain("sgpr").fit(X[:150], y[:150]).save(url)
    model = daskgp.load(url).update(X[150:180], y[150:180])

    def replace(source, target, **named):
        rename(source, target, **named)
        if Path(target) == url / "zarr.json":  # which a reader, or a kill, may find then
            moments.append(shutil.copytree(url, tmp_path / f"{len(moments)}.zarr"))

    monkeypatch.setattr(os, "replace", replace)
    model.save(url, overwrite=True)
    assert moments
    for moment in moments:
        close(daskgp.load(moment), model)


def test_nothing_but_a_model_is_overwritten(store, tmp_path):
    X, y = store(60)
    model = plain("sgpr").fit(X, y)
    with pytest.raises(StoreError, match="a dataset store exists already and is not a model store"):
        model.save(tmp_path / "d.zarr", overwrite=True)
    with pytest.raises(SettingError, match="overwrite='no': choose one of True, False"):
        model.save(tmp_path / "d.zarr", overwrite="no")
    assert len(daskgp.open_dataset(tmp_path / "d.zarr")[0]) == 60


def test_rows_of_a_stored_model_go_where_its_store_is_now(tmp_path):
    X, y = in_line()
    blocks("pic").fit(X[:180], y[:180]).save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr").set_params(store=str(tmp_path / "rows"))
    loaded.update(X[180:], y[180:])
    (url,) = (tmp_path / "rows").iterdir()
    assert loaded.solved_.rows.lies_at(str(url))


sliding = [case for case in LOCAL if case != "lma"]  # whose later blocks need earlier ones


@pytest.mark.parametrize("case", sliding)
def test_a_window_of_whole_blocks_slides(case):
    X, y = in_line()
    model = blocks(case).fit(X[:150], y[:150])
    model.update(X[150:], y[150:]).forget(X[:60], y[:60])
    close(model, blocks(case).fit(X[60:], y[60:]), rtol=1e-9)
    model.forget(X[210:], y[210:])
    close(model, blocks(case).fit(X[60:210], y[60:210]), rtol=1e-9)
    with pytest.raises(InputError, match="20 of 20 rows to forget are not whole blocks at either"):
        model.forget(X[60:80], y[60:80])
    with pytest.raises(InputError, match="forget leaves no rows"):
        model.forget(X[60:210], y[60:210])


@pytest.mark.parametrize("case", ["pic", "vecchia"])
def test_rows_that_are_none_of_the_blocks_are_told_by_what(case):
    X, y = in_line()
    error = np.linspace(0.1, 0.2, 240)
    model = blocks(case).fit(X, y, y_variance=error)
    twice, some = np.r_[0:60, 7], np.where(np.arange(60) >= 50, 1.0, 0.0)
    for X_given, y_given, noise, says in (
        (X[:60] + some[:, None], y[:60], error[:60], "10 of 60 .* are not rows of the m.* row 51"),
        (
            X[:60],
            y[:60] + some,
            error[:60],
            "10 of 60 .* have another y in the model, first row 51",
        ),
        (X[:60], y[:60], error[:60] + some, "10 of 60 .* have another y_variance or .* row 51"),
        (X[twice], y[twice], error[twice], "1 of 61 .* more often than the model .* first row 61"),
        (X[60:80], y[60:80], error[60:80], "or fit with order= the column along which rows"),
    ):
        with pytest.raises(InputError, match=says):
            model.forget(X_given, y_given, y_variance=noise)
    assert model.forget(X[:60], y[:60], y_variance=error[:60]).n_rows_ == 180


def test_local_methods_say_what_they_cannot_do():
    X, y = in_line()
    with pytest.raises(SettingError, match="later blocks are conditioned on earlier ones"):
        blocks("lma").fit(X, y).forget(X[:30], y[:30])
    model = blocks("chain").fit(X[90:], y[90:])
    with pytest.raises(InputError, match="new rows that follow all others in the order"):
        model.update(X[:90], y[:90])


@pytest.mark.parametrize("name", sorted(cases.LOCAL))
def test_rows_among_the_others_are_taken_too(name, tmp_path):
    X, y = cases.rows(360)
    model = cases.fixed(name).fit(X[:180], y[:180])
    truth = np.sin(2 * T[:, 0]) * np.cos(T[:, 1])
    model.update(X[180:], y[180:])
    assert model.n_blocks_ == 12
    mean, std = model.predict(T, return_std=True)
    assert (np.abs(mean - truth) < 4 * std + 0.05).all()
    for cut in (150, 151):  # one row is a block of its own
        one = cases.fixed(name).fit(X[:cut], y[:cut]).update(X[cut : cut + 1], y[cut : cut + 1])
        wanted = cases.bits(one, T)
        one.save(tmp_path / f"{cut}.zarr")
        assert cases.bits(daskgp.load(tmp_path / f"{cut}.zarr"), T) == wanted


@pytest.mark.parametrize("where", ["memory", "store"])
def test_two_copies_of_a_local_model_do_not_share_what_each_is_given(where, tmp_path):
    X, y = in_line()
    first = (X[:150], y[:150])
    rows = zarr_rows(tmp_path / "r.zarr", *first, step=20) if where == "store" else first
    one = blocks("chain").fit(*rows).update(X[150:180], y[150:180])
    two = copy.copy(one).update(X[210:], y[210:])
    one.update(X[180:], y[180:])
    close(one, blocks("chain").fit(X, y))
    mine = np.r_[:180, 210:240]
    forget()  # the chunks that it has read
    close(two, blocks("chain").fit(X[mine], y[mine]))


@pytest.mark.parametrize("settings", [{"predict_rows": 40}, {"predict_order": 2}])
def test_independent_blocks_that_predict_from_near_rows_are_updated(settings, tmp_path):
    X, y = in_line()
    make = partial(plain, "lma", order="x0", markov_order=0, **settings)
    model = make().fit(X[:150], y[:150]).update(X[150:], y[150:])
    close(model, make().fit(X, y))
    model.save(tmp_path / "m.zarr")
    close(daskgp.load(tmp_path / "m.zarr"), make().fit(X, y))


@local
def test_rows_of_a_wider_type_keep_their_digits(case, tmp_path):
    X, y = in_line()
    X[:150] = X[:150].astype(np.float32)
    y[:150] = y[:150].astype(np.float32)
    model = blocks(case).fit(X[:150].astype(np.float32), y[:150].astype(np.float32))
    model.save(tmp_path / "m.zarr")
    model = daskgp.load(tmp_path / "m.zarr").update(X[150:180], y[150:180])
    close(model.update(X[180:], y[180:]), blocks(case).fit(X, y))


@pytest.mark.parametrize("name", ["sgpr", "lma"])
def test_a_column_of_targets_is_a_vector(name):
    X, y = in_line()
    make = partial(blocks, "lma") if name == "lma" else partial(plain, name)
    close(make().fit(X[:150], y[:150]).update(X[150:], y[150:, None]), make().fit(X, y))
    column = make().fit(X[:150], y[:150, None]).update(X[150:], y[150:])
    equal(column.predict(T)[:, 0], make().fit(X, y).predict(T), rtol=1e-9)


# -- paths -----------------------------------------------------------------------------------


# those of a sparse grid are drawn along eigenvectors, which follow from rounding
PATHS = [name for name in ADDITIVE if not cases.has(name, "bounds")]


@pytest.mark.parametrize("case", [*PATHS, *LOCAL])
def test_paths_of_an_updated_model_are_those_of_a_fit_of_all_rows(case):
    X, y = in_line()
    make = partial(blocks, case) if case in LOCAL else partial(plain, case)
    model = make().fit(X[:150], y[:150]).update(X[150:180], y[150:180]).update(X[180:], y[180:])
    found, wanted = (one.sample_paths(3, random_state=1)(T) for one in (model, make().fit(X, y)))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_windows_of_an_updated_model_are_those_of_its_sums(tmp_path):
    X, y = cases.rows(360)
    model = cases.fixed("lma", block_rows=15).fit(X[:180], y[:180])
    for part in np.split(np.arange(180, 360), 3):
        model.update(X[part], y[part])
    model.save(tmp_path / "m.zarr")
    for one in (model, daskgp.load(tmp_path / "m.zarr")):
        solved, stage = one.solved_, one._windows(Executor(None))
        state, objective = solved.method.solve(solved.theta, stage)
        equal(state, solved.state, rtol=1e-9, atol=1e-9)
        assert objective == pytest.approx(model.objective_, rel=1e-10)


# -- windows ---------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    """A function that makes a dataset of the first n rows in line, or lets it grow; X and y."""

    def of(n):
        path, (X, y) = tmp_path / "d.zarr", in_line()
        if not path.exists():
            dataset(path, X[:n], y[:n], step=16)
        group = zarr.open_group(path, mode="r+")
        for name, values in (("X", X), ("y", y)):
            before = group[name].shape[0]
            group[name].resize((n, *values.shape[1:]))
            group[name][before:n] = values[before:n]
        return daskgp.open_dataset(path)

    return of


@pytest.mark.parametrize("case", [*ADDITIVE, *sliding])
def test_a_window_slides_over_a_store_that_grows(case, store):
    X, y = in_line()
    make = partial(blocks, case) if case in LOCAL else partial(plain, case)
    step = 30 if case in LOCAL else 1  # whole blocks are forgotten
    model = make().fit(*store(120))
    for n in (150, 180 if case in LOCAL else 151, 240):
        model.update(*store(n), window=100)
        first = (n - 100) // step * step
        close(model, make().fit(X[first:n], y[first:n]), rtol=1e-8)
        before = learned(model)
        equal(learned(model.update(*store(n), window=100)), before, rtol=0)
    assert model._fitted.seen[-1]["what"] == "forget"
    assert len(np.atleast_1d(getattr(model.solved_.rows, "rows", []))) < 240


@pytest.mark.parametrize("along", ["x0", 0])
def test_a_window_may_be_a_length_along_a_column(along, store, monkeypatch):
    X, y = in_line()
    model = plain("sgpr").fit(*store(120))
    read, original = [], Rows.raw
    monkeypatch.setattr(Rows, "raw", lambda rows, a, b: read.append((a, b)) or original(rows, a, b))
    for n in (150, 240):
        read.clear()
        model.update(*store(n), window=0.7, along=along)
        looked = list(read)
        first = int(np.flatnonzero(X[:n, 0] > X[n - 1, 0] - 0.7)[0])
        assert 20 < first < n - 20
        close(model, plain("sgpr").fit(X[first:n], y[first:n]), rtol=1e-8)
    assert not [a for a, b in looked if b - a == 16 and first + 16 < a < 144]  # rows that stay


def test_a_window_that_new_rows_fill_takes_no_more_of_them(store):
    X, y = in_line()
    model = plain("sgpr").fit(*store(60)).update(*store(240), window=50)
    close(model, plain("sgpr").fit(X[190:], y[190:]), rtol=1e-8)
    assert [note["span"] for note in model._fitted.seen] == [[0, 60], [190, 240], [0, 60]]


def test_a_window_that_cannot_be_is_refused(store, tmp_path):
    X, y = store(120)
    model = plain("sgpr").fit(X, y)
    for window, said in (
        ({"window": 0}, "window=0: a whole number of rows above 0 is needed"),
        ({"window": 1.5}, "window=1.5: a whole number of rows"),
        ({"window": np.nan, "along": "x0"}, "a length along 'x0' above 0"),
        ({"window": 5, "along": "t"}, "along='t' is not a feature: choose among x0, x1"),
        ({"along": "x0"}, "along='x0' has no effect without window="),
        ({"window": np.nan}, "window=nan: a whole number of rows above 0"),
        ({"window": np.inf}, "window=inf: a whole number of rows above 0"),
        ({"window": "5"}, "window='5': a whole number of rows above 0"),
    ):
        with pytest.raises(SettingError, match=said):
            model.update(X, y, **window)
    with pytest.raises(SettingError, match="the old rows are known only for a dataset store"):
        model.update(*in_line(20), window=9)
    with pytest.raises(SettingError, match="ExpertsGP has no forget here"):
        plain("experts").fit(X, y).update(X, y, window=9)
    with pytest.raises(InputError, match=r"window along 'x1': row .* lies before one above it"):
        model.update(*store(140), window=0.5, along="x1")
    assert model.n_rows_ == 120
    hilbert = plain("pic").fit(*store(140))
    with pytest.raises(InputError, match="the oldest rows are not the first blocks in the order"):
        hilbert.update(*store(240), window=150)
    assert (hilbert.n_rows_, len(hilbert._fitted.seen)) == (140, 1)


@additive
def test_a_store_that_has_grown_is_not_added_twice(name, store):
    X, y = in_line()
    model = plain(name).fit(*store(120)).update(*store(200))
    close(model, plain(name).fit(X[:200], y[:200]))
    assert model.update(*store(200)).n_rows_ == 200


def test_a_window_is_one_of_the_only_store_that_the_model_has_seen(store):
    X, y = in_line()
    model = plain("sgpr").fit(*store(120)).forget(X[:10], y[:10])
    with pytest.raises(SettingError, match="has also seen rows given in Python: forget the oldest"):
        model.update(*store(150), window=100)


def test_a_store_that_was_forgotten_may_be_added_again(store, tmp_path):
    X, y = in_line()
    new = zarr_rows(tmp_path / "new.zarr", X[120:], y[120:], step=16)
    model = plain("sgpr").fit(*store(120)).update(*new).forget(*new)
    model.save(tmp_path / "m.zarr")
    for one in (daskgp.load(tmp_path / "m.zarr"), model):
        assert one.n_rows_ == 120
        close(one.update(*new), plain("sgpr").fit(X, y), rtol=1e-8)
        assert one.update(*new).n_rows_ == 240
    with pytest.raises(InputError, match=r"has rows 0 to 119 of .*d.zarr, which has 150: give .*X"):
        model.forget(*store(150))


@pytest.mark.parametrize("seen", [120, 100])
def test_a_store_that_was_moved_is_the_one_that_the_model_has_seen(seen, store, tmp_path, caplog):
    X, y = in_line()
    model = plain("sgpr").fit(*store(seen))
    store(200)
    shutil.move(tmp_path / "d.zarr", tmp_path / "moved.zarr")
    moved = daskgp.open_dataset(tmp_path / "moved.zarr")
    close(model.update(*moved), plain("sgpr").fit(X[:200], y[:200]))
    assert "moved.zarr has the rows of" in "".join(warnings_in(caplog))
    assert model.update(*moved, window=150).n_rows_ == 150
    assert {note["store"] for note in model._fitted.seen} == {str(tmp_path / "moved.zarr")}


def test_a_store_that_was_moved_is_known_even_without_new_rows(store, tmp_path, caplog):
    model = plain("sgpr").fit(*store(120))
    shutil.move(tmp_path / "d.zarr", tmp_path / "moved.zarr")
    moved = daskgp.open_dataset(tmp_path / "moved.zarr")
    assert model.update(*moved).n_rows_ == 120
    caplog.clear()
    assert model.update(*moved).n_rows_ == 120
    assert not warnings_in(caplog)


def test_noise_that_the_fit_left_out_stays_left_out(store, tmp_path):
    X, y = in_line()
    store(120)
    group = zarr.open_group(tmp_path / "d.zarr", mode="r+")
    array = group.create_array("weight", shape=(120,), chunks=(16,), dtype="f8")
    array[:] = 3.0
    model = plain("sgpr").fit(*store(120), sample_weight=False)
    rows = store(240)
    array.resize((240,))
    array[:] = 3.0
    close(model.update(*rows), plain("sgpr").fit(X, y))


def test_a_store_of_places_on_the_sphere_gives_its_new_rows(tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.sort(rng.uniform(0, 9, 200)), rng.uniform(-180, 180, 200)])
    X = np.column_stack([X, rng.uniform(-80, 80, 200)])
    y = np.sin(X[:, 0]) + np.cos(np.radians(X[:, 2]))
    names, place = ["day", "lon", "lat"], {"geographic": ("lon", "lat")}
    settings = {"standardize": False, "mean": "zero", "optimizer": None, **place}
    table = pandas.DataFrame(X, columns=names)
    for make in (
        partial(daskgp.SGPR, kernels.Matern32(9_000.0), inducing=X[::20], **settings),
        partial(
            daskgp.LMA,
            kernels.Matern32(9_000.0),
            support=X[::20],
            block_rows=40,
            order="day",
            **settings,
        ),
        partial(
            daskgp.PIC,
            kernels.Matern32(9_000.0),
            support=X[::20],
            block_rows=40,
            order="day",
            **settings,
        ),
    ):
        path = tmp_path / f"{make.func.__name__}.zarr"
        dataset(path, X[:120], y[:120], step=16, names=names)
        model = make().fit(*daskgp.open_dataset(path))
        group = zarr.open_group(path, mode="r+")
        for name, values in (("X", X), ("y", y)):
            group[name].resize(values.shape)
            group[name][120:] = values[120:]
        model.update(*daskgp.open_dataset(path))
        assert model.feature_names_in_.tolist() == names
        found, wanted = (one.predict(X[5:9] + 0.1, True) for one in (model, make().fit(table, y)))
        equal(found, wanted, rtol=1e-9, atol=1e-10)
        if make.func is daskgp.PIC:
            model.update(*daskgp.open_dataset(path), window=120)
            kept = make().fit(table[80:], y[80:])
            equal(*(one.predict(X[150:160], True) for one in (model, kept)))


# -- targets that are transformed ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["log", "sqrt", "boxcox"])
def test_transformed_targets_are_added_on_their_scale(kind):
    X, y = cases.rows()
    y = np.exp(y)
    make = partial(plain, "sgpr", target_transform=kind)
    model = make().fit(X[:100], y[:100])
    first = model.log_marginal_likelihood()
    bad = y[100:].copy()
    bad[:3] = -1.0
    before = learned(model)
    with pytest.raises(InputError, match=f"target_transform='{kind}' takes values .* 3 of 50 rows"):
        model.update(X[100:], bad)
    equal(learned(model), before, rtol=0)
    model.update(X[100:], y[100:])
    if kind != "boxcox":  # its power stays that of the fit
        wanted = make().fit(X, y)
        close(model, wanted)
        evidence = wanted.log_marginal_likelihood()
        assert model.log_marginal_likelihood() == pytest.approx(evidence, rel=1e-10)
    model.forget(X[100:], y[100:])
    assert model.log_marginal_likelihood() == pytest.approx(first, rel=1e-8)


# -- starts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in cases.SETTINGS if name not in cases.UNTRAINED])
def test_a_fit_starts_from_another_model_in_its_own_units(name):
    X, y = cases.rows()
    first = cases.fixed(name).fit(X, y)
    again = cases.fixed(name).fit(X, y, start=first)
    equal(cases.moments(again, T), cases.moments(first, T), rtol=1e-9)
    unscaled = cases.fixed(name, standardize=False).fit(X, y, start=first)
    scale = first.solved_.scaling
    lengths = np.array(["lengthscale" in name for name in first.kernel_.parameter_names])
    wanted = np.exp(first.kernel_.log_parameters[lengths])
    equal([np.exp(unscaled.kernel_.log_parameters[lengths])], [wanted], rtol=1e-9)
    assert unscaled.noise_variance_ == pytest.approx(first.noise_variance_ * scale.y_scale[0] ** 2)


def test_a_start_that_does_not_suit_is_refused():
    X, y = cases.rows()
    first = cases.fixed("sgpr").fit(X, y)
    for other, rows, said in (
        (cases.fixed("sgpr", kernel=kernels.RBF()), (X, y), "start has the kernel"),
        (
            cases.fixed("sgpr", kernel="matern32"),
            (X[:, :1], y),
            "start is a model of columns x0, x1",
        ),
        (cases.fixed("sgpr"), (X, y), "a fitted estimator is needed"),
    ):
        start = cases.fixed("sgpr") if "fitted" in said else first
        with pytest.raises(SettingError, match=said):
            other.fit(*rows, start=start)


def test_training_from_an_optimum_ends_there():
    X, y = cases.rows(300)
    first = daskgp.SGPR(kernel="matern32", n_inducing=20).fit(X, y)
    again = daskgp.SGPR(kernel="matern32", n_inducing=20).fit(X, y, start=first)
    assert again.objective_ >= first.objective_ - 1e-6
    assert again.history_[-1]["evaluations"] <= first.history_[-1]["evaluations"]
    equal([again.inducing_], [first.inducing_], rtol=1e-12)


def test_new_rows_without_the_errors_that_the_fit_had_are_warned_of(caplog):
    X, y = cases.rows()
    model = cases.make("sgpr").fit(X[:100], y[:100], y_variance=np.full(100, 0.1))
    model.update(X[100:], y[100:], y_variance=np.full(50, 0.1))
    assert "these have none" not in caplog.text
    model.update(X[100:], y[100:])
    assert "the rows of the fit had y_variance and these have none" in caplog.text
