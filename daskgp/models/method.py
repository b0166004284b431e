"""Contract that a method meets.

A method is a value: a frozen dataclass of settings with pure functions over arrays.  It
knows nothing of Dask, of files or of scaling.  ``fit`` and ``predict`` call it in this order::

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
conditioned on; the caller says which.  The law of additive methods, which ``testing.check_model``
checks for every entry of the registry: ``local(A ++ B) == combine(local(A), local(B))``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from daskgp.models.values import Block, Footprint, Moments, Objective, Shape, Theta, ThetaBar, Want
from daskgp.typing import Array


def one_place(setting: str, value: str, joint: str) -> str | None:
    """Return why a setting has no joint covariance; None where it has its ``joint`` value."""
    if value == joint:
        return None
    return (
        f"{setting}={value!r} gives the variance of one place at a time: ask for return_std, or "
        f"fit with {setting}={joint!r}"
    )


Prepared = TypeVar("Prepared")
Stats = TypeVar("Stats", bound=tuple)
State = TypeVar("State", bound=tuple)


class Declared(Protocol):
    """Base of all methods: what a method says of itself, so that nothing else has to know it."""

    name: ClassVar[str]
    """Name in the registry, in stores and on the command line."""
    state_type: ClassVar[Any]
    """NamedTuple of the arrays that a model store keeps."""
    keeps_rows: ClassVar[bool] = False
    """Whether prediction reads training rows back."""
    divisible: ClassVar[bool] = True
    """Whether the rows of a unit may be summarised part by part: the summary is a sum over rows."""

    @property
    def likelihood_name(self) -> str:
        """Name of the likelihood of y given f."""
        return "gaussian"

    @property
    def noisy(self) -> bool:
        """Whether the variance is that of new observations alone."""
        return False

    def why_no_variance(self) -> str | None:
        """Return why there is no variance at all, with a remedy; None where there is."""
        return None

    def why_no_joint(self) -> str | None:
        """Return why there is no joint covariance, with a remedy; None where there is."""
        return None

    def steadier(self) -> str:
        """Return what keeps a variance from being negative beyond rounding."""
        return "dtype='float64' or a larger noise_variance"


class Model(Declared, Protocol[Prepared, Stats, State]):
    """What every method offers; see the module's docstring for the order of the calls."""

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


class Ensemble(Declared, Protocol):
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
