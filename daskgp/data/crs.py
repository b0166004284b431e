"""Coordinate reference systems: what grids and rows say of theirs, and whether two are the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from daskgp.errors import InputError
from daskgp.models.columns import KINDS, kind_of_name

Attributes: TypeAlias = Mapping[str, Any]

NAME = "spatial_ref"
"""Name of the variable of a grid that says its system, where it has none of its own."""
WKT = ("crs_wkt", "spatial_ref")
"""Attributes with its well-known text."""
SAYING = (*WKT, "grid_mapping_name")
"""Attributes of a variable that says a reference system."""
PLACE = "GeoTransform"
"""Attribute with the corner and the steps of the grid that it was written for."""
PLANE = ("x", "y")
"""Kinds of projected coordinates."""
ACROSS = ("x", "easting", "east", "eastings", "projection_x_coordinate", "grid_longitude")
UP = ("y", "northing", "north", "northings", "projection_y_coordinate", "grid_latitude")
"""Names of them, across a map and up; those of a rotated pole are no places on the globe."""
OF_AXES = {"X": "x", "Y": "y"}
"""Kinds by the CF attribute ``axis``."""


def says_one(ndim: int, attributes: Attributes) -> bool:
    """Return whether a variable is there to say a reference system."""
    return not ndim and any(key in attributes for key in SAYING)


def carried(attributes: Attributes) -> dict[str, Any]:
    """Return what attributes say of a system, as JSON has it, without the place of their grid."""
    plain = {key: v.tolist() if hasattr(v, "tolist") else v for key, v in attributes.items()}
    return {key: v for key, v in plain.items() if key != PLACE}


def wkt_of(attributes: Attributes) -> str:
    """Return the well-known text of a system by its attributes, "" where it is not known."""
    said = next((str(attributes[key]) for key in WKT if attributes.get(key)), "")
    if said or not attributes:
        return said
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        return ""
    try:
        return str(CRS.from_cf(dict(attributes)).to_wkt())
    except (CRSError, KeyError):
        return ""


def name_of(wkt: str) -> str:
    """Return the name in a well-known text, with its code where it says one.

    Examples
    --------
    >>> name_of('PROJCS["WGS 84 / UTM zone 32N",GEOGCS["WGS 84"],AUTHORITY["EPSG","32632"]]')
    'WGS 84 / UTM zone 32N (EPSG:32632)'
    """
    pole = re.findall(r'PARAMETER\["Grid north pole l[^"]*",([-+.\deE]+)', wkt)
    if pole:
        return f"degrees about a pole at {pole[0]}° N, {pole[-1]}° E"
    first = re.search(r'"([^"]*)"', wkt)
    code = _code(wkt)
    return (first[1] if first else wkt[:40]) + (f" ({code})" if code else "")


def _code(wkt: str) -> str:
    """Return the code of the whole of a text, such as EPSG:32632; "" without one."""
    found = re.search(r'(?:AUTHORITY|ID)\["?(\w+)"?,"?(\w+)"?\]\s*\]\s*$', wkt)
    return f"{found[1].upper()}:{found[2]}" if found else ""


def is_geographic(wkt: str) -> bool:
    """Return whether a system is of degrees east and north, with or without heights.

    Examples
    --------
    >>> is_geographic('COMPD_CS["WGS 84 + EGM96 height",GEOGCS["WGS 84"]]')
    True
    """
    whole = r'\s*(?:(?:BOUND\w*|COMPOUND\w*|COMPD_CS)\W*(?:"[^"]*"\s*,\s*)?)?(?:SOURCECRS\W*)?'
    return bool(re.match(f"{whole}(GEOG|GEODCRS|GEODETIC)", wkt, re.I))


def oddity(wkt: str) -> str:
    """Return how a geographic system differs from degrees from Greenwich; "" where it does not.

    Examples
    --------
    >>> oddity('GEOGCS["NTF (Paris)",PRIMEM["Paris",2.33722917],UNIT["grad",0.015707963267949]]')
    'in grads, from Paris'
    """
    if not is_geographic(wkt):
        return ""
    unit = re.search(r'UNIT\["(grad|gon|radian)', wkt, re.I)
    first = re.search(r'PRIMEM\["([^"]*)"\s*,\s*([-+.\deE]+)', wkt)
    elsewhere = first is not None and float(first[2]) != 0.0
    said = [f"in {unit[1]}s"] if unit else []
    return ", ".join([*said, f"from {first[1]}"] if first and elsewhere else said)


def same(one: str, other: str) -> bool:
    """Return whether places in two systems, of which neither is "", can be compared.

    Longitudes and latitudes are, whatever their ellipsoid, unless they are about different poles.

    Examples
    --------
    >>> same('GEOGCS["WGS 84"]', 'GEOGCRS["ETRS89"]'), same('GEOGCS["A"]', 'PROJCS["A"]')
    (True, False)
    """
    turned = all("DERIVINGCONVERSION" in wkt for wkt in (one, other))
    if one == other or (is_geographic(one) and is_geographic(other) and not turned):
        return True
    if is_geographic(one) != is_geographic(other):
        return False
    codes = _code(one), _code(other)
    if all(codes):
        return codes[0] == codes[1]
    try:
        from pyproj import CRS
        from pyproj.exceptions import CRSError
    except ImportError:
        names = (
            re.sub(r"\W|_", "", name_of(wkt).partition(" (")[0]).lower() for wkt in (one, other)
        )
        return len({*names}) == 1
    try:
        pair = CRS(one), CRS(other)
    except CRSError:
        return False
    if all(own.is_geographic and own.is_derived for own in pair):
        first, second = (_turning(own) for own in pair)
        return first == second
    return bool(pair[0].equals(pair[1], ignore_axis_order=True))


def _turning(system: Any) -> dict[str, float]:
    """Return the numbers that turn the pole of a system, whatever its ellipsoid."""
    return {one.name: round(float(one.value), 6) for one in system.coordinate_operation.params}


class OnGlobe(NamedTuple):
    """Functions of arrays x and y in a projected system, and of longitudes and latitudes, back."""

    to_degrees: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    to_plane: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    metres: float
    """Metres of a unit of x and y."""


def on_globe(wkt: str) -> OnGlobe | None:
    """Return where places in a projected system are; None without pyproj, or for other systems."""
    try:
        from pyproj import CRS, Transformer
        from pyproj.exceptions import CRSError, ProjError
    except ImportError:
        return None
    try:
        own = CRS(wkt)
        if not own.is_projected:
            return None
        there = Transformer.from_crs(own, "OGC:CRS84", always_xy=True)
    except (CRSError, ProjError):
        return None
    back = partial(there.transform, direction="INVERSE")
    return OnGlobe(there.transform, back, float(own.axis_info[0].unit_conversion_factor))


def refuse_other(own: Attributes, known: Attributes, what: str, where: str) -> None:
    """Raise InputError for places in another reference system than those before.

    Parameters
    ----------
    own, known : mapping of str to object
        Attributes that say each; none if it is not known, which is not compared.
    what, where : str
        What has each of them.
    """
    pair = wkt_of(own), wkt_of(known)
    if all(pair) and not same(*pair):
        raise InputError(
            f"{what} is in {name_of(pair[0])}, {where} in {name_of(pair[1])}: reproject one of "
            "them, for example with rioxarray's grid.rio.reproject, or correct its spatial_ref"
        )


def across_and_up(axes: Mapping[str, Attributes]) -> tuple[str, str] | None:
    """Return the names of the axes across and up a map; None where that is not clear.

    Parameters
    ----------
    axes : mapping of str to mapping
        CF attributes of axes by their names.
    """
    return _pair(axes, KINDS) or _pair(axes, PLANE)


def are_degrees(axes: Mapping[str, Attributes]) -> bool:
    """Return whether axes have longitude and latitude, see ``across_and_up``."""
    return _pair(axes, KINDS) is not None


def _pair(axes: Mapping[str, Attributes], kinds: tuple[str, str]) -> tuple[str, str] | None:
    """Return the names of the only axes of two kinds."""
    own = {name: _kind(name, attributes) for name, attributes in axes.items()}
    across, up = ([name for name, kind in own.items() if kind == one] for one in kinds)
    return (across[0], up[0]) if len(across) == len(up) == 1 else None


def _kind(name: str, attributes: Attributes) -> str | None:
    """Return whether an axis is longitude, latitude, x or y by its attributes, else its name."""
    standard = str(attributes.get("standard_name", "")).lower()
    unit = str(attributes.get("units", "")).lower()
    for kind, direction in zip(KINDS, ("east", "north"), strict=True):
        if standard == kind or re.fullmatch(f"degrees?_{direction}", unit):
            return kind
    names = {name.lower(), standard}
    of_plane = [kind for kind, own in zip(PLANE, (ACROSS, UP), strict=True) if names & {*own}]
    return (
        of_plane[0] if of_plane else kind_of_name(name) or OF_AXES.get(str(attributes.get("axis")))
    )
