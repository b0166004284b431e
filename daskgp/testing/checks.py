"""Tables of checks by what they are about, and the decorator that runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.kernels import Kernel
from daskgp.likelihoods import Likelihood
from daskgp.posterior.layers import Layer
from daskgp.testing import of_estimators, of_kernels, of_layers, of_likelihoods, of_methods
from daskgp.testing.check import Check

if TYPE_CHECKING:
    import pytest

TABLES: Mapping[type, Sequence[Check]] = {
    Kernel: of_kernels.CHECKS,
    Likelihood: of_likelihoods.CHECKS,
    Layer: of_layers.CHECKS,
    of_methods.MethodAt: of_methods.CHECKS,
    GaussianProcess: of_estimators.CHECKS,
}
"""Checks by the class that their subjects are of."""


def checks_of(subject: Any, whole: bool = False) -> tuple[Check, ...]:
    """Return the checks that a subject is held to.

    Parameters
    ----------
    subject : Kernel, Likelihood, Layer, MethodAt or estimator
        An estimator is given rows of two columns, and its fits take as long as its settings say:
        a small ``max_iter`` is enough.
    whole : bool
        Whether those of its kind that are not about it, by what it declares, are among them:
        ``check.why_not(subject)`` says why.

    Returns
    -------
    tuple of Check

    Raises
    ------
    SettingError
        If there are no checks of things of its kind.

    Examples
    --------
    >>> import daskgp
    >>> from daskgp import testing
    >>> model = daskgp.CGGP(max_iter=5)
    >>> for check in testing.checks_of(model)[:2]:
    ...     print(check.name, "-", check.promise)
    arrangement - its rows have the neighbours, and are kept, as its method declares
    settings - settings stay as they were given, and a clone has them and nothing learned
    >>> others = set(testing.checks_of(model, whole=True)) - set(testing.checks_of(model))
    >>> {check.name: check.why_not(model) for check in others}["covariance"]
    'it has no joint covariance'
    """
    for kind, table in TABLES.items():
        if isinstance(subject, kind):
            return tuple(one for one in table if whole or not one.why_not(subject))
    kinds = ", ".join(kind.__name__ for kind in TABLES)
    raise SettingError(
        f"{shown(subject)} has no checks: give a value of one of {kinds}, not a class"
    )


def parametrize_with_checks(
    subjects: Iterable[Any] | Mapping[str, Any],
    expected_failed_checks: Mapping[Any, str] | None = None,
) -> pytest.MarkDecorator:
    """Return a pytest decorator for a test that is called with each subject and each check of it.

    The test's arguments are ``subject`` and ``check``.  A check that is not about a subject is
    skipped, and says why.

    Parameters
    ----------
    subjects : iterable, or mapping from names
        Kernels, likelihoods, layers, methods with hyper-parameters (``MethodAt``) and estimators;
        their names are part of those of the tests.
    expected_failed_checks : mapping, optional
        Reasons by the name of a check, or by a pair of the names of a subject and a check.  Such a
        test has to fail.

    Raises
    ------
    SettingError
        If a subject has no checks, or no check has a name that is expected to fail.

    Examples
    --------
    >>> from daskgp import kernels
    >>> from daskgp.testing import parametrize_with_checks
    >>> @parametrize_with_checks([kernels.RBF(0.5), kernels.Matern32() + 0.1])
    ... def test_kernels(subject, check):
    ...     check(subject)

    A failure that is meant has a reason:

    >>> decorator = parametrize_with_checks(
    ...     {"mine": kernels.Linear()}, {("mine", "in_other_units"): "its numbers have no unit"}
    ... )
    """
    import pytest  # not needed by those who never test

    named = subjects if isinstance(subjects, Mapping) else dict(_named(list(subjects)))
    expected, cases, used = dict(expected_failed_checks or {}), [], set()
    for name, subject in named.items():
        for check in checks_of(subject, whole=True):
            keys = [key for key in (check.name, (name, check.name)) if key in expected]
            used |= set(keys)
            marks = [pytest.mark.xfail(reason=expected[key], strict=True) for key in keys]
            if reason := check.why_not(subject):
                marks = [pytest.mark.skip(reason=reason)]
            cases.append(pytest.param(subject, check, id=f"{name}-{check.name}", marks=marks))
    if unknown := [key for key in expected if key not in used]:
        raise SettingError(
            f"{unknown[0]!r} is expected to fail, and no check of {', '.join(named)} has that "
            "name: give the name of a check, or the names of a subject and a check"
        )
    return pytest.mark.parametrize(("subject", "check"), cases)


def _named(subjects: Sequence[Any]) -> Iterable[tuple[str, Any]]:
    """Yield subjects with names: those of their classes, numbered where several have the same."""
    kinds = [type(getattr(subject, "method", subject)).__name__ for subject in subjects]
    times, seen = Counter(kinds), Counter[str]()
    for kind, subject in zip(kinds, subjects, strict=True):
        seen[kind] += 1
        yield (f"{kind}{seen[kind]}" if times[kind] > 1 else kind), subject
