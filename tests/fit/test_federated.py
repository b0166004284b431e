"""Federated training on objectives whose optimum is known; no Dask, no model."""

import pickle
import time
from functools import partial

import numpy as np
import oracle
import pytest

from daskgp import train
from daskgp.errors import NumericalError, SettingError, StoreError
from daskgp.train.federated_rounds import Notes

METHODS = ("fedavg", "fedprox", "admm", "pxadmm")
FREE = np.tile([-np.inf, np.inf], (2, 1))


class Local:
    """Experts in this process; work and what it is given travel pickled, as to a worker."""

    def __init__(self, objectives, counts):
        self.objectives, self.counts, self.drawn = objectives, np.array(counts), []

    def evaluate(self, vector):
        self.drawn.append(list(range(len(self.counts))))
        return [objective(vector) for objective in self.objectives]

    def map(self, work, which, arguments):
        self.drawn.append(list(which))
        sent = pickle.loads(pickle.dumps([(work, argument) for argument in arguments]))
        return [run(self.objectives[i], a) for i, (run, a) in zip(which, sent, strict=True)]


class Rows:
    """A tape in memory."""

    def __init__(self, rows=()):
        self.rows = list(rows)

    def read(self):
        return np.array(self.rows) if self.rows else np.empty((0, 1))

    def append(self, index, row):
        assert index == len(self.rows)
        assert np.isfinite(row).all()
        self.rows.append(row)


def hill(top, curvature, count):
    """A log-likelihood of ``count`` values with its greatest value at ``top``."""
    return partial(_hill, np.asarray(top), np.asarray(curvature), count)


def _hill(top, curvature, count, vector):
    gap = vector - top
    return -count * (0.5 * gap @ curvature @ gap + 1), -count * curvature @ gap


def hills(spread=0.2, M=6, seed=0):
    """Experts of different curvature around tops that differ, and the top of their sum."""
    random = np.random.default_rng(seed)
    counts = random.integers(50, 150, M)
    tops = np.array([0.5, -1.0]) + spread * random.standard_normal((M, 2))
    roots = np.eye(2) + 0.3 * random.standard_normal((M, 2, 2))
    curvatures = roots @ roots.transpose(0, 2, 1)
    whole = np.einsum("i,ijk->jk", counts, curvatures)
    best = np.linalg.solve(whole, np.einsum("i,ijk,ik->j", counts, curvatures, tops))
    return Local([hill(*each) for each in zip(tops, curvatures, counts, strict=True)], counts), best


