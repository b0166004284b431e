"""A constant column is left out of a fit, said once, and may be anything where it is predicted."""

import dask.array as da
import numpy as np
import pytest
import zarr

import daskgp
from daskgp import kernels
from daskgp.errors import InputError
from tests.commands import dataset, invoke, succeed
from tests.contract import cases
from tests.effective import effective
from tests.logs import warnings_in

CONSTANT = 0.1  # whose mean over rows is another number
QUICK = {"progress": False, "random_state": 0}
STEPS = {"max_iter": 12, "batch_rows": 60, "n_subset": 60}


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform([0, 10], [1, 30], (n, 2))
    return X, np.sin(6 * X[:, 0]) * X[:, 1] + 2.0 * rng.standard_normal(n)


def beside(X, values=CONSTANT):
    """The same rows with a column of other values between the two."""
    return np.column_stack([X[:, 0], np.broadcast_to(values, len(X)), X[:, 1]])


X, y = rows(120)
T, _ = rows(20, 1)
ODD = np.random.default_rng(2).choice([-1e9, 0.0, CONSTANT, 7.0, 1e300], 20)

VARIANTS = {
    "full-scale": ("vecchia", {"n_neighbours": 9, "n_support": 16}),
    "parted": ("experts", {"expert": "exact", "partition": "block", "aggregation": "bcm"}),
}
NAMES = [*cases.SETTINGS, *VARIANTS]


def made(name, **settings):
    name, own = VARIANTS.get(name, (name, {}))
    usual = {"kernel": "matern32"} if name in cases.UNTRAINED else {"kernel": None, "max_iter": 3}
    steps = STEPS if name in cases.STEPPED else {}
    model = cases.make(name, **QUICK | usual | steps | own | settings)
    return effective(cases.kind(name), **model.get_params(deep=False))


def predicted(model, X):
    return np.stack(cases.moments(model, X))


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_is_that_without_the_column(name, caplog, tmp_path):
    model = made(name).fit(beside(X), y)
    (said,) = [line for line in warnings_in(caplog) if "left out" in line]
    assert said.startswith("feature 'x1' is constant (0.1 in every row): left out of the fit")
    found = predicted(model, beside(T, ODD))
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, predicted(model, beside(T)))
    if name != "ssgp":  # which draws other frequencies
        wanted = predicted(made(name).fit(X, y), T)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    model.save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(predicted(loaded, beside(T, ODD)), found)


KERNELS = dict.fromkeys(("sgpr", "lma", "cagp"), kernels.Matern32(0.8))
KERNELS["svgp"] = kernels.RBF(0.8) + kernels.Linear(0.1)
ALIKE = [
    (name, {"mean": mean, "standardize": scaled, "kernel": kernel})
    for name, kernel in KERNELS.items()
    for mean in ("zero", "ols")
    for scaled in (True, False)
] + [
    ("sgpr", {"train_inducing": True}),
    ("lma", {"train_support": True}),
    ("cagp", {"support": 4}),
    ("decoupled", {"basis": "generalized"}),
    ("svgp", {"likelihood": "bernoulli-logit"}),
]


@pytest.mark.parametrize(("name", "settings"), ALIKE)
def test_means_units_trained_inputs_and_classes_leave_it_out_too(name, settings):
    targets = y > 0 if "likelihood" in settings else y
    model = made(name, **settings).fit(beside(X), targets)
    wanted = made(name, **settings).fit(X, targets)
    found = predicted(model, beside(T, ODD))
    np.testing.assert_allclose(found, predicted(wanted, T), rtol=1e-5, atol=1e-5)


def test_its_own_lengthscale_stays_as_it_is_given():
    kernel = kernels.RBF((0.5, 3.25, 0.7))
    model = made("sgpr", kernel=kernel).fit(beside(X), y)
    assert model.kernel_.lengthscale[1] == pytest.approx(3.25, rel=1e-15)
    assert model.kernel_.lengthscale[0] != 0.5


PLACES = {
    "sgpr": "inducing_",
    "svgp": "inducing_",
    "experts": "inducing_",
    "lma": "support_",
    "opticom": "grid_",
    "decoupled": "mean_points_",
}


@pytest.mark.parametrize("name", PLACES)
def test_inputs_come_back_with_the_constant(name):
    Z = getattr(made(name).fit(beside(X), y), PLACES[name])
    assert (Z[..., 1] == CONSTANT).all()
    assert np.ptp(Z[..., 0]) > 0


def test_frequencies_along_it_are_zero():
    found = made("ssgp").fit(beside(X), y).frequencies_
    assert (found[:, 1] == 0.0).all()
    assert (found[:, ::2] != 0.0).all()


@pytest.mark.parametrize("name", ["sgpr", "lma", "svgp"])
def test_what_given_inputs_say_there_does_not_matter(name):
    setting = "support" if name == "lma" else "inducing"
    found = [
        predicted(made(name, **{setting: beside(X[::10], v)}).fit(beside(X), y), beside(T))
        for v in (CONSTANT, -4e6)
    ]
    np.testing.assert_array_equal(*found)


