"""Sources in other formats, all in one form: named columns whose rows come in blocks.

The only door to pandas and pyarrow. Each reader is a context manager that opens a source, checks
that it has the targets and yields a `Table`; it closes the source on leaving.
"""

import csv
import io
import itertools
import math
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import fsspec
import numpy as np
import pandas as pd
import xarray as xr
from fsspec.implementations.local import LocalFileSystem

from daskgp.data import grids
from daskgp.data.reading import refuse_column
from daskgp.data.stores import groups, remote
from daskgp.errors import InputError

Names: TypeAlias = tuple[str, ...]

TILE_ROWS = 2**20
"""Points of a grid read in one go, so that a chunk of the source is seldom decoded twice."""

EARLIER = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
"""True for a pandas that rounds numbers of a csv and, at the start of a chunk, ignores fields
beyond the last of the header."""
EXACTLY: dict[str, Any] = {"float_precision": "round_trip"} if EARLIER else {}

REMEDY = "leave it out by naming the features to use"
TIMES = f"turn its times into numbers, such as seconds since an epoch, or {REMEDY}"

# Errors of the readers for files that are damaged or not of the format that their name says.
READ_ERRORS = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Table:
    """Columns of a source.

    ``blocks(names, rows)`` yields float64 arrays (r, len(names)) of about ``rows`` rows;
    ``defaults`` are the features if none are named (less the targets). ``gridded`` says that
    points without a target are to be left out; ``matrices`` are the columns of arrays that may be
    named as a whole, and ``listing`` describes the contents where they are more than the columns.
    ``units`` are those of the targets, empty where they are not known.
    """

    columns: Names
    targets: Names
    defaults: Names
    blocks: Callable[[Sequence[str], int], Iterator[np.ndarray]]
    gridded: bool = False
    matrices: Mapping[str, Names] = field(default_factory=dict)
    listing: str = ""
    units: Names = ()

    def read(self, names: Names, rows: int, source: str) -> Iterator[np.ndarray]:
        """Yield blocks of the columns; explain errors of reading, not those of the consumer."""
        blocks = self.blocks(names, rows)
        while True:
            with reading(source):
                block = next(blocks, None)
            if block is None:
                return
            yield block


