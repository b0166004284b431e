"""Labelled grids to predict on: in a file or an xarray object, read box by box inside tasks."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import dask.array as da
import fsspec
import numpy as np
import xarray as xr
from fsspec.implementations.local import LocalFileSystem

from daskgp.data import feature_units, grids, polygons, rasters, reading
from daskgp.data.categories import Levels
from daskgp.data.expected import Column
from daskgp.data.stores import chunk_marks, groups, remote, transactions
from daskgp.errors import InputError, StoreError

SLAB = 1 << 20
"""Values of a mask that are read at a time to tell what it holds."""

# Errors of the readers for files that are damaged or not of the format that their name says.
READ_ERRORS = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, csv.Error)

NETCDF = ".nc"
FILES = (NETCDF, *rasters.ENDINGS)
"""Endings of grids that are single files."""
IN_MEMORY = "an xarray object"
"""Name of a grid that is in no file."""

Region: TypeAlias = tuple[slice, ...]
Index: TypeAlias = tuple[int, ...]


@contextmanager
def readable(source: str, public: str = "") -> Iterator[None]:
    """Turn what readers raise for a damaged file into a one-line InputError.

    ``public`` is a remedy where a remote file system refuses to give it.
    """
    try:
        yield
    except InputError:
        raise
    except UnicodeDecodeError as error:
        wide = error.object[:2] in (b"\xff\xfe", b"\xfe\xff")
        code = "utf-16" if wide else "latin1"
        raise InputError(
            f"cannot read {source}: it is not UTF-8 text: save it as UTF-8, for example with "
            "iconv -f "
            f"{code} -t utf-8"
        ) from error
    except ImportError as error:
        # an object store names its library in words, a reader of a format is a module
        known = None if error.name else remote.install(source)
        needed = known or "pip install 'daskgp[io]'"
        raise InputError(f"cannot read {source}: {groups.first_line(error)}: {needed}") from error
    except Exception as error:
        refused = type(error).__name__ in remote.REMEDIES
        # codecs raise the plain RuntimeError, and its kinds are those of programs
        if not (refused or isinstance(error, READ_ERRORS) or type(error) is RuntimeError):
            raise
        if plain := _plain(str(error)):
            raise InputError(f"cannot read {source}: {plain}") from error
        remedy = "; check that the file is whole and of the format its name says"
        if refused:
            remedy = f"; {public}" if public and remote.is_remote(source) else ""
        raise InputError(f"cannot read {source}: {remote.reason(error)}{remedy}") from error


PLAIN = {
    r"Expected (\d+) fields in line (\d+), saw (\d+)": (
        "line {1} has {2} fields where {0} are expected: put text with commas in quotes, or take "
        "the commas out that are too many"
    ),
    r"EOF inside string starting at row (\d+)": (
        "a quotation mark in line {after} is not closed: close it or take it out"
    ),
    r"No columns to parse": "it is empty: choose another file",
    r"Not a gzipped file": "it is not compressed: give it a name without .gz",
    r"found the following matches": (
        "it is netCDF 4, which needs h5netcdf: pip install 'daskgp[io]'"
    ),
    r"IO backends|unrecognized engine": (
        "it is not a whole netCDF or HDF5 file: fetch or write it again"
    ),
    r"not recognized as being in a supported file format|Read failed": (
        "it is not a whole GeoTIFF: fetch or write it again"
    ),
    r"Parquet magic bytes": "it is not a whole parquet file: fetch or write it again",
    r"allow_pickle": (
        "it is not a whole npz file, or holds objects: write it by np.savez(path, X=X, y=y)"
    ),
}
"""Meanings of errors of readers of other packages, by their text."""


def _plain(text: str) -> str:
    """Return what is wrong with a file, and the remedy, in words of its own; "" if not known."""
    for pattern, words in PLAIN.items():
        if found := re.search(pattern, text):
            numbers = [int(number) for number in found.groups()]
            after = numbers[0] + 1 if numbers else 0  # pandas counts rows from 0, lines from 1
            return words.format(*numbers, after=after)
    return ""


class Dates(xr.coders.CFDatetimeCoder):
    """Coder of times that are None where they are missing in other calendars.

    xarray takes those for the origin of the count, or refuses them.
    """

    def decode(self, variable: xr.Variable, name: Any = None) -> xr.Variable:
        """Return a variable with dates for times; it is read if they are of another calendar.

        InputError says in which unit they are if that cannot be read.
        """
        try:
            decoded = super().decode(variable, name)
            if decoded.dtype.kind != "O" or variable.dtype.kind not in "fi":
                return decoded
            missing = _missing(variable)
        except (ValueError, OverflowError) as error:
            missing, decoded = _missing(variable), None
            if not missing.any():
                raise InputError(feature_units.unread(name, variable.attrs["units"])) from error
        if decoded is not None and not missing.any():
            return decoded
        if missing.all():
            return variable.copy(data=np.full(variable.shape, np.nan))
        numbers = variable.values
        dates = super().decode(variable.copy(data=np.where(missing, numbers[~missing][0], numbers)))
        values = dates.values
        values[missing] = None
        return xr.Variable(dates.dims, values, dates.attrs, dates.encoding)


@contextmanager
def _of_file(source: str) -> Iterator[None]:
    """Name the file in what ``Dates`` says, which xarray wraps in words of its own."""
    try:
        yield
    except InputError as error:
        cause = error.__cause__ if isinstance(error.__cause__, InputError) else error
        raise InputError(f"cannot read {source}: {cause}") from error


def _missing(numbers: xr.Variable) -> np.ndarray:
    values = numbers.values  # integers that are missing are the least ones
    return np.isnan(values) if values.dtype.kind == "f" else values == np.iinfo(np.int64).min


@contextmanager
def open_grid(source: str, names: Sequence[str] = (), **how: Any) -> Iterator[xr.Dataset]:
    """Yield the grid in a netCDF file, a Zarr group or a GeoTIFF, read when asked for.

    xarray is told ``how`` to open it.  Axes of a GeoTIFF have the names that ``names``, those of
    features or columns, have for them.
    """
    if rasters.is_geotiff(source):
        with rasters.open_raster(source, names, **how) as grid:
            yield grid
        return
    address = remote.in_repository(source)
    if address is not None:
        store = transactions.to_read(address)
        with zarr_grid(store, group=address.group or None, **how) as grid:
            yield grid
        return
    options = remote.options(source)
    fs, path = fsspec.core.url_to_fs(source, **(options or {}))
    if not source.lower().endswith(NETCDF):
        url = source if options is None else remote.location(source)
        with zarr_grid(url, storage_options=options, **how) as grid:
            yield grid
        return
    how |= {"cache": False, "decode_times": Dates()}
    with ExitStack() as stack:
        local = isinstance(fs, LocalFileSystem)
        file = path if local else stack.enter_context(fs.open(path, "rb"))
        with _of_file(source):
            grid = xr.open_dataset(file, **how)
        yield stack.enter_context(grid)


@contextmanager
def zarr_grid(store: Any, chunks: Any = None, **how: Any) -> Iterator[xr.Dataset]:
    """Open a Zarr group, at a URL or in a store of zarr-python, with xarray."""
    with warnings.catch_warnings():
        # xarray warns about stores without consolidated metadata and then reads them
        warnings.simplefilter("ignore", RuntimeWarning)
        how |= {"engine": "zarr", "chunks": chunks, "cache": False, "decode_times": Dates()}
        with _of_file(str(store)):
            grid = xr.open_dataset(store, **how)
    with grid:
        yield grid


def is_grid(source: Any) -> bool:
    """Return whether a source is a labelled grid rather than a dataset store of rows."""
    if grids.is_xarray(source) or str(source).lower().endswith(FILES):
        return True
    if remote.in_repository(source) is not None:
        return True
    try:
        group = groups.open_group(str(source), "grid")
        if groups.holds_rows(group):
            return False
        dims = {name: groups.dims_in(array) for name, array in group.arrays()}
    except Exception:  # noqa: BLE001 - whoever opens it as a dataset says what is wrong
        return False
    on_axes = any(own == (name,) for name, own in dims.items())
    return on_axes or (any(dims.values()) and "format" not in group.attrs)


def counts_of(shape: Index, steps: Index) -> Index:
    """Return the number of boxes of ``steps`` cells along each dimension."""
    return tuple(-(-n // step) for n, step in zip(shape, steps, strict=True))


def region_of(index: Index, shape: Index, steps: Index) -> Region:
    """Return the cells of a box."""
    sizes = zip(index, steps, shape, strict=True)
    return tuple(slice(i * step, min((i + 1) * step, n)) for i, step, n in sizes)


class Box(NamedTuple):
    """Values of the features, and of a mask, in a box of a grid; the box grows at its ends."""

    values: list[np.ndarray]
    axes: tuple[Index, ...]
    shape: Index
    zeros: bool | None
    per_day: tuple[float | None, ...]

    def checksum(self, extent: Index) -> int:
        """Return the CRC-32 of what the first cells of the box, ``extent`` many, are made of."""
        found = 0
        for values, own, count in zip(self.values, self.axes, self.per_day, strict=True):
            part = values[tuple(slice(extent[a]) for a in own)]
            found = _checksum(part, count, found)
        return found

    def cells(self, extent: Index) -> tuple[np.ndarray, np.ndarray]:
        """Return the flat numbers (c,) of cells to predict and their features (c, d).

        Left out are cells that are masked or lack a feature, and the first ones, ``extent`` many.
        """
        columns = grids._columns(self.values, self.axes, len(self.shape))
        wanted = np.ones(self.shape, bool)
        for column in columns:
            wanted &= ~np.isnan(column)
        if self.zeros:
            wanted &= columns[-1] != 0
        wanted[tuple(map(slice, extent))] = False
        cells = np.flatnonzero(wanted)
        place = np.unravel_index(cells, self.shape)
        features = columns if self.zeros is None else columns[:-1]
        return cells, np.stack([column[place] for column in features], axis=1)


class Reader(NamedTuple):
    """Values to read a box of a grid with; None in place of the arrays that Dask gives them.

    ``zeros`` says whether cells where the last array is 0 are masked; None without a mask.
    ``per_day`` tells how many of its unit an array of times counts a day, None for others.
    """

    parts: tuple[Any, ...]
    axes: tuple[Index, ...]
    zeros: bool | None
    per_day: tuple[float | None, ...]

    @property
    def is_known(self) -> bool:
        """Tell if all cells are predicted and their features are in memory."""
        return self.zeros is None and all(isinstance(part, np.ndarray) for part in self.parts)

    def read(self, region: Region, blocks: tuple[np.ndarray, ...]) -> Box:
        """Return the box at a region, with the blocks of its Dask arrays."""
        given, values = iter(blocks), []
        for part, own in zip(self.parts, self.axes, strict=True):
            key = tuple(region[axis] for axis in own)
            if part is None:
                values.append(np.asarray(next(given)))
            else:
                values.append(reading.read_part(part, key) if own else np.asarray(part))
        shape = tuple(cut.stop - cut.start for cut in region)
        return Box(values, self.axes, shape, self.zeros, self.per_day)


TICKS_PER_DAY = 8.64e9
"""Steps of 10 µs, to which times in any unit are the same: counts of days since 1970 resolve 1."""


def _checksum(values: np.ndarray, per_day: float | None, before: int = 0) -> int:
    """Return the CRC-32 of values; that of times does not depend on their unit."""
    if per_day is not None:
        values = np.round(grids._as_float(values) * (TICKS_PER_DAY / per_day)) + 0.0  # not -0
    return zlib.crc32(np.ascontiguousarray(values).tobytes(), before)


@dataclass(frozen=True, eq=False)
class Gridded:
    """A labelled grid to predict on, in boxes of ``steps`` cells along its dimensions.

    ``grid`` has the arrays of the features and, last, of a mask; ``names`` and ``units`` are
    theirs.
    """

    url: str
    grid: grids.Grid
    steps: Index
    names: tuple[str, ...]
    zeros: bool | None
    units: tuple[str, ...]

    @cached_property
    def shape(self) -> Index:
        """Number of cells along each dimension."""
        return self.grid.shape

    @property
    def in_file(self) -> bool:
        """True if tasks read the grid from a file."""
        return self.url != IN_MEMORY

    @property
    def layout(self) -> dict[str, Any]:
        """Description of the grid that a run which goes on must find again."""
        masked = self.zeros is not None
        return {
            "dims": [str(dim) for dim in self.grid.dims],
            "columns": list(self.names[: len(self.names) - masked]),
            "mask": self.names[-1] if masked else None,
        }

    def reader(self) -> Reader:
        """Return what tasks read boxes with."""
        parts = (None if isinstance(p, da.Array) else p for p, _ in self.grid.parts)
        return Reader(tuple(parts), self.grid.axes, self.zeros, self.per_day)

    @property
    def per_day(self) -> tuple[float | None, ...]:
        """Counts a day of the arrays that are times, None for others."""
        counts = map(feature_units.count_of, self.units)
        return tuple(count and count.per_day for count in counts)

    def blocks(self) -> Callable[[Index], list[Any]]:
        """Return the blocks, as delayed values, that a box needs of each Dask array."""
        lazy = []
        for (values, _), own in zip(self.grid.parts, self.grid.axes, strict=True):
            if isinstance(values, da.Array):
                cut = values.rechunk(tuple(self.steps[axis] for axis in own))
                lazy.append((cut.to_delayed(), own))
        return lambda index: [blocks[tuple(index[a] for a in own)] for blocks, own in lazy]

    @cached_property
    def marks(self) -> np.ndarray:
        """Marks of the boxes, looked up once: one that is unchanged is made of the same values.

        A mark is `chunk_marks.UNKNOWN` where that can only be found out by reading.
        """
        each = [
            self._tokens(name, values, own, count)
            for name, (values, _), own, count in zip(
                self.names, self.grid.parts, self.grid.axes, self.per_day, strict=True
            )
        ]
        counts = counts_of(self.shape, self.steps)
        marks = np.full(counts, chunk_marks.UNKNOWN, np.uint64)
        for index in np.ndindex(*counts):
            region = region_of(index, self.shape, self.steps)
            tokens = [token(tuple(region[a] for a in own)) for token, own in each]
            if None not in tokens:
                digest = hashlib.blake2b(repr(tokens).encode(), digest_size=8).digest()
                marks[index] = int.from_bytes(digest) | 1
        return marks

    def _tokens(
        self, name: str, values: Any, own: Index, per_day: float | None
    ) -> tuple[Callable[[Region], Any], Index]:
        """Return what tells one state of a part of an array from another, None for unknown."""
        known: dict[Any, Any] = {}
        if isinstance(values, da.Array):
            return lambda part: None, own
        if isinstance(values, grids.Stored):
            token = self._stored_tokens(name)
        else:

            def token(part: Region) -> Any:
                return _checksum(values[part], per_day)

        def remembered(part: Region) -> Any:
            key = tuple((cut.start, cut.stop) for cut in part)
            if key not in known:
                known[key] = token(part)
            return known[key]

        return remembered, own

    def _stored_tokens(self, name: str) -> Callable[[Region], Any]:
        if self.url.lower().endswith(FILES):
            mark = chunk_marks.file_mark(self.url)
            return lambda part: mark if mark != chunk_marks.UNKNOWN else None
        address = remote.in_repository(self.url)
        if address is not None:  # all of it is as its last commit
            snapshot = transactions.snapshot_of(transactions.to_read(address))
            return lambda part: snapshot
        array = groups.array_of(groups.open_group(self.url, "grid"), name)
        marks, sizes = chunk_marks.box_marks(self.url, array), groups.written_together(array)
        order = [
            groups.dims_in(array).index(dim) for dim in self.grid.parts[self.names.index(name)][1]
        ]
        marks, sizes = marks.transpose(order), tuple(sizes[i] for i in order)

        def token(part: Region) -> Any:
            boxes = zip(part, sizes, strict=True)
            found = marks[tuple(slice(c.start // s, -(-c.stop // s)) for c, s in boxes)]
            return None if (found == chunk_marks.UNKNOWN).any() else found.tobytes()

        return token


@contextmanager
def opened(
    source: Any,
    features: tuple[str, ...],
    mask: str | None = None,
    units: tuple[str, ...] = (),
    trained_on: Mapping[int, Column] = MappingProxyType({}),
    beside: Sequence[str] = (),
    levels: Levels = MappingProxyType({}),
    takes_new: bool = False,
    reference: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Gridded]:
    """Yield the grid of a file or an xarray object, with the features of a model by name.

    Parameters
    ----------
    source : str, DataArray or Dataset
        Zarr group, netCDF file or GeoTIFF, or a labelled object.
    features : tuple of str
        Names of the coordinates or variables that are the features.
    mask : str, optional
        Variable over some dimensions of the grid.  Cells where it is NaN, or False or 0 if it holds
        booleans or integers, are left out.  Or the path of a GeoJSON file, outside whose polygons
        cells are left out.
    units : tuple of str
        Units of the features of the model, in which times are given.
    trained_on : mapping
        What the model knows of its features, by number.
    beside : sequence of str
        Variables that a likelihood takes, over some dimensions of the grid; cells without are left
        out.
    levels : mapping
        Levels of features that are categories, which text has.
    takes_new : bool
        Whether other text is that of a new level; it is refused else.
    reference : mapping
        What says the reference system of the model, which a grid without one is in.

    Raises
    ------
    InputError, StoreError
        If a feature or the mask is missing or no number, a unit contradicts that of the model, or
        the grid has no cells.
    """
    with ExitStack() as stack:
        url = IN_MEMORY if grids.is_xarray(source) else str(source)
        with readable(url):
            X = source if grids.is_xarray(source) else stack.enter_context(open_grid(url, features))
            known = units, trained_on, beside, levels, takes_new, reference
            found = _gridded(X, url, features, mask, *known)
        yield found


def _gridded(
    X: Any,
    url: str,
    features: tuple[str, ...],
    mask: str | None,
    units: tuple[str, ...],
    trained_on: Mapping[int, Column],
    beside: Sequence[str],
    levels: Levels,
    takes_new: bool,
    reference: Mapping[str, Any],
) -> Gridded:
    if X.attrs.get("complete") is False:
        raise StoreError(
            f"grid {url} is incomplete: wait until it is written, or set its attribute complete "
            "to true where its writer was stopped"
        )
    X, stored = _with_places(X, features), url != IN_MEMORY
    how = stored, units, trained_on, levels, takes_new
    grid = grids.grid_of(X, features, *how, reference=reference)
    if not grid.dims or not grid.size:
        raise InputError(
            f"{url} has no cells, so there is nothing to predict: give a grid with some"
        )
    own = grids.units_of(X, features)
    said = tuple(wanted or unit for wanted, unit in zip(units or own, own, strict=True))
    others = [*beside, *(() if mask is None else (mask,))]
    whole, masks = grid, X
    if mask is not None and polygons.is_path(mask):
        masks = _inside(X, mask, features, grid.dims)
    for name in others:
        what = "mask" if name == mask else "variable"
        part = (
            grids.grid_of(masks, (name,), stored and masks is X, what=what)
            if name == mask
            else grids.grid_of(X, (name,), stored, what=what)
        )
        odd = [str(dim) for dim in part.dims if dim not in grid.dims]
        if odd:
            raise InputError(
                f"{what} {name!r} of {url} has the dimension {', '.join(odd)}, which no feature "
                f"has: reduce it to {', '.join(map(str, grid.dims))}"
            )
        whole = dataclasses.replace(whole, parts=(*whole.parts, *part.parts))
    zeros = None
    if mask is not None:
        refuse_float_mask(masks[mask], url)
        zeros = masks_zeros(masks[mask])
    names = (*features, *others)
    steps = _steps(X, whole, tuple(name for name in names if masks is X or name != mask))
    return Gridded(url, whole, steps, names, zeros, (*said, *("" for _ in others)))


def _inside(X: Any, path: str, features: tuple[str, ...], dims: Any) -> xr.Dataset:
    """Return whether cells are inside the polygons of a file, as a variable of its name."""
    region = polygons.polygons_in(path, features)
    found = region.among(*(X[name].reset_coords(drop=True).compute() for name in region.features))
    return found.transpose(*(dim for dim in dims if dim in found.dims)).to_dataset(name=path)


def _with_places(X: Any, features: tuple[str, ...]) -> Any:
    """Return an object whose two-dimensional features are coordinates where their axes have none.

    A file need not say that they are; predictions on it get them as coordinates.
    """
    if not isinstance(X, xr.Dataset):
        return X
    places = [
        name
        for name in features
        if name in X.data_vars and X[name].ndim > 1 and not any(d in X.coords for d in X[name].dims)
    ]
    return X.set_coords(places)


def masks_zeros(mask: xr.DataArray) -> bool:
    """Return whether 0 is masked, too: in booleans and integers, also those with a fill value."""
    dtype = np.dtype(mask.encoding.get("dtype", mask.dtype))
    scaled = {"scale_factor", "add_offset"} & set(mask.encoding)
    return mask.dtype.kind in "iub" or (dtype.kind in "iub" and not scaled)


def refuse_float_mask(mask: xr.DataArray, source: str) -> None:
    """Raise InputError for a mask of floats 0 and 1 without NaN, whose zeros would mask nothing.

    It is read as far as its values are 0 and 1.
    """
    if mask.dtype.kind != "f" or masks_zeros(mask):
        return
    zeros = False
    for part in _slabs(mask):
        values = part.to_numpy()
        if not ((values == 0) | (values == 1)).all():
            return
        zeros = zeros or bool((values == 0).any())
    if zeros:
        raise InputError(
            f"mask {str(mask.name)!r} of {source} holds 0 and 1 as {mask.dtype}, of which only NaN "
            "would be left out: make booleans of it, by .astype(bool)"
        )


def _slabs(values: xr.DataArray) -> Iterator[xr.DataArray]:
    """Yield parts of an array along its first dimension, of whole chunks and about SLAB values."""
    if not values.ndim:
        yield values
        return
    dim, n = values.dims[0], len(values)
    chunk = int((values.encoding.get("preferred_chunks") or {}).get(dim, 1))
    step = chunk * max(1, SLAB * n // max(1, values.size) // chunk)
    for start in range(0, n, step):
        yield values.isel({dim: slice(start, start + step)})


def _steps(X: Any, grid: grids.Grid, names: tuple[str, ...]) -> Index:
    """Return the sizes of boxes: those of the chunks of the grid, or else boxes of some cells."""
    if grid.lazy:
        return tuple(max(sizes) for sizes in grid.chunks)
    everything = [*names, *(X.data_vars if isinstance(X, xr.Dataset) else ())]
    variables = [X[name].variable for name in everything]
    if isinstance(X, xr.DataArray):
        variables.append(X.variable)
    cut = max(variables, key=lambda v: sum(d in grid.dims for d in v.dims))
    sizes = cut.encoding.get("preferred_chunks") or {}
    sizes = dict(zip(cut.dims, cut.encoding.get("shards") or (), strict=False)) or sizes
    if not any(dim in sizes for dim in grid.dims):
        return tuple(map(max, grids._cut(grid.shape)))
    whole = zip(grid.dims, grid.shape, strict=True)
    return tuple(max(1, int(sizes.get(dim, n))) for dim, n in whole)
