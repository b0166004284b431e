"""What every estimator promises, whatever its method."""

import gc
import shutil

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from commands import dataset
from distributed import Client
from fits import equal, files_below, forget, same_bits
from logs import warnings_in
from sklearn.base import clone

import daskgp
from daskgp import kernels, testing
from daskgp.errors import InputError, RunError, StoreError
from daskgp.estimators import ESTIMATORS
from daskgp.fit import subset
from daskgp.models import inducing
from daskgp.posterior.layers import Tails
from daskgp.posterior.neighbour_rows import Nearby
from daskgp.runtime.executor import Executor
from tests.contract import cases

every = pytest.mark.parametrize("name", cases.SETTINGS)
trained = pytest.mark.parametrize("name", [n for n in cases.SETTINGS if n not in cases.UNTRAINED])
with_spread = pytest.mark.parametrize(
    "name", [n for n in cases.SETTINGS if n not in cases.NO_SPREAD]
)
T = cases.rows(12, seed=1)[0]
T.flags.writeable = False


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
    model = cases.make(name)
    settings, text = model.get_params(), repr(model)
    wanted = cases.bits(model.fit(*cases.rows()), T)
    assert (model.get_params(), repr(model)) == (settings, text)
    fresh = clone(model)
    assert not [name for name in vars(fresh) if name.endswith("_")]
    fresh.fit(*cases.rows(100, seed=9))  # which the next fit forgets
    assert cases.bits(fresh.fit(*cases.rows()), T) == wanted


@every
def test_workers_give_the_bits_of_threads(name, stored, scheduler, tmp_path):
    X, y = daskgp.open_dataset(stored[0])
    wanted = cases.bits(cases.make(name, store=str(tmp_path)).fit(X, y), T)
    with Client(scheduler):
        assert cases.bits(cases.make(name, store=str(tmp_path)).fit(X, y), T) == wanted


@pytest.mark.sampled
@every
def test_rows_in_memory_reach_workers(name, scheduler):
    wanted = cases.moments(cases.fixed(name).fit(*cases.rows()), T)
    with Client(scheduler):
        model = cases.fixed(name).fit(*cases.rows())
        forget()
        equal(dask.compute(*cases.moments(model, da.from_array(T, chunks=(5, 2)))), wanted)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        *((name, "disk") for name in cases.SETTINGS),
        *((name, "memory") for name in cases.those(lambda name: cases.method(name).keeps_rows)),
    ],
)
def test_a_saved_model_holds_all_that_prediction_needs(name, where, tmp_path, temporary):
    source, moved = tmp_path / "t.zarr", tmp_path / "moved.zarr"
    given = daskgp.open_dataset(dataset(source, *cases.rows(), step=40))
    model = cases.make(name).fit(*(cases.rows() if where == "memory" else given))
    wanted, learned = cases.bits(model, T), (model.n_rows_, model.objective_, model.history_)
    settings, token = model.get_params(), model.solved_.token
    model.save(str(tmp_path / "model.zarr"))
    del model
    gc.collect()
    for gone in (source, *temporary.iterdir()):
        shutil.rmtree(gone, ignore_errors=True)
    (tmp_path / "model.zarr").rename(moved)
    forget()
    loaded = daskgp.load(moved)
    assert type(loaded) is cases.kind(name)
    assert (loaded.get_params(), loaded.solved_.token) == (settings, token)
    assert (loaded.n_rows_, loaded.objective_, loaded.history_) == learned
    assert cases.bits(loaded, T) == wanted
    loaded.save(tmp_path / "again.zarr")
    assert cases.bits(daskgp.load(tmp_path / "again.zarr"), T) == wanted


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


