"""Promises of AutoGP: candidates have the settings asked for, and Ctrl-C takes the best so far."""

import os
import signal
import threading

import numpy as np
import pytest

import daskgp
from daskgp import data
from daskgp.choose import search as searching
from daskgp.choose import trials as trying
from daskgp.choose.candidates import Candidate
from daskgp.errors import InputError, SettingError
from daskgp.runtime.executor import Executor

QUICK = {"time_budget": 20.0, "progress": False}


def field(n=160, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2))
    f = np.sin(6 * X[:, 0]) + np.cos(5 * X[:, 1])
    return X, f + 0.1 * rng.standard_normal(n), f


def few(**settings):
    return {**QUICK, "candidates": ["sgpr"], "kernel": "matern52", **settings}


@pytest.mark.parametrize(
    "settings",
    [
        {"mean": "zero"},
        {"mean": ["x1"]},
        {"likelihood": "student-t"},
        {"fixed": {"noise_variance": 0.02}},
        {"limits": {"lengthscale": (0.2, 0.4)}},
        {"prior": {"lengthscale": "lognormal(0.3, sigma=0.5)"}},
        {"unseen": "new"},
    ],
    ids=str,
)
def test_the_method_chosen_has_the_settings_asked_for(settings):
    X, y, _ = field()
    best = daskgp.AutoGP(**few(**settings)).fit(X, y).best_
    for name, value in settings.items():
        assert getattr(best, name) == value
    if "limits" in settings:
        assert all(0.2 <= ell <= 0.4 for ell in np.atleast_1d(best.kernel_.lengthscale))
    if "fixed" in settings:
        known = {one.name: one.value for one in best.hyperparameters_}
        assert known["noise_variance"] == pytest.approx(0.02)


def test_a_transform_of_the_target_is_scored_in_its_own_units():
    X, y, _ = field()
    model = daskgp.AutoGP(**few(target_transform="log")).fit(X, np.exp(y))
    held = model.held_out_
    found = np.sqrt(np.mean((held.y - held.mean) ** 2))
    assert model.chosen_.scores["rmse"] == pytest.approx(found, rel=1e-9)
    assert found < 0.5 * np.exp(y).std()


@pytest.mark.slow
def test_joint_targets_with_gaps_are_chosen_for_together():
    X, y, f = field(80)
    second = 0.8 * f + 1.0 + 0.05 * np.random.default_rng(1).standard_normal(len(f))
    second[40:] = np.nan
    Y = np.column_stack([y, second])
    with pytest.raises(InputError, match="set targets='joint'"):
        daskgp.AutoGP(**few()).fit(X, Y)
    model = daskgp.AutoGP(**few(targets="joint", candidates=[daskgp.ExactGP(max_iter=5)])).fit(X, Y)
    assert model.best_.targets == "joint"
    assert np.shape(model.best_.noise_variance_) == (2,)
    error = np.sqrt(np.mean((model.predict(X)[40:, 1] - 0.8 * f[40:] - 1.0) ** 2))
    alone = daskgp.ExactGP("matern52", progress=False).fit(X[:40], second[:40]).predict(X[40:])
    assert error < 0.8 * np.sqrt(np.mean((alone - 0.8 * f[40:] - 1.0) ** 2))


def test_a_column_that_varies_between_joint_targets_is_not_called_constant(tmp_path):
    X = np.column_stack([np.linspace(0, 6, 120), np.arange(120) % 2])
    y = np.full((120, 2), np.nan)
    y[::2, 0], y[1::2, 1] = np.sin(X[::2, 0]), np.cos(X[1::2, 0])
    executor = Executor.current(False)
    rows = data.rows_of(X, y, None, True)
    found = daskgp.AutoGP(targets="joint")._profile(rows, None, str(tmp_path / "each"), executor)
    assert found.varying == 2
    assert not any("the same in all rows" in said for said in found.findings)


@pytest.mark.slow
def test_joint_targets_may_share_no_row():
    X, y, f = field(90)
    Y = np.column_stack([y, 0.8 * f + 1.0])
    first = np.arange(len(X)) % 3 > 0
    Y[~first, 0], Y[first, 1] = np.nan, np.nan
    own = [daskgp.ExactGP("matern52", max_iter=3)]
    model = daskgp.AutoGP(**few(targets="joint", candidates=own)).fit(X, Y)
    assert model.best_.n_rows_ == len(X)  # values
    assert not any("left out" in one for one in model.leaderboard_.findings)


@pytest.mark.slow
def test_footprints_go_with_all_candidates():
    X, _, f = field(60)
    radius = np.where(np.arange(len(X)) % 2, 0.05, 0.0)
    model = daskgp.AutoGP(
        **few(footprint="x2", candidates=[daskgp.SGPR(n_inducing=20, max_iter=5)])
    ).fit(np.column_stack([X, radius]), f)
    assert model.best_.kernel_.name == "averaged"
    points = np.column_stack([X[:9], np.zeros(9)])
    np.testing.assert_allclose(model.predict(points), f[:9], atol=0.2)


def test_a_gaussian_that_is_asked_for_is_taken_for_classes():
    X, y, _ = field()
    model = daskgp.AutoGP(**few(likelihood="gaussian")).fit(X, (y > 0).astype(float))
    assert model.best_.likelihood == "gaussian"
    assert not any("likelihood" in trial.settings for trial in model.leaderboard_)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"likelihood": "nope"}, "choose one of"),
        ({"mean": "nope"}, "mean='nope'"),
        ({"targets": "joint", "likelihood": "poisson"}, "targets='joint' has no effect"),
        ({"target_transform": "cube"}, "target_transform='cube'"),
        ({"candidates": [daskgp.SGPR(fill_values=-9.0)]}, "give them to AutoGP, fill_values="),
    ],
)
def test_settings_that_no_candidate_takes_are_refused_before_any_work(settings, says):
    with pytest.raises(SettingError, match=says):
        daskgp.AutoGP(**QUICK, **settings).fit(None, None)


