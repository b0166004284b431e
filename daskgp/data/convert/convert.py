"""Tables and labelled grids in other formats as dataset stores, streamed block by block.

Blocks of rows from a source are written as whole chunks of a dataset store, so memory holds a
few blocks whatever the length of the source (for npz, which cannot be read in part, the arrays
asked for).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from daskgp import checks, data
from daskgp.checks import shown, text_of
from daskgp.data import crs, feature_units, grids, polygons, whole_dates
from daskgp.data.categories import CATEGORIES, Coding, Levels
from daskgp.data.categories import check as check_levels
from daskgp.data.convert import layout, sources
from daskgp.data.convert.layout import Choices, Layout
from daskgp.data.convert.sources import Source
from daskgp.data.convert.table import (
    MISSING,
    NUMBERS,
    TIMES,
    ColumnError,
    Kind,
    Names,
    Table,
    check_known,
    compared,
    reading,
)
from daskgp.data.feature_units import DAYS, count_of, counted
from daskgp.data.stores import groups, locks, remote
from daskgp.data.valid import Valid, numbers_of
from daskgp.data.writers import BY_ROW, COLUMNS, dataset_appender
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.models.categories import UnseenError
from daskgp.models.categories import numbers_of as numbers_of_levels
from daskgp.models.categories import shown as listed
from daskgp.models.columns import Columns
from daskgp.models.columns import chosen as place_in
from daskgp.models.fills import SURE
from daskgp.runtime.progress import Amount, ShowProgress, progress_line
from daskgp.typing import Path

__all__ = ["Conversion", "convert"]

logger: logging.Logger = logging.getLogger("daskgp")

Options = Mapping[str, Any]

NOISE = {"y_std": "y_variance", "y_variance": "y_variance", "weight": "weight"}
ERRORS = "y_std", "y_variance"
"""Arguments that name errors of targets."""
BESIDE = {**NOISE, **dict(zip(COLUMNS, COLUMNS, strict=True))}
"""Arrays beside y by the arguments that name their columns."""


class Conversion(NamedTuple):
    """Result of `convert`: rows written, grid points left out, and the names of the columns.

    ``geographic`` are those of longitude and latitude, empty where the store says none.

    Examples
    --------
    >>> import tempfile, numpy as np, daskgp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/rows.npz", X=np.ones((4, 2)), y=np.arange(4.0))
    ...     found = daskgp.convert(f"{folder}/rows.npz", f"{folder}/rows.zarr", target="y")
    >>> found.rows, found.targets
    (4, ('y',))
    """

    rows: int
    skipped: int
    features: Names
    targets: Names
    geographic: Names = ()


def convert(
    source: Source,
    destination: Path,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    block_rows: int | None = None,
    *,
    append: bool = False,
    like: Path | None = None,
    y_std: str | Sequence[str] | None = None,
    y_variance: str | Sequence[str] | None = None,
    weight: str | None = None,
    trials: str | None = None,
    exposure: str | None = None,
    offset: str | None = None,
    lower: str | None = None,
    upper: str | None = None,
    mask: Path | None = None,
    geographic: Sequence[str] | str | bool | None = None,
    dates: Sequence[str] | str | bool | None = None,
    fill_values: Literal["auto"] | Sequence[float] | float | None = "auto",
    storage_options: Options | None = None,
    destination_options: Options | None = None,
    wait: float = 0.0,
    clear_lock: bool = False,
    progress: ShowProgress = "auto",
) -> Conversion:
    """Convert tables or grids to a dataset store.

    Parameters
    ----------
    source : str, path, sequence of them, or object with labelled columns
        A local path or fsspec URL ending in ``.csv`` (also compressed, ``.csv.gz``),
        ``.parquet``, ``.npz``, ``.nc`` or ``.zarr``; a pattern such as ``"2024/*.csv"``, a folder
        of such files, or several of these. An npz holds ``X`` (n, d) and ``y``, whose
        columns are then named x0, x1, ..., another matrix, or one-dimensional columns.
        netCDF and Zarr hold grids with named dimensions. Files of a pattern or folder are read in
        the sorted order of their names, and have the same columns; grids are combined by their
        coordinates, as by ``xarray.open_mfdataset``. In memory: data frames of pandas, Polars and
        Dask (partition by partition), Arrow tables and streams, xarray objects, and the grid in a
        store of zarr-python or an Icechunk session.
    destination : str or path
        The dataset store to write: a local path or fsspec URL where nothing exists yet.
    target : str or sequence of str, optional
        Column or grid variable to predict; several become several outputs. Without one the
        store holds ``X`` alone: places to predict at, where the target is not known.
    features : str or sequence of str, optional
        Columns of X in this order. By default all other columns of a table, ``X`` or the
        only matrix of an npz that has one, and the coordinates of the target's dimensions of
        a grid (without a target, of all its dimensions). A grid offers its coordinates
        and all variables along dimensions of the target. Times become days since 1970-01-01
        (UTC), fractions included, which the store says in its attribute ``feature_units``. Named
        columns of text become the places of their sorted names, which are in ``categories``.
    block_rows : int, optional
        Rows per chunk of the store, 65,536 by default.
    append : bool
        Add the rows to the dataset store that is at the destination. Its features, targets, units
        of times and geographic columns are taken, and, where no others are named, the columns
        that its errors, weights and the like came from and its mask. The rows appear all at once:
        nobody reads the store until then, a failure leaves it as it was, and after a kill the same
        call begins again where the old rows end.
    like : str or path, optional
        A dataset store, or a model in its store, whose features, units of times, levels of text and
        geographic columns are taken, such as that of the training rows for places to predict at.
    y_std, y_variance : str or sequence of str, optional
        Column with the standard deviation, or the variance, of the error of each target value; the
        store keeps the variance as the array ``y_variance``, which `fit` takes.  Of several targets
        a column for each, in their order, as joint ones take them.
    weight : str, optional
        Column with the weight of each row, kept as the array ``weight``.
    trials, exposure, offset, lower, upper : str, optional
        Columns of numbers that likelihoods take beside the target, see `fit`: trials of a binomial
        one, exposure or offset of counts, bounds of a censored one.  They are kept as arrays of
        these names, which `fit` takes where its likelihood does.
    mask : str or path, optional
        Variable of a grid. Points where it is NaN, or False or 0 if it holds booleans or integers,
        are left out.  Or, for any source, the path of a GeoJSON file (.geojson, .json) over
        longitude and latitude, or x and y, outside whose polygons rows are left out.
    geographic : pair of str or int, or False, optional
        Features that are longitude and latitude, in degrees, which the store then says: fits take
        distances on the sphere.  Default those of a grid whose CF attributes are ``standard_name``
        longitude and latitude, or ``units`` degrees_east and degrees_north; False for none. With
        ``like`` those of that store.
    dates : sequence of str, or False, optional
        Features that are dates written as whole numbers, such as 20210131, 202101, 2021031 or
        2021013112, which become days since 1970-01-01 as times do.  Default those that are times
        by their names or attributes and hold valid dates in the first rows, which is said; False
        for none.  ``append`` and ``like`` take those that are times in the store.
    fill_values : "auto", list of float or None
        Numbers that stand for missing values in any column, beside those that a grid declares: CF's
        ``_FillValue`` and ``missing_value``, and what is outside ``valid_min``, ``valid_max`` and
        ``valid_range``. "auto" takes the latter alone. None heeds no valid range, and no fill
        values but those that xarray decodes. Fits have a setting of this name, too, which finds
        those that nobody declares.
    storage_options : mapping, optional
        Options of the remote file systems of source and destination, as of fsspec:
        ``{"anon": True}`` reads public buckets of S3.
    destination_options : mapping, optional
        Options of the destination in the place of ``storage_options``.
    wait : float
        Seconds to wait for another run that appends to the store.
    clear_lock : bool
        Take over the lock that a dead run left on another host; that of a live one stays.
    progress : bool or "auto"
        Whether to show progress on stderr; "auto" shows it on a terminal.

    Returns
    -------
    Conversion
        ``rows`` written, grid points ``skipped`` that are masked or have no target, ``features``
        and ``targets``. Rows of a table are all kept; `fit` drops those that hold NaN.

    Raises
    ------
    InputError
        If the source is missing, damaged or has no rows, a file has other columns or types than
        those before it, a column is unknown or holds text, or a target is among the features;
        StoreError if the destination exists or cannot be written; RunError if another run
        appends to it. Nothing is left at the destination then.

    Examples
    --------
    >>> import os, tempfile, numpy as np, daskgp
    >>> table = ["easting,northing,height", "0,0,10", "0,1,12", "1,0,11", "1,1,14"]
    >>> folder = tempfile.TemporaryDirectory()
    >>> csv, store = os.path.join(folder.name, "t.csv"), os.path.join(folder.name, "t.zarr")
    >>> with open(csv, "w") as file:
    ...     print(*table, sep=os.linesep, file=file)
    >>> _ = daskgp.convert(csv, store, target="height")
    >>> X, y = daskgp.open_dataset(store)
    >>> X.shape, y.compute()
    ((4, 2), array([10., 12., 11., 14.]))
    >>> folder.cleanup()
    """
    url = str(destination)
    beside = {"y_std": y_std, "y_variance": y_variance, "weight": weight, "mask": text_of(mask)}
    beside |= {"trials": trials, "exposure": exposure, "offset": offset}
    beside |= {"lower": lower, "upper": upper}
    asked = _Asked.of(source, target, features, geographic, dates, beside)
    asked = asked._replace(fills=numbers_of(fill_values))
    addresses = (*sources.addresses(source), url)
    places = remote.chosen(
        ("storage_options", storage_options, addresses),
        ("destination_options", destination_options, (url,)),
    )
    with remote.given(places):
        if append:
            own = {"block_rows": block_rows, "like": like, "geographic": geographic}
            _refuse_idle("append", **own, dates=dates)
            groups.open_group(url, "dataset")  # before its lock makes a folder
            with locks.hold(url, wait, clear_lock, resume=True) as claim:
                return _append(asked, url, claim, progress)
        _refuse_idle("a new dataset", wait=wait or None, clear_lock=clear_lock or None)
        if like is not None:
            _refuse_idle("like", dates=dates)
        kept = None if like is None else layout.layout_like(str(like))
        step = data.DEFAULT_BLOCK_ROWS if block_rows is None else block_rows
        return _made(asked, url, step, progress, kept, str(like))


def convert_for(
    units: Mapping[str, str],
    source: Source,
    destination: str,
    target: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    *,
    geographic: Any = None,
    dates: Any = None,
    fill_values: Any = "auto",
    levels: Levels = MappingProxyType({}),
    takes_new: bool = False,
    progress: ShowProgress = "auto",
    **beside: str | Sequence[str] | None,
) -> Conversion:
    """Convert as ``convert`` does, for a model whose features have these ``units``.

    By default whole numbers are dates where the model has days since 1970, as it has of dates.
    Text has the ``levels`` of the model; others are added if it ``takes_new`` ones, and refused
    else.
    """
    asked = _Asked.of(source, target, features, geographic, dates, beside)
    if not isinstance(fill_values, str):
        asked = asked._replace(fills=numbers_of(fill_values))
    asked = asked._replace(units=units, levels=levels, takes_new=takes_new)
    return _made(asked, destination, data.DEFAULT_BLOCK_ROWS, progress)


def _made(
    asked: _Asked,
    destination: str,
    step: int,
    progress: ShowProgress,
    kept: Layout | None = None,
    like: str = "",
) -> Conversion:
    """Write what is asked to a new dataset store."""
    groups.refuse_existing(destination, "dataset")
    with _planned(asked, kept, like, step) as plan:
        names, said = plan.layout[:2], plan.layout.attributes()
        widths = {name: len(columns) for name, columns in asked.arrays().items()}
        with data.dataset_writer(
            destination, *names, step, attributes=said, beside=widths
        ) as writer:
            return plan.copy(writer, progress)


class _Asked(NamedTuple):
    """Source of a conversion and the columns that its caller names."""

    source: Source
    targets: Names
    features: Names
    geographic: Any
    """Columns of longitude and latitude, False for none, None for those known."""
    choices: Choices
    """Columns that are neither features nor targets, by the arguments that name them."""
    dates: Names | None = None
    """Features that are dates written as whole numbers, None for those that look like them."""
    units: Mapping[str, str] | None = None
    """Units of the features of a model, or of a store, that more rows are for."""
    levels: Levels = MappingProxyType({})
    """Levels of features of a model, or of a store, that more rows are for."""
    takes_new: bool = True
    """True if text may have others than these."""
    fills: tuple[float, ...] | None = None
    """Numbers that stand for missing values, none where also declared ones are kept, or None."""

    @classmethod
    def of(
        cls,
        source: Source,
        target: str | Sequence[str] | None,
        features: str | Sequence[str] | None,
        geographic: Any,
        dates: Any,
        beside: Mapping[str, str | Sequence[str] | None],
    ) -> Self:
        """Return what a caller asks for; InputError unless names are different ones."""
        named = _distinct("target", target), _distinct("features", features)
        choices = {name: _distinct(name, column) for name, column in beside.items() if column}
        several = next(
            (name for name, own in choices.items() if own[1:] and name not in ERRORS), ""
        )
        if several:
            raise InputError(f"{several} is {', '.join(choices[several])}: give one column")
        if dates is True:
            raise SettingError("dates=True: name the columns, or give False or None")
        own = () if dates is False else None if dates is None else _distinct("dates", dates)
        return cls(source, *named, geographic, choices, own)

    @property
    def mask(self) -> str | None:
        """Variable of a grid that says which points to leave out."""
        given = self.choices.get("mask", (None,))[0]
        return None if given is not None and polygons.is_path(given) else given

    def region(self, features: Names) -> polygons.Polygons | None:
        """Return the polygons that rows lie in, if a mask is the path of some."""
        given = self.choices.get("mask", (None,))[0]
        if given is None or not polygons.is_path(given):
            return None
        return polygons.polygons_in(given, features)

    def arrays(self) -> dict[str, tuple[_Column, ...]]:
        """Return the columns of the arrays beside y, by the names of the arrays.

        Raises
        ------
        InputError
            If there are no targets, or as many errors of them, or an error is named twice.
        """
        choices = self.choices
        given = [_Column(name, choices[name][0]) for name in BESIDE if name in choices]
        errors = [column for column in given if column.argument in ERRORS]
        if not given:
            return {}
        of_target = [column for column in given if column.argument not in COLUMNS]
        first = f"{(of_target or given)[0].argument}={(of_target or given)[0].name!r}"
        if not self.targets and of_target:
            raise InputError(
                f"{first} describes a target, but there is none: give target= (--target)"
            )
        if len(errors) > 1:
            raise InputError(
                f"{first} and y_variance={errors[1].name!r} describe the same error: give only one "
                "of them"
            )
        for argument in (column.argument for column in errors):
            number = len(choices[argument])
            if number != max(len(self.targets), 1):
                columns = f"{number} column{'s' * (number > 1)}"
                targets = f"{len(self.targets)} target{'s' * (len(self.targets) > 1)}"
                raise InputError(
                    f"{argument} has {columns} for {targets}: name one for each target, in their "
                    "order"
                )
        return {
            BESIDE[column.argument]: tuple(
                _Column(column.argument, name, j) for j, name in enumerate(choices[column.argument])
            )
            for column in given
        }

    def check_times(
        self, table: Table, features: Names, units: Mapping[str, str], source: str
    ) -> None:
        """Raise InputError for times that cannot be read; log dates as numbers that units say.

        A model or a store that rows are for has units to compare these with.
        """
        if self.units is not None:
            return
        if table.gridded:
            grids.refuse_unread({name: table.attributes.get(name, {}) for name in features})
        for name in features:
            if self.dates != () and whole_dates.read(units[name]):
                logger.info(BECOME, name, source, units[name], counted(units[name]))

    def beside(self) -> Names:
        """Return the columns that are neither features nor targets."""
        masks = () if self.mask is None else (self.mask,)
        return (*(one.name for columns in self.arrays().values() for one in columns), *masks)

    def unmasked(self) -> _Asked:
        """Return what is asked without a mask."""
        others = {name: column for name, column in self.choices.items() if name != "mask"}
        return self._replace(choices=others)

    def like(self, kept: Layout) -> _Asked:
        """Return what is asked of more rows of a store: what its own were, where nothing else is.

        Columns of errors go together.
        """
        given = dict(self.choices)
        for name, column in kept.choices.items():
            if name not in given and not (name in ERRORS and {*ERRORS} & {*given}):
                given[name] = column
        return self._replace(targets=self.targets or kept.targets, choices=given)

    def refuse_dates(self, features: Names, what: str) -> None:
        """Raise InputError for dates that are no features, or no times of a model."""
        check_known("date", self.dates or (), features, f"the features of {what}")
        for name in self.dates or ():
            unit = "" if self.units is None else self.units.get(name, "")
            if self.units is not None and count_of(unit) is None:
                raise InputError(
                    f"dates={name!r}, but the model was fitted with plain numbers there: leave it "
                    "out, or fit again"
                )


class _Column(NamedTuple):
    """Column of an array beside y, the argument that names it, and its number among others.

    Of standard deviations, ``y_std``, the array has the squares.
    """

    argument: str
    name: str
    number: int = 0

    def values(self, column: np.ndarray, needed: np.ndarray, before: int) -> np.ndarray:
        """Return the values (r,) of the array, after ``before`` rows.

        Raises
        ------
        InputError
            For an error or a weight that is negative, or is not finite in a row (r,) where it is
            needed.
        """
        if self.argument in COLUMNS:  # which a likelihood checks, and a missing one misses y
            return column
        below = {"negative": column < 0}
        if self.argument != "weight":
            below = {"zero or negative": (column < 0) | ((column == 0) & needed)}
        wrong = {
            **below,
            "missing": np.isnan(column) & needed,
            "infinite": np.isinf(column) & needed,
        }
        said = [f"{what} in {checks.rows(bad.sum())}" for what, bad in wrong.items() if bad.any()]
        if said:
            raise InputError(
                f"{self.argument}={self.name!r} is {' and '.join(said)} of those from "
                f"{before + 1:,} to {before + len(column):,}: leave these rows out, or give "
                "positive finite numbers"
            )
        return column**2 if self.argument == "y_std" else column


def _append(
    asked: _Asked, destination: str, claim: locks.Claim, progress: ShowProgress
) -> Conversion:
    """Add rows to the dataset store at a URL, whose lock is held."""
    kept = layout.layout_of(destination)
    present = groups.names_in(destination)
    more = sorted(present - set(BY_ROW))
    if more:
        raise StoreError(
            f"no rows can be added to the dataset {destination}, which also has {', '.join(more)}: "
            "add them to the store that it was made from, or make it again from all rows"
        )
    named = asked.like(kept)
    for name in BY_ROW[2:]:
        if (name in present) != (name in named.arrays()):
            there, remedy = ("an", "give") if name in present else ("no", "leave out")
            options = "y_std= or y_variance=" if name == "y_variance" else f"{name}="
            raise InputError(
                f"the dataset {destination} has {there} array {name}: {remedy} {options}"
            )
    with _planned(named, kept, destination, data.DEFAULT_BLOCK_ROWS) as plan:
        layout.check_names(plan.layout, kept, destination)
        _tell_of_new_levels(plan.layout.categories, kept.categories, destination)
        levels = {name: [*own] for name, own in plan.layout.categories.items()}
        attributes = {CATEGORIES: levels} if levels else None
        with dataset_appender(destination, claim, attributes) as writer:
            return plan.copy(writer, progress)


def _tell_of_new_levels(levels: Levels, before: Levels, url: str) -> None:
    """Warn of levels that a dataset store did not have, and its models do not know."""
    for name, own in levels.items():
        more = own[len(before.get(name, own)) :]
        if more:
            logger.warning(
                "feature %r has %s, which %s did not have: a model that was fitted to it takes "
                "such rows by daskgp update --retrain",
                *(name, ", ".join(map(repr, more[:5])), url),
            )


@contextmanager
def _planned(asked: _Asked, kept: Layout | None, url: str, step: int) -> Iterator[_Plan]:
    """Open a source and check its columns, before anything is written.

    ``kept`` is the layout of the store at ``url``, whose features, units and geographic columns
    are taken; rows are read in blocks of about ``step``.
    """
    features, what = asked.features or (kept.features if kept else ()), sources.shown(asked.source)
    arrays = tuple(asked.arrays().values())
    opened = sources.open_table(asked.source, asked.targets, features, asked.beside())
    with _unlike_features(asked.beside()), opened as table:
        if (
            not table.gridded
            and kept is not None
            and asked.mask is not None
            and kept.choices.get("mask", (None,))[0] == asked.mask
        ):
            asked = asked.unmasked()  # that of grids before
        beside = asked.beside()
        twice = next((name for name in beside if beside.count(name) > 1), None)
        if twice is not None:
            raise InputError(
                f"{twice!r} has two uses among errors, weights, mask and what a likelihood takes: "
                "copy the column"
            )
        _refuse_mask_of_table(table, asked.mask, what)
        check_known("column", beside, table.columns, what)
        chosen = _features(table, features, what, beside)
        if not features:
            _tell_of_unnamed(table, chosen, what, beside)
        if kept is not None:
            asked = asked._replace(units=kept.units, levels=kept.categories)
        kinds = _kinds(table, chosen, beside, asked, bool(features), what)
        own = {n: table.unit(n) or DAYS * (kinds[n] == TIMES) for n in kinds}
        missing = _Missing.of(table, kinds, asked.fills)
        read = missing.marked(table.read(kinds, step, what))
        blocks, own = _dated(table, kinds, own, chosen, asked, read, what)
        units = own | {name: counted(own[name]) for name in chosen}
        if kept is not None:
            units = layout.match_units(own, kinds, kept, table.gridded, url)
        place = _place(table, chosen, asked.geographic, kept)
        levels = {name: kind.levels for name, kind in kinds.items() if isinstance(kind, Coding)}
        if kept is not None:
            crs.refuse_other(table.reference, kept.reference, what, f"the dataset {url}")
        system = table.reference or (kept.reference if kept is not None else {})
        made = Layout(chosen, table.targets, units, True, place, asked.choices, levels, system)
        zeros, region = _masks_zeros(table, asked.mask, what), asked.region(chosen)
        clocks = tuple(feature_units.conversion(unit, units[name]) for name, unit in own.items())
        if kept is not None:
            pairs = zip(kinds.items(), clocks, strict=True)
            as_given = {name: kind if how is None else TIMES for (name, kind), how in pairs}
            before = layout.first_ends(url, kept, kinds)
            blocks = compared(blocks, as_given, before, what, f"the dataset {url}", True, place)
        yield _Plan(table, made, blocks, clocks, what, arrays, zeros, region, missing)


def _kinds(
    table: Table, features: Names, beside: Names, asked: _Asked, named: bool, source: str
) -> dict[str, Kind]:
    """Return the kinds of the columns to read: of features that are ``named`` text, too.

    In a model or a store that the rows are for, these are text as well.

    Raises
    ------
    InputError
        For what is none, or text of another kind than in the model or store that it is for.
    """
    texts = {name for name, own in asked.levels.items() if numbers_of_levels(own) is None}
    may_be = [name for name in features if named and (asked.units is None or name in texts)]
    found = table.levels(tuple(may_be)) if may_be else {}
    wanted = (*features, *table.targets, *beside)
    try:
        plain = table.kinds(tuple(name for name in wanted if name not in found))
    except ColumnError as error:
        raise (error if named else error.naming(features)) from None
    kinds: dict[str, Kind] = {}
    for name in wanted:
        own, known = found.get(name), asked.levels.get(name, ()) if name in texts else ()
        if own is not None:
            more = tuple(level for level in own if level not in known)
            if known and more and not asked.takes_new:
                raise UnseenError(name, repr(more[0]), known)
            check_levels(name, known + more)
            kinds[name] = Coding(name, known + more)
        elif known and plain[name] == NUMBERS:
            raise InputError(
                f"column {name!r} of {source} holds numbers, but it is a category with the levels "
                f"{listed(known)}: give these names"
            )
        else:
            kinds[name] = Coding(name, known) if known and plain[name] == MISSING else plain[name]
    times = next((name for name in beside if kinds[name] == TIMES), None)
    if times is not None:
        raise InputError(
            f"column {times!r} of {source} holds times, but numbers are needed: name another column"
        )
    return kinds


def _refuse_mask_of_table(table: Table, mask: str | None, source: str) -> None:
    """Raise InputError for a mask of what is no grid."""
    if mask is not None and not table.gridded:
        raise InputError(
            f"mask={mask!r} is for grids and {source} is a table: leave mask out, and remove "
            "these rows from the table"
        )


def _masks_zeros(table: Table, mask: str | None, source: str) -> bool | None:
    """Return whether a mask leaves out zeros, too; None without one, InputError if nothing."""
    if mask is None:
        return None
    with reading(source):
        table.check_mask(mask)
    return mask in table.zeros


def _dated(
    table: Table,
    kinds: Mapping[str, Kind],
    own: Mapping[str, str],
    features: Names,
    asked: _Asked,
    blocks: Iterator[np.ndarray],
    source: str,
) -> tuple[Iterator[np.ndarray], dict[str, str]]:
    """Return the blocks of a table and the units of its columns, with those of dates as numbers.

    The first block, which cannot be read twice from all sources, tells which columns are dates.
    """
    asked.refuse_dates(features, source)
    asked.check_times(table, features, own, source)
    if asked.dates == ():
        dates = {name: "" for name in features if whole_dates.read(own[name])}
        return blocks, {**own, **dates}
    looked = [name for name in features if kinds[name] == NUMBERS]
    if asked.dates is not None:
        looked = [n for n in looked if n in asked.dates and counted(own[n]) == own[n]]
    else:
        looked = [n for n in looked if own[n] in feature_units.VAGUE]
        if asked.units is None:
            attributes = table.attributes
            looked = [n for n in looked if whole_dates.named_as_time(n, attributes.get(n))]
        else:
            looked = [n for n in looked if asked.units.get(n) == DAYS]
    first = next(blocks, None) if looked else None
    if first is None:
        return blocks, dict(own)
    columns, found = list(kinds), dict[str, str]()
    for name in looked:
        values = first[:, columns.index(name)]
        form = _form(values, asked)
        if form is not None:
            found[name] = form.written
        elif asked.dates is not None:
            others = whole_dates.others_of(values)
            forms = ", ".join(form.written for form in whole_dates.FORMS)
            raise InputError(
                f"column {name!r} of {source} does not hold dates of one of the forms {forms}: "
                + (f"give times, {whole_dates.as_text(others)}" if others else "correct it")
                + ", or leave it out of dates"
            )
        if form is not None and asked.dates is None and asked.units is None:
            logger.warning(BECOME, name, source, form.written, DAYS)
    return chain([first], blocks), {**own, **found}


BECOME = (
    "column %r of %s holds dates written %s, which become %s (dates=False of convert, --dates "
    "none, keeps the numbers)"
)


def _form(values: np.ndarray, asked: _Asked) -> whole_dates.Form | None:
    """Return the form in which the first numbers of a column are dates.

    One of many that is none is then refused by its row.
    """
    if asked.units is not None or asked.dates is not None:
        return whole_dates.form_of(values, whole_dates.OF_MODEL)
    many = len(np.unique(values)) >= whole_dates.DISTINCT
    return whole_dates.form_of(values, whole_dates.MOST if many else 1.0)


@contextmanager
def _unlike_features(beside: Names) -> Iterator[None]:
    """Give errors about columns beside the features a remedy of their own."""
    try:
        yield
    except ColumnError as error:
        names, seen, _ = error.args
        if not {*names} <= {*beside}:
            raise
        raise InputError(f"{seen}: errors, weights and masks must be numbers in the file") from None


def _place(table: Table, features: Names, geographic: Any, kept: Layout | None) -> Names:
    """Return the features that are longitude and latitude: those given, else those known."""
    if kept is not None:
        known = kept.geographic if {*kept.geographic} <= {*features} else ()
    elif geographic is False:
        known = ()
    else:
        own = {name: table.attributes.get(name, {}) for name in features}
        known = grids.place_among(own) or ()
    chosen = place_in(geographic, features, known or None)
    feature_units.refuse_no_degrees(features, [*map(table.unit, features)], chosen or ())
    if known and geographic is None and kept is None:
        logger.info(
            "features %r and %r are longitude and latitude by their CF attributes: fits will take "
            "distances on the sphere, in km (geographic=False for those in degrees)",
            *known,
        )
    return tuple(features[j] for j in chosen or ())


class _Plan(NamedTuple):
    """Open table and what is to be written of it."""

    table: Table
    layout: Layout
    blocks: Iterator[np.ndarray]
    clocks: tuple[feature_units.Conversion | None, ...]
    """Conversions of columns into the units of the store, times above all."""
    source: str
    arrays: tuple[tuple[_Column, ...], ...]
    """Columns of each array beside y."""
    zeros: bool | None
    """True if the last column masks points where it is 0, too; None without a mask."""
    region: polygons.Polygons | None
    """Region that rows lie in, None for everywhere."""
    missing: _Missing

    def copy(self, writer: data.DatasetWriter, progress: ShowProgress) -> Conversion:
        """Write all rows; InputError if there are none."""
        table, d, p = self.table, len(self.layout.features), len(self.layout.targets)
        names, place = self.layout.features, self.layout.geographic
        fills = tuple(SURE if name in place else () for name in names)  # which fits find
        columns = Columns(names, place_in(place or False, names, None), fills)
        rows = skipped = 0
        read = 0
        for block in _counted(self.blocks, table.rows, progress):
            block, raw = feature_units.converted(block, self.clocks), block
            self._check_dates(raw, block, read)
            read += len(block)
            wanted = self._wanted(block, d, p)
            skipped += int(np.count_nonzero(~wanted))
            block = block if wanted.all() else block[wanted]
            X, y, more = np.split(block, [d, d + p], axis=1)
            columns.check(X)
            writer.append(X, y if table.targets else None, *self._beside(X, y, more, rows))
            rows += len(X)
        if rows == 0:
            masked = "masked or " if self.zeros is not None or self.region else ""
            why = (
                f"all {skipped} points of the target are {masked}NaN" if skipped else "it is empty"
            )
            why += self.missing.remedy
            raise InputError(f"{self.source} has no rows to convert: {why}; choose another source")
        self.missing.tell()
        return Conversion(rows, skipped, names, self.layout.targets, place)

    def _beside(
        self, X: np.ndarray, y: np.ndarray, more: np.ndarray, before: int
    ) -> Iterator[np.ndarray]:
        """Yield the arrays beside y of rows, after others, from the columns (r, ...) of all."""
        needed = ~np.isnan(X).any(axis=1)  # others are not fitted
        flat = [own for columns in self.arrays for own in columns]
        for values, own in zip(more.T, flat, strict=False):
            needed &= (values != 0) | (own.argument != "weight")
        known, columns = ~np.isnan(y), iter(more.T)
        for group in self.arrays:
            one = len(group) == 1
            there = [needed & (known.all(axis=1) if one else known[:, own.number]) for own in group]
            parts = [
                own.values(next(columns), part, before)
                for own, part in zip(group, there, strict=True)
            ]
            yield parts[0] if one else np.column_stack(parts)

    def _check_dates(self, raw: np.ndarray, block: np.ndarray, before: int) -> None:
        """Raise InputError for numbers of raw rows (r, ...), after others, that are no dates."""
        for j, how in enumerate(self.clocks):
            if how is None or how.dates is None:
                continue
            bad = np.flatnonzero(np.isnan(block[:, j]) & ~np.isnan(raw[:, j]))
            if len(bad):
                name, value = self.layout.features[j], raw[bad[0], j]
                raise InputError(
                    f"column {name!r} of {self.source} holds {value:.15g} in row "
                    f"{before + bad[0] + 1:,}, which is not a date written {how.dates[0].written}: "
                    "correct it or leave it empty, or keep the numbers with dates=False "
                    "(--dates none)"
                )

    def _wanted(self, block: np.ndarray, d: int, p: int) -> np.ndarray:
        """Return flags (r,) of the rows of a block (r, d + p + ...) that are not left out."""
        wanted = np.ones(len(block), bool)
        if self.table.gridded and p:
            wanted = ~np.isnan(block[:, d : d + p]).all(axis=1)
        if self.zeros is not None:
            mask = block[:, -1]
            wanted &= ~np.isnan(mask) & (mask != 0 if self.zeros else True)
        if self.region is not None:
            wanted &= self.region.hold(
                *(block[:, self.layout.features.index(name)] for name in self.region.features)
            )
        return wanted


class _Missing(NamedTuple):
    """Numbers of columns that stand for missing values, and how many of them were read."""

    names: Names
    valid: tuple[Valid | None, ...]
    """Valid values of each column, as it declares or as they are given."""
    counts: np.ndarray
    given: bool

    @classmethod
    def of(cls, table: Table, kinds: Mapping[str, Kind], fills: tuple[float, ...] | None) -> Self:
        """Return those of columns of some kinds: declared ones, and given ``fills``."""
        own: list[Valid | None] = []
        for name, kind in kinds.items():
            said = None if fills == () else table.valid.get(name)
            if fills and kind != TIMES and not isinstance(kind, Coding):
                known = said or Valid((), -np.inf, np.inf)
                said = known._replace(fills=(*known.fills, *fills))
            own.append(said)
        return cls(tuple(kinds), tuple(own), np.zeros(len(own), np.int64), bool(fills))

    def marked(self, blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield blocks (r, columns) of rows with NaN in place of such numbers."""
        for block in blocks:
            for j, own in enumerate(self.valid):
                if own is not None:
                    column = own.known(block[:, j])
                    self.counts[j] += np.count_nonzero(np.isnan(column) & ~np.isnan(block[:, j]))
                    block[:, j] = column
            yield block

    def tell(self) -> None:
        """Log how many were read, in one line."""
        said = [
            f"{count:,} of {name!r}"
            for name, count in zip(self.names, self.counts.tolist(), strict=True)
            if count
        ]
        if said:
            why = "fill values or outside the valid range"
            logger.warning(
                "values that are %s: read as missing, %s%s",
                why if not self.given else f"given or declared as {why}",
                ", ".join(said),
                "" if self.given else " (fill_values=None or --fill none keeps them)",
            )

    @property
    def remedy(self) -> str:
        """Remedy where no row is left because of what is declared."""
        if self.given or not self.counts.any():
            return ""
        return (
            " by the valid range or the fill value that it declares (fill_values=None heeds none)"
        )


