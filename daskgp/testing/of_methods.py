"""Promises of every method: its sums, gradients, limits, and what it declares."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from daskgp.data.blocks.draws import Central
from daskgp.errors import InputError
from daskgp.fit.task import TaskRounds
from daskgp.models.additive import Additive
from daskgp.models.experts.ensemble import Ensemble, HeldExperts
from daskgp.models.method import Method
from daskgp.models.values import Block, Footprint, Moments, Shape, Theta, Want, variances
from daskgp.testing.check import Check, Register, promised
from daskgp.testing.computing import central_differences
from daskgp.testing.of_kernels import rows as rows_of_kernel

CHECKS: list[Check] = []
N = 24

promise: Callable[..., Register] = partial(promised, CHECKS)


Near: TypeAlias = Callable[[Any, Theta, Any, Sequence[Block]], Any]
"""Returns what ``predict`` of a method reads blocks of training rows back from."""


def _conditioned(model: Any, theta: Theta, state: Any, blocks: Sequence[Block]) -> Any:
    """Return the method's condition of blocks."""
    return model.condition(theta, state, blocks)


def rows_of(*units: Sequence[Block]) -> TaskRounds:
    """Return rows in memory as a method takes them, each unit a sequence of scaled blocks."""
    return TaskRounds.of(units)


def check_model(
    model: Additive, theta: Theta, X: np.ndarray, y: np.ndarray, noise: np.ndarray | None = None
) -> None:
    """Check a method's laws on rows X (n, d), y (n, p) in scaled units.

    Summaries combine to the summary of all rows and in any grouping; the gradient is that of
    central differences; at its exact limit, where it has one, the method is the exact GP.
    ``noise`` (n, 2) is that of ``Block``, for rows with noise variances of their own.

    Examples
    --------
    >>> from daskgp import kernels, models, testing
    >>> X, y = np.random.default_rng(0).standard_normal((2, 12, 2))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1, X[:4])
    >>> testing.check_model(models.REGISTRY["sgpr"](), theta, X, y)
    """
    check_additive(model, theta, X, y, noise)
    check_gradient(model, theta, X, y, noise=noise)
    if model.exact_limit(theta, X) is not None:
        check_exact_limit(model, theta, X, y, noise)


def check_additive(
    model: Additive, theta: Theta, X: np.ndarray, y: np.ndarray, noise: np.ndarray | None = None
) -> None:
    """Check ``local(A ++ B) == combine(local(A), local(B))``, also for empty and one-row parts.

    B is given A as its neighbour: additive methods ignore it, and the summaries of others follow
    the chain rule, p(A) p(B | A).

    Examples
    --------
    >>> from daskgp import kernels, models, testing
    >>> X, y = np.random.default_rng(0).standard_normal((2, 12, 2))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1, X[:4])
    >>> testing.check_additive(models.REGISTRY["sgpr"](), theta, X, y)
    """
    prepared = model.prepare(theta)
    rows = Block(X, y, noise)
    whole = model.local(prepared, rows)
    for cut in (0, 1, len(X) // 3, len(X)):
        A, B = rows.at(slice(0, cut)), rows.at(slice(cut, None))
        parts = model.local(prepared, A), model.local(prepared, B, (A,))
        both = model.combine(*parts)
        for name, a, b in zip(whole._fields, whole, both, strict=True):
            if a is None:
                assert b is None, name
                continue
            a, b = np.asarray(a), np.asarray(b)
            if a.ndim == 2 and a.shape[0] == a.shape[1] != len(X):
                a, b = np.tril(a), np.tril(b)  # symmetric sums fill the lower triangle only
            np.testing.assert_allclose(
                a, b, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(a).max(initial=0)), err_msg=name
            )


