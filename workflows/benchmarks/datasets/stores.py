"""Dataset stores of rows that are drawn chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np


def write(path: Path, parts: Iterable[tuple[np.ndarray, np.ndarray]], rows: int, chunk: int) -> str:
    """Write a dataset store chunk by chunk: plain Zarr; return its path as text."""
    import zarr

    group, start = zarr.open_group(path, mode="w"), 0
    for X, y in parts:
        if not start:
            chunk = min(chunk, rows)
            for name, shape in (("X", (rows, X.shape[1])), ("y", (rows,))):
                chunks = (chunk, *shape[1:])
                group.create_array(name, shape=shape, chunks=chunks, dtype="f8")
        group["X"][start : start + len(X)], group["y"][start : start + len(X)] = X, y
        start += len(X)
    return str(path)


def write_drawn(
    path: Path, draw: Callable[..., tuple], rows: int, features: int, chunk: int
) -> str:
    """Write rows of a function of this file, each chunk from a seed of its own."""
    starts = range(0, rows, chunk)
    parts: Iterator[tuple] = (draw(min(chunk, rows - s), features, s) for s in starts)
    return write(path, parts, rows, chunk)


def store(
    folder: Path, draw: Callable[..., tuple], rows: int, features: int, chunk: int = 65_536
) -> str:
    """Return the path of rows of a function of this file, drawn once and kept in a folder."""
    path = folder / f"{draw.__name__}-{rows}-{features}-{chunk}.zarr"
    return str(path) if path.exists() else write_drawn(path, draw, rows, features, chunk)
