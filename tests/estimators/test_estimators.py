"""Estimators: the dense definition under any chunking, and the manners of scikit-learn."""

import inspect
import itertools
import logging
import os
import re

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import default_client
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import daskgp
from daskgp import SGPR, ExactGP, kernels, testing
from daskgp.data import Rows, partition
from daskgp.errors import InputError, PlanError, SettingError
from daskgp.estimators import ESTIMATORS, requirements
from daskgp.fit import rounds, run
from daskgp.fit.recipe import Recipe
from daskgp.models import scaling
from daskgp.models.sparse.sgpr import SGPR as CollapsedSparse
from daskgp.models.values import Theta
from daskgp.runtime.executor import Executor
from tests import oracle

KERNEL = kernels.Matern32(lengthscale=(0.7, 1.3, 2.0), variance=1.4) + kernels.Linear(variance=0.2)
NOISE = 0.07


def data(n=300, p=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3)) * [1.0, 10.0, 0.1] + [0.0, 300.0, -5.0]
    signal = np.sin(2 * X[:, 0]) + 0.1 * X[:, 1]
    y = signal[:, None] * 10.0 ** np.arange(p) + 0.2 * rng.standard_normal((n, p)) + 40.0
    return X, (y[:, 0] if p == 1 else y)


def fixed(Z, **settings):
    return SGPR(KERNEL, inducing=Z, noise_variance=NOISE, optimizer=None, **settings)


def ragged(n, blocks):
    """Row counts of ``blocks`` chunks of different sizes, in no order."""
    rng = np.random.default_rng(blocks)
    cuts = np.sort(rng.choice(np.arange(1, n), blocks - 1, replace=False))
    return tuple(np.diff([0, *cuts, n]).tolist())


def scaled(model, X, y):
    """Data as the dense definition sees it."""
    s = model.solved_.scaling
    return s.block(X, np.reshape(y, (len(y), -1)))


# -- exactness -----------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 7, 100])
@pytest.mark.parametrize("p", [1, 2])
def test_bound_and_predictions_are_dense_for_any_chunks(blocks, p, monkeypatch):
    X, y = data(p=p)
    T, Z = data(20, seed=1)[0], data(30, seed=2)[0]
    chunks = ragged(300, blocks)
    lazy = [da.from_array(a, chunks=(chunks, *a.shape[1:])) for a in (X, y)]
    # a store has equal chunks, so the ragged ones are given to the rounds as they are
    model = fixed(Z, mean="ols").fit(*lazy)
    assert_dense(model, X, y, T)
    rows = Rows(X, y, chunks, ("a", "b", "c"), tuple("y" * p))
    edges = np.cumsum([0, *chunks]).tolist()
    spans = tuple(partition.Span(*edge) for edge in itertools.pairwise(edges))
    assert len(spans) == blocks
    model = fixed(Z, mean="ols")
    monkeypatch.setattr(Recipe, "spans", lambda recipe, rows: spans)
    model._fitted, _ = run.run(model.recipe(), rows, Executor.current(False))
    assert_dense(model, X, y, T)


def assert_dense(model, X, y, T):
    rows, Z = scaled(model, X, y), model.solved_.theta.inputs
    bound = oracle.titsias_bound(model.solved_.theta.kernel, rows.X, rows.y, Z, NOISE)
    assert model.objective_ == pytest.approx(bound, rel=1e-8)
    scale = model.solved_.scaling
    at = scale.inputs(T)
    mean, cov = oracle.sparse_posterior(model.solved_.theta.kernel, rows.X, rows.y, Z, NOISE, at)
    mean = mean * scale.y_scale + scale.intercept + at @ scale.slope
    std = np.sqrt(np.outer(np.diag(cov), scale.y_scale**2))
    found = [np.reshape(a, mean.shape) for a in model.predict(T, return_std=True)]
    np.testing.assert_allclose(found[0], mean, rtol=1e-8)
    np.testing.assert_allclose(found[1], std, rtol=1e-8)
    full = model.predict(T, return_cov=True)[1].reshape(20, 20, -1)
    np.testing.assert_allclose(
        full, cov[:, :, None] * scale.y_scale**2, rtol=1e-8, atol=1e-8 * full.max()
    )


