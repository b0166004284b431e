"""Layers, likelihoods and methods that users write are part of all that predictions go through."""

import re
import subprocess
import sys
from dataclasses import dataclass

import dask.array as da
import numpy as np
import pytest
from docs_text import ROOT, code_blocks
from scipy import stats

import daskgp
from daskgp import likelihoods
from daskgp.assess.scores import scores
from daskgp.errors import SettingError, StoreError
from daskgp.posterior import layers
from daskgp.posterior.layers.base import REGISTRY
from daskgp.runtime.executor import Executor

PAGE = (ROOT / "docs" / "guides" / "extending.md").read_text()
BLOCKS = code_blocks(PAGE, "python")
MODULES = ("celsius", "scattered", "logistic", "bayesian", "nearest", "learned")
PAGES = {name: BLOCKS[3 * i : 3 * i + 3] for i, name in enumerate(MODULES)}
"""Modules of the page: what defines a class, what uses it and the tests of it."""


@pytest.fixture
def kinds():
    """The registries as they are after the modules of the page, and before again."""
    before = [(known, dict(known)) for known in (REGISTRY, likelihoods.REGISTRY)]
    names = {"__name__": "page"}
    exec(compile(PAGES["celsius"][0] + PAGES["scattered"][0], "page", "exec"), names)
    yield names
    for known, were in before:
        known.clear()
        known.update(were)


@pytest.mark.slow
def test_the_page_runs_and_what_it_writes_keeps_the_promises(tmp_path):
    for name, (module, _, tests) in PAGES.items():
        (tmp_path / f"{name}.py").write_text(module)
        (tmp_path / f"test_{name}.py").write_text(tests)
    uses = [use for _, use, _ in PAGES.values()]
    lazy = "import sys, daskgp.testing\nassert 'pytest' not in sys.modules"
    run = "import pytest\nsys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-rs']))"
    code = "\n".join([*uses, lazy, run])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its y is standardised" in done.stdout  # of the logistic likelihood alone
    assert not re.search(r"test_scattered.*its y is standardised", done.stdout)  # has an offset
    assert "it does not take errors or weights of rows" in done.stdout


def test_the_methods_of_the_page_are_short():
    method = PAGES["bayesian"][0].split("class LinearModel")[1].split("@dataclass")[0]
    assert len(method.splitlines()) <= 60
    assert len(PAGES["nearest"][0].splitlines()) <= 120


def fitted(**settings):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (60, 2))
    y = np.exp(np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60))
    settings = {"n_inducing": 10, "optimizer": None, "progress": False} | settings
    return daskgp.SGPR(**settings).fit(X, y), X, y


@pytest.mark.parametrize("settings", [{}, {"target_transform": "log"}], ids=["plain", "log"])
@pytest.mark.parametrize("tails", [False, True])
def test_a_constant_moves_all_that_is_predicted(kinds, settings, tails, tmp_path):
    plain, X, y = fitted(**settings)
    if tails:
        plain.solved_ = plain.solved_.with_layers(layers.Tails((0.5, 0.9), (0.5, 1.6)))
    moved = daskgp.SGPR(**plain.get_params())
    moved.__setstate__(plain.__getstate__())
    moved.solved_ = plain.solved_.with_layers(kinds["Offset"](7.0))
    assert moved.solved_.token != plain.solved_.token
    moved.save(str(tmp_path / "model.zarr"))
    T, near = X[:9], {"rtol": 1e-12}
    for model in (moved, daskgp.load(str(tmp_path / "model.zarr"))):
        for noise in (False, True):
            before, after = (
                m.predict(T, return_std=True, quantiles=(0.1, 0.9), include_noise=noise)
                for m in (plain, model)
            )
            for a, b, shift in zip(before, after, (7.0, 0.0, 7.0), strict=True):
                np.testing.assert_allclose(b, a + shift, **near)
            chances = [
                m.predict_exceedance(T, limit, include_noise=noise)
                for m, limit in ((plain, 1.2), (model, 8.2))
            ]
            np.testing.assert_allclose(chances[1], chances[0], rtol=1e-11)
        drawn = [m.sample_paths(3, random_state=1)(T) for m in (plain, model)]
        np.testing.assert_allclose(drawn[1], drawn[0] + 7.0, **near)
        lazy = model.predict(da.from_array(X, chunks=(20, -1)))
        np.testing.assert_allclose(lazy, plain.predict(X) + 7.0, **near)
        assert model.loo(X, y)[0] == pytest.approx(plain.loo(X, y)[0] + 7.0, rel=1e-9)
        rows, executor = da.from_array(X, chunks=(20, -1)), Executor.current(False)
        scored = [
            scores(m.solved_, rows, da.from_array(values, chunks=20), executor)
            for m, values in ((plain, y), (model, y + 7.0))
        ]
        assert scored[1] == pytest.approx(scored[0], rel=1e-9)
        checked = [daskgp.check(m, X, v, progress=False) for m, v in ((plain, y), (model, y + 7))]
        assert checked[1].scores == pytest.approx(checked[0].scores, rel=1e-9, abs=1e-12)


