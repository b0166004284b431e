"""Rows to forget that are none of the model: what tells them, and a line that says so.

Methods that keep sums alone cannot look a row up.  What their sums, the ranges of features and the
notes of earlier rows tell is refused; a row that is given twice is told.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from daskgp import data
from daskgp.checks import rows as counted
from daskgp.data.partition import Span
from daskgp.data.rows import GIVEN
from daskgp.errors import InputError
from daskgp.fit.fitted import Fit
from daskgp.models import repeats, scaling

logger: logging.Logger = logging.getLogger("daskgp")

ROUNDING = 1e-6
"""Share of the range of a feature by which rows of single precision go on beyond it."""
REMEDY = "give rows as they were given to it"


def refuse_other_noise(fit: Fit, rows: data.Rows) -> None:
    """Raise InputError for rows with errors or weights that no row of a fit has, or without any."""
    notes = [note for note in fit.seen if note["what"] != "forget"]
    if not notes or not all("given" in note for note in notes):  # of earlier versions
        return
    for key, name in GIVEN.items():
        has = [name in note["given"] for note in notes]
        if key in rows.arrays and not any(has):
            raise InputError(f"the rows of the model have no {name}: leave it out to forget some")
        if key not in rows.arrays and all(has):
            raise InputError(
                f"the rows of the model have {name} and those to forget have none: give {name}= "
                "that they came with"
            )


def refuse_outside(fit: Fit, rows: data.Rows, sums: scaling.Sums, spans: Sequence[Span]) -> None:
    """Raise InputError for rows beyond the ranges of the rows of a fit."""
    ranges, place = fit.posterior.ranges, rows.columns.geographic or ()
    for j, where in enumerate(rows.columns.where):
        ends = ranges[j] if ranges else None
        if ends is None or j in place or not isinstance(where, int):
            continue
        width = ROUNDING * (ends[1] - ends[0])
        low, high = ends[0] - width, ends[1] + width
        if low <= sums.low[where] and sums.high[where] <= high:
            continue
        count, first, value = 0, 0, 0.0
        for span in spans:
            X, y = rows.raw(*span)
            column = X[:, j].astype(np.float64)
            beyond = _used(fit, rows.columns.inputs(X), y[:, : rows.n_targets])
            beyond &= (column < low) | (column > high)
            if beyond.any() and not count:
                first, value = span.start + int(np.argmax(beyond)) + 1, column[np.argmax(beyond)]
            count += int(beyond.sum())
        raise InputError(
            f"{count} of {len(rows)} rows to forget are not rows of the model, first row {first}: "
            f"{rows.feature_names[j]!r} is {value:.10g}, but {ends[0]:.10g} to {ends[1]:.10g} in "
            f"the model: {REMEDY}"
        )


def _used(fit: Fit, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which rows (n,) a fit takes: those of joint targets may miss some of these."""
    if fit.posterior.joint:
        y = np.where(np.isnan(y).all(axis=1, keepdims=True), np.nan, 0.0)
    return np.asarray(scaling.complete_rows(X, y))


def warn_of_twice(fit: Fit, rows: data.Rows, spans: Sequence[Span]) -> None:
    """Warn of rows that are given more than once, where no rows of a fit seem to repeat."""
    notes = [note for note in fit.seen if note["what"] != "forget"]
    if any(note.get("repeats", True) for note in notes):
        return
    hashes, numbers = list[np.ndarray](), list[np.ndarray]()
    for span in spans:
        X, y = rows.raw(*span)
        kept = _used(fit, X, y[:, : rows.n_targets])
        hashes.append(repeats.hashes(np.column_stack([X, y]).astype(np.float64)[kept]))
        numbers.append(span.start + np.flatnonzero(kept))
    _, first = np.unique(np.concatenate(hashes), return_index=True)
    again = np.delete(np.concatenate(numbers), first)
    if len(again):
        logger.warning(
            "%s of %d to forget repeat others of them, first row %d, and are removed as "
            "often, although rows of the model hardly repeat: give each row once",
            *(counted(len(again)), len(rows), int(again.min()) + 1),
        )
