"""Likelihoods p(y | f) of a latent GP value f, and their expectations under Gaussians of f.

Letters: y and mean (n, p), variance (n,) of the Gaussian q(f) = N(mean, variance) that the p
outputs share, or one per entry, (n, p); x and w the nodes and weights of Gauss-Hermite
quadrature, f = mean + sqrt(2 variance) x.  Everything is computed in float64, which costs little
compared with a kernel tile, and stays on the device of its arguments.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, cast

import numpy as np
from scipy.special import ndtri

from daskgp.arrays.backend import number
from daskgp.checks import logs_of, parameter, shown
from daskgp.errors import InputError, SettingError
from daskgp.likelihoods.quadrature import arguments, averages, hermite, log_sum_exp
from daskgp.typing import Array

HALVINGS = 200
"""Halvings of a bracket of a quantile; fewer where it is a whole number."""


Z_STEPS, Z_SETTLED, SCORES = 64, 1e-11, 40.0
"""Most steps towards the logarithm or the logit of a quantile, the normal score or the bracket at
which they end, and normal scores of the ends of the first bracket."""
TINY, EPS = np.finfo(np.float64).tiny, np.finfo(np.float64).epsneg
Ends: TypeAlias = tuple[np.ndarray, np.ndarray]
ToY: TypeAlias = Callable[[np.ndarray], np.ndarray]


class Expectation(NamedTuple):
    """E_q[log p(y | f)] of each entry, ``values`` (n, p), and its derivatives.

    ``by_mean`` and ``by_variance`` (n, p) are those with respect to the mean and variance of each
    entry, ``by_logs`` (k of (n, p)) with respect to the logs of the parameters.

    Examples
    --------
    >>> from daskgp.likelihoods import Gaussian
    >>> y, mean, variance = np.array([[1.0]]), np.array([[1.0]]), np.array([0.1])
    >>> found = Gaussian(0.1).expected(y, mean, variance)
    >>> found.by_mean, found.by_variance
    (array([[0.]]), array([[-5.]]))
    """

    values: Array
    by_mean: Array
    by_variance: Array
    by_logs: Sequence[Array] = ()

    @property
    def value(self) -> float:
        """Sum of ``values``.

        Examples
        --------
        >>> Expectation(np.ones((2, 1)), np.zeros((2, 1)), np.zeros((2, 1))).value
        2.0
        """
        return number(self.values.sum())

    @property
    def by_log(self) -> np.ndarray:
        """Sums (k,) of the derivatives of each parameter, float64 on the host.

        Examples
        --------
        >>> zero = np.zeros((2, 1))
        >>> Expectation(zero, zero, zero, (np.ones((2, 1)),)).by_log
        array([2.])
        """
        return np.array([number(own.sum()) for own in self.by_logs])

    def weighted(self, weight: Array | None) -> Expectation:
        """Return that of rows whose log density counts by a weight (n,); None for 1.

        Examples
        --------
        >>> zero = np.zeros((2, 1))
        >>> Expectation(np.ones((2, 1)), zero, zero).weighted(np.array([0.5, 3.0])).value
        3.5
        """
        if weight is None:
            return self
        w = weight[:, None]
        by_logs = tuple(w * own for own in self.by_logs)
        return Expectation(w * self.values, w * self.by_mean, w * self.by_variance, by_logs)


class LogDensity(NamedTuple):
    """log p(y | f) (n, p), and its first and second derivative with respect to f.

    Examples
    --------
    >>> import numpy as np
    >>> from daskgp import likelihoods
    >>> found = likelihoods.Poisson().log_p(np.array([[3.0]]), np.zeros((1, 1)))
    >>> found.slope.tolist(), found.curvature.tolist()
    ([[2.0]], [[-1.0]])
    """

    value: Array
    slope: Array
    curvature: Array


class Likelihood(ABC):
    """Distribution of an observation y given the latent value f.

    A new one is a frozen dataclass with a ``name``, ``log_p``, ``below``, ``sample`` and
    ``response``; the rest follows by quadrature over f.

    Examples
    --------
    >>> from daskgp.likelihoods import Likelihood, by_name
    >>> likelihood = by_name("poisson")
    >>> isinstance(likelihood, Likelihood), likelihood.discrete
    (True, True)
    """

    discrete: ClassVar[bool] = False
    """True if y are whole numbers; then they are not ``standardised``, unless that says so too."""
    log_concave: ClassVar[bool] = True
    """True if log p(y | f) is concave in f; then no ``by_variance`` is positive."""
    classes: ClassVar[bool] = False
    """True if y are classes, of which quantiles say nothing."""
    interval: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    """Least and largest y."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Columns that rows may have beside y: "noise" are their own noise variances, see ``of_rows``;
    others go to ``with_columns``."""
    columns_in_units: ClassVar[tuple[str, ...]] = ()
    """Columns that have the unit of y, of ``columns``."""
    sized_by_data: ClassVar[bool] = False
    """True if the number of parameters is that which ``start`` finds."""
    in_units: ClassVar[tuple[str, ...]] = ()
    """Parameters that are in the unit of y; others have none."""
    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Positive fields that are learned, and their bounds."""

    def __post_init__(self) -> None:
        for name in self._ranges:
            value = parameter(getattr(self, name), f"{name} of {type(self).__name__}")
            object.__setattr__(self, name, value)

    @property
    @abstractmethod
    def name(self) -> str:
        """Name in settings and stores, which ``by_name`` takes.

        Examples
        --------
        >>> from daskgp.likelihoods import Bernoulli
        >>> Bernoulli("logit").name
        'bernoulli-logit'
        """

    @property
    def standardised(self) -> bool:
        """True if y is standardised for a fit, as measured values are, and codes and counts not.

        Examples
        --------
        >>> from daskgp.likelihoods import Bernoulli, StudentT
        >>> StudentT().standardised, Bernoulli().standardised
        (True, False)
        """
        return not self.discrete

    @property
    def n_classes(self) -> int | None:
        """Number of classes 0, 1, ... that y may be; None where y is none.

        Examples
        --------
        >>> from daskgp.likelihoods import Bernoulli, Poisson
        >>> Bernoulli().n_classes, Poisson().n_classes
        (2, None)
        """
        return 2 if self.classes else None

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that are learned.

        Examples
        --------
        >>> from daskgp.likelihoods import Poisson, StudentT
        >>> StudentT().parameter_names, Poisson().parameter_names
        (('scale', 'df'), ())
        """
        return tuple(self._ranges)

    @property
    def log_parameters(self) -> np.ndarray:
        """Logarithms of the parameters, (k,) float64.

        Examples
        --------
        >>> from daskgp.likelihoods import StudentT
        >>> np.exp(StudentT(scale=0.5, df=4.0).log_parameters)
        array([0.5, 4. ])
        """
        return np.log([float(getattr(self, name)) for name in self._ranges])

    @property
    def log_bounds(self) -> np.ndarray:
        """Bounds of the logarithms, (k, 2).

        Examples
        --------
        >>> from daskgp.likelihoods import Gaussian
        >>> np.exp(Gaussian().log_bounds)
        array([[1.e-06, 1.e+02]])
        """
        return np.log(list(self._ranges.values())).reshape(-1, 2)

    def with_log_parameters(self, values: Sequence[float] | np.ndarray) -> Likelihood:
        """Return the same likelihood with other parameters; raise InputError if they are not k.

        Examples
        --------
        >>> from daskgp.likelihoods import Gaussian
        >>> Gaussian(0.1).with_log_parameters([0.0])
        Gaussian(variance=1.0)
        """
        found = np.exp(logs_of(self.parameter_names, values)).tolist()
        return self._with(**dict(zip(self._ranges, found, strict=True))) if found else self

    def with_n_parameters(self, count: int) -> Likelihood:
        """Return one with so many parameters, where their number follows from the data.

        Examples
        --------
        >>> from daskgp.likelihoods import by_name
        >>> by_name("ordinal").with_n_parameters(3).parameter_names
        ('gap_1', 'gap_2', 'gap_3')
        """
        return self

    def spread(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> float:
        """Return the spread of measured targets, by which they may be divided; 0 if there is none.

        Parameters
        ----------
        y, beside
            As for ``start``.

        Examples
        --------
        >>> from daskgp.likelihoods import StudentT
        >>> StudentT().spread(np.array([0.0, 10.0, 20.0, 30.0, 1e6]))
        14.826
        """
        known = y[np.isfinite(y)]
        return float(known.std()) if len(known) else 0.0

    def start(self, y: np.ndarray, beside: Mapping[str, np.ndarray] | None = None) -> Likelihood:
        """Return the likelihood that training begins from, given some targets.

        Its parameters are those of moments or frequencies of the targets, or of robust measures of
        their spread, of which a part is left to f.

        Parameters
        ----------
        y : (n,) array
            Targets; missing ones (NaN) are left out.
        beside : mapping of str to (n,) array, optional
            Values of ``columns``.

        Examples
        --------
        >>> from daskgp.likelihoods import StudentT
        >>> round(StudentT().start(np.array([10.0, 20.0, 30.0, 40.0, 1e6])).scale, 2)
        4.45
        """
        return self

    def with_scatter(self, variance: float) -> Likelihood:
        """Return the likelihood whose y scatter more, as if f had noise of this variance.

        It is itself if none of its parameters says how y scatter.

        Parameters
        ----------
        variance : float

        Examples
        --------
        >>> from daskgp.likelihoods import NegativeBinomial
        >>> NegativeBinomial(size=1e6).with_scatter(np.log(1.5)).log_parameters.round(2)
        array([0.69])
        """
        return self

    def with_columns(self, values: Mapping[str, Array]) -> Likelihood:
        """Return the likelihood of rows with these values (n,) of ``columns`` beside y.

        Columns that are left out have their defaults.  Arrays of y and of f then have the rows as
        their first axis.

        Raises
        ------
        SettingError
            If it does not take one of them.

        Examples
        --------
        >>> from daskgp.likelihoods import Poisson
        >>> rows = Poisson().with_columns({"exposure": np.array([1.0, 10.0])})
        >>> rows.response(np.zeros((2, 1)), np.zeros(2))[0]
        array([[ 1.],
               [10.]])
        """
        self._refuse_others(values)
        return self._of_columns(values) if values else self

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Columns that ``with_columns`` takes, of ``columns``.

        Examples
        --------
        >>> from daskgp.likelihoods import Gaussian, Poisson
        >>> Poisson().own_columns, Gaussian().own_columns
        (('exposure', 'offset'), ())
        """
        return tuple(name for name in self.columns if name != "noise")

    def _refuse_others(self, names: Iterable[str]) -> None:
        """Raise SettingError for a column that is not one of ``columns``."""
        own = self.own_columns
        for name in names:
            if name not in own:
                takes = f"takes {', '.join(own)} beside y" if own else "takes no columns beside y"
                raise SettingError(
                    f"the {self.name} likelihood {takes}, not {shown(name)}: leave it out, or "
                    "choose another likelihood"
                )

    def check_columns(self, y: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """Raise InputError for values (n,) of ``columns`` that do not go with y (n,).

        Rows that miss y (NaN) may have any.

        Examples
        --------
        >>> from daskgp.likelihoods import Poisson
        >>> Poisson().check_columns(np.zeros(2), {"exposure": np.array([1.0, 0.0])})
        Traceback (most recent call last):
        daskgp.errors.InputError: exposure holds 0, but the poisson likelihood takes positive ...
        """
        self._refuse_others(values)
        known = ~np.isnan(y)
        given = {name: np.asarray(own, np.float64)[known] for name, own in values.items()}
        for name, own in given.items():
            wrong, needed = self._wrong(name, np.asarray(y[known], np.float64), given)
            if wrong.any():
                others = f" and {wrong.sum() - 1} others of the kind" if wrong.sum() > 1 else ""
                raise InputError(
                    f"{name} holds {float(own[wrong][0]):g}{others}, but the {self.name} "
                    f"likelihood takes {needed}"
                )

    def _of_columns(self, values: Mapping[str, Array]) -> Likelihood:
        """Return the likelihood of rows with values of columns that it takes."""
        raise NotImplementedError(f"{type(self).__name__} has columns: override _of_columns")

    def _wrong(
        self, name: str, y: np.ndarray, given: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, str]:
        """Return which values of a column cannot be (n,), and what is needed."""
        return ~np.isfinite(given[name]), "finite numbers"

    def _with(self, **changed: Any) -> Self:
        """Return the same with other fields."""
        return cast(Self, replace(cast(Any, self), **changed))

    @abstractmethod
    def log_p(self, y: Array, f: Array) -> LogDensity:
        """Return log p(y | f) with two derivatives, at y and f (n, p).

        Examples
        --------
        >>> from daskgp.likelihoods import Poisson
        >>> Poisson().log_p(np.array([[2.0]]), np.array([[0.0]]))[1:]
        (array([[1.]]), array([[-1.]]))
        """

    def by_parameters(self, y: Array, f: Array) -> Sequence[np.ndarray]:
        """Return the derivatives (n, p) of log p(y | f) by the log of each parameter.

        One that has parameters gives them here, or overrides ``expected``.

        Examples
        --------
        >>> from daskgp.likelihoods import Poisson
        >>> Poisson().by_parameters(np.array([[2.0]]), np.array([[0.0]]))
        ()
        """
        return ()

    @abstractmethod
    def below(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        """Return P(y' <= y | f), at y and f (...).

        Examples
        --------
        >>> from daskgp.likelihoods import Poisson
        >>> Poisson().below(np.array([0.0]), np.array([0.0])).round(4)
        array([0.3679])
        """

    @abstractmethod
    def sample(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a draw of y for each f (...).

        Examples
        --------
        >>> from daskgp.likelihoods import Poisson
        >>> Poisson().sample(np.array([50.0, -50.0]), np.random.default_rng(0)) > 0
        array([ True, False])
        """

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
        >>> from daskgp.likelihoods import Poisson
        >>> y, mean, variance = np.array([[3.0]]), np.array([[1.0]]), np.array([0.2])
        >>> round(Poisson().expected(y, mean, variance).value, 4)
        -1.7959
        """
        xp, y, mean, variance = arguments(y, mean, variance)

        def terms(f: Array) -> tuple[Array, ...]:
            value, slope, _ = self.log_p(y, f)
            return slope, value, *self.by_parameters(y, f)

        by_mean, by_variance, (logs, *slopes) = averages(terms, xp, mean, variance)
        if self.log_concave:
            by_variance = xp.minimum(by_variance, 0)  # rounding, where log p is nearly linear
        return Expectation(logs, by_mean, by_variance, slopes)

    def log_density(self, y: Array, mean: Array, variance: Array) -> np.ndarray:
        """Return the log of the integral of p(y | f) q(f) df, (n, p); NaN where y is.

        Examples
        --------
        >>> from daskgp.likelihoods import Bernoulli
        >>> y, mean, variance = np.array([[1.0]]), np.array([[0.0]]), np.array([1.0])
        >>> np.exp(Bernoulli().log_density(y, mean, variance))
        array([[0.5]])
        """
        xp, y, mean, variance = arguments(y, mean, variance)
        spread = xp.sqrt(2 * variance)
        terms = (math.log(w) + self.log_p(y, mean + x * spread).value for x, w in hermite())
        return log_sum_exp(terms, xp)

    def is_density(self, y: np.ndarray) -> Any:
        """Return True where ``log_density`` of y (n, p) is that of a density, in the unit of y.

        It is that of a probability where y is known by bounds alone.

        Examples
        --------
        >>> from daskgp.likelihoods import Censored
        >>> bounds = {"lower": np.array([1.0, -np.inf]), "upper": np.array([1.0, 0.5])}
        >>> Censored().with_columns(bounds).is_density(np.array([[1.0], [0.5]]))
        array([[ True],
               [False]])
        """
        return True

    def ends(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the ends that y (n, p) is known to lie between, the lower one not included.

        They are None where y is measured in all rows.

        Examples
        --------
        >>> from daskgp.likelihoods import Gaussian, Poisson
        >>> Poisson().ends(np.array([2.0])), Gaussian().ends(np.array([2.0]))
        ((array([1.]), array([2.])), None)
        """
        return (y - 1.0, y) if self.discrete else None

    def cdf(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        """Return the integral of P(y' <= y | f) q(f) df, for means and standard deviations (...).

        Examples
        --------
        >>> from daskgp.likelihoods import Gaussian
        >>> Gaussian(0.1).cdf(np.array([1.0]), np.array([1.0]), np.array([0.5]))
        array([0.5])
        """
        spread = math.sqrt(2.0) * std
        return np.asarray(sum(w * self.below(y, mean + x * spread) for x, w in hermite()))

    def crps(self, y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability scores of y, for means and deviations of f.

        They are NaN for likelihoods that do not have it.

        Examples
        --------
        >>> from daskgp.likelihoods import StudentT
        >>> normal = StudentT(scale=0.6, df=1e3)
        >>> normal.crps(np.array([1.0]), np.array([1.0]), np.array([0.8])).round(3)
        array([0.234])
        """
        return np.full(np.shape(mean), np.nan)

    def quantile(self, level: float, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
        """Return quantiles of y, for means and standard deviations (...) of f.

        Those of whole numbers are the least that are exceeded with at most 1 - level.

        Examples
        --------
        >>> from daskgp.likelihoods import Gaussian
        >>> Gaussian(0.1).quantile(0.5, np.array([1.0]), np.array([0.5])).round(6)
        array([1.])
        """
        centre, variance = self.response(mean, std**2)
        # by Cantelli's inequality quantiles lie this far from the mean at most
        reach = np.sqrt(variance * max(level / (1.0 - level), (1.0 - level) / level))
        low = np.maximum(centre - reach, self.interval[0])
        high = np.minimum(centre + reach, self.interval[1])
        if self.discrete:
            low, high = np.floor(low) - 1.0, np.ceil(high)
        return self._bisected(level, mean, std, low, high)

    def _bisected(
        self, level: float, mean: np.ndarray, std: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> np.ndarray:
        """Return the quantile between ends of a bracket, in the units of y."""
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            if self.discrete:
                middle = np.floor(middle)
            if ((middle <= low) | (middle >= high)).all():
                break
            enough = self.cdf(middle, mean, std) >= level
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.asarray(high)

    @abstractmethod
    def response(self, mean: Array, variance: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean and variance, both (n, p), of a new observation y.

        Examples
        --------
        >>> from daskgp.likelihoods import Gaussian
        >>> mean, variance = Gaussian(0.1).response(np.array([[2.0]]), np.array([0.3]))
        >>> mean, variance
        (array([[2.]]), array([[0.4]]))
        """

    def of_rows(self, noise: Array | None) -> Likelihood:
        """Return the likelihood of rows with noise variances of their own, by ``Block.noise``.

        Examples
        --------
        >>> from daskgp.likelihoods import Gaussian
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
            "likelihood='gaussian'; VecchiaGP, LMA and SGPR take sample_weight with any likelihood"
        )

    def supports(self, y: Any) -> Any:
        """Return True for each entry that can be observed, and for missing ones (NaN).

        Examples
        --------
        >>> from daskgp.likelihoods import Poisson
        >>> Poisson().supports(np.array([2.0, 0.5, -1.0, np.nan]))
        array([ True, False, False,  True])
        """
        possible = np.isfinite(y) & (y >= self.interval[0]) & (y <= self.interval[1])
        return (possible & (y == np.rint(y)) if self.discrete else possible) | np.isnan(y)

    def check(self, y: np.ndarray, names: Sequence[str]) -> None:
        """Raise InputError, naming the target, if a value of y (n, p) cannot be observed.

        Examples
        --------
        >>> from daskgp.likelihoods import Bernoulli
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
        >>> from daskgp.likelihoods import Poisson
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
        >>> from daskgp.likelihoods import Bernoulli, Poisson
        >>> Poisson().offset(np.array([1.0])), Bernoulli().offset(np.array([0.5]))
        (array([0.]), array([0.]))
        """
        return np.zeros(len(y_mean))

    def _inverted(
        self, level: float, mean: np.ndarray, std: np.ndarray, ends: Ends, to_y: ToY
    ) -> np.ndarray:
        """Return the quantile to_y(z), with z between ends of a bracket.

        By the false position of normal scores, which are nearly linear in z, with every third step
        a halving of the bracket.
        """
        goal, shape = ndtri(level), mean.shape
        mean, std, low, high = (np.ravel(a) for a in (mean, std, *ends))
        below, above = np.full(mean.shape, -SCORES) - goal, np.full(mean.shape, SCORES) - goal
        found, left = np.empty(mean.shape), np.arange(mean.size)  # those that have not settled
        for i in range(Z_STEPS):
            at = 0.5 * (low + high) if i % 3 == 2 else low - below * (high - low) / (above - below)
            score = ndtri(np.clip(self.cdf(to_y(at), mean, std), TINY, 1.0 - EPS)) - goal
            under = score < 0
            low, below = np.where(under, at, low), np.where(under, score, below)
            high, above = np.where(under, high, at), np.where(under, above, score)
            found[left] = np.where(np.abs(below) < np.abs(above), low, high)
            moving = ~(np.minimum(np.abs(score), high - low) <= Z_SETTLED)
            if not moving.any():
                break
            low, high, below, above, mean, std, left = (
                a[moving] for a in (low, high, below, above, mean, std, left)
            )
        return to_y(found.reshape(shape))

    _takes: ClassVar[str] = "finite numbers: leave the others out"


def beside(values: Array, like: Array) -> np.ndarray:
    """Return values of rows (n,) in float64 with as many axes as an array of rows.

    Examples
    --------
    >>> beside(np.array([1, 2]), np.zeros((2, 3)))
    array([[1.],
           [2.]])
    """
    return values.astype(np.float64, copy=False).reshape(-1, *[1] * (like.ndim - 1))
