"""Polygons of GeoJSON files, which rows and cells lie in or not, and lines to draw on maps."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import fsspec
import numpy as np
import xarray as xr

from daskgp.checks import text_of
from daskgp.data import crs
from daskgp.data.stores import remote
from daskgp.errors import InputError
from daskgp.models.columns import KINDS, kind_of_name
from daskgp.models.markov.barriers import Sight, between

logger: logging.Logger = logging.getLogger("daskgp")

Names: TypeAlias = tuple[str, ...]
ENDINGS = (".geojson", ".json")
LINES = {"LineString": 0, "MultiLineString": 1, "Polygon": 1, "MultiPolygon": 2}
"""Geometries that have lines, and how deep these lie."""
HOLD = ("Polygon", "MultiPolygon")
"""Geometries that have an inside."""


def is_path(mask: str) -> bool:
    """Return whether a mask is the path of polygons rather than the name of a variable."""
    return mask.lower().endswith(ENDINGS)


@dataclass(frozen=True)
class Polygons:
    """Polygons over two features, across a map and up.

    Inside of one of them is where a ray crosses its rings an odd number of times.
    """

    each: tuple[tuple[np.ndarray, ...], ...]
    features: tuple[str, str]

    @property
    def rings(self) -> tuple[np.ndarray, ...]:
        """Rings of all polygons."""
        return tuple(ring for rings in self.each for ring in rings)

    @property
    def token(self) -> str:
        """Checksum of the rings."""
        whole = hashlib.sha256(repr(self.features).encode())
        for ring in self.rings:
            whole.update(np.ascontiguousarray(ring).tobytes())
        return whole.hexdigest()

    def hold(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return whether points (n,) are inside; longitudes are from -180 or from 0 degrees."""
        turns = (0.0, -360.0, 360.0) if self._turn else (0.0,)
        found = np.zeros(len(x), bool)
        for rings in self.each:
            ends = np.concatenate(rings)
            (west, south), (east, north) = ends.min(axis=0), ends.max(axis=0)
            level = (south <= y) & (y <= north)
            for turn in turns:
                own = np.flatnonzero(level & (west <= x + turn) & (x + turn <= east))
                if len(own):
                    found[own] |= inside(rings, x[own] + turn, y[own])
        return found

    @property
    def _turn(self) -> bool:
        """True if the feature across is a longitude."""
        return kind_of_name(self.features[0]) == KINDS[0]

    def warn(self, name: str) -> None:
        """Warn of polygons that cross themselves, and of edges that go the long way round."""
        for number, rings in enumerate(self.each, 1):
            place = crossing(rings)
            if place is not None:
                logger.warning(
                    "polygon %d of %s crosses itself near (%g, %g), so that parts of it may count "
                    "as outside: mend it, for example with make_valid of shapely",
                    *(number, name, *place),
                )
        for number, ring in enumerate(self.rings, 1) if self._turn else ():
            steps = np.abs(np.diff(ring[:, 0]))
            if ((steps > 180.0) & (steps < 360.0)).any():
                i = int(np.argmax((steps > 180.0) & (steps < 360.0)))
                logger.warning(
                    "ring %d of %s has an edge from longitude %g to %g, which crosses 0 "
                    "degrees, not 180: if it should cross 180, give longitudes from 0 to 360",
                    number,
                    name,
                    *ring[i : i + 2, 0],
                )

    def among(self, x: xr.DataArray, y: xr.DataArray) -> xr.DataArray:
        """Return whether labelled places are inside, over the dimensions of both."""
        x, y = xr.broadcast(x, y)
        found = self.hold(np.ravel(x), np.ravel(y)).reshape(x.shape)
        return xr.DataArray(found, dims=x.dims)


def polygons_in(
    given: Any, features: Names, what: str = "mask", over: tuple[str, str] | None = None
) -> Polygons:
    """Return the polygons in a GeoJSON file, or in what one says.

    Parameters
    ----------
    given : str, mapping or object
        Path of a file, what one says, or an object whose ``__geo_interface__`` says it.
    features : tuple of str
        Names, among which are longitude and latitude, or x and y.
    what : str
        Name of the polygons in messages.
    over : pair of str, optional
        Those of the features, where it is known.

    Raises
    ------
    InputError
        If the file has no polygons, or it is not clear which features they are over.
    """
    given = text_of(given)
    path = isinstance(given, str)
    said = _read(given, what) if path else geojson_of(given)
    name = given if path else what
    polygons = Polygons(
        _checked(tuple(_parts(said, HOLD)), name), over or across_and_up(features, what)
    )
    polygons.warn(name)
    return polygons


