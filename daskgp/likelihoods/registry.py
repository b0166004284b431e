"""Registry of likelihoods by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.likelihoods.base import Likelihood
from daskgp.likelihoods.bernoulli import Bernoulli
from daskgp.likelihoods.beta import Beta
from daskgp.likelihoods.binomial import Binomial
from daskgp.likelihoods.censored import Censored
from daskgp.likelihoods.gamma import Gamma
from daskgp.likelihoods.gaussian import Gaussian
from daskgp.likelihoods.lognormal import LogNormal
from daskgp.likelihoods.negative_binomial import NegativeBinomial
from daskgp.likelihoods.ordinal import Ordinal
from daskgp.likelihoods.poisson import Poisson
from daskgp.likelihoods.student_t import StudentT
from daskgp.registry import Registry

M = TypeVar("M", bound=Callable[[], Likelihood])

REGISTRY: Registry[Callable[[], Likelihood]] = Registry(
    "likelihood",
    "daskgp.likelihoods",
    {
        "gaussian": Gaussian,
        "student-t": StudentT,
        "bernoulli": Bernoulli,
        "bernoulli-logit": lambda: Bernoulli("logit"),
        "poisson": Poisson,
        "negative-binomial": NegativeBinomial,
        "gamma": Gamma,
        "lognormal": LogNormal,
        "beta": Beta,
        "binomial": Binomial,
        "ordinal": Ordinal,
        "censored": Censored,
    },
)

NAMES = tuple(REGISTRY)
"""Names of the likelihoods of the package."""


def register(make: M) -> M:
    """Make a likelihood known by its name to settings and stores.

    A process that reads a store must have registered it before: do so in the module that defines
    the class, so that importing it is enough.

    Parameters
    ----------
    make : type or callable
        Called without arguments it returns the likelihood with its initial parameters.

    Returns
    -------
    type or callable
        The same, so that this is a decorator too.

    Raises
    ------
    SettingError
        If the name is taken, or the likelihood does not take its own parameters.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from daskgp import likelihoods
    >>> @likelihoods.register
    ... @dataclass(frozen=True)
    ... class Wide(likelihoods.StudentT):
    ...     df: float = 2.5
    ...     name = "wide"
    >>> likelihoods.by_name("wide").df
    2.5
    """
    first = make()
    if not isinstance(first, Likelihood):
        raise SettingError(f"{shown(make)} makes no likelihood: derive a class from Likelihood")
    for member in ("log_parameters", "log_bounds"):
        if callable(getattr(first, member)):
            raise SettingError(
                f"{type(first).__name__}.{member} is a method: decorate it with @property"
            )
    again = first.with_log_parameters(first.log_parameters)
    if type(again) is not type(first) or again.name != first.name:
        raise SettingError(
            f"{first.name!r} becomes another likelihood with its own parameters: "
            "with_log_parameters must return its own class"
        )
    REGISTRY.add(first.name, make)
    return make


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
    likelihood = REGISTRY.find(name)()
    if log_parameters is None:
        return likelihood
    return likelihood.with_n_parameters(len(log_parameters)).with_log_parameters(log_parameters)
