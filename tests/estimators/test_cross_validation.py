"""Cross-validation: folds, their fits and their scores, against fits made by hand."""

import functools
import itertools

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from sklearn.base import clone

import daskgp
from daskgp import kernels, metrics
from daskgp.data import folds, rows_of
from daskgp.data.partition import Span
from daskgp.errors import InputError, SettingError
from daskgp.runtime.executor import Executor
from tests.contract import cases

N = 240
MODEL = daskgp.SGPR(
    inducing=np.random.default_rng(3).uniform(0, 3, (10, 2)),
    kernel=kernels.RBF((0.8, 0.8)),
    optimizer=None,
    progress=False,
)


def rows(n=N):
    return cases.rows(n)


def run(tmp_path, X=None, y=None, model=MODEL, **settings):
    """Cross-validate, and return the result with the folds and the held-out predictions."""
    if X is None:
        X, y = rows()
    url = str(tmp_path / f"predictions-{len(list(tmp_path.iterdir()))}.zarr")
    found = daskgp.cross_validate(model, X, y, predictions=url, **settings)
    group = zarr.open_group(url, mode="r")
    assert group.attrs["complete"]
    return found, group["fold"][:], group["mean"][:], group["variance"][:]


SCHEMES = {
    "random": {},
    "blocks": {"blocks": 0.7},
    "boxes": {"blocks": "auto"},
    "groups": {"groups": np.arange(N) // 10},
    "time": {"time": 1},
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scores_are_those_of_fits_to_the_other_rows(scheme, tmp_path):
    X, y = rows()
    names = ("rmse", "nlpd", "crps", "coverage_95", "mae", "bias", "coverage_80")
    found, fold, mean, variance = run(tmp_path, folds=3, metrics=names, **SCHEMES[scheme])
    assert found.scheme == {"boxes": "blocks"}.get(scheme, scheme)
    for i in range(3):
        held = fold == i
        trained = ~held if scheme != "time" else X[:, 1] < X[held, 1].min()
        model = clone(MODEL).fit(X[trained], y[trained])
        m, s = model.predict(X[held], return_std=True, include_noise=True)
        np.testing.assert_allclose(mean[held], m, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(variance[held], s**2, rtol=1e-7)
        assert (found.trained[i], found.rows[i]) == (trained.sum(), held.sum())
        wanted = metrics.summary(y[held], m, s**2)
        wanted |= {
            "bias": np.mean(y[held] - m),
            "coverage_80": metrics.coverage(y[held], m, s**2, 0.8),
        }
        for name in names:
            assert found.scores[name][i] == pytest.approx(wanted[name], rel=1e-6, abs=1e-9)
    held = fold >= 0
    assert held.all() != (scheme == "time")
    assert found.pooled["rmse"] == pytest.approx(metrics.rmse(y[held], mean[held]), rel=1e-6)
    assert found.mean["nlpd"] == pytest.approx(found.scores["nlpd"].mean())
    error = found.scores["nlpd"].std(ddof=1) / np.sqrt(3)
    assert found.standard_error["nlpd"] == pytest.approx(error)


@pytest.mark.parametrize("name", sorted({*cases.SETTINGS} - cases.NO_SPREAD))
def test_every_method_is_cross_validated(name):
    X, y = rows(100)
    model = cases.fixed(name, block_rows=25)
    settings = model.get_params()
    found = daskgp.cross_validate(model, X, y, folds=1)
    assert (found.trained[0], found.rows[0]) == (80, 20)
    assert 0 < found.mean["rmse"] < 1.5
    assert np.isnan(found.standard_error["rmse"])
    assert not hasattr(model, "solved_")
    assert {**model.get_params(), "kernel": None} == {**settings, "kernel": None}


def test_folds_depend_on_the_rows_and_the_seed_alone(tmp_path, make_store):
    X, y = rows()
    url = make_store(X, y, 37)
    for settings in ({}, {"blocks": 0.4}, {"blocks": "auto"}):
        _, wanted, *_ = run(tmp_path, folds=4, **settings)
        counts = np.bincount(wanted)
        assert len(counts) == 4
        assert np.ptp(counts) <= (8 if settings else 0)
        _, found, *_ = run(tmp_path, *daskgp.open_dataset(url), folds=4, **settings)
        np.testing.assert_array_equal(found, wanted)
        _, other, *_ = run(tmp_path, folds=4, random_state=1, **settings)
        assert (other != wanted).any()


def test_blocks_are_held_out_whole(tmp_path):
    X, _ = rows()
    _, fold, *_ = run(tmp_path, folds=3, blocks={"x1": 0.5})
    cell = np.floor(X[:, 1] / 0.5).astype(int)
    assert all(len(set(fold[cell == c])) == 1 for c in set(cell))
    _, fold, *_ = run(tmp_path, folds=3, blocks=["x0"])
    by_place = fold[np.argsort(X[:, 0])]
    assert 8 < np.count_nonzero(np.diff(by_place)) < 64  # boxes side by side, at most 64


def cells_by_name(names, X, blocks, units=(), tmp_path=None):
    """Return the folds of rows whose columns have names and units."""
    url = str(tmp_path / f"data-{len(list(tmp_path.iterdir()))}.zarr")
    attributes = {"feature_units": units} if units else None
    with daskgp.data.dataset_writer(url, names, ["y"], attributes=attributes) as writer:
        writer.append(X, np.sin(X[:, 0]))
    model = daskgp.SGPR(n_inducing=5, kernel="rbf", optimizer=None, progress=False)
    return run(tmp_path, *daskgp.open_dataset(url), model, folds=3, blocks=blocks)[1]


def test_blocks_of_one_size_are_of_places_and_not_of_covariates(tmp_path, caplog):
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.uniform(5, 9, N), rng.uniform(45, 48, N), rng.uniform(0, 2000, N)])
    of = functools.partial(cells_by_name, tmp_path=tmp_path)
    named = of(["lon", "lat", "elevation"], X, 100.0)
    assert "blocks=100 means blocks of 100 km on the ground for 'lon' and 'lat'" in caplog.text
    caplog.clear()
    for size in ("100km", "100000 m"):
        np.testing.assert_array_equal(of(["Longitude", "latitude", "z"], X, size), named)
    assert "on the ground" not in caplog.text
    model = daskgp.SGPR(n_inducing=5, kernel="rbf", optimizer=None, geographic=(0, 1))
    _, sphere, *_ = run(tmp_path, X, np.sin(X[:, 0]), model, folds=3, blocks=100.0)
    np.testing.assert_array_equal(named, sphere)
    plane = of(["x", "y", "elevation"], X, 0.5)
    alone = of(["x", "y", "elevation"], X, {"x": 0.5, "y": 0.5})
    np.testing.assert_array_equal(plane, alone)
    far = of(["lon", "lat", "elevation"], X * [1000, 1000, 1], 500.0)  # metres, as it seems
    np.testing.assert_array_equal(far, alone)
    assert "on the ground" not in caplog.text
    metres = of(["x", "y", "elevation"], X * [1000, 1000, 1], "0.5km", ["m", "m", "m"])
    np.testing.assert_array_equal(metres, alone)
    with pytest.raises(InputError, match=r"blocks of 100 km: .* not known to be longitude"):
        of(["x", "y", "elevation"], X, "100km")


def test_blocks_on_the_sphere_are_of_one_size_everywhere(tmp_path):
    rng = np.random.default_rng(0)
    lat = np.degrees(np.arcsin(rng.uniform(-1, 1, 4000)))
    X = np.column_stack([rng.uniform(-180, 180, 4000), lat])
    X[0], X[1] = (180.0, 10.0), (-180.0, 10.0)
    y = np.sin(np.radians(X[:, 1])) + 0.1 * rng.standard_normal(4000)
    model = daskgp.SGPR(n_inducing=8, kernel="rbf", optimizer=None, geographic=(0, 1))
    _, fold, *_ = run(tmp_path, X, y, model, folds=2, blocks=2000.0)
    assert fold[0] == fold[1]
    from daskgp.data.folds import Cells
    from daskgp.data.partition import Span

    labels, _ = Cells((), (0, 1), 2000.0).of(X, Span(0, 4000))
    _, counts = np.unique(labels, return_counts=True)
    area = 4 * np.pi * 6371.0**2 / 2000.0**2
    assert 0.9 * area < len(counts) < 1.1 * area
    assert counts.max() < 3 * counts.mean()


def test_blocks_like_gaps_leave_rows_as_far_from_others_as_places_are(tmp_path):
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (3000, 2))
    gap = ((X - 0.5) ** 2).sum(axis=1) < 0.15**2
    X, places = X[~gap], X[gap]
    y = X.sum(axis=1) + 0.1 * rng.standard_normal(len(X))

    def near(a, b):
        return np.quantile(cKDTree(a).query(b)[0], (0.25, 0.5, 0.75))

    model = clone(MODEL).set_params(inducing=X[:10])
    away = {}
    for what, settings in {"gaps": {"blocks": places}, "random": {}}.items():
        _, fold, *_ = run(tmp_path, X, y, model, folds=4, **settings)
        away[what] = np.mean([near(X[fold != i], X[fold == i]) for i in range(4)], axis=0)
        assert np.ptp(np.bincount(fold)) < 0.2 * len(X)
    assert (away["random"] < 0.3 * near(X, places)).all()
    np.testing.assert_allclose(away["gaps"], near(X, places), rtol=0.35)


