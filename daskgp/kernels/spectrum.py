"""Spectra of kernels: angular frequencies of random cosines whose covariance is a kernel.

By Bochner's theorem a stationary kernel is v E[cos w'(x - z)], with w from its spectral density.
The density of a product is the convolution of those of its factors, so the frequencies of a product
are sums of those of its factors; a sum of kernels has the features of its parts side by side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from daskgp.errors import SettingError
from daskgp.kernels.averaged import averages
from daskgp.kernels.base import Kernel
from daskgp.kernels.checks import flat, one_if_open
from daskgp.kernels.compose import Constant, Product, Sum, tables
from daskgp.kernels.linear import Linear
from daskgp.kernels.periodic import Periodic
from daskgp.kernels.rotated import Rotated
from daskgp.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic

FREEDOM: dict[type[Kernel], float] = {RBF: np.inf, Matern12: 1.0, Matern32: 3.0, Matern52: 5.0}
"""Degrees of freedom 2 nu of the Student t that is a kernel's spectral density; RBF: normal."""
RAREST = 1e-6
"""Share of the largest frequencies of a spectrum that one draw stands for."""


def check_spectrum(kernel: Kernel) -> None:
    """Raise SettingError if spectral points of a kernel cannot be trained."""
    instead = "choose VecchiaGP, LMA, SGPR or ExactGP, or leave it out"
    if next(averages(kernel), None) is not None:
        raise SettingError(
            "averages over footprints (footprint=, or Averaged in the kernel) have no spectral "
            f"points here: {instead}"
        )
    if tables(kernel):
        raise SettingError(
            f"{type(tables(kernel)[0]).__name__} is over categories, which have no spectral points "
            f"here: {instead}"
        )
    if type(kernel) not in FREEDOM:
        raise SettingError(
            f"{type(kernel).__name__} has no spectral points here: choose one of "
            f"{', '.join(known.__name__ for known in FREEDOM)}"
        )


