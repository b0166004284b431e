"""Sources of a conversion: files, also by patterns and folders, and objects of other libraries.

Many files are read one after the other as one table; grids are combined by their coordinates.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem
from zarr.abc.store import Store

from daskgp.data import grids
from daskgp.data.convert import gridpoints, partitions, tables
from daskgp.data.convert.table import (
    EMPTY,
    MISSING,
    Kind,
    Names,
    Reader,
    Table,
    compared,
    no_ends,
    reading,
)
from daskgp.data.stores import remote
from daskgp.errors import InputError

Source: TypeAlias = Any
"""Path, URL, pattern or folder, a sequence of them, or an object with labelled columns."""

HIDDEN = r"/[._]"
"""Sign of the files that other software leaves beside its data."""


READERS: dict[str, Reader] = {
    ".csv": tables.csv_file,
    ".csv.gz": tables.csv_file,
    ".csv.bz2": tables.csv_file,
    ".csv.xz": tables.csv_file,
    ".parquet": tables.parquet_file,
    ".npz": tables.npz_file,
    ".nc": gridpoints.grid_file,
    ".tif": gridpoints.grid_file,
    ".tiff": gridpoints.grid_file,
    ".zarr": gridpoints.grid_file,
}


def reader_by(path: str) -> Reader | None:
    """Return the reader for the suffix of a name, None if there is none."""
    name = path.lower().rstrip("/")
    return next((reader for suffix, reader in READERS.items() if name.endswith(suffix)), None)


def reader_of(path: str) -> Reader:
    """Return the reader for the suffix of a name; InputError if there is none."""
    reader = reader_by(path)
    if reader is None and path.lower().endswith(".zip"):
        raise InputError(
            f"{path} is a zip file: unpack it, or give the Zarr store in it in Python, "
            f"daskgp.convert(zarr.storage.ZipStore({path!r}, mode='r'), ...)"
        )
    if reader is None:
        raise InputError(
            f"the format of {path} is not clear from its name: it must end in one of "
            + ", ".join(READERS)
        )
    return reader


def addresses(source: Source) -> tuple[str, ...]:
    """Return the paths, URLs and patterns of a source; none for an object."""
    if isinstance(source, str | os.PathLike):
        return (str(source),)
    several = source if isinstance(source, list | tuple) else ()
    alike = all(isinstance(one, str | os.PathLike) for one in several)
    return tuple(str(one) for one in several) if alike else ()


def shown(source: Source) -> str:
    """Return how messages name a source."""
    first, *more = addresses(source) or (f"the {type(source).__name__}",)
    return f"{first} and {len(more)} more" if more else first


@contextmanager
def open_table(
    source: Source, targets: Names, features: Names = (), beside: Names = ()
) -> Iterator[Table]:
    """Yield the table in a source; InputError if it is unreadable or none.

    ``features`` are those asked for, none for the default ones, and ``beside`` other columns.
    """
    with ExitStack() as stack:
        with reading(shown(source)):
            table = stack.enter_context(_opened(source, targets, features, beside))
        yield table


def _opened(
    source: Source, targets: Names, features: Names, beside: Names
) -> AbstractContextManager[Table]:
    given = addresses(source)
    if not given:
        return _of_object(source, targets)
    if len(given) == 1 and remote.in_repository(given[0]) is not None:
        return gridpoints.grid_file(given[0], targets)
    bases, places = zip(*map(_found, given), strict=True)
    folders = zip(*(base.split("/") for base in bases), strict=False)
    base = "/".join(own[0] for own in takewhile(lambda own: len({*own}) == 1, folders))
    files: dict[str, File] = {}
    for place in places:
        twice = next((file for file in place if file in files), None)
        if twice is not None:
            raise InputError(f"{twice} is given twice: give each file once")
        files |= {file: how._replace(base=base) for file, how in place.items()}
    one, *more = files
    reader = files[one].reader
    other = next((file for file in more if files[file].reader is not reader), None)
    if other is not None:
        raise InputError(
            f"{one} and {other} have different formats: convert files of one format at a time"
        )
    if not more:
        return files[one].table(one, targets)
    if reader is READERS[".nc"]:
        wanted = (*targets, *features, *beside)
        return gridpoints.combined_grids(tuple(files), targets, wanted, shown(source))
    return _joined(files, targets, whole=not features)


TABLES = (".parquet", ".csv", ".csv.gz", ".csv.bz2", ".csv.xz")
"""Formats of files that have columns in the names of their folders, too."""


class File(NamedTuple):
    """A file to read, and the folder ``base`` below which names of folders are default features."""

    reader: Reader
    path: str
    base: str = ""

    @contextmanager
    def table(self, file: str, targets: Names) -> Iterator[Table]:
        """Open the table in a file, with columns that the names of its folders give."""
        path = self.path if self.path.lower().endswith(TABLES) else ""
        below = tuple(name for name, _ in partitions.pairs_in(path.removeprefix(self.base)))
        with self.reader(file, targets) as table:
            yield partitions.with_pairs(table, partitions.pairs_in(path), below, file)


def _found(source: str) -> tuple[str, dict[str, File]]:
    """Return a folder, and below it the file at an address, or those of a pattern or in a folder.

    Files are sorted by their names.
    """
    fs, path = fsspec.core.url_to_fs(source, **(remote.options(source) or {}))
    fs.invalidate_cache()  # what other processes wrote since counts
    if not fs.exists(path):
        if not remote.is_pattern(source):
            raise InputError(f"source {source} does not exist: check the path")
        matched = fs.glob(path, detail=True)
        folders = {file for file, how in matched.items() if how["type"] == "directory"}
        if "**" in path:  # the files in them match, too
            zarr = READERS[".zarr"]
            matched = {f: 0 for f in matched if f not in folders or reader_by(f) is zarr}
        if not matched:
            raise InputError(f"no file matches {source}: check the pattern")
        found: dict[str, File] = {}
        for file in sorted(matched):
            known = reader_by(file)
            if file in folders and known in (None, READERS[".parquet"]):
                found |= _in_folder(fs, file, _address(fs, file), known)
            else:
                found[_address(fs, file)] = File(known or reader_of(file), file)
        return re.split(r"[*?\[]", path)[0].rpartition("/")[0], found
    known = reader_by(path)
    if fs.isdir(path) and known in (None, READERS[".parquet"]):
        folder = path.rstrip("/")
        return folder, _in_folder(fs, folder, source, known)
    return path.rpartition("/")[0], {source: File(known or reader_of(source), path)}


def _in_folder(fs: Any, folder: str, source: str, known: Reader | None) -> dict[str, File]:
    """Return the files in a folder and the folders in it; a Zarr group counts as one."""
    inside = {file.removeprefix(folder) for file in fs.find(folder)}
    names = sorted({re.sub(r"(\.zarr)/.*", r"\1", name) for name in inside})
    plain = [folder + name for name in names if not re.search(HIDDEN, name)]
    readers = {file: known or reader_by(file) for file in plain}
    found = {_address(fs, file): File(how, file) for file, how in readers.items() if how}
    if not found:
        raise InputError(
            f"no file in the folder {source} can be read: they must end in one of "
            + ", ".join(READERS)
        )
    return found


def _address(fs: Any, path: str) -> str:
    return path if isinstance(fs, LocalFileSystem) else str(fs.unstrip_protocol(path))


@contextmanager
def _joined(files: Mapping[str, File], targets: Names, whole: bool) -> Iterator[Table]:
    """Yield the table of the rows of many files, of which one at a time is open.

    ``whole`` says that all columns are read, so that no file may have more than the first.
    """
    begin = next(iter(files))
    with _named(begin, files[begin], targets) as first:
        pass

    def kinds(names: Names) -> dict[str, str]:
        known = dict.fromkeys(names, MISSING)
        for file, how in files.items():
            with _named(file, how, targets) as table:
                _compare(first.columns, table.columns, names, whole, (begin, file))
                for name, kind in table.kinds(names).items():
                    if MISSING not in (kind, known[name]) and kind != known[name]:
                        raise InputError(
                            f"column {name!r} of {file} holds {kind} but {known[name]} in the "
                            "files before it: correct it or leave the file out"
                        )
                    known[name] = known[name] if kind == MISSING else kind
        return known

    def blocks(kinds: Mapping[str, Kind], rows: int) -> Iterator[np.ndarray]:
        before = no_ends(len(kinds))
        for file, how in files.items():
            with _named(file, how, targets) as table:
                read = table.read(kinds, rows, file)
                yield from compared(read, kinds, before, file, "the files before")

    def levels(names: Names) -> dict[str, Names]:
        found: dict[str, set[str]] = {}
        for file, one in files.items():
            with _named(file, one, targets) as table:
                for name, own in table.levels(names).items():
                    found.setdefault(name, set()).update(own)
        return {name: tuple(sorted(own)) for name, own in found.items()}

    how: dict[str, Any] = {"matrices": first.matrices, "listing": first.listing, "levels": levels}
    how["unused"] = unused = _unused_in(files, targets, first) if whole else first.unused
    used = {*first.defaults, *first.unused} - {*unused}  # those unused in the first file alone, too
    defaults = tuple(name for name in first.columns if name in used)
    yield Table(first.columns, first.targets, defaults, kinds, blocks, **how)


def _unused_in(files: Mapping[str, File], targets: Names, first: Table) -> dict[str, str]:
    """Return the columns that are no features by default, those empty in every one of the files."""
    unused = dict(first.unused)
    for file, how in files.items():
        empty = [name for name, why in unused.items() if why.endswith(EMPTY)]
        if not empty:
            break
        with _named(file, how, targets) as table:
            for name in (name for name in empty if name in table.columns):
                if not table.unused.get(name, "").endswith(EMPTY):
                    del unused[name]
    return unused


@contextmanager
def _named(file: str, how: File, targets: Names) -> Iterator[Table]:
    """Open one of many files, whose own name errors of reading give."""
    with ExitStack() as stack:
        with reading(file):
            table = stack.enter_context(how.table(file, targets))
        yield table


def _compare(
    first: Names, columns: Names, names: Names, whole: bool, files: tuple[str, str]
) -> None:
    """Raise InputError for a file that lacks a column or, where all are read, has another."""
    lacking = [name for name in names if name not in columns]
    more = [name for name in columns if name not in first]
    if lacking:
        raise InputError(
            f"{files[1]} has no column {lacking[0]!r}, which {files[0]} has: correct it or "
            "leave the file out"
        )
    if more and whole:
        raise InputError(
            f"{files[1]} has a column {more[0]!r}, which {files[0]} does not have: name the "
            "features to "
            "use"
        )


def _of_object(source: Any, targets: Names) -> AbstractContextManager[Table]:
    """Open what holds columns with names: a data frame, an Arrow stream, a grid, a Zarr store."""
    what = shown(source)
    if grids.is_tree(source):
        source = grids.only_node(source, targets)
    if grids.is_xarray(source):
        return nullcontext(gridpoints.grid_table(grids.as_dataset(source), targets, what))
    if hasattr(source, "reset_index") and hasattr(source, "columns"):
        return tables.frame_table(source, targets)
    if hasattr(source, "__arrow_c_stream__"):
        return tables.arrow_table(source, targets)
    # that of an Icechunk session or a Zarr group; a store may hold one of another kind
    store = source if isinstance(source, Store) else getattr(source, "store", source)
    if isinstance(store, Store):
        group = "" if store is source else getattr(source, "path", "")  # a zip has one on disk
        return gridpoints.stored_grid(store, group, targets, what)
    raise InputError(
        f"source is a {type(source).__name__}: give the path or URL of a table or a grid, a "
        "data frame or an xarray object; for arrays, call fit, or write them by "
        "np.savez(path, X=X, y=y)"
    )
