"""Likelihoods against SciPy's densities, numerical integration and differences of their values."""

import math
import pickle
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, special, stats

from daskgp.errors import DeviceError, InputError, SettingError
from daskgp.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Censored,
    Gamma,
    Gaussian,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
    by_name,
    quadrature,
)
from daskgp.likelihoods.negative_binomial import BEGIN
from daskgp.testing import parametrize_with_checks

PROBIT, LOGIT = Bernoulli("probit"), Bernoulli("logit")
CONTINUOUS = [Gaussian(0.3), StudentT(0.5, 4.0), StudentT(0.8, 40.0), Censored(0.6)]
TRIALS = Binomial().with_columns({"trials": np.array([1.0, 7.0, 300.0])})
EXPOSED = NegativeBinomial(0.8).with_columns(
    {"exposure": np.array([0.3, 1.0, 50.0]), "offset": np.array([0.2, 0.0, -1.0])}
)
POSITIVE = [Gamma(0.6), Gamma(30.0), LogNormal(0.7)]
OTHERS = [NegativeBinomial(1.5), *POSITIVE, Beta(8.0), Binomial(), Ordinal((0.4, 1.1))]
EVERY = [*CONTINUOUS, PROBIT, LOGIT, Poisson(), *OTHERS]
NAMES = ["gaussian", "student-t", "bernoulli", "bernoulli-logit", "poisson"]
NAMES += ["negative-binomial", "gamma", "lognormal", "beta", "binomial", "ordinal", "censored"]


def distribution(likelihood, f):
    """p(y | f) by SciPy."""
    match likelihood:
        case NegativeBinomial():
            return stats.nbinom(likelihood.size, likelihood.size / (likelihood.size + np.exp(f)))
        case Gamma():
            return stats.gamma(likelihood.shape, scale=np.exp(f) / likelihood.shape)
        case LogNormal():
            return stats.lognorm(likelihood.sigma, scale=np.exp(f))
        case Beta():
            phi = likelihood.precision
            return stats.beta(phi * special.expit(f), phi * special.expit(-f))
        case Binomial():
            return stats.binom(np.asarray(likelihood._trials(f), int), special.expit(f))


def log_p(likelihood, y, f):
    """log p(y | f) by SciPy."""
    match likelihood:
        case Gaussian():
            return stats.norm.logpdf(y, f, math.sqrt(likelihood.variance))
        case Censored():
            return stats.norm.logpdf(y, f, likelihood.sigma)
        case StudentT():
            return stats.t.logpdf(y, likelihood.df, f, likelihood.scale)
        case Bernoulli():
            family = stats.norm if likelihood.link == "probit" else stats.logistic
            return family.logcdf((2 * y - 1) * f)
        case Poisson():  # rates may be zero, where SciPy's logpmf is not a number
            return y * f - np.exp(f) - special.gammaln(y + 1)
        case _:  # held against SciPy's below, which takes its time
            value = likelihood.log_p(np.float64(y), np.asarray(f, float)).value
            return value if np.ndim(f) else np.ravel(value)[0]


def values_of(likelihood, seed, shape=(3, 2)):
    """Values that can be observed, means and variances."""
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(size=shape), rng.uniform(0.05, 1.5, size=shape[0])
    if isinstance(likelihood, Bernoulli):
        y = rng.integers(0, 2, size=shape)
    elif isinstance(likelihood, Poisson):
        y = rng.poisson(3, size=shape)
    elif likelihood not in CONTINUOUS:
        y = likelihood.sample(mean, rng)
    else:
        y = mean + 2 * rng.standard_t(3, size=shape)
    return y.astype(float), mean, variance


@parametrize_with_checks({repr(likelihood): likelihood for likelihood in EVERY})
def test_checks(subject, check):
    check(subject)


@pytest.mark.parametrize("likelihood", EVERY, ids=repr)
def test_log_densities_are_those_of_scipy(likelihood):
    y, f, _ = values_of(likelihood, 8)
    wanted = log_p(likelihood, y, f)
    if isinstance(likelihood, Ordinal):
        wanted = np.log(shares_of_classes(likelihood, y, f))
    elif likelihood in OTHERS:
        known = distribution(likelihood, f)
        wanted = known.logpmf(y) if likelihood.discrete else known.logpdf(y)
    np.testing.assert_allclose(likelihood.log_p(y, f).value, wanted, rtol=1e-11)


def shares_of_classes(likelihood, y, f):
    cuts = np.array([-np.inf, *likelihood.cut_points, np.inf])
    k = y.astype(int)
    return stats.norm.cdf(cuts[k + 1] - f) - stats.norm.cdf(cuts[k] - f)


