"""Promises of AutoGP with little time: few rows go to the exact GP, methods are told by many."""

import numpy as np
import pytest

import daskgp
from daskgp import data, kernels
from daskgp.choose import candidates
from daskgp.choose import profile as profiling
from daskgp.choose import search as searching
from daskgp.choose import trials as trying
from daskgp.choose.candidates import Candidate, methods, plan_of, structures
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
        return daskgp.AutoGP(time_budget=4, **OWN).fit(X, y)


def test_methods_of_a_short_search_are_compared_on_many_rows(short):
    held = [trial for trial in short.leaderboard_ if trial.stage == "method"]
    assert {"vecchia", "sgpr"} <= {trial.method for trial in held}
    assert {trial.rows for trial in held} == {3_280}


def test_a_short_search_says_where_hyperparameters_are_from_and_leaves_them_to_the_last_fit(short):
    assert any("hyper-parameters of the exact GP on 300 rows" in one for one in short.findings_)
    assert "optimizer" not in short.chosen_.settings
    places, _, f = waves(500, seed=1)
    assert np.sqrt(np.mean((short.predict(places) - f) ** 2)) < 0.05


def test_many_features_are_given_neighbours_too():
    profile = profiling.Profile(3_000, tuple("abcdefgh"), (), (), "measured", 0.0)
    assert methods(profile, {}, 3_000)[0].method == "vecchia"


def test_a_kernel_of_one_column_may_repeat_and_others_begin_where_the_first_has_ended():
    profile = profiling.Profile(500, ("t",), (), (), "measured", 0.0)
    first = kernels.Matern32(lengthscale=(2.0,), variance=3.0, ard=True)
    several = structures(daskgp.ExactGP(), profile, first, 0.2)
    found = {one.structure: one.estimator for one in several}
    assert any("periodic" in name for name in found)
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
