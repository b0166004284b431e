"""Writing fitted estimators to model stores."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from daskgp import models
from daskgp.checks import text_of
from daskgp.data import grids, remove
from daskgp.data.polygons import geojson_of
from daskgp.data.rows import REFERENCE
from daskgp.data.stores import groups, locks
from daskgp.data.stores import models as stores
from daskgp.errors import SettingError, StoreError
from daskgp.fit import means
from daskgp.fit.fitted import NOWHERE, Fit
from daskgp.kernels import Kernel
from daskgp.kernels.registry import describe
from daskgp.posterior.layers import chain
from daskgp.posterior.posterior import Posterior
from daskgp.posterior.training_rows import TrainingRows
from daskgp.predict import stored
from daskgp.priors import Prior

logger: logging.Logger = logging.getLogger("daskgp")

SETTING, REGRESSOR, BARRIERS = "setting_", "regressor", "barriers"


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted estimator as a store keeps it.

    Attributes
    ----------
    name : str
        Name of its class in messages.
    kind : str
        Name of its class in stores.
    settings : mapping
    fit : Fit
    notes : mapping
        Whatever else its class notes.
    """

    name: str
    kind: str
    settings: Mapping[str, Any]
    fit: Fit
    notes: Mapping[str, Any]


def save(model: Model, url: str) -> Fit:
    """Write a fitted estimator to a new model store, and return the fit with its origin."""
    _check_registered(model)
    if stores.is_complete(url):
        _refuse_several(url)
        groups.refuse_existing(url, "model store", stores.PRESENT)
    parts = _placed(model.fit)
    model, content = _stored(model)
    stores.write(url, content, _notes(model), partial(_write_rows, parts) if parts else None)
    return _at(model.fit, url, content)


def save_over(model: Model, url: str, claim: locks.Claim) -> Fit:
    """Write a fitted estimator in the place of the one in a store, and return the fit from there.

    It may be of that one, and read the rows there.

    Raises
    ------
    StoreError
        If something else than one complete model is there.
    """
    _check_registered(model)
    groups.refuse_other(url, "model")
    _refuse_several(url)
    stores.read(url)
    rows_in = stores.next_rows(url)
    place = stores.rows_url(url, rows_in)
    bring_rows(model.fit, place)
    fit = save_in_place(replace(model, fit=replace(model.fit, rows_in=rows_in)), url, claim)
    return replace(fit.of(stored.reading_at(fit.posterior, place)), home=NOWHERE)


def reading_its_own(fit: Fit) -> Fit:
    """Return a saved fit that reads the rows that its store keeps."""
    origin = fit.posterior.origin
    assert origin is not None
    place = stores.rows_url(origin.url)
    return replace(fit.of(stored.reading_at(fit.posterior, place)), home=NOWHERE)


def _refuse_several(url: str) -> None:
    """Raise StoreError for a store of several models, which none replaces."""
    if stores.read_parts(url) is not None:
        groups.refuse_existing(url, "model store")


def _check_registered(model: Model) -> None:
    """Raise SettingError for a method that no store can name."""
    name = model.fit.posterior.method.name
    if name not in models.REGISTRY:
        raise SettingError(
            f"{model.name} cannot be saved: a store names its method {name!r}, which is not "
            "registered: decorate the class with daskgp.estimators.register, or pickle the model"
        )


def save_into(model: Model, group: groups.Group, url: str) -> None:
    """Write a fitted estimator into a store reserved before the fit, which keeps its rows."""
    bring_rows(model.fit, stores.rows_url(url))
    model, content = _stored(model)
    stores.fill(group, content, _notes(model))


def bring_rows(fit: Fit, rows_url: str) -> None:
    """Write the rows that predictions read back to a URL in a model store, if not there yet."""
    for place, kept in _placed(fit):
        url = f"{rows_url}{place}"
        if not kept.lies_at(url):  # in memory, or those of a prepared store
            remove(url)
            kept.write(url)


def _placed(fit: Fit) -> list[tuple[str, TrainingRows]]:
    """Return the rows that predictions read back, with their places in a store of rows."""
    own = fit.posterior.rows
    placed = [(f"/{j}", one.rows) for j, one in enumerate(fit.posterior.each)] or [("", own)]
    return [(place, kept) for place, kept in placed if kept is not None]


def _write_rows(parts: Sequence[tuple[str, TrainingRows]], url: str) -> None:
    for place, kept in parts:
        kept.write(f"{url}{place}")


def save_in_place(model: Model, url: str, claim: locks.Claim) -> Fit:
    """Write an estimator in the place of that in its store, whose rows lie there already.

    Return the fit with its origin.
    """
    model, content = _stored(model, model.fit.rows_in)
    stores.replace(url, content, _notes(model), claim)
    return _at(model.fit, url, content)


def _at(fit: Fit, url: str, content: stores.Stored) -> Fit:
    origin = stored.origin_of(url, content.checksum)
    return fit.of(replace(fit.posterior, origin=origin))


def _stored(model: Model, rows_in: str = stores.ROWS) -> tuple[Model, stores.Stored]:
    """Return a model with all that its store keeps, and this content."""
    fit, for_updates = _for_updates(model.fit)
    arrays, attributes = _content(fit, rows_in)
    for j, own in enumerate(fit.each):
        part, said = _content(own, f"{rows_in}/{j}")
        arrays |= {f"{stored.of_target(j)}{name}": a for name, a in part.items()}
        attributes.setdefault(stored.EACH, []).append(said)
    settings, more = _settings(model.settings)
    attributes |= {"model": model.kind, "settings": settings}
    # a reader checks what JSON makes of the attributes
    described = json.loads(json.dumps(attributes))
    return replace(model, fit=fit), stores.stored(arrays | more, described, for_updates)


