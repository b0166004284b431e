"""Every setting of every estimator changes something or is refused by name, in one short line."""

import inspect
import logging

import dask.array as da
import numpy as np
import pytest
from logs import warnings_in
from sklearn.base import clone

import daskgp
from daskgp import kernels
from daskgp.checks import shown
from daskgp.errors import InputError, SettingError
from daskgp.estimators import ESTIMATORS, requirements
from daskgp.estimators.settings import choices
from tests.contract import cases

rng = np.random.default_rng(0)
X = rng.uniform(0, 1, (60, 2))
Y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(60)
T = rng.uniform(-0.1, 1.1, (15, 2))
GIVEN, ACTIONS = X[3:9], rng.standard_normal((60, 5))
BOX = [[-0.5, 1.5], [-0.5, 1.5]]

SMALL = {
    "n_inducing": 8,
    "n_support": 8,
    "n_actions": 5,
    "n_spectral": 8,
    "n_experts": 3,
    "n_covariance": 6,
    "n_mean": 20,
    "n_added": 7,
    "level": 3,
    "markov_order": 1,
    "max_iter": 3,
}
OWN = {
    name: {"block_rows": 20} for name in ("lma", "pic", "vecchia", "sgpr", "ssgp", "opticom")
} | {"exact": {}}
FAR = {"kernel": kernels.RBF((6.0, 6.0))}
"""A start from which no optimizer arrives soon."""
LONGER = {"tol": {"max_iter": 24}}
"""What else makes a setting count: Adam takes 20 steps whatever the tolerance."""
OWN = {name: {**small, **FAR} for name, small in OWN.items()}
OWN |= {name: {"batch_rows": 30} for name in cases.STEPPED} | {"cggp": {"max_iter": 30}}
OWN |= {"experts": FAR}
"""What makes each estimator small."""

OF_KIND = {
    **dict.fromkeys(("bernoulli", "bernoulli-logit", "binomial"), (Y.mean() < Y).astype(float)),
    **dict.fromkeys(("poisson", "negative-binomial"), np.floor(3 * np.abs(Y))),
    **dict.fromkeys(("gamma", "lognormal"), np.exp(Y)),
    "beta": 1.0 / (1.0 + np.exp(-Y)),
    "ordinal": np.digitize(Y, np.quantile(Y, [0.3, 0.7])).astype(float),
}
"""Targets of likelihoods that do not take any number."""
OTHER = {
    "kernel": "rbf(0.4)",
    "noise_variance": 0.3,
    "mean": "ols",
    "standardize": False,
    "optimizer": "adam",
    "learning_rate": 0.011,
    "mean_learning_rate": 0.03,
    "max_iter": 1,
    "tol": 1e3,
    "train_blocks": 2,
    "n_inducing": 7,
    "inducing": "random",
    "train_inducing": True,
    "n_support": 7,
    "support": "random",
    "train_support": True,
    "markov_order": 2,
    "neighbours": "order",
    "predict_order": 1,
    "predict_rows": 5,
    "prediction": "paper",
    "n_neighbours": 4,
    "predict_neighbours": 6,
    "training_rows": 50,
    "train_with": "vecchia",
    "order": "pca",
    "expert": "exact",
    "n_experts": 4,
    "partition": "block",
    "aggregation": "rbcm",
    "weights": "paper",
    "variance": "paper",
    "central": 0.5,
    "shrinkage": 0.2,
    "ridge": 0.1,
    "noise_in_experts": True,
    "training": "fedavg",
    "local_steps": 2,
    "sampling_rate": 0.5,
    "rho": 0.9,
    "mu": 0.9,
    "lipschitz": 9.0,
    "level": 2,
    "bounds": BOX,
    "n_spectral": 7,
    "train_spectral": True,
    "n_actions": 4,
    "actions": "cg",
    "loss": "projected",
    "batch_rows": 25,
    "action_tol": 0.9,
    "refreshes": 1,
    "solver_tol": 0.95,
    "n_mean": 15,
    "n_covariance": 5,
    "likelihood": "student-t",
    "basis": "generalized",
    "parametrization": "direct",
    "share": False,
    "n_added": 5,
    "natural": 0.3,
    "precondition": "jacobi",
    "n_columns": 4,
    "train_points": False,
    "train_mean_points": True,
    "hyperparameters": "bound",
    "n_subset": 20,
    "average": False,
    "validation": 0.2,
    "patience": 1,
    "check_every": 1,
    "dtype": "float32",
    "fixed": {"noise_variance": 0.5},
    "limits": {"noise_variance": (0.3, 0.6)},
    "prior": {"noise_variance": "lognormal(0.5, 0.1)"},
}
"""Another value of each setting than any default."""
BY_ESTIMATOR = {
    ("cagp", "support"): 3,
    ("cagp", "max_iter"): 8,  # of three steps of Adam the first can be the best
    ("decoupled", "optimizer"): None,
    ("svgp", "optimizer"): None,
    ("svgp", "hyperparameters"): "subset",
}
ELSEWHERE = {
    "block_rows": "how rows are read",
    "device": "where tasks compute",
    "store": "where rows are kept",
    "progress": "bars",
    "geographic": "tests/contract/test_geographic.py",
    "fill_values": "tests/contract/test_fill_values.py",
    "footprint": "tests/estimators/test_footprints.py",
    "unseen": "tests/estimators/test_levels.py",
    "target_transform": "tests/contract/test_transform.py",
    "calibrate": "tests/estimators/test_calibration.py",
    "gradients": "where gradients are computed",
    "max_points": "a limit that refuses",
    "random_state": "draws, if there are any to make",
    "targets": "tests/fit/test_joint.py",
    "varying": "tests/estimators/test_varying.py",
    "varying_over": "tests/estimators/test_varying.py",
    "barriers": "tests/estimators/test_barriers.py",
}
"""Settings whose effect is documented to be other than on results."""
OTHERWISE = {"device", "unseen", "dtype", "progress", "gradients", "target_transform", "calibrate"}
NOT_REACHED = {
    ("sgpr", "max_iter"): "few steps suffice where inducing inputs are given",
    ("cagp", "tol"): "Adam stops after 40 steps at the earliest",
    ("experts", "tol"): "rounds go on for three at least",
    ("decoupled", "hyperparameters"): "'bound' is what 'auto' is for other likelihoods",
}

