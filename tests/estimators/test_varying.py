"""Hyper-parameters that vary over space: trained, compared, shown and handed back."""

import logging
import re

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from commands import rows
from distributed import Client
from fits import same_bits, zarr_rows
from sklearn.base import clone

import daskgp
from daskgp import VecchiaGP, kernels
from daskgp.cli.fit import _choice
from daskgp.cli.pages import write_report
from daskgp.cli.profile import varying_of
from daskgp.cli.settings import build_estimator
from daskgp.errors import InputError, RunError, SettingError
from daskgp.fit import varying
from daskgp.fit.conditionals import Drawn
from daskgp.models.markov import vecchia
from daskgp.models.markov.earlier import ranks
from tests import oracle

KERNEL = kernels.Matern32(0.3, variance=1.0)
QUICK = {"kernel": KERNEL, "n_neighbours": 10, "predict_neighbours": 20, "progress": False}
FIXED = QUICK | {"optimizer": None, "noise_variance": 0.05}


def changing(n=1_200, seed=0, wide=1.0, loud=1.0):
    """Rows of a field whose height grows with x, and whose noise falls, e^4 in variance each."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, (n, 2))
    K = kernels.Matern32(0.3)(X) + 1e-9 * np.eye(n)
    f = np.linalg.cholesky(K) @ rng.standard_normal(n)
    along = (X[:, 0] - 1.5) / 1.5
    y = np.exp(wide * along) * f + 0.2 * np.exp(-loud * along) * rng.standard_normal(n)
    return X, y


def nlpd(model, X, y):
    mean, std = model.predict(X, return_std=True, include_noise=True)
    return float(np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y - mean) / std) ** 2))


@pytest.fixture(scope="module")
def field():
    return changing()


@pytest.fixture(scope="module")
def fitted(field):
    X, y = field
    return VecchiaGP(**QUICK, varying=6, random_state=1).fit(X[:900], y[:900])


@pytest.fixture(scope="module")
def table():
    return rows(300, seed=5)


def fields(**more):
    """Hyper-parameters on a grid, as a user gives them."""
    x = np.linspace(0, 3, 5)
    shape = (("x1", "x0"), np.exp(np.linspace(-1, 1, 5))[None, :] * np.ones((3, 1)))
    coords = {"x1": np.linspace(0, 3, 3), "x0": x}
    return xr.Dataset(
        {"variance": shape, "noise_variance": (shape[0], 0.05 / shape[1])} | more, coords
    )


# -- training ----------------------------------------------------------------------------------


def test_predictions_are_better_and_the_map_is_that_of_the_field(field, fitted):
    X, y = field
    common = VecchiaGP(**QUICK, random_state=1).fit(X[:900], y[:900])
    assert nlpd(fitted, X[900:], y[900:]) < nlpd(common, X[900:], y[900:]) - 0.1
    T = np.column_stack([[0.4, 2.6], [1.5, 1.5]])
    found = fitted.hyperparameter_map(T)
    height, noise = (np.log(found[name].values) for name in ("variance", "noise_variance"))
    assert 1.5 < height[1] - height[0] < 4.5  # 2.9 is true
    assert 1.5 < noise[0] - noise[1] < 4.5
    assert (found["variance_standard_error"] > 0).all()


@pytest.mark.slow
def test_what_does_not_vary_stays_the_same():
    X, y = changing(2_000, wide=0.0, loud=0.0)
    model = VecchiaGP(**QUICK, varying=8).fit(X[:1_500], y[:1_500])
    common = VecchiaGP(**QUICK).fit(X[:1_500], y[:1_500])
    logs = model.solved_.theta.varying.logs
    assert np.abs(logs).max() < 0.4
    assert nlpd(model, X[1_500:], y[1_500:]) < nlpd(common, X[1_500:], y[1_500:]) + 0.01


@pytest.mark.parametrize(("wide", "varies"), [(1.0, True), (0.0, False)])
def test_auto_takes_the_better_and_says_so(wide, varies, caplog, monkeypatch):
    monkeypatch.setattr(varying, "EACH", 150)
    X, y = changing(wide=wide, loud=wide)
    with caplog.at_level(logging.INFO, "daskgp"):
        model = VecchiaGP(**QUICK, varying="auto").fit(X, y)
    assert (model.solved_.theta.varying is not None) == varies
    assert ("they vary" in caplog.text) == varies
    assert "nats a row on rows held out" in caplog.text
    assert (model.history_[-1]["varying_gain"] > 0.05) == varies
    told, shown = _choice(model)["varying"], str(model.hyperparameters_)
    assert told == varying_of(model)
    assert (told["taken"], told["knots"] > 0) == (varies, varies)
    assert told["gain"] == model.history_[-1]["varying_gain"]
    assert f"gain {told['gain']:.4f} nats a row on rows held out, and" in shown
    assert ("they vary" in shown, "they stay the same" in shown) == (varies, not varies)
    if not varies:
        common = VecchiaGP(**QUICK).fit(X, y)
        same_bits(model.predict(X[:50], True), common.predict(X[:50], True))
        with pytest.raises(AttributeError, match="same everywhere"):
            _ = model.hyperparameter_map_


def test_auto_takes_what_gains_in_gaps():
    """Where rows are close, all hyper-parameters predict them alike."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, 2_000)
    y = np.exp(x - 1.5) * np.sin(6 * x) + 0.2 * rng.standard_normal(len(x))
    model = VecchiaGP(varying="auto", progress=False).fit(x[:, None], y)
    assert model.solved_.theta.varying is not None
    assert model.history_[-1]["varying_gain_in_gaps"] > 0.1


