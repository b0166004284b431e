"""Lazy prediction: the posterior as one node of a graph, mapped over test chunks."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask import delayed
from dask.base import get_scheduler

from daskgp import data
from daskgp.checks import LARGEST, shown
from daskgp.data import crs, expected, feature_units, grids, moments, reading
from daskgp.data.reading import from_zarr, plainly
from daskgp.data.rows import Beside
from daskgp.errors import InputError, SettingError
from daskgp.models import scaling
from daskgp.models.values import TILE_ROWS, Want
from daskgp.posterior.layers.chain import Outer
from daskgp.posterior.posterior import Posterior, check_columns
from daskgp.predict import known_errors
from daskgp.predict.stored import Node, opened, sendable
from daskgp.runtime import forked
from daskgp.runtime.process import single_blas_thread, warn_in_call

Spread: TypeAlias = Literal["none", "variance", "std"]
Look: TypeAlias = Callable[[Posterior, np.ndarray], str]


class Asked(NamedTuple):
    """Spread to predict besides the mean, of f or of observations, or of the Gaussian alone."""

    spread: Spread = "none"
    include_noise: bool = False
    gaussian: bool = False

    def columns(self, posterior: Posterior) -> int:
        """Return the number of columns of means and spread."""
        return posterior.n_targets * (1 if self.spread == "none" else 2)


Threshold: TypeAlias = float | tuple[float, ...]
"""Number that is exceeded, by all targets or by each."""


def marginal(
    posterior: Posterior, X: Any, spread: Spread, include_noise: bool, gaussian: bool = False
) -> tuple[Any, Any]:
    """Return mean and spread at X, as the kind of object X is; None for ``spread="none"``.

    ``gaussian`` asks for those that a distribution is given by, see `Posterior.moments`.

    NumPy in, NumPy out; dask or Zarr in, dask out with the same row chunks, nothing computed;
    xarray in, DataArrays out on the same grid.
    """
    if spread != "none":
        posterior.refuse_spread(include_noise)
    asked = Asked(spread, include_noise, gaussian)
    if grids.is_xarray(X):
        grid, both = on_grid(posterior, X, asked)
        first, second = (
            None if a is None else posterior.labelled(a, grid, what, include_noise)
            for a, what in zip(split(both, posterior, spread), ("mean", spread), strict=True)
        )
        return first, second
    X = rows_for(posterior, X)
    if isinstance(X, da.Array):
        return lazy(posterior, X, asked)
    return _in_memory(posterior, X, asked)


def _warn_of_rounding(posterior: Posterior, X: np.ndarray) -> None:
    """Warn of places in float32 or float16 that its rounding moves, beside the training rows."""
    known = [j for j, ends in enumerate(posterior.ranges or []) if ends is not None]
    ends = np.array([(posterior.ranges or [])[j] for j in known], np.float64).reshape(-1, 2)
    largest, deviation = np.abs(ends).max(axis=1), np.ptp(ends, axis=1) / np.sqrt(12)
    share = scaling.COARSE_PLACES
    if known and scaling.may_round(X.dtype, largest, share * deviation):
        step = scaling.steps(X[: scaling.FIRST_ROWS, known], largest)
        names = [f"feature {posterior.feature_names[j]!r} of places" for j in known]
        if told := scaling.of_steps(step, deviation, names, X.dtype, share):
            warn_in_call(told, posterior.shared_token)


def rows_for(posterior: Posterior, X: Any) -> Any:
    """Return rows as a NumPy array, lazy ones as a dask array, in the units of the training data.

    Raise InputError unless they have its columns.
    """
    X = posterior.coded(X)
    given, names, framed = X, data.column_names(X), reading.has_columns(X)
    framed &= not hasattr(X, "column_names")  # which tables of Arrow have
    X = from_zarr(X) if data.is_zarr(X) else reading.lazily(reading.timed(X))
    X = X if isinstance(X, da.Array) else reading.unmasked(X)
    check_columns(posterior, X, names, framed)
    if isinstance(X, np.ndarray):
        _warn_of_rounding(posterior, X)
    units, how = _matched(posterior, given, "X")
    if not isinstance(X, da.Array):
        X = feature_units.converted(X, how)
        warn_of_far(posterior, X)
        return X
    unknown = {j: own for j, own in posterior.trained_on.items() if own.counts and not units[j]}
    if not how and not unknown:
        return X
    X = plainly(X)
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    each: dict[str, Any] = {"dtype": np.float64, "meta": np.empty((0, 0))}
    steps: list[tuple[Any, ...]] = [(expected.refuse_coded, unknown, "X")] if unknown else []
    steps += [(feature_units.converted, how)] if how else []
    for step, *arguments in steps:
        X = X.map_blocks(step, *arguments, **each)
    return X


def conversions(posterior: Posterior, X: Any, what: str) -> tuple[feature_units.Change | None, ...]:
    """Return what turns columns of X into those of the training data; none if nothing does.

    Raise InputError if their units contradict.
    """
    return _matched(posterior, X, what)[1]


def _matched(
    posterior: Posterior, X: Any, what: str
) -> tuple[tuple[str, ...], tuple[feature_units.Change | None, ...]]:
    """Return the units of columns of X, and what turns them into those of the training data."""
    if posterior.reference:
        crs.refuse_other(data.reference_of(X), posterior.reference, what, "the training data")
    names, numbers = posterior.feature_names, partial(reading.numbers_of, X)
    return posterior.matched(data.units_of(X, names), numbers, what, data.levels_of(X, names))


def quantiles(
    posterior: Posterior,
    mean: Any,
    std: Any,
    levels: tuple[float, ...],
    observed: bool,
    beside: Beside | None = None,
) -> Any:
    """Return quantiles of predictions, as the kind of object they are.

    ``mean`` and ``std`` are those of the Gaussian that the distribution of f, or of what is
    ``observed``, is given by; ``beside`` is what a likelihood takes of each row.
    """
    given = partial(Outer.quantiles, levels=levels), mean, std, "quantiles", observed
    return of_distribution(posterior, *given, levels=levels, beside=beside)


def exceedance(
    posterior: Posterior,
    X: Any,
    threshold: Any,
    include_noise: bool,
    beside: Beside | None = None,
) -> Any:
    """Return the probability of exceeding a threshold at X, as the kind of object X is."""
    limit, outer = thresholds(posterior, threshold), posterior.outer(include_noise)
    outer.check("probabilities of exceeding a threshold")
    mean, std = marginal(posterior, X, "std", include_noise, gaussian=True)
    given = partial(Outer.exceedance, limit=limit), mean, std, "exceedance", include_noise
    return of_distribution(posterior, *given, limit, beside=beside)


def probabilities(posterior: Posterior, X: Any, count: int) -> Any:
    """Return the probabilities (n, count) of classes at X, as the kind of object X is."""
    outer = posterior.outer(True)
    mean, std = marginal(posterior, X, "std", True, gaussian=True)
    if grids.is_xarray(mean):
        said = {"long_name": f"probability of classes of {posterior.target_names[0]}", "units": "1"}
        of_rows = partial(_of_rows, outer, count)
        labels = np.arange(count)
        return grids.of_parts(of_rows, [mean, std], "probability", said, labels=labels)
    levels = tuple(map(float, range(count)))
    given = partial(_of_classes, count=count), mean, std, "probability", True
    return of_distribution(posterior, *given, levels=levels)


def _of_classes(outer: Outer, mean: np.ndarray, std: np.ndarray, count: int) -> np.ndarray:
    """Return the probabilities (..., count) of classes, given means and deviations of f (...)."""
    beyond = [outer.exceedance(mean, std, float(k)) for k in range(count - 1)]
    whole = np.where(np.isnan(mean + std), np.nan, 1.0)
    return -np.diff(np.stack([whole, *beyond, 0.0 * whole], axis=-1))


def _of_rows(outer: Outer, count: int, both: np.ndarray) -> np.ndarray:
    return _of_classes(outer, both[:, 0], both[:, 1], count)


def of_distribution(
    posterior: Posterior,
    function: Callable[..., np.ndarray],
    mean: Any,
    std: Any,
    what: str,
    observed: bool,
    limit: Threshold | None = None,
    levels: tuple[float, ...] | None = None,
    beside: Beside | None = None,
) -> Any:
    """Return a function of means and standard deviations, along ``quantile`` where it has levels.

    It is of their kind and shape, but for the levels, and as lazy.  ``function`` takes the layers
    first, those of rows with what is ``beside``.
    """
    beside = beside or {}
    layers, vector = posterior.outer(observed), posterior.vector_target
    function = partial(_of_block, layers, function, tuple(beside), vector)
    values = tuple(aligned(mean, a, name) for name, a in beside.items())
    if grids.is_xarray(mean):
        targets = posterior.target_names
        said = moments.describe(what, targets, posterior.target_units, observed, limit)
        name = moments.name_of(what, targets[0]) if posterior.vector_target else what
        return grids.applied(function, (mean, std, *values), name, said, levels)
    if not isinstance(mean, da.Array):
        return function(mean, std, *values)
    apply: Any = da.map_blocks  # dask's stubs do not know its arguments
    more: dict[str, Any] = {"meta": np.empty((0,) * mean.ndim), "dtype": np.float64}
    if levels is not None:
        more = {"chunks": (*mean.chunks, (len(levels),)), "new_axis": mean.ndim, **more}
        more["meta"] = more["meta"][..., None]
    return apply(function, mean, std, *values, **more)


def aligned(mean: Any, values: Any, name: str) -> Any:
    """Return numbers of rows that go with means: one number, or an array of their shape and kind.

    Those of several targets are (n, 1).
    """
    if grids.is_xarray(mean):
        return grids.beside(mean, values, name)
    own = known_errors.columns(values, mean, name)
    if np.ndim(own) == 2 and own.shape[1] > 1:
        raise InputError(f"{name} has shape {own.shape}: give one number per row, ({len(own)},)")
    return own


def _of_block(
    outer: Outer,
    function: Callable[..., np.ndarray],
    names: tuple[str, ...],
    vector: bool,
    mean: Any,
    std: Any,
    *values: Any,
) -> np.ndarray:
    """Return a function of layers and a block of means and standard deviations (...).

    They are (..., p), but for one target that is a ``vector``.
    ``values`` are what a likelihood takes of each row, by their ``names``; a missing one makes the
    result a missing value.
    """
    if not names:
        return function(outer, mean, std)
    own = [np.broadcast_to(np.asarray(a, np.float64), np.shape(mean)) for a in values]
    tail = (1,) if vector else np.shape(mean)[-1:]
    rows = [np.reshape(a, (-1, *tail)) for a in (mean, std, *own)]
    missing = np.asarray(np.isnan(rows[2:]).any(axis=(0, 2)))
    # any rows where there is none
    filled = {k: np.where(missing, 1.0, a[:, 0]) for k, a in zip(names, rows[2:], strict=True)}
    first, second = (np.where(missing[:, None], np.nan, a) for a in rows[:2])
    found = function(outer.of_rows(filled), first, second)
    return found.reshape(*np.shape(mean), *found.shape[2:])


def check_levels(quantiles: Sequence[Any]) -> tuple[float, ...]:
    """Return levels of quantiles; SettingError unless they lie between 0 and 1 and increase."""
    try:
        levels = tuple(float(level) for level in np.atleast_1d(np.array(quantiles, np.float64)))
    except (TypeError, ValueError):
        levels = ()
    inside = all(0.0 < level < 1.0 for level in levels)
    if not levels or not inside or list(levels) != sorted(set(levels)):
        raise SettingError(
            f"quantiles is {quantiles!r:.60}: give levels between 0 and 1 in increasing order, "
            "such as (0.05, 0.95)"
        )
    return levels


def check_threshold(threshold: Any) -> float:
    """Return a threshold; SettingError unless it is a finite number."""
    number = threshold if isinstance(threshold, int | float | np.number) else np.nan
    if isinstance(threshold, bool) or not np.isfinite(number):
        raise SettingError(
            f"threshold is {threshold!r:.60}: give a finite number in units of the target"
        )
    return float(number)


def thresholds(posterior: Posterior, threshold: Any, name: str = "threshold") -> Threshold:
    """Return a threshold of all targets, or that of each; SettingError for anything else.

    A number stands for all where they share a unit.
    """
    names, units = posterior.target_names, {*posterior.target_units}
    p, listed = len(names), isinstance(threshold, list | tuple) or np.ndim(threshold) == 1
    if listed and len(threshold) == p:
        limits = tuple(map(check_threshold, threshold))
        return limits if p > 1 else limits[0]
    alike = len(units) == 1 and "" not in units
    differ = len(units) > 1 or (posterior.joint and not alike)
    if listed or (p > 1 and differ):
        remedy = "one for each, in the unit of each" if p > 1 else "one number"
        raise SettingError(
            f"{name} is {shown(threshold)}, and the targets are {', '.join(names)}: give {remedy}"
        )
    return check_threshold(threshold)


def joint(posterior: Posterior, X: Any, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and joint covariance at rows in memory."""
    X = in_memory(posterior, X)
    with single_blas_thread():
        moments = posterior.moments(X, "covariance", include_noise)
    assert moments.covariance is not None
    if posterior.vector_target:
        return moments.mean[:, 0], moments.covariance[:, :, 0]
    return moments.mean, moments.covariance


