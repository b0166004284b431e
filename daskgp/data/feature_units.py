"""Units of features: times counted from an origin in a calendar, and other units as texts.

A feature of times is a number of days, hours, minutes or seconds: ``"hours since 2000-01-01"``, in
another calendar than NumPy's ``"days since 1970-01-01 (noleap)"``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from daskgp.data import whole_dates
from daskgp.errors import InputError

logger: logging.Logger = logging.getLogger("daskgp")

DAYS = "days since 1970-01-01"
"""Units of times that are not numbers, wherever they are read."""
MOST_DAYS = 2_900_000
"""Days from 1970 to the last dates of four digits."""

DURATIONS = {
    "days": (r"(?i:days?|d)", 1.0),
    "hours": (r"(?i:hours?|hrs?|h)", 24.0),
    "minutes": (r"(?i:minutes?|mins?)", 1440.0),
    "seconds": (r"(?i:seconds?|secs?|s)", 86_400.0),
    "milliseconds": (r"(?i:milliseconds?|millisecs?|msecs?)|ms", 8.64e7),
    "microseconds": (r"(?i:microseconds?|microsecs?)|us|µs", 8.64e10),
}
"""Spellings of units of time, as the CF conventions and UDUNITS have them, and how many a day."""
COUNT = (
    r"({}) since ".format("|".join(spelt for spelt, _ in DURATIONS.values()))
    + r"(\d{1,4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?)(?::(\d\d?)(?::(\d\d?)(?:\.\d*)?)?)?)?"
    r"(?: ?(?:UTC|GMT|Z|[+-]0?0(?::?00)?))?(?: \((\w+)\))?"
)
USUAL = ("standard", "gregorian", "proleptic_gregorian")
"""Calendars in which a day since 1970 is that of NumPy."""
FIRST_GREGORIAN = (1582, 10, 15)
"""Days before it have other dates in calendars that call themselves the same."""

SPELLINGS = {
    "m": r"(?i:met(er|re)s?)",
    "km": r"(?i:kilomet(er|re)s?)",
    "cm": r"(?i:centimet(er|re)s?)",
    "mm": r"(?i:millimet(er|re)s?)",
    "um": r"(?i:micromet(er|re)s?|microns?)|[µμ]m",
    "ft": r"(?i:feet|foot|international_f(ee|oo)t)",
    "nmile": r"(?i:nautical[_ ]miles?)|nmi",
    "K": r"(?i:kelvins?|deg(ree)?s?[_ ]?k(elvins?)?|°K)",
    "degC": r"(?i:celsius|deg(ree)?s?[_ ]?c(elsius)?|°C)|C",
    "hPa": r"(?i:mbars?|millibars?|hectopascals?)|mb",
    "Pa": r"(?i:pascals?)",
    "degrees_east": r"(?i:degrees?[_ ]?(east|E))",
    "degrees_north": r"(?i:degrees?[_ ]?(north|N))",
    "degrees": r"(?i:degree|deg|arc_?degrees?|angular_degrees?)|°",
    "radians": r"(?i:radian|rad)",
    "%": r"(?i:per[_ ]?cent|pct)",
    "1": r"(?i:none|dimensionless|unitless|fraction)|[-~]|\(0 ?- ?1\)",
} | {plain: spelt for plain, (spelt, _) in DURATIONS.items()}
"""Other spellings of units, by those that are compared."""
FACTOR = r"[ .*·]*(/?) *([^\W\d]+|%|°\w*)([+-]?\d+)?"
"""Factor of a product of units: m s-1, m s**-1 and m/s are the same."""
VAGUE = ("", "1")
"""Units that say little: nothing, or that there is none, as many files do that know of none."""


class Change(Protocol):
    """Change of the values of a column into those of a model."""

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the values (n,) of the model."""


