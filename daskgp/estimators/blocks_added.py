"""Blocks that are added to a fitted LMA, or taken out of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from daskgp import data
from daskgp.data import visibility
from daskgp.data.blocks import neighbours, prepared, sampling
from daskgp.data.blocks.around import LANDMARKS
from daskgp.data.blocks.layout import Layout
from daskgp.data.blocks.prepare import arrange
from daskgp.data.partition import Unit
from daskgp.errors import InputError
from daskgp.estimators.updating import more_rows
from daskgp.fit import rounds
from daskgp.fit.scratch import kept_rows, ordered
from daskgp.models import scaling
from daskgp.predict.near import Nearby

if TYPE_CHECKING:
    from daskgp.estimators.lma import LMA


class Changed(NamedTuple):
    """Rounds over all rows in the blocks that there are now, and the windows that were changed."""

    stage: rounds.Rounds
    units: tuple[Unit, ...]


def appended(gp: LMA, stage: rounds.Rounds, sums: scaling.Sums, spill: str) -> Changed:
    """Put more rows into blocks after the others; their windows are near or earlier blocks.

    Windows of the other blocks stay as they are, so that sums over windows add up.
    """
    kept, executor = gp.solved_.rows, stage.executor
    assert isinstance(kept, Nearby)
    d, url = stage.rows.n_features, ordered(spill)
    layout = kept.layout.along(kept.layout.order.widened(sums.low[:d], sums.high[:d]))
    seed, remedy = gp._seed(), f"give store= {visibility.HERE}"
    settings = layout.order, layout.block_rows, None, seed, executor, sums, remedy
    arrange(stage.rows, url, *settings)
    more, own = neighbours.open_blocks(url)
    at = int(layout.limits()[:, 1].max())
    first, last = (_key(layout, rows, i) for rows, i in ((more, 0), (kept.rows, at - 1)))
    if gp._neighbours() == "order" and first < last:
        raise InputError(
            "neighbours='order' takes new rows that follow all others in the order "
            f"({layout.order.kind}: {', '.join(layout.order.leading)}), and some of these do not: "
            "fit with neighbours='nearest'"
        )
    rows, count = _together(gp, kept, more, at), layout.n_blocks
    layout, reach, marks = layout.followed(own, first), gp._reach(), None
    if gp._neighbours() == "nearest" and (reach or gp._blocks_around() != 0):
        known = getattr(kept.around, "landmarks", None)
        spans = layout.spans if known is None else layout.spans[count:]
        marks = sampling.landmarks(rows, spans, LANDMARKS, executor)
        marks = marks if known is None else np.concatenate([known, marks])
        units = gp._settled(_over(stage, rows, layout, marks), gp.solved_.theta).units[count:]
        reach = reach if gp.windows_stay else 0
        near = kept.layout.near if reach else None
        if reach and near is None:
            near = neighbours.before(kept.layout.spans, gp._windows(executor).units, reach)
        if near is not None:
            near = np.concatenate([near, neighbours.before(layout.spans, units, reach)])
            layout = dataclasses.replace(layout, near=near)
        return Changed(_over(stage, rows, layout, marks), units)
    stage = _over(stage, rows, layout, marks)
    return Changed(stage, _preceded(layout, count, layout.n_blocks, reach))


def taken(gp: LMA, stage: rounds.Rounds) -> Changed:
    """Take whole blocks out at either end of the order, where others are not conditioned on them.

    Raises
    ------
    InputError
        If the rows are not those of whole blocks there.
    """
    kept = gp.solved_.rows
    assert isinstance(kept, Nearby)
    wanted, layout, reach = _counted(stage.rows, 0, len(stage.rows)), kept.layout, gp._reach()
    total, first = sum(wanted.values()), 0
    stop = layout.n_blocks
    while first < stop and _remove(wanted, kept, first):
        first += 1
    while stop > first and _remove(wanted, kept, stop - 1):
        stop -= 1
    if wanted:
        raise InputError(
            f"{sum(wanted.values())} of {total} rows to forget are not whole blocks at either end "
            f"of the order (blocks of {layout.block_rows} rows, oldest first): give the rows of "
            "whole blocks, or fit the rows that stay"
        )
    if first == stop:
        raise InputError("forget leaves no rows: a model needs at least one")
    spans = layout.spans
    ahead = tuple(Unit(spans[j], spans[j + 1 : j + 1 + reach]) for j in range(first))
    behind = _preceded(layout, stop, layout.n_blocks, reach, first)
    marks = getattr(kept.around, "landmarks", None)
    marks = None if marks is None else marks[first:stop]
    return Changed(_over(stage, kept.rows, layout.between(first, stop), marks), ahead + behind)


def trimmed(gp: LMA, kept: Nearby) -> Nearby:
    """Return blocks without the rows before and after them, in a store once these are as many.

    A store is written anew, beside that which readers of the old model may have open.
    """
    rows, limits = kept.rows, kept.layout.limits()
    start, stop = int(limits.min()), int(limits.max())
    layout = dataclasses.replace(kept.layout, bounds=limits - start)
    if isinstance(rows.X, np.ndarray):
        arrays = {name: array[start:stop].copy() for name, array in rows.arrays.items()}
        rows = rows.with_arrays(arrays, chunks=None)
        return dataclasses.replace(kept, rows=rows, layout=layout)
    written = gp._spare_rows is not None and kept.lies_at(gp._spare_rows)
    if written or len(rows) < 2 * (stop - start):
        return kept
    own = _copied(gp, kept, start, stop)
    return dataclasses.replace(kept, rows=_opened(own, rows), layout=layout)


def _over(
    stage: rounds.Rounds, rows: data.Rows, layout: Layout, marks: np.ndarray | None
) -> rounds.Rounds:
    return dataclasses.replace(
        stage, rows=rows, layout=layout, landmarks=marks, least_tasks=rounds.WINDOW_TASKS
    )


def _preceded(
    layout: Layout, start: int, stop: int, reach: int, least: int = 0
) -> tuple[Unit, ...]:
    """Return blocks, each with the ``reach`` blocks before it, none before block ``least``.

    A Markov chain has the same density in either direction.
    """
    spans = layout.spans
    return tuple(Unit(spans[j], spans[max(least, j - reach) : j]) for j in range(start, stop))


def _key(layout: Layout, rows: data.Rows, i: int) -> int:
    return int(layout.order.keys(np.asarray(rows.read(i, i + 1)[0], np.float64))[0])


def _together(gp: LMA, kept: Nearby, more: data.Rows, at: int) -> data.Rows:
    """Return all rows, where those so far were: in memory, or in a store that is the model's own.

    Rows of any other store are copied first, as are those in a store that cannot take more of them:
    with rows that another copy of the model has added to it, or without the noise that these have.
    """
    own, rows = gp._own_rows, kept.rows
    if isinstance(rows.X, np.ndarray):
        return prepared.joined(rows, more)
    alone = gp._spare_rows is not None  # then a stopped update has left any rows after the last
    mine = own is not None and prepared.lies_at(rows, own)
    if own is None or not mine or not prepared.takes(own, more, None if alone else at):
        own = _copied(gp, kept, before=more)
    prepared.append(own, more, at)
    return _opened(own, rows)


def _copied(
    gp: LMA,
    kept: Nearby,
    start: int = 0,
    stop: int | None = None,
    before: data.Rows | None = None,
) -> str:
    """Copy rows, or some, to a store that is the model's own, and return its URL."""
    with kept_rows(gp._spare_rows, gp.store) as own:
        data.remove(own)  # of an update that was stopped
        kept.write(own, start, stop, before)
    gp._own_rows = own
    return own


