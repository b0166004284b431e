"""Fill values in what a model does after and around a fit: it reads all rows as the fit did."""

import re
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import dataset, invoke, refused, succeed
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import daskgp
from daskgp.assess.scores import scores
from daskgp.cli.settings import build_estimator
from daskgp.errors import SettingError
from daskgp.runtime.executor import Executor

EXECUTOR = Executor(None, False)
QUIET = {"progress": False}
SMALL = {"n_inducing": 12, "optimizer": None, **QUIET}


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, (n, 2))
    return X, 20.0 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def with_value(value, n=200, seed=0):
    X, y = rows(n, seed)
    y[3 : n // 4 : 4] = X[5 : n // 4 : 4, 1] = value
    return X, y


def both(make, *steps):
    """Two models that take the same steps, with rows that have -9999 and with NaN in its place."""
    models = []
    for value in (-9999.0, np.nan):
        model = make()
        for step in steps:
            step(model, value)
        models.append(model)
    return models


def same(a, b, T=None):
    T = rows(9, seed=5)[0] if T is None else T
    for one, other in zip(
        a.predict(T, return_std=True), b.predict(T, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_updates_and_what_is_forgotten_are_read_as_the_fit_was():
    model, missing = both(
        lambda: daskgp.SGPR(**SMALL),
        lambda model, v: model.fit(*with_value(v)),
        lambda model, v: model.update(*with_value(v, 90, seed=1)),
        lambda model, v: model.forget(*with_value(v, 90, seed=1)),
        lambda model, v: model.update(np.ones((2, 2)), [v, 21.0]),
    )
    assert model.n_rows_ == missing.n_rows_
    same(model, missing)


def test_a_first_fill_value_in_an_update_is_found_in_a_single_row(caplog):
    X, y = rows()
    model = daskgp.SGPR(**SMALL).fit(X, y)
    model.update(np.array([[1.0, 1.0], [-32768.0, 2.0], [2.0, 1.0]]), [-9999.0, 20.0, 21.0])
    model.update(np.array([[1.0, 1.0], [0.5, 0.7]]), [22.0, -9999.0])
    assert model.n_rows_ == len(X) + 2
    assert model.solved_.fills == ((-32768.0,), (), (-9999.0,))
    assert any("-9999 in 1 row of target 'y'" in r.getMessage() for r in caplog.records)
    assert np.isnan(model.predict(np.array([[-32768.0, 2.0]]))).all()


def test_a_stream_is_read_as_its_first_rows_were():
    settings = {"n_inducing": 8, "batch_rows": 50, **QUIET}
    model, missing = both(
        lambda: daskgp.SVGP(**settings),
        lambda model, v: model.partial_fit(*with_value(v)),
        lambda model, v: model.partial_fit(*with_value(v, 60, seed=1)),
    )
    same(model, missing)


def test_a_stored_model_knows_them(tmp_path):
    X, y = with_value(-9999.0)
    model = daskgp.ExpertsGP(
        expert="exact", partition="chunks", n_experts=3, optimizer=None, **QUIET
    ).fit(X, y)
    model.save(f"{tmp_path}/model.zarr")
    loaded = daskgp.load(f"{tmp_path}/model.zarr")
    same(model, loaded)
    assert loaded.solved_.fills == model.solved_.fills == ((), (-9999.0,), (-9999.0,))
    assert loaded.solved_.token == model.solved_.token
    assert np.isnan(loaded.predict(np.array([[1.0, -9999.0]])))


def test_scores_leave_them_out():
    model = daskgp.SGPR(**SMALL).fit(*with_value(-9999.0))
    found, wanted = (
        scores(model.solved_, *map(da.from_array, with_value(value, 80, seed=1)), EXECUTOR)
        for value in (-9999.0, np.nan)
    )
    assert found == wanted
    assert found["n"] == 80 - 5 - 4
    found, wanted = (
        daskgp.check(model, *with_value(value, 80, seed=1), **QUIET).scores
        for value in (-9999.0, np.nan)
    )
    assert found == wanted
    for a, b in zip(*(model.loo(*with_value(value)) for value in (-9999.0, np.nan)), strict=True):
        np.testing.assert_array_equal(a, b)
    X, y = with_value(-9999.0, 80, seed=1)
    assert np.isnan(model.score(X, y))  # as with missing values, not a number that means nothing


def test_folds_are_made_without_them(caplog):
    found, wanted = (
        daskgp.cross_validate(daskgp.SGPR(**SMALL), *with_value(value), folds=3).scores
        for value in (-9999.0, np.nan)
    )
    np.testing.assert_equal(found, wanted)
    assert sum("-9999" in r.getMessage() for r in caplog.records) == 1


def test_prepared_rows_and_variograms_have_none(tmp_path):
    X, y = with_value(-9999.0)
    prepared = daskgp.prepare((X, y), f"{tmp_path}/blocks.zarr", block_rows=50, **QUIET)
    assert prepared.dropped == len(y) - prepared.rows == 24
    assert zarr.open(f"{tmp_path}/blocks.zarr")["y"][:].min() > 0
    a, b = (daskgp.variogram(*with_value(value), **QUIET) for value in (-9999.0, np.nan))
    np.testing.assert_array_equal(a.semivariance, b.semivariance)
    model = daskgp.SGPR(**SMALL).fit(X, y)
    c = daskgp.variogram(X, y, model=model, **QUIET)
    np.testing.assert_array_equal(a.pairs, c.pairs)
    with pytest.raises(SettingError, match="the model has its own"):
        daskgp.variogram(X, y, model=model, fill_values=None, **QUIET)


def test_whole_numbers_in_a_store_are_read_as_missing(tmp_path):
    X, y = rows()
    X, y = np.round(100 * X).astype(np.int16), np.round(100 * y).astype(np.int32)
    y[:20], X[20:30, 0] = -32768, -32768
    np.savez(f"{tmp_path}/t.npz", X=X, y=y)
    daskgp.convert(f"{tmp_path}/t.npz", f"{tmp_path}/t.zarr", target="y", block_rows=64, **QUIET)
    stored = daskgp.LMA(n_support=8, block_rows=40, optimizer=None, **QUIET)
    stored.fit(*daskgp.open_dataset(f"{tmp_path}/t.zarr"))
    here = clone(stored).fit(X[30:].astype(float), y[30:].astype(float))
    assert stored.n_rows_ == here.n_rows_ == len(y) - 30
    np.testing.assert_allclose(stored.predict(X[30:50]), here.predict(X[30:50]), rtol=1e-9)


@pytest.mark.parametrize("extra", ["regressor", "log", "trend", "weights", "geographic"])
def test_what_comes_before_the_rows_are_described_sees_none(extra):
    X, y = with_value(-9999.0)
    known = y > 0
    settings, noise = dict(SMALL), {}
    if extra == "regressor":
        inside = known & (X[:, 1] > 0)
        settings["mean"] = LinearRegression().fit(X[inside], y[inside])
    elif extra == "log":
        settings["target_transform"] = "log"
    elif extra == "trend":
        settings["mean"] = ["x1"]
    elif extra == "weights":
        noise = {"sample_weight": np.linspace(1, 2, len(y))}
    else:
        settings |= {"geographic": (0, 1), "kernel": "matern32()"}
    model = daskgp.SGPR(**settings).fit(X, y, **noise)
    other = daskgp.SGPR(**settings).fit(*with_value(np.nan), **noise)
    same(model, other)


def test_a_model_that_is_chosen_reads_rows_so(caplog):
    model = daskgp.AutoGP(time_budget=20, candidates=["exact"], **QUIET).fit(*with_value(-9999.0))
    assert model.best_.n_rows_ == 176
    assert sum("-9999" in r.getMessage() for r in caplog.records) == 1
    with pytest.raises(SettingError, match="fill_values"):
        daskgp.AutoGP(fill_values="none", **QUIET).fit(*rows())


def test_a_list_names_others_and_none_keeps_all(caplog):
    X, y = with_value(-55.0)
    model = daskgp.SGPR(**SMALL).fit(X, y)
    (line,) = [r.getMessage() for r in caplog.records if "-55" in r.getMessage()]
    assert "give fill_values=[-55] (--fill -55), if measurements" in line
    assert model.n_rows_ == len(y)
    for given in ([-55], -55.0, np.array([-55.0, 3e9])):
        other = clone(model).set_params(fill_values=given).fit(X, y)
        assert other.n_rows_ == 176
    same(other, clone(model).fit(*with_value(np.nan)))
    caplog.clear()
    kept = clone(model).set_params(fill_values=None).fit(*with_value(-9999.0))
    assert kept.n_rows_ == len(y)
    assert not caplog.records


@pytest.mark.parametrize("wrong", ["none", "-9999", [], [np.nan], [np.inf], ["a"], [True], {}])
def test_other_things_are_refused(wrong):
    with pytest.raises(SettingError, match="fill_values"):
        daskgp.SGPR(fill_values=wrong, **SMALL).fit(*rows())


@pytest.mark.parametrize(
    ("text", "value"),
    [("-55", [-55.0]), ("[-55, 1e20]", [-55.0, 1e20]), ("-55,.5", [-55.0, 0.5]), ("none", None)],
)
def test_the_command_takes_them(text, value):
    for model in ("sgpr", "auto"):
        assert build_estimator(model, [f"fill_values={text}"], None).fill_values == value
    with pytest.raises(SettingError, match="fill_values"):
        build_estimator("sgpr", ["fill_values=abc"], None)


def test_every_command_that_reads_a_source_is_told_them(here, tmp_path):
    X, y = with_value(-55.0)
    sources = [f"{tmp_path}/{name}.csv" for name in ("filled", "missing")]
    for source, value in zip(sources, (-55.0, np.nan), strict=True):
        table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "t": y})
        table.replace(-55.0, value).to_csv(source, index=False)
    target, fill = ("--target", "t"), ("--fill", "-55")
    fit = ("--model", "sgpr", "--set", "n_inducing=12", "--set", "optimizer=none")
    model, clean, stored = (f"{tmp_path}/{name}.zarr" for name in ("m", "clean", "stored"))
    succeed("convert", sources[0], stored, *target)
    succeed("fit", stored, model, *fit, *fill)
    assert daskgp.load(model).fill_values == [-55.0]
    succeed("fit", sources[1], clean, *fit, *target)
    same(daskgp.load(model), daskgp.load(clean))
    assert invoke("plan", sources[0], *fit, *target, *fill).exit_code == 0
    wanted = succeed("score", clean, sources[1], *target)["rmse"]
    assert succeed("score", clean, stored, *fill)["rmse"] == pytest.approx(wanted, rel=1e-12)
    told = succeed("check", clean, sources[0], *target, *fill, "--json")
    assert told["rmse"] == pytest.approx(wanted, rel=1e-12)
    succeed("predict", clean, stored, f"{tmp_path}/p.zarr", *fill)
    mean = zarr.open_group(f"{tmp_path}/p.zarr", mode="r")["mean"][...]
    np.testing.assert_array_equal(np.isnan(mean), X[:, 1] == -55.0)
    odd = dataset(f"{tmp_path}/odd.zarr", np.array([[1, 1], [1, -9999]]), y[:2], names=["a", "b"])
    succeed("predict", clean, odd, f"{tmp_path}/q.zarr", "--fill", "none")
    assert not np.isnan(zarr.open_group(f"{tmp_path}/q.zarr", mode="r")["mean"][...]).any()
    assert daskgp.load(clean).solved_.reading([-55.0]).finds_fills
    total = succeed("update", clean, stored, *fill)["total"]
    assert total == 2 * daskgp.load(model).n_rows_
    assert daskgp.load(clean).fill_values == "auto"
    line = refused("score", model, stored, "--fill", "nan")
    assert line.endswith("--fill has 'nan': give a number, or none")


@pytest.mark.whole
@pytest.mark.parametrize(("setting", "rows"), [("auto", 39), (None, 40), ([5.0], 38)])
def test_a_fit_to_a_file_heeds_what_it_declares_as_told(setting, rows, tmp_path):
    t = np.where(np.arange(40) == 7, 50.0, np.sin(np.arange(40.0)))
    x = xr.DataArray(np.arange(40.0), dims="x")
    xr.Dataset({"t": ("x", t, {"valid_max": 10.0})}, {"x": x}).to_netcdf(f"{tmp_path}/t.nc")
    model = daskgp.SGPR(**SMALL, fill_values=setting).fit(f"{tmp_path}/t.nc", "t")
    assert model.n_rows_ == rows


def test_few_cells_of_an_elevation_tile():
    """The noise of a tile in which few cells have a fill value is that of its elevations."""
    rng = np.random.default_rng(0)
    X = np.stack(np.meshgrid(np.arange(40.0), np.arange(40.0)), axis=-1).reshape(-1, 2)
    y = 300 + 40 * np.sin(X[:, 0] / 20) * np.cos(X[:, 1] / 30) + 0.5 * rng.standard_normal(len(X))
    y[rng.permutation(len(y))[:9]] = -32768
    model = daskgp.SGPR(n_inducing=25, max_iter=6, **QUIET).fit(X, y)
    noise = np.sqrt(model.noise_variance_) * float(model.solved_.scaling.y_scale[0])
    assert noise < 0.6
    assert model.n_rows_ == len(y) - 9


def places(value, n=9):
    T = rows(n, seed=5)[0]
    T[2, 1] = value
    return T


def says_far(value):
    text = f"{value:g} in feature 'x1' of places to predict, far from the rows of the fit"
    return pytest.warns(UserWarning, match=re.escape(text))


@pytest.mark.parametrize("mean", ["constant", "linear"])
@pytest.mark.parametrize("value", [-9999.0, 1e20, 32767.0])
def test_places_with_a_fill_value_that_the_fit_had_not_are_missing(value, mean, tmp_path):
    model = daskgp.SGPR(mean=mean, **SMALL).fit(*rows())
    with says_far(value):
        found, std = model.predict(places(value), return_std=True)
    wanted = model.predict(places(np.nan), return_std=True)
    # layouts of the rows differ, and so may rounding
    np.testing.assert_allclose(found, wanted[0], rtol=1e-13)
    np.testing.assert_allclose(std, wanted[1], rtol=1e-13)
    lazy = model.predict(da.from_array(places(value), chunks=(4, 2)))
    with says_far(value):
        np.testing.assert_allclose(lazy.compute(), found, rtol=1e-13)
    paths = model.sample_paths(2)
    with says_far(value):
        np.testing.assert_array_equal(paths(places(value)), paths(places(np.nan)))
    model.save(f"{tmp_path}/model.zarr")
    loaded = daskgp.load(f"{tmp_path}/model.zarr")
    assert loaded.solved_.token == model.solved_.token
    with says_far(value):
        np.testing.assert_array_equal(loaded.predict(places(value)), found)
    kept = daskgp.SGPR(mean=mean, fill_values=None, **SMALL).fit(*rows())
    assert np.isfinite(kept.predict(places(value))).all()


@pytest.mark.parametrize("said", [[], [[0.0, 1.0]], "0 to 1", None])
def test_ranges_that_a_store_does_not_note_are_not_known(said, tmp_path):
    X, y = rows(60)
    model = daskgp.SGPR(**SMALL).fit(X, y)
    model.save(tmp_path / "m.zarr")
    group = zarr.open_group(tmp_path / "m.zarr", mode="r+")
    group.attrs["notes"] = {**group.attrs["notes"], "feature_ranges": said}
    loaded = daskgp.load(tmp_path / "m.zarr")
    assert not loaded.solved_.ranges
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_stores_maps_and_tables_have_nan_there(tmp_path):
    model = daskgp.LMA(n_support=8, block_rows=40, optimizer=None, **QUIET).fit(*rows())
    np.savez(f"{tmp_path}/t.npz", X=places(-9999.0))
    daskgp.convert(f"{tmp_path}/t.npz", f"{tmp_path}/t.zarr", **QUIET)
    with says_far(-9999.0):
        model.predict_store(f"{tmp_path}/t.zarr", f"{tmp_path}/p.zarr")
    stored = zarr.open(f"{tmp_path}/p.zarr")
    assert np.isnan(stored["mean"][:]).tolist() == [i == 2 for i in range(9)]
    grid = xr.Dataset(coords={"x0": [0.5, 1.0], "x1": [0.1, -9999.0, 2.0]})
    with says_far(-9999.0):
        model.predict_store(grid, f"{tmp_path}/map.zarr")
    found = xr.open_zarr(f"{tmp_path}/map.zarr")["mean"]
    assert found.isnull().sel(x1=-9999.0).all()
    assert int(found.isnull().sum()) == 2
    np.savetxt(f"{tmp_path}/t.csv", places(-9999.0), delimiter=",", header="x0,x1", comments="")
    with says_far(-9999.0):
        model.predict_store(f"{tmp_path}/t.csv", f"{tmp_path}/p.csv")
    column = np.genfromtxt(f"{tmp_path}/p.csv", delimiter=",", names=True)["y_mean"]
    assert np.isnan(column).tolist() == [i == 2 for i in range(9)]


def test_places_that_only_lie_outside_are_predicted():
    X, y = rows()
    model = daskgp.SGPR(**SMALL).fit(X, y)
    for value in (31.0, -20.0, 100.0):
        assert np.isfinite(model.predict(places(value))).all()
    year = daskgp.SGPR(**SMALL).fit(np.linspace(0, 500, 200)[:, None], y)
    assert np.isfinite(year.predict(np.arange(0.0, 1100.0)[:, None])).all()  # 999 is a number there
    globe = daskgp.SGPR(geographic=(0, 1), kernel="matern32()", **SMALL).fit(X, y)
    with pytest.warns(UserWarning, match="far outside the training rows"):
        assert np.isfinite(globe.predict(np.array([[-99.0, 1.0]]))).all()
    with pytest.warns(UserWarning, match="-9999 in feature 'x0' of places"):
        assert np.isnan(globe.predict(np.array([[-9999.0, 1.0]]))).all()


def test_each_prediction_says_once_which_fill_values_its_places_have():
    model = daskgp.SGPR(**SMALL).fit(*rows())
    grid = xr.Dataset({f"x{j}": ("row", places(-9999.0)[:, j]) for j in range(2)})
    many = np.repeat(places(-9999.0), 900, axis=0)
    calls = {
        "predict": lambda: model.predict(many),
        "quantiles": lambda: model.predict(many, quantiles=(0.1, 0.9), include_noise=True),
        "grid": lambda: model.predict(grid),
        "exceedance": lambda: model.predict_exceedance(many, 1.0),
    }
    for name, call in [*calls.items()] * 2:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("default")
            call()
        lines = [str(w.message) for w in said if "of places to predict" in str(w.message)]
        assert len(lines) == 1, name
        assert lines[0].startswith("-9999 in feature 'x1'")


def test_test_targets_with_a_fill_value_that_the_fit_had_not_are_missing(caplog):
    model = daskgp.SGPR(**SMALL).fit(*rows())
    X, y = rows(80, seed=1)
    missing = y.copy()
    y[3:20:4], missing[3:20:4] = -9999.0, np.nan
    wanted = scores(model.solved_, da.from_array(X), da.from_array(missing), EXECUTOR)
    assert scores(model.solved_, da.from_array(X), da.from_array(y), EXECUTOR) == wanted
    assert wanted["n"] == 75
    lines = [r.getMessage() for r in caplog.records]
    assert [line for line in lines if "-9999" in line] == [
        "-9999 in 5 rows of target 'y', far from all others (19.119 to 23.742): read as missing "
        "values, as fill values of files are; fill_values=None (--fill none) keeps it"
    ]
    for given in (y, y[:, None].ravel().tolist(), da.from_array(y, chunks=30)):
        T = da.from_array(X, chunks=(30, 2)) if isinstance(given, da.Array) else X
        assert model.score(T, given) == pytest.approx(model.score(X, missing))
    assert daskgp.check(model, X, y, **QUIET).scores["rmse"] == pytest.approx(wanted["rmse"])
    kept = daskgp.SGPR(fill_values=None, **SMALL).fit(*rows())
    assert kept.score(X, y) < 0.01


@pytest.mark.parametrize("value", [255, 99])
def test_counts_far_above_all_others_are_told(value, caplog):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 3, (300, 2)), rng.poisson(4, 300).astype(float)
    y[:12] = value
    settings = {"n_inducing": 8, "max_iter": 2, "batch_rows": 100, **QUIET}
    daskgp.SVGP(likelihood="poisson", **settings).fit(X, y)
    (line,) = [r.getMessage() for r in caplog.records if str(value) in r.getMessage()]
    assert line.startswith(f"{value} in 12 rows of target 'y', far from all others (0 to ")
    assert f"give fill_values=[{value}]" in line
    mended = daskgp.SVGP(likelihood="poisson", fill_values=[value], **settings).fit(X, y)
    assert mended.n_rows_ == 288


