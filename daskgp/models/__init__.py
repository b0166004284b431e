"""Methods, one file each, and their registry: a store names a model, never a class path."""

from __future__ import annotations

from typing import Any, TypeVar

from daskgp.checks import shown
from daskgp.errors import SettingError
from daskgp.models.actions.cagp import CaGP
from daskgp.models.actions.cggp import CGGP
from daskgp.models.exact import Exact
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.models.markov.lma import LMA
from daskgp.models.markov.vecchia import Vecchia
from daskgp.models.method import Declared
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.sparse.sgpr import SGPR
from daskgp.models.sparse.ssgp import SparseSpectrum
from daskgp.models.variational.decoupled import Decoupled
from daskgp.registry import Registry

M = TypeVar("M", bound=type[Declared])

REGISTRY: Registry[Any] = Registry(
    "method",
    "daskgp.methods",
    {
        method.name: method
        for method in (
            Exact,
            LMA,
            OptiCom,
            SGPR,
            SparseSpectrum,
            ExactExperts,
            SparseExperts,
            CaGP,
            CGGP,
            Decoupled,
            Vecchia,
        )
    },
)


def register(kind: M) -> M:
    """Make a class of methods known to stores by its name, and return it.

    ``estimators.register`` does so for the method that an estimator makes with its default
    settings.

    Raises
    ------
    SettingError
        If it has no name, or that of another.
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str):
        raise SettingError(
            f"{kind.__name__}.name is {shown(name)}: give the class a name, by which stores know it"
        )
    REGISTRY.add(name, kind)
    return kind
