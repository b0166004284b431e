"""Scores of held-out rows by fits to the others, wherever rows lie."""

from __future__ import annotations

import logging
import math
import operator
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from daskgp import data
from daskgp.assess.calibration import learned_layers
from daskgp.assess.check import SAMPLE_ROWS, Sample
from daskgp.assess.loo import leave_one_out
from daskgp.assess.refits import fitted, fitted_to, scratch
from daskgp.assess.scores import SHOWN, Predict, Sums, aligned, predicted, scored, summed
from daskgp.data import folds as splitting
from daskgp.data import reading, visibility, writers
from daskgp.data.blocks import filling, sampling
from daskgp.data.folds import Fold, Parts
from daskgp.data.partition import Span
from daskgp.data.rows import Beside
from daskgp.data.stores import groups as stores
from daskgp.errors import InputError
from daskgp.fit import named, separate, targets
from daskgp.fit.recipe import Recipe
from daskgp.fit.work import refuse_weights
from daskgp.models.scaling import one_row, refuse_infinite_targets, warn_of_missing
from daskgp.posterior.posterior import Posterior
from daskgp.predict.stored import Node, opened
from daskgp.runtime.executor import Executor
from daskgp.runtime.process import single_blas_thread
from daskgp.typing import Path

logger: logging.Logger = logging.getLogger("daskgp")

MOST_SHOWN = 20
"""Most folds that a table shows one by one."""
LOO = "loo"
FOLD = "fold"
SEED = 19
"""Seed of the rows that are kept for figures."""


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Scores of held-out rows, fold by fold; ``print`` shows them as a table.

    The table shows up to 20 folds, their mean and its standard error, and in its last line, "all",
    the scores of all held-out values together.

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
    targets : dict of str to CrossValidation
        The same of each of several targets, by its name: scores of all of them together, as above,
        are in the units that these happen to have.  NaN in folds without a value of it.
    counts : ndarray (200,)
        Held-out values by their predictive distribution function.
    sample : Sample
        About 2,000 held-out rows X with y, mean and std, for figures.
    feature_names : tuple of str
    geographic : tuple of int, optional
        Which features are longitude and latitude.

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
    targets: dict[str, CrossValidation] = field(default_factory=dict)
    counts: np.ndarray = field(default_factory=lambda: np.empty(0))
    sample: Sample | None = None
    feature_names: tuple[str, ...] = ()
    geographic: tuple[int, int] | None = None

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
        >>> from daskgp.assess.cross_validation import CrossValidation
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

    def with_all(self) -> list[dict[str, Any]]:
        """Return the rows of `to_rows`, and one of all held-out values together.

        Examples
        --------
        >>> import numpy as np
        >>> from daskgp.assess.cross_validation import CrossValidation
        >>> two = np.array([40, 20])
        >>> scores, pooled = {"rmse": two / 100}, {"rmse": 0.3}
        >>> found = CrossValidation("random", scores, two, two, two / 10, pooled)
        >>> found.with_all()[-1]
        {'fold': 'all', 'rmse': 0.3, 'rows': 60}
        """
        each = self.to_rows()
        if len(self.rows) > 1:
            each.append({"fold": "all", **self.pooled, "rows": int(self.rows.sum())})
        return each

    def _table(self) -> str:
        """Return the first folds, their mean, and all held-out values together, as lines."""
        each, k = self.with_all(), len(self.rows)
        hidden = k - MOST_SHOWN
        if hidden > 0:
            each[MOST_SHOWN:k] = [{"fold": "..."}]
        lines = aligned(each).splitlines()
        if hidden > 0:
            lines[1 + MOST_SHOWN] = f"... {hidden} more"
        return "\n".join(lines)

    def __str__(self) -> str:
        if not self.targets:
            return self._table()
        each = [
            {"target": name, **own.pooled, "values": int(own.rows.sum())}
            for name, own in self.targets.items()
        ]
        return (
            f"by target, of all held-out values:\n{aligned(each)}\n\n"
            f"all targets together, each in its own unit:\n{self._table()}"
        )

    __repr__ = __str__


