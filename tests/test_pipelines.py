"""Predictions as a part of larger computations: lazy, light to send, and averaged over places."""

import tracemalloc

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from dask.callbacks import Callback
from distributed import Client
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone

from daskgp import CGGP, LMA, SGPR, SVGP, ExactGP, ExpertsGP, OptiComGP
from daskgp.errors import InputError, NumericalError, SettingError
from daskgp.predict import average
from daskgp.testing import no_compute
from tests.contract import cases

COMMON = {"kernel": "rbf", "progress": False, "device": "cpu", "noise_variance": 0.05}
JOINT = cases.those(
    lambda name: name not in cases.NO_SPREAD and cases.method(name).why_no_joint() is None
)
"""Methods with a joint covariance."""
every = pytest.mark.parametrize("name", cases.SETTINGS)

FITTED = {}


def rows(n, seed=0):
    return np.random.default_rng(seed).uniform(0, 4, (n, 2))


def truth(X):
    return np.stack([np.sin(2 * X[:, 0]) + X[:, 1], 20 * np.cos(X[:, 1]) + 300.0], axis=1)


def fitted(name, p=0):
    """A small model of one target (n,), or of p."""
    if (name, p) not in FITTED:
        X = rows(240)
        y = truth(X) + 0.1 * np.random.default_rng(1).standard_normal((240, 2))
        model = cases.fixed(name, **COMMON)
        FITTED[name, p] = model.fit(X, y[:, 0] if p == 0 else y)
    return FITTED[name, p]


def tasks(collection):
    """Tasks that computing a collection takes, after all of Dask's optimisation."""
    (optimised,) = dask.optimize(collection)
    return dict(optimised.__dask_graph__())


class Counted(Callback):
    """Counts tasks as they run, by the first part of their names."""

    def __init__(self):
        self.keys = []

    def _posttask(self, key, result, dsk, state, worker):
        self.keys.append(key)

    def count(self, of):
        return sum(str(k[0] if isinstance(k, tuple) else k).startswith(of) for k in self.keys)


# -- the graph -------------------------------------------------------------------------------


@every
def test_a_chunk_more_is_few_tasks_and_few_bytes_more(name):
    model = fitted(name)

    def sizes(chunks, spread):
        X = da.from_array(rows(5 * chunks), chunks=(5, 2))
        with no_compute():
            found = model.predict(X, return_std=spread)
            total = (found[0] + 2 * found[1] if spread else found + 1).sum()
            graph = tasks(total)
        return np.array([len(graph), len(cloudpickle.dumps(graph))])

    for spread in (False, True) if name not in cases.NO_SPREAD else (False,):
        number, size = (sizes(60, spread) - sizes(10, spread)) / 50
        # rows; prediction; mean and spread of it and what is made of them; shares of a sum
        assert number <= (5.5 if spread else 3.5)
        assert size < 4_000


@every
def test_the_state_is_one_node_of_the_graph(name):
    model = fitted(name)
    X = da.from_array(rows(300), chunks=(5, 2))
    graph = tasks(model.predict(X) + 1.0)
    assert sum(str(key).startswith("posterior-") for key in graph) == 1
    state = len(cloudpickle.dumps(model.solved_))
    others = {key: task for key, task in graph.items() if not str(key).startswith("posterior-")}
    assert max(len(cloudpickle.dumps(task)) for task in others.values()) < max(4_000, state / 2)


@every
def test_expressions_are_those_of_arrays_and_nothing_is_computed(name):
    model = fitted(name)
    X = rows(101, seed=3)
    with no_compute():
        lazy = model.predict(da.from_array(X, chunks=((7, 40, 1, 53), (2,))))
        made = da.where(lazy > 0, lazy, 0.0).map_blocks(np.sqrt).cumsum(axis=0)[::3]
        made = dask.optimize(made)[0]
    wanted = np.sqrt(np.maximum(model.predict(X), 0.0)).cumsum()[::3]
    np.testing.assert_allclose(made.compute(scheduler="sync"), wanted, rtol=1e-9)


def test_a_slice_predicts_its_chunks_alone():
    X = da.from_array(rows(1_000), chunks=(10, 2))
    mean, std = fitted("sgpr").predict(X, return_std=True)
    with Counted() as counted:
        (mean + std)[103:128].compute(scheduler="sync")
    assert counted.count("predict-") <= 3
    assert len(tasks((mean + std)[103:128])) < 20


