"""Rounds over experts: the same numbers however rows are cut."""

import dataclasses
import itertools
import time

import dask
import numpy as np
import pytest
from effective import effective

import daskgp
from daskgp import ExpertsGP, kernels, testing
from daskgp.data import Rows, partition
from daskgp.data.blocks.draws import Central
from daskgp.data.partition import Span, even, parts
from daskgp.errors import InputError, StoreError
from daskgp.fit.experts import Objectives
from daskgp.fit.rounds import EXPERT_TASKS, Rounds
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.models.scaling import identity
from daskgp.models.values import Theta
from daskgp.posterior.expert_rows import ExpertRows
from daskgp.posterior.training_rows import Fitted
from daskgp.runtime.executor import Executor, map_all
from tests import oracle

KERNEL = kernels.Matern32(lengthscale=(0.7, 1.3), variance=1.4)
SIZES = (9, 1, 14, 6)


def data(n=230, seed=0, missing=True):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, (n, 2))
    y = np.stack([np.sin(3 * X[:, 0]), X[:, 1] ** 2], axis=1) + 0.1 * rng.standard_normal((n, 2))
    if missing:
        X[5:9, 0], y[100, 1] = np.nan, np.nan
    return X, y


def stage(sizes=SIZES, executor=None, read_rows=None, missing=False):
    """The rounds over experts of these sizes; sparse ones may be read in parts."""
    X, y = data(sum(sizes), missing=missing)
    edges = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    spans = tuple(itertools.starmap(Span, itertools.pairwise(edges)))
    return Rounds(
        Rows(X, y, None, ("a", "b"), ("u", "v")),
        partition.alone(spans),
        identity(2, 2),
        executor or Executor(None, False),
        read_rows=read_rows,
        least_tasks=EXPERT_TASKS,
    )


def ensemble(kind, sizes=SIZES):
    """The method with its hyper-parameters, and the rounds over its experts."""
    if kind == "exact":
        return ExactExperts(len(sizes)), theta(), stage(sizes)
    return SparseExperts(len(sizes)), theta(5), stage(sizes, read_rows=4)


def theta(m=0):
    Z = np.random.default_rng(1).uniform(0, 3, (m, 2)) if m else None
    return Theta(KERNEL, 0.1, Z)


# -- however rows are cut ----------------------------------------------------------------------

SETTINGS = {
    "sparse": {"expert": "sparse"},
    "sparse paper": {"expert": "sparse", "weights": "paper", "partition": "chunks"},
    "sparse share": {"expert": "sparse", "weights": "paper", "central": 0.4, "partition": "block"},
    "sparse npae": {"expert": "sparse", "aggregation": "npae"},
    "exact": {"expert": "exact", "partition": "block"},
    "exact paper": {"expert": "exact", "weights": "paper"},
    "exact share": {"expert": "exact", "central": 0.4, "partition": "chunks"},
    "exact grbcm": {"expert": "exact", "aggregation": "grbcm"},
}


def experts(**settings):
    few = {"n_experts": 4, "n_inducing": 8, "optimizer": None, "progress": False}
    return effective(ExpertsGP, **{**few, **settings})


@pytest.mark.parametrize("chosen", SETTINGS.values(), ids=SETTINGS)
def test_predictions_do_not_depend_on_chunks_or_blocks(chosen, make_store, tmp_path):
    T, _ = data(20, seed=1, missing=False)
    wanted = experts(**chosen).fit(*data())
    mean, deviation = wanted.predict(T, return_std=True)
    assert np.isfinite(deviation).all()
    for rows, block_rows in ((7, 11), (50, None), (230, 25)):
        url = make_store(*data(), rows=rows, url=tmp_path / f"{rows}.zarr")
        model = experts(**chosen, block_rows=block_rows).fit(*daskgp.open_dataset(url))
        found = model.predict(T, return_std=True)
        np.testing.assert_allclose(found[0], mean, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found[1], deviation, rtol=1e-10, atol=1e-10)
        assert model.objective_ == pytest.approx(wanted.objective_, rel=1e-12)


