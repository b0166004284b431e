"""Readers of one file or object in another format: named columns whose rows come in blocks.

The only door to pandas and pyarrow. Each reader is a context manager that opens a source, checks
that it has the targets and yields a `Table`; it closes the source on leaving.
"""

import csv
import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import dask
import fsspec
import numpy as np
import pandas as pd
import xarray as xr

from daskgp.data import grids
from daskgp.data.gridded import open_grid, readable, zarr_grid
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
WRITE_TIMES = (
    "write its times as 2021-03-04T05:06:07 or as numbers, such as seconds since an epoch, or "
    f"{REMEDY}"
)

PUBLIC = "for a public bucket add --storage-options anon=true (storage_options= in Python)"

NUMBERS, TIMES, MISSING = "numbers", "times", "missing values alone"
"""Kinds of columns that are read."""

HEAD_ROWS = 100
"""Rows of a csv that tell the kinds of its columns."""


class Other(NamedTuple):
    """Content of a column that is not read, and what to do about it."""

    seen: str
    remedy: str = REMEDY


@dataclass(frozen=True)
class Table:
    """Columns of a source.

    ``kinds(names)`` tells those of columns (`NUMBERS`, `TIMES` or `MISSING`) and raises InputError
    for all others; ``blocks(kinds, rows)`` yields float64 arrays (r, len(kinds)) of about ``rows``
    rows, the columns in order and times as days since 1970. ``defaults`` are the features if none
    are named (less the targets). ``gridded`` says that points without a target are to be left
    out; ``matrices`` are the columns of arrays that may be named as a whole, and ``listing``
    describes the contents where they are more than the columns. ``attributes`` are those of the
    columns of a grid, such as their units.
    """

    columns: Names
    targets: Names
    defaults: Names
    kinds: Callable[[Names], dict[str, str]]
    blocks: Callable[[Mapping[str, str], int], Iterator[np.ndarray]]
    gridded: bool = False
    matrices: Mapping[str, Names] = field(default_factory=dict)
    listing: str = ""
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def unit(self, name: str) -> str:
        """Return the unit of a column, empty where it says none."""
        return str(self.attributes.get(name, {}).get("units", ""))

    def read(self, kinds: Mapping[str, str], rows: int, source: str) -> Iterator[np.ndarray]:
        """Yield blocks of columns; explain errors of reading, not those of the consumer."""
        blocks = self.blocks(kinds, rows)
        while True:
            with reading(source):
                block = next(blocks, None)
            if block is None:
                return
            yield block


def reading(source: str) -> AbstractContextManager[None]:
    """Turn what readers raise for a damaged file into a one-line InputError."""
    return readable(source, PUBLIC)


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


def _refusing(source: str, found: Mapping[str, str | Other]) -> Callable[[Names], dict[str, str]]:
    """Return ``Table.kinds`` for what the columns of a source are found to hold."""

    def kinds(names: Names) -> dict[str, str]:
        known, others = {}, {}
        for name in names:
            kind = found[name]
            if isinstance(kind, Other):
                others[name] = kind
            else:
                known[name] = kind
        for name, other in others.items():
            if len(others) == 1:
                raise InputError(f"column {name!r} of {source} {other.seen}: {other.remedy}")
            raise InputError(
                f"columns {', '.join(map(repr, others))} of {source} hold neither numbers nor "
                f"times ({name!r} {other.seen}): leave them out by naming the features to use"
            )
        return known

    return kinds


def _kind_of(dtype: Any) -> str | Other:
    """Return the kind of a column of a NumPy type."""
    if dtype.kind in "fiub":
        return NUMBERS
    if dtype.kind == "M":
        return TIMES
    if dtype.kind == "O":
        return Other("holds Python objects, which convert cannot read")
    return Other(f"has type {dtype}, not numbers")


Reader: TypeAlias = Callable[[str, Names], AbstractContextManager[Table]]


def reader_by(path: str) -> Reader | None:
    """Return the reader for the suffix of a name, None if there is none."""
    name = path.lower().rstrip("/")
    return next((reader for suffix, reader in READERS.items() if name.endswith(suffix)), None)


def reader_of(path: str) -> Reader:
    """Return the reader for the suffix of a name; InputError if there is none."""
    reader = reader_by(path)
    if reader is None:
        raise InputError(
            f"the format of {path} is not known by its name: it must end in one of "
            + ", ".join(READERS)
        )
    return reader


