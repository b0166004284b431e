"""The benchmark of a GPU runs without one: on NumPy, and on a strict stand-in for CuPy."""

import json
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from daskgp.arrays import backend
from daskgp.kernels import fused
from tests.maths import fakearray, fakecuda

SCRIPT = Path(__file__).parents[1] / "workflows" / "benchmarks" / "gpu.py"
SIZES = (
    *("--gemm", "64", "--repeats", "1", "--rows", "300", "--inducing", "20", "--block", "50"),
    *("--lma-rows", "300", "--support", "10", "--lma-block", "30", "--lma-together", "4"),
    *("--cagp-rows", "150", "--actions", "10"),
)
BLOCKED = (
    "import runpy, sys\n"
    "for name in {blocked!r}:\n"
    "    sys.modules[name] = None\n"
    "sys.argv = [{script!r}, *{arguments!r}]\n"
    "runpy.run_path({script!r}, run_name='__main__')\n"
)


def without(blocked, *arguments):
    """The finished script, in a process that cannot import some modules."""
    code = BLOCKED.format(blocked=blocked, script=str(SCRIPT), arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def rows(*arguments):
    """What the script printed, run here; it must succeed."""
    main = runpy.run_path(str(SCRIPT))["main"]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


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


def assert_measured(found):
    by_method = {row["method"]: row for row in found if "method" in row}
    assert set(by_method) == {"sgpr", "lma", "cagp"}
    ceilings = [row for row in found if "ceiling" in row]
    assert [row["ceiling"] for row in ceilings] == ["gemm", "gemm", "copy"]
    sgpr = by_method["sgpr"]
    assert sgpr["tflops"] * 1e12 == pytest.approx(4 * 300 * 20**2 / sgpr["seconds"])
    return {name: row["value"] for name, row in by_method.items()}


MEASURED = ("--only", "ceilings", "--only", "sgpr", "--only", "lma", "--only", "cagp")


def test_it_measures_the_same_on_either(gpu):
    host = assert_measured(rows("--array-module", "numpy", *MEASURED, *SIZES))
    device = assert_measured(rows("--array-module", "cupy", *MEASURED, *SIZES))
    assert device == pytest.approx(host, rel=1e-5)  # of rows in float32, one of them


def test_memory_is_that_of_a_block():
    # in a process of its own, where nothing else allocates, and large enough for arrays to count
    sizes = (*SIZES, "--block", "4000")
    done = without([], "--array-module", "numpy", "--only", "memory", *sizes, "--json")
    row = json.loads(done.stdout)
    assert row["ok"], row
    assert row["rows"] == [8_000, 32_000]
    assert row["peak_mib"][0] > 0


def test_every_method_agrees_with_numpy_on_a_device(gpu):
    found = rows("--only", "check")
    assert {row["dtype"] for row in found} == {"float64", "float32"}
    assert [row["check"] for row in found if not row["ok"]] == []
    # not the same code on either: some digit differs
    assert max(row["difference"] for row in found if row["dtype"] == "float64") > 0


@pytest.mark.slow
@pytest.mark.skipif(fakecuda.COMPILER is None, reason="there is no C compiler")
def test_every_method_agrees_with_numpy_by_compiled_kernels(gpu, monkeypatch):
    monkeypatch.setattr(fused, "THREADS", 8)
    launched = fakecuda.give(gpu).launched
    assert [row["check"] for row in rows("--only", "check") if not row["ok"]] == []
    assert set(launched) == {"tile", "pull_rows", "pull_columns", "contract", "learn"}


def test_a_difference_beyond_tolerance_is_an_error(gpu, monkeypatch):
    right = gpu.linalg.solve_triangular
    monkeypatch.setattr(gpu.linalg, "solve_triangular", lambda *a, **k: right(*a, **k) * 1.001)
    script = runpy.run_path(str(SCRIPT))
    done = CliRunner().invoke(script["main"], ["--only", "check"])
    assert done.exit_code == 1
    assert "beyond tolerance: sgpr (float64)" in done.output


def test_neither_dask_nor_zarr_is_needed():
    blocked = ["dask", "distributed", "zarr", "xarray", "cupy"]
    done = without(blocked, "--array-module", "numpy", "--only", "check", "--only", "cagp", *SIZES)
    assert done.returncode == 0, done.stderr


def test_without_a_gpu_it_says_so_in_one_line():
    done = without(["cupy"])
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "device='gpu' cannot be had" in done.stderr
