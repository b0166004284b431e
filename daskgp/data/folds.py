"""Folds of rows: which part of the rows each one is in, and a store of those that a fit sees.

A pass over the rows writes the number of each row's part, so that rows are never in memory all at
once; the parts of a fold that are trained on are then written to a dataset store of their own.
"""

from __future__ import annotations

import heapq
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import dask.array as da
import numpy as np
import zarr
from scipy.optimize import nnls
from scipy.spatial import cKDTree

from daskgp.checks import positive, shown, whole
from daskgp.data import expected, feature_units, grids, partition, reading, writers
from daskgp.data.blocks import sampling
from daskgp.data.partition import Span
from daskgp.data.rows import Rows, refuse_lost
from daskgp.data.stores import groups as stores
from daskgp.errors import InputError, SettingError
from daskgp.models import scaling
from daskgp.models.columns import LATITUDES, LONGITUDES, RADIUS
from daskgp.runtime.executor import Executor, map_all, map_reduce, mapped
from daskgp.runtime.process import single_blas_thread

logger: logging.Logger = logging.getLogger("daskgp")

SHARE = 5
"""Parts that a single fold holds out one of."""
RUN = 64
"""Rows per part of a run of successive rows that are shuffled and dealt out together."""
EXACT = 2**53
"""Least whole number whose neighbours double precision does not tell apart."""
LEFT_OUT = -1
"""Part of rows without a place, a group or a time."""
MOST_BLOCKS = 1_000_000
BOXES = 16
"""Least boxes per part."""
SAMPLE_ROWS, PLACES = 65_536, 1_000
"""Most rows that boxes and times are cut by, and rows and places whose distances are compared."""
LEVELS = np.linspace(0.0, 1.0, 401)
"""Quantiles of all distances at which their distribution functions are compared."""
KM_PER_DEGREE = math.pi * RADIUS / 180.0
GROUND = r"\s*(\d+\.?\d*|\.\d+)\s*(km|m)\s*"
"""Size of blocks on the ground, as a text."""
PER_KM = {"km": 1.0, "m": 1000.0}
DEGREES = ("lon", "longitude", "lng"), ("lat", "latitude")
PLACES_BY_NAME = (DEGREES, (("x",), ("y",)), (("easting",), ("northing",)))
"""Names of columns of places."""


class Scheme(Protocol):
    """Assignment of rows to parts, by their own numbers and values alone."""

    def of(self, X: np.ndarray, rows: Span) -> np.ndarray:
        """Return the part (r,) of each row of X (r, d), in the units of X."""


