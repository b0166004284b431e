"""Inducing functions: their points, their matrices, and the gradients through these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from daskgp.arrays.backend import namespace
from daskgp.kernels import Kernel
from daskgp.typing import Array


class Points(NamedTuple):
    """Locations of inducing functions, or a gradient with respect to them.

    ``inputs`` (m, d); ``log_scales`` (m, d) are the logarithms of c in l = s c, of shape (0, d)
    if the functions are the latent function itself.
    """

    inputs: Array
    log_scales: Array


class Through(NamedTuple):
    """Gradient of an objective through covariances of inducing functions.

    ``log_parameters`` (k,), of the kernel, is float64 on the host; the rest have the dtype and
    device of the inputs.  ``others``, for the second points, and ``weights`` (m, t) are None if
    there are none.
    """

    log_parameters: np.ndarray
    points: Points
    others: Points | None
    weights: Array | None


class Pull(Protocol):
    """Function from a tile's derivative K_bar to the gradient; may be called more than once."""

    def __call__(self, K_bar: Array, overwrite: bool = False) -> Through:
        """Return the gradient; ``overwrite`` allows K_bar's memory to be reused."""


@dataclass(frozen=True)
class Basis(ABC):
    """A kind of inducing function.

    Parameters
    ----------
    kernel : Kernel
        Covariance of the latent function f.
    """

    kernel: Kernel

    @abstractmethod
    def own(self, P: Points) -> Array:
        """Return the variances (m,) of the functions, the diagonal of C[P, P]."""

    @abstractmethod
    def values(self, P: Points, X: Array) -> tuple[Array, Pull]:
        """Return C[f(X), P] (n, m), read-only, and its pullback from derivative to gradient."""

    @abstractmethod
    def gram(self, P: Points) -> tuple[Array, Pull]:
        """Return C[P, P] (m, m), symmetric and read-only, and its pullback.

        The pullback takes any derivative with respect to C[P, P] to the gradient.
        """

    @abstractmethod
    def mixed(self, P: Points, weights: Array, X: Array) -> Array:
        """Return weights' C[P, f(X)] (t, n) for weights (m, t), without keeping the tile."""

    def spread(self, P: Points, X: Array, G: Array) -> Array:
        """Return C[P, f(X)] G (m, t) for G (n, t): the gradient of ``mixed`` for weights alone."""
        xp = namespace(X)
        weights = xp.zeros((len(P.inputs), G.shape[1]), X.dtype)
        products = self.mixed_vjp(P, weights, X, G.T).weights
        assert products is not None
        return products

    @abstractmethod
    def mixed_vjp(self, P: Points, weights: Array, X: Array, F_bar: Array) -> Through:
        """Return the gradient of sum(F_bar * mixed(P, weights, X)) with F_bar (t, n) fixed."""

    @abstractmethod
    def among(self, P: Points, weights: Array, Q: Points) -> Array:
        """Return weights' C[P, Q] (t, q) for weights (m, t), without keeping the tile."""

    @abstractmethod
    def among_vjp(self, P: Points, weights: Array, Q: Points, F_bar: Array) -> Through:
        """Return the gradient of sum(F_bar * among(P, weights, Q)) with F_bar (t, q) fixed."""
