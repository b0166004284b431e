"""Cross-validation of estimators on rows wherever they lie."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from daskgp import data
from daskgp.assess import scores as scoring
from daskgp.assess.calibration import learned_layers
from daskgp.assess.loo import leave_one_out
from daskgp.assess.refits import fitted, fitted_to, scratch
from daskgp.assess.scores import METRICS, Sums, aligned
from daskgp.checks import choice, place, shown, whole
from daskgp.data import folds as splitting
from daskgp.data import reading, visibility, writers
from daskgp.data.blocks import filling
from daskgp.data.folds import Fold, Parts
from daskgp.data.partition import Span
from daskgp.data.stores import groups as stores
from daskgp.errors import InputError, SettingError
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.settings import check_settings
from daskgp.fit import named
from daskgp.fit.work import refuse_weights
from daskgp.models.scaling import one_row
from daskgp.posterior.posterior import Posterior
from daskgp.predict.lazy import posterior_node
from daskgp.predict.stored import Node, opened
from daskgp.runtime.executor import Executor, map_reduce
from daskgp.runtime.process import single_blas_thread

logger = logging.getLogger("daskgp")

SHOWN = ("rmse", "nlpd", "crps", "coverage_95")
LOO = "loo"
FOLD = "fold"


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Scores of held-out rows, fold by fold; ``print`` shows them as a table.

    Attributes
    ----------
    scheme : str
        "random", "blocks", "groups", "time" or "loo".
    scores : dict of str to ndarray (k,)
        Scores of each fold, by the names that were asked for.
    trained, rows : ndarray of int (k,)
        Rows that each fit was given, and values that its predictions were scored on.
    seconds : ndarray (k,)
        Time that the fit of each fold and its predictions took.
    mean, standard_error : dict of str to float
        Mean of each score over the folds, and its standard error: their standard deviation over
        the root of their number, NaN for a single one.  Folds share training rows, so that the
        error of a difference between models is better judged fold by fold.
    pooled : dict of str to float
        Scores of all held-out values together.
    predictions : str or None
        Store with the held-out predictions, if one was asked for.

    Examples
    --------
    >>> import numpy as np, daskgp
    >>> X = np.random.default_rng(0).uniform(size=(60, 1))
    >>> model = daskgp.ExactGP(progress=False)
    >>> found = daskgp.cross_validate(model, X, np.sin(6 * X[:, 0]), folds=3)
    >>> found.scheme, len(found.rows), bool(found.mean["rmse"] < 0.1)
    ('random', 3, True)
    """

    scheme: str
    scores: dict[str, np.ndarray]
    trained: np.ndarray
    rows: np.ndarray
    seconds: np.ndarray
    pooled: dict[str, float]
    predictions: str | None = None

    @property
    def mean(self) -> dict[str, float]:
        """Mean of each score over the folds."""
        return {name: float(np.mean(values)) for name, values in self.scores.items()}

    @property
    def standard_error(self) -> dict[str, float]:
        """Standard error of each mean."""
        k = len(self.rows)
        if k < 2:
            return dict.fromkeys(self.scores, float("nan"))
        return {n: float(np.std(v, ddof=1) / np.sqrt(k)) for n, v in self.scores.items()}

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a row of figures for each fold, then for their mean and its standard error.

        Examples
        --------
        >>> import numpy as np
        >>> from daskgp.estimators.cross_validation import CrossValidation
        >>> two = np.array([40, 20])
        >>> scores, pooled = {"rmse": two / 100}, {"rmse": 0.3}
        >>> found = CrossValidation("random", scores, two, two, two / 10, pooled)
        >>> [(row["fold"], round(row["rmse"], 3)) for row in found.to_rows()][:3]
        [('0', 0.4), ('1', 0.2), ('mean', 0.3)]
        """
        each = [
            {
                "fold": str(i),
                **{name: float(values[i]) for name, values in self.scores.items()},
                "trained": int(self.trained[i]),
                "rows": int(self.rows[i]),
                "seconds": round(float(self.seconds[i]), 3),
            }
            for i in range(len(self.rows))
        ]
        if len(each) == 1:
            return each
        return [*each, {"fold": "mean", **self.mean}, {"fold": "error", **self.standard_error}]

    def __str__(self) -> str:
        return aligned(self.to_rows())

    __repr__ = __str__


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
    predictions: str | None = None,
    y_variance: Any = None,
    sample_weight: Any = None,
    features: Any = None,
    mask: str | None = None,
    store: str | None = None,
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
        how well a model does between its rows.  A number is the size of blocks along all columns,
        in their units, or in km on the sphere; a mapping has the sizes along some columns by name.
        "auto" halves the space until there are 16 or more boxes per fold, which hold equally many
        rows; names of columns do so in these alone.  With an array, that of places that
        predictions are for, boxes of several sizes are mixed so that the distances of held-out rows
        to the nearest one that is trained on are distributed as those of the places to all rows
        [Milà et al. 2022].
    groups : str, int or array-like (n,), optional
        Column of X, or labels of the rows: those of a group are held out together.
    time : str or int, optional
        Column of X along which the rows are cut into one more part than folds: fold i is fitted to
        what lies before part i + 1 and tested on that part.  A single fold holds out the last
        fifth.
    max_rows : int, optional
        Most rows that a fit is given, drawn at random from those of its fold.
    metrics : sequence of str
        Scores: "rmse", "mae", "bias", "spread" (root mean predictive variance), "nlpd", "crps",
        "coverage_50", "coverage_80", "coverage_95", and "z_mean" and "z_variance" of the
        standardised residuals.  "crps" is there where y is f
        and Gaussian noise; of classes there are the first five.
    predictions : str, optional
        Where held-out predictions are written: a Zarr group with ``mean`` and ``variance`` of new
        observations (n, p), and the ``fold`` (n,) that a row was held out of; NaN and -1 for those
        that never were.
    y_variance, sample_weight, features, mask
        As for ``fit``.
    store : str, optional
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
    >>> found = daskgp.cross_validate(daskgp.SGPR(n_inducing=10), X, y, folds=5, blocks=0.1)
    >>> int(found.rows.sum()), bool(found.mean["rmse"] < 0.1)
    (200, True)
    """
    _check_model(model)
    names = _checked_metrics(metrics, model)
    place("store", store, "a folder")
    place("predictions", predictions, "a store")
    loo = isinstance(folds, str)
    if loo:
        _check_loo(model, folds, blocks=blocks, groups=groups, time=time, max_rows=max_rows)
    number: Any = 1 if loo else folds
    wanted = splitting.Wanted(number, blocks, groups, time, random_state)
    wanted.check()
    if max_rows is not None:
        whole("max_rows", max_rows, 1)
    columns = named.columns_of(X, y, features, mask, y_variance, sample_weight, model.geographic)
    if predictions is not None:
        stores.refuse_existing(str(predictions), "predictions")
    executor = Executor.current(model.progress, model.device)
    with ExitStack() as stack:
        url = stack.enter_context(scratch(store or model.store))
        if columns is not None:
            X, y, _ = stack.enter_context(columns.converted(f"{url}-named", model.progress))
            y_variance = sample_weight = None
        if y is None:
            raise InputError("cross_validate requires y, but the target y is None")
        noise = y_variance, sample_weight
        # a fit to all rows says itself what their fill values are
        rows = rows_at(f"{url}-rows", X, y, noise, model, executor, silent=loo)
        refuse_weights(model._model(), rows)
        output = None
        if predictions is not None:
            output = stack.enter_context(_output(str(predictions), rows))
        if loo:
            given = X, y, (y_variance, sample_weight)
            found = [_loo(model, rows, given, url, output, executor)]
        else:
            parts = wanted.made(rows, url, executor)
            if max_rows is not None and all(parts.trained(f) <= max_rows for f in parts.folds):
                logger.info("max_rows=%d is no fewer rows than folds train on", max_rows)
            run = partial(fold_of, model, parts, url, (max_rows, random_state), output, executor)
            found = [run(i) for i in range(len(parts.folds))]
    scheme = LOO if loo else wanted.scheme
    return _collected(scheme, found, names, None if predictions is None else str(predictions))


