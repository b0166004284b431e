"""LMA and PIC as estimators: dense for any rows, self-contained in a store, lazy and tidy."""

import gc
import os
import shutil
import subprocess
import sys

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from commands import dataset, refused, rows, succeed
from effective import effective
from fits import forget, zarr_rows
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import daskgp
from daskgp import LMA, PIC, ExactGP, kernels, testing
from daskgp.data.blocks.layout import read_layout
from daskgp.errors import InputError, NumericalError, RunError, SettingError, StoreError
from daskgp.fit import rounds
from daskgp.fit.arrange import rewriting
from daskgp.fit.task import TaskRounds
from daskgp.models.additive import Additive
from daskgp.posterior import neighbour_rows as near_rows
from daskgp.predict import average
from tests import oracle

KERNEL = kernels.Matern32(0.5, variance=1.4)
FIXED = {
    "kernel": KERNEL,
    "n_support": 12,
    "block_rows": 40,
    "noise_variance": 0.05,
    "optimizer": None,
}
QUICK = {"kernel": KERNEL, "n_support": 8, "block_rows": 40, "max_iter": 3}


@pytest.fixture(scope="module")
def table():
    return rows(300, seed=5)


@pytest.fixture
def fitted(table):
    return LMA(**FIXED).fit(*table)


# -- the dense definition --------------------------------------------------------------------


def blocks_near(model):
    """What each block is conditioned on, by brute force; all columns count alike here."""
    nearby = model.solved_.rows
    count = nearby.layout.n_blocks
    if model.neighbours == "order":
        return [tuple(range(i + 1, min(i + 1 + model._reach(), count))) for i in range(count)]
    X = model.solved_.scaling.inputs(nearby.rows.read(0, nearby.layout.rows)[0])
    some = [np.rint(np.linspace(a, b - 1, 16)).astype(int)[::2] for a, b in nearby.layout.spans]
    places = X[np.array(some)]
    away = np.linalg.norm(places[:, None, :, None] - places[None, :, None], axis=4)
    apart = away.min(axis=3).mean(axis=2)  # from each row of a block to the nearest of another
    return [
        tuple(np.sort(np.argsort(apart[i, :i])[: model._reach()]).tolist()) for i in range(count)
    ]


def rows_serving(nearby, key):
    """Places, in the order of the layout, of the training rows that serve a group."""
    found = []
    for block, chosen in nearby.parts(key):
        own = np.arange(*nearby.layout.spans[block])
        found.append(own if chosen is None else own[chosen])
    return np.concatenate(found)


def dense(model, T, jointly=False):
    """Evidence, and mean and covariance at T, of the joint Gaussian in the units of y.

    Places are drawn given what serves their group, or all together given what serves any of them.
    """
    solved = model.solved_
    scale, theta, layout = solved.scaling, solved.theta, solved.rows.layout
    X, y = solved.rows.rows.read(0, layout.rows)
    block, test = scale.block(X, np.reshape(y, (len(y), -1))), scale.inputs(T)
    n = len(X)
    both = np.concatenate([block.X, test])
    noise = np.where(np.arange(len(both)) < n, theta.noise_variance, 0.0)
    R = oracle.residual(theta.kernel, both, theta.inputs, noise)
    own = [np.arange(*span) for span in layout.spans]
    near, groups = blocks_near(model), list(own)
    for key, members in solved.rows.groups(T):
        groups.append(n + members)
        near.append(rows_serving(solved.rows, key))
    if jointly:
        groups[len(own) :] = [np.arange(n, len(both))]
        near[len(own) :] = [np.unique(np.concatenate(near[len(own) :]))]
    line = list(range(len(groups)))
    if model.neighbours == "order":  # the last block is drawn first
        line = line[: len(own)][::-1] + line[len(own) :]
        place = {b: i for i, b in enumerate(line)}
        groups = [groups[b] for b in line]
        near = [near[b] if b >= len(own) else tuple(place[j] for j in near[b]) for b in line]
    S = oracle.sequential_completion(R, groups, near)
    S += oracle.nystrom(theta.kernel, both, theta.inputs, 1e-8)
    evidence = oracle.evidence(S[:n, :n], block.y, 0.0)
    mean, cov = oracle.posterior(S[:n, :n], S[n:, :n], S[n:, n:], block.y, 0.0)
    mean = mean * scale.y_scale + scale.intercept + test @ scale.slope
    return evidence, mean, cov[:, :, None] * scale.y_scale**2


