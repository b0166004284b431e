"""Training rows that are columns of a source by name: converted to a dataset store for one fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from daskgp import data
from daskgp.checks import shown, text_of
from daskgp.data import gridded
from daskgp.data.categories import Levels
from daskgp.data.convert import sources
from daskgp.data.convert.convert import Conversion, convert, convert_for
from daskgp.data.rows import ARGUMENTS, COLUMNS, Y_VARIANCE, Beside, unnamed
from daskgp.data.stores import groups, remote
from daskgp.errors import InputError, SettingError
from daskgp.models.columns import Columns
from daskgp.runtime.progress import ShowProgress
from daskgp.typing import Path

logger: logging.Logger = logging.getLogger("daskgp")


class Named(NamedTuple):
    """Source of training rows, and names of its columns as `convert` takes them."""

    source: Any
    target: Any
    features: Any = None
    mask: str | None = None
    y_std: Any = None
    y_variance: Any = None
    weight: str | None = None
    trials: str | None = None
    exposure: str | None = None
    offset: str | None = None
    lower: str | None = None
    upper: str | None = None
    geographic: Any = None
    dates: Any = None
    fill_values: Any = "auto"
    units: Mapping[str, str] | None = None
    """Units of the features of a model, for which rows are converted."""
    levels: Levels = MappingProxyType({})
    """Levels of its features that are categories."""
    takes_new: bool = False

    def like(self, columns: Columns, units: Sequence[str], targets: Sequence[str] = ()) -> Named:
        """Return the source with the columns of a model: its features, where none are named.

        Names of its targets in another order are taken in that of the model.
        """
        if _are_names(self.target) and {*self.target} == {*targets} and len(targets) > 1:
            order = [self.target.index(name) for name in targets]
            own = {"target": self.target, "y_std": self.y_std, "y_variance": self.y_variance}
            listed = {name: a for name, a in own.items() if _are_names(a) and len(a) == len(order)}
            moved: dict[str, Any] = {name: [a[j] for j in order] for name, a in listed.items()}
            return self._replace(**moved).like(columns, units)
        features = self.features
        if features is None:
            features = names_in(self.source, self.target, columns.names)
        own = dict(zip(features or columns.names, units, strict=False))
        place = columns.geographic or False
        pairs = zip(features or columns.names, columns.levels, strict=False)
        levels = {name: each for name, each in pairs if each}
        known: dict[str, Any] = {"units": own, "levels": levels, "takes_new": columns.takes_new}
        return self._replace(features=features, geographic=place, **known)

    def check(self, named: Sequence[tuple[str, str]]) -> None:
        """Raise InputError for a setting with the name of a column that the source has not.

        One that may be a feature is looked for among these later.
        """
        apart = [one for one in named if one[0] == "groups" or self.apart(one[1:])]
        if not apart:
            return
        targets = (self.target,) if isinstance(self.target, str) else tuple(self.target)
        _refuse_datasets(self.source)
        with sources.open_table(self.source, targets) as table:
            for setting, name in apart:
                if name not in table.columns:
                    known = ", ".join(table.columns)
                    raise InputError(
                        f"{setting}={name!r} is not a column of the source: choose among {known}"
                    )

    def without(self, name: str) -> Named:
        """Return the source whose default features leave out a column."""
        if self.features is not None:
            return self
        targets = (self.target,) if isinstance(self.target, str) else tuple(self.target)
        _refuse_datasets(self.source)
        with sources.open_table(self.source, targets) as table:
            gone = {name, *targets, *self._beside}
            kept = [one for one in table.defaults if one not in gone]
        return self._replace(features=kept)

    @property
    def _beside(self) -> set[str]:
        """Columns that are beside y."""
        given = [self.mask, self.y_std, self.y_variance, self.weight, self.trials, self.exposure]
        given += [self.offset, self.lower, self.upper]
        listed = (one if _are_names(one) else [one] for one in given)
        return {name for names in listed for name in names if isinstance(name, str)}

    def apart(self, names: Sequence[str]) -> list[str]:
        """Return which of some columns are no features, where these are named."""
        return [name for name in names if self.features is not None and name not in self.features]

    def values(
        self, names: Sequence[str], rows: int, url: str, progress: ShowProgress, texts: Any = None
    ) -> dict[str, np.ndarray]:
        """Return the values (n,) of columns that are no features, at the rows that are converted.

        They are converted a second time beside the features, at a URL of their own.  Only a column
        of the name ``texts`` may hold text, of which the values are codes.
        """
        none: dict[str, Any] = dict.fromkeys(("y_std", "y_variance", "weight", *COLUMNS))
        beside = self._replace(features=[*self.features, *names], **none)  # they may be among these
        with beside.converted(url, progress) as (X, _, _):
            columns = np.asarray(X[:, X.shape[1] - len(names) :], np.float64)
            text = data.levels_of(X, [*self.features, *names])
        wrong = next((name for name in names if name in text and name != texts), None)
        if wrong is not None:
            raise InputError(
                f"column {wrong!r} holds text, which has neither order nor sizes: give it as groups"
            )
        if len(columns) != rows:
            raise InputError(
                f"{', '.join(map(repr, names))} is known in only {len(columns)} of {rows} "
                "rows: fill it, or leave the other rows out"
            )
        found = {name: columns[:, j] for j, name in enumerate(names)}
        for name, own in found.items():
            missing = int(np.isnan(own).sum())
            if missing:
                logger.warning("%d of %d rows have no %r and are left out", missing, rows, name)
        return found

    @contextmanager
    def converted(
        self, url: str, progress: ShowProgress = "auto"
    ) -> Iterator[tuple[Any, Any, Conversion]]:
        """Yield X and y of a dataset store at a URL, which is removed again, and what it holds."""
        _refuse_datasets(self.source)
        data.remove(url)  # which a killed fit has left
        try:
            names = self._asdict()
            source, units = names.pop("source"), names.pop("units")
            levels = {name: names.pop(name) for name in ("levels", "takes_new")}
            run: Callable[..., Conversion] = convert
            if units is not None:
                run = partial(convert_for, units, **levels)
            found = run(source, url, **names, progress=progress)
            self._refuse_empty(url, found)
            groups.open_group(url, "dataset", mode="r+").attrs[data.PASSING] = True
            yield (*data.open_dataset(url), found)
        finally:
            data.remove(url)

    def _refuse_empty(self, url: str, found: Conversion) -> None:
        """Raise InputError for targets, converted at a URL, that have no value in any row."""
        if self.lower is not None or self.upper is not None:  # which stand for values
            return
        y = groups.array_of(groups.open_group(url, "dataset"), "y")
        starts = range(0, y.shape[0], groups.row_step(y))
        parts = (np.asarray(y[start : start + groups.row_step(y)]) for start in starts)
        if all(np.isnan(part).all() for part in parts):  # most often the first part tells
            raise InputError(
                f"no usable rows: target {', '.join(map(repr, found.targets))} of "
                f"{sources.shown(self.source)} is empty in all {found.rows} rows: name another "
                "column, or give rows with values"
            )


def names_in(source: Any, target: Any, features: tuple[str, ...]) -> list[str] | None:
    """Return the names of a model's features, None where neither it nor a source has them."""
    if features == unnamed(len(features)):
        _refuse_datasets(source)
        targets = (target,) if isinstance(target, str) else tuple(target)
        with sources.open_table(source, targets) as table:
            if not {*features} <= {*table.columns}:
                return None
    return [*features]


