"""Fitted methods in model stores: how they are read, and how a graph refers to them.

A graph carries the address of a store in place of the state in it.  Each process that runs its
tasks reads the store once.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from daskgp import kernels
from daskgp.data import visibility
from daskgp.data.blocks import prepared
from daskgp.data.regressor import Known, Regressor
from daskgp.data.stores import models, remote
from daskgp.errors import StoreError
from daskgp.kernels import Kernel
from daskgp.models import by_name, columns
from daskgp.models.scaling import Scaling
from daskgp.models.transform import Transform
from daskgp.models.trend import Trend
from daskgp.models.values import Theta
from daskgp.predict.members import Members, open_rows
from daskgp.predict.near import Nearby, open_nearby
from daskgp.predict.posterior import Origin, Solved
from daskgp.predict.supports import Supports, open_points
from daskgp.predict.tails import Tails
from daskgp.predict.training_rows import TrainingRows
from daskgp.runtime.executor import Executor
from daskgp.runtime.forked import in_children
from daskgp.typing import Device

NEAR, TREND, REGRESSOR = "near_", "trend_", "regressor_"
"""Prefixes of the names of arrays that belong to training rows, a trend and a regressor."""
KERNEL_UNITS = "kernel_units"
"""Attribute of stores whose settings have numbers of kernels in the units of the data."""
HELD_BYTES = 512 << 20
"""Maximum bytes of fitted methods that a process keeps; the one it used last always stays."""

_GUARD = threading.Lock()
_held: OrderedDict[tuple[Origin, str], Solved] = OrderedDict()


@in_children
def _renew() -> None:
    global _GUARD
    _GUARD = threading.Lock()


class Sent:
    """A fitted method of a store as graphs carry it: pickled, it is the address of its store.

    In the process that made the graph it is the method itself, whatever becomes of the store.
    """

    def __init__(self, origin: Origin, device: Device, solved: Solved | None = None) -> None:
        self.origin, self.device, self._solved = origin, device, solved

    def __reduce__(self) -> tuple[type[Sent], tuple[Origin, Device]]:
        return type(self), (self.origin, self.device)

    def open(self) -> Solved:
        """Return the method, read once per process; StoreError if the store was replaced."""
        if self._solved is None:
            self._solved = _opened(self.origin, self.device)
        return self._solved


Node: TypeAlias = Solved | Sent


def sendable(solved: Solved) -> Node:
    """Return what a graph carries: the address of a method whose store is unchanged, else all."""
    origin = solved.origin
    if origin is None or solved.known is not None:  # stores hold no regressor
        return solved
    if not _of_package(solved.theta.kernel):  # workers may not know the class
        return solved
    if models.checksum_at(origin.url) != origin.checksum:
        return solved
    return Sent(origin, solved.device, solved)


def opened(node: Node) -> Solved:
    """Return the method that a task received; StoreError if its rows were replaced."""
    solved = node.open() if isinstance(node, Sent) else node
    _refuse_other_rows(solved)
    return solved


def check_visible(executor: Executor, solved: Solved, remedy: str) -> None:
    """Raise InputError unless every worker sees the stores that predictions will read."""
    node = sendable(solved)
    if isinstance(node, Sent):
        visibility.check_model(executor, node.origin.url, node.origin.checksum, remedy)
    elif solved.kept is not None:
        visibility.check(executor, solved.kept.rows.X, "the training rows of the model", remedy)


def origin_of(url: str, checksum: str) -> Origin | None:
    """Return the origin of a model; None for a URL that no other process sees."""
    place = remote.location(url)
    if remote.is_of_process(place):
        return None
    own = remote.carried(place)
    return Origin(place, checksum, remote.learned(own.address, own.options))


def restored(content: models.Stored, device: Device, url: str, regressor: Any = None) -> Solved:
    """Return the fitted method that a model store describes, with its mean if that is a regressor.

    Raise StoreError, or what the parts raise, if they do not fit together.
    """
    attributes, arrays = content.attributes, content.arrays
    model_type = by_name(attributes.get("method", attributes["model"]))
    theta = Theta(
        kernels.from_dict(attributes["kernel"]),
        float(attributes["noise_variance"]),
        arrays.get("inputs"),
    )
    state_type, kept, names = model_type.state_type, None, _names(attributes["feature_names"])
    if model_type.keeps_rows:
        where = models.rows_url(url, attributes.get(models.ROWS_IN, models.ROWS))
        kept = _open_kept(where, part(arrays, NEAR))
        if kept.token != attributes["blocks"]:
            raise StoreError("its rows are not the rows of the fit: fit again")
    scaling, state = _scaling(attributes, arrays), part(arrays, "state_")
    if scaling.trend is not None and isinstance(kept, Nearby):
        kept = replace(kept, rows=replace(kept.rows, trend=scaling.trend.columns))
    targets = _names(attributes["target_names"])
    return Solved(
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
        _names(attributes.get("target_units", [])),
        origin_of(url, content.checksum),
        columns.chosen(None, names, attributes.get("geographic")),
        _names(attributes.get("feature_units", [])),
        known=_known(regressor, names, len(targets), arrays),
        spread=float(attributes.get("spread", 1.0)),
        fills=tuple(tuple(map(float, own)) for own in attributes.get("fill_values", [])),
        tails=Tails.from_dict(attributes["tails"]) if "tails" in attributes else None,
    )


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


def _open_kept(url: str, arrays: dict[str, np.ndarray]) -> TrainingRows:
    """Return the training rows that a model store keeps, as its arrays describe them."""
    if "edges" in arrays:
        return Supports(open_points(url), arrays["edges"])
    if "starts" in arrays:
        return Members(open_rows(url), arrays["starts"])
    return open_nearby(url, arrays)


def _names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise StoreError(f"names of columns are not a list of text: {names!r:.60}")
    return tuple(names)


def _of_package(kernel: Kernel) -> bool:
    parts: tuple[Kernel, ...] = getattr(kernel, "parts", ())
    return type(kernel).__module__.startswith("daskgp.") and all(map(_of_package, parts))


def _opened(origin: Origin, device: Device) -> Solved:
    """Return a method that this process keeps, or reads now; other threads wait meanwhile."""
    key = origin, device
    with _GUARD:
        solved = _held.pop(key, None) or _read(origin, device)
        _held[key] = solved
        while len(_held) > 1 and sum(map(_size, _held.values())) > HELD_BYTES:
            _held.popitem(last=False)
    return solved


def _read(origin: Origin, device: Device) -> Solved:
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


def _refuse_other_rows(solved: Solved) -> None:
    """Raise StoreError if the training rows of a store were replaced since it was opened."""
    if solved.origin is None or solved.kept is None or solved.kept.rows.identity is None:
        return
    if prepared.identity_behind(solved.kept.rows.X) != solved.kept.rows.identity:
        raise _replaced(solved.origin.url)


def _replaced(url: str) -> StoreError:
    return StoreError(
        f"model store {url} has changed since it was loaded or saved: load it and predict again"
    )


def _size(solved: Solved) -> int:
    inputs = solved.theta.inputs
    arrays = [*solved.state, *([] if inputs is None else [inputs])]
    return sum(getattr(array, "nbytes", 0) for array in arrays)
