"""Promises of every estimator, whatever its method."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from sklearn.base import clone

from daskgp import estimators, likelihoods, models
from daskgp.data.blocks.around import Band
from daskgp.errors import DaskgpError, InputError, SettingError
from daskgp.estimators import requirements
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.settings import takes_sites
from daskgp.fit import means, run, work
from daskgp.fit.arrange import AsStored, Blocks
from daskgp.models.values import Want
from daskgp.posterior.neighbour_rows import Nearby
from daskgp.testing.check import Check, Register, promised
from daskgp.testing.computing import agree, no_compute

CHECKS: list[Check] = []
N = 150
FEW, MANY = 25, 250
"""Rows of a block, of which places near its border have neighbours in others, and such places."""
NEW = 100
"""The row from which on rows are new to a fit of the first ones."""

promise: Callable[..., Register] = partial(promised, CHECKS)

# -- rows, and what a fit gives ------------------------------------------------------------------


def rows(estimator: GaussianProcess, n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (n, 2) and targets (n,) that the estimator's likelihood and transform take."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, (n, 2))
    f = np.sin(2 * X[:, 0]) * np.cos(X[:, 1])
    recipe = estimator.recipe()
    if recipe.codes is not None:
        return X, np.asarray(recipe.codes.sample(f, rng), np.float64)
    y = f + 0.1 * rng.standard_normal(n)
    return X, y if recipe.target_transform is None else np.exp(y)


def places() -> np.ndarray:
    """Return places (12, 2) to predict at."""
    return np.random.default_rng(1).uniform(0, 3, (12, 2))


def fixed(estimator: GaussianProcess, **settings: Any) -> Any:
    """Return an unfitted copy that keeps its hyper-parameters, with other settings."""
    kind, usual = type(estimator), requirements.defaults(type(estimator))
    chosen = estimator.get_params(deep=False) | settings | {"progress": False}
    if "optimizer" in usual:
        chosen["optimizer"] = None
    idle = requirements.idle(kind(**chosen))
    return kind(**chosen | {name: usual[name] for name in idle})


def moments(model: GaussianProcess, X: Any) -> tuple[Any, ...]:
    """Return the mean and, where there is one, the standard deviation at places."""
    method = model.solved_.method
    if method.why_no_variance():
        return (model.predict(X),)
    mean, std = model.predict(X, return_std=True, include_noise=method.noisy)
    return mean, std


def bits(model: GaussianProcess, X: np.ndarray) -> list[bytes]:
    """Return what a fit learned and predicts, as bytes."""
    learned = [np.asarray(part) for part in model.solved_.state]
    learned += [model.solved_.users_kernel.log_parameters, np.asarray(model.noise_variance_)]
    return [part.tobytes() for part in [*learned, *map(np.asarray, moments(model, X))]]


def _equal(found: Iterable[Any], wanted: Iterable[Any], what: str = "", **close: float) -> None:
    close = {"rtol": 1e-8, "atol": 1e-8} | close
    for name, a, b in zip(("mean", "standard deviation"), found, wanted, strict=False):
        agree(a, b, f"{what}: {name}", **close)


def _refused(error: type[DaskgpError], act: Callable[[], Any]) -> str:
    """Return the line with which something is refused, by an error of a kind."""
    try:
        act()
    except error as refusal:
        line = str(refusal)
        assert "\n" not in line, f"the error has several lines: {line}"
        return line
    raise AssertionError(f"nothing is refused: a {error.__name__} is needed")


# -- what they declare ---------------------------------------------------------------------------


def _method(estimator: GaussianProcess) -> Any:
    return estimator.recipe().method


def _fact(holds: Callable[[GaussianProcess], bool], said: str) -> Callable[[Any], str | None]:
    """Return a function that says why not, where something does not hold."""
    return lambda estimator: None if holds(estimator) else said


def _has(estimator: GaussianProcess, *settings: str) -> bool:
    return set(settings) <= set(requirements.defaults(type(estimator)))


def _is_stepped(estimator: GaussianProcess) -> bool:
    return hasattr(estimator, "partial_fit")


def _adds_rows(estimator: GaussianProcess) -> bool:
    """Return True if rows are added to sums, whichever they are."""
    recipe = estimator.recipe()
    if recipe.method.takes_neighbours or means.is_integrated(recipe.mean):
        return False
    return (recipe.method.why_no_forget() or recipe.arrangement.why_no_change(True)) is None


def _depends_on_sums(estimator: GaussianProcess) -> bool:
    """Return True if a row given twice cannot change more than sums over rows."""
    recipe = estimator.recipe()
    chosen = recipe.inputs.count > 0 or recipe.target_transform is not None
    return isinstance(recipe.arrangement, AsStored) and not (chosen or recipe.method.keeps_rows)


def _with_idle(estimator: GaussianProcess) -> GaussianProcess:
    """Return a copy whose hyper-parameters are kept, and which is to be trained for longer."""
    usual = requirements.defaults(type(estimator))
    model: GaussianProcess = fixed(estimator)
    if "max_iter" in usual:
        model.set_params(max_iter=usual["max_iter"] + 7)
    return model


def _registered(estimator: GaussianProcess) -> bool:
    known = estimators.ESTIMATORS.get(type(estimator).model_name)
    return known is type(estimator) and _method(estimator).name in models.REGISTRY


_measures = _fact(lambda e: e.recipe().codes is None, "its targets are codes or counts")
_spread = _fact(lambda e: _method(e).why_no_variance() is None, "it has no variance")
_joint = _fact(
    lambda e: (
        _method(e).why_no_variance() is None
        and _method(e).why_no_joint() is None
        and e.recipe().target_transform is None
    ),
    "it has no joint covariance",
)
_noise = _fact(
    lambda e: _method(e).takes_noise and _method(e).likelihood_name == "gaussian",
    "it does not take errors or weights of rows",
)
_repeats = _fact(
    lambda e: _noise(e) is None and _depends_on_sums(e), "it is made of more than sums over rows"
)
_deaf = _fact(lambda e: not _method(e).takes_noise, "it takes errors and weights of rows")
_sums = _fact(_adds_rows, "rows cannot be added to its fit and taken out of it one by one")
_reads = _fact(
    lambda e: (
        _method(e).keeps_rows
        and isinstance(e.recipe().arrangement, Blocks)
        and not _method(e).near_for_all
    ),
    "it reads no rows near a place back, or these stand for all rows: near_for_all",
)
_constant = _fact(
    lambda e: (
        e.recipe().codes is None
        and e.recipe().mean == "constant"
        and e.recipe().target_transform is None
    ),
    "its targets have no constant mean",
)
_other_rows = _fact(
    lambda e: _method(e).why_no_update() is not None, "rows can be added to its fit"
)
_sites = _fact(
    lambda e: e.likelihood == "gaussian" and takes_sites(_method(e)),
    "it takes no sites of another likelihood",
)
_stored = _fact(_registered, "it is not in daskgp.models.REGISTRY and daskgp.estimators.ESTIMATORS")
_dtypes = _fact(lambda e: _has(e, "dtype"), "it has no setting dtype")
_trained = _fact(lambda e: bool(requirements.idle(_with_idle(e))), "max_iter always has an effect")

# -- settings ------------------------------------------------------------------------------------


@promise("its rows have the neighbours, and are kept, as its method declares")
def _arrangement(estimator: GaussianProcess) -> None:
    recipe = estimator.recipe()
    work.check_arrangement(recipe.method, recipe.arrangement, recipe.name)


@promise("settings stay as they were given, and a clone has them and nothing learned")
def _settings(estimator: GaussianProcess) -> None:
    model = clone(estimator)
    settings, text = model.get_params(deep=False), repr(model)
    model.fit(*rows(model))
    assert (model.get_params(deep=False), repr(model)) == (settings, text), "fit changed a setting"
    fresh = clone(model)
    learned = [name for name in vars(fresh) if name.endswith("_")]
    assert not learned, f"a clone of a fitted estimator has {learned}"
    assert repr(fresh) == text, "a clone has other settings"


@promise("settings that have no effect are refused by name, before any work", _trained)
def _idle_settings(estimator: GaussianProcess) -> None:
    model = _with_idle(estimator)
    name = next(iter(requirements.idle(model)))
    with no_compute():
        line = _refused(SettingError, lambda: model.fit(*rows(model)))
    assert name in line and "leave" in line, f"{line!r} does not say what to do about {name}"


# -- the fit -------------------------------------------------------------------------------------


@promise("a fit again, and one of a clone that was fitted to other rows, give the same bits")
def _same_bits(estimator: GaussianProcess) -> None:
    model = clone(estimator)
    wanted = bits(model.fit(*rows(model)), places())
    fresh = clone(model)
    fresh.fit(*rows(model, NEW, seed=9))  # which the next fit forgets
    assert bits(fresh.fit(*rows(model)), places()) == wanted, "the same fit gives other numbers"


@promise("rows in chunks of any size give what rows in memory give")
def _chunks(estimator: GaussianProcess) -> None:
    (X, y), T = rows(estimator), places()
    model = fixed(estimator).fit(X, y)
    given = (da.from_array(a, chunks=(37, *a.shape[1:])) for a in (X, y))
    other = fixed(estimator).fit(*given)
    assert other.n_rows_ == len(y), f"{other.n_rows_} of {len(y)} rows in chunks are used"
    if model.objective_ is not None:
        np.testing.assert_allclose(other.objective_, model.objective_, rtol=1e-9)
    _equal(moments(other, T), moments(model, T), "in chunks")


@promise("a plan and a lazy prediction compute nothing, and the prediction is the one in memory")
def _plan(estimator: GaussianProcess) -> None:
    model, (X, y), T = clone(estimator), rows(estimator), places()
    given = da.from_array(X, chunks=(40, 2)), da.from_array(y, chunks=40)
    with no_compute():
        plan = model.plan(*given)
    assert plan.rows == len(y), f"the plan is of {plan.rows} rows"
    assert min(plan.bytes_per_task, plan.operations) > 0, f"the plan has no work: {plan}"
    wanted = moments(model.fit(X, y), T)
    for chunks in ((12, 2), (5, 1), (1, 2)):
        at = da.from_array(T, chunks=chunks)
        with no_compute():
            lazy = moments(model, at)
        assert lazy[0].chunks == (at.chunks[0],), "a prediction has other chunks than its places"
        _equal(dask.compute(*lazy), wanted, f"places in chunks {chunks}")
    assert model.predict(np.empty((0, 2))).shape == (0,), "no places have no predictions"


@promise("rows of the caller are left as they are, whatever their memory, and may change later")
def _rows_of_the_caller(estimator: GaussianProcess) -> None:
    (X, y), T = rows(estimator), places()
    X.flags.writeable = y.flags.writeable = False
    model = fixed(estimator).fit(X, y)
    wanted = moments(model, T)
    spread = np.full((2 * len(X), 4), 7.0)
    spread[::2, ::2] = X
    for alike in ((spread[::2, ::2], np.repeat(y, 2)[::2]), (np.asfortranarray(X), y)):
        _equal(moments(fixed(estimator).fit(*alike), T), wanted, "rows in other memory")
    X.flags.writeable = y.flags.writeable = True
    X[...] = y[...] = 0.0
    for a, b in zip(moments(model, T), wanted, strict=True):
        np.testing.assert_array_equal(a, b, err_msg="after a change of the rows that were given")


@promise("rows with a missing value are left out, and places with one have no prediction")
def _missing_values(estimator: GaussianProcess) -> None:
    (X, y), gap, T = rows(estimator), np.zeros(N, bool), places()
    gap[[3, 70, 149]] = True
    holes, targets = X.copy(), y.copy()
    holes[3, 1], holes[70, 0], targets[149] = np.nan, np.nan, np.nan
    model = fixed(estimator).fit(holes, targets)
    assert model.n_rows_ == (~gap).sum(), f"{model.n_rows_} rows are used, of {(~gap).sum()}"
    masked = fixed(estimator).fit(np.ma.masked_invalid(holes), np.ma.masked_invalid(targets))
    assert bits(masked, T) == bits(model, T), "masked rows are not those that are missing"
    if isinstance(estimator.recipe().arrangement, AsStored):  # the units of others have more rows
        whole = fixed(estimator).fit(X[~gap], y[~gap])
        close = {"rtol": 1e-6, "atol": 1e-8}
        _equal(moments(model, T), moments(whole, T), "without the rows", **close)
    T[2, 1], T[7, 0] = np.nan, np.inf
    for part in moments(model, T):
        np.testing.assert_array_equal(np.isnan(part), ~np.isfinite(T).all(axis=1))


@promise("a constant target is predicted", _constant)
def _constant_target(estimator: GaussianProcess) -> None:
    X, T = rows(estimator)[0], places()
    found = moments(fixed(estimator).fit(X, np.full(N, 3.0)), T)
    np.testing.assert_allclose(found[0], 3.0)
    assert np.isfinite(found).all(), "a standard deviation is not finite"


@promise("two targets are two fits that share their kernel", _measures)
def _two_targets(estimator: GaussianProcess) -> None:
    (X, y), T = rows(estimator), places()
    both = fixed(estimator, mean="zero", standardize=False).fit(X, np.stack([y, 2 * y], axis=1))
    found = moments(both, T)
    assert {part.shape for part in found} == {(len(T), 2)}, "predictions are not (n, 2)"
    learned_together = _is_stepped(estimator) or _has(estimator, "actions")
    if not learned_together and estimator.recipe().target_transform is None:
        np.testing.assert_allclose(found[0][:, 1], 2 * found[0][:, 0], rtol=1e-5, atol=1e-6)


@promise("float32 rows and dtype='float32' give about what float64 gives", _dtypes)
def _float32(estimator: GaussianProcess) -> None:
    (X, y), T = rows(estimator), places()
    model = fixed(estimator, dtype="float64").fit(X, y)
    wanted = moments(model, T)
    single = fixed(estimator, dtype="float32").fit(X, y)
    _equal(moments(single, T), wanted, "dtype='float32'", rtol=2e-2, atol=2e-2)
    narrow = fixed(estimator, dtype="float64").fit(X.astype(np.float32), y.astype(np.float32))
    _equal(moments(narrow, T), wanted, "float32 rows", rtol=1e-3, atol=1e-3)


@promise("rows and columns that do not fit are refused in one line, before any work")
def _bad_rows(estimator: GaussianProcess) -> None:
    (X, y), model = rows(estimator), clone(estimator)
    with no_compute():
        for given in ((X, y[:-1]), (X[:, :, None], y), (X[:0], y[:0]), (X, y.astype(str))):
            _refused(InputError, partial(model.fit, *given))
    model = fixed(estimator).fit(X, y)
    with no_compute():
        line = _refused(InputError, lambda: model.predict(np.zeros((4, 3))))
    assert "3 features" in line, f"{line!r} does not say how many columns there are"


# -- predictions ---------------------------------------------------------------------------------


@promise("predictions from the rows that are read back are those from all rows", _reads)
def _rows_read(estimator: GaussianProcess) -> None:
    recipe, (X, y) = fixed(estimator).recipe(), rows(estimator)
    method, T = recipe.method, np.random.default_rng(1).uniform(0, 3, (MANY, 2))
    arrangement = replace(recipe.arrangement, block_rows=FEW)
    posterior = run.fitted(replace(recipe, arrangement=arrangement), X, y).posterior
    assert isinstance(posterior.rows, Nearby), "its arrangement keeps no rows"
    near = replace(posterior.rows, around=Band(posterior.rows.layout.n_blocks))
    want: Want = "mean" if method.why_no_variance() else "variance"
    found, wanted = (
        replace(posterior, rows=kept).moments(T, want, include_noise=method.noisy)
        for kept in (posterior.rows, near)
    )
    close = np.asarray(np.isclose(found.mean, wanted.mean, rtol=1e-6, atol=1e-8))
    other = ~close.all(axis=1)
    assert not other.any(), (
        f"{other.sum()} of {len(T)} places are predicted otherwise from all rows: {recipe.name} "
        "reads too few of them, have Blocks(near='both', reach=8, predict_rows=...) read more; or "
        "its method says near_for_all = True"
    )
    if found.variance is not None:
        agree(found.variance, wanted.variance, "variance", rtol=1e-6, atol=1e-8)


@promise("a joint covariance has the variances, and samples have it", _joint)
def _covariance(estimator: GaussianProcess) -> None:
    model, T = fixed(estimator).fit(*rows(estimator)), places()
    measured = _method(estimator).likelihood_name == "gaussian"
    noises = (True, False) if measured else (False,)
    for noise in (True,) if _method(estimator).noisy else noises:
        mean, joint = model.predict(T, return_cov=True, include_noise=noise)
        alone = model.predict(T, return_std=True, include_noise=noise)
        if not isinstance(model.solved_.rows, Nearby):  # joint predictions take more of these rows
            _equal((mean, np.sqrt(np.diag(joint))), alone, "beside the joint covariance")
        np.testing.assert_array_equal(joint, joint.T)
        assert np.linalg.eigvalsh(joint).min() > -1e-9 * np.trace(joint), "a negative eigenvalue"
    draws = model.sample_y(T[:4], 4_000, random_state=1)
    assert draws.shape == (4, 4_000), f"draws have shape {draws.shape}, not (n, number)"
    agree(np.cov(draws), joint[:4, :4], "covariance of draws", atol=0.1 * joint.max())


@promise(
    "quantiles of new observations grow with their level, and are exceeded as that says", _spread
)
def _quantiles(estimator: GaussianProcess) -> None:
    model, T = fixed(estimator).fit(*rows(estimator)), places()
    if not all(layer.graded for layer in model.solved_.layers):
        return
    levels = (0.05, 0.5, 0.95)
    found = model.predict(T, quantiles=levels, include_noise=True)[1]
    assert (np.diff(found, axis=1) >= 0).all(), "a quantile is below that of a smaller level"
    above = model.predict_exceedance(T, found[0, 2], include_noise=True)[0]
    assert above < 0.05 + 1e-6, f"the quantile of 0.95 is exceeded with probability {above:.3f}"


@promise("a pickled model predicts the same, and so does its copy")
def _pickle(estimator: GaussianProcess) -> None:
    model, T = fixed(estimator).fit(*rows(estimator)), places()
    again = pickle.loads(pickle.dumps(model))  # noqa: S301 - what this process has written
    assert bits(again, T) == bits(model, T), "a pickled model predicts something else"
    assert again.n_rows_ == model.n_rows_, "a pickled model has other rows"


@promise(
    "a saved model has all of it: settings, hyper-parameters, and the bits of predictions", _stored
)
def _save_load(estimator: GaussianProcess) -> None:
    model, T = clone(estimator).fit(*rows(estimator)), places()
    wanted = bits(model, T)
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "model.zarr")
        model.save(url)
        loaded = estimators.load(url)
        assert type(loaded) is type(model), f"a {type(loaded).__name__} is loaded"
        assert loaded.get_params() == model.get_params(), "a loaded model has other settings"
        assert bits(loaded, T) == wanted, "a loaded model predicts something else"


@promise("counts and classes are fitted, kept, and predicted lazily as in memory", _sites)
def _likelihoods(estimator: GaussianProcess) -> None:
    X, T = rows(estimator)[0], places()
    f = 1.5 * np.sin(2 * X[:, 0])
    for name in ("poisson", "bernoulli"):
        likelihood = likelihoods.by_name(name)
        y = np.asarray(likelihood.sample(f, np.random.default_rng(2)), np.float64)
        model = fixed(estimator, likelihood=name, mean="constant").fit(X, y)
        wanted = model.predict(T, return_std=True, include_noise=True)
        f_mean, f_std = model.predict(T, return_std=True)
        response = likelihood.response(f_mean[:, None], f_std[:, None] ** 2)
        _equal(wanted, (response[0][:, 0], np.sqrt(response[1][:, 0])), "response to f")
        assert np.corrcoef(f_mean, np.sin(2 * T[:, 0]))[0, 1] > 0.5, "f is not that of the rows"
        with no_compute():
            lazy = model.predict(
                da.from_array(T, chunks=(5, 2)), return_std=True, include_noise=True
            )
        _equal(dask.compute(*lazy), wanted, "lazily")
        if _stored(estimator) is None:
            with tempfile.TemporaryDirectory() as folder:
                model.save(f"{folder}/model.zarr")
                loaded = estimators.load(f"{folder}/model.zarr")
                again = loaded.predict(T, return_std=True, include_noise=True)
            assert loaded.likelihood_ == model.likelihood_, "a loaded model has another likelihood"
            for a, b in zip(again, wanted, strict=True):
                np.testing.assert_array_equal(a, b, err_msg="of a loaded model")


# -- errors and weights of rows ------------------------------------------------------------------


@promise("a common weight divides the noise variance, a common error adds to it", _noise)
def _noise_of_rows(estimator: GaussianProcess) -> None:
    (X, y), T, close = rows(estimator), places(), {"rtol": 1e-7, "atol": 1e-8}
    if estimator.recipe().target_transform is not None:
        y_known = None  # errors are those of y, not of its transform
    else:
        y_known = np.full(N, 0.15 * (y.var() if estimator.recipe().standardize else 1.0))
    weighted = fixed(estimator, noise_variance=0.2).fit(X, y, sample_weight=np.full(N, 2.0))
    plain = fixed(estimator, noise_variance=0.1).fit(X, y)
    _equal(moments(weighted, T), moments(plain, T), "weights of 2", **close)
    if y_known is None or estimator.recipe().mean != "constant":
        return
    added = fixed(estimator, noise_variance=0.05).fit(X, y, y_variance=y_known)
    plain = fixed(estimator, noise_variance=0.2).fit(X, y)
    _equal(moments(added, T), moments(plain, T), "y_variance", **close)


@promise("rows of weight 0 are left out; negative weights and errors are refused", _noise)
def _weights(estimator: GaussianProcess) -> None:
    (X, y), T = rows(estimator), places()
    weights, missing = np.ones(N), y.copy()
    weights[[3, 90]], missing[[3, 90]] = 0.0, np.nan
    model = fixed(estimator).fit(X, y, sample_weight=weights)
    assert model.n_rows_ == N - 2, f"{model.n_rows_} rows are used, of {N - 2}"
    wanted = fixed(estimator).fit(X, missing)
    _equal(moments(model, T), moments(wanted, T), "rows of weight 0", atol=1e-9)
    weights[3] = -1.0
    for setting in ("sample_weight", "y_variance"):
        line = _refused(InputError, partial(model.fit, X, y, **{setting: weights}))
        assert setting in line, f"{line!r} does not name {setting}"


@promise("with given hyper-parameters, a row of weight 2 is the same row given twice", _repeats)
def _repeated_rows(estimator: GaussianProcess) -> None:
    (X, y), T = rows(estimator), places()
    weights = np.random.default_rng(3).integers(1, 3, N)
    model = fixed(estimator, mean="zero", standardize=False)
    weighted = clone(model).fit(X, y, sample_weight=weights)
    line = np.repeat(np.arange(N), weights)
    twice = clone(model).fit(X[line], y[line])
    _equal(moments(weighted, T), moments(twice, T), "rows of weight 2", rtol=1e-6, atol=1e-6)


@promise("errors and weights that it would ignore are refused, before any work", _deaf)
def _noise_refused(estimator: GaussianProcess) -> None:
    X, y = rows(estimator)
    for setting in ("sample_weight", "y_variance"):
        model = clone(estimator)
        with no_compute():
            line = _refused(SettingError, partial(model.fit, X, y, **{setting: np.ones(N)}))
        assert setting in line, f"{line!r} does not name {setting}"


# -- rows that come and go -----------------------------------------------------------------------


def _parts(estimator: GaussianProcess) -> Sequence[tuple[np.ndarray, np.ndarray]]:
    X, y = rows(estimator)
    return [(X[part], y[part]) for part in (slice(NEW), slice(NEW, 120), slice(120, None))]


@promise("forgetting undoes an update, and two updates are one of all their rows", _sums)
def _update(estimator: GaussianProcess) -> None:
    (old, first, second), T = _parts(estimator), places()
    close = {"rtol": 1e-7, "atol": 1e-8}
    model = fixed(estimator).fit(*old)
    wanted = moments(model, T)
    model.update(*first).update(*second)
    both = [np.concatenate(pair) for pair in zip(first, second, strict=True)]
    once = fixed(estimator).fit(*old).update(*both)
    assert model.n_rows_ == once.n_rows_ == N, f"{model.n_rows_} rows after updates, not {N}"
    _equal(moments(model, T), moments(once, T), "two updates", **close)
    change = np.abs(np.subtract(moments(model, T)[0], wanted[0])).max()
    assert change > 1e-6, "an update changes nothing"
    model.forget(*both)
    assert model.n_rows_ == NEW, f"{model.n_rows_} rows after forgetting, not {NEW}"
    _equal(moments(model, T), wanted, "forgotten again", **close)


@promise("update and forget are refused with a remedy, and leave the model as it was", _other_rows)
def _update_refused(estimator: GaussianProcess) -> None:
    (old, new, _), T = _parts(estimator), places()
    model = fixed(estimator).fit(*old)
    before = bits(model, T)
    for act in (model.update, model.forget):
        line = _refused(SettingError, partial(act, *new))
        assert ":" in line, f"{line!r} has no remedy"
    assert bits(model, T) == before, "a refused update changed the model"
