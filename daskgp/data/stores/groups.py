"""Zarr groups by URL: opening, creating and removing them, with errors a user can act on."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

import numpy as np
import psutil
import zarr
from fsspec.implementations.local import LocalFileSystem
from zarr.codecs import ZstdCodec
from zarr.errors import ContainsArrayError

from daskgp.data.stores import remote
from daskgp.data.stores.remote import Inside, Place
from daskgp.data.stores.remote import address as address
from daskgp.data.stores.remote import exists as exists
from daskgp.data.stores.remote import filesystem as filesystem
from daskgp.data.stores.remote import first_line as first_line
from daskgp.errors import FullDiskError, StoreError

Attributes = Mapping[str, Any]
Group: TypeAlias = zarr.Group
"""A Zarr group, for annotations elsewhere."""

REMOVE_ATTEMPTS = 5
SETTLE = (0.0, 0.2, 0.6)
"""Seconds between removals after a failure: tasks that still run may rewrite what was removed."""

CHUNK_BYTES = 64 << 20
"""Most bytes of a chunk of a model's arrays."""

CHECKED = ZstdCodec(level=0, checksum=True)
"""Zarr's own compression, with a checksum in each chunk that is compared when it is read."""

NUMERIC = "fiub"
"""Kinds of dtypes that are read as numbers."""

ROW, FEATURE, TARGET = "row", "feature", "target"
"""Names of dimensions that arrays of a store share."""

UNFINISHED = r"zarr\.[0-9a-f]{32}\.partial"
"""Pattern of the temporary name of a group's description while zarr writes it."""

KINDS = {"daskgp-model": "model", "daskgp-predictions": "prediction"}
"""Kinds of stores by their attribute ``format``."""


NETCDF = (".nc", ".nc3", ".nc4", ".ncdf", ".netcdf", ".netcdf4", ".cdf")
FILES = (
    *NETCDF,
    *(".csv", ".csv.gz", ".csv.bz2", ".csv.xz", ".tsv", ".txt", ".json", ".xlsx"),
    *(".parquet", ".feather", ".npy", ".npz", ".h5", ".hdf5", ".grib"),
    *(".grib2", ".grb", ".tif", ".tiff", ".png", ".html", ".pkl", ".pickle", ".joblib", ".zip"),
)
"""Endings of files of other formats, which no new store may have."""


def remove(url: Place) -> None:
    """Remove a store and everything in it; do nothing where nothing exists.

    A group in an open store goes with it.
    """
    if isinstance(url, Inside):
        return
    fs, path = filesystem(url)
    for attempt in range(1, REMOVE_ATTEMPTS + 1):
        if not exists(url):
            return
        try:
            fs.rm(path, recursive=True)
        except OSError:  # tasks that were running when another failed still write their chunks
            if attempt == REMOVE_ATTEMPTS:
                raise
            time.sleep(0.1 * attempt)


def vacant(url: Place, own: str = UNFINISHED) -> bool:
    """Return whether a store may be made: nothing exists, or only remains of a killed attempt.

    These are an empty folder, or one with files that zarr had not finished.  Names that match
    ``own`` are what a kill leaves of a group that was being removed.
    """
    if isinstance(url, Inside):
        return _is_empty(url)
    if not exists(url):
        return True
    fs, path = filesystem(url)
    with remote.plainly(url, "the store"):
        entries = fs.ls(path, detail=False) if fs.isdir(path) else [path]
    names = [str(name).rstrip("/").rpartition("/")[2] for name in entries]
    return all(re.fullmatch(f"{UNFINISHED}|{own}", name) for name in names)


def _is_empty(place: Inside) -> bool:
    """Return whether a store has nothing at a place but a group without members."""
    with remote.plainly(place, "the store"):
        try:
            group = zarr.open_group(place.store, path=place.path, mode="r", zarr_format=3)
        except FileNotFoundError:
            return True
        except (ValueError, AssertionError):  # an array, or what is damaged
            return False
        return not group.attrs.asdict() and not group.nmembers()


