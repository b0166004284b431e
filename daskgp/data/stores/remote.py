"""Addresses of stores: their file systems, the options of these, and errors when they refuse.

An object store is asked anew each time for its contents, because other processes write to it, and
for each object with one request.  The first answer to a process has to come soon.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import fsspec
import zarr
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.implementations.local import LocalFileSystem
from zarr.abc.store import Store
from zarr.storage import FsspecStore

from daskgp.checks import shown
from daskgp.errors import DaskgpError, SettingError, StoreError

LONGEST = 400
"""Most characters of a message of another library that are passed on."""
ANSWER_SECONDS = 20.0
"""Longest wait for the first answer of an object store; later ones are left to its library."""


@dataclass(frozen=True, eq=False)
class Inside:
    """A group at a path in an open store of zarr-python, in place of an address.

    ``name`` is what messages call it.  Tasks have it without the store, which their arrays have.
    """

    store: Store | None
    path: str
    name: str

    def __str__(self) -> str:
        return self.name

    def named(self) -> Inside:
        """Return its name alone."""
        return Inside(None, self.path, self.name)


Place: TypeAlias = str | Inside
"""Address of a group, or the place of one in an open store."""


class Address(NamedTuple):
    """Icechunk repository at a path or URL, and the group in it, "" for its root."""

    repository: str
    group: str


def in_repository(url: Any) -> Address | None:
    """Return the repository, whose name ends in .icechunk, and the group; None for other stores."""
    text = str(url) if isinstance(url, str | os.PathLike) else ""
    found = re.fullmatch(r"(.*[^/]\.icechunk)(?:/(.*))?", text)
    return None if found is None else Address(found[1], (found[2] or "").strip("/"))


def whole(url: str) -> str:
    """Return the store that locks and records lie beside: of a group that of its repository."""
    found = in_repository(url)
    return url if found is None else found.repository


S3 = ("s3", "s3a")
WEB = ("http", "https")
EXTRAS = {
    **dict.fromkeys(S3, "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("abfs", "abfss", "adl", "az"), "azure"),
}
"""Extras that bring the libraries of object stores, by the protocols of addresses."""
S3_OPTIONS: dict[str, bool | int] = {"use_listings_cache": False, "max_concurrency": 1}
"""Listings are never cached; an object is read without asking for its size first."""

REMEDIES = {
    "NoCredentialsError": "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "AWS_PROFILE",
    "PermissionError": "permission denied: use credentials that may read and write there",
    "FSTimeoutError": f"no answer within {ANSWER_SECONDS:g} s: check the address, the network and "
    "AWS_ENDPOINT_URL",
}
"""Remedies, by the kind of error of a library."""


def filesystem(url: str) -> tuple[Any, str]:
    """Return the file system of a local path or fsspec URL, and the path in it."""
    if not str(url).strip():  # it would mean the current folder
        raise StoreError(f"the address {str(url)!r} is blank: give a path or a URL")
    if _protocol(url) in WEB:
        raise StoreError(
            f"no store can be at {url}, because a web server does not list its files: download "
            "it, or use a local path or an object store (s3://bucket/name.zarr)"
        )
    try:
        return fsspec.core.url_to_fs(str(url), **(options(url) or {}))
    except ImportError as error:
        known = install(url)
        remedy = f": {known}" if known else ""
        raise StoreError(f"cannot use the address {url}: {first_line(error)}{remedy}") from error
    except (ValueError, OSError) as error:  # an unknown protocol, or a server that is not there
        raise StoreError(f"cannot use the address {url}: {first_line(error)}") from error


def install(url: str) -> str | None:
    """Return the command that installs what an address needs, if this is known."""
    protocol = _protocol(url)
    if protocol in WEB:
        return "pip install aiohttp requests"
    return f"pip install 'daskgp[{EXTRAS[protocol]}]'" if protocol in EXTRAS else None


def options(url: str) -> dict[str, Any] | None:
    """Return options of a file system: those given, fsspec's configuration; None for most."""
    protocol = _protocol(url)
    known = {**S3_OPTIONS, **fsspec.config.conf.get(protocol, {})} if protocol in S3 else {}
    return known | dict(_special(url)) or None


def _special(url: str) -> Mapping[str, Any]:
    """Return the options that are given for the longest beginning of an address, if any."""
    for known in (_given(), _learned):
        places = [place for place in known if str(url).startswith(place)]
        if places:
            return known[max(places, key=len)]
    return {}


