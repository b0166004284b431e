"""Several targets together: each target of a row is a row of its own, with a column that tells it.

Targets are taken in units of their own, about a mean of their own, and those that are missing are
rows that are not there.  A kernel over the column, ``Coregion``, says how they go together (linear
model of coregionalisation).  Each target t has a noise variance s_t, so that a row of weight w and
error variance e has d = s_t / w + e, of which r = (s_t / w) / d is learned.  With m and v the
posterior mean and variance of f at the row, the evidence F has the slope

    dF / d log s_t = (a_t - b_t) / 2,  a_t = sum r (y - m)^2 / d,  b_t = sum r (1 - v / d)

over the rows of t, so that training takes turns with s_t a_t / b_t (MacKay 1992), with a longer
step where errors are most of d: a_t / b_t then hardly changes with s_t.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from daskgp import data
from daskgp.data.blocks import sampling
from daskgp.data.partition import Span
from daskgp.data.regressor import Known
from daskgp.data.rows import GIVEN, WEIGHT, Y_VARIANCE, is_zarr
from daskgp.data.stores.checkpoints import Place
from daskgp.errors import InputError, SettingError
from daskgp.fit import constraints, hyperparameters, means, sites, warm
from daskgp.fit.constraints import NOISE, Asked, fixed_values
from daskgp.fit.fitted import Fit, note
from daskgp.fit.recipe import Recipe
from daskgp.fit.turns import RowsInTurns
from daskgp.kernels import Coregion, Kernel
from daskgp.kernels.base import Unit
from daskgp.kernels.categories import with_levels, with_name
from daskgp.kernels.compose import Composite, tables
from daskgp.kernels.units import without_unit
from daskgp.models import scaling
from daskgp.posterior.layers import Noise, TargetNoise, Units, chain
from daskgp.posterior.posterior import VARIABLE, Posterior, variable_of
from daskgp.runtime.executor import Executor, map_all, map_reduce, node
from daskgp.runtime.process import single_blas_thread
from daskgp.train import callbacks

logger: logging.Logger = logging.getLogger("daskgp")

MOST = 30
"""Most turns."""
CLOSE = 0.01
"""Change of the logs of noise variances with which turns end."""
LEVEL = 0.02
"""Slope of the evidence, in nats by the log of a noise variance, with which they end too: that of
few values may fall on and on, and what is left to gain is about the slope."""
REACH, SLOWEST, TURNING = 1.5, 0.8, -2.0
"""Most that one of them moves in a turn, and shares of the last step between which steps are added:
those below 0 turn back and forth."""
ENOUGH = 50_000
"""Rows of a target, about, that tell its noise variance."""
SAMPLED = (7, 45)
"""Seed of the rows that tell it where there are more."""
PIECE = 4_096
"""Most of these in a task."""


class Sums(NamedTuple):
    """Sums over rows of each target (p,): a, b, b less what errors hide, information on log s.

    The third is b with r^2 for r, the change of a / b with log s; the last are numbers of rows.
    """

    misfit: np.ndarray
    free: np.ndarray
    told: np.ndarray
    information: np.ndarray
    rows: np.ndarray

    def of_all(self, counts: np.ndarray) -> Sums:
        """Return the sums of so many rows (p,) for which these stand; those of none stay 0."""
        factor = counts / np.maximum(self.rows, 1.0)
        return Sums(*(factor * own for own in self))

    def plus(self, other: Sums) -> Sums:
        """Return the sums over both sets of rows."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    def step(self, last: np.ndarray | None) -> np.ndarray:
        """Return by how much the logs of noise variances are to grow (p,).

        Steps that shrink in proportion are added up (Aitken), as the ``last`` one tells, and those
        that turn back and forth are shortened.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            slower = np.where(self.told > 0.0, self.free / self.told, 1.0)
            wanted = np.nan_to_num(np.log(self.misfit / self.free) * slower)
            ratio = 0.0 if last is None else np.nan_to_num(wanted / last)
        ratio = np.where((ratio > TURNING) & (ratio < SLOWEST), ratio, 0.0)
        return np.clip(wanted / (1.0 - ratio), -REACH, REACH)

    def settled(self, step: np.ndarray) -> np.ndarray:
        """Return a mask (p,) of the noise variances that another step would hardly change."""
        level = np.abs(self.misfit - self.free) < 2.0 * LEVEL
        return (self.rows > 0) & ((np.abs(step) < CLOSE) | level)

    def most_gained(self, noise: np.ndarray, trained_at: np.ndarray) -> float:
        """Return the nats that training may gain, at most, which was last at other variances (p,).

        With F the information on all parameters, moves m of log s leave m' F_st F_tt^-1 F_ts m / 2
        to the others t, and F_ss is no less than that matrix.
        """
        return float(0.5 * self.information @ np.log(noise / trained_at) ** 2)

    def errors(self, noise: np.ndarray, limits: np.ndarray) -> np.ndarray:
        """Return the standard errors of the logs of noise variances (p,), NaN at limits (2, p).

        With A the covariance of all values and S the learned noise of those of a target, the Fisher
        information on log s is tr(A^-1 S A^-1 S) / 2, of which only the diagonal of A^-1 is summed:
        errors are larger by what other entries tell.  Hyper-parameters and the noise of other
        targets are held, and errors smaller by what these leave open.
        """
        inside = (noise > limits[0]) & (noise < limits[1]) & (self.information > 0)
        return np.where(inside, 1.0 / np.sqrt(np.where(inside, self.information, 1.0)), np.nan)


def check(recipe: Recipe, rows: data.Rows) -> None:
    """Raise SettingError for what joint targets do not go with."""
    if rows.n_targets < 2:
        raise SettingError(
            "targets='joint' is for several targets, and y has one: give y (n, p), or leave "
            "targets out"
        )
    _refuse_one_error(rows)
    for one in (own for kernel in recipe.kernels for own in tables(kernel)):
        if one.column == VARIABLE and isinstance(one, Coregion):
            one.check_rank(rows.n_targets)
    if recipe.settings.get("varying") is not None:
        raise SettingError(
            "targets='joint' has hyper-parameters that all places have in common: leave varying out"
        )
    _check_asked(recipe, rows.target_names)
    if means.is_integrated(recipe.mean):
        raise SettingError(
            f"mean={recipe.mean!r} is a trend whose coefficients are integrated over, which "
            "targets='joint' does not support: choose mean='ols', least squares of each "
            "target, or 'constant'"
        )


def _check_asked(recipe: Recipe, targets: Sequence[str]) -> None:
    """Raise SettingError for what is said about noise variances and has no meaning."""
    asked, names = recipe.asked, constraints.noise_names(targets)
    fixed = fixed_values(asked.fixed)
    for setting, given in (("fixed", fixed), ("limits", asked.limits), ("prior", asked.prior)):
        if NOISE in (given or {}):
            raise SettingError(
                f"{setting} has {NOISE!r}, and targets='joint' learns one of each target: "
                + ("leave it out" if setting == "prior" else f"name {' or '.join(names)}")
            )
    for name in names:
        if name in (asked.prior or {}):
            raise SettingError(
                f"prior has {name!r}, and noise variances of targets='joint' have no prior: give "
                f"limits={{{name!r}: (0.1, 2.0)}}, in the unit of the target squared"
            )
        if name in fixed and name in (asked.limits or {}):
            raise SettingError(f"{name!r} is fixed and has limits: leave one of them out")


def _refuse_without_unit(recipe: Recipe, rows: data.Rows) -> None:
    """Raise SettingError for numbers of kernels that targets of different units have in common."""
    d = rows.n_features

    def size(unit: Unit) -> float | None:
        own = unit.level is not None and unit.level[0] == d - 1
        return 1.0 if own or not unit.of_target else None

    for kernel in recipe.choices(rows) if recipe.standardize else ():
        for name in without_unit(kernel, d, size):
            raise SettingError(
                f"{name} of the kernel is a number of its own for all joint targets, whose units "
                'differ: multiply its part by Coregion("target", variance=(...)), a variance of '
                "each, leave the number out, or set standardize=False"
            )


def _check_start(rows: data.Rows, posterior: Posterior) -> None:
    """Raise SettingError for a model of other targets, or of separate ones."""
    own, others = rows.target_names, posterior.target_names
    if not posterior.joint:
        raise SettingError(
            "start is a model of targets='separate', and this estimator has targets='joint': start "
            "from a joint model of the same targets"
        )
    if own != others:
        raise SettingError(
            f"start is a model of the joint targets {', '.join(others)}, but the rows have "
            f"{', '.join(own)}: start from a model of the same targets in the same order"
        )


def _refuse_one_error(rows: data.Rows) -> None:
    """Raise SettingError for error variances that all targets share, whatever their units."""
    if rows.y_variance is not None and rows.y_variance.shape[1:] != (rows.n_targets,):
        raise SettingError(
            f"y_variance is one number per row, and targets='joint' has {rows.n_targets} targets "
            f"of units of their own: give y_variance {(len(rows), rows.n_targets)}, or leave it "
            "out (y_variance=False where the store has it)"
        )


def run(
    solve: sites.Solve,
    recipe: Recipe,
    rows: data.Rows,
    executor: Executor,
    checkpoint: Place | None,
    keep: str,
    start: warm.Other | None,
) -> tuple[Fit, scaling.Sums]:
    """Return the fit of all targets of rows together, and sums over rows in the long form.

    The fit has a note of how many values each target has.

    Parameters
    ----------
    solve : callable
    recipe : Recipe
    rows : data.Rows
        With several targets, some of which may be missing.
    executor, checkpoint, keep, start
        As for a fit.
    """
    check(recipe, rows)
    if start is not None:
        _check_start(rows, start.posterior)
    found = sums_of_targets(recipe, rows, executor)
    units, counts = _of_targets(recipe, rows, found)
    mean = means.described(recipe.mean)
    pairs = zip(found, units, strict=True)
    variances = np.array([scaling.target_variance(sums, own, mean) for sums, own in pairs])
    base = float(sites.NO_NOISE * variances.min())
    long = Long(rows, executor, keep, units, counts, base)
    try:
        plain = long.written()
        sums = sampling.describe(plain, recipe.spans(plain), executor, what="value")
        inner = replace(of_rows(recipe, rows), levels=_scales(units))
        method, trainer = inner.method.of_kinds(counts), inner.trainer.of_kinds(counts)
        inner = replace(inner, method=method, trainer=trainer)
        if recipe.optimizer is not None and not recipe.standardize:
            kernels = (
                _begun_at(kernel, plain.feature_names[-1], variances) for kernel in inner.kernels
            )
            inner = replace(inner, kernels=tuple(kernels))
        unit = variances * long.usual_weights(plain)
        turns = _Turns(solve, inner, long, plain, checkpoint, recipe.mean, unit)
        with callbacks.ended() as ended:
            fit = turns.taken(start, ended)
    finally:
        long.clear()
    sums = sums._replace(checksum=_total(found))
    return replace(fit, seen=[note("fit", sums, rows, values=counts.tolist())]), sums


def planned(recipe: Recipe, rows: data.Rows) -> tuple[Recipe, data.Rows]:
    """Return recipe and rows as a fit works on them, to tell their sizes; targets are checked."""
    check(recipe, rows)
    n, p, d = len(rows), rows.n_targets, len(rows.feature_names) + 1
    nothing = np.broadcast_to(np.float64(0.0), (n * p, d))
    arrays = {"X": nothing, **{k: nothing[:, 0] for k in ("y", *GIVEN) if k in rows.arrays}}
    inner, long = of_rows(recipe, rows), _in_long_form(rows, arrays)
    _refuse_without_unit(inner, long)
    return inner, long


def of_rows(recipe: Recipe, rows: data.Rows) -> Recipe:
    """Return the recipe of rows in the long form."""
    column, names = variable_of(rows.feature_names), rows.target_names
    return replace(
        recipe,
        kernels=tuple(together(k, column, rows.feature_names, names) for k in recipe.kernels),
        asked=recipe.asked._replace(each=names),
        targets="separate",
        mean="zero",
        latent=1.0,
        calibrate=None,
        fill_values=None,
    )


def together(
    kernel: Kernel, column: str, features: Sequence[str], names: tuple[str, ...]
) -> Kernel:
    """Return a kernel of rows in the long form: itself if it looks at the column."""
    kernel = with_name(kernel, len(features), column)
    if column not in {table.column for table in tables(kernel)}:
        kernel = Coregion(column) * kernel
    return with_levels(kernel, {column: names})


def _begun_at(kernel: Kernel, column: str, variances: np.ndarray) -> Kernel:
    """Return a kernel whose variances of targets (p,), where they are open, are these."""
    if isinstance(kernel, Composite):
        return kernel.with_parts([_begun_at(part, column, variances) for part in kernel.parts])
    if isinstance(kernel, Coregion) and kernel.column == column and kernel.variance is None:
        return replace(kernel, variance=tuple(variances.tolist()))
    return kernel


def _given(recipe: Recipe, base: float) -> Recipe:
    """Return the recipe of rows whose noise variances are given, but for that of all rows."""
    asked = recipe.asked
    own = constraints.noise_names(asked.each)
    fixed = {name: value for name, value in fixed_values(asked.fixed).items() if name not in own}
    limits = {name: pair for name, pair in (asked.limits or {}).items() if name not in own}
    return replace(
        recipe,
        asked=Asked({**fixed, NOISE: base}, limits, asked.prior, asked.measured),
        noise_variance=base,
    )


def _of_targets(
    recipe: Recipe, rows: data.Rows, found: tuple[scaling.Sums, ...]
) -> tuple[tuple[scaling.Scaling, ...], np.ndarray]:
    """Return units and mean function of each target, and their numbers of rows (p,), from sums.

    Raise InputError for rows that cannot be used.
    """
    names = rows.columns.inputs_names
    mean = means.described(recipe.mean)
    units = []
    for name, sums in zip(rows.target_names, found, strict=True):
        given = scaling.Given.of(rows.arrays)
        _check_target(name, sums, rows)
        scaling.check(sums, names, [name], given)
        scaling.warn_of_few_values(sums, [name], np.dtype(rows.y.dtype))
        units.append(scaling.solve(sums, rows.n_features, mean, recipe.standardize))
    counts = np.array([int(sums.rows) for sums in found])
    said = (f"{name} {n}" for name, n in zip(rows.target_names, counts, strict=True))
    logger.info("joint targets of %d rows: %s", len(rows), ", ".join(said))
    return tuple(units), counts


def sums_of_targets(
    recipe: Recipe, rows: data.Rows, executor: Executor
) -> tuple[scaling.Sums, ...]:
    """Return sums over the rows of each target."""
    task, spans = partial(_described, rows), recipe.spans(rows)
    found: tuple[scaling.Sums, ...] = map_reduce(task, _combined, spans, executor, "describe")
    return found


def checksum_of(recipe: Recipe, rows: data.Rows, executor: Executor) -> int:
    """Return what tells the values of all targets from others, in any order."""
    return _total(sums_of_targets(recipe, rows, executor))


def _total(sums: tuple[scaling.Sums, ...]) -> int:
    return sum(one.checksum for one in sums) % 2**64


def _check_target(name: str, sums: scaling.Sums, rows: data.Rows) -> None:
    """Raise InputError for a target that tells of no other."""
    count, j = int(sums.rows), rows.n_features
    if count < 2 and not sums.infinite.any():
        raise InputError(
            f"target {name!r} has {count} usable values in {len(rows)} rows: joint targets need "
            "two or more each, leave it out"
        )
    if sums.low[j] == sums.high[j]:
        raise InputError(
            f"target {name!r} is {sums.low[j]:g} in all of its {count} rows, so there is "
            "nothing to learn: leave it out"
        )


def _described(rows: data.Rows, span: Span) -> tuple[scaling.Sums, ...]:
    with single_blas_thread():
        raw, given = rows.raw(*span)
        X, y = rows.as_inputs(raw, given)
        found = []
        for j in range(rows.n_targets):
            kept = scaling.complete_rows(X, y[:, [j]]) & ~np.isinf(X).any(axis=1)
            own = sampling.checksum_of_target(raw[kept], given[kept], rows.n_targets, j)
            found.append(scaling.local(X, y[:, [j]])._replace(checksum=own))
        return tuple(found)


def _combined(a: tuple[scaling.Sums, ...], b: tuple[scaling.Sums, ...]) -> tuple[scaling.Sums, ...]:
    return tuple(map(scaling.combine, a, b))


@dataclass(frozen=True, eq=False)
class Long(RowsInTurns):
    """Rows whose targets are rows of their own.

    Attributes
    ----------
    rows : data.Rows
        As they are given, with p targets.
    units : tuple of Scaling
        Units and mean function of each target.
    counts : ndarray (p,)
        Rows of each target.
    base : float
        Noise variance that all rows have beside that given of each, which is less by it.
    """

    units: tuple[scaling.Scaling, ...]
    counts: np.ndarray
    base: float = sites.NO_NOISE

    kinds: ClassVar[Mapping[str, int]] = {"long": 1, "noise": MOST + 1}

    @property
    def times(self) -> int:
        """Number of targets."""
        return self.rows.n_targets

    def written(self) -> data.Rows:
        """Return the rows in the long form: p of each row, those of a missing target with NaN."""
        rows, n = self.rows, self.times * len(self.rows)
        shapes: dict[str, tuple[int, ...]] = {"X": (n, len(rows.feature_names) + 1), "y": (n,)}
        shapes |= {name: (n,) for name in GIVEN if name in rows.arrays}
        arrays, _ = self.arrays("long", 0, partial(_long, rows, self.units), shapes)
        return _in_long_form(rows, arrays)

    def usual_weights(self, long: data.Rows) -> np.ndarray:
        """Return the geometric mean (p,) of the weights of rows in the long form by target."""
        if long.weight is None:
            return np.ones(self.times)
        task = partial(_log_weights, long, self.times)
        logs = map_reduce(task, np.add, self.spans, self.executor, "weights")
        return np.asarray(np.exp(logs / self.counts))

    def with_noise(self, long: data.Rows, noise: np.ndarray, number: int) -> data.Rows:
        """Return rows in the long form whose targets have the noise variances (p,)."""
        shapes = {Y_VARIANCE: (len(long),)}
        own, _ = self.arrays("noise", number, partial(_noise, long, noise, self.base), shapes)
        return long.with_arrays({"X": long.X, "y": long.y, **own})

    def sums(self, long: data.Rows, posterior: Posterior, noise: np.ndarray) -> Sums:
        """Return sums over the rows of each target, whose noise variances are ``noise`` (p,).

        Of many rows some, drawn by their numbers, stand for all.
        """
        cheaper = replace(posterior, method=posterior.method.at_own_rows())
        share = np.minimum(ENOUGH / self.counts, 1.0)
        shared = (node("posterior", cheaper),)
        task: Callable[..., list[Sums]] = partial(_sums, long, noise, self.base, share)
        pieces: Sequence[Any] = self.spans
        if (share < 1.0).any():  # few rows of each task: those that are near go together
            drawn = map_all(partial(_drawn, long, noise, share), self.spans, self.executor, "drawn")
            pieces = _joined(drawn).near(posterior)
            task = partial(_sums_of, self.base, self.times)
        some = reduce(Sums.plus, map_all(task, pieces, self.executor, "noise", shared))
        return some.of_all(self.counts)


def _in_long_form(rows: data.Rows, arrays: dict[str, Any]) -> data.Rows:
    """Return arrays X and y of rows in the long form as rows."""
    p, units = rows.n_targets, rows.feature_units
    return data.Rows(
        arrays["X"],
        arrays["y"],
        None if rows.chunks is None else tuple(p * step for step in rows.chunks),
        (*rows.feature_names, variable_of(rows.feature_names)),
        ("y",),
        passing=is_zarr(rows.X),
        feature_units=(*units, "") if units else (),
        geographic=rows.geographic,
        y_variance=arrays.get(Y_VARIANCE),
        weight=arrays.get(WEIGHT),
        categories=rows.categories,
    )


def _long(
    rows: data.Rows, units: tuple[scaling.Scaling, ...], span: Span
) -> tuple[np.ndarray | None, ...]:
    """Return rows in the long form, in units of their own: X (r p, d + 1) and arrays (r p,).

    These are the targets and, if the rows have them, error variances and weights.
    """
    p = rows.n_targets
    given, y = rows.raw(span.start // p, span.stop // p)
    X, values = _each(given, rows.columns.inputs(given), y[:, :p], units)
    more = []
    if rows.y_variance is not None:
        more.append(_in_units(y[:, p + 1 :], units))
    if rows.weight is not None:
        more.append(np.repeat(y[:, p], p))
    return X, values, *more, None


def _each(
    given: np.ndarray, inputs: np.ndarray, y: np.ndarray, units: tuple[scaling.Scaling, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return X (r p, d + 1) and targets (r p,) in units of their own, of rows X and y (r, p)."""
    p, inputs = len(units), np.asarray(inputs, np.float64)
    X, values = np.empty((len(y), p, given.shape[1] + 1)), np.empty((len(y), p))
    X[:, :, :-1] = given[:, None, :]
    X[:, :, -1] = np.arange(p)
    for j, own in enumerate(units):
        mean = np.broadcast_to(own.mean_function(own.inputs(inputs)), (len(y), 1))
        values[:, j] = (y[:, j] - mean[:, 0]) / own.y_scale[0]
    return X.reshape(len(y) * p, -1), values.reshape(-1)


