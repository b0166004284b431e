"""Prediction: the kind, shape and chunks of its input, lazily, in tiles."""

import tracemalloc

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from dask.callbacks import Callback
from fits import arrived

import daskgp
from daskgp import SGPR, kernels
from daskgp.errors import InputError, NumericalError, SettingError, StoreError
from daskgp.models.values import Moments
from daskgp.posterior.posterior import Posterior
from daskgp.testing import no_compute

KERNEL = kernels.Matern52(lengthscale=(0.8, 1.2, 1.5), variance=1.3)


def truth(X):
    return np.stack([np.sin(X[:, 0]) + X[:, 1] + 10.0, 50 * np.cos(X[:, 2])], axis=1)


def rows(n, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, (n, 3)) * [1.0, 3.0, 0.5] + 4.0


def fitted(p, **settings):
    X = rows(200)
    y = truth(X) + 0.1 * np.random.default_rng(1).standard_normal((200, 2))
    y = y[:, 0] if p == 0 else y[:, :p]
    settings = {"optimizer": None, "n_inducing": 40, "noise_variance": 0.05, **settings}
    return SGPR(KERNEL, **settings).fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)


MODELS = {}


@pytest.fixture(params=[0, 1, 2], ids=["vector", "one target", "two targets"])
def model(request):
    if request.param not in MODELS:
        MODELS[request.param] = fitted(request.param)
    return MODELS[request.param]


@pytest.fixture(scope="module")
def vector():
    return fitted(0)


def tail(model):
    return () if model.solved_.vector_target else (model.solved_.n_targets,)


# -- arrays --------------------------------------------------------------------------------


def test_numpy_in_numpy_out_with_targets_like_those_of_the_fit(model):
    X = rows(30, seed=2)
    mean, std = model.predict(X, return_std=True)
    for a in (mean, std):
        assert type(a) is np.ndarray
        assert (a.shape, a.dtype) == ((30, *tail(model)), np.float64)
    np.testing.assert_array_equal(model.predict(X), mean)
    error = (
        mean.reshape(30, -1) - truth(X)[:, : max(1, mean.ndim and mean.reshape(30, -1).shape[1])]
    )
    assert np.all(np.abs(error) < 5 * std.reshape(30, -1) + 0.1 * np.abs(error).max())


def test_one_row_of_lists_and_no_rows_at_all(model):
    assert model.predict([[4.0, 4.0, 4.0]]).shape == (1, *tail(model))
    mean, std = model.predict(np.empty((0, 3)), return_std=True)
    assert mean.shape == std.shape == (0, *tail(model))


@pytest.mark.parametrize("spread", [False, True])
def test_dask_in_dask_out_with_the_same_row_chunks_and_nothing_computed(model, spread):
    X = rows(100, seed=3)
    chunks = ((7, 40, 1, 0, 52), (3,))
    with no_compute():
        lazy = model.predict(da.from_array(X, chunks=chunks), return_std=spread)
    wanted = model.predict(X, return_std=spread)
    for a, b in zip(lazy if spread else [lazy], wanted if spread else [wanted], strict=True):
        assert isinstance(a, da.Array)
        assert a.chunks[0] == chunks[0]
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert (type(a._meta), a._meta.ndim, a._meta.dtype) == (np.ndarray, b.ndim, b.dtype)
        np.testing.assert_allclose(a.compute(), b, rtol=1e-12)
        np.testing.assert_allclose(a[45:60].compute(), b[45:60], rtol=1e-12)


def test_a_prediction_of_many_chunks_writes_no_task_of_any_chunk(model, vector, tmp_path):
    many, side = 10_000, 100
    X = da.zeros((many, 3), chunks=(1, 3))
    group = zarr.open_group(tmp_path / "X.zarr", mode="w")
    stored = group.create_array("X", shape=X.shape, chunks=X.chunksize, dtype=X.dtype)
    axis = np.linspace(2, 6, side)
    field = xr.DataArray(da.zeros((side, side), chunks=1), dims=("b", "a"))
    cells = xr.Dataset({"c": field}, {"a": axis, "b": axis})
    found = [*model.predict(X, return_std=True), *vector.predict(stored, return_std=True)]
    found += [model.predict(X), *model.predict(X, quantiles=(0.1, 0.9))]
    found += [values.data for values in model.predict(cells, return_std=True)]
    for lazy in found:
        assert np.prod(lazy.numblocks) == many
        layers = lazy.dask.layers.values()
        assert sum(len(layer) for layer in layers if layer.is_materialized()) <= 3 * side


