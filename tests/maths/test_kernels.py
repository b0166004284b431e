"""Values, derivatives and the algebra of kernels, over every array module."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk

from daskgp import kernels
from daskgp.arrays.backend import to_host
from daskgp.errors import DeviceError, InputError, SettingError
from daskgp.kernels import (
    RBF,
    Averaged,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    Rotated,
    Sum,
    from_dict,
    parse,
)
from daskgp.testing import parametrize_with_checks

D = 3
ARD = (0.8, 2.0, 1.3)
LEAVES = {
    "rbf": RBF(1.4, 2.0),
    "rbf ard": RBF(ARD, 2.0),
    "matern12": Matern12(1.4, 2.0),
    "matern12 ard": Matern12(ARD, 0.5),
    "matern32": Matern32(1.4, 2.0),
    "matern32 ard": Matern32(ARD, 2.0),
    "matern32 default": Matern32(),
    "matern52": Matern52(1.4, 2.0),
    "matern52 ard": Matern52(ARD, 2.0),
    "rational_quadratic": RationalQuadratic(1.4, 0.7, 2.0),
    "rational_quadratic ard": RationalQuadratic(ARD, 30.0, 2.0),
    "periodic": Periodic(0.9, 1.7, 2.0),
    "linear": Linear(0.6),
    "linear ard": Linear(ARD),
    "constant": Constant(0.3),
    # one and two columns take the path of direct differences
    "matern52 one column": Matern52(1.4, 2.0, active_dims=[1]),
    "matern12 two columns": Matern12((1.4, 0.6), active_dims=[2, 0]),
    "periodic one column": Periodic(0.9, 1.7, active_dims=2),
    "linear two columns": Linear((0.5, 2.0), active_dims=[2, 1]),
}
COMPOSITES = {
    "sum": RBF(1.4) + Matern12(0.9, active_dims=[0]),
    "sum of constants": Constant(0.5) + 2.0,
    "product of constants": Constant(0.5) * 2.0,
    "scaled": 0.1 * Linear(),
    "product": Periodic(active_dims=[1]) * RBF(ARD) * 0.5 * Matern32(2.0, active_dims=[0, 2]),
    "rotated": Rotated(RBF(ARD, 2.0) + Linear(0.6), (2, 0), 30.0) * Matern12(1.4),
    "rotated in space": 0.5 * Rotated(Matern32(ARD), (0, 1, 2), (10.0, 130.0, 250.0)),
    "averaged": Averaged(Matern32(0.8, active_dims=0) + Linear(0.6), (1, 2), [0])
    + RBF(1.4, active_dims=0),
    "nested": (RationalQuadratic(1.4) + 0.3) * (Linear() + Matern52(ARD)) + 0.2 * RBF() * Linear(),
}
OF_NAMED = {kernels.Coregion, kernels.Categorical, kernels.Averaged}
"""Classes that need to know a column."""
LEAVES |= {
    name: kind()
    for name, kind in kernels.REGISTRY.items()
    if kind not in {*map(type, LEAVES.values()), *OF_NAMED}
}
KERNELS = LEAVES | COMPOSITES
everyone = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())


@parametrize_with_checks(KERNELS)
def test_checks(subject, check):
    check(subject)


def inputs(rng, n=9, m=6, d=D):
    return rng.normal(size=(n, d)), rng.normal(size=(m, d))


# --- values


def sklearn_twins():
    yield RBF(ARD, 2.0), 2.0 * sk.RBF(ARD)
    yield Matern12(1.4), sk.Matern(1.4, nu=0.5)
    yield Matern32(ARD, 2.0), 2.0 * sk.Matern(ARD, nu=1.5)
    yield Matern52(ARD), sk.Matern(ARD, nu=2.5)
    yield RationalQuadratic(1.4, 0.7, 2.0), 2.0 * sk.RationalQuadratic(1.4, 0.7)
    yield Linear(0.6), 0.6 * sk.DotProduct(sigma_0=0.0)
    yield Constant(0.3), sk.ConstantKernel(0.3)
    yield Periodic(0.9, 1.7, active_dims=[0]), sk.ExpSineSquared(0.9, 1.7)
    yield RBF(1.4) * Matern32(2.0) + 0.3, sk.RBF(1.4) * sk.Matern(2.0, nu=1.5) + 0.3


@pytest.mark.parametrize(("ours", "theirs"), list(sklearn_twins()))
def test_values_of_scikit_learn(xp, rng, ours, theirs):
    X, Z = inputs(rng)
    K = ours(xp.asarray(X), xp.asarray(Z))
    if isinstance(ours, Periodic):  # scikit-learn's takes the norm, ours a sum over columns
        X, Z = X[:, :1], Z[:, :1]
    np.testing.assert_allclose(to_host(K), theirs(X, Z), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [n for n, k in LEAVES.items() if getattr(k, "active_dims", None)])
def test_a_kernel_of_some_columns_is_that_of_them_alone(rng, name):
    kernel, (X, Z) = LEAVES[name], inputs(rng)
    alone, dims = dataclasses.replace(kernel, active_dims=None), list(kernel.active_dims)
    np.testing.assert_allclose(kernel(X, Z), alone(X[:, dims], Z[:, dims]), rtol=1e-13)


def test_values_of_linear_and_periodic_kernels_of_several_columns(rng):
    X, Z = inputs(rng)
    np.testing.assert_allclose(Linear(ARD)(X, Z), (X * ARD) @ Z.T, rtol=1e-12)
    columns = [Periodic(0.9, 1.7, active_dims=[j])(X, Z) for j in range(D)]
    np.testing.assert_allclose(Periodic(0.9, 1.7)(X, Z), np.prod(columns, axis=0), rtol=1e-12)


@everyone
def test_a_kernel_with_itself_is_exactly_symmetric(xp, rng, kernel):
    X = xp.asarray(inputs(rng, n=300)[0])
    K = to_host(kernel(X))
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), to_host(kernel.diag(X)))
    np.testing.assert_allclose(K, to_host(kernel(X, X)), rtol=1e-7, atol=1e-12)
    assert np.linalg.eigvalsh(K).min() > -1e-10 * np.trace(K)


@everyone
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_in_dtype_out(xp, rng, kernel, dtype):
    X, Z = (xp.asarray(A.astype(dtype)) for A in inputs(rng))
    K, pull = kernel.pullback(X, Z)
    gradient = pull(K)
    diagonal = kernel.diag_vjp(X, kernel.diag(X))
    for array in (K, kernel(X), kernel.diag(X), gradient.X, gradient.Z, diagonal.X):
        assert array.dtype == dtype
    for by_log in (gradient.log_parameters, diagonal.log_parameters):
        assert type(by_log) is np.ndarray
        assert by_log.dtype == np.float64
    exact = kernel(*(to_host(A).astype(np.float64) for A in (X, Z)))
    tolerance = 2e-6 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(to_host(K), exact, rtol=10 * tolerance, atol=10 * tolerance)


@everyone
def test_float32_gradient_is_near_the_float64_one(rng, kernel):
    X, Z = inputs(rng, 80, 60)
    K_bar = rng.normal(size=(80, 60))
    single = kernel.vjp(*(A.astype(np.float32) for A in (X, Z, K_bar)))
    double = kernel.vjp(*(A.astype(np.float32).astype(np.float64) for A in (X, Z, K_bar)))
    for one, other in zip(single, double, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-3)


def test_integers_and_lists_are_taken_as_floats():
    K = Linear()(np.array([[1, 2]]), np.array([[3, 4]]))
    assert K.dtype == np.float64
    assert K.item() == 11
    assert RBF()([[0.0]], [[0.0]]).item() == 1


@everyone
def test_out_is_filled_and_returned(xp, rng, kernel):
    X, Z = map(xp.asarray, inputs(rng))
    wide = xp.full((9, 11), np.nan)
    out = wide[:, 2:8]
    K = kernel(X, Z, out=out)
    assert K is out
    np.testing.assert_allclose(to_host(out), to_host(kernel(X, Z)), rtol=1e-13)
    assert np.isnan(to_host(wide)[:, [0, 1, 8, 9, 10]]).all()


# --- coincident and awkward inputs


@everyone
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_coincident_points(xp, rng, kernel, offset, scale):
    X = scale * rng.normal(size=(5, D)) + offset
    X = np.repeat(X, 3, axis=0)
    K_bar = rng.normal(size=(15, 15))
    device = xp.asarray(X)
    for Z in (device, None):
        K, pull = kernel.pullback(device, Z)
        gradient = pull(xp.asarray(K_bar))
        for array in gradient if Z is not None else gradient[:2]:
            assert np.isfinite(to_host(array)).all()
        diagonal = to_host(kernel.diag(device))
        np.testing.assert_allclose(np.diag(to_host(K)), diagonal, rtol=1e-7)


@pytest.mark.parametrize("d", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_kernel_is_exact_at_coincident_points(xp, rng, d, dtype):
    # the square root would turn rounding of 1e-16 into 1e-8
    X = xp.asarray((50 * rng.normal(size=(40, d)) + 300).astype(dtype))
    K, pull = Matern12().pullback(X, xp.asarray(to_host(X)))
    np.testing.assert_array_equal(np.diag(to_host(K)), 1)
    gradient = pull(xp.eye(40, dtype=dtype))
    for array in gradient[1:]:
        np.testing.assert_array_equal(to_host(array), 0)
    assert gradient.log_parameters[1] == 0


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("away", [1e-16, 1e-14, 1e-12, 1e-9, 1e-6])
def test_rows_all_but_at_the_same_place_leave_gradients_right(xp, rng, d, away):
    X = rng.normal(size=(30, d))
    Z = np.concatenate([X[:8] + away * rng.uniform(-1, 1, (8, d)), rng.normal(size=(7, d))])
    K_bar, logs = rng.normal(size=(30, 15)), np.zeros(1 + d)

    def kernel(logs):
        return Matern12(variance=np.exp(logs[0]), lengthscale=tuple(np.exp(logs[1:])))

    def value(logs):
        return (K_bar * kernel(logs)(X, Z)).sum()

    _, pull = kernel(logs).pullback(xp.asarray(X), xp.asarray(Z))
    steps = 1e-5 * np.eye(1 + d)
    wanted = [(value(logs + step) - value(logs - step)) / 2e-5 for step in steps]
    found = pull(xp.asarray(K_bar))
    np.testing.assert_allclose(found.log_parameters, wanted, rtol=1e-5, atol=1e-4)
    assert np.abs(to_host(found.Z)[:8]).max() < 30 * np.abs(K_bar).max()


@everyone
def test_far_points_do_not_overflow(rng, kernel):
    X = rng.normal(size=(4, D))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        K, pull = kernel.pullback(X, X + 1e5)
        gradient = pull(np.ones_like(K))
    assert all(np.isfinite(array).all() for array in (K, *gradient))


def with_far_rows(xp, X, far, count):
    """X with rows as a fill value makes them, and the rows that are left as they were."""
    X = X.copy()
    X[:count, 0], X[:count, -1] = far, -far
    return xp.asarray(X), slice(count, None)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", LEAVES.values(), ids=LEAVES)
def test_products_of_far_rows_are_not_subnormal(rng, kernel, dtype):
    """Processors multiply subnormal numbers slowly."""
    X = (np.arange(400)[:, None] ** 1.5 * [0.3, 0.2, 0.5]).astype(dtype)
    K, smallest = np.abs(kernel(X)), np.finfo(dtype).tiny
    squares = K * K
    assert not ((squares > 0) & (squares < smallest)).any()
    assert not ((K > 0) & (smallest > K)).any()


@everyone
@pytest.mark.parametrize(("far", "count"), [(1e6, 1), (1e12, 1), (1e36, 7)])
def test_rows_beside_far_ones_keep_their_values(xp, rng, kernel, far, count):
    X, Z = inputs(rng)
    Z, (F, near) = xp.asarray(Z), with_far_rows(xp, X, far, count)
    X, wanted = xp.asarray(X), {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(to_host(kernel(F, Z))[near], to_host(kernel(X, Z))[near], **wanted)
    found, alone = to_host(kernel(Z, F))[:, near], to_host(kernel(Z, X))[:, near]
    np.testing.assert_allclose(found, alone, **wanted)
    found, alone = to_host(kernel(F))[near, near], to_host(kernel(X))[near, near]
    np.testing.assert_allclose(found, alone, **wanted)


plain = pytest.mark.parametrize(
    "kernel", [RBF(), Matern12(), Matern32(), RationalQuadratic(), Periodic()]
)


@plain
@pytest.mark.parametrize("d", [2, 8])
@pytest.mark.parametrize("far", [1e3, 1e15])
def test_rows_beside_far_ones_keep_their_values_in_float32(xp, rng, kernel, d, far):
    X, Z = (A.astype(np.float32) for A in inputs(rng, d=d))
    Z, (F, near) = xp.asarray(Z), with_far_rows(xp, X, np.float32(far), 1)
    K = to_host(kernel(Z, F))
    assert K.dtype == np.float32
    alone = to_host(kernel(Z, xp.asarray(X)))
    # what a centre that is somewhat off leaves
    np.testing.assert_allclose(K[:, near], alone[:, near], rtol=3e-3, atol=1e-4)
    if not isinstance(kernel, Periodic):
        np.testing.assert_allclose(K[:, 0], 0, atol=2e-6)  # of a rational quadratic


@plain
@pytest.mark.parametrize("far", [1e6, 1e9, 1e12])
def test_gradients_of_rows_beside_a_far_one_keep_their_digits(xp, rng, kernel, far):
    X, K_bar = rng.normal(size=(40, 2)), rng.normal(size=(40, 40))
    F = np.concatenate([X, [[far, far]]])
    _, pull = kernel.pullback(xp.asarray(F))
    _, pull_alone = kernel.pullback(xp.asarray(X))
    found = pull(xp.asarray(np.pad(K_bar, (0, 1)))).log_parameters
    wanted = pull_alone(xp.asarray(K_bar)).log_parameters
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@plain
@pytest.mark.parametrize("offset", [0.0, 1.7e9])
@pytest.mark.parametrize("apart", [1e2, 1e5, 1e10])
def test_rows_of_two_windows_are_as_if_of_one(xp, rng, kernel, offset, apart):
    # as rows of a year and of a later one are, in seconds since 1970
    X = rng.integers(-5, 6, (40, 1)) + apart * np.repeat([0.0, 1.0], 20)[:, None]
    one, K_bar = slice(0, 20), np.zeros((40, 40))
    K_bar[one, one] = rng.normal(size=(20, 20))
    K, pull = kernel.pullback(xp.asarray(X + offset))
    alone, pull_alone = kernel.pullback(xp.asarray(X[one]))
    np.testing.assert_allclose(to_host(K)[one, one], to_host(alone), rtol=1e-6, atol=1e-6)
    found = pull(xp.asarray(K_bar)).log_parameters
    wanted = pull_alone(xp.asarray(K_bar[one, one].copy())).log_parameters
    if apart < 1e10:  # beyond which its sum over both windows cancels
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


rows = st.integers(1, 12)


@given(rows, rows, st.integers(1, 5), st.integers(0, 2**31), st.sampled_from(list(LEAVES)))
def test_any_shape_with_duplicates_and_constant_columns(n, m, d, seed, which):
    rng = np.random.default_rng(seed)
    kernel = type(LEAVES[which])()
    X = rng.integers(-2, 3, size=(n, d)).astype(np.float64)  # many duplicates
    Z = rng.integers(-2, 3, size=(m, d)).astype(np.float64)
    X[:, 0] = Z[:, 0] = 7.0
    K, pull = kernel.pullback(X, Z)
    one_by_one = [[kernel(x[None], z[None]).item() for z in Z] for x in X]
    np.testing.assert_allclose(K, one_by_one, rtol=1e-7, atol=1e-9)
    gradient = pull(rng.normal(size=(n, m)))
    assert gradient.X.shape == X.shape
    assert gradient.Z.shape == Z.shape
    assert all(np.isfinite(array).all() for array in gradient)


@everyone
@pytest.mark.parametrize(("n", "m"), [(0, 4), (4, 0), (0, 0)])
def test_no_rows(xp, kernel, n, m):
    X, Z = xp.zeros((n, D)), xp.zeros((m, D))
    K, pull = kernel.pullback(X, Z)
    gradient = pull(xp.ones((n, m)))
    assert K.shape == kernel(X, Z).shape == (n, m)
    assert gradient.X.shape == (n, D)
    assert gradient.Z.shape == (m, D)
    assert not gradient.log_parameters.any()
    assert kernel(X).shape == (n, n)


@everyone
def test_read_only_and_strided_inputs(rng, kernel):
    X, Z = inputs(rng)
    K_bar = rng.normal(size=(9, 6))
    expected = kernel.vjp(X, Z, K_bar)
    strided = np.full((18, 2 * D), np.nan)
    strided[::2, ::2] = X
    fortran = np.asfortranarray(Z)
    for array in (strided, fortran):
        array.flags.writeable = False
    gradient = kernel.vjp(strided[::2, ::2], fortran, np.asfortranarray(K_bar))
    for one, other in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


# --- derivatives


@everyone
def test_gradient_of_one_argument(xp, rng, kernel):
    X = inputs(rng)[0]
    K_bar = rng.normal(size=(9, 9))  # not symmetric
    gradient = kernel.vjp(xp.asarray(X), None, xp.asarray(K_bar))
    both = kernel.vjp(X, X, K_bar)
    assert gradient.Z is None
    close = {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(to_host(gradient.X), both.X + both.Z, **close)
    np.testing.assert_allclose(gradient.log_parameters, both.log_parameters, **close)


@everyone
def test_every_array_module_gives_the_same(xp, rng, kernel):
    X, Z = inputs(rng)
    K_bar = rng.normal(size=(9, 6))
    expected = kernel.vjp(X, Z, K_bar)
    gradient = kernel.vjp(xp.asarray(X), xp.asarray(Z), xp.asarray(K_bar))
    diagonal = kernel.diag_vjp(xp.asarray(X), xp.asarray(K_bar[:, 0].copy()))
    alone = kernel.diag_vjp(X, K_bar[:, 0].copy())
    assert diagonal.Z is alone.Z is None
    for one, other in zip((*gradient, *diagonal[:2]), (*expected, *alone[:2]), strict=True):
        np.testing.assert_allclose(to_host(one), other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kernel", [Matern32(ARD), RationalQuadratic(1.4), COMPOSITES["nested"]])
def test_many_strips_are_one_tile(rng, kernel):
    X, Z = inputs(rng, 130, 1500)
    K_bar = rng.normal(size=(130, 1500))
    whole = kernel.vjp(X, Z, K_bar)
    parts = [kernel.vjp(X[i : i + 10], Z, K_bar[i : i + 10]) for i in range(0, 130, 10)]
    np.testing.assert_allclose(whole.X, np.concatenate([p.X for p in parts]), atol=1e-10)
    np.testing.assert_allclose(whole.Z, sum(p.Z for p in parts), atol=1e-10)
    np.testing.assert_allclose(
        whole.log_parameters, sum(p.log_parameters for p in parts), rtol=1e-9, atol=1e-9
    )


@everyone
def test_a_pullback_may_be_called_again_and_leaves_its_argument_alone(rng, kernel):
    X, Z = inputs(rng)
    K, pull = kernel.pullback(X, Z)
    K_bar = rng.normal(size=(9, 6))
    before = K_bar.copy()
    first, second = pull(K_bar), pull(K_bar)
    np.testing.assert_array_equal(K_bar, before)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    overwritten = pull(K_bar, overwrite=True)
    np.testing.assert_array_equal(overwritten.log_parameters, first.log_parameters)
    with pytest.raises(ValueError, match="read-only"):
        K += 1


@everyone
def test_work_memory_changes_nothing(xp, rng, kernel):
    X, Z = map(xp.asarray, inputs(rng))
    K_bar = xp.asarray(rng.normal(size=(9, 6)))
    work = xp.full((kernel.tiles + 1, 9, 6), np.nan)
    K, pull = kernel.pullback(X, Z, work)
    np.testing.assert_array_equal(to_host(K), to_host(kernel.pullback(X, Z)[0]))
    for one, other in zip(pull(K_bar), kernel.vjp(X, Z, K_bar), strict=True):
        np.testing.assert_array_equal(to_host(one), to_host(other))
    assert np.isnan(to_host(work)[-1]).all()
    with pytest.raises(InputError, match=r"work has shape .*this pullback needs"):
        kernel.pullback(X, Z, work[:0])
    with pytest.raises(InputError, match="work is float32, the tile float64"):
        kernel.pullback(X, Z, work.astype(np.float32))


# --- kernels are values


@everyone
def test_other_numbers_of_log_parameters_are_refused(kernel):
    theta = kernel.log_parameters
    with pytest.raises(InputError, match=f"{len(theta)} log-parameters are needed"):
        kernel.with_log_parameters(np.zeros(len(theta) + 1))


def test_bounds_follow_the_range_of_the_inputs():
    bounds = np.exp(RBF((1.0, 1.0)).log_bounds(np.array([1.0, 4.0])))
    np.testing.assert_allclose(bounds, [[1e-4, 1e4], [1e-3, 10], [4e-3, 40]])
    np.testing.assert_allclose(np.exp(RBF().log_bounds(np.array([1.0, 4.0])))[1], [4e-3, 40])
    periodic = np.exp(Periodic(active_dims=1).log_bounds(np.array([1.0, 4.0])))
    np.testing.assert_allclose(periodic[2], [4e-2, 40])
    alpha = RationalQuadratic().log_bounds(np.ones(1))[-1]
    np.testing.assert_allclose(np.exp(alpha), [1e-2, 1e3])


def test_names():
    kernel = Matern32(ARD) + 0.1 * Linear()
    assert kernel.parameter_names == (
        "0.variance",
        "0.lengthscale[0]",
        "0.lengthscale[1]",
        "0.lengthscale[2]",
        "1.0.variance",
        "1.1.variance",
    )
    assert RationalQuadratic().parameter_names == ("variance", "lengthscale", "alpha")
    assert Periodic().parameter_names == ("variance", "lengthscale", "period")
    assert Linear((1.0, 2.0)).parameter_names == ("variance[0]", "variance[1]")


def test_sums_and_products_are_flat():
    a, b, c = RBF(), Matern32(), Linear()
    assert (a + b + c).parts == (a + (b + c)).parts == (a, b, c)
    assert (a * b * c).parts == (a * (b * c)).parts == (a, b, c)
    assert (a + b) * c == Product((Sum((a, b)), c))
    assert a + b != a * b
    assert 2 * a == Constant(2.0) * a
    assert a + 2 == Sum((a, Constant(2.0)))
    assert 2 + a == Sum((Constant(2.0), a))


def test_resolve_fills_in_what_is_left_open():
    median, distance = np.array([3.0, 0.0, 4.0]), 10.0
    assert RBF().resolve(median, distance) == RBF(10.0, 1.0)
    assert RBF(2.0).resolve(median, distance) == RBF(2.0, 1.0)
    # a constant column has no distance of its own
    assert RBF(ard=True).resolve(median, distance) == RBF((3.0, 1.0, 4.0), 1.0)
    assert RBF(2.0, ard=True).resolve(median, distance) == RBF((2.0, 2.0, 2.0), 1.0)
    assert RBF(ARD, 3.0).resolve(median, distance) == RBF(ARD, 3.0)
    assert RBF(active_dims=[0]).resolve(median, distance) == RBF(6.0, 1.0, active_dims=[0])
    assert RBF(ard=True, active_dims=[2, 0]).resolve(median, distance) == RBF(
        (4.0, 3.0), 1.0, active_dims=[2, 0]
    )
    assert RBF().resolve(np.zeros(2), 0.0) == RBF(1.0, 1.0)
    composite = RBF() + 0.1 * Linear() * Periodic()
    assert composite.resolve(median, distance) == (
        RBF(10.0, 1.0) + 0.1 * Linear(1.0) * Periodic(1.0, 4.0, 1.0)
    )


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBF((1.0, 2.0)), "RBF has 2 lengthscales, but the inputs have 3 columns"),
        (RBF(active_dims=[3]), "RBF has active_dims=.3,., but the inputs have 3 columns"),
        (Linear((1.0, 2.0)), "Linear has 2 variances, but the inputs have 3 columns"),
        (Linear(active_dims=[5]), "Linear has active_dims=.5,."),
        (Periodic(active_dims=[5]), "Periodic has active_dims=.5,."),
        (RBF() * (Linear() + Matern12(active_dims=[4])), "Matern12 has active_dims=.4,."),
    ],
)
def test_a_kernel_that_does_not_fit_the_inputs(kernel, message):
    X = np.zeros((2, 3))
    for use in (
        lambda: kernel(X),
        lambda: kernel.diag(X),
        lambda: kernel.pullback(X, X),
        lambda: kernel.resolve(np.ones(3), 1.0),
        lambda: kernel.log_bounds(np.ones(3)),
    ):
        with pytest.raises(InputError, match=message):
            use()


def test_arguments_that_do_not_agree(fake):
    X = np.zeros((2, 3))
    with pytest.raises(InputError, match=r"X has shape \(3,\): kernels take \(rows, columns\)"):
        RBF()(np.zeros(3))
    with pytest.raises(InputError, match="X has 3 columns, Z has 2"):
        RBF()(X, np.zeros((2, 2)))
    with pytest.raises(InputError, match=r"out is float64 of shape \(2, 3\), the tile is float64"):
        RBF()(X, out=np.empty((2, 3)))
    with pytest.raises(InputError, match="out is float32"):
        RBF()(X, out=np.empty((2, 2), np.float32))
    with pytest.raises(InputError, match=r"K_bar has shape \(2, 3\), the tile \(2, 2\)"):
        RBF().vjp(X, None, np.empty((2, 3)))
    with pytest.raises(DeviceError, match="two devices"):
        RBF()(X, fake("a").asarray(X))
    with pytest.raises(DeviceError, match="two devices"):
        RBF().vjp(X, None, fake("a").asarray(np.eye(2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RBF(0.0), "lengthscale of RBF must be positive and finite, not 0.0"),
        (lambda: RBF(-1.0), "lengthscale of RBF must be positive"),
        (lambda: RBF((1.0, np.nan)), r"lengthscale of RBF\[1\] must be positive and finite"),
        (lambda: RBF(()), "lengthscale of RBF must be a number or one number per dimension"),
        (lambda: RBF("long"), "lengthscale of RBF must be a positive number, not 'long'"),
        (lambda: RBF(variance=np.inf), "variance of RBF must be positive and finite, not inf"),
        (lambda: RBF(variance=(1.0, 2.0)), "variance of RBF must be a positive number"),
        (lambda: RBF((1.0, 2.0), active_dims=[0]), "RBF has 2 lengthscales for 1 active_dims"),
        (lambda: RBF(active_dims=[0, 0]), "active_dims of RBF must be distinct column numbers"),
        (lambda: RBF(active_dims=[-1]), "active_dims of RBF must be distinct"),
        (lambda: RBF(active_dims=[]), "active_dims of RBF must be distinct"),
        (lambda: RBF(active_dims=[0.5]), "active_dims of RBF must be distinct"),
        (lambda: RationalQuadratic(alpha=0), "alpha of RationalQuadratic must be positive"),
        (lambda: Periodic(period=-1), "period of Periodic must be positive"),
        (lambda: Linear((1.0, 2.0), active_dims=[0]), "Linear has 2 variances for 1 active_dims"),
        (lambda: Linear(0), "variance of Linear must be positive"),
        (lambda: Constant(-2), "variance of Constant must be positive"),
        (lambda: RBF() + 0, "variance of Constant must be positive and finite, not 0"),
        (lambda: RBF() * "x", "variance of Constant must be a positive number, not 'x'"),
        (lambda: Sum(()), "a sum of kernels needs at least one part"),
        (lambda: Product((1.0,)), "a product of kernels cannot hold 1.0"),
    ],
)
def test_settings_that_make_no_kernel(make, message):
    with pytest.raises(SettingError, match=message):
        make()


# --- text and dictionaries


def test_the_registry_is_what_its_entries_say():
    of_stores = {
        "rbf",
        "matern12",
        "matern32",
        "matern52",
        "rational_quadratic",
        "periodic",
        "linear",
        "constant",
    }
    assert of_stores <= set(kernels.REGISTRY)
    for name, kind in kernels.REGISTRY.items():
        assert kind.name == kind().to_dict()["kernel"] == name


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"lengthscale": 1.0}, "give it an entry 'kernel'"),
        (["rbf"], "does not describe a kernel"),
        ({"kernel": "cosine"}, "unknown kernel 'cosine': choose one of rbf, matern12"),
        ({"kernel": ["rbf"]}, "unknown kernel"),
        ({"kernel": "rbf", "length": 1.0}, "'rbf' has no setting 'length': did you mean 'lengths"),
        ({"kernel": "sum"}, "a sum of kernels is described by a list 'parts'"),
        ({"kernel": "sum", "parts": []}, "a sum of kernels needs at least one part"),
        ({"kernel": "rbf", "variance": -1.0}, "variance of RBF must be positive"),
    ],
)
def test_dictionaries_that_describe_no_kernel(description, message):
    with pytest.raises(SettingError, match=message):
        from_dict(description)


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("matern32", Matern32()),
        ("Matern32()", Matern32()),
        ("matern32(ard=true) + 0.1*linear()", Matern32(ard=True) + 0.1 * Linear()),
        ("rbf([1, 2.5], variance=2)", RBF((1.0, 2.5), 2.0)),
        ("rbf(lengthscale=none, active_dims=(0, 2))", RBF(active_dims=(0, 2))),
        (" (rbf() + 1) * linear(2) ", (RBF() + 1) * Linear(2.0)),
        ("rbf() + linear() * 2 + periodic(period=24)", RBF() + Linear() * 2 + Periodic(period=24)),
        ("3", Constant(3.0)),
    ],
)
def test_parse(text, kernel):
    assert parse(text) == kernel


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda k: k**2, "for a square write kernel * kernel"),
        (lambda k: k - k, "leave out what is to be subtracted"),
        (lambda k: 1 - k, "leave out what is to be subtracted"),
        (lambda k: -k, "leave out what is to be subtracted"),
        (lambda k: k / 2, "for a half of one write 0.5 * kernel"),
    ],
)
def test_other_operators_are_refused_with_those_that_there_are(make, remedy):
    how = r"kernels are added \(\+\) and multiplied \(\*\), with one another or with positive num"
    with pytest.raises(TypeError, match=f"RBF has no operator .*: {how}.*; {re.escape(remedy)}$"):
        make(RBF())


def test_a_class_beside_a_kernel_is_refused():
    with pytest.raises(SettingError, match=r"^Linear is a class: write Linear\(\)$"):
        RBF() + Linear


def test_parse_a_long_sum():
    assert len(parse("+".join(["1"] * 1900)).parts) == 1900


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "kernel '' cannot be read"),
        ("rbf(", r"kernel 'rbf\(' cannot be read"),
        ("rbf() linear()", "cannot be read"),
        ("rbf()\0", "cannot be read"),
        ("(" * 1900, "cannot be read"),
        ("1" * 5000, "a kernel of 5000 characters is too long"),
        ("matern()", "unknown kernel 'matern': did you mean 'matern52'. Choose one of rbf"),
        ("cosine", "unknown kernel 'cosine'"),
        ("rbf() - linear()", r"'rbf\(\) - linear\(\)' is not part of a kernel: kernels can be add"),
        ("rbf()**2", "is not part of a kernel"),
        ("-1*rbf()", "'-1' is not part of a kernel: write a number or one of rbf"),
        ("true", "unknown kernel 'true'"),
        ("'rbf'", "is not part of a kernel"),
        ("rbf(size=2)", r"rbf\(size=2\) has no setting 'size': it has lengthscale, variance"),
        ("rbf(1, 2, 3)", r"rbf\(1, 2, 3\) cannot be built"),
        ("rbf(1, lengthscale=1)", "cannot be built"),
        ("rbf(**x)", "settings are name=value"),
        ("rbf(lengthscale=linear())", r"'linear\(\)' is not part of a kernel: a setting is a numb"),
        ("rbf(lengthscale='a')", "a setting is a number"),
        ("rbf(lengthscale=0)", "lengthscale of RBF must be positive"),
        ("0*rbf()", "variance of Constant must be positive"),
        ("__import__('os').system('true')", "is not part of a kernel"),
        ("rbf(lengthscale=[i for i in x])", "a setting is a number"),
        ("rbf.name()", "is not part of a kernel"),
    ],
)
def test_text_that_is_no_kernel(text, message):
    with pytest.raises(SettingError, match=message) as raised:
        parse(text)
    assert "\n" not in str(raised.value)