@dataclass(frozen=True)
class AtRandom:
    """Parts of equal size that are drawn at random, within runs of successive rows."""

    n: int
    parts: int
    seed: int

    def of(self, X: np.ndarray, rows: Span) -> np.ndarray:
        """Return the parts of rows, see ``Scheme``."""
        run = RUN * self.parts
        first = rows.start - rows.start % run
        runs = -(-(rows.stop - first) // run)
        keys = sampling.row_keys((self.seed, 11), first, runs * run)
        keys[max(self.n - first, 0) :] = np.iinfo(keys.dtype).max  # rows that there are come first
        order = np.argsort(keys.reshape(runs, run), axis=1, kind="stable")
        ranks = np.argsort(order, axis=1).ravel() % self.parts
        return np.asarray(ranks[rows.start - first : rows.stop - first])


@dataclass(frozen=True, eq=False)
class Labelled:
    """Parts of labels: of groups, or of the cells of a grid."""

    labels: Any
    known: np.ndarray
    parts: np.ndarray

    def of(self, X: np.ndarray, rows: Span) -> np.ndarray:
        """Return the parts of rows, see ``Scheme``."""
        labels, usable = self.labels.of(X, rows)
        found = np.full(len(X), LEFT_OUT)
        found[usable] = self.parts[np.searchsorted(self.known, labels[usable])]
        return found


@dataclass(frozen=True, eq=False)
class OfColumn:
    """Values of a column as labels, or those of an array beside X."""

    column: int
    values: Any = None

    def of(self, X: np.ndarray, rows: Span) -> tuple[np.ndarray, np.ndarray]:
        """Return labels (r,) and a mask of the rows that have one."""
        values = X[:, self.column]
        if self.values is not None:
            values = reading.read(self.values, slice(*rows)).reshape(len(X))
        return values, ~np.isnan(values)


@dataclass(frozen=True)
class OfPlace:
    """Places as labels, of all columns of X; very many places share some."""

    def of(self, X: np.ndarray, rows: Span) -> tuple[np.ndarray, np.ndarray]:
        """Return labels (r,) and a mask of the rows that have one."""
        usable = np.isfinite(X).all(axis=1)
        label = np.zeros(len(X), np.uint64)
        for values in X.T:
            bits = np.where(usable, values, 0.0).astype(np.float64) + 0.0  # -0 is 0
            label = _mixed(label ^ bits.view(np.uint64))
        return label % np.uint64(MOST_BLOCKS), usable


@dataclass(frozen=True)
class Cells:
    """Cells of a grid as labels: of given sizes along columns, of km on the sphere.

    ``beside`` are sizes along columns that are not of X.
    """

    sizes: tuple[tuple[int, float], ...]
    place: tuple[int, int] | None = None
    km: float = 0.0
    beside: tuple[tuple[OfColumn, float], ...] = ()

    def of(self, X: np.ndarray, rows: Span) -> tuple[np.ndarray, np.ndarray]:
        """Return labels (r,) and a mask of the rows that have one."""
        numbers = [np.floor(X[:, j] / size) for j, size in self.sizes]
        numbers += [np.floor(column.of(X, rows)[0] / size) for column, size in self.beside]
        if self.place is not None:
            numbers += self._on_sphere(*(X[:, j] for j in self.place))
        usable = np.isfinite(np.stack(numbers)).all(axis=0)
        label = np.zeros(len(X), np.uint64)
        for own in numbers:
            label = _mixed(label ^ np.where(usable, own, 0.0).astype(np.int64).view(np.uint64))
        return label, usable

    def _on_sphere(self, lon: np.ndarray, lat: np.ndarray) -> list[np.ndarray]:
        """Return the band of latitude and the cell in it, all of about the same area."""
        bands = max(1, round(180.0 * KM_PER_DEGREE / self.km))
        band = np.clip(np.floor((lat + 90.0) / 180.0 * bands), 0, bands - 1)
        middle = np.radians((band + 0.5) / bands * 180.0 - 90.0)
        around = np.maximum(1.0, np.rint(360.0 * KM_PER_DEGREE * np.cos(middle) / self.km))
        return [band, np.floor(lon % 360.0 / 360.0 * around)]


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return 64-bit numbers of which different ones differ in all bits (splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes that hold equally many rows: halves, across their longest side, of halves.

    ``columns`` are those of the inputs, which on the sphere are x, y and z; ``axis`` and ``cut``
    (2^k - 1,) describe the halvings, and ``parts`` (2^k,) are those of the boxes.
    """

    rows: Rows
    columns: list[int]
    unit: np.ndarray
    axis: np.ndarray
    cut: np.ndarray
    parts: np.ndarray

    @classmethod
    def halved(
        cls, rows: Rows, columns: list[int], sample: np.ndarray, depth: int, parts: int, seed: int
    ) -> Boxes:
        """Cut the space of a sample (N, columns) of inputs into 2^depth boxes in parts."""
        unit = units_of(rows, columns, sample)
        scaled = sample / unit
        axis, cut = np.zeros(2**depth - 1, np.int64), np.zeros(2**depth - 1)
        inside = [np.arange(len(sample))]
        for node in range(2**depth - 1):
            own = scaled[inside[node]]
            axis[node] = int(np.argmax(np.ptp(own, axis=0))) if len(own) else 0
            cut[node] = np.median(own[:, axis[node]]) if len(own) else 0.0
            beyond = own[:, axis[node]] > cut[node]
            inside += [inside[node][~beyond], inside[node][beyond]]
        dealt = deal(np.ones(2**depth, np.int64), parts, seed)
        return cls(rows, columns, unit, axis, cut, dealt)

    def joined(self, depth: int, parts: int, seed: int) -> Boxes:
        """Return the 2^depth boxes that these were halved from, in parts."""
        dealt = deal(np.ones(2**depth, np.int64), parts, seed)
        return replace(self, parts=np.repeat(dealt, len(self.parts) // len(dealt)))

    def mixed(self, weights: np.ndarray, parts: int, seed: int) -> Boxes:
        """Return boxes of several sizes, in parts: each depth has about its weight of the rows."""
        rng, live = np.random.default_rng([seed, 16]), np.zeros(1, np.int64)
        sizes, where = [], []
        for depth, weight in enumerate(weights):
            left = float(weights[depth:].sum())
            share = weight / left if left > 0 else 1.0
            stops = rng.permutation(len(live)) < math.floor(share * len(live) + rng.uniform())
            stops |= depth == len(weights) - 1
            size = len(self.parts) >> depth
            sizes += [size] * int(stops.sum())
            where += (live[stops] * size).tolist()
            live = (2 * live[~stops, None] + np.arange(2)).ravel()
        found = np.empty(len(self.parts), np.int64)
        for first, size, part in zip(where, sizes, deal(np.array(sizes), parts, seed), strict=True):
            found[first : first + size] = part
        return replace(self, parts=found)

    def of(self, X: np.ndarray, rows: Span) -> np.ndarray:
        """Return the parts of rows, see ``Scheme``."""
        box = self.number_of(self.rows.columns.inputs(X))
        return np.where(box < 0, LEFT_OUT, self.parts[box])

    def number_of(self, inputs: np.ndarray) -> np.ndarray:
        """Return the number (r,) of the box of each row of inputs."""
        scaled = np.asarray(inputs[:, self.columns], np.float64) / self.unit
        return np.where(np.isfinite(scaled).all(axis=1), self.numbers(scaled), LEFT_OUT)

    def numbers(self, scaled: np.ndarray) -> np.ndarray:
        """Return the number of the box of each place (r, columns) over the units."""
        node = np.zeros(len(scaled), np.int64)
        if len(self.axis):
            for _ in range((len(self.axis) + 1).bit_length() - 1):
                beyond = scaled[np.arange(len(scaled)), self.axis[node]] > self.cut[node]
                node = 2 * node + 1 + beyond
        return np.asarray(node - len(self.axis))


def _tested_alone(scheme: Scheme) -> int:
    """Return the part that a single fold is tested on: of labels that with most of them.

    The largest label may be a part of its own.
    """
    return int(np.bincount(scheme.parts).argmax()) if isinstance(scheme, Labelled) else 0


def deal(sizes: np.ndarray, parts: int, seed: int) -> np.ndarray:
    """Return the part (n,) of each of n things, at random among those of a size.

    The largest come first, each to the part with the least so far.
    """
    order = np.random.default_rng([seed, 14]).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    found, filled = np.empty(len(sizes), np.int64), [(0, i) for i in range(parts)]
    for i in order.tolist():
        size, part = heapq.heappop(filled)
        found[i] = part
        heapq.heappush(filled, (size + int(sizes[i]), part))
    return found


def units_of(rows: Rows, columns: Sequence[int], sample: np.ndarray) -> np.ndarray:
    """Return the standard deviations of columns of inputs, one for those of the sphere."""
    variances = sample.var(axis=0)
    sphere = [i for i, j in enumerate(columns) if j in rows.columns.sphere]
    if sphere:
        variances[sphere] = variances[sphere].mean()
    return np.asarray(np.where(variances > 0, np.sqrt(variances), 1.0))


@dataclass(frozen=True, eq=False)
class Times:
    """Parts that follow one another along a column; ``edges`` begin the second and later ones."""

    column: OfColumn
    edges: np.ndarray

    def of(self, X: np.ndarray, rows: Span) -> np.ndarray:
        """Return the parts of rows, see ``Scheme``."""
        values = np.asarray(self.column.of(X, rows)[0], np.float64)
        found = np.searchsorted(self.edges, values, side="right")
        return np.where(np.isnan(values), LEFT_OUT, found)


class Fold(NamedTuple):
    """Masks over the parts of the rows that a fit sees, and of those that it is tested on."""

    trained: np.ndarray
    tested: np.ndarray


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows in parts, by a pass that wrote the part of each.

    Attributes
    ----------
    rows : Rows
    spans : list of Span
        Rows that a task reads, with whole chunks of ``number``.
    number : zarr.Array[Any] (n,)
        Part of each row.
    counts : ndarray (spans, parts)
        Rows of each part.
    folds : list of Fold
    """

    rows: Rows
    spans: list[Span]
    number: zarr.Array[Any]
    counts: np.ndarray
    folds: list[Fold]

    def of(self, span: Span) -> np.ndarray:
        """Return the parts (r,) of some rows."""
        return reading.read(self.number, slice(*span))

    def trained(self, fold: Fold) -> int:
        """Return how many rows a fit of a fold sees."""
        return int(self.counts[:, fold.trained].sum())

    def tested(self, fold: Fold) -> int:
        """Return how many rows a fold is tested on."""
        return int(self.counts[:, fold.tested].sum())

    def places(self, fold: Fold, span: Span) -> np.ndarray:
        """Return the places among some rows of those that a fold is tested on."""
        part = self.of(span)
        return np.flatnonzero(fold.tested[part] & (part >= 0))

    def write(self, url: str, fold: Fold, most: int | None, seed: int, executor: Executor) -> None:
        """Write the rows that a fit of a fold sees to a new dataset store.

        At most ``most`` of them: one drawn at random of each of as many runs of successive rows.
        """
        rows, n = self.rows, self.trained(fold)
        size = n if most is None else min(n, most)
        step = partition.default_block_rows(size)
        ends = np.cumsum(self.counts[:, fold.trained].sum(axis=1))
        with stores.creating(url, "dataset", {**rows.said(), **writers.marks()}) as group:
            targets = {
                name: writers.create_rows(
                    group, name, (size, *a.shape[1:]), step, np.result_type(a.dtype, np.float32)
                )
                for name, a in rows.arrays.items()
            }
            chunks = [Span(i, min(i + step, size)) for i in range(0, size, step)]
            task = partial(_copy, self, fold, ends, (n, size, seed), targets)
            executor.compute_all(mapped(task, [(chunk,) for chunk in chunks], "rows"), "rows")
            group.attrs["complete"] = True


def even_spans(rows: Rows) -> list[Span]:
    """Return the rows in spans of one length, near that of their chunks."""
    n, chunk = len(rows), rows.chunks[0] if rows.chunks else 0
    usual = partition.MIN_ROWS <= chunk <= partition.MAX_ROWS
    step = chunk if usual else partition.default_block_rows(n)
    return [Span(i, min(i + step, n)) for i in range(0, n, step)]


def _number(
    rows: Rows, scheme: Scheme, count: int, number: zarr.Array[Any], span: Span
) -> list[Any]:
    X = rows.values("X", *span)
    parts = scheme.of(X, span)
    number[span.start : span.stop] = parts.astype(np.int16)
    return [np.bincount(parts[parts >= 0], minlength=count)]


def _copy(
    parts: Parts,
    fold: Fold,
    ends: np.ndarray,
    drawn: tuple[int, int, int],
    targets: Mapping[str, zarr.Array[Any]],
    chunk: Span,
) -> None:
    """Write a chunk of a fold's training rows, whose numbers among these ``ends`` locate."""
    numbers = _drawn(chunk, *drawn)
    whose = np.searchsorted(ends, numbers, side="right")
    found: list[dict[str, np.ndarray]] = []
    for i in np.unique(whose).tolist():
        own = numbers[whose == i] - (ends[i - 1] if i else 0)
        span = parts.spans[i]
        here = parts.of(span)
        places = np.flatnonzero(fold.trained[here] & (here >= 0))[own]
        X, y = parts.rows.raw(*span)
        found.append(parts.rows.parted(X[places], y[places]))
    for name, target in targets.items():
        target[chunk.start : chunk.stop] = np.concatenate([values[name] for values in found])


def _drawn(chunk: Span, n: int, size: int, seed: int) -> np.ndarray:
    """Return which of n rows are some of those drawn: one of each of ``size`` runs."""
    runs = np.arange(chunk.start, chunk.stop + 1)
    if size == n:
        return runs[:-1]
    edges = runs * n // size
    keys = sampling.row_keys((seed, 13), chunk.start, chunk.rows)
    return np.asarray(edges[:-1] + (keys % np.diff(edges).astype(np.uint64)).astype(np.int64))


# -- from settings ---------------------------------------------------------------------------


class Wanted(NamedTuple):
    """Folds as a user asks for them.

    ``beside`` are the values (n,) of columns that are no features, by the names that settings give.
    """

    folds: int = 5
    blocks: Any = None
    groups: Any = None
    time: str | int | None = None
    seed: int = 0
    instead: str = ""
    beside: Mapping[str, np.ndarray] = MappingProxyType({})
    places: bool | None = None
    """True if rows at one place are in one fold; None as without."""
    latter: bool = False
    """Whether folds in time are of the latter half of rows alone, fewer where times are few."""

    @property
    def named(self) -> list[tuple[str, str]]:
        """Names of columns that settings give, each after that of its setting."""
        sizes = self.blocks if _are_sizes(self.blocks) else ()
        given = [("groups", self.groups), ("time", self.time), *(("blocks", one) for one in sizes)]
        return [(setting, name) for setting, name in given if isinstance(name, str)]

    @property
    def names(self) -> list[str]:
        """Names of columns that settings give."""
        return [name for _, name in self.named]

    @property
    def scheme(self) -> str:
        """Name of the scheme."""
        schemes = ("blocks", "groups", "time", "places")
        given = [name for name in schemes if getattr(self, name) is not None]
        return given[0] if given else "random"

    @property
    def parts(self) -> int:
        """Number of parts of the rows."""
        if self.folds == 1:
            return SHARE
        return self.folds + (self.scheme == "time")

    @property
    def remedy(self) -> str:
        """Remedy where rows are too few, or too much alike, for so many parts."""
        fewest = {1: "choose folds=2", 2: "give more rows"}
        return self.instead or fewest.get(self.folds, "choose fewer folds")

    def check(self) -> None:
        """Raise SettingError for settings that contradict one another or cannot be."""
        whole("folds", self.folds, 1)
        whole("random_state", self.seed, 0)
        given = {name: getattr(self, name) for name in ("blocks", "groups", "time")}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) > 1:
            raise SettingError(
                f"{' and '.join(given)} each make folds of their own: give one of them"
            )
        if self.folds >= np.iinfo(np.int16).max:
            raise SettingError(f"folds={self.folds}: give at most {np.iinfo(np.int16).max - 1}")
        if isinstance(self.blocks, Mapping):
            for column, size in self.blocks.items():
                positive(f"blocks[{shown(column)}]", size)
        elif isinstance(self.blocks, Real):
            positive("blocks", self.blocks)
        elif isinstance(self.blocks, str) and (km := km_of(self.blocks)) is not None:
            positive("blocks", km)
        elif isinstance(self.blocks, str) and self.blocks != "auto":
            raise SettingError(
                f"blocks={shown(self.blocks)}: give 'auto', the size of a block, such as 20 or "
                "'100km', sizes by column, names of columns, or the places (m, d) that "
                "predictions are for"
            )

    def made(self, rows: Rows, url: str, executor: Executor) -> Parts:
        """Return the rows in parts, the number of each one's in a store at a URL, and the folds."""
        scheme = getattr(self, f"_{self.scheme}")(rows, url, executor)
        spans = even_spans(rows)
        with stores.creating(f"{url}-parts", "temporary dataset", writers.marks()) as group:
            number = group.create_array(
                "part",
                shape=(len(rows),),
                chunks=(max(spans[0].rows, 1),),
                dtype="int16",
                fill_value=LEFT_OUT,
            )
            task = partial(_number, rows, scheme, self.parts, number)
            counts = np.array(map_all(task, spans, executor, "folds"))
            group.attrs["complete"] = True
        each = np.eye(self.parts, dtype=bool)
        if self.scheme == "time":
            first = 1 if self.folds > 1 else self.parts - 1
            chosen = self._latter(counts.sum(axis=0)) if self.latter else range(first, self.parts)
            found = [Fold(np.arange(self.parts) < i, each[i]) for i in chosen]
        else:
            chosen = range(self.folds) if self.folds > 1 else [_tested_alone(scheme)]
            found = [Fold(~each[i], each[i]) for i in chosen]
        parts = Parts(rows, spans, number, counts, found)
        for i, fold in enumerate(found):
            for what, count in (("train on", parts.trained(fold)), ("test", parts.tested(fold))):
                if not count:
                    raise InputError(f"fold {i} has no rows to {what}: {self.remedy}")
        return parts

    def _latter(self, rows: np.ndarray) -> Sequence[int]:
        """Return the parts of the latter half that have rows and follow some, if any has."""
        half = range(self.parts // 2, self.parts)
        return [i for i in half if rows[i] and rows[:i].any()] or half

    def _places(self, rows: Rows, url: str, executor: Executor) -> Scheme:
        return self._labelled(OfPlace(), rows, executor, "places")

    def _random(self, rows: Rows, url: str, executor: Executor) -> Scheme:
        return AtRandom(len(rows), self.parts, self.seed)

    def _beside(self, name: str, rows: Rows, url: str, executor: Executor) -> OfColumn:
        """Return a column that is no feature."""
        number = list(self.beside).index(name)
        return OfColumn(0, _codes(self.beside[name], rows, f"{url}-beside-{number}", executor))

    def _groups(self, rows: Rows, url: str, executor: Executor) -> Scheme:
        if isinstance(self.groups, str) and self.groups in self.beside:
            labels = self._beside(self.groups, rows, url, executor)
        elif isinstance(self.groups, str | int):
            labels = OfColumn(column_of("groups", self.groups, rows))
        else:
            labels = OfColumn(0, _codes(self.groups, rows, f"{url}-groups", executor))
        return self._labelled(labels, rows, executor, "groups")

    def _labelled(self, labels: Any, rows: Rows, executor: Executor, what: str) -> Labelled:
        """Return labels with parts of about equally many rows."""
        spans = even_spans(rows)
        task = partial(_count_labels, rows, labels)
        known, counts = map_reduce(task, _both_counts, spans, executor, what)
        if what == "groups":
            _check_apart(known)
            missing = len(rows) - int(counts.sum())
            if missing and not isinstance(self.groups, str | int):
                logger.warning(
                    "%d of %d rows have no label in groups and are left out", missing, len(rows)
                )
        if len(known) < self.parts:
            raise InputError(
                f"the rows are in {len(known)} {what}, and {self.parts} or more are needed: "
                f"{'choose smaller blocks, or ' if what == 'blocks' else ''}{self.remedy}"
            )
        return Labelled(labels, known, deal(counts, self.parts, self.seed))

    def _blocks(self, rows: Rows, url: str, executor: Executor) -> Scheme:
        size = km_of(self.blocks) if isinstance(self.blocks, str) else self.blocks
        if isinstance(size, Real):
            ground = isinstance(self.blocks, str)
            cells = of_one_size(float(size), ground, rows, self.seed, executor)
            return self._labelled(cells, rows, executor, "blocks")
        if _are_sizes(self.blocks):
            own = self.blocks
            apart = [name for name in own if name in self.beside]
            more = tuple(
                (self._beside(name, rows, url, executor), float(own[name])) for name in apart
            )
            of_X = {name: size for name, size in own.items() if name not in apart} or None
            cells = cells_of(of_X or self.blocks, rows) if of_X or not more else Cells(())
            cells = replace(cells, beside=more)
            return self._labelled(cells, rows, executor, "blocks")
        columns, places = list(range(rows.n_features)), None
        if _are_names(self.blocks):
            features = [column_of("blocks", name, rows) for name in self.blocks]
            columns = rows.columns.inputs_of(features)
        elif not isinstance(self.blocks, str):
            places = _places(self.blocks, rows)
        sample = sample_of(rows, self.seed, executor)[:, columns]
        if places is not None:
            ends = np.array([sample.min(axis=0), sample.max(axis=0)])
            expected.warn_of_far("places of blocks", rows.columns.inputs_names, ends, places)
        least, most = math.ceil(math.log2(self.parts)), int(math.log2(len(sample)))
        if least > most:
            raise InputError(
                f"{len(sample)} complete rows are too few for {2**least} blocks: {self.remedy}"
            )
        made = partial(Boxes.halved, rows, columns, sample, parts=self.parts, seed=self.seed)
        if places is None:
            usual = math.ceil(math.log2(BOXES * self.parts))
            return made(max(least, min(usual, most - 2)))  # boxes of a few rows are no gaps
        boxes = made(most)
        choices = [boxes.joined(depth, self.parts, self.seed) for depth in range(least, most + 1)]
        weights = alike(choices, places, sample, rows, executor)
        return boxes.mixed(np.append(np.zeros(least), weights), self.parts, self.seed)

    def _time(self, rows: Rows, url: str, executor: Executor) -> Scheme:
        assert self.time is not None
        levels = np.arange(1, self.parts) / self.parts
        if isinstance(self.time, str) and self.time in self.beside:
            own = self._beside(self.time, rows, url, executor)
            known = self.beside[self.time][~np.isnan(self.beside[self.time])]
            return Times(own, np.quantile(known, levels, method="inverted_cdf"))
        column = column_of("time", self.time, rows)
        if rows.geographic is not None and column in rows.geographic:
            raise SettingError(
                f"time={shown(self.time)} is longitude or latitude: name a column of times"
            )
        where = rows.columns.where[column]
        values = sample_of(rows, self.seed, executor)[:, where]
        return Times(OfColumn(column), np.quantile(values, levels, method="inverted_cdf"))


def column_of(what: str, name: str | int, rows: Rows) -> int:
    """Return the number of a column of X that a setting names."""
    names = rows.feature_names
    if name in names:
        return names.index(str(name))
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(names):
        return name
    other = ", or give an array of labels" if what == "groups" else ""
    raise SettingError(
        f"{what}={shown(name)}: the columns of X are {', '.join(names)}: name one of these{other}"
    )


def km_of(size: str) -> float | None:
    """Return the km of a size on the ground, such as "100km" or "500 m"; None for other text."""
    found = re.fullmatch(GROUND, size)
    return None if found is None else float(found[1]) / PER_KM[found[2]]


def of_one_size(size: float, ground: bool, rows: Rows, seed: int, executor: Executor) -> Cells:
    """Return the cells of one size that cut the space of places.

    Those are longitude and latitude, on the sphere and in km, or x and y or easting and northing in
    their unit, or where no columns are called so all columns.  A size on the ``ground`` is in km.
    """
    names, units = rows.feature_names, rows.feature_units
    if rows.geographic is not None:
        return Cells((), rows.geographic, size)
    place = _place(names)
    pair = " and ".join(repr(names[j]) for j in place or ())
    if place is not None and _in_degrees(place, rows, seed, executor):
        if not ground:
            logger.warning(
                "blocks=%g means blocks of %g km on the ground for %s: write blocks='%gkm' "
                "to say so, or sizes by column, such as %s=1, for degrees",
                *(size, size, pair, size, names[place[0]]),
            )
        return Cells((), place, size)
    columns = range(len(names)) if place is None else place
    sizes = [size] * len(columns)
    if ground:
        given = {feature_units.plain(units[j]) if units else "" for j in columns}
        (unit, *others) = given
        if others or unit not in PER_KM:
            what = pair or ", ".join(names)
            raise InputError(
                f"blocks of {size:g} km: the features are {', '.join(names)}, and {what} are not "
                "known to be longitude and latitude, nor in m or km: give the size as a number, in "
                "their unit, or geographic=(longitude, latitude) (--geographic)"
            )
        sizes = [size * PER_KM[unit]] * len(columns)
    if len(columns) < len(names):
        logger.info("blocks are along %s alone", pair)
    return Cells(tuple(zip(columns, sizes, strict=True)))


def _place(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns that are called east and north, if there is one pair of them."""
    spelt = [name.lower() for name in names]
    pairs = [
        (spelt.index(east), spelt.index(north))
        for easts, norths in PLACES_BY_NAME
        for east in easts
        for north in norths
        if spelt.count(east) == spelt.count(north) == 1
    ]
    return pairs[0] if len(pairs) == 1 else None


def _in_degrees(place: tuple[int, int], rows: Rows, seed: int, executor: Executor) -> bool:
    """Return whether a place is longitude and latitude, by names, units and values."""
    names, units = rows.feature_names, rows.feature_units
    if names[place[0]].lower() not in DEGREES[0]:
        return False
    if units and any(feature_units.plain(units[j]) in feature_units.NO_DEGREES for j in place):
        return False
    where = [rows.columns.where[j] for j in place]
    sample = sample_of(rows, seed, executor)[:, where]
    low, high = sample.min(axis=0), sample.max(axis=0)
    ends = zip(low, high, (LONGITUDES, LATITUDES), strict=True)
    return all(least <= a and b <= most for a, b, (least, most) in ends)


def cells_of(blocks: Mapping[str, Any], rows: Rows) -> Cells:
    """Return the cells that sizes by column cut the space into."""
    place, names = rows.geographic, rows.feature_names
    sizes = {column_of("blocks", name, rows): float(size) for name, size in blocks.items()}
    km = {sizes.pop(j) for j in place or () if j in sizes}
    if len(km) > 1:
        assert place is not None
        pair = " and ".join(names[j] for j in place)
        raise SettingError(
            f"blocks have different sizes for {pair}, both in km: give them the same"
        )
    if not sizes and not km:
        raise SettingError("blocks has no column: give the size of blocks along one or more")
    return Cells(tuple(sizes.items()), place if km else None, km.pop() if km else 0.0)


def _are_sizes(blocks: Any) -> bool:
    return isinstance(blocks, Mapping) and not grids.is_xarray(blocks)


def _are_names(blocks: Any) -> bool:
    several = isinstance(blocks, Sequence) and not isinstance(blocks, str)
    return several and bool(len(blocks)) and all(isinstance(name, str) for name in blocks)


def sample_of(rows: Rows, seed: int, executor: Executor) -> np.ndarray:
    """Return the inputs of a sample of complete rows, in the user's units."""
    plain, rows = scaling.identity(rows.n_features, rows.n_targets), replace(rows, trend=None)
    keys = sampling.Keys((seed, 15))
    drawn = sampling.draw(rows, even_spans(rows), plain, SAMPLE_ROWS, keys, executor)
    refuse_lost(rows, len(drawn.rows.X))
    if not len(drawn.rows.X):
        raise InputError(
            "no usable rows: every row has a missing value (NaN): "
            "leave out columns that are mostly missing, or fill them"
        )
    return np.asarray(drawn.rows.X)


def _count_labels(rows: Rows, labels: Any, span: Span) -> tuple[np.ndarray, np.ndarray]:
    found, usable = labels.of(rows.values("X", *span), span)
    known, counts = np.unique(found[usable], return_counts=True)
    return known, counts


def _both_counts(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    known, where = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    if len(known) > MOST_BLOCKS:
        raise InputError(
            f"the rows are in more than {MOST_BLOCKS:,} blocks or groups: choose larger ones"
        )
    counts = np.bincount(where, np.concatenate([a[1], b[1]])).astype(np.int64)
    return known, counts


def _check_apart(known: np.ndarray) -> None:
    """Raise InputError for labels of groups that rounding may have merged."""
    if known.dtype.kind == "f" and np.abs(known).max(initial=0.0) >= EXACT:
        raise InputError(
            f"groups has labels of {EXACT:,} and more, which double precision does not tell "
            "apart: give them as text, or as a NumPy array of whole numbers"
        )


def _codes(groups: Any, rows: Rows, url: str, executor: Executor) -> Any:
    """Return groups (n,) as numbers that tasks can read."""
    n, values = len(rows), groups
    if not isinstance(values, zarr.Array | da.Array):
        values = np.asarray(values)
        large = values.dtype.kind in "iu" and values.size and np.abs(values).max() >= EXACT
        if large or values.dtype.kind not in "fiub":
            values = _numbered(values)
    if values.shape not in ((n,), (n, 1)):
        raise InputError(f"groups has shape {values.shape} for {n} rows: one per row is needed")
    if np.dtype(values.dtype).kind not in "fiub":
        raise InputError(
            f"groups has type {values.dtype}, but numbers are needed of a lazy array: give "
            "codes, or an array in memory"
        )
    values = reading.behind(values)
    if isinstance(values, zarr.Array) or (
        isinstance(values, np.ndarray) and executor.shares_memory
    ):
        return values
    flat = values.reshape(n).astype(np.float64)
    return writers.spill(url, {"X": flat}, max(1, partition.default_block_rows(n)))["X"]


def _numbered(labels: np.ndarray) -> np.ndarray:
    """Return labels of any type as numbers, NaN where there is none."""
    try:
        missing = np.asarray(labels != labels, bool) | np.asarray(labels == None, bool)  # noqa: E711
        found = np.full(labels.shape, np.nan)
        found[~missing] = np.unique(labels[~missing], return_inverse=True)[1]
    except TypeError as error:
        raise InputError(
            "groups has labels of several types: give all as text, or all as numbers"
        ) from error
    return found


def _places(blocks: Any, rows: Rows) -> np.ndarray:
    """Return inputs of some of the places that predictions are for."""
    places = reading.from_zarr(blocks) if isinstance(blocks, zarr.Array) else blocks
    if isinstance(places, da.Array):
        places = places[:: max(1, places.shape[0] // PLACES)].compute()
    if grids.is_xarray(places):
        raise InputError(
            f"blocks is a {type(places).__name__}: give places as an array (m, d) with the columns "
            f"of X, {', '.join(rows.feature_names)}"
        )
    places = reading.unmasked(places, "blocks")
    if places.ndim != 2 or places.shape[1] != len(rows.feature_names) or not len(places):
        raise InputError(
            f"blocks has shape {places.shape}: give places with the {len(rows.feature_names)} "
            f"columns of X, {', '.join(rows.feature_names)}"
        )
    inputs = rows.columns.inputs(places[:: max(1, len(places) // PLACES)].astype(np.float64))
    inputs = inputs[np.isfinite(inputs).all(axis=1)]
    if not len(inputs):
        raise InputError("blocks has no place with all columns known: give at least one")
    return np.asarray(inputs)


# -- blocks like gaps ------------------------------------------------------------------------


def alike(
    choices: Sequence[Boxes], places: np.ndarray, sample: np.ndarray, rows: Rows, executor: Executor
) -> np.ndarray:
    """Return weights of boxes by size, with which held-out rows are as far from others as places.

    The distribution of distances to the nearest row is to be the same [Milà et al. 2022,
    Linnenbrink et al. 2024]: the weighted sum of those that boxes of each size give is fitted to
    that of the places, by least squares of the distribution functions over distance.
    """
    left = sample[:: max(1, len(sample) // PLACES)]
    task = partial(_nearest, rows, choices, left, places)
    away = map_reduce(task, np.minimum, even_spans(rows), executor, "nearest")
    wanted, found = away[: len(places)], away[len(places) :].reshape(len(choices), -1)
    grid = np.unique(np.quantile(away[np.isfinite(away)], LEVELS))
    root = np.sqrt(np.append(np.diff(grid), 0.0))
    below = [np.searchsorted(np.sort(a), grid, side="right") / len(a) for a in (wanted, *found)]
    functions = np.array(below[1:]).T * root[:, None]
    heavy = 1e3 * max(float(root.max()), np.finfo(float).tiny)  # weights sum to 1
    equations = np.vstack([functions, np.full(len(choices), heavy)])
    weights, _ = nnls(equations, np.append(below[0] * root, heavy))
    return np.asarray(weights / weights.sum())


def _nearest(
    rows: Rows, choices: Sequence[Boxes], left: np.ndarray, places: np.ndarray, span: Span
) -> np.ndarray:
    """Return distances of places from rows, and of rows left out from the others of each choice."""
    with single_blas_thread():
        X, y = rows.read(*span)
        X = np.asarray(X[scaling.complete_rows(X, y)], np.float64)
        first = choices[0]
        scaled = X[:, first.columns] / first.unit
        own, of_places = left / first.unit, places[:, first.columns] / first.unit
        away = [_to(scaled, of_places)]
        for boxes in choices:
            here, there = boxes.parts[boxes.numbers(scaled)], boxes.parts[boxes.numbers(own)]
            found = np.full(len(own), np.inf)
            for part in np.unique(there):
                found[there == part] = _to(scaled[here != part], own[there == part])
            away.append(found)
        return np.concatenate(away)


def _to(points: np.ndarray, places: np.ndarray) -> np.ndarray:
    if not len(points):
        return np.full(len(places), np.inf)
    return np.asarray(cKDTree(points).query(places)[0])