def sweep(url: str) -> None:
    """Remove files of a group on disk that zarr had not finished, about which it would warn."""
    fs, path = filesystem(url)
    if not isinstance(fs, LocalFileSystem) or not fs.isdir(path):
        return
    for name in fs.ls(path, detail=False):
        if re.fullmatch(UNFINISHED, name.rpartition("/")[2]):
            fs.rm_file(name)


def open_group(url: Place, what: str, mode: str = "r") -> zarr.Group:
    """Open the Zarr group at a URL; StoreError names what was looked for and what exists."""
    if not isinstance(url, Inside):
        remote.reach(url, f"the {what}")
    try:
        return _opened(url, mode)
    except (FileNotFoundError, KeyError) as error:
        if isinstance(url, Inside):
            raise StoreError(f"no {what} at {url}") from error
        if not exists(url):
            hint = "; a pattern is not expanded: give one path or address at a time"
            said = f"no {what} at {url}: the path does not exist"
            raise StoreError(said + (hint if remote.is_pattern(url) else "")) from error
        raise StoreError(
            f"no {what} at {url}: it is not a Zarr group{_instead(url, what)}"
        ) from error
    except StoreError:
        raise
    except ContainsArrayError as error:
        raise StoreError(
            f"no {what} at {url}: it is an array, not a Zarr group: give the store that it is in"
        ) from error
    except OSError as error:  # such as of permissions, or of a network
        raise StoreError(f"cannot read the {what} at {url}: {first_line(error)}") from error
    except Exception as error:  # each kind of damage has its own type
        raise StoreError(
            f"the {what} at {url} is damaged, its metadata cannot be read ({first_line(error)}): "
            f"{REMADE.get(what, 'write it again')}, or restore a copy of it"
        ) from error


REMADE = {"model store": "fit again", "dataset": "convert again"}
"""How what was damaged is made again; the rest is written as it was."""
MODEL = "give a store that save or `daskgp fit` has written"
INSTEAD = {"store": "`daskgp convert` makes a dataset store of a table or a grid"}
INSTEAD |= {"dataset": INSTEAD["store"], "model store": MODEL}
"""What to give in the place of a file."""


def _instead(url: str, what: str) -> str:
    """Return what is at a URL instead of a group, with a remedy."""
    fs, path = filesystem(url)
    if not fs.isfile(path):
        return ": check the path"
    with fs.open(path, "rb") as file:
        zipped = zipfile.is_zipfile(file)
    if not zipped:
        return f" but a file: {INSTEAD.get(what, 'check the path')}"
    return (
        " but a zip file: unpack it, or give what zarr finds in it, "
        f"zarr.open_group(zarr.storage.ZipStore({path!r}, mode='r'), mode='r')"
    )


def _opened(url: Place, mode: Any) -> zarr.Group:
    """Open a group of Zarr's present format or, failing that, of an earlier one."""
    if isinstance(url, Inside):
        return zarr.open_group(url.store, path=url.path, mode=mode, zarr_format=3)
    how: Any = {"mode": mode, "storage_options": remote.options(url)}
    with remote.plainly(url, "the store"):
        try:
            return zarr.open_group(remote.location(url), zarr_format=3, **how)
        except FileNotFoundError:
            return zarr.open_group(remote.location(url), **how)


def names_in(url: Place) -> set[str]:
    """Return the names of the folders in a group, readable or not."""
    if isinstance(url, Inside):
        return {name for name, _ in open_group(url, "store").members()}
    fs, path = filesystem(url)
    with remote.plainly(url, "the store"):
        entries = fs.ls(path, detail=True)
    folders = (entry["name"] for entry in entries if entry["type"] == "directory")
    return {name.rstrip("/").rpartition("/")[2] for name in folders}


def parent_of(array: zarr.Array[Any]) -> zarr.Group | None:
    """Open the group that an array is in, as it is at this moment; None if it is in none."""
    parent, form = array.path.rpartition("/")[0], array.metadata.zarr_format
    try:
        return zarr.open_group(array.store, path=parent, mode="r", zarr_format=form)
    except FileNotFoundError:
        return None


def refuse_existing(
    url: Place, what: str, remedy: str = "remove it or choose another path"
) -> None:
    """Raise StoreError if something exists already; ``remedy`` is for a store of the same kind.

    A new store that has the name of a file is refused, too.
    """
    if not vacant(url):
        refuse_other(url, "model" if what == "model store" else "dataset")
        raise StoreError(f"{what} {url} exists already: {remedy}")
    refuse_ending(url, what)