def _counted(
    blocks: Iterator[np.ndarray], total: int | None, progress: ShowProgress
) -> Iterator[np.ndarray]:
    """Yield blocks of rows and show how far they have got."""
    with progress_line("convert", total, Amount(unit="rows"), progress) as advance:
        for block in blocks:
            rows = len(block)
            yield block
            if advance:
                advance(rows)


OF_ERRORS = r"(?i)(.*_)?(std|stdev|err(or)?s?|uncertainty|uncertainties)(_.*)?"
"""Names of columns that hold errors of others more often than features."""


def _tell_of_unnamed(table: Table, features: Names, source: str, beside: Names) -> None:
    """Warn of what is left out where nobody names features, and of those that may be no features.

    The names of these are those of errors.
    """
    for name, why in table.unused.items():
        logger.warning("column %r of %s %s: left out", name, source, why)
    targets = table.targets
    odd = [name for name in features if re.fullmatch(OF_ERRORS, name)]
    if odd and targets and not beside:
        logger.warning(
            "%s: if it is the error of the target, name it by --y-std %s (y_std= in Python), "
            "else name the features by --features (features=)",
            ", ".join(map(repr, odd)) + (" become features" if odd[1:] else " becomes a feature"),
            odd[0],
        )


def _refuse_idle(what: str, **settings: Any) -> None:
    for name, value in settings.items():
        if value is not None:
            raise SettingError(f"{name}={shown(value)} has no effect with {what}: leave it out")


