"""Checks that the workers of a cluster see the stores that their tasks will read and write.

A chunk that is not there reads as the fill value of its array, so a worker without the client's
disk would compute from nothing and say nothing.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from daskgp import data
from daskgp.data import reading
from daskgp.data.stores import models
from daskgp.errors import InputError, RunError
from daskgp.runtime.executor import Executor

HERE = "a folder or URL that the client and all workers share"


def check(executor: Executor, array: Any, what: str, remedy: str) -> None:
    """Raise InputError unless every worker sees a Zarr array as this process does.

    Nothing is looked at without a client, or for what is no Zarr array.

    Parameters
    ----------
    executor : Executor
        Its client's workers are asked, all at once.
    array : object
        A member of the store.
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
    """Raise InputError unless every worker sees the model store at a URL, as it is here."""
    for worker, (seen, reason) in executor.everywhere(_try_to_find, url).items():
        if seen != checksum:
            raise InputError(f"worker {worker} does not see the model {url} ({reason}): {remedy}")


def _try_to_find(url: str) -> tuple[str | None, str]:
    """What is seen of a model store, and why it is not what the client sees where it is not."""
    found = models.checksum_at(url)
    return found, "no complete model store is there" if found is None else "another model"


def _try_to_look(array: Any) -> tuple[str, str]:
    """What is seen, and why it is not what the client sees where it is not."""
    try:
        return look(array), "other contents"
    except (OSError, KeyError, ValueError, ImportError, RunError) as error:
        return "", data.first_line(error)


def look(array: Any) -> str:
    """Description of a Zarr array and its last row as they are on disk, seen from here.

    The last row is that of the array as it was opened: its owner may add rows meanwhile.
    """
    found, rows = data.reopened(array), int(array.shape[0])
    last = np.ascontiguousarray(reading.read(found, slice(max(rows - 1, 0), rows)))
    described = found.metadata.to_dict() | {"shape": found.shape[1:]}
    return f"{described} {int(found.shape[0]) >= rows} {zlib.crc32(last.tobytes())}"