@pytest.mark.parametrize("blocks", [1, 7, 100])
def test_gradient_is_that_of_one_dense_block_for_any_chunks(blocks):
    X, y = data(120, p=2)
    chunks = ragged(120, blocks)
    rows = Rows(X, y, chunks, ("a", "b", "c"), ("u", "v"))
    scale = scaling.solve(scaling.local(X, y), 3, "constant", True)
    spans = tuple(partition.blocks(120, chunks, 1))
    theta = Theta(KERNEL, NOISE, scale.inputs(data(8, seed=2)[0]))
    stage = rounds.Rounds(rows, partition.alone(spans), scale, Executor.current(False))
    found = CollapsedSparse().evaluate(theta, stage)
    block = scale.block(X, y)

    def dense(vector):
        at = theta.from_vector(vector)
        Z = at.inputs
        return oracle.titsias_bound(at.kernel, block.X, block.y, Z, at.noise_variance)

    wanted = testing.central_differences(dense, theta.to_vector(with_inputs=True))
    gradient = found.gradient.to_vector(with_inputs=True)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    value, whole = testing.value_and_gradient(CollapsedSparse(), theta, block.X, block.y)
    assert found.value == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(gradient, whole, rtol=1e-8, atol=1e-9 * np.abs(whole).max())


def test_bound_rises_to_the_evidence_with_more_inducing_inputs():
    X, y = data(120)
    exact = ExactGP(KERNEL, noise_variance=NOISE, optimizer=None).fit(X, y).objective_
    settings = {"noise_variance": NOISE, "optimizer": None}
    bounds = [SGPR(KERNEL, n_inducing=m, **settings).fit(X, y).objective_ for m in (5, 30, 110)]
    assert bounds == sorted(bounds)
    assert bounds[-1] <= exact
    assert exact - bounds[-1] < 0.05 * (exact - bounds[0])


@pytest.mark.parametrize("p", [1, 2])
def test_exact_gp_is_that_of_scikit_learn(p):
    X, y = data(90, p=p)
    T = data(12, seed=1)[0]
    kernel = kernels.Matern32(lengthscale=(0.7, 8.0, 0.3), variance=30.0)
    settings = {"optimizer": None, "noise_variance": 0.3, "standardize": False, "mean": "zero"}
    ours = ExactGP(kernel, **settings).fit(X, y)
    theirs = GaussianProcessRegressor(
        sk.ConstantKernel(30.0) * sk.Matern((0.7, 8.0, 0.3), nu=1.5), alpha=0.3, optimizer=None
    ).fit(X, y)
    for a, b in zip(ours.predict(T, True), theirs.predict(T, return_std=True), strict=True):
        np.testing.assert_allclose(a, b.reshape(a.shape), rtol=1e-8)
    np.testing.assert_allclose(
        ours.predict(T, return_cov=True)[1],
        theirs.predict(T, return_cov=True)[1],
        rtol=1e-7,
        atol=1e-9,
    )
    evidence = theirs.log_marginal_likelihood(theirs.kernel_.theta)
    assert ours.log_marginal_likelihood() == pytest.approx(float(evidence), rel=1e-9)


@pytest.mark.parametrize("name", ["sgpr", "exact"])
@pytest.mark.parametrize("p", [1, 2])
def test_log_marginal_likelihood_is_in_the_units_of_y(name, p):
    X, y = data(60, p=p)
    exact = ExactGP(KERNEL, noise_variance=NOISE, optimizer=None)
    model = (exact if name == "exact" else fixed(X)).fit(X, y)
    rows, scale = scaled(model, X, y), model.solved_.scaling
    K = model.solved_.theta.kernel(rows.X)
    wanted = 0.0
    for j, unit in enumerate(scale.y_scale):
        raw = np.reshape(y, (60, -1))[:, [j]] - scale.intercept[j]
        wanted += oracle.evidence(unit**2 * K, raw, unit**2 * NOISE)
    assert model.log_marginal_likelihood() == pytest.approx(wanted, rel=1e-5)


