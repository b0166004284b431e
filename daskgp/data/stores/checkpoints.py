"""Evaluations of a training run, kept on disk so that a stopped run can go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import zarr

from daskgp.data.stores import groups, locks
from daskgp.errors import StoreError

FORMAT, ROWS = "daskgp-checkpoint", "evaluations"
MEMBERS = rf"{ROWS}|stage-\d+"


class Place(NamedTuple):
    """Location of the checkpoint of a run, and the lock under which it is written.

    That of another run is refused or, to ``renew``, removed.
    """

    url: str
    claim: locks.Claim
    renew: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """A Zarr group with one row per evaluation or round; one chunk per row.

    Parameters
    ----------
    url : str
        Location; created at the first evaluation.
    identity : dict
        What the run depends on; a checkpoint of anything else is refused.
    claim : Claim, optional
        The lock without which nothing is written.
    renew : bool
        Whether a checkpoint of anything else is removed instead.
    """

    url: str
    identity: dict[str, Any]
    claim: locks.Claim | None = None
    renew: bool = False

    def read(self) -> np.ndarray:
        """Return the rows kept so far (count, width)."""
        nothing = np.empty((0, 1))
        if not groups.is_begun(self.url, "checkpoint", MEMBERS):
            return nothing
        group = groups.open_group(self.url, "checkpoint")
        if group.attrs.get("format") != FORMAT or group.attrs.get("identity") != self.identity:
            if not self.renew:
                groups.refuse_other_run(self.url, group, self.identity)
            self.remove()
            return nothing
        return whole_rows(group) if ROWS in group else nothing

    def append(self, index: int, row: np.ndarray) -> None:
        """Write row number ``index``; RunError if the lock is another run's."""
        if self.claim is not None:
            self.claim.check()
        with groups.writing(self.url, "checkpoint"):
            if index == 0:
                array = self._create(len(row))
            else:
                array = groups.array_of(groups.open_group(self.url, "checkpoint", mode="r+"), ROWS)
            array.resize((index + 1, len(row)))
            array[index] = row

    def _create(self, width: int) -> zarr.Array:
        if groups.is_begun(self.url, "checkpoint", MEMBERS):  # of this run, without a whole row
            group = groups.open_group(self.url, "checkpoint", mode="r+")
        else:
            group = groups.create_group(self.url, {"format": FORMAT, "identity": self.identity})
        return group.create_array(
            ROWS,
            shape=(0, width),
            chunks=(1, width),
            dtype="f8",
            dimension_names=groups.own_dims(ROWS, 2),
            fill_value=np.nan,
            overwrite=True,
        )

    def stage(self, number: int) -> Checkpoint:
        """Return the checkpoint of a part of the run, kept inside that of the first part."""
        return self if not number else replace(self, url=f"{self.url}/stage-{number}")

    def remove(self) -> None:
        """Remove the checkpoint."""
        groups.remove(self.url)


def whole_rows(group: zarr.Group) -> np.ndarray:
    """Return the rows (count, width) that the group of a checkpoint holds."""
    rows = groups.values_of(groups.array_of(group, ROWS))
    if rows.ndim != 2:
        raise StoreError(f"checkpoint {groups.address(group)} is damaged: remove it")
    whole = np.isfinite(rows).all(axis=1)  # a row cut off by a kill reads as NaN
    return rows[: len(rows) if whole.all() else int(np.argmin(whole))]