def opened(source: str, **how: Any) -> Any:
    """Return a file at a path or URL, to be opened by ``with``, with the options given for it."""
    return fsspec.open(source, "rb", **how, **(remote.options(source) or {}))


@contextmanager
def _csv(source: str, targets: Names) -> Iterator[Table]:
    def whole() -> Any:
        return opened(source, compression="infer")

    with whole() as file:
        # All columns are read: with usecols, pandas lets rows with too many fields pass.
        # low_memory would guess the type of a column piece by piece.
        head = pd.read_csv(file, nrows=HEAD_ROWS, low_memory=False, **EXACTLY)
    columns = tuple(str(name) for name in head.columns)
    check_known("target", targets, columns, source)

    def kinds(names: Names) -> dict[str, str]:
        _refuse_index(head, source)
        found = dict(zip(columns, (_kind(head[name]) for name in head), strict=True))
        return _refusing(source, found)(names)

    def blocks(names: Mapping[str, str], rows: int) -> Iterator[np.ndarray]:
        if EARLIER:
            with whole() as file:
                _refuse_wide(file, len(columns), source)
        with whole() as file:
            for frame in pd.read_csv(file, chunksize=rows, low_memory=False, **EXACTLY):
                _refuse_index(frame, source)
                yield _of_frame(frame, names, source, int(frame.index[0]) if len(frame) else 0)

    yield Table(columns, targets, columns, kinds, blocks)


def _refuse_index(frame: Any, source: str) -> None:
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"rows of {source} have more fields than its header has names: mend it")


def _refuse_wide(file: Any, width: int, source: str) -> None:
    rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
    if any(len(row) > width for row in rows):
        raise InputError(
            f"rows of {source} have more fields than its header has names, the first in line "
            f"{rows.line_num}: mend it"
        )


def _kind(column: Any) -> str | Other:
    """Return the kind of a column of a data frame; text is told by its first value."""
    dtype, kind = column.dtype, getattr(column.dtype, "kind", "O")
    if kind in "fiub":
        return NUMBERS
    if kind == "M":
        return TIMES
    if isinstance(dtype, pd.CategoricalDtype) or kind != "O":
        return Other(f"has type {dtype}, not numbers")
    present = column.dropna()
    if not len(present):
        return MISSING
    told = TIMES if re.match(ISO, str(present.iloc[0])) else NUMBERS
    return _parsed(column, told, 0)[1] or told


def _of_frame(frame: Any, kinds: Mapping[str, str], source: str, start: int) -> np.ndarray:
    """Return columns of a frame that begins at row ``start`` of a source."""
    parts = []
    for name, kind in kinds.items():
        values, other = _parsed(frame[name], kind, start)
        if other:
            raise InputError(f"column {name!r} of {source} {other.seen}: {other.remedy}")
        parts.append(values)
    return np.stack(parts, axis=1)


def _parsed(column: Any, kind: str, start: int) -> tuple[np.ndarray, Other | None]:
    """Return the values of a column, times as days since 1970, and what else it holds."""
    if kind == TIMES:
        values = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
        numbers = grids._as_float(values.dt.tz_localize(None).to_numpy())
    else:
        values = pd.to_numeric(column, errors="coerce")
        numbers = values.to_numpy(np.float64, na_value=np.nan)
    bad = np.flatnonzero(values.isna() & column.notna())
    if not len(bad):
        return numbers, None
    held, what = str(column.iloc[bad[0]]), "a time" if kind == TIMES else "numeric"
    remedy = WRITE_TIMES if kind == TIMES or _is_time(held) else REMEDY
    return numbers, Other(f"is not {what}, row {start + bad[0] + 1} holds {held!r}", remedy)


ISO = r"\d{4}-\d\d(-\d\d([T ].*)?)?$"
"""Times as they are read from text; others leave it open which number is the month."""


