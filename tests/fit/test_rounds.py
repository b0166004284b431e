"""Rounds: every block once, the same bits wherever they run, small graphs, lost workers."""

import contextlib
import copy
import dataclasses
import functools
import os
import pathlib
import pickle
import re
import signal
import uuid

import cloudpickle
import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from fits import arrived

from daskgp import kernels
from daskgp.data import Rows, dataset_arrays, partition, rows_of
from daskgp.data.blocks import sampling
from daskgp.errors import RunError
from daskgp.fit import rounds
from daskgp.models import scaling
from daskgp.models.method import Pass
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Theta
from daskgp.runtime.executor import FAN_IN, Executor, map_reduce, node
from tests.fit import toy

CHUNK = 23
S = 1.3


def rounds_of(url, executor, rows=None, reach=0, **settings):
    if rows is None:
        X, y = dataset_arrays(url)
        rows = rows_of(X, y, "memory://unused", executor.shares_memory)
    spans = tuple(partition.blocks(len(rows), rows.chunks, CHUNK))
    scale = scaling.identity(rows.n_features, rows.n_targets)
    units = partition.following(spans, reach)
    return rounds.Rounds(rows, units, scale, executor, **settings)


def total_of(model, stage, s=S):
    """The sum of the summaries of all blocks."""
    return model.summed(toy.theta(s), stage)[1]


@pytest.fixture
def store(make_store):
    """18 blocks: a tree of two levels with a ragged end."""
    return make_store(*toy.data(400), rows=CHUNK)


def in_memory(n=1000):
    X, y = toy.data(n)
    return Rows(X, y, None, ("a", "b", "c"), ("u", "v"))


def threaded():
    return Executor(None, False)


def test_tasks_of_workers_multiply_as_those_of_one_process_do(monkeypatch):
    weights, tile = (np.random.default_rng(0).standard_normal((57, k)) for k in (2, 57))
    monkeypatch.setattr("daskgp.runtime.executor.this_worker", lambda: True)
    shared = [node("shared", arrived((weights, tile)))]
    found = map_reduce(_product, np.add, [1.0, 2.0], threaded(), "product", shared)
    np.testing.assert_array_equal(found, 3.0 * (weights.T @ tile))


def _product(piece, both):
    weights, tile = both
    return piece * (weights.T @ tile)


@pytest.mark.parametrize(("model", "reach"), [(toy.Sum(), 0), (toy.Near(), 1), (toy.Near(), 2)])
@pytest.mark.parametrize("n", [1, 23, 24, 1000])
def test_every_block_is_summed_once_with_the_blocks_near_it(model, reach, n):
    rows = in_memory(n)
    stage = rounds_of(None, threaded(), rows, reach)
    total = total_of(model, stage)
    wanted = toy.window_sums(rows.X, rows.y, stage.spans, reach, S)
    np.testing.assert_allclose(total.total, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())
    assert total.count == n


@pytest.mark.parametrize(("model", "reach"), [(toy.Sum(), 0), (toy.Near(), 2)])
def test_value_and_gradient_are_two_rounds_of_either_shape(model, reach):
    stage = rounds_of(None, threaded(), in_memory(300), reach)

    def value(log_s):
        return model.objective(None, total_of(model, stage, np.exp(log_s))).value

    found = model.evaluate(toy.theta(S), stage)
    at, step = np.log(S), 1e-5
    assert found.value == pytest.approx(value(at), rel=1e-15)
    slope = (value(at + step) - value(at - step)) / (2 * step)
    assert found.gradient.noise == pytest.approx(slope, rel=1e-7)


def test_windows_are_shorter_at_the_end():
    spans = [partition.Span(i, i + 1) for i in range(4)]
    assert [len(w.near) for w in partition.following(spans, 2)] == [2, 2, 1, 0]
    assert [w.own for w in partition.following(spans, 2)] == spans
    assert partition.following(spans, 0) == partition.alone(spans)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 65, 130])
