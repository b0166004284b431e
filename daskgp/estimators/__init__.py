"""scikit-learn-style estimators, one file each, and reading them back from a store."""

from typing import Any

from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.cagp import CaGP
from daskgp.estimators.cggp import CGGP
from daskgp.estimators.checking import check, variogram
from daskgp.estimators.classifier import GPClassifier
from daskgp.estimators.cross_validation import cross_validate
from daskgp.estimators.decoupled import DecoupledGP
from daskgp.estimators.exact import ExactGP
from daskgp.estimators.experts import ExpertsGP
from daskgp.estimators.hurdle import HurdleGP
from daskgp.estimators.lma import LMA, PIC
from daskgp.estimators.loading import COMPOSED, ESTIMATORS, load, load_one, register
from daskgp.estimators.opticom import OptiComGP
from daskgp.estimators.saving import save_into
from daskgp.estimators.sgpr import SGPR
from daskgp.estimators.ssgp import SparseSpectrumGP
from daskgp.estimators.svgp import SVGP
from daskgp.estimators.vecchia import VecchiaGP
from daskgp.fit.plan import Plan

__all__ = [
    "CGGP",
    "COMPOSED",
    "ESTIMATORS",
    "LMA",
    "PIC",
    "SGPR",
    "SVGP",
    "CaGP",
    "DecoupledGP",
    "ExactGP",
    "ExpertsGP",
    "GPClassifier",
    "GaussianProcess",
    "HurdleGP",
    "OptiComGP",
    "SparseSpectrumGP",
    "VecchiaGP",
    "check",
    "cross_validate",
    "load",
    "load_one",
    "plan",
    "register",
    "save_into",
    "variogram",
]


def plan(estimator: GaussianProcess, X: Any, y: Any, measure: bool = False) -> Plan:
    """Return what ``estimator.fit(X, y)`` will need, before it starts.

    Parameters
    ----------
    estimator : GaussianProcess
        With the settings of the fit.
    X, y : array-like (n, d) and (n,) or (n, p)
        Training rows; only their sizes and chunks are looked at, unless ``measure`` is set.
    measure : bool
        Whether to also measure how long an iteration will take, by two short runs on some of the
        rows, with the present workers.

    Returns
    -------
    Plan
        Rows per block, tasks, bytes per task, per worker, in the client and on disk, operations.

    Examples
    --------
    >>> import daskgp, dask.array as da
    >>> X = da.empty((1_000_000, 8), chunks=(20_000, 8))
    >>> daskgp.plan(daskgp.SGPR(n_inducing=512), X, X[:, 0]).rows
    1000000
    """
    return estimator.plan(X, y, measure)