@dataclass(frozen=True, eq=False)
class Found:
    """Sums over the held-out values of a fold, rows of its fit, and seconds."""

    sums: Sums
    trained: int
    seconds: float


def _collected(
    scheme: str, found: Sequence[Found], names: Sequence[str], predictions: str | None
) -> CrossValidation:
    each = [one.sums.scores() for one in found]
    total = found[0].sums
    for one in found[1:]:
        total = total + one.sums
    pooled = total.scores()
    return CrossValidation(
        scheme,
        {name: np.array([scores[name] for scores in each]) for name in names if name in each[0]},
        np.array([one.trained for one in found]),
        np.array([int(one.sums.table[:, 0].sum()) for one in found]),
        np.array([one.seconds for one in found]),
        {name: pooled[name] for name in names if name in pooled},
        predictions,
    )


# -- what is wrong with settings ------------------------------------------------------------


def _check_model(model: Any) -> None:
    if not isinstance(model, GaussianProcess):
        raise SettingError(
            f"model is {shown(model)}: give an estimator of daskgp, such as daskgp.SGPR()"
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


# -- rows and stores -----------------------------------------------------------------------


def rows_at(
    url: str,
    X: Any,
    y: Any,
    noise: tuple[Any, Any],
    model: Any,
    executor: Executor,
    silent: bool = False,
) -> data.Rows:
    """Return the rows as a model reads them, in a store at a URL where tasks cannot otherwise.

    ``silent`` says nothing of fill values.
    """
    rows = data.rows_of(X, y, url, executor.shares_memory, None, *noise, model.geographic)
    remedy = f"put it in {visibility.HERE}, with store= where rows are written"
    for array in rows.arrays.values():
        visibility.check(executor, array, "the data", remedy)
    if not len(rows):
        raise InputError("no rows: the data has length 0")
    if len(rows) == 1:
        raise one_row()
    settings = model.fill_values, splitting.even_spans(rows), executor
    classes = getattr(model, "_codes", None) is not None
    return filling.marked(rows, *settings, classes=classes, silent=silent)


@contextmanager
def _output(url: str, rows: data.Rows) -> Iterator[stores.Group]:
    """Yield a new store of held-out predictions; it is removed again if the block fails."""
    step = splitting.even_spans(rows)[0].rows
    said = {"target_names": list(rows.target_names), **writers.marks()}
    with stores.creating(url, "predictions", said) as group:
        for name in ("mean", "variance"):
            writers.create_rows(group, name, rows.y.shape, step, np.float64)
        group.create_array(
            FOLD,
            shape=(len(rows),),
            chunks=(step,),
            dtype="int16",
            dimension_names=stores.dims_of_rows(FOLD, 1),
            fill_value=-1,
        )
        yield group
        group.attrs["complete"] = True


# -- folds ---------------------------------------------------------------------------------


def fold_of(
    model: GaussianProcess,
    parts: Parts,
    url: str,
    drawn: tuple[int | None, int],
    output: stores.Group | None,
    executor: Executor,
    number: int,
) -> Found:
    """Fit to the rows of a fold and sum over the values of those that it leaves out."""
    began, fold, most = time.perf_counter(), parts.folds[number], drawn[0]
    given = parts, url, drawn, executor, number
    with fitted_to(model.recipe(), *given, learned_layers) as posterior:
        sums = held_out(posterior, parts, fold, executor, output, number)
    _say(number, len(parts.folds), sums)
    trained = parts.trained(fold) if most is None else min(most, parts.trained(fold))
    return Found(sums, trained, time.perf_counter() - began)


def _say(number: int, count: int, sums: Sums) -> None:
    scores = sums.scores()
    figures = ", ".join(f"{name} {scores[name]:.4g}" for name in SHOWN if name in scores)
    logger.info("fold %d of %d: %s", number + 1, count, figures)


def held_out(
    posterior: Posterior,
    parts: Parts,
    fold: Fold,
    executor: Executor,
    output: stores.Group | None = None,
    number: int = 0,
) -> Sums:
    """Return sums over the values of the rows that a fold is tested on, predicted in tasks."""
    task = partial(_tested, parts, fold, output, number)
    return _summed(task, parts.spans, posterior, executor)


def _summed(task: Any, spans: list[Span], posterior: Posterior, executor: Executor) -> Sums:
    node = posterior_node(posterior, not executor.shares_memory)
    total: Sums = map_reduce(task, _plus, spans, executor, "held-out", [node])
    return total


def _plus(a: Sums, b: Sums) -> Sums:
    return a + b


def _tested(
    parts: Parts, fold: Fold, output: stores.Group | None, number: int, span: Span, node: Node
) -> Sums:
    posterior, places = opened(node), parts.places(fold, span)
    X, y = parts.rows.raw(*span)
    return _judged(posterior, X, y, places, scoring.predicted, (output, number, span))


def _judged(
    posterior: Posterior,
    X: np.ndarray,
    y: np.ndarray,
    places: np.ndarray,
    predict: scoring.Predict,
    into: tuple[stores.Group | None, int, Span],
) -> Sums:
    """Return the sums over some rows of a span, whose predictions may be written."""
    with single_blas_thread():
        found = scoring.scored(posterior, X[places], y[places], predict)
    output, number, span = into
    if output is not None and len(places):
        rows = slice(*span)
        for name, values in (("mean", found.mean), ("variance", found.variance)):
            array: Any = output[name]
            whole_chunk = reading.read(array, rows)
            whole_chunk[places] = values.reshape(len(places), *array.shape[1:])
            array[rows] = whole_chunk
        held: Any = output[FOLD]
        numbers = reading.read(held, rows)
        numbers[places] = number
        held[rows] = numbers
    return Sums.of(found, np.zeros(len(places), int), 1)


def _loo(
    model: GaussianProcess,
    rows: data.Rows,
    given: tuple[Any, Any, tuple[Any, Any]],
    url: str,
    output: stores.Group | None,
    executor: Executor,
) -> Found:
    """Fit to all rows, and sum over the values of each as the others predict it."""
    began, kept = time.perf_counter(), f"{url}-kept"
    try:
        posterior = fitted(model.recipe(), *given, kept, learned_layers)
        task = partial(_left_out, rows, output)
        sums = _summed(task, splitting.even_spans(rows), posterior, executor)
    finally:
        data.remove(kept)
    return Found(sums, len(rows), time.perf_counter() - began)


def _left_out(rows: data.Rows, output: stores.Group | None, span: Span, node: Node) -> Sums:
    X, y = rows.raw(*span)
    places = np.arange(len(X))
    return _judged(opened(node), X, y, places, leave_one_out, (output, 0, span))
