"""The maths is tested over every array module: NumPy and a strict stand-in for CuPy."""

import numpy as np
import pytest

from tests.maths import fakearray


@pytest.fixture(params=["numpy", "fake"])
def xp(request):
    """The array module under test."""
    return np if request.param == "numpy" else fakearray.module("device")


@pytest.fixture
def fake():
    """A factory of fake array modules, one a device."""
    return fakearray.module


@pytest.fixture
def rng():
    return np.random.default_rng(20)
