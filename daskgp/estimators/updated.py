"""Fitted estimators that take more rows, or give some back, without a pass over the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, cast

from sklearn.utils.validation import check_is_fitted

from daskgp.data.seen import Source
from daskgp.data.stores import models
from daskgp.estimators import growing, updating
from daskgp.estimators.choosing.leaderboard import Leaderboard
from daskgp.estimators.prediction import FittedGP
from daskgp.models.fills import Fills
from daskgp.runtime.executor import Executor

if TYPE_CHECKING:
    from daskgp.estimators.base import GaussianProcess


class UpdatedGP(FittedGP):
    """A fitted estimator to which rows may be added, or from which some may be taken."""

    _total: Any = None
    """Sums over rows that the fit follows from, or a function that reads them; None if unknown."""
    _seen: list[dict[str, Any]]
    """Rows that were fitted, added and taken, in order."""
    _sources: tuple[Source, ...] | Callable[[], tuple[Source, ...]] = ()
    """Dataset stores of which the first rows were seen, with marks by which new ones are told."""
    _rows_in: str = models.ROWS
    """Name in its model store of the rows that predictions read back."""
    _own_rows: str | None = None
    """URL of rows in blocks that nobody but this estimator adds to."""
    _spare_rows: str | None = None
    """URL for rows in blocks of the model store that is updated, whose lock is held."""
    _begun_from: str | None = None
    """Identity of the model that training began from; None for a search for a start."""
    _board: Leaderboard | None = None
    """Trials of the search that has chosen this estimator; None if nothing was searched."""
    _fills: Fills = ()
    """Values of columns that rows of a fit had in place of missing ones."""
    _said_left_out: bool = False
    """True if a warning has told that a column that the model leaves out now varies."""

    @property
    def leaderboard_(self) -> Leaderboard:
        """All trials of the search by `AutoGP` that has chosen this model."""
        check_is_fitted(self, "solved_")
        if self._board is None:
            raise AttributeError("leaderboard_ belongs to models that AutoGP has chosen")
        return self._board

    def _total_sums(self) -> Any:
        """Return the sums over rows; None where they are not known."""
        if callable(self._total):
            self._total = self._total()
        return self._total

    def _known_sources(self) -> tuple[Source, ...]:
        """Return the dataset stores of which rows were seen."""
        if callable(self._sources):
            self._sources = self._sources()
        return self._sources

    def update(
        self,
        X: Any,
        y: Any,
        *,
        y_variance: Any = None,
        sample_weight: Any = None,
        window: float | None = None,
        along: str | int | None = None,
    ) -> Self:
        """Add rows to the fitted model, in a pass over these rows alone.

        The result is that of a fit of all rows with the same hyper-parameters, inducing inputs and
        units (`standardize`), which an update keeps: sums over the rows are added to those that the
        model has.  LMA and PIC put the new rows into blocks of their own after the others.  Of a
        dataset store that has grown since the model saw its first rows, only the others are added.

        Parameters
        ----------
        X, y, y_variance, sample_weight : array-like
            As for ``fit``, in the columns of the fit; rows with missing values are left out.
        window : float, optional
            Number of the last rows of the dataset store that the model keeps, others are forgotten;
            with ``along``, the length that it keeps of that column, in its unit.  LMA and PIC keep
            the blocks that lie in it in part.
        along : str or int, optional
            Feature, such as a time, that does not decrease from row to row.

        Returns
        -------
        self

        Raises
        ------
        SettingError
            If the method cannot add rows, or with ``window`` forget some; the line says what to do
            instead.
        InputError
            If the rows cannot be used.  The model is unchanged after any error.
        StoreError
            If rows of the store have changed that the model has seen.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(300, 1))
        >>> y = np.sin(6 * X[:, 0])
        >>> model = daskgp.SGPR(n_inducing=20, optimizer=None).fit(X[:200], y[:200])
        >>> model.update(X[200:], y[200:]).n_rows_
        300
        """
        gp = cast("GaussianProcess", self)
        self._check_fitted()
        updating.total_of(gp)
        growth = growing.look(gp, X, y, (y_variance, sample_weight), window, along)
        if growth is None:
            updating.changed(gp, X, y, y_variance, sample_weight)
        elif growth.changes:
            growth.take(Executor.current(gp.progress, gp.device))
        return self

    def _take(self, X: Any, y: Any, y_variance: Any, weight: Any) -> None:
        """Learn from more rows, as this class does."""
        updating.changed(cast("GaussianProcess", self), X, y, y_variance, weight)

    def forget(self, X: Any, y: Any, *, y_variance: Any = None, sample_weight: Any = None) -> Self:
        """Take rows out of the fitted model, in a pass over these rows alone.

        It undoes ``update``: sums over the rows are subtracted, so the rows must be among those of
        the model, with the noise that they came with.  Blocks of LMA and PIC are taken out whole.
        A dataset store that is forgotten as a whole may be added again.

        Parameters
        ----------
        X, y, y_variance, sample_weight : array-like
            As for ``update``.

        Returns
        -------
        self

        Raises
        ------
        SettingError
            If the method cannot take out rows; the line says what to do instead.
        InputError
            If the rows are not those of the model.  The model is unchanged after any error.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.random.default_rng(0).uniform(size=(300, 1))
        >>> y = np.sin(6 * X[:, 0])
        >>> model = daskgp.SGPR(n_inducing=20, optimizer=None).fit(X, y)
        >>> model.forget(X[:100], y[:100]).n_rows_
        200
        """
        self._check_fitted()
        gp = cast("GaussianProcess", self)
        growing.forget(gp, X, y, (y_variance, sample_weight))
        return self
