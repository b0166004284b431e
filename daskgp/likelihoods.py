"""Likelihoods p(y | f) of a latent GP value f, and their expectations under Gaussians of f.

Letters: y and mean (n, p), variance (n,) of the Gaussian q(f) = N(mean, variance) that the p
outputs share, or one per entry, (n, p); x and w the nodes and weights of Gauss-Hermite
quadrature, f = mean + sqrt(2 variance) x.  Everything is computed in float64, which costs little
compared with a kernel tile, and stays on the device of its arguments.
"""

# ruff: noqa: D102 - the base class documents what its likelihoods override

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy import special as host_special

from daskgp.arrays.backend import namespace, number, special
from daskgp.checks import shown
from daskgp.errors import InputError, SettingError
from daskgp.typing import Array

NODES = 32
"""Nodes of Gauss-Hermite quadrature."""
MIXTURE_NODES = 128
"""Nodes over the log-precision of a Student-t."""
NOISE_BOUNDS = (1e-6, 1e2)
SCALE_BOUNDS = (1e-3, 1e2)
DF_BOUNDS = (2.1, 1e3)
LEAST_VARIANCE = 1e-12
"""Smaller variances of f count as this one: derivatives divide by its square root."""
LEAST_SHARE = 1e-6
"""Lower limit of the share of ones, the share of zeros, and the mean count."""
MOST_LOG_RATE = 50.0
"""Expected rates grow linearly from here on: they and their slopes stay finite in float32."""

_LOG_2PI = math.log(2 * math.pi)


class Expectation(NamedTuple):
    """Sum over entries of E_q[log p(y | f)] and its derivatives.

    ``by_mean`` and ``by_variance`` (n, p) are those with respect to the mean and variance of each
    entry; ``by_log`` (k,), float64 on the host, is with respect to the logs of the parameters.

    Examples
    --------
    >>> y, mean, variance = np.array([[1.0]]), np.array([[1.0]]), np.array([0.1])
    >>> found = Gaussian(0.1).expected(y, mean, variance)
    >>> found.by_mean, found.by_variance
    (array([[0.]]), array([[-5.]]))
    """

    value: float
    by_mean: Array
    by_variance: Array
    by_log: np.ndarray


