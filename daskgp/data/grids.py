"""Labelled data: rows from xarray objects and predictions back on their grid.

The features of a grid are built inside each block from one-dimensional coordinates, so a grid
of any size never becomes a table of coordinates in memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from types import MappingProxyType
from typing import Any, TypeGuard

import dask
import dask.array as da
import numpy as np
import xarray as xr

from daskgp.data import crs, expected, feature_units, moments, reading, valid
from daskgp.data.categories import Coding, Levels, names_of
from daskgp.errors import InputError
from daskgp.models.columns import KINDS, kind_of_name

Names = tuple[str, ...]

MAPPING = "grid_mapping"
"""Attribute that names what says the reference system of a variable."""
EAGER_ROWS = 65_536
"""Rows per block of a grid that is not chunked itself."""


def is_xarray(x: Any) -> bool:
    """Return whether x is a DataArray or a Dataset."""
    return isinstance(x, xr.DataArray | xr.Dataset)


def is_tree(x: Any) -> bool:
    """Return whether x is a DataTree."""
    return isinstance(x, xr.DataTree)


def nodes_with(tree: xr.DataTree, names: Sequence[str]) -> dict[str, xr.Dataset]:
    """Return the nodes of a tree that have coordinates or variables of all names, by their paths.

    InputError if there are none, or a leaf lacks a name.
    """
    found: dict[str, xr.Dataset] = {}
    for node in tree.subtree:
        own = node.to_dataset()
        missing = [name for name in names if name not in own.variables]
        if not missing:
            found[node.path] = own
        elif node.is_leaf and own.variables:
            there = ", ".join(map(str, own.variables))
            raise InputError(
                f"node {node.path} of the DataTree has no {missing[0]!r}, it has {there}: rename "
                "it or leave the node out"
            )
    if not found:
        raise InputError(f"no node of the DataTree has {', '.join(names)}: check the names")
    return found


def tree_like(tree: xr.DataTree, found: Mapping[str, xr.DataArray | xr.Dataset]) -> xr.DataTree:
    """Return a tree with the nodes of another, those that are found with what is found there."""
    nodes = {path: as_dataset(own) for path, own in found.items()}
    empty = {node.path: xr.Dataset() for node in tree.subtree}
    return xr.DataTree.from_dict(empty | nodes, name=tree.name)


def only_node(tree: xr.DataTree, names: Sequence[str] = ()) -> xr.Dataset:
    """Return the only node of a tree with all names, of none the only one with variables.

    InputError unless there is exactly one.
    """
    found = {}
    for node in tree.subtree:
        own = node.to_dataset()
        if {*names} <= {*map(str, own.variables)} if names else own.data_vars:
            found[node.path] = own
    what = f"{', '.join(names)}" if names else "variables"
    if not found:
        paths = ", ".join(node.path for node in tree.subtree)
        raise InputError(
            f"no node of the DataTree has {what} (its nodes are {paths}): check the names"
        )
    if len(found) > 1:
        paths = " and ".join([*found][:2])
        raise InputError(
            f"{len(found)} nodes of the DataTree have {what}, such as {paths}: give one, "
            f"tree[{next(iter(found))!r}].to_dataset()"
        )
    return next(iter(found.values()))


def as_dataset(x: xr.DataArray | xr.Dataset, unnamed: str = "y") -> xr.Dataset:
    """Return a Dataset of a DataArray, by its name or else ``unnamed``; a Dataset as it is."""
    return x.to_dataset(name=x.name or unnamed) if isinstance(x, xr.DataArray) else x


def flat(X: xr.DataArray | xr.Dataset) -> tuple[dict[str, np.ndarray], Names]:
    """Return coordinates and variables by name, each with a value (n,) for every point of a grid.

    And the names of the variables.
    """
    X = as_dataset(X)
    variables = tuple(map(str, X.data_vars))
    every = xr.broadcast(*(X[name].reset_coords(drop=True) for name in X.variables))
    named = zip(map(str, X.variables), every, strict=True)
    return {name: _in_days(np.asarray(one.values)).ravel() for name, one in named}, variables


def _in_days(values: np.ndarray) -> np.ndarray:
    """Return dates as days since 1970, all else as it is."""
    dates = values.dtype.kind == "M" or feature_units.calendar_of(values) is not None
    return _as_float(values) if dates else values


def reference_of(X: xr.DataArray | xr.Dataset) -> tuple[str, dict[str, Any]]:
    """Return the name of the variable that says the reference system of a grid, and its attributes.

    It is the one that a variable names as its ``grid_mapping``, or the first; "" without any.
    """
    known = X.coords if isinstance(X, xr.DataArray) else X.variables
    saying = [str(name) for name, own in known.items() if crs.says_one(own.ndim, own.attrs)]
    fields = (X,) if isinstance(X, xr.DataArray) else X.variables.values()
    named = [one.attrs.get(MAPPING, one.encoding.get(MAPPING)) for one in fields]
    first = next((name for name in (*named, *saying) if name in saying), "")
    return first, dict(known[first].attrs) if first else {}


def with_reference(X: xr.Dataset) -> xr.Dataset:
    """Return a Dataset in which what says its reference system is a coordinate."""
    mapping, _ = reference_of(X)
    return X.set_coords(mapping) if mapping else X


def labelled(
    values: Mapping[str, tuple[Any, Mapping[str, Any]]], coords: Any, dims: Iterable[Hashable]
) -> xr.Dataset:
    """Return a Dataset of arrays with their attributes, all along the same dimensions."""
    along = tuple(dims)
    return xr.Dataset({name: (along, a, dict(said)) for name, (a, said) in values.items()}, coords)


def described(X: xr.DataArray | xr.Dataset) -> dict[str, Any]:
    """Return a Dataset as JSON has it, which ``restored`` reads."""
    return as_dataset(X).to_dict()


def restored(said: Mapping[str, Any]) -> xr.Dataset:
    """Return the Dataset of a description."""
    return xr.Dataset.from_dict(said)


@dataclass(frozen=True, eq=False)
class Grid:
    """Points of a grid, or of a table, with the arrays that give their features.

    ``parts`` has one (array, dims) for each feature, the dims in the grid's order; ``coords`` are
    the coordinates that predictions get back, of which ``mapping`` names the one that says the
    reference system, "" without one.
    """

    dims: tuple[Hashable, ...]
    chunks: tuple[tuple[int, ...], ...]
    lazy: bool
    parts: tuple[tuple[Any, tuple[Hashable, ...]], ...]
    coords: Any
    mapping: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each dimension."""
        return tuple(sum(sizes) for sizes in self.chunks)

    @property
    def axes(self) -> tuple[tuple[int, ...], ...]:
        """Places of the dimensions of every array among those of the grid."""
        return tuple(tuple(self.dims.index(dim) for dim in dims) for _, dims in self.parts)

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(self.shape)

    def in_memory(self, d: int) -> bool:
        """Return whether the arrays that give the first d features are."""
        return all(isinstance(values, np.ndarray) for values, _ in self.parts[:d])

    def some(self, numbers: Callable[[int], np.ndarray], d: int) -> np.ndarray | None:
        """Return the first d features (m, d) of some points, None if there are none in memory.

        ``numbers`` returns the numbers of these points, given how many there are.
        """
        if not self.in_memory(d) or not self.size:
            return None
        place = np.unravel_index(numbers(self.size), self.shape) if self.dims else ()
        columns = [
            _as_float(values[tuple(place[axis] for axis in own)])
            for (values, _), own in zip(self.parts[:d], self.axes, strict=False)
        ]
        return np.stack(np.broadcast_arrays(*map(np.atleast_1d, columns)), axis=1)

    def map(self, function: Callable[..., np.ndarray], width: int, *shared: Any) -> da.Array:
        """Apply ``function(features (n, d), *shared)`` giving (n, width) to each block, lazily.

        Return a dask array with the grid's dimensions and one more of size ``width``.
        """
        arguments: list[Any] = []
        for (values, _), own in zip(self.parts, self.axes, strict=True):
            chunks = tuple(self.chunks[axis] for axis in own)
            lazy = isinstance(values, da.Array)
            arguments += [values.rechunk(chunks) if lazy else da.from_array(values, chunks), own]
        ndim = len(self.dims)
        return da.blockwise(
            _grid_block,
            tuple(range(ndim + 1)),
            *arguments,
            new_axes={ndim: width},
            function=function,
            shared=list(shared),
            axes=self.axes,
            ndim=ndim,
            dtype=np.float64,
            align_arrays=False,  # they are; dask would warn about a grid of many chunks
            meta=np.empty((0,) * (ndim + 1)),
            name="grid-" + dask.base.tokenize(self.dims, self.parts, self.chunks, function, shared),
        )

    def wrap(
        self, data: Any, targets: Names, vector: bool, what: str, said: dict[str, Any]
    ) -> xr.DataArray:
        """Return a DataArray on this grid; it has a dimension ``target`` unless y is a vector.

        ``what`` ("mean", "std", "variance", or "samples", along a last dimension) is part of its
        name, and ``said`` are its attributes.
        """
        own = {} if vector else {"target": list(targets)}
        name = moments.name_of(what, targets[0]) if vector else what
        if self.mapping:
            said = {**said, MAPPING: self.mapping}
        dims = (*self.dims, *own, *(("sample",) if what == "samples" else ()))
        return xr.DataArray(data, {**self.coords, **own}, dims, name, said)


