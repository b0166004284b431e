"""Single small objects beside stores, by URL: created by one writer alone, or replaced whole."""

from __future__ import annotations

import errno
import os
import posixpath
import uuid
from typing import IO

from fsspec.implementations.local import LocalFileSystem

from daskgp.data.stores import groups, remote
from daskgp.errors import StoreError


def create(url: str, content: bytes) -> bool:
    """Create an object; return False if it exists already.  Of many at once, one succeeds."""
    fs, path = remote.filesystem(url)
    if isinstance(fs, LocalFileSystem):
        try:
            fs.makedirs(posixpath.dirname(path), exist_ok=True)
        except FileExistsError as error:  # the folder is a file
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
    try:
        with fs.open(path, "xb") as file:
            _fill(file, content, url)
    except FileExistsError:
        return False
    except (NotImplementedError, ValueError) as error:
        reason = groups.first_line(error)
        raise StoreError(
            f"cannot lock {url}, its file system cannot create a file for one writer only "
            f"({reason}): choose another path"
        ) from error
    return True


def _fill(file: IO[bytes], content: bytes, url: str) -> None:
    """Write a new object, or remove it again on failure, such as a full disk or an interrupt."""
    try:
        file.write(content)
        file.flush()
    except BaseException:
        delete(url)
        raise


def replace(url: str, content: bytes) -> None:
    """Create or replace an object; readers see all of the old one or all of the new one."""
    fs, path = remote.filesystem(url)
    if not isinstance(fs, LocalFileSystem):  # object stores write whole objects
        fs.pipe_file(path, content)
        return
    fs.makedirs(posixpath.dirname(path), exist_ok=True)
    part = f"{path}.{uuid.uuid4().hex}.partial"
    try:
        fs.pipe_file(part, content)
        os.replace(part, path)  # a folder in its place is an error
    finally:
        if fs.exists(part):
            fs.rm_file(part)


def read(url: str) -> bytes | None:
    """Return the content of an object, None where there is none."""
    fs, path = remote.filesystem(url)
    try:
        with remote.plainly(url, "the object"):
            return bytes(fs.cat_file(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def delete(url: str) -> None:
    """Remove an object; do nothing where there is none."""
    fs, path = remote.filesystem(url)
    try:
        fs.rm_file(path)
    except FileNotFoundError:
        return


def beside(url: str, ending: str) -> str:
    """Return the URL of an object next to a store; a local path is absolute, for workers."""
    return remote.location(str(url).rstrip("/")) + ending