def fit(experts, method, start=(2.0, 2.0), bounds=FREE, tape=None, **settings):
    steps = 5 if method.startswith("fed") else 20
    given = train.Federated(method, **{"progress": False, "local_steps": steps, **settings})
    return train.train_experts(
        experts, np.array(start), bounds, given, lambda v: {"first": v[0]}, tape
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("M", [1, 6])
def test_every_method_stops_by_itself_near_the_known_optimum(method, M):
    # averages of Adam's steps are as far off as experts differ, the ADMMs are not
    experts, best = hills(0.0 if method.startswith("fed") else 0.5, M)
    found, history = fit(experts, method)
    assert len(history) < 200
    np.testing.assert_allclose(found, best, atol=5e-3)


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_averages_of_experts_that_differ_come_close(method):
    experts, best = hills(0.2)
    found, history = fit(experts, method)
    assert len(history) < 200
    np.testing.assert_allclose(found, best, atol=0.1)


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_a_sample_of_experts_is_drawn_anew_each_round(method):
    experts, best = hills(0.1, M=8)
    found, history = fit(experts, method, sampling_rate=0.5, seed=3, max_iter=60)
    np.testing.assert_allclose(found, best, atol=0.1)
    assert {len(set(drawn)) for drawn in experts.drawn} == {4}
    assert len(set(map(tuple, experts.drawn))) > 10
    assert [entry["evaluations"] for entry in history[:2]] == [20, 40]
    again, _ = hills(0.1, M=8)
    fit(again, method, sampling_rate=0.5, seed=3, max_iter=5)
    assert again.drawn == experts.drawn[:5]


def test_at_least_one_expert_is_drawn():
    experts, _ = hills()
    fit(experts, "fedavg", sampling_rate=0.01, max_iter=3)
    assert {len(drawn) for drawn in experts.drawn} == {1}


def test_a_sample_counts_for_all():
    objective = hill([0.5, -1.0], np.eye(2), 100)
    whole = Local([objective] * 4, [100] * 4)
    some = Local([objective] * 4, [100] * 4)
    (_, [all_of_it]) = fit(whole, "fedavg", max_iter=1)
    (_, [half]) = fit(some, "fedavg", max_iter=1, sampling_rate=0.5)
    assert half["objective"] == pytest.approx(all_of_it["objective"])
    assert half["gradient_norm"] == pytest.approx(all_of_it["gradient_norm"])


def test_fedavg_of_identical_experts_in_single_steps_is_adam():
    objective = hill([0.5, -1.0], [[1.0, 0.3], [0.3, 2.0]], 100)
    experts = Local([objective] * 4, [100] * 4)
    _, history = fit(experts, "fedavg", local_steps=1, max_iter=40, learning_rate=0.1)
    adam = train.Training("adam", max_iter=40, learning_rate=0.1, progress=False)
    start = np.array([2.0, 2.0])
    _, expected, *_ = train.maximise(
        partial(train.fact, experts), start, FREE, 400, adam, lambda v: {"first": v[0]}
    )
    for name in ("objective", "gradient_norm", "first"):
        np.testing.assert_allclose(
            [entry[name] for entry in history], [entry[name] for entry in expected], rtol=1e-9
        )


def test_fact_is_the_sum():
    experts, best = hills()
    vector = np.array([0.1, 0.2])
    value, gradient = train.fact(experts, vector)
    parts = [objective(vector) for objective in experts.objectives]
    assert value == pytest.approx(sum(part[0] for part in parts))
    np.testing.assert_allclose(gradient, sum(part[1] for part in parts))
    np.testing.assert_allclose(train.fact(experts, best)[1], 0, atol=1e-9)


def test_a_fixed_point_of_pxadmm_has_no_gradient():
    experts, _ = hills(0.5)
    found, history = fit(experts, "pxadmm", tol=1e-9, max_iter=1000)
    assert len(history) < 1000
    assert np.abs(train.fact(experts, found)[1]).max() / experts.counts.sum() < 1e-8


@pytest.mark.parametrize(("share", "converges"), [(0.95, True), (1.05, False)])
@pytest.mark.parametrize(("rho", "lipschitz"), [(1.0, 0.0), (0.3, 2.0)])
def test_pxadmm_converges_up_to_the_curvature_it_states(rho, lipschitz, share, converges):
    limit = 2 / 3 * (rho + 2 * lipschitz)
    experts = Local([hill([0.5, -1.0], share * limit * np.eye(2), 100)] * 3, [100] * 3)
    settings = {"rho": rho, "lipschitz": lipschitz, "max_iter": 300}
    _, history = fit(experts, "pxadmm", **settings)
    assert (len(history) < 300) == converges


@pytest.mark.parametrize("method", ["admm", "pxadmm"])
def test_residuals_are_small_at_the_end(method):
    experts, _ = hills(0.5)
    _, history = fit(experts, method, tol=1e-3)
    for entry in history[-3:]:
        assert max(entry["primal_residual"], entry["dual_residual"]) < 1e-3 * np.sqrt(2)
    assert history[0]["dual_residual"] > 1e-2


@pytest.mark.parametrize("method", METHODS)
def test_bounds_are_kept_at_every_evaluation(method):
    experts, best = hills()
    bounds = np.array([[0.8, 3.0], [-2.0, 3.0]])
    assert best[0] < 0.8
    seen = []

    def watched(objective, vector):
        seen.append(vector)
        return objective(vector)

    experts.objectives = [partial(watched, objective) for objective in experts.objectives]
    found, _ = fit(experts, method, bounds=bounds, start=(9.0, 2.0))
    assert (np.array(seen) >= bounds[:, 0]).all()
    assert (np.array(seen) <= bounds[:, 1]).all()
    assert found[0] == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kept", [1, 4])
def test_a_resumed_run_ends_with_the_same_bits(method, kept):
    settings = {"max_iter": 9, "sampling_rate": 0.5, "seed": 1}
    experts, _ = hills()
    tape = Rows()
    whole, history = fit(experts, method, tape=tape, **settings)
    assert len(tape.rows) == len(history)
    resumed, again = hills()[0], Rows(tape.rows[:kept])
    found, noted = fit(resumed, method, tape=again, **settings)
    assert len(resumed.drawn) == len(history) - kept
    np.testing.assert_array_equal(found, whole)
    seconds = 2 + len(Notes._fields)
    same = [np.delete(rows, seconds, axis=1) for rows in (again.rows, tape.rows)]
    np.testing.assert_array_equal(*same)
    for entry in [*history, *noted]:
        entry.pop("seconds")
    assert noted == history
    bare, _ = fit(hills()[0], method, **settings)
    np.testing.assert_array_equal(bare, whole)


@pytest.mark.parametrize("loop", ["fedavg", "pxadmm", "trust-region", "l-bfgs", "adam"])
def test_seconds_of_a_resumed_run_go_on(loop):
    objective = hill([0.5, -1.0], [[1.0, 0.3], [0.3, 2.0]], 100)

    def slow(vector):
        time.sleep(0.02)
        return objective(vector)

    def run(tape):
        if loop in METHODS:
            return fit(Local([slow], [100]), loop, max_iter=5, tape=tape)[1]
        settings = train.Training(loop, 3, 1e-9, progress=False, quiet=True)
        start = np.array([2.0, 2.0])
        return train.maximise(slow, start, FREE, 100, settings, lambda _: {}, tape).history

    tape = Rows()
    whole = run(tape)
    kept = Rows(tape.rows)
    again = run(kept)
    assert len(kept.rows) == len(tape.rows)  # nothing was computed again
    for history in (whole, again):
        assert all(entry["seconds"] >= 0.02 * entry["iteration"] for entry in history)


@pytest.mark.parametrize("method", METHODS)
def test_a_tape_of_another_run_is_refused(method):
    tape = Rows()
    fit(hills()[0], method, tape=tape, max_iter=2)
    with pytest.raises(StoreError, match="other data or settings: remove it"):
        fit(hills(M=5)[0], method, tape=tape, max_iter=2)
    with pytest.raises(StoreError, match="other data or settings: remove it"):
        fit(hills()[0], method, tape=tape, max_iter=2, start=(1.0, 1.0))


@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_finite_is_named(method):
    experts, _ = hills()
    experts.objectives[2] = lambda vector: (0.0, np.full(2, np.nan))
    with pytest.raises(NumericalError, match="raise noise_variance or start from other"):
        fit(experts, method)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"method": "sgd"}, "method='sgd': choose one of 'admm', 'pxadmm', 'fedavg', 'fedprox'"),
        ({"local_steps": 0}, "local_steps=0: a whole number of at least 1 is needed"),
        ({"max_iter": 1.5}, "max_iter=1.5: a whole number of at least 1 is needed"),
        ({"seed": -1}, "seed=-1: a whole number of at least 0 is needed"),
        ({"learning_rate": "fast"}, "learning_rate='fast': a number is needed"),
        ({"learning_rate": 0}, "learning_rate=0: it must be greater than 0"),
        ({"tol": np.nan}, "tol=nan: it must be greater than 0"),
        ({"rho": -1.0}, "rho=-1.0: it must be greater than 0"),
        ({"mu": -0.1}, "mu=-0.1: it must be 0 or greater"),
        ({"lipschitz": np.inf}, "lipschitz=inf: it must be 0 or greater"),
        ({"sampling_rate": 1.1}, "sampling_rate=1.1: it must be greater than 0 and at most 1"),
        ({"sampling_rate": True}, "sampling_rate=True: a number is needed"),
    ],
)
def test_settings_out_of_range_are_named(settings, line):
    with pytest.raises(SettingError) as caught:
        fit(hills()[0], **{"method": "fedavg", **settings})
    assert str(caught.value) == line


