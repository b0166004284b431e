"""Kernels in one pass on a GPU, their CUDA source built by the host's compiler."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from daskgp import kernels
from daskgp.kernels import fused
from daskgp.kernels.weights import Weights
from tests.maths import fakearray, fakecuda

pytestmark = pytest.mark.skipif(fakecuda.COMPILER is None, reason="there is no C compiler")

KERNELS = {
    "rbf": kernels.RBF(lengthscale=(0.5, 0.8, 1.1), variance=1.4),
    "matern12": kernels.Matern12(0.7, variance=0.6),
    "matern32": kernels.Matern32(lengthscale=(0.5, 0.8, 1.1), variance=1.4),
    "matern52": kernels.Matern52(0.7),
    "rational_quadratic": kernels.RationalQuadratic(0.7, alpha=1.7, variance=1.3),
    "periodic": kernels.Periodic(1.2, 0.9, 1.1, active_dims=[0, 2]),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
forms = pytest.mark.parametrize("form", ["dense", "by owner"])


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks and pieces small enough that a few rows fill several of them."""
    monkeypatch.setattr(fused, "THREADS", 8)
    monkeypatch.setattr(fused, "PIECE", 5)
    monkeypatch.setattr(fused, "_part", lambda n, row_bytes, least=0: 12)
    monkeypatch.setattr("daskgp.kernels.weights.RUN", 9)


@pytest.fixture
def cupy():
    """A strict stand-in for CuPy that compiles."""
    return fakecuda.give(fakearray.module("cupy"))


def inputs(dtype="float64"):
    rng = np.random.default_rng(0)
    return rng.uniform(0, 1, (29, 3)).astype(dtype), rng.uniform(0, 1, (21, 3)).astype(dtype)


def weights_of(form, n=29, t=3):
    rng = np.random.default_rng(1)
    if form == "dense":
        return Weights.dense(rng.standard_normal((n, t)))
    owner = np.sort(rng.choice([1, 2, 5], n))  # not every function has points here
    return Weights(rng.standard_normal(n), owner, 7)


def there(xp, weights):
    return Weights(xp.asarray(weights.values), weights.owner, weights.count)


def assert_gradients(found, wanted, rtol=1e-12):
    for f, w in zip(found, wanted, strict=True):
        if w is None:
            assert f is None
            continue
        f = f.get() if hasattr(f, "get") else f
        np.testing.assert_allclose(f, w, rtol=0, atol=rtol * max(1, np.abs(w).max(initial=0)))


@every_kernel
def test_tiles(cupy, kernel):
    X, Z = inputs()
    X[3] = Z[4]  # a distance of zero
    found = kernel(cupy.asarray(X), cupy.asarray(Z))
    np.testing.assert_allclose(found.get(), kernel(X, Z), rtol=1e-12)
    square = kernel(cupy.asarray(X)).get()
    np.testing.assert_allclose(square, kernel(X), rtol=1e-12)
    np.testing.assert_array_equal(square, square.T)
    np.testing.assert_array_equal(np.diag(square), kernel.diag(X))
    assert cupy.launched == ["tile", "tile"]


@every_kernel
def test_pullbacks(cupy, kernel):
    X, Z = inputs()
    X[3] = Z[4]
    for pair in ((X, Z), (X, None)):
        K, pull = kernel.pullback(*pair)
        K_bar = np.random.default_rng(2).standard_normal(K.shape)
        there = [None if A is None else cupy.asarray(A) for A in pair]
        value, pull_there = kernel.pullback(*there)
        np.testing.assert_allclose(value.get(), K, rtol=1e-12)
        for _ in range(2):  # a pullback may be called again
            assert_gradients(pull_there(cupy.asarray(K_bar)), pull(K_bar))
    assert {"pull_rows", "pull_columns"} <= set(cupy.launched)


def test_a_pullback_brings_its_numbers_back_at_once(cupy):
    X, Z = (cupy.asarray(A) for A in inputs())
    _, pull = KERNELS["rational_quadratic"].pullback(X, Z)
    cupy.moves = 0
    pull(cupy.ones((29, 21)))
    assert cupy.moves == 3  # the sums of K_bar, and those of either features


@every_kernel
@forms
def test_sums_that_keep_no_tile(cupy, kernel, form):
    (Z, X), of = inputs(), weights_of(form)
    wanted = kernel.weighted(Z, of, X)
    found = kernel.weighted(cupy.asarray(Z), there(cupy, of), cupy.asarray(X))
    np.testing.assert_allclose(found.get(), wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    again = kernel.weighted(cupy.asarray(Z), there(cupy, of), cupy.asarray(X), found)
    np.testing.assert_allclose(again.get(), 2 * wanted, rtol=0, atol=1e-11)
    assert cupy.launched == ["contract", "contract"]


@every_kernel
@forms
def test_their_gradient(cupy, kernel, form):
    (Z, X), of = inputs(), weights_of(form)
    F_bar = np.random.default_rng(3).standard_normal((of.count, len(X)))
    given = cupy.asarray(Z), there(cupy, of), cupy.asarray(X), cupy.asarray(F_bar)
    for by_inputs in (False, True):
        wanted = kernel.weighted_vjp(Z, of, X, F_bar, by_inputs)
        assert_gradients(kernel.weighted_vjp(*given, by_inputs), wanted)
    periodic = isinstance(kernel, kernels.Periodic)  # its features are no scaled columns
    assert cupy.launched == ([] if periodic else ["learn"])


def test_many_dense_functions_are_a_tile_times_a_matrix(cupy):
    (Z, X), of = inputs(), weights_of("dense", t=fused.MOST_COLUMNS + 1)
    kernel = KERNELS["matern32"]
    found = kernel.weighted(cupy.asarray(Z), there(cupy, of), cupy.asarray(X))
    np.testing.assert_allclose(found.get(), kernel.weighted(Z, of, X), rtol=1e-10, atol=1e-12)
    assert "contract" not in cupy.launched


@every_kernel
@forms
def test_float32_is_added_up_in_float64(cupy, kernel, form):
    (Z, X), of = inputs("float32"), weights_of(form)
    wide = Z.astype(float), of, X.astype(float)
    F_bar = np.random.default_rng(3).standard_normal((of.count, len(X)))
    given = cupy.asarray(Z), there(cupy, of), cupy.asarray(X)
    found = kernel.weighted(*given)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.get(), kernel.weighted(*wide), rtol=1e-4, atol=1e-5)
    gradient = kernel.weighted_vjp(*given, cupy.asarray(F_bar), by_inputs=False)
    wanted = kernel.weighted_vjp(*wide, F_bar, by_inputs=False)
    np.testing.assert_allclose(gradient.log_parameters, wanted.log_parameters, rtol=1e-4, atol=1e-4)