def _in_units(errors: np.ndarray, units: tuple[scaling.Scaling, ...]) -> np.ndarray:
    """Return error variances (r p,) in units of targets."""
    return (errors / _scales(units) ** 2).reshape(-1)


def each_of(
    posterior: Posterior, X: np.ndarray, y: np.ndarray
) -> tuple[Posterior, np.ndarray, np.ndarray]:
    """Return a posterior of rows in the long form, and such rows of joint targets.

    ``y`` (r, p) may have weights and error variances after the targets, as ``Rows.read`` has it;
    the rows that are returned have the noise that was learned of each target, too.
    """
    noise, p = posterior.layer(TargetNoise), posterior.n_targets
    assert noise is not None
    units, inputs = _units(posterior.scaling), posterior.columns.inputs(X)[:, :-1]
    each, values = _each(X, inputs, y[:, :p], units)
    own, base = np.tile(noise.variances, len(y)), posterior.theta.noise_variance
    if y.shape[1] > p:
        errors = np.broadcast_to(y[:, p + 1 :], (len(y), p))
        with np.errstate(divide="ignore"):
            own = own / np.repeat(y[:, p], p) + _in_units(errors, units)
    rows = np.column_stack([values, np.ones(len(each)), _beyond(own, base)])
    return in_long_form(posterior), each, rows