def test_several_targets_are_predicted_as_they_would_be_alone():
    X, y = data(p=2)
    Z, T = data(25, seed=2)[0], data(9, seed=1)[0]
    # a variance would be a share of each target's
    shared = {"kernel": kernels.Matern32((0.7, 1.3, 2.0)) + kernels.Linear()}
    both = fixed(Z).set_params(**shared).fit(X, y).predict(T, return_std=True)
    for j in range(2):
        alone = fixed(Z).set_params(**shared).fit(X, y[:, j]).predict(T, return_std=True)
        for a, b in zip(both, alone, strict=True):
            np.testing.assert_allclose(a[:, j], b, rtol=1e-9)


# -- scaling and mean functions ------------------------------------------------------------


def test_units_of_inputs_and_outputs_do_not_matter_when_standardized():
    X, y = data()
    T = data(10, seed=1)[0]
    plain = SGPR(n_inducing=20, max_iter=5).fit(X, y)
    other = SGPR(n_inducing=20, max_iter=5).fit(X * 1000 - 7, 0.01 * y + 300)
    mean, std = plain.predict(T, return_std=True)
    moved = other.predict(T * 1000 - 7, return_std=True)
    np.testing.assert_allclose(moved[0], 0.01 * mean + 300, rtol=1e-6)
    np.testing.assert_allclose(moved[1], 0.01 * std, rtol=1e-3)
    assert other.log_marginal_likelihood() == pytest.approx(
        plain.log_marginal_likelihood() - 300 * np.log(0.01), rel=1e-6
    )


def test_without_standardize_the_kernel_is_in_the_units_of_the_data():
    X, y = data(100)
    Z, T = X[::5], data(10, seed=1)[0]
    kernel = kernels.RBF((1.0, 9.0, 0.2), variance=4.0)
    settings = {"optimizer": None, "standardize": False, "noise_variance": 0.2}
    model = SGPR(kernel, inducing=Z, mean="zero", **settings).fit(X, y)
    mean, _ = oracle.sparse_posterior(kernel, X, y[:, None], Z, 0.2, T)
    np.testing.assert_allclose(model.predict(T), mean[:, 0], rtol=1e-8)
    np.testing.assert_array_equal(model.inducing_, Z)
    assert model.log_marginal_likelihood() == model.objective_


@pytest.mark.filterwarnings("ignore:nearly all places to predict are far")
def test_far_from_the_data_predictions_return_to_the_mean_function():
    X, y = data()
    far = np.array([[1e6, 300.0, -5.0], [-1e6, 300.0, -5.0]])
    kernel = kernels.RBF(1.0)
    at = {"optimizer": None, "n_inducing": 20}
    zero = SGPR(kernel, mean="zero", **at).fit(X, y).predict(far)
    np.testing.assert_allclose(zero, 0.0, atol=1e-12)
    constant = SGPR(kernel, mean="constant", **at).fit(X, y).predict(far)
    np.testing.assert_allclose(constant, y.mean(), rtol=1e-12)
    linear = SGPR(kernel, mean="ols", **at).fit(X, y).predict(far)
    design = np.column_stack([np.ones(300), X])
    wanted = np.column_stack([np.ones(2), far]) @ np.linalg.lstsq(design, y)[0]
    np.testing.assert_allclose(linear, wanted, rtol=1e-8)


