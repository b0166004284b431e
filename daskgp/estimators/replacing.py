"""A model in a store that takes the new rows of a dataset store, in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sklearn.base import clone

from daskgp import data
from daskgp.data.stores import checkpoints, locks, models
from daskgp.errors import SettingError
from daskgp.estimators import growing, saving
from daskgp.estimators.loading import load
from daskgp.estimators.updating import elsewhere, seen_by
from daskgp.posterior.neighbour_rows import Nearby
from daskgp.runtime.executor import Executor

if TYPE_CHECKING:
    from daskgp.estimators.base import GaussianProcess


@dataclass(frozen=True, eq=False)
class Pending:
    """An update of the model in a store, whose lock is held, by what a dataset store has for it."""

    url: str
    growth: growing.Growth

    def write(self, claim: locks.Claim, executor: Executor) -> None:
        """Add new rows to the model, take out old ones, and write it in the place of the old."""
        gp = self.growth.gp
        spare = models.next_rows(self.url)
        gp._own_rows = models.rows_url(self.url, gp._rows_in)
        gp._spare_rows = models.rows_url(self.url, spare)
        self.growth.take(executor)
        kept = gp.solved_.rows
        if isinstance(kept, Nearby) and kept.lies_at(gp._spare_rows):
            gp._rows_in = spare
        saving.save_in_place(gp, self.url, claim)

    def retrain(self, claim: locks.Claim, executor: Executor) -> GaussianProcess:
        """Train on all rows from where the model is, write the result in its place, return it."""
        growth, old = self.growth, self.growth.gp
        others = elsewhere(old, growth.dataset.url)
        if others:
            raise SettingError(
                "--retrain takes all rows from one dataset, but the model has also seen "
                f"{others}: put them together (daskgp convert --append), and fit --from this model"
            )
        if old.optimizer is None:
            raise SettingError(
                "--retrain: the model keeps its hyper-parameters (optimizer=None): leave it out"
            )
        gp: GaussianProcess = clone(old)
        gp._rows_in = models.next_rows(self.url)
        place = checkpoints.Place(f"{self.url}/{models.CHECKPOINT}", claim, renew=True)
        keep = models.rows_url(self.url, gp._rows_in)
        with growth.window() as (X, y, noise):
            gp._fit(X, y, place, keep, noise, old)
        saving.bring_rows(gp, keep)
        growth.note(gp, growth.start, len(growth.dataset.rows))
        gp._seen = [*seen_by(old), *gp._seen]
        gp._sources = growth.sources(executor, growth.start)
        saving.save_in_place(gp, self.url, claim)
        return gp


def look(
    url: str,
    dataset: str,
    ignore_errors: bool = False,
    window: float | None = None,
    along: str | None = None,
    refit: bool = False,
) -> Pending:
    """Return what there is to do to update a model store, whose lock is held, from a dataset.

    ``refit`` it is for ``retrain``.

    Raises
    ------
    StoreError
        If rows that the model has seen are no longer what they were.
    """
    gp = load(url)
    noise = (False, False) if ignore_errors else (None, None)
    growth = growing.look(gp, *data.open_dataset(dataset), noise, window, along, refit)
    if growth is None:
        raise SettingError(
            f"{dataset} is a single file: give a store that is a folder, or is in a bucket"
        )
    return Pending(str(url).rstrip("/"), growth)