def sample_spectrum(kernel: Kernel, m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Draw spectral points from the spectral density of a kernel of unit lengthscale.

    Parameters
    ----------
    kernel : Kernel
        RBF, Matern12, Matern32 or Matern52; its hyper-parameters do not matter.
    m : int
        Number of points.
    d : int
        Number of columns of the inputs.
    rng : numpy Generator

    Returns
    -------
    ndarray (m, d)
        Angular frequencies; 0 in columns that the kernel does not use.

    Raises
    ------
    SettingError
        If the kernel is another one.
    """
    check_spectrum(kernel)
    freedom = FREEDOM[type(kernel)]
    points = _normal(kernel, m, d, rng)
    if np.isfinite(freedom):
        points /= np.sqrt(rng.chisquare(freedom, (m, 1)) / freedom)
    return points


def columns_of(kernel: Any, d: int) -> list[int]:
    """Return the columns, of d, that a kernel uses."""
    kernel.diag(np.zeros((1, d)))  # checks that they exist
    return list(range(d)) if kernel.active_dims is None else flat(kernel.active_dims)


def inverse_lengthscales(kernel: Any, d: int) -> np.ndarray:
    """Return 1 / lengthscale of every column (d,), 0 where the kernel does not use it."""
    inverse, columns = np.zeros(d), columns_of(kernel, d)
    inverse[columns] = 1.0 / kernel.per_column(len(columns))
    return inverse


def random_features(
    kernel: Kernel, m: int, d: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw features whose inner product is a kernel on average over the draws.

    They are a [cos Xw', sin Xw'] for frequencies w of amplitude a, and X s' for slopes s of linear
    kernels.  The inner product of m frequencies misses a stationary kernel of variance v by up to
    v / sqrt(m), as a standard deviation over the draws; far less at short distances and in one
    column.  High frequencies of a kernel that stands alone are drawn more often than others, with
    smaller amplitudes: where data determine what is smooth, these few are all that is left.

    Parameters
    ----------
    kernel : Kernel
        Sum of products of RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic and
        Constant; Linear may be a term of the sum.  Parts may be Rotated.
    m : int
        Number of frequencies of each term of the sum.
    d : int
        Number of columns of the inputs.
    rng : numpy Generator

    Returns
    -------
    frequencies : ndarray (q, d)
    amplitudes : ndarray (q,)
    slopes : ndarray (r, d)

    Raises
    ------
    SettingError
        If the kernel has no such features.

    Examples
    --------
    >>> kernel, rng = RBF(2.0, variance=3.0), np.random.default_rng(0)
    >>> w, a, _ = random_features(kernel, 100_000, 1, rng)
    >>> bool(abs((a**2 * np.cos(w[:, 0])).sum() - kernel([[0.0]], [[1.0]])[0, 0]) < 0.02)
    True
    """
    frequencies, amplitudes, slopes = [np.zeros((0, d))], [np.zeros(0)], [np.zeros((0, d))]
    for term in _terms(kernel):
        variance = math.prod(part.leaf._height for part in term if part.kind is not Linear)
        waves = [part for part in term if part.kind not in (Constant, Linear)]
        linear = [part for part in term if part.kind is Linear]
        if linear and (waves or len(linear) > 1):
            raise _refused("a product of Linear with another kernel")
        if linear:
            slopes.append(np.sqrt(variance) * linear[0].back(_slopes(linear[0].leaf, d)))
            continue
        if len(waves) == 1 and waves[0].kind in FREEDOM:
            points, shares = _in_strata(waves[0].leaf, m, d, rng)
            frequencies.append(waves[0].back(points))
            amplitudes.append(np.sqrt(variance * shares))
            continue
        number = m if waves else 1  # a constant is the cosine of frequency 0
        drawn = [part.back(_SPECTRA[part.kind](part.leaf, number, d, rng)) for part in waves]
        frequencies.append(np.sum([np.zeros((number, d)), *drawn], axis=0))
        amplitudes.append(np.full(number, np.sqrt(variance / number)))
    return np.concatenate(frequencies), np.concatenate(amplitudes), np.concatenate(slopes)


def check_features(kernel: Kernel, d: int) -> None:
    """Raise SettingError if `random_features` cannot be drawn for a kernel of d columns."""
    random_features(kernel, 1, d, np.random.default_rng(0))


class _Leaf(NamedTuple):
    """A kernel that is no sum or product, of rotated columns if there is a rotation."""

    leaf: Any
    rotated: Rotated | None

    @property
    def kind(self) -> type[Kernel]:
        return type(self.leaf)

    def back(self, points: np.ndarray) -> np.ndarray:
        """Return frequencies or slopes (m, d) of columns from those of rotated columns."""
        return points if self.rotated is None else points @ self.rotated.axes(points.shape[1])


def _terms(kernel: Any, rotated: Rotated | None = None) -> list[tuple[_Leaf, ...]]:
    """Return a kernel as a sum of products of kernels that are neither."""
    if type(kernel) is Rotated:
        return _terms(kernel.kernel, kernel)
    if type(kernel) is Sum:
        return [term for part in kernel.parts for term in _terms(part, rotated)]
    if type(kernel) is Product:
        factors = itertools.product(*(_terms(part, rotated) for part in kernel.parts))
        return [tuple(itertools.chain.from_iterable(term)) for term in factors]
    if type(kernel) not in (Constant, Linear, *_SPECTRA):
        raise _refused(type(kernel).__name__)
    return [(_Leaf(kernel, rotated),)]


def _refused(what: str) -> SettingError:
    kinds: list[type[Kernel]] = [*_SPECTRA, Constant]
    return SettingError(
        f"{what} has no spectrum to draw sample paths from: choose sums and products of "
        f"{', '.join(kind.__name__ for kind in kinds)}, sums of these with Linear, or sample_y for "
        "few rows"
    )


def _slopes(kernel: Linear, d: int) -> np.ndarray:
    """Return sqrt(v_j) e_j (r, d) for the columns j of a linear kernel."""
    variances = kernel.diag(np.eye(d))
    used = np.flatnonzero(variances)
    return np.asarray(np.sqrt(variances[used])[:, None] * np.eye(d)[used])


def _normal(kernel: Kernel, m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    columns, points = columns_of(kernel, d), np.zeros((m, d))
    points[:, columns] = rng.standard_normal((m, len(columns)))
    return points


def _stationary(kernel: Any, m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    return sample_spectrum(kernel, m, d, rng) * inverse_lengthscales(kernel, d)


def _in_strata(
    kernel: Any, m: int, d: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw frequencies (m, d) from m shells of a spectrum, and return the shells' shares (m,)."""
    limits = shells(m)
    shares = np.diff(limits)
    beyond = limits[:-1] + shares * (1.0 - rng.uniform(size=m))
    squares = squares_beyond(beyond, len(columns_of(kernel, d)), FREEDOM[type(kernel)])
    points = _normal(kernel, m, d, rng)
    points *= np.sqrt(squares / (points**2).sum(axis=1))[:, None]
    return points * inverse_lengthscales(kernel, d), shares


def shells(m: int) -> np.ndarray:
    """Return the limits (m + 1,) of m shells of a spectrum: the shares of it that lie beyond them.

    Half of them are spaced evenly, and half by their logarithms.
    """
    even = np.linspace(0.0, 1.0, m - m // 2 + 1)
    return np.sort(np.r_[even, np.geomspace(RAREST, 1.0, m // 2, endpoint=False)])


def squares_beyond(shares: np.ndarray, count: int, freedom: float) -> np.ndarray:
    """Return squared radii in units of 1 / lengthscale, beyond which lie shares of a spectrum."""
    if np.isfinite(freedom):  # squared radii of Student's t are F distributed, and so are inverses
        return np.asarray(count / special.fdtri(freedom, count, shares))
    return np.asarray(special.chdtri(count, shares))


def shares_beyond(squares: np.ndarray, count: int, freedom: float) -> np.ndarray:
    """Return the shares of a spectrum that lie beyond squared radii."""
    if np.isfinite(freedom):
        return np.asarray(special.fdtr(freedom, count, count / squares))
    return np.asarray(special.chdtrc(count, squares))


def _mixture(kernel: Any, m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Draw for a mixture of squared exponentials exp(-t r^2 / 2), t from Gamma(alpha) / alpha."""
    points = _normal(kernel, m, d, rng) * inverse_lengthscales(kernel, d)
    return np.asarray(points * np.sqrt(rng.gamma(kernel.alpha, size=(m, 1)) / kernel.alpha))


def _harmonics(kernel: Any, m: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Draw for exp((cos u - 1) / l^2), u = 2 pi (x - z) / p, in each column.

    Its Fourier coefficients are the probabilities of the difference of two Poisson numbers of mean
    1 / 2 l^2.
    """
    columns, points = columns_of(kernel, d), np.zeros((m, d))
    up, down = rng.poisson(0.5 / one_if_open(kernel.lengthscale) ** 2, (2, m, len(columns)))
    points[:, columns] = (up - down) * (2 * math.pi / one_if_open(kernel.period))
    return points


Draw = Callable[[Any, int, int, np.random.Generator], np.ndarray]
_SPECTRA: dict[type[Kernel], Draw] = {
    **dict.fromkeys(FREEDOM, _stationary),
    RationalQuadratic: _mixture,
    Periodic: _harmonics,
}