class Likelihood(ABC):
    """Distribution of an observation y given the latent value f.

    Examples
    --------
    >>> likelihood = by_name("poisson")
    >>> isinstance(likelihood, Likelihood), likelihood.discrete
    (True, True)
    """

    discrete: ClassVar[bool] = False
    """True if y is coded, not measured, and is not to be standardised."""
    log_concave: ClassVar[bool] = True
    """True if log p(y | f) is concave in f; then no ``by_variance`` is positive."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in settings and stores, which ``by_name`` takes.

        Examples
        --------
        >>> Bernoulli("logit").name
        'bernoulli-logit'
        """

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that are learned.

        Examples
        --------
        >>> StudentT().parameter_names, Poisson().parameter_names
        (('scale', 'df'), ())
        """
        return ()

    @property
    def log_parameters(self) -> np.ndarray:
        """Logarithms of the parameters, (k,) float64.

        Examples
        --------
        >>> np.exp(StudentT(scale=0.5, df=4.0).log_parameters)
        array([0.5, 4. ])
        """
        return np.zeros(0)

    @property
    def log_bounds(self) -> np.ndarray:
        """Bounds of the logarithms, (k, 2).

        Examples
        --------
        >>> np.exp(Gaussian().log_bounds)
        array([[1.e-06, 1.e+02]])
        """
        return np.zeros((0, 2))

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Likelihood:
        """Return the same likelihood with other parameters; raise InputError if they are not k.

        Examples
        --------
        >>> Gaussian(0.1).with_log_parameters([0.0])
        Gaussian(variance=1.0)
        """
        self._check_count(values)
        return self

    @abstractmethod
    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        """Return the expected log-likelihood under q, with the exact derivatives of its quadrature.

        Parameters
        ----------
        y, mean : (n, p) array
            Observed values, none missing, and means of f.
        variance : (n,) array
            Variances of f, shared by all outputs.

        Examples
        --------
        >>> y, mean, variance = np.array([[3.0]]), np.array([[1.0]]), np.array([0.2])
        >>> round(Poisson().expected(y, mean, variance).value, 4)
        -1.7959
        """

    @abstractmethod
    def log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        """Return the log of the integral of p(y | f) q(f) df, (n, p); NaN where y is.

        Examples
        --------
        >>> y, mean, variance = np.array([[1.0]]), np.array([[0.0]]), np.array([1.0])
        >>> np.exp(Bernoulli().log_density(y, mean, variance))
        array([[0.5]])
        """

    @abstractmethod
    def response(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the mean and variance, both (n, p), of a new observation y.

        Examples
        --------
        >>> mean, variance = Gaussian(0.1).response(np.array([[2.0]]), np.array([0.3]))
        >>> mean, variance
        (array([[2.]]), array([[0.4]]))
        """

    def of_rows(self, noise: Array | None) -> Likelihood:
        """Return the likelihood of rows with noise variances of their own, by ``Block.noise``.

        Examples
        --------
        >>> noise = np.array([[1.0, 0.0], [0.0, 0.5]])  # that of the model, and an own one
        >>> rows = Gaussian(0.1).of_rows(noise)
        >>> rows.log_density(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros(2)).round(4)
        array([[ 0.2324],
               [-0.5724]])
        """
        if noise is None:
            return self
        raise SettingError(
            f"the {self.name} likelihood has no noise variance per row: leave them out "
            "(y_variance=False and sample_weight=False where a store has them), or choose "
            "likelihood='gaussian'"
        )

    def supports(self, y: Any) -> Any:
        """Return True for each entry that can be observed, and for missing ones (NaN).

        Examples
        --------
        >>> Poisson().supports(np.array([2.0, 0.5, -1.0, np.nan]))
        array([ True, False, False,  True])
        """
        return np.isfinite(y) | np.isnan(y)

    def check(self, y: np.ndarray, names: Sequence[str]) -> None:
        """Raise InputError, naming the target, if a value of y (n, p) cannot be observed.

        Examples
        --------
        >>> Bernoulli().check(np.array([[0.0], [2.0]]), ["class"])
        Traceback (most recent call last):
        daskgp.errors.InputError: target 'class' holds 2, but the bernoulli likelihood takes ...
        """
        bad = ~self.supports(y)
        if not bad.any():
            return
        column = int(np.argmax(bad.any(axis=0)))
        value, count = y[bad[:, column], column][0], bad[:, column].sum()
        others = f" and {count - 1} others of the kind" if count > 1 else ""
        raise InputError(
            f"target {names[column]!r} holds {float(value):g}{others}, but the {self.name} "
            f"likelihood takes {self._takes}"
        )

    def refuse(self, count: int) -> None:
        """Raise InputError if ``count`` values, more than 0, cannot be observed.

        Examples
        --------
        >>> Poisson().refuse(0)
        >>> Poisson().refuse(2)
        Traceback (most recent call last):
        daskgp.errors.InputError: 2 targets are not possible observations: ...
        """
        if count:
            raise InputError(
                f"{count} targets are not possible observations: the {self.name} likelihood takes "
                f"{self._takes}"
            )

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        """Return latent constants (p,) that give y the mean y_mean; 0 where y is standardised.

        Examples
        --------
        >>> Poisson().offset(np.array([1.0])), Bernoulli().offset(np.array([0.5]))
        (array([0.]), array([0.]))
        """
        return np.zeros(len(y_mean))

    _takes: ClassVar[str] = "finite numbers: leave the others out"

    def _check_count(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        values = np.asarray(values, dtype=np.float64)
        names = self.parameter_names
        if values.shape != (len(names),):
            raise InputError(
                f"{len(names)} log-parameters are needed ({', '.join(names) or 'none'}), "
                f"not an array of shape {values.shape}"
            )
        return values


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Gaussian noise, y = f + N(0, variance).

    Raises
    ------
    SettingError
        If the variance is not positive and finite.

    Examples
    --------
    >>> y, mean, variance = np.array([[1.0]]), np.array([[0.5]]), np.array([0.2])
    >>> round(Gaussian(0.1).expected(y, mean, variance).value, 6)
    -2.017646
    """

    variance: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _positive(self.variance, "variance of Gaussian"))

    @property
    def name(self) -> str:
        return "gaussian"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("noise_variance",)

    @property
    def log_parameters(self) -> np.ndarray:
        return np.log([self.variance])

    @property
    def log_bounds(self) -> np.ndarray:
        return np.log([NOISE_BOUNDS])

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Gaussian:
        return Gaussian(float(np.exp(self._check_count(values)[0])))

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = _arguments(y, mean, variance)
        residual = y - mean
        squares = number(((residual**2 + variance) / self.variance).sum())
        value = -0.5 * (y.size * (_LOG_2PI + math.log(self.variance)) + squares)
        by_variance = xp.full(y.shape, -0.5 / self.variance)
        by_log = np.array([0.5 * (squares - y.size)])
        return Expectation(value, residual / self.variance, by_variance, by_log)

    def log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        xp, y, mean, variance = _arguments(y, mean, variance)
        total = variance + self.variance
        return -0.5 * (_LOG_2PI + xp.log(total) + (y - mean) ** 2 / total)

    def response(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        _, mean, _, variance = _arguments(mean, mean, variance)
        return mean, variance + self.variance

    def of_rows(self, noise: Array | None) -> Gaussian:
        return self if noise is None else _GaussianRows(self.variance, noise)


@dataclass(frozen=True, eq=False)
class _GaussianRows(Gaussian):
    """Gaussian noise of variance d = u s + e in each row, with (u, e) a row of ``noise`` (n, 2)."""

    noise: Any = None

    @property
    def _variances(self) -> Array:
        return self.variance * self.noise[:, :1] + self.noise[:, 1:]

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = _arguments(y, mean, variance)
        own, residual = self._variances, y - mean
        squares = (residual**2 + variance) / own
        value = -0.5 * number((_LOG_2PI + xp.log(own) + squares).sum())
        share = self.variance * self.noise[:, :1] / own
        by_log = np.array([0.5 * number((share * (squares - 1.0)).sum())])
        by_variance = xp.broadcast_to(-0.5 / own, y.shape)
        return Expectation(value, residual / own, by_variance, by_log)

    def log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        xp, y, mean, variance = _arguments(y, mean, variance)
        total = variance + self._variances
        return -0.5 * (_LOG_2PI + xp.log(total) + (y - mean) ** 2 / total)


@dataclass(frozen=True)
class StudentT(Likelihood):
    """Heavy-tailed noise, robust to outliers: y = f + scale * t with df degrees of freedom.

    Raises
    ------
    SettingError
        If the scale is not positive and finite, or df is 2 or less, so without a variance.

    Examples
    --------
    >>> StudentT(scale=0.5, df=4.0).response(np.array([[1.0]]), np.array([0.1]))[1]
    array([[0.6]])
    """

    scale: float = 0.3
    df: float = 4.0

    log_concave: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _positive(self.scale, "scale of StudentT"))
        object.__setattr__(self, "df", _positive(self.df, "df of StudentT"))
        if self.df <= 2:
            raise SettingError(
                f"df of StudentT is {self.df:g}, but the variance is finite above 2 only: "
                f"take {DF_BOUNDS[0]} or more"
            )

    @property
    def name(self) -> str:
        return "student-t"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("scale", "df")

    @property
    def log_parameters(self) -> np.ndarray:
        return np.log([self.scale, self.df])

    @property
    def log_bounds(self) -> np.ndarray:
        return np.log([SCALE_BOUNDS, DF_BOUNDS])

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> StudentT:
        scale, df = np.exp(self._check_count(values))
        return StudentT(float(scale), float(df))

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = _arguments(y, mean, variance)
        df, width = self.df, self.df * self.scale**2

        def terms(f: Array) -> tuple[Array, ...]:
            residual = y - f
            ratio = residual**2 / width
            return (df + 1) / width * residual / (1 + ratio), xp.log1p(ratio), ratio / (1 + ratio)

        by_mean, by_variance, (logs, shares) = _averages(terms, xp, mean, variance)
        logarithm, share, n = number(logs.sum()), number(shares.sum()), y.size
        psi = host_special.psi
        scale_bar = (df + 1) * share - n
        df_bar = 0.5 * n * (df * (psi((df + 1) / 2) - psi(df / 2)) - 1)
        df_bar += 0.5 * ((df + 1) * share - df * logarithm)
        value = n * self._log_peak() - 0.5 * (df + 1) * logarithm
        return Expectation(value, by_mean, by_variance, np.array([scale_bar, df_bar]))

    def log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        # Given its precision e^t, which is Gamma distributed, a Student-t is Gaussian: f is
        # integrated in closed form, at any scale and variance, and t by the trapezoidal rule.
        xp, y, mean, variance = _arguments(y, mean, variance)
        half = 0.5 * self.df
        squares = (y - mean) ** 2
        # far beyond the prior's peak at 0 and the posterior's below it, on either side
        low = -xp.log1p(squares / (self.df * self.scale**2)) - 20 / half - math.sqrt(40 / half)
        high = min(math.sqrt(40 / half), 1 + math.log1p(20 / half))
        step = (high - low) / (MIXTURE_NODES - 1)

        def terms() -> Iterable[Array]:
            for i in range(MIXTURE_NODES):
                t = low + i * step
                total = variance + self.scale**2 * xp.exp(-t)
                yield half * (t - xp.exp(t)) - 0.5 * (xp.log(total) + squares / total)

        constant = half * math.log(half) - math.lgamma(half) - 0.5 * _LOG_2PI
        return _log_sum_exp(terms(), xp) + xp.log(step) + constant

    def response(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        _, mean, _, variance = _arguments(mean, mean, variance)
        return mean, variance + self.scale**2 * self.df / (self.df - 2)

    def _log_peak(self) -> float:
        gammas = math.lgamma((self.df + 1) / 2) - math.lgamma(self.df / 2)
        return gammas - 0.5 * math.log(self.df * math.pi) - math.log(self.scale)


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Two classes, y = 1 with probability Phi(f) ("probit") or 1 / (1 + e^-f) ("logit").

    Raises
    ------
    SettingError
        If the link is neither.

    Examples
    --------
    >>> Bernoulli().response(np.array([[1.0]]), np.array([0.0]))[0].round(4)
    array([[0.8413]])
    """

    link: Literal["probit", "logit"] = "probit"

    discrete: ClassVar[bool] = True
    _takes: ClassVar[str] = "only 0 and 1: code the two classes as 0 and 1"

    def __post_init__(self) -> None:
        if self.link not in ("probit", "logit"):
            raise SettingError(
                f"link of Bernoulli must be 'probit' or 'logit', not {shown(self.link)}"
            )

    @property
    def name(self) -> str:
        return "bernoulli" if self.link == "probit" else "bernoulli-logit"

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = _arguments(y, mean, variance)
        functions, sign = special(xp), 2 * y - 1

        def terms(f: Array) -> tuple[Array, ...]:
            f = sign * f
            if self.link == "logit":
                return sign * functions.expit(-f), _log_expit(f, xp)
            # density over distribution function, without underflow of either in the tails
            slope = math.sqrt(2 / math.pi) / functions.erfcx(-math.sqrt(0.5) * f)
            return sign * slope, functions.log_ndtr(f)

        by_mean, by_variance, (logs,) = _averages(terms, xp, mean, variance)
        by_variance = xp.minimum(by_variance, 0)  # rounding, where log p is nearly linear
        return Expectation(number(logs.sum()), by_mean, by_variance, np.zeros(0))

    def log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        xp, y, mean, variance = _arguments(y, mean, variance)
        mean = (2 * y - 1) * mean
        if self.link == "probit":
            return special(xp).log_ndtr(mean / xp.sqrt(1 + variance))
        spread = xp.sqrt(2 * variance)
        terms = (math.log(w) + _log_expit(mean + x * spread, xp) for x, w in _hermite())
        return _log_sum_exp(terms, xp)

    def response(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        xp, mean, _, variance = _arguments(mean, mean, variance)
        if self.link == "probit":
            scaled, ndtr = mean / xp.sqrt(1 + variance), special(xp).ndtr
            one, zero = ndtr(scaled), ndtr(-scaled)
        else:
            expit, spread = special(xp).expit, xp.sqrt(2 * variance)
            one = sum(w * expit(mean + x * spread) for x, w in _hermite())
            zero = sum(w * expit(x * spread - mean) for x, w in _hermite())
        return one, one * zero

    def supports(self, y: Any) -> Any:
        return (y == 0) | (y == 1) | np.isnan(y)

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        share = np.clip(y_mean, LEAST_SHARE, 1 - LEAST_SHARE).astype(np.float64)
        return host_special.ndtri(share) if self.link == "probit" else host_special.logit(share)


@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts, y ~ Poisson(e^f).

    Examples
    --------
    >>> Poisson().response(np.array([[0.0]]), np.array([2.0]))[0].round(4)
    array([[2.7183]])
    """

    discrete: ClassVar[bool] = True
    _takes: ClassVar[str] = "whole numbers of at least 0: give counts, or take another likelihood"

    @property
    def name(self) -> str:
        return "poisson"

    def expected(self, y: Array, mean: Array, variance: Array) -> Expectation:
        xp, y, mean, variance = _arguments(y, mean, variance)
        log_rate = mean + 0.5 * variance
        slope = xp.exp(xp.minimum(log_rate, MOST_LOG_RATE))
        rate = slope * (1 + xp.maximum(log_rate - MOST_LOG_RATE, 0))
        value = number((y * mean - rate - special(xp).gammaln(y + 1)).sum())
        return Expectation(value, y - slope, -0.5 * slope, np.zeros(0))

    def log_density(self, y: Array, mean: Array, variance: Array) -> Array:
        # p(y | f) of a large count can be far narrower than q, so the nodes are those of the
        # Gaussian at the mode of p(y | f) q(f).  With e^l = variance e^f the mode has
        # l + e^l = mean + variance y + log variance, convex in l and solved by Newton's method.
        xp, y, mean, variance = _arguments(y, mean, variance)
        log_variance = xp.log(variance)
        right = mean + variance * y + log_variance
        root = xp.where(right > 1, xp.log(xp.maximum(right, 1)), right)
        for _ in range(6):
            grown = xp.exp(root)
            root = root - (root + grown - right) / (1 + grown)
        shrink = 1 / xp.sqrt(1 + xp.exp(root))
        spread = xp.sqrt(2 * variance)
        shift = (root - log_variance - mean) / spread

        def terms() -> Iterable[Array]:
            for x, w in _hermite():
                z = shift + x * shrink
                f = mean + z * spread
                yield math.log(w) + x**2 - z**2 + y * f - xp.exp(xp.minimum(f, 700))

        return _log_sum_exp(terms(), xp) + xp.log(shrink) - special(xp).gammaln(y + 1)

    def response(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        xp, mean, _, variance = _arguments(mean, mean, variance)
        rate = xp.exp(xp.minimum(mean + 0.5 * variance, 200))  # its square is finite too
        return rate, rate + rate**2 * xp.expm1(xp.minimum(variance, 200))

    def supports(self, y: Any) -> Any:
        return (np.isfinite(y) & (y >= 0) & (y == np.rint(y))) | np.isnan(y)

    def offset(self, y_mean: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(y_mean, LEAST_SHARE)).astype(np.float64)


_REGISTRY: dict[str, Callable[[], Likelihood]] = {
    "gaussian": Gaussian,
    "student-t": StudentT,
    "bernoulli": Bernoulli,
    "bernoulli-logit": lambda: Bernoulli("logit"),
    "poisson": Poisson,
}

NAMES = tuple(_REGISTRY)


def by_name(name: str, log_parameters: Sequence[float] | np.ndarray | None = None) -> Likelihood:
    """Return the likelihood registered under a name, with its defaults if no parameters are given.

    Raises
    ------
    SettingError
        If no likelihood has that name; the message lists the known names.
    InputError
        If the number of parameters is not that of the likelihood.

    Examples
    --------
    >>> by_name("student-t", [0.0, np.log(3.0)])
    StudentT(scale=1.0, df=3.0...)
    """
    if name not in _REGISTRY:
        raise SettingError(f"unknown likelihood {name!r}: choose one of {', '.join(_REGISTRY)}")
    likelihood = _REGISTRY[name]()
    return likelihood if log_parameters is None else likelihood.with_log_parameters(log_parameters)


def _positive(value: Any, name: str) -> float:
    """Return a positive finite number; raise SettingError for anything else."""
    if isinstance(value, bool | str) or not np.isscalar(value):
        raise SettingError(f"{name} must be a positive number, not {shown(value)}")
    number = float(value)  # type: ignore[arg-type]
    if not (math.isfinite(number) and number > 0):
        raise SettingError(f"{name} must be positive and finite, not {shown(value)}")
    return number


def _arguments(y: Array, mean: Array, variance: Array) -> tuple[Any, Array, Array, Array]:
    """Return the array module and the arguments in float64, variances broadcast to the means."""
    xp = namespace(y, mean, variance)
    y, mean, variance = (a.astype(np.float64, copy=False) for a in (y, mean, variance))
    if variance.ndim < mean.ndim:
        variance = variance[:, None]
    return xp, y, mean, xp.broadcast_to(xp.maximum(variance, LEAST_VARIANCE), mean.shape)


@cache
def _hermite() -> tuple[tuple[float, float], ...]:
    """Return nodes and weights of Gauss-Hermite quadrature, the weights adding up to 1."""
    nodes, weights = np.polynomial.hermite.hermgauss(NODES)
    return tuple(zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True))


def _averages(
    terms: Callable[[Array], tuple[Array, ...]], xp: Any, mean: Array, variance: Array
) -> tuple[Array, Array, list[Array]]:
    """Average terms of f under q by quadrature; the first is the slope of a function of f.

    Returned are that function's derivatives with respect to mean and variance, and the averages of
    the other terms.  The nodes are taken one at a time, so that no array is larger than the
    arguments.
    """
    spread = xp.sqrt(2 * variance)
    totals: list[Array] = []
    by_spread: Array = 0.0
    for x, w in _hermite():
        values = terms(mean + x * spread)
        by_spread = by_spread + w * x * values[0]
        weighted = [w * term for term in values]
        totals = [t + u for t, u in zip(totals, weighted, strict=True)] if totals else weighted
    return totals[0], by_spread / spread, totals[1:]


def _log_sum_exp(terms: Iterable[Array], xp: Any) -> Array:
    """Return the log of the sum of exponentials, taking the terms one at a time."""
    rest = iter(terms)
    top = next(rest)
    total = xp.ones_like(top)
    for term in rest:
        above = xp.maximum(top, term)
        total = total * xp.exp(top - above) + xp.exp(term - above)
        top = above
    return top + xp.log(total)


def _log_expit(f: Array, xp: Any) -> Array:
    return xp.minimum(f, 0) - xp.log1p(xp.exp(-xp.abs(f)))
