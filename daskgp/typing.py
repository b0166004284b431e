"""Types shared by all layers."""

from typing import Any, Literal, TypeAlias

Array: TypeAlias = Any
"""A NumPy or CuPy array; the two share one interface and backend.py tells them apart."""

Device: TypeAlias = Literal["auto", "cpu", "gpu"]
MeanName: TypeAlias = Literal["zero", "constant", "linear"]
OptimizerName: TypeAlias = Literal["auto", "trust-region", "l-bfgs", "adam"]
