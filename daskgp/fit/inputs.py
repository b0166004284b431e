"""Inducing and support inputs as an estimator's settings give them."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from daskgp.checks import whole
from daskgp.errors import InputError, SettingError
from daskgp.fit import rounds
from daskgp.kernels import Kernel
from daskgp.models import inducing, scaling
from daskgp.models.scaling import usable_rows

logger: logging.Logger = logging.getLogger("daskgp")

WAYS = inducing.WAYS
OUTSIDE = 0.1
"""Share of the data's range by which inducing inputs may lie beyond it without a warning."""


@dataclass(frozen=True)
class Inputs:
    """Inputs that a method has beside the rows, and how they are chosen: these ones are not.

    Attributes
    ----------
    count : int
        Their number; 0 for a method without any.
    label : str
        What messages call them.
    trained : bool
        Whether training moves them.
    usual : bool
        Whether their number is the default, which data with fewer rows may fall short of.
    spare : int
        Rows that must be left where there are few.
    finer : str
        What to do where they do not resolve the data; empty where blocks or experts would.
    """

    count: int = 0
    label: str = "inducing inputs"
    trained: bool = False
    usual: bool = False
    spare: int = 0
    finer: str = ""

    takes_categories: ClassVar[bool] = True
    """False where they are no places that codes of categories have."""

    def of(self, n: int) -> int:
        """Return their number for n rows."""
        return min(self.count, max(1, n - self.spare)) if self.usual else self.count

    def planned(self, features: int) -> int:
        """Return their number in that many dimensions, of which a plan is made."""
        return self.count

    def check(self, n: int) -> None:
        """Raise InputError if there are more of them than n usable rows."""
        count = self.of(n)
        if n < count:
            raise InputError(f"{count} {self.label} for {n} usable rows: choose at most {n}")

    def choose(self, stage: rounds.Rounds, sample: np.ndarray, kernel: Kernel) -> np.ndarray | None:
        """Return them (m, d) in scaled units, from a scaled sample of rows."""
        return None

    def placed(self, stage: rounds.Rounds, sums: scaling.Sums) -> np.ndarray | None:
        """Return those (m, d), in scaled units, that follow from the ranges of the data alone."""
        return None

    def takes(self, others: Inputs) -> bool:
        """Return True if those of another model are of the same kind, and may replace a choice."""
        return False

    def moved(self, inputs: np.ndarray, then: scaling.Scaling, now: scaling.Scaling) -> np.ndarray:
        """Return inputs (m, d) of another model in the units of this one."""
        return np.asarray(now.inputs(then.places(inputs)))

    def warn(
        self,
        inputs: np.ndarray | None,
        sums: scaling.Sums,
        scale: scaling.Scaling,
        lengths: Collection[int] = (),
    ) -> None:
        """Warn of inputs far from all data, which explain nothing; ``lengths`` are no places."""
        if inputs is None:
            return
        d = len(scale.x_scale)
        low, high = scale.inputs(sums.low[:d]), scale.inputs(sums.high[:d])
        margin = OUTSIDE * (high - low)
        away = (inputs < low - margin) | (inputs > high + margin)
        away[:, list(lengths)] = False
        count = int(away.any(axis=1).sum())
        if count:
            logger.warning(
                "%d of %d %s lie outside the range of the data, where they explain nothing: "
                "leave them out",
                count,
                len(inputs),
                self.label,
            )


@dataclass(frozen=True, kw_only=True)
class ChosenInputs(Inputs):
    """Inputs as a setting gives them: how they are chosen, or the inputs themselves.

    Attributes
    ----------
    name : str
        Name of the setting, such as "inducing".
    setting : object
    seed : int or None
    """

    name: str
    setting: Any
    seed: int | None

    def choose(self, stage: rounds.Rounds, sample: np.ndarray, kernel: Kernel) -> np.ndarray:
        """Return the inputs (m, d) in scaled units, from a scaled sample or as set by the user."""
        if not isinstance(self.setting, str):
            return self._scaled(stage)
        rng = np.random.default_rng(self.seed)
        chosen = inducing.choose(sample, kernel, self.count, self.setting, rng)
        if len(chosen) < self.count:
            logger.log(
                logging.INFO if self.usual else logging.WARNING,
                "%d of %d %s are used: the sample has no more distinct rows",
                len(chosen),
                self.count,
                self.label,
            )
        return stage.onto(chosen)

    def takes(self, others: Inputs) -> bool:
        """Return True for others that are chosen among rows, unless the setting gives them."""
        return isinstance(self.setting, str) and isinstance(others, ChosenInputs)

    def _scaled(self, stage: rounds.Rounds) -> np.ndarray:
        Z = given(self.name, self.setting)
        columns = stage.rows.columns
        if Z.shape[1] != len(columns.names):
            raise InputError(
                f"{self.name} has shape {Z.shape}: inputs of shape (m, {len(columns.names)}) are "
                "needed"
            )
        return np.asarray(stage.scaling.inputs(columns.inputs(Z)))


def chosen(
    name: str,
    setting: Any,
    number: str,
    count: Any,
    usual: int,
    seed: int | None,
    label: str = Inputs.label,
    **more: Any,
) -> ChosenInputs:
    """Return the inputs that two settings ask for, with these names and values.

    They are ``setting``, how inputs are chosen, and ``count``, how many; ``usual`` is its default.
    """
    by_name = isinstance(setting, str)
    if by_name and setting not in WAYS:
        raise inducing.unknown(name, setting)
    return ChosenInputs(
        whole(number, count if by_name else len(given(name, setting)), 1),
        label,
        usual=by_name and count == usual,
        name=name,
        setting=setting,
        seed=seed,
        **more,
    )


def given(name: str, setting: Any) -> np.ndarray:
    """Return the inputs (m, d) that a setting itself holds, in the units of X."""
    try:
        Z = np.asarray(setting, np.float64)
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"{name} is not an array of numbers: choose 'greedy', 'kmeans', 'random' or give "
            f"inputs (m, d) ({error})"
        ) from error
    if Z.ndim != 2 or not len(Z) or not usable_rows(Z).all():
        raise SettingError(f"{name} has shape {Z.shape}: finite inputs (m, d) are needed")
    return Z