@pytest.mark.parametrize(("kind", "p"), [("numpy", 1), ("zarr", 2), ("lazy", 1)])
@pytest.mark.parametrize(
    "settings",
    [
        {"neighbours": "order", "markov_order": 1, "mean": "ols"},
        {"neighbours": "nearest", "markov_order": 2, "predict_rows": 50},
        {"neighbours": "nearest", "markov_order": 3, "predict_order": 1},
        {"neighbours": "nearest", "markov_order": 0},
    ],
    ids=["order", "nearest", "nearest blocks", "pic"],
)
def test_a_fit_is_the_dense_definition(kind, p, settings, table, tmp_path):
    X, y = table
    y = np.column_stack([y, 10 * y**2]) if p == 2 else y
    T = rows(30, seed=1)[0]
    if kind == "zarr":
        given = zarr_rows(tmp_path / "t.zarr", X, y, 70)
    else:
        lazily = [da.from_array(a, chunks=(70, *a.shape[1:])) for a in (X, y)]
        given = (X, y) if kind == "numpy" else lazily
    model = LMA(**FIXED, **settings).fit(*given)
    evidence, mean, cov = dense(model, T)
    assert model.objective_ == pytest.approx(evidence, rel=1e-8)
    found = model.predict(T, return_std=True)
    np.testing.assert_allclose(found[0].reshape(mean.shape), mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found[1].reshape(mean.shape) ** 2, np.einsum("iij->ij", cov))
    _, mean, cov = dense(model, T, jointly=True)
    found = model.predict(T, return_cov=True)
    np.testing.assert_allclose(found[0].reshape(mean.shape), mean, rtol=1e-8, atol=1e-8)
    full = found[1].reshape(cov.shape)
    np.testing.assert_allclose(full, cov, rtol=1e-7, atol=1e-9 * np.abs(cov).max())


def test_rows_are_read_back_in_blocks_along_the_order(fitted, table):
    X, y = table
    read_X, read_y = fitted.solved_.rows.rows.read(0, 300)
    layout = fitted.solved_.rows.layout
    keys = layout.order.keys(read_X)
    assert np.all(keys[1:] >= keys[:-1])
    both, again = np.column_stack([X, y]), np.column_stack([read_X, read_y])
    np.testing.assert_array_equal(again[np.lexsort(again.T)], both[np.lexsort(both.T)])
    assert fitted.n_blocks_ == layout.n_blocks == 8
    assert layout.block_rows == 38


def test_pic_is_lma_of_markov_order_0(table):
    X, y = table
    T = rows(40, seed=1)[0]
    made = LMA(**QUICK, markov_order=0).fit(X, y)
    pic = PIC(**QUICK).fit(X, y)
    assert pic.objective_ == made.objective_
    assert pic.kernel_ == made.kernel_
    for a, b in zip(pic.predict(T, True), made.predict(T, True), strict=True):
        np.testing.assert_array_equal(a, b)
    assert {len(blocks) for blocks, _ in pic.solved_.rows.groups(T)} == {1}


# -- training --------------------------------------------------------------------------------


@pytest.mark.parametrize("train_support", [False, True])
def test_training_raises_the_evidence(train_support, table):
    X, y = table
    same = {"kernel": kernels.Matern32((1.0, 1.0)), "n_support": 8, "block_rows": 40}
    still = LMA(**same, optimizer=None).fit(X, y)
    del same["n_support"]
    same["support"] = still.support_
    model = LMA(**same, max_iter=10, train_support=train_support).fit(X, y)
    assert model.objective_ > still.objective_ + 1.0
    assert model.score(*rows(100, seed=1)) > 0.95
    assert np.array_equal(model.support_, still.support_) is not train_support
    assert model.support_.shape == (8, 2)
    assert len(model.history_) <= 10


