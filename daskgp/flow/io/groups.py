"""Zarr groups by URL: opening, creating and removing them, with errors a user can act on."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import zarr
from fsspec.implementations.local import LocalFileSystem

from daskgp.errors import StoreError

Attributes = Mapping[str, Any]

REMOVE_ATTEMPTS = 5
SETTLE = (0.0, 0.2, 0.6)
"""Seconds between removals after a failure: tasks that still run may write what was removed."""

CHUNK_BYTES = 64 << 20
"""Most bytes of a chunk of a model's arrays."""

KINDS = {"daskgp-model": "model", "daskgp-predictions": "prediction"}
"""Kinds of stores by their attribute ``format``."""


def exists(url: str) -> bool:
    """Whether anything is at a local path or fsspec URL."""
    fs, path = _filesystem(url)
    return bool(fs.exists(path))


def remove(url: str) -> None:
    """Remove a store and all below it; nothing happens where nothing is."""
    fs, path = _filesystem(url)
    for attempt in range(1, REMOVE_ATTEMPTS + 1):
        if not fs.exists(path):
            return
        try:
            fs.rm(path, recursive=True)
        except OSError:  # tasks that were running when another failed still write their chunks
            if attempt == REMOVE_ATTEMPTS:
                raise
            time.sleep(0.1 * attempt)


def location(url: str) -> str:
    """What zarr is given: a plain path for ``file://`` URLs, which it opens but cannot create."""
    fs, path = _filesystem(url)
    return path if isinstance(fs, LocalFileSystem) else str(url)


def local_folder(url: str) -> Path | None:
    """The folder of this machine that a URL is in, the nearest that exists; None elsewhere."""
    fs, path = _filesystem(url)
    if not isinstance(fs, LocalFileSystem):
        return None
    place = Path(path)
    return next(folder for folder in (place, *place.parents) if folder.is_dir())


def _filesystem(url: str) -> tuple[Any, str]:
    try:
        return fsspec.core.url_to_fs(str(url))
    except (ValueError, ImportError) as error:  # an unknown protocol, or one not installed
        raise StoreError(f"cannot use the address {url}: {first_line(error)}") from error


def open_group(url: str, what: str, mode: str = "r") -> zarr.Group:
    """The Zarr group at a URL; StoreError names what was looked for and what is there."""
    try:
        return zarr.open_group(location(url), mode=mode)  # type: ignore[arg-type]
    except (FileNotFoundError, KeyError) as error:
        if not exists(url):
            raise StoreError(f"no {what} at {url}: the path does not exist") from error
        raise StoreError(f"no {what} at {url}: what is there is not a Zarr group") from error
    except (ValueError, TypeError, ImportError) as error:
        raise StoreError(f"cannot read the {what} at {url}: {first_line(error)}") from error


def refuse_existing(url: str, what: str, remedy: str = "remove it or choose another path") -> None:
    """Raise StoreError where something is already; ``remedy`` is for a store of the same kind."""
    if exists(url):
        refuse_other(url, "model" if what == "model store" else "dataset")
        raise StoreError(f"{what} {url} exists already: {remedy}")


def refuse_other(url: str, kind: str) -> None:
    """Raise StoreError unless a store of a kind (dataset, model, prediction) is there."""
    found = _found(url)
    if found != f"a {kind} store":
        raise StoreError(
            f"{url}: {found} exists already and is not a {kind} store: choose another path"
        )


def refuse_file(url: str, what: str) -> None:
    """Raise StoreError where a file is in the place of a group to be read or made."""
    fs, path = _filesystem(url)
    if fs.isfile(path):
        raise StoreError(f"{what} {url} is a file: choose another path")


def _found(url: str) -> str:
    """What is at a path that exists."""
    try:
        group = zarr.open_group(location(url), mode="r")
        attributes, members = group.attrs.asdict(), set(group.keys())
    except (OSError, KeyError, ValueError, TypeError):  # no group, or none that can be read
        fs, path = _filesystem(url)
        return "a folder" if fs.isdir(path) else "a file"
    kind = KINDS.get(str(attributes.get("format")))
    if kind is not None:
        return f"a {kind} store"
    # the attributes of a dataset store are there before its arrays
    return "a dataset store" if "X" in members or "feature_names" in attributes else "a Zarr group"


@contextmanager
def creating(url: str, what: str, attributes: Attributes | None = None) -> Iterator[zarr.Group]:
    """A new group that is removed again if the block fails; StoreError where one exists."""
    refuse_existing(url, what)
    try:
        with writing(url, what):
            yield create_group(url, attributes)
    except BaseException:
        for pause in SETTLE:
            time.sleep(pause)
            remove(url)
        raise


def create_group(url: str, attributes: Attributes | None = None) -> zarr.Group:
    """A new group that has its attributes from its first moment."""
    return zarr.create_group(location(url), attributes=dict(attributes or {}))


@contextmanager
def writing(url: str, what: str) -> Iterator[None]:
    """Turn the operating system's refusals to write into one plain line."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {what} {url}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    remedies = {
        errno.ENOSPC: "the disk is full: free some space or choose another path",
        errno.EDQUOT: "the disk quota is used up: free some space or choose another path",
        errno.EFBIG: "the file system refuses files of this size: choose smaller blocks",
        errno.EROFS: "the file system is read-only: choose another path",
        errno.EACCES: "permission denied: choose a path that you may write",
        errno.EPERM: "permission denied: choose a path that you may write",
        errno.ENOTDIR: "part of the path is a file: choose another path",
    }
    return remedies.get(error.errno or 0, first_line(error))


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, or its kind."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def array_of(group: zarr.Group, name: str) -> zarr.Array:
    """A member of a group that must be an array; StoreError otherwise."""
    found = group.get(name)
    if not isinstance(found, zarr.Array):
        raise StoreError(f"{group.store_path} is damaged: it has no array {name!r}")
    return found


def reopened(array: zarr.Array) -> zarr.Array:
    """The array as its store describes it at this moment and in this process."""
    return zarr.open_array(array.store, path=array.path, mode="r")


def write_array(group: zarr.Group, name: str, values: np.ndarray) -> None:
    """An array as one chunk; three axes, of which the first counts experts, as one an expert."""
    values = np.asarray(values)
    array = group.create_array(
        name, shape=values.shape, chunks=_chunks(values), dtype=values.dtype, overwrite=True
    )
    array[...] = values


def _chunks(values: np.ndarray) -> tuple[int, ...]:
    """Rows are whole, and as many as CHUNK_BYTES hold."""
    if not values.ndim:
        return ()
    rest = tuple(max(1, size) for size in values.shape[1:])
    most = 1 if values.ndim == 3 else CHUNK_BYTES // (values.itemsize * math.prod(rest))
    return max(1, min(most, len(values))), *rest


def checksum(arrays: Mapping[str, np.ndarray], attributes: Attributes) -> str:
    """SHA-256 over names, types, shapes and bytes of arrays and the JSON of attributes."""
    digest = hashlib.sha256(json.dumps(attributes, sort_keys=True).encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{values.dtype.str}{values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
