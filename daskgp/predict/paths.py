"""Sample paths of a fitted method: functions that are evaluated lazily, the same in every chunk."""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, cast, overload

import dask.array as da
import numpy as np
from dask import delayed

from daskgp.checks import whole
from daskgp.data import Rows, grids, moments
from daskgp.data.kinds import Kind, Places, Stored
from daskgp.data.partition import Span, parts
from daskgp.errors import SettingError
from daskgp.fit.arrange.rewriting import seed_of
from daskgp.fit.rounds import Rounds
from daskgp.kernels.evolving import check_evolving
from daskgp.kernels.spectrum import check_features
from daskgp.models.actions.passes import PANEL_ROWS
from daskgp.models.pathwise import PathDraw, at_points
from daskgp.models.scaling import Scaling, complete_rows
from daskgp.models.values import Theta, variances
from daskgp.posterior.action_points import ActionPoints
from daskgp.posterior.layers import TrendLayer, chain
from daskgp.posterior.layers.chain import Outer
from daskgp.posterior.neighbour_rows import Nearby
from daskgp.posterior.posterior import Posterior
from daskgp.posterior.training_rows import CACHE_BYTES, cached
from daskgp.predict import average, lazy
from daskgp.runtime.executor import Executor, mapped, node, tree_sum
from daskgp.runtime.process import single_blas_thread

BLOCK_BYTES = 2**24
"""Bytes of values of all functions that a task of an average holds at a time."""


