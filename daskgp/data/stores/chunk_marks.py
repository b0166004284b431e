"""Cheap marks of the stored objects of an array's chunks, from one listing.

A chunk whose mark is the same has not been written since.  A mark that differs says nothing about
the contents: a copy of a store has other marks.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import zarr

from daskgp.data.stores import groups, remote

UNKNOWN = 0
"""Mark of a chunk about which the file system says too little; such a chunk is read again."""

TELLING = (
    *("ETag", "etag", "generation", "md5Hash", "content_md5", "version_id", "VersionId"),
    *("LastModified", "last_modified", "updated", "modified", "mtime", "created", "ino"),
)
"""Fields of fsspec's file information that change when an object is written."""


def chunk_marks(url: str, array: zarr.Array[Any]) -> np.ndarray:
    """Return marks (chunks,) of the objects that hold each chunk, or shard, of rows.

    ``url`` is that of the store that the array is in.
    """
    counts, found = _objects(url, array)
    columns = list(itertools.product(*map(range, counts[1:])))
    marks = [_mark([found((i, *j)) for j in columns]) for i in range(counts[0])]
    return np.array(marks, np.uint64)


def box_marks(url: str, array: zarr.Array[Any]) -> np.ndarray:
    """Return the mark of the object of every chunk, or shard, along all dimensions of an array."""
    counts, found = _objects(url, array)
    marks = np.zeros(counts, np.uint64)
    for index in np.ndindex(*counts):
        marks[index] = _mark([found(index)])
    return marks


def file_mark(url: str) -> int:
    """Return the mark of one file."""
    fs, path = remote.filesystem(url)
    fs.invalidate_cache()
    return _mark([fs.info(path)])


def _objects(
    url: str, array: zarr.Array[Any]
) -> tuple[list[int], Callable[[tuple[int, ...]], dict[str, Any] | None]]:
    """Return the number of chunks along each dimension, and what is known of each one's object."""
    fs, path = remote.filesystem(url)
    fs.invalidate_cache()  # what other processes wrote since counts
    root = "/".join(part for part in (path.rstrip("/"), array.path) if part)
    listing = fs.find(root, detail=True)
    sizes = groups.written_together(array)
    counts = [-(-n // size) for n, size in zip(array.shape, sizes, strict=True)]
    key = array.metadata.encode_chunk_key
    return counts, lambda index: listing.get(f"{root}/{key(index)}")


def _mark(objects: list[dict[str, Any] | None]) -> int:
    """Return one number for what is known of some objects; a missing object is None."""
    known: list[Any] = []
    for info in objects:
        said = {} if info is None else {name: info[name] for name in TELLING if name in info}
        if info is not None and (not said or info.get("islink")):
            return UNKNOWN
        known.append(info and (info.get("size"), sorted(said.items())))
    digest = hashlib.blake2b(repr(known).encode(), digest_size=8).digest()
    return int.from_bytes(digest) | 1
