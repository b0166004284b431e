"""Prediction stores of rows and of labelled grids: arrays in the chunks of the input, and marks.

Of rows a group has ``mean`` and ``variance``, with an entry per chunk beside them that says whether
it is done.  Of a grid it is a map: what xarray shows, coordinates and predicted arrays, and in the
group ``chunks`` an entry per chunk that says how many of its cells are done.  A map's metadata are
consolidated: a reader sees one that grows at once, or not yet.

A store grows with its input.  A kill at any moment leaves a store whose marks are correct, so that
the same steps can be repeated.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import dask.array as da
import numpy as np
import zarr

from daskgp.data import coordinates, moments
from daskgp.data.coordinates import REMEDY
from daskgp.data.encoding import AS_GIVEN, Encoding
from daskgp.data.gridded import Gridded, Index, Region, counts_of, region_of
from daskgp.data.reading import behind
from daskgp.data.rows import COLUMNS, UNITS, column_names
from daskgp.data.stores import chunk_marks, groups, transactions
from daskgp.data.stores.remote import Inside, Place
from daskgp.errors import InputError, StoreError

FORMAT, VERSION = "daskgp-predictions", 2
CHUNKS = "chunks"
"""Group of a map with one entry per chunk."""
ASKED = ("mask", "variance", "quantiles", "exceedance", "samples")
"""Entries of a layout that are not of the input, but asked for."""
SAMPLE_BYTES = 32 << 20
"""Most bytes of a chunk with several sample paths."""
DONE, CHECKSUM, MARK = "done", "input_checksum", "input_mark"
"""Arrays with an entry per chunk: what is done, and what tells its input from what it was."""
ODD = np.uint64(0x9E3779B97F4A7C15)
"""Factor of marks that are joined by others."""
OF_ROWS = ("samples", "quantiles", "exceedance", "variance")
"""Arrays that a store of rows may have beside the mean."""


class Outputs(NamedTuple):
    """Arrays of a map beside the mean and the standard deviation of a new observation.

    ``samples`` are the number of sample paths of f and their seed.
    """

    variance: bool = False
    quantiles: tuple[float, ...] = ()
    exceedance: float | tuple[float, ...] | None = None
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

    @property
    def lists(self) -> dict[str, Any]:
        """Settings as JSON has them."""
        pair = None if self.samples is None else list(self.samples)
        limit = list(self.exceedance) if isinstance(self.exceedance, tuple) else self.exceedance
        own = {"quantiles": list(self.quantiles), "exceedance": limit, "samples": pair}
        return {**self._asdict(), **own}


class Model(Protocol):
    """A fitted method: its checksum and its targets."""

    @property
    def token(self) -> str:
        """Checksum of all that it predicts from."""

    @property
    def n_targets(self) -> int:
        """Their number."""

    @property
    def vector_target(self) -> bool:
        """True for a single one, for which arrays have no dimension."""

    @property
    def target_names(self) -> tuple[str, ...]:
        """Their names."""

    @property
    def target_units(self) -> tuple[str, ...]:
        """Their units; none if they are not known."""


class Inputs(NamedTuple):
    """The input of a prediction in chunks, and what is wanted of it: rows, or cells of a ``grid``.

    ``layout`` is what the store of a run that goes on must have been made for, ``marks`` are those
    of the chunks.
    """

    url: str
    dims: tuple[str, ...]
    shape: Index
    steps: Index
    marks: np.ndarray
    layout: dict[str, Any]
    outputs: Outputs = Outputs()
    grid: Gridded | None = None
    encoding: Encoding = AS_GIVEN

    @property
    def rows(self) -> int:
        """Number of rows, or of cells."""
        return math.prod(self.shape)

    @property
    def counts(self) -> Index:
        """Number of chunks along each dimension."""
        return counts_of(self.shape, self.steps)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays that are predicted, the mean last."""
        names = self.outputs.names
        if self.grid is not None:
            return names
        return (*(name for name in names[1:-1] if name != "variance"), "variance", "mean")

    def region(self, index: Index) -> Region:
        """Return the rows, or cells, of a chunk."""
        return region_of(index, self.shape, self.steps)

    def named(self, region: Region) -> str:
        """Return rows, or cells, in words."""
        what = "" if self.grid is None else "cells "
        pairs = zip(("rows",) if self.grid is None else self.dims, region, strict=True)
        return what + ", ".join(f"{dim} {cut.start} to {cut.stop - 1}" for dim, cut in pairs)

    def target(self, url: Place, group: zarr.Group) -> Target:
        """Return the store that predictions go to."""
        return Target(url, _afresh(group), self.grid is not None)

    def made(self, group: zarr.Group) -> bool:
        """Return whether all arrays of a store are there."""
        return (DONE if self.grid is None else f"{CHUNKS}/{DONE}") in _afresh(group)

    def create(self, group: zarr.Group, model: Model) -> None:
        """Create the predicted arrays, of a map its coordinates too, and last what is done."""
        tail = {} if model.vector_target else {groups.TARGET: model.n_targets}
        for name in self.names:
            own, cut = dict(tail), dict(tail)
            if name == "quantiles":
                own["quantile"] = cut["quantile"] = len(self.outputs.quantiles)
            if name == "samples" and self.outputs.samples is not None:
                own["sample"], cells = self.outputs.samples[0], math.prod(self.steps)
                most = SAMPLE_BYTES // (8 * cells * model.n_targets)
                cut["sample"] = min(own["sample"], max(1, most))
            shards, inner = None, self.steps
            if self.encoding.shards:
                inner = self.encoding.inner(self.dims, self.steps)
                shards = (*self.steps, *cut.values())
            group.create_array(
                name,
                shape=(*self.shape, *own.values()),
                chunks=(*inner, *cut.values()),
                shards=shards,
                dtype=self.encoding.dtype or "float64",
                fill_value=np.nan,
                compressors=groups.CHECKED,
                dimension_names=(*self.dims, *own),
                attributes=self._attributes(name, model),
                overwrite=True,
            )
        flags, numbers, ends, kind = group, ["chunk"], list[tuple[str, int]](), "bool"
        if self.grid is not None:
            if tail:
                names = np.array(model.target_names, object)
                coordinates.write_plain(group, groups.TARGET, names, str)
            if self.outputs.quantiles:
                levels = np.array(self.outputs.quantiles)
                coordinates.write_plain(group, "quantile", levels, "f8")
            coordinates.write(group, self.grid)
            group.attrs["Conventions"] = "CF-1.11"
            flags = group.create_group(CHUNKS, overwrite=True)
            numbers = [f"chunk_{dim}" for dim in self.dims]
            ends, kind = [("dimension", len(self.dims))], "u4"
        for name, dtype in ((CHECKSUM, "u4"), (MARK, "u8"), (DONE, kind)):
            more = dict(ends if name == DONE else ())
            flags.create_array(
                name,
                shape=(*self.counts, *more.values()),
                chunks=(*(1 for _ in self.counts), *more.values()),
                dtype=dtype,
                dimension_names=(*numbers, *more),
                overwrite=True,
            )
        if self.grid is not None:
            _consolidate(group)

    def _attributes(self, name: str, model: Model) -> dict[str, Any]:
        """Return the attributes of an array, which in a map name those that belong to it."""
        targets, units = model.target_names, model.target_units
        limit = self.outputs.exceedance
        own = moments.describe(name, targets, units, name != "samples", limit)
        if self.grid is None:
            return own
        if name == "mean":
            own["ancillary_variables"] = " ".join(self.names[:-1])
        if self.grid.grid.mapping:
            own["grid_mapping"] = self.grid.grid.mapping
        several = self.grid.grid.coords.items()
        beside = [str(k) for k, v in several if v.dims != (k,) and coordinates.is_kept(v)]
        return own | ({"coordinates": " ".join(sorted(beside))} if beside else {})

    def refuse_shrunk(self, target: Target) -> None:
        """Raise StoreError for a store that is larger, or has other chunks than its marks."""
        flags = groups.array_of(target.flags, MARK).shape
        ends = zip(counts_of(target.shape, target.steps), flags, self.counts, strict=True)
        if not all(least <= own <= max(least, most) for least, own, most in ends):
            raise StoreError(
                f"predictions {target.url} were rewritten in other chunks or shards, so the "
                f"record of finished chunks no longer applies: {REMEDY}"
            )
        for dim, made, now in zip(self.dims, target.shape, self.shape, strict=True):
            if made > now:
                what = "rows" if self.grid is None else f"cells along {dim}"
                kind = "an input" if self.grid is None else "a grid"
                raise StoreError(
                    f"predictions {target.url} have {made} {what}, the input {self.url} has "
                    f"{now}: {kind} may grow but not shrink: {REMEDY}"
                )


