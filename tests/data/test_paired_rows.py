"""Rows of X and y are paired by their order: objects of pandas that say otherwise are refused."""

from functools import partial
from itertools import pairwise

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import daskgp
from daskgp.data import labels, reading
from daskgp.errors import InputError

pytestmark = pytest.mark.whole
FIXED = {"kernel": "matern32(1.0)", "optimizer": None, "progress": False}
X = pd.DataFrame({"a": np.linspace(0, 4, 30), "b": np.cos(np.arange(30.0))})
Y = np.sin(X.a).rename("y")
NAMED = [f"s{i:02d}" for i in range(30)]
ORDER = np.random.default_rng(0).permutation(30)


def model():
    return daskgp.ExactGP(**FIXED)


@pytest.mark.parametrize("index", [NAMED, range(30), pd.date_range("2020", periods=30)])
@pytest.mark.parametrize("what", ["y", "y_variance", "sample_weight", "score", "check"])
def test_an_index_in_another_order_is_refused_with_the_remedy(index, what):
    rows, y = X.set_axis(index), Y.set_axis(index)
    other = pd.Series(np.linspace(0.1, 0.2, 30), index).iloc[ORDER]
    name = "y" if what in ("score", "check") else what
    run, y_given, beside = model().fit, y.iloc[ORDER], {}
    if what in ("score", "check"):
        fitted = model().fit(rows, y)
        run = fitted.score if what == "score" else partial(daskgp.check, fitted)
    elif what != "y":
        y_given, beside = y, {what: other}
    with pytest.raises(InputError) as caught:
        run(rows, y_given, **beside)
    first = next(i for i in range(30) if ORDER[i] != i)
    assert str(caught.value) == (
        f"{name} has the index of X in another order, first {y.index[ORDER[first]]} where X has "
        f"{y.index[first]} (row {first + 1}), and rows are paired by their order: give "
        f"{name}.reindex(X.index), or {name}.to_numpy() if they belong together as they are"
    )


def test_the_remedy_gives_what_the_right_order_does():
    rows, y = X.set_axis(NAMED), Y.set_axis(NAMED)
    wanted = model().fit(rows, y).predict(X)
    shuffled = y.iloc[ORDER]
    np.testing.assert_array_equal(
        model().fit(rows, shuffled.reindex(rows.index)).predict(X), wanted
    )
    again = model().fit(rows.iloc[ORDER], y.iloc[ORDER])
    np.testing.assert_allclose(again.predict(X), wanted, rtol=1e-9)


@pytest.mark.parametrize(
    "pair",
    [
        (range(30), range(30, 60)),
        (NAMED, range(30)),
        (ORDER, ORDER),
        (range(30), range(1, 31)),
        ([0] * 30, [0] * 30),
    ],
    ids=["other rows", "names and numbers", "the same", "overlapping", "all alike"],
)
def test_other_indexes_are_not_looked_at(pair):
    found = model().fit(X.set_axis(pair[0]), Y.set_axis(pair[1]))
    np.testing.assert_array_equal(found.predict(X), model().fit(X, Y).predict(X))
    model().fit(X.to_numpy(), Y.iloc[::-1])
    model().fit(X, list(Y))


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ((range(30), range(5, 35)), True),
        ((range(12, 42), range(30)), True),
        ((range(30), range(30, 0, -1)), True),
        ((range(35, 5, -1), range(30)), False),  # y is numbered anew
        ((range(30), range(30, 60)), False),
        ((range(30), ORDER + 5), False),
        ((range(30), range(0, 60, 2)), False),
        (([f"{i}" for i in range(30)], range(5, 35)), False),
    ],
)
def test_numbers_of_rows_that_are_moved_by_some_are_told(pair, told, caplog):
    model().fit(X.set_axis(pair[0]), Y.set_axis(pair[1]))
    wanted = (
        f"rows of y are numbered from {pair[1][0]} to {pair[1][-1]} and those of X from "
        f"{pair[0][0]} to {pair[0][-1]}, but rows are paired by order: give both with the same "
        "numbers, or y.to_numpy() if they belong together as they are"
    )
    assert caplog.messages == [wanted] * told


