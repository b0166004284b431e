"""Methods, one file each, and their registry: a store names a model, never a class path."""

from __future__ import annotations

from typing import Any

from daskgp.errors import SettingError
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.cggp import CGGP
from daskgp.models.exact import Exact
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.models.markov.lma import LMA
from daskgp.models.markov.vecchia import Vecchia
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.sparse.ssgp import SparseSpectrum
from daskgp.models.variational.decoupled import Decoupled

REGISTRY: dict[str, Any] = {
    Exact.name: Exact,
    LMA.name: LMA,
    OptiCom.name: OptiCom,
    SGPR.name: SGPR,
    SparseSpectrum.name: SparseSpectrum,
    ExactExperts.name: ExactExperts,
    SparseExperts.name: SparseExperts,
    CaGP.name: CaGP,
    CGGP.name: CGGP,
    Decoupled.name: Decoupled,
    Vecchia.name: Vecchia,
}


def by_name(name: str) -> Any:
    """Return the method class registered under a name; SettingError lists the known names."""
    if name not in REGISTRY:
        known = ", ".join(sorted(REGISTRY))
        raise SettingError(f"unknown model {name!r}: choose one of {known}")
    return REGISTRY[name]
