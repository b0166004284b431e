"""Leave-one-out predictions of training rows, from the fit to all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
from dask import delayed

from daskgp import data
from daskgp.arrays import backend
from daskgp.checks import rows as counted
from daskgp.data import grids, named_targets, reading
from daskgp.data.blocks import filling, sampling
from daskgp.data.rows import ARGUMENTS, COLUMNS, GIVEN, WEIGHT, Y_VARIANCE, Beside, with_columns
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.fit import joint, sites
from daskgp.models import leave_one_out as leaving
from daskgp.models import repeats
from daskgp.models.columns import Columns
from daskgp.models.scaling import complete_rows, usable_rows
from daskgp.models.values import TILE_ROWS, Block, Moments, move, variances
from daskgp.posterior import kept_sites
from daskgp.posterior.neighbour_rows import Local, Nearby
from daskgp.posterior.posterior import Posterior
from daskgp.predict import lazy
from daskgp.predict.stored import Node, opened
from daskgp.runtime import device_memory
from daskgp.runtime.process import single_blas_thread

logger: logging.Logger = logging.getLogger("daskgp")


class _Layout(NamedTuple):
    """Columns of X and y of rows: those that inputs have, targets, and ``beside`` them at the end.

    Joint targets are rows of ``each`` of them.
    """

    inputs: Columns
    targets: int
    each: bool
    beside: tuple[str, ...] = ()

    def split(self, y: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return y (n, p) with noise, if there is any, and numbers (n,) beside it."""
        end = y.shape[1] - len(self.beside)
        return y[:, :end], dict(zip(self.beside, y[:, end:].T, strict=True))

    def measured(self, y: np.ndarray) -> np.ndarray:
        """Return y as ``Rows.raw`` does, without the targets of rows of weight 0."""
        given, beside = self.split(y)
        p = self.targets
        if given.shape[1] > p and not (given[:, p] != 0).all():
            given = np.where(given[:, [p]] == 0, np.nan, given)
        return with_columns(given, beside)


class KnownRows(NamedTuple):
    """Identity of the rows of a fit: their number, arguments beside X and y, and checksum.

    ``changed`` tells whether rows were added or taken out later, ``by_values`` whether the checksum
    is that of values of joint targets.
    """

    number: int
    given: frozenset[str]
    checksum: int
    changed: bool = False
    by_values: bool = False

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
        given = frozenset(name for note in notes for name in note["given"])
        by_values = all("values" in note for note in notes)
        return cls(number, given, total, len(notes) > 1, by_values)


def leave_one_out(
    posterior: Posterior, X: np.ndarray, y: np.ndarray, beside: Beside | None = None
) -> Moments:
    """Return means and variances (n, p) of training rows as new observations, each without itself.

    They are those of the transformed y where targets are, and of f where sites stand for another
    likelihood; NaN for rows with missing values.

    Parameters
    ----------
    posterior : Posterior
    X : ndarray (n, d)
        In the user's units.
    y : ndarray (n, p) or (n, p + 2), or (n, 2 p + 1) of joint targets
        As ``Rows.read`` returns it, or as ``Rows.raw`` does.
    beside : mapping, optional
        Numbers (n,) that a likelihood takes.
    """
    if posterior.each:
        return _of_each(posterior, X, y)
    if posterior.joint:
        return _of_joint(posterior, X, y)
    if posterior.by_sites:
        return _of_sites(posterior, X, y[:, : y.shape[1] - len(beside or {})], beside or {})
    return _of_gaussian(posterior, X, y)


def _of_gaussian(posterior: Posterior, X: np.ndarray, y: np.ndarray) -> Moments:
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
    scaled = np.asarray(block.X, np.float64)
    found = posterior.of_left_out(found, X[keep], scaled, block.noise)
    mean, variance = np.full((2, len(keep), posterior.n_targets), np.nan)
    mean[keep], variance[keep] = found.mean, found.variance
    return Moments(mean, variance)


