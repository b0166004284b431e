"""Tables and labelled grids in other formats as dataset stores, streamed block by block.

Blocks of rows from a source are written as whole chunks of a dataset store, so memory holds a
few blocks whatever the length of the source (for npz, which cannot be read in part, the arrays
asked for).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from daskgp import data
from daskgp.checks import shown
from daskgp.data.convert import layout, sources
from daskgp.data.convert.layout import Layout
from daskgp.data.convert.sources import Source
from daskgp.data.convert.tables import TIMES, Names, Table, check_known
from daskgp.data.stores import groups, locks, remote
from daskgp.data.writers import dataset_appender
from daskgp.errors import InputError, SettingError, StoreError

__all__ = ["Conversion", "convert"]

Options = Mapping[str, Any]


class Conversion(NamedTuple):
    """Result of `convert`: rows written, grid points left out, and the names of the columns."""

    rows: int
    skipped: int
    features: Names
    targets: Names


def convert(
    source: Source,
    destination: str,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    block_rows: int | None = None,
    *,
    append: bool = False,
    like: str | None = None,
    storage_options: Options | None = None,
    destination_options: Options | None = None,
    wait: float = 0.0,
    clear_lock: bool = False,
) -> Conversion:
    """Convert tables or grids to a dataset store.

    Parameters
    ----------
    source : str, path, sequence of them, or object with labelled columns
        A local path or fsspec URL ending in ``.csv`` (also compressed, ``.csv.gz``),
        ``.parquet``, ``.npz``, ``.nc`` or ``.zarr``; a pattern such as ``"2024/*.csv"``, a folder
        of such files, or several of these. An npz holds ``X`` (n, d) and ``y``, whose
        columns are then named x0, x1, ..., another matrix, or one-dimensional columns.
        netCDF and Zarr hold grids with named dimensions. Files of a pattern or folder are read in
        the sorted order of their names, and have the same columns; grids are combined by their
        coordinates, as by ``xarray.open_mfdataset``. In memory: data frames of pandas, Polars and
        Dask (partition by partition), Arrow tables and streams, xarray objects, and the grid in a
        store of zarr-python or an Icechunk session.
    destination : str or path
        The dataset store to write: a local path or fsspec URL where nothing exists yet.
    target : str or sequence of str, optional
        Column or grid variable to predict; several become several outputs. Without one the
        store holds ``X`` alone: places to predict at, where the target is not known.
    features : str or sequence of str, optional
        Columns of X in this order. By default all other columns of a table, ``X`` or the
        only matrix of an npz that has one, and the coordinates of the target's dimensions of
        a grid (without a target, of all its dimensions). A grid offers its coordinates
        and all variables along dimensions of the target. Times become days since 1970-01-01
        (UTC), fractions included, which the store says in its attribute ``feature_units``.
    block_rows : int, optional
        Rows per chunk of the store, 65,536 by default.
    append : bool
        Add the rows to the dataset store that is at the destination. Its features, targets and
        units of times are taken. The rows appear all at once: nobody reads the store until then,
        a failure leaves it as it was, and after a kill the same call begins again where the old
        rows end.
    like : str or path, optional
        A dataset store whose features and units of times are taken, such as that of the training
        rows for places to predict at.
    storage_options : mapping, optional
        Options of the remote file systems of source and destination, as of fsspec:
        ``{"anon": True}`` reads public buckets of S3.
    destination_options : mapping, optional
        Options of the destination in the place of ``storage_options``.
    wait : float
        Seconds to wait for another run that appends to the store.
    clear_lock : bool
        Take over the lock that a dead run left on another host; that of a live one stays.

    Returns
    -------
    Conversion
        ``rows`` written, grid points ``skipped`` because no target is known there, ``features``
        and ``targets``. Rows of a table are all kept; `fit` drops those that hold NaN.

    Raises
    ------
    InputError
        If the source is missing, damaged or has no rows, a file has other columns or types than
        those before it, a column is unknown or holds text, or a target is among the features;
        StoreError if the destination exists or cannot be written; RunError if another run
        appends to it. Nothing is left at the destination then.
    """
    destination = str(destination)
    asked = _Asked(source, _distinct("target", target), _distinct("features", features))
    with remote.given(_places(asked, destination, storage_options, destination_options)):
        if append:
            _refuse_idle("append", block_rows=block_rows, like=like)
            with locks.hold(destination, wait, clear_lock, resume=True) as claim:
                return _append(asked, destination, claim)
        _refuse_idle("a new dataset", wait=wait, clear_lock=clear_lock)
        kept = None if like is None else layout.layout_of(str(like))
        step = data.DEFAULT_BLOCK_ROWS if block_rows is None else block_rows
        groups.refuse_existing(destination, "dataset")
        with _planned(asked, kept, str(like)) as plan:
            names, said = plan.layout[:2], plan.layout.attributes()
            with data.dataset_writer(destination, *names, step, attributes=said) as writer:
                return plan.copy(step, writer)


class _Asked(NamedTuple):
    """Source of a conversion and the columns that its caller names."""

    source: Source
    targets: Names
    features: Names


def _append(asked: _Asked, destination: str, claim: locks.Claim) -> Conversion:
    """Add rows to the dataset store at a URL, whose lock is held."""
    kept = layout.layout_of(destination)
    more = sorted(groups.names_in(destination) - {"X", "y"})
    if more:
        raise StoreError(
            f"no rows can be added to the dataset {destination}, which also has {', '.join(more)}: "
            "add them to the store that it was made from, or make it anew of all rows"
        )
    named = asked._replace(targets=asked.targets or kept.targets)
    with _planned(named, kept, destination) as plan:
        layout.check_names(plan.layout, kept, destination, "append the same columns")
        with dataset_appender(destination, claim) as writer:
            return plan.copy(data.DEFAULT_BLOCK_ROWS, writer)


@contextmanager
def _planned(asked: _Asked, kept: Layout | None, url: str) -> Iterator[_Plan]:
    """Open a source and check its columns, before anything is written.

    ``kept`` is the layout of the store at ``url``, whose features and units are taken.
    """
    features, what = asked.features or (kept.features if kept else ()), sources.shown(asked.source)
    with sources.open_table(asked.source, asked.targets, features) as table:
        chosen = _features(table, features, what)
        kinds = table.kinds((*chosen, *table.targets))
        units = {n: layout.DAYS if kinds[n] == TIMES else table.units.get(n, "") for n in kinds}
        if kept is not None:
            units = layout.match_units(units, kinds, kept, table.gridded, url)
        yield _Plan(table, Layout(chosen, table.targets, units, True), kinds, what)


class _Plan(NamedTuple):
    """Open table and what is to be written of it."""

    table: Table
    layout: Layout
    kinds: dict[str, str]
    source: str

    def copy(self, step: int, writer: data.DatasetWriter) -> Conversion:
        """Write all rows; InputError if there are none."""
        table, d = self.table, len(self.layout.features)
        shift, factor = layout.clocks(self.kinds, self.layout.units)
        rows = skipped = 0
        for block in table.read(self.kinds, step, self.source):
            block -= shift
            block *= factor
            X, y = block[:, :d], block[:, d:]
            unknown = np.isnan(y).all(axis=1) if table.gridded and table.targets else None
            if unknown is not None and unknown.any():
                skipped += int(np.count_nonzero(unknown))
                X, y = X[~unknown], y[~unknown]
            writer.append(X, y if table.targets else None)
            rows += len(X)
        if rows == 0:
            why = f"all {skipped} points of the target are NaN" if skipped else "it is empty"
            raise InputError(f"{self.source} has no rows to convert: {why}; choose another source")
        return Conversion(rows, skipped, *self.layout[:2])


def _places(
    asked: _Asked, destination: str, options: Options | None, own: Options | None
) -> dict[str, Options]:
    """Return the options of file systems by the beginnings of the addresses that they are for."""
    addresses = {re.split(r"[*?\[]", one)[0]: options for one in sources.addresses(asked.source)}
    addresses[destination] = options if own is None else own
    settings: tuple[tuple[str, Any, Iterable[str]], ...] = (
        ("storage_options", options, addresses),
        ("destination_options", own, (destination,)),
    )
    for name, given, places in settings:
        if given is not None and not isinstance(given, Mapping):
            example = "a mapping is needed, such as {'anon': True}"
            raise SettingError(f"{name}={shown(given)}: {example}")
        if given and not any(map(remote.is_remote, places)):
            raise SettingError(f"{name} has no effect: no address is one of a remote file system")
    return {place: given for place, given in addresses.items() if given and remote.is_remote(place)}


def _refuse_idle(what: str, **settings: Any) -> None:
    for name, value in settings.items():
        if value:
            raise SettingError(f"{name}={shown(value)} has no effect with {what}: leave it out")


def _distinct(what: str, choice: str | Sequence[str] | None) -> Names:
    if choice is None:
        return ()
    names = (choice,) if isinstance(choice, str) else tuple(str(name) for name in choice)
    if not all(names) or not names or len(set(names)) < len(names):
        raise InputError(f"{what} is {shown(', '.join(names))}: give one or more different names")
    return names


def _features(table: Table, named: Names, source: str) -> Names:
    if not named:
        names = tuple(name for name in table.defaults if name not in table.targets)
        if not names:
            beside = f" beside the target {', '.join(table.targets)}" if table.targets else ""
            raise InputError(
                f"{source} offers no features{beside}: name some of "
                f"{table.listing or ', '.join(table.columns) or 'its columns'}"
            )
        return names
    names = tuple(column for name in named for column in table.matrices.get(name, (name,)))
    check_known("feature", names, table.columns, source)
    both = [name for name in names if name in table.targets]
    if both:
        raise InputError(f"{both[0]!r} is the target and among the features: leave one out")
    return names