@contextmanager
def open_table(source: str, targets: Names) -> Iterator[Table]:
    """Yield the table in a source, by the suffix of its name; InputError if it is unreadable."""
    with ExitStack() as stack:
        with reading(source):
            table = stack.enter_context(_reader(source)(source, targets))
        yield table


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Turn what readers raise for a damaged file into a one-line InputError."""
    try:
        yield
    except InputError:
        raise
    except ImportError as error:
        raise InputError(
            f"cannot read {source}: {groups.first_line(error)}; install what is missing, "
            "for example with: pip install 'daskgp[io,s3]'"
        ) from error
    except READ_ERRORS as error:
        raise InputError(
            f"cannot read {source}: {groups.first_line(error)}; "
            "check that the file is whole and of the format its name says"
        ) from error


def check_known(what: str, names: Names, there: Collection[str], source: str) -> None:
    """Raise InputError for the first name that is missing, with the list of those that exist."""
    for name in names:
        if name not in there:
            shown = ", ".join(list(there)[:20]) or "no columns"
            more = f" and {len(there) - 20} more" if len(there) > 20 else ""
            more += _other_separator(there)
            raise InputError(f"{what} {name!r} is not in {source}, which has {shown}{more}")


def _other_separator(columns: Collection[str]) -> str:
    """Return a remedy if a whole header was read as the name of one column, else nothing."""
    only = next(iter(columns)) if len(columns) == 1 else ""
    mark = next((mark for mark in ";\t|" if mark in only), None)
    return f": write the file with commas instead of {mark!r}" if mark else ""


def _check_grid(grid: xr.Dataset, name: str, source: str) -> None:
    """Raise InputError for a variable of a grid that holds neither numbers nor times."""
    kind = grid[name].dtype
    if kind.kind == "O":  # the message names the calendar of dates
        first = grid[name].isel({dim: slice(0, 1) for dim in grid[name].dims})
        what = f"column {name!r} of {source}"
        refuse_column(what, kind, lambda: first.values, REMEDY)
    _check_numeric(name, kind.kind in "fiubM", kind, source)


def _check_numeric(name: str, numeric: bool, kind: Any, source: str, remedy: str = REMEDY) -> None:
    if not numeric:
        raise InputError(f"column {name!r} of {source} has type {kind}, not numbers: {remedy}")


def _reader(source: str) -> Callable[[str, Names], AbstractContextManager[Table]]:
    fs, path = fsspec.core.url_to_fs(source)
    if not fs.exists(path):
        hint = remote.pattern_hint(source)
        raise InputError(f"source {source} does not exist: check the path{hint}")
    path = path.lower().rstrip("/")
    for suffix, reader in READERS.items():
        if path.endswith(suffix):
            return reader
    raise InputError(
        f"the format of {source} is not known by its name: it must end in one of "
        + ", ".join(READERS)
    )


@contextmanager
def _csv(source: str, targets: Names) -> Iterator[Table]:
    def opened() -> Any:
        return fsspec.open(source, "rb", compression="infer")

    with opened() as file:
        columns = tuple(str(name) for name in pd.read_csv(file, nrows=0).columns)
    check_known("target", targets, columns, source)

    def blocks(names: Sequence[str], rows: int) -> Iterator[np.ndarray]:
        if EARLIER:
            with opened() as file:
                _refuse_wide(file, len(columns), source)
        with opened() as file:
            # All columns are read: with usecols, pandas lets rows with too many fields pass.
            # low_memory would guess the type of a column piece by piece.
            for frame in pd.read_csv(file, chunksize=rows, low_memory=False, **EXACTLY):
                if not isinstance(frame.index, pd.RangeIndex):
                    raise InputError(
                        f"rows of {source} have more fields than its header has names: mend it"
                    )
                yield np.stack([_parsed(frame[name], source) for name in names], axis=1)

    yield Table(columns, targets, columns, blocks)


def _refuse_wide(file: Any, width: int, source: str) -> None:
    rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
    if any(len(row) > width for row in rows):
        raise InputError(
            f"rows of {source} have more fields than its header has names, the first in line "
            f"{rows.line_num}: mend it"
        )


def _parsed(column: Any, source: str) -> np.ndarray:
    values = pd.to_numeric(column, errors="coerce")
    bad = values.isna() & column.notna()
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        held = str(column.iloc[row])
        raise InputError(
            f"column {column.name!r} of {source} is not numeric, row {column.index[row] + 1} "
            f"holds {held!r}: {TIMES if _is_time(held) else REMEDY}"
        )
    return np.asarray(values, np.float64)


def _is_time(text: str) -> bool:
    """Return whether text is a date or a time of day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns of a format that it has to guess
        parsed = pd.to_datetime(text, errors="coerce")
    return bool(re.search(r"\d[-/:]\d", text)) and not pd.isna(parsed)


@contextmanager
def _parquet(source: str, targets: Names) -> Iterator[Table]:
    import pyarrow as pa
    from pyarrow import dataset

    fs, path = fsspec.core.url_to_fs(source)
    data = dataset.dataset(path, filesystem=fs, format="parquet")
    columns = tuple(data.schema.names)
    check_known("target", targets, columns, source)
    tests = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean)

    def blocks(names: Sequence[str], rows: int) -> Iterator[np.ndarray]:
        for name in names:
            kind = data.schema.field(name).type
            remedy = TIMES if pa.types.is_temporal(kind) else REMEDY
            _check_numeric(name, any(test(kind) for test in tests), kind, source, remedy)
        batches = data.to_batches(
            columns=list(names), batch_size=rows, batch_readahead=1, fragment_readahead=1
        )
        for batch in batches:
            numbers = [batch.column(name).cast(pa.float64(), safe=False) for name in names]
            yield np.stack([values.to_numpy(zero_copy_only=False) for values in numbers], axis=1)

    yield Table(columns, targets, columns, blocks)


