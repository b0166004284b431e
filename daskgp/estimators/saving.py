"""Writing fitted estimators to model stores."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from daskgp import models
from daskgp.data import remove
from daskgp.data.stores import locks
from daskgp.data.stores import models as stores
from daskgp.errors import SettingError, StoreError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.cggp import CGGP
from daskgp.estimators.updating import seen_by
from daskgp.estimators.variational import VariationalGP
from daskgp.fit import means
from daskgp.kernels import Kernel
from daskgp.kernels.registry import describe
from daskgp.posterior.layers import chain
from daskgp.posterior.posterior import Posterior
from daskgp.predict import stored
from daskgp.priors import Prior

if TYPE_CHECKING:
    import zarr

logger = logging.getLogger("daskgp")

SETTING, REGRESSOR = "setting_", "regressor"


def save(estimator: GaussianProcess, url: str) -> None:
    """Write a fitted estimator to a new model store."""
    name = estimator.solved_.method.name
    if name not in models.REGISTRY:
        raise SettingError(
            f"{type(estimator).__name__} cannot be saved: a store names its method {name!r}, which "
            "is not in daskgp.models.REGISTRY: add it there, or pickle the model"
        )
    kept = estimator.solved_.rows
    write_rows = None if kept is None else kept.write
    content = _stored(estimator)
    stores.write(str(url), content, _notes(estimator), write_rows)
    origin = stored.origin_of(str(url), content.checksum)
    estimator.solved_ = dataclasses.replace(estimator.solved_, origin=origin)


def save_into(estimator: GaussianProcess, group: zarr.Group, url: str) -> None:
    """Write a fitted estimator into a store reserved before the fit, which keeps its rows."""
    bring_rows(estimator, stores.rows_url(url))
    stores.fill(group, _stored(estimator), _notes(estimator))


def bring_rows(estimator: GaussianProcess, rows_url: str) -> None:
    """Write the rows that predictions read back to a URL in a model store, if not there yet."""
    kept = estimator.solved_.rows
    if kept is not None and not kept.lies_at(rows_url):  # in memory, or those of a prepared store
        remove(rows_url)
        kept.write(rows_url)


def save_in_place(estimator: GaussianProcess, url: str, claim: locks.Claim) -> None:
    """Write an estimator in the place of that in its store; its rows lie there already."""
    content = _stored(estimator, estimator._rows_in)
    stores.replace(url, content, _notes(estimator), claim)
    origin = stored.origin_of(url, content.checksum)
    estimator.solved_ = dataclasses.replace(estimator.solved_, origin=origin)


def _stored(estimator: GaussianProcess, rows_in: str = stores.ROWS) -> stores.Stored:
    posterior = estimator.solved_
    arrays: dict[str, np.ndarray] = {
        f"state_{name}": np.asarray(value)
        for name, value in posterior.state._asdict().items()
        if np.size(value) or name not in posterior.state._field_defaults
    }
    arrays |= {f"scaling_{k}": v for k, v in posterior.scaling.arrays.items()}
    arrays |= chain.arrays(posterior.layers)
    if posterior.theta.inputs is not None:
        arrays["inputs"] = posterior.theta.inputs
    if posterior.rows is not None:
        arrays |= {stored.NEAR + name: values for name, values in posterior.rows.arrays().items()}
    settings, more = _settings(estimator)
    arrays |= more
    attributes: dict[str, Any] = {
        "model": estimator.model_name,
        "method": posterior.method.name,
        "model_settings": vars(posterior.method),
        "settings": settings,
        stored.KERNEL_UNITS: "data",
        "kernel": describe(posterior.theta.kernel),
        "noise_variance": posterior.theta.noise_variance,
        "feature_names": list(posterior.feature_names),
        "target_names": list(posterior.target_names),
        "vector_target": posterior.vector_target,
        "dtype": posterior.dtype,
        "objective": estimator.objective_,
        "n_rows": estimator.n_rows_,
    }
    attributes |= _beside(posterior)
    if rows_in != stores.ROWS:
        attributes[stores.ROWS_IN] = rows_in
    # a reader checks what JSON makes of the attributes
    return stores.stored(arrays, json.loads(json.dumps(attributes)), _for_updates(estimator))


def _for_updates(estimator: GaussianProcess) -> dict[str, dict[str, np.ndarray]]:
    """Return the arrays that updates alone need, by the name of their group."""
    try:
        total, sources = estimator._total_sums(), estimator._known_sources()
    except StoreError as error:
        logger.warning("saved without what an update needs, so it must be fitted again: %s", error)
        estimator._total, estimator._sources = None, ()
        return {}
    sums = {} if total is None else {k: np.asarray(v) for k, v in total._asdict().items()}
    marks = {f"{i}_{k}": v for i, one in enumerate(sources) for k, v in one.stored.items()}
    return {stores.SUMS: sums, stores.SEEN: marks}


def _beside(posterior: Posterior) -> dict[str, Any]:
    """Return the attributes that not every model has."""
    optional: dict[str, tuple[Any, ...]] = {
        "target_units": posterior.target_units,
        "feature_units": posterior.feature_units,
        "geographic": posterior.geographic or (),
    }
    said: dict[str, Any] = {name: list(own) for name, own in optional.items() if any(own)}
    said |= chain.described(posterior.layers)
    if posterior.fills:
        said["fill_values"] = [list(own) for own in posterior.fills]
    if posterior.rows is not None:
        said["blocks"] = posterior.rows.token
    return said


def _settings(estimator: GaussianProcess) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the settings that JSON can hold, and those that are arrays."""
    settings: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in estimator.get_params(deep=False).items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, str | bool | int | float | None):
            settings[name] = value
        elif isinstance(value, Kernel):
            settings[name] = {"kernel": describe(value)}
        elif isinstance(value, list | tuple) and all(
            isinstance(v, str | int | float) for v in value
        ):
            settings[name] = list(value)
        elif name == "mean" and means.is_regressor(value):
            settings[name] = {REGRESSOR: type(value).__name__}
        elif isinstance(value, set | frozenset):
            settings[name] = sorted(value)
        elif isinstance(value, Mapping):
            settings[name] = {"mapping": {key: _plain(one) for key, one in value.items()}}
        else:
            arrays[SETTING + name] = np.asarray(value)
    return settings, arrays


def _plain(value: Any) -> Any:
    """Return a value of a mapping as JSON has it; a prior as its text."""
    if isinstance(value, Prior | str):
        return str(value)
    if isinstance(value, list | tuple):
        return [float(one) for one in value]
    return None if value is None else float(value)


def _notes(estimator: GaussianProcess) -> dict[str, Any]:
    notes: dict[str, Any] = {"history": estimator.history_}
    errors = getattr(estimator, "_errors", None)
    if errors is not None:
        notes["standard_errors"] = [None if np.isnan(e) else float(e) for e in errors]
    if getattr(estimator, "_ranges", None):
        notes["feature_ranges"] = estimator._ranges
    if seen_by(estimator):
        notes["seen"] = seen_by(estimator)
    if estimator._known_sources():
        notes["sources"] = [source.described() for source in estimator._known_sources()]
    if estimator._board is not None:
        notes["leaderboard"] = estimator._board.to_dict()
    if isinstance(estimator, VariationalGP):
        notes["streamed"] = estimator._streamed
    if isinstance(estimator, CGGP) and hasattr(estimator, "residual_"):
        notes |= {"steps": estimator.n_iter_, "residual": estimator.residual_}
    return notes
