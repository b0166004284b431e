"""Stochastic ascent: Adam parameter by parameter, growth, coordinates, stops and where they go on.

The toy that is maximised is -|u - u*|^2 / 2 for parameters u of three kinds, with noise that
follows from the step.
"""

import math
from typing import NamedTuple

import numpy as np
import pytest
from fits import same_bits as same

from daskgp.errors import NumericalError
from daskgp.train.stochastic import Ascent, Found, Run, Stopped, ascend


class Parameters(NamedTuple):
    scale: np.ndarray  # (2,)
    points: np.ndarray  # (m, 3)
    root: np.ndarray  # (m, m)


GOAL = 0.7
RATES = {"scale": 1.0, "points": 10.0, "root": 0.5}
NAMES = tuple(RATES)


def start(m=3):
    rng = np.random.default_rng(0)
    return Parameters(*(rng.standard_normal(shape) for shape in ((2,), (m, 3), (m, m))))


def noise(step, shape, name):
    return np.random.default_rng([step, len(name), *shape]).standard_normal(shape)


class Toy:
    """The problem; ``grow`` rows are added at some steps."""

    def __init__(self, grow=None, conditioners=None, settled=(), scores=None, breaks=None):
        self.grow, self.conditioners = grow or {}, conditioners or {}
        self.settled, self.scores, self.breaks = settled, scores, breaks or {}
        self.steps, self.validated = [], []

    def advance(self, parameters, step):
        self.steps.append(step)
        for _ in range(self.grow.get(step, 0)):
            parameters = one_more(parameters)
        if self.breaks.get(step) == "factor":
            raise NumericalError("the 3 x 3 matrix is not positive definite")
        gradient = Parameters(
            *(
                GOAL - part + 0.3 * noise(step, part.shape, name)
                for name, part in parameters._asdict().items()
            )
        )
        value = -0.5 * sum(float(((part - GOAL) ** 2).sum()) for part in parameters)
        broken = self.breaks.get(step)
        if broken == "value":
            value = math.inf
        elif broken in NAMES:
            part = getattr(gradient, broken).copy()
            part.flat[-1] = np.nan
            gradient = gradient._replace(**{broken: part})
        settled = {name: np.full_like(getattr(parameters, name), step) for name in self.settled}
        return parameters, Found(value, gradient, settled)

    def conditioner(self, name, parameters, step):
        found = self.conditioners.get(name)
        return found(parameters, step) if found else None

    def validate(self, parameters):
        self.validated.append(parameters)
        return self.scores[len(self.validated) - 1]

    def arrays(self):
        return {"where": np.array(self.steps)}


def one_more(p):
    m = len(p.points)
    root = np.zeros((m + 1, m + 1))
    root[:m, :m], root[m, m] = p.root, 1.0
    return p._replace(points=np.concatenate([p.points, np.full((1, 3), 2.0)]), root=root)


def settings(steps=20, **more):
    return Ascent(steps, 0.05, RATES, progress=False, **more)


def describe(vector):
    return {"first": float(vector[0]), "second": float(vector[1])}


def run(toy, ascent=None, begin=None, keeper=None):
    begin = Run.begin(start()) if begin is None else begin
    return ascend(toy, begin, ascent or settings(), describe, ("scale",), keeper)


def reference(steps, grow=None, rates=RATES, rate=0.05, slowing=0.1):
    """Adam as it is written down (Kingma & Ba 2015, algorithm 1), number by number."""
    own, moments = start(), {}
    for step in range(steps):
        for _ in range((grow or {}).get(step, 0)):
            own = one_more(own)
        new = {}
        for name, part in own._asdict().items():
            part, drawn = part.copy(), noise(step, part.shape, name)
            for at in np.ndindex(part.shape):
                # the age of a row counts from its first step; columns of a root come with rows
                m, v, _ = moments.get((name, at), (0.0, 0.0, 0))
                t = moments.get((name, at[0]), 0) + 1
                g = GOAL - part[at] + 0.3 * drawn[at]
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                moments[name, at] = m, v, t
                move = m / (1 - 0.9**t) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8)
                part[at] += rates[name] * rate / (1 + slowing * math.sqrt(step + 1)) * move
            for row in range(len(part)):
                moments[name, row] = moments.get((name, row), 0) + 1
            new[name] = part
        own = Parameters(**new)
    return own


def close(found, wanted, **tolerance):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, **{"rtol": 1e-9, "atol": 1e-12, **tolerance})


# -- Adam ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 20])
def test_each_parameter_moves_as_adam_says(steps):
    found, _ = run(Toy(), settings(steps))
    close(found.parameters, reference(steps))
    assert found.step == steps


