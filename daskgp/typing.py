"""Types shared by all layers."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from typing_extensions import TypeVar

Array: TypeAlias = Any
"""NumPy or CuPy array; the two share one interface and backend.py tells them apart."""

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


class Lazy(Protocol):
    """A lazy array, such as Dask's."""

    def compute(self) -> Any:
        """Return the values."""


class Column(Protocol):
    """A column of a data frame."""

    def to_numpy(self) -> np.ndarray:
        """Return the values."""


T = TypeVar("T")
Score = TypeVar("Score", bound=Lazy | float, default=float)
"""A score, lazy where what is scored is."""
Scores = TypeVar("Scores", bound=Lazy | np.ndarray, default=np.ndarray)
"""A score of each output."""
Values: TypeAlias = np.ndarray | Sequence[Any] | Column | T
"""Numbers in memory, or lazy ones of the kind of the score."""
