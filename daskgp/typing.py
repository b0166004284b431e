"""Types shared by all layers."""

from typing import Any, Literal, TypeAlias

Array: TypeAlias = Any
"""NumPy or CuPy array; the two share one interface and backend.py tells them apart."""

Device: TypeAlias = Literal["auto", "cpu", "gpu"]
DtypeName: TypeAlias = Literal["float64", "float32"]
LikelihoodName: TypeAlias = Literal[
    "gaussian", "student-t", "bernoulli", "bernoulli-logit", "poisson"
]
MeanName: TypeAlias = Literal["zero", "constant", "linear"]
OptimizerName: TypeAlias = Literal["auto", "trust-region", "l-bfgs", "adam"]
