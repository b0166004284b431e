"""Promises of every kernel."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from daskgp.kernels import REGISTRY, Kernel, from_dict
from daskgp.kernels.weights import Weights
from daskgp.testing.check import Check, Register, promised
from daskgp.testing.computing import agree, central_differences

CHECKS: list[Check] = []
Law: TypeAlias = Callable[[Kernel, np.ndarray, np.ndarray, float], None]
LAWS: list[Law] = []
"""Checks that hold at any rows X (n, d) and Z (m, d), to a relative tolerance."""
RTOL = 1e-6
WIDTHS = (3, 2, 1, 4, 5, 6, 7, 8)
"""Numbers of columns that are tried, as a kernel may have one lengthscale for each of its own."""
LEVELS = (4, 3, 2, 1)
"""Numbers of levels of categories that are tried."""

promise: Callable[..., Register] = partial(promised, CHECKS)


def check_kernel(kernel: Kernel, X: np.ndarray, Z: np.ndarray, rtol: float = RTOL) -> None:
    """Check a kernel's laws at X (n, d) and Z (m, d), two sets of distinct rows.

    It is symmetric with the stated diagonal, positive semi-definite and equal to its pullback's
    value; sums of weighted columns are those of the tile, and all gradients those of central
    differences.  Columns that it treats alike are tied.

    Examples
    --------
    >>> from daskgp import kernels, testing
    >>> X, Z = np.split(np.random.default_rng(0).uniform(size=(9, 2)), [5])
    >>> testing.check_kernel(kernels.Matern32(0.5), X, Z)  # AssertionError if a law is broken
    """
    for law in LAWS:
        law(kernel, X, Z, rtol)


def rows(kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
    """Return rows X (9, d) and Z (6, d) of as many columns as a kernel takes."""
    rng = np.random.default_rng(0)
    for d in WIDTHS:
        X = rng.uniform(-1.5, 1.5, (15, d))
        for levels in LEVELS:
            try:
                X[:, list(kernel.categories(d))] = (np.arange(15) % levels)[:, None]
                X[::3, list(kernel.extents(d))] = 0.0  # points among areas
                X[:, list(kernel.extents(d))] = np.abs(X[:, list(kernel.extents(d))])
                kernel(X)
            except (ValueError, IndexError):  # it has other columns, or levels
                continue
            return X[:9], X[9:]
    raise ValueError(f"{kernel!r} takes rows of none of {min(WIDTHS)} to {max(WIDTHS)} columns")


def _law(what: str) -> Callable[[Law], Law]:
    """Return a decorator that makes a law a check too, at rows that suit the kernel."""

    def add(law: Law) -> Law:
        LAWS.append(law)
        name = law.__name__.strip("_")
        CHECKS.append(Check(name, what, lambda kernel: law(kernel, *rows(kernel), RTOL)))
        return law

    return add


@_law("K(X, X) is symmetric and has no negative eigenvalue")
def _symmetric(kernel: Kernel, X: np.ndarray, Z: np.ndarray, rtol: float) -> None:
    K = kernel(X)
    np.testing.assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() >= -1e-10 * np.trace(K), "K(X, X) has a negative eigenvalue"
    np.testing.assert_allclose(kernel(X, X), K, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(kernel(X, Z), kernel(Z, X).T, rtol=1e-9, atol=1e-12)


@_law("diag(X) is the diagonal of K(X, X), and its gradient is that of central differences")
def _diagonal(kernel: Kernel, X: np.ndarray, Z: np.ndarray, rtol: float) -> None:
    np.testing.assert_allclose(np.diag(kernel(X)), kernel.diag(X), rtol=1e-12)
    bar = np.random.default_rng(2).standard_normal(len(X))
    gradient, close = kernel.diag_vjp(X, bar), {"rtol": rtol, "atol": rtol * len(X)}
    wanted = central_differences(
        lambda v: float(bar @ kernel.with_log_parameters(v).diag(X)), kernel.log_parameters
    )
    agree(gradient.log_parameters, wanted, "diagonal", **close)
    wanted = _by_rows(kernel, lambda A: float(bar @ kernel.diag(A)), X)
    agree(gradient.X, wanted, "diagonal", **close)


@_law("a tile does not depend on where it is written, on the rows beside, or on who asks for it")
def _tiles(kernel: Kernel, X: np.ndarray, Z: np.ndarray, rtol: float) -> None:
    value, K = kernel.pullback(X, Z)[0], kernel(X, Z)
    np.testing.assert_allclose(value, K, rtol=1e-13)
    out = np.empty_like(value)
    np.testing.assert_array_equal(kernel(X, Z, out=out), out)
    np.testing.assert_allclose(out, value, rtol=1e-13)
    np.testing.assert_allclose(kernel(X[1:3], Z), K[1:3], rtol=1e-12, atol=1e-13)
    assert kernel(X[:0], Z).shape == (0, len(Z)), "no rows have a tile too"
    weights = Weights.dense(np.random.default_rng(1).standard_normal((len(X), 2)))
    found = kernel.weighted(X, weights, Z)
    np.testing.assert_allclose(found, weights.values.T @ value, rtol=1e-6, atol=1e-9)


@_law("tiles and gradients of float32 inputs are float32, those by hyper-parameters float64")
def _float32(kernel: Kernel, X: np.ndarray, Z: np.ndarray, rtol: float) -> None:
    X, Z = X.astype(np.float32), Z.astype(np.float32)
    K, pull = kernel.pullback(X, Z)
    gradient = pull(np.ones_like(K))
    for array in (K, kernel(X), kernel(X, Z), kernel.diag(X), gradient.X, gradient.Z):
        assert array is not None and array.dtype == np.float32, "K is not of the inputs' type"
    assert gradient.log_parameters.dtype == np.float64, "gradients by parameters are float64"
    exact = kernel(X.astype(np.float64), Z.astype(np.float64))
    np.testing.assert_allclose(kernel(X, Z), exact, rtol=2e-5, atol=2e-5 * np.abs(exact).max())


@_law("the gradient of sum(bar * K(X, Z)) is that of central differences")
def _gradient(kernel: Kernel, X: np.ndarray, Z: np.ndarray, rtol: float) -> None:
    K, pull = kernel.pullback(X, Z)
    bar = np.random.default_rng(0).standard_normal(K.shape)
    found = pull(bar.copy())

    def contracted(kernel: Kernel, X: np.ndarray, Z: np.ndarray) -> float:
        return float((bar * kernel(X, Z)).sum())

    scale = rtol * max(1.0, float(np.abs(bar).sum()) ** 0.5)
    for what, gradient, wanted in (
        (
            "hyper-parameters",
            found.log_parameters,
            central_differences(
                lambda v: contracted(kernel.with_log_parameters(v), X, Z), kernel.log_parameters
            ),
        ),
        ("X", found.X, _by_rows(kernel, lambda A: contracted(kernel, A, Z), X)),
        ("Z", found.Z, _by_rows(kernel, lambda A: contracted(kernel, X, A), Z)),
    ):
        agree(gradient, wanted, f"gradient with respect to {what}", rtol, scale)


def _by_rows(kernel: Kernel, function: Callable[[np.ndarray], float], X: np.ndarray) -> np.ndarray:
    """Return the gradient (n, d) of a function of rows X, 0 for codes and footprints."""
    gradient, others = np.zeros_like(X), _measured(kernel, X.shape[1])

    def of_others(values: np.ndarray) -> float:
        moved = X.copy()
        moved[:, others] = values
        return function(moved)

    gradient[:, others] = central_differences(of_others, X[:, others])
    return gradient


def _measured(kernel: Kernel, d: int) -> list[int]:
    """Return the columns of d that do not hold codes of categories, or sizes of footprints."""
    return [j for j in range(d) if j not in {*kernel.categories(d), *kernel.extents(d)}]


@_law("columns that share a hyper-parameter are tied, in groups that do not overlap")
def _tied_columns(kernel: Kernel, X: np.ndarray, Z: np.ndarray, rtol: float) -> None:
    d = X.shape[1]
    groups = kernel.tied_columns(d)
    listed = [j for group in groups for j in group]
    assert len(set(listed)) == len(listed), f"groups {groups} of tied columns overlap"
    assert set(listed) <= set(range(d)), f"groups {groups} of tied columns have none of {d}"
    # as all hyper-parameters differ, columns that are still alike share one
    resolved = kernel.resolve(np.ones(d), 1.0)
    moved = 0.3 * np.random.default_rng(1).standard_normal(len(resolved.parameter_names))
    odd = resolved.with_log_parameters(resolved.log_parameters + moved)
    K = odd(X, Z)
    if np.array_equal(K, resolved(X, Z)):  # they do not enter it, as those of ``Numbers``
        return
    measured = _measured(kernel, d)
    seen = [j for j in measured if not np.allclose(odd(X, Z + 0.1 * np.eye(d)[j]), K)]
    for i, j in combinations(seen, 2):
        line = list(range(d))
        line[i], line[j] = j, i
        tied = any({i, j} <= set(group) for group in groups)
        assert tied or not np.allclose(odd(X[:, line], Z[:, line]), K), (
            f"columns {i} and {j} share a hyper-parameter: tied_columns must have them in a group"
        )


@promise("each hyper-parameter has a name, a logarithm and bounds, and comes back as it was")
def _parameters(kernel: Kernel) -> None:
    names, logs = kernel.parameter_names, kernel.log_parameters
    assert len(set(names)) == len(names) == len(logs), f"{names} are names of {len(logs)} numbers"
    assert logs.dtype == np.float64, "log_parameters are float64"
    moved = kernel.with_log_parameters(logs + 0.25)
    assert moved.parameter_names == names, "with_log_parameters makes a kernel of other numbers"
    np.testing.assert_allclose(moved.log_parameters, logs + 0.25, atol=1e-14)
    spread = np.linspace(0.0, 4.0, rows(kernel)[0].shape[1])  # a constant column among them
    bounds = kernel.log_bounds(spread)
    assert bounds.shape == (len(names), 2), "log_bounds has a pair for each parameter"
    assert np.isfinite(bounds).all() and (bounds[:, 0] < bounds[:, 1]).all(), f"bounds {bounds}"


@promise("it is a value: equal to its copy, to what is pickled, and to what its description makes")
def _value(kernel: Kernel) -> None:
    twin = pickle.loads(pickle.dumps(kernel))  # noqa: S301 - what this process has written
    assert twin == kernel and hash(twin) == hash(kernel), "a pickled kernel is another one"
    moved = kernel.with_log_parameters(kernel.log_parameters + 1)
    assert moved != kernel, "kernels of other hyper-parameters are equal"
    if all(type(part) in REGISTRY.values() for part in _leaves(kernel)):
        again = from_dict(json.loads(json.dumps(kernel.to_dict())))
        assert again == kernel, "from_dict makes another kernel of its to_dict"


@promise(
    "with numbers in other units, as units() says, it is the kernel of inputs in other units",
    lambda kernel: None if any(any(unit) for unit in _units(kernel)) else "its numbers have none",
)
def _in_other_units(kernel: Kernel) -> None:
    (X, Z), of_inputs, of_target = rows(kernel), 3.0, 0.5
    kernel = kernel.resolve(np.ones(X.shape[1]), 1.0)
    powers = [
        unit.of_inputs * np.log(of_inputs) + unit.of_target * np.log(of_target)
        for unit in kernel.units(X.shape[1])
    ]
    moved = kernel.with_log_parameters(kernel.log_parameters + powers)
    factors = np.ones(X.shape[1])
    factors[[*_measured(kernel, len(factors)), *kernel.extents(len(factors))]] = of_inputs
    found = moved(factors * X, factors * Z)
    np.testing.assert_allclose(found, of_target**2 * kernel(X, Z), rtol=1e-8, atol=1e-12)


def _units(kernel: Kernel) -> Any:
    return kernel.units(rows(kernel)[0].shape[1])


def _leaves(kernel: Kernel) -> list[Kernel]:
    parts = getattr(kernel, "parts", None)
    return [kernel] if parts is None else [leaf for part in parts for leaf in _leaves(part)]
