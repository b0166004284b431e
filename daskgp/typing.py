"""Types shared by all layers."""

import os
from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

Array: TypeAlias = Any
"""NumPy or CuPy array; the two share one interface and backend.py tells them apart."""

Path: TypeAlias = str | os.PathLike[str]
"""Path, or as text also a URL."""
Device: TypeAlias = Literal["auto", "cpu", "gpu"]
DtypeName: TypeAlias = Literal["float64", "float32"]
LikelihoodName: TypeAlias = Literal[
    "gaussian",
    "student-t",
    "bernoulli",
    "bernoulli-logit",
    "poisson",
    "negative-binomial",
    "gamma",
    "lognormal",
    "beta",
    "binomial",
    "ordinal",
    "censored",
]
MeanName: TypeAlias = Literal["zero", "constant", "linear", "ols"]
OptimizerName: TypeAlias = Literal["auto", "trust-region", "l-bfgs", "adam"]
UnseenName: TypeAlias = Literal["error", "new"]


class Predictor(Protocol):
    """A fitted regressor."""

    def predict(self, X: Any) -> Any:
        """Return the predictions at rows X (n, d)."""


Mean: TypeAlias = MeanName | Sequence[str] | Predictor
"""Mean function: by a word, the columns of a trend, or a regressor."""
