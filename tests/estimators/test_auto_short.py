"""Promises of AutoGP with little time: few rows go to the exact GP, methods are told by many."""

import itertools
import math
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import daskgp
from daskgp import data, kernels, metrics
from daskgp.assess.leaderboard import HeldOut
from daskgp.choose import auto as choosing
from daskgp.choose import candidates, cycles, held_out
from daskgp.choose import profile as profiling
from daskgp.choose import search as searching
from daskgp.choose import trials as trying
from daskgp.choose.candidates import Candidate, methods, plan_of, structures
from daskgp.choose.cycles import Cycle, Series
from daskgp.runtime.executor import Executor

OWN = {"kernel": "matern52", "mean": "constant", "progress": False}


def waves(n, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, d))
    f = np.sin(9 * X[:, 0]) * np.cos(7 * X[:, -1])
    return X, f + 0.1 * rng.standard_normal(n), f


def test_rows_that_the_exact_gp_takes_all_of_go_to_no_approximation_of_it():
    X, y, _ = waves(60)
    board = daskgp.AutoGP(time_budget=20, **OWN).fit(X, y).leaderboard_
    assert {trial.method for trial in board} == {"mean", "exact"}
    assert (board.best.stage, board.best.rows) == ("method", 48)


@pytest.fixture(scope="module")
def short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "STRUCTURE_ROWS", 300)
        patch.setattr(candidates, "EXACT_ROWS", 1_000)
        patch.setattr(trying.Trials, "deadline", property(lambda self: np.inf))
        patch.setattr(trying.Trials, "slowness", lambda self, method: 1.0)
        X, y, _ = waves(4_100)
        return daskgp.AutoGP(time_budget=2.8, **OWN).fit(X, y)


def test_methods_of_a_short_search_are_compared_on_many_rows(short):
    held = [trial for trial in short.leaderboard_ if trial.stage == "method"]
    assert {"vecchia", "sgpr"} <= {trial.method for trial in held}
    assert {trial.rows for trial in held} == {3_280}


def test_a_short_search_says_where_hyperparameters_are_from_and_leaves_them_to_the_last_fit(short):
    assert any("hyper-parameters of the exact GP on 300 rows" in one for one in short.findings_)
    assert "optimizer" not in short.chosen_.settings
    places, _, f = waves(500, seed=1)
    assert np.sqrt(np.mean((short.predict(places) - f) ** 2)) < 0.05


@pytest.mark.slow
def test_what_the_exact_gp_of_few_rows_cannot_tell_is_learned_by_neighbours(monkeypatch):
    monkeypatch.setattr(searching, "STRUCTURE_ROWS", 300)
    monkeypatch.setattr(searching.Search, "_with_time_left", lambda self, best, several: best)
    monkeypatch.setattr(candidates, "EXACT_ROWS", 1_000)
    monkeypatch.setattr(trying.Trials, "deadline", property(lambda self: np.inf))
    X, y, _ = waves(4_100)
    model = daskgp.AutoGP(time_budget=8, **OWN | {"kernel": None}).fit(X, y)
    assert any("hyper-parameters of VecchiaGP on 3,280 rows" in one for one in model.findings_)
    board = [one for one in model.leaderboard_ if one.rows == 3_280]
    assert len({one.kernel for one in board if one.method == "vecchia"}) > 1
    assert any(one.method == "sgpr" for one in board)
    assert model.chosen_ in board


@pytest.mark.parametrize("busy", [0.0, 0.3])
def test_the_budget_does_not_count_what_is_compiled_once(busy, monkeypatch, caplog):
    def compiled():
        end = time.process_time() + busy
        while time.process_time() < end:
            pass
        time.sleep(0.3)  # a busy machine

    monkeypatch.setattr(trying.conditionals, "compiled", compiled)
    monkeypatch.setattr(trying.conditionals, "LONG", 0.2)
    trials = SimpleNamespace(began=0.0)
    with caplog.at_level("INFO"):
        trying.Trials._compile(trials)
    assert (trials.began >= 0.6) == ("budget does not count" in caplog.text) == (busy > 0)
    assert busy or trials.began == 0.0


@pytest.mark.whole
@pytest.mark.parametrize(("left", "said"), [(-1.0, False), (-3.0, True), (-math.inf, False)])
def test_a_budget_that_could_not_be_kept_is_told(left, said, caplog):
    trials = SimpleNamespace(rules=SimpleNamespace(seconds=10.0), left=left)
    choosing._say_late(trials)
    assert ("took 13 s, beyond time_budget=10 s" in caplog.text) == said == bool(caplog.records)


@pytest.mark.whole
@pytest.mark.parametrize(("stopped", "took", "told"), [(0, 1, 1), (0, 9, 1), (1, 1, 0), (1, 9, 1)])
def test_a_trial_that_was_cut_short_tells_the_pace_if_it_took_longer(stopped, took, told):
    one = SimpleNamespace(
        trial=SimpleNamespace(failed="", stopped=stopped, method="exact"), candidate=None
    )
    trials = SimpleNamespace(tried=[one] * 2, _played={}, _paces=[], kept=None)
    trials._key = lambda candidate, rows: "key"
    trying.Trials._pace(trials, [one], 100, 2.0, took)
    assert [pace.took for pace in trials._paces] == [took] * told