def test_several_results_share_each_prediction():
    X = da.from_array(rows(200), chunks=(20, 2))
    mean, std = fitted("sgpr").predict(X, return_std=True)
    with Counted() as counted:
        dask.compute(mean.sum(), std.max(), (mean / std).std(), scheduler="sync")
    assert counted.count("predict-") == 10


def test_a_chunk_is_given_up_once_it_is_summed():
    """Nothing of the size of the rows is alive at any time."""
    most = []

    class Alive(Callback):
        def _posttask(self, key, result, dsk, state, worker):
            most.append(sum(getattr(a, "nbytes", 0) for a in state["cache"].values()))

    X = da.random.default_rng(0).uniform(0, 4, (20_000, 2), chunks=(200, 2))
    with Alive():
        fitted("sgpr").predict(X).mean().compute(scheduler="sync")
    assert max(most) < 0.2 * X.nbytes


# -- neighbours and labels -------------------------------------------------------------------


@pytest.fixture
def grid():
    """A grid of features in chunks, and the same in memory."""
    axes = {"x0": np.linspace(0, 4, 24), "x1": np.linspace(0, 4, 18)}
    eager = xr.Dataset({"height": (("x0", "x1"), np.zeros((24, 18)))}, axes)
    return eager.chunk(x0=8, x1=9), eager


def test_neighbours_of_predictions(grid):
    lazy, eager = grid
    model = fitted("sgpr")

    def slope(a):
        return np.gradient(a, axis=0)

    with no_compute():
        mean = model.predict(lazy).data
        found = mean.map_overlap(slope, depth=1, boundary="none", dtype=float)
    wanted = slope(model.predict(eager).values)
    np.testing.assert_allclose(found.compute(), wanted, rtol=1e-9, atol=1e-12)


def test_datasets_go_on_with_labels(grid):
    lazy, eager = grid
    model = fitted("sgpr")

    def used(X):
        mean, std = model.predict(X, return_std=True)
        found = xr.Dataset({"mean": mean, "std": std, "height": X["height"]})
        found["exceeds"] = (found["mean"] > 1.0).where(found["std"] < 0.5)
        return found.coarsen(x0=4, x1=3).mean().sel(x0=slice(1, 3))

    with no_compute():
        made = used(lazy)
        made = dask.optimize(made)[0]
    xr.testing.assert_allclose(made.compute(), used(eager))


def test_apply_ufunc_takes_a_table_of_rows():
    model, X = fitted("sgpr"), rows(90, seed=5)
    table = xr.DataArray(X, dims=("place", "feature")).chunk(place=20)
    with no_compute():
        found = xr.apply_ufunc(
            model.predict,
            table,
            input_core_dims=[["feature"]],
            dask="parallelized",
            output_dtypes=[float],
        )
    assert found.chunks == ((20, 20, 20, 20, 10),)
    np.testing.assert_allclose(found.compute().values, model.predict(X), rtol=1e-12)


def test_apply_ufunc_takes_grids_of_features(grid):
    """A function of arrays on a grid, which stacks its rows itself."""
    lazy, eager = grid
    model = fitted("sgpr")

    def of_arrays(*features):
        rows = np.stack([a.ravel() for a in features], axis=-1)
        mean, std = model.predict(rows, return_std=True)
        return mean.reshape(features[0].shape), std.reshape(features[0].shape)

    parts = xr.broadcast(*(lazy[name].astype(float) for name in ("x0", "x1")))
    parts = [part.chunk(x0=8, x1=9) for part in parts]
    with no_compute():
        mean, std = xr.apply_ufunc(
            of_arrays,
            *parts,
            output_core_dims=[[], []],
            dask="parallelized",
            output_dtypes=[float, float],
        )
    wanted = model.predict(eager, return_std=True)
    for found, one in zip((mean, std), wanted, strict=True):
        np.testing.assert_allclose(found.compute().values, one.values, rtol=1e-9)


class ParallelPostFit(BaseEstimator, MetaEstimatorMixin):
    """What dask-ml does: fit on rows in memory, predict block by block."""

    def __init__(self, estimator=None):
        self.estimator = estimator

    def fit(self, X, y):
        self.estimator_ = clone(self.estimator).fit(X, y)
        return self

    def predict(self, X):
        return X.map_blocks(
            self.estimator_.predict, dtype=float, drop_axis=1, meta=np.empty(0, float)
        )


