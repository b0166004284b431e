"""Rows that have the same values: counted exactly, and remarked on where rounding is no reason."""

import logging

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp import SGPR, SVGP
from daskgp.models import repeats, scaling

N = 100_000


def rng():
    return np.random.default_rng(0)


@given(st.integers(1, 400), st.integers(1, 4), st.integers(0, 2**31), st.integers(1, 6))
def test_below_the_size_all_distinct_rows_are_counted(n, k, seed, parts):
    rows = np.random.default_rng(seed).integers(-2, 3, (n, k)).astype(float)
    rows[rows == 0] *= -1  # -0 and 0 are the same
    rows[: n // 2] += 0.0
    pieces = np.array_split(rows, parts)
    found = repeats.local(pieces[0])
    for piece in pieces[1:]:
        found = repeats.combine(found, repeats.local(piece))
    _, counts = np.unique(rows + 0.0, axis=0, return_counts=True)
    assert repeats.exact_count(found) == len(counts)
    assert sorted(found[1][found[1] > 0]) == sorted(counts)
    np.testing.assert_array_equal(found, repeats.local(rows))


@pytest.mark.parametrize("copies", [1, 3])
def test_any_cut_of_many_rows_gives_the_same_sketch(copies):
    rows = np.repeat(rng().normal(size=(20_000, 2)), copies, axis=0)
    rng().shuffle(rows)
    whole = repeats.local(rows)
    assert repeats.exact_count(whole) is None
    for parts in (2, 7):
        first, *rest = map(repeats.local, np.array_split(rows, parts))
        for piece in rest:
            first = repeats.combine(piece, first)
        np.testing.assert_array_equal(first, whole)
    assert repeats.of_sketch(whole) == (float(copies > 1), copies)


def test_no_rows_have_an_empty_sketch():
    none = repeats.local(np.zeros((0, 3)))
    assert repeats.exact_count(none) == 0
    assert repeats.of_sketch(none) == (0.0, 1.0)
    rows = rng().normal(size=(30, 3))
    np.testing.assert_array_equal(repeats.combine(none, repeats.local(rows)), repeats.local(rows))


def test_the_share_is_estimated():
    rows = rng().normal(size=(N, 3))
    rows[:30_000] = rows[30_000:60_000]
    share, per_row = repeats.of_sketch(repeats.local(rows))
    assert share == pytest.approx(0.6, abs=0.07)
    assert per_row == pytest.approx(10 / 7, abs=0.07)


def stations(number, decimals=None):
    places = rng().uniform(0, 5, (number, 2))
    places = places if decimals is None else np.round(places, decimals)
    return places[rng().integers(0, number, N)]


def copied(share, d):
    rows, number = rng().normal(size=(N, d)), int(share * N / 2)
    rows[:number] = rows[number : 2 * number]
    return rows


TELLING = {
    "stations": lambda: stations(100),
    "stations, two decimals": lambda: stations(100, 2),
    "places on a line": lambda: stations(100)[:, :1],
    "all rows twice": lambda: copied(1.0, 1),
    "a fifth of the rows": lambda: copied(0.2, 3),
}
ORDINARY = {
    "no repeats": lambda: rng().normal(size=(N, 5)),
    "3 digits in one column": lambda: np.round(rng().uniform(size=(N, 1)), 3),
    "3 digits in two columns": lambda: np.round(rng().uniform(size=(N, 2)), 3),
    "3 digits, crowded": lambda: np.round(rng().normal(size=(N, 2)) / 8, 3),
    "3 digits, single precision": lambda: np.round(rng().uniform(size=(N, 2)), 3).astype("f4"),
    "4 digits in one column": lambda: np.round(rng().uniform(size=(N, 1)), 4),
    "3 significant digits": lambda: np.array(
        [[float(f"{v:.3g}")] for v in rng().lognormal(0, 2, N)]
    ),
    "whole numbers": lambda: rng().integers(0, 6, (N, 3)).astype(float),
    "another unit": lambda: np.round(rng().uniform(size=(N, 2)), 2) * 0.3048,
    "few copies": lambda: copied(0.04, 3),
}


@pytest.mark.parametrize("case", [*TELLING, *ORDINARY])
def test_rounded_values_are_no_repeats(case):
    rows = {**TELLING, **ORDINARY}[case]()
    sample = rows[rng().choice(N, 2_000, replace=False)]
    assert repeats.telling(repeats.local(rows), N, sample) == (case in TELLING)


# -- what a fit says -------------------------------------------------------------------------

QUICK = {"n_inducing": 10, "progress": False}


def said(caplog, X, y, model=None):
    with caplog.at_level(logging.INFO, "daskgp"):
        (model or SGPR(optimizer=None, **QUICK)).fit(X, y)
    words = ("repeat the inputs", "distinct values", "nothing to learn", "rows: leave")
    return [r.getMessage() for r in caplog.records if any(w in r.getMessage() for w in words)]


def test_repeated_inputs_are_said_in_one_line(caplog):
    X = rng().normal(size=(400, 2))
    X[:100] = X[100:200]
    (line,) = said(caplog, X, rng().normal(size=400))
    assert line.startswith("about 50 % of the rows repeat the inputs of another row, 1.33 rows")


def test_a_constant_column_does_not_hide_repeats(caplog):
    X = rng().normal(size=(400, 2))
    X[:100], X[:, 1] = X[100:200], 3.0
    assert len(said(caplog, X, rng().normal(size=400))) == 1


def test_ordinary_rows_are_not_remarked_on(caplog):
    X = np.round(rng().uniform(size=(400, 1)), 2)
    assert not said(caplog, X, rng().normal(size=400))


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (lambda y: np.round(y), "target 'y' takes only "),
        (lambda y: y > 0, "target 'y' takes only 2 distinct values in 400 rows: for classes"),
        (lambda y: 0 * y + 2.5, "target 'y' is the same in all 400 rows: there is nothing"),
        (lambda y: np.sign(np.stack([y, y], 1)), "the 2 targets take together only 2 distinct"),
    ],
)
def test_targets_of_few_values_are_said_in_one_line(y, words, caplog):
    (line,) = said(caplog, rng().normal(size=(400, 2)), y(rng().normal(size=400)))
    assert line.startswith(words)


