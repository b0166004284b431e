"""The spread of predictions and its tails, learned on held-out rows and applied everywhere."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import daskgp
from daskgp import kernels, metrics
from daskgp.errors import InputError, SettingError
from daskgp.fit import by_batches
from daskgp.posterior.layers import Fade
from daskgp.train.stochastic import Stopped
from tests.contract import cases

N = 200


def rows(n=N):
    """A rough function that the kernel takes for smooth, with little noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (n, 2))
    return X, np.sign(np.sin(7 * X[:, 0])) + X[:, 1] + 0.01 * rng.standard_normal(n)


def model(**settings):
    usual = {"n_inducing": 8, "kernel": kernels.RBF((0.8, 0.8)), "noise_variance": 0.01}
    return daskgp.SGPR(**{**usual, "optimizer": None, "progress": False, **settings})


def pair(**settings):
    """The same fit without and with the factor."""
    X, y = rows()
    plain, scaled = model(**settings).fit(X, y), model(calibrate="random", **settings).fit(X, y)
    return X, y, plain, scaled


@pytest.mark.parametrize("how", ["blocks", "random"])
def test_the_factor_gives_held_out_rows_the_best_density(how, tmp_path):
    X, y = rows()
    folds = {"folds": 1, "blocks": "auto"} if how == "blocks" else {"folds": 1}
    url = str(tmp_path / "held.zarr")
    daskgp.cross_validate(model(), X, y, predictions=url, **folds)
    import zarr

    group = zarr.open_group(url, mode="r")
    held = group["fold"][:] == 0
    mean, variance = group["mean"][:][held], group["variance"][:][held]
    s = model(calibrate=how).fit(X, y).spread_
    assert s > 1.2
    assert s**2 == pytest.approx(((y[held] - mean) ** 2 / variance).mean(), rel=1e-9)
    losses = [metrics.nlpd(y[held], mean, (c * s) ** 2 * variance) for c in (0.99, 1.0, 1.01)]
    assert losses[1] < min(losses[0], losses[2])


def test_rows_left_out_one_by_one_tell_the_factor(caplog, capsys, tmp_path):
    from daskgp.cli.tables import describe

    X, y = rows()
    plain, scaled = model().fit(X, y), model(calibrate="loo").fit(X, y)
    mean, std = plain.loo(X, y)
    assert scaled.spread_ == pytest.approx(np.sqrt(np.mean(((y - mean) / std) ** 2)), rel=1e-9)
    scaled.save(str(tmp_path / "model.zarr"))
    describe(str(tmp_path / "model.zarr"))
    assert f"{scaled.spread_:.4g}, of rows left out one by one" in capsys.readouterr().out
    X, y = rows(6_000)  # of many, some
    mean, std = model().fit(X, y).loo(X, y)
    found = model(calibrate="loo").fit(X, y).spread_
    assert found == pytest.approx(np.sqrt(np.mean(((y - mean) / std) ** 2)), rel=0.1)


@pytest.mark.parametrize("settings", [{"target_transform": "log"}, {"mean": LinearRegression()}])
def test_rows_left_out_are_those_of_transformed_targets_and_residuals(settings):
    X, y = rows()
    y = np.exp(y)
    if "mean" in settings:
        settings = {"mean": settings["mean"].fit(X, y)}
    plain, scaled = (model(calibrate=how, **settings).fit(X, y) for how in (None, "loo"))
    mean, std = plain.loo(X, y)
    if "mean" in settings:
        assert scaled.spread_ == pytest.approx(np.sqrt(np.mean(((y - mean) / std) ** 2)), rel=1e-9)
    else:
        other = model(calibrate="loo").fit(X, np.log(y))
        assert scaled.spread_ == pytest.approx(other.spread_, rel=1e-9)


LEAVING_OUT = cases.those(lambda name: cases.method(name).why_no_loo() is None)


