"""Gaussian-process regression on Dask and Zarr, for data larger than memory.

Estimators
    AutoGP, which chooses among
    SGPR, LMA, PIC, VecchiaGP, ExpertsGP, OptiComGP, CaGP, CGGP, SVGP, DecoupledGP,
    SparseSpectrumGP, ExactGP
    GPClassifier, around any of them with a likelihood; HurdleGP, around two, for many zeros
Maps in one line
    interpolate; ``import daskgp.xarray`` gives Dataset and DataArray the accessor ``gp``
    to_geotiff
Data and models
    open_dataset, convert, prepare, variogram, load, storage_options, metrics, plot
Before and around a fit
    plan, connect, kernels, priors
Checks of a fit
    cross_validate, check
Errors
    DaskgpError, InputError and the others in ``daskgp.errors``
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daskgp import errors, kernels, metrics, plot, priors
    from daskgp.choose.auto import AutoGP
    from daskgp.data import open_dataset
    from daskgp.data.blocks.prepare import prepare
    from daskgp.data.convert.convert import convert
    from daskgp.data.stores.remote import storage_options
    from daskgp.errors import DaskgpError, InputError
    from daskgp.estimators import (
        CGGP,
        LMA,
        PIC,
        SGPR,
        SVGP,
        CaGP,
        DecoupledGP,
        ExactGP,
        ExpertsGP,
        GPClassifier,
        HurdleGP,
        OptiComGP,
        SparseSpectrumGP,
        VecchiaGP,
        check,
        cross_validate,
        load,
        plan,
        variogram,
    )
    from daskgp.maps.kriging import interpolate
    from daskgp.output.labelled import to_geotiff
    from daskgp.runtime.connect import connect

    __version__: str

__all__ = [
    "CGGP",
    "LMA",
    "PIC",
    "SGPR",
    "SVGP",
    "AutoGP",
    "CaGP",
    "DaskgpError",
    "DecoupledGP",
    "ExactGP",
    "ExpertsGP",
    "GPClassifier",
    "HurdleGP",
    "InputError",
    "OptiComGP",
    "SparseSpectrumGP",
    "VecchiaGP",
    "check",
    "connect",
    "convert",
    "cross_validate",
    "errors",
    "interpolate",
    "kernels",
    "load",
    "metrics",
    "open_dataset",
    "plan",
    "plot",
    "prepare",
    "priors",
    "storage_options",
    "to_geotiff",
    "variogram",
]

# Names are imported on first access, so that `daskgp --help` does not wait for Dask.
_MODULES = ("errors", "kernels", "metrics", "plot", "priors")
_HOMES = {
    "CGGP": "daskgp.estimators",
    "LMA": "daskgp.estimators",
    "PIC": "daskgp.estimators",
    "SGPR": "daskgp.estimators",
    "SVGP": "daskgp.estimators",
    "AutoGP": "daskgp.choose.auto",
    "CaGP": "daskgp.estimators",
    "DaskgpError": "daskgp.errors",
    "DecoupledGP": "daskgp.estimators",
    "ExactGP": "daskgp.estimators",
    "ExpertsGP": "daskgp.estimators",
    "GPClassifier": "daskgp.estimators",
    "HurdleGP": "daskgp.estimators",
    "InputError": "daskgp.errors",
    "OptiComGP": "daskgp.estimators",
    "SparseSpectrumGP": "daskgp.estimators",
    "VecchiaGP": "daskgp.estimators",
    "check": "daskgp.estimators",
    "connect": "daskgp.runtime.connect",
    "convert": "daskgp.data.convert.convert",
    "cross_validate": "daskgp.estimators",
    "interpolate": "daskgp.maps.kriging",
    "load": "daskgp.estimators",
    "open_dataset": "daskgp.data",
    "plan": "daskgp.estimators",
    "prepare": "daskgp.data.blocks.prepare",
    "storage_options": "daskgp.data.stores.remote",
    "to_geotiff": "daskgp.output.labelled",
    "variogram": "daskgp.estimators",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _import_module("importlib.metadata").version("daskgp")
    elif name in _MODULES:
        value = _import_module(f"daskgp.{name}")
    elif name in _HOMES:
        value = getattr(_import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'daskgp' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
