"""Functions sum_a s_a k(z_a, .) contracted as they are made, against S' K(Z, X) in full."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp import kernels
from daskgp.arrays.backend import to_host
from daskgp.errors import InputError
from daskgp.kernels import (
    RBF,
    Averaged,
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    weights,
)
from daskgp.kernels.categories import Table
from daskgp.kernels.radial import Radial
from daskgp.kernels.weights import Weights

OTHERS = (Table, Averaged)
MEASURED = [name for name, kind in kernels.REGISTRY.items() if not issubclass(kind, OTHERS)]
"""Kernels of columns of any numbers; those of codes and of areas have the base's sums."""
ARD = (0.8, 2.0, 1.3)
KERNELS = {
    **{name: kernels.REGISTRY[name]() for name in MEASURED},
    "averaged": Averaged(Matern32(0.8), (1, 2), [0]),
    "rbf ard": RBF(ARD, 2.0),
    "matern12 one column": Matern12(1.4, 0.5, active_dims=[1]),
    "matern32 ard": Matern32(ARD, 2.0),
    "rational_quadratic ard": RationalQuadratic(ARD, 0.7, 2.0),
    "periodic one column": Periodic(0.9, 1.7, 2.0, active_dims=[2]),
    "linear ard": Linear(ARD),
    "sum": RBF(1.4) + Matern12(0.9, active_dims=[0]) + 0.3,
    "sum of constants": Constant(0.5) + 2.0,
    "scaled": 0.1 * Matern52(ARD, 3.0) * 4.0,
    "scaled linear": 0.1 * Linear(2.0),
    "product": Periodic(active_dims=[1]) * RBF(ARD) * 0.5,
    "product of constants": Constant(0.5) * 2.0,
    "product of a sum": 0.7 * (Matern32(1.1) + Linear(0.4)),
    "nested": (RationalQuadratic(1.4) + 0.3) * (Linear() + Matern52(ARD)) + 0.2 * RBF(2.0),
}
RADIAL = [kind for kind in kernels.REGISTRY.values() if issubclass(kind, Radial)]
everyone = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
forms = pytest.mark.parametrize("form", ["dense", "by owner"])


@pytest.fixture
def small_patches(monkeypatch):
    """Tiles that few points and rows fill, so that small problems are cut."""
    monkeypatch.setattr(weights, "SPARSE_PATCH", (4, 3))
    monkeypatch.setattr(weights, "DENSE_PATCH", (3, 4))
    monkeypatch.setattr(weights, "DEVICE_PATCH", (5, 5))


def make(rng, form, a, t, dtype=np.float64):
    """Weights and the matrix S (a, t) that they are; by owner some functions have no points."""
    if form == "dense":
        S = rng.normal(size=(a, t)).astype(dtype)
        return Weights.dense(S), S
    owner, values = np.sort(rng.integers(0, t, a)), rng.normal(size=a).astype(dtype)
    return Weights(values, owner, t), matrix(values, owner, t)


def matrix(values, owner, t):
    S = np.zeros((len(values), t), values.dtype)
    S[np.arange(len(values)), owner] = values
    return S


def by_entry(found, of):
    """Entries of a derivative by S, those that the weights have."""
    return found if of.owner is None else found[np.arange(len(of)), of.owner]


def inputs(rng, a=11, n=8, d=3):
    return rng.normal(size=(a, d)), rng.normal(size=(n, d))


def sent(xp, of):
    return Weights(xp.asarray(of.values), of.owner, of.count)


def assert_gradient(found, kernel, Z, of, S, X, F_bar, rtol=1e-9):
    """That of sum(F_bar * S' K), by the vector-Jacobian product of the whole tile."""
    whole = kernel.vjp(Z, X, S @ F_bar)
    atol = rtol * np.abs(F_bar).sum()
    np.testing.assert_allclose(found.log_parameters, whole.log_parameters, rtol, atol)
    np.testing.assert_allclose(to_host(found.points), whole.X, rtol, atol)
    np.testing.assert_allclose(to_host(found.rows), whole.Z, rtol, atol)
    wanted = by_entry(kernel(Z, X) @ F_bar.T, of)
    np.testing.assert_allclose(to_host(found.weights), wanted, rtol, atol)


