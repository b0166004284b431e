"""One pass over the rows: the same sums however they are cut, and the scalings that follow."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from daskgp.checks import LARGEST
from daskgp.errors import InputError
from daskgp.models import scaling
from daskgp.models.values import Moments


def rows(n=50, d=3, p=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** np.arange(d) + np.arange(d)
    y = X @ rng.standard_normal((d, p)) + rng.standard_normal((n, p)) + 5.0
    return X, y


def summed(X, y, cuts):
    parts = [scaling.local(a, b) for a, b in zip(np.split(X, cuts), np.split(y, cuts), strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = scaling.combine(total, part)
    return total


def assert_same(found, wanted, rtol=1e-9):
    assert found.transform is wanted.transform
    for name, a, b in zip(found._fields, found.parts[:-1], wanted.parts[:-1], strict=False):
        size = np.abs(b[np.isfinite(b)]).max(initial=1.0) if np.ndim(b) else 1.0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * size, err_msg=name)


@st.composite
def tables(draw):
    n, d, p = draw(st.integers(0, 25)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    values = st.floats(-1e3, 1e3, width=32) | st.just(np.nan)
    X, y = (draw(arrays(np.float64, (n, k), elements=values)) for k in (d, p))
    cuts = draw(st.lists(st.integers(0, n), max_size=5).map(sorted))
    return X, y, cuts


@given(tables())
def test_any_cut_gives_the_sums_of_all_rows(table):
    X, y, cuts = table
    W = np.concatenate([X, y], axis=1)
    keep = ~np.isnan(W).any(axis=1)
    found = summed(X, y, cuts)
    assert (found.rows, found.dropped) == (keep.sum(), (~keep).sum())
    assert not found.infinite.any()
    if keep.any():
        kept = W[keep]
        centred = kept - kept.mean(axis=0)
        wanted = found._replace(
            mean=kept.mean(axis=0),
            scatter=centred.T @ centred,
            low=kept.min(axis=0),
            high=kept.max(axis=0),
        )
        assert_same(found, wanted)


@given(tables())
def test_sums_are_associative_and_leave_their_arguments_alone(table):
    X, y, _ = table
    a, b, c = (scaling.local(X[i::3], y[i::3]) for i in range(3))
    before = [np.copy(field) for field in a]
    assert_same(
        scaling.combine(scaling.combine(a, b), c), scaling.combine(a, scaling.combine(b, c))
    )
    for old, now in zip(before, a, strict=True):
        np.testing.assert_array_equal(old, now)


def test_scatter_keeps_its_digits_far_from_the_origin():
    X, y = rows(n=400, d=1, p=1)
    near, far = summed(X, y, [7, 90]), summed(X + 1e9, y, [7, 90])
    np.testing.assert_allclose(far.scatter, near.scatter, rtol=1e-6)


def test_infinite_entries_are_counted_by_column_and_left_out():
    X, y = rows()
    X[3, 1], X[4, 1], y[9, 0], X[9, 0] = np.inf, -np.inf, np.inf, np.nan
    sums = summed(X, y, [5])
    np.testing.assert_array_equal(sums.infinite, [0, 2, 0, 1, 0])
    assert (sums.rows, sums.dropped) == (47, 1)
    assert np.isfinite(sums.mean).all()
    with pytest.raises(InputError, match=r"feature 'b' has 2 infinite values"):
        scaling.check(sums, "abc", "yz")


def test_single_precision_and_integers_are_summed_in_double():
    X = np.full((1000, 1), 16_777_217, dtype=np.int32)
    X[0] += 1
    sums = scaling.local(X, np.ones((1000, 1), np.float32))
    assert sums.mean[0] == pytest.approx(16_777_217.001, rel=1e-15)
    assert sums.scatter.dtype == np.float64


@pytest.mark.parametrize("mean", ["zero", "constant", "ols"])
@pytest.mark.parametrize("standardize", [True, False])
def test_scaling_and_its_undoing_are_inverse(mean, standardize):
    X, y = rows()
    scale = scaling.solve(summed(X, y, [11]), 3, mean, standardize)
    block = scale.block(X, y)
    back = scale.moments(Moments(block.y), block.X)
    np.testing.assert_allclose(back.mean, y, rtol=1e-12)
    np.testing.assert_allclose(block.X * scale.x_scale + scale.x_shift, X, rtol=1e-12, atol=1e-12)
    if standardize:
        np.testing.assert_allclose(block.X.mean(axis=0), 0.0, atol=1e-13)
        np.testing.assert_allclose(block.X.std(axis=0), 1.0)
        np.testing.assert_allclose((block.y**2).mean(axis=0), 1.0)
    else:
        np.testing.assert_array_equal(block.X, X)
    if mean == "zero":
        np.testing.assert_allclose(block.y * scale.y_scale, y)
    else:
        np.testing.assert_allclose(block.y.mean(axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize("standardize", [True, False])
def test_linear_mean_is_least_squares_for_each_target(standardize):
    X, y = rows()
    scale = scaling.solve(summed(X, y, [20, 30]), 3, "ols", standardize)
    design = np.column_stack([np.ones(len(X)), X])
    fitted = design @ np.linalg.lstsq(design, y)[0]
    found = scale.moments(Moments(np.zeros_like(y)), scale.inputs(X)).mean
    np.testing.assert_allclose(found, fitted, rtol=1e-8, atol=1e-8)
    if standardize:
        np.testing.assert_allclose(scale.y_scale, (y - fitted).std(axis=0), rtol=1e-8)


def test_linear_mean_of_collinear_columns_still_fits():
    X, y = rows(d=1)
    X = np.column_stack([X, 2 * X])
    scale = scaling.solve(scaling.local(X, y), 2, "ols", True)
    single = scaling.solve(scaling.local(X[:, :1], y), 1, "ols", True)
    np.testing.assert_allclose(
        scale.block(X, y).y, single.block(X[:, :1], y).y, rtol=1e-8, atol=1e-10
    )


def test_a_target_that_the_mean_explains_is_scaled_by_its_size():
    X, _ = rows()
    constant = scaling.solve(scaling.local(X, np.full((50, 1), 7.0)), 3, "constant", True)
    np.testing.assert_array_equal(constant.y_scale, [7.0])
    np.testing.assert_array_equal(constant.intercept, [7.0])
    linear = (X @ [1.0, -2.0, 0.5])[:, None] * 1e-20
    explained = scaling.solve(scaling.local(X, linear), 3, "ols", True)
    np.testing.assert_allclose(explained.y_scale, linear.std(axis=0))
    nothing = scaling.solve(scaling.local(X, np.zeros((50, 1))), 3, "constant", True)
    np.testing.assert_array_equal(nothing.y_scale, [1.0])


@pytest.mark.parametrize("unit", [1e-30, 1e-12, 1e9])
@pytest.mark.parametrize("mean", ["zero", "constant", "ols"])
def test_the_unit_of_a_target_does_not_matter(unit, mean):
    X, y = rows()
    one, other = (scaling.solve(scaling.local(X, u * y), 3, mean, True) for u in (1.0, unit))
    np.testing.assert_allclose(other.block(X, unit * y).y, one.block(X, y).y, rtol=1e-9, atol=1e-12)


def test_linear_mean_does_not_lose_columns_of_small_units():
    X, y = rows(d=2)
    wide = X * [1e9, 1e-3]
    slopes = [scaling.solve(scaling.local(A, y), 2, "ols", False).slope for A in (X, wide)]
    np.testing.assert_allclose(slopes[1], slopes[0] / [[1e9], [1e-3]], rtol=1e-8)


def test_variance_of_the_scaled_targets():
    X, y = rows()
    sums = scaling.local(X, y)
    raw, scaled = (scaling.solve(sums, 3, "constant", choice) for choice in (False, True))
    assert scaling.target_variance(sums, scaled, "constant") == pytest.approx(1.0)
    assert scaling.target_variance(sums, raw, "constant") == pytest.approx(y.var(axis=0).mean())


@pytest.mark.parametrize("mean", ["constant", "ols"])
def test_spread_is_scaled_by_the_squared_unit_of_each_target(mean):
    X, y = rows()
    scale = scaling.solve(scaling.local(X, y), 3, mean, True)
    ones = Moments(np.zeros((4, 2)), np.ones(4), np.eye(4))
    found = scale.moments(ones, np.zeros((4, 3)))
    np.testing.assert_allclose(found.variance, np.tile(scale.y_scale**2, (4, 1)))
    np.testing.assert_allclose(found.covariance[:, :, 1], np.eye(4) * scale.y_scale[1] ** 2)


def test_blocks_lose_rows_with_missing_values_and_narrow_after_centring():
    X, y = rows()
    X += 1e8
    scale = scaling.solve(scaling.local(X, y), 3, "constant", True)
    X[2, 0], y[5, 1] = np.nan, np.nan
    block = scale.block(X, y, "float32")
    keep = np.setdiff1d(np.arange(50), [2, 5])
    assert block.X.dtype == np.float32
    np.testing.assert_allclose(block.X, scale.inputs(X[keep]), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(block.y, (y[keep] - scale.intercept) / scale.y_scale)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, y * np.nan), "all 50 rows have a missing value"),
        (lambda X, y: (X[:0], y[:0]), "training data has length 0"),
        (lambda X, y: (X * 0 + [1, 2, 3], y), "features are constant, .* 'a' .1., 'b' .2., 'c'"),
        (lambda X, y: (X, np.where(y == y[4], np.inf, y)), "target 'y' has 1 infinite"),
        (lambda X, y: (X - np.array([0, 0, 1e308]), y), "feature 'c' has values of up to 1e.308"),
        (lambda X, y: (X, np.where(y == y[4], -1e200, y)), "target 'y' has values of up to 1e.200"),
        (lambda X, y: (X, y + 3e16), "target 'y' has .* 3e.16 in size .* subtract an offset"),
        (lambda X, y: (X - [0, 3e15, 0], y), "feature 'b' has .* 3e.15 in size .* subtract"),
        (lambda X, y: (X, y * [1, 1e-170]), "target 'z' has .* cannot be squared .* another unit"),
        (lambda X, y: (X * [1, 1, 1e-300], y), "feature 'c' has .* cannot be squared"),
        (lambda X, y: (X, y * 0 + [1, 1e-170]), "target 'z' has the same value .* 1e-170, which"),
        (lambda X, y: (X[:1], y[:1]), "^1 usable row: rows at two places or more are needed"),
        (lambda X, y: (X, np.where(y == y[4], y, np.nan)), "^1 usable row of 50, as all others"),
    ],
)
def test_rows_that_cannot_be_fitted_are_refused_by_name(change, message):
    sums = scaling.local(*change(*rows()))
    with pytest.raises(InputError, match=message) as caught:
        scaling.check(sums, ("a", "b", "c"), ("y", "z"))
    assert "\n" not in str(caught.value)


@given(arrays(np.float64, (6, 1), elements=st.floats(-LARGEST, LARGEST)))
@example(np.array([[0.0]] * 5 + [[1e-200]]))
def test_what_passes_the_check_has_a_finite_scaling(X):
    assume(len(np.unique(X)) > 1)
    sums = scaling.local(X, np.arange(6.0)[:, None])
    if np.ptp(X) < 1 / LARGEST or X.std() < scaling.ROUNDING * np.abs(X).max():
        with pytest.raises(InputError, match=r"feature 'a' has values .*that differ by at most"):
            scaling.check(sums, ("a",), ("y",))
        return
    scaling.check(sums, ("a",), ("y",))
    block = scaling.solve(sums, 1, "constant", True).block(X, np.arange(6.0)[:, None])
    assert np.isfinite(block.X).all()


def test_a_single_row_scales_to_the_origin():
    scale = scaling.solve(scaling.local(np.ones((1, 2)), np.full((1, 1), 3.0)), 2, "ols", True)
    block = scale.block(np.ones((1, 2)), np.full((1, 1), 3.0))
    np.testing.assert_array_equal(block.X, [[0.0, 0.0]])
    np.testing.assert_array_equal(block.y, [[0.0]])
