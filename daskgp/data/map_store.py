"""Maps: prediction stores on a labelled grid, with its coordinates, in the chunks of the grid.

The group holds what xarray shows, coordinates and predicted arrays, and in the group ``chunks`` one
entry per chunk that says how much of it is predicted and from which input.  Its metadata are
consolidated: a reader sees a map that grows at once, or not yet.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
import zarr

from daskgp.data import feature_units, moments, prediction_store
from daskgp.data.gridded import Gridded, Index
from daskgp.data.prediction_store import REMEDY, Shape
from daskgp.data.stores import groups
from daskgp.errors import InputError, StoreError

CHUNKS = "chunks"
"""Group with one entry per chunk."""
COORDINATE_CELLS = 2**16
"""Values of a chunk of a coordinate, which does not depend on how many there are."""
SINCE = ("seconds", "nanoseconds")
"""Units of times since 1970, of which the first is taken that holds them exactly."""


class Outputs(NamedTuple):
    """Arrays of a map beside the mean and the standard deviation of a new observation.

    ``samples`` are the number of sample paths of f and their seed.
    """

    variance: bool = False
    quantiles: tuple[float, ...] = ()
    exceedance: float | None = None
    samples: tuple[int, int] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all arrays of a map, the mean last."""
        beside = {
            "variance": self.variance,
            "quantiles": bool(self.quantiles),
            "exceedance": self.exceedance is not None,
            "samples": self.samples is not None,
        }
        return (*("std", *(name for name, wanted in beside.items() if wanted)), "mean")