def of_rows(
    url: str,
    X: da.Array,
    outputs: Outputs,
    beside: Mapping[str, float | str],
    arrays: Sequence[zarr.Array[Any]] = (),
) -> Inputs:
    """Describe the inputs X of the dataset store at a URL, and the arrays that are wanted of them.

    ``beside`` are numbers that a likelihood takes, of which ``arrays`` are those by row.
    """
    step = int(X.chunksize[0])
    names = column_names(X) or [f"column {j}" for j in range(X.shape[1])]
    layout = {"columns": list(names), "type": str(X.dtype), "chunk_rows": step}
    layout |= {"samples": outputs.lists["samples"], **beside}
    marks, shape = chunk_marks.chunk_marks(url, behind(X)), (int(X.shape[0]),)
    for array in arrays:
        own = chunk_marks.chunk_marks(url, array)
        unknown = (marks == chunk_marks.UNKNOWN) | (own == chunk_marks.UNKNOWN)
        marks = np.where(unknown, chunk_marks.UNKNOWN, (marks * ODD + own) | np.uint64(1))
    return Inputs(str(url), (groups.ROW,), shape, (step,), marks, layout, outputs)


def of_grid(
    grid: Gridded,
    outputs: Outputs,
    beside: Mapping[str, float | str] = MappingProxyType({}),
    encoding: Encoding = AS_GIVEN,
) -> Inputs:
    """Describe a grid, and the arrays that are wanted on it, with numbers that a likelihood takes.

    InputError for one with a coordinate of a name that its map has for another thing.
    """
    dims, layout = tuple(map(str, grid.grid.dims)), {**grid.layout, **outputs.lists, **beside}
    own = {*map(str, grid.grid.coords), *dims}
    taken = sorted(own & {*outputs.names, "target", "quantile", "sample"})
    if taken:
        raise InputError(
            f"{grid.url} has a coordinate {taken[0]!r}, a name that every map uses: rename it"
        )
    cells = grid.shape, grid.steps, grid.marks
    return Inputs(grid.url, dims, *cells, layout, outputs, grid, encoding)