EXACT = {"expert": "exact"}
CONTEXTS = {
    "sgpr": [{"inducing": GIVEN}],
    "lma": [
        {"support": GIVEN},
        {"markov_order": 0},
        {"neighbours": "order", "prediction": "paper"},
    ],
    "pic": [{"support": GIVEN}],
    "vecchia": [{"support": GIVEN}, {"n_support": 0}],
    "experts": [
        {"weights": "paper"},
        {"variance": "paper"},
        {"inducing": GIVEN},
        {**EXACT, "weights": "paper"},
        {**EXACT, "aggregation": "npae"},
        {**EXACT, "central": 0.5},
    ],
    "opticom": [{"weights": "combination"}, {"variance": "paper"}],
    "cagp": [
        *({"actions": actions} for actions in ("cg", "random", "eigen", ACTIONS)),
        {"actions": "cg", "optimizer": None},
        {"support": 4},
        {"support": 4, "optimizer": "adam"},
        {"support": 4, "optimizer": "adam", "batch_rows": 20},
    ],
    "decoupled": [
        {"inducing": GIVEN},
        {"inducing": "stream"},
        {"natural": None},
        {"n_mean": 6},
        {"parametrization": "direct", "n_mean": 6},
        {"validation": 0.2, "check_every": 2, "max_iter": 30},
        {"max_iter": 210},
    ],
    "svgp": [
        {"inducing": GIVEN},
        {"inducing": "stream"},
        {"natural": None},
        {"max_iter": 210},
        {"optimizer": None, "train_points": False},
    ],
}
"""What settings are tried beside, beyond all their choices."""
every = pytest.mark.parametrize("name", ESTIMATORS)


def contexts(name):
    usual = requirements.defaults(ESTIMATORS[name])
    yield {}
    given = choices(ESTIMATORS[name])
    for setting in sorted(given.keys() - OTHERWISE):
        for value in given[setting]:
            if value != usual[setting]:
                yield {setting: value}
    yield from CONTEXTS.get(name, ())


