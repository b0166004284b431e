"""Model stores: Zarr groups of arrays with JSON attributes, ``complete`` written last.

A model that is fitted lies in the root of its store.  One that replaces it, such as after an
update, is written beside it in a folder of its own, and then the attributes of the root, a single
object, tell where the model lies: a reader sees the old one or the new one.  The one before stays
until the next replaces it, for readers that have opened it.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import zarr

from daskgp.data.stores import checkpoints, groups, locks, remote
from daskgp.errors import DaskgpError, FullDiskError, InputError, StoreError

FORMAT, VERSION, REPLACED, OF_PARTS = "daskgp-model", 1, 2, 3
"""Format, and its versions: of stores as they were written, of those whose model was replaced, and
of those with several models, which earlier daskgps refuse."""
ROWS = "rows"
SUMS, SEEN = "sums", "seen"
"""Groups of arrays that updates alone need: sums over rows, and marks of the rows seen."""
TRAINING = "training"
"""Group where a model store that is being made keeps training rows converted for its fit."""
WRITER = "written_by"
"""Attribute of the root: the daskgp that wrote the model, outside the checksum."""
MODELS, PLACE, ROWS_IN, BESIDE = "models", "place", "rows_in", "beside"
"""Folder of the models that replaced the first, and attributes: the latest one's place, the name of
its rows, if it is not ROWS, and the checksums of groups beside its arrays."""
CHECKPOINT = "checkpoint"
"""Group where a model store that is being made keeps the evaluations of its training."""
DIMS: dict[str, tuple[str, ...]] = {
    "scaling_x_shift": (groups.FEATURE,),
    "scaling_x_scale": (groups.FEATURE,),
    "scaling_intercept": (groups.TARGET,),
    "scaling_slope": (groups.FEATURE, groups.TARGET),
    "scaling_y_scale": (groups.TARGET,),
}
"""Dimensions that arrays of every model share."""
TRIALS = f"{CHECKPOINT}-trials"
"""Group where it keeps the trials of a search for a method."""
DEEPEST = 210
"""Most levels of lists and mappings in a description: two for each of a kernel's, and others."""
SHALLOW = 20
"""Most of them in settings of a method, which have no kernel."""
PRESENT = "save(..., overwrite=True) replaces the model there, or choose another path"
GOES_ON = "the same command with --resume continues from here"
NOTHING = "nothing was kept"


class Stored(NamedTuple):
    """Arrays and attributes of a model, as its store has them."""

    arrays: dict[str, np.ndarray]
    attributes: dict[str, Any]
    checksum: str
    notes: dict[str, Any]
    beside: Mapping[str, Mapping[str, np.ndarray]] = {}
    """Groups of arrays outside the checksum, to be written; a reader has ``read_beside``."""
    checksums: Mapping[str, str] = {}
    """Checksums of these groups."""
    place: Any = None
    """Path in its store that it was read from; None for the root."""


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
        marks = {"format": FORMAT, "version": VERSION, "complete": False}
        with groups.writing(url, "model store"):
            try:
                group = groups.create_group(url, marks)
            except Exception:
                groups.remove(url)  # nothing is left of one that cannot be written
                raise
    try:
        yield group
    except (Exception, KeyboardInterrupt) as error:
        try:
            with groups.writing(url, "model store"):
                note = _ended(url, group, None if resumed else claim, error)
        except (DaskgpError, ValueError) as second:  # the first error is the one to show
            note = f"the kept work cannot be read: {groups.first_line(second)}"
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


def kept_of(group: zarr.Group) -> tuple[str, int] | None:
    """Return what an incomplete store has for a fit to go on from, and how many of them."""
    if f"{CHECKPOINT}/{checkpoints.ROWS}" in group:
        count = len(checkpoints.whole_rows(group.require_group(CHECKPOINT)))
        if count:
            return "evaluations", count
    slots = [f"{CHECKPOINT}/{slot}" for slot in checkpoints.SLOTS]
    steps = [group[slot].attrs.get(checkpoints.STEP) for slot in slots if slot in group]
    whole = [step for step in steps if isinstance(step, int)]
    if whole:
        return "steps", max(whole)
    trials = groups.names_in(f"{remote.address(group)}/{TRIALS}") if TRIALS in group else ()
    if trials:
        return "trials", len(trials)
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
    marks = {"format": FORMAT, "version": VERSION, "complete": False}  # of one that a kill leaves
    with groups.creating(url, "model store", marks) as group:
        if write_rows is not None:
            write_rows(rows_url(url))
        fill(group, stored, notes)