Places: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Options by the beginnings of addresses."""

_own: ContextVar[Places | None] = ContextVar("daskgp-options", default=None)
_blocks: dict[object, Places] = {}
"""Options of the ``with`` blocks of all threads, the latest one last."""


def _given() -> Places:
    """Return the options of the ``with`` blocks that this thread is in.

    A thread that is in none, such as those that tasks run in, takes those of all others.
    """
    own = _own.get()
    if own is not None:
        return own
    return {place: how for block in [*_blocks.values()] for place, how in block.items()}


_learned: dict[str, Mapping[str, Any]] = {}
"""Options that came with a value from another process, or of a model that was loaded with them."""


@dataclass(frozen=True)
class Carried:
    """Options of an address that travel with a value, to be used wherever it arrives."""

    address: str
    options: Mapping[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return learned, (self.address, self.options)


def learned(address: str, options: Mapping[str, Any]) -> Carried:
    """Use options for an address in this process from now on; return them to be carried on."""
    if options:
        _learned[address] = options
    return Carried(address, options)


def carried(url: str) -> Carried:
    """Return the options that are in use for an address, to travel to tasks."""
    return Carried(str(url), _special(url))


@contextmanager
def storage_options(places: Places) -> Iterator[None]:
    """Use options of remote file systems for a ``with`` block.

    Whatever is opened, fitted, saved, loaded or predicted in the block uses them, here and in the
    tasks on a cluster.  A model that was loaded in the block goes on with those of its store.
    Blocks of other threads do not change those of this one; a thread that is in none takes theirs,
    the latest first.

    Parameters
    ----------
    places : mapping of str to mapping
        Options as of fsspec by the beginnings of addresses, of which the longest counts.

    Raises
    ------
    SettingError
        If it is no such mapping, or an address is not one of a remote file system.

    Examples
    --------
    >>> inputs = {"anon": True}
    >>> models = {"endpoint_url": "https://objects.example", "profile": "models"}
    >>> with storage_options({"s3://public/": inputs, "s3://models/": models}):
    ...     pass  # model = load("s3://models/m.zarr"), and so on
    """
    if not isinstance(places, Mapping):
        raise SettingError(
            f"storage_options({shown(places)}): options by addresses are needed, such as "
            "{'s3://bucket/': {'anon': True}}"
        )
    with given(chosen(*(("storage_options", own, (place,)) for place, own in places.items()))):
        yield


Setting: TypeAlias = tuple[str, Any, Iterable[str]]
"""Name of a setting, the options that it gives, and the addresses that they are for."""


def chosen(*settings: Setting) -> dict[str, Mapping[str, Any]]:
    """Return options by the beginnings of remote addresses; of settings the last one wins.

    Raises
    ------
    SettingError
        If options are no mapping, or are for none but local addresses.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for name, options, addresses in settings:
        if options is None:
            continue
        if not isinstance(options, Mapping):
            example = "a mapping is needed, such as {'anon': True}"
            raise SettingError(f"{name}={shown(options)}: {example}")
        remote = [whole(str(one)) for one in addresses if is_remote(one)]
        places = [re.split(r"[*?\[]", one)[0] for one in remote]
        if options and not places:
            raise SettingError(f"{name} has no effect: no address is one of a remote file system")
        found |= dict.fromkeys(places, options)
    return {place: options for place, options in found.items() if options}


@contextmanager
def given(places: Places) -> Iterator[None]:
    """Use options of file systems, by the beginnings of addresses, for a ``with`` block.

    Two threads may use different ones; what travels to tasks carries them (`Carried`).
    """
    if not places:
        yield
        return
    block, whole = object(), {**_given(), **places}
    before, _blocks[block] = _own.set(whole), whole
    try:
        yield
    finally:
        del _blocks[block]
        _own.reset(before)


def _protocol(url: str) -> str:
    return str(url).partition("://")[0] if "://" in str(url) else "file"


def location(url: str) -> str:
    """Return what zarr takes: plain paths for ``file://`` URLs, which it can open, not create."""
    fs, path = filesystem(url)
    return path if isinstance(fs, LocalFileSystem) else str(url)


def is_of_process(place: str) -> bool:
    """Return whether a place is in the memory of this process, where no other process sees it."""
    return _protocol(place) == "memory"


def is_remote(url: Place) -> bool:
    """Return whether a place is elsewhere than in the local file system."""
    return isinstance(url, Inside) or _protocol(url) not in ("file", "local")


def local_folder(url: str) -> Path | None:
    """Return the nearest existing folder of this machine that a URL is in; None elsewhere."""
    fs, path = filesystem(url)
    if not isinstance(fs, LocalFileSystem):
        return None
    place = Path(path)
    return next(folder for folder in (place, *place.parents) if folder.is_dir())


def address(member: zarr.Group | zarr.Array[Any]) -> str:
    """Return the location of a group or an array, as a user writes it."""
    store = member.store
    if not isinstance(store, FsspecStore):
        return str(member.store_path)
    parts = [store.fs.unstrip_protocol(store.path), member.path]
    return "/".join(part for part in parts if part)


def is_pattern(url: str) -> bool:
    """Return whether an address looks like a pattern of several."""
    return any(sign in str(url) for sign in "*?[")


def exists(url: str) -> bool:
    """Return whether anything is at a local path or fsspec URL; of a group, its repository."""
    fs, path = filesystem(whole(url))
    with plainly(url, "the store"):
        return _answered(fs, path)


def reach(url: str, what: str) -> None:
    """Raise StoreError unless the location of a store answers; asked once per process."""
    fs, path = filesystem(url)
    bucket = path.split("/", 1)[0]
    if isinstance(fs, AsyncFileSystem) and (fs, bucket) not in _asked:
        with plainly(url, what):
            _answered(fs, f"{path.rstrip('/')}/zarr.json")
        _asked.add((fs, bucket))


_asked: set[tuple[Any, str]] = set()


def _answered(fs: Any, path: str) -> bool:
    if isinstance(fs, AsyncFileSystem):
        return bool(sync(fs.loop, fs._exists, path, timeout=ANSWER_SECONDS))
    return bool(fs.exists(path))


@contextmanager
def plainly(url: Place, what: str) -> Iterator[None]:
    """Turn what the library of an object store raises into a one-line StoreError.

    Errors for missing objects, and those of a local disk, are left to the caller.
    """
    try:
        yield
    except (DaskgpError, FileNotFoundError, KeyError):
        raise
    except Exception as error:
        if not is_remote(url):
            raise
        raise StoreError(f"cannot use {what} at {url}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return what an object store refused and the remedy, else the first line of its message."""
    return REMEDIES.get(type(error).__name__) or first_line(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, cut where it is long, or else its kind."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    line = line.removeprefix("  x ")  # with which those of Icechunk begin
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


@atexit.register
def _leave_quietly() -> None:
    """Silence aiohttp about open connections, which the system closes when the process ends."""
    logging.getLogger("asyncio").addFilter(lambda it: not it.getMessage().startswith("Unclosed"))
