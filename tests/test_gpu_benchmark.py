"""The benchmarks of a GPU run without one: on NumPy, and on a strict stand-in for CuPy."""

import json
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest

from daskgp.arrays import backend
from daskgp.kernels import fused
from tests.maths import fakearray, fakecuda

FOLDER = Path(__file__).parents[1] / "workflows" / "benchmarks"
CHECKS = ("gpu_check", "gpu_check_experts")
VALUES = {
    "out": None,
    "folder": ".",
    "threads": 1,
    "limit": None,
    "tiny": True,
    "gemm": 64,
    "repeats": 1,
    "rows": 300,
    "lma_rows": 300,
    "inducing": 20,
    "features": 8,
    "block": 50,
    "window": 30,
    "dtype": "float64",
    "support": 10,
    "together": 4,
    "vecchia_rows": 200,
    "neighbours": 5,
    "batch": 40,
    "steps": 3,
    "cagp_rows": 150,
    "actions": 10,
    "cagp_features": 7,
    "cagp_dtype": "float32",
}
BLOCKED = (
    "import runpy, sys\n"
    "for name in {blocked!r}:\n"
    "    sys.modules[name] = None\n"
    "sys.argv = [{script!r}, *{arguments!r}]\n"
    "sys.path.insert(0, {folder!r})\n"
    "runpy.run_path({script!r}, run_name='__main__')\n"
)


def without(blocked, name, *arguments):
    """The finished script, in a process that cannot import some modules."""
    script, folder = str(FOLDER / f"{name}.py"), str(FOLDER)
    code = BLOCKED.format(blocked=blocked, script=script, arguments=arguments, folder=folder)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def here(key, **values):
    """The option that measures one run in the process itself."""
    return f"--here={json.dumps([key, VALUES | values])}"


@pytest.fixture
def measured(monkeypatch):
    """What a script measures, in this process."""
    monkeypatch.syspath_prepend(FOLDER)

    def measure(name, key, **values):
        own = runpy.run_path(str(FOLDER / f"{name}.py"))
        return own["measure"](key, types.SimpleNamespace(**VALUES | values))

    return measure


@pytest.fixture
def gpu(monkeypatch):
    """A strict stand-in for CuPy, with the few functions of CUDA that measuring takes."""
    xp = fakearray.module("cupy")
    pool = types.SimpleNamespace(free_all_blocks=lambda: None, total_bytes=lambda: 0)
    stream = types.SimpleNamespace(synchronize=lambda: None)
    xp.cuda = types.SimpleNamespace(get_current_stream=lambda: stream)
    xp.get_default_memory_pool = lambda: pool
    monkeypatch.setattr(backend, "_why_no_gpu", lambda: "")
    monkeypatch.setitem(sys.modules, "cupy", xp)
    return xp


def test_it_measures_the_same_on_either(gpu, measured):
    rates = ("product float64", "product float32", "copy")
    passes = ("sgpr", "lma", "vecchia", "vecchia weights", "svgp", "cagp")
    values = {}
    for module in ("numpy", "cupy"):
        found = {
            part: measured("gpu", {"part": part, "array_module": module}, block=30)
            for part in (*rates, *passes)
        }
        assert found["product float32"]["tflops"] > 0
        assert found["copy"]["gb_per_s"] > 0
        sgpr = found["sgpr"]
        assert sgpr["tflops"] * 1e12 == pytest.approx(4 * 300 * 20**2 / sgpr["run_s"])
        values[module] = {part: found[part]["value"] for part in passes}
    assert values["cupy"] == pytest.approx(values["numpy"], rel=1e-5)  # one has rows in float32


def test_memory_is_that_of_a_block():
    # in a process of its own, where nothing else allocates, and large enough for arrays to count
    key = {"part": "memory", "array_module": "numpy"}
    done = without([], "gpu", here(key, block=4_000))
    row = json.loads(done.stdout)
    assert row["ok"], row
    assert row["rows"] == [8_000, 32_000]
    assert row["array_mib"][0] > 0


def test_every_method_agrees_with_numpy_on_a_device(gpu, measured):
    for name in CHECKS:
        found = measured(name, {"array_module": "cupy"})
        assert "failed" not in found
        differences = found["differences"].values()
        assert len(differences) > 10
        # not the same code on either: some digit differs
        assert max(row["float64"] for row in differences) > 0
        assert max(row["float32"] for row in differences) > 1e-8


@pytest.mark.slow
@pytest.mark.skipif(fakecuda.COMPILER is None, reason="there is no C compiler")
def test_every_method_agrees_with_numpy_by_compiled_kernels(gpu, measured, monkeypatch):
    monkeypatch.setattr(fused, "THREADS", 8)
    launched = fakecuda.give(gpu).launched
    assert ["failed" in measured(name, {"array_module": "cupy"}) for name in CHECKS] == [False] * 2
    assert set(launched) == {"tile", "pull_rows", "pull_columns", "contract", "learn"}


def test_a_difference_beyond_tolerance_is_an_error(gpu, measured, monkeypatch):
    right = gpu.linalg.solve_triangular
    monkeypatch.setattr(gpu.linalg, "solve_triangular", lambda *a, **k: right(*a, **k) * 1.001)
    found = measured("gpu_check", {"array_module": "cupy"})
    assert "beyond tolerance: sgpr (float64)" in found["failed"]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("gpu_check", {}),
        pytest.param("gpu_check_experts", {}, marks=pytest.mark.slow),
        pytest.param("gpu", {"part": "cagp"}, marks=pytest.mark.slow),
    ],
)
def test_neither_dask_nor_zarr_is_needed(name, part):
    blocked = ["dask", "distributed", "zarr", "xarray", "cupy"]
    done = without(blocked, name, here({"array_module": "numpy", **part}))
    assert done.returncode == 0, done.stderr
    assert "failed" not in json.loads(done.stdout)


@pytest.mark.slow
def test_the_table_of_the_host_has_all_parts(tmp_path):
    for name in ("gpu", *CHECKS):
        words = [sys.executable, str(FOLDER / f"{name}.py"), "--tiny", "--array-module", "numpy"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n| ") > 3


def test_without_a_gpu_it_says_so_in_one_line():
    done = without(["cupy"], "gpu")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "device='gpu' is not available" in done.stderr
