"""Columns of a conversion with their units, as its source or an existing dataset store has them.

Times are numbers of days since 1970-01-01 (UTC), or what the store says: "hours since 2000-01-01".
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import zarr

from daskgp.data import feature_units, reading
from daskgp.data.categories import CATEGORIES, Levels, stored
from daskgp.data.convert.table import NUMBERS, TIMES, Kind, Names, add_ends, no_ends
from daskgp.data.feature_units import DAYS
from daskgp.data.rows import (
    FEATURE_UNITS,
    GEOGRAPHIC,
    REFERENCE,
    UNITS,
    check_aligned,
    place_of,
    reference_of,
)
from daskgp.data.stores import groups, models
from daskgp.data.writers import APPENDING, COLUMNS
from daskgp.errors import InputError, StoreError

CHOICES = "converted_from"
"""Attribute of a dataset store with the columns of its source that other arrays came from."""
NAMED = ("y_std", "y_variance", "weight", "mask", *COLUMNS)
"""Arguments of `convert` that name such columns."""
Choices: TypeAlias = Mapping[str, Names]
"""Names of such columns, by these arguments: one for each target, or one."""


class Layout(NamedTuple):
    """Names of columns and the units of some; ``said`` is False where a store gives no units.

    ``geographic`` are the features that are longitude and latitude, if they are known; ``choices``
    the columns of errors, weights and the like, by the arguments of `convert` that name them;
    ``categories`` the levels of features that are text; ``reference`` says the coordinate reference
    system, if it is known.
    """

    features: Names
    targets: Names
    units: dict[str, str]
    said: bool
    geographic: Names = ()
    choices: Choices = MappingProxyType({})
    categories: Levels = MappingProxyType({})
    reference: Mapping[str, Any] = MappingProxyType({})

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a store that tell the units and the geographic columns."""
        features = [self.units.get(name, "") for name in self.features]
        targets = [self.units.get(name, "") for name in self.targets]
        optional: dict[str, Any] = {
            UNITS: targets if any(targets) else [],
            GEOGRAPHIC: [*self.geographic],
            CHOICES: {k: own[0] if len(own) == 1 else [*own] for k, own in self.choices.items()},
            CATEGORIES: {name: [*levels] for name, levels in self.categories.items()},
            REFERENCE: dict(self.reference),
        }
        return {FEATURE_UNITS: features} | {key: said for key, said in optional.items() if said}


def layout_of(url: str) -> Layout:
    """Return the layout of a dataset store.

    Raises
    ------
    StoreError
        If there is no such store, or it is unfinished for another reason than a killed append.
    """
    group = groups.open_group(url, "dataset")
    names = groups.names_in(url)
    if "X" not in names:
        raise StoreError(f"{url} is not a dataset store: it has no array X")
    if group.attrs.get("complete") is False and APPENDING not in group.attrs:
        raise StoreError(f"dataset {url} is incomplete: remove it and convert its source again")
    X = groups.array_of(group, "X")
    y = groups.array_of(group, "y") if "y" in names else None
    features = _names(group, "feature_names", "x", X.shape[1])
    if y is not None and APPENDING not in group.attrs:
        check_aligned({"X": X, "y": y}, f"dataset {url}")
    width = 0 if y is None else 1 if y.ndim == 1 else int(y.shape[1])
    targets = _names(group, "target_names", "y", width)
    units = _units(group, FEATURE_UNITS, features) | _units(group, UNITS, targets)
    said = FEATURE_UNITS in group.attrs or "uuid" not in group.attrs
    choices = group.attrs.get(CHOICES)
    known = choices if isinstance(choices, dict) else {}
    own = {name: _texts(known[name]) for name in NAMED if name in known}
    told = group.attrs.get(CATEGORIES)
    levels = stored(told) if told else {}
    system = reference_of(None, group.attrs.asdict())
    return Layout(features, targets, units, said, place_of(X) or (), own, levels, system)


