"""A fitted regressor as the mean function of a Gaussian process: regression kriging."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import dask
import numpy as np
from dask import delayed

from daskgp.checks import shown
from daskgp.data import writers
from daskgp.data.partition import Span, parts
from daskgp.data.rows import Rows, is_zarr
from daskgp.data.stores import groups
from daskgp.errors import InputError
from daskgp.runtime.executor import Executor, map_all

PIECE_ROWS = 65_536
"""Most rows that are predicted at a time."""
PROBES = 16
"""Training rows whose predictions a model store keeps, to know the regressor by."""


@dataclass(frozen=True, eq=False)
class Regressor:
    """Predictions of a fitted object with ``predict``, scikit-learn's or one like these.

    Parameters
    ----------
    model : object
        One that was fitted to a data frame is given one, with its columns by name.
    names : tuple of str
        Names of the columns of X.
    n_targets : int
        Number p of values that it predicts.
    """

    model: Any
    names: tuple[str, ...]
    n_targets: int

    @property
    def token(self) -> str:
        """Checksum of the regressor."""
        return str(dask.base.tokenize(self.model, self.names))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the predictions (n, p) at rows X (n, d); NaN for those with a missing value.

        Raises
        ------
        InputError
            If there are none, or not the right number of them.
        """
        X = np.asarray(X, np.float64)
        usable = np.isfinite(X).all(axis=1)
        found = np.full((len(X), self.n_targets), np.nan)
        for rows in np.array_split(np.flatnonzero(usable), max(1, -(-len(X) // PIECE_ROWS))):
            if len(rows):
                found[rows] = self._predicted(X[rows])
        return found

    def _predicted(self, X: np.ndarray) -> np.ndarray:
        what = f"the regressor mean={shown(self.model)}"
        try:
            values = self.model.predict(self._given(X))
            if dask.is_dask_collection(values):
                (values,) = dask.compute(values, scheduler="synchronous")
            values = np.asarray(values, np.float64)
        except Exception as error:  # each library has its own types
            reason = f"{type(error).__name__}: {groups.first_line(error)}"
            raise InputError(
                f"{what} cannot predict rows of {', '.join(self.names)} ({reason}): give one that "
                "is fitted to these columns"
            ) from error
        if values.size != len(X) * self.n_targets or len(values) != len(X):
            raise InputError(
                f"{what} gives {values.shape} values for {len(X)} rows of {self.n_targets} targets:"
                " give one that is fitted to the same targets"
            )
        if not np.isfinite(values).all():
            raise InputError(f"{what} predicts missing or infinite values: give another one")
        return values.reshape(len(X), self.n_targets)

    def _given(self, X: np.ndarray) -> Any:
        wanted = getattr(self.model, "feature_names_in_", None)
        if wanted is None:
            return X
        missing = [str(name) for name in wanted if name not in self.names]
        if missing:
            raise InputError(f"X has no column {missing[0]!r}: give the columns of the fit")
        from daskgp.data.convert.tables import frame  # pandas is needed for these alone

        return frame(X[:, [self.names.index(str(name)) for name in wanted]], list(wanted))


def residuals(rows: Rows, regressor: Regressor, executor: Executor, url: str) -> Rows:
    """Return rows whose y is what a regressor leaves of it.

    Those of a store are written to a new one at a URL, by tasks that see a chunk each; that of X
    stays.  They are ``passing`` like it.
    """
    if not is_zarr(rows.X):
        left = np.empty(rows.y.shape)
        for span in parts(0, len(rows), PIECE_ROWS):
            _write(rows, left, span, regressor)
        return rows.with_other_y(left)
    step = groups.row_step(rows.X)
    with groups.creating(url, "temporary dataset", writers.marks()) as group:
        y = writers.create_rows(group, "y", rows.y.shape, step, np.float64)
        spans = [Span(i, min(i + step, len(rows))) for i in range(0, len(rows), step)]
        task, shared = partial(_write, rows, y), (delayed(regressor, traverse=False),)
        map_all(task, spans, executor, "regressor", shared)
        group.attrs["complete"] = True
    return rows.with_other_y(y, identity=None, passing=True)


def _write(rows: Rows, y: Any, span: Span, regressor: Regressor) -> list[None]:
    X, values = rows.raw(*span)
    less = values[:, : rows.n_targets] - regressor(X)
    y[slice(*span)] = less.reshape(len(X), *y.shape[1:])
    return [None]


@dataclass(frozen=True, eq=False)
class Known:
    """A regressor that is a mean function, and its predictions (k, p) at some training rows (k, d).

    A model store keeps the latter alone: they tell the regressor from others.
    """

    regressor: Regressor
    places: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, regressor: Regressor, rows: Rows) -> Known:
        """Return a regressor with its predictions at the first rows."""
        X = np.asarray(rows.raw(0, min(PROBES, len(rows)))[0], np.float64)
        return cls(regressor, X, regressor(X))

    def check(self) -> None:
        """Raise InputError unless the regressor predicts these values."""
        found = self.regressor(self.places)
        same = np.isclose(found, self.values, rtol=1e-5, atol=1e-8, equal_nan=True)
        if not same.all():
            i, j = np.argwhere(~same)[0]
            raise InputError(
                f"mean={shown(self.regressor.model)} is not the regressor of the fit: at a "
                f"training row it predicts {found[i, j]:.6g}, that one {self.values[i, j]:.6g}"
            )
