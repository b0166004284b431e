"""Prediction stores: ``mean`` and ``variance`` in the chunks of the input, and ``done`` flags.

A store grows with its input.  A kill at any moment leaves a store whose flags are correct, so that
the same steps can be repeated.
"""

# ruff: noqa: D102 - classes document what the protocols ask for

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import dask.array as da
import numpy as np
import zarr

from daskgp.data import moments
from daskgp.data.reading import behind
from daskgp.data.rows import UNITS, column_names
from daskgp.data.stores import chunk_marks, groups
from daskgp.errors import StoreError

FORMAT, VERSION = "daskgp-predictions", 2
REMEDY = "remove them or choose another path"
ASKED = ("mask", "variance", "quantiles", "exceedance", "samples")
"""Entries of a layout that are not of the input, but asked for."""
SAMPLE_BYTES = 32 << 20
"""Most bytes of a chunk with several sample paths."""
INPUT_ARRAYS = (("input_checksum", "u4"), ("input_mark", "u8"))
"""Names and types of the arrays that tell a chunk of the input from what it was."""


T = TypeVar("T", bound="Target", covariant=True)


class Shape(Protocol):
    """Targets of a fitted method."""

    @property
    def n_targets(self) -> int: ...
    @property
    def vector_target(self) -> bool: ...
    @property
    def target_names(self) -> tuple[str, ...]: ...
    @property
    def target_units(self) -> tuple[str, ...]: ...