def refuse_file(path: str, what: str, replaces: bool = False) -> None:
    """Raise StoreError unless a file can be created, or one that exists be replaced."""
    place = remote.location(path)
    if not replaces and (remote.exists(path) or os.path.lexists(place)):
        raise StoreError(f"{path} exists already: remove it or choose another name")
    if remote.is_remote(path):
        return
    folder = os.path.dirname(os.path.abspath(place))
    if not os.path.isdir(folder):
        raise StoreError(f"{path} cannot be written: there is no folder {folder} to write to")
    if not os.access(folder, os.W_OK):
        raise StoreError(f"cannot write {what} {path}: {REMEDIES[errno.EACCES]}")


def refuse_ending(url: Place, what: str) -> None:
    """Raise StoreError for a new store whose name ends as that of a file of another format."""
    if isinstance(url, Inside):
        return
    if remote.in_repository(url) is not None:
        raise StoreError(
            f"{what} {url} would be a plain Zarr store, but an Icechunk repository only takes "
            "predictions: name another path, such as one that ends in .zarr"
        )
    name = url.rstrip("/")
    ending = next((end for end in FILES if name.lower().endswith(end)), None)
    if ending is not None:
        other = f"{name[: -len(ending)].removesuffix('.zarr')}.zarr"
        own = what == "predictions" and ending in NETCDF
        made = (
            f"; xarray.open_zarr({other!r}).to_netcdf({name!r}) then makes the file" if own else ""
        )
        raise StoreError(
            f"{what} {name} would be a Zarr store, which is a folder, not a {ending[1:]} file: "
            f"name it {other}{made}"
        )


def refuse_other(url: Place, kind: str) -> None:
    """Raise StoreError unless a store of a kind (dataset, model, prediction) is at a URL."""
    existing = kind_of(url)
    if existing != f"a {kind} store":
        raise StoreError(
            f"{url}: {existing} exists already and is not a {kind} store: choose another path"
        )


def is_model(attributes: Attributes) -> bool:
    """Return whether attributes are those of a model store."""
    return KINDS.get(str(attributes.get("format"))) == "model"


def refuse_model(url: str, attributes: Attributes) -> None:
    """Raise StoreError for a model store in the place of data."""
    if is_model(attributes):
        raise StoreError(
            f"{url} is a model store: give data in its place, a dataset store or a source of one"
        )


