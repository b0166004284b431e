"""Dates written as whole numbers, such as 20210131, whose differences are not times.

A form of them counts as the unit of a feature: ``"yyyymmdd"``, or as netCDF files have it
``"day as %Y%m%d.%f"``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

logger: logging.Logger = logging.getLogger("daskgp")


class Form(NamedTuple):
    """Way to write dates: the year and parts of some digits each; a fraction of the last one.

    Parts are month and day, or the day of the year, and hour, minute and second.
    """

    written: str
    coded: str
    widths: tuple[int, ...]

    @property
    def digits(self) -> int:
        """Number of digits of a date."""
        return 4 + sum(self.widths)


FORMS = (
    Form("yyyymmdd", "%Y%m%d", (2, 2)),
    Form("yyyymm", "%Y%m", (2,)),
    Form("yyyyddd", "%Y%j", (3,)),
    Form("yyyymmddhh", "%Y%m%d%H", (2, 2, 2)),
    Form("yyyymmddhhmm", "%Y%m%d%H%M", (2, 2, 2, 2)),
    Form("yyyymmddhhmmss", "%Y%m%d%H%M%S", (2, 2, 2, 2, 2)),
)
LIKELY = (1700, 2299)
"""First and last year of numbers that are taken for dates."""
GREGORIAN = (1583, 9999)
"""First and last whole year that a unit may say, before which calendars differ."""
MONTHS: dict[str, tuple[int, ...]] = {
    "noleap": (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31),
    "all_leap": (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31),
    "360_day": (30,) * 12,
}
"""Days of months in calendars whose years are all alike."""
TIME = (
    r"date|time|yyyy|yearmo|ymd|(^|[^a-z])(day|month)s?($|[^a-z])",
    r"(?i)t|time",
)
"""Names, in lower case, and axes by the CF conventions that are those of times."""
OTHERS = ("ddmmyyyy", "mmddyyyy", "yymmdd", "ddmmyy")
"""Ways to write dates that are not read, as one may pass for another."""
LOOSE = ("ddmmyy",)
"""Ways whose last digits may be any, so that many numbers pass for such dates."""
CLOCKS = {
    "hhmm": "pandas.to_datetime(values.astype(int).astype(str).str.zfill(4), format='%H%M')",
    "hhmmss": "pandas.to_datetime(values.astype(int).astype(str).str.zfill(6), format='%H%M%S')",
    "yyyy.mm": "pandas.to_datetime(values.map('{:.2f}'.format), format='%Y.%m')",
}
"""Other numbers that are times, and how pandas makes times of them."""
EVEN = (0, 50)
"""Last two digits of regular numbers that also are minutes."""
MOST, DISTINCT = 0.9, 20
"""Share of values that are dates, and number of distinct ones, from which a warning is logged."""
FEW = 5
"""Least number of distinct values that are taken for dates that are not read."""
OF_MODEL = 0.5
"""Share of values that are dates from which they are all read so where a model has dates.

