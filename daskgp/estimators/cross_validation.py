"""Cross-validation of estimators on rows of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from daskgp.assess.cross_validation import LOO, CrossValidation, cross_validated
from daskgp.assess.scores import METRICS, SHOWN
from daskgp.checks import choice, place, shown, whole
from daskgp.data import named_beside, reading
from daskgp.data.folds import Wanted
from daskgp.data.rows import Beside
from daskgp.data.stores import groups as stores
from daskgp.errors import SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.settings import check_settings
from daskgp.fit import named
from daskgp.typing import Path


def cross_validate(
    model: GaussianProcess,
    X: Any,
    y: Any,
    *,
    folds: int | Literal["loo"] = 5,
    blocks: Any = None,
    groups: Any = None,
    time: str | int | None = None,
    max_rows: int | None = None,
    metrics: Sequence[str] = SHOWN,
    predictions: Path | None = None,
    y_variance: Any = None,
    sample_weight: Any = None,
    trials: Any = None,
    exposure: Any = None,
    offset: Any = None,
    lower: Any = None,
    upper: Any = None,
    features: Any = None,
    mask: Path | None = None,
    store: Path | None = None,
    random_state: int = 0,
) -> CrossValidation:
    """Fit a model to parts of the rows, and score its predictions of the others.

    Rows are never in memory all at once: those that a fold trains on are written to a store, which
    is removed after its fit, and tasks predict the others chunk by chunk on the current Dask
    client.  The same seed gives the same folds on any number of workers.

    Parameters
    ----------
    model : estimator
        Its settings are fitted anew in each fold; it is left as it is.
    X, y : array-like (n, d) and (n,) or (n, p), or a source and names of its targets
        Rows of any kind that ``fit`` takes.
    folds : int or "loo"
        Number of folds.  1 holds out a fifth of the rows, once.  "loo" fits the model once, to all
        rows, and takes the leave-one-out predictions that `loo` makes from that fit.
    blocks : number, mapping, "auto", sequence of str or array-like (m, d), optional
        Hold out blocks of space, as a score of predictions in gaps needs: of random rows it tells
        how well a model does between its rows.  A number is the size of blocks of places: in km on
        the ground of longitude and latitude, also of columns that are only called so, such as
        ``lon`` and ``lat``; along ``x`` and ``y`` or ``easting`` and ``northing`` in their unit; or
        where there are none, along all columns.  "100km" or "500m" says the unit.  A mapping has
        the sizes along some columns by name, in the unit of each, of a source along any that are no
        features, too.
        "auto" halves the space of all columns until there are 16 or more boxes per fold, which
        hold equally many rows; names of columns do so in these alone.  With an array, that of
        places that predictions are for, boxes of several sizes are mixed so that the distances of
        held-out rows to the nearest one that is trained on are distributed as those of the places
        to all rows [Milà et al. 2022].
    groups : str, int or array-like (n,), optional
        Column of X, or labels of the rows: those of a group are held out together.  Of a source
        whose columns are named, any column, such as the names of stations; it is no feature unless
        ``features`` has it.
    time : str or int, optional
        Column of X, or of a source any column, along which the rows are cut into one more part than
        folds: fold i is fitted to what lies before part i + 1 and tested on that part.  A single
        fold holds out the last fifth.
    max_rows : int, optional
        Most rows that a fit is given, drawn at random from those of its fold.
    metrics : sequence of str
        Scores: "rmse", "mae", "bias", "spread" (root mean predictive variance), "nlpd", "crps",
        "coverage_50", "coverage_80", "coverage_95", and "z_mean" and "z_variance" of the
        standardised residuals.  "crps" is there where y is f and Gaussian noise; counts and
        ordered classes have it as their "ranked_probability" score; classes have "brier" and
        "accuracy", and no intervals.
    predictions : str or path, optional
        Where held-out predictions are written: a Zarr group with ``mean`` and ``variance`` of new
        observations (n, p), and the ``fold`` (n,) that a row was held out of; NaN and -1 for those
        that never were.
    y_variance, sample_weight, trials, exposure, offset, lower, upper, features, mask
        As for ``fit``.
    store : str or path, optional
        Folder or URL for the rows of a fold while they are needed; default that of the model, or a
        temporary directory.
    random_state : int
        Seed of the folds and of ``max_rows``.

    Returns
    -------
    CrossValidation

    Raises
    ------
    InputError
        If the data or a setting cannot be used, before any fit where that can be seen.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = daskgp.SGPR(n_inducing=10, max_iter=9)
    >>> found = daskgp.cross_validate(model, X, y, folds=5, blocks=0.1)
    >>> int(found.rows.sum()), bool(found.mean["rmse"] < 0.1)
    (200, True)
    """
    _check_model(model)
    noise = {"y_variance": y_variance, "sample_weight": sample_weight}
    columns = {"trials": trials, "exposure": exposure, "offset": offset}
    beside = named_beside(**noise, **columns, lower=lower, upper=upper)
    settings = model.geographic, model.fill_values
    source = named.columns_of(X, y, features, mask, beside, *settings)
    reading.refuse_other_order(X, groups=groups)
    asked = Wanted(1 if isinstance(folds, str) else folds, blocks, groups, time, random_state)
    rows = X, y, beside, source
    return validated(model, rows, folds, asked, max_rows, metrics, predictions, store)


def validated(
    model: GaussianProcess,
    rows: tuple[Any, Any, Beside, named.Named | None],
    folds: int | Literal["loo"],
    asked: Wanted,
    max_rows: int | None = None,
    metrics: Sequence[str] = SHOWN,
    predictions: Path | None = None,
    store: Path | None = None,
) -> CrossValidation:
    """Return the scores of held-out rows, see `cross_validate`.

    ``rows`` are X, y and what is beside it, or the columns that they are converted from; ``asked``
    are the folds.
    """
    _check_model(model)
    names = _checked_metrics(metrics, model)
    place("store", store, "a folder")
    place("predictions", predictions, "a store")
    loo = isinstance(folds, str)
    if loo:
        given = {"blocks": asked.blocks, "groups": asked.groups, "time": asked.time}
        _check_loo(model, folds, **given, max_rows=max_rows)
    asked.check()
    if max_rows is not None:
        whole("max_rows", max_rows, 1)
    X, y, beside, source = rows
    if source is not None:
        source.check(asked.named)
        if isinstance(asked.groups, str):
            source = source.without(asked.groups)
    if predictions is not None:
        stores.refuse_existing(str(predictions), "predictions")
    into, folded = None if predictions is None else str(predictions), None if loo else asked
    drawn = max_rows, asked.seed
    return cross_validated(
        model.recipe(), (X, y, beside, source), folded, drawn, names, into, store
    )


def _check_model(model: Any) -> None:
    if not isinstance(model, GaussianProcess):
        if hasattr(model, "made_of"):
            raise SettingError(
                f"{type(model).__name__} is made of two models: give one of them with its rows, or "
                "take scikit-learn's cross_val_score for both"
            )
        raise SettingError(
            f"model is {shown(model)}: give an estimator of daskgp, such as daskgp.SGPR(), or "
            "best_ of a fitted AutoGP"
        )
    check_settings(model)
    missing = model._model().why_no_variance()
    if missing:
        raise SettingError(missing)


def _checked_metrics(metrics: Any, model: GaussianProcess) -> tuple[str, ...]:
    several = isinstance(metrics, Sequence) and not isinstance(metrics, str) and len(metrics)
    if not several:
        raise SettingError(f"metrics={shown(metrics)}: give names among {', '.join(METRICS)}")
    for name in metrics:
        choice("metrics", name, METRICS)
    return tuple(metrics)


def _check_loo(model: GaussianProcess, folds: Any, **others: Any) -> None:
    if folds != LOO:
        raise SettingError(f"folds={shown(folds)}: give a number, or 'loo'")
    for name, value in others.items():
        if value is not None:
            raise SettingError(
                f"{name} has no effect with folds='loo', which leaves out each row: leave it out"
            )
    missing = model._model().why_no_loo()
    if missing:
        raise SettingError(missing)
