"""Columns that share a lengthscale share a scale: what is turned alike is predicted alike."""

import numpy as np
import pytest

import daskgp
from daskgp import kernels, testing
from daskgp.fit.recipe import Recipe
from daskgp.models import scaling
from tests.contract import cases
from tests.effective import effective
from tests.logs import warnings_in

N, M = 240, 24
FIELD = kernels.Matern32(4.0, 1.5, active_dims=(0, 1)) * kernels.RBF(2.2, 1.0, active_dims=(2,))
"""One lengthscale over two coordinates, one over the time."""
FIXED = {"kernel": FIELD, "noise_variance": 0.05, "optimizer": None, "progress": False}
STEPS = {"max_iter": 20, "learning_rate": 0.01, "batch_rows": 60, "n_subset": 60}

ANGLE = 0.7
TURN = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])
QUARTER = np.array([[0.0, -1.0], [1.0, 0.0]])
SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])


def rows(n, seed):
    """Places in a domain three times as long as wide, and times."""
    rng = np.random.default_rng(seed)
    X = rng.uniform([0, 0, 0], [30, 10, 5], (n, 3))
    return X, np.sin(X[:, 0] / 5) + np.cos(X[:, 1] / 3) + 0.2 * X[:, 2]


def turned(X, by):
    """Rows with other axes of the two coordinates, far from the origin."""
    return np.column_stack([X[:, :2] @ by.T + [100.0, -50.0], X[:, 2:]])


X, y = rows(N, 0)
T = rows(30, 1)[0]
Z = X[::10]
BOX = np.array([[-5.0, 35.0], [-5.0, 15.0], [0.0, 5.0]])


def given(by):
    """What methods are given of inputs turned alike, those that have these settings."""
    places = turned(Z, by)
    return {
        "inducing": places,
        "support": places,
        "bounds": np.sort(turned(BOX.T, by).T, axis=1),
        "order": "x2",
        "block_rows": 40,
        "n_neighbours": 9,
        "partition": "chunks",
        "n_actions": M,
        "n_spectral": M,
        "n_mean": 60,
        "solver_tol": 1e-12,
        "train_points": False,  # Adam moves along the axes
        "train_mean_points": False,
        "precondition": None,
    }


OWN = {
    "lma": {"markov_order": 1, "neighbours": "order"},
    "vecchia": {"support": "greedy"},
    "exact-experts": {"aggregation": "npae"},
    "cagp": {"support": None, "order": None, "block_rows": None},
    "cagp-cg": {"support": None, "order": "auto", "block_rows": None},
    "cggp": {"max_iter": 512},
}
"""Other settings of some methods."""
VARIANTS = {
    "lma whole": ("lma", {"markov_order": 5}),
    "full-scale": ("vecchia", {"n_neighbours": 6}),
}
NAMES = [*cases.SETTINGS, *VARIANTS]


def made(name, by, **settings):
    """A method that is given inputs turned alike."""
    case, own = VARIANTS.get(name, (name, OWN.get(name, {})))
    steps = STEPS if case in cases.STEPPED else {}
    model = cases.make(case, **given(by) | own | steps | settings)
    return effective(cases.kind(case), **model.get_params(deep=False))


AXES = set(cases.those(lambda name: cases.has(name, "bounds")))
"""Methods that work along the axes: quarter turns alone leave them the same."""