def in_memory(posterior: Posterior, X: Any) -> np.ndarray:
    """Return rows in memory with the columns of the training data; else raise InputError."""
    if isinstance(X, da.Array) or grids.is_xarray(X) or data.is_zarr(X):
        raise InputError(
            "a joint covariance, a sample or the computational part needs rows in memory: give a "
            "NumPy array, or ask for return_std"
        )
    return np.asarray(rows_for(posterior, X))


def lazy(posterior: Posterior, X: da.Array, asked: Asked, travels: bool = True) -> tuple[Any, Any]:
    """Return mean and spread with the row chunks of X; both come from one task per chunk.

    ``travels`` says whether tasks may run in other processes.
    """
    X = plainly(X)
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    look = (warn_of_far if X.numblocks[0] == 1 else warn_of_far_block) if travels else None
    predict: Any = _predict_block  # dask's stubs want an array here
    both = X.map_blocks(
        predict,
        posterior_node(posterior, travels),
        *asked,
        look,
        chunks=(X.chunks[0], (asked.columns(posterior),)),
        dtype=np.float64,
        meta=np.empty((0, 0)),
        name="predict-" + dask.base.tokenize(X.name, posterior, *asked),
    )
    return split(both, posterior, asked.spread)


def grid_for(posterior: Posterior, X: Any) -> grids.Grid:
    """Return the grid or table of an xarray object, in the units of the training data."""
    if grids.is_table(X) and not {*X.dims} & {*posterior.feature_names}:  # which lacks coordinates
        check_columns(posterior, X, data.column_names(X))
    data.warn_of_packed(X, posterior.feature_names)
    known = posterior.wanted_units, posterior.trained_on
    levels = posterior.categories, posterior.unseen == "new"
    reference = posterior.reference
    grid = grids.grid_of(X, posterior.feature_names, False, *known, *levels, reference=reference)
    told = warn_of_far_grid(posterior, grid)
    if {*posterior.feature_names} & {*getattr(X, "coords", ())}:  # others are covariates
        _warn_of_units(posterior, grid, {*getattr(X, "data_vars", ())} - {told})
    return grid


