"""Training ends at the optimum, whatever the start, and says how sure it is."""

import logging
import pickle
import re
import time

import numpy as np
import pytest
import xarray as xr
from logs import warnings_in
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import make_friedman1

import daskgp
from daskgp import kernels, train
from daskgp.data import partition, rows_of
from daskgp.data.blocks import sampling
from daskgp.errors import SettingError
from daskgp.estimators import ESTIMATORS
from daskgp.fit import conditionals, hyperparameters, rounds, subset
from daskgp.fit.arrange import Blocks
from daskgp.kernels.compose import redundant
from daskgp.models import scaling
from daskgp.models.markov.earlier import ranks
from daskgp.models.markov.lma import LMA as LowRankMarkov
from daskgp.models.values import Block, Theta
from daskgp.runtime.executor import Executor
from daskgp.train import callbacks, optimizers
from tests.contract import cases
from tests.effective import effective


def simulated(kernel, n=400, noise=0.05, d=2, seed=0, X=None):
    """Rows of a field whose kernel and noise variance are known."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 4, (n, d)) if X is None else X
    C = kernel(X) + noise * np.eye(len(X))
    return X, np.linalg.cholesky(C) @ rng.standard_normal(len(X))


def best_evidence(kernel, X, y, starts):
    """The largest exact log evidence, of runs of SciPy's L-BFGS from several starts."""
    evaluate = subset.evidence(Block(X, y[:, None]), Theta(kernel, 0.1))

    def loss(vector):
        value, gradient = evaluate(vector)
        return -value, -gradient

    bounds = [(np.log(1e-4), np.log(1e4))] * (len(kernel.parameter_names) + 1)
    runs = [
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14})
        for start in starts
    ]
    return -min(run.fun for run in runs)


@pytest.mark.parametrize("of", [kernels.Matern12, kernels.Matern32, kernels.RBF])
@pytest.mark.parametrize("noise", [1e-3, 0.3])
def test_training_arrives_within_its_tolerance_of_the_optimum(of, noise):
    X, y = simulated(of(0.7, 2.0), 250, noise)
    model = daskgp.ExactGP(of(), standardize=False, mean="zero").fit(X, y)
    starts = [np.log([1.0, scale, 0.1]) for scale in (0.1, 0.7, 3.0)]
    best = best_evidence(of(1.0), X, y, starts)
    assert model.objective_ > best - 2 * 3 * 0.1  # the prediction is that of a parabola
    assert model.history_[-1]["predicted_gain"] < 3 * 0.1


SIZES = {
    "n_support": 20,
    "block_rows": 50,
    "train_blocks": None,
    "n_inducing": 60,
    "n_spectral": 40,
    "level": 3,
    "n_experts": 3,
    "expert": "exact",
}
"""Settings that make a method small, whichever has them."""
SEARCHING = cases.STEPPED | cases.UNTRAINED | set(cases.those(lambda n: cases.has(n, "actions")))
"""Methods that take steps, whose ends no tolerance tells."""


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in SEARCHING])
def test_every_method_ends_where_a_tighter_tolerance_ends(name):
    X, y = simulated(kernels.Matern32(0.8), 300, 0.1)
    kind = ESTIMATORS[name]
    sizes = cases.sized(kind, SIZES)
    found = effective(kind, **sizes).fit(X, y)
    tight = effective(kind, **sizes, tol=1e-6, max_iter=300).fit(X, y)
    k = len(found.kernel_.parameter_names) + 1
    assert found.objective_ > tight.objective_ - 2 * 0.1 * k


def test_a_default_kernel_has_the_smoothness_of_the_field():
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 4, (300, 2))
    for of in (kernels.Matern12, kernels.Matern52):
        X, y = simulated(of(1.0), noise=1e-4, X=X)
        model = daskgp.ExactGP(max_iter=1).fit(X, y)
        assert type(model.kernel_) is of


def test_a_start_at_median_distances_is_left_where_the_field_is_rougher():
    X, y = simulated(kernels.Matern32(0.05), 600, 0.05, d=1)
    model = daskgp.ExactGP(kernels.Matern32(), standardize=False).fit(X, y)
    assert 0.03 < model.kernel_.lengthscale < 0.09
    assert model.noise_variance_ < 0.15