def test_a_callback_that_ends_training_ends_it(field):
    model = VecchiaGP(varying=4, progress=False).fit(*field, callback=lambda entry: True)
    assert model.solved_.theta.varying is None


def test_few_rows_do_not_vary(table, caplog):
    with caplog.at_level(logging.INFO, "daskgp"):
        model = VecchiaGP(**QUICK, varying="auto").fit(*table)
    assert model.solved_.theta.varying is None
    assert "too few rows" in caplog.text


def test_names_hold_the_others(field):
    X, y = field
    model = VecchiaGP(**QUICK, varying=("noise_variance",), fixed="variance")
    model.set_params(varying_over=["x0"]).fit(X[:900], y[:900])
    found = model.solved_.theta.varying
    assert found is None or np.ptp(found.logs[:, :-1]) == 0.0


def test_noise_alone(field, monkeypatch):
    monkeypatch.setattr(varying, "EACH", 150)
    X, y = changing(wide=0.0)
    model = VecchiaGP(**QUICK, varying=("noise_variance",), varying_over=("x0",)).fit(X, y)
    found = model.hyperparameter_map_
    assert list(found.coords) == ["x0"]
    assert np.ptp(found["variance"].values) == 0.0
    known = next(row for row in model.hyperparameters_ if row.name == "variance").standard_error
    for fields in (found, model.hyperparameter_map(X[:2])):  # those of a common one
        np.testing.assert_allclose(fields["variance_standard_error"], known)
    order = np.argsort(found["x0"].values)
    noise = found["noise_variance"].values[order]
    assert noise[0] > 4 * noise[-1]
    std = [model.predict(T, True, include_noise=True)[1] for T in ([[0.2, 1.5]], [[2.8, 1.5]])]
    assert std[0][0] > 1.5 * std[1][0]


def test_fixed_ones_do_not_vary(field):
    X, y = field
    model = VecchiaGP(**QUICK, varying=4, fixed={"lengthscale": 0.3}).fit(X, y)
    found = model.hyperparameter_map_
    np.testing.assert_allclose(found["lengthscale"], 0.3, rtol=1e-12)
    assert np.ptp(found["variance"].values) > 0


@pytest.mark.parametrize("mean", ["linear", "constant"])
def test_a_trend_and_several_targets(field, mean):
    X, y = field
    both = np.column_stack([y + 2 * X[:, 0], 3 - y])
    model = VecchiaGP(**QUICK, varying=4, mean=mean).fit(X[:900], both[:900])
    mean, std = model.predict(X[900:], return_std=True)
    assert mean.shape == std.shape == (300, 2)
    assert np.corrcoef(mean[:, 1], 3 - y[900:])[0, 1] > 0.8


def test_sums_of_kernels_vary_part_by_part(field):
    X, y = field
    kernel = kernels.Matern32(0.3) + kernels.RBF(1.0, variance=0.2)
    model = VecchiaGP(**QUICK | {"kernel": kernel}, varying=4).fit(X, y)
    found = model.hyperparameter_map_
    assert {"0.variance", "0.lengthscale", "1.variance", "1.lengthscale"} <= {*found}


