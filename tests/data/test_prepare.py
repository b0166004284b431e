"""Blocks of nearby rows: the exact stable sort, whatever the rows, the chunks and the workers."""

import itertools
import os

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import daskgp
from daskgp.data import Rows, behind, exists, partition, remove, rows_of
from daskgp.data.blocks import prepare as preparing
from daskgp.data.blocks import prepared, sampling, sorting
from daskgp.data.blocks.layout import Layout, balanced, read_layout
from daskgp.data.blocks.ordering import make_order
from daskgp.data.blocks.prepare import arrange, prepare
from daskgp.data.blocks.sampling import Keys, describe
from daskgp.data.stores import groups
from daskgp.errors import InputError, StoreError
from daskgp.runtime.executor import Executor


def data(n=600, d=2, p=0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.0, 3.0, (n, d)), rng.standard_normal((n, p) if p else n)


def threaded():
    return Executor(None, False)


def random_keys(X, y, seed):
    rows = rows_of(X, y, None, True)
    sums = describe(rows, partition.blocks(len(X), None, 100), threaded())
    return Keys.of_order(seed, rows, sums).of(0, X, y.reshape(len(y), -1))


def sorted_by(layout, X, y):
    """Complete rows in the order of their keys; equal keys keep their order."""
    whole = ~(np.isnan(X).any(axis=1) | np.isnan(y.reshape(len(y), -1)).any(axis=1))
    order = layout.order
    keys = random_keys(X, y, order.seed) if order.kind == "random" else order.keys(X)
    X, y, keys = X[whole], y[whole], keys[whole]
    line = np.argsort(keys, kind="stable")
    return X[line], y[line], keys[line]


