"""Promises of every likelihood."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.special import ndtri

from daskgp.errors import InputError
from daskgp.likelihoods import REGISTRY, Likelihood, by_name
from daskgp.testing.check import Check, Register, promised
from daskgp.testing.computing import agree, central_differences

CHECKS: list[Check] = []
DRAWS = 40_000

promise: Callable[..., Register] = partial(promised, CHECKS)


def values(
    likelihood: Likelihood, seed: int = 0, shape: tuple[int, int] = (4, 2)
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values (n, p) that can be observed, and means (n, p) and variances (n,) of f."""
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(size=shape), rng.uniform(0.05, 1.5, shape[0])
    return np.asarray(likelihood.sample(mean, rng), np.float64), mean, variance


@promise("log_p has the slope and the curvature that it says, and is concave if it says so")
def _log_p(likelihood: Likelihood) -> None:
    y, f, _ = values(likelihood)
    found, step = likelihood.log_p(y, f), 1e-5
    low, high = (likelihood.log_p(y, f + one) for one in (-step, step))
    for what, part, of in (("slope", found.slope, 0), ("curvature", found.curvature, 1)):
        wanted = (high[of] - low[of]) / (2 * step)
        np.testing.assert_allclose(part, wanted, rtol=1e-6, atol=1e-6, err_msg=what)
    concave = not likelihood.log_concave or (found.curvature <= 0).all()
    assert concave, "the curvature of log_p is positive: say log_concave = False"


@promise("draws can be observed, and have the distribution function and the moments that it gives")
def _draws(likelihood: Likelihood) -> None:
    f = np.full(DRAWS, 0.4)
    draws = np.asarray(likelihood.sample(f, np.random.default_rng(0)))
    assert likelihood.supports(draws).all(), "a draw is no possible observation, by supports"
    for y in (0.0, 0.5, 2.0):
        share, said = float((draws <= y).mean()), float(likelihood.below(np.array(y), f[0]))
        assert abs(share - said) < 0.01, f"below says {said:.3f} at {y}, of draws {share:.3f}"
    mean, variance = (float(part.item()) for part in likelihood.response(f[:1, None], np.zeros(1)))
    error = np.sqrt(variance / DRAWS)
    assert abs(draws.mean() - mean) < 5 * error, f"response says {mean:g}, draws {draws.mean():g}"
    spread = float(draws.var())
    tails = float(((draws - draws.mean()) ** 4).mean()) / spread**2
    if tails < 20:  # otherwise a few far draws say nearly all of the variance
        right = 0.8 < spread / variance < 1.25
        assert right, f"draws have another variance than response says: {spread:g}, {variance:g}"


@promise("distribution functions are averages over f, which quantiles invert")
def _quantiles(likelihood: Likelihood) -> None:
    mean, std = np.array([0.3, -1.0]), np.array([0.4, 1.2])
    f = mean + std * ndtri((np.arange(4_000) + 0.5) / 4_000)[:, None]
    for y in (0.0, 1.0):
        wanted = likelihood.below(np.full(2, y), f).mean(axis=0)
        np.testing.assert_allclose(likelihood.cdf(np.full(2, y), mean, std), wanted, atol=1e-3)
    for level in (0.2, 0.9):
        at = likelihood.quantile(level, mean, std)
        assert np.shape(at) == (2,), f"quantiles of (2,) places have shape {np.shape(at)}"
        assert (likelihood.cdf(at, mean, std) >= level - 1e-9).all(), f"quantile({level}) is small"
        below = likelihood.cdf(at - 1e-6 * np.maximum(1, np.abs(at)), mean, std)
        assert (below < level).all(), f"quantile({level}) is large"


@promise("expected has the derivatives by mean, variance and parameters that it says")
def _expected(likelihood: Likelihood) -> None:
    y, mean, variance = values(likelihood, 1)
    found, close = likelihood.expected(y, mean, variance), {"rtol": 1e-5, "atol": 1e-6}

    def value(mean: np.ndarray, variance: np.ndarray) -> float:
        return likelihood.expected(y, mean, variance).value

    wanted = central_differences(lambda m: value(m, variance), mean)
    agree(found.by_mean, wanted, "by mean", **close)
    wanted = central_differences(lambda v: value(mean, v), variance)
    by_row = found.by_variance.sum(axis=1)
    agree(by_row, wanted, "by variance", **close)
    wanted = central_differences(
        lambda v: likelihood.with_log_parameters(v).expected(y, mean, variance).value,
        likelihood.log_parameters,
    )
    agree(found.by_log, wanted, "by parameters", **close)
    parts = [likelihood.expected(y[:, [j]], mean[:, [j]], variance).value for j in range(2)]
    np.testing.assert_allclose(found.value, sum(parts), rtol=1e-9, err_msg="of two targets")