def test_places_on_a_globe():
    X, y = changing()
    X = X * [20.0, 10.0] + [150.0, -20.0]  # across the date line
    model = VecchiaGP(**QUICK | {"kernel": kernels.Matern32(600.0)}, varying=4, geographic=(0, 1))
    model.fit(X, y)
    found = model.hyperparameter_map_
    assert set(found.coords) == {"x0", "x1"}
    assert found["lengthscale"].attrs["units"] == "km"
    moved = np.where(X > 180.0, X - [360.0, 0.0], X)[:20]
    np.testing.assert_allclose(model.predict(moved), model.predict(X[:20]), rtol=1e-6, atol=1e-8)
    plain = model.set_params(standardize=False).fit(X, y)
    back = clone(plain).set_params(varying=plain.hyperparameter_map_).fit(X, y)
    np.testing.assert_allclose(back.predict(moved), plain.predict(moved), rtol=1e-6, atol=1e-8)


def test_the_table_of_hyperparameters_says_so(fitted):
    found, shown = fitted.hyperparameter_map_["variance"].values, str(fitted.hyperparameters_)
    assert f"6 knots vary over space: variance from {found.min():.3g} to {found.max():.3g}" in shown


def test_settings_are_read_from_text():
    for text, value in {
        "varying=auto": "auto",
        "varying=16": 16,
        "varying=noise_variance": "noise_variance",
        'varying=["variance", "noise_variance"]': ["variance", "noise_variance"],
    }.items():
        model = build_estimator("vecchia", [text, "varying_over=x0,x1"])
        assert (model.varying, model.varying_over) == (value, ["x0", "x1"])


# -- bits --------------------------------------------------------------------------------------


def test_a_store_gives_the_bits_back(field, fitted, tmp_path):
    X, y = field
    wanted = fitted.predict(X[:60], True), fitted.predict(X[:9], return_cov=True)
    again = clone(fitted).fit(X[:900], y[:900])
    again.save(tmp_path / "m.zarr")
    found = daskgp.load(tmp_path / "m.zarr")
    assert found.solved_.token == again.solved_.token != common_token(fitted)
    for pair, own in zip(
        (found.predict(X[:60], True), found.predict(X[:9], return_cov=True)), wanted, strict=True
    ):
        same_bits(pair, own)
    xr.testing.assert_identical(found.hyperparameter_map_, fitted.hyperparameter_map_)
    lazy = found.predict(da.from_array(X[:60], (13, 2)), True)
    same_bits([np.asarray(one) for one in lazy], wanted[0])


def common_token(model):
    from dataclasses import replace

    posterior = model.solved_
    return replace(posterior, theta=replace(posterior.theta, varying=None)).token


