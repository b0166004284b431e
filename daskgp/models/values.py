"""The contract a method meets, and the small values that cross it.

A method is a value: a frozen dataclass of settings with pure functions over arrays.  It
knows nothing of Dask, of files or of scaling.  flow/ calls it in this order::

    prepared = model.prepare(theta)                              # once
    total = sum(model.local(prepared, block) for each block)     # map, tree sum
    state = model.solve(prepared, total)                         # once, small
    model.predict(theta, state, X, near)                         # map, lazy

A local method (``keeps_rows``) reads training rows back for that: ``near`` is what
``model.condition(theta, state, blocks)`` made of the blocks around X.  Training adds one more
map between two sums::

    objective = model.objective(prepared, total)                 # once, small
    gradient = objective.gradient + sum(
        model.local_vjp(prepared, block, objective.cotangent) for each block)

``local`` and ``local_vjp`` also take the blocks ``near`` a block that its summary is
conditioned on; flow/ says which.  The law of additive methods, which testing.check_model checks
for every entry of the registry: ``local(A ++ B) == combine(local(A), local(B))``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from daskgp.arrays import backend
from daskgp.kernels import Kernel
from daskgp.typing import Array

TILE_ROWS = 4_096
"""Most rows that are predicted at a time."""
Want: TypeAlias = Literal["mean", "variance", "covariance"]


class Block(NamedTuple):
    """Rows of the scaled training data: X (n, d) and y (n, p), no missing values."""

    X: Array
    y: Array


class Moments(NamedTuple):
    """Posterior of f at test inputs: mean (n, p) and variance (n,) or covariance (n, n).

    The outputs share one kernel, so one variance serves them all; None where not wanted.
    ``shared`` (n, m) is given by a local method beside the covariance: its products with those
    of rows predicted near other blocks are the covariances with them.  ``far`` (n,) marks rows
    of which no training row says anything, where a local method gives the prior back.
    ``noisy`` says that the variance is that of a new observation, noise included.
    """

    mean: Array
    variance: Array | None = None
    covariance: Array | None = None
    shared: Array | None = None
    far: Array | None = None
    noisy: bool = False


class Shape(NamedTuple):
    """Sizes a method is planned for.

    ``block_rows`` is the rows of the largest block, ``inputs`` the number of inducing inputs,
    ``itemsize`` the bytes of a number of a tile, ``kernel_tiles`` the tiles of the kernel's
    pullback, ``window_rows`` the rows of a block with those its summary is conditioned on,
    ``near_rows`` those that a prediction is conditioned on, ``device`` whether tasks compute on a
    GPU, whose tiles are larger.
    """

    rows: int
    features: int
    targets: int
    block_rows: int
    inputs: int
    itemsize: int
    kernel_tiles: int
    window_rows: int
    near_rows: int = 0
    device: bool = False


class Footprint(NamedTuple):
    """What a method needs, in bytes and floating-point operations.

    ``task`` beyond the block's own rows; ``stats`` one local summary; ``solve`` the peak of
    the small solve; ``state`` the model store; ``operations`` one value and gradient; ``predict``
    a tile of predictions with their variance, and what these carry; ``shared`` what the client
    sends to all tasks of a round.
    """

    task: int
    stats: int
    solve: int
    state: int
    operations: float
    predict: int
    shared: int


@dataclass(frozen=True)
class Theta:
    """Hyper-parameters: a kernel, the noise variance and the inducing inputs (m, d) if any."""

    kernel: Kernel
    noise_variance: float
    inputs: np.ndarray | None = None

    def to_vector(self, with_inputs: bool) -> np.ndarray:
        """Logarithms of kernel parameters and noise variance, then the inputs if trained."""
        parts = [self.kernel.log_parameters, np.log([self.noise_variance])]
        if with_inputs and self.inputs is not None:
            parts.append(np.ravel(self.inputs))
        return np.concatenate(parts).astype(np.float64)

    def from_vector(self, vector: np.ndarray) -> Theta:
        """The hyper-parameters that ``to_vector`` of the same kind describes."""
        k = len(self.kernel.log_parameters)
        inputs = self.inputs
        if inputs is not None and len(vector) > k + 1:
            inputs = np.array(vector[k + 1 :]).reshape(inputs.shape)
        kernel = self.kernel.with_log_parameters(vector[:k])
        return replace(self, kernel=kernel, noise_variance=float(np.exp(vector[k])), inputs=inputs)


class ThetaBar(NamedTuple):
    """Gradient with respect to Theta: log kernel parameters (k,), log noise, inputs (m, d)."""

    kernel: np.ndarray
    noise: float
    inputs: np.ndarray | None

    def to_vector(self, with_inputs: bool) -> np.ndarray:
        """The same layout as ``Theta.to_vector``."""
        parts = [self.kernel, np.array([self.noise])]
        if with_inputs and self.inputs is not None:
            parts.append(np.ravel(self.inputs))
        return np.concatenate(parts).astype(np.float64)


class Objective(NamedTuple):
    """Value to maximise, its direct gradient, and what ``local_vjp`` needs of the rest.

    ``cotangent`` is None where the direct gradient is already the whole one.
    """

    value: float
    gradient: ThetaBar
    cotangent: Any


Prepared = TypeVar("Prepared")
Stats = TypeVar("Stats", bound=tuple)
State = TypeVar("State", bound=tuple)


class Model(Protocol[Prepared, Stats, State]):
    """What every method offers; see the module's docstring for the order of the calls."""

    name: ClassVar[str]
    """The name in the registry, in stores and on the command line."""
    state_type: ClassVar[Any]
    """NamedTuple of the arrays that a model store keeps."""
    keeps_rows: ClassVar[bool]
    """Whether prediction reads training rows back, through ``condition``."""

    def prepare(self, theta: Theta) -> Prepared:
        """What all blocks need and nobody wants to compute twice."""

    def local(self, prepared: Prepared, block: Block, near: Sequence[Block] = ()) -> Stats:
        """Summary of one block, given the blocks that it is conditioned on."""

    def combine(self, a: Stats, b: Stats) -> Stats:
        """The summary of both; may overwrite ``a``."""

    def solve(self, prepared: Prepared, total: Stats) -> State:
        """What prediction needs, from the summary of all blocks."""

    def objective(self, prepared: Prepared, total: Stats) -> Objective:
        """The evidence or its bound, with gradients up to the summaries."""

    def local_vjp(
        self, prepared: Prepared, block: Block, cotangent: Any, near: Sequence[Block] = ()
    ) -> ThetaBar:
        """The part of the gradient that goes through this block's summary."""

    def predict(
        self, theta: Theta, state: State, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Posterior of f at X (n, d); ``near`` is what ``condition`` of a local method gave."""

    def exact_limit(self, theta: Theta, X: Array) -> tuple[Model, Theta] | None:
        """Settings and hyper-parameters at which the method is the exact GP on rows X.

        None where no finite setting is exact.
        """

    def footprint(self, shape: Shape) -> Footprint:
        """Bytes and operations, for ``plan``."""


class LocalModel(Model[Prepared, Stats, State], Protocol):
    """A method whose predictions read training rows back (``keeps_rows``)."""

    def local_many(
        self, prepared: Prepared, windows: Sequence[tuple[Block, Sequence[Block]]]
    ) -> Stats:
        """The summary of several blocks, each with those near it."""

    def local_and_windows(
        self, prepared: Prepared, windows: Sequence[tuple[Block, Sequence[Block]]]
    ) -> tuple[Stats, list[Any]]:
        """``local_many``, and for each block what ``local_vjp_many`` takes to save work."""

    def local_vjp_many(
        self,
        prepared: Prepared,
        windows: Sequence[tuple[Block, Sequence[Block]]],
        cotangent: Any,
        factored: Sequence[Any] | None = None,
    ) -> ThetaBar:
        """The sum of ``local_vjp`` over several blocks."""

    def window_bytes(self, rows: int, inputs: int, targets: int) -> int:
        """Bytes of what ``local_and_windows`` keeps of a block with those near it."""

    def features(self, theta: Theta, state: State, X: Array) -> Array:
        """What ``condition`` wants of rows X (n, d) and need not make again for each group."""

    def condition(
        self,
        theta: Theta,
        state: State,
        blocks: Sequence[Block],
        features: Sequence[Array] | None = None,
    ) -> Any:
        """What predictions need of some rows, whose features may be known; it has ``nbytes``."""


class Experts(Protocol):
    """The experts' training rows, read back one expert at a time."""

    def __len__(self) -> int:
        """Number of experts."""

    def rows(self, i: int) -> Block:
        """Scaled rows of expert i."""

    def conditioned(self, *experts: int) -> Any:
        """What ``condition`` made of the rows of one expert, or of several together."""


class Ensemble(Protocol):
    """A method that combines experts, each of which has rows of its own.

    Summaries of experts are not added: they stand side by side, one for each expert::

        prepared = model.prepare(theta)                                # once
        each = [model.summarise(prepared, blocks) for each expert]     # map
        cross = sum over rows of ``projection.Cross``                  # map, if needs_cross
        state = model.solve(prepared, each, cross)                     # once
        model.predict(theta, state, X, near)                           # map, lazy

    Hyper-parameters are trained on the sum of the experts' own objectives, which is that of
    another method on each expert's rows.  A summary gives it as ``value``.
    """

    name: ClassVar[str]
    """The name in the registry and in stores."""
    state_type: ClassVar[Any]
    """NamedTuple of the arrays that a model store keeps."""
    keeps_rows: ClassVar[bool]
    """Whether prediction reads training rows back: ``near`` is then an ``Experts``."""

    @property
    def n_experts(self) -> int:
        """Number of experts."""

    @property
    def needs_cross(self) -> bool:
        """Whether ``solve`` needs the sums over rows of all experts' functions.

        These functions are kernels at an expert's rows weighted by its summary's ``weights``.
        """

    def prepare(self, theta: Theta) -> Any:
        """What all experts need and nobody wants to compute twice."""

    def summarise(self, prepared: Any, blocks: Iterable[Block]) -> Any:
        """What the combination needs of one expert, whose rows come in blocks."""

    def solve(self, prepared: Any, experts: Sequence[Any], cross: Any = None) -> Any:
        """What prediction needs, from the summaries of all experts in their order."""

    def predict(
        self, theta: Theta, state: Any, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Combined posterior at X (n, d)."""

    def exact_limit(self, theta: Theta, X: Array) -> tuple[Any, Theta] | None:
        """As for every method, with one expert."""

    def footprint(self, shape: Shape) -> Footprint:
        """Bytes and operations, for ``plan``; ``block_rows`` are those of an expert's block."""


def add(a: Any, b: Any) -> Any:
    """Sum of two tuples of arrays field by field, in ``a``'s own arrays where they are arrays."""
    return type(a)(*(_add_field(x, y) for x, y in zip(a, b, strict=True)))


def _add_field(x: Any, y: Any) -> Any:
    if x is None:
        return y
    if y is None:
        return x
    if getattr(x, "shape", ()):
        x += y
        return x
    return x + y


def move(value: Any, device: str) -> Any:
    """A (nested) tuple of arrays, each array moved to "cpu" or "gpu"; other values as they are."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(x, device) for x in value))
    if isinstance(value, Theta):
        return replace(value, inputs=move(value.inputs, device))
    if getattr(value, "shape", ()):
        return backend.to_host(value) if device == "cpu" else backend.to_device(value, device)
    return value


def add_gradients(a: ThetaBar, b: ThetaBar) -> ThetaBar:
    """Return the sum of two gradients, of which one or both may have none by the inputs."""
    inputs = a.inputs if b.inputs is None else b.inputs
    if a.inputs is not None and b.inputs is not None:
        inputs = a.inputs + b.inputs
    return ThetaBar(a.kernel + b.kernel, a.noise + b.noise, inputs)
