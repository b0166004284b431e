"""The stream of mini-batches: every row once an epoch, the same rows wherever it runs."""

import gc
import threading
import time
import weakref

import dask
import numpy as np
import pytest

from daskgp.data import Rows, dataset_arrays, partition, rows_of
from daskgp.data.blocks import sampling
from daskgp.data.blocks.draws import AllBut
from daskgp.errors import RunError
from daskgp.fit import minibatches
from daskgp.fit.minibatches import Stream
from daskgp.models import scaling
from daskgp.runtime.executor import Executor, mapped

CHUNK = 10


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Lanes of 8 rows and pools of few blocks, so that little data shows what much does."""
    monkeypatch.setattr(minibatches, "LANE_ROWS", 8)
    monkeypatch.setattr(minibatches, "POOL_BATCHES", 2)
    monkeypatch.setattr(minibatches, "POOL_BLOCKS", 2)


def threaded():
    return Executor(None, False)


def numbered(n, gaps=()):
    """Rows whose first feature, and target, is their number; y of those in ``gaps`` is missing."""
    X = np.column_stack([np.arange(n), -np.arange(n)]).astype(float)
    y = np.arange(float(n))
    y[list(gaps)] = np.nan
    return X, y


def in_memory(n, gaps=()):
    return Rows(*numbered(n, gaps), None, ("a", "b"), ("y",))


def on_disk(make_store, n, gaps=(), chunk=CHUNK):
    X, y = dataset_arrays(make_store(*numbered(n, gaps), rows=chunk))
    return rows_of(X, y, None, False)


def stream_of(rows, batch_rows=20, executor=None, cut=CHUNK, seed=0, **more):
    spans = tuple(partition.blocks(len(rows), rows.chunks, cut))
    same = scaling.identity(rows.n_features, rows.n_targets)
    executor = executor or threaded()
    return Stream(rows, spans, same, executor, "float64", batch_rows, seed, **more)


def values(batches, executor=None):
    """What the shares of the next batch hold: X and y of each."""
    found = [held(share, executor) for share in batches.take()]
    return [tuple(np.concatenate(part) for part in zip(*parts, strict=True)) for parts in found]


def held(share, executor=None):
    """What the parts of a share hold."""
    given = zip(share.pools, share.rows, strict=True)
    nodes = mapped(part, list(given), "part")
    if executor is None:
        found = [node.compute(scheduler="sync") for node in nodes]
    else:
        found = executor.compute_all(nodes)
    assert sum(len(X) for X, _ in found) == share.size
    return found


def part(pool, rows):
    return pool.X[rows], pool.y[rows]


def numbers(batches, executor=None):
    """The numbers of the rows of the next batch, those of each lane."""
    found = []
    for X, y in values(batches, executor):
        np.testing.assert_array_equal(X, np.column_stack([y, -y]))
        found.append(y[:, 0].astype(int).tolist())
    return found


def epochs(batches, number):
    """Parts of batches of each of some epochs; lanes may differ in the one they are in."""
    found = [[] for _ in range(number)]
    for _ in range(10_000):
        shares = batches.take()
        for share in shares:
            for epoch, (_, y) in zip(share.epochs, held(share), strict=True):
                if epoch < number:
                    found[epoch].append(y[:, 0].astype(int).tolist())
        if all(share.epochs[-1] >= number for share in shares):
            return found
    raise AssertionError("the stream does not come to an end of an epoch")


def flat(batches):
    return [row for batch in batches for row in batch]


# -- every row once --------------------------------------------------------------------------


@pytest.mark.parametrize("batch_rows", [1, 5, 20, 30, 101])
@pytest.mark.parametrize("where", ["memory", "zarr"])
def test_every_complete_row_comes_once_an_epoch(where, batch_rows, make_store):
    gaps = (0, 3, 47, 48, 100)
    rows = in_memory(101, gaps) if where == "memory" else on_disk(make_store, 101, gaps)
    with stream_of(rows, batch_rows) as batches:
        assert len(batches.take()) == -(-batch_rows // 8)
        batches = stream_of(rows, batch_rows)
        for found in epochs(batches, 3):
            assert sorted(flat(found)) == sorted(set(range(101)) - set(gaps))
        batches.close()


@pytest.mark.parametrize("n", [1, 2, 9, 64])
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_chunks_of_one_row_and_fewer_rows_than_a_chunk(n, chunk, make_store):
    with stream_of(on_disk(make_store, n, chunk=chunk), min(n, 7), cut=None) as batches:
        for found in epochs(batches, 2):
            assert sorted(flat(found)) == list(range(n))


@pytest.mark.parametrize("batch_rows", [6, 20])
def test_chunks_without_a_complete_row_are_passed_over(batch_rows, make_store):
    gaps = [i for i in range(100) if not 37 <= i < 52]  # two chunks of ten hold all there is
    with stream_of(on_disk(make_store, 100, gaps), batch_rows) as batches:
        for found in epochs(batches, 3):
            assert sorted(flat(found)) == list(range(37, 52))
            assert all(found)


def test_each_epoch_has_an_order_of_its_own():
    with stream_of(in_memory(100)) as batches:
        first, second, third = map(flat, epochs(batches, 3))
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second != third != first
    apart = np.abs(np.diff(first))
    assert (apart == 1).mean() < 0.2  # rows of a batch are from all over their blocks


def test_the_seed_says_the_order():
    found = []
    for seed in (3, 3, 4):
        with stream_of(in_memory(100), seed=seed) as batches:
            found.append([numbers(batches) for _ in range(12)])
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("batch_rows", [7, 8, 20, 33])
def test_every_batch_has_the_rows_asked_for(batch_rows):
    lanes = -(-batch_rows // 8)
    gaps = range(40, 95)  # some blocks have few rows, some none: all rows count the same
    with stream_of(in_memory(403, gaps), batch_rows) as batches:
        assert {len(flat(numbers(batches))) for _ in range(60)} == {batch_rows}
    with stream_of(in_memory(403), batch_rows) as batches:
        assert {len(batches.take()) for _ in range(10)} == {lanes}


@pytest.mark.parametrize("batch_rows", [6, 20])
@pytest.mark.parametrize("cut", [7, 10, 100])
def test_rows_that_are_held_out_never_come(batch_rows, cut):
    rows, seed = in_memory(100, (5, 50)), (0, 11)
    same = scaling.identity(2, 1)
    spans = partition.blocks(100, None, 13)
    drawn = sampling.draw(rows, spans, same, 23, sampling.Keys(seed), threaded())
    held = AllBut(seed, int(drawn.keys.max()))
    left = set(range(100)) - {5, 50} - set(drawn.rows.y[:, 0].astype(int))
    assert len(left) == 75
    with stream_of(rows, batch_rows, cut=cut, held_out=held) as batches:
        for found in epochs(batches, 2):
            assert sorted(flat(found)) == sorted(left)


def test_rows_come_scaled_and_in_the_precision_asked_for():
    rows = in_memory(40)
    own = scaling.Scaling(
        np.array([3.0, 0.0]), np.array([2.0, 5.0]), np.ones(1), np.zeros((2, 1)), np.full(1, 4.0)
    )
    spans = tuple(partition.blocks(40, None, CHUNK))
    with Stream(rows, spans, own, threaded(), "float32", 8, 0) as batches:
        ((X, y),) = values(batches)
    assert (X.dtype, y.dtype) == (np.float32, np.float64)
    number = 4.0 * y[:, 0] + 1.0
    np.testing.assert_allclose(X, np.column_stack([(number - 3) / 2, -number / 5]), rtol=1e-6)


# -- from where it was -----------------------------------------------------------------------


def exact(batches, count):
    return [[(X.tobytes(), y.tobytes()) for X, y in values(batches)] for _ in range(count)]


@pytest.mark.parametrize("batch_rows", [6, 20])
@pytest.mark.parametrize("gaps", [(), range(13, 88)])
def test_a_stream_goes_on_from_its_places(batch_rows, gaps):
    rows = in_memory(100, gaps)
    with stream_of(rows, batch_rows) as whole:
        for _ in range(8):  # in the middle of pools, at their ends and at those of epochs
            places = whole.where()
            with stream_of(rows, batch_rows, places=places) as again:
                np.testing.assert_array_equal(again.where(), places)
                following = exact(again, 3)
            with stream_of(rows, batch_rows, places=places) as again:
                assert exact(again, 3) == following
            assert exact(whole, 1) == following[:1]


def test_what_was_not_taken_does_not_count():
    with stream_of(in_memory(100)) as batches:
        time.sleep(0.05)  # the first pools have been read
        np.testing.assert_array_equal(batches.where(), np.zeros((3, 3)))


# -- wherever it runs ------------------------------------------------------------------------


@pytest.mark.parametrize("batch_rows", [20])
def test_the_same_batches_for_any_workers(batch_rows, make_store, client):
    rows = on_disk(make_store, 83, (4, 50))

    def found(executor, **more):
        with stream_of(rows, batch_rows, executor, **more) as batches:
            return [numbers(batches, executor) for _ in range(9)]

    wanted = found(threaded())
    assert len(wanted[0]) == -(-batch_rows // 8)
    for scheduler in ("sync", "threads"):
        with dask.config.set(scheduler=scheduler, num_workers=1):
            assert found(threaded()) == wanted
    assert found(Executor(client, False)) == wanted
    with stream_of(rows, batch_rows, Executor(client, False), fetch=True) as batches:
        assert [numbers(batches) for _ in range(9)] == wanted  # computed here, read there
        pools = [pool for share in batches.take() for pool in share.pools]
        here = {type(pool.compute(scheduler="sync")).__name__ for pool in pools}
    assert here == {"Block"}


def test_pools_that_are_used_up_leave_the_workers(make_store, client):
    rows, executor = on_disk(make_store, 200), Executor(client, False)
    with stream_of(rows, 8, executor) as batches:
        for _ in range(20):
            batches.take()
        held = [key for keys in client.has_what().values() for key in keys]
        assert len([key for key in held if "batches-" in str(key)]) <= 4


# -- ahead of time ---------------------------------------------------------------------------


class Gate:
    """Reads like an array, as many times as it is told, and then waits to be let through."""

    def __init__(self, array, passes):
        self.array, self.passes = array, passes
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype
        self.waiting, self.open, self.reads = threading.Event(), threading.Event(), 0

    def __getitem__(self, rows):
        self.reads += 1
        if self.reads > self.passes:
            self.waiting.set()
            assert self.open.wait(30)
        return self.array[rows]


def gated(n, passes):
    X, y = numbered(n)
    return Rows(Gate(X, passes), y, None, ("a", "b"), ("y",))


def test_the_next_pool_is_read_while_the_first_is_used():
    rows = gated(100, passes=2)  # a pool has two blocks of ten rows
    with stream_of(rows, 5) as batches:
        taken = numbers(batches)
        assert rows.X.waiting.wait(30)
        assert rows.X.reads == 3
        for _ in range(3):
            taken += numbers(batches)  # no need to wait for what comes after
        assert len(flat(taken)) == 20
        assert not rows.X.open.is_set()
        rows.X.open.set()
        assert len(flat(numbers(batches))) == 5


def test_pools_are_bounded_and_two_of_a_lane_are_held(monkeypatch):
    alive, sizes, pool = [], [], minibatches._Source.pool

    def watched(self, spans, seed):
        block = pool(self, spans, seed)
        alive.append(weakref.ref(block.X))
        sizes.append(len(block.X))
        return block

    monkeypatch.setattr(minibatches._Source, "pool", watched)
    monkeypatch.setattr(minibatches, "POOL_BYTES", 3 * CHUNK * 8 * 3)  # three blocks
    monkeypatch.setattr(minibatches, "POOL_BLOCKS", 100)
    most = 0
    with stream_of(in_memory(400), 16) as batches:
        for i in range(24):
            numbers(batches)
            if i % 4 == 0:
                gc.collect()
            most = max(most, sum(array() is not None for array in alive))
    assert max(sizes) == 3 * CHUNK
    assert len(sizes) > 10
    assert most <= 2 * 2 + 2  # and those that were used up since
    monkeypatch.setattr(minibatches, "POOL_BYTES", 1)  # a block is the least
    sizes.clear()
    with stream_of(in_memory(400), 16) as batches:
        for _ in range(20):
            numbers(batches)
    assert set(sizes) == {CHUNK}


# -- the end ---------------------------------------------------------------------------------


def readers():
    return [t for t in threading.enumerate() if t.name.startswith("daskgp-read")]


def test_closing_stops_reading_and_leaves_no_thread():
    rows = gated(100, passes=3)
    batches = stream_of(rows, 20)  # three lanes, whose pools are read one after another
    assert len(readers()) == 1
    assert rows.X.waiting.wait(30)
    closing = threading.Thread(target=batches.close)
    closing.start()
    time.sleep(0.2)
    rows.X.open.set()
    closing.join(30)
    assert readers() == []
    assert rows.X.reads == 6  # the pool of three blocks that was being read, and none after it


def test_one_stream_after_another_does_not_pile_up_threads():
    counts = []
    for _ in range(4):
        with stream_of(in_memory(60)) as batches:
            numbers(batches)
        counts.append(threading.active_count())
    assert counts[3] <= counts[1]


def test_an_error_of_reading_reaches_who_takes():
    class Broken(Gate):
        def __getitem__(self, rows):
            if rows.start >= 50:
                raise OSError("connection reset by the store")
            return self.array[rows]

    X, y = numbered(100)
    rows = Rows(Broken(X, 0), y, None, ("a", "b"), ("y",))
    with (
        stream_of(rows, 5) as batches,
        pytest.raises(RunError, match="connection reset by the store"),
    ):
        epochs(batches, 1)
    assert readers() == []