def integral(function, centre, width, points=()):
    """Integral over twelve widths on either side, halved where the integrand has its peaks."""
    low, high = centre - 12 * width, centre + 12 * width
    inner = [low, *sorted(p for p in points if low < p < high), high]
    parts = [
        integrate.quad(function, a, b, epsabs=0, epsrel=1e-9, limit=200)[0]
        for a, b in pairwise(inner)
    ]
    return sum(parts)


def one(y, mean, variance):
    return np.array([[float(y)]]), np.array([[float(mean)]]), np.array([float(variance)])


def slope(function, at, step):
    """Derivative by five points."""
    near = function(at + step) - function(at - step)
    far = function(at + 2 * step) - function(at - 2 * step)
    return (8 * near - far) / (12 * step)


# -- expectations --------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", EVERY, ids=repr)
def test_expectation_is_the_integral_of_the_log(likelihood):
    y, mean, variance = values_of(likelihood, 1)
    expected = sum(
        integral(
            lambda f, i=i, j=j: (
                log_p(likelihood, y[i, j], f)
                * stats.norm.pdf(f, mean[i, j], math.sqrt(variance[i]))
            ),
            mean[i, j],
            math.sqrt(variance[i]),
        )
        for i in range(3)
        for j in range(2)
    )
    # the logarithm of a narrow Student-t is the least smooth of them
    rel = 1e-4 if isinstance(likelihood, StudentT) else 1e-8
    assert likelihood.expected(y, mean, variance).value == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), Poisson()], ids=repr)
def test_closed_forms_agree_with_quadrature(likelihood):
    y, mean, variance = values_of(likelihood, 2)

    def terms(f):
        step = 1e-4
        by_f = slope(lambda g: log_p(likelihood, y, g), f, step)
        return by_f, log_p(likelihood, y, f)

    spread = np.broadcast_to(variance[:, None], y.shape)
    by_mean, by_variance, (value,) = quadrature.averages(terms, np, mean, spread)
    found = likelihood.expected(y, mean, variance)
    assert found.value == pytest.approx(value.sum(), rel=1e-10)
    np.testing.assert_allclose(found.by_mean, by_mean, atol=1e-8)
    np.testing.assert_allclose(found.by_variance, by_variance, atol=1e-8)


@pytest.mark.parametrize("likelihood", EVERY, ids=repr)
@given(seed=st.integers(0, 1000), shift=st.floats(-3.0, 3.0), factor=st.floats(0.01, 3.0))
def test_derivatives_are_those_of_the_value(likelihood, seed, shift, factor):
    y, mean, variance = values_of(likelihood, seed)
    mean, variance = mean + shift, variance * factor
    found = likelihood.expected(y, mean, variance)
    i, j = seed % 3, seed % 2

    def by_mean(at):
        moved = mean.copy()
        moved[i, j] = at
        return likelihood.expected(y, moved, variance).value

    def by_variance(at):
        moved = variance.copy()
        moved[i] = at
        return likelihood.expected(y, mean, moved).value

    close = {"rel": 1e-7, "abs": 1e-7}
    assert slope(by_mean, mean[i, j], 1e-3) == pytest.approx(found.by_mean[i, j], **close)
    step = 2e-3 * variance[i]
    by_row = found.by_variance[i].sum()
    assert slope(by_variance, variance[i], step) == pytest.approx(by_row, **close)


def test_hopeless_rates_grow_linearly():
    for mean in (40.0, 49.0, 55.0, 1e4):
        found = Poisson().expected(*one(3, mean, 0.5))
        by_mean = slope(lambda m: Poisson().expected(*one(3, m, 0.5)).value, mean, 1e-3)
        assert by_mean == pytest.approx(found.by_mean[0, 0], rel=1e-7)
        assert np.isfinite(np.float32(found.by_mean * 1e6)).all()


# -- densities -----------------------------------------------------------------------------------


def typical(value):
    """The value, or one that can be observed, for every likelihood."""
    return [value if likelihood.supports(value) else 0.2 + 0.5 * value for likelihood in EVERY]


