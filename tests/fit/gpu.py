"""A machine with a GPU that is none: CuPy is a strict stand-in, here or in worker processes."""

import sys

import numpy as np
from distributed import WorkerPlugin

from daskgp.arrays import backend
from daskgp.posterior import training_rows
from daskgp.runtime import device_memory
from tests.maths import fakearray


def install(monkeypatch):
    """Have this process find a GPU, and nothing of earlier ones."""
    cupy = _logging(monkeypatch.setattr)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(backend, "_working", {})
    monkeypatch.setattr(backend, "_announced", set())
    monkeypatch.setattr(backend, "_copying", {})
    monkeypatch.setattr(device_memory, "_proven", {})
    training_rows._cache.cache_clear()  # arrays of another fake GPU
    # tasks beside one that failed go on after its test, and look for CuPy before this one has it
    backend._is_installed.cache_clear()
    return cupy


def _logging(put):
    """A fake CuPy that notes moves and whose arrays may be too large."""
    cupy, arrays = fakearray.module("device"), fakearray.FakeArray
    log, made, get, asarray = cupy.cuda.log, arrays.__init__, arrays.get, cupy.asarray

    def counted(self, data, xp):
        made(self, data, xp)
        xp.cuda.allocate(self._data.nbytes)

    def logged_get(self):
        log.append(("get", self.shape))
        return get(self)

    def logged_asarray(value, dtype=None):
        if not isinstance(value, arrays):
            log.append(("asarray", np.shape(value)))
        return asarray(value, dtype)

    put(arrays, "__init__", counted)
    put(arrays, "get", logged_get)
    put(cupy, "asarray", logged_asarray)
    return cupy


class FakeGPU(WorkerPlugin):
    """Workers that declare a GPU have one."""

    name = "fake-gpu"

    def setup(self, worker):
        if worker.state.total_resources.get("GPU"):
            sys.modules["cupy"] = _logging(setattr)
            backend._is_installed.cache_clear()


def module_of_arrays(*_):
    """The array module that a task computes with, with device='auto'; for workers."""
    return backend.namespace(backend.to_device(np.ones(2), "auto")).__name__


def set_limit(limit):
    """The largest array of this process's GPU in bytes; nothing where it has none."""
    if "cupy" in sys.modules:
        sys.modules["cupy"].cuda.limit = limit


def moves():
    """How often this process moved an array to its GPU or back."""
    return len(sys.modules["cupy"].cuda.log) if "cupy" in sys.modules else 0
