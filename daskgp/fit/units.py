"""Unit of work of a map task: blocks that are read, scaled, moved and summarised."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from daskgp.arrays.backend import resolve_device
from daskgp.data import Rows, partition
from daskgp.data.partition import Span, Window, parts
from daskgp.models import scaling
from daskgp.models.method import LocalModel, Model
from daskgp.models.values import Block, Theta, ThetaBar, add_gradients, move
from daskgp.runtime import device_memory
from daskgp.runtime.process import single_blas_thread

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class BlockTask:
    """What a map task does, on the worker: read, clean, scale, move, summarise, move back."""

    model: Model
    rows: Rows
    scaling: scaling.Scaling
    dtype: str
    device: str

    def local(self, windows: tuple[Window, ...], prepared: Any) -> Any:
        """Return the sum of the summaries of some blocks."""

        def work(most: int) -> Any:
            found = self._summaries(windows, move(prepared, device), most, device)
            return move(functools.reduce(self.model.combine, found), "cpu")

        with single_blas_thread():
            device = self._device()
            return self._fitting(work, windows, prepared, device)

    def _summaries(
        self, windows: tuple[Window, ...], prepared: Any, most: int, device: str
    ) -> Iterator[Any]:
        """Summaries of blocks, or of ``most`` of a local method's together."""
        blocks = self._blocks(windows, most, device)
        if self.model.keeps_rows:
            model = cast(LocalModel[Any, Any, Any], self.model)
            yield from (model.local_many(prepared, few) for few in device_memory.few(blocks, most))
            return
        for block, near in blocks:
            yield self.model.local(prepared, block, near)

    def keep(self, windows: tuple[Window, ...], prepared: Any, fit: bool) -> tuple[Any, list[Any]]:
        """``local``, with the factors of the blocks, on the host, where they ``fit``."""
        if not fit:
            return self.local(windows, prepared), []
        model = cast(LocalModel[Any, Any, Any], self.model)

        def work(most: int) -> tuple[Any, list[Any]]:
            there, stats, kept = move(prepared, device), [], []
            for few in device_memory.few(self._blocks(windows, most, device), most):
                found, factored = model.local_and_windows(there, few)
                stats.append(found)
                kept += [move(window, "cpu") for window in factored]
            return move(functools.reduce(model.combine, stats), "cpu"), kept

        with single_blas_thread():
            device = self._device()
            return self._fitting(work, windows, prepared, device)

    def gradient(
        self,
        windows: tuple[Window, ...],
        prepared: Any,
        cotangent: Any,
        kept: tuple[Any, list[Any]] | None = None,
    ) -> ThetaBar:
        """Return the gradient through some blocks, from the factors that were ``kept``, if any."""

        def work(most: int) -> ThetaBar:
            there, through = move(prepared, device), move(cotangent, device)
            factored = None if kept is None else kept[1]
            found = self._gradients(windows, there, through, factored, most, device)
            return functools.reduce(add_gradients, found)

        with single_blas_thread():
            device = self._device()
            return self._fitting(work, windows, prepared, device)

    def each(self, windows: tuple[Window, ...], prepared: Any, cotangent: Any) -> list[np.ndarray]:
        """The gradient (k,) by the hyper-parameters through each block."""
        return [
            self.gradient((window,), prepared, cotangent).to_vector(with_inputs=False)
            for window in windows
        ]

    def _gradients(
        self,
        windows: tuple[Window, ...],
        prepared: Any,
        cotangent: Any,
        kept: list[Any] | None,
        most: int,
        device: str,
    ) -> Iterator[ThetaBar]:
        """Gradients through blocks, or through ``most`` of a local method's together."""
        blocks = self._blocks(windows, most, device)
        if self.model.keeps_rows:
            model, waiting = cast(LocalModel[Any, Any, Any], self.model), iter(kept or ())
            for few in device_memory.few(blocks, most):
                own = [move(window, device) for window in itertools.islice(waiting, len(few))]
                yield model.local_vjp_many(prepared, few, cotangent, own or None)
            return
        for block, near in blocks:
            yield self.model.local_vjp(prepared, block, cotangent, near)

    def _fitting(
        self,
        work: Callable[[int], T],
        windows: tuple[Window, ...],
        prepared: Any,
        device: str,
    ) -> T:
        """``work`` on as many rows, or blocks that cannot be cut, as the device has memory for."""
        largest = max(own.rows for own, _ in windows)
        if not self.model.divisible:
            what = f"a block of {largest} rows ({self.model.name})"
            pieces = len(windows) if self.model.keeps_rows else 1
            return device_memory.together(work, pieces, device, self.model.name, what)
        rows = device_memory.rows_that_fit(self.model, self._sizes(prepared), largest, device)
        return device_memory.shrinking(work, rows, device, self.model.name)

    def _sizes(self, prepared: Any) -> device_memory.Sizes:
        theta = prepared if isinstance(prepared, Theta) else prepared.theta
        return device_memory.Sizes(
            self.rows.n_features,
            self.rows.n_targets,
            0 if theta.inputs is None else len(theta.inputs),
            np.dtype(self.dtype).itemsize,
            theta.kernel.tiles,
        )

    def _blocks(
        self, windows: tuple[Window, ...], most: int, device: str
    ) -> Iterator[tuple[Block, tuple[Block, ...]]]:
        """Blocks on the device with those near them, read and scaled.

        On a GPU one that divides comes in parts of ``most`` rows, ahead of their use.
        """
        if self.model.divisible and device != "cpu":
            pieces = [piece for own, _ in windows for piece in self._pieces(own, most)]
            for block in device_memory.ahead(self._read_part(), pieces, device):
                yield block, ()
            return
        # neighbours share those near them
        read = functools.cache(lambda span: move(self._read(span), device))
        for own, near in windows:
            yield read(own), tuple(map(read, near))

    def _pieces(self, own: Span, most: int) -> list[tuple[Span, slice]]:
        """What is read of a block at a time, whole chunks of some size, and rows of it."""
        read = partition.whole_chunks(own, self.rows.chunks)
        return [
            (span, slice(*part))
            for span in read
            for part in parts(0, span.rows, most) or [Span(0, 0)]
        ]

    def _read_part(self) -> Callable[[tuple[Span, slice]], Block]:
        """Reads parts of spans one after another, each span once."""
        read = functools.lru_cache(1)(self._read)

        def part(piece: tuple[Span, slice]) -> Block:
            block, rows = read(piece[0]), piece[1]
            # rows with missing values have gone: the last part has what is left
            last = rows.stop == piece[0].rows
            few = slice(rows.start, None if last else rows.stop)
            return Block(block.X[few], block.y[few])

        return part

    def _read(self, span: Span) -> Block:
        return self.scaling.block(*self.rows.read(*span), self.dtype)

    def _device(self) -> str:
        return resolve_device(self.device)
