"""SparseSpectrumGP against the dense GP with the covariance of its features."""

import dask.array as da
import numpy as np
import pytest
from commands import rows
from hypothesis import given, settings
from hypothesis import strategies as st

from daskgp import SparseSpectrumGP, kernels, testing
from daskgp.errors import InputError, SettingError
from daskgp.kernels.spectrum import sample_spectrum
from daskgp.models.sparse.ssgp import SparseSpectrum
from daskgp.models.values import Block, Shape, Theta
from tests import oracle
from tests.additive import run
from tests.measured import peak

KERNELS = {
    "rbf": kernels.RBF(0.8, variance=1.4),
    "ard": kernels.RBF((0.7, 1.3)),
    "matern12": kernels.Matern12((0.5, 2.0)),
    "matern32": kernels.Matern32(0.8, variance=2.0),
    "matern52": kernels.Matern52((0.6, 1.1), variance=0.3),
    "one column": kernels.Matern52(0.7, active_dims=(1,)),
    "one lengthscale": kernels.RBF((0.7,), active_dims=(0,)),
    "other order": kernels.RBF((0.7, 1.3), active_dims=(1, 0)),
}
EACH_KERNEL = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def problem(kernel=KERNELS["ard"], n=60, d=2, p=2, m=9, seed=0, noise=0.05):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(X @ np.ones((d, p)) + np.arange(p)) + 0.1 * rng.standard_normal((n, p))
    return X, y, Theta(kernel, noise, sample_spectrum(kernel, m, d, rng))


def covariance(theta, A, B):
    """Mean of v cos(s (a - b) / lengthscale) over the spectral points: phi(a)' phi(b)."""
    kernel = theta.kernel
    seen = list(range(A.shape[1]) if kernel.active_dims is None else kernel.active_dims)
    scale = 1.0 if kernel.lengthscale is None else np.array(kernel.lengthscale)
    turns = np.einsum("ijk,rk->ijr", (A[:, None] - B)[:, :, seen] / scale, theta.inputs[:, seen])
    return (kernel.variance or 1.0) * np.cos(turns).mean(axis=2)


def dense(theta, X, y, T):
    """Evidence, mean and covariance of the GP with the covariance of the features."""
    K, Ks, Kss = (covariance(theta, *pair) for pair in ((X, X), (T, X), (T, T)))
    s = theta.noise_variance
    return oracle.evidence(K, y, s), *oracle.posterior(K, Ks, Kss, y, s)


# -- the model -----------------------------------------------------------------------------


@EACH_KERNEL
@pytest.mark.parametrize("pieces", [1, 7, 59])
@pytest.mark.parametrize("tile_rows", [5, 1024])
def test_evidence_and_posterior_are_those_of_the_dense_definition(kernel, pieces, tile_rows):
    X, y, theta = problem(kernel)
    T = np.random.default_rng(1).standard_normal((11, 2))
    evidence, mean, cov = dense(theta, X, y, T)
    value, found, _ = run(SparseSpectrum(tile_rows), theta, X, y, T, pieces=pieces)
    assert value == pytest.approx(evidence, rel=1e-8)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.covariance, cov, rtol=1e-8, atol=1e-9)
    _, marginal, _ = run(SparseSpectrum(), theta, X, y, T, "variance", pieces)
    np.testing.assert_allclose(marginal.variance, np.diag(cov), rtol=1e-8, atol=1e-9)


@EACH_KERNEL
def test_the_laws_hold_for_every_kernel(kernel):
    X, y, theta = problem(kernel, n=40, m=7, noise=0.1)
    testing.check_model(SparseSpectrum(), theta, X, y)
    testing.check_gradient(SparseSpectrum(tile_rows=9), theta, X, y, rtol=1e-6)


def test_what_the_kernel_does_not_see_has_no_gradient():
    X, y, theta = problem(KERNELS["one column"])
    _, gradient = testing.value_and_gradient(SparseSpectrum(), theta, X, y)
    by_points = gradient[3:].reshape(9, 2)
    assert not by_points[:, 0].any()
    assert by_points[:, 1].all()
    assert not theta.inputs[:, 0].any()


