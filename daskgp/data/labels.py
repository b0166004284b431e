"""Labels of rows, as the indexes of data frames have them: all of pandas, of Dask some."""

from __future__ import annotations

from typing import Any, NamedTuple

import dask
import numpy as np
import zict

from daskgp import checks

MOST = 100_000
"""Labels of a Dask data frame that are compared, of all its partitions."""
LEAST = 32
"""Labels of each partition, however many there are."""
FRAMES = 8
"""Dask data frames whose labels are kept, each of which is given several times to a fit."""


class Labels(NamedTuple):
    """Labels of some rows, with the numbers of these.

    Those of pandas are all there.  Of Dask they are those with the smallest hashes, so that those
    of two data frames are labels of the same rows.
    """

    index: Any
    """Index of pandas."""
    rows: np.ndarray
    lengths: tuple[int, ...]
    """Rows of each partition."""
    limit: int | None = None
    """Hash from which labels are left out, None where all are there."""

    @property
    def n(self) -> int:
        """Number of all rows."""
        return sum(self.lengths)

    def below(self, limit: int | None) -> Labels:
        """Return the labels whose hashes are below a limit."""
        if limit is None or limit == self.limit:
            return self
        keep = _hashes(self.index) < limit
        return self._replace(index=self.index[keep], rows=self.rows[keep], limit=limit)

    def equals(self, other: Labels) -> bool:
        """Return whether the same rows have the same labels."""
        return np.array_equal(self.rows, other.rows) and bool(self.index.equals(other.index))

    @property
    def ends(self) -> tuple[int, int] | None:
        """Numbers of the first and last rows where labels count all rows up or down, else None."""
        numbers = self.index.to_numpy()
        if numbers.dtype.kind not in "iu" or not len(numbers):
            return None
        numbers = numbers.astype(np.int64)
        for step in (1, -1):
            first = numbers - step * self.rows
            if (first == first[0]).all():
                return int(first[0]), int(first[0]) + step * (self.n - 1)
        return None

    @property
    def names_rows(self) -> bool:
        """Tell if labels belong to their rows: times, texts or whole numbers without repeats.

        Numbers from 0 on, which an object gets that has no labels, do not.
        """
        types = ("datetime64", "date", "period", "string", "integer")
        known = self.index.inferred_type in types and self.ends != (0, self.n - 1)
        return known and bool(self.index.is_unique)


def paired(one: Labels, other: Labels) -> tuple[Labels, Labels]:
    """Return labels of two objects that both have, by their hashes."""
    limits = [labels.limit for labels in (one, other) if labels.limit is not None]
    limit = min(limits, default=None)
    return one.below(limit), other.below(limit)


def is_lazy(x: Any) -> bool:
    """Return whether an object is a data frame or a series of Dask."""
    return type(x).__module__.split(".")[0] == "dask" and hasattr(x, "to_dask_array")


def labels_of(x: Any) -> Labels | None:
    """Return the labels of rows of an object of pandas or Dask, None for all else.

    A pass over the partitions of Dask computes them, once for each data frame.
    """
    index = checks.index_of(x)
    if index is not None:
        return Labels(index, np.arange(len(index)), (len(index),))
    return _labels_of_dask(x) if is_lazy(x) and hasattr(x, "index") else None


def label_at(x: Any, row: int) -> Any:
    """Return the label of a row of an object of pandas or Dask."""
    if not is_lazy(x):
        return x.index[row]
    ends = np.cumsum(_labels_of_dask(x).lengths)
    part = int(np.searchsorted(ends, row, side="right"))
    own = _parts(x)[part].compute()
    return own[row - int(ends[part]) + len(own)]


def _parts(x: Any) -> list[Any]:
    """Return the indexes of partitions of Dask, without the columns, as delayed ones."""
    parts: list[Any] = x.index.optimize(fuse=False).to_delayed(optimize_graph=False)
    return parts


_known: Any = zict.LRU(FRAMES, {})


def _labels_of_dask(x: Any) -> Labels:
    if x._name not in _known:
        parts = _parts(x)
        most = max(LEAST, MOST // max(1, len(parts)))
        _known[x._name] = _joined(dask.compute(*(_drawn(part, most) for part in parts)))
    labels: Labels = _known[x._name]
    return labels


@dask.delayed
def _drawn(index: Any, most: int) -> Labels:
    """Return at most so many labels of a partition, those with the smallest hashes."""
    labels = Labels(index, np.arange(len(index)), (len(index),))
    if len(index) <= most:
        return labels
    hashes = _hashes(index)
    return labels.below(int(np.partition(hashes, most)[most]))


def _joined(parts: tuple[Labels, ...]) -> Labels:
    limit = min((part.limit for part in parts if part.limit is not None), default=None)
    lengths = [part.n for part in parts]
    before = np.cumsum([0, *lengths[:-1]])
    first, *others = (part.below(limit) for part in parts)
    index = first.index.append([part.index for part in others]) if others else first.index
    numbers = [part.rows + start for part, start in zip((first, *others), before, strict=True)]
    return Labels(index, np.concatenate(numbers), tuple(lengths), limit)


def _hashes(index: Any) -> np.ndarray:
    """Return the hashes (n,) of labels, the same in every process."""
    from dask.dataframe.dispatch import hash_object_dispatch

    return np.asarray(hash_object_dispatch(index, index=False))
