"""Trends whose coefficients are integrated over: universal kriging [Matheron 1969].

Letters: h(x) (r,) trend functions, 1 first; y = h' b + f + noise with a flat prior of b; C the
covariance of f + noise that a method has, H (n, r) the functions at the rows.  The functions go
along with the targets as further right sides Y = [y, H], so a method sums M = Y' C^-1 Y as it does
for several targets, and everything follows from blocks of M: b ~ N(B, G) with G = (H' C^-1 H)^-1
and B = G H' C^-1 y; at a place with a = h - H' C^-1 k the mean gains a' B and the variance a' G a.
The evidence is the density of contrasts of the targets, which have no trend (restricted likelihood,
Patterson & Thompson 1971, Harville 1974).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from daskgp.arrays.backend import namespace, to_host
from daskgp.kernels.compose import united
from daskgp.typing import Array

NONE = np.zeros((0, 0))
"""Products of a method without a trend."""
PRECISION = 1e-12
"""Prior precision of coefficients, relative to what the rows say of each alone: those of a few
blocks may not tell all of them apart."""
ALIKE = 1e-10
"""Share of the largest eigenvalue of the columns' correlations below which columns are combinations
of others."""
OFF, UNTOUCHED = 1e-4, 1e-6
"""Distance from where training rows lie, in standard deviations, from which the rows say nothing of
a trend, and share of such a direction below which a column has no part in it."""


@dataclass(frozen=True, eq=False)
class Trend:
    """Trend functions of rows X (n, d) in the user's units, and their least squares fit.

    With c = (X[columns] - shift) / scale the functions are 1 and c @ basis, uncorrelated and of
    variance 1 over the training rows.  A method sees targets less intercept + c @ slope; without
    a ``basis`` that is the whole mean function.

    Parameters
    ----------
    columns : tuple of int
        q columns of X.
    shift, scale : ndarray (q,)
        The scale of a constant column is infinite.
    intercept : ndarray (p,)
    slope : ndarray (q, p)
        In the units of the (transformed) targets.
    basis : ndarray (q, r - 1), optional
    beyond : ndarray (q, s), optional
        What ``unseen`` was, of a trend whose coefficients are drawn.
    """

    columns: tuple[int, ...]
    shift: np.ndarray
    scale: np.ndarray
    intercept: np.ndarray
    slope: np.ndarray
    basis: np.ndarray | None = None
    beyond: np.ndarray | None = None

    @cached_property
    def unseen(self) -> np.ndarray:
        """Directions (q, s) of the scaled columns in which training rows do not vary.

        They are there where columns are linear combinations of others; a constant column has none.
        """
        if self.basis is None:
            return np.zeros((len(self.scale), 0)) if self.beyond is None else self.beyond
        uses = np.isfinite(self.scale)
        found = np.zeros((len(uses), int(uses.sum()) - self.basis.shape[1]))
        if found.shape[1]:
            found[uses] = np.linalg.svd(self.basis[uses])[0][:, self.basis.shape[1] :]
        return found

    def collinear(self) -> tuple[tuple[int, ...], ...]:
        """Return groups of columns, numbered from 0 in the trend, that are combinations."""
        shares = np.abs(self.unseen @ self.unseen.T)
        touched = np.flatnonzero(shares.diagonal() > UNTOUCHED)
        return united(tuple(np.flatnonzero(shares[j] > UNTOUCHED).tolist()) for j in touched)

    def unknown(self) -> np.ndarray:
        """Return the mask (1 + q,) of intercept and slopes that the rows do not determine."""
        middle = np.where(np.isfinite(self.scale), self.shift / self.scale, 0.0)
        moved = np.abs(middle @ self.unseen) > UNTOUCHED * (np.abs(middle).sum() or 1.0)
        slopes = (np.abs(self.unseen) > UNTOUCHED).any(axis=1)
        return np.concatenate([[moved.any()], slopes])

    def off(self, values: np.ndarray) -> np.ndarray:
        """Return the mask (n,) of values (n, q) of the columns at which rows say nothing of it."""
        if not self.unseen.shape[1]:
            return np.zeros(len(values), bool)
        scaled = self._scaled(values)
        away = np.abs(scaled @ self.unseen).max(axis=1)
        return np.asarray(away > OFF * (1.0 + np.abs(scaled).max(axis=1)))

    @property
    def n_functions(self) -> int:
        """Number r of functions whose coefficients are integrated over."""
        return 0 if self.basis is None else 1 + self.basis.shape[1]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v for k, v in found.items() if k != "columns" and v is not None}

    def functions(self, values: np.ndarray) -> np.ndarray:
        """Return h (n, r) of values (n, q) of the columns."""
        if self.basis is None:
            return np.empty((len(values), 0))
        return np.column_stack([np.ones(len(values)), by_column(self._scaled(values), self.basis)])

    def fitted(self, values: np.ndarray) -> np.ndarray:
        """Return the least squares fit (n, p) at values (n, q) of the columns."""
        return self.intercept + by_column(self._scaled(values), self.slope)

    def given(self, coefficients: np.ndarray) -> Trend:
        """Return the trend of t targets with coefficients (r, t), in their units, that are known.

        The least squares fit is that of these t targets.
        """
        assert self.basis is not None
        slope = self.slope + self.basis @ coefficients[1:]
        return replace(self, intercept=self.intercept + coefficients[0], slope=slope, basis=None)

    def in_users_units(self) -> tuple[np.ndarray, np.ndarray]:
        """Return T (1 + q, r) and t (1 + q, p): intercept and slopes are t + T b of X itself."""
        assert self.basis is not None
        by_column = self.basis / self.scale[:, None]
        T = np.zeros((1 + len(self.columns), self.n_functions))
        T[0, 0], T[0, 1:], T[1:, 1:] = 1.0, -self.shift @ by_column, by_column
        slope = self.slope / self.scale[:, None]
        return T, np.concatenate([(self.intercept - self.shift @ slope)[None], slope])

    def _scaled(self, values: np.ndarray) -> np.ndarray:
        return np.asarray((values - self.shift) / self.scale)


def by_column(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return A B (n, p) of A (n, q) and B (q, p), with bits that do not depend on other rows."""
    found = np.zeros((len(A), B.shape[1]))
    for a, b in zip(A.T, B, strict=True):
        found += a[:, None] * b
    return found