def test_the_rate_falls_with_the_root_of_the_step():
    ascent = settings(slowing=0.3)
    for step in (0, 3, 99):
        assert ascent.rate(step) == pytest.approx(0.05 / (1 + 0.3 * math.sqrt(step + 1)))
    found, _ = run(Toy(), settings(20, slowing=0.0))
    close(found.parameters, reference(20, slowing=0.0))
    assert settings().rate(0) == pytest.approx(0.05 / 1.1)


def test_the_goal_is_reached():
    ascent = Ascent(600, 0.05, dict.fromkeys(NAMES, 1.0), progress=False)
    found, history = run(Toy(), ascent)
    for part in found.parameters:
        np.testing.assert_allclose(part, GOAL, atol=0.15)
    assert history[-1]["objective"] > 0.01 * history[0]["objective"]


@pytest.mark.parametrize("frozen", [("points",), ("scale", "root")])
def test_parameters_of_rate_zero_or_none_stay(frozen):
    zero = {**RATES, **dict.fromkeys(frozen, 0.0)}
    none = {name: rate for name, rate in RATES.items() if name not in frozen}
    for rates in (zero, none):
        found, _ = run(Toy(), Ascent(20, 0.05, rates, progress=False))
        for name in NAMES:
            part = getattr(found.parameters, name)
            wanted = getattr(start() if name in frozen else reference(20), name)
            np.testing.assert_allclose(part, wanted, rtol=1e-9)
            assert getattr(found.ages, name)[0] == (0 if name in frozen else 20)


def test_bounds_hold():
    low, high = np.array([0.1, -0.2]), np.array([0.3, -0.1])
    bounded = settings(60, bounds={"scale": (low, high)})
    begin = Run.begin(start()._replace(scale=np.array([0.2, -0.15])))
    found, history = run(Toy(), bounded, begin)
    np.testing.assert_array_equal(found.parameters.scale, high)
    for entry in history:
        assert low[0] <= entry["first"] <= high[0]
        assert low[1] <= entry["second"] <= high[1]
    close(found.parameters[1:], run(Toy(), settings(60))[0].parameters[1:])


def test_what_a_step_settles_itself_is_taken():
    found, _ = run(Toy(settled=("root",)), settings(7))
    np.testing.assert_array_equal(found.parameters.root, 6.0)
    assert not found.first.root.any()
    close(found.parameters[:2], reference(7)[:2])


# -- growth ----------------------------------------------------------------------------------


@pytest.mark.parametrize("grow", [{5: 1}, {0: 2, 1: 1, 9: 3}])
def test_rows_that_come_later_have_an_age_of_their_own(grow):
    found, _ = run(Toy(grow), settings(15))
    close(found.parameters, reference(15, grow))
    m = 3 + sum(grow.values())
    assert found.parameters.root.shape == found.first.root.shape == (m, m)
    born = [0, 0, 0, *(step for step in sorted(grow) for _ in range(grow[step]))]
    np.testing.assert_array_equal(found.ages.points, 15 - np.array(born))
    np.testing.assert_array_equal(found.ages.root, 15 - np.array(born))
    np.testing.assert_array_equal(found.ages.scale, [15, 15])


def test_a_run_that_is_given_is_left_as_it_was():
    begin = Run.begin(start())
    arrays = {name: a.copy() for name, a in begin.arrays().items()}
    first, _ = run(Toy({2: 1}), settings(5), begin)
    kept = {name: a.copy() for name, a in first.arrays().items() if name != "history"}
    run(Toy({6: 1}), settings(9), first)
    for name, values in kept.items():
        np.testing.assert_array_equal(first.arrays()[name], values)
    for name, values in arrays.items():
        if name != "history":
            np.testing.assert_array_equal(begin.arrays()[name], values)


# -- coordinates -----------------------------------------------------------------------------


class Diagonal:
    """u = x / P."""

    def __init__(self, scale, fresh=False):
        self.scale, self.fresh = scale, fresh

    def pull(self, gradient):
        return self.scale * gradient

    def push(self, move):
        return self.scale * move


def test_steps_are_taken_in_other_coordinates():
    # scales up to epsilon do not matter to Adam's direction, so a step is P times as long
    scale = np.array([[2.0], [0.5], [3.0]])
    toy = Toy(conditioners={"points": lambda p, step: Diagonal(scale)})
    found, _ = run(toy, settings(1))
    wanted = start().points + scale * (reference(1).points - start().points)
    np.testing.assert_allclose(found.parameters.points, wanted, rtol=1e-6)
    close(found.parameters[::2], reference(1)[::2])


