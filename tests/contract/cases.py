"""Every estimator of the registry, made small, and the rows that the contract is checked on."""

import dataclasses

import numpy as np

from daskgp import kernels
from daskgp.estimators import ESTIMATORS, requirements
from daskgp.kernels.weights import Weights
from daskgp.models.actions.sums import ActionTheta, Panel
from daskgp.models.sparse import sparse_grid
from daskgp.models.values import Theta
from daskgp.testing import MethodAt, of_estimators, of_methods
from daskgp.testing.of_estimators import bits, moments  # noqa: F401 - of every contract test

N = 150
KERNEL = kernels.Matern32((0.8, 0.8), variance=1.2)
SIZES = {
    "n_inducing": 12,
    "n_support": 8,
    "n_neighbours": 12,
    "predict_neighbours": 20,
    "n_experts": 4,
    "level": 3,
    "n_actions": 10,
    "solver_tol": 1e-8,
    "n_mean": 20,
    "n_covariance": 8,
    "n_spectral": 10,
}
"""Settings that make a method small, whichever has them."""
BLOCKS = {"block_rows": 30}
"""Those of methods that arrange their rows in blocks."""
STOCHASTIC = {"batch_rows": 50, "max_iter": 8}
"""Those of methods that take steps on mini-batches."""
OWN = {"experts": {"n_inducing": 8}, "cagp": {"block_rows": 40}, "svgp": {"n_inducing": 10}}
"""Other settings of some methods."""
VARIANTS = {
    "exact-experts": ("experts", {"expert": "exact", "n_experts": 4}),
    "cagp-cg": ("cagp", {"n_actions": 5, "actions": "cg"}),
}
"""Further cases: an estimator and the settings that make it another method."""


def sized(kind, sizes):
    """Those of some settings that a class has, but for those that are 0 by default."""
    usual = requirements.defaults(kind)
    return {key: size for key, size in sizes.items() if usual.get(key, 0) != 0}


def _small(name):
    kind = ESTIMATORS[name]
    blocks = {} if kind.traits.reads_blocks else BLOCKS
    steps = STOCHASTIC if hasattr(kind, "partial_fit") else {}
    return sized(kind, SIZES) | blocks | steps | OWN.get(name, {})


SETTINGS = {name: _small(name) for name in ESTIMATORS}
SETTINGS |= {name: settings for name, (_, settings) in VARIANTS.items()}
"""Settings that make a case small; a case is named after its estimator, or that and a variant."""


def registered(name):
    """The name that a case's estimator is registered by."""
    return VARIANTS[name][0] if name in VARIANTS else name


def kind(name):
    """The estimator class of a case."""
    return ESTIMATORS[registered(name)]


def has(name, *settings):
    """Whether a case has settings of these names."""
    return set(settings) <= set(requirements.defaults(kind(name)))


def make(name, **settings):
    """A case with more settings; those that it does not have are left out."""
    chosen = {"kernel": KERNEL, "max_iter": 2, "progress": False} | SETTINGS[name] | settings
    if name == "ssgp" and "kernel" not in settings:  # it does not know every kernel
        chosen["kernel"] = kernels.RBF((0.8, 0.8))
    return kind(name)(**{key: value for key, value in chosen.items() if has(name, key)})


def method(name):
    """The method of a case, which declares what holds for it."""
    return make(name)._model()


def method_at(name, kernel, low=0.0, high=1.0):
    """The method of a case at hyper-parameters, with any inputs in a box of two columns."""
    recipe, rng = make(name).recipe(), np.random.default_rng(1)
    method = recipe.method.of_units(3)
    theta = Theta(kernel, 0.1, rng.uniform(low, high, (5, 2)) if recipe.inputs.count else None)
    if name == "opticom":  # on the points of a sparse grid
        grid = sparse_grid.build(2, method.level).points
        return MethodAt(method, dataclasses.replace(theta, inputs=low + (high - low) * grid))
    if name == "vecchia":  # with neighbours that stay where they are, and all rows for a place
        method = dataclasses.replace(method, lengths=(1.0, 1.0), predict_neighbours=100)
    if name.startswith("cagp"):  # whose points are the rows
        weights = Weights.dense(rng.standard_normal((of_methods.N, 5)))
        theta = ActionTheta(kernel, 0.1, weights=weights)
        return MethodAt(method, theta, near=_points)
    return MethodAt(method, theta)


def _points(method, theta, state, blocks):
    """The rows as points of actions."""
    (rows,) = blocks
    return [Panel(rows.X, theta.weights)]


def those(holds):
    """The cases of which something holds."""
    return [name for name in SETTINGS if holds(name)]


NO_SPREAD = set(those(lambda name: method(name).why_no_variance()))
"""Cases without a variance."""
UNTRAINED = set(those(lambda name: not has(name, "optimizer")))
"""Cases without hyper-parameters to train."""
STEPPED = set(those(lambda name: hasattr(kind(name), "partial_fit")))
"""Cases that are trained by steps on mini-batches."""
PARTED = set(those(lambda name: has(name, "partition")))
"""Cases that are fitted to parts of the rows, which are drawn."""
LOCAL = set(those(lambda name: method(name).takes_neighbours))
"""Cases whose blocks are conditioned on one another."""
TRENDED = those(lambda name: method(name).takes_trend)
"""Cases that may have a trend which is integrated over."""


def in_units(kernel, of_inputs, of_target):
    """A kernel of columns and targets that are multiplied by these factors."""
    units = kernel.units(2)
    logs = [
        unit.of_inputs * np.log(np.broadcast_to(of_inputs, 2)[list(unit.columns)][:1]).sum()
        + unit.of_target * np.log(of_target)
        for unit in units
    ]
    moved = kernel.with_log_parameters(kernel.log_parameters + logs)
    return moved if kernel.variance is not None else dataclasses.replace(moved, variance=None)


def fixed(name, **settings):
    """A case whose hyper-parameters are kept."""
    return of_estimators.fixed(make(name, **settings))


def rows(n=N, seed=0):
    """Inputs (n, 2) and one target (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(n)
