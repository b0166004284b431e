"""Inducing or support inputs of a method: K(Z, Z), its factor and its gradient.

Letters: Z inputs (m, d), L L' = K(Z, Z) + jitter, A' = K(X, Z) L^-T, the whitened
tile by rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from daskgp.arrays import linalg
from daskgp.arrays.backend import namespace, number
from daskgp.models.values import Theta, ThetaBar
from daskgp.typing import Array


class Prepared(NamedTuple):
    """Hyper-parameters and the Cholesky factor L (m, m) of K(Z, Z)."""

    theta: Theta
    factor: Array
    jitter: float


def prepare(theta: Theta, jitter: float) -> Prepared:
    """Compute the Cholesky factor of K(Z, Z), in float64 whatever dtype the tiles use."""
    Z = inputs_of(theta).astype(np.float64)
    factor, used = linalg.cholesky(theta.kernel(Z), jitter, overwrite=True)
    return Prepared(theta, factor, used)


def inputs_of(theta: Theta) -> Array:
    """Return the inducing or support inputs (m, d)."""
    assert theta.inputs is not None, "this method needs inducing or support inputs"
    return theta.inputs


def inputs_vjp(prepared: Prepared, K_bar: Array) -> ThetaBar:
    """Return the gradient through K(Z, Z) and its jitter, which scales with the mean diagonal."""
    kernel, Z = prepared.theta.kernel, inputs_of(prepared.theta).astype(np.float64)
    _, pull = kernel.pullback(Z)
    through = pull(K_bar)
    share = prepared.jitter * number(K_bar.trace()) / len(Z)
    diagonal = kernel.diag_vjp(Z, namespace(Z).full(len(Z), share))
    parameters = through.log_parameters + diagonal.log_parameters
    return ThetaBar(parameters, 0.0, through.X + diagonal.X)