def test_the_tree_keeps_the_order_of_blocks_and_its_shape(n):
    spans = [(partition.Span(i, i + 1),) for i in range(n)]
    found = map_reduce(_number, _join, spans, threaded(), "order")
    level = [str(i) for i in range(n)]
    while len(level) > 1:
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        level = [functools.reduce(_join, group) for group in groups]
    assert found == level[0]


def _number(spans):
    return str(spans[0].start)


def _join(a, b):
    return f"({a}+{b})"


def test_a_light_pass_is_the_same_sum_in_fewer_tasks(store, caplog):
    stage = rounds_of(store, Executor(None, show=False), least_tasks=64)
    found, tasks = [], []
    for light in (False, True):
        over = Pass("y", lambda piece: piece.own.y.sum(axis=0), np.add, light=light)
        with caplog.at_level("INFO", logger="daskgp"):
            found.append(stage.sum(over))
        tasks += re.findall(r'round="y",tasks="(\d+)"', caplog.text)
        caplog.clear()
    assert tasks == ["18", "1"]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_a_round_does_not_change_what_its_tasks_gave():
    kept = {i: toy.Stats(np.full((2, 2), 10.0**i), 1.0) for i in range(5)}
    before = copy.deepcopy(kept)
    spans = [(partition.Span(i, i + 1),) for i in range(5)]
    with dask.config.set(scheduler="sync"):
        total = map_reduce(lambda s: kept[s[0].start], toy.Sum().combine, spans, threaded(), "keep")
    assert total.total[0, 0] == 11111.0
    for i, stats in kept.items():
        np.testing.assert_array_equal(stats.total, before[i].total)


def test_rows_with_missing_values_are_dropped_inside_the_task():
    rows = in_memory(200)
    X, y = rows.X.copy(), rows.y.copy()
    X[:30, 1], y[100, 0] = np.nan, np.nan  # a whole block and one more row
    rows = dataclasses.replace(rows, X=X, y=y)
    stage = rounds_of(None, threaded(), rows)
    total = total_of(toy.Sum(), stage)
    keep = ~(np.isnan(X).any(axis=1) | np.isnan(y).any(axis=1))
    assert total.count == keep.sum() == 169
    np.testing.assert_allclose(total.total, S * X[keep].T @ y[keep], rtol=1e-9)
    sums = sampling.describe(stage.rows, stage.spans, threaded())
    assert (sums.rows, sums.dropped) == (169, 31)


# -- the same bits everywhere --------------------------------------------------------------


def bits(value):
    return [np.asarray(part).tobytes() for part in value if part is not None]


def everything(url, executor):
    """All that a fit asks of the rounds, as bytes."""
    found = []
    for model, reach in ((toy.Sum(), 0), (toy.Near(), 2)):
        stage = rounds_of(url, executor, reach=reach)
        found += bits(total_of(model, stage))
        objective = model.evaluate(toy.theta(S), stage)
        found += bits([objective.value, objective.gradient.noise])
    sums = sampling.describe(stage.rows, stage.spans, executor)
    scale = scaling.solve(sums, stage.rows.n_features, "ols", True)
    keys = sampling.Keys.by_content((0, 1), stage.rows, sums)
    sample = sampling.draw(stage.rows, stage.spans, scale, 200, keys, executor).rows
    theta = Theta(kernels.Matern32((1.0, 2.0, 0.5)), 0.1, sample.X[:30])
    units, model = partition.alone(stage.spans), SGPR(tile_rows=7)
    stage = rounds.Rounds(stage.rows, units, scale, executor)
    objective = model.evaluate(theta, stage)
    return [
        *found,
        *bits(sums),
        *bits(sample),
        *bits(model.summed(theta, stage)[1]),
        *bits(objective[:1]),
        *bits(objective.gradient),
    ]