def uncorrelated(correlations: np.ndarray) -> np.ndarray:
    """Return the basis (q, k) in which columns with these correlations (q, q) have none.

    k < q if some columns are constant (zeros) or combinations of others.
    """
    values, vectors = np.linalg.eigh(correlations)
    kept = values > ALIKE * max(values.max(initial=0.0), 1.0)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


def collinear(group: Sequence[int], names: Sequence[str]) -> str:
    """Return words for columns of a trend that are combinations of one another."""
    listed = [repr(names[j]) for j in group]
    return (
        f"columns {', '.join(listed[:-1])} and {listed[-1]} are linear combinations of one another "
        "in these rows, which do not tell their slopes apart"
    )


class Contrasts(NamedTuple):
    """The part of -2 log evidence that depends on M = Y' C^-1 Y, and its derivative there.

    ``weights`` (p + r, p + r) is the identity without a trend, when ``value`` is tr M; ``targets``
    is the number p.
    """

    value: float
    weights: Array
    targets: int


def contrasts(M: Array, trend: int, rows: float) -> Contrasts:
    """Return the evidence's dependence on M (p + r, p + r), whose last ``trend`` sides are H.

    It is tr(M_yy - M_yH M_HH^-1 M_Hy) + p (log|M_HH| - log|H'H| - r log 2 pi), and H'H = n I for
    the functions of n rows that weigh the same; of others the rest is a constant of the data.
    """
    xp, p = namespace(M), len(M) - trend
    if not trend:
        return Contrasts(float(to_host(M.trace())), xp.eye(p), p)
    M = to_host(M)
    B, root = posterior(M, trend)
    weights = np.eye(p + trend)
    weights[:p, p:], weights[p:, :p] = -B.T, -B
    weights[p:, p:] = B @ B.T + p * (root @ root.T)
    value = np.trace(M[:p, :p]) - (M[p:, :p] * B).sum()
    value -= p * (2.0 * np.log(root.diagonal()).sum() + trend * np.log(2 * np.pi * rows))
    return Contrasts(float(value), xp.asarray(weights), p)


def posterior(M: np.ndarray, trend: int) -> tuple[np.ndarray, np.ndarray]:
    """Return B (r, p) and a root (r, r) of G, from M (p + r, p + r)."""
    p = len(M) - trend
    known = M[p:, p:].diagonal()
    H = M[p:, p:] + np.diag(np.where(known > 0.0, PRECISION * known, 1.0))
    root = np.linalg.inv(np.linalg.cholesky(H)).T
    return root @ (root.T @ M[p:, :p]), root
