"""CaGP as an estimator: the dense posterior for rows of any kind, kept in a store, and tidy."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from commands import rows
from effective import effective
from fits import equal, files_below, same_bits, zarr_rows
from logs import warnings_in
from sklearn.base import clone

import daskgp
from daskgp import CaGP, ExactGP, kernels, train
from daskgp.errors import InputError, NumericalError, SettingError, StoreError
from daskgp.fit import actions as training
from daskgp.models.actions.cagp import CaGP as ComputationAware
from daskgp.posterior import action_points
from tests import oracle

GIVEN = kernels.Matern32((0.5, 0.8), variance=1.4)
FIXED = {"kernel": GIVEN, "n_actions": 12, "optimizer": None}
QUICK = {
    "n_actions": 8,
    "kernel": daskgp.kernels.Matern32((1.0, 1.0), variance=1.0),
    "optimizer": "l-bfgs",
    "max_iter": 3,
    "tol": 1e-12,
}
N = 90
CHOSEN = np.random.default_rng(3).standard_normal((N, 12))
ACTIONS = {
    "sparse": {},
    "as they lie": {"order": None},
    "support": {"support": 4},
    "cg": {"actions": "cg"},
    "random": {"actions": "random"},
    "eigen": {"actions": "eigen"},
    "given": {"actions": CHOSEN},
}

every = pytest.mark.parametrize("kind", ACTIONS)


def build(**settings):
    return effective(CaGP, **settings)


def lazily(X, y, step=25):
    return tuple(da.from_array(a, chunks=(step, *a.shape[1:])) for a in (X, y))


@pytest.fixture(scope="module")
def table():
    return rows(N, seed=5)


@pytest.fixture(scope="module")
def T():
    return rows(15, seed=1)[0]


# -- the dense definition --------------------------------------------------------------------


def complete(X, y):
    return ~(np.isnan(X).any(axis=1) | np.isnan(y.reshape(len(y), -1)).any(axis=1))


def dense(model, X, y, T):
    """Objective, and mean and covariance at T, of the GP that saw S'y; [CAGP] eqs. 5, 9, 11."""
    keep, scale, theta = complete(X, y), model.solved_.scaling, model.solved_.theta
    place = {tuple(x): i for i, x in enumerate(X[keep])}
    weights, points = model.actions_, model.points_
    weights = weights.toarray() if sp.issparse(weights) else weights
    at = [place.get(tuple(point)) for point in points]
    used = [i for i, row in enumerate(at) if row is not None]
    block = scale.block(X[keep], y.reshape(len(y), -1)[keep])
    S = np.zeros((len(block.X), weights.shape[1]))
    S[[at[i] for i in used]] = weights[used]
    K, Ks, Kss = (theta.kernel(*pair) for pair in pairs(block.X, scale.inputs(T)))
    s, (n, p) = theta.noise_variance, block.y.shape
    W, b = S.T @ K @ S + s * S.T @ S, S.T @ block.y
    C = S @ np.linalg.solve(W, S.T)  # instead of (K + s I)^-1
    evidence = oracle.evidence(W, b, 0.0)
    if model.loss == "projected":
        objective = evidence + 0.5 * p * np.linalg.slogdet(S.T @ S)[1]
    else:
        m, V = K @ C @ block.y, K - K @ C @ K
        fit = -0.5 * ((block.y - m) ** 2).sum() / s - 0.5 * n * p * np.log(2 * np.pi * s)
        left, noise = b - S.T @ m, s * S.T @ S
        seen = oracle.evidence(noise, left, 0.0)
        seen -= 0.5 * p * np.trace(np.linalg.solve(noise, S.T @ V @ S))
        objective = fit - 0.5 * p * np.trace(V) / s - (seen - evidence)
    scaled = scale.inputs(T)
    mean = Ks @ C @ block.y * scale.y_scale + scale.intercept + scaled @ scale.slope
    cov = (Kss - Ks @ C @ Ks.T)[:, :, None] * scale.y_scale**2
    return objective, mean, cov


def pairs(X, T):
    return (X, X), (T, X), (T, T)


def agrees(model, X, y, T):
    """That a fit is the dense definition."""
    objective, mean, cov = dense(model, X, y, T)
    assert model.objective_ == pytest.approx(objective, rel=1e-7)
    found = model.predict(T, return_std=True)
    equal([found[0].reshape(mean.shape)], [mean], rtol=1e-7, atol=1e-7)
    variance = found[1].reshape(mean.shape) ** 2
    equal([variance], [np.einsum("iij->ij", cov)], rtol=1e-6, atol=1e-8)
    full = model.predict(T, return_cov=True)[1].reshape(cov.shape)
    equal([full], [cov], rtol=1e-6, atol=1e-8 * np.abs(cov).max())


