"""Leave-one-out predictions of training rows, from the fit to all of them."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np

from daskgp import data
from daskgp.arrays import backend
from daskgp.data import grids, reading
from daskgp.data.rows import GIVEN, WEIGHT, Y_VARIANCE
from daskgp.errors import InputError, SettingError
from daskgp.models.scaling import complete_rows, usable_rows
from daskgp.models.values import TILE_ROWS, Block, Moments, move
from daskgp.predict import lazy
from daskgp.predict.near import Local, Nearby
from daskgp.predict.posterior import Solved
from daskgp.predict.stored import Node, opened
from daskgp.runtime import device_memory
from daskgp.runtime.process import single_blas_thread


def leave_one_out(solved: Solved, X: np.ndarray, y: np.ndarray) -> Moments:
    """Return means and variances (n, p) of training rows as new observations, each without itself.

    They are those of the transformed y where targets are; NaN for rows with missing values.

    Parameters
    ----------
    solved : Solved
    X : ndarray (n, d)
        In the user's units.
    y : ndarray (n, p) or (n, p + 2)
        As ``Rows.read`` returns it.
    """
    inputs, p = np.asarray(solved.columns.inputs(X), np.float64), solved.n_targets
    apart = 0.0 if solved.known is None else solved.known.regressor(X)
    y = np.concatenate([y[:, :p] - apart, y[:, p:]], axis=1)
    if solved.trend is not None:
        values = np.asarray(X[:, solved.trend.columns], np.float64)
        y = np.concatenate([y[:, :p], values, y[:, p:]], axis=1)
        apart = apart + solved.trend.fitted(values)
    keep = complete_rows(inputs, y) & usable_rows(solved.scaling.inputs(inputs))
    inputs, y = inputs[keep], y[keep]
    local = isinstance(solved.kept, Nearby)
    block = solved.scaling.block(inputs, y, "float64" if local else solved.dtype)
    device = backend.resolve_device(solved.device)
    found = _of_groups(solved, inputs, block) if local else _of_tiles(solved, block, device)
    scaled = np.asarray(block.X, np.float64)
    own = solved.scaling.moments(found, scaled)
    mean, variance = np.full((2, len(keep), solved.n_targets), np.nan)
    mean[keep], variance[keep] = own.mean, np.asarray(own.variance) * solved.spread**2
    return Moments(mean + apart, variance)


def _of_tiles(solved: Solved, block: Block, device: str) -> Moments:
    n, model = len(block.X), _looing(solved)

    def work(most: int) -> Moments:
        fit, tiles = solved.fitted(device), []
        for start in range(0, max(n, 1), most):
            tile = move(block.at(slice(start, start + most)), device)
            tiles.append(move(model.loo(fit.theta, fit.state, tile), "cpu"))
        return _joined(tiles)

    name = f"leave-one-out predictions of {solved.model.name}"
    most = min(TILE_ROWS, max(n, 1))
    return device_memory.shrinking(work, most, device, name, device_memory.ANOTHER)


def _of_groups(solved: Solved, inputs: np.ndarray, block: Block) -> Moments:
    """Return predictions of rows in the groups that are predicted from the same rows."""
    assert isinstance(solved.kept, Nearby)
    device, n, model = backend.resolve_device(solved.device), len(inputs), _looing(solved)
    local = Local(solved.fitted(device), solved.kept)
    mean, variance = np.empty((n, solved.n_targets)), np.empty(n)
    for key, group in solved.kept.groups(inputs):
        own = move(block.at(group), device)
        found = move(model.loo(local.fit.theta, local.fit.state, own, local.near(key)), "cpu")
        mean[group], variance[group] = found.mean, found.variance
    return Moments(mean, variance)


def _looing(solved: Solved) -> Any:
    missing = solved.model.why_no_loo()
    if missing:
        raise SettingError(missing)
    return solved.model


def _joined(tiles: list[Moments]) -> Moments:
    mean = np.concatenate([tile.mean for tile in tiles])
    return Moments(mean, np.concatenate([np.asarray(tile.variance) for tile in tiles]))


# -- of any kind of rows ---------------------------------------------------------------------


def left_out(solved: Solved, X: Any, y: Any, y_variance: Any, weight: Any) -> tuple[Any, Any]:
    """Return mean and standard deviation of training rows, each without itself.

    NumPy in, NumPy out; lazy rows give dask arrays with their chunks, and nothing is computed.
    """
    _looing(solved)
    given = {Y_VARIANCE: y_variance, WEIGHT: weight}
    noise = data.noise_beside(y) | {k: v for k, v in given.items() if v is not None}
    if grids.is_xarray(X) or grids.is_xarray(y):
        noise = {
            k: grids.training_arrays(X, grids.like(y, v, GIVEN[k]))[1] for k, v in noise.items()
        }
        X, y, _ = grids.training_arrays(X, y)
    X = lazy.rows_for(solved, X)
    arrays = {"y": y, **{k: v for k, v in noise.items() if v is not False}}
    own = {name: _columns(name, a, len(X), solved) for name, a in arrays.items()}
    one, none = np.ones((len(X), 1)), np.zeros((len(X), 1))
    parts = [own["y"]]
    if len(own) > 1:
        parts += [own.get(WEIGHT, one), own.get(Y_VARIANCE, none)]
    if not any(isinstance(a, da.Array) for a in (X, *parts)):
        return _in_memory(solved, X, np.concatenate(parts, axis=1))
    X = da.asarray(X)
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    together = [da.asarray(a).rechunk((X.chunks[0], -1)) for a in parts]
    return _lazily(solved, X, da.concatenate(together, axis=1).rechunk({1: -1}), True)


def _columns(name: str, values: Any, n: int, solved: Solved) -> Any:
    """Return y (n, p), or errors or weights (n, 1), as an array in memory or of dask."""
    values = reading.from_zarr(values) if data.is_zarr(values) else reading.lazily(values)
    values = values if isinstance(values, da.Array) else reading.unmasked(values)
    what, width = GIVEN.get(name, name), solved.n_targets if name == "y" else 1
    reading.check_kind(what, values)
    if not values.ndim:
        return np.full((n, 1), float(values))
    if values.shape not in ((n, width), (n,)[: 1 + (width > 1)]):
        raise InputError(f"{what} has shape {values.shape} for {n} rows: {(n, width)} is needed")
    return values.reshape(n, width) if values.ndim == 1 else values


def _in_memory(solved: Solved, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    order = solved.grouped(X)
    order = np.arange(len(X)) if order is None else order
    rows, columns = (da.from_array(a[order], chunks=(TILE_ROWS, -1)) for a in (X, y))
    with single_blas_thread():
        parts = dask.compute(*_lazily(solved, rows, columns, False), scheduler="threads")
    back = np.argsort(order)
    return parts[0][back], parts[1][back]


def _lazily(solved: Solved, X: da.Array, y: da.Array, travels: bool) -> tuple[Any, Any]:
    task: Any = _block
    both = X.map_blocks(
        task,
        y,
        lazy.solved_node(solved, travels),
        chunks=(X.chunks[0], (2 * solved.n_targets,)),
        dtype=np.float64,
        meta=np.empty((0, 0)),
    )
    return lazy.split(both, solved, "std")


def _block(X: Any, y: np.ndarray, node: Node) -> np.ndarray:
    solved = opened(node)
    with single_blas_thread():
        found = leave_one_out(solved, reading.unmasked(X), y)
    mean, variance = found.mean, np.asarray(found.variance)
    if solved.transform is not None:
        mean, variance = solved.transform.moments(mean, variance)
    return np.concatenate([mean, np.sqrt(variance)], axis=1)
