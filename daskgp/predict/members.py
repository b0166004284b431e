"""Experts' training rows, which predictions read back one expert at a time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from daskgp import data
from daskgp.arrays.backend import to_device, to_host
from daskgp.data import Rows
from daskgp.data.blocks import neighbours, prepared
from daskgp.data.partition import Span
from daskgp.data.stores import groups
from daskgp.errors import StoreError
from daskgp.models.scaling import Scaling
from daskgp.models.values import Block, Theta
from daskgp.predict.training_rows import cached


@dataclass(frozen=True, eq=False)
class Members:
    """Which rows belong to which expert.

    Parameters
    ----------
    rows : Rows
        Those of an expert one after another.
    starts : ndarray (M + 1,)
        First row of each expert, and the number of rows.
    """

    rows: Rows
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Rows of each expert."""
        edges = self.starts.tolist()
        return tuple(Span(a, b) for a, b in itertools.pairwise(edges))

    @cached_property
    def token(self) -> str:
        """Checksum of which rows belong to which expert, and of the first and last of them."""
        ends = {}
        for name, at in (("first", 0), ("last", max(len(self.rows) - 1, 0))):
            X, y = self.rows.read(at, at + 1)
            ends[name] = np.concatenate([X, y], axis=1).astype(np.float64)
        return groups.checksum({"starts": self.starts, **ends}, {})

    def check(self, usable: np.ndarray) -> None:
        """Raise StoreError unless rows of experts follow one another and end with the last.

        ``usable`` (M + 1,) counts those without missing values.
        """
        for starts in (self.starts, usable):
            whole = starts.ndim == 1 and starts.dtype.kind in "iu" and starts.size == len(self) + 1
            if not whole or len(self) < 1 or starts[0] != 0 or (starts[1:] < starts[:-1]).any():
                raise StoreError("where the rows of experts begin is garbled: fit again")
        if self.starts[-1] != len(self.rows):
            raise StoreError("training rows that the model reads back are gone: fit again")

    def arrays(self) -> dict[str, np.ndarray]:
        """What a model store keeps beside the rows."""
        return {"starts": self.starts}

    def describe(self) -> dict[str, str]:
        """For people."""
        sizes = np.diff(self.starts)
        return {"experts": f"{len(self)} of {sizes.min()} to {sizes.max()} rows"}

    def lies_at(self, url: str) -> bool:
        """Whether a URL is that of the store that the rows are read from."""
        return prepared.lies_at(self.rows, url)

    def write(self, url: str) -> None:
        """Write the rows to a new dataset store, about an expert a chunk."""
        prepared.copy(url, self.rows, int(np.diff(self.starts).max()))


def keep(rows: Rows, url: str, chunk_rows: int) -> Rows:
    """The rows copied to a store of their own; what is there is replaced."""
    data.remove(url)
    prepared.copy(url, rows, chunk_rows)
    return open_rows(url)


def open_rows(url: str) -> Rows:
    """Rows of a store that does not change any more."""
    return neighbours.held(data.rows_of(*data.dataset_arrays(url), None, False))


@dataclass(frozen=True, eq=False)
class Consulted:
    """Experts as a prediction consults them: the factors that were used last are held.

    ``token`` tells the fit from others.
    """

    model: Any
    theta: Theta
    state: Any
    scaling: Scaling
    members: Members
    token: str
    device: str

    def __len__(self) -> int:
        return len(self.members)

    def rows(self, i: int) -> Block:
        """Scaled rows of expert i."""
        span = self.members.spans[i]
        block = self.scaling.block(*self.members.rows.read(*span))
        starts = to_host(self.state.starts)
        if len(block.X) != starts[i + 1] - starts[i]:
            raise StoreError("training rows that the model reads back are gone: fit again")
        return Block(*(to_device(part, self.device) for part in block))

    def conditioned(self, *experts: int) -> Any:
        """What the model made of the rows of some experts together."""
        return cached((self.token, experts), partial(self._condition, experts), self.device)

    def _condition(self, experts: tuple[int, ...]) -> Any:
        blocks = [self.rows(i) for i in experts]
        return self.model.condition(self.theta, self.state, blocks)
