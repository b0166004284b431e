"""Readers of one table, a file or an object in another format.

The only door to pandas and pyarrow. Each reader is a context manager that opens a source, checks
that it has the targets and yields a `Table`; it closes the source on leaving.
"""

import csv
import io
import itertools
import logging
import os
import re
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import fsspec
import numpy as np
import pandas as pd

from daskgp.data import grids
from daskgp.data.categories import Coding, levels_of_column, names_of
from daskgp.data.convert.table import (
    EMPTY,
    MISSING,
    NUMBERS,
    REMEDY,
    TIMES,
    WRITE_TIMES,
    Kind,
    Names,
    Other,
    Table,
    check_known,
    kind_of,
    reading,
    refusing,
)
from daskgp.data.reading import COMMAS, POINTS
from daskgp.data.stores import groups, remote
from daskgp.errors import InputError

logger: logging.Logger = logging.getLogger("daskgp")

WRITE_ROWS = 65_536
"""Rows of a csv that are written together."""
EARLIER = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
"""True for a pandas that rounds numbers of a csv and, at the start of a chunk, ignores fields
beyond the last of the header."""
EXACTLY: dict[str, Any] = {"float_precision": "round_trip"} if EARLIER else {}

HEAD_ROWS = 100
"""Rows of a csv that tell the kinds of its columns."""


def opened(source: str) -> Any:
    """Return a file, which may be compressed, to be opened by ``with``, with its options."""
    return fsspec.open(source, "rb", compression="infer", **(remote.options(source) or {}))


def frame(values: np.ndarray, names: list[str]) -> Any:
    """Return the data frame of columns of numbers."""
    return pd.DataFrame(values, columns=names)


@contextmanager
def csv_file(source: str, targets: Names) -> Iterator[Table]:
    """Yield the table in a csv, also a compressed one."""
    begin = _begin(source)
    given, repeated = _names(begin.names)
    # All columns are read: with usecols, pandas lets rows with too many fields pass.
    # low_memory would guess the type of a column piece by piece.
    how: dict[str, Any] = {"names": given + begin.beyond, "low_memory": False, **EXACTLY}
    how |= {"header": 0, "skiprows": begin.above}
    with opened(source) as file:
        head = pd.read_csv(file, nrows=HEAD_ROWS, **how)
    columns = tuple(given)
    check_known("target", targets, columns, source)
    unused = _all_unused(head[given], targets, _empty(source, head[given], targets, how))
    defaults = tuple(name for name in columns if name not in unused)

    def kinds(names: Names) -> dict[str, str]:
        _refuse_index(head, source, begin)
        twice = next((repeated[name] for name in names if name in repeated), None)
        if twice is not None:
            raise InputError(
                f"{source} has several columns named {twice!r}: give each a name of its own"
            )
        found = {name: _kind(head[name]) for name in columns}
        return refusing(source, found, targets)(names)

    def blocks(names: Mapping[str, Kind], rows: int) -> Iterator[np.ndarray]:
        zones = _Zones(source)
        _refuse_cut(source, begin)
        with opened(source) as file:  # evenly spaced numbers in front pass for an index of rows
            _refuse_wide(file, begin, source, None if EARLIER else HEAD_ROWS)
        with opened(source) as file, pd.read_csv(file, chunksize=rows, **how) as frames:
            for frame in frames:
                _refuse_index(frame, source, begin)
                start = int(frame.index[0]) if len(frame) else 0
                zones.look(frame, names, start)
                yield _of_frame(frame, names, source, start, targets)

    def levels(names: Names) -> dict[str, Names]:
        wanted = [name for name in names if name in columns and _is_text(head[name])]
        values: dict[str, set[Any]] = {name: set() for name in wanted}
        if wanted:
            with opened(source) as file, pd.read_csv(file, chunksize=WRITE_ROWS, **how) as frames:
                for frame in frames:
                    for name, own in values.items():
                        own.update(frame[name].dropna().unique())
        return _named(values)

    yield Table(columns, targets, defaults, kinds, blocks, unused=unused, levels=levels)


def _is_text(column: Any) -> bool:
    """Return whether a column of a frame may hold text that is neither numbers nor times."""
    return isinstance(_kind(column), Other)