# -- training ------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["l-bfgs", "adam"])
@pytest.mark.parametrize("train_inducing", [False, True])
def test_training_raises_the_bound_and_writes_its_history(optimizer, train_inducing):
    X, y = data()
    same = {"kernel": kernels.Matern32((1.0, 1.0, 1.0)), "n_inducing": 15}
    settings = {**same, "optimizer": optimizer, "train_inducing": train_inducing}
    still = SGPR(**same, optimizer=None).fit(X, y)
    model = SGPR(max_iter=12, tol=1e-12, **settings).fit(X, y)
    assert model.objective_ > still.objective_ + 1.0
    assert [entry["iteration"] for entry in model.history_] == list(range(1, 13))
    names = {"iteration", "evaluations", "objective", "gradient_norm", "seconds"}
    wanted = {*names, "noise_variance", *model.kernel_.parameter_names}
    assert set(model.history_[0]) == wanted
    best = max(entry["objective"] for entry in model.history_)
    assert model.objective_ == pytest.approx(best, rel=1e-10)
    if optimizer == "l-bfgs":
        last = model.history_[-1]
        values = np.exp(model.solved_.theta.kernel.log_parameters)
        for name, value in zip(model.kernel_.parameter_names, values, strict=True):
            assert last[name] == pytest.approx(value)
    assert np.array_equal(model.inducing_, still.inducing_) is not train_inducing


def test_training_recovers_the_hyper_parameters_of_a_draw():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (400, 1))
    kernel = kernels.RBF(1.3, variance=2.0)
    y = rng.multivariate_normal(np.zeros(400), kernel(X) + 0.05 * np.eye(400))
    settings = {"standardize": False, "mean": "zero", "tol": 1e-4}
    model = SGPR(kernels.RBF(), n_inducing=40, **settings).fit(X, y)
    exact = ExactGP(kernels.RBF(), **settings).fit(X, y)
    for fitted in (model, exact):
        assert fitted.kernel_.lengthscale == pytest.approx(1.3, rel=0.2)
        assert fitted.noise_variance_ == pytest.approx(0.05, rel=0.2)
    assert model.log_marginal_likelihood() == pytest.approx(
        exact.log_marginal_likelihood(), rel=1e-3
    )
    assert model.history_[-1]["predicted_gain"] < 0.1 * 3


def test_no_optimizer_keeps_the_hyper_parameters():
    X, y = data()
    model = fixed(X[:20]).fit(X, y)
    assert model.kernel_ == KERNEL
    assert model.noise_variance_ == NOISE
    assert model.history_ == []


def test_lengthscales_that_are_not_given_start_at_median_distances():
    X, y = data()
    model = SGPR(n_inducing=20, optimizer=None).fit(X, y)
    medians = [np.median(np.abs(np.subtract.outer(x, x))[np.triu_indices(300, 1)]) for x in X.T]
    np.testing.assert_allclose(model.kernel_.lengthscale, np.sqrt(3) * np.array(medians), rtol=0.05)


def test_training_on_some_blocks_leaves_the_posterior_that_of_all_rows():
    X, y = data()
    settings = {"n_inducing": 20, "block_rows": 30, "max_iter": 5}
    part = SGPR(train_blocks=3, **settings).fit(X, y)
    whole = SGPR(**settings).fit(X, y)
    assert part.kernel_ != whole.kernel_
    assert part.n_rows_ == 300
    rows = scaled(part, X, y)
    bound = oracle.titsias_bound(
        part.solved_.theta.kernel, rows.X, rows.y, part.solved_.theta.inputs, part.noise_variance_
    )
    assert part.objective_ == pytest.approx(bound, rel=1e-8)
    units = partition.alone(partition.blocks(300, None, 30))
    some = partition.sample(units, 3, np.random.default_rng(0))
    used = np.concatenate([np.arange(*unit.own) for unit in some])
    assert len(used) == 90
    assert part.history_[-1]["objective"] == pytest.approx(
        oracle.titsias_bound(
            part.solved_.theta.kernel,
            rows.X[used],
            rows.y[used],
            part.solved_.theta.inputs,
            part.noise_variance_,
        ),
        rel=1e-8,
    )
    every = SGPR(train_blocks=100, **settings).fit(X, y)
    assert every.objective_ == whole.objective_


@pytest.mark.parametrize("how", ["greedy", "kmeans", "random"])
def test_inducing_inputs_are_seeded_and_in_the_units_of_x(how):
    X, y = data()
    make = lambda seed: SGPR(n_inducing=25, inducing=how, optimizer=None, random_state=seed)  # noqa: E731
    first, again = make(0).fit(X, y), make(0).fit(X, y)
    assert first.inducing_.shape == (25, 3)
    np.testing.assert_array_equal(first.inducing_, again.inducing_)
    low, high = X.min(axis=0), X.max(axis=0)
    assert np.all((first.inducing_ >= low - 1e-9) & (first.inducing_ <= high + 1e-9))
    if how == "random":
        assert not np.array_equal(first.inducing_, make(1).fit(X, y).inducing_)


