"""The checks that ship with the package, of every registered method and estimator, and of layers.

Those of kernels and likelihoods are made in tests/maths.
"""

from dataclasses import replace

import numpy as np

from daskgp import kernels, likelihoods
from daskgp.data.regressor import Known, Regressor
from daskgp.models import REGISTRY
from daskgp.models.scaling import identity
from daskgp.models.transform import Transform
from daskgp.models.trend import Trend
from daskgp.posterior import layers
from daskgp.posterior.layers.base import REGISTRY as KINDS
from daskgp.testing import parametrize_with_checks
from tests.contract import cases

LIKELIHOODS = {name: likelihoods.by_name(name) for name in likelihoods.NAMES}
TRANSFORMS = {
    kind: layers.TransformLayer(Transform(kind, np.array([power])))
    for kind, power in (("log", 0.0), ("sqrt", 0.5), ("boxcox", 0.4))
}
TREND = Trend(
    (0, 1),
    shift=np.array([1.0, 0.9]),
    scale=np.array([0.5, 2.0]),
    intercept=np.array([0.4]),
    slope=np.array([[0.3], [-0.2]]),
    basis=np.array([[1.0, 0.3], [0.0, 0.9]]),
)
"""A trend of both columns, with three functions."""
COEFFICIENTS = np.array([[0.1], [0.5], [-0.4]]), 0.2 * np.tri(3)
SCALE = replace(identity(2, 1), intercept=np.array([2.0]), y_scale=np.array([3.0]))
NAMES = ("a", "b")


class Product:
    """A regressor."""

    def predict(self, X):
        return X.prod(axis=1)


REGRESSOR = Regressor(Product(), NAMES, 1)
LAYERS = {
    "trend": layers.TrendLayer(TREND, np.ones(1), COEFFICIENTS, NAMES),
    "ols": layers.TrendLayer(replace(TREND, basis=None), np.ones(1), None, NAMES),
    "fade": layers.Fade(0.4, 0.1, 0.5),
    "noise": layers.Noise(0.3),
    "target_noise": layers.TargetNoise(np.array([0.3])),
    "units": layers.Units(SCALE),
    "regressor": layers.RegressorLayer(Known(REGRESSOR, np.ones((1, 2)), np.ones((1, 1)))),
    "spread": layers.Spread(1.3),
    "tails": layers.Tails((0.5, 0.95), (0.5, 2.4)),
    **{name: layers.Response(one) for name, one in LIKELIHOODS.items()},
    **TRANSFORMS,
}
KERNEL = kernels.Matern32((0.7, 1.3), variance=1.4)
METHODS = {name: cases.method_at(name, KERNEL, -1.5, 1.5) for name in cases.SETTINGS}
FORMS = {name: cases.make(name) for name in cases.SETTINGS} | {
    **{f"{name}-linear": cases.make(name, mean="linear") for name in cases.TRENDED},
    "exact-open": cases.make("exact", kernel=kernels.Matern32((0.7, 1.3))),
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


OF_THE_PACKAGE = set(REGISTRY), set(KINDS)
"""Names of methods and of kinds of layers, before tests add theirs."""


def test_every_method_and_every_kind_of_layers_is_here():
    methods, kinds = OF_THE_PACKAGE
    assert {subject.method.name for subject in METHODS.values()} == methods
    assert {layer.name for layer in LAYERS.values()} == kinds
