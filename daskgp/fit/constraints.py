"""Settings about hyper-parameters: which are fixed, their bounds and their priors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgp import priors
from daskgp.checks import LARGEST, positive, shown
from daskgp.errors import SettingError
from daskgp.kernels import Kernel
from daskgp.kernels.base import Unit
from daskgp.kernels.compose import held
from daskgp.kernels.rotated import angle_places
from daskgp.kernels.units import has_rotation, left_open
from daskgp.models import scaling
from daskgp.models.values import Theta

NOISE = "noise_variance"


class LogPrior(NamedTuple):
    """Log prior density of a vector of hyper-parameters: terms by position and log unit."""

    terms: tuple[tuple[int, priors.Prior, float], ...]

    def __call__(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value at a vector (k,), of which the first are hyper-parameters; gradient."""
        total, gradient = 0.0, np.zeros_like(vector)
        for j, prior, log_unit in self.terms:
            value, slope = prior.log_density(float(vector[j]) + log_unit)
            total += value
            gradient[j] += slope
        return total, gradient


class Constraints(NamedTuple):
    """Values, bounds and priors of the hyper-parameters of one kernel, in the units of the model.

    Attributes
    ----------
    fixed : dict of int to float
        Logarithms by position in the vector of hyper-parameters, noise variance last.
    limits : dict of int to (float, float)
        Bounds of logarithms by position.
    prior : LogPrior
    """

    fixed: dict[int, float]
    limits: dict[int, tuple[float, float]]
    prior: LogPrior

    def bounded(self, bounds: np.ndarray) -> np.ndarray:
        """Return bounds (k, 2) of a vector with those of the user in their places."""
        bounds = bounds.copy()
        for j, limits in self.limits.items():
            bounds[j] = limits
        for j, value in self.fixed.items():
            bounds[j] = value
        return bounds

    def started(self, theta: Theta) -> Theta:
        """Return hyper-parameters that are moved to what is fixed and into the bounds."""
        vector = theta.to_vector(False)
        free = np.tile([-np.inf, np.inf], (len(vector), 1))
        moved = np.clip(vector, *self.bounded(free).T)
        if np.array_equal(moved, vector):
            return theta
        return dataclasses.replace(theta.from_vector(moved), inputs=theta.inputs)


NONE = Constraints({}, {}, LogPrior(()))


