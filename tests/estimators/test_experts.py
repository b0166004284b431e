"""ExpertsGP as an estimator: the same for rows of any kind, lazy, kept in a store, and tidy."""

import gc
import json
import os
import re
import shutil
import signal
import tempfile

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from commands import dataset, invoke, refused, rows, start, stop_when, succeed
from distributed import Client
from effective import effective
from logs import warnings_in
from quick import quick
from sklearn.base import clone

import daskgp
from daskgp import ExactGP, ExpertsGP, kernels, testing
from daskgp.data import reading, rows_of
from daskgp.data.blocks.draws import Central
from daskgp.data.partition import Span
from daskgp.errors import InputError, NumericalError, PlanError, RunError, SettingError, StoreError
from daskgp.fit import experts as rounds_of_experts
from daskgp.fit.refusal import refuse
from daskgp.predict import training_rows
from daskgp.runtime.executor import Executor

GIVEN = kernels.Matern32((0.5, 0.8), variance=1.4)
SMALL = {"n_experts": 5, "n_inducing": 12}
FIXED = {**SMALL, "optimizer": None}
QUICK = {**SMALL, "max_iter": 3}
COMMITTEES = ("poe", "gpoe", "bcm", "rbcm", "grbcm")
AGGREGATIONS = ("optimal", "npae", *COMMITTEES)
TRAINING = ("fact", "fedavg", "fedprox", "admm", "pxadmm")

both = pytest.mark.parametrize("expert", ["sparse", "exact"])


def build(**settings):
    return effective(ExpertsGP, **settings)


def zarr_rows(path, X, y, step=37):
    targets = ("y",) if y.ndim == 1 else tuple(f"y{j}" for j in range(y.shape[1]))
    return daskgp.open_dataset(dataset(path, X, y, step=step, targets=targets))


def lazily(X, y, step=50):
    return tuple(da.from_array(a, chunks=(step, *a.shape[1:])) for a in (X, y))


def chunked(X, y):
    """An xarray table of rows, in chunks."""
    X = xr.DataArray(X, dims=("row", "feature"), coords={"feature": ["x0", "x1"]})
    return X.chunk({"row": 60}), xr.DataArray(y, dims="row").chunk({"row": 60})


def equal(found, wanted, **close):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, **{"rtol": 1e-9, "atol": 1e-9, **close})


def same_bits(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def outcome(model, T):
    """All that a fit gives, in bits."""
    history = [{k: v for k, v in e.items() if k != "seconds"} for e in model.history_]
    bits = [np.asarray(a).tobytes() for a in model.predict(T, return_std=True)]
    return model.objective_, model.kernel_, model.noise_variance_, history, bits


def forget():
    """Let go of factors and chunks that this process holds."""
    training_rows._held.cache_clear()
    reading._held.cache_clear()


@pytest.fixture(scope="module")
def table():
    return rows(200, seed=5)


@pytest.fixture(scope="module")
def T():
    return rows(25, seed=1)[0]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# -- rows of any kind ------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    "partition", ["random", "block", pytest.param("chunks", marks=pytest.mark.slow)]
)
def test_the_kind_of_rows_and_their_chunks_do_not_matter(expert, partition, table, T, tmp_path):
    X, y = table
    settings = {**FIXED, "expert": expert, "partition": partition}
    wanted = build(**settings).fit(X, y)
    each = wanted.predict(T, return_std=True)
    arrays = [
        zarr.create_array(tmp_path / f"{i}.zarr", data=a, chunks=(64, *a.shape[1:]))
        for i, a in enumerate(table)
    ]
    for given in (
        zarr_rows(tmp_path / "a.zarr", X, y, step=37),
        zarr_rows(tmp_path / "b.zarr", X, y, step=200),
        lazily(X, y, 23),
        chunked(X, y),
        arrays,
    ):
        model = build(**settings).fit(*given)
        assert model.objective_ == pytest.approx(wanted.objective_, rel=1e-9)
        gc.collect()
        forget()
        equal(model.predict(T, return_std=True), each)
    assert wanted.n_experts_ == 5


@both
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_every_aggregation_learns_several_targets(expert, aggregation, table, T):
    X, y = table
    both = np.column_stack([y, -3 * y + X[:, 0]])
    model = build(**FIXED, expert=expert, aggregation=aggregation).fit(X, both)
    mean, std = model.predict(T, return_std=True)
    assert mean.shape == std.shape == (25, 2)
    truth = np.sin(2 * T[:, 0]) + T[:, -1]
    assert np.sqrt(np.mean((mean[:, 0] - truth) ** 2)) < 0.3
    assert (std > 0).all()
    noisy = model.predict(T, return_std=True, include_noise=True)[1]
    unit = model.solved_.scaling.y_scale**2 * model.noise_variance_
    np.testing.assert_allclose(noisy**2 - std**2, np.broadcast_to(unit, std.shape))
    assert model.score(X, both) > 0.8


@both
@pytest.mark.parametrize("partition", ["random", "block", "chunks"])
def test_rows_with_missing_values_are_left_out_with_one_warning(
    expert, partition, table, T, tmp_path, caplog
):
    X, y = (a.copy() for a in table)
    X[5, 1], y[120] = np.nan, np.nan
    settings = {**FIXED, "expert": expert, "partition": partition, "aggregation": "npae"}
    found = []
    for given in ((X, y), zarr_rows(tmp_path / "t.zarr", X, y)):
        caplog.clear()
        model = build(**settings).fit(*given)
        assert warnings_in(caplog) == ["2 rows with missing values are left out"]
        assert model.n_rows_ == 198
        found.append(model.predict(T, return_std=True))
    equal(*found)
    holes = T.copy()
    holes[3, 0] = np.nan
    gone = np.isnan(model.predict(holes))
    assert gone.tolist() == [i == 3 for i in range(25)]


def test_an_expert_whose_rows_are_all_missing_says_nothing(table, T):
    X, y = (a.copy() for a in table)
    y[40:80] = np.nan
    for expert in ("sparse", "exact"):
        for aggregation in AGGREGATIONS:
            model = build(**FIXED, expert=expert, partition="chunks", aggregation=aggregation).fit(
                X, y
            )
            mean, std = model.predict(T, return_std=True)
            assert np.isfinite(mean).all()
            assert (std > 0).all()