@pytest.mark.parametrize("kind", ["text", "dask", "column", "missing"])
def test_groups_are_held_out_whole(kind, tmp_path, caplog):
    X, y = rows()
    own = np.arange(N) % 12
    labels = np.array([f"g{g}" for g in own], dtype=object)
    labels[[3, 8]] = None, np.nan
    groups = {"text": np.array([f"g{g}" for g in own]), "dask": da.from_array(own, chunks=50)}
    groups["missing"] = labels
    if kind == "column":
        X[:, 0] = own
    _, fold, *_ = run(tmp_path, X, y, folds=4, groups=groups.get(kind, "x0"))
    without = kind == "missing"
    assert np.flatnonzero(fold < 0).tolist() == ([3, 8] if without else [])
    assert ("2 of 240 rows have no label in groups and are left out" in caplog.text) == without
    assert all(len(set(fold[(own == g) & (fold >= 0)])) == 1 for g in range(12))


def test_time_goes_forward(tmp_path):
    X, _ = rows()
    found, fold, *_ = run(tmp_path, folds=4, time="x0")
    ends = [(X[fold == i, 0].min(), X[fold == i, 0].max()) for i in range(-1, 4)]
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ends))
    np.testing.assert_allclose(found.trained, [48, 96, 144, 192], atol=1)
    found, fold, *_ = run(tmp_path, folds=1, time="x0")
    np.testing.assert_allclose(found.rows, [48], atol=1)
    assert X[fold == 0, 0].min() > X[fold < 0, 0].max()


