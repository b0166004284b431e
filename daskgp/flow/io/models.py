"""Model stores: a Zarr group of arrays with JSON attributes, the completeness mark last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import zarr

from daskgp.errors import DaskgpError, FullDiskError, InputError, StoreError
from daskgp.flow.io import checkpoints, groups, locks, remote, snapshots

FORMAT, VERSION = "daskgp-model", 1
ROWS = "rows"
CHECKPOINT = "checkpoint"
"""Where a model store that is being made keeps the evaluations of its training."""
GOES_ON = "the same command with --resume goes on from here"
NOTHING = "nothing was kept"


class Stored(NamedTuple):
    """Arrays and attributes of a model, as they lie in its store."""

    arrays: dict[str, np.ndarray]
    attributes: dict[str, Any]
    checksum: str
    notes: dict[str, Any]


@contextmanager
def reserve(url: str, claim: locks.Claim, resume: bool = False) -> Iterator[zarr.Group]:
    """An empty model store, whose lock is held, to be filled at the end of a long fit.

    A path that cannot be written is found out before the work, not after it.  A store made here
    is removed again if the block fails for its input, or ends before anything was kept, unless
    another run has taken the lock; it stays, incomplete, after any other failure, an interrupt or
    a kill, so that ``resume`` can go on with what is inside it.  A note on the error says so.
    """
    resumed = resume and not groups.vacant(url)
    if resumed:
        group = _incomplete(url)
    else:
        groups.refuse_existing(url, "model store", "remove it, choose another path or --resume")
        with groups.writing(url, "model store"):
            marks = {"format": FORMAT, "version": VERSION, "complete": False}
            group = _created(url, marks)
    try:
        yield group
    except (Exception, KeyboardInterrupt) as error:
        lasting = isinstance(error, InputError) and not isinstance(error, FullDiskError)
        kept = not lasting and _keeps(group)
        if not kept and not resumed and claim.held():  # what another run made is not lost
            groups.remove(url)
        if kept:
            error.add_note(GOES_ON)
        elif isinstance(error, KeyboardInterrupt):
            error.add_note(NOTHING)
        raise


def _created(url: str, marks: groups.Attributes) -> zarr.Group:
    """A new group, of which nothing is left where it cannot be written."""
    try:
        return groups.create_group(url, marks)
    except Exception:
        groups.remove(url)
        raise


def _keeps(group: zarr.Group) -> bool:
    """Whether a fit can go on; what a failing disk or server hides counts as kept."""
    try:
        return kept_of(group) is not None
    except (OSError, DaskgpError):  # the first error is the one to show
        return True


def kept_of(group: zarr.Group) -> tuple[str, int] | None:
    """What an incomplete store has that a fit goes on from, and how many of them."""
    if f"{CHECKPOINT}/{checkpoints.ROWS}" in group:
        count = len(checkpoints.whole_rows(group.require_group(CHECKPOINT)))
        if count:
            return "evaluations", count
    there = [f"{CHECKPOINT}/{slot}" for slot in snapshots.SLOTS]
    steps = [group[slot].attrs.get(snapshots.STEP) for slot in there if slot in group]
    whole = [step for step in steps if isinstance(step, int)]
    if whole:
        return "steps", max(whole)
    if ROWS in group and group[ROWS].attrs.get("complete") is True:  # put in order for the method
        return "rows", int(groups.array_of(group, f"{ROWS}/X").shape[0])
    return None


def is_complete(url: str) -> bool:
    """Whether a model store that needs no more work is there."""
    if groups.vacant(url):
        return False
    groups.refuse_other(url, "model")
    return groups.open_group(url, "model store").attrs.get("complete") is True


def _incomplete(url: str) -> zarr.Group:
    """The unfinished store of an earlier run; anything else is refused and left as it is."""
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

    ``write_rows`` puts training rows at the URL it is given.
    """
    with groups.creating(url, "model store") as group:
        if write_rows is not None:
            write_rows(rows_url(url))
        fill(group, stored, notes)


def rows_url(url: str) -> str:
    """Where a model store keeps training rows that prediction reads back."""
    return f"{str(url).rstrip('/')}/{ROWS}"


def fill(group: zarr.Group, stored: Stored, notes: Mapping[str, Any]) -> None:
    """Write a model into an open group; ``notes`` are attributes outside the checksum."""
    with groups.writing(remote.address(group), "model store"):
        for name, values in stored.arrays.items():
            groups.write_array(group, name, values)
        for name in list(group.keys()):
            if name not in (*stored.arrays, ROWS):  # a checkpoint, useful until all else is written
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


def stored(arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any]) -> Stored:
    """Arrays and attributes with their checksum."""
    return Stored(dict(arrays), dict(attributes), groups.checksum(arrays, attributes), {})


def read(url: str) -> Stored:
    """Read and check a model store.

    Raises
    ------
    StoreError
        If there is none, it is incomplete, of another format version, or damaged.
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
        raise StoreError(f"model store {url} is incomplete: fit again, or go on with --resume")
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


def _arrays(group: zarr.Group, url: str) -> dict[str, np.ndarray]:
    """All arrays of a model store but its rows, each described and read once."""
    names = sorted(groups.names_in(url) - {ROWS})
    arrays = {name: groups.array_of(group, name) for name in names}
    size = sum(array.nbytes for array in arrays.values())
    groups.refuse_larger(size, "all arrays")
    return {name: groups.values_of(array) for name, array in arrays.items()}
