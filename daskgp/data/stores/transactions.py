"""Groups of Icechunk repositories, which a run writes in forks of a session: one commit, or none.

A session is forked before anything is written.  Tasks in other processes write to copies of the
fork, of which each brings back what it changed; these are merged into the fork, and it into the
session that is committed.  What is not committed nobody sees.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import zarr
from fsspec.asyn import get_loop, sync

from daskgp.checks import shown
from daskgp.data.stores import groups, remote
from daskgp.errors import InputError, SettingError, StoreError

BRANCH = "main"
"""Branch of a repository at an address."""
IN_PYTHON = "open a session of it in Python and give that"


def is_session(output: Any) -> bool:
    """Return whether an object is a session of Icechunk."""
    icechunk = sys.modules.get("icechunk")
    return icechunk is not None and isinstance(output, icechunk.Session)


@dataclass(frozen=True, eq=False)
class Transaction(remote.Inside):
    """A group in a fork of a session, which `commit` merges and commits."""

    session: Any = None

    @property
    def fork(self) -> Any:
        """Fork of the session that holds what was written."""
        store: Any = self.store
        return store.session

    def merge(self, changes: Any) -> None:
        """Take what tasks in other processes wrote."""
        with remote.plainly(self, "the predictions"):
            self.fork.merge(changes)

    def commit(self, message: str, metadata: Mapping[str, Any]) -> None:
        """Commit what was written, if anything, on top of commits to other groups meanwhile.

        Raises
        ------
        StoreError
            If another commit changed the same group, or the storage refuses.
        """
        icechunk = _icechunk()
        if not self.fork.has_uncommitted_changes:
            return
        try:
            with _quietly():
                self.session.merge(self.fork)
                self.session.commit(
                    message, dict(metadata), rebase_with=icechunk.ConflictDetector()
                )
        except (icechunk.ConflictError, icechunk.RebaseFailedError) as error:
            paths = sorted({str(one.path) for one in getattr(error, "conflicts", ())})
            raise StoreError(
                f"predictions {self} were not committed: another commit to branch "
                f"{self.session.branch} changed {', '.join(paths[:2]) or 'the same group'} "
                "meanwhile: run it again, in a new session"
            ) from error
        except Exception as error:
            raise StoreError(
                f"predictions {self} cannot be committed ({remote.first_line(error)}): run it "
                "again, in a new session"
            ) from error


def changes_in(array: zarr.Array[Any]) -> Any:
    """Return what was written to the store of an array, to be merged; None for plain stores."""
    return getattr(array.store, "session", None)


def copied(values: Any) -> Any:
    """Return arrays in a copy of their fork, whose changes are of one task alone."""
    return copy.deepcopy(values)


def merged(changes: Sequence[Any]) -> Any:
    """Return the changes of several tasks as one; None without any."""
    one, *others = [own for own in changes if own is not None] or [None]
    if others:
        one = copied(one)
        one.merge(*others)
    return one


def to_read(address: remote.Address) -> Any:
    """Return the store of the last commit to the repository at an address.

    InputError if there is none that can be read, or no such group of arrays in it.
    """
    icechunk, url = _icechunk(), address.repository
    if groups.vacant(url):
        raise InputError(f"there is no Icechunk repository {url}: check the path")
    try:
        with _quietly():
            store = icechunk.Repository.open(_storage(url)).readonly_session(BRANCH).store
    except StoreError:
        raise
    except Exception as error:
        why = remote.first_line(error)
        raise InputError(
            f"cannot read {url}: it is not a whole Icechunk repository ({why}); check the path"
        ) from error
    seen, why = sees(store)
    if not seen:
        raise InputError(
            f"cannot read {url}: it is damaged ({why}); read an earlier snapshot "
            "in a session of Icechunk, or write it again"
        )
    try:
        group = zarr.open_group(store, path=address.group, mode="r", zarr_format=3)
    except FileNotFoundError as error:
        raise InputError(f"{url} has no group {address.group!r}: check the path") from error
    inner = sorted(name for name, _ in group.groups())
    if inner and not any(True for _ in group.arrays()):
        raise InputError(f"{url} holds groups, {', '.join(inner)}: give one, {url}/{inner[0]}")
    return store


def place_of(url: str) -> remote.Place:
    """Return the place in the last commit to a repository for the address of a group in one."""
    address = remote.in_repository(url)
    return url if address is None else remote.Inside(to_read(address), address.group, url)


def snapshot_of(store: Any) -> str | None:
    """Return what tells the state of a store of Icechunk from another; None for other stores."""
    session = getattr(store, "session", None)
    return None if session is None else str(session.snapshot_id)


def sees(store: Any) -> tuple[bool, str]:
    """Return whether the repository of a fork can be read in this process, and why it cannot."""
    try:
        # of what Icechunk answers without its snapshot, or takes for empty, nothing is asked
        sync(get_loop(), store.exists, "no-such-group/zarr.json")
    except Exception as error:  # noqa: BLE001 - kinds of errors differ between versions
        return False, remote.first_line(error)
    return True, ""


def in_session(session: Any, group: str | None = None) -> Transaction:
    """Return a group of a writable session, as a fork has it.

    Raises
    ------
    InputError
        If the session is read-only, has uncommitted changes, or is of a repository in
        memory.
    """
    if group is not None and not isinstance(group, str):
        raise SettingError(f"group={shown(group)}: the path of a group is needed, such as 'maps'")
    if session.read_only:
        raise InputError(
            "the Icechunk session is read-only: give repository.writable_session('main'), a "
            "new one for each run, because a commit ends it"
        )
    if session.has_uncommitted_changes:
        raise InputError(
            "the Icechunk session has uncommitted changes, so it cannot be forked: commit "
            "them, and give a new session"
        )
    path = (group or "").strip("/")
    store = session.fork().store
    seen, why = sees(store)
    if not seen:
        raise InputError(
            f"the Icechunk session cannot be forked ({why}): give a session of a repository "
            "on disk or in an object store, not in memory"
        )
    return Transaction(store, path, f"icechunk://{session.branch}/{path}", session)


@contextmanager
def at(address: remote.Address) -> Iterator[Transaction]:
    """Yield a group of the repository at an address, which is created if nothing is there.

    A new repository is removed again if the block fails.
    """
    icechunk, url = _icechunk(), address.repository
    name = f"{url}/{address.group}" if address.group else url
    there = not groups.vacant(url)
    with _quietly():
        storage = _storage(url)
        try:
            known = icechunk.Repository
            repository = known.open(storage) if there else known.create(storage)
            session = repository.writable_session(BRANCH)
        except Exception as error:
            what = "it is not an Icechunk repository" if there else "it cannot be created"
            raise StoreError(
                f"cannot use {url}: {what} ({remote.first_line(error)}): choose another path"
            ) from error
    try:
        store = session.fork().store
        seen, why = sees(store)
        if not seen:
            raise StoreError(f"{url} is damaged ({why}): choose another path")
        yield Transaction(store, address.group, name, session)
    except BaseException:
        if not there:
            groups.remove(url)
        raise


def exists(address: remote.Address) -> bool:
    """Return whether anything is at the place of a repository."""
    return not groups.vacant(address.repository)


def _icechunk() -> Any:
    try:
        import icechunk
    except ImportError as error:
        raise StoreError(
            "an Icechunk repository needs icechunk: pip install 'daskgp[icechunk]'"
        ) from error
    return icechunk


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep warnings of Icechunk off stderr: of disks, on which a lock serialises the runs."""
    icechunk = _icechunk()
    icechunk.set_logs_filter("error")
    try:
        yield
    finally:
        icechunk.set_logs_filter(None)


