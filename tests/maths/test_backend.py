import contextlib
import logging
import sys
import types

import numpy as np
import pytest
from fits import arrived

from daskgp import kernels
from daskgp.arrays import backend
from daskgp.errors import DeviceError, SettingError
from daskgp.models.values import Block, Theta


def test_namespace_of_arrays_and_scalars(xp):
    a = xp.asarray(np.ones(3))
    assert backend.namespace(a, 2.0, None, np.float64(1)) is xp
    assert backend.namespace(1.0, None) is np


def test_namespace_refuses_two_devices(fake):
    a, b = fake("a").asarray(np.ones(3)), fake("b").asarray(np.ones(3))
    with pytest.raises(DeviceError, match=r"fakearray_a and fakearray_b.*to_device or to_host"):
        backend.namespace(a, b)
    with pytest.raises(DeviceError, match="numpy and fakearray_b"):
        backend.namespace(np.ones(2), b)


def test_namespace_refuses_what_is_no_array():
    class Table:
        shape = (3, 2)

    with pytest.raises(DeviceError, match="Table is not an array daskgp computes with"):
        backend.namespace(Table())


def test_namespace_of_cupy_without_the_standard(monkeypatch):
    array = type("ndarray", (), {"__module__": "cupy._core.core", "shape": (2,)})()
    cupy = types.ModuleType("cupy")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert backend.namespace(array) is cupy


def test_to_host_moves_once_and_not_at_all(xp):
    a = np.arange(3.0)
    assert backend.to_host(a) is a
    host = backend.to_host(xp.asarray(a))
    assert type(host) is np.ndarray
    np.testing.assert_array_equal(host, a)


def test_to_device_cpu_casts():
    a = np.arange(3.0)
    assert backend.to_device(a, "cpu") is a
    assert backend.to_device(a, "cpu", np.float32).dtype == np.float32


def fake_cupy(count=0, error=None):
    cupy = types.ModuleType("cupy")
    Error = type("CUDARuntimeError", (RuntimeError,), {})

    def get_device_count():
        if error:
            raise Error(error)
        return count

    runtime = types.SimpleNamespace(getDeviceCount=get_device_count, CUDARuntimeError=Error)
    cupy.cuda = types.SimpleNamespace(runtime=runtime)
    cupy.asarray = lambda array, dtype=None: ("moved", array, dtype)
    cupy.exp, cupy.eye, cupy.linalg = np.exp, np.eye, np.linalg
    return cupy


@pytest.fixture
def cupy_is(monkeypatch):
    """Put a module, or nothing, where cupy would be found."""

    def put(cupy):
        monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: cupy and object())
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setattr(backend, "_announced", set())

    return put


@pytest.mark.parametrize(
    ("cupy", "reason"),
    [
        (None, "cupy is not installed"),
        (fake_cupy(0), "the CUDA driver finds no device"),
        (fake_cupy(error="insufficient driver"), "does not answer .insufficient driver."),
    ],
    ids=["no cupy", "no device", "no driver"],
)
def test_gpu_that_cannot_be_had(cupy_is, caplog, cupy, reason):
    cupy_is(cupy)
    with pytest.raises(
        DeviceError, match=f"device='gpu' is not available: .*{reason}.*device='cpu'"
    ):
        backend.resolve_device("gpu")
    with caplog.at_level(logging.INFO, "daskgp.arrays.backend"):
        assert backend.resolve_device("auto") == "cpu"
        assert backend.resolve_device("auto") == "cpu"
    assert len(caplog.records) == 1
    assert "device='auto' chose the cpu" in caplog.text


def test_gpu_that_is_there(cupy_is, caplog):
    cupy_is(fake_cupy(1))
    assert backend.resolve_device("gpu") == "gpu"
    with caplog.at_level(logging.INFO, "daskgp.arrays.backend"):
        assert backend.resolve_device("auto") == "gpu"
    assert "chose the gpu" in caplog.text
    assert backend.to_device([1], "gpu", "float32") == ("moved", [1], "float32")


def test_cpu_never_looks_for_cupy(monkeypatch):
    monkeypatch.setattr(backend, "_why_no_gpu", lambda: pytest.fail("looked for a GPU"))
    assert backend.resolve_device("cpu") == "cpu"


def test_broken_cupy_says_so(monkeypatch):
    monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "cupy", None)  # import raises ImportError
    with pytest.raises(DeviceError, match="cupy cannot be imported"):
        backend.resolve_device("gpu")


def test_unknown_device():
    with pytest.raises(SettingError, match="device must be 'auto', 'cpu' or 'gpu', not 'tpu'"):
        backend.resolve_device("tpu")