def cross_validated(
    recipe: Recipe,
    rows: tuple[Any, Any, Beside, named.Named | None],
    wanted: splitting.Wanted | None,
    drawn: tuple[int | None, int],
    metrics: Sequence[str],
    predictions: str | None,
    store: Path | None,
) -> CrossValidation:
    """Fit a recipe to parts of the rows, and score its predictions of the others.

    Parameters
    ----------
    recipe : Recipe
    rows : tuple
        X, y and what is beside it; or the columns that they are converted from.
    wanted : Wanted, optional
        Folds; by default one fit, and the leave-one-out predictions of its rows.
    drawn : tuple
        Most rows of a fit, and the seed that they are drawn by.
    metrics, predictions, store
        As for `daskgp.cross_validate`.
    """
    (X, y, beside, columns), (most, _) = rows, drawn
    executor = Executor.current(recipe.progress, recipe.device)
    with ExitStack() as stack:
        url = stack.enter_context(scratch(store or recipe.store))
        if columns is not None:
            X, y, _ = stack.enter_context(columns.converted(f"{url}-named", recipe.progress))
            beside = {}
            apart = [] if wanted is None else columns.apart(wanted.names)
            if wanted is not None and apart:
                more = f"{url}-beside", recipe.progress, wanted.groups
                own = columns.values(apart, len(X), *more)
                wanted = wanted._replace(beside=own)
        if y is None:
            raise InputError(
                "cross_validate requires y, but the target y is None: give the "
                "targets, or the name of their column in X"
            )
        settings, classes = (recipe.geographic, recipe.fill_values), recipe.codes is not None
        # a fit to all rows says itself what their fill values are
        silent = wanted is None
        given = X, y, beside, settings, executor, recipe.columns
        known = rows_at(f"{url}-rows", *given, classes, silent)
        refuse_weights(recipe.method, known)
        output = None
        if predictions is not None:
            output = stack.enter_context(_output(predictions, known))
        if wanted is None:
            found = [_loo(recipe, known, (X, y, beside), url, output, executor)]
        else:
            spans = splitting.even_spans(known)
            if recipe.codes is not None and recipe.codes.sized_by_data:  # parts may lack some
                targets.check_classes(known, spans, executor)
            _tell_missing(known, spans, executor)
            parts = wanted.made(known, url, executor)
            if most is not None and all(parts.trained(f) <= most for f in parts.folds):
                logger.info("max_rows=%d is no fewer rows than folds train on", most)
            fold = partial(_of_fold, recipe, parts, url, drawn, output, executor)
            found = [fold(i) for i in range(len(parts.folds))]
            infinite = reduce(operator.add, (one.sums for one in found)).left_out.infinite
            refuse_infinite_targets(infinite, known.target_names, known.y.dtype)
    scheme = LOO if wanted is None else wanted.scheme
    whole = _collected(scheme, found, metrics, known.target_names, predictions)
    return replace(whole, feature_names=tuple(known.feature_names), geographic=known.geographic)


@dataclass(frozen=True, eq=False)
class Found:
    """Sums over the held-out values of a fold by target, rows of its fit, and seconds."""

    sums: Sums
    trained: int
    seconds: float
    sample: Sample


class Held(NamedTuple):
    """Sums over held-out values, and some of the rows."""

    sums: Sums
    sample: Sample


def _both(a: Held, b: Held) -> Held:
    pairs = zip(a.sample, b.sample, strict=True)
    return Held(a.sums + b.sums, Sample(*(np.concatenate(pair) for pair in pairs)))


def _collected(
    scheme: str,
    found: Sequence[Found],
    names: Sequence[str],
    targets: Sequence[str],
    predictions: str | None,
) -> CrossValidation:
    total = reduce(operator.add, (one.sums for one in found))
    known = total.scores()
    of = partial(_of, scheme, names=[name for name in names if name in known])
    parts = [one.sums.named(targets) for one in found]
    each = {
        target: of([replace(one, sums=p[target]) for one, p in zip(found, parts, strict=True)])
        for target in parts[0]
    }
    samples = zip(*(one.sample for one in found), strict=True)
    sample = Sample(*(np.concatenate(parts) for parts in samples))
    counts = total.counts.sum(axis=0)
    more: dict[str, Any] = {"counts": counts, "sample": sample}
    return replace(of(found), predictions=predictions, targets=each, **more)


def _of(scheme: str, found: Sequence[Found], names: Sequence[str]) -> CrossValidation:
    """Return the scores of folds, NaN where there is no value."""

    def scores(sums: Sums) -> dict[str, float]:
        known = sums.scores() if sums.n else {}
        return {name: known.get(name, math.nan) for name in names}

    each = [scores(one.sums) for one in found]
    return CrossValidation(
        scheme,
        {name: np.array([own[name] for own in each]) for name in names},
        np.array([one.trained for one in found]),
        np.array([one.sums.n for one in found]),
        np.array([one.seconds for one in found]),
        scores(reduce(operator.add, (one.sums for one in found))),
    )


# -- rows and stores -----------------------------------------------------------------------


