"""Gaussian-process regression on Dask and Zarr, for data larger than memory.

Estimators
    SGPR, ExactGP
Data and models
    open_dataset, convert, load, metrics
Before and around a fit
    plan, connect, kernels
Errors
    DaskgpError, InputError and the others in ``daskgp.errors``
"""

from importlib.metadata import version as _version

from daskgp import errors, kernels, metrics
from daskgp.errors import DaskgpError, InputError
from daskgp.estimators import SGPR, ExactGP, load
from daskgp.flow.cluster import connect
from daskgp.flow.io import open_dataset

__version__ = _version("daskgp")

__all__ = [
    "SGPR",
    "DaskgpError",
    "ExactGP",
    "InputError",
    "connect",
    "errors",
    "kernels",
    "load",
    "metrics",
    "open_dataset",
]
