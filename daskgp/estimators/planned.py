"""Plans of a fit, and the refusal of one that there is no room for."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from functools import partial

import numpy as np

from daskgp import data
from daskgp.data import partition
from daskgp.errors import InputError
from daskgp.estimators.method import Method
from daskgp.fit import hyperparameters, refusal
from daskgp.fit import plan as planning
from daskgp.runtime.executor import Executor

ALIKE = 128
"""Blocks beyond which more of them change nothing of what a worker needs."""


SMALL_CHUNKS = " (and rewrite a store with larger chunks)"


class Planned(Method):
    """An estimator that knows the sizes of its work before any of it."""

    def _plan(self, rows: data.Rows) -> planning.Plan:
        return self._plan_blocks(rows, self._work(rows))

    def _plan_blocks(self, rows: data.Rows, spans: Sequence[partition.Span]) -> planning.Plan:
        largest = max((span.rows for span in spans), default=0)
        found = planning.make_plan(
            self._model(),
            self._kernel(),
            rows,
            spans,
            self._planned_inputs(rows),
            np.dtype(self.dtype).itemsize,
            *self._held_rows(largest, len(rows)),
            bytes_written=self._written_bytes(rows),
        )
        return dataclasses.replace(
            found,
            operations=found.operations * self._trained_share(len(spans)),
        )

    def _planned_wide(self, rows: data.Rows, wide: int) -> planning.Plan:
        """The plan for blocks of so many rows."""
        cut = rows
        if rows.chunks and not data.is_zarr(rows.X):  # chunks that a fit will write
            most = max(wide, partition.default_block_rows(len(rows)))
            cut = dataclasses.replace(rows, chunks=(min(most, max(rows.chunks)),))
        count = min(-(-len(rows) // wide), ALIKE)
        return self._plan_blocks(cut, [partition.Span(0, wide)] * count)

    def _trained_share(self, blocks: int) -> float:
        """Share of the blocks that hyper-parameters are trained on."""
        if self.train_blocks is None:
            return 1.0
        number = hyperparameters.SECOND if self.train_blocks == "auto" else self.train_blocks
        return min(1.0, number / max(blocks, 1))

    def _held_bytes(self, rows: data.Rows, executor: Executor) -> tuple[int, int]:
        """Bytes that a worker holds where there is room for them, in the fit and predicting."""
        return 0, 0

    def _written_bytes(self, rows: data.Rows) -> int:
        """Bytes of rows that a fit writes: those that tasks could not read otherwise."""
        spilled = rows.chunks is not None and not data.is_zarr(rows.X)
        return planning.rows_bytes(rows) if spilled else 0

    def _refuse(self, rows: data.Rows, executor: Executor) -> None:
        """Raise InputError or PlanError for what cannot be fitted, from its sizes alone."""
        self._refuse_few_rows(len(rows))
        refusal.refuse(self._plan(rows), executor.memory_per_task(), self._knob(rows))

    def _knob(self, rows: data.Rows) -> refusal.Knob:
        """Return the setting that the memory of a task follows."""
        largest = self._plan(rows).block_rows
        planned = partial(self._planned_wide, rows)
        return refusal.Knob(
            "block_rows", largest, f"blocks of {largest} rows", planned, note=SMALL_CHUNKS
        )

    def _refuse_few_rows(self, n: int) -> None:
        if n == 0:
            raise InputError("no rows: the training data has length 0")
        count = self._n_inputs_of(n)
        if n < count:
            raise InputError(f"{count} {self.inputs_label} for {n} usable rows: choose at most {n}")

    def _refuse_full_disk(self, rows: data.Rows, keep: str | None) -> None:
        """Raise PlanError where rows, or the model store that they are kept in, find no room."""
        found = self._plan(rows)
        refusal.refuse_full_disk(found.bytes_written, str(self.store or tempfile.gettempdir()))
        if keep is not None:
            refusal.refuse_full_disk(found.bytes_on_disk, keep)
