"""Rows of dataset stores that a model has seen, by which rows that are new are told from them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskgp.data import reading
from daskgp.data.rows import Rows
from daskgp.data.stores import chunk_marks, remote
from daskgp.data.stores.groups import row_step
from daskgp.errors import StoreError
from daskgp.runtime.executor import Executor, map_reduce

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
    """

    url: str
    rows: int
    step: int
    marks: np.ndarray
    checksums: np.ndarray

    def described(self) -> dict[str, Any]:
        """Return what tells the store, as plain values."""
        return {"url": self.url, "rows": self.rows, "step": self.step}

    def check(self, rows: Rows, marks: np.ndarray, executor: Executor) -> None:
        """Raise StoreError unless the rows seen are still there, unchanged.

        Chunks with other marks than then, and one that was not full, are read and compared.
        """
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
        now = marks[: len(self.marks)]
        look = np.flatnonzero((now != self.marks) | (now == chunk_marks.UNKNOWN))
        wrong = look[checksums(rows, self.rows, look, executor) != self.checksums[look]]
        if len(wrong):
            first = int(wrong[0]) * self.step
            last = min(first + self.step, self.rows) - 1
            raise StoreError(
                f"dataset {self.url}: rows {first} to {last} have changed since the model saw them "
                f"({len(wrong)} of {len(look)} chunks compared): {AFRESH}"
            )


def address_of(rows: Rows) -> str | None:
    """Return the URL of the dataset store that rows lie in; None for any others."""
    array = reading.behind(rows.X)
    if rows.passing or not hasattr(array, "store_path") or not array.path.endswith("X"):
        return None
    return remote.location(remote.address(array).rpartition("/")[0])


def marks_of(url: str, rows: Rows) -> np.ndarray:
    """Return a mark (chunks,) for the objects of each chunk of all arrays of rows."""
    each = [chunk_marks.chunk_marks(url, array) for array in rows.arrays.values()]
    unknown = np.any([marks == chunk_marks.UNKNOWN for marks in each], axis=0)
    mixed = np.zeros(len(each[0]), np.uint64)
    for marks in each:
        mixed = mixed * np.uint64(1_000_003) + marks
    return np.where(unknown, np.uint64(chunk_marks.UNKNOWN), mixed | np.uint64(1))


def source_of(
    url: str,
    rows: Rows,
    marks: np.ndarray,
    executor: Executor,
    before: Source | None = None,
) -> Source:
    """Return all rows of a store as seen; only chunks beyond those seen ``before`` are read."""
    step, count = row_step(rows.X), len(marks)
    whole = 0 if before is None else before.rows // step
    found = np.zeros(count, np.uint32)
    if before is not None:
        found[:whole] = before.checksums[:whole]
    look = np.arange(whole, count)
    found[look] = checksums(rows, len(rows), look, executor)
    return Source(url, len(rows), step, marks, found)


def checksums(rows: Rows, stop: int, chunks: Sequence[int] | Any, executor: Executor) -> np.ndarray:
    """Return the CRC-32 (k,) of some chunks of rows before ``stop``."""
    if not len(chunks):
        return np.zeros(0, np.uint32)
    task = partial(_checksum, tuple(rows.arrays.values()), row_step(rows.X), stop)
    both = map_reduce(task, _joined, [int(i) for i in chunks], executor, "seen")
    return np.asarray(both, np.uint32)


def _checksum(arrays: tuple[Any, ...], step: int, stop: int, chunk: int) -> np.ndarray:
    part, found = slice(chunk * step, min((chunk + 1) * step, stop)), 0
    for array in arrays:
        found = zlib.crc32(np.ascontiguousarray(reading.read(array, part)).tobytes(), found)
    return np.array([found], np.uint32)


def _joined(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([a, b])
