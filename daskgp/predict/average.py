"""Posterior of an average over many places, from tiles of their joint covariance."""

from __future__ import annotations

from operator import getitem
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from daskgp import data
from daskgp.arrays import backend
from daskgp.data import grids, reading
from daskgp.data.blocks.around import Part
from daskgp.errors import InputError
from daskgp.models.values import Across, Moments
from daskgp.posterior.layers import Fade
from daskgp.posterior.neighbour_rows import SUM_ROWS, Local, united
from daskgp.posterior.posterior import Posterior
from daskgp.predict.lazy import grid_for, posterior_node, rows_for
from daskgp.predict.stored import Node, opened
from daskgp.runtime.process import single_blas_thread

TILE_ROWS = 1_000
"""Places per tile; a task holds the joint covariance of two tiles."""
MAX_ROWS = 200_000
"""Maximum number of places of an average; the covariances grow with its square."""

NOTHING = "no place has a weight and all its features: give some that do"


class _Ties(NamedTuple):
    """Sums over places of w X (1, d), in the user's units and the model's, and of w `Across`."""

    X: np.ndarray
    scaled: np.ndarray
    features: np.ndarray
    kernel: np.ndarray


class _Tile(NamedTuple):
    """Sums over the places of a tile: w, w^2 and w mean (p,), and their largest prior variance.

    That mean is what a regressor predicts where ``ties`` to training rows tell the rest.  Squares
    are by noise variances, relative to the common one.
    """

    weight: float
    squares: float
    mean: np.ndarray
    prior: float
    ties: _Ties | None = None


def average(posterior: Posterior, X: Any, weights: Any, include_noise: bool) -> tuple[Any, Any]:
    """Return mean and standard deviation of the posterior's weighted average over the places X.

    NumPy in, NumPy out; dask or Zarr in, dask out; xarray in, DataArrays out, lazy where X is.
    """
    posterior.refuse_spread(include_noise)
    posterior.refuse_joint(include_noise)
    rows, w, lazy = places(posterior, X, weights, TILE_ROWS, MAX_ROWS)
    if posterior.stretch is None:
        averages = lazy_average(posterior, rows, w, include_noise, lazy)
    else:
        averages = _stretched(posterior, posterior.stretch, rows, w, include_noise, lazy)
    if not lazy:
        averages = computed(averages)
    if grids.is_xarray(X):
        mean, std = (
            posterior.labelled(a, grids.NOWHERE, what, include_noise)
            for a, what in zip(averages, ("mean", "std"), strict=True)
        )
        return mean, std
    mean, std = averages
    return (mean, std) if lazy else (mean[()], std[()])


def places(
    posterior: Posterior, X: Any, weights: Any, block: int, most: int | None = None
) -> tuple[da.Array, da.Array, bool]:
    """Return places (n, d) and their weights (n,) in blocks of some rows, and whether X is lazy.

    Raises
    ------
    InputError
        If there are no places, or more than ``most``, or the weights cannot be used.
    """
    if grids.is_xarray(X):
        grid = grid_for(posterior, X)
        _refuse_sizes(grid.size, most)
        rows, w = grids.rows_and_weights(grid, weights)
        return reading.plainly(rows).rechunk((block, -1)), w.rechunk(block), grid.lazy
    X = rows_for(posterior, X)
    _refuse_sizes(X.shape[0], most)
    w = _given_weights(weights, X.shape[0])
    if isinstance(X, da.Array):
        return reading.plainly(X).rechunk((block, -1)), da.asarray(w).rechunk(block), True
    order = posterior.grouped(X)  # a local method wants rows near one another in a tile
    if order is not None:
        X, w = X[order], w[order]
    return da.from_array(X, chunks=(block, -1)), da.from_array(w, chunks=block), False


