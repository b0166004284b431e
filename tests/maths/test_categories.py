"""Kernels over categories: covariances of levels, their names, columns and text."""

import numpy as np
import pytest
from agree import assert_close
from maths.test_program import check

from daskgp.arrays.backend import to_host
from daskgp.errors import InputError, SettingError
from daskgp.kernels import (
    RBF,
    Categorical,
    Coregion,
    Linear,
    Matern32,
    parse,
    with_levels,
)
from daskgp.kernels.columns import of_features, on_columns
from daskgp.kernels.compose import held
from daskgp.kernels.lengthscales import correlation_lengths
from daskgp.testing import central_differences, parametrize_with_checks

NAMES = ("no2", "o3", "pm10", "co")
FULL = Coregion(2, variance=(1.0, 2.0, 0.5, 1.5), angle=(0.7, 1.2, 2.0, 1.6, 0.4, 1.1))
LOW = Coregion(0, 1, variance=(1.0, 2.0, 0.5, 1.5), angle=(0.9, 1.2, 2.0, 0.6))
TWO = Coregion(1, 2, levels=5).resolve(np.ones(3), 1.0)
ALIKE = Categorical(2, 0.3, 1.4, levels=4)
KERNELS = {
    "coregion": FULL,
    "coregion of rank 1": LOW,
    "coregion of rank 2": TWO.with_log_parameters(TWO.log_parameters + 0.1),
    "categorical": ALIKE,
    "product": Matern32(0.8, active_dims=(0, 1)) * FULL,
    "sum": Linear(active_dims=0) * ALIKE + RBF(ard=True, active_dims=(0, 1)) * FULL + 0.3,
}


@parametrize_with_checks(KERNELS)
def test_checks(subject, check):
    check(subject)


def places(rng, *shape, levels=4):
    """Rows of three columns, with codes in all of them that kernels here take for such."""
    X = rng.normal(size=(*shape, 3))
    X[..., 2] = rng.integers(0, levels, shape)
    return X


@pytest.mark.whole
@pytest.mark.parametrize("name", ["coregion", "categorical", "product", "sum"])
def test_programs_are_the_kernels(rng, name):
    check(KERNELS[name], places(rng, 3, 7))


@pytest.mark.whole
@pytest.mark.parametrize("kernel", [FULL, LOW, TWO, ALIKE], ids=["full", "1", "2", "alike"])
def test_covariances_are_positive_definite_and_have_their_derivatives(kernel):
    B, logs = kernel.covariance, kernel.log_parameters
    assert np.linalg.eigvalsh(B).min() > 0
    np.testing.assert_array_equal(B, B.T)
    bar = np.random.default_rng(0).normal(size=B.shape)
    wanted = central_differences(
        lambda v: float((bar * kernel.with_log_parameters(v).covariance).sum()), logs
    )
    assert_close(np.tensordot(kernel.slopes(), bar, 2), wanted, 1e-8, 1e-8)


def test_the_covariance_of_two_levels_is_what_variances_and_angle_say():
    B = Coregion(0, variance=(4.0, 9.0), angle=[2.0]).covariance
    assert_close(B, [[4.0, 6.0 * np.cos(2.0)], [6.0 * np.cos(2.0), 9.0]])


def test_rank_one_is_a_vector_and_a_diagonal():
    s = np.sqrt(LOW.variance)
    w = s * np.cos(LOW.angle)
    assert_close(LOW.covariance, np.outer(w, w) + np.diag((s * np.sin(LOW.angle)) ** 2))


def test_low_ranks_that_save_nothing_are_the_full_form():
    for levels, rank in ((2, 1), (3, 1), (4, 2), (5, 3)):
        low, full = (Coregion(0, r, levels=levels) for r in (rank, None))
        assert low.parameter_names == full.parameter_names
    assert len(Coregion(0, 1, levels=4).parameter_names) == 8


@pytest.mark.parametrize(("rank", "least"), [(None, 0.5), (1, 0.5), (2, 0.35)])
def test_starts_are_of_variance_one_and_correlations_about_a_half(rank, least):
    kernel = Coregion(0, rank, levels=6).resolve(np.ones(1), 1.0)
    C = kernel.correlation[np.tri(6, k=-1, dtype=bool)]
    assert kernel.variance == (1.0,) * 6
    assert C.min() > least - 1e-2
    assert C.max() < 0.5 + 1e-12
    low, high = kernel.log_bounds(np.ones(1)).T
    assert (low < kernel.log_parameters).all()
    assert (kernel.log_parameters < high).all()


def test_correlations_are_derived_with_their_gradients():
    kernel = 2.0 * FULL
    for i, one in enumerate(kernel.derived()):
        wanted = central_differences(
            lambda v, i=i: kernel.with_log_parameters(v).derived()[i].value, kernel.log_parameters
        )
        assert_close(one.gradient, wanted, 1e-8, 1e-8)
    assert [one.name for one in kernel.derived()][:2] == [
        "1.correlation[0,1]",
        "1.correlation[0,2]",
    ]
    assert_close(kernel.derived()[0].value, FULL.correlation[0, 1])