def test_no_setting_is_exact_and_the_check_says_so():
    X, y, theta = problem()
    assert SparseSpectrum().exact_limit(theta, X) is None
    with pytest.raises(InputError, match="no setting of 'ssgp' is the exact GP"):
        testing.check_exact_limit(SparseSpectrum(), theta, X, y)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    m=st.integers(1, 12),
    d=st.integers(1, 3),
    p=st.integers(1, 3),
    seed=st.integers(0, 2**16),
    duplicated=st.booleans(),
    noise=st.floats(1e-3, 2.0),
)
def test_small_and_degenerate_problems_are_dense_too(n, m, d, p, seed, duplicated, noise):
    X, y, theta = problem(kernels.Matern52(0.9, variance=1.7), n, d, p, m, seed, noise)
    if duplicated:
        X[n // 2 :] = X[0]
        theta.inputs[m // 2 :] = theta.inputs[0]
    value, found, _ = run(SparseSpectrum(), theta, X, y, X, "variance")
    evidence, mean, cov = dense(theta, X, y, X)
    assert value == pytest.approx(evidence, rel=1e-8, abs=1e-8)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.variance, np.diag(cov), atol=1e-8)
    assert np.all(found.variance >= 0)
    assert np.all(found.variance <= 1.7 * (1 + 1e-12))


@pytest.mark.parametrize("narrow", [np.float32, np.float64])
def test_the_variance_is_never_negative_at_tiny_noise(narrow):
    X, y, theta = problem(kernels.RBF(2.0), n=400, m=40, noise=1e-6)
    value, found, _ = run(SparseSpectrum(), theta, X.astype(narrow), y, want="variance")
    assert np.isfinite(value)
    assert np.all(found.variance >= 0)
    assert found.mean.dtype == found.variance.dtype == narrow


def test_float32_tiles_agree_to_their_precision():
    X, y, theta = problem(kernels.Matern12(0.1), n=300, m=40)
    value, wanted, _ = run(SparseSpectrum(), theta, X, y, X[:5])
    X32 = X.astype(np.float32)
    narrow, found, _ = run(SparseSpectrum(), theta, X32, y, X32[:5])
    assert found.mean.dtype == found.covariance.dtype == np.float32
    assert narrow == pytest.approx(value, rel=1e-4)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-3)
    for a, b in zip(
        testing.value_and_gradient(SparseSpectrum(), theta, X, y),
        testing.value_and_gradient(SparseSpectrum(), theta, X32, y),
        strict=True,
    ):
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-3 * np.abs(a).max())


def test_no_rows_leave_the_prior():
    X, y, theta = problem()
    value, found, _ = run(SparseSpectrum(), theta, X[:0], y[:0], X[:4], "variance")
    assert value == 0.0
    np.testing.assert_array_equal(found.mean, 0.0)
    np.testing.assert_allclose(found.variance, 1.0)


