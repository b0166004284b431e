"""Dataset stores that grow: their new rows, and those that leave the window of a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from daskgp import data
from daskgp.checks import shown
from daskgp.data import seen
from daskgp.data.blocks import prepared, sampling
from daskgp.data.categories import to_learn
from daskgp.data.partition import Span
from daskgp.data.rows import GIVEN, Beside
from daskgp.data.stores import groups
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.fit.fitted import Fit
from daskgp.fit.recipe import Recipe
from daskgp.fit.scratch import scratch_rows
from daskgp.runtime.executor import Executor
from daskgp.update import changing

logger: logging.Logger = logging.getLogger("daskgp")

HERE = Executor(None)
"""This process, where little work is done."""


More: TypeAlias = Callable[[Recipe, Fit, Any, Any, Beside], Fit]
"""Returns a fit that has learned from more rows X and y, with what they have beside y."""


@dataclass(frozen=True, eq=False)
class Growth:
    """Rows that a dataset store has for a fit that may have seen the first of them.

    Parameters
    ----------
    recipe : Recipe
    fit : Fit
    X, y : dask arrays
        All rows of the dataset.
    beside : mapping
        What they have beside y, as ``data.rows_of`` takes it; False for none.
    dataset : Dataset
    source : Source, optional
        What the fit has seen of it; None for nothing.
    start : int
        First row that the fit is to have.
    """

    recipe: Recipe
    fit: Fit
    X: Any
    y: Any
    beside: Beside
    dataset: seen.Dataset
    source: seen.Source | None
    start: int

    @property
    def first(self) -> int:
        """Number of rows that the fit has seen already."""
        return 0 if self.source is None else self.source.rows

    @property
    def new(self) -> int:
        """Number of rows that are to be added."""
        return len(self.dataset.rows) - max(self.first, self.start)

    @property
    def old(self) -> slice:
        """Rows that are to be taken out."""
        begin = 0 if self.source is None else self.source.start
        return slice(begin, max(begin, min(self.start, self.first)))

    @property
    def count(self) -> int:
        """Number of rows that are to be read."""
        return self.new + self.old.stop - self.old.start

    @property
    def changes(self) -> bool:
        """True if there is anything to do."""
        return self.new > 0 or self.old.stop > self.old.start

    def taken(self, executor: Executor, more: More = changing.changed) -> Fit:
        """Return the fit with the new rows and without the old ones."""
        fit, old = self.fit, self.old
        if self.new and old.start < old.stop < self.first:
            # what cannot go is refused before others are added
            changing.oldest(self.recipe, fit, *self.part(old))
        if self.new:
            rows = self.part(slice(len(self.dataset.rows) - self.new, None))
            end = len(self.dataset.rows)
            with to_learn(self.dataset.rows.categories):
                fit = more(self.recipe, fit, *rows)
            fit = self.noted(fit, end - self.new, end)
        fit, start = self._without_old(fit)
        return replace(fit, sources=self.sources(executor, start))

    def _without_old(self, fit: Fit) -> tuple[Fit, int]:
        """Take out the old rows, of local methods whole blocks; and return the first that stays."""
        old = self.old
        if old.stop == old.start:
            return fit, self.start
        stop = old.start + changing.oldest(self.recipe, fit, *self.part(old))
        if stop > old.start:
            rows = self.part(slice(old.start, stop))
            fit = changing.changed(self.recipe, fit, *rows, forget=True)
            fit = self.noted(fit, old.start, stop)
        return fit, self.start if stop == old.stop else stop

    @contextmanager
    def window(self) -> Iterator[tuple[Any, Any, Beside]]:
        """Yield the rows from ``start``, which a copy has unless they are all."""
        if not self.start:
            yield self.X, self.y, self.beside
            return
        with scratch_rows(self.recipe.store) as url:
            prepared.copy(url, self.dataset.rows, 1, span=slice(self.start, None))
            groups.open_group(url, "dataset", mode="r+").attrs[data.PASSING] = True
            none = {name: False for name, one in self.beside.items() if one is False}
            yield *data.open_dataset(url), none

    def part(self, rows: slice) -> tuple[Any, Any, Beside]:
        """Return X, y and what is beside it of some rows."""
        return part_of(self.X, self.y, self.beside, rows)

    def sources(self, executor: Executor, start: int) -> tuple[seen.Source, ...]:
        """Return all dataset stores of which rows were seen, with all rows of this one."""
        known = [one for one in self.fit.known_sources if one.url != self.dataset.url]
        return (*known, self.dataset.source(executor, self.source, start))

    def noted(self, fit: Fit, start: int, stop: int) -> Fit:
        """Return a fit that notes which rows of the dataset it took last."""
        last = fit.seen[-1] | {"store": self.dataset.url, "span": [start, stop]}
        return replace(fit, seen=[*fit.seen[:-1], last])


def part_of(X: Any, y: Any, beside: Beside, rows: slice) -> tuple[Any, Any, Beside]:
    """Return X, y and what is beside it of some rows."""
    own = {k: one[rows] if getattr(one, "ndim", 0) else one for k, one in beside.items()}
    return X[rows], y[rows], own


def look(
    recipe: Recipe,
    fit: Fit,
    X: Any,
    y: Any,
    beside: Beside,
    window: float | None = None,
    along: str | int | None = None,
    refit: bool = False,
) -> Growth | None:
    """Return what there is to do for a fit; None for rows of no dataset store.

    To ``refit``, old rows need not be forgotten.

    Raises
    ------
    StoreError
        If rows that the fit has seen are no longer what they were.
    SettingError
        If the window does not suit the method or the rows.
    """
    _check_window(recipe, fit, window, along, refit)
    url = seen.place_of(X, y)
    rows = (
        None
        if url is None
        else data.rows_of(X, y, None, True, columns=recipe.columns, joint=fit.posterior.joint)
    )
    if url is None or rows is None or rows.passing:
        if window is not None:
            raise SettingError(
                f"window={shown(window)}: the old rows are known only for a dataset store: give X, "
                "y as daskgp.open_dataset does, or forget the oldest rows by forget(X, y)"
            )
        return None
    fit = fit.read()
    if len(rows.feature_names) == fit.posterior.n_features:
        rows = replace(rows, fills=fit.posterior.fills)
    source = _source(fit, url, rows)
    dataset = seen.dataset_at(url, rows, None if source is None else source.arrays)
    if source is None:
        fit, source = _converted(recipe, fit, dataset)
    if source is not None:
        source.check(dataset, HERE)
        fit = _renamed(fit, source, url)
    elif any(note.get("store") == url for note in fit.seen):
        raise StoreError(
            f"the model has seen rows of {url}, but has no marks of them: fit it again, or "
            "give the new rows as a store of their own"
        )
    beside = _beside(recipe, y, beside, source)
    X, y = (data.lazily(part) if data.is_zarr(part) else part for part in (X, y))
    start = 0 if source is None else source.start
    if window is not None:
        others = changing.elsewhere(fit, url)
        if others:
            raise SettingError(
                f"window={shown(window)} counts rows of {url}, but the model has also seen "
                f"{others}: forget the oldest rows by forget(X, y), or fit to one dataset"
            )
        start = _start(dataset, start, window, along)
    return Growth(recipe, fit, X, y, beside, dataset, source, start)


def _source(fit: Fit, url: str, rows: data.Rows) -> seen.Source | None:
    """Return what a fit has seen of a store, maybe while it was at another URL."""
    sources = fit.known_sources
    known = next((one for one in sources if one.url == url), None)
    return known or next((one for one in sources if one.begins(rows, HERE)), None)


def _converted(recipe: Recipe, fit: Fit, dataset: seen.Dataset) -> tuple[Fit, seen.Source | None]:
    """Return a fit with marks of what it has seen of a store, where it took these from a table.

    What is fitted by names of columns is converted for the fit alone; a store that is made of it
    has the same rows.
    """
    last = max((i for i, one in enumerate(fit.seen) if one["what"] == "fit"), default=None)
    note = {} if last is None else fit.seen[last]
    table, stop, rows = note.get("store"), note.get("span", (0, 0))[1], dataset.rows
    known = {one.url for one in fit.known_sources}
    forgotten = any(one["what"] == "forget" for one in fit.seen)
    alike = rows.n_features == fit.posterior.n_features and not fit.posterior.joint
    if table is None or table in known or forgotten or not alike or not 0 < stop <= len(rows):
        return fit, None
    spans = [Span(a, min(b, stop)) for a, b in recipe.spans(rows) if a < stop]
    if sampling.checksum_of(rows, spans, HERE) != int(note.get("checksum", "0"), 16):
        return fit, None
    source = dataset.first(table, stop, HERE)
    return replace(fit, sources=(*fit.known_sources, source)), source


def _renamed(fit: Fit, source: seen.Source, url: str) -> Fit:
    """Note that a store of which a fit has seen rows, or a copy of it, is at a URL."""
    if source.url == url:
        return fit
    logger.warning(
        "%s has the rows of %s that the model has seen: taken as the same dataset", url, source.url
    )
    sources = (replace(one, url=url) if one is source else one for one in fit.known_sources)
    seen_there = [
        note | {"store": url} if note.get("store") == source.url else note for note in fit.seen
    ]
    return replace(fit, sources=tuple(sources), seen=seen_there)


def _beside(recipe: Recipe, y: Any, given: Beside, source: seen.Source | None) -> Beside:
    """Return what is given beside y, else that of its store, unless the fit left it out."""
    names = *GIVEN, *recipe.columns
    stored = {
        name: data.lazily(array)
        for name, array in data.beside_in_store(y, names).items()
        if source is None or name in source.arrays
    }
    known = {name: one for name, one in given.items() if one is not None}
    own = dict.fromkeys(GIVEN, False) | stored | known
    if source is not None:  # a fit may have left others out
        own = {name: False for name in names if name not in own} | own
    return own


def forget(recipe: Recipe, fit: Fit, X: Any, y: Any, beside: Beside) -> Fit:
    """Return a fit without some rows; a whole dataset store may be added again later.

    Raises
    ------
    InputError
        If the fit has other rows of the store.
    """
    url, fit = seen.place_of(X, y), fit.read()
    source = next((one for one in fit.known_sources if one.url == url), None)
    if source is None:
        return changing.changed(recipe, fit, X, y, beside, forget=True)
    if not source.rows:
        raise InputError(
            f"the model has no rows of {url}, so there is nothing to forget: "
            "give a store that it was fitted to or updated with"
        )
    if (source.start, source.rows) != (0, len(X)):
        part = f"[{source.start}:{source.rows}]"
        raise InputError(
            f"the model has rows {source.start} to {source.rows - 1} of {url}, which has {len(X)}: "
            f"give those to forget, such as X{part}, y{part}"
        )
    own = _beside(recipe, y, beside, source)
    return _without(recipe, fit, (X, y, own), source)


def _without(recipe: Recipe, fit: Fit, rows: tuple[Any, Any, Beside], source: seen.Source) -> Fit:
    """Return a fit without rows, that notes that it has none of a dataset store any more."""
    fit = changing.changed(recipe, fit, *rows, forget=True)
    others = (one for one in fit.known_sources if one.url != source.url)
    return replace(
        fit,
        seen=[*fit.seen[:-1], fit.seen[-1] | {"store": source.url}],
        sources=(*others, source.emptied()),
    )


@dataclass(frozen=True, eq=False)
class Loss:
    """Rows of a dataset store that a fit is to be without, none if they were taken out before.

    Parameters
    ----------
    recipe : Recipe
    fit : Fit
    X, y : dask arrays
        The rows.
    beside : mapping
        What they have beside y, as ``data.rows_of`` takes it; False for none.
    source : Source
        What the fit notes of the store.
    size : int
        Number of rows of the store.
    """

    recipe: Recipe
    fit: Fit
    X: Any
    y: Any
    beside: Beside
    source: seen.Source
    size: int

    @property
    def count(self) -> int:
        """Number of rows that are to be read."""
        return len(self.X)

    @property
    def changes(self) -> bool:
        """True if there is anything to do."""
        return self.count > 0

    def taken(self, executor: Executor, more: More = changing.changed) -> Fit:
        """Return the fit without the rows."""
        return _without(self.recipe, self.fit, (self.X, self.y, self.beside), self.source)


def look_back(recipe: Recipe, fit: Fit, X: Any, y: Any, beside: Beside) -> Loss | None:
    """Return the rows of a dataset store that a fit is to be without; None for other rows.

    Those of a store that the fit has seen are the ones that it has, those of another one all.

    Raises
    ------
    StoreError
        If rows that the fit has seen are no longer what they were.
    SettingError
        If the method cannot take out rows.
    """
    fit = changing.with_totals(recipe, fit, forget=True)
    url = seen.place_of(X, y)
    if url is None:
        return None
    joint = fit.posterior.joint
    rows = data.rows_of(X, y, None, True, columns=recipe.columns, joint=joint)
    source = _source(fit, url, rows)
    if source is not None and source.url != url and len(rows) < source.rows:
        source = None  # a part of that store
    if source is None:
        own = _beside(recipe, y, beside, None)
        return Loss(recipe, fit, X, y, own, seen.dataset_at(url, rows).unseen(), len(rows))
    source.check(seen.dataset_at(url, rows, source.arrays), HERE)
    fit, source = _renamed(fit, source, url), replace(source, url=url)
    own = _beside(recipe, y, beside, source)
    part = part_of(X, y, own, slice(source.start, source.rows))
    return Loss(recipe, fit, *part, source, len(rows))


def _check_window(recipe: Recipe, fit: Fit, window: Any, along: Any, refit: bool) -> None:
    """Raise SettingError for a window that does not suit a method."""
    if window is None:
        if along is not None:
            raise SettingError(
                f"along={shown(along)} has no effect without window=: give it, or leave along out"
            )
        return
    number = isinstance(window, Real) and not isinstance(window, bool)
    if not number or not 0 < window < np.inf or (along is None and window != int(window)):
        wanted = "a whole number of rows" if along is None else f"a length along {along!r}"
        raise SettingError(f"window={shown(window)}: {wanted} above 0 is needed")
    if along is not None:
        _column(fit.posterior.feature_names, along)
    if refit:
        return
    try:
        changing.with_totals(recipe, fit, forget=True)
    except SettingError as error:
        error.add_note("daskgp update --retrain with this window fits the rows in it")
        raise


def _column(names: tuple[str, ...], along: str | int) -> int:
    if isinstance(along, int) and 0 <= along < len(names):
        return along
    if along in names:
        return names.index(str(along))
    raise SettingError(f"along={shown(along)} is not a feature: choose among {', '.join(names)}")


def _start(dataset: seen.Dataset, start: int, window: float, along: str | int | None) -> int:
    """Return the first row of a window that ends with the last row, not before ``start``.

    Along a column whose values do not decrease, it is the first above the last value less the
    window; only chunks that leave the window are read, and those at its ends.
    """
    rows = dataset.rows
    if along is None:
        return max(start, len(rows) - int(window))
    step = dataset.rows.chunks[0] if dataset.rows.chunks else len(rows)
    read = _reader(dataset, _column(rows.feature_names, along), along)
    last = -np.inf
    for end in range(len(rows), start, -step):
        last = read(max(start, end - step), end)[-1]
        if np.isfinite(last):
            break
    for begin in range(start, len(rows), step):
        values = read(begin, min(begin + step, len(rows)))
        inside = np.flatnonzero(values > last - window)
        if len(inside):
            return begin + int(inside[0])
    return start


def _reader(
    dataset: seen.Dataset, column: int, along: str | int
) -> Callable[[int, int], np.ndarray]:
    """Return a function that reads a column; a missing value is the last one before it."""

    def read(start: int, stop: int) -> np.ndarray:
        values = np.asarray(dataset.rows.raw(start, stop)[0][:, column], np.float64)
        filled = np.fmax.accumulate(values)
        lower = np.flatnonzero(values < filled)
        if len(lower):
            raise InputError(
                f"window along {along!r}: row {start + int(lower[0])} of {dataset.url} lies before "
                "one above it: put the rows in its order, or leave along out to count rows"
            )
        return np.where(np.isnan(filled), -np.inf, filled)

    return read
