"""Reading fitted estimators from model stores: settings and arrays, no class paths."""

from __future__ import annotations

import dataclasses
import logging
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, get_args

import numpy as np

from daskgp import kernels, likelihoods, models
from daskgp.assess.leaderboard import Leaderboard
from daskgp.checks import choice, shown
from daskgp.data import grids
from daskgp.data.seen import Source
from daskgp.data.stores import groups
from daskgp.data.stores import models as stores
from daskgp.errors import DaskgpError, NumericalError, SettingError, StoreError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.cagp import CaGP
from daskgp.estimators.cggp import CGGP
from daskgp.estimators.classifier import GPClassifier
from daskgp.estimators.decoupled import DecoupledGP
from daskgp.estimators.exact import ExactGP
from daskgp.estimators.experts import ExpertsGP
from daskgp.estimators.hurdle import HurdleGP
from daskgp.estimators.lma import LMA, PIC
from daskgp.estimators.opticom import OptiComGP
from daskgp.estimators.saving import BARRIERS, REGRESSOR, SETTING
from daskgp.estimators.settings import kernel_of
from daskgp.estimators.sgpr import SGPR
from daskgp.estimators.ssgp import SparseSpectrumGP
from daskgp.estimators.svgp import SVGP
from daskgp.estimators.vecchia import VecchiaGP
from daskgp.fit.fitted import Fit
from daskgp.kernels.registry import unknown
from daskgp.kernels.units import in_users_units
from daskgp.models.method import Method
from daskgp.models.values import Want
from daskgp.posterior.layers.base import REGISTRY as KINDS_OF_LAYERS
from daskgp.posterior.layers.chain import LAYERS
from daskgp.posterior.posterior import Posterior
from daskgp.predict import stored
from daskgp.registry import Registry
from daskgp.typing import Device, Path

logger: logging.Logger = logging.getLogger("daskgp")

E = TypeVar("E", bound=type[GaussianProcess])

ESTIMATORS: Registry[type[GaussianProcess]] = Registry(
    "model",
    "daskgp.estimators",
    {
        estimator.model_name: estimator
        for estimator in (
            SGPR,
            LMA,
            PIC,
            VecchiaGP,
            ExpertsGP,
            OptiComGP,
            CaGP,
            CGGP,
            DecoupledGP,
            SVGP,
            SparseSpectrumGP,
            ExactGP,
        )
    },
)


def register(kind: E) -> E:
    """Make a class of estimators known by its ``model_name``, and the method that it makes.

    ``daskgp.load``, ``AutoGP(candidates=...)`` and ``daskgp fit --model`` know it in processes
    that have imported the module which registers it: do so where the class is defined.  The module
    of an installed package is imported by itself where the package has an entry point for it,
    such as ``idw = "package.module:IDW"`` in the group ``daskgp.estimators``.

    Parameters
    ----------
    kind : type
        A class derived from ``GaussianProcess``, each setting with a default, with a
        ``model_name`` of its own.  Where other settings make a method of another class, register
        that by ``daskgp.models.register``.

    Returns
    -------
    type
        The class itself, so that this is a decorator too.

    Raises
    ------
    SettingError
        If the class or its method has no name, or that of another.

    Examples
    --------
    >>> from daskgp import SGPR, estimators
    >>> @estimators.register
    ... class Rough(SGPR):
    ...     model_name = "rough"
    ...     def _kernels(self):
    ...         return super()._kernels()[1:] if self.kernel is None else super()._kernels()
    >>> estimators.ESTIMATORS["rough"]().recipe().method.name
    'sgpr'
    """
    name = getattr(kind, "model_name", None)
    if not isinstance(name, str):
        raise SettingError(
            f"{kind.__name__}.model_name is {shown(name)}: give the class a name, by which stores "
            "and --model know it"
        )
    method = type(kind()._model())
    ESTIMATORS.add(name, kind)
    try:
        models.register(method)
    except SettingError:
        ESTIMATORS.pop(name)
        raise
    return kind


