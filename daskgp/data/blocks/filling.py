"""Rows whose fill values are read as missing, by a pass that finds them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import dask.array as da
import numpy as np

from daskgp import checks
from daskgp.data.blocks.sampling import row_keys
from daskgp.data.partition import Span
from daskgp.data.rows import Rows
from daskgp.data.valid import numbers_of
from daskgp.models import fills
from daskgp.models.fills import Ends, Fill, Fills, Limits
from daskgp.runtime.executor import Executor, map_reduce, mapped, tree_sum

logger: logging.Logger = logging.getLogger("daskgp")

Known: TypeAlias = Sequence[Limits | None] | None
"""Lowest and highest value of each column of X, then of y, where they are known from other rows."""

SEED = (7, 43)
"""Seed of the sample of rows whose spread tells what is far."""
NAMED = 6
"""Most values that a line names."""


def marked(
    rows: Rows,
    setting: Any,
    spans: Sequence[Span],
    executor: Executor,
    known: Known = None,
    classes: bool = False,
    silent: bool = False,
) -> Rows:
    """Return rows that read fill values as missing, and say which these are.

    Parameters
    ----------
    rows : Rows
        Must be readable by all tasks; those they have already are kept.
    setting : "auto", sequence of float or None
        Fill values of all columns; "auto" finds those in common use that stand apart from all other
        values of a column.
    spans : sequence of Span
    executor : Executor
    known : sequence of pairs or None, optional
        Ranges of columns that are known from other rows.
    classes : bool
        Whether targets are classes or counts, of which none is told as far from the others.
    silent : bool
        Whether nothing is said.
    """
    given = numbers_of(setting) or ()
    if setting is None or not len(rows):
        return rows
    task = partial(_ends, rows, given)
    ends: Ends = map_reduce(task, fills.combine, spans, executor, "extremes")
    measured = [True] * len(rows.feature_names) + [not classes] * rows.n_targets
    names = [f"feature {name!r}" for name in rows.feature_names]
    names += [f"target {name!r}" for name in rows.target_names]
    more = _told(ends, setting, names, measured, known, silent)
    return replace(rows, fills=fills.united(rows.fills, more))


def marked_targets(
    y: Any,
    names: Sequence[str],
    known: Fills,
    setting: Any,
    executor: Executor,
    classes: bool = False,
) -> Any:
    """Return y (n,) or (n, p), a NumPy or dask array, with NaN for fill values, as `marked` does.

    ``known`` are those of a fit, by column; of these nothing is said.
    """
    y, given = without(y, known), numbers_of(setting) or ()
    if setting is None or not y.size:
        return y
    if isinstance(y, da.Array):
        whole = y.rechunk({1: -1}) if y.ndim == 2 else y
        blocks = [(block, i, given) for i, block in enumerate(whole.to_delayed().ravel())]
        ends = tree_sum(mapped(_ends_of, blocks, "extremes"), fills.combine, executor, "extremes")
    else:
        ends = _ends_of(y, 0, given)
    texts = [f"target {name!r}" for name in names]
    return without(y, _told(ends, setting, texts, [not classes] * len(names), None, False))


def without(y: Any, known: Fills) -> Any:
    """Return y (n,) or (n, p), a NumPy or dask array, with NaN for fill values of its columns."""
    if not any(known):
        return y

    def one(y: np.ndarray) -> np.ndarray:
        return fills.without(y.reshape(len(y), -1), known).reshape(y.shape)

    if not isinstance(y, da.Array):
        return one(y)
    apply: Any = da.map_blocks  # dask's stubs do not know its arguments
    y = y.rechunk({1: -1}) if y.ndim == 2 else y
    return apply(one, y.astype(np.result_type(y.dtype, np.float32)))


def _ends_of(y: np.ndarray, block: int, given: Sequence[float]) -> Ends:
    return fills.local((y.reshape(len(y), -1),), row_keys((*SEED, block), 0, len(y)), given)


def _told(
    ends: Ends,
    setting: Any,
    names: Sequence[str],
    measured: Sequence[bool],
    known: Known,
    silent: bool,
) -> Fills:
    """Return the fill values of columns with these ends, and say which they are."""
    given = numbers_of(setting)
    if given is not None:
        said = [
            f"{given[i]:g} in {checks.rows(ends.given[j, i])} of {names[j]}"
            for j, i in zip(*np.nonzero(ends.given), strict=True)
        ]
        if said and not silent:
            logger.info("%s: read as missing values, as fill_values says", _listed(said))
        return (given,) * len(names)
    found = fills.found(ends, measured, known)
    if not silent:
        _say_found(found, names)
    left_out = [one for one in found if one.left_out]
    own = (tuple(one.value for one in left_out if one.column == j) for j in range(len(names)))
    return tuple(own) if left_out else ()


def _ends(rows: Rows, given: Sequence[float], span: Span) -> Ends:
    X, y = rows.raw(*span)
    keys = row_keys(SEED, span.start, len(X))
    return fills.local((X, y[:, : rows.n_targets]), keys, given)


def _say_found(found: Sequence[Fill], names: Sequence[str]) -> None:
    """Log a line with the values that are read as missing, and one with those that may be."""
    texts = {
        True: "%s: read as missing values, as fill values of files are; fill_values=None (--fill "
        "none) keeps %s",
        False: "%s: if missing values are meant, give fill_values=[%s] (%s), if measurements, "
        "fill_values=None (--fill none)",
    }
    for left_out, text in texts.items():
        those = [one for one in found if one.left_out == left_out]
        said = [
            f"{_number(one.value)} in {checks.rows(one.rows)} of {names[one.column]}, "
            f"far from all others ({one.others[0]:.5g} to {one.others[1]:.5g})"
            for one in those
        ]
        values = ", ".join(dict.fromkeys(_number(one.value) for one in those))
        if said:
            them = "it" if len(said) == 1 else "them"
            options = " ".join(f"--fill {value}" for value in values.split(", "))
            logger.warning(text, _listed(said), *((them,) if left_out else (values, options)))


def _number(value: float) -> str:
    """Return a value in few digits that tell it from others."""
    short = f"{value:g}"
    return short if float(short) == value else f"{value:.10g}"


def _listed(said: Sequence[str]) -> str:
    more = len(said) - NAMED
    return "; ".join(said[:NAMED]) + (f"; and {more} more" if more > 0 else "")