@pytest.mark.parametrize(
    ("likelihood", "y", "mean", "variance"),
    [
        *[(likelihood, y, 0.3, 0.7) for likelihood, y in zip(EVERY, typical(1), strict=True)],
        *[(likelihood, y, 4.0, 2.0) for likelihood, y in zip(EVERY, typical(0), strict=True)],
        (NegativeBinomial(1e4), 20_000, 8.0, 4.0),  # far narrower in f than q(f)
        (NegativeBinomial(0.1), 0, 3.0, 4.0),
        (Gamma(1e4), 7.0, 0.0, 4.0),
        (Beta(1e5), 0.3, 0.0, 4.0),
        (Binomial().with_columns({"trials": np.array([9e4])}), 20, 2.0, 4.0),
        (PROBIT, 1, -8.0, 0.5),
        (LOGIT, 1, -20.0, 2.0),
        (Poisson(), 20_000, 8.0, 4.0),  # far narrower in f than q(f)
        (Poisson(), 0, 3.0, 4.0),
        (Poisson(), 100_000, 11.5, 1e-5),
        (StudentT(0.01, 4.0), 0.5, 0.0, 1.0),
        (StudentT(0.01, 2.1), 12.0, 0.0, 1.0),  # an outlier that only the tail explains
        (StudentT(0.2, 500.0), 9.0, 0.0, 1.0),
        (StudentT(3.0, 3.0), 900.0, 0.0, 0.01),
    ],
    ids=repr,
)
def test_log_density_is_the_log_of_the_integral(likelihood, y, mean, variance):
    sd = math.sqrt(variance)

    def joint(f):
        return log_p(likelihood, y, f) + stats.norm.logpdf(f, mean, sd)

    # the integrand is scaled by its peak, so that nothing underflows
    starts = [mean, y] if likelihood in CONTINUOUS else [mean, math.log(y + 1.0)]
    starts = [mean, special.logit(y)] if isinstance(likelihood, Beta) else starts
    starts = (
        [mean, math.log(y)] if likelihood in POSITIVE or isinstance(likelihood, Gamma) else starts
    )
    peaks = [optimize.minimize_scalar(lambda f: -joint(f), (s - 0.1, s + 0.1)).x for s in starts]
    widths = (1e-3, 1e-2, 0.1)
    points = [mean, y, *peaks, *(p + s * w for p in peaks for s in (-1, 1) for w in widths)]
    top = max(joint(p) for p in peaks)
    total = integral(lambda f: math.exp(joint(f) - top), mean, sd, points)
    found = likelihood.log_density(*one(y, mean, variance))
    assert found[0, 0] == pytest.approx(top + math.log(total), rel=1e-6, abs=1e-6)


def test_quadrature_agrees_with_the_closed_form_of_probit():
    y, mean, variance = values_of(PROBIT, 5)
    spread = np.sqrt(2 * variance)[:, None]
    terms = (
        math.log(w) + special.log_ndtr((2 * y - 1) * (mean + x * spread))
        for x, w in quadrature.hermite()
    )
    by_nodes = quadrature.log_sum_exp(terms, np)
    np.testing.assert_allclose(PROBIT.log_density(y, mean, variance), by_nodes, rtol=1e-9)


MEANS = np.array([[-1.0, 0.4], [2.0, 0.0]])
VARIANCES = np.array([0.5, 1e-6])


def density_at(likelihood, y):
    """Densities (2, 2, k) of k values at MEANS and VARIANCES."""
    k = len(y)
    means, variances = np.tile(MEANS, (k, 1)), np.tile(VARIANCES, k)
    values = np.repeat(y, 2)[:, None] + np.zeros(2)
    found = np.exp(likelihood.log_density(values, means, variances))
    return np.moveaxis(found.reshape(k, 2, 2), 0, -1)


COUNTS = [PROBIT, LOGIT, Poisson(), NegativeBinomial(9.0), Binomial(), Ordinal((0.4, 1.1))]


@pytest.mark.parametrize("likelihood", COUNTS, ids=repr)
def test_probabilities_add_up_and_give_the_response(likelihood):
    counts = np.arange(400.0 if isinstance(likelihood, Poisson | NegativeBinomial) else 2.0)
    counts = np.arange(4.0) if isinstance(likelihood, Ordinal) else counts
    p = density_at(likelihood, counts)
    mean, variance = likelihood.response(MEANS, VARIANCES)
    np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(mean, p @ counts, rtol=1e-5)
    np.testing.assert_allclose(variance, p @ counts**2 - (p @ counts) ** 2, rtol=1e-3)


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), StudentT(0.5, 12.0)], ids=repr)
def test_densities_integrate_to_one_and_give_the_response(likelihood):
    u = np.linspace(-12, 12, 401)
    y = np.sinh(u)
    p = density_at(likelihood, y) * np.cosh(u)
    mean, variance = likelihood.response(MEANS, VARIANCES)
    total, first, second = (np.trapezoid(p * y**k, u) for k in range(3))
    np.testing.assert_allclose(total, 1, rtol=1e-6)
    np.testing.assert_allclose(mean, first, atol=1e-6)
    np.testing.assert_allclose(variance, second - first**2, rtol=1e-5)


