"""Promises of every layer between the Gaussian of a method and what is predicted."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from daskgp.models.values import Moments
from daskgp.posterior.layers import Layer, Places
from daskgp.posterior.layers.base import REGISTRY, Distribution
from daskgp.testing.check import Check, Register, promised
from daskgp.testing.computing import agree

CHECKS: list[Check] = []
LEVELS = (0.05, 0.3, 0.5, 0.9)

promise: Callable[..., Register] = partial(promised, CHECKS)


def inside(further: int = 0) -> tuple[Moments, Places]:
    """Return moments (n, 1) of the layer inside, and the places (n, 2) that they are at.

    The mean has ``further`` columns.
    """
    X = np.random.default_rng(0).uniform(0.2, 1.8, (6, 2))
    phases = np.arange(1 + further)
    mean, variance = np.sin(3 * X[:, :1] + phases) + 1.5, np.linspace(0.01, 0.2, 6)
    prior, noise = np.array([0.01, 0.06, 0.5, 0.2, 0.0, 0.21]), np.full(6, 0.02)
    at = Places(X, X, np.ones(6, bool), prior=lambda: prior, noise=lambda: noise)
    return Moments(mean, variance), at


def _made(layer: Layer, inner: Moments, at: Places) -> Moments:
    """Return what a layer makes of moments, in the form that it is handed them."""
    if not layer.gaussian and inner.variance is not None:  # of each entry
        inner = inner._replace(variance=np.broadcast_to(inner.variance[:, None], inner.mean.shape))
    return layer.moments(inner, at)


def _has_values(layer: Layer) -> str | None:
    """Return why a layer is no increasing function of values."""
    if type(layer).outward is Layer.outward:
        return "it is no function of values: outward is that of the base class"
    return None


@promise("inward undoes outward, and log_slope is the logarithm of its derivative", _has_values)
def _inverse(layer: Layer) -> None:
    values, step = np.linspace(0.3, 2.5, 7)[:, None], 1e-5
    y = layer.outward(values)
    assert (np.diff(y[:, 0]) > 0).all() or not layer.increasing, "outward does not increase"
    np.testing.assert_allclose(layer.inward(y), values, rtol=1e-8, err_msg="inward of outward")
    assert np.all(layer.supports(y)), "what outward gives is no possible observation, by supports"
    slope = (layer.inward(y + step) - layer.inward(y - step)) / (2 * step)
    said = np.broadcast_to(np.exp(layer.log_slope(y)), slope.shape)
    np.testing.assert_allclose(said, slope, rtol=1e-5, err_msg="exp(log_slope)")


@promise("mean and variance are those of outward, averaged over the Gaussian inside", _has_values)
def _moments(layer: Layer) -> None:
    inner, at = inside()
    assert inner.variance is not None
    nodes = np.linspace(-9.0, 9.0, 20_001)  # so many as outward may have a kink
    weights = np.exp(-0.5 * nodes**2)
    weights = weights / weights.sum()
    values = layer.outward(inner.mean + np.sqrt(inner.variance)[:, None] * nodes)
    mean = values @ weights
    variance = (values - mean[:, None]) ** 2 @ weights
    found = _made(layer, inner, at)
    np.testing.assert_allclose(np.asarray(found.mean)[:, 0], mean, rtol=1e-5, err_msg="mean")
    got = np.asarray(found.variance).reshape(len(mean), -1)[:, 0]
    np.testing.assert_allclose(got, variance, rtol=1e-4, err_msg="variance")


def _some_of(at: Places, rows: slice) -> Places:
    prior, noise = (told()[rows] for told in (at.prior, at.noise) if told is not None)
    there = at.given[rows], at.scaled[rows], at.usable[rows]
    return Places(*there, prior=lambda: prior, noise=lambda: noise)


@promise("one place does not depend on the others, nor the variance on a covariance asked for")
def _places(layer: Layer) -> None:
    inner, at = inside(layer.further)
    assert inner.variance is not None
    whole = _made(layer, inner, at)
    for rows in (slice(0, 1), slice(2, 5)):
        some = Moments(inner.mean[rows], inner.variance[rows])
        part = _made(layer, some, _some_of(at, rows))
        for a, b in zip(part[:2], whole[:2], strict=True):
            np.testing.assert_allclose(a, np.asarray(b)[rows], rtol=1e-12)
    if layer.gaussian:
        joint = layer.moments(Moments(inner.mean, covariance=np.diag(inner.variance)), at)
        np.testing.assert_allclose(joint.mean, whole.mean, rtol=1e-12)
        diagonal = np.einsum("ii...->i...", np.asarray(joint.covariance))
        agree(diagonal, whole.variance, "diagonal", 1e-12)
    if not layer.needs_variance:
        agree(layer.moments(Moments(inner.mean), at).mean, whole.mean, "mean alone")


@promise("quantiles grow with their level, and are exceeded as often as that says")
def _distribution(layer: Layer) -> None:
    if not layer.graded:
        return
    inner = inside()[0]
    assert inner.variance is not None
    std = np.sqrt(inner.variance)[:, None]
    found = layer.over(Distribution(inner.mean, std))
    quantiles = [np.asarray(found.quantile(level)) for level in LEVELS]
    for low, high in pairwise(quantiles):
        assert (low <= high).all(), "a quantile is below that of a smaller level"
    for level, y in zip(LEVELS, quantiles, strict=True):
        above = np.asarray(found.exceedance(y))
        reached = np.asarray(found.exceedance(np.nextafter(y, -np.inf)))  # more if y has a mass
        assert (above <= 1 - level + 1e-8).all(), f"quantile({level}) is exceeded more often"
        assert (reached >= 1 - level - 1e-8).all(), f"quantile({level}) is too far out"


def _why_not_stored(layer: Layer) -> str | None:
    """Return why a store does not have to hold a layer."""
    if not layer.stored:
        return "a loader has to be given something"
    made = getattr(type(layer).of_fit, "__func__", None)
    usual = getattr(Layer.of_fit, "__func__", None)
    return None if made is usual else "it follows from the fit"


@promise("a store has all of it, by its registered name", _why_not_stored)
def _stored(layer: Layer) -> None:
    known = REGISTRY.get(layer.name)
    assert known is type(layer), f"{layer.name!r} is not registered: decorate the class"
    described = json.loads(json.dumps(layer.described))
    again = type(layer).restored(described, {k: np.copy(v) for k, v in layer.arrays.items()})
    inner, at = inside()
    for a, b in zip(_made(again, inner, at)[:2], _made(layer, inner, at)[:2], strict=True):
        np.testing.assert_array_equal(a, b)
    assert again.identity[0] == layer.identity[0], "what is restored tells another layer"
