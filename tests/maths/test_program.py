"""Kernels as programs: the same tiles and derivatives as the kernels themselves."""

from dataclasses import dataclass

import numpy as np
import pytest
from agree import assert_close
from maths.test_kernels import ARD, KERNELS, D

from daskgp.arrays.backend import to_host
from daskgp.errors import InputError
from daskgp.kernels import (
    RBF,
    REGISTRY,
    Averaged,
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    Rotated,
)
from daskgp.kernels.categories import Table
from daskgp.kernels.program import CODES, MOST_TERMS, program, tiles
from daskgp.testing import central_differences

GROUPS = ((2, 0), 1)
GROUPED = {
    "grouped": RationalQuadratic((0.7, 1.9), 0.6, 1.3, active_dims=GROUPS),
    "grouped variances": Linear((0.7, 1.9), active_dims=GROUPS),
    "one lengthscale": Matern52(0.8, 1.2, active_dims=GROUPS),
    "periodic of two": Periodic(0.9, 1.7, 1.2, active_dims=(2, 0)),
}
NONE = ("rotated", "averaged")  # Linear is rotated in a part of one, and the other is several
ALL = {name: one for name, one in KERNELS.items() if name not in NONE} | GROUPED


@dataclass(frozen=True)
class Own(RBF):
    """A user's kernel, which may compute anything."""


def composition(rng, depth=2):
    """A random kernel of three columns."""
    if depth == 0 or rng.random() < 0.3:
        kind = rng.choice([kind for kind in CODES if not issubclass(kind, Table)])
        size = int(rng.integers(1, D + 1))
        dims = tuple(map(int, rng.permutation(D)[:size]))
        many = tuple(rng.uniform(0.5, 2.0, size))
        if kind is Constant:
            return Constant(rng.uniform(0.2, 2.0))
        if kind is Linear:
            return Linear(many, active_dims=dims)
        if kind is Periodic:
            return Periodic(*rng.uniform(0.5, 2.0, 3), active_dims=dims)
        return kind(many, variance=rng.uniform(0.2, 2.0), active_dims=dims)
    left, right = composition(rng, depth - 1), composition(rng, depth - 1)
    return left + right if rng.random() < 0.5 else left * right


def check(kernel, X):
    """Compare tiles with the kernel's, and derivatives with its pullback."""
    K, by_log = tiles(program(kernel, D), X, slopes=True)
    assert len(by_log) == len(kernel.log_parameters)
    for i, rows in enumerate(X):
        assert_close(K[i], kernel(rows), 1e-10, 1e-10)
        bars = np.random.default_rng(1).normal(size=(len(rows), len(rows)))
        bars += bars.T
        found = (by_log[:, i] * bars).sum(axis=(1, 2))
        _, pull = kernel.pullback(rows)
        assert_close(found, pull(bars).log_parameters, 1e-10, 1e-10)


@pytest.mark.parametrize("kernel", ALL.values(), ids=ALL)
def test_tiles_and_derivatives_are_the_kernels(rng, kernel):
    check(kernel, rng.normal(size=(3, 7, D)))


@pytest.mark.parametrize("seed", range(20))
def test_random_compositions(seed):
    rng = np.random.default_rng(seed)
    check(composition(rng), rng.normal(size=(2, 6, D)))


@pytest.mark.parametrize("kernel", ALL.values(), ids=ALL)
def test_derivatives_are_those_of_tiles(rng, kernel):
    X, bars = rng.normal(size=(1, 6, D)), rng.normal(size=(6, 6))
    by_log = tiles(program(kernel, D), X, slopes=True)[1]

    def value(logs):
        return float((tiles(program(kernel.with_log_parameters(logs), D), X)[0][0] * bars).sum())

    wanted = central_differences(value, kernel.log_parameters)
    assert_close((by_log[:, 0] * bars).sum(axis=(1, 2)), wanted, 1e-6, 1e-6)


def test_every_registered_kernel_of_the_package_is_known():
    own = {kind for kind in REGISTRY.values() if kind.__module__.startswith("daskgp.")}
    assert own - {Averaged, Rotated} == set(CODES)


def test_array_modules(xp, rng):
    X = rng.normal(size=(2, 5, D))
    known = program(ALL["nested"], D)
    wanted, by_log = tiles(known, X, slopes=True)
    found, by_log_too = tiles(known, xp.asarray(X), slopes=True)
    assert_close(to_host(found), wanted)
    assert_close(to_host(by_log_too), by_log)


def test_single_precision_is_computed_in_double(rng):
    X = rng.normal(size=(1, 5, D)).astype(np.float32)
    found = tiles(program(RBF(ARD), D), X)[0][0]
    assert found.dtype == np.float64
    assert_close(found, RBF(ARD)(X[0].astype(np.float64)))


def test_products_of_sums_are_expanded():
    both = program((RBF(1.0) + Matern12(1.0)) * (Linear() + Constant(2.0)), 1)
    assert both.terms.tolist() == [[0, 2], [0, 3], [1, 2], [1, 3]]


def test_unknown_and_endless_kernels_have_no_program():
    assert program(Own(1.0), D) is None
    assert program(RBF(1.0) + 2.0 * Own(1.0), D) is None
    pair = RBF(1.0) + Matern32(1.0)
    product: Kernel = pair
    while 2 ** len(product.parts) <= MOST_TERMS:
        product = product * pair if product is not pair else pair * pair
    assert program(product, D) is None


def test_columns_have_to_fit():
    with pytest.raises(InputError, match="give one each"):
        program(RBF((1.0, 2.0)), D)
    with pytest.raises(InputError, match="dimensions count from 0"):
        program(RBF(1.0, active_dims=[D]), D)