def _grid_block(
    *parts: np.ndarray,
    function: Callable[..., np.ndarray],
    shared: list[Any],
    axes: tuple[tuple[int, ...], ...],
    ndim: int,
) -> np.ndarray:
    columns = _columns(parts, axes, ndim)
    shape = columns[0].shape
    found = function(np.stack([column.ravel() for column in columns], axis=1), *shared)
    return found.reshape(*shape, *found.shape[1:])


def _columns(
    parts: Sequence[np.ndarray], axes: tuple[tuple[int, ...], ...], ndim: int
) -> tuple[np.ndarray, ...]:
    placed = []
    for part, own in zip(parts, axes, strict=True):
        shape = [1] * ndim
        for axis, size in zip(own, part.shape, strict=True):
            shape[axis] = size
        placed.append(_as_float(part).reshape(shape))
    return np.broadcast_arrays(*placed)


def _as_float(values: np.ndarray) -> np.ndarray:
    """Return numbers as float64, and times as days since 1970."""
    if values.dtype.kind == "M":
        days = (values - np.datetime64(0, "s")) / np.timedelta64(1, "D")
        return np.asarray(days, np.float64)
    if feature_units.calendar_of(values) is not None:
        return feature_units.days_of(values)
    return np.asarray(values, np.float64)