def write_parts(
    url: str,
    described: Mapping[str, Any],
    parts: Mapping[str, Callable[[str], None]],
    claim: locks.Claim | None = None,
) -> None:
    """Write a store of several models; nothing is left behind on failure.

    Parameters
    ----------
    url : str
    described : mapping
        What they make together, with its name as ``kind``.
    parts : mapping
        Writes the model of a name to a URL.
    claim : Claim, optional
        Lock of the store, where those that are there may be replaced: whenever this is stopped,
        the store has the old ones or the new ones.
    """
    if claim is not None and not groups.vacant(url):
        _replace_parts(url, described, parts, claim)
        return
    groups.refuse_existing(url, "model store", PRESENT)
    marks = {"format": FORMAT, "version": OF_PARTS, "complete": False}
    with groups.creating(url, "model store", marks) as group:
        for name, save in parts.items():
            save(f"{url}/{name}")
        group.update_attributes(_of_parts(described, parts))
        group.attrs["complete"] = True


def _replace_parts(
    url: str,
    described: Mapping[str, Any],
    parts: Mapping[str, Callable[[str], None]],
    claim: locks.Claim,
) -> None:
    """Replace the models in a complete store of several, see `write_parts`."""
    groups.refuse_other(url, "model")
    if read_parts(url) is None:
        raise StoreError(
            f"model store {url} has one model, which several do not replace: remove it, or choose "
            "another path"
        )
    group = groups.open_group(url, "model store", mode="r+")
    before, place = group.attrs.get(PLACE), next_place(group)
    with groups.writing(url, "model store"):
        groups.remove(f"{url}/{place}")  # of a replacement that was stopped
        for folder in (url, f"{url}/{MODELS}"):
            groups.sweep(folder)
        group.create_group(place)
        for name, save in parts.items():
            save(f"{url}/{place}/{name}")
        claim.check()
        group.update_attributes({**_of_parts(described, parts), PLACE: place})
        _sweep(group, url, {place, before}, set())