@every
@pytest.mark.parametrize(("where", "p"), [("numpy", 2), ("zarr", 1)])
def test_a_fit_is_the_dense_definition(kind, where, p, table, T, tmp_path):
    X, y = table
    y = np.column_stack([y, 10 * y**2]) if p == 2 else y
    given = (X, y) if where == "numpy" else zarr_rows(tmp_path / "t.zarr", X, y)
    mean = "ols" if p == 2 else "constant"
    agrees(build(**{**FIXED, "mean": mean, **ACTIONS[kind]}).fit(*given), X, y, T)


@pytest.mark.parametrize(
    ("kind", "loss"), [*((kind, "elbo") for kind in ACTIONS), ("sparse", "projected")]
)
def test_a_trained_fit_is_the_dense_definition(kind, loss, table, T):
    model = build(**{**QUICK, "loss": loss, **ACTIONS[kind]}).fit(*table)
    assert model.history_
    agrees(model, *table, T)


def test_learned_actions_have_rows_of_their_own_and_unit_length(table):
    model = build(**QUICK).fit(*table)
    S = model.actions_
    assert sp.issparse(S)
    assert S.shape == (N, 8)
    np.testing.assert_array_equal(S.astype(bool).sum(axis=1), 1)
    np.testing.assert_allclose((S.multiply(S)).sum(axis=0), 1.0)
    sizes = np.bincount(S.tocoo().col)
    assert np.ptp(sizes) <= 1  # of about equal sizes, one after another
    assert (np.diff(S.tocsr().indices) >= 0).all()
    assert sorted(map(tuple, model.points_)) == sorted(map(tuple, table[0]))


def test_actions_are_on_rows_near_one_another(table):
    spread = {}
    for order in ("hilbert", None, "x0"):
        model = build(**{**FIXED, "order": order}).fit(*table)
        groups = np.split(
            model.points_, np.flatnonzero(np.diff(model.actions_.tocsr().indices)) + 1
        )
        assert len(groups) == 12
        spread[order] = np.mean([group.var(axis=0) for group in groups], axis=0)
    assert spread["hilbert"].sum() < 0.3 * spread[None].sum()
    assert spread["x0"][0] < 0.05 * spread["x0"][1]


def test_a_support_is_drawn_from_all_rows(table):
    X, _ = table
    model = build(**FIXED, support=4).fit(*table)
    assert model.points_.shape == (48, 2)
    assert model.actions_.shape == (48, 12)
    np.testing.assert_array_equal(model.actions_.astype(bool).sum(axis=0), 4)
    drawn = {tuple(point) for point in model.points_}
    assert len(drawn) == 48
    assert drawn < {tuple(x) for x in X}
    other = build(**FIXED, support=4, random_state=1).fit(*table)
    assert {tuple(point) for point in other.points_} != drawn


def test_dense_actions_are_what_they_are_called(table):
    X, y = table
    found = {
        kind: build(**{**FIXED, **ACTIONS[kind]}).fit(X, y) for kind in ("cg", "eigen", "given")
    }
    scale = found["cg"].solved_.scaling
    block = scale.block(X, y[:, None])
    K = found["cg"].solved_.theta.kernel(block.X)
    leading = np.linalg.eigh(K)[1][:, :-13:-1]
    S = found["eigen"].actions_
    np.testing.assert_allclose(np.abs(np.sum(S * leading, axis=0)), 1.0, atol=1e-6)
    A, v = K + 0.1 * np.eye(N), np.zeros((N, 1))
    krylov = [block.y]
    for _ in range(11):
        krylov.append(A @ krylov[-1])
        krylov[-1] /= np.linalg.norm(krylov[-1])
    wanted, S = np.linalg.qr(np.hstack(krylov))[0], found["cg"].actions_
    v = np.linalg.lstsq(wanted, S, rcond=None)[0]
    np.testing.assert_allclose(wanted @ v, S, atol=1e-4 * np.abs(S).max())
    np.testing.assert_array_equal(found["given"].actions_, CHOSEN)
    np.testing.assert_array_equal(found["given"].points_, X)