@pytest.mark.parametrize("where", ["memory", "store"])
@pytest.mark.slow
def test_blocks_are_ordered_by_lengthscales_that_some_blocks_have_trained(
    where, temporary, tmp_path
):
    X = np.random.default_rng(0).uniform(0, 6, (600, 2))
    y = np.sin(4 * X[:, 0])  # which the start, with equal lengthscales, does not know
    given = (X, y) if where == "memory" else zarr_rows(tmp_path / "rows.zarr", X, y)
    start = {"kernel": kernels.Matern52((1.0, 1.0)), "block_rows": 40, "n_support": 20}
    shapes = []
    for settings in ({"optimizer": None}, {}):
        model = LMA(**start, **settings, store=str(tmp_path / "kept")).fit(*given)
        blocks = [
            model.solved_.rows.rows.read(*span)[0] for span in model.solved_.rows.layout.spans
        ]
        wide, long = np.mean([np.ptp(block, axis=0) for block in blocks], axis=0)
        shapes.append(long / wide)
    assert shapes[0] < 2 < 3 < shapes[1]
    stores = list((tmp_path / "kept").glob("*"))
    assert len(stores) == (2 if where == "store" else 0)  # one per model: first orders are gone
    assert os.listdir(temporary) == []


def test_one_lengthscale_leaves_the_first_order_as_it_is(table, monkeypatch):
    calls, arrange = [], rewriting.arrange
    monkeypatch.setattr(rewriting, "arrange", lambda *a: calls.append(a) or arrange(*a))
    LMA(**QUICK).fit(*table)
    assert len(calls) == 1
    LMA(**{**QUICK, "kernel": "matern32(ard=true)"}).fit(*table)
    assert len(calls) == 3


def test_factors_that_wait_for_the_gradient_change_no_bit(table, monkeypatch):
    settings, asked, forward = {**QUICK, "train_support": True}, [], TaskRounds.forward

    def keeping(self, over, *shared):
        asked.append(over.name)
        return forward(self, over, *shared)

    monkeypatch.setattr(TaskRounds, "forward", keeping)
    kept = LMA(**settings).fit(*table)
    assert set(asked) == {"lma-local"}
    asked.clear()
    monkeypatch.setattr(rounds, "KEEP_SHARE", 0.0)
    again = LMA(**settings).fit(*table)
    assert asked == []
    assert again.objective_ == kept.objective_
    np.testing.assert_array_equal(again.support_, kept.support_)
    assert again.kernel_ == kept.kernel_


def test_support_inputs_may_be_given_and_are_in_the_units_of_x(table):
    X, y = table
    Z = X[::20] + 0.01
    model = effective(LMA, **{**FIXED, "support": Z}).fit(X, y)
    np.testing.assert_allclose(model.support_, Z, rtol=1e-12)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("order", ["auto", "hilbert", "pca", "kmeans", "x1", ("x0", "x1")])
def test_every_order_is_near_the_exact_gp(order, table):
    X, y = table
    T = rows(50, seed=1)[0]
    settings = {k: FIXED[k] for k in ("kernel", "noise_variance", "optimizer")}
    exact = ExactGP(**settings).fit(X, y).predict(T, return_std=True)
    found = LMA(**FIXED, order=order).fit(X, y).predict(T, return_std=True)
    assert np.sqrt(np.mean((found[0] - exact[0]) ** 2)) < 0.03
    np.testing.assert_allclose(found[1], exact[1], rtol=0.3)


# -- predictions -----------------------------------------------------------------------------


