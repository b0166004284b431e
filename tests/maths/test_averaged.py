"""Kernels of averages: weighted sums of the kernel of points, and integrals of it."""

import re

import numpy as np
import pytest
from agree import assert_close
from scipy import integrate, special

from daskgp.arrays.backend import to_host
from daskgp.errors import InputError, SettingError
from daskgp.fit.conditionals import _reaches_far
from daskgp.kernels import (
    RBF,
    Averaged,
    Coregion,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Rotated,
    from_dict,
    parse,
)
from daskgp.kernels.averaged import averaged, averages, rule
from daskgp.kernels.columns import on_columns
from daskgp.kernels.lengthscales import distance_units
from daskgp.kernels.program import averaged_program, tiles_of
from daskgp.kernels.spectrum import check_features
from daskgp.kernels.units import left_open
from daskgp.models.exact import Exact
from daskgp.models.inducing import choose
from daskgp.models.markov import conditionals
from daskgp.models.markov.conditionals import Conditionals, scores, weights
from daskgp.models.values import Block, Theta
from daskgp.testing import central_differences, check_kernel, parametrize_with_checks

AT_POINTS = Matern32((0.9, 1.4), 0.8, active_dims=(0, 1))
KERNELS = {
    "intervals": Averaged(RBF(0.8, 2.0), 1),
    "discs": Averaged(AT_POINTS + Linear(0.3), 2, (0, 1)),
    "boxes": 0.5 * Averaged(AT_POINTS, 3, (0, 1), "box", 2) * RBF(1.2, active_dims=2),
    "boxes in space": Averaged(Matern52(1.1), 3, shape="box", order=2),
    "points": Averaged(Matern52(1.3), (2, 3, 4, 5), (0, 1)),
    "points of one": Averaged(Matern12(1.3), (1, 2, 3)) + RBF(2.0, active_dims=0),
    "exact intervals": Averaged(RBF(0.8, 2.0, active_dims=0), 1, order="exact"),
    "exact boxes": Averaged(RBF((0.8, 1.3, 5.0), 2.0), 2, (0, 1), "box", "exact"),
    "rotated": Averaged(Rotated(RBF((2.0, 0.5, 1.0)), angle=30.0), 2),
    "points on a sphere": Averaged(Matern52(1.1), (3, 4, 5, 6), (0, 1, 2), sphere=True),
    "a point on a sphere": Averaged(Matern52(1.1) + Linear(0.3), (3, 4), (0, 1, 2), sphere=True),
    "of levels": Averaged(Matern32(active_dims=0) * Coregion(2, levels=2), 1, [0]),
}


@parametrize_with_checks(KERNELS)
def test_checks(subject, check):
    check(subject)


@pytest.mark.parametrize("shape", ["disc", "box"])
def test_checks_of_caps(shape):
    rng = np.random.default_rng(0)
    X = np.c_[rng.uniform(-1.5, 1.5, (15, 3)), rng.uniform(0.0, 0.3, 15)]
    X[::3, 3] = 0.0
    X[:, 0] += np.copysign(0.5, X[:, 0])
    X[1, :2] = 0.0  # a pole, where east and north do not turn with the place
    kernel = Averaged(Matern52(1.1), 3, shape=shape, order=2, sphere=True)
    check_kernel(kernel, X[4:11], X[11:])
    u, radius = X[:, :3], X[:, 3]
    for node in kernel.nodes(X)[1]:
        moved, length = node[:, :3], np.sqrt((u**2).sum(axis=1))
        assert_close(np.sqrt((moved**2).sum(axis=1)), length, 1e-12)
        angle = np.arccos(np.clip((moved * u).sum(axis=1) / length**2, -1.0, 1.0))
        assert_close(
            angle * length, radius * np.sqrt(0.5 if shape == "disc" else 2 / 3), 1e-6, 1e-6
        )
    assert from_dict(kernel.to_dict()) == kernel


