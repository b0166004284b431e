"""Plans against what is measured."""

import subprocess
import sys
import tracemalloc

import dask.array as da
import numpy as np
import pytest

import daskgp
from daskgp import kernels
from daskgp.data import Rows, partition
from daskgp.data.blocks import neighbours, prepared
from daskgp.data.blocks.around import LANDMARKS
from daskgp.data.blocks.layout import Layout
from daskgp.errors import MemoryRunError
from daskgp.fit import plan, run
from daskgp.models import collapsed, inducing
from daskgp.models.exact import Exact
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Shape, Theta
from daskgp.runtime import device_memory
from daskgp.runtime.executor import Executor
from tests.measured import peak

KERNELS = {
    "linear": kernels.Linear(),
    "rbf": kernels.RBF(1.0),
    "matern32": kernels.Matern32(1.0),
    "sum": kernels.Matern32(1.0) + kernels.Linear(),
    "product": kernels.Matern32(1.0) * kernels.Linear() * kernels.RBF(1.0),
    "nested": (kernels.RBF(1.0) + kernels.Matern32(1.0)) * kernels.RBF(1.0),
}
EACH_KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def rows_of(n, p=1):
    rng = np.random.default_rng(0)
    return Rows(rng.standard_normal((n, 2)), rng.standard_normal((n, p)), None, ("a", "b"), ("y",))


def planned(model, kernel, rows, m, itemsize=8):
    return in_blocks(len(rows), model, kernel, rows, m, itemsize)


def in_blocks(block_rows, model, kernel, rows, m, itemsize=8):
    knob = plan.Knob("block_rows", block_rows, "blocks", planned=None)
    spans = [partition.Span(0, block_rows)]
    sizes = {"method": model, "kernel": kernel, "n_inputs": m, "itemsize": itemsize}
    return plan.make_plan(plan.Workload(rows, spans, knob=knob, probes=None, **sizes))


def solve(model, kernel, rows, m):
    """What the small solve takes, which is a part of what the client does."""
    n, d = rows.X.shape
    shape = Shape(n, d, rows.n_targets, n, m, 8, kernel.tiles, n)
    return model.footprint(shape).solve


def close(planned, measured):
    return measured / 1.5 < planned < measured * 1.5


@EACH_KERNEL
@pytest.mark.parametrize("model", [Exact(), SGPR(jitter=1e-3)], ids=["exact", "sgpr"])
def test_the_client_of_an_exact_and_a_sparse_gp(model, kernel):
    sparse = isinstance(model, SGPR)
    rows = rows_of(300 if sparse else 500)
    block, theta = Block(rows.X, rows.y), Theta(kernel, 0.1, rows.X if sparse else None)

    def work():
        if not sparse:
            return model.posterior(theta, block), model.objective(theta, block).value
        prepared = model.prepare(theta)
        total = model.local(prepared, block)
        return model.posterior(prepared, total), model.objective(prepared, total).value

    measured, _ = peak(work)
    assert close(solve(model, kernel, rows, 300 if sparse else 0), measured)


@EACH_KERNEL
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "m"), [(1000, 60), (400, 400)])
def test_a_task_of_a_sparse_gp(kernel, n, m, dtype):
    rows, model = rows_of(n), SGPR(jitter=1e-3)
    block, theta = Block(rows.X, rows.y), Theta(kernel, 0.1, rows.X[:m])
    prepared = model.prepare(theta)
    cotangent = model.objective(prepared, model.local(prepared, block)).cotangent
    block = Block(rows.X.astype(dtype), rows.y)
    shared = prepared.factor.nbytes
    local = shared + peak(model.local, prepared, block)[0]
    gradient = 2 * shared + peak(model.local_vjp, prepared, block, cotangent)[0]
    whole = planned(model, kernel, rows, m, block.X.itemsize)
    raw = plan.COPIES * (rows.X.nbytes + rows.y.nbytes)
    assert close(whole.bytes_per_task - raw, max(local, gradient))


