"""Fitted methods in model stores: how they are read, and how a graph refers to them.

A graph carries the address of a store in place of the state in it.  Each process that runs its
tasks reads the store once.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from daskgp import kernels
from daskgp.data import categories, visibility
from daskgp.data.blocks import neighbours, prepared
from daskgp.data.regressor import Known, Regressor
from daskgp.data.rows import REFERENCE
from daskgp.data.stores import models, remote
from daskgp.errors import StoreError
from daskgp.models import REGISTRY, columns
from daskgp.models.fills import Fills
from daskgp.models.scaling import Scaling
from daskgp.models.transform import Transform
from daskgp.models.trend import Trend
from daskgp.models.values import Theta
from daskgp.models.varying import Varying
from daskgp.posterior.action_points import ActionPoints, open_points
from daskgp.posterior.expert_rows import ExpertRows
from daskgp.posterior.layers import chain
from daskgp.posterior.neighbour_rows import Nearby, open_nearby
from daskgp.posterior.posterior import Origin, Posterior, checksum_of
from daskgp.posterior.separate import Separate
from daskgp.posterior.training_rows import TrainingRows
from daskgp.runtime.executor import Executor
from daskgp.runtime.forked import in_children
from daskgp.typing import Device

NEAR, TREND, REGRESSOR, VARYING = "near_", "trend_", "regressor_", "varying_"
"""Prefixes of the names of arrays that belong to training rows, a trend, a regressor and
hyper-parameters that vary."""
EACH = "each"
"""Attribute, and note, of a store with those of each of separate targets of rows of their own."""
KERNEL_UNITS = "kernel_units"
"""Attribute of stores whose settings have numbers of kernels in the units of the data."""
HELD_BYTES = 512 << 20
"""Maximum bytes of fitted methods that a process keeps; the one it used last always stays."""

_GUARD = threading.Lock()
_kept: OrderedDict[tuple[Origin, str], Posterior] = OrderedDict()


@in_children
def _renew() -> None:
    global _GUARD
    _GUARD = threading.Lock()


class Sent:
    """A fitted method of a store as graphs carry it: pickled, it is the address of its store.

    In the process that made the graph it is the method itself, whatever becomes of the store.
    """

    origin: Origin
    device: Device

    def __init__(self, origin: Origin, device: Device, posterior: Posterior | None = None) -> None:
        self.origin, self.device, self._posterior = origin, device, posterior

    def __reduce__(self) -> tuple[type[Sent], tuple[Origin, Device]]:
        return type(self), (self.origin, self.device)

    def open(self) -> Posterior:
        """Return the method, read once per process; StoreError if the store was replaced."""
        if self._posterior is None:
            self._posterior = _opened(self.origin, self.device)
        return self._posterior


Node: TypeAlias = Posterior | Sent


def sendable(posterior: Posterior) -> Node:
    """Return what a graph carries: the address of a method whose store is unchanged, else all."""
    origin = posterior.origin
    each = posterior.each or (posterior,)
    layers = [layer for one in each for layer in one.layers]
    if origin is None or not all(layer.stored for layer in layers):
        return posterior
    kernels_of = (one.theta.kernel for one in each)
    kinds = posterior.method, *kernels_of, *layers, posterior.likelihood
    if not all(map(_of_package, kinds)):  # workers may not know the class
        return posterior
    if models.checksum_at(origin.url) != origin.checksum:
        return posterior
    return Sent(origin, posterior.device, posterior)


def opened(node: Node) -> Posterior:
    """Return the method that a task received; StoreError if its rows were replaced."""
    posterior = node.open() if isinstance(node, Sent) else node
    _refuse_other_rows(posterior)
    return posterior


def check_visible(executor: Executor, posterior: Posterior, remedy: str) -> None:
    """Raise InputError unless every worker sees the stores that predictions will read."""
    node = sendable(posterior)
    if isinstance(node, Sent):
        visibility.check_model(executor, node.origin.url, node.origin.checksum, remedy)
        return
    for kept in (one.rows for one in posterior.each or (posterior,)):
        if kept is not None:
            visibility.check(executor, kept.rows.X, "the training rows of the model", remedy)


def origin_of(url: str, checksum: str) -> Origin | None:
    """Return the origin of a model; None for a URL that no other process sees."""
    place = remote.location(url)
    if remote.is_of_process(place):
        return None
    own = remote.carried(place)
    return Origin(place, checksum, remote.learned(own.address, own.options))


def restored(content: models.Stored, device: Device, url: str, regressor: Any = None) -> Posterior:
    """Return the fitted method that a model store describes, with its mean if that is a regressor.

    Raise StoreError, or what the parts raise, if they do not fit together.
    """
    attributes, arrays = content.attributes, content.arrays
    if EACH in attributes:
        each = [restored(own, device, url) for own in parts_of(content)]
        return Separate.of(
            [replace(one, origin=None) for one in each],
            target_names=_names(attributes["target_names"]),
            target_units=_names(attributes.get("target_units", [])),
            fills=_fills(attributes),
            ranges=_ranges(content.notes, each[0].n_features),
        ).at(origin_of(url, content.checksum))
    model_type = REGISTRY.find(attributes.get("method", attributes["model"]))
    theta = Theta(
        kernels.from_dict(attributes["kernel"]),
        float(attributes["noise_variance"]),
        arrays.get("inputs"),
        Varying(**varying) if (varying := part(arrays, VARYING)) else None,
    )
    state_type, kept, names = model_type.state_type, None, _names(attributes["feature_names"])
    if model_type.keeps_rows:
        where = models.rows_url(url, attributes.get(models.ROWS_IN, models.ROWS))
        kept = _open_kept(where, part(arrays, NEAR))
        if kept.token != attributes["blocks"]:
            raise StoreError("its rows are not the rows of the fit: fit again")
    levels = attributes.get("categories")
    scaling, state = _scaling(attributes, arrays), part(arrays, "state_")
    if scaling.trend is not None and isinstance(kept, Nearby):
        kept = replace(kept, rows=replace(kept.rows, trend=scaling.trend.columns))
    targets = _names(attributes["target_names"])
    posterior = Posterior(
        model_type(**attributes["model_settings"]),
        theta,
        state_type(**{name: state[name] for name in state_type._fields if name in state}),
        scaling,
        names,
        targets,
        bool(attributes["vector_target"]),
        str(attributes["dtype"]),
        device,
        kept,
        target_units=_names(attributes.get("target_units", [])),
        origin=origin_of(url, content.checksum),
        geographic=columns.chosen(None, names, attributes.get("geographic")),
        feature_units=_names(attributes.get("feature_units", [])),
        fills=_fills(attributes),
        ranges=_ranges(content.notes, len(names)),
        finds_fills=attributes.get("settings", {}).get("fill_values", "auto") == "auto",
        categories=categories.stored(levels) if levels else {},
        unseen=attributes.get("settings", {}).get("unseen", "error"),
        rows_checksum=checksum_of(content.notes.get("seen") or ()),
        joint=bool(attributes.get("joint", False)),
        reference=attributes.get(REFERENCE, {}),
    )
    parts = posterior.parts(_known(regressor, names, len(targets), arrays))
    return replace(posterior, layers=chain.restored(attributes, arrays, parts))


def of_target(number: int) -> str:
    """Return the prefix of the names of arrays of a target that has rows of its own."""
    return f"target{number}_"


def parts_of(content: models.Stored) -> list[models.Stored]:
    """Return what a store has of each target that has rows of its own; the settings are of all."""
    attributes = content.attributes
    notes = content.notes.get(EACH) or ()
    if len(notes) != len(attributes[EACH]):  # notes are beside what the checksum is of
        notes = [{}] * len(attributes[EACH])
    settings = {"settings": attributes["settings"], "model": attributes["model"]}
    return [
        content._replace(
            arrays=part(content.arrays, of_target(j)),
            attributes=own | settings,
            notes=notes[j],
        )
        for j, own in enumerate(attributes[EACH])
    ]


def _fills(attributes: Mapping[str, Any]) -> Fills:
    return tuple(tuple(map(float, own)) for own in attributes.get("fill_values", []))


def _known(
    regressor: Any, names: tuple[str, ...], n_targets: int, arrays: dict[str, np.ndarray]
) -> Known | None:
    """Return the regressor that is the mean, not checked, and what that of the fit predicted."""
    if regressor is None:
        return None
    return Known(Regressor(regressor, names, n_targets), **part(arrays, REGRESSOR))


def _scaling(attributes: dict[str, Any], arrays: dict[str, np.ndarray]) -> Scaling:
    said = attributes.get("target_transform")
    transform = None if said is None else Transform.from_dict(said)
    names = {field.name for field in dataclasses.fields(Scaling)} - {"transform", "trend"}
    found = {name: arrays[f"scaling_{name}"] for name in names}
    columns = attributes.get("trend")
    trend = None if columns is None else Trend(tuple(map(int, columns)), **part(arrays, TREND))
    return Scaling(**found, transform=transform, trend=trend)


def part(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with ``prefix``, by the rest of their names."""
    items = arrays.items()
    return {name.removeprefix(prefix): a for name, a in items if name.startswith(prefix)}


