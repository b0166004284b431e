"""Checks that the workers of a cluster see the stores that their tasks will read and write.

A missing chunk reads as the fill value of its array, so a worker without the client's disk would
compute from fill values and raise no error.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from daskgp import data
from daskgp.data import reading
from daskgp.data.stores import models, remote
from daskgp.errors import InputError, RunError
from daskgp.runtime.executor import Executor

HERE = "a folder or URL that the client and all workers share"


def check(executor: Executor, array: Any, what: str, remedy: str) -> None:
    """Raise InputError unless every worker sees a Zarr array as this process does.

    Without a client, or for anything but a Zarr array, nothing is checked.

    Parameters
    ----------
    executor : Executor
        All workers of its client are asked at once.
    array : object
        An array of the store.
    what : str
        The store, for the message.
    remedy : str
        What to do about it.
    """
    if executor.client is None or not data.is_zarr(array):
        return
    mine = look(array)
    for worker, (seen, reason) in executor.everywhere(_try_to_look, array).items():
        if seen != mine:
            raise InputError(
                f"worker {worker} does not see {what} {data.address(array)} ({reason}): {remedy}"
            )


def check_model(executor: Executor, url: str, checksum: str, remedy: str) -> None:
    """Raise InputError unless every worker sees this model store, with its checksum, at a URL."""
    own = remote.carried(url)
    for worker, (seen, reason) in executor.everywhere(_try_to_find, url, own).items():
        if seen != checksum:
            raise InputError(f"worker {worker} does not see the model {url} ({reason}): {remedy}")


def _try_to_find(url: str, own: remote.Carried) -> tuple[str | None, str]:
    """Return the checksum of a model store, if any, and the reason if it is not the client's.

    The options of its file system are its ``own``.
    """
    checksum = models.checksum_at(url)
    return checksum, "no complete model store is there" if checksum is None else "another model"


def _try_to_look(array: Any) -> tuple[str, str]:
    """Return what ``look`` sees of an array, and the reason if it is not what the client sees."""
    try:
        return look(array), "other contents"
    except (OSError, KeyError, ValueError, ImportError, RunError) as error:
        return "", data.first_line(error)


def look(array: Any) -> str:
    """Return a description of a Zarr array and of its last row, as this process sees them on disk.

    The last row is that of the array as it was opened: its owner may be adding rows.
    """
    current, rows = data.reopened(array), int(array.shape[0])
    last = np.ascontiguousarray(reading.read(current, slice(max(rows - 1, 0), rows)))
    described = current.metadata.to_dict() | {"shape": current.shape[1:]}
    return f"{described} {int(current.shape[0]) >= rows} {zlib.crc32(last.tobytes())}"
