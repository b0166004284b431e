"""Noise variances and weights of rows, for every method that has Gaussian noise."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import dataset
from fits import equal

import daskgp
from daskgp import kernels
from daskgp.assess.scores import scores
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.runtime.executor import Executor
from tests.contract import cases

T = np.random.default_rng(9).uniform(0, 3, (11, 2))
ERRORS = 10.0 ** np.random.default_rng(1).uniform(-4, 0.5, cases.N)
WEIGHTS = np.random.default_rng(2).uniform(0.3, 3.0, cases.N)
every = pytest.mark.parametrize("name", cases.SETTINGS)


def with_noise(url, X, y, weights=WEIGHTS):
    """A dataset store whose rows have error variances and weights."""
    dataset(url, X, y, step=40)
    group = zarr.open_group(url, mode="r+")
    for array, values in (("y_variance", ERRORS), ("weight", weights)):
        group.create_array(array, data=values, chunks=(40,))
    return str(url)


@pytest.mark.sampled
@every
def test_rows_of_a_store_bring_theirs(name, tmp_path):
    X, y = cases.rows()
    model = cases.make(name).fit(X, y, y_variance=ERRORS, sample_weight=WEIGHTS)
    given = daskgp.open_dataset(with_noise(tmp_path / "t.zarr", X, y))
    stored = cases.make(name).fit(*given)
    equal(cases.moments(stored, T), cases.moments(model, T), rtol=1e-6, atol=1e-8)
    without = cases.make(name).fit(*given, y_variance=False, sample_weight=False)
    equal(
        cases.moments(without, T),
        cases.moments(cases.make(name).fit(X, y), T),
        rtol=1e-6,
        atol=1e-8,
    )
    model.save(str(tmp_path / "m.zarr"))
    loaded = daskgp.load(str(tmp_path / "m.zarr"))
    equal(cases.moments(loaded, T), cases.moments(model, T), rtol=1e-10)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("what", ["y_variance", "sample_weight"])
def test_impossible_values_are_refused_by_the_number_of_rows(what, bad):
    X, y = cases.rows()
    values = np.ones(len(y))
    values[[3, 7]] = bad
    if what == "sample_weight" and bad == 0:
        pytest.skip("such rows are left out")
    below = "zero or negative" if what == "y_variance" else "negative"
    kind = below if bad <= 0 else "not finite, or beyond 1e-100 to 1e\\+100,"
    with pytest.raises(InputError, match=f"{what} is {kind} in 2 rows of {len(y)}: leave these"):
        cases.make("exact").fit(X, y, **{what: values})
    y[[3, 7]] = np.nan  # rows that are left out anyway
    cases.make("exact").fit(X, y, **{what: values})


def dense(X, y, noise, model, weights=WEIGHTS):
    """Exact GP with given hyper-parameters, in the units of the data, at T."""
    scale, kernel = model.solved_.scaling, model.solved_.theta.kernel
    K = kernel(scale.inputs(X))
    k = kernel(scale.inputs(T), scale.inputs(X))
    C = K + np.diag(model.noise_variance_ / weights + noise / scale.y_scale**2)
    mean = k @ np.linalg.solve(C, (y - scale.intercept) / scale.y_scale)
    variance = kernel.diag(scale.inputs(T)) - (k * np.linalg.solve(C, k.T).T).sum(axis=1)
    return mean * scale.y_scale + scale.intercept, np.sqrt(variance) * scale.y_scale


def test_the_exact_gp_is_the_dense_definition():
    X, y = cases.rows()
    model = cases.fixed("exact").fit(X, y, y_variance=ERRORS, sample_weight=WEIGHTS)
    equal(model.predict(T, return_std=True), dense(X, y, ERRORS, model), rtol=1e-8)


@pytest.mark.parametrize("name", ["sgpr", "lma", "exact"])
def test_training_and_predictions_agree_with_scikit_learn(name):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    X, y = cases.rows()
    limit = {"sgpr": {"inducing": X}, "lma": {"block_rows": 75, "markov_order": 1}}.get(name, {})
    theirs = GaussianProcessRegressor(
        ConstantKernel(1.0) * Matern([1.0, 1.0], nu=1.5) + WhiteKernel(0.1), alpha=ERRORS
    ).fit(X, y)
    kernel = kernels.Matern32((1.0, 1.0))
    settings = {
        "kernel": kernel,
        "standardize": False,
        "mean": "zero",
        "max_iter": 100,
        "tol": 1e-6,
    }
    ours = cases.kind(name)(**settings, **limit, progress=False).fit(X, y, y_variance=ERRORS)
    assert ours.objective_ == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-3)
    equal(ours.predict(T, return_std=True)[:1], [theirs.predict(T)], atol=2e-3)


def test_a_row_of_endless_error_is_left_out():
    X, y = cases.rows()
    errors = np.full(len(y), 1e-3)
    errors[7], y[7] = 1e12, 1e4
    left = np.arange(len(y)) != 7
    model = cases.fixed("exact").fit(X, y, y_variance=errors)
    without = cases.fixed("exact").fit(X[left], y[left], y_variance=errors[left])
    equal(cases.moments(model, T), cases.moments(without, T), rtol=1e-6)


def test_a_few_very_small_errors_among_large_ones():
    X, y = cases.rows()
    errors = np.full(len(y), 4.0)
    errors[:5] = 1e-14
    for name in ("exact", "sgpr", "lma"):
        model = cases.fixed(name, noise_variance=1e-6).fit(X, y, y_variance=errors)
        mean, std = model.predict(X[:5], return_std=True)
        assert np.abs(mean - y[:5]).max() < 0.02 or name == "sgpr"
        assert np.isfinite(std).all()


def test_new_observations_have_errors_of_their_own():
    X, y = cases.rows()
    model = cases.fixed("lma").fit(X, y)
    errors = np.linspace(0.1, 2.0, len(T))
    mean, std = model.predict(T, return_std=True, include_noise=True)
    found = model.predict(T, return_std=True, include_noise=True, y_variance=errors)
    equal(found, (mean, np.sqrt(std**2 + errors)), rtol=1e-12)
    _, cov = model.predict(T, return_cov=True, include_noise=True, y_variance=errors)
    np.testing.assert_allclose(np.diag(cov), std**2 + errors, rtol=1e-8)
    lazily = model.predict(
        da.from_array(T, chunks=(4, 2)), return_std=True, include_noise=True, y_variance=errors
    )
    equal(dask.compute(*lazily), found, rtol=1e-10)
    with pytest.raises(SettingError, match="y_variance belongs to the spread of new observations"):
        model.predict(T, return_std=True, y_variance=errors)
    with pytest.raises(InputError, match="y_variance is negative in 1 row: "):
        model.predict(T, return_std=True, include_noise=True, y_variance=[-1.0, *errors[1:]])
    with pytest.raises(InputError, match=r"y_variance has shape \(3,\), but one number per row"):
        model.predict(T, return_std=True, include_noise=True, y_variance=errors[:3])
    for bad, says in ((-1.0, "negative"), (np.inf, "infinite")):
        each = np.where(np.arange(len(T)) == 2, bad, errors)
        for given in (each, da.from_array(each), xr.DataArray(each, dims="row")):
            with pytest.raises(InputError, match=f"y_variance is {says} in 1 row: give positive"):
                dask.compute(
                    model.predict(T, return_std=True, include_noise=True, y_variance=given)
                )


@pytest.mark.whole
@pytest.mark.parametrize("fill", [1e20, 9.969209968386869e36, -9999.0, 9999.0, 32767.0, 99999.0])
@pytest.mark.parametrize("spread", [0.0, 0.9])
def test_weights_that_are_fill_values_are_refused(fill, spread):
    X = np.linspace(0, 5, 40)[:, None]
    usual = 1.0 + spread * np.cos(np.arange(40.0))
    weights = np.where(np.arange(40) % 10, usual, fill)
    with pytest.raises(InputError, match="sample_weight is a fill value in common use in 4 rows"):
        daskgp.ExactGP(progress=False).fit(X, np.sin(X[:, 0]), sample_weight=weights)
    errors = np.where(np.arange(40) % 10, 0.01, abs(fill))  # of rows that say nothing
    known = daskgp.ExactGP(progress=False).fit(X, np.sin(X[:, 0]), y_variance=errors)
    assert abs(known.predict(X) - np.sin(X[:, 0])).max() < 0.3


@pytest.mark.whole
@pytest.mark.parametrize(
    "weights",
    [
        np.geomspace(1, 9999, 40).round(),  # numbers of measurements
        np.where(np.arange(40) % 10, 5_000.0, 9_999.0),
        np.where(np.arange(40) % 2, 1.0, 1_000.0),
        np.full(40, 9999.0),
        np.where(np.arange(40) == 7, 5_000.0, np.arange(40) % 3 + 1.0),
    ],
    ids=["counts", "beside large ones", "two kinds", "all alike", "one large one"],
)
def test_large_weights_beside_others_of_their_kind_are_taken(weights):
    X = np.linspace(0, 5, 40)[:, None]
    daskgp.ExactGP(optimizer=None, progress=False).fit(X, np.sin(X[:, 0]), sample_weight=weights)


def test_scores_know_the_noise_of_each_row(tmp_path):
    X, y = cases.rows()
    url = with_noise(tmp_path / "t.zarr", X, y)
    model = cases.fixed("exact").fit(X, y, y_variance=ERRORS, sample_weight=WEIGHTS)
    found = scores(model.solved_, *daskgp.open_dataset(url), Executor.current(False))
    mean, std = model.predict(X, return_std=True)
    noise = model.noise_variance_ * model.solved_.scaling.y_scale**2 / WEIGHTS
    wanted = daskgp.metrics.nlpd(y, mean, std**2 + ERRORS + noise)
    assert found["nlpd"] == pytest.approx(float(wanted))


@pytest.mark.parametrize("order", ["hilbert", "random"])
def test_prepared_rows_keep_their_noise(order, tmp_path):
    X, y = cases.rows()
    X[4, 0] = np.nan
    url = with_noise(tmp_path / "t.zarr", X, y)
    daskgp.prepare(url, str(tmp_path / "p.zarr"), order=order, block_rows=30)
    group = zarr.open_group(tmp_path / "p.zarr")
    moved = {name: group[name][:] for name in ("X", "y", "y_variance", "weight")}
    where = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in moved["X"]]
    assert sorted(where) == sorted(set(range(len(y))) - {4})
    equal(
        [moved["y"], moved["y_variance"], moved["weight"]],
        [y[where], ERRORS[where], WEIGHTS[where]],
    )


def test_several_targets_share_weights_and_not_their_errors():
    X, y = cases.rows()
    both = np.column_stack([y, -3 * y])
    shared = kernels.Matern32((0.8, 0.8))  # a variance would be a share of each target's
    model = cases.fixed("sgpr", kernel=shared).fit(X, both, sample_weight=WEIGHTS)
    one = cases.fixed("sgpr", kernel=shared).fit(X, y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(model.predict(T)[:, 0], one.predict(T), rtol=1e-8)
    chunked = da.from_array(X, chunks=(30, 2)), da.from_array(both, chunks=(30, 2))
    for known in (ERRORS, 0.1):
        for rows in ((X, both), chunked):
            with pytest.raises(InputError, match=r"y has 2 targets .* give y_variance \(150, 2\)"):
                cases.fixed("sgpr").fit(*rows, y_variance=known)
    with pytest.raises(
        InputError, match=r"sample_weight has shape \(150, 2\), but one number per row"
    ):
        cases.fixed("sgpr").fit(X, both, sample_weight=both**2)


def test_codes_have_no_noise():
    X, y = cases.rows()
    with pytest.raises(SettingError, match="noise"):
        daskgp.SVGP(likelihood="bernoulli", n_inducing=5, max_iter=2, progress=False).fit(
            X, (y > 0).astype(float), sample_weight=WEIGHTS
        )


def test_a_fit_with_other_errors_does_not_go_on_from_a_checkpoint(tmp_path):
    X, y = cases.rows()
    url = str(tmp_path / "c")
    cases.make("sgpr").fit(X, y, url, y_variance=ERRORS)
    with pytest.raises(StoreError, match="checkpoint"):
        cases.make("sgpr").fit(X, y, url, y_variance=2 * ERRORS)


def test_points_of_a_support_keep_their_noise():
    X, y = cases.rows()
    settings = {"support": 5, "n_actions": 10, "progress": False, "optimizer": None}
    kernel = kernels.Matern32((0.8, 0.8))
    weighted = daskgp.CaGP(kernel, noise_variance=0.2, **settings)
    plain = daskgp.CaGP(kernel, noise_variance=0.1, **settings).fit(X, y)
    weighted.fit(X, y, sample_weight=np.full(len(y), 2.0))
    equal(cases.moments(weighted, T), cases.moments(plain, T), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", ["cagp", "cagp-cg"])
def test_the_computational_part_is_what_the_dense_gp_knows_more(name, stored, tmp_path):
    X, y = cases.rows()
    y[4], weights = np.nan, WEIGHTS.copy()
    weights[9] = 0.0
    rows, noise = (X, y), {"y_variance": ERRORS, "sample_weight": weights}
    if stored:
        rows, noise = daskgp.open_dataset(with_noise(tmp_path / "t.zarr", X, y, weights)), {}
    model = cases.fixed(name).fit(*rows, **noise)
    known = np.delete(np.arange(len(y)), [4, 9])
    _, exact = dense(X[known], y[known], ERRORS[known], model, WEIGHTS[known])
    model.save(str(tmp_path / "m.zarr"))
    for one in (model, daskgp.load(str(tmp_path / "m.zarr"))):
        _, std, part = one.predict(T, return_std=True, return_computational=True)
        np.testing.assert_allclose(part**2, std**2 - exact**2, rtol=5e-3)
        assert part.min() > 0.05 * exact.min()


def test_errors_of_another_store_are_not_those_cached(tmp_path):
    X, y = cases.rows()
    daskgp.prepare((X, y), str(tmp_path / "p.zarr"), block_rows=30)
    given = daskgp.open_dataset(tmp_path / "p.zarr")
    group = zarr.create_group(tmp_path / "e.zarr")
    found = []
    for name, size in (("a", 1e-4), ("b", 5.0)):
        array = group.create_array(name, data=np.full(len(y), size), chunks=given[0].chunks[0][:1])
        fitted = [cases.fixed("lma").fit(*given, y_variance=e) for e in (array, array[:])]
        equal(cases.moments(fitted[0], T), cases.moments(fitted[1], T), rtol=1e-2)
        found.append(fitted[0].predict(T))
    assert np.abs(found[0] - found[1]).max() > 0.05


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_size_of_weights_does_not_matter(unit):
    X, y = cases.rows()
    plain = daskgp.ExactGP(kernels.Matern32((0.8, 0.8)), progress=False)
    weighted = daskgp.ExactGP(kernels.Matern32((0.8, 0.8)), progress=False)
    plain.fit(X, y)
    weighted.fit(X, y, sample_weight=np.full(len(y), unit))
    assert weighted.objective_ == pytest.approx(plain.objective_, abs=0.5)
    equal(cases.moments(weighted, T), cases.moments(plain, T), atol=0.02)


def test_one_very_exact_row_does_not_decide_the_units():
    X, y = cases.rows()
    weights = np.ones(len(y))
    weights[3] = 1e10
    scale = daskgp.ExactGP(optimizer=None, progress=False).fit(X, y, sample_weight=weights)
    plain = daskgp.ExactGP(optimizer=None, progress=False).fit(X, y)
    ratio = scale.solved_.scaling.x_scale / plain.solved_.scaling.x_scale
    assert (np.abs(ratio - 1) < 0.1).all()


def test_common_weights_raise_no_alarm(caplog):
    X, y = cases.rows()
    cases.fixed("exact").fit(X, y, sample_weight=np.full(len(y), 1e-6))
    assert "most of the variance" not in caplog.text


def test_errors_on_a_grid_follow_its_points():
    lon, lat = np.arange(6.0), np.arange(5.0)
    values = np.sin(lon)[None] + lat[:, None]
    y = xr.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), name="y").chunk({"lon": 2})
    errors = np.random.default_rng(0).uniform(0.01, 4, y.shape)
    X, flat = np.stack(np.meshgrid(lat, lon, indexing="ij"), -1).reshape(-1, 2), values.ravel()
    wanted = cases.fixed("exact").fit(X, flat, y_variance=errors.ravel()).predict(X)
    for given in (errors, y.copy(data=errors)):
        model = cases.fixed("exact").fit(y, y, y_variance=given)
        np.testing.assert_allclose(model.predict(y).to_numpy().ravel(), wanted, rtol=1e-8)
    with pytest.raises(InputError, match=r"y_variance has shape \(30,\) on a grid of shape"):
        cases.fixed("exact").fit(y, y, y_variance=errors.ravel())
    noisy = {"return_std": True, "include_noise": True}
    _, plain = model.predict(y, **noisy)
    _, own = model.predict(y, y_variance=y.copy(data=errors), **noisy)
    np.testing.assert_allclose(own, np.sqrt(plain**2 + errors), rtol=1e-10)
    shifted = y.copy(data=errors).assign_coords(lon=lon + 1e-9)
    for wrong in (shifted, errors.ravel()):
        with pytest.raises(InputError, match="y_variance"):
            model.predict(y, y_variance=wrong, **noisy)


def test_rows_that_cannot_be_judged_are_not_scored(tmp_path):
    X, y = cases.rows()
    url = with_noise(tmp_path / "t.zarr", X, y)
    group = zarr.open_group(url, mode="r+")
    group["weight"][5], group["y_variance"][8] = 0.0, np.nan
    model = cases.fixed("exact").fit(X, y)
    found = scores(model.solved_, *daskgp.open_dataset(url), Executor.current(False))
    assert found["n"] == len(y) - 2
    assert np.isfinite(found["nlpd"])


def test_errors_that_stay_behind_are_warned_of(tmp_path, caplog):
    X, y = daskgp.open_dataset(with_noise(tmp_path / "t.zarr", *cases.rows()))
    for changed in (y.rechunk(30), y.astype("f4"), y[:100]):
        cases.fixed("sgpr").fit(X[: len(changed)], changed)
        assert caplog.text.count("the store of y has y_variance and weight, but this y is a") == 1
        caplog.clear()
    cases.fixed("sgpr").fit(X, y)
    cases.fixed("sgpr").fit(X, y.rechunk(30), y_variance=False, sample_weight=False)
    assert "the store of y" not in caplog.text


@pytest.mark.parametrize("size", [1e300, 1e-300, 1e-320])
@pytest.mark.parametrize("what", ["y_variance", "sample_weight"])
def test_sizes_that_cannot_be_squared_are_refused(what, size):
    X, y = cases.rows()
    with pytest.raises(InputError, match=f"{what} is not finite, or beyond .* in 150 rows"):
        cases.make("sgpr").fit(X, y, **{what: np.full(len(y), size)})


LIKE = {
    "a number": lambda v: float(v[0]),
    "an array without dimensions": lambda v: np.array(v[0]),
    "a column": lambda v: v[:, None],
    "a list of rows": lambda v: [[x] for x in v],
    "a lazy column": lambda v: da.from_array(v[:, None], chunks=(30, 1)),
    "a frame": lambda v: pd.DataFrame({"e": v}),
}


@pytest.mark.parametrize("given", LIKE.values(), ids=LIKE)
def test_numbers_and_columns_are_taken(given, tmp_path):
    X, y = cases.rows()
    flat = np.full(len(y), 0.3) if given in (LIKE["a number"], [*LIKE.values()][1]) else ERRORS
    wanted = cases.moments(
        cases.fixed("exact").fit(X, y, y_variance=flat, sample_weight=1 + flat), T
    )
    noise = {"y_variance": given(flat), "sample_weight": given(1 + flat)}
    dataset(tmp_path / "t.zarr", X, y, step=40)
    chunked = da.from_array(X, chunks=(30, 2)), da.from_array(y, chunks=30)
    for rows in ((X, y), (X, y[:, None]), chunked, daskgp.open_dataset(tmp_path / "t.zarr")):
        found = cases.moments(cases.fixed("exact").fit(*rows, **noise), T)
        equal([a.ravel() for a in found], wanted, rtol=1e-6, atol=1e-9)
    daskgp.prepare((X, y), tmp_path / "p.zarr", order="random", block_rows=30, **noise)
    again = cases.fixed("exact").fit(*daskgp.open_dataset(tmp_path / "p.zarr"))
    equal(cases.moments(again, T), wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "own"), [("lma", {}), ("cagp", {}), ("exact-experts", {"partition": "chunks"})]
)
def test_a_number_beside_a_prepared_store_is_read_block_by_block(name, own, tmp_path):
    X, y = cases.rows()
    daskgp.prepare((X, y), tmp_path / "p.zarr", block_rows=30)
    rows = daskgp.open_dataset(tmp_path / "p.zarr")
    same = zarr.create_array(
        tmp_path / "e", data=np.full(len(y), 0.3), chunks=rows[1].chunks[0][:1]
    )
    found, wanted = (cases.fixed(name, **own).fit(*rows, y_variance=e) for e in (0.3, same))
    equal(cases.moments(found, T), cases.moments(wanted, T), rtol=1e-6)
    found.save(str(tmp_path / "m.zarr"))
    loaded = daskgp.load(str(tmp_path / "m.zarr"))
    equal(cases.moments(loaded, T), cases.moments(found, T), rtol=1e-10)


def test_a_number_stands_for_all_points_of_a_grid():
    lon, lat = np.arange(6.0), np.arange(5.0)
    y = xr.DataArray(np.sin(lon)[None] + lat[:, None], {"lat": lat, "lon": lon}, ("lat", "lon"))
    wanted = cases.fixed("exact").fit(y, y, y_variance=np.full(y.shape, 0.3)).predict(y)
    found = cases.fixed("exact").fit(y, y, y_variance=0.3).predict(y)
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


@pytest.mark.parametrize("what", ["y_variance", "sample_weight"])
def test_what_is_no_number_per_row_is_refused(what):
    X, y = cases.rows()
    model = cases.fixed("exact")
    for wrong, says in [
        (ERRORS[:3], r"has shape \(3,\), but one number per row is needed: \(150,\)"),
        (ERRORS[:1], r"has shape \(1,\), but one number"),
        (ERRORS[None], r"has shape \(1, 150\), but one number"),
        (np.stack([ERRORS] * 2, 1), r"has shape \(150, 2\), but one number"),
        (ERRORS[:, None, None], r"has shape \(150, 1, 1\), but one number"),
        (True, "=True: give numbers, or False to leave it out"),
        (np.array("a"), "has type <U1 and holds 'a', but numbers are needed"),
        (-1.0, "is (zero or )?negative in 150 rows of 150"),
    ]:
        with pytest.raises(InputError, match=f"{what} ?{says}"):
            model.fit(X, y, **{what: wrong})


@pytest.mark.parametrize("p", [1, 2])
def test_errors_of_new_observations_have_the_shape_of_rows_or_of_predictions(p):
    X, y = cases.rows()
    targets = y if p == 1 else np.column_stack([y, 3 * y])
    model = cases.fixed("sgpr").fit(X, targets)
    asked = {"return_std": True, "include_noise": True}
    _, std = model.predict(T, **asked)
    each = np.linspace(0.1, 2.0, std.size).reshape(std.shape)
    rows = np.linspace(0.1, 2.0, len(T))
    column = rows.reshape(len(T), *(1,) * (p - 1))
    cases_of = [(0.4, 0.4), (rows, column), (rows[:, None], column), (each, each)]
    lazy = da.from_array(T, chunks=(4, 2))
    for given, errors in cases_of:
        wanted = np.sqrt(std**2 + errors)
        for X_new, known in ((T, given), (lazy, given), (lazy, da.asarray(given))):
            _, found = model.predict(X_new, **asked, y_variance=known)
            np.testing.assert_allclose(found, wanted, rtol=1e-8)
        _, cov = model.predict(T, return_cov=True, include_noise=True, y_variance=given)
        np.testing.assert_allclose(np.diagonal(cov).T, wanted**2, rtol=1e-8)
    _, found = model.predict(T, **asked, y_variance=da.asarray(rows))
    np.testing.assert_allclose(found, np.sqrt(std**2 + column), rtol=1e-8)
    with pytest.raises(InputError, match=r"y_variance has shape \(11, 3\), but one number per row"):
        model.predict(T, **asked, y_variance=np.ones((11, 3)))


PLACES = cases.rows()[0][::12]
STEPS = {"natural": 1.0, "train_points": False, "inducing": PLACES, "max_iter": 3}
CHOSEN = {  # whatever a fit would choose from the rows
    "sgpr": {"inducing": PLACES, "n_inducing": 512},
    "cggp": {"solver_tol": 1e-13, "max_iter": 500},
    "decoupled": STEPS | {"n_covariance": 128, "n_mean": len(PLACES)},
    "svgp": STEPS | {"n_inducing": 512},
    "ssgp": {},
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_row_of_weight_two_is_the_row_given_twice(name):
    X, y = cases.rows()
    weights = np.random.default_rng(3).integers(1, 3, len(y))
    given = CHOSEN[name] | {"standardize": False, "mean": "zero"}

    def fitted(rows, **noise):
        batch = {"batch_rows": len(rows)} if "natural" in given else {}
        return cases.fixed(name, **given | batch).fit(X[rows], y[rows], **noise)

    weighted = fitted(np.arange(len(y)), sample_weight=weights)
    twice = fitted(np.repeat(np.arange(len(y)), weights))
    equal(cases.moments(weighted, T), cases.moments(twice, T), rtol=0, atol=1e-9)
