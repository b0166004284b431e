"""Sample paths against the dense GP, on spheres, for several targets, and in stores."""

import pickle
import shutil

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import dataset, invoke, refused, succeed

import daskgp
from daskgp import kernels
from daskgp.errors import InputError, SettingError, StoreError
from daskgp.posterior.posterior import Posterior
from tests import oracle

KERNEL = kernels.Matern32(0.6, variance=1.3)
PLAIN = {"optimizer": None, "standardize": False, "mean": "zero", "progress": False}


def rows(n=60, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 2, (n, d))
    return X, np.sin(3 * X[:, 0]) + 0.2 * rng.standard_normal(n)


def agree(values, mean, cov, prior):
    """Moments of draws, within four standard errors and what random features add."""
    draws, std = values.shape[1], np.sqrt(np.diag(cov))
    assert abs((values.mean(axis=1) - mean) * np.sqrt(draws) / std).max() < 4.5
    error = np.outer(std, std) * np.sqrt(2 / draws) + 0.005 * prior
    assert (abs(np.cov(values) - cov) / error).max() < 4.5


METHODS = {
    "exact": daskgp.ExactGP(kernel=KERNEL, noise_variance=0.05, **PLAIN),
    "lma": daskgp.LMA(
        kernel=KERNEL, noise_variance=0.05, n_support=10, block_rows=15, markov_order=3, **PLAIN
    ),
    "cagp": daskgp.CaGP(kernel=KERNEL, noise_variance=0.05, n_actions=60, **PLAIN),
}


@pytest.mark.parametrize("model", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("noisy", [False, True], ids=["one noise", "noise per row"])
def test_paths_are_draws_of_the_exact_posterior(model, noisy):
    X, y = rows()
    T = np.random.default_rng(1).uniform(-0.5, 2.5, (8, 2))
    error = np.random.default_rng(2).uniform(0, 0.5, len(y)) if noisy else np.zeros(len(y))
    given = {"y_variance": error} if noisy else {}
    values = model.fit(X, y, **given).sample_paths(2_000, n_frequencies=1_000)(T)
    exact = oracle.posterior(KERNEL(X) + np.diag(error), KERNEL(T, X), KERNEL(T), y, 0.05)
    agree(values, *exact, KERNEL.variance)


@pytest.mark.slow
@pytest.mark.parametrize("method", [daskgp.VecchiaGP, daskgp.ExactGP])
def test_paths_are_as_wide_as_predicted_where_rows_are_precise(method):
    """What is left is a few high frequencies, of which the default draws enough."""
    rng = np.random.default_rng(0)
    X, T = rng.uniform(0, 1, (800, 2)), rng.uniform(0.1, 0.9, (100, 2))
    error = np.exp(rng.uniform(np.log(1e-6), np.log(1e-2), 800))
    y = np.sin(5 * X[:, 0]) + np.sqrt(error) * rng.standard_normal(800)
    model = method(kernels.Matern32(0.3), noise_variance=1e-6, **PLAIN).fit(X, y, y_variance=error)
    variance = model.predict(T, return_std=True, include_noise=False)[1] ** 2
    for seed in range(3):
        found = model.sample_paths(400, random_state=seed)(T).var(axis=1, ddof=1)
        assert np.mean(found / variance) == pytest.approx(1.0, abs=0.06)


def test_several_targets_have_independent_paths():
    X, y = rows()
    both = np.column_stack([y, 10 * np.cos(X[:, 1])])
    T = X[:6] + 0.3
    model = daskgp.SGPR(n_inducing=30, kernel=KERNEL, optimizer=None, progress=False).fit(X, both)
    paths = model.sample_paths(1_000, n_frequencies=500)
    values, (mean, std) = paths(T), model.predict(T, return_std=True)
    assert values.shape == (6, 2, 1_000)
    np.testing.assert_allclose(values.std(axis=2), std, rtol=0.15)
    assert abs((values.mean(axis=2) - mean) / std).max() < 0.15
    one, other = (values[:, j] - values[:, j].mean(axis=1, keepdims=True) for j in (0, 1))
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.1
    lazy = paths(da.from_array(T, chunks=(4, 2)))
    assert lazy.chunks == ((4, 2), (2,), (1_000,))
    np.testing.assert_array_equal(lazy.compute(), values)
    field = paths(xr.DataArray(np.zeros((3, 2)), {"x0": [0.0, 1.0, 2.0], "x1": [0.0, 1.0]}))
    assert field.dims == ("x0", "x1", "target", "sample")


def test_paths_on_a_sphere_meet_at_the_date_line():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-180, 180, 200), rng.uniform(-85, 85, 200)])
    y = np.cos(np.deg2rad(X[:, 0])) + 0.1 * rng.standard_normal(200)
    model = daskgp.SGPR(
        n_inducing=60, geographic=(0, 1), kernel="matern32(3000.0)", optimizer=None, progress=False
    ).fit(X, y)
    T = np.array([[-180.0, 10.0], [180.0, 10.0], [20.0, 90.0], [-77.0, 90.0], [40.0, 0.0]])
    values = model.sample_paths(1_500)(T)
    np.testing.assert_allclose(values[0], values[1], atol=1e-6)
    np.testing.assert_allclose(values[2], values[3], atol=1e-6)
    mean, cov = model.predict(T[[0, 2, 4]], return_cov=True)
    prior = model.solved_.scaling.y_scale[0] ** 2
    agree(values[[0, 2, 4]], mean, cov, prior)


