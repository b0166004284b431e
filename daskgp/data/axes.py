"""Grids that do not exist yet: axes from resolutions and extents, or from another grid."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr

from daskgp.checks import shown
from daskgp.data import crs, expected, feature_units, gridded, grids, whole_dates
from daskgp.data.grids import Names
from daskgp.errors import InputError, SettingError
from daskgp.models.columns import LATITUDES, LONGITUDES
from daskgp.models.fills import Limits

SPHERE = (
    {"standard_name": "longitude", "units": "degrees_east"},
    {"standard_name": "latitude", "units": "degrees_north"},
)
"""Attributes of longitude and latitude."""
HALVES = (-180.0, 180.0)
"""Degrees of the western and the eastern half of the globe."""
EAST, NORTH = ("lon", "longitude", "x", "easting"), ("lat", "latitude", "y", "northing")
"""Names of the last two dimensions of a map."""
Pairs = Mapping[str, Any]
EPOCH = np.datetime64("1970-01-01")
MOST = 10_000_000
"""Most values along one axis, which are held in memory."""


def make(
    features: tuple[str, ...],
    resolution: Mapping[str, float],
    extent: Pairs,
    ranges: Pairs,
    like: Any = None,
    units: tuple[str, ...] = (),
    geographic: tuple[str, ...] = (),
    reference: Pairs = MappingProxyType({}),
) -> xr.Dataset:
    """Return a grid whose axes are features.

    Dimensions have the order of those of ``like``, after the others, which have that of the
    features, but longitude or x comes last and latitude or y before it, as CF maps have them,
    unless ``like`` has both in another order.

    Parameters
    ----------
    features : tuple of str
        Names of the axes.
    resolution : mapping of str to float
        Steps of axes.
    extent : mapping of str to (low, high) or one value
        Ends of axes, of times also as dates, such as "2021-03-04" or 20210304; an axis begins at
        the lower one and does not go beyond the other.  A feature without a step has one value,
        where both are the same.
    ranges : mapping of str to (low, high)
        Ranges of the features that ``extent`` does not name: their axes have the multiples of the
        step that cover them, and no meridian twice.
    like : str, DataArray or Dataset, optional
        Grid whose coordinates are the axes of features without a step or an extent, and whose
        variables are their values, such as an elevation.
    units : tuple of str
        Units of the features, which new axes say in their attributes; none if they are not known.
    geographic : tuple of str
        Features that are longitude and latitude; axes end where the sphere does.
    reference : mapping
        What says the coordinate reference system of the features, which the grid says too; none if
        it is not known, where the grid has that of ``like``.

    Raises
    ------
    SettingError, InputError
        If a name is unknown, nothing says what the axis of a feature is, or ``like`` is in another
        coordinate reference system.
    """
    for what, named in (("resolution", resolution), ("extent", extent)):
        if not isinstance(named, Mapping):
            raise SettingError(
                f"{what}={shown(named)}: give a dictionary by feature, of {', '.join(features)}"
            )
        unknown = [name for name in named if name not in features]
        if unknown:
            raise SettingError(
                f"{what} names {unknown[0]!r}, which is not a feature: choose among "
                f"{', '.join(features)}"
            )
    resolution = {name: _step(name, given) for name, given in resolution.items()}
    units = units or ("",) * len(features)
    attributes = {
        name: feature_units.attributes_of(unit) for name, unit in zip(features, units, strict=True)
    }
    attributes |= dict(zip(geographic, SPHERE, strict=bool(geographic)))
    own = dict(zip(features, units, strict=True))
    extent = {name: _ends(name, given, own[name]) for name, given in extent.items()}
    found, dims, said = ({}, (), {}) if like is None else _coordinates(features, like)
    crs.refuse_other(said, reference, "the grid", "the data")
    taken = {name: found[name].variable for name in found if name not in {*resolution, *extent}}
    variables = {name: taken.pop(name) for name in [*taken] if name not in found[name].coords}
    remaining = {dim for own in taken.values() for dim in own.dims}
    anew = {name: {name} for name in (*resolution, *extent)}
    for name in (name for name in anew if name in found and name in found[name].coords):
        anew[name] |= {*map(str, {*found[name].dims} - remaining)}
    _check_dims(variables, anew)
    axial = [name for name in features if name not in taken and name not in variables]
    ends = {name: extent.get(name, ranges.get(name)) for name in features}
    _check_ends({name: ends[name] for name in axial}, resolution)
    for name, (least, most) in zip(geographic, (LONGITUDES, LATITUDES), strict=bool(geographic)):
        low, high = extent.get(name, (least, most))
        if low < least or high > most:
            raise SettingError(
                f"extent of {name!r} is {low:g} to {high:g}, but its degrees go from {least:g} to "
                f"{most:g}: give ends between these"
            )
    axes = {
        name: (
            name,
            _axis(name, resolution.get(name), ends[name], unit, whole=name not in extent),
            attributes[name],
        )
        for name, unit in zip(features, units, strict=True)
        if name in axial
    }
    known: dict[str, Any] = axes | taken
    order = _ordered([name for name in axes if name not in dims], dims, geographic)
    made = xr.Dataset(coords={name: known[name] for name in (*order, *known) if name in known})
    for name in geographic:
        if name in axial and name not in extent and made.sizes[name] > 1:
            limits = LATITUDES
            if name == geographic[0]:
                limits = HALVES if ranges[name][1] <= HALVES[1] else LONGITUDES
            axis = made[name].values
            kept = (axis >= limits[0]) & (axis <= limits[1])
            kept &= axis < axis[kept].min(initial=limits[1]) + 360.0  # no meridian twice
            made = made.sel({name: kept})
    system = dict(reference) or said
    made = made.assign_coords({crs.NAME: ((), 0, system)}) if system else made
    return made.assign_coords(variables)


def _check_dims(variables: Mapping[str, xr.Variable], anew: Mapping[str, set[str]]) -> None:
    """Raise SettingError for a variable of another grid along an axis that is made anew.

    ``anew`` are the dimensions that features with new axes had, and no other has.
    """
    for name, values in variables.items():
        dims = [*map(str, values.dims)]
        given = sorted(feature for feature, own in anew.items() if own & {*dims})
        if given:
            raise SettingError(
                f"like has {name!r} along {_listed(dims)}, and a resolution or extent of "
                f"{_listed(given)} makes another axis: leave it out, or give the extent of {name!r}"
            )


def _check_ends(ends: Mapping[str, Limits | None], resolution: Mapping[str, float]) -> None:
    """Raise an error that names everything that is missing for axes with these ends."""
    unknown = [name for name, own in ends.items() if own is None]
    wide = [name for name, own in ends.items() if own is None or own[0] < own[1]]
    stepless = [name for name in wide if name not in resolution]
    lacking = []
    if unknown:
        pairs = ", ".join(f"{name!r}: (low, high)" for name in unknown)
        flags = ",".join(f"{name}=LOW:HIGH" for name in unknown)
        lacking.append(
            f"the range of {_listed(unknown)} is not known, because the model was stored without "
            "the ranges of its training data, by an earlier version of daskgp: give "
            f"extent={{{pairs}}} (--extent {flags})"
        )
    if stepless:
        steps = ",".join(f"{name}=STEP" for name in stepless)
        single = ",".join(f"{name}=VALUE" for name in stepless)
        lacking.append(
            f"no values of {_listed(stepless)} are given: give a resolution, one value as its "
            f"extent, or a grid that has it (--resolution {steps}, --extent {single}, --like GRID)"
        )
    if lacking:
        raise (InputError if unknown else SettingError)("; and ".join(lacking))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _coordinates(
    features: tuple[str, ...], like: Any
) -> tuple[dict[str, xr.DataArray], Names, dict[str, Any]]:
    """Return the coordinates and variables of another grid that are features, and its dimensions.

    The latter are in order.  And what says its coordinate reference system.  Variables of an
    address are read.
    """
    with ExitStack() as stack:
        grid = like
        if not grids.is_xarray(like):
            stack.enter_context(gridded.readable(str(like)))
            grid = stack.enter_context(gridded.open_grid(str(like), features))
        found = {name: grid.coords[name].load() for name in features if name in grid.coords}
        if isinstance(grid, xr.Dataset):
            inside = [name for name in features if name in grid.data_vars]
            found |= {
                name: grid[name].load() if grid is not like else grid[name] for name in inside
            }
        system = crs.carried(grids.reference_of(grid)[1])
        return found, tuple(map(str, grids.dims_of(grid))), system


def _ordered(new: Sequence[str], dims: Names, geographic: Sequence[str]) -> list[str]:
    """Return new axes and those of another grid in the order of a map."""
    sides = {*geographic[:1], *EAST}, {*geographic[1:], *NORTH}
    spelt = {name: {name, name.lower()} for name in (*new, *dims)}
    keys = {name: tuple(bool(own & side) for side in sides) for name, own in spelt.items()}
    order = [*sorted(new, key=lambda name: keys[name]), *dims]
    settled = {keys[name] for name in dims} >= {(True, False), (False, True)}
    return order if settled else sorted(order, key=lambda name: keys[name])


def _step(name: str, given: Any) -> float:
    """Return a step as a number; SettingError for anything else."""
    try:
        number = None if isinstance(given, str | np.timedelta64) else float(given)
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise SettingError(
            f"resolution of {name!r} is {shown(given)}: give a number in the unit of the feature, "
            "such as 1 for a day or 0.25 for six hours of a time in days"
        )
    return number


def _ends(name: str, given: Any, unit: str) -> Limits:
    """Return the ends of an extent, which may be one value, as numbers."""
    one = isinstance(given, str) or not isinstance(given, Sequence | np.ndarray)
    one = one or getattr(given, "ndim", 1) == 0
    if not one and len(given) != 2:
        raise SettingError(
            f"extent of {name!r} is {shown(given)}: give two ends, (low, high), or one value"
        )
    low, high = (given, given) if one else given
    return _end(name, low, unit), _end(name, high, unit)


def _end(name: str, value: Any, unit: str) -> float:
    """Return an end of an axis as a number; dates as what the unit counts.

    Whole numbers are taken for dates where those of rows are, and of all times where they count
    beyond the year 3000.  A text of four digits is a year.

    >>> _end("t", 20210301, "days since 1970-01-01"), _end("t", 18687, "days since 1970-01-01")
    (18687.0, 18687.0)
    """
    count = feature_units.count_of(unit)
    year = count is not None and isinstance(value, str) and re.fullmatch(r"\d{4}", value)
    try:
        number = None if year or isinstance(value, np.datetime64) else float(value)
    except (TypeError, ValueError):
        number = None
    if number is not None and (count is None or not np.isfinite(number)):
        return number
    if number is not None and count is not None:
        counted = number / count.per_day + count.origin
        far = abs(counted) >= feature_units.MOST_DAYS
        dated = counted > expected.LATEST or unit == feature_units.DAYS
        form = whole_dates.form_of(np.array([number])) if dated else None
        if form is not None:
            days = float(whole_dates.days_of(np.array([number]), form, count.calendar)[0])
            return (days - count.origin) * count.per_day
        if far:
            raise SettingError(
                f"extent of {name!r} has {shown(value)}, which is not a date and far beyond the "
                "year "
                f"9999 as a number ({unit}): give a date such as 2021-03-04 or 20210304"
            )
        return number
    wanted = f"a number{f' ({unit})' if unit else ''}"
    if count is not None:
        wanted += " or a date such as 2021-03-04T05:06"
    try:
        date = np.datetime64(value, "ns")
    except (TypeError, ValueError):
        raise SettingError(f"extent of {name!r} has {shown(value)}: give {wanted}") from None
    days = np.nan if count is None else _days(date, count.calendar)
    if count is None or np.isnan(days):
        raise SettingError(f"extent of {name!r} has the date {shown(value)}: give {wanted}")
    return (days - count.origin) * count.per_day


def _days(date: np.datetime64, calendar: str) -> float:
    """Return a date as days since 1970-01-01 in a calendar; NaN for a day that it lacks."""
    day = date.astype("M8[D]")
    begin, clock = (float(part / np.timedelta64(1, "D")) for part in (day - EPOCH, date - day))
    if calendar and not np.isnat(day):
        number = np.array([int(str(day).replace("-", ""))])
        begin = float(whole_dates.days_of(number, whole_dates.FORMS[0], calendar)[0])
    return begin + clock


def _axis(name: str, step: float | None, ends: Limits | None, unit: str, whole: bool) -> np.ndarray:
    """Return the values of an axis, whose ends are known; those that cover a ``whole`` range."""
    assert ends is not None
    low, high = ends
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        longitudes = feature_units.count_of(unit) is None and -360.0 <= high < low <= 360.0
        across = " (across the date line 170:190)" if longitudes else ""
        low_text, high_text = (feature_units.text_of(end, unit) for end in ends)
        raise SettingError(
            f"extent of {name!r} is {low_text} to {high_text}: give finite ends, the lower one "
            f"first{across}"
        )
    if low == high:
        return np.array([low])
    assert step is not None
    if not (np.isfinite(step) and step > 0 and (high - low) / step < MOST):
        raise SettingError(
            f"resolution of {name!r} is {step:g} over {high - low:g}: give a positive step that "
            f"makes at most {MOST:,} values"
        )
    tiny = 1e-9
    first, last = low / step, high / step
    if whole:
        number = np.arange(np.floor(first + tiny), np.ceil(last - tiny) + 1)
        return _rounded(number * step, step)
    number = np.arange(np.floor(last - first + tiny) + 1)
    if abs(first - np.round(first)) <= tiny:
        return _rounded((np.round(first) + number) * step, step)
    return _rounded(low + number * step, low, step)


ROUNDED = 12
"""Most decimals that ends and steps are written with by hand."""


def _rounded(values: np.ndarray, *given: float) -> np.ndarray:
    """Return values (n,) with the decimals of what they are made of, if these are few.

    >>> (463 * np.array([0.1])).item(), _rounded(463 * np.array([0.1]), 0.1).item()
    (46.300000000000004, 46.3)
    """
    decimals = max(-int(Decimal(repr(float(one))).as_tuple().exponent) for one in given)
    return np.round(values, max(decimals, 0)) if decimals <= ROUNDED else values