def layout_like(url: str) -> Layout:
    """Return the layout of a dataset store, or that of the rows of a model in its store.

    Raises
    ------
    StoreError
        If there is neither, or it is unfinished.
    """
    group = groups.open_group(url, "dataset or model")
    if not groups.is_model(group.attrs):
        return layout_of(url)
    said: Mapping[str, Any] = models.read(url).attributes
    features, targets = tuple(said["feature_names"]), tuple(said["target_names"])
    pairs = [(features, said.get("feature_units")), (targets, said.get("target_units"))]
    units = {k: unit for names, own in pairs for k, unit in zip(names, own or (), strict=False)}
    place = tuple(features[j] for j in said.get(GEOGRAPHIC) or ())
    levels, system = stored(said.get(CATEGORIES)), said.get(REFERENCE) or {}
    return Layout(features, targets, units, True, place, {}, levels, system)


def _texts(own: Any) -> Names:
    return tuple(map(str, own)) if isinstance(own, list) else (str(own),)


def first_ends(url: str, kept: Layout, names: Collection[str]) -> np.ndarray:
    """Return the least and the largest values (2, names) of columns of a store in its first rows.

    Infinite ones stand for columns that are not among its features and targets, and for those of a
    model, which has no rows.
    """
    group, ends = groups.open_group(url, "dataset"), no_ends(len(names))
    present = groups.names_in(url)
    for key, columns in (("X", kept.features), ("y", kept.targets)):
        array = groups.array_of(group, key) if columns and key in present else None
        if array is not None and array.shape[0]:
            rows = reading.read(array, slice(0, min(groups.row_step(array), array.shape[0])))
            found = dict(zip(columns, rows.reshape(len(rows), -1).T, strict=True))
            for j, name in enumerate(names):
                if name in found:
                    add_ends(ends[:, j : j + 1], found[name][:, None])
    return ends


def _names(group: zarr.Group, key: str, prefix: str, width: int) -> Names:
    names = group.attrs.get(key)
    if isinstance(names, list) and len(names) == width:
        return tuple(str(name) for name in names)
    return ("y",) if width == 1 and prefix == "y" else tuple(f"{prefix}{j}" for j in range(width))


def _units(group: zarr.Group, key: str, names: Names) -> dict[str, str]:
    units = group.attrs.get(key)
    known = units if isinstance(units, list) and len(units) == len(names) else []
    return {name: str(unit) for name, unit in zip(names, known, strict=False) if unit}


def check_names(found: Layout, kept: Layout, url: str) -> None:
    """Raise InputError unless columns have the names of those of a store, in their order."""
    pairs = (("features", found.features, kept.features), ("targets", found.targets, kept.targets))
    for what, own, others in pairs:
        if own != others:
            raise InputError(
                f"{what} are {', '.join(own) or 'none'}, the dataset {url} has "
                f"{', '.join(others) or 'none'}: append the same columns"
            )


def match_units(
    units: Mapping[str, str], kinds: Mapping[str, Kind], kept: Layout, gridded: bool, url: str
) -> dict[str, str]:
    """Return the units of a store for columns with these units and kinds.

    Raises
    ------
    InputError
        If times are to become plain numbers, numbers times, or units differ.
    """
    matched = {name: kept.units.get(name, "") for name in kinds}
    for name, kind in kinds.items():
        own, said = units.get(name, ""), matched[name]
        if not kept.said and gridded and not said and kind == TIMES:
            said = matched[name] = DAYS  # those of earlier versions, which had no other times
        counted = feature_units.count_of(said) is not None
        if kind == TIMES and not counted:
            raise InputError(
                f"column {name!r} holds times, but plain numbers in the dataset {url}: if they "
                f'count days, write "{DAYS}" into its attribute {FEATURE_UNITS}'
            )
        if (
            kind == NUMBERS
            and counted
            and feature_units.count_of(feature_units.counted(own)) is None
        ):
            raise InputError(
                f"column {name!r} holds numbers, but times in the dataset {url} ({said}): give "
                "times"
            )
        try:
            feature_units.conversion(own, said)
        except ValueError as error:
            raise InputError(
                f"column {name!r} is in {own}, but in {said} in the dataset {url}: {error}"
            ) from error
    return matched
