"""Vectors of numbers in compiled code."""

import zlib
from pathlib import Path

import numpy as np
import pytest

numba = pytest.importorskip("numba", exc_type=ImportError)

from daskgp.arrays import lanes  # noqa: E402 - imports numba
from daskgp.arrays.lanes import LANES, fill, load, muladd, pointer, store  # noqa: E402
from daskgp.kernels.program import CODES  # noqa: E402
from daskgp.models.markov import conditionals  # noqa: E402

SOURCES = {4: 1663203480}
"""Checksum of what compiled code takes from other files, by ``compiled.REVISION``."""


@numba.njit
def exponentials(x, out):
    memory, found = pointer(x), pointer(out)
    for i in range(0, len(x), LANES):
        store(found, i, lanes.exponential(load(memory, i)))


@numba.njit
def arithmetic(x, out):
    memory, found = pointer(x), pointer(out)
    a, b = load(memory, 0), load(memory, 8)
    store(found, 0, lanes.smallest(a, b) / b + lanes.root(a) * b - lanes.negative(a))
    store(found, 8, muladd(a, b, fill(2.0)) - lanes.largest(a, fill(0.9)))
    return lanes.total(a)


def test_exponential_is_right_to_a_rounding():
    draws = np.random.default_rng(0).normal(size=8000)
    x = np.concatenate([np.linspace(-199, 700, 8000), draws, np.zeros(LANES)])
    out = np.empty_like(x)
    exponentials(x, out)
    assert np.abs(out / np.exp(x) - 1).max() < 4.5e-16
    assert (out[-LANES:] == 1).all()


def test_the_exponential_of_nan_is_nan_whatever_its_bits():
    """R's missing values and others carry numbers in them."""
    bits = np.array([0, 1, 8, 1954, 2**51 - 1], np.uint64) | np.uint64(0x7FF8 << 48)
    x = np.zeros(2 * LANES)
    x[:10] = np.concatenate([bits, bits | np.uint64(1 << 63)]).view(np.float64)
    x[10] = -np.inf
    out = np.empty_like(x)
    exponentials(x, out)
    assert np.isnan(out[:10]).all()
    np.testing.assert_allclose(out[10], np.exp(-200.0))
    assert (out[11:] == 1).all()


def test_small_exponentials_stay_normal_numbers():
    out = np.empty(LANES)
    exponentials(np.full(LANES, -1e6), out)
    np.testing.assert_allclose(out, np.exp(-200.0))


def test_arithmetic():
    x, out = np.random.default_rng(0).uniform(0.5, 1.5, 16), np.empty(16)
    a, b = x[:8], x[8:]
    np.testing.assert_allclose(arithmetic(x, out), a.sum())
    np.testing.assert_allclose(out[:8], np.minimum(a, b) / b + np.sqrt(a) * b + a)
    np.testing.assert_allclose(out[8:], a * b + 2 - np.maximum(a, 0.9))


def test_compiled_code_is_made_again_when_its_sources_change():
    compiled = conditionals.compiled()  # by one process at a time
    codes = repr({kind.__name__: code for kind, code in CODES.items()})
    found = zlib.crc32(Path(lanes.__file__).read_text("utf-8").encode() + codes.encode())
    assert {compiled.REVISION: found} == SOURCES, "raise compiled.REVISION and note the checksum"