def test_rows_in_any_order_and_chunks_are_predicted_alike(fitted):
    T = rows(200, seed=3)[0]
    T = T[np.argsort(fitted.solved_.rows.layout.blocks_of(T), kind="stable")]
    wanted = fitted.predict(T, return_std=True)
    shuffled = np.random.default_rng(0).permutation(200)
    back = np.argsort(shuffled)
    found = [[a[back] for a in fitted.predict(T[shuffled], return_std=True)]]
    for chunks in ((200, 2), (7, 2), (1, 2), ((3, 150, 47), 1)):
        lazily = da.from_array(T[shuffled], chunks=chunks)
        with testing.no_compute():
            both = fitted.predict(lazily, return_std=True)
        assert both[0].chunks == (lazily.chunks[0],)
        found.append([a[back] for a in dask.compute(*both, scheduler="threads")])
    for pair in found:
        for a, b in zip(pair, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("noise", [False, True])
def test_a_joint_covariance_over_blocks_is_one(fitted, noise):
    T = np.concatenate([rows(60, seed=3)[0], rows(300, seed=5)[0][:5]])
    _, cov = fitted.predict(T, return_cov=True, include_noise=noise)
    np.testing.assert_array_equal(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() > -1e-9 * np.trace(cov)
    some = [3, 17, 40]  # of any call, what is said depends on the places asked for
    alone = fitted.predict(T[some], return_cov=True, include_noise=noise)[1]
    assert (np.diag(alone) >= np.diag(cov)[some] * (1 - 1e-9)).all()  # fewer rows are surer of less


@pytest.fixture(scope="module")
def drawn():
    """Models of one field, those of local methods in small blocks, and pairs of places."""
    X, kernel = np.random.default_rng(1).uniform(0, 1, (600, 2)), kernels.Matern32(0.3)
    rng = np.random.default_rng(2)
    f = np.linalg.cholesky(kernel(X) + 1e-9 * np.eye(600)) @ rng.standard_normal(600)
    given = X, f + 0.3 * rng.standard_normal(600)
    settings = {"kernel": kernel, "noise_variance": 0.1, "optimizer": None}
    local = {**settings, "n_support": 20, "block_rows": 50}
    models = {
        "exact": ExactGP(**settings).fit(*given),
        "lma": LMA(**local, predict_rows=100).fit(*given),
        "pic": PIC(**local).fit(*given),
    }
    pairs = rng.uniform(0.2, 0.8, (100, 2)) + np.array([[[-0.01]], [[0.01]]])
    return models, pairs


@pytest.mark.parametrize(("name", "within"), [("lma", 0.005), ("pic", 0.05)])
def test_places_on_both_sides_of_an_edge_are_as_correlated_as_they_are(name, within, drawn):
    models, (left, right) = drawn
    kept, found = models[name].solved_.rows, []
    for pair in zip(left, right, strict=True):
        T = np.stack(pair)
        if len(list(kept.groups(T))) == 2:
            covs = [models[one].predict(T, return_cov=True)[1] for one in ("exact", name)]
            found.append([c[0, 1] / np.sqrt(c[0, 0] * c[1, 1]) for c in covs])
    exact, ours = np.array(found).T
    assert len(found) > 2
    assert exact.min() > 0.7
    np.testing.assert_allclose(ours, exact, atol=within)


@pytest.mark.parametrize("name", ["lma", "pic"])
def test_an_average_over_many_groups_is_as_sure_as_it_is(name, drawn):
    T = np.random.default_rng(3).uniform(0.2, 0.8, (80, 2))
    exact, ours = (drawn[0][one].predict_average(T)[1] for one in ("exact", name))
    assert ours == pytest.approx(exact, rel=0.01)


SLOPE = LinearRegression().fit(rows(50)[0], rows(50)[0].sum(axis=1))


@pytest.mark.parametrize(
    "more",
    [{"mean": "linear"}, {"mean": SLOPE}, {"mean": "ols", "dtype": "float32"}],
    ids=["trend", "regressor", "float32"],
)
def test_an_average_is_that_of_the_joint_covariance(more, table, monkeypatch):
    monkeypatch.setattr(average, "TILE_ROWS", 16)
    X, y = table
    y = y if more["mean"] is SLOPE else np.column_stack([y, 10 * y**2])
    model, T = LMA(**{**FIXED, **more}, predict_rows=60).fit(X, y), rows(50, seed=3)[0]
    w = np.random.default_rng(4).uniform(0.2, 3.0, 50)
    for noise in (False, True):
        mean, cov = model.predict(T, return_cov=True, include_noise=noise)
        spread = np.tensordot(w, np.tensordot(w, cov, 1), (0, 0))
        wanted = w @ mean / w.sum(), np.sqrt(spread) / w.sum()
        found = model.predict_average(T, w, include_noise=noise)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-8)
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6)


