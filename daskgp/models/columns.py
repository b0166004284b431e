"""Columns of X as users have them and as methods see them: places on a sphere become x, y, z.

Longitude and latitude are mapped to a point on the sphere of the Earth's mean radius, in km, before
anything else sees them, so that every distance is the chord through the Earth: right at the date
line and the poles, and valid in every kernel of a distance.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from daskgp.checks import shown
from daskgp.errors import InputError, SettingError
from daskgp.kernels import Kernel
from daskgp.kernels.averaged import negative
from daskgp.kernels.categories import with_levels, with_name
from daskgp.kernels.columns import Where, of_features, on_columns, rescaled
from daskgp.models import categories
from daskgp.models.fills import KNOWN, Fills, Limits, far, without

logger: logging.Logger = logging.getLogger("daskgp")

RADIUS = 6371.0088
"""Mean radius of the Earth in km."""
LONGITUDES, LATITUDES = ENDS = (-180.0, 360.0), (-90.0, 90.0)
"""Ranges of degrees east and north."""
RADIANS = (-3.1416, 6.2832), (-1.5708, 1.5708)
"""Ranges of the same in radians."""
KINDS = ("longitude", "latitude")
"""Kinds of the two columns of a place."""
KILOMETRES = "km"


@dataclass(frozen=True)
class Columns:
    """Columns of X (n, d), and those of the inputs that methods see.

    Without ``geographic`` they are the same.  With it the inputs have one more: x, y and z of the
    place stand where the first of longitude and latitude stood, the other columns in their order.

    Parameters
    ----------
    names : tuple of str
        Names of the d columns of X.
    geographic : tuple of int, optional
        Numbers of the columns with degrees east and degrees north.
    fills : tuple, optional
        Values of each column of X that are missing in the inputs.
    ranges : tuple, optional
        Ranges of each column of X in a fit, far outside which known fill values are missing, too.
    variable : str, optional
        Name of one more column of the inputs, the last, which says what target a row is of; 0 where
        nothing else is said.
    levels : tuple, optional
        Levels of each column of X that is a category, () of the others; the inputs have their
        places.
    takes_new : bool
        Whether other levels are those of a new one, after the last; else they are refused.
    radii : tuple of int, optional
        Numbers of the columns of X that are radii of footprints.
    """

    names: tuple[str, ...]
    geographic: tuple[int, int] | None = None
    fills: Fills = ()
    ranges: tuple[Limits | None, ...] = ()
    variable: str = ""
    levels: tuple[tuple[str, ...], ...] = ()
    takes_new: bool = False
    radii: tuple[int, ...] = ()

    @cached_property
    def where(self) -> Where:
        """Column of the inputs for each column of X; the sphere's three for both of a place."""
        if self.geographic is None:
            return tuple(range(len(self.names)))
        first, second = sorted(self.geographic)
        sphere = (first, first + 1, first + 2)
        shift = [0 if j < first else 2 if j < second else 1 for j in range(len(self.names))]
        return tuple(
            sphere if j in self.geographic else j + shift[j] for j in range(len(self.names))
        )

    @property
    def sphere(self) -> tuple[int, ...]:
        """Columns of the inputs that are x, y and z; none without a sphere."""
        if self.geographic is None:
            return ()
        first = min(self.geographic)
        return first, first + 1, first + 2

    @cached_property
    def inputs_names(self) -> tuple[str, ...]:
        """Names of the columns of the inputs."""
        if self.variable:
            return (*self._of_places.inputs_names, self.variable)
        if self.geographic is None:
            return self.names
        place = "/".join(self.names[j] for j in self.geographic)
        named = [name for j, name in enumerate(self.names) if j not in self.geographic]
        first = min(self.geographic)
        return (*named[:first], *(f"{place} {axis}" for axis in "xyz"), *named[first:])

    @property
    def features_of_inputs(self) -> tuple[str, ...]:
        """Names of what the columns of the inputs are made of: "lon, lat" for each of a place."""
        if self.geographic is None:
            return self.inputs_names
        place = ", ".join(self.names[j] for j in self.geographic)
        first = min(self.geographic)
        names = [*self.inputs_names]
        names[first : first + 3] = [place] * 3
        return tuple(names)

    def __len__(self) -> int:
        """Return the number of columns of the inputs."""
        return len(self.names) + (self.geographic is not None) + bool(self.variable)

    @cached_property
    def _of_places(self) -> Columns:
        """The same without the column of a target."""
        return replace(self, variable="")

    # -- values ------------------------------------------------------------------------------

    def inputs(self, X: np.ndarray) -> np.ndarray:
        """Return the inputs (n, d + 1) of rows X (n, d); X itself where they are the same.

        Raises
        ------
        InputError
            If a longitude or latitude is no angle of a place, a category has an unknown level, or
            a radius is negative.
        """
        if self.variable:
            own = self._of_places.inputs(X)
            return np.column_stack([own, np.zeros(len(own))])
        X = self.coded(self.known(X))
        for j in self.radii:
            least = np.nanmin(X[:, j], initial=np.inf)
            if least < 0.0:
                raise InputError(negative(f"feature {self.names[j]!r}", *lowest(least)))
        if self.geographic is None:
            return X
        X = np.asarray(X, np.float64)
        self.check(X)
        lon, lat = (X[:, j] for j in self.geographic)
        inputs = np.empty((len(X), len(self)))
        inputs[:, self._others] = np.delete(X, self.geographic, axis=1)
        inputs[:, self.sphere] = on_sphere(lon, lat)
        return inputs

    @cached_property
    def categories(self) -> dict[int, tuple[str, ...]]:
        """Levels of the columns of the inputs that are categories."""
        pairs = zip(self.where, self.levels, strict=False)
        return {j: own for j, own in pairs if own and isinstance(j, int)}

    def coded(self, X: np.ndarray) -> np.ndarray:
        """Return rows X (n, d) with the places of levels; X itself if there are none."""
        if not any(self.levels):
            return X
        X = np.array(X, np.float64)
        for j, own in enumerate(self.levels):
            if own:
                X[:, j] = categories.codes(self.names[j], X[:, j], own, self.takes_new)
        return X

    def known(self, X: np.ndarray) -> np.ndarray:
        """Return rows X (n, d) with NaN for fill values; X itself if there are none."""
        X, found = without(X, self.fills), self.far(X)
        if not found.any():
            return X
        return np.where(found, np.nan, X.astype(np.result_type(X.dtype, np.float32)))

    def far(self, X: np.ndarray) -> np.ndarray:
        """Return the mask (n, d) of known fill values that the fit did not have."""
        globe = dict(zip(self.geographic or (), (LONGITUDES, LATITUDES), strict=False))
        return far(X, [globe.get(j, pair) for j, pair in enumerate(self.ranges[: X.shape[1]])])

    def places(self, inputs: np.ndarray) -> np.ndarray:
        """Return the rows (n, d) of inputs (n, d + 1); those off the sphere are seen from within.

        Longitudes are from -180 to 180, and places of levels the nearest ones.
        """
        if self.variable:
            return self._of_places.places(inputs[:, : len(self) - 1])
        if self.categories:
            inputs = np.array(inputs, np.float64)
            for j, own in self.categories.items():
                inputs[:, j] = categories.numbers_at(inputs[:, j], own)
        if self.geographic is None:
            return inputs
        x, y, z = (inputs[:, j] for j in self.sphere)
        X = np.empty((len(inputs), len(self.names)))
        X[:, [j for j in range(len(self.names)) if j not in self.geographic]] = inputs[
            :, self._others
        ]
        X[:, self.geographic[0]] = np.degrees(np.arctan2(y, x))
        X[:, self.geographic[1]] = np.degrees(np.arctan2(z, np.hypot(x, y)))
        return X

    def onto(self, inputs: np.ndarray) -> np.ndarray:
        """Return inputs moved onto the sphere, as means of places on it need."""
        return inputs if self.geographic is None else self.inputs(self.places(inputs))

    def check(self, X: np.ndarray) -> None:
        """Raise InputError for rows X (n, d) with a longitude or latitude of no place."""
        for j, kind, ends in zip(self.geographic or (), KINDS, ENDS, strict=False):
            if not _within(X[:, j], ends):
                known = self.known(X)
                if not _within(known[:, j], ends):
                    raise InputError(self._misplaced(known, j, f"{kind}s", ends))

    @property
    def _others(self) -> list[int]:
        return [j for j in range(len(self)) if j not in self.sphere]

    def _misplaced(self, X: np.ndarray, j: int, kind: str, ends: tuple[float, float]) -> str:
        """Return what is wrong with column j of rows X (n, d), and what to do about it."""
        assert self.geographic is not None
        known, (lon, lat) = X[np.isfinite(X[:, j]), j], self.geographic
        swapped = _within(X[:, lon], LATITUDES) and _within(X[:, lat], LONGITUDES)
        pair = self._place[::-1]
        option = f"geographic={(*pair,)} (--geographic {','.join(pair)})"
        remedy = f"if they are swapped, {option}; else "
        fill = next((f"{v:g}" for v in (known.min(), known.max()) if v in KNOWN), None)
        if kind == f"{KINDS[0]}s" and not fill and np.abs(known).max() <= 720.0:
            return (
                f"{self.names[j]!r} has {kind} from {known.min():g} to {known.max():g}, which are "
                f"not degrees from {ends[0]:g} to {ends[1]:g}: {remedy * swapped}add or take 360 "
                "to bring them there, or correct them"
            )
        missing = f" (fill_values=[{fill}], or --fill {fill} of convert)" if fill else ""
        return (
            f"{self.names[j]!r} has {kind} from {known.min():g} to {known.max():g}, which are not "
            f"degrees from {ends[0]:g} to {ends[1]:g}: {remedy * swapped}"
            f"correct them or set placeholders to NaN{missing}, "
            "give geographic=(longitude, latitude) in this order, or geographic=False for "
            "coordinates of a plane"
        )

    # -- settings ----------------------------------------------------------------------------

    def kernel(self, kernel: Kernel) -> Kernel:
        """Return a kernel of the user's columns as one of the inputs, lengths in the same units."""
        features = [j for j, own in enumerate(self.levels) if own]
        placed = on_columns(kernel, self.names, self.where, features)
        levels: dict[int | str, Any] = dict(self.categories.items())
        return with_levels(placed, levels) if features else placed

    def users_kernel(self, kernel: Kernel) -> Kernel:
        """Return what ``kernel`` makes a kernel of the inputs from."""
        where = (*self.where, len(self) - 1) if self.variable else self.where
        own = of_features(kernel, where) if self.sphere else kernel
        return with_name(own, len(self.names), self.variable) if self.variable else own

    def scaled_as_before(self, kernel: Kernel, scale: np.ndarray) -> Kernel:
        """Return a kernel of inputs over ``scale`` from one as earlier versions took it.

        Its lengths on the sphere are in km, all other numbers are those of the scaled inputs.
        """
        if not self.sphere:
            return kernel
        factors, sphere = np.ones(len(self)), list(self.sphere)
        factors[sphere] = np.where(np.isfinite(scale[sphere]), scale[sphere], 1.0)
        return rescaled(kernel, 1.0 / factors)

    def order(self, order: Any) -> Any:
        """Return an order of rows with the sphere's columns for the two names of a place.

        Raises
        ------
        SettingError
            If it has one of them without the other.
        """
        several = isinstance(order, Sequence) and not isinstance(order, str)
        wanted = list(order) if several else [order]
        if not any(name in self._place for name in wanted):
            return order
        if not all(name in wanted for name in self._place):
            raise SettingError(
                f"order={shown(order)} has one of {', '.join(self._place)}, which are one place on "
                "the sphere: name both"
            )
        axes = [self.inputs_names[j] for j in self.sphere]
        rest = [name for name in wanted if name not in self._place]
        return [*axes, *rest] if wanted[0] in self._place else [*rest, *axes]

    @property
    def _place(self) -> list[str]:
        return [self.names[j] for j in self.geographic or ()]

    def lengths(self, lengths: Any) -> Any:
        """Return a distance per column of the inputs from one per column of X, in km on the sphere.

        Raises
        ------
        SettingError
            If those of longitude and latitude differ.
        """
        if self.geographic is None or lengths is None:
            return lengths
        given = list(lengths)
        if len(given) != len(self.names):
            raise SettingError(
                f"{len(given)} lengthscales for {len(self.names)} columns "
                f"({', '.join(self.names)}): give one each"
            )
        first, second = (given[j] for j in self.geographic)
        if first != second:
            raise SettingError(
                f"lengthscales of {' and '.join(self._place)} are {shown(first)} and "
                f"{shown(second)}, both in km: give them the same"
            )
        each = [None] * len(self)
        for j, own in enumerate(self.where):
            for i in own if isinstance(own, tuple) else (own,):
                each[i] = given[j]
        return each

    def inputs_of(self, features: Sequence[int]) -> list[int]:
        """Return the columns of the inputs that columns of X became.

        Raises
        ------
        SettingError
            If one of longitude and latitude is among them without the other.
        """
        place = {*(self.geographic or ())}
        if len(place & {*features}) == 1:
            raise SettingError(
                f"columns have one of {', '.join(self._place)}, which are one place on the sphere: "
                "name both"
            )
        each = [self.where[j] for j in features]
        return list(dict.fromkeys(i for own in each for i in np.atleast_1d(own).tolist()))

    def unit(self, columns: Sequence[int], known: Mapping[str, str]) -> str:
        """Return the unit of a distance along columns of the inputs, km on the sphere.

        It is the ``known`` one of features by name, else their names.
        """
        names = self.inputs_names
        units = (KILOMETRES if j in self.sphere else known.get(names[j], names[j]) for j in columns)
        return ", ".join(dict.fromkeys(units))