def reading_at(posterior: Posterior, url: str) -> Posterior:
    """Return a posterior that reads its training rows from the copy of them at a URL."""
    if posterior.each:
        each = (reading_at(own, f"{url}/{j}") for j, own in enumerate(posterior.each))
        return replace(posterior, each=tuple(each))
    if posterior.rows is None:
        return posterior
    kept = _open_kept(url, posterior.rows.arrays())
    trend = posterior.rows.rows.trend
    return replace(posterior, rows=replace(kept, rows=replace(kept.rows, trend=trend)))


def _open_kept(url: str, arrays: dict[str, np.ndarray]) -> TrainingRows:
    """Return the training rows that a model store keeps, as its arrays describe them."""
    if "edges" in arrays:
        return ActionPoints(open_points(url), arrays["edges"])
    if "starts" in arrays:
        return ExpertRows(neighbours.open_rows(url), arrays["starts"])
    return open_nearby(url, arrays)


def _names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise StoreError(f"names of columns are not a list of text: {names!r:.60}")
    return tuple(names)


def _ranges(notes: Mapping[str, Any], number: int) -> tuple[Any, ...]:
    """Return the ranges of features that a store notes, if they are those of so many."""
    known = notes.get("feature_ranges")
    return tuple(known) if isinstance(known, list) and len(known) == number else ()