@pytest.mark.parametrize("likelihood", [Gamma(6.0), LogNormal(0.4), Beta(60.0)], ids=repr)
def test_so_do_those_of_positive_values(likelihood):
    u = np.linspace(-20, 20, 401)
    share = isinstance(likelihood, Beta)
    y = special.expit(u) if share else np.exp(u)
    inside = likelihood.supports(y)
    y, u = y[inside], u[inside]
    p = density_at(likelihood, y) * (y * (1 - y) if share else y)
    mean, variance = likelihood.response(MEANS, VARIANCES)
    total, first, second = (np.trapezoid(p * y**k, u) for k in range(3))
    np.testing.assert_allclose(total, 1, rtol=1e-6)
    np.testing.assert_allclose(mean, first, rtol=1e-6)
    np.testing.assert_allclose(variance, second - first**2, rtol=1e-5)


# -- distribution functions ----------------------------------------------------------------------

AT = [
    *[(likelihood, 2.0, 0.5, 0.7) for likelihood in (NegativeBinomial(1.5), *POSITIVE)],
    (NegativeBinomial(200.0), 900.0, 6.5, 1.0),  # narrower in f than q(f)
    (NegativeBinomial(2.0), 3.0, 1.0, 0.02),
    (Gamma(2_000.0), 1.3, 0.0, 1.0),
    (Beta(8.0), 0.3, -0.5, 0.7),
    (Beta(3_000.0), 0.3, -0.5, 0.7),
    (Beta(0.5), 1e-9, -3.0, 2.0),
    (Binomial(), 0.0, -0.5, 0.7),
]


@pytest.mark.parametrize(("likelihood", "y", "mean", "std"), AT, ids=repr)
def test_distribution_functions_are_integrals_of_those_of_scipy(likelihood, y, mean, std):
    f = np.array([mean - std, mean, mean + 2 * std])
    found = likelihood.below(np.full(3, y), f)
    np.testing.assert_allclose(found, distribution(likelihood, f).cdf(y), rtol=1e-9)

    def joint(at):
        return distribution(likelihood, at).cdf(y) * stats.norm.pdf(at, mean, std)

    near = np.log(y) if y > 0 and not isinstance(likelihood, Beta) else special.logit(min(y, 0.9))
    points = [mean, *(near + np.array([-1.0, -0.1, 0.0, 0.1, 1.0]))]
    wanted = integral(joint, mean, std, points)
    found = likelihood.cdf(np.full(2, y), np.full(2, mean), np.full(2, std))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


# -- columns beside y ----------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", [TRIALS, EXPOSED], ids=["trials", "exposed"])
def test_rows_have_columns_of_their_own(likelihood, fake):
    rng = np.random.default_rng(3)
    mean, variance = rng.normal(size=(3, 1)), rng.uniform(0.1, 1.0, 3)
    y = likelihood.sample(mean, rng)
    alone = type(likelihood)
    found = likelihood.expected(y, mean, variance)
    parts = []
    for i in range(3):
        if alone is type(EXPOSED):
            one, shift = NegativeBinomial(0.8), likelihood.shift[i]
        else:
            one, shift = Binomial().with_columns({"trials": likelihood.trials[[i]]}), 0.0
        parts.append(one.expected(y[[i]], mean[[i]] + shift, variance[[i]]))
        for a, b in (
            (likelihood.cdf(y, mean, variance[:, None]), one.cdf),
            (likelihood.quantile(0.8, mean, variance[:, None]), partial(one.quantile, 0.8)),
        ):
            own = mean[[i]] + shift, variance[[i], None]
            np.testing.assert_allclose(a[i], (b(y[[i]], *own) if b == one.cdf else b(*own))[0])
    assert found.value == pytest.approx(sum(part.value for part in parts))
    np.testing.assert_allclose(found.by_log, np.sum([part.by_log for part in parts], axis=0))
    by_mean = np.concatenate([part.by_mean for part in parts])
    np.testing.assert_allclose(found.by_mean, by_mean)
    offset = likelihood.offset(likelihood.response(np.full((3, 1), -3.0), np.zeros(3))[0].mean(0))
    assert offset == pytest.approx(-3.0)
    logs = likelihood.log_parameters + 0.1
    assert likelihood.with_log_parameters(logs).log_parameters == pytest.approx(logs)


