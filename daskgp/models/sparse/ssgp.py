"""Sparse-spectrum GP: Bayesian linear regression on random cosines and sines.

Letters: spectral points S (m, d), base frequencies for unit lengthscales; W = S / lengthscale
(m, d); features Phi = a [cos X W', sin X W'] (n, 2m) with a^2 = variance / m; others as in
collapsed.py, with G = Phi' Phi for S.  The covariance of f is Phi Phi', which tends to the kernel
as m grows ([SSGP]).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number, to_host
from daskgp.errors import SettingError
from daskgp.kernels.checks import one_if_open
from daskgp.kernels.spectrum import check_spectrum, columns_of, inverse_lengthscales
from daskgp.models import collapsed
from daskgp.models.additive import Additive
from daskgp.models.leave_one_out import less_trend, without
from daskgp.models.pathwise import Inducing, PathDraw, Paths, PathState, Prior, Update
from daskgp.models.trend import NONE
from daskgp.models.values import (
    TILE_ROWS,
    Block,
    Footprint,
    Moments,
    Objective,
    Scaled,
    Shape,
    Theta,
    ThetaBar,
    Want,
    variances,
)
from daskgp.typing import Array


class Prepared(NamedTuple):
    """Hyper-parameters, frequencies W (m, d) and amplitude a of the features."""

    theta: Theta
    frequencies: Array
    amplitude: float


class Stats(NamedTuple):
    """Statistics of a set of rows; sums, so they combine by adding."""

    gram: Array
    """G = Phi' Phi (2m, 2m), lower triangle only."""
    projection: Array
    """b = Phi' y (2m, p)."""
    square: Array
    """y'y (p, p)."""
    rows: float
    """Number of rows."""
    logs: float = 0.0
    """Sum of log(d / s) of rows whose noise variance d is not s; they are scaled by sqrt(s / d)."""


class Cotangent(NamedTuple):
    """Terms of a tile's gradient: dF/dPhi = Phi @ gram + y @ projection', and dF/dsquare.

    ``targets`` is their number, trend functions not counted.
    """

    gram: Array
    projection: Array
    square: Array
    targets: int


class State(NamedTuple):
    """Solved posterior of the weights: the factor of B (2m, 2m) and their mean (2m, p).

    ``trend`` are the products M of targets and trend functions, if there are any.
    """

    factor: Array
    weights: Array
    trend: Array = NONE


def frequencies(theta: Theta) -> Array:
    """Return angular frequencies W (m, d) in scaled units: spectral points over lengthscales."""
    assert theta.inputs is not None, "a sparse-spectrum GP needs spectral points"
    S = theta.inputs
    return S * namespace(S).asarray(inverse_lengthscales(theta.kernel, S.shape[1]))


