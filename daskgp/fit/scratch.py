"""URLs for rows that a fit rewrites, such as in another order."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from daskgp import data
from daskgp.data.stores import remote


@contextmanager
def kept_rows(keep: str | None, store: str | os.PathLike[str] | None) -> Iterator[str]:
    """Yield a URL for rows that predictions read back.

    It is ``keep``, or lies in ``store`` or a temporary folder; the last two are removed if the fit
    fails.  Rows beside them in another order go when the fit ends.
    """
    folder = None if keep or store else _temporary_folder()
    place = keep or f"{str(folder or store).rstrip('/')}/rows-{uuid.uuid4().hex[:12]}.zarr"
    try:
        yield place
    except BaseException:
        if keep is None:
            data.remove(folder or place)
        raise
    finally:
        data.remove(ordered(place))


@contextmanager
def scratch_rows(store: str | os.PathLike[str] | None) -> Iterator[str]:
    """Yield a URL for rows that live as long as a fit, as do rows beside them in another order."""
    if store is None:
        with tempfile.TemporaryDirectory(prefix="daskgp-") as folder:
            yield f"{folder}/rows.zarr"
        return
    url = f"{str(store).rstrip('/')}/rows-{uuid.uuid4().hex[:12]}.zarr"
    try:
        yield url
    finally:
        for rows in (url, ordered(url), residual(url)):
            data.remove(rows)


def ordered(url: str) -> str:
    """Return the URL of rows in another order beside others, for as long as a fit lasts."""
    return f"{url}-ordered"


def residual(url: str) -> str:
    """Return the URL of what a regressor leaves of targets, for as long as a fit lasts."""
    return f"{url}-residuals"


_temporary: set[str] = set()


def _temporary_folder() -> str:
    """Make a folder that lives as long as the process.

    Copies and lazy results may outlive an estimator.
    """
    folder = tempfile.mkdtemp(prefix="daskgp-")
    atexit.register(_remove_own, folder, os.getpid())
    _temporary.add(remote.location(folder))
    return folder


def _remove_own(folder: str, maker: int) -> None:
    """Remove a folder as its maker ends, not as a child forked from it does."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def is_temporary(rows: data.Rows) -> bool:
    """Return True if rows lie in a temporary folder, or in the memory, of this process."""
    if not data.is_zarr(rows.X):
        return False
    place = remote.location(data.address(rows.X))
    return remote.is_of_process(place) or any(place.startswith(f"{f}/") for f in _temporary)