@pytest.mark.slow
def test_processes_of_a_cluster_give_the_bits_of_threads(field, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(varying, "EACH", 150)
    given, settings = zarr_rows(tmp_path / "t.zarr", *field), QUICK | {"block_rows": 200}
    with Client(cluster):
        there = VecchiaGP(**settings, varying="auto").fit(*given)
        moments = there.predict(field[0][:60], return_std=True)
    here = VecchiaGP(**settings, varying="auto").fit(*given)
    assert there.solved_.theta.varying is not None
    xr.testing.assert_identical(here.hyperparameter_map_, there.hyperparameter_map_)
    same_bits(here.predict(field[0][:60], return_std=True), moments)


@pytest.mark.parametrize("asked", [4, "auto"])
def test_a_stopped_fit_goes_on_with_the_same_bits(asked, field, tmp_path, monkeypatch):
    monkeypatch.setattr(varying, "EACH", 150)
    X, y = field
    settings = QUICK | {"max_iter": 2, "varying": asked}
    evaluate, made = Drawn.evaluate, []

    def counted(self, theta, knots=False, held=None):
        if knots:
            made.append(held)
            if len(made) == stop:
                raise RunError("stopped")
        return evaluate(self, theta, knots, held)

    monkeypatch.setattr(Drawn, "evaluate", counted)
    stop = None
    wanted = VecchiaGP(**settings).fit(X, y)
    stop, total = len(made) - 1, len(made)
    made.clear()
    with pytest.raises(RunError, match="stopped"):
        VecchiaGP(**settings).fit(X, y, checkpoint=str(tmp_path / "c.zarr"))
    stop = None
    made.clear()
    found = VecchiaGP(**settings).fit(X, y, checkpoint=str(tmp_path / "c.zarr"))
    assert len(made) == 2 < total
    xr.testing.assert_identical(found.hyperparameter_map_, wanted.hyperparameter_map_)


# -- given -------------------------------------------------------------------------------------


def test_a_map_handed_back_gives_the_same_predictions(field, fitted):
    X, y = field
    given = fitted.hyperparameter_map_
    common = {"kernel": fitted.kernel_, "noise_variance": fitted.noise_variance_}
    model = VecchiaGP(**FIXED | common, varying=given, random_state=1).fit(X[:900], y[:900])
    for one, other in zip(model.predict(X[900:], True), fitted.predict(X[900:], True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    shown = model.hyperparameter_map_
    for name in ("variance", "lengthscale", "noise_variance"):
        np.testing.assert_allclose(np.sort(shown[name]), np.sort(given[name]), rtol=1e-8)
        assert np.isnan(shown[f"{name}_standard_error"]).all()


def test_a_grid_is_taken_as_it_is_and_kept(table, tmp_path):
    model = VecchiaGP(**FIXED, varying=fields()).fit(*table)
    T = np.array([[0.0, 0.0], [3.0, 3.0]])
    found = model.hyperparameter_map(T)
    says = "has all values of variance, noise_variance, whose common values are not used"
    assert says in str(model.hyperparameters_)
    ratio = float(found["variance"][1] / found["variance"][0])
    assert 3.0 < ratio < np.exp(2)  # knots blend
    model.save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr")
    xr.testing.assert_identical(loaded.varying, model.varying)
    same_bits(loaded.predict(T, True), model.predict(T, True))
    again = clone(loaded).fit(*table)
    same_bits(again.predict(T, True), model.predict(T, True))


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            lambda: fields().assign(variance=-fields()["variance"]),
            "values of variance that are not positive",
        ),
        (lambda: fields(width=(("x1", "x0"), np.ones((3, 5)))), "names 'width', which is not a"),
        (lambda: fields().rename(x0="east"), "names 'east', but the columns of X are x0, x1"),
        (lambda: xr.Dataset({"variance": 1.0}), "features as coordinates"),
        (lambda: xr.concat([fields(), fields()], "z"), "no coordinate along 'z', .* choose one of"),
        (lambda: fields().astype(str), "'variance' of type <U.*: give numbers, in the units"),
        (lambda: fields() + 1j, "'variance' of type complex128: give numbers"),
        (lambda: fields().assign_coords(x0=list("abcde")), "'x0' of type <U1: give numbers"),
        (
            lambda: fields().variance,
            r"is a DataArray: give a Dataset, .to_dataset\(name='variance'",
        ),
    ],
)
@pytest.mark.whole
def test_fields_that_cannot_be_taken_are_one_line(made, says, table):
    with pytest.raises(SettingError, match=says):
        VecchiaGP(**FIXED, varying=made()).fit(*table)


def test_maps_lie_on_any_grid(fitted):
    grid = xr.Dataset(coords={"x0": np.linspace(0, 3, 7), "x1": np.linspace(0, 3, 4)})
    found = fitted.hyperparameter_map(grid)
    assert dict(found.sizes) == {"x0": 7, "x1": 4}
    rows_of = fitted.hyperparameter_map(np.column_stack([np.full(4, grid.x0[2]), grid.x1]))
    np.testing.assert_allclose(found["variance"][2], rows_of["variance"])
    assert found["variance"].attrs["ancillary_variables"] == "variance_standard_error"
    lazy = fitted.hyperparameter_map(grid.assign(z=grid.x0 * grid.x1).chunk(x0=3))
    assert lazy["variance"].chunks
    xr.testing.assert_allclose(lazy.compute(), found)
    for _ in range(2):  # each call says so
        with pytest.warns(UserWarning, match="feature 'x0' goes from 900 to 903, in the training"):
            fitted.hyperparameter_map(grid.assign_coords(x0=grid.x0 + 900))


def test_maps_of_common_hyperparameters_are_the_same_everywhere(table):
    grid = xr.Dataset(coords={"x0": [0.0, 1.0], "x1": [0.0, 2.0]})
    model = VecchiaGP(**FIXED).fit(*table)
    found = model.hyperparameter_map(table[0][:5])
    assert np.ptp(found["variance"].values) == 0.0
    assert np.isnan(found["variance_standard_error"]).all()
    trained = VecchiaGP(**QUICK, max_iter=3).fit(*table)
    errors = {row.name: row.standard_error for row in trained.hyperparameters_}
    for found in (trained.hyperparameter_map(table[0][:5]), trained.hyperparameter_map(grid)):
        np.testing.assert_allclose(found["variance_standard_error"], errors["variance"])


