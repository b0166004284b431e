"""The methods, a file each, and their registry: a store names a model, never a class path."""

from __future__ import annotations

from typing import Any

from daskgp.errors import SettingError
from daskgp.models.exact import Exact
from daskgp.models.lma import LMA
from daskgp.models.opticom import OptiCom
from daskgp.models.sgpr import SGPR
from daskgp.models.ssgp import SparseSpectrum

REGISTRY: dict[str, Any] = {
    Exact.name: Exact,
    LMA.name: LMA,
    OptiCom.name: OptiCom,
    SGPR.name: SGPR,
    SparseSpectrum.name: SparseSpectrum,
}


def by_name(name: str) -> Any:
    """The method class registered under a name; SettingError lists the known names."""
    if name not in REGISTRY:
        known = ", ".join(sorted(REGISTRY))
        raise SettingError(f"unknown model {name!r}: choose one of {known}")
    return REGISTRY[name]