def test_a_meta_estimator_that_predicts_by_blocks(scheduler):
    X, T = rows(120), rows(100, seed=2)
    y = truth(X)[:, 0]
    model = SGPR(**COMMON, n_inducing=20, optimizer=None)
    lazy = ParallelPostFit(model).fit(X, y).predict(da.from_array(T, chunks=(30, 2)))
    wanted = model.fit(X, y).predict(T)
    np.testing.assert_allclose(lazy.compute(scheduler="threads"), wanted, rtol=1e-12)
    with Client(scheduler, set_as_default=False) as client:
        found = client.compute(lazy).result()
        named = client.compute(model.predict(da.from_array(T, chunks=(30, 2)))).result()
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_allclose(named, wanted, rtol=1e-12)


# -- averages --------------------------------------------------------------------------------


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of so few places that small tests have many."""
    monkeypatch.setattr(average, "TILE_ROWS", 16)


def dense(model, T, weights, include_noise=False):
    """w' m and the root of w' C w, from all covariances at once."""
    mean, C = model.predict(T, return_cov=True, include_noise=include_noise)
    w = weights / weights.sum()
    return w @ mean, np.sqrt(np.tensordot(w, np.tensordot(w, C, 1), (0, 0)))


def weights_of(n):
    return np.random.default_rng(4).uniform(0.2, 3.0, n)


@pytest.mark.parametrize("noise", [False, True], ids=["f", "y"])
@pytest.mark.parametrize("p", [0, 2], ids=["vector", "two targets"])
@pytest.mark.parametrize("name", JOINT)
def test_an_average_is_that_of_the_dense_covariance(name, p, noise, small_tiles):
    model, T, w = fitted(name, p), rows(75, seed=6), weights_of(75)
    mean, std = model.predict_average(T, w, include_noise=noise)
    wanted = dense(model, T, w, noise)
    np.testing.assert_allclose(mean, wanted[0], rtol=1e-9)
    np.testing.assert_allclose(std, wanted[1], rtol=1e-8)
    assert np.shape(mean) == np.shape(std) == (() if p == 0 else (2,))
    X = da.from_array(T, chunks=((7, 40, 0, 1, 27), (1, 1)))
    with no_compute():
        lazy = model.predict_average(X, w, include_noise=noise)
        lazy = dask.optimize(*lazy)
    assert all(isinstance(a, da.Array) and a.shape == np.shape(mean) for a in lazy)
    for found, one in zip(dask.compute(*lazy), (mean, std), strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-8)


@pytest.mark.parametrize(
    "made",
    [
        lambda: LMA(**COMMON, n_support=10, block_rows=40, neighbours="order", optimizer=None),
        lambda: ExpertsGP(**COMMON, expert="exact", n_experts=3, optimizer=None),
        lambda: OptiComGP(**COMMON, level=2, weights="combination", optimizer=None),
    ],
    ids=["a band of blocks", "exact experts", "combination"],
)
def test_other_forms_of_a_method_average_alike(made, small_tiles):
    model, T, w = made().fit(rows(200), truth(rows(200))[:, 0]), rows(60, seed=6), weights_of(60)
    found, wanted = model.predict_average(T, w), dense(model, T, w)
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_an_average_of_equal_weights_is_certain_beyond_its_places(small_tiles):
    """Independent errors average out and shared ones stay: between the two extremes."""
    model, T = fitted("sgpr"), rows(200, seed=7)
    std = model.predict(T, return_std=True)[1]
    mean, of_mean = model.predict_average(T)
    np.testing.assert_allclose(mean, model.predict(T).mean(), rtol=1e-9)
    assert np.sqrt((std**2).sum()) / 200 < of_mean < std.mean()
    assert type(mean) is type(of_mean) is np.float64


def test_rows_that_miss_a_feature_and_weights_of_zero_are_left_out(small_tiles):
    model, T, w = fitted("sgpr"), rows(75, seed=6), weights_of(75)
    holed, more = T.copy(), w.copy()
    holed[[3, 40, 41]] = np.nan
    holed[16:32] = np.inf  # a whole tile
    more[[5, 70]] = 0.0
    keep = np.isfinite(holed).all(axis=1) & (more > 0)
    wanted = model.predict_average(T[keep], w[keep])
    np.testing.assert_allclose(model.predict_average(holed, more), wanted, rtol=1e-9)
    lazy = model.predict_average(da.from_array(holed, chunks=(10, 2)), da.from_array(more))
    np.testing.assert_allclose(dask.compute(*lazy), wanted, rtol=1e-9)
    masked = np.ma.masked_invalid(holed)
    np.testing.assert_allclose(model.predict_average(masked, more), wanted, rtol=1e-9)


@pytest.mark.parametrize("p", [0, 2], ids=["vector", "two targets"])
def test_an_area_mean_of_a_grid_by_the_weights_of_its_latitudes(p, grid, small_tiles):
    lazy, eager = grid
    model = fitted("sgpr", p)
    area = np.cos(np.deg2rad(eager["x1"] * 20))
    axes = np.meshgrid(eager["x0"], eager["x1"], indexing="ij")
    T, w = np.stack([a.ravel() for a in axes], axis=1), np.tile(area, 24)
    wanted = dense(model, T, w)
    for X in (eager, lazy):
        mean, std = model.predict_average(X, area)
        assert isinstance(mean, xr.DataArray)
        assert mean.dims == std.dims == (() if p == 0 else ("target",))
        assert (mean.chunks is None) == (X is eager)
        np.testing.assert_allclose(mean, wanted[0], rtol=1e-9)
        np.testing.assert_allclose(std, wanted[1], rtol=1e-8)
    with no_compute():
        model.predict_average(lazy, area.chunk(x1=5))


def test_a_mask_on_a_grid_leaves_places_out(small_tiles):
    axes = {"lat": np.linspace(0, 4, 12), "lon": np.linspace(0, 4, 10)}
    land = np.random.default_rng(0).uniform(size=(12, 10)) < 0.5
    height = xr.DataArray(np.where(land, 1.0, np.nan), axes, ("lat", "lon"), name="height")
    X = rows(200)
    columns = {name: ("row", X[:, i % 2]) for i, name in enumerate(("lat", "lon", "height"))}
    y = xr.DataArray(truth(X)[:, 0], dims="row", name="depth")
    model = SGPR(**COMMON, n_inducing=20, optimizer=None).fit(xr.Dataset(columns), y)
    mean, std = model.predict_average(height.to_dataset())
    at = np.argwhere(land)
    places = np.column_stack([axes["lat"][at[:, 0]], axes["lon"][at[:, 1]], np.ones(len(at))])
    wanted = dense(model, places, np.ones(len(at)))
    np.testing.assert_allclose([mean, std], wanted, rtol=1e-8)
    weighted = model.predict_average(height.to_dataset(), land.astype(float))
    np.testing.assert_allclose([float(a) for a in weighted], wanted, rtol=1e-8)


@pytest.mark.parametrize("name", ["sgpr", "lma"])
def test_one_worker_and_threads_give_the_bits_of_two_workers(name, scheduler, small_tiles):
    model, X = fitted(name), da.from_array(rows(150, seed=8), chunks=(40, 2))
    lazy = model.predict_average(X)
    with Client(scheduler, set_as_default=False) as client:
        theirs = client.gather(client.compute(lazy))
    for how in ("sync", "threads"):
        ours = dask.compute(*lazy, scheduler=how)
        assert [a.tobytes() for a in ours] == [a.tobytes() for a in theirs]


def test_memory_of_an_average_is_that_of_a_pair_of_tiles(monkeypatch):
    monkeypatch.setattr(average, "TILE_ROWS", 100)
    peaks = []
    for n in (300, 300, 1_200):  # once to warm up
        lazy = fitted("sgpr").predict_average(da.from_array(rows(n), chunks=(100, 2)))
        tracemalloc.start()
        dask.compute(*lazy, scheduler="sync")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 2 * peaks[1] < 1_200**2 * 8


def test_an_average_takes_its_tiles_once_and_pairs_once(small_tiles):
    model, X = fitted("sgpr"), da.from_array(rows(160, seed=8), chunks=(40, 2))
    mean, std = model.predict_average(X)
    with Counted() as counted:
        dask.compute(mean, std, scheduler="sync")
    assert (counted.count("average-tile"), counted.count("average-pair")) == (10, 55)
    with Counted() as counted:
        mean.compute(scheduler="sync")
    assert (counted.count("average-tile"), counted.count("average-pair")) == (10, 0)


def test_the_graph_of_the_largest_average_is_light():
    X = da.zeros((average.MAX_ROWS, 2), chunks=(10_000, 2))
    with no_compute():
        _, std = fitted("sgpr").predict_average(X)
    graph = dict(std.__dask_graph__())
    assert len(graph) < 25_000
    assert len(cloudpickle.dumps(graph)) < 600 * len(graph)


def test_an_average_of_zarr_arrays(tmp_path, small_tiles):
    model, T, w = fitted("sgpr"), rows(50, seed=6), weights_of(50)
    X = zarr.create_array(tmp_path / "T.zarr", data=T, chunks=(20, 2))
    v = zarr.create_array(tmp_path / "w.zarr", data=w, chunks=(20,))
    found = model.predict_average(X, v)
    np.testing.assert_allclose(dask.compute(*found), dense(model, T, w), rtol=1e-8)


REFUSED = {
    "too many places": (
        lambda: (da.zeros((200_001, 2), chunks=(50_000, 2)),),
        r"the average over 200,001 places needs their 4e\+10 covariances: thin the places",
    ),
    "unknown sizes": (
        lambda: (da.ones((9, 2), chunks=(3, 2))[da.ones(9, chunks=3) > 0],),
        r"X has unknown chunk sizes: call compute_chunk_sizes\(\)",
    ),
    "no places": (lambda: (np.empty((0, 2)),), "no places: X has length 0"),
    "other columns": (lambda: (np.ones((4, 3)),), "X has 3 features, but sgpr is expecting 2"),
    "weights of another length": (
        lambda: (np.ones((4, 2)), np.ones(5)),
        r"weights has shape \(5,\) for 4 places: \(4,\) is needed",
    ),
    "weights of text": (lambda: (np.ones((2, 2)), ["a", "b"]), "weights has type <U1 and holds"),
    "weights below zero": (
        lambda: (np.ones((3, 2)), np.array([1.0, -0.5, np.nan])),
        "2 weights are negative, missing or infinite, the first is -0.5: give 0 or more",
    ),
    "no weight": (lambda: (np.ones((3, 2)), np.zeros(3)), "all weights are 0"),
    "all missing": (lambda: (np.full((3, 2), np.nan),), "no place has a weight and all its"),
}


@pytest.mark.parametrize(("given", "says"), REFUSED.values(), ids=list(REFUSED))
def test_averages_that_cannot_be_are_refused(given, says):
    with pytest.raises(InputError, match=says) as error:
        fitted("sgpr").predict_average(*given())
    assert "\n" not in str(error.value)


def test_weights_that_do_not_lie_on_the_grid_are_refused(grid):
    lazy, eager = grid
    for weights, says in (
        (xr.DataArray(np.ones(5), dims="depth"), r"weights has dimensions \{'depth': 5\} that"),
        (np.ones((24, 17)), r"weights has shape \(24, 17\) on a grid of shape \(24, 18\)"),
        (eager["x0"] + 1 + 0 * eager["x0"].assign_coords(x0=eager["x0"] + 1), "weights has dim"),
    ):
        with pytest.raises(InputError, match=says):
            fitted("sgpr").predict_average(lazy, weights)


def test_weights_in_blocks_are_checked_where_they_are_made():
    X, w = da.from_array(rows(40), chunks=(10, 2)), da.from_array(np.linspace(1, -1, 40))
    mean, _ = fitted("sgpr").predict_average(X, w)
    with pytest.raises(InputError, match="weights are negative, missing or infinite"):
        mean.compute()


def test_methods_without_a_joint_covariance_say_so_before_any_work():
    X, y = rows(60), truth(rows(60))[:, 0]
    T = da.from_array(rows(20), chunks=(5, 2))
    experts = {"n_experts": 3, "optimizer": None}
    sparse, exact = {**experts, "n_inducing": 10}, {**experts, "expert": "exact"}
    for model, says in (
        (ExpertsGP(**COMMON, **sparse, aggregation="rbcm"), "aggregation='rbcm' gives the"),
        (ExpertsGP(**COMMON, **exact, variance="paper"), "variance='paper'"),
        (CGGP(**COMMON), "no variance"),
    ):
        model.fit(X, y)
        with no_compute(), pytest.raises(SettingError, match=says):
            model.predict_average(T)
    common = {name: value for name, value in COMMON.items() if name != "noise_variance"}
    classes = SVGP(**common, n_inducing=5, max_iter=3, likelihood="bernoulli").fit(X, y > 0)
    with pytest.raises(SettingError, match="new observations of likelihood 'bernoulli"):
        classes.predict_average(X, include_noise=True)
    assert classes.predict_average(X)[1] > 0


def test_a_variance_below_zero_beyond_rounding_is_an_error(monkeypatch):
    model = ExactGP(**COMMON, optimizer=None).fit(rows(30), truth(rows(30))[:, 0])
    with pytest.raises(NumericalError, match="is below zero beyond rounding"):
        model.solved_.sound(np.array([-0.01]), prior=1.0)
    np.testing.assert_array_equal(model.solved_.sound(np.array([-1e-9, 0.5]), 1.0), [0.0, 0.5])