# -- after the fit -----------------------------------------------------------------------------


def test_rows_that_come_give_the_sums_of_a_fit(field):
    X, y = field
    given = fields()
    model = VecchiaGP(**FIXED | {"n_neighbours": 200, "predict_neighbours": 200}, varying=given)
    model.fit(X[:150], y[:150]).update(X[150:190], y[150:190])
    T = X[600:650]
    mean, std = model.predict(T, True)
    whole = clone(model).fit(X[:190], y[:190]).predict(T, True)
    np.testing.assert_allclose(std, whole[1], rtol=0.1)
    assert np.abs(mean - whole[0]).max() < 0.2 * np.std(y)


def test_rows_that_go(field):
    X, y = field
    model = VecchiaGP(**FIXED, block_rows=100, varying=fields()).fit(X[:400], y[:400])
    before = model.predict(X[600:650])
    model.update(X[400:500], y[400:500]).forget(X[400:500], y[400:500])
    np.testing.assert_allclose(model.predict(X[600:650]), before, rtol=1e-6, atol=1e-8)


def test_without_a_row_it_is_predicted_by_the_others(field):
    X, y = field
    settings = FIXED | {"predict_neighbours": 200, "n_neighbours": 200, "mean": "zero"}
    settings |= {"standardize": False, "varying": fields()}
    model = VecchiaGP(**settings).fit(X[:150], y[:150])
    mean, std = model.loo(X[:150], y[:150])
    for i in (0, 70, 149):
        keep = np.arange(150) != i
        other = VecchiaGP(**settings).fit(X[:150][keep], y[:150][keep])
        wanted = other.predict(X[[i]], True, include_noise=True)
        np.testing.assert_allclose([mean[i], std[i]], [wanted[0][0], wanted[1][0]], rtol=1e-6)


@pytest.mark.parametrize("how", ["loo", "random"])
def test_calibration(how, field):
    X, y = field
    model = VecchiaGP(**FIXED, varying=fields(), calibrate=how).fit(X[:500], y[:500])
    assert 0.3 < model.spread_ < 3.0


def test_samples_are_joint(field, fitted):
    X = field[0][:40]
    mean, cov = fitted.predict(X, return_cov=True)
    single, std = fitted.predict(X, return_std=True)
    assert np.linalg.eigvalsh(cov).min() > -1e-8
    np.testing.assert_allclose(mean, single, atol=0.3 * std.max())
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=0.3)
    assert fitted.sample_y(X, 3, random_state=0).shape == (40, 3)


def test_training_begins_from_a_model_whose_hyperparameters_vary(field, fitted):
    X, y = field
    model = VecchiaGP(**QUICK).fit(X[:900], y[:900], start=fitted)
    assert model.solved_.theta.varying is None


# -- against dense conditionals ----------------------------------------------------------------


def unscaled(n, wide=(), **settings):
    """A model of n rows whose hyper-parameters are given in the units of the data."""
    X, y = changing(n)
    plain = {"mean": "zero", "standardize": False, "varying": fields(**dict(wide))}
    return VecchiaGP(**FIXED | plain | settings).fit(X, y), X, y


def lengths():
    """Lengthscales that grow from 0.15 to 0.6."""
    along = 0.3 * np.exp(np.linspace(-np.log(2), np.log(2), 5))
    return {"lengthscale": (("x1", "x0"), along[None, :] * np.ones((3, 1)))}


def given(model, x, X, noisy, more=0.0):
    """Weights of what was seen at X, of f where not noisy, for f at x, and its variance."""
    there = model.hyperparameter_map(x[None])
    v, s, length = (float(there[n][0]) for n in ("variance", "noise_variance", "lengthscale"))

    def K(A, B):
        r = np.sqrt(3) * np.linalg.norm(A[:, None] - B[None], axis=2) / length
        return v * (1 + r) * np.exp(-r)

    across = K(X, x[None])[:, 0]
    b = np.linalg.solve(K(X, X) + np.eye(len(X)) * (np.where(noisy, s, 0.0) + more), across)
    return b, v - b @ across


