"""Targets with many exact zeros: whether there is any, times how much."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Self, overload

import dask
import dask.array as da
import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from daskgp.checks import shown
from daskgp.data import grids
from daskgp.data.kinds import Kind, Places, Stored
from daskgp.errors import InputError, SettingError
from daskgp.estimators import composite
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.bases import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from daskgp.estimators.settings import check_settings
from daskgp.estimators.trees import of_nodes
from daskgp.estimators.vecchia import VecchiaGP
from daskgp.likelihoods import Likelihood
from daskgp.likelihoods.hurdle import Hurdle
from daskgp.models import scaling
from daskgp.typing import Path

OCCURRENCE = ("bernoulli-logit", "bernoulli")
AMOUNT = ("gamma", "lognormal")
PARTS = np.array(["square", "mae", "bias", "nlpd", "crps", "brier"])
"""Scores of each row, of whose means the scores are made."""


class HurdleGP(composite.Named, RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """Amounts with many exact zeros, such as rain: whether there is any, times how much.

    A hurdle model [1]_, [2]_ of two estimators: ``occurrence`` is fitted to all rows, with 1 where
    y > 0 and else 0, and ``amount`` to the rows with y > 0.

    Parameters
    ----------
    occurrence : estimator, optional
        One with ``likelihood="bernoulli-logit"`` or ``"bernoulli"``; default
        ``VecchiaGP(likelihood="bernoulli-logit")``.  Its settings are nested ones,
        ``occurrence__n_neighbours``.
    amount : estimator, optional
        One with ``likelihood="gamma"`` or ``"lognormal"``; default
        ``VecchiaGP(likelihood="gamma")``.

    Attributes
    ----------
    occurrence_, amount_, parts_ : fitted estimators, and both of them
    n_features_in_, feature_names_in_, n_rows_

    References
    ----------
    .. [1] Cragg (1971), Some statistical models for limited dependent variables with application to
       the demand for durable goods, Econometrica 39.
    .. [2] Mullahy (1986), Specification and testing of some modified count data models, Journal of
       Econometrics 33.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 60)[:, None]
    >>> y = np.maximum(np.sin(12 * X[:, 0]), 0.0)
    >>> occurrence = daskgp.ExactGP("rbf", likelihood="bernoulli-logit", optimizer=None)
    >>> amount = daskgp.ExactGP("rbf", likelihood="gamma", optimizer=None)
    >>> model = daskgp.HurdleGP(occurrence, amount).fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, bool((std > 0).all())
    ((3,), True)
    """

    occurrence_: GaussianProcess
    amount_: GaussianProcess
    made_of: ClassVar[str] = (
        "model.occurrence_ with y > 0, or model.amount_ with X[y > 0], y[y > 0]"
    )
    """The two models, and the rows of each."""

    def __init__(
        self,
        occurrence: GaussianProcess | None = None,
        amount: GaussianProcess | None = None,
    ) -> None:
        self.occurrence = occurrence
        self.amount = amount

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a fit, for scikit-learn."""
        return "amount_" in vars(self)

    def __sklearn_tags__(self) -> Tags:
        """Return what rows it takes, for scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags = self._part("amount", AMOUNT).__sklearn_tags__().input_tags
        tags.target_tags.positive_only = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows and their amounts.

        Parameters
        ----------
        X : array-like (n, d)
            As for the estimators.
        y : array-like (n,)
            Zero or positive numbers; a dask array is read in a pass first.  With an xarray object a
            DataArray on its grid.
        sample_weight : float or array-like (n,), optional
            Weights, by which the log densities of rows count: a row of weight 2 is two such rows,
            and one of weight 0 none; default those of the dataset store that y lies in, False
            leaves these out.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If a target is negative or infinite, or none is zero, or none is positive.
        SettingError
            If a setting or a likelihood cannot be used.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> parts = [
        ...     daskgp.ExactGP("rbf", likelihood=name, optimizer=None)
        ...     for name in ("bernoulli", "lognormal")
        ... ]
        >>> daskgp.HurdleGP(*parts).fit(X, np.maximum(X[:, 0] - 0.4, 0.0)).n_rows_
        60
        """
        occurrence, amount = self._part("occurrence", OCCURRENCE), self._part("amount", AMOUNT)
        for part in (occurrence, amount):
            check_settings(part)
        weight = composite.weights(y, sample_weight, type(self).__name__)
        y = composite.target(y, type(self).__name__, "amounts", "amounts")
        _check_amounts(y, composite.weighing(y, weight))
        occurrence.fit(X, _of_target(_occurs, y), sample_weight=weight)
        with scaling.missing_on_purpose():
            weight = False if weight is None else weight  # one warning of what is left behind
            amount.fit(X, _of_target(_positive, y), sample_weight=weight)
        self.occurrence_, self.amount_ = occurrence, amount
        return self

    def _part(self, name: str, names: Sequence[str]) -> GaussianProcess:
        """Return an unfitted copy of an estimator, which has one of some likelihoods."""
        given = getattr(self, name)
        part = VecchiaGP(likelihood=names[0]) if given is None else given
        if not isinstance(part, GaussianProcess):
            raise SettingError(
                f"{name}={shown(part)}: give an estimator, such as "
                f"VecchiaGP(likelihood={names[0]!r})"
            )
        if part.likelihood not in names:
            takes = " or ".join(repr(one) for one in names)
            raise SettingError(
                f"{name} has likelihood={part.likelihood!r}: HurdleGP takes {takes} there"
            )
        copied: GaussianProcess = clone(part)
        return copied

    # -- what a fit has found ----------------------------------------------------------------

    @property
    def parts_(self) -> list[GaussianProcess]:
        """The fitted estimators, ``occurrence_`` and ``amount_``."""
        check_is_fitted(self)
        return [self.occurrence_, self.amount_]

    @property
    def n_rows_(self) -> int:
        """Number of rows that nothing is missing of."""
        check_is_fitted(self)
        return self.occurrence_.n_rows_

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        check_is_fitted(self)
        return self.occurrence_.n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of features."""
        check_is_fitted(self)
        return self.occurrence_.feature_names_in_

    # -- predictions -------------------------------------------------------------------------

    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: Literal[False] = ...,
        *,
        quantiles: None = ...,
        include_noise: bool = ...,
    ) -> Kind: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: Literal[True],
        *,
        quantiles: None = ...,
        include_noise: bool = ...,
    ) -> tuple[Kind, Kind]: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: bool = ...,
        *,
        quantiles: Sequence[float],
        include_noise: bool = ...,
    ) -> tuple[Kind, ...]: ...
    @overload
    def predict(
        self,
        X: Places[Kind],
        return_std: bool = ...,
        *,
        quantiles: Sequence[float] | None = ...,
        include_noise: bool = ...,
    ) -> Any: ...
    @overload
    def predict(
        self,
        X: Stored,
        return_std: bool = ...,
        *,
        quantiles: Sequence[float] | None = ...,
        include_noise: bool = ...,
    ) -> Any: ...
    @of_nodes
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        quantiles: Sequence[float] | None = None,
        include_noise: bool = True,
    ) -> Any:
        """Return the mean of a new observation, and on request its standard deviation, quantiles.

        Parameters
        ----------
        X : array-like (n, d)
            Lazy for a dask array, on the grid of an xarray object.  Rows with a missing feature
            give NaN.
        return_std : bool
            Also return the standard deviation.
        quantiles : sequence of float, optional
            Levels between 0 and 1: also return these quantiles (n, q), which are 0 up to the
            probability of zero; on a grid along ``quantile``.
        include_noise : True
            As all predictions are of new observations.

        Returns
        -------
        mean, or a tuple of the mean and, in this order, the standard deviation and the quantiles

        Raises
        ------
        SettingError
            If a level is not between 0 and 1, or noise is to be left out.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> parts = [
        ...     daskgp.ExactGP("rbf", likelihood=name, optimizer=None)
        ...     for name in ("bernoulli", "lognormal")
        ... ]
        >>> model = daskgp.HurdleGP(*parts).fit(X, np.maximum(X[:, 0] - 0.4, 0.0))
        >>> mean, found = model.predict(X[::30], quantiles=[0.05, 0.9])
        >>> found.shape, float(found[0, 0])
        ((2, 2), 0.0)
        """
        check_is_fitted(self)
        _check_noise(include_noise)
        levels = None if quantiles is None else _levels(quantiles)
        p = self.occurrence_.predict(X, include_noise=True)
        moments = self.amount_.predict(X, return_std=True, include_noise=True)
        found = [composite.of_rows(_mean, [p, *moments], "mean", "mean of new observations")]
        if return_std:
            said = "standard deviation of new observations"
            found.append(composite.of_rows(_deviation, [p, *moments], "std", said))
        if levels is not None:
            function = partial(_quantiles, levels=levels, likelihood=self.amount_.likelihood_)
            latent = self.amount_.predict(X, return_std=True)
            said = "quantiles of new observations"
            given = function, [p, *latent], "quantiles", said
            found.append(composite.of_rows(*given, labels=levels, dim="quantile"))
        return found[0] if len(found) == 1 else tuple(found)

    @overload
    def predict_proba(self, X: Places[Kind]) -> Kind: ...
    @overload
    def predict_proba(self, X: Stored) -> da.Array: ...
    @of_nodes
    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities (n, 2) of zero and of a positive amount at X.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> parts = [
        ...     daskgp.ExactGP("rbf", likelihood=name, optimizer=None)
        ...     for name in ("bernoulli", "lognormal")
        ... ]
        >>> model = daskgp.HurdleGP(*parts).fit(X, np.maximum(X[:, 0] - 0.4, 0.0))
        >>> model.predict_proba(X[::59]).argmax(axis=1)
        array([0, 1])
        """
        check_is_fitted(self)
        return self.occurrence_.predict_proba(X)

    @overload
    def predict_exceedance(
        self, X: Places[Kind], threshold: float, *, include_noise: bool = ...
    ) -> Kind: ...
    @overload
    def predict_exceedance(
        self, X: Stored, threshold: float, *, include_noise: bool = ...
    ) -> da.Array: ...
    @of_nodes
    def predict_exceedance(self, X: Any, threshold: float, *, include_noise: bool = True) -> Any:
        """Return the probability that a new observation at X exceeds a threshold of 0 or more.

        Raises
        ------
        SettingError
            If the threshold is negative, or noise is to be left out.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> parts = [
        ...     daskgp.ExactGP("rbf", likelihood=name, optimizer=None)
        ...     for name in ("bernoulli", "lognormal")
        ... ]
        >>> model = daskgp.HurdleGP(*parts).fit(X, np.maximum(X[:, 0] - 0.4, 0.0))
        >>> bool(model.predict_exceedance(X[-1:], 0.1)[0] > 0.5)
        True
        """
        check_is_fitted(self)
        _check_noise(include_noise)
        if not (np.ndim(threshold) == 0 and 0 <= threshold < math.inf):
            raise SettingError(
                f"threshold={shown(threshold)}: give a finite number of 0 or more, because no "
                "amount is negative"
            )
        p = self.occurrence_.predict(X, include_noise=True)
        over = self.amount_.predict_exceedance(X, threshold, include_noise=True)
        said = f"probability of exceeding {threshold:g}"
        return composite.of_rows(_product, [p, over], "exceedance", said)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination R² of the mean at X against y; 1 is perfect.

        Rows without a target, or without a prediction, are left out.  Weights are those of the
        dataset store that y lies in by default; False leaves these out.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> y = np.maximum(X[:, 0] - 0.4, 0.0)
        >>> parts = [
        ...     daskgp.ExactGP("rbf", likelihood=name, optimizer=None)
        ...     for name in ("bernoulli", "lognormal")
        ... ]
        >>> daskgp.HurdleGP(*parts).fit(X, y).score(X, y) > 0.8
        True
        """
        given = composite.weights(y, sample_weight, type(self).__name__)
        y = composite.target(y, type(self).__name__, "amounts", "amounts")
        weighing = composite.weighing(y, given)
        _refuse_infinite(*dask.compute(np.isinf(_numbers(y, weighing)).sum()))
        y, found, weight = composite.compared(y, self.predict(X), given)
        from sklearn.metrics import r2_score  # takes long to import

        known = np.isfinite(y) & np.isfinite(found)
        if weight is not None:
            known &= weight > 0
        if not known.any():
            more = "" if weight is None else ", and a sample_weight above zero"
            raise InputError(
                f"nothing to score: no row has all features and a known target{more}: give rows "
                "that do"
            )
        weight = None if weight is None else weight[known]
        return float(r2_score(y[known], found[known], sample_weight=weight))

    def scores(self, X: Any, y: Any) -> dict[str, float]:
        """Return the scores of the predictions at X against y, as ``daskgp score`` prints them.

        Rows without a target, without a prediction, or of weight 0 in the dataset store that y lies
        in, are left out.

        Returns
        -------
        dict
            ``n``, the number of rows; ``rmse``, ``mae`` and ``bias`` (mean of y less the mean);
            ``nlpd``, the mean of -log P(y = 0) at zeros and of the negative log density at
            amounts, and ``crps``, the continuous ranked probability score, of both together; and
            ``brier``, the score of the probabilities of amounts above zero.  They are comparable
            with those of models that have zeros, too.

        Raises
        ------
        InputError
            If an amount is negative or infinite, or no row is left.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> y = np.maximum(X[:, 0] - 0.4, 0.0)
        >>> parts = [
        ...     daskgp.ExactGP("rbf", likelihood=name, optimizer=None)
        ...     for name in ("bernoulli", "lognormal")
        ... ]
        >>> found = daskgp.HurdleGP(*parts).fit(X, y).scores(X, y)
        >>> found["n"], found["brier"] < 0.1
        (60, True)
        """
        check_is_fitted(self)
        weight = composite.weights(y, None, type(self).__name__)
        y = composite.target(y, type(self).__name__, "amounts", "amounts")
        if (own := composite.weighing(y, weight)) is not None:
            y = da.where(own, y, np.nan)
        _refuse_infinite(*dask.compute(np.isinf(_numbers(y)).sum()))
        p = self.occurrence_.predict(X, include_noise=True)
        amount = self.amount_.predict(X, include_noise=True)
        moments = self.amount_.predict(X, return_std=True)
        if grids.is_xarray(p):
            y = grids.on_the_grid_of(p, y)
        elif len(y) != len(p):
            raise InputError(f"y has {len(y)} rows and X has {len(p)}: give both of the same rows")
        elif isinstance(p, da.Array):
            y = da.asarray(y).rechunk(p.chunks)
        given = [p, amount, *moments, y]
        function = partial(_scores, likelihood=self.amount_.likelihood_)
        found = composite.of_rows(function, given, "scores", "scores", labels=PARTS, dim="score")
        (square, *others), n = composite.averages(found)
        own = dict(zip(PARTS[1:].tolist(), others, strict=True))
        return {"rmse": math.sqrt(square), **own, "n": n}

    def save(
        self,
        url: Path,
        *,
        overwrite: bool = False,
        wait: float = 0.0,
        clear_lock: bool = False,
    ) -> None:
        """Write the fitted model to a store; ``daskgp.load`` reads it back.

        Parameters
        ----------
        url : str or path
            Store to write, which has a model store of each of the two estimators inside.
        overwrite, wait, clear_lock
            As for ``save`` of an estimator.

        Examples
        --------
        >>> import tempfile, numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> parts = [
        ...     daskgp.ExactGP("rbf", likelihood=name, optimizer=None)
        ...     for name in ("bernoulli", "lognormal")
        ... ]
        >>> model = daskgp.HurdleGP(*parts).fit(X, np.maximum(X[:, 0] - 0.4, 0.0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.zarr")
        ...     loaded = daskgp.load(f"{folder}/model.zarr")
        >>> bool((loaded.predict(X) == model.predict(X)).all())
        True
        """
        check_is_fitted(self)
        own = {"occurrence": self.occurrence, "amount": self.amount}
        given = {name: part is not None for name, part in own.items()}
        parts = {"occurrence": self.occurrence_, "amount": self.amount_}
        described = {"kind": type(self).__name__, "given": given}
        composite.save(url, described, parts, overwrite, wait, clear_lock)

    @classmethod
    def _of_parts(cls, described: Mapping[str, Any], parts: list[GaussianProcess]) -> Self:
        """Return the model that a store describes, of the estimators inside."""
        fitted = dict(zip(described["parts"], parts, strict=True))
        given = described["given"]
        model = cls(**{name: clone(part) for name, part in fitted.items() if given[name]})
        model.occurrence_, model.amount_ = fitted["occurrence"], fitted["amount"]
        return model


def _check_noise(include_noise: bool) -> None:
    """Raise SettingError for predictions of what is no new observation."""
    if include_noise is not True:
        raise SettingError(
            f"include_noise={shown(include_noise)}: HurdleGP predicts only new observations: "
            "leave it out, or use model.occurrence_ or model.amount_ for the latent functions"
        )


def _refuse_infinite(count: int) -> None:
    if count:
        values = "value" if count == 1 else "values"
        raise InputError(
            f"y has {count:,} infinite {values}: correct them, or set them to NaN to leave these "
            "rows out"
        )


def _check_amounts(y: Any, weighing: Any = None) -> None:
    """Raise InputError for targets of which some are negative, none zero or none positive.

    ``weighing`` tells which rows (n,) count; None for all.
    """
    values = _numbers(y, weighing)
    counts = (values < 0).sum(), (values == 0).sum(), (values > 0).sum(), np.isinf(values).sum()
    negative, zeros, positive, infinite = dask.compute(*counts)
    _refuse_infinite(infinite)
    if negative:
        several = "value" if negative == 1 else "values"
        raise InputError(
            f"y has {negative:,} negative {several}, and amounts are 0 or more: set them to 0, or "
            "leave these rows out"
        )
    if not positive:
        raise InputError("y has no positive value, so there is no amount to learn: give such rows")
    if not zeros:
        raise InputError(
            "y has no zeros, so there is no occurrence to learn: fit the estimator of the amount "
            "alone, such as VecchiaGP(likelihood='gamma')"
        )


def _numbers(y: Any, weighing: Any = None) -> Any:
    """Return the targets, of rows (n,) that count, as an array; InputError for what is none."""
    values = y.data if grids.is_xarray(y) else y
    values = values if weighing is None else values.reshape(-1)[weighing]
    if values.dtype.kind not in "fiub":
        raise InputError(f"y has the type {values.dtype}: give HurdleGP amounts as numbers")
    return values if isinstance(values, da.Array) else np.asarray(values)


def _of_target(function: Any, y: Any) -> Any:
    """Return a function of targets, as the kind of object these are."""
    if grids.is_xarray(y):
        return grids.of_parts(function, [y], y.name or "amount", {})
    if isinstance(y, da.Array):
        return da.map_blocks(function, y, dtype=np.float64, meta=np.empty(0))
    return function(y)


def _occurs(y: np.ndarray) -> np.ndarray:
    """Return (n,) 1 of positive values, 0 of zeros and NaN of missing ones."""
    y = y.reshape(-1).astype(np.float64)
    return np.where(np.isfinite(y), y > 0, y)


def _positive(y: np.ndarray) -> np.ndarray:
    """Return the positive values (n,), NaN elsewhere."""
    y = y.reshape(-1).astype(np.float64)
    return np.where(y > 0, y, np.nan)


def _mean(rows: np.ndarray) -> np.ndarray:
    p, mean, _ = rows.T
    return np.asarray(p * mean)


def _deviation(rows: np.ndarray) -> np.ndarray:
    p, mean, std = rows.T
    return np.asarray(np.sqrt(p * (std**2 + (1.0 - p) * mean**2)))


def _product(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows[:, 0] * rows[:, 1])


def _levels(quantiles: Sequence[float]) -> np.ndarray:
    levels = np.asarray(quantiles, dtype=np.float64)
    if levels.ndim != 1 or not len(levels) or not ((levels > 0) & (levels < 1)).all():
        raise SettingError(
            f"quantiles={shown(quantiles)}: give a sequence of levels between 0 and 1"
        )
    return levels


def _quantiles(rows: np.ndarray, levels: np.ndarray, likelihood: Likelihood) -> np.ndarray:
    """Return quantiles (n, q), for probabilities and the moments of f of the amount (n, 3)."""
    found = np.full((len(rows), len(levels)), np.nan)
    known = np.isfinite(rows).all(axis=1)
    p, mean, std = rows[known].T
    own = Hurdle(p, likelihood, mean, std)
    for column, level in enumerate(levels):
        found[known, column] = own.quantile(float(level))
    return found


def _scores(rows: np.ndarray, likelihood: Likelihood) -> np.ndarray:
    """Return the scores (n, k) of PARTS, for rows of p, mean, mean and std of f, and y (n, 5)."""
    found = np.full((len(rows), len(PARTS)), np.nan)
    known = np.isfinite(rows).all(axis=1)
    p, amount, mean, std, y = rows[known].T
    if (y < 0).any():
        raise InputError(
            f"y has the value {y.min():g}, and amounts are 0 or more: set negative ones to 0, or "
            "leave these rows out"
        )
    own, error = Hurdle(p, likelihood, mean, std), y - p * amount
    brier, density = (p - (y > 0)) ** 2, own.log_density(y)
    found[known] = np.stack([error**2, np.abs(error), error, -density, own.crps(y), brier], axis=1)
    return found
