"""The checks that ship with the package, of every registered method and estimator, and of layers.

Those of kernels and likelihoods are made in tests/maths.
"""

import numpy as np

from daskgp import kernels, likelihoods
from daskgp.estimators import ESTIMATORS
from daskgp.models import REGISTRY
from daskgp.models.sparse import sparse_grid
from daskgp.models.sparse.opticom import OptiCom
from daskgp.models.transform import Transform
from daskgp.models.values import Theta
from daskgp.posterior import layers
from daskgp.testing import MethodAt, parametrize_with_checks
from tests.contract import cases

LIKELIHOODS = {name: likelihoods.by_name(name) for name in likelihoods.NAMES}
TRANSFORMS = {
    kind: layers.TransformLayer(Transform(kind, np.array([power])))
    for kind, power in (("log", 0.0), ("sqrt", 0.5), ("boxcox", 0.4))
}
LAYERS = {
    "noise": layers.Noise(0.3),
    "spread": layers.Spread(1.3),
    "tails": layers.Tails((0.5, 0.95), (0.5, 2.4)),
    **{name: layers.Response(one) for name, one in LIKELIHOODS.items()},
    **TRANSFORMS,
}
KERNEL = kernels.Matern32((0.7, 1.3), variance=1.4)
INPUTS = np.random.default_rng(1).uniform(-1.5, 1.5, (4, 2))
OWN = {"vecchia", "cagp", "cggp"}
"""Methods that take more than blocks and ``Theta``, which tests of their own have."""


def at(name):
    """A method of the registry at hyper-parameters, small."""
    if name == "opticom":  # on the points of a sparse grid
        return MethodAt(OptiCom(2), Theta(KERNEL, 0.1, 3 * sparse_grid.build(2, 2).points - 1.5))
    made = REGISTRY[name](3) if "experts" in name else REGISTRY[name]()
    return MethodAt(made, Theta(KERNEL, 0.1, None if "exact" in name else INPUTS))


METHODS = {name: at(name) for name in REGISTRY if name not in OWN}
FORMS = {name: cases.make(name) for name in cases.SETTINGS} | {
    "sgpr-linear": cases.make("sgpr", mean="linear"),
    "exact-log": cases.make("exact", target_transform="log"),
    "svgp-poisson": cases.make("svgp", likelihood="poisson"),
    "svgp-student-t": cases.make("svgp", likelihood="student-t"),
}


@parametrize_with_checks(LAYERS)
def test_layers(subject, check):
    check(subject)


@parametrize_with_checks(METHODS)
def test_methods(subject, check):
    check(subject)


@parametrize_with_checks(FORMS)
def test_estimators(subject, check):
    check(subject)


def test_every_estimator_is_here():
    assert {cases.kind(name).model_name for name in cases.SETTINGS} == set(ESTIMATORS)
