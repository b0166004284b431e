"""Classification: a scikit-learn classifier around any estimator with a likelihood."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NoReturn, Self

import dask.array as da
import numpy as np
from scipy.special import ndtri_exp
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from daskgp import data
from daskgp.checks import choice, flags, shown
from daskgp.data import grids, reading
from daskgp.errors import InputError, SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.settings import check_settings
from daskgp.estimators.vecchia import VecchiaGP
from daskgp.fit import classes as several
from daskgp.likelihoods import categorical

LIKELIHOODS = {"logit": "bernoulli-logit", "probit": "bernoulli"}
SHOWN = 5
"""Most classes that a message names."""


class GPClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Classification by Gaussian processes, with any labels as classes.

    Two classes are those of ``base`` with the likelihood of the link.  More have latent fields each
    (``link="logit"`` alone), whose softmax are their probabilities: Gaussian regressions on sites
    of one class after another, repeated until the bound on the evidence settles.  It is for bases
    that take a noise variance per row and have an evidence: `VecchiaGP`, `LMA`, `PIC`, `SGPR`,
    `ExactGP` and the like.

    Parameters
    ----------
    base : estimator, optional
        One with ``likelihood=``, which the link sets; default ``VecchiaGP()``.  Its settings are
        nested ones, ``base__n_neighbours``.
    link : {"logit", "probit"}
        What makes probabilities of f.
    shared : bool
        Whether more than two classes have the same hyper-parameters: means of those with the
        largest evidence for each class, weighted by their precisions.

    Attributes
    ----------
    classes_ : ndarray (C,), labels in order
    fields_ : list of fitted estimators, one of two classes, or one of each
    objective_ : float, the bound on the evidence
    n_features_in_, feature_names_in_, n_rows_

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 60)[:, None]
    >>> y = np.where(X[:, 0] < 0.5, "low", "high")
    >>> model = daskgp.GPClassifier(daskgp.ExactGP("rbf", optimizer=None)).fit(X, y)
    >>> model.classes_.tolist(), model.predict(np.array([[0.1], [0.9]])).tolist()
    (['high', 'low'], ['low', 'high'])
    """

    classes_: np.ndarray
    fields_: list[GaussianProcess]

    def __init__(
        self,
        base: GaussianProcess | None = None,
        *,
        link: Literal["logit", "probit"] = "logit",
        shared: bool = True,
    ) -> None:
        self.base = base
        self.link = link
        self.shared = shared

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a fit, for scikit-learn."""
        return "fields_" in vars(self)

    def __sklearn_tags__(self) -> Tags:
        """Return what rows it takes, for scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.input_tags = self._base().__sklearn_tags__().input_tags
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to rows and their labels.

        Parameters
        ----------
        X : array-like (n, d)
            As for the base.
        y : array-like (n,)
            Labels: numbers, strings, booleans; those of a dask array are found out in a pass.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If there is only one class, or a row has none or several.
        SettingError
            If a setting cannot be used, or the base cannot take as many classes.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> base = daskgp.ExactGP("rbf", optimizer=None)
        >>> daskgp.GPClassifier(base).fit(X, X[:, 0] > 0.3).classes_
        array([False,  True])
        """
        choice("link", self.link, tuple(LIKELIHOODS))
        flags(shared=self.shared)
        one = self._base().set_params(likelihood=LIKELIHOODS[self.link])
        y = _labels(y)
        classes = _classes(y)
        if len(classes) > 2 and self.link == "probit":
            raise SettingError(
                f"link='probit' is for two classes and y has {len(classes)}: choose 'logit'"
            )
        codes = _mapped(partial(_codes, classes=classes), y, np.float64)
        if len(classes) == 2:
            fields = [one.fit(X, codes)]
        else:
            fields = self._several(one, X, codes, len(classes))
        self.classes_, self.fields_ = classes, fields
        return self

    def _several(
        self, one: GaussianProcess, X: Any, codes: Any, count: int
    ) -> list[GaussianProcess]:
        """Return a fitted estimator of each class."""
        check_settings(one)
        recipe = one.recipe()
        if recipe.likelihood is None:
            name = type(one).__name__
            raise SettingError(
                f"y has {count} classes, and {name} takes two, as its likelihood is its own: "
                "choose VecchiaGP, LMA or SGPR as base, or wrap this in "
                "sklearn.multiclass.OneVsRestClassifier"
            )
        fields: list[GaussianProcess] = []
        for fit in several.fitted(recipe, X, codes, count, self.shared):
            field = clone(one).set_params(likelihood="gaussian")
            field._remember(fit)
            fields.append(field)
        return fields

    def _base(self) -> GaussianProcess:
        """Return an unfitted copy of the base."""
        base = VecchiaGP() if self.base is None else self.base
        if not isinstance(base, GaussianProcess):
            raise SettingError(
                f"base={shown(base)}: give an estimator with likelihood=, such as VecchiaGP()"
            )
        if base.likelihood != "gaussian":
            raise SettingError(
                f"base has likelihood={base.likelihood!r}, which link= sets: leave it out of base"
            )
        copied: GaussianProcess = clone(base)
        return copied

    # -- what a fit has found ----------------------------------------------------------------

    @property
    def objective_(self) -> float | None:
        """Bound on the evidence of all rows."""
        return self._first.objective_

    @property
    def n_rows_(self) -> int:
        """Number of rows that nothing is missing of."""
        return self._first.n_rows_

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._first.n_features_in_

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of features."""
        return self._first.feature_names_in_

    @property
    def _first(self) -> GaussianProcess:
        fields: list[GaussianProcess] | None = vars(self).get("fields_")
        if fields is None:
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit")
        return fields[0]

    # -- predictions -------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Any:
        """Return f whose probabilities are those predicted, (n,) of two classes and (n, C) of more.

        That of two classes is positive for the second; those of more add up to 0.  Between the
        posterior mean of f and 0 they are, as the uncertainty of f draws probabilities together;
        the means and their spread are those of ``fields_``.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> base = daskgp.ExactGP("rbf", optimizer=None)
        >>> model = daskgp.GPClassifier(base).fit(X, X[:, 0] > 0.5)
        >>> bool(model.decision_function(np.array([[0.9]]))[0] > 0)
        True
        """
        function, C = partial(_of_link, link=self.link), len(self.classes_)
        columns = None if C == 2 else C
        return _mapped(function, self.predict_proba(X), np.float64, columns)

    def predict_proba(self, X: Any) -> Any:
        """Return probabilities (n, C) of the classes, in the order of ``classes_``.

        They are those of new observations, with the uncertainty of f, by quadrature.  Lazy for a
        dask X; rows with a missing feature give NaN.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> base = daskgp.ExactGP("rbf", optimizer=None)
        >>> model = daskgp.GPClassifier(base).fit(X, np.floor(2.99 * X[:, 0]).astype(int))
        >>> model.predict_proba(np.array([[0.1], [0.9]])).argmax(axis=1)
        array([0, 2])
        """
        X = self._places(X)
        if len(self.fields_) == 1:
            return self._first.predict_proba(X)
        both = [field.predict(X, return_std=True) for field in self.fields_]
        moments = _stacked([mean for mean, _ in both] + [std for _, std in both])
        return _mapped(_probabilities, moments, np.float64, columns=len(self.fields_))

    def predict(self, X: Any) -> Any:
        """Return the most probable class at X, lazy for a dask X.

        Raises
        ------
        InputError
            If a row misses a feature, and so has no class.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> base = daskgp.ExactGP("rbf", optimizer=None)
        >>> model = daskgp.GPClassifier(base).fit(X, np.where(X[:, 0] > 0.5, "b", "a"))
        >>> model.predict(np.array([[0.1], [0.9]])).tolist()
        ['a', 'b']
        """
        p = self.predict_proba(X)
        return _mapped(partial(_most_probable, classes=self.classes_), p, self.classes_.dtype)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose class is predicted, by weight if weights are given.

        Raises
        ------
        InputError
            If y has classes that the fit has not seen.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> base = daskgp.ExactGP("rbf", optimizer=None)
        >>> daskgp.GPClassifier(base).fit(X, X[:, 0] > 0.5).score(X, X[:, 0] > 0.5)
        1.0
        """
        check_is_fitted(self)
        y = _labels(y)
        new = np.setdiff1d(_classes(y, 1), self.classes_)
        if len(new):
            raise InputError(
                f"y has classes that the fit has not seen, {_listed(new)}: it knows "
                f"{_listed(self.classes_)}; leave these rows out"
            )
        same = np.asarray(y) == np.asarray(self.predict(X))
        return float(np.average(same, weights=sample_weight))

    def save(self, url: str) -> NoReturn:
        """Raise SettingError: there is no store of a classifier.

        Examples
        --------
        >>> import daskgp
        >>> daskgp.GPClassifier().save("model.zarr")
        Traceback (most recent call last):
        daskgp.errors.SettingError: GPClassifier has no model store: pickle it, ...
        """
        raise SettingError(
            "GPClassifier has no model store: pickle it, or save each of its fields_ and keep "
            "classes_"
        )

    def _places(self, X: Any) -> Any:
        """Return X once there is a fit, unless it is a grid."""
        check_is_fitted(self)
        if grids.is_xarray(X):
            raise InputError(
                "X is an xarray object, which GPClassifier does not label: give it an array (n, d) "
                "of places"
            )
        return X


def _labels(y: Any) -> Any:
    """Return labels (n,) as an array, lazy ones as a dask array; InputError for what are none."""
    if y is None:
        raise InputError("GPClassifier requires y to be passed, but the target y is None")
    if isinstance(y, str):
        raise InputError(f"y={y!r} is a name: give GPClassifier the labels as an array (n,)")
    y = reading.from_zarr(y) if data.is_zarr(y) else y
    y = y.to_dask_array(lengths=True) if hasattr(y, "to_dask_array") else y
    y = y if isinstance(y, da.Array) else np.asarray(y)
    if y.ndim == 2 and y.shape[1] > 1:
        raise InputError(
            f"y has shape {y.shape}, several labels a row: GPClassifier takes one, fit each column "
            "on its own"
        )
    return y.reshape(-1) if isinstance(y, da.Array) else column_or_1d(y, warn=True)


def _classes(y: Any, least: int = 2) -> np.ndarray:
    """Return the sorted classes of labels; InputError if there are fewer than the least."""
    try:
        classes = np.asarray(da.unique(y).compute() if isinstance(y, da.Array) else np.unique(y))
        missing = classes[classes != classes]
    except TypeError as error:  # None among strings, or labels without an order
        raise InputError(
            "y has labels of several types, which have no order, or missing ones such as None: "
            "leave rows without a label out, and make all of one type, by .astype(str)"
        ) from error
    infinite = classes.dtype.kind == "f" and np.isinf(classes).any()
    if len(missing) or infinite:
        what = "NaN" if len(missing) else "infinity"
        raise InputError(f"Input y contains {what}: leave out the rows that have no class")
    check_classification_targets(classes)
    if len(classes) < least:
        raise InputError(
            f"y has only one class, {_listed(classes)}: GPClassifier needs rows of two or more"
        )
    return classes


def _listed(classes: np.ndarray) -> str:
    names = ", ".join(repr(one) for one in classes[:SHOWN].tolist())
    more = len(classes) - SHOWN
    return f"{names} and {more} more" if more > 0 else names


def _mapped(function: Any, values: Any, dtype: Any, columns: int | None = None) -> Any:
    """Return what a function gives of rows (n,) or (n, C); lazy for a dask array.

    It gives one value a row, or as many ``columns``.
    """
    if not isinstance(values, da.Array):
        return function(values)
    if columns is None:
        across = [1] if values.ndim == 2 else []
        meta = np.empty(0, dtype)
        return da.map_blocks(function, values, dtype=dtype, meta=meta, drop_axis=across)
    chunks, meta = (values.chunks[0], (columns,)), np.empty((0, 0), dtype)
    return da.map_blocks(function, values, dtype=dtype, meta=meta, chunks=chunks)


def _codes(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    return np.searchsorted(classes, y).astype(np.float64)


def _of_link(p: np.ndarray, link: str) -> np.ndarray:
    """Return f (n,) of two classes, or (n, C), with probabilities p (n, C)."""
    logs = np.log(np.maximum(p, np.finfo(float).tiny))
    if p.shape[1] > 2:
        return np.asarray(logs - logs.mean(axis=1, keepdims=True))
    if link == "logit":
        return np.asarray(logs[:, 1] - logs[:, 0])
    return np.asarray(np.where(p[:, 1] < 0.5, ndtri_exp(logs[:, 1]), -ndtri_exp(logs[:, 0])))


def _most_probable(p: np.ndarray, classes: np.ndarray) -> np.ndarray:
    missing = int(np.isnan(p).any(axis=1).sum())
    if missing:
        raise InputError(
            f"{missing} rows miss a feature and have no class: leave them out, or take "
            "predict_proba, which gives NaN there"
        )
    return np.asarray(classes[p.argmax(axis=1)])


def _stacked(columns: list[Any]) -> Any:
    """Return columns (n,) side by side, in one chunk across where they are lazy."""
    if not isinstance(columns[0], da.Array):
        return np.stack(columns, axis=1)
    stacked = da.stack(columns, axis=1)
    return stacked.rechunk({1: -1})


def _probabilities(moments: np.ndarray) -> np.ndarray:
    """Return probabilities (n, C), for means and then standard deviations (n, 2 C) of f."""
    C = moments.shape[1] // 2
    known = np.isfinite(moments).all(axis=1)
    found = np.full((len(moments), C), np.nan)
    means, deviations = moments[known, :C], moments[known, C:]
    found[known] = categorical.expected(means, deviations**2).probability
    return found