def test_zarr_in_lazy_out(vector, make_store):
    X = rows(50, seed=3)
    url = make_store(X, np.zeros(50), rows=20)
    with no_compute():
        mean = vector.predict(zarr.open_group(url, mode="r")["X"])
    assert mean.chunks == ((20, 20, 10),)
    np.testing.assert_allclose(mean.compute(), vector.predict(X), rtol=1e-12)


def test_no_compute_notices_a_computation(vector):
    with no_compute(), pytest.raises(AssertionError, match="nothing should be"):
        vector.predict(da.ones((4, 3))).compute()


class Counted(Posterior):
    """Counts the blocks it is asked for."""

    calls: list = []  # noqa: RUF012

    def moments(self, X, want, include_noise=False, gaussian=False):
        self.calls.append((len(X), want))
        return super().moments(X, want, include_noise, gaussian)


@pytest.fixture
def counted(vector):
    Counted.calls.clear()
    solved = Counted(**{f: getattr(vector.solved_, f) for f in vector.solved_.__dataclass_fields__})
    vector.solved_, kept = solved, vector.solved_
    yield vector
    vector.solved_ = kept


def test_mean_and_std_share_one_task_a_chunk(counted):
    X = da.from_array(rows(100), chunks=(25, 3))
    mean, std = counted.predict(X, return_std=True)
    with dask.config.set(scheduler="sync"):
        dask.compute(mean, std)
    assert counted.solved_.calls == [(25, "variance")] * 4
    counted.solved_.calls.clear()
    with dask.config.set(scheduler="sync"):
        counted.predict(X).compute()
    assert counted.solved_.calls == [(25, "mean")] * 4
    both = {**mean.__dask_graph__(), **std.__dask_graph__()}
    assert len(both) <= 4 * 3 + 3 * 4  # a read, a prediction and two slices a chunk


def test_the_model_is_one_node_of_the_graph(vector):
    X = da.from_array(rows(1000), chunks=(10, 3))
    mean, std = vector.predict(X, return_std=True)
    (graph,) = dask.optimize(mean + std)[0:1]
    sizes = sorted(len(cloudpickle.dumps(task)) for task in dict(graph.__dask_graph__()).values())
    state = sum(np.asarray(a).nbytes for a in vector.solved_.state)
    large = [size for size in sizes if size > state]
    assert len(large) == 1
    assert len(cloudpickle.dumps(dict(graph.__dask_graph__()))) < 3 * state + 100 * 5_000


def test_names_depend_on_model_and_input_alone(vector):
    X = da.from_array(rows(40), chunks=(20, 3))
    again = fitted(0)
    assert vector.predict(X).name == again.predict(X).name
    other = fitted(0, noise_variance=0.5)
    assert len({vector.predict(X).name, other.predict(X).name, vector.predict(X + 1).name}) == 3
    noisy = vector.predict(X, return_std=True, include_noise=True)[1]
    assert noisy.name != vector.predict(X, return_std=True)[1].name


def test_rows_with_a_missing_feature_give_nan_and_no_warning(model):
    X = rows(20)
    X[3, 1], X[7], X[9, 0] = np.nan, np.nan, np.inf
    bad = [3, 7, 9]
    good = np.setdiff1d(np.arange(20), bad)
    lazy = dask.compute(*model.predict(da.from_array(X, chunks=(8, 3)), return_std=True))
    for a, b in zip(model.predict(X, return_std=True), lazy, strict=True):
        assert np.isnan(a[bad]).all()
        assert np.isfinite(a[good]).all()
        np.testing.assert_allclose(a, b, rtol=1e-12)
    alone = model.predict(X[good], return_std=True)
    for a, b in zip(model.predict(X, return_std=True), alone, strict=True):
        np.testing.assert_allclose(a[good], b, rtol=1e-10)