def test_above_256_neighbours_each_place_has_its_own_hyperparameters():
    model, X, y = unscaled(270, lengths(), predict_neighbours=300, n_neighbours=4)
    T = np.random.default_rng(1).uniform(0, 3, (4, 2))
    mean, std = model.predict(T, True)
    for i, x in enumerate(T):
        b, variance = given(model, x, X, True)
        np.testing.assert_allclose([mean[i], std[i] ** 2], [b @ y, variance], rtol=1e-9)
    left = model.loo(X[:2], y[:2])
    b, variance = given(model, X[1], np.delete(X, 1, 0), True)
    noise = float(model.hyperparameter_map(X[1:2])["noise_variance"][0])
    wanted = [b @ np.delete(y, 1), np.sqrt(variance + noise)]
    np.testing.assert_allclose([left[0][1], left[1][1]], wanted, rtol=1e-9)
    _, cov = model.predict(T, return_cov=True)
    assert cov[0, 0] == pytest.approx(std[0] ** 2, rel=1e-9)


def test_averages_are_those_of_places_drawn_one_after_another(monkeypatch):
    monkeypatch.setattr(vecchia, "SUMMED", 5)
    model, X, y = unscaled(60, lengths(), predict_neighbours=30)
    rng = np.random.default_rng(1)
    T, w = rng.uniform(0, 3, (17, 2)), rng.uniform(0, 2, 17)
    line = np.argsort(ranks(np.arange(17), 0))
    sources, noisy = np.concatenate([X, T[line]]), np.arange(77) < 60
    weights, spread = np.zeros((17, 77)), np.zeros(17)
    for i, x in enumerate(T[line]):
        near = np.argsort(np.linalg.norm(sources[: 60 + i] - x, axis=1))[:30]
        weights[i, near], spread[i] = given(model, x, sources[near], noisy[near])
    back = np.linalg.inv(np.eye(17) - weights[:, 60:])
    v = w[line] / w.sum() @ back
    lazy = da.from_array(T, (6, 2)), da.from_array(w, 6)
    found = [float(one) for one in model.predict_average(*lazy)]
    np.testing.assert_allclose(found, [v @ weights[:, :60] @ y, np.sqrt(v**2 @ spread)], rtol=1e-9)
    noise = (w / w.sum()) ** 2 @ model.hyperparameter_map(T)["noise_variance"].values
    _, std = model.predict_average(*lazy, include_noise=True)
    assert float(std) == pytest.approx(np.sqrt(found[1] ** 2 + noise), rel=1e-9)


def test_with_support_inputs_all_rows_are_conditioned_on_what_is_there():
    S, k, kp = changing(30)[0][:6] + 0.2, 5, 9
    model, *_ = unscaled(30, lengths(), support=S, n_neighbours=k, predict_neighbours=kp)
    at, seen = model.solved_.rows.rows.read(0, 30)
    line = np.argsort(ranks(np.arange(30), 0))
    T = np.random.default_rng(1).uniform(0, 3, (4, 2))
    places = T[np.argsort(ranks(np.arange(4), 0))]
    sources = np.concatenate([S, at[line], places])
    fields_at = model.hyperparameter_map(sources)
    noisy = (np.arange(40) >= 6) & (np.arange(40) < 36)
    more = np.where(np.arange(40) < 6, 1e-8 * fields_at["variance"].values, 0.0)
    spread = more + np.where(noisy, fields_at["noise_variance"].values, 0.0)
    weights, root = np.zeros((40, 40)), np.zeros(40)
    for i, x in enumerate(sources):
        away = np.linalg.norm(sources[6:i] - x, axis=1)
        near = 6 + np.argsort(away)[: k if i < 36 else kp]
        near = np.arange(i) if i < 6 else np.concatenate([np.arange(6), near])
        weights[i, near], root[i] = given(model, x, sources[near], noisy[near], more[near])
    back = np.linalg.inv(np.eye(40) - weights) * np.sqrt(root + spread)
    C, own, there = back @ back.T, slice(6, 36), slice(36, 40)
    y_line, W = seen[line, 0], np.linalg.solve(C[own, own], C[own, there]).T
    assert model.objective_ == pytest.approx(
        oracle.evidence(C[own, own], y_line[:, None], 0.0), rel=1e-9
    )
    mean, cov = W @ y_line, C[there, there] - W @ C[own, there]
    found = model.predict(places, return_cov=True)
    np.testing.assert_allclose(found[0], mean, rtol=1e-8)
    np.testing.assert_allclose(found[1], cov, rtol=1e-8, atol=1e-10)
    found = [float(one) for one in model.predict_average(*(da.from_array(a) for a in (T, [1] * 4)))]
    np.testing.assert_allclose(found, [mean.mean(), np.sqrt(cov.mean())], rtol=1e-8)
    first = [one[0] for one in model.predict(places[:1], True)]
    np.testing.assert_allclose(first, [mean[0], np.sqrt(cov[0, 0])], rtol=1e-8)