def lazy_average(
    posterior: Posterior, X: da.Array, w: da.Array, include_noise: bool, travels: bool
) -> tuple[da.Array, da.Array]:
    """Return dask arrays () or (p,): mean and std for rows X (n, d) with weights w (n,).

    Tiles, pairs of tiles and their sums are tasks, added up in the order of the rows, so bits do
    not depend on the workers.  The mean needs only the tiles.  A local method conditions all places
    on the training rows that serve any of them: pairs are then those of the prior, and what the
    rows say of the average follows from sums over its places.  Where hyper-parameters vary, or with
    barriers, there is no prior of pairs: places are conditioned one after another, in one task.
    """
    node, count = posterior_node(posterior, travels), X.numblocks[0]
    token = dask.base.tokenize(posterior, X.name, w.name, include_noise)
    tile, pair, row = (f"average-{part}-{token}" for part in ("tile", "pair", "row"))
    own = [((X.name, i, 0), (w.name, i)) for i in range(count)]
    tiles, rows = [(tile, i) for i in range(count)], [(row, i) for i in range(count)]
    local, varies = posterior.nearby is not None, posterior.one_by_one
    served, near, given = (f"average-{part}-{token}" for part in ("served", "near", "given"))
    sums: dict[Any, Any] = {
        key: (_tile, node.key, *place, near if local else None)
        for key, place in zip(tiles, own, strict=True)
    }
    of_mean: Any = (_mean, tiles)
    if local:
        own_rows: dict[Any, Any] = {
            (served, i): (_serving, node.key, *place) for i, place in enumerate(own)
        }
        sums |= {**own_rows, near: (united, [*own_rows], SUM_ROWS if varies else None)}
        sums[given] = (_given, node.key, tiles, near, [[*place] for place in own] if varies else [])
        of_mean = (getitem, given, 0)
    if varies:
        rows = []
    squares: dict[Any, Any] = {
        (pair, i, j): (_pair, node.key, *own[i], *own[j], i == j)
        for i in range(len(rows))
        for j in range(i, count)
    }
    for i, key in enumerate(rows):
        squares[key] = (_added, [(pair, i, j) for j in range(i, count)])
    p = posterior.n_targets
    mean = _array(f"average-mean-{token}", of_mean, sums, [X, w, node], p)
    last = (_variance, node.key, tiles, rows, given if local else None, include_noise)
    needs = [mean, X, w, node]
    std = da.sqrt(_array(f"average-variance-{token}", last, squares, needs, p))
    return (mean[0], std[0]) if posterior.vector_target else (mean, std)


def _stretched(
    posterior: Posterior,
    stretch: Posterior,
    X: da.Array,
    w: da.Array,
    include_noise: bool,
    travels: bool,
) -> tuple[da.Array, da.Array]:
    """Return mean and std of an average by a posterior with a fading, see ``lazy_average``.

    It multiplies deviations at places by factors, that of ``stretch`` as standard deviations, so
    that those of the average are as if weights were multiplied.
    """
    plain = posterior.beside(*(one for one in posterior.layers if not isinstance(one, Fade)))
    make: Any = da.map_blocks  # dask's stubs do not know its arguments
    used = make(
        _with_stretch,
        X,
        w[:, None],
        posterior_node(stretch, travels),
        chunks=(X.chunks[0], (3,)),
        dtype=np.float64,
        meta=np.empty((0, 3)),
    )
    mean, _ = lazy_average(plain, X, w, False, travels)
    _, std = lazy_average(plain, X, used[:, 1], False, travels)
    total, stretched, squares = used.sum(axis=0)
    noise = plain.noise[0] if plain.vector_target else plain.noise
    added = squares * noise if include_noise else 0.0
    return mean, da.sqrt((std * stretched) ** 2 + added) / total


def _with_stretch(X: np.ndarray, w: np.ndarray, posterior: Node) -> np.ndarray:
    """Return weights (n, 3) of places, these stretched, and their squares by relative noise."""
    own, w = opened(posterior), np.asarray(w, np.float64)[:, 0]
    check_weights(w)
    X, found = reading.unmasked(X), np.zeros((len(w), 3))
    keep = own.usable(X) & (w > 0)
    X, w = X[keep], w[keep]
    with single_blas_thread():
        variance = own.moments(X, "variance", gaussian=True).variance
        assert variance is not None
        found[keep] = np.column_stack(
            [w, w * np.sqrt(variance[:, 0]), w**2 * own.relative_noise(X)]
        )
    return found


