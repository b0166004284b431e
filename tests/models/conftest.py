"""A device for the tests of methods: it refuses what a GPU refuses."""

import sys

import pytest

from daskgp.arrays import backend
from tests.maths import fakearray


@pytest.fixture
def gpu(monkeypatch):
    """A fake one, which device="gpu" stands for."""
    xp = fakearray.module("device")
    monkeypatch.setattr(backend, "_why_no_gpu", lambda: "")
    monkeypatch.setitem(sys.modules, "cupy", xp)
    return xp