def noise_of(posterior: Posterior, y: np.ndarray) -> np.ndarray | None:
    """Return ``Block.noise`` (n, 2) of rows that y (n, p + 2) tells after all targets, if any."""
    return posterior.scaling.noise(*y[:, -2:].T) if y.shape[1] > posterior.n_targets else None


def _of_each(posterior: Posterior, X: np.ndarray, y: np.ndarray) -> Moments:
    """Return predictions of separate targets, each by the model of its own rows."""
    p, found = posterior.n_targets, []
    for j, one in enumerate(posterior.each):
        noise = [p, min(p + 1 + j, y.shape[1] - 1)] if y.shape[1] > p else []
        found.append(leave_one_out(one, X, y[:, [j, *noise]]))
    mean, variance = (
        np.hstack(parts) for parts in zip(*((own.mean, own.variance) for own in found), strict=True)
    )
    return Moments(mean, variance)


def _of_joint(posterior: Posterior, X: np.ndarray, y: np.ndarray) -> Moments:
    """Return predictions of each value of joint targets from all others, also of its row."""
    n, p = len(X), posterior.n_targets
    inputs = np.asarray(posterior.columns.inputs(X), np.float64)
    y = np.concatenate([posterior.unpredicted(X, y[:, :p]), y[:, p:]], axis=1)
    found = leave_one_out(*joint.each_of(posterior, X, y))
    of_each = Moments(found.mean.reshape(n, p), np.asarray(found.variance).reshape(n, p))
    return posterior.of_left_out(of_each, X, posterior.scaling.inputs(inputs))


def _of_sites(posterior: Posterior, X: np.ndarray, y: np.ndarray, beside: Beside) -> Moments:
    """Return the Gaussian of f at each row without its site, by which others stay as they are.

    The site is the one that is kept with the row.  A posterior that keeps none is that of a fit
    whose turns have settled, so that the site follows from f at the row.
    """
    likelihood, unit = posterior.likelihood, posterior.latent_unit
    assert likelihood is not None
    keep = complete_rows(np.asarray(posterior.columns.inputs(X), np.float64), y)
    X, y, w = X[keep], y[keep], y[keep, 1] if y.shape[1] > 1 else None
    of_rows = likelihood.with_columns({name: a[keep] / unit for name, a in beside.items()})
    at_rows = replace(posterior, method=posterior.method.at_own_rows())
    q = at_rows.moments(X, "variance", gaussian=True)
    mean, variance = q.mean / unit, np.asarray(q.variance)[:, 0] / unit**2
    expected = of_rows.expected(y[:, :1] / unit, mean, variance)
    natural = sites.natural(expected, mean, w)
    if posterior.nearby is None:
        found = sites.sited(np.ones(len(y), bool), *natural, unit)
    else:
        inputs, first = posterior.columns.inputs(X), natural[0] / unit
        t, v, known = kept_sites.of_rows(posterior.nearby, inputs, first)
        found = t, v
        leaving.refuse_unknown(np.where(known, 0, -1))
    noise = (found[1] + sites.NO_NOISE * unit**2)[:, None]
    if posterior.method.tells_rows:  # these may look for their rows by sites that are not known
        whole = at_rows if at_rows.method == posterior.method else posterior
        q = q if whole is at_rows else whole.moments(X, "variance", gaussian=True)
        left = leaving.without(found[0][:, None], q.mean, np.asarray(q.variance)[:, 0], noise[:, 0])
        left = left._replace(variance=np.asarray(left.variance)[:, None])
    else:
        given = np.column_stack([found[0], np.ones(len(y)), found[1]])
        left = _of_gaussian(posterior, X, given)
    result = np.full((2, len(keep), 1), np.nan)
    result[:, keep] = left.mean, np.maximum(np.asarray(left.variance) - noise, 0.0)
    return Moments(*result)


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
    return posterior.method