def test_many_features_are_given_neighbours_too():
    profile = profiling.Profile(3_000, tuple("abcdefgh"), (), (), "measured", 0.0)
    assert methods(profile, {}, 3_000)[0].method == "vecchia"


def test_a_kernel_of_one_column_may_repeat_and_others_begin_where_the_first_has_ended():
    series = Series((Cycle(365.25, 2.0), Cycle(7.0, 0.5)), 1_500.0, 0.3, 20.0, 0.1)
    profile = profiling.Profile(500, ("t",), (), (), "measured", 0.0, series=series)
    first = kernels.Matern32(lengthscale=(2.0,), variance=3.0, ard=True)
    several = structures(daskgp.ExactGP(), profile, first, 0.2)
    found = {one.structure: one.estimator for one in several}
    both = found["matern32 + 2 periodic * rbf"].kernel
    assert [part.parts[0].period for part in both.parts[1:]] == [365.25, 7.0]
    trained = {name: one.limits for name, one in found.items() if "periodic" in name}
    assert [*trained.values()] == [series.limits] * 2
    asked = structures(daskgp.ExactGP(limits={"variance": (1, 2)}), profile, first, 0.2)
    assert {str(one.estimator.limits) for one in asked} == {"{'variance': (1, 2)}"}
    rbf = found["rbf (ard)"]
    assert (rbf.kernel.lengthscale, rbf.kernel.variance, rbf.noise_variance) == ((2.0,), 3.0, 0.2)


def test_a_fold_begins_where_another_has_ended_unless_its_levels_may_be_others():
    kernel = kernels.Matern32(lengthscale=2.0, variance=3.0)
    own = Candidate("method", daskgp.ExactGP())
    assert own.again(kernel, 0.3).estimator.noise_variance == 0.3
    levels = kernel * kernels.Categorical(1)
    assert own.again(levels, 0.3) is own


def test_chance_is_that_of_regions_where_these_are_held_out():
    X = np.random.default_rng(0).uniform(size=(1_600, 2))
    cells = trying.cells_of(X)
    assert np.bincount(cells).tolist() == [100] * 16
    rng = np.random.default_rng(1)
    alike = rng.standard_normal((400, 16))[:, cells] + 0.1 * rng.standard_normal((400, 1_600))
    seen = alike.mean(axis=1).std()
    errors = [trying.error_of(one, cells) for one in alike]
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(seen, rel=0.15)
    assert trying.error_of(alike[0]) < 0.3 * seen


def test_a_kernel_that_has_its_numbers_takes_less_time():
    rows = data.rows_of(*waves(400)[:2], None, True)
    seconds = []
    for kernel in (kernels.Matern32(ard=True), kernels.Matern32((1.0, 1.0), 1.0, ard=True)):
        own = Candidate("method", daskgp.VecchiaGP(kernel))
        plan = plan_of(own.estimator, rows, Executor.current(False))
        seconds.append(own.seconds(plan, 1, rows))
    assert seconds[1] < seconds[0]


def test_cycles_are_found_one_after_another_beside_a_trend_and_outliers():
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0, 1_500, 1_200))
    y = 0.002 * t + np.sin(2 * np.pi * t / 365) + 0.3 * np.cos(2 * np.pi * t / 7)
    y += 0.2 * np.cos(4 * np.pi * t / 7) + 0.2 * rng.standard_normal(1_200)
    y[::40] += 20
    found = cycles.of_series(t, y).cycles
    assert [one.period for one in found] == pytest.approx([365, 7], rel=0.02)
    assert [one.variance for one in found] == pytest.approx([0.5, 0.065], rel=0.2)


@pytest.mark.parametrize(
    ("method", "size", "left", "taken"),
    [
        ("exact", 800, 10.0, True),
        ("exact", 2_000, 10.0, True),
        ("sgpr", 400, 10.0, True),
        ("sgpr", 2_000, 10.0, False),  # which had more rows
        ("lma", 400, 10.0, False),  # no candidate
        ("exact", 800, 1e-6, False),  # no time for its last fit
    ],
)
def test_no_method_is_chosen_that_a_kernel_on_fewer_rows_is_better_than(method, size, left, taken):
    def trial(method, rows, score):
        loss = score + np.random.default_rng(0).standard_normal(200)
        candidate = Candidate("method", daskgp.ExactGP(kernels.RBF(1.0, 1.0)))
        own = SimpleNamespace(method=method, rows=rows)
        return trying.Tried(own, candidate, loss, None, kernels.RBF(1.0, 1.0), 0.1)

    best, other = trial("vecchia", 1_000, 0.3), trial(method, size, 0.2)
    given = data.rows_of(*waves(3_000)[:2], None, True)
    failed = other._replace(loss=np.empty(0))
    several = [best, failed, other]
    trials = SimpleNamespace(rows=given, executor=Executor.current(False), profile=None)
    trials.tried, trials.left, trials.pace = several, left, lambda method: 1.0
    trials.rules, trials.fits = SimpleNamespace(seconds=30.0), lambda *own: True
    found = searching.Search(trials)._overtaken(best, {"exact", "sgpr", "vecchia"})
    assert found is (other if taken else best)


