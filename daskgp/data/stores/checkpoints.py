"""Checkpoints: what a long run keeps on disk, so that one that was stopped can go on.

A Zarr group holds evaluations, the latest states of a training or the trials of a search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import zarr

from daskgp.data.stores import groups, locks, objects
from daskgp.errors import StoreError

ROWS, STEP = "evaluations", "step"
SLOTS = ("slot-0", "slot-1")
"""Names of the groups of a state: the latest stays whole while the next is written."""


PARTS = 10**9
"""First of the numbers of runs that follow one another, beyond those of blocks."""


class Place(NamedTuple):
    """Location of the checkpoint of a run, and the lock under which it is written.

    That of another run is refused or, to ``renew``, removed.
    """

    url: str
    claim: locks.Claim
    renew: bool = False

    def part(self, number: int) -> Place:
        """Return the location of one of several runs that follow one another."""
        return self._replace(url=f"{self.url}/stage-{PARTS + number}") if number else self


@dataclass(frozen=True)
class Kept:
    """A Zarr group that a run writes to and that it finds again.

    Parameters
    ----------
    url : str
        Location; created when the first thing is kept.
    identity : dict
        What the run depends on; what is kept of any other is refused.
    claim : Claim, optional
        The lock without which nothing is written.
    renew : bool
        Whether what is kept of any other run is removed instead.
    """

    url: str
    identity: dict[str, Any]
    claim: locks.Claim | None = None
    renew: bool = False
    format: ClassVar[str]
    members: ClassVar[str]
    """Pattern of the names in the group, of which some remain if its removal is killed."""

    @property
    def marks(self) -> dict[str, Any]:
        """Attributes of the group from its first moment."""
        return {"format": self.format, "identity": self.identity}

    def remove(self) -> None:
        """Remove all that is kept."""
        groups.remove(self.url)

    def _begun(self) -> zarr.Group | None:
        """Return the group; None where there is none, StoreError for another thing."""
        begun = groups.is_begun(self.url, "checkpoint", self.members)
        return groups.open_group(self.url, "checkpoint") if begun else None

    def _is_own(self, group: zarr.Group, marks: Mapping[str, Any], renew: bool = False) -> bool:
        """Return whether a group has some marks; StoreError unless others are removed instead."""
        own = all(group.attrs.get(name) == value for name, value in marks.items())
        if not own and not renew:
            groups.refuse_other_run(self.url, group, self.identity)
        if not own:
            self.remove()
        return own

    @contextmanager
    def _writing(self) -> Iterator[zarr.Group]:
        """Yield the group to write to; RunError if the lock is another run's."""
        if self.claim is not None:
            self.claim.check()
        with groups.writing(self.url, "checkpoint"):
            if groups.is_group(self.url):
                yield groups.open_group(self.url, "checkpoint", mode="r+")
            else:
                yield groups.create_group(self.url, self.marks)


@dataclass(frozen=True)
class Checkpoint(Kept):
    """One row per evaluation or round, in a chunk of its own."""

    format: ClassVar[str] = "daskgp-checkpoint"
    members: ClassVar[str] = rf"{ROWS}|stage-\d+"

    def read(self) -> np.ndarray:
        """Return the rows kept so far (count, width)."""
        group = self._begun()
        if group is None or not self._is_own(group, self.marks, self.renew) or ROWS not in group:
            return np.empty((0, 1))
        return whole_rows(group)

    def append(self, index: int, row: np.ndarray) -> None:
        """Write row number ``index``; RunError if the lock is another run's."""
        with self._writing() as group:
            if index == 0:
                array = group.create_array(
                    ROWS,
                    shape=(0, len(row)),
                    chunks=(1, len(row)),
                    dtype="f8",
                    dimension_names=groups.own_dims(ROWS, 2),
                    fill_value=np.nan,
                    overwrite=True,
                )
            else:
                array = groups.array_of(group, ROWS)
            array.resize((index + 1, len(row)))
            array[index] = row

    def stage(self, number: int) -> Checkpoint:
        """Return the checkpoint of a part of the run, kept inside that of the first part."""
        return self if not number else replace(self, url=f"{self.url}/stage-{number}")


def whole_rows(group: zarr.Group) -> np.ndarray:
    """Return the rows (count, width) that the group of a checkpoint holds."""
    rows = groups.values_of(groups.array_of(group, ROWS))
    if rows.ndim != 2:
        raise StoreError(f"checkpoint {groups.address(group)} is damaged: remove it")
    whole = np.isfinite(rows).all(axis=1)  # a row cut off by a kill reads as NaN
    return rows[: len(rows) if whole.all() else int(np.argmin(whole))]


