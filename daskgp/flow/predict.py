"""Prediction: the solved state as one node, a map over test chunks, lazily or into a store."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import dask
import dask.array as da
import numpy as np
from dask import delayed

from daskgp import backend
from daskgp.errors import InputError, NumericalError
from daskgp.flow import io
from daskgp.flow.cluster import Executor, single_blas_thread
from daskgp.flow.io import grids, predictions
from daskgp.model import Model, Moments, Theta, Want, move
from daskgp.scaling import Scaling

logger = logging.getLogger("daskgp")

Spread: TypeAlias = Literal["none", "variance", "std"]

TILE_ROWS = 4_096
DENSE_ROWS = 20_000
"""Most rows for which a joint covariance (n, n) is made."""
ROUNDING = 1e-6
"""Variances below zero by less than this share of the prior's are rounding and clipped."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A fitted method: all that prediction needs, one node in any graph."""

    model: Model
    theta: Theta
    state: Any
    scaling: Scaling
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    vector_target: bool
    dtype: str = "float64"
    device: str = "cpu"

    def __dask_tokenize__(self) -> str:
        return self.token

    @cached_property
    def token(self) -> str:
        """Checksum of all that predictions depend on."""
        theta, arrays = self.theta, {f"state_{i}": np.asarray(a) for i, a in enumerate(self.state)}
        arrays |= {k: np.asarray(v) for k, v in vars(self.scaling).items()}
        if theta.inputs is not None:
            arrays["inputs"] = theta.inputs
        settings = {
            "model": [self.model.name, repr(self.model)],
            "kernel": theta.kernel.to_dict(),
            "noise_variance": theta.noise_variance,
            "names": [self.feature_names, self.target_names],
            "dtype": self.dtype,
        }
        return io.checksum(arrays, settings)

    @property
    def n_features(self) -> int:
        """Columns that X must have."""
        return len(self.feature_names)

    @property
    def n_targets(self) -> int:
        """Columns of the mean."""
        return len(self.target_names)

    def moments(self, X: np.ndarray, want: Want, include_noise: bool = False) -> Moments:
        """Posterior at X (n, d) in the user's units; rows with a missing value give NaN.

        Mean and variance are made tile by tile, so memory beyond the result is that of a tile.
        """
        X = np.asarray(X)
        if want == "covariance":
            if len(X) > DENSE_ROWS:
                raise InputError(
                    f"a joint covariance of {len(X)} rows needs {8e-9 * len(X) ** 2:.0f} GB: "
                    f"ask for at most {DENSE_ROWS} rows at once, or for return_std"
                )
            return self._covariance(X, include_noise)
        mean = np.empty((len(X), self.n_targets))
        variance = np.empty_like(mean) if want == "variance" else None
        for start in range(0, len(X), TILE_ROWS):
            rows = slice(start, start + TILE_ROWS)
            tile = self._tile(X[rows], want, include_noise)
            mean[rows] = tile.mean
            if variance is not None:
                variance[rows] = tile.variance
        return Moments(mean, variance)

    def _tile(self, X: np.ndarray, want: Want, include_noise: bool) -> Moments:
        scaled = self.scaling.inputs(np.asarray(X, np.float64))
        usable = np.isfinite(scaled).all(axis=1)
        scaled[~usable] = 0.0
        found = self._scaled_moments(scaled, want)
        if found.variance is not None:
            variance = self._checked(found.variance, scaled)
            variance += self.theta.noise_variance if include_noise else 0.0
            found = found._replace(variance=variance)
        found = self.scaling.moments(found, scaled)
        for values in (found.mean, found.variance):
            if values is not None:
                values[~usable] = np.nan
        return found

    def _covariance(self, X: np.ndarray, include_noise: bool) -> Moments:
        scaled = self.scaling.inputs(np.asarray(X, np.float64))
        if not np.isfinite(scaled).all():
            raise InputError("X has missing or infinite values: a joint covariance needs none")
        found = self._scaled_moments(scaled, "covariance")
        covariance = np.asarray(found.covariance, np.float64)
        at = np.diag_indices(len(X))
        covariance[at] = self._checked(covariance[at], scaled)
        covariance[at] += self.theta.noise_variance if include_noise else 0.0
        return self.scaling.moments(found._replace(covariance=covariance), scaled)

    def _scaled_moments(self, scaled: np.ndarray, want: Want) -> Moments:
        device = backend.resolve_device(self.device)
        theta, state = move(self.theta, device), move(self.state, device)
        X = backend.to_device(scaled.astype(self.dtype, copy=False), device)
        return move(self.model.predict(theta, state, X, None, want), "cpu")

    def _checked(self, variance: np.ndarray, scaled: np.ndarray) -> np.ndarray:
        """Clip what rounding makes negative; anything beyond is an error."""
        variance = np.asarray(variance, np.float64)
        prior = float(np.max(self.theta.kernel.diag(scaled), initial=0.0))
        tolerance = ROUNDING * prior * (1.0 if self.dtype == "float64" else 1e4)
        worst = float(np.min(variance, initial=0.0))
        if worst < -tolerance:
            raise NumericalError(
                f"a predictive variance of {worst:.3g} is below zero beyond rounding (prior "
                f"{prior:.3g}): use dtype='float64' or a larger noise_variance"
            )
        return np.maximum(variance, 0.0)


