"""Trials of a search, kept on disk so that a stopped search can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskgp.data.stores import groups, locks

FORMAT = "daskgp-trials"
MEMBERS = r"trial-\d+"


@dataclass(frozen=True)
class KeptTrials:
    """A Zarr group with a group of arrays per trial, whose description is written last.

    Parameters
    ----------
    url : str
        Location; created at the first trial.
    identity : dict
        What the search depends on; trials of anything else are refused.
    claim : Claim, optional
        The lock without which nothing is written.
    """

    url: str
    identity: dict[str, Any]
    claim: locks.Claim | None = None

    def read(self) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
        """Return the descriptions and arrays of the trials kept so far, in their order."""
        if not groups.is_begun(self.url, "checkpoint", MEMBERS):
            return []
        group = groups.open_group(self.url, "checkpoint")
        if group.attrs.get("format") != FORMAT or group.attrs.get("identity") != self.identity:
            groups.refuse_other_run(self.url, group, self.identity)
        found: list[tuple[dict[str, Any], dict[str, np.ndarray]]] = []
        while groups.is_group(f"{self.url}/trial-{len(found)}"):
            trial = groups.open_group(f"{self.url}/trial-{len(found)}", "checkpoint")
            said: Any = trial.attrs.get("trial")
            if not isinstance(said, dict):  # a kill while it was written
                break
            names = sorted(groups.names_in(f"{self.url}/trial-{len(found)}"))
            arrays = {name: groups.values_of(groups.array_of(trial, name)) for name in names}
            found.append((said, arrays))
        return found

    def decision(self) -> dict[str, Any] | None:
        """Return what was decided of the last fit; None before that."""
        if not groups.is_begun(self.url, "checkpoint", MEMBERS):
            return None
        said: Any = groups.open_group(self.url, "checkpoint").attrs.get("last")
        return said if isinstance(said, dict) else None

    def decide(self, said: Mapping[str, Any]) -> None:
        """Write what is decided of the last fit, which a run that goes on is to fit as well."""
        if self.claim is not None:
            self.claim.check()
        with groups.writing(self.url, "checkpoint"):
            group = groups.open_group(self.url, "checkpoint", mode="r+")
            group.attrs["last"] = dict(said)

    def append(
        self, number: int, said: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Write the trial of a number; RunError if the lock is another run's."""
        if self.claim is not None:
            self.claim.check()
        url = f"{self.url}/trial-{number}"
        with groups.writing(self.url, "checkpoint"):
            if not groups.is_group(self.url):
                groups.create_group(self.url, {"format": FORMAT, "identity": self.identity})
            groups.remove(url)
            group = groups.create_group(url)
            for name, values in arrays.items():
                groups.write_array(group, name, values)
            group.attrs["trial"] = dict(said)