def places(n=24, seed=0):
    """Points and discs of two coordinates, the radius last."""
    rng = np.random.default_rng(seed)
    return np.c_[rng.uniform(0, 4, (n, 2)), np.where(np.arange(n) % 3, rng.uniform(0.1, 1, n), 0)]


def by_hand(kernel, X, Z, weights, nodes):
    """The average over pairs of nodes, of a kernel of the coordinates alone."""
    m = nodes.shape[1]
    total = 0.0
    for w, x in zip(weights, nodes, strict=True):
        for v, z in zip(weights, nodes, strict=True):
            total = total + w * v * kernel(X[:, :m] + X[:, [m]] * x, Z[:, :m] + Z[:, [m]] * z)
    return total


HEXAGON = np.sqrt(2 / 3) * np.array([[np.cos(a), np.sin(a)] for a in np.arange(6) * np.pi / 3])


# -- values --------------------------------------------------------------------------------------


def test_a_disc_is_the_average_of_seven_nodes():
    X, Z = places(), places(7, seed=1)
    weights, nodes = np.append(0.25, np.full(6, 0.125)), np.vstack([np.zeros(2), HEXAGON])
    kernel = Averaged(AT_POINTS, 2, order=3)
    assert_close(kernel(X), by_hand(AT_POINTS, X, X, weights, nodes), 1e-12, 1e-14)
    assert_close(kernel(X, Z), by_hand(AT_POINTS, X, Z, weights, nodes), 1e-12, 1e-14)


def test_a_radius_of_zero_is_a_point():
    X = places()
    X[:, 2] = 0.0
    for shape in ("disc", "box"):
        assert_close(Averaged(AT_POINTS, 2, shape=shape)(X), AT_POINTS(X[:, :2]), 1e-14)


def test_points_are_averaged_with_equal_weights():
    rng = np.random.default_rng(0)
    X = np.c_[rng.uniform(0, 4, (9, 2)), rng.normal(0, 0.3, (9, 6))]
    kernel, K = Averaged(AT_POINTS, (2, 3, 4, 5, 6, 7), (0, 1)), 0.0
    for a in (2, 4, 6):
        for b in (2, 4, 6):
            K = K + AT_POINTS(X[:, :2] + X[:, a : a + 2], X[:, :2] + X[:, b : b + 2]) / 9
    assert_close(kernel(X), K, 1e-12, 1e-14)


def test_more_nodes_come_to_the_integrals():
    intervals = np.array([[0.0, 0.9], [0.7, 0.4], [0.3, 0.0]])
    K, L = (Averaged(RBF(0.8, 2.0), 1, order=order)(intervals) for order in (12, "exact"))

    def exact(i, j):
        (x, r), (z, s) = intervals[i], intervals[j]

        def k(t, u):
            return 2.0 * np.exp(-0.5 * ((x + r * t - z - s * u) / 0.8) ** 2)

        return integrate.dblquad(k, -1, 1, -1, 1, epsabs=1e-12)[0] / 4

    wanted = [[exact(i, j) for j in range(3)] for i in range(3)]
    assert_close(K, wanted, 1e-9)
    assert_close(L, wanted, 1e-10)


@pytest.mark.parametrize("radius", [0.01, 0.04, 0.06, 0.4, 2.0])
def test_the_closed_form_is_the_integral(radius):
    intervals = np.array([[0.0, radius], [0.7, 0.4], [0.3, 0.0], [0.1, 0.03], [9.0, radius]])
    exact = Averaged(RBF(0.8, 2.0), 1, order="exact")(intervals)
    assert_close(exact, Averaged(RBF(0.8, 2.0), 1, order=30)(intervals), 1e-11, 1e-12)
    boxes = np.insert(intervals, 1, [0.2, 0.1, 0.4, 0.9, 0.0], axis=1)
    kernel = RBF((0.8, 40.0), active_dims=(0, 1))
    exact = Averaged(kernel, 2, shape="box", order="exact")(boxes)
    assert_close(exact, Averaged(kernel, 2, shape="box", order=14)(boxes), 1e-9, 1e-9)