class ChunkWriter(NamedTuple):
    """Predicted arrays by name, and those with one entry per chunk, which travel to the tasks."""

    url: Place
    values: dict[str, zarr.Array[Any]]
    flags: dict[str, zarr.Array[Any]]

    @property
    def changes(self) -> Any:
        """Return what was written in a copy of a fork; None for plain stores."""
        return transactions.changes_in(self.flags[MARK])

    def copied(self) -> ChunkWriter:
        """Return a writer to a copy of the fork that its arrays are in."""
        values, flags = transactions.copied((self.values, self.flags))
        return self._replace(values=values, flags=flags)

    def tail(self, name: str) -> Index:
        """Return the sizes of the dimensions that an array has beside those of the input."""
        return self.values[name].shape[self.flags[MARK].ndim :]

    def read(self, name: str, region: Region) -> np.ndarray:
        """Return a part of a predicted array."""
        return np.asarray(self.values[name][region])

    def write(
        self,
        index: Index,
        region: Region,
        values: Mapping[str, np.ndarray],
        checksum: int,
        mark: int,
    ) -> None:
        """Write one chunk with the checksum and the mark of its input, and last that it is done."""
        done, cells = self.flags[DONE], [cut.stop - cut.start for cut in region]
        with groups.writing(self.url, "predictions"):
            for name, array in values.items():
                self.values[name][region] = array
            self.flags[CHECKSUM][index] = checksum
            self.flags[MARK][index] = mark
            done[index] = np.array(cells, "u4") if done.ndim > len(index) else True


