"""Places of maps: points, or the grid of labelled results, with the names and units of its axes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daskgp import data
from daskgp.data import crs, grids, reading
from daskgp.errors import InputError
from daskgp.models.columns import KINDS, kind_of_name
from daskgp.plot.canvas import finite_values, in_memory

MOST_SIDE = 2_000
"""Most points along a side of a labelled grid that are drawn, more than a panel has pixels."""
TO_THE_RIGHT = {"x", "lon", "longitude", "east", "easting"}
UPWARDS = {"y", "lat", "latitude", "north", "northing"}
OF_DEGREES = {"longitude": "°E", "lon": "°E", "latitude": "°N", "lat": "°N"}
DEGREES = {"degrees_east": "°E", "degrees_north": "°N", "degrees": "°", "degree": "°", "1": ""}
METRES = {"m", "metre", "metres", "meter", "meters"}
SPREADS = ("std", "variance", "standard deviation")
OBSERVED = "a new observation of "
"""What a long name says of a spread that includes noise."""
PREDICTED = ("mean", "std", "variance", "quantiles", "exceedance", "samples")
OF_PREDICTIONS = ("target", "quantile", "sample")
"""Dimensions that predictions have beside those of their grid."""
MOST_PANELS = 24
FAR = 10_000.0
"""Extent in metres from which an axis is numbered in km."""


@dataclass(frozen=True, eq=False)
class Places:
    """Places of the values of a map.

    ``x`` and ``y`` are those of n points, of the columns and rows of an image of the ``shape``, or
    of all points of the image where it is curvilinear.  ``order`` are its points row by row.
    ``renamed`` axes have the names that the caller gave, with units if any.  ``crs`` is the
    well-known text of their reference system, "" where it is not known.
    """

    x: np.ndarray
    y: np.ndarray
    shape: tuple[int, ...] | None = None
    order: np.ndarray | None = None
    names: tuple[str, str] = ("x", "y")
    units: tuple[str, str] = ("", "")
    renamed: bool = True
    crs: str = ""

    @cached_property
    def extent(self) -> tuple[float, float]:
        """Width and height, in the units of the axes; those of times in seconds."""
        width, height = (float(np.ptp(_numbers(values))) for values in (self.x, self.y))
        return width, height

    @property
    def geographic(self) -> bool:
        """True if the axes are longitude and latitude."""
        return self.units == (DEGREES["degrees_east"], DEGREES["degrees_north"])

    @property
    def aspect(self) -> float | None:
        """Size of a unit upwards beside one to the right on the ground; None if not comparable."""
        if self.geographic:
            middle = np.clip((self.y.min() + self.y.max()) / 2, -80.0, 80.0)
            return float(1 / np.cos(np.deg2rad(middle)))
        return 1.0 if self.units[0] and self.units[0] == self.units[1] else None

    def in_km(self, axis: int) -> bool:
        """Return whether an axis in metres is numbered in km."""
        return not self.renamed and self.units[axis] in METRES and max(self.extent) >= FAR

    def label(self, axis: int) -> str:
        """Return the name of an axis with the unit that it is numbered in."""
        if self.renamed:
            return self.names[axis]
        return with_unit(self.names[axis], "km" if self.in_km(axis) else self.units[axis])

    def image(self, values: np.ndarray) -> np.ndarray:
        """Return values (n,) as the rows of an image, without what is not finite."""
        assert self.shape is not None
        return np.ma.masked_invalid(values[self.order].reshape(self.shape))


def _numbers(values: np.ndarray) -> np.ndarray:
    times = values.dtype.kind == "M"
    return values.astype("datetime64[s]").astype(np.float64) if times else values


def with_unit(name: str, unit: str) -> str:
    """Return a name with a unit in brackets, where there is one."""
    return f"{name} ({unit})" if unit else name


def squared(unit: str) -> str:
    """Return the square of a unit, empty for none."""
    return f"({unit})²" if set(unit) & set(" */^-") else f"{unit}²" if unit else ""


def two_columns(name: str, X: Any) -> np.ndarray:
    """Return points (n, 2); raise InputError for another shape, or for what is no number."""
    try:
        X = np.asarray(in_memory(reading.timed(X))[0], np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} holds something that is not a number ({error}): a map needs points of shape "
            "(n, 2), such "
            "as table[['lon', 'lat']]"
        ) from error
    if X.ndim != 2 or X.shape[1] != 2 or not len(X):
        raise InputError(f"{name} has shape {X.shape}: a map needs points of shape (n, 2)")
    return X


def placed(
    X: Any, panels: Mapping[str, Any], names: tuple[str, ...] | None
) -> tuple[Places, dict[str, np.ndarray], dict[str, str]]:
    """Return places, the values (n,) of each panel, and what each shows, with its unit.

    Parameters
    ----------
    X : array (n, 2), optional
        The places; None for those of the panels, DataArrays over two dimensions.
    panels : mapping of str to array
        Values by their names.
    names : pair of str, optional
        Labels of the axes instead of those that the data carry.
    """
    if X is None:
        return _of_labelled(panels, names)
    known = data.column_names(X)
    X = two_columns("X", X)
    computed = dict(zip(panels, in_memory(*panels.values()), strict=True))
    values = {name: finite_values(name, v, len(X)) for name, v in computed.items()}
    what = {name: described(v) if hasattr(v, "dims") else "" for name, v in panels.items()}
    return of_points(X, names, known), values, what


def of_points(
    X: np.ndarray, names: tuple[str, ...] | None, columns: Sequence[str] | None = None
) -> Places:
    """Return points (n, 2), as an image where they fill a regular grid.

    Columns called longitude and latitude, by their table or by the caller, are in degrees.
    """
    labels = names or columns or ("x", "y")
    known = any(_in_degrees(pair, X) for pair in (columns, names) if pair)
    labelled: dict[str, Any] = {
        "names": (labels[0], labels[1]),
        "units": (OF_DEGREES["lon"], OF_DEGREES["lat"]) if known else ("", ""),
        "renamed": names is not None,
    }
    x, y = np.unique(X[:, 0]), np.unique(X[:, 1])
    if min(len(x), len(y)) < 2 or len(x) * len(y) != len(X) or len(np.unique(X, axis=0)) != len(X):
        return Places(X[:, 0], X[:, 1], **labelled)
    return Places(x, y, (len(y), len(x)), np.lexsort((X[:, 0], X[:, 1])), **labelled)


def pair_on_a_map(
    names: Sequence[str], geographic: tuple[int, int] | None = None
) -> tuple[int, int] | None:
    """Return which features are across and up a map: places by their names, or both of two.

    Examples
    --------
    >>> pair_on_a_map(("height", "lat", "lon")), pair_on_a_map(("a", "b", "c"))
    ((2, 1), None)
    """
    known = crs.across_and_up({name: {} for name in names})
    if geographic is None and known is not None:
        return names.index(known[0]), names.index(known[1])
    return geographic or ((0, 1) if len(names) == 2 else None)


def columns_on_a_map(X: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, tuple[str, str]]:
    """Return points (n, 2), longitude before latitude, and the labels of their axes.

    Examples
    --------
    >>> X, names = columns_on_a_map(np.array([[50.0, 7.0]]), ("lat", "lon"))
    >>> X.tolist(), names
    ([[7.0, 50.0]], ('lon (°E)', 'lat (°N)'))
    """
    pair = (str(names[0]), str(names[1]))
    if [kind_of_name(name) for name in pair] == list(reversed(KINDS)):
        X, pair = X[:, ::-1], (pair[1], pair[0])
    if not _in_degrees(pair, X):
        return X, pair
    units = OF_DEGREES["lon"], OF_DEGREES["lat"]
    return X, (with_unit(pair[0], units[0]), with_unit(pair[1], units[1]))


def _in_degrees(names: Sequence[str], X: np.ndarray) -> bool:
    """Return whether columns are longitude and latitude by their names, which values may deny."""
    east, north = np.nanmax(np.abs(X), axis=0)
    return [kind_of_name(str(name)) for name in names] == list(KINDS) and bool(
        east <= 360 and north <= 90
    )


def results_of(results: Any) -> tuple[Any, Any]:
    """Return mean and standard deviation of a Dataset or another mapping of results.

    They are called ``mean`` and ``std``, or ``variance``, or so after the name of a target, which
    alone is that of a mean beside a spread.
    """
    if hasattr(results, "data_vars"):
        results = grids.with_reference(results)
    parts: dict[str, Any] = {}
    for what in ("mean", "std", "variance"):
        names = [name for name in results if name == what or str(name).endswith(f"_{what}")]
        if what == "mean":
            names += [name for name in results if _has_spread(name, results)]
        if len(names) > 1:
            raise InputError(
                f"the results have several variables {what}, {', '.join(map(str, names))}: give "
                "mean= and std= of one target"
            )
        if names:
            parts[what] = results[names[0]]
    if "mean" not in parts or not ("std" in parts or "variance" in parts):
        raise InputError(
            f"the results hold {', '.join(map(str, results)) or 'nothing'}: a mean and a std or "
            "variance are needed"
        )
    if "std" in parts:
        return parts["mean"], parts["std"]
    std = parts["variance"] ** 0.5
    unit = parts["mean"].attrs.get("units") if hasattr(parts["mean"], "attrs") else None
    if not unit:
        return parts["mean"], std
    said = str(parts["variance"].attrs.get("long_name", "")).replace("variance", SPREADS[-1])
    return parts["mean"], std.assign_attrs(units=unit, **({"long_name": said} if said else {}))


def _has_spread(name: Any, results: Mapping[Any, Any]) -> bool:
    """Return whether a variable is a mean by the name of a spread beside it."""
    return any(f"{name}_{spread}" in results for spread in ("std", "variance"))


def panels_of(fields: Any) -> dict[str, Any]:
    """Return DataArrays by the titles of their panels.

    There is one for each target, quantile and sample of a prediction.  Variables of a Dataset that
    have no two dimensions, such as the mapping of a grid, are left out.
    """
    panels: dict[str, Any] = {}
    if hasattr(fields, "data_vars"):
        fields = grids.with_reference(fields)
        means = [name for name in fields if _has_spread(name, fields)]
        ranks = {name: 0 if name in means else _rank(str(name)) for name in fields}
        for values in sorted(fields.values(), key=lambda array: ranks[array.name]):
            if values.ndim >= 2:
                panels |= _parts(_title(values), values)
    else:
        for title, values in fields.items():
            panels |= _parts(str(title), values)
    if len(panels) > MOST_PANELS:
        raise InputError(
            f"{len(panels)} panels are more than the {MOST_PANELS} of a figure: choose some, such "
            "as "
            "map[['mean', 'std']] or map.isel(sample=slice(3))"
        )
    return panels


def _rank(name: str) -> int:
    """Return the position of a variable among those of predictions, or after them."""
    what = name.rpartition("_")[2]
    return PREDICTED.index(what) if what in PREDICTED else len(PREDICTED)


def _parts(title: str, values: Any) -> dict[str, Any]:
    """Return a field by its title, or its parts along a dimension of predictions by theirs."""
    dim = next((dim for dim in OF_PREDICTIONS if dim in getattr(values, "dims", ())), None)
    if dim is None:
        return {title: values}
    parts: dict[str, Any] = {}
    for i in range(values.sizes[dim]):
        part = values.isel({dim: i}, drop=True)
        label = values[dim].values[i] if dim in values.coords else i + 1
        if dim == "target":
            limits = part.attrs.get("threshold", 0.0)
            if np.ndim(limits):
                part = part.assign_attrs(threshold=float(limits[i]))
                title = _title(part)
            part, own = part.rename(f"{label}_{part.name}"), f"{label} {title}"
        else:
            own = f"{title.removesuffix(f'{dim}s')}{dim} {label}"
        parts |= _parts(own, part)
    return parts


def _title(array: Any) -> str:
    """Return the title of a variable: that of a prediction in words."""
    if "threshold" in array.attrs:
        limits = np.ravel(array.attrs["threshold"])
        return f"probability above {', '.join(f'{limit:g}' for limit in limits)}"
    name = str(array.name).replace("_", " ")
    return f"{name[:-3]}standard deviation" if name.split()[-1] == "std" else name


def is_spread(title: str) -> bool:
    """Return whether a panel shows a standard deviation or a variance."""
    return title.replace("_", " ").endswith(SPREADS)


def _of_labelled(
    panels: Mapping[str, Any], names: tuple[str, ...] | None
) -> tuple[Places, dict[str, np.ndarray], dict[str, str]]:
    first = next((v for v in panels.values() if hasattr(v, "dims")), None)
    if first is None:
        raise InputError(
            "the places are missing: give X (n, 2), or DataArrays over the two dimensions of a map"
        )
    first = first.squeeze(drop=True)
    if first.ndim != 2:
        raise InputError(
            f"an array has dimensions {dict(first.sizes)}: a map has two, choose one of the others "
            "with isel or sel"
        )
    same = {name: grids.on_the_grid_of(first, _squeezed(v)) for name, v in panels.items()}
    axes = axes_of(first)
    thin = {dim: slice(None, None, -(-size // MOST_SIDE)) for dim, size in first.sizes.items()}
    dims = axes[1].dims if axes[1].ndim == 2 else (*axes[1].dims, *axes[0].dims)
    values = in_memory(*(v.isel(thin).transpose(*dims).data for v in same.values()))
    x, y = (axis.isel({dim: thin[dim] for dim in axis.dims}).values for axis in axes)
    shape = x.shape if x.ndim == 2 else (len(y), len(x))
    order = np.arange(int(np.prod(shape))).reshape(shape)
    if x.ndim == 1:  # an image has its columns and rows in increasing order
        by_x, by_y = np.argsort(x), np.argsort(y)
        x, y, order = x[by_x], y[by_y], order[by_y][:, by_x]
    units = (unit_of(axes[0]), unit_of(axes[1]))
    labels = names or (name_of(axes[0]), name_of(axes[1]))
    pair = labels[0], labels[1]
    said = crs.wkt_of(grids.reference_of(first)[1])
    where = Places(x, y, shape, order.ravel(), pair, units, names is not None, said)
    flat = {
        name: finite_values(name, np.ravel(v), len(order.ravel()))
        for name, v in zip(same, values, strict=True)
    }
    return where, flat, {name: described(v) for name, v in same.items()}


def _squeezed(values: Any) -> Any:
    return values.squeeze(drop=True) if hasattr(values, "dims") else values


def axes_of(array: Any) -> tuple[Any, Any]:
    """Return the coordinates that run to the right and upwards."""
    curved = grids.curvilinear(array)
    pair = [array[name] for name in curved] if len(curved) == 2 else [array[d] for d in array.dims]
    for axis in pair:
        if axis.dtype.kind != "M":
            values = axis.values
            reading.refuse_column(f"coordinate {axis.name!r}", axis.dtype, values.__array__)
    upwards, right = pair  # xarray's order, unless the data say otherwise
    turned = _runs(upwards, "X", TO_THE_RIGHT) or _runs(right, "Y", UPWARDS)
    return (upwards, right) if turned else (right, upwards)


def in_plane(axis: Any) -> bool:
    """Return whether a coordinate is known to run to the right or upwards on a map."""
    return _runs(axis, "X", TO_THE_RIGHT) or _runs(axis, "Y", UPWARDS)


def _runs(axis: Any, letter: str, names: set[str]) -> bool:
    """Return whether CF attributes, or else the name, say that an axis runs that way."""
    standard = str(axis.attrs.get("standard_name", ""))
    return (
        axis.attrs.get("axis") == letter
        or standard == f"projection_{letter.lower()}_coordinate"
        or {standard, str(axis.name).lower().split("_")[0]} & names != set()
        or unit_of(axis) == DEGREES["degrees_east" if letter == "X" else "degrees_north"]
    )


def name_of(array: Any) -> str:
    """Return the long name of a coordinate or variable, or else its standard name, or its name."""
    standard = str(array.attrs.get("standard_name", "")).replace("_", " ")
    return str(array.attrs.get("long_name") or standard or array.name or "")


def unit_of(array: Any) -> str:
    """Return the unit of a coordinate or variable as an axis shows it, empty if not known.

    Longitudes and latitudes are known by their names too.
    """
    unit = str(array.attrs.get("units", ""))
    if square := re.fullmatch(r"\((.+)\)2", unit):
        return squared(square[1])
    for of in ("east", "north"):
        cf = {f"degree{s}_{of[0].upper()}" for s in ("", "s")} | {f"degree_{of}", f"degrees_{of}"}
        if unit in cf:
            return DEGREES[f"degrees_{of}"]
    known = OF_DEGREES.get(str(array.attrs.get("standard_name", array.name)).lower())
    return known if known and unit in ("", "degrees", "degree") else DEGREES.get(unit, unit)


def described(array: Any) -> str:
    """Return what values are, with their unit: the name of the target for those predicted of it.

    A spread may be that of a new observation of the target, noise included.
    """
    name, long_name = str(array.name or ""), str(array.attrs.get("long_name", ""))
    if "threshold" in array.attrs:
        return "probability"
    for what in PREDICTED:
        if name == what or name.endswith(f"_{what}"):
            target = name[: -len(what)].rstrip("_")
            if target and long_name.startswith("standard deviation of "):
                target = long_name.removeprefix("standard deviation of ")
            if not target and long_name.startswith(
                "posterior "
            ):  # of a new observation of the target
                target = long_name.rpartition(" of ")[2]
            if target and what in SPREADS and f" of {OBSERVED}" in long_name:
                target = f"{OBSERVED}{target.removeprefix(OBSERVED)}"
            if target:
                return with_unit(target, unit_of(array))
    return with_unit(name_of(array), unit_of(array)).strip()