@pytest.mark.parametrize("actions", ["sparse", "random", "eigen"])
def test_few_rows_need_no_number_of_actions(actions, T):
    X, y = rows(40)
    given = {"kernel": GIVEN, "optimizer": None}
    model = CaGP(actions=actions, **given).fit(X, y)
    exact = ExactGP(**given).fit(X, y)
    assert model.n_actions_ == (39 if actions == "eigen" else 40)
    np.testing.assert_allclose(
        model.predict(T), exact.predict(T), atol=1e-8 if actions != "eigen" else 0.02
    )


def test_conjugate_gradients_that_have_arrived_give_the_exact_mean(table, T):
    exact = ExactGP(kernel=GIVEN, optimizer=None).fit(*table)
    model = build(**{**FIXED, "n_actions": N}, actions="cg", action_tol=1e-10).fit(*table)
    few = build(**{**FIXED, "n_actions": N}, actions="cg", action_tol=1e-2).fit(*table)
    np.testing.assert_allclose(model.predict(T), exact.predict(T), atol=1e-6)
    assert few.n_actions_ < model.n_actions_ <= N
    assert few.actions_.shape == (N, few.n_actions_)


@every
def test_the_variance_is_never_below_the_exact_one(kind, table, T):
    exact = ExactGP(kernel=GIVEN, optimizer=None).fit(*table)
    model = build(**{**FIXED, **ACTIONS[kind]}).fit(*table)
    for X in (T, table[0]):
        least, found = (m.predict(X, return_std=True)[1] for m in (exact, model))
        assert (found >= least * (1 - 1e-7)).all()
        assert found.mean() > 1.05 * least.mean()
    assert model.objective_ < exact.objective_


def test_more_actions_bring_it_nearer(table, T):
    exact = ExactGP(kernel=GIVEN, optimizer=None).fit(*table).predict(T, return_std=True)
    for actions in ("sparse", "cg", "eigen"):
        away = []
        for t in (4, 12, 36):
            model = build(**{**FIXED, "n_actions": t}, actions=actions, action_tol=1e-12).fit(
                *table
            )
            away.append(np.abs(model.predict(T, return_std=True)[1] - exact[1]).mean())
        assert away[0] > away[1] > away[2]


# -- rows of any kind ------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["random", "hilbert"])
@pytest.mark.parametrize("kind", ["sparse", "support", "cg"])
def test_a_prepared_store_is_read_as_it_is(order, kind, table, T, tmp_path, monkeypatch):
    url = str(tmp_path / "p.zarr")
    daskgp.prepare(table, url, order=order, block_rows=20, progress=False)
    given = daskgp.open_dataset(url)
    monkeypatch.setattr("daskgp.fit.arrange.rewriting.arrange", None)
    model = build(**{**FIXED, **ACTIONS[kind]}).fit(*given)
    if kind != "support":
        np.testing.assert_array_equal(model.points_, given[0][...])
    agrees(model, *table, T)


@every
def test_actions_pass_over_rows_with_missing_values(kind, table, T, tmp_path):
    X, y = (a.copy() for a in table)
    X[5, 1], X[6], y[70] = np.nan, np.nan, np.nan
    given = zarr_rows(tmp_path / "t.zarr", X, y) if kind == "support" else (X, y)
    agrees(build(**{**FIXED, **ACTIONS[kind]}).fit(*given), X, y, T)


def test_an_action_whose_rows_are_all_missing_is_dropped(table, T, caplog):
    X, y = (a.copy() for a in table)
    y[:20] = np.nan
    model = build(**{**FIXED, "order": None}).fit(X, y)
    assert model.n_actions_ == 10
    assert "2 of 12 actions are zero or combinations of others and were dropped" in caplog.text
    assert np.isfinite(model.predict(T, return_std=True)).all()


@pytest.mark.parametrize("loss", ["elbo", "projected"])
def test_the_evidence_is_that_of_the_targets_seen_in_their_units(loss, table):
    X, y = table
    made = build(**{**FIXED, "actions": CHOSEN}, loss=loss)
    plain, ten = (
        clone(made).set_params(kernel__variance=1.4 * k**2).fit(X, k * y).log_marginal_likelihood()
        for k in (1.0, 10.0)
    )
    seen = N if loss == "elbo" else 12
    assert plain - ten == pytest.approx(seen * np.log(10.0))


