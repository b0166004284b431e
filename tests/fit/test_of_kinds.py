"""What users see of counts and classes: quantiles, probabilities and scores proper to the kind."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from commands import dataset, succeed
from scipy import stats

import daskgp
from daskgp import kernels, metrics
from daskgp.errors import InputError, SettingError
from daskgp.likelihoods import by_name

KERNEL = kernels.Matern32(lengthscale=0.4, variance=0.8)
KINDS = ("poisson", "ordinal", "bernoulli")


@pytest.fixture(scope="module")
def models():
    """Fits to counts, ordered classes and classes, with their rows."""
    rng, found = np.random.default_rng(0), {}
    X = rng.uniform(size=(60, 2))
    for name in KINDS:
        y = by_name(name).sample(2.0 * np.sin(6 * X[:, 0]), rng).astype(float)
        model = daskgp.SGPR(KERNEL, inducing=X[:15], likelihood=name, optimizer=None)
        found[name] = model.set_params(progress=False).fit(X, y), X, y
    return found


def predictive(model, X, top=200):
    """Distribution functions (n, top) of new observations, by quadrature beside the package's."""
    mean, std = model.predict(X, return_std=True)
    z, w = np.polynomial.hermite_e.hermegauss(80)
    f = mean[:, None] + std[:, None] * z
    below = [model.likelihood_.below(np.full(f.shape, float(k)), f) @ w for k in range(top)]
    return np.stack(below, axis=1) / w.sum()


def test_quantiles_of_counts_are_whole_numbers(models):
    model, X, _ = models["poisson"]
    levels, F = (0.05, 0.5, 0.9), predictive(model, X)
    found = model.predict(X, quantiles=levels, include_noise=True)[1]
    np.testing.assert_array_equal(found, np.rint(found))
    wanted = [[np.argmax(one >= level) for level in levels] for one in F]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("limit", [2, 2.5])
@pytest.mark.whole
def test_exceedance_of_counts_is_the_probability_of_more(models, limit):
    model, X, _ = models["poisson"]
    found = model.predict_exceedance(X, limit, include_noise=True)
    np.testing.assert_allclose(found, 1.0 - predictive(model, X)[:, 2], atol=1e-6)


@pytest.mark.whole
@pytest.mark.parametrize("name", ["poisson", "ordinal"])
def test_ranked_probability_is_the_sum_over_whole_numbers(models, name):
    model, X, y = models[name]
    F = predictive(model, X)
    wanted = ((F - (y[:, None] <= np.arange(F.shape[1]))) ** 2).sum(axis=1).mean()
    scores = daskgp.check(model, X, y).scores
    assert scores["ranked_probability"] == scores["crps"] == pytest.approx(wanted, rel=1e-3)
    mean, std = model.predict(X, return_std=True)
    found = metrics.ranked_probability(y, mean, std**2, model.likelihood_)
    assert found == pytest.approx(wanted, rel=1e-3)
    lazy = metrics.ranked_probability(
        *(da.from_array(a, 25) for a in (y, mean, std**2)), model.likelihood_
    )
    assert lazy.compute() == pytest.approx(found)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [("poisson", 3.0, 0.4), ("poisson", 7.0, 0.5), ("negative-binomial", 4.0, 0.3)],
)
def test_ranked_probability_of_counts_that_range_widely(name, mean, std):
    likelihood, rng = by_name(name), np.random.default_rng(0)
    y = likelihood.sample(rng.normal(mean, std, 30), rng).astype(float)
    draws = likelihood.sample(rng.normal(mean, std, 40_000), rng)
    wanted = np.mean([np.abs(draws - one).mean() for one in y])
    wanted -= 0.5 * np.abs(draws - rng.permutation(draws)).mean()
    m, v = np.full(30, mean), np.full(30, std**2)
    assert metrics.ranked_probability(y, m, v, likelihood) == pytest.approx(wanted, rel=0.02)


def test_brier_is_that_of_probabilities(models):
    model, X, y = models["bernoulli"]
    p = model.predict_proba(X)
    scores = daskgp.cross_validate(model, X, y, folds=2, metrics=("brier", "accuracy", "nlpd"))
    assert set(scores.mean) == {"brier", "accuracy", "nlpd"}
    assert metrics.brier(y, p) == pytest.approx(np.mean((p[:, 1] - y) ** 2))
    assert metrics.brier(y, p[:, 1]) == metrics.brier(y, p)
    classes = np.array([0.0, 2.0, np.nan])
    three = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1.0, 0.0, 0.0]])
    assert metrics.brier(classes, three) == pytest.approx((0.38 + 0.06) / 2)
    with pytest.raises(InputError, match="holds 2, but there are probabilities of classes 0 to 1"):
        metrics.brier(classes, three[:, :2])
    with pytest.raises(SettingError, match="not one of whole numbers: take nlpd"):
        metrics.ranked_probability(y, y, y, "student-t")


def test_ordered_classes_have_probabilities(models):
    model, X, _ = models["ordinal"]
    p, F = model.predict_proba(X), predictive(model, X, 3)
    np.testing.assert_allclose(np.cumsum(p, axis=1), F, atol=1e-6)
    np.testing.assert_allclose(p @ np.arange(3.0), model.predict(X, include_noise=True), atol=1e-6)
    lazy = model.predict_proba(da.from_array(X, (25, 2)))
    assert lazy.chunks == ((25, 25, 10), (3,))
    np.testing.assert_allclose(lazy.compute(), p)
    grid = model.predict_proba(xr.Dataset(coords={"x0": [0.2, 0.4], "x1": [0.1, 0.5]}))
    assert grid.dims == ("x0", "x1", "class")
    np.testing.assert_allclose(grid.sel(x0=0.4, x1=0.1), model.predict_proba([[0.4, 0.1]])[0])
    assert np.isnan(model.predict_proba(np.array([[0.2, np.nan]]))).all()


@pytest.mark.usefixtures("here")
def test_the_command_prints_scores_of_the_kind(models, tmp_path):
    for name, own in (("poisson", {"ranked_probability", "crps"}), ("bernoulli", {"brier"})):
        model, X, y = models[name]
        model.save(str(tmp_path / name))
        found = succeed("score", tmp_path / name, dataset(tmp_path / f"{name}.zarr", X, y))
        assert own | {"nlpd", "rmse"} <= found.keys()


def test_ranked_probability_of_one_rate_is_that_of_its_poisson_law():
    y, k = np.array([0.0, 4.0, 30.0]), np.arange(80)
    F = stats.poisson.cdf(k, np.exp(1.0))
    wanted = ((F - (y[:, None] <= k)) ** 2).sum(axis=1).mean()
    found = metrics.ranked_probability(y, np.ones(3), np.full(3, 1e-12), "poisson")
    assert found == pytest.approx(wanted, rel=1e-6)
