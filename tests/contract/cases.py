"""Every estimator of the registry, made small, and the rows that the contract is checked on."""

import dataclasses

import numpy as np

import daskgp
from daskgp import kernels
from daskgp.estimators import ESTIMATORS

N = 150
KERNEL = kernels.Matern32((0.8, 0.8), variance=1.2)
STOCHASTIC = {"batch_rows": 50, "max_iter": 8}
SETTINGS = {
    "sgpr": {"n_inducing": 12},
    "lma": {"n_support": 8, "block_rows": 30},
    "pic": {"n_support": 8, "block_rows": 30},
    "vecchia": {"n_neighbours": 12, "predict_neighbours": 20, "block_rows": 30},
    "experts": {"n_inducing": 8, "n_experts": 4},
    "exact-experts": {"expert": "exact", "n_experts": 4},
    "opticom": {"level": 3},
    "cagp": {"n_actions": 10, "block_rows": 40},
    "cagp-cg": {"n_actions": 5, "actions": "cg"},
    "cggp": {"solver_tol": 1e-8},
    "decoupled": {"n_mean": 20, "n_covariance": 8, **STOCHASTIC},
    "svgp": {"n_inducing": 10, **STOCHASTIC},
    "ssgp": {"n_spectral": 10},
    "exact": {},
}
"""Settings that make a case small; a case is named after its estimator, or that and a variant."""
NO_SPREAD = {"cggp"}
UNTRAINED = {"cggp"}


def registered(name):
    """The name that a case's estimator is registered by."""
    return name.removeprefix("exact-").removesuffix("-cg")


def kind(name):
    """The estimator class of a case."""
    return ESTIMATORS[registered(name)]


def make(name, **settings):
    """A case with more settings; those that it does not have are left out."""
    known = kind(name)().get_params(deep=False)
    chosen = {"kernel": KERNEL, "max_iter": 2, "progress": False} | SETTINGS[name] | settings
    if name == "ssgp" and "kernel" not in settings:  # it does not know every kernel
        chosen["kernel"] = kernels.RBF((0.8, 0.8))
    return kind(name)(**{key: value for key, value in chosen.items() if key in known})


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
    untrained = {} if name in UNTRAINED else {"optimizer": None}
    chosen = make(name, **settings).get_params(deep=False)
    for idle in ("max_iter",) if name not in (*UNTRAINED, "decoupled", "svgp") else ():
        chosen.pop(idle, None)
    return kind(name)(**chosen | untrained)


def rows(n=N, seed=0):
    """Inputs (n, 2) and one target (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 3, (n, 2))
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(n)


def moments(model, X):
    """Mean and, where there is one, standard deviation at rows."""
    if isinstance(model, daskgp.CGGP):
        return (model.predict(X),)
    return model.predict(X, return_std=True)


def bits(model, X):
    """What a fit learned and predicts, as bytes."""
    learned = [np.asarray(part) for part in model.solved_.state]
    learned += [model.kernel_.log_parameters, np.asarray(model.noise_variance_)]
    return [part.tobytes() for part in [*learned, *map(np.asarray, moments(model, X))]]