def test_the_client_chooses_few_inducing_inputs_from_many_rows():
    X = np.random.default_rng(0).standard_normal((inducing.sample_rows(20), 2))
    measured, _ = peak(inducing.greedy, X, kernels.Matern32(1.0), 20)
    rows = rows_of(10_000)
    whole = planned(SGPR(), kernels.Matern32(1.0), rows, 20)
    assert close(whole.bytes_client - plan.CLIENT, measured)


def test_processes_that_use_compiled_code_carry_the_compiler(monkeypatch):
    rows = np.zeros((20_000, 2)), np.zeros(20_000)
    estimators = {
        "both": daskgp.VecchiaGP(),
        "fit": daskgp.LMA(train_with="vecchia"),
        "none": daskgp.LMA(train_with="blocks"),
        "untrained": daskgp.VecchiaGP(optimizer=None),
    }
    large = {name: daskgp.plan(one, *rows) for name, one in estimators.items()}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    small = {name: daskgp.plan(one, *rows) for name, one in estimators.items()}
    more = {
        name: tuple(
            getattr(large[name], what) - getattr(small[name], what)
            for what in ("bytes_per_worker", "bytes_predict", "bytes_client")
        )
        for name in estimators
    }
    size = plan.COMPILER
    assert more["both"] == more["untrained"] == (size, size, 0)
    assert more["fit"] == (size, 0, 0)
    assert more["none"] == (0, 0, 0)


def test_the_size_of_the_compiler_is_what_a_process_takes():
    """After a process that compiled: the file is there."""
    code = """
from daskgp.models.markov import conditionals, earlier
import daskgp, psutil
before = psutil.Process().memory_info().rss
conditionals.compiled()
print(psutil.Process().memory_info().rss - before)
"""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert close(plan.COMPILER, int(done.stdout))


def test_the_memory_of_a_gpu_is_that_of_its_larger_tiles():
    m, tile = 400, collapsed.TILE_ROWS
    kernel, rows = kernels.Matern32(1.0), rows_of((collapsed.DEVICE_TILES + 4) * tile)
    few = in_blocks(tile, SGPR(), kernel, rows, m)
    many = planned(SGPR(), kernel, rows, m)
    rest = 2 * 8 * 3 * (len(rows) - tile)
    a_tile = (kernel.tiles + 2) * 8 * tile * m
    assert many.bytes_device - few.bytes_device - rest == (collapsed.DEVICE_TILES - 1) * a_tile
    sizes = device_memory.Sizes(2, 1, m, 8, kernel.tiles)
    assert device_memory.task_bytes(SGPR(), sizes, len(rows)) == many.bytes_device


def test_the_memory_of_workers_that_died_is_told(monkeypatch):
    alive = [400 << 20]

    def killed(*given):
        raise MemoryRunError("workers died")

    monkeypatch.setattr(Executor, "memory_per_task", lambda _: alive.pop() if alive else None)
    monkeypatch.setattr(run, "marked", killed)
    X = np.linspace(0, 1, 50)[:, None]
    with pytest.raises(MemoryRunError, match=r"\(0\.39 GiB per worker thread\)"):
        daskgp.ExactGP(progress=False).fit(X, X[:, 0])


def test_the_client_knows_blocks_that_are_searched_for_near_ones():
    """What scipy holds for its tree is not measured: it is about as much as the coordinates."""
    blocks, d = 1_500, 2
    places = np.random.default_rng(0).uniform(0, 1, (blocks, LANDMARKS, d))
    places = np.sort(places, axis=0)
    cuts = np.arange(blocks - 1, dtype=np.uint64)
    layout = Layout(None, 100 * blocks, 100, cuts, places.mean(axis=1))

    def kept():
        return places * 1.0, places * 2.0, neighbours.earlier(layout, places, 8, later=True)

    tracemalloc.start()
    there, _ = kept(), tracemalloc.reset_peak()
    measured = tracemalloc.get_traced_memory()[0] + places.nbytes
    tracemalloc.stop()
    assert len(there[2]) == blocks
    tree = plan.NODE_BYTES * places[..., 0].size
    assert close(plans_of_blocks(blocks) - plans_of_blocks(0) - tree, measured)