def test_memory_is_that_of_a_tile_however_long_the_input(vector):
    X = rows(60_000)
    tracemalloc.start()
    try:
        with dask.config.set(num_workers=2):
            mean, std = vector.predict(X, return_std=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert mean.shape == std.shape == (60_000,)
    kernel_of_all = X.shape[0] * 40 * 8
    assert peak < kernel_of_all  # one whole K(X, Z), of the several that a single pass would hold


def test_single_precision_tiles_agree_to_their_precision():
    X = rows(40, seed=5)
    wide, narrow = fitted(2), fitted(2, dtype="float32")
    for a, b in zip(wide.predict(X, True), narrow.predict(X, True), strict=True):
        assert b.dtype == np.float64
        assert not np.array_equal(a, b)
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3 * np.abs(a).max())
    lazy = narrow.predict(da.from_array(X.astype("f4"), chunks=(9, 3)))
    assert lazy.dtype == np.float64


def test_integer_features_are_numbers(vector):
    X = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(vector.predict(X), vector.predict(X.astype(float)))


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((4, 2)), "X has 2 features, but sgpr is expecting 3 features as input: a, b, c"),
        (np.ones(4), "X has 1 dimensions, 2 are needed"),
        (da.ones((4, 5)), "X has 5 features, but sgpr is expecting 3"),
        (np.array([["u", "v", "w"]]), "X has type <U1 and holds .u., but numbers are needed"),
        (xr.Dataset(coords={"a": [1j], "b": [1.0], "c": [1.0]}), "Complex data not supported"),
        (pd.DataFrame(np.ones((4, 3)), columns=["a", "z", "c"]), "feature 'z'.*fitted with 'b'"),
        (pd.DataFrame(np.ones((4, 3)), columns=["b", "a", "c"]), "a, b, c in this order"),
        (
            pd.DataFrame(np.ones((4, 2)), columns=["a", "b"]),
            "X has 2 features, but sgpr is expecting 3 features as input: a, b, c; X lacks 'c': ",
        ),
        (
            pd.DataFrame(np.ones((4, 5)), columns=["a", "d", "b", "e", "c"]),
            r"a, b, c; the model has no feature 'd', 'e': give X\[\[\"a\", \"b\", \"c\"\]\]$",
        ),
        (
            pd.DataFrame(np.ones((4, 4)), columns=["a", "d", "b", "e"]),
            "; X lacks 'c'; the model has no feature 'd', 'e': give all features of the fit$",
        ),
        (
            xr.DataArray(np.ones((4, 4)), {"f": ["a", "b", "c", "d"]}, ("r", "f")),
            "a, b, c; the model has no feature 'd': leave such columns out$",
        ),
        (xr.DataArray(np.ones((4, 2)), dims=("row", "f")), "2 features"),
        (
            xr.DataArray(np.ones((4, 3)), dims=("r", "f"), coords={"f": ["a", "z", "c"]}),
            "feature 'z'.*fitted with 'b'",
        ),
        (xr.Dataset(coords={"a": [1.0], "b": [1.0]}), "feature 'c' is not in the xarray object"),
    ],
)
def test_inputs_of_another_shape_or_name_are_refused(vector, X, message):
    with pytest.raises(InputError, match=message) as caught:
        vector.predict(X)
    assert "\n" not in str(caught.value)