def columns_of(
    X: Any,
    y: Any,
    features: Any,
    mask: Path | None,
    beside: Beside,
    geographic: Any = None,
    fill_values: Any = "auto",
) -> Named | None:
    """Return what ``fit`` is asked to take of a source, None where it is given arrays.

    ``beside`` is what rows have beside y.

    Raises
    ------
    SettingError
        If arrays and names of columns are mixed.
    """
    several = _are_names(y)
    labelled = sources.addresses(X) or hasattr(X, "coords") or hasattr(X, "columns")
    if not isinstance(y, str) and not (several and labelled):
        for name, value in (("features", features), ("mask", mask)):
            if value is not None:
                raise SettingError(
                    f"{name}={shown(value)} has no effect with an array y: give the name of the "
                    "target in X as y, or leave it out"
                )
        for name in COLUMNS:
            if isinstance(beside.get(name), str):
                raise SettingError(
                    f"{name}={shown(beside[name])} is a name and y is not: {name} goes with an "
                    "array y as an array or a number"
                )
        return None
    for name, value in beside.items():
        listed = several and name == Y_VARIANCE and _are_names(value)
        if value is not None and value is not False and not (listed or isinstance(value, str)):
            raise SettingError(
                f"y={shown(y)} is a name, {ARGUMENTS[name]} is not: give its column in X, too"
            )
    own: dict[str, Any] = {name: value or None for name, value in beside.items()}
    own["geographic"] = geographic
    return Named(X, y, features, text_of(mask), fill_values=fill_values, **own)


def _are_names(y: Any) -> bool:
    """Return whether a list of names is given."""
    return isinstance(y, list | tuple) and bool(y) and all(isinstance(name, str) for name in y)


def is_table_or_grid(source: str) -> bool:
    """Return whether a source is no dataset store, and so does not name its own columns."""
    table = str(source).lower().endswith(data.CONVERTIBLE) and data.exists(source)
    return bool(remote.is_pattern(source) or table or gridded.is_grid(source))


def refuse_unnamed(source: str) -> None:
    """Raise InputError for a source that is no dataset store and needs a target to be fitted."""
    if is_table_or_grid(source):
        raise InputError(
            f"{source} is not a dataset store: name the column to fit with --target NAME, or "
            "convert it first"
        )


def _refuse_datasets(source: Any) -> None:
    for address in sources.addresses(source):
        if not remote.is_pattern(address) and data.is_dataset(address):
            raise InputError(
                f"{address} is a dataset store, which names its own columns: fit it without names "
                "of a target, features or others (X, y = daskgp.open_dataset(...) in Python)"
            )
