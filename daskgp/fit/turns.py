"""Rows of a fit that takes turns, and arrays beside them that each turn writes anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from daskgp import data
from daskgp.data import writers
from daskgp.data.partition import Span, default_block_rows
from daskgp.data.rows import is_zarr
from daskgp.data.stores import groups
from daskgp.fit.scratch import ordered
from daskgp.runtime.executor import Executor, map_all


@dataclass(frozen=True, eq=False)
class RowsInTurns:
    """Rows, and arrays beside them: in memory, or in stores beside a URL.

    Attributes
    ----------
    rows : data.Rows
    executor : Executor
    keep : str
        The URL.
    """

    rows: data.Rows
    executor: Executor
    keep: str

    kinds: ClassVar[Mapping[str, int]] = {}
    """Kinds of arrays, and the most turns that write them."""

    @property
    def times(self) -> int:
        """Rows of an array for each of the rows."""
        return 1

    def place(self, number: int) -> str:
        """Return the URL of rows that the fit of a turn keeps, where nothing is any more."""
        place = f"{self.keep}-{number % 2}"
        self._remove(place)
        return place

    def clear(self) -> None:
        """Remove what is not kept beyond the turns."""
        for place in (f"{self.keep}-0", f"{self.keep}-1"):
            self._remove(place)
        for kind, turns in self.kinds.items():
            for number in range(turns):
                data.remove(self._url(kind, number))

    def arrays(
        self,
        kind: str,
        number: int,
        task: Callable[..., Any],
        shapes: Mapping[str, tuple[int, ...]],
        shared: tuple[Any, ...] = (),
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return arrays of a turn by their names, and what else a task returns for each span.

        A task returns the rows of each array in their order, and then something else.  Arrays of
        the turn before the last one are removed.
        """
        spans = self.spans
        if not is_zarr(self.rows.X):
            found = map_all(partial(_given, task), spans, self.executor, kind, shared)
            parts = zip(shapes.items(), zip(*found, strict=True), strict=False)
            own = {name: np.concatenate(part).reshape(shape) for (name, shape), part in parts}
            return own, [one[-1] for one in found]
        url = self._url(kind, number)
        for old in (self._url(kind, number - 2), url):
            data.remove(old)
        with groups.creating(url, "temporary dataset", writers.marks()) as group:
            arrays = {
                name: writers.create_rows(group, name, shape, self.times * self._step, np.float64)
                for name, shape in shapes.items()
            }
            keeping = partial(_kept, task, [*arrays.values()])
            found = map_all(keeping, spans, self.executor, kind, shared)
            group.attrs["complete"] = True
        return arrays, found

    @property
    def spans(self) -> list[Span]:
        """Spans of rows of an array, each with all of those of a row."""
        n, times, step = len(self.rows), self.times, self._step
        return [Span(times * i, times * min(i + step, n)) for i in range(0, n, step)]

    @property
    def _step(self) -> int:
        """Rows of a task, which writes a chunk of each array."""
        step, X = default_block_rows(len(self.rows)), self.rows.X
        return min(step, groups.row_step(X)) if is_zarr(X) else step

    def _url(self, kind: str, number: int) -> str:
        """Return the URL of arrays, which is another one each time as chunks are cached by it."""
        return f"{self.keep}-{kind}-{number}"

    def _remove(self, place: str) -> None:
        for url in (place, ordered(place)):
            data.remove(url)


def _given(task: Callable[..., Any], span: Span, *shared: Any) -> list[Any]:
    return [task(span, *shared)]


def _kept(task: Callable[..., Any], arrays: Any, span: Span, *shared: Any) -> list[Any]:
    """Write the rows of a span, and return what else its task gives."""
    *values, rest = task(span, *shared)
    for array, own in zip(arrays, values, strict=True):
        array[slice(*span)] = own.reshape(len(own), *array.shape[1:])
    return [rest]