def _of_parts(described: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the root that describe several models."""
    own = json.loads(json.dumps({**described, "parts": list(parts)}))
    return {"checksum": groups.checksum({}, own), "model": own, WRITER: _this()}


def read_parts(url: str) -> dict[str, Any] | None:
    """Return the description of a store of several models, with ``parts``, their URLs by name.

    None of a store of one model.

    Raises
    ------
    StoreError
        If it is incomplete or damaged.
    """
    attributes = dict(groups.open_group(url, "model store").attrs)
    if attributes.get("format") != FORMAT or attributes.get("version") != OF_PARTS:
        return None
    if attributes.get("complete") is not True:
        raise StoreError(f"model store {url} is incomplete: remove it and save the model again")
    described = attributes.get("model")
    if (
        not isinstance(described, dict)
        or not isinstance(described.get("parts"), list)
        or groups.checksum({}, described) != attributes.get("checksum")
    ):
        raise StoreError(f"model store {url} is damaged: its description does not match, fit again")
    place, home = attributes.get(PLACE), str(url).rstrip("/")
    if place is not None and not re.fullmatch(rf"{MODELS}/\d+", str(place)):
        raise StoreError(f"model store {url} is damaged: it has no models at {place!r}, fit again")
    home = home if place is None else f"{home}/{place}"
    return {**described, "parts": {name: f"{home}/{name}" for name in described["parts"]}}


def rows_url(url: str, name: str = ROWS) -> str:
    """Return the URL where a model store keeps training rows that prediction reads back."""
    return f"{str(url).rstrip('/')}/{name}"


def next_rows(url: str) -> str:
    """Return the name of the rows of the model that will replace the one in a store."""
    place = next_place(groups.open_group(url, "model store"))
    return f"{ROWS}-{place.rpartition('/')[2]}"


def fill(group: zarr.Group, stored: Stored, notes: Mapping[str, Any]) -> None:
    """Write a model into an open group; ``notes`` are attributes outside the checksum."""
    url = remote.address(group)
    with groups.writing(url, "model store"):
        for name in groups.names_in(url):  # those that are no arrays yet too
            if name not in (ROWS, CHECKPOINT, TRIALS):  # of a run that was stopped here
                del group[name]
        _write_arrays(group, stored)
        group.update_attributes(
            {
                "format": FORMAT,
                "version": VERSION,
                **_described(stored, notes),
            }
        )
        group.attrs["complete"] = True
        forget(url)  # useful until now


def _described(stored: Stored, notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the root that describe a model."""
    return {
        "checksum": stored.checksum,
        "model": stored.attributes,
        "notes": dict(notes),
        BESIDE: dict(stored.checksums),
        WRITER: _this(),
    }


def _this() -> str:
    return f"daskgp {importlib.metadata.version('daskgp')}"


def written_by(group: zarr.Group) -> str | None:
    """Return the daskgp that wrote a model store, such as "daskgp 0.3.0"; None where none is named.

    Those before 0.3 did not name themselves.
    """
    writer = group.attrs.get(WRITER)
    return writer if isinstance(writer, str) else None


def _write_arrays(group: zarr.Group, stored: Stored) -> None:
    for name, values in stored.arrays.items():
        groups.write_array(group, name, values, DIMS.get(name))
    for part, arrays in stored.beside.items():
        inner = group.require_group(part)
        for name, values in arrays.items():
            groups.write_array(inner, name, values)


def replace(
    url: str, stored: Stored, notes: Mapping[str, Any], claim: locks.Claim | None = None
) -> None:
    """Replace the model in a complete store, whose lock is held.

    Whenever it is stopped, the store has the old model or the new one.
    """
    group = groups.open_group(url, "model store", mode="r+")
    before, old, place = group.attrs.get(PLACE), group.attrs.get("model"), next_place(group)
    with groups.writing(url, "model store"):
        groups.remove(f"{url}/{place}")  # of an update that was stopped
        for folder in (url, f"{url}/{MODELS}"):
            groups.sweep(folder)
        _write_arrays(group.create_group(place), stored)
        if claim is not None:
            claim.check()
        group.update_attributes(
            {
                "version": REPLACED,
                **_described(stored, notes),
                PLACE: place,
            }
        )
        rows = {one.get(ROWS_IN, ROWS) for one in (old, stored.attributes) if isinstance(one, dict)}
        _sweep(group, url, {place, before}, rows)
        forget(url)


def next_place(group: zarr.Group) -> str:
    """Return the place in a store of the model that will replace the present one."""
    before = group.attrs.get(PLACE)
    number = 1 if before is None else int(str(before).rpartition("/")[2])
    return f"{MODELS}/{number + 1}"


def _sweep(group: zarr.Group, url: str, places: set[Any], rows: set[str]) -> None:
    """Remove the models of a store but those at some places, None for the root, and other rows."""
    if MODELS in group:
        for name in groups.names_in(f"{url}/{MODELS}"):
            if f"{MODELS}/{name}" not in places:
                groups.remove(f"{url}/{MODELS}/{name}")
    for name in groups.names_in(url) - {CHECKPOINT, TRIALS, MODELS}:
        if (name not in rows) if _is_rows(name) else (None not in places):
            groups.remove(f"{url}/{name}")


def _is_rows(name: str) -> bool:
    return name == ROWS or name.startswith(f"{ROWS}-")


def forget(url: str) -> None:
    """Remove what a complete model store still has of its training."""
    for name in (CHECKPOINT, TRIALS):
        groups.remove(f"{url}/{name}")


def stored(
    arrays: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
    beside: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> Stored:
    """Return arrays and attributes with their checksum, and groups beside them with theirs."""
    parts = {name: part for name, part in (beside or {}).items() if part}
    checksums = {name: groups.checksum(part, {}) for name, part in parts.items()}
    checksum = groups.checksum(arrays, attributes)
    return Stored(dict(arrays), dict(attributes), checksum, {}, parts, checksums)


def read(url: str) -> Stored:
    """Read and check a model store.

    Raises
    ------
    StoreError
        If there is none, or it is incomplete, of another format version, or damaged.
    """
    while True:
        before = checksum_at(url)
        try:
            return _read(url)
        except StoreError:
            if before is None or checksum_at(url) == before:
                raise  # else it was replaced meanwhile


def read_beside(url: str, stored: Stored, name: str) -> dict[str, np.ndarray]:
    """Read a group beside a model that was read from a store; none where it has none.

    Raises
    ------
    StoreError
        If they are damaged, or gone since other models have replaced theirs.
    """
    if name not in stored.checksums:
        return {}
    group = groups.open_group(url, "model store")
    try:
        home, place = _home(group, url, stored.place)
        found = _arrays(_inner(home, name), f"{place}/{name}", rows=True)
    except StoreError as error:
        if group.attrs.get("checksum") == stored.checksum:
            raise StoreError(f"model store {url} is damaged: {error}: fit again") from error
        raise StoreError(
            f"model store {url} has changed since it was loaded: load it again"
        ) from error
    if groups.checksum(found, {}) != stored.checksums[name]:
        raise StoreError(
            f"model store {url} is damaged: the checksum of its {name} does not match, fit again"
        )
    return found


def _read(url: str) -> Stored:
    group = groups.open_group(url, "model store")
    attributes = dict(group.attrs)
    if attributes.get("format") != FORMAT:
        raise StoreError(
            f"{url} is not a daskgp model store but {groups.kind_of(url)}: {groups.MODEL}"
        )
    if attributes.get("version") == OF_PARTS:
        described = read_parts(url) or {}
        part = next(iter(described.get("parts", {}).values()), f"{url}/MODEL")
        raise StoreError(
            f"model store {url} has several models, of a {described.get('kind')}: take it in "
            f"Python, daskgp.load({str(url)!r}), or one of its models, such as {part}"
        )
    if attributes.get("version") not in (VERSION, REPLACED):
        raise StoreError(
            f"model store {url} has format version {attributes.get('version')}, this daskgp reads "
            f"versions {VERSION} and {REPLACED}: fit again or use the version that wrote it, "
            f"{written_by(group) or 'which it does not name'}"
        )
    if attributes.get("complete") is not True:
        raise StoreError(
            f"model store {url} is incomplete: run the same fit with --resume, or remove it"
        )
    model = attributes.get("model")
    if not isinstance(model, dict):
        raise StoreError(f"model store {url} is damaged: its description is missing, fit again")
    try:
        home, place = _home(group, url, attributes.get(PLACE))
        arrays = _arrays(home, place, but={SUMS, SEEN, CHECKPOINT, MODELS})
    except StoreError as error:
        raise StoreError(f"model store {url} is damaged: {error}: fit again") from error
    if _nested(model) > DEEPEST or _nested([model.get("model_settings")]) > SHALLOW:
        raise StoreError(f"model store {url} is damaged: its description is garbled, fit again")
    digest = groups.checksum(arrays, model)
    if digest != attributes.get("checksum"):
        raise StoreError(f"model store {url} is damaged: its checksum does not match, fit again")
    notes = attributes.get("notes")
    notes = notes if isinstance(notes, dict) else {}
    beside = attributes.get(BESIDE)
    beside = beside if isinstance(beside, dict) else {}
    return Stored(arrays, model, digest, notes, {}, beside, attributes.get(PLACE))


def _nested(description: Any) -> int:
    """Return how deep lists and mappings lie in each other, at most one more than is allowed."""
    level, depth = [description], 0
    while level and depth <= DEEPEST:
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [x for own in inner for x in own if isinstance(x, dict | list)]
        depth += 1
    return depth


def checksum_at(url: str) -> str | None:
    """Return the checksum that a complete model store states; None where there is none."""
    try:
        attributes = groups.open_group(url, "model store").attrs.asdict()
    except StoreError:
        return None
    whole = attributes.get("format") == FORMAT and attributes.get("complete") is True
    return str(attributes.get("checksum")) if whole else None


def _home(group: zarr.Group, url: str, place: Any) -> tuple[zarr.Group, str]:
    """Return the group at a place of a model in a store, None for the root, and its URL."""
    if place is None:
        return group, url
    return _inner(group, str(place)), f"{str(url).rstrip('/')}/{place}"


def _inner(group: zarr.Group, name: str) -> zarr.Group:
    try:
        found = group.get(name)
    except Exception as error:  # each kind of damage has its own type
        raise StoreError(f"group {name!r}: {groups.first_line(error)}") from error
    if not isinstance(found, zarr.Group):
        raise StoreError(f"it has no group {name!r}")
    return found


def _arrays(
    group: zarr.Group, url: str, but: Set[str] = frozenset(), rows: bool = False
) -> dict[str, np.ndarray]:
    """Read the arrays of a group but some, and training rows, each described and read once."""
    names = sorted(n for n in groups.names_in(url) - but if rows or not _is_rows(n))
    arrays = {name: groups.member_of(group, name) for name in names}
    size = sum(array.nbytes for array in arrays.values())
    groups.refuse_larger(size, "all arrays")
    return {name: groups.values_of(a, f"array {name!r}") for name, a in arrays.items()}
