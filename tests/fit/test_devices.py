"""Work on a GPU that is simulated: streams, memory, moves, and what is no GPU at all."""

import gc
import importlib.machinery
import itertools
import logging
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest

import daskgp
from daskgp import kernels, train
from daskgp.arrays import backend
from daskgp.data import Rows, partition
from daskgp.data.partition import Span, alone, even, following
from daskgp.errors import DeviceError, DeviceMemoryError, InputError, MemoryRunError
from daskgp.fit import plan as planning
from daskgp.fit import rounds, task
from daskgp.fit import work as fit_work
from daskgp.fit.experts import Objectives
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.markov import lma
from daskgp.models.scaling import identity
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.values import Block, Theta
from daskgp.runtime import device_memory, gpus
from daskgp.runtime.executor import Executor
from tests.agree import assert_close
from tests.fit import gpu
from tests.maths import fakestreams


@pytest.fixture
def cupy(monkeypatch):
    """A GPU."""
    return gpu.install(monkeypatch)


def test_a_gpu_is_found_whatever_an_earlier_test_found(monkeypatch):
    assert backend.why_no_gpu() == "cupy is not installed"  # as a task left running by it asks
    gpu.install(monkeypatch)
    assert not backend.why_no_gpu()


# --- copies beside the work


def test_every_block_is_copied_before_it_is_used(cupy):
    pieces = [np.full((3, 2), float(i)) for i in range(5)]
    found = [x.get() for x in device_memory.ahead(lambda piece: piece, pieces, "gpu")]
    np.testing.assert_array_equal(found, pieces)  # a copy that nobody waited for left other bits


def test_the_next_block_is_copied_while_one_is_used(cupy):
    for i, _ in enumerate(device_memory.ahead(lambda i: np.full(2, float(i)), range(4), "gpu")):
        cupy.cuda.log.append(("work", i))
    log = [entry for entry in cupy.cuda.log if entry[0] != "pinned"]
    copies = [i for i, entry in enumerate(log) if entry[:2] == ("copying", "copy")]
    given = [i for i, entry in enumerate(log) if entry[:3] == ("null", "wait for", "copying")]
    assert len(copies) == len(given) == 4
    # the computing stream waits for the right copy and no later one
    assert [log[i][3] for i in given] == [1, 2, 3, 4]


def test_memory_comes_back_when_its_last_use_is_done(cupy):
    gone = []
    for block in device_memory.ahead(lambda i: np.full(2, float(i)), range(3), "gpu"):
        weakref.finalize(block, lambda: gone.append(list(cupy.cuda.log))).atexit = False
        cupy.cuda.get_current_stream().do(("kernel",), lambda: None)
        del block
    gc.collect()
    assert len(gone) == 3
    for number, log in enumerate(gone, 1):
        waits = [e for e in log if e[:3] == ("copying", "wait for", "null")]
        # of the kernels that used this block and those before it
        assert waits[number - 1][3] == number


def test_a_reader_that_fails_says_so_and_nothing_hangs(cupy):
    def read(i):
        if i == 2:
            raise InputError("no such rows")
        return np.ones(1)

    with pytest.raises(InputError, match="no such rows"):
        list(device_memory.ahead(read, range(5), "gpu"))
    first = device_memory.ahead(read, range(2), "gpu")
    next(first)
    first.close()  # the copy under way is given up


def test_on_the_cpu_blocks_are_passed_on():
    pieces = [Block(np.ones((2, 1)), np.ones((2, 1))) for _ in range(3)]
    found = list(device_memory.ahead(lambda piece: piece, pieces, "cpu"))
    assert all(block.X is piece.X for block, piece in zip(found, pieces, strict=True))


@pytest.mark.parametrize(
    ("chunks", "cuts"),
    [
        (None, [0, 40_000]),
        ((10_000,) * 4, [0, 10_000, 20_000, 30_000, 40_000]),
        ((5_000,) * 8, [0, 10_000, 20_000, 30_000, 40_000]),
        ((40_000,), [0, 40_000]),
    ],
)
def test_blocks_are_read_chunk_by_chunk(chunks, cuts):
    found = partition.whole_chunks(Span(0, 40_000), chunks)
    assert [span.start for span in found] + [found[-1].stop] == cuts


# --- memory