@dataclass(frozen=True)
class SparseSpectrum(Additive):
    """Settings of the sparse-spectrum GP.

    Parameters
    ----------
    tile_rows : int
        Rows per tile of features.
    trend : int
        Number of trend functions, which follow the targets as further columns.
    """

    tile_rows: int = 1024
    trend: int = field(default=0, repr=False)

    name: ClassVar[str] = "ssgp"
    state_type: ClassVar[Any] = State
    takes_noise: ClassVar[bool] = True
    takes_trend: ClassVar[bool] = True
    stats_type: ClassVar[Any] = Stats

    def prepare(self, theta: Theta) -> Prepared:
        """Compute the frequencies and the amplitude of the features."""
        check_spectrum(theta.kernel)
        kernel: Any = theta.kernel
        W = frequencies(theta).astype(np.float64)
        return Prepared(theta, W, float(np.sqrt(one_if_open(kernel.variance) / len(W))))

    def local(self, prepared: Prepared, block: Block, near: Sequence[Block] = ()) -> Stats:
        """Return sums over one block's rows: 4 n m^2 operations for the lower half of Phi' Phi."""
        X, q = block.X, 2 * len(prepared.frequencies)
        tile = namespace(X).empty((min(self.tile_rows, len(X)), q))

        def features(rows: slice, root: Any) -> Array:
            Phi = _features(prepared, X[rows], tile[: rows.stop - rows.start])
            if root is not None:
                Phi *= root
            return Phi

        s = prepared.theta.noise_variance
        gram, projection, square, scaled = collapsed.sums(block, s, q, self.tile_rows, features)
        logs = 0.0 if scaled is None else scaled.logs
        return Stats(gram, projection, square, float(len(X)), logs)

    def objective(self, prepared: Prepared, total: Stats) -> Objective:
        """Return the log evidence and its adjoint.

        The features are proportional to the root of the variance, so dF/dlog v = <dF/dG, G> +
        <dF/db, b> / 2.
        """
        s = prepared.theta.noise_variance
        known = collapsed.posterior(s, total)
        value, noise, G_bar, b_bar, W, p = collapsed.evidence(s, total, known, self.trend)
        variance = number(namespace(G_bar).vdot(G_bar, known.gram))
        variance += 0.5 * number((b_bar * total.projection).sum())
        direct = _gradient(prepared.theta, np.zeros(prepared.frequencies.shape), variance)
        cotangent = Cotangent(2 * G_bar, b_bar, -0.5 / s * W, p)
        return Objective(value, direct._replace(noise=noise), cotangent)

    def local_vjp(
        self, prepared: Prepared, block: Block, cotangent: Cotangent, near: Sequence[Block] = ()
    ) -> ThetaBar:
        """Return the gradient through a block's features: 8 n m^2 operations for a cotangent."""
        X, y = block.X, block.y
        xp, noise = namespace(X), 0.0
        scaled = Scaled.of(prepared.theta.noise_variance, block)
        W_bar, m = xp.zeros(prepared.frequencies.shape), len(prepared.frequencies)
        tiles = xp.empty((2, min(self.tile_rows, len(X)), 2 * m))
        for rows in collapsed.tiles(len(X), self.tile_rows):
            tile, bar = tiles[:, : rows.stop - rows.start]
            Phi = _features(prepared, X[rows], tile)
            if scaled is None:
                xp.matmul(Phi, cotangent.gram, out=bar)
                bar += y[rows] @ cotangent.projection.T
            else:
                bar[...], more = scaled.pulled(Phi, cotangent, rows)
                noise += more
            # the derivative of cos is -sin, that of sin is cos
            bar[:, :m] *= Phi[:, m:]
            bar[:, m:] *= Phi[:, :m]
            bar[:, m:] -= bar[:, :m]
            W_bar += bar[:, m:].T @ X[rows].astype(np.float64, copy=False)
        if scaled is not None:
            noise += 0.5 * cotangent.targets * number(scaled.share.sum())
        return _gradient(prepared.theta, to_host(W_bar))._replace(noise=noise)

    def posterior(self, prepared: Prepared, total: Stats) -> State:
        """Return the posterior N(β / s, B^-1) of the weights."""
        s = prepared.theta.noise_variance
        _, factor, beta, M = collapsed.posterior(s, total)
        return State(factor, beta / s, M if self.trend else NONE)

    def misfit(self, prepared: Prepared, total: Stats) -> float | None:
        """Return y' (Phi Phi' + s I)^-1 y."""
        return collapsed.misfit(prepared.theta.noise_variance, total)

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return mean phi' β / s and covariance phi' B^-1 phi, never negative despite rounding."""
        xp, dtype, prepared = namespace(X), X.dtype, self.prepare(theta)
        Phi = _features(prepared, X, xp.empty((len(X), 2 * len(prepared.frequencies))))
        mean = (Phi @ state.weights).astype(dtype, copy=False)
        if want == "mean":
            return Moments(mean)
        C = linalg.whiten_rows(state.factor, Phi, overwrite=True)
        if want == "variance":
            return Moments(mean, variance=linalg.row_squares(C).astype(dtype, copy=False))
        return Moments(mean, covariance=(C @ C.T).astype(dtype, copy=False))

    def stands_for_rows(self, theta: Theta, state: State) -> None:
        """Return None: spectral points are frequencies."""

    def loo(self, theta: Theta, state: State, block: Block, near: Any = None) -> Moments:
        """Return predictions of training rows from the sums without them, as of B without them."""
        found = self.predict(theta, state, block.X.astype(np.float64), want="variance")
        noise = variances(theta.noise_variance, block.noise)
        left = without(block.y, found.mean, found.variance, noise)
        return less_trend(block.y, left, state.trend, self.trend)

    def paths(self, theta: Theta, state: State, draw: PathDraw) -> tuple[Paths, PathState]:
        """Return sample paths: draws β / s + L_B^-T z of the weights of the method's features.

        Raise SettingError for a number of frequencies, of which the method has its own.
        """
        if draw.n_frequencies is not None:
            raise SettingError(
                "n_frequencies belongs to methods without features of their own: the paths of "
                "SparseSpectrumGP have those of the fit"
            )
        xp, prepared = namespace(state.factor), self.prepare(theta)
        W, normal = prepared.frequencies, xp.asarray(draw.values(len(state.factor)))
        weights = draw.repeated(state.weights) + linalg.solve_lower_t(state.factor, normal)
        none = xp.zeros((0, W.shape[1]))
        prior = Prior(W, xp.full(len(W), prepared.amplitude), none, weights)
        nothing = Update(none, xp.zeros((0, draw.width)), xp.zeros(draw.width))
        return Inducing(), PathState(prior, nothing)

    def footprint(self, shape: Shape) -> Footprint:
        """Return the footprint: 12 n m^2 operations.

        A task has three tiles of features and two summaries; the client has the summary, the factor
        of prediction and four matrices of the objective.
        """
        q, p = 2 * shape.inputs, shape.targets
        stats = 8 * (q * q + q * p + p + 1)
        return Footprint(
            task=3 * 8 * min(self.tile_rows, shape.block_rows) * q + 2 * stats,
            stats=stats,
            solve=6 * 8 * q * q,
            state=8 * (q * p + shape.inputs * shape.features) + stats,
            operations=3.0 * shape.rows * q * q,
            predict=8 * q * (q + p + 2 * TILE_ROWS),
            shared=8 * q * q,
        )


def _features(prepared: Prepared, X: Array, out: Array) -> Array:
    """Write Phi (n, 2m) to ``out``: cosines and sines in X's dtype, all products in float64."""
    xp, m = namespace(X), out.shape[1] // 2
    phases = X.astype(np.float64, copy=False) @ prepared.frequencies.T
    if X.dtype == np.float32:  # whole turns are removed first: narrowing would spoil the phase
        turns = phases / (2 * np.pi)
        xp.rint(turns, out=turns)
        turns *= 2 * np.pi
        phases -= turns
        phases = phases.astype(np.float32)
    xp.cos(phases, out=out[:, :m])
    xp.sin(phases, out=out[:, m:])
    out *= prepared.amplitude
    return out


def _gradient(theta: Theta, W_bar: np.ndarray, variance: float = 0.0) -> ThetaBar:
    """Return the gradient for log-parameters and S from that for W = S / lengthscale."""
    kernel: Any = theta.kernel
    d = W_bar.shape[1]
    S_bar = W_bar * inverse_lengthscales(kernel, d)
    scales = -(S_bar * to_host(theta.inputs)).sum(axis=0)[columns_of(kernel, d)]
    return ThetaBar(np.append(variance, kernel.per_lengthscale(scales)), 0.0, S_bar)
