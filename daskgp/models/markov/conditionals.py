"""Rows conditioned on a few earlier rows each: their weights, and the sums that training needs.

Letters, for one row with k rows before it, its own last: S = K + D their covariance, or
K - A A' + D without what features A explain; L L' = S; w = L^-T e_last, so that w'y is the row's
residual over its standard deviation and 1 / w_last^2 its conditional variance.  z = w'y (s,);
beta = S_cc^-1 y_c (k, s) for the rows c before it.  By the logarithm j of a hyper-parameter,
a_j = w' dS_j w and b_j = w' dS_j [beta, 0].

Forms that agree to rounding: compiled, on the host for kernels that are programs
(``kernels.program``); by array functions on every device, where windows of many rows are left to
LAPACK one by one; and, for all other kernels, by their own code and pullbacks.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import os
import time
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from daskgp.arrays import backend, batched
from daskgp.arrays.backend import namespace, number, to_host, wide
from daskgp.errors import NumericalError
from daskgp.kernels import Averaged, Kernel
from daskgp.kernels.program import (
    Program,
    averaged_program,
    program,
    tiles,
    tiles_of,
    with_nodes,
)
from daskgp.models.markov.windows import Stats
from daskgp.models.values import Theta, add, variances
from daskgp.models.varying import Varying
from daskgp.typing import Array

logger: logging.Logger = logging.getLogger(__name__)

MOST_COMPILED = 256
"""Most earlier rows of compiled code; windows beyond it are left to LAPACK."""
ROWS = 4_096
"""Most rows that compiled code is given at a time."""
TILE_NUMBERS, DEVICE_STEPS = 1 << 22, 64
"""Most numbers in the stacked tiles of a step of array functions, and the factor for a device,
which small steps would leave idle."""
LEAST_PIVOT = 1e-14
"""Least conditional variance of a row, relative to its variance, that is not rounding."""
LONG = 2.0
"""Seconds after which the log says what took so long."""
PATIENCE = 120.0
"""Seconds to wait for another process that compiles the same code."""


class Conditionals(NamedTuple):
    """Rows conditioned on earlier ones.

    ``X`` (n, d) and ``y`` (n, s), targets and then trend columns, are all rows, ``noise`` (n, 2)
    is their ``Block.noise``; ``own`` (g,) numbers of the rows in question and ``near`` (g, k) of
    those each is conditioned on, -1 where there are fewer; ``often`` (g,) says how often each
    counts in sums, once without.
    """

    X: Array
    y: Array
    noise: Array | None
    own: Array
    near: Array
    often: Array | None = None

    @property
    def rows(self) -> Array:
        """Numbers of the rows of each window, its own last (g, k + 1)."""
        return namespace(self.near).concatenate([self.near, self.own[:, None]], axis=1)

    @property
    def width(self) -> int:
        """Number of rows of a window, k + 1."""
        return int(self.near.shape[1]) + 1

    def steps(self, step: int) -> Iterator[Conditionals]:
        """Yield the rows in question some at a time."""
        for i in range(0, len(self.own), step):
            rows = slice(i, i + step)
            often = None if self.often is None else self.often[rows]
            yield self._replace(own=self.own[rows], near=self.near[rows], often=often)


class Scores(NamedTuple):
    """Sums over rows for their log density and its derivatives; they combine by adding."""

    square: Array
    """Sum of z z' (s, s)."""
    logdet: float
    """Sum of the logarithms of the conditional variances."""
    gradient: np.ndarray
    """Gradient by the logarithms of the kernel's hyper-parameters and noise variance (l + 1,)."""
    information: np.ndarray
    """Fisher information of the same (l + 1, l + 1)."""
    rows: float
    """Number of rows."""


class _Slopes(NamedTuple):
    """z (g, s), the logarithms (g,) of conditional variances, a (g, l + 1), b (g, l + 1, s)."""

    z: Array
    logs: Array
    a: Array
    b: Array