def test_what_approximates_the_exact_gp_is_not_tried_beside_it_on_all_rows_of_a_fold():
    def trial(method, rows):
        own = SimpleNamespace(method=method, rows=rows)
        return trying.Tried(own, None, np.zeros(9), None, None, None)

    search = searching.Search(SimpleNamespace(most_rows=1_000, profile=None))
    found = [trial("exact", 1_000), trial("exact", 999), trial("vecchia", 1_000), None]
    assert [search._has_all(one) for one in found] == [True, False, False, False]


def test_a_trend_is_compared_with_none_beside_a_kernel_that_is_given():
    t = np.arange(120.0)
    y = 0.5 * t + np.random.default_rng(0).standard_normal(120)
    own = {"time_budget": 40, "task": "forecast", "time": 0, "kernel": "rbf", "progress": False}
    model = daskgp.AutoGP(**own).fit(t[:, None], y)
    assert model.best_.mean == "linear"
    assert {one.kernel for one in model.leaderboard_ if one.method != "mean"} == {"rbf"}
    asked = daskgp.AutoGP(**own, mean="constant").fit(t[:, None], y)
    assert {one.settings.get("mean") for one in asked.leaderboard_} == {None}


@pytest.mark.parametrize("forecast", [True, False])
def test_a_trend_of_a_forecast_is_taken_where_it_does_better_though_it_may_be_chance(forecast):
    def trial(kernel, score):
        loss = score + np.random.default_rng(0).standard_normal(200)
        named = SimpleNamespace(kernel=kernel)
        return trying.Tried(named, None, loss, None, None, None)

    plain, trend, other = trial("matern32", 0.1), trial("matern32", 0.0), trial("rbf", -1.0)
    rules = SimpleNamespace(forecast=forecast)
    search = searching.Search(SimpleNamespace(rules=rules, profile=None))
    found = search._with_mean(plain, [plain, trend, other])
    assert found is (trend if forecast else plain)


@pytest.mark.parametrize("mean", ["constant", "linear"])
def test_a_cycle_of_few_turns_becomes_no_trend(mean):
    t = np.arange(0.0, 600, 5)
    y = 0.004 * t + np.sin(t / 400) + 0.15 * np.random.default_rng(0).standard_normal(len(t))
    series = Series((Cycle(365.0, 0.5),), 600.0, 0.1, 20.0, 0.05)
    profile = profiling.Profile(len(t), ("t",), (), (), "measured", 0.0, series=series)
    tried = structures(daskgp.ExactGP(progress=False), profile, kernels.Matern32())
    own = next(one.estimator for one in tried if one.cyclic and one.estimator.mean == mean)
    period = own.fit(t[:, None], y).kernel_.parts[1].parts[0].period
    assert abs(600 / period - 600 / 365) <= 0.5 + 1e-9


@pytest.mark.parametrize("periods", [(61.3,), (9.67, 9.49), (365.25, 29.53, 7.0)])
def test_lines_are_found_with_nothing_beside_them_whatever_the_noise(periods):
    rng = np.random.default_rng(3)
    times = np.linspace(0, 1_500, 1_200), np.sort(rng.uniform(0, 1_500, 1_200))
    for noise, t in itertools.product((1e-6, 1e-3, 0.3), times):
        y = sum(np.sin(2 * np.pi * t / one + one) / i for i, one in enumerate(periods, 1))
        found = cycles.of_series(t, y + noise * rng.standard_normal(len(t))).cycles
        assert [one.period for one in found] == pytest.approx(periods, rel=0.02 * noise)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_beside_a_cycle_reaches_to_the_next_place_at_least(seed):
    t = np.repeat(np.arange(300.0), 20)
    noise = np.random.default_rng(seed).standard_normal(len(t))
    found = cycles.of_series(t, 3 * np.sin(2 * np.pi * t / 12) + noise)
    assert found.length >= 0.999
    assert found.noise == pytest.approx(1 / 5.5, rel=0.1)


def test_noise_has_no_cycle():
    rng = np.random.default_rng(1)
    for x in (np.arange(1_000.0), np.sort(rng.uniform(size=1_000)), np.zeros(1_000)):
        assert cycles.of_series(x, rng.standard_normal(1_000)).cycles == ()


def test_a_forecast_is_learned_from_half_of_the_rows_at_least(tmp_path):
    X, y, _ = waves(300, 1)
    rows, here = data.rows_of(X, y, None, True), Executor.current(False)
    parts = held_out.folds_of(rows, 300, "forecast", 0, None, 0, str(tmp_path / "f"), here)
    found = [parts.trained(fold) for fold in parts.folds]
    assert found == pytest.approx([150, 180, 210, 240, 270], abs=1)


