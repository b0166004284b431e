"""Checks of the settings that estimators share; each names the setting and what it may be."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, get_args

from daskgp import kernels, likelihoods
from daskgp.checks import choice, place, positive, shown, whole
from daskgp.errors import SettingError
from daskgp.fit import effects
from daskgp.kernels import Kernel
from daskgp.typing import OptimizerName

if TYPE_CHECKING:
    from daskgp.estimators.method import Method

CHOICES: dict[str, tuple[Any, ...]] = {
    "mean": ("zero", "constant", "linear"),
    "optimizer": (*get_args(OptimizerName), None),
    "dtype": ("float64", "float32"),
    "device": ("auto", "cpu", "gpu"),
    "standardize": (True, False),
    "progress": (True, False, "auto"),
    "neighbours": ("nearest", "order"),
    "prediction": ("consistent", "paper"),
    "expert": ("sparse", "exact"),
    "partition": ("random", "block", "chunks"),
    "aggregation": ("optimal", "npae", "grbcm", "rbcm", "bcm", "gpoe", "poe"),
    "noise_in_experts": (True, False),
    "training": ("fact", "fedavg", "fedprox", "admm", "pxadmm"),
    "train_inducing": (True, False),
    "train_support": (True, False),
    "train_spectral": (True, False),
    "loss": ("elbo", "projected"),
    "likelihood": likelihoods.NAMES,
    "basis": ("kernel", "se-ard", "generalized"),
    "parametrization": ("hybrid", "direct"),
    "share": (True, False),
    "precondition": ("blocks", "jacobi", None),
    "train_points": (True, False),
    "train_mean_points": (True, False),
    "hyperparameters": ("auto", "subset", "bound"),
    "gradients": ("workers", "client"),
}


JITTER = {"float64": 1e-8, "float32": 1e-5}
"""Relative to the prior variance; rounding of float32 tiles must stay below it."""


def check_settings(estimator: Method, besides: Collection[str] = ()) -> None:
    """Raise SettingError for a common setting out of range, or any that has no effect.

    Those of ``besides`` have one whatever the others are.
    """
    for name, allowed in CHOICES.items():
        choice(name, getattr(estimator, name, allowed[0]), allowed)  # not every method has all
    place("store", estimator.store, "a folder")
    positive("noise_variance", estimator.noise_variance)
    if estimator.tol is not None or not estimator.chooses_tol:
        positive("tol", estimator.tol)
    whole("max_iter", estimator.max_iter, 1)
    if estimator.random_state is not None:
        whole("random_state", estimator.random_state, 0)
    if estimator.optimizer == "trust-region" and estimator._trains_more():
        raise SettingError(
            "optimizer='trust-region' trains hyper-parameters alone, no inputs or actions: choose "
            "'auto' or 'l-bfgs'"
        )
    if estimator.block_rows is not None:
        whole("block_rows", estimator.block_rows, 1)
    _number_of_blocks("train_blocks", estimator.train_blocks, estimator.knows_enough_blocks)
    kernel_of(estimator.kernel)
    if hasattr(estimator, "learning_rate"):
        positive("learning_rate", estimator.learning_rate)
    effects.check(estimator, besides)


def kernel_of(value: Any) -> Kernel:
    """The kernel that a setting gives: none for the default, itself, or its text."""
    if value is None:
        return kernels.Matern32(ard=True)
    if isinstance(value, str):
        return kernels.parse(value)
    if not isinstance(value, Kernel):
        raise SettingError(
            f"kernel={shown(value)}: give a kernel of daskgp.kernels or its text, such as "
            "'matern32(ard=true)'"
        )
    return value


def _number_of_blocks(name: str, value: Any, auto: bool) -> None:
    """Raise SettingError unless a setting is a whole number from 1, None or, if so, "auto"."""
    if value is None or (auto and type(value) is str and value == "auto"):
        return
    if isinstance(value, str):
        known = "a whole number from 1, 'auto' or None" if auto else "a whole number from 1 or None"
        raise SettingError(f"{name}={shown(value)}: choose {known}")
    whole(name, value, 1)