@pytest.mark.sampled
@every
def test_a_fit_that_fails_leaves_nothing(name, tmp_path, temporary, stopping):
    def fit(**where):
        stopping.seen = 0
        cases.make(name, **where).fit(*rows)

    rows = tuple(da.from_array(a, chunks=(40, *a.shape[1:])) for a in cases.rows())
    for whole, kept in (({}, {}), ({"store": f"{tmp_path}/whole"}, {"store": f"{tmp_path}/kept"})):
        stopping.at = 0
        fit(**whole)
        before = set(files_below(temporary))
        for at in {1, max(1, int(0.8 * stopping.seen))}:
            stopping.at = at
            with pytest.raises(RunError, match="stopped"):
                fit(**kept)
        gc.collect()
        assert set(files_below(temporary, tmp_path / "kept")) <= before


def chunks(X, y, step):
    """The same rows as lazy arrays."""
    return tuple(da.from_array(a, chunks=(step, *a.shape[1:])) for a in (X, y))


def kinds(X, y, folder, step):
    """The same rows in stores, lazy arrays and tables."""
    url = dataset(folder / "t.zarr", X, y, step=step)
    group = zarr.open_group(url, mode="r")
    names = ["x0", "x1"]
    labelled = xr.DataArray(X, dims=("row", "feature"), coords={"feature": names})
    return (
        daskgp.open_dataset(url),
        (group["X"], group["y"]),
        (labelled.chunk({"row": step}), xr.DataArray(y, dims="row").chunk({"row": step})),
        (pd.DataFrame(X, columns=names), pd.Series(y, name="y")),
    )


@every
def test_the_chunks_of_rows_do_not_matter(name):
    X, y = cases.rows()
    wanted, model = cases.fixed(name).fit(X, y), cases.fixed(name).fit(*chunks(X, y, 37))
    if wanted.objective_ is not None:
        assert model.objective_ == pytest.approx(wanted.objective_, rel=1e-9)
    forget()
    equal(cases.moments(model, T), cases.moments(wanted, T))


@pytest.mark.sampled
@every
def test_the_kind_of_rows_does_not_matter(name, tmp_path):
    wanted = cases.fixed(name).fit(*chunks(*cases.rows(), 37))
    for given in kinds(*cases.rows(), tmp_path, 37):
        model = cases.fixed(name).fit(*given)
        forget()
        equal(cases.moments(model, T), cases.moments(wanted, T))
        assert (model.n_rows_, list(model.feature_names_in_)) == (cases.N, ["x0", "x1"])


@pytest.mark.sampled
@every
def test_rows_of_the_caller_are_left_alone_and_may_change_after_the_fit(name, tmp_path, temporary):
    X, y = cases.rows()
    X.flags.writeable = y.flags.writeable = False
    model = cases.fixed(name).fit(X, y)
    wanted = cases.moments(model, T)
    assert files_below(temporary) == []  # rows in memory stay there
    spread = np.full((2 * cases.N, 4), 7.0)
    spread[::2, ::2] = X
    for alike in ((spread[::2, ::2], np.repeat(y, 2)[::2]), (np.asfortranarray(X), y)):
        equal(cases.moments(cases.fixed(name).fit(*alike), T), wanted)
    X.flags.writeable = y.flags.writeable = True
    X[...] = y[...] = 0.0
    forget()
    same_bits(cases.moments(model, T), wanted)
    group = zarr.open_group(dataset(tmp_path / "t.zarr", *cases.rows(), step=50), mode="r+")
    model = cases.fixed(name).fit(group["X"], group["y"])
    wanted = cases.moments(model, T)
    group["X"][...] = group["y"][...] = 0.0
    forget()
    same_bits(cases.moments(model, T), wanted)


@every
def test_a_constant_target_is_predicted(name):
    found = cases.moments(cases.fixed(name).fit(cases.rows()[0], np.full(cases.N, 3.0)), T)
    np.testing.assert_allclose(found[0], 3.0)
    assert np.isfinite(found).all()


