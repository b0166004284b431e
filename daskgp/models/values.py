"""Values that methods exchange with their callers: rows, hyper-parameters, moments, sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from daskgp.arrays import backend
from daskgp.arrays.backend import namespace, number, to_host
from daskgp.kernels import Kernel
from daskgp.models.varying import Varying
from daskgp.typing import Array

TILE_ROWS = 4_096
"""Maximum number of rows predicted at a time."""
Want: TypeAlias = Literal["mean", "variance", "covariance"]


class Observed(NamedTuple):
    """Numbers (n,) that likelihoods take beside y, by their names; None for those not there."""

    trials: Array | None = None
    exposure: Array | None = None
    offset: Array | None = None
    lower: Array | None = None
    upper: Array | None = None

    @property
    def given(self) -> dict[str, Array]:
        """Columns that are there, as ``Likelihood.with_columns`` takes them."""
        return {name: own for name, own in self._asdict().items() if own is not None}


class Block(NamedTuple):
    """Rows of the scaled training data: X (n, d) and y (n, p), without missing values.

    ``noise`` (n, 2) describes rows whose noise variances differ: u and e of d = s u + e, with s
    the noise variance that is learned.  None: all have s.  ``observed`` are numbers that a
    likelihood takes beside y, if there are any.
    """

    X: Array
    y: Array
    noise: Array | None = None
    observed: Observed | None = None

    def at(self, rows: Any) -> Block:
        """Return some of the rows, by a slice, a mask or their numbers."""
        return _of_arrays(self, lambda array: array[rows])

    @classmethod
    def join(cls, blocks: Sequence[Block]) -> Block:
        """Return the rows of several blocks, one after another."""
        if len(blocks) == 1:
            return blocks[0]
        xp = namespace(blocks[0].X)
        parts = zip(*(block[:3] for block in blocks), strict=True)
        joined = cls(*(None if part[0] is None else xp.concatenate(part) for part in parts))
        each = [block.observed for block in blocks if block.observed is not None]
        if not each:
            return joined
        own = {name: xp.concatenate([one.given[name] for one in each]) for name in each[0].given}
        return joined._replace(observed=Observed(**own))


def _of_arrays(value: Any, function: Callable[[Array], Array]) -> Any:
    """Return a (nested) tuple with a function of its arrays, None as it is."""
    if isinstance(value, tuple):
        return type(value)(*(_of_arrays(part, function) for part in value))
    return None if value is None else function(value)


def variances(noise_variance: float | Array, noise: Array | None) -> Any:
    """Return the noise variances d of rows by their ``Block.noise``, or the one of all.

    They are (n,), or (g, n) of stacked rows, and so is s where it varies.
    """
    if noise is None:
        return noise_variance
    return noise_variance * noise[..., 0] + noise[..., 1]


def by_log_noise(noise_variance: float, noise: Array | None, d_bar: Array) -> Any:
    """Return dF/dlog s from dF/dd (n,) of rows, or from (g, n) that of each of several sets."""
    if noise is not None:
        d_bar = noise[..., 0] * d_bar
    return noise_variance * d_bar.sum(axis=-1)


class Scaled(NamedTuple):
    """Rows times r = sqrt(s / d), whose noise variance is s in every row.

    ``root`` is r (n,), ``y`` r y (n, p), ``share`` 1 - s u / d (n,), the derivative of log r^2 with
    respect to log s; r is 1 and its share 0 where all rows have s.
    """

    root: Array
    y: Array
    share: Array

    @classmethod
    def of(cls, noise_variance: float, block: Block) -> Scaled | None:
        """Return the scaled rows of a block; None where all rows have the same noise variance."""
        if block.noise is None:
            return None
        relative = noise_variance / variances(noise_variance, block.noise)
        root = namespace(relative).sqrt(relative)
        return cls(root, root[:, None] * block.y, 1.0 - relative * block.noise[:, 0])

    @property
    def logs(self) -> float:
        """Sum of log(d / s)."""
        return -2.0 * number(namespace(self.root).log(self.root).sum())

    def pulled(self, tile: Array, cotangent: Any, rows: slice) -> tuple[Array, float]:
        """Return dF/dK of a tile K (r, m) of some rows, and dF/dlog s through their scale r.

        F is a function of T = r K and t = r y with dF/dT = T @ gram + t @ projection' and dF/dt =
        T @ projection + 2 t @ square, so dF/dlog r^2 is half of <dF/dT, T> + <dF/dt, t>.
        """
        root, y = self.root[rows, None], self.y[rows]
        T = root * tile
        T_bar = T @ cotangent.gram
        T_bar += y @ cotangent.projection.T
        y_bar = T @ cotangent.projection + 2.0 * (y @ cotangent.square)
        by_root = (T_bar * T).sum(axis=1) + (y_bar * y).sum(axis=1)
        return root * T_bar, 0.5 * number((self.share[rows] * by_root).sum())


class Piece(NamedTuple):
    """Rows that a pass receives at a time, on the device of the task.

    ``near`` are the rows that a method conditions them on, ``weight`` how often each counts,
    ``span`` the unit they come from, ``places`` (n,) their numbers among all rows and
    ``near_places`` those of each block near them if the pass asks for them, and ``kept`` what the
    previous pass kept of them.
    """

    own: Block
    near: tuple[Block, ...] = ()
    weight: float | None = 1.0
    span: tuple[int, int] = (0, 0)
    places: np.ndarray | None = None
    kept: Any = None
    near_places: tuple[np.ndarray, ...] = ()


class Moments(NamedTuple):
    """Posterior of f at test inputs: mean (n, p) and variance (n,) or covariance (n, n).

    The outputs share one kernel, so one variance serves them all; None if not requested.
    ``far`` (n,) marks rows about which no training row is informative, where a local method returns
    the prior, as it does at those that barriers hide from all rows near them, ``hidden`` (n,).
    ``noisy`` says that the variance is that of a new observation, noise included.
    """

    mean: Array
    variance: Array | None = None
    covariance: Array | None = None
    far: Array | None = None
    noisy: bool = False
    hidden: Array | None = None


class Across(NamedTuple):
    """Ties of places to training rows: features (n, m), kernel (n, w), and which places are far.

    Weighted sums of the rows of both are those of the sum of f over the places.
    """

    features: Array
    kernel: Array
    far: Array | None = None


class Shape(NamedTuple):
    """Sizes that a method is planned for.

    ``block_rows`` is the number of rows of the largest block, ``inputs`` that of inducing inputs,
    ``itemsize`` the bytes of a number in a tile, ``kernel_tiles`` the number of tiles of the
    kernel's pullback, ``window_rows`` the rows of a block with those its summary is conditioned
    on, ``near_rows`` those that a prediction is conditioned on, ``device`` whether tasks compute
    on a GPU, whose tiles are larger.
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
    """Bytes and floating-point operations that a method needs.

    ``task`` is for a task, beyond the block's own rows; ``stats`` for one local summary; ``solve``
    for the peak of the small solve; ``state`` for the model store; ``operations`` for one value
    and gradient; ``predict`` for a tile of predictions with their variance, and what these carry;
    ``shared`` for what the client sends to all tasks of a round.
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
    """Hyper-parameters: a kernel, the noise variance and the inducing inputs (m, d) if any.

    Those of the kernel and the noise variance may be ``varying``; they are then the common ones.
    """

    kernel: Kernel
    noise_variance: float
    inputs: np.ndarray | None = None
    varying: Varying | None = None

    def at(self, X: Array) -> np.ndarray:
        """Return the values (n, k + 1) at rows X (n, d), the noise variance last.

        They are (1, k + 1) where all rows have the same.
        """
        common = np.append(np.exp(self.kernel.log_parameters), self.noise_variance)[None]
        return common if self.varying is None else common * np.exp(self.varying.at(X))

    def around(self, X: Array) -> Theta:
        """Return the kernel at the middle of rows X (n, d), as that of all rows."""
        if self.varying is None:
            return self
        if not len(X):
            return replace(self, varying=None)
        middle = np.asarray(to_host(X), np.float64).mean(axis=0, keepdims=True)
        logs = self.kernel.log_parameters + self.varying.at(middle)[0, :-1]
        return replace(self, kernel=self.kernel.with_log_parameters(logs), varying=None)

    def scaled(self, rows: Block) -> Block:
        """Return rows whose noise relative to the common variance is that of their places."""
        if self.varying is None:
            return rows
        xp = namespace(rows.X)
        own = xp.asarray(np.exp(self.varying.at(rows.X)[:, -1]))
        by, known = (1.0, xp.zeros(len(own))) if rows.noise is None else rows.noise.T
        return rows._replace(noise=xp.stack([by * own, known], axis=1))

    def to_vector(self, with_inputs: bool) -> np.ndarray:
        """Return the logs of kernel parameters and noise variance, then any trained inputs."""
        parts = [self.kernel.log_parameters, np.log([self.noise_variance])]
        if with_inputs and self.inputs is not None:
            parts.append(np.ravel(self.inputs))
        return np.concatenate(parts).astype(np.float64)

    def from_vector(self, vector: np.ndarray) -> Theta:
        """Return the hyper-parameters of a vector in the layout of ``to_vector``."""
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
        """Return the gradient in the layout of ``Theta.to_vector``."""
        parts = [self.kernel, np.array([self.noise])]
        if with_inputs and self.inputs is not None:
            parts.append(np.ravel(self.inputs))
        return np.concatenate(parts).astype(np.float64)


class Objective(NamedTuple):
    """Value to maximise, its direct gradient, and what ``local_vjp`` needs for the rest.

    ``cotangent`` is None if the direct gradient is already the full one.
    """

    value: float
    gradient: ThetaBar
    cotangent: Any


def add(a: Any, b: Any) -> Any:
    """Sum two tuples field by field, in place in ``a``'s own fields where they are arrays."""
    return type(a)(*(_add_field(x, y) for x, y in zip(a, b, strict=True)))