def test_one_and_four_workers_and_threads_give_the_same_bits(store, client):
    four = everything(store, Executor(client, False))
    threads = everything(store, threaded())
    with dask.config.set(scheduler="sync"):
        single = everything(store, threaded())
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="600MiB", dashboard_address=None
        ) as alone,
        Client(alone, set_as_default=False) as other,
    ):
        one = everything(store, Executor(other, False))
    assert four == one
    assert threads == single == one


def test_another_order_of_summation_would_show():
    X, y = toy.data()
    forward = sum((np.outer(a, b) for a, b in zip(X, y, strict=True)), np.zeros((3, 2)))
    backward = sum(
        (np.outer(a, b) for a, b in zip(X[::-1], y[::-1], strict=True)), np.zeros((3, 2))
    )
    assert not np.array_equal(forward, backward)


# -- graphs --------------------------------------------------------------------------------


class Recorder(Executor):
    """Keeps the graphs it is asked to compute."""

    def compute(self, root, *more):
        GRAPHS.append(dict(root.__dask_graph__()))
        return super().compute(root, *more)


GRAPHS = []


@pytest.fixture
def graphs():
    GRAPHS.clear()
    return GRAPHS


def test_what_tasks_share_is_one_node_and_tasks_are_small(store, graphs):
    theta = Theta(kernels.RBF(1.0), 0.1, np.random.default_rng(0).standard_normal((300, 3)))
    stage, model = rounds_of(store, Recorder(None, False)), SGPR()
    shared = len(cloudpickle.dumps(model.prepare(theta)))
    assert shared > 300 * 300 * 8
    model.evaluate(theta, stage)
    n = len(stage.spans)
    assert n == 18
    assert len(graphs) == 2
    for graph, nodes in zip(graphs, (1, 2), strict=True):  # and the cotangent in the second
        assert len(graph) <= n + n // 7 + 2 + nodes  # maps, sums and what is shared
        sizes = sorted(len(cloudpickle.dumps(task)) for task in graph.values())
        assert sizes[-nodes] > 300 * 300 * 8
        assert sizes[-nodes - 1] < 6_000
        assert len(cloudpickle.dumps(graph)) < 1.1 * nodes * shared + 2_000 * len(graph)


@dataclasses.dataclass(frozen=True)
class Counting(SGPR):
    """Keeps the arguments of prepare in a folder, from whatever process."""

    folder: str = ""

    def prepare(self, theta):
        (pathlib.Path(self.folder) / f"{os.getpid()}-{uuid.uuid4()}").touch()
        return super().prepare(theta)


@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_what_tasks_share_is_computed_once_and_here(store, client, tmp_path, where):
    theta = Theta(kernels.RBF(1.0), 0.1, np.random.default_rng(0).standard_normal((5, 3)))
    executor = threaded() if where == "threads" else Executor(client, False)
    stage, model = rounds_of(store, executor), Counting(folder=str(tmp_path / "calls"))
    for compute in (model.evaluate, model.solve, model.summed, model.block_gradients):
        (tmp_path / "calls").mkdir()
        compute(theta, stage)
        (call,) = (tmp_path / "calls").iterdir()
        assert call.name.startswith(f"{os.getpid()}-")
        call.unlink()
        (tmp_path / "calls").rmdir()


def test_a_graph_does_not_grow_from_one_round_to_the_next(store, graphs):
    stage = rounds_of(store, Recorder(None, False))
    for s in (0.5, 1.0, 2.0):
        total_of(toy.Sum(), stage, s)
    assert len({len(graph) for graph in graphs}) == 1
    keys = [key for graph in graphs for key in graph]
    assert len(set(keys)) == len(keys)  # a result is never mistaken for that of another round


@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_progress_counts_the_map_tasks(store, client, monkeypatch, where):
    lines = []

    @contextlib.contextmanager
    def line(label, total, amount, show):
        steps = []
        lines.append((label, total, amount.rows, show, steps))
        yield lambda: steps.append(1)

    monkeypatch.setattr("daskgp.runtime.executor.progress_line", line)
    executor = Executor(client if where == "cluster" else None, True)
    stage = rounds_of(store, executor)
    total_of(toy.Sum(), stage)
    n = sum(unit.own.rows for unit in stage.units)
    assert lines == [("toy-sum-local", 18, n, True, [1] * 18)]