def test_fewer_distinct_rows_than_inducing_inputs_is_a_warning(caplog):
    X, y = np.tile(data(10)[0], (9, 1)), np.tile(data(10)[1], 9)
    model = SGPR(n_inducing=30, optimizer=None).fit(X, y)
    assert len(model.inducing_) == 10
    assert "10 of 30 inducing inputs are used" in caplog.text


# -- scikit-learn --------------------------------------------------------------------------

EVERY = {
    "kernel": "matern52(ard=true)",
    "n_inducing": 12,
    "inducing": "kmeans",
    "noise_variance": 0.3,
    "mean": "ols",
    "max_iter": 2,
    "block_rows": 70,
    "random_state": 3,
}


def test_parameters_can_be_set_and_unknown_ones_are_refused():
    model = SGPR().set_params(n_inducing=7, kernel=kernels.RBF())
    assert model.n_inducing == 7
    with pytest.raises(TypeError, match="n_inducin"):
        SGPR(n_inducin=3)
    with pytest.raises(ValueError, match="nothing"):
        model.set_params(nothing=1)


def test_before_a_fit_there_is_nothing_to_predict():
    for use in (
        lambda m: m.predict(np.ones((2, 3))),
        lambda m: m.sample_y(np.ones((2, 3))),
        lambda m: m.log_marginal_likelihood(),
        lambda m: m.save("memory://never.zarr"),
    ):
        with pytest.raises(NotFittedError):
            use(SGPR())


@pytest.mark.parametrize("number", [-1, 0, 1.5, True])
def test_draws_are_counted_by_whole_numbers(number):
    X = np.linspace(0, 1, 20)[:, None]
    model = daskgp.ExactGP(optimizer=None).fit(X, X[:, 0])
    with pytest.raises(SettingError, match=r"n_samples=.*: a whole number of at least 1"):
        model.sample_y(X, n_samples=number)


@pytest.mark.whole
@pytest.mark.parametrize("estimator", ESTIMATORS.values())
def test_every_setting_is_described_and_no_other(estimator):
    text = inspect.getdoc(estimator).partition("\nParameters\n")[2].partition("\nAttributes\n")[0]
    names = re.findall(r"^(\w[\w, ]*)(?: : .*)?$", text, re.MULTILINE)
    assert sorted(", ".join(names).split(", ")) == sorted(requirements.defaults(estimator))


SHARED = ("kernel_", "noise_variance_", "n_rows_", "objective_", "history_", "n_iter_")
FEATURES = ("n_features_in_", "feature_names_in_")


@pytest.mark.parametrize("estimator", ESTIMATORS.values())
def test_before_a_fit_nothing_is_learned(estimator):
    model = estimator()
    own = {name for name in dir(estimator) if name.endswith("_") and not name.startswith("_")}
    assert own >= {*SHARED, *FEATURES}
    for name in own:
        assert not hasattr(model, name)
        with pytest.raises(NotFittedError, match=f"{estimator.__name__} .*not fitted yet") as error:
            getattr(model, name)
        assert "\n" not in str(error.value)