class Asked(NamedTuple):
    """Settings about hyper-parameters, by their names and in the units of the data.

    Attributes
    ----------
    fixed, limits, prior
        Settings of an estimator.
    measured : bool
        Whether there is a noise variance among the hyper-parameters.
    each : tuple of str
        Names of joint targets, each of which has a noise variance of its own.
    """

    fixed: Any = None
    limits: Mapping[str, Sequence[float]] | None = None
    prior: Mapping[str, Any] | None = None
    measured: bool = True
    each: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        """True if anything is said."""
        return bool(self.fixed or self.limits or self.prior)

    def check(self) -> None:
        """Raise SettingError for values of the wrong kind."""
        fixed = self.fixed
        if not (fixed is None or isinstance(fixed, str | Mapping) or _are_names(fixed)):
            raise SettingError(
                f"fixed={shown(fixed)}: give names of hyper-parameters, or a mapping of names to "
                "values"
            )
        for name, value in fixed_values(fixed).items():
            if value is not None:
                positive(f"fixed[{name!r}]", value, squared=True)
        for setting in ("limits", "prior"):
            value = getattr(self, setting)
            if not isinstance(value, Mapping | None):
                raise SettingError(
                    f"{setting}={shown(value)}: give a mapping of names of hyper-parameters"
                )
        for name, pair in (self.limits or {}).items():
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise SettingError(
                    f"limits of {shown(name)} are {shown(pair)}: give (lowest, highest)"
                )
            for end in pair:
                positive(f"limits[{name!r}]", end, squared=True)
            if pair[0] >= pair[1]:
                raise SettingError(
                    f"limits of {shown(name)} are {shown(pair)}: the first must be less than the "
                    "second"
                )
        priors.of(self.prior)

    def check_names(self, kernel: Kernel, d: int) -> None:
        """Raise SettingError for names that no hyper-parameter of a kernel of d columns has."""
        if not self.anything:
            return
        resolved = kernel.resolve(np.ones(d), 1.0)
        names, fixed = self.names(resolved), fixed_values(self.fixed)
        seen: dict[str, set[int]] = {"fixed": set(), "limits": set()}
        for setting in ("fixed", "limits", "prior"):
            for name in fixed if setting == "fixed" else getattr(self, setting) or {}:
                found = matching(names, name)
                if not found:
                    raise SettingError(
                        f"{setting} names {shown(name)}, which is not a hyper-parameter: choose "
                        f"among {', '.join(names)}"
                    )
                if setting != "fixed" or fixed[name] is not None:
                    self._refuse_several(setting, name, resolved, d)
                seen.setdefault(setting, set()).update(found)
        _refuse_angles(resolved, seen.get("prior", set()))
        self._check_lengths(names)
        for j in sorted(seen["fixed"] & seen["limits"]):
            raise SettingError(f"{names[j]!r} is fixed and has limits: leave one of them out")
        is_open = np.append(left_open(kernel, d), [False] * max(len(self.each), 1))
        for name, value in fixed.items():
            if value is None and any(is_open[j] for j in matching(names, name)):
                raise SettingError(
                    f"fixed names {name!r}, whose value the kernel leaves open: give it there, or "
                    f"here in the units of the data, fixed={{{name!r}: 1.0}}"
                )

    def _check_lengths(self, names: Sequence[str]) -> None:
        """Raise SettingError for another number of values than a name stands for."""
        told: Mapping[str, Any] = self.fixed if isinstance(self.fixed, Mapping) else {}
        for name, value in told.items():
            number = len(matching(names, name))
            if isinstance(value, list | tuple) and len(value) != number:
                raise SettingError(
                    f"fixed[{name!r}] has {len(value)} values for {number}: give one for each, or "
                    "one for all"
                )

    def _refuse_several(self, setting: str, name: str, kernel: Kernel, d: int) -> None:
        """Raise SettingError for numbers of all joint targets, which have units of their own."""
        names, units = self.names(kernel), kernel.units(d)
        own = [j for j in matching(names, name) if j < len(units) and units[j].level is not None]
        targets = [names[j] for j in own if units[j].level[0] == d - 1]  # type: ignore[index]
        if self.each and len(targets) > 1:
            raise SettingError(
                f"{setting} names {shown(name)}, and each joint target has one in its unit: "
                f"name {' or '.join(targets)}"
            )

    def learned(self, kernel: Kernel, d: int) -> int:
        """Return how many hyper-parameters of a kernel of d columns are not fixed."""
        resolved = kernel.resolve(np.ones(d), 1.0)
        names, fixed = self.names(resolved), fixed_values(self.fixed)
        kept = {j for name in fixed for j in matching(names, name)}
        return len(names) - len(kept.union(self._held(resolved)))

    def _held(self, kernel: Kernel) -> list[int]:
        """Return the positions of variances that others of a product say, and no user names.

        Where the other is one number, which is fixed, it is the variance that is learned instead.
        """
        names = self.names(kernel)
        fixed, *others = (
            {j for name in setting for j in matching(names, name)}
            for setting in (fixed_values(self.fixed), self.limits or {}, self.prior or {})
        )
        said = fixed.union(*others)
        return [
            j
            for name, instead in held(kernel).items()
            if (j := names.index(name)) not in said
            and not (len(instead) == 1 and names.index(instead[0]) in fixed)
        ]

    def check_sizes(self, theta: Theta) -> None:
        """Raise SettingError for hyper-parameters, in the model's units, of impossible size."""
        largest = np.log(LARGEST)
        for name, log in zip(self.names(theta.kernel), theta.to_vector(False), strict=False):
            if not -largest <= log <= largest:
                raise SettingError(
                    f"{name} begins at {np.exp(log):.3g} in the units of the scaled data, whose "
                    f"powers double precision cannot hold: give a number within {1 / LARGEST:.0e} "
                    f"to {LARGEST:.0e}, or leave it out"
                )

    def names(self, kernel: Kernel) -> list[str]:
        """Return the names of hyper-parameters in the order of their vector."""
        noise = noise_names(self.each) or ([NOISE] if self.measured else [])
        return [*kernel.parameter_names, *noise]

    def about(
        self,
        theta: Theta,
        scale: scaling.Scaling,
        noise: float | None,
        levels: np.ndarray | None = None,
    ) -> Constraints:
        """Return the constraints of hyper-parameters in the units of the model.

        What is fixed without a value keeps that of theta, and the noise variance a given one.  So
        do variances that those of categories, in the same product, make redundant.  ``levels`` are
        the scales of joint targets, which have no unit in common; the noise variance is the rows'.

        Raises
        ------
        SettingError
            If a setting is about a hyper-parameter that has no unit.
        """
        kept, start = self._held(theta.kernel), theta.to_vector(False)
        if not self.anything:
            return NONE._replace(fixed={j: float(start[j]) for j in kept}) if kept else NONE
        names = self.names(theta.kernel)
        units = [*theta.kernel.units(len(scale.x_scale)), Unit((), 0, 2)]
        if noise is not None:  # a search may have moved that of theta
            start[-1] = np.log(noise)

        def positions(name: str) -> list[int]:
            return [j for j in matching(names, name) if not scaling.left_out(units[j], scale.uses)]

        def log_unit(setting: str, j: int) -> float:
            size = scale.size(units[j], None if names[j] == NOISE else levels)
            if size is None:
                raise SettingError(
                    f"{setting} of {names[j]!r} has no unit, because columns or targets have "
                    "different scales: set standardize=False"
                )
            return float(np.log(size))

        fixed = {j: float(start[j]) for j in kept}
        fixed |= {
            j: float(start[j]) if value is None else float(np.log(value)) - log_unit("fixed", j)
            for name, value in fixed_values(self.fixed).items()
            for j in positions(name)
        }
        limits: dict[int, tuple[float, float]] = {}
        for name, pair in (self.limits or {}).items():
            for j in positions(name):
                low, high = np.log(pair) - log_unit("limits", j)
                limits[j] = float(low), float(high)
        terms = tuple(
            (j, prior, log_unit("prior", j))
            for name, prior in priors.of(self.prior).items()
            for j in positions(name)
        )
        return Constraints(fixed, limits, LogPrior(terms))


