"""Prior distributions of hyper-parameters, in the units of the data.

A prior is a density of the logarithm of a hyper-parameter, which is what training moves: its mode
is where training would end without data.
"""

from __future__ import annotations

import ast
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from daskgp.checks import meant, positive, shown, whole
from daskgp.errors import SettingError

REGISTRY: dict[str, type[Prior]] = {}


class Prior(ABC):
    """Prior of a positive hyper-parameter.

    Examples
    --------
    >>> from daskgp import priors
    >>> prior = priors.LogNormal(100.0, sigma=0.5)
    >>> isinstance(prior, priors.Prior), str(prior)
    (True, 'lognormal(median=100.0, sigma=0.5)')
    """

    name: ClassVar[str]
    """Name in text."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        REGISTRY[cls.name] = cls

    def log_density(self, log_value: float) -> tuple[float, float]:
        """Return the log density of the logarithm of the hyper-parameter, and its derivative.

        Examples
        --------
        >>> from daskgp import priors
        >>> density, slope = priors.LogNormal(1.0).log_density(0.5)
        >>> round(density, 4), slope
        (-1.0439, -0.5)
        """
        return self._log_density(log_value)

    @abstractmethod
    def _log_density(self, log_value: float) -> tuple[float, float]: ...

    def _as_plain_numbers(self) -> None:
        """Turn numbers of NumPy into those of Python, which text shows plainly."""
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            plain = int(value) if field.name == "dims" else float(value)
            object.__setattr__(self, field.name, plain)

    def __str__(self) -> str:
        values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))  # type: ignore[arg-type]
        return f"{self.name}({', '.join(values)})"


@dataclass(frozen=True)
class LogNormal(Prior):
    """Log-normal prior.

    Parameters
    ----------
    median : float
        Median, in the units of the data.
    sigma : float
        Standard deviation of the logarithm: 95 % lies within a factor of exp(1.96 sigma).

    Examples
    --------
    >>> from daskgp import SGPR, priors
    >>> model = SGPR(prior={"lengthscale": priors.LogNormal(100.0, sigma=0.5)})
    >>> priors.LogNormal(100.0).log_density(math.log(100.0))[1] == 0  # the mode is the median
    True
    """

    median: float
    sigma: float = 1.0
    name: ClassVar[str] = "lognormal"

    def __post_init__(self) -> None:
        positive("median", self.median, squared=True)
        positive("sigma", self.sigma, squared=True)
        self._as_plain_numbers()

    def _log_density(self, log_value: float) -> tuple[float, float]:
        z = (log_value - math.log(self.median)) / self.sigma
        constant = -math.log(self.sigma) - 0.5 * math.log(2 * math.pi)
        return constant - 0.5 * z * z, -z / self.sigma


@dataclass(frozen=True)
class InverseGamma(Prior):
    """Inverse-gamma prior, which keeps a hyper-parameter away from zero.

    Parameters
    ----------
    shape : float
        Shape a; a heavy tail for small ones.
    scale : float
        Scale b, in the units of the data; the density of the logarithm is largest at b / a.

    Examples
    --------
    >>> from daskgp import priors
    >>> prior = priors.InverseGamma(shape=2.0, scale=10.0)
    >>> round(prior.log_density(math.log(5.0))[1], 12)  # the mode is scale / shape
    0.0
    """

    shape: float
    scale: float
    name: ClassVar[str] = "inversegamma"

    def __post_init__(self) -> None:
        positive("shape", self.shape, squared=True)
        positive("scale", self.scale, squared=True)
        self._as_plain_numbers()

    def _log_density(self, log_value: float) -> tuple[float, float]:
        a, log_ratio = self.shape, math.log(self.scale) - log_value
        ratio = _exp(log_ratio)
        return a * log_ratio - math.lgamma(a) - ratio, ratio - a


@dataclass(frozen=True)
class ShortRange(Prior):
    """Penalised-complexity prior of a lengthscale, which shrinks towards long ones.

    That of Fuglstad et al. (2019, eq. 6) for a Matérn field: the distance from a constant
    is penalised at a constant rate.

    Parameters
    ----------
    below : float
        Lengthscale in the units of the data.
    probability : float
        Prior probability of a lengthscale below it.
    dims : int
        Number of columns that the lengthscale serves.

    Examples
    --------
    >>> from daskgp import priors
    >>> prior = priors.ShortRange(below=10.0, probability=0.05, dims=2)
    >>> prior.log_density(math.log(100.0))[0] > prior.log_density(math.log(1.0))[0]
    True
    """

    below: float
    probability: float = 0.05
    dims: int = 1
    name: ClassVar[str] = "shortrange"

    def __post_init__(self) -> None:
        positive("below", self.below, squared=True)
        _check_probability(self.probability)
        whole("dims", self.dims, 1)
        self._as_plain_numbers()

    def _log_density(self, log_value: float) -> tuple[float, float]:
        half = 0.5 * self.dims
        rate = -math.log(self.probability)
        log_term = math.log(rate) + half * (math.log(self.below) - log_value)
        term = _exp(log_term)
        return math.log(half) + log_term - term, half * (term - 1.0)


@dataclass(frozen=True)
class LargeDeviation(Prior):
    """Penalised-complexity prior of a variance: its root is exponential (Simpson et al. 2017).

    Parameters
    ----------
    above : float
        Standard deviation, the root of the variance, in the units of the target.
    probability : float
        Prior probability of a standard deviation above it.

    Examples
    --------
    >>> from daskgp import priors
    >>> prior = priors.LargeDeviation(above=2.0, probability=0.05)
    >>> prior.log_density(math.log(1.0))[0] > prior.log_density(math.log(16.0))[0]
    True
    """

    above: float
    probability: float = 0.05
    name: ClassVar[str] = "largedeviation"

    def __post_init__(self) -> None:
        positive("above", self.above, squared=True)
        _check_probability(self.probability)
        self._as_plain_numbers()

    def _log_density(self, log_value: float) -> tuple[float, float]:
        log_term = math.log(-math.log(self.probability) / self.above) + 0.5 * log_value
        term = _exp(log_term)
        return log_term - term - math.log(2.0), 0.5 * (1.0 - term)


def parse(text: str) -> Prior:
    """Return the prior that text such as ``"lognormal(100, sigma=0.5)"`` describes.

    Raises
    ------
    SettingError
        If it is none of this module's.

    Examples
    --------
    >>> parse("lognormal(100, sigma=0.5)")
    LogNormal(median=100.0, sigma=0.5)
    """
    example = "write e.g. lognormal(100, sigma=0.5)"
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            raise ValueError("no call")
        values = [ast.literal_eval(one) for one in node.args]
        named = {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise SettingError(f"prior {shown(text)} cannot be read: {example}") from error
    kind = REGISTRY.get(node.func.id.lower())
    if kind is None:
        hint = meant(node.func.id, REGISTRY, f"choose one of {', '.join(REGISTRY)}")
        raise SettingError(f"unknown prior {shown(node.func.id)}: {hint}")
    try:
        return kind(*values, **named)
    except TypeError as error:
        known = ", ".join(field.name for field in fields(kind))  # type: ignore[arg-type]
        raise SettingError(f"prior {shown(text)} cannot be built: it has {known}") from error


def of(setting: Mapping[str, Any] | None) -> dict[str, Prior]:
    """Return the priors of a setting, a mapping of names to priors or their text."""
    found = {}
    for name, value in (setting or {}).items():
        prior = parse(value) if isinstance(value, str) else value
        if not isinstance(prior, Prior):
            raise SettingError(
                f"prior of {shown(name)} is {shown(value)}: give one of daskgp.priors or its text, "
                "such as 'lognormal(100, sigma=0.5)'"
            )
        found[name] = prior
    return found


def _check_probability(value: float) -> None:
    if not 0.0 < value < 1.0:
        raise SettingError(f"probability={shown(value)}: give one between 0 and 1")


def _exp(value: float) -> float:
    """Return e to a power; infinity where that overflows."""
    return math.exp(value) if value < 700.0 else math.inf