def refuse_other_run(url: str, group: zarr.Group, identity: Mapping[str, Any]) -> NoReturn:
    """Raise StoreError for a checkpoint of a run with another identity, naming what differs."""
    kept = group.attrs.get("identity")
    if not isinstance(kept, Mapping):
        raise StoreError(f"{url} is not a checkpoint: choose another place for one")
    # sums over the data depend on the blocks, and these on settings
    names = [name for name in differing(kept, identity) if name != "data"] or ["data"]
    what = f" (not the same: {', '.join(names)})"
    raise StoreError(
        f"checkpoint {url} belongs to other data or settings: remove it, or fit with the "
        f"settings it was made with{what}"
    )


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of entries that differ, inner ones by themselves."""
    for name in sorted({*one, *other}):
        a, b = one.get(name), other.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differing(a, b)
        elif a != b:
            yield name


def is_group(url: str) -> bool:
    """Return whether the root of a group is at a URL, whatever else is."""
    return exists(f"{url}/zarr.json")


def is_begun(url: str, what: str, own: str) -> bool:
    """Return whether a group is at a URL; StoreError if something else is in its place.

    ``own`` matches the names in it, some of which remain if its removal is killed.
    """
    fs, path = filesystem(url)
    with remote.plainly(url, what):
        is_file = fs.isfile(path)
    if is_file:
        raise StoreError(f"{what} {url} is a file: choose another path")
    begun = is_group(url)
    if not begun and not vacant(url, own):
        raise StoreError(f"{what} {url} is a folder with other things in it: choose another path")
    return begun


def kind_of(url: Place) -> str:
    """Describe what is at a path that exists."""
    try:
        group = open_group(url, "store")
        attributes, has_inputs = group.attrs.asdict(), holds_rows(group)
    except StoreError:  # no group, or none that can be read
        if isinstance(url, Inside):
            return "an array"
        fs, path = filesystem(url)
        return "a folder" if fs.isdir(path) else "a file"
    kind = KINDS.get(str(attributes.get("format")))
    if kind is not None:
        return f"a {kind} store"
    # the attributes of a dataset store exist before its arrays
    return "a dataset store" if has_inputs or "feature_names" in attributes else "a Zarr group"


@contextmanager
def creating(url: Place, what: str, attributes: Attributes | None = None) -> Iterator[zarr.Group]:
    """Yield a new group that is removed again if the block fails; StoreError if one exists."""
    refuse_existing(url, what)
    try:
        with writing(url, what):
            yield create_group(url, attributes)
    except BaseException:
        for pause in () if isinstance(url, Inside) else SETTLE:
            time.sleep(pause)
            remove(url)
        raise


def create_group(url: Place, attributes: Attributes | None = None) -> zarr.Group:
    """Create a group that has its attributes from its first moment."""
    if isinstance(url, Inside):
        group = zarr.open_group(url.store, path=url.path, mode="a", zarr_format=3)
        group.update_attributes(dict(attributes or {}))
        return group
    sweep(url)
    return zarr.create_group(
        remote.location(url),
        attributes=dict(attributes or {}),
        storage_options=remote.options(url),
    )


@contextmanager
def writing(url: Place, what: str) -> Iterator[None]:
    """Turn failed writes of a system or an object store into a one-line StoreError.

    After that of a full disk the work can go on where it stopped.
    """
    try:
        with remote.plainly(url, what):
            yield
    except OSError as error:
        raise _unwritten(url, what, error.errno or 0, first_line(error)) from error
    except StoreError as error:
        # Icechunk says in words alone what the system refused
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None or not isinstance(url, Inside):
            raise
        raise _unwritten(url, what, int(number[1]), str(error)) from error


def _unwritten(url: Place, what: str, number: int, said: str) -> StoreError:
    """Return the error for a write that the system refused, by the number of its own error."""
    kind = FullDiskError if number in (errno.ENOSPC, errno.EDQUOT) else StoreError
    return kind(f"cannot write {what} {url}: {REMEDIES.get(number, said)}")


REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space or choose another path",
    errno.EDQUOT: "the disk quota is used up: free some space or choose another path",
    errno.EFBIG: "the file system refuses files of this size: choose smaller blocks",
    errno.EROFS: "the file system is read-only: choose another path",
    errno.EACCES: "permission denied: choose a path that you may write",
    errno.EPERM: "permission denied: choose a path that you may write",
    errno.ENOTDIR: "part of the path is a file: choose another path",
}
"""Remedies by the number of an error of the system."""


def array_of(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """Return an array of a group by its name; StoreError if there is none."""
    try:
        return member_of(group, name)
    except StoreError as error:
        raise StoreError(f"{remote.address(group)} is damaged: {error}") from error


def member_of(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """Return an array of a group, which the StoreError does not name if there is none."""
    try:
        array = group.get(name)
    except Exception as error:  # each kind of damage has its own type
        raise StoreError(f"array {name!r}: {first_line(error)}") from error
    if not isinstance(array, zarr.Array):
        raise StoreError(f"it has no array {name!r}")
    return array


def values_of(array: zarr.Array[Any], where: str | None = None) -> np.ndarray:
    """Return all values of a small array of numbers.

    Errors begin with ``where`` it is, by default its address.

    Raises
    ------
    StoreError
        If they are not numbers, are declared larger than memory, or cannot be decoded.
    """
    where = f"{where or remote.address(array)} cannot be read"
    if np.dtype(array.dtype).kind not in NUMERIC:
        raise StoreError(f"{where}: it has type {array.dtype}, but numbers are needed")
    refuse_larger(array.nbytes, where)
    try:
        return np.asarray(array[...])
    except Exception as error:  # a damaged chunk fails in the codec, each codec with its own type
        raise StoreError(f"{where}: {first_line(error)}") from error


def refuse_larger(size: int, what: str) -> None:
    """Raise StoreError if a store declares more bytes than this machine has memory."""
    memory = psutil.virtual_memory().total
    if not 0 <= size <= memory:
        raise StoreError(
            f"{what}: it declares {size:.3g} bytes to be read at once, but this machine has "
            f"{memory:.3g}: check the store, or use a machine with more memory"
        )


def reopened(array: zarr.Array[Any]) -> zarr.Array[Any]:
    """Open an array anew, as its store describes it at this moment and in this process."""
    with remote.plainly(remote.address(array), "the array"):
        return zarr.open_array(
            array.store, path=array.path, mode="r", zarr_format=array.metadata.zarr_format
        )


def first_rows(array: zarr.Array[Any], number: int) -> zarr.Array[Any]:
    """Return the first rows of an array that may get more after them; all if it has fewer."""
    if array.shape[0] <= number:
        return array
    whole = array._async_array
    metadata = whole.metadata.update_shape((number, *array.shape[1:]))
    return zarr.Array(type(whole)(metadata, whole.store_path, whole.config))


def write_array(
    group: zarr.Group, name: str, values: np.ndarray, dims: Sequence[str] | None = None
) -> None:
    """Write an array as one chunk; one of three axes, the first over experts, as one per expert.

    Dimensions without names are named after the array, so that no two arrays of a group have to
    agree.
    """
    values = np.asarray(values)
    array = group.create_array(
        name,
        shape=values.shape,
        chunks=_chunks(values),
        dtype=values.dtype,
        dimension_names=own_dims(name, values.ndim) if dims is None else tuple(dims),
        overwrite=True,
    )
    array[...] = values


def dims_in(array: zarr.Array[Any]) -> tuple[Any, ...]:
    """Return the names of the dimensions of an array in either format of Zarr, () for none."""
    own = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    return tuple(own) if isinstance(own, list | tuple) else ()


def holds_rows(group: zarr.Group) -> bool:
    """Return whether a group has an array ``X`` of rows, rather than an axis of a grid."""
    try:
        X = group.get("X")
    except (TypeError, ValueError):  # whoever reads it says what is wrong
        return True
    if X is None:  # lost, if columns are described
        return "feature_names" in group.attrs and "format" not in group.attrs
    return not (isinstance(X, zarr.Array) and dims_in(X) == ("X",))


def own_dims(name: str, ndim: int) -> tuple[str, ...]:
    """Return names for the dimensions of an array that shares none with another."""
    return tuple(f"{name}_{axis}" for axis in range(ndim))


def dims_of_rows(name: str, ndim: int) -> tuple[str, ...]:
    """Return names of the dimensions of ``X``, ``y`` and arrays made from them row by row."""
    return (ROW, FEATURE if name == "X" else TARGET)[:ndim]


def _chunks(values: np.ndarray) -> tuple[int, ...]:
    """Return the sizes of chunks of whole rows, as many as CHUNK_BYTES hold."""
    if not values.ndim:
        return ()
    rest = tuple(max(1, size) for size in values.shape[1:])
    limit = 1 if values.ndim == 3 else CHUNK_BYTES // (values.itemsize * math.prod(rest))
    return max(1, min(limit, len(values))), *rest


def checksum(arrays: Mapping[str, np.ndarray], attributes: Attributes) -> str:
    """Return the SHA-256 of names, types, shapes and bytes of arrays and the JSON of attributes."""
    digest = hashlib.sha256(json.dumps(attributes, sort_keys=True).encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{values.dtype.str}{values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def row_step(array: zarr.Array[Any]) -> int:
    """Return the rows that are read in one go: those of a shard where there are shards."""
    return int(written_together(array)[0])


def written_together(array: zarr.Array[Any]) -> tuple[int, ...]:
    """Return the sizes of what lies in one object, which two tasks must not write at once."""
    return tuple(array.shards or array.chunks)


def chunk_rows(n: int, step: int) -> tuple[int, ...]:
    """Return the row counts of chunks of ``step`` rows with a shorter last one."""
    return tuple(min(step, n - i) for i in range(0, n, step))
