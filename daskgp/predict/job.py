"""A prediction into a store, and what every kind of input has to say for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from daskgp.data.map_store import Outputs as Outputs
from daskgp.data.stores import locks
from daskgp.errors import StoreError
from daskgp.posterior.posterior import Posterior
from daskgp.runtime.executor import Executor

PART_ROWS = 4_096
"""Rows per task of a local method, which factors many blocks for them."""


class Written(NamedTuple):
    """Number of rows, or cells of a grid, that a run predicted, and of those done already."""

    rows: int
    skipped: int


class ChangedError(StoreError):
    """Predictions are of other rows than the input has, which resuming does not mend."""


class Job(NamedTuple):
    """A prediction into a store.

    ``source`` is the URL of a dataset store or of a grid, or an xarray object.  ``model`` is the
    URL of the model's store, to be noted in the output.  ``verify`` reads all of the input that is
    done already, not only what was written since.  ``mask`` and all ``outputs`` but samples are for
    grids; ``windows`` returns what samples of a local method are drawn from.
    """

    posterior: Posterior
    source: Any
    output: str
    resume: bool = False
    model: str | None = None
    verify: bool = False
    mask: str | None = None
    outputs: Outputs = Outputs()
    windows: Callable[[Executor], Any] | None = None


class Work(Protocol):
    """The work of a prediction into a store: rows of a dataset store, or cells of a grid."""

    @property
    def inputs(self) -> Any:
        """The input as its prediction store needs it."""

    @property
    def chunk_rows(self) -> int:
        """Rows, or cells, of a chunk."""

    def check_visible(self, executor: Executor, remedy: str) -> None:
        """Raise InputError unless every worker sees the input."""

    def unchanged(self, target: Any) -> bool:
        """Return whether all of the input is done and was not written since."""

    def check_done(self, target: Any, executor: Executor, verify: bool) -> Any:
        """Compare what was written since it was predicted; StoreError if it has changed.

        Return new marks of the chunks that are done, None where they have them already.
        """

    def write_missing(self, target: Any, executor: Executor, claim: locks.Claim) -> Written:
        """Predict what is not done, and return how much that was."""