def test_given_lengthscales_are_where_training_starts(monkeypatch):
    X, y = simulated(kernels.Matern32(0.8), 200)
    monkeypatch.setattr(subset, "search", None)  # it would fail
    kernel = kernels.Matern32(2.0, 0.5)
    model = daskgp.ExactGP(kernel, max_iter=2, noise_variance=0.3).fit(X, y)
    first, scale = model.history_[0], model.solved_.scaling
    assert first["lengthscale"] * scale.x_scale[0] == pytest.approx(2.0)
    assert first["variance"] * scale.y_scale[0] ** 2 == pytest.approx(0.5)
    assert first["noise_variance"] == pytest.approx(0.3)


def test_a_lengthscale_that_is_given_beside_an_open_one_is_where_training_starts():
    X, y = simulated(kernels.Matern32((0.3, 3.0)), 200)
    kernel = kernels.Matern32(2.0, active_dims=(0,)) * kernels.Matern32(active_dims=(1,))
    settings = {"standardize": False, "mean": "zero", "max_iter": 2}
    model = daskgp.ExactGP(kernel + kernels.Periodic(0.7, 5.0), **settings).fit(X, y)
    first = model.history_[0]
    names = ("0.0.lengthscale", "1.lengthscale", "1.period")
    assert [first[name] for name in names] == pytest.approx([2.0, 0.7, 5.0])
    assert model.history_[-1]["0.0.lengthscale"] < 1.5  # training moves it


@pytest.mark.parametrize("optimizer", ["trust-region", "l-bfgs", "adam"])
def test_training_that_is_cut_off_says_so_once(optimizer, caplog):
    X, y = simulated(kernels.Matern32(0.8), 200)
    with caplog.at_level(logging.WARNING, "daskgp"):
        daskgp.ExactGP(kernels.RBF(20.0), max_iter=2, optimizer=optimizer).fit(X, y)
    said = [r.getMessage() for r in caplog.records if "converged" in r.getMessage()]
    assert len(said) == 1
    assert said[0].endswith(": raise max_iter")
    assert ("nats left to gain" in said[0]) == (optimizer == "trust-region")


def valley(curvature, d, m):
    """A bowl of d hyper-parameters and m inputs, whose own curvature differs by that factor."""
    rng = np.random.default_rng(0)
    factors = np.geomspace(1, 30, d), curvature * np.geomspace(1, 30, m)
    top, weights = rng.normal(size=d + m), np.concatenate(factors)

    def bowl(vector):
        away = vector - top
        return float(-weights @ away**2 / 2), -weights * away

    return bowl, np.zeros(d + m)


@pytest.mark.parametrize("curvature", [1e-4, 1e4])
def test_inputs_of_other_curvature_are_trained_as_fast_as_hyper_parameters(curvature):
    iterations = 32
    bowl, start = valley(curvature, 5, 200)
    even, _ = valley(1.0, 5, 200)
    left = {}
    for name, objective, known in (("other", bowl, 5), ("even", even, 5), ("untold", bowl, None)):
        settings = train.Training(
            "l-bfgs", iterations, 1e-12, hyperparameters=known, progress=False, quiet=True
        )
        bounds = np.tile([-np.inf, np.inf], (len(start), 1))
        best = train.maximise(objective, start, bounds, 1.0, settings, lambda _: {}).vector
        left[name] = objective(best)[0] / objective(start)[0]
    assert left["other"] < 10 * left["even"] < left["untold"]


def test_adam_does_not_stop_where_momentum_carries_it_past_the_optimum_of_one_parameter():
    curvature, optimum = np.array([1e3, 1.0]), np.array([1.0, 10.0])
    settings = train.Training("adam", 1_000, 0.1, learning_rate=0.1, progress=False)

    def objective(x):
        return -0.5 * float(curvature @ (x - optimum) ** 2), -curvature * (x - optimum)

    bounds = np.tile([-np.inf, np.inf], (2, 1))
    found = train.maximise(objective, np.zeros(2), bounds, 1.0, settings, lambda _: {})
    assert objective(found.vector)[0] > -1.0
    assert len(found.history) < settings.max_iter