def test_features_of_a_store_are_checked_by_name(vector, make_store):
    url = make_store(rows(20), np.zeros(20), feature_names=["a", "c", "b"])
    with pytest.raises(InputError, match="feature 'c' where the model was fitted with 'b'"):
        vector.predict(da.from_zarr(url, component="X"))


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("feature_names", ["a", "b"]),
        ("feature_names", "abc"),
        ("feature_units", ["m"]),
        ("target_names", ["u", "v"]),
        ("target_units", ["K", "K"]),
    ],
)
@pytest.mark.whole
def test_attributes_of_another_number_of_columns_are_refused(
    key, given, vector, make_store, tmp_path
):
    url = make_store(rows(20), np.zeros(20))
    zarr.open_group(url, mode="a").attrs[key] = given
    told = rf"attribute {key} of dataset .* is .*{given[0]}.* for . columns? of .: give a list"
    with pytest.raises(StoreError, match=told):
        daskgp.ExactGP(optimizer=None).fit(*daskgp.open_dataset(url))
    if key.startswith("feature"):
        with pytest.raises(StoreError, match=told):
            vector.score(*daskgp.open_dataset(url))
        with pytest.raises(StoreError, match=told):
            vector.predict_store(url, tmp_path / "out.zarr")
        assert not (tmp_path / "out.zarr").exists()


def test_grids_without_points_have_predictions_without_any(vector):
    grid = xr.Dataset(coords={"a": [1.0, 2.0], "b": np.empty(0), "c": 3.0})
    for X in (grid, grid.chunk()):
        mean, std = vector.predict(X, return_std=True)
        assert mean.shape == std.shape == (2, 0)


def test_std_and_covariance_exclude_each_other(vector):
    with pytest.raises(SettingError, match="exclude each other"):
        vector.predict(rows(3), return_std=True, return_cov=True)


def test_a_covariance_is_not_made_for_rows_that_are_not_in_memory(vector):
    for X in (da.ones((4, 3)), xr.DataArray(np.ones((4, 3)), dims=("row", "f"))):
        with pytest.raises(InputError, match="needs rows in memory"):
            vector.predict(X, return_cov=True)
    with pytest.raises(InputError, match=r"30000 rows needs 7 GB.*at most 20000"):
        vector.predict(np.ones((30_000, 3)), return_cov=True)


def test_a_variance_below_zero_beyond_rounding_is_an_error(vector):
    solved = vector.solved_
    scaled, mean = np.zeros((2, 3)), np.zeros((2, 1))
    checked = solved._checked(Moments(mean, np.array([-1e-9, 0.5])), scaled)
    np.testing.assert_array_equal(checked.variance, np.array([0.0, 0.5]))
    with pytest.raises(NumericalError, match=r"-0.01 is below zero beyond rounding"):
        solved._checked(Moments(mean, np.array([-0.01, 0.5])), scaled)


# -- joint posteriors ----------------------------------------------------------------------


@pytest.mark.parametrize("noise", [False, True])
def test_covariance_is_symmetric_with_the_squared_std_on_its_diagonal(model, noise):
    X = rows(15, seed=4)
    mean, cov = model.predict(X, return_cov=True, include_noise=noise)
    wanted, std = model.predict(X, return_std=True, include_noise=noise)
    np.testing.assert_allclose(mean, wanted, rtol=1e-12)
    assert cov.shape == (15, 15, *tail(model))
    np.testing.assert_allclose(cov, cov.swapaxes(0, 1), rtol=1e-12, atol=1e-14 * cov.max())
    np.testing.assert_allclose(np.moveaxis(np.diagonal(cov), -1, 0), std**2, rtol=1e-8)
    for C in np.moveaxis(cov.reshape(15, 15, -1), -1, 0):
        assert np.linalg.eigvalsh(C).min() > -1e-9 * np.trace(C)


def test_noise_adds_the_noise_variance_in_the_unit_of_each_target(model):
    X = rows(5)
    quiet, noisy = (model.predict(X, True, include_noise=flag)[1] for flag in (False, True))
    added = (noisy**2 - quiet**2).reshape(5, -1)
    wanted = model.noise_variance_ * model.solved_.scaling.y_scale**2
    np.testing.assert_allclose(added, np.tile(wanted, (5, 1)), rtol=1e-9)


