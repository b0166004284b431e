"""Aggregation of the predictions of many experts: committees, nested kriging, optimal weights.

Letters ([OPT]): expert i predicts mean mu_i and variance sigma_i^2 at a place; beta_i its weight.
Everything here works on small arrays over places and experts and knows no kernel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from daskgp.arrays.backend import namespace
from daskgp.typing import Array

logger = logging.getLogger("daskgp")

CommitteeKind: TypeAlias = Literal["grbcm", "rbcm", "bcm", "gpoe", "poe"]
Aggregation: TypeAlias = Literal["optimal", "npae"] | CommitteeKind
COMMITTEES: tuple[CommitteeKind, ...] = ("poe", "gpoe", "bcm", "rbcm", "grbcm")
FLOOR = 1e-14
"""Smallest variance of an expert, as a share of the prior's: its precision must be finite."""
NESTED_RIDGE = 1e-12
"""Added to the covariance of experts' predictions, relative to the largest of their variances."""


@dataclass
class Committee:
    """Running sums of [OPT] eqs. 14 and 15 over experts.

    Parameters
    ----------
    kind : {"poe", "gpoe", "bcm", "rbcm", "grbcm"}
        Rule for the weights.
    count : int
        Number M of experts that will be added.
    mean, variance : (n, p), (n,) arrays
        Prediction that experts share, which is taken out again: the prior, or for grBCM that of
        the communication expert.  PoE and gPoE use only their shape and the variance's scale.
    """

    kind: CommitteeKind
    count: int
    mean: Array
    variance: Array
    _precision: Array = field(init=False)
    _weighted: Array = field(init=False)
    _total: Array = field(init=False)
    _added: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        xp = namespace(self.mean)
        self._precision, self._total = xp.zeros_like(self.variance), xp.zeros_like(self.variance)
        self._weighted = xp.zeros_like(self.mean)

    def add(self, mean: Array, variance: Array) -> None:
        """Add one expert's prediction: mean (n, p) and variance (n,)."""
        xp = namespace(mean)
        variance = xp.maximum(variance, FLOOR * self.variance)
        beta = self._weight(xp, variance)
        precision = beta / variance
        self._precision += precision
        self._weighted += precision[:, None] * mean
        self._total += beta
        self._added += 1

    def _weight(self, xp: Any, variance: Array) -> Array:
        if self.kind == "gpoe":
            return xp.full_like(variance, 1.0 / self.count)
        first = self.kind == "grbcm" and self._added == 0  # beta_2 = 1
        if self.kind in ("poe", "bcm") or first:
            return xp.ones_like(variance)
        return 0.5 * (xp.log(self.variance) - xp.log(variance))

    def result(self) -> tuple[Array, Array]:
        """Return the joint mean (n, p) and variance (n,), [OPT] eqs. 14 and 15."""
        if self._added != self.count:
            raise ValueError(f"{self._added} experts were added where {self.count} were announced")
        precision, weighted = self._precision, self._weighted
        if self.kind in ("bcm", "rbcm", "grbcm"):
            shared = (1.0 - self._total) / self.variance
            precision, weighted = precision + shared, weighted + shared[:, None] * self.mean
        variance = 1.0 / precision
        return variance[:, None] * weighted, variance


def committee_kind(name: str) -> CommitteeKind:
    """Return the committee of that name; raise ValueError if there is none."""
    for kind in COMMITTEES:
        if kind == name:
            return kind
    raise ValueError(f"{name!r} is not a committee: choose one of {', '.join(COMMITTEES)}")


def committee(
    kind: CommitteeKind,
    expert: Callable[[int], tuple[Array, Array]],
    count: int,
    prior: Array,
) -> tuple[Array, Array]:
    """Return the joint mean (n, p) and variance (n,) of a committee of ``count`` experts.

    ``expert(i)`` returns mean (n, p) and variance (n,) of expert i; for grBCM those of the
    communication expert if i = 0, and otherwise of expert i with the communication rows added.
    """
    mean, variance = expert(0)
    if kind != "grbcm":
        joint = Committee(kind, count, namespace(mean).zeros_like(mean), prior)
        joint.add(mean, variance)
    elif count == 1:
        return mean, variance
    else:
        variance = namespace(variance).maximum(variance, FLOOR * prior)
        joint = Committee(kind, count - 1, mean, variance)
    for i in range(1, count):
        joint.add(*expert(i))
    return joint.result()


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