def test_groups_of_large_numbers_are_told_apart(tmp_path):
    own = np.arange(N) // 10
    _, wanted, *_ = run(tmp_path, folds=4, groups=own)
    large = 2**60 + own
    stored = zarr.create_array(str(tmp_path / "g.zarr"), shape=(N,), dtype="int64", chunks=(50,))
    stored[:] = large
    for labels in (large, stored):
        _, fold, *_ = run(tmp_path, folds=4, groups=labels)
        np.testing.assert_array_equal(fold, wanted)


def test_a_single_fold_is_not_tested_on_the_largest_group_alone(tmp_path):
    groups = np.r_[np.zeros(100), 1 + np.arange(140) // 7]
    _, fold, *_ = run(tmp_path, folds=1, groups=groups)
    assert (fold[:100] < 0).all()
    assert len(set(groups[fold == 0])) >= 5


def test_places_are_whole_where_they_are_more_than_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(folds, "MOST_BLOCKS", 50)
    X = np.repeat(np.random.default_rng(0).uniform(size=(200, 2)), 3, axis=0)
    own = rows_of(X, X[:, 0], None, True)
    parts = folds.Wanted(3, places=True).made(own, str(tmp_path / "own"), Executor(None, False))
    part = parts.of(Span(0, 600)).reshape(200, 3)
    assert (part == part[:, :1]).all()
    assert np.unique(part).tolist() == [0, 1, 2]


def test_fewer_rows_are_drawn_at_random(tmp_path):
    found, fold, *_ = run(tmp_path, folds=3, max_rows=50)
    assert found.trained.tolist() == [50, 50, 50]
    assert (fold >= 0).all()
    full = daskgp.cross_validate(MODEL, *rows(), folds=3, max_rows=1000)
    assert full.trained.tolist() == [160, 160, 160]
    assert full.mean["rmse"] < found.mean["rmse"]


def test_left_out_one_by_one_they_are_those_of_loo(tmp_path):
    X, y = rows()
    found, fold, mean, variance = run(tmp_path, folds="loo")
    m, s = clone(MODEL).fit(X, y).loo(X, y)
    np.testing.assert_allclose(mean, m, rtol=1e-9)
    np.testing.assert_allclose(variance, s**2, rtol=1e-9)
    assert not fold.any()
    assert (found.scheme, found.rows.tolist()) == ("loo", [N])
    assert found.mean["rmse"] == pytest.approx(metrics.rmse(y, m))


def test_rows_keep_their_errors_and_weights(tmp_path, make_store):
    X, y = rows()
    error, weight = np.linspace(0.01, 0.5, N), np.linspace(0.5, 2, N)
    _, fold, mean, variance = run(tmp_path, folds=2, y_variance=error, sample_weight=weight)
    held = fold == 0
    model = clone(MODEL).fit(
        X[~held], y[~held], y_variance=error[~held], sample_weight=weight[~held]
    )
    m, s = model.predict(X[held], return_std=True)
    noise = model.noise_variance_ * model.solved_.scaling.y_scale[0] ** 2
    np.testing.assert_allclose(mean[held], m, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(variance[held], s**2 + noise / weight[held] + error[held], rtol=1e-7)


def test_weights_count_beside_transformed_targets(tmp_path):
    X, y = rows()
    weight, logs = np.linspace(0.5, 2, N), clone(MODEL)
    model = clone(MODEL).set_params(target_transform="log")
    settings = {"folds": 2, "sample_weight": weight}
    found, fold, *_ = run(tmp_path, X, np.exp(y), model, **settings)
    held = fold == 0
    logs.fit(X[~held], y[~held], sample_weight=weight[~held])
    m, s = logs.predict(X[held], return_std=True)
    noise = logs.noise_variance_ * logs.solved_.scaling.y_scale[0] ** 2
    wanted = metrics.nlpd(y[held], m, s**2 + noise / weight[held]) + y[held].mean()
    assert found.scores["nlpd"][0] == pytest.approx(wanted, rel=1e-6)
    calibrated = clone(model).set_params(calibrate="random")
    assert calibrated.fit(X, np.exp(y), sample_weight=weight).spread_ > 0


@pytest.mark.parametrize("settings", [{"blocks": 0.3}, {"folds": 1, "time": 1}])
def test_infinite_targets_are_refused(settings, tmp_path):
    X, y = rows()
    y[X[:, 1].argmax()] = np.inf  # of the test fold, where the last ones are left out
    with pytest.raises(InputError, match="target 'y' has 1 infinite value: remove the rows"):
        run(tmp_path, X, y, **settings)


def test_ordered_classes_that_no_row_has_are_refused_as_by_a_fit():
    X, y = rows()
    classes = 1.0 + (y > 0) + (y > 0.5)
    model = daskgp.ExactGP(likelihood="ordinal", progress=False)
    with pytest.raises(InputError, match="no row of target 'y' has class 0 below 3") as told:
        model.fit(X, classes)
    with pytest.raises(InputError) as again:
        daskgp.cross_validate(model, X, classes, folds=2)
    assert str(again.value) == str(told.value)


def test_rows_without_a_target_or_a_place_are_left_out(tmp_path, caplog):
    X, y = rows()
    X[3, 0] = y[5] = np.nan
    found, fold, mean, _ = run(tmp_path, X, y, folds=2, blocks=0.3)
    assert caplog.messages == ["2 rows with missing values are left out"]  # once, not in each fold
    assert found.rows.sum() == N - 2
    assert fold[3] == -1
    assert np.isnan(mean[3])
    assert np.isfinite(mean[5])  # it has a place, and is predicted
    with pytest.raises(InputError, match=f"no usable rows: none of {N} has all features and a ta"):
        run(tmp_path, X, np.full(N, np.nan), folds=2)


def test_several_targets_and_named_sources(tmp_path):
    X, y = rows()
    both = np.column_stack([y, 2 * y])
    found, _, mean, _ = run(tmp_path, X, both, folds=2)
    assert mean.shape == (N, 2)
    assert found.rows.sum() == 2 * N
    path = tmp_path / "rows.npz"
    np.savez(path, a=X[:, 0], b=X[:, 1], y=y)
    one = daskgp.cross_validate(MODEL, str(path), "y", folds=2)
    np.testing.assert_allclose(one.scores["rmse"], found_of(X, y).scores["rmse"], rtol=1e-9)


def found_of(X, y):
    return daskgp.cross_validate(MODEL, X, y, folds=2)


@pytest.mark.parametrize("likelihood", ["student-t", "poisson", "bernoulli"])
def test_other_likelihoods_have_scores_of_their_own(likelihood):
    X, y = rows(100)
    if likelihood == "poisson":
        y = np.random.default_rng(0).poisson(np.exp(y)).astype(float)
    if likelihood == "bernoulli":
        y = (y > 0).astype(float)
    model = daskgp.SVGP(
        likelihood=likelihood, n_inducing=8, kernel="rbf", max_iter=20, batch_rows=50
    )
    found = daskgp.cross_validate(model, X, y, folds=1)
    of_kind = {
        "student-t": ["crps", "coverage_95"],
        "poisson": ["crps", "coverage_95", "ranked_probability"],
        "bernoulli": ["brier", "accuracy"],
    }
    assert [*found.mean] == ["rmse", "nlpd", *of_kind[likelihood]]
    assert 0.5 < found.mean.get("coverage_95", 1.0) <= 1


def test_it_runs_on_a_cluster_and_leaves_nothing_behind(default_client, tmp_path):
    X, y = rows(120)
    model = cases.fixed("lma", store=str(tmp_path / "scratch"))
    there = daskgp.cross_validate(model, X, y, folds=1, blocks="auto")
    with dask.config.set(scheduler="synchronous"):
        here = daskgp.cross_validate(model, X, y, folds=1, blocks="auto")
    np.testing.assert_array_equal(here.scores["nlpd"], there.scores["nlpd"])
    assert not list((tmp_path / "scratch").iterdir())
    with pytest.raises(InputError):
        daskgp.cross_validate(cases.fixed("lma", store=str(tmp_path / "scratch")), X, y * np.inf)
    assert not list((tmp_path / "scratch").iterdir())


def test_places_in_another_unit_are_told(caplog):
    X, y = rows(80)
    model = daskgp.SGPR(n_inducing=5, optimizer=None, progress=False)
    daskgp.cross_validate(model, X, y, folds=1, blocks=X + 0.1)
    assert "places of blocks" not in caplog.text
    daskgp.cross_validate(model, X, y, folds=1, blocks=1000 * X + 4e3)
    assert "nearly all places of blocks are far outside the rows: feature 'x0' goes" in caplog.text


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"folds": 0}, "folds=0: a whole number of at least 1"),
        ({"folds": "five"}, "folds='five': give a number, or 'loo'"),
        ({"folds": 2.5}, "folds=2.5"),
        ({"folds": 999}, "fold .* has no rows to test: choose fewer folds"),
        ({"blocks": 1.0, "groups": 0}, "blocks and groups each make folds"),
        ({"blocks": -1.0}, "blocks=-1.0: it must be greater than 0"),
        ({"blocks": {"x0": np.timedelta64(10, "D")}}, "blocks\\['x0'\\]=.*: a number is needed"),
        ({"blocks": "some"}, "blocks='some': give 'auto'"),
        ({"blocks": {"z": 1.0}}, "blocks='z': the columns of X are x0, x1"),
        ({"blocks": {}}, "blocks has no column"),
        ({"blocks": 1e6}, "in 1 blocks, and 5 or more are needed: choose smaller blocks"),
        ({"blocks": np.ones((4, 3))}, "blocks has shape"),
        (
            {"blocks": xr.Dataset(coords={"x0": [0.0]})},
            r"blocks is a Dataset: give .* array \(m, d\)",
        ),
        ({"groups": "z"}, "groups='z': .* x0, x1: name one of these, or give an array of labels"),
        ({"groups": np.ones(3)}, "groups has shape"),
        ({"groups": 2.0**60 + np.arange(N)}, "groups has labels of 9,007,199,254,740,992 and more"),
        ({"groups": da.from_array(2**60 + np.arange(N))}, "give them as text, or as a NumPy array"),
        ({"groups": np.zeros(N)}, "in 1 groups, and 5 or more are needed: choose fewer folds"),
        ({"groups": np.arange(N) % 3, "folds": 1}, "in 3 groups, and 5 .*: choose folds=2"),
        ({"groups": np.zeros(N), "folds": 2}, "in 1 groups, and 2 .*: give more rows"),
        ({"groups": np.array([1, "a"] * (N // 2), dtype=object)}, "labels of several types"),
        ({"time": 7}, "time=7: the columns of X are x0, x1"),
        ({"max_rows": 0}, "max_rows=0"),
        ({"metrics": "rmse"}, "metrics='rmse': give names"),
        ({"metrics": ["r2"]}, "metrics='r2': choose one of"),
        ({"folds": "loo", "blocks": 1.0}, "blocks has no effect with folds='loo'"),
        ({"random_state": None}, "random_state=None"),
        ({"features": ["a"]}, "features="),
        ({"predictions": " "}, "predictions=' '"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(settings, says, tmp_path):
    model = clone(MODEL).set_params(store=str(tmp_path))
    with pytest.raises(InputError, match=says) as error:
        daskgp.cross_validate(model, *rows(), **settings)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_models_that_cannot_be_scored_are_refused():
    X, y = rows()
    for model, says in (
        (daskgp.CGGP(), "CGGP"),
        (daskgp.SGPR, "give an estimator of daskgp"),
        (clone(MODEL).set_params(tol=-1.0), "tol=-1.0"),
    ):
        with pytest.raises(SettingError, match=says):
            daskgp.cross_validate(model, X, y)
    noisy = daskgp.ExpertsGP(noise_in_experts=True, aggregation="bcm", max_iter=1)
    for fit in (
        lambda: daskgp.cross_validate(noisy, X, y, sample_weight=np.ones(N)),
        lambda: clone(noisy).set_params(calibrate="random").fit(X, y, sample_weight=np.ones(N)),
    ):
        with pytest.raises(SettingError, match=r"have weights, and .*noise_in_experts=False"):
            fit()
    with pytest.raises(SettingError, match=r"take daskgp\.cross_validate with a number of folds"):
        daskgp.cross_validate(daskgp.SVGP(), X, y, folds="loo")
    with pytest.raises(InputError, match="exists already"):
        daskgp.cross_validate(MODEL, X, y, predictions="/tmp")