def check(url, X, y, block_rows=None):
    """The store holds exactly the sorted rows, and says the blocks that they are in."""
    stored_X, stored_y = daskgp.open_dataset(url)
    layout = read_layout(stored_X)
    wanted_X, wanted_y, keys = sorted_by(layout, X, y)
    np.testing.assert_array_equal(stored_X.compute(), wanted_X)
    np.testing.assert_array_equal(stored_y.compute(), wanted_y)
    assert stored_y.ndim == y.ndim
    n = len(wanted_X)
    assert layout.rows == n == layout.spans[-1].stop
    assert layout.n_blocks == len(layout.spans) == len(layout.centroids)
    if block_rows is not None:
        assert layout.n_blocks == -(-n // block_rows)
        assert layout.block_rows == balanced(n, block_rows) <= block_rows
    assert {span.rows for span in layout.spans[:-1]} <= {layout.block_rows}
    np.testing.assert_array_equal(layout.cuts, [keys[span.start] for span in layout.spans[1:]])
    means = [wanted_X[slice(*span)].mean(axis=0, dtype=float) for span in layout.spans]
    np.testing.assert_allclose(layout.centroids, means, rtol=1e-12, atol=1e-14)
    step = stored_X.chunksize[0]
    assert stored_X.numblocks[0] == 1 or step % layout.block_rows == 0
    marks = zarr.open_group(url, mode="r").attrs
    assert marks["complete"] is True
    assert len(marks["uuid"]) == 32
    members = set(zarr.open_group(url, mode="r").keys())
    assert members == {"X", "y", "block_cuts", "block_centroids"}
    return layout


@pytest.fixture
def thin(monkeypatch):
    """Runs, chunks and tasks of few rows, so that small data makes many of each."""
    monkeypatch.setattr(partition, "MIN_ROWS", 64)
    monkeypatch.setattr(preparing, "CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr(preparing, "PART_ROWS", (16, 4_096))


# -- the sort --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["auto", "pca", "kmeans", "b", ["b", "a"]])
@pytest.mark.parametrize(("n", "rows"), [(2, 10), (400, 37), (299, 300)])
@pytest.mark.usefixtures("thin")
def test_a_store_becomes_its_stable_sort(make_store, tmp_path, order, n, rows):
    X, y = data(n)
    source = make_store(X, y, rows=rows, feature_names=["a", "b"], target_names=["t"])
    url = str(tmp_path / "out.zarr")
    found = prepare(source, url, order=order, block_rows=25, progress=False)
    layout = check(url, X, y, 25)
    assert found == (n, 0, -(-n // 25), layout.block_rows, layout.order.kind)
    marks = zarr.open_group(url, mode="r").attrs
    assert (marks["feature_names"], marks["target_names"]) == (["a", "b"], ["t"])
    out = daskgp.open_dataset(url)[0]
    np.testing.assert_array_equal(
        layout.blocks_of(out.compute()), np.arange(n) // layout.block_rows
    )


@settings(max_examples=8)
@given(
    n=st.integers(2, 300),
    d=st.integers(1, 4),
    p=st.integers(0, 2),
    rows=st.integers(1, 90),
    block_rows=st.integers(1, 120),
    distinct=st.integers(1, 400),
    missing=st.integers(0, 3),
    order=st.sampled_from(["auto", "hilbert", "pca", "kmeans", "x0", "random"]),
)
def test_any_rows_in_any_chunks(n, d, p, rows, block_rows, distinct, missing, order):
    X, y = data(n, d, p, seed=n)
    X[n - n // 3 :] = X[: n // 3]
    X = X[np.arange(n) % min(distinct, n)]  # duplicated rows
    if distinct < n and (X[0] == X).all():
        X[-1] += 1.0
    for i in range(min(missing, n - 1)):
        (X if i % 2 else y)[i * 7 % n] = np.nan
    whole = ~(np.isnan(X).any(axis=1) | np.isnan(y.reshape(n, -1)).any(axis=1))
    if whole.sum() < 2 or np.ptp(X[whole], axis=0).min() == 0.0:
        return
    url = f"memory://prepared-{os.getpid()}"
    lazily = da.from_array(X, (rows, d)), da.from_array(y, (rows, *y.shape[1:]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "MIN_ROWS", 32)
        patch.setattr(preparing, "CHUNK_BYTES", 1 << 9)
        patch.setattr(preparing, "PART_ROWS", (16, 4_096))
        with dask.config.set(scheduler="sync"):
            found = prepare(lazily, url, order=order, block_rows=block_rows, progress=False)
        try:
            check(url, X, y, block_rows)
        finally:
            remove(url)
    assert (found.rows, found.dropped) == (whole.sum(), n - whole.sum())


@pytest.mark.usefixtures("thin")
def test_one_key_for_most_rows_costs_no_more_memory(tmp_path, monkeypatch):
    X, y = data(1500)
    X[100:1400] = 1.25
    url = str(tmp_path / "out.zarr")
    taken = spied(monkeypatch)
    prepare((X, y), url, block_rows=20, progress=False)
    layout = check(url, X, y, 20)
    assert len(taken) > 10
    assert max(taken.values()) < 3 * max(wide for _, wide in taken)
    # of equal keys it is the last block that has them
    assert len(np.unique(layout.blocks_of(X[100:1400]))) == 1


def spied(monkeypatch):
    """Rows read from runs by each task of the second pass, by the place and rows it writes."""
    taken, here, take, write = {}, [], prepared.Runs.take, sorting._write_piece

    def counting(self, index, start, stop):
        here.append(stop - start)
        return take(self, index, start, stop)

    def writing(target, wide, span, before):
        here.clear()
        found = write(target, wide, span, before)
        taken[span.start, span.rows] = sum(here)
        return found

    monkeypatch.setattr(prepared.Runs, "take", counting)
    monkeypatch.setattr(sorting, "_write_piece", writing)
    return taken


@pytest.mark.parametrize("order", ["pca", "random"])
@pytest.mark.whole
def test_a_task_reads_little_more_than_it_writes(tmp_path, monkeypatch, make_store, order):
    X, y = data(30_000)
    monkeypatch.setattr(preparing, "CHUNK_BYTES", 1 << 14)
    source = make_store(X, y, rows=3_000)
    taken = spied(monkeypatch)
    with dask.config.set(scheduler="sync"):
        prepare(source, str(tmp_path / "out.zarr"), order=order, block_rows=100, progress=False)
    assert len(taken) == 15
    assert sum(rows for _, rows in taken) == 30_000
    assert max(read / rows for (_, rows), read in taken.items()) < 1.25


def test_of_many_runs_a_task_writes_as_many_rows_as_one_has(tmp_path, monkeypatch):
    """The slices that are read are few beside the rows; what is written is the same."""
    X, y = data(6_000)
    monkeypatch.setattr(preparing, "CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr(preparing, "_run_rows", lambda rows: 500)
    monkeypatch.setattr(partition, "MIN_ROWS", 50)
    monkeypatch.setattr(partition, "MAX_ROWS", 50)
    taken, urls = spied(monkeypatch), [str(tmp_path / f"{many}.zarr") for many in (64, 4)]
    for url, many in zip(urls, (64, 4), strict=True):
        monkeypatch.setattr(preparing, "MANY_RUNS", many)
        taken.clear()
        with dask.config.set(scheduler="sync"):
            prepare((X, y), url, block_rows=50, progress=False)
        assert len(taken) == (120 if many == 64 else 12)
        assert max(read / rows for (_, rows), read in taken.items()) < 6
    few, many = (zarr.open_group(url, mode="r") for url in urls)
    for name in ("X", "y", "block_cuts"):
        np.testing.assert_array_equal(few[name][:], many[name][:])


@pytest.mark.parametrize("dtype", ["f4", "i8", "u1", "bool"])
def test_numbers_of_any_type_are_kept(tmp_path, dtype):
    X, y = data(300, 3)
    X = (X > 1.0) if dtype == "bool" else np.abs(50 * X).astype(dtype)
    url = str(tmp_path / "out.zarr")
    prepare((X, y.astype("f4")), url, block_rows=30, progress=False)
    check(url, X, y.astype("f4"), 30)
    assert daskgp.open_dataset(url)[0].dtype == np.result_type(dtype, "f4")


def test_rows_of_any_kind_give_the_same_store(tmp_path, make_store):
    X, y = data(300, 2, 2)
    X[7], y[9, 1] = np.nan, np.nan
    frame = pd.DataFrame(X, columns=["u", "v"])
    masked = np.ma.masked_invalid(X)
    kinds = {
        "memory": (X, y),
        "dask": (da.from_array(X, (77, 2)), da.from_array(y, (50, 2))),
        "frame": (frame, pd.DataFrame(y, columns=["s", "t"])),
        "masked": (masked, y),
        "zarr": daskgp.open_dataset(make_store(X, y, rows=41)),
        "pair": [X.tolist(), y.tolist()],
    }
    found = set()
    for kind, source in kinds.items():
        url = str(tmp_path / f"{kind}.zarr")
        assert prepare(source, url, block_rows=40, progress=False)[:2] == (298, 2)
        check(url, X, y, 40)
        found.add(contents(url, but="zarr.json"))
    assert len(found) == 1
    marks = zarr.open_group(str(tmp_path / "frame.zarr"), mode="r").attrs
    assert (marks["feature_names"], marks["target_names"]) == (["u", "v"], ["s", "t"])
    assert sorted(os.listdir(tmp_path)) == sorted([*(f"{k}.zarr" for k in kinds), "data.zarr"])


def contents(url, but=""):
    """Names and bytes of all files of a store."""
    found = []
    for folder, _, names in sorted(os.walk(url)):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.relpath(path, url) != but:  # it has a uuid
                with open(path, "rb") as file:
                    found.append((os.path.relpath(path, url), file.read()))
    return tuple(found)


@pytest.mark.parametrize("order", ["auto", "random"])
@pytest.mark.usefixtures("thin")
def test_one_and_four_workers_and_threads_give_the_same_bytes(make_store, tmp_path, client, order):
    X, y = data(500, 5)
    X[3, 2] = np.nan
    X, y = daskgp.open_dataset(make_store(X, y, rows=100))
    rows = rows_of(X, y, None, False)

    def made(name, executor):
        url = str(tmp_path / name)
        arrange(rows, url, order, 25, None, 0, executor)
        return contents(url, but="zarr.json")

    threads, four = made("threads", threaded()), made("four", Executor(client, False))
    with dask.config.set(scheduler="sync"):
        assert made("sync", threaded()) == threads == four


def test_on_a_cluster_arrays_of_this_process_are_written_for_the_workers(tmp_path, default_client):
    X, y = data(300)
    url = str(tmp_path / "out.zarr")
    prepare((X, y), url, progress=False, block_rows=50)
    check(url, X, y, 50)
    assert os.listdir(tmp_path) == ["out.zarr"]


# -- at random -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "seed"),
    [(1, 5), (3, 0), *(pytest.param(*c, marks=pytest.mark.slow) for c in ((1, 0), (3, 5)))],
)
@pytest.mark.usefixtures("thin")
@pytest.mark.slow
def test_a_shuffle_is_one_and_the_same_for_all_chunks_and_threads(make_store, tmp_path, d, seed):
    X, y = data(1000, d)
    X[[3, 64, 700], 0], y[[0, 999]] = np.nan, np.nan
    X[200:600] = X[7]  # rows that have the same inputs differ in their targets
    found = set()
    for rows in (17, 250, 1000):
        source = make_store(X, y, rows=rows, url=tmp_path / f"{rows}.zarr")
        for threads in (1, 4):
            url = str(tmp_path / f"{rows}-{threads}-out.zarr")
            with dask.config.set(scheduler="threads", num_workers=threads):
                told = prepare(source, url, "random", 30, random_state=seed, progress=False)
            assert told == (995, 5, 34, 30, "random")
            found.add(contents(url, but="zarr.json"))
    assert len(found) == 1
    line = np.argsort(random_keys(X, y, seed), kind="stable")
    line = line[~(np.isnan(X).any(axis=1) | np.isnan(y))[line]]
    stored_X, stored_y = daskgp.open_dataset(url)
    np.testing.assert_array_equal(stored_X.compute(), X[line])
    np.testing.assert_array_equal(stored_y.compute(), y[line])
    check(url, X, y, 30)


def test_a_shuffle_draws_no_sample_and_another_seed_is_another_shuffle(tmp_path, monkeypatch):
    X, y = data(400)
    monkeypatch.setattr(preparing, "draw", None)
    shuffles = []
    for seed in (0, 1):
        url = str(tmp_path / f"{seed}.zarr")
        prepare((X, y), url, order="random", random_state=seed, progress=False)
        shuffles.append(daskgp.open_dataset(url)[1].compute())
        assert read_layout(daskgp.open_dataset(url)[0]).order.seed == seed
    assert (shuffles[0] == shuffles[1]).mean() < 0.05
    np.testing.assert_array_equal(*map(np.sort, shuffles))


def test_places_have_no_block_in_a_random_order(tmp_path):
    url = str(tmp_path / "out.zarr")
    prepare(data(50), url, order="random", block_rows=20, progress=False)
    layout = read_layout(daskgp.open_dataset(url)[0])
    with pytest.raises(InputError, match="prepare again with another order") as error:
        layout.blocks_of(data(5)[0])
    assert "\n" not in str(error.value)
    assert exists(url)


def test_a_feature_called_random_is_named_in_a_list(tmp_path):
    X, y = data(60)
    frame, url = pd.DataFrame(X, columns=["a", "random"]), str(tmp_path / "out.zarr")
    prepare((frame, y), url, order=["random"], progress=False)
    np.testing.assert_array_equal(daskgp.open_dataset(url)[0][:, 1], np.sort(X[:, 1]))
    assert prepare((frame, y), url + "2", order="random", progress=False).order == "random"


# -- layouts ---------------------------------------------------------------------------------


def test_a_layout_is_read_back_as_it_was_made(tmp_path):
    X, y = data(500, 6)
    rows = rows_of(X, y, None, True)
    url = str(tmp_path / "out.zarr")
    made = arrange(rows, url, block_rows=30, executor=threaded())
    assert made.order.kind == "kmeans"
    stored = daskgp.open_dataset(url)[0]
    for array in (stored, behind(stored)):
        found = read_layout(array)
        assert isinstance(found, Layout)
        assert (found.rows, found.block_rows) == (made.rows, made.block_rows) == (500, 30)
        assert found.spans == made.spans
        np.testing.assert_array_equal(found.cuts, made.cuts)
        np.testing.assert_array_equal(found.centroids, made.centroids)
        np.testing.assert_array_equal(found.blocks_of(X), made.blocks_of(X))
    assert made.blocks_of(X[:0]).shape == (0,)
    far = made.blocks_of(np.array([[1e9] * 6, [-1e9] * 6]))
    assert set(far.tolist()) <= set(range(made.n_blocks))


def test_other_arrays_have_no_layout(make_store, tmp_path):
    X, y = data(30)
    plain = daskgp.open_dataset(make_store(X, y))[0]
    assert read_layout(plain) is None
    assert read_layout(X) is None
    assert read_layout(plain + 1) is None
    assert read_layout(zarr.array(X)) is None
    prepare((X, y), tmp_path / "out.zarr", block_rows=7, progress=False)
    assert read_layout(daskgp.open_dataset(str(tmp_path / "out.zarr"))[0][:10]) is None
    assert read_layout(daskgp.open_dataset(str(tmp_path / "out.zarr"))[1]) is None


def test_a_store_that_was_changed_must_be_prepared_again(tmp_path):
    X, y = data(30)
    frame = pd.DataFrame(X, columns=["a", "b"])
    url = str(tmp_path / "out.zarr")

    def refused(kind=InputError):
        with pytest.raises(kind, match=r"run daskgp.prepare again$") as caught:
            read_layout(daskgp.open_dataset(url)[0])
        return str(caught.value)

    prepare((frame, y), url, block_rows=7, progress=False)
    group = zarr.open_group(url, mode="r+")
    group.attrs["feature_names"] = ["c", "d"]
    words = "block order was made with features a, b but the store has c, d: "
    assert words in refused()
    group.attrs["feature_names"] = ["a", "b"]
    blocks = dict(group.attrs["blocks"])
    group.attrs["blocks"] = {**blocks, "rows": 31}
    assert "blocks were made for 31 rows but the store has 30" in refused()
    group.attrs["blocks"] = {**blocks, "version": 99}
    assert "format version 99, this daskgp reads version 1" in refused(StoreError)
    group.attrs["blocks"] = {**blocks, "order": {}}
    assert "its blocks cannot be read" in refused(StoreError)
    group.attrs["blocks"] = blocks
    del group["block_cuts"]
    with pytest.raises(StoreError, match="it has no array 'block_cuts'"):
        read_layout(daskgp.open_dataset(url)[0])


@given(st.integers(1, 10_000), st.integers(1, 700))
def test_blocks_are_balanced_and_no_more_than_needed(n, wanted):
    rows = balanced(n, wanted)
    number = -(-n // wanted)
    assert rows <= wanted
    assert -(-n // rows) == number
    assert n - (number - 1) * rows > 0


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "given", "words"),
    [
        (lambda X, y: X.__setitem__((3, 0), np.inf), {}, "'x0' has 1 infinite value:"),
        (lambda X, y: X.__setitem__(slice(None), np.nan), {}, "no usable rows: all 50 rows"),
        (lambda X, y: X.__setitem__(slice(None), 2.0), {}, "features are constant"),
        (
            None,
            {"order": "x9"},
            "order 'x9' is neither one of auto, hilbert, pca, kmeans, random nor a column",
        ),
        (None, {"block_rows": 0}, "block_rows=0: a whole number of at least 1 is needed"),
        (None, {"block_rows": 2.5}, "block_rows=2.5: a whole number of at least 1 is needed"),
        (None, {"random_state": -1}, "random_state=-1: a whole number of at least 0 is needed"),
        (None, {"lengthscales": [1.0]}, "lengthscales have shape (1,)"),
    ],
)
def test_what_cannot_be_ordered_is_refused_and_leaves_nothing(tmp_path, change, given, words):
    X, y = data(50)
    if change:
        change(X, y)
    with pytest.raises(InputError) as caught:
        prepare((X, y), tmp_path / "out.zarr", progress=False, **given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_sources_that_are_none_are_refused(tmp_path):
    out = tmp_path / "out.zarr"
    with pytest.raises(InputError, match="source is of type ndarray: give the path or URL"):
        prepare(np.zeros((3, 2)), out)
    with pytest.raises(InputError, match="no rows: the training data has length 0"):
        prepare((np.zeros((0, 2)), np.zeros(0)), out, progress=False)
    with pytest.raises(StoreError, match="no dataset at"):
        prepare(tmp_path / "none.zarr", out)
    assert os.listdir(tmp_path) == []
    out.mkdir()
    (out / "mine").write_text("keep")
    with pytest.raises(StoreError, match="a folder exists already"):
        prepare(data(20), out, progress=False)
    assert (out / "mine").read_text() == "keep"
    prepare(data(20), tmp_path / "a.zarr", progress=False)
    with pytest.raises(StoreError, match=r"a\.zarr exists already"):
        prepare(tmp_path / "a.zarr", tmp_path / "a.zarr", progress=False)


@pytest.mark.parametrize("where", ["_sort_run", "_write_piece"])
@pytest.mark.usefixtures("thin")
def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch, where):
    real, calls = getattr(sorting, where), []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(sorting, where, failing)
    X, y = data(1000)
    lazily = da.from_array(X, (100, 2)), da.from_array(y, 100)
    with pytest.raises(StoreError, match=r"cannot write dataset .*out\.zarr: the disk is full"):
        prepare(lazily, tmp_path / "out.zarr", block_rows=20, progress=False)
    assert os.listdir(tmp_path) == []


def test_a_store_is_incomplete_until_all_is_written(tmp_path, monkeypatch):
    seen = []
    finish = prepared.Target.finish

    def looking(self, *arguments):
        with pytest.raises(StoreError, match="is incomplete"):
            daskgp.open_dataset(self.url)
        seen.append(set(groups.open_group(self.url, "dataset").keys()))
        finish(self, *arguments)

    monkeypatch.setattr(prepared.Target, "finish", looking)
    prepare(data(50), tmp_path / "out.zarr", progress=False)
    assert seen == [{"X", "y", "runs"}]


def test_writing_part_of_a_chunk_is_refused(tmp_path):
    rows = rows_of(*data(50), None, True)
    with prepared.creating(str(tmp_path / "out.zarr"), rows, 50, 20, (1, 50), 64) as target:
        target.put(40, *rows.read(40, len(rows)))
        for start, stop in ((10, 20), (0, 30)):
            with pytest.raises(
                StoreError, match=f"rows {start} to {stop} are not whole chunks of 20"
            ):
                target.put(start, *rows.read(start, stop))


@pytest.mark.usefixtures("default_client")
def test_workers_that_do_not_see_the_destination_are_named(make_store):
    url = "memory://apart"  # in each process another one
    with pytest.raises(InputError, match=r"does not see the prepared dataset .*: write it to a"):
        prepare(make_store(*data(50)), url, progress=False)
    assert not exists(url)


def test_order_of_a_sample_alone_needs_no_store():
    X, _ = data(100)
    line = make_order("hilbert", X, X.min(axis=0), X.max(axis=0), ("a", "b"), 5)
    keys = np.sort(line.keys(X))
    layout = Layout(line, 100, 20, keys[20::20], np.zeros((5, 2)))
    np.testing.assert_array_equal(np.bincount(layout.blocks_of(X)), [20] * 5)


def test_tasks_that_read_blocks_of_several_sizes_read_few_rows(monkeypatch):
    X, y = data(20_000)
    edges = [0, 3, *range(500, 20_001, 500)]
    spans = [partition.Span(a, b) for a, b in itertools.pairwise(edges)]
    read, seen = Rows.read, []
    monkeypatch.setattr(Rows, "read", lambda *at: (seen.append(at[2] - at[1]), read(*at))[1])
    found = sampling.landmarks(rows_of(X, y, None, True), spans, 4, threaded())
    wanted = [X[np.rint(np.linspace(a, b - 1, 4)).astype(int)] for a, b in spans]
    np.testing.assert_array_equal(found, wanted)
    assert max(seen) <= partition.default_block_rows(len(X))
