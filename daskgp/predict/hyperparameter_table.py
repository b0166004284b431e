"""Hyper-parameters of a fit in the units of its data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from daskgp.data import axes, feature_units
from daskgp.fit import varying
from daskgp.kernels.base import Kernel, Unit
from daskgp.kernels.compose import derived_of, held, redundant
from daskgp.kernels.rotated import rotations
from daskgp.kernels.units import has_rotation
from daskgp.kernels.words import numbered_parts, structure
from daskgp.models.columns import kind_of_name
from daskgp.models.scaling import left_out
from daskgp.models.trend import collinear
from daskgp.posterior.layers import Response, TrendLayer
from daskgp.posterior.posterior import Posterior

STANDARDISED, NO_UNIT = "standardised", "1"
EAST, NORTH = (
    {name for name in names if kind_of_name(name) is None}
    for names in ((*axes.EAST, "east"), (*axes.NORTH, "north"))
)
"""Names of columns that point east and north in one unit, which degrees of longitude are not."""
VARIES = 1.01
"""Ratio of the largest and the least value from which a hyper-parameter is said to vary."""


class Hyperparameter(NamedTuple):
    """A learned hyper-parameter; ``standard_error`` is NaN where it is unknown."""

    name: str
    value: float
    standard_error: float
    unit: str


class Table(tuple[Hyperparameter, ...]):
    """Hyper-parameters, one per row; ``print`` shows them aligned.

    ``remarks`` say in a line each why some have no standard error.
    """

    remarks: tuple[str, ...]

    def __new__(cls, rows: Iterable[Hyperparameter], remarks: Iterable[str] = ()) -> Self:
        """Return the rows with their remarks."""
        made = super().__new__(cls, rows)
        made.remarks = tuple(remarks)
        return made

    def __str__(self) -> str:
        lines = [("name", "value", "standard error", "unit"), *self.texts()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = (
            "  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )
        return "\n".join([*aligned, *self.remarks])

    __repr__ = __str__

    def texts(self) -> list[tuple[str, ...]]:
        """Return the cells of each row as text."""
        return [tuple(_text(cell) for cell in row) for row in self]


def table(
    posterior: Posterior,
    errors: Sequence[float] | np.ndarray | None,
    likelihood_errors: np.ndarray | None = None,
    history: Sequence[Mapping[str, Any]] = (),
) -> Table:
    """Return the hyper-parameters of a fit.

    Parameters
    ----------
    posterior : Posterior
    errors : sequence of float (k,), optional
        Standard errors of the logarithms of the k hyper-parameters, noise variance last; those of
        what the kernel derives from them may follow.
    likelihood_errors : ndarray, optional
        Those of the parameters of the likelihood.
    history : sequence of mapping
        Of the fit, whose last entry may have compared common and varying ones.
    """
    kernel, found = posterior.theta.kernel, measures(posterior)
    values = np.append(np.exp(kernel.log_parameters), posterior.theta.noise_variance)
    known = np.full(len(values), np.nan) if errors is None else np.asarray(errors)
    known, of_derived = known[: len(values)], known[len(values) :]
    spreads = values * known
    derived = derived_of(kernel) if posterior.method.uses_kernel else ()
    instead = {one.name: one for one in derived}
    rows = []
    for j, one in found.items():
        value, unit = float(values[j] * one.size), one.unit
        if one.name in instead:  # such as an angle, which counts modulo half a turn
            value, unit = instead[one.name].value, instead[one.name].unit
        rows.append(Hyperparameter(one.name, value, float(spreads[j] * one.size), unit))
    rows += _azimuths(posterior, rows)
    if len(of_derived) != len(derived):
        of_derived = np.full(len(derived), np.nan)
    rows += [
        Hyperparameter(one.name, one.value, float(error), one.unit)
        for one, error in zip(derived, of_derived, strict=True)
        if one.name not in kernel.parameter_names
    ]
    rows += _of_likelihood(posterior, likelihood_errors)
    rows += _of_targets(posterior, likelihood_errors)
    remarks = [] if np.isnan(known[[*found]]).all() else _remarks(kernel, rows)
    last = history[-1] if history else {}
    if varying.GAIN in last:
        remarks = [*remarks, varying.outcome(last, posterior.theta.varying is not None)]
    return Table(rows, [*remarks, *_ranges(posterior, values), *_named_parts(posterior)])


def of_targets(names: Sequence[str], each: Sequence[Table]) -> Table:
    """Return the tables of separate targets, each with its name, as one."""
    pairs = [*zip(names, each, strict=True)]
    rows = (row._replace(name=f"{row.name} of {name}") for name, own in pairs for row in own)
    return Table(rows, [f"{name}: {text}" for name, own in pairs for text in own.remarks])


def _azimuths(posterior: Posterior, rows: Sequence[Hyperparameter]) -> Iterator[Hyperparameter]:
    """Yield the angles of columns that point east and north as azimuths, clockwise from north."""
    kernel, known = posterior.theta.kernel, {row.name: row for row in rows}
    names = [name.lower() for name in posterior.columns.inputs_names]
    turned = list(rotations(kernel)) if has_rotation(kernel) else []
    for first, part in turned:
        sides = [names[j] for j in part.columns]
        name = kernel.parameter_names[first + len(part.kernel.parameter_names)]
        if name not in known or len(sides) != 2:
            continue
        if sides[0] in EAST and sides[1] in NORTH:
            azimuth = (90.0 - known[name].value) % 180.0
        elif sides[0] in NORTH and sides[1] in EAST:
            azimuth = known[name].value
        else:
            continue
        yield known[name]._replace(name=f"{name[: -len('angle')]}azimuth", value=azimuth)


class Measure(NamedTuple):
    """Name, size in the units of the data, and unit of a hyper-parameter."""

    name: str
    size: float
    unit: str


def measures(posterior: Posterior) -> dict[int, Measure]:
    """Return the hyper-parameters of a fit that matter, by their position."""
    kernel, d, method = posterior.theta.kernel, len(posterior.columns), posterior.method
    noise = [] if posterior.likelihood or posterior.joint else ["noise_variance"]
    named = zip((*kernel.parameter_names, *noise), (*kernel.units(d), Unit((), 0, 2)), strict=False)
    own = len(kernel.parameter_names)
    return {
        j: Measure(name, *_in_units(posterior, unit))
        for j, (name, unit) in enumerate(named)
        if (method.shows_noise if j == own else method.uses_kernel)
        and not left_out(unit, posterior.scaling.uses)
    }


def _of_likelihood(posterior: Posterior, errors: np.ndarray | None) -> Iterator[Hyperparameter]:
    """Yield the parameters of a likelihood, those of y in its unit."""
    response = posterior.layer(Response)
    if response is None:
        return
    own = response.likelihood
    values = np.exp(own.log_parameters)
    known = np.full(len(values), np.nan) if errors is None else errors
    scales = np.unique(response.scale)  # that of several targets is a common one, or none
    for name, value, error in zip(own.parameter_names, values, known, strict=True):
        size, unit = 1.0, NO_UNIT
        if name in own.in_units:
            one = len(scales) == 1
            size, unit = (float(scales[0]), _target(posterior)) if one else (1.0, STANDARDISED)
        yield Hyperparameter(name, float(value) * size, float(value * error) * size, unit)


def _of_targets(posterior: Posterior, errors: np.ndarray | None) -> Iterator[Hyperparameter]:
    """Yield the noise variances of joint targets."""
    if not posterior.joint:
        return
    known = np.full(posterior.n_targets, np.nan) if errors is None else errors
    for j, name in enumerate(posterior.target_names):
        value, unit = float(posterior.noise[j]), _power(_unit_of(posterior, j), 2)
        yield Hyperparameter(f"noise_variance[{name}]", value, value * float(known[j]), unit)


def _unit_of(posterior: Posterior, target: int) -> str:
    """Return the unit of a target, its name where it is not known."""
    units = posterior.target_units
    return (units[target] if units else "") or posterior.target_names[target]


def of_trend(posterior: Posterior) -> Table:
    """Return intercept and slopes of the trend of a fit, those of one target after another."""
    layer = posterior.layer(TrendLayer)
    assert layer is not None
    assert layer.coefficients is not None
    trend, (B, root) = layer.trend, layer.coefficients
    T, base = trend.in_users_units()
    values = base + T @ B * posterior.scaling.y_scale
    errors = np.sqrt(((T @ root) ** 2).sum(axis=1))[:, None] * posterior.scaling.y_scale
    errors = np.where(trend.unknown()[:, None], np.inf, errors)
    names = ["intercept", *(posterior.feature_names[j] for j in trend.columns)]
    known = dict(zip(posterior.feature_names, posterior.feature_units, strict=False))
    units = ((name, feature_units.of_differences(known.get(name, ""))) for name in names[1:])
    per = [f"/{_whole(unit or name)}" for name, unit in units]
    said = () if posterior.scaling.transform is not None else posterior.target_units
    uses = np.isfinite([1.0, *trend.scale])  # constant columns are left out
    bare = posterior.likelihood is not None and not posterior.likelihood.standardised
    rows = []
    for k, target in enumerate(posterior.target_names):
        of = f" of {target}" if len(posterior.target_names) > 1 else ""
        unit = NO_UNIT if bare else (said[k] if said else "") or _target(posterior)
        each = [unit, *(_whole(unit) + by for by in per)]
        rows += [
            Hyperparameter(names[i] + of, float(values[i, k]), float(errors[i, k]), each[i])
            for i in np.flatnonzero(uses)
        ]
    return Table(rows, (collinear(group, names[1:]) for group in trend.collinear()))


def _ranges(posterior: Posterior, common: np.ndarray) -> Iterator[str]:
    """Yield a line with the ranges of hyper-parameters that vary over space."""
    field = posterior.theta.varying
    if field is None:
        return
    texts, unused = [], []
    for j, one in measures(posterior).items():
        logs = field.logs[:, j]
        ends = common[j] * one.size * np.exp([logs.min(), logs.max()])
        if ends[1] > VARIES * ends[0]:
            texts.append(f"{one.name} from {ends[0]:.3g} to {ends[1]:.3g}")
        if logs.any() and np.isnan(field.errors).all():
            unused.append(one.name)
    yield (
        f"these are common values, about which those of {len(field.knots)} knots vary over space"
        f"{': ' * bool(texts)}{', '.join(texts)}"
    )
    if unused:
        yield (
            f"the field that was given has all values of {', '.join(unused)}, whose common "
            f"{'values are' if unused[1:] else 'value is'} not used"
        )


def _remarks(kernel: Kernel, rows: Sequence[Hyperparameter]) -> Iterator[str]:
    """Yield lines on values without errors, one for every group of variances that share theirs."""
    unsure = {row.name for row in rows if np.isnan(row.standard_error)}
    told = set[str]()
    for group in redundant(kernel):
        if unsure.issuperset(group) and held(kernel).keys().isdisjoint(group):
            names = f"{', '.join(group[:-1])} and {group[-1]}"
            yield f"{names} have no standard errors: data do not tell factors of a product apart"
            told |= set(group)
    if unsure - told:
        yield (
            "no standard error is known of a value that is fixed, at a limit, or hardly told by "
            "the rows"
        )


def _named_parts(posterior: Posterior) -> Iterator[str]:
    """Yield what numbers in names stand for: parts of the kernel, and columns that units hide."""
    kernel, features = posterior.theta.kernel, posterior.columns.inputs_names
    if not posterior.method.uses_kernel:
        return
    parts = [*numbered_parts(kernel)]
    if len(parts) > 1:
        said = posterior.columns.features_of_inputs
        words = (f"{prefix[:-1]} is {structure(part, said)}" for prefix, part in parts)
        yield f"parts of the kernel: {'; '.join(words)}"
    texts = []
    columns = dict(zip(kernel.parameter_names, kernel.units(len(features)), strict=True))
    for one in measures(posterior).values():
        own = columns[one.name].columns if one.name in columns else ()
        told = len(own) != 1 or features[own[0]] in re.split(r"[\s^*/()]+", one.unit)
        if one.name.endswith("]") and not told:
            texts.append(f"{one.name} is that of {features[own[0]]}")
    if texts:
        yield ", ".join(texts)


def _in_units(posterior: Posterior, unit: Unit) -> tuple[float, str]:
    """Return the size of a unit in those of the data, and its name."""
    scale, level = posterior.size(unit), unit.level
    if posterior.joint and level is not None and level[0] == len(posterior.columns) - 1:
        one = _power(_unit_of(posterior, level[1]), unit.of_target) if unit.of_target else NO_UNIT
        return (1.0 if scale is None else scale), one
    return (1.0, STANDARDISED) if scale is None else (scale, _name(posterior, unit))


def _name(posterior: Posterior, unit: Unit) -> str:
    uses = posterior.scaling.uses
    columns = posterior.columns.unit([j for j in unit.columns if uses[j]], units_of(posterior))
    own = posterior.likelihood  # f of codes and counts has no unit
    of_target = unit.of_target if own is None or own.standardised else 0
    parts = [(_target(posterior), of_target), (columns, unit.of_inputs)]
    names = " ".join(_power(name, power) for name, power in parts if power)
    return names or (NO_UNIT if unit.of_target else "")


def units_of(posterior: Posterior) -> dict[str, str]:
    """Return the units of differences of the features that are times, by name."""
    said = dict(zip(posterior.feature_names, posterior.feature_units, strict=False))
    counted = {name: unit for name, unit in said.items() if feature_units.count_of(unit)}
    return {name: feature_units.of_differences(unit) for name, unit in counted.items()}


def _target(posterior: Posterior) -> str:
    """Return the unit that all targets share if it is known, else the name of a single one."""
    transform = posterior.scaling.transform
    if transform is not None:
        one = posterior.target_names[0] if len(posterior.target_names) == 1 else "y"
        return f"{transform.kind}({one})"
    known = set(posterior.target_units)
    if len(known) == 1 and all(known):
        return known.pop()
    return posterior.target_names[0] if len(posterior.target_names) == 1 else "y"


def _power(name: str, power: int) -> str:
    return name if power == 1 else f"{_whole(name)}^{power}"


def _whole(name: str) -> str:
    return f"({name})" if set(name) & set(" */^") else name


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    return "-" if np.isnan(cell) else f"{cell:.4g}"
