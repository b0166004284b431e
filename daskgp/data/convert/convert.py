"""Tables and grids in other formats as dataset stores, streamed block by block.

Blocks of rows from a source are written as whole chunks of a dataset store, so memory holds a
few blocks whatever the length of the source (for npz, which cannot be read in part, the arrays
asked for).
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from daskgp import data
from daskgp.checks import shown
from daskgp.data.convert.tables import Names, Table, check_known, open_table
from daskgp.data.rows import UNITS
from daskgp.data.stores import groups
from daskgp.errors import InputError

__all__ = ["Conversion", "convert"]


class Conversion(NamedTuple):
    """Result of `convert`: rows written, grid points left out, and the names of the columns."""

    rows: int
    skipped: int
    features: Names
    targets: Names


def convert(
    source: str,
    destination: str,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    block_rows: int | None = None,
) -> Conversion:
    """Convert a table or a grid to a dataset store.

    Parameters
    ----------
    source : str or path
        A local path or fsspec URL ending in ``.csv`` (also compressed, ``.csv.gz``),
        ``.parquet``, ``.npz``, ``.nc`` or ``.zarr``. An npz holds ``X`` (n, d) and ``y``, whose
        columns are then named x0, x1, ..., another matrix, or one-dimensional columns.
        netCDF and Zarr hold grids with named dimensions.
    destination : str or path
        The dataset store to write: a local path or fsspec URL where nothing exists yet.
    target : str or sequence of str, optional
        Column or grid variable to predict; several become several outputs. Without one the
        store holds ``X`` alone: places to predict at, where the target is not known.
    features : str or sequence of str, optional
        Columns of X in this order. By default all other columns of a table, ``X`` or the
        only matrix of an npz that has one, and the coordinates of the target's dimensions of
        a grid (without a target, of all its dimensions). A grid offers its coordinates
        and all variables along dimensions of the target; times become days since 1970.
    block_rows : int, optional
        Rows per chunk of the store, 65,536 by default.

    Returns
    -------
    Conversion
        ``rows`` written, grid points ``skipped`` because no target is known there, ``features``
        and ``targets``. Rows of a table are all kept; `fit` drops those that hold NaN.

    Raises
    ------
    InputError
        If the source is missing, damaged or has no rows, a column is unknown or not numeric, or
        a target is among the features; StoreError if the destination exists or cannot be written.
        Nothing is left at the destination then.
    """
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"source is a {type(source).__name__}: give the path or URL of a table or a grid; "
            "arrays are fitted as they are, or written by np.savez(path, X=X, y=y)"
        )
    source, destination = str(source), str(destination)
    targets = () if target is None else _distinct("target", target)
    step = data.DEFAULT_BLOCK_ROWS if block_rows is None else block_rows
    groups.refuse_existing(destination, "dataset")
    with open_table(source, targets) as table:
        chosen = _features(table, features, source)
        said = {UNITS: list(table.units)} if table.units else {}
        with data.dataset_writer(
            destination, chosen, table.targets, step, attributes=said
        ) as writer:
            rows = skipped = 0
            for block in table.read((*chosen, *table.targets), step, source):
                X, y = block[:, : len(chosen)], block[:, len(chosen) :]
                if table.gridded and table.targets:
                    known = ~np.isnan(y).all(axis=1)
                    skipped += int(np.count_nonzero(~known))
                    X, y = X[known], y[known]
                writer.append(X, y if table.targets else None)
                rows += len(X)
            if rows == 0:
                why = f"all {skipped} points of the target are NaN" if skipped else "it is empty"
                raise InputError(f"{source} has no rows to convert: {why}; choose another source")
    return Conversion(rows, skipped, chosen, table.targets)


def _distinct(what: str, choice: str | Sequence[str]) -> Names:
    names = (choice,) if isinstance(choice, str) else tuple(str(name) for name in choice)
    if not all(names) or not names or len(set(names)) < len(names):
        raise InputError(f"{what} is {shown(', '.join(names))}: give one or more different names")
    return names


def _features(table: Table, choice: str | Sequence[str] | None, source: str) -> Names:
    if choice is None:
        names = tuple(name for name in table.defaults if name not in table.targets)
        if not names:
            beside = f" beside the target {', '.join(table.targets)}" if table.targets else ""
            raise InputError(
                f"{source} offers no features{beside}: name some of "
                f"{table.listing or ', '.join(table.columns) or 'its columns'}"
            )
        return names
    named = _distinct("features", choice)
    names = tuple(column for name in named for column in table.matrices.get(name, (name,)))
    check_known("feature", names, table.columns, source)
    both = [name for name in names if name in table.targets]
    if both:
        raise InputError(f"{both[0]!r} is the target and among the features: leave one out")
    return names
