"""Contract that every method meets.

A method is a value: a frozen dataclass of settings with pure functions over arrays.  It knows
nothing about Dask, files or scaling.  It receives its rows as ``Rounds`` and makes its own passes
over them; in a test they are a list of blocks (``testing.rows_of``)::

    model.evaluate(theta, rows)                 # objective and gradient, during training
    state, value = model.solve(theta, rows)     # once, after training
    model.predict(theta, state, X, near)        # a lazy map

A method with ``keeps_rows`` reads training rows back to predict: ``near`` is what
``model.condition(theta, state, blocks)`` returned for the blocks around X.  Most methods are sums
of local summaries and get ``evaluate`` and ``solve`` from ``additive.Additive``.  Numbers of its
own that a method learns are ``kernels.Numbers`` in the place of the kernel; with a trainer of its
own, ``theta`` may be an extension of ``Theta``.  Two methods are only ``Declared``: the
decoupled GP is trained by steps, whose sums also serve natural gradients, and CGGP has no
objective.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from daskgp.kernels import Kernel
from daskgp.models.values import (
    Across,
    Block,
    Footprint,
    Moments,
    Objective,
    Shape,
    Theta,
    Want,
)
from daskgp.typing import Array


def one_place(setting: str, value: str, joint: str) -> str | None:
    """Return why a setting rules out a joint covariance; None if it has its ``joint`` value."""
    if value == joint:
        return None
    return (
        f"{setting}={value!r} gives the variance of one place at a time: ask for return_std, or "
        f"fit with {setting}={joint!r}"
    )


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass over rows: what tasks compute from them, and how the results are summed.

    Parameters
    ----------
    name : str
        Name of the method and of the pass, as the dashboard shows it.
    function : callable
        Pure: ``function(piece, *shared)`` returns statistics; for a ``together`` pass,
        ``function(pieces, *shared)``.
    combine : callable
        Sums the statistics of adjacent pieces; associative, may overwrite its first argument.
    cut : bool
        Whether the rows of a unit may come in several pieces whose statistics are summed.
    together : bool
        Whether the function takes several units at a time, which a GPU processes side by side.
    tile : int, optional
        Maximum rows of a piece; by default a whole unit, or what a GPU has memory for.
    located : bool
        Whether pieces carry the numbers of their rows.
    keeping : callable, optional
        Like ``function``, but also returns what a later pass can use: a pair of statistics and
        residual, or of statistics and a list of residuals, one per unit.
    kept_bytes : callable, optional
        ``kept_bytes(rows=, targets=, itemsize=)``: bytes of the residuals of a unit of that
        many rows.
    generous : bool
        Whether residuals may use their whole share of the memory.
    method : optional
        Method whose ``footprint`` says how many rows fit on a GPU.
    described : str
        Name of a unit of ``{rows}`` rows in errors.
    remedy : str, optional
        What to do if a GPU has too little memory.
    in_place : bool
        Whether ``combine`` overwrites its first argument.
    light : bool
        Whether it hardly does more than read the rows of units, so that a task takes many.
    """

    name: str
    function: Callable[..., Any]
    combine: Callable[[Any, Any], Any]
    cut: bool = True
    together: bool = False
    tile: int | None = None
    located: bool = False
    keeping: Callable[..., Any] | None = None
    kept_bytes: Callable[..., int] | None = None
    generous: bool = False
    method: Any = None
    described: str = "a block of {rows} rows"
    remedy: str | None = None
    in_place: bool = True
    light: bool = False