def test_score_is_r_squared_of_numpy_and_dask():
    X, y = data()
    model = SGPR(**EVERY).fit(X, y)
    mean = model.predict(X)
    wanted = 1 - ((y - mean) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert 0.5 < wanted < 1
    assert model.score(X, y) == pytest.approx(wanted, rel=1e-10)
    lazy = da.from_array(X, chunks=(70, 3)), da.from_array(y, chunks=70)
    assert model.score(*lazy) == pytest.approx(wanted, rel=1e-10)
    assert model.score(lazy[0], y) == pytest.approx(wanted, rel=1e-10)
    column = SGPR(**EVERY).fit(X, y[:, None])
    for one, other in ((model, y[:, None]), (model, lazy[1][:, None]), (column, y)):
        assert one.score(lazy[0], other) == pytest.approx(wanted, rel=1e-10)
    with pytest.raises(InputError, match="2 targets, but the model was fitted with y alone: give"):
        model.score(X, np.stack([y, y], axis=1))
    with pytest.raises(
        InputError, match=f"y has 30 rows and X has {len(X)}: give both of the same"
    ):
        model.score(X, y[:30], sample_weight=2.0)


def test_score_takes_infinite_targets_of_rows_that_weigh_nothing_as_a_fit_does():
    X, y = data()
    wild, weight = np.r_[np.inf, y[1:]], np.r_[0.0, np.ones(len(y) - 1)]
    model = SGPR(**EVERY).fit(X, wild, sample_weight=weight)
    assert model.score(X, wild, sample_weight=weight) == pytest.approx(model.score(X[1:], y[1:]))
    with pytest.raises(InputError, match="target 'y' has 1 infinite value: remove the rows"):
        model.score(X, wild, sample_weight=weight + 1)


@pytest.mark.parametrize("chunked", [False, True])
def test_score_on_a_grid_is_that_of_its_points(chunked):
    lat, lon = np.linspace(-1, 1, 5), np.linspace(0, 3, 8)
    values = np.sin(lat)[:, None] * 3 + np.cos(lon) + np.random.default_rng(0).normal(size=(5, 8))
    y = xr.DataArray(values, dims=("lat", "lon"), coords={"lat": lat, "lon": lon}, name="temp")
    y = y.chunk({"lat": 2, "lon": 3}) if chunked else y
    model = SGPR(n_inducing=12, max_iter=2).fit(y, y)
    mean = np.asarray(model.predict(y))
    wanted = 1 - ((values - mean) ** 2).sum() / ((values - values.mean()) ** 2).sum()
    for other in (y, y.T, y.compute(), y.T.compute()):
        assert model.score(y, other) == pytest.approx(wanted, rel=1e-10)
        assert model.score(y.T, other) == pytest.approx(wanted, rel=1e-10)
    assert model.score(y, y.values) == pytest.approx(wanted, rel=1e-10)
    with pytest.raises(InputError, match="coordinate 'lat' of y differs"):
        model.score(y, y.isel(lat=slice(None, None, -1)))
    for wrong in (y.isel(lat=0), y.rename(lat="up"), y.isel(lat=slice(2)), y.values.T):
        with pytest.raises(InputError, match=r"y has|differs"):
            model.score(y, wrong)


def test_score_of_a_labelled_table_of_several_targets():
    X, y = data(p=2)
    model = SGPR(**EVERY).fit(X, y)
    table = xr.DataArray(X, dims=("row", "feature"))
    targets = xr.DataArray(y, dims=("row", "what"))
    wanted = model.score(X, y)
    for other in (targets, targets.T, targets.chunk({"row": 90}), y):
        assert model.score(table, other) == pytest.approx(wanted, rel=1e-10)


# -- plans and clusters --------------------------------------------------------------------


def test_a_plan_follows_from_the_sizes_alone():
    X, y = da.ones((10**7, 4), chunks=(10**6, 4)), da.ones(10**7, chunks=10**6)
    small = daskgp.plan(SGPR(n_inducing=100), np.ones((5000, 4)), np.ones(5000))
    assert (small.rows, small.block_rows, small.tasks) == (5000, 2048, 3)
    assert small.operations == pytest.approx(4 * 5000 * 100**2)
    larger = daskgp.plan(SGPR(n_inducing=200), np.ones((5000, 4)), np.ones(5000))
    assert larger.bytes_on_disk > 3 * small.bytes_on_disk
    with testing.no_compute():
        huge = daskgp.plan(SGPR(n_inducing=100), X, y)
    assert huge.rows == 10**7


def test_a_fit_that_cannot_fit_is_refused_before_it_starts():
    X, y = data()
    many = np.zeros((400_000, 1)), np.zeros(400_000)
    with pytest.raises(PlanError, match="use fewer rows or inducing inputs"):
        ExactGP(optimizer=None).fit(*many)
    assert SGPR(n_inducing=10, optimizer=None).fit(X, y).n_rows_ == 300


def test_an_embedded_client_is_used_and_closed_again():
    X, y = data(150)
    with daskgp.connect(n_workers=1, memory_limit="1GiB") as client:
        assert default_client() is client
        pids = list(client.run(os.getpid).values())
        near = SGPR(**EVERY).fit(X, y)
        assert client.run_on_scheduler(_keys) == []  # nothing is left on the workers
        assert client.run_on_scheduler(_graphs_noted) == 0
        assert not any(client.run(_profiles).values())
    assert client.status == "closed"
    with pytest.raises(ValueError, match="No clients"):
        default_client()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    np.testing.assert_array_equal(near.predict(X), SGPR(**EVERY).fit(X, y).predict(X))


def _keys(dask_scheduler):
    return [str(key) for key in dask_scheduler.tasks]


def _graphs_noted(dask_scheduler):
    return len(dask_scheduler.extensions["spans"].spans)


def _profiles(dask_worker):
    return "profile" in dask_worker.periodic_callbacks


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_plain_schedulers_give_the_same_bits(scheduler):
    X, y = data(150)
    lazy = da.from_array(X, chunks=(70, 3)), da.from_array(y, chunks=(70,))
    wanted = SGPR(**EVERY).fit(*lazy)
    with dask.config.set(scheduler=scheduler):
        found = SGPR(**EVERY).fit(*lazy)
    assert found.objective_ == wanted.objective_
    assert found.kernel_ == wanted.kernel_


def test_temporary_rows_are_removed_after_a_fit(tmp_path):
    X, y = data()
    lazy = da.from_array(X, chunks=(70, 3)), da.from_array(y, chunks=(70,))
    SGPR(**EVERY, store=str(tmp_path / "scratch")).fit(*lazy)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(InputError, match="constant"):
        SGPR(**EVERY, store=str(tmp_path / "scratch")).fit(lazy[0] * 0, lazy[1])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# -- what training must respect --------------------------------------------------------------


def test_bounds_follow_the_units_of_targets_that_are_not_standardised():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (400, 1))
    y = 1e3 * np.sin(X[:, 0]) + 100.0 * rng.standard_normal(400)
    model = SGPR(
        kernels.RBF(1.0, variance=5e5), n_inducing=30, noise_variance=1e4, standardize=False
    ).fit(X, y)
    assert model.noise_variance_ == pytest.approx(1e4, rel=0.3)
    assert model.kernel_.variance > 1e5


