"""Fits with kernels over categories, against dense matrices of coregionalisation."""

import numpy as np
import pytest
from agree import assert_close
from oracle import evidence, posterior

import daskgp
from daskgp.cli import tables
from daskgp.errors import InputError, SettingError
from daskgp.fit.constraints import Asked
from daskgp.kernels import RBF, Categorical, Coregion, Linear, Matern32, Periodic
from daskgp.models import inducing
from daskgp.models.markov import conditionals
from daskgp.models.values import Theta
from daskgp.testing import central_differences

N, SCALE, NOISE = 36, 30.0, 0.05
VARIANCES, ANGLES = (1.0, 4.0, 0.5), (0.7, 1.2, 2.0)
KERNEL = Matern32(SCALE, 1.0) * Coregion("which", variance=VARIANCES, angle=ANGLES)
NAMES = ("east", "which", "north")


def covariance_of_levels(variances, a):
    """B of three levels, written out."""
    U = np.array(
        [
            [1.0, 0.0, 0.0],
            [np.cos(a[0]), np.sin(a[0]), 0.0],
            [np.cos(a[1]), np.sin(a[1]) * np.cos(a[2]), np.sin(a[1]) * np.sin(a[2])],
        ]
    )
    S = np.diag(np.sqrt(variances))
    return S @ U @ U.T @ S


def dense(X, Z, scale=SCALE, B=None):
    """Covariances (n, m) of rows whose second column is a code."""
    B = covariance_of_levels(VARIANCES, ANGLES) if B is None else B
    steps = X[:, None, ::2] - Z[None, :, ::2]
    s = np.sqrt(3.0) * np.sqrt((steps**2).sum(axis=2)) / scale
    codes = (A[:, 1].astype(int) for A in (X, Z))
    return (1 + s) * np.exp(-s) * B[np.ix_(*codes)]


@pytest.fixture(scope="module")
def rows():
    """Rows of three variables at places of their own, and places to predict."""
    rng = np.random.default_rng(3)
    X = 100.0 * rng.uniform(size=(N + 5, 3))
    X[:, 1] = rng.integers(0, 3, len(X))
    C = dense(X, X) + NOISE * np.eye(len(X))
    y = np.linalg.cholesky(C) @ rng.normal(size=len(X))
    return X[:N], y[:N], X[N:]


def table(X):
    """Rows as a table with names."""
    import pandas as pd

    return pd.DataFrame(X, columns=NAMES)


METHODS = {
    "exact": (daskgp.ExactGP, {}, 1e-8),
    "vecchia": (daskgp.VecchiaGP, {"n_neighbours": N - 1, "predict_neighbours": N}, 1e-8),
    "lma": (daskgp.LMA, {"n_support": 20, "block_rows": 12, "markov_order": 2}, 1e-6),
    "sgpr": (daskgp.SGPR, {}, 1e-4),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", METHODS)
def test_methods_without_approximation_are_the_dense_model(rows, name):
    (X, y, T), (kind, settings, close) = rows, METHODS[name]
    if name == "sgpr":
        settings = {"inducing": X}
    settings = {"kernel": KERNEL, "mean": "zero", "optimizer": None, **settings}
    model = kind(noise_variance=NOISE, standardize=False, **settings).fit(table(X), y)
    mean, cov = posterior(dense(X, X), dense(T, X), dense(T, T), y[:, None], NOISE)
    found, std = model.predict(table(T), return_std=True)
    assert_close(found, mean[:, 0], close, close)
    assert_close(std**2, np.diag(cov), close, close)
    wanted = evidence(dense(X, X), y[:, None], NOISE)
    assert_close(model.log_marginal_likelihood(), wanted, close, close)
    if name == "exact":  # what is standardised does not matter to codes or to numbers in units
        scaled = kind(noise_variance=NOISE / np.mean(y**2), **settings).fit(table(X), y)
        assert_close(scaled.predict(table(T)), mean[:, 0], 1e-8, 1e-8)
        assert scaled.solved_.scaling.x_shift[1] == 0.0
        assert scaled.solved_.scaling.x_scale[1] == 1.0


def test_training_holds_what_is_redundant_and_derives_correlations(rows, tmp_path, capsys):
    X, y, _ = rows
    chosen = X[:, 1] < 2
    X, y = X[chosen], y[chosen]
    kernel = Matern32() * Coregion(1, levels=("a", "b"))
    model = daskgp.ExactGP(kernel=kernel).fit(X, y)
    assert model.kernel_.parts[0].active_dims == (0, 2)
    found = {row.name: row for row in model.hyperparameters_}
    assert found["0.variance"].value == 1.0
    assert np.isnan(found["0.variance"].standard_error)
    learned = [row for name, row in found.items() if name != "0.variance"]
    assert all(row.standard_error > 0 for row in learned)
    angle, correlation = found["1.angle[b,a]"], found["1.correlation[a,b]"]
    assert_close(correlation.value, np.cos(angle.value))
    assert_close(correlation.standard_error, np.sin(angle.value) * angle.standard_error, 1e-8)
    model.save(str(tmp_path / "model.zarr"))
    loaded = daskgp.load(str(tmp_path / "model.zarr"))
    assert str(loaded.hyperparameters_) == str(model.hyperparameters_)
    tables.describe(str(tmp_path / "model.zarr"))
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in ("1.angle[b,a]", "1.correlation[a,b]"))