def units_of(X: xr.DataArray | xr.Dataset, names: Names) -> Names:
    """Return the units of the named features as attributes say; those of times are days."""
    if is_table(X):
        return ("",) * len(names)
    return tuple(unit_of(X[name]) for name in names)


def unit_of(values: xr.DataArray) -> str:
    """Return the unit of a coordinate or variable, empty if it does not say."""
    if values.dtype.kind == "M":
        return feature_units.DAYS
    calendar = calendar_of(values)
    if calendar is not None:
        return feature_units.in_calendar(feature_units.DAYS, calendar)
    return feature_units.said_by(values.attrs)


def calendar_of(values: xr.DataArray) -> str | None:
    """Return the calendar of a variable of dates of cftime, None for all else."""
    if values.dtype.kind != "O":
        return None
    first = values.isel({dim: slice(0, 1) for dim in values.dims}).values
    calendar = feature_units.calendar_of(first)
    return calendar or feature_units.calendar_of(values.values)  # the first one may be missing


def default_features(X: xr.DataArray | xr.Dataset) -> Names:
    """Return the names of the features of a labelled object.

    They are the coordinates of its dimensions and then, for a Dataset, its data variables; only
    the variables where a Dataset has a single dimension (a table).
    """
    coordinates = [str(dim) for dim in dims_of(X) if dim in X.coords]
    if isinstance(X, xr.DataArray):
        return tuple(coordinates)
    own = X.data_vars.items()
    variables = [str(name) for name, v in own if not crs.says_one(v.ndim, v.attrs)]
    return tuple(variables if variables and len(X.sizes) == 1 else coordinates + variables)


def dims_of(X: xr.DataArray | xr.Dataset) -> tuple[Hashable, ...]:
    """Return the dimensions in order, for a Dataset first those of the variable with the most."""
    if isinstance(X, xr.DataArray):
        return X.dims
    variables = sorted(X.data_vars.values(), key=lambda v: -v.ndim)
    ordered = list(variables[0].dims) if variables else []
    return tuple(ordered + [dim for dim in X.sizes if dim not in ordered])


def curvilinear(X: xr.DataArray | xr.Dataset) -> Names:
    """Return the names of coordinates along two or more dimensions that have no coordinates."""
    return tuple(
        str(name)
        for name, values in X.coords.items()
        if values.ndim > 1 and not any(dim in X.coords for dim in values.dims)
    )


def without_coordinates(X: xr.DataArray | xr.Dataset, dims: Iterable[Hashable]) -> dict[str, int]:
    """Return the sizes of those dimensions along which X has several points and no coordinate."""
    return {str(dim): X.sizes[dim] for dim in dims if dim not in X.coords and X.sizes[dim] > 1}


def along_nothing(X: xr.Dataset, but: Collection[str]) -> dict[str, int]:
    """Return the sizes of dimensions of several points that have no coordinate, ``but`` some."""
    along = {dim for name, own in X.coords.items() if name not in but for dim in own.dims}
    return {str(dim): size for dim, size in X.sizes.items() if size > 1 and dim not in along}


def bare(sizes: Mapping[str, int]) -> str:
    """Return what messages say of dimensions without a coordinate, with the remedy."""
    remedy = ", ".join(f"{dim}=np.arange({size})" for dim, size in sizes.items())
    return (
        f"no coordinate along {', '.join(map(repr, sizes))}, so that nothing tells its points "
        f"apart: add it with xarray, .assign_coords({remedy}) or its true values"
    )