@pytest.mark.parametrize("name", NAMES)
def test_turned_and_mirrored_coordinates_turn_the_answer(name, monkeypatch):
    by = QUARTER if name in AXES else TURN @ SWAP
    plain, other = made(name, np.eye(2), **FIXED), made(name, by, **FIXED)
    kernel = FIXED["kernel"]
    if name == "ssgp":  # it knows one kernel alone, and its frequencies turn too
        kernel = kernels.RBF(4.0)
        plain.set_params(kernel=kernel)
        other.set_params(kernel=kernel)
    plain.fit(turned(X, np.eye(2)), y)
    if name == "ssgp":
        draw = daskgp.estimators.ssgp.sample_spectrum

        def turned_too(*args):
            S = draw(*args)
            return np.column_stack([S[:, :2] @ by.T, S[:, 2:]])

        monkeypatch.setattr(daskgp.estimators.ssgp, "sample_spectrum", turned_too)
    other.fit(turned(X, by), y)
    found = cases.moments(other, turned(T, by))
    wanted = cases.moments(plain, turned(T, np.eye(2)))
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["exact", "pic", "lma", "exact-experts", "vecchia"])
def test_training_turns_too(name):
    settings = {**FIXED, "optimizer": "l-bfgs", "max_iter": 8}
    rough = y + np.random.default_rng(2).standard_normal(N)
    plain = made(name, np.eye(2), **settings).fit(turned(X, np.eye(2)), rough)
    other = made(name, TURN, **settings).fit(turned(X, TURN), rough)
    found, wanted = other.kernel_.log_parameters, plain.kernel_.log_parameters
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    np.testing.assert_allclose(
        other.predict(turned(T, TURN)), plain.predict(turned(T, np.eye(2))), atol=1e-5
    )


@pytest.mark.parametrize("kernel", [kernels.RBF(0.5), kernels.Matern32(0.5)])
def test_an_isotropic_field_keeps_its_proportions_on_a_long_domain(kernel):
    rng = np.random.default_rng(0)
    A = rng.uniform([0, 0], [50, 10], (80, 2))
    model = daskgp.ExactGP(kernel, optimizer=None, progress=False).fit(A, np.sin(A[:, 0]))
    one, other = model.solved_.scaling.x_scale
    assert one == other
    assert one == pytest.approx(np.sqrt(A.var(axis=0).mean()))
    assert model.kernel_.lengthscale == pytest.approx(0.5, rel=1e-14)
    # the same distance means the same, whatever its direction
    places = np.array([[25.0, 5.0], [28.0, 5.0], [25.0, 8.0]])
    K = model.kernel_(places)
    assert K[0, 1] == pytest.approx(K[0, 2], rel=1e-12)


def test_a_lengthscale_of_its_own_frees_a_column():
    kernel = kernels.RBF(0.5, ard=True)
    model = daskgp.ExactGP(kernel, optimizer=None, progress=False).fit(X, y)
    np.testing.assert_allclose(model.solved_.scaling.x_scale, X.std(axis=0), rtol=1e-12)


def test_a_stream_takes_the_proportions_of_its_first_rows():
    kernel = {"kernel": kernels.RBF(0.5), "inducing": Z, "progress": False}
    model = daskgp.SVGP(**kernel, batch_rows=60).partial_fit(X[:100], y[:100])
    wanted = np.sqrt(X[:100].var(axis=0).mean())
    np.testing.assert_allclose(model.solved_.scaling.x_scale, wanted, rtol=1e-12)


def test_a_likelihood_of_classes_follows():
    kernel = {"kernel": kernels.RBF(0.5), "inducing": Z, "progress": False}
    model = effective(daskgp.SVGP, **kernel, likelihood="bernoulli-logit", **STEPS)
    assert len(set(model.fit(X, y > 1).solved_.scaling.x_scale)) == 1


@pytest.mark.parametrize("standardize", [True, False])
def test_uneven_columns_of_one_lengthscale_are_named_once(standardize, caplog):
    settings = {"optimizer": None, "progress": False, "standardize": standardize}
    wide = X * [1.0, 1e-3, 1.0]
    daskgp.ExactGP(kernels.RBF(0.5), **settings).fit(wide, y)
    (said,) = warnings_in(caplog)
    assert "features of very different standard deviation, 'x1' (0.00" in said
    assert "'x2' (1.4" in said
    assert "'x0' (8." in said
    assert "ard=True" in said
    caplog.clear()
    daskgp.ExactGP(kernels.RBF(0.5, ard=True), **settings).fit(wide, y)
    daskgp.ExactGP(kernels.RBF(0.5, active_dims=(0, 2)), **settings).fit(wide, y)
    assert not warnings_in(caplog)


# -- what kernels tie ------------------------------------------------------------------------

