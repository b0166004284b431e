"""Rows in another order, which several arrangements write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dask
import numpy as np

from daskgp import data
from daskgp.data import visibility
from daskgp.data.blocks import ordering
from daskgp.data.blocks.layout import Layout
from daskgp.data.blocks.neighbours import made_from, mark, open_blocks
from daskgp.data.blocks.prepare import arrange
from daskgp.fit.rounds import Rounds
from daskgp.kernels.lengthscales import correlation_lengths
from daskgp.models.scaling import Sums
from daskgp.models.values import Theta

REMEDY = f"give store= {visibility.HERE}"


def seed_of(random_state: int | None) -> int:
    """Return the seed of samples; a new one each time if ``random_state`` is None."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return int(random_state)


def check_order(rows: data.Rows, order: str | Sequence[str], nearby: bool = False) -> None:
    """Raise SettingError for an order that the rows cannot be put in."""
    ordering.check_order(order, rows.columns.names, nearby)
    rows.columns.order(order)


def lengths(stage: Rounds, theta: Theta, sums: Sums) -> np.ndarray | None:
    """Return the correlation lengths (d,) of the kernel in the units of X; None if all infinite."""
    d, scale = stage.rows.n_features, stage.scaling.x_scale
    spread = (sums.high[:d] - sums.low[:d]) / scale
    values = correlation_lengths(theta.kernel, spread) * scale  # infinite if left out
    return values if np.isfinite(values).any() else None


def rewritten(
    stage: Rounds,
    sums: Sums,
    url: str,
    order: str | Sequence[str],
    units: np.ndarray | None,
    random_state: int | None,
    block_rows: int | None = None,
    stored: bool = False,
) -> tuple[data.Rows, Layout]:
    """Return the rows in an order, and their blocks: at a URL, or in memory if they were there.

    Those that are to be ``stored`` are at the URL in any case.

    ``units`` (d,) are distances at which rows are alike.  Rows that a run with the same data and
    settings has left at the URL are taken.
    """
    rows, size = stage.rows, () if block_rows is None else (block_rows,)
    source = str(dask.base.tokenize(*sums.parts, units, order, *size, random_state))
    if not made_from(url, source):
        data.remove(url)
        settings = order, block_rows, units, seed_of(random_state), stage.executor, sums, REMEDY
        arrange(replace(rows, trend=None), url, *settings)
        mark(url, source)
    new, layout = open_blocks(url)
    if isinstance(rows.X, np.ndarray) and not stored:
        new = new.held_here()
        data.remove(url)
    return replace(new, trend=rows.trend), layout