@pytest.mark.parametrize("name", ["lma", "pic"])
def test_joint_predictions_near_too_many_rows_are_refused(name, drawn, monkeypatch):
    monkeypatch.setattr(near_rows, "JOINT_ROWS", 150)
    model, T = drawn[0][name], np.random.default_rng(3).uniform(0, 1, (80, 2))
    for ask in (
        lambda: model.predict(T, return_cov=True),
        lambda: model.sample_y(T),
        lambda: model.predict_average(T),
        lambda: model.predict_average(da.from_array(T, chunks=(20, 2)))[1].compute(),
    ):
        with pytest.raises(InputError, match=r"are near more than .* rows.* sample_paths") as error:
            ask()
        assert "\n" not in str(error.value)
    assert np.isfinite(model.predict(T[:1], return_cov=True)[1]).all()


def test_the_papers_prediction_has_no_joint_covariance(table):
    model = LMA(**FIXED, neighbours="order", prediction="paper").fit(*table)
    T = table[0][:5]
    for ask in (
        lambda: model.predict(T, return_cov=True),
        lambda: model.sample_y(T),
        lambda: model.predict_average(T),
    ):
        with pytest.raises(SettingError, match=r"prediction='paper' .* prediction='consistent'"):
            ask()


def test_variances_lie_between_the_noise_and_the_prior(fitted, table):
    X, _ = table
    T = np.concatenate([X, rows(200, seed=3)[0] * 1.2])
    unit = float(fitted.solved_.scaling.y_scale[0]) ** 2
    f = fitted.predict(T, return_std=True)[1] ** 2
    y = fitted.predict(T, return_std=True, include_noise=True)[1] ** 2
    assert np.all(f >= 0)
    assert np.all(f <= unit * KERNEL.variance * (1 + 1e-9))
    assert np.all(y >= unit * fitted.noise_variance_ * (1 - 1e-12))
    np.testing.assert_allclose(y - f, unit * fitted.noise_variance_, rtol=1e-8)


def snake():
    """Rows whose paper variance is negative near where a curve turns back."""
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 1, (30, 2))
    settings = {"standardize": False, "mean": "zero", "optimizer": None, "order": "hilbert"}
    support = rng.uniform(0, 1, (1, 2))
    made = LMA(
        kernels.Matern32(0.3),
        support=support,
        noise_variance=1e-2,
        markov_order=1,
        neighbours="order",
        block_rows=5,
        **settings,
    )
    axis = np.linspace(0, 1, 40)
    T = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return made, X, np.sin(6 * X.sum(axis=1)), T


def test_a_negative_variance_of_the_paper_is_an_error_that_names_the_remedy():
    made, X, y, T = snake()
    paper = clone(made).set_params(prediction="paper").fit(X, y)
    assert np.isfinite(paper.predict(T)).all()
    with pytest.raises(NumericalError, match=r"below zero .* prediction='consistent'") as error:
        paper.predict(T, return_std=True)
    assert "\n" not in str(error.value)
    assert clone(made).fit(X, y).predict(T, return_std=True)[1].min() > 0


def test_missing_training_rows_are_left_out(table, caplog, tmp_path):
    X, y = (a.copy() for a in table)
    X[5, 1], y[7] = np.nan, np.nan
    keep = np.setdiff1d(np.arange(300), [5, 7])
    T = rows(9, seed=1)[0]
    wanted = LMA(**FIXED).fit(X[keep], y[keep])
    for given in ((X, y), zarr_rows(tmp_path / "t.zarr", X, y, 70)):
        model = LMA(**FIXED).fit(*given)
        assert model.n_rows_ == 298
        assert "2 rows with missing values are left out" in caplog.text
        np.testing.assert_allclose(model.predict(T), wanted.predict(T), atol=0.05)
        evidence, mean, _ = dense(model, T)
        assert model.objective_ == pytest.approx(evidence, rel=1e-8)
        np.testing.assert_allclose(model.predict(T), mean[:, 0], rtol=1e-8)


