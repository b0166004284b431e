"""Grids that do not exist yet: axes from resolutions and extents, or from another grid."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr

from daskgp.checks import shown
from daskgp.data import feature_units, gridded, grids, whole_dates
from daskgp.data.grids import Names
from daskgp.errors import InputError, SettingError
from daskgp.models.columns import LATITUDES, LONGITUDES

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
        Grid whose coordinates are the axes of features without a step or an extent.
    units : tuple of str
        Units of the features, which new axes say in their attributes; none if they are not known.
    geographic : tuple of str
        Features that are longitude and latitude; axes end where the sphere does.

    Raises
    ------
    SettingError, InputError
        If a name is unknown, or nothing says what the axis of a feature is.
    """
    for what, named in (("resolution", resolution), ("extent", extent)):
        unknown = [name for name in named if name not in features]
        if unknown:
            raise SettingError(
                f"{what} names {unknown[0]!r}, but the features are {', '.join(features)}"
            )
    units = units or ("",) * len(features)
    attributes = {
        name: feature_units.attributes_of(unit) for name, unit in zip(features, units, strict=True)
    }
    attributes |= dict(zip(geographic, SPHERE, strict=bool(geographic)))
    own = dict(zip(features, units, strict=True))
    extent = {
        name: [_read(name, end, own[name]) for end in _pair(ends)] for name, ends in extent.items()
    }
    found, dims = ({}, ()) if like is None else _coordinates(features, like)
    taken = {name: found[name].variable for name in found if name not in {*resolution, *extent}}
    ends = {name: extent.get(name, ranges.get(name)) for name in features}
    _check_ends(
        {name: unit for name, unit in zip(features, units, strict=True) if name not in taken},
        ends,
        resolution,
    )
    for name, limits in zip(geographic, (LONGITUDES, LATITUDES), strict=bool(geographic)):
        if name in extent:
            _check_degrees(name, extent[name], limits)
    axes = {
        name: (
            name,
            _axis(name, resolution.get(name), ends[name], unit, whole=name not in extent),
            attributes[name],
        )
        for name, unit in zip(features, units, strict=True)
        if name not in taken
    }
    known: dict[str, Any] = axes | taken
    order = _ordered([name for name in axes if name not in dims], dims, geographic)
    made = xr.Dataset(coords={name: known[name] for name in (*order, *known) if name in known})
    for name in geographic:
        if name not in taken and name not in extent and made.sizes[name] > 1:
            limits = LATITUDES
            if name == geographic[0]:
                limits = HALVES if ranges[name][1] <= HALVES[1] else LONGITUDES
            made = made.sel({name: _on_the_globe(made[name].values, limits)})
    return made


def _check_ends(
    features: Mapping[str, str],
    ends: Mapping[str, Any],
    resolution: Mapping[str, float],
) -> None:
    """Raise an error that names everything that is missing for the axes of features with units."""
    unknown = [name for name in features if ends[name] is None]
    stepless = [
        name
        for name, unit in features.items()
        if name not in resolution and (name in unknown or _is_long(name, ends[name], unit))
    ]
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


def _check_degrees(name: str, ends: Sequence[Any], limits: tuple[float, float]) -> None:
    """Raise SettingError for an extent that leaves the globe."""
    low, high = (_end(name, end, "") for end in ends)
    if low < limits[0] or high > limits[1]:
        raise SettingError(
            f"extent of {name!r} is {low:g} to {high:g}, but its degrees go from {limits[0]:g} to "
            f"{limits[1]:g}: give ends between these"
        )