def test_a_start_outside_the_bounds_is_not_moved():
    X, y = data()
    settings = {"optimizer": "adam", "max_iter": 1, "noise_variance": 1e3}
    model = SGPR(KERNEL, n_inducing=20, **settings).fit(X, y)
    assert model.history_[0]["noise_variance"] == pytest.approx(1e3)


@pytest.mark.slow
def test_float32_fits_about_as_well_as_float64():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (2_000, 2))
    f = np.sin(2 * X.sum(axis=1))
    y = f + 0.03 * rng.standard_normal(2_000)
    errors = [
        np.sqrt(np.mean((SGPR("rbf()", n_inducing=150, dtype=t).fit(X, y).predict(X) - f) ** 2))
        for t in ("float64", "float32")
    ]
    assert errors[1] < 1.5 * errors[0] < 0.03


def test_random_state_may_be_none():
    X, y = data()
    model = SGPR(KERNEL, n_inducing=5, inducing="random", optimizer=None, random_state=None)
    assert model.fit(X, y).n_rows_ == len(X)


@pytest.mark.parametrize("make", ["SGPR", "LMA", "PIC", "ExpertsGP"])
def test_few_rows_take_no_setting(make, caplog):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 4, (60, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
    with caplog.at_level(logging.WARNING, "daskgp"):
        model = getattr(daskgp, make)().fit(X, y)
    assert np.abs(model.predict(X) - np.sin(X[:, 0])).mean() < 0.1
    assert not caplog.records
