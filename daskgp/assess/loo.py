"""Leave-one-out predictions of training rows, from the fit to all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask import delayed

from daskgp import data
from daskgp.arrays import backend
from daskgp.checks import rows as counted
from daskgp.data import grids, reading
from daskgp.data.blocks import filling, sampling
from daskgp.data.rows import GIVEN, WEIGHT, Y_VARIANCE
from daskgp.errors import InputError, SettingError
from daskgp.fit import joint
from daskgp.models import leave_one_out as leaving
from daskgp.models import repeats
from daskgp.models.columns import Columns
from daskgp.models.scaling import complete_rows, usable_rows
from daskgp.models.values import TILE_ROWS, Block, Moments, move, variances
from daskgp.posterior.neighbour_rows import Local, Nearby
from daskgp.posterior.posterior import Posterior
from daskgp.predict import lazy
from daskgp.predict.stored import Node, opened
from daskgp.runtime import device_memory
from daskgp.runtime.process import single_blas_thread

logger = logging.getLogger("daskgp")


class KnownRows(NamedTuple):
    """Identity of the rows of a fit: their number, arguments beside X and y, and checksum."""

    number: int
    given: frozenset[str]
    checksum: int

    @classmethod
    def of(cls, notes: Sequence[Mapping[str, Any]], number: int) -> KnownRows | None:
        """Return what notes of a fit and of later changes tell of the ``number`` rows that stay.

        None for notes of earlier versions.  The checksums of rows that were added and taken out
        make that of all.
        """
        fits = [i for i, note in enumerate(notes) if note.get("what") == "fit"]
        notes = notes[fits[-1] if fits else 0 :]
        if not notes or not all({"given", "checksum"} <= note.keys() for note in notes):
            return None
        signs = [-1 if note["what"] == "forget" else 1 for note in notes]
        each = [int(note["checksum"], 16) for note in notes]
        total = sum(sign * own for sign, own in zip(signs, each, strict=True)) % 2**64
        return cls(number, frozenset(name for note in notes for name in note["given"]), total)


def leave_one_out(posterior: Posterior, X: np.ndarray, y: np.ndarray) -> Moments:
    """Return means and variances (n, p) of training rows as new observations, each without itself.

    They are those of the transformed y where targets are; NaN for rows with missing values.

    Parameters
    ----------
    posterior : Posterior
    X : ndarray (n, d)
        In the user's units.
    y : ndarray (n, p) or (n, p + 2), or (n, 2 p + 1) of joint targets
        As ``Rows.read`` returns it.
    """
    if posterior.joint:
        return _of_joint(posterior, X, y)
    inputs, p = np.asarray(posterior.columns.inputs(X), np.float64), posterior.n_targets
    own, trend = [posterior.unpredicted(X, y[:, :p])], posterior.scaling.trend
    if trend is not None:
        own.append(np.asarray(X[:, trend.columns], np.float64))
    y = np.concatenate([*own, y[:, p:]], axis=1)
    keep = complete_rows(inputs, y) & usable_rows(posterior.scaling.inputs(inputs))
    inputs, y = inputs[keep], y[keep]
    device, rows = backend.resolve_device(posterior.device), posterior.nearby
    block = posterior.scaling.block(inputs, y, posterior.dtype if rows is None else "float64")
    if rows is None:
        found = _of_tiles(posterior, block, device)
    else:
        found = _of_groups(posterior, rows, inputs, block, device)
    found = posterior.of_left_out(found, X[keep], np.asarray(block.X, np.float64))
    mean, variance = np.full((2, len(keep), posterior.n_targets), np.nan)
    mean[keep], variance[keep] = found.mean, found.variance
    return Moments(mean, variance)


def _of_joint(posterior: Posterior, X: np.ndarray, y: np.ndarray) -> Moments:
    """Return predictions of each value of joint targets from all others, also of its row."""
    n, p = len(X), posterior.n_targets
    inputs = np.asarray(posterior.columns.inputs(X), np.float64)
    y = np.concatenate([posterior.unpredicted(X, y[:, :p]), y[:, p:]], axis=1)
    found = leave_one_out(*joint.each_of(posterior, X, y))
    of_each = Moments(found.mean.reshape(n, p), np.asarray(found.variance).reshape(n, p))
    return posterior.of_left_out(of_each, X, posterior.scaling.inputs(inputs))


def _of_tiles(posterior: Posterior, block: Block, device: str) -> Moments:
    n, model = len(block.X), _looing(posterior)

    def work(most: int) -> Moments:
        fit, tiles = posterior.fitted(device), []
        for start in range(0, max(n, 1), most):
            tile = move(block.at(slice(start, start + most)), device)
            tiles.append(move(model.loo(fit.theta, fit.state, tile), "cpu"))
        return _joined(tiles)

    name = f"leave-one-out predictions of {posterior.method.name}"
    most = min(TILE_ROWS, max(n, 1))
    return device_memory.shrinking(work, most, device, name, device_memory.ANOTHER)


def _of_groups(
    posterior: Posterior, rows: Nearby, inputs: np.ndarray, block: Block, device: str
) -> Moments:
    """Return predictions of rows in the groups that are predicted from the same rows."""
    n, model, local = len(inputs), _looing(posterior), Local(posterior.fitted(device), rows)
    mean, variance, far = np.empty((n, posterior.n_targets)), np.empty(n), []
    for key, group in rows.groups(inputs):
        near, own = local.near(key), block.at(group)
        found = move(model.loo(local.fit.theta, local.fit.state, move(own, device), near), "cpu")
        mean[group], variance[group] = found.mean, found.variance
        there = repeats.hashes(local.inputs_near(key))
        far.append(group[~np.isin(repeats.hashes(np.asarray(own.X, np.float64)), there)])
    if any(map(len, far)):
        _refuse_strangers(posterior, rows, inputs, block, np.concatenate(far))
    return Moments(mean, variance)


def _refuse_strangers(
    posterior: Posterior, rows: Nearby, inputs: np.ndarray, block: Block, far: np.ndarray
) -> None:
    """Raise InputError for some rows that are nowhere among all that a local method keeps."""
    wanted, found = repeats.hashes(inputs[far]), []
    for number in range(rows.layout.n_blocks):
        X, y = rows.read(number)
        same = np.isin(repeats.hashes(X), wanted)
        found.append(posterior.scaling.block(X[same], y[same]))
    known = Block.join(found)
    noise = np.broadcast_to(variances(posterior.theta.noise_variance, known.noise), len(known.X))
    there = leaving.Known(known.X, known.y, noise)
    leaving.refuse_unknown(leaving.places_of(posterior.theta, block.at(far), there))


def _looing(posterior: Posterior) -> Any:
    missing = posterior.method.why_no_loo()
    if missing:
        raise SettingError(missing)
    if posterior.by_sites and posterior.likelihood is not None:
        raise SettingError(
            f"leave-one-out predictions of likelihood={posterior.likelihood.name!r} would need "
            "the sites of other rows without each: take daskgp.cross_validate"
        )
    return posterior.method


def _joined(tiles: list[Moments]) -> Moments:
    mean = np.concatenate([tile.mean for tile in tiles])
    return Moments(mean, np.concatenate([np.asarray(tile.variance) for tile in tiles]))


# -- of any kind of rows ---------------------------------------------------------------------


def left_out(
    posterior: Posterior, known: KnownRows | None, X: Any, y: Any, y_variance: Any, weight: Any
) -> tuple[Any, Any]:
    """Return mean and standard deviation of training rows, each without itself.

    NumPy in, NumPy out; lazy rows give dask arrays with their chunks, and nothing is computed.
    ``known`` tells the rows of the fit; None for a store of an earlier version.
    """
    _looing(posterior)
    reading.refuse_other_order(X, y=y, y_variance=y_variance, sample_weight=weight)
    given = {Y_VARIANCE: y_variance, WEIGHT: weight}
    noise = data.beside_in_store(y, GIVEN) | {k: v for k, v in given.items() if v is not None}
    noise = {k: v for k, v in noise.items() if v is not False}
    _refuse_other_arguments(posterior, known, {GIVEN[name] for name in noise})
    if grids.is_xarray(X) or grids.is_xarray(y):
        noise = {
            k: grids.training_arrays(X, grids.like(y, v, GIVEN[k]))[1] for k, v in noise.items()
        }
        X, y, _ = grids.training_arrays(X, y)
    X = lazy.rows_for(posterior, X)
    own = {name: _columns(name, a, len(X), posterior) for name, a in {"y": y, **noise}.items()}
    one, none = np.ones((len(X), 1)), np.zeros((len(X), 1))
    parts = [filling.without(own["y"], posterior.fills[posterior.n_features :])]
    if len(own) > 1:
        parts += [own.get(WEIGHT, one), own.get(Y_VARIANCE, none)]
    whole = None if posterior.method.tells_rows else known
    if not any(isinstance(a, da.Array) for a in (X, *parts)):
        return _in_memory(posterior, whole, X, np.concatenate(parts, axis=1))
    X = da.asarray(X)
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    together = [da.asarray(a).rechunk((X.chunks[0], -1)) for a in parts]
    y = da.concatenate(together, axis=1).rechunk({1: -1})
    told = posterior.columns, posterior.n_targets, posterior.joint
    sums: Any = da.map_blocks(_checksum, X, y, *told, chunks=(1, 2), dtype=np.uint64)
    passed = None if whole is None else delayed(_refuse_other_rows)(sums.sum(axis=0), whole)
    return _lazily(posterior, X, y, True, passed)


def _refuse_other_arguments(posterior: Posterior, known: KnownRows | None, names: set[str]) -> None:
    """Raise InputError if noise of the rows is given to a fit without, or the other way round."""
    if known is not None:
        wanted: frozenset[str] = known.given
    elif posterior.nearby is not None:
        wanted = frozenset(GIVEN[name] for name in posterior.nearby.rows.arrays if name in GIVEN)
    else:
        if not posterior.method.tells_rows:
            logger.warning(
                "this model was stored by an earlier version of daskgp, without what tells its "
                "rows: leave-one-out predictions are right for all rows of the fit with their own "
                "y_variance and sample_weight"
            )
        return
    for name in sorted(wanted - names):
        raise InputError(f"the model was fitted with {name}: give {name}= of these rows as well")
    for name in sorted(names - wanted):
        raise InputError(
            f"the model was fitted without {name}: leave it out, {name}=False where the store of "
            "y has it"
        )


def _checksum(X: np.ndarray, y: np.ndarray, columns: Columns, p: int, each: bool) -> np.ndarray:
    """Return the number (1, 2) of complete rows, or of values of joint targets; their checksum."""
    X, y = reading.unmasked(X), _measured(y, p)
    inputs = columns.inputs(X)
    if each:
        known = np.isfinite(inputs).all(axis=1)[:, None] & ~np.isnan(y[:, :p])
        sums = (sampling.checksum_of_target(X[k], y[k], p, j) for j, k in enumerate(known.T))
        return np.array([[known.sum(), sum(sums) % 2**64]], np.uint64)
    kept = complete_rows(inputs, y) & ~np.isinf(inputs).any(axis=1)
    return np.array([[kept.sum(), sampling.checksum(X[kept], y[kept], p)]], np.uint64)


def _refuse_other_rows(sums: np.ndarray, known: KnownRows) -> None:
    """Raise InputError for the number and checksum of rows that are not those of the fit."""
    count, checksum = (int(number) for number in sums)
    if (count, checksum) == (known.number, known.checksum):
        return
    seen = f"{counted(count)} of {known.number}" if count != known.number else "other rows"
    raise InputError(
        f"the rows are not those of the fit ({seen}): this method keeps sums over its rows alone, "
        "so give all of them, as they were given to fit, or take daskgp.cross_validate"
    )


def _measured(y: np.ndarray, p: int) -> np.ndarray:
    """Return y (n, p + 2) without the targets of rows of weight 0, which no fit takes."""
    if y.shape[1] == p or (y[:, p] != 0).all():
        return y
    return np.where(y[:, [p]] == 0, np.nan, y)


def _columns(name: str, values: Any, n: int, posterior: Posterior) -> Any:
    """Return y (n, p), errors or weights (n, 1), or errors (n, p), in memory or of dask."""
    values = reading.from_zarr(values) if data.is_zarr(values) else reading.lazily(values)
    what = GIVEN.get(name, name)
    values = values if isinstance(values, da.Array) else reading.unmasked(values, what)
    of_each = name == "y" or (name == Y_VARIANCE and posterior.joint)
    width = posterior.n_targets if of_each else 1
    reading.check_kind(what, values)
    if not values.ndim:
        return np.full((n, 1), float(values))
    if values.shape not in ((n, width), (n,)[: 1 + (width > 1)]):
        raise InputError(f"{what} has shape {values.shape} for {n} rows: {(n, width)} is needed")
    return values.reshape(n, width) if values.ndim == 1 else values


def _in_memory(
    posterior: Posterior, whole: KnownRows | None, X: np.ndarray, y: np.ndarray
) -> tuple[Any, Any]:
    if whole is not None:
        told = posterior.columns, posterior.n_targets, posterior.joint
        _refuse_other_rows(_checksum(X, y, *told)[0], whole)
    order = posterior.grouped(X)
    order = np.arange(len(X)) if order is None else order
    rows, columns = (da.from_array(a[order], chunks=(TILE_ROWS, -1)) for a in (X, y))
    with single_blas_thread():
        parts = dask.compute(*_lazily(posterior, rows, columns, False, None), scheduler="threads")
    back = np.argsort(order)
    return parts[0][back], parts[1][back]


def _lazily(
    posterior: Posterior, X: da.Array, y: da.Array, travels: bool, passed: Any
) -> tuple[Any, Any]:
    task: Any = _block
    both = X.map_blocks(
        task,
        y,
        lazy.posterior_node(posterior, travels),
        passed,
        chunks=(X.chunks[0], (2 * posterior.n_targets,)),
        dtype=np.float64,
        meta=np.empty((0, 0)),
    )
    return lazy.split(both, posterior, "std")


def _block(X: Any, y: np.ndarray, node: Node, passed: None) -> np.ndarray:
    posterior = opened(node)  # ``passed`` is there once all rows have been looked at
    y = _measured(y, posterior.n_targets)
    with single_blas_thread():
        found = posterior.outer(True).moments(leave_one_out(posterior, reading.unmasked(X), y))
    return np.concatenate([found.mean, np.sqrt(np.asarray(found.variance))], axis=1)
