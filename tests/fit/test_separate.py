"""Separate targets with gaps: each is fitted to its own rows, as a model of it alone would be."""

import pickle
import subprocess
import sys

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from commands import refused, start, stop_when, succeed
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import daskgp
from daskgp import kernels, metrics
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.estimators import ESTIMATORS
from daskgp.posterior.neighbour_rows import Nearby
from tests.contract import cases

QUIET = {"progress": False, "optimizer": None}


def pair(n=50, seed=0):
    """Rows with two targets of different units, of which each is missing in some."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    y = np.column_stack([np.sin(5 * X[:, 0]), 30 * np.cos(4 * X[:, 1]) + 100])
    y += rng.standard_normal(y.shape) * [0.1, 2.0]
    y[rng.uniform(size=n) < 0.3, 1] = np.nan
    y[:5, 0] = np.nan
    y[7] = np.nan
    return X, y


def filled(y):
    """The targets with their means where they are missing."""
    return np.where(np.isnan(y), np.nanmean(y, axis=0), y)


def agree(model, X, y, Z, **beside):
    """Predictions are those of models of each target alone, to 1e-9."""
    mean = model.predict(Z)
    for j in range(y.shape[1]):
        own = {k: v[:, j] if np.ndim(v) == 2 else v for k, v in beside.items()}
        alone = clone(model).fit(X, y[:, j], **own)
        np.testing.assert_allclose(mean[:, j], alone.predict(Z), rtol=1e-9, atol=1e-9)
        if alone.solved_.method.why_no_variance() is None:
            noisy = {"return_std": True, "include_noise": True}
            std = model.predict(Z, **noisy)[1][:, j]
            np.testing.assert_allclose(std, alone.predict(Z, **noisy)[1], rtol=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_method_fits_each_target_to_its_own_rows(name):
    X, y = pair(90)
    model = cases.kind(name)(**cases.SETTINGS[name], progress=False).fit(X, y)
    assert model.n_rows_ == np.isfinite(y).sum()
    agree(model, X, y, X[:9] + 0.01)
    assert model.noise_variance_.shape == (2,)
    names = [one.name for one in model.hyperparameters_]
    assert all(one.endswith((" of y0", " of y1")) for one in names)


@given(st.integers(0, 99), st.integers(1, 3), st.booleans())
def test_the_exact_gp_is_the_dense_answer_for_each(seed, p, disjoint):
    rng = np.random.default_rng(seed)
    X, Z = rng.uniform(size=(30, 2)), rng.uniform(size=(4, 2))
    y = rng.standard_normal((30, p)) * 10.0 ** rng.integers(-3, 3, p) + rng.uniform(-9, 9, p)
    own = np.arange(30) % p if disjoint else rng.integers(0, p + 1, 30)
    for j in range(p):
        y[(own != j) if disjoint else (own == j), j] = np.nan
    model = daskgp.ExactGP(kernels.RBF(0.3), noise_variance=0.2, **QUIET).fit(X, y)
    mean, std = model.predict(Z, return_std=True)
    for j in range(p):
        known = np.isfinite(y[:, j])
        centre, scale = y[known, j].mean(), y[known, j].std()
        k = kernels.RBF(0.3)
        C = k(X[known]) + 0.2 * np.eye(known.sum())
        cross = k(Z, X[known])
        wanted = centre + cross @ np.linalg.solve(C, y[known, j] - centre)
        left = 1.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(C, cross.T))
        np.testing.assert_allclose(mean[:, j], wanted, rtol=1e-9, atol=1e-9 * scale)
        np.testing.assert_allclose(std[:, j], scale * np.sqrt(left), rtol=1e-7)


def test_targets_without_gaps_share_one_model_and_gaps_in_one_leave_the_other_alone():
    X, y = pair()
    whole = filled(y)
    shared = daskgp.ExactGP("matern52()", progress=False).fit(X, whole)
    assert shared.n_rows_ == 50
    assert len(shared.hyperparameters_) == 3
    with pytest.raises(AttributeError, match="separate targets with gaps"):
        shared.parts_  # noqa: B018
    one = whole.copy()
    one[::3, 1] = np.nan
    model = daskgp.ExactGP("matern52()", progress=False).fit(X, one)
    alone = daskgp.ExactGP("matern52()", progress=False).fit(X, whole[:, 0])
    np.testing.assert_array_equal(model.predict(X)[:, 0], alone.predict(X))
    # a row without any target, or without a feature, is no gap
    X[3], whole[4] = np.nan, np.nan
    assert daskgp.ExactGP("matern52()", **QUIET).fit(X, whole).n_rows_ == 48


def test_training_is_that_of_each_and_evidence_the_sum():
    X, y = pair()
    model = daskgp.SGPR("matern52()", n_inducing=8, max_iter=5, progress=False).fit(X, y)
    agree(model, X, y, X)
    assert model.objective_ == pytest.approx(sum(part.objective_ for part in model.parts_))
    values = [part.log_marginal_likelihood() for part in model.parts_]
    assert model.log_marginal_likelihood() == pytest.approx(sum(values))
    assert [part.n_rows_ for part in model.parts_] == np.isfinite(y).sum(axis=0).tolist()
    assert model.kernel_ == tuple(part.kernel_ for part in model.parts_)
    assert model.n_iter_ == sum(part.n_iter_ for part in model.parts_)
    held = daskgp.SGPR("matern52()", n_inducing=8, **QUIET)
    again = clone(held).fit(X, y, start=model)
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-6)
    one = clone(held).fit(X, y, start=model.parts_[0])
    np.testing.assert_allclose(one.predict(X)[:, 0], model.predict(X)[:, 0], rtol=1e-6)
    complete = clone(model).fit(X, filled(y))
    with pytest.raises(SettingError, match="start from one of its parts_"):
        clone(model).fit(X, filled(y), start=model)
    with pytest.raises(SettingError, match="the targets y0, y1, but the rows have y0, y1, y2"):
        clone(model).fit(X, np.column_stack([y, y[:, 0]]), start=complete)


@pytest.mark.parametrize("gaps", [True, False])
def test_errors_of_each_target_and_weights_of_rows(gaps):
    X, y = pair()
    y = y if gaps else filled(y)
    rng = np.random.default_rng(1)
    errors, weight = rng.uniform(0.01, 0.1, y.shape) * [1.0, 900.0], rng.uniform(0.5, 2.0, 50)
    weight[9] = 0.0
    beside = {"y_variance": errors, "sample_weight": weight}
    for model in (daskgp.ExactGP(**QUIET), daskgp.VecchiaGP(n_neighbours=8, **QUIET)):
        agree(model.fit(X, y, **beside), X, y, X + 0.01, **beside)
    assert 0.9 < model.score(X, y, **beside) < 1.0


def test_transforms_and_trends_are_those_of_each():
    X, y = pair()
    y = np.abs(y)
    model = daskgp.ExactGP(target_transform="boxcox", **QUIET).fit(X, y)
    agree(model, X, y, X)
    alone = daskgp.ExactGP(target_transform="boxcox", **QUIET).fit(X, y[:, 1])
    asked = {"quantiles": (0.1, 0.9), "include_noise": True}
    ours, theirs = model.predict(X, **asked)[1][:, 1], alone.predict(X, **asked)[1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    values = [part.log_marginal_likelihood() for part in model.parts_]
    assert model.log_marginal_likelihood() == pytest.approx(sum(values))
    trend = daskgp.ExactGP(mean="linear", **QUIET).fit(X, y)
    agree(trend, X, y, X)
    assert [one.name for one in trend.trend_][::3] == ["intercept of y0", "intercept of y1"]
    values = [part.log_marginal_likelihood() for part in trend.parts_]
    assert trend.log_marginal_likelihood() == pytest.approx(sum(values))


def test_scores_count_the_values_of_each_target():
    X, y = pair()
    model = daskgp.ExactGP(**QUIET).fit(X, y)
    found = daskgp.check(model, X, y)
    assert found.n == np.isfinite(y).sum()
    for j, name in enumerate(["y0", "y1"]):
        assert found.targets[name]["n"] == np.isfinite(y[:, j]).sum()
        mean = model.predict(X)[:, j]
        assert found.targets[name]["rmse"] == pytest.approx(metrics.rmse(y[:, j], mean))
    noise = np.full(y.shape, 0.01)
    for folds in (3, "loo"):
        held = daskgp.cross_validate(daskgp.ExactGP(**QUIET), X, y, folds=folds, y_variance=noise)
        assert held.targets["y1"].rows.sum() == np.isfinite(y[:, 1]).sum()
    alone = daskgp.cross_validate(
        daskgp.ExactGP(**QUIET), X, y[:, 1], folds="loo", y_variance=noise[:, 1]
    )
    assert held.targets["y1"].pooled["rmse"] == pytest.approx(alone.pooled["rmse"], rel=1e-9)


def test_all_that_predictions_give():
    X, y = pair()
    model = daskgp.VecchiaGP(n_neighbours=8, **QUIET).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    lazy = model.predict(da.from_array(X, chunks=(20, 2)), return_std=True)
    np.testing.assert_allclose(lazy[0], mean, rtol=1e-9)
    np.testing.assert_allclose(lazy[1], std, rtol=1e-9)
    assert model.predict(X[:4], return_cov=True)[1].shape == (4, 4, 2)
    assert model.sample_y(X[:4], 3).shape == (4, 2, 3)
    p = model.predict_exceedance(X, 0.3)
    alone = model.parts_[0].predict_exceedance(X, 0.3)
    np.testing.assert_allclose(p[:, 0], alone, rtol=1e-9)
    grid = model.make_grid({"x0": 0.25, "x1": 0.25})
    found = model.predict(grid)
    assert isinstance(found, xr.DataArray | xr.Dataset)
    assert np.isnan(model.predict(np.full((1, 2), np.nan))).all()
    loo, _ = model.parts_[0].loo(X, y[:, 0])
    assert np.isfinite(loo).sum() == np.isfinite(y[:, 0]).sum()
    # as they are with one kernel for all
    shared = clone(model).fit(X, filled(y))
    assert shared.predict(grid).sizes == found.sizes


@pytest.mark.parametrize("name", ["exact", "sgpr", "vecchia", "lma", "cagp", "experts"])
def test_stores_and_pickles_keep_all_targets(name, tmp_path):
    X, y = pair(90)
    model = cases.kind(name)(**cases.SETTINGS[name], progress=False).fit(X, y)
    mean = model.predict(X)
    url = str(tmp_path / "m.zarr")
    model.save(url)
    loaded = daskgp.load(url)
    np.testing.assert_array_equal(loaded.predict(X), mean)
    assert (loaded.n_rows_, loaded.objective_) == (model.n_rows_, model.objective_)
    assert loaded.solved_.token == model.solved_.token
    assert repr(loaded.hyperparameters_) == repr(model.hyperparameters_)
    lazy = loaded.predict(da.from_array(X, chunks=(30, 2)))
    np.testing.assert_allclose(lazy.compute(), mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(loaded.parts_[1].predict(X), mean[:, 1])
    second = str(tmp_path / "second.zarr")
    loaded.save(second)
    np.testing.assert_array_equal(daskgp.load(second).predict(X), mean)
    carried = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(carried.predict(X), mean)
    for part in carried.solved_.each:
        if isinstance(part.rows, Nearby):
            assert isinstance(part.rows.rows.X, np.ndarray)


@pytest.mark.parametrize("name", ["sgpr", "vecchia"])
def test_the_models_of_each_target_take_more_rows_from_a_store_too(name, tmp_path):
    X, y = pair(90)
    settings = cases.SETTINGS[name] | QUIET
    model = cases.kind(name)("matern52()", **settings).fit(X[:60], y[:60])
    url = str(tmp_path / "m.zarr")
    model.save(url)
    loaded = daskgp.load(url)
    loaded.save(str(tmp_path / "second.zarr"))
    again = daskgp.load(str(tmp_path / "second.zarr"))
    parts = [one.parts_[1].update(X[60:], y[60:, 1]) for one in (model, loaded, again)]
    for part in parts:
        assert part.n_rows_ == np.isfinite(y[:, 1]).sum()
        np.testing.assert_allclose(part.predict(X), parts[0].predict(X), rtol=1e-9)


@pytest.fixture
def table(tmp_path):
    X, y = pair(60)
    frame = pd.DataFrame(np.column_stack([X, y]), columns=["a", "b", "zinc", "lead"])
    frame["zs"], frame["ls"] = np.where(np.isnan(y), np.nan, [0.1, 2.0]).T
    path = str(tmp_path / "t.csv")
    frame.to_csv(path, index=False)
    return frame, path


COLUMNS = ["--target", "zinc,lead", "--features", "a,b"]


def test_out_of_core_with_a_checkpoint(table, tmp_path):
    frame, path = table
    url, rows = str(tmp_path / "s.zarr"), str(tmp_path / "rows")
    daskgp.convert(path, url, target=["zinc", "lead"], features=["a", "b"], block_rows=16)
    X, y = frame[["a", "b"]].to_numpy(), frame[["zinc", "lead"]].to_numpy()
    settings = {"n_neighbours": 8, "max_iter": 2, "progress": False, "store": rows}
    model = daskgp.VecchiaGP("matern52()", **settings)
    model.fit(*daskgp.open_dataset(url), checkpoint=str(tmp_path / "c"))
    here = clone(model).fit(X, y)
    np.testing.assert_allclose(model.predict(X), here.predict(X), rtol=1e-9)
    assert model.solved_.target_names == ("zinc", "lead")
    seen = []
    again = clone(model)
    again.fit(*daskgp.open_dataset(url), checkpoint=str(tmp_path / "c"), callback=seen.append)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    model.predict_store(url, str(tmp_path / "p.zarr"))
    left = {one.name for one in (tmp_path / "rows").iterdir()}
    assert not [name for name in left if "targets" in name or "ordered" in name]


@pytest.mark.slow
def test_commands_fit_tables_and_stores_with_gaps(table, tmp_path, here):
    frame, path = table
    store, model, other = (str(tmp_path / name) for name in ("s.zarr", "m.zarr", "o.zarr"))
    succeed("convert", path, store, *COLUMNS)
    options = ["--model", "vecchia", "--set", "max_iter=1", "--set", "kernel=matern52()"]
    said = succeed("fit", store, model, *options)
    assert said["values"] == frame[["zinc", "lead"]].notna().sum().sum()
    assert succeed("fit", path, other, *options, *COLUMNS)["objective"] == said["objective"]
    scores = succeed("score", model, store)
    assert scores["targets"]["lead"]["n"] == frame.lead.notna().sum()
    known = succeed("info", model, "--json")
    assert known["hyperparameters"][0]["name"] == "variance of zinc"
    assert known["kernel"].startswith("zinc: matern52")
    predicted = str(tmp_path / "p.zarr")
    assert succeed("predict", model, store, predicted)["rows"] == 60
    update = "update of separate targets with rows of their own is not available"
    daskgp.convert(frame[:9], store, append=True)
    assert update in refused("update", model, store, code=2)
    assert succeed("update", model, store, "--retrain")["total"] > said["values"]
    assert succeed("score", model, store)["n"] > said["values"]
    errors = str(tmp_path / "e.zarr")
    exact = ["--model", "exact", "--set", "max_iter=1", "--y-std", "zs,ls"]
    assert succeed("fit", path, errors, *exact, *COLUMNS)["values"] == said["values"]


def test_info_shows_each_target(table, tmp_path, capsys):
    from daskgp.cli import tables

    frame, _ = table
    model = daskgp.ExactGP(**QUIET).fit(frame[["a", "b"]], frame[["zinc", "lead"]])
    url = str(tmp_path / "m.zarr")
    model.save(url)
    tables.describe(url)
    said = capsys.readouterr().out
    assert "target zinc" in said
    assert "target lead" in said


@pytest.mark.slow
def test_a_killed_fit_goes_on_with_the_next_target(table, tmp_path, scheduler):
    store, model, whole = (tmp_path / name for name in ("s.zarr", "m.zarr", "w.zarr"))
    succeed("convert", table[1], store, *COLUMNS)
    options = ["--model", "vecchia", "--set", "max_iter=20", "--set", "tol=1e-9"]
    options += ["--scheduler", scheduler]
    process = start("fit", store, model, *options)
    second = model / "checkpoint" / "stage-1000000001" / "evaluations"
    code, _ = stop_when(process, lambda: second.is_dir() and len([*second.rglob("*")]) > 4)
    assert code == -9
    succeed("fit", store, model, *options, "--resume", "--clear-lock")
    succeed("fit", store, whole, *options)
    X = table[0][["a", "b"]].to_numpy()
    assert {one.name for one in model.iterdir()} == {one.name for one in whole.iterdir()}
    ours, theirs = (daskgp.load(str(url)).predict(X) for url in (model, whole))
    np.testing.assert_array_equal(ours, theirs)


def test_a_cluster_gives_the_same(scheduler, tmp_path, table):
    url = str(tmp_path / "s.zarr")
    daskgp.convert(table[1], url, target=["zinc", "lead"], features=["a", "b"], block_rows=16)
    X, y = daskgp.open_dataset(url)
    model = daskgp.VecchiaGP("matern52()", n_neighbours=8, store=str(tmp_path / "r"), **QUIET)
    here = clone(model).fit(X, y).predict(X).compute()
    with Client(scheduler):
        np.testing.assert_array_equal(model.fit(X, y).predict(X).compute(), here)
        model.save(str(tmp_path / "m.zarr"))
        for stored in (model, daskgp.load(str(tmp_path / "m.zarr"))):
            np.testing.assert_array_equal(stored.predict(X).compute(), here)
        assert daskgp.check(stored, X, y).n == np.isfinite(table[0][["zinc", "lead"]]).sum().sum()


def test_what_does_not_go_together_is_refused():
    X, y = pair()
    none, few = y.copy(), y.copy()
    none[:, 1] = np.nan
    few[1:, 1], few[0, 1] = np.nan, 2.0
    endless = y.copy()
    endless[np.flatnonzero(np.isfinite(y[:, 1]))[3], 1] = np.inf
    exact, positive = daskgp.ExactGP(**QUIET), np.abs(np.round(y))
    regressor = LinearRegression().fit(X, filled(y))
    for model, target, beside, error, words in (
        (exact, none, {}, InputError, "target 'y1' has 0 usable values in 50 rows.* leave it out"),
        (exact, few, {}, InputError, "target 'y1' has 1 usable value in 50 rows"),
        (exact, endless, {}, InputError, "target 'y1' has 1 infinite value:"),
        (daskgp.SVGP(batch_rows=40, progress=False), y, {}, InputError, "batch_rows=40 for 3"),
        (exact, y, {"y_variance": np.ones(50)}, InputError, r"give y_variance \(50, 2\)"),
        (exact, y, {"y_variance": 0.1}, InputError, r"give y_variance \(50, 2\)"),
        (daskgp.ExactGP(calibrate="loo"), y, {}, SettingError, "calibrate='loo'.* y\\[:, j\\]"),
        (daskgp.ExactGP(mean=regressor), y, {}, SettingError, "fitted regressor.* dropna"),
        (daskgp.SVGP(likelihood="poisson"), positive, {}, SettingError, "likelihood='poisson'"),
        (
            daskgp.AutoGP(progress=False),
            y,
            {},
            InputError,
            "y0 has 44, y1 has .*--model vecchia.*y\\[:, j\\]",
        ),
    ):
        with pytest.raises(error, match=words):
            model.fit(X, target, **beside)
    model = daskgp.VecchiaGP(n_neighbours=8, **QUIET).fit(X, y)
    for door in (
        lambda: model.loo(X, y),
        lambda: model.sample_paths(),
        lambda: model.predict_average(X),
        lambda: model.update(X, y),
        lambda: model.forget(X, y),
        lambda: daskgp.variogram(X, y, model=model),
        lambda: model.hyperparameter_map(X),
    ):
        with pytest.raises(SettingError, match=r"model.parts_\[0\] for that of 'y0'"):
            door()
    with pytest.raises(AttributeError, match=r"model.parts_\[0\]"):
        model.n_blocks_  # noqa: B018
    stream = daskgp.SVGP(n_inducing=5, max_iter=2, progress=False).fit(X, y)
    with pytest.raises(SettingError, match="partial_fit of separate"):
        stream.partial_fit(X, y)


def test_what_a_fit_says_names_its_target(caplog):
    X, y = pair()
    y[:, 1] = np.where(np.isnan(y[:, 1]), np.nan, np.arange(50) % 2)
    daskgp.ExactGP(max_iter=1, tol=1e-9, progress=False).fit(X, y)
    said = [one.getMessage() for one in caplog.records if "rows with" not in one.getMessage()]
    assert any(one.startswith("target 'y1': training ended before") for one in said)
    assert any(one.startswith("target 'y1' takes only 2 distinct values") for one in said)
    X = X[:, :1].copy()
    X[np.isfinite(y[:, 1])] = 0.5
    with pytest.raises(InputError, match="'x0' is constant") as caught:
        daskgp.ExactGP(**QUIET).fit(X, y)
    assert caught.value.__notes__ == ["so it is for target 'y1', which has rows of its own"]


def test_rows_that_are_left_out_are_told_once(caplog):
    X, y = pair()
    X[9] = np.nan
    daskgp.ExactGP(**QUIET).fit(X, y)
    count = int((np.isnan(y).all(axis=1) | np.isnan(X).any(axis=1)).sum())
    assert [one.message for one in caplog.records] == [
        f"{count} rows with missing values are left out"
    ]


def test_a_store_that_a_killed_save_leaves_is_known_for_one(tmp_path):
    url = str(tmp_path / "model.zarr")
    program = (
        "import os, numpy as np, daskgp\n"
        "from daskgp.estimators import saving\n"
        "X = np.linspace(0, 1, 90)[:, None]\n"
        "Y = np.column_stack([X[:, 0], -X[:, 0]])\n"
        "Y[::3, 1] = np.nan\n"
        "model = daskgp.VecchiaGP('rbf', optimizer=None, progress=False).fit(X, Y)\n"
        "def killed(parts, url):\n"
        "    place, rows = parts[0]\n"
        "    rows.write(url + place)\n"
        "    os._exit(9)\n"
        "saving._write_rows = killed\n"
        f"model.save({url!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 9, done.stderr
    with pytest.raises(StoreError, match="incomplete"):
        daskgp.load(url)
    X = np.arange(4.0)[:, None]
    model = daskgp.ExactGP("rbf", optimizer=None, progress=False).fit(X, np.sin(X[:, 0]))
    with pytest.raises(StoreError, match="exists already: remove it or choose another path"):
        model.save(url, clear_lock=True)