class MapInputs(NamedTuple):
    """A grid as the input of a prediction, and the arrays that are wanted on it."""

    grid: Gridded
    outputs: Outputs

    @property
    def marks(self) -> np.ndarray:
        """Marks of the chunks."""
        return self.grid.marks

    @property
    def url(self) -> str:
        """Address of the grid."""
        return self.grid.url

    @property
    def rows(self) -> int:
        """Number of cells."""
        return math.prod(self.grid.shape)

    @property
    def layout(self) -> dict[str, Any]:
        """Description that the store of a run which goes on must have."""
        pair = self.outputs.samples
        wanted = self.outputs._asdict() | {
            "quantiles": list(self.outputs.quantiles),
            "samples": None if pair is None else list(pair),
        }
        return {**self.grid.layout, **wanted}

    @property
    def unit(self) -> Index:
        """Cells that a task writes along each dimension."""
        return self.grid.steps

    def target(self, url: str, group: zarr.Group) -> MapTarget:
        """Return the map that predictions of this grid go to."""
        return MapTarget(url, _afresh(group))

    def made(self, group: zarr.Group) -> bool:
        """Return whether all arrays of a map are there."""
        return f"{CHUNKS}/done" in _afresh(group)

    def create(self, group: zarr.Group, shape: Shape) -> None:
        """Create coordinates, predicted arrays and, last, the extents of the chunks."""
        grid, names = self.grid, self.outputs.names
        self._refuse_clashes(names)
        dims = tuple(map(str, grid.grid.dims))
        tail = {} if shape.vector_target else {"target": shape.n_targets}
        for name in names:
            own, cut = dict(tail), dict(tail)
            if name == "quantiles":
                own["quantile"] = cut["quantile"] = len(self.outputs.quantiles)
            if name == "samples" and self.outputs.samples is not None:
                own["sample"] = self.outputs.samples[0]
                cells = math.prod(grid.steps) * shape.n_targets
                cut["sample"] = prediction_store.samples_together(own["sample"], cells)
            sizes, chunks = (*grid.shape, *own.values()), (*grid.steps, *cut.values())
            said = self._said(name, shape)
            prediction_store.create_values(group, name, sizes, chunks, (*dims, *own), said)
        if tail:
            _write_plain(group, "target", np.array(shape.target_names, object), str)
        if self.outputs.quantiles:
            _write_plain(group, "quantile", np.array(self.outputs.quantiles), "f8")
        _write_coordinates(group, grid)
        group.attrs["Conventions"] = "CF-1.11"
        flags = group.create_group(CHUNKS, overwrite=True)
        numbers = tuple(f"chunk_{dim}" for dim in dims)
        for name, dtype in prediction_store.INPUT_ARRAYS:
            prediction_store.create_flags(flags, name, grid.counts, numbers, dtype)
        width = (len(dims),)
        prediction_store.create_flags(
            flags, "done", grid.counts, (*numbers, "dimension"), "u4", width
        )
        _consolidate(group)

    def _said(self, name: str, shape: Shape) -> dict[str, Any]:
        """Return the attributes of an array, which name those that belong to it."""
        targets, units = shape.target_names, shape.target_units
        observed = name != "samples"
        said = moments.describe(name, targets, units, observed, self.outputs.exceedance)
        if name == "mean":
            said["ancillary_variables"] = " ".join(self.outputs.names[:-1])
        coords = self.grid.grid.coords
        beside = sorted(str(k) for k, v in coords.items() if v.dims != (k,) and _is_kept(v))
        return said | ({"coordinates": " ".join(beside)} if beside else {})

    def _refuse_clashes(self, names: Sequence[str]) -> None:
        own = {*map(str, self.grid.grid.coords), *map(str, self.grid.grid.dims)}
        taken = sorted(own & {*names, "target", "quantile", "sample"})
        if taken:
            raise InputError(
                f"{self.url} has a coordinate {taken[0]!r}, a name that every map uses: rename it"
            )

    def refuse_shrunk(self, target: MapTarget) -> None:
        """Raise StoreError for a map that is larger, or has other chunks than its flags are for."""
        flags = groups.array_of(target.flags, "input_mark").shape
        before = (-(-n // step) for n, step in zip(target.shape, target.steps, strict=True))
        ends = zip(before, flags, self.grid.counts, strict=True)
        if not all(least <= own <= max(least, most) for least, own, most in ends):
            raise StoreError(
                f"predictions {target.url} were rewritten in other chunks or shards than they "
                f"were made in, which the flags of what is done are for: {REMEDY}"
            )
        for dim, made, now in zip(self.grid.grid.dims, target.shape, self.grid.shape, strict=True):
            if made > now:
                raise StoreError(
                    f"predictions {target.url} have {made} cells along {dim}, the input "
                    f"{self.url} has {now}: a grid may grow but not shrink: {REMEDY}"
                )


class ChunkWriter(NamedTuple):
    """Arrays of a map by name, and those with one entry per chunk, which travel to the tasks."""

    url: str
    values: dict[str, zarr.Array]
    flags: dict[str, zarr.Array]

    def tail(self, name: str) -> Index:
        """Return the sizes of the dimensions that an array has beside those of the grid."""
        return self.values[name].shape[self.flags["input_mark"].ndim :]

    def read(self, name: str, region: tuple[slice, ...]) -> np.ndarray:
        """Return a part of a predicted array."""
        return np.asarray(self.values[name][region])

    def write(
        self,
        index: Index,
        region: tuple[slice, ...],
        values: Mapping[str, np.ndarray],
        checksum: int,
        mark: int,
    ) -> None:
        """Write one chunk with the checksum and the mark of its input, and its extents last."""
        with groups.writing(self.url, "predictions"):
            for name, array in values.items():
                self.values[name][region] = array
            self.flags["input_checksum"][index] = checksum
            self.flags["input_mark"][index] = mark
            extents = [cut.stop - cut.start for cut in region]
            self.flags["done"][index] = np.array(extents, "u4")


class MapTarget(prediction_store.Target):
    """An open map, of which each task writes whole chunks of its own.

    A chunk is done as far as its extents say: where the grid has grown into it, the cells that it
    had are kept.
    """

    @property
    def flags(self) -> zarr.Group:
        """Group of the arrays that have one entry per chunk."""
        found = self.group[CHUNKS]
        assert isinstance(found, zarr.Group)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the predicted arrays, the mean last."""
        mean = groups.array_of(self.group, "mean")
        return (*str(mean.attrs["ancillary_variables"]).split(), "mean")

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions of the grid."""
        layout = self.group.attrs["input_layout"]
        assert isinstance(layout, dict)
        return tuple(map(str, layout["dims"]))

    @property
    def steps(self) -> Index:
        """Cells of a chunk, or shard, along each dimension."""
        return groups.written_together(groups.array_of(self.group, "mean"))[: self._ndim]

    @property
    def shape(self) -> Index:
        """Cells along each dimension."""
        return groups.array_of(self.group, "mean").shape[: self._ndim]

    @property
    def _ndim(self) -> int:
        return groups.array_of(self.flags, "input_mark").ndim

    @property
    def rows(self) -> int:
        """Number of cells that the map is made for."""
        return math.prod(self.shape)

    def extents(self) -> np.ndarray:
        """Return the cells that are done of each chunk, from its start along each dimension."""
        return self._of_chunks("done")

    def checksums(self) -> np.ndarray:
        """Return the CRC-32 of the input of each chunk, as far as it is done."""
        return self._of_chunks("input_checksum")

    def marks(self) -> np.ndarray:
        """Return marks of what each chunk was predicted from."""
        return self._of_chunks("input_mark")

    def _of_chunks(self, name: str) -> np.ndarray:
        """Return the entries of chunks; there are more of them where growth was interrupted."""
        counts = (-(-n // step) for n, step in zip(self.shape, self.steps, strict=True))
        return np.asarray(groups.array_of(self.flags, name)[tuple(map(slice, counts))])

    def done(self) -> np.ndarray:
        """Return flags that are True for chunks of which all is written."""
        return np.asarray((self.extents() == self.sizes()).all(axis=-1))

    def sizes(self) -> np.ndarray:
        """Return the cells of each chunk along each dimension."""
        shape, steps = self.shape, self.steps
        own = [
            np.minimum(step, n - np.arange(0, n, step))
            for n, step in zip(shape, steps, strict=True)
        ]
        return np.stack(np.meshgrid(*own, indexing="ij"), axis=-1)

    def writer(self) -> ChunkWriter:
        """Return what tasks write chunks with, as large as the map is now."""
        values = {name: groups.array_of(self.group, name) for name in self.names}
        names = (*(name for name, _ in prediction_store.INPUT_ARRAYS), "done")
        return ChunkWriter(
            self.url, values, {name: groups.array_of(self.flags, name) for name in names}
        )

    def grow(self, inputs: MapInputs) -> None:  # type: ignore[override]
        """Make room for what the grid has gained, and write its coordinates.

        ``mean`` tells the size of the map and is resized last: until then an interrupted growth
        starts again from its beginning.
        """
        grid = inputs.grid
        if grid.shape == self.shape:
            return
        with groups.writing(self.url, "predictions"):
            self.say({"complete": False})
            for name in ("input_checksum", "input_mark", "done"):
                array = groups.array_of(self.flags, name)
                array.resize((*grid.counts, *array.shape[len(grid.counts) :]))
            _write_coordinates(self.group, grid)
            for name in self.names:
                array = groups.array_of(self.group, name)
                array.resize((*grid.shape, *array.shape[len(grid.shape) :]))
            _consolidate(self.group)

    def finish(self, inputs: prediction_store.AnyInputs[Any], notes: dict[str, Any]) -> None:
        """Mark the map as complete, with the checksum of its input."""
        super().finish(inputs, notes)
        with groups.writing(self.url, "predictions"):
            _consolidate(self.group)

    def is_finished(self, notes: dict[str, Any]) -> bool:
        """Return whether the map is complete and has these notes."""
        group = groups.open_group(self.url, "prediction store")
        found = group.attrs.asdict()
        whole = {**found, **notes, "complete": True} == found
        return whole and group.metadata.consolidated_metadata is not None

    def say(self, said: Mapping[str, Any]) -> None:
        """Change attributes of the map, whose consolidated metadata stay as they are."""
        groups.open_group(self.url, "prediction store", mode="r+").attrs.update(said)


def opened(url: str) -> MapTarget:
    """Open a map to be read."""
    return MapTarget(url, _afresh(groups.open_group(url, "prediction store")))


def steps_of(url: str) -> Index | None:
    """Return the cells of a chunk of the map at a URL, None where there is no whole one."""
    if groups.vacant(url):
        return None
    try:
        return opened(url).steps
    except (StoreError, KeyError):  # whoever opens it says what is there
        return None


def _afresh(group: zarr.Group) -> zarr.Group:
    """Return a group that reads the metadata of its arrays themselves, which change."""
    how: Any = {"mode": "r" if group.read_only else "r+", "use_consolidated": False}
    return zarr.open_group(group.store, path=group.path, zarr_format=3, **how)


def _consolidate(group: zarr.Group) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that only xarray and Zarr itself read them
        zarr.consolidate_metadata(group.store, path=group.path, zarr_format=3)


# -- coordinates -----------------------------------------------------------------------------


def _is_kept(coordinate: xr.DataArray) -> bool:
    return coordinate.dtype.kind in "fiubMmOUT"


def _write_plain(group: zarr.Group, name: str, values: np.ndarray, dtype: Any) -> None:
    """Write a coordinate of a dimension that predictions add."""
    array = group.create_array(
        name,
        shape=values.shape,
        chunks=values.shape,
        dtype=dtype,
        dimension_names=(name,),
        overwrite=True,
    )
    array[...] = values


def _write_coordinates(group: zarr.Group, grid: Gridded) -> None:
    """Write the coordinates of a grid, or those that it has now in place of fewer."""
    for name, coordinate in grid.grid.coords.items():
        if _is_kept(coordinate):
            _write_coordinate(group, str(name), coordinate)


def _write_coordinate(group: zarr.Group, name: str, coordinate: xr.DataArray) -> None:
    variable = coordinate.variable
    side = max(1, round(COORDINATE_CELLS ** (1 / max(1, variable.ndim))))
    array = group.get(name)
    for region in _boxes(variable.shape, side):
        made = array.attrs.asdict() if isinstance(array, zarr.Array) else {}
        encoded = _encoded(name, variable[region], made)
        if not isinstance(array, zarr.Array):
            array = _created(group, name, variable, encoded, side)
        elif array.shape != variable.shape:
            array.resize(variable.shape)
        array[region] = encoded.values


def _created(
    group: zarr.Group, name: str, variable: xr.Variable, encoded: xr.Variable, side: int
) -> zarr.Array:
    text = encoded.dtype.kind in "OUT"
    said = {key: _json(value) for key, value in encoded.attrs.items()}
    return group.create_array(
        name,
        shape=variable.shape,
        chunks=(side,) * variable.ndim,
        dtype=str if text else encoded.dtype,
        dimension_names=tuple(map(str, variable.dims)),
        attributes=said,
        overwrite=True,
    )


def _json(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _encoded(name: str, variable: xr.Variable, made: Mapping[str, Any]) -> xr.Variable:
    """Return a coordinate as it is stored; times in units that hold them exactly."""
    values = variable.values
    if feature_units.calendar_of(values) is not None:
        return _encoded_dates(name, variable, made)
    if values.dtype.kind not in "mM":
        return xr.Variable(variable.dims, values, variable.attrs)
    units = [str(made["units"])] if "units" in made else [_since(values, unit) for unit in SINCE]
    for unit in units:
        how = {"units": unit, "dtype": "int64"}
        if values.dtype.kind == "M":
            how["calendar"] = "proleptic_gregorian"
        plain = xr.Variable(variable.dims, values, variable.attrs, how)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a unit is too coarse, which is seen below
            encoded = xr.conventions.encode_cf_variable(plain, name=name)
        if encoded.attrs.get("units") == unit:
            return encoded
    raise _other_times(name, units[-1])


def _encoded_dates(name: str, variable: xr.Variable, made: Mapping[str, Any]) -> xr.Variable:
    """Return dates of cftime as they are stored, in their calendar."""
    calendar = feature_units.calendar_of(variable.values)
    cftime = feature_units.cftime_for(f"dates of {name!r}")
    dates = [f"{unit} since 1970-01-01" for unit in ("seconds", "microseconds")]
    units = [str(made["units"])] if "units" in made else dates
    for unit in units:
        numbers = np.asarray(cftime.date2num(variable.values, unit, calendar=calendar))
        if numbers.dtype.kind == "i":
            said = {**variable.attrs, "units": unit, "calendar": calendar}
            return xr.Variable(variable.dims, numbers.astype(np.int64), said)
    raise _other_times(name, units[-1])


def _other_times(name: str, unit: str) -> StoreError:
    return StoreError(
        f"coordinate {name!r} has times that are not whole {unit.split()[0]}, as those that "
        f"were predicted before are: {REMEDY}"
    )


def _since(values: np.ndarray, unit: str) -> str:
    return f"{unit} since 1970-01-01" if values.dtype.kind == "M" else unit


def _boxes(shape: Index, side: int) -> Iterator[tuple[slice, ...]]:
    cuts = [range(0, n, side) for n in shape]
    for corner in itertools.product(*cuts):
        yield tuple(slice(i, min(i + side, n)) for i, n in zip(corner, shape, strict=True))
