"""A fitted method, and what is known of how it came about."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from daskgp.data import Rows
from daskgp.data.rows import ARGUMENTS, COLUMNS, Beside
from daskgp.data.seen import Source
from daskgp.data.stores import models
from daskgp.errors import SettingError, StoreError
from daskgp.fit.arrange import Home
from daskgp.models import place_ranges, repeats, scaling
from daskgp.models.columns import Columns
from daskgp.posterior.posterior import Posterior
from daskgp.typing import Path

Ranges: TypeAlias = list[list[float] | None]
Known: TypeAlias = Sequence[Sequence[float] | None] | None
What: TypeAlias = Literal["fit", "update", "forget"]
NOWHERE = Home()


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted method, and what is known of how it came about.

    Attributes
    ----------
    posterior : Posterior
    n : int
        Number of usable rows.
    objective : float, optional
        Its value for all rows, if the method has one.
    history : list of dict
        Iterations of training.
    errors, likelihood_errors : ndarray (k,), optional
        Standard errors of the logarithms of the hyper-parameters, followed by those of what the
        kernel derives from them, and of the likelihood's own
        parameters.
    totals : NamedTuple, optional
        Sums over rows that the fit follows from, or a function that reads them.
    seen : list of dict
        Rows that were fitted, added and taken, in order.
    sources : tuple of Source
        Dataset stores of which the first rows were seen, with marks by which new ones are told; or
        a function that reads them.
    home : Home
        Where rows lie that updates add to.
    rows_in : str
        Name in its model store of the rows that predictions read back.
    told : bool
        Whether a warning has told that a column that the model leaves out now varies.
    left : object
        What a later call goes on from.
    each : tuple of Fit
        Those of separate targets that have rows of their own.
    """

    posterior: Posterior
    n: int
    objective: float | None
    history: list[dict[str, Any]]
    errors: np.ndarray | None = None
    totals: Any = None
    seen: list[dict[str, Any]] = field(default_factory=list)
    sources: tuple[Source, ...] | Callable[[], tuple[Source, ...]] = ()
    home: Home = NOWHERE
    rows_in: str = models.ROWS
    told: bool = False
    left: Any = None
    likelihood_errors: np.ndarray | None = None
    each: tuple[Fit, ...] = ()

    @property
    def errors_of_logs(self) -> np.ndarray | None:
        """Standard errors (k,) of the logarithms of hyper-parameters, without what is derived."""
        k = len(self.posterior.theta.kernel.parameter_names) + 1
        return None if self.errors is None else self.errors[:k]

    @property
    def values(self) -> np.ndarray:
        """Numbers of values (p,) of each target; StoreError for a store that does not tell them."""
        p = self.posterior.n_targets
        if self.each:
            return np.array([fit.n for fit in self.each])
        if not self.posterior.joint:
            return np.full(p, self.n)
        if not all("values" in note for note in self.seen):
            raise StoreError(
                "this model of joint targets was stored by an earlier version of daskgp, without "
                "how many values each has, which its evidence needs: fit it again"
            )
        signs = (-1 if note["what"] == "forget" else 1 for note in self.seen)
        each = [
            sign * np.array(note["values"]) for sign, note in zip(signs, self.seen, strict=True)
        ]
        return np.asarray(np.sum(each, axis=0))

    def of(self, posterior: Posterior) -> Self:
        """Return the same of another posterior."""
        pairs = zip(self.each, posterior.each, strict=True)
        return replace(self, posterior=posterior, each=tuple(one.of(own) for one, own in pairs))

    def lying_at(self, store: Path | None) -> Self:
        """Return the same whose targets, if each has a fit, note the store of their rows."""
        each = (replace(one, seen=[one.seen[0] | {"store": store}]) for one in self.each)
        return replace(self, each=tuple(each))

    def refuse_without_columns(self, present: Container[str], given: Beside) -> None:
        """Raise SettingError for rows that lack what a likelihood took of those of the fit.

        They have the arrays ``present``, and those ``given``; what is False, they do without.
        """
        known = {name for note in self.seen for name in note.get("given", ())}
        for name in COLUMNS:
            if name in known and name not in present and given.get(name) is None:
                raise SettingError(
                    f"the rows of the fit had {name}, and these have none: give {name}= "
                    f"(--{name} COLUMN), or {name}=False to do without"
                )

    def read(self) -> Self:
        """Return the same with what was still to be read from a store."""
        totals = self.totals() if callable(self.totals) else self.totals
        each = tuple(one.read() for one in self.each)
        return replace(self, totals=totals, sources=self.known_sources, each=each)

    @property
    def known_sources(self) -> tuple[Source, ...]:
        """Dataset stores of which rows were seen."""
        return self.sources() if callable(self.sources) else self.sources


def note(
    what: What,
    sums: scaling.Sums,
    rows: Rows,
    store: Path | None = None,
    values: Sequence[int] = (),
) -> dict[str, Any]:
    """Return a note of rows that a model has seen: how many, which, when, and where they lie.

    ``values`` are numbers of them of each of joint targets.
    """
    of_each = {"values": [*map(int, values)]} if len(values) else {}
    return of_each | {
        "what": what,
        "rows": int(sums.rows),
        "given": [ARGUMENTS[name] for name in rows.arrays if name in ARGUMENTS],
        "checksum": f"{sums.checksum:016x}",
        "repeats": repeats.of_sketch(sums.inputs)[0] > 0.0,
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
        if not isinstance(where, int) or where in columns.categories:
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