@pytest.mark.parametrize("width", [1, 5, 37, 100])
@pytest.mark.parametrize("share", [None, 0.0, 0.3, 1.0])
def test_central_rows_do_not_depend_on_how_an_expert_is_cut(share, width):
    for expert in even(0, 300, 4):
        draw = Central(share, 7)
        cut = [draw.among(expert, part) for part in parts(*expert, width)]
        np.testing.assert_array_equal(np.concatenate(cut), draw.among(expert, expert))


def test_one_central_row_of_each_expert_or_a_share_of_all_rows():
    spans = even(0, 20_000, 40)
    one = np.array([Central(None, 7).among(span, span) for span in spans])
    np.testing.assert_array_equal(one.sum(axis=1), 1)
    assert len(np.unique(one.argmax(axis=1))) > 20  # anywhere within an expert
    share = np.concatenate([Central(0.3, 7).among(span, span) for span in spans])
    assert share.mean() == pytest.approx(0.3, abs=0.01)
    assert Central(1.0, 7).among(spans[0], spans[0]).all()
    assert not Central(0.0, 7).among(spans[0], spans[0]).any()
    other = np.concatenate([Central(0.3, 8).among(span, span) for span in spans])
    assert (share & other).mean() == pytest.approx(0.09, abs=0.01)  # by the seed


@pytest.mark.parametrize(("start", "rows"), [(5, 0), (5, 1)])
def test_central_rows_of_few(start, rows):
    span = Span(start, start + rows)
    assert Central(None, 0).among(span, span).tolist() == [True] * rows


def test_a_share_that_draws_no_row_is_an_error():
    with pytest.raises(InputError, match="central=1e-09 drew none of 30 rows: choose a larger"):
        ExactExperts(4, central=1e-9).solve(theta(), stage())


@pytest.mark.parametrize("letter", [False, True])
def test_sums_over_rows_leave_out_rows_with_missing_values(letter):
    weights = "paper" if letter else "projection"
    model, whole = ExactExperts(4, weights=weights), stage((10, 20, 40, 60), missing=True)
    X, y = whole.rows.X, whole.rows.y
    keep = ~(np.isnan(X).any(axis=1) | np.isnan(y).any(axis=1))
    sizes = [int(keep[span.start : span.stop].sum()) for span in whole.spans]
    edges = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    spans = tuple(itertools.starmap(Span, itertools.pairwise(edges)))
    rows = dataclasses.replace(whole.rows, X=X[keep], y=y[keep])
    found = []
    for part in (whole, dataclasses.replace(whole, rows=rows, units=partition.alone(spans))):
        state, _ = model.solve(theta(), part)
        each = np.split(state.weights, state.starts[1:-1])
        found.append(model.cross(theta(), part, each))
    assert sizes == [6, 20, 40, 59]
    names = ("hilbert",) if letter else ("products", "hilbert", "right", "rows")
    for name in names:  # another row is drawn where a missing one leaves
        a, b = (getattr(cross, name) for cross in found)
        np.testing.assert_allclose(a, b, rtol=1e-12)


# -- each expert for itself --------------------------------------------------------------------


@pytest.mark.parametrize("with_inputs", [False, True])
@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_objectives_are_each_experts_evidence_with_its_gradient(kind, with_inputs):
    model, at, found = ensemble(kind)
    vector, which = at.to_vector(with_inputs), [2, 0, 3]
    moved = [vector + 0.1 * i for i in which]
    each = Objectives(model, found, at, with_inputs).map(_evaluated, which, moved)
    for i, v, (value, gradient) in zip(which, moved, each, strict=True):
        X, y = found.rows.read(*found.spans[i])

        def dense(v, X=X, y=y):
            t = at.from_vector(v)
            if kind == "exact":
                return oracle.evidence(t.kernel(X), y, t.noise_variance)
            return oracle.titsias_bound(t.kernel, X, y, t.inputs, t.noise_variance)

        assert value == pytest.approx(dense(v), rel=1e-9)
        wanted = testing.central_differences(dense, v)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def _evaluated(evaluate, vector):
    return evaluate(vector)


