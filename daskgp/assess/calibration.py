"""Spread of predictions learned on rows that were held out of a fit, or left out one by one."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from daskgp import data
from daskgp.assess.loo import leave_one_out, noise_of
from daskgp.assess.refits import fitted_to, scratch
from daskgp.assess.scores import scored
from daskgp.data.blocks import sampling
from daskgp.data.folds import Parts, Wanted
from daskgp.data.partition import Span
from daskgp.errors import InputError
from daskgp.fit import means
from daskgp.fit.fitted import Fit
from daskgp.fit.recipe import Recipe
from daskgp.fit.warm import Other
from daskgp.posterior.layers import Fade, Layer, Spread, Tails
from daskgp.predict.lazy import posterior_node
from daskgp.predict.stored import Node, opened
from daskgp.runtime.executor import Executor, map_all
from daskgp.runtime.process import single_blas_thread

logger: logging.Logger = logging.getLogger("daskgp")

FEW = 50
"""Held-out values, below which the standard error of the factor is above a tenth."""
LEFT_OUT = 1_024
"""Rows that are left out one by one, about.

The standard error of the factor is 2.2 %, which costs 0.0005 nats of a mean density.
"""
HELD_OUT = 8_192
"""Held-out rows whose residuals tell tails, about; all of them tell the factor."""
RUN = 32
"""Rows drawn together where near ones are predicted from the same rows, by one factor."""

LOWEST = -60.0
"""Logarithm of the square of a factor below which there is none."""
MOST, BEYOND, LEAST = 0.99, 4.0, 1e-16
"""Quantile of shares of the prior variance at rows left out, and how far beyond it a factor fades;
least share."""


class LeftOut(NamedTuple):
    """Number and sum of squares of standardised residuals, and some of them.

    ``shares`` (2, k) are those of f in their variances and of these in those of the prior, where
    rows are left out one by one.
    """

    n: int
    square: float
    some: np.ndarray
    shares: np.ndarray | None = None

    @classmethod
    def of(cls, z: np.ndarray, drawn: np.ndarray | bool = True) -> LeftOut:
        """Return that of residuals z (n, p), of rows ``drawn`` (n,) those that are known."""
        known = np.isfinite(z)
        kept = z[known & np.reshape(drawn, (-1, 1))]
        return cls(int(known.sum()), float((z[known] ** 2).sum()), kept)


def learned_layers(
    recipe: Recipe,
    fit: Fit,
    rows: data.Rows,
    whole: data.Rows,
    executor: Executor,
    start: Other | None = None,
) -> list[Layer]:
    """Return the spread of predictions that rows left out tell, and tails of residuals.

    With residuals z in standard deviations their mean density is best for the factor s with s^2 =
    mean z^2, where the derivative 1 / s - mean z^2 / s^3 of the loss log s + mean z^2 / 2 s^2
    vanishes.  Tails are quantiles of z / s; there are none where these may be normal.

    A factor below 1 that rows left out one by one tell fades where f is less known than at these
    (`Fade`), so that variances are w times as large with

        w = (1 - a) s^2 + a s^(2 c),

    a the share of f in the variance of y and c the part of the factor that acts on f; s is then
    best for mean log w + z^2 / w.

    Parameters
    ----------
    recipe : Recipe
    fit : Fit
        To all rows.
    rows, whole : data.Rows
        What a regressor leaves of the target, if there is one, and the rows as they were given.
    executor : Executor
    start : Other, optional
        Model that the training of the fit started from.
    """
    if recipe.calibrate == "loo":
        what, found = "left-out", _left_out(recipe, fit, whole, executor)
    else:
        what, found = "held-out", _held_out(recipe, rows, executor, start)
    n, square = sum(part.n for part in found), sum(part.square for part in found)
    if not square > 0:
        raise InputError(
            f"calibrate={recipe.calibrate!r}: {n} {what} values are predicted without "
            "any error, which says nothing about their spread: choose calibrate=None"
        )
    factor, fading = math.sqrt(square / n), list[Layer]()
    residuals = np.concatenate([part.some for part in found]) / factor
    if recipe.calibrate == "loo" and factor < 1.0:
        fade, residuals = _fading(found)
        factor, fading = fade.factor, [fade]
    if n < FEW:
        logger.warning(
            "the factor %.3g on standard deviations is learned from only %d %s values: it "
            "may be off by %.0f %%",
            factor,
            n,
            what,
            100 / math.sqrt(2 * n),
        )
    logger.info("standard deviations are multiplied by %.3g, from %d %s values", factor, n, what)
    tails = Tails.of(residuals, rows.n_targets)
    if tails is None:
        return [*fading, Spread(factor)]
    logger.info(
        "residuals are not normal: 95 %% intervals of y are %.3g times as wide as normal ones",
        tails.wider(0.95),
    )
    return [*fading, Spread(factor), tails]


def _fading(found: Sequence[LeftOut]) -> tuple[Fade, np.ndarray]:
    """Return the factor of residuals, with a mean square below 1, and these in its deviations."""
    z = np.concatenate([part.some for part in found])
    a, r = np.concatenate([part.shares for part in found if part.shares is not None], axis=1)
    low, most = np.clip(np.quantile(r, (0.5, MOST)), LEAST, 1.0)
    fade = Fade(1.0, float(low), float(min(BEYOND * most, 1.0)))
    c = fade.part(r)

    def both(log_t: float) -> tuple[np.ndarray, float]:
        """Return w and the derivative of the loss by the logarithm of the squared factor."""
        parts = (1.0 - a) * math.exp(log_t), a * np.exp(log_t * c)
        w = parts[0] + parts[1]
        return w, float(np.sum((parts[0] + c * parts[1]) / w * (1.0 - z**2 / w)))

    low_t = math.log(np.mean(z**2))
    while low_t > LOWEST and both(low_t)[1] > 0.0:
        low_t -= 1.0
    if low_t <= LOWEST or both(0.0)[1] <= 0.0:  # rows that tell of it are as far off as f says
        return fade, z
    log_t = brentq(lambda log_t: both(log_t)[1], low_t, 0.0, xtol=1e-13)
    return replace(fade, factor=math.exp(log_t / 2)), z / np.sqrt(both(log_t)[0])


def _held_out(
    recipe: Recipe, rows: data.Rows, executor: Executor, start: Other | None
) -> Sequence[LeftOut]:
    """Return residuals of a fifth of the rows, by a fit to the others."""
    blocks, seed = "auto" if recipe.calibrate == "blocks" else None, recipe.seed()
    wanted = Wanted(1, blocks, seed=seed, instead="choose calibrate=None")
    other = recipe.changed(calibrate=None)
    if means.is_regressor(recipe.mean):  # the rows are what it leaves
        other = other.changed(mean=means.described(recipe.mean))
    with scratch(recipe.store) as url:
        parts = wanted.made(rows, url, executor)
        with fitted_to(other, parts, url, (None, 0), executor, 0, start=start) as posterior:
            share = HELD_OUT / max(parts.tested(parts.folds[0]), 1)
            task = partial(_of_fold, parts, share, seed)
            node = posterior_node(posterior, not executor.shares_memory)
            return map_all(task, parts.spans, executor, "held-out", [node])


def _of_fold(parts: Parts, share: float, seed: int, span: Span, node: Node) -> list[LeftOut]:
    places = parts.places(parts.folds[0], span)
    X, y = parts.rows.raw(*span)
    with single_blas_thread():
        z = scored(opened(node), X[places], y[places]).score
    return [LeftOut.of(z, _drawn(seed, span.start, len(X), share)[places])]


def _left_out(recipe: Recipe, fit: Fit, rows: data.Rows, executor: Executor) -> Sequence[LeftOut]:
    """Return residuals of some rows, each predicted from all others."""
    share = LEFT_OUT / max(len(rows), 1)
    task = partial(_of_some, rows, share, recipe.seed())
    node = posterior_node(fit.posterior, not executor.shares_memory)
    return map_all(task, recipe.spans(rows), executor, "left-out", [node])


def _of_some(rows: data.Rows, share: float, seed: int, span: Span, node: Node) -> list[LeftOut]:
    X, y = rows.raw(*span)
    posterior = opened(node)
    order = posterior.grouped(X)
    run = 1 if order is None else RUN
    drawn = np.repeat(_drawn(seed, span.start, -(-len(X) // run), share), run)[: len(X)]
    own = np.flatnonzero(drawn) if order is None else np.sort(order[drawn])
    with single_blas_thread():
        found = leave_one_out(posterior, X[own], y[own])
        z = scored(posterior, X[own], y[own], lambda *_: found).score
        known = np.isfinite(z)
        some = known.any(axis=1)
        variance, noise = np.asarray(found.variance)[some, 0], noise_of(posterior, y[own[some]])
        shares = posterior.shares(X[own[some]], variance, noise)
    each = [np.broadcast_to(share[:, None], z[some].shape)[known[some]] for share in shares]
    return [LeftOut.of(z)._replace(shares=np.stack(each))]


def _drawn(seed: int, start: int, n: int, share: float) -> np.ndarray:
    keys = sampling.row_keys((seed, 29), start, n)
    return np.asarray(keys.astype(np.float64) / 2.0**64 < share)