@pytest.mark.parametrize("number", [2, 3, 7, 8])
def test_forecasts_of_few_times_are_of_as_many_folds_as_these_allow(tmp_path, number):
    when = np.repeat(np.arange(float(number)), 30)
    rows, here = data.rows_of(when[:, None], when, None, True), Executor.current(False)
    parts = held_out.folds_of(rows, len(when), "forecast", 0, None, 0, str(tmp_path / "f"), here)
    found = [(parts.trained(fold), parts.tested(fold)) for fold in parts.folds]
    assert found
    assert all(2 * trained >= len(when) - 60 and tested for trained, tested in found)
    assert sum(found[-1]) == len(when)


def test_a_spread_that_varies_is_told_from_one_that_does_not():
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(1_000, 3))
    z = rng.standard_normal((1_000, 1))
    nothing = [np.zeros((1_000, 1))] * (len(HeldOut._fields) - 4)
    for own, varies in ((z, False), (z * (0.5 + X[:, :1]), True)):
        found = HeldOut(X, own, 0 * own, own**0, own, *nothing[1:])
        assert searching.spread_varies(found) is varies


@pytest.mark.slow
def test_what_expected_times_have_shut_out_is_tried_in_the_time_that_is_left(monkeypatch):
    expected, boards = trying.Trials.expected, []
    monkeypatch.setattr(trying.Trials, "expected", lambda self, *own: 100 * expected(self, *own))
    for lazy in (True, False):
        with monkeypatch.context() as patch:
            if lazy:
                patch.setattr(searching.Search, "_with_time_left", lambda self, best, _: best)
            X, y, _ = waves(4_100)
            boards.append(daskgp.AutoGP(time_budget=40, **OWN).fit(X, y).leaderboard_)
    few, more = ({trial.label for trial in board} for board in boards)
    assert few < more
    assert any("varying" in label for label in more)


def test_a_search_that_goes_on_knows_how_long_trials_took_and_makes_the_same_last_steps(
    monkeypatch, tmp_path
):
    expected, keep, found = trying.Trials.expected, trying.KeptTrials.append, []

    def late(self, number, said, arrays):
        keep(self, number, {**said, "spent": 41.0}, arrays)

    def stopped(self, best, rows, trials):
        found.append(([one.trial.label for one in trials.tried], trials.pace("vecchia")))
        raise KeyboardInterrupt

    monkeypatch.setattr(trying.Trials, "expected", lambda self, *own: 100 * expected(self, *own))
    monkeypatch.setattr(trying.KeptTrials, "append", late)
    monkeypatch.setattr(daskgp.AutoGP, "_last", stopped)
    X, y, _ = waves(4_100)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            daskgp.AutoGP(time_budget=40, **OWN).fit(X, y, checkpoint=str(tmp_path / "c"))
    first, again = found
    assert any("varying" in label for label in first[0])
    assert again == first
    assert first[1] != 1


def test_targets_count_alike_whatever_their_units():
    rng = np.random.default_rng(0)
    y, error = rng.standard_normal((400, 2)), np.abs(rng.standard_normal((400, 2)))
    y[:, 1] *= 1_000

    def tried(*factors):
        crps = error * [1, 1_000] * np.array(factors)
        own = HeldOut(y, y, y + crps, *[crps] * (len(HeldOut._fields) - 3))
        return trying.Tried(None, None, held_out.loss_of(own, "crps"), own, None, None)

    one, other = tried(1.0, 1.0), tried(0.5, 1.01)
    assert other.surely_closer(one)
    assert one.surely_worse(other)
    assert not one.surely_closer(other)


def test_a_target_that_no_held_out_row_has_is_not_counted():
    y = np.array([[0.0, np.nan], [2.0, np.nan], [4.0, np.nan]])
    own = HeldOut(y, y, y + 0.5, *[y] * (len(HeldOut._fields) - 3))
    assert held_out.loss_of(own, "rmse") == pytest.approx([0.25, 0.25, 0.25])


@pytest.mark.parametrize("metric", ["rmse", "crps", "nlpd"])
def test_a_target_that_does_not_vary_says_nothing_beside_others(metric):
    y = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    parts = dict.fromkeys(HeldOut._fields, np.array([[0.5, -300.0]] * 3)) | {"X": y, "y": y}
    both = HeldOut(**parts)
    alone = HeldOut(**{name: values[:, :1] for name, values in parts.items()})
    assert held_out.loss_of(both, metric) == pytest.approx(held_out.loss_of(alone, metric))