def test_a_trend_of_no_column_is_refused_with_the_columns():
    X, y, _ = field()
    with pytest.raises(SettingError, match="columns of X are 'x0, x1'"):
        daskgp.AutoGP(**QUICK, mean=["elevation"]).fit(X, y)


def test_ctrl_c_fits_the_best_so_far(monkeypatch, caplog):
    X, y, f = field(600)
    run, count = trying.Trials._run, []

    def interrupted(self, *given):
        count.append(given)
        if len(count) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return run(self, *given)

    monkeypatch.setattr(trying.Trials, "_run", interrupted)
    own = [daskgp.ExactGP(kernel, max_iter=4) for kernel in ("matern52", "matern12", "rbf")]
    model = daskgp.AutoGP(**QUICK, candidates=own).fit(X, y)
    assert len(count) == 2
    assert any(
        "Ctrl-C has ended the search after 2 trials" in one for one in model.leaderboard_.findings
    )
    assert "another Ctrl-C ends the fit" in caplog.text
    assert model.best_.n_rows_ == 600
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_search_that_goes_on_after_ctrl_c_trains_what_it_chooses(monkeypatch, tmp_path):
    X, y, _ = field()
    own = [daskgp.ExactGP(kernel, max_iter=4) for kernel in ("matern52", "rbf")]
    model, run = daskgp.AutoGP(**QUICK, candidates=own), trying.Trials._run

    def first(self, *given):
        os.kill(os.getpid(), signal.SIGINT)
        return run(self, *given)

    def second(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trying.Trials, "_run", first)
        patch.setattr(daskgp.AutoGP, "_judged", second)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y, checkpoint=str(tmp_path / "c"))
    model.fit(X, y, checkpoint=str(tmp_path / "c"))
    assert len(model.leaderboard_) == 3
    assert model.best_.optimizer is not None


def test_another_ctrl_c_ends_the_fit(monkeypatch):
    X, y, _ = field()

    def twice(self, *given):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(trying.Trials, "_run", twice)
    with pytest.raises(KeyboardInterrupt):
        daskgp.AutoGP(**few()).fit(X, y)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_fits_in_other_threads_leave_signals_alone():
    X, y, _ = field()
    found = []
    work = threading.Thread(target=lambda: found.append(daskgp.AutoGP(**few()).fit(X, y)))
    work.start()
    work.join()
    assert found[0].n_rows_ == len(y)


@pytest.mark.slow
def test_sizes_grow_as_long_as_they_help(monkeypatch):
    X, y, _ = field(300)
    small = Candidate("method", daskgp.SGPR("matern52", n_inducing=4, max_iter=3, progress=False))
    monkeypatch.setattr(searching, "methods", lambda *given: [small])
    model = daskgp.AutoGP(time_budget=300, progress=False, kernel="matern52").fit(X, y)
    board = model.leaderboard_
    sizes = [trial.settings["n_inducing"] for trial in board if trial.stage == "size"]
    assert sorted(sizes) == [8, 16, 32, 64]  # each once
    assert board.best.settings["n_inducing"] >= 16


@pytest.mark.slow
def test_the_comparison_of_kernels_ends_after_its_share_of_the_budget(monkeypatch):
    ends = []
    until = trying.Trials.until

    def noted(self, at):
        ends.append((at - self.began) / self.rules.seconds)
        return until(self, at)

    monkeypatch.setattr(trying.Trials, "until", noted)
    monkeypatch.setattr(searching, "STRUCTURE_ROWS", 50)  # fewer than those of a fold
    X, y, _ = field(100)
    daskgp.AutoGP(**QUICK).fit(X, y)
    assert min(ends) == pytest.approx(searching.STRUCTURE)
    assert trying.SEARCH in [round(end, 6) for end in ends]


@pytest.mark.slow
def test_readings_of_one_place_are_held_out_together():
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 1, (80, 2))
    X = np.repeat(places, 3, axis=0)
    y = np.repeat(rng.standard_normal(80), 3) + 0.01 * rng.standard_normal(240)
    model = daskgp.AutoGP(**few()).fit(X, y)
    assert any("places are held out whole" in one for one in model.leaderboard_.findings)
    assert model.chosen_.scores["rmse"] > 0.7  # nothing tells of another place
    held = model.held_out_.X
    assert len(np.unique(held, axis=0)) == 80
    spread = daskgp.AutoGP(**few()).fit(X + 1e-3 * rng.standard_normal(X.shape), y)
    assert not any("held out whole" in one for one in spread.leaderboard_.findings)


def test_the_constant_prediction_with_heavy_tailed_noise_is_at_the_level_of_the_targets():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 1))
    y = 285.0 + np.sin(6 * X[:, 0]) + 0.1 * rng.standard_t(3, 80)
    own = [daskgp.ExactGP("rbf(0.3)", optimizer=None, likelihood="student-t")]
    model = daskgp.AutoGP(
        likelihood="student-t", candidates=own, time_budget=60, progress=False
    ).fit(X, y)
    of_mean = next(trial for trial in model.leaderboard_ if trial.method == "mean")
    assert of_mean.scores["rmse"] < 2 * y.std()
