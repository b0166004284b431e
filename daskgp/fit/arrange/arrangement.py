"""Base of arrangements of rows, and what passes between them and a fit."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple, Protocol

from daskgp.data import Rows
from daskgp.fit.plan import Planned
from daskgp.fit.rounds import Rounds
from daskgp.models.scaling import Sums
from daskgp.models.values import Theta
from daskgp.posterior.posterior import Posterior
from daskgp.posterior.training_rows import TrainingRows
from daskgp.runtime.executor import Executor
from daskgp.typing import Path


class Home(NamedTuple):
    """URLs where rows lie that updates add to.

    ``own`` is a store that nobody else adds to, ``spare`` one for rows that replace those of a
    model store whose lock is held, and ``store`` the setting.
    """

    own: str | None = None
    spare: str | None = None
    store: Path | None = None


class SoFar(NamedTuple):
    """Knowledge that a fitted model has of its rows: how many there are, and of how many experts.

    ``stage`` are the rounds, without units, over those that predictions read back in blocks.
    """

    theta: Theta
    rows: int
    home: Home
    stage: Rounds | None = None
    units: int = 1


class Changed(NamedTuple):
    """Rounds over the units that an update changes.

    ``rest`` are rounds over all rows that predictions read back from now on, if there are any;
    ``own`` is the URL of their store if it is the model's own.  ``whole`` says that the units are
    all those that there are now.
    """

    stage: Rounds
    rest: Rounds | None = None
    own: str | None = None
    whole: bool = False


class Arrangement(Protocol):
    """Order and cut of rows into the units of a method: a value made from settings."""

    nearby: ClassVar[bool] = False
    """True if units are blocks of nearby rows: they come with the blocks that they are conditioned
    on, predictions read them back, and whole ones are forgotten."""

    @property
    def keeps_rows(self) -> bool:
        """True if predictions can read rows back."""
        return self.nearby

    def check(self, rows: Rows, name: str) -> None:
        """Raise InputError for rows that cannot be so arranged; ``name`` is the estimator's."""
        return

    def check_number(self, n: int) -> None:
        """Raise InputError for a number of usable rows that is too small."""
        return

    @abstractmethod
    def planned(self, rows: Rows, value: int | None = None) -> Planned:
        """Return the units as a fit will have them, on request with another value of its knob."""

    def arrange(self, stage: Rounds, theta: Theta, sums: Sums, keep: str) -> Rounds:
        """Return the rounds over rows so arranged; those in another order are kept at ``keep``."""
        return stage

    def in_order(self, stage: Rounds, theta: Theta, sums: Sums, url: str) -> Rows:
        """Return the rows in the order in which they are arranged, which may be at a URL."""
        return stage.rows

    def settle(self, stage: Rounds, theta: Theta) -> Rounds:
        """Return the rounds of the final summary, now that the hyper-parameters are known."""
        return stage

    def kept(self, stage: Rounds, theta: Theta) -> TrainingRows | None:
        """Return the training rows that predictions read back; None for none of them."""
        return None

    def so_far(self, posterior: Posterior, n: int, home: Home, executor: Executor) -> SoFar:
        """Return what a fitted model of n rows knows of them."""
        return SoFar(posterior.theta, n, home)

    def why_no_change(self, forget: bool) -> str | None:
        """Return why rows cannot be added or taken, with a remedy; None if they can."""
        return None

    def append(self, stage: Rounds, sums: Sums, so_far: SoFar, spill: str) -> Changed:
        """Return the units of more rows, which ``stage`` has as they are stored.

        ``spill`` is the URL of rows that live as long as the update.
        """
        return Changed(stage)

    def take(self, stage: Rounds, so_far: SoFar) -> Changed:
        """Return the units of rows that are taken out, which ``stage`` has as they are stored."""
        return Changed(stage)

    def oldest(self, rows: Rows, so_far: SoFar) -> int:
        """Return how many rows, from the first, can be taken out."""
        return len(rows)
