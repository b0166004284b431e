"""Blocks of nearby rows, each with those that it is conditioned on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import numpy as np

from daskgp import data
from daskgp.data import partition
from daskgp.data.blocks import neighbours, ordering, prepared
from daskgp.data.blocks.around import Around, Band, NearestBlocks, NearestRows
from daskgp.data.blocks.layout import DEFAULT_BLOCK_ROWS, Layout, balanced, read_layout
from daskgp.data.partition import Span, Unit
from daskgp.errors import InputError, SettingError
from daskgp.fit.arrange import blocks_changed, rewriting
from daskgp.fit.arrange.arrangement import Arrangement, Changed, Home, SoFar
from daskgp.fit.plan import Planned, in_blocks, sorted_bytes
from daskgp.fit.rounds import WINDOW_TASKS, Rounds
from daskgp.fit.scratch import ordered
from daskgp.kernels.lengthscales import distance_units, in_units, of_scaled
from daskgp.models.scaling import Sums
from daskgp.models.values import Theta
from daskgp.posterior.neighbour_rows import Nearby
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.executor import Executor

APART = 8
"""Rows per block from which distances between blocks are measured."""
NEAR_BLOCKS, NEAR_ROWS = 8, 8_192
"""Least blocks and rows near a row's own block in which its neighbours are looked for."""
DEFAULT_ROWS = 512
"""Default number of nearest rows that a prediction is conditioned on."""


