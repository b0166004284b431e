"""What every estimator promises beside what users can check: stores, workers and failures."""

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
from sklearn.base import clone

import daskgp
from daskgp import kernels
from daskgp.errors import RunError, StoreError
from daskgp.fit import subset
from daskgp.models import inducing
from daskgp.posterior.layers import Tails
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
    """The same rows in stores, labelled arrays and tables."""
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
def test_rows_of_a_store_may_change_after_the_fit(name, tmp_path, temporary):
    model = cases.fixed(name).fit(*cases.rows())
    assert files_below(temporary) == []  # rows in memory stay there
    group = zarr.open_group(dataset(tmp_path / "t.zarr", *cases.rows(), step=50), mode="r+")
    model = cases.fixed(name).fit(group["X"], group["y"])
    wanted = cases.moments(model, T)
    group["X"][...] = group["y"][...] = 0.0
    forget()
    same_bits(cases.moments(model, T), wanted)


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
def test_float32_is_close_to_float64_in_one_dimension(name):
    d, (X, y) = 1, cases.rows()
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