@both
def test_experts_take_the_rows_that_the_partition_says(expert, table):
    X, y = table
    made = {p: build(**FIXED, expert="exact", partition=p) for p in ("random", "block")}
    spans = {}
    for name, model in made.items():
        kept = model.fit(X, y).solved_.kept
        spans[name] = [kept.rows.read(*span)[0] for span in kept.spans]
        assert [len(part) for part in spans[name]] == [40] * 5
        every = np.concatenate(spans[name])
        np.testing.assert_array_equal(every[np.lexsort(every.T)], X[np.lexsort(X.T)])
    apart = {name: np.mean([p.var(axis=0).sum() for p in parts]) for name, parts in spans.items()}
    assert apart["block"] < 0.5 * apart["random"]
    first = build(**FIXED, expert="exact", partition="chunks").fit(X, y).solved_.kept
    np.testing.assert_array_equal(first.rows.read(*first.spans[1])[0], X[40:80])


@both
def test_a_shuffled_store_is_used_as_it_is(expert, table, T, tmp_path, monkeypatch):
    url = str(tmp_path / "shuffled.zarr")
    daskgp.prepare(table, url, order="random", progress=False)
    made = build(kernel=GIVEN, **{**FIXED, "inducing": T}, expert=expert)
    wanted = clone(made).fit(*table).predict(T, return_std=True)
    monkeypatch.setattr("daskgp.estimators.experts.arrange", None)
    equal(clone(made).fit(*daskgp.open_dataset(url)).predict(T, return_std=True), wanted)


@both
def test_a_store_in_blocks_is_used_as_it_is(expert, table, T, tmp_path, monkeypatch):
    url = str(tmp_path / "blocks.zarr")
    daskgp.prepare(table, url, order="hilbert", block_rows=40, progress=False)
    given = daskgp.open_dataset(url)
    settings = {**FIXED, "kernel": GIVEN, "inducing": T, "expert": expert}
    wanted = build(**settings, partition="block", order="hilbert").fit(*table)
    shuffled = build(**settings).fit(*given)  # of rows in blocks, so not of the same ones
    assert np.sqrt(np.mean((shuffled.predict(T) - wanted.predict(T)) ** 2)) < 0.3
    monkeypatch.setattr("daskgp.estimators.experts.arrange", None)
    for order in ("auto", "nonsense"):  # that of the store holds
        model = build(**settings, partition="block", order=order).fit(*given)
        equal(model.predict(T, return_std=True), wanted.predict(T, return_std=True))


def test_a_shuffled_store_is_put_in_blocks_where_they_are_wanted(table, T, tmp_path):
    url = str(tmp_path / "shuffled.zarr")
    daskgp.prepare(table, url, order="random", progress=False)
    settings = {**FIXED, "kernel": GIVEN, "partition": "block", "expert": "exact"}
    given = daskgp.open_dataset(url)
    wanted = build(**settings, order="hilbert").fit(*table)
    model = build(**settings, order="hilbert").fit(*given)
    equal(model.predict(T, return_std=True), wanted.predict(T, return_std=True))
    with testing.no_compute(), pytest.raises(SettingError, match="order 'hilbrt' is none of"):
        build(**settings, order="hilbrt").fit(*given)


# -- wherever it runs ------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_the_same_bits_for_any_workers(expert, table, T, tmp_path, scheduler):
    aggregation = "npae" if expert == "sparse" else "optimal"
    model = build(**QUICK, expert=expert, aggregation=aggregation)
    given = zarr_rows(tmp_path / "t.zarr", *table)
    found = []
    for threads in (1, 4):
        with dask.config.set(scheduler="threads", num_workers=threads):
            found.append(outcome(clone(model).fit(*given), T))
    with Client(scheduler):
        fitted = clone(model).fit(*given)
        found.append(outcome(fitted, T))
        lazy = fitted.predict(da.from_array(T, chunks=(25, 2)), return_std=True)
        assert [np.asarray(a).tobytes() for a in dask.compute(*lazy)] == found[0][-1]
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize("partition", ["random", "block", "chunks"])
def test_rows_in_memory_reach_workers_and_stay_there(partition, table, T, temporary, scheduler):
    settings = {**FIXED, "expert": "exact", "partition": partition}
    wanted = build(**settings).fit(*table).predict(T, return_std=True)
    with Client(scheduler):
        model = build(**settings).fit(*table)
        forget()
        found = dask.compute(*model.predict(da.from_array(T, chunks=(9, 2)), return_std=True))
    equal(found, wanted)


def test_a_second_fit_forgets_the_first(table, T):
    model = build(**FIXED, expert="exact").fit(*rows(100, seed=9))
    model.fit(*table)
    same_bits([model.predict(T)], [build(**FIXED, expert="exact").fit(*table).predict(T)])


# -- predictions -----------------------------------------------------------------------------


@both
@pytest.mark.parametrize("aggregation", ["optimal", "npae", "rbcm"])
def test_lazy_predictions_are_the_eager_ones(expert, aggregation, table, T):
    model = build(**FIXED, expert=expert, aggregation=aggregation).fit(*table)
    wanted = model.predict(T, return_std=True)
    for chunks in ((25, 2), (7, 2), (1, 1)):
        given = da.from_array(T, chunks=chunks)
        with testing.no_compute():
            lazy = model.predict(given, return_std=True)
        assert lazy[0].chunks == (given.chunks[0],)
        equal(dask.compute(*lazy, scheduler="threads"), wanted)


@both
def test_a_grid_becomes_a_grid(expert, table):
    model = build(**FIXED, expert=expert).fit(*table)
    axes = {"x0": np.linspace(0, 3, 4), "x1": np.linspace(0, 3, 6)}
    grid = xr.Dataset(coords=axes)
    mean, std = model.predict(grid, return_std=True)
    assert mean.dims == std.dims == ("x0", "x1")
    places = np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, 2)
    equal([mean.values.ravel(), std.values.ravel()], model.predict(places, return_std=True))