# -- faults --------------------------------------------------------------------------------


def test_a_worker_killed_in_the_middle_of_a_round_changes_nothing(store, client, tmp_path):
    wanted = total_of(toy.Sum(), rounds_of(store, threaded()))
    before = client.run(os.getpid)
    deadly = toy.Deadly(marker=str(tmp_path / "killed"))
    found = total_of(deadly, rounds_of(store, Executor(client, False)))
    assert (tmp_path / "killed").exists()
    assert bits(found) == bits(wanted)
    client.wait_for_workers(4, timeout=60)
    assert len(set(client.run(os.getpid).values()) - set(before.values())) == 1


def test_a_transient_read_error_is_retried(client, tmp_path):
    X, y = toy.data(100)
    marker = str(tmp_path / "failed")
    flaky = Rows(toy.Flaky(X, marker, times=3), y, None, ("a", "b", "c"), ("u", "v"))
    found = total_of(toy.Sum(), rounds_of(None, Executor(client, False), flaky))
    plain = Rows(X, y, None, ("a", "b", "c"), ("u", "v"))
    wanted = total_of(toy.Sum(), rounds_of(None, threaded(), plain))
    assert len(list(tmp_path.iterdir())) == 3
    assert bits(found) == bits(wanted)


def test_workers_that_keep_dying_are_one_plain_error(store, client):
    client.run_on_scheduler(_allow_no_failure)
    try:
        with pytest.raises(RunError, match="workers died repeatedly") as caught:
            total_of(Suicidal(), rounds_of(store, Executor(client, False)))
        assert "\n" not in str(caught.value)
    finally:
        client.run_on_scheduler(_allow_some_failures)
        client.wait_for_workers(4, timeout=60)


class Suicidal(toy.Sum):
    def _sum(self, block, near):
        if block.y[0, 0] == toy.data(400)[1][0, 0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._sum(block, near)


def _allow_no_failure(dask_scheduler):
    dask_scheduler.allowed_failures = 0


def _allow_some_failures(dask_scheduler):
    dask_scheduler.allowed_failures = 3


def sample_of(rows, cut, number):
    spans = partition.blocks(len(rows), None, cut)
    sums = sampling.describe(rows, spans, threaded())
    keys = sampling.Keys.by_content((7, 1), rows, sums)
    return sampling.draw(rows, spans, scaling.identity(3, 2), number, keys, threaded()).rows


def test_a_sample_is_full_where_missing_rows_cluster():
    rows = in_memory(2000)
    rows.X[:1900, 0] = np.nan
    assert len(sample_of(rows, 100, 60).X) == 60
    every = sample_of(rows, 100, 200)
    found, left = (np.column_stack(part) for part in (every[:2], (rows.X[1900:], rows.y[1900:])))
    np.testing.assert_array_equal(*(a[np.lexsort(a.T)] for a in (found, left)))


def test_every_usable_row_is_as_likely_to_be_drawn():
    rows = dataclasses.replace(in_memory(20_000), X=np.repeat(np.arange(20_000.0)[:, None], 3, 1))
    rows.X[:5_000] = np.nan
    drawn = sample_of(rows, 300, 3_000).X[:, 0]
    counts, _ = np.histogram(drawn, bins=15, range=(5_000, 20_000))
    assert counts.sum() == 3_000
    np.testing.assert_allclose(counts, 200, atol=5 * np.sqrt(200))


def test_models_and_rows_are_plain_values_that_travel(store):
    stage = rounds_of(store, threaded())
    X, y = pickle.loads(pickle.dumps(stage.rows)).read(20, 40)
    np.testing.assert_array_equal(X, toy.data(400)[0][20:40])
    np.testing.assert_array_equal(y, toy.data(400)[1][20:40])
