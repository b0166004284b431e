"""Collapsed sparse GP (SGPR): Titsias' bound as an exact map-reduce.

Letters as in collapsed.py, which has the sums over rows: L L' = K(Z, Z) + jitter; S = A A' and
b = A y with A = L^-1 K(Z, X); s the noise variance; B = I + S / s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace
from daskgp.models import collapsed
from daskgp.models.collapsed import Collapsed, Stats
from daskgp.models.inducing import Prepared, inputs_of, posterior
from daskgp.models.leave_one_out import less_trend, without
from daskgp.models.pathwise import PathDraw, Paths, PathState, by_inducing
from daskgp.models.trend import NONE
from daskgp.models.values import Block, Footprint, Moments, Shape, Theta, Want, variances
from daskgp.typing import Array


class State(NamedTuple):
    """Solved posterior: L (m, m), the factor of B (m, m) and the weights of the mean (m, p).

    ``trend`` are the products M of targets and trend functions, if there are any.
    """

    factor: Array
    inner_factor: Array
    weights: Array
    trend: Array = NONE


@dataclass(frozen=True)
class SGPR(Collapsed):
    """Settings of the collapsed sparse GP.

    Parameters
    ----------
    jitter : float
        Added to the diagonal of K(Z, Z), relative to its mean; raised, with a logged warning,
        when the factorisation fails.
    tile_rows : int
        Rows per tile of the kernel.
    trend : int
        Number of trend functions, which follow the targets as further columns.
    """

    jitter: float = 1e-8
    tile_rows: int = collapsed.TILE_ROWS
    trend: int = field(default=0, repr=False)

    name: ClassVar[str] = "sgpr"
    state_type: ClassVar[Any] = State
    takes_trend: ClassVar[bool] = True

    def posterior(self, prepared: Prepared, total: Stats) -> State:
        """Return the posterior of the inducing values, [OPT] eq. 12 in the whitened basis."""
        s, L = prepared.theta.noise_variance, prepared.factor
        _, inner, beta, M = collapsed.posterior(s, total)
        return State(L, inner, linalg.solve_lower_t(L, beta / s), M if self.trend else NONE)

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the posterior of f, [OPT] eq. 12.

        The variance is k** - |L^-1 k|^2 + |(L L_B)^-1 k|^2, in that order of cancellation.
        """
        L, inner, weights, _ = state

        def spread(A: Array) -> Array:
            return linalg.whiten_rows(inner.astype(A.dtype, copy=False), A, overwrite=True)

        return posterior(theta.kernel, inputs_of(theta), L, weights, X, want, spread)

    def loo(self, theta: Theta, state: State, block: Block, near: Any = None) -> Moments:
        """Return predictions of training rows from the sums without them.

        Of B less the row's own a a' / d, by Sherman & Morrison (1950); L, the inducing inputs and
        the hyper-parameters are those of all rows.
        """
        X = block.X.astype(np.float64)
        K = theta.kernel(X, inputs_of(theta).astype(np.float64))
        mean, noise = K @ state.weights, variances(theta.noise_variance, block.noise)
        A = linalg.whiten_rows(state.factor, K, overwrite=True)
        rest = theta.kernel.diag(X) - linalg.row_squares(A)
        spread = linalg.row_squares(linalg.whiten_rows(state.inner_factor, A, overwrite=True))
        found = less_trend(block.y, without(block.y, mean, spread, noise), state.trend, self.trend)
        return found._replace(variance=found.variance + namespace(rest).maximum(rest, 0.0))

    def paths(self, theta: Theta, state: State, draw: PathDraw) -> tuple[Paths, PathState]:
        """Return sample paths, whose whitened inducing values have covariance B^-1."""

        def root(normal: Array) -> Array:
            return linalg.solve_lower_t(state.inner_factor, normal)

        return by_inducing(draw, inputs_of(theta), state.factor, state.weights, root)

    def exact_limit(self, theta: Theta, X: Array) -> tuple[SGPR, Theta]:
        """Return the settings and hyper-parameters with Z = X, without jitter."""
        return replace(self, jitter=0.0), replace(theta, inputs=X)

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint of the sums, and of two matrices for prediction."""
        return collapsed.footprint(shape, self.tile_rows)
