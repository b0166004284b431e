"""Promises of AutoGP: it is right, says what it did, keeps within its budget and goes on."""

import logging
import time

import numpy as np
import pytest
import xarray as xr
from sklearn.base import clone

import daskgp
from daskgp import data, kernels, likelihoods
from daskgp.assess.leaderboard import Leaderboard
from daskgp.choose import profile as profiling
from daskgp.choose import search as searching
from daskgp.choose import trials as trying
from daskgp.choose.auto import TRIALS
from daskgp.choose.candidates import Candidate, methods
from daskgp.errors import DaskgpError, InputError, PlanError, SettingError
from daskgp.kernels.words import structure
from daskgp.runtime.executor import Executor
from daskgp.train import callbacks

QUICK = {"time_budget": 40.0, "progress": False}


def few():
    """A candidate of few steps, where the question is another one than what is chosen."""
    return [daskgp.SGPR("matern52", n_inducing=15, max_iter=5)]


def rows(n=200, d=2, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, (n, d))
    f = np.sin(3 * X[:, 0]) + np.cos(2 * X[:, -1])
    return X, f + noise * rng.standard_normal(n), f


def without_a_clock(patch):
    """Let expected times alone decide, on a machine that may be busy with other tests."""
    patch.setattr(trying.Trials, "deadline", property(lambda self: np.inf))
    patch.setattr(trying.Trials, "end_of_search", property(lambda self: np.inf))
    patch.setattr(trying.Trials, "slowness", lambda self, method: 1.0)


@pytest.fixture
def unhurried(monkeypatch):
    without_a_clock(monkeypatch)


@pytest.fixture(scope="module")
def fitted():
    X, y, _ = rows()
    with pytest.MonkeyPatch.context() as patch:
        without_a_clock(patch)
        return daskgp.AutoGP(**QUICK).fit(X, y)


def test_it_predicts_as_well_as_the_exact_gp(fitted):
    X, y, _ = rows()
    places, _, f = rows(400, seed=1)
    exact = daskgp.ExactGP(progress=False).fit(X, y)
    mean, std = fitted.predict(places, return_std=True)
    error, least = (np.sqrt(np.mean((m - f) ** 2)) for m in (mean, exact.predict(places)))
    assert error < 1.25 * least + 0.01
    assert np.mean(np.abs(mean - f) < 1.96 * std) > 0.8


def test_few_rows_go_to_the_exact_gp_where_it_is_as_good(fitted):
    board = fitted.leaderboard_
    of_exact = [t for t in board if t.method == "exact" and t.stage == "method"]
    assert of_exact
    assert fitted.chosen_.method == "exact" or fitted.chosen_.score < of_exact[0].score
    assert type(fitted.best_).model_name == fitted.chosen_.method


def test_the_leaderboard_has_the_mean_and_scores_with_errors(fitted):
    board = fitted.leaderboard_
    assert board.best is board[board.chosen]
    worst = next(trial for trial in board if trial.method == "mean")
    assert board.best.score < worst.score
    for trial in board:
        assert trial.failed or (np.isfinite(trial.score) and trial.error > 0)
        assert trial.rows <= 200
        assert trial.seconds >= 0
    assert str(board).count("\n") == len(board)
    assert Leaderboard.from_dict(board.to_dict()).to_rows() == board.to_rows()


def test_scores_are_those_of_the_held_out_rows(fitted):
    held = fitted.held_out_
    z = (held.y - held.mean) / np.sqrt(held.variance)
    density = -0.5 * (np.log(2 * np.pi * held.variance) + z**2)
    assert fitted.chosen_.score == pytest.approx(-density.mean(), rel=1e-9)
    assert fitted.chosen_.scores["rmse"] == pytest.approx(
        np.sqrt(np.mean((held.y - held.mean) ** 2)), rel=1e-9
    )
    assert len(held.y) == 200  # each row was held out once


def test_the_spread_is_learned_from_rows_left_out(fitted):
    X, y, _ = rows()
    assert fitted.best_.calibrate == "loo"
    mean, std = fitted.loo(X, y)
    assert np.mean(((y - mean) / std) ** 2) == pytest.approx(1.0, rel=1e-6)