@both
@pytest.mark.parametrize("noise", [False, True])
def test_optimal_weights_give_a_joint_covariance_and_samples(expert, noise, table, T):
    model = build(**FIXED, expert=expert).fit(*table)
    mean, cov = model.predict(T, return_cov=True, include_noise=noise)
    equal([mean, np.sqrt(np.diag(cov))], model.predict(T, return_std=True, include_noise=noise))
    np.testing.assert_array_equal(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() > -1e-9 * np.trace(cov)
    draws = model.sample_y(T[:4], 4_000, random_state=1, include_noise=noise)
    assert draws.shape == (4, 4_000)
    np.testing.assert_allclose(np.cov(draws), cov[:4, :4], atol=0.1 * cov.max())


@both
@pytest.mark.parametrize("aggregation", ["npae", *COMMITTEES])
def test_other_aggregations_give_no_joint_covariance(expert, aggregation, table, T):
    model = build(**FIXED, expert=expert, aggregation=aggregation).fit(*table)
    says = f"aggregation='{aggregation}' gives the variance of one place at a time"
    for ask in (lambda: model.predict(T, return_cov=True), lambda: model.sample_y(T)):
        with pytest.raises(InputError, match=says) as error:
            ask()
        assert "\n" not in str(error.value)


def test_the_paper_s_variance_of_exact_experts_is_no_joint_covariance(table, T):
    model = build(**FIXED, expert="exact", variance="paper").fit(*table)
    with pytest.raises(InputError, match="choose variance='linear'"):
        model.predict(T, return_cov=True)


@both
@pytest.mark.parametrize("aggregation", COMMITTEES)
def test_noisy_experts_give_the_spread_of_observations_alone(
    expert, aggregation, table, T, tmp_path
):
    X, y = table
    settings = {**FIXED, "expert": expert, "aggregation": aggregation}
    model = build(**settings, noise_in_experts=True).fit(X, y)
    mean, std = model.predict(T, return_std=True, include_noise=True)
    same_bits([model.predict(T)], [mean])
    one = build(**settings).set_params(n_experts=1)
    plain, noisy = (
        clone(one).set_params(noise_in_experts=value).fit(X, y) for value in (False, True)
    )
    if aggregation != "rbcm":  # one expert alone: the noise comes in once
        equal(noisy.predict(T, True, False, True), plain.predict(T, True, False, True))
    for given in (T, da.from_array(T, chunks=(5, 2)), chunked(T, T[:, 0])[0]):
        with testing.no_compute(), pytest.raises(SettingError, match="include_noise=True") as error:
            model.predict(given, return_std=True)
        assert "\n" not in str(error.value)
    inputs = dataset(tmp_path / "t.zarr", T, T[:, 0], step=10)
    model.predict_store(inputs, str(tmp_path / "p.zarr"))
    store = zarr.open_group(tmp_path / "p.zarr", mode="r")
    equal([store["mean"][...], np.sqrt(store["variance"][...])], [mean, std])
    assert model.score(X, y) > 0.8


@both
def test_prediction_stores_are_written_and_resumed(expert, table, tmp_path):
    X, y = rows(120, seed=7)
    model = build(**FIXED, expert=expert).fit(*table)
    inputs, out = dataset(tmp_path / "in.zarr", X, y, step=30), str(tmp_path / "p.zarr")
    assert model.predict_store(inputs, out) == (120, 0)
    mean, std = model.predict(X, return_std=True, include_noise=True)
    store = zarr.open_group(out, mode="r")
    equal([store["mean"][...], np.sqrt(store["variance"][...])], [mean, std])
    wanted = store["mean"][...]
    (tmp_path / "p.zarr" / "done" / "c" / "2").unlink()
    assert model.predict_store(inputs, out, resume=True) == (30, 90)
    np.testing.assert_array_equal(zarr.open_group(out, mode="r")["mean"][...], wanted)
    other = build(**{**FIXED, "n_experts": 4}, expert=expert).fit(*table)
    with pytest.raises(StoreError, match="model_checksum"):
        other.predict_store(inputs, out, resume=True)


# -- settings and training -------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        build(**QUICK, expert="exact", aggregation="grbcm", partition="chunks"),
        build(kernel="rbf(ard=true)", **QUICK, training="admm", inducing="kmeans"),
        build(**FIXED, weights="paper", central=0.5, variance="paper", partition="block"),
    ],
    ids=["exact", "admm", "paper"],
)
def test_scikit_learn_finds_its_way(made, table):
    X, y = table
    before, text = made.get_params(), repr(made)
    assert made.fit(X, y) is made
    assert made.get_params() == before
    assert repr(made) == text
    assert text.startswith("ExpertsGP(")
    fresh = clone(made)
    assert fresh.get_params() == before
    assert not [name for name in vars(fresh) if name.endswith("_")]
    np.testing.assert_array_equal(fresh.fit(X, y).predict(X), made.predict(X))
    assert (made.n_features_in_, made.n_rows_, made.n_experts_) == (2, 200, 5)
    assert list(made.feature_names_in_) == ["x0", "x1"]


@pytest.mark.parametrize(
    ("expert", "n", "count"),
    [("sparse", 300, 4), ("sparse", 99, 1), ("sparse", 10**6, 16), ("exact", 300, 1),
     ("exact", 1001, 2), ("exact", 10**6, 1000)],
)  # fmt: skip
def test_the_number_of_experts_follows_from_the_rows(expert, n, count):
    model = build(expert=expert, n_inducing=70, optimizer=None)
    assert model._number(n) == count
    if n == 300:
        X, y = rows(n)
        model.fit(X, y)
        assert model.n_experts_ == count
        assert model.n_experts is None


def test_weights_are_there_for_optimal_weights_alone(table):
    model = build(**FIXED).fit(*table)
    assert model.weights_.shape == (5,)
    assert model.inducing_.shape == (12, 2)
    assert hasattr(model, "weights_")
    other = build(**FIXED, expert="exact", aggregation="poe").fit(*table)
    assert not hasattr(other, "weights_")
    assert not hasattr(other, "inducing_")


@pytest.mark.parametrize("expert", ["exact", "sparse"])
def test_one_exact_expert_is_the_exact_gp(expert, table, T):
    X, y = (a[:60] for a in table)
    settings = {"kernel": kernels.Matern32(0.5), "optimizer": None}
    more = {"expert": expert, "inducing": X, "ridge": 0.0, "n_experts": 1}
    found = build(**settings, **more).fit(X, y)
    exact = ExactGP(**settings).fit(X, y)
    equal(found.predict(T, True), exact.predict(T, True), rtol=1e-4, atol=1e-6)
    assert found.objective_ == pytest.approx(exact.objective_, rel=1e-5)
    assert found.log_marginal_likelihood() == pytest.approx(
        exact.log_marginal_likelihood(), rel=1e-5
    )


