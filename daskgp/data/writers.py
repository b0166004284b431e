"""Writers of dataset stores: row by row, or from arrays in whole chunks.

A store has ``complete: False`` from its creation until everything is written, and what is not
written reads as NaN, so that the store of a killed writer never looks whole.  So it has while rows
are added, with the number of rows before them, to which the next writer goes back after a kill.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr

from daskgp.data.stores import groups
from daskgp.data.stores.locks import Claim
from daskgp.errors import InputError
from daskgp.runtime.executor import Executor

logger: logging.Logger = logging.getLogger("daskgp")

DEFAULT_BLOCK_ROWS = 65_536
NOISE = "y_variance", "weight"
COLUMNS = "trials", "exposure", "offset", "lower", "upper"
BY_ROW = "X", "y", *NOISE, *COLUMNS
"""Arrays of a dataset store that have a value, or values, per row."""


@contextmanager
def dataset_writer(
    url: str,
    feature_names: Sequence[str],
    target_names: Sequence[str] = (),
    block_rows: int = DEFAULT_BLOCK_ROWS,
    multi_target: bool = False,
    attributes: groups.Attributes | None = None,
    beside: Sequence[str] | Mapping[str, int] = (),
) -> Iterator[DatasetWriter]:
    """Write a dataset store row by row in whole chunks.

    The store is removed again if the block fails; its attribute ``complete`` is False until the
    block has succeeded, even after a kill.

    Parameters
    ----------
    url : str
        Where to write; StoreError if something exists there already.
    feature_names, target_names : sequences of str
        Columns of X and y; without targets the store holds X alone, for predictions.
    block_rows : int
        Rows per chunk.
    multi_target : bool
        Keep y two-dimensional even if it has one column.
    attributes : mapping, optional
        Further JSON attributes of the group.
    beside : sequence of str, or mapping of str to int
        Names of further arrays (n,), such as ``y_variance``; those of a mapping have so many
        columns.

    Yields
    ------
    DatasetWriter
        Its ``append(X, y, *beside)``, or ``append(X)`` without targets, adds rows.
    """
    if block_rows < 1:
        raise InputError(f"block_rows must be at least 1, not {block_rows}")
    p = len(target_names)
    tail = None if p == 0 else () if p == 1 and not multi_target else (p,)
    names = {"feature_names": list(feature_names)}
    if p:
        names["target_names"] = list(target_names)
    with groups.creating(str(url), "dataset", {**(attributes or {}), **names, **marks()}) as group:
        step, d = int(block_rows), len(feature_names)
        shapes = {"X": (0, d)} | ({} if tail is None else {"y": (0, *tail)})
        widths = beside if isinstance(beside, Mapping) else dict.fromkeys(beside, 1)
        shapes |= {name: (0,) if k == 1 else (0, k) for name, k in widths.items()}
        arrays = [create_rows(group, name, shape, step, float) for name, shape in shapes.items()]
        writer = DatasetWriter(arrays, step)
        yield writer
        writer.finish()
        group.attrs["complete"] = True


APPENDING = "rows_before_append"
"""Attribute of a dataset store to which rows are being added: how many it had."""


@contextmanager
def dataset_appender(
    url: str, claim: Claim, attributes: groups.Attributes | None = None
) -> Iterator[DatasetWriter]:
    """Add rows to the dataset store at a URL under its lock; all of them or none.

    If the block fails the store is as it was.  After a kill it is incomplete until the next rows
    are added, in the place of those that the kill left.  The store gets more ``attributes`` with
    the rows.
    """
    group = groups.open_group(url, "dataset", mode="r+")
    names = [name for name in BY_ROW if name in groups.names_in(url)]
    arrays = [groups.array_of(group, name) for name in names]
    before: Any = group.attrs.get(APPENDING, arrays[0].shape[0])
    rows = int(before)
    with groups.writing(url, "dataset"):
        _cut(arrays, rows)
        group.update_attributes({APPENDING: rows, "complete": False})
        try:
            writer = DatasetWriter(arrays, groups.row_step(arrays[0]), rows, claim.check)
            yield writer
            writer.finish()
        except BaseException:
            if claim.held():
                _cut(arrays, rows)
                _settle(group, {})
            raise
        _settle(
            group, {"uuid": uuid.uuid4().hex, **(attributes or {})}
        )  # what is cached of the store is out of date


def _cut(arrays: Sequence[zarr.Array[Any]], rows: int) -> None:
    """Leave out the rows after some, which may be in part of the arrays alone."""
    for array in arrays:
        if array.shape[0] != rows:
            array.resize((rows, *array.shape[1:]))


def _settle(group: zarr.Group, attributes: groups.Attributes) -> None:
    """Say in one write that no rows are being added any more."""
    kept = {name: value for name, value in group.attrs.asdict().items() if name != APPENDING}
    group.attrs.put({**kept, **attributes, "complete": True})


def marks() -> dict[str, Any]:
    """Return the attributes of an unfinished store; ``uuid`` tells it from others at its URL."""
    return {"uuid": uuid.uuid4().hex, "complete": False}


class DatasetWriter:
    """Writer that collects rows and writes them in whole chunks, after ``rows`` that there are.

    ``arrays`` are X, y where there are targets, and others by row; ``check`` is called before each
    write.
    """

    def __init__(
        self,
        arrays: Sequence[zarr.Array[Any]],
        step: int,
        rows: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._arrays, self._step, self._check = arrays, step, check
        self._held = rows % step
        self._rows = rows - self._held
        last = slice(self._rows, rows)  # of a chunk that is not full, and is written again
        self._pending = [tuple(np.asarray(array[last], np.float64) for array in arrays)]

    def append(self, X: np.ndarray, y: np.ndarray | None = None, *beside: np.ndarray) -> None:
        """Add rows X (r, d), y (r,) or (r, p) and others; without targets there is no y."""
        if (y is None) != (len(self._arrays) == 1 + len(beside)):
            raise InputError("y must be given where the store has targets, and only there")
        arrays = [np.asarray(a, np.float64) for a in (X, y, *beside) if a is not None]
        parts = zip(arrays, self._arrays, strict=True)
        self._pending.append(tuple(v.reshape(len(X), *a.shape[1:]) for v, a in parts))
        self._held += len(X)
        if self._held >= self._step:
            self._flush(self._held - self._held % self._step)

    def finish(self) -> None:
        """Write the remaining rows as a shorter last chunk."""
        if self._held:
            self._flush(self._held)

    def _flush(self, rows: int) -> None:
        whole = tuple(np.concatenate(parts) for parts in zip(*self._pending, strict=True))
        start, stop = self._rows, self._rows + rows
        self._check()
        for array, values in zip(self._arrays, whole, strict=True):
            array.resize((stop, *array.shape[1:]))
            array[start:stop] = values[:rows]
        self._rows = stop
        self._pending, self._held = [tuple(a[rows:] for a in whole)], len(whole[0]) - rows


def spill(url: str, arrays: Mapping[str, Any], step: int) -> dict[str, zarr.Array[Any]]:
    """Write dask and NumPy arrays to a new dataset store in chunks of ``step`` rows.

    Tasks write the chunks of a dask array, one each; this process writes those of a NumPy array,
    which would have to travel to the tasks inside the graph.
    """
    with groups.creating(url, "temporary dataset", marks()) as group:
        targets: dict[str, Any] = {}
        for name, a in arrays.items():
            # a float type holds all small integers, and NaN for what is not written
            dtype = np.result_type(a.dtype, np.float32)
            targets[name] = create_rows(group, name, a.shape, step, dtype)
            for i in () if isinstance(a, da.Array) else range(0, len(a), step):
                targets[name][i : i + step] = a[i : i + step]
        lazy = [name for name, a in arrays.items() if isinstance(a, da.Array)]
        # method="tasks" keeps a ragged layout's repair local and away from P2P shuffles
        sources: Any = [
            arrays[name].rechunk((step, *arrays[name].shape[1:]), method="tasks") for name in lazy
        ]
        if lazy:  # tasks write each chunk, again where the cluster lost work
            stored: Any = da.store(sources, [targets[k] for k in lazy], lock=False, compute=False)
            made = dask.optimize(*(stored if isinstance(stored, tuple | list) else [stored]))
            chunks = [array.to_delayed(optimize_graph=False).ravel() for array in made]
            Executor.current(False).compute_all([*itertools.chain.from_iterable(chunks)])
        group.attrs["complete"] = True
    logger.info("wrote %d rows to %s", targets["X"].shape[0], url)
    return targets


def create_rows(
    group: zarr.Group, name: str, shape: tuple[int, ...], step: int, dtype: Any
) -> zarr.Array[Any]:
    """Create an array (n, ...) in chunks of ``step`` whole rows; unwritten values read as NaN.

    Each chunk has a checksum, without which almost any damage would read as other numbers.
    """
    return group.create_array(
        name,
        shape=shape,
        chunks=(step, *(max(1, size) for size in shape[1:])),
        dtype=dtype,
        dimension_names=groups.dims_of_rows(name, len(shape)),
        fill_value=np.nan,
        compressors=groups.CHECKED,
    )
