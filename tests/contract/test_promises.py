"""What every estimator promises, whatever its method."""

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import dataset
from distributed import Client
from sklearn.base import clone

import daskgp
from daskgp import testing
from daskgp.errors import InputError, RunError
from daskgp.estimators import ESTIMATORS
from daskgp.runtime.executor import Executor
from tests.contract import cases

every = pytest.mark.parametrize("name", cases.SETTINGS)
trained = pytest.mark.parametrize("name", [n for n in cases.SETTINGS if n not in cases.UNTRAINED])
with_spread = pytest.mark.parametrize(
    "name", [n for n in cases.SETTINGS if n not in cases.NO_SPREAD]
)
T = cases.rows(12, seed=1)[0]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """URLs of training rows and of places in chunks."""
    folder = tmp_path_factory.mktemp("contract")
    return (
        dataset(folder / "train.zarr", *cases.rows(), step=40),
        dataset(folder / "places.zarr", T, np.zeros(len(T)), step=5),
    )


def test_every_estimator_is_here():
    assert {cases.kind(name).model_name for name in cases.SETTINGS} == set(ESTIMATORS)


@every
def test_a_fit_again_and_a_clone_give_the_same_bits(name):
    model = cases.make(name).fit(*cases.rows())
    wanted = cases.bits(model, T)
    assert cases.bits(clone(model).fit(*cases.rows()), T) == wanted
    assert cases.bits(model.fit(*cases.rows()), T) == wanted


@every
def test_workers_give_the_bits_of_threads(name, stored, scheduler, tmp_path):
    X, y = daskgp.open_dataset(stored[0])
    wanted = cases.bits(cases.make(name, store=str(tmp_path)).fit(X, y), T)
    with Client(scheduler):
        assert cases.bits(cases.make(name, store=str(tmp_path)).fit(X, y), T) == wanted


@every
def test_a_saved_model_holds_all_that_prediction_needs(name, tmp_path):
    model = cases.make(name).fit(*cases.rows())
    model.save(str(tmp_path / "model.zarr"))
    loaded = daskgp.load(tmp_path / "model.zarr")
    assert cases.bits(loaded, T) == cases.bits(model, T)
    assert (loaded.n_rows_, loaded.objective_) == (model.n_rows_, model.objective_)


@pytest.fixture
def stopping(monkeypatch):
    """``stopping.at`` is the computation that fails from now on, ``stopping.seen`` how many ran."""

    class Stopping:
        at, seen = 0, 0

    def counted(method):
        def run(self, *given, **more):
            Stopping.seen += 1
            if Stopping.seen == Stopping.at:
                raise RunError("stopped")
            return method(self, *given, **more)

        return run

    for name in ("compute", "compute_all"):
        monkeypatch.setattr(Executor, name, counted(getattr(Executor, name)))
    return Stopping


@trained
def test_a_stopped_fit_goes_on_with_the_same_bits(name, stored, tmp_path, stopping):
    X, y = daskgp.open_dataset(stored[0])
    model = cases.make(name, store=str(tmp_path), max_iter=6)
    wanted, total = cases.bits(clone(model).fit(X, y), T), stopping.seen
    checkpoint = str(tmp_path / "checkpoint")
    for share in (0.5, 0.8):
        stopping.seen, stopping.at = 0, max(2, int(share * total))
        with pytest.raises(RunError, match="stopped"):
            clone(model).fit(X, y, checkpoint=checkpoint)
        total -= stopping.at // 2  # what is done is not done again
    stopping.at = 0
    assert cases.bits(clone(model).fit(X, y, checkpoint=checkpoint), T) == wanted


@every
def test_rows_with_a_missing_value_are_left_out(name):
    (X, y), gap = cases.rows(), np.zeros(cases.N, bool)
    gap[[3, 70, 149]] = True
    holes, targets = X.copy(), y.copy()
    holes[3, 1], holes[70, 0], targets[149] = np.nan, np.nan, np.nan
    model = cases.fixed(name).fit(holes, targets)
    assert model.n_rows_ == (~gap).sum()
    if name not in ("decoupled", "svgp", "lma", "pic", "experts", "exact-experts"):
        # methods whose batches, blocks or experts do not follow from the numbers of rows
        whole = cases.fixed(name).fit(X[~gap], y[~gap])
        for a, b in zip(cases.moments(model, T), cases.moments(whole, T), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    places = T.copy()
    places[[2, 7], 1] = np.nan
    for part in cases.moments(model, places):
        np.testing.assert_array_equal(np.isnan(part), np.isnan(places).any(axis=1))


@every
def test_a_plan_and_a_lazy_prediction_compute_nothing(name, stored):
    model = cases.make(name)
    X, y = daskgp.open_dataset(stored[0])
    with testing.no_compute():
        plan = model.plan(X, y)
    assert plan.rows == cases.N
    assert min(plan.bytes_per_task, plan.operations) > 0
    model.fit(*cases.rows())
    wanted = cases.moments(model, T)
    with testing.no_compute():
        lazy = cases.moments(model, da.from_array(T, chunks=(5, 2)))
    for a, b in zip(dask.compute(*lazy), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@every
def test_a_grid_comes_back_as_a_grid(name):
    model = cases.fixed(name).fit(*cases.rows())
    axes = {"x0": np.linspace(0, 3, 4), "x1": np.linspace(0, 3, 3)}
    grid = xr.Dataset(coords=axes)
    table = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, 2)
    wanted = cases.moments(model, table)
    for found, flat in zip(cases.moments(model, grid), wanted, strict=True):
        assert found.dims == ("x0", "x1")
        np.testing.assert_allclose(found.values.ravel(), flat, rtol=1e-9, atol=1e-11)


@with_spread
def test_a_prediction_store_holds_what_predict_gives(name, stored, tmp_path):
    model = cases.fixed(name).fit(*cases.rows())
    output = tmp_path / "out.zarr"
    assert model.predict_store(stored[1], str(output)).rows == len(T)
    mean, std = model.predict(T, return_std=True, include_noise=True)
    group = zarr.open_group(output, mode="r")
    np.testing.assert_allclose(group["mean"][...].ravel(), mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(group["variance"][...].ravel(), std**2, rtol=1e-8)
    assert model.is_predicted(stored[1], str(output))


@every
def test_float32_is_close_to_float64(name):
    wide, narrow = (cases.fixed(name, dtype=d).fit(*cases.rows()) for d in ("float64", "float32"))
    for a, b in zip(cases.moments(wide, T), cases.moments(narrow, T), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-2)


@every
def test_two_targets_are_two_fits_that_share_their_kernel(name):
    (X, y), hyper = cases.rows(), {"mean": "zero", "standardize": False}
    both = cases.fixed(name, **hyper).fit(X, np.stack([y, 2 * y], axis=1))
    mean = both.predict(T)
    assert mean.shape == (len(T), 2)
    if name not in ("decoupled", "svgp", "cagp", "cagp-cg"):  # learned for both together
        np.testing.assert_allclose(mean[:, 1], 2 * mean[:, 0], rtol=1e-5, atol=1e-6)


@every
def test_wrong_columns_and_targets_are_one_line_before_any_work(name):
    model, (X, y) = cases.make(name), cases.rows()
    with testing.no_compute():
        for given in ((X, y[:-1]), (X[:, :, None], y), (X[:0], y[:0])):
            with pytest.raises(InputError) as caught:
                model.fit(*given)
            assert "\n" not in str(caught.value)
    model = cases.fixed(name).fit(X, y)
    with pytest.raises(InputError, match="3 features"), testing.no_compute():
        model.predict(np.zeros((4, 3)))