@pytest.mark.parametrize(
    ("likelihood", "columns", "words"),
    [
        (Binomial(), {"trials": [4, 5, 1.0]}, "trials holds 1, but .* as many trials as y counts"),
        (Binomial(), {"trials": [4, 2.5, 9]}, "trials holds 2.5, but .* takes whole numbers of tr"),
        (Poisson(), {"exposure": [1, 0, -1.0]}, "exposure holds 0 and 1 others of the kind, but t"),
        (Poisson(), {"exposure": [np.inf, 1, 1]}, "exposure holds inf, but the poisson likelihood"),
        (Poisson(), {"exposure": [1, 1e300, 1]}, r"exposure holds 1e\+300, but .* another unit"),
        (Poisson(), {"exposure": [1, 1e-300, 1]}, "exposure holds 1e-300, but .* takes those from"),
        (Poisson(), {"offset": [1, -400.0, 1]}, "offset holds -400, but .* farther from 0 than 69"),
        (NegativeBinomial(), {"offset": [np.nan, 1, 1]}, "offset holds nan, but the negative-bin"),
        (Censored(), {"lower": [1, np.inf, 1]}, "lower holds inf, but .* takes numbers or -inf"),
        (Censored(), {"upper": [1, 2, np.nan]}, "upper holds nan, but .* takes numbers or inf"),
        (
            Censored(),
            {"lower": [1, 2, 3], "upper": [1, 1, 3]},
            "lower holds 2, but .* not above the",
        ),
        (
            Censored(),
            {"lower": [1, 2, 3], "upper": [1, 2, 4]},
            "lower holds 2, but .* both y where",
        ),
    ],
)
def test_columns_that_cannot_be_are_named(likelihood, columns, words):
    given = {name: np.array(values, float) for name, values in columns.items()}
    y = np.array([1.0, 0.0, 2.0])
    with pytest.raises(InputError, match=words):
        likelihood.check_columns(y, given)
    likelihood.check_columns(np.full(3, np.nan), given)


@pytest.mark.parametrize(
    ("likelihood", "words"),
    [
        (Gaussian(), "the gaussian likelihood takes no columns beside y, not 'weights': leave it"),
        (Poisson(), "the poisson likelihood takes exposure, offset beside y, not 'weights': leave"),
    ],
)
def test_columns_that_it_does_not_have_are_refused(likelihood, words):
    assert likelihood.with_columns({}) is likelihood
    with pytest.raises(SettingError, match=words):
        likelihood.with_columns({"weights": np.ones(3)})


BOUNDS = {
    "lower": np.array([0.4, -np.inf, 0.3, 1.0, -np.inf, 8.0]),
    "upper": np.array([0.4, 0.5, 0.4, np.inf, np.inf, 9.0]),
}


def test_censored_values_have_the_probability_of_their_interval(fake):
    rng = np.random.default_rng(1)
    likelihood, y = Censored(0.7).with_columns(BOUNDS), np.full((6, 1), 0.4)
    mean, variance = rng.normal(size=(6, 1)), rng.uniform(0.1, 1.0, 6)
    likelihood.check_columns(y[:, 0], BOUNDS)
    low, high = (stats.norm.cdf((one[:, None] - mean) / 0.7) for one in BOUNDS.values())
    wanted = np.log(np.where(high > low, high - low, stats.norm.pdf(y, mean, 0.7)))
    np.testing.assert_allclose(likelihood.log_p(y, mean).value[:5], wanted[:5], atol=1e-12)
    spread = np.sqrt(0.49 + variance)[:, None]
    low, high = (stats.norm.cdf((one[:, None] - mean) / spread) for one in BOUNDS.values())
    wanted = np.log(np.where(high > low, high - low, stats.norm.pdf(y, mean, spread)))
    np.testing.assert_allclose(
        likelihood.log_density(y, mean, variance)[:5], wanted[:5], atol=1e-12
    )
    found = likelihood.expected(y, mean, variance)
    device = fake("device")
    rows = Censored(0.7).with_columns({k: device.asarray(v) for k, v in BOUNDS.items()})
    there = rows.expected(*(device.asarray(a) for a in (y, mean, variance)))
    np.testing.assert_allclose(there.by_mean.get(), found.by_mean)
    for i in range(6):
        value = integral(
            lambda f, i=i: (
                likelihood.log_p(y, np.full((6, 1), f)).value[i, 0]
                * stats.norm.pdf(f, mean[i, 0], math.sqrt(variance[i]))
            ),
            mean[i, 0],
            math.sqrt(variance[i]),
        )
        own = Censored(0.7).with_columns({k: v[[i]] for k, v in BOUNDS.items()})
        assert own.expected(*one(0.4, mean[i, 0], variance[i])).value == pytest.approx(
            value, rel=1e-6
        )


