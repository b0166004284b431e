"""States of a long training run, kept on disk so that a stopped run can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from daskgp.data.stores import groups, locks, objects

FORMAT, STEP = "daskgp-snapshot", "step"
SLOTS = ("slot-0", "slot-1")
"""Names of the groups: the latest stays whole while the next is written."""
MEMBERS = r"slot-[01]"


@dataclass(frozen=True)
class Snapshots:
    """Two Zarr groups of arrays that take turns, each with its step as an attribute written last.

    Parameters
    ----------
    url : str
        Location; created at the first write.
    identity : dict
        What the run depends on; snapshots of anything else are refused.
    claim : Claim, optional
        The lock without which nothing is written.
    renew : bool
        Whether snapshots of anything else are removed instead.
    """

    url: str
    identity: dict[str, Any]
    claim: locks.Claim | None = None
    renew: bool = False

    def read(self) -> dict[str, np.ndarray] | None:
        """Return the arrays of the latest whole snapshot; None where there is none."""
        latest, newest, where = -1, None, ""
        if groups.is_begun(self.url, "checkpoint", MEMBERS):
            self._refuse_other(groups.open_group(self.url, "checkpoint"), {"format": FORMAT})
        for slot in SLOTS:
            url = f"{self.url}/{slot}"
            if not groups.exists(f"{url}/zarr.json"):
                continue
            group = groups.open_group(url, "checkpoint")
            if self.renew and group.attrs.get("identity") != self.identity:
                self.remove()
                return None
            self._refuse_other(group, {"format": FORMAT, "identity": self.identity})
            step = group.attrs.get(STEP)
            if isinstance(step, int) and step > latest:
                latest, newest, where = step, group, slot
        if newest is None:
            return None
        names = groups.names_in(f"{self.url}/{where}")
        return {name: groups.values_of(groups.array_of(newest, name)) for name in sorted(names)}

    def write(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write the arrays of a step; RunError if the lock is another run's."""
        if self.claim is not None:
            self.claim.check()
        url = f"{self.url}/{self._oldest()}"
        with groups.writing(self.url, "checkpoint"):
            if not groups.exists(f"{self.url}/zarr.json"):
                groups.create_group(self.url, {"format": FORMAT})
            groups.remove(url)  # the older one: a kill in between costs nothing
            group = groups.create_group(url, {"format": FORMAT, "identity": self.identity})
            for name, values in arrays.items():
                groups.write_array(group, name, values)
            group.attrs[STEP] = step

    def remove(self) -> None:
        """Remove the snapshots, first the files that make a slot whole."""
        for slot in SLOTS:
            objects.delete(f"{self.url}/{slot}/zarr.json")
        groups.remove(self.url)

    def _refuse_other(self, group: zarr.Group, wanted: Mapping[str, Any]) -> None:
        if any(group.attrs.get(name) != value for name, value in wanted.items()):
            groups.refuse_other_run(self.url, group, self.identity)

    def _oldest(self) -> str:
        """Return the slot that is not whole, or the one with the earlier step."""
        steps: list[int] = []
        for slot in SLOTS:
            url = f"{self.url}/{slot}"
            present = groups.exists(f"{url}/zarr.json")
            step = groups.open_group(url, "checkpoint").attrs.get(STEP) if present else None
            steps.append(step if isinstance(step, int) else -1)
        return SLOTS[int(np.argmin(steps))]
