"""A fitted method, and what is known of how it came about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from daskgp.data.seen import Source
from daskgp.data.stores import models
from daskgp.fit.arrange import Home
from daskgp.posterior.posterior import Posterior

NOWHERE = Home()


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted method, and what is known of how it came about.

    Attributes
    ----------
    posterior : Posterior
    n : int
        Number of usable rows.
    objective : float, optional
        Its value for all rows, if the method has one.
    history : list of dict
        Iterations of training.
    errors : ndarray (k,), optional
        Standard errors of the logarithms of the hyper-parameters.
    totals : NamedTuple, optional
        Sums over rows that the fit follows from, or a function that reads them.
    seen : list of dict
        Rows that were fitted, added and taken, in order.
    sources : tuple of Source
        Dataset stores of which the first rows were seen, with marks by which new ones are told; or
        a function that reads them.
    home : Home
        Where rows lie that updates add to.
    rows_in : str
        Name in its model store of the rows that predictions read back.
    told : bool
        Whether a warning has told that a column that the model leaves out now varies.
    left : object
        What a later call goes on from.
    """

    posterior: Posterior
    n: int
    objective: float | None
    history: list[dict[str, Any]]
    errors: np.ndarray | None = None
    totals: Any = None
    seen: list[dict[str, Any]] = field(default_factory=list)
    sources: tuple[Source, ...] | Callable[[], tuple[Source, ...]] = ()
    home: Home = NOWHERE
    rows_in: str = models.ROWS
    told: bool = False
    left: Any = None

    def of(self, posterior: Posterior) -> Self:
        """Return the same of another posterior."""
        return replace(self, posterior=posterior)

    def read(self) -> Self:
        """Return the same with what was still to be read from a store."""
        totals = self.totals() if callable(self.totals) else self.totals
        return replace(self, totals=totals, sources=self.known_sources)

    @property
    def known_sources(self) -> tuple[Source, ...]:
        """Dataset stores of which rows were seen."""
        return self.sources() if callable(self.sources) else self.sources