def subtract(a: Any, b: Any) -> Any:
    """Return a tuple less another, field by field, without a change of either."""
    return type(a)(*(x - y for x, y in zip(a, b, strict=True)))


def add_lists(a: list[Any], b: list[Any]) -> list[Any]:
    """Return the results of passes over some units, one list after the other."""
    return a + b


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
    """Return a (nested) tuple with its arrays moved to "cpu" or "gpu"; other values as they are."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(x, device) for x in value))
    if isinstance(value, Theta):
        return replace(value, inputs=move(value.inputs, device))
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:  # a likelihood may have a parameter of this name
        return backend.to_host(value) if device == "cpu" else backend.to_device(value, device)
    return value


def leaves(value: Any) -> Iterator[Any]:
    """Yield the arrays and numbers of a (nested) tuple."""
    if not isinstance(value, tuple):
        yield value
        return
    for part in value:
        yield from leaves(part)


def add_gradients(a: ThetaBar, b: ThetaBar) -> ThetaBar:
    """Return the sum of two gradients, either or both of which may have none for the inputs."""
    inputs = a.inputs if b.inputs is None else b.inputs
    if a.inputs is not None and b.inputs is not None:
        inputs = a.inputs + b.inputs
    return ThetaBar(a.kernel + b.kernel, a.noise + b.noise, inputs)
