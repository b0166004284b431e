"""Rows that are added to a fit or taken out of it, without a pass over the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from daskgp import data
from daskgp.checks import shown
from daskgp.data import crs, feature_units, partition, reading, visibility
from daskgp.data.blocks import filling, prepared, sampling
from daskgp.data.rows import ARGUMENTS, GIVEN, Y_VARIANCE, Beside
from daskgp.errors import InputError, NumericalError, SettingError, StoreError
from daskgp.fit import barriers, joint, rounds, sites, targets
from daskgp.fit.arrange import Changed, SoFar
from daskgp.fit.fitted import Fit, What, note, ranges_of
from daskgp.fit.recipe import Recipe
from daskgp.fit.scratch import scratch_rows
from daskgp.fit.work import check_noise, check_sites
from daskgp.models import scaling
from daskgp.models.markov.barriers import Barriers
from daskgp.models.method import Summed
from daskgp.models.values import add, subtract
from daskgp.posterior.layers import chain
from daskgp.posterior.neighbour_rows import polygons_of
from daskgp.posterior.posterior import check_columns, checksum_of, refuse_other_units
from daskgp.runtime.executor import Executor
from daskgp.update import forgetting, site_rows

logger: logging.Logger = logging.getLogger("daskgp")

WORTH = 0.02
"""Nats per value that other variances would gain on new rows, above which training is advised."""
SURE = 3.0
"""Least nats that they would gain on all new rows together."""
USUAL = 3.0
"""Standard deviations from their mean within which targets usually are."""
ROUNDING = 1e-8
"""Share of a sum of squares below zero up to which rows less others are taken for rounding."""


def changed(
    recipe: Recipe,
    fit: Fit,
    X: Any,
    y: Any,
    beside: Beside,
    forget: bool = False,
) -> Fit:
    """Return a fit with more rows, or without some of its own."""
    fit = with_totals(recipe, fit, forget)
    executor = Executor.current(recipe.progress, recipe.device)
    with scratch_rows(recipe.store) as spill:
        rows = more_rows(recipe, fit, (X, y), beside, spill, executor.shares_memory)
        _warn_of_arrays(X, y, beside, rows)
        fit.refuse_without_columns(rows.arrays, beside)
        if forget:
            forgetting.refuse_other_noise(fit, rows)
        else:
            _warn_of_no_errors(fit, rows)
        for array in rows.arrays.values():
            remedy = f"put it in {visibility.HERE}, with store= where update writes it"
            visibility.check(executor, array, "the new rows", remedy)
        spans = recipe.spans(rows)
        if not forget:
            settings = recipe.fill_values, spans, executor, known_ranges(fit)
            rows = filling.marked(rows, *settings, recipe.codes is not None)
            polygons = polygons_of(_barriers(fit), rows)
            barriers.refuse_inside(polygons, rows, spans, executor)
        with _as_seen(recipe, fit, rows, spans, executor, spill, forget) as seen:
            fit, sums = _with_these(recipe, fit, rows, seen, executor, spill, forget)
            values = [int(own.rows) for own in seen.sums]
    what: What = "forget" if forget else "update"
    ranges = ranges_of(sums, rows.columns, fit.posterior.ranges)
    notes = [*fit.seen, note(what, sums, rows, values=values)]
    _warn_of_again(notes, _why_no_forget(recipe, fit) is None)
    posterior = replace(fit.posterior, fills=rows.fills, ranges=ranges)
    posterior = replace(posterior, rows_checksum=checksum_of(notes))
    return replace(fit, posterior=posterior, seen=notes)


def _why_no_forget(recipe: Recipe, fit: Fit) -> str | None:
    """Return why rows cannot be taken out of a fit; None if they can."""
    return fit.posterior.method.why_no_forget() or recipe.arrangement.why_no_change(True)


def _warn_of_again(notes: Sequence[Mapping[str, Any]], forgets: bool) -> None:
    """Warn of new rows, of the last note, that are all rows of an earlier one, which are there.

    ``forgets`` says whether the model takes rows out.
    """
    new = notes[-1]
    same = [old for old in notes[:-1] if all(old.get(k) == new[k] for k in ("checksum", "rows"))]
    there = sum(-1 if old["what"] == "forget" else 1 for old in same)
    if new["what"] == "update" and there > 0:
        logger.warning(
            "the new rows, %d of them, are those that the model has learned from on %s, and now "
            "count twice: %s, unless they were measured twice",
            *(new["rows"], same[0]["when"]),
            "forget them once, by daskgp forget or model.forget"
            if forgets
            else "fit all rows again, each once",
        )


def _barriers(fit: Fit) -> Barriers | None:
    """Return the barriers between rows of a fit, if it has any."""
    found: Barriers | None = getattr(fit.posterior.state, "barriers", None)
    return found


def _with_these(
    recipe: Recipe,
    fit: Fit,
    rows: data.Rows,
    seen: _Seen,
    executor: Executor,
    spill: str,
    forget: bool,
) -> tuple[Fit, scaling.Sums]:
    """Return a fit with more rows, or without some, and sums over these as a method sees them."""
    own, arrangement = seen.recipe, recipe.arrangement
    sums, scale, known = described(own, seen.fit, seen.rows, executor, forget)
    if forget and not arrangement.nearby:  # others look up each row
        spans = recipe.spans(rows)
        forgetting.refuse_outside(fit, rows, sums, spans)
        forgetting.warn_of_twice(fit, rows, spans)
    units = partition.alone(own.spans(seen.rows))
    stage = rounds.Rounds(seen.rows, units, scale, executor, recipe.dtype, recipe.device)
    stage = replace(stage, barriers=_barriers(known))
    so_far = _so_far(recipe, known, executor)
    if forget:
        after = arrangement.take(stage, so_far)
    else:
        _warn_of_other_rows(fit, seen.sums or (sums,), rows)
        after = arrangement.append(stage, sums, so_far, spill)
    known = _concluded(own, known, after, int(sums.rows), forget, seen.gained)
    if fit.posterior.joint:
        known = known.of(joint.of_targets(known.posterior, fit.posterior))
    return known, sums if seen.checksum is None else sums._replace(checksum=seen.checksum)


class _Seen(NamedTuple):
    """Rows as a method sees them, and a recipe and a fit for such.

    ``checksum`` is that of the rows as they were given, if it is another one.  Sites of theirs have
    ``gained`` a part of the bound, and joint targets have ``sums`` of each.
    """

    recipe: Recipe
    fit: Fit
    rows: data.Rows
    checksum: int | None = None
    gained: float | None = None
    sums: tuple[scaling.Sums, ...] = ()


@contextmanager
def _as_seen(
    recipe: Recipe,
    fit: Fit,
    rows: data.Rows,
    spans: Sequence[partition.Span],
    executor: Executor,
    spill: str,
    forget: bool,
) -> Iterator[_Seen]:
    """Yield rows as the method sees them."""
    likelihood = fit.posterior.likelihood
    if fit.posterior.joint:
        more = joint.more(recipe, fit.posterior, rows, executor, spill)
        own = fit.of(joint.in_long_form(fit.posterior))
        try:
            with scaling.missing_on_purpose():
                yield _Seen(more.recipe, own, more.rows, more.checksum, sums=more.sums)
        finally:
            more.clear()
        return
    if likelihood is None or not fit.posterior.by_sites:
        yield _Seen(recipe, fit, rows)
        return
    if rows.beside:
        targets.check_columns(rows, spans, executor, likelihood)
    targets.check(rows, spans, executor, likelihood)
    if forget:
        kept, value = site_rows.with_kept(fit.posterior, rows, executor)
        yield _Seen(recipe, fit, kept, sampling.checksum_of(rows, spans, executor), -value)
        return
    with_sites, gained, clear = sites.more(fit.posterior, rows, executor, spill)
    try:
        checksum = sampling.checksum_of(rows, spans, executor)
        yield _Seen(recipe, fit, with_sites, checksum, gained)
    finally:
        clear()


def _warn_of_arrays(X: Any, y: Any, beside: Beside, rows: data.Rows) -> None:
    """Warn of packed numbers, and of what a store has beside y that new rows do not carry."""
    given = {ARGUMENTS[name]: a for name, a in beside.items() if a is not None}
    data.warn_of_packed(X, y=y, **given)
    if not given and not {*rows.arrays} & {*ARGUMENTS}:
        data.warn_of_left_behind(y)


def oldest(recipe: Recipe, fit: Fit, X: Any, y: Any, beside: Beside) -> int:
    """Return how many of these rows, from the first, a fit can give back."""
    arrangement = recipe.arrangement
    if not arrangement.nearby:
        return len(X)
    own = {k: part if np.ndim(part) == 0 else np.asarray(part) for k, part in beside.items()}
    rows = more_rows(recipe, fit, (np.asarray(X), np.asarray(y)), own)
    executor = Executor.current(recipe.progress, recipe.device)
    if fit.posterior.by_sites:
        rows, _ = site_rows.with_kept(fit.posterior, rows, executor)
    return arrangement.oldest(rows, _so_far(recipe, fit, executor))


def _so_far(recipe: Recipe, fit: Fit, executor: Executor) -> SoFar:
    """Return what a fit knows of its rows; new ones go where the recipe has its store now."""
    home = fit.home._replace(store=recipe.store)
    return recipe.arrangement.so_far(fit.posterior, fit.n, home, executor)


def with_totals(recipe: Recipe, fit: Fit, forget: bool = False) -> Fit:
    """Return a fit with the sums over its rows; SettingError if rows cannot be added.

    Raise StoreError for a model that was stored without them.
    """
    method, name = fit.posterior.method, recipe.name
    what = "forget" if forget else "update"
    again = "fit all rows again, fit(..., start=model) or daskgp update --retrain"
    fit.posterior.refuse_separate(what, f"{again}, or keep the model of each")
    refusal = method.why_no_update() or recipe.arrangement.why_no_change(False)
    refusal = _why_no_forget(recipe, fit) if forget else refusal
    if forget and fit.posterior.joint and recipe.arrangement.nearby:
        refusal = refusal or (
            "blocks of joint targets hold values of several rows in part: fit the rows that stay, "
            "fit(..., start=model)"
        )
    if refusal is not None:
        takes = "" if forget else "; SGPR, LMA and VecchiaGP take new rows"
        raise SettingError(f"{name} has no {what} here: {refusal}{takes}")
    likelihood = fit.posterior.likelihood
    if forget and fit.posterior.by_sites and likelihood and fit.posterior.nearby is None:
        raise SettingError(
            f"{name} has no forget with likelihood={likelihood.name!r}, whose sites "
            "stand for the targets, and it does not keep those of each row: fit the rows that "
            "stay, fit(..., start=model), or choose LMA or PIC"
        )
    if fit.posterior.scaling.trend is not None or fit.posterior.known is not None:
        raise SettingError(
            f"{name} has no {what} with mean={shown(recipe.mean)}: fit again from this model, "
            "fit(..., start=model) or daskgp update --retrain, or with mean='ols'"
        )
    fit = fit.read()
    if fit.totals is None:
        raise StoreError(
            f"this {name} was stored without the sums over its rows, by an earlier version of "
            "daskgp: fit it again to update it"
        )
    return fit


def _warn_of_other_rows(fit: Fit, sums: Sequence[scaling.Sums], rows: data.Rows) -> None:
    """Warn of rows unlike those of the fit, before it has them: of another unit, or swapped.

    ``sums`` are those over the rows of all targets, or of each.
    """
    posterior, known, d = fit.posterior, known_ranges(fit), rows.n_features
    low, high = (np.concatenate([getattr(own, end)[d:] for own in sums]) for end in ("low", "high"))
    new: list[Any] = [*ranges_of(sums[0], rows.columns), *zip(low, high, strict=True)]
    names = (*posterior.feature_names, *posterior.target_names)
    units = [*rows.feature_units, *[""] * len(names)][: len(posterior.feature_names)]
    times = {n for n, unit in zip(names, units, strict=False) if " since " in unit}
    both = {
        name: (tuple(map(float, own)), before)
        for name, own, before in zip(names, new, known, strict=True)
        if own is not None and before is not None and name not in times
    }
    told = {n for j, n in enumerate(posterior.feature_names) if _in_memory(rows.X, j)}
    place = {posterior.feature_names[j] for j in posterior.geographic or ()}
    what = "the new rows", "the rows of the fit"
    feature_units.warn_of_changes(both, *what, told=told, place=place)


def _in_memory(X: Any, j: int) -> bool:
    """Return whether `refuse_other_units` has seen a column."""
    return reading.numbers_of(X, j) is not None


def _warn_of_no_errors(fit: Fit, rows: data.Rows) -> None:
    """Warn of rows without the errors that those of the fit had."""
    name = GIVEN[Y_VARIANCE]
    told = any(name in note.get("given", ()) for note in fit.seen)
    if told and rows.y_variance is None:
        logger.warning(
            "the rows of the fit had %s and these have none, so their only noise is the "
            "learned one: give %s",
            name,
            name,
        )


def more_rows(
    recipe: Recipe,
    fit: Fit,
    given: tuple[Any, Any],
    beside: Beside,
    url: str | None = None,
    shared: bool = True,
) -> data.Rows:
    """Return more rows, ``given`` as X and y, with the names and units of a fit's columns.

    InputError for rows of other columns or targets, or in other units.
    """
    posterior = fit.posterior
    how = url, shared, recipe.read_rows, beside, False, recipe.columns, None, posterior.joint
    X = posterior.taking("error").coded(given[0])  # a fit learns of no new level
    rows = data.rows_of(X, given[1], *how)
    check_columns(posterior, rows.X, rows.feature_names)
    refuse_other_units(posterior, rows)
    crs.refuse_other(rows.reference, posterior.reference, "the new rows", "the rows of the fit")
    if rows.n_targets != posterior.n_targets:
        raise InputError(
            f"y has {rows.n_targets} targets, but the model was fitted with "
            f"{posterior.n_targets}: give {', '.join(posterior.target_names)}"
        )
    rows = replace(
        rows,
        feature_names=posterior.feature_names,
        target_names=posterior.target_names,
        feature_units=posterior.feature_units,
        geographic=posterior.geographic,
        fills=posterior.fills,
        categories=posterior.categories,
        reference=posterior.reference,
    )
    prepared.check_columns(rows)
    if posterior.by_sites and posterior.likelihood is not None:
        check_sites(posterior.likelihood, rows)
    check_noise(posterior.method, rows, recipe.name)
    return rows


def described(
    recipe: Recipe, fit: Fit, rows: data.Rows, executor: Executor, forget: bool = False
) -> tuple[scaling.Sums, scaling.Scaling, Fit]:
    """Return the sums of more rows, and the model's scaling, which tells a transform's slopes.

    And the fit, which notes what it has warned of.  InputError for rows that it cannot take.
    """
    scale, spans = fit.posterior.scaling, recipe.spans(rows)
    if not len(rows):
        raise InputError("no rows: there is nothing to learn from; give at least one")
    if scale.transform is not None:
        transform = targets.carried(rows, spans, executor, scale.transform, -1 if forget else 1)
        scale = replace(scale, transform=transform)
    sums = sampling.describe(rows, spans, executor, scale.transform)
    names = rows.columns.inputs_names, rows.target_names
    data.refuse_lost(rows, sums.rows)
    scaling.check_values(sums, *names, scaling.Given.of(rows.arrays))
    scaling.check_range(sums, scale, recipe.dtype, *names)
    scaling.warn_of_missing(sums.dropped, rows.weight is not None)
    return sums, scale, _warned_of_left_out(fit, sums, rows)


def _warned_of_left_out(fit: Fit, sums: scaling.Sums, rows: data.Rows) -> Fit:
    """Warn once of columns without a scale that vary in later rows."""
    scale, d = fit.posterior.scaling, rows.n_features
    moved = (sums.low[:d] < scale.x_shift) | (sums.high[:d] > scale.x_shift)
    left = np.flatnonzero(moved & ~scale.uses)
    names = [repr(rows.columns.inputs_names[j]) for j in left]
    if not names or fit.told:
        return fit
    logger.warning(
        "%s: left out because it was constant in the first rows, but now it varies: start "
        "again with rows in which it varies",
        ", ".join(names),
    )
    return replace(fit, told=True)


def _concluded(
    recipe: Recipe, fit: Fit, after: Changed, count: int, forget: bool, gained: float | None
) -> Fit:
    """Add sums over the rows of rounds to those of a fit, or subtract them, and solve.

    The objective of a fit to sites is a bound, of which new ones have ``gained`` a part beside the
    evidence.
    """
    posterior, stage, before = fit.posterior, after.stage, fit.totals
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
    try:
        state, objective = method.concluded(theta, known, total, stage)
    except NumericalError as error:
        if not forget:
            raise
        raise _strangers() from error
    if gained is not None:
        evidence = cast(Summed, posterior.method).concluded(theta, known, before, stage)[1]
        objective += (fit.objective or 0.0) - evidence + gained
    elif not forget:
        _remark(method, known, before, total, count * posterior.n_targets)
    kept = posterior.rows
    if after.rest is not None:
        kept = recipe.arrangement.kept(after.rest, theta)
    changed = {"state": state, "rows": kept, "scaling": stage.scaling, "method": method}
    posterior = replace(posterior, **changed, origin=None)
    return replace(
        fit,
        posterior=replace(posterior, layers=chain.renewed(posterior.layers, posterior.parts())),
        totals=total,
        objective=objective,
        home=fit.home._replace(own=after.own or fit.home.own),
        n=fit.n + (-count if forget else count),
    )


def _refuse_strangers(before: Any, total: Any) -> None:
    """Raise InputError if what stays is no sum over rows, as those taken out were not in it."""
    if np.sum(total.rows) < 1:
        raise InputError("forget leaves no rows: a model needs at least one")
    left, first = (np.diagonal(sums.square, axis1=-2, axis2=-1) for sums in (total, before))
    if (left < -ROUNDING * first).any():
        raise _strangers()


def _strangers() -> InputError:
    return InputError(
        "some of the rows to forget are not rows of the model, as those that would stay have no "
        f"sums that rows can have: {forgetting.REMEDY}, with the same y and errors"
    )


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
        wrong = (
            "take them out, forget(X, y) or daskgp forget with a store of these rows alone"
            if method.why_no_forget() is None
            else "fit the others again"
        )
        logger.warning(
            "the evidence of the new rows is %.2g nats per value less than expected from the "
            "others: train again on all rows, fit(..., start=model) or daskgp update --retrain, if "
            "the new ones are right; if they are wrong, %s",
            (own - usual) / 2.0,
            wrong,
        )


def elsewhere(fit: Fit, url: str) -> str:
    """Return the names of where a fit has seen rows outside a dataset store, and kept them.

    Rows that were forgotten from where none were added may be those of any.
    """
    left = Counter[Any]()
    for one in fit.seen:
        left[one.get("store")] += -one["rows"] if one["what"] == "forget" else one["rows"]
    others = {store for store, rows in left.items() if rows} - {url}
    return ", ".join(sorted(str(one or "rows given in Python") for one in others))


def known_ranges(fit: Fit) -> list[tuple[float, float] | None]:
    """Return the ranges of columns that a fit knows; about those of the targets."""
    posterior, found = fit.posterior, list[tuple[float, float] | None]()
    for ends in posterior.ranges or [None] * posterior.n_features:
        inside = ends is not None and ends[0] <= ends[1]  # not across the date line
        found.append((ends[0], ends[1]) if ends is not None and inside else None)
    scale = posterior.scaling
    latent = posterior.by_sites or scale.slope.any() or posterior.known or scale.trend
    if latent or scale.transform is not None:
        return [*found, *[None] * posterior.n_targets]
    usual = scale.intercept, USUAL * scale.y_scale
    return [*found, *zip(usual[0] - usual[1], usual[0] + usual[1], strict=True)]