def rows_at(
    url: str,
    X: Any,
    y: Any,
    beside: Beside,
    settings: tuple[Any, Any],
    executor: Executor,
    columns: Sequence[str] = (),
    classes: bool = False,
    silent: bool = False,
) -> data.Rows:
    """Return the rows as a fit reads them, in a store at a URL where tasks cannot otherwise.

    ``settings`` are geographic and fill_values, of which nothing is said if ``silent``; ``columns``
    are numbers that a likelihood takes; targets may be ``classes``, or counts.
    """
    geographic, fill_values = settings
    given = beside, geographic, columns, None, True
    rows = data.rows_of(X, y, url, executor.shares_memory, None, *given)
    remedy = f"put it in {visibility.HERE}, with store= where rows are written"
    for array in rows.arrays.values():
        visibility.check(executor, array, "the data", remedy)
    if not len(rows):
        raise InputError("no rows: the data has length 0; give rows at two places or more")
    if len(rows) == 1:
        raise one_row()
    spans = splitting.even_spans(rows)
    return filling.marked(rows, fill_values, spans, executor, classes=classes, silent=silent)


@contextmanager
def _output(url: str, rows: data.Rows) -> Iterator[stores.Group]:
    """Yield a new store of held-out predictions; it is removed again if the block fails."""
    step = splitting.even_spans(rows)[0].rows
    attributes = {"target_names": list(rows.target_names), **writers.marks()}
    with stores.creating(url, "predictions", attributes) as group:
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


def _of_fold(
    recipe: Recipe,
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
    with fitted_to(recipe, *given, learned_layers) as posterior:
        sums, sample = held_out(posterior, parts, fold, executor, output, number)
    _say(number, len(parts.folds), sums)
    trained = parts.trained(fold) if most is None else min(most, parts.trained(fold))
    return Found(sums, trained, time.perf_counter() - began, sample)


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
) -> Held:
    """Return sums over the values of the rows that a fold is tested on, predicted in tasks."""
    task = partial(_tested, parts, fold, output, number)
    total: Held = summed(task, parts.spans, posterior, executor, "held-out", _both)
    return total


def _tested(
    parts: Parts, fold: Fold, output: stores.Group | None, number: int, span: Span, node: Node
) -> Held:
    posterior, places = opened(node), parts.places(fold, span)
    X, y = parts.rows.raw(*span)
    beside = parts.rows.beside_in(y[places])
    into = output, number, span, len(parts.rows)
    return _scored(posterior, X, y, places, predicted, beside, into)


def _scored(
    posterior: Posterior,
    X: np.ndarray,
    y: np.ndarray,
    places: np.ndarray,
    predict: Predict,
    beside: Beside,
    into: tuple[stores.Group | None, int, Span, int],
) -> Held:
    """Return the sums over some rows of a span, whose predictions may be written.

    ``into`` says where, of which fold they are, and which of how many rows.
    """
    with single_blas_thread():
        found = scored(posterior, X[places], y[places], predict, beside)
    output, number, span, n = into
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
    keys = sampling.row_keys((SEED,), span.start, span.rows)[places]
    few = keys / 2.0**64 <= SAMPLE_ROWS / n
    of_rows = (found.y, found.mean, np.sqrt(found.variance))
    return Held(Sums.by_target(found), Sample(X[places][few], *(v[few] for v in of_rows)))


def _tell_missing(rows: data.Rows, spans: Sequence[Span], executor: Executor) -> None:
    """Warn of rows that no fold uses; InputError if that are all."""
    _, usable, _ = separate.values(rows, spans, executor)
    weighted = rows.weight is not None
    if not usable:
        more = ", or all have a sample_weight of zero" if weighted else ""
        raise InputError(
            f"no usable rows: none of {len(rows)} has all features and a target{more}: give rows "
            "that do"
        )
    warn_of_missing(len(rows) - usable, weighted)


def _loo(
    recipe: Recipe,
    rows: data.Rows,
    given: tuple[Any, Any, Beside],
    url: str,
    output: stores.Group | None,
    executor: Executor,
) -> Found:
    """Fit to all rows, and sum over the values of each as the others predict it."""
    began, kept = time.perf_counter(), f"{url}-kept"
    try:
        posterior = fitted(recipe, *given, kept, learned_layers)
        task = partial(_left_out, rows, output)
        spans = splitting.even_spans(rows)
        held: Held = summed(task, spans, posterior, executor, "held-out", _both)
    finally:
        data.remove(kept)
    return Found(held.sums, len(rows), time.perf_counter() - began, held.sample)


def _left_out(rows: data.Rows, output: stores.Group | None, span: Span, node: Node) -> Held:
    X, y = rows.raw(*span)
    places = np.arange(len(X))
    beside = rows.beside_in(y)
    predict = partial(leave_one_out, beside=beside)
    return _scored(opened(node), X, y, places, predict, beside, (output, 0, span, len(rows)))
