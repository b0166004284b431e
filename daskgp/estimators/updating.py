"""Rows that are added to a fitted estimator or taken out of it, without a pass over the others."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from daskgp import data
from daskgp.checks import shown
from daskgp.data import partition, visibility
from daskgp.data.blocks import filling, prepared, sampling
from daskgp.data.rows import GIVEN, Y_VARIANCE
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.fit import declared, rounds, targets
from daskgp.fit.arrange import Changed
from daskgp.fit.scratch import scratch_rows
from daskgp.models import place_ranges, scaling
from daskgp.models.columns import Columns
from daskgp.models.method import Summed
from daskgp.models.values import add, subtract
from daskgp.posterior.layers import chain
from daskgp.posterior.posterior import check_columns, refuse_other_units
from daskgp.runtime.executor import Executor

if TYPE_CHECKING:
    from daskgp.estimators.base import GaussianProcess

logger = logging.getLogger("daskgp")

Ranges: TypeAlias = list[list[float] | None]
What: TypeAlias = Literal["fit", "update", "forget"]
WORTH = 0.02
"""Nats per value that other variances would gain on new rows, above which training is advised."""
SURE = 3.0
"""Least nats that they would gain on all new rows together."""
USUAL = 3.0
"""Standard deviations from their mean within which targets usually are."""
ROUNDING = 1e-8
"""Share of a sum of squares below zero up to which rows less others are taken for rounding."""


def changed(
    gp: GaussianProcess, X: Any, y: Any, y_variance: Any, weight: Any, forget: bool = False
) -> None:
    """Add rows to a fitted estimator, or take them out."""
    total, executor = total_of(gp, forget), Executor.current(gp.progress, gp.device)
    with scratch_rows(gp.store) as spill:
        rows = more_rows(gp, X, y, spill, executor.shares_memory, y_variance, weight)
        if y_variance is None and weight is None and not rows.n_noise:
            data.warn_of_noise_behind(y)
        _warn_of_no_errors(gp, rows)
        for array in rows.arrays.values():
            remedy = f"put it in {visibility.HERE}, with store= where update writes it"
            visibility.check(executor, array, "the new rows", remedy)
        spans = gp._spans(rows)
        if not forget:
            settings = gp.fill_values, spans, executor, known_ranges(gp), gp._codes is not None
            rows = filling.marked(rows, *settings)
        sums, scale = described(gp, rows, spans, executor, forget)
        units = partition.alone(spans)
        stage = rounds.Rounds(rows, units, scale, executor, gp.dtype, gp.device)
        arrangement, so_far = gp._arrangement(), gp._so_far(executor)
        if forget:
            after = arrangement.take(stage, so_far)
        else:
            after = arrangement.append(stage, sums, so_far, spill)
        _conclude(gp, after, total, int(sums.rows), forget)
    gp._ranges = ranges_of(sums, rows.columns, getattr(gp, "_ranges", None))
    gp._set_solved(dataclasses.replace(gp.solved_, fills=rows.fills, ranges=gp._ranges))
    gp._seen = [*seen_by(gp), seen("forget" if forget else "update", sums, rows)]


def oldest(gp: GaussianProcess, X: Any, y: Any, y_variance: Any, weight: Any) -> int:
    """Return how many of these rows, from the first, a fitted estimator can give back."""
    arrangement = gp._arrangement()
    if not arrangement.nearby:
        return len(X)
    noise = (part if np.ndim(part) == 0 else np.asarray(part) for part in (y_variance, weight))
    rows = more_rows(gp, np.asarray(X), np.asarray(y), None, True, *noise)
    return arrangement.oldest(rows, gp._so_far(Executor.current(gp.progress, gp.device)))


def total_of(gp: GaussianProcess, forget: bool = False) -> Any:
    """Return the sums over the rows of a fitted estimator; SettingError if rows cannot be added.

    Raise StoreError for a model that was stored without them.
    """
    method, name = gp.solved_.method, type(gp).__name__
    what = "forget" if forget else "update"
    refusal = method.why_no_forget() if forget else method.why_no_update()
    if refusal is not None:
        raise SettingError(f"{name} has no {what} here: {refusal}")
    refusal = gp._arrangement().why_no_change(forget)
    if refusal is not None:
        raise SettingError(f"{name} has no {what} here: {refusal}")
    if gp.solved_.scaling.trend is not None or gp.solved_.known is not None:
        raise SettingError(
            f"{name} has no {what} with mean={shown(gp.mean)}: fit again from this model, "
            "fit(..., start=model) or daskgp update --retrain, or with mean='ols'"
        )
    total = gp._total_sums()
    if total is None:
        raise StoreError(
            f"this {name} was stored without the sums over its rows, by an earlier version of "
            "daskgp: fit it again to update it"
        )
    return total


def _warn_of_no_errors(gp: GaussianProcess, rows: data.Rows) -> None:
    """Warn of rows without the errors that those of the fit had."""
    name = GIVEN[Y_VARIANCE]
    told = any(name in note.get("given", ()) for note in seen_by(gp))
    if told and rows.y_variance is None:
        logger.warning(
            "the rows of the fit had %s and these have none, so they count as exact but for the "
            "noise that was learned: give %s",
            name,
            name,
        )


def more_rows(
    gp: GaussianProcess,
    X: Any,
    y: Any,
    spill: str | None,
    shared_memory: bool,
    y_variance: Any,
    weight: Any,
) -> data.Rows:
    """Return more rows for a fitted estimator, with the names and units of its columns.

    InputError for rows of other columns or targets, or in other units.
    """
    posterior, beside = gp.solved_, (y_variance, weight, False)
    rows = data.rows_of(X, y, spill, shared_memory, gp._read_rows(), *beside)
    check_columns(posterior, rows.X, rows.feature_names)
    refuse_other_units(posterior, rows)
    if rows.n_targets != posterior.n_targets:
        raise InputError(
            f"y has {rows.n_targets} targets, but the model was fitted with {posterior.n_targets}: "
            f"{', '.join(posterior.target_names)}"
        )
    rows = dataclasses.replace(
        rows,
        feature_names=posterior.feature_names,
        feature_units=posterior.feature_units,
        geographic=posterior.geographic,
        fills=posterior.fills,
    )
    prepared.check_columns(rows)
    declared.check_noise(posterior.method, rows, type(gp).__name__)
    return rows


def described(
    gp: GaussianProcess,
    rows: data.Rows,
    spans: Sequence[partition.Span],
    executor: Executor,
    forget: bool = False,
) -> tuple[scaling.Sums, scaling.Scaling]:
    """Return the sums of more rows, and the model's scaling, which tells a transform's slopes.

    InputError for rows that a fitted model cannot take.
    """
    scale = gp.solved_.scaling
    if not len(rows):
        raise InputError("no rows: there is nothing to learn from")
    if scale.transform is not None:
        transform = targets.carried(rows, spans, executor, scale.transform, -1 if forget else 1)
        scale = dataclasses.replace(scale, transform=transform)
    sums = sampling.describe(rows, spans, executor, scale.transform)
    names = rows.columns.inputs_names, rows.target_names
    scaling.check_values(sums, *names)
    scaling.check_range(sums, scale, gp.dtype, *names)
    scaling.warn_of_missing(sums.dropped, rows.weight is not None)
    _warn_of_left_out(gp, sums, rows)
    return sums, scale


def _warn_of_left_out(gp: GaussianProcess, sums: scaling.Sums, rows: data.Rows) -> None:
    """Warn once of columns without a scale that vary in later rows."""
    scale, d = gp.solved_.scaling, rows.n_features
    moved = (sums.low[:d] < scale.x_shift) | (sums.high[:d] > scale.x_shift)
    left = np.flatnonzero(moved & ~scale.uses)
    names = [repr(rows.columns.inputs_names[j]) for j in left]
    if names and not gp._said_left_out:
        logger.warning(
            "%s: left out because the first rows held one value of it, but now it varies: "
            "start again with rows in which it does",
            ", ".join(names),
        )
        gp._said_left_out = True


def _conclude(gp: GaussianProcess, after: Changed, before: Any, count: int, forget: bool) -> None:
    """Add sums over the rows of rounds to those ``before``, or subtract them, and solve."""
    posterior, stage = gp.solved_, after.stage
    theta, method = posterior.theta, cast(Summed, posterior.method)
    if forget:
        method = method.with_taken()
    else:
        first = min(unit.own.start for unit in stage.units)
        method = method.with_added(posterior.state, first)
    known, own = method.totals(theta, stage)
    if forget:
        total = own if after.whole else subtract(before, own)
        _refuse_strangers(before, total)
    else:
        total = add(own, before)
    state, objective = method.concluded(theta, known, total, stage)
    if not forget:
        _remark(method, known, before, total, count * posterior.n_targets)
    kept = posterior.rows if after.rest is None else gp._kept(after.rest, theta)
    own = {"state": state, "rows": kept, "scaling": stage.scaling, "method": method}
    posterior = dataclasses.replace(posterior, **own, origin=None)
    layers = chain.renewed(posterior.layers, posterior.parts())
    gp._set_solved(dataclasses.replace(posterior, layers=layers))
    gp._total, gp.objective_ = total, objective
    gp._own_rows = after.own or gp._own_rows
    gp.n_rows_ += -count if forget else count


def _refuse_strangers(before: Any, total: Any) -> None:
    """Raise InputError if what stays is no sum over rows, as those taken out were not in it."""
    if np.sum(total.rows) < 1:
        raise InputError("forget leaves no rows: a model needs at least one")
    left, first = (np.diagonal(sums.square, axis1=-2, axis2=-1) for sums in (total, before))
    if (left < -ROUNDING * first).any():
        raise InputError("the rows to forget are not rows of the model: give those it was given")


def _remark(method: Summed, prepared: Any, before: Any, total: Any, values: int) -> None:
    """Log if larger variances would suit new values of y much better: training may be worth it.

    Under the model (y - E y)' C^-1 (y - E y) of new values, given the others, is 1 per value on
    average; a bound that sees few inducing inputs has it below 1 on the rows that it was trained
    on.  If it is r times what it is on these, multiplying all variances by r alone would gain
    (r - 1 - log r) / 2 nats per value.
    """
    ends = [method.misfit(prepared, sums) for sums in (before, total)]
    if ends[0] is None or ends[1] is None:
        return
    usual = ends[0] / (float(np.sum(before.rows)) * np.shape(before.square)[-1])
    own = (ends[1] - ends[0]) / values
    ratio = max(own, np.finfo(float).tiny) / max(usual, np.finfo(float).tiny)
    gain = 0.5 * (ratio - 1.0 - np.log(ratio))
    if ratio > 1.0 and gain > WORTH and gain * values > SURE:
        logger.warning(
            "the evidence of the new rows is %.2g nats per value less than expected from the "
            "others: train again on all rows, fit(..., start=model) or daskgp update --retrain",
            (own - usual) / 2.0,
        )


# -- what a model has seen -------------------------------------------------------------------


def seen(
    what: What, sums: scaling.Sums, rows: data.Rows, store: str | None = None
) -> dict[str, Any]:
    """Return a note of rows that a model has seen: how many, which, when, and where they lie."""
    return {
        "what": what,
        "rows": int(sums.rows),
        "given": [GIVEN[name] for name in rows.arrays if name in GIVEN],
        "checksum": f"{sums.checksum:016x}",
        "store": store,
        "span": [0, len(rows)],
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def seen_by(gp: GaussianProcess) -> list[dict[str, Any]]:
    """Return the notes of the rows that a fitted estimator has seen; none of earlier versions."""
    return list(getattr(gp, "_seen", []))


def elsewhere(gp: GaussianProcess, url: str) -> str:
    """Return the names of where a fitted estimator has seen rows outside a dataset store."""
    others = {note.get("store") for note in seen_by(gp)} - {url}
    return ", ".join(sorted(str(one or "rows given in Python") for one in others))


def known_ranges(gp: GaussianProcess) -> list[tuple[float, float] | None]:
    """Return the ranges of columns that a fitted estimator knows; about those of the targets."""
    posterior, found = gp.solved_, list[tuple[float, float] | None]()
    for ends in getattr(gp, "_ranges", None) or [None] * posterior.n_features:
        inside = ends is not None and ends[0] <= ends[1]  # not across the date line
        found.append((ends[0], ends[1]) if ends is not None and inside else None)
    scale = posterior.scaling
    if scale.transform is not None or scale.slope.any() or posterior.known or scale.trend:
        return [*found, *[None] * posterior.n_targets]
    usual = scale.intercept, USUAL * scale.y_scale
    return [*found, *zip(usual[0] - usual[1], usual[0] + usual[1], strict=True)]


def ranges_of(sums: scaling.Sums, columns: Columns, before: Ranges | None = None) -> Ranges:
    """Return the least and the largest value of each feature, also of rows ``before``.

    Those of longitude may go across the date line or all round.  None stands for a range of earlier
    rows that is not known.
    """
    found: Ranges = []
    for j, where in enumerate(columns.where):
        if not isinstance(where, int):
            found.append(None)
            continue
        both = [float(sums.low[where]), float(sums.high[where])]
        first = None if before is None else before[j]
        if first is not None:
            both = [min(both[0], first[0]), max(both[1], first[1])]
        found.append(both)
    if columns.geographic is not None and sums.ends is not None:
        lon, lat = columns.geographic
        ends = sums.ends
        if before is not None:
            west_east, south_north = before[lon], before[lat]
            if west_east is None or south_north is None:
                return found
            ends = place_ranges.combine(ends, place_ranges.along(west_east, south_north))
        found[lon], found[lat] = place_ranges.of(ends)
    return found