def test_held_out_rows_are_scored_with_the_spread_that_they_tell():
    rng = np.random.default_rng(0)
    mean, wide = rng.standard_normal((400, 1)), np.full((400, 1), 4.0)
    y = mean + 0.5 * rng.standard_normal((400, 1))
    z = (y - mean) / 2
    density = -0.5 * np.log(2 * np.pi * wide) - z**2 / 2
    nothing = np.full((400, 1), np.nan)
    crps = metrics.crps_of(z, np.sqrt(wide))
    given = HeldOut(y, y, mean, wide, z, density, crps, nothing, nothing)
    found = held_out.with_spread(given)
    std = np.sqrt(found.variance)
    assert np.mean(found.score**2) == pytest.approx(1)
    assert std[0, 0] == pytest.approx(0.5, rel=0.1)
    np.testing.assert_allclose(found.density, norm(mean, std).logpdf(y))
    np.testing.assert_allclose(found.crps, metrics.crps_of((y - mean) / std, std))
    few = HeldOut(*(part[:20] for part in given))
    assert held_out.with_spread(few) is few


def search_of(*means):
    """A search for NLPD whose best trial is the first one, and trials of such scores."""
    noise = np.random.default_rng(0).standard_normal(1_000)
    several = []
    for number, mean in enumerate(means):
        loss = mean + (0.0 if number == 0 else 5.0) * (noise - noise.mean())
        several.append(trying.Tried(None, None, loss, None, None, None))
    rules = trying.Rules(30.0, None, "nlpd", 0)
    return searching.Search(SimpleNamespace(rules=rules, profile=None)), several


def test_what_may_be_chance_is_only_preferred_where_it_is_not_much():
    search, (best, little, much) = search_of(1.0, 1.03, 1.2)
    assert not much.surely_worse(best)
    assert search._hardly_worse(little, best)
    assert not search._hardly_worse(much, best)


@pytest.mark.slow
def test_what_takes_long_though_it_holds_waits_for_the_time_that_is_left(monkeypatch):
    monkeypatch.setattr(searching, "STRUCTURE_ROWS", 300)
    X, y, _ = waves(4_100)
    found = []

    def noted(self, best, several):
        found.append({one.method for one in several})
        found.append({one.trial.method for one in self.trials.tried})
        raise KeyboardInterrupt

    monkeypatch.setattr(searching.Search, "_with_time_left", noted)
    with pytest.raises(KeyboardInterrupt):
        daskgp.AutoGP(time_budget=20, **OWN).fit(X, y)
    several, tried = found
    assert "lma" in several
    assert "vecchia" in tried
    assert "lma" not in tried


@pytest.mark.parametrize(("features", "least", "most"), [(2, 0.0, 0.1), (10, 1.0, 3.0)])
def test_rows_of_many_features_that_are_left_out_are_known_to_take_long(features, least, most):
    given = data.rows_of(*waves(8_000, features)[:2], None, True)
    kernel = kernels.Matern32((1.0,) * features, 1.0, ard=True)
    own, executor = Candidate("method", daskgp.VecchiaGP(kernel)), Executor.current(False)
    plan = plan_of(own.estimator, given, executor)
    assert least <= own.left_out_seconds(plan, 1, given) <= most


def test_the_exact_gp_is_tried_on_fewer_rows_where_there_is_no_time_for_its_last_fit():
    given = data.rows_of(*waves(10_000)[:2], None, True)
    own = Candidate("method", daskgp.ExactGP(kernels.Matern32((1.0, 1.0), 1.0, ard=True)))
    trials = SimpleNamespace(rows=given, executor=Executor.current(False), profile=None)
    trials.pace = lambda method: 2.0
    trials.expected = lambda several, rows: 3.0 * (rows / 8_000) ** 3
    trials.first_kept = lambda several, rows: None
    held, threads = own.held(), trials.executor.threads()
    plan = plan_of(held.estimator, given, trials.executor)
    last = held.seconds(plan, threads, given) + held.left_out_seconds(plan, threads, given)
    for left, wanted in ((4.0, 8_000), (2.0, 4_000), (-1.0, 4_000)):
        trials.left = 2 * (last + left)
        assert searching.Search(trials)._rows_in_time(own, 8_000) == wanted


@pytest.mark.slow
def test_hyper_parameters_of_more_rows_are_tried_where_the_last_fit_cannot_train_them(monkeypatch):
    monkeypatch.setattr(searching, "CYCLE_ROWS", 60)
    monkeypatch.setattr(searching.Search, "_seconds_of_last", lambda self, candidate: np.inf)
    t = np.arange(400.0)
    y = np.sin(2 * np.pi * t / 25) + 0.5 * np.sin(2 * np.pi * t / 7)
    y += 0.3 * np.random.default_rng(0).standard_normal(400)
    model = daskgp.AutoGP(time_budget=600, progress=False).fit(t[:, None], y)
    board = [one for one in model.leaderboard_ if "periodic" in one.kernel]
    assert {one.rows for one in board} >= {60, 120, 320}
    held = [one for one in board if one.rows == 320]
    assert len(held) > 1
    assert model.chosen_.score == min(one.score for one in held)