@every
def test_rows_with_a_missing_value_are_left_out(name, caplog):
    (X, y), gap = cases.rows(), np.zeros(cases.N, bool)
    gap[[3, 70, 149]] = True
    holes, targets = X.copy(), y.copy()
    holes[3, 1], holes[70, 0], targets[149] = np.nan, np.nan, np.nan
    model = cases.fixed(name).fit(holes, targets)
    assert "3 rows with missing values are left out" in warnings_in(caplog)
    assert model.n_rows_ == (~gap).sum()
    masked = cases.fixed(name).fit(np.ma.masked_invalid(holes), np.ma.masked_invalid(targets))
    assert cases.bits(masked, T) == cases.bits(model, T)
    if name not in cases.STEPPED | cases.PARTED | (cases.LOCAL - {"vecchia"}):
        # these follow from the numbers of rows, and the neighbours of a row do not
        whole = cases.fixed(name).fit(X[~gap], y[~gap])
        for a, b in zip(cases.moments(model, T), cases.moments(whole, T), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    places = T.copy()
    places[2, 1], places[7, 0] = np.nan, np.inf
    for part in cases.moments(model, places):
        np.testing.assert_array_equal(np.isnan(part), ~np.isfinite(places).all(axis=1))


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
    for chunks in ((12, 2), (5, 1), (1, 2)):
        places = da.from_array(T, chunks=chunks)
        with testing.no_compute():
            lazy = cases.moments(model, places)
        assert lazy[0].chunks == (places.chunks[0],)
        equal(dask.compute(*lazy), wanted)
    assert model.predict(np.empty((0, 2))).shape == (0,)


@with_spread
@pytest.mark.parametrize("noise", [False, True])
def test_a_joint_covariance_has_the_variances_and_samples_have_it(name, noise):
    model = cases.fixed(name).fit(*cases.rows())
    mean, joint = model.predict(T, return_cov=True, include_noise=noise)
    alone = model.predict(T, return_std=True, include_noise=noise)
    if not isinstance(model.solved_.rows, Nearby):  # joint predictions take more of these rows
        equal((mean, np.sqrt(np.diag(joint))), alone)
    np.testing.assert_array_equal(joint, joint.T)
    assert np.linalg.eigvalsh(joint).min() > -1e-9 * np.trace(joint)
    unit = model.solved_.scaling.y_scale.item() ** 2 * model.noise_variance_
    spread = model.predict(T, return_std=True)[1]
    np.testing.assert_allclose(alone[1] ** 2 - spread**2, noise * unit, rtol=1e-6, atol=1e-9)
    draws = model.sample_y(T[:4], 4_000, random_state=1, include_noise=noise)
    assert draws.shape == (4, 4_000)
    np.testing.assert_allclose(np.cov(draws), joint[:4, :4], atol=0.1 * joint.max())


@pytest.mark.sampled
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


@pytest.mark.sampled
@with_spread
def test_a_prediction_store_holds_what_predict_gives(name, stored, tmp_path):
    model = cases.fixed(name).fit(*cases.rows())
    output = tmp_path / "out.zarr"
    assert model.predict_store(stored[1], str(output)).rows == len(T)
    mean, std = model.predict(T, return_std=True, include_noise=True)
    (output / "done" / "c" / "1").unlink()
    assert model.predict_store(stored[1], str(output), resume=True) == (5, 7)
    group = zarr.open_group(output, mode="r")
    equal([group[part][...].ravel() for part in ("mean", "variance")], (mean, std**2))
    assert model.is_predicted(stored[1], str(output))
    other = clone(model).fit(*cases.rows(seed=3))
    with pytest.raises(StoreError, match="model_checksum"):
        other.predict_store(stored[1], str(output), resume=True)


@every
@pytest.mark.parametrize("d", [1, 2])
def test_float32_is_close_to_float64(name, d):
    X, y = cases.rows()
    kernel = kernels.RBF(0.8) if name == "ssgp" else kernels.Matern32(0.8)
    made = [cases.fixed(name, kernel=kernel, dtype=dtype) for dtype in ("float64", "float32")]
    wanted = cases.moments(made[0].fit(X[:, :d], y), T[:, :d])
    equal(cases.moments(made[1].fit(X[:, :d], y), T[:, :d]), wanted, rtol=2e-2, atol=2e-2)
    narrow = X[:, :d].astype(np.float32), y.astype(np.float32)
    equal(cases.moments(made[0].fit(*narrow), T[:, :d]), wanted, rtol=1e-3, atol=1e-3)


@every
def test_the_units_of_the_data_do_not_matter(name):
    X, y = cases.rows()
    parts = {"partition": "chunks"}  # random ones are drawn by values as they are stored
    one = cases.fixed(name, **parts)
    plain = cases.moments(one.fit(X, y), T)
    other = cases.fixed(name, kernel=cases.in_units(one.kernel, 1000.0, 0.01), **parts)
    found = cases.moments(other.fit(1000 * X - 7, 0.01 * y + 300), 1000 * T - 7)
    equal(found, [0.01 * plain[0] + 300, *(0.01 * part for part in plain[1:])], rtol=1e-5)


ORDERED = {
    "cggp": "it solves to a tolerance, from batches of rows that follow one another",
    "decoupled": "its mini-batches are of rows that follow one another",
    "svgp": "its mini-batches are of rows that follow one another",
}
"""Cases to which the order of the rows matters, and why."""


@pytest.mark.parametrize("name", [n for n in cases.SETTINGS if n not in ORDERED])
def test_the_order_of_the_rows_does_not_matter(name, monkeypatch):
    monkeypatch.setattr(inducing, "MIN_SAMPLE", 60)  # all methods draw some of the rows
    monkeypatch.setattr(subset, "ROWS", 80)
    X, y = cases.rows()
    line = np.random.default_rng(5).permutation(len(X))
    wanted, found = (
        cases.moments(cases.make(name).fit(*r), T) for r in ((X, y), (X[line], y[line]))
    )
    equal(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", cases.those(lambda name: cases.has(name, "train_blocks")))
def test_training_on_some_blocks_leaves_the_posterior_that_of_all_rows(name):
    settings = {"block_rows": 30, "max_iter": 3}
    part, whole = (cases.make(name, train_blocks=n, **settings).fit(*cases.rows()) for n in (2, 99))
    assert part.kernel_ != whole.kernel_
    assert part.n_rows_ == cases.N
    assert part.objective_ < part.history_[-1]["objective"] - 10  # which is of two blocks of five


@every
def test_two_targets_are_two_fits_that_share_their_kernel(name):
    (X, y), hyper = cases.rows(), {"mean": "zero", "standardize": False}
    both = cases.fixed(name, **hyper).fit(X, np.stack([y, 2 * y], axis=1))
    mean = cases.moments(both, T)[0]
    assert {part.shape for part in cases.moments(both, T)} == {(len(T), 2)}
    if name not in cases.STEPPED and not cases.has(name, "actions"):  # learned for both together
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


@pytest.mark.sampled
@with_spread
def test_tails_are_those_of_intervals_of_y_alone(name, tmp_path):
    plain = cases.fixed(name).fit(*cases.rows())
    model = cases.fixed(name).fit(*cases.rows())
    tails = Tails((0.5, 0.95), (0.5, 2.4))
    model.solved_ = model.solved_.with_layers(tails)
    mean, std = plain.predict(T, return_std=True, include_noise=True)
    levels, widths = (0.025, 0.25, 0.5, 0.75, 0.975), np.array([-2.4, -0.5, 0.0, 0.5, 2.4])
    wanted = mean[:, None] + std[:, None] * widths
    url = str(tmp_path / "model.zarr")
    model.save(url)
    loaded = daskgp.load(url)
    assert loaded.solved_.token == model.solved_.token != plain.solved_.token
    for one in (model, loaded):
        got = one.predict(T, quantiles=levels, return_std=True, include_noise=True)
        for found, expected in zip(got, (mean, std, wanted), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    lazy = loaded.predict(da.from_array(T, chunks=(5, 2)), quantiles=levels, include_noise=True)
    np.testing.assert_allclose(lazy[1].compute(), wanted, rtol=1e-9)
    above = model.predict_exceedance(T, wanted[3, 4], include_noise=True)
    assert above[3] == pytest.approx(0.025)
    if not model.solved_.method.noisy:
        equal(*(one.predict(T, quantiles=levels) for one in (model, plain)))