def test_a_constant_moves_averages_and_covariances_stay(kinds):
    plain, X, _ = fitted()
    moved = daskgp.SGPR(**plain.get_params())
    moved.__setstate__(plain.__getstate__())
    moved.solved_ = plain.solved_.with_layers(kinds["Offset"](7.0))
    for noise in (False, True):
        before, after = (m.predict_average(X, include_noise=noise) for m in (plain, moved))
        np.testing.assert_allclose(after, np.add(before, (7.0, 0.0)), rtol=1e-12)
        covariances = [
            m.predict(X[:5], return_cov=True, include_noise=noise)[1] for m in (plain, moved)
        ]
        np.testing.assert_array_equal(*covariances)


def test_a_store_with_an_unknown_layer_is_refused(kinds, tmp_path):
    model, *_ = fitted()
    model.solved_ = model.solved_.with_layers(kinds["Offset"](7.0))
    model.save(str(tmp_path / "model.zarr"))
    del REGISTRY["offset"]
    with pytest.raises(StoreError, match=r"unknown layer 'offset'.*import the module"):
        daskgp.load(str(tmp_path / "model.zarr"))


def test_layers_and_likelihoods_have_names_of_their_own(kinds):
    class Other(layers.Layer):
        name = "offset"

    with pytest.raises(SettingError, match="the name 'offset' is that of the layer Offset"):
        layers.register(Other)
    layers.register(kinds["Offset"])  # as a notebook does that is run again
    with pytest.raises(SettingError, match="the name 'poisson' is that of the likelihood Poisson"):
        likelihoods.register(lambda: likelihoods.Poisson())
    with pytest.raises(SettingError, match="makes no likelihood"):
        likelihoods.register(dict)


def test_what_follows_from_a_likelihood_is_integrated_over_f(kinds):
    likelihood, m, s = kinds["Scattered"](3.0), 0.7, 0.6

    def weigh(function):
        f, step = np.linspace(m - 9 * s, m + 9 * s, 2_001, retstep=True)
        return np.sum(stats.norm.pdf(f, m, s) * function(f)) * step

    def given(f):
        return stats.nbinom(3.0, 3.0 / (3.0 + np.exp(f)))

    y, mean, std = np.array([[4.0]]), np.array([[m]]), np.array([[s]])
    density = weigh(lambda f: given(f).pmf(4))
    assert np.exp(likelihood.log_density(y, mean, std**2)) == pytest.approx(density, rel=1e-6)
    assert likelihood.cdf(y, mean, std) == pytest.approx(weigh(lambda f: given(f).cdf(4)), rel=1e-6)
    expected = likelihood.expected(y, mean, std[0] ** 2).value
    assert expected == pytest.approx(weigh(lambda f: given(f).logpmf(4)), rel=1e-6)
    for level in (0.05, 0.5, 0.99):
        count = likelihood.quantile(level, mean, std)
        assert likelihood.cdf(count, mean, std) >= level
        assert likelihood.cdf(count - 1, mean, std) < level
    mean, variance = likelihood.response(mean, std**2)
    draws = likelihood.sample(
        np.random.default_rng(0).normal(m, s, 200_000), np.random.default_rng(1)
    )
    assert draws.mean() == pytest.approx(float(mean[0, 0]), rel=0.02)
    assert draws.var() == pytest.approx(float(variance[0, 0]), rel=0.05)


def test_values_that_are_no_counts_may_be_taken_as_they_are(kinds):
    @likelihoods.register
    @dataclass(frozen=True)
    class Waiting(likelihoods.Likelihood):
        """Exponential times of mean e^f, whose unit is that of the data."""

        name = "waiting"
        standardised = False
        interval = (0.0, np.inf)

        def log_p(self, y, f):
            ratio = y * np.exp(-f)
            return likelihoods.LogDensity(-f - ratio, ratio - 1, -ratio)

        def below(self, y, f):
            return -np.expm1(-np.maximum(y, 0) * np.exp(-f))

        def sample(self, f, rng):
            return rng.exponential(np.exp(f))

        def response(self, mean, variance):
            if np.ndim(variance) < np.ndim(mean):
                variance = variance[:, None]
            first = np.exp(mean + variance / 2)
            return first, first**2 * (2 * np.exp(variance) - 1)

        def offset(self, y_mean):
            return np.log(np.maximum(y_mean, 1e-6))

    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (400, 1))
    y = rng.exponential(np.exp(5 + np.sin(X[:, 0])))
    model = daskgp.SVGP(
        likelihood="waiting", n_inducing=15, batch_rows=100, max_iter=100, random_state=0
    ).fit(X, y)
    (upper,) = model.predict(X, quantiles=(0.9,), include_noise=True)[1:]
    assert np.mean(y <= np.ravel(upper)) == pytest.approx(0.9, abs=0.05)
    mean = model.predict(X, include_noise=True)
    assert np.abs(np.log(mean) - 5 - np.sin(X[:, 0])).mean() < 0.3