def test_bounds_of_a_grid_there_do_not_matter():
    box = [[0.0, 1.0], [-9.0, 9.0], [10.0, 30.0]]
    model = made("opticom", bounds=box).fit(beside(X), y)
    wanted = made("opticom", bounds=box[::2]).fit(X, y)
    np.testing.assert_allclose(predicted(model, beside(T)), predicted(wanted, T), rtol=1e-6)
    assert (model.levels_[:, 1] == 1).all()
    np.testing.assert_array_equal(model.levels_[:, ::2], wanted.levels_)


def test_a_missing_value_is_one_in_any_column():
    at = beside(T)
    at[[3, 5, 7], 1] = np.nan, np.inf, -np.inf
    missing = np.isnan(made("sgpr").fit(beside(X), y).predict(at))
    assert np.flatnonzero(missing).tolist() == [3, 5, 7]


def test_several_are_named_in_one_line(caplog):
    wide = np.column_stack([np.zeros(len(X)), X, np.full(len(X), -2.5)])
    made("sgpr", optimizer=None).fit(wide, y)
    (said,) = warnings_in(caplog)
    assert said == (
        "features are constant, with the same value in every row, 'x0' (0), 'x3' (-2.5): left out "
        "of the fit, and predictions do not depend on them"
    )


@pytest.mark.parametrize("name", NAMES)
def test_columns_that_are_all_constant_are_refused_in_one_line(name):
    with pytest.raises(InputError, match=r"'x0' .1., 'x1' .2.: give at least one") as caught:
        made(name).fit(np.tile([1.0, 2.0], (len(y), 1)), y)
    assert "\n" not in str(caught.value)


def test_lazy_rows_and_stores_are_the_same(tmp_path):
    lazy = da.from_array(beside(X), chunks=(50, 3)), da.from_array(y, chunks=50)
    wanted = made("sgpr", block_rows=50).fit(beside(X), y).predict(beside(T))
    model = made("sgpr", store=str(tmp_path), block_rows=50).fit(*lazy)
    at = da.from_array(beside(T, ODD), chunks=(7, 3))
    np.testing.assert_allclose(model.predict(at).compute(), wanted, rtol=1e-8)


@pytest.mark.parametrize("order", ["auto", "hilbert", "pca", "kmeans", "x2", "random"])
def test_prepared_rows_keep_the_column_and_their_order(order, tmp_path):
    with_it, without = tmp_path / "a.zarr", tmp_path / "b.zarr"
    made_ = daskgp.prepare((beside(X), y), with_it, order, block_rows=30, progress=False)
    assert made_.rows == len(X)
    daskgp.prepare((X, y), without, {"x2": "x1"}.get(order, order), block_rows=30, progress=False)
    found, wanted = (zarr.open(path)["X"][...] for path in (with_it, without))
    np.testing.assert_array_equal(found[:, ::2], wanted)
    assert (found[:, 1] == CONSTANT).all()
    if order == "random":
        return
    pair = daskgp.open_dataset(with_it), daskgp.open_dataset(without)
    models = [made("lma", optimizer=None).fit(*data) for data in pair]
    found, wanted = predicted(models[0], beside(T, ODD)), predicted(models[1], T)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)


def test_a_stream_leaves_it_out_and_says_once_that_it_moves(caplog):
    model = made("svgp", inducing=beside(X[::6]))
    model.partial_fit(beside(X[:80]), y[:80])
    assert len(warnings_in(caplog)) == 1
    model.partial_fit(beside(X[80:100]), y[80:100])
    assert len(warnings_in(caplog)) == 1
    for more in (slice(80, 100), slice(100, 120)):
        model.partial_fit(beside(X[more], np.arange(20.0)), y[more])
    said = warnings_in(caplog)
    assert len(said) == 2
    assert said[1].startswith("'x1': left out because it was constant in the first rows")
    assert np.isfinite(model.predict(beside(T, ODD))).all()


def test_the_command_line_says_and_shows_it(tmp_path, scheduler):
    data, model, at, to = (tmp_path / f"{name}.zarr" for name in ("data", "model", "at", "to"))
    names = ["lon", "level", "lat"]
    dataset(data, beside(X), y, names=names)
    dataset(at, beside(T, ODD), np.zeros(20), names=names)
    cluster = ("--scheduler", scheduler)
    result = invoke("fit", data, model, "--model", "sgpr", "--set", "n_inducing=20", *cluster)
    assert result.exit_code == 0, result.stderr
    said = "feature 'level' is constant (0.1 in every row): left out of the fit"
    assert result.stderr.count(said) == 1
    succeed("predict", model, at, to, *cluster)
    assert np.isfinite(zarr.open(to)["mean"][...]).all()
    result = invoke("info", model)
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if "left out" in line]
    assert "level" in line
    lon, lat = [line for line in result.stdout.splitlines() if "lengthscale[" in line]
    assert "lon" in lon
    assert "lat" in lat


@pytest.mark.parametrize("name", ["sgpr", "svgp"])
def test_a_kernel_of_constant_columns_alone_is_refused(name):
    kernel = kernels.RBF(active_dims=(1,))
    with pytest.raises(InputError, match="the kernel sees only 'x1', the same in every row"):
        made(name, kernel=kernel).fit(beside(X), y)