@pytest.mark.parametrize("name", LEAVING_OUT)
def test_every_method_that_leaves_rows_out_learns_from_them(name):
    X, y = cases.rows(120)
    plain, scaled = (cases.fixed(name, calibrate=how).fit(X, y) for how in (None, "loo"))
    mean, std = plain.loo(X, y)
    square = np.nanmean(((y - mean) / std) ** 2)
    if square >= 1:
        assert scaled.spread_ == pytest.approx(np.sqrt(square), rel=1e-6)
    assert (scaled.spread_ < 1) == (square < 1)


def faded(std, prior, fade, s, noise=0.0):
    """Variances of y with a factor s below 1 that fades where f is less known than at the rows."""
    f = np.maximum(std**2 - noise, 0)
    c = np.log(fade.high / np.maximum(f / prior, 1e-300)) / np.log(fade.high / fade.low)
    return s ** (2 * np.clip(c, 0, 1)) * f + s**2 * noise


def smooth(n=80):
    """Rows of a function far smoother than the kernel of cases, and places near and far."""
    X = np.random.default_rng(3).uniform(0, 3, (n, 2))
    T = np.array([[1.5, 1.5], [0.2, 2.8], [3.5, 3.4], [4.2, 1.0], [5.0, 4.0]])
    return X, X[:, 0] - 0.5 * X[:, 1] + 0.1 * X[:, 0] * X[:, 1], T


