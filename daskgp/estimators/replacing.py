"""A model in a store that takes the new rows of a dataset store, in place."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from daskgp import data
from daskgp.data import seen
from daskgp.data.stores import checkpoints, locks, models
from daskgp.errors import SettingError, StoreError
from daskgp.estimators import saving
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.loading import load
from daskgp.estimators.updating import seen_by
from daskgp.predict import to_store
from daskgp.runtime.executor import Executor

logger = logging.getLogger("daskgp")

HERE = Executor(None)
"""This process, where little work is done."""


@dataclass(frozen=True, eq=False)
class Pending:
    """An update of a model store, whose lock is held, from a dataset store.

    Attributes
    ----------
    url : str
        The model store.
    estimator : GaussianProcess
        The model in it.
    X, y : dask arrays
        All rows of the dataset.
    noise : tuple
        Their ``y_variance`` and ``sample_weight``, False for none.
    rows : Rows
        The same rows, as they are stored.
    marks : ndarray (chunks,)
        Marks of their chunks, before any was read.
    source : Source, optional
        What the model has seen of the dataset; None for nothing.
    """

    url: str
    estimator: GaussianProcess
    X: Any
    y: Any
    noise: tuple[Any, Any]
    rows: data.Rows
    marks: np.ndarray
    source: seen.Source | None

    @property
    def first(self) -> int:
        """Number of rows that the model has seen already."""
        return 0 if self.source is None else self.source.rows

    @property
    def new(self) -> int:
        """Number of rows that it has not seen."""
        return len(self.rows) - self.first

    @property
    def pays_a_cluster(self) -> bool:
        """True if the new rows are so much work that it pays to start a cluster."""
        return to_store.effort(self.estimator.solved_, self.new) > to_store.SMALL

    def write(self, claim: locks.Claim, executor: Executor) -> GaussianProcess:
        """Add the new rows to the model, write it in the place of the old one and return it."""
        gp, rows = self.estimator, slice(self.first, None)
        noise = [part if part is False else part[rows] for part in self.noise]
        gp._own_rows, gp._in_place = models.rows_url(self.url, gp._rows_in), True
        gp._take(self.X[rows], self.y[rows], *noise)
        gp._seen[-1] |= {"store": self._address, "span": [self.first, len(self.rows)]}
        self._finish(gp, claim, executor)
        return gp

    def retrain(self, claim: locks.Claim, executor: Executor) -> GaussianProcess:
        """Train on all rows from where the model is, write the result in its place, return it."""
        others = {note.get("store") for note in seen_by(self.estimator)} - {self._address}
        if others:
            names = ", ".join(sorted(str(url or "rows given in Python") for url in others))
            raise SettingError(
                f"--retrain takes all rows from one dataset, the model has also seen {names}: put "
                "them together (daskgp convert --append), and fit --from this model"
            )
        if self.estimator.optimizer is None:
            raise SettingError(
                "--retrain: the model keeps its hyper-parameters (optimizer=None): leave it out"
            )
        gp: GaussianProcess = clone(self.estimator)
        gp._rows_in = models.next_rows(self.url)
        place = checkpoints.Place(f"{self.url}/{models.CHECKPOINT}", claim)
        keep = models.rows_url(self.url, gp._rows_in)
        gp._fit(self.X, self.y, place, keep, self.noise, self.estimator)
        saving.bring_rows(gp, keep)
        gp._seen = [*seen_by(self.estimator), *gp._seen]
        self._finish(gp, claim, executor)
        return gp

    @property
    def _address(self) -> str | None:
        return seen.address_of(self.rows)

    def _finish(self, gp: GaussianProcess, claim: locks.Claim, executor: Executor) -> None:
        url = str(self._address)
        known = [one for one in self.estimator._sources if one.url != url]
        own = seen.source_of(url, self.rows, self.marks, executor, self.source)
        gp._sources = (*known, own)
        saving.save_in_place(gp, self.url, claim)


def look(url: str, dataset: str, ignore_errors: bool = False) -> Pending:
    """Return what there is to do to update a model store, whose lock is held, from a dataset.

    Raises
    ------
    StoreError
        If rows that the model has seen are no longer what they were.
    """
    estimator = load(url)
    X, y = data.open_dataset(dataset)
    rows = data.rows_of(X, y, None, True)
    address = str(seen.address_of(rows))
    marks = seen.marks_of(address, rows)
    source = next((one for one in estimator._sources if one.url == address), None)
    if source is not None:
        source.check(rows, marks, HERE)
    elif any(note.get("store") == address for note in seen_by(estimator)):
        raise StoreError(
            f"the model {url} has seen rows of {dataset}, but in Python, which keeps no marks of "
            "them: fit it with daskgp fit, or give the new rows as a store of their own"
        )
    beside = {} if ignore_errors else data.noise_beside(y)
    lazy = {name: data.lazily(array) for name, array in beside.items()}
    noise = lazy.get("y_variance", False), lazy.get("weight", False)
    return Pending(str(url).rstrip("/"), estimator, X, y, noise, rows, marks, source)


def remembering(X: Any, y: Any) -> Callable[[GaussianProcess], None]:
    """Return a function that notes in an estimator, once it is fitted, which rows it has seen.

    Without marks of its chunks, rows that a dataset store gains could not be told from those that
    it has.  They are taken now, before any chunk is read.
    """
    rows = data.rows_of(X, y, None, True)
    url = seen.address_of(rows)
    marks = None if url is None else seen.marks_of(url, rows)

    def note(estimator: GaussianProcess) -> None:
        if url is not None and marks is not None:
            estimator._sources = (seen.source_of(url, rows, marks, HERE),)

    return note