def test_far_from_the_data_a_path_has_the_variogram_of_the_kernel():
    X, y = rows(30)
    kernel = kernels.Matern12(0.5, variance=2.0)
    model = daskgp.SGPR(n_inducing=20, kernel=kernel, **PLAIN).fit(X, y)
    places = 50 + 0.1 * np.arange(4_000)[:, None] * np.array([1.0, 0.0])
    with pytest.warns(UserWarning, match="far outside the training rows"):
        values = model.sample_paths(20)(places)
    for lag in (1, 3, 10, 30):
        half = 0.5 * ((values[lag:] - values[:-lag]) ** 2).mean()
        wanted = 2.0 - kernel(places[:1], places[lag : lag + 1])[0, 0]
        assert half == pytest.approx(wanted, rel=0.06)


@pytest.mark.slow
def test_averages_of_paths_have_the_law_of_the_average():
    X, y = rows()
    model = METHODS["exact"].fit(X, y)
    T = np.random.default_rng(1).uniform(0, 2, (300, 2))
    T[7, 0] = np.nan
    paths, w = model.sample_paths(2_000), np.linspace(0, 1, 300)
    mean, std = model.predict_average(T, w)
    found = paths.average(T, w)
    assert abs(found.mean() - mean) < 4.5 * std / np.sqrt(2_000)
    assert found.std() == pytest.approx(std, rel=0.08)
    assert paths.exceedance(T, 0.5).mean() == pytest.approx(
        np.nanmean(model.predict_exceedance(T, 0.5)), abs=0.01
    )


def test_averages_over_a_grid_are_labelled_and_lazy():
    X, y = rows()
    both = np.column_stack([y, np.exp(y)])
    model = daskgp.SGPR(n_inducing=30, kernel=KERNEL, optimizer=None, progress=False).fit(X, both)
    grid = xr.Dataset(coords={"x0": np.linspace(0, 2, 9), "x1": np.linspace(0, 2, 7)})
    area, paths = xr.DataArray(np.arange(9.0), dims="x0"), model.sample_paths(4)
    field = paths(grid)
    wanted = field.weighted(area).mean(["x0", "x1"])
    found = paths.average(grid, area)
    assert found.dims == ("target", "sample")
    xr.testing.assert_allclose(found, wanted)
    cells = xr.DataArray(da.zeros((9, 7), chunks=(4, 7)), grid.coords, ("x0", "x1"))
    lazy = paths.exceedance(cells, 1.0)
    assert isinstance(lazy.data, da.Array)
    share = (field > 1.0).mean(["x0", "x1"])
    xr.testing.assert_allclose(lazy.compute(), share)
    assert lazy.attrs["threshold"] == 1.0


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda paths: paths.average(np.empty((0, 2))), "no places"),
        (lambda paths: paths.average(np.ones((3, 2)), -np.ones(3)), "3 weights are negative"),
        (lambda paths: paths.average(np.ones((3, 2)), np.zeros(3)), "all weights are 0"),
        (lambda paths: paths.average(np.full((3, 2), np.nan)), "no place has a weight"),
        (lambda paths: paths.exceedance(np.ones((3, 2)), np.nan), "threshold is nan"),
    ],
)
def test_averages_of_nothing_are_refused(call, named):
    model = daskgp.ExactGP(kernel=KERNEL, **PLAIN).fit(*rows())
    with pytest.raises((InputError, SettingError), match=named):
        call(model.sample_paths(2))


