"""The trust region with curvature: optimum, bounds, ridges, what it says of where it ended."""

import numpy as np
import pytest

from daskgp.train import newton


def bowl(B, top):
    """-(x - top)' B (x - top) / 2 with its gradient; counts its calls."""

    def evaluate(x):
        evaluate.count += 1
        return -0.5 * float((x - top) @ B @ (x - top)), -B @ (x - top)

    evaluate.count = 0
    return evaluate


def free(k):
    return np.tile([-50.0, 50.0], (k, 1))


def unnoted(*_):
    pass


def search(evaluate, k, bounds=None, **more):
    bounds = free(k) if bounds is None else bounds
    return newton.Search(evaluate, bounds, more.pop("coordinates", np.eye(k)), 0.01, **more)


@pytest.mark.parametrize("k", [1, 3, 12])
def test_a_bowl_is_climbed_in_few_evaluations(k):
    rng = np.random.default_rng(k)
    Q = np.linalg.qr(rng.standard_normal((k, k)))[0]
    B, top = (Q * np.geomspace(1e4, 1e1, k)) @ Q.T, rng.uniform(-1, 1, k)
    evaluate = bowl(B, top)
    found = search(evaluate, k).run(np.zeros(k), None, 50, unnoted)
    assert found.converged
    assert -evaluate(found.vector)[0] <= 0.01 * k
    assert evaluate.count <= 2 * k + 6
    np.testing.assert_allclose(found.curvature.matrix, B, rtol=1e-6, atol=1e-6 * B.max())


def rosenbrock(x):
    a, b = 1 - x[0], x[1] - x[0] ** 2
    gradient = np.array([-2 * a - 400 * b * x[0], 200 * b])
    return -(a**2 + 100 * b**2), -gradient


def test_a_curved_ridge_is_followed_to_its_end():
    run = newton.Search(rosenbrock, free(2), np.eye(2), 1e-8)
    found = run.run(np.array([-1.2, 1.0]), None, 200, unnoted)
    assert found.converged
    np.testing.assert_allclose(found.vector, 1.0, atol=1e-3)


def test_a_wrong_first_curvature_is_corrected_before_the_run_may_stop():
    B, top = np.diag([1e3, 10.0]), np.array([1.0, -2.0])
    wrong = newton.Curvature(np.zeros(2), np.diag([1e3, 1e9]))  # it would stop at once
    found = search(bowl(B, top), 2).run(np.array([1.0, 0.0]), wrong, 50, unnoted)
    assert found.converged
    np.testing.assert_allclose(found.vector, top, atol=0.05)


def test_a_run_that_is_cut_off_hopes_for_little_only_by_curvature_from_differences():
    for most in range(1, 40):
        found = search(rosenbrock, 2).run(np.array([-1.2, 1.0]), None, most, unnoted)
        assert found.converged == (found.gain <= 0.02)


def test_curvature_of_a_sample_of_rows_leads_to_the_optimum_of_all():
    B, top = np.array([[1e3, 20.0], [20.0, 10.0]]), np.array([1.0, -2.0])
    whole, part = bowl(B, top), bowl(0.7 * B, top + 0.3)
    run = search(whole, 2, sampled=lambda x: part(x)[1])
    found = run.run(np.zeros(2), None, 50, unnoted)
    assert found.converged
    np.testing.assert_allclose(found.vector, top, atol=0.1)
    assert part.count % 3 == 0  # differences are of the sample alone
    assert part.count > 0
    assert whole.count <= 6


