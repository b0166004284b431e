"""ExpertsGP as an estimator: the same for rows of any kind, lazy, kept in a store, and tidy."""

import json

import dask.array as da
import numpy as np
import pytest
import zarr
from commands import dataset, rows
from effective import effective
from fits import equal, same_bits, zarr_rows
from logs import warnings_in
from sklearn.base import clone

import daskgp
from daskgp import ExpertsGP, kernels, testing
from daskgp.data.blocks.draws import Central
from daskgp.data.partition import Span
from daskgp.errors import InputError, NumericalError, SettingError

GIVEN = kernels.Matern32((0.5, 0.8), variance=1.4)
SMALL = {"kernel": GIVEN, "n_experts": 5, "n_inducing": 12}
FIXED = {**SMALL, "optimizer": None}
QUICK = {**SMALL, "max_iter": 3}
COMMITTEES = ("poe", "gpoe", "bcm", "rbcm", "grbcm")
AGGREGATIONS = ("optimal", "npae", *COMMITTEES)
TRAINING = ("fact", "fedavg", "fedprox", "admm", "pxadmm")

both = pytest.mark.parametrize("expert", ["sparse", "exact"])


def build(**settings):
    return effective(ExpertsGP, **settings)


def lazily(X, y, step=50):
    return tuple(da.from_array(a, chunks=(step, *a.shape[1:])) for a in (X, y))


@pytest.fixture(scope="module")
def table():
    return rows(200, seed=5)


@pytest.fixture(scope="module")
def T():
    return rows(25, seed=1)[0]


# -- rows of any kind ------------------------------------------------------------------------


@both
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_every_aggregation_learns_several_targets(expert, aggregation, table, T):
    X, y = table
    both = np.column_stack([y, -3 * y + X[:, 0]])
    settings = {**FIXED, "kernel": None, "expert": expert, "aggregation": aggregation}
    model = build(**settings).fit(X, both)
    mean, std = model.predict(T, return_std=True)
    assert mean.shape == std.shape == (25, 2)
    truth = np.sin(2 * T[:, 0]) + T[:, -1]
    assert np.sqrt(np.mean((mean[:, 0] - truth) ** 2)) < 0.3
    assert (std > 0).all()
    noisy = model.predict(T, return_std=True, include_noise=True)[1]
    unit = model.solved_.scaling.y_scale**2 * model.noise_variance_
    np.testing.assert_allclose(noisy**2 - std**2, np.broadcast_to(unit, std.shape))
    assert model.score(X, both) > 0.8


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
        kept = model.fit(X, y).solved_.rows
        spans[name] = [kept.rows.read(*span)[0] for span in kept.spans]
        assert [len(part) for part in spans[name]] == [40] * 5
        every = np.concatenate(spans[name])
        np.testing.assert_array_equal(every[np.lexsort(every.T)], X[np.lexsort(X.T)])
    apart = {name: np.mean([p.var(axis=0).sum() for p in parts]) for name, parts in spans.items()}
    assert apart["block"] < 0.5 * apart["random"]
    first = build(**FIXED, expert="exact", partition="chunks").fit(X, y).solved_.rows
    np.testing.assert_array_equal(first.rows.read(*first.spans[1])[0], X[40:80])


@both
def test_a_shuffled_store_is_used_as_it_is(expert, table, T, tmp_path, monkeypatch):
    url = str(tmp_path / "shuffled.zarr")
    daskgp.prepare(table, url, order="random", progress=False)
    made = build(**{**FIXED, "inducing": T}, expert=expert)
    wanted = clone(made).fit(*table).predict(T, return_std=True)
    monkeypatch.setattr("daskgp.fit.arrange.rewriting.arrange", None)
    equal(clone(made).fit(*daskgp.open_dataset(url)).predict(T, return_std=True), wanted)


@both
def test_a_store_in_blocks_is_used_as_it_is(expert, table, T, tmp_path, monkeypatch):
    url = str(tmp_path / "blocks.zarr")
    daskgp.prepare(table, url, order="hilbert", block_rows=40, progress=False)
    given = daskgp.open_dataset(url)
    settings = {**FIXED, "inducing": T, "expert": expert}
    wanted = build(**settings, partition="block", order="hilbert").fit(*table)
    shuffled = build(**settings).fit(*given)  # of rows in blocks, so not of the same ones
    assert np.sqrt(np.mean((shuffled.predict(T) - wanted.predict(T)) ** 2)) < 0.3
    monkeypatch.setattr("daskgp.fit.arrange.rewriting.arrange", None)
    for order in ("auto", "nonsense"):  # that of the store holds
        model = build(**settings, partition="block", order=order).fit(*given)
        equal(model.predict(T, return_std=True), wanted.predict(T, return_std=True))


def test_a_shuffled_store_is_put_in_blocks_where_they_are_wanted(table, T, tmp_path):
    url = str(tmp_path / "shuffled.zarr")
    daskgp.prepare(table, url, order="random", progress=False)
    settings = {**FIXED, "partition": "block", "expert": "exact"}
    given = daskgp.open_dataset(url)
    wanted = build(**settings, order="hilbert").fit(*table)
    model = build(**settings, order="hilbert").fit(*given)
    equal(model.predict(T, return_std=True), wanted.predict(T, return_std=True))
    with testing.no_compute(), pytest.raises(SettingError, match="order 'hilbrt' is neither"):
        build(**settings, order="hilbrt").fit(*given)