def test_more_nodes_come_to_the_integral_over_a_disc():
    def polar(radius, angle):
        away = np.hypot(1.2 + 0.7 * radius * np.cos(angle), 0.7 * radius * np.sin(angle))
        return radius * np.exp(-0.5 * away**2) / np.pi

    exact = integrate.dblquad(polar, 0, 2 * np.pi, 0, 1, epsabs=1e-12)[0]
    K = Averaged(RBF(1.0), 2, order=9)(np.array([[1.2, 0, 0.7]]), np.zeros((1, 3)))
    assert_close(K[0, 0], exact, 1e-9)


@pytest.mark.parametrize("shape", ["disc", "box"])
@pytest.mark.parametrize("order", range(1, 8))
def test_rules_are_exact_for_polynomials(shape, order):
    weights, nodes = rule(shape, 2, order)
    assert_close(weights.sum(), 1.0, 1e-12)
    assert (weights > 0).all()
    assert_close(weights @ nodes, 0.0, 1e-12, 1e-14)
    for p in range(0, 2 * order, 2):
        for q in range(0, 2 * order - p, 2):
            found = weights @ (nodes[:, 0] ** p * nodes[:, 1] ** q)
            if shape == "box":
                wanted = 1.0 / ((p + 1) * (q + 1))
            else:
                wanted = 2 * special.beta((p + 1) / 2, (q + 1) / 2) / (np.pi * (p + q + 2))
            assert_close(found, wanted, 1e-9, 1e-12)


def test_the_errors_that_are_documented():
    interval, disc = np.array([[0.0, 1.0]]), np.array([[0.0, 0.0, 1.0]])
    for X, kernel, order, error in (
        (interval, RBF(1.0), 3, 5e-6),
        (interval, Matern32(1.0), 3, 0.005),
        (interval, Matern32(1.0), 8, 1.4e-4),
        (interval, Matern12(1.0), 8, 0.008),
        (disc, Matern52(1.0), 4, 1e-4),
        (disc, Matern32(1.0), 4, 6e-4),
        (disc, Matern32(1.0), 6, 1e-4),
    ):
        found = Averaged(kernel, X.shape[1] - 1, order=order).error_variance(X)
        assert_close(found, error, 0.1)


def test_an_average_varies_less_than_a_point_the_more_the_wider_it_is():
    X = np.c_[np.zeros((5, 2)), np.linspace(0, 2, 5)]
    variances = Averaged(AT_POINTS, 2).diag(X)
    assert (np.diff(variances) < 0).all()


# -- neighbours ----------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("name", ["discs", "boxes", "points", "rotated", "of levels"])
def test_windows_have_its_covariance_and_derivatives(name):
    kernel = KERNELS[name]
    d = {"discs": 3, "boxes": 4, "points": 6, "rotated": 3, "of levels": 3}[name]
    X = np.random.default_rng(0).uniform(0, 2, (3, 6, d))
    if name == "of levels":
        X[..., 2] = np.arange(6) % 2
    X[0, :, list(kernel.extents(d))] = 0.0
    X[1, :3, list(kernel.extents(d))] = 0.0
    K, by_log = tiles_of(kernel, X, slopes=True)
    bars = np.random.default_rng(1).normal(size=(6, 6))
    bars += bars.T
    for i, rows in enumerate(X):
        assert_close(K[i], kernel(rows), 1e-10, 1e-10)
        found = (by_log[:, i] * bars).sum(axis=(1, 2))
        assert_close(found, kernel.pullback(rows)[1](bars).log_parameters, 1e-9, 1e-9)


def test_a_product_of_averages_has_windows_too():
    kernel = Averaged(RBF(0.8, active_dims=0), 1, [0]) * (Averaged(Matern32(), 1) + 0.3)
    X = np.random.default_rng(0).uniform(0, 2, (2, 5, 2))
    K, by_log = tiles_of(kernel, X, slopes=True)
    assert_close(K[1], kernel(X[1]), 1e-10)
    found = by_log[:, 1].sum(axis=(1, 2))
    assert_close(found, kernel.pullback(X[1])[1](np.ones((5, 5))).log_parameters, 1e-9)