def _within(values: np.ndarray, ends: tuple[float, float]) -> bool:
    known = values[np.isfinite(values)]
    return not len(known) or bool(ends[0] <= known.min() and known.max() <= ends[1])


def on_sphere(lon: np.ndarray, lat: np.ndarray) -> np.ndarray:
    """Return x, y, z (n, 3) in km of degrees east and north.

    The same place has the same bits by whatever longitude, at ±180 and at the poles.

    Examples
    --------
    >>> on_sphere(np.array([-180.0, 180.0, 12.0]), np.array([0.0, 0.0, 90.0])).round(4)
    array([[-6371.0088,     0.    ,     0.    ],
           [-6371.0088,     0.    ,     0.    ],
           [    0.    ,     0.    ,  6371.0088]])
    """
    with np.errstate(invalid="ignore"):
        turn = np.radians(np.where(lon >= 180.0, lon - 360.0, lon))
        # the distance from a pole in degrees is exact, so that its sine is 0 there
        across = RADIUS * np.sin(np.radians(90.0 - np.abs(lat)))
        place = np.stack(
            [across * np.cos(turn), across * np.sin(turn), RADIUS * np.sin(np.radians(lat))], axis=1
        )
    infinite = np.isinf(lon) | np.isinf(lat)
    if infinite.any():  # so that they are told from missing values
        place[infinite & ~np.isnan(lon) & ~np.isnan(lat)] = np.inf
    return place + 0.0  # no negative zeros


