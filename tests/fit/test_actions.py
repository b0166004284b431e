"""Passes of a computation-aware GP: the sums over rows however they are cut, all or a few drawn."""

import dataclasses
import itertools
from typing import NamedTuple

import dask
import numpy as np
import pytest

from daskgp import kernels, testing
from daskgp.data import Rows, partition
from daskgp.data.partition import Span
from daskgp.errors import StoreError
from daskgp.fit import rounds, task
from daskgp.fit.task import DRAWS
from daskgp.kernels.weights import Weights
from daskgp.models.actions import cagp, passes, sums
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.passes import Paired
from daskgp.models.scaling import identity
from daskgp.models.values import Theta
from daskgp.posterior import action_points
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread
from tests import oracle
from tests.actions import acting, evaluated, solved

KERNEL = kernels.Matern32(lengthscale=(0.7, 1.3), variance=1.4)
THETA = Theta(KERNEL, 0.1)
RAGGED = (9, 1, 14, 6, 5)
FORMS = ("dense", "sparse", "support")

every = pytest.mark.parametrize("form", FORMS)
losses = pytest.mark.parametrize("loss", ["elbo", "projected"])


@pytest.fixture(autouse=True)
def one_process():
    """Passes are small: threads would only wait for one another."""
    with dask.config.set(scheduler="sync"), single_blas_thread():
        yield


def data(n, gaps=()):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (n, 2))
    y = np.stack([np.sin(3 * X[:, 0]), X[:, 1] ** 2], axis=1) + 0.1 * rng.standard_normal((n, 2))
    X[list(gaps[:1]), 1], y[list(gaps[1:]), 0] = np.nan, np.nan
    return X, y


class Acts(NamedTuple):
    """A model and the rows and points that it works on."""

    model: CaGP
    pairs: Paired

    def evaluate(self, weights, batch=None):
        return evaluated(*self, THETA, weights, batch)

    def value(self, weights, theta=THETA):
        return solved(*self, theta, weights)[1]