# -- actions that say nothing ----------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [None, "l-bfgs", "adam"])
def test_actions_that_say_nothing_are_dropped_with_one_warning(optimizer, table, T, caplog):
    few = CHOSEN[:, :6]
    zero, mixed = np.zeros((N, 1)), few[:, [0]] - 2 * few[:, [3]]
    many = np.hstack([few[:, :3], zero, few[:, 3:], mixed, 5 * few[:, [2]]])
    settings = {"optimizer": optimizer, "max_iter": 3}
    model = build(kernel=GIVEN, actions=many, **settings).fit(*table)
    of_actions = [said for said in warnings_in(caplog) if "actions" in said]
    assert of_actions == ["3 of 9 actions are zero or combinations of others and were dropped"]
    assert model.n_actions_ == 6
    assert model.actions_.shape == (N, 9)
    caplog.clear()
    wanted = build(kernel=GIVEN, actions=few, **settings).fit(*table)
    assert not any("actions" in said for said in warnings_in(caplog))
    assert model.objective_ == pytest.approx(wanted.objective_, rel=1e-6)
    equal(model.predict(T, True), wanted.predict(T, True), rtol=1e-5, atol=1e-6)


def test_no_action_at_all_is_an_error(table):
    with pytest.raises(NumericalError, match="all actions are zero: choose others") as error:
        build(**{**FIXED, "actions": np.zeros((N, 3))}).fit(*table)
    assert "\n" not in str(error.value)


def test_rows_that_lie_on_one_another_are_fine(table, T):
    X, y = (np.concatenate([a, a]) for a in table)
    for actions in ("sparse", "cg", "random", "eigen"):
        model = build(**FIXED, actions=actions).fit(X, y)
        assert np.isfinite(model.predict(T, return_std=True)).all()


# -- training --------------------------------------------------------------------------------

TRAINED = {
    "sparse": {},
    "support": {"support": 4},
    "projected": {"loss": "projected"},
    "mini-batches": {"optimizer": "adam", "batch_rows": 20, "block_rows": 10, "support": 8},
    "mini-batches of a support": {"optimizer": "adam", "batch_rows": 20, "support": 4},
    "cg": {"actions": "cg"},
    "eigen": {"actions": "eigen"},
    "random": {"actions": "random"},
    "given": {"actions": CHOSEN},
}


@pytest.mark.parametrize("chosen", TRAINED.values(), ids=TRAINED)
def test_training_raises_the_objective_and_tells_its_history(chosen, table):
    settings = {**QUICK, "max_iter": 8, **chosen}
    model = build(**settings).fit(*table)
    still = build(**{**settings, "optimizer": None}).fit(*table)
    assert still.history_ == []
    assert still.noise_variance_ == pytest.approx(0.1)
    assert model.objective_ > still.objective_ + 1.0
    stages = 2 if isinstance(chosen.get("actions"), str) and chosen["actions"] != "random" else 1
    assert 0 < len(model.history_) <= 8 * stages
    assert [e["iteration"] for e in model.history_] == [*range(1, len(model.history_) + 1)]
    known = {"iteration", "evaluations", "objective", "gradient_norm", "seconds", "noise_variance"}
    for entry in model.history_:
        assert {*known, *model.kernel_.parameter_names} == set(entry)
        assert all(np.isfinite(list(entry.values())))


@pytest.mark.parametrize("actions", ["cg", "eigen"])
def test_the_history_of_stages_counts_on(actions, table):
    history = build(**QUICK, actions=actions, refreshes=3).fit(*table).history_
    for name in ("iteration", "evaluations", "seconds"):
        assert (np.diff([entry[name] for entry in history]) > 0).all(), name


def test_the_posterior_is_that_of_the_best_iterate(table):
    for optimizer, rate in (("l-bfgs", 0.1), ("adam", 0.1), ("adam", 3.0)):
        chosen = {"max_iter": 12, "optimizer": optimizer, "learning_rate": rate}
        made = build(**{**QUICK, **chosen})
        model = made.fit(*table)
        seen = [entry["objective"] for entry in model.history_]
        assert model.objective_ == pytest.approx(max(seen), rel=1e-9)
        best = model.history_[int(np.argmax(seen))]
        assert best["noise_variance"] == pytest.approx(model.noise_variance_, rel=1e-12)
    assert seen[-1] < max(seen)  # so large steps do not arrive


def test_weights_are_learned_as_hyper_parameters_are(table):
    still = build(**{**QUICK, "optimizer": None}).fit(*table)
    model = build(**{**QUICK, "max_iter": 10}).fit(*table)
    given = {**QUICK, "max_iter": 10, "actions": still.actions_.toarray()}
    fixed = build(**given).fit(still.points_, y_at(still, table))
    assert model.objective_ > fixed.objective_ + 1.0


