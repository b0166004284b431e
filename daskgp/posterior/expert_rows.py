"""Experts' training rows, which predictions read back one expert at a time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, cast

import numpy as np

from daskgp.arrays.backend import to_host
from daskgp.data import Rows
from daskgp.data.blocks import prepared
from daskgp.data.partition import Span
from daskgp.data.stores import groups
from daskgp.errors import StoreError
from daskgp.models.method import Conditioned
from daskgp.models.values import Block, move
from daskgp.posterior.training_rows import Fitted, Streamed, cached


@dataclass(frozen=True, eq=False)
class ExpertRows(Streamed):
    """Training rows of experts, and which of them belong to which expert.

    Parameters
    ----------
    rows : Rows
        Rows of all experts; those of one expert follow one another.
    starts : ndarray (M + 1,)
        First row of each expert, and the number of rows.
    """

    rows: Rows
    starts: np.ndarray

    fewer: ClassVar[str] = "more experts"

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Rows of each expert."""
        edges = self.starts.tolist()
        return tuple(Span(a, b) for a, b in itertools.pairwise(edges))

    @cached_property
    def token(self) -> str:
        """Checksum of which rows belong to which expert, and of the first and the last row."""
        ends = {}
        for name, row in (("first", 0), ("last", max(len(self.rows) - 1, 0))):
            X, y = self.rows.read(row, row + 1)
            ends[name] = np.concatenate([X, y], axis=1).astype(np.float64)
        return groups.checksum({"starts": self.starts, **ends}, {})

    def check(self, fit: Fitted) -> bool:
        """Raise StoreError unless experts' rows follow one another up to the last row."""
        state = fit.state
        for starts in (self.starts, state.starts):
            whole = starts.ndim == 1 and starts.dtype.kind in "iu" and starts.size == len(self) + 1
            if not whole or len(self) < 1 or starts[0] != 0 or (starts[1:] < starts[:-1]).any():
                raise StoreError("where the rows of experts begin is garbled: fit again")
        if self.starts[-1] != len(self.rows):
            raise StoreError("training rows that the model reads back are gone: fit again")
        crossed = getattr(fit.model, "needs_cross", False)
        shapes = {
            "weights": (int(state.starts[-1]), fit.scaling.y_scale.size),
            "beta": (len(self),) if crossed else (0,),
        }
        for name, shape in shapes.items():
            values = getattr(state, name)
            if values.shape != shape or values.dtype.kind != "f" or not np.isfinite(values).all():
                raise StoreError(f"its {name} has no {shape} finite numbers: fit again")
        return True  # a trial prediction would read the rows of all experts

    def near(self, fit: Fitted) -> Consulted:
        """Return the experts, which are consulted one after another."""
        return Consulted(fit, self)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that a model store keeps beside the rows."""
        return {"starts": self.starts}

    def describe(self, state: Any) -> dict[str, str]:
        """Return the number of experts and of their rows, as text."""
        sizes = np.diff(self.starts)
        return {"experts": f"{len(self)} of {sizes.min()} to {sizes.max()} rows"}

    def write(self, url: str) -> None:
        """Write the rows to a new dataset store, about one expert per chunk."""
        prepared.copy(url, self.rows, int(np.diff(self.starts).max()))


@dataclass(frozen=True, eq=False)
class Consulted:
    """Experts as a prediction consults them; the factors that were used last are cached."""

    fit: Fitted
    members: ExpertRows

    def __len__(self) -> int:
        return len(self.members)

    def rows(self, i: int) -> Block:
        """Return the scaled rows of expert i."""
        span = self.members.spans[i]
        block = self.fit.scaling.block(*self.members.rows.read(*span))
        starts = to_host(self.fit.state.starts)
        if len(block.X) != starts[i + 1] - starts[i]:
            raise StoreError("training rows that the model reads back are gone: fit again")
        return move(block, self.fit.device)

    def conditioned(self, *experts: int) -> Any:
        """Return the model's ``condition`` of the rows of some experts together."""
        key = self.fit.token, experts
        return cached(key, partial(self._condition, experts), self.fit.device)

    def _condition(self, experts: tuple[int, ...]) -> Any:
        blocks = [self.rows(i) for i in experts]
        model = cast(Conditioned, self.fit.model)
        return model.condition(self.fit.theta, self.fit.state, blocks)