def _named(values: Mapping[str, Iterable[Any]]) -> dict[str, Names]:
    """Return the levels of columns from their values, and nothing of those that have none."""
    found = {name: names_of(own) for name, own in values.items()}
    return {name: levels for name, levels in found.items() if levels is not None}


class _Begin(NamedTuple):
    """Beginning of a csv: lines above its header, and the names in it as they are written.

    ``beyond`` are names of fields that the rows have beyond those of the header: one that is empty,
    where they end with a comma, or none.
    """

    above: int
    names: list[str]
    beyond: list[str]


BEGIN_LINES = 50
"""Most lines of a csv that are looked at for its header."""


def _begin(source: str) -> _Begin:
    """Return how a csv begins; InputError if it is empty."""
    with reading(source), opened(source) as file:
        with io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
            rows = csv.reader(text)
            lines = [(rows.line_num, row) for row in islice(rows, BEGIN_LINES) if row]
        if not lines:
            raise pd.errors.EmptyDataError("No columns to parse from file")
        lines.append((0, []))
        pairs = enumerate(itertools.pairwise(row for _, row in lines))
        at = next((i for i, pair in pairs if not _is_above(*pair)), len(lines) - 2)
    names, first = lines[at][1], lines[at + 1][1]
    longer = len(first) == len(names) + 1 and not first[-1].strip()
    return _Begin(lines[at - 1][0] if at else 0, names, [BEYOND] * longer)


BEYOND = "beyond the header"
"""Name of an empty field behind the comma that ends a row."""


def _is_above(line: list[str], following: list[str]) -> bool:
    """Return whether a line is no header but a comment above it, or says what separates fields.

    A header may begin with "#", too; numbers or times follow it.
    """
    if line[0].startswith("sep=") and len(line) <= 2:
        return True
    return line[0].startswith("#") and bool(following) and not any(map(_is_value, following))


def _is_value(text: str) -> bool:
    """Return whether a field holds a number, a time or what stands for a missing one."""
    try:
        float(text)
    except ValueError:
        return text.strip() in MISSING_TEXTS or bool(re.match(ISO, text.strip()))
    return True


MISSING_TEXTS = ("NA", "N/A", "NULL", "null", "None")
"""Words for a missing value in a csv, beside NaN and nothing."""


UNNAMED = "Unnamed: "
"""Beginning of the names of columns without one, as pandas gives them."""
STORED_INDEX = r"__index_level_\d+__"
"""Pattern of the names of columns that pandas makes in Arrow of an index without one."""