def test_adam_forgets_what_it_knew_of_other_coordinates():
    fresh_at = 6

    def conditioner(parameters, step):
        return Diagonal(2.0, fresh=step == fresh_at)

    toy = Toy(conditioners={"points": conditioner})
    before, _ = run(toy, settings(fresh_at))
    np.testing.assert_array_equal(before.ages.points, fresh_at)
    after, _ = run(toy, settings(fresh_at + 1), before)
    np.testing.assert_array_equal(after.ages.points, 1)
    np.testing.assert_array_equal(after.ages.root, fresh_at + 1)
    gradient = 2.0 * (toy.advance(before.parameters, fresh_at)[1].gradient.points)
    np.testing.assert_allclose(after.first.points, 0.1 * gradient)
    np.testing.assert_allclose(after.second.points, 0.001 * gradient**2)
    move = 2.0 * RATES["points"] * settings().rate(fresh_at) * np.sign(gradient)
    np.testing.assert_allclose(after.parameters.points, before.parameters.points + move, rtol=1e-5)


# -- validation ------------------------------------------------------------------------------


def test_training_stops_where_scores_bring_nothing_and_takes_the_best():
    scores = [0.1, 0.5, 0.4, 0.3, 0.45, 9.9]
    toy = Toy(scores=scores)
    found, history = run(toy, settings(100, check_every=3, patience=3))
    assert found.step == len(history) == 15
    assert (found.score, found.stale) == (0.5, 3)
    same(found.result, toy.validated[1])
    same(found.result, run(Toy(), settings(6))[0].parameters)
    assert [e["iteration"] for e in history if "validation" in e] == [3, 6, 9, 12, 15]
    assert [e["validation"] for e in history if "validation" in e] == scores[:5]
    again, _ = run(toy, settings(100, check_every=3, patience=3), found)
    assert again.step == 15  # and goes no further


def test_a_score_that_is_no_number_is_no_better():
    found, _ = run(Toy(scores=[0.2, math.nan, math.nan]), settings(9, check_every=3, patience=5))
    assert (found.score, found.stale) == (0.2, 2)
    assert found.step == 9


def test_the_last_is_taken_where_nothing_is_scored():
    toy = Toy(scores=[])
    found, history = run(toy, settings(9))
    same(found.result, found.parameters)
    assert toy.validated == []
    assert not any("validation" in entry for entry in history)


# -- averages --------------------------------------------------------------------------------


def test_averages_weigh_later_steps_more_and_leave_the_steps_alone():
    found, _ = run(Toy(), settings(9, average_from=4))
    same(found.parameters, run(Toy(), settings(9))[0].parameters)
    steps = [run(Toy(), settings(k))[0].parameters for k in range(5, 10)]
    weights = np.array([1.0, 4.0, 10.0, 20.0, 35.0])  # of one more step, 4 / (steps + 3)
    for name in NAMES:
        parts = np.stack([getattr(own, name) for own in steps])
        wanted = np.tensordot(weights / weights.sum(), parts, 1)
        np.testing.assert_allclose(getattr(found.result, name), wanted, rtol=1e-12)
    same(run(Toy(), settings(4, average_from=4))[0].result, steps_of(4))


def steps_of(count):
    return run(Toy(), settings(count))[0].parameters


def test_an_average_begins_again_where_rows_are_added():
    found, _ = run(Toy({7: 1}), settings(8, average_from=2))
    assert found.averaged == 1
    same(found.result, found.parameters)


def test_it_is_the_average_that_is_scored_and_taken():
    toy = Toy(scores=[0.1, 0.5, 0.4])
    found, _ = run(toy, settings(9, check_every=3, patience=5, average_from=1))
    same(found.result, run(Toy(), settings(6, average_from=1))[0].result)
    same(found.result, toy.validated[1])


# -- history ---------------------------------------------------------------------------------


def test_the_history_has_an_entry_a_step():
    toy = Toy()
    found, history = run(toy, settings(8))
    assert (
        [e["iteration"] for e in history] == [e["evaluations"] for e in history] == [*range(1, 9)]
    )
    known = ["iteration", "evaluations", "objective", "gradient_norm", "seconds", "first", "second"]
    assert all(list(entry) == known for entry in history)
    assert (np.diff([0.0, *(entry["seconds"] for entry in history)]) >= 0).all()
    own = start()
    for step, entry in enumerate(history):
        _, wanted = Toy().advance(own, step)
        own = run(Toy(), settings(step + 1))[0].parameters
        assert entry["objective"] == pytest.approx(wanted.value)
        largest = max(np.abs(part).max() for part in wanted.gradient)
        assert entry["gradient_norm"] == pytest.approx(largest)
        assert (entry["first"], entry["second"]) == tuple(own.scale)
    assert len(found.history) == 8


