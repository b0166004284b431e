"""Attributes that an estimator may lack, with an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, Self, TypeVar, cast, overload

from sklearn.exceptions import NotFittedError

from daskgp.fit.fitted import Fit

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Learned(Generic[T]):
    """An attribute of what a fit has found; before one, NotFittedError names the estimator.

    Parameters
    ----------
    read : callable, optional
        Returns the value from a fit; default one that a fit sets.
    """

    def __init__(self, read: Callable[[Fit], T] | None = None) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> T | Self:
        if instance is None:
            return self
        kind = type(instance).__name__
        fit: Fit | None = vars(instance).get("_fitted")
        if fit is None:
            raise NotFittedError(f"this {kind} is not fitted yet: call fit")
        if self._read is not None:
            try:
                return self._read(fit)
            except TypeError:  # of a store of an earlier version
                pass
        raise AttributeError(f"this {kind} was stored without its {self._name}: fit it again")


class _Offered:
    """A method that instances have unless there is a reason against it.

    Unlike with scikit-learn's ``available_if``, the AttributeError gives the reason.
    """

    def __init__(self, method: Callable[..., Any], missing: Callable[[Any], str | None]) -> None:
        self._method, self._missing = method, missing
        self.__doc__ = method.__doc__

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self._method
        reason = self._missing(instance)
        if reason is not None:
            raise AttributeError(reason)
        return MethodType(self._method, instance)


def offered_unless(
    missing: Callable[[Any], str | None],
) -> Callable[[F], F]:
    """Hide a method, with an AttributeError, from estimators for which ``missing`` says why.

    Parameters
    ----------
    missing : callable
        Returns the reason why an estimator has no such method, in one line; None if it has one.

    Returns
    -------
    callable
        Decorator of the method.
    """

    def decorate(method: F) -> F:
        return cast(F, _Offered(method, missing))

    return decorate
