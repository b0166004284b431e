"""Work on a GPU, whose memory is small and which copies while it computes.

On the CPU nothing of this applies: work is done as it is given.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from daskgp import backend
from daskgp.errors import DeviceMemoryError
from daskgp.flow.partition import Span
from daskgp.model import Model, Shape, move

logger = logging.getLogger("daskgp")

SHARE = 0.7
"""Share of a GPU's free memory that a task plans for."""
READ_ROWS = 8_192
"""Rows that are read at a time beside the work on others, at least."""
LEAST_ROWS = 64
"""Rows at a time below which less of them make no room: what is left does not grow with rows."""

T = TypeVar("T")
P = TypeVar("P")

ANOTHER = "use a GPU with more free memory, or device='cpu'"
FEWER = f"choose fewer inputs of the method, {ANOTHER}"

_proven: dict[str, int] = {}
"""Rows at a time that a kind of work had to be cut to in this process."""
_held: list[Callable[[], None]] = []
"""What gives up device arrays that are held only because there is room."""


def gives_up(drop: Callable[[], None]) -> Callable[[], None]:
    """Have ``drop`` called where a GPU's memory runs out."""
    _held.append(drop)
    return drop


def shrinking(
    work: Callable[[int], T], rows: int, device: str, kind: str, remedy: str = FEWER
) -> T:
    """``work(rows)``, or with half as many rows at a time as often as the GPU's memory runs out.

    Parameters
    ----------
    work : callable
        Pure; given the rows that it may have on the device at a time.
    rows : int
        To begin with.
    device : str
        "cpu" or "gpu".
    kind : str
        Names the work; rows that one of a kind was cut to hold for the next in this process.
    remedy : str
        What to do where that does not help.

    Raises
    ------
    DeviceMemoryError
        If LEAST_ROWS, too, are too many.
    """
    if device == "cpu":
        return work(rows)
    rows, roomy = min(rows, _proven.get(kind, rows)), False
    while True:
        try:
            where = f"{rows} rows at a time ({kind})"
            with backend.device_memory_is_named(where, remedy, divided=True):
                return work(rows)
        except DeviceMemoryError as error:
            halved = -(-rows // 2)
            if halved < LEAST_ROWS:
                if roomy:
                    raise
                halved = rows  # once more in the room that is made
            seen = error.seen
        # out here, where nothing refers to the arrays of what failed
        _make_room()
        roomy = True
        if _proven.get(kind, rows) > halved:
            _proven[kind] = halved
            logger.warning("%s on %d rows at a time: %d are tried", seen, rows, halved)
        rows = halved


def whole(work: Callable[[], T], device: str, what: str, remedy: str = ANOTHER) -> T:
    """``work()`` that cannot be cut; once more where room can be made on the GPU."""
    if device == "cpu":
        return work()
    try:
        with backend.device_memory_is_named(what, remedy):
            return work()
    except DeviceMemoryError:
        pass
    _make_room()
    with backend.device_memory_is_named(what, remedy):
        return work()


def _make_room() -> None:
    for drop in _held:
        drop()
    backend.free_device_memory()


class Sizes(NamedTuple):
    """What the memory of a task depends on beside its rows."""

    features: int
    targets: int
    inputs: int
    itemsize: int
    kernel_tiles: int


def task_bytes(model: Model, sizes: Sizes, rows: int) -> int:
    """Bytes of a task of so many rows on a device, the rows themselves included twice."""
    d, p = sizes.features, sizes.targets
    tiles = sizes.kernel_tiles
    shape = Shape(rows, d, p, rows, sizes.inputs, sizes.itemsize, tiles, rows, device=True)
    return 2 * 8 * rows * (d + p) + int(model.footprint(shape).task)


def rows_that_fit(model: Model, sizes: Sizes, rows: int, device: str) -> int:
    """Rows at a time, ``rows`` at most, for which the GPU has free memory."""
    memory = backend.device_memory() if device == "gpu" else None
    if memory is None:
        return rows
    while rows > LEAST_ROWS and task_bytes(model, sizes, rows) > SHARE * memory.free:
        rows = -(-rows // 2)
    return rows


def whole_chunks(span: Span, chunks: tuple[int, ...] | None) -> list[Span]:
    """A span cut where its chunks end, into parts of READ_ROWS rows and more."""
    if chunks is None:
        return [span]
    edges, found = np.cumsum(chunks), [span.start]
    for edge in edges[(edges > span.start) & (edges < span.stop)].tolist():
        if edge - found[-1] >= READ_ROWS and span.stop - edge >= READ_ROWS:
            found.append(edge)
    return [Span(a, b) for a, b in itertools.pairwise([*found, span.stop])]


def ahead(read: Callable[[P], Any], pieces: Sequence[P], device: str) -> Iterator[Any]:
    """``read(piece)`` of each piece, moved to the device.

    For a GPU the next piece is read, by another thread, and copied while one is worked on; the
    arrays that were given must then not be used any more when the next are asked for.

    Parameters
    ----------
    read : callable
        Gives arrays of the host, or a NamedTuple of them.
    pieces : sequence
    device : str
        "cpu" or "gpu".
    """
    if device == "cpu" or len(pieces) < 2:
        for piece in pieces:
            yield move(read(piece), device)
        return
    copies = backend.Copies()

    def begin(piece: P) -> tuple[type, backend.Copy]:
        found = read(piece)
        return type(found), copies.begin(_arrays(found))

    with ThreadPoolExecutor(1, thread_name_prefix="daskgp-ahead") as reader:
        coming = [reader.submit(begin, pieces[0])]
        try:
            for following in [*pieces[1:], None]:
                kind, current = coming.pop().result()
                if following is not None:
                    coming.append(reader.submit(begin, following))
                try:
                    yield _like(kind, current.ready())
                finally:
                    current.release()
        finally:
            for unused in coming:
                if not unused.cancel() and unused.exception() is None:
                    unused.result()[1].release()


def _arrays(found: Any) -> list[np.ndarray]:
    return list(found) if isinstance(found, tuple) else [found]


def _like(kind: type, arrays: list[Any]) -> Any:
    if not issubclass(kind, tuple):
        return arrays[0]
    return kind(*arrays) if hasattr(kind, "_fields") else tuple(arrays)
