"""Training rows wherever they are stored: Zarr datasets, arrays in memory, dask and xarray objects.

A task reads its own rows: ``Rows`` is a small value that travels to the workers, and raw
rows are never the output of a task.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, TypeAlias

import dask
import dask.array as da
import numpy as np
import zarr
from zarr.storage import LocalStore

from daskgp.checks import shown
from daskgp.data import categories, crs, feature_units, grids, reading, valid, writers
from daskgp.data.categories import CATEGORIES, Levels
from daskgp.data.partition import default_block_rows
from daskgp.data.stores import groups, remote
from daskgp.data.stores.groups import chunk_rows, row_step
from daskgp.errors import InputError, StoreError
from daskgp.likelihoods.intervals import inside
from daskgp.models import fills
from daskgp.models.columns import Columns, chosen
from daskgp.typing import Path

logger: logging.Logger = logging.getLogger("daskgp")

CONVERTIBLE = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz", ".parquet", ".npz", ".nc", ".tif", ".tiff")
"""Suffixes of the files that ``daskgp convert`` reads."""

Y_VARIANCE, WEIGHT = writers.NOISE
"""Arrays of a dataset store: error variance of each row, in units of y squared, and its weight."""
GIVEN = {Y_VARIANCE: "y_variance", WEIGHT: "sample_weight"}
"""Names of the arguments of ``fit`` that these arrays come from."""
COLUMNS = dict(
    zip(writers.COLUMNS, ("binomial", "poisson", "poisson", "censored", "censored"), strict=True)
)
"""Numbers of each row that likelihoods take beside y, and a likelihood that does."""
BOUNDS = "lower", "upper"
ARGUMENTS = {**GIVEN, **dict(zip(COLUMNS, COLUMNS, strict=True))}
"""Names of all arguments of ``fit`` that arrays (n,) come from."""
Beside: TypeAlias = Mapping[str, Any]
"""Columns of rows beside y, by their names in a store: see ``rows_of``."""


REFERENCE = "crs"
"""Attribute of a dataset store, and of a model, with what says its coordinate reference system."""
UNITS = "target_units"
"""Attribute of a dataset store with the units of its targets."""

FEATURE_UNITS = "feature_units"
"""Attribute of a dataset store with the units of its features: "" where they are not known, and
"days since 1970-01-01" or the like of times."""

DESCRIBED = {"X": ("feature_names", FEATURE_UNITS), "y": ("target_names", UNITS)}
"""Attributes that describe the columns of an array, one entry for each."""

GEOGRAPHIC = "geographic"
"""Attribute of a dataset store with the names of its columns of longitude and latitude."""

PASSING = "passing"
"""Attribute of a dataset store that is removed with the fit that wrote it."""

MOST_CHUNKS = 1_000_000
"""Most chunks of a dataset, each of which is a task of a graph."""

MIN_CHUNK_BYTES = 1 << 20
"""Least bytes of a chunk of X that is written, unless smaller blocks are wanted."""


def named_beside(*, y_variance: Any = None, sample_weight: Any = None, **columns: Any) -> Beside:
    """Return what arguments of ``fit`` say that rows have beside y, by its names in a store."""
    return {Y_VARIANCE: y_variance, WEIGHT: sample_weight, **columns}


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of X (n, d) and y (n,) or (n, p), read slice by slice.

    ``X`` and ``y`` are NumPy or Zarr arrays; ``chunks`` are the row counts that are read
    whole, in order, or None where any cut will do.  With an ``identity``, that of a store which
    no longer changes, decoded chunks are cached for the slices that follow.  ``passing`` rows are
    in a store that is removed with the fit that wrote it.  ``target_units`` and ``feature_units``
    are empty where they are not known.  ``y_variance`` and ``weight`` (n,) are there if rows have
    noise variances of their own: y_variance + s / weight, with s that of a row of weight 1 whose
    error is not known; joint targets may have a y_variance (n, p).  ``geographic`` are the columns
    with longitude and latitude, if any, and ``trend`` those that ``read`` appends to y for a trend
    that is integrated over, if there is one.
    ``fills`` are the values of each column of X, then of y, that are read as missing, if any are.
    ``beside`` (n,) are numbers that a likelihood takes, by their names in ``COLUMNS``, and
    ``categories`` the levels of features that are categories, by the names of these.
    ``reference`` says the coordinate reference system of the places, if it is known.
    """

    X: Any
    y: Any
    chunks: tuple[int, ...] | None
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    identity: str | None = None
    passing: bool = False
    target_units: tuple[str, ...] = ()
    feature_units: tuple[str, ...] = ()
    y_variance: Any = None
    weight: Any = None
    geographic: tuple[int, int] | None = None
    trend: tuple[int, ...] | None = None
    fills: fills.Fills = ()
    beside: Mapping[str, Any] = field(default_factory=dict)
    categories: Levels = field(default_factory=dict)
    reference: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def columns(self) -> Columns:
        """Columns of X, and of the inputs that ``read`` returns."""
        levels = tuple(self.categories.get(name, ()) for name in self.feature_names)
        return Columns(self.feature_names, self.geographic, levels=levels if any(levels) else ())

    @property
    def n_features(self) -> int:
        """Number of columns of the inputs that ``read`` returns."""
        return len(self.columns)

    @property
    def n_targets(self) -> int:
        """Number of columns of y, 1 for a vector."""
        return 1 if self.y.ndim == 1 else int(self.y.shape[1])

    @property
    def noise_from(self) -> int:
        """First column of noise among those that ``read`` returns of y."""
        return self.n_targets + len(self.trend or ())

    @property
    def n_sides(self) -> int:
        """Most columns of y in a block: targets, columns of a trend and its constant."""
        return self.noise_from + (self.trend is not None)

    def said(self) -> dict[str, Any]:
        """Return the attributes of a store that describe its columns."""
        names = {"feature_names": [*self.feature_names], "target_names": [*self.target_names]}
        place = [self.feature_names[j] for j in self.geographic or ()]
        units = {UNITS: [*self.target_units], FEATURE_UNITS: [*self.feature_units]}
        more: dict[str, Any] = {**units, GEOGRAPHIC: place}
        more[CATEGORIES] = {name: [*levels] for name, levels in self.categories.items()}
        more[REFERENCE] = dict(self.reference)
        return names | {name: said for name, said in more.items() if said}

    @property
    def arrays(self) -> dict[str, Any]:
        """All arrays, by their names in a store."""
        named = {"X": self.X, "y": self.y, Y_VARIANCE: self.y_variance, WEIGHT: self.weight}
        return {name: a for name, a in named.items() if a is not None} | {**self.beside}

    @property
    def width(self) -> int:
        """Number of columns that ``raw`` returns of y."""
        return self.n_targets + self.n_noise + len(self.beside)

    @property
    def n_noise(self) -> int:
        """Number of columns that ``read`` appends to y: weight and error variances, or none."""
        if self.y_variance is None and self.weight is None:
            return 0
        return 1 + (1 if self.y_variance is None else math.prod(self.y_variance.shape[1:]))

    def with_arrays(self, arrays: Mapping[str, Any], **more: Any) -> Rows:
        """Return the rows with other arrays, by their names in a store."""
        chosen: dict[str, Any] = {name: arrays.get(name) for name in ("X", "y", *GIVEN)}
        beside = {name: arrays[name] for name in COLUMNS if name in arrays}
        return replace(self, **chosen, beside=beside, **more)

    def with_other_y(self, y: Any, **more: Any) -> Rows:
        """Return the rows with other numbers as y, which have no fill values."""
        none: fills.Fills = ((),) * self.n_targets if self.fills else ()
        own = self.fills[: len(self.feature_names)] + none
        return self.with_arrays({**self.arrays, "y": y}, fills=own, **more)

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Read the rows from start to stop, as inputs (r, n_features) and y (r, p).

        y has more columns: those of X that a trend has, then, of rows with noise variances of their
        own, weight and y_variance.  A row of weight 0 misses its y.
        """
        return self.as_inputs(*self.raw(start, stop))

    def as_inputs(self, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what ``read`` does of what ``raw`` returned."""
        y = y[:, : y.shape[1] - len(self.beside)]
        if self.trend:
            p = y.shape[1] - self.n_noise
            y = np.concatenate([y[:, :p], X[:, self.trend], y[:, p:]], axis=1)
        return self.columns.inputs(X), y

    def raw(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return what ``read`` does without a trend, but X (r, d) as it is stored.

        y also has the columns ``beside``, last; a row that misses one of them misses its y.  A
        bound that is missing leaves its side open, and y is known where both are.  A y that is
        missing is a number between the bounds that there are.
        """
        X, y, parts = self._with_noise(start, stop)
        return X, with_columns(y, {name: parts[name] for name in self.beside})

    def beside_in(self, y: np.ndarray) -> dict[str, np.ndarray]:
        """Return the numbers (r,) that a likelihood takes, in y as ``raw`` returned it."""
        columns = y[:, y.shape[1] - len(self.beside) :].T
        return dict(zip(self.beside, columns, strict=True))

    def _with_noise(
        self, start: int, stop: int
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Return X, y with columns of noise, and the values of all arrays by name."""
        parts = {name: self.values(name, start, stop) for name in self.arrays}
        X, y = parts["X"], _in_columns(parts["y"])
        if not self.n_noise:
            return X, y, parts
        weight, error = (
            _in_columns(parts[name]) if name in parts else np.full((len(y), 1), default)
            for name, default in ((WEIGHT, 1.0), (Y_VARIANCE, 0.0))
        )
        columns = np.column_stack([y, weight, error]).astype(np.float64, copy=False)
        columns[weight[:, 0] == 0] = np.nan
        return X, columns, parts

    def values(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read the rows from start to stop of an array, by its name in a store."""
        array, rows = self.arrays[name], slice(start, stop)
        if self.identity is None or isinstance(array, reading.Repeated):
            values = reading.read(array, rows)
        else:
            store = f"{self.identity}-{len(self)}"  # which grows, and its last chunk changes
            values = reading.read_held(array, rows, (store, _place(name, array)))
        d = len(self.feature_names)
        own = {"X": self.fills[:d], "y": self.fills[d:]}.get(name)
        if not own:
            return values
        return fills.without(_in_columns(values), own).reshape(values.shape)

    def parted(self, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        """Return what ``raw`` returned as values of the arrays, by their names in a store."""
        p = self.n_targets
        values = {"X": X, "y": y[:, :p]}
        if self.n_noise:
            values |= {WEIGHT: y[:, p], Y_VARIANCE: y[:, p + 1 : p + self.n_noise]}
        values |= self.beside_in(y)
        arrays = self.arrays.items()
        return {name: values[name].reshape(len(y), *a.shape[1:]) for name, a in arrays}

    def held_here(self) -> Rows:
        """Return the rows with their arrays in this process's memory."""
        return self.with_arrays(
            {name: reading.all_of(a) for name, a in self.arrays.items()}, identity=None
        )


def _in_columns(values: np.ndarray) -> np.ndarray:
    """Return values (r, ...) as columns (r, k), of no rows too."""
    return values.reshape(len(values), math.prod(values.shape[1:]))


def _place(name: str, array: Any) -> str:
    """Return what tells an array of rows from others: X is known by its store."""
    outside = name != "X" and isinstance(array, zarr.Array)
    return remote.address(array) if outside else name


def open_dataset(url: Path) -> tuple[da.Array, da.Array]:
    """Open a dataset store lazily.

    Parameters
    ----------
    url : str or path
        Zarr group with arrays ``X`` (n, d) and ``y`` (n,) or (n, p) in the same chunks of
        rows; a local path or any fsspec URL.

    Returns
    -------
    X, y : dask arrays
        With the chunks of the store; an estimator recognises them and reads the store itself.

    Raises
    ------
    StoreError
        If there is no such store, an array is missing, has the wrong dimensions or no numbers,
        or if the rows of X and y differ in number or in chunks.

    Examples
    --------
    >>> import os, tempfile, numpy as np, daskgp
    >>> folder = tempfile.TemporaryDirectory()
    >>> arrays, store = os.path.join(folder.name, "t.npz"), os.path.join(folder.name, "t.zarr")
    >>> np.savez(arrays, X=np.arange(6.0).reshape(3, 2), y=np.arange(3.0))
    >>> _ = daskgp.convert(arrays, store, target="y")
    >>> X, y = daskgp.open_dataset(store)
    >>> X.shape, y.compute()
    ((3, 2), array([0., 1., 2.]))
    >>> folder.cleanup()
    """
    X, y = dataset_arrays(str(url))
    for array in (X, y):
        warn_of_lost(array)
    return _as_dask(X), _as_dask(y)


def open_inputs(url: Path, features: Sequence[str] = ()) -> da.Array:
    """Open the ``X`` of a dataset store lazily; the store needs no ``y``.

    ``features`` are the columns that a table has to be converted with, where they have names.
    """
    named, listed = tuple(features) != unnamed(len(features)), ",".join(features)
    options = f" --features {shlex.quote(listed)}" if named else ""
    group = _open_complete(str(url), options)
    return _as_dask(_numeric_array(group, "X", str(url), (2,)))


def is_dataset(url: str) -> bool:
    """Return whether a dataset store is at a URL, complete or not."""
    try:
        return groups.holds_rows(groups.open_group(url, "dataset"))
    except StoreError:
        return False


def _as_dask(array: zarr.Array[Any]) -> da.Array:
    """Return a dask array in the chunks of a store; a rewritten store gets another name."""
    group = groups.parent_of(array)
    identity = {} if group is None else group.attrs.asdict()
    url = remote.address(array)
    try:
        token = dask.base.tokenize(url, array.metadata.to_dict(), identity)
    except RecursionError as error:
        raise StoreError(
            f"{url} is damaged, its attributes are nested too deep: convert its "
            "source again, or check the path"
        ) from error
    chunks = (row_step(array), *array.shape[1:])
    return reading.from_zarr(array, chunks, f"dataset-{token}")


def warn_of_lost(array: zarr.Array[Any]) -> None:
    """Warn of chunks on disk that are absent and read as a number; buckets are not asked."""
    fill = array.fill_value
    if np.dtype(array.dtype).kind != "f":
        return
    if fill is not None and np.isnan(fill):  # reads as missing, which is said
        return
    lost, number = _lost(array)
    if lost:
        logger.warning(
            "%s lacks %d of %d chunks, whose rows read as %g: write them again if they are lost; "
            'an array made with fill_value=float("nan") reads lost chunks as missing values',
            *(remote.address(array), lost, number, fill or 0),
        )


def _lost(array: zarr.Array[Any]) -> tuple[int, int]:
    """Return how many chunks on disk are absent, of how many; buckets are not asked."""
    if not isinstance(array.store, LocalStore):
        return 0, 0
    sizes, folder = groups.written_together(array), os.path.join(array.store.root, array.path)
    grid = [-(-n // size) for n, size in zip(array.shape, sizes, strict=True)]
    keys = map(array.metadata.encode_chunk_key, itertools.product(*map(range, grid)))
    # of a million chunks, so no paths of pathlib
    return sum(not os.path.exists(f"{folder}/{key}") for key in keys), math.prod(grid)


def refuse_lost(rows: Rows, usable: float) -> None:
    """Raise InputError if no rows are usable and some of their chunks are absent on disk."""
    for array in () if usable else rows.arrays.values():
        lost, number = _lost(array) if is_zarr(array) else (0, 0)
        if lost:
            raise InputError(
                f"no usable rows: {remote.address(array)} lacks {lost} of {number} chunks, which "
                "read as missing values: write them again if they are lost, or give rows with "
                "values"
            )


def with_columns(y: np.ndarray, beside: Beside) -> np.ndarray:
    """Return y, with what noise it has, and numbers (n,) beside it as ``Rows.raw`` returns them."""
    if not beside:
        return y
    own = np.column_stack([np.asarray(values).reshape(len(y)) for values in beside.values()])
    y, own = y.astype(np.float64), own.astype(np.float64)
    names = [*beside]
    if {*BOUNDS} <= {*names}:
        both = [names.index(name) for name in BOUNDS]
        own[:, both] = _opened(own[:, both], y[:, :1])
        between = np.isnan(y[:, 0]) & ~np.isnan(y[:, 1:]).any(axis=1)  # of weights above 0
        y[:, 0] = np.where(between, inside(*own[:, both].T), y[:, 0])
    y[np.isnan(own).any(axis=1)] = np.nan
    return np.concatenate([y, own], axis=1)


def _opened(bounds: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return bounds (n, 2) without missing ones, given y (n, 1)."""
    missing = np.isnan(bounds)
    sides = np.where(missing.all(axis=1, keepdims=True), y, [-np.inf, np.inf])
    return np.where(missing, sides, bounds)


def warn_of_packed(X: Any = None, features: Sequence[str] = (), **beside: Any) -> None:
    """Warn of whole numbers in xarray objects and Zarr arrays that their attributes unpack.

    Those of files are unpacked as they are read.  Of a grid X the ``features`` are looked at, by
    default those that it has.
    """
    parts = {name: reading.behind(values) for name, values in beside.items()}
    if grids.is_xarray(X) and not grids.is_table(X):
        names = features or grids.default_features(X)
        parts |= {name: X[name] for name in names if name in {*X.coords, *grids.as_dataset(X)}}
    else:
        parts["X"] = reading.behind(X)
    valid.warn_of_packed({k: v for k, v in parts.items() if is_zarr(v) or grids.is_xarray(v)})


def _open_complete(url: str, options: str = "") -> zarr.Group:
    """Open the group of a dataset store; StoreError if its writer did not finish."""
    try:
        group = groups.open_group(url, "dataset")
    except StoreError as error:
        end = next((end for end in CONVERTIBLE if str(url).lower().endswith(end)), None)
        if end is None or not groups.exists(url):
            raise
        raise StoreError(
            f"{url} is not a dataset store: convert it first: daskgp convert {url} "
            f"{str(url)[: -len(end)]}.zarr{options}"
        ) from error
    groups.refuse_model(url, group.attrs)
    if writers.APPENDING in group.attrs:
        raise StoreError(
            f"rows are being added to dataset {url}: wait until they are written, or, if their "
            "writer was stopped, repeat its command (daskgp convert ... --append)"
        )
    if group.attrs.get("complete") is False:  # stores of other software do not say
        raise StoreError(
            f"dataset {url} is incomplete: wait until it is written, or, if its writer was "
            "stopped, finish it and set its attribute complete to true, or remove it and convert "
            "again"
        )
    return group


def dataset_arrays(url: str, number: int | None = None) -> tuple[zarr.Array[Any], zarr.Array[Any]]:
    """Open and check the Zarr arrays X and y of a dataset store.

    With a ``number`` they are its first rows, and others may be being added.
    """
    group = _open_complete(url, " --target NAME")
    names = groups.names_in(url)
    if "X" in names and "y" not in names:
        raise StoreError(
            f"dataset {url} has no y, only X for predictions: convert its source with --target NAME"
        )
    X, y = _numeric_array(group, "X", url, (2,)), _numeric_array(group, "y", url, (1, 2))
    if number is not None:
        X, y = (groups.first_rows(array, number) for array in (X, y))
    check_aligned({"X": X, "y": y}, f"dataset {url}")
    return X, y


def check_aligned(arrays: Mapping[str, zarr.Array[Any]], what: str) -> None:
    """Raise StoreError unless arrays have the same rows as X in the same chunks."""
    rows, step = arrays["X"].shape[0], row_step(arrays["X"])
    for name, a in arrays.items():
        if a.shape[0] != rows:
            raise StoreError(f"{what}: X has {rows} rows but {name} has {a.shape[0]}")
        if row_step(a) != step:
            raise StoreError(
                f"{what}: X has chunks of {step} rows but {name} of {row_step(a)}: "
                "rewrite it with equal chunks, for example with `daskgp convert`"
            )
    for name, a in arrays.items():
        width = (a.shards or a.chunks)[1:]
        if width < a.shape[1:]:
            raise StoreError(
                f"{what}: chunks of {name} hold {width[0]} of {a.shape[1]} columns: keep rows whole"
            )


def _numeric_array(
    group: zarr.Group, name: str, url: str, ndim: tuple[int, ...]
) -> zarr.Array[Any]:
    try:
        array = group[name]
    except KeyError as error:
        names = groups.names_in(url)
        if name in names:
            raise StoreError(
                f"dataset {url} is damaged: array {name!r} lacks its zarr.json: convert again"
            ) from error
        held = ", ".join(sorted(names)) or "no arrays"
        raise StoreError(f"dataset {url} has no array {name!r}: it holds {held}") from error
    except Exception as error:  # each kind of damage has its own type
        reason = groups.first_line(error)
        raise StoreError(f"dataset {url}: cannot read array {name!r}: {reason}") from error
    if not isinstance(array, zarr.Array):
        raise StoreError(f"dataset {url}: {name!r} is a group, an array is needed")
    if np.dtype(array.dtype).kind not in groups.NUMERIC:
        raise StoreError(
            f"dataset {url}: array {name!r} has type {array.dtype}, but numbers are needed"
        )
    if array.ndim not in ndim:
        wanted = " or ".join(str(k) for k in ndim)
        raise StoreError(f"dataset {url}: array {name!r} has {array.ndim} dimensions, not {wanted}")
    _check_chunks(array, f"dataset {url}: array {name!r}")
    return array


def _check_chunks(array: zarr.Array[Any], what: str) -> None:
    """Raise StoreError if the chunks are too many or too large to work through."""
    rows, step = array.shape[0], row_step(array)
    if step < 1 or rows // step > MOST_CHUNKS:
        raise StoreError(
            f"{what} has {rows} rows in chunks of {step}: rewrite it with at most "
            f"{MOST_CHUNKS:,} chunks"
        )
    at_once = math.prod((min(rows, step), *array.shape[1:])) * array.dtype.itemsize
    groups.refuse_larger(at_once, f"{what} has chunks that are too large")


def rows_of(
    X: Any,
    y: Any,
    spill: str | None,
    shared_memory: bool,
    block_rows: int | None = None,
    beside: Beside | None = None,
    geographic: Any = None,
    columns: Sequence[str] = (),
    known: Levels | None = None,
    joint: bool = False,
) -> Rows:
    """Return the rows of whatever ``fit`` was given.

    Parameters
    ----------
    X, y : NumPy, Zarr, dask or xarray objects, data frames, sequences
        Dask arrays over a Zarr store are read from that store.
    spill : str or None
        URL of a store that other dask arrays, and in-memory rows that must reach other
        processes, are written to once.  With None nothing is written: the rows have the chunks
        they would have, but tasks cannot read them.
    shared_memory : bool
        Whether tasks see this process's arrays, so that they can stay where they are.
    block_rows : int, optional
        Most rows of a chunk that is written; default from the number of rows.
    beside : mapping of str to objects as y, numbers, or False, optional
        What each row has beside y, or all rows have, by its name in a store: error variance and
        weight, and numbers of ``COLUMNS``.  Those that are None or not there are taken from the
        store that y lies in, if it has them; False leaves one out.
    geographic : pair of str or int, False or None
        Columns of longitude and latitude; False for none, None for those that X says.
    columns : sequence of str
        Those of ``COLUMNS`` that are taken from the store of y.
    known : mapping, optional
        Levels of features by which text is coded; default those that are in it.
    joint : bool
        Whether each target may have error variances of its own.
    """
    levels: Levels = {}
    if grids.is_xarray(X):
        levels = grids.text_levels(X) if known is None else known
    elif reading.has_columns(X):
        X, levels = categories.coded(X, known)
    given = {name: a for name, a in (beside or {}).items() if a is not None}
    reading.refuse_other_order(X, y=y, **{ARGUMENTS[name]: a for name, a in given.items()})
    asked = [name for name in (*GIVEN, *columns) if name not in given]
    stored = beside_in_store(y, asked) if asked else {}  # which may be far away
    taken = {name: a for name, a in (stored | given).items() if a is not False}
    rows = _rows_of(X, y, taken, spill, shared_memory, block_rows, levels, joint)
    said, units = _said_behind(X, "X"), target_units(y)  # of the store, which may be far away
    told = None if geographic is False else place_of(X, said)
    place = chosen(geographic, rows.feature_names, told)
    units = units if len(units) == rows.n_targets else ()
    own = units_of(X, rows.feature_names, said)
    feature_units.refuse_no_degrees(rows.feature_names, own, place or ())
    if grids.is_xarray(X):
        own = tuple(map(feature_units.counted, own))
    passing = rows.passing or said.get(PASSING) is True
    levels = levels or levels_of(X, rows.feature_names, said)
    rows = replace(rows, target_units=units, feature_units=own, geographic=place)
    return replace(rows, passing=passing, categories=levels, reference=reference_of(X, said))


def beside_in_store(
    y: Any, names: Iterable[str] = (Y_VARIANCE, WEIGHT, *COLUMNS)
) -> dict[str, zarr.Array[Any]]:
    """Return what rows have beside y in the store that y lies in, by its names there."""
    group = store_behind(getattr(y, "array", y), "y")
    if group is None:
        return {}
    url, n = remote.address(group), getattr(y, "array", y).shape[0]
    present = [name for name in names if name in group]
    own = [name for name in present if name in GIVEN or _has_rows(group, name, n)]
    return {name: _numeric_array(group, name, url, (1, 2)) for name in own}


def _has_rows(group: zarr.Group, name: str, n: int) -> bool:
    """Return whether an array has a number for each of n rows; others of its name are no columns.

    StoreError for one that cannot be read.
    """
    try:
        array = group[name]
    except Exception as error:
        raise StoreError(f"cannot read array {name!r}: {groups.first_line(error)}") from error
    if not isinstance(array, zarr.Array):
        return False
    return array.shape in ((n,), (n, 1)) and np.dtype(array.dtype).kind in groups.NUMERIC


def warn_of_left_behind(y: Any) -> None:
    """Warn if y is made from that of a store with arrays beside it, which stay behind."""
    layers = y.dask.layers if reading.behind(y) is y and isinstance(y, da.Array) else ()
    for name in layers:
        present = beside_in_store(y.dask.get(name)) if name.startswith("original-") else {}
        if present:
            given = [f"{ARGUMENTS[name]}=" for name in present]
            logger.warning(
                "the store of y has %s, but this y is a slice or a changed copy, which does "
                "not carry them: give %s, or False to leave them out",
                " and ".join(present),
                " and ".join(given),
            )
            return


def _rows_of(
    X: Any,
    y: Any,
    beside: Mapping[str, Any],
    spill: str | None,
    shared_memory: bool,
    block_rows: int | None,
    levels: Levels,
    joint: bool,
) -> Rows:
    numbers = {name: _number(name, a) for name, a in beside.items() if _is_number(a)}
    beside = {name: a for name, a in beside.items() if name not in numbers}
    if grids.is_xarray(X) or grids.is_xarray(y):
        beside = {
            name: grids.training_arrays(X, grids.like(y, a, ARGUMENTS[name]), levels)[1]
            for name, a in beside.items()
        }
        X, y, names = grids.training_arrays(X, y, levels)
    else:
        names = column_names(X), column_names(y)
        for what, own in zip("Xy", names, strict=True):
            refuse_repeated(what, own or ())
        X = reading.timed(X)
    arrays = {"X": X, "y": y, **beside}
    arrays = {name: reading.behind(reading.lazily(a)) for name, a in arrays.items()}
    if all(isinstance(a, zarr.Array) for a in arrays.values()):
        _check_shapes(arrays, numbers, joint)
        check_aligned(arrays, "training data")
        n = arrays["X"].shape[0]
        arrays |= {name: reading.Repeated(value, (n,)) for name, value in numbers.items()}
        return _rows(arrays, chunk_rows(arrays["X"].shape[0], row_step(arrays["X"])), names)
    lazy = any(isinstance(a, da.Array | zarr.Array) for a in arrays.values())
    arrays = {name: _lazy_or_here(a, ARGUMENTS.get(name, name)) for name, a in arrays.items()}
    _check_shapes(arrays, numbers, joint)
    n = arrays["X"].shape[0]
    flat = {k: a[:, 0] for k, a in arrays.items() if k in ARGUMENTS and a.shape[1:] == (1,)}
    arrays |= flat | {name: np.broadcast_to(value, n) for name, value in numbers.items()}
    if lazy or not shared_memory:
        return _spilled(arrays, names, spill, block_rows)
    return _rows(arrays, None, names)


def _is_number(given: Any) -> bool:
    """Return whether a number is given in the place of one per row."""
    return isinstance(given, Real) or getattr(given, "ndim", None) == 0


def _number(name: str, given: Any) -> float:
    """Return the error variance or weight of all rows; InputError unless it is a number."""
    value = np.asarray(given)
    if value.dtype.kind == "b":
        raise InputError(f"{ARGUMENTS[name]}={value}: give numbers, or False to leave it out")
    reading.check_kind(ARGUMENTS[name], value)
    return float(value)


def is_zarr(x: Any) -> bool:
    """Return whether x is a Zarr array."""
    return isinstance(x, zarr.Array)


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the column names that an object carries: of a data frame, labels or of a store."""
    if grids.is_table(X):
        return grids.labels(X)
    named = getattr(X, "column_names", getattr(X, "columns", None))  # Arrow's columns are arrays
    if named is not None:
        return tuple(map(str, named))
    if hasattr(X, "name") and hasattr(X, "iloc"):
        return None if X.name is None else (str(X.name),)
    names = _said_behind(X, "X").get("feature_names") or _said_behind(X, "y").get("target_names")
    return tuple(str(name) for name in names) if isinstance(names, list) else None


def refuse_repeated(what: str, names: Sequence[str]) -> None:
    """Raise InputError for a name that several columns have.

    Examples
    --------
    >>> refuse_repeated("X", ["east", "north"])
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{what} has several columns {twice!r}: give each a name of its own")


def target_units(y: Any) -> tuple[str, ...]:
    """Return the units that targets carry: those of a DataArray or of a store, else none."""
    if grids.is_xarray(y):
        units = y.attrs.get("units")
        return (units,) if isinstance(units, str) else ()
    return _texts(_said_behind(y, "y").get(UNITS)) or ()


def units_of(
    X: Any, names: Sequence[str], said: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    """Return the units of features, "" for unknown ones; none at all where X does not say any.

    They are those of an xarray object or of a store, whose attributes may be ``said``, and days
    since 1970 of times of a data frame.
    """
    if grids.is_xarray(X):
        found = grids.units_of(X, tuple(names))
    else:
        stored = _said_behind(X, "X") if said is None else said
        found = reading.units_of_frame(X) or _texts(stored.get(FEATURE_UNITS)) or ()
    return found if len(found) == len(names) else ()


def reference_of(X: Any, said: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what says the reference system of places, nothing if it is not known.

    It is that of an xarray object or of a store, whose attributes may be ``said``.
    """
    if grids.is_xarray(X):
        return crs.carried(grids.reference_of(X)[1])
    known = (_said_behind(X, "X") if said is None else said).get(REFERENCE)
    return dict(known) if isinstance(known, Mapping) else {}


def levels_of(
    X: Any, names: Sequence[str], said: Mapping[str, Any] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the levels of those named features that the attributes of the store of X say.

    Those attributes may be ``said``.
    """
    own = (_said_behind(X, "X") if said is None else said).get(CATEGORIES)
    found = categories.stored(own) if own else {}
    return {name: levels for name, levels in found.items() if name in names}


def place_of(X: Any, said: Mapping[str, Any] | None = None) -> tuple[str, ...] | None:
    """Return the names of longitude and latitude that the attributes of X say, if they do.

    Those of its store may be ``said``.
    """
    if grids.is_xarray(X):
        return grids.place_of(X)
    return _texts((_said_behind(X, "X") if said is None else said).get(GEOGRAPHIC))


def store_behind(array: Any, name: str) -> zarr.Group | None:
    """Return the store in which an array has a name; None for other arrays."""
    array = reading.behind(array)
    if not isinstance(array, zarr.Array) or array.path.rpartition("/")[2] != name:
        return None
    return groups.parent_of(array)


def _said_behind(array: Any, name: str) -> Mapping[str, Any]:
    """Return the attributes of the store in which an array has a name; none for other arrays."""
    group = store_behind(array, name)
    if group is None:
        return {}
    said, shape = group.attrs.asdict(), reading.behind(array).shape
    width = int(shape[1]) if len(shape) == 2 else 1
    for key in DESCRIBED[name]:
        own = said.get(key)
        one = width == 1 and isinstance(own, str)
        if own and not one and not (isinstance(own, list) and len(own) == width):
            raise StoreError(
                f"attribute {key} of dataset {remote.address(group)} is {shown(own)} for {width} "
                f"column{'s' * (width > 1)} of {name}: give a list with one text for each"
            )
    return said


def _texts(stored: Any) -> tuple[str, ...] | None:
    """Return a list of texts as a tuple; None for anything else."""
    whole = isinstance(stored, list) and all(isinstance(text, str | None) for text in stored)
    return tuple(text or "" for text in stored) if whole else None


def unnamed(d: int) -> tuple[str, ...]:
    """Return the names of d features that have none."""
    return tuple(f"x{j}" for j in range(d))


def names_differ(own: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Return whether as many features are not the same by their names, or in another order."""
    either = unnamed(len(own)) in (own, others)
    return own != others and (not either or sorted(own) == sorted(others))


def _rows(arrays: Mapping[str, Any], chunks: tuple[int, ...] | None, names: Sequence[Any]) -> Rows:
    X, y = arrays["X"], arrays["y"]
    d, p = X.shape[1], 1 if y.ndim == 1 else y.shape[1]
    features = names[0] or unnamed(d)
    targets = names[1] or (("y",) if p == 1 else tuple(f"y{j}" for j in range(p)))
    for what, labels, size in (("feature", features, d), ("target", targets, p)):
        if len(labels) != size:
            raise InputError(
                f"{len(labels)} {what} names for {size} columns "
                f"({', '.join(labels)}): give one name for each column"
            )
    rows = Rows(X, y, chunks, tuple(features), tuple(targets))
    return rows.with_arrays(arrays)


def _check_shapes(arrays: Mapping[str, Any], numbers: Mapping[str, float], joint: bool) -> None:
    X, y = arrays["X"], arrays["y"]
    reading.check_table(X)
    if y.ndim not in (1, 2):
        raise InputError(f"y has {y.ndim} dimensions, 1 or 2 are needed")
    if y.shape[1:] == (0,):
        raise InputError(f"y has no column (shape={y.shape}): give one target or more")
    for name, a in arrays.items():
        if name != "X":
            reading.check_kind(ARGUMENTS.get(name, name), a)
        if any(size != size for size in a.shape):  # NaN: unknown to dask
            raise InputError(f"{name} has unknown chunk sizes: call compute_chunk_sizes() on it")
    if X.shape[0] != y.shape[0]:
        raise InputError(
            f"X has {X.shape[0]} rows but y has {y.shape[0]}: give both of the same rows"
        )
    n, p = y.shape[0], 1 if y.ndim == 1 else y.shape[1]
    if p > 1 and not joint and (Y_VARIANCE in arrays or Y_VARIANCE in numbers):
        raise InputError(
            f"{Y_VARIANCE} is given and y has {p} targets: fit each target on its own, y[:, j] "
            f"with its {Y_VARIANCE}, or all by an estimator such as VecchiaGP with {Y_VARIANCE} "
            f"{(n, p)}, or leave it out, y_variance=False where a store has it; all targets share "
            "sample_weight"
        )
    _check_beside(arrays, (n, p), joint)


def _check_beside(arrays: Mapping[str, Any], shape: tuple[int, int], joint: bool) -> None:
    """Raise InputError unless there is a number for each row, or error variances of each target."""
    n = shape[0]
    shapes = {name: {(n,), (n, 1)} for name in arrays if name not in ("X", "y")}
    if joint and Y_VARIANCE in arrays:
        shapes[Y_VARIANCE].add(shape)
    for name, fitting in shapes.items():
        if (a := arrays[name]).shape not in fitting:
            more = f", or one per row and target: {shape}" * (shape in fitting)
            raise InputError(
                f"{ARGUMENTS[name]} has shape {a.shape}, but one number per row is needed: "
                f"{(n,)}{more}"
            )


def _lazy_or_here(x: Any, name: str) -> Any:
    """Return a dask array for a dask or Zarr array, else a NumPy array."""
    if isinstance(x, zarr.Array):
        return reading.from_zarr(x)
    if not isinstance(x, da.Array):
        return reading.unmasked(x, name)
    if not isinstance(x._meta, np.ma.MaskedArray):
        return reading.doubles(x)
    meta = reading.doubles(np.empty((0,) * x.ndim, np.result_type(x.dtype, np.float32)))
    lazily: Any = da.map_blocks  # dask's stubs do not know its arguments
    return lazily(reading.unmasked, x, dtype=meta.dtype, meta=meta)


def _spilled(
    arrays: Mapping[str, Any], names: Sequence[Any], spill: str | None, wanted: int | None
) -> Rows:
    """Return rows of dask or NumPy arrays in chunks of a dataset store that is written once."""
    X = arrays["X"]
    wanted = int(wanted or default_block_rows(X.shape[0]))
    least = MIN_CHUNK_BYTES // max(1, X.shape[1] * X.dtype.itemsize)
    longest = max(X.chunks[0], default=1) if isinstance(X, da.Array) else len(X)
    step = max(1, min(wanted, max(longest, least), X.shape[0]))
    chunks = chunk_rows(X.shape[0], step)
    if spill is None:
        return _rows(arrays, chunks, names)
    return replace(_rows(writers.spill(spill, arrays, step), chunks, names), passing=True)