def test_transformed_targets_have_averages_by_paths():
    X, y = rows()
    model = daskgp.ExactGP(kernel=KERNEL, target_transform="log", optimizer=None, progress=False)
    paths = model.fit(X, np.exp(y)).sample_paths(5)
    np.testing.assert_allclose(paths.average(X), paths(X).mean(axis=0))


def test_paths_are_small_and_a_graph_carries_them_once(monkeypatch):
    X, y = rows(400)
    model = daskgp.SGPR(n_inducing=200, kernel=KERNEL, **PLAIN).fit(X, y)
    paths = model.sample_paths(5, n_frequencies=100)
    lazy = paths(da.zeros((10_000, 2), chunks=(100, 2)))
    assert len(pickle.dumps(paths.solved_)) < 30_000  # without factors (200, 200)
    graph = dask.base.collections_to_expr(lazy).__dask_graph__()
    solved = [value for value in map(_value, graph.values()) if isinstance(value, Posterior)]
    assert len(solved) == 1
    again = pickle.loads(pickle.dumps(paths))
    np.testing.assert_array_equal(again(X), paths(X))
    monkeypatch.setattr(Posterior, "moments", None)  # nothing is computed before it is asked for
    paths(da.zeros((10, 2), chunks=5))


def _value(task):
    return getattr(task, "value", task)


def test_a_saved_model_gives_the_same_paths(tmp_path):
    X, y = rows(200)
    model = METHODS["lma"].fit(X, y)
    model.save(tmp_path / "model.zarr")
    wanted = model.sample_paths(4)(X[:9])
    loaded = daskgp.load(tmp_path / "model.zarr").sample_paths(4)
    np.testing.assert_array_equal(loaded(X[:9]), wanted)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded))(X[:9]), wanted)


REFUSED = [
    ({"n_samples": 0}, "n_samples"),
    ({"n_samples": 2, "random_state": -1}, "random_state"),
    ({"n_samples": 2, "n_frequencies": 0}, "n_frequencies"),
]


@pytest.mark.parametrize(("given", "named"), REFUSED)
def test_numbers_that_cannot_be_are_refused(given, named):
    model = METHODS["exact"].fit(*rows(20))
    with pytest.raises(SettingError, match=named):
        model.sample_paths(**given)
    if named != "n_frequencies":
        with pytest.raises(SettingError, match=named):
            model.sample_y(rows(3)[0], **given)


def test_settings_without_paths_are_refused_with_what_has_them():
    X, y = rows()
    decoupled = daskgp.DecoupledGP(basis="generalized", max_iter=2, progress=False).fit(X, y)
    with pytest.raises(SettingError, match="basis='kernel'"):
        decoupled.sample_paths(2)
    experts = daskgp.ExpertsGP(expert="sparse", aggregation="rbcm", n_experts=2, progress=False)
    with pytest.raises(SettingError, match="aggregation='optimal'"):
        experts.fit(X, y).sample_paths(2)
    spectral = daskgp.SparseSpectrumGP(optimizer=None, progress=False).fit(X, y)
    with pytest.raises(SettingError, match="features of their own"):
        spectral.sample_paths(2, n_frequencies=5)
    product = kernels.Linear() * KERNEL
    model = daskgp.ExactGP(kernel=product, optimizer=None, progress=False).fit(X, y)
    with pytest.raises(SettingError, match="a product of Linear"):
        model.sample_paths(2)
    with pytest.raises(InputError, match="2 features"):
        METHODS["exact"].fit(X, y).sample_paths(2)(np.zeros((3, 5)))