@pytest.mark.parametrize(
    "likelihood", [Censored(0.7).with_columns(BOUNDS), Ordinal((0.1, 2.0, 0.3))]
)
def test_intervals_have_the_derivatives_that_they_say(likelihood):
    rng = np.random.default_rng(1)
    mean, variance = rng.normal(size=(6, 1)), rng.uniform(0.1, 1.0, 6)
    y = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [1.0]])
    found, step = likelihood.expected(y, mean, variance), 1e-5

    def differences(value):
        return (value(step) - value(-step)) / (2 * step)

    by_mean = differences(lambda h: likelihood.expected(y, mean + h, variance).value)
    assert by_mean == pytest.approx(found.by_mean.sum(), rel=1e-6)
    by_variance = differences(lambda h: likelihood.expected(y, mean, variance + h).value)
    assert by_variance == pytest.approx(found.by_variance.sum(), rel=1e-6)
    by_slope = differences(lambda h: likelihood.log_p(y, mean + h).slope)
    np.testing.assert_allclose(likelihood.log_p(y, mean).curvature, by_slope, rtol=1e-6, atol=1e-8)
    by_parameters = likelihood.by_parameters(y, mean)
    for j, unit in enumerate(np.eye(len(found.by_log))):

        def at(h, unit=unit):
            return likelihood.with_log_parameters(likelihood.log_parameters + h * unit)

        by_log = differences(lambda h, at=at: at(h).expected(y, mean, variance).value)
        assert by_log == pytest.approx(found.by_log[j], rel=1e-6)
        values = differences(lambda h, at=at: at(h).log_p(y, mean).value)
        np.testing.assert_allclose(by_parameters[j], values, rtol=1e-6, atol=1e-8)


def test_intervals_far_away_and_narrow_ones_are_told():
    found = Ordinal((1e-4, 1.0)).log_p(np.full((1, 4), 1.0), np.array([[-40.0, 0.0, 40.0, 300.0]]))
    wanted = stats.norm.logpdf(np.array([40.0, 0.0, 40.0, 300.0])) + math.log(1e-4)
    np.testing.assert_allclose(found.value[0], wanted, rtol=1e-4)
    assert np.isfinite(np.concatenate(found)).all()
    assert (found.curvature <= 0).all()


# -- starts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", [*OTHERS, StudentT(), Censored(), PROBIT], ids=repr)
def test_starts_are_of_the_size_of_what_is_learned(likelihood):
    rng = np.random.default_rng(0)
    y = likelihood.sample(0.5 * rng.normal(size=2_000), rng)
    y[:5] = np.nan
    begun = likelihood.start(y)
    assert type(begun) is type(likelihood)
    apart = np.abs(begun.log_parameters - likelihood.log_parameters)
    if isinstance(likelihood, NegativeBinomial):
        assert begun.size == BEGIN  # its scatter begins with the noise of a first fit
        return
    assert (apart < np.log(6.0)).all()
    assert likelihood.start(np.full(3, np.nan)) == likelihood
    assert np.isfinite(
        likelihood.start(np.full(3, 0.5 + likelihood.discrete / 2)).log_parameters
    ).all()


def test_classes_start_at_their_frequencies():
    y = np.repeat([0.0, 1.0, 3.0, np.nan], [500, 300, 200, 3])
    begun = Ordinal().start(y)
    assert begun.n_classes == 4
    p = [
        np.exp(begun.log_p(np.full((1, 1), k), begun.offset(np.array([0.9]))[None]).value)
        for k in range(4)
    ]
    np.testing.assert_allclose(np.ravel(p), [0.5, 0.3, 0.0, 0.2], atol=2e-3)
    assert by_name("ordinal", begun.log_parameters).n_classes == 4
    with pytest.raises(InputError, match="a target is 999, and the ordinal likelihood takes"):
        Ordinal().start(np.array([0.0, 999.0]))


def test_values_between_bounds_start_there():
    y = np.array([1.0, 5.0, np.nan, 9.0])
    bounds = {"lower": np.array([1.0, 2.0, 0.0, 3.0]), "upper": np.array([1.0, 4.0, 1.0, np.inf])}
    assert Censored(0.5).start(y, bounds).sigma == pytest.approx(0.5 * np.std([1.0, 3.0, 0.5, 3.0]))
    assert Censored(0.5).start(y).sigma == pytest.approx(0.5 * np.std([1.0, 5.0, 9.0]))


@pytest.mark.parametrize("variance", [0.0, 0.3, 100.0])
def test_scatter_is_that_of_noisy_rates(variance):
    begun = NegativeBinomial(20.0)
    found = begun.with_scatter(variance)
    assert found.size == pytest.approx(max(1 / (1 / 20 + np.expm1(min(variance, 34.0))), 1e-3))
    assert Gaussian(0.3).with_scatter(variance) == Gaussian(0.3)