def made(form="sparse", sizes=RAGGED, loss="elbo", gaps=(), t=5):
    """The passes over some rows, and weights of actions on all of them or on every third."""
    X, y = data(sum(sizes), gaps)
    edges = np.cumsum([0, *sizes]).tolist()
    spans = tuple(itertools.starmap(Span, itertools.pairwise(edges)))
    rows = Rows(X, y, None, ("a", "b"), ("u", "v"))
    points = rows if form != "support" else dataclasses.replace(rows, X=X[::3], y=y[::3])
    a, count = len(points), int((~np.isnan(X + y).any(axis=1)).sum())
    values = np.random.default_rng(1).standard_normal((a, t))
    weights = Weights(values[:, 0], np.arange(a) * t // a, t)
    if form == "dense":
        weights = Weights.dense(values)
    units, executor = partition.alone(spans), Executor(None, False)
    stage = rounds.Rounds(rows, units, identity(2, 2), executor)
    over = stage
    if points is not rows:
        units = partition.alone(partition.parts(0, a, sizes[0]))
        over = dataclasses.replace(stage, rows=points, units=units)
    return Acts(CaGP(loss), Paired(stage, over, count, 2, t)), weights


def whole(acts, weights):
    """Complete rows X and y, and S (n, t) on them."""
    X, y = acts.pairs.rows.rows.X, acts.pairs.rows.rows.y
    S = np.zeros((len(X), weights.count))
    at = slice(None) if acts.pairs.points is acts.pairs.rows else slice(None, None, 3)
    values = weights.values
    if weights.owner is not None:
        values = np.zeros((len(weights), weights.count))
        values[np.arange(len(weights)), weights.owner] = weights.values
    S[at] = values
    keep = ~np.isnan(X + y).any(axis=1)
    return X[keep], y[keep], S[keep]


def close(found, wanted, **tolerance):
    for a, b in zip(found, wanted, strict=True):
        if b is not None:
            np.testing.assert_allclose(a, b, **{"rtol": 1e-9, "atol": 1e-9, **tolerance})


# -- sums over all rows ------------------------------------------------------------------------


@every
@pytest.mark.parametrize("gaps", [(), (3, 12, 14)])
def test_the_sums_are_those_of_all_complete_rows(form, gaps):
    acts, weights = made(form, gaps=gaps)
    X, y, S = whole(acts, weights)
    K = KERNEL(X)
    over = acts.model._begin(acting(THETA, weights), acts.pairs)
    assert over.factored.points.given is None
    close(over.factored.points[:3], (S.T @ K @ S, S.T @ y, S.T @ S))
    assert acts.pairs.count == len(X) == sum(RAGGED) - len(gaps)


@every
@losses
@pytest.mark.parametrize("gaps", [(), (3, 12)])
def test_the_gradient_is_that_of_the_value(form, loss, gaps):
    acts, weights = made(form, loss=loss, gaps=gaps)
    found = acts.evaluate(weights)

    def value(vector):
        return acts.value(weights, THETA.from_vector(vector))

    at = THETA.to_vector(False)
    assert found.value == pytest.approx(value(at), rel=1e-12)
    wanted = testing.central_differences(value, at)
    np.testing.assert_allclose([*found.kernel, found.noise], wanted, rtol=1e-6, atol=1e-5)
    if form == "dense":
        assert found.weights is None
        return

    def of_weights(values):
        moved = Weights(values, weights.owner, weights.count)
        return acts.value(moved)

    wanted = testing.central_differences(of_weights, weights.values)
    np.testing.assert_allclose(found.weights, wanted, rtol=1e-5, atol=1e-5)
    assert (found.weights[~np.isfinite(acts.pairs.points.rows.X).all(axis=1)] == 0).all()


@every
@losses
@pytest.mark.parametrize("sizes", [(35,), (1,) * 35, (30, 5)])
def test_how_rows_are_cut_does_not_matter(form, loss, sizes):
    found = []
    for cut in (RAGGED, sizes):
        acts, weights = made(form, cut, loss, gaps=(3, 12))
        found.append(acts.evaluate(weights))
    close(*found)


@every
def test_points_may_be_read_panel_by_panel(form, monkeypatch):
    acts, weights = made(form, gaps=(7, 8))
    wanted = acts.evaluate(weights)
    monkeypatch.setattr(passes, "PANEL_ROWS", 4)
    close(acts.evaluate(weights), wanted)
    monkeypatch.setattr(task, "HELD_POINTS", 10)  # and never held all at once
    close(acts.evaluate(weights), wanted)
    np.testing.assert_allclose(acts.pairs.times(THETA, np.eye(len(weights))), on_points(acts))


def on_points(acts):
    """The kernel between rows and points, 0 at gaps."""
    both = acts.pairs.rows.rows, acts.pairs.points.rows
    found = KERNEL(*(np.nan_to_num(rows.X) for rows in both))
    for axis, rows in enumerate(both):
        gone = np.isnan(rows.X + rows.y).any(axis=1)
        np.moveaxis(found, axis, 0)[gone] = 0.0
    return found


def share_for(acts, count):
    """A share of the memory in which functions at about so many rows fit."""
    return 8 * acts.pairs.actions * count / acts.pairs.rows.executor.memory()


@every
@losses
@pytest.mark.parametrize("room", [0, 12, 30])
def test_functions_that_wait_for_the_gradient_change_no_bit(form, loss, room, monkeypatch):
    acts, weights = made(form, loss=loss, gaps=(7, 8))
    kept = acts.evaluate(weights)
    monkeypatch.setattr(rounds, "KEEP_SHARE", share_for(acts, room))
    for a, b in zip(acts.evaluate(weights), kept, strict=True):
        np.testing.assert_array_equal(a, b)


@every
@losses
@pytest.mark.parametrize("tile", [4, sums.TILE_ROWS])
def test_functions_wait_only_where_there_is_room_for_them(form, loss, tile, monkeypatch):
    monkeypatch.setattr(passes, "TILE_ROWS", tile)
    acts, weights = made(form, loss=loss)
    made_at, functions = [], sums.functions

    def counted(kernel, panels, X):
        made_at.append(len(X))
        return functions(kernel, panels, X)

    monkeypatch.setattr(sums, "functions", counted)

    def entries():
        """Rows at which an evaluation makes the functions."""
        made_at.clear()
        acts.evaluate(weights)
        return sum(made_at)

    points, counted_rows = len(weights), sum(RAGGED) if loss == "elbo" else 0
    once = points if acts.pairs.points is acts.pairs.rows else points + counted_rows
    again = points + counted_rows + once
    assert entries() == once
    monkeypatch.setattr(rounds, "KEEP_SHARE", 0.0)
    assert entries() == again
    monkeypatch.setattr(rounds, "KEEP_SHARE", share_for(acts, 10))
    assert once < entries() < again  # those of the first tasks
    over = acts.model._pass("points", cagp._at_points, True, acts.pairs.actions)
    monkeypatch.setattr(rounds, "KEEP_SHARE", 1.0)
    assert acts.pairs.points._tasks_that_keep(over) == acts.pairs.points.n_units
    with dask.config.set(scheduler="processes"):
        assert acts.pairs.points._tasks_that_keep(over) == 0


@pytest.mark.parametrize("gaps", [(), (3, 12)])
def test_products_of_the_kernel_with_vectors(gaps):
    acts, _ = made("dense", gaps=gaps)
    pairs, K = acts.pairs, on_points(acts)
    V = np.random.default_rng(2).standard_normal((len(pairs.rows.rows), 3))
    keep, close = pairs.complete, {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(pairs.times(THETA, V), K @ V, **close)
    np.testing.assert_allclose(pairs.covariance(THETA)(V), K @ V + 0.1 * V, **close)
    assert np.flatnonzero(~keep).tolist() == list(gaps)
    np.testing.assert_array_equal(pairs.targets(), np.where(keep[:, None], pairs.rows.rows.y, 0.0))
    assert pairs.complete.sum() == sum(RAGGED) - len(gaps)
    pairs = made("support", gaps=gaps)[0].pairs
    np.testing.assert_array_equal(pairs.complete, keep[::3])
    np.testing.assert_allclose(pairs.times(THETA, V[::3]), K[:, ::3] @ V[::3], **close)


def test_the_state_predicts_as_the_dense_posterior():
    for form in FORMS:
        acts, weights = made(form)
        X, y, S = whole(acts, weights)
        T = np.random.default_rng(3).uniform(0, 3, (7, 2))
        edges = None if weights.owner is None else np.searchsorted(weights.owner, np.arange(6))
        values = weights.values if weights.owner is None else weights.values[:, None]
        kept = action_points.of(acts.pairs.points.rows, values, edges)
        state, _ = solved(*acts, THETA, weights)
        near = action_points.Consulted(kept, identity(2, 2), len(weights), "cpu")
        found = acts.model.predict(THETA, state, T, near, "covariance")
        W = S.T @ KERNEL(X) @ S + 0.1 * S.T @ S
        mean, cov = oracle.posterior(W, KERNEL(T, X) @ S, KERNEL(T), S.T @ y, 0.0)
        close([found.mean, found.covariance], [mean, cov])
        with pytest.raises(StoreError, match="points that the model reads back are gone"):
            list(dataclasses.replace(near, points=len(weights) + 1))


# -- mini-batches ------------------------------------------------------------------------------

MANY = (2, 1, 3) * 14


@pytest.mark.parametrize(
    ("form", "sizes", "gaps"),
    [
        ("sparse", RAGGED, (3, 12)),
        pytest.param("support", (35,), (3, 12), marks=pytest.mark.slow),
        pytest.param("support", MANY, (), marks=pytest.mark.slow),
    ],
)
def test_a_mini_batch_is_unbiased(form, sizes, gaps, monkeypatch):
    monkeypatch.setattr(task, "DRAW_ROWS", 4)  # of the ragged blocks, the ends are shorter
    acts, weights = made(form, sizes, gaps=gaps)
    full = acts.evaluate(weights)
    wanted = np.array([full.value, *full.kernel, full.noise, *full.weights])
    draws = 30 if sizes is MANY else 60
    each = [acts.evaluate(weights, (12, seed)) for seed in range(draws)]
    found = np.array([[e.value, *e.kernel, e.noise, *e.weights] for e in each])
    error = found.std(axis=0) / np.sqrt(draws)
    assert found[:, 0].std() > 0
    assert (np.abs(found.mean(axis=0) - wanted) <= 4.5 * error + 1e-9).all()


def test_all_rows_as_a_mini_batch_are_the_full_sums():
    for form in ("sparse", "support"):
        acts, weights = made(form)
        full = acts.evaluate(weights)
        close(acts.evaluate(weights, (sum(RAGGED), 3)), full)


def test_the_same_seed_draws_the_same_rows():
    acts, weights = made("sparse", MANY)
    first, again, other = (acts.evaluate(weights, (12, k)) for k in (5, 5, 6))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert other.value != first.value


@pytest.mark.parametrize("form", ["sparse", "support"])
@pytest.mark.parametrize("sizes", [RAGGED, MANY, (200,) * 40])
@pytest.mark.parametrize("number", [1, 12, 30])
def test_parts_are_drawn_from_few_blocks(form, sizes, number):
    acts, _ = made(form, sizes)
    drawn = acts.pairs.rows.batch(number, 4).units
    assert len(drawn) == min(len(sizes), DRAWS)
    assert {unit.own for unit in drawn} <= set(acts.pairs.rows.spans)
    rows = [unit.draw.number for unit in drawn]
    assert {unit.draw.seed for unit in drawn} == {4}
    assert all(1 <= few <= unit.own.rows for few, unit in zip(rows, drawn, strict=True))
    assert sum(rows) <= max(number, len(drawn)) + len(drawn)
    assert [unit.draw.among(unit.own, unit.own).sum() for unit in drawn] == rows
    share = len(sizes) / len(drawn)
    for few, unit in zip(rows, drawn, strict=True):
        assert unit.weight == pytest.approx(share * unit.own.rows / few)
    assert all(unit.draw is None for unit in acts.pairs.points.units)
    assert sum(unit.own.rows for unit in acts.pairs.points.units) == len(acts.pairs.points.rows)


def test_long_blocks_are_drawn_from_in_stretches(monkeypatch):
    monkeypatch.setattr(task, "DRAW_ROWS", 4)
    acts, _ = made("sparse", (30, 5))
    stretches = acts.pairs.rows.batch(20, 0).spans
    assert max(span.rows for span in stretches) == 4
    assert len(stretches) == 10
    assert sum(span.rows for span in stretches) == 35
    assert any(span.stop == 30 for span in stretches)  # no stretch is of two blocks
    assert stretches[0].start == 0
    assert stretches[-1].stop == 35


def test_every_block_is_drawn_about_as_often():
    acts, _ = made("sparse", MANY)
    counts = dict.fromkeys(acts.pairs.rows.spans, 0)
    for seed in range(400):
        for span in acts.pairs.rows.batch(40, seed).spans:
            counts[span] += 1
    share = np.array(list(counts.values())) / 400
    np.testing.assert_allclose(share, DRAWS / len(MANY), atol=0.1)
    found = {acts.pairs.rows.batch(40, seed).spans for seed in range(10)}
    assert len(found) == 10


BOTH, ROW, POINT = (1.0, True), (1.0, False), (None, True)


@pytest.mark.parametrize("batch", [None, (12, 4)])
@pytest.mark.parametrize(
    ("form", "loss", "kinds"),
    [
        ("sparse", "elbo", {BOTH}),
        ("support", "elbo", {ROW, POINT}),
        ("sparse", "projected", {POINT}),  # needs the targets of points alone
        ("support", "projected", {POINT}),
    ],
)
def test_which_rows_count_and_which_are_points(form, loss, kinds, batch, monkeypatch):
    acts, weights = made(form, loss=loss)
    n, a = len(acts.pairs.rows.rows), len(acts.pairs.points.rows)
    seen, pull, at_rows, at_points = [], CaGP.pull, CaGP.at_rows, CaGP.at_points
    sums = {"rows": 0, "points": 0}

    def pulled(self, theta, block, F, panels, cotangent, own, weight):
        seen.append((len(block.X), weight, own is not None))
        return pull(self, theta, block, F, panels, cotangent, own, weight)

    def over_rows(self, theta, block, F, factored, weight):
        sums["rows"] += len(block.X)
        return at_rows(self, theta, block, F, factored, weight)

    def over_points(self, F, block, own):
        sums["points"] += len(block.X)
        return at_points(self, F, block, own)

    for name, watched in (("pull", pulled), ("at_rows", over_rows), ("at_points", over_points)):
        monkeypatch.setattr(CaGP, name, watched)
    acts.evaluate(weights, batch)
    counted = sum(rows for rows, weight, _ in seen if weight is not None)
    assert sum(rows for rows, _, own in seen if own) == sums["points"] == a
    assert counted == sums["rows"]
    if batch is None:
        assert {(weight, own) for _, weight, own in seen} == kinds
        assert counted == (n if acts.model.needs_rows else 0)
    elif acts.model.needs_rows:  # those that are drawn are other rows than points
        assert all((weight is None) is own for _, weight, own in seen)
        assert counted == sum(unit.rows for unit in acts.pairs.rows.batch(*batch).units) < n
    else:
        assert {(weight, own) for _, weight, own in seen} == {POINT}