@pytest.mark.parametrize("y", [lambda y: y, lambda y: np.round(y, 1)])
def test_ordinary_targets_are_not_remarked_on(y, caplog):
    assert not said(caplog, rng().normal(size=(400, 2)), y(rng().normal(size=400)))


def test_classes_with_their_likelihood_are_not_remarked_on(caplog):
    model = SVGP(likelihood="bernoulli-logit", max_iter=3, **QUICK)
    assert not said(caplog, rng().normal(size=(400, 2)), rng().normal(size=400) > 0, model)


def test_the_sketches_do_not_depend_on_how_rows_are_cut():
    X, y = rng().normal(size=(3_000, 2)), np.round(rng().normal(size=(3_000, 1)))
    whole = scaling.local(X, y)
    parts = [scaling.local(X[i::3], y[i::3]) for i in range(3)]
    other = scaling.combine(parts[2], scaling.combine(parts[0], parts[1]))
    np.testing.assert_array_equal(whole.inputs, other.inputs)
    np.testing.assert_array_equal(whole.targets, other.targets)


NUMBERS = np.arange(400.0)


@pytest.mark.parametrize(
    ("column", "gaps", "weights"),
    [
        (NUMBERS, 0, None),
        (NUMBERS + 1, 0, None),  # as spreadsheets count
        (rng().permutation(NUMBERS), 0, None),
        (NUMBERS, 60, None),  # rows that lack y leave gaps
        (NUMBERS + 1, 60, None),
        (NUMBERS, 0, rng().uniform(0.5, 2.0, 400)),
        (NUMBERS + (NUMBERS > 99), 0, None),  # one row was left out before
        (np.delete(np.arange(431.0), np.s_[::14]), 60, None),
    ],
)
def test_a_feature_that_numbers_the_rows_is_said_in_one_line(column, gaps, weights, caplog):
    X, y = np.stack([rng().normal(size=400), column], axis=1), rng().normal(size=400)
    y[: 5 * gaps : 5] = np.nan
    with caplog.at_level(logging.WARNING, "daskgp"):
        SGPR(max_iter=3, **QUICK).fit(X, y, sample_weight=weights)
    (line,) = (text for text in caplog.messages if "rows: leave" in text)
    assert line.startswith("feature 'x1' seems only to number the rows: leave it out unless ")


@pytest.mark.parametrize(
    "column",
    [
        NUMBERS + 2,
        NUMBERS % 399,
        rng().integers(0, 400, 400).astype(float),
        399 * rng().beta(0.5, 0.5, 400).round(2),
    ],
)
def test_numbers_that_are_not_those_of_rows_are_not_remarked_on(column, caplog):
    column[[0, 1]] = column.min(), column.max()
    assert not said(caplog, np.stack([rng().normal(size=400), column], axis=1), NUMBERS)


def test_whole_targets_with_gaps_number_no_rows(caplog):
    y = rng().permutation(np.delete(np.arange(421.0), np.s_[5:416:20]))
    assert len(y) == 400
    assert not said(caplog, rng().normal(size=(400, 2)), y)


def test_times_and_a_single_feature_may_number_the_rows(caplog):
    assert not said(caplog, NUMBERS[:, None], np.sin(NUMBERS))
    days = np.datetime64("1970-01-01") + NUMBERS.astype("m8[D]")
    X = pd.DataFrame({"day": days, "x": rng().normal(size=400)})
    assert not said(caplog, X, rng().normal(size=400))