@pytest.mark.usefixtures("small_patches")
@everyone
@forms
def test_values_and_gradient_are_those_of_the_whole_tile(xp, rng, kernel, form):
    (Z, X), (of, S) = inputs(rng), make(rng, form, 11, 5)
    F_bar = rng.normal(size=(5, 8))
    there = [xp.asarray(Z), sent(xp, of), xp.asarray(X)]
    F = kernel.weighted(*there)
    found = kernel.weighted_vjp(*there, xp.asarray(F_bar))
    assert isinstance(F, xp.ndarray)
    for array in (found.weights, found.points, found.rows):
        assert isinstance(array, xp.ndarray)
    assert type(found.log_parameters) is np.ndarray
    np.testing.assert_allclose(to_host(F), S.T @ kernel(Z, X), rtol=1e-11, atol=1e-12)
    assert_gradient(found, kernel, Z, of, S, X, F_bar)


@pytest.mark.parametrize("kernel", [Matern32(ARD), KERNELS["nested"]], ids=["radial", "nested"])
@forms
def test_tiles_of_the_sizes_in_use(rng, kernel, form):
    a, n = 256 + 40, 512 + 70
    (Z, X), (of, S) = inputs(rng, a, n), make(rng, form, a, 90)
    F_bar = rng.normal(size=(90, n))
    F = kernel.weighted(Z, of, X)
    np.testing.assert_allclose(F, S.T @ kernel(Z, X), rtol=1e-10, atol=1e-10)
    found = kernel.weighted_vjp(Z, of, X, F_bar)
    assert_gradient(found, kernel, Z, of, S, X, F_bar, rtol=1e-10)