def test_rows_given_all_earlier_ones_have_the_density_of_all():
    X, rng = places(12), np.random.default_rng(0)
    theta, y = Theta(Averaged(AT_POINTS, 2), 0.05), rng.standard_normal((12, 1))
    near = np.array([[j if j < i else -1 for j in range(11)] for i in range(12)])
    found = scores(theta, Conditionals(X, y, None, np.arange(12), near), np.eye(1), 1)
    S = theta.kernel(X) + 0.05 * np.eye(12)
    assert_close(found.logdet, np.linalg.slogdet(S)[1], 1e-9)
    assert_close(found.square[0, 0], y[:, 0] @ np.linalg.solve(S, y[:, 0]), 1e-9)
    assert np.isfinite(weights(theta, Conditionals(X, y, None, np.arange(12), near))).all()


def test_neighbours_are_those_of_the_centres():
    units = distance_units(Averaged(AT_POINTS, 2), np.array([4.0, 4.0, 1.0]))
    assert np.isinf(units[2])
    assert np.isfinite(units[:2]).all()
    assert _reaches_far(Averaged(Linear(), 1))


def test_inducing_inputs_are_points_at_the_centres():
    X = places(30)
    for how in ("greedy", "random", "kmeans"):
        chosen = choose(X, Averaged(AT_POINTS, 2), 8, how, np.random.default_rng(0))
        assert (chosen[:, 2] == 0.0).all()
    assert X[:, 2].max() > 0.0


# -- as a value ----------------------------------------------------------------------------------


def test_the_evidence_has_its_gradient():
    X, rng = places(), np.random.default_rng(0)
    rows = Block(X, rng.standard_normal((len(X), 1)))
    theta = Theta(Averaged(AT_POINTS, 2), 0.05)

    def value(vector):
        return Exact().objective(theta.from_vector(vector), rows).value

    found = Exact().objective(theta, rows).gradient.to_vector(False)
    assert_close(found, central_differences(value, theta.to_vector(False)), 1e-5, 1e-6)


def test_it_is_read_from_text_and_from_its_description():
    text = "2*averaged(rbf([5, 1]), footprint=('dx', 'dy'), columns=('e', 'n')) + averaged"
    wanted = 2 * Averaged(RBF((5.0, 1.0)), ("dx", "dy"), ("e", "n")) + Averaged()
    assert parse(text) == wanted
    assert from_dict(wanted.to_dict()) == wanted
    assert parse("averaged(rbf, radius, order=exact)") == Averaged(RBF(), order="exact")
    assert parse("averaged(linear() + rbf, radius, shape=box, order=2)") == Averaged(
        Linear() + RBF(), "radius", shape="box", order=2
    )


def test_numbers_left_open_are_those_of_the_kernel_at_points():
    assert left_open(Averaged(Matern32(variance=1.0), 1), 2).tolist() == [False, True]
    resolved = Averaged(Matern32(ard=True, active_dims=(0, 1)), 2).resolve(np.array([1, 2, 9]), 3.0)
    assert resolved.kernel.lengthscale == (1.0, 2.0)


def test_features_by_name_become_columns():
    names, where = ("radius", "e", "n"), (0, 1, 2)
    placed = on_columns(Averaged(Matern32(ard=True)) + RBF(), names, where)
    wanted = Averaged(Matern32(ard=True, active_dims=(1, 2)), 0, (1, 2))
    assert placed == wanted + RBF(active_dims=(1, 2))
    assert placed.extents(3) == {0: (1, 2)}
    assert placed.tied_columns(3) == ((1, 2),)
    assert placed.categories(3) == ()


