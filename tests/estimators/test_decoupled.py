"""DecoupledGP and SVGP as estimators: rows of any kind, likelihoods, streams, stops, stores."""

import dataclasses
import logging
import os
import signal

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import dataset, rows
from distributed import Client, LocalCluster
from effective import effective
from fits import same_bits, zarr_rows
from logs import warnings_in
from quick import quick
from sklearn.base import clone

import daskgp
from daskgp import SGPR, SVGP, DecoupledGP, ExactGP, kernels, metrics, testing
from daskgp.assess.scores import scores
from daskgp.data.stores import checkpoints
from daskgp.errors import InputError, NumericalError, SettingError, StoreError
from daskgp.fit import by_batches, minibatches, subset, svi
from daskgp.fit.svi import Steps
from daskgp.runtime.executor import Executor
from daskgp.train.stochastic import Ascent, Stopped

N, STEP = 120, 30
SMALL = {"batch_rows": 32, "n_added": 12, "max_iter": 12, "block_rows": STEP, "progress": False}
WIDE = {"n_mean": 40, "n_covariance": 10, "n_subset": 60}
KINDS = {
    "decoupled": effective(DecoupledGP, **SMALL, **WIDE),
    "bound": effective(DecoupledGP, **SMALL, **WIDE, hyperparameters="bound"),
    "generalized": effective(
        DecoupledGP, **SMALL, **WIDE, basis="generalized", train_mean_points=True
    ),
    "direct": effective(
        DecoupledGP, **SMALL, **WIDE, parametrization="direct", hyperparameters="bound"
    ),
    "apart": effective(
        DecoupledGP, **SMALL, **WIDE, parametrization="direct", share=False, hyperparameters="bound"
    ),
    "jacobi": effective(DecoupledGP, **SMALL, **WIDE, precondition="jacobi"),
    "few columns": effective(DecoupledGP, **SMALL, **WIDE, n_columns=8, precondition=None),
    "stream": effective(DecoupledGP, **SMALL, **WIDE, inducing="stream"),
    "student-t": effective(DecoupledGP, **SMALL, **WIDE, likelihood="student-t"),
    "poisson": effective(DecoupledGP, **SMALL, **WIDE, likelihood="poisson"),
    "svgp": effective(SVGP, **SMALL, n_inducing=10),
    "adam": effective(SVGP, **SMALL, n_inducing=10, natural=None),
    "svgp stream": effective(SVGP, **SMALL, n_inducing=20, inducing="stream"),
    "bernoulli": effective(SVGP, **SMALL, n_inducing=10, likelihood="bernoulli"),
}
every = pytest.mark.parametrize("kind", KINDS)
most = pytest.mark.parametrize("kind", ["decoupled", "direct", "poisson", "svgp"])


def made(kind, **more):
    settings = KINDS[kind].get_params(deep=False) | more
    return effective(type(KINDS[kind]), **settings)


def targets(kind, y):
    """Targets that a likelihood can give."""
    likelihood = KINDS[kind].likelihood
    if likelihood == "poisson":
        return np.round(np.exp(y))
    return (y > 1.5).astype(float) if likelihood == "bernoulli" else y.copy()


def outcome(model, T):
    """All that a fit gives, in bits."""
    history = [{k: v for k, v in e.items() if k != "seconds"} for e in model.history_]
    bits = [np.asarray(a).tobytes() for a in model.predict(T, return_std=True)]
    state = [np.asarray(a).tobytes() for a in model.solved_.state]
    return model.objective_, model.kernel_, model.noise_variance_, history, state, bits


@pytest.fixture(scope="module")
def table():
    return rows(N, seed=5)


@pytest.fixture(scope="module")
def T():
    return rows(15, seed=1)[0]


@pytest.fixture
def lanes(monkeypatch):
    """Batches that two tasks work on."""
    monkeypatch.setattr(minibatches, "LANE_ROWS", 16)


