"""Scores against direct formulas and numerical integration; the same on NumPy and Dask arrays."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from daskgp import metrics
from daskgp.errors import InputError, SettingError
from daskgp.likelihoods import Bernoulli, Gaussian, Poisson, StudentT

WITHOUT_VARIANCE = (metrics.rmse, metrics.mae, metrics.nmse)
WITH_VARIANCE = (metrics.nlpd, metrics.crps, metrics.coverage, metrics.interval_score)


def predictions(n, seed=0, outputs=None, missing=0.0):
    """Observed values, means and variances of `n` rows, some of the values missing."""
    rng = np.random.default_rng(seed)
    shape = (n,) if outputs is None else (n, outputs)
    mean = rng.normal(size=shape)
    variance = rng.uniform(0.1, 2.0, size=shape)
    y = mean + np.sqrt(variance) * rng.normal(size=shape)
    y[rng.uniform(size=shape) < missing] = np.nan
    y[:2] = mean[:2] + 0.5
    y[1] += 1.0
    return y, mean, variance


def every_score(y, mean, variance):
    scores = [score(y, mean) for score in WITHOUT_VARIANCE]
    return scores + [score(y, mean, variance) for score in WITH_VARIANCE]


def forbidden_scheduler(*args, **kwargs):
    raise AssertionError("something was computed")


def test_errors_match_their_formulas():
    y, mean, _ = predictions(50)
    assert metrics.rmse(y, mean) == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert metrics.mae(y, mean) == pytest.approx(np.mean(np.abs(y - mean)))
    assert metrics.nmse(y, mean) == pytest.approx(np.mean((y - mean) ** 2) / y.var())


def test_nlpd_is_the_gaussian_density():
    y, mean, variance = predictions(50)
    expected = -stats.norm.logpdf(y, mean, np.sqrt(variance)).mean()
    assert metrics.nlpd(y, mean, variance) == pytest.approx(expected)


@pytest.mark.parametrize("outputs", [None, 3])
def test_nlpd_with_gaussian_noise_adds_it(outputs):
    y, mean, latent = predictions(50, outputs=outputs, missing=0.3)
    expected = metrics.nlpd(y, mean, latent + 0.2)
    found = metrics.nlpd(y, mean, latent, Gaussian(0.2))
    assert type(found) is float
    assert found == pytest.approx(expected, rel=1e-12)
    arrays = [a.astype(np.float32) for a in (y, mean, latent)]
    assert metrics.nlpd(*arrays, Gaussian(0.2)) == pytest.approx(expected, rel=1e-5)


def test_nlpd_with_a_likelihood_is_its_density():
    counts, f = np.array([0.0, 3.0, np.nan, 1.0]), np.array([0.1, 1.0, 7.0, -0.5])
    expected = -stats.poisson.logpmf(counts, np.exp(f))[[0, 1, 3]].mean()
    assert metrics.nlpd(counts, f, np.zeros(4), Poisson()) == pytest.approx(expected)
    chance = stats.norm.cdf(0.6 / np.sqrt(1 + 0.44))
    for seen, p in ((True, chance), (False, 1 - chance)):
        found = metrics.nlpd(np.array([seen]), [0.6], [0.44], Bernoulli())
        assert found == pytest.approx(-np.log(p))


@given(
    n=st.integers(2, 60),
    chunks=st.tuples(*[st.integers(1, 60)] * 3),
    seed=st.integers(0, 1000),
    outputs=st.sampled_from([None, 1, 3]),
    missing=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=8)
def test_nlpd_with_a_likelihood_is_the_same_on_dask(n, chunks, seed, outputs, missing):
    arrays = predictions(n, seed, outputs, missing)
    likelihood = StudentT(0.4, 5.0)
    expected = pytest.approx(metrics.nlpd(*arrays, likelihood), rel=1e-10)
    lazy = [
        da.from_array(a, chunks=(chunk, *a.shape[1:]))
        for a, chunk in zip(arrays, chunks, strict=True)
    ]
    with dask.config.set(scheduler=forbidden_scheduler):
        scores = [metrics.nlpd(*lazy, likelihood)]
        for i in range(3):  # one of them lazy, the others in memory
            mixed = [lazy[j] if i == j else arrays[j] for j in range(3)]
            scores.append(metrics.nlpd(*mixed, likelihood))
    assert all(isinstance(score, da.Array) and score.shape == () for score in scores)
    assert list(dask.compute(*scores, scheduler="sync")) == [expected] * 4


@pytest.mark.parametrize("y", [-3.0, 0.2, 0.7, 5.0])
def test_crps_is_the_integral_over_the_distribution_function(y):
    mean, std = 0.7, 1.3
    below = integrate.quad(lambda t: stats.norm.cdf(t, mean, std) ** 2, mean - 12 * std, y)[0]
    above = integrate.quad(lambda t: stats.norm.sf(t, mean, std) ** 2, y, mean + 12 * std)[0]
    score = metrics.crps(np.array([y]), np.array([mean]), np.array([std**2]))
    assert score == pytest.approx(below + above, rel=1e-7)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_intervals_match_quantiles(level):
    y, mean, variance = predictions(400)
    std = np.sqrt(variance)
    low, high = stats.norm.interval(level, mean, std)
    alpha = 1 - level
    score = (high - low) + 2 / alpha * ((low - y) * (y < low) + (y - high) * (y > high))
    inside = (low <= y) & (y <= high)
    assert metrics.coverage(y, mean, variance, level) == pytest.approx(inside.mean())
    assert metrics.interval_score(y, mean, variance, level) == pytest.approx(score.mean())


def test_a_calibrated_prediction_covers_its_level():
    y, mean, variance = predictions(40_000, seed=3)
    for level in (0.5, 0.95):
        assert metrics.coverage(y, mean, variance, level) == pytest.approx(level, abs=0.01)


def test_several_outputs_are_pooled_and_nmse_averages_them():
    y, mean, variance = predictions(60, outputs=3)
    pooled = [a.ravel() for a in (y, mean, variance)]
    for score in WITH_VARIANCE:
        assert score(y, mean, variance) == pytest.approx(score(*pooled))
    assert metrics.rmse(y, mean) == pytest.approx(metrics.rmse(*pooled[:2]))
    columns = [metrics.nmse(y[:, i], mean[:, i]) for i in range(3)]
    assert metrics.nmse(y, mean) == pytest.approx(np.mean(columns))


def test_numpy_gives_plain_floats():
    y, mean, variance = predictions(10)
    assert all(type(score) is float for score in every_score(y, mean, variance))
    summary = metrics.summary(y.tolist(), mean.tolist(), variance.tolist())
    assert [type(value) for value in summary.values()] == [float] * 6 + [int]


def test_float32_sums_in_float64():
    n = 200_000
    y, mean, variance = (np.full(n, v, np.float32) for v in (0.1, 0.0, 1.0))
    assert metrics.mae(y, mean) == pytest.approx(np.float32(0.1), rel=1e-7)
    assert metrics.nlpd(y, mean, variance) == pytest.approx(0.5 * np.log(2 * np.pi) + 0.005)


@given(
    n=st.integers(2, 60),
    chunk=st.integers(1, 60),
    seed=st.integers(0, 1000),
    outputs=st.sampled_from([None, 1, 3]),
    missing=st.sampled_from([0.0, 0.3]),
)
@settings(max_examples=6)
def test_dask_agrees_with_numpy_under_any_chunking(n, chunk, seed, outputs, missing):
    arrays = predictions(n, seed, outputs, missing)
    lazy = [da.from_array(a, chunks=(chunk, *a.shape[1:])) for a in arrays]
    summary, scores = dask.compute(metrics.summary(*lazy), every_score(*lazy), scheduler="sync")
    assert summary == pytest.approx(metrics.summary(*arrays), rel=1e-12)
    assert scores == pytest.approx(every_score(*arrays), rel=1e-10)


@given(seed=st.integers(0, 1000), missing=st.floats(0.0, 0.9))
def test_missing_rows_count_as_absent(seed, missing):
    y, mean, variance = predictions(40, seed, missing=missing)
    seen = ~np.isnan(y)
    expected = every_score(y[seen], mean[seen], variance[seen])
    assert every_score(y, mean, variance) == pytest.approx(expected)
    assert metrics.summary(y, mean, variance)["n"] == seen.sum()
    variance[~seen] = 0.0  # what is predicted where nothing was observed does not matter
    mean[~seen] = np.nan
    assert every_score(y, mean, variance) == pytest.approx(expected)


@given(seed=st.integers(0, 1000), scale=st.floats(0.01, 100.0), shift=st.floats(-10.0, 10.0))
def test_scores_follow_a_change_of_units(seed, scale, shift):
    y, mean, variance = predictions(30, seed)
    before = metrics.summary(y, mean, variance)
    after = metrics.summary(scale * y + shift, scale * mean + shift, scale**2 * variance)
    for name in ("rmse", "mae", "crps", "interval_score_95"):
        assert after[name] == pytest.approx(scale * before[name], rel=1e-9)
    assert after["nlpd"] == pytest.approx(before["nlpd"] + np.log(scale), abs=1e-9)
    assert 0.0 <= after["coverage_95"] <= 1.0


def test_crps_tends_to_the_absolute_error():
    y, mean, _ = predictions(30)
    tiny = np.full_like(y, 1e-14)
    assert metrics.crps(y, mean, tiny) == pytest.approx(metrics.mae(y, mean), abs=1e-6)


def test_dask_stays_lazy_until_asked():
    lazy = [da.from_array(a, chunks=7) for a in predictions(30)]
    with dask.config.set(scheduler=forbidden_scheduler):
        scores = [*every_score(*lazy), *metrics.summary(*lazy).values()]
        mixed = metrics.rmse(lazy[0], np.zeros(30))
    assert all(isinstance(score, da.Array) and score.shape == () for score in [*scores, mixed])


def test_summary_reads_each_chunk_once():
    reads = []

    def read(block, block_info=None):
        reads.append(block_info[0]["chunk-location"])
        return block

    arrays = predictions(30)
    lazy = [da.from_array(a, chunks=7) for a in arrays]
    lazy[0] = lazy[0].map_blocks(read, dtype=float, meta=np.empty(0))
    with dask.config.set(scheduler="sync"):
        dask.compute(metrics.summary(*lazy))
    assert sorted(reads) == [(i,) for i in range(5)]


def test_unknown_chunk_sizes_are_accepted():
    y, mean, _ = (da.from_array(a, chunks=7) for a in predictions(30))
    keep = mean > -10
    assert metrics.rmse(y[keep], mean[keep]).compute() == metrics.rmse(y, mean).compute()
    kept = metrics.nlpd(y[keep], mean[keep], mean[keep] ** 2, StudentT())
    assert kept.compute() == metrics.nlpd(y, mean, mean**2, StudentT()).compute()


def test_lazy_scores_of_bad_input_are_nan():
    y, mean, variance = (da.from_array(a, chunks=7) for a in predictions(30))
    bad = da.where(da.arange(30, chunks=7) == 3, 0.0, variance)
    assert all(np.isnan(score(y, mean, bad).compute()) for score in WITH_VARIANCE)
    empty = da.full(30, np.nan, chunks=7)
    assert np.isnan(metrics.rmse(empty, mean).compute())
    assert np.isnan(metrics.nmse(da.ones(30, chunks=7), mean).compute())


def test_impossible_values_have_no_score():
    y, zeros = np.array([0.0, 1.0, 2.0, np.nan]), np.zeros(4)
    with pytest.raises(InputError, match=r"'y_true' holds 2, .*only 0 and 1"):
        metrics.nlpd(y, zeros, zeros, Bernoulli())
    lazy = da.from_array(y, chunks=3)
    assert np.isnan(metrics.nlpd(lazy, zeros, zeros, Bernoulli()).compute())
    assert np.isfinite(metrics.nlpd(lazy, zeros, zeros, Poisson()).compute())
    with pytest.raises(InputError, match=r"not be negative but holds -1\.0 .*noise left out"):
        metrics.nlpd(y, zeros, zeros - 1, Poisson())
    assert np.isnan(metrics.nlpd(lazy, zeros, zeros - 1, Poisson()).compute())


def test_a_nan_prediction_shows_in_the_score():
    y, mean, variance = predictions(30)
    mean[3] = np.nan
    assert np.isnan(every_score(y, mean, variance)).all()


class Labelled:
    dims = ("x",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y, m, v: (y, m[:-1], v), ["mean has shape (9,)", "y_true has shape (10,)"]),
        (lambda y, m, v: (y[:, None], m, v), ["mean has shape (10,)", "(10, 1)", "one shape"]),
        (lambda y, m, v: (y, m, 0 * v), ["variance must be positive", "0.0", "10 of 10"]),
        (lambda y, m, v: (y, m, v * np.nan), ["variance must be positive", "nan"]),
        (lambda y, m, v: (y * np.nan, m, v), ["y_true holds 10 values", "none of them observed"]),
        (lambda y, m, v: (y[:0], m[:0], v[:0]), ["y_true holds 0 values"]),
        (lambda y, m, v: (y.astype(str), m, v), ["y_true", "dtype <U", "real numbers"]),
        (lambda y, m, v: (y[0], m[0], v[0]), ["y_true has shape ()"]),
        (lambda y, m, v: (Labelled(), m, v), ["y_true.data.ravel()"]),
    ],
)
def test_bad_input_is_named(change, words):
    with pytest.raises(InputError) as caught:
        metrics.summary(*change(*predictions(10)))
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_a_level_is_a_probability(level):
    with pytest.raises(InputError, match=f"level must lie between 0 and 1, but is {level}"):
        metrics.coverage(*predictions(10), level=level)


def test_nmse_needs_some_spread():
    with pytest.raises(InputError, match="constant"):
        metrics.nmse(np.ones(5), np.zeros(5))
    y = np.stack([np.arange(5.0), np.full(5, np.nan)], axis=1)
    with pytest.raises(InputError, match="1 of 2 outputs have no observed value"):
        metrics.nmse(y, np.zeros((5, 2)))


def test_series_of_another_order_are_refused_and_others_paired():
    y, mean, variance = (pd.Series(values) for values in predictions(20))
    wanted = metrics.summary(y.to_numpy(), mean.to_numpy(), variance.to_numpy())
    assert metrics.summary(y, mean, variance.to_numpy()) == wanted
    turned = y[::-1]
    assert metrics.rmse(turned, mean[::-1]) == pytest.approx(metrics.rmse(y, mean))
    assert metrics.rmse(turned, pd.Series(mean.to_numpy(), np.arange(50, 70))) > 0
    says = "mean has the index of y_true in another order, first 0 where y_true has 19"
    for score in (metrics.rmse, metrics.nmse):
        with pytest.raises(InputError, match=says):
            score(turned, mean)
    with pytest.raises(InputError, match=r"variance has the index .*variance.reindex\(y_true.in"):
        metrics.summary(y, mean, variance.sample(frac=1, random_state=0))


def test_masked_values_are_missing_and_small_types_do_not_overflow():
    y, mean, variance = predictions(20, missing=0.3)
    masked = np.ma.masked_invalid(y)
    masked.data[masked.mask] = 1e20
    assert metrics.summary(masked, mean, variance) == metrics.summary(y, mean, variance)
    lazy = da.from_array(masked, chunks=7), da.from_array(mean, chunks=7)
    assert float(metrics.rmse(*lazy)) == pytest.approx(metrics.rmse(y, mean))
    ends = np.array([100, -100])
    for kind in (np.int8, np.float16):
        assert metrics.rmse(ends.astype(kind), -ends.astype(kind)) == 200.0
    assert metrics.mae(np.array([True, False]), np.array([True, True])) == 0.5


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda y: metrics.rmse(None, y), "y_true is None: give numbers, as an array"),
        (lambda y: metrics.rmse(y, {}), "mean is of type dict: give numbers, as an array"),
        (lambda y: metrics.mae([[1], [1, 2]], y), "y_true has rows of different lengths"),
        (lambda y: metrics.coverage(y, y, y**0, "0.9"), "level must .*, but is '0.9'"),
        (lambda y: metrics.nlpd(y, y, y**0, 3), "unknown likelihood 3"),
        (lambda y: metrics.nlpd(y, y, y**0, "poison"), "did you mean 'poisson'. Choose one of"),
    ],
)
def test_what_is_no_array_or_setting_is_named(call, says):
    with pytest.raises(InputError, match=says):
        call(np.arange(2.0))


@given(st.integers(0, 2**32 - 1), st.integers(3, 40), st.integers(1, 4), st.floats(0, 0.5))
@settings(max_examples=20)
def test_raw_values_are_the_scores_of_each_output(seed, n, outputs, missing):
    arrays = predictions(n, seed, outputs, missing)
    each = metrics.summary(*arrays, multioutput="raw_values")
    lazy = [da.from_array(array, chunks=(2, 1)) for array in arrays]
    lazily = dask.compute(metrics.summary(*lazy, multioutput="raw_values"))[0]
    ratios = metrics.nmse(*arrays[:2], multioutput="raw_values")
    assert ratios.mean() == pytest.approx(metrics.nmse(*arrays[:2]))
    for name, values in each.items():
        own = [metrics.summary(*(a[:, j] for a in arrays))[name] for j in range(outputs)]
        np.testing.assert_allclose(values, own, rtol=1e-12)
        np.testing.assert_allclose(lazily[name], own, rtol=1e-9)


def test_other_multioutput_is_refused():
    y, mean, _ = predictions(9)
    assert metrics.rmse(y, mean, multioutput="raw_values").shape == (1,)
    with pytest.raises(SettingError, match="'pooled', one score"):
        metrics.rmse(y, mean, multioutput="uniform_average")
