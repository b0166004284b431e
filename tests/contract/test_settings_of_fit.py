"""Settings changed on a fitted model, for every method: refused at every door, or acting."""

import copy
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import daskgp
from daskgp import kernels
from daskgp.errors import SettingError
from daskgp.estimators import settings_of_fit
from tests.contract import cases

T = cases.rows(7, seed=4)[0]
DOORS: dict[str, Callable] = {
    "predict": lambda gp, X, y, url: gp.predict(T),
    "predict_exceedance": lambda gp, X, y, url: gp.predict_exceedance(T, 0.5),
    "predict_average": lambda gp, X, y, url: gp.predict_average(T),
    "predict_proba": lambda gp, X, y, url: gp.predict_proba(T),
    "predict_store": lambda gp, X, y, url: gp.predict_store(url, url),
    "is_predicted": lambda gp, X, y, url: gp.is_predicted(url, url),
    "needs_cluster": lambda gp, X, y, url: gp.needs_cluster(url, url),
    "make_grid": lambda gp, X, y, url: gp.make_grid({"x0": 1.0, "x1": 1.0}),
    "sample_y": lambda gp, X, y, url: gp.sample_y(T),
    "sample_paths": lambda gp, X, y, url: gp.sample_paths(2),
    "loo": lambda gp, X, y, url: gp.loo(X, y),
    "score": lambda gp, X, y, url: gp.score(X, y),
    "log_marginal_likelihood": lambda gp, X, y, url: gp.log_marginal_likelihood(),
    "update": lambda gp, X, y, url: gp.update(X, y),
    "forget": lambda gp, X, y, url: gp.forget(X[:10], y[:10]),
    "partial_fit": lambda gp, X, y, url: gp.partial_fit(X, y),
    "save": lambda gp, X, y, url: gp.save(url),
    "hyperparameter_map": lambda gp, X, y, url: gp.hyperparameter_map(T),
    "check": lambda gp, X, y, url: daskgp.check(gp, X, y),
    "variogram": lambda gp, X, y, url: daskgp.variogram(X, y, model=gp),
}
NO_DOORS = {"recipe", "fit", "plan", "get_params", "set_params"}
NO_DOORS |= {"get_metadata_routing", "set_fit_request", "set_score_request"}
NO_DOORS |= {"set_partial_fit_request", "set_predict_request"}
STEPS = {"learning_rate", "mean_learning_rate", "batch_rows", "n_added", "train_points"}
STEPS |= {"optimizer"}
every = pytest.mark.parametrize("name", cases.SETTINGS)


def other(name, value):
    """A value that a setting does not have; it need not be one that a fit takes."""
    if name == "kernel":
        return kernels.Matern12(0.5)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return {"prior": {"lengthscale": "lognormal(1, 1)"}, "inducing": T}.get(name, "another")


def acting(model):
    """Settings that a fitted model reads anew."""
    blocks = {"block_rows"} if model.traits.reads_blocks else set()
    return {"progress", "store", "device", "unseen"} | blocks


def doors(model):
    return [door for door in DOORS if door in ("check", "variogram") or hasattr(model, door)]


@pytest.fixture(scope="module", params=["fitted", "loaded"])
def made(request, tmp_path_factory):
    """Fitted models by name, each made once, as they are or read back from a store."""
    folder, known = tmp_path_factory.mktemp("stores"), {}

    def of(name):
        if name not in known:
            model = known[name] = cases.make(name).fit(*cases.rows())
            if request.param == "loaded":
                model.save(folder / name)
                known[name] = daskgp.load(folder / name)
        return copy.copy(known[name])

    return of


@every
def test_every_public_method_is_a_door_or_none(name):
    model = cases.make(name)
    public = {own for own in dir(type(model)) if not own.startswith("_")}
    methods = {own for own in public if callable(getattr(type(model), own))}
    assert methods <= {*DOORS, *NO_DOORS}


@pytest.mark.sampled
@every
def test_a_setting_that_is_not_that_of_the_fit_is_refused_at_every_door(name, made, tmp_path):
    model, (X, y) = made(name), cases.rows()
    wanted = cases.bits(model, T)
    for setting, value in model.get_params(deep=False).items():
        if setting in acting(model):
            continue
        model.set_params(**{setting: other(setting, value)})
        for door in doors(model):
            if door == "partial_fit" and setting in STEPS:
                continue
            with pytest.raises(SettingError) as refusal:
                DOORS[door](model, X, y, str(tmp_path / "m"))
            line = str(refusal.value)
            assert line.startswith(f"{setting}="), (door, line)
            assert f", but the model was fitted with {setting}=" in line
            assert line.endswith(", or fit again")
            assert "\n" not in line
        assert not list(tmp_path.iterdir())
        model.set_params(**{setting: value})
    assert cases.bits(model, T) == wanted


