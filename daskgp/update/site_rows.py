"""Rows of a model by sites that are to be forgotten, with the sites that it keeps of them.

The observations of the rows that stay are not kept, so their sites stay as they are.  A row that
is forgotten is told by the slope of its log density, which its site keeps: one whose y differs by
no more than about a tenth of the spread of observations there, or whose slope by no more than
DRIFT, passes for the same.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from daskgp import data
from daskgp.data.folds import even_spans
from daskgp.data.partition import Span
from daskgp.errors import InputError
from daskgp.fit import sites
from daskgp.models import repeats
from daskgp.posterior import kept_sites
from daskgp.posterior.kept_sites import Kept
from daskgp.posterior.neighbour_rows import Nearby
from daskgp.posterior.posterior import Posterior
from daskgp.predict.lazy import posterior_node
from daskgp.predict.stored import Node, opened
from daskgp.runtime.executor import Executor, map_all
from daskgp.runtime.process import single_blas_thread

DRIFT, SPREAD = 0.25, 0.1
"""Difference of the slope at a row that its settled site allows: a number without a unit, and a
share of the spread of slopes."""


class _Own(NamedTuple):
    """Observations of rows (n,), by hashes of their inputs, and the sites that would follow.

    ``first`` and ``second`` are t / v and 1 / v, ``value`` is E log p under the mean and variance,
    by the weight of the row.
    """

    keys: np.ndarray
    first: np.ndarray
    second: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    value: np.ndarray
    weight: np.ndarray

    def away(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return which rows (n,) have others than the observations of sites t / v and 1 / v.

        The slope E d log p / df of a row at its mean follows from its site to first order, so that
        it hardly depends on where the posterior was when the site settled.
        """
        apart = (first - self.first - self.mean * (second - self.second)) / self.weight
        return np.abs(apart) > DRIFT + SPREAD * np.sqrt(self.second / self.weight)


def with_kept(posterior: Posterior, rows: data.Rows, executor: Executor) -> tuple[data.Rows, float]:
    """Return rows of a model with the sites that it keeps of them, and their part of the bound.

    Raises
    ------
    InputError
        If it has no such rows, or their observations are others.
    """
    nearby, spans, unit = posterior.nearby, even_spans(rows), posterior.latent_unit
    assert nearby is not None
    node = posterior_node(posterior, not executor.shares_memory)
    found = map_all(partial(_observed, rows), spans, executor, "sites", [node])
    own = _Own(*(np.concatenate(part) for part in zip(*(one for _, one in found), strict=True)))
    known = np.concatenate([mask for mask, _ in found])
    at, kept = _matched(own, _at_ends(nearby, own.keys))
    if (at < 0).any():  # they may be in the middle of the order
        at, kept = _matched(
            own, kept_sites.joined(map(partial(kept_sites.of_block, nearby), _numbers(nearby)))
        )
    _refuse(known, at < 0, "are not rows of the model, or are given more often than it has them")
    t, v = kept.t[at], kept.v[at]
    scaled = t / unit, v / unit**2 + sites.NO_NOISE
    away = own.away(scaled[0] / scaled[1], 1.0 / scaled[1])
    _refuse(known, away, "have another y, or numbers beside it, in the model")
    of_sites = np.log(2 * np.pi * scaled[1])
    of_sites += ((scaled[0] - own.mean) ** 2 + own.variance) / scaled[1]
    targets, variances = np.full(len(known), np.nan), np.ones(len(known))
    targets[known], variances[known] = t, v
    found_rows = replace(sites.with_sites(rows, targets, variances), identity=None)
    return found_rows, float(own.value.sum() + 0.5 * of_sites.sum())


def _observed(rows: data.Rows, span: Span, node: Node) -> list[tuple[np.ndarray, _Own]]:
    posterior = opened(node)
    unit, likelihood = posterior.latent_unit, posterior.likelihood
    assert likelihood is not None
    X = rows.raw(*span)[0]
    known, y, beside, weight = sites.observed(rows, span, unit)
    inputs = np.asarray(rows.columns.inputs(X[known]), np.float64)
    at_rows = replace(posterior, method=posterior.method.at_own_rows())
    with single_blas_thread():
        q = at_rows.moments(X[known], "variance", gaussian=True)
    mean, variance = q.mean / unit, np.asarray(q.variance)[:, 0] / unit**2
    expected = likelihood.with_columns(beside).expected(y, mean, variance)
    value = expected.weighted(weight).values[:, 0]
    of_rows = *sites.natural(expected, mean, weight), mean[:, 0], variance, value
    w = np.ones(len(y)) if weight is None else weight
    return [(known, _Own(repeats.hashes(inputs), *of_rows, w))]


def _numbers(nearby: Nearby) -> range:
    return range(nearby.layout.n_blocks)


def _at_ends(nearby: Nearby, keys: np.ndarray) -> Kept:
    """Return what is kept of blocks at both ends of the order that have any of the rows."""
    numbers, parts = list(_numbers(nearby)), list[Kept]()
    for ends in (numbers, numbers[::-1]):
        for number in ends:
            one = kept_sites.of_block(nearby, number)
            if not np.isin(one.keys, keys).any():
                break
            parts.append(one)
        else:
            break  # all blocks were read from the first end
    return kept_sites.joined(parts)


def _matched(own: _Own, kept: Kept) -> tuple[np.ndarray, Kept]:
    """Return the places (n,) of rows among those kept, -1 where there are none left, and these.

    Of several with the same inputs the targets of sites tell which is which.
    """
    line = np.lexsort((kept.t, kept.keys))
    kept = Kept(*(part[line] for part in kept))
    order = np.lexsort((own.first / own.second, own.keys))
    keys = own.keys[order]
    at = np.searchsorted(kept.keys, keys) + np.arange(len(keys)) - np.searchsorted(keys, keys)
    inside = at < len(kept.keys)
    same = inside.copy()
    same[inside] = kept.keys[at[inside]] == keys[inside]
    found = np.full(len(keys), -1)
    found[order] = np.where(same, at, -1)
    return found, kept


def _refuse(known: np.ndarray, wrong: Any, cause: str) -> None:
    """Raise InputError for complete rows (n,) that are wrong, of all rows that are ``known``."""
    if wrong.any():
        first = int(np.flatnonzero(known)[np.argmax(wrong)]) + 1
        raise InputError(
            f"{int(wrong.sum())} of {len(wrong)} rows to forget {cause}, first row {first}: give "
            "rows as they were given to it"
        )
