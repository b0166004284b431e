"""Blocks that are added to others, or taken out of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from daskgp import data
from daskgp.data.blocks import neighbours, prepared, sampling
from daskgp.data.blocks.around import LANDMARKS
from daskgp.data.blocks.layout import Layout
from daskgp.data.blocks.prepare import arrange
from daskgp.data.partition import Unit
from daskgp.errors import InputError
from daskgp.fit.arrange.arrangement import Home
from daskgp.fit.arrange.rewriting import REMEDY
from daskgp.fit.rounds import Rounds
from daskgp.fit.scratch import kept_rows
from daskgp.models import repeats, scaling
from daskgp.models.scaling import Sums


def sorted_along(
    layout: Layout, stage: Rounds, sums: Sums, seed: int, url: str
) -> tuple[data.Rows, Layout]:
    """Write rows in the order of other blocks to a URL, in blocks of their size."""
    settings = layout.order, layout.block_rows, None, seed, stage.executor, sums, REMEDY
    arrange(stage.rows, url, *settings)
    return neighbours.open_blocks(url)


def together(known: Rounds, more: data.Rows, at: int, home: Home) -> tuple[data.Rows, str | None]:
    """Return all rows, where those so far were, and the URL of their store if it is the model's.

    They are in memory, or in a store of the model's own.  Rows of any other store are copied first,
    as are those in a store that cannot take more of them: with rows that another copy of the model
    has added to it, or without the noise that these have.
    """
    own, rows = home.own, known.rows
    if isinstance(rows.X, np.ndarray):
        return prepared.joined(rows, more), None
    alone = home.spare is not None  # then a stopped update has left any rows after the last
    mine = own is not None and prepared.lies_at(rows, own)
    if own is None or not mine or not prepared.takes(own, more, None if alone else at):
        own = _copied(known, home, before=more)
    prepared.append(own, more, at)
    return _opened(own, rows), own


def trimmed(stage: Rounds, home: Home) -> tuple[Rounds, str | None]:
    """Return blocks without the rows before and after them, in a store once these are as many.

    A store is written anew, beside that which readers of the old model may have open, and its URL
    returned.
    """
    rows, layout = stage.rows, stage.layout
    assert layout is not None
    limits = layout.limits()
    start, stop = int(limits.min()), int(limits.max())
    moved = replace(layout, bounds=limits - start)
    if isinstance(rows.X, np.ndarray):
        arrays = {name: array[start:stop].copy() for name, array in rows.arrays.items()}
        return replace(stage, rows=rows.with_arrays(arrays, chunks=None), layout=moved), None
    written = home.spare is not None and prepared.lies_at(rows, home.spare)
    if written or len(rows) < 2 * (stop - start):
        return stage, None
    own = _copied(stage, home, start, stop)
    return replace(stage, rows=_opened(own, rows), layout=moved), own


def with_landmarks(stage: Rounds, known: np.ndarray | None = None) -> Rounds:
    """Return the rounds with some rows of each block, from which distances are measured.

    Those of the first blocks may be ``known``.
    """
    if stage.landmarks is not None:
        return stage
    assert stage.layout is not None
    spans = stage.layout.spans[0 if known is None else len(known) :]
    marks = sampling.landmarks(stage.rows, spans, LANDMARKS, stage.executor)
    return replace(stage, landmarks=marks if known is None else np.concatenate([known, marks]))


def preceded(layout: Layout, start: int, stop: int, reach: int, least: int = 0) -> tuple[Unit, ...]:
    """Return blocks, each with the ``reach`` blocks before it, none before block ``least``.

    A Markov chain has the same density in either direction.
    """
    spans = layout.spans
    return tuple(Unit(spans[j], spans[max(least, j - reach) : j]) for j in range(start, stop))


def staying(rows: data.Rows, known: data.Rows, layout: Layout) -> tuple[int, int]:
    """Return the first of the blocks that stay without these rows, and the end of them.

    Raises
    ------
    InputError
        If the rows are not those of whole blocks at either end of the order.
    """
    wanted = _counted(rows, 0, len(rows))
    total, first, stop = sum(wanted.values()), 0, layout.n_blocks
    while first < stop and _remove(wanted, known, layout, first):
        first += 1
    while stop > first and _remove(wanted, known, layout, stop - 1):
        stop -= 1
    if wanted:
        _refuse_strangers(rows, known, layout)
        raise InputError(
            f"{sum(wanted.values())} of {total} rows to forget are not whole blocks at either end "
            f"of the order (blocks of {layout.block_rows} rows along {layout.order.kind}: "
            f"{', '.join(layout.order.leading)}): give the rows of whole blocks, fit the rows that "
            "stay, or fit with order= the column along which rows will be forgotten"
        )
    if first == stop:
        raise InputError("forget leaves no rows: a model needs at least one")
    return first, stop


def _refuse_strangers(rows: data.Rows, known: data.Rows, layout: Layout) -> None:
    """Raise InputError for rows that are not among those of all blocks, and say by what."""
    d, p = rows.n_features, rows.n_targets
    places, own = _values(rows, 0, len(rows))
    parts = {"x": own[:, :d], "y": own[:, : d + p], "noise": own}
    wanted = {name: repeats.hashes(part) for name, part in parts.items()}
    found: dict[str, list[np.ndarray]] = {name: [] for name in parts}
    for block in range(layout.n_blocks):
        values = _values(known, *layout.span(block))[1]
        values = values[np.isin(repeats.hashes(values[:, :d]), wanted["x"])]
        for name, part in parts.items():
            found[name].append(repeats.hashes(values[:, : part.shape[1]]))
    there = {name: np.isin(wanted[name], np.concatenate(found[name])) for name in parts}
    kept, n_kept = np.unique(np.concatenate(found["noise"]), return_counts=True)
    _, at, number, count = np.unique(
        wanted["noise"], return_index=True, return_inverse=True, return_counts=True
    )
    has = np.isin(wanted["noise"], kept)
    most = np.zeros(len(own))
    most[has] = n_kept[np.searchsorted(kept, wanted["noise"][has])]
    again = np.ones(len(own), bool)
    again[at] = False  # the first of several is one of them
    causes = {
        "are not rows of the model": ~there["x"],
        "have another y in the model": there["x"] & ~there["y"],
        "have another y_variance or sample_weight in the model": there["y"] & ~there["noise"],
        "are given more often than the model has them": has & again & (count[number] > most),
    }
    for cause, wrong in causes.items():
        if wrong.any():
            first = int(places[np.argmax(wrong)]) + 1
            raise InputError(
                f"{wrong.sum()} of {len(own)} rows to forget {cause}, first row {first}: give rows "
                "as they were given to it"
            )


def oldest(rows: data.Rows, known: data.Rows, layout: Layout) -> int:
    """Return how many rows, from the first, are whole blocks at the beginning of the order.

    Raises
    ------
    InputError
        If they are as many as those of a block, but not those.
    """
    places, keys = _complete(rows, 0, len(rows))
    ahead: Counter[bytes] = Counter()
    at = found = 0
    for block in range(layout.n_blocks - 1):
        own = _complete(known, *layout.span(block))[1]
        if at + len(own) > len(keys):
            break
        ahead.update(own)
        ahead.subtract(keys[at : at + len(own)])
        ahead = Counter({key: count for key, count in ahead.items() if count})
        at += len(own)
        found = found if ahead else at
    if at and not found:
        order = layout.order
        raise InputError(
            f"the oldest rows are not the first blocks in the order ({order.kind}: "
            f"{', '.join(order.leading)}): a window of rows is forgotten where blocks follow the "
            "order of the rows, fit with order= the column of their time"
        )
    return len(rows) if found == len(keys) else int(places[found])


def _copied(
    stage: Rounds,
    home: Home,
    start: int = 0,
    stop: int | None = None,
    before: data.Rows | None = None,
) -> str:
    """Copy rows, or some, to a store that is the model's own, and return its URL."""
    assert stage.layout is not None
    with kept_rows(home.spare, home.store) as own:
        data.remove(own)  # of an update that was stopped
        rows, span = stage.rows, slice(start, stop)
        prepared.copy(own, rows, len(rows), stage.layout.write, span=span, before=before)
    return own