def _warn_of_units(posterior: Posterior, grid: grids.Grid, variables: Collection[Any]) -> None:
    """Warn of variables of a grid in memory that lie outside those of all training rows."""
    some = grid.some(expected.drawn, posterior.n_features)
    if some is None or not len(some):
        return
    pairs = zip(posterior.feature_names, posterior.ranges, some.T, strict=False)
    for name, known, values in pairs:
        known_values = values[np.isfinite(values)]
        if known is None or name not in variables or not known_values.any():  # 0 is so in any unit
            continue
        low, high = np.nanmin(values), np.nanmax(values)
        if high < known[0] or low > known[1]:
            warn_in_call(
                f"{name!r} of the grid is from {low:.4g} to {high:.4g} and that of the training "
                f"rows from {known[0]:.4g} to {known[1]:.4g}, as in another unit: convert it where "
                "that is so",
                posterior.shared_token,
            )


def warn_of_far_grid(posterior: Posterior, grid: grids.Grid) -> str:
    """Warn of a grid whose points are far outside the training rows, if it is in memory.

    Return what `warn_of_far` does.
    """
    some = grid.some(expected.drawn, posterior.n_features)
    return "" if some is None else warn_of_far(posterior, some)


TRIED, RAY, UNRELATED = 16, 65, 1e-4
"""Places far outside the training rows whose correlation is looked at, steps beyond each of them,
and the correlation below which the training rows tell nothing."""