def chosen(
    setting: Any, names: Sequence[str], known: Sequence[str] | None
) -> tuple[int, int] | None:
    """Return the columns of longitude and latitude, as a setting says.

    Parameters
    ----------
    setting : pair of str or int, False or None
        Two names or numbers of columns, False for none, None for those that are ``known``.
    names : sequence of str
        Names of the columns.
    known : pair of str, optional
        What the data says of itself.

    Raises
    ------
    SettingError
        If it is no pair of different columns.
    """
    given = setting is not None
    if not given:
        setting = known
    if setting is None or setting is False:
        return None
    several = isinstance(setting, Sequence) or (
        isinstance(setting, np.ndarray) and setting.ndim == 1
    )
    pair = list(setting) if several else []
    if isinstance(setting, str) or len(pair) != 2:
        raise SettingError(
            f"geographic={shown(setting)}: give two columns, those of longitude and latitude, such "
            "as ('lon', 'lat'), or False"
        )
    lon, lat = (_column(column, names) for column in pair)
    if lon == lat:
        raise SettingError(
            f"geographic={shown(setting)} names one column twice: give that of longitude and that "
            "of latitude"
        )
    if given:
        _refuse_swapped(shown(setting), (names[lon], names[lat]), known)
    return lon, lat


def _refuse_swapped(setting: str, named: tuple[str, str], known: Sequence[str] | None) -> None:
    """Raise SettingError for names of longitude and latitude that the data says are the other."""
    pair = None if known is None else tuple(known)
    if pair == named:
        return
    said = pair == named[::-1]
    wrong = said or kind_of_name(named[0]) == KINDS[1], said or kind_of_name(named[1]) == KINDS[0]
    if not any(wrong):
        return
    why = "attributes" if said else "name"
    other = zip(named, KINDS[::-1], strict=True)
    told = [f"{name!r} is {kind} by its {why}" for name, kind in other]
    raise SettingError(
        f"geographic={setting}: {' and '.join(itertools.compress(told, wrong))}: give longitude "
        f"first, geographic={named[::-1]} (--geographic {','.join(named[::-1])})"
    )