def geojson_of(given: Any) -> Mapping[str, Any] | None:
    """Return what GeoJSON says that is given as a mapping or by an object; None for others."""
    said = getattr(given, "__geo_interface__", given)
    return said if isinstance(said, Mapping) else None


def across_and_up(features: Names, what: str = "mask") -> tuple[str, str]:
    """Return the features across and up a map."""
    found = crs.across_and_up({name: {} for name in features})
    if found is not None:
        return found
    raise InputError(
        f"{what} has polygons, and it is not clear which features they are over: name them "
        f"lon and lat, or x and y; they are {', '.join(features)}"
    )


def lines_in(source: Any) -> tuple[np.ndarray, ...]:
    """Return lines (k, 2), and the rings of polygons.

    Parameters
    ----------
    source : str or object with a ``__geo_interface__``
        Path of a GeoJSON file; or geometries of shapely or geopandas.

    Raises
    ------
    InputError
        If there are none.
    """
    source = text_of(source)
    path = isinstance(source, str)
    said = _read(source, "coast") if path else source.__geo_interface__
    lines = tuple(line for lines in _parts(said, tuple(LINES)) for line in lines)
    if not lines or any(line.ndim != 2 or line.shape[1] < 2 for line in lines):
        raise InputError(
            f"{source if path else 'coast'} has no line to draw: give geometries that are "
            "LineString, MultiLineString, Polygon or MultiPolygon"
        )
    return tuple(line[:, :2] for line in lines)


def _checked(
    polygons: tuple[tuple[np.ndarray, ...], ...], name: str
) -> tuple[tuple[np.ndarray, ...], ...]:
    """Return the rings (k, 2) of polygons; InputError unless they are closed lines of numbers."""
    rings = [ring for rings in polygons for ring in rings]
    tables = all(ring.ndim == 2 and ring.shape[1] >= 2 and len(ring) >= 4 for ring in rings)
    if not rings or not tables or any((ring == ring[0]).all() for ring in rings):
        raise InputError(
            f"{name} has no polygon with an inside: give a GeoJSON file of Polygon or MultiPolygon "
            "geometries"
        )
    for number, ring in enumerate((ring[:, :2] for ring in rings), 1):
        if not np.isfinite(ring).all():
            raise InputError(
                f"ring {number} of {name} has coordinates that are not finite numbers: correct them"
            )
        if (ring[0] != ring[-1]).any():
            raise InputError(
                f"ring {number} of {name} is not closed: it begins at {ring[0].tolist()} and ends "
                f"at {ring[-1].tolist()}, let it end where it begins"
            )
    return tuple(tuple(ring[:, :2] for ring in rings) for rings in polygons)


def _read(path: str, name: str) -> Any:
    """Return what a GeoJSON file says, which an argument of that name is the path of."""
    try:
        with fsspec.open(path, "rt", encoding="utf-8", **(remote.options(path) or {})) as file:
            return json.load(file)
    except FileNotFoundError:
        raise InputError(f"{name} {path} does not exist: check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path}: it is not GeoJSON ({error}); give a GeoJSON file"
        ) from None


