"""Conformance checks that ship with the package: what holds for every kernel, method and the rest.

``parametrize_with_checks`` runs them by name on those of your own, as the tests of daskgp do over
its registries; the functions below it are single checks, at rows of your choice.
"""

from daskgp.models.experts.ensemble import HeldExperts
from daskgp.testing.check import Check
from daskgp.testing.checks import checks_of, parametrize_with_checks
from daskgp.testing.computing import central_differences, no_compute
from daskgp.testing.of_kernels import check_kernel
from daskgp.testing.of_methods import (
    MethodAt,
    check_additive,
    check_ensemble,
    check_exact_limit,
    check_gradient,
    check_model,
    combine_experts,
    rows_of,
    value_and_gradient,
)

__all__ = [
    "Check",
    "HeldExperts",
    "MethodAt",
    "central_differences",
    "check_additive",
    "check_ensemble",
    "check_exact_limit",
    "check_gradient",
    "check_kernel",
    "check_model",
    "checks_of",
    "combine_experts",
    "no_compute",
    "parametrize_with_checks",
    "rows_of",
    "value_and_gradient",
]