def test_what_was_held_is_trained_in_the_time_that_is_left_unless_it_is_far_behind():
    search, (best, near, far, trained) = search_of(1.0, 1.1, 1.5, 1.1)
    search.trials.tried = several = [near._replace(learned=9), far._replace(learned=9), trained]
    search.trials.of_mean = SimpleNamespace(mean=3.0)
    assert search._settled(best) == several[1:]


@pytest.mark.slow
def test_the_constant_mean_is_no_method_that_is_trained(monkeypatch):
    made = []
    trials = searching.Search._trials

    def noted(self, asked, *given, **more):
        made.extend(asked)
        return trials(self, asked, *given, **more)

    monkeypatch.setattr(searching.Search, "_trials", noted)
    monkeypatch.setattr(trying.Trials, "deadline", property(lambda self: np.inf))
    X, y, _ = waves(4_900)
    daskgp.AutoGP(time_budget=2.5, kernel="matern52", progress=False).fit(X, y)
    assert made
    assert all(one.stage != "mean" for one in made)


def test_a_trial_without_predictions_has_no_regions():
    assert trying.cells_of(np.empty((0, 2))).shape == (0,)


def test_rows_of_a_place_that_is_held_out_err_alike():
    rng = np.random.default_rng(0)
    X, y, _ = waves(60)
    X = np.repeat(X, 20, axis=0)
    y = np.repeat(y, 20) + 0.1 * rng.standard_normal(1_200)
    own = [daskgp.SGPR("matern52", n_inducing=15, max_iter=5)]
    board = daskgp.AutoGP(time_budget=40, candidates=own, progress=False).fit(X, y).leaderboard_
    alone = board.best.scores
    assert board.best.error > 2 * np.sqrt(0.5 / 1_200)
    assert np.isfinite(alone["rmse"])


@pytest.mark.slow
def test_kernels_on_the_sphere_begin_where_the_first_has_ended():
    first = kernels.Matern32((2.0,), 3.0, ard=True, active_dims=((0, 1),))
    profile = profiling.Profile(500, ("lon", "lat"), (), (), "measured", 0.0)
    for one in structures(daskgp.ExactGP(geographic=[0, 1]), profile, first, 0.2):
        kernel = one.estimator.kernel
        assert getattr(kernel, "lengthscale", None) is None or kernel.active_dims == ((0, 1),)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-180, 180, 150), rng.uniform(-80, 80, 150)])
    y = np.sin(np.radians(X[:, 0])) + 0.1 * rng.standard_normal(150)
    model = daskgp.AutoGP(time_budget=20, progress=False, geographic=[0, 1]).fit(X, y)
    assert model.chosen_.scores["rmse"] < 0.4


def test_a_category_is_not_called_a_number():
    X = pd.DataFrame({"a": np.arange(90.0), "kind": np.tile(["u", "v", "w"], 30)})
    rows = data.rows_of(X, np.arange(90.0), None, True)
    profile = profiling.of_rows(rows, None, Executor.current(False))
    assert "kind" in rows.categories
    assert profile.discrete == ()


def of_sites(n):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(size=n), "site": np.resize(list("abc"), n)})
    return X, np.sin(6 * X.x) + (X.site == "c") + 0.1 * rng.standard_normal(n)


@pytest.mark.slow
@pytest.mark.parametrize("own", [{}, {"kernel": kernels.Categorical("site") * kernels.RBF()}])
def test_all_kernels_take_categories(own):
    model = daskgp.AutoGP(time_budget=40, progress=False, **own).fit(*of_sites(90))
    tried = [one.kernel for one in model.leaderboard_ if one.method != "mean"]
    assert all(name.startswith("categorical * ") and "site" not in name for name in tried)
    assert own or len({*tried}) > 2


def test_kernels_of_numbers_beside_categories_begin_where_the_first_has_ended():
    inner = kernels.Matern32((1.0, 2.0, 3.0), 1.0, ard=True, active_dims=(0, 1, 3))
    first = kernels.Categorical(2, correlation=0.4, variance=5.0, levels=3) * inner
    own = {"times": (3,), "categories": ("site",)}
    profile = profiling.Profile(500, ("x", "z", "site", "t"), (), (), "measured", 0.0, **own)
    assert (profile.varying, profile.numbers) == (4, 3)
    found = {
        one.structure: one.estimator.kernel.parts
        for one in structures(daskgp.ExactGP(), profile, first, 0.2)
    }
    assert all(parts[0].column == 2 for parts in found.values())
    level, rbf = found["rbf (ard)"]
    assert (level.correlation, level.variance, rbf.lengthscale) == (0.4, 5.0, (1.0, 2.0, 3.0))
    assert found["matern32, one lengthscale"][0].correlation is None
    space, time = found["matern32 of space * matern32 of time"][1:]
    assert (space.active_dims, time.active_dims) == ((0, 1), (3,))


def test_rows_that_take_no_other_noise_are_said_to_have_heavy_tails_alone():
    profile = profiling.Profile(500, ("x",), (), (), "measured", 0.0)
    tails = np.random.default_rng(0).standard_t(2, (500, 1))
    for alone, says in (("", "noise is tried"), ("y_variance", "cannot be with y_variance")):
        found = profile.with_tails(tails, alone)
        assert found.heavy
        assert found.findings[0].endswith(says)


