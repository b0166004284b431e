"""Places as a model expects them: those that miss its training rows by their unit are refused.

Predictions there would be the prior, without a word.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from daskgp.data import feature_units, whole_dates
from daskgp.data.feature_units import Count
from daskgp.errors import InputError
from daskgp.models.columns import ENDS, KINDS, RADIANS, kind_of_name

logger: logging.Logger = logging.getLogger("daskgp")

APART = 5.0
"""Least ratio of the sizes of numbers in different units."""
FAR, NEAR = 10.0, 0.1
"""Widths of the range of the training rows beyond which times are no such numbers, and by which
longitudes go on beyond it."""
EARLY, LATE, LATEST = 365.0, 120_530.0, 376_200.0
"""Days from 1970 that tell times from counts of something else, those to 2300 and to 3000."""
YEAR = 365.2425
TURN = 360.0
NEARLY, SOME, LOOKED_AT = 0.99, 0.1, 4096
"""Least share of places outside the training rows that is told, and that have another number than
0 then, and places that are looked at."""
COUNTED = {
    "s": (86_400.0, "seconds"),
    "ms": (8.64e7, "milliseconds"),
    "us": (8.64e10, "microseconds"),
    "ns": (8.64e13, "nanoseconds"),
    "D": (1.0, "days"),
}
"""Numbers a day of units of time, as pandas.to_datetime calls them, and their names."""
SHIFTED = {
    "Julian days": (2_440_587.5, "origin='julian', unit='D'"),
    "day numbers of Excel": (25_569.0, "origin='1899-12-30', unit='D'"),
    "modified Julian days": (40_587.0, "origin='1858-11-17', unit='D'"),
}
"""Other counts of days: those of the beginning of 1970, and the arguments of pandas.to_datetime."""
SURE = 2.0
"""Widths of the range of the training rows beyond which days count from another beginning."""
Limits: TypeAlias = Sequence[float]


class Column(NamedTuple):
    """A feature of a model: its unit, and the least and the largest value of its training rows."""

    name: str
    unit: str
    low: float
    high: float
    sphere: str = ""
    """Kind of a column of places on the sphere."""

    @property
    def is_looked_at(self) -> bool:
        """Tell if numbers without a unit may be those of another one."""
        return not self.sphere and (self.is_time or self.is_longitude)

    @property
    def is_time(self) -> bool:
        """Tell if the feature is a time by its unit or name."""
        return self.counts is not None or (not self.unit and whole_dates.named_as_time(self.name))

    @property
    def is_longitude(self) -> bool:
        """Tell if the feature is a longitude in degrees by its unit or name."""
        return self.angle == KINDS[0]

    @property
    def angle(self) -> str | None:
        """Kind of a feature that is a longitude or latitude in degrees by its unit or name."""
        east_north = dict(zip(feature_units.DEGREES, KINDS, strict=True))
        kind = self.sphere or east_north.get(feature_units.plain(self.unit))
        kind = kind or (None if self.counts else kind_of_name(self.name))
        if kind is None:
            return None
        ends = dict(zip(KINDS, ENDS, strict=True))[kind]
        return kind if ends[0] <= self.low and self.high <= ends[1] else None

    @property
    def counts(self) -> Count | None:
        """Count of times of the usual calendar that the feature is, None for others."""
        found = feature_units.count_of(self.unit)
        return None if found is None or found.calendar else found

    def refuse(self, values: Any, what: str, own: str = "") -> None:
        """Raise InputError for values of places in another unit than that of the training rows.

        Parameters
        ----------
        values : ndarray (n,)
            In the unit that is theirs.
        what : str
            What messages call the places.
        own : str
            Their unit, if it is known.
        """
        known = np.asarray(values, np.float64)
        known = known[np.isfinite(known)]
        holds_times = feature_units.count_of(own) is not None
        if not len(known) or (holds_times and self.unit):
            return
        seen = self._seen(known, what)
        range_ = f"{self.low:.10g} to {self.high:.10g}"
        if holds_times:
            if self._is_far(known) or self._read_as(known, ("D",)):
                raise InputError(
                    f"feature {self.name!r} of {what} holds times, but the model was fitted with "
                    f"numbers from {range_} there: give such numbers, or fit again with times"
                )
        elif self.is_longitude:
            if not self.sphere and self._is_turned(known):
                raise InputError(
                    f"{seen}, the training rows from {range_}: add 360 to longitudes below, take "
                    "360 from those above, or fit again with geographic=(longitude, latitude)"
                )
        elif self.is_time and self._is_apart(known):
            code = self._read_as(known, (*COUNTED, *FORMS))
            if code:
                told = f"{COUNTED[code][1]} since 1970" if code in COUNTED else code
                unit, remedy = "", "them in the unit of these"
                if self.unit:
                    how = f"format={FORMS[code].coded!r}" if code in FORMS else f"unit={code!r}"
                    unit, remedy = f", in {self.unit!r}", f"times, pandas.to_datetime(..., {how})"
                raise InputError(
                    f"{seen}, as {told} do, but the training rows from {range_}{unit}: "
                    f"give {remedy}"
                )
            if self._is_never(known):
                raise InputError(
                    f"{seen}, which are not dates near those of the training rows, {range_} in "
                    f"{self.unit!r}: give times, as pandas.to_datetime makes them"
                )

    def refuse_unit(self, own: str, what: str) -> None:
        """Raise InputError for radians where the training rows, whose unit is unknown, are not."""
        angle = None if self.unit or feature_units.plain(own) != "radians" else self.angle
        if angle is None:
            return
        low, high = dict(zip(KINDS, RADIANS, strict=True))[angle]
        if self.low < low or self.high > high:
            raise InputError(
                f"feature {self.name!r} of {what} is in {own!r}, but the training rows go from "
                f"{self.low:.10g} to {self.high:.10g}, which are degrees: give degrees "
                "(numpy.degrees), or correct the stated unit"
            )

    def widths_beyond(self, values: np.ndarray) -> np.ndarray:
        """Return how many of its widths values (n,) lie beyond the range of the training rows."""
        turns = (0.0, -TURN, TURN) if self.sphere and self.angle == KINDS[0] else (0.0,)
        away = [np.maximum(self.low - values - t, values + t - self.high) for t in turns]
        return np.asarray(np.min(away, axis=0) / (self.high - self.low))

    def refuse_coded(self, values: Any, what: str) -> None:
        """Raise InputError for numbers without a unit that are times in another code.

        Of a feature that counts times they are those of its unit too, and are looked at if they lie
        beyond the training rows as such.
        """
        known, beyond = self._beyond(values)
        if beyond <= YEAR:
            return
        others, how, told = whole_dates.others_of(known), "", ""
        if others:
            told, how = f"dates written {' or '.join(others)}", whole_dates.as_text(others)
        elif self._is_near((known - 1970.0) * YEAR):
            told, how = "decimal years", f"pandas.to_datetime((... - 1970) * {YEAR}, unit='D')"
        elif beyond > SURE * (self.high_day - self.low_day):
            for code, (shift, arguments) in SHIFTED.items():
                if self._is_near(known - shift):
                    told, how = code, f"pandas.to_datetime(..., {arguments})"
        if told:
            raise InputError(
                f"{self._seen(known, what)}, as {told} do, but the training rows from "
                f"{self.low:.10g} to {self.high:.10g}, in {self.unit!r}: give times, {how}"
            )

    def _seen(self, known: np.ndarray, what: str) -> str:
        """Return the range of values of places as text."""
        return f"feature {self.name!r} of {what} goes from {known.min():.10g} to {known.max():.10g}"

    def _beyond(self, values: Any) -> tuple[np.ndarray, float]:
        """Return known values, and the days between them, as times, and the training rows.

        These are below 0 where there are none.
        """
        known = np.asarray(values, np.float64)
        known = known[np.isfinite(known)]
        if self.counts is None or not len(known):
            return known, -1.0
        days = known / self.counts.per_day + self.counts.origin
        return known, float(max(self.low_day - days.max(), days.min() - self.high_day))

    @property
    def low_day(self) -> float:
        """First day of the training rows, from 1970."""
        return self._times[0][0]

    @property
    def high_day(self) -> float:
        """Last day of the training rows, from 1970."""
        return self._times[0][1]

    def _is_near(self, days: np.ndarray) -> bool:
        """Return whether days from 1970 are about those of the training rows."""
        margin = max(NEAR * (self.high_day - self.low_day), YEAR)
        return bool(self.low_day - margin <= days.min() and days.max() <= self.high_day + margin)

    def _is_far(self, values: np.ndarray) -> bool:
        """Return whether all days since 1970 lie far beyond the training rows.

        These may count from a beginning of their own.
        """
        width = self.high - self.low
        away = (NEAR if 0 <= self.low <= NEAR * width else FAR) * width
        return bool(values.min() > self.high + away or values.max() < self.low - away)

    def _is_apart(self, values: np.ndarray) -> bool:
        """Return whether values have wholly other sizes than the training rows."""
        own, ends = np.abs(values), np.abs([self.low, self.high])
        if self.low < 0 < self.high:
            ends[np.argmin(ends)] = 0.0
        return bool(own.min() > APART * ends.max() or own.max() * APART < ends.min())

    def _is_turned(self, values: np.ndarray) -> bool:
        """Return whether longitudes come among those of the training rows by a whole turn."""
        below, above = values < self.low, values > self.high
        moved = values + TURN * below - TURN * above
        comes = (below | above) & (moved >= self.low) & (moved <= self.high)
        margin = NEAR * (self.high - self.low)
        far = (values < self.low - margin) | (values > self.high + margin)
        return bool((comes & far).any() or comes.all())

    def is_in_radians(self, values: np.ndarray) -> bool:
        """Return whether values lie outside the training rows, and as radians among them."""
        margin = NEAR * (self.high - self.low)
        low, high = self.low - margin, self.high + margin
        degrees = np.degrees(values)
        outside = values.max() < low or values.min() > high
        return bool(outside and degrees.min() >= low and degrees.max() <= high)

    def _is_never(self, values: np.ndarray) -> bool:
        """Return whether no value is a date that anyone models, in the unit of the feature.

        Small numbers, which would be days about the beginning of 1970, count from something else.
        """
        if self.counts is None:
            return False
        days = values / self.counts.per_day + self.counts.origin
        size = np.abs(days)
        return bool(
            (days > LATEST).all() or (size > feature_units.MOST_DAYS).all() or (size < EARLY).all()
        )

    def _read_as(self, values: np.ndarray, codes: Sequence[str]) -> str | None:
        """Return in which of some units values are times about those of the training rows."""
        if not self._is_apart(values):
            return None
        for low, high in self._times:
            margin = max(high - low, YEAR)
            for code in codes:
                days = _days(values, code)
                if days is not None and low - margin <= days.min() and days.max() <= high + margin:
                    return code
        return None

    @property
    def _times(self) -> list[tuple[float, float]]:
        """Ranges in days since 1970 that the training rows may have."""
        ends = np.array([self.low, self.high])
        if self.counts is not None:
            low, high = ends / self.counts.per_day + self.counts.origin
            return [(low, high)]
        found = (_days(ends, code) for code in (*COUNTED, *FORMS, "years"))
        return [(days[0], days[1]) for days in found if days is not None]


FORMS = {form.written: form for form in whole_dates.FORMS}


def _days(values: np.ndarray, code: str) -> np.ndarray | None:
    """Return values as days since 1970; None if they are no likely times in that unit."""
    if code in COUNTED:
        days = values / COUNTED[code][0]
    elif code == "years":
        days = (values - 1970.0) * YEAR
    else:
        days = whole_dates.days_of(values, FORMS[code], years=whole_dates.LIKELY)
    size = np.abs(days)
    early = EARLY if code in COUNTED else 0.0
    return days if size.max() >= early and size.max() <= LATE else None


def columns_of(
    names: Sequence[str],
    units: Sequence[str],
    ranges: Sequence[Limits | None],
    sphere: Sequence[int] = (),
) -> dict[int, Column]:
    """Return the features whose ranges are known and have a width, by their numbers.

    ``sphere`` has the numbers of longitude and latitude of places on the sphere.
    """
    units = units or ("",) * len(names)
    kinds = dict(zip(sphere, KINDS, strict=False))
    return {
        j: Column(names[j], units[j], ends[0], ends[1], kinds.get(j, ""))
        for j, ends in enumerate(ranges)
        if ends is not None and ends[0] < ends[1]
    }


TIMED = re.compile(r"year|hour|minute|second|week|(^|[^a-z])t($|[^a-z])")
"""Names, in lower case, of times for `moved` beside those of `Column.is_time`."""
LIKELY = "check units (m or km, degrees or radians), the order of the columns and the projection"
"""Likely causes of places far outside."""


def warn_of_far(what: str, names: Sequence[str], ends: np.ndarray, places: np.ndarray) -> None:
    """Warn of places (m, d) nearly all of which lie outside rows, by more than their range.

    ``ends`` (2, d) are the least and the largest values of the columns of the rows.
    """
    columns = columns_of(names, (), [(low, high) for low, high in ends.T.tolist()])
    far = farthest(columns, places, 1.0)
    if far is not None:
        low, high = far.places[:, far.column].min(), far.places[:, far.column].max()
        column = columns[far.column]
        logger.warning(
            "nearly all %s are far outside the rows: feature %r goes from %.6g to %.6g, in the "
            "rows from %.6g to %.6g: %s",
            *(what, column.name, low, high, column.low, column.high, LIKELY),
        )


def drawn(n: int) -> np.ndarray:
    """Return the numbers of the places among n that are looked at, all of a few."""
    return np.arange(n) if n <= LOOKED_AT else np.random.default_rng(0).integers(n, size=LOOKED_AT)


def farthest(columns: Mapping[int, Column], X: np.ndarray, widths: float) -> Farthest | None:
    """Return which places X (n, d), all finite, lie outside the training rows, if nearly all do.

    That is by more than so many ``widths`` of the range of a column.
    """
    beyond = {j: column.widths_beyond(X[:, j]) for j, column in columns.items()}
    if not beyond or not len(X):
        return None
    outside = np.max(list(beyond.values()), axis=0) > widths
    if outside.mean() < NEARLY:
        return None
    most = max(beyond, key=lambda j: np.count_nonzero(beyond[j] > widths))
    return Farthest(most, X[outside])


def moved(
    columns: Mapping[int, Column], X: np.ndarray, least: float, far: float = FAR
) -> Moved | None:
    """Return the column in which nearly all places X (n, d), all finite, look moved or rescaled.

    They lie more than ``least`` of its widths outside the training rows, and among these in another
    unit or by more than ``far`` of them as a rule.  Times may be of any forecast, and 0 is so in
    any unit.
    """
    found, most = None, -np.inf
    for j, column in columns.items():
        if column.sphere or column.is_time or TIMED.search(column.name.lower()):
            continue
        values = X[X[:, j] != 0.0, j]
        beyond = column.widths_beyond(values)
        outside = values[beyond > least]
        if not len(outside) or len(outside) < NEARLY * len(values) or len(values) < SOME * len(X):
            continue
        ends, away = (float(outside.min()), float(outside.max())), float(np.median(beyond))
        how = None  # degrees in radians are refused
        if column.angle is None:
            how = feature_units.other_unit(ends, (column.low, column.high), column.unit)
        if away > most and (how is not None or away > far):
            found, most = Moved(column, how, ends), away
    return found


class Moved(NamedTuple):
    """A column of places that looks moved or rescaled, how if as in another unit, and its ends."""

    column: Column
    how: str | None
    ends: tuple[float, float]


class Farthest(NamedTuple):
    """The column in which most places lie outside the training rows, and these places (m, d)."""

    column: int
    places: np.ndarray


def refuse(columns: Mapping[int, Column], X: np.ndarray, what: str) -> None:
    """Raise InputError for rows X (n, d), which say no units, in others than the training rows."""
    for j, column in columns.items():
        column.refuse(X[:, j], what)
    refuse_radians(columns, lambda j: X[:, j], what)


def refuse_coded(X: np.ndarray, columns: Mapping[int, Column], what: str) -> np.ndarray:
    """Return rows X (n, d); InputError for times of columns without a unit in another code."""
    for j, column in columns.items():
        column.refuse_coded(X[:, j], what)
    return X


def refuse_radians(
    columns: Mapping[int, Column], values: Callable[[int], np.ndarray | None], what: str
) -> None:
    """Raise InputError for longitudes and latitudes that are both in radians, not in degrees.

    ``values`` returns those of a column, None if they are not known.
    """
    place = {column.angle: j for j, column in columns.items() if column.angle}
    if len(place) < len(KINDS):
        return
    seen = {}
    for j in place.values():
        found = values(j)
        known = np.empty(0) if found is None else found[np.isfinite(found)]
        if not len(known) or not columns[j].is_in_radians(known):
            return
        seen[j] = f"{columns[j].name!r} from {known.min():.4g} to {known.max():.4g}"
    raise InputError(
        f"{what} has {' and '.join(seen.values())}, which lie far from the training rows as "
        "degrees, "
        "the unit of those, but among them as radians: give degrees (numpy.degrees)"
    )
