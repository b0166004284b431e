"""Classification: a scikit-learn classifier around any estimator with a likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, Self, overload

import dask.array as da
import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from daskgp.checks import choice, flags, shown
from daskgp.data import grids, named_beside
from daskgp.data.kinds import Kind, Places, Stored
from daskgp.errors import InputError, SettingError
from daskgp.estimators import composite
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.bases import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from daskgp.estimators.settings import check_settings
from daskgp.estimators.trees import of_nodes
from daskgp.estimators.vecchia import VecchiaGP
from daskgp.fit import classes as several
from daskgp.likelihoods import categorical
from daskgp.typing import Path

LIKELIHOODS = {"logit": "bernoulli-logit", "probit": "bernoulli"}
SHOWN = 5
"""Most classes that a message names."""
PARTS = np.array(["accuracy", "nlpd", "brier"])
"""Scores of each row, whose means are the scores."""


NO_WEIGHT = "sample_weight is zero in every row: give rows that count a greater one"


class GPClassifier(composite.Named, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows and their labels.

        Parameters
        ----------
        X : array-like (n, d)
            As for the base.
        y : array-like (n,)
            Labels: numbers, strings, booleans; those of a dask array are found out in a pass.  With
            an xarray object a DataArray on its grid, of which cells without a label are left out.
        sample_weight : float or array-like (n,), optional
            Weights, by which the log densities of rows count: a row of weight 2 is two such rows,
            and one of weight 0 none, so that its class may be none; default those of the dataset
            store that y lies in, False leaves these out.

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
        weight = composite.weights(y, sample_weight, type(self).__name__)
        y = _labels(y)
        classes = _classes(y, weighing=composite.weighing(y, weight))
        if len(classes) > 2 and self.link == "probit":
            raise SettingError(
                f"link='probit' is for two classes and y has {len(classes)}: choose 'logit'"
            )
        codes = _coded(y, classes)
        if len(classes) == 2:
            fields = [one.fit(X, codes, sample_weight=weight)]
        else:
            fields = self._several(one, X, codes, len(classes), weight)
        self.classes_, self.fields_ = classes, fields
        return self

    def _several(
        self, one: GaussianProcess, X: Any, codes: Any, count: int, weight: Any
    ) -> list[GaussianProcess]:
        """Return a fitted estimator of each class."""
        check_settings(one)
        recipe = one.recipe()
        if recipe.likelihood is None:
            name = type(one).__name__
            raise SettingError(
                f"y has {count} classes, and {name} takes two, because it has a likelihood of "
                "its own: choose VecchiaGP, LMA or SGPR as base, or wrap this in "
                "sklearn.multiclass.OneVsRestClassifier"
            )
        fields: list[GaussianProcess] = []
        beside = named_beside(sample_weight=weight)
        for fit in several.fitted(recipe, X, codes, count, self.shared, beside):
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
    def parts_(self) -> list[GaussianProcess]:
        """The fitted estimators, ``fields_``."""
        check_is_fitted(self)
        return self.fields_

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

    @overload
    def decision_function(self, X: Places[Kind]) -> Kind: ...
    @overload
    def decision_function(self, X: Stored) -> da.Array: ...
    def decision_function(self, X: Any) -> Any:
        """Return the posterior mean of f, (n,) of two classes and (n, C) of more.

        That of two classes is positive for the second, which is then the most probable one.  Of
        more classes the one of the largest mean may be another where their uncertainties differ:
        ``predict`` takes the probabilities.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> base = daskgp.ExactGP("rbf", optimizer=None)
        >>> model = daskgp.GPClassifier(base).fit(X, X[:, 0] > 0.5)
        >>> bool(model.decision_function(np.array([[0.9]]))[0] > 0)
        True
        """
        check_is_fitted(self)
        means = [field.predict(X) for field in self.fields_]
        if len(means) == 1:
            return means[0]
        return composite.of_rows(
            np.asarray, means, "decision", "posterior mean of f", labels=self.classes_
        )

    @overload
    def predict_proba(self, X: Places[Kind]) -> Kind: ...
    @overload
    def predict_proba(self, X: Stored) -> da.Array: ...
    @of_nodes
    def predict_proba(self, X: Any) -> Any:
        """Return probabilities (n, C) of the classes, in the order of ``classes_``.

        They are those of new observations, with the uncertainty of f, by quadrature.  Lazy for a
        dask X; on the grid of an xarray object they are along a last dimension, ``class``.  Rows
        with a missing feature give NaN.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> base = daskgp.ExactGP("rbf", optimizer=None)
        >>> model = daskgp.GPClassifier(base).fit(X, np.floor(2.99 * X[:, 0]).astype(int))
        >>> model.predict_proba(np.array([[0.1], [0.9]])).argmax(axis=1)
        array([0, 2])
        """
        check_is_fitted(self)
        if len(self.fields_) == 1:
            found = self._first.predict_proba(X)
            return found.assign_coords({"class": self.classes_}) if grids.is_xarray(X) else found
        both = [field.predict(X, return_std=True) for field in self.fields_]
        moments = [mean for mean, _ in both] + [std for _, std in both]
        said = "probability of the class"
        return composite.of_rows(_probabilities, moments, "probability", said, labels=self.classes_)

    @overload
    def predict(self, X: Places[Kind]) -> Kind: ...
    @overload
    def predict(self, X: Stored) -> da.Array: ...
    @of_nodes
    def predict(self, X: Any) -> Any:
        """Return the most probable class at X: lazy for a dask X, on the grid of an xarray object.

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
        check_is_fitted(self)
        function, dtype = partial(_most_probable, classes=self.classes_), self.classes_.dtype
        p = [self.predict_proba(X)]
        return composite.of_rows(function, p, "label", "most probable class", dtype)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose class is predicted, by weight if weights are given.

        Those of the dataset store that y lies in are the default; False leaves these out.

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
        weight = composite.weights(y, sample_weight, type(self).__name__)
        y = self._seen(y, weight)
        found = self.predict(X)
        on_grid = grids.is_xarray(found)
        y, found, weight = composite.compared(y, found, weight)
        known = _known(y) if on_grid else np.ones(len(y), bool)
        weight = None if weight is None else weight[known]
        if weight is not None and not weight.any():
            raise InputError(NO_WEIGHT)
        return float(np.average((y == found)[known], weights=weight))

    def scores(self, X: Any, y: Any) -> dict[str, float]:
        """Return the scores of the probabilities at X against y, as ``daskgp score`` prints them.

        Rows without a class, without a prediction, or of weight 0 in the dataset store that y lies
        in, are left out.

        Returns
        -------
        dict
            ``n``, the number of rows; ``accuracy``, the share of those whose class is the most
            probable one; ``nlpd``, the mean of -log p of the class; and ``brier``, as
            ``daskgp.metrics.brier``.

        Raises
        ------
        InputError
            If y has classes that the fit has not seen, or no row is left.

        Examples
        --------
        >>> import numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> base = daskgp.ExactGP("rbf", optimizer=None)
        >>> found = daskgp.GPClassifier(base).fit(X, X[:, 0] > 0.5).scores(X, X[:, 0] > 0.5)
        >>> found["n"], found["accuracy"], found["nlpd"] < 0.2
        (60, 1.0, True)
        """
        weight = composite.weights(y, None, type(self).__name__)
        y = self._seen(y, weight, gaps=True)
        p, codes = self.predict_proba(X), _coded(y, self.classes_)
        if (own := composite.weighing(y, weight)) is not None:
            codes = da.where(own, codes, np.nan)
        if grids.is_xarray(p):
            codes = grids.on_the_grid_of(p.isel({"class": 0}, drop=True), codes)
            codes = codes.expand_dims("class", axis=-1)
        elif len(codes) != len(p):
            raise InputError(
                f"y has {len(codes)} rows and X has {len(p)}: give both of the same rows"
            )
        elif isinstance(p, da.Array):
            codes = da.asarray(codes).rechunk(p.chunks[:1])[:, None]
        found = composite.of_rows(
            _scores, [p, codes], "scores", "scores", labels=PARTS, dim="score"
        )
        means, n = composite.averages(found)
        return {**dict(zip(PARTS.tolist(), means, strict=True)), "n": n}

    def _seen(self, y: Any, weight: Any, gaps: bool = False) -> Any:
        """Return labels of classes that the fit has seen; InputError for others that weigh."""
        check_is_fitted(self)
        y = _labels(y)
        found = _classes(y, 1, composite.weighing(y, weight), gaps)
        new = np.setdiff1d(found, self.classes_)
        if len(new):
            raise InputError(
                f"y has classes that the fit has not seen, {_listed(new)}: it knows "
                f"{_listed(self.classes_)}; leave these rows out"
            )
        return y

    def save(
        self,
        url: Path,
        *,
        overwrite: bool = False,
        wait: float = 0.0,
        clear_lock: bool = False,
    ) -> None:
        """Write the fitted classifier to a store; ``daskgp.load`` reads it back.

        Parameters
        ----------
        url : str or path
            Store to write, which has a model store of each of ``fields_`` inside.
        overwrite, wait, clear_lock
            As for ``save`` of an estimator.

        Raises
        ------
        SettingError
            If the labels are neither numbers nor strings.

        Examples
        --------
        >>> import tempfile, numpy as np, daskgp
        >>> X = np.linspace(0, 1, 60)[:, None]
        >>> base = daskgp.ExactGP("rbf", optimizer=None)
        >>> model = daskgp.GPClassifier(base).fit(X, np.where(X[:, 0] > 0.5, "b", "a"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.zarr")
        ...     loaded = daskgp.load(f"{folder}/model.zarr")
        >>> loaded.predict(X[:2]).tolist()
        ['a', 'a']
        """
        check_is_fitted(self)
        classes, plain = self.classes_.tolist(), (str, bool, int, float)
        if not all(isinstance(one, plain) for one in classes):
            raise SettingError(
                f"classes {_listed(self.classes_)} are neither numbers nor strings, which a store "
                "has: fit with y.astype(str), or pickle the model"
            )
        described = {
            "kind": type(self).__name__,
            "settings": {"link": self.link, "shared": self.shared},
            "has_base": self.base is not None,
            "classes": classes,
            "dtype": self.classes_.dtype.str,
        }
        parts = {f"field_{c}": field for c, field in enumerate(self.fields_)}
        composite.save(url, described, parts, overwrite, wait, clear_lock)

    @classmethod
    def _of_parts(cls, described: Mapping[str, Any], parts: list[GaussianProcess]) -> Self:
        """Return the classifier that a store describes, of the estimators inside."""
        base = clone(parts[0]).set_params(likelihood="gaussian") if described["has_base"] else None
        model = cls(base, **described["settings"])
        model.classes_ = np.array(described["classes"], dtype=np.dtype(described["dtype"]))
        model.fields_ = parts
        return model


