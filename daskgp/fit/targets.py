"""Targets that are codes or counts, for which a method has a likelihood, or transformed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from daskgp import data
from daskgp.data.partition import Span
from daskgp.errors import InputError
from daskgp.likelihoods import Likelihood
from daskgp.models import transform
from daskgp.models.scaling import complete_rows
from daskgp.models.transform import Transform
from daskgp.runtime.executor import Executor, map_all, map_reduce


def check_columns(
    rows: data.Rows, spans: Sequence[Span], executor: Executor, likelihood: Likelihood
) -> None:
    """Raise InputError for columns beside y that do not go with it or with a likelihood."""

    def wrong(span: Span) -> list[str]:
        X, y = rows.raw(*span)
        known = y[complete_rows(X, y)]
        try:
            likelihood.check_columns(known[:, 0], rows.beside_in(known))
        except InputError as error:
            return [str(error)]
        return []

    for line in map_all(wrong, spans, executor, "columns"):
        raise InputError(line)


def check(
    rows: data.Rows, spans: Sequence[Span], executor: Executor, likelihood: Likelihood
) -> None:
    """Raise InputError for targets of complete rows outside the support of a likelihood."""

    def wrong(span: Span) -> list[np.ndarray]:
        X, y = rows.raw(*span)
        y = y[complete_rows(X, y)]
        own = likelihood.with_columns(rows.beside_in(y))
        y = y[:, : rows.n_targets]
        return [y[(~own.supports(y)).any(axis=1)]]

    outside = map_all(wrong, spans, executor, "targets")
    likelihood.check(np.concatenate(outside), rows.target_names)


def check_classes(rows: data.Rows, spans: Sequence[Span], executor: Executor) -> None:
    """Raise InputError for classes below the last one that no complete row has."""

    def present(span: Span) -> list[np.ndarray]:
        X, y = rows.raw(*span)
        return [np.unique(y[complete_rows(X, y), 0])]

    found = np.unique(np.concatenate(map_all(present, spans, executor, "classes")))
    gaps = np.flatnonzero(~np.isin(np.arange(found.max(initial=0.0)), found))
    if len(gaps):
        others = f" and {len(gaps) - 1} other classes" if len(gaps) > 1 else ""
        raise InputError(
            f"no row of target {rows.target_names[0]!r} has class {gaps[0]}{others} below "
            f"{found[-1]:g}, which then has no cut point: code the classes 0, 1, 2, ... without "
            "gaps, as np.unique(y, return_inverse=True)[1] does, or NaN for missing values"
        )


def transformed(rows: data.Rows, spans: Sequence[Span], executor: Executor, kind: str) -> Transform:
    """Return the transform of targets, from one pass over the rows.

    Raise InputError with the number of rows whose targets it does not take.
    """
    total = _summed(rows, spans, executor, kind)
    found = transform.fitted(kind, total)
    others = "another transform" if kind == "sqrt" else "'sqrt' (0 or more)"
    _refuse(rows, found, total, f"or choose {others} or None")
    return found


def carried(
    rows: data.Rows, spans: Sequence[Span], executor: Executor, known: Transform, sign: int
) -> Transform:
    """Return the transform of a fit with the slopes of more rows, or with sign -1 of fewer.

    Raise InputError with the number of rows whose targets it does not take.
    """
    total = _summed(rows, spans, executor, known.kind)
    _refuse(rows, known, total, "or fit again without the transform")
    more = transform.slopes(known.kind, known.powers, total)
    return replace(known, log_slopes=known.log_slopes + sign * more)


def _summed(
    rows: data.Rows, spans: Sequence[Span], executor: Executor, kind: str
) -> transform.Sums:
    sums = partial(_sums, rows, kind)
    total: transform.Sums = map_reduce(sums, transform.combine, spans, executor, "targets")
    return total


def _refuse(rows: data.Rows, found: Transform, total: transform.Sums, remedy: str) -> None:
    for name, count in zip(rows.target_names, total.bad.astype(int), strict=True):
        if count:
            raise InputError(
                f"target_transform={found.kind!r} takes values {found.takes}, and target {name!r} "
                f"has others in {count} of {int(total.rows)} rows: leave these rows out, {remedy}"
            )


def _sums(rows: data.Rows, kind: str, span: Span) -> transform.Sums:
    X, y = rows.read(*span)
    p = rows.n_targets
    y = np.asarray(y[complete_rows(X, y), :p], np.float64)
    return transform.local(kind, y[np.isfinite(y).all(axis=1)])
