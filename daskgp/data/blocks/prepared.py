"""Dataset stores whose rows are in the order of blocks, and the sorted runs they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zarr

from daskgp.data import reading, writers
from daskgp.data.rows import GEOGRAPHIC, WEIGHT, Y_VARIANCE, Rows, store_behind
from daskgp.data.stores import groups, remote
from daskgp.data.stores.groups import row_step
from daskgp.errors import InputError, StoreError
from daskgp.models.columns import Columns, chosen

VERSION = 1
BLOCKS, CUTS, CENTROIDS, RUNS = "blocks", "block_cuts", "block_centroids", "runs"


def stored_dtype(array: Any) -> np.dtype[Any]:
    """Return a float type that holds the numbers of an array, and NaN."""
    return np.dtype(np.result_type(array.dtype, np.float32))


@dataclass(frozen=True, eq=False)
class Runs:
    """Sorted runs of rows with their keys on disk; a task writes whole runs."""

    array: zarr.Array[Any]
    """Bytes (runs, rows, bytes of a row), one shard per run, of which slices are read."""
    record: np.dtype[Any]
    """Type of the bytes of a row: key, X, y."""

    def put(self, index: int, keys: np.ndarray, X: np.ndarray, y: np.ndarray) -> None:
        """Write one run of rows with their keys (r,)."""
        _, rows, width = self.array.shape
        whole = np.zeros((1, rows, width), np.uint8)
        records = whole[0].reshape(-1).view(self.record)[: len(keys)]
        records["key"], records["X"], records["y"] = keys, X, y
        with groups.writing(remote.address(self.array), "dataset"):
            self.array[index : index + 1] = whole

    def take(self, index: int, start: int, stop: int) -> np.ndarray:
        """Return the records from start to stop of a run."""
        values = reading.read(self.array, (index, slice(start, stop)))
        return np.ascontiguousarray(values).reshape(-1).view(self.record)


@dataclass(frozen=True, eq=False)
class Target:
    """The store that rows are written to, whole chunks by each task."""

    url: str
    group: zarr.Group
    rows: Rows
    runs: Runs

    def put(self, start: int, X: np.ndarray, y: np.ndarray) -> None:
        """Write rows that are whole chunks, as ``Rows.read`` returns them.

        The last chunk may be shorter.
        """
        stop, step = start + len(X), self.rows.X.chunks[0]
        if start % step or (stop % step and stop != len(self.rows)):
            raise StoreError(
                f"{self.url}: rows {start} to {stop} are not whole chunks of {step} rows"
            )
        with groups.writing(self.url, "dataset"):
            for name, values in self.rows.parted(X, y).items():
                self.rows.arrays[name][start:stop] = values

    def finish(self, describe: Callable[[zarr.Group], None]) -> None:
        """Remove the runs and have the blocks described in the store."""
        del self.group[RUNS]
        describe(self.group)


@contextmanager
def creating(
    url: str, rows: Rows, n: int, step: int, runs: tuple[int, int], part: int
) -> Iterator[Target]:
    """Yield a new dataset store of n rows like ``rows``, removed again if the block fails.

    Parameters
    ----------
    url : str
        Where to write; StoreError if something exists there already.
    rows : Rows
        Their columns, names and types are taken over.
    n, step : int
        Number of rows, and rows per chunk.
    runs : tuple of int
        Number of runs, and most rows of a run.
    part : int
        Rows of a run that are read in one go.
    """
    with groups.creating(url, "dataset", {**rows.said(), **writers.marks()}) as group:
        arrays = {
            name: writers.create_rows(group, name, (n, *a.shape[1:]), step, stored_dtype(a))
            for name, a in rows.arrays.items()
        }
        target = rows.with_arrays(arrays, identity=None)
        yield Target(url, group, target, _create_runs(group, rows, runs, part))
        group.attrs["complete"] = True


def _create_runs(group: zarr.Group, rows: Rows, runs: tuple[int, int], part: int) -> Runs:
    y_type = np.dtype(np.float64) if rows.width > rows.n_targets else stored_dtype(rows.y)
    types = [
        ("key", np.uint64),
        ("X", stored_dtype(rows.X), (rows.X.shape[1],)),
        ("y", y_type, (rows.width,)),
    ]
    record, length = np.dtype(types), -(-runs[1] // part) * part
    array = group.create_array(
        RUNS,
        shape=(runs[0], length, record.itemsize),
        shards=(1, length, record.itemsize),
        chunks=(1, part, record.itemsize),
        dtype=np.uint8,
        dimension_names=groups.own_dims(RUNS, 3),
        compressors=None,
    )
    return Runs(array, record)


def write_blocks(
    group: zarr.Group, cuts: np.ndarray, centroids: np.ndarray, attributes: groups.Attributes
) -> None:
    """Write first keys, mean inputs and other attributes of blocks into a dataset store."""
    groups.write_array(group, CUTS, cuts)
    groups.write_array(group, CENTROIDS, centroids, ("block", groups.FEATURE))
    group.attrs[BLOCKS] = {"version": VERSION, **attributes}


def identity_behind(X: Any) -> str | None:
    """Return what tells the store of an X from any other, even an earlier one at its URL."""
    if not isinstance(X, zarr.Array) or not X.path:
        return None
    group = groups.parent_of(X)
    if group is None:
        return None
    return str(group.attrs.get("uuid", "")) or None


class Blocks(NamedTuple):
    """Blocks as a prepared store describes them."""

    url: str
    attributes: dict[str, Any]
    columns: Columns
    cuts: np.ndarray
    centroids: np.ndarray


def blocks_behind(X: Any) -> Blocks | None:
    """Return the blocks that the store of an X describes; None for other arrays.

    Raises
    ------
    StoreError
        If it describes them in a way that this version does not read.
    """
    group = store_behind(X, "X")
    attributes = {} if group is None else group.attrs.asdict()
    entry = attributes.get(BLOCKS)
    if group is None or not isinstance(entry, dict):
        return None
    url = remote.address(group)
    if entry.get("version") != VERSION:
        raise StoreError(
            f"dataset {url} has blocks of format version {entry.get('version')}, this daskgp reads "
            f"version {VERSION}: run daskgp.prepare again"
        )
    cuts, centroids = (groups.values_of(groups.array_of(group, n)) for n in (CUTS, CENTROIDS))
    names = attributes.get("feature_names")
    features = tuple(str(name) for name in names) if isinstance(names, list) else ()
    columns = Columns(features, chosen(attributes.get(GEOGRAPHIC), features, None))
    return Blocks(url, entry, columns, cuts, centroids)


def rows_in_blocks(url: str) -> int | None:
    """Return the number of rows that the blocks of a store were made for; None if it has none."""
    entry = groups.open_group(url, "dataset").attrs.get(BLOCKS)
    rows = entry.get("rows") if isinstance(entry, dict) else None
    return rows if isinstance(rows, int) else None


def check_columns(rows: Rows) -> None:
    """Raise InputError for rows in blocks that are near on a sphere, if they are not on it."""
    stored = blocks_behind(rows.X)
    if stored is None or stored.columns.geographic == rows.geographic:
        return
    made, wanted = (
        ", ".join(rows.feature_names[j] for j in pair) if pair else "False"
        for pair in (stored.columns.geographic, rows.geographic)
    )
    raise InputError(
        f"dataset {stored.url}: its blocks were made with geographic={made}, not "
        f"geographic={wanted}: leave geographic out, or run daskgp.prepare again with it"
    )


def lies_at(rows: Rows, url: str) -> bool:
    """Return whether a URL is that of the finished store that rows are read from.

    What is left of one whose removal was killed is none.
    """
    if rows.identity is None or not groups.is_group(url):
        return False
    attributes = groups.open_group(url, "dataset").attrs.asdict()
    return attributes.get("complete") is True and attributes["uuid"] == rows.identity


def copy(
    url: str,
    rows: Rows,
    chunk_rows: int,
    describe: Callable[[zarr.Group], None] = lambda group: None,
    most_rows: int | None = None,
    span: slice = slice(None),
    before: Rows | None = None,
) -> None:
    """Write rows, or some, to a new dataset store, and ``describe`` the blocks that they are in.

    Rows in memory get chunks of ``chunk_rows``; those of a store keep theirs, of at most
    ``most_rows`` rows if given.  The store has arrays for those which they come ``before``, too, in
    types that hold the values of both.

    This process copies them chunk by chunk: it sees both stores, whatever workers see.
    """
    attributes = {**rows.said(), **writers.marks()}
    first, end, _ = span.indices(len(rows))
    with groups.creating(url, "dataset", attributes) as group:
        stored = [a for a in rows.arrays.values() if isinstance(a, zarr.Array)]
        step = row_step(stored[0]) if stored else max(min(chunk_rows, len(rows)), 1)
        step = min(step, most_rows or step)
        both = [rows] if before is None else [before, rows]
        for name, source in {k: a for part in both for k, a in part.arrays.items()}.items():
            each = [part.arrays[name] for part in both if name in part.arrays]
            dtype = np.result_type(*map(stored_dtype, each))
            shape = end - first, *source.shape[1:]
            target = writers.create_rows(group, name, shape, step, dtype)
            for start in range(first, end, step):
                stop = min(start + step, end)
                target[start - first : stop - first] = _values(rows, name, start, stop)
        describe(group)
        group.attrs["complete"] = True


DEFAULTS = {
    WEIGHT: 1.0,
    Y_VARIANCE: 0.0,
    "trials": 1.0,
    "exposure": 1.0,
    "offset": 0.0,
    "lower": -np.inf,
    "upper": np.inf,
}
"""Values of rows without arrays beside y, where others have some."""


def takes(url: str, more: Rows, at: int | None) -> bool:
    """Return whether rows can be written after those of a store of blocks, as they are.

    It has to have their arrays, in types that hold their values, and no rows after the first
    ``at``; with None these do not matter.
    """
    arrays = _by_row(url)
    return at in (None, arrays["X"].shape[0]) and all(
        name in arrays and np.result_type(arrays[name].dtype, a.dtype) == arrays[name].dtype
        for name, a in more.arrays.items()
    )


def append(url: str, more: Rows, at: int) -> None:
    """Write rows after the first ``at`` rows of a store of blocks, in place of any there.

    Rows before them stay as they are, for readers that know of no more.
    """
    with groups.writing(url, "dataset"):
        for name, array in _by_row(url).items():
            step = row_step(array)
            array.resize((at + len(more), *array.shape[1:]))
            for start in range(0, len(more), step):
                stop = min(start + step, len(more))
                values = _values(more, name, start, stop)
                array[at + start : at + stop] = values.reshape(-1, *array.shape[1:])


def _by_row(url: str) -> dict[str, zarr.Array[Any]]:
    group = groups.open_group(url, "dataset", mode="r+")
    return {name: groups.array_of(group, name) for name in writers.BY_ROW if name in group}


def joined(rows: Rows, more: Rows) -> Rows:
    """Return rows in memory and, after them, others."""
    arrays = {}
    for name in writers.BY_ROW:
        if name in rows.arrays or name in more.arrays:
            first, last = (_values(part, name, 0, len(part)) for part in (rows, more))
            arrays[name] = np.concatenate([first, last.reshape(-1, *first.shape[1:])])
    return rows.with_arrays(arrays, chunks=None)


def _values(rows: Rows, name: str, start: int, stop: int) -> np.ndarray:
    if name not in rows.arrays:
        return np.full(stop - start, DEFAULTS[name])
    return rows.values(name, start, stop)