@contextmanager
def _npz(source: str, targets: Names) -> Iterator[Table]:
    with fsspec.open(source, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        shapes = {name: _npz_shape(arrays, name) for name in arrays.files}
        places, outputs, defaults, matrices = _npz_columns(shapes, targets)
        listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        check_known("target", outputs, places, source)

        def blocks(names: Sequence[str], rows: int) -> Iterator[np.ndarray]:
            wanted = [places[name] for name in names]
            first = (*outputs, *names)[0]
            n, what = shapes[places[first][0]][0], "the target" if outputs else "column"
            loaded = {key: arrays[key] for key in dict.fromkeys(key for key, _ in wanted)}
            for key, values in loaded.items():
                _check_numeric(key, values.dtype.kind in "fiub", values.dtype, source)
                if len(values) != n:
                    raise InputError(
                        f"column {key!r} of {source} has {len(values)} rows but {what} "
                        f"{(*targets, first)[0]!r} has {n}: {REMEDY}"
                    )
            for start in range(0, n, rows):
                part = [loaded[key][start : start + rows, *column] for key, column in wanted]
                yield np.stack(part, axis=1).astype(np.float64)

        columns = tuple(places)
        yield Table(columns, outputs, defaults, blocks, matrices=matrices, listing=listing)


def _npz_shape(arrays: Any, name: str) -> tuple[int, ...]:
    """Return the shape of an array from its header alone, without loading the array."""
    with arrays.zip.open(name + ".npy") as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(member)[0]
        return np.lib.format.read_array_header_2_0(member)[0]


Place: TypeAlias = tuple[str, tuple[int, ...]]
"""An array of an npz and, where it has two dimensions, the index of a column in it."""


def _npz_columns(
    shapes: Mapping[str, tuple[int, ...]], targets: Names
) -> tuple[dict[str, Place], Names, Names, dict[str, Names]]:
    """Return columns with their places, targets spelled out, default features and matrices."""
    places: dict[str, Place] = {name: (name, ()) for name, s in shapes.items() if len(s) == 1}
    defaults = tuple(places)

    def spell_out(name: str, prefix: str) -> Names:
        width = shapes[name][1]
        names = tuple(f"{prefix}{j}" for j in range(width)) if width != 1 else (prefix,)
        places.update({column: (name, (j,)) for j, column in enumerate(names)})
        return names

    inputs = [name for name, s in shapes.items() if len(s) == 2 and name not in targets]
    matrices = {name: spell_out(name, "x" if name == "X" else name) for name in inputs}
    if inputs:  # of several, X or else none: the user has to choose
        defaults = matrices[inputs[0]] if len(inputs) == 1 else matrices.get("X", ())
    outputs: list[str] = []
    for target in targets:
        matrix = len(shapes.get(target, ())) == 2 and target != "X"
        outputs += spell_out(target, target) if matrix else (target,)
    return places, tuple(outputs), defaults, matrices


@contextmanager
def _grid(source: str, targets: Names) -> Iterator[Table]:
    with _open_grid(source) as grid:
        check_known("target", targets, [str(name) for name in grid.data_vars], source)
        dims = grid[targets[0]].dims if targets else grids.dims_of(grid)
        for target in targets:
            if set(grid[target].dims) != set(dims) or not dims:
                raise InputError(
                    f"target {target!r} of {source} lies on {grid[target].dims} but "
                    f"{targets[0]!r} on {dims}: targets must share one grid"
                )
        columns = tuple(str(name) for name, v in grid.variables.items() if set(v.dims) <= set(dims))
        defaults = tuple(str(dim) for dim in dims if dim in grid.coords)
        twisted = () if defaults else grids.curvilinear(grid)
        listing = f"{', '.join(twisted)}, coordinates of two or more dimensions" if twisted else ""

        def blocks(names: Sequence[str], rows: int) -> Iterator[np.ndarray]:
            for name in names:
                _check_grid(grid, name, source)
            own = {dim for name in (*targets, *names) for dim in grid[name].dims}
            sizes = {dim: grid.sizes[dim] for dim in dims if dim in own}
            widest = grid[max((*targets, *names), key=lambda name: grid[name].ndim)]
            chunks = widest.encoding.get("preferred_chunks", {})
            for tile in _tiles(sizes, chunks, max(rows, TILE_ROWS)):
                yield _points(grid, names, tile)

        units = tuple(str(grid[name].attrs.get("units", "")) for name in targets)
        known = units if any(units) else ()
        yield Table(columns, targets, defaults, blocks, True, listing=listing, units=known)


@contextmanager
def _open_grid(source: str) -> Iterator[xr.Dataset]:
    fs, path = fsspec.core.url_to_fs(source)
    if source.lower().rstrip("/").endswith(".zarr"):
        with warnings.catch_warnings():
            # xarray warns about stores without consolidated metadata and then reads them
            warnings.simplefilter("ignore", RuntimeWarning)
            grid = xr.open_dataset(source, engine="zarr", chunks=None, cache=False)
        with grid:
            yield grid
    elif isinstance(fs, LocalFileSystem):
        with xr.open_dataset(path, cache=False) as grid:
            yield grid
    else:
        with fsspec.open(source, "rb") as file, xr.open_dataset(file, cache=False) as grid:
            yield grid


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


def _points(grid: xr.Dataset, names: Sequence[str], tile: Tile) -> np.ndarray:
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


READERS: dict[str, Callable[[str, Names], AbstractContextManager[Table]]] = {
    ".csv": _csv,
    ".csv.gz": _csv,
    ".csv.bz2": _csv,
    ".csv.xz": _csv,
    ".parquet": _parquet,
    ".npz": _npz,
    ".nc": _grid,
    ".zarr": _grid,
}