FALLING, RISING, LEVEL = np.arange(40.0)[::-1], np.arange(40.0), np.sin(np.arange(40.0))
VALLEY = np.abs(np.arange(-14.5, 10.0))  # the means of its last tens agree, those before do not


@pytest.mark.parametrize(
    ("losses", "noisy", "arrived"),
    [
        (FALLING, False, False),
        (RISING, False, False),
        (LEVEL, False, True),
        (LEVEL[:21], False, False),
        (VALLEY, False, False),
        (FALLING, True, False),
        (RISING, True, True),
    ],
)
def test_adam_stops_where_means_of_steps_agree_three_times(losses, noisy, arrived):
    settings = train.Training("adam", patience=10, noisy=noisy)
    assert optimizers._arrived(settings, list(losses), 0.9) is arrived


def test_training_on_growing_blocks_that_is_cut_off_says_so_once(caplog):
    X, y = simulated(kernels.Matern32(0.8), 600)
    settings = {"n_support": 5, "block_rows": 10, "markov_order": 1, "train_blocks": None}
    with caplog.at_level(logging.WARNING, "daskgp"):
        daskgp.LMA(kernels.RBF(20.0), max_iter=1, **settings).fit(X, y)
    assert len([r for r in caplog.records if "raise max_iter" in r.getMessage()]) == 1


@pytest.mark.slow
def test_blocks_without_anything_left_to_learn_are_enough(monkeypatch):
    X, y = simulated(kernels.Matern32(0.8), 1_600)
    spreads = iter([1e3, 0.0, 0.0])
    monkeypatch.setattr(hyperparameters, "_spread", lambda *_: next(spreads))
    model = daskgp.LMA(n_support=5, block_rows=5, markov_order=1).fit(X, y)
    assert model.history_[-1]["expected_loss"] == 0.0


@pytest.mark.parametrize(
    "settings", [{}, {"train_inducing": True, "noise_variance": 1.0, "max_iter": 1}]
)
def test_a_start_from_which_only_noise_is_learned_is_told(settings, caplog):
    X, y = make_friedman1(300, noise=1.0, random_state=0)
    noise = np.random.default_rng(0).normal(size=300)
    short = f"rbf(0.29, {y.var()})"
    for target, kernel, told in ((y, short, 1), (noise, "rbf(0.29, 1.0)", 0), (y, "rbf()", 0)):
        caplog.clear()
        daskgp.SGPR(kernel, n_inducing=40, **settings).fit(X, target)
        assert sum("ended with nothing but noise" in r.getMessage() for r in caplog.records) == told
    caplog.clear()
    with callbacks.until(time.monotonic() + 1e3):  # a search has no time for it
        daskgp.SGPR(short, n_inducing=40, **settings).fit(X, y)
    assert "values in the kernel" not in caplog.text