def load(url: Path, device: Device | None = None, mean: Any = None) -> GaussianProcess | Any:
    """Read a fitted estimator from a model store.

    Parameters
    ----------
    url : str or path
        A local path or any fsspec URL.
    device : {"auto", "cpu", "gpu"}, optional
        Device that the estimator computes on; default that of the fit.
    mean : object, optional
        The regressor that was the mean of the fit, which stores do not hold: it has to predict the
        same at some training rows.

    Returns
    -------
    estimator
        Of the class named in the store, looked up in the registry, ready to predict: a
        `GaussianProcess`, or a `GPClassifier` or `HurdleGP` of several.

    Raises
    ------
    StoreError
        If there is no store, or it is incomplete, damaged or of another version.
    SettingError
        If there is no such device, or ``mean`` is missing or needless.
    InputError
        If ``mean`` is another regressor than that of the fit.

    Examples
    --------
    >>> import tempfile, numpy as np, daskgp
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     daskgp.ExactGP(optimizer=None).fit(X, X[:, 0]).save(f"{folder}/model.zarr")
    ...     model = daskgp.load(f"{folder}/model.zarr")
    >>> type(model).__name__, model.n_rows_
    ('ExactGP', 50)
    """
    # the type has Any, so that nobody needs to tell apart what predicts alike: a union with
    # GPClassifier, whose predict has no return_std, would refuse model.predict(X, return_std=True)
    url = str(url)
    described = stores.read_parts(url)
    if described is None:
        return load_one(url, device, mean)
    if mean is not None:
        raise SettingError(
            f"mean={shown(mean)}: model store {url} was fitted without a regressor, leave mean out"
        )
    parts = [load_one(place, device) for place in described["parts"].values()]
    with _reading(url):
        return COMPOSED[described["kind"]]._of_parts(described, parts)


COMPOSED: dict[str, type[GPClassifier] | type[HurdleGP]] = {
    "GPClassifier": GPClassifier,
    "HurdleGP": HurdleGP,
}
"""Estimators whose stores have several models."""


def load_one(url: Path, device: Device | None = None, mean: Any = None) -> GaussianProcess:
    """Read a fitted estimator that is one model, as ``load`` does; StoreError for several."""
    if device is not None:
        choice("device", device, get_args(Device))
    url = str(url)
    content = stores.read(url)
    _check_regressor(content, mean, url)
    with _reading(url):
        estimator = _restored(content, device, url, mean)
    for layer in estimator.solved_.layers:
        layer.check()
    with _reading(url):
        _try_out(estimator.solved_)
    return estimator


@contextmanager
def _reading(url: str) -> Iterator[None]:
    """Turn what a model store that does not fit together raises into a StoreError."""
    try:
        yield
    except DaskgpError as error:
        raise StoreError(f"model store {url}: {_short(_inside(url, error))}") from error
    except Exception as error:  # what does not fit together fails anywhere, each with its own type
        what = type(error).__name__
        raise StoreError(f"model store {url} is damaged: {what}: {_short(str(error))}") from error


def _inside(url: str, error: DaskgpError) -> str:
    """Return what an error says, which names a part of a store by its place in it."""
    fs, path = groups.filesystem(str(url))
    return str(error).replace(f"{fs.unstrip_protocol(path)}/", "").replace(f"{url}/", "")


def _short(text: str) -> str:
    """Return one short line of a text that may repeat much of a store."""
    return textwrap.shorten(text, 300)