def warn_of_far(posterior: Posterior, X: np.ndarray) -> str:
    """Warn of rows X (n, d) of a call if nearly all are far outside the training rows.

    So they are where units or columns are mistaken, and the prediction is the prior, or that of a
    trend or a long lengthscale far away.  Return the name of a column that looks moved or rescaled.
    """
    X = _looked_at(posterior, X)
    found = _far(posterior, X, 1.0)
    if found is not None:
        column, values = found
        ends = (values.min(), values.max(), column.low, column.high)
        own = [feature_units.text_of(float(end), column.unit) for end in ends]
        warn_in_call(
            "nearly all places to predict are far outside the training rows, which tell nothing "
            f"there: feature {column.name!r} goes from {own[0]} to {own[1]}, in the training rows "
            f"from {own[2]} to {own[3]}: {expected.LIKELY}",
            posterior.shared_token,
        )
        return ""
    return _warn_of_moved(posterior, X, whole=True)


def warn_of_far_block(posterior: Posterior, X: np.ndarray) -> str:
    """Warn of a block X (n, d) of places much farther outside, of a call not known as a whole.

    The line is the same for all blocks, which may be predicted anywhere.  Return what `warn_of_far`
    does.
    """
    X = _looked_at(posterior, X)
    found = _far(posterior, X, expected.FAR)
    if found is None:
        return _warn_of_moved(posterior, X, whole=False)
    if posterior.nearby is None:  # which tells its own
        column, _ = found
        own = [feature_units.text_of(end, column.unit) for end in (column.low, column.high)]
        warn_in_call(
            "a block of places to predict is far outside the training rows, which tell nothing "
            f"there: feature {column.name!r}, in these from {own[0]} to {own[1]}, is more than "
            f"{expected.FAR:g} times that range away: {expected.LIKELY}",
            posterior.shared_token,
        )
    return ""