@pytest.mark.usefixtures("small_patches")
@pytest.mark.parametrize("d", [1, 2, 4, 5, 12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", RADIAL)
def test_the_fast_path_of_radial_kernels_is_the_general_one(rng, kind, d, dtype):
    kernel = kind() if kind is Periodic else kind(tuple(np.linspace(0.8, 3, d)), variance=1.7)
    Z, X = (A.astype(dtype) for A in inputs(rng, 30, 20, d))
    of, S = make(rng, "by owner", 30, 7, dtype)
    F_bar = rng.normal(size=(7, 20)).astype(dtype)
    rtol = 1e-10 if dtype == np.float64 else 2e-4
    F = kernel.weighted(Z, of, X)
    np.testing.assert_allclose(F, Kernel.weighted(kernel, Z, of, X), rtol, rtol)
    np.testing.assert_allclose(F, S.T @ kernel(Z, X), rtol, rtol)
    found = kernel.weighted_vjp(Z, of, X, F_bar)
    wanted = Kernel.weighted_vjp(kernel, Z, of, X, F_bar)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol, 10 * rtol)


@pytest.mark.usefixtures("small_patches")
@everyone
@forms
def test_dtype_in_dtype_out(xp, rng, kernel, form):
    Z, X = (A.astype(np.float32) for A in inputs(rng))
    of, S = make(rng, form, 11, 5)  # float64, as is F_bar
    F_bar = rng.normal(size=(5, 8))
    there = [xp.asarray(Z), sent(xp, of), xp.asarray(X)]
    F = kernel.weighted(*there)
    found = kernel.weighted_vjp(*there, xp.asarray(F_bar))
    assert F.dtype == np.float32
    assert found.log_parameters.dtype == np.float64
    assert {A.dtype for A in found[1:]} == {np.dtype(np.float32)}
    Z, X = Z.astype(np.float64), X.astype(np.float64)
    np.testing.assert_allclose(to_host(F), S.T @ kernel(Z, X), rtol=1e-4, atol=1e-4)
    assert_gradient(found, kernel, Z, of, S, X, F_bar, rtol=2e-4)


@everyone
def test_values_are_added_to_what_is_there(xp, rng, kernel):
    (Z, X), (of, S) = inputs(rng), make(rng, "by owner", 11, 5)
    before = rng.normal(size=(5, 12))
    wide = xp.asarray(before)
    out = wide[:, 2:10]
    found = kernel.weighted(xp.asarray(Z), sent(xp, of), xp.asarray(X), out)
    assert found is out
    before[:, 2:10] += S.T @ kernel(Z, X)
    np.testing.assert_allclose(to_host(wide), before, rtol=1e-11, atol=1e-12)


@everyone
@forms
def test_panels_of_points_add_up_to_all_of_them(rng, kernel, form):
    (Z, X), (of, _) = inputs(rng), make(rng, form, 11, 5)
    F_bar = rng.normal(size=(5, 8))
    F, by_log, by_rows, by_weights, by_points = None, 0.0, 0.0, [], []
    for part in (slice(0, 4), slice(4, 5), slice(5, 5), slice(5, 11)):
        owner = None if of.owner is None else of.owner[part]
        few = Weights(of.values[part], owner, of.count)
        F = kernel.weighted(Z[part], few, X, F)
        gradient = kernel.weighted_vjp(Z[part], few, X, F_bar)
        by_log = by_log + gradient.log_parameters
        by_rows = by_rows + gradient.rows
        by_weights.append(gradient.weights)
        by_points.append(gradient.points)
    whole = kernel.weighted_vjp(Z, of, X, F_bar)
    np.testing.assert_allclose(F, kernel.weighted(Z, of, X), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(by_log, whole.log_parameters, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(by_rows, whole.rows, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.concatenate(by_weights), whole.weights, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(np.concatenate(by_points), whole.points, rtol=1e-9, atol=1e-9)


@everyone
@forms
@pytest.mark.parametrize(("a", "n"), [(1, 1), (1, 8), (11, 1), (0, 8), (11, 0), (0, 0)])
def test_one_point_one_row_or_none(rng, kernel, form, a, n):
    (Z, X), (of, S) = inputs(rng, a, n), make(rng, form, a, 3)
    F_bar = rng.normal(size=(3, n))
    F = kernel.weighted(Z, of, X)
    assert F.shape == (3, n)
    np.testing.assert_allclose(F, S.T @ kernel(Z, X), rtol=1e-11, atol=1e-12)
    found = kernel.weighted_vjp(Z, of, X, F_bar)
    assert found.weights.shape == of.values.shape
    assert_gradient(found, kernel, Z, of, S, X, F_bar)


@everyone
@forms
def test_read_only_and_strided_arrays(rng, kernel, form):
    (Z, X), (of, _) = inputs(rng), make(rng, form, 11, 5)
    F_bar = rng.normal(size=(5, 8))
    F, wanted = kernel.weighted(Z, of, X), kernel.weighted_vjp(Z, of, X, F_bar)
    strided = np.full((22, 6), np.nan)
    strided[::2, ::2] = Z
    values, owner = np.repeat(of.values, 2, axis=0)[::2], of.owner
    given = [strided[::2, ::2], values, np.asfortranarray(X), np.asfortranarray(F_bar)]
    for array in (*given, *([] if owner is None else [owner])):
        array.flags.writeable = False
    Z, values, X, F_bar = given
    there = Z, Weights(values, owner, 5), X
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(kernel.weighted(*there), F, **close)
    for one, other in zip(kernel.weighted_vjp(*there, F_bar), wanted, strict=True):
        np.testing.assert_allclose(one, other, **close)


@everyone
@pytest.mark.parametrize("where", ["first", "last", "between", "all but one"])
def test_functions_without_points_are_zero(rng, kernel, where):
    Z, X = inputs(rng, 6, 4)
    owner = {"first": [2, 2, 2, 3, 3, 4], "last": [0, 0, 1, 1, 2, 2], "between": [0, 0, 0, 4, 4, 4]}
    owner = np.array(owner.get(where, [3] * 6))
    values = rng.normal(size=6)
    of, S = Weights(values, owner, 5), matrix(values, owner, 5)
    F, F_bar = kernel.weighted(Z, of, X), rng.normal(size=(5, 4))
    empty = np.setdiff1d(np.arange(5), owner)
    assert not F[empty].any()
    np.testing.assert_allclose(F, S.T @ kernel(Z, X), rtol=1e-11, atol=1e-12)
    assert_gradient(kernel.weighted_vjp(Z, of, X, F_bar), kernel, Z, of, S, X, F_bar)


@everyone
def test_rows_that_are_points(rng, kernel):
    Z = np.repeat(inputs(rng, 5)[0], 2, axis=0)
    of, S = make(rng, "by owner", 10, 4)
    F_bar = rng.normal(size=(4, 10))
    np.testing.assert_allclose(kernel.weighted(Z, of, Z), S.T @ kernel(Z), rtol=1e-7, atol=1e-9)
    assert_gradient(kernel.weighted_vjp(Z, of, Z, F_bar), kernel, Z, of, S, Z, F_bar, rtol=1e-7)


sizes = st.integers(1, 20)


@given(
    a=sizes,
    n=sizes,
    t=st.integers(1, 9),
    d=st.integers(1, 5),
    tall=st.integers(1, 8),
    wide=st.integers(1, 8),
    form=st.sampled_from(["dense", "by owner"]),
    name=st.sampled_from(MEASURED),
    seed=st.integers(0, 2**31),
)
def test_any_shape_with_any_tiles(a, n, t, d, tall, wide, form, name, seed):
    rng, kernel = np.random.default_rng(seed), kernels.REGISTRY[name]()
    Z, X = inputs(rng, a, n, d)
    of, S = make(rng, form, a, t)
    F_bar = rng.normal(size=(t, n))
    with pytest.MonkeyPatch.context() as patch:
        for tile in ("SPARSE_PATCH", "DENSE_PATCH"):
            patch.setattr(weights, tile, (tall, wide))
        F, found = kernel.weighted(Z, of, X), kernel.weighted_vjp(Z, of, X, F_bar)
    np.testing.assert_allclose(F, S.T @ kernel(Z, X), rtol=1e-9, atol=1e-10)
    assert_gradient(found, kernel, Z, of, S, X, F_bar)


# --- weights as a matrix


@pytest.mark.usefixtures("small_patches")
@forms
def test_products_with_the_matrix(xp, rng, form):
    of, S = make(rng, form, 11, 5)
    there = sent(xp, of)
    F, M, P = rng.normal(size=(6, 11)), rng.normal(size=(6, 5)), rng.normal(size=(5, 11))
    close = {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(to_host(there.times(xp.asarray(F))), F @ S, **close)
    np.testing.assert_allclose(to_host(there.spread(xp.asarray(M))), M @ S.T, **close)
    np.testing.assert_allclose(to_host(there.pulled(xp.asarray(P))), by_entry(P.T, of), **close)


@pytest.mark.usefixtures("small_patches")
@forms
def test_patches_cover_each_point_and_row_once(rng, form):
    of, S = make(rng, form, 11, 5)
    seen, rebuilt = np.zeros((11, 7), int), np.zeros_like(S)
    for patch in of.patches(7):
        seen[patch.points, patch.rows] += 1
        rebuilt[patch.points, patch.columns] = patch.weights.T
    np.testing.assert_array_equal(seen, 1)
    np.testing.assert_array_equal(rebuilt, S)


def test_arguments_that_do_not_agree(rng):
    (Z, X), (of, _) = inputs(rng), make(rng, "by owner", 11, 5)
    with pytest.raises(InputError, match="11 weights for 10 points"):
        RBF().weighted(Z[:10], of, X)
    with pytest.raises(InputError, match="11 weights for 10 points"):
        Linear().weighted_vjp(Z[:10], of, X, np.zeros((5, 8)))
    with pytest.raises(InputError, match=r"out has shape \(8, 5\), \(5, 8\) is needed"):
        RBF().weighted(Z, of, X, np.zeros((8, 5)))
    with pytest.raises(InputError, match="X has 3 columns, Z has 2"):
        RBF().weighted(Z, of, X[:, :2])
