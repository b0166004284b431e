"""A check as a value: a name, what it promises, and the function that looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest import SkipTest


def _always(subject: Any) -> None:
    """Return no reason to leave a check out."""


@dataclass(frozen=True)
class Check:
    """A promise that kernels, likelihoods, layers, methods or estimators are held to.

    Calling it with one of them raises what is wrong, with the promise in its notes, or
    ``unittest.SkipTest`` where the promise is not about it.

    Parameters
    ----------
    name : str
    promise : str
        What holds, in one line.
    function : callable
        Called with a subject; raises if the promise is broken.
    why_not : callable
        Returns why the promise is not about a subject, by what that declares; None if it is.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> check = testing.checks_of(kernels.RBF())[0]
    >>> check.name, check.promise
    ('symmetric', 'K(X, X) is symmetric and has no negative eigenvalue')
    >>> check(kernels.RBF(0.5))
    """

    name: str
    promise: str
    function: Callable[[Any], None]
    why_not: Callable[[Any], str | None] = _always

    def __call__(self, subject: Any) -> None:
        """Raise if a subject breaks the promise.

        Examples
        --------
        >>> from daskgp import likelihoods, testing
        >>> for check in testing.checks_of(likelihoods.Gaussian()):
        ...     check(likelihoods.Gaussian())
        """
        if reason := self.why_not(subject):
            raise SkipTest(reason)
        try:
            self.function(subject)
        except Exception as error:
            error.add_note(f"{self.name}: {self.promise}")
            raise


Register: TypeAlias = Callable[[Callable[[Any], None]], Callable[[Any], None]]


def promised(
    table: list[Check], promise: str, why_not: Callable[[Any], str | None] = _always
) -> Register:
    """Return a decorator that adds a function to a table, under its own name."""

    def add(function: Callable[[Any], None]) -> Callable[[Any], None]:
        table.append(Check(function.__name__.strip("_"), promise, function, why_not))
        return function

    return add