@dataclass(frozen=True, eq=False)
class Target:
    """An open prediction store, of which each task writes whole chunks of its own.

    A chunk of a map is done as far as its extents say: where the grid has grown into it, the cells
    that it had are kept.  One of rows is done as a whole, or not.
    """

    url: Place
    group: zarr.Group
    is_map: bool

    @property
    def flags(self) -> zarr.Group:
        """Group of the arrays that have one entry per chunk of the input."""
        found = self.group[CHUNKS] if self.is_map else self.group
        assert isinstance(found, zarr.Group)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the predicted arrays, the mean, which tells how many rows there are, last."""
        if not self.is_map:
            return (*(name for name in OF_ROWS if name in self.group), "mean")
        mean = groups.array_of(self.group, "mean")
        return (*str(mean.attrs["ancillary_variables"]).split(), "mean")

    @property
    def _layout(self) -> dict[str, Any]:
        layout = self.group.attrs["input_layout"]
        assert isinstance(layout, dict)
        return layout

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions of the grid."""
        return tuple(map(str, self._layout["dims"]))

    @property
    def steps(self) -> Index:
        """Rows of a chunk, or cells along each dimension; of a map those of a shard."""
        if not self.is_map:
            return (int(self._layout["chunk_rows"]),)
        return groups.written_together(groups.array_of(self.group, "mean"))[: self._ndim]

    @property
    def shape(self) -> Index:
        """Rows, or cells along each dimension, that the store is made for."""
        return groups.array_of(self.group, "mean").shape[: self._ndim]

    @property
    def _ndim(self) -> int:
        return groups.array_of(self.flags, MARK).ndim

    @property
    def rows(self) -> int:
        """Number of rows, or of cells."""
        return math.prod(self.shape)

    def has_size_of(self, inputs: Inputs) -> bool:
        """Return whether the store is made for all of an input, and no more is being added."""
        flags = self._flags()[DONE].shape[: len(inputs.counts)]
        return self.shape == inputs.shape and flags == inputs.counts

    def sizes(self) -> np.ndarray:
        """Return the rows, or the cells along each dimension, of each chunk."""
        pairs = zip(self.shape, self.steps, strict=True)
        own = [np.minimum(step, n - np.arange(0, n, step)) for n, step in pairs]
        return np.stack(np.meshgrid(*own, indexing="ij"), axis=-1)

    def extents(self) -> np.ndarray:
        """Return what is done of each chunk, from its start along each dimension."""
        found = self._of_chunks(DONE)
        return found if self.is_map else np.where(found[:, None], self.sizes(), 0)

    def done(self) -> np.ndarray:
        """Return flags that are True for chunks of which all is written."""
        return np.asarray((self.extents() == self.sizes()).all(axis=-1))

    def checksums(self) -> np.ndarray:
        """Return the CRC-32 of the input of each chunk, as far as it is done."""
        return self._of_chunks(CHECKSUM)

    def marks(self) -> np.ndarray:
        """Return marks of the stored objects that each chunk was predicted from."""
        return self._of_chunks(MARK)

    def _of_chunks(self, name: str) -> np.ndarray:
        """Return the entries of chunks; there are more of them where growth was interrupted."""
        counts = counts_of(self.shape, self.steps)
        return np.asarray(groups.array_of(self.flags, name)[tuple(map(slice, counts))])

    def _flags(self) -> dict[str, zarr.Array[Any]]:
        return {name: groups.array_of(self.flags, name) for name in (CHECKSUM, MARK, DONE)}

    def writer(self) -> ChunkWriter:
        """Return what tasks write chunks with, as large as the store is now."""
        values = {name: groups.array_of(self.group, name) for name in self.names}
        name = self.url.named() if isinstance(self.url, Inside) else self.url
        return ChunkWriter(name, values, self._flags())

    def refuse_other_encoding(self, inputs: Inputs) -> None:
        """Raise StoreError for a map that has other chunks or types than are asked for."""
        asked = inputs.encoding
        if asked == AS_GIVEN:
            return
        mean, ndim = groups.array_of(self.group, "mean"), self._ndim
        made = {"chunks": mean.chunks[:ndim], "shards": (mean.shards or ())[:ndim]}
        for name, sizes in made.items():
            own = dict(zip(inputs.dims, sizes, strict=False))
            wanted = getattr(asked, name)
            if any(own.get(dim) != size for dim, size in wanted.items()):
                raise StoreError(
                    f"predictions {self.url} have {name} of {_sizes(own)}, but this run has "
                    f"{_sizes(wanted)}: a map keeps those it has, leave them out, or {REMEDY}"
                )
        if asked.dtype is not None and str(mean.dtype) != asked.dtype:
            raise StoreError(
                f"predictions {self.url} are {mean.dtype}, but this run has {asked.dtype}: a map "
                f"keeps its type, leave it out, or {REMEDY}"
            )

    def refuse_shared(self, inputs: Inputs) -> None:
        """Raise StoreError for arrays of which two tasks would write one chunk, or shard."""
        values, one = self.writer().values, (1,) * len(inputs.steps)
        for arrays, unit in ((values, inputs.steps), (self._flags(), one)):
            for name, array in arrays.items():
                own = groups.written_together(array)[: len(unit)]
                if any(size % step for size, step in zip(unit, own, strict=True)):
                    kind = "chunks" if array.shards is None else "shards"
                    mine, wanted = (" x ".join(map(str, sizes)) for sizes in (own, unit))
                    raise StoreError(
                        f"predictions {self.url}: array {name!r} lies in {kind} of {mine} and "
                        f"a task writes {wanted}, so tasks would overwrite each other's "
                        f"values: rewrite it in {kind} of {wanted}, or {REMEDY}"
                    )

    def merge(self, changes: Any) -> None:
        """Take what tasks wrote in copies of the fork that the store is in."""
        if isinstance(self.url, transactions.Transaction):
            self.url.merge(changes)

    def say(self, attributes: Mapping[str, Any]) -> None:
        """Change attributes of the store, whose consolidated metadata stay as they are."""
        group = groups.open_group(self.url, "prediction store", mode="r+")
        group.update_attributes(dict(attributes))

    def mark(self, found: np.ndarray) -> None:
        """Note the marks of chunks whose contents were compared."""
        with groups.writing(self.url, "predictions"):
            groups.array_of(self.flags, MARK)[tuple(map(slice, found.shape))] = found

    def grow(self, inputs: Inputs) -> None:
        """Make room for what the input has gained; a last chunk of rows has to be done again.

        ``mean`` tells the size of the store and is resized last: until then an interrupted growth
        starts again from its beginning.
        """
        before, ndim = self.shape, len(inputs.shape)
        if before == inputs.shape:
            return
        with groups.writing(self.url, "predictions"):
            self.say({"complete": False})
            if inputs.grid is None and before[0] % inputs.steps[0]:
                groups.array_of(self.flags, DONE)[before[0] // inputs.steps[0]] = False
            for array in self._flags().values():
                array.resize((*inputs.counts, *array.shape[ndim:]))
            if inputs.grid is not None:
                coordinates.write(self.group, inputs.grid)
            for name in self.names:
                array = groups.array_of(self.group, name)
                array.resize((*inputs.shape, *array.shape[ndim:]))
            if inputs.grid is not None:
                _consolidate(self.group)

    def finish(self, inputs: Inputs, notes: dict[str, Any]) -> None:
        """Mark the store as complete, with the checksum of its input."""
        if not self.done().all():
            raise StoreError(f"predictions {self.url}: some chunks are not written, run it again")
        layout = {**inputs.layout, "rows": inputs.rows}
        checksum = groups.checksum({CHECKSUM: self.checksums()}, layout)
        with groups.writing(self.url, "predictions"):
            self.say({**notes, CHECKSUM: checksum})
            self.say({"complete": True})
            if self.is_map:
                _consolidate(self.group)

    def is_finished(self, notes: dict[str, Any]) -> bool:
        """Return whether the store is complete and has these notes."""
        group = groups.open_group(self.url, "prediction store")
        found = group.attrs.asdict()
        whole = {**found, **notes, "complete": True} == found
        consolidated = group.metadata.consolidated_metadata is not None
        return whole and (not self.is_map or consolidated or not _consolidates(group))


def opened(url: Place) -> Target:
    """Open a prediction store to be read."""
    group = _afresh(groups.open_group(url, "prediction store"))
    return Target(url, group, CHUNKS in group)


def steps_of_map(url: Place) -> Index | None:
    """Return the cells of a chunk of the map at a URL, None where there is no whole one."""
    if groups.vacant(url):
        return None
    try:
        return opened(url).steps
    except (StoreError, KeyError):  # whoever opens it says what is there
        return None


def open_or_create(
    url: Place,
    inputs: Inputs,
    model: Model,
    notes: dict[str, Any],
    resume: bool,
) -> Target:
    """Open the prediction store of an input, or create it with the chunks of the input.

    ``notes`` become attributes.  A smaller store is left as it is, for `Target.grow`.

    Raises
    ------
    StoreError
        If the store exists and ``resume`` is False, or it holds predictions of another model,
        of inputs with another layout, or of more rows.
    """
    if refuse_taken(url, resume):
        return _existing(url, inputs, model)
    attributes = {
        "format": FORMAT,
        "version": VERSION,
        **notes,
        "model_checksum": model.token,
        "input_layout": inputs.layout,
        "target_names": list(model.target_names),
        **({UNITS: list(model.target_units)} if model.target_units else {}),
        "complete": False,
    }
    with groups.creating(url, "predictions", attributes) as group:
        inputs.create(group, model)
    return inputs.target(url, groups.open_group(url, "prediction store", mode="r+"))


def find_complete(url: Place, inputs: Inputs, model: Model) -> Target | None:
    """Return the prediction store if all of it was written, None if it is missing or unfinished.

    Raises
    ------
    StoreError
        For the stores that `open_or_create` refuses.
    """
    if not refuse_taken(url, resume=True):
        return None
    group = groups.open_group(url, "prediction store", mode="r")
    if group.attrs.get("complete") is not True or not inputs.made(group):
        return None
    return _existing(url, inputs, model)


def refuse_taken(url: Place, resume: bool) -> bool:
    """Return True for predictions to resume, False for a free URL; StoreError for all else."""
    if groups.vacant(url):
        groups.refuse_ending(url, "predictions")
        return False
    groups.refuse_other(url, "prediction")
    if not resume:
        raise StoreError(
            f"predictions {url} exist already: add --resume to finish them, or remove them"
        )
    return True


def _existing(url: Place, inputs: Inputs, model: Model) -> Target:
    group = groups.open_group(url, "prediction store", mode="r+")
    if group.attrs.get("version") != VERSION:
        raise StoreError(
            f"predictions {url} have format version {group.attrs.get('version')}, this daskgp "
            f"writes version {VERSION}: {REMEDY}"
        )
    if group.attrs.get("model_checksum") != model.token:
        raise StoreError(
            f"predictions {url} were made by another model (model_checksum "
            f"{group.attrs.get('model_checksum')}, not {model.token}): {REMEDY}"
        )
    _refuse_layout(url, group.attrs.get("input_layout"), inputs)
    if not inputs.made(group):  # killed while it was being made
        _refuse_copy(url, group, inputs)
        inputs.create(group, model)
    target = inputs.target(url, group)
    target.refuse_other_encoding(inputs)
    inputs.refuse_shrunk(target)
    return target


def _refuse_copy(url: Place, group: zarr.Group, inputs: Inputs) -> None:
    """Raise StoreError for what another program wrote, with the attributes of predictions."""
    members = _afresh(group)
    cut = any(dim in members and groups.array_of(members, dim).ndim != 1 for dim in inputs.dims)
    if cut or group.attrs.get("complete") is True:
        raise StoreError(
            f"predictions {url} do not say which chunks are done, as a part or a copy that "
            "xarray wrote: resume the original, or choose another path"
        )


def _refuse_layout(url: Place, made: Any, inputs: Inputs) -> None:
    """Raise StoreError for an input with other columns, another type or other chunks."""
    if not isinstance(made, dict):
        raise StoreError(f"predictions {url} are damaged and do not describe their input: {REMEDY}")
    for name in (*inputs.layout, *(name for name in COLUMNS if name not in inputs.layout)):
        was, value = made.get(name), inputs.layout.get(name)
        if was != value and name in (*ASKED, *COLUMNS):
            raise StoreError(
                f"predictions {url} were made with {name} {was or 'none'}, but this run has "
                f"{value or 'none'}: ask for the same, or choose another path"
            )
        if was != value:
            raise StoreError(
                f"predictions {url} were made from an input with {name} {was}, {inputs.url} has "
                f"{value}: {REMEDY}"
            )


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{dim}={size}" for dim, size in sizes.items()) or "none"


def _afresh(group: zarr.Group) -> zarr.Group:
    """Return a group that reads the metadata of its arrays themselves, which change."""
    how: Any = {"mode": "r" if group.read_only else "r+", "use_consolidated": False}
    return zarr.open_group(group.store, path=group.path, zarr_format=3, **how)


def _consolidates(group: zarr.Group) -> bool:
    """Return whether metadata are consolidated, not those of a store that changes all at once."""
    return bool(getattr(group.store, "supports_consolidated_metadata", True))


def _consolidate(group: zarr.Group) -> None:
    if not _consolidates(group):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that only xarray and Zarr itself read them
        zarr.consolidate_metadata(group.store, path=group.path, zarr_format=3)