@pytest.mark.parametrize(
    ("learned", "learner", "by"),
    [
        (0, "", "the chosen trial, on 800 rows"),  # of kernels, that had done better
        (4_000, "vecchia", "VecchiaGP, on 4,000 rows"),
        (600, "exact", "the exact GP, on 600 rows"),
    ],
)
def test_hyper_parameters_that_are_not_trained_are_said_to_be_those_that_they_are(
    learned, learner, by
):
    own, candidate = SimpleNamespace(rows=800), Candidate("method", daskgp.ExactGP())
    given = own, candidate, np.zeros(9), None, None, None
    found = trying.Tried(*given, learned=learned, learner=learner)
    board = SimpleNamespace(findings=[])
    board.with_finding = lambda text: board.findings.append(text) or board
    trials = SimpleNamespace(of_mean=found._replace(loss=np.ones(9)), ended=False)
    search = SimpleNamespace(leaderboard=lambda best: board, trials=trials)
    search.holding, search.holder, search.trained = 4_000, "vecchia", False
    daskgp.AutoGP()._judged(search, found, daskgp.ExactGP(optimizer=None))
    assert board.findings[0].endswith("hyper-parameters of VecchiaGP on 4,000 rows")
    assert board.findings[1].endswith(f"hyper-parameters are those of {by}")


def test_periods_stay_near_their_lines_in_methods_that_train_them_later():
    search, (best,) = search_of(1.0)
    kernel, limits = kernels.Periodic(1.0, 7.0, 1.0), {"period": (6.9, 7.1)}
    own = Candidate("structure", daskgp.ExactGP(kernel, limits=limits), "matern32 + 1 periodic")
    start = best._replace(candidate=own, kernel=kernel, noise_variance=0.1)
    several = [Candidate("method", one) for one in (daskgp.SGPR(), daskgp.VecchiaGP())]
    for one in several:
        assert search._begun(one, start).estimator.limits == limits


HEAVY = Candidate("method", daskgp.SGPR(n_inducing=20, likelihood="student-t"))


def robust_search(monkeypatch, better, most=math.inf):
    """A search of two kernels on 1,000 rows, the second of which shows heavy tails if better."""
    noise = 0.1 * np.random.default_rng(0).standard_normal(200)

    def trial(kernel, candidate, rows, mean):
        named = replace(candidate, structure=kernel.name)
        own = SimpleNamespace(method=named.method, rows=rows)
        return trying.Tried(own, named, mean + noise, None, kernel, 0.1)

    exact = Candidate("structure", daskgp.ExactGP())
    both = [trial(kernel, exact, 1_000, 1.0) for kernel in (kernels.Matern12(), kernels.RBF())]
    given = data.rows_of(*waves(6_000)[:2], None, True)
    trials = SimpleNamespace(rows=given, profile=SimpleNamespace(rows=6_000), spent=0.0)
    trials.most_rows = 4_800
    trials.room_for = lambda several, rows, share: several if rows <= most else several[:1]
    search = searching.Search(trials)
    search._compared, asked = both, []

    def holding(several, rows, share):
        asked.append((len(several), several[0].structure, rows))
        good = [one.robust and one.structure in better for one in several]
        means = [0.0 if own else 1.0 for own in good]
        pairs = zip(several, means, strict=True)
        return [trial(one.estimator.kernel, one, rows, mean) for one, mean in pairs]

    monkeypatch.setattr(search, "_holding", holding)
    monkeypatch.setattr(search, "_if_possible", lambda several: several)
    monkeypatch.setattr(search, "_with_sizes", lambda best: best)
    return search, both[0], asked


def test_heavy_tails_are_found_though_the_kernel_of_few_rows_has_taken_outliers_for_f(monkeypatch):
    search, start, asked = robust_search(monkeypatch, ["rbf"])
    best = search._robust_of_many(start, HEAVY)
    assert (best.candidate.structure, best.trial.rows) == ("rbf", 4_800)
    assert asked == [(1, "matern12", 1_000), (1, "rbf", 1_000), (2, "rbf", 4_800)]


def test_heavy_tails_are_asked_of_fewer_rows_where_the_budget_has_no_room_for_both(monkeypatch):
    search, start, asked = robust_search(monkeypatch, ["matern12"], most=2_000)
    assert search._robust_of_many(start, HEAVY).trial.rows == 1_200
    assert asked[-1] == (2, "matern12", 1_200)
    search, start, asked = robust_search(monkeypatch, ["matern12"], most=999)
    assert search._robust_of_many(start, HEAVY) is None
    assert asked == [(1, "matern12", 1_000)]