def wiggles(n=600, seed=0):
    """A function of one input that many functions are needed for."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 1))
    return X, np.sin(9 * X[:, 0]) + 0.05 * rng.standard_normal(n)


# -- what is learned -------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2])
def test_a_full_natural_step_is_the_collapsed_bound(p, table, T):
    X, y = table
    y = np.column_stack([y, -2 * y + X[:, 0]]) if p == 2 else y
    kernel = kernels.Matern32((0.8, 0.9), variance=1.4)
    fixed = {"kernel": kernel, "optimizer": None, "inducing": X[::6]}
    wanted = SGPR(**fixed).fit(X, y)
    natural = {"batch_rows": N, "natural": 1.0, "max_iter": 2, "train_points": False}
    model = SVGP(**fixed, **natural).fit(X, y)
    assert model.history_[-1]["objective"] == pytest.approx(wanted.objective_, rel=1e-6)
    for a, b in zip(model.predict(T, True), wanted.predict(T, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        model.predict(T, return_cov=True)[1], wanted.predict(T, return_cov=True)[1], atol=1e-7
    )


def test_svgp_comes_near_the_bound_of_sgpr():
    X, y = rows(300, seed=5)
    made = SGPR(n_inducing=30)
    wanted, untrained = made.fit(X, y), clone(made).set_params(optimizer=None).fit(X, y)
    settings = {"n_inducing": 30, "batch_rows": 150, "max_iter": 150}
    there = {"kernel": wanted.kernel_, "noise_variance": wanted.noise_variance_}
    model = effective(SVGP, **settings, **there).fit(X, y)  # q from nothing, and all else goes on
    assert model.objective_ == pytest.approx(wanted.objective_, rel=0.01)
    model = effective(SVGP, **settings, learning_rate=0.1).fit(X, y)
    gap = wanted.objective_ - untrained.objective_
    assert gap > 200
    assert untrained.objective_ + 0.5 * gap < model.objective_ < wanted.objective_


@pytest.mark.slow
def test_many_functions_of_the_mean_say_more_than_few_of_the_covariance():
    X, y = wiggles()
    T, truth = wiggles(200, seed=1)
    few = SVGP(n_inducing=12, batch_rows=200, max_iter=80).fit(X, y)
    many = DecoupledGP(n_mean=150, n_covariance=12, batch_rows=200, max_iter=80).fit(X, y)
    errors = [metrics.nmse(truth, model.predict(T)) for model in (few, many)]
    assert errors[1] < 0.1 * errors[0]
    assert errors[1] < 0.05
    assert many.mean_points_.shape == (150, 1)
    assert many.covariance_points_.shape == (12, 1)
    assert few.inducing_.shape == (12, 1)


def test_with_as_many_functions_of_the_mean_as_of_the_covariance_it_is_svgp(table, T):
    settings = {**SMALL, "hyperparameters": "bound"}
    coupled = effective(SVGP, **settings, n_inducing=10).fit(*table)
    decoupled = effective(DecoupledGP, **settings, n_mean=10, n_covariance=10).fit(*table)
    assert outcome(decoupled, T) == outcome(coupled, T)


@every
def test_every_kind_learns(kind, table):
    X, y = table
    y = targets(kind, y)
    model = made(kind, max_iter=60).fit(X, y)
    assert model.score(X, y) > 0.85
    told = [entry["objective"] for entry in model.history_]
    assert kind == "few columns" or np.mean(told[-10:]) > np.mean(told[10:20])
    assert model.objective_ == pytest.approx(np.mean(told[-6:]))
    names = [*model.kernel_.parameter_names, *model.likelihood_.parameter_names]
    known = {"iteration", "evaluations", "objective", "gradient_norm", "seconds"}
    assert set(model.history_[-1]) == {*known, *names}
    assert model.history_[-1][names[0]] == pytest.approx(model.solved_.theta.kernel.variance)
    assert len(model.history_) == 60


@pytest.mark.parametrize("kind", ["decoupled", "bound", "svgp", "poisson"])
def test_hyper_parameters_are_kept_without_an_optimizer(kind, table):
    X, y = table
    kernel = kernels.Matern32((0.8, 0.9), variance=1.4)
    still = made(kind, optimizer=None, kernel=kernel, noise_variance=0.07)
    still.fit(X, targets(kind, y))
    assert still.kernel_.variance == pytest.approx(1.4, rel=1e-12)
    np.testing.assert_allclose(still.kernel_.lengthscale, (0.8, 0.9), rtol=1e-12)
    if kind != "poisson":
        assert still.noise_variance_ == pytest.approx(0.07, rel=1e-12)
    moved = made(kind, kernel=kernel, noise_variance=0.07).fit(X, targets(kind, y))
    assert abs(moved.kernel_.variance - 1.4) > 1e-3


def test_hyper_parameters_of_a_subset_are_those_of_its_evidence(table):
    X, y = table
    model = made("decoupled", n_subset=N).fit(X, y)
    exact = ExactGP(kernels.Matern32(ard=True)).fit(X, y)
    assert model.noise_variance_ == pytest.approx(exact.noise_variance_, rel=0.1)
    there = ExactGP(model.kernel_, noise_variance=model.noise_variance_, optimizer=None)
    assert there.fit(X, y).objective_ > exact.objective_ - 0.5
    assert len({entry["noise_variance"] for entry in model.history_}) == 1
    bound = made("bound").fit(X, y)
    assert len({entry["noise_variance"] for entry in bound.history_}) == 12


def test_a_subset_that_sees_no_noise_is_remarked_upon(caplog):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((300, 8))
    noise = 0.3 * rng.standard_normal(300)

    def warned(n_subset, y):
        caplog.clear()
        made("decoupled", n_subset=n_subset, max_iter=1).fit(X, y)
        return [r.getMessage() for r in caplog.records if "finds no noise" in r.getMessage()]

    assert warned(300, X.sum(1) + noise) == []
    (line,) = warned(90, X.sum(1))
    assert "the evidence of 90 rows" in line
    assert "choose a larger n_subset" in line


def test_points_stay_where_they_should(table):
    X, y = table
    place = {tuple(np.round(x, 9)) for x in X}

    def on_rows(points):
        return np.mean([tuple(np.round(point, 9)) in place for point in points])

    model = made("decoupled").fit(X, y)
    assert on_rows(model.mean_points_[10:]) == 1.0
    assert on_rows(model.covariance_points_) == 0.0
    np.testing.assert_array_equal(model.mean_points_[:10], model.covariance_points_)
    still = made("decoupled", train_points=False).fit(X, y)
    assert on_rows(still.mean_points_) == 1.0
    moving = made("decoupled", train_mean_points=True).fit(X, y)
    assert on_rows(moving.mean_points_) == 0.0
    chosen = made("svgp", train_points=False, inducing=X[:7]).fit(X, y)
    np.testing.assert_allclose(chosen.inducing_, X[:7])
    assert len(made("svgp", inducing=X[:7]).fit(X, y).inducing_) == 7


@pytest.mark.parametrize("kind", ["stream", "svgp stream", "apart"])
def test_functions_come_from_batches_until_there_are_enough(kind, table):
    X, y = table
    counts, sums = [], Steps.sums

    def watched(self, prepared, shares, step):
        own = prepared.parameters
        counts.append((len(own.root), len(own.weights)))
        return sums(self, prepared, shares, step)

    with pytest.MonkeyPatch.context() as during:
        during.setattr(Steps, "sums", watched)
        model = made(kind, max_iter=6, n_added=8).fit(X, y)
    wanted = {
        "stream": [(8, 8), (10, 16), (10, 24), (10, 30), (10, 30), (10, 30)],
        "svgp stream": [(8, 0), (16, 0), (20, 0), (20, 0), (20, 0), (20, 0)],
        "apart": [(10, 8), (10, 16), (10, 24), (10, 32), (10, 40), (10, 40)],
    }[kind]
    assert counts == wanted
    points = model.inducing_ if kind == "svgp stream" else model.mean_points_
    assert len(np.unique(np.round(points, 9), axis=0)) > 0.9 * len(points)


@pytest.mark.parametrize("kind", ["decoupled", "stream", "direct", "svgp stream"])
def test_rows_that_lie_on_one_another_are_one_function(kind, table):
    X, y = (np.repeat(a[:15], 8, axis=0) for a in table)
    model = made(kind, train_points=False, max_iter=30).fit(X, y)
    points = model.inducing_ if kind == "svgp stream" else model.mean_points_
    assert len(points) == len(np.unique(np.round(points, 9), axis=0)) == 15
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_few_rows_are_enough(n, table):
    X, y = table
    for model in (SVGP(n_inducing=1, max_iter=3), DecoupledGP(n_covariance=1, max_iter=3)):
        mean, std = model.fit(X[:n], y[:n]).predict(X[:3], return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()


@pytest.mark.parametrize("kind", ["decoupled", "poisson", "bernoulli"])
@pytest.mark.filterwarnings("ignore:nearly all places to predict are far")
def test_the_mean_function(kind, table):
    X, y = table
    y = targets(kind, y) + (50.0 if kind == "decoupled" else 0.0)
    far = np.full((1, 2), 1e3)
    away = {"zero": 0.0, "constant": y.mean()}
    if kind == "poisson":
        away = {"zero": 1.0, "constant": y.mean()}
    if kind == "bernoulli":
        away = {"zero": 0.5, "constant": y.mean()}
    for mean, wanted in away.items():
        # latent constants whose response is the mean of y, but for the prior's variance
        model = made(kind, mean=mean, kernel="rbf(variance=1e-4, lengthscale=0.5)", optimizer=None)
        found = model.fit(X, y).predict(far, include_noise=True)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)


def test_two_targets_share_what_is_learned(table, T):
    X, y = table
    both = np.column_stack([y, 100.0 - 3 * y])
    for kind in ("decoupled", "direct", "svgp"):
        model = made(kind).fit(X, both)
        mean, std = model.predict(T, return_std=True)
        assert mean.shape == std.shape == (15, 2)
        np.testing.assert_allclose(mean[:, 1], 100 - 3 * mean[:, 0], rtol=1e-6)
        np.testing.assert_allclose(std[:, 1], 3 * std[:, 0], rtol=1e-6)
        assert model.score(X, both) > 0.9
        assert model.sample_y(T[:3], 5).shape == (3, 2, 5)
    labels = (both > [1.5, 95]).astype(float)
    model = made("bernoulli", max_iter=40).fit(X, labels)
    assert model.score(X, labels) > 0.85
    with pytest.raises(SettingError, match="predict_proba is for one target"):
        model.predict_proba(X)


def test_bounds_follow_the_units_of_the_targets(table):
    X, y = table
    settings = {"standardize": False, "noise_variance": 100.0, "max_iter": 40}
    model = made("svgp", **settings, kernel="matern32(variance=1e4,ard=true)")
    model.fit(X, 1e3 * y + 500 * np.random.default_rng(0).standard_normal(N))
    assert model.noise_variance_ > 120.0  # 100 would be the most for targets of variance 1
    counts = np.round(np.exp(2 * y))
    wide = made("poisson", max_iter=40, hyperparameters="bound").fit(X, 100 * counts)
    assert wide.kernel_.variance != pytest.approx(1.0)


# -- rows of any kind ------------------------------------------------------------------------


@most
def test_rows_with_missing_values_are_left_out_with_one_warning(kind, table, caplog):
    X, y = table[0].copy(), targets(kind, table[1])
    X[5, 1], X[6], y[70] = np.nan, np.nan, np.nan
    model = made(kind).fit(X, y)
    assert warnings_in(caplog) == ["3 rows with missing values are left out"]
    caplog.clear()
    model.partial_fit(X[:6], y[:6])
    assert warnings_in(caplog) == ["1 row with missing values is left out"]


@pytest.mark.parametrize("kind", ["decoupled", "svgp"])
def test_chunks_of_one_row_and_one_of_all_do_as_well(kind, table):
    X, y = table[0], targets(kind, table[1])
    for block_rows in (1, 500):
        model = made(kind, block_rows=block_rows, max_iter=30).fit(X, y)
        assert model.score(X, y) > 0.9


def test_lazy_responses_compute_nothing_and_are_the_eager_ones(table, T):
    model = made("bernoulli").fit(table[0], targets("bernoulli", table[1]))
    wanted = model.predict(T, return_std=True, include_noise=True)
    for chunks in ((15, 2), (7, 2), (1, 1)):
        given = da.from_array(T, chunks=chunks)
        with testing.no_compute():
            lazy = model.predict(given, return_std=True, include_noise=True)
            proba = model.predict_proba(given)
        for a, b in zip(dask.compute(*lazy, scheduler="threads"), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
        np.testing.assert_allclose(proba.compute(), model.predict_proba(T), rtol=1e-9)


def test_probabilities_of_a_grid_are_along_classes(table):
    model = made("bernoulli").fit(table[0], targets("bernoulli", table[1]))
    axes = {"x0": np.linspace(0, 3, 4), "x1": np.linspace(0, 3, 6)}
    places = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, 2)
    grid = xr.Dataset({"z": (("x0", "x1"), da.zeros((4, 6), chunks=2))}, coords=axes)
    with testing.no_compute():
        found = model.predict_proba(grid)
    assert found.dims == ("x0", "x1", "class")
    assert found["class"].values.tolist() == [0, 1]
    np.testing.assert_allclose(found.values.reshape(-1, 2), model.predict_proba(places))


@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_scores_of_rows_of_any_kind(kind, table, tmp_path):
    X, y = table[0], targets(kind, table[1])
    model = made(kind).fit(X, y)
    wanted = model.score(X, y)
    mean = model.predict(X, include_noise=True)
    if kind == "bernoulli":
        assert wanted == pytest.approx(np.mean((mean > 0.5) == (y > 0.5)))
    else:
        assert wanted == pytest.approx(1 - metrics.nmse(y, mean))
    labelled = xr.DataArray(X, dims=("row", "feature"), coords={"feature": ["x0", "x1"]})
    stored = daskgp.open_dataset(dataset(tmp_path / "t.zarr", X, y, step=STEP))
    arrays = [zarr.create_array(tmp_path / f"{a.ndim}", data=a, chunks=a.shape) for a in (X, y)]
    holes = y.copy()
    holes[:40] = np.nan
    half = model.score(X[40:], y[40:])
    for given, score in (
        (stored, wanted),
        ((labelled, xr.DataArray(y, dims="row")), wanted),
        (arrays, wanted),
        ((X, holes), half),
        ((X, np.ma.masked_invalid(holes)), half),
    ):
        assert model.score(*given) == pytest.approx(score, rel=1e-9)


# -- wherever it runs ------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_killed_in_training_change_nothing(lanes, table, T, tmp_path, monkeypatch):
    given = daskgp.open_dataset(dataset(tmp_path / "t.zarr", *table, step=STEP))
    wanted = outcome(made("decoupled", max_iter=8).fit(*given), T)
    sums, killed = Steps.sums, []
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="600MiB", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):

        def deadly(self, prepared, shares, step):
            if step == 3 and not killed:
                killed.append(min(client.run(os.getpid).values()))
                os.kill(killed[-1], signal.SIGKILL)
            return sums(self, prepared, shares, step)

        monkeypatch.setattr(Steps, "sums", deadly)
        found = outcome(made("decoupled", max_iter=8).fit(*given), T)
    assert killed
    assert found == wanted


def test_seeds(table, T):
    X, y = table
    for kind in ("decoupled", "svgp"):
        first, again, other = (made(kind, random_state=s).fit(X, y) for s in (3, 3, 4))
        assert outcome(again, T) == outcome(first, T)
        assert not np.array_equal(other.predict(T), first.predict(T))
    free = [made("svgp", random_state=None).fit(X, y).predict(T) for _ in range(2)]
    assert not np.array_equal(*free)


def test_a_second_fit_forgets_the_first(table, T):
    X, y = table
    model = made("decoupled").partial_fit(*rows(50, seed=9)).fit(*rows(60, seed=8))
    assert outcome(model.fit(X, y), T) == outcome(made("decoupled").fit(X, y), T)
    model.partial_fit(X, y)  # nor does it go on with what an earlier stream had learned
    wanted = made("decoupled").fit(X, y).partial_fit(X, y)
    assert outcome(model, T) == outcome(wanted, T)


# -- rows that are held out ------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "said"), [(4, 1), (200, 0)])
def test_training_that_is_cut_off_before_scores_settle_says_so_once(steps, said, table, caplog):
    settings = {"validation": 0.25, "check_every": 2, "patience": 2, "learning_rate": 0.3}
    with caplog.at_level(logging.WARNING, "daskgp"):
        model = made("svgp", max_iter=steps, **settings).fit(*table)
    assert (len(model.history_) == steps) == bool(said)
    line = "before the score of held-out rows had stopped rising: raise max_iter"
    assert caplog.text.count(line) == said


@pytest.mark.parametrize("kind", ["decoupled", "svgp"])
def test_training_stops_early_on_rows_that_are_held_out(kind, table, monkeypatch):
    X, y = table
    seen, scored, exact = [], [], []
    sums, density, trained_on = Steps.sums, Steps.density, subset.trained_on

    def watched(self, prepared, shares, step):
        seen.append(self.inputs(shares))
        return sums(self, prepared, shares, step)

    def scoring(self, prepared, rows):
        scored.append(rows)
        return density(self, prepared, rows)

    def watching(theta, few, *more):
        exact.append(few.X)
        return trained_on(theta, few, *more)

    monkeypatch.setattr(Steps, "sums", watched)
    monkeypatch.setattr(Steps, "density", scoring)
    monkeypatch.setattr(subset, "trained_on", watching)
    settings = {"validation": 0.25, "check_every": 2, "patience": 2, "learning_rate": 0.3}
    model = made(kind, max_iter=200, n_subset=500, **settings).fit(X, y)
    assert len(model.history_) < 200
    scores = [e["validation"] for e in model.history_ if "validation" in e]
    assert len(scores) == len(model.history_) // 2
    assert max(scores) == scores[-3]  # two more brought nothing
    held = {tuple(x) for x in scored[0].X}
    assert len(held) == 30
    trained = {tuple(x) for part in seen for x in part}
    assert len(trained) == 90
    assert not trained & held
    assert len(exact) == (kind == "decoupled")
    for part in exact:
        assert {tuple(x) for x in part} == trained
    assert model.n_rows_ == N
    # the best is taken, whose score it is
    own = model.solved_
    left = np.array(sorted(held)) * own.scaling.x_scale + own.scaling.x_shift
    order = np.argsort([tuple(x) for x in scored[0].X], axis=0)[:, 0]
    mean, std = model.predict(left, return_std=True, include_noise=True)
    y_held = scored[0].y[order, 0] * own.scaling.y_scale + own.scaling.intercept
    unit = np.log(own.scaling.y_scale).item()
    assert -metrics.nlpd(y_held, mean, std**2) + unit == pytest.approx(max(scores), rel=1e-6)


def test_patience_that_is_long_enough_changes_nothing_but_the_choice(table, T):
    model = made("svgp", validation=0.2, check_every=5, patience=50).fit(*table)
    assert len(model.history_) == 12
    assert ["validation" in e for e in model.history_] == [(i + 1) % 5 == 0 for i in range(12)]


# -- likelihoods -----------------------------------------------------------------------------


def test_a_student_t_is_not_swayed_by_outliers():
    X, y = rows(400, seed=2)
    T, truth = rows(200, seed=3)
    rng = np.random.default_rng(0)
    wild = rng.uniform(size=400) < 0.1
    dirty = np.where(wild, y + 8 * rng.standard_normal(400), y)
    settings = {"n_inducing": 20, "batch_rows": 200, "max_iter": 100, "learning_rate": 0.05}
    scores = {}
    for likelihood in ("gaussian", "student-t"):
        model = effective(SVGP, **settings, likelihood=likelihood).fit(X, dirty)
        own, scale = model.likelihood_, model.solved_.scaling.y_scale.item()
        mean, std = model.predict(T, return_std=True)
        args = truth / scale, mean / scale, (std / scale) ** 2, own
        scores[likelihood] = metrics.nlpd(*args) + np.log(scale), metrics.rmse(truth, mean)
    assert scores["student-t"][0] < scores["gaussian"][0] - 0.3
    assert scores["student-t"][1] < scores["gaussian"][1]


@pytest.mark.parametrize("link", ["bernoulli", "bernoulli-logit"])
def test_probabilities_are_calibrated(link):
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 3, (2_000, 1))
    truth = 0.5 + 0.45 * np.sin(2 * X[:, 0])
    y = (rng.uniform(size=2_000) < truth).astype(float)
    model = SVGP(n_inducing=15, likelihood=link, batch_rows=500, max_iter=80)
    model.fit(X[:1_000], y[:1_000])
    proba = model.predict_proba(X)
    assert proba.shape == (2_000, 2)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(proba[:, 1], truth, atol=0.15)
    bins = np.array_split(np.argsort(proba[1_000:, 1]), 5)
    for few in bins:  # shares of ones among 200 rows that were not seen
        assert abs(y[1_000:][few].mean() - proba[1_000:, 1][few].mean()) < 0.11


def test_latent_and_response_of_a_bernoulli(table, T):
    model = made("bernoulli", max_iter=30).fit(table[0], targets("bernoulli", table[1]))
    f, f_std = model.predict(T, return_std=True)
    one, std = model.predict(T, return_std=True, include_noise=True)
    same_bits([one], [model.predict_proba(T)[:, 1]])
    same_bits([one], [model.predict(T, include_noise=True)])
    np.testing.assert_allclose(std**2, one * (1 - one), rtol=1e-9)
    draws = np.random.default_rng(0).standard_normal((4_000, 1)) * f_std + f
    from scipy.special import ndtr

    np.testing.assert_allclose(one, ndtr(draws).mean(axis=0), atol=0.02)
    assert f.min() < 0 < f.max()
    with pytest.raises(SettingError, match="a joint covariance of new observations"):
        model.predict(T, return_cov=True, include_noise=True)
    assert model.predict(T, return_cov=True)[1].shape == (15, 15)


def test_the_response_of_a_poisson_is_the_rate():
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 3, (800, 1))
    rate = np.exp(1.5 + np.sin(2 * X[:, 0]))
    y = rng.poisson(rate).astype(float)
    for model in (
        SVGP(n_inducing=15, likelihood="poisson", batch_rows=400, max_iter=80),
        DecoupledGP(n_mean=60, n_covariance=15, likelihood="poisson", batch_rows=400, max_iter=80),
    ):
        mean, std = model.fit(X, y).predict(X, return_std=True, include_noise=True)
        assert np.mean(np.abs(mean / rate - 1)) < 0.1
        f, f_std = model.predict(X, return_std=True)
        np.testing.assert_allclose(mean, np.exp(f + 0.5 * f_std**2), rtol=1e-9)
        np.testing.assert_allclose(std**2, mean + mean**2 * np.expm1(f_std**2), rtol=1e-9)
        constant = SVGP(n_inducing=1, likelihood="poisson", max_iter=5).fit(X, y)
        scores = [metrics.nlpd(y, *_latent(m, X), m.likelihood_) for m in (model, constant)]
        assert scores[0] < scores[1] - 0.2


def _latent(model, X):
    mean, std = model.predict(X, return_std=True)
    return mean, std**2


def test_labels_may_be_truth_values_and_whole_numbers(table, T):
    X, y = table
    labels = targets("bernoulli", y)
    wanted = outcome(made("bernoulli").fit(X, labels), T)
    for kind in (bool, np.int8, np.float32):
        assert outcome(made("bernoulli").fit(X, labels.astype(kind)), T) == wanted


# -- streams of rows -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", quick(2, ["decoupled", "stream", "direct", "svgp", "poisson", "bernoulli"])
)
def test_a_stream_of_small_batches_comes_near_a_fit(kind):
    X, y = rows(320, seed=5)
    y = targets(kind, y)
    T, truth = rows(100, seed=6)
    truth = targets(kind, truth)
    model = made(kind)
    for i in range(0, 320, 8):  # the first has fewer rows than there are functions
        assert model.partial_fit(X[i : i + 8], y[i : i + 8]) is model
    whole = made(kind, max_iter=40).fit(X, y)
    assert model.score(T, truth) > whole.score(T, truth) - 0.1
    assert len(model.covariance_points_ if hasattr(model, "n_mean") else model.inducing_) == 10
    if hasattr(model, "n_mean"):
        assert len(model.mean_points_) == 40
    assert model.n_rows_ == 320
    assert [e["iteration"] for e in model.history_] == [*range(1, 41)]
    names = model.kernel_.parameter_names
    assert len({entry[names[0]] for entry in model.history_}) > 20  # hyper-parameters follow
    assert model.log_marginal_likelihood() > -np.inf


def test_one_pass_is_made_over_the_rows_of_a_call(table):
    X, y = table
    model = made("svgp").partial_fit(X, y)
    assert len(model.history_) == 4  # batches of at most 32 of 120 rows
    model.partial_fit(X[:33], y[:33])
    assert len(model.history_) == 6
    assert model.n_rows_ == 153
    lazy = [da.from_array(a, chunks=40) for a in (X, y)]
    again = made("svgp").partial_fit(*lazy).partial_fit(*(2 * a[:33] / 2 for a in lazy))
    same_bits([again.predict(X)], [model.predict(X)])


def test_a_stream_goes_on_after_a_fit(table, T):
    X, y = table
    for settings in ({}, {"validation": 0.2, "check_every": 2, "patience": 2, "max_iter": 50}):
        for kind in ("decoupled", "svgp"):
            model = made(kind, **settings).fit(X, y)
            before, steps = model.predict(T), len(model.history_)
            for _ in range(4):
                model.partial_fit(X, y + 3.0)
            assert len(model.history_) == steps + 16
            assert np.mean(model.predict(T) - before) > 0.25
            assert model.n_rows_ == 5 * N


@pytest.mark.slow
def test_a_stream_outweighs_the_average_of_a_fit(table, T, monkeypatch):
    monkeypatch.setattr(by_batches, "AVERAGE_FROM", 4)
    X, y = table
    model = made("svgp", max_iter=200).fit(X, y)
    twin, before = made("svgp", max_iter=200, average=False).fit(X, y), model.predict(T)
    for _ in range(4):
        twin.partial_fit(X, y + 1.0)
        model.partial_fit(X, y + 1.0)
    assert model._fitted.left.run.averaged == 16
    assert np.mean(model.predict(T) - before) > 0.5 * np.mean(twin.predict(T) - before) > 0.1


def test_the_bound_of_a_stream_is_that_of_its_own_steps(table):
    X, y = table
    model = made("svgp", max_iter=100).fit(X, y)
    model.partial_fit(np.concatenate([X, X]), np.concatenate([y, y]))
    bounds = [entry["objective"] for entry in model.history_]
    assert model.n_rows_ == 3 * N
    assert model.objective_ == pytest.approx(np.mean(bounds[100:]), rel=1e-12)


def test_a_streamed_model_learns_its_kernel_after_a_load_too(table, tmp_path):
    X, y = table
    model = made("decoupled").partial_fit(X, y)
    model.save(tmp_path / "m.zarr")
    found, old = daskgp.load(tmp_path / "m.zarr"), np.array(model.kernel_.log_parameters)
    assert np.abs(found.partial_fit(X, y).kernel_.log_parameters - old).max() > 1e-4
    fitted = made("decoupled").fit(X, y)
    fitted.save(tmp_path / "f.zarr")
    again, old = daskgp.load(tmp_path / "f.zarr"), np.array(fitted.kernel_.log_parameters)
    np.testing.assert_array_equal(again.partial_fit(X, y).kernel_.log_parameters, old)


def test_an_interrupted_stream_leaves_the_model_as_it_was(table, T, monkeypatch):
    X, y = table
    model = made("svgp").fit(X, y)
    twin, wanted = made("svgp").fit(X, y), outcome(model, T)
    advance, calls = svi.Learning.advance, []

    def interrupted(self, parameters, step):
        calls.append(step)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(self, parameters, step)

    monkeypatch.setattr(svi.Learning, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X, y)
    assert outcome(model, T) == wanted
    assert outcome(model.partial_fit(X, y), T) == outcome(twin.partial_fit(X, y), T)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_labels_that_cannot_be_observed_are_not_scored(likelihood, lazy, table):
    X, y = table[0], np.round(np.abs(table[1])).clip(0, 1)
    model = made("bernoulli", likelihood=likelihood).fit(X, y)
    wrong = np.where(np.arange(N) < 3, -1.0, y)
    given = (da.from_array(X, 40), da.from_array(wrong, 40)) if lazy else (X, wrong)
    assert np.isfinite(model.score(X, y))
    with pytest.raises(
        InputError, match=f"3 targets .* the {likelihood} likelihood takes only|whole"
    ):
        model.score(*given)
    with pytest.raises(InputError, match="y has type <U1 and holds"):
        model.score(X, ["a"] * N)


def test_training_that_ends_at_its_limits_is_remarked_upon(table, caplog):
    X, y = table
    made("svgp", max_iter=40, average=False).fit(X, y)
    assert "learning_rate" not in caplog.text
    made("svgp", max_iter=40, learning_rate=1e4).fit(X, y)
    (line,) = [r.getMessage() for r in caplog.records if "learning_rate" in r.getMessage()]
    assert "lengthscale" in line


def test_rows_that_a_stream_did_not_learn_from_are_not_counted(table, monkeypatch):
    X, y = table
    model = made("svgp").fit(X, y)
    advance, calls = svi.Learning.advance, []

    def failing(self, parameters, step):
        calls.append(step)
        if len(calls) == 3:
            raise NumericalError("the gradient by root is not finite")
        return advance(self, parameters, step)

    monkeypatch.setattr(svi.Learning, "advance", failing)
    with pytest.raises(Stopped, match="step 15"):
        model.partial_fit(X, y)
    kept = len(model.history_) - 12
    assert model.n_rows_ == N + 30 * kept


def test_hyper_parameters_stay_in_a_stream_without_an_optimizer(table):
    X, y = table
    model = made("decoupled", optimizer=None, kernel="rbf(0.7)", noise_variance=0.2)
    model.partial_fit(X, y).partial_fit(X, y)
    assert model.kernel_.lengthscale == pytest.approx(0.7)
    assert model.noise_variance_ == pytest.approx(0.2)


def test_other_columns_and_rows_that_say_nothing_are_refused(table):
    X, y = table
    model = made("svgp").partial_fit(pd.DataFrame(X, columns=["lon", "lat"]), y)
    before = model.predict(X)
    for given, says in (
        (
            (X[:, :1], y),
            "X has 1 features, but decoupled is expecting 2 features",
        ),
        ((pd.DataFrame(X, columns=["lat", "lon"]), y), "X has feature 'lat' where the model was"),
        ((X, np.column_stack([y, y])), "y has 2 targets, but the model was fitted with 1: give y"),
        ((X * np.nan, y), "no usable rows: all 120 rows have a missing value"),
        ((X, y + np.inf), "target 'y' has 120 infinite values"),
        ((X - 1e200, y), "feature 'lon' has values of up to 1e+200 in size"),
        ((X, y + 9e99), "times its scale, which cannot be squared in float64"),
        ((X[:0], y[:0]), "no rows"),
    ):
        with pytest.raises(InputError) as error:
            model.partial_fit(*given)
        assert says in str(error.value)
        assert "\n" not in str(error.value)
    same_bits([model.predict(X)], [before])
    model.partial_fit(X[:1].repeat(5, axis=0), y[:5])  # constant columns, once units are known
    labels = targets("bernoulli", y)
    model = made("bernoulli").partial_fit(X, labels)
    with pytest.raises(InputError, match="takes only 0 and 1"):
        model.partial_fit(X, 3 * labels)


# -- stores ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    ["generalized", "apart", "student-t", "svgp stream", "bernoulli"],
)
def test_a_saved_model_predicts_the_same_and_goes_on_learning(kind, table, T, tmp_path):
    X, y = table[0], targets(kind, table[1])
    model = made(kind).fit(X, y)
    model.save(tmp_path / "m.zarr")
    found = daskgp.load(tmp_path / "m.zarr")
    assert type(found) is type(model)
    assert found.get_params() == model.get_params()
    assert outcome(found, T) == outcome(model, T)
    for _ in range(2):
        found.partial_fit(X, y)
        model.partial_fit(X, y)
    # the moments of Adam are not kept, the way is much the same
    np.testing.assert_allclose(found.predict(T), model.predict(T), atol=0.4 * np.std(y))
    assert found.score(X, y) > model.score(X, y) - 0.1
    assert [e["iteration"] for e in found.history_] == [e["iteration"] for e in model.history_]
    # the entries are made again of the rows of a run, whose scales are logarithms
    stored = daskgp.load(tmp_path / "m.zarr").history_
    assert found.history_[:12] == [pytest.approx(entry, rel=1e-14) for entry in stored]
    found.save(tmp_path / "again.zarr")
    assert outcome(daskgp.load(tmp_path / "again.zarr"), T) == outcome(found, T)


@pytest.mark.parametrize("kind", ["decoupled", "bernoulli", "poisson"])
def test_prediction_stores_hold_the_response(kind, table, tmp_path):
    X, y = table[0], targets(kind, table[1])
    model = made(kind).fit(X, y)
    inputs, out = dataset(tmp_path / "in.zarr", X, y, step=50), str(tmp_path / "p.zarr")
    assert model.predict_store(inputs, out) == (N, 0)
    mean, std = model.predict(X, return_std=True, include_noise=True)
    store = zarr.open_group(out, mode="r")
    np.testing.assert_allclose(store["mean"][...], mean, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(store["variance"][...]), std, rtol=1e-9)


# -- stopped and going on --------------------------------------------------------------------


class Halted(Exception):
    """Stands for a kill."""


@pytest.fixture
def calls(monkeypatch):
    """Counts steps, of which ``stop`` may be made; a run is kept every five."""
    counter, sums, ascent = {"made": 0, "stop": None}, Steps.sums, by_batches.Bound.ascent

    def counted(self, prepared, shares, step):
        if counter["made"] == counter["stop"]:
            raise Halted
        counter["made"] += 1
        return sums(self, prepared, shares, step)

    def often(*arguments):
        return dataclasses.replace(ascent(*arguments), keep_every=5)

    monkeypatch.setattr(Steps, "sums", counted)
    monkeypatch.setattr(by_batches.Bound, "ascent", often)
    monkeypatch.setattr(svi, "REFRESH", 5)
    return counter


RUNS = {
    "growing": ("decoupled", {"n_added": 3}),  # for ten steps
    "groups": ("decoupled", {"max_iter": 18}),
    "validated": ("decoupled", {"validation": 0.2, "check_every": 2, "patience": 20}),
    "direct": ("direct", {"n_added": 5, "precondition": "jacobi"}),
    "svgp stream": ("svgp stream", {"n_added": 2}),
    "bernoulli": ("bernoulli", {}),
}


@pytest.mark.parametrize("name", quick(2, RUNS))
@pytest.mark.slow
def test_a_stopped_fit_goes_on_and_ends_with_the_same_bits(
    name, lanes, table, T, tmp_path, calls, monkeypatch
):
    kind, settings = RUNS[name]
    monkeypatch.setattr(svi, "GROUP", 8)
    X, y = table[0], targets(kind, table[1])
    whole = made(kind, **settings).fit(X, y)
    wanted = calls["made"]
    for stop in (7, wanted - 1):
        url = str(tmp_path / f"checkpoint-{stop}")
        calls.update(made=0, stop=stop)
        with pytest.raises(Halted):
            made(kind, **settings).fit(X, y, checkpoint=url)
        calls.update(made=0, stop=None)
        resumed = made(kind, **settings).fit(X, y, checkpoint=url)
        assert calls["made"] == wanted - 5 * (stop // 5)
        assert outcome(resumed, T) == outcome(whole, T)
        assert resumed.n_rows_ == whole.n_rows_


def test_runs_are_kept_where_coordinates_are_made_anew():
    (every,) = (f.default for f in dataclasses.fields(Ascent) if f.name == "keep_every")
    assert every % svi.REFRESH == 0  # they are made of what is kept


def test_more_steps_go_on_where_fewer_ended(table, T, tmp_path, calls):
    url = str(tmp_path / "checkpoint")
    made("decoupled").fit(*table, checkpoint=url)
    calls.update(made=0)
    longer = made("decoupled", max_iter=23).fit(*table, checkpoint=url)
    assert calls["made"] == 13
    assert outcome(longer, T) == outcome(made("decoupled", max_iter=23).fit(*table), T)


def test_a_run_of_any_seed_goes_on_with_its_own(table, T, tmp_path, calls):
    url = str(tmp_path / "checkpoint")
    settings = {"random_state": None, "validation": 0.2, "check_every": 2}
    whole = made("svgp", **settings).fit(*table, checkpoint=url)
    resumed = made("svgp", **settings).fit(*table, checkpoint=url)
    assert calls["made"] == 12 + 2
    assert outcome(resumed, T) == outcome(whole, T)


def test_a_slot_that_was_half_written_is_passed_over(table, T, tmp_path, calls):
    url = tmp_path / "checkpoint"
    whole = made("svgp", max_iter=17).fit(*table, checkpoint=str(url))
    slots = {name: zarr.open_group(url / name) for name in checkpoints.SLOTS}
    steps = {name: slot.attrs[checkpoints.STEP] for name, slot in slots.items()}
    assert sorted(steps.values()) == [10, 15]
    del zarr.open_group(url / max(steps, key=steps.get), mode="r+").attrs[checkpoints.STEP]
    calls.update(made=0)
    resumed = made("svgp", max_iter=17).fit(*table, checkpoint=str(url))
    assert calls["made"] == 7
    assert outcome(resumed, T) == outcome(whole, T)


@pytest.mark.parametrize(
    "other",
    [
        {"n_covariance": 9},
        {"learning_rate": 0.03},
        {"random_state": 1},
        {"likelihood": "student-t"},
        {"batch_rows": 31},
        {"validation": 0.1, "check_every": 4},
        "data",
        "estimator",
    ],
)
def test_a_checkpoint_of_another_run_is_refused(other, table, tmp_path, calls):
    (X, y), url = table, str(tmp_path / "checkpoint")
    made("decoupled", max_iter=5).fit(X, y, checkpoint=url)
    model = made("decoupled", **(other if isinstance(other, dict) else {}))
    model = made("svgp") if other == "estimator" else model
    with pytest.raises(StoreError, match="belongs to other data or settings: remove it") as error:
        model.fit(X, y + (other == "data"), checkpoint=url)
    named = {"data": "data", "estimator": "n_inducing"}.get(str(other)) or next(iter(other))
    assert named in str(error.value).partition("(")[2].partition(")")[0]
    assert "\n" not in str(error.value)
    assert not hasattr(model, "solved_")


def test_fewer_steps_than_a_checkpoint_has_are_refused(table, tmp_path):
    url = str(tmp_path / "checkpoint")
    made("svgp", max_iter=100).fit(*table, checkpoint=url)
    with pytest.raises(SettingError, match="max_iter=99: the checkpoint is 100 steps on"):
        made("svgp", max_iter=99).fit(*table, checkpoint=url)


def test_a_model_store_is_no_checkpoint(table, tmp_path):
    url = str(tmp_path / "m.zarr")
    made("svgp").fit(*table).save(url)
    with pytest.raises(StoreError, match="is not a checkpoint: choose another place"):
        made("svgp").fit(*table, checkpoint=url)
    daskgp.load(url)


# -- numbers that are not finite -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bound", "direct", "svgp", "adam", "poisson", "student-t"])
def test_steps_that_are_far_too_long_leave_the_last_good_one(kind, table, T):
    X, y = table[0], targets(kind, table[1])
    model = made(kind, learning_rate=1e200)
    with pytest.raises(Stopped, match=r"^step \d+: .*training stopped") as error:
        model.fit(X, y)
    assert "\n" not in str(error.value)
    good = len(model.history_)
    assert good == error.value.run.step
    with np.errstate(over="ignore"):  # inputs may have moved that far
        mean, std = model.predict(T, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    if good:
        with np.errstate(over="ignore"):
            wanted = made(kind, learning_rate=1e200, max_iter=good).fit(X, y)
            same_bits((mean, std), wanted.predict(T, True))
        assert model.objective_ == wanted.objective_
    assert model.n_rows_ == N


@pytest.mark.parametrize("name", ["kernel", "covariance_points", "weights", "likelihood"])
def test_a_gradient_that_is_no_number_is_named(name, table, T, tmp_path, monkeypatch):
    X, y = table
    sums = Steps.sums

    def broken(self, prepared, shares, step):
        found = sums(self, prepared, shares, step)
        if step < 7:
            return found
        part = getattr(found.gradient, name).copy()
        part.flat[0] = np.nan
        return found._replace(gradient=found.gradient._replace(**{name: part}))

    monkeypatch.setattr(Steps, "sums", broken)
    model = made("bound")
    says = rf"step 8: the gradient by {name} is not finite; training stopped and the estimator"
    with pytest.raises(Stopped, match=says):
        model.fit(X, y)
    monkeypatch.undo()
    wanted = made("bound", max_iter=6).fit(X, y)
    assert outcome(model, T) == outcome(wanted, T)
    model.save(tmp_path / "m.zarr")
    assert outcome(daskgp.load(tmp_path / "m.zarr"), T) == outcome(wanted, T)
    model.partial_fit(X, y)  # and can go on
    assert len(model.history_) == 10


# -- scores and places -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bernoulli", "student-t", "poisson"])
def test_scores_have_the_density_of_the_likelihood_and_none_of_a_gaussian(kind, table, tmp_path):
    X, y = table[0], targets(kind, table[1])
    model = made(kind).fit(X, y)
    found = scores(model.solved_, *zarr_rows(tmp_path / "t.zarr", X, y), Executor.current())
    mean = model.predict(X, include_noise=True)
    assert found["rmse"] == pytest.approx(metrics.rmse(y, mean), rel=1e-8)
    scale = model.solved_.scaling.y_scale.item()
    f, variance = _latent(model, X)
    density = metrics.nlpd(y / scale, f / scale, variance / scale**2, model.likelihood_)
    assert found["nlpd"] == pytest.approx(density + np.log(scale), rel=1e-8)
    assert not {"coverage_95", "interval_score_95"} & set(found)
    assert ("crps" in found) == (kind != "bernoulli")


def test_a_file_in_the_place_of_a_checkpoint_is_refused_before_any_step(table, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    for model in (made("svgp"), SGPR(n_inducing=5, max_iter=2)):
        with pytest.raises(StoreError, match=r"notes.txt is a file: choose another path"):
            model.fit(*table, checkpoint=str(file))
    assert file.read_text() == "mine"


def test_ordered_classes_are_counted_by_the_first_rows(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 1))
    y = np.arange(80) % 4.0
    settings = {"likelihood": "ordinal", "n_inducing": 5, "max_iter": 3, "progress": False}
    for name in ("fit", "partial_fit"):
        model = getattr(SVGP(**settings), name)(X, y)
        assert model.likelihood_.n_classes == 4
        model.save(tmp_path / name)
        loaded = daskgp.load(tmp_path / name)
        assert loaded.likelihood_ == model.likelihood_
        mean = model.predict(X, include_noise=True)
        assert ((mean > 0) & (mean < 3)).all()
