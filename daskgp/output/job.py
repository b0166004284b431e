"""A prediction into a store, and what every kind of input has to say for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from numbers import Real
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from daskgp.checks import shown, whole
from daskgp.data import gridded, grids
from daskgp.data.encoding import AS_GIVEN, Encoding
from daskgp.data.prediction_store import Outputs
from daskgp.data.stores import transactions
from daskgp.data.stores.remote import Place
from daskgp.errors import SettingError, StoreError
from daskgp.models.pathwise import FREQUENCIES
from daskgp.posterior.posterior import Posterior
from daskgp.predict import observed, paths
from daskgp.predict.lazy import check_levels, thresholds
from daskgp.runtime.executor import Executor

logger: logging.Logger = logging.getLogger("daskgp")

DEFAULTS = {"trials": 1.0, "exposure": 1.0, "offset": 0.0}
"""What predictions take for a number beside y that is not given."""


class Written(NamedTuple):
    """Number of rows, or cells of a grid, that a run predicted, and of those that it left out.

    These are done already, or in a csv lack a feature.
    """

    rows: int
    skipped: int


class ChangedError(StoreError):
    """Predictions are of other rows than the input has, which resuming does not mend."""


class Job(NamedTuple):
    """A prediction into a store.

    ``source`` is the URL of a dataset store or of a grid, or an xarray object; ``output`` is a URL,
    or a group in a session of Icechunk.  ``model`` is the URL of the model's store, to be noted in
    the output, by default where it was saved to or loaded from.  ``verify`` reads all of the input
    that is done already, not only what was written since.  ``mask`` and all ``outputs`` but samples
    are for grids, or quantiles and probabilities for a csv; ``windows`` returns what samples of a
    local method are drawn from.  Messages name ``made_of``, the csv that the source was made of, in
    its place.  ``beside`` are numbers that a likelihood takes, or names of columns of the source,
    and ``notes`` say which ones rows of the fit had; ``encoding`` is that of a map.
    """

    posterior: Posterior
    source: Any
    output: Place
    resume: bool = False
    model: str | None = None
    verify: bool = False
    mask: str | None = None
    outputs: Outputs = Outputs()
    windows: Callable[[Executor], Any] | None = None
    made_of: str | None = None
    beside: Mapping[str, float | str] = MappingProxyType({})
    encoding: Encoding = AS_GIVEN
    notes: Sequence[Mapping[str, Any]] = ()

    def grid(self) -> AbstractContextManager[gridded.Gridded]:
        """Open the grid that is predicted; InputError unless it can be."""
        known, beside = self.posterior, tuple(self.columns.values())
        units, others = (known.wanted_units, known.trained_on), known.unseen == "new"
        own = (
            known.feature_names,
            self.mask,
            *units,
            beside,
            known.categories,
            others,
            known.reference,
        )
        return gridded.opened(self.source, *own)

    @property
    def model_url(self) -> str | None:
        """URL of the model's store; None of one that was not saved."""
        own = self.posterior.origin
        return self.model or (None if own is None else own.url)

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the source that a likelihood takes, by what it takes them for."""
        return {name: own for name, own in self.beside.items() if isinstance(own, str)}

    def warn_of_rates(self, present: Collection[str]) -> None:
        """Warn that rates are predicted where rows have ``present`` what those of the fit had."""
        for name, default in DEFAULTS.items():
            taken = [note for note in self.notes if name in note.get("given", ())]
            columns = [note.get("columns", {}).get(name, name) for note in taken]
            own = next((one for one in (*columns, name) if taken and one in present), None)
            if own is not None and name not in self.beside:
                logger.warning(
                    "%s is not given, so predictions are for %s: give %s=%r (--%s %s) for that of "
                    "each row, or %s=%g",
                    *(name, f"{name} {default:g}", name, own, name, own, name, default),
                )

    def sample_paths(self, executor: Executor) -> paths.Paths | None:
        """Return the sample paths that are written; None without any."""
        if self.outputs.samples is None:
            return None
        assert self.windows is not None
        number, seed = self.outputs.samples
        windows = partial(self.windows, executor)
        return paths.draw(self.posterior, number, seed, None, executor, windows)

    def effort_of_paths(self, rows: int) -> float:
        """Return about how many floating-point operations sample paths at some rows take."""
        number, _ = self.outputs.samples or (0, 0)
        return 4.0 * rows * number * FREQUENCIES


def place_of(output: Any, group: str | None = None) -> Place:
    """Return an address as text, or the group of a session of Icechunk that predictions go to."""
    if transactions.is_session(output):
        return transactions.in_session(output, group)
    if not isinstance(output, str | os.PathLike):
        raise SettingError(
            f"output is {shown(output)}: give a path, a URL or a writable session of Icechunk"
        )
    if group is not None:
        raise SettingError(
            "group is for a session of Icechunk: put it into the address, such as "
            "maps.icechunk/group"
        )
    return str(output)


def source_of(source: Any, posterior: Posterior) -> Any:
    """Return what is predicted into a store: of a DataTree the only node with the features."""
    return grids.only_node(source, posterior.feature_names) if grids.is_tree(source) else source


def checked_beside(posterior: Posterior, **given: Any) -> dict[str, float | str]:
    """Return numbers, or names of columns, that the likelihood of a posterior takes."""
    found: dict[str, float | str] = {}
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | Real):
            raise SettingError(
                f"{name}={shown(value)}: give a number, or the name of a column or variable of the "
                "source"
            )
        found[name] = value if isinstance(value, str) else float(value)
    numbers = {name: np.zeros(0) if isinstance(own, str) else own for name, own in found.items()}
    if found:
        observed.checked(posterior, numbers, True)
    return found


def wanted(
    posterior: Posterior,
    variance: bool,
    quantiles: Sequence[Any] | None,
    exceedance: Any,
    n_samples: int | None = None,
    random_state: int | None = None,
) -> Outputs:
    """Return the arrays that a map gets, checked."""
    levels = () if quantiles is None else check_levels(quantiles)
    limit, samples = None, None
    if exceedance is not None:
        limit = thresholds(posterior, exceedance, "exceedance")
    if n_samples is not None:
        seed = 0 if random_state is None else whole("random_state", random_state, 0)
        samples = whole("n_samples", n_samples, 1), seed
    elif random_state is not None:
        raise SettingError("random_state belongs to n_samples: give both, or neither")
    return Outputs(variance, levels, limit, samples)