def _on_the_globe(axis: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Return flags of the values within limits in degrees, of no meridian twice."""
    kept = (axis >= limits[0]) & (axis <= limits[1])
    return kept & (axis < axis[kept].min(initial=limits[1]) + 360.0)


def _is_long(name: str, ends: Sequence[Any], unit: str) -> bool:
    """Return whether an axis needs a step: one of its ends is above the other."""
    low, high = (_end(name, end, unit) for end in ends)
    return low < high


def _is_in(name: str, names: Collection[str]) -> bool:
    return name in names or name.lower() in names


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _coordinates(features: tuple[str, ...], like: Any) -> tuple[dict[str, xr.DataArray], Names]:
    """Return the coordinates of another grid that are features, and its dimensions in order."""
    if grids.is_xarray(like):
        return _loaded(features, like)
    with gridded.readable(str(like)), gridded.open_grid(str(like)) as grid:
        return _loaded(features, grid)


def _loaded(features: tuple[str, ...], grid: Any) -> tuple[dict[str, xr.DataArray], Names]:
    found = {name: grid.coords[name].load() for name in features if name in grid.coords}
    return found, tuple(map(str, grids.dims_of(grid)))


def _ordered(new: Sequence[str], dims: Names, geographic: Sequence[str]) -> list[str]:
    """Return new axes and those of another grid in the order of a map."""
    east, north = {*geographic[:1], *EAST}, {*geographic[1:], *NORTH}
    keys = {name: (_is_in(name, east), _is_in(name, north)) for name in (*new, *dims)}
    order = [*sorted(new, key=lambda name: keys[name]), *dims]
    settled = {keys[name] for name in dims} >= {(True, False), (False, True)}
    return order if settled else sorted(order, key=lambda name: keys[name])


def _pair(ends: Any) -> Sequence[Any]:
    """Return the ends of an extent, which may be one value."""
    one = isinstance(ends, str) or not isinstance(ends, Sequence | np.ndarray)
    return (ends, ends) if one else ends


def _end(name: str, value: Any, unit: str) -> float:
    """Return an end of an axis as a number; dates as what the unit counts."""
    if not isinstance(value, np.datetime64):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    count = feature_units.count_of(unit)
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


def _read(name: str, end: Any, unit: str) -> Any:
    """Return an end of an extent as it is, but dates written as whole numbers as times.

    Numbers are taken for dates where those of rows are; and of all times where they count none of
    four digits of years.

    >>> _read("t", 20210301, "days since 1970-01-01"), _read("t", 18687, "days since 1970-01-01")
    (np.datetime64('2021-03-01T00:00:00'), 18687)
    """
    count = feature_units.count_of(unit)
    try:
        number = float(end)
    except (TypeError, ValueError):
        return end
    if count is None or isinstance(end, np.datetime64) or not np.isfinite(number):
        return end
    far = abs(number / count.per_day + count.origin) >= feature_units.MOST_DAYS
    form = whole_dates.form_of(np.array([number])) if far or unit == feature_units.DAYS else None
    if form is not None:
        days = float(whole_dates.days_of(np.array([number]), form, count.calendar)[0])
        usual = np.datetime64(round(days * 86_400), "s") if np.isfinite(days) else days
        return (days - count.origin) * count.per_day if count.calendar else usual
    if far:
        raise SettingError(
            f"extent of {name!r} has {shown(end)}, which is no date and far beyond the year 9999 "
            f"as a number ({unit}): give a date such as 2021-03-04 or 20210304"
        )
    return end


def _axis(
    name: str, step: float | None, ends: Sequence[Any] | None, unit: str, whole: bool
) -> np.ndarray:
    """Return the values of an axis, whose ends are known; those that cover a ``whole`` range."""
    assert ends is not None
    low, high = (_end(name, end, unit) for end in ends)
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        longitudes = feature_units.count_of(unit) is None and -360.0 <= high < low <= 360.0
        across = " (across the date line 170:190)" if longitudes else ""
        said = " to ".join(f"{end:g}" if isinstance(end, Real) else str(end) for end in ends)
        raise SettingError(
            f"extent of {name!r} is {said}: give finite ends, the lower one first{across}"
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
        return np.arange(np.floor(first + tiny), np.ceil(last - tiny) + 1) * step
    number = np.arange(np.floor(last - first + tiny) + 1)
    if abs(first - np.round(first)) <= tiny:
        return (np.round(first) + number) * step
    return low + number * step