def marginal(solved: Solved, X: Any, spread: Spread, include_noise: bool) -> tuple[Any, Any]:
    """Mean and spread at X, of the kind X is; the second is None for ``spread="none"``.

    NumPy in, NumPy out; dask or Zarr in, dask out with the same row chunks, nothing computed;
    xarray in, DataArrays out on the same grid.
    """
    names = io.column_names(X)
    if grids.is_xarray(X):
        if grids.is_table(X):
            check_columns(solved, X, names)
        return _on_grid(solved, X, spread, include_noise)
    if io.is_zarr(X):
        X = da.from_zarr(X)
    eager = not isinstance(X, da.Array)
    X = np.asarray(X) if eager else X
    check_columns(solved, X, names)
    if eager:
        return _in_memory(solved, X, spread, include_noise)
    return lazy(solved, X, spread, include_noise)


def joint(solved: Solved, X: Any, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and joint covariance at rows in memory."""
    if isinstance(X, da.Array) or grids.is_xarray(X) or io.is_zarr(X):
        raise InputError(
            "a joint covariance or sample needs rows in memory: give a NumPy array, or ask for "
            "return_std"
        )
    names, X = io.column_names(X), np.asarray(X)
    check_columns(solved, X, names)
    with single_blas_thread():
        found = solved.moments(X, "covariance", include_noise)
    assert found.covariance is not None
    if solved.vector_target:
        return found.mean[:, 0], found.covariance[:, :, 0]
    return found.mean, found.covariance


def check_columns(solved: Solved, X: Any, names: tuple[str, ...] | None) -> None:
    """Raise InputError unless X has the columns of the training data."""
    fitted = solved.feature_names
    if X.ndim != 2:
        raise InputError(f"X has {X.ndim} dimensions, 2 are needed (rows, features)")
    if np.dtype(X.dtype).kind not in "fiub":
        raise InputError(f"X has type {X.dtype}, numbers are needed")
    if X.shape[1] != len(fitted):
        raise InputError(
            f"X has {X.shape[1]} features, the model was fitted with {len(fitted)}: "
            f"{', '.join(fitted)}"
        )
    unnamed = tuple(f"x{j}" for j in range(len(fitted)))
    if names is not None and names != fitted and unnamed not in (names, fitted):
        seen, wanted = next((a, b) for a, b in zip(names, fitted, strict=True) if a != b)
        raise InputError(
            f"X has feature {seen!r} where the model was fitted with {wanted!r}: "
            f"give the columns {', '.join(fitted)} in this order"
        )


def lazy(solved: Solved, X: da.Array, spread: Spread, include_noise: bool) -> tuple[Any, Any]:
    """Mean and spread with the row chunks of X; both come from one task a chunk."""
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    width = solved.n_targets * (1 if spread == "none" else 2)
    predict: Any = _predict_block  # dask's stubs want an array here
    both = X.map_blocks(
        predict,
        _node(solved),
        spread,
        include_noise,
        chunks=(X.chunks[0], (width,)),
        dtype=np.float64,
        meta=np.empty((0, 0)),
        name="predict-" + dask.base.tokenize(X.name, solved, spread, include_noise),
    )
    return _split(both, solved, spread)


def _on_grid(solved: Solved, X: Any, spread: Spread, include_noise: bool) -> tuple[Any, Any]:
    """Mean and spread as DataArrays on the grid of an xarray object, lazy where it is chunked."""
    grid = grids.grid_of(X, solved.feature_names)
    width = solved.n_targets * (1 if spread == "none" else 2)
    both = grid.map(_predict_block, width, _node(solved), spread, include_noise)
    parts = _split(both, solved, spread)
    if not grid.lazy:
        with single_blas_thread():
            parts = dask.compute(*parts, scheduler="threads")
    first, second = (
        None if a is None else grid.wrap(a, solved.target_names, solved.vector_target)
        for a in parts
    )
    return first, second


def _in_memory(
    solved: Solved, X: np.ndarray, spread: Spread, include_noise: bool
) -> tuple[Any, Any]:
    """Mean and spread of a NumPy array, computed by the threads of this process."""
    mean, second = lazy(solved, da.from_array(X, chunks=(TILE_ROWS, -1)), spread, include_noise)
    with single_blas_thread():
        return dask.compute(mean, second, scheduler="threads")


def _node(solved: Solved) -> Any:
    return delayed(solved, name="solved-" + solved.token, traverse=False)


def _predict_block(X: Any, solved: Solved, spread: Spread, include_noise: bool) -> np.ndarray:
    with single_blas_thread():
        found = solved.moments(X, "mean" if spread == "none" else "variance", include_noise)
    if found.variance is None:
        return np.asarray(found.mean)
    second = np.sqrt(found.variance) if spread == "std" else found.variance
    return np.concatenate([found.mean, second], axis=1)


def _split(both: da.Array, solved: Solved, spread: Spread) -> tuple[Any, Any]:
    p = solved.n_targets
    first = both[..., 0] if solved.vector_target else both[..., :p]
    if spread == "none":
        return first, None
    return first, both[..., 1] if solved.vector_target else both[..., p:]


class Written(NamedTuple):
    """Rows that a run predicted and rows it found done."""

    rows: int
    skipped: int


def write(
    solved: Solved,
    source: str,
    output: str,
    resume: bool,
    executor: Executor,
    model: tuple[str, str] | None = None,
) -> Written:
    """Predict the inputs of a dataset store into a prediction store.

    A task reads one chunk of X, writes the same chunk of ``mean`` and ``variance`` (noise
    included) and sets its flag in ``done`` last, so a run that is killed can be repeated.  A run
    that fails before its first chunk leaves no store.  ``model`` is the URL of the model's store
    and its checksum, for the attributes of the output.

    Raises
    ------
    InputError
        If the columns of the source are not those of the training data.
    StoreError
        If the output exists and ``resume`` is not set, or was made by another model or from
        another input.
    """
    X = check_source(solved, source)
    url, checksum = model or (None, solved.token)
    identity = {"model_checksum": checksum, "input_checksum": io.inputs_checksum(X)}
    notes = {"model": url, "input": source}
    new = not io.exists(output)
    target = predictions.open_or_create(output, X, solved, identity, notes, resume)
    try:
        rows = _write_missing(solved, X, target, executor)
        target.finish()
    except Exception:
        if new and not target.done().any():
            io.remove(output)
        raise
    return Written(rows, X.shape[0] - rows)


def check_source(solved: Solved, source: str) -> da.Array:
    """The inputs of a dataset store; InputError unless they can be predicted."""
    X = io.open_inputs(source)
    check_columns(solved, X, io.column_names(X))
    if not X.shape[0]:
        raise InputError(f"{source} has no rows: there is nothing to predict")
    return X


def _write_missing(
    solved: Solved, X: da.Array, target: predictions.Target, executor: Executor
) -> int:
    todo, starts = np.flatnonzero(~target.done()), np.cumsum([0, *X.chunks[0]])
    tag = uuid.uuid4().hex[:8]
    # a task reads its own rows, so that raw rows never are the output of one
    put = delayed(partial(_write_block, io.behind(X), target), pure=False, traverse=False)
    nodes = [
        put(
            _node(solved),
            int(i),
            slice(int(starts[i]), int(starts[i + 1])),
            dask_key_name=f"predict-write-{tag}-{i}",
        )
        for i in todo
    ]
    if not nodes:
        return 0
    root = delayed(_count, pure=False)(nodes, dask_key_name=f"predict-count-{tag}")
    return int(executor.compute(root, nodes, "predict"))


def _write_block(
    source: Any, target: predictions.Target, solved: Solved, index: int, rows: slice
) -> int:
    with single_blas_thread():
        found = solved.moments(np.asarray(source[rows]), "variance", include_noise=True)
    assert found.variance is not None
    target.put(index, rows.start, found.mean, found.variance)
    return len(found.mean)


def _count(rows: list[int]) -> int:
    return sum(rows)