def weights(theta: Theta, c: Conditionals, features: Array | None = None) -> Array:
    """Return the weights w (g, k + 1) of the rows of each window, its own last; 0 for no row.

    Parameters
    ----------
    theta : Theta
    c : Conditionals
    features : (n, m) array, optional
        A: the weights are those of the residual K - A A' + D.

    Raises
    ------
    NumericalError
        If the rows before a row determine it, so that its conditional variance is lost in rounding.
    """
    xp = namespace(c.X)
    form = _form(theta, c)
    if form is not None:
        c, A = _plain(c), None if features is None else _numbers(features)
        parts = [_run(form, theta, part, A, slopes=False)[0] for part in c.steps(ROWS)]
    else:
        m = 0 if features is None else features.shape[1]
        parts = [
            _factored(theta, part, features).weights for part in c.steps(_step(c, 4 + m / c.width))
        ]
    return xp.concatenate(parts) if parts else xp.zeros((0, c.width))


def combined(w: Array, c: Conditionals, columns: Array) -> Array:
    """Return the sums (g, q) of columns (n, q) over the rows of each window, weighted by w."""
    xp = namespace(w, columns)
    code = compiled() if xp is np else None
    if code is not None:
        return code.combined(_numbers(w), *_places(c, len(columns)), _numbers(columns))
    sums, rows = xp.empty((len(w), columns.shape[1])), xp.maximum(c.rows, 0)
    step = max(1, _most_numbers(w) // max(1, w.shape[1] * columns.shape[1]))
    for i in range(0, len(w), step):
        own = slice(i, i + step)
        sums[own] = xp.matmul(w[own, None, :], wide(columns[rows[own]]))[:, 0]
    return sums


def among(w: Array, c: Conditionals, first: int) -> Array:
    """Return the weights (g, g) that own rows, which are numbered from ``first`` on, have there."""
    xp, g = namespace(w), len(c.own)
    rows, columns = xp.nonzero(c.rows >= first)
    B = xp.zeros((g, g))
    B[rows, c.rows[rows, columns] - first] = w[rows, columns]
    return B


def summed(w: Array, c: Conditionals, features: Array | None = None) -> Stats:
    """Return the sums over windows of one own row each, from the weights of their residual."""
    E = namespace(w).zeros((len(w), 0)) if features is None else combined(w, c, features)
    return stats_of(w, c, E)


def stats_of(w: Array, c: Conditionals, E: Array) -> Stats:
    """Return the sums over windows of one own row each, from their weights and E (g, m)."""
    xp = namespace(w)
    e, logs = combined(w, c, c.y), -2.0 * xp.log(w[:, -1])
    if c.often is None:
        return Stats(E.T @ E, E.T @ e, e.T @ e, number(logs.sum()), float(len(w)))
    often = wide(c.often)
    F, f = often[:, None] * E, often[:, None] * e
    return Stats(E.T @ F, F.T @ e, e.T @ f, number(often @ logs), number(often.sum()))


def scores(theta: Theta, c: Conditionals, W: Array, targets: int, knots: bool = False) -> Scores:
    """Return the sums over rows, with the derivatives of their log density.

    That is -1/2 (p log|C| + <W, square>) for p targets, its derivative by hyper-parameter j of one
    row -1/2 p a_j + z' W b_j + 1/2 (z' W z) a_j, and its information 1/2 p a_j a_l + b_j' W b_l.
    Where hyper-parameters vary these are of the common ones or, with ``knots``, of the (K k,) of K
    knots: a row with the weights w_r has w_r times its derivative, and w_r w_q its information.

    Parameters
    ----------
    theta : Theta
    c : Conditionals
    W : (s, s) array
        Symmetric: how the products of the columns of y count.
    targets : int
        Number p of targets.

    Raises
    ------
    NumericalError
        As ``weights``.
    """
    s, count = c.y.shape[1], len(theta.kernel.log_parameters) + 1
    if not knots:
        parts = (_sums(own, part.often, W, targets) for part, own in _derivatives(theta, c))
    else:
        varying = theta.varying
        assert varying is not None
        count *= len(varying.knots)
        parts = (
            _sums_of_knots(own, part, W, targets, varying) for part, own in _derivatives(theta, c)
        )
    zero = namespace(c.X).zeros((s, s)), 0.0, np.zeros(count), np.zeros((count, count)), 0.0
    return reduce(add, parts, Scores(*zero))


def log_densities(theta: Theta, c: Conditionals, W: Array, targets: int) -> np.ndarray:
    """Return -1/2 (p log C + z' W z) of each row (g,) for p targets."""
    w = weights(theta, c)
    z = combined(w, c, c.y)
    xp = namespace(z)
    square = ((z @ xp.asarray(W)) * z).sum(axis=1)
    return np.asarray(to_host(targets * xp.log(w[:, -1]) - 0.5 * square))


def _derivatives(theta: Theta, c: Conditionals) -> Iterator[tuple[Conditionals, _Slopes]]:
    """Yield some of the rows at a time with their derivatives."""
    form = _form(theta, c)
    if form is not None:
        for part in _plain(c).steps(ROWS):
            _, z, by_log = _run(form, theta, part, None, slopes=True)
            yield part, _Slopes(z[:, :-1], z[:, -1], by_log[:, :, 0], by_log[:, :, 1:])
        return
    step = _step(c, 4 + theta.kernel.tiles + len(theta.kernel.log_parameters))
    for part in c.steps(step):
        yield part, _slopes(theta, part)


def _sums(slopes: _Slopes, often: Array | None, W: Array, targets: int) -> Scores:
    """Return the sums over some rows."""
    z, logs, a, b = slopes
    xp = namespace(z)
    W, often = xp.asarray(W), xp.ones(len(z)) if often is None else wide(often)
    gradient, bW = _gradients(slopes, W, targets), b @ W
    flat, flat_W = (
        B.transpose(1, 0, 2).reshape(B.shape[1], -1) for B in (b, bW * often[:, None, None])
    )
    return Scores(
        z.T @ (often[:, None] * z),
        number(often @ logs),
        to_host(often @ gradient),
        to_host(0.5 * targets * (a.T @ (often[:, None] * a)) + flat @ flat_W.T),
        number(often.sum()),
    )


def _gradients(slopes: _Slopes, W: Array, targets: int) -> Array:
    """Return the derivatives (g, l + 1) of the log density of each row."""
    z, _, a, b = slopes
    xp, zW = namespace(z), z @ W
    square = (zW * z).sum(axis=1)
    found: Array = 0.5 * (square - targets)[:, None] * a + xp.matmul(b, zW[:, :, None])[:, :, 0]
    return found


def _sums_of_knots(
    slopes: _Slopes, c: Conditionals, W: Array, targets: int, varying: Varying
) -> Scores:
    """Return the sums over some rows, with the derivatives by hyper-parameters of knots."""
    z, logs, a, b = slopes
    xp = namespace(z)
    W, often = xp.asarray(W), xp.ones(len(z)) if c.often is None else wide(c.often)
    gradient = often[:, None] * _gradients(slopes, W, targets)
    each = xp.matmul(b @ W, b.transpose(0, 2, 1)) + 0.5 * targets * a[:, :, None] * a[:, None, :]
    each = often[:, None] * each.reshape(len(z), -1)
    (near, w), K, k = varying.blend(c.X[c.own]), len(varying.knots), a.shape[1]
    pairs = near[:, :, None] * K + near[:, None, :], w[:, :, None] * w[:, None, :]
    information = _spread(*pairs, K * K).T @ to_host(each)
    turned = information.reshape(K, K, k, k).transpose(0, 2, 1, 3)
    return Scores(
        z.T @ (often[:, None] * z),
        number(often @ logs),
        (_spread(near, w, K).T @ to_host(gradient)).ravel(),
        turned.reshape(K * k, K * k),
        number(often.sum()),
    )


def _spread(columns: np.ndarray, values: np.ndarray, count: int) -> csr_array:
    """Return a sparse matrix (g, count) with some values (g, ...) in these columns of each row."""
    g = len(columns)
    starts = np.arange(g + 1) * (columns.size // max(g, 1))
    return csr_array((values.ravel(), columns.ravel(), starts), shape=(g, count))


# --- compiled


@functools.cache
def compiled(name: str = "compiled") -> ModuleType | None:
    """Return a module of compiled code, compiled by one process at a time; None without numba."""
    if importlib.util.find_spec("numba") is None:
        logger.info(
            "numba is not installed: NumPy conditions rows on neighbours, ten times as slowly"
        )
        return None
    started = time.perf_counter()
    try:
        with _alone():
            module = importlib.import_module(f"daskgp.models.markov.{name}")
    except Exception as error:  # noqa: BLE001 - whatever a later version cannot compile
        logger.warning(
            "numba cannot be used (%s), so NumPy conditions rows on neighbours, which takes "
            "ten times as long: install a numba that works here",
            error,
        )
        return None
    seconds = time.perf_counter() - started
    if seconds > LONG:
        logger.info(
            "compiled code for neighbours is there after %.0f s; it is kept for later", seconds
        )
    return module


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep other processes of the user from doing the same, where they share a folder for it."""
    import locket  # of no use where there is nothing to compile

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, RuntimeError, locket.LockError):  # then without a lock
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "daskgp"
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locket.lock_file(str(folder / "compiling.lock"), timeout=PATIENCE))
        yield


_Form: TypeAlias = tuple[ModuleType, Program, tuple[Averaged, ...]]


def _form(theta: Theta, c: Conditionals) -> _Form | None:
    """Return compiled code and the kernel's program, None if there is none for the rows."""
    if namespace(c.X) is not np or c.width > MOST_COMPILED + 1:
        return None
    d, varies = c.X.shape[1], theta.varying is not None
    known = _program(theta.kernel, d, varies)
    areas: tuple[Averaged, ...] = ()
    found = averaged_program(theta.kernel, d) if known is None and not varies else None
    if found is not None:
        known, areas = found
    code = None if known is None else compiled()
    if code is None or known is None:
        return None
    known.check(known.mixed(c.X))  # compiled code takes codes as they are
    return code, known, areas


def _program(kernel: Kernel, d: int, varies: bool) -> Program | None:
    """Return the program of a kernel; None for one that is rotated, where its numbers vary."""
    known = program(kernel, d)
    return None if known is None or (varies and known.mix is not None) else known


def _plain(c: Conditionals) -> Conditionals:
    """Return the rows as compiled code takes them."""
    noise = None if c.noise is None else _numbers(c.noise)
    return c._replace(X=_numbers(c.X), y=_numbers(c.y), noise=noise)


def _numbers(array: np.ndarray) -> np.ndarray:
    return np.require(array, np.float64, ["C", "A"])


def _places(c: Conditionals, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of rows; raise IndexError, as NumPy does, unless they are below n."""
    own, near = (np.require(rows, np.int64, ["C", "A"]) for rows in (c.own, c.near))
    if own.min(initial=0) < 0 or max(own.max(initial=-1), near.max(initial=-1)) >= n:
        raise IndexError(f"numbers of rows are not all between 0 and {n - 1}")
    return own, near


def _run(
    form: _Form, theta: Theta, c: Conditionals, features: np.ndarray | None, slopes: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what compiled code does; raise NumericalError for rows that are determined."""
    code, known, areas = form
    own, near = _places(c, min(len(a) for a in (c.X, c.noise, features) if a is not None))
    values, X = theta.at(c.X[own]), _numbers(with_nodes(known.mixed(c.X), areas))
    if known.mix is not None:
        values = np.append(known.values, theta.noise_variance)[None]
    w, z, by_log = code.windows(
        known, values, X, c.y, c.noise, own, near, features, slopes, LEAST_PIVOT
    )
    if known.gather is not None:
        by_kernel = known.gathered(by_log[:, :-1])
        by_log = np.concatenate([by_kernel, by_log[:, -1:]], axis=1)
    lost = np.isnan((z if slopes else w)[:, -1])
    if lost.any():
        first = int(lost.argmax())
        _factored(theta, c._replace(own=own[first:][:1], near=near[first:][:1]), features)
        raise _determined(theta)
    return w, z, by_log


# --- by array functions


Contract: TypeAlias = Callable[[Array, Array], Array]
"""Function of w (g, k + 1) and vectors v (g, q, k + 1) that returns w' dK_j v (g, l, q)."""


class _Windows(NamedTuple):
    """Windows of the same number of rows: L (g, w, w), weights and numbers of their rows (g, w).

    ``present`` (g, w) is 0 for rows that are not there, whose number is 0; ``noise_variance`` is a
    number or, where it varies, (g, 1).
    """

    factors: Array
    weights: Array
    rows: Array
    present: Array
    contract: Contract
    noise_variance: Any


def _step(c: Conditionals, each: float) -> int:
    """Return how many windows of ``each`` tiles are worked on at a time."""
    if namespace(c.X) is np and c.width > MOST_COMPILED:
        return 1  # routines for one large matrix
    return max(1, int(_most_numbers(c.X) / (each * c.width**2)))


def _most_numbers(like: Array) -> int:
    """Return the most numbers in the tiles of a step where an array is."""
    return TILE_NUMBERS if namespace(like) is np else DEVICE_STEPS * TILE_NUMBERS


def _factored(
    theta: Theta, c: Conditionals, features: Array | None, slopes: bool = False
) -> _Windows:
    """Return the windows, factored."""
    rows = c.rows
    xp = namespace(c.X, rows)
    present, rows = (rows >= 0).astype(np.float64), xp.maximum(rows, 0)
    values, s = None, theta.noise_variance
    if theta.varying is not None:
        each = theta.at(c.X[c.own])
        values, s = each[:, :-1], xp.asarray(each[:, -1:])
    S, contract = _covariances(theta.kernel, wide(c.X[rows]), values, slopes)
    i = xp.arange(c.width)
    noise = None if c.noise is None else wide(c.noise[rows])
    S[:, i, i] += variances(s, noise)
    variance = xp.where(present > 0, S[:, i, i], 1.0)
    if features is not None:
        A = wide(features[rows])
        S -= xp.matmul(A, A.transpose(0, 2, 1))
    S *= present[:, :, None] * present[:, None, :]
    S[:, i, i] += 1.0 - present
    L = _factors(theta, S, variance)
    last = xp.zeros((len(rows), 1, c.width))
    last[:, 0, -1] = 1.0
    w = batched.unwhiten_stack(L, last)[:, 0]
    return _Windows(L, w, rows, present, contract, s)


def _covariances(
    kernel: Kernel, X: Array, values: np.ndarray | None, slopes: bool
) -> tuple[Array, Contract]:
    """Return K (g, w, w) of sets of rows (g, w, d), and with ``slopes`` its derivatives.

    ``values`` (g, l) are the hyper-parameters of each set, None for those of the kernel.
    """
    xp = namespace(X)
    known = _program(kernel, X.shape[2], values is not None)
    if known is not None:
        own = known if values is None else known._replace(values=values)
        K, by_log = tiles(own, X, slopes)
        return K, functools.partial(_contract_tiles, by_log)
    found = None if values is not None else tiles_of(kernel, X, slopes)
    if found is not None:
        return found[0], functools.partial(_contract_tiles, found[1])
    kernels = _each(kernel, values, len(X))
    if not slopes:
        K = xp.stack([own(one) for own, one in zip(kernels, X, strict=True)])
        return K, functools.partial(_contract_tiles, None)
    pairs = [own.pullback(one) for own, one in zip(kernels, X, strict=True)]
    return xp.stack([K for K, _ in pairs]), functools.partial(_contract_pulls, pairs)


def _each(kernel: Kernel, values: np.ndarray | None, count: int) -> list[Kernel]:
    """Return the kernel of each of ``count`` sets of rows."""
    if values is None:
        return [kernel] * count
    return [kernel.with_log_parameters(np.log(own)) for own in values]


def prior_variances(theta: Theta, X: Array) -> Array:
    """Return the variances (n,) of f at rows X (n, d) before any are seen."""
    if theta.varying is None:
        return theta.kernel.diag(X)
    one_by_one = wide(X)[:, None, :]
    return _covariances(theta.kernel, one_by_one, theta.at(X)[:, :-1], False)[0][:, 0, 0]


def _contract_tiles(by_log: Array, w: Array, ends: Array) -> Array:
    xp = namespace(w)
    products = xp.matmul(by_log, w[:, :, None])[..., 0]  # dK_j w (l, g, k + 1)
    return xp.matmul(products.transpose(1, 0, 2), ends.transpose(0, 2, 1))


def _contract_pulls(pairs: list[Any], w: Array, ends: Array) -> Array:
    """Contract by pullbacks: that of K_bar = w v' is w' dK_j v."""
    sums = [
        [pull(0.5 * (one[:, None] * end + end[:, None] * one)).log_parameters for end in vectors]
        for (_, pull), one, vectors in zip(pairs, w, ends, strict=True)
    ]
    return namespace(w).asarray(np.array(sums).transpose(0, 2, 1))


def _factors(theta: Theta, S: Array, variance: Array) -> Array:
    """Return the factors of S (g, w, w); raise NumericalError if a variance (g, w) is lost."""
    xp = namespace(S)
    with contextlib.suppress(np.linalg.LinAlgError):
        L = backend.cholesky(xp)(S)
        pivots = xp.diagonal(L, 0, 1, 2)
        if number((pivots * pivots > LEAST_PIVOT * variance).all()):
            return L
    if not number(xp.isfinite(S).all()):
        raise NumericalError(
            "the covariance of a row and its neighbours is not finite: look for NaN or infinity in "
            "the inputs and hyper-parameters"
        )
    raise _determined(theta)


def _determined(theta: Theta) -> NumericalError:
    """Return the error of a row that has no conditional variance of its own."""
    return NumericalError(
        "a row is determined by its neighbours to rounding, as a repeated one is at noise variance "
        f"{theta.noise_variance:.3g}: raise the noise variance, or drop repeated rows"
    )


def _slopes(theta: Theta, c: Conditionals) -> _Slopes:
    """Return the derivatives of each row."""
    L, w, rows, present, contract, s = _factored(theta, c, None, slopes=True)
    xp, k = namespace(w), c.width - 1
    y = (wide(c.y[rows]) * present[:, :, None]).transpose(0, 2, 1)  # (g, s, k + 1)
    ends = xp.zeros((len(w), 1 + y.shape[1], k + 1))  # w, then [beta, 0]
    ends[:, 0] = w
    if k:
        L_cc = L[:, :k, :k]
        half = batched.whiten_stack(L_cc, y[:, :, :k])
        ends[:, 1:, :k] = batched.unwhiten_stack(L_cc, half, overwrite=True)
    learned = s * w
    if c.noise is not None:
        learned = learned * wide(c.noise[rows])[..., 0]
    by_noise = xp.matmul(ends, learned[:, :, None]).transpose(0, 2, 1)
    both = xp.concatenate([contract(w, ends), by_noise], axis=1)
    z = xp.matmul(y, w[:, :, None])[:, :, 0]
    return _Slopes(z, -2.0 * xp.log(w[:, -1]), both[:, :, 0], both[:, :, 1:])