def _refuse_angles(kernel: Kernel, positions: set[int]) -> None:
    """Raise SettingError for a prior of an angle, by positions of hyper-parameters with priors."""
    if has_rotation(kernel) and (angles := positions.intersection(angle_places(kernel))):
        name = kernel.parameter_names[min(angles)]
        raise SettingError(
            f"{name!r} takes no prior, as angles count modulo half a turn or a whole one: give "
            f"limits={{{name!r}: (20, 40)}}, in degrees, or fix it"
        )


def noise_names(targets: Sequence[str]) -> list[str]:
    """Return the names of the noise variances of joint targets."""
    return [f"{NOISE}[{name}]" for name in targets]


def matching(names: Sequence[str], name: str) -> list[int]:
    """Return the positions of a name; that of a vector stands for all of its entries."""
    return [j for j, known in enumerate(names) if name in (known, known.partition("[")[0])]


def fixed_values(fixed: Any) -> dict[str, float | None]:
    """Return the values of hyper-parameters by name; None for one that keeps where it starts."""
    if fixed is None:
        return {}
    if isinstance(fixed, str):
        return {fixed: None}
    if not isinstance(fixed, Mapping):
        return dict.fromkeys(fixed)
    found: list[tuple[str, float | None]] = []
    for name, value in fixed.items():
        if not isinstance(name, str):
            raise SettingError(
                f"fixed has {shown(name)}, which is not the name of a hyper-parameter: give a "
                "name as "
                "in hyperparameters_"
            )
        if isinstance(value, np.ndarray):  # settings are kept as JSON
            raise SettingError(f"fixed[{name!r}]={shown(value)}: give a list, array.tolist()")
        several = enumerate(value) if isinstance(value, list | tuple) else ()
        found += [(f"{name}[{k}]", each) for k, each in several] or [(name, value)]
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1 or (name.endswith("]") and name.partition("[")[0] in names):
            raise SettingError(f"fixed has {name} twice: give each hyper-parameter once")
    return dict(found)


def _are_names(value: Any) -> bool:
    kinds = list | tuple | set | frozenset
    return isinstance(value, kinds) and all(isinstance(name, str) for name in value)