def _is_time(text: str) -> bool:
    """Return whether text is a date or a time of day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns of a format that it has to guess
        parsed = pd.to_datetime(text, errors="coerce")
    return bool(re.search(r"\d[-/:]\d", text)) and not pd.isna(parsed)


@contextmanager
def frame_table(source: Any, targets: Names) -> Iterator[Table]:
    """Yield the table that a data frame of pandas or Dask is; a named index is a column too.

    The partitions of a Dask one are computed one after the other.
    """
    what, lazy = f"the {type(source).__name__}", not isinstance(source, pd.DataFrame)
    if source.index.name is not None:
        source = source.reset_index()
    columns = tuple(str(name) for name in source.columns)
    check_known("target", targets, columns, what)
    heads = (pd.Series(dtype=dtype) for dtype in source.dtypes) if lazy else None
    found = [_kind(head) for head in heads or (source[name] for name in source.columns)]
    kinds = _refusing(what, dict(zip(columns, found, strict=True)))

    def blocks(names: Mapping[str, str], rows: int) -> Iterator[np.ndarray]:
        begun = 0
        for part in source.partitions if lazy else (source,):
            frame = (part.compute() if lazy else part).set_axis(columns, axis=1)
            for start in range(0, len(frame), rows):
                yield _of_frame(frame[start : start + rows], names, what, begun + start)
            begun += len(frame)

    yield Table(columns, targets, columns, kinds, blocks)


@contextmanager
def arrow_table(source: Any, targets: Names) -> Iterator[Table]:
    """Yield the table of whatever exports an Arrow stream: an Arrow table, a Polars frame."""
    import pyarrow as pa

    what, reader = f"the {type(source).__name__}", pa.RecordBatchReader.from_stream(source)
    columns = tuple(reader.schema.names)
    check_known("target", targets, columns, what)

    def blocks(names: Mapping[str, str], rows: int) -> Iterator[np.ndarray]:
        for batch in reader:
            for start in range(0, batch.num_rows, rows):
                yield _of_batch(batch.slice(start, rows), names)

    yield Table(columns, targets, columns, _refusing(what, _arrow_kinds(reader.schema)), blocks)


@contextmanager
def _parquet(source: str, targets: Names) -> Iterator[Table]:
    from pyarrow import dataset

    fs, path = fsspec.core.url_to_fs(source, **(remote.options(source) or {}))
    data = dataset.dataset(path, filesystem=fs, format="parquet")
    columns = tuple(data.schema.names)
    check_known("target", targets, columns, source)

    def blocks(names: Mapping[str, str], rows: int) -> Iterator[np.ndarray]:
        batches = data.to_batches(
            columns=list(names), batch_size=rows, batch_readahead=1, fragment_readahead=1
        )
        for batch in batches:
            yield _of_batch(batch, names)

    yield Table(columns, targets, columns, _refusing(source, _arrow_kinds(data.schema)), blocks)


def _arrow_kinds(schema: Any) -> dict[str, str | Other]:
    import pyarrow.types as of

    numeric = (of.is_floating, of.is_integer, of.is_decimal, of.is_boolean)

    def kind(type: Any) -> str | Other:
        if any(test(type) for test in numeric):
            return NUMBERS
        if of.is_timestamp(type) or of.is_date(type):
            return TIMES
        if of.is_null(type):
            return MISSING
        name = "category" if of.is_dictionary(type) else type
        return Other(f"has type {name}, not numbers", WRITE_TIMES if of.is_time(type) else REMEDY)

    return {entry.name: kind(entry.type) for entry in schema}


def _of_batch(batch: Any, names: Iterable[str]) -> np.ndarray:
    import pyarrow as pa

    columns = [batch.column(name) for name in names]
    plain = [
        values if pa.types.is_temporal(values.type) else values.cast(pa.float64(), safe=False)
        for values in columns
    ]
    arrays = [values.to_numpy(zero_copy_only=False) for values in plain]
    return np.stack([grids._as_float(values) for values in arrays], axis=1)


@contextmanager
def _npz(source: str, targets: Names) -> Iterator[Table]:
    with opened(source) as file, np.load(file, allow_pickle=False) as arrays:
        headers = {name: _npz_header(arrays, name) for name in arrays.files}
        shapes = {name: shape for name, (shape, _) in headers.items()}
        places, outputs, defaults, matrices = _npz_columns(shapes, targets)
        listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        check_known("target", outputs, places, source)

        def blocks(names: Mapping[str, str], rows: int) -> Iterator[np.ndarray]:
            wanted = [places[name] for name in names]
            first = (*outputs, *names)[0]
            n, what = shapes[places[first][0]][0], "the target" if outputs else "column"
            loaded = {key: arrays[key] for key in dict.fromkeys(key for key, _ in wanted)}
            for key, values in loaded.items():
                if len(values) != n:
                    raise InputError(
                        f"column {key!r} of {source} has {len(values)} rows but {what} "
                        f"{(*targets, first)[0]!r} has {n}: {REMEDY}"
                    )
            for start in range(0, n, rows):
                part = [loaded[key][start : start + rows, *column] for key, column in wanted]
                yield np.stack([grids._as_float(values) for values in part], axis=1)

        kinds = {column: _kind_of(headers[key][1]) for column, (key, _) in places.items()}
        how: dict[str, Any] = {"matrices": matrices, "listing": listing}
        yield Table(tuple(places), outputs, defaults, _refusing(source, kinds), blocks, **how)


def _npz_header(arrays: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of an array from its header alone, without loading the array."""
    with arrays.zip.open(name + ".npy") as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0
        shape, _, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(
            member
        )
        return shape, dtype


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
    with open_grid(source) as grid:
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
    ``wanted`` are the names asked for, none for all variables.
    """
    with ExitStack() as stack:
        parts: dict[str, xr.Dataset] = {}
        known: list[str] = []
        for file in files:
            with reading(file):
                grid = stack.enter_context(open_grid(file, chunks={}))
            known += [str(name) for name in grid.data_vars if name not in known]
            others = [name for name in grid.data_vars if wanted and name not in wanted]
            parts[file] = grid.drop_vars(others)
            _compare_grids(parts, file)
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
        yield grid_table(grids.as_dataset(whole), targets, source)


def _compare_grids(parts: Mapping[str, xr.Dataset], file: str) -> None:
    """Raise InputError for a part that has some of the variables of another, or other types."""
    grid = parts[file]
    names = {str(name) for name in grid.data_vars}
    for other, part in parts.items():
        beside = {str(name) for name in part.data_vars}
        if names != beside and (names & beside or not names or not beside):
            raise InputError(
                f"{file} has {_listed(names)} of the variables to read, {other} "
                f"{_listed(beside)}: mend it or leave the file out"
            )
        for name in {*grid.variables} & {*part.variables}:
            types = [one[name].dtype for one in (grid, part)]
            kinds = [kind for kind in map(_kind_of, types) if isinstance(kind, str)]
            if len(kinds) == 1 or len(set(kinds)) == 2:
                raise InputError(
                    f"column {str(name)!r} of {file} has type {types[0]}, in {other} {types[1]}: "
                    "mend it or leave the file out"
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
    columns = tuple(str(name) for name, v in grid.variables.items() if set(v.dims) <= set(dims))
    defaults = tuple(str(dim) for dim in dims if dim in grid.coords)
    twisted = () if defaults else grids.curvilinear(grid)
    listing = f"{', '.join(twisted)}, coordinates of two or more dimensions" if twisted else ""

    def kinds(names: Names) -> dict[str, str]:
        return _refusing(source, {name: _grid_kind(grid, name, source) for name in names})(names)

    def blocks(names: Mapping[str, str], rows: int) -> Iterator[np.ndarray]:
        own = {dim for name in (*targets, *names) for dim in grid[name].dims}
        sizes = {dim: grid.sizes[dim] for dim in dims if dim in own}
        widest = grid[max((*targets, *names), key=lambda name: grid[name].ndim)]
        lazy = {dim: max(sizes, default=1) for dim, sizes in widest.chunksizes.items()}
        chunks = widest.encoding.get("preferred_chunks", {}) or lazy
        for tile in _tiles(sizes, chunks, max(rows, TILE_ROWS)):
            with dask.config.set(scheduler="threads"):
                block = _points(grid, names, tile)
            yield block

    how: dict[str, Any] = {"attributes": {name: grid[name].attrs for name in columns}}
    return Table(columns, targets, defaults, kinds, blocks, True, listing=listing, **how)


def _grid_kind(grid: xr.Dataset, name: str, source: str) -> str | Other:
    """Return the kind of a variable of a grid; InputError if it holds dates of another calendar."""
    dtype = grid[name].dtype
    if dtype.kind == "O":  # the message names the calendar of dates
        first = grid[name].isel({dim: slice(0, 1) for dim in grid[name].dims})
        what = f"column {name!r} of {source}"
        refuse_column(what, dtype, lambda: first.values, REMEDY)
    return _kind_of(dtype)


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


READERS: dict[str, Reader] = {
    ".csv": _csv,
    ".csv.gz": _csv,
    ".csv.bz2": _csv,
    ".csv.xz": _csv,
    ".parquet": _parquet,
    ".npz": _npz,
    ".nc": _grid,
    ".zarr": _grid,
}