def _joined(tiles: list[Moments]) -> Moments:
    mean = np.concatenate([tile.mean for tile in tiles])
    return Moments(mean, np.concatenate([np.asarray(tile.variance) for tile in tiles]))


# -- of any kind of rows ---------------------------------------------------------------------


def left_out(
    posterior: Posterior, known: KnownRows | None, X: Any, y: Any, beside: Beside
) -> tuple[Any, Any]:
    """Return mean and standard deviation of training rows, each without itself.

    NumPy in, NumPy out; lazy rows give dask arrays with their chunks, and nothing is computed.
    ``known`` tells the rows of the fit; None for a store of an earlier version.  ``beside`` is what
    rows have beside y.
    """
    _looing(posterior)
    given = {name: a for name, a in beside.items() if a is not None}
    reading.refuse_other_order(X, y=y, **{ARGUMENTS[name]: a for name, a in given.items()})
    names = [*GIVEN, *(COLUMNS if posterior.by_sites else ())]
    y, given = named_targets.by_name(y, given, posterior.target_names)
    noise = data.beside_in_store(y, names) | given
    noise = {name: noise[name] for name in names if noise.get(name, False) is not False}
    _refuse_other_arguments(posterior, known, {ARGUMENTS[name] for name in noise})
    if grids.is_xarray(X) or grids.is_xarray(y):
        noise = {
            k: grids.training_arrays(X, grids.like(y, v, ARGUMENTS[k]))[1] for k, v in noise.items()
        }
        X, y, _ = grids.training_arrays(X, y)
    X = lazy.rows_for(posterior, X)
    own = {name: _columns(name, a, len(X), posterior) for name, a in {"y": y, **noise}.items()}
    one, none = np.ones((len(X), 1)), np.zeros((len(X), 1))
    parts = [filling.without(own["y"], posterior.fills[posterior.n_features :])]
    if own.keys() & GIVEN.keys():
        parts += [own.get(WEIGHT, one), own.get(Y_VARIANCE, none)]
    columns = tuple(name for name in COLUMNS if name in own)
    parts += [own[name] for name in columns]
    told = _Layout(posterior.columns, posterior.n_targets, posterior.joint, columns)
    whole = None if posterior.method.tells_rows and not posterior.by_sites else known
    if whole is not None:
        _refuse_untold(posterior, whole)
    if not any(isinstance(a, da.Array) for a in (X, *parts)):
        return _in_memory(posterior, whole, X, np.concatenate(parts, axis=1), told)
    X = da.asarray(X)
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    together = [da.asarray(a).rechunk((X.chunks[0], -1)) for a in parts]
    y = da.concatenate(together, axis=1).rechunk({1: -1})
    sums: Any = da.map_blocks(_checksum, X, y, told, chunks=(1, 2), dtype=np.uint64)
    passed = None if whole is None else delayed(_refuse_other_rows)(sums.sum(axis=0), whole)
    return _lazily(posterior, X, y, told, True, passed)


def _refuse_other_arguments(posterior: Posterior, known: KnownRows | None, names: set[str]) -> None:
    """Raise InputError if noise of the rows is given to a fit without, or the other way round."""
    if known is not None:
        wanted: frozenset[str] = known.given
    elif posterior.by_sites:
        raise SettingError(
            "this model was stored by an earlier version of daskgp, without a record of its rows: "
            "fit it again, or take daskgp.cross_validate"
        )
    elif posterior.nearby is not None:
        wanted = frozenset(GIVEN[name] for name in posterior.nearby.rows.arrays if name in GIVEN)
    else:
        if not posterior.method.tells_rows:
            logger.warning(
                "this model was stored by an earlier version of daskgp, without a record of "
                "its rows: leave-one-out predictions are right only if you give all rows of "
                "the fit with their own y_variance and sample_weight; fit it again to have "
                "this checked"
            )
        return
    for name in sorted(wanted - names):
        raise InputError(f"the model was fitted with {name}: give {name}= of these rows as well")
    for name in sorted(names - wanted):
        raise InputError(
            f"the model was fitted without {name}: leave it out, {name}=False where the store of "
            "y has it"
        )