def _warn_of_moved(posterior: Posterior, X: np.ndarray, whole: bool) -> str:
    """Warn of a column of X (n, d), a ``whole`` call or a block, that looks moved or rescaled.

    Return its name, "" without one.
    """
    far, radii = math.inf if posterior.is_periodic else expected.FAR, posterior.columns.radii
    columns = {j: own for j, own in posterior.trained_on.items() if j not in radii}
    found = expected.moved(columns, X, 0.0 if whole else 1.0, far)
    if found is None:
        return ""
    column, how, ends = found
    low, high, *rows = (
        feature_units.text_of(end, column.unit) for end in (*ends, column.low, column.high)
    )
    where = f"places to predict goes from {low} to {high}, in the training rows from"
    if not whole:
        where = "a block of places to predict is outside the training rows, there from"
    away = f"more than {expected.FAR:g} times that range away: check its unit and the order of the"
    told = f"{away} columns" if how is None else f"{how}, as in another unit: convert it"
    warn_in_call(
        f"feature {column.name!r} of {where} {rows[0]} to {rows[1]}, {told}, unless these are its "
        "values",
        posterior.shared_token,
    )
    return column.name


def _looked_at(posterior: Posterior, X: np.ndarray) -> np.ndarray:
    """Return known rows among some of X (n, d); none if their prediction will refuse them."""
    X = posterior.columns.known(np.asarray(X[expected.drawn(len(X))], np.float64))
    X = X[(np.abs(X) < LARGEST).all(axis=1)]
    try:
        expected.refuse(posterior.trained_on, X, "X")
    except InputError:
        return X[:0]
    return X


