"""Readers of labelled grids, whose points are the rows of a table."""

import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import dask
import numpy as np
import xarray as xr

from daskgp.data import crs, feature_units, grids
from daskgp.data.convert.table import (
    NUMBERS,
    REMEDY,
    TIMES,
    Kind,
    Names,
    Other,
    Table,
    check_known,
    kind_of,
    reading,
    refusing,
)
from daskgp.data.gridded import masks_zeros, open_grid, refuse_float_mask, zarr_grid
from daskgp.data.reading import CLASSES
from daskgp.data.stores import groups
from daskgp.data.valid import warn_of_packed
from daskgp.errors import InputError

TILE_ROWS = 2**20
"""Points of a grid read in one go, so that a chunk of the source is seldom decoded twice."""


@contextmanager
def grid_file(source: str, targets: Names) -> Iterator[Table]:
    """Yield the table of the points of the grid in a netCDF file or a Zarr group."""
    with open_grid(source) as grid:
        groups.refuse_model(source, grid.attrs)
        yield grid_table(grid, targets, source)


@contextmanager
def stored_grid(store: Any, group: str, targets: Names, source: str) -> Iterator[Table]:
    """Yield the table of the grid in a group of a store of zarr-python."""
    with zarr_grid(store, group=group or None) as grid:
        yield grid_table(grid, targets, source)


@contextmanager
def combined_grids(
    files: Sequence[str], targets: Names, wanted: Names, source: str
) -> Iterator[Table]:
    """Yield the table of the grid that files are parts of, combined by their coordinates.

    As by ``xarray.open_mfdataset``: parts may lie beside one another or hold different variables.
    ``wanted`` are the names asked for, none for all variables.  InputError names files that say
    different things of what they share.
    """
    with ExitStack() as stack:
        parts: dict[str, xr.Dataset] = {}
        known: list[str] = []
        firsts: dict[frozenset[Hashable], str] = {}
        said: dict[str, tuple[str, str]] = {}
        for file in files:
            with reading(file):
                grid = stack.enter_context(open_grid(file, chunks={}))
            known += [str(name) for name in grid.data_vars if name not in known]
            others = [name for name in grid.data_vars if wanted and name not in wanted]
            parts[file] = grid.drop_vars(others)
            firsts.setdefault(frozenset(parts[file].data_vars), file)
            _compare_grids({first: parts[first] for first in firsts.values()}, file, parts[file])
            _compare_units(parts[file], file, wanted, said)
        check_known("target", targets, known, source)
        try:
            whole = xr.combine_by_coords(
                list(parts.values()),
                data_vars="minimal",
                coords="minimal",
                compat="override",
                join="exact",
                combine_attrs="override",
            )
        except ValueError as error:
            raise InputError(
                f"the grids of {source} do not fit together by their coordinates: "
                f"{groups.first_line(error)}: convert those that do"
            ) from error
        for dim, index in whole.indexes.items():
            if not index.is_unique:
                raise InputError(
                    f"the grids of {source} overlap: coordinate {str(dim)!r} has "
                    f"{index[index.duplicated()][0]} more than once: convert those that do not"
                )
        for name in wanted:
            _compare_values(grids.as_dataset(whole), name, parts)
        yield grid_table(grids.as_dataset(whole), targets, source)


def _compare_grids(parts: Mapping[str, xr.Dataset], file: str, grid: xr.Dataset) -> None:
    """Raise InputError for a grid that has some of the variables of a part, or other types."""
    names = {str(name) for name in grid.data_vars}
    for other, part in parts.items():
        beside = {str(name) for name in part.data_vars}
        if names != beside and (names & beside or not names or not beside):
            raise InputError(
                f"{file} has {_listed(names)} of the variables to read, {other} "
                f"{_listed(beside)}: correct it or leave the file out"
            )
        for name in {*grid.variables} & {*part.variables}:
            types = [one[name].dtype for one in (grid, part)]
            kinds = [kind for kind in map(kind_of, types) if isinstance(kind, str)]
            if len(kinds) == 1 or len(set(kinds)) == 2:
                raise InputError(
                    f"column {str(name)!r} of {file} has type {types[0]}, in {other} {types[1]}: "
                    "correct it or leave the file out"
                )


def _compare_units(
    grid: xr.Dataset, file: str, wanted: Names, said: dict[str, tuple[str, str]]
) -> None:
    """Raise InputError for a variable with another unit than the first file said, which is kept."""
    for name in (*wanted, *map(str, grid.dims)):
        own = grids.unit_of(grid[name]) if name in grid.variables else ""
        first, other = said.setdefault(name, (file, own)) if own else ("", "")
        try:
            same = feature_units.conversion(own, other) is None
        except ValueError:
            same = False
        if not same:
            raise InputError(
                f"variable {name!r} is in {own!r} in {file}, in {other!r} in {first}: convert it, "
                "or correct the stated unit"
            )