def test_looking_for_very_many_near_blocks_takes_no_more_memory(monkeypatch):
    """The same are found block by block."""
    blocks, number = 160, 60
    places = np.random.default_rng(0).uniform(0, 1, (blocks, LANDMARKS, 2))
    layout = Layout(
        None, 64 * blocks, 64, np.arange(blocks - 1, dtype=np.uint64), places.mean(axis=1)
    )
    tracemalloc.start()
    found = neighbours.earlier(layout, places, number, later=True)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 24 * 2**20
    monkeypatch.setattr(neighbours, "TOGETHER", 1)
    assert found == neighbours.earlier(layout, places, number, later=True)


def plans_of_blocks(searched):
    """Bytes of the client that searches so many blocks for near ones."""
    rows, kernel = rows_of(1_000), kernels.Matern32(1.0)
    knob = plan.Knob("block_rows", 1_000, "blocks", planned=None)
    sizes = {"method": SGPR(), "kernel": kernel, "n_inputs": 0, "searched": searched}
    units = [partition.Span(0, 1_000)]
    return plan.make_plan(plan.Workload(rows, units, knob=knob, probes=None, **sizes)).bytes_client


@pytest.mark.parametrize("name", ["VecchiaGP", "LMA"])
def test_what_is_known_of_blocks_grows_with_their_number(name):
    """The fit's workers know nothing of it, those that predict and the client do."""
    few, many = (
        daskgp.plan(getattr(daskgp, name)(), da.empty((n, 3), chunks=(65_536, 3)), da.empty(n))
        for n in (10**7, 10**8)
    )
    blocks = 9 * 10**7 / few.block_rows
    assert many.bytes_per_worker < few.bytes_per_worker + 20 * 2**20
    assert many.bytes_client - few.bytes_client > 2_000 * blocks
    assert many.bytes_predict - few.bytes_predict > 1_000 * blocks


@pytest.mark.parametrize("name", ["VecchiaGP", "ExpertsGP"])
def test_the_disk_of_a_fit_is_what_sorting_takes(name, tmp_path, make_store, monkeypatch):
    """Noise is hardly compressed."""
    rng = np.random.default_rng(0)
    store = make_store(rng.standard_normal((30_000, 3)), rng.standard_normal(30_000), 4_096)
    X, y = daskgp.open_dataset(store)
    folder, found, finish = tmp_path / "scratch", [], prepared.Target.finish
    folder.mkdir()

    def finished(target, describe):
        found.append(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
        finish(target, describe)

    monkeypatch.setattr(prepared.Target, "finish", finished)
    more = {"n_experts": 4, "n_inducing": 8} if name == "ExpertsGP" else {}
    model = getattr(daskgp, name)(store=str(folder), optimizer=None, progress=False, **more)
    whole = model.plan(X, y)
    model.fit(X, y)
    assert 0.7 * whole.bytes_written < found[0] < 1.02 * whole.bytes_written


@pytest.mark.parametrize("given", [("y_variance",), ("sample_weight", "y_variance")])
def test_the_disk_of_a_fit_counts_what_is_known_beside_the_target(given, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2, 30_000))
    beside = {name: rng.uniform(0.5, 1.5, len(y)) for name in given}
    found, finish = [], prepared.Target.finish

    def finished(target, describe):
        found.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
        finish(target, describe)

    monkeypatch.setattr(prepared.Target, "finish", finished)
    model = daskgp.VecchiaGP(store=str(tmp_path), optimizer=None, progress=False)
    whole = model.plan(X[:, None], y, **beside)
    model.fit(X[:, None], y, **beside)
    assert 0.9 * whole.bytes_written < found[0] < 1.02 * whole.bytes_written