def test_special_functions(fake, monkeypatch):
    assert backend.special(np).ndtr(0.0) == 0.5
    xp = fake("a")
    xp.special = object()
    assert backend.special(xp) is xp.special
    cupyx = types.ModuleType("cupyx.scipy.special")
    for name in ("cupyx", "cupyx.scipy"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", cupyx)
    assert backend.special(types.ModuleType("cupy")) is cupyx


def test_cupy_is_told_to_raise(monkeypatch):
    # unless told so it gives back a half factored matrix
    told = []

    @contextlib.contextmanager
    def errstate(**settings):
        told.append(settings)
        yield
        told.append("left")

    cupyx, cupy = types.ModuleType("cupyx"), types.ModuleType("cupy")
    cupyx.errstate = errstate
    cupy.linalg = types.SimpleNamespace(cholesky=lambda A: told.append(A) or "L")
    monkeypatch.setitem(sys.modules, "cupyx", cupyx)
    assert backend.cholesky(cupy)("A") == "L"
    assert told == [{"linalg": "raise"}, "A", "left"]
    assert backend.cholesky(np) is np.linalg.cholesky


def test_a_number_leaves_a_device_in_one_way(fake):
    xp = fake("a")
    one = xp.asarray(np.ones(3)).sum()
    for silent in (float, int, bool):
        with pytest.raises(TypeError, match=r"use backend.number"):
            silent(one)
    xp.moves = 0
    assert backend.number(one) == backend.number(np.float64(3)) == 3.0
    assert xp.moves == 1


class TestTheFakeItself:
    """A stand-in that allows too much would prove nothing."""

    def test_no_implicit_move_to_the_host(self, fake):
        a = fake("a").asarray(np.ones(3))
        with pytest.raises(TypeError, match="implicit conversion"):
            np.asarray(a)
        with pytest.raises(TypeError):
            np.exp(a)

    def test_no_mixing(self, fake):
        xp = fake("a")
        a, b = xp.asarray(np.ones(3)), fake("b").asarray(np.ones(3))
        for other in (np.ones(3), b):
            with pytest.raises(TypeError):
                a + other
            with pytest.raises(TypeError):
                other + a
            with pytest.raises(TypeError):
                a += other
            with pytest.raises(TypeError):
                xp.add(a, other)
            with pytest.raises(TypeError):
                a[:] = other

    def test_functions_cupy_lacks(self, fake):
        assert not hasattr(fake("a"), "tril_indices_from_mask")
        assert not hasattr(fake("a"), "nditer")

    def test_arguments_cupy_lacks(self, fake):
        xp = fake("a")
        a = xp.asarray(np.eye(2))
        for call in (
            lambda: a.sum(where=a > 0),
            lambda: xp.argsort(a, kind="stable"),
            lambda: xp.einsum("ij,jk->ik", a, a, optimize=True),
        ):
            with pytest.raises(TypeError, match="on a device"):
                call()
        assert not hasattr(a.flags, "writeable")
        with pytest.raises(ValueError, match="Unsupported dtype"):
            xp.asarray(np.array([None]))

    def test_what_the_libraries_of_cuda_refuse(self, fake):
        xp = fake("a")
        none = xp.zeros((0, 0))
        with pytest.raises(AssertionError, match="empty matrix"):
            xp.linalg.cholesky(none)
        with pytest.raises(AssertionError, match="empty matrix"):
            xp.linalg.solve_triangular(none, xp.zeros((0, 3)), lower=True)

    def test_what_einsum_gives_is_no_view(self, fake):
        xp = fake("a")
        a = xp.asarray(np.eye(2))
        xp.einsum("ii->i", a)[...] = 7.0
        np.testing.assert_array_equal(a.get(), np.eye(2))

    def test_results_stay_on_the_device(self, fake):
        xp = fake("a")
        a = xp.asarray(np.eye(2))
        for result in (a @ a, a.sum(), a[0], a.T, xp.exp(a), 2 * a, a < 1):
            assert result.__array_namespace__() is xp


def test_arrays_of_messages_are_moved_to_where_they_are_multiplied_as_they_are():
    weights = np.random.default_rng(0).standard_normal((57, 2))
    tile = np.random.default_rng(1).standard_normal((57, 57))
    theta = Theta(kernels.RBF((1.0, 2.0)), 0.1, weights)
    given = [theta, Block(weights, tile), 3.0, ("text", None)]
    came = arrived(given)
    assert not came[0].inputs.flags.aligned
    found = backend.aligned(came)
    assert type(found[0]) is Theta
    assert type(found[1]) is Block
    assert found[2:] == given[2:]
    for own in (found[0].inputs, found[1].X):
        assert own.flags.aligned
        np.testing.assert_array_equal(own.T @ tile, weights.T @ tile)
    assert backend.aligned(found) is found