# -- stopped and going on --------------------------------------------------------------------


class Kept(dict):
    """A keeper in memory."""

    def write(self, step, arrays):
        self[step] = {name: np.array(values) for name, values in arrays.items()}


def bits(found):
    run_, history = found
    told = [{k: v for k, v in entry.items() if k != "seconds"} for entry in history]
    arrays = {k: v for k, v in run_.arrays().items() if k != "history"}
    rows = [np.delete(row, 2).tobytes() for row in run_.history]  # but for the seconds
    return told, {k: v.tobytes() for k, v in arrays.items()}, rows


@pytest.mark.parametrize("average_from", [None, 3])
@pytest.mark.parametrize("grow", [{}, {2: 1, 5: 2, 11: 1}])
def test_a_run_goes_on_from_what_is_kept_with_the_same_bits(grow, average_from):
    def toy():
        return Toy(grow, scores=[0.1, 0.4, 0.2, 0.3, 0.1])

    ascent = settings(14, check_every=3, patience=4, keep_every=4, average_from=average_from)
    kept = Kept()
    whole = run(toy(), ascent, keeper=kept)
    assert sorted(kept) == [4, 8, 12]
    for step, arrays in kept.items():
        np.testing.assert_array_equal(arrays["where"], np.arange(step))
        again, later = toy(), Kept()
        again.validated = [None] * (step // 3)
        resumed = run(again, ascent, Run.restore(Parameters, arrays), later)
        assert again.steps == [*range(step, 14)]
        assert bits(resumed) == bits(whole)
        assert sorted(later) == [k for k in (4, 8, 12) if k > step]


def test_more_steps_go_on_where_fewer_ended():
    short, _ = run(Toy({3: 1}), settings(6))
    restored = Run.restore(Parameters, short.arrays())
    assert bits(run(Toy({3: 1}), settings(15), restored)) == bits(run(Toy({3: 1}), settings(15)))


def test_seconds_go_on_too():
    first, early = run(Toy(), settings(5))
    first.history[-1][2] = 1000.0
    _, history = run(Toy(), settings(8), first)
    assert [entry["seconds"] for entry in history[:4]] == [e["seconds"] for e in early[:4]]
    assert all(entry["seconds"] >= 1000.0 for entry in history[4:])


# -- numbers that are not finite -------------------------------------------------------------


@pytest.mark.parametrize("broken", [*NAMES, "value", "factor"])
@pytest.mark.parametrize("step", [0, 1, 7])
def test_training_stops_at_the_last_good_step(broken, step):
    with pytest.raises(Stopped) as caught:
        run(Toy({4: 1}, breaks={step: broken}), settings(20))
    line = str(caught.value)
    says = {
        "value": "the objective is not finite",
        "factor": "the 3 x 3 matrix is not positive definite",
    }.get(broken, f"the gradient by {broken} is not finite")
    moved = " (the step before moved points farthest)"
    assert line.replace(moved, "").startswith(
        f"step {step + 1}: {says}; training stopped and the estimator holds"
    )
    assert (moved in line) == (step > 0 and "by" not in says)
    assert "\n" not in line
    # the parameters of which the gradient was asked may be what is wrong
    good = max(step - 1, 0)
    wanted, history = run(Toy({4: 1}), settings(good))
    assert caught.value.run.step == good
    assert bits((caught.value.run, caught.value.history)) == bits((wanted, history))
    resumed = run(Toy({4: 1}), settings(9), caught.value.run)
    assert bits(resumed) == bits(run(Toy({4: 1}), settings(9)))


def test_a_natural_step_that_is_no_number_is_named():
    class Broken(Toy):
        def advance(self, parameters, step):
            parameters, found = super().advance(parameters, step)
            found.settled["root"][0, 0] = np.nan
            return parameters, found

    with pytest.raises(Stopped, match="step 1: the natural step of root is not finite"):
        run(Broken(settled=("root",)))


def test_a_run_that_went_on_and_stops_keeps_what_it_had():
    first, _ = run(Toy(), settings(5))
    restored = Run.restore(Parameters, first.arrays())
    with pytest.raises(Stopped) as caught:
        run(Toy(breaks={5: "points"}), settings(9), restored)
    same(caught.value.run.parameters, first.parameters)
    assert len(caught.value.history) == len(caught.value.run.history) == 5