def hungry(limit):
    """Work that cannot have more than so many rows at a time, with what it was given."""
    seen = []

    def work(rows):
        seen.append(rows)
        if rows > limit:
            raise fakestreams.OutOfMemoryError(8 * rows, 0)
        return rows

    return work, seen


def test_half_the_rows_are_tried_again_and_remembered(cupy, caplog):
    work, seen = hungry(300)
    with caplog.at_level(logging.WARNING, "daskgp"):
        assert device_memory.shrinking(work, 1_000, "gpu", "kind") == 250
        assert device_memory.shrinking(work, 1_000, "gpu", "kind") == 250
    assert seen == [1_000, 500, 250, 250]
    assert [r.message for r in caplog.records][-1].endswith("500 rows at a time: 250 are tried")
    assert cupy.cuda.log.count(("free all blocks",)) == 4  # both pools, before each retry


def test_what_does_not_fit_in_few_rows_is_an_error(cupy, monkeypatch):
    work, seen = hungry(0)
    with pytest.raises(
        DeviceMemoryError,
        match=r"the GPU ran out of memory \(Out of memory .* on 125 rows "
        r"at a time \(kind\): choose fewer inputs .* or device='cpu'",
    ) as caught:
        device_memory.shrinking(work, 1_000, "gpu", "kind")
    assert seen == [1_000, 500, 250, 125]
    seen.clear()
    monkeypatch.setattr(device_memory, "_proven", {})
    with pytest.raises(DeviceMemoryError):
        device_memory.shrinking(work, 100, "gpu", "kind")
    assert seen == [100, 100]  # once more in the room that was made
    assert isinstance(caught.value, MemoryRunError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.divided) == (str(caught.value), True)
    assert "\n" not in str(copy)


def test_fewer_pieces_side_by_side_are_tried_down_to_one(cupy, caplog):
    work, seen = hungry(3)
    with caplog.at_level(logging.WARNING, "daskgp"):
        assert device_memory.together(work, 40, "gpu", "kind", "a piece of 9 rows") == 2
        assert device_memory.together(work, 40, "gpu", "kind", "a piece of 9 rows") == 2
        assert device_memory.together(work, 1, "gpu", "kind", "a piece of 9 rows") == 1
    assert seen == [16, 8, 4, 2, 2, 1]
    assert [r.message for r in caplog.records][-1].endswith("4 side by side (kind): 2 are tried")
    assert device_memory.together(work, 40, "cpu", "kind", "a piece of 9 rows") == 1


def test_one_piece_that_does_not_fit_is_the_error(cupy):
    work, seen = hungry(0)
    with pytest.raises(DeviceMemoryError, match="on a piece of 9 rows: use a GPU with more") as e:
        device_memory.together(work, 3, "gpu", "kind", "a piece of 9 rows")
    assert seen == [3, 2, 1]
    assert not e.value.divided
    seen.clear()
    with pytest.raises(DeviceMemoryError):
        device_memory.together(work, 1, "gpu", "kind", "a piece of 9 rows")
    assert seen == [1, 1]  # once more in the room that was made


def test_other_errors_are_not_taken_for_memory(cupy):
    def work(rows):
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        device_memory.shrinking(work, 1_000, "gpu", "kind")


def test_what_is_held_is_given_up_for_what_cannot_be_cut(cupy, monkeypatch):
    given_up, tried = [], []
    monkeypatch.setattr(device_memory, "_droppers", [lambda: given_up.append(1)])

    def work():
        tried.append(1)
        if not given_up:
            raise RuntimeError("cudaErrorMemoryAllocation: out of memory")
        return "done"

    assert device_memory.whole(work, "gpu", "a block") == "done"
    assert len(tried) == 2


@pytest.mark.parametrize(
    ("divided", "said"),
    [
        (
            False,
            "short on blocks of 1000 rows: set block_rows to at most 500, use a GPU with more "
            "free memory, or device='cpu'",
        ),
        (True, "short on 64 rows at a time: choose fewer inputs"),
    ],
)
def test_the_setting_that_needs_less_is_named(divided, said):
    def planned(rows):
        return planning.Plan(1_000, rows, 1, rows, 1, 1, True, 1, 1, 0, 1.0)

    error = DeviceMemoryError("short", "64 rows at a time", "choose fewer inputs", divided)
    knob = planning.Knob("block_rows", 1_000, "blocks of 1000 rows", planned)
    found = fit_work.out_of_memory(error, planned(1_000), None, knob)
    assert isinstance(found, DeviceMemoryError)
    assert str(found) == said