def _labels(y: Any) -> Any:
    """Return labels (n,) as an array, lazy ones as a dask array, those of a grid as they are.

    InputError for what are none.
    """
    return composite.target(y, "GPClassifier", "labels", "labels")


def _classes(y: Any, least: int = 2, weighing: Any = None, gaps: bool = False) -> np.ndarray:
    """Return the sorted classes of labels; InputError if there are fewer than the least.

    Cells of a grid may have none, as may rows with ``gaps``.  ``weighing`` tells which rows (n,)
    count; None for all.
    """
    gaps = gaps or grids.is_xarray(y)
    y = y.data.ravel() if grids.is_xarray(y) else y
    y = y if weighing is None else y[weighing]
    try:
        if gaps:
            lazy = isinstance(y, da.Array)
            y = y[da.map_blocks(_known, y, dtype=bool) if lazy else _known(y)]
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
    _check_kind(classes)
    if not len(classes):
        raise InputError(
            "y has no class in any row: give labels" if weighing is None else NO_WEIGHT
        )
    if len(classes) < least:
        raise InputError(
            f"y has only one class, {_listed(classes)}: GPClassifier needs rows of two or more"
        )
    return classes


def _check_kind(classes: np.ndarray) -> None:
    """Raise InputError for labels that scikit-learn takes for no classes."""
    try:
        check_classification_targets(classes)
    except ValueError as error:
        parts = classes[classes != np.rint(classes)] if classes.dtype.kind == "f" else classes[:0]
        if len(parts):
            said = (
                f"numbers that are no whole ones, such as {_listed(parts[:1])}: give the class of "
                "each row, or take a regressor such as ExactGP"
            )
        else:
            said = (
                f"labels of type {type(classes[0]).__name__}, such as {_listed(classes[:1])}: make "
                "them text or whole numbers, by .astype(str) or .astype(int)"
            )
        raise InputError(f"Unknown label type: y has {said}") from error