def _variances(long: data.Rows, noise: np.ndarray, span: Span) -> tuple[np.ndarray, np.ndarray]:
    """Return the learned noise variances (r,) of rows in the long form, and all that they have."""
    own = np.tile(noise, span.rows // len(noise))
    if long.weight is not None:
        own = own / long.values(WEIGHT, *span)
    return own, own if long.y_variance is None else own + long.values(Y_VARIANCE, *span)


def _log_weights(long: data.Rows, p: int, span: Span) -> np.ndarray:
    """Return sums of the logs of weights (p,) of rows in the long form."""
    X, y = long.raw(*span)
    known = scaling.complete_rows(X, y[:, :1])
    logs = np.log(long.values(WEIGHT, *span)[known])
    return np.bincount(X[known, -1].astype(int), weights=logs, minlength=p)


@np.errstate(divide="ignore")  # rows of weight 0 miss their targets
def _noise(long: data.Rows, noise: np.ndarray, base: float, span: Span) -> tuple[np.ndarray, None]:
    return _beyond(_variances(long, noise, span)[1], base), None


def _beyond(noise: np.ndarray, base: float) -> np.ndarray:
    """Return noise variances less that of all rows; rows of huge weights have some, too."""
    return np.maximum(noise - base, base)


class Drawn(NamedTuple):
    """Rows in the long form: X (n, d), y (n,), and their noise variances, learned and all (n,)."""

    X: np.ndarray
    y: np.ndarray
    learned: np.ndarray
    total: np.ndarray

    def near(self, posterior: Posterior) -> list[Drawn]:
        """Return pieces of rows that are near one another."""
        groups = sites.near_groups(posterior.scaled(self.X)[:, :-1])
        order = np.concatenate(groups)
        pieces = np.array_split(order, max(1, -(-len(order) // PIECE)))
        return [Drawn(*(own[piece] for own in self)) for piece in pieces]


def _joined(parts: list[Drawn]) -> Drawn:
    """Return the rows of all parts."""
    return Drawn(*(np.concatenate(own) for own in zip(*parts, strict=True)))


def _drawn(long: data.Rows, noise: np.ndarray, share: np.ndarray, span: Span) -> list[Drawn]:
    """Return the rows of a span that are drawn, a share (p,) of those of each target."""
    p = len(noise)
    X, y = long.raw(*span)
    known = scaling.complete_rows(X, y[:, :1])
    which = X[:, -1].astype(int)
    if (share < 1.0).any():
        keys = sampling.row_keys(SAMPLED, span.start // p, span.rows // p) / 2.0**64
        known &= np.repeat(keys, p) < share[which]
    with np.errstate(divide="ignore"):  # rows of weight 0 miss their targets
        variances = [values[known] for values in _variances(long, noise, span)]
    return [Drawn(np.asarray(X[known]), np.asarray(y[known, 0]), *variances)]


def _sums(
    long: data.Rows,
    noise: np.ndarray,
    base: float,
    share: np.ndarray,
    span: Span,
    posterior: Posterior,
) -> list[Sums]:
    (rows,) = _drawn(long, noise, share, span)
    return _sums_of(base, len(noise), rows, posterior)


def _sums_of(base: float, p: int, rows: Drawn, posterior: Posterior) -> list[Sums]:
    X, y, learned, total = rows
    which = X[:, -1].astype(int)
    with single_blas_thread(), np.errstate(divide="ignore"):
        found = posterior.moments(X, "variance")
    total = base + _beyond(total, base)
    assert found.variance is not None
    own = learned / total
    misfit = own * (y - found.mean[:, 0]) ** 2 / total
    free = own * (1.0 - found.variance[:, 0] / total)
    positive = np.maximum(free, 0.0)

    def of_each(values: np.ndarray) -> np.ndarray:
        return np.bincount(which, weights=values, minlength=p)

    each = misfit, positive, own * positive, 0.5 * free**2, np.ones(len(own))
    return [Sums(*map(of_each, each))]


class _AskedNoise(NamedTuple):
    """What users say about noise variances (p,), in the units of the rows in the long form.

    ``values`` are NaN of those that are not fixed, or keep where they begin, which ``held`` tells;
    ``limits`` (2, p) are NaN where nothing is said.
    """

    values: np.ndarray
    held: np.ndarray
    limits: np.ndarray

    @classmethod
    def of(cls, asked: Asked, units: tuple[scaling.Scaling, ...]) -> _AskedNoise:
        """Return it from settings in the units of the targets."""
        fixed, given = fixed_values(asked.fixed), asked.limits or {}
        names, squares = constraints.noise_names(asked.each), _scales(units) ** 2
        values = np.array([fixed.get(name) or np.nan for name in names])
        held = np.array([name in fixed for name in names])
        limits = np.array([given.get(name, (np.nan, np.nan)) for name in names], np.float64).T
        return cls(values / squares, held, limits / squares)

    def bounds(self, usual: np.ndarray) -> np.ndarray:
        """Return bounds (2, p) from those (2, p) where nothing is said."""
        return np.where(np.isnan(self.limits), usual, self.limits)

    def begun(self, noise: np.ndarray) -> np.ndarray:
        """Return noise variances (p,) that are moved to what is fixed and into the limits."""
        everything = np.broadcast_to([[0.0], [np.inf]], self.limits.shape)
        noise = np.where(np.isnan(self.values), noise, self.values)
        return np.where(self.held, noise, np.clip(noise, *self.bounds(everything)))


@dataclass(frozen=True)
class _Turns:
    """Fits of rows in the long form and the noise variances that follow, in turns.

    ``unit`` (p,) is that of the noise variances' start and limits: the variance of each target in
    the rows' unit, times the usual weight, as a noise variance is that of a row of weight 1.
    """

    solve: sites.Solve
    recipe: Recipe
    long: Long
    rows: data.Rows
    checkpoint: Place | None
    mean: Any
    unit: np.ndarray

    @cached_property
    def noise(self) -> _AskedNoise:
        """What users say about noise variances."""
        return _AskedNoise.of(self.recipe.asked, self.long.units)

    def taken(self, start: warm.Other | None, ended: Callable[[], bool]) -> Fit:
        """Return the fit with the last noise variances, as one of the rows that were given."""
        recipe, base = self.recipe, self.long.base
        other, noise = self._begun(start)
        noise = self.noise.begun(noise)
        if recipe.optimizer is None:
            return self._untrained(noise, other)
        limits = self.noise.bounds(np.outer(hyperparameters.NOISE_BOUNDS, self.unit))
        history, errors = list[dict[str, Any]](), None
        own: np.ndarray | None = None
        was: np.ndarray | None = None
        step: np.ndarray | None = None
        trained_at, number = noise, 0
        for number in range(MOST):
            with sites.silent() if number else callbacks.ended():
                fit = self._solved(_given(recipe, base), noise, number, other, self.checkpoint)
            theta = fit.posterior.theta
            history = hyperparameters.continued(history, self._noted(fit.history, noise))
            if recipe.optimizer is not None:
                errors, trained_at = fit.errors, noise
            sums = self.long.sums(self.rows, fit.posterior, noise)
            step = np.where(self.noise.held, 0.0, sums.step(step if number % 2 else None))
            vector = theta.to_vector(False)[:-1]
            moves = np.inf if was is None else np.abs(vector - was).max()
            own, was = np.where(self.noise.held, np.nan, sums.errors(noise, limits)), vector
            logger.info("joint targets, turn %d: noise variances %s", number + 1, noise)
            other = warm.Other(fit.posterior, recipe.inputs)
            recipe = replace(recipe, begun_from=fit.posterior.token)
            following = np.where(self.noise.held, noise, np.clip(noise * np.exp(step), *limits))
            step = np.log(following / noise)  # none at a bound
            settled = sums.settled(step).all()
            late = sums.most_gained(noise, trained_at) > recipe.tol * len(vector)
            if (settled and not late) or ended() or not callbacks.has_room(0.0):
                break
            noise = following
            if settled:
                recipe = recipe.changed(optimizer=self.recipe.optimizer)
            elif moves < sites.STILL:
                recipe = recipe.changed(optimizer=None)
        else:
            logger.warning(
                "the noise variances of joint targets have not converged after %d "
                "iterations, the last of which changed them by %.2g: fit again with "
                "start=model to go on",
                *(MOST, np.abs(np.asarray(step)).max()),
            )
        final = _given(recipe, base).changed(optimizer=None)
        last = self._solved(final, noise, number + 1, other, None, self.long.keep)
        return self._joint(replace(last, errors=errors, history=history), noise, own)

    def _begun(self, start: warm.Other | None) -> tuple[warm.Other | None, np.ndarray]:
        """Return the model to start from in the long form, and the first noise variances (p,)."""
        if start is not None:
            begun = _in_units_of(start.posterior, self.long.units)
            layer = begun.layer(TargetNoise)
            assert layer is not None
            other = start._replace(posterior=in_long_form(begun))
            return other, np.asarray(layer.variances)
        given = self.recipe.noise_variance
        if self.recipe.optimizer is None:
            return None, np.full(len(self.unit), given)
        # from above: begun without noise, training takes a target's for roughness and stays there
        return None, self.unit * np.clip(given, *hyperparameters.NOISE_BOUNDS)

    def _noted(self, history: list[dict[str, Any]], noise: np.ndarray) -> list[dict[str, Any]]:
        """Return entries of a history with the noise variance of each target for that of rows."""
        named = dict(zip(constraints.noise_names(self.long.rows.target_names), noise, strict=True))
        own = {name: float(value) for name, value in named.items()}
        found = []
        for entry in history:
            rest = {name: value for name, value in entry.items() if name != NOISE}
            found.append({**rest, **own})
        return found

    def _untrained(self, noise: np.ndarray, start: warm.Other | None) -> Fit:
        """Return the fit with the hyper-parameters that it begins with."""
        recipe = _given(self.recipe, self.long.base)
        fit = self._solved(recipe, noise, 0, start, None, self.long.keep)
        return self._joint(fit, noise, None)

    def _solved(
        self,
        recipe: Recipe,
        noise: np.ndarray,
        number: int,
        start: warm.Other | None,
        checkpoint: Place | None,
        keep: str | None = None,
    ) -> Fit:
        rows = self.long.with_noise(self.rows, noise, number)
        sums = sampling.describe(rows, recipe.spans(rows), self.long.executor)
        tape = None if checkpoint is None else checkpoint.part(number)
        place = self.long.place(number) if keep is None else keep
        return self.solve(recipe, rows, sums, tape, place, start)

    def _joint(self, fit: Fit, noise: np.ndarray, errors: np.ndarray | None) -> Fit:
        """Return a fit of rows in the long form as one of the rows that were given."""
        rows, own, units = self.long.rows, fit.posterior, self.long.units
        posterior = replace(
            own,
            scaling=_scaling(own.scaling, units),
            feature_names=rows.feature_names,
            target_names=rows.target_names,
            vector_target=False,
            target_units=rows.target_units,
            feature_units=rows.feature_units if any(rows.feature_units) else (),
            ranges=own.ranges[: len(rows.feature_names)],
            reference=rows.reference,
            joint=True,
            layers=(),
        )
        regressor = means.regressor(self.mean, rows)
        known = None if regressor is None else Known.of(regressor, rows)
        found = chain.of_fit(posterior.parts(known))
        layers = (layer for layer in found if not isinstance(layer, Noise))
        posterior = replace(posterior, layers=chain.joined(*layers, TargetNoise(noise)))
        return replace(fit, posterior=posterior, likelihood_errors=errors)


def _scales(units: tuple[scaling.Scaling, ...]) -> np.ndarray:
    """Return the scale (p,) of each target."""
    return np.array([own.y_scale[0] for own in units])


def _in_units_of(posterior: Posterior, units: tuple[scaling.Scaling, ...]) -> Posterior:
    """Return a posterior of joint targets whose variances are in other units of these."""
    ratios = posterior.scaling.y_scale / _scales(units)
    noise, theta = posterior.layer(TargetNoise), posterior.theta
    assert noise is not None
    kernel, d = theta.kernel, len(posterior.scaling.x_scale)
    powers = np.array([unit.of_target for unit in kernel.units(d)])
    logs = kernel.log_parameters + powers * _by_parameter(kernel, d, np.log(ratios))
    layers = (layer for layer in posterior.layers if layer is not noise)
    return replace(
        posterior,
        theta=replace(theta, kernel=kernel.with_log_parameters(logs)),
        layers=(*layers, TargetNoise(noise.variances * ratios**2)),
        origin=None,
    )


def _by_parameter(kernel: Kernel, d: int, by_target: np.ndarray) -> np.ndarray:
    """Return numbers of targets (p,) for hyper-parameters (k,): the mean where they share one."""
    if isinstance(kernel, Composite):
        return np.concatenate([_by_parameter(part, d, by_target) for part in kernel.parts])
    found = np.full(len(kernel.parameter_names), by_target.mean())
    if isinstance(kernel, Coregion) and kernel.categories(d) == (d - 1,):
        found[: len(by_target)] = by_target
    return found


def in_long_form(posterior: Posterior) -> Posterior:
    """Return the posterior of joint targets as one of rows in the long form."""
    scale = posterior.scaling.of_inputs(1)
    return replace(
        posterior,
        scaling=scale,
        feature_names=(*posterior.feature_names, posterior.columns.variable),
        target_names=("y",),
        target_units=(),
        feature_units=(*posterior.feature_units, "") if posterior.feature_units else (),
        ranges=(*posterior.ranges, None),
        joint=False,
        layers=(Units(scale),),
        rows_checksum=int(posterior.token, 16) % 2**64,  # as units of the targets are not in it
    )


def of_targets(posterior: Posterior, like: Posterior) -> Posterior:
    """Return the posterior of rows in the long form as one of joint targets, as another is."""
    names = "scaling", "feature_names", "target_names", "target_units", "feature_units", "ranges"
    own = {name: getattr(like, name) for name in (*names, "joint", "layers")}
    return replace(posterior, **own)


class More(NamedTuple):
    """More rows in the long form, with the noise that was learned, and a recipe for such.

    ``sums`` are those over the rows of each target, and ``checksum`` that of all.
    """

    recipe: Recipe
    rows: data.Rows
    sums: tuple[scaling.Sums, ...]
    checksum: int
    clear: Callable[[], None]


def more(
    recipe: Recipe, posterior: Posterior, rows: data.Rows, executor: Executor, url: str
) -> More:
    """Return more rows of joint targets in the units of a posterior, in the long form.

    Raise InputError for values that cannot be used.
    """
    _refuse_one_error(rows)
    noise = posterior.layer(TargetNoise)
    assert noise is not None
    found, given = sums_of_targets(recipe, rows, executor), scaling.Given.of(rows.arrays)
    names = rows.columns.inputs_names
    for name, sums in zip(rows.target_names, found, strict=True):
        if sums.rows or sums.infinite.any():
            scaling.check_values(sums, names, [name], given)
    counts = np.array([int(sums.rows) for sums in found])
    if not counts.any():
        raise InputError(f"no usable rows: none of {len(rows)} has all features and a target")
    base = posterior.theta.noise_variance
    units = _units(posterior.scaling)
    long = Long(rows, executor, url, units, counts, base)
    own = replace(of_rows(recipe, rows), levels=_scales(units))
    noisy = long.with_noise(long.written(), noise.variances, 0)
    return More(_given(own, base), noisy, found, _total(found), long.clear)


def _units(own: scaling.Scaling) -> tuple[scaling.Scaling, ...]:
    """Return units and mean function of each target, which rows in the long form are in."""
    d = len(own.x_shift) - 1
    inputs = replace(own, x_shift=own.x_shift[:d], x_scale=own.x_scale[:d])
    return tuple(
        replace(
            inputs,
            intercept=own.intercept[[j]],
            slope=own.slope[:d, [j]],
            y_scale=own.y_scale[[j]],
        )
        for j in range(len(own.y_scale))
    )


def _scaling(own: scaling.Scaling, units: tuple[scaling.Scaling, ...]) -> scaling.Scaling:
    """Return the scaling of rows in the long form with the units and mean of each target."""
    d = len(own.x_shift) - 1
    shift, scale = own.x_shift[:d], own.x_scale[:d]
    slope, intercept = np.zeros((d + 1, len(units))), np.zeros(len(units))
    for j, unit in enumerate(units):
        per = np.where(unit.uses, unit.slope[:, 0] / np.where(unit.uses, unit.x_scale, 1.0), 0.0)
        slope[:d, j] = per * np.where(np.isfinite(scale), scale, 0.0)
        intercept[j] = unit.intercept[0] + (shift - unit.x_shift) @ per
    y_scale = _scales(units)
    return replace(own, intercept=intercept, slope=slope, y_scale=y_scale)