def test_it_is_an_estimator_like_the_others(fitted, tmp_path):
    X, _, _ = rows()
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    with pytest.raises(AttributeError, match="not fitted"):
        _ = copied.best_
    fitted.save(str(tmp_path / "m.zarr"))
    loaded = daskgp.load(str(tmp_path / "m.zarr"))
    assert type(loaded) is type(fitted.best_)
    assert loaded.leaderboard_.to_rows() == fitted.leaderboard_.to_rows()
    np.testing.assert_array_equal(loaded.predict(X[:9]), fitted.predict(X[:9]))
    paths = fitted.sample_paths(3, 0)(X[:5])
    assert paths.shape == (5, 3)
    assert fitted.score(X, fitted.predict(X)) > 0.99
    assert len(fitted.hyperparameters_) == len(fitted.best_.hyperparameters_) > 2
    mapped = hasattr(fitted.best_, "hyperparameter_map")
    assert hasattr(fitted, "hyperparameter_map") == mapped
    assert not hasattr(clone(fitted), "hyperparameter_map_")
    assert not hasattr(fitted, "predict_proba")


def test_a_search_that_was_killed_goes_on_to_the_same_choice(tmp_path, monkeypatch, unhurried):
    X, y, _ = rows(150)
    settings = {
        **QUICK,
        "candidates": [
            *few(),
            *(daskgp.ExactGP(kernel, max_iter=2) for kernel in ("rbf", "matern12")),
        ],
    }
    whole = daskgp.AutoGP(**settings).fit(X, y)
    run, count = trying.Trials._run, []

    def until_killed(self, *given):
        if len(count) == 2:
            raise KeyboardInterrupt
        count.append(given)
        return run(self, *given)

    monkeypatch.setattr(trying.Trials, "_run", until_killed)
    url = str(tmp_path / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        daskgp.AutoGP(**settings).fit(X, y, checkpoint=url)
    count.clear()
    monkeypatch.setattr(trying.Trials, "_run", lambda self, *g: count.append(g) or run(self, *g))
    again = daskgp.AutoGP(**settings).fit(X, y, checkpoint=url)
    trials = [trial for trial in again.leaderboard_ if trial.method != "mean"]
    assert len(count) == len(trials) - 2
    said = [(t.label, t.kernel, t.rows, t.score) for t in again.leaderboard_]
    assert said == [(t.label, t.kernel, t.rows, t.score) for t in whole.leaderboard_]
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    with pytest.raises(daskgp.DaskgpError, match="other data or settings"):
        daskgp.AutoGP(**settings, metric="rmse").fit(X, y, checkpoint=url)
    assert (tmp_path / f"checkpoint{TRIALS}").exists()


def test_checkpoints_of_earlier_versions_are_of_the_same_search():
    found = profiling.Profile(9, ("x0",), (), (), "measured", 0.0)
    assert found.text.startswith("Facts(rows=9, features=('x0',), ")


@pytest.mark.slow
def test_a_search_that_was_over_chooses_the_same_when_it_goes_on(tmp_path, monkeypatch):
    X, y, _ = rows(150)
    settings = {**QUICK, "candidates": [*few(), daskgp.ExactGP("rbf")]}
    keep, fit = trying.KeptTrials.append, daskgp.ExactGP._fit
    without_a_clock(monkeypatch)
    whole = daskgp.AutoGP(**settings).fit(X, y)

    def long(self, number, said, arrays):
        keep(self, number, {**said, "spent": 0.61 * QUICK["time_budget"]}, arrays)

    def killed(self, X, y, *given, **more):
        if len(y) == 150:  # the last fit
            raise KeyboardInterrupt
        return fit(self, X, y, *given, **more)

    monkeypatch.setattr(trying.KeptTrials, "append", long)
    for kind in (daskgp.ExactGP, daskgp.SGPR):
        monkeypatch.setattr(kind, "_fit", killed)
    url = str(tmp_path / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        daskgp.AutoGP(**settings).fit(X, y, checkpoint=url)
    monkeypatch.undo()
    again = daskgp.AutoGP(**settings).fit(X, y, checkpoint=url)
    assert [t.score for t in again.leaderboard_] == [t.score for t in whole.leaderboard_]
    assert again.chosen_.label == whole.chosen_.label
    assert again.best_.get_params() == whole.best_.get_params()


def test_hyper_parameters_of_a_sample_are_said_to_be(monkeypatch):
    X, y, _ = rows(150)
    fit = daskgp.AutoGP(candidates=few(), **QUICK).fit
    assert not any("hyper-parameters" in said for said in fit(X, y).leaderboard_.findings)
    last = daskgp.AutoGP._last

    def without_time(self, *given):
        with monkeypatch.context() as slow:
            slow.setattr(Candidate, "one_evaluation", lambda *_: 1e6)
            return last(self, *given)

    monkeypatch.setattr(daskgp.AutoGP, "_last", without_time)
    model = fit(X, y)
    assert model.best_.optimizer is None
    said = f"hyper-parameters are those of the chosen trial, on {model.chosen_.rows:,} rows"
    assert said in model.leaderboard_.findings[-1]
    held = [daskgp.SGPR("rbf", n_inducing=20, optimizer=None)]
    model = daskgp.AutoGP(candidates=held, **QUICK).fit(X, y)
    assert not any("hyper-parameters" in said for said in model.leaderboard_.findings)


def test_candidates_that_differ_in_their_kernel_alone_have_trials_of_their_own(tmp_path):
    X, y, _ = rows(100)
    own = [daskgp.ExactGP(kernel=kernel) for kernel in ("rbf", "matern12")]
    model = daskgp.AutoGP(candidates=own, **QUICK).fit(X, y, checkpoint=str(tmp_path / "c"))
    found = {trial.kernel for trial in model.leaderboard_ if trial.method == "exact"}
    assert found == {"rbf", "matern12"}


def test_the_deadline_ends_training():
    X, y, _ = rows(2_000, 3)
    began = time.perf_counter()
    budget = 5.0
    daskgp.AutoGP(time_budget=budget, progress=False).fit(X, y)
    assert time.perf_counter() - began < 2.5 * budget  # the machine may be busy with other tests


def test_a_callback_sees_the_last_fit_alone():
    X, y, _ = rows(150)
    entries = []
    model = daskgp.AutoGP(candidates=few(), **QUICK).fit(X, y, callback=entries.append)
    assert [entry["objective"] for entry in entries] == [e["objective"] for e in model.history_]


def test_a_passed_deadline_leaves_the_first_point():
    X, y, _ = rows(100)
    with callbacks.until(time.monotonic() - 1) as deadline:
        model = daskgp.SGPR(n_inducing=20, progress=False).fit(X, y)
    assert deadline.passed
    assert np.isfinite(model.predict(X)).all()


def test_no_evaluation_is_begun_that_would_end_late():
    with callbacks.until(time.monotonic() + 60) as deadline:
        callbacks.heed(1.0)
        assert callbacks.has_room(50)
        assert not deadline.passed
        with pytest.raises(callbacks.StopTraining):
            callbacks.heed(61.0)
        assert deadline.passed
    assert callbacks.has_room(1e9)  # there is no deadline


def test_a_late_search_chooses_by_the_folds_it_has(monkeypatch):
    X, y, _ = rows(300)
    candidates = [*few(), daskgp.LMA("matern52")]
    predicted, late = trying.Trials._predicted, []

    def then_late(self, solved, fold):
        late.append(fold)
        return predicted(self, solved, fold)

    monkeypatch.setattr(trying.Trials, "_predicted", then_late)
    end = trying.Trials.end_of_search.fget
    monkeypatch.setattr(
        trying.Trials,
        "end_of_search",
        property(lambda self: time.monotonic() - 1 if late else end(self)),
    )
    model = daskgp.AutoGP(candidates=candidates, **QUICK).fit(X, y)
    assert len(late) == 1  # of five folds
    assert model.chosen_.rows < 300
    assert model.chosen_.method == "sgpr"
    assert model.chosen_.stopped
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.slow
def test_trials_of_a_cluster_run_side_by_side_and_score_the_same(default_client, monkeypatch):
    X, y, _ = rows(150)
    run, running, most = trying.Trials._run, [], []

    def counted(self, *given):
        running.append(given)
        most.append(len(running))
        try:
            return run(self, *given)
        finally:
            running.remove(given)

    monkeypatch.setattr(trying.Trials, "_run", counted)
    # expected times depend on the number of threads: all trials are affordable here
    own = [*few(), daskgp.ExactGP("rbf")]
    quick = {"candidates": own, "time_budget": 600, "progress": False}
    boards = []
    for side in (trying.SIDE_BY_SIDE, 1):
        most.clear()
        monkeypatch.setattr(trying, "SIDE_BY_SIDE", side)
        model = daskgp.AutoGP(**quick).fit(X, y)
        boards.append([(t.label, t.kernel, t.rows, t.score) for t in model.leaderboard_])
        assert max(most) == min(side, 2)
    assert boards[0] == boards[1]
    model, ended = daskgp.AutoGP(**quick), []

    def interrupted(self, candidate, *given):
        if candidate.method == "sgpr":
            while not self._deadlines:
                time.sleep(0.01)
            raise KeyboardInterrupt
        with callbacks.until(self.deadline) as deadline:
            self._deadlines.append(deadline)
            while deadline.at > 0:
                time.sleep(0.01)
            ended.append(candidate)

    monkeypatch.setattr(trying, "SIDE_BY_SIDE", 8)
    monkeypatch.setattr(trying.Trials, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    began = time.monotonic()
    while not ended and time.monotonic() < began + 10:
        time.sleep(0.05)
    assert len(ended) == 1  # a trial that is stopped stops the others


def test_a_few_rows_of_huge_loss_are_no_reason_to_say_that_nothing_is_learned():
    def tried(loss):
        return trying.Tried(None, None, np.asarray(loss), None, None, None)

    mean, rng = tried(np.full(1_000, 1.4)), np.random.default_rng(0)
    loss = 0.5 + 0.1 * rng.standard_normal(1_000)
    loss[:3] = 1e4
    assert tried(loss).mean > mean.mean
    assert tried(loss).mostly_better(mean)
    assert not mean.mostly_better(mean)
    assert not tried(loss + 1.0).mostly_better(mean)
    assert tried(loss).mostly_better(tried(mean.loss[:500]))  # one fold of two


@pytest.mark.slow
def test_classes_get_a_bernoulli_likelihood():
    X, _, f = rows(250, 1, seed=3)
    y = (f > 1).astype(float)
    svgp = daskgp.SVGP(n_inducing=10, max_iter=40, likelihood="bernoulli")
    model = daskgp.AutoGP(candidates=[svgp], **QUICK).fit(X, y)
    assert "0 or 1" in " ".join(model.findings_)
    assert np.mean((model.predict_proba(X)[:, 1] > 0.5) == y) > 0.9
    with pytest.raises(SettingError, match="crps"):
        clone(model).set_params(metric="crps").fit(X, y)


@pytest.mark.slow
def test_classes_need_no_setting():
    X, _, f = rows(150, 1, seed=3)
    y = (f > 1).astype(float)
    model = daskgp.AutoGP(time_budget=90, progress=False).fit(X, y)
    assert model.chosen_.settings["likelihood"] == "bernoulli"
    assert np.mean((model.predict_proba(X)[:, 1] > 0.5) == y) > 0.9


def test_counts_with_weights_have_a_likelihood_that_takes_them():
    X, _, f = rows(60, 1, seed=3)
    y = np.random.default_rng(0).poisson(np.exp(f)).astype(float)
    sized = Executor.current(False)
    whole = data.rows_of(X, y, None, True, None, {"weight": np.full(60, 2.0)})
    profile = profiling.of_rows(whole, None, sized)
    assert profile.kind == "count"
    found = methods(profile, {}, 60)
    assert {one.estimator.likelihood for one in found} == {profile.likelihood, "gaussian"}
    assert not any(isinstance(one.estimator, daskgp.SVGP) for one in found)


def test_folds_may_lack_a_class(unhurried):
    X, _, f = rows(60, 1, seed=3)
    y = np.where(f > 1, 2.0, 0.0)
    y[5] = 1.0  # the only one of its class, which the fold that holds it out does not learn
    ordinal = daskgp.ExactGP("matern52(0.5)", likelihood="ordinal", optimizer=None)
    model = daskgp.AutoGP(candidates=[ordinal], **QUICK).fit(X, y)
    assert model.leaderboard_.best.method == "exact"
    assert not any(trial.failed for trial in model.leaderboard_)
    assert model.best_.likelihood_.n_classes == 3


def kinds():
    """Targets of several kinds, and the likelihoods that are tried for each."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(2.0, 80)
    return {
        "counts": (counts, {"poisson", "gaussian"}),
        "scattered": (rng.poisson(rng.gamma(0.5, 6.0, 80)), {"negative-binomial", "poisson"}),
        "classes": (counts > 2, {"bernoulli"}),
        "marks": (np.clip(counts, 2, 4), {"gaussian"}),
        "measured": (counts + 0.5, {"gaussian"}),
        "negative": (counts - 3, {"gaussian"}),
        "many": (100 + counts, {"gaussian"}),
    }


@pytest.mark.whole
@pytest.mark.parametrize("kind", kinds())
def test_likelihoods_are_tried_that_suit_the_target(kind):
    y, wanted = kinds()[kind]
    X = np.random.default_rng(1).uniform(size=(len(y), 2))
    rows = data.rows_of(X, y.astype(float), None, True)
    profile = profiling.of_rows(rows, None, Executor.current(False))
    own = methods(profile, {"progress": False}, 3_000)
    assert wanted <= {one.estimator.likelihood for one in own} <= wanted | {"gaussian"}
    assert len(own) <= 6
    by_sites = {one.method for one in own if one.estimator.recipe().likelihood is not None}
    assert by_sites == ({"vecchia", "sgpr"} if wanted != {"gaussian"} else set())
    said = " ".join(profile.findings)
    assert ("likelihood" in said) == (wanted != {"gaussian"})


@pytest.mark.whole
@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ({"trials": 9.0}, "binomial"),
        ({"exposure": 2.0}, "poisson"),
        ({"offset": [0.0, 3.0]}, "negative-binomial"),
        ({"lower": 0.0, "upper": 9.0}, "censored"),
        (
            {"trials": 9.0, "exposure": 1.0},
            "the binomial likelihood takes trials beside y, no",
        ),
        ({"trials": 1.0}, "trials holds 1"),
        ({"upper": 9.0}, "rows have upper without lower"),
        ({"exposure": 2.0, "y_variance": 0.1}, "y_variance"),
    ],
)
def test_numbers_beside_the_target_say_what_it_is(columns, wanted, monkeypatch):
    y = np.random.default_rng(0).poisson(2.0, 80).astype(float)
    X, seen = np.random.default_rng(1).uniform(size=(len(y), 2)), []
    own = {name: np.resize(values, len(y)) for name, values in columns.items()}

    def tried(search, common, given):
        seen.extend(methods(search.profile, common, 3_000))
        search.trials.try_mean()
        seen.append(search.trials.of_mean)
        raise PlanError("enough")

    monkeypatch.setattr(searching.Search, "chosen", tried)
    with pytest.raises(DaskgpError) as error:
        daskgp.AutoGP(**QUICK).fit(X, y, **own)
    if not seen:
        assert wanted in str(error.value)
        assert "leave out what does not belong to y" in str(error.value)
        return
    *several, mean = seen
    assert {one.estimator.likelihood for one in several} == {wanted}
    f = {"binomial": np.log(y.mean() / (9.0 - y.mean())), "poisson": np.log(y.mean() / 2.0)}
    if wanted in f:
        likelihood = likelihoods.by_name(wanted).with_columns(own)
        density = likelihood.log_p(y[:, None], np.full((len(y), 1), f[wanted])).value
        assert mean.trial.score == pytest.approx(-density.mean(), abs=0.05)
    with pytest.raises(DaskgpError, match=r"takes whole|trials"):
        daskgp.AutoGP(**QUICK).fit(X, y + 0.5, **(own if "lower" not in own else {"trials": y}))


def test_values_between_bounds_are_compared_by_their_density_alone():
    X, y, _ = rows(30)
    with pytest.raises(SettingError, match="metric='crps' is for measured values"):
        daskgp.AutoGP(metric="crps", **QUICK).fit(X, y, lower=y, upper=y)


def test_a_likelihood_by_sites_may_be_chosen():
    X, _, f = rows(60, 1, seed=3)
    y = np.random.default_rng(0).poisson(np.exp(f)).astype(float)
    own = [daskgp.SGPR("rbf(0.7)", n_inducing=8, optimizer=None, likelihood="poisson")]
    model = daskgp.AutoGP(candidates=own, metric="crps", **QUICK).fit(X, y)
    assert model.best_.likelihood_.name == "poisson"
    assert "ranked_probability" in str(model.leaderboard_)
    assert model.chosen_.score == pytest.approx(model.chosen_.scores["ranked_probability"], rel=0.1)


@pytest.mark.slow
def test_heavy_tails_are_tried_with_student_t_noise(unhurried):
    X, y, f = rows(400, 1, noise=0.05)
    y[::12] += 6 * np.sign(np.sin(np.arange(len(y[::12]))))
    model = daskgp.AutoGP(time_budget=150, progress=False).fit(X, y)
    assert model.chosen_.settings.get("likelihood") == "student-t"
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.15


@pytest.mark.parametrize("order", ["hilbert", "random"])
def test_a_prepared_store_rules_out_what_it_cannot_be_fitted_with(order, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 2))
    y = np.sin(9 * X[:, 0]) * np.cos(7 * X[:, 1]) + 0.05 * rng.standard_normal(150)
    np.savez(tmp_path / "t.npz", X=X, y=y)
    daskgp.convert(str(tmp_path / "t.npz"), str(tmp_path / "t.zarr"), target="y")
    prepared = str(tmp_path / "p.zarr")
    daskgp.prepare(str(tmp_path / "t.zarr"), prepared, order, 40)
    own = [daskgp.LMA("matern32", n_support=20, train_blocks=4, max_iter=5), *few()]
    model = daskgp.AutoGP(candidates=own, **QUICK).fit(*daskgp.open_dataset(prepared))
    tried = {trial.method for trial in model.leaderboard_}
    assert ("lma" in tried) == (order == "hilbert")
    if order == "random":
        with pytest.raises(InputError, match="prepared in random order"):
            clone(model).set_params(candidates="lma").fit(*daskgp.open_dataset(prepared))


def test_few_rows_are_refused_with_a_remedy():
    X, y, _ = rows(3)
    with pytest.raises(InputError, match=r"3 rows are too few .*, or fit an exact GP"):
        daskgp.AutoGP(**QUICK).fit(X, y)
    X, y, _ = rows(50)
    with pytest.raises(InputError, match=r"places has shape \(3, 5\)"):
        daskgp.AutoGP(task="gaps", **QUICK).fit(X, y, places=np.ones((3, 5)))
    with pytest.raises(InputError, match=r"places is a Dataset: give .* an array \(m, d\)"):
        daskgp.AutoGP(task="gaps", **QUICK).fit(X, y, places=xr.Dataset(coords={"x0": [0.0]}))


def test_what_the_data_are_is_said():
    X, y, _ = rows(150)
    X = np.column_stack([X, np.full(150, 2.0), np.arange(150) % 3])
    model = daskgp.AutoGP(candidates=few(), **QUICK).fit(X, y)
    said = " ".join(model.findings_)
    assert "'x2' is the same in all rows" in said
    assert "'x3' takes at most" in said


@pytest.mark.slow
def test_gaps_and_forecasts_hold_out_blocks_and_the_last_part():
    X, y, _ = rows(400)
    model = daskgp.AutoGP(task="forecast", time="x1", candidates=few(), **QUICK).fit(X, y)
    assert model.held_out_.X[:, 1].min() > np.quantile(X[:, 1], 0.16)
    places = np.random.default_rng(0).uniform(3.5, 4.0, (50, 2))
    far = daskgp.AutoGP(task="gaps", candidates=few(), **QUICK).fit(X, y, places=places)
    near = daskgp.AutoGP(candidates=few(), **QUICK).fit(X, y)
    assert far.chosen_.scores["rmse"] > near.chosen_.scores["rmse"]


def test_only_predictions_among_the_rows_take_a_learned_spread():
    X, y, _ = rows(80)
    quick = {**QUICK, "candidates": [daskgp.ExactGP("rbf", max_iter=5)]}
    assert daskgp.AutoGP(task="gaps", **quick).fit(X, y).best_.calibrate is None
    assert daskgp.AutoGP(metric="rmse", **quick).fit(X, y).best_.calibrate is None
    assert daskgp.AutoGP(**quick).fit(X, y, y_variance=0.01).best_.calibrate is None


def test_a_constant_target_is_fitted_as_by_the_others(caplog):
    X, _, _ = rows(60)
    with caplog.at_level(logging.WARNING, "daskgp"):
        model = daskgp.AutoGP(candidates="exact", kernel="rbf", **QUICK).fit(X, np.full(60, 3.0))
    assert "nothing to learn" in caplog.text
    assert model.best_.calibrate is None
    np.testing.assert_allclose(model.predict(X[:3]), 3.0)


def test_candidates_and_kernels_may_be_given():
    X, y, _ = rows(100)
    own = [daskgp.SGPR(n_inducing=n, max_iter=10) for n in (3, 30)]
    model = daskgp.AutoGP(kernel="rbf(ard=true)", candidates=own, metric="rmse", **QUICK).fit(X, y)
    assert model.best_.n_inducing == 30
    assert {trial.kernel for trial in model.leaderboard_ if trial.method != "mean"} == {"rbf (ard)"}


def test_a_candidate_that_trains_nothing_is_held_as_it_is():
    one = Candidate("method", daskgp.CGGP("rbf"))
    assert repr(one.held().estimator) == repr(one.estimator)


def test_a_candidate_that_fails_is_on_the_board_and_not_chosen(monkeypatch):
    X, y, _ = rows(100)

    def broken(self, *given, **more):
        raise daskgp.errors.NumericalError("no factor")

    monkeypatch.setattr(daskgp.LMA, "_fit", broken)
    model = daskgp.AutoGP(candidates=[daskgp.LMA(), *few()], **QUICK).fit(X, y)
    assert model.chosen_.method == "sgpr"
    failed = next(trial for trial in model.leaderboard_ if trial.method == "lma")
    assert failed.failed == "no factor"


def test_features_that_say_nothing_are_told(caplog):
    rng = np.random.default_rng(1)
    X, y = rng.uniform(size=(200, 3)), rng.standard_normal(200)
    with caplog.at_level(logging.WARNING, "daskgp"):
        model = daskgp.AutoGP(candidates=few(), **QUICK).fit(X, y)
    mean = next(trial for trial in model.leaderboard_ if trial.method == "mean")
    assert model.chosen_.score < mean.score + 0.05
    told = any("no method predicts most" in record.getMessage() for record in caplog.records)
    assert told or model.chosen_.score < mean.score + 0.01


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"time_budget": 0}, "time_budget"),
        ({"time_budget": "30s"}, "time_budget='30s': a number of seconds is needed"),
        ({"memory": "lots"}, "memory='lots': give bytes"),
        ({"memory": "-4GiB"}, "memory='-4GiB': it must be greater than 0"),
        ({"memory": True}, "memory=True: a number is needed"),
        ({"mean": "x0"}, "such as mean=['x0']"),
        ({"task": "guess"}, "task"),
        ({"metric": "mae"}, "metric"),
        ({"candidates": "sgpr,best"}, "candidates have 'best'"),
        ({"candidates": []}, "candidates"),
        ({"candidates": "cggp", "metric": "rmse"}, "candidate cggp: CGGP gives a mean but no var"),
        ({"time": "x0"}, "set task='forecast'"),
        ({"task": "forecast"}, "set time= (--set time=NAME) to one of x0, x1"),
        ({"task": "forecast", "time": "t"}, "time='t'"),
    ],
)
def test_impossible_settings_are_refused_before_any_work(settings, says):
    X, y, _ = rows(50)
    with pytest.raises(InputError) as error:
        daskgp.AutoGP(**{**QUICK, **settings}).fit(X, y)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_budgets_that_are_too_small_are_refused(monkeypatch):
    X, y, _ = rows(3_000)
    monkeypatch.setattr(trying.Trials, "_run", None)  # before anything is tried
    with pytest.raises(PlanError, match=r"give at least \d\d? s"):
        daskgp.AutoGP(time_budget=0.5, progress=False).fit(X, y)
    with pytest.raises(PlanError, match="raise memory"):
        daskgp.AutoGP(memory="1MiB", **QUICK).fit(X, y)


def test_the_plan_is_the_work_of_the_costliest_candidate_and_the_most_memory():
    X, y, _ = rows(1_000)
    plan = daskgp.AutoGP(progress=False).plan(X, y)
    own = [kind(progress=False).plan(X, y) for kind in (daskgp.SGPR, daskgp.LMA, daskgp.ExactGP)]
    for name in ("operations", "bytes_per_worker", "bytes_predict", "bytes_on_disk"):
        assert getattr(plan, name) == max(getattr(one, name) for one in own)


def test_weights_and_errors_go_along(tmp_path):
    X, y, _ = rows(300)
    variance = np.full(300, 0.5)
    known = daskgp.AutoGP(candidates=few(), **QUICK).fit(X, y, y_variance=variance)
    assert known.noise_variance_ * np.var(y) < 0.1  # the rest is the known error


def test_a_kernel_is_told_by_the_features_that_it_has():
    features = ("lon", "lat", "depth", "day")
    space = kernels.Matern52(ard=True, active_dims=((0, 1), 2))
    assert structure(space * kernels.RBF(active_dims=["day"]), features) == (
        "matern52 (ard) of lon, lat, depth * rbf of day"
    )
    everything = kernels.Matern12(ard=True, active_dims=((0, 1), 2, 3))
    assert structure(everything + kernels.RBF(), features) == "matern12 (ard) + rbf"