class Rounds(Protocol):
    """Rows of a method, wherever they are stored: all that it asks of its surroundings."""

    @property
    def n_units(self) -> int:
        """Number of units: blocks, experts or parts of a mini-batch."""

    @property
    def n_rows(self) -> int:
        """Number of rows of all units."""

    @property
    def barriers(self) -> Any:
        """Barriers between rows, `daskgp.models.markov.barriers.Barriers`; None for none."""

    def sum(self, over: Pass, *shared: Any, kept: Any = None) -> Any:
        """Return the results of a pass summed over all units, in their order."""

    def forward(self, over: Pass, *shared: Any) -> tuple[Any, Any]:
        """Return ``sum``, and what a later pass takes as ``kept`` if memory allows."""

    def gather(self, over: Pass, *shared: Any) -> list[Any]:
        """Return the result of a pass for each unit."""

    def map(
        self,
        function: Callable[..., Any],
        *shared: Any,
        which: Sequence[int] | None = None,
        arguments: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Return ``function(rows, *shared, argument)`` for each unit, whose rows are Rounds too."""

    def values(self, over: Pass, width: int, *shared: Any) -> np.ndarray:
        """Return values (n, width) of a located pass by row; 0 for rows with missing values.

        The pass returns them as (rows, width).
        """

    def draw(self, share: float | None) -> Any:
        """Return a draw of a share of all rows, or of one row per unit, for ``drawn``.

        Its ``among(unit, part)`` tells which rows of a part of a unit are drawn.
        """

    def drawn(self, draw: Any) -> Rounds:
        """Return the same units, each with only its drawn rows."""

    def batch(self, number: int, seed: int) -> Rounds:
        """Return about ``number`` rows, weighted by the inverse probability of being drawn."""

    def points(self, panel_rows: int | None = None) -> Any:
        """Return all rows again, for passes that pair every row with all of them.

        A pass that shares them calls ``pieces(columns)`` for panels of rows, which have
        ``columns.rows(i, places)`` instead of targets: i is the panel and ``places`` its rows.
        """

    def hold(self, value: Any) -> Any:
        """Return ``value`` for sharing with many passes, sent to workers once."""

    def solving(self, order: int | None) -> AbstractContextManager[Any]:
        """Return a context for solves of size ``order``; None stands for that of all rows."""


class Declared(Protocol):
    """Base of all methods: what a method declares, so that no other code has to know it."""

    name: ClassVar[str]
    """Name in the registry, in stores and on the command line."""
    state_type: ClassVar[Any]
    """NamedTuple of the arrays that a model store keeps."""
    keeps_rows: ClassVar[bool] = False
    """True if prediction reads training rows back."""
    stats_type: ClassVar[Any] = None
    """NamedTuple of the sums over rows that a fit follows from; None for a method without any."""
    divisible: ClassVar[bool] = True
    """True if the rows of a unit may be summarised in parts: the summary is a sum over rows."""
    takes_noise: ClassVar[bool] = False
    """True if it uses the noise variances of rows, ``Block.noise``: known errors and weights."""
    takes_columns: ClassVar[bool] = False
    """True if its likelihood has the numbers that it takes beside y, ``Block.observed``."""
    takes_neighbours: ClassVar[bool] = False
    """True if it conditions rows on those of other units, ``Piece.near``."""
    takes_trend: ClassVar[bool] = False
    """True if it has a setting ``trend``, and with it products of targets and trend functions."""
    uses_kernel: ClassVar[bool] = True
    """True if it has the kernel; for others ``kernel`` is no setting and nothing shows it."""
    has_evidence: ClassVar[bool] = True
    """True if its objective is the log evidence of a GP with the kernel, a bound or the like; that
    of some rows then tells where training starts, and what it has missed."""
    near_for_all: ClassVar[bool] = False
    """True if predictions from the rows near a place, which are read back, stand for those from all
    rows, which differ, as of a GP; those from the k nearest are the same once these are read."""
    tells_rows: ClassVar[bool] = False
    """True if ``loo`` can be given some of the rows: they are told from others by what is kept."""
    varies_by_window: ClassVar[bool] = False
    """True if all rows of a window have hyper-parameters of its middle, where these vary."""

    @property
    def likelihood_name(self) -> str:
        """Name of the likelihood of y given f."""
        return "gaussian"

    def at_own_rows(self) -> Self:
        """Return the method that predicts f at the training rows themselves, maybe at less cost."""
        return self

    def of_kinds(self, counts: np.ndarray) -> Self:
        """Return the method for rows whose last column holds codes, of so many rows each (p,)."""
        return self

    def of_units(self, number: int) -> Self:
        """Return the method for rows in that many units; itself unless their number matters."""
        return self

    def why_no_kernel(self, kernel: Kernel) -> str | None:
        """Return the kernels that it takes, in words, if this is none of them; else None."""
        return None

    def with_added(self, state: Any, first: int) -> Self:
        """Return the method once rows from number ``first`` on are added to its fit."""
        return self

    def with_taken(self) -> Self:
        """Return the method once rows are taken out of its fit."""
        return self

    @property
    def noisy(self) -> bool:
        """True if the variance is that of new observations alone; no noise is added to it."""
        return False

    @property
    def shows_noise(self) -> bool:
        """True if the noise variance says something: it is learned, or added to variances."""
        return self.uses_kernel or not self.noisy

    def quiet_setting(self) -> str | None:
        """Return the setting with which a ``noisy`` method is not; None if there is none."""
        return None

    def no_weights(self) -> str:
        """Return why rows have no weights where it is ``noisy``, with a remedy."""
        setting = self.quiet_setting()
        return (
            "the rows have weights, and this method does not tell noise from f: "
            f"{f'fit with {setting}' if setting else 'leave sample_weight out'}"
        )

    def why_no_variance(self) -> str | None:
        """Return why there is no variance at all, with a remedy; None if there is one."""
        return None

    def why_no_joint(self) -> str | None:
        """Return why there is no joint covariance, with a remedy; None if there is one."""
        return None

    def why_no_update(self) -> str | None:
        """Return why rows cannot be added to a fit, with a remedy; None if they can."""
        if self.stats_type is not None:
            return None
        return (
            "its fit is not a sum over rows: fit all rows again, fit(..., start=model) or daskgp "
            "update --retrain"
        )

    def why_no_forget(self) -> str | None:
        """Return why rows cannot be taken out of a fit, with a remedy; None if they can."""
        return self.why_no_update()

    def why_no_paths(self) -> str | None:
        """Return why there are no sample paths, with a remedy; None if ``paths`` draws them."""
        if hasattr(self, "paths"):
            return None
        return (
            "this method has no sample paths: choose LMA, SGPR or SVGP, or sample_y for a few rows"
        )

    def stands_for_rows(self, theta: Theta, state: Any) -> tuple[str, Any] | None:
        """Return places (m, d) that stand for the training rows, and what one is; None if none."""
        return None if theta.inputs is None else ("inducing input", theta.inputs)

    def why_no_loo(self) -> str | None:
        """Return why there are no leave-one-out predictions; None if ``loo`` makes them."""
        if hasattr(self, "loo"):
            return None
        return (
            "this method has no leave-one-out predictions of its fit: take daskgp.cross_validate "
            "with a number of folds, or ExactGP, SGPR, SparseSpectrumGP, LMA, PIC or VecchiaGP"
        )

    def conditioned_on(self) -> str | None:
        """Return which of the rows around a place predict it; None for all of them."""
        return None

    def one_by_one(self, theta: Theta, state: Any) -> bool:
        """Return whether places have no joint prior, as each is conditioned on those before it."""
        return theta.varying is not None

    def steadier(self) -> str:
        """Return a setting that keeps variances from being negative beyond rounding."""
        return "dtype='float64' or a larger noise_variance"


class Method(Declared, Protocol):
    """Interface of every method; see the module's docstring for the order of the calls."""

    @abstractmethod
    def evaluate(self, theta: Theta, rows: Rounds) -> Objective:
        """Return the objective of all rows with its full gradient."""

    @abstractmethod
    def solve(self, theta: Theta, rows: Rounds) -> tuple[Any, float]:
        """Return what prediction needs and the value of the objective."""

    @abstractmethod
    def predict(
        self, theta: Theta, state: Any, X: Array, near: Any = None, want: Want = "mean"
    ) -> Moments:
        """Return the posterior of f at X (n, d); ``near`` is the result of ``condition`` if any."""

    def exact_limit(self, theta: Theta, X: Array) -> tuple[Method, Theta] | None:
        """Return settings and hyper-parameters at which the method is the exact GP on rows X.

        None if no finite setting is exact.
        """
        return None

    @abstractmethod
    def footprint(self, shape: Shape) -> Footprint:
        """Return the bytes and operations needed, for ``plan``."""


class Summed(Method, Protocol):
    """A method whose fit follows from sums over rows, to which more rows can be added.

    The sums are a ``stats_type`` of arrays and numbers: those of two sets of rows add up to those
    of both.
    """

    def totals(self, theta: Theta, rows: Rounds) -> tuple[Any, Any]:
        """Return what all rows need, computed once, and the sums over the rows."""

    def concluded(self, theta: Theta, prepared: Any, total: Any, rows: Rounds) -> tuple[Any, float]:
        """Return what prediction needs and the value of the objective, from the sums alone."""

    def misfit(self, prepared: Any, total: Any) -> float | None:
        """Return y' C^-1 y, whose expectation under the model is the number of values of y.

        None if it is not known.
        """


class Conditioned(Protocol):
    """Further parts of a method whose predictions read training rows back (``keeps_rows``)."""

    def features(self, theta: Theta, state: Any, X: Array) -> Array:
        """Return the features of rows X (n, d) that ``condition`` can reuse for every group."""
        return X[:, :0]

    @abstractmethod
    def condition(
        self,
        theta: Theta,
        state: Any,
        blocks: Sequence[Block],
        features: Sequence[Array] | None = None,
    ) -> Any:
        """Return what predictions need of the rows of ``blocks``; features may be given.

        The result has ``nbytes``.
        """

    def picks(self, state: Any, X: np.ndarray, near: np.ndarray) -> np.ndarray | None:
        """Return which of the rows ``near`` (w, d) any of the places X is conditioned on.

        None stands for all of them.
        """
        return None

    def factored(self, theta: Theta, state: Any, near: Any) -> Any:
        """Return the result of ``condition`` as ``predict_from`` takes it."""
        return near

    def across(self, theta: Theta, state: Any, X: Array, near: Array) -> Across:
        """Return what ties places X (n, d) to training rows (w, d)."""

    def predict_from(
        self, state: Any, near: Any, across: Across, prior: Array, want: Want
    ) -> Moments:
        """Return the posterior of places, or of sums over places, that are so tied to rows.

        ``near`` is the result of ``condition``, ``prior`` are variances (n,) or covariances (n, n).
        """

    def of_sum(self, theta: Theta, state: Any, X: Array, v: Array, near: Any) -> Moments:
        """Return mean (1, p) and variance (1,) of the sum of f over places X (n, d) by v (n,).

        It is asked for where ``one_by_one`` is True.
        """


class Experts(Protocol):
    """The experts' training rows, read back one expert at a time."""

    def __len__(self) -> int:
        """Return the number of experts."""

    def rows(self, i: int) -> Block:
        """Return the scaled rows of expert i."""

    def conditioned(self, *experts: int) -> Any:
        """Return ``condition`` of the rows of one expert, or of several together."""