def test_samples_have_the_moments_of_the_posterior(model):
    X = rows(4, seed=8)
    draws = model.sample_y(X, 20_000, random_state=3)
    assert draws.shape == (4, *tail(model), 20_000)
    mean, cov = model.predict(X, return_cov=True)
    std = np.sqrt(np.moveaxis(np.diagonal(cov), -1, 0))
    np.testing.assert_allclose((draws.mean(axis=-1) - mean) / std, 0.0, atol=4 / np.sqrt(20_000))
    flat, covs = draws.reshape(4, -1, 20_000), cov.reshape(4, 4, -1)
    for j in range(flat.shape[1]):
        scale = np.sqrt(np.outer(np.diag(covs[:, :, j]), np.diag(covs[:, :, j])))
        np.testing.assert_allclose(np.cov(flat[:, j]) / scale, covs[:, :, j] / scale, atol=0.05)
    np.testing.assert_array_equal(draws[..., :3], model.sample_y(X, 20_000, 3)[..., :3])
    assert not np.array_equal(draws[..., :3], model.sample_y(X, 3, random_state=4))


def test_samples_at_a_repeated_row_agree(vector):
    X = np.repeat(rows(1), 3, axis=0)
    draws = vector.sample_y(X, 5)
    np.testing.assert_allclose(draws[0], draws[1], atol=1e-3)


# -- labelled grids ------------------------------------------------------------------------


def grid(chunks=None):
    """Feature b lies first, c is a variable of two dimensions, extra goes along."""
    b, a = np.linspace(-1, 9, 9), np.linspace(2, 6, 7)
    data = xr.Dataset(
        {"c": (("b", "a"), np.add.outer(b, a) / 4)},
        coords={"b": b, "a": a, "extra": ("a", np.arange(7)), "run": 5},
    )
    return data if chunks is None else data.chunk(chunks)


def flat(data):
    b, a = np.meshgrid(data.b, data.a, indexing="ij")
    return np.stack([a.ravel(), b.ravel(), data.c.values.ravel()], axis=1)


def test_a_grid_comes_back_as_the_same_grid(model):
    data = grid()
    mean, std = model.predict(data, return_std=True)
    wanted = model.predict(flat(data), return_std=True)
    for found, want in zip((mean, std), wanted, strict=True):
        assert isinstance(found, xr.DataArray)
        assert isinstance(found.data, np.ndarray)
        assert found.dims == ("b", "a") + (() if model.solved_.vector_target else ("target",))
        for name in data.coords:
            assert found[name].dims == data[name].dims
            np.testing.assert_array_equal(found[name], data[name])
        np.testing.assert_allclose(found.values.reshape(want.shape), want, rtol=1e-10)
    if model.solved_.vector_target:
        assert mean.name == "y_mean"
    else:
        assert list(mean.target) == list(model.solved_.target_names)


def test_a_chunked_grid_stays_lazy_with_its_chunks(model):
    data = grid({"b": 4, "a": 3})
    with no_compute():
        mean, std = model.predict(data, return_std=True)
    eager = model.predict(grid(), return_std=True)
    for found, want in zip((mean, std), eager, strict=True):
        assert found.chunks[:2] == ((4, 4, 1), (3, 3, 1))
        assert found.dtype == np.float64
        xr.testing.assert_allclose(found.compute(), want, rtol=1e-10)
    seen = []
    with dask.config.set(scheduler="sync"), Callback(posttask=lambda k, *_: seen.append(k)):
        mean.isel(b=slice(0, 4), a=slice(0, 3)).compute()
    assert sum("grid-" in str(key) for key in seen) <= 1  # one chunk asked for, one predicted


def test_a_square_grid_and_its_transpose_are_told_apart(vector):
    side = np.linspace(2, 6, 6)
    data = xr.DataArray(
        da.zeros((6, 6, 1), chunks=(3, 3, 1)),
        dims=("a", "b", "c"),
        coords={"a": side, "b": side, "c": [4.0]},
    )
    first, second = vector.predict(data), vector.predict(data.transpose("b", "a", "c"))
    assert first.data.name != second.data.name
    found, turned = dask.compute(first, second)
    assert not np.allclose(found.values, turned.values)
    xr.testing.assert_allclose(found, turned.transpose("a", "b", "c"))