def sums_of(n, device, dtype="float64", rows=None, m=5):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (n, 2))
    y = np.sin(5 * X).sum(axis=1)
    rows = Rows(X, y, (n // 4,) * 4, ("a", "b"), ("y",))
    theta = Theta(kernels.Matern32(0.5), 0.1, rng.uniform(0, 1, (m, 2)))
    units = alone(even(0, n, 2))
    stage = rounds.Rounds(rows, units, identity(2, 1), Executor(None, False), dtype, device)
    return stage, theta


def test_rows_at_a_time_follow_from_the_free_memory(cupy):
    (stage, theta), model = sums_of(100, "gpu"), SGPR()
    sizes = task._sizes(stage.source, model.prepare(theta))
    assert sizes == device_memory.Sizes(2, 1, 5, 8, kernels.Matern32(0.5).tiles)
    assert device_memory.rows_that_fit(model, sizes, 50_000, "gpu") == 50_000
    cupy.cuda.free = 2 * device_memory.task_bytes(model, sizes, 1_000)
    few = device_memory.rows_that_fit(model, sizes, 50_000, "gpu")
    assert device_memory.LEAST_ROWS < few < 50_000
    assert device_memory.task_bytes(model, sizes, few) <= device_memory.SHARE * cupy.cuda.free
    assert device_memory.rows_that_fit(model, sizes, 50_000, "cpu") == 50_000


def test_parts_of_a_block_give_its_sums(cupy, monkeypatch):
    monkeypatch.setattr(device_memory, "LEAST_ROWS", 8)
    monkeypatch.setattr(partition, "READ_ROWS", 16)
    stage, theta = sums_of(400, "cpu")
    wanted = SGPR().evaluate(theta, stage)
    stage, theta = sums_of(400, "gpu")
    cupy.cuda.limit = 8 * 5 * 40  # of a tile (40, 5), not of one of 50 rows
    found = SGPR().evaluate(theta, stage)
    assert device_memory._proven["sgpr"] <= 40
    assert found.value == pytest.approx(wanted.value, rel=1e-12)
    np.testing.assert_allclose(found.gradient.kernel, wanted.gradient.kernel, rtol=1e-9)


# --- moves


def row_moves(log, n):
    """Arrays of so many rows that went to the device, and that came back."""
    there = sum(1 for e in log if e[0] == "asarray" and e[1][:1] == (n,))
    back = sum(1 for e in log if e[0] == "get" and e[1][:1] == (n,))
    return there, back


N = 131  # of a block: no other array is as long


@pytest.mark.parametrize(
    ("estimator", "tasks"),
    [
        (daskgp.SGPR(n_inducing=4), 2),
        (daskgp.SparseSpectrumGP(n_spectral=4), 2),
        (daskgp.ExpertsGP(n_experts=2, expert="sparse", n_inducing=4, partition="random"), 2),
        (daskgp.OptiComGP(), 2),
        (daskgp.SVGP(n_inducing=4, batch_rows=N, max_iter=1), 1),
        (daskgp.DecoupledGP(n_mean=8, n_covariance=4, batch_rows=N, max_iter=1), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rows_go_to_the_device_once_a_task_and_do_not_come_back(cupy, estimator, tasks):
    """Of the one round of a fit that trains nothing, or of the one step."""
    fitted(cupy, estimator)
    there, back = row_moves(cupy.cuda.log, N)
    assert (there, back) == (2 * tasks, 0)  # X and y of each
    cupy.cuda.log.clear()
    estimator.predict(problem()[0][:N])
    assert row_moves(cupy.cuda.log, N) == (1, 1)  # inputs, and their mean
    small = sum(1 for e in cupy.cuda.log if e[0] == "asarray")
    cupy.cuda.log.clear()
    estimator.predict(problem()[0][:N])
    assert sum(1 for e in cupy.cuda.log if e[0] == "asarray") < small  # the state stayed there


@pytest.mark.parametrize(("method", "iterations"), [(daskgp.LMA, 1), (daskgp.PIC, 0)])
def test_local_methods_fit_and_predict_on_a_gpu_as_on_a_cpu(cupy, monkeypatch, method, iterations):
    X, y = problem()
    order, few = np.argsort(X[:, 0]), []
    X, y = X[order], y[order]
    many = lma.LMA.local_many

    def counted(self, prepared, windows):
        few.append(len(windows))
        return many(self, prepared, windows)

    monkeypatch.setattr(lma.LMA, "local_many", counted)
    monkeypatch.setattr(rounds, "per_task", lambda *_: 5)
    trained = {"optimizer": "l-bfgs", "max_iter": iterations} if iterations else {"optimizer": None}
    settings = {"n_support": 6, "block_rows": 30, "progress": False, **trained}
    wanted, found = (method(device=d, **settings).fit(X, y) for d in ("cpu", "gpu"))
    assert few
    assert max(few) > 1  # windows side by side
    assert found.objective_ == pytest.approx(wanted.objective_, rel=1e-7)
    # deviations near the rows are small differences, which the step of the search magnifies
    np.testing.assert_allclose(
        found.predict(X[::7], return_std=True), wanted.predict(X[::7], return_std=True), rtol=1e-5
    )


def factored_on(cupy):
    """A list of the shapes of what will be factored on the device."""
    backend.resolve_device("gpu")  # which tries it
    right, found = cupy.linalg.cholesky, []
    cupy.linalg.cholesky = lambda A: found.append(A.shape) or right(A)
    return found


def local_rounds(device, n=200):
    """LMA on blocks of 30 rows and a last one of 20, each given the one after it."""
    X, y = problem()
    spans = [Span(i, min(i + 30, n)) for i in range(0, n, 30)]
    theta = Theta(kernels.Matern32((0.5, 0.6, 0.7)), 0.1, X[:6] + 0.01)
    rows = Rows(X[:n], y[:n, None], None, ("a", "b", "c"), ("y",))
    given = rows, following(spans, 1), identity(3, 1), Executor(None, False)
    few = rounds.WINDOW_TASKS  # small blocks share tasks
    return rounds.Rounds(*given, device=device, least_tasks=few), theta


@pytest.mark.parametrize("share", [rounds.KEEP_SHARE, 0.0], ids=["kept", "made again"])
def test_gradients_of_local_methods_side_by_side(cupy, monkeypatch, share):
    monkeypatch.setattr(rounds, "KEEP_SHARE", share)
    monkeypatch.setattr(rounds, "per_task", lambda *_: 5)
    stage, theta = local_rounds("cpu")
    wanted = lma.LMA().evaluate(theta, stage)
    factored = factored_on(cupy)
    found = lma.LMA().evaluate(theta, local_rounds("gpu")[0])
    assert found.value == pytest.approx(wanted.value, rel=1e-10)
    assert_close(tuple(found.gradient), tuple(wanted.gradient), 1e-10, 1e-10)
    # a task of five windows of 60 rows, and one of a window of 50 and one of 20; once or twice
    passes = 1 if share else 2
    assert sorted(factored) == sorted([(5, 60, 60), (50, 50), (20, 20)] * passes)


@pytest.mark.parametrize("share", [rounds.KEEP_SHARE, 0.0], ids=["kept", "made again"])
def test_windows_that_do_not_fit_side_by_side_are_worked_on_one_by_one(
    cupy, monkeypatch, caplog, share
):
    monkeypatch.setattr(rounds, "KEEP_SHARE", share)
    monkeypatch.setattr(rounds, "per_task", lambda *_: 5)
    stage, theta = local_rounds("cpu")
    wanted = lma.LMA().evaluate(theta, stage)
    cupy.cuda.limit = 8 * 60 * 60  # of one window
    found = lma.LMA().evaluate(theta, local_rounds("gpu")[0])
    assert "3 side by side (lma): 2 are tried" in caplog.text
    assert device_memory._proven["side by side (lma)"] == 1
    assert_close((found.value, *found.gradient), (wanted.value, *wanted.gradient))
    cupy.cuda.limit = 8 * 60 * 60 - 1
    with pytest.raises(DeviceMemoryError, match=r"blocks? of 30 rows"):
        lma.LMA().evaluate(theta, local_rounds("gpu")[0])


def test_predictions_are_cut_to_what_fits(cupy):
    model, X = daskgp.SGPR(n_inducing=4), problem()[0]
    fitted(cupy, model)
    wanted = model.predict(X, return_std=True)
    cupy.cuda.limit = 8 * 5 * 70  # of a tile of 70 rows, not of 131
    found = model.predict(X, return_std=True)
    assert device_memory._proven["predictions of sgpr"] == 66
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    cupy.cuda.limit = 8 * 4 * 30
    with pytest.raises(DeviceMemoryError, match="fit again with fewer inputs of the method, use"):
        model.predict(X)


def expert_rounds(device, sizes=(6,) * 5 + (7,) * 3):
    """Exact experts of two sizes, one of them with a missing value; small ones share tasks."""
    X, y = problem()
    y[3] = np.nan
    edges = np.cumsum((0, *sizes)).tolist()
    spans = tuple(Span(a, b) for a, b in itertools.pairwise(edges))
    rows = Rows(X, y[:, None], None, ("a", "b", "c"), ("y",))
    given = rows, alone(spans), identity(3, 1), Executor(None, False)
    return rounds.Rounds(*given, device=device, least_tasks=rounds.EXPERT_TASKS)


def test_exact_experts_side_by_side(cupy, monkeypatch):
    monkeypatch.setattr(rounds, "per_task", lambda *_: 5)
    model, theta = ExactExperts(8, "rbcm"), Theta(kernels.Matern32((0.5, 0.6, 0.7)), 0.1)
    factored = factored_on(cupy)
    groups = [(4, 6, 6), (5, 5), (3, 7, 7)]  # of the first task, which has one of 5 rows, and last
    of = {device: expert_rounds(device) for device in ("cpu", "gpu")}
    found, wanted = (model.solve(theta, of[d]) for d in ("gpu", "cpu"))  # weights and evidence
    assert sorted(factored) == sorted(groups)
    assert_close((tuple(found[0]), found[1]), (tuple(wanted[0]), wanted[1]), 1e-10, 1e-10)
    factored.clear()
    cupy.cuda.log.clear()
    vector = theta.to_vector(False)
    found, wanted = (
        train.fact(Objectives(model, of[d], theta, False), vector) for d in ("gpu", "cpu")
    )
    assert sorted(factored) == sorted(groups)
    assert_close(found, wanted, 1e-10, 1e-10)
    # matrices and rows stay there: numbers of each size and those of the kernels' gradients
    assert max(np.prod(e[1], dtype=int) for e in cupy.cuda.log if e[0] == "get") <= 2 * 4
    each = [Objectives(model, of[d], theta, False).evaluate(vector) for d in ("gpu", "cpu")]
    assert_close(*each, 1e-10, 1e-10)


def test_an_exact_expert_whose_rows_do_not_fit_is_named(cupy):
    theta = Theta(kernels.Matern32((0.5, 0.6, 0.7)), 0.1)
    objectives = Objectives(ExactExperts(2), expert_rounds("gpu", (4, 4)), theta, False)
    vector = theta.to_vector(False)
    backend.resolve_device("gpu")  # which tries it
    cupy.cuda.limit = 4 * 8 - 1  # not even y
    for work in (
        lambda: objectives.evaluate(vector),
        lambda: objectives.map(lambda evaluate, at: evaluate(at), [0, 1], [vector, vector]),
    ):
        with pytest.raises(DeviceMemoryError, match=r"an expert of 4 rows \(exact\)"):
            work()


@pytest.mark.parametrize("training", ["fact", "admm"])
def test_exact_experts_are_trained_on_a_gpu_as_on_a_cpu(cupy, monkeypatch, training):
    monkeypatch.setattr(rounds, "per_task", lambda *_: 4)
    X, y = problem()
    settings = {
        "n_experts": 8,
        "expert": "exact",
        "training": training,
        "max_iter": 2,
        "local_steps": None if training == "fact" else 2,
        "random_state": 0,
        "progress": False,
    }
    wanted, found = (daskgp.ExpertsGP(device=d, **settings).fit(X, y) for d in ("cpu", "gpu"))
    assert found.objective_ == pytest.approx(wanted.objective_, rel=1e-7)
    np.testing.assert_allclose(
        found.predict(X[::7], return_std=True), wanted.predict(X[::7], return_std=True), rtol=1e-6
    )


def test_functions_of_rows_that_wait_for_the_gradient_are_all_that_comes_back(cupy):
    fitted(cupy, daskgp.CaGP(n_actions=4))
    back = [e[1] for e in cupy.cuda.log if e[0] == "get" and N in e[1]]
    assert set(back) == {(4, N)}


def problem():
    X = np.random.default_rng(0).uniform(0, 1, (2 * N, 3))
    return X, np.sin(4 * X).sum(axis=1)


def fitted(cupy, estimator):
    """A fit that trains nothing where it need not, on two blocks of N rows."""
    settings = estimator.get_params()
    few = {"block_rows": N, "optimizer": None, "random_state": 0}
    chosen = {name: value for name, value in few.items() if name in settings}
    estimator.set_params(device="gpu", progress=False, **chosen).fit(*problem())


# --- no GPU, in all its forms

WRAPPED = """
================================================================
Failed to import CuPy.

If you installed CuPy via wheels (cupy-cudaXXX or cupy-rocm-X-X), make sure that the package
matches with the version of CUDA or ROCm installed.

Original error:
  ImportError: libcuda.so.1: cannot open shared object file: No such file or directory
================================================================
"""


def driver(text):
    def count():
        raise fakestreams.CUDARuntimeError(text)

    return lambda cupy: setattr(cupy.cuda.runtime, "getDeviceCount", count)


def no_device(cupy):
    cupy.cuda.runtime.getDeviceCount = lambda: 0


def full(cupy):
    cupy.cuda.limit = 0


def wrong_cuda(cupy):
    def fail(*_):
        raise RuntimeError(
            "CuPy failed to load libnvrtc.so.12: OSError: libnvrtc.so.12: cannot "
            "open shared object file: No such file or directory"
        )

    cupy.exp = fail


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (driver("cudaErrorNoDevice: no CUDA-capable device is detected"), "no CUDA-capable device"),
        (
            driver(
                "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA "
                "runtime version"
            ),
            "driver does not answer .cudaErrorInsufficientDriver",
        ),
        (no_device, "the CUDA driver finds no device"),
        (full, "the device has no memory left .Out of memory allocating"),
        (wrong_cuda, "cannot compute on the device .CuPy failed to load libnvrtc.so.12"),
    ],
    ids=["no driver", "old driver", "no device", "full device", "another CUDA"],
)
def test_what_is_no_gpu_is_named(cupy, caplog, broken, reason):
    broken(cupy)
    with pytest.raises(DeviceError, match=f"device='gpu' is not available: .*{reason}") as caught:
        backend.resolve_device("gpu")
    assert "\n" not in str(caught.value)
    with caplog.at_level(logging.INFO, "daskgp.arrays.backend"):
        assert [backend.resolve_device("auto") for _ in range(3)] == ["cpu"] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_import_that_fails_is_told_in_one_line(monkeypatch):
    def fail(name):
        try:
            raise ImportError("libcuda.so.1: cannot open shared object file")
        except ImportError as error:
            raise ImportError(WRAPPED) from error

    monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(backend.importlib, "import_module", fail)
    with pytest.raises(DeviceError, match=r"imported \(libcuda.so.1: cannot open .*file\); "):
        backend.resolve_device("gpu")


def test_cupy_that_is_installed_twice_is_refused(cupy, tmp_path, monkeypatch):
    for name in ("cupy", "cupy-cuda12x"):
        folder = tmp_path / f"{name.replace('-', '_')}-13.3.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 13.3.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeviceError, match=r"installed 2 times \(cupy, cupy-cuda12x\): uninstall"):
        backend.resolve_device("gpu")
    assert backend.resolve_device("auto") == "cpu"


def test_memory_that_was_short_once_may_be_there_later(cupy):
    cupy.cuda.limit = 0
    assert backend.resolve_device("auto") == "cpu"
    cupy.cuda.limit = None
    assert backend.resolve_device("auto") == "gpu"


WITHOUT_CUPY = """
import sys, numpy as np, daskgp

class Refuse:
    def find_spec(self, name, *_):
        if name.partition(".")[0] != "cupy":
            return None
        frame = sys._getframe(1)
        while frame.f_globals["__name__"].startswith("importlib"):
            frame = frame.f_back
        asking = frame.f_globals["__name__"]  # Dask and Zarr look for it themselves
        assert asking.partition(".")[0] != "daskgp", f"{asking} looked for cupy"
        raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Refuse())
X = np.random.default_rng(0).uniform(size=(40, 2))
model = daskgp.SGPR(n_inducing=4, max_iter=1, device=sys.argv[1], progress=False)
model.fit(X, X[:, 0]).predict(X)
"""


@pytest.mark.slow
def test_the_cpu_never_imports_cupy():
    def run(device):
        command = [sys.executable, "-c", WITHOUT_CUPY, device]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("cpu").returncode == 0
    assert "daskgp.arrays.backend looked for cupy" in run("auto").stderr


# --- a local cluster of GPU workers


@pytest.fixture
def dask_cuda(monkeypatch):
    """dask-cuda is installed, or not."""

    def put(module):
        if module is not None:
            module.__spec__ = importlib.machinery.ModuleSpec(gpus.DASK_CUDA, None)
        found = gpus.importlib.util.find_spec
        monkeypatch.setitem(sys.modules, gpus.DASK_CUDA, module)
        monkeypatch.setattr(
            gpus.importlib.util,
            "find_spec",
            lambda name: (module and object()) if name == gpus.DASK_CUDA else found(name),
        )

    return put


@pytest.mark.parametrize(
    ("device", "count", "asked", "started"),
    [
        ("cpu", 1, None, 0),
        ("gpu", 1, None, 1),
        ("auto", 1, None, 1),
        ("auto", 0, None, 0),
        ("auto", 1, 4, 0),  # more than there are GPUs: workers of cores, as asked
        ("gpu", 2, 1, 1),
    ],
)
def test_workers_of_a_local_cluster(cupy, dask_cuda, device, count, asked, started):
    dask_cuda(None)
    cupy.cuda.runtime.getDeviceCount = lambda: count
    assert gpus.to_start(device, asked) == started
    assert ("asarray", (2, 2)) not in cupy.cuda.log


def test_several_gpus_want_dask_cuda(cupy, dask_cuda, caplog):
    dask_cuda(None)
    cupy.cuda.runtime.getDeviceCount = lambda: 2
    with pytest.raises(DeviceError, match=r"2 GPUs need dask-cuda.*pip install 'daskgp\[gpu\]'"):
        gpus.to_start("gpu", None)
    assert gpus.to_start("auto", None) == 1
    assert "only the first of 2 GPUs is used" in caplog.text
    with pytest.raises(InputError, match="3 workers for 2 GPUs: choose 2 at most"):
        gpus.to_start("gpu", 3)
    cupy.cuda.runtime.getDeviceCount = lambda: 0
    with pytest.raises(DeviceError, match="the CUDA driver finds no device"):
        gpus.to_start("gpu", None)


def test_dask_cuda_starts_a_worker_a_gpu(cupy, dask_cuda):
    import types

    module = types.ModuleType(gpus.DASK_CUDA)
    module.LocalCUDACluster = lambda **given: given
    dask_cuda(module)
    cupy.cuda.runtime.getDeviceCount = lambda: 2
    given = gpus.start(gpus.to_start("gpu", None), None, dashboard_address=":0")
    assert given["n_workers"] == 2
    assert given["threads_per_worker"] == 1
    assert given["resources"] == {"GPU": 1}
    assert given["memory_limit"] == gpus.MEMORY_LIMIT // 2


def test_one_gpu_needs_no_dask_cuda_and_a_broken_one_is_named(cupy, dask_cuda, monkeypatch):
    dask_cuda(None)  # importing it fails
    monkeypatch.setattr(gpus, "LocalCluster", lambda **given: given)
    assert gpus.start(1, None)["n_workers"] == 1
    with pytest.raises(DeviceError, match="2 GPUs need dask-cuda, which cannot be imported"):
        gpus.start(2, None)


@pytest.mark.parametrize(
    "said",
    [
        "cudaErrorMemoryAllocation: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ],
)
def test_what_says_that_memory_ran_out(said):
    with pytest.raises(DeviceMemoryError), backend.device_memory_is_named("here", "less"):
        raise RuntimeError(said)
    with pytest.raises(RuntimeError, match="illegal"), backend.device_memory_is_named("", ""):
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")