@pytest.mark.parametrize("informed", [False, True])
def test_parameters_at_a_bound_stay_there_and_the_others_arrive(informed):
    B, top = np.array([[10.0, 6.0], [6.0, 10.0]]), np.array([3.0, 3.0])
    bounds = np.array([[-1.0, 1.0], [-10.0, 10.0]])
    more = {"information": lambda x: B} if informed else {}
    found = search(bowl(B, top), 2, bounds, **more).run(np.zeros(2), None, 50, unnoted)
    assert found.converged
    assert found.vector[0] == 1.0
    assert found.vector[1] == pytest.approx(3.0 + 6.0 / 10.0 * 2.0, abs=0.1)
    errors = newton.standard_errors(found.vector, found.curvature, bounds)
    assert np.isnan(errors[0])
    assert errors[1] == pytest.approx(10.0**-0.5, rel=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_the_curvature_of_others_than_fixed_parameters_is_that_of_the_bowl(seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((4, 4))
    B, limits = A @ A.T + np.eye(4), free(4)
    limits[2] = 0.3
    evaluate, others = bowl(B, np.array([1.0, -1.0, 2.0, 0.5])), np.ix_([0, 1, 3], [0, 1, 3])
    found = search(evaluate, 4, limits).run(np.full(4, 0.3), None, 50, unnoted)
    np.testing.assert_allclose(found.curvature.matrix[others], B[others], rtol=1e-5)
    assert found.curvature.noise < 1e-5
    errors = newton.standard_errors(found.vector, found.curvature, limits)
    np.testing.assert_allclose(errors[[0, 1, 3]] ** 2, np.linalg.inv(B[others]).diagonal(), 1e-4)
    assert np.isnan(errors[2])


def test_a_saddle_is_left():
    def saddle(x):  # largest at x0 = +-1
        value = x[0] ** 2 - 0.5 * x[0] ** 4 - x[1] ** 2
        return 100 * value, 100 * np.array([2 * x[0] - 2 * x[0] ** 3, -2 * x[1]])

    found = search(saddle, 2).run(np.array([1e-3, 0.5]), None, 100, unnoted)
    assert found.converged
    assert abs(found.vector[0]) == pytest.approx(1.0, abs=0.05)


def test_the_predicted_gain_is_what_is_left():
    B, top = np.array([[50.0, 20.0], [20.0, 30.0]]), np.array([0.3, -0.2])
    notes = []

    def note(x, value, gradient, gain):
        notes.append((value, gain))

    search(bowl(B, top), 2).run(np.zeros(2), None, 50, note)
    value, gain = notes[0]
    assert gain == pytest.approx(-value, rel=1e-4)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_the_last_note_is_of_the_point_that_is_returned(most):
    notes, start = [], np.array([-1.2, 1.0])
    run = newton.Search(rosenbrock, free(2), np.eye(2), 1e-8)
    found = run.run(start, None, most, lambda *note: notes.append(note))
    x, value, _, gain = notes[-1]
    np.testing.assert_array_equal(x, found.vector)
    assert (value, gain) == (rosenbrock(x)[0], found.gain)
    assert len(notes) <= most
    assert found.cut == (most < 100) == (not found.converged)
    assert found.converged or found.gain > 0.01


def test_coordinates_do_not_move_the_optimum():
    for coordinates in (np.eye(2), np.array([[1.0, -3.0], [0.0, 1.0]])):
        run = newton.Search(rosenbrock, free(2), coordinates, 1e-8)
        found = run.run(np.zeros(2), None, 100, unnoted)
        assert found.converged
        np.testing.assert_allclose(found.vector, 1.0, atol=1e-3)


def test_standard_errors_are_those_of_the_inverse_and_flat_directions_have_none():
    B = np.diag([4.0, 25.0, 0.0])
    found = newton.standard_errors(np.zeros(3), newton.Curvature(np.zeros(3), B), free(3))
    np.testing.assert_allclose(found[:2], [0.5, 0.2])
    assert np.isnan(found[2])


def test_what_depends_on_a_parameter_at_a_bound_has_the_error_of_the_others():
    B, limits = np.diag([4.0, 9.0, 1.0]), free(3)
    limits[2] = -1.0, 0.0
    directions = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    found = newton.errors_along(directions, np.zeros(3), newton.Curvature(np.zeros(3), B), limits)
    np.testing.assert_allclose(found, [0.5, np.nan, 1 / 3])


def test_an_error_that_a_flat_direction_may_make_many_times_larger_is_unknown():
    ridge = np.sqrt(0.985 * 100 * 0.05)  # all but 1.5 % of either curvature
    B = np.array([[100.0, ridge], [ridge, 0.05]])
    assert np.linalg.eigvalsh(B)[0] < newton.FLOOR
    found = newton.standard_errors(np.zeros(2), newton.Curvature(np.zeros(2), B), free(2))
    assert np.isnan(found).all()  # alone the steep direction would give an eighth of the error


def rounded(scales, size):
    """A quadratic whose gradient has errors of that size, which no step makes smaller."""
    H = np.diag(scales)

    def evaluate(x):
        error = np.random.default_rng(np.frombuffer(x.tobytes(), np.uint32)).standard_normal(len(x))
        return -0.5 * x @ H @ x, -H @ x + size * error

    return evaluate


def test_rounding_of_gradients_is_not_taken_for_curvature():
    scales = np.array([1e4, 2e3, 1e-2])
    for size, known in ((1e-9, 3), (1.0, 2)):
        run = newton.Search(rounded(scales, size), free(3), np.eye(3), 0.1)
        found = run.differences(np.zeros(3), np.zeros(3))
        assert found.noise <= newton.NOISY * 1e4  # of steps that are long enough
        errors = newton.standard_errors(np.zeros(3), found, free(3))
        np.testing.assert_allclose(errors[:known], scales[:known] ** -0.5, rtol=0.3)
        assert np.isnan(errors[known:]).all()


def test_a_step_whose_gradient_changes_by_no_more_than_rounding_leaves_the_curvature():
    B = newton.Curvature(np.zeros(2), np.diag([4.0, 9.0]), True, noise=0.1, rounding=1e-3)
    step = np.array([1e-4, 0.0])
    assert newton._updated(B, step, np.array([4e-4, 9e-4]), np.eye(2)) is B
    changed = newton._updated(B, step, np.array([4e-4, 9e-3]), np.eye(2))
    assert not np.array_equal(changed.matrix, B.matrix)


@pytest.mark.filterwarnings("error")
def test_a_curvature_that_rounding_makes_zero_gives_a_finite_step():
    run = search(rosenbrock, 2)
    s = run._step(np.zeros(2), np.ones(2), np.diag([-1e20, 1.0]), 1.0)
    assert np.isfinite(s).all()
    assert np.linalg.norm(s) <= 1.0 + 1e-9


def test_a_step_is_promised_to_gain_whatever_bounds_cut_it_short():
    rng = np.random.default_rng(0)
    for _ in range(600):
        k = int(rng.integers(2, 5))
        A = rng.standard_normal((k, k))
        curvature = A + A.T if rng.random() < 0.5 else A @ A.T
        turned = np.eye(k) + 0.5 * np.tril(rng.standard_normal((k, k)), -1)
        near = rng.uniform(0, 1, (k, 2)) * (rng.random((k, 2)) < 0.6)
        bounds = np.where(near > 0, near, 10.0) * [-1.0, 1.0]
        search = newton.Search(lambda x: (0.0, x), bounds, turned, 0.1)
        gradient, x = rng.standard_normal(k), np.zeros(k)
        assert search._potential(x, gradient, curvature) > 0
        step = search._step(x, gradient, curvature, 1.0)
        assert ((step >= bounds[:, 0]) & (step <= bounds[:, 1])).all()


# -- expected curvature ----------------------------------------------------------------------


def test_information_leads_to_the_top_of_a_bowl_in_two_steps():
    B, top = np.array([[1e3, 20.0], [20.0, 10.0]]), np.array([1.0, -2.0])
    evaluate, asked = bowl(B, top), []

    def information(x):
        asked.append(x)
        return B

    run = search(evaluate, 2, information=information, radius=10.0)
    found = run.run(np.zeros(2), None, 50, unnoted)
    assert found.converged
    np.testing.assert_allclose(found.vector, top, atol=1e-6)
    assert evaluate.count == 2  # none for differences
    assert len(asked) == 2
    np.testing.assert_array_equal(found.curvature.matrix, B)
    assert found.curvature.exact


@pytest.mark.parametrize("wrong", [0.02, 0.3, 3.0, 30.0])
def test_information_of_another_size_than_the_curvature_still_leads_to_the_top(wrong):
    B, top = np.array([[50.0, 20.0], [20.0, 30.0]]), np.array([1.0, -2.0])
    run = search(bowl(B, top), 2, information=lambda x: wrong * B)
    found = run.run(np.zeros(2), None, 300, unnoted)
    assert found.converged
    # what is left is told in units of the information
    assert -bowl(B, top)(found.vector)[0] <= 0.01 * 2 * max(1.0, wrong)


def variance_of(square, n):
    """Log density of n numbers of a mean square by the logarithm of their variance."""

    def evaluate(x):
        evaluate.seen.append(float(x[0]))
        ratio = square * np.exp(-x[0])
        return -0.5 * n * (float(x[0]) + float(ratio)), 0.5 * n * (ratio - 1.0) * np.ones(1)

    evaluate.seen = []
    return evaluate


def test_a_step_that_bare_information_would_overshoot_is_kept_short():
    n, start = 100, -6.0
    evaluate = variance_of(1.0, n)
    bare = evaluate(np.array([start]))[1][0] / (0.5 * n)
    assert start + bare > 300  # far beyond the top at 0
    found = search(evaluate, 1, information=lambda x: 0.5 * n * np.eye(1)).run(
        np.array([start]), None, 100, unnoted
    )
    assert found.converged
    assert found.vector[0] == pytest.approx(0.0, abs=0.05)
    assert max(evaluate.seen) < 50


def test_a_step_that_gains_far_less_than_promised_makes_the_next_one_shorter():
    """It is not enough to gain at all: halving alone would take a step to a false place."""
    evaluate = variance_of(1.0, 100)
    lengths, last = [], []

    def note(x, *_):
        if last:
            lengths.append(abs(float(x[0]) - last[-1]))
        last.append(float(x[0]))

    run = search(evaluate, 1, information=lambda x: 50.0 * np.eye(1))
    found = run.run(np.array([-4.0]), None, 100, note)
    assert found.converged
    assert max(lengths) < 5.0