@pytest.mark.parametrize("name", LEAVING_OUT)
def test_a_factor_below_1_fades_where_no_row_is_near(name, tmp_path):
    X, y, T = smooth()
    settings = {"kernel": kernels.Matern32((0.7, 0.7), 1.4), "noise_variance": 1e-3}
    plain, scaled = (
        cases.fixed(name, calibrate=how, **settings).fit(X, y) for how in (None, "loo")
    )
    s, unit, fade = scaled.spread_, plain.solved_.unit[0] ** 2, scaled.solved_.layer(Fade)
    prior = plain.solved_.theta.kernel.diag(X[:1])[0] * unit
    noise = plain.noise_variance_ * unit
    assert s < 0.7

    # all of the factor acts on rows as they are left out, of which it is best for the density
    mean, std = plain.loo(X, y)
    shares = (std**2 - noise) / prior
    assert fade.low == pytest.approx(np.median(shares), rel=1e-6)
    assert fade.high == pytest.approx(min(4 * np.quantile(shares, 0.99), 1), rel=1e-6)
    losses = [metrics.nlpd(y, mean, faded(std, prior, fade, c * s, noise)) for c in (0.99, 1, 1.01)]
    assert losses[1] < min(losses[0], losses[2])
    np.testing.assert_allclose(
        scaled.loo(X, y)[1] ** 2, faded(std, prior, fade, s, noise), rtol=1e-6
    )

    (m, a), (mean, b) = (g.predict(T, return_std=True) for g in (plain, scaled))
    np.testing.assert_array_equal(mean, m)
    np.testing.assert_allclose(b, np.sqrt(faded(a, prior, fade, s)), rtol=1e-9)
    assert b[0] == pytest.approx(s * a[0], rel=0.05)
    if name != "ssgp":  # waves come back
        assert b[-1] == pytest.approx(a[-1], rel=1e-9)
    (_, C), (_, D) = (g.predict(T, return_cov=True) for g in (plain, scaled))
    np.testing.assert_allclose(D, C * np.outer(b / a, b / a), rtol=1e-6, atol=1e-12)
    noisy = scaled.predict(T, return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(noisy**2, b**2 + s**2 * noise, rtol=1e-9)

    w = np.array([0.5, 0.0, 1.0, 2.0, 1.5])
    _, average = scaled.predict_average(T, weights=w)
    assert average == pytest.approx(np.sqrt(w @ D @ w) / w.sum(), rel=1e-6)
    _, average = scaled.predict_average(T, weights=w, include_noise=True)
    wanted = w @ D @ w + s**2 * noise * w @ w
    assert average == pytest.approx(np.sqrt(wanted) / w.sum(), rel=1e-6)
    if plain.solved_.method.why_no_paths() is None:
        one, other = (g.sample_paths(3, random_state=0) for g in (plain, scaled))
        wanted = m[:, None] + (b / a)[:, None] * (one(T) - m[:, None])
        np.testing.assert_allclose(other(T), wanted, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(other.values(T), wanted, rtol=1e-6, atol=1e-9)

    url = str(tmp_path / "model.zarr")
    scaled.save(url)
    loaded = daskgp.load(url)
    np.testing.assert_array_equal(loaded.predict(T, return_std=True)[1], b)
    assert loaded.solved_.token == scaled.solved_.token


def test_a_factor_below_1_fades_by_the_prior_of_each_place():
    X, y, T = smooth()
    X, y, T = X[:, :1], np.column_stack([X[:, 0], 3 * X[:, 0]]), np.array([[1.0], [3.2], [9.0]])
    kernel = kernels.Matern32(0.5) + kernels.Linear()
    given = {"kernel": kernel, "noise_variance": 1e-4, "optimizer": None, "progress": False}
    plain, scaled = (daskgp.ExactGP(calibrate=c, **given).fit(X, y) for c in (None, "loo"))
    prior = plain.solved_.theta.kernel.diag(plain.solved_.scaled(T))
    assert np.ptp(prior) > 1
    (_, a), (_, b) = (g.predict(T, return_std=True) for g in (plain, scaled))
    for j, unit in enumerate(plain.solved_.unit):
        fade = scaled.solved_.layer(Fade)
        wanted = faded(a[:, j], prior * unit**2, fade, scaled.spread_)
        np.testing.assert_allclose(b[:, j] ** 2, wanted, rtol=1e-9)


def test_rows_that_tell_nothing_of_f_tell_no_factor_either():
    X = 1e3 * np.arange(60.0)[:, None]  # each alone, so that the prior predicts it
    y = np.where(np.arange(60) % 2, 0.5, -0.5)
    given = {"kernel": kernels.RBF(1.0, 4.0), "noise_variance": 1e-6, "optimizer": None}
    made = daskgp.ExactGP(calibrate="loo", progress=False, mean="zero", **given).fit(X, y)
    assert made.predict(X + 500, return_std=True)[1] == pytest.approx(2.0)


def test_rows_that_miss_a_category_are_left_out():
    X, y, _ = smooth(60)
    table = pd.DataFrame(
        {"x": X[:, 0], "z": X[:, 1], "kind": np.where(np.arange(60) % 3, "u", "v")}
    )
    kernel = kernels.Matern32((0.7, 0.7), 1.4, active_dims=("x", "z")) * kernels.Categorical("kind")
    given = {"kernel": kernel, "noise_variance": 1e-3, "optimizer": None, "calibrate": "loo"}
    whole = daskgp.ExactGP(**given, progress=False).fit(table.drop([5, 6]), np.delete(y, [5, 6]))
    table.loc[5, "kind"], table.loc[6, "x"] = None, np.nan
    made = daskgp.ExactGP(**given, progress=False).fit(table, y)
    assert made.spread_ < 0.7
    assert made.spread_ == pytest.approx(whole.spread_, rel=0.1)


def alone(n=60):
    """Rows that are each alone, so that the prior predicts them, of two values."""
    return 1e3 * np.arange(float(n)), np.where(np.arange(n) % 2, 0.5, -0.5)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_infinite_deviations_stay_so_beside_a_factor_of_1():
    x, y = alone()
    given = {"kernel": kernels.RBF((1.0, 1.0), 4.0), "noise_variance": 1e-6, "optimizer": None}
    model = daskgp.ExactGP(calibrate="loo", progress=False, mean="linear", **given)
    model.fit(np.column_stack([x, 2 * x]), y)
    assert model.spread_ == 1.0
    std = model.predict([[500.0, 1000.0], [500.0, 1200.0]], return_std=True)[1]
    assert np.isfinite(std[0])
    assert std[1] == np.inf


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_factor_of_near_rows_is_that_of_all_but_the_prior_where_most_are_alone():
    (far, values), near = alone(), np.linspace(0, 1, 40)
    X, y = np.concatenate([far, 1e6 + near])[:, None], np.concatenate([values, 0.1 * near])
    given = {"kernel": kernels.RBF(1.0, 4.0), "noise_variance": 1e-6, "optimizer": None}
    plain, scaled = (
        daskgp.ExactGP(calibrate=how, progress=False, mean="zero", fill_values=None, **given).fit(
            X, y
        )
        for how in (None, "loo")
    )
    assert scaled.spread_ < 0.1
    T = [[500.0], [1e6 + 0.53]]
    ratio = scaled.predict(T, return_std=True)[1] / plain.predict(T, return_std=True)[1]
    np.testing.assert_allclose(ratio, [1.0, scaled.spread_], rtol=1e-6)


def test_error_variances_of_new_rows_are_no_part_of_what_fades():
    X, y, _ = smooth()
    given = {"kernel": kernels.Matern32((0.7, 0.7), 1.4), "noise_variance": 1e-3}
    plain, scaled = (
        cases.fixed("sgpr", calibrate=how, **given).fit(X[:60], y[:60]) for how in (None, "loo")
    )
    error = np.where(np.arange(80) < 60, 0.0, 0.5)
    for model in (plain, scaled):
        model.update(X[60:], y[60:], y_variance=error[60:])
    (_, a), (_, b) = (model.loo(X, y, y_variance=error) for model in (plain, scaled))
    unit, fade = plain.solved_.unit[0] ** 2, scaled.solved_.layer(Fade)
    noise = plain.noise_variance_ * unit + error
    prior = plain.solved_.theta.kernel.diag(X[:1])[0] * unit
    wanted = faded(a, prior, fade, scaled.spread_, noise)
    np.testing.assert_allclose(b**2, wanted, rtol=1e-6)


def test_an_average_beside_a_fading_warns_once_of_places_far_off():
    X, y, T = smooth()
    given = {"kernel": kernels.Matern32((0.7, 0.7), 1.4), "noise_variance": 1e-3}
    model = cases.fixed("vecchia", calibrate="loo", **given).fit(X, y)
    assert model.spread_ < 0.7
    with pytest.warns(UserWarning, match="far") as told:
        model.predict_average(np.vstack([T, [40.0, 1.0]]))
    said = [str(one.message) for one in told]
    assert len(said) == len(set(said))
    assert any("lie far from all" in one for one in said)


def test_every_prediction_has_it():
    X, y, plain, scaled = pair()
    T, s = X[:9] + 0.05, scaled.spread_

    def both(how, **settings):
        return (getattr(g, how)(T, **settings) for g in (plain, scaled))

    for noise in (False, True):
        (m, a), (n, b) = (
            g.predict(T, return_std=True, include_noise=noise) for g in (plain, scaled)
        )
        np.testing.assert_allclose(n, m, rtol=1e-12)
        np.testing.assert_allclose(b, s * a, rtol=1e-9)
        (_, C), (_, D) = (
            g.predict(T, return_cov=True, include_noise=noise) for g in (plain, scaled)
        )
        np.testing.assert_allclose(D, s**2 * C, rtol=1e-9, atol=1e-12)
        (_, a), (_, b) = both("predict_average", include_noise=noise)
        assert b == pytest.approx(s * a)
        _, q = scaled.predict(T, quantiles=(0.1, 0.9), include_noise=noise)
        _, std = scaled.predict(T, return_std=True, include_noise=noise)
        np.testing.assert_allclose(q[:, 1] - q[:, 0], 2 * 1.2815515655446004 * std, rtol=1e-9)
    above = scaled.predict_exceedance(T, 2.0)
    m, std = scaled.predict(T, return_std=True)
    np.testing.assert_allclose(above, 0.5 * np.vectorize(_erfc)((2.0 - m) / std / np.sqrt(2)))
    np.testing.assert_allclose(scaled.loo(X, y)[1], s * plain.loo(X, y)[1], rtol=1e-9)
    one, other = (g.sample_y(T, 3) for g in (plain, scaled))
    np.testing.assert_allclose(other - m[:, None], s * (one - m[:, None]), rtol=1e-3, atol=1e-3)


def _erfc(x):
    from math import erfc

    return erfc(x)


@pytest.mark.parametrize("several", [False, True])
def test_sample_paths_have_it(several):
    import dask.array as da

    X, y = rows()
    y = np.column_stack([y, 2 * y]) if several else y
    plain, scaled = model().fit(X, y), model(calibrate="random").fit(X, y)
    T = X[:30] + 0.02
    mean = plain.predict(T)[..., None]
    wanted = mean + scaled.spread_ * (plain.sample_paths(4)(T) - mean)
    paths = scaled.sample_paths(4)
    np.testing.assert_allclose(paths(T), wanted, rtol=1e-9, atol=1e-12)
    lazy = paths(da.from_array(T, chunks=(11, 2)))
    np.testing.assert_allclose(lazy.compute(), wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(paths.values(T), wanted, rtol=1e-9, atol=1e-12)


def test_stores_keep_it_and_information_shows_it(tmp_path, capsys):
    from daskgp.cli.tables import describe

    X, _, plain, scaled = pair()
    url = str(tmp_path / "model.zarr")
    scaled.save(url)
    loaded = daskgp.load(url)
    assert loaded.spread_ == scaled.spread_ != plain.spread_ == 1.0
    assert loaded.solved_.token == scaled.solved_.token != plain.solved_.token
    np.testing.assert_array_equal(
        loaded.predict(X, return_std=True)[1], scaled.predict(X, return_std=True)[1]
    )
    describe(url)
    assert f"{scaled.spread_:.4g}, of held-out random rows" in capsys.readouterr().out


def test_rows_with_weights_and_transformed_targets_have_it():
    X, y = rows()
    weight = np.linspace(0.5, 2, N)
    assert model(calibrate="random").fit(X, y, sample_weight=weight).spread_ > 1.5
    plain, scaled = (
        model(target_transform="log", calibrate=how).fit(X, np.exp(y)) for how in (None, "random")
    )
    T = X[:5] + 0.05
    a, b = (np.diff(np.log(g.predict(T, quantiles=(0.5, 0.9))[1]))[:, 0] for g in (plain, scaled))
    np.testing.assert_allclose(b, scaled.spread_ * a, rtol=1e-9)


@pytest.mark.parametrize("name", sorted({*cases.SETTINGS} - cases.NO_SPREAD))
def test_every_method_with_a_spread_takes_it(name):
    X, y = cases.rows(120)
    few = {"max_iter": 2} if name in cases.STEPPED else {}
    one, other = (cases.fixed(name, calibrate=how, **few).fit(X, y) for how in (None, "blocks"))
    assert 0.2 < other.spread_ < 5
    T = X[:7] + 0.05
    np.testing.assert_allclose(
        other.predict(T, return_std=True, include_noise=True)[1],
        other.spread_ * one.predict(T, return_std=True, include_noise=True)[1],
        rtol=1e-9,
    )


def test_a_factor_of_few_values_is_told_as_unsure(caplog):
    X, y = rows()
    model(calibrate="random", n_inducing=4).fit(X[:40], y[:40])
    assert "is learned from only 8 held-out values: it may be off by 25 %" in caplog.text
    caplog.clear()
    with caplog.at_level("WARNING"):
        model(calibrate="random").fit(*cases.rows(300))
    assert "held-out values" not in caplog.text


def test_what_it_cannot_be_learned_with_is_refused():
    X, y = rows()
    with pytest.raises(SettingError, match="calibrate='some': choose one of 'blocks', 'random'"):
        model(calibrate="some").fit(X, y)
    with pytest.raises(SettingError, match="calibrate='loo': this method has no leave-one-out"):
        daskgp.SVGP(calibrate="loo").fit(X, y)
    with pytest.raises(SettingError, match="the whole spread, and y_variance is known"):
        model(calibrate="blocks").fit(X, y, y_variance=0.1)
    with pytest.raises(SettingError, match="calibrate='blocks' has no effect with likelihood"):
        daskgp.SVGP(likelihood="student-t", calibrate="blocks").fit(X, y)
    with pytest.raises(SettingError, match="partial_fit with calibrate='random'"):
        daskgp.SVGP(calibrate="random").partial_fit(X, y)
    with pytest.raises(InputError, match="170 inducing inputs for 160 usable rows"):
        model(calibrate="random", n_inducing=170).fit(X, y)
    without = daskgp.ExpertsGP(calibrate="random", aggregation="optimal", weights="paper")
    if without._model().why_no_variance():
        with pytest.raises(SettingError, match="calibrate='random' needs a variance"):
            clone(without).fit(X, y)


@pytest.mark.parametrize("features", [1, 3])
def test_a_factor_is_learned_in_blocks_beside_a_trend_and_weights(features):
    X = np.random.default_rng(0).uniform(0, 3, (160, features))
    y = X[:, 0] + 0.3 * np.random.default_rng(1).normal(size=len(X))
    for weight in (None, np.full(len(X), 2.0)):
        made = model(kernel=kernels.RBF(0.8), calibrate="blocks", mean="linear")
        made.fit(X, y, sample_weight=weight)
        assert made.spread_ > 1  # the noise is larger than the model says


def heavy(kind, n=3_000, seed=0):
    """A smooth function at places that cluster, and noise with tails of a kind."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.uniform(0, 3, (n // 2, 2)), 1 + 0.3 * rng.standard_normal((n // 2, 2))])
    noise = {
        "normal": lambda: rng.standard_normal(n),
        "t": lambda: rng.standard_t(3, n),
        "mixture": lambda: rng.standard_normal(n) * np.where(rng.random(n) < 0.05, 5, 1),
    }[kind]()
    order = rng.permutation(n)
    return X[order], (np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.5 * noise)[order]


def covered(model, X, y, level):
    _, q = model.predict(X, quantiles=((1 - level) / 2, (1 + level) / 2), include_noise=True)
    return np.mean((y >= q[:, 0]) & (y <= q[:, 1]))


@pytest.mark.parametrize("how", ["loo", "random", "blocks"])
@pytest.mark.parametrize("kind", ["t", "mixture"])
def test_intervals_have_the_tails_of_left_out_rows(how, kind):
    X, y = heavy(kind)
    T, t = heavy(kind, 6_000, seed=1)
    settings = {"kernel": kernels.RBF((0.8, 0.8)), "noise_variance": 0.75, "n_inducing": 30}
    plain, mended = (model(calibrate=c, **settings).fit(X, y) for c in (None, how))
    assert plain.tails_ is None
    assert max(mended.tails_) >= 0.98
    n = {"loo": 1_024, "random": 600, "blocks": 300}[how]  # rows of a block err alike
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):
        error = np.sqrt(level * (1 - level) * (1 / n + 1 / len(t)))
        assert covered(mended, T, t, level) == pytest.approx(level, abs=3 * error + 0.005)
    assert covered(plain, T, t, 0.5) > 0.58
    (m, a), (mean, std) = (
        g.predict(T, return_std=True, include_noise=True) for g in (plain, mended)
    )
    np.testing.assert_array_equal(mean, m)
    np.testing.assert_allclose(std, mended.spread_ * a, rtol=1e-9)
    f, q = mended.predict(T[:9], quantiles=(0.9,))
    _, own = mended.predict(T[:9], return_std=True)
    np.testing.assert_allclose(q[:, 0] - f, 1.2815515655446004 * own, rtol=1e-9)


@pytest.mark.parametrize("how", ["loo", "random"])
def test_normal_residuals_leave_quantiles_as_they_are(how):
    X, y = heavy("normal")
    made = model(calibrate=how, noise_variance=0.25, n_inducing=30).fit(X, y)
    assert made.tails_ is None
    mean, std = made.predict(X[:50], return_std=True, include_noise=True)
    _, q = made.predict(X[:50], quantiles=(0.975,), include_noise=True)
    np.testing.assert_allclose(q[:, 0], mean + 1.959963984540054 * std, rtol=1e-12)


def test_tails_of_transformed_targets_are_those_before_the_transform():
    X, y = heavy("t")
    plain = model(calibrate="loo", n_inducing=30).fit(X, y)
    logs = model(calibrate="loo", n_inducing=30, target_transform="log").fit(X, np.exp(y))
    np.testing.assert_allclose(list(logs.tails_.values()), list(plain.tails_.values()), rtol=1e-6)
    levels = {"quantiles": (0.025, 0.5, 0.975), "include_noise": True}
    np.testing.assert_allclose(
        logs.predict(X[:9], **levels)[1], np.exp(plain.predict(X[:9], **levels)[1]), rtol=1e-6
    )


def test_several_targets_share_one_table_and_updates_keep_it(tmp_path, capsys):
    from daskgp.cli.tables import describe

    X, y = heavy("mixture")
    made = model(calibrate="loo", n_inducing=30).fit(X, np.column_stack([y, 3 * y]))
    one = model(calibrate="loo", n_inducing=30).fit(X, y)
    pairs = (list(own.tails_.values())[:19] for own in (made, one))
    np.testing.assert_allclose(*pairs, rtol=0.02)
    url = str(tmp_path / "model.zarr")
    one.save(url)
    loaded = daskgp.load(url)
    assert loaded.tails_ == one.tails_
    assert loaded.solved_.token == one.solved_.token
    describe(url)
    assert "95 % intervals of y are" in capsys.readouterr().out
    T, t = heavy("mixture", 200, seed=2)
    loaded.update(T, t)
    assert (loaded.tails_, loaded.spread_) == (one.tails_, one.spread_)


def test_the_fit_to_other_rows_starts_where_that_to_all_does():
    X, y = rows()
    exact = partial(daskgp.ExactGP, kernels.RBF((0.8, 0.8), 1.0), progress=False)
    given = {"noise_variance": 0.01, "optimizer": None}
    begun, wanted = (exact(calibrate=how, **given).fit(X, y) for how in (None, "random"))
    fixed = ["noise_variance", "lengthscale", "variance"]
    held = exact(calibrate="random", noise_variance=0.5, fixed=fixed)
    made = held.fit(X, y, start=begun)
    assert made.noise_variance_ == pytest.approx(0.01)
    assert made.spread_ == pytest.approx(wanted.spread_, rel=0.05)


def test_a_fit_to_other_rows_that_diverges_is_not_taken_for_that_to_all(monkeypatch):
    X, y = rows(300)
    settings = {"n_inducing": 8, "max_iter": 20, "batch_rows": 40, "progress": False}
    gp = daskgp.SVGP(calibrate="random", **settings)
    ascend = by_batches.ascend

    def diverged(*given):
        run, history = ascend(*given)
        if given[0].steps.count < len(X):
            raise Stopped("the bound is not finite", run, history)
        return run, history

    monkeypatch.setattr(by_batches, "ascend", diverged)
    with pytest.raises(Stopped):
        gp.fit(X, y)
    assert not hasattr(gp, "solved_")
