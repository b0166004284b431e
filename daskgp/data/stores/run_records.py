"""Records of runs: one JSON object for the latest run, and a history in the prediction store."""

from __future__ import annotations

import json
from typing import Any

from daskgp.data.stores import groups, objects

KEPT = 100
"""Runs in the history of a store."""
RUNS = "runs"


def record_url(store: str) -> str:
    """Where the record of the latest run on a store is, if nothing else is wanted."""
    return objects.beside(store, ".run.json")


def write(url: str, record: dict[str, Any]) -> None:
    """Write the record of a run in the place of that of an earlier one."""
    with groups.writing(url, "the record of the run"):
        objects.replace(url, json.dumps(record, allow_nan=False).encode() + b"\n")


def remember(store: str, record: dict[str, Any]) -> None:
    """Add a run to the history of a prediction store; the oldest ones go."""
    if groups.vacant(store):  # a run that failed before its first chunk left none
        return
    group = groups.open_group(store, "prediction store", mode="r+")
    with groups.writing(store, "predictions"):
        group.attrs[RUNS] = [*history(group.attrs.asdict()), record][-KEPT:]


def history(attributes: groups.Attributes) -> list[dict[str, Any]]:
    """The runs that a store remembers, the latest last."""
    found = attributes.get(RUNS)
    return [run for run in found if isinstance(run, dict)] if isinstance(found, list) else []