def _content(fit: Fit, rows_in: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and attributes of a fitted method."""
    posterior = fit.posterior
    attributes = _shared_attributes(fit) | _optional_attributes(posterior)
    if rows_in != stores.ROWS:
        attributes[stores.ROWS_IN] = rows_in
    if posterior.each:
        return {}, attributes
    arrays: dict[str, np.ndarray] = {
        f"state_{name}": np.asarray(value)
        for name, value in posterior.state._asdict().items()
        if np.size(value) or name not in posterior.state._field_defaults
    }
    arrays |= {f"scaling_{k}": v for k, v in posterior.scaling.arrays.items()}
    arrays |= chain.arrays(posterior.layers)
    if posterior.theta.inputs is not None:
        arrays["inputs"] = posterior.theta.inputs
    if posterior.theta.varying is not None:
        arrays |= {stored.VARYING + k: v for k, v in posterior.theta.varying.arrays.items()}
    if posterior.rows is not None:
        arrays |= {stored.NEAR + name: values for name, values in posterior.rows.arrays().items()}
    attributes |= {
        "model_settings": vars(posterior.method),
        "kernel": describe(posterior.theta.kernel),
        "noise_variance": posterior.theta.noise_variance,
    }
    return arrays, attributes


def _shared_attributes(fit: Fit) -> dict[str, Any]:
    """Return the attributes that every model has."""
    posterior = fit.posterior
    return {
        "method": posterior.method.name,
        stored.KERNEL_UNITS: "data",
        "feature_names": list(posterior.feature_names),
        "target_names": list(posterior.target_names),
        "vector_target": posterior.vector_target,
        "dtype": posterior.dtype,
        "objective": fit.objective,
        "n_rows": fit.n,
    }


def _for_updates(fit: Fit) -> tuple[Fit, dict[str, dict[str, np.ndarray]]]:
    """Return the arrays that updates alone need, by the name of their group."""
    try:
        fit = fit.read()
    except StoreError as error:
        logger.warning(
            "the model is saved without the sums and rows that an update needs, "
            "so it must be fitted again to be updated: %s",
            error,
        )
        each = tuple(replace(one, totals=None, sources=()) for one in fit.each)
        return replace(fit, totals=None, sources=(), each=each), {}
    sources, sums = fit.known_sources, _sums(fit)
    for j, one in enumerate(fit.each):
        sums |= {f"{stored.of_target(j)}{k}": v for k, v in _sums(one).items()}
    marks = {f"{i}_{k}": v for i, one in enumerate(sources) for k, v in one.stored.items()}
    return fit, {stores.SUMS: sums, stores.SEEN: marks}


def _sums(fit: Fit) -> dict[str, np.ndarray]:
    total = fit.totals
    return {} if total is None else {k: np.asarray(v) for k, v in total._asdict().items()}


def _optional_attributes(posterior: Posterior) -> dict[str, Any]:
    """Return the attributes that not every model has."""
    optional: dict[str, tuple[Any, ...]] = {
        "target_units": posterior.target_units,
        "feature_units": posterior.feature_units,
        "geographic": posterior.geographic or (),
    }
    attributes: dict[str, Any] = {name: list(own) for name, own in optional.items() if any(own)}
    if not posterior.each:  # they have layers of their own
        attributes |= chain.described(posterior.layers)
    attributes |= {"joint": True} if posterior.joint else {}
    if posterior.categories:
        attributes["categories"] = {k: [*own] for k, own in posterior.categories.items()}
    if posterior.reference:
        attributes[REFERENCE] = dict(posterior.reference)
    if posterior.fills:
        attributes["fill_values"] = [list(own) for own in posterior.fills]
    if posterior.rows is not None:
        attributes["blocks"] = posterior.rows.token
    return attributes


def _settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the settings that JSON can hold, and those that are arrays."""
    settings: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in given.items():
        value = value.item() if isinstance(value, np.generic) else text_of(value)
        if isinstance(value, str | bool | int | float | None):
            settings[name] = value
        elif isinstance(value, Kernel):
            settings[name] = {"kernel": describe(value)}
        elif grids.is_xarray(value):
            settings[name] = {"dataset": grids.described(value)}
        elif isinstance(value, list | tuple) and all(
            isinstance(v, str | int | float) for v in value
        ):
            settings[name] = list(value)
        elif name == "mean" and means.is_regressor(value):
            settings[name] = {REGRESSOR: type(value).__name__}
        elif isinstance(value, set | frozenset):
            settings[name] = sorted(value)
        elif name == BARRIERS:
            settings[name] = {BARRIERS: geojson_of(value)}
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


def _notes(model: Model) -> dict[str, Any]:
    each = [_notes_of(fit) for fit in model.fit.each]
    return _notes_of(model.fit) | ({stored.EACH: each} if each else {}) | dict(model.notes)


def _notes_of(fit: Fit) -> dict[str, Any]:
    notes: dict[str, Any] = {"history": fit.history}
    if fit.errors is not None:
        notes["standard_errors"] = [None if np.isnan(e) else float(e) for e in fit.errors]
    if fit.likelihood_errors is not None:
        own = fit.likelihood_errors
        notes["likelihood_errors"] = [None if np.isnan(e) else float(e) for e in own]
    if fit.posterior.ranges:
        notes["feature_ranges"] = list(fit.posterior.ranges)
    if fit.seen:
        notes["seen"] = fit.seen
    sources = fit.known_sources
    if sources:
        notes["sources"] = [source.described() for source in sources]
    return notes