class AnyInputs(Protocol[T]):
    """The input of a prediction, rows or a grid, as `open_or_create` and `Target` need it."""

    @property
    def url(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def layout(self) -> dict[str, Any]: ...
    @property
    def unit(self) -> tuple[int, ...]: ...
    def target(self, url: str, group: zarr.Group) -> T: ...
    def made(self, group: zarr.Group) -> bool: ...
    def create(self, group: zarr.Group, shape: Shape) -> None: ...
    def refuse_shrunk(self, target: Any) -> None: ...


class Inputs(NamedTuple):
    """The input of a prediction: its rows, their layout in its store, and marks of its chunks."""

    url: str
    rows: int
    chunk_rows: int
    layout: dict[str, Any]
    marks: np.ndarray
    samples: tuple[int, int] | None = None

    @property
    def unit(self) -> tuple[int, ...]:
        """Rows that a task writes."""
        return (self.chunk_rows,)

    def target(self, url: str, group: zarr.Group) -> Target:
        """Return the store that predictions of these rows go to."""
        return Target(url, group)

    def made(self, group: zarr.Group) -> bool:
        """Return whether all arrays of a store are there."""
        return "done" in group

    def create(self, group: zarr.Group, shape: Shape) -> None:
        """Create mean, variance, any samples, checksums and marks and, last, the flags."""
        tail = () if shape.vector_target else (shape.n_targets,)
        for name in ("mean", "variance"):
            said = moments.describe(name, shape.target_names, shape.target_units, observed=True)
            dims, sizes = groups.dims_of_rows(name, 1 + len(tail)), (self.rows, *tail)
            create_values(group, name, sizes, (self.chunk_rows, *tail), dims, said)
        if self.samples is not None:
            names, units, number = shape.target_names, shape.target_units, self.samples[0]
            together = samples_together(number, self.chunk_rows * shape.n_targets)
            create_values(
                group,
                "samples",
                (*sizes, number),
                (self.chunk_rows, *tail, together),
                (*dims, "sample"),
                moments.describe("samples", names, units, observed=False),
            )
        counts = (-(-self.rows // self.chunk_rows),)
        for name, dtype in (*INPUT_ARRAYS, ("done", "bool")):
            create_flags(group, name, counts, ("chunk",), dtype)

    def refuse_shrunk(self, target: Target) -> None:
        """Raise StoreError for a store with more rows."""
        if target.rows > self.rows:
            raise StoreError(
                f"predictions {target.url} have {target.rows} rows, the input {self.url} has "
                f"{self.rows}: an input may grow but not shrink: {REMEDY}"
            )


def samples_together(number: int, cells: int) -> int:
    """Return how many of the sample paths at some cells are in a chunk."""
    return min(number, max(1, SAMPLE_BYTES // (8 * cells)))


def inputs_of(url: str, X: da.Array, samples: tuple[int, int] | None = None) -> Inputs:
    """Describe the inputs X of the dataset store at a URL, for that many ``samples`` and a seed."""
    step = int(X.chunksize[0])
    names = column_names(X) or [f"column {j}" for j in range(X.shape[1])]
    asked = None if samples is None else list(samples)
    layout = {"columns": list(names), "type": str(X.dtype), "chunk_rows": step, "samples": asked}
    marks = chunk_marks.chunk_marks(url, behind(X))
    return Inputs(str(url), int(X.shape[0]), step, layout, marks, samples)


@dataclass(frozen=True, eq=False)
class Target:
    """An open prediction store, of which each task writes whole chunks of its own."""

    url: str
    group: zarr.Group

    @property
    def rows(self) -> int:
        """Number of rows that the store is made for."""
        return int(groups.array_of(self.group, "mean").shape[0])

    @property
    def flags(self) -> zarr.Group:
        """Group of the arrays that have one entry per chunk of the input."""
        return self.group

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the predicted arrays, that which tells the number of rows last."""
        return tuple(name for name in ("samples", "variance", "mean") if name in self.group)

    def refuse_shared(self, inputs: AnyInputs[Any]) -> None:
        """Raise StoreError for arrays of which two tasks would write one chunk, or shard."""
        values = {name: groups.array_of(self.group, name) for name in self.names}
        flags = {
            name: groups.array_of(self.flags, name)
            for name in ("done", *(name for name, _ in INPUT_ARRAYS))
        }
        one = (1,) * len(inputs.unit)
        for arrays, unit in ((values, inputs.unit), (flags, one)):
            for name, array in arrays.items():
                own = groups.written_together(array)[: len(unit)]
                if any(size % step for size, step in zip(unit, own, strict=True)):
                    kind = "chunks" if array.shards is None else "shards"
                    mine, wanted = (" x ".join(map(str, sizes)) for sizes in (own, unit))
                    raise StoreError(
                        f"predictions {self.url}: array {name!r} lies in {kind} of {mine} and a "
                        f"task writes {wanted}, so that tasks would lose each other's values: "
                        f"rewrite it in {kind} of {wanted}, or {REMEDY}"
                    )

    def say(self, said: Mapping[str, Any]) -> None:
        """Change attributes of the store."""
        self.group.attrs.update(said)

    def done(self) -> np.ndarray:
        """Return flags (chunks,) that are True for chunks already written."""
        return np.asarray(groups.array_of(self.flags, "done")[...], bool)

    def checksums(self) -> np.ndarray:
        """Return the CRC-32 (chunks,) of the input of each chunk that is done."""
        return np.asarray(groups.array_of(self.flags, "input_checksum")[...])

    def marks(self) -> np.ndarray:
        """Return marks (chunks,) of the stored objects that each chunk was predicted from."""
        return np.asarray(groups.array_of(self.flags, "input_mark")[...])

    def put(
        self,
        index: int,
        start: int,
        predicted: Mapping[str, np.ndarray],
        checksum: int,
        mark: int,
    ) -> None:
        """Write one chunk with the checksum and the mark of its input, and its flag last."""
        with groups.writing(self.url, "predictions"):
            for name, values in predicted.items():
                array = groups.array_of(self.group, name)
                shape = (len(values), *array.shape[1:])
                array[start : start + len(values)] = values.reshape(shape)
            groups.array_of(self.flags, "input_checksum")[index] = checksum
            groups.array_of(self.flags, "input_mark")[index] = mark
            groups.array_of(self.flags, "done")[index] = True

    def mark(self, found: np.ndarray) -> None:
        """Note the marks of the first chunks, whose contents were compared."""
        with groups.writing(self.url, "predictions"):
            groups.array_of(self.flags, "input_mark")[tuple(map(slice, found.shape))] = found

    def grow(self, inputs: Inputs) -> None:
        """Make room for more rows; a last chunk that gets some of them has to be done again.

        ``mean`` tells the number of rows and is resized last: until then an interrupted growth
        starts again from its beginning.
        """
        before, rows = self.rows, inputs.rows
        if rows == before:
            return
        step = inputs.chunk_rows
        with groups.writing(self.url, "predictions"):
            self.say({"complete": False})
            if before % step:
                groups.array_of(self.flags, "done")[before // step] = False
            for name in ("input_checksum", "input_mark", "done"):
                groups.array_of(self.flags, name).resize((-(-rows // step),))
            for name in self.names:
                array = groups.array_of(self.group, name)
                array.resize((rows, *array.shape[1:]))

    def finish(self, inputs: AnyInputs[Any], notes: dict[str, Any]) -> None:
        """Mark the store as complete, with the checksum of its input."""
        if not self.done().all():
            raise StoreError(f"predictions {self.url}: some chunks are not written, run it again")
        said = {**inputs.layout, "rows": inputs.rows}
        checksum = groups.checksum({"input_checksum": self.checksums()}, said)
        with groups.writing(self.url, "predictions"):
            self.say({**notes, "input_checksum": checksum})
            self.say({"complete": True})

    def is_finished(self, notes: dict[str, Any]) -> bool:
        """Return whether the store is complete and has these notes."""
        attributes = self.group.attrs.asdict()
        return {**attributes, **notes, "complete": True} == attributes


def open_or_create(
    url: str,
    inputs: AnyInputs[T],
    shape: Shape,
    model_checksum: str,
    notes: dict[str, Any],
    resume: bool,
) -> T:
    """Open the prediction store of an input, or create it with the row chunks of the input.

    ``notes`` become attributes.  A store with fewer rows is left as it is, for `Target.grow`.

    Raises
    ------
    StoreError
        If the store exists and ``resume`` is False, or it holds predictions of another model,
        of inputs with another layout, or of more rows.
    """
    if refuse_taken(url, resume):
        return _existing(url, inputs, shape, model_checksum)
    attributes = {
        "format": FORMAT,
        "version": VERSION,
        **notes,
        "model_checksum": model_checksum,
        "input_layout": inputs.layout,
        "target_names": list(shape.target_names),
        **({UNITS: list(shape.target_units)} if shape.target_units else {}),
        "complete": False,
    }
    with groups.creating(url, "predictions", attributes) as group:
        inputs.create(group, shape)
    return inputs.target(url, groups.open_group(url, "prediction store", mode="r+"))


def find_complete(url: str, inputs: AnyInputs[T], shape: Shape, model_checksum: str) -> T | None:
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
    return _existing(url, inputs, shape, model_checksum)


def refuse_taken(url: str, resume: bool) -> bool:
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


def create_values(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dims: tuple[str, ...],
    said: dict[str, Any],
) -> None:
    """Create an array of predictions, which reads as NaN until it is written."""
    group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype="f8",
        fill_value=np.nan,
        compressors=groups.CHECKED,
        dimension_names=dims,
        attributes=said,
        overwrite=True,
    )


def create_flags(
    group: zarr.Group,
    name: str,
    counts: tuple[int, ...],
    dims: tuple[str, ...],
    dtype: str,
    width: tuple[int, ...] = (),
) -> None:
    """Create an array with one object for each chunk of the input, which holds ``width`` values."""
    group.create_array(
        name,
        shape=(*counts, *width),
        chunks=(*(1 for _ in counts), *width),
        dtype=dtype,
        dimension_names=dims,
        overwrite=True,
    )


def _existing(url: str, inputs: AnyInputs[T], shape: Shape, model_checksum: str) -> T:
    group = groups.open_group(url, "prediction store", mode="r+")
    if group.attrs.get("version") != VERSION:
        raise StoreError(
            f"predictions {url} have format version {group.attrs.get('version')}, this daskgp "
            f"writes version {VERSION}: {REMEDY}"
        )
    if group.attrs.get("model_checksum") != model_checksum:
        raise StoreError(
            f"predictions {url} were made by another model (model_checksum "
            f"{group.attrs.get('model_checksum')}, not {model_checksum}): {REMEDY}"
        )
    _refuse_layout(url, group.attrs.get("input_layout"), inputs)
    if not inputs.made(group):  # killed while it was being made
        inputs.create(group, shape)
    target = inputs.target(url, group)
    inputs.refuse_shrunk(target)
    return target


def _refuse_layout(url: str, made: Any, inputs: AnyInputs[Any]) -> None:
    """Raise StoreError for an input with other columns, another type or other chunks."""
    if not isinstance(made, dict):
        raise StoreError(
            f"predictions {url} are damaged, they do not describe their input: {REMEDY}"
        )
    for name, value in inputs.layout.items():
        was = made.get(name)
        if was != value and name in ASKED:
            raise StoreError(
                f"predictions {url} were made with {name} {was or 'none'}, but this run has "
                f"{value or 'none'}: ask for the same, or choose another path"
            )
        if was != value:
            raise StoreError(
                f"predictions {url} were made from an input with {name} {was}, {inputs.url} has "
                f"{value}: {REMEDY}"
            )