@promise("log_density is log_p without any variance, at least its average, and missing where y is")
def _log_density(likelihood: Likelihood) -> None:
    y, mean, variance = values(likelihood, 2, (4, 1))
    found = likelihood.log_density(y, mean, np.zeros(4))
    np.testing.assert_allclose(found, likelihood.log_p(y, mean).value, rtol=1e-8, atol=1e-12)
    density = likelihood.log_density(y, mean, variance)
    for i in range(4):
        row = slice(i, i + 1)
        least = likelihood.expected(y[row], mean[row], variance[row]).value
        assert density[i, 0] >= least - 1e-6 * max(1.0, abs(least)), "Jensen's inequality"
    y[1] = np.nan
    missing = np.isnan(likelihood.log_density(y, mean, variance))
    np.testing.assert_array_equal(missing, np.isnan(y))


@promise("everything is finite and float64 for far means, no variance and float32 or whole numbers")
def _numbers(likelihood: Likelihood) -> None:
    mean = np.repeat([[-30.0, 0.0, 30.0]], 4, axis=0).astype(np.float32)
    variance = np.array([0.0, 1e-12, 1.0, 100.0])
    y = np.ones(mean.shape, np.int64)
    if not likelihood.supports(y).all():
        y = likelihood.sample(np.zeros(mean.shape), np.random.default_rng(0)).astype(np.float32)
    found = likelihood.expected(y, mean, variance)
    assert np.isfinite(found.value), "expected is not finite"
    response = likelihood.response(np.float64(mean), variance)
    arrays = found.by_mean, found.by_variance, *response, likelihood.log_density(y, mean, variance)
    for array in arrays:
        assert array.shape == mean.shape, f"{array.shape} is not the shape {mean.shape} of y"
        assert array.dtype == np.float64 and np.isfinite(array).all(), "a number is not finite"
    assert (response[1] >= 0).all(), "a variance of response is negative"
    assert (found.by_variance <= 0).all() or not likelihood.log_concave, "more variance helps"


@promise("response takes variances of rows and of entries alike")
def _response(likelihood: Likelihood) -> None:
    _, mean, variance = values(likelihood, 6)
    each = np.broadcast_to(variance[:, None], mean.shape)
    for given in (variance, variance[:, None]):
        for a, b in zip(
            likelihood.response(mean, given), likelihood.response(mean, each), strict=True
        ):
            np.testing.assert_array_equal(a, b)


@promise("it is a value with a name, whose parameters have bounds and come back as they were")
def _value(likelihood: Likelihood) -> None:
    names, logs = likelihood.parameter_names, likelihood.log_parameters
    bounds, k = likelihood.log_bounds, len(names)
    assert logs.shape == (k,) and bounds.shape == (k, 2), f"{names} have {logs} and {bounds}"
    inside = (bounds[:, 0] < logs).all() and (logs < bounds[:, 1]).all()
    assert inside, "log_parameters are not within log_bounds"
    again = likelihood.with_log_parameters(logs + 0.125)
    assert type(again) is type(likelihood), "with_log_parameters makes another likelihood"
    np.testing.assert_allclose(again.log_parameters, logs + 0.125, atol=1e-14)
    assert pickle.loads(pickle.dumps(likelihood)) == likelihood  # noqa: S301 - its own
    if likelihood.name in REGISTRY:
        assert type(by_name(likelihood.name, logs)) is type(likelihood), "by_name makes another one"
    try:
        likelihood.with_log_parameters(np.zeros(k + 1))
    except InputError:
        return
    raise AssertionError(f"with_log_parameters takes {k + 1} numbers, and there are {k}")


@promise(
    "y that is not standardised has the latent mean that offset gives",
    lambda likelihood: "its y is standardised" if likelihood.standardised else None,
)
def _offset(likelihood: Likelihood) -> None:
    wanted = np.array([0.02, 0.3, 0.9])
    found = likelihood.response(likelihood.offset(wanted)[None, :], np.zeros(1))[0]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5)
    assert np.isfinite(likelihood.offset(np.array([0.0, 1.0]))).all(), "of all y the same"
    if not likelihood.discrete:
        return
    try:
        likelihood.check(np.array([[0.5]]), ["y"])
    except InputError:
        return
    raise AssertionError("0.5 is taken, and it is no whole number")