def _names(written: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the names in a header without blanks and a leading "#", and those that repeat another.

    Those without a name are called as by pandas.
    """
    first, *others = (name.strip() for name in written)
    names: list[str] = []
    repeated: dict[str, str] = {}
    for j, name in enumerate((first.lstrip("#").strip(), *others)):
        own = name or f"{UNNAMED}{j}"
        while own in names:
            own = f"{own}.{j}"
            repeated |= {name: name, own: name}
        names.append(own)
    return names, repeated


def _empty(source: str, head: Any, targets: Names, how: Mapping[str, Any]) -> set[str]:
    """Return the columns of a csv, beside the targets, that hold nothing in any row."""
    found = {name for name in head.columns if len(head) and head[name].isna().all()}
    found -= {*targets}
    if not found:
        return found
    with opened(source) as file:
        for part in pd.read_csv(file, chunksize=WRITE_ROWS, usecols=[*found], **how):
            found -= {name for name in found if part[name].notna().any()}
            if not found:
                break
    return found


def _all_unused(head: Any, targets: Names, empty: Collection[str]) -> dict[str, str]:
    """Return the columns of a frame that are no features by default, with the reasons.

    Its first rows tell what they hold.  A column of an index with a name is kept if it is the only
    one.
    """
    others = [name for name in head if name not in targets]
    found = {name: why for name in others if (why := _unused(name, head[name], name in empty))}
    if INDEX in found and len(found) == len(others):
        del found[INDEX]
    return found


INDEX = "index"
"""Name of the column that ``reset_index`` of a data frame makes of an index without one."""


def _is_nameless(name: str) -> bool:
    """Return whether pandas gave a column its name, for want of one."""
    return name.startswith(UNNAMED) or bool(re.fullmatch(STORED_INDEX, name))


def _unused(name: str, values: Any, empty: bool) -> str:
    """Return why a column is no feature by default, from its first values; empty if it is one."""
    nameless = "has no name and " if _is_nameless(name) else ""
    if empty:
        return nameless + EMPTY
    if (not nameless and name != INDEX) or values.dtype.kind == "M":
        return ""
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    if not len(numbers) or not (numbers == np.floor(numbers)).all():
        return ""
    if numbers[0] in (0, 1) and (np.diff(numbers) == 1).all():
        return f"{nameless}numbers the rows"
    return (
        nameless
        and f"{nameless}holds whole numbers, as the index of a sorted or filtered table does"
    )


def header(source: str) -> list[str]:
    """Return the names of the columns of a csv as they are written; InputError without any."""
    return _begin(source).names


def write_beside(
    source: str,
    output: str,
    names: list[str],
    columns: Callable[[slice], np.ndarray],
    rows: int,
) -> None:
    """Write the rows of a csv as they are and new columns to another one, on this machine.

    ``names`` are those of all columns.  ``columns`` returns the values (n, ...) of the new ones in
    some of the ``rows``; NaN is left empty.  The output appears once it is whole.
    """
    ending = output[output.lower().rindex(".csv") :]
    part = f"{output[: -len(ending)]}.{uuid.uuid4().hex[:8]}{ending}"
    begin, start = _begin(source), 0
    text: dict[str, Any] = {"dtype": str, "keep_default_na": False, "chunksize": WRITE_ROWS}
    text |= {"header": 0, "skiprows": begin.above}
    text["names"] = range(len(begin.names) + len(begin.beyond))
    try:
        with opened(source) as file, pd.read_csv(file, **text) as frames:
            for frame in (part[range(len(begin.names))] for part in frames):
                values = columns(slice(start, start + len(frame))).reshape(len(frame), -1)
                whole = pd.concat([frame, pd.DataFrame(values, frame.index)], axis=1)
                whole.columns = pd.Index(names)
                with groups.writing(output, "the csv"):
                    whole.to_csv(part, index=False, header=not start, mode="a" if start else "w")
                start += len(frame)
        if start != rows:
            raise InputError(f"{source} has changed while it was predicted: predict it again")
        groups.refuse_file(output, "the csv")
        os.replace(part, output)
    finally:
        if os.path.exists(part):
            os.remove(part)


def _refuse_index(frame: Any, source: str, begin: _Begin) -> None:
    """Raise InputError for rows with more fields than the header has names, but for empty ones."""
    if not isinstance(frame.index, pd.RangeIndex) or frame[begin.beyond].notna().any(axis=None):
        raise InputError(f"rows of {source} have more fields than its header has names: correct it")


TAIL = 1 << 16
"""Bytes at the end of a csv that its last line is looked for in."""


def _refuse_cut(source: str, begin: _Begin) -> None:
    """Raise InputError for a csv that ends within a row, as one that is still being written does.

    pandas takes fields that a row lacks for missing values.  A quotation mark that may have begun
    in an earlier line is left to it.
    """
    with opened(source) as file:
        end = _end_of(file, source)
    lines = [line for line in end.splitlines() if line.strip()]
    if len(lines) < 2 or lines[-1].count('"') % 2:
        return
    fields, names = len(next(csv.reader(lines[-1:]))), len(begin.names)
    if fields < names:
        raise InputError(
            f"the last line of {source} has {fields} of {names} fields, as if it were cut "
            "off: complete the line, or remove it"
        )


def _end_of(file: Any, source: str) -> str:
    """Return the text at the end of a file, of one that is compressed by reading it all."""
    if source.lower().endswith(".csv"):
        file.seek(max(0, file.seek(0, io.SEEK_END) - TAIL))
        end = file.read()
    else:
        end = b""
        while piece := file.read(TAIL):
            end = (end + piece)[-TAIL:]
    return bytes(end).decode("utf-8", "replace")


def _refuse_wide(file: Any, begin: _Begin, source: str, most: int | None) -> None:
    width = len(begin.names) + len(begin.beyond)
    with io.TextIOWrapper(file, "utf-8", newline="") as text:
        rows = csv.reader(text)
        if any(len(row) > width for row in islice(rows, most) if rows.line_num > begin.above):
            raise InputError(
                f"rows of {source} have more fields than its header has names, the first in line "
                f"{rows.line_num}: correct it"
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


def _of_frame(
    frame: Any, kinds: Mapping[str, Kind], source: str, start: int, targets: Names
) -> np.ndarray:
    """Return columns of a frame that begins at row ``start`` of a source."""
    parts = []
    for name, kind in kinds.items():
        values, other = _parsed(frame[name], kind, start)
        if other:
            raise other.error(name, source, targets)
        parts.append(values)
    return np.stack(parts, axis=1)


def _parsed(column: Any, kind: Kind, start: int) -> tuple[np.ndarray, Other | None]:
    """Return the values of a column, times as days since 1970, and what else it holds."""
    if isinstance(kind, Coding):
        return kind.of(column.to_numpy()), None
    if kind == TIMES:
        values = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
        if column.dtype.kind == "O":  # a year or a number is no time
            values = values.where(column.astype(str).str.match(DATED))
        numbers = grids._as_float(values.dt.tz_localize(None).to_numpy())
    else:
        values = pd.to_numeric(column, errors="coerce")
        numbers = values.to_numpy(np.float64, na_value=np.nan)
    bad = np.flatnonzero(values.isna() & column.notna())
    if not len(bad):
        return numbers, None
    held, what = str(column.iloc[bad[0]]), "a time" if kind == TIMES else "numeric"
    remedy = WRITE_TIMES if kind == TIMES or _is_time(held) else REMEDY
    if kind != TIMES and names_of([held]):
        remedy += "; named among them, it is a category"
    if re.fullmatch(COMMAS, held.strip()):
        remedy = f"{POINTS}, or {REMEDY}"
    row = int(start + bad[0] + 1)
    dated = _is_time(held) or (kind == TIMES and re.search(r"\d", held))
    alone = len(bad) == 1 < len(column) and not dated
    return numbers, Other(f"is not {what}, row {row} holds {held!r}", remedy, row * alone)


ISO = r"\d{4}-\d\d(-\d\d([T ].*)?)?$"
"""Times as they are read from text; others leave it open which number is the month."""


DATED = r"\d{4}-\d\d|\d{8}"
"""Beginning of a text that is a time, once the first one of its column is."""
ZONED = r".*\d[T ].*(Z|[+-]\d\d:?\d\d)$"
"""Times that say their zone."""


class _Zones:
    """Columns of times of a source that have told their zones, as text does."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.seen: dict[str, bool | None] = {}

    def look(self, frame: Any, kinds: Mapping[str, Kind], start: int) -> None:
        """Warn once of a column in which some times, from row ``start`` on, have none."""
        for name, kind in kinds.items():
            if kind != TIMES or frame[name].dtype.kind != "O" or self.seen.get(name, True) is None:
                continue
            present = frame[name].notna().to_numpy()
            zoned = frame[name].astype(str).str.match(ZONED).to_numpy(bool)[present]
            if not len(zoned):
                continue
            first = self.seen.setdefault(name, bool(zoned[0]))
            if (zoned == first).all():
                continue
            row = start + int(np.flatnonzero(present)[np.argmax(zoned != first)]) + 1
            self.seen[name] = None
            logger.warning(
                "column %r of %s has times with and without a time zone (row %d is the first "
                "%s one), and those without are read as UTC: write the time zone of all of "
                "them",
                *(name, self.source, row, "without" if first else "with"),
            )


def _is_time(text: str) -> bool:
    """Return whether text is a date or a time of day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns of a format that it has to guess
        parsed = pd.to_datetime(text, errors="coerce")
    return bool(re.search(r"\d[-/:]\d|\d\.\d+\.\d", text)) and not pd.isna(parsed)


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
    head = source.partitions[0].compute() if lazy else source
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{what} has several columns named {twice!r}: give each a name of its own")
    found = [_kind(head[name]) for name in source.columns]
    kinds = refusing(what, dict(zip(columns, found, strict=True)), targets)
    none = [name for name in source.columns if len(head) and head[name].isna().all()]
    if lazy and none:
        some = source[none].count().compute()
        none = [name for name in none if not some[name]]
    empty = tuple(str(name) for name in none)
    unused = _all_unused(head.set_axis(columns, axis=1), targets, empty)

    def blocks(names: Mapping[str, Kind], rows: int) -> Iterator[np.ndarray]:
        begun, zones = 0, _Zones(what)
        for part in source.partitions if lazy else (source,):
            frame = (part.compute() if lazy else part).set_axis(columns, axis=1)
            for start in range(0, len(frame), rows):
                block = frame[start : start + rows]
                zones.look(block, names, begun + start)
                yield _of_frame(block, names, what, begun + start, targets)
            begun += len(frame)

    def levels(names: Names) -> dict[str, Names]:
        called = dict(zip(columns, source.columns, strict=True))
        wanted = [name for name in names if name in called and _is_text(head[called[name]])]
        found = {name: levels_of_column(source[called[name]]) for name in wanted}
        return {name: own for name, own in found.items() if own is not None}

    rows = None if lazy else len(source)
    defaults = tuple(name for name in columns if name not in unused or name in targets)
    more: dict[str, Any] = {"rows": rows, "unused": unused, "levels": levels}
    yield Table(columns, targets, defaults, kinds, blocks, **more)


@contextmanager
def arrow_table(source: Any, targets: Names) -> Iterator[Table]:
    """Yield the table of whatever exports an Arrow stream: an Arrow table, a Polars frame."""
    import pyarrow as pa

    what, reader = f"the {type(source).__name__}", pa.RecordBatchReader.from_stream(source)
    columns = tuple(reader.schema.names)
    check_known("target", targets, columns, what)

    batches = (batch for batch in reader if batch.num_rows)
    indices = _indices(columns)
    begin = list(islice(batches, 1 if indices else 0))

    def blocks(names: Mapping[str, Kind], rows: int) -> Iterator[np.ndarray]:
        for batch in itertools.chain(begin, batches):
            for start in range(0, batch.num_rows, rows):
                yield _of_batch(batch.slice(start, rows), names)

    def levels(names: Names) -> dict[str, Names]:
        if isinstance(source, pa.RecordBatchReader):  # which is read once
            return {}
        again = pa.RecordBatchReader.from_stream(source)
        return _levels_in(again, again.schema, names)

    found = _arrow_kinds(reader.schema)
    empty = {*_typeless(found), *_no_values(source)} - {*targets}
    first = pa.Table.from_batches([batch.slice(0, HEAD_ROWS) for batch in begin], reader.schema)
    unused = _all_unused(_head(first.select(indices), columns), targets, empty)
    defaults = tuple(name for name in columns if name not in unused)
    kinds = refusing(what, found, targets)
    more: dict[str, Any] = {"unused": unused, "levels": levels}
    yield Table(columns, targets, defaults, kinds, blocks, **more)


def _levels_in(batches: Iterable[Any], schema: Any, names: Iterable[str]) -> dict[str, Names]:
    """Return the levels of columns of text of Arrow batches with a schema."""
    wanted = [name for name in names if name in schema.names and _holds_text(schema.field(name))]
    values: dict[str, set[Any]] = {name: set() for name in wanted}
    for batch in batches if wanted else ():
        for name, own in values.items():
            own.update(batch.column(name).unique().to_pylist())
    return _named(values)


def _holds_text(entry: Any) -> bool:
    """Return whether a field of an Arrow schema holds text, or categories that are text."""
    import pyarrow.types as of

    type = entry.type.value_type if of.is_dictionary(entry.type) else entry.type
    return of.is_string(type) or of.is_large_string(type) or str(type) == "string_view"


def _typeless(kinds: Mapping[str, str | Other]) -> Names:
    """Return the columns whose type says that they hold nothing."""
    return tuple(name for name, kind in kinds.items() if kind == MISSING)


def _no_values(source: Any) -> Names:
    """Return the columns of an Arrow table or a Polars frame without any value; none of others."""
    import pyarrow as pa

    if type(source).__module__.startswith("polars."):
        source = pa.table(source)
    if not isinstance(source, pa.Table) or not source.num_rows:
        return ()
    nulls = zip(source.column_names, source.columns, strict=True)
    return tuple(name for name, values in nulls if values.null_count == source.num_rows)


@contextmanager
def parquet_file(source: str, targets: Names) -> Iterator[Table]:
    """Yield the table in a parquet file."""
    from pyarrow import dataset

    fs, path = fsspec.core.url_to_fs(source, **(remote.options(source) or {}))
    data = dataset.dataset(path, filesystem=fs, format="parquet")
    columns = tuple(data.schema.names)
    check_known("target", targets, columns, source)

    def blocks(names: Mapping[str, Kind], rows: int) -> Iterator[np.ndarray]:
        batches = data.to_batches(
            columns=list(names), batch_size=rows, batch_readahead=1, fragment_readahead=1
        )
        for batch in batches:
            yield _of_batch(batch, names)

    found, rows = _arrow_kinds(data.schema), data.count_rows()
    empty = _typeless(found) + _nulls(data)
    head = _head(data.head(HEAD_ROWS, columns=_indices(columns)), columns)
    unused = _all_unused(head, targets, empty)
    defaults = tuple(name for name in columns if name not in unused)

    def levels(names: Names) -> dict[str, Names]:
        wanted = [name for name in names if name in columns]
        wanted = [name for name in wanted if _holds_text(data.schema.field(name))]
        batches = data.to_batches(columns=wanted) if wanted else ()
        return _levels_in(batches, data.schema, wanted)

    kinds = refusing(source, found, targets)
    more: dict[str, Any] = {"rows": rows, "unused": unused, "levels": levels}
    yield Table(columns, targets, defaults, kinds, blocks, **more)


def _indices(columns: Names) -> list[str]:
    """Return the columns that may be an index of rows."""
    return [name for name in columns if name == INDEX or _is_nameless(name)]


def _head(few: Any, columns: Names) -> Any:
    """Return a frame of all columns from an Arrow table of a few of them, the others empty."""
    return few.to_pandas(ignore_metadata=True).reindex(columns=columns)


def _nulls(data: Any) -> Names:
    """Return the columns of parquet files that their statistics call missing in all rows."""
    held: dict[str, bool] = {}
    for fragment in data.get_fragments():
        for group in (
            fragment.metadata.row_group(i) for i in range(fragment.metadata.num_row_groups)
        ):
            for column in (group.column(j) for j in range(group.num_columns)):
                said, name = column.statistics, column.path_in_schema
                known = said is not None and said.has_null_count
                null = known and said.null_count == group.num_rows
                held[name] = held.get(name, False) or not null
    return tuple(name for name, values in held.items() if not values)


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
        remedy = WRITE_TIMES if of.is_time(type) else REMEDY
        if of.is_string(type) or of.is_large_string(type) or str(type) == "string_view":
            remedy = f"if it holds times, cast it to timestamps, or {REMEDY}"
        return Other(f"has type {name}, not numbers", remedy)

    return {entry.name: kind(entry.type) for entry in schema}


def _of_batch(batch: Any, names: Mapping[str, Kind]) -> np.ndarray:
    import pyarrow as pa

    def numbers(values: Any, kind: Kind) -> np.ndarray:
        if isinstance(kind, Coding):
            return kind.of(np.array(values.to_pylist(), object))
        if not pa.types.is_temporal(values.type):
            values = values.cast(pa.float64(), safe=False)
        return grids._as_float(values.to_numpy(zero_copy_only=False))

    return np.stack([numbers(batch.column(name), kind) for name, kind in names.items()], axis=1)


@contextmanager
def npz_file(source: str, targets: Names) -> Iterator[Table]:
    """Yield the table in the arrays of an npz."""
    with opened(source) as file, np.load(file, allow_pickle=False) as arrays:
        headers = {name: _npz_header(arrays, name) for name in arrays.files}
        shapes = {name: shape for name, (shape, _) in headers.items()}
        places, outputs, defaults, matrices = _npz_columns(shapes, targets)
        listing = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        check_known("target", outputs, places, source)

        def blocks(names: Mapping[str, Kind], rows: int) -> Iterator[np.ndarray]:
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

        found = {column: kind_of(headers[key][1]) for column, (key, _) in places.items()}
        kinds = refusing(source, found, outputs)
        how: dict[str, Any] = {"matrices": matrices, "listing": listing}
        how["rows"] = shapes[places[outputs[0]][0]][0] if outputs else None
        yield Table(tuple(places), outputs, defaults, kinds, blocks, **how)


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