# -- numbers out of the ordinary -----------------------------------------------------------------


def values_seldom_seen(likelihood):
    return [value for value in (0.0, 1.0, 0.5, 1e-9, 1e6) if likelihood.supports(value)]


@pytest.mark.parametrize("likelihood", [*EVERY, StudentT(1e-3, 2.1), Gaussian(1e-6)], ids=repr)
def test_extremes_are_finite(likelihood):
    mean = np.repeat([[-30.0, 0.0, 30.0]], 4, axis=0)
    variance = np.array([0.0, 1e-12, 1.0, 100.0])
    for value in {*values_seldom_seen(likelihood)}:
        y = np.full(mean.shape, value)
        found = likelihood.expected(y, mean, variance)
        assert math.isfinite(found.value)
        assert np.isfinite(found.by_log).all()
        arrays = [found.by_mean, found.by_variance, *likelihood.response(mean, variance)]
        for array in [*arrays, likelihood.log_density(y, mean, variance)]:
            assert array.shape == mean.shape
            assert np.isfinite(array).all()
        assert (likelihood.response(mean, variance)[1] >= 0).all()


@pytest.mark.parametrize("likelihood", EVERY, ids=repr)
@given(seed=st.integers(0, 1000), scale=st.floats(0.1, 30.0), variance=st.floats(1e-13, 100.0))
def test_no_variance_helps_a_log_concave_likelihood(likelihood, seed, scale, variance):
    y, mean, _ = values_of(likelihood, seed)
    found = likelihood.expected(y, scale * mean, np.full(3, variance))
    assert (found.by_variance <= 0).all() or not likelihood.log_concave


def test_nor_does_it_by_rounding():
    # log p is a straight line here but for 1e-13
    assert LOGIT.expected(*one(1, -30, 1e-12)).by_variance[0, 0] <= 0


def test_an_outlier_turns_the_student_t_convex():
    assert not StudentT.log_concave
    assert StudentT(0.3, 4.0).expected(*one(5, 0, 0.1)).by_variance[0, 0] > 0


@pytest.mark.parametrize("likelihood", EVERY, ids=repr)
@pytest.mark.parametrize("kind", [np.float32, np.int64, bool])
def test_other_types_of_numbers_are_widened(likelihood, kind):
    y, mean, variance = values_of(likelihood, 7)
    y = y.astype(kind)
    if not likelihood.supports(y.astype(float)).all():
        return  # rounded to 0 or 1
    mean, variance = mean.astype(np.float32), variance.astype(np.float32)
    wide = (y.astype(float), mean.astype(float), variance.astype(float))
    assert likelihood.expected(y, mean, variance).value == likelihood.expected(*wide).value
    density = likelihood.log_density(y, mean, variance)
    np.testing.assert_array_equal(density, likelihood.log_density(*wide))
    assert density.dtype == np.float64


# -- devices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("likelihood", EVERY, ids=repr)
def test_arrays_stay_on_their_device(likelihood, dtype, fake):
    device = fake("device")
    host = [a.astype(dtype) for a in values_of(likelihood, 9)]
    y, mean, variance = (device.asarray(a) for a in host)
    found, expected = likelihood.expected(y, mean, variance), likelihood.expected(*host)
    assert type(found.value) is float
    assert found.value == pytest.approx(expected.value, rel=1e-14)
    np.testing.assert_allclose(found.by_log, expected.by_log, rtol=1e-12)
    pairs = [
        (found.by_mean, expected.by_mean),
        (found.by_variance, expected.by_variance),
        (likelihood.log_density(y, mean, variance), likelihood.log_density(*host)),
        *zip(likelihood.response(mean, variance), likelihood.response(*host[1:]), strict=True),
    ]
    for there, here in pairs:
        assert isinstance(there, device.ndarray)
        np.testing.assert_allclose(there.get(), here, rtol=1e-12)
    with pytest.raises(DeviceError, match="two devices"):
        likelihood.expected(y, mean, host[2])


# -- settings ------------------------------------------------------------------------------------


def test_names():
    assert [likelihood.name for likelihood in map(by_name, NAMES)] == NAMES
    assert by_name("bernoulli") == PROBIT
    assert by_name("bernoulli-logit") == LOGIT
    discrete = [likelihood.name for likelihood in EVERY if likelihood.discrete]
    assert discrete == [
        "bernoulli",
        "bernoulli-logit",
        "poisson",
        "negative-binomial",
        "binomial",
        "ordinal",
    ]
    measured = {"gaussian", "student-t", "censored"}
    assert {one.name for one in EVERY if one.standardised} == measured
    with pytest.raises(SettingError) as caught:
        by_name("cauchy")
    message = str(caught.value)
    known = f"choose one of {', '.join(NAMES)}, or import the module that registers it"
    assert message.startswith(f"unknown likelihood 'cauchy': {known}")