@dataclass(frozen=True)
class Snapshots(Kept):
    """Two groups of arrays that take turns, each with its step as an attribute written last."""

    format: ClassVar[str] = "daskgp-snapshot"
    members: ClassVar[str] = r"slot-[01]"

    @property
    def marks(self) -> dict[str, Any]:
        """Attributes of the group, whose slots say the rest."""
        return {"format": self.format}

    def read(self) -> dict[str, np.ndarray] | None:
        """Return the arrays of the latest whole snapshot; None where there is none."""
        group = self._begun()
        if group is not None:
            self._is_own(group, self.marks)
        slots = self._slots()
        for slot in slots.values():
            if not self._is_own(slot, super().marks, self.renew):
                return None
        latest = max(slots, key=lambda name: _step(slots[name]), default=None)
        if latest is None or _step(slots[latest]) < 0:
            return None
        return _arrays(f"{self.url}/{latest}", slots[latest])

    def write(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the arrays of a step; RunError if the lock is another run's."""
        with self._writing():
            steps = dict.fromkeys(SLOTS, -1) | {k: _step(slot) for k, slot in self._slots().items()}
            url = f"{self.url}/{min(SLOTS, key=lambda name: steps[name])}"
            groups.remove(url)  # the older one: a kill in between costs nothing
            group = groups.create_group(url, super().marks)
            _write(group, arrays)
            group.attrs[STEP] = step

    def remove(self) -> None:
        """Remove the snapshots, first the files that make a slot whole."""
        for slot in SLOTS:
            objects.delete(f"{self.url}/{slot}/zarr.json")
        super().remove()

    def _slots(self) -> dict[str, zarr.Group]:
        """Return the slots that there are, whole or not."""
        urls = {slot: f"{self.url}/{slot}" for slot in SLOTS}
        there = {slot: url for slot, url in urls.items() if groups.is_group(url)}
        return {slot: groups.open_group(url, "checkpoint") for slot, url in there.items()}


def _step(slot: zarr.Group) -> int:
    """Return the step of a slot, -1 for one that is not whole."""
    step = slot.attrs.get(STEP)
    return step if isinstance(step, int) else -1


@dataclass(frozen=True)
class KeptTrials(Kept):
    """A group of arrays per trial of a search, whose description is written last."""

    format: ClassVar[str] = "daskgp-trials"
    members: ClassVar[str] = r"trial-\d+"

    def read(self) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
        """Return the descriptions and arrays of the trials kept so far, in their order."""
        group, found = self._begun(), list[tuple[dict[str, Any], dict[str, np.ndarray]]]()
        if group is None:
            return found
        self._is_own(group, self.marks)
        while groups.is_group(url := f"{self.url}/trial-{len(found)}"):
            trial = groups.open_group(url, "checkpoint")
            said: Any = trial.attrs.get("trial")
            if not isinstance(said, dict):  # a kill while it was written
                break
            found.append((said, _arrays(url, trial)))
        return found

    def decision(self) -> dict[str, Any] | None:
        """Return what was decided of the last fit; None before that."""
        group = self._begun()
        said: Any = None if group is None else group.attrs.get("last")
        return said if isinstance(said, dict) else None

    def decide(self, said: Mapping[str, Any]) -> None:
        """Write what is decided of the last fit, which a run that goes on is to fit as well."""
        with self._writing() as group:
            group.attrs["last"] = dict(said)

    def paces(self) -> list[dict[str, Any]]:
        """Return the expected and real times of trials that were kept."""
        group = self._begun()
        said: Any = None if group is None else group.attrs.get("paces")
        return list(said) if isinstance(said, list) else []

    def learn(self, paces: Sequence[Mapping[str, Any]]) -> None:
        """Write expected and real times of trials."""
        with self._writing() as group:
            group.attrs["paces"] = [dict(pace) for pace in paces]

    def append(
        self, number: int, said: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Write the trial of a number; RunError if the lock is another run's."""
        with self._writing():
            url = f"{self.url}/trial-{number}"
            groups.remove(url)
            group = groups.create_group(url)
            _write(group, arrays)
            group.attrs["trial"] = dict(said)


def _write(group: zarr.Group, arrays: Mapping[str, np.ndarray]) -> None:
    for name, values in arrays.items():
        groups.write_array(group, name, values)


def _arrays(url: str, group: zarr.Group) -> dict[str, np.ndarray]:
    """Return all arrays of the group at a URL."""
    names = sorted(groups.names_in(url))
    return {name: groups.values_of(groups.array_of(group, name)) for name in names}