def _listed(classes: np.ndarray) -> str:
    names = ", ".join(repr(one) for one in classes[:SHOWN].tolist())
    more = len(classes) - SHOWN
    return f"{names} and {more} more" if more > 0 else names


def _known(y: np.ndarray) -> np.ndarray:
    """Return which labels of an array are no missing ones: NaN, or None."""
    known = np.asarray(y == y)
    return known & np.array([one is not None for one in y]) if y.dtype.kind == "O" else known


def _coded(y: Any, classes: np.ndarray) -> Any:
    """Return the numbers of the classes of labels, as the kind of object these are."""
    function = partial(_codes, classes=classes)
    if grids.is_xarray(y):
        return grids.of_parts(function, [y], y.name or "label", {})
    if isinstance(y, da.Array):
        return da.map_blocks(function, y, dtype=np.float64, meta=np.empty(0))
    return function(y)


def _codes(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the numbers (n,) of the classes of labels (n,) or (n, 1), NaN of others."""
    y = y.reshape(-1)
    known, codes = _known(y), np.full(len(y), np.nan)
    found = np.searchsorted(classes, y[known])
    same = classes[np.minimum(found, len(classes) - 1)] == y[known]
    codes[known] = np.where(same, found, np.nan)
    return codes


def _most_probable(p: np.ndarray, classes: np.ndarray) -> np.ndarray:
    missing = int(np.isnan(p).any(axis=1).sum())
    if missing:
        raise InputError(
            f"{missing} rows lack a feature and have no class: leave them out, or call "
            "predict_proba, which gives NaN there"
        )
    return np.asarray(classes[p.argmax(axis=1)])


def _probabilities(moments: np.ndarray) -> np.ndarray:
    """Return probabilities (n, C), for means and then standard deviations (n, 2 C) of f."""
    C = moments.shape[1] // 2
    known = np.isfinite(moments).all(axis=1)
    found = np.full((len(moments), C), np.nan)
    means, deviations = moments[known, :C], moments[known, C:]
    found[known] = categorical.expected(means, deviations**2).probability
    return found


def _scores(rows: np.ndarray) -> np.ndarray:
    """Return the scores (n, k) of PARTS, for rows of probabilities and a class (n, C + 1)."""
    found = np.full((len(rows), len(PARTS)), np.nan)
    known = np.isfinite(rows).all(axis=1)
    p, y = rows[known, :-1], rows[known, -1].astype(int)
    observed = np.eye(p.shape[1])[y]
    squares = (p - observed) ** 2
    brier = squares[:, 1] if p.shape[1] == 2 else squares.sum(axis=1)
    with np.errstate(divide="ignore"):  # a probability may be 0 to the last bit
        density = np.log((p * observed).sum(axis=1))
    found[known] = np.stack([p.argmax(axis=1) == y, -density, brier], axis=1)
    return found