# -- in stores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_a_store_of_rows_has_samples_and_goes_on(name, tmp_path):
    X, y = rows(100)
    model = METHODS[name].fit(X, y)
    model.save(tmp_path / "model.zarr")
    T = rows(45, seed=3)[0]
    dataset(tmp_path / "places.zarr", T[:30], T[:30, 0], step=10)
    command = ["predict", *(str(tmp_path / f"{n}.zarr") for n in ("model", "places", "out"))]
    asked = ["--samples", "4", "--seed", "7"]
    assert succeed(*command, *asked)["rows"] == 30
    out = zarr.open_group(tmp_path / "out.zarr")
    first = out["samples"][...]
    paths = model.sample_paths(4, random_state=7)
    np.testing.assert_array_equal(first, paths(T[:30]))
    assert out["samples"].metadata.dimension_names == ("row", "sample")
    shutil.rmtree(tmp_path / "places.zarr")
    dataset(tmp_path / "places.zarr", T, T[:, 0], step=10)  # the input has grown
    assert succeed(*command, *asked, "--resume")["rows"] == 15
    np.testing.assert_array_equal(out["samples"][...][:30], first)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "out.zarr/samples")[...], paths(T))
    for other in ([], ["--samples", "4"], ["--samples", "5", "--seed", "7"]):
        assert "samples [4, 7]" in refused(*command, *other, "--resume")
    assert "--samples" in refused(*command, "--seed", "7")


@pytest.mark.slow
def test_a_map_has_samples_along_a_dimension(tmp_path):
    X, y = rows(100)
    model = METHODS["lma"].fit(X, y)
    grid = xr.Dataset(
        {"land": (("x0", "x1"), np.arange(63).reshape(9, 7) % 5 > 0)},
        {"x0": np.linspace(0, 2, 9), "x1": np.linspace(0, 2, 7)},
    )
    source, cut = str(tmp_path / "grid.zarr"), {"land": {"chunks": (4, 4)}}
    grid.to_zarr(source, encoding=cut, consolidated=False)
    wanted = {"mask": "land", "n_samples": 3, "random_state": 1}
    model.predict_store(source, str(tmp_path / "map.zarr"), **wanted)
    field = xr.open_zarr(tmp_path / "map.zarr")
    assert field["samples"].dims == ("x0", "x1", "sample")
    paths = model.sample_paths(3, random_state=1)(grid)
    inside = grid["land"].values
    np.testing.assert_array_equal(field["samples"].values[inside], paths.values[inside])
    assert np.isnan(field["samples"].values[~inside]).all()
    assert model.is_predicted(source, str(tmp_path / "map.zarr"), **wanted)
    with pytest.raises(StoreError, match=r"samples \[3, 1\]"):
        model.predict_store(source, str(tmp_path / "map.zarr"), resume=True, mask="land")
    with pytest.raises(SettingError, match="random_state belongs to n_samples"):
        model.predict_store(source, str(tmp_path / "other.zarr"), random_state=1)


def test_a_method_without_paths_is_refused_before_anything_is_written(tmp_path):
    X, y = rows(100)
    model = daskgp.ExpertsGP(
        expert="exact", n_experts=3, kernel=KERNEL, optimizer=None, progress=False
    ).fit(X, y)
    dataset(tmp_path / "places.zarr", X, y, step=50)
    with pytest.raises(SettingError, match="no sample paths"):
        model.predict_store(tmp_path / "places.zarr", str(tmp_path / "out.zarr"), n_samples=2)
    assert not (tmp_path / "out.zarr").exists()
    assert invoke("predict", "--help").output.count("--samples") >= 1