# -- predictions -----------------------------------------------------------------------------


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
    with pytest.raises(InputError, match="variance='linear'"):
        model.predict(T, return_cov=True)


@both
@pytest.mark.parametrize("aggregation", COMMITTEES)
def test_noisy_experts_give_the_spread_of_observations_alone(
    expert, aggregation, table, T, tmp_path
):
    X, y = table
    settings = {**FIXED, "kernel": None, "expert": expert, "aggregation": aggregation}
    model = build(**settings, noise_in_experts=True).fit(X, y)
    mean, std = model.predict(T, return_std=True, include_noise=True)
    same_bits([model.predict(T)], [mean])
    one = build(**settings).set_params(n_experts=1)
    plain, noisy = (
        clone(one).set_params(noise_in_experts=value).fit(X, y) for value in (False, True)
    )
    if aggregation != "rbcm":  # one expert alone: the noise comes in once
        equal(noisy.predict(T, True, False, True), plain.predict(T, True, False, True))
    for given in (T, da.from_array(T, chunks=(5, 2))):
        with testing.no_compute(), pytest.raises(SettingError, match="include_noise=True") as error:
            model.predict(given, return_std=True)
        assert "\n" not in str(error.value)
    inputs = dataset(tmp_path / "t.zarr", T, T[:, 0], step=10)
    model.predict_store(inputs, str(tmp_path / "p.zarr"))
    store = zarr.open_group(tmp_path / "p.zarr", mode="r")
    equal([store["mean"][...], np.sqrt(store["variance"][...])], [mean, std])
    assert model.score(X, y) > 0.8


# -- settings and training -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expert", "n", "count"),
    [("sparse", 300, 4), ("sparse", 99, 1), ("sparse", 10**6, 16), ("exact", 300, 1),
     ("exact", 1001, 2), ("exact", 10**6, 1000)],
)  # fmt: skip
def test_the_number_of_experts_follows_from_the_rows(expert, n, count):
    given = {"kernel": GIVEN, "expert": expert, "n_inducing": 70, "optimizer": None}
    X = da.zeros((n, 2), chunks=(-(-n // 4), 2))
    plan, wanted = (build(**m).plan(X, X[:, 0]) for m in (given, {**given, "n_experts": count}))
    assert (plan.tasks, plan.block_rows) == (wanted.tasks, wanted.block_rows)
    if n == 300:
        model = build(**given).fit(*rows(n))
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


@pytest.mark.parametrize(
    ("expert", "training"), [*(("sparse", t) for t in TRAINING), ("exact", "admm")]
)
def test_every_training_raises_the_objective_and_tells_its_history(expert, training, table):
    X, y = table
    settings = {**SMALL, "expert": expert, "training": training}
    model = build(**settings, max_iter=6).fit(X, y)
    still = build(**settings, optimizer=None).fit(X, y)
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


# -- where rows and state are kept -----------------------------------------------------------


@pytest.mark.parametrize(
    ("expert", "aggregation"),
    [("sparse", "npae"), ("sparse", "rbcm"), ("exact", "npae"), ("exact", "grbcm")],
)
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


@both
def test_sparse_experts_keep_no_rows_on_disk_and_exact_ones_do(expert, table, temporary, tmp_path):
    folder = tmp_path / "kept"
    given = zarr_rows(tmp_path / "t.zarr", *table)
    build(**FIXED, expert=expert).fit(*given)
    assert bool([p for p in temporary.rglob("*") if p.is_file()]) is (expert == "exact")
    build(**FIXED, expert=expert, store=str(folder)).fit(*given)
    assert len(list(folder.glob("*"))) == (1 if expert == "exact" else 0)


# -- input that cannot be used ---------------------------------------------------------------


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
        "2 of 7 inducing inputs lie outside the range of the data, where they explain nothing: "
        "leave them out"
    ]


# -- odd data --------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_experts_of_one_row_work(expert, aggregation):
    X, y = rows(8)
    settings = {**FIXED, "n_experts": 8, "n_inducing": 3}
    model = build(**settings, expert=expert, aggregation=aggregation).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert model.n_experts_ == 8
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_optimal_weights_of_blocks_are_warned_of_once(table, caplog):
    build(**FIXED, partition="block").fit(*table)
    (line,) = warnings_in(caplog)
    assert line.endswith("choose aggregation='npae' or 'bcm'")


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
def test_the_paper_s_variance_is_never_negative_but_may_be_zero(expert, table, T):
    model = build(**FIXED, expert=expert, variance="paper", weights="paper").fit(*table)
    mean, std = model.predict(T, return_std=True)
    assert np.isfinite(mean).all()
    assert (std >= 0).all()


def test_notes_in_the_store_are_json(table, tmp_path):
    build(**QUICK, training="admm").fit(*table).save(tmp_path / "m.zarr")
    found = json.loads((tmp_path / "m.zarr" / "zarr.json").read_text())
    assert len(found["attributes"]["notes"]["history"]) == 3