def _parts(said: Any, kinds: tuple[str, ...]) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the lines of each polygon, or other geometry of some kinds, in what GeoJSON says."""
    if not isinstance(said, Mapping):
        return
    for key in ("features", "geometries"):
        for one in said.get(key) or ():
            yield from _parts(one, kinds)
    yield from _parts(said.get("geometry"), kinds)
    if said.get("type") in kinds:
        depth, given = LINES[said["type"]], _listed(said.get("coordinates"))
        for lines in given if depth == 2 else ([given] if depth == 0 else given,):
            yield tuple(_line(line) for line in _listed(lines))


def _listed(given: Any) -> Any:
    """Return a list; an empty one of what is none."""
    return given if isinstance(given, list | tuple) else ()


def _line(given: Any) -> np.ndarray:
    """Return the points of a line; none of what is no line."""
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def inside(rings: tuple[np.ndarray, ...], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return whether points (n,) are inside of the rings of a polygon, the others being holes.

    Examples
    --------
    >>> ring = np.array([[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], float)
    >>> inside((ring,), np.array([1.0, 5.0]), np.array([1.0, 1.0]))
    array([ True, False])
    """
    order = np.argsort(y)  # an edge is crossed by rays between its ends alone
    x, y = x[order], y[order]
    crossed = np.zeros(len(x), bool)
    for ring in rings:
        ends = np.searchsorted(y, ring[:, 1])
        for e in np.flatnonzero(ends[1:] != ends[:-1]):  # most of a long coast has no point beside
            (x0, y0), (x1, y1), own = ring[e], ring[e + 1], slice(*sorted(ends[e : e + 2]))
            crossed[own] ^= x[own] < x0 + (x1 - x0) * (y[own] - y0) / ((y1 - y0) or 1.0)
    found = np.empty_like(crossed)
    found[order] = crossed
    return found


FEW_EDGES, SHORTER = 512, 1e-6
"""Edges up to which all pairs are looked at, and the share of an edge by which corners are cut, so
that edges which only touch do not cross."""


def crossing(rings: tuple[np.ndarray, ...]) -> np.ndarray | None:
    """Return a place near which edges of the rings of a polygon cross; None without.

    Rings may touch one another, and themselves.

    Examples
    --------
    >>> square = np.array([[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], float)
    >>> crossing((square,)), crossing((square[[0, 1, 3, 2, 0]],))
    (None, array([2., 2.]))
    """
    rings = tuple(ring[np.r_[True, (np.diff(ring, axis=0) != 0).any(axis=1)]] for ring in rings)
    starts, stops = (
        np.concatenate([ring[own] for ring in rings]) for own in (np.s_[:-1], np.s_[1:])
    )
    rounding = 1e-12 * float(np.abs(starts).max())
    edges, corners = _cut(rings, starts, stops, rounding)
    middles = np.concatenate([starts + stops, 2.0 * starts]) / 2.0
    every = np.concatenate([edges, corners])
    # what crosses an edge is an edge or a corner; edges that touch lie beside corners
    crossed = np.concatenate([_crossed(edges, edges, rounding), _crossed(every, corners, rounding)])
    return middles[np.argmax(crossed)] if crossed.any() else None


def _cut(
    rings: tuple[np.ndarray, ...], starts: np.ndarray, stops: np.ndarray, rounding: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return edges (e, 4) without their ends, and those (e, 4) that cut the corner at each start.

    As far from a corner as others at the same place: they cross where their edges do.
    """
    lengths = np.hypot(*(stops - starts).T)
    both = np.rint(np.concatenate([starts, stops]) / (10.0 * rounding))
    places, number = np.unique(both, axis=0, return_inverse=True)
    away = np.full(len(places), np.inf)
    np.minimum.at(away, number.ravel(), np.tile(lengths, 2))
    away = np.minimum(np.maximum(SHORTER * away, 10.0 * rounding), away / 4.0)[number.ravel()]
    along = (stops - starts) / lengths[:, None]
    begun, ended = np.split(away[:, None], 2)
    begins, ends = starts + begun * along, stops - ended * along
    sizes = np.cumsum([len(ring) - 1 for ring in rings])
    before = np.concatenate([np.roll(own, 1, axis=0) for own in np.split(ends, sizes[:-1])])
    return np.concatenate([begins, ends], axis=1), np.concatenate([before, begins], axis=1)


def _crossed(edges: np.ndarray, lines: np.ndarray, rounding: float) -> np.ndarray:
    """Return which lines (r, 4) an edge (e, 4) crosses."""
    starts, stops = map(np.ascontiguousarray, (lines[:, :2], lines[:, 2:]))
    if len(edges) <= FEW_EDGES:
        return between(edges, starts, stops, rounding)
    own = np.arange(len(lines))
    return ~Sight(edges, starts, stops, rounding).sees(own, own[:, None])[:, 0]