def _try_out(posterior: Posterior) -> None:
    """Predict at one place, so that parts that do not belong together are noticed now."""
    if posterior.each:
        for one in posterior.each:
            _try_out(one)
        return
    _check_scaling(posterior)
    place = posterior.columns.places(posterior.scaling.x_shift[None])
    if posterior.rows is not None:
        if posterior.rows.check(posterior.fitted("cpu")):
            return
        near = posterior.rows.place()
        place = place if near is None else near[:, : posterior.n_features]
    count = posterior.n_targets + 2  # no shape is taken for another
    want: Want = "mean" if posterior.method.why_no_variance() else "variance"
    try:
        with np.errstate(all="ignore"):
            here = dataclasses.replace(posterior, device="cpu")
            predicted = here.moments(np.repeat(place, count, axis=0), want)
    except NumericalError:  # only at this place; predicting there raises it again
        logger.debug("no variance at the place where a model is tried out", exc_info=True)
        return
    if (
        predicted.mean.shape != (count, posterior.n_targets)
        or not np.isfinite(predicted.mean).all()
    ):
        raise StoreError("its predictions are not finite numbers: fit again")


def _check_scaling(posterior: Posterior) -> None:
    d, p = len(posterior.columns), posterior.n_targets
    shapes = {"x_shift": (d,), "x_scale": (d,), "intercept": (p,), "slope": (d, p), "y_scale": (p,)}
    for name, shape in shapes.items():
        values = getattr(posterior.scaling, name)
        usable = np.isfinite(values)
        if name == "x_scale":  # infinite where a constant column is left out
            usable |= np.isposinf(values)
        if values.shape != shape or not usable.all():
            raise StoreError(f"its {name} has no {shape} finite numbers: fit again")


def unregistered(attributes: Mapping[str, Any]) -> list[str]:
    """Return the kinds that a model store names and that are in no registry, in words."""
    settings, each = attributes.get("settings"), attributes.get(stored.EACH) or [attributes]
    named: list[tuple[Registry[Any], Any]] = [(ESTIMATORS, attributes.get("model"))]
    if isinstance(settings, dict):
        named.append((likelihoods.REGISTRY, settings.get("likelihood")))
    for own in each:
        chain = own.get(LAYERS)
        named += [(kernels.REGISTRY, name) for name in unknown(own.get("kernel"))]
        named += [(KINDS_OF_LAYERS, name) for name in (chain if isinstance(chain, list) else ())]
    found = (
        f"{registry.what} {name!r}"
        for registry, name in named
        if isinstance(name, str) and not registry.knows(name)
    )
    return [*dict.fromkeys(found)]


def regressor_of(content: stores.Stored) -> str | None:
    """Return the name of the class of the regressor that a stored model needs, if it does."""
    settings = content.attributes.get("settings")
    setting = settings.get("mean") if isinstance(settings, dict) else None
    return setting.get(REGRESSOR) if isinstance(setting, dict) else None


def _check_regressor(content: stores.Stored, mean: Any, url: str) -> None:
    """Raise SettingError for a regressor that is missing, or that the fit did not have."""
    wanted = regressor_of(content)
    if mean is None and wanted is not None:
        raise SettingError(
            f"model store {url} was fitted to the residuals of a {wanted}, which stores do not "
            f"hold: load it in Python with that regressor, daskgp.load({url!r}, mean=regressor)"
        )
    if mean is not None and wanted is None:
        raise SettingError(
            f"mean={shown(mean)}: model store {url} was fitted without a regressor, leave mean out"
        )


def _restored(
    content: stores.Stored, device: Device | None, url: str, regressor: Any
) -> GaussianProcess:
    attributes, arrays = content.attributes, content.arrays
    strange = unregistered(attributes)
    if len(strange) > 1:  # of one alone its registry says what there is
        raise SettingError(
            f"unknown {' and '.join(strange)}: import the modules that register them (on the "
            "command line, --plugin MODULE for each)"
        )
    kind = ESTIMATORS.find(attributes["model"])
    settings = dict(attributes["settings"])
    if settings.get("mean") == "linear" and "trend" not in attributes:  # of an earlier version
        settings["mean"] = "ols"
    if regressor is not None:
        settings["mean"] = regressor
    for name, value in settings.items():
        if name != "mean" and isinstance(value, dict):
            settings[name] = _setting(value)
    settings |= stored.part(arrays, SETTING)
    settings["device"] = device or settings["device"]
    estimator = kind(**settings)
    posterior = stored.restored(content, settings["device"], url, regressor)
    estimator._remember(_fit_of(content, url, posterior))
    if stored.KERNEL_UNITS not in attributes and estimator.kernel is not None:
        estimator.kernel = _kernel_of_before(estimator)
        estimator._remember(estimator._fitted)
    board = content.notes.get("leaderboard")
    if isinstance(board, dict):
        estimator._board = Leaderboard.from_dict(board)
    estimator._take_notes(content.notes)
    return estimator