def y_at(model, table):
    """Targets of the points of a model."""
    place = {tuple(x): y for x, y in zip(*table, strict=True)}
    return np.array([place[tuple(point)] for point in model.points_])


def test_random_actions_are_drawn_once_a_fit(table):
    model = build(**QUICK, actions="random", random_state=None).fit(*table)
    assert model.objective_ == pytest.approx(model.history_[-1]["objective"], rel=1e-6)


def test_refreshes_choose_actions_anew_for_what_was_learned(table):
    once, twice = (build(**QUICK, actions="cg", refreshes=k).fit(*table) for k in (1, 2))
    assert len(once.history_) == 3
    assert [e["objective"] for e in twice.history_[:3]] == [e["objective"] for e in once.history_]
    assert twice.objective_ > once.objective_


@pytest.mark.parametrize("noisy", [False, True])
def test_adam_stops_where_steps_bring_no_more(noisy):
    rng = np.random.default_rng(0)

    def bowl(x):
        noise = 1e-4 * rng.standard_normal() if noisy else 0.0
        return -float(((x - 1) ** 2).sum()) + noise, -2 * (x - 1)

    def run(patience, max_iter=400):
        settings = train.Training(
            "adam", max_iter, 1e-3, 0.1, False, patience=patience, noisy=noisy, decay=0.1
        )
        free = np.tile([-np.inf, np.inf], (3, 1))
        return train.maximise(bowl, np.zeros(3), free, 1.0, settings, lambda x: {})

    best, history, *_ = run(20)
    assert 40 <= len(history) < 200
    np.testing.assert_allclose(best, 1.0, atol=0.05)
    assert len(run(20, 39)[1]) == 39  # too few to judge by


def test_adam_of_a_fit_stops_early(table, monkeypatch):
    monkeypatch.setattr(training, "PATIENCE", 4)
    batch = {"batch_rows": 30, "block_rows": 10, "support": 8}
    settings = {**QUICK, **batch, "max_iter": 20, "optimizer": "adam"}
    found = [len(build(**{**settings, "tol": tol}).fit(*table).history_) for tol in (10, 1e-12)]
    assert 8 <= found[0] < found[1]  # twice the patience at least


def test_the_last_point_of_mini_batches_is_taken(table):
    settings = {**QUICK, "max_iter": 6, "optimizer": "adam", "batch_rows": 20, "support": 8}
    model = build(**settings).fit(*table)
    assert model.history_[-1]["noise_variance"] == pytest.approx(model.noise_variance_, rel=1e-12)


@pytest.mark.parametrize("support", [8, 4])
def test_a_step_draws_a_mini_batch_that_follows_from_where_it_is(support, table, monkeypatch):
    drawn, evaluate = [], ComputationAware.evaluate

    def watched(self, theta, rows):
        drawn.append((theta.noise_variance, rows.batch))
        return evaluate(self, theta, rows)

    monkeypatch.setattr(ComputationAware, "evaluate", watched)
    made = build(**{**QUICK, "optimizer": "adam", "batch_rows": 20, "support": support})
    clone(made).fit(*table)
    first, drawn[:] = drawn[:], []
    clone(made).fit(*table)
    assert drawn == first
    assert [batch[0] for _, batch in first] == [20, 20, 20]
    assert len({batch[1] for _, batch in first}) == 3
    drawn.clear()
    clone(made).set_params(random_state=1).fit(*table)
    assert {batch for _, batch in drawn}.isdisjoint({batch for _, batch in first})


def test_a_checkpoint_of_other_actions_is_refused(table, tmp_path):
    url, other = str(tmp_path / "c.zarr"), CHOSEN.copy()
    other[40, 5] += 1e-6
    build(**QUICK, actions=CHOSEN).fit(*table, checkpoint=url)
    with pytest.raises(StoreError, match="belongs to other data or settings"):
        build(**QUICK, actions=other).fit(*table, checkpoint=url)


# -- the manners of an estimator -------------------------------------------------------------


def test_actions_that_are_given_are_cloned_and_left_alone(table):
    given = CHOSEN.copy()
    made = build(**{**QUICK, "actions": given})
    made.fit(*table)
    assert made.get_params()["actions"] is given
    np.testing.assert_array_equal(given, CHOSEN)
    assert made.n_actions_ == 12  # not those of n_actions
    fresh = clone(made)
    np.testing.assert_array_equal(fresh.actions, CHOSEN)
    same_bits([fresh.fit(*table).predict(table[0])], [made.predict(table[0])])
    nested = build(**{**QUICK, "actions": CHOSEN.tolist()}).fit(*table)
    same_bits([nested.predict(table[0])], [made.predict(table[0])])