def test_a_number_that_may_be_a_fill_value_among_places_is_told():
    X, y = rows()
    model = daskgp.SGPR(**SMALL).fit(X * [1, 8], y)  # the second from 0 to 24
    kept = daskgp.SGPR(fill_values=None, **SMALL).fit(X * [1, 8], y)
    for value in (-99.0, -99.9, 99.0):
        T = places(value) * [1, 8]
        T[2, 1] = value
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = model.predict(T)
        np.testing.assert_array_equal(found, kept.predict(T))
        lines = [str(w.message) for w in said]
        assert len(lines) == (value < 0)
        assert all(f"{value:g} in feature 'x1' of places" in line for line in lines)
        assert all(f"or fit with fill_values=[{value:g}]" in line for line in lines)
    for axis in (np.arange(-100.0, 25.0), [-150.0, -99.0, 1.0, 2.0], [-99.0, 1.0], [-98.0, 1, 2]):
        model.predict(xr.Dataset(coords={"x0": [1.0, 2.0], "x1": axis}))
    high = daskgp.SGPR(**SMALL).fit(X * [1, 300] + 1, y)  # to 900
    for number, told in ((1, 0), (2, 1)):
        T = np.r_[X[:9], [[1.0, -99.0]] * number] * [1, 1]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            high.predict(T)
        assert len(said) == told