@dataclass(frozen=True)
class Blocks(Arrangement):
    """Blocks of nearby rows, each with those that it is conditioned on.

    Parameters
    ----------
    order : str or sequence of str
        Order of the rows before they are cut into blocks; that of a prepared store is kept.
    block_rows, usual_rows : int or None, int
        Rows of a block, and those where none are asked for.
    random_state : int, optional
    near : {"nearest", "order", "both"}
        Blocks that a block is conditioned on: the nearest before it, those after it in the order,
        or the nearest of all others, in which its rows find their neighbours.
    reach : int
        Number of those blocks.
    strict : bool
        Whether there must be more blocks than ``reach``.
    predict_rows, predict_order : int, optional
        Rows, or blocks beside its own, that a prediction is conditioned on.
    """

    order: str | Sequence[str] = "auto"
    block_rows: int | None = None
    usual_rows: int = DEFAULT_BLOCK_ROWS
    random_state: int | None = 0
    near: Literal["nearest", "order", "both"] = "nearest"
    reach: int = 0
    strict: bool = False
    predict_rows: int | None = None
    predict_order: int | None = None

    nearby: ClassVar[bool] = True

    def __post_init__(self) -> None:
        ordering.refuse_number(self.order)

    def check(self, rows: data.Rows, name: str) -> None:
        """Raise InputError for rows in random order, or an order that they cannot be put in."""
        layout = read_layout(rows.X)
        if layout is None:
            rewriting.check_order(rows, self.order, nearby=True)
        elif layout.order.kind == ordering.RANDOM:
            raise InputError(
                f"the dataset was prepared in random order but {name} needs nearby rows in "
                "blocks: run daskgp.prepare again with another order, such as 'auto'"
            )

    def planned(self, rows: data.Rows, value: int | None = None) -> Planned:
        """Return the blocks, or ones of ``value`` rows."""
        layout, n = read_layout(rows.X), len(rows)
        written = 0 if layout else sorted_bytes(rows)
        if value is None:
            block_rows = self._block_rows(n, layout)
            spans = [Span(0, min(block_rows, n))] * -(-n // block_rows)
            self._refuse_few(len(spans), block_rows)
            blocks = Planned(rows, spans, written)
        else:
            blocks = Planned(*in_blocks(rows, value), written)
        largest = blocks.largest
        count, beside = -(-n // max(largest, 1)), self.blocks_beside
        near = self.rows_around(n, count) if beside is None else min(n, largest * (1 + beside))
        return replace(
            blocks,
            per_task=partition.per_task(count, largest, WINDOW_TASKS),
            window_rows=min(n, largest * (1 + self.reach)),
            near_rows=near,
            searched=0 if self.near == "order" else count,
        )

    def arrange(self, stage: Rounds, theta: Theta, sums: Sums, keep: str) -> Rounds:
        """Return the rounds over windows of rows in blocks, in units of the kernel's lengths."""
        rows, layout = stage.rows, read_layout(stage.rows.X)
        if layout is None:
            rows, layout = self._rewritten(stage, theta, sums, keep)
        elif rows.passing:  # y is what a regressor leaves, which predictions read back
            data.remove(keep)
            prepared.copy(keep, rows, len(rows), layout.write)
            trend = rows.trend
            rows, layout = neighbours.open_blocks(keep)
            rows = replace(rows, trend=trend)
        else:
            rows = neighbours.held(rows)
        self._refuse_few(layout.n_blocks, layout.block_rows)
        stage = replace(stage, rows=rows, layout=layout, least_tasks=WINDOW_TASKS)
        return self.settle(stage, theta)

    def in_order(self, stage: Rounds, theta: Theta, sums: Sums, url: str) -> data.Rows:
        """Return the rows in the order of blocks, at a URL unless they are in one."""
        if read_layout(stage.rows.X) is not None:
            return stage.rows
        return self._rewritten(stage, theta, sums, url, stored=True)[0]

    def _rewritten(
        self, stage: Rounds, theta: Theta, sums: Sums, url: str, stored: bool = False
    ) -> tuple[data.Rows, Layout]:
        units, size = rewriting.lengths(stage, theta, sums), self.block_rows or self.usual_rows
        made = self.order, units, self.random_state, size
        return rewriting.rewritten(stage, sums, url, *made, stored=stored)

    def settle(self, stage: Rounds, theta: Theta) -> Rounds:
        """Return windows for the hyper-parameters: distances are in units of the lengthscales."""
        layout = _layout(stage)
        if self.near == "order":
            return replace(stage, units=partition.following(layout.spans, self.reach))
        if self.near == "both":
            return self.with_beside(stage, theta)
        stage = blocks_changed.with_landmarks(stage)
        if layout.near is not None:
            return replace(stage, units=neighbours.conditioned(layout))
        units = neighbours.earlier(layout, _places(stage, theta), self.reach)
        return replace(stage, units=units)

    def with_beside(self, stage: Rounds, theta: Theta) -> Rounds:
        """Return blocks with those in which their rows find their earlier neighbours."""
        layout, stage = _layout(stage), blocks_changed.with_landmarks(stage)
        sizes = np.sort([span.rows for span in layout.spans])  # updates may have left small ones
        around = 1 + int(np.searchsorted(np.cumsum(sizes), NEAR_ROWS))
        count = min(max(NEAR_BLOCKS, around), layout.n_blocks - 1)
        units = neighbours.earlier(layout, _places(stage, theta), count, later=True)
        return replace(stage, units=units)

    def kept(self, stage: Rounds, theta: Theta) -> Nearby:
        """Return all rows, and the rule for those that predictions are conditioned on."""
        return Nearby(stage.rows, _layout(stage), self.around(stage, theta))

    def so_far(self, posterior: Posterior, n: int, home: Home, executor: Executor) -> SoFar:
        """Return what a fitted model of n rows knows of them, and the rounds over them."""
        rows = cast(Nearby, posterior.rows)
        stage = Rounds(
            rows.rows,
            (),
            posterior.scaling,
            executor,
            posterior.dtype,
            posterior.device,
            rows.layout,
            getattr(rows.around, "landmarks", None),
            least_tasks=WINDOW_TASKS,
            barriers=getattr(posterior.state, "barriers", None),
        )
        return super().so_far(posterior, n, home, executor)._replace(stage=stage)

    def around(self, stage: Rounds, theta: Theta) -> Around:
        """Return the rule for the rows that predictions are conditioned on."""
        layout, beside = _layout(stage), self.blocks_beside
        number = self.rows_around(layout.rows, layout.n_blocks)
        lengths = of_scaled(_lengths(stage, theta), stage.scaling.x_scale)
        if self.near == "order" or beside == 0:
            return Band((beside or 0) // 2)
        if not np.isfinite(lengths).any():  # only the order tells which rows are near
            blocks = -(-number // layout.block_rows)
            if self.near == "both":
                return Band(blocks)
            return Band(-(-(blocks - 1 if beside is None else beside) // 2))
        assert stage.landmarks is not None
        if beside is None:
            return NearestRows(number, layout.rows, lengths, stage.landmarks)
        return NearestBlocks(1 + beside, lengths, stage.landmarks)

    @property
    def blocks_beside(self) -> int | None:
        """Number of blocks beside its own that a prediction uses; None for the nearest rows."""
        if self.near == "order":
            return 2 * self.reach
        if self.predict_order is not None:
            return self.predict_order
        return 0 if self.predict_rows is None and self.reach == 0 else None

    def rows_around(self, n: int, blocks: int) -> int:
        """Return how many nearest rows a prediction is conditioned on: all for the exact GP."""
        if self.predict_rows is not None:
            return min(self.predict_rows, n)
        return n if self.reach + 1 >= blocks else min(DEFAULT_ROWS, n)

    # -- updates ---------------------------------------------------------------------------------

    def why_no_change(self, forget: bool) -> str | None:
        """Return why rows cannot be added or taken, with a remedy; None if they can."""
        if not forget or self.near != "nearest" or not self.reach:
            return None
        return (
            "later blocks are conditioned on earlier ones that are near (neighbours='nearest'): "
            "fit the rows that stay, or fit with neighbours='order'"
        )

    def append(self, stage: Rounds, sums: Sums, so_far: SoFar, spill: str) -> Changed:
        """Return the windows of more rows, which are put into blocks after the others.

        Windows of the other blocks stay as they are, so that sums over windows add up.
        """
        known, d = _in_blocks(so_far), stage.rows.n_features
        before = _layout(known)
        count, layout = (
            before.n_blocks,
            before.along(before.order.widened(sums.low[:d], sums.high[:d])),
        )
        seed = rewriting.seed_of(self.random_state)
        more, own_blocks = blocks_changed.sorted_along(layout, stage, sums, seed, ordered(spill))
        at = int(layout.limits()[:, 1].max())
        first, last = (_key(layout, rows, i) for rows, i in ((more, 0), (known.rows, at - 1)))
        if self.near == "order" and first < last:
            raise InputError(
                "neighbours='order' takes new rows that follow all others in the order "
                f"({layout.order.kind}: {', '.join(layout.order.leading)}), and some of these do "
                "not: fit with neighbours='nearest'"
            )
        rows, own = blocks_changed.together(known, more, at, so_far.home)
        layout = layout.followed(own_blocks, first)
        stage = replace(stage, rows=rows, layout=layout, least_tasks=WINDOW_TASKS)
        if self.near == "order" or (not self.reach and self.blocks_beside == 0):
            units = blocks_changed.preceded(layout, count, layout.n_blocks, self.reach)
            return self._changed(stage, units, so_far.home, own)
        stage = blocks_changed.with_landmarks(stage, known.landmarks)
        units = self.settle(stage, so_far.theta).units[count:]
        if self.near == "nearest" and self.reach:
            near = before.near
            if near is None:
                known_units = self.settle(known, so_far.theta).units
                near = neighbours.before(before.spans, known_units, self.reach)
            near = np.concatenate([near, neighbours.before(layout.spans, units, self.reach)])
            stage = replace(stage, layout=replace(layout, near=near))
        return self._changed(stage, units, so_far.home, own)

    def take(self, stage: Rounds, so_far: SoFar) -> Changed:
        """Return the windows of whole blocks that are taken out at either end of the order.

        Where rows of any other block may be conditioned on theirs, they are those of all blocks
        that stay.

        Raises
        ------
        InputError
            If the rows are not those of whole blocks there.
        """
        known = _in_blocks(so_far)
        layout, marks = _layout(known), known.landmarks
        first, stop = blocks_changed.staying(stage.rows, known.rows, layout)
        stage = replace(
            stage,
            rows=known.rows,
            layout=layout.between(first, stop),
            landmarks=None if marks is None else marks[first:stop],
            least_tasks=WINDOW_TASKS,
        )
        if self.near == "both":
            units = self.settle(stage, so_far.theta).units
            return self._changed(stage, units, so_far.home)._replace(whole=True)
        spans, reach = layout.spans, self.reach
        ahead = tuple(Unit(spans[j], spans[j + 1 : j + 1 + reach]) for j in range(first))
        behind = blocks_changed.preceded(layout, stop, layout.n_blocks, reach, first)
        return self._changed(stage, ahead + behind, so_far.home)

    def oldest(self, rows: data.Rows, so_far: SoFar) -> int:
        """Return how many rows, from the first, are whole blocks at the beginning of the order."""
        known = _in_blocks(so_far)
        return blocks_changed.oldest(rows, known.rows, _layout(known))

    def _changed(
        self, stage: Rounds, units: tuple[Unit, ...], home: Home, own: str | None = None
    ) -> Changed:
        """Return the windows that were changed, and all rows that predictions read back."""
        rest, url = blocks_changed.trimmed(stage, home)
        return Changed(replace(stage, units=units), rest, url or own)

    # -- sizes -----------------------------------------------------------------------------------

    def _block_rows(self, n: int, layout: Layout | None) -> int:
        if layout is None:
            return balanced(max(n, 1), self.block_rows or self.usual_rows)
        if self.block_rows is not None and layout.block_rows != balanced(n, self.block_rows):
            raise SettingError(
                f"block_rows={self.block_rows} but the store was prepared in blocks of "
                f"{layout.block_rows} rows: leave block_rows out or run daskgp.prepare again"
            )
        return layout.block_rows

    def _refuse_few(self, count: int, block_rows: int) -> None:
        """Raise SettingError for fewer blocks than a block is to be conditioned on."""
        if self.strict and self.reach >= max(count, 1):
            number = "is only 1 block" if count == 1 else f"are only {count} blocks"
            raise SettingError(
                f"markov_order={self.reach} but there {number} of {block_rows} rows: choose at "
                f"most {max(count - 1, 0)}, where the method is the exact GP, or a smaller "
                "block_rows"
            )


def _in_blocks(so_far: SoFar) -> Rounds:
    assert so_far.stage is not None
    return so_far.stage


def _key(layout: Layout, rows: data.Rows, i: int) -> int:
    return int(layout.order.keys(np.asarray(rows.read(i, i + 1)[0], np.float64))[0])


def _layout(stage: Rounds) -> Layout:
    assert stage.layout is not None, "the rows are not in blocks yet"
    return stage.layout


def _places(stage: Rounds, theta: Theta) -> np.ndarray:
    """Return some rows of the blocks (M, r, d) in units of the kernel's correlation lengths."""
    assert stage.landmarks is not None
    scaled, lengths = np.asarray(stage.scaling.inputs(stage.landmarks)), _lengths(stage, theta)
    if not np.isfinite(lengths).any():
        return np.arange(len(scaled), dtype=np.float64)[:, None, None]
    return in_units(scaled[:, :: len(scaled[0]) // APART], lengths)


def _lengths(stage: Rounds, theta: Theta) -> np.ndarray:
    """Return the units of distance of the kernel in scaled units, (d,) or (q, d)."""
    centroids = np.asarray(stage.scaling.inputs(_layout(stage).centroids))
    spread = np.ptp(centroids, axis=0)
    least = np.where(stage.scaling.uses, 1.0, 0.0)
    return distance_units(theta.kernel, np.where(spread > 0, spread, least))
