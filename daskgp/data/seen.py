"""Rows of dataset stores that a model has seen, by which rows that are new are told from them."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import zarr
from zarr.storage import FsspecStore, LocalStore

from daskgp.data import reading
from daskgp.data.partition import joined
from daskgp.data.rows import Rows
from daskgp.data.stores import chunk_marks, groups, remote
from daskgp.data.stores.groups import row_step
from daskgp.errors import StoreError
from daskgp.runtime.executor import Executor, map_reduce

logger: logging.Logger = logging.getLogger("daskgp")

AFRESH = "fit a model to all rows again, or give the new rows as a store of their own"


@dataclass(frozen=True, eq=False)
class Source:
    """A dataset store of which a model has seen the first rows.

    Parameters
    ----------
    url : str
    rows, step : int
        Rows seen, and rows per chunk.
    marks : ndarray (chunks,) of uint64
        Marks of the stored objects of each chunk, before it was read.
    checksums : ndarray (chunks,) of uint32
        CRC-32 of the rows seen of each chunk.
    arrays : sequence of str
        Names of the arrays that were read.
    start : int
        Rows at the beginning that were forgotten again.
    """

    url: str
    rows: int
    step: int
    marks: np.ndarray
    checksums: np.ndarray
    arrays: Sequence[str]
    start: int = 0

    @property
    def stored(self) -> dict[str, np.ndarray]:
        """Arrays of a number for each chunk."""
        return {"marks": self.marks, "checksums": self.checksums}

    def described(self) -> dict[str, Any]:
        """Return what tells the store, as plain values."""
        sizes = {"rows": self.rows, "step": self.step, "start": self.start}
        return {"url": self.url, "arrays": list(self.arrays), **sizes}

    def emptied(self) -> Source:
        """Return the store as one of which no rows were seen."""
        return replace(self, rows=0, start=0, marks=self.marks[:0], checksums=self.checksums[:0])

    def begins(self, rows: Rows, executor: Executor) -> bool:
        """Return True if the first chunk that the model has is that of rows of another store."""
        chunk = self.start // self.step
        arrays = {name: a for name, a in rows.arrays.items() if name in self.arrays}
        if not chunk < len(self.checksums) or len(arrays) < len(self.arrays):
            return False
        if row_step(rows.X) != self.step or len(rows) < min((chunk + 1) * self.step, self.rows):
            return False
        found = checksums(rows.with_arrays(arrays), self.rows, [chunk], executor)
        return bool(found[0] == self.checksums[chunk])

    def check(self, dataset: Dataset, executor: Executor) -> None:
        """Raise StoreError unless the rows seen are still there, unchanged.

        Chunks with other marks than then are read and compared, as is one that was not full; those
        of rows that were forgotten are not.
        """
        rows = dataset.rows
        if not self.rows:
            return
        if len(rows) < self.rows:
            raise StoreError(
                f"dataset {self.url} has {len(rows)} rows, the model has seen {self.rows}: a "
                f"dataset may grow but not shrink: {AFRESH}"
            )
        if row_step(rows.X) != self.step:
            raise StoreError(
                f"dataset {self.url} has chunks of {row_step(rows.X)} rows, those that the model "
                f"has seen had {self.step}: {AFRESH}"
            )
        now = dataset.marks[: len(self.marks)]
        look = np.flatnonzero((now != self.marks) | (now == chunk_marks.UNKNOWN))
        look = look[look >= self.start // self.step]
        wrong = look[checksums(rows, self.rows, look, executor) != self.checksums[look]]
        if len(wrong):
            first = int(wrong[0]) * self.step
            last = min(first + self.step, self.rows) - 1
            raise StoreError(
                f"dataset {self.url}: rows {first} to {last} have changed since the model saw them "
                f"({len(wrong)} of {len(look)} chunks compared): {AFRESH}"
            )


@dataclass(frozen=True, eq=False)
class Dataset:
    """A whole dataset store, as it was before any of its chunks was read.

    Parameters
    ----------
    url : str
    rows : Rows
        All its rows, with those of its arrays that are read.
    marks : ndarray (chunks,)
        Marks of the stored objects of each chunk.
    """

    url: str
    rows: Rows
    marks: np.ndarray

    def source(
        self, executor: Executor, before: Source | None = None, start: int | None = None
    ) -> Source:
        """Return all rows as seen; only chunks beyond those seen ``before`` are read.

        Those before ``start`` have been forgotten.
        """
        step, count = row_step(self.rows.X), len(self.marks)
        whole = 0 if before is None else before.rows // step
        found = np.zeros(count, np.uint32)
        if before is not None:
            found[:whole] = before.checksums[:whole]
            start = before.start if start is None else start
        look = np.arange(whole, count)
        found[look] = checksums(self.rows, len(self.rows), look, executor)
        names = tuple(self.rows.arrays)
        return Source(self.url, len(self.rows), step, self.marks, found, names, start or 0)

    def first(self, url: str, stop: int, executor: Executor) -> Source:
        """Return the rows before ``stop`` as seen, at another URL."""
        step = row_step(self.rows.X)
        chunks = range(-(-stop // step))
        found = checksums(self.rows, stop, chunks, executor)
        return Source(url, stop, step, self.marks[: len(chunks)], found, tuple(self.rows.arrays))

    def unseen(self) -> Source:
        """Return the store as one of which no rows were seen."""
        step, names = row_step(self.rows.X), tuple(self.rows.arrays)
        return Source(self.url, 0, step, self.marks[:0], np.zeros(0, np.uint32), names)


def place_of(X: Any, y: Any) -> str | None:
    """Return the URL of the dataset store that X and y are the whole of; None for other rows.

    Also None for one in a single file or in memory.
    """
    if reading.has_columns(X):
        return None
    tables = [part if hasattr(part, "dims") else reading.timed(part) for part in (X, y)]
    arrays = [reading.behind(reading.lazily(part)) for part in tables]
    if not all(isinstance(array, zarr.Array) for array in arrays):
        return None
    if not isinstance(arrays[0].store, LocalStore | FsspecStore):
        return None
    (place, _, first), (beside, _, second) = (remote.address(a).rpartition("/") for a in arrays)
    if place != beside or (first, second) != ("X", "y"):
        return None
    return remote.location(place)


def dataset_at(url: str, rows: Rows, names: Sequence[str] | None = None) -> Dataset:
    """Return the store at a URL as it is now, by some of its arrays or by all that rows have."""
    arrays = {
        name: array
        for name, array in rows.arrays.items()
        if isinstance(array, zarr.Array) and (names is None or name in names)
        if remote.location(remote.address(array).rpartition("/")[0]) == url
    }
    rows = rows.with_arrays(arrays)
    each = [chunk_marks.chunk_marks(url, array) for array in arrays.values()]
    unknown = np.any([marks == chunk_marks.UNKNOWN for marks in each], axis=0)
    mixed = np.zeros(len(each[0]), np.uint64)
    for marks in each:
        mixed = mixed * np.uint64(1_000_003) + marks
    marks = np.where(unknown, np.uint64(chunk_marks.UNKNOWN), mixed | np.uint64(1))
    return Dataset(url, rows, marks)


def noticed(X: Any, y: Any, rows: Rows) -> Dataset | None:
    """Return the store that X and y, of which rows were made, are the whole of.

    None for other rows, and for a store that goes with the fit or whose objects cannot be listed.
    """
    url = None if rows.passing else place_of(X, y)
    try:
        return None if url is None else dataset_at(url, rows)
    except Exception as error:  # noqa: BLE001 - each file system has its own
        logger.info("rows that are added later cannot be recognised: %s", groups.first_line(error))
        return None


def checksums(rows: Rows, stop: int, chunks: Sequence[int] | Any, executor: Executor) -> np.ndarray:
    """Return the CRC-32 (k,) of some chunks of rows before ``stop``."""
    if not len(chunks):
        return np.zeros(0, np.uint32)
    task = partial(_checksum, tuple(rows.arrays.values()), row_step(rows.X), stop)
    both = map_reduce(task, joined, [int(i) for i in chunks], executor, "seen")
    return np.asarray(both, np.uint32)


def _checksum(arrays: tuple[Any, ...], step: int, stop: int, chunk: int) -> np.ndarray:
    part, found = slice(chunk * step, min((chunk + 1) * step, stop)), 0
    for array in arrays:
        found = zlib.crc32(np.ascontiguousarray(reading.read(array, part)).tobytes(), found)
    return np.array([found], np.uint32)