def test_levels_come_later_by_columns():
    kernel = 2.0 * (RBF() * Coregion("which", 1) + Categorical("where", levels=2))
    known = with_levels(kernel, {"which": NAMES, "where": ["a", "b"], "other": 3})
    coregion, categorical = known.parts[1].parts[0].parts[1], known.parts[1].parts[1]
    assert coregion.levels == NAMES
    assert categorical.levels == ("a", "b")
    assert coregion.parameter_names[:2] == ("variance[no2]", "variance[o3]")
    assert coregion.parameter_names[4:6] == ("angle[no2,0]", "angle[o3,0]")
    assert Coregion(0, levels=NAMES).parameter_names[4] == "angle[o3,no2]"
    assert with_levels(known, {"which": 4}) == known
    for others in (5, NAMES[::-1]):
        with pytest.raises(SettingError, match="leave levels out"):
            with_levels(known, {"which": others})


def test_text_names_columns_with_or_without_quotes():
    assert parse("matern32(active_dims=0)*coregion(which)").parts[1] == Coregion("which")
    assert parse('coregion(column="a b", rank=2)') == Coregion("a b", 2)
    assert parse("categorical(1, 0.5, levels=['a', 'b'])") == Categorical(1, 0.5, levels=("a", "b"))
    with pytest.raises(SettingError, match="a setting is a number"):
        parse("coregion(0, which)")


def test_columns_of_features_and_what_acts_on_the_others():
    names, kernel = ("x", "which", "z"), Matern32() * Coregion("which") + Linear(active_dims=1)
    found = on_columns(kernel, names, (0, 1, 2))
    assert found == Matern32(active_dims=(0, 2)) * Coregion(1) + Linear(active_dims=1)
    sphere = ((0, 1, 2), (0, 1, 2), 3)
    found = on_columns(Matern32(ard=True) * Coregion(2), ("lon", "lat", "which"), sphere)
    assert found == Matern32(ard=True, active_dims=((0, 1, 2),)) * Coregion(3)
    assert of_features(found, sphere).parts[1] == Coregion(2)
    with pytest.raises(SettingError, match="coordinate on the sphere"):
        on_columns(Coregion(0), ("lon", "lat", "which"), sphere)
    with pytest.raises(SettingError, match="but the features are"):
        on_columns(Coregion("what"), names, (0, 1, 2))
    with pytest.raises(SettingError, match="there are none"):
        on_columns(RBF() * Coregion("which"), ("which",), (0,))


@pytest.mark.parametrize(
    ("code", "seen"), [(4.0, "4"), (-1.0, "-1"), (0.5, "0.5"), (np.nan, "nan")]
)
def test_what_is_no_code_is_refused(xp, code, seen):
    X = xp.asarray([[0.0, 0.0, 1.0], [0.0, 0.0, code]])
    with pytest.raises(InputError, match=f"column 2 has {seen}, which is not a code of its 4"):
        FULL(X)


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (Coregion(0), "has no levels yet"),
        (Categorical("which", levels=2), "the name of a feature"),
        (Coregion(levels=2), "has no column"),
        (Coregion(3, levels=2), "the inputs have 1 columns"),
    ],
)
def test_what_is_open_is_refused(kernel, said):
    for use in (kernel, lambda X: kernel.resolve(np.ones(X.shape[1]), 1.0)):
        with pytest.raises(InputError, match=said):
            use(np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Coregion([1, 2]), "column of Coregion must be"),
        (lambda: Coregion(0, 0), "rank of Coregion=0"),
        (lambda: Coregion(0, levels=["a", "a"]), "a name twice"),
        (lambda: Coregion(0, levels=[1, 2]), "a number or names"),
        (lambda: Coregion(0, angle=[1.0]), "no levels"),
        (lambda: Coregion(0, variance=(1.0, 2.0), angle=(1.0, 1.0)), "2 angles for 2 levels"),
        (lambda: Coregion(0, levels=3, variance=(1.0, 2.0)), "2 variances for 3 levels"),
        (lambda: Categorical(0, levels=0), "levels of Categorical=0"),
        (lambda: Categorical(0, 1.5, levels=2).resolve(np.ones(1), 1.0), "between 0 and 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(make, said):
    with pytest.raises(SettingError, match=said):
        make()


def test_array_modules(xp, rng):
    X, K_bar = places(rng, 6), rng.normal(size=(6, 6))
    found = FULL.vjp(xp.asarray(X), None, xp.asarray(K_bar))
    assert_close(found.log_parameters, FULL.vjp(X, None, K_bar).log_parameters)
    assert_close(to_host(FULL(xp.asarray(X))), FULL.covariance[np.ix_(*[X[:, 2].astype(int)] * 2)])


def test_factors_beside_categories_have_their_variances_held():
    kernel = Matern32(active_dims=0) * FULL * (RBF(active_dims=0) + Linear(active_dims=0)) + RBF()
    levels = tuple(f"0.1.variance[{i}]" for i in range(4))
    assert held(kernel) == {"0.0.variance": levels, "0.2.0.variance": levels}
    assert held(Matern32() * RBF() + FULL) == {}
    powers = dict(zip(kernel.parameter_names, kernel.units(3), strict=True))
    assert powers["0.0.variance"].of_target == 0
    assert powers["0.1.variance[0]"].of_target == 2


def test_categories_are_no_coordinate_of_distances():
    kernel = Matern32(0.5, active_dims=0) * FULL
    lengths = correlation_lengths(kernel, np.array([1.0, 1.0, 3.0]))
    assert np.isfinite(lengths).tolist() == [True, False, False]
    assert kernel.categories(3) == (2,)
