"""Rows in parts, one for each expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np

from daskgp.data import Rows, partition, visibility
from daskgp.data.blocks import neighbours, ordering, sampling
from daskgp.data.blocks.layout import read_layout
from daskgp.data.partition import Span, Unit
from daskgp.errors import InputError
from daskgp.fit.arrange import rewriting
from daskgp.fit.arrange.arrangement import Arrangement, Changed, Home, SoFar
from daskgp.fit.plan import Planned, sorted_bytes
from daskgp.fit.rounds import EXPERT_TASKS, Rounds
from daskgp.fit.scratch import ordered
from daskgp.models import scaling
from daskgp.models.experts.ensemble import Ensemble
from daskgp.models.scaling import Sums
from daskgp.models.values import Theta
from daskgp.posterior.expert_rows import ExpertRows
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.executor import Executor

EXACT_ROWS, SPARSE_EXPERTS, SPARSE_ROWS = 1_000, 16, 64
"""By default: rows of an exact expert, most sparse experts, and least rows of a sparse expert."""


@dataclass(frozen=True)
class Parts(Arrangement):
    """Parts of the rows, one for each expert: random, of nearby rows, or as they are stored.

    Parameters
    ----------
    number : int, optional
        Number of parts; default one that suits the number of rows.
    partition : {"random", "block", "chunks"}
    order : str or sequence of str
        Order of the rows before they are cut into parts of nearby ones.
    whole : bool
        Whether a task has all rows of a part at once, which predictions read back.
    inputs : int
        Number of inducing inputs of an expert.
    block_rows : int, optional
        Most rows that a task holds at a time, of parts that are not whole.
    random_state : int, optional
    """

    number: int | None = None
    partition: Literal["random", "block", "chunks"] = "random"
    order: str | Sequence[str] = "auto"
    whole: bool = False
    inputs: int = 0
    block_rows: int | None = None
    random_state: int | None = 0

    @property
    def keeps_rows(self) -> bool:
        """True if predictions can read rows back."""
        return self.whole

    def number_of(self, n: int) -> int:
        """Return the number of parts of n rows."""
        if self.number is not None:
            return self.number
        if self.whole:
            return max(1, -(-n // EXACT_ROWS))
        return min(SPARSE_EXPERTS, max(1, n // max(SPARSE_ROWS, self.inputs)))

    def part_rows(self, n: int, count: int) -> int:
        """Return how many rows of a part a task holds at a time."""
        most = max(-(-n // count), 1)
        if self.whole:
            return most
        return min(self.block_rows or partition.default_block_rows(n), most)

    def check(self, rows: Rows, name: str) -> None:
        """Raise SettingError for an order that the rows cannot be put in."""
        layout = read_layout(rows.X)
        if self.partition == "block" and (layout is None or layout.order.kind == ordering.RANDOM):
            rewriting.check_order(rows, self.order, nearby=True)

    def check_number(self, n: int) -> None:
        """Raise InputError for more parts than rows."""
        count = self.number_of(n)
        if count > n:
            raise InputError(f"n_experts={count} for {n} usable rows: choose at most {n}")

    def planned(self, rows: Rows, value: int | None = None) -> Planned:
        """Return the parts, or ``value`` ones."""
        n = len(rows)
        count = self.number_of(n) if value is None else value
        per_task = partition.per_task(count, -(-n // count), EXPERT_TASKS)
        units = [Span(0, min(self.part_rows(n, count), n))] * count
        return Planned(rows, units, sorted_bytes(rows) * self._reorders(rows), per_task)

    def arrange(self, stage: Rounds, theta: Theta, sums: Sums, keep: str) -> Rounds:
        """Return the rounds over rows in the order of their parts, which are the units."""
        rows = self._placed(stage, theta, sums, keep)
        count = self.number_of(int(sums.rows))
        return self._split(stage, rows, partition.alone(partition.even(0, len(rows), count)))

    def kept(self, stage: Rounds, theta: Theta) -> ExpertRows | None:
        """Return the rows of whole parts, which predictions read back."""
        if not self.whole:
            return None
        starts = np.array([*(span.start for span in stage.spans), len(stage.rows)], np.int64)
        return ExpertRows(stage.rows, starts)

    def so_far(self, posterior: Posterior, n: int, home: Home, executor: Executor) -> SoFar:
        """Return what a fitted model of n rows knows of them, and how many experts have them."""
        experts = cast(Ensemble, posterior.method).n_experts
        return super().so_far(posterior, n, home, executor)._replace(units=experts)

    def why_no_change(self, forget: bool) -> str | None:
        """Return why rows cannot be added or taken, with a remedy; None if they can."""
        if self.partition == "random":
            return None
        return (
            f"with partition={self.partition!r} other rows have other experts: fit all rows again, "
            "fit(..., start=model) or daskgp update --retrain, or fit with partition='random'"
        )

    def append(self, stage: Rounds, sums: Sums, so_far: SoFar, spill: str) -> Changed:
        """Return more rows, a random share of them for each expert, by turns one more."""
        rows, count = self._placed(stage, so_far.theta, sums, ordered(spill)), so_far.units
        first = so_far.rows % count
        parts = partition.even(0, len(rows), count)
        units = partition.alone([*parts[count - first :], *parts[: count - first]])
        return Changed(self._split(stage, rows, units))

    def _split(self, stage: Rounds, rows: Rows, units: tuple[Unit, ...]) -> Rounds:
        return replace(
            stage,
            rows=rows,
            units=units,
            read_rows=None if self.whole else self.part_rows(len(rows), len(units)),
            least_tasks=EXPERT_TASKS,
            seed=rewriting.seed_of(self.random_state),
        )

    def _reorders(self, rows: Rows) -> bool:
        """Return True if a fit writes the rows in the order of the parts."""
        if self.partition == "chunks" or read_layout(rows.X) is not None:
            return False
        return self.partition != "random" or not isinstance(rows.X, np.ndarray)

    def _placed(self, stage: Rounds, theta: Theta, sums: Sums, keep: str) -> Rows:
        """Return the rows in the order in which parts take them."""
        rows, layout = stage.rows, read_layout(stage.rows.X)
        shuffled = layout is not None and layout.order.kind == ordering.RANDOM
        as_it_lies = self.partition == "chunks" or (
            layout is not None and shuffled == (self.partition == "random")
        )
        here = isinstance(rows.X, np.ndarray)
        if as_it_lies:
            if here:  # the caller may change them after the fit
                copies = {name: a.copy() for name, a in rows.arrays.items()}
                return rows.with_arrays(copies) if self.whole else rows
            return self._kept_as_they_lie(stage, keep)
        if here and self.partition == "random":
            X, y = rows.raw(0, len(rows))
            keys = sampling.Keys.of_order(rewriting.seed_of(self.random_state), rows, sums)
            line = np.argsort(keys.of(0, X, y[:, : rows.n_targets]), kind="stable")
            line = line[scaling.complete_rows(X, y)[line]]
            chosen = {name: a[line] for name, a in rows.arrays.items()}
            return rows.with_arrays(chosen, chunks=None)
        order = ordering.RANDOM if self.partition == "random" else self.order
        ties = theta.kernel.tied_columns(rows.n_features)
        units = scaling.scales(sums, rows.n_features, ties)
        return rewriting.rewritten(stage, sums, keep, order, units, self.random_state)[0]

    def _kept_as_they_lie(self, stage: Rounds, keep: str) -> Rows:
        """Return rows of a store; those that predictions read back outlive the fit unchanged."""
        rows = neighbours.held(stage.rows)
        if not self.whole or not (rows.passing or rows.identity is None):
            return rows
        rows = neighbours.copied(stage.rows, keep)
        visibility.check(stage.executor, rows.X, "the experts' rows", rewriting.REMEDY)
        return rows