def _compare_values(whole: xr.Dataset, name: str, parts: Mapping[str, xr.Dataset]) -> None:
    """Raise InputError if files differ in a variable of which the whole has the first one's."""
    sizes: dict[Hashable, int] = dict(whole.sizes)
    having = {file: part for file, part in parts.items() if name in part.variables}
    for file, part in having.items():
        own = part[name]
        lacks = [dim for dim, n in part.sizes.items() if sizes[dim] != n and dim not in own.dims]
        if name in part.indexes or (name in part.data_vars and not lacks):
            continue
        there = whole[name].sel({dim: part[dim] for dim in own.dims if dim in part.indexes})
        with dask.config.set(scheduler="threads"):
            same = there.variable.equals(own.variable)
        if not same:
            needed = f" and not the dimension {lacks[0]}" if lacks else ""
            raise InputError(
                f"variable {name!r} has other values in {file} than in {next(iter(having))}"
                f"{needed}: correct it or leave it out"
            )


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def grid_table(grid: xr.Dataset, targets: Names, source: str) -> Table:
    """Return the table of the points of a labelled grid, whose lazy parts threads compute."""
    check_known("target", targets, [str(name) for name in grid.data_vars], source)
    dims = grid[targets[0]].dims if targets else grids.dims_of(grid)
    for target in targets:
        if set(grid[target].dims) != set(dims) or not dims:
            raise InputError(
                f"target {target!r} of {source} lies on {grid[target].dims} but "
                f"{targets[0]!r} on {dims}: targets must share one grid"
            )
    columns = tuple(
        str(name)
        for name, v in grid.variables.items()
        if set(v.dims) <= set(dims) and not crs.says_one(v.ndim, v.attrs)
    )
    defaults = tuple(str(dim) for dim in dims if dim in grid.coords)
    twisted = () if defaults else grids.curvilinear(grid)
    listing = f"{', '.join(twisted)}, coordinates of two or more dimensions" if twisted else ""

    def kinds(names: Names) -> dict[str, str]:
        warn_of_packed({name: grid[name] for name in names})
        found = {name: _grid_kind(grid, name, source, targets) for name in names}
        return refusing(source, found, targets)(names)

    def blocks(names: Mapping[str, Kind], rows: int) -> Iterator[np.ndarray]:
        own = {dim for name in (*targets, *names) for dim in grid[name].dims}
        sizes = {dim: grid.sizes[dim] for dim in dims if dim in own}
        widest = grid[max((*targets, *names), key=lambda name: grid[name].ndim)]
        lazy = {dim: max(sizes, default=1) for dim, sizes in widest.chunksizes.items()}
        chunks = widest.encoding.get("preferred_chunks", {}) or lazy
        for tile in _tiles(sizes, chunks, max(rows, TILE_ROWS)):
            with dask.config.set(scheduler="threads"):
                block = _points(grid, names, tile)
            yield block

    measured = {name: grids.measured(grid[name].variable) for name in columns}
    how: dict[str, Any] = {
        "bare": grids.without_coordinates(grid, dims),
        "attributes": {
            name: {**own.attrs, **feature_units.attributes_of(grids.unit_of(own))}
            for name, own in ((name, grid[name]) for name in columns)
        },
        "valid": {name: own for name, own in measured.items() if own is not None},
        "zeros": tuple(name for name in columns if masks_zeros(grid[name])),
        "rows": math.prod(grid.sizes[dim] for dim in dims) if targets else None,
        "reference": crs.carried(grids.reference_of(grid)[1]),
        "check_mask": lambda name: refuse_float_mask(grid[name], source),
    }
    return Table(columns, targets, defaults, kinds, blocks, True, listing=listing, **how)


def _grid_kind(grid: xr.Dataset, name: str, source: str, targets: Names) -> str | Other:
    """Return the kind of a variable of a grid; InputError says what objects it holds."""
    if grid[name].dtype.kind != "O":
        return kind_of(grid[name].dtype)
    remedy = CLASSES if name in targets else REMEDY
    dates = grids.holds_dates(grid[name], f"column {name!r} of {source}", remedy)
    return TIMES if dates else NUMBERS


Tile: TypeAlias = dict[Hashable, slice]


def _tiles(sizes: Mapping[Any, int], chunks: Mapping[Any, int], rows: int) -> Iterator[Tile]:
    """Cut a grid into boxes of at most ``rows`` points, along whole chunks where these fit.

    The last dimensions, which are contiguous on disk, are taken whole first.
    """
    shape = {dim: max(1, min(chunks.get(dim, 1), size)) for dim, size in sizes.items()}
    for dim in sizes:  # a chunk that is too large is cut along its first dimensions
        excess = math.ceil(math.prod(shape.values()) / rows)
        shape[dim] = max(1, shape[dim] // excess)
    for dim in reversed(list(sizes)):
        shape[dim] = min(max(1, sizes[dim]), shape[dim] * (rows // math.prod(shape.values())))
    cuts = [range(0, size, shape[dim]) for dim, size in sizes.items()]
    for corner in itertools.product(*cuts):
        yield {
            dim: slice(start, start + shape[dim]) for dim, start in zip(sizes, corner, strict=True)
        }


def _points(grid: xr.Dataset, names: Iterable[str], tile: Tile) -> np.ndarray:
    """Return rows of the named variables at the points of a tile, in C order; times as days."""
    axes = {dim: axis for axis, dim in enumerate(tile)}
    parts, places = [], []
    for name in names:
        variable = grid[name].variable
        variable = variable.transpose(*(dim for dim in tile if dim in variable.dims))
        parts.append(variable.isel({dim: tile[dim] for dim in variable.dims}).values)
        places.append(tuple(axes[dim] for dim in variable.dims))
    columns = grids._columns(parts, tuple(places), len(tile))
    return np.stack([column.ravel() for column in columns], axis=1)
