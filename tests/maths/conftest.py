"""The maths is tested over every array module: NumPy and a strict stand-in for CuPy."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest


def _fakearray():
    # tests run in importlib mode, where neighbours are not on the path
    if "fakearray" not in sys.modules:
        path = Path(__file__).with_name("fakearray.py")
        spec = importlib.util.spec_from_file_location("fakearray", path)
        sys.modules["fakearray"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["fakearray"])
    return sys.modules["fakearray"]


_fakearray()


@pytest.fixture(params=["numpy", "fake"])
def xp(request):
    """The array module under test."""
    return np if request.param == "numpy" else _fakearray().module("device")


@pytest.fixture
def fake():
    """A factory of fake array modules, one a device."""
    return _fakearray().module


@pytest.fixture
def rng():
    return np.random.default_rng(20)
