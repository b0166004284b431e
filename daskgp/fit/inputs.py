"""Inducing and support inputs as an estimator's settings give them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from daskgp.checks import whole
from daskgp.errors import InputError, SettingError
from daskgp.fit import effects, rounds
from daskgp.kernels import Kernel
from daskgp.models import inducing
from daskgp.models.scaling import usable_rows

logger = logging.getLogger("daskgp")


@dataclass(frozen=True)
class ChosenInputs:
    """Inputs that the settings ``how`` ("inducing") and ``number`` ("n_inducing") ask for."""

    estimator: BaseEstimator
    how: str
    number: str
    label: str

    @property
    def count(self) -> int:
        """Number of inputs."""
        if isinstance(self._setting, str):
            if self._setting not in effects.WAYS:
                raise inducing.unknown(self._setting)
            return whole(self.number, getattr(self.estimator, self.number), 1)
        return len(self._given())

    @property
    def usual(self) -> bool:
        """True if their number is the default, which data with fewer rows may fall short of."""
        usual = effects.defaults(type(self.estimator))[self.number]
        return isinstance(self._setting, str) and getattr(self.estimator, self.number) == usual

    def choose(self, stage: rounds.Rounds, sample: np.ndarray, kernel: Kernel) -> np.ndarray:
        """Return the inputs (m, d) in scaled units, from a scaled sample or as set by the user."""
        if not isinstance(self._setting, str):
            return self._scaled(stage, sample.shape[1])
        rng = np.random.default_rng(self.estimator.random_state)
        chosen = inducing.choose(sample, kernel, self.count, self._setting, rng)
        if len(chosen) < self.count:
            logger.log(
                logging.INFO if self.usual else logging.WARNING,
                "%d of %d %s are used: the sample has no more distinct rows",
                len(chosen),
                self.count,
                self.label,
            )
        return chosen

    @property
    def _setting(self) -> Any:
        return getattr(self.estimator, self.how)

    def _scaled(self, stage: rounds.Rounds, d: int) -> np.ndarray:
        Z = self._given()
        if Z.shape[1] != d:
            raise InputError(f"{self.how} has shape {Z.shape}: inputs of shape (m, {d}) are needed")
        return np.asarray(stage.scaling.inputs(Z))

    def _given(self) -> np.ndarray:
        """Return the inputs (m, d) that the setting itself holds, in the units of X."""
        try:
            Z = np.asarray(self._setting, np.float64)
        except (TypeError, ValueError) as error:
            raise SettingError(
                f"{self.how} is no array of numbers: choose 'greedy', 'kmeans', 'random' or give "
                f"inputs (m, d) ({error})"
            ) from error
        if Z.ndim != 2 or not len(Z) or not usable_rows(Z).all():
            raise SettingError(f"{self.how} has shape {Z.shape}: finite inputs (m, d) are needed")
        return Z
