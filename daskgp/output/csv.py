"""Predictions of the rows of a csv, beside them in another csv."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from daskgp.checks import shown
from daskgp.data import CONVERTIBLE, moments
from daskgp.data.convert import sources, tables
from daskgp.data.convert.convert import convert_for
from daskgp.data.convert.table import OF_MODEL, ColumnError, check_known
from daskgp.data.encoding import AS_GIVEN
from daskgp.data.prediction_store import Outputs
from daskgp.data.stores import groups, remote
from daskgp.errors import InputError, SettingError
from daskgp.output.job import Job, Written
from daskgp.runtime.progress import ShowProgress

logger: logging.Logger = logging.getLogger("daskgp")

ARRAYS = ("mean", "variance")
ENDINGS = tuple(end for end in CONVERTIBLE if end.startswith(".csv"))


def is_csv(url: Any) -> bool:
    """Return whether a path or URL is that of a csv."""
    return isinstance(url, str | os.PathLike) and str(url).lower().endswith(ENDINGS)


def refuse_made(output: str) -> None:
    """Raise SettingError if a csv is asked for in the place of a map."""
    if is_csv(output):
        raise SettingError(
            f"{output} would hold a map: name a store, such as map.zarr; a csv holds the "
            "predictions of the rows of another csv"
        )


@contextmanager
def stored(job: Job, url: str, progress: ShowProgress = "auto") -> Iterator[Job]:
    """Yield the prediction of the rows of a csv as one of a dataset store at a URL, into a store.

    On leaving, the output gets the rows as they are in the source and, for every target, the mean
    and the standard deviation of a new observation; it appears all at once.

    Raises
    ------
    InputError
        If the source is no csv, lacks a feature, or has a column with a name of a new one.
    SettingError
        If more is asked for than a csv holds, or the output is not on this machine.
    StoreError
        If the output exists or cannot be written.
    """
    source, output = str(job.source), str(job.output).removeprefix("file://")
    _check(job, source, output)
    posterior = job.posterior
    wanted = job.outputs
    whats = ["mean", "std", *(f"q{level:g}" for level in wanted.quantiles)]
    whats += [] if wanted.exceedance is None else ["exceedance"]
    if len(whats) > len(ARRAYS):
        posterior.outer(True).check("quantiles and probabilities")
    names = [moments.name_of(what, name) for name in posterior.target_names for what in whats]
    with sources.open_table(source, ()):  # it is there and can be read
        header = tables.header(source)
    taken = sorted({*names} & {*header})
    if taken:
        raise InputError(f"{source} has a column {taken[0]!r} already: rename or remove it first")
    check_known(OF_MODEL, posterior.feature_names, header, source)
    twice = next((name for name in posterior.feature_names if header.count(name) > 1), None)
    if twice:
        raise InputError(f"{source} has two columns {twice!r}: rename or remove one of them")
    job.warn_of_rates(header)
    try:
        own: dict[str, Any] = {"features": posterior.feature_names}
        own["geographic"] = posterior.geographic or False
        own |= {"levels": posterior.categories, "takes_new": posterior.unseen == "new"}
        own |= job.columns
        units = dict(zip(posterior.feature_names, posterior.feature_units, strict=False))
        rows = convert_for(units, source, url, **own, progress=progress).rows
    except ColumnError as error:
        raise InputError(_needed(error, units)) from None
    inner = job._replace(source=url, output=f"{url}-predictions", made_of=source)
    try:
        yield inner
        columns = partial(_columns, groups.open_group(inner.output, "predictions"), wanted)
        tables.write_beside(source, output, [*header, *names], columns, rows)
    except Exception as error:
        error.__notes__ = []  # on how to resume, which a csv does not
        raise
    finally:
        groups.remove(inner.output)


def _needed(error: ColumnError, units: Mapping[str, str]) -> str:
    """Return what is wrong with columns, and what a model with such units needs there."""
    names, seen, _ = error.args
    if all(" since " in units.get(name, "") for name in names):
        return f"{seen}: the model needs times there, written as 2021-03-04T05:06:07"
    return f"{seen}: the model needs numbers or times there"


def without_prediction(job: Job, written: Written) -> Written:
    """Return what was written, of a csv without rows that have no prediction; warn of these."""
    if job.made_of is None:
        return written
    mean = groups.array_of(groups.open_group(job.output, "predictions"), "mean")
    step, axes, empty = groups.row_step(mean), tuple(range(1, mean.ndim)), 0
    for start in range(0, mean.shape[0], step):
        empty += int(np.isnan(np.asarray(mean[start : start + step])).all(axis=axes).sum())
    if empty:
        have = "1 row has" if empty == 1 else f"{empty:,} rows have"
        what = " or ".join(["a feature", *job.columns])
        logger.warning("%s no prediction, because %s is missing or infinite", have, what)
    return Written(written.rows - empty, empty)


def _columns(group: Any, wanted: Outputs, part: slice) -> np.ndarray:
    """Return the new columns (n, p, k) of some rows of a prediction store."""
    mean, variance = (np.asarray(groups.array_of(group, name)[part]) for name in ARRAYS)
    flat = mean.reshape(len(mean), -1)
    found = [flat, np.sqrt(variance).reshape(flat.shape)]
    if wanted.quantiles:
        levels = np.asarray(groups.array_of(group, "quantiles")[part])
        found += [levels[..., i].reshape(flat.shape) for i in range(len(wanted.quantiles))]
    if wanted.exceedance is not None:
        found.append(np.asarray(groups.array_of(group, "exceedance")[part]).reshape(flat.shape))
    return np.stack(found, axis=-1)


def _check(job: Job, source: str, output: str) -> None:
    if not is_csv(source):
        given = isinstance(job.source, str | os.PathLike)
        what = source if given else f"the {type(job.source).__name__}"
        raise InputError(
            f"{what} is not a csv, {output} is: name a store for the predictions, such as "
            "predictions.zarr"
        )
    if remote.is_pattern(source) and not groups.exists(source):
        raise InputError(
            f"{source} may be several files: predict one at a time, or convert them and predict "
            "into a store"
        )
    if job.mask:
        raise SettingError(
            f"mask={shown(job.mask)} leaves out rows and {output} has all of {source}: convert "
            f"{source} with the mask and predict into a store"
        )
    columns = Outputs(quantiles=job.outputs.quantiles, exceedance=job.outputs.exceedance)
    odd = job.outputs != columns or job.encoding != AS_GIVEN
    if job.resume or job.verify or odd:
        raise SettingError(
            f"{output} holds mean and standard deviation, quantiles and exceedance, and is written "
            f"whole: convert {source} and predict into a store to resume, verify or have samples; "
            "the rest is for grids"
        )
    job.posterior.refuse_spread(include_noise=True)
    if "://" in output:
        raise SettingError(f"{output} is not on this machine: name a local file, and copy it")
    groups.refuse_file(output, "the csv")
