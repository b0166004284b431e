"""Attributes that an estimator may lack, with an error that says why."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Generic, Self, TypeVar, overload

from sklearn.exceptions import NotFittedError

T = TypeVar("T")


class Learned(Generic[T]):
    """An attribute that a fit sets; before one, NotFittedError names the estimator."""

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
        if "solved_" in vars(instance):  # read from a store of an earlier version
            raise AttributeError(f"this {kind} was stored without its {self._name}: fit it again")
        raise NotFittedError(f"this {kind} is not fitted yet: call fit")


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
) -> Callable[[Callable[..., Any]], Any]:
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

    def decorate(method: Callable[..., Any]) -> Any:
        return _Offered(method, missing)

    return decorate