S3 = {
    "anon": "anonymous",
    "endpoint_url": "endpoint_url",
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
}
"""Options of s3fs, and what Icechunk calls them."""


def _storage(url: str) -> Any:
    """Return the storage of Icechunk at a local path or an address of S3."""
    icechunk = _icechunk()
    if not remote.is_remote(url):
        return icechunk.local_filesystem_storage(remote.location(url))
    protocol, _, path = url.partition("://")
    if protocol not in remote.S3:
        raise StoreError(
            f"no Icechunk repository can be at {url}: give a path or an s3:// address, or "
            f"{IN_PYTHON}"
        )
    given = remote.options(url) or {}
    own = {key: value for key, value in given.items() if key not in remote.S3_OPTIONS}
    odd = next((key for key in own if key not in S3), None)
    if odd is not None:
        raise SettingError(
            f"option {odd} of {url} is not one that Icechunk takes ({', '.join(S3)}): "
            f"leave it out, or {IN_PYTHON}"
        )
    how = {S3[key]: value for key, value in own.items()}
    endpoint = how.setdefault("endpoint_url", os.environ.get("AWS_ENDPOINT_URL"))
    if endpoint is not None:
        how |= {"allow_http": endpoint.startswith("http:"), "force_path_style": True}
    if not {"anonymous", "access_key_id"} & how.keys():
        how["from_env"] = True
    bucket, _, prefix = path.partition("/")
    return icechunk.s3_storage(bucket=bucket, prefix=prefix, **how)