def _refuse_untold(posterior: Posterior, known: KnownRows) -> None:
    """Raise an error for a model that lacks what leaving out one of all its rows needs."""
    if posterior.by_sites and posterior.nearby is None and known.changed:
        raise SettingError(
            f"no loo of {posterior.method.name} with another likelihood after update or forget: "
            "sites of earlier rows stay as they were, and it does not keep them; fit all rows "
            "again, or take daskgp.cross_validate"
        )
    if posterior.joint and not known.by_values:
        raise StoreError(
            "this model of joint targets was stored by an earlier version of daskgp, without a "
            "record of its values: fit it again, or take daskgp.cross_validate"
        )


def _checksum(X: np.ndarray, y: np.ndarray, told: _Layout) -> np.ndarray:
    """Return the number (1, 2) of complete rows, or of values of joint targets; their checksum."""
    X, y, p = reading.unmasked(X), told.measured(y), told.targets
    inputs = told.inputs.inputs(X)
    if told.each:
        known = np.isfinite(inputs).all(axis=1)[:, None] & ~np.isnan(y[:, :p])
        sums = (sampling.checksum_of_target(X[k], y[k], p, j) for j, k in enumerate(known.T))
        return np.array([[known.sum(), sum(sums) % 2**64]], np.uint64)
    kept = complete_rows(inputs, y[:, :p]) & ~np.isinf(inputs).any(axis=1)
    return np.array([[kept.sum(), sampling.checksum(X[kept], y[kept], p)]], np.uint64)


def _refuse_other_rows(sums: np.ndarray, known: KnownRows) -> None:
    """Raise InputError for the number and checksum of rows that are not those of the fit."""
    count, checksum = (int(number) for number in sums)
    if (count, checksum) == (known.number, known.checksum):
        return
    seen = f"{counted(count)} of {known.number}" if count != known.number else "other rows"
    raise InputError(
        f"the rows are not those of the fit ({seen}): this model cannot tell rows apart, so "
        "give all of them, as they were given to fit, or use daskgp.cross_validate"
    )


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
    posterior: Posterior, whole: KnownRows | None, X: np.ndarray, y: np.ndarray, told: _Layout
) -> tuple[Any, Any]:
    if whole is not None:
        _refuse_other_rows(_checksum(X, y, told)[0], whole)
    order = posterior.grouped(X)
    order = np.arange(len(X)) if order is None else order
    rows, columns = (da.from_array(a[order], chunks=(TILE_ROWS, -1)) for a in (X, y))
    with single_blas_thread():
        both = _lazily(posterior, rows, columns, told, False, None)
        parts = dask.compute(*both, scheduler="threads")
    back = np.argsort(order)
    return parts[0][back], parts[1][back]


def _lazily(
    posterior: Posterior, X: da.Array, y: da.Array, told: _Layout, travels: bool, passed: Any
) -> tuple[Any, Any]:
    task: Any = _block
    both = X.map_blocks(
        task,
        y,
        told,
        lazy.posterior_node(posterior, travels),
        passed,
        chunks=(X.chunks[0], (2 * posterior.n_targets,)),
        dtype=np.float64,
        meta=np.empty((0, 0)),
    )
    return lazy.split(both, posterior, "std")


def _block(X: Any, y: np.ndarray, told: _Layout, node: Node, passed: None) -> np.ndarray:
    posterior = opened(node)  # ``passed`` is there once all rows have been looked at
    y = told.measured(y)
    _, beside = told.split(y)
    with single_blas_thread():
        found = leave_one_out(posterior, reading.unmasked(X), y, beside)
        known = {name: np.where(np.isnan(values), 1.0, values) for name, values in beside.items()}
        outer = posterior.outer(True)
        found = (outer.of_rows(known) if known else outer).moments(found)
    return np.concatenate([found.mean, np.sqrt(np.asarray(found.variance))], axis=1)