def beside(name, context):
    """Settings that are tried beside a context: likelihoods have those in turn that know none.

    Which likelihood a setting meets differs from estimator to estimator.
    """
    kind = ESTIMATORS[name]
    settings = sorted(set(requirements.defaults(kind)) - set(context) - set(ELSEWHERE))
    if "likelihood" not in context:
        return settings
    likelihoods = choices(kind)["likelihood"]
    turn = [*likelihoods].index(context["likelihood"]) + [*ESTIMATORS].index(name)
    return [
        setting
        for i, setting in enumerate(settings, turn)
        if i % len(likelihoods) == 0
        or any(needs.setting == "likelihood" for needs in kind.requirements.get(setting, ()))
    ]


def begun(name, context, setting=None):
    """Settings that make an estimator small, those left out that a context makes idle."""
    kind = ESTIMATORS[name]
    small = {k: v for k, v in SMALL.items() if k in requirements.defaults(kind)} | OWN.get(name, {})
    settings = {**small, **LONGER.get(setting, {}), **context}
    idle = requirements.idle(kind(**settings))
    return {k: v for k, v in settings.items() if k in context or k not in idle}


def outcome(name, settings):
    """Numbers that a fit with some settings gives."""
    y = OF_KIND.get(settings.get("likelihood"), Y)
    model = ESTIMATORS[name](**settings, device="cpu", progress=False).fit(X, y)
    try:
        found = model.predict(T, return_std=name not in cases.NO_SPREAD)
    except ArithmeticError:  # the paper's variance can be negative
        found = model.predict(T)
    hyper = [model.objective_ or 0.0, model.noise_variance_, *model.kernel_.log_parameters]
    return np.concatenate([np.ravel(found), hyper])


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400, text
    return text


LONG = set(ESTIMATORS) - {"exact", "cggp"}
"""Estimators with so many settings that all of them beside all choices take a minute."""


def test_a_number_of_blocks_that_leaves_none_out_is_warned_of(caplog):
    X = np.linspace(0, 1, 60)[:, None]
    for blocks, said in ((3, 0), (4, 1), (400, 1)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "daskgp"):
            settings = {"n_inducing": 5, "block_rows": 15, "max_iter": 1, "progress": False}
            daskgp.SGPR("rbf(1.0)", train_blocks=blocks, **settings).fit(X, X[:, 0])
        line = f"train_blocks={blocks} has no effect on rows in 4 blocks: choose fewer, or a "
        assert sum(line in warning for warning in warnings_in(caplog)) == said


def test_a_store_that_is_not_needed_is_said_in_one_line(caplog, tmp_path):
    X = np.linspace(0, 1, 60)[:, None]
    lazy = da.from_array(X, chunks=(30, 1))
    for inputs, said in ((X, 1), (lazy, 0)):
        caplog.clear()
        with caplog.at_level(logging.INFO, "daskgp"):
            model = daskgp.SGPR(n_inducing=5, optimizer=None, store=str(tmp_path), progress=False)
            model.fit(inputs, inputs[:, 0])
        assert caplog.text.count(f"store={tmp_path} is not used: tasks read the rows where") == said


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in ESTIMATORS]
)
@pytest.mark.filterwarnings("ignore:some rows lie far from all training rows")
def test_every_setting_changes_something_or_is_refused(name):
    kind, refused, tried = ESTIMATORS[name], set(), set()
    usual = outcome(name, begun(name, {}))
    for context in contexts(name):
        try:
            before = outcome(name, begun(name, context))
        except SettingError as error:  # a choice that needs another one to be made as well
            if not str(error).startswith(tuple(f"{setting}=" for setting in context)):
                raise
            continue
        if context and np.array_equal(before, usual, equal_nan=True):
            continue  # what "auto" comes to
        for setting in beside(name, context):
            value = BY_ESTIMATOR.get((name, setting), OTHER[setting])
            try:
                after = outcome(name, begun(name, {**context, setting: value}, setting))
            except (SettingError, InputError) as error:
                if str(error).startswith(f"{setting}=") and "has no effect with" in str(error):
                    refused.add(setting)
                continue
            long = setting in LONGER
            without = outcome(name, begun(name, context, setting)) if long else before
            if not np.array_equal(without, after, equal_nan=True):
                tried.add(setting)
                continue
            assert (name, setting) in NOT_REACHED, f"{setting} does nothing beside {context}"
    assert refused == set(kind.requirements) & set(requirements.defaults(kind)) - set(ELSEWHERE)
    assert tried | refused == set(requirements.defaults(kind)) - set(ELSEWHERE)