@pytest.mark.parametrize(("n", "m"), [(1000, 60), (400, 200)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_footprint_is_what_is_measured(n, m, dtype):
    X, y, theta = problem(n=n, m=m, p=1)
    model, block = SparseSpectrum(), Block(X.astype(dtype), y)
    prepared = model.prepare(theta)
    total = model.local(prepared, block)
    cotangent = model.objective(prepared, total).cotangent

    shape = Shape(n, 2, 1, n, m, block.X.itemsize, 1, window_rows=n)
    planned = model.footprint(shape)
    local, _ = peak(model.local, prepared, block)
    gradient, _ = peak(model.local_vjp, prepared, block, cotangent)
    task = max(local, gradient + cotangent.gram.nbytes)
    solve, _ = peak(lambda: (model.posterior(prepared, total), model.objective(prepared, total)))
    solve += total.gram.nbytes
    state = oracle.on_disk((*model.posterior(prepared, total), *total))
    assert planned.state == pytest.approx(state, rel=0.05)
    for plan, measured in ((planned.task, task), (planned.solve, solve)):
        assert measured / 1.5 < plan < measured * 1.5


# -- the spectrum --------------------------------------------------------------------------


@EACH_KERNEL
@pytest.mark.parametrize("d", [2, 3])
def test_the_covariance_of_many_features_is_the_kernel(kernel, d):
    if d == 3 and len(np.atleast_1d(kernel.lengthscale)) == 2 and kernel.active_dims is None:
        kernel = type(kernel)(0.9, variance=1.7)
    X = np.random.default_rng(1).standard_normal((6, d))
    theta = Theta(kernel, 0.1, sample_spectrum(kernel, 40_000, d, np.random.default_rng(0)))
    # the standard deviation of a mean of 40,000 cosines is at most 1 / 200
    np.testing.assert_allclose(
        covariance(theta, X, X), kernel(X), atol=4 * (kernel.variance or 1.0) / np.sqrt(40_000)
    )


def test_the_error_falls_with_the_root_of_the_number_of_points():
    X = np.random.default_rng(1).standard_normal((8, 2))
    kernel, found = kernels.Matern32(0.8), []
    for m in (100, 10_000):
        theta = Theta(kernel, 0.1, sample_spectrum(kernel, m, 2, np.random.default_rng(0)))
        found.append(np.sqrt(np.mean((covariance(theta, X, X) - kernel(X)) ** 2)))
    assert 5 < found[0] / found[1] < 20


def test_the_posterior_tends_to_that_of_the_exact_gp():
    X, y, _ = problem(p=1)
    kernel = kernels.Matern52(1.2)
    theta = Theta(kernel, 0.1, sample_spectrum(kernel, 1_500, 2, np.random.default_rng(0)))
    value, found, _ = run(SparseSpectrum(), theta, X, y, X[:9] + 0.1, "variance")
    mean, cov = oracle.posterior(kernel(X), kernel(X[:9] + 0.1, X), kernel(X[:9] + 0.1), y, 0.1)
    assert value == pytest.approx(oracle.evidence(kernel(X), y, 0.1), rel=0.05)
    np.testing.assert_allclose(found.mean, mean, atol=0.05)
    np.testing.assert_allclose(found.variance, np.diag(cov), atol=0.05)


def test_few_points_are_overconfident_in_a_gap_of_the_rows():
    X = np.linspace(0, 100, 1_000)[:, None]
    X, gap = X[np.abs(X[:, 0] - 50) > 3], np.array([[50.0]])
    kernel, found = kernels.RBF(1.0), []
    for m in (10, 50, 200):
        draws = [sample_spectrum(kernel, m, 1, np.random.default_rng(seed)) for seed in range(5)]
        fits = [
            run(SparseSpectrum(), Theta(kernel, 0.05, points), X, np.sin(X), gap, "variance")
            for points in draws
        ]
        variances = [fit.moments.variance[0] for fit in fits]
        found.append(np.median(variances))
    np.testing.assert_allclose(found, [0.001, 0.08, 0.7], rtol=0.5)  # as the page of the method has
    _, exact = oracle.posterior(kernel(X), kernel(gap, X), kernel(gap), np.sin(X), 0.05)
    assert exact[0, 0] > 0.99


def test_the_spectrum_is_seeded():
    draw = lambda seed: sample_spectrum(kernels.RBF(), 5, 2, np.random.default_rng(seed))  # noqa: E731
    np.testing.assert_array_equal(draw(0), draw(0))
    assert not np.array_equal(draw(0), draw(1))


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.RationalQuadratic(),
        kernels.Periodic(),
        kernels.Linear(),
        kernels.RBF() + kernels.Linear(),
        kernels.RBF() * kernels.RBF(),
    ],
    ids=lambda kernel: kernel.name,
)
def test_kernels_without_spectral_points_are_refused(kernel):
    says = rf"{type(kernel).__name__} has no .* RBF, Matern12, Matern32, Matern52$"
    with pytest.raises(SettingError, match=says):
        sample_spectrum(kernel, 5, 2, np.random.default_rng(0))
    with pytest.raises(SettingError, match=says):
        SparseSpectrum().prepare(Theta(kernel, 0.1, np.zeros((5, 2))))
    with pytest.raises(SettingError, match=says):
        SparseSpectrumGP(kernel).fit(*rows(20))


def test_columns_that_are_not_there_are_refused():
    with pytest.raises(InputError, match=r"active_dims=\(3,\), but the inputs have 2 columns"):
        sample_spectrum(kernels.RBF(active_dims=(3,)), 5, 2, np.random.default_rng(0))
    with pytest.raises(InputError, match="3 lengthscales, but the inputs have 2 columns"):
        sample_spectrum(kernels.RBF((1.0, 1.0, 1.0)), 5, 2, np.random.default_rng(0))