def evidence(squares, y, vector):
    """A dense evidence at log lengthscale, variance and noise; central differences."""

    def value(v):
        length, variance, noise = np.exp(v)
        return oracle.evidence(variance * np.exp(-0.5 * squares / length**2), y, noise)

    steps = 1e-5 * np.eye(3)
    return value(vector), np.array(
        [(value(vector + step) - value(vector - step)) / 2e-5 for step in steps]
    )


@pytest.fixture(scope="module")
def processes():
    """Four experts on one draw of a GP, and where FACT ends."""
    random = np.random.default_rng(1)
    x = random.uniform(0, 10, 160)
    squares = (x[:, None] - x) ** 2
    C = np.exp(-0.5 * squares / 0.7**2) + 0.05 * np.eye(160)
    y = np.linalg.cholesky(C) @ random.standard_normal((160, 1))
    parts = np.array_split(random.permutation(160), 4)
    objectives = [partial(evidence, squares[np.ix_(part, part)], y[part]) for part in parts]
    experts = Local(objectives, [len(part) for part in parts])
    bounds, start = np.tile(np.log([1e-3, 1e2]), (3, 1)), np.log([2.0, 0.5, 0.5])
    training = train.Training(tol=1e-9, progress=False)
    best, *_ = train.maximise(partial(train.fact, experts), start, bounds, 160, training, dict_of)
    return experts, start, bounds, best


def dict_of(vector):
    return {"lengthscale": vector[0]}


@pytest.mark.parametrize(
    ("method", "near"), [("fedavg", 0.2), ("fedprox", 0.2), ("admm", 0.02), ("pxadmm", 0.02)]
)
def test_experts_of_a_process_find_the_hyper_parameters_of_fact(processes, method, near):
    experts, start, bounds, best = processes
    found, history = fit(experts, method, start, bounds)
    assert len(history) < 200
    np.testing.assert_allclose(found, best, atol=near)
    np.testing.assert_allclose(np.exp(found), [0.7, 1.0, 0.05], rtol=0.7)
    assert history[-1]["objective"] > history[0]["objective"]