def is_table(X: Any) -> TypeGuard[xr.DataArray]:
    """Return whether X is a two-dimensional DataArray (rows, features) rather than a grid."""
    return (
        isinstance(X, xr.DataArray)
        and X.ndim == 2
        and not curvilinear(X)
        and (X.dims[0] not in X.coords or X[X.dims[1]].dtype.kind in "OUT")
    )


def labels(X: xr.DataArray) -> Names | None:
    """Return the names of the columns of a table, None where it has none."""
    columns = X.coords.get(X.dims[1])
    return None if columns is None else tuple(str(value) for value in columns.values)


def measured(variable: xr.Variable) -> valid.Valid | None:
    """Return what values of a variable are measurements by its attributes; None if they do not say.

    Coordinates of dimensions have no missing values.
    """
    if isinstance(variable, xr.IndexVariable):
        return None
    return valid.of(variable.dtype, variable.attrs, variable.encoding)


class Stored:
    """A variable of a file as tasks read it, part by part; it travels as the address of the file.

    It is not read as a whole, as ``variable.data`` would be.
    """

    variable: xr.Variable
    shape: tuple[int, ...]
    how: feature_units.Change | None
    valid: valid.Valid | None
    dtype: np.dtype[Any]

    def __init__(self, variable: xr.Variable, how: feature_units.Change | None = None) -> None:
        self.variable, self.shape, self.how = variable, variable.shape, how
        self.valid = measured(variable)
        plain = how is None and variable.dtype.kind != "O" and self.valid is None
        self.dtype = variable.dtype if plain else np.dtype(np.float64)

    def __getitem__(self, key: Any) -> np.ndarray:
        values = np.asarray(self.variable[key].values)
        return _counted(values, self.how, self.valid)


def _counted(
    values: np.ndarray, how: feature_units.Change | None, own: valid.Valid | None = None
) -> np.ndarray:
    """Return values of a feature in the unit of a model; dates are counted in any case.

    Those that are declared missing become NaN.
    """
    if isinstance(how, Coding):
        return how.of(values)
    if own is not None:
        values = own.known(_as_float(values))
    if how is not None:
        return how.of(_as_float(values))
    return _as_float(values) if values.dtype.kind == "O" else values