# -- the estimator -------------------------------------------------------------------------


def scaled(model, X, y, T):
    scale = model.solved_.scaling
    block = scale.block(X, np.reshape(y, (len(y), -1)))
    return model.solved_.theta, block.X, block.y, scale.inputs(T)


@pytest.mark.parametrize("chunks", [300, 43, 10])
@pytest.mark.parametrize("p", [1, 2])
def test_a_fit_is_the_dense_definition_for_any_chunks(chunks, p):
    X, y = rows()
    y = np.column_stack([y, 10 * y**2])[:, :p] if p == 2 else y
    T = rows(20, seed=1)[0]
    lazy = [da.from_array(a, chunks=(chunks, *a.shape[1:])) for a in (X, y)]
    made = SparseSpectrumGP(n_spectral=30, optimizer=None, mean="ols", noise_variance=0.05)
    model = made.fit(*lazy)
    evidence, mean, cov = dense(*scaled(model, X, y, T))
    assert model.objective_ == pytest.approx(evidence, rel=1e-8)
    scale = model.solved_.scaling
    mean = mean * scale.y_scale + scale.intercept + scale.inputs(T) @ scale.slope
    std = np.sqrt(np.outer(np.diag(cov), scale.y_scale**2))
    found = model.predict(T, return_std=True)
    np.testing.assert_allclose(found[0].reshape(mean.shape), mean, rtol=1e-8)
    np.testing.assert_allclose(found[1].reshape(std.shape), std, rtol=1e-7)
    full = model.predict(T, return_cov=True)[1].reshape(20, 20, p)
    np.testing.assert_allclose(full, cov[:, :, None] * scale.y_scale**2, atol=1e-8 * full.max())


@pytest.mark.parametrize("train_spectral", [False, True])
def test_training_raises_the_evidence(train_spectral):
    X, y = rows()
    settings = {"n_spectral": 12, "train_spectral": train_spectral}
    still = SparseSpectrumGP(n_spectral=12, optimizer=None).fit(X, y)
    model = SparseSpectrumGP(max_iter=15, **settings).fit(X, y)
    assert model.objective_ > still.objective_ + 1.0
    moved = not np.array_equal(model.solved_.theta.inputs, still.solved_.theta.inputs)
    assert moved is train_spectral
    assert model.score(*rows(100, seed=1)) > 0.95


def test_trained_points_raise_it_further():
    X, y = rows()
    fits = [
        SparseSpectrumGP(n_spectral=10, train_spectral=train, max_iter=60).fit(X, y)
        for train in (False, True)
    ]
    assert fits[1].objective_ > fits[0].objective_ + 1.0


@pytest.mark.parametrize(("n", "d"), [(2, 2), (2, 1), (9, 2), (40, 1)])
def test_few_rows_can_be_fitted_with_many_points(n, d):
    X, y = rows(n, d)
    model = SparseSpectrumGP(n_spectral=50, max_iter=5).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()


def test_the_frequencies_are_those_of_the_units_of_x():
    X, y = rows()
    settings = {"n_spectral": 7, "optimizer": None}
    model = SparseSpectrumGP("rbf(lengthscale=0.5)", standardize=False, **settings).fit(X, y)
    np.testing.assert_allclose(model.frequencies_, 2 * model.solved_.theta.inputs)
    plain = SparseSpectrumGP(**settings).fit(X, y).frequencies_
    other = SparseSpectrumGP(**settings).fit(1000 * X, y).frequencies_
    np.testing.assert_allclose(other, plain / 1000, rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n_spectral": 0}, "n_spectral=0: a whole number of at least 1"),
        ({"train_spectral": 1}, "train_spectral=1: choose one of True, False"),
        ({"train_blocks": 0}, "train_blocks=0"),
        ({"kernel": "linear()"}, "Linear has no spectral points"),
    ],
)
def test_settings_that_cannot_be_used(settings, says):
    with pytest.raises(SettingError) as error:
        SparseSpectrumGP(**settings).fit(*rows(20))
    assert says in str(error.value)