@pytest.mark.parametrize("likelihood", EVERY, ids=repr)
def test_parameters_at_their_bounds_and_of_other_numbers(likelihood):
    k = len(likelihood.parameter_names)
    assert hash(likelihood) == hash(pickle.loads(pickle.dumps(likelihood)))
    for at in likelihood.log_bounds.T:
        assert by_name(likelihood.name, at).name == likelihood.name
    with pytest.raises(InputError, match=f"{k} log-parameters are needed") as caught:
        likelihood.with_log_parameters(np.zeros(k + 1))
    assert all(name in str(caught.value) for name in likelihood.parameter_names or ["none"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gaussian(0.0), "variance of Gaussian must be positive and finite, not 0.0"),
        (lambda: Gaussian("much"), "variance of Gaussian must be a positive number, not 'much'"),
        (lambda: StudentT(scale=-1.0), "scale of StudentT must be positive and finite, not -1.0"),
        (lambda: StudentT(df=math.inf), "df of StudentT must be positive and finite, not inf"),
        (
            lambda: StudentT(df=2),
            "df of StudentT is 2, but .* only finite above 2: give 2.1 or more",
        ),
        (lambda: Gamma(-1.0), "shape of Gamma must be positive and finite, not -1.0"),
        (lambda: Bernoulli("log"), "link of Bernoulli must be 'probit' or 'logit', not 'log'"),
    ],
)
def test_bad_settings_are_named(make, words):
    with pytest.raises(SettingError, match=words):
        make()


# -- values and offsets --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likelihood", "value", "words"),
    [
        (
            PROBIT,
            2.0,
            "the bernoulli likelihood takes only 0 and 1: code the two classes as 0 and 1",
        ),
        (
            LOGIT,
            -1.0,
            "the bernoulli-logit likelihood takes only 0 and 1: code the two classes as 0 and 1",
        ),
        (Poisson(), 2.5, "the poisson likelihood takes whole numbers of at least 0: give counts,"),
        (Poisson(), -3.0, "the poisson likelihood takes whole numbers of at least 0"),
        (Poisson(), math.inf, "the poisson likelihood takes whole numbers of at least 0"),
        (StudentT(), math.inf, "the student-t likelihood takes finite numbers"),
        (Binomial(), 2.0, "the binomial likelihood takes whole numbers from 0 to trials, which"),
    ],
)
def test_values_that_cannot_be_are_named(likelihood, value, words):
    y = np.array([[0.0, 1.0], [1.0, np.nan], [np.nan, 0.0], [1.0, 1.0]])
    likelihood.check(y, ["rain", "hail"])
    y[2:, 1] = value
    with pytest.raises(InputError) as caught:
        likelihood.check(y, ["rain", "hail"])
    message = str(caught.value)
    assert message.startswith(
        f"target 'hail' holds {value:g} and 1 others of the kind, but {words}"
    )
    assert "\n" not in message


@pytest.mark.parametrize("likelihood", [PROBIT, LOGIT, Poisson(), *OTHERS], ids=repr)
def test_the_response_at_the_offset_is_the_mean(likelihood):
    shares = isinstance(likelihood, Bernoulli | Beta | Binomial | Ordinal)
    y_mean = np.array([0.02, 0.3, 0.9] if shares else [0.02, 1.0, 700.0])
    offset = likelihood.offset(y_mean)
    found = likelihood.response(offset[None, :], np.zeros(1))[0]
    np.testing.assert_allclose(found[0], y_mean, rtol=1e-6)
    assert np.isfinite(likelihood.offset(np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("likelihood", CONTINUOUS, ids=repr)
def test_standardised_values_need_no_offset(likelihood):
    np.testing.assert_array_equal(likelihood.offset(np.array([3.0, -1.0])), np.zeros(2))


@pytest.mark.parametrize("df", [2.1, 4.0, 100.0])
def test_the_crps_of_heavy_tails_is_the_integral_of_squares_of_their_distribution(df):
    own, mean, std = StudentT(scale=0.5, df=df), 0.3, 0.4
    t = np.sinh(np.linspace(-14, 14, 200_001))
    for y in (0.1, -6.0):
        below = own.cdf(mean + t, np.full(t.shape, mean), np.full(t.shape, std))
        squares = (below - (mean + t >= y)) ** 2
        found = own.crps(np.array([y]), np.array([mean]), np.array([std]))
        assert found[0] == pytest.approx(np.trapezoid(squares, t), rel=2e-3)