def test_a_footprint_wraps_a_kernel_once():
    assert next(averages(averaged(RBF(), ["dx0", "dx1"]))).footprint == ("dx0", "dx1")
    with pytest.raises(SettingError, match="both give footprints"):
        averaged(1.0 + Averaged(), "radius")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Averaged(3.0), "such as Matern32.., not 3.0"),
        (lambda: Averaged(RBF() + Averaged()), "already holds a kernel of averages"),
        (lambda: Rotated(Averaged(footprint=2)), "Rotated holds averages"),
        (lambda: Averaged(footprint=-1), "footprint=-1 of Averaged: give the column"),
        (lambda: Averaged(footprint=()), "footprint=.. of Averaged: give the column"),
        (lambda: Averaged(columns=((0, 1),)), "give coordinates by number or name"),
        (lambda: Averaged(footprint=(1, 1)), "distinct columns of offsets"),
        (lambda: Averaged(columns=()), "columns of Averaged must be distinct"),
        (lambda: Averaged(shape="ball"), "choose one of 'disc', 'box'"),
        (lambda: Averaged(order=0), "order of Averaged"),
        (lambda: Averaged(order="fine"), "choose one of 'exact', or a whole number"),
        (lambda: Averaged(order=51), "choose at most 50"),
        (lambda: Averaged(order="exact"), "for RBF, which has a closed form, not for Matern32"),
        (
            lambda: on_columns(Averaged(RBF(), order="exact"), ("x", "y", "radius"), (0, 1, 2)),
            "for intervals and boxes: give shape='box'",
        ),
        (lambda: Averaged(footprint=(1, 2), order=2), "take no order: leave it out"),
        (lambda: Averaged(footprint=(1, 2), shape="box"), "take no shape: leave it out"),
        (lambda: from_dict({"kernel": "averaged", "parts": "rbf"}), "has no setting 'parts'"),
        (
            lambda: on_columns(Averaged(), ("x", "y"), (0, 1)),
            "Averaged has footprint with 'radius', but the features are 'x, y'",
        ),
        (
            lambda: on_columns(Averaged(), ("x", "y", "t", "radius"), range(4)),
            r"a disc in 3 coordinates \(x, y, t\), of 2 at most: name the coordinates",
        ),
        (
            lambda: on_columns(Averaged(columns=("x", "radius")), ("x", "radius"), range(2)),
            "'radius' among its columns and as its footprint",
        ),
        (
            lambda: on_columns(
                Averaged(shape="box", order=14), ("x", "y", "t", "radius"), range(4)
            ),
            r"order=14 of Averaged in 3 coordinates \(x, y, t\) makes 2,744 nodes, of 2,500",
        ),
        (
            lambda: on_columns(Averaged(RBF(), ("a", "b", "c")), ("x", "y", *"abc"), range(5)),
            r"3 columns of offsets for 2 coordinates \(x, y\): give 2 for each point",
        ),
        (
            lambda: on_columns(Averaged() * Coregion("radius"), ("x", "radius"), range(2)),
            "footprint 'radius', which holds text or codes",
        ),
        (
            lambda: on_columns(
                Averaged(columns=("lon",)), ("lon", "lat", "radius"), ((0, 1, 2), (0, 1, 2), 3)
            ),
            "over 'lon', but 'lon' and 'lat' are one place on the sphere: give columns=",
        ),
        (lambda: check_features(Averaged(RBF(), 1), 2), "Averaged has no spectrum"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, message):
    with pytest.raises(SettingError, match=re.compile(message)):
        make()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Averaged(footprint=2), "has footprint=2|footprint"),
        (Averaged(), "names of features that an estimator's fit knows"),
        (Averaged(footprint=1), "the radius of footprints and is negative, in"),
        (Averaged(RBF(), (0, 1)), "no coordinates beside its footprint"),
    ],
)
def test_rows_that_do_not_fit_are_refused(kernel, message):
    with pytest.raises(InputError, match=message):
        kernel(np.array([[0.0, -1.0]]))


