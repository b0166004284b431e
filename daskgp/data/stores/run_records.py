"""Records of runs: one JSON object for the latest run, and a history in the prediction store."""

from __future__ import annotations

import json
from typing import Any

from daskgp.data.stores import groups, objects, remote

KEPT = 100
"""Runs in the history of a store."""
RUNS = "runs"


def record_url(store: str) -> str:
    """Return the default URL of the record of the latest run on a store."""
    return objects.beside(remote.whole(store), ".run.json")


def write(url: str, record: dict[str, Any]) -> None:
    """Write the record of a run in place of that of an earlier one."""
    with groups.writing(url, "the record of the run"):
        objects.replace(url, json.dumps(record, allow_nan=False).encode() + b"\n")


def remember(store: str, record: dict[str, Any]) -> None:
    """Add a run to the history of a prediction store and drop the oldest beyond KEPT.

    That of a repository is in its commits.
    """
    if remote.in_repository(store) is not None:
        return
    if groups.vacant(store):  # a run that failed before its first chunk left none
        return
    group = groups.open_group(store, "prediction store", mode="r+")
    with groups.writing(store, "predictions"):
        group.attrs[RUNS] = [*history(group.attrs.asdict()), record][-KEPT:]


def history(attributes: groups.Attributes) -> list[dict[str, Any]]:
    """Return the runs that a store remembers, the latest last."""
    runs = attributes.get(RUNS)
    return [run for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