DAYS = pd.date_range("2020", periods=40)
TEXTS = pd.Index([f"s{i:02d}" for i in range(40)])
NUMBERS = pd.Index(range(7, 127, 3))


@pytest.mark.parametrize("labels", [DAYS, TEXTS, DAYS.to_period("D"), NUMBERS])
@pytest.mark.parametrize(
    ("own", "other", "told"),
    [
        (slice(1, 31), slice(0, 30), (29, 1)),  # from row 1 of y on, which is row 0 of X
        (np.r_[0:20, 21:31], np.r_[0:10, 11:31], (9, 10)),
        (slice(0, 30), np.r_[0:29, 30], None),  # one row more, the others in place
        (slice(0, 30), slice(10, 40), (20, 0)),
        (slice(0, 20), slice(15, 35), None),  # few in common
        (slice(0, 30), slice(39, 9, -1), (20, 10)),
    ],
    ids=["by one", "other gaps", "in place", "most", "few", "backwards"],
)
def test_labels_that_are_moved_by_some_are_told(labels, own, other, told, caplog):
    index, wanted = labels[own], []
    rows, y = X[: len(index)].set_axis(index), Y[: len(index)].set_axis(labels[other])
    model().fit(rows, y)
    if told:
        count, row = told
        wanted = [
            f"y has {count} labels of the index of X in other rows, first {y.index[row]} where X "
            f"has {index[row]} (row {row + 1}), but rows are paired by order: give both in the "
            "same order, or y.to_numpy() if they belong together as they are"
        ]
    assert caplog.messages == wanted


@pytest.mark.parametrize("kind", ["filtered", "split", "fewer", "repeats"])
def test_numbers_beside_those_of_a_new_index_say_nothing(kind, caplog):
    other = {
        "filtered": np.r_[0:10, 12:32],
        "split": np.random.default_rng(1).permutation(40)[:30],
        "fewer": np.arange(40, 70),
        "repeats": np.r_[0:15, 0:15],
    }[kind]
    for rows, y in ((other, range(30)), (range(30), other), (other, other)):
        model().fit(X.set_axis(rows), Y.set_axis(y))
    assert not caplog.messages


