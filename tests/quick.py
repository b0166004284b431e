"""Variants of a test that every run makes, and those that `make test-slow` adds."""

import pytest


def quick(number, variants):
    """Return parameters of which the first so many are quick tests, the others slow ones."""
    made = [v if isinstance(v, tuple) else (v,) for v in variants]
    return [pytest.param(*v, marks=[pytest.mark.slow] * (i >= number)) for i, v in enumerate(made)]