TIES = {
    "one lengthscale": (kernels.Matern52(), ((0, 1, 2, 3),)),
    "one lengthscale, some columns": (kernels.RBF(active_dims=(3, 1)), ((1, 3),)),
    "one column": (kernels.RBF(active_dims=(2,)), ()),
    "a lengthscale a column": (kernels.RBF((1.0, 2.0, 3.0, 4.0)), ()),
    "ard": (kernels.RationalQuadratic(ard=True), ()),
    "periodic": (kernels.Periodic(active_dims=(0, 2)), ((0, 2),)),
    "linear": (kernels.Linear(), ((0, 1, 2, 3),)),
    "linear, a variance a column": (kernels.Linear((1.0, 2.0, 3.0, 4.0)), ()),
    "constant": (kernels.Constant(), ()),
    "places and time": (
        kernels.RBF(active_dims=(0, 1)) * kernels.RBF(active_dims=(2,)) + 1.0,
        ((0, 1),),
    ),
    "two groups": (
        kernels.RBF(active_dims=(0, 3)) * kernels.RBF(active_dims=(1, 2)),
        ((0, 3), (1, 2)),
    ),
    "a chain": (
        kernels.RBF(active_dims=(0, 1))
        + kernels.RBF(active_dims=(2, 3))
        + kernels.RBF(active_dims=(1, 2)),
        ((0, 1, 2, 3),),
    ),
    "isotropic and ard": (kernels.RBF(active_dims=(0, 1)) + kernels.RBF(ard=True), ((0, 1),)),
}


@pytest.mark.parametrize("case", TIES)
def test_kernels_say_which_columns_they_tie(case):
    kernel, wanted = TIES[case]
    assert kernel.tied_columns(4) == wanted
    assert kernel.resolve(np.ones(4), 2.0).tied_columns(4) == wanted


def test_a_kernel_of_columns_that_are_not_there_is_refused():
    with pytest.raises(daskgp.errors.InputError, match="the inputs have 2 columns"):
        kernels.RBF(active_dims=(0, 2)).tied_columns(2)


def test_ties_share_the_root_of_the_mean_of_variances():
    sums = scaling.combine(scaling.local(X[:50], y[:50, None]), scaling.local(X[50:], y[50:, None]))
    found = scaling.scales(sums, 3, ((0, 2),))
    spread = X.std(axis=0)
    shared = np.sqrt((spread[0] ** 2 + spread[2] ** 2) / 2)
    np.testing.assert_allclose(found, [shared, spread[1], shared], rtol=1e-12)


@pytest.mark.parametrize("case", TIES)
def test_the_shipped_check_agrees_with_what_kernels_tie(case):
    rng = np.random.default_rng(3)
    A, B = rng.uniform(0.2, 1.5, (6, 4)), rng.uniform(0.2, 1.5, (5, 4))
    testing.check_kernel(TIES[case][0].resolve(np.ones(4), 2.0), A, B)


class Silent(kernels.RBF):
    def tied_columns(self, d):
        return ()


class Overlapping(kernels.RBF):
    def tied_columns(self, d):
        return ((0, 1), (1, 2))


@pytest.mark.parametrize(
    ("kernel", "says"),
    [(Silent(0.7), "columns 0 and 1 share a hyper-parameter"), (Overlapping(0.7), "overlap")],
)
def test_the_shipped_check_notices_ties_that_are_wrong(kernel, says):
    rng = np.random.default_rng(3)
    with pytest.raises(AssertionError, match=says):
        testing.check_kernel(kernel, rng.uniform(size=(6, 3)), rng.uniform(size=(5, 3)))


# -- stores of before ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sgpr", "lma", "exact-experts", "cagp", "svgp"])
def test_a_store_with_a_scale_a_column_predicts_as_before(name, tmp_path, monkeypatch):
    kernel = kernels.Matern32(0.6)
    with monkeypatch.context() as patched:
        patched.setattr(Recipe, "tied", lambda self, rows: ())
        model = made(name, np.eye(2), **FIXED | {"kernel": kernel}).fit(turned(X, np.eye(2)), y)
        model.save(tmp_path / "m.zarr")
    at = turned(T, np.eye(2))
    loaded = daskgp.load(tmp_path / "m.zarr")
    np.testing.assert_allclose(loaded.solved_.scaling.x_scale, X.std(axis=0), rtol=1e-12)
    found, wanted = (np.stack(one.predict(at, return_std=True)) for one in (loaded, model))
    np.testing.assert_array_equal(found, wanted)
