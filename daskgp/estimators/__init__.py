"""scikit-learn-style estimators, a file each, and reading them back from a store."""

from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.exact import ExactGP
from daskgp.estimators.persist import ESTIMATORS, load, save_into
from daskgp.estimators.sgpr import SGPR

__all__ = ["ESTIMATORS", "SGPR", "ExactGP", "GaussianProcess", "load", "save_into"]