@both
@pytest.mark.parametrize("training", TRAINING)
def test_every_training_raises_the_objective_and_tells_its_history(expert, training, table):
    X, y = table
    settings = {**SMALL, "expert": expert, "training": training}
    model = build(kernel="rbf(ard=true)", **settings, max_iter=6).fit(X, y)
    still = build(kernel="rbf(ard=true)", **settings, optimizer=None).fit(X, y)
    assert still.history_ == []
    assert still.noise_variance_ == pytest.approx(0.1)
    assert model.objective_ > still.objective_
    assert 0 < len(model.history_) <= 6
    known = {"iteration", "evaluations", "objective", "gradient_norm", "seconds", "noise_variance"}
    for entry in model.history_:
        assert {*known, *model.kernel_.parameter_names} <= set(entry)
        assert all(np.isfinite(list(entry.values())))
    residuals = {"primal_residual", "dual_residual"} & set(model.history_[0])
    assert bool(residuals) is (training in ("admm", "pxadmm"))


@pytest.mark.parametrize("training", ["fact", "fedavg"])
def test_inducing_inputs_are_trained_where_asked_for(training, table):
    settings = {**QUICK, "training": training}
    still = build(**settings).fit(*table)
    model = build(**settings, train_inducing=True).fit(*table)
    assert not np.allclose(model.inducing_, still.inducing_)


class Stopped(Exception):
    """Stands for a kill."""


@pytest.fixture
def calls(monkeypatch):
    """Counts the rounds of training; ``stop`` of them may be made."""
    counter = {"made": 0, "stop": None}

    def counting(a_round):
        def counted(self, *arguments):
            if counter["made"] == counter["stop"]:
                raise Stopped
            counter["made"] += 1
            return a_round(self, *arguments)

        return counted

    objectives = rounds_of_experts.Objectives
    for name in ("map", "evaluate"):
        monkeypatch.setattr(objectives, name, counting(getattr(objectives, name)))
    return counter


@pytest.mark.parametrize(
    ("expert", "training"),
    [
        pytest.param("sparse", "fact", marks=pytest.mark.slow),
        *(pytest.param("sparse", t, marks=pytest.mark.slow) for t in TRAINING if t != "fact"),
        pytest.param("exact", "fact", marks=pytest.mark.slow),
        ("exact", "admm"),
    ],
)
def test_a_stopped_fit_goes_on_and_ends_with_the_same_bits(
    expert, training, table, T, tmp_path, calls
):
    sampled = {"sampling_rate": 0.5} if training in ("fedavg", "fedprox") else {}
    model = build(**SMALL, expert=expert, training=training, max_iter=5, tol=1e-14, **sampled)
    whole = clone(model).fit(*table)
    made, stop, url = calls["made"], 3, str(tmp_path / "checkpoint.zarr")
    calls.update(made=0, stop=stop)
    with pytest.raises(Stopped):
        clone(model).fit(*table, checkpoint=url)
    calls.update(made=0, stop=None)
    resumed = clone(model).fit(*table, checkpoint=url)
    assert 0 < calls["made"] < made
    assert outcome(resumed, T) == outcome(whole, T)
    calls.update(made=0)
    assert outcome(clone(model).fit(*table, checkpoint=url), T) == outcome(whole, T)
    assert calls["made"] == 0
    for other in ({"n_experts": 4}, {"partition": "chunks"}, {"noise_variance": 0.2}):
        with pytest.raises(StoreError, match="belongs to other data or settings"):
            build(**model.get_params(deep=False) | other).fit(*table, checkpoint=url)


# -- where rows and state are kept -----------------------------------------------------------


@pytest.mark.parametrize(
    ("expert", "partition", "where"),
    quick(
        3,
        [
            ("sparse", "random", "memory"),
            ("sparse", "block", "zarr"),
            ("exact", "random", "memory"),
            ("exact", "random", "zarr"),
            ("exact", "block", "zarr"),
            ("exact", "chunks", "zarr"),
            ("exact", "chunks", "lazy"),
            ("exact", "random", "store"),
        ],
    ),
)
def test_a_saved_model_holds_all_it_needs(expert, partition, where, table, T, temporary, tmp_path):
    X, y = table
    source, folder = str(tmp_path / "t.zarr"), tmp_path / "kept"
    given = zarr_rows(source, X, y)
    given = {"memory": (X, y), "lazy": lazily(X, y)}.get(where, given)
    store = {"store": str(folder)} if where == "store" else {}
    made = build(**QUICK, expert=expert, partition=partition, **store)
    model = clone(made).fit(*given)
    wanted, token = model.predict(T, return_std=True), model.solved_.token
    cov = model.predict(T, return_cov=True)[1]
    assert bool(list(folder.glob("*"))) is (where == "store")
    model.save(tmp_path / "m.zarr")
    assert (tmp_path / "m.zarr" / "rows").exists() is (expert == "exact")
    del model
    gc.collect()
    for gone in (source, folder, *temporary.iterdir()):
        shutil.rmtree(gone, ignore_errors=True)
    (tmp_path / "m.zarr").rename(tmp_path / "moved.zarr")
    forget()
    found = daskgp.load(tmp_path / "moved.zarr")
    assert type(found) is ExpertsGP
    assert found.solved_.token == token
    assert found.get_params() == made.get_params()
    same_bits(found.predict(T, return_std=True), wanted)
    same_bits([found.predict(T, return_cov=True)[1]], [cov])
    found.save(tmp_path / "again.zarr")
    forget()
    same_bits([daskgp.load(tmp_path / "again.zarr").predict(T)], wanted[:1])


@both
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_state_lies_in_the_store_by_expert(expert, aggregation, table, T, tmp_path):
    model = build(**FIXED, expert=expert, aggregation=aggregation).fit(*table)
    model.save(tmp_path / "m.zarr")
    group = zarr.open_group(tmp_path / "m.zarr", mode="r")
    if expert == "sparse" and aggregation != "optimal":
        for name in ("state_means", "state_shrinks"):
            assert group[name].shape[0] == 5
            assert group[name].chunks == (1, *group[name].shape[1:])
            assert len(list((tmp_path / "m.zarr" / name / "c").iterdir())) == 5
    found = daskgp.load(tmp_path / "m.zarr")
    assert found.aggregation == aggregation
    same_bits(found.predict(T, return_std=True), model.predict(T, return_std=True))


