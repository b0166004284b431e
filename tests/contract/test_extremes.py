"""Rows and numbers that no model can be fitted to are refused in one line, by every method."""

import dask.array as da
import numpy as np
import pytest
from commands import dataset, refused

import daskgp
from daskgp import kernels
from daskgp.errors import InputError
from daskgp.priors import LogNormal
from tests.contract import cases

every = pytest.mark.parametrize("name", cases.SETTINGS)
X, y = cases.rows()
NAN = np.where(np.arange(len(y)) == 7, y, np.nan)
ROWS = {
    "one row": (X[:1], y[:1], "1 usable row: rows at two places or more are needed"),
    "one known target": (X, NAN, "1 usable row of 150, as all others have a missing value"),
    "one place": (np.tile(X[0], (len(y), 1)), y, "features are constant, .* that varies"),
    "an offset": (X, y + 3e14, "'y' has values of up to 3e.14 .*: subtract an offset"),
    "an offset of a feature": (X - [0, 3e15], y, "'x1' has .* 3e.15 .*: subtract an offset"),
    "rounding alone": (X, np.where(y > 0, 0.3, 0.1 + 0.2), "'y' .* or set them to one value"),
    "squares that vanish": (X, y * 1e-170, "'y' has values that differ .*: give it in another"),
    "those of a feature": (X * [1e-300, 1], y, "'x0' has values that differ .* another unit"),
    "a size that vanishes": (X, y * 0 - 1e-200, "'y' has the same value .* another unit"),
    "squares that overflow": (X, y * 1e160, "'y' has values of up to .* another unit or"),
}


def refusal(fit, says):
    """The one line of a refusal."""
    with pytest.raises(InputError, match=says) as caught:
        fit()
    assert "\n" not in str(caught.value)


@pytest.mark.sampled
@every
@pytest.mark.parametrize("case", ROWS)
def test_rows_that_cannot_be_fitted(name, case):
    *given, says = ROWS[case]
    refusal(lambda: cases.make(name).fit(*given), says)


@pytest.mark.parametrize("case", ["one row", "an offset", "squares that vanish"])
def test_other_ways_to_fit_refuse_them_too(case, tmp_path):
    *given, says = ROWS[case]
    refusal(lambda: daskgp.AutoGP(time_budget=5, progress=False).fit(*given), says)
    refusal(lambda: cases.make("svgp").partial_fit(*given), says)
    refusal(lambda: daskgp.prepare(given, tmp_path / "p.zarr", progress=False), says)
    data = dataset(tmp_path / "d.zarr", *given)
    line = refused("fit", data, tmp_path / "m.zarr", "--model", "sgpr", "--set", "n_inducing=1")
    assert says.partition(" .*")[0] in line.replace("+", ".")
    assert {path.name for path in tmp_path.iterdir()} == {"d.zarr"}


def test_a_fold_of_one_place_is_refused():
    where = np.repeat([[0.0, 0.0], [1.0, 1.0]], 20, axis=0)
    groups = np.repeat([0, 1], 20)
    refusal(
        lambda: daskgp.cross_validate(cases.make("exact"), where, y[:40], groups=groups, folds=2),
        "features are constant, .* that varies",
    )


@pytest.mark.parametrize("unit", [1e-90, 1e-42, 1e60])
def test_small_and_large_units_are_not_felt(unit):
    error = np.full(len(y), 0.01)
    wanted = cases.fixed("exact", kernel=kernels.Matern32()).fit(X, y, y_variance=error)
    model = cases.fixed("exact", kernel=kernels.Matern32())
    if unit == 1e-42:  # whose errors are within 1e-100
        model.fit(X * unit, y * unit, y_variance=error * unit**2)
        found = model.predict(X[:5] * unit, return_std=True)
        np.testing.assert_allclose(found, np.multiply(wanted.predict(X[:5], True), unit), rtol=1e-6)
        return
    plain = model.fit(X, y).predict(X[:5], return_std=True)
    found = model.fit(X * unit, y * unit).predict(X[:5] * unit, return_std=True)
    np.testing.assert_allclose(found, np.multiply(plain, unit), rtol=1e-6)


def test_units_of_the_user_are_held_to_a_narrower_range():
    for name in ("sgpr", "svgp"):
        model = cases.make(name, standardize=False)
        refusal(lambda model=model: model.fit(X, y * 1e-60), "'y' has values that differ by at")
    single = cases.make("sgpr", standardize=False, dtype="float32")
    refusal(lambda: single.fit(X * 1e-20, y), "'x0' has values that differ by at most")


def test_errors_far_beyond_the_targets_are_refused():
    error = np.full(len(y), 1.0)
    says = "y_variance is .* times the variance of the targets on average, .* in the unit of"
    refusal(lambda: cases.make("sgpr").fit(X, y * 1e-90, y_variance=error), says)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"noise_variance": 1e-300}, "noise_variance=1e-300: double precision cannot square it"),
        ({"noise_variance": 1e300}, "noise_variance=1e.300: double precision cannot square it"),
        ({"fixed": {"lengthscale": 1e-300}}, "fixed.'lengthscale'.=1e-300: .* another unit"),
        ({"limits": {"lengthscale": (1e-9, 1e200)}}, "limits.'lengthscale'.=1e.200: double"),
        ({"kernel": kernels.Matern32(1e-300)}, "lengthscale begins at .*e-300 in the units of"),
        ({"kernel": kernels.Matern32(variance=1e250)}, "variance begins at .*e.250 in the units"),
    ],
)
def test_numbers_that_cannot_be_squared_are_refused(settings, says):
    for name in ("sgpr", "exact", "lma"):
        refusal(lambda name=name: cases.make(name, **settings).fit(X, y), says)


def test_numbers_of_a_prior_too():
    with pytest.raises(InputError, match="sigma=1e-300: double precision cannot square it"):
        LogNormal(1.0, 1e-300)


@pytest.mark.sampled
@every
def test_long_doubles_are_doubles(name):
    wanted = cases.moments(cases.fixed(name).fit(X, y), X[:5])
    longer = X.astype(np.longdouble), y.astype(np.longdouble)
    lazy = da.from_array(longer[0], chunks=(50, 2)), da.from_array(longer[1], chunks=50)
    plain = da.from_array(X, chunks=(50, 2)), da.from_array(y, chunks=50)
    blocks = cases.moments(cases.fixed(name).fit(*plain), X[:5])
    for given, like in ((longer, wanted), (lazy, blocks)):
        np.testing.assert_array_equal(cases.moments(cases.fixed(name).fit(*given), X[:5]), like)


def test_long_doubles_of_stores_and_errors_are_doubles(tmp_path):
    longer = X.astype(np.longdouble), y.astype(np.longdouble)
    daskgp.prepare(longer, tmp_path / "p.zarr", progress=False)
    assert {a.dtype for a in daskgp.open_dataset(tmp_path / "p.zarr")} == {np.dtype(np.float64)}
    error = np.full(len(y), 0.1, np.longdouble)
    masked = np.ma.masked_less(longer[1], -0.5)
    model = cases.fixed("lma").fit(longer[0], masked, y_variance=error)
    assert model.n_rows_ == int((y >= -0.5).sum())