def _of_package(value: Any) -> bool:
    """Return whether the class of a method, kernel or the like is one of daskgp; None is."""
    own = value is None or type(value).__module__.startswith("daskgp.")
    return own and all(map(_of_package, getattr(value, "parts", ())))


def _opened(origin: Origin, device: Device) -> Posterior:
    """Return a method that this process keeps, or reads now; other threads wait meanwhile."""
    key = origin, device
    with _GUARD:
        posterior = _kept.pop(key, None) or _read(origin, device)
        _kept[key] = posterior
        while len(_kept) > 1 and sum(map(_size, _kept.values())) > HELD_BYTES:
            _kept.popitem(last=False)
    return posterior


def _read(origin: Origin, device: Device) -> Posterior:
    try:
        content = models.read(origin.url)
        if content.checksum == origin.checksum:
            return restored(content, device, origin.url)
    except StoreError as error:
        raise StoreError(
            f"a worker cannot read the model that it predicts with ({error}): put it in "
            f"{visibility.HERE}"
        ) from error
    raise _replaced(origin.url)


def _refuse_other_rows(posterior: Posterior) -> None:
    """Raise StoreError if the training rows of a store were replaced since it was opened."""
    if posterior.origin is None:
        return
    for kept in (one.rows for one in posterior.each or (posterior,)):
        if kept is None or kept.rows.identity is None:
            continue
        if prepared.identity_behind(kept.rows.X) != kept.rows.identity:
            raise _replaced(posterior.origin.url)


def _replaced(url: str) -> StoreError:
    return StoreError(
        f"model store {url} has changed since it was loaded or saved: load it and predict again"
    )


def _size(posterior: Posterior) -> int:
    if posterior.each:
        return sum(map(_size, posterior.each))
    inputs = posterior.theta.inputs
    arrays = [*posterior.state, *([] if inputs is None else [inputs])]
    return sum(getattr(array, "nbytes", 0) for array in arrays)