def refuse_other(setting: Any, names: Sequence[str], columns: Columns) -> None:
    """Raise SettingError if a setting contradicts what a model was fitted with.

    ``names`` are those of the columns that the setting is about, in the order of the model's.
    """
    if setting is None or chosen(setting, names, None) == columns.geographic:
        return
    own = ", ".join(columns.names[j] for j in columns.geographic or ())
    fitted = f"with distances on the sphere, of {own}" if own else "without longitude and latitude"
    raise SettingError(
        f"geographic={shown(setting)}: the model was fitted {fitted}: leave it out, or fit again"
    )


def warn_of_angles(
    names: Sequence[str],
    units: Sequence[str],
    ranges: Sequence[Sequence[float] | None],
    geographic: tuple[int, int] | None,
) -> None:
    """Warn about places on the sphere that may be in radians, and about angles that no place has.

    Parameters
    ----------
    names, units : sequence of str
        Those of the columns; no units where none is known.
    ranges : sequence of pairs of float
        The least and the largest value of each column, as far as known.
    geographic : tuple of int, optional
        Numbers of the columns of longitude and latitude of places on the sphere.
    """
    said = {
        j: f"{name!r} goes from {own[0]:g} to {own[1]:g}"
        for j, (name, own) in enumerate(zip(names, ranges, strict=True))
        if own is not None
    }
    if geographic is not None:
        near = [_inside(ranges[j], ends) for j, ends in zip(geographic, RADIANS, strict=True)]
        if all(near):
            logger.warning(
                "%s, all of them near 0° E, 0° N: if these are radians, convert them with "
                "numpy.degrees",
                " and ".join(said[j] for j in geographic),
            )
        return
    kinds = {j: kind_of_name(names[j]) for j in said if not (units and units[j])}
    columns = {kind: j for j, kind in kinds.items() if kind is not None}
    for kind, ends, other in zip(KINDS, ENDS, KINDS[::-1], strict=True):
        j = columns.get(kind)
        if j is None or _inside(ranges[j], ends):
            continue
        remedy = ""
        if other in columns and _inside(ranges[columns[other]], ends):
            remedy = f"if it is swapped with {names[columns[other]]!r}, swap their names; else "
        logger.warning(
            "%s, which are not degrees of %s: %scorrect it, give it another name, or "
            "geographic=False (--geographic none) for coordinates of a plane",
            said[j],
            kind,
            remedy,
        )