The others are missing: one that is wrong does not make numbers of the rest.
"""
Read = tuple[Form, str]


def read(unit: str) -> Read | None:
    """Return the form of dates that a unit is, and its calendar, empty for the usual one.

    >>> read("day as %Y%m%d.%f")[0].written, read("days since 2000-01-01")
    ('yyyymmdd', None)
    """
    plain, _, calendar = unit.partition(" (")
    text = plain.rpartition(" as ")[2].removesuffix(".%f")
    form = next((one for one in FORMS if text.lower() in (one.written, one.coded.lower())), None)
    calendar = calendar.removesuffix(")")
    return None if form is None or calendar not in ("", *MONTHS) else (form, calendar)


def form_of(values: np.ndarray, share: float = 1.0) -> Form | None:
    """Return the form in which values, or a share of those that differ, are dates.

    >>> form_of(np.array([20210131.0, 20210201.0, np.nan])).written, form_of(np.array([20210231.0]))
    ('yyyymmdd', None)
    """
    values = np.asarray(values, np.float64)
    known = np.unique(values[~np.isnan(values)])  # a number that is none may be frequent
    for form in FORMS:
        like = np.abs(known) < 10.0**form.digits
        like &= known >= 10.0 ** (form.digits - 1)
        if len(known) and like.mean() >= share:
            dates = ~np.isnan(days_of(known, form, years=LIKELY))
            if dates.mean() >= share:
                return form
    return None


def others_of(values: np.ndarray) -> list[str]:
    """Return the ways of those that are not read in which values are dates of several months.

    >>> others_of(np.array([1012021, 15012021, 31012021, 28022021, 31122021]))
    ['ddmmyyyy']
    """
    values = np.unique(np.asarray(values, np.float64))
    known = values[~np.isnan(values)]
    if len(known) < FEW or (known != np.rint(known)).any():
        return []
    found = []
    for written in OTHERS:
        dates = _year_first(known, written)
        dates = dates[~np.isnan(days_of(dates, FORMS[0], years=LIKELY))]
        if len(dates) >= MOST * len(known) and len(np.unique(dates // 100 % 100)) > 1:
            found.append(written)
    return [] if {*found} <= {*LOOSE} else found


def clock_of(values: np.ndarray) -> str | None:
    """Return the way of `CLOCKS` in which distinct values are times; None if they need not be.

    >>> clock_of(np.array([100.0 * hour + minute for hour in range(24) for minute in (0, 30)]))
    'hhmm'
    """
    if len(values) < DISTINCT or values[0] < 0:
        return None
    months = 100 * (values % 1)
    near = np.abs(months - np.rint(months)) < 1e-3
    if (LIKELY[0] <= values[0]) and values[-1] < LIKELY[1] + 1 and near.all():
        whole = np.rint(months)
        if ((whole >= 1) & (whole <= 12)).all() and np.ptp(whole):
            return "yyyy.mm"
    if (values != np.rint(values)).any() or not 100 <= values[-1] < 240_000:
        return None
    written = "hhmm" if values[-1] < 2_400 else "hhmmss"
    parts = values % 100 if written == "hhmm" else np.stack([values % 100, values // 100 % 100])
    return written if (parts < 60).all() and not np.isin(parts, EVEN).all() else None


def coded(written: str) -> str:
    """Return the format of pandas for one of the ways that are not read.

    >>> coded("ddmmyyyy"), coded("yymmdd")
    ('%d%m%Y', '%y%m%d')
    """
    return written.replace("yyyy", "%Y").replace("yy", "%y").replace("mm", "%m").replace("dd", "%d")


def as_text(written: Sequence[str]) -> str:
    """Return how pandas makes times of numbers written in one of some ways."""
    forms = " or ".join(f"format={coded(one)!r}" for one in written)
    return (
        f"pandas.to_datetime(values.astype(int).astype(str).str.zfill({len(written[0])}), {forms})"
    )


def _year_first(values: np.ndarray, written: str) -> np.ndarray:
    """Return whole numbers written in another way as yyyymmdd, NaN for those of fewer digits."""
    size = len(written)
    known = (values >= 10.0 ** (size - 2)) & (values < 10.0**size)
    number, parts = np.where(known, values, 0.0).astype(np.int64), {}
    for letter in "ymd":
        width = written.count(letter)
        behind = size - written.index(letter) - width
        parts[letter] = number // 10**behind % 10**width
    year = parts["y"] + 2000 * (written.count("y") == 2)
    return np.where(known, year * 10_000 + parts["m"] * 100 + parts["d"], np.nan)


def days_of(
    values: np.ndarray, form: Form, calendar: str = "", years: tuple[int, int] = GREGORIAN
) -> np.ndarray:
    """Return dates as days since 1970-01-01 in a calendar; NaN for missing ones and no dates.

    >>> days_of(np.array([19700201.5, 19700230]), FORMS[0])
    array([31.5,  nan])
    """
    values = np.asarray(values, np.float64)
    known = (values >= 0) & (values < 10.0**form.digits)
    number = np.where(known, values, 0.0).astype(np.int64)
    fraction, parts = np.where(known, values, 0.0) - number, []
    for width in reversed(form.widths):
        number, part = np.divmod(number, 10**width)
        parts.append(part)
    first, *others = reversed(parts)
    known &= (number >= years[0]) & (number <= years[1])
    year = np.where(known, number, years[0])
    if form.widths == (3,):
        begin = _begin(year, np.zeros_like(year), calendar)
        end, day = _begin(year + 1, np.zeros_like(year), calendar), first
    else:
        known &= (first >= 1) & (first <= 12)
        month = np.where(known, first - 1, 0)
        begin, end = _begin(year, month, calendar), _begin(year, month + 1, calendar)
        day = others[0] if others else np.ones_like(year)
    known &= (day >= 1) & (day <= end - begin)
    clock = fraction if others or form.widths == (3,) else fraction * (end - begin)
    if others[1:]:
        known &= fraction == 0
        clock = np.zeros_like(values)
        for part, most, length in zip(others[1:], (24, 60, 60), (24, 1_440, 86_400), strict=False):
            known &= part < most
            clock += part / length
    return np.where(known, begin + (day - 1) + clock, np.nan)


def _begin(year: np.ndarray, month: np.ndarray, calendar: str) -> np.ndarray:
    """Return the days since 1970-01-01 at which months from 0, also 12, of years begin."""
    if calendar:
        lengths = MONTHS[calendar]
        before = np.concatenate([[0], np.cumsum(lengths)])
        return np.asarray((year - 1970) * before[-1] + before[month])
    months = ((year - 1970) * 12 + month).astype("M8[M]")
    return months.astype("M8[D]").astype(np.int64)


def named_as_time(name: str, attributes: Mapping[str, Any] | None = None) -> bool:
    """Return whether a column is a time by its name or CF attributes.

    >>> named_as_time("obs_date"), named_as_time("t", {"axis": "T"}), named_as_time("depth")
    (True, True, False)
    """
    said = attributes or {}
    axis = said.get("standard_name", said.get("axis", ""))
    return bool(re.search(TIME[0], name.lower()) or re.fullmatch(TIME[1], str(axis)))


def warn(names: Sequence[str], sample: np.ndarray, units: Sequence[str]) -> None:
    """Warn about features that are dates written as whole numbers; ``sample`` (N, d) has rows.

    Those that count times by their units are not looked at, nor are dates between which all
    differences are right.
    """
    for j, name in enumerate(names):
        values = sample[~np.isnan(sample[:, j]), j]
        whole = np.rint(values)
        values = np.unique(np.where(np.abs(values - whole) < 1e-3, whole, values))  # once scaled
        unit, named = units[j] if units else "", named_as_time(name)
        if not (unit == "" or read(unit)):
            continue
        form, others = form_of(values, MOST), others_of(values) if named else []
        timed = form is None and not others and (named or "year" in name.lower())
        if form is None and others:
            logger.warning(
                "feature %r holds dates written %s, such as %d, whose differences are not times: "
                "give times, %s",
                *(name, " or ".join(others), values[0], as_text(others)),
            )
        if written := clock_of(values) if timed else None:
            logger.warning(
                "feature %r holds times written %s, such as %.10g, whose differences are not "
                "times: "
                "give times, %s",
                *(name, written, values[-1], CLOCKS[written]),
            )
        if form is None or len(values) < (2 if named else DISTINCT):
            continue
        if len(np.unique(values // 10 ** form.widths[-1])) > 1:
            wrong = values[np.isnan(days_of(values, form))]
            logger.warning(
                "feature %r holds dates written %s, such as %d, whose differences are not times: "
                "%sgive times, as pandas.to_datetime makes them, or convert the data with dates=%r "
                "(--dates %s)",
                *(name, form.written, values[0]),
                f"correct {wrong[0]:.15g}, which is not a date, and " if len(wrong) else "",
                *(name, name),
            )