@every
def test_settings_without_effect_are_of_the_estimator_and_say_what_decides(name):
    kind = ESTIMATORS[name]
    for setting, needs in kind.requirements.items():
        assert needs, setting
        for one in needs:
            assert hasattr(kind(), one.setting)
            assert one.remedy.startswith(("choose ", "set "))


@every
def test_defaults_are_never_refused(name):
    for setting, values in choices(ESTIMATORS[name]).items():
        for value in values:
            assert set(requirements.idle(ESTIMATORS[name](**{setting: value}))) <= {setting}


def test_the_line_names_the_setting_what_decides_and_the_remedy():
    with pytest.raises(SettingError) as error:
        daskgp.SGPR(learning_rate=0.1).fit(X, Y)
    assert one_line(error) == (
        "learning_rate=0.1 has no effect with optimizer='auto': choose optimizer='adam', or "
        "leave learning_rate out"
    )
    with pytest.raises(SettingError) as error:
        daskgp.SGPR(inducing=GIVEN, n_inducing=6).plan(X, Y)
    assert one_line(error) == (
        "n_inducing=6 has no effect with inducing=<ndarray of shape (6, 2)>: choose "
        "inducing='greedy', 'kmeans' or 'random', or leave n_inducing out"
    )


@pytest.mark.parametrize("name", ["sgpr", "experts", "decoupled", "cagp"])
def test_short_runs_leave_out_what_they_make_idle(name):
    model = ESTIMATORS[name](**begun(name, {}), device="cpu", progress=False)
    assert model.plan(X, Y, measure=True).seconds > 0
    assert clone(model).set_params(optimizer=None, max_iter=2).get_params()["max_iter"] == 2


@pytest.mark.parametrize("name", sorted(cases.STEPPED))
def test_a_stream_takes_settings_that_matter_to_it_alone(name):
    model = ESTIMATORS[name](**{**begun(name, {}), "n_added": 3}, average=False)
    model.partial_fit(X, Y)
    assert model.n_rows_ == len(X)


# those of actions and on mini-batches divide their steps as they go on
@pytest.mark.parametrize(
    "name",
    [
        name
        for name in ESTIMATORS
        if name not in cases.STEPPED | cases.UNTRAINED and not cases.has(name, "actions")
    ],
)
def test_the_rate_of_adam_is_that_of_the_setting(name):
    kernel = kernels.RBF(0.5)
    settings = begun(name, {"optimizer": "adam"}) | {"max_iter": 2, "kernel": kernel}
    for rate in (0.05, 0.01):
        model = ESTIMATORS[name](**settings, learning_rate=rate).fit(X, Y)
        entries = [entry["lengthscale"] for entry in model.history_]
        step = abs(np.log(entries[1] / entries[0]))  # Adam's first step is its rate
        assert step == pytest.approx(rate, rel=1e-3)


def test_the_mean_learns_ten_times_as_fast_unless_told():
    settings = begun("decoupled", {})
    usual = outcome("decoupled", settings)
    np.testing.assert_array_equal(
        usual, outcome("decoupled", settings | {"mean_learning_rate": 0.2})
    )
    slow = settings | {"learning_rate": 0.002, "mean_learning_rate": 0.02}
    assert not np.array_equal(outcome("decoupled", slow), usual)
    with pytest.raises(SettingError, match="mean_learning_rate=0: it must be greater than 0"):
        outcome("decoupled", settings | {"mean_learning_rate": 0})


# -- wrong values ----------------------------------------------------------------------------

WRONG = (object(), float("nan"), 1j, b"?")
"""What no setting may be."""
NO_COUNT = (-1, 1.5, True, "30 ")
"""What no number of things may be."""
COUNTS = {"max_iter", "block_rows", "train_blocks", "training_rows", "batch_rows", "random_state"}


