"""Datasets rewritten in blocks of nearby rows, or shuffled, out of core."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from daskgp import checks, data
from daskgp.data import partition, visibility
from daskgp.data.blocks import filling, ordering, prepared, sorting
from daskgp.data.blocks.layout import DEFAULT_BLOCK_ROWS, Layout, balanced
from daskgp.data.blocks.ordering import Order
from daskgp.data.blocks.sampling import Keys, describe, draw
from daskgp.data.partition import Span
from daskgp.data.rows import COLUMNS, refuse_lost
from daskgp.data.stores import groups
from daskgp.errors import InputError
from daskgp.models import scaling
from daskgp.runtime.executor import Executor
from daskgp.runtime.progress import ShowProgress
from daskgp.typing import Path

__all__ = ["Prepared", "arrange", "prepare"]


KEY_SAMPLE = 20_000
CHUNK_BYTES, RUN_BYTES = 1 << 20, 16 << 20
PART_ROWS = 64, 4_096
"""Least and most rows of a run that are read in one go."""
MANY_RUNS = 64
"""Runs above which tasks of the second pass write as many rows as a run has."""
OVERLAP = 32
"""Cuts per task of the second pass, which reads about two intervals more than it writes."""


class Prepared(NamedTuple):
    """Result of `prepare`: rows, rows left out, blocks, rows per block, and the kind of order.

    Examples
    --------
    >>> import tempfile, numpy as np, daskgp
    >>> X = np.random.default_rng(0).uniform(size=(400, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = daskgp.prepare((X, X[:, 0]), f"{folder}/rows.zarr", "hilbert", block_rows=100)
    >>> found.rows, found.blocks
    (400, 4)
    """

    rows: int
    dropped: int
    blocks: int
    block_rows: int
    order: str


def prepare(
    source: Any,
    store: Path,
    order: str | Sequence[str] = "auto",
    block_rows: int | None = None,
    lengthscales: Sequence[float] | None = None,
    random_state: int | None = 0,
    progress: ShowProgress = "auto",
    *,
    y_variance: Any = None,
    sample_weight: Any = None,
    geographic: Sequence[str] | str | bool | None = None,
    fill_values: Literal["auto"] | Sequence[float] | float | None = "auto",
) -> Prepared:
    """Rewrite a dataset in blocks of nearby rows, out of core.

    The rows are sorted along a line on which neighbours are near one another, and cut into blocks
    of equal size.  Memory holds a few blocks per task, whatever the number of rows; the disk holds
    the rows twice while it runs.

    Parameters
    ----------
    source : str, path or pair (X, y)
        URL of a dataset store, or rows of any kind that ``fit`` takes.
    store : str or path
        The dataset store to write: a local path or fsspec URL where nothing exists yet.
    order : str or sequence of str
        ``"hilbert"``, a curve through the two or three leading features; ``"pca"``, their first
        principal component; ``"kmeans"``, a chain of clusters; the name of a feature, such as the
        time; or the names of two or three for the curve.  ``"auto"`` is the feature where there is
        one, the curve for two or three, and the chain for more.  ``"random"`` shuffles the rows by
        their content and ``random_state``, whatever their order in the source, or by their numbers
        where many repeat; such blocks are all alike, and methods that want nearby rows refuse them.
    block_rows : int, optional
        Most rows of a block, 256 by default.
    lengthscales : sequence of d floats, optional
        Distances at which rows are still alike, for each feature in its units; the standard
        deviations of the features by default.  Infinite for a feature that does not matter; in km
        for both longitude and latitude.
    random_state : int, optional
        Seed of the sample that the order is made from, or of the random order.
    progress : bool or "auto"
        Whether to show progress on stderr; "auto" shows it on a terminal.
    y_variance, sample_weight : float, array-like (n,) or (n, 1), or False, optional
        Error variances and weights of rows, as for ``fit``, which the store keeps.
    geographic : pair of str or int, or False, optional
        Features that are longitude and latitude, in degrees: blocks are then near on the sphere.
        Default those that the attributes of the source name; False for none.
    fill_values : "auto", list of float or None
        Values that stand for missing ones, as for estimators: their rows are left out.

    Returns
    -------
    Prepared
        ``rows`` written, ``dropped`` because a value was missing, ``blocks``, ``block_rows`` and
        the kind of ``order``.

    Raises
    ------
    InputError
        If the source cannot be used or a setting is invalid; StoreError if the destination exists
        or cannot be written.  Nothing is left at the destination then.

    Examples
    --------
    >>> import os, tempfile, numpy as np, daskgp
    >>> X = np.random.default_rng(0).uniform(size=(400, 2))
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = os.path.join(folder.name, "blocks.zarr")
    >>> _ = daskgp.prepare((X, X[:, 0]), store, "hilbert", block_rows=100)
    >>> X, y = daskgp.open_dataset(store)
    >>> X.shape
    (400, 2)
    >>> folder.cleanup()
    """
    url, executor = str(store).rstrip("/"), Executor.current(progress)
    groups.refuse_existing(url, "dataset")
    X, y = _opened(source)
    spill = f"{url}-rows-{uuid.uuid4().hex[:12]}"  # beside it, where the workers will write
    try:
        noise = {"y_variance": y_variance, "weight": sample_weight}
        settings = None, noise, geographic, tuple(COLUMNS)
        rows = data.rows_of(X, y, spill, executor.shares_memory, *settings)
        lengthscales = rows.columns.lengths(lengthscales)
        for array in rows.arrays.values():
            visibility.check(executor, array, "the dataset", f"put it in {visibility.HERE}")
        spans = partition.blocks(len(rows), rows.chunks, _run_rows(rows))
        rows = filling.marked(rows, fill_values, spans, executor)
        seed = _seed(random_state)
        layout = arrange(rows, url, order, block_rows, lengthscales, seed, executor)
    finally:
        data.remove(spill)
    dropped = len(rows) - layout.rows
    scaling.warn_of_missing(dropped, rows.weight is not None)
    return Prepared(layout.rows, dropped, layout.n_blocks, layout.block_rows, layout.order.kind)


def _opened(source: Any) -> tuple[Any, Any]:
    if isinstance(source, str | os.PathLike):
        return data.open_dataset(str(source))
    if isinstance(source, tuple | list) and len(source) == 2:
        return source[0], source[1]
    raise InputError(
        f"source is of type {type(source).__name__}: give the path or URL of a dataset store, or "
        "a pair (X, y)"
    )


def _seed(random_state: int | None) -> int:
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return checks.whole("random_state", random_state, 0)


def arrange(
    rows: data.Rows,
    url: str,
    order: str | Sequence[str] | Order = "auto",
    block_rows: int | None = None,
    lengthscales: Sequence[float] | np.ndarray | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    sums: scaling.Sums | None = None,
    remedy: str = f"write it to {visibility.HERE}",
) -> Layout:
    """Write rows to a new dataset store in the order of blocks.

    Rows with missing values are left out.

    Parameters
    ----------
    rows : Rows
        Must be readable by all tasks.
    url : str
        Where to write; StoreError if something exists there already.
    order : str, sequence of str or Order
        As for `daskgp.data.blocks.ordering.make_order`, or one that was made for other rows.
    block_rows : int, optional
        Most rows of a block; DEFAULT_BLOCK_ROWS by default.
    lengthscales : sequence of d floats, optional
        In the units of the inputs: km for the columns of a sphere.
    seed : int
        Seed of samples, clusters and random orders.
    executor : Executor, optional
        Where to run.
    sums : Sums, optional
        Result of `daskgp.data.blocks.sampling.describe` for the rows, if known already.
    remedy : str
        What to do if workers do not see the URL.

    Returns
    -------
    Layout
        The blocks, as `read_layout` finds them in the store.
    """
    executor = executor or Executor.current()
    limit = checks.whole("block_rows", DEFAULT_BLOCK_ROWS if block_rows is None else block_rows, 1)
    names = rows.columns.inputs_names
    made = order if isinstance(order, Order) else None
    wanted: Any = order
    if made is None:
        ordering.check_order(wanted, rows.columns.names)
        wanted = rows.columns.order(wanted)
    if lengthscales is not None:
        ordering.checked_lengths(lengthscales, names)
    groups.refuse_existing(url, "dataset")
    if not len(rows):
        raise InputError("no rows: the training data has length 0; give rows at two places or more")
    spans = partition.blocks(len(rows), rows.chunks, _run_rows(rows))
    sums = describe(rows, spans, executor) if sums is None else sums
    refuse_lost(rows, sums.rows)
    given = scaling.Given.of(rows.arrays)
    (scaling.check if made is None else scaling.check_values)(sums, names, rows.target_names, given)
    n, d = int(sums.rows), rows.n_features
    size, plain = balanced(n, limit), scaling.identity(d, rows.n_targets)
    sample = np.empty((0, d))
    if wanted != ordering.RANDOM:  # it looks at no row
        drawn_by = Keys.by_content((seed, 1), rows, sums)
        sample = draw(rows, spans, plain, KEY_SAMPLE, drawn_by, executor).rows.X
    if lengthscales is None and sums.sphere:  # one scale for x, y and z
        lengthscales = scaling.scales(sums, d)
    low, high, blocks = sums.low[:d], sums.high[:d], -(-n // size)
    line = made or ordering.make_order(
        wanted, sample, low, high, names, blocks, lengthscales, seed, sums.sphere
    )
    step = _chunk_rows(n, size, d * prepared.stored_dtype(rows.X).itemsize)
    pieces, longest = _pieces(n, step, spans), max(span.rows for span in spans)
    part = int(np.clip(longest // (2 * len(pieces)), *PART_ROWS))
    with prepared.creating(url, rows, n, step, (len(spans), longest), part) as target:
        visibility.check(executor, target.rows.X, "the prepared dataset", remedy)
        edges = sorting.fine_cuts(line, sample, OVERLAP * len(pieces))
        plan = sorting.Counting(line, Keys.of_order(seed, rows, sums), edges)
        before = sorting.sort(rows, spans, target.runs, plan, executor)
        first, centroids = sorting.write(pieces, before, size, target, executor)
        layout = Layout(line, n, size, first[1:], centroids)
        target.finish(layout.write)
    return layout


def _run_rows(rows: data.Rows) -> int:
    """Return the rows per run: as a fit cuts them, more where there are very many."""
    width = 8 * (rows.n_features + rows.width + 1)
    limit = max(partition.MAX_ROWS, RUN_BYTES // width)
    return int(np.clip(-(-len(rows) // partition.BLOCKS), partition.MIN_ROWS, limit))


def _chunk_rows(n: int, block_rows: int, row_bytes: int) -> int:
    """Return the rows per chunk: whole blocks of about CHUNK_BYTES, or one block."""
    limit = min(partition.MAX_ROWS, CHUNK_BYTES // row_bytes)
    return min(max(1, limit // block_rows), -(-n // block_rows)) * block_rows


def _pieces(n: int, step: int, runs: Sequence[Span]) -> list[Span]:
    """Return the spans that tasks write: whole chunks, about as many rows as a block of a fit.

    Each task reads a slice of every run, so that of many runs they have as many rows as a run.
    """
    wanted = partition.default_block_rows(n)
    if len(runs) > MANY_RUNS:
        wanted = max(wanted, *(run.rows for run in runs))
    rows = max(1, wanted // step) * step
    return [Span(i, min(i + rows, n)) for i in range(0, n, rows)]