def value_and_gradient(
    model: Method, theta: Theta, X: np.ndarray, y: np.ndarray, noise: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return the objective and gradient (k,) of one block, without any Dask."""
    evaluation = model.evaluate(theta, rows_of([Block(X, y, noise)]))
    return evaluation.value, evaluation.gradient.to_vector(with_inputs=True)


def check_gradient(
    model: Method,
    theta: Theta,
    X: np.ndarray,
    y: np.ndarray,
    rtol: float = 1e-5,
    noise: np.ndarray | None = None,
) -> None:
    """Check that the gradient of the objective is that of central differences.

    Examples
    --------
    >>> from daskgp import kernels, models, testing
    >>> X, y = np.random.default_rng(0).standard_normal((2, 12, 2))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1, X[:4])
    >>> testing.check_gradient(models.REGISTRY["sgpr"](), theta, X, y)
    """
    _, gradient = value_and_gradient(model, theta, X, y, noise)
    wanted = central_differences(
        lambda v: value_and_gradient(model, theta.from_vector(v), X, y, noise)[0],
        theta.to_vector(with_inputs=True),
    )
    np.testing.assert_allclose(gradient, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


def check_exact_limit(
    model: Method,
    theta: Theta,
    X: np.ndarray,
    y: np.ndarray,
    noise: np.ndarray | None = None,
    near: Near = _conditioned,
) -> None:
    """Check that a method at its exact limit gives the exact GP's evidence, mean and variance.

    ``near`` is that of ``MethodAt``.

    Raises
    ------
    InputError
        If no finite setting of the method is exact.

    Examples
    --------
    >>> from daskgp import kernels, models, testing
    >>> X, y = np.random.default_rng(0).standard_normal((2, 12, 2))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1, X[:4])
    >>> testing.check_exact_limit(models.REGISTRY["sgpr"](), theta, X, y)
    """
    exact = model.exact_limit(theta, X)
    if exact is None:
        raise InputError(
            f"no setting of {model.name!r} is the exact GP: check_additive and check_gradient "
            "are what can be checked"
        )
    rows, test = Block(X, y, noise), _places(X)
    value, found = MethodAt(*exact, near=near)._solved(rows, test)
    evidence, mean, variance = _dense(theta, rows, test)
    variance = variance + (theta.noise_variance if found.noisy else 0.0)
    for a, b in ((value, evidence), (found.mean, mean), (found.variance, variance)):
        np.testing.assert_allclose(_array(a), b, rtol=1e-6, atol=1e-7, err_msg="exact limit")


def check_ensemble(
    model: Ensemble,
    theta: Theta,
    X: np.ndarray,
    y: np.ndarray,
    fixed: int = 0,
    noise: np.ndarray | None = None,
) -> None:
    """Check the laws of a method that combines experts, on rows X (n, d), y (n, p).

    The rows are split into ``model.n_experts`` experts of different sizes.  Neither the order of
    the experts matters nor how the rows of one are split into blocks; variances are finite and not
    negative; with one expert at its exact limit, where it has one, the method is the exact GP.

    Parameters
    ----------
    model, theta
        Settings, with two experts or more beyond ``fixed``, and hyper-parameters.
    X, y : ndarray
        In scaled units.
    fixed : int, default 0
        Experts at the front whose positions matter: 2 for grBCM, whose first is the communication
        expert and whose second has weight 1.
    noise : ndarray (n, 2), optional
        That of ``Block``, for rows with noise variances of their own.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(18, 2)), rng.standard_normal((18, 1))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1)
    >>> from daskgp.models.experts.exact import ExactExperts
    >>> testing.check_ensemble(ExactExperts(3), theta, X, y)
    """
    test, rows = _places(X), Block(X, y, noise)
    experts = [[block] for block in _ragged(rows, model.n_experts)]
    value, wanted = combine_experts(model, theta, experts, test)
    assert wanted.variance is not None, "a variance was asked for and there is none"
    assert np.isfinite(wanted.variance).all(), "a variance is not finite"
    assert wanted.variance.min() >= 0.0, "a variance is negative"
    turned = experts[:fixed] + experts[fixed:][::-1]
    halves = [[block.at(slice(i, None, 2)) for i in (0, 1)] for (block,) in experts]
    for what, others in (("order of experts", turned), ("blocks of an expert", halves)):
        again, moments = combine_experts(model, theta, others, test)
        for a, b in zip((again, *moments[:2]), (value, *wanted[:2]), strict=True):
            np.testing.assert_allclose(_array(a), _array(b), rtol=1e-6, atol=1e-8, err_msg=what)
    _, alone = combine_experts(model, theta, experts, test, "mean")
    np.testing.assert_allclose(alone.mean, wanted.mean, rtol=1e-9, atol=1e-9, err_msg="mean alone")
    if model.exact_limit(theta, X) is not None:
        check_exact_limit(model, theta, X, y, noise)


def _places(X: np.ndarray) -> np.ndarray:
    """Return places beside some of the rows."""
    places: np.ndarray = X[:: max(1, len(X) // 7)] + 0.01
    return places


def _ragged(rows: Block, count: int) -> list[Block]:
    """Split rows at random into ``count`` blocks, each larger than the one before."""
    n, sizes = len(rows.X), np.arange(1, count + 1)
    order, edges = np.random.default_rng(0).permutation(n), np.cumsum(sizes)[:-1] * n // sizes.sum()
    return [rows.at(part) for part in np.split(order, edges)]


def _array(value: Any) -> np.ndarray:
    return np.asarray(value, np.float64)


class _AllRows(TaskRounds):
    """Rounds whose draws are of all rows."""

    def draw(self, share: float | None) -> Central:
        return Central(1.0, self.seed)


def combine_experts(
    model: Ensemble,
    theta: Theta,
    experts: Sequence[Sequence[Block]],
    X: np.ndarray,
    want: Want = "variance",
) -> tuple[float, Moments]:
    """Return the experts' summed objectives and combined posterior at X (n, d), without any Dask.

    Each expert is a sequence of blocks of rows; sums over rows are over all rows.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(12, 2)), rng.standard_normal((12, 1))
    >>> theta = Theta(kernels.Matern32(0.5), 0.1)
    >>> from daskgp.models.experts.exact import ExactExperts
    >>> experts = [[Block(X[:6], y[:6])], [Block(X[6:], y[6:])]]
    >>> value, moments = testing.combine_experts(ExactExperts(2), theta, experts, X[:3])
    >>> moments.mean.shape
    (3, 1)
    """
    state, value = model.solve(theta, _AllRows.of(experts))
    joined = [Block.join(blocks) for blocks in experts]
    assert isinstance(state, model.state_type)
    near = HeldExperts(model, theta, state, joined) if model.keeps_rows else None
    return value, model.predict(theta, state, X, near, want)


def _dense(theta: Theta, rows: Block, test: np.ndarray) -> tuple[Any, ...]:
    """Return evidence, mean and variance of the exact GP as defined ([OPT] eqs. 2 and 4)."""
    X, y, noise, _ = rows
    kernel, (n, p) = theta.kernel, y.shape
    C, K = kernel(X) + variances(theta.noise_variance, noise) * np.eye(n), kernel(test, X)
    weights, logdet = np.linalg.solve(C, y), np.linalg.slogdet(C).logabsdet
    evidence = -0.5 * ((y * weights).sum() + p * logdet + p * n * np.log(2 * np.pi))
    variance = np.diag(kernel(test)) - np.einsum("ij,ji->i", K, np.linalg.solve(C, K.T))
    return evidence, K @ weights, variance


# -- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MethodAt:
    """A method and the hyper-parameters to check it at.

    Parameters
    ----------
    method : Method
    theta : Theta
        With inducing inputs if the method has any.
    fixed : int, default 0
        As for ``check_ensemble``.
    near : callable
        Called with the method, ``theta``, a state and blocks of rows, it returns what ``predict``
        reads them back from, if the method ``keeps_rows``; by default its ``condition`` of them.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> from daskgp.models.exact import Exact
    >>> subject = testing.MethodAt(Exact(), Theta(kernels.RBF(0.8), 0.1))
    >>> for check in testing.checks_of(subject):
    ...     check(subject)
    """

    method: Any
    theta: Theta
    fixed: int = 0
    near: Near = _conditioned

    @property
    def _is_ensemble(self) -> bool:
        """True for a method that combines experts."""
        return Ensemble in type(self.method).__mro__

    def _rows(self, noisy: bool = False) -> Block:
        """Return scaled rows, of as many columns as the kernel and the inputs have."""
        rng, inputs = np.random.default_rng(0), self.theta.inputs
        d = rows_of_kernel(self.theta.kernel)[0].shape[1] if inputs is None else inputs.shape[1]
        X = rng.uniform(-1.5, 1.5, (N, d))
        y = np.sin(X @ np.ones((d, 2)) + np.arange(2)) + 0.1 * rng.standard_normal((N, 2))
        noise = np.column_stack([rng.uniform(0.3, 2.0, N), 10.0 ** rng.uniform(-4, 0.5, N)])
        return Block(X, y, noise if noisy else None)

    def _solved(self, rows: Block, X: np.ndarray, want: Want = "variance") -> tuple[float, Moments]:
        """Return the objective of rows, NaN if there is none, and the posterior at X (n, d)."""
        if self._is_ensemble:
            experts = [[block] for block in _ragged(rows, self.method.n_experts)]
            return combine_experts(self.method, self.theta, experts, X, want)
        state, value = self.method.solve(self.theta, rows_of([rows]))
        assert isinstance(state, self.method.state_type), "solve returns another state_type"
        read = self.near(self.method, self.theta, state, [rows]) if self.method.keeps_rows else None
        value = np.nan if value is None else value
        return value, self.method.predict(self.theta, state, X, read, want)


def _sums(subject: MethodAt) -> str | None:
    summed = getattr(type(subject.method), "summed", None)
    return None if summed is Additive.summed else "it is no sum of summaries of blocks"


def _trains(subject: MethodAt) -> str | None:
    return None if hasattr(subject.method, "evaluate") else "it has no objective"


def _solves(subject: MethodAt) -> str | None:
    return None if hasattr(subject.method, "solve") else "it is not solved in one go"


def _limit(subject: MethodAt) -> str | None:
    X = subject._rows().X
    known = hasattr(subject.method, "exact_limit") and not subject._is_ensemble
    exact = known and subject.method.exact_limit(subject.theta, X) is not None
    return None if exact else "no setting of it is the exact GP"


def _with_noise(subject: MethodAt) -> list[Block]:
    """Return rows, and the same with noise variances of their own if the method takes them."""
    return [subject._rows(noisy) for noisy in (False, True)[: 1 + subject.method.takes_noise]]


@promise("summaries of parts combine to the summary of all rows, in any grouping", _sums)
def _summaries(subject: MethodAt) -> None:
    for rows in _with_noise(subject):
        check_additive(subject.method, subject.theta, *rows[:3])


@promise("the gradient of the objective is that of central differences", _trains)
def _gradient(subject: MethodAt) -> None:
    for rows in _with_noise(subject):
        check_gradient(subject.method, subject.theta, rows.X, rows.y, noise=rows.noise)


@promise("where a setting makes it the exact GP, it has its evidence, mean and variance", _limit)
def _exact_limit(subject: MethodAt) -> None:
    for rows in _with_noise(subject):
        check_exact_limit(subject.method, subject.theta, *rows[:3], subject.near)


@promise(
    "neither the order of experts nor how their rows are cut matters; one of them may be exact",
    lambda subject: None if subject._is_ensemble else "it has no experts",
)
def _experts(subject: MethodAt) -> None:
    for X, y, noise, _ in _with_noise(subject):
        check_ensemble(subject.method, subject.theta, X, y, subject.fixed, noise)


@promise(
    "a mean does not depend on what else is asked for; variances are those of covariances", _solves
)
def _moments(subject: MethodAt) -> None:
    rows = subject._rows()
    T, method = rows.X[::5] + 0.01, subject.method
    mean = subject._solved(rows, T, "mean")[1].mean
    assert mean.shape == (len(T), 2), f"the mean has shape {mean.shape}, not (n, p)"
    if method.why_no_variance() is not None:
        return
    found = subject._solved(rows, T)[1]
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9, atol=1e-9, err_msg="mean")
    variance = np.asarray(found.variance)
    assert variance.shape == (len(T),), f"the variance has shape {variance.shape}, not (n,)"
    assert np.isfinite(variance).all() and variance.min() >= 0, "a variance is negative or missing"
    if method.why_no_joint() is None:
        joint = np.asarray(subject._solved(rows, T, "covariance")[1].covariance)
        np.testing.assert_allclose(np.diag(joint), variance, rtol=1e-8, err_msg="diagonal")
        assert np.linalg.eigvalsh(joint).min() > -1e-8 * np.trace(joint), "a negative eigenvalue"


@promise(
    "it says takes_noise, and only then do noise variances of rows change what it finds", _solves
)
def _takes_noise(subject: MethodAt) -> None:
    rows, noisy = subject._rows(), subject._rows(noisy=True)
    T = rows.X[::5] + 0.01
    plain, (value, moments) = subject._solved(rows, T, "mean"), subject._solved(noisy, T, "mean")
    alike = np.isclose(value, plain[0], equal_nan=True)
    alike &= np.allclose(moments.mean, plain[1].mean)
    if not subject.method.takes_noise:
        assert alike, (
            "it uses Block.noise and does not say takes_noise = True: rows' errors and "
            "weights are refused"
        )
        return
    assert not alike, "it says takes_noise and ignores Block.noise"
    common = np.tile([2.0, 0.05], (len(rows.X), 1))
    s = subject.theta.noise_variance
    other = replace(subject, theta=replace(subject.theta, noise_variance=2 * s + 0.05))
    found = subject._solved(rows._replace(noise=common), T, "mean")
    wanted = other._solved(rows, T, "mean")
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-7, err_msg="a common noise variance")
    np.testing.assert_allclose(found[1].mean, wanted[1].mean, rtol=1e-6, atol=1e-8)


@promise(
    "it says takes_neighbours, and only then do the rows near a block change its summary", _sums
)
def _takes_neighbours(subject: MethodAt) -> None:
    method, rows = subject.method, subject._rows()
    prepared = method.prepare(subject.theta)
    A, B = rows.at(slice(0, 12)), rows.at(slice(12, None))
    alone, given = method.local(prepared, B), method.local(prepared, B, (A,))
    alike = all(
        np.allclose(_array(a), _array(b))
        for a, b in zip(alone, given, strict=True)
        if a is not None and b is not None
    )
    if method.takes_neighbours:
        assert not alike, "it says takes_neighbours and ignores the blocks near a block"
    else:
        assert alike, (
            "its summaries depend on the blocks near and it does not say takes_neighbours = True: "
            "a fit hands it none"
        )


@promise("sums over float32 rows are float64, and near those over float64 rows", _sums)
def _float32(subject: MethodAt) -> None:
    rows, prepared = subject._rows(), subject.method.prepare(subject.theta)
    wanted = subject.method.local(prepared, rows)
    narrow = Block(rows.X.astype(np.float32), rows.y)
    for name, a, b in zip(
        wanted._fields, subject.method.local(prepared, narrow), wanted, strict=True
    ):
        if a is None:
            continue
        array, scale = np.asarray(a), float(np.abs(_array(b)).max(initial=1.0))
        of_rows = array.ndim > 0 and len(array) == len(rows.X)
        assert of_rows or array.dtype != np.float32, f"{name} is summed in float32"
        np.testing.assert_allclose(_array(a), _array(b), rtol=1e-3, atol=2e-3 * scale, err_msg=name)
    value, exact = (subject._solved(block, rows.X, "mean")[0] for block in (narrow, rows))
    np.testing.assert_allclose(value, exact, rtol=1e-3, err_msg="objective")


@promise("rows may be read-only and of any layout", _solves)
def _layout(subject: MethodAt) -> None:
    rows = subject._rows()
    X, y, T = np.repeat(rows.X, 2, axis=0)[::2], np.asfortranarray(rows.y), rows.X[::5] + 0.01
    X.flags.writeable = y.flags.writeable = False
    found, wanted = subject._solved(Block(X, y), T, "mean"), subject._solved(rows, T, "mean")
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-9, err_msg="objective")
    np.testing.assert_allclose(found[1].mean, wanted[1].mean, rtol=1e-8, atol=1e-9, err_msg="mean")
    if _trains(subject) is None and not subject._is_ensemble:
        near = (value_and_gradient(subject.method, subject.theta, *a) for a in ((X, y), rows[:2]))
        one, other = (gradient for _, gradient in near)
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8, err_msg="gradient")


@promise("footprint says how many bytes and operations it needs, no fewer of them for more rows")
def _footprint(subject: MethodAt) -> None:
    inputs = 1 if subject.theta.inputs is None else len(subject.theta.inputs)
    one = Shape(10_000, 2, 1, 500, inputs, 8, subject.theta.kernel.tiles, 1_000, 50)
    few, many = (subject.method.footprint(one._replace(rows=n)) for n in (10_000, 40_000))
    assert isinstance(few, Footprint), "footprint returns a Footprint"
    assert min(few) >= 0 and few.task > 0 and few.predict > 0, f"{few} has nothing for a task"
    assert many.operations >= few.operations > 0, f"{few} and {many} for four times the rows"


@promise("it is a frozen value that travels to workers and is stored by name and settings")
def _value(subject: MethodAt) -> None:
    method = subject.method
    again = pickle.loads(pickle.dumps(method))  # noqa: S301 - what this process has written
    assert again == method and hash(again) == hash(method), "a pickled method is another one"
    assert type(method)(**vars(method)) == method, "its settings do not make it again"
    assert issubclass(method.state_type, tuple) and method.name, "it has no name or state_type"