@every
def test_a_wrong_value_of_any_setting_is_named_before_work_starts(name):
    kind, unnamed = ESTIMATORS[name], []
    for setting in inspect.signature(kind).parameters:
        counts = setting in COUNTS or setting.startswith(("n_", "predict_")) or "_order" in setting
        for value in (*WRONG, *NO_COUNT * counts):
            with pytest.raises(InputError) as error:
                kind(**{setting: value}).plan(X[:20], Y[:20])
            if setting not in one_line(error).partition(":")[0].partition("(")[0]:
                unnamed.append(str(error.value))
    assert not unnamed


WRONG_OF_AUTO = {
    "time_budget": ("10", 0),
    "memory": (True, "lots", -1, float("inf")),
    "candidates": (3, [], ["sgrp"]),
    "kernel": ("mattern52", 3),
    "task": ("gap",),
    "metric": ("nlp",),
    "random_state": (-1, 1.5),
    "fill_values": ("-9999", b"?"),
}


@pytest.mark.parametrize("setting", WRONG_OF_AUTO)
def test_wrong_settings_of_auto_are_named(setting):
    for value in WRONG_OF_AUTO[setting]:
        with pytest.raises(SettingError, match=setting):
            daskgp.AutoGP(**{setting: value}).fit(X, Y)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: daskgp.VecchiaGP(n_neighbors=3), "of VecchiaGP: did you mean 'n_neighbours'?"),
        (lambda: daskgp.AutoGP(timebudget=3), "of AutoGP: did you mean 'time_budget'? Known are"),
        (lambda: daskgp.SGPR().set_params(n_inducin=3), "of SGPR: did you mean 'n_inducing'?"),
        (lambda: daskgp.SGPR(kernel="Mattern52 ").plan(X, Y), "did you mean 'matern52'? Choose"),
        (lambda: daskgp.SGPR(fixed={1: 2.0}).plan(X, Y), "fixed has 1, which is not the name of a"),
        (lambda: daskgp.SGPR(tol=10**30).fit(X, Y, callback=3), "callback=3: give a function"),
    ],
)
def test_misspelled_settings_are_told_what_is_meant(make, says):
    with pytest.raises((TypeError, SettingError)) as error:
        make()
    assert says in str(error.value)
    assert "\n" not in str(error.value)


# -- what messages show ----------------------------------------------------------------------

MANY = {
    "array": np.arange(10_000.0),
    "list": list(range(10_000)),
    "nested": [[float(i), [i] * 9] for i in range(10_000)],
    "text": "x" * 10_000,
    "table": np.zeros((100, 100)),
}


@every
@pytest.mark.parametrize("what", MANY)
def test_ten_thousand_numbers_are_never_printed_whole(name, what):
    kind = ESTIMATORS[name]
    for setting in inspect.signature(kind).parameters:
        if setting in ("store", "barriers") and what == "text":
            continue  # a path may be long
        model = kind(**{setting: MANY[what]})
        for act in (model.plan, model.fit):
            with pytest.raises(InputError) as error:
                act(X[:20], Y[:20])
            one_line(error)


@pytest.mark.parametrize("what", MANY)
@pytest.mark.parametrize("kind", kernels.REGISTRY.values())
def test_kernels_never_print_ten_thousand_numbers(kind, what):
    for setting in inspect.signature(kind).parameters:
        if setting == "ard":
            continue
        with pytest.raises(InputError) as error:
            daskgp.ExactGP(kind(**{setting: MANY[what]})).fit(X[:20], Y[:20])
        one_line(error)


def test_values_are_shown_on_one_short_line():
    assert shown("auto") == "'auto'"
    assert shown(0.1) == "0.1"
    assert shown(None) == "None"
    assert shown(np.zeros((3, 4))) == "<ndarray of shape (3, 4)>"
    assert shown([np.zeros(9)] * 2) == "[<ndarray of shape (9,)>, <ndarray of shape (9,)>]"
    for value in MANY.values():
        assert len(shown(value)) <= 100
        assert "\n" not in shown(value)
    assert len(shown(kernels.RBF(tuple(range(1, 10_000))))) <= 100
