"""Model stores: Zarr groups of arrays with JSON attributes, ``complete`` written last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import zarr

from daskgp.data.stores import checkpoints, groups, locks, remote, snapshots
from daskgp.errors import DaskgpError, FullDiskError, InputError, StoreError

FORMAT, VERSION = "daskgp-model", 1
ROWS = "rows"
TRAINING = "training"
"""Group where a model store that is being made keeps training rows converted for its fit."""
CHECKPOINT = "checkpoint"
"""Group where a model store that is being made keeps the evaluations of its training."""
DIMS = {
    "scaling_x_shift": (groups.FEATURE,),
    "scaling_x_scale": (groups.FEATURE,),
    "scaling_intercept": (groups.TARGET,),
    "scaling_slope": (groups.FEATURE, groups.TARGET),
    "scaling_y_scale": (groups.TARGET,),
}
"""Dimensions that arrays of every model share."""
GOES_ON = "the same command with --resume goes on from here"
NOTHING = "nothing was kept"


class Stored(NamedTuple):
    """Arrays and attributes of a model, as its store has them."""

    arrays: dict[str, np.ndarray]
    attributes: dict[str, Any]
    checksum: str
    notes: dict[str, Any]


@contextmanager
def reserve(url: str, claim: locks.Claim, resume: bool = False) -> Iterator[zarr.Group]:
    """Yield an empty model store, whose lock is held, to be filled at the end of a long fit.

    A path that cannot be written is refused before the work, not after it.  A store made here
    is removed again if the block fails for its input, or ends before anything was kept, unless
    another run has taken the lock; it stays, incomplete, after any other failure, an interrupt or
    a kill, so that ``resume`` can go on with its contents.  A note on the error says so.
    """
    resumed = resume and not groups.vacant(url)
    if resumed:
        group = _incomplete(url)
    else:
        refuse_existing(url)
        with groups.writing(url, "model store"):
            marks = {"format": FORMAT, "version": VERSION, "complete": False}
            group = _created(url, marks)
    try:
        yield group
    except (Exception, KeyboardInterrupt) as error:
        try:
            with groups.writing(url, "model store"):
                note = _ended(url, group, None if resumed else claim, error)
        except (DaskgpError, ValueError) as second:  # the first error is the one to show
            note = f"what was kept cannot be looked at: {groups.first_line(second)}"
        if note:
            error.add_note(note)
        raise


def refuse_existing(url: str) -> None:
    """Raise StoreError if something exists where a store is to be made."""
    groups.refuse_existing(url, "model store", "remove it, choose another path or --resume")


def _ended(
    url: str, group: zarr.Group, claim: locks.Claim | None, error: BaseException
) -> str | None:
    """Remove a store made here in which nothing was kept; return a note for the user.

    ``claim`` is None where an earlier run made the store.
    """
    if group.attrs.get("complete") is True:
        return None
    unusable = isinstance(error, InputError) and not isinstance(error, FullDiskError)
    if not unusable and kept_of(group) is not None:
        return GOES_ON
    if claim is not None and claim.held():  # what another run made must not be lost
        groups.remove(url)
    return NOTHING if isinstance(error, KeyboardInterrupt) else None


def _created(url: str, marks: groups.Attributes) -> zarr.Group:
    """Create a group, of which nothing is left if it cannot be written."""
    try:
        return groups.create_group(url, marks)
    except Exception:
        groups.remove(url)
        raise


def kept_of(group: zarr.Group) -> tuple[str, int] | None:
    """Return what an incomplete store has for a fit to go on from, and how many of them."""
    if f"{CHECKPOINT}/{checkpoints.ROWS}" in group:
        count = len(checkpoints.whole_rows(group.require_group(CHECKPOINT)))
        if count:
            return "evaluations", count
    slots = [f"{CHECKPOINT}/{slot}" for slot in snapshots.SLOTS]
    steps = [group[slot].attrs.get(snapshots.STEP) for slot in slots if slot in group]
    whole = [step for step in steps if isinstance(step, int)]
    if whole:
        return "steps", max(whole)
    if ROWS in group and group[ROWS].attrs.get("complete") is True:  # in the method's order
        return "rows", int(groups.array_of(group, f"{ROWS}/X").shape[0])
    return None


def is_complete(url: str) -> bool:
    """Return whether a model store that needs no more work is at a URL."""
    if groups.vacant(url):
        return False
    groups.refuse_other(url, "model")
    return groups.open_group(url, "model store").attrs.get("complete") is True


def _incomplete(url: str) -> zarr.Group:
    """Open the unfinished store of an earlier run; refuse anything else and leave it alone."""
    groups.refuse_other(url, "model")
    group = groups.open_group(url, "model store", mode="r+")
    if group.attrs.get("complete") is not False:
        raise StoreError(f"model store {url} is complete: there is nothing to resume")
    groups.sweep(url)
    return group


def write(
    url: str,
    stored: Stored,
    notes: Mapping[str, Any],
    write_rows: Callable[[str], None] | None = None,
) -> None:
    """Write a new model store; nothing is left behind on failure.

    ``write_rows`` writes training rows to the URL that it is called with.
    """
    with groups.creating(url, "model store") as group:
        if write_rows is not None:
            write_rows(rows_url(url))
        fill(group, stored, notes)


def rows_url(url: str) -> str:
    """Return the URL where a model store keeps training rows that prediction reads back."""
    return f"{str(url).rstrip('/')}/{ROWS}"


def training_url(url: str) -> str:
    """Return the URL where an unfinished model store keeps training rows converted for its fit."""
    return f"{str(url).rstrip('/')}/{TRAINING}"


def fill(group: zarr.Group, stored: Stored, notes: Mapping[str, Any]) -> None:
    """Write a model into an open group; ``notes`` are attributes outside the checksum."""
    url = remote.address(group)
    with groups.writing(url, "model store"):
        for name, values in stored.arrays.items():
            groups.write_array(group, name, values, DIMS.get(name))
        for name in list(group.keys()):
            if name not in (*stored.arrays, ROWS, CHECKPOINT):
                del group[name]
        group.attrs.update(
            {
                "format": FORMAT,
                "version": VERSION,
                "checksum": stored.checksum,
                "model": stored.attributes,
                "notes": dict(notes),
            }
        )
        group.attrs["complete"] = True
        forget(url)  # useful until now


def forget(url: str) -> None:
    """Remove what a complete model store still has of its training."""
    groups.remove(f"{url}/{CHECKPOINT}")


def stored(arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any]) -> Stored:
    """Return arrays and attributes with their checksum."""
    return Stored(dict(arrays), dict(attributes), groups.checksum(arrays, attributes), {})


def read(url: str) -> Stored:
    """Read and check a model store.

    Raises
    ------
    StoreError
        If there is none, or it is incomplete, of another format version, or damaged.
    """
    group = groups.open_group(url, "model store")
    attributes = dict(group.attrs)
    if attributes.get("format") != FORMAT:
        raise StoreError(f"{url} is not a daskgp model store")
    if attributes.get("version") != VERSION:
        raise StoreError(
            f"model store {url} has format version {attributes.get('version')}, this daskgp reads "
            f"version {VERSION}: fit again or use the daskgp that wrote it"
        )
    if attributes.get("complete") is not True:
        raise StoreError(
            f"model store {url} is incomplete: run the same fit with --resume, or remove it"
        )
    model = attributes.get("model")
    if not isinstance(model, dict):
        raise StoreError(f"model store {url} is damaged: its description is missing")
    try:
        arrays = _arrays(group, url)
    except StoreError as error:
        raise StoreError(f"model store {url} is damaged: {error}") from error
    try:
        digest = groups.checksum(arrays, model)
    except (TypeError, RecursionError) as error:
        raise StoreError(f"model store {url} is damaged: its description is garbled") from error
    if digest != attributes.get("checksum"):
        raise StoreError(f"model store {url} is damaged: its checksum does not match, fit again")
    notes = attributes.get("notes")
    return Stored(arrays, model, digest, notes if isinstance(notes, dict) else {})


def checksum_at(url: str) -> str | None:
    """Return the checksum that a complete model store states; None where there is none."""
    try:
        attributes = groups.open_group(url, "model store").attrs.asdict()
    except StoreError:
        return None
    whole = attributes.get("format") == FORMAT and attributes.get("complete") is True
    return str(attributes.get("checksum")) if whole else None


def _arrays(group: zarr.Group, url: str) -> dict[str, np.ndarray]:
    """Read all arrays of a model store except its rows, each described and read once."""
    names = sorted(groups.names_in(url) - {ROWS, CHECKPOINT})
    arrays = {name: groups.array_of(group, name) for name in names}
    size = sum(array.nbytes for array in arrays.values())
    groups.refuse_larger(size, "all arrays")
    return {name: groups.values_of(array) for name, array in arrays.items()}