def test_the_optimum_is_that_of_the_dense_evidence(rows):
    X, y, _ = rows
    kernel = Matern32() * Coregion(1, levels=3)
    model = daskgp.ExactGP(kernel=kernel, mean="zero", standardize=False, tol=1e-6).fit(X, y)

    def value(logs):
        scale, *B = np.exp(logs[:-1])
        K = dense(X, X, scale, covariance_of_levels(B[:3], B[3:]))
        return evidence(K, y[:, None], np.exp(logs[-1]))

    known = [row for row in model.hyperparameters_ if "correlation" not in row.name][1:]
    logs = np.log([row.value for row in known])
    assert np.abs(central_differences(value, logs)).max() < 0.02
    assert_close(model.log_marginal_likelihood(), value(logs), 1e-8)


def test_compiled_conditionals_are_those_of_array_functions(rows, monkeypatch):
    X, y, _ = rows
    kernel = Matern32(SCALE, active_dims=(0, 2)) * Coregion(1, variance=VARIANCES, angle=ANGLES)
    kernel = kernel + 0.2 * Categorical(1, 0.3, levels=3) * Linear(0.01, active_dims=0)
    near = np.array([[j if j < i else -1 for j in range(i - 5, i)] for i in range(N)])
    given = Theta(kernel, NOISE), conditionals.Conditionals(X, y[:, None], None, np.arange(N), near)
    fast = conditionals.weights(*given), *conditionals.scores(*given, np.eye(1), 1)
    monkeypatch.setattr(conditionals, "compiled", lambda: None)
    plain = conditionals.weights(*given), *conditionals.scores(*given, np.eye(1), 1)
    for one, other in zip(fast, plain, strict=True):
        assert_close(one, other, 1e-12, 1e-12)
    wrong = given[1]._replace(X=X + 0.5)
    monkeypatch.undo()
    with pytest.raises(InputError, match="which is not a code of its 3 categories"):
        conditionals.weights(given[0], wrong)


@pytest.mark.parametrize(
    ("kernel", "error", "said"),
    [
        (
            Coregion(1, levels=2),
            InputError,
            "'x1' has 2, which is none of the levels of its kernel, 0",
        ),
        (Categorical("x9", levels=3), SettingError, "Categorical has column 'x9', but"),
        (Categorical(0, levels=200), InputError, "which is none of the levels of its kernel, 0, 1"),
    ],
)
def test_codes_that_do_not_fit_are_refused(rows, kernel, error, said):
    X, y, _ = rows
    with pytest.raises(error, match=said):
        daskgp.ExactGP(kernel=kernel).fit(X, y)


def test_a_single_category_stays_and_nothing_is_warned_of(rows, caplog):
    X, y, T = rows
    X, T = (np.where([False, True, False], 1.0, A) for A in (X, T))
    settings = {"mean": "ols", "optimizer": None}
    one = daskgp.ExactGP(kernel=Matern32(SCALE) * Categorical(1, levels=2), **settings).fit(X, y)
    other = daskgp.ExactGP(kernel=Matern32(SCALE), **settings).fit(X[:, ::2], y)
    assert not caplog.records
    assert_close(one.predict(T), other.predict(T[:, ::2]))


def test_no_mean_depends_on_the_size_of_codes(rows):
    X, y, _ = rows
    settings = {"mean": "ols", "optimizer": None}
    model = daskgp.ExactGP(kernel=Matern32() * Coregion(1, levels=3), **settings).fit(X, y)
    assert model.solved_.scaling.slope[1] == 0.0
    assert model.solved_.scaling.slope[[0, 2]].all()


def test_starts_of_lengths_are_those_without_the_codes(rows):
    X, y, _ = rows
    kernels = Matern32() * Coregion(1, levels=3) + Periodic() + RBF(ard=True), Matern32()
    found = [
        daskgp.ExactGP(kernel=kernel, optimizer=None).fit(columns, y).kernel_
        for kernel, columns in zip(kernels, (X, X[:, ::2]), strict=True)
    ]
    lengths = found[0].parts[0].parts[0].lengthscale, found[1].lengthscale
    assert_close(*lengths)
    assert len(found[0].parts[2].lengthscale) == 2
    assert found[0].parts[1].active_dims == (0, 2)


def test_a_variance_that_a_user_speaks_of_is_not_held():
    kernel = (Matern32(1.0, active_dims=0) * Coregion(1, levels=2)).resolve(np.ones(2), 1.0)
    said = [Asked(limits={"0.variance": (0.1, 2.0)}), Asked(fixed={"1.variance[0]": 1.0})]
    assert [one.learned(kernel, 2) for one in (Asked(), *said)] == [5, 6, 4]
    alike = (Matern32(1.0, active_dims=0) * Categorical(1, levels=2)).resolve(np.ones(2), 1.0)
    said = [Asked(fixed={"1.variance": 1.0}), Asked(fixed={"1.variance": 1.0, "0.variance": 1.0})]
    # one of two numbers that say the same is learned, unless both are fixed
    assert [one.learned(alike, 2) for one in (Asked(), *said)] == [4, 4, 3]


def test_centres_of_clusters_have_codes_of_categories(rows):
    X, kernel = rows[0], Categorical(1, levels=3)
    chosen = inducing.choose(X, kernel, 9, "kmeans", np.random.default_rng(0))
    assert set(chosen[:, 1]) <= {0.0, 1.0, 2.0}


def test_categories_do_not_vary_over_space(rows):
    X, y, _ = rows
    kernel = Matern32() * Coregion(1, levels=3)
    with pytest.raises(SettingError, match=r"varying names '1.angle', which is one of categories"):
        daskgp.VecchiaGP(kernel=kernel, varying=("1.angle",)).fit(X, y)