def _inside(own: Sequence[float] | None, ends: tuple[float, float]) -> bool:
    return own is not None and ends[0] <= own[0] and own[1] <= ends[1]


def lowest(least: float) -> tuple[str, str]:
    """Return what a message says of the lowest value, and it again where it may be a fill value."""
    return f"as low as {least:.6g}", f"{least:g}" if least in KNOWN else ""


SPELT = (
    r"([ctuvrxy]|dd|dec|decimal|geo|nav)?(lon|long|lng|longitude?s?|longitudine)(deg|dd|dec)?"
    r"|l(ä|ae)nge|l(ä|ae|æ|e)ng(en|de|te|d)?gra{1,2}d",
    r"([ctuvrxy]|dd|dec|decimal|geo|nav)?(lat|latitude?s?|latitudine)(deg|dd|dec)?"
    r"|breite|bre(d|it|edt)(d|de|e|en)?gra{1,2}d",
)
"""Words, in lower case, that say so in names of columns."""
LONG_WORD = r"(^|(?<=[\W_]))long[\W_]+(?!(deg|dd|dec|wgs|e\b|east|w\b|west|\d))"
"""The word "long" before others, as in long_term_mean."""


def kind_of_name(name: str) -> str | None:
    """Return which of longitude and latitude a column is by its name; None for others.

    >>> [kind_of_name(name) for name in ("decimalLatitude", "XLONG_M", "nav_lat", "x")]
    ['latitude', 'longitude', 'latitude', None]
    """
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    words = re.findall(r"[^\W\d_]+", re.sub(LONG_WORD, "_", parted))
    told = [any(re.fullmatch(spelt, word) for word in words) for spelt in SPELT]
    return KINDS[told.index(True)] if sum(told) == 1 else None


def _column(column: Any, names: Sequence[str]) -> int:
    if isinstance(column, str) and column in names:
        return list(names).index(column)
    text = str(column)
    if not isinstance(column, bool) and text.isdecimal() and int(text) < len(names):
        return int(text)
    raise SettingError(
        f"geographic names {shown(column)}, but the columns of X are {shown(', '.join(names))}: "
        f"name two of these, or give their numbers from 0 to {len(names) - 1}"
    )
