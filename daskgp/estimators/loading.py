"""Reading fitted estimators from model stores: settings and arrays, no class paths."""

from __future__ import annotations

import dataclasses
import logging
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, get_args

import numpy as np

from daskgp import kernels
from daskgp.checks import choice, shown
from daskgp.data.seen import Source
from daskgp.data.stores import models as stores
from daskgp.errors import DaskgpError, NumericalError, SettingError, StoreError
from daskgp.estimators import settings_of_fit
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.cagp import CaGP
from daskgp.estimators.cggp import CGGP
from daskgp.estimators.choosing.leaderboard import Leaderboard
from daskgp.estimators.decoupled import DecoupledGP
from daskgp.estimators.exact import ExactGP
from daskgp.estimators.experts import ExpertsGP
from daskgp.estimators.lma import LMA, PIC
from daskgp.estimators.opticom import OptiComGP
from daskgp.estimators.saving import REGRESSOR, SETTING
from daskgp.estimators.settings import kernel_of
from daskgp.estimators.sgpr import SGPR
from daskgp.estimators.ssgp import SparseSpectrumGP
from daskgp.estimators.svgp import SVGP
from daskgp.estimators.variational import VariationalGP
from daskgp.estimators.vecchia import VecchiaGP
from daskgp.kernels.units import in_users_units
from daskgp.models.method import Method
from daskgp.models.values import Want
from daskgp.posterior.posterior import Posterior
from daskgp.predict import stored
from daskgp.typing import Device

logger = logging.getLogger("daskgp")

ESTIMATORS: dict[str, type[GaussianProcess]] = {
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
}


def load(url: str, device: Device | None = None, mean: Any = None) -> GaussianProcess:
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
        Of the class named in the store, looked up in the registry, ready to predict.

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
    if device is not None:
        choice("device", device, get_args(Device))
    content = stores.read(str(url))
    _check_regressor(content, mean, str(url))
    with _reading(url):
        estimator = _restored(content, device, str(url), mean)
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
        raise StoreError(f"model store {url}: {_short(error)}") from error
    except Exception as error:  # what does not fit together fails anywhere, each with its own type
        what = type(error).__name__
        raise StoreError(f"model store {url} is damaged: {what}: {_short(error)}") from error


def _short(error: BaseException) -> str:
    """Return one short line of an error that may repeat much of a store."""
    return textwrap.shorten(str(error), 300)


def _try_out(posterior: Posterior) -> None:
    """Predict at one place, so that parts that do not belong together are noticed now."""
    _check_scaling(posterior)
    place = posterior.columns.places(posterior.scaling.x_shift[None])
    if posterior.rows is not None:
        if posterior.rows.check(posterior.fitted("cpu")):
            return
        near = posterior.rows.place()
        place = place if near is None else near
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


def regressor_of(content: stores.Stored) -> str | None:
    """Return the name of the class of the regressor that a stored model needs, if it does."""
    said = content.attributes.get("settings")
    setting = said.get("mean") if isinstance(said, dict) else None
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
    if attributes["model"] not in ESTIMATORS:
        raise SettingError(
            f"unknown model {attributes['model']!r}: known are {', '.join(ESTIMATORS)}"
        )
    settings = dict(attributes["settings"])
    if settings.get("mean") == "linear" and "trend" not in attributes:  # of an earlier version
        settings["mean"] = "ols"
    if regressor is not None:
        settings["mean"] = regressor
    for name, value in settings.items():
        if name != "mean" and isinstance(value, dict):
            settings[name] = (
                dict(value["mapping"]) if "mapping" in value else kernels.from_dict(value["kernel"])
            )
    settings |= stored.part(arrays, SETTING)
    settings["device"] = device or settings["device"]
    estimator = ESTIMATORS[attributes["model"]](**settings)
    estimator._set_solved(stored.restored(content, settings["device"], url, regressor))
    if stored.KERNEL_UNITS not in attributes and estimator.kernel is not None:
        estimator.kernel = _kernel_of_before(estimator)
    estimator._settings_of_fit = settings_of_fit.of(estimator)
    estimator._total = partial(_sums_of, url, content, estimator.solved_.method)
    estimator._rows_in = str(attributes.get(stores.ROWS_IN, stores.ROWS))
    estimator._sources = partial(_sources_of, url, content)
    _remember(estimator, content)
    return estimator


def _kernel_of_before(estimator: GaussianProcess) -> kernels.Kernel:
    """Return the setting of a store of an earlier version, whose numbers are a model's, in data's.

    So a fit of the loaded model to the same rows starts where it did.
    """
    columns, scale = estimator.solved_.columns, estimator.solved_.scaling
    then = columns.kernel(kernel_of(estimator.kernel))
    own = columns.scaled_as_before(then, scale.x_scale)
    return columns.users_kernel(in_users_units(own, len(columns), scale.size))


def _remember(estimator: GaussianProcess, content: stores.Stored) -> None:
    """Set what a store notes beside what predictions need."""
    attributes = content.attributes
    objective = attributes["objective"]
    estimator.objective_ = None if objective is None else float(objective)
    estimator.n_rows_ = int(attributes["n_rows"])
    estimator.history_ = list(content.notes.get("history", []))
    errors = content.notes.get("standard_errors")
    if isinstance(errors, list) and len(errors) == 1 + len(estimator.kernel_.parameter_names):
        estimator._errors = np.array(errors, np.float64)
    ranges = content.notes.get("feature_ranges")
    if isinstance(ranges, list) and len(ranges) == estimator.n_features_in_:
        estimator._ranges = ranges
    seen = content.notes.get("seen")
    if isinstance(seen, list):
        estimator._seen = [note for note in seen if isinstance(note, dict)]
    board = content.notes.get("leaderboard")
    if isinstance(board, dict):
        estimator._board = Leaderboard.from_dict(board)
    if isinstance(estimator, VariationalGP):
        estimator._streamed = content.notes.get("streamed") is True
    if isinstance(estimator, CGGP) and {"steps", "residual"} <= content.notes.keys():
        estimator.n_iter_ = int(content.notes["steps"])
        estimator.residual_ = float(content.notes["residual"])


def _sums_of(url: str, content: stores.Stored, method: Method) -> Any:
    """Return the sums over rows that a store keeps; None if it was written without them."""
    sums = stores.read_beside(url, content, stores.SUMS)
    if not sums or method.stats_type is None:
        return None
    values = (sums[name] for name in method.stats_type._fields)
    return method.stats_type(*(value if value.ndim else value.item() for value in values))


def _sources_of(url: str, content: stores.Stored) -> tuple[Source, ...]:
    """Return the dataset stores of which a stored model has seen rows."""
    arrays = stores.read_beside(url, content, stores.SEEN)
    said = content.notes.get("sources", []) if arrays else []
    parts: list[dict[str, Any]] = [stored.part(arrays, f"{i}_") for i in range(len(said))]
    return tuple(Source(**one, **part) for one, part in zip(said, parts, strict=True))