@pytest.mark.parametrize("kept", [True, False])
def test_a_search_that_goes_on_finds_what_held_the_hyper_parameters_of_heavy_tails(
    monkeypatch, kept
):
    search, start, _ = robust_search(monkeypatch, ["rbf"])
    best = start._replace(candidate=HEAVY, learned=1_000)
    search.trials.tried = [best]
    search.trials.of_mean = start._replace(loss=start.loss + 9)
    search.trials.first_kept = lambda several, rows: several[-1] if kept else None
    monkeypatch.setattr(search, "_time_of_last", lambda candidate: 0.0)
    monkeypatch.setattr(search, "_possible_one", lambda candidate: True)
    monkeypatch.setattr(search, "_in_time", lambda one, rows: one.estimator.optimizer is None)
    larger = HEAVY.having(n_inducing=40)
    assert search._next(best, [larger]) == (larger, True)
    search.trials.tried.append(best._replace(candidate=larger))
    assert search.trials.tried[-1].mean < 2  # near enough to be trained
    search.trials.first_kept = lambda several, rows: None
    assert search._next(best, [larger]) == (None, False)  # it is not held again


def test_trials_of_other_held_out_rows_are_made_again(monkeypatch, tmp_path):
    X, y, _ = waves(1_500)
    own = {"candidates": [daskgp.SGPR("matern52", n_inducing=15, max_iter=2)], "progress": False}
    url, made, run = str(tmp_path / "c"), [], trying.Trials._run
    monkeypatch.setattr(trying.Trials, "_run", lambda *given: made.append(1) or run(*given))

    def stopped(*given):
        raise KeyboardInterrupt

    for least, trials in ((1_000, 1), (1_000, 1), (500, 2)):
        with monkeypatch.context() as patch:
            patch.setattr(trying, "LEAST_TEST_ROWS", least)
            patch.setattr(daskgp.AutoGP, "_last", stopped)
            with pytest.raises(KeyboardInterrupt):
                daskgp.AutoGP(time_budget=5, **own).fit(X, y, checkpoint=url)
        assert len(made) == trials


def test_where_tails_are_heavy_a_few_rows_do_not_hide_what_is_worse():
    rng = np.random.default_rng(0)
    loss = rng.standard_normal(1_000)
    better = loss - 0.2 - 0.1 * rng.standard_normal(1_000)
    better[0] += 300
    one, other = (trying.Tried(None, None, own, None, None, None) for own in (loss, better))
    assert not one.surely_worse(other)
    assert one.surely_worse(other, heavy=True)
    assert not other.surely_worse(one, heavy=True)


def heavy_tails(monkeypatch):
    monkeypatch.setattr(searching, "SMALL", 100)
    monkeypatch.setattr(searching, "STRUCTURE_ROWS", 300)
    X, y, _ = waves(600)
    y += 0.1 * np.random.default_rng(1).standard_t(1.5, 600)
    own = {"kernel": "matern52", "progress": False}
    return daskgp.AutoGP(time_budget=150, **own).fit(X, y).leaderboard_


@pytest.mark.slow
def test_with_many_rows_student_t_noise_is_all_that_follows_where_it_does_better(monkeypatch):
    board = heavy_tails(monkeypatch)
    assert board.best.settings.get("likelihood") == "student-t"
    methods = [trial for trial in board if trial.stage == "method" and trial.method != "mean"]
    plain = [trial for trial in methods if "likelihood" not in trial.settings]
    assert [(trial.rows, trial.settings["n_inducing"]) for trial in plain] == [(480, 128)]


@pytest.mark.slow
def test_what_few_rows_alone_say_of_heavy_tails_is_not_believed(monkeypatch):
    compared = []

    def noted(self, candidates, *given):
        compared.extend(candidates)
        raise KeyboardInterrupt

    monkeypatch.setattr(searching.Search, "_rounds", noted)
    few = lambda self, other: self.trial.rows < 400  # noqa: E731
    monkeypatch.setattr(trying.Tried, "mostly_better", few)
    with pytest.raises(KeyboardInterrupt):
        heavy_tails(monkeypatch)
    assert compared
    assert not any(one.robust for one in compared)


def test_a_training_with_heavy_tails_is_not_begun_where_it_would_end_early():
    X, y, _ = waves(4_000, 6)
    rows = data.rows_of(X, y, None, True)
    kernel = kernels.Matern52(tuple(np.ones(6)), 1.0, ard=True)
    tailed = Candidate("method", daskgp.SGPR(kernel, likelihood="student-t", n_inducing=128))
    executor = Executor.current(False)
    plans = [plan_of(one.estimator, rows, executor) for one in (tailed, tailed.held())]
    whole, held = (
        one.seconds(plan, 1, rows) for one, plan in zip((tailed, tailed.held()), plans, strict=True)
    )
    found = SimpleNamespace(
        next=lambda: tailed,
        held_out=SimpleNamespace(y=y[:, None]),
    )
    for left, trained in ((1.2 * (whole + held), True), (held + 0.5 * whole, False)):
        own = SimpleNamespace(executor=executor, left=left, kept=None)
        own.slowness = own.pace = lambda method: 1.0
        last = daskgp.AutoGP(progress=False)._last(found, rows, own)
        assert (last.optimizer is not None) == trained