# -- the manners of an estimator -------------------------------------------------------------


def test_pic_has_no_settings_that_mean_nothing():
    names = set(PIC().get_params())
    assert names == set(LMA().get_params()) - {
        "markov_order",
        "neighbours",
        "predict_order",
        "predict_rows",
        "prediction",
    }


# -- where the rows are ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "zarr", "lazy"])
def test_temporary_rows_are_there_for_rows_on_disk_alone(kind, table, temporary, tmp_path):
    X, y = table
    given = zarr_rows(tmp_path / "t.zarr", X, y, 70) if kind == "zarr" else (X, y)
    if kind == "lazy":
        given = da.from_array(X, chunks=(70, 2)), da.from_array(y, chunks=70)
    LMA(**FIXED).fit(*given)
    kept = [path for path in temporary.rglob("*") if path.is_file()]
    assert bool(kept) is (kind != "numpy")


@pytest.mark.slow
def test_temporary_rows_go_with_the_process(table, tmp_path):
    zarr_rows(tmp_path / "t.zarr", *table)
    (tmp_path / "temporary").mkdir()
    code = (
        "import daskgp, os, tempfile; X, y = daskgp.open_dataset('t.zarr')\n"
        "daskgp.LMA('rbf', n_support=5, block_rows=40, optimizer=None).fit(X, y)\n"
        "print(len(os.listdir(tempfile.gettempdir())))"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 1
    assert os.listdir(tmp_path / "temporary") == []


def test_lazy_predictions_outlive_the_estimator(table, temporary, tmp_path):
    X, y = table
    given = zarr_rows(tmp_path / "t.zarr", X, y, 70)
    model = LMA(**FIXED).fit(*given)
    wanted = model.predict(X)
    lazily = model.predict(da.from_array(X, chunks=(100, 2)))
    del model
    forget()
    np.testing.assert_allclose(lazily.compute(scheduler="threads"), wanted, rtol=1e-10)


def test_too_few_complete_rows_for_the_order_are_refused_and_leave_nothing(
    table, temporary, tmp_path
):
    store = tmp_path / "kept"
    holes = table[0].copy(), table[1].copy()
    holes[0][100:] = np.nan  # blocks are too few only when the holes are known
    with pytest.raises(SettingError, match=r"markov_order=5 but there are only 3 blocks of 34"):
        LMA(**QUICK, markov_order=5, store=str(store)).fit(*zarr_rows(tmp_path / "h.zarr", *holes))
    gc.collect()
    assert not [path for path in store.rglob("*") if path.is_file()]
    assert os.listdir(temporary) == []


def test_rows_are_kept_in_store_where_it_is_given(table, temporary, tmp_path):
    store = tmp_path / "kept"
    model = LMA(**FIXED, store=str(store)).fit(*zarr_rows(tmp_path / "t.zarr", *table))
    (kept,) = store.iterdir()
    assert read_layout(daskgp.open_dataset(str(kept))[0]).n_blocks == 8
    assert os.listdir(temporary) == []
    wanted = model.predict(table[0])
    forget()
    np.testing.assert_array_equal(model.predict(table[0]), wanted)
    LMA(**FIXED, store=str(store)).fit(*table)  # rows in memory stay there
    assert list(store.iterdir()) == [kept]


# -- prepared stores -------------------------------------------------------------------------


@pytest.fixture
def prepared(table, tmp_path):
    url = str(tmp_path / "prepared.zarr")
    daskgp.prepare(table, url, order="hilbert", block_rows=40, progress=False)
    return url


def test_a_prepared_store_is_used_as_it_is(prepared, table, temporary, monkeypatch):
    X, y = daskgp.open_dataset(prepared)

    def refuse(*_):
        raise AssertionError("rows are written again")

    monkeypatch.setattr("daskgp.fit.arrange.rewriting.arrange", refuse)
    for settings in ({}, {"block_rows": 40}, {"block_rows": None}, {"order": "pca"}):
        model = LMA(**{**FIXED, **settings}).fit(X, y)
        assert model.n_blocks_ == 8
        assert not [path for path in temporary.rglob("*") if path.is_file()]
        T = rows(20, seed=1)[0]
        evidence, mean, _ = dense(model, T)
        assert model.objective_ == pytest.approx(evidence, rel=1e-8)
        np.testing.assert_allclose(model.predict(T), mean[:, 0], rtol=1e-8)
        assert os.path.samefile(
            os.path.dirname(str(model.solved_.rows.rows.X.store_path).split("file://")[1]),
            prepared,
        )


@pytest.mark.parametrize("method", [LMA, PIC])
def test_rows_in_random_order_are_refused_before_any_work(method, table, tmp_path):
    url = str(tmp_path / "shuffled.zarr")
    daskgp.prepare(table, url, order="random", block_rows=40, progress=False)
    says = f"in random order but {method.__name__} needs nearby rows .*prepare again with"
    for work in (method(**QUICK).fit, method(**QUICK).plan):
        with testing.no_compute(), pytest.raises(InputError, match=says) as error:
            work(*daskgp.open_dataset(url))
        assert "\n" not in str(error.value)


def test_block_rows_other_than_those_of_a_prepared_store_are_refused(prepared):
    given, says = daskgp.open_dataset(prepared), r"block_rows=60 but the store was .* of 38 rows"
    with testing.no_compute(), pytest.raises(SettingError, match=says) as error:
        LMA(**{**FIXED, "block_rows": 60}).fit(*given)
    assert "\n" not in str(error.value)


def test_a_store_in_the_order_of_other_features_is_refused(prepared):
    zarr.open_group(prepared, mode="r+").attrs["feature_names"] = ["lat", "lon"]
    given, says = daskgp.open_dataset(prepared), r"features x0, x1 but the store has lat, lon"
    with testing.no_compute(), pytest.raises(InputError, match=says) as error:
        LMA(**FIXED).fit(*given)
    assert "\n" not in str(error.value)


# -- model stores ----------------------------------------------------------------------------


def test_several_targets_and_settings_come_back(table, tmp_path):
    X, y = table
    Z = X[:9]
    made = LMA("rbf", support=Z, order=("x1", "x0"), block_rows=50, max_iter=2, neighbours="order")
    model = made.fit(X, np.column_stack([y, y**2]))
    model.save(tmp_path / "m.zarr")
    found = daskgp.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(found.support, Z)
    assert list(found.order) == ["x1", "x0"]
    assert clone(found).fit(X, np.column_stack([y, y**2])).objective_ == model.objective_
    for a, b in zip(found.predict(X, True), model.predict(X, True), strict=True):
        np.testing.assert_array_equal(a, b)


# -- the command -----------------------------------------------------------------------------

SET = tuple(
    part
    for text in ("kernel=matern32(0.5)", "n_support=12", "block_rows=40", "max_iter=2", "tol=1e-6")
    for part in ("--set", text)
)


@pytest.fixture(scope="module")
def data(table, tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "t.zarr", *table, names=["lon", "lat"])


def test_rows_that_were_half_written_are_written_again(data, tmp_path, scheduler, monkeypatch):
    model = tmp_path / "m.zarr"
    options = ("--model", "lma", *SET, "--set", "tol=1e3", "--scheduler", scheduler)

    def fail(*_):
        raise RunError("workers died")

    monkeypatch.setattr(Additive, "concluded", fail)
    refused("fit", data, model, *options, code=1)
    monkeypatch.undo()
    wanted = {
        str(p.relative_to(model)): p.read_bytes()
        for p in (model / "rows").rglob("c/**/*")
        if p.is_file()
    }
    zarr.open_group(model / "rows", mode="r+").attrs["complete"] = False
    first = next(p for p in (model / "rows").rglob("c/**/*") if p.is_file())
    first.unlink()
    succeed("fit", data, model, *options, "--resume")
    assert {name: (model / name).read_bytes() for name in wanted} == wanted


# -- input that cannot be used ---------------------------------------------------------------


def test_one_block_of_all_rows_takes_no_neighbours():
    X, y = rows(30)
    with pytest.raises(SettingError, match="markov_order=2 but there is only 1 block of 30"):
        LMA(n_support=5, markov_order=2).fit(X, y)
    found = LMA(n_support=5, markov_order=0).fit(X, y)
    assert found.n_blocks_ == 1
    assert np.isfinite(found.predict(X)).all()
    two = LMA(n_support=1, markov_order=0, optimizer=None, noise_variance=1e-8)
    assert two.fit(X[:2], y[:2]).predict(X[:2]) == pytest.approx(y[:2], abs=1e-3)


@pytest.mark.parametrize("neighbours", ["nearest", "order"])
def test_rows_that_are_all_there_twice_need_noise(neighbours, caplog):
    X, y = rows(60)
    X, y = np.concatenate([X, X]), np.concatenate([y, y + 1e-3])
    settings = {**FIXED, "block_rows": 20, "neighbours": neighbours}
    for noise in (1e-3, 1e-8, 1e-99):
        model = LMA(**{**settings, "noise_variance": noise})
        try:
            mean, std = model.fit(X, y).predict(X, return_std=True)
        except NumericalError as error:
            assert "noise variance" in str(error) or "noise_variance" in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
            continue
        assert np.isfinite(mean).all()
        assert np.isfinite(std).all()
        np.testing.assert_allclose(mean, y, atol=0.2)


def test_one_column_few_rows_and_blocks_of_one_row():
    X, y = rows(12, d=1)
    model = LMA(n_support=12, block_rows=1, markov_order=3, max_iter=3).fit(X, y)
    assert model.n_blocks_ == 12
    mean, std = model.predict(np.linspace(-1, 4, 30)[:, None], return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()


def test_rows_that_are_gone_are_an_error_and_not_a_prediction(table, tmp_path):
    model = LMA(**FIXED, store=str(tmp_path / "kept")).fit(*zarr_rows(tmp_path / "t.zarr", *table))
    (kept,) = (tmp_path / "kept").iterdir()
    shutil.rmtree(kept / "X" / "c")
    forget()
    with pytest.raises(StoreError, match="training rows that the model reads back are gone"):
        model.predict(table[0])


@pytest.mark.parametrize(
    ("settings", "wide"),
    [
        ({"markov_order": 2, "neighbours": "order"}, {3, 4, 5}),
        ({"markov_order": 2, "predict_order": 3}, {4}),
        ({"markov_order": 2, "predict_order": 0}, {1}),
        ({"markov_order": 2, "predict_order": 99}, {8}),
        ({"markov_order": 0, "predict_order": 2}, {3}),
        ({"markov_order": 0}, {1}),
    ],
    ids=str,
)
def test_predictions_are_conditioned_on_as_many_blocks_as_the_settings_say(settings, wide, table):
    model = LMA(**FIXED, **settings).fit(*table)
    found = [blocks for blocks, _ in model.solved_.rows.groups(table[0])]
    assert {len(blocks) for blocks in found} == wide
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({"markov_order": 2, "predict_rows": 1}, 1),
        ({"markov_order": 0, "predict_rows": 70}, 70),
        ({"markov_order": 2, "predict_rows": 299}, 299),
        ({"markov_order": 2, "predict_rows": 999}, 300),
        ({"markov_order": 2}, 300),
        ({"markov_order": 7}, 300),
    ],
    ids=str,
)
def test_predictions_are_conditioned_on_as_many_rows_as_the_settings_say(settings, number, table):
    model = LMA(**FIXED, **settings).fit(*table)
    kept = model.solved_.rows
    for key, _ in kept.groups(table[0]):
        found = rows_serving(kept, key)
        assert len(np.unique(found)) == len(found) == number
