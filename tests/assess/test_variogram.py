"""Variograms: sums over pairs of rows wherever they lie, and what a model expects of them."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from fits import zarr_rows

import daskgp
from daskgp import kernels, plot
from daskgp.assess import variogram as module
from daskgp.data import reading
from daskgp.errors import InputError, SettingError

EDGES = np.array([0.0, 0.1, 0.3, 0.35, 0.8])


def rows(n=60, p=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    y = np.stack([np.sin(4 * X[:, 0]), 3 * X[:, 1]], axis=1)[:, :p] + 0.1 * rng.normal(size=(n, p))
    X[1] = X[0]  # a distance of 0
    return X, y if p > 1 else y[:, 0]


def double_loop(X, y, edges=EDGES, expected=None):
    """Means over pairs by class, one pair after the other, as np.histogram sorts them."""
    seen = [[] for _ in edges[1:]]
    for i in range(len(X)):
        for j in range(i + 1, len(X)):
            away = np.linalg.norm(X[i] - X[j])
            for index in np.flatnonzero(np.histogram(away, edges)[0]):
                value = (y[i] - y[j]) ** 2 / 2 if expected is None else expected(i, j)
                seen[index].append(np.append(away, value))
    means = np.array([np.mean(pairs, axis=0) for pairs in seen])
    return np.array([len(pairs) for pairs in seen]), means[:, 0], means[:, 1:]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 17)
    monkeypatch.setattr(module, "TILE_ROWS", 5)


def check(found, wanted):
    pairs, distance, values = wanted
    np.testing.assert_array_equal(found.pairs, pairs)
    np.testing.assert_allclose(found.distance, distance)
    np.testing.assert_allclose(found.semivariance, values.reshape(found.semivariance.shape))


@pytest.mark.parametrize("p", [1, 2])
def test_the_sums_are_those_of_a_double_loop(p, small_blocks):
    X, y = rows(p=p)
    found = daskgp.variogram(X, y, bins=EDGES)
    check(found, double_loop(X, y))
    assert found.semivariance.shape == ((4,) if p == 1 else (4, 2))
    assert found.expected is None
    assert found.noise_variance is None


def test_rows_are_read_wherever_they_lie(tmp_path, small_blocks):
    X, y = rows(p=1)
    wanted = double_loop(X, y)
    check(daskgp.variogram(*zarr_rows(tmp_path / "a.zarr", X, y), bins=EDGES), wanted)
    lazily = da.from_array(X, chunks=(13, -1)), da.from_array(y, chunks=13)
    check(daskgp.variogram(*lazily, bins=EDGES), wanted)
    labels = {"dims": ("row", "feature"), "coords": {"feature": ["a", "b"]}}
    found = daskgp.variogram(
        xr.DataArray(X, **labels), xr.DataArray(y, dims="row", name="t"), bins=EDGES
    )
    check(found, wanted)
    assert found.target_names == ("t",)


def test_units_are_those_of_the_data():
    km = {"units": "km"}
    coords = {"x": ("x", np.arange(4.0), km), "y": ("y", np.arange(3.0), km)}
    field = xr.DataArray(np.eye(3, 4), coords, ("y", "x"), "t", {"units": "m s-1"})
    found = daskgp.variogram(field, field, bins=2)
    assert (found.distance_unit, found.target_units) == ("km", ("m s-1",))
    ax = plot.variogram(found)
    assert ax.get_xlabel() == "distance (km)"
    assert ax.get_ylabel() == "semivariance of t ((m s-1)²)"


def test_features_without_units_are_neither_degrees_nor_mixed_with_times(tmp_path):
    one = {"units": "1"}
    coords = {"a": ("a", np.arange(4.0), one), "b": ("b", np.arange(3.0), one)}
    field = xr.DataArray(np.eye(3, 4), coords, ("b", "a"), "t")
    assert daskgp.variogram(field, field, bins=2).distance_unit == "1"
    frame = pd.DataFrame({"t": pd.date_range("2020", periods=9), "x": np.arange(9.0)})
    daskgp.convert(frame.assign(y=np.arange(9.0)), tmp_path / "d.zarr", "y")
    X, y = daskgp.open_dataset(tmp_path / "d.zarr")
    words = r"distances over t, x would mix 'x' and days: .* such as columns=\['x'\]"
    with pytest.raises(InputError, match=words):
        daskgp.variogram(X, y)
    assert daskgp.variogram(X, y, columns=["t"]).distance_unit == "days"
    assert daskgp.variogram(X, y, columns=["t", "x"]).distance_unit == ""


def test_bits_do_not_depend_on_threads(small_blocks):
    X, y = rows(200)
    model = daskgp.ExactGP(kernels.RBF(), optimizer=None).fit(X, y)
    bits = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler, num_workers=4):
            found = daskgp.variogram(X, y, model)
        bits.append([getattr(found, name).tobytes() for name in ("semivariance", "expected")])
    assert bits[0] == bits[1]


def test_rows_with_missing_or_infinite_values_are_left_out(small_blocks):
    X, y = rows(p=1)
    more = np.vstack([X, [[np.nan, 1], [np.inf, 0], [0.5, 0.5]]])
    check(daskgp.variogram(more, np.append(y, [1, 1, np.nan]), bins=EDGES), double_loop(X, y))


def test_distances_are_over_the_columns_asked_for(small_blocks):
    X, y = rows(p=1)
    wanted = double_loop(X[:, 1:], y)
    check(daskgp.variogram(X, y, bins=EDGES, columns=["x1"]), wanted)
    check(daskgp.variogram(X, y, bins=EDGES, columns=[1]), wanted)
    with pytest.raises(SettingError, match=r"columns=\['z'\]: choose among x0, x1"):
        daskgp.variogram(X, y, columns=["z"])


@pytest.mark.parametrize("mean", ["constant", "ols", "linear"])
@pytest.mark.parametrize("p", [1, 2])
def test_a_model_expects_its_kernel_noise_and_trend_in_the_units_of_y(mean, p, small_blocks):
    X, y = rows(p=p)
    X, y = X * [1.0, 0.5], 7 * y
    model = daskgp.ExactGP(kernels.Matern32(ard=True), max_iter=5, mean=mean).fit(X, y)
    found = daskgp.variogram(X, y, model, bins=EDGES)
    solved = model.solved_
    scaled = solved.scaling.inputs(X)
    kernel, noise = solved.theta.kernel(scaled), model.noise_variance_
    trend = scaled @ solved.scaling.slope
    if mean == "linear":
        slopes = [row.value for row in model.trend_ if "intercept" not in row.name]
        trend = X @ np.reshape(slopes, (p, 2)).T

    def expected(i, j):
        latent = kernel[i, i] - kernel[i, j] + noise
        return latent * solved.scaling.y_scale**2 + (trend[i] - trend[j]) ** 2 / 2

    wanted = double_loop(X, y, expected=expected)[2]
    np.testing.assert_allclose(found.expected, wanted.reshape(found.expected.shape))
    np.testing.assert_allclose(found.noise_variance, np.squeeze(noise * solved.scaling.y_scale**2))


def test_rows_with_errors_and_weights_are_expected_to_have_their_noise(small_blocks):
    X, y = rows(p=1)
    error, weight = np.linspace(0, 4, 60), np.linspace(1, 2, 60)
    weight[5] = 0.0  # such a row is left out
    model = daskgp.ExactGP(kernels.RBF(), optimizer=None).fit(X, y)
    plain = daskgp.variogram(np.delete(X, 5, 0), np.delete(y, 5), model, bins=EDGES)
    found = daskgp.variogram(X, y, model, bins=EDGES, y_variance=error, sample_weight=weight)
    np.testing.assert_allclose(found.semivariance, plain.semivariance)
    kept = np.arange(60) != 5
    more = plain.noise_variance * (1 / weight[kept] - 1) + error[kept]
    adds = double_loop(X[kept], y[kept], expected=lambda i, j: (more[i] + more[j]) / 2)[2][:, 0]
    np.testing.assert_allclose(found.expected, plain.expected + adds)


@pytest.mark.slow
def test_draws_of_a_process_have_the_variogram_that_its_model_expects():
    rng = np.random.default_rng(0)
    X, kernel = rng.uniform(size=(300, 2)), kernels.Matern32(lengthscale=0.1)
    draws = np.linalg.cholesky(kernel(X) + 0.1 * np.eye(300)) @ rng.normal(size=(300, 200))
    settings = {"noise_variance": 0.1, "mean": "zero", "standardize": False, "optimizer": None}
    model = daskgp.ExactGP(kernel, **settings).fit(X, draws)
    found = daskgp.variogram(X, draws, model, bins=6)
    np.testing.assert_allclose(found.semivariance.mean(axis=1), found.expected[:, 0], rtol=0.05)
    np.testing.assert_allclose(found.noise_variance, 0.1)


def test_some_blocks_stand_for_many_rows(monkeypatch):
    X, y = rows(1_500, p=1)
    read = []
    plain = module._read
    monkeypatch.setattr(module, "BLOCK_ROWS", 50)
    monkeypatch.setattr(
        module, "_read", lambda rows, span, _=None: read.append(span) or plain(rows, span)
    )
    all_pairs = daskgp.variogram(X, y)
    assert all_pairs.edges[-1] == pytest.approx(np.sqrt(2) / 3, rel=0.02)  # a third of the diagonal
    read.clear()
    some = daskgp.variogram(X, y, bins=all_pairs.edges, n_pairs=100_000)
    assert max(span.rows for span in read) <= 50
    assert len(read) <= 2 * 40
    assert 40_000 < some.pairs.sum() / all_pairs.pairs.sum() * 1500 * 1499 / 2 < 100_000
    np.testing.assert_allclose(some.semivariance, all_pairs.semivariance, rtol=0.1)
    again = daskgp.variogram(X, y, bins=all_pairs.edges, n_pairs=100_000)
    np.testing.assert_array_equal(some.semivariance, again.semivariance)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bins": 0}, "bins=0: a whole number of at least 1"),
        ({"bins": [1, 1]}, r"bins=\[1, 1\]: give a number, or increasing bounds from 0 on"),
        ({"bins": [0, 1], "max_distance": 2.0}, "max_distance has no effect beside the bounds"),
        ({"max_distance": -1}, "max_distance=-1: it must be greater than 0"),
        ({"n_pairs": 0}, "n_pairs=0"),
        ({"X": np.ones((4, 2))}, "the rows lie in one place"),
        ({"X": np.ones((1, 2)), "y": np.ones(1)}, "1 row has no pairs"),
    ],
)
def test_what_has_no_variogram_is_refused(change, words):
    given = {"X": np.eye(4, 2), "y": np.arange(4.0)} | change
    with pytest.raises(InputError, match=words):
        daskgp.variogram(**given)


def test_a_model_of_other_data_is_refused():
    X, y = rows()
    model = daskgp.ExactGP(kernels.RBF(), optimizer=None).fit(X, y)
    with pytest.raises(InputError, match="X has 1 features"):
        daskgp.variogram(X[:, :1], y, model)
    with pytest.raises(InputError, match="y has 1 targets, but the model was fitted with 2"):
        daskgp.variogram(X, y[:, 0], model)
    counts = daskgp.SVGP(kernels.RBF(), n_inducing=5, likelihood="poisson", max_iter=2)
    with pytest.raises(InputError, match="with likelihood 'poisson' y is not f plus noise"):
        daskgp.variogram(X, np.ones(60), counts.fit(X, np.arange(60) % 3))


def test_points_are_the_rows_and_the_line_is_the_model():
    X, y = rows(p=1)
    model = daskgp.ExactGP(kernels.RBF(), optimizer=None).fit(X, y)
    found = daskgp.variogram(X, y, model, bins=5, max_distance=0.5)
    ax = plot.variogram(X, y, model, bins=5, max_distance=0.5)
    points, line, nugget = ax.lines
    np.testing.assert_array_equal(points.get_data(), [found.distance, found.semivariance])
    np.testing.assert_array_equal(line.get_data(), [found.distance, found.expected])
    np.testing.assert_array_equal(nugget.get_ydata(), found.noise_variance)
    assert ax.get_xlim() == (0, 0.5)
    assert ax.get_ylim()[0] == 0
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "rows",
        "model",
        "noise of the model",
    ]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("distance", "semivariance of y")
    with pytest.raises(InputError, match="leave y, model and options out"):
        plot.variogram(found, model=model)


def test_several_targets_have_points_each():
    X, y = rows()
    ax = plot.variogram(X, y, names=("h", "gamma"))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["y0", "y1"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("h", "gamma")


def test_one_block_with_more_pairs_than_asked_for_ends():
    X = np.random.default_rng(0).uniform(0, 1, (200, 2))
    found = daskgp.variogram(X, X[:, 0], n_pairs=1_000)
    assert found.pairs.sum() > 0


def test_dates_far_away_are_days_too():
    days = pd.Series(np.array(["3000-01-01", "2000-01-01"], "M8[s]"), name="t")
    found = reading.timed(pd.DataFrame({"t": days}))["t"]
    np.testing.assert_array_equal(found, [376_200, 10_957])


def test_places_on_the_sphere_may_be_named():
    rng = np.random.default_rng(3)
    X, y = rng.uniform((0, 40), (10, 50), (80, 2)), rng.normal(size=80)
    found = daskgp.variogram(X, y, geographic=(0, 1), max_distance=500.0)
    assert found.edges[-1] == 500.0
    assert found.distance_unit == "km"
    assert str(found).split("pairs")[0].strip() == "distance (km)"
    assert daskgp.variogram(X, y).distance_unit == ""
    model = daskgp.ExactGP(geographic=(0, 1), progress=False).fit(X, y)
    with pytest.raises(SettingError, match=r"geographic=.*leave it out"):
        daskgp.variogram(X, y, model, geographic=(0, 1))