@every
def test_settings_that_act_change_no_prediction_and_are_saved(name, made, tmp_path):
    model, X = made(name), cases.rows()[0]
    wanted, store = cases.bits(model, T), str(tmp_path / "rows")
    more = {"block_rows": 25} if "block_rows" in acting(model) else {}
    model.set_params(progress=False, store=store, device="cpu", **more)
    assert cases.bits(model, T) == wanted
    assert model.solved_.device == "cpu"
    model.save(tmp_path / "m.zarr")
    loaded = daskgp.load(tmp_path / "m.zarr")
    assert cases.bits(loaded, T) == wanted
    assert (loaded.store, loaded.device) == (store, "cpu")
    model.set_params(device="tpu")
    with pytest.raises(SettingError, match="device='tpu': choose one of 'auto', 'cpu', 'gpu'"):
        model.predict(X)


ADDED_TO = cases.those(lambda name: cases.method(name).why_no_update() is None)


@pytest.mark.parametrize("name", [name for name in ADDED_TO if name not in cases.LOCAL])
def test_other_blocks_of_rows_are_read_by_an_update(name, made):
    X, y = cases.rows(60, seed=8)
    wanted = made(name).update(X, y)
    found = made(name).set_params(block_rows=7).update(X, y)
    np.testing.assert_allclose(found.predict(T), wanted.predict(T), rtol=1e-8)
    assert found.objective_ == pytest.approx(wanted.objective_, rel=1e-10)


def test_several_settings_are_named_and_the_remedy_is_one():
    X, y = cases.rows()
    model = cases.make("lma", markov_order=3).fit(X, y)
    wanted = copy.copy(model).update(*cases.rows(40, seed=8)).objective_
    model.set_params(markov_order=0, neighbours="order")
    says = (
        "markov_order=0 and neighbours='order', but the model was fitted with markov_order=3 and "
        r"neighbours='nearest': set them back, set_params\(markov_order=3, neighbours='nearest'\), "
        "or fit again"
    )
    with pytest.raises(SettingError, match=says):
        model.forget(X[:30], y[:30])
    model.set_params(markov_order=3, neighbours="nearest")
    assert model.update(*cases.rows(40, seed=8)).objective_ == wanted
    model.set_params(markov_order=0).fit(X, y)
    assert model.predict(T).shape == (len(T),)


def test_a_fit_that_fails_to_calibrate_is_not_taken_for_calibrated():
    X, y = cases.rows(60)
    model = cases.fixed("exact", calibrate="random")
    with pytest.raises(daskgp.errors.InputError, match="without any error"):
        model.fit(X, np.zeros(len(y)))
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_steps_of_a_stream_take_new_settings():
    X, y = cases.rows()
    model = cases.make("svgp").partial_fit(X, y)
    model.set_params(learning_rate=0.001, batch_rows=30)
    with pytest.raises(SettingError, match=r"with batch_rows=50 and learning_rate=0\.02: set them"):
        model.predict(T)
    steps = model.n_iter_
    model.partial_fit(X, y)
    assert model.n_iter_ == steps + 5
    assert model.predict(T).shape == (len(T),)
    model.set_params(learning_rate=0.001, n_inducing=20)
    with pytest.raises(SettingError, match=r"^n_inducing=20, but"):
        model.partial_fit(X, y)


@pytest.mark.slow
def test_the_model_that_was_chosen_is_guarded_too():
    model = daskgp.AutoGP(time_budget=20, candidates=["lma"], progress=False).fit(*cases.rows())
    wanted = model.predict(T)
    with pytest.raises(SettingError, match="task='gaps', but the model was fitted with"):
        model.set_params(task="gaps").predict(T)
    model.set_params(task="interpolate").best_.set_params(markov_order=0)
    with pytest.raises(SettingError, match=r"^markov_order=0, but"):
        model.sample_paths(2)
    model.best_.set_params(markov_order=None)
    np.testing.assert_array_equal(model.predict(T), wanted)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (T, T.copy(), True),
        (T, T.tolist(), True),
        (T, T + 1, False),
        (T, "greedy", False),
        (["x0", "x1"], ("x0", "x1"), True),
        (["x0"], ["x1"], False),
        ({"a": [1, 2]}, {"a": (1.0, 2.0)}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, None, False),
        (np.int64(3), 3, True),
        (3, None, False),
        (kernels.RBF(2.0), kernels.RBF(2.0), True),
        (kernels.RBF(2.0), kernels.RBF(3.0), False),
        (kernels.RBF(2.0), "rbf", False),
    ],
)
def test_values_that_mean_the_same(one, two, same):
    assert settings_of_fit._same(one, two) is same
    assert settings_of_fit._same(two, one) is same


def test_lists_that_are_no_array_are_compared():
    nested = []
    for _ in range(100):
        nested = [nested]
    for value in ([[1.0], [2.0, 3.0]], nested):
        form = SimpleNamespace(get_params=lambda deep, value=value: {"given": value})
        settings_of_fit.check(form, settings_of_fit.of(form), ())
        with pytest.raises(SettingError, match="but the model was fitted with given="):
            settings_of_fit.check(form, {"given": [[1.0], [2.0, 4.0]]}, ())