def test_with_support_inputs_the_same_everywhere_is_the_common_model(table):
    X, y = table
    same = {
        name: (("x1", "x0"), np.full((3, 5), v))
        for name, v in (("variance", 1.0), ("noise_variance", 0.05))
    }
    settings = FIXED | {"support": X[::20], "standardize": False}
    one, other = (VecchiaGP(**settings, varying=v).fit(X, y) for v in (fields(**same), None))
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-9)
    for call in (lambda m: m.predict(X[:9] + 0.1, True), lambda m: m.loo(X[:9], y[:9])):
        for found, wanted in zip(call(one), call(other), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_paths_are_draws_of_the_field_less_what_rows_say_of_their_error():
    model, X, y = unscaled(80, lengths(), predict_neighbours=80)
    paths, T = model.sample_paths(200, n_frequencies=500), X[:5] + 0.1
    prior, rows = paths.solved_.state.prior, paths.solved_.rows.rows
    at, targets = rows.read(0, 80)
    values, g = paths(T), prior(model.solved_.scaled(T))
    for i, x in enumerate(T):
        wanted = g[i] + given(model, x, at, True)[0] @ targets
        np.testing.assert_allclose(values[i], wanted, rtol=1e-9, atol=1e-9)
    own = [np.flatnonzero((x == X).all(axis=1))[0] for x in at]
    noise = y[own][:, None] - prior(model.solved_.scaled(at)) - targets
    there = model.hyperparameter_map(at)["noise_variance"].values
    np.testing.assert_allclose(noise.var(axis=1), there, rtol=0.5)
    assert np.mean(noise.var(axis=1) / there) == pytest.approx(1.0, abs=0.05)
    lazy = paths(da.from_array(T, (2, 2)))
    np.testing.assert_array_equal(lazy.compute(), values)


def test_paths_are_as_wide_as_predicted():
    model, *_ = unscaled(200, lengths(), predict_neighbours=60)
    T = np.random.default_rng(3).uniform(0.1, 2.9, (60, 2))
    mean, std = model.predict(T, True)
    values = model.sample_paths(200)(T)
    assert np.mean((values.std(axis=1) / std) ** 2) == pytest.approx(1.0, abs=0.05)
    assert abs((values.mean(axis=1) - mean) / std).max() < 4.5 / np.sqrt(200)
    both = model.predict(T, return_cov=True)[1]
    near = np.argwhere(np.triu(both / np.outer(std, std) > 0.5, 1))
    found = np.cov(values)[tuple(near.T)] / both[tuple(near.T)]
    assert len(near) > 5
    assert np.mean(found) == pytest.approx(1.0, abs=0.1)


def test_paths_of_a_period_that_varies_are_refused_in_a_line(table):
    kernel = kernels.Periodic(1.0, period=0.7, active_dims=0)
    period = {"period": (("x1", "x0"), 0.7 + 0.1 * np.arange(15.0).reshape(3, 5))}
    model = VecchiaGP(**FIXED | {"kernel": kernel}, varying=fields(**period)).fit(*table)
    with pytest.raises(SettingError, match="a period that is the same everywhere") as error:
        model.sample_paths(2)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"varying": ("variance",), "fixed": "variance"}, "'variance' is fixed and is to vary"),
        ({"varying": 1}, "varying=1: a whole number of at least 2"),
        ({"varying": 2.5}, "varying=2.5: give 'auto', a whole number"),
        ({"varying": True}, "varying=True"),
        (
            {"varying": ()},
            r"varying=\(\): give 'auto', a whole number of at least 2, names or None",
        ),
        ({"varying": ("width",)}, "varying names 'width', .* choose among variance, lengthscale"),
        ({"varying": 3, "varying_over": ["x7"]}, "varying_over names 'x7', but the columns"),
        ({"varying": 3, "varying_over": 5}, "varying_over=5: give names or None"),
        ({"varying_over": ["x0"]}, "varying_over=.* has no effect with varying=None"),
        ({"varying": 3, "optimizer": None}, "varying=3 has no effect with optimizer=None"),
        ({"varying": 3, "n_support": 240}, "240 support inputs and 20 neighbours: .* at most 256 "),
    ],
    ids=str,
)
def test_settings_that_cannot_be_met_are_one_line(settings, says, table):
    with pytest.raises((SettingError, InputError), match=says) as error:
        VecchiaGP(**QUICK | settings).fit(*table)
    assert "\n" not in str(error.value)