def _opened(url: str, rows: data.Rows) -> data.Rows:
    """Return the rows at a URL, which are places as others are."""
    opened = neighbours.open_rows(url)
    opened = replace(opened, categories=rows.categories, reference=rows.reference)
    return replace(opened, geographic=rows.geographic, feature_units=rows.feature_units)


def _counted(rows: data.Rows, start: int, stop: int) -> Counter[bytes]:
    """Return how often each complete row occurs, by its bytes."""
    return Counter(_complete(rows, start, stop)[1])


def _complete(rows: data.Rows, start: int, stop: int) -> tuple[np.ndarray, list[bytes]]:
    """Return the places and the bytes of complete rows, with the noise that they have."""
    places, values = _values(rows, start, stop)
    return places, [row.tobytes() for row in values]


def _values(rows: data.Rows, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places and the values (n, k) of complete rows, with the noise that they have."""
    X, y = rows.read(start, stop)
    if not rows.n_noise:
        y = np.column_stack([y, np.ones(len(y)), np.zeros(len(y))])
    complete = scaling.complete_rows(X, y)
    values = np.column_stack([X, y]).astype(np.float64)[complete] + 0.0
    return np.flatnonzero(complete), values


def _remove(wanted: Counter[bytes], known: data.Rows, layout: Layout, block: int) -> bool:
    """Remove the rows of a block from those wanted, if all of them are."""
    if not wanted:
        return False
    own = _counted(known, *layout.span(block))
    if not own <= wanted:
        return False
    wanted -= own
    return True
