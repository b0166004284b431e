"""Fits to some of the rows, whose predictions of the others are scored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from daskgp import data
from daskgp.data.folds import Parts
from daskgp.data.rows import Beside
from daskgp.fit import run
from daskgp.fit.recipe import Recipe
from daskgp.fit.scratch import scratch_rows
from daskgp.fit.warm import Other
from daskgp.models import scaling
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.executor import Executor
from daskgp.train.stochastic import Stopped
from daskgp.typing import Path


@contextmanager
def scratch(store: Path | None) -> Iterator[str]:
    """Yield a URL beside which held-out folds keep what they write; all of it is removed."""
    with scratch_rows(store) as url:
        try:
            yield url
        finally:
            for what in ("named", "rows", "parts", "groups", "fold", "kept"):
                data.remove(f"{url}-{what}")


@contextmanager
def fitted_to(
    recipe: Recipe,
    parts: Parts,
    url: str,
    drawn: tuple[int | None, int],
    executor: Executor,
    number: int,
    calibrate: run.Calibrate | None = None,
    start: Other | None = None,
) -> Iterator[Posterior]:
    """Yield the fit to the training rows of a fold, which are written for as long as it takes."""
    fold, (most, seed) = parts.folds[number], drawn
    training, kept = f"{url}-fold", f"{url}-kept"
    try:
        parts.write(training, fold, most, seed, executor)
        # the fold's rows have no fill values left
        own = replace(recipe.changed(fill_values=None), of_part=True)
        with scaling.missing_on_purpose():  # which rows lack values is said of all folds at once
            posterior = fitted(own, *data.open_dataset(training), {}, kept, calibrate, start)
        yield posterior
    finally:
        for store in (training, kept):
            data.remove(store)


def fitted(
    recipe: Recipe,
    X: Any,
    y: Any,
    beside: Beside,
    keep: str,
    calibrate: run.Calibrate | None = None,
    start: Other | None = None,
) -> Posterior:
    """Return a fit whose rows are kept at a URL; SettingError if it has no spread."""
    try:
        fit = run.fitted(recipe, X, y, None, keep, beside, start, calibrate)
    except Stopped as error:
        error.outcome = None  # an estimator would take it for its own
        raise
    fit.posterior.refuse_spread(include_noise=True)
    return fit.posterior