def test_coordinates_of_a_large_grid_are_built_inside_the_blocks(vector):
    a, b, c = (da.linspace(2, 6, n, chunks=500) for n in (2000, 3000, 1))
    data = xr.Dataset(coords={"a": a.compute(), "b": b.compute(), "c": c.compute()})
    template = xr.DataArray(
        da.zeros((2000, 3000, 1), chunks=(50, 100, 1)), dims=("a", "b", "c"), coords=data.coords
    )
    tracemalloc.start()
    try:
        with no_compute():
            mean = vector.predict(template)
        corner = mean[-50:, -100:].compute()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert mean.shape == (2000, 3000, 1)
    X = np.stack(
        [m.ravel() for m in np.meshgrid(corner.a, corner.b, corner.c, indexing="ij")], axis=1
    )
    np.testing.assert_allclose(corner.values.ravel(), vector.predict(X), rtol=1e-10)
    assert peak < 2000 * 3000 * 3 * 8 / 4


def test_dimensions_without_a_feature_are_left_out(vector):
    data = grid({"b": 4}).expand_dims(time=3)
    plain = xr.Dataset({"c": data.c.isel(time=0, drop=True)}, coords=grid().coords)
    extended = plain.assign(other=("time", np.arange(3)))
    xr.testing.assert_allclose(vector.predict(extended).compute(), vector.predict(grid()))


def test_a_long_grid_in_memory_is_cut_into_blocks(counted):
    size = 3 * 65_536 // 40
    array = xr.DataArray(
        np.zeros((size, 40, 1)),
        dims=("a", "b", "c"),
        coords={"a": np.linspace(2, 6, size), "b": np.linspace(0, 9, 40), "c": [4.0]},
    )
    found = counted.predict(array)
    assert found.shape == (size, 40, 1)
    assert max(n for n, _ in counted.solved_.calls) <= 65_536
    assert len(counted.solved_.calls) >= 3


def test_a_time_coordinate_of_a_fit_is_understood_at_prediction():
    time = pd.date_range("2001-01-01", periods=40, freq="D")
    x = np.linspace(0, 1, 5)
    signal = np.sin(np.arange(40) / 5)[:, None] + x
    y = xr.DataArray(signal, dims=("time", "x"), coords={"time": time, "x": x}, name="level")
    model = SGPR(n_inducing=60, max_iter=15).fit(y, y)
    assert list(model.feature_names_in_) == ["time", "x"]
    finer = xr.Dataset(coords={"time": time[:5] + pd.Timedelta("12h"), "x": [0.25, 0.75]})
    mean = model.predict(finer)
    assert mean.name == "level_mean"
    assert mean.time.dtype.kind == "M"
    wanted = np.sin((np.arange(5) + 0.5) / 5)[:, None] + [0.25, 0.75]
    np.testing.assert_allclose(mean.transpose("time", "x").values, wanted, atol=0.02)


def test_a_labelled_table_comes_back_by_rows(model):
    X = rows(10)
    labelled = xr.DataArray(
        X, dims=("station", "feature"), coords={"feature": ["a", "b", "c"]}
    ).assign_coords(name=("station", list("abcdefghij")))
    mean = model.predict(labelled)
    assert mean.dims[0] == "station"
    assert list(mean.coords["name"].values) == list("abcdefghij")
    np.testing.assert_allclose(mean.values, model.predict(X), rtol=1e-12)
    lazy = model.predict(labelled.chunk({"station": 4}))
    assert lazy.chunks[0] == (4, 4, 2)
    np.testing.assert_allclose(lazy.values, mean.values, rtol=1e-12)


def test_a_model_in_a_message_predicts_the_same_bits(vector):
    solved = vector.solved_
    came = arrived(solved)
    for array in (*came.state, came.theta.inputs):
        assert array.flags.aligned
    for mine, its in zip(
        *(s.moments(rows(57, 3), "variance")[:2] for s in (solved, came)), strict=True
    ):
        np.testing.assert_array_equal(mine, its)