# -- by windows ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", [daskgp.LMA, daskgp.PIC])
def test_windows_have_hyperparameters_of_their_own(kind, field, tmp_path):
    X, y = field
    own = {"kernel": KERNEL, "n_support": 20, "block_rows": 40, "progress": False}
    common, model = (kind(**own, varying=v).fit(X[:900], y[:900]) for v in (None, 6))
    assert nlpd(model, X[900:], y[900:]) < nlpd(common, X[900:], y[900:]) - 0.1
    assert model.hyperparameter_map_.sizes["knot"] == 6
    model.save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr")
    same_bits(loaded.predict(X[900:], True), model.predict(X[900:], True))
    mean, std = model.loo(X[:900], y[:900])
    inside = np.abs(mean - y[:900]) < 1.96 * std
    assert 0.91 < inside.mean() < 0.98
    given = clone(model).set_params(varying=model.hyperparameter_map_, varying_over=None)
    given.fit(X[:900], y[:900])
    assert nlpd(given, X[900:], y[900:]) < nlpd(common, X[900:], y[900:]) - 0.1
    loaded.update(X[900:], y[900:])
    assert nlpd(loaded, X[900:], y[900:]) < nlpd(model, X[900:], y[900:])
    assert len(model.support_) == 0
    for ask in (
        lambda: model.predict(X[:3], return_cov=True),
        lambda: model.predict_average(X[:3]),
        lambda: model.sample_paths(2),
    ):
        with pytest.raises(SettingError, match="fit VecchiaGP"):
            ask()


def test_the_report_has_maps_of_them(fitted, tmp_path):
    write_report(str(tmp_path / "r.html"), fitted, "m.zarr", "rows")
    assert "Maps of the hyper-parameters" in (tmp_path / "r.html").read_text()


@pytest.mark.slow
def test_a_search_takes_them_where_they_are_surely_better(field):
    X, y = field
    own = [VecchiaGP(**QUICK, max_iter=10), VecchiaGP(**QUICK, max_iter=10, varying=6)]
    model = daskgp.AutoGP(time_budget=60.0, candidates=own, progress=False).fit(X, y)
    assert model.best_.varying == 6
    assert model.best_.solved_.theta.varying is not None
    xr.testing.assert_identical(model.hyperparameter_map_, model.best_.hyperparameter_map_)


def test_what_needs_one_variogram_or_noise_variance_is_refused(field, fitted):
    X, y = field
    with pytest.raises(SettingError, match="no single variogram is expected everywhere"):
        daskgp.variogram(X, y, model=fitted)
    with pytest.raises(SettingError, match="one noise variance of all rows"):
        fitted.score(X, y, y_variance=0.1)


def test_knots_at_one_place_are_one(field, caplog):
    X, y = field
    moved = fields().assign_coords(x0=fields()["x0"] - 5e5)
    with pytest.raises(SettingError, match="infinite values of variance"):
        VecchiaGP(**FIXED, varying=fields() * np.inf).fit(X[:300], y[:300])
    with pytest.raises(SettingError, match="all far from the rows"):
        VecchiaGP(**FIXED, varying=moved).fit(X[:300], y[:300])
    by_number = fields().assign_coords(x0=fields()["x0"] - 9.0)
    VecchiaGP(**FIXED, varying=by_number).fit(X[:300], y[:300])
    (line,) = [text for text in caplog.messages if "varying" in text]
    assert re.search(r"x1, x0 that all lie far from most rows, at least \d.*: check units", line)
    doubled = xr.concat([fields(), fields()], "time").assign_coords(time=[0.0, 1.0])
    model = VecchiaGP(**FIXED, varying=fields()).fit(X[:300], y[:300])
    flat = np.column_stack([X[:300], np.zeros(300)])
    names = ["x0", "x1", "time"]
    other = VecchiaGP(**FIXED, varying=doubled).fit(pd.DataFrame(flat, columns=names), y[:300])
    assert len(other.solved_.theta.varying.knots) == len(model.solved_.theta.varying.knots)