def refuse_unread(attributes: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise InputError for features that are times by their attributes, but cannot be read so.

    xarray, which decodes those of files, refuses them too.
    """
    for name, own in attributes.items():
        unit = own.get("units", "")
        if not isinstance(unit, str) or " since " not in unit:
            continue
        said = {key: own[key] for key in ("units", "calendar") if key in own}
        try:
            xr.coders.CFDatetimeCoder().decode(xr.Variable((), 0.0, said))
        except (ValueError, OverflowError) as error:
            raise InputError(feature_units.unread(name, unit)) from error


def place_of(X: xr.DataArray | xr.Dataset) -> Names | None:
    """Return the names of longitude and latitude among the features, by their CF attributes.

    None where no feature or more than one is either of them.
    """
    if is_table(X):
        return None
    return place_among({name: X[name].attrs for name in default_features(X)})


def place_among(attributes: Mapping[str, Mapping[str, Any]]) -> Names | None:
    """Return the names of longitude and latitude, see ``place_of``, by the features' attributes.

    Raise InputError for attributes of one kind that contradict others, or the name.
    """
    pair: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name, own in attributes.items():
        said, by_name = _kinds_said(own), kind_of_name(name)
        both = {by_name: "name"} | said if said and by_name else said
        if len(both) > 1:
            one, other = both
            raise InputError(
                f"{name!r} is {one} by its {both[one]} and {other} by its {both[other]}: correct "
                "one of them, or give geographic=False (--geographic none)"
            )
        for kind in said:
            pair[kind].append(name)
    lon, lat = pair.values()
    return (lon[0], lat[0]) if len(lon) == len(lat) == 1 else None


def _kinds_said(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return which of longitude and latitude CF attributes say, with the attribute that does."""
    name, unit = attributes.get("standard_name"), feature_units.said_by(attributes)
    said = {kind: f"standard_name {name!r}" for kind in KINDS if kind == name}
    for kind, direction in zip(KINDS, ("east", "north"), strict=True):
        if feature_units.plain(unit) == f"degrees_{direction}":
            said[kind] = f"units {unit!r}"
    return said


def grid_of(
    X: xr.DataArray | xr.Dataset,
    names: Names,
    stored: bool = False,
    units: Names = (),
    trained_on: Mapping[int, expected.Column] = MappingProxyType({}),
    levels: Levels = MappingProxyType({}),
    takes_new: bool = False,
    what: str = "feature",
    reference: Mapping[str, Any] = MappingProxyType({}),
) -> Grid:
    """Return the grid of a labelled object with the named features.

    Dimensions that no feature has are left out.  Of a ``stored`` object, which is a file, variables
    along two or more dimensions become `Stored`.  Times become those in the ``units`` of a model,
    which was ``trained_on`` such columns, and text the places of its ``levels``, others those of a
    new one if it ``takes_new`` ones.  Messages call names ``what`` they are.  ``reference``
    says the reference system of a model, which a grid without one is in.

    Raises
    ------
    InputError
        If a feature is neither a coordinate nor a variable of X, the message lists both; or if its
        unit, or the reference system of X, contradicts that of the model.
    """
    alone = {name: X.sizes[name] for name in names if name in X.dims and name not in X.coords}
    if alone:
        raise InputError(f"the grid has {bare(alone)}")
    if is_table(X):
        return _table(X, names)
    dims, parts = dims_of(X), []
    texts = dict[str, Coding]()
    for name in names:
        known = set(X.coords) | (set(X.data_vars) if isinstance(X, xr.Dataset) else set())
        if name not in known:
            other = next((str(one) for one in known if str(one).lower() == str(name).lower()), None)
            remedy = "rename or add it" if other is None else f"rename {other!r} to {name!r}"
            raise InputError(
                f"{what} {name!r} is not in the xarray object, which has "
                f"{', '.join(sorted(map(str, known)))}: {remedy}"
            )
        if name in levels and holds_text(X[name]):
            texts[name] = Coding(name, levels[name], takes_new)
        else:
            holds_dates(X[name], f"coordinate or variable {name!r}")
    own, first = units_of(X, names), partial(_first, X, names)
    expected.refuse_radians(trained_on, first, "the grid")
    _, how = feature_units.matched(names, own, units, first, "the grid", trained_on)
    for name, each in zip(names, how or (None,) * len(names), strict=True):
        variable = X[name].variable.transpose(*(d for d in dims if d in X[name].dims))
        parts.append((_part(variable, texts.get(name, each), stored), variable.dims))
    dims = tuple(d for d in dims if any(d in own for _, own in parts))
    sizes = tuple(X.sizes[d] for d in dims)
    lazy = bool(X.chunksizes)
    chunks = tuple(X.chunksizes.get(d, (X.sizes[d],)) for d in dims) if lazy else _cut(sizes)
    coords = {k: v for k, v in X.coords.items() if set(v.dims) <= set(dims)}
    mapping, own_system = reference_of(X)
    if not any(kind_of_name(name) and X[name].ndim > 1 for name in names):  # as those of axes
        crs.refuse_other(own_system, reference, "the grid", "the training data")
    if mapping or reference:
        mapping, said = mapping or crs.NAME, own_system or dict(reference)
        coords[mapping] = xr.DataArray(0, attrs=said, name=mapping)
    return Grid(dims, chunks, lazy, tuple(parts), coords, mapping)


def _first(X: xr.DataArray | xr.Dataset, names: Names, j: int) -> np.ndarray | None:
    """Return the first numbers of a feature, times as days; None for lazy ones along more axes."""
    values = X[names[j]]
    if values.dtype.kind not in "iufM" or (values.ndim > 1 and values.chunks):
        return None
    few = zip(values.dims, _cut(values.shape), strict=False)
    return _as_float(values[{dim: slice(cuts[0]) for dim, cuts in few}].values)


def _part(variable: xr.Variable, how: feature_units.Change | None, stored: bool) -> Any:
    """Return the values of a feature: a NumPy or Dask array, or what tasks read from a file."""
    if stored and variable.ndim > 1:
        return Stored(variable, how)
    values, own = variable.data, measured(variable)
    if not isinstance(values, da.Array):
        return _counted(np.asarray(values), how, own)
    if how is None and values.dtype.kind != "O" and own is None:
        return values
    lazily: Any = da.map_blocks  # dask's stubs do not know its arguments
    return lazily(_counted, values, how, own, dtype=np.float64, meta=np.empty((0,) * values.ndim))


def holds_text(values: xr.DataArray) -> bool:
    """Return whether a variable may hold text."""
    return values.dtype.kind in "OUT" and calendar_of(values) is None


def text_levels(X: xr.DataArray | xr.Dataset) -> dict[str, Names]:
    """Return the levels of features that are text, by the names of these; none of a table."""
    texts = [] if is_table(X) else [name for name in default_features(X) if holds_text(X[name])]
    found = {name: names_of(np.unique(X[name].values.astype(object).astype(str))) for name in texts}
    return {name: levels for name, levels in found.items() if levels is not None}


def holds_dates(values: xr.DataArray, what: str, remedy: str = reading.ENCODE) -> bool:
    """Return whether a variable has dates, of any calendar; InputError if no numbers either."""
    if values.dtype.kind == "M" or calendar_of(values) is not None:
        return True
    if values.dtype.kind == "c":
        reading.check_kind(what, values)
    first = values.isel({dim: slice(0, 1) for dim in values.dims})
    reading.refuse_column(what, values.dtype, lambda: first.values, remedy)
    return False


def _table(X: xr.DataArray, names: Names) -> Grid:
    if X.sizes[X.dims[1]] != len(names):
        raise InputError(
            f"X has {X.shape[1]} features, but the model was fitted with "
            f"{len(names)}: give {', '.join(names)}"
        )
    rows = X.dims[0]
    parts = tuple((X.data[:, j], (rows,)) for j in range(len(names)))
    chunks = (X.chunks[0],) if X.chunks else _cut(X.shape[:1])
    coords = {k: v for k, v in X.coords.items() if v.dims == (rows,)}
    return Grid((rows,), chunks, X.chunks is not None, parts, coords)


def _cut(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return chunks of about EAGER_ROWS points, cut along the first dimension."""
    inner = max(1, math.prod(sizes[1:]))
    step = max(1, EAGER_ROWS // inner)
    first = tuple(min(step, sizes[0] - i) for i in range(0, sizes[0], step)) if sizes else ()
    return (first or (0,), *((size,) for size in sizes[1:]))


def tables(X: np.ndarray, y: np.ndarray, names: Names) -> tuple[xr.DataArray, xr.DataArray]:
    """Return rows X (n, d), with names of their columns, and y (n,) or (n, p) as tables."""
    named = xr.DataArray(X, dims=("row", "feature"), coords={"feature": list(names)})
    return named, xr.DataArray(y, dims=("row", "target")[: y.ndim])


def training_arrays(
    X: Any, y: Any, levels: Levels = MappingProxyType({})
) -> tuple[Any, Any, tuple[Names | None, Names | None]]:
    """Return X (n, d) and y (n,) with their names from labelled objects on one grid or table.

    Both are dask arrays where y or X is chunked and NumPy arrays otherwise; the rows are in the
    order of the blocks.  Features that are text have ``levels``.
    """
    if not isinstance(y, xr.DataArray):
        raise InputError(f"X is an xarray object, so y must be a DataArray, not {type(y).__name__}")
    if not is_xarray(X):
        raise InputError(f"y is a DataArray, so X must be an xarray object, not {type(X).__name__}")
    target = (str(y.name),) if y.name is not None else None
    _check_target(y)
    _check_coordinates(X, y)
    if is_table(X):
        alone = without_coordinates(X, X.dims)
        if alone and _on_one_grid(X, y):
            raise InputError(f"the grid of X and y has {bare(alone)}")
        if y.shape[1:] > (1,):
            return X.data, y.data, (labels(X), labels(y) if y.dims[1] in y.coords else None)
        return X.data, y.data, (labels(X), target)
    names, twisted = default_features(X), curvilinear(X)
    if twisted:
        raise InputError(
            f"coordinates {', '.join(twisted)} have two or more dimensions (a curvilinear grid), "
            "only coordinates of one dimension are features by themselves: give them as variables, "
            f"X = y.coords.to_dataset()[{[*twisted]}].reset_coords(), or drop them with drop_vars"
        )
    refuse_unread({name: X[name].attrs for name in names})
    units = tuple(map(feature_units.counted, units_of(X, names)))
    grid = grid_of(X, names, units=units, levels=levels)
    alone = {str(d): y.sizes[d] for d in y.dims if d not in (*grid.dims, *X.coords, *y.coords)}
    if alone:
        raise InputError(f"the grid of X and y has {bare(alone)}")
    if set(y.dims) != set(grid.dims) or any(y.sizes[d] != X.sizes[d] for d in grid.dims):
        raise InputError(f"y has dimensions {dict(y.sizes)} but X {dict(X.sizes)}: align them")
    values = _part(y.transpose(*grid.dims).variable, None, False)
    features = grid.map(_identity, len(names))
    lazy = grid.lazy or isinstance(values, da.Array)
    targets = da.asarray(values).rechunk(grid.chunks)
    X_rows, y_rows = _ravelled(features, len(names)), _ravelled(targets[..., None], 1)[:, 0]
    if not lazy:
        X_rows, y_rows = dask.compute(X_rows, y_rows, scheduler="threads")
    return X_rows, y_rows, (names, target)


def _check_target(y: xr.DataArray) -> None:
    """Raise InputError for a target of dates, text or complex numbers."""
    first = y.isel({dim: slice(0, 1) for dim in y.dims}).values.ravel()
    dtype = y.dtype if calendar_of(y) is None else np.dtype("M8[s]")
    if dtype.kind == "c":
        reading.check_kind("y", y)
    if not (dtype.kind == "O" and all(isinstance(value, Real) for value in first)):
        reading.refuse_column("y", dtype, lambda: first, reading.CLASSES)


def _on_one_grid(X: xr.DataArray, y: xr.DataArray) -> bool:
    """Return whether two-dimensional X and y are on one grid and no table with several targets."""
    if (X.dims, X.shape) != (y.dims, y.shape):
        return False
    named = X.dims != xr.DataArray(np.empty((0, 0))).dims  # as xarray names those without a name
    lazy = isinstance(X.data, da.Array) and isinstance(y.data, da.Array)
    same = X.data.name == y.data.name if lazy else X.data is y.data
    return named or same or (X.name is not None and X.name == y.name)


def like(y: Any, values: Any, name: str) -> Any:
    """Return values on the grid of y as a DataArray; InputError for others."""
    if is_xarray(values) or not isinstance(y, xr.DataArray):
        return values
    if np.shape(values) == (*y.shape, 1):
        values = np.reshape(values, y.shape)
    return placed(values, y, name)


def placed(values: Any, grid: xr.DataArray, name: str) -> xr.DataArray:
    """Return values on a grid as a DataArray; InputError for an array of another shape."""
    if isinstance(values, xr.DataArray):
        return values
    values = values if isinstance(values, da.Array) else np.asarray(values)
    if values.shape != grid.shape:
        raise InputError(
            f"{name} has shape {values.shape} on a grid of shape {grid.shape}: give a DataArray, "
            "or an array of that shape"
        )
    return grid.copy(data=values)


def rows_and_weights(grid: Grid, weights: Any) -> tuple[da.Array, da.Array]:
    """Return features (n, d) and weights (n,) of the points of a grid, in the order of its blocks.

    ``weights`` is a DataArray over some of the dimensions of the grid, an array of its shape, or
    None for equal ones.
    """
    ones = xr.DataArray(da.ones(grid.shape, chunks=grid.chunks), grid.coords, grid.dims)
    weights = ones if weights is None else placed(weights, ones, "weights")
    odd = {d: n for d, n in weights.sizes.items() if ones.sizes.get(d) != n}
    if odd:
        raise InputError(
            f"weights has dimensions {odd} that the grid does not have: give weights over "
            f"some of {dict(ones.sizes)}"
        )
    _check_coordinates(ones, weights, "weights")
    spread = (ones * weights.reset_coords(drop=True)).transpose(*grid.dims)
    values = spread.data.rechunk(grid.chunks)
    features = grid.map(_identity, len(grid.parts))
    return _ravelled(features, len(grid.parts)), _ravelled(values[..., None], 1)[:, 0]


NOWHERE = Grid((), (), True, (), {})
"""A grid without dimensions."""


def of_classes(one: xr.DataArray) -> xr.DataArray:
    """Return probabilities of 0 and 1 along a last dimension, ``class``, from those of 1."""
    classes = xr.Variable("class", [0, 1])
    return xr.concat([1.0 - one, one], classes).transpose(..., "class")


def of_parts(
    function: Callable[[np.ndarray], np.ndarray],
    parts: Sequence[xr.DataArray],
    name: str,
    said: dict[str, Any],
    dtype: Any = np.float64,
    labels: np.ndarray | None = None,
    dim: str = "class",
) -> xr.DataArray:
    """Return what a function gives of the parts of cells, side by side (n, k).

    It is a value of each cell, or values of ``labels`` along a last dimension ``dim``.  A part may
    have the dimension ``class``, as the only one.
    """
    own = [["class"] if "class" in one.dims else [] for one in parts]
    along = [] if labels is None else [dim]
    count = 0 if labels is None else len(labels)

    def of_cells(*values: np.ndarray) -> np.ndarray:
        given = values if own[0] else [one[..., None] for one in values]
        rows = np.concatenate(given, axis=-1)
        found = function(rows.reshape(-1, rows.shape[-1]))
        return found.reshape(*rows.shape[:-1], *([count] if along else []))

    found: xr.DataArray = xr.apply_ufunc(
        of_cells,
        *(one.drop_vars("class", errors="ignore") for one in parts),
        input_core_dims=own,
        output_core_dims=[along],
        exclude_dims={"class"} if own[0] else set(),
        dask="parallelized",
        output_dtypes=[dtype],
        dask_gufunc_kwargs={"output_sizes": dict.fromkeys(along, count), "allow_rechunk": True},
    )
    coords = dict.fromkeys(along, labels)
    return found.assign_coords(coords).rename(name).assign_attrs(said)


def applied(
    function: Callable[..., np.ndarray],
    values: Sequence[Any],
    name: str,
    said: dict[str, Any],
    levels: Sequence[float] | None = None,
) -> xr.DataArray:
    """Return a function of predictions and numbers, along ``quantile`` where it has levels."""
    along = [] if levels is None else ["quantile"]
    found: xr.DataArray = xr.apply_ufunc(
        function,
        *values,
        output_core_dims=[along],
        dask="parallelized",
        output_dtypes=[np.float64],
        dask_gufunc_kwargs={"output_sizes": {dim: len(levels or ()) for dim in along}},
    )
    coords = {dim: list(levels or ()) for dim in along}
    return found.assign_coords(coords).rename(name).assign_attrs(said)


def beside(mean: xr.DataArray, values: Any, name: str) -> Any:
    """Return numbers that go with predictions on a grid: one number, or as a DataArray on it.

    InputError for values of another grid.
    """
    if not np.ndim(values):
        return values
    one = mean.isel(target=0, drop=True) if "target" in mean.dims else mean
    return on_same_grid(one, values, lambda own, more: xr.zeros_like(own) + more, name)


def scored_arrays(mean: xr.DataArray, y: Any, vector: bool) -> tuple[Any, Any]:
    """Return predictions and targets of one grid or table as arrays (n,) or (n, p), rows aligned.

    Both are dask arrays with the chunks of the mean where either is chunked, else NumPy arrays.
    """
    values = on_the_grid_of(mean, y).data
    lazy = isinstance(mean.data, da.Array) or isinstance(values, da.Array)
    tail = () if vector else mean.shape[-1:]
    if not lazy:
        return mean.values.reshape(-1, *tail), np.asarray(values).reshape(-1, *tail)
    predicted = da.asarray(mean.data)
    pair = predicted, da.asarray(values).rechunk(predicted.chunks)
    if vector:
        first, second = (_ravelled(a[..., None], 1)[:, 0] for a in pair)
    else:
        first, second = (_ravelled(a.rechunk({-1: -1}), *tail) for a in pair)
    return first, second


def on_the_grid_of(mean: xr.DataArray, y: Any) -> xr.DataArray:
    """Return targets with the mean's dimensions in order; a plain array must have its shape."""
    y = placed(y, mean, "y")
    odd = [dim for dim in y.dims if dim not in mean.dims]
    if len(odd) == 1 and "target" in mean.dims and "target" not in y.dims:
        y = y.rename({odd[0]: "target"})
    if dict(y.sizes) != dict(mean.sizes):
        raise InputError(
            f"y has dimensions {dict(y.sizes)} but the mean {dict(mean.sizes)}: align them"
        )
    _check_coordinates(mean, y)
    return y.transpose(*mean.dims)


def _check_coordinates(X: xr.DataArray | xr.Dataset, y: xr.DataArray, name: str = "y") -> None:
    for dim in y.dims:
        if dim in X.indexes and dim in y.indexes and not X.indexes[dim].equals(y.indexes[dim]):
            raise InputError(
                f"coordinate {str(dim)!r} of {name} differs from that of X: align them, for "
                "example with xarray.align"
            )


def _identity(X: np.ndarray) -> np.ndarray:
    return X


def _ravelled(grid: da.Array, width: int) -> da.Array:
    """Return the blocks of a grid with a last axis of ``width`` as chunks of rows (n, width)."""
    blocks = grid.to_delayed().ravel()
    shapes = [(math.prod(sizes), width) for sizes in itertools.product(*grid.chunks[:-1])]
    flat = [
        da.from_delayed(dask.delayed(_flatten)(block, width), shape, dtype=np.float64)
        for block, shape in zip(blocks, shapes, strict=True)
    ]
    return da.concatenate(flat, axis=0)


def _flatten(block: np.ndarray, width: int) -> np.ndarray:
    return np.asarray(block, np.float64).reshape(-1, width)


def on_same_grid(
    own: xr.DataArray,
    more: Any,
    function: Callable[[Any, Any], xr.DataArray],
    name: str = "y_variance",
) -> xr.DataArray:
    """Return a function of a DataArray and of values on its grid, described as the first one.

    ``name`` is that of the values.
    """
    more = placed(more, own, name) if np.ndim(more) else more
    try:
        with xr.set_options(arithmetic_join="exact"):
            made = function(own, more)
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{name} is not on the grid of X: {reason}") from error
    if made.shape != own.shape:
        raise InputError(f"{name} has dimensions {more.dims}, the grid of X {own.dims}")
    return made.transpose(*own.dims).assign_attrs(own.attrs).rename(own.name)
