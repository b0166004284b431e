"""Comparison of versions with a cluster: other versions fail late and with odd errors."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from distributed import Client

from daskgp.errors import InputError
from daskgp.runtime import recovery

PARTS = {"daskgp": 3, "dask": 3, "distributed": 3, "python": 2, "zarr": 2, "numpy": 1}
"""Leading parts of a version that must be equal, for objects that pass between processes."""

_checked: weakref.WeakSet[Client] = weakref.WeakSet()


def check(client: Client) -> None:
    """Raise InputError unless scheduler and workers have this process's versions.

    Checked once per client, as soon as it has a worker.
    """
    if client in _checked:
        return

    def ask() -> dict[str, Any]:
        versions: Any = client.get_versions(packages=list(PARTS))
        return dict(versions)

    versions = recovery.until_done(client, ask, (OSError, *recovery.LOST))
    mine = versions["client"]["packages"]
    others = {"the scheduler": versions["scheduler"]}
    others |= {f"worker {address}": said for address, said in versions["workers"].items()}
    for who, said in others.items():
        refuse_other(who, (said or {}).get("packages", {}), mine)
    if versions["workers"]:
        _checked.add(client)


def check_modules(client: Client, names: Sequence[str]) -> None:
    """Raise InputError unless scheduler and workers have modules that tasks refer to."""

    def ask() -> dict[str, list[str]]:
        by_worker: dict[str, list[str]] = client.run(_missing, names)
        found = {"the scheduler": client.run_on_scheduler(_missing, names)}
        return found | {f"worker {address}": lacks for address, lacks in by_worker.items()}

    for who, lacks in recovery.until_done(client, ask, (OSError, *recovery.LOST)).items():
        if lacks:
            raise InputError(
                f"{who} cannot import {lacks[0]!r}, whose code runs there too: install it on the "
                "machines of the cluster, or add its folder to their PYTHONPATH"
            )


def _missing(names: Sequence[str]) -> list[str]:
    """Return the modules that this process does not find."""
    return [name for name in names if find_spec(name.partition(".")[0]) is None]


def refuse_other(who: str, theirs: dict[str, str | None], mine: dict[str, str | None]) -> None:
    """Raise InputError for a process with other versions of what matters."""
    for name, parts in PARTS.items():
        other, own = theirs.get(name), mine.get(name)
        if _leading(other, parts) != _leading(own, parts):
            seen = f"has no {name}" if other is None else f"has {name} {other}"
            raise InputError(
                f"{who} {seen}, this process {own}: install {name}=={own} there, or run with the "
                "versions of the cluster"
            )


def _leading(version: str | None, parts: int) -> tuple[str, ...]:
    return tuple((version or "").split(".")[:parts])
