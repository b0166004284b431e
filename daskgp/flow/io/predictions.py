"""Prediction stores: ``mean`` and ``variance`` with the chunks of the input, ``done`` flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import dask.array as da
import numpy as np
import zarr

from daskgp.errors import StoreError
from daskgp.flow.io import groups

FORMAT, VERSION = "daskgp-predictions", 1


class _Shape(Protocol):
    @property
    def n_targets(self) -> int: ...
    @property
    def vector_target(self) -> bool: ...
    @property
    def target_names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, eq=False)
class Target:
    """An open prediction store; tasks write whole chunks of it, each its own."""

    url: str
    group: zarr.Group

    def done(self) -> np.ndarray:
        """Flags (chunks,) of what is written already."""
        return np.asarray(groups.array_of(self.group, "done")[...], bool)

    def checksums(self) -> np.ndarray:
        """CRC-32 (chunks,) of the input of each chunk that is done."""
        return np.asarray(groups.array_of(self.group, "input_checksum")[...])

    def put(
        self, index: int, start: int, mean: np.ndarray, variance: np.ndarray, checksum: int
    ) -> None:
        """Write one chunk and the checksum of its input, its flag last."""
        with groups.writing(self.url, "predictions"):
            for name, values in (("mean", mean), ("variance", variance)):
                array = groups.array_of(self.group, name)
                shape = (len(values), *array.shape[1:])
                array[start : start + len(values)] = values.reshape(shape)
            groups.array_of(self.group, "input_checksum")[index] = checksum
            groups.array_of(self.group, "done")[index] = True

    def finish(self) -> None:
        """Mark the store as complete."""
        if not self.done().all():
            raise StoreError(f"predictions {self.url}: some chunks are not written, run it again")
        with groups.writing(self.url, "predictions"):
            self.group.attrs["complete"] = True


def open_or_create(
    url: str,
    X: da.Array,
    shape: _Shape,
    identity: dict[str, Any],
    notes: dict[str, Any],
    resume: bool,
) -> Target:
    """The prediction store with the row chunks of X, an unfinished one if it fits.

    ``identity`` and ``notes`` become attributes; those of ``identity`` must be the same when an
    unfinished store is taken up again.

    Raises
    ------
    StoreError
        If the store exists and ``resume`` is False, or holds predictions of another model,
        input or shape.
    """
    n, step = int(X.shape[0]), int(X.chunksize[0])
    if groups.exists(url):
        groups.refuse_other(url, "prediction")
        if not resume:
            raise StoreError(
                f"predictions {url} exist already: add --resume to finish them, or remove them"
            )
        return _existing(url, n, step, shape, identity)
    names = {"target_names": list(shape.target_names), "complete": False}
    marks = {"format": FORMAT, "version": VERSION, **notes, **identity, **names}
    with groups.creating(url, "predictions", marks) as group:
        _create_arrays(group, n, step, shape)
    return Target(url, groups.open_group(url, "prediction store", mode="r+"))


def _create_arrays(group: zarr.Group, n: int, step: int, shape: _Shape) -> None:
    """Mean, variance, checksums of the input and, last, the flags."""
    tail = () if shape.vector_target else (shape.n_targets,)
    for name in ("mean", "variance"):
        group.create_array(
            name,
            shape=(n, *tail),
            chunks=(step, *tail),
            dtype="f8",
            fill_value=np.nan,
            overwrite=True,
        )
    for name, dtype in (("input_checksum", "u4"), ("done", "bool")):
        group.create_array(name, shape=(-(-n // step),), chunks=(1,), dtype=dtype)


def _existing(url: str, n: int, step: int, shape: _Shape, identity: dict[str, Any]) -> Target:
    group = groups.open_group(url, "prediction store", mode="r+")
    remedy = "remove them or choose another path"
    if group.attrs.get("version") != VERSION:
        raise StoreError(
            f"predictions {url} have format version {group.attrs.get('version')}, this daskgp "
            f"writes version {VERSION}: {remedy}"
        )
    for name, value in identity.items():
        if group.attrs.get(name) != value:
            raise StoreError(
                f"predictions {url} were made with {name} {group.attrs.get(name)}, "
                f"not {value}: {remedy}"
            )
    if "done" not in group:  # killed while it was made
        _create_arrays(group, n, step, shape)
    mean = groups.array_of(group, "mean")
    if mean.shape[0] != n or mean.chunks[0] != step:
        raise StoreError(
            f"predictions {url} have {mean.shape[0]} rows in chunks of {mean.chunks[0]}, the "
            f"input has {n} in chunks of {step}: {remedy}"
        )
    return Target(url, group)