COMPILED = {
    "intervals": (Averaged(Matern52(0.8, 2.0, active_dims=0), 1), 2),
    "discs": (2.0 * Averaged(AT_POINTS + 0.3, 2, order=2) + Linear(0.1, active_dims=0), 3),
    "one lengthscale": (Averaged(Matern12(0.7, active_dims=(0, 1)), 2), 3),
    "a feature beside": (Averaged(RBF((0.7, 1.3, 0.9), active_dims=(2, 0, 1)), 3, (0, 1)), 4),
    "points": (Averaged(RBF(1.1, active_dims=(0, 1)), (2, 3, 4, 5), (0, 1)), 6),
    "of levels": (
        Averaged(Matern32(1.2, active_dims=0) * Coregion(2, levels=2, rank=1), 1, [0])
        + RBF(active_dims=0),
        3,
    ),
    "two": (
        Averaged(RBF(0.5, active_dims=0), 2, [0]) * Averaged(Matern32(1.3, active_dims=1), 3, [1]),
        4,
    ),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_agrees_with_array_functions(name, monkeypatch):
    kernel, d = COMPILED[name]
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, (40, d))
    X[::3, list(kernel.extents(d))] = 0.0
    X[:, list(kernel.categories(d))] = np.arange(40)[:, None] % 2
    y, own = rng.standard_normal((40, 2)), np.arange(11, 40)
    near = np.stack([rng.permutation(i)[:9] for i in own])
    near[:3, :4] = -1
    theta, windows = Theta(kernel, 0.05), Conditionals(X, y, None, own, near)
    assert conditionals._form(theta, windows) is not None
    found = scores(theta, windows, np.eye(2), 2), weights(theta, windows)
    monkeypatch.setattr(conditionals, "_form", lambda *_: None)
    wanted = scores(theta, windows, np.eye(2), 2), weights(theta, windows)
    for one, other in zip((*found[0], found[1]), (*wanted[0], wanted[1]), strict=True):
        assert_close(one, other, 1e-8, 1e-8)


@pytest.mark.parametrize(
    "kernel",
    [
        Averaged(Linear(active_dims=0), 1),
        Averaged(RBF(active_dims=0) * Matern32(active_dims=0), 1),
        Averaged(RBF(active_dims=0), 1, order="exact"),
        Averaged(RBF(), 1),  # which acts on all columns
        Averaged(Rotated(RBF(active_dims=(0, 1)), (0, 1)), 2),
    ],
)
def test_other_averages_are_left_to_array_functions(kernel):
    assert averaged_program(kernel, 3 if kernel.footprint == 2 else 2) is None


@pytest.mark.whole
@pytest.mark.parametrize("name", ["discs", "points", "exact boxes"])
def test_array_modules(xp, name):
    kernel, rng = KERNELS[name], np.random.default_rng(0)
    d = {"discs": 3, "points": 6, "exact boxes": 3}[name]
    X = rng.uniform(0, 2, (9, d))
    X[::3, list(kernel.extents(d))] = 0.0
    Z, bars = X[:4] + 0.1, rng.standard_normal((9, 4))
    own, other = xp.asarray(X), xp.asarray(Z)
    assert_close(to_host(kernel(own)), kernel(X), 1e-12)
    assert_close(to_host(kernel.diag(own)), kernel.diag(X), 1e-12)
    found = kernel.pullback(own, other)[1](xp.asarray(bars))
    wanted = kernel.pullback(X, Z)[1](bars)
    assert_close(found.log_parameters, wanted.log_parameters, 1e-10)
    assert_close(to_host(found.X), wanted.X, 1e-10)
    of_diag = kernel.diag_vjp(own, xp.asarray(bars[:, 0]))
    assert_close(of_diag.log_parameters, kernel.diag_vjp(X, bars[:, 0]).log_parameters, 1e-10)
    tiles = tiles_of(kernel, xp.asarray(X[None]), slopes=True)
    if tiles is not None:
        assert_close(to_host(tiles[0][0]), kernel(X), 1e-10)