def _far(
    posterior: Posterior, X: np.ndarray, widths: float
) -> tuple[expected.Column, np.ndarray] | None:
    """Return the column in which nearly all places are far outside, and their values there.

    They are by more than ``widths`` of the range, and correlated with no place within it.
    """
    far = expected.farthest(posterior.trained_on, X, widths)
    if far is None or _are_related(posterior, far.places[:: len(far.places) // TRIED + 1]):
        return None
    return posterior.trained_on[far.column], far.places[:, far.column]


def _are_related(posterior: Posterior, X: np.ndarray) -> bool:
    """Return whether any of X (n, d), or beyond it, is correlated with the next place within.

    Those beyond tell kernels that have a period.
    """
    if posterior.each:
        return any(_are_related(one, X) for one in posterior.each)
    within, steps = X.copy(), np.linspace(1.0, 2.0, RAY)[:, None]
    for j, column in posterior.trained_on.items():
        within[:, j] = np.clip(X[:, j], column.low, column.high)
    kernel = posterior.theta_of_places.kernel
    for place, origin in zip(X, within, strict=True):
        ray = origin + steps * (place - origin)
        # there is nothing beyond on the sphere, and radii of footprints are no places
        for j in (*(posterior.geographic or ()), *posterior.columns.radii):
            ray[:, j] = place[j]
        there, here = posterior.scaled(ray), posterior.scaled(origin[None])
        unit = np.sqrt(kernel.diag(there) * kernel.diag(here))
        if not (np.abs(kernel(there, here)[:, 0]) < UNRELATED * unit).all():
            return True
    return False


def on_grid(posterior: Posterior, X: Any, asked: Asked) -> tuple[Any, Any]:
    """Return the grid of an xarray object and the predictions on it, lazy where it is chunked."""
    grid = grid_for(posterior, X)
    node = posterior_node(posterior, grid.lazy)
    look = None if grid.in_memory(posterior.n_features) else warn_of_far_block
    both = grid.map(_predict_block, asked.columns(posterior), node, *asked, look)
    if not grid.lazy:
        with single_blas_thread():
            (both,) = dask.compute(both, scheduler="threads")
    return grid, both


def _in_memory(posterior: Posterior, X: np.ndarray, asked: Asked) -> tuple[Any, Any]:
    """Return mean and spread at a NumPy array's rows, computed by the threads of this process."""
    order = posterior.grouped(X)
    rows = da.from_array(X if order is None else X[order], chunks=(TILE_ROWS, -1))
    with single_blas_thread():
        parts = lazy(posterior, rows, asked, travels=False)
        mean, second = dask.compute(*parts, scheduler="threads")
    if order is None:
        return mean, second
    back = np.argsort(order)
    return mean[back], None if second is None else second[back]


def posterior_node(posterior: Posterior, travels: bool = True) -> Any:
    """Return the posterior as one node of a graph, with the same name for any chunk.

    It is the address of a store if the state lies in one and the graph ``travels``.
    """
    if travels:
        forked.check(get_scheduler())
    node = sendable(posterior) if travels else posterior
    return delayed(node, name="posterior-" + posterior.token, traverse=False)


def _predict_block(
    X: Any, node: Node, spread: Spread, include_noise: bool, gaussian: bool, look: Look | None
) -> np.ndarray:
    """Return means and spread of a block, after a look for places far from the training rows."""
    posterior = opened(node)
    with single_blas_thread():
        if look is not None:
            look(posterior, X)
        want: Want = "mean" if spread == "none" else "variance"
        moments = posterior.moments(X, want, include_noise, gaussian)
    if spread == "none" or moments.variance is None:
        return np.asarray(moments.mean)
    second = np.sqrt(moments.variance) if spread == "std" else moments.variance
    return np.concatenate([moments.mean, second], axis=1)


def split(both: Any, posterior: Posterior, spread: Spread) -> tuple[Any, Any]:
    """Return the means and the spread that columns (n, 2 p) of predictions hold."""
    p = posterior.n_targets
    parts = [slice(0, p)] if spread == "none" else [slice(0, p), slice(p, 2 * p)]
    taken = [_columns(both, part, posterior.vector_target) for part in parts]
    return taken[0], taken[1] if len(taken) > 1 else None


def _columns(array: Any, part: slice, vector: bool) -> Any:
    """Return some of the last columns of an array, or a single one as a ``vector``.

    For an index Dask would write out a task for each chunk; those of a function it counts alone.
    """
    index = (..., part.start if vector else part)
    if not isinstance(array, da.Array):
        return array[index]
    chunks = array.chunks[:-1] + (() if vector else ((part.stop - part.start,),))
    take: Any = operator.getitem  # dask's stubs want an array here
    return array.map_blocks(
        take,
        index,
        chunks=chunks,
        drop_axis=[array.ndim - 1] * vector,
        dtype=array.dtype,
        meta=np.empty((0,) * len(chunks)),
        name=f"columns-{dask.base.tokenize(array.name, part, vector)}",
    )
