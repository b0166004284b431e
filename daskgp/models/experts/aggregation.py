"""Aggregation of the predictions of many experts: committees, nested kriging, optimal weights.

Letters ([OPT]): expert i predicts mean mu_i and variance sigma_i^2 at a place; beta_i its weight.
Everything here works on small arrays over places and experts and knows no kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from daskgp.arrays.backend import namespace
from daskgp.typing import Array

Aggregation: TypeAlias = Literal["optimal", "npae", "grbcm", "rbcm", "bcm", "gpoe", "poe"]
FLOOR = 1e-14
"""Smallest variance of an expert, as a share of the prior's: its precision must be finite."""
NESTED_RIDGE = 1e-12
"""Added to the covariance of experts' predictions, relative to the largest of their variances."""


def committee(
    kind: Aggregation,
    expert: Callable[[int], tuple[Array, Array]],
    count: int,
    prior: Array,
) -> tuple[Array, Array]:
    """Return the joint mean (n, p) and variance (n,) of ``count`` experts, [OPT] eqs. 14 and 15.

    ``expert(i)`` returns mean (n, p) and variance (n,) of expert i; for grBCM those of the
    communication expert if i = 0, and otherwise of expert i with the communication rows added.
    What experts share, the prior or for grBCM the communication expert's prediction, is taken out.
    """
    first = expert(0)
    xp = namespace(first[0])
    shared, variance, members = xp.zeros_like(first[0]), prior, range(count)
    if kind == "grbcm":
        if count == 1:
            return first
        shared, variance = first[0], xp.maximum(first[1], FLOOR * prior)
        members = range(1, count)
    precision, total = xp.zeros_like(variance), xp.zeros_like(variance)
    weighted = xp.zeros_like(shared)
    for i in members:
        mean, own = expert(i) if i else first
        own = xp.maximum(own, FLOOR * variance)
        if kind == "gpoe":
            beta = xp.full_like(own, 1.0 / count)
        elif kind in ("poe", "bcm") or (kind == "grbcm" and i == 1):  # beta_2 = 1
            beta = xp.ones_like(own)
        else:
            beta = 0.5 * (xp.log(variance) - xp.log(own))
        precision += beta / own
        weighted += (beta / own)[:, None] * mean
        total += beta
    if kind in ("bcm", "rbcm", "grbcm"):
        less = (1.0 - total) / variance
        precision, weighted = precision + less, weighted + less[:, None] * shared
    variance = 1.0 / precision
    return variance[:, None] * weighted, variance


def nested(means: Array, cross: Array, covariance: Array, prior: Array) -> tuple[Array, Array]:
    """Return NPAE, [OPT] eq. 16 (Rullière et al. 2018): the best linear predictor given experts.

    Parameters
    ----------
    means : (n, M, p) array
        Experts' predictions.
    cross : (n, M) array
        Their covariances with f at the place, [OPT] eq. 17a.
    covariance : (n, M, M) array
        Their covariances with one another, [OPT] eq. 17b; overwritten.
    prior : (n,) array
        Prior variance.

    Returns
    -------
    mean : (n, p) array
    variance : (n,) array
        Of f, without noise.
    """
    xp = namespace(means)
    diag = xp.arange(covariance.shape[1])
    scale = covariance[:, diag, diag].max(axis=1, keepdims=True)
    # experts far from a place predict 0 with variance 0, or close to it, and must get no weight
    covariance[:, diag, diag] += xp.maximum(NESTED_RIDGE * scale, xp.finfo(covariance.dtype).tiny)
    weights = xp.linalg.solve(covariance, cross[:, :, None])[:, :, 0]
    mean = xp.einsum("nm,nmp->np", weights, means)
    return mean, prior - xp.einsum("nm,nm->n", weights, cross)