def _opened(url: str, rows: data.Rows) -> data.Rows:
    """Return the rows at a URL, which are places as others are."""
    opened = neighbours.held(data.rows_of(*data.dataset_arrays(url), None, False))
    return dataclasses.replace(opened, geographic=rows.geographic, feature_units=rows.feature_units)


def oldest(gp: LMA, X: Any, y: Any, y_variance: Any, weight: Any) -> int:
    """Return how many rows, from the first, are whole blocks at the beginning of the order.

    Raises
    ------
    InputError
        If they are as many as those of a block, but not those.
    """
    kept = gp.solved_.rows
    assert isinstance(kept, Nearby)
    noise = (part if np.ndim(part) == 0 else np.asarray(part) for part in (y_variance, weight))
    rows = more_rows(gp, np.asarray(X), np.asarray(y), None, True, *noise)
    places, keys = _complete(rows, 0, len(rows))
    ahead: Counter[bytes] = Counter()
    at = found = 0
    for block in range(kept.layout.n_blocks - 1):
        own = _complete(kept.rows, *kept.layout.span(block))[1]
        if at + len(own) > len(keys):
            break
        ahead.update(own)
        ahead.subtract(keys[at : at + len(own)])
        ahead = Counter({key: count for key, count in ahead.items() if count})
        at += len(own)
        found = found if ahead else at
    if at and not found:
        order = kept.layout.order
        raise InputError(
            f"the oldest rows are not the first blocks in the order ({order.kind}: "
            f"{', '.join(order.leading)}): a window of rows is forgotten where blocks follow the "
            "order of the rows, fit with order= the column of their time"
        )
    return len(rows) if found == len(keys) else int(places[found])


def _counted(rows: data.Rows, start: int, stop: int) -> Counter[bytes]:
    """Return how often each complete row occurs, by its bytes."""
    return Counter(_complete(rows, start, stop)[1])


def _complete(rows: data.Rows, start: int, stop: int) -> tuple[np.ndarray, list[bytes]]:
    """Return the places and the bytes of complete rows, with the noise that they have."""
    X, y = rows.read(start, stop)
    if not rows.n_noise:
        y = np.column_stack([y, np.ones(len(y)), np.zeros(len(y))])
    complete = scaling.complete_rows(X, y)
    both = np.column_stack([X, y]).astype(np.float64)[complete] + 0.0
    return np.flatnonzero(complete), [row.tobytes() for row in both]


def _remove(wanted: Counter[bytes], kept: Nearby, block: int) -> bool:
    """Remove the rows of a block from those wanted, if all of them are."""
    if not wanted:
        return False
    own = _counted(kept.rows, *kept.layout.span(block))
    if not own <= wanted:
        return False
    wanted -= own
    return True