def _array(name: str, last: Any, tasks: dict[Any, Any], needs: list[Any], p: int) -> da.Array:
    """Return a dask array (p,) of one block, the result of the task ``last``."""
    graph = HighLevelGraph.from_collections(name, {**tasks, (name, 0): last}, needs)
    return da.Array(graph, name, chunks=((p,),), meta=np.empty(0))


def of_values(values: da.Array, w: da.Array, level: float | None) -> da.Array:
    """Return the weighted average (...) over rows of values (n, ...), or the share above a level.

    Rows of NaN are left out.
    """
    tail = values.shape[1:]
    sums: Any = da.map_blocks(
        _sums,
        values,
        w.reshape((-1, *(1 for _ in tail))),
        level,
        chunks=((1,) * values.numblocks[0], (2,), *((size,) for size in tail)),
        new_axis=1,
        dtype=np.float64,
        meta=np.empty((0, 2, *(0 for _ in tail))),
    )
    return sums.sum(axis=0).map_blocks(
        _quotient, drop_axis=0, dtype=np.float64, meta=np.empty(tuple(0 for _ in tail))
    )


def computed(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of dask arrays, computed in this process."""
    with single_blas_thread():
        done: tuple[Any, ...] = dask.compute(*arrays, scheduler="threads")
    return done


def _refuse_sizes(n: float, most: int | None) -> None:
    if n != n:  # NaN: unknown to dask
        raise InputError("X has unknown chunk sizes: call compute_chunk_sizes() on it")
    if n == 0:
        raise InputError("no places: X has length 0; give at least one to average over")
    if most is not None and n > most:
        raise InputError(
            f"the average over {n:,} places needs their {float(n) ** 2:.1g} covariances: thin the "
            f"places or coarsen the grid to at most {most:,}, or average functions drawn by "
            "sample_paths(n).average(X), which takes any number"
        )


def _given_weights(weights: Any, n: int) -> Any:
    """Return weights (n,): a dask array, or a NumPy array that is checked here."""
    if weights is None:
        return np.ones(n)
    if data.is_zarr(weights):
        weights = reading.from_zarr(weights)
    w = weights if isinstance(weights, da.Array) else reading.unmasked(weights, "weights")
    reading.check_kind("weights", w)
    if w.shape != (n,):
        raise InputError(f"weights has shape {w.shape} for {n} places: ({n},) is needed")
    if isinstance(w, np.ndarray):
        check_weights(w)
        if not w.any():
            raise InputError("all weights are 0: give at least one that is greater")
    return w


def check_weights(w: np.ndarray) -> None:
    """Raise InputError if a weight is negative, missing or infinite."""
    wrong = ~(np.isfinite(w) & (w >= 0))
    if wrong.any():
        raise InputError(
            f"{int(wrong.sum())} weights are negative, missing or infinite, the first is "
            f"{w[wrong][0]:g}: give 0 or more"
        )


# -- tasks -----------------------------------------------------------------------------------


def _used(posterior: Posterior, X: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that can be predicted and have a weight, and their weights."""
    w = np.asarray(w, np.float64)
    check_weights(w)
    X = reading.unmasked(X)
    keep = posterior.usable(X) & (w > 0)
    return X[keep], w[keep]


def _tile(node: Node, X: np.ndarray, w: np.ndarray, near: list[Part] | None) -> _Tile:
    posterior = opened(node)
    X, w = _used(posterior, X, w)
    mean, ties = np.zeros(posterior.n_targets), None
    with single_blas_thread():
        if near is None:
            mean = w @ posterior.moments(X, "mean").mean
        elif len(w):
            mean = w @ posterior.nonlinear_mean(X)
            posterior.refuse_places(np.asarray(X, np.float64))
            scaled = posterior.scaled(X)
            across = Across(np.zeros((1, 0)), np.zeros((1, 0)))
            if not posterior.one_by_one:
                across = _local(posterior).summed(scaled, w, near)
            ties = _Ties(w[None] @ X, w[None] @ scaled, across.features, across.kernel)
    squares = (w * w) @ posterior.relative_noise(X)
    return _Tile(float(w.sum()), float(squares), mean, posterior.prior(X), ties)


def _local(posterior: Posterior) -> Local:
    assert posterior.nearby is not None
    return Local(posterior.fitted(backend.resolve_device(posterior.device)), posterior.nearby)


def _serving(node: Node, X: np.ndarray, w: np.ndarray) -> list[Part]:
    """Return the training rows that the places of a tile are conditioned on."""
    posterior = opened(node)
    X, w = _used(posterior, X, w)
    with single_blas_thread():
        return _local(posterior).serving(posterior.columns.inputs(X), posterior.scaled(X))


def _given(
    node: Node, tiles: list[_Tile], near: list[Part], places: list[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (p,) of an average, and what w' C w (p,) is more than that of the prior.

    ``places`` are X and w of all tiles if they are conditioned one after another: it is all then.
    """
    posterior, total = opened(node), _total(tiles)
    parts = zip(*(tile.ties for tile in tiles if tile.ties is not None), strict=True)
    X, scaled, *across = (_added([*sums]) / total for sums in parts)
    with single_blas_thread():
        if places:
            used = (_used(posterior, *place) for place in places)
            line, w = map(np.concatenate, zip(*used, strict=True))
            found = _local(posterior).one_by_one(posterior.scaled(line), w / total, near)
        else:
            found = _local(posterior).of_sum(Across(*across), near)
        assert found.variance is not None
        own = Moments(found.mean, covariance=found.variance[:, None])
        own = posterior.of_average(own, X, scaled)
    assert own.covariance is not None
    return _mean(tiles) + own.mean[0], total**2 * own.covariance[0, 0]


def _pair(
    node: Node, X: np.ndarray, w: np.ndarray, Z: np.ndarray, v: np.ndarray, same: bool
) -> np.ndarray:
    """Return w' C v of two tiles (p,), twice for a pair that also stands for its mirror image."""
    posterior = opened(node)
    X, w = _used(posterior, X, w)
    Z, v = _used(posterior, Z, v)
    if not (len(w) and len(v)):
        return np.zeros(posterior.n_targets)
    with single_blas_thread():
        if posterior.nearby is not None:
            prior = _local(posterior).prior(posterior.scaled(X), w, posterior.scaled(Z), v)
            return np.asarray((1.0 if same else 2.0) * prior * np.square(posterior.unit))
        C = posterior.moments(X if same else np.concatenate([X, Z]), "covariance").covariance
        assert C is not None
        across = C if same else C[: len(w), len(w) :]
        total: np.ndarray = np.einsum("j,jp->p", v, np.einsum("i,ijp->jp", w, across))
    return total if same else 2.0 * total


def _sums(values: np.ndarray, w: np.ndarray, level: float | None) -> np.ndarray:
    """Return sums (1, 2, ...) of w times values, or whether they are above a level, and of w."""
    check_weights(w.ravel())
    seen = ~np.isnan(values)
    terms = values if level is None else values > level
    return np.stack([np.where(seen, terms * w, 0.0).sum(axis=0), (seen * w).sum(axis=0)])[None]


def _quotient(sums: np.ndarray) -> np.ndarray:
    if not (sums[1] > 0).all():
        raise InputError(NOTHING)
    quotient: np.ndarray = sums[0] / sums[1]
    return quotient


def _added(parts: list[np.ndarray]) -> np.ndarray:
    return np.sum(parts, axis=0)


def _mean(tiles: list[_Tile]) -> np.ndarray:
    return _added([tile.mean for tile in tiles]) / _total(tiles)


def _variance(
    node: Node,
    tiles: list[_Tile],
    parts: list[np.ndarray],
    given: tuple[np.ndarray, np.ndarray] | None,
    include_noise: bool,
) -> np.ndarray:
    posterior = opened(node)
    unit = np.square(posterior.unit)
    total = _added(parts) if given is None else _added([*parts, given[1]])
    if include_noise:
        total = total + posterior.noise * sum(tile.squares for tile in tiles)
    scaled = total / (unit * _total(tiles) ** 2)
    return posterior.sound(scaled, max(tile.prior for tile in tiles)) * unit


def _total(tiles: list[_Tile]) -> float:
    total = sum(tile.weight for tile in tiles)
    if not total > 0:
        raise InputError(NOTHING)
    return total