def _setting(value: dict[str, Any]) -> Any:
    """Return a setting that stores have by what kind it is."""
    if BARRIERS in value:
        return value[BARRIERS]
    if "mapping" in value:
        return dict(value["mapping"])
    return (
        grids.restored(value["dataset"])
        if "dataset" in value
        else kernels.from_dict(value["kernel"])
    )


def _kernel_of_before(estimator: GaussianProcess) -> kernels.Kernel:
    """Return the setting of a store of an earlier version, whose numbers are a model's, in data's.

    So a fit of the loaded model to the same rows starts where it did.
    """
    columns, scale = estimator.solved_.columns, estimator.solved_.scaling
    then = columns.kernel(kernel_of(estimator.kernel))
    own = columns.scaled_as_before(then, scale.x_scale)
    return columns.users_kernel(in_users_units(own, len(columns), scale.size))


def _fit_of(content: stores.Stored, url: str, posterior: Posterior, of: str = "") -> Fit:
    """Return the fit of a stored model, with what the store notes beside the posterior.

    ``of`` is the prefix of what a target that has rows of its own has there.
    """
    attributes, notes, objective = (
        content.attributes,
        content.notes,
        content.attributes["objective"],
    )
    seen, likelihood = notes.get("seen"), posterior.likelihood
    named = len(posterior.theta.kernel.parameter_names) + 1
    own = 0 if likelihood is None else len(likelihood.parameter_names)
    own = posterior.n_targets if posterior.joint else own
    contents = stored.parts_of(content) if posterior.each else []
    parts = zip(contents, posterior.each, strict=True)
    return Fit(
        posterior,
        int(attributes["n_rows"]),
        None if objective is None else float(objective),
        list(notes.get("history", [])),
        _errors_of(notes.get("standard_errors"), named, followed=True),
        partial(_sums_of, url, content, posterior.method, of),
        [note for note in seen if isinstance(note, dict)] if isinstance(seen, list) else [],
        partial(_sources_of, url, content),
        rows_in=str(attributes.get(stores.ROWS_IN, stores.ROWS)),
        likelihood_errors=_errors_of(notes.get("likelihood_errors"), own),
        each=tuple(
            _fit_of(part, url, one, stored.of_target(j)) for j, (part, one) in enumerate(parts)
        ),
    )


def _errors_of(noted: Any, count: int, followed: bool = False) -> np.ndarray | None:
    """Return the standard errors that a store notes of so many parameters, if it does.

    They may be ``followed`` by those of what kernels derive from them.
    """
    if not isinstance(noted, list) or len(noted) < count or (len(noted) > count and not followed):
        return None
    return np.array(noted, np.float64)


def _sums_of(url: str, content: stores.Stored, method: Method, of: str = "") -> Any:
    """Return the sums over rows that a store keeps; None if it was written without them."""
    sums = stored.part(stores.read_beside(url, content, stores.SUMS), of)
    if not sums or method.stats_type is None or stored.EACH in content.attributes:
        return None
    values = (sums[name] for name in method.stats_type._fields)
    return method.stats_type(*(value if value.ndim else value.item() for value in values))


def _sources_of(url: str, content: stores.Stored) -> tuple[Source, ...]:
    """Return the dataset stores of which a stored model has seen rows."""
    arrays = stores.read_beside(url, content, stores.SEEN)
    notes = content.notes.get("sources", []) if arrays else []
    parts: list[dict[str, Any]] = [stored.part(arrays, f"{i}_") for i in range(len(notes))]
    return tuple(Source(**one, **part) for one, part in zip(notes, parts, strict=True))