def _distinct(what: str, choice: str | Sequence[str] | None) -> Names:
    if choice is None:
        return ()
    names = (choice,) if isinstance(choice, str) else tuple(str(name) for name in choice)
    if not all(names) or not names or len(set(names)) < len(names):
        raise InputError(f"{what} is {shown(', '.join(names))}: give one or more different names")
    return names


def _features(table: Table, named: Names, source: str, beside: Names) -> Names:
    _refuse_twice(beside, table.targets)
    if not named:
        others = {*table.targets, *beside}
        names = tuple(name for name in table.defaults if name not in others)
        target = f" beside the target {', '.join(table.targets)}" if table.targets else ""
        listing = table.listing or ", ".join(name for name in table.columns if name not in others)
        if not names and listing:
            raise InputError(f"{source} offers no features{target}: name some of {listing}")
        if table.bare:
            raise InputError(
                f"{source} has {grids.bare(table.bare)}"
                + (f", or name the features that count: {', '.join(names)}" if names else "")
            )
        if not names:
            raise InputError(f"{source} has no column{target}: add a column for each feature")
        return names
    names = tuple(column for name in named for column in table.matrices.get(name, (name,)))
    check_known("feature", names, table.columns, source)
    both = [name for name in names if name in table.targets]
    if both:
        raise InputError(f"{both[0]!r} is the target and among the features: leave one out")
    _refuse_twice(beside, names)
    return names


def _refuse_twice(beside: Names, others: Names) -> None:
    twice = next((name for name in beside if name in others), None)
    if twice is not None:
        raise InputError(
            f"{twice!r} is used for the noise, a mask or a likelihood and also as a feature or "
            "target: leave one out, or give a copy of the column"
        )
