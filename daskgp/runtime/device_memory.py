"""Work on a GPU, whose memory is small and which copies while it computes.

On the CPU none of this applies: work is done as it comes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

import numpy as np

from daskgp.arrays import backend
from daskgp.errors import DeviceMemoryError
from daskgp.models.method import Method
from daskgp.models.values import Shape, move

logger: logging.Logger = logging.getLogger("daskgp")

SHARE = 0.7
"""Share of a GPU's free memory that a task plans for."""
LEAST_ROWS = 64
"""Rows at a time below which fewer make no room: the rest does not grow with the rows."""

SIDE_BY_SIDE = 16
"""Most small pieces, such as blocks or experts, that a GPU factors at a time."""

T = TypeVar("T")
P = TypeVar("P")

ANOTHER = "use a GPU with more free memory, or device='cpu'"
FEWER = f"choose fewer inputs of the method, {ANOTHER}"

_proven: dict[str, int] = {}
"""Rows at a time, or pieces side by side, that a kind of work had to be cut to in this process."""
_droppers: list[Callable[[], None]] = []
"""Functions that drop device arrays which are kept only because there is room."""


def gives_up(drop: Callable[[], None]) -> Callable[[], None]:
    """Have ``drop`` called when a GPU's memory runs out, and return it."""
    _droppers.append(drop)
    return drop


def shrinking(
    work: Callable[[int], T], rows: int, device: str, kind: str, remedy: str = FEWER
) -> T:
    """Return ``work(rows)``, with half the rows at a time as often as the GPU's memory runs out.

    Parameters
    ----------
    work : callable
        Pure; given the rows that it may have on the device at a time.
    rows : int
        Rows at a time to begin with.
    device : str
        "cpu" or "gpu".
    kind : str
        Name of the work; rows that one of a kind was cut to apply to the next in this process.
    remedy : str
        What to do where that does not help.

    Raises
    ------
    DeviceMemoryError
        If even LEAST_ROWS are too many.
    """
    if device == "cpu":
        return work(rows)

    def named(rows: int) -> AbstractContextManager[None]:
        where = f"{rows} rows at a time ({kind})"
        return backend.device_memory_is_named(where, remedy, divided=True)

    return _halving(work, rows, LEAST_ROWS, kind, "rows at a time", named)


def together(
    work: Callable[[int], T],
    pieces: int,
    device: str,
    kind: str,
    what: str,
    remedy: str = ANOTHER,
) -> T:
    """Return ``work(number)`` on that many pieces side by side, half where memory runs out.

    On the CPU, which one piece keeps busy, it is ``work(1)``.

    Parameters
    ----------
    work : callable
        Pure; given how many pieces, none of which can be cut, it may have on the device at a time.
    pieces : int
        Number of pieces; SIDE_BY_SIDE at a time are enough.
    device, kind, remedy
        As for ``shrinking``.
    what : str
        The largest piece, for people.

    Raises
    ------
    DeviceMemoryError
        If one piece is too much.
    """
    if device == "cpu":
        return work(1)
    unit, named = f"side by side ({kind})", backend.device_memory_is_named
    size = min(pieces, SIDE_BY_SIDE)
    return _halving(work, size, 1, unit, unit, lambda _: named(what, remedy))


def whole(work: Callable[[], T], device: str, what: str, remedy: str = ANOTHER) -> T:
    """Return ``work()``, which cannot be cut; try again where room can be made on the GPU."""
    return together(lambda _: work(), 1, device, what, what, remedy)


def _halving(
    work: Callable[[int], T],
    size: int,
    least: int,
    kind: str,
    unit: str,
    named: Callable[[int], AbstractContextManager[None]],
) -> T:
    """Do ``work`` on half as much until it fits, at last once more in the room that is made."""
    size, roomy = min(size, _proven.get(kind, size)), False
    while True:
        try:
            with named(size):
                return work(size)
        except DeviceMemoryError as error:
            halved = -(-size // 2)
            if halved == size or halved < least:
                if roomy:
                    raise
                halved = size
            seen = error.seen
        # outside the handler, where nothing refers to the arrays of the failed attempt
        _make_room()
        roomy = True
        if _proven.get(kind, size) > halved:
            _proven[kind] = halved
            logger.warning("%s on %d %s: %d are tried", seen, size, unit, halved)
        size = halved


def _make_room() -> None:
    for drop in _droppers:
        drop()
    backend.free_device_memory()


class Sizes(NamedTuple):
    """Sizes that the memory of a task depends on besides its rows."""

    features: int
    targets: int
    inputs: int
    itemsize: int
    kernel_tiles: int


def task_bytes(model: Method, sizes: Sizes, rows: int) -> int:
    """Return the bytes of a task of ``rows`` rows on a device, the rows themselves twice."""
    d, p = sizes.features, sizes.targets
    tiles = sizes.kernel_tiles
    shape = Shape(rows, d, p, rows, sizes.inputs, sizes.itemsize, tiles, rows, device=True)
    return 2 * 8 * rows * (d + p) + int(model.footprint(shape).task)


def rows_that_fit(model: Method, sizes: Sizes, rows: int, device: str) -> int:
    """Return the rows at a time, at most ``rows``, for which the GPU has free memory."""
    memory = backend.device_memory() if device == "gpu" else None
    if memory is None:
        return rows
    while rows > LEAST_ROWS and task_bytes(model, sizes, rows) > SHARE * memory.free:
        rows = -(-rows // 2)
    return rows


def ahead(read: Callable[[P], Any], pieces: Sequence[P], device: str) -> Iterator[Any]:
    """Yield ``read(piece)`` of each piece, moved to the device.

    For a GPU the next piece is read, by another thread, and copied while one is worked on; arrays
    that were yielded must then not be used any more once the next are asked for.

    Parameters
    ----------
    read : callable
        Gives arrays of the host, or a NamedTuple of them; those that may be None come last.
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
        values = read(piece)
        return type(values), copies.begin(_arrays(values))

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


def _arrays(values: Any) -> list[np.ndarray]:
    if not isinstance(values, tuple):
        return [values]
    return [value for value in values if value is not None]


def _like(kind: type, arrays: list[Any]) -> Any:
    if not issubclass(kind, tuple):
        return arrays[0]
    return kind(*arrays) if hasattr(kind, "_fields") else tuple(arrays)
