"""What a fitted model notes of the rows that it has seen: how many, which, when, their ranges."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from daskgp.data import Rows
from daskgp.data.rows import GIVEN
from daskgp.models import place_ranges, scaling
from daskgp.models.columns import Columns

Ranges: TypeAlias = list[list[float] | None]
Known: TypeAlias = Sequence[Sequence[float] | None] | None
What: TypeAlias = Literal["fit", "update", "forget"]


def note(what: What, sums: scaling.Sums, rows: Rows, store: str | None = None) -> dict[str, Any]:
    """Return a note of rows that a model has seen: how many, which, when, and where they lie."""
    return {
        "what": what,
        "rows": int(sums.rows),
        "given": [GIVEN[name] for name in rows.arrays if name in GIVEN],
        "checksum": f"{sums.checksum:016x}",
        "store": store,
        "span": [0, len(rows)],
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def ranges_of(sums: scaling.Sums, columns: Columns, before: Known = None) -> Ranges:
    """Return the least and the largest value of each feature, also of rows ``before``.

    Those of longitude may go across the date line or all round.  None stands for a range of earlier
    rows that is not known.
    """
    found: Ranges = []
    for j, where in enumerate(columns.where):
        if not isinstance(where, int):
            found.append(None)
            continue
        both = [float(sums.low[where]), float(sums.high[where])]
        first = before[j] if before else None
        if first is not None:
            both = [min(both[0], first[0]), max(both[1], first[1])]
        found.append(both)
    if columns.geographic is not None and sums.ends is not None:
        lon, lat = columns.geographic
        ends = sums.ends
        if before:
            west_east, south_north = before[lon], before[lat]
            if west_east is None or south_north is None:
                return found
            ends = place_ranges.combine(
                ends, place_ranges.along(list(west_east), list(south_north))
            )
        found[lon], found[lat] = place_ranges.of(ends)
    return found