def test_groups_of_folds_are_paired_alike():
    rows, y = X.set_axis(NAMED), Y.set_axis(NAMED)
    groups = pd.Series(np.arange(30) // 6, NAMED)
    with pytest.raises(InputError, match=r"^groups has the index of X in another order"):
        daskgp.cross_validate(model(), rows, y, groups=groups.iloc[ORDER])
    found = daskgp.cross_validate(model(), rows, y, groups=groups)
    assert found.mean == daskgp.cross_validate(model(), X, Y, groups=groups.to_numpy()).mean


def test_an_index_with_repeats_has_no_reindex():
    repeated = np.arange(30) // 2
    with pytest.raises(InputError, match=r"by their order: give y\.to_numpy\(\) if they"):
        model().fit(X.set_axis(repeated), Y.set_axis(repeated[::-1]))


def test_weights_of_scores_and_errors_of_places_are_paired_alike():
    rows, y = X.set_axis(NAMED), Y.set_axis(NAMED)
    other = pd.Series(np.linspace(0.1, 0.2, 30), NAMED).iloc[ORDER]
    fitted = model().fit(rows, y)
    with pytest.raises(InputError, match=r"^sample_weight has the index of X in another order"):
        fitted.score(rows, y, other)
    with pytest.raises(InputError, match=r"^y_variance has the index of X in another order"):
        fitted.predict(rows, return_std=True, include_noise=True, y_variance=other)


# -- of Dask ---------------------------------------------------------------------------------------


def lazy(frame, partitions=3):
    return dd.from_pandas(frame, npartitions=partitions, sort=False)


@pytest.mark.parametrize(
    ("kinds", "again"),
    [
        ((lazy, lazy), "both as columns of X.join({0}), or {0}.to_dask_array(lengths=True)"),
        ((lazy, pd.Series), "both as columns of X.join({0}), or {0}.to_numpy()"),
        ((pd.DataFrame, lazy), "{0}.compute().reindex(X.index), or {0}.to_dask_array(lengths=Tr"),
    ],
)
@pytest.mark.parametrize("what", ["y", "y_variance", "sample_weight", "score", "loo"])
def test_an_index_of_dask_in_another_order_is_refused(kinds, again, what):
    rows, y = kinds[0](X.set_axis(NAMED)), Y.set_axis(NAMED)
    name, other = what, kinds[1](pd.Series(np.linspace(0.1, 0.2, 30), NAMED).iloc[ORDER])
    if what in ("y", "score", "loo"):
        run = model().fit if what == "y" else getattr(model().fit(rows, y), what)
        name, run = "y", partial(run, rows, kinds[1](y.iloc[ORDER]))
    else:
        run = partial(model().fit, rows, y, **{what: other})
    with pytest.raises(InputError) as caught:
        run()
    first = next(i for i in range(30) if ORDER[i] != i)
    assert str(caught.value).startswith(
        f"{name} has the index of X in another order, first {NAMED[ORDER[first]]} where X has "
        f"{NAMED[first]} (row {first + 1}), and rows are paired by their order: give "
        + again.format(name)
    )


def test_rows_of_dask_in_the_same_order_are_those_of_pandas(tmp_path):
    table = X.assign(y=Y, w=np.linspace(0.5, 2, 30)).set_axis(NAMED)
    wanted = model().fit(X, Y, sample_weight=table.w.to_numpy())
    for i in range(3):
        table.iloc[i * 10 : i * 10 + 10].to_parquet(tmp_path / f"{i}.parquet")
    stored = dd.read_parquet(tmp_path)  # whose partitions are read together
    for rows, y, w in (
        (lazy(table[["a", "b"]]), lazy(table[["y"]], 2), lazy(table.w, 4)),
        (stored[["a", "b"]], stored.y, stored.w),
    ):
        found = model().fit(rows, y, sample_weight=w)
        np.testing.assert_allclose(np.ravel(found.predict(rows)), wanted.predict(X), rtol=1e-9)
        assert found.score(rows, y, w) == pytest.approx(wanted.score(X, Y, table.w.to_numpy()))


@pytest.mark.parametrize(
    ("cuts", "others"), [((10, 20), (20, 10)), ((10, 20), (10, 20)), ((30,), (15, 15))]
)
def test_partitions_that_number_their_own_rows_are_not_looked_at(cuts, others, caplog):
    def parts(frame, cuts):
        ends = np.cumsum([0, *cuts])
        pieces = [frame.iloc[i:j] for i, j in pairwise(ends)]
        return dd.concat([dd.from_pandas(one.reset_index(drop=True)) for one in pieces])

    rows, y = parts(X, cuts), parts(Y, others)
    reading.refuse_other_order(rows, y=y)
    reading.warn_of_moved(rows, y=y)
    assert not caplog.messages


@pytest.mark.parametrize("most", [100_000, 90])
@pytest.mark.parametrize(
    ("index", "told"),
    [
        (range(3, 303), "rows of y are numbered from 3 to 302 and those of X from 0 to 299"),
        (pd.date_range("2020-01-03", periods=300), "labels of the index of X in other rows"),
        (range(0, 600, 2), None),
    ],
)
def test_rows_of_dask_that_are_moved_are_told(index, told, most, caplog, monkeypatch):
    monkeypatch.setattr(labels, "MOST", most)  # some labels are drawn
    monkeypatch.setattr(labels, "LEAST", 30)
    labels._known.clear()
    numbers = pd.DataFrame({"a": np.arange(300.0)})
    dated = isinstance(index, pd.DatetimeIndex)
    own = pd.date_range("2020-01-01", periods=300) if dated else range(300)
    rows, y = lazy(numbers.set_axis(own)), lazy(numbers.a.set_axis(index), 2)
    reading.refuse_other_order(rows, y=y)
    reading.warn_of_moved(rows, y=y)
    assert [told in line for line in caplog.messages] == [True] * (told is not None)
    with pytest.raises(InputError, match="has the index of X in another order, first"):
        reading.refuse_other_order(rows, y=lazy(numbers.a.set_axis(own).sample(frac=1.0)))