@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_all_experts_at_one_vector_are_each_of_them(kind):
    model, at, found = ensemble(kind)
    objectives = Objectives(model, found, at, kind == "sparse")
    vector = at.to_vector(objectives.with_inputs) + 0.1
    each = objectives.map(_evaluated, range(4), [vector] * 4)
    for (value, gradient), (v, g) in zip(objectives.evaluate(vector), each, strict=True):
        assert value == v
        np.testing.assert_array_equal(gradient, g)


def test_work_may_evaluate_again_and_again_on_rows_in_parts_or_whole():
    at, found = theta(5), []
    for read_rows in (3, 100):
        objectives = Objectives(SparseExperts(4), stage(read_rows=read_rows), at, False)
        found.append(objectives.map(_twice, range(4), [at.to_vector(False)] * 4))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_array_equal(objectives.counts, 2.0 * np.array(SIZES))


def _twice(evaluate, vector):
    value, gradient = evaluate(vector)
    again, same = evaluate(vector)
    assert again == value
    np.testing.assert_array_equal(same, gradient)
    return np.append(gradient, evaluate(vector + 0.1)[0])


class Watching(Executor):
    """Counts the map tasks of a round."""

    def compute_all(self, nodes, *more):
        TASKS.append(len(nodes))
        return super().compute_all(nodes, *more)


TASKS = []


@pytest.mark.parametrize(
    ("sizes", "tasks"), [((5,) * 64, 16), ((5,) * 7, 7), ((1000,) * 32, 16), ((2000,) * 32, 32)]
)
def test_small_experts_share_tasks_as_long_as_there_are_many(sizes, tasks):
    TASKS.clear()
    model, at, which = SparseExperts(len(sizes)), theta(3), range(len(sizes))
    found = stage(sizes, Watching(None, False), max(sizes))
    each = Objectives(model, found, at, False).map(_named, which, which)
    assert each == list(range(len(sizes)))
    assert [tasks] == TASKS
    summaries = found.map(model.summarise, model.prepare(at))
    assert [s.stats.rows for s in summaries] == list(sizes)
    assert [tasks, tasks] == TASKS


def _named(evaluate, argument):
    return argument


def test_results_come_in_the_order_of_the_pieces():
    pieces = [(i, i + 1) for i in range(0, 12, 2)]
    with dask.config.set(scheduler="threads", num_workers=6):
        found = map_all(_late, pieces, Executor(None, False), "order")
    assert found == list(range(12))


def _late(piece):
    time.sleep(0.02 * (6 - piece[0] / 2))  # the first come last
    return list(piece)


# -- rows that predictions read back -------------------------------------------------------------


def consulted(counts):
    X, y = data(30, missing=False)
    starts = np.array([0, 9, 10, 24, 30])
    members = ExpertRows(Rows(X, y, None, ("a", "b"), ("u", "v")), starts)
    model = ExactExperts(4, "poe")
    state = model.state_type(np.zeros((30, 2)), np.cumsum([0, *counts]), np.zeros(0))
    fit = Fitted(model, theta(), state, identity(2, 2), "token-of-a-test", "cpu")
    return X, members.near(fit)


def test_experts_are_read_one_at_a_time_and_factored_once():
    X, found = consulted(SIZES)
    assert len(found) == 4
    np.testing.assert_array_equal(found.rows(2).X, X[10:24])
    both = found.conditioned(0, 2)
    assert len(both.X) == 9 + 14
    assert found.conditioned(0, 2) is both
    assert found.conditioned(2) is not both
    assert found.members.describe(found.fit.state) == {"experts": "4 of 1 to 14 rows"}


def test_rows_that_are_gone_are_an_error():
    _, found = consulted((9, 1, 13, 7))
    assert len(found.rows(0).X) == 9
    with pytest.raises(StoreError, match="training rows that the model reads back are gone"):
        found.rows(2)