@pytest.mark.parametrize("kind", [daskgp.SGPR, daskgp.ExactGP])
@pytest.mark.parametrize("kernel", ["matern32(1.0)", "rbf(1e6)", "matern32(1000, 0.001)"])
def test_numbers_in_a_kernel_that_are_far_off_are_told(kind, kernel, caplog):
    """As those of an earlier version are, which were in standard deviations."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.choice(7_300, 600, replace=False)).astype(float)
    y = 40 * np.sin(2 * np.pi * t / 1_500) + 4 * rng.standard_normal(600)
    model = kind(kernel).fit(t[:, None], y)
    error = np.sqrt(np.mean((model.predict(t[:, None]) - 40 * np.sin(2 * np.pi * t / 1_500)) ** 2))
    told = [
        line for line in warnings_in(caplog) if "training from the values in the kernel" in line
    ]
    assert bool(told) == (error > 4.0)


RESOLVED = "do not resolve the data"


@pytest.mark.parametrize(
    "estimator", [daskgp.SGPR(n_inducing=16), daskgp.OptiComGP(level=3)], ids=["sgpr", "opticom"]
)
def test_inducing_inputs_that_are_too_few_are_warned_of(estimator, caplog):
    X, y = simulated(kernels.Matern32(0.4), 500, 0.02)
    with caplog.at_level(logging.WARNING, "daskgp"):
        model = clone(estimator).set_params(kernel=kernels.Matern32()).fit(X, y)
    (said,) = [line for line in warnings_in(caplog) if RESOLVED in line]
    remedy = "raise n_inducing" if isinstance(model, daskgp.SGPR) else "raise level"
    assert said.startswith(f"{len(model.solved_.theta.inputs)} {model._inputs.label} {RESOLVED}")
    assert said.endswith(f": {remedy}, or take LMA")
    noise = [float(number) for number in re.findall(r"([\d.]+)\)", said)]
    assert noise[0] == pytest.approx(model.noise_variance_, rel=0.01)
    assert noise[1] < 0.5 * noise[0]


@pytest.mark.parametrize(
    ("lengthscale", "noise", "m"), [(2.0, 0.02, 40), (0.02, 1.0, 16), (0.4, 0.02, 300)]
)
def test_inducing_inputs_that_are_enough_are_not_warned_of(lengthscale, noise, m, caplog):
    X, y = simulated(kernels.Matern52(lengthscale), 300, noise)
    with caplog.at_level(logging.WARNING, "daskgp"):
        daskgp.SGPR(kernels.Matern52(), n_inducing=m).fit(X, y)
    assert not [line for line in warnings_in(caplog) if RESOLVED in line]


def test_training_that_finds_no_better_point_says_so(caplog):
    def downhill(vector):  # its gradient points away from the optimum
        return -float(vector @ vector), 2.0 * vector

    bounds, settings = np.tile([-9.0, 9.0], (2, 1)), train.Training(max_iter=500)
    with caplog.at_level(logging.WARNING, "daskgp"):
        train.maximise(downhill, np.ones(2), bounds, 1.0, settings, lambda _: {})
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 1
    assert re.search(r"no better point is found, which can happen where rounding hides it", said[0])


@pytest.mark.parametrize("away", [0.0, 3.0])
def test_rounding_is_told_where_exact_evidence_does_not_show_that_it_hides_little(
    away, caplog, monkeypatch
):
    run = hyperparameters._on

    def hidden(*args, **more):
        trained = run(*args, **more)
        return trained._replace(vector=trained.vector + away, early=train.LOST)

    monkeypatch.setattr(hyperparameters, "_on", hidden)
    X, y = simulated(kernels.Matern52(1.0), 300, 0.02)
    with caplog.at_level(logging.WARNING, "daskgp"):
        daskgp.SGPR(kernels.Matern52(), n_inducing=60).fit(X, y)
    assert any(line == train.LOST for line in warnings_in(caplog)) == (away > 0)


def test_training_that_arrives_says_nothing(caplog):
    X, y = simulated(kernels.Matern32(0.8), 200)
    with caplog.at_level(logging.WARNING, "daskgp"):
        daskgp.ExactGP(kernels.Matern32()).fit(X, y)
    assert not caplog.records


@pytest.mark.parametrize("estimator", [daskgp.LMA, daskgp.ExactGP])
@pytest.mark.parametrize("far", [1e9, 1e12])
def test_a_row_far_from_all_others_changes_what_is_learned_of_them_little(estimator, far):
    rng = np.random.default_rng(0)
    X, T = rng.uniform(0, 1, (400, 2)), rng.uniform(0, 1, (200, 2))
    truth = np.sin(6 * T[:, 0]) + T[:, 1]
    y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(400)
    F = np.where(np.arange(400)[:, None] == 7, far, X)
    alone, beside = (estimator(progress=False).fit(inputs, y) for inputs in (X, F))
    errors = [np.sqrt(np.mean((m.predict(T) - truth) ** 2)) for m in (alone, beside)]
    assert errors[1] < 1.2 * errors[0]
    assert beside.noise_variance_ == pytest.approx(alone.noise_variance_, rel=0.1)
    assert len(beside.history_) < 10


# -- rows of the start ---------------------------------------------------------------------------


def stage_of(X, y, cut):
    rows = rows_of(X, y[:, None] if y.ndim == 1 else y, None, True)
    spans = partition.blocks(len(X), None, cut)
    unit = scaling.identity(X.shape[1], 1)
    executor = Executor(None, False, here=True)
    return rounds.Rounds(rows, partition.alone(spans), unit, executor)


@pytest.mark.parametrize("cut", [7, 40, 500])
def test_the_nearest_rows_are_drawn_however_rows_are_cut(cut):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 3))
    X[20] = np.nan
    stage, places = stage_of(X, rng.standard_normal(300), cut), X[[5, 100]]
    found = sampling.draw_near(
        stage.rows, stage.spans, stage.scaling, places, 9, sampling.Keys((0, 1)), stage.executor
    )
    away = np.nan_to_num(((X[:, None] - places) ** 2).sum(axis=2), nan=np.inf)
    wanted = np.unique(np.argsort(away, axis=0)[:9])
    np.testing.assert_array_equal(np.sort(found.rows.X, axis=0), np.sort(X[wanted], axis=0))


def test_no_row_is_twice_in_the_subset():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((3_000, 2))
    stage = stage_of(X, X[:, 0], 500)
    keys = sampling.Keys.by_content(
        (0, 1), stage.rows, sampling.describe(stage.rows, stage.spans, stage.executor)
    )
    sample = sampling.draw(stage.rows, stage.spans, stage.scaling, 2_000, keys, stage.executor)
    few = subset.subset_rows(stage, sample, keys)
    assert subset.ROWS / 2 < len(few.X) <= subset.ROWS
    assert len(np.unique(few.X, axis=0)) == len(few.X)
    spread = np.median(np.linalg.norm(few.X - X[0], axis=1))
    gaps = np.sort(np.linalg.norm(few.X[:, None] - few.X, axis=2), axis=1)[:, 1]
    assert np.quantile(gaps, 0.3) < 0.05 * spread  # some are next to one another


# -- blocks --------------------------------------------------------------------------------------


def test_gradients_of_blocks_add_up_to_the_gradient():
    X, y = simulated(kernels.Matern32(0.8), 160)
    stage, model = stage_of(X, y, 40), LowRankMarkov()
    theta = Theta(kernels.Matern32(0.9, 1.3), 0.1, X[:10])
    each = model.block_gradients(theta, stage)
    whole = model.evaluate(theta, stage).gradient.to_vector(with_inputs=False)
    assert each.shape == (4, 3)
    np.testing.assert_allclose(each.sum(axis=0), whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_training_on_enough_blocks_loses_as_little_as_it_says(seed, caplog):
    X = np.random.default_rng(seed).uniform(0, 40, (2_000, 1))
    X, y = simulated(kernels.Matern32(0.5), X=np.sort(X, axis=0), noise=0.1)
    settings = {"kernel": kernels.Matern32(), "n_support": 16, "block_rows": 20, "markov_order": 1}
    with caplog.at_level(logging.INFO, "daskgp"):
        some = daskgp.LMA(**settings).fit(X, y)
    every = daskgp.LMA(**settings, train_blocks=None).fit(X, y)
    expected = some.history_[-1]["expected_loss"]
    assert 0 < expected <= hyperparameters.TOLERATED
    assert every.objective_ - some.objective_ < 3 * hyperparameters.TOLERATED
    said = [r.getMessage() for r in caplog.records if "blocks:" in r.getMessage()]
    assert len(said) == 1
    trained = int(re.search(r"trained on (\d+) of 100 blocks", said[0]).group(1))
    assert hyperparameters.SECOND <= trained < 100


@pytest.mark.slow
def test_blocks_are_those_near_by_the_hyperparameters_found(monkeypatch):
    noted, settle = [], Blocks.settle
    monkeypatch.setattr(Blocks, "settle", lambda *a: noted.append(a[2]) or settle(*a))
    rng = np.random.default_rng(0)
    X, y = simulated(kernels.Matern12((3.0, 0.3)), X=rng.uniform(0, 4, (800, 2)), noise=1e-3)
    settings = {"n_support": 8, "block_rows": 8, "markov_order": 2, "train_blocks": None}
    model = daskgp.LMA(kernels.Matern12(ard=True), **settings).fit(X, y)
    _, arranged, of_some, final = (t.to_vector(False) for t in noted)
    assert np.array_equal(final[:-1], model.solved_.theta.kernel.log_parameters)
    names = [*model.kernel_.parameter_names, "noise_variance"]
    ends = [[np.log(entry[name]) for name in names] for entry in model.history_]
    assert any(np.allclose(of_some, end) for end in ends)  # where a stage ended, the next begins
    assert not np.array_equal(arranged, final)


@pytest.mark.parametrize("optimizer", [pytest.param("l-bfgs", marks=pytest.mark.slow), "adam"])
@pytest.mark.slow
def test_other_optimizers_train_on_a_number_of_blocks(optimizer):
    X, y = simulated(kernels.Matern32(0.8), 400)
    settings = {"n_support": 5, "block_rows": 10, "markov_order": 1, "max_iter": 2}
    some = daskgp.LMA(**settings, optimizer=optimizer).fit(X, y)
    same = daskgp.LMA(**settings, optimizer=optimizer, train_blocks=hyperparameters.SECOND).fit(
        X, y
    )
    assert some.objective_ == same.objective_
    assert "expected_loss" not in some.history_[-1]


def test_methods_that_cannot_tell_enough_blocks_say_so():
    X, y = simulated(kernels.Matern32(0.8), 60)
    with pytest.raises(
        SettingError, match="train_blocks='auto': choose a whole number of at least 1,"
    ):
        daskgp.SGPR(n_inducing=5, train_blocks="auto").fit(X, y)


@pytest.mark.slow
def test_a_number_of_blocks_says_what_it_loses(caplog):
    X, y = simulated(kernels.Matern32(0.8), 600)
    settings = {"n_support": 10, "block_rows": 10, "markov_order": 1}
    with caplog.at_level(logging.INFO, "daskgp"):
        some = daskgp.LMA(**settings, train_blocks=20).fit(X, y)
        one = daskgp.LMA(**settings, train_blocks=1).fit(X, y)
    assert some.history_[-1]["expected_loss"] > 0
    assert "expected_loss" not in one.history_[-1]
    said = [r.getMessage() for r in caplog.records if "blocks:" in r.getMessage()]
    assert re.search(r"trained on 20 of 60 blocks: about \d+ nats", said[0])
    assert re.search(r"trained on 1 of 60 blocks: an unknown number of nats", said[1])


def test_few_blocks_are_all_trained_on():
    X, y = simulated(kernels.Matern32(0.8), 200)
    some = daskgp.LMA(n_support=10, block_rows=20).fit(X, y)
    assert some.history_[-1]["expected_loss"] == 0.0


# -- what a fit says of its hyper-parameters -----------------------------------------------------


def row(model, name):
    return next(found for found in model.hyperparameters_ if found.name == name)


def test_hyperparameters_are_in_the_units_of_the_data(tmp_path):
    X, y = simulated(kernels.Matern32(0.8), 250, 0.1)
    plain = daskgp.ExactGP(kernels.Matern32(ard=True)).fit(X, y)
    other = daskgp.ExactGP(kernels.Matern32(ard=True)).fit(X * [1e3, 10.0], 7.0 * y)
    for name, factor in {"lengthscale[0]": 1e3, "lengthscale[1]": 10.0, "variance": 49.0}.items():
        here, there = row(plain, name), row(other, name)
        assert there.value == pytest.approx(factor * here.value, rel=0.05)
        assert there.standard_error == pytest.approx(factor * here.standard_error, rel=0.2)
    assert row(plain, "lengthscale[1]").unit == "x1"
    assert row(plain, "noise_variance").unit == "y^2"
    assert "standard error" in str(plain.hyperparameters_)
    plain.save(tmp_path / "model.zarr")
    back = daskgp.load(tmp_path / "model.zarr")
    assert str(back.hyperparameters_) == str(plain.hyperparameters_)


def test_standard_errors_are_those_of_the_evidence():
    X, y = simulated(kernels.Matern32(0.8), 250, 0.1)
    model = daskgp.ExactGP(kernels.Matern32(), standardize=False, mean="zero").fit(X, y)
    theta = Theta(model.kernel_, model.noise_variance_)
    evaluate = subset.evidence(Block(X, y[:, None]), theta)
    x, step = theta.to_vector(False), 1e-4
    H = np.array(
        [(evaluate(x - step * e)[1] - evaluate(x + step * e)[1]) / (2 * step) for e in np.eye(3)]
    )
    errors = np.sqrt(np.diag(np.linalg.inv(H)))
    found = [r.standard_error / r.value for r in model.hyperparameters_]
    np.testing.assert_allclose(found, errors, rtol=0.1)


@pytest.mark.parametrize(
    ("kernel", "units"),
    [
        (kernels.RBF(1.0) + kernels.Linear(), ["y^2", "x0, x1", "y^2 (x0, x1)^-2", "y^2"]),
        (kernels.Periodic(active_dims=(1,)), ["y^2", "", "x1", "y^2"]),
        (2.0 * kernels.RBF((1.0, 2.0)), ["y^2", "", "x0", "x1", "y^2"]),
    ],
)
def test_units_of_kernels(kernel, units):
    X, y = simulated(kernels.RBF(0.8), 60, 0.1)
    model = daskgp.ExactGP(kernel, optimizer=None, standardize=False).fit(X, y)
    assert [found.unit for found in model.hyperparameters_] == units
    assert all(np.isnan(found.standard_error) for found in model.hyperparameters_)


@pytest.mark.parametrize(
    ("units", "said"), [("m", "m^2"), ("m s-1", "(m s-1)^2"), ("", "height^2"), (None, "height^2")]
)
def test_the_unit_of_a_variance_is_that_of_the_target_if_it_is_known(units, said):
    X, y = simulated(kernels.RBF(0.8), 60, 0.1)
    attributes = {} if units is None else {"units": units}
    rows = xr.DataArray(X, dims=("row", "feature"), coords={"feature": ["lon", "lat"]})
    height = xr.DataArray(y, dims="row", name="height", attrs=attributes)
    model = daskgp.ExactGP(kernels.RBF(1.0), optimizer=None).fit(rows, height)
    assert [found.unit for found in model.hyperparameters_] == [said, "lon, lat", said]


def test_variances_that_are_not_determined_apart_are_named():
    X, y = simulated(kernels.RBF(0.8), 80, 0.1)
    product = 1.5 * kernels.RBF() + kernels.Linear()
    for kernel, said in ((product, 1), (kernels.RBF() + kernels.Linear(), 0)):
        found = daskgp.ExactGP(kernel).fit(X, y).hyperparameters_
        *unsure, parts = found.remarks
        assert len(unsure) == said
        assert parts.startswith("parts of the kernel: 0")
        assert pickle.loads(pickle.dumps(found)).remarks == found.remarks
        if said:
            line = "0.0.variance and 0.1.variance have no standard errors: data"
            assert unsure[0].startswith(line)
            unsure = [row.name for row in found if np.isnan(row.standard_error)]
            assert unsure == ["0.0.variance", "0.1.variance"]
    at_limit = daskgp.ExactGP(kernels.RBF(), limits={"noise_variance": (0.5, 1.0)}).fit(X, y)
    assert "no standard error is known of a value" in at_limit.hyperparameters_.remarks[0]
    held = daskgp.ExactGP(product, optimizer=None).fit(X, y).hyperparameters_
    assert [text.partition(":")[0] for text in held.remarks] == ["parts of the kernel"]


@pytest.mark.parametrize(
    ("text", "groups", "flat"),
    [
        ("2*rbf()*linear()", ["0.variance 1.variance 2.variance"], 2),
        ("(rbf()+linear())*rbf()", ["0.0.variance 0.1.variance 1.variance"], 1),
        (
            "linear() + 2*(matern12()*3 + 1)",
            [
                "1.1.0.0.variance 1.1.0.1.variance",
                "1.0.variance 1.1.0.0.variance 1.1.1.variance",
            ],
            2,
        ),
        ("rbf() + linear()", [], 0),
    ],
)
def test_variances_of_factors_are_not_determined_apart_by_any_rows(text, groups, flat):
    kernel, X = kernels.parse(text), np.random.default_rng(0).standard_normal((12, 1))
    assert [" ".join(group) for group in redundant(kernel)] == groups
    moves = 1e-5 * np.eye(len(kernel.parameter_names))
    both = (
        kernel.with_log_parameters(kernel.log_parameters + move)(X) for move in [*moves, *-moves]
    )
    up, down = np.split(np.array([K.ravel() for K in both]), 2)
    assert len(moves) - np.linalg.matrix_rank(up - down, tol=1e-9) == flat


def test_a_ridge_is_an_axis_of_the_coordinates():
    for of, power in ((kernels.Matern12, 1), (kernels.Matern32, 3), (kernels.Matern52, 5)):
        T = of(1.0).coordinates()
        along = np.array([power * 0.3, 0.3])  # log v and log l on v / l^(2 nu) constant
        np.testing.assert_allclose(T @ along, [0.0, 0.3])


def test_blocks_decide_between_kernels_that_the_subset_hardly_tells_apart(monkeypatch):
    search = subset.search

    def misled(*arguments):
        found = search(*arguments)
        every = (found.theta, *found.rivals)
        (smooth,) = (theta for theta in every if isinstance(theta.kernel, kernels.Matern52))
        return found._replace(theta=smooth, rivals=tuple(t for t in every if t is not smooth))

    monkeypatch.setattr(subset, "RIVAL", 1e6)
    monkeypatch.setattr(subset, "search", misled)
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, (900, 1)), axis=0)
    rough = kernels.Matern12(1.0)(X, X) + 0.01 * np.eye(len(X))
    y = np.linalg.cholesky(rough) @ rng.standard_normal(len(X))
    model = daskgp.LMA(n_support=32, block_rows=60, progress=False).fit(X, y)
    assert isinstance(model.kernel_, kernels.Matern12)


def test_conditionals_decide_between_kernels_whatever_the_subset_says(monkeypatch):
    search = subset.search

    def misled(*arguments):
        found = search(*arguments)
        every = (found.theta, *found.rivals, *found.others)
        (smooth,) = (theta for theta in every if isinstance(theta.kernel, kernels.Matern52))
        others = tuple(theta for theta in every if theta is not smooth)
        return found._replace(theta=smooth, rivals=(), others=others)

    monkeypatch.setattr(subset, "search", misled)
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (900, 1))
    rough = kernels.Matern12(1.0)(X, X) + 0.01 * np.eye(len(X))
    y = np.linalg.cholesky(rough) @ rng.standard_normal(len(X))
    model = daskgp.VecchiaGP(progress=False).fit(X, y)
    assert isinstance(model.kernel_, kernels.Matern12)


@pytest.mark.slow
def test_a_kernel_is_chosen_by_rows_far_apart_too():
    rng = np.random.default_rng(1)
    knots = np.arange(0.0, 100.1, 0.2)  # a rough path that is straight between them
    steps = np.exp(-0.02) ** np.arange(len(knots))
    path = steps * np.cumsum(
        np.append(0.0, np.sqrt(1 - np.exp(-0.04)) * rng.standard_normal(len(knots))[1:]) / steps
    )
    X = rng.uniform(0, 100, (20_000, 1))
    y = np.interp(X[:, 0], knots, path) + 0.1 * rng.standard_normal(len(X))
    gaps = X[:, 0] % 10 < 2
    X_train, y_train = X[~gaps], y[~gaps]
    chosen, smooth = (
        daskgp.VecchiaGP(kernel, progress=False).fit(X_train, y_train)
        for kernel in (None, kernels.Matern32())
    )
    error, other = (
        np.sqrt(np.mean((model.predict(X[gaps]) - np.interp(X[gaps, 0], knots, path)) ** 2))
        for model in (chosen, smooth)
    )
    assert error < 0.9 * other


@pytest.mark.parametrize("n", [700, 30_000])
def test_rows_count_evenly_by_the_doublings_of_their_order(n):
    rank = ranks(np.arange(n), 3)
    number = np.argsort(np.argsort(rank)) + 1
    first = min(4_000, n)
    share = min(1.0, 4_000 / (n * np.log(n / first))) if n > first else None
    plan = conditionals.Draw(int(np.sort(rank)[first - 1]), share, 1.0, 0, n, True)
    own = plan.of_first(rank)
    if share is not None:
        own = np.append(own, plan.of_others(rank, np.arange(n)))
        assert 7_000 < len(own) < 9_000
    often = plan.often(rank[own])
    assert often.sum() == pytest.approx(n, rel=0.05)  # half of it by rows, half by doublings
    for low in (1_000, 2_000, 4_000, 8_000)[: max(0, int(np.log2(n / 1_000)))]:
        within = (number[own] > low) & (number[own] <= 2 * low)
        even = 0.5 * n * np.log(2) / (1 + np.log(n / 1_000))
        assert often[within].sum() == pytest.approx(0.5 * low + even, rel=0.1)