# -- input that cannot be used ---------------------------------------------------------------


ADAM = {"optimizer": "adam"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n_actions": 11}, "11 actions for 10 usable rows: choose at most 10"),
        ({"n_actions": 4, "support": 3}, "support=3 for 4 actions on 10 usable rows"),
        (
            {"n_actions": 4, "batch_rows": 11, "support": 2, **ADAM},
            "batch_rows=11 for 10 usable rows",
        ),
    ],
)
def test_complete_rows_are_what_counts(settings, says, table, temporary, tmp_path):
    X, y = (a.copy() for a in table)
    y[10:] = np.nan
    with pytest.raises(InputError) as error:
        build(**settings).fit(*zarr_rows(tmp_path / "t.zarr", X, y))
    assert says in str(error.value)
    assert files_below(temporary) == []


def test_a_support_takes_rows_in_random_order_too(table, T):
    model = build(**FIXED, support=3, order="random").fit(*table)
    agrees(model, *table, T)


def test_points_and_weights_are_kept_in_the_same_chunks(table, T, tmp_path, monkeypatch):
    monkeypatch.setattr(action_points, "PANEL_ROWS", 16)  # fewer than a chunk of X
    for kind in ("sparse", "cg"):
        model = build(**{**FIXED, **ACTIONS[kind]}).fit(*zarr_rows(tmp_path / kind, *table, step=N))
        agrees(model, *table, T)


def test_a_stored_cggp_that_does_not_say_how_it_ended_is_stored_again(tmp_path):
    X = np.linspace(0, 1, 20)[:, None]
    model = daskgp.CGGP("matern32(0.3)").fit(X, X[:, 0])
    first, second = str(tmp_path / "first.zarr"), str(tmp_path / "second.zarr")
    model.save(first)
    zarr.open_group(first, mode="r+").attrs.update({"notes": {"history": []}})
    for url in (first, second):
        loaded = daskgp.load(url)
        for name in ("residual_", "n_iter_"):
            with pytest.raises(AttributeError, match=f"stored without its {name}: fit it again"):
                getattr(loaded, name)
        if url == first:
            loaded.save(second)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_cggp_has_the_mean_of_conjugate_gradients_and_no_variance(table, tmp_path):
    X, y = (np.array(part) for part in table)
    settings = {"kernel": "matern32(1.0)", "noise_variance": 0.5}
    model = daskgp.CGGP(**settings, solver_tol=1e-12, max_iter=500).fit(X, y)
    exact = daskgp.ExactGP(**settings, optimizer=None).fit(X, y)
    places = X[:9] + 0.1
    np.testing.assert_allclose(model.predict(places), exact.predict(places), atol=1e-8)
    assert model.residual_ <= 2e-12
    before = model.predict(places)
    X[:] = 7.0  # the caller's own
    np.testing.assert_array_equal(model.predict(places), before)
    model.save(str(tmp_path / "m.zarr"))
    loaded = daskgp.load(str(tmp_path / "m.zarr"))
    np.testing.assert_array_equal(loaded.predict(places), before)
    assert (loaded.n_iter_, loaded.residual_) == (model.n_iter_, model.residual_)
    with pytest.raises(SettingError, match="gives a mean but no variance"):
        model.predict(places, return_std=True)
    with pytest.raises(SettingError, match="has no evidence"):
        model.log_marginal_likelihood()


@pytest.mark.parametrize("kind", ["sparse", "cg", "random"])
@pytest.mark.parametrize("p", [1, 2])
def test_the_computational_part_is_what_the_exact_gp_knows_more(kind, p):
    rng = np.random.default_rng(0)
    X, T = rng.uniform(0, 3, (N, 2)), rng.uniform(0, 3, (7, 2))
    y = np.stack([np.sin(2 * X[:, 0]), X[:, 1]], axis=1)[:, :p]
    model = build(**FIXED, **ACTIONS[kind]).fit(X, y)
    _, std, part = model.predict(T, return_std=True, return_computational=True)
    _, known = ExactGP(GIVEN, optimizer=None).fit(X, y).predict(T, return_std=True)
    np.testing.assert_allclose(part**2, std**2 - known**2, rtol=5e-3, atol=1e-3 * known.min() ** 2)
    assert part.min() > 0.1 * known.min()  # twelve actions leave something to know
