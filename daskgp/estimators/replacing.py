"""A model in a store that takes the new rows of a dataset store, in place."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sklearn.base import clone

from daskgp import data
from daskgp.data.rows import GIVEN, Beside, unnamed
from daskgp.data.stores import checkpoints, locks, models
from daskgp.data.stores.remote import is_pattern
from daskgp.errors import InputError, SettingError
from daskgp.estimators import saving
from daskgp.estimators.base import GaussianProcess
from daskgp.estimators.loading import load_one
from daskgp.fit import named
from daskgp.fit.arrange import Home
from daskgp.kernels import Kernel
from daskgp.kernels.categories import with_open_levels
from daskgp.output import store
from daskgp.runtime.executor import Executor
from daskgp.update import growing
from daskgp.update.changing import elsewhere

C = TypeVar("C", bound=growing.Growth | growing.Loss)


@dataclass(frozen=True, eq=False)
class Pending(Generic[C]):
    """A change of the model in a store, whose lock is held, by rows of a dataset store."""

    url: str
    gp: GaussianProcess
    change: C

    @property
    def pays_a_cluster(self) -> bool:
        """True if the rows are so much work that it pays to start a cluster."""
        return store.effort(self.change.fit.posterior, self.change.count) > store.SMALL

    def write(self, claim: locks.Claim, executor: Executor) -> None:
        """Add rows to the model or take some out, and write it in the place of the old."""
        gp, change = self.gp, self.change
        spare = models.next_rows(self.url)
        home = Home(
            models.rows_url(self.url, change.fit.rows_in),
            models.rows_url(self.url, spare),
            change.recipe.store,
        )
        change = replace(change, fit=replace(change.fit, home=home))
        fit = change.taken(executor, gp._more)
        kept = fit.posterior.rows
        if kept is not None and kept.lies_at(str(home.spare)):
            fit = replace(fit, rows_in=spare)
        gp._fitted = fit
        gp._fitted = saving.save_in_place(gp._model_to_save(), self.url, claim)

    def retrain(
        self: Pending[growing.Growth], claim: locks.Claim, executor: Executor
    ) -> GaussianProcess:
        """Train on all rows from where the model is, write the result in its place, return it."""
        growth: growing.Growth = self.change
        old = self.gp
        others = elsewhere(growth.fit, growth.dataset.url)
        if others:
            raise SettingError(
                "--retrain takes all rows from one dataset, but the model has also seen "
                f"{others}: put all rows into {growth.dataset.url} (daskgp convert --append), then "
                f"daskgp fit {growth.dataset.url} NEW.zarr --from {self.url}"
            )
        if old.optimizer is None:
            raise SettingError(
                "--retrain: the model keeps its hyper-parameters (optimizer=None): leave it out"
            )
        gp = unfitted(old).set_params(fill_values=growth.recipe.fill_values)
        rows_in = models.next_rows(self.url)
        place = checkpoints.Place(f"{self.url}/{models.CHECKPOINT}", claim, renew=True)
        keep = models.rows_url(self.url, rows_in)
        with growth.window() as (X, y, beside):
            gp._fit(X, y, place, keep, beside, old)
        saving.bring_rows(gp._fitted, keep)
        fit = growth.noted(gp._fitted, growth.start, len(growth.dataset.rows))
        seen, sources = [*growth.fit.seen, *fit.seen], growth.sources(executor, growth.start)
        gp._fitted = replace(fit, rows_in=rows_in, seen=seen, sources=sources)
        gp._fitted = saving.save_in_place(gp._model_to_save(), self.url, claim)
        return gp


def unfitted(gp: GaussianProcess) -> GaussianProcess:
    """Return an estimator with the settings of another, for rows whose categories may have more."""
    made: GaussianProcess = clone(gp)
    if isinstance(gp.kernel, Kernel):
        made.set_params(kernel=with_open_levels(gp.kernel))
    return made


def look(
    url: str,
    dataset: str,
    ignore_errors: bool = False,
    window: float | None = None,
    along: str | None = None,
    refit: bool = False,
    fill_values: Any = "auto",
) -> Pending[growing.Growth]:
    """Return what there is to do to update a model store, whose lock is held, from a dataset.

    ``refit`` it is for ``retrain``.  ``fill_values`` are those of the fit unless others are given.

    Raises
    ------
    StoreError
        If rows that the model has seen are no longer what they were.
    """
    gp = load_one(url)
    recipe = gp.recipe()
    if fill_values != "auto":
        recipe = recipe.changed(fill_values=fill_values)
    _refuse_table(gp, url, dataset)
    given = _rows(dataset, ignore_errors)
    growth = growing.look(recipe, gp._fitted, *given, window, along, refit)
    return _pending(url, gp, growth, dataset)


def look_back(url: str, dataset: str, ignore_errors: bool = False) -> Pending[growing.Loss]:
    """Return what there is to do to take rows of a dataset out of a model store, which is locked.

    Raises
    ------
    SettingError
        If the method cannot take out rows.
    StoreError
        If rows that the model has seen are no longer what they were.
    """
    gp = load_one(url)
    _refuse_table(gp, url, dataset)
    loss = growing.look_back(gp.recipe(), gp._fitted, *_rows(dataset, ignore_errors))
    return _pending(url, gp, loss, dataset)


def _refuse_table(gp: GaussianProcess, url: str, source: str) -> None:
    """Raise InputError for a table or a grid, with the command that makes a store of it."""
    if not named.is_table_or_grid(source):
        return
    end = next((end for end in data.CONVERTIBLE if source.lower().endswith(end)), None)
    made = "NEW.zarr" if end is None or is_pattern(source) else f"{source[: -len(end)]}.zarr"
    posterior = gp.solved_
    names = posterior.feature_names
    like = () if names == unnamed(len(names)) else ("--like", str(url))
    targets = "--target", ",".join(posterior.target_names)
    command = shlex.join(("daskgp", "convert", source, made, *like, *targets))
    raise InputError(f"{source} is not a dataset store: convert it first: {command}")


def _rows(dataset: str, ignore_errors: bool) -> tuple[Any, Any, Beside]:
    """Return X, y and what is not taken beside it of a dataset store."""
    return *data.open_dataset(dataset), dict.fromkeys(GIVEN, False) if ignore_errors else {}


def _pending(url: str, gp: GaussianProcess, change: C | None, dataset: str) -> Pending[C]:
    if change is None:
        raise SettingError(
            f"{dataset} is a single file: give a store that is a folder, or is in a bucket"
        )
    return Pending(str(url).rstrip("/"), gp, change)