@pytest.mark.parametrize("damage", ["removed", "other rows"])
def test_a_model_store_without_the_rows_of_the_fit_is_refused(damage, table, T, tmp_path):
    build(**FIXED, expert="exact").fit(*table).save(tmp_path / "m.zarr")
    kept = tmp_path / "m.zarr" / "rows"
    shutil.rmtree(kept)
    if damage == "other rows":
        dataset(kept, *(a[:150] for a in table))
    forget()
    with pytest.raises(StoreError, match=r"m\.zarr|fit again") as error:
        daskgp.load(tmp_path / "m.zarr").predict(T)
    assert "\n" not in str(error.value)


def test_rows_in_memory_stay_there(table, temporary):
    for expert in ("sparse", "exact"):
        for partition in ("random", "block", "chunks"):
            build(**FIXED, expert=expert, partition=partition).fit(*table)
    assert not [path for path in temporary.rglob("*") if path.is_file()]


@both
def test_sparse_experts_keep_no_rows_on_disk_and_exact_ones_do(expert, table, temporary, tmp_path):
    folder = tmp_path / "kept"
    given = zarr_rows(tmp_path / "t.zarr", *table)
    build(**FIXED, expert=expert).fit(*given)
    assert bool([p for p in temporary.rglob("*") if p.is_file()]) is (expert == "exact")
    build(**FIXED, expert=expert, store=str(folder)).fit(*given)
    assert len(list(folder.glob("*"))) == (1 if expert == "exact" else 0)


@both
def test_a_fit_that_fails_leaves_nothing(expert, table, temporary, tmp_path, calls):
    calls["stop"] = 1
    given = zarr_rows(tmp_path / "t.zarr", *table)
    for store in ({}, {"store": str(tmp_path / "kept")}):
        with pytest.raises(Stopped):
            build(**QUICK, expert=expert, **store).fit(*given)
    gc.collect()
    for folder in (temporary, tmp_path / "kept"):
        assert not [path for path in folder.rglob("*") if path.is_file()]


# -- the command -----------------------------------------------------------------------------


def options(*settings):
    number = () if "expert=exact" in settings else ("n_inducing=12",)
    chosen = ("n_experts=5", *number, "max_iter=3", "tol=1e-14", *settings)
    return ("--model", "experts", *(part for text in chosen for part in ("--set", text)))


@pytest.fixture(scope="module")
def data(table, tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data") / "t.zarr", *table, names=["lon", "lat"])


def shown(*arguments):
    result = invoke(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return re.sub(r"[\s│]+", " ", result.stdout)


@pytest.mark.parametrize(
    "settings",
    [
        ("expert=exact",),
        pytest.param(
            ("expert=exact", "partition=block", "order=lon,lat", "aggregation=npae"),
            marks=pytest.mark.slow,
        ),
        ("aggregation=rbcm", "noise_in_experts=true", "training=fedavg", "central=none"),
    ],
    ids=["exact", "blocks", "sparse"],
)
def test_the_command_fits_predicts_scores_and_describes(settings, data, table, tmp_path, scheduler):
    X, y = table
    at, model = ("--scheduler", scheduler), tmp_path / "m.zarr"
    found = succeed("fit", data, model, *options(*settings), *at)
    assert (found["rows"], found["iterations"]) == (200, 3)
    assert sorted(os.listdir(tmp_path)) == ["m.zarr"]
    exact = settings[0] == "expert=exact"
    assert (model / "rows").is_dir() is exact
    assert not (model / "checkpoint").exists()
    assert succeed("predict", model, data, tmp_path / "p.zarr", *at)["rows"] == 200
    mean, std = daskgp.load(model).predict(X, return_std=True, include_noise=True)
    store = zarr.open_group(tmp_path / "p.zarr", mode="r")
    equal([store["mean"][...], np.sqrt(store["variance"][...])], [mean, std])
    scores = succeed("score", model, data, *at)
    expected = daskgp.metrics.summary(y, mean, std**2)
    assert scores["n"] == 200
    for name, value in expected.items():
        assert scores[name] == pytest.approx(value, rel=1e-8)
    text = shown("info", model)
    assert "model experts" in text
    assert ("of exact experts" if exact else "of sparse experts") in text
    assert ("experts 5 of 40 to 40 rows" if exact else "experts 5 kernel") in text
    assert "rows 200" in shown("plan", data, *options(*settings))
    found = succeed("plan", data, *options(*settings), "--json")
    assert found["fits"] is True


@pytest.mark.parametrize(
    ("expert", "partition"),
    quick(2, [("sparse", "random"), ("exact", "random"), ("exact", "block"), ("exact", "chunks")]),
)
def test_a_stopped_command_goes_on_with_the_rows_it_has_written(
    expert, partition, data, T, tmp_path, scheduler, monkeypatch
):
    stopped, whole = tmp_path / "stopped.zarr", tmp_path / "whole.zarr"
    settings = f"expert={expert}", f"partition={partition}", "aggregation=npae"
    chosen = (*options(*settings), "--scheduler", scheduler)
    evaluate, left = rounds_of_experts.Objectives.evaluate, [0, 1]

    def fail(self, vector):
        if not left:
            raise RunError("workers died")
        left.pop()
        return evaluate(self, vector)

    monkeypatch.setattr(rounds_of_experts.Objectives, "evaluate", fail)
    assert "--resume goes on" in refused("fit", data, stopped, *chosen, code=1)
    monkeypatch.undo()
    assert "incomplete" in refused("predict", stopped, data, tmp_path / "p.zarr")
    kept = {p: p.stat().st_mtime_ns for p in (stopped / "rows").rglob("*") if p.is_file()}
    assert bool(kept) is (expert == "exact" and partition != "chunks")
    resumed = succeed("fit", data, stopped, *chosen, "--resume")
    assert kept == {p: p.stat().st_mtime_ns for p in kept}
    undisturbed = succeed("fit", data, whole, *chosen)
    assert resumed["objective"] == undisturbed["objective"]
    checksums = {zarr.open_group(p, mode="r").attrs["checksum"] for p in (stopped, whole)}
    assert len(checksums) == 1
    same_bits(*([daskgp.load(p).predict(T)] for p in (stopped, whole)))
    assert sorted(os.listdir(tmp_path)) == ["stopped.zarr", "whole.zarr"]


@pytest.mark.slow
def test_a_killed_command_goes_on_and_ends_with_the_same_bits(data, T, tmp_path, scheduler):
    killed, whole = tmp_path / "killed.zarr", tmp_path / "whole.zarr"
    chosen = (*options("expert=exact", "training=admm", "max_iter=15"), "--scheduler", scheduler)
    process = start("fit", data, killed, *chosen)
    third = killed / "checkpoint" / "evaluations" / "c" / "2" / "0"
    code, _ = stop_when(process, third.exists)
    assert code == -signal.SIGKILL
    kept = {p: p.stat().st_mtime_ns for p in (killed / "rows").rglob("*") if p.is_file()}
    assert "complete no: fit --resume goes on" in shown("info", killed)
    resumed = succeed("fit", data, killed, *chosen, "--resume", "--clear-lock")
    assert kept == {p: p.stat().st_mtime_ns for p in kept}
    undisturbed = succeed("fit", data, whole, *chosen)
    assert resumed["objective"] == undisturbed["objective"]
    same_bits(*([daskgp.load(p).predict(T)] for p in (killed, whole)))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("n_experts=201",), "n_experts=201 for 200 usable rows: choose at most 200"),
        (("n_experts=1.5",), "n_experts='1.5': a whole number or none is needed"),
        (("expert=dense",), "one of 'sparse', 'exact' is needed"),
        (("training=fedavg", "learning_rate=0"), "learning_rate=0.0: it must be greater than 0"),
        (("aggregation=grbcm", "partition=block"), "choose partition='random'"),
        (("n_expert=3",), "did you mean 'n_experts'?"),
    ],
)
def test_the_command_says_so_in_one_line_and_leaves_nothing(
    settings, says, data, tmp_path, scheduler
):
    given = options(*settings)
    line = refused("fit", data, tmp_path / "m.zarr", *given, "--scheduler", scheduler)
    assert says in line
    assert os.listdir(tmp_path) == []
    if "usable rows" not in says:  # a plan does not judge
        assert says in refused("plan", data, *given)


