"""Fitted estimators that take more rows, or give some back, without a pass over the others."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from daskgp.assess.leaderboard import Leaderboard
from daskgp.estimators.prediction import FittedGP
from daskgp.fit.recipe import Recipe
from daskgp.runtime.executor import Executor
from daskgp.update import changing, growing


class UpdatedGP(FittedGP):
    """A fitted estimator to which rows may be added, or from which some may be taken."""

    _board: Leaderboard | None = None
    """Trials of the search that has chosen this estimator; None if nothing was searched."""

    @abstractmethod
    def recipe(self) -> Recipe:
        """Return all that a fit needs to know, as a value."""

    @property
    def leaderboard_(self) -> Leaderboard:
        """All trials of the search by `AutoGP` that has chosen this model."""
        check_is_fitted(self, "solved_")
        if self._board is None:
            raise AttributeError("leaderboard_ belongs to models that AutoGP has chosen")
        return self._board

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
        self._check_fitted()
        recipe, noise = self.recipe(), (y_variance, sample_weight)
        fit = changing.with_totals(recipe, self._fitted)
        growth = growing.look(recipe, fit, X, y, noise, window, along)
        if growth is None:
            self._fitted = changing.changed(recipe, fit, X, y, *noise)
        elif growth.changes:
            self._fitted = growth.taken(Executor.current(recipe.progress, recipe.device))
        else:  # maybe with another URL of the same store
            self._fitted = growth.fit
        return self

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
        noise = y_variance, sample_weight
        self._fitted = growing.forget(self.recipe(), self._fitted, X, y, noise)
        return self
