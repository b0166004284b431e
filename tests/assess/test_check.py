"""Checks of a fitted model: sums by chunk against scores of all rows."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import invoke
from scipy.spatial import cKDTree
from scipy.special import ndtr
from scipy.stats import binomtest, chisquare, kstest

import daskgp
from daskgp import kernels, likelihoods, metrics
from daskgp.errors import InputError, SettingError
from tests.contract import cases

N = 400


def rows(n=N, seed=0):
    return cases.rows(n, seed)


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    model = daskgp.SGPR(n_inducing=15, kernel=kernels.RBF(0.8), noise_variance=0.02, optimizer=None)
    return model.fit(X[::2], y[::2]), X[1::2], y[1::2]


def test_rows_of_the_fit_are_no_test(caplog):
    X, y = rows(200)
    model = daskgp.ExactGP(kernel="rbf", max_iter=3, progress=False).fit(X[:100], y[:100])
    daskgp.check(model, X[100:], y[100:])
    daskgp.check(model, X[60:], y[60:])  # 40 of 140
    assert "training row" not in caplog.text
    daskgp.check(model, X[:150], y[:150])
    (line,) = [line for line in caplog.messages if "training row" in line]
    assert line.startswith("100 of the 150 test rows examined have the features of")
    caplog.clear()
    local = daskgp.VecchiaGP(max_iter=2, progress=False).fit(X[:100], y[:100])
    daskgp.check(local, X[:100], y[:100])
    assert "100 of the 100 test rows" in caplog.text


def test_scores_are_those_of_all_rows(fitted, make_store):
    model, X, y = fitted
    mean, std = model.predict(X, return_std=True, include_noise=True)
    z = (y - mean) / std
    wanted = metrics.summary(y, mean, std**2)
    found = daskgp.check(model, X, y)
    assert found.n == len(y)
    for name in ("rmse", "mae", "nlpd", "crps", "coverage_95"):
        assert found.scores[name] == pytest.approx(wanted[name], rel=1e-6)
    constant = metrics.nlpd(y, np.full(len(y), y.mean()), np.full(len(y), y.var()))
    assert found.scores["nlpd_gain"] == pytest.approx(constant - wanted["nlpd"])
    assert found.scores["r2"] == pytest.approx(1 - metrics.nmse(y, mean))
    assert found.scores["bias"] == pytest.approx((y - mean).mean())
    assert found.scores["spread"] == pytest.approx(np.sqrt((std**2).mean()))
    assert found.scores["z_variance"] == pytest.approx(z.var())
    for level in (0.5, 0.8):
        share = metrics.coverage(y, mean, std**2, level)
        assert found.scores[f"coverage_{100 * level:.0f}"] == pytest.approx(share)
    counts, _ = np.histogram(ndtr(z), np.linspace(0, 1, 21))
    np.testing.assert_allclose(found.pit, counts / len(y))
    assert found.pit_distance == pytest.approx(kstest(ndtr(z), "uniform").statistic, abs=0.006)
    lazy = daskgp.check(model, *daskgp.open_dataset(make_store(X, y, 37)))
    assert str(lazy).splitlines()[:12] == str(found).splitlines()[:12]


def test_regions_and_classes_of_distance_hold_all_rows(fitted):
    model, X, y = fitted
    found = daskgp.check(model, X, y, regions=4, distances=5)
    assert [row["n"] for row in found.regions] == [50] * 4
    assert found.distance.startswith("the nearest inducing input")
    away = cKDTree(model.inducing_).query(X)[0]
    scale = model.solved_.scaling.x_scale
    assert "units of x0, x1" in found.distance
    assert scale[0] == scale[1]
    mean, std = model.predict(X, return_std=True, include_noise=True)
    order = np.argsort(away)
    for row, own in zip(found.distances, np.array_split(order, 5), strict=True):
        assert row["n"] == len(own)
        assert row["rmse"] == pytest.approx(metrics.rmse(y[own], mean[own]))
        assert row["z_variance"] == pytest.approx(np.var((y - mean)[own] / std[own]))
    pooled = sum(row["n"] * row["rmse"] ** 2 for row in found.regions) / len(y)
    assert np.sqrt(pooled) == pytest.approx(found.scores["rmse"])


@pytest.mark.parametrize("name", ["lma", "exact"])
def test_distances_are_those_to_training_rows(name):
    X, y = rows()
    model = cases.fixed(name, block_rows=50).fit(X[::2], y[::2])
    found = daskgp.check(model, X[1::2], y[1::2], distances=2)
    middle = float(found.distances[0]["distance"].split()[-1])
    unit = model.solved_.scaling.x_scale
    away = cKDTree(X[::2] / unit).query(X[1::2] / unit)[0]
    assert middle == pytest.approx(np.median(away), rel=0.02)
    assert found.distance == "the nearest training row, in standard deviations of the columns"


@pytest.mark.parametrize("name", ["lma", "sgpr"])
def test_distances_are_along_the_columns_that_the_kernel_sees(name):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-9, 9, 200), rng.uniform(40, 60, 200), rng.normal(size=200)])
    y = np.sin(np.radians(20 * X[:, 1])) + X[:, 2]
    settings = {"geographic": (0, 1), "mean": ["x2"]}
    model = cases.fixed(name, kernel=kernels.Matern32(300.0, active_dims=(0, 1)), **settings)
    found = daskgp.check(model.fit(X[:100], y[:100]), X[100:], y[100:], distances=2)
    assert found.distance.endswith("in km")
    X[:, 2] = 0.0  # what another column has makes nothing near
    places = X[:100] if name == "lma" else model.inducing_
    phi, to = np.radians(X[100:, None, 1]), np.radians(places[None, :, 1])
    between = np.radians(X[100:, None, 0] - places[None, :, 0])
    cosine = np.sin(phi) * np.sin(to) + np.cos(phi) * np.cos(to) * np.cos(between)
    middle = np.median(6371.0 * np.arccos(np.minimum(cosine, 1.0)).min(axis=1))
    assert float(found.distances[0]["distance"].split()[-1]) == pytest.approx(middle, rel=0.02)


def test_distances_on_the_sphere_are_arcs():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-180, 180, 200), rng.uniform(-80, 80, 200)])
    y = np.sin(np.radians(X[:, 1]))
    model = daskgp.ExactGP(kernel="matern32(2000)", optimizer=None, geographic=(0, 1))
    found = daskgp.check(model.fit(X[:100], y[:100]), X[100:], y[100:], distances=1)
    assert found.distance == "the nearest training row, in km"
    assert found.distances[0]["distance"] == "0 on"


@pytest.mark.parametrize("name", sorted({*cases.SETTINGS} - cases.NO_SPREAD))
def test_every_method_is_checked(name):
    X, y = rows(150)
    model = cases.fixed(name).fit(X[:110], y[:110])
    found = daskgp.check(model, X[110:], y[110:], regions=2)
    assert found.n == 40
    assert bool(found.distances) == (name not in ("ssgp", "cagp", "cagp-cg", "exact-experts"))
    for text in ("PIT", "by region", "by distance", "z_variance"):
        assert text in str(found)


@pytest.mark.parametrize("likelihood", ["student-t", "poisson"])
def test_other_likelihoods_are_checked_by_their_distribution(likelihood):
    rng = np.random.default_rng(0)
    X, f = rows(300)
    y = f + 0.2 * rng.standard_t(4, 300)
    if likelihood == "poisson":
        y = rng.poisson(np.exp(1 + f)).astype(float)
    model = daskgp.SVGP(likelihood=likelihood, n_inducing=12, max_iter=60, batch_rows=100)
    found = daskgp.check(model.fit(X[:200], y[:200]), X[200:], y[200:])
    assert 0 < found.scores["crps"] < found.scores["mae"]  # of counts the ranked probability score
    assert 0.8 < found.scores["coverage_95"] <= 1
    assert 0.4 < found.scores["z_variance"] < 2


def test_errors_of_rows_count_and_missing_rows_do_not(fitted):
    model, X, y = fitted
    y = y.copy()
    y[:3] = np.nan
    error = np.linspace(0.01, 0.3, len(y))
    found = daskgp.check(model, X, y, y_variance=error)
    mean, std = model.predict(X, True, include_noise=True, y_variance=error)
    assert found.n == len(y) - 3
    assert found.scores["nlpd"] == pytest.approx(metrics.nlpd(y, mean, std**2))


def test_columns_of_a_table_are_taken_by_their_names(tmp_path):
    X, y = rows(150)
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "t": y, "e": 0.1, "other": 1.0})
    model = cases.fixed("exact").fit(table[["a", "b"]][:100], y[:100])
    table[100:].to_csv(tmp_path / "test.csv", index=False)
    wanted = daskgp.check(model, X[100:], y[100:])
    assert str(daskgp.check(model, table[100:], "t")) == str(wanted)
    found = daskgp.check(model, str(tmp_path / "test.csv"), "t", y_variance="e")
    assert found.scores["spread"] ** 2 == pytest.approx(wanted.scores["spread"] ** 2 + 0.1)
    model.save(tmp_path / "model.zarr")
    shown = invoke(
        "check", tmp_path / "model.zarr", tmp_path / "test.csv", "--target", "t", "--json"
    )
    assert shown.exit_code == 0
    told = json.loads(shown.stdout)
    assert told["rmse"] == pytest.approx(wanted.scores["rmse"])
    assert told["skipped"] == 0
    refused = invoke("check", tmp_path / "model.zarr", tmp_path / "test.csv")
    assert refused.exit_code == 2
    assert "target 'y' is not in" in refused.output


def test_constant_values_have_no_share_that_is_explained(fitted):
    model, X, y = fitted
    found = daskgp.check(model, X[:1], y[:1])
    assert found.n == 1
    assert not {"r2", "nlpd_gain"} & set(found.scores)


def test_figures_are_drawn(fitted, tmp_path):
    from daskgp import plot

    found = daskgp.check(*fitted)
    files = plot.check(found, tmp_path / "new" / "figures")
    names = [path.name for path in sorted((tmp_path / "new" / "figures").iterdir())]
    assert names == ["calibration.png", "distances.png", "pit.png", "residuals.png"]
    assert len(files) == 4
    model, X, y = fitted
    mean, std = model.predict(X, return_std=True, include_noise=True)
    for draw in (plot.pit, plot.calibration):
        one, other = draw(found), draw(y, mean, std**2)
        for line, wanted in zip(one.lines, other.lines, strict=True):
            np.testing.assert_allclose(line.get_ydata(), wanted.get_ydata(), atol=0.006)
    panels = plot.distances(daskgp.check(cases.fixed("exact").fit(X, y), X + 0.1, y))
    panels[0].figure.canvas.draw()
    left, right = (ax.xaxis.label.get_window_extent() for ax in panels)
    assert 0 < left.x0 < left.x1 < right.x0
    heights = [bar.get_height() for bar in plot.pit(found).patches[:20]]
    np.testing.assert_allclose(heights, found.pit)
    with pytest.raises(InputError, match="leave mean and variance out"):
        plot.pit(found, mean)
    with pytest.raises(InputError, match="give what daskgp"):
        plot.check(model, tmp_path)
    with pytest.raises(InputError, match="there are no distances"):
        plot.distances(
            daskgp.check(daskgp.SparseSpectrumGP(n_spectral=10, optimizer=None).fit(X, y), X, y)
        )
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot make the folder"):
        plot.check(found, tmp_path / "file" / "figures")


def test_what_cannot_be_checked_is_refused(fitted):
    model, X, y = fitted
    for settings, says in (
        ({"regions": 3}, "regions=3: a power of 2"),
        ({"distances": 0}, "distances=0"),
        ({"random_state": -1}, "random_state=-1"),
    ):
        with pytest.raises(SettingError, match=says):
            daskgp.check(model, X, y, **settings)
    for other in ("model.zarr", daskgp.SGPR):
        with pytest.raises(SettingError, match=r"give a fitted estimator, such as daskgp\.load"):
            daskgp.check(other, X, y)
    with pytest.raises(InputError, match="X has 1 features"):
        daskgp.check(model, X[:, :1], y)
    with pytest.raises(InputError, match="none of 200 rows has finite values: give rows that do"):
        daskgp.check(model, X, y + np.inf)
    with pytest.raises(InputError, match="y has 2 targets"):
        daskgp.check(model, X, np.column_stack([y, y]))
    with pytest.raises(InputError, match="nothing to check"):
        daskgp.check(model, X, np.full(len(y), np.nan))
    robust = daskgp.SVGP(likelihood="student-t", n_inducing=5, max_iter=2).fit(X, y)
    for given in ("y_variance", "sample_weight"):
        with pytest.raises(SettingError, match=f"{given} is given and the likelihood is"):
            daskgp.check(robust, X, y, **{given: 1.0})


def of_kind(name):
    """A fit to classes or counts, and other rows."""
    X, y = rows()
    likelihood = likelihoods.by_name(name)
    y = likelihood.sample(1.5 * y, np.random.default_rng(0)).astype(float)
    model = daskgp.SGPR("rbf", n_inducing=12, likelihood=name, max_iter=5)
    return model.fit(X[::2], y[::2]), X[1::2], y[1::2]


def test_classes_have_reliability(make_store, tmp_path):
    model, X, y = of_kind("bernoulli")
    found, p = daskgp.check(model, X, y, regions=2), model.predict_proba(X)[:, 1]
    assert sum(row["n"] for row in found.reliability) == found.n == len(y)
    for row in found.reliability:
        own = np.floor(10 * p) == np.floor(10 * row["probability"])
        wanted = binomtest(int(y[own].sum()), int(own.sum())).proportion_ci(0.95)
        assert row["probability"] == pytest.approx(p[own].mean())
        assert row["observed"] == pytest.approx(y[own].mean())
        assert (row["low"], row["high"]) == pytest.approx((wanted.low, wanted.high))
    assert found.scores["brier"] == pytest.approx(metrics.brier(y, p))
    assert found.scores["r2"] == pytest.approx(1 - metrics.brier(y, p) / y.var())
    share = y.mean()
    constant = -share * np.log(share) - (1 - share) * np.log1p(-share)
    assert found.scores["nlpd_gain"] == pytest.approx(constant - found.scores["nlpd"])
    json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert "by probability of 1:" in str(found)
    assert not len(found.pit)
    with pytest.raises(InputError, match=r"take plot\.reliability"):
        daskgp.plot.pit(found)
    with pytest.raises(InputError, match=r"take plot\.reliability"):
        daskgp.plot.ranks(model, X, y)
    files = daskgp.plot.check(found, tmp_path / "figures")
    assert [Path(file).name for file in files] == ["reliability.png"]
    again = daskgp.check(model, *daskgp.open_dataset(make_store(X, y, 30)), regions=2)
    assert [row["n"] for row in again.reliability] == [row["n"] for row in found.reliability]


def test_counts_have_ranks_that_are_uniform():
    model, X, y = of_kind("poisson")
    found = daskgp.check(model, X, y)
    assert found.ranks.sum() == pytest.approx(1.0)
    assert (found.ranks == daskgp.check(model, X, y).ranks).all()
    assert chisquare(found.n * found.ranks).pvalue > 0.01
    assert found.to_dict()["ranks"] == found.ranks.tolist()
    assert "randomised PIT in 20 classes" in str(found)
    with pytest.raises(InputError, match=r"take plot\.ranks"):
        daskgp.plot.reliability(found)
    with pytest.raises(InputError, match="leave X and y out"):
        daskgp.plot.ranks(found, X, y)


@pytest.fixture(scope="module")
def with_outliers():
    """A model of rows with few wide errors, the same calibrated, and other such rows."""
    X, y = rows(4_000)
    rng = np.random.default_rng(3)
    y = y + 0.3 * rng.standard_normal(len(y)) * np.where(rng.random(len(y)) < 0.03, 8, 1)
    settings = {"n_inducing": 15, "kernel": kernels.RBF(0.8)}
    plain = daskgp.SGPR(**settings).fit(X[::2], y[::2])
    mended = plain.__class__(**settings, calibrate="loo").fit(X[::2], y[::2])
    return plain, mended, X[1::2], y[1::2]


def test_tails_that_are_not_normal_are_said_in_one_line(with_outliers, tmp_path):
    plain, mended, X, y = with_outliers
    before, after = (daskgp.check(model, X, y) for model in (plain, mended))
    assert before.note.startswith("residuals have heavier tails than normal ones: their variance")
    assert before.note.endswith("; fit with calibrate='loo' to mend intervals of y")
    assert before.note in str(before).splitlines()
    assert before.to_dict()["note"] == before.note
    assert after.note == ""
    assert before.scores["coverage_95"] > 0.965
    assert before.scores["coverage_50"] > 0.65
    for level in (50, 80, 95):
        assert after.scores[f"coverage_{level}"] == pytest.approx(level / 100, abs=0.035)
    assert after.pit_distance < before.pit_distance
    plain.save(str(tmp_path / "model.zarr"))
    table = pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": y})
    table.to_csv(tmp_path / "test.csv", index=False)
    text = invoke("check", tmp_path / "model.zarr", tmp_path / "test.csv", "--target", "y").output
    assert before.note in text


def test_heavy_tails_are_said_whatever_their_variance(with_outliers):
    plain, _, X, _ = with_outliers
    mean, std = plain.predict(X, return_std=True, include_noise=True)
    for factor, degrees in ((0.3, 3), (0.6, 2)):
        z = factor * np.random.default_rng(1).standard_t(degrees, len(X))
        found = daskgp.check(plain, X, mean + std * z)
        assert not 1 / 1.3 <= found.scores["z_variance"] <= 1.3
        assert "residuals have heavier tails" in found.note


def test_a_spread_that_is_wrong_is_no_matter_of_tails(fitted):
    model, X, y = fitted
    mean, std = model.predict(X, return_std=True, include_noise=True)
    z = np.random.default_rng(0).standard_normal(len(y))
    for factor in (0.9, 1.0, 1.1, 2.0):
        assert daskgp.check(model, X, mean + factor * std * z).note == ""
    few = daskgp.check(model, X, mean + std * np.random.default_rng(0).uniform(-1.73, 1.73, len(y)))
    assert "residuals have lighter tails" in few.note


def test_scores_of_a_store_have_the_tails(with_outliers, make_store):
    from daskgp.assess.scores import scores
    from daskgp.runtime.executor import Executor

    _, model, X, y = with_outliers
    found = scores(model.solved_, *daskgp.open_dataset(make_store(X, y, 300)), Executor.current())
    mean, std = model.predict(X, return_std=True, include_noise=True)
    assert found["crps"] == pytest.approx(metrics.crps(y, mean, std**2))
    _, q = model.predict(X, quantiles=(0.025, 0.975), include_noise=True)
    inside = np.mean((y >= q[:, 0]) & (y <= q[:, 1]))
    assert found["coverage_95"] == pytest.approx(inside)
    wide = ((q[:, 1] - q[:, 0]) / 2 / 1.959963984540054) ** 2
    assert found["interval_score_95"] == pytest.approx(metrics.interval_score(y, mean, wide))
    own = daskgp.check(model, X, y).scores["coverage_95"]
    assert own == pytest.approx(found["coverage_95"], abs=1e-9)


def test_regions_along_categories_have_the_names_of_their_levels():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(size=80), "soil": rng.choice(["clay", "loam"], 80)})
    y = np.sin(6 * table.x) + (table.soil == "loam") + 0.1 * rng.normal(size=80)
    model = daskgp.ExactGP(optimizer=None, progress=False).fit(table, y)
    names = [row["region"] for row in daskgp.check(model, table, y, regions=4).regions]
    assert any("soil clay" in name or "soil loam" in name for name in names)