# -- input that cannot be used ---------------------------------------------------------------

REFUSED = {
    "more experts than rows": ({"n_experts": 201}, "n_experts=201 for 200 usable rows: choose at"),
    "no expert": ({"n_experts": 0}, "n_experts=0: a whole number from 1 is needed"),
    "half an expert": ({"n_experts": 1.5}, "n_experts=1.5: a whole number from 1 is needed"),
    "experts as text": ({"n_experts": "a"}, "n_experts='a': a whole number from 1 is needed"),
    "expert": ({"expert": "dense"}, "expert='dense': choose one of 'sparse', 'exact'"),
    "partition": ({"partition": "kmeans"}, "partition='kmeans': choose one of 'random', 'block'"),
    "order": ({"partition": "block", "order": "x7"}, "order 'x7' is none of"),
    "random order": ({"partition": "block", "order": "random"}, "puts no nearby rows together"),
    "aggregation": ({"aggregation": "moe"}, "aggregation='moe': choose one of 'optimal', 'npae'"),
    "weights": ({"weights": "best"}, "weights='best': choose one of 'projection', 'paper'"),
    "variance": ({"variance": "exact"}, "variance='exact': choose one of 'linear', 'paper'"),
    "training": ({"training": "sgd"}, "training='sgd': choose one of 'fact', 'fedavg'"),
    "noise": ({"noise_in_experts": 1}, "noise_in_experts=1: choose one of True, False"),
    "noise of weights": (
        {"noise_in_experts": True},
        "no effect with aggregation='optimal'",
    ),
    "noise of npae": (
        {"noise_in_experts": True, "aggregation": "npae"},
        "has no effect with aggregation='npae': choose",
    ),
    "central above 1": ({"expert": "exact", "central": 1.5}, "central=1.5: it must be greater"),
    "no central rows": ({"expert": "exact", "central": 0}, "central=0: it must be greater than 0"),
    "central as text": ({"expert": "exact", "central": "a"}, "central='a': a number is needed"),
    "central of sparse": ({"central": 0.5}, "central=0.5 has no effect with weights='projection'"),
    "central of poe": (
        {"central": 0.5, "expert": "exact", "aggregation": "poe"},
        "central=0.5 has no effect with aggregation='poe'",
    ),
    "too few central rows": (
        {"weights": "paper", "central": 0.004},
        "central=0.004 of 200 usable rows is not one: choose a larger share",
    ),
    "ridge below 0": ({"ridge": -1e-6}, "ridge=-1e-06: it must be from 0 to 1"),
    "ridge as text": ({"ridge": "none"}, "ridge='none': a number is needed"),
    "shrinkage above 1": ({"shrinkage": 2}, "shrinkage=2: it must be from 0 to 1"),
    "shrinkage of exact experts": (
        {"shrinkage": 0.1, "expert": "exact"},
        "shrinkage=0.1 has no effect with expert='exact': choose",
    ),
    "rates of fact": (
        {"sampling_rate": 0.5},
        "sampling_rate=0.5 has no effect with training",
    ),
    "idle order": ({"order": "hilbert"}, "order='hilbert' has no effect with partition='random'"),
    "idle weights": (
        {"weights": "paper", "aggregation": "poe"},
        "weights='paper' has no effect with aggregation='poe': choose aggregation='optimal', or "
        "leave weights out",
    ),
    "idle inputs": (
        {"expert": "exact", "train_inducing": True},
        "train_inducing=True has no effect with expert='exact': choose expert='sparse'",
    ),
    "grbcm of blocks": ({"aggregation": "grbcm", "partition": "block"}, "choose partition="),
    "learning rate": ({"training": "fedavg", "learning_rate": 0}, "learning_rate=0: it must be"),
    "rho": ({"training": "admm", "rho": -1.0}, "rho=-1.0: it must be greater than 0"),
    "mu": ({"training": "fedprox", "mu": -0.1}, "mu=-0.1: it must be 0 or greater"),
    "lipschitz": ({"training": "pxadmm", "lipschitz": np.nan}, "lipschitz=nan: it must be 0 or"),
    "sampling": ({"training": "fedavg", "sampling_rate": 0}, "sampling_rate=0: it must be greater"),
    "all and more": ({"training": "fedavg", "sampling_rate": 1.1}, "sampling_rate=1.1: it must"),
    "no steps": ({"training": "admm", "local_steps": 0}, "local_steps=0: a whole number from 1"),
    "half steps": ({"training": "admm", "local_steps": 2.5}, "local_steps=2.5: a whole number"),
    "inducing": ({"n_inducing": 201}, "201 inducing inputs for 200 usable rows: choose at most"),
    "no inducing": ({"n_inducing": 0}, "n_inducing=0: a whole number from 1 is needed"),
    "block rows": ({"block_rows": 0}, "block_rows=0: a whole number from 1 is needed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_be_met_are_one_line_before_any_work(case, table, temporary, tmp_path):
    settings, says = REFUSED[case]
    given = zarr_rows(tmp_path / "t.zarr", *table)
    chosen = {**QUICK, **settings}
    if "expert" in settings:
        del chosen["n_inducing"]
    made = ExpertsGP(**chosen, store=str(tmp_path / "kept"))
    for act in (made.fit, made.plan):
        if act == made.plan and "usable rows" in says:
            continue  # a plan does not judge
        with testing.no_compute(), pytest.raises((SettingError, InputError)) as error:
            act(*given)
        assert says in str(error.value)
        assert "\n" not in str(error.value)
    for folder in (tmp_path / "kept", temporary):
        assert not [path for path in folder.rglob("*") if path.is_file()]


@both
def test_a_share_that_happens_to_draw_no_row_is_an_error(expert, table):
    made = build(**FIXED, expert=expert, weights="paper", central=0.005)
    seeds = [seed for seed in range(20) if not drawn(seed, 200, 0.005)]
    with pytest.raises(InputError, match=r"central=0\.005 drew none of 200 rows") as error:
        made.set_params(random_state=seeds[0]).fit(*table)
    assert "\n" not in str(error.value)


def drawn(seed, n, share):
    """Whether any of n rows is drawn."""
    span = Span(0, n)
    return Central(share, seed).among(span, span).any()


def test_experts_more_than_the_complete_rows_are_refused_too(table, temporary, tmp_path):
    X, y = (a.copy() for a in table)
    y[4:] = np.nan
    given = zarr_rows(tmp_path / "t.zarr", X, y)
    for made in (ExpertsGP(n_experts=5, n_inducing=4), ExpertsGP(n_experts=5, expert="exact")):
        with pytest.raises(InputError, match="n_experts=5 for 4 usable rows: choose at most 4"):
            made.fit(*given)
    assert not [path for path in temporary.rglob("*") if path.is_file()]


def test_inducing_inputs_outside_the_data_are_counted_once(table, caplog):
    Z = np.concatenate([table[0][:5], [[10.0, 1.0], [1.0, -9.0]]])
    build(**{**FIXED, "inducing": Z}).fit(*table)
    assert warnings_in(caplog) == [
        "2 of 7 inducing inputs lie outside the range of the data: they explain nothing there"
    ]


# -- memory ----------------------------------------------------------------------------------


def suggested(model, n, limit):
    """The n_experts that a refusal names, None where there is none."""
    X, y = da.zeros((n, 2), chunks=(n // 100, 2)), da.zeros(n, chunks=n // 100)
    try:
        refuse(model.plan(X, y), limit, model._knob(rows_of(X, y, None, True)))
    except PlanError as error:
        says = str(error)
    else:
        return None
    assert "\n" not in says
    return int(re.findall(r"n_experts to at (?:most|least) (\d+)", says)[0])


@pytest.mark.parametrize(
    ("made", "n", "fewer"),
    [
        (ExpertsGP(expert="exact", n_experts=20), 400_000, False),
        (ExpertsGP(expert="exact", n_experts=8, aggregation="grbcm"), 200_000, False),
        (ExpertsGP(expert="exact", n_experts=10, aggregation="poe"), 10**7, False),
        (ExpertsGP(n_experts=4_096, n_inducing=256, aggregation="npae"), 400_000, True),
        (ExpertsGP(n_experts=4_096, n_inducing=256, aggregation="rbcm"), 400_000, True),
    ],
    ids=["exact", "grbcm", "many rows", "npae", "rbcm"],
)
def test_experts_that_do_not_fit_are_refused_with_a_number_that_does(made, n, fewer):
    found = suggested(made, n, 2**31)
    assert (found < made.n_experts) is fewer
    assert suggested(clone(made).set_params(n_experts=found), n, 2**31) is None


def test_memory_too_small_for_any_number_of_experts_asks_for_more():
    model = ExpertsGP(n_experts=4, n_inducing=4_000)
    given = rows_of(da.zeros((400_000, 2)), da.zeros(400_000), None, True)
    with pytest.raises(PlanError, match="fewer inducing inputs or give the workers more memory"):
        refuse(model._plan(given), 2**28, model._knob(given))


def test_a_fit_is_refused_before_any_work(temporary, tmp_path, monkeypatch):
    monkeypatch.setattr(Executor, "memory_per_task", lambda self: 2**30)
    given = [da.zeros((20_000, 2), chunks=(5_000, 2)), da.zeros(20_000, chunks=5_000)]
    for made in (
        ExpertsGP(expert="exact", n_experts=2, aggregation="grbcm"),
        ExpertsGP(n_experts=5_000, n_inducing=100, aggregation="npae"),
    ):
        with (
            testing.no_compute(),
            pytest.raises(PlanError, match=r"n_experts to at (most|least) \d+ or"),
        ):
            made.set_params(store=str(tmp_path / "kept")).fit(*given)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_plan_needs_no_work(table, tmp_path):
    given = zarr_rows(tmp_path / "t.zarr", *table)
    with testing.no_compute():
        found = daskgp.plan(build(**FIXED, expert="exact"), *given)
        assert (found.rows, found.block_rows, found.tasks) == (200, 40, 5)
        X, y = da.ones((10**7, 2), chunks=(10**6, 2)), da.ones(10**7, chunks=10**6)
        huge = daskgp.plan(ExpertsGP(n_inducing=100), X, y)
    assert huge.block_rows <= 65_536
    assert huge.bytes_per_task < 1 << 30


# -- odd data --------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_experts_of_one_row_work(expert, aggregation):
    X, y = rows(8)
    model = build(
        n_experts=8, n_inducing=3, expert=expert, aggregation=aggregation, max_iter=2
    ).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert model.n_experts_ == 8
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_a_model_keeps_rows_that_the_caller_changes(table, T, tmp_path):
    settings = {**FIXED, "n_experts": 4, "expert": "exact", "partition": "chunks"}
    X, y = (np.array(a[:200]) for a in table)
    keys = [
        zarr.create_array(tmp_path / n, data=a, chunks=a.shape) for n, a in (("X", X), ("y", y))
    ]
    for given in ((X, y), keys):
        model = build(**settings).fit(*given)
        before = model.predict(T)
        given[0][...] = 0.0
        np.testing.assert_array_equal(load_again(model, tmp_path / "m.zarr").predict(T), before)


def load_again(model, path):
    shutil.rmtree(path, ignore_errors=True)
    model.save(path)
    return daskgp.load(path)


def test_rows_of_another_model_are_refused(table, tmp_path):
    X, y = table
    for name, given in (("a", X), ("b", X + 1.0)):
        build(**{**FIXED, "n_experts": 4, "expert": "exact"}).fit(given, y).save(tmp_path / name)
    shutil.rmtree(tmp_path / "a" / "rows")
    shutil.copytree(tmp_path / "b" / "rows", tmp_path / "a" / "rows")
    with pytest.raises(StoreError, match="its rows are not those of the fit"):
        daskgp.load(tmp_path / "a")


def test_optimal_weights_of_blocks_are_warned_of_once(table, caplog):
    build(**FIXED, partition="block").fit(*table)
    (line,) = warnings_in(caplog)
    assert line.endswith("choose aggregation='npae' or 'bcm'")


def test_a_plan_refuses_more_experts_than_rows(table):
    with pytest.raises(InputError, match="n_experts=300 for 200 usable rows: choose at most 200"):
        build(**{**SMALL, "n_experts": 300}).plan(*table)


def test_training_that_runs_away_says_so(table, caplog):
    settings = {**SMALL, "training": "pxadmm", "rho": 1e-9, "lipschitz": 0, "max_iter": 20}
    build(**settings).fit(*table)
    (line,) = [line for line in warnings_in(caplog) if "training by pxadmm ended" in line]
    assert line.endswith("choose larger rho and lipschitz")


@both
def test_experts_that_are_alike_share_the_weight_and_say_so(expert, table, T, caplog):
    X, y = (np.concatenate([a[:50]] * 4) for a in table)
    settings = {**FIXED, "n_experts": 4, "expert": expert, "partition": "chunks"}
    model = build(**settings).fit(X, y)
    (line,) = warnings_in(caplog)
    assert "the inner products of 4 experts have rank 1: some predict alike" in line
    np.testing.assert_allclose(model.weights_, model.weights_[0], rtol=1e-6)
    assert np.isfinite(model.predict(T, return_std=True)).all()
    alone = {} if expert == "exact" else {"shrinkage": 0.0}
    with pytest.raises(NumericalError, match="choose ridge=1e-6 or fewer experts") as error:
        build(**settings, **alone, ridge=0.0).fit(X, y)
    assert "\n" not in str(error.value)
    for aggregation in ("npae", "grbcm", "rbcm"):
        other = build(**settings, aggregation=aggregation).fit(X, y)
        assert np.isfinite(other.predict(T, return_std=True)).all()


@both
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_constant_target_is_predicted(expert, aggregation, table, T):
    model = build(**FIXED, expert=expert, aggregation=aggregation)
    mean, std = model.fit(table[0], np.full(200, 3.0)).predict(T, return_std=True)
    np.testing.assert_allclose(mean, 3.0)
    assert np.isfinite(std).all()


@both
def test_one_column_and_single_precision(expert):
    X, y = rows(120, d=1)
    narrow = X.astype(np.float32), y.astype(np.float32)
    settings = {**QUICK, "expert": expert}
    wanted = build(**settings).fit(X, y).predict(X, return_std=True)
    equal(build(**settings).fit(*narrow).predict(X, return_std=True), wanted, atol=1e-3)
    found = build(**settings, dtype="float32").fit(X, y).predict(X, return_std=True)
    equal(found, wanted, rtol=0.1, atol=0.05)


@both
@pytest.mark.parametrize("partition", quick(1, ["random", "block", "chunks"]))
def test_arrays_are_left_as_they_are(expert, partition, table, T):
    settings = {**QUICK, "expert": expert, "partition": partition}
    X, y = (a.copy() for a in table)
    wanted = build(**settings).fit(X, y).predict(T)
    same_bits((X, y), table)
    for a in (X, y):
        a.flags.writeable = False
    same_bits([build(**settings).fit(X, y).predict(T)], [wanted])
    spread = np.full((400, 4), 7.0)
    spread[::2, ::2], twice = X, np.repeat(y, 2)
    found = build(**settings).fit(spread[::2, ::2], twice[::2]).predict(T)
    equal([found], [wanted])
    equal([build(**settings).fit(np.asfortranarray(X), y).predict(T)], [wanted])


@both
def test_the_paper_s_variance_is_never_negative_but_may_be_zero(expert, table, T):
    model = build(**FIXED, expert=expert, variance="paper", weights="paper").fit(*table)
    mean, std = model.predict(T, return_std=True)
    assert np.isfinite(mean).all()
    assert (std >= 0).all()


def test_features_other_than_at_the_fit_are_refused(table):
    model = build(**FIXED, expert="exact").fit(*table)
    with pytest.raises(InputError, match=r"X has 3 features, but \w+ is expecting 2"):
        model.predict(np.ones((3, 3)))


def test_notes_in_the_store_are_json(table, tmp_path):
    build(**QUICK, training="admm").fit(*table).save(tmp_path / "m.zarr")
    found = json.loads((tmp_path / "m.zarr" / "zarr.json").read_text())
    assert len(found["attributes"]["notes"]["history"]) == 3
