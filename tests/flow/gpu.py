"""A machine with a GPU that is none: CuPy is a strict stand-in, here or in worker processes."""

import sys

import numpy as np
from distributed import WorkerPlugin

from daskgp import backend
from daskgp.flow import devices
from tests.maths import fakearray


def install(monkeypatch):
    """Have this process find a GPU, and nothing of earlier ones."""
    cupy = fakearray.module("device")
    log, arrays = cupy.cuda.log, fakearray.FakeArray
    made, get, asarray = arrays.__init__, arrays.get, cupy.asarray

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

    monkeypatch.setattr(arrays, "__init__", counted)
    monkeypatch.setattr(arrays, "get", logged_get)
    cupy.asarray = logged_asarray
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(backend, "_working", {})
    monkeypatch.setattr(backend, "_announced", set())
    monkeypatch.setattr(backend, "_copying", {})
    monkeypatch.setattr(devices, "_proven", {})
    return cupy


class FakeGPU(WorkerPlugin):
    """Workers that declare a GPU have one."""

    name = "fake-gpu"

    def setup(self, worker):
        if worker.state.total_resources.get("GPU"):
            sys.modules["cupy"] = fakearray.module("device")


def module_of_arrays():
    """The array module that a task computes with, with device='auto'; for workers."""
    return backend.namespace(backend.to_device(np.ones(2), "auto")).__name__