class Conversion(NamedTuple):
    """Shift and factor, by which (value - shift) * factor is in the other unit.

    Dates written as whole numbers, of a form ``dates``, are first counted in days.
    """

    shift: float
    factor: float
    dates: whole_dates.Read | None = None

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return values in the other unit; NaN for numbers that are no dates."""
        if self.dates is not None:
            values = whole_dates.days_of(values, *self.dates)
        return (values - self.shift) * self.factor


class Count(NamedTuple):
    """A count of times: how many a day, days from 1970-01-01 to its origin, and its calendar."""

    per_day: float
    origin: float
    calendar: str


def count_of(unit: str) -> Count | None:
    """Return the count of times that a unit is, None for other units."""
    found = re.fullmatch(COUNT, unit)
    if found is None:
        return None
    date = [int(part or 0) for part in found.groups()[1:7]]
    calendar = found[8] or ""
    if not calendar:
        if tuple(date[:3]) < FIRST_GREGORIAN:
            return None
        year, *rest = date
        text = "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}".format(year, *rest)
        try:
            origin = float((np.datetime64(text) - np.datetime64(0, "s")) / np.timedelta64(1, "D"))
        except ValueError:  # no such day
            return None
    else:
        made = cftime_for(f"times in {unit!r}").datetime(*date, calendar=calendar)
        origin = float(days_of(np.array([made]))[0])
    rates = (rate for spelt, rate in DURATIONS.values() if re.fullmatch(spelt, found[1]))
    return Count(next(rates), origin, calendar)


def said_by(attributes: Mapping[str, Any]) -> str:
    """Return the unit that CF attributes say, with the calendar of times; empty if they do not."""
    unit, calendar = attributes.get("units", ""), str(attributes.get("calendar", "")).lower()
    if not isinstance(unit, str):
        return ""
    return in_calendar(unit, calendar) if is_dated(unit) else unit


def is_dated(unit: str) -> bool:
    """Return whether a unit is that of times, whose calendar matters."""
    return " since " in unit or whole_dates.read(unit) is not None


def counted(unit: str) -> str:
    """Return the unit that values in a unit are read in: dates as whole numbers become days.

    >>> counted("day as %Y%m%d.%f"), counted("m")
    ('days since 1970-01-01', 'm')
    """
    dates = whole_dates.read(unit)
    return unit if dates is None else in_calendar(DAYS, dates[1])


def attributes_of(unit: str) -> dict[str, str]:
    """Return the CF attributes of a unit, none for an unknown one."""
    plain, _, calendar = unit.partition(" (")
    if not calendar or not is_dated(plain):
        return {"units": unit} if unit else {}
    return {"units": plain, "calendar": calendar.removesuffix(")")}


def in_calendar(unit: str, calendar: str) -> str:
    """Return the unit of a count of times in a calendar, which is left out if it is the usual."""
    other = {"365_day": "noleap", "366_day": "all_leap"}.get(calendar, calendar)
    return unit if not other or other in USUAL else f"{unit} ({other})"


def calendar_of(values: Any) -> str | None:
    """Return the calendar of an array of dates of cftime, None for all else."""
    if getattr(getattr(values, "dtype", None), "kind", "") != "O":
        return None
    dates = (value for value in np.asarray(values).ravel() if not _missing(value))
    calendar = getattr(next(dates, None), "calendar", None)
    return calendar if isinstance(calendar, str) else None


def days_of(dates: np.ndarray) -> np.ndarray:
    """Return dates of cftime as days since 1970-01-01 in their calendar; NaN for missing ones."""
    calendar, days = calendar_of(dates) or "standard", np.full(dates.shape, np.nan)
    known = np.array([not _missing(date) for date in dates.ravel()], bool).reshape(dates.shape)
    days[known] = cftime_for("dates").date2num(dates[known], DAYS, calendar=calendar)
    return days


def _missing(date: Any) -> bool:
    return date is None or date is np.ma.masked or date != date


def unread(name: Any, unit: str) -> str:
    """Return what messages say of times in a unit that cannot be read."""
    return (
        f"times {name!r} are in {unit!r}, which cannot be read: write them as days, hours, minutes "
        "or seconds since a date, such as 'days since 2000-01-01' (months and years differ in "
        "length), or as plain numbers by a unit without 'since'"
    )


def cftime_for(what: str) -> Any:
    """Return the package cftime; InputError if it is missing."""
    try:
        import cftime
    except ImportError as error:
        raise InputError(
            f"{what} of other calendars than the usual one need the package cftime: install it "
            "with pip install cftime"
        ) from error
    return cftime


def conversion(own: str, wanted: str) -> Conversion | None:
    """Return what turns counts of times into others, None if nothing is to be done.

    Raises
    ------
    ValueError
        If the units do not go together; the message is what to do.
    """
    if own == wanted or not own or not wanted:
        return None
    dates, other = whole_dates.read(own), count_of(wanted)
    mine = count_of(own if other is None else counted(own))
    if mine is None or other is None:
        if mine is None and other is None and alike(own, wanted):
            return None
        raise ValueError("convert it, or correct the stated unit")
    if mine.calendar != other.calendar:
        raise ValueError("convert its times to that calendar with xarray's convert_calendar")
    if mine == other and dates is None:
        return None
    shift, factor = (other.origin - mine.origin) * mine.per_day, other.per_day / mine.per_day
    return Conversion(shift, factor, dates)


FACTORS = {1000.0: np.inf, float(np.degrees(1.0)): 360.0}
"""Ratios of units, m and km, degrees and radians, with the largest number of the smaller unit."""
OF_WARMTH = ("", "K", "degC")
OF_ANGLES = ("", "degrees", "radians", "degrees_east", "degrees_north")
"""Plain units that may be mistaken for each other, and that which is not known."""
SHARE = 6.0
"""Part of a factor by which ranges have to be apart."""
KELVIN, CELSIUS = (180.0, 340.0), (-93.15, 66.85)
"""Temperatures on the Earth."""


LONGITUDES = ("lon", "longitude", "lng")
"""Names of columns whose values may be 360 apart and mean the same."""
APART = (
    "%r of %s goes from %.6g to %.6g, in %s from %.6g to %.6g, %s: check these rows, unless these "
    "are its values"
)


def warn_of_changes(
    columns: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    what: str,
    where: str,
    far: bool = True,
    told: Collection[str] = (),
    place: Collection[str] = (),
) -> None:
    """Warn of columns wholly apart from rows before: in another unit, swapped, or far from them.

    Parameters
    ----------
    columns : mapping
        Ranges of the rows and of those before, by name.
    what, where : str
        What messages call the rows, and those before.
    far : bool
        Whether columns are told that are further away than the range of the rows before.
    told : collection of str
        Columns of which another unit is told elsewhere.
    place : collection of str
        Columns of a place on the sphere, where longitudes that are 360 apart are the same.
    """
    ranges = {
        name: (own, before)
        for name, (own, before) in columns.items()
        if own[0] <= own[1] and before[0] <= before[1]  # not across the date line
    }
    for name, (own, before) in ranges.items():
        if _overlap(own, before):
            continue
        if name in place or name.lower() in LONGITUDES:
            turned = [d for d in (-360.0, 360.0) if _overlap([own[0] + d, own[1] + d], before)]
            if turned and name not in place:
                how = f"about 360 {'higher' if turned[0] < 0 else 'lower'}, as in another range"
                logger.warning(APART, name, what, *own, where, *before, how)
            if turned:
                continue
        if name in told and other_unit(own, before) is not None:
            continue
        if name not in told and warn_of_other(name, own, before, what, where):
            continue
        swapped = [
            other
            for other, (theirs, those) in ranges.items()
            if _overlap(own, those) and _overlap(theirs, before) and not _overlap(theirs, those)
        ]
        gap = max(own[0] - before[1], before[0] - own[1])
        if swapped:
            how = f"as if it were swapped with {swapped[0]!r}"
        elif far and gap > before[1] - before[0] > 0.0:
            how = "apart from these by more than their whole range"
        else:
            continue
        logger.warning(APART, name, what, *own, where, *before, how)


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def warn_of_other(
    name: str,
    own: Sequence[float],
    before: Sequence[float],
    what: str,
    where: str,
    unit: str = "",
) -> bool:
    """Warn of values wholly apart from those before that lie among them in another unit.

    ``own`` and ``before`` are ranges, ``what`` and ``where`` what messages call the rows of both,
    and ``unit`` that of those before, if it is known.  Return whether there are any.
    """
    how = other_unit(own, before, unit)
    if how is not None:
        logger.warning(
            "%r of %s goes from %.6g to %.6g, in %s from %.6g to %.6g, %s, as in another unit: "
            "convert it, unless these are its values",
            *(name, what, *own, where, *before, how),
        )
    return how is not None


def other_unit(own: Sequence[float], before: Sequence[float], unit: str = "") -> str | None:
    """Return how values lie among those before in another unit, by ranges; None if they do not.

    Those before may be known to have a ``unit``, of which others are likely: no pressure in hPa is
    a temperature.
    """
    own, before = tuple(map(float, own)), tuple(map(float, before))  # whose product may overflow
    if _overlap(own, before):
        return None
    (least, most), (near, far) = (sorted(map(abs, ends)) for ends in (own, before))
    ways: dict[str, tuple[float, float]] = {}
    known = "" if unit in VAGUE else plain(unit)
    warm = known in OF_WARMTH
    if warm and _within(own, KELVIN) and _within(before, CELSIUS):
        ways["about 273.15 higher"] = (1.0, CELSIUS[0] - KELVIN[0])
    if warm and _within(own, CELSIUS) and _within(before, KELVIN):
        ways["about 273.15 lower"] = (1.0, KELVIN[0] - CELSIUS[0])
    signed = all(low > 0.0 or high < 0.0 for low, high in (own, before))
    for factor, largest in _factors(known) if signed else ():
        if least >= factor / SHARE * far and most <= largest:
            ways[f"about {factor:.4g} times as large"] = (1.0 / factor, 0.0)
        if near >= factor / SHARE * most and far <= largest:
            ways[f"about {factor:.4g} times as small"] = (factor, 0.0)
    for how, (factor, shift) in ways.items():
        low, high = (end * factor + shift for end in own)
        shared = min(high, before[1]) - max(low, before[0])
        if shared > 0.5 * (high - low) or before[0] < low == high < before[1]:
            return how
    return None


def _factors(unit: str) -> list[tuple[float, float]]:
    """Return those of `FACTORS` that are likely of a plain unit."""
    metres, degrees = FACTORS.items()
    of_metres = [] if unit and unit in (*OF_ANGLES, *OF_WARMTH) else [metres]
    return [*of_metres, *([degrees] if unit in OF_ANGLES else [])]


def _within(own: Sequence[float], ends: tuple[float, float]) -> bool:
    return ends[0] <= own[0] and own[1] <= ends[1]


def of_differences(unit: str) -> str:
    """Return the unit of differences of a feature: those of times are days, hours and the like.

    >>> of_differences("days since 1970-01-01"), of_differences("m")
    ('days', 'm')
    """
    return unit.partition(" since ")[0]


def alike(own: str, wanted: str) -> bool:
    """Return whether two units that are no counts of times do not contradict each other."""
    one, two = plain(own), plain(wanted)
    vague = (one in VAGUE or two in VAGUE) and {one, two} != {"1", "%"}
    return one == two or vague or {one, two} in ANGLES


def plain(unit: str) -> str:
    """Return the spelling of a unit by which it is compared.

    >>> plain("Metres"), plain("kg/m^2/hour"), plain("percent")
    ('m', 'hours-1 kg m-2', '%')
    """
    text = re.sub(r"\*\*|\^", "", unit.strip().replace("μ", "µ"))
    if _spelt(text) == text and re.fullmatch(f"(1 *(?=/))?({FACTOR})+", text):
        found = [(_spelt(name), over, power) for over, name, power in re.findall(FACTOR, text)]
        powers = [(name, int(power or 1) * (-1 if over else 1)) for name, over, power in found]
        text = " ".join(sorted(name + f"{power}" * (power != 1) for name, power in powers))
    return _spelt(text)


def _spelt(unit: str) -> str:
    return next((usual for usual, more in SPELLINGS.items() if re.fullmatch(more, unit)), unit)


ANGLES = ({"degrees", "degrees_east"}, {"degrees", "degrees_north"})
"""Units of which one is said with less."""
DEGREES = ("degrees_east", "degrees_north")
"""Units of longitude and latitude."""
NO_DEGREES = ("radians", "m", "km", "cm", "mm", "ft", "nmile")
"""Units in which no longitude or latitude is taken."""


def refuse_no_degrees(names: Sequence[str], units: Sequence[str], place: Sequence[int]) -> None:
    """Raise InputError for columns of longitude and latitude whose units contradict degrees.

    ``place`` are their numbers, none where there are none; so are units that are not known.
    """
    for j, other in zip(place, DEGREES[::-1], strict=bool(place)):
        unit = plain(units[j]) if units else ""
        if unit in (other, *NO_DEGREES):
            remedy = "make degrees of it" if unit == "radians" else "correct the stated unit"
            raise InputError(
                f"{names[j]!r} is in {units[j]!r}, but longitude and latitude are taken in degrees "
                f"east and north: {remedy}, or give geographic=False (--geographic none)"
            )


STAND_INS = ("0001-01-01", "9999-12-31")
"""First and last days of common calendars, which stand for missing times."""
LONG = 365_242.0
"""Least days between such a day and others."""


def warn_of_stand_ins(
    names: Sequence[str], units: Sequence[str], ends: Sequence[tuple[float, float] | None]
) -> None:
    """Warn of features of times that hold a day which stands for a missing time.

    ``ends`` are the least and the largest value of each, None where they are not known.
    """
    for name, unit, range_ in zip(names, units, ends, strict=False):
        count = count_of(unit)
        if count is None or count.calendar or range_ is None:
            continue
        days = [end / count.per_day + count.origin for end in range_]
        known = [float(np.datetime64(day, "D").astype(np.int64)) for day in STAND_INS]
        at = np.flatnonzero(np.floor(days) == known)
        if not len(at) or days[1] - days[0] < LONG:
            continue
        texts = [STAND_INS[i] if i in at else text_of(range_[i], unit) for i in (0, 1)]
        logger.warning(
            "feature %r goes from %s to %s: if %s stands for a missing time, leave it empty (NaT)",
            *(name, *texts, texts[int(at[0])]),
        )


def text_of(value: float, unit: str, form: str = ".6g") -> str:
    """Return a value as text, one that counts time of the usual calendar as a date."""
    count, plain_days = count_of(unit), count_of(DAYS)
    if count is None or plain_days is None or count.calendar != plain_days.calendar:
        return format(value, form)
    days = value / count.per_day + count.origin
    if not abs(days) < MOST_DAYS:
        return format(value, form)
    finest = "s" if count.per_day > 1_440 else "m"
    date = np.datetime64(round(days * 86_400), "s").astype(f"datetime64[{finest}]")
    whole = abs(days - round(days)) < 1.0 / 86_400
    return str(np.datetime64(round(days), "D") if whole else date)


def matched(
    names: Sequence[str],
    own: Sequence[str],
    wanted: Sequence[str],
    values: Callable[[int], np.ndarray | None],
    what: str,
    expected: Mapping[int, Any],
) -> tuple[tuple[str, ...], tuple[Conversion | None, ...]]:
    """Return the units of columns and what turns them into those of a model.

    Parameters
    ----------
    names, own, wanted : sequence of str
        Names of the columns, their units as far as they are known, and those of the model.
    values : callable
        Returns the numbers of a column, also for times, or None for those that are not looked at.
    what : str
        What messages call the columns.
    expected : mapping of int to `daskgp.data.expected.Column`
        What the model knows of its columns.

    Dates written as whole numbers say no unit.  They are looked for where a model has days since
    1970, as it has of dates.

    Raises
    ------
    InputError
        If a unit contradicts that of the model, or numbers show that they are in another one.
    """
    units, how = list(own) or [""] * len(wanted), list[Conversion | None]()
    for j, (name, mine, other) in enumerate(zip(names, units, wanted, strict=False)):
        numbers = values(j) if not mine and other == DAYS else None
        form = None if numbers is None else whole_dates.form_of(numbers, whole_dates.OF_MODEL)
        units[j] = mine if form is None else form.written
        try:
            found = conversion(units[j], other)
        except ValueError as error:
            raise InputError(
                f"feature {name!r} of {what} is in {units[j]!r}, but the model was fitted with it "
                f"in {other!r}: {error}"
            ) from error
        if found is not None and found.dates is not None:
            logger.info("feature %r of %s holds dates written %s", name, what, units[j])
        how.append(found)
    for j, column in expected.items():
        column.refuse_unit(units[j], what)
        as_given = not any(how) or how[j] is None
        numbers = values(j) if as_given and (units[j] or column.is_looked_at) else None
        if numbers is None:
            continue
        if not units[j]:
            column.refuse_coded(numbers, what)
        column.refuse(numbers, what, units[j])
    return tuple(units), tuple(how) if any(how) else ()


def converted(X: np.ndarray, how: Sequence[Change | None]) -> np.ndarray:
    """Return rows X (n, d) with each column converted; X itself if nothing is to be done."""
    if not any(how):
        return X
    X = np.array(X, np.float64)
    for j, one in enumerate(how):
        if one is not None:
            X[:, j] = one.of(X[:, j])
    return X