@dataclass(frozen=True, eq=False)
class Paths:
    """Sample paths of f: call it with places, as often as needed, for the values of its functions.

    ``GaussianProcess.sample_paths`` makes it.  It is small, can be pickled, and gives every place
    the same values, to the bit, in any chunk, process and order.

    Attributes
    ----------
    n_samples : int
        Number of functions.
    """

    n_samples: int
    solved_: Posterior
    fitted_: Posterior

    @overload
    def __call__(self, X: Places[Kind]) -> Kind: ...
    @overload
    def __call__(self, X: Stored) -> da.Array: ...
    def __call__(self, X: Any) -> Any:
        """Return the values of the functions at X.

        Parameters
        ----------
        X : array-like (n, d)
            As for ``predict``: NumPy in, NumPy out; dask or Zarr in, dask out with the same row
            chunks and nothing computed; xarray in, a DataArray on its grid with a last dimension
            ``sample``, lazy where it is chunked.  Rows with a missing feature give NaN.

        Returns
        -------
        values : (n, n_samples), or (n, p, n_samples) for several targets
        """
        if grids.is_xarray(X):
            fitted = self.fitted_
            grid, values = lazy.on_grid(self.solved_, X, lazy.Asked())
            gaussian = lazy.Asked(gaussian=True)
            values = self._finished(
                values,
                lambda: lazy.on_grid(fitted, X, gaussian)[1],
                lambda own: lazy.split(lazy.on_grid(own, X, STRETCH)[1], own, "std")[1],
            )
            targets, units = fitted.target_names, fitted.target_units
            said = moments.describe("samples", targets, units, False)
            return grid.wrap(values, targets, fitted.vector_target, "samples", said)
        values, _ = lazy.marginal(self.solved_, X, "none", False)
        return self._finished(
            values,
            lambda: lazy.marginal(self.fitted_, X, "none", False, gaussian=True)[0],
            lambda own: lazy.marginal(own, X, "std", False, gaussian=True)[1],
        )

    @overload
    def average(self, X: Places[Kind], weights: Any = ...) -> Kind: ...
    @overload
    def average(self, X: Stored, weights: Any = ...) -> da.Array: ...
    def average(self, X: Any, weights: Any = None) -> Any:
        """Return the weighted average of each function over the places X, any number of them.

        The averages are draws of the posterior of the average, which `predict_average` has in
        closed form for fewer places.  Blocks of places are tasks, so memory does not grow with
        their number.

        Parameters
        ----------
        X : array-like (n, d)
            As for ``predict``; lazy in, lazy out.  Places with a missing feature are left out.
        weights : array-like (n,), optional
            Weights of 0 or more, equal by default; they are divided by their sum.  For an xarray
            object a DataArray over some of its dimensions, such as ``np.cos(np.deg2rad(lat))``.

        Returns
        -------
        averages : (n_samples,), or (p, n_samples) for several targets

        Raises
        ------
        InputError
            If there are no places, or weights that cannot be used.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> model = daskgp.ExactGP(optimizer=None).fit(X, X[:, 0])
        >>> paths = model.sample_paths(3)
        >>> bool(np.allclose(paths.average(X), paths(X).mean(axis=0)))
        True
        """
        return self._averaged(X, weights, None)

    @overload
    def exceedance(self, X: Places[Kind], threshold: float, weights: Any = ...) -> Kind: ...
    @overload
    def exceedance(self, X: Stored, threshold: float, weights: Any = ...) -> da.Array: ...
    def exceedance(self, X: Any, threshold: float, weights: Any = None) -> Any:
        """Return the share of the places X at which each function is above a threshold.

        With weights it is the share of their sum, such as of an area.  Over the functions it has
        the distribution of the posterior's; its mean is the average of `predict_exceedance`.

        Parameters
        ----------
        X, weights : array-like
            As for `average`.
        threshold : float
            Level, in the units of y.

        Returns
        -------
        shares : (n_samples,), or (p, n_samples) for several targets

        Raises
        ------
        InputError
            If there are no places, or weights that cannot be used.
        SettingError
            If the threshold is not a finite number.
        """
        return self._averaged(X, weights, lazy.check_threshold(threshold))

    def _averaged(self, X: Any, weights: Any, level: float | None) -> Any:
        tail = () if self.fitted_.vector_target else (self.fitted_.n_targets,)
        tail = (*tail, self.n_samples)
        block = max(1, BLOCK_BYTES // (8 * math.prod(tail)))
        rows, w, lazily = average.places(self.fitted_, X, weights, block)
        shares = average.of_values(self(rows), w, level)
        if not lazily:
            (shares,) = average.computed((shares,))
        if not grids.is_xarray(X):
            return shares
        fitted = self.fitted_
        what, units = ("samples", fitted.target_units) if level is None else ("exceedance", ())
        said = moments.describe(what, fitted.target_names, units, False, level)
        own = fitted.target_names, fitted.vector_target
        return grids.NOWHERE.wrap(shares, *own, "samples", said)

    def __repr__(self) -> str:
        return f"<{self.n_samples} sample paths of {self.fitted_.method.name}>"

    def values(self, X: np.ndarray) -> np.ndarray:
        """Return the values (n, n_samples) or (n, p, n_samples) at rows X (n, d), in this task."""
        values = self.solved_.moments(X, "mean").mean
        mean = partial(self.fitted_.moments, X, "mean", gaussian=True)

        def spread(own: Posterior) -> Any:
            return np.sqrt(np.asarray(own.moments(X, "variance", gaussian=True).variance))

        return np.asarray(self._finished(values, lambda: mean().mean, spread))

    def _finished(
        self, values: Any, mean: Callable[[], Any], spread: Callable[[Posterior], Any]
    ) -> Any:
        """Return values (..., t) as users see them.

        ``mean`` returns that of the Gaussian, and ``spread`` standard deviations of a posterior.
        """
        fitted, outer = self.fitted_, self.fitted_.outer(False)

        def repeated(own: Any) -> Any:
            own = (own[..., None] if own.ndim < values.ndim else own).repeat(self.n_samples, -1)
            return own.rechunk(values.chunks) if isinstance(values, da.Array) else own

        def stretch() -> Any:
            assert fitted.stretch is not None
            return repeated(spread(fitted.stretch))

        for layer in fitted.inner(False):
            values = layer.of_paths(values, lambda: repeated(mean()), stretch)
        if fitted.vector_target and not outer.layers:
            return values
        tail = () if fitted.vector_target else (fitted.n_targets,)
        shape = (*tail, self.n_samples)
        if not isinstance(values, da.Array):
            return _apart(values, shape, outer)
        found: Any = da.map_blocks  # dask's stubs do not know its arguments
        return found(
            _apart,
            values,
            shape,
            outer,
            chunks=(*values.chunks[:-1], *((size,) for size in shape)),
            new_axis=None if fitted.vector_target else values.ndim,
            dtype=np.float64,
            meta=np.empty((0,) * (values.ndim + len(tail))),
        )


STRETCH = lazy.Asked("std", gaussian=True)


def _apart(values: np.ndarray, shape: tuple[int, ...], outer: Outer) -> np.ndarray:
    """Return values (..., t) of the Gaussian as those of what is predicted, (..., *shape)."""
    values = values.reshape(*values.shape[:-1], -1, shape[-1])  # targets, and paths
    values = np.moveaxis(outer.outward(np.moveaxis(values, -1, -2)), -1, -2)
    return values.reshape(*values.shape[:-2], *shape)


def paths_node(paths: Paths | None) -> Any:
    """Return sample paths, or None, as one node of a graph."""
    token = "none" if paths is None else paths.solved_.token
    return delayed(paths, name="paths-" + token, traverse=False)


def draw(
    posterior: Posterior,
    n_samples: int,
    random_state: int | None,
    n_frequencies: int | None,
    executor: Executor,
    windows: Callable[[], Rounds | None],
) -> Paths:
    """Return sample paths of a fitted method; ``windows`` returns those a local one was fitted on.

    Raises
    ------
    SettingError
        If a setting cannot be used, or the method or its kernel has no sample paths.
    """
    check(posterior)
    if n_frequencies is not None:
        whole("n_frequencies", n_frequencies, 1)
    drawn = PathDraw(
        posterior.theta.kernel,
        len(posterior.scaling.x_shift),
        posterior.n_targets,
        whole("n_samples", n_samples, 1),
        seed_of(None if random_state is None else whole("random_state", random_state, 0)),
        n_frequencies,
        varying=posterior.theta.varying,
    )
    model, trend = cast(Any, posterior.method), posterior.layer(TrendLayer)
    model = replace(model, trend=0) if model.takes_trend else model  # paths have no trend functions
    if trend is not None and trend.coefficients is not None:
        drawn = replace(drawn, trend=drawn.coefficients(*trend.coefficients))
    scaling, theta, kept = repeated(posterior.scaling, drawn), posterior.theta, posterior.rows
    with single_blas_thread():  # the bits are those of any other process
        if isinstance(kept, Nearby):
            stage = windows()
            assert stage is not None
            rows = PathRows.of(stage.rows, drawn, posterior.scaling, theta)
            kept = replace(kept, rows=rows)
            found = model.paths(
                theta, posterior.state, drawn, replace(stage, rows=rows, scaling=scaling)
            )
        elif isinstance(kept, ActionPoints):
            seen = _at_points(posterior, kept, drawn, executor)
            found = model.paths(theta, posterior.state, drawn, seen, kept.count)
        else:
            found = model.paths(theta, posterior.state, drawn)
    names = tuple(f"{name}_{i}" for name in posterior.target_names for i in range(drawn.n_samples))
    inside = replace(
        posterior,
        method=found[0],
        state=found[1],
        scaling=scaling,
        target_names=names,
        vector_target=False,
        dtype="float64",
        rows=kept,
        target_units=(),
        origin=None,
    )
    layers = chain.renewed(posterior.inner(False), inside.parts(), drawn.n_samples)
    return Paths(drawn.n_samples, replace(inside, layers=layers), posterior)


def check(posterior: Posterior) -> None:
    """Raise SettingError if a method, or its kernel, has no sample paths."""
    missing = posterior.method.why_no_paths()
    if missing:
        raise SettingError(missing)
    posterior.refuse_windows("sample paths")
    posterior.refuse_targets_together("a sample path")
    kernel, varying = posterior.theta.kernel, posterior.theta.varying
    d = len(posterior.scaling.x_shift)
    if varying is None:
        check_features(at_points(kernel), d)
    else:
        check_evolving(kernel, d, varying.logs[:, :-1])


def repeated(scaling: Scaling, drawn: PathDraw) -> Scaling:
    """Return the scaling of transformed targets once for each path, with its draw of a trend."""
    names, trend = ("intercept", "slope", "y_scale"), scaling.trend
    own = {name: drawn.repeated(getattr(scaling, name)) for name in names}
    if trend is not None:
        fit = {name: drawn.repeated(getattr(trend, name)) for name in ("intercept", "slope")}
        known = replace(trend, **fit).given(drawn.trend * own["y_scale"])
        trend = replace(known, beyond=trend.unseen)
    return replace(scaling, **own, transform=None, trend=trend)


@dataclass(frozen=True, eq=False)
class PathRows(Rows):
    """Training rows whose targets are y - g(X) - e, once for each path."""

    drawn: PathDraw | None = None
    scaled: Scaling | None = None
    theta: Theta | None = None
    token: str = ""

    @classmethod
    def of(cls, rows: Rows, drawn: PathDraw, scaling: Scaling, theta: Theta) -> Self:
        """Return the rows of a fit, with the targets of paths."""
        own = {field.name: getattr(rows, field.name) for field in dataclasses.fields(Rows)}
        own |= {"drawn": drawn, "scaled": scaling, "theta": theta}
        return cls(**own, token=f"paths-{uuid.uuid4().hex}")

    @property
    def n_targets(self) -> int:
        """Number of columns of y that ``read`` returns."""
        assert self.drawn is not None
        return self.drawn.width

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Read the rows from start to stop, see ``Rows.read``."""
        assert self.drawn is not None
        assert self.scaled is not None
        X, y = super().read(start, stop)
        p, unit = self.drawn.n_targets, self.drawn.repeated(self.scaled.y_scale)
        end = p + len(self.trend or ())
        make = partial(self._seen, X, y[:, end:], start)
        seen = cached((self.token, (start, stop)), make, "cpu", CACHE_BYTES)
        measured = np.asarray(y[:, :p], np.float64)
        if self.scaled.transform is not None:
            measured = self.scaled.transform.forward(measured)
        targets = self.drawn.repeated(measured) - seen * unit
        return X, np.concatenate([targets, y[:, p:]], axis=1)

    def _seen(self, X: np.ndarray, noise: np.ndarray, start: int) -> np.ndarray:
        """Return g(X) + e (r, t) of rows from ``start`` on; blocks near others are read often."""
        assert self.drawn is not None
        assert self.scaled is not None
        assert self.theta is not None
        scaled = np.asarray(self.scaled.inputs(np.asarray(X, np.float64)))
        g, own = self.drawn.prior(scaled), self.theta.at(scaled)[:, -1]
        spread = _spread(self.scaled, own, noise)
        g += spread[:, None] * self.drawn.noise(start, start + len(X))
        return g


def _spread(
    scaling: Scaling, noise_variance: float | np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Return the noise's standard deviations (n,), of rows with any weights and errors (n, 2)."""
    noise = None
    if columns.shape[1]:
        with np.errstate(divide="ignore", invalid="ignore"):  # rows of weight 0 are left out
            noise = scaling.noise(*columns.T)
    return np.sqrt(np.broadcast_to(variances(noise_variance, noise), len(columns)))


def _at_points(
    posterior: Posterior, points: ActionPoints, drawn: PathDraw, executor: Executor
) -> np.ndarray:
    """Return S' (g(X) + e) (actions, t), summed over the points in tasks."""
    shared = node("paths", (points, drawn, posterior.scaling, posterior.theta.noise_variance))
    spans = parts(0, len(points.rows), PANEL_ROWS)
    nodes = mapped(_seen, [(span, shared) for span in spans], "paths")
    return np.asarray(tree_sum(nodes, _plus, executor, "paths"))


def _seen(span: Span, shared: tuple[ActionPoints, PathDraw, Scaling, float]) -> np.ndarray:
    points, drawn, scaling, noise_variance = shared
    with single_blas_thread():
        X, columns = points.rows.read(*span)
        keep, t = complete_rows(X, columns), points.rows.n_targets
        seen = drawn.prior(np.asarray(scaling.inputs(np.asarray(X[keep], np.float64))))
        spread = _spread(scaling, noise_variance, columns[keep, t:])
        seen += spread[:, None] * drawn.noise(*span)[keep]
        values = np.asarray(columns[keep, :t], np.float64)
        owner = points.owner
        if owner is None:
            return np.asarray(values.T @ seen)
        total = np.zeros((points.count, drawn.width))
        np.add.at(total, owner[span.start : span.stop][keep], values * seen)
        return total


def _plus(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a += b
    return a