def test_no_rows_no_points(cupy):
    X, kernel = cupy.asarray(inputs()[0]), KERNELS["rbf"]
    assert kernel(X, X[:0]).shape == (29, 0)
    K, pull = kernel.pullback(X[:0], X)
    assert_gradients(pull(K), (np.zeros(4), np.zeros((0, 3)), np.zeros((29, 3))))
    none = Weights.dense(cupy.zeros((0, 2)))
    np.testing.assert_array_equal(kernel.weighted(X[:0], none, X).get(), np.zeros((2, 29)))


class TestDispatch:
    """What is compiled, and where."""

    def test_never_on_the_host(self, monkeypatch):
        def compile_(*given):
            pytest.fail("compiled for NumPy")

        monkeypatch.setattr("daskgp.arrays.backend.device_source", compile_)
        for kernel in KERNELS.values():
            X, Z = inputs()
            kernel.pullback(X, Z)[1](np.ones((29, 21)))
            kernel.weighted(Z, Weights.dense(np.ones((21, 2))), X)

    def test_parts_of_sums_and_products(self, cupy):
        kernel = KERNELS["rbf"] + KERNELS["matern32"] * kernels.Linear()
        X, Z = inputs()
        found = kernel(cupy.asarray(X), cupy.asarray(Z))
        np.testing.assert_allclose(found.get(), kernel(X, Z), rtol=1e-12)
        assert cupy.launched == ["tile", "tile"]

    def test_too_many_features_for_registers(self, cupy):
        X = np.random.default_rng(0).uniform(0, 1, (5, fused.MOST_FEATURES + 1))
        found = kernels.RBF()(cupy.asarray(X))
        np.testing.assert_allclose(found.get(), kernels.RBF()(X), rtol=1e-12)
        assert cupy.launched == []


class TestTheHostItself:
    """A stand-in that allows too much would prove nothing."""

    SOURCE = """
#define real double
#define THREADS 8
ENTRY void turn(real *A)
{
    SHARED real held[THREADS];
    int t = threadIdx.x;
    held[t] = A[t];
    %s
    A[t] = held[THREADS - 1 - t];
}
"""

    def turned(self, cupy, between):
        A = cupy.arange(8.0)
        module = cupy.RawModule(code=fused.CUDA + self.SOURCE % between)
        module.get_function("turn")((1, 1), (8,), (A,))
        return A.get()

    def test_a_barrier_is_kept_and_its_lack_is_seen(self, cupy):
        np.testing.assert_array_equal(self.turned(cupy, "BARRIER();"), np.arange(8.0)[::-1])
        assert not np.array_equal(self.turned(cupy, ""), np.arange(8.0)[::-1])

    def test_a_barrier_that_some_threads_never_reach(self, cupy):
        with pytest.raises(AssertionError, match="left while others wait"):
            self.turned(cupy, "if (t == 3) return;\n BARRIER();")

    def test_arguments_of_another_type(self, cupy):
        function = cupy.RawModule(code=fused.CUDA + self.SOURCE % "").get_function("turn")
        for wrong in (cupy.zeros(8, dtype="float32"), cupy.zeros(16)[::2]):
            with pytest.raises(AssertionError, match=r"real|double"):
                function((1, 1), (8,), (wrong,))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no CUDA compiler")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_source_is_cuda(tmp_path, dtype, monkeypatch):
    monkeypatch.setattr(fused, "THREADS", 128)
    monkeypatch.setattr(fused, "PIECE", 64)
    for formula in ("rational_quadratic", "matern12"):
        code = tmp_path / f"{formula}.cu"
        code.write_text(fused.CUDA + fused.source(formula, dtype, fused.MOST_FEATURES, 8))
        words = ["nvcc", "-ptx", "-std=c++14", str(code), "-o", str(tmp_path / "code.ptx")]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr


def test_a_run_on_the_host_never_imports_cupy():
    code = (
        "import sys\n"
        "sys.modules['cupy'] = sys.modules['cupyx'] = None\n"
        "import numpy as np\n"
        "from daskgp.models.values import Block, Theta\n"
        "from daskgp.models.sparse.sgpr import SGPR\n"
        "from daskgp.kernels import Matern32\n"
        "X = np.arange(6.0)[:, None]\n"
        "theta, model = Theta(Matern32(), 0.1, X[:3]), SGPR()\n"
        "prepared = model.prepare(theta)\n"
        "total = model.local(prepared, Block(X, X))\n"
        "model.objective(prepared, total)\n"
        "model.predict(theta, model.posterior(prepared, total), X)\n"
        "assert not [m for m in sys.modules if m.partition('.')[0] in ('dask', 'zarr')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
