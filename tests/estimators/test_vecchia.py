"""VecchiaGP: honest intervals, one optimum from any start, and the exact GP at its limit."""

from dataclasses import dataclass

import dask.array as da
import numpy as np
import pytest
from commands import rows
from fits import same_bits, zarr_rows
from sklearn.base import clone

import daskgp
from daskgp import ExactGP, VecchiaGP, kernels, testing
from daskgp.errors import RunError, SettingError
from daskgp.fit import conditionals
from daskgp.models.exact import Exact
from daskgp.models.markov import vecchia

KERNEL = kernels.Matern32(0.5, variance=1.4)
FIXED = {"kernel": KERNEL, "noise_variance": 0.05, "optimizer": None, "progress": False}
QUICK = {"kernel": KERNEL, "n_neighbours": 8, "block_rows": 60, "max_iter": 3, "progress": False}
ALL = {"n_neighbours": 200, "predict_neighbours": 200}
"""Settings with which the method is the exact GP of up to 200 rows."""


@dataclass(frozen=True)
class Own(kernels.Matern32):
    """A user's kernel, computed by its own code."""


@pytest.fixture(scope="module")
def table():
    return rows(300, seed=5)


def drawn_from(kernel, X, noise, seed=0):
    """A field at rows, and what is seen of it."""
    rng, n = np.random.default_rng(seed), len(X)
    f = np.linalg.cholesky(kernel(X) + 1e-9 * np.eye(n)) @ rng.standard_normal(n)
    return f, f + np.sqrt(noise) * rng.standard_normal(n)


# -- intervals -------------------------------------------------------------------------------


SEEN = [{"include_noise": False}, {"include_noise": True}]


def coverage(noise, n, settings):
    """Shares of f and of y within intervals of 95 %."""
    inside = []
    for seed in range(2):
        X = np.random.default_rng(seed).uniform(0, 1, (n + 700, 2))
        both = drawn_from(kernels.Matern32(0.07), X, noise, seed)
        model = VecchiaGP(**settings, progress=False).fit(X[:n], both[1][:n])
        for truth, what in zip(both, SEEN, strict=True):
            mean, std = model.predict(X[n:], return_std=True, **what)
            inside.append(np.mean(np.abs(truth[n:] - mean) < 1.96 * std))
    return np.mean(inside[::2]), np.mean(inside[1::2])


@pytest.mark.parametrize(("noise", "within"), [(0.01, 0.02), (0.3, 0.02), (9.0, 0.04)])
@pytest.mark.slow
def test_intervals_cover_what_they_say(noise, within):
    """The last field is nine tenths noise: its hyper-parameters are little known."""
    of_f, of_y = coverage(noise, 2_000, {"kernel": kernels.Matern32()})
    assert of_f == pytest.approx(0.95, abs=within)
    assert of_y == pytest.approx(0.95, abs=0.015)


@pytest.mark.whole
@pytest.mark.parametrize("noise", [0.01, 0.3, 9.0])
def test_intervals_of_few_neighbours_cover_what_they_say(noise):
    known = {"kernel": kernels.Matern32(0.07), "noise_variance": noise, "optimizer": None}
    few = {"standardize": False, "mean": "zero", "n_neighbours": 10, "predict_neighbours": 10}
    of_f, of_y = coverage(noise, 1_000, known | few)
    assert of_f == pytest.approx(0.95, abs=0.02)
    assert of_y == pytest.approx(0.95, abs=0.015)


def test_support_inputs_help_where_noise_dominates():
    X = np.random.default_rng(0).uniform(0, 1, (1_600, 2))
    f, y = drawn_from(kernels.Matern32(0.3), X, 9.0)
    known = {"kernel": kernels.Matern32(0.3), "noise_variance": 9.0}
    known |= {"standardize": False, "mean": "zero", "optimizer": None, "progress": False}
    few = {"n_neighbours": 10, "predict_neighbours": 30}
    models = ExactGP(**known), *(VecchiaGP(n_support=m, **few, **known) for m in (0, 100))
    best, plain, better = (
        np.sqrt(np.mean((model.fit(X, y).predict(X) - f) ** 2)) for model in models
    )
    assert better < 1.1 * best < plain


# -- training --------------------------------------------------------------------------------


def gridded():
    grid = np.stack(np.meshgrid(np.arange(30.0), np.arange(30.0)), axis=-1).reshape(-1, 2)
    return grid, kernels.Matern32((4.0, 8.0)), 0.05


def surveyed():
    along, rng = np.arange(0, 45, 0.5), np.random.default_rng(0)
    lines = [np.column_stack([along, 10.0 * i + 0.2 * rng.standard_normal(90)]) for i in range(10)]
    return np.concatenate(lines), kernels.Matern32((5.0, 20.0)), 0.02


def many_columns():
    X = np.random.default_rng(0).uniform(-1, 1, (900, 8))
    return X, kernels.Matern52(tuple(np.geomspace(0.7, 6, 8))), 0.05


@pytest.mark.parametrize(
    ("case", "nats"),
    [(gridded, 1.0), (surveyed, 1.0), (many_columns, 6.0)],
    ids=["grid", "lines", "many columns"],
)
@pytest.mark.slow
def test_training_ends_in_one_place_from_starts_far_apart(case, nats):
    X, kernel, noise = case()
    _, y = drawn_from(kernel, X, noise)
    rng, found = np.random.default_rng(1), []
    for factor in (0.02, 0.2, 1.0, 5.0, 50.0):
        wrong = factor * np.exp(0.4 * rng.standard_normal(X.shape[1]))
        start = type(kernel)(tuple(wrong * np.array(kernel.lengthscale)), 1.0)
        model = VecchiaGP(start, noise_variance=0.1, progress=False).fit(X, y)
        block = model.solved_.scaling.block(X, y[:, None])
        found.append(Exact().value(model.solved_.theta, testing.rows_of([block])))
    assert max(found) - min(found) < nats


@pytest.mark.parametrize("training_rows", [30, 40, 299, 300, 10_000, None, "auto"])
def test_the_posterior_is_that_of_all_rows_whatever_training_takes(training_rows, table):
    X, y = table
    model = VecchiaGP(**QUICK | ALL, training_rows=training_rows).fit(X[:150], y[:150])
    exact = ExactGP(
        model.kernel_, noise_variance=model.noise_variance_, optimizer=None, progress=False
    ).fit(X[:150], y[:150])
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-8)
    for a, b in zip(model.predict(X, True), exact.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_as_many_training_rows_as_there_are_or_more_are_all(table):
    wanted = VecchiaGP(**QUICK, training_rows=None).fit(*table)
    for number in (300, 4_000, "auto"):
        model = VecchiaGP(**QUICK, training_rows=number).fit(*table)
        assert model.kernel_ == wanted.kernel_
        assert model.objective_ == wanted.objective_
    some = VecchiaGP(**QUICK, training_rows=50).fit(*table)
    assert some.kernel_ != wanted.kernel_


@pytest.fixture
def begun(table, monkeypatch):
    """Return what training of some rows begins with: method, rows, hyper-parameters, first rows."""

    def begin(**settings):
        caught = []

        def catch(asked, model, problem, run):
            caught.append((model, problem.stage, problem.theta, model.first(problem.stage)))
            raise RunError("caught")

        with monkeypatch.context() as patch:
            patch.setattr(conditionals, "on_conditionals", catch)
            with pytest.raises(RunError, match="caught"):
                VecchiaGP(**QUICK | settings).fit(*table)
        return caught[0]

    return begin


def seeds_of(begun, number, monkeypatch, settings, first=40, units=None, draws=200):
    """Values and gradients of draws with many seeds, less those of all rows, in standard errors."""
    monkeypatch.setattr(conditionals, "FIRST", first)
    monkeypatch.setattr(conditionals, "UNITS", units or conditionals.UNITS)
    model, stage, theta, earliest = begun(**settings)
    shared = model.shared(theta, earliest)
    results = []
    for seed in range(draws):
        value, sums = conditionals.draw(model, stage, shared, number, seed).evaluate(theta)
        results.append([value, sums.rows, *sums.gradient, *np.diag(sums.information)])
    every = conditionals.draw(model, stage, shared, 10**9, 0)
    value, sums = every.evaluate(theta)
    wanted = [value, sums.rows, *sums.gradient, *np.diag(sums.information)]
    results = np.array(results)
    off = results.mean(axis=0) - np.array(wanted)
    return off / (results.std(axis=0, ddof=1) / np.sqrt(draws)), every


@pytest.mark.parametrize("number", [20, 80, 200])
@pytest.mark.slow
def test_draws_of_rows_are_right_on_average(number, begun, monkeypatch):
    off, every = seeds_of(begun, number, monkeypatch, {})
    assert np.abs(off).max() < 4.0
    assert every.rows == 300


@pytest.mark.parametrize("settings", [{"block_rows": 30}, {"mean": "zero", "n_neighbours": 2}])
@pytest.mark.slow
def test_draws_of_some_blocks_are_right_on_average(settings, begun, monkeypatch):
    off, _ = seeds_of(begun, 100, monkeypatch, settings, units=3)
    assert np.abs(off).max() < 4.0


def test_about_as_many_rows_are_drawn_as_said(begun, monkeypatch):
    monkeypatch.setattr(conditionals, "FIRST", 40)
    model, stage, theta, first = begun()
    shared = model.shared(theta, first)
    for number in (2, 30, 60, 150, 290):
        drawn = conditionals.draw(model, stage, shared, number, 3)
        assert drawn.rows == pytest.approx(number, abs=2)
        kept = stage.executor.compute_all(drawn.nodes, "rows")
        count = sum(len(c.own) for part in kept for c in part)
        assert abs(count - number) < 4 * np.sqrt(number)


def test_all_rows_give_the_evidence_and_its_gradient(begun):
    model, stage, theta, first = begun()
    every = conditionals.draw(model, stage, model.shared(theta, first), 300, 0)
    value, sums = every.evaluate(theta)
    block = stage.rows.read(0, 300)
    given = testing.rows_of([stage.scaling.block(*block[:2])])
    wanted = model.evaluate(theta, given)
    assert value == pytest.approx(wanted.value, rel=1e-10)
    np.testing.assert_allclose(
        sums.gradient, wanted.gradient.to_vector(with_inputs=False), rtol=1e-7, atol=1e-7
    )


def test_the_order_of_one_fit_is_one_without_a_seed(table, monkeypatch):
    seeds, draw = [], conditionals.draw

    def recorded(model, *rest):
        seeds.append(model.seed)
        return draw(model, *rest)

    first = vecchia.Vecchia.first
    monkeypatch.setattr(conditionals, "draw", recorded)
    monkeypatch.setattr(
        vecchia.Vecchia, "first", lambda self, rows: seeds.append(self.seed) or first(self, rows)
    )
    for _ in range(2):
        seeds.clear()
        VecchiaGP(**QUICK, random_state=None).fit(*table)
        assert len(set(seeds[:-1])) == 1  # the last is that of the posterior


@pytest.mark.slow
def test_a_stopped_fit_goes_on_with_the_same_bits(table, tmp_path, monkeypatch):
    """Also while neighbours are found again; what was evaluated is not evaluated again."""
    X, y = table
    X = X * [1.0, 20.0]
    settings = QUICK | {"kernel": kernels.Matern32((1.0, 1.0)), "max_iter": 20}
    evaluate, begin, made = conditionals.Drawn.evaluate, conditionals.on_conditionals, []

    def counted(self, theta):
        made.append(id(self))
        if len(made) == stop:
            raise RunError("stopped")
        return evaluate(self, theta)

    def trained(*arguments):
        made.clear()  # of the search for a start
        with monkeypatch.context() as patch:
            patch.setattr(conditionals.Drawn, "evaluate", counted)
            return begin(*arguments)

    monkeypatch.setattr(conditionals, "on_conditionals", trained)
    stop = None
    wanted = VecchiaGP(**settings).fit(X, y)
    total = len(made)
    assert len(set(made)) > 1
    for last in (1, 3):
        url = str(tmp_path / f"{last}.zarr")
        stop = total - last
        with pytest.raises(RunError, match="stopped"):
            VecchiaGP(**settings).fit(X, y, checkpoint=url)
        stop = None
        found = VecchiaGP(**settings).fit(X, y, checkpoint=url)
        assert len(made) == last + 1
        assert found.kernel_ == wanted.kernel_
        assert found.objective_ == wanted.objective_
        same_bits(found.predict(X, True), wanted.predict(X, True))


@pytest.mark.parametrize("given", ["float32", "float64"])
def test_single_precision_is_that_of_the_inputs_alone(given, table, monkeypatch):
    X, y = (np.asarray(values, given) for values in table)
    draw, held = conditionals.draw, []

    def recorded(*arguments):
        drawn = draw(*arguments)
        for part in drawn.stage.executor.compute_all(drawn.nodes, "rows"):
            held.extend((c.X.dtype, c.y.dtype) for c in part)
        return drawn

    monkeypatch.setattr(conditionals, "draw", recorded)
    single, double = (VecchiaGP(**QUICK, dtype=dtype).fit(X, y) for dtype in ("float32", "float64"))
    assert {x for x, _ in held} == {np.dtype("float32"), np.dtype("float64")}
    assert {target for _, target in held} == {np.dtype("float64")}
    assert single.objective_ == pytest.approx(double.objective_, abs=0.01)
    places = np.concatenate([X, X + 1e-7])
    for one, two in zip(single.predict(places, True), double.predict(places, True), strict=True):
        assert one.dtype == np.float64
        np.testing.assert_allclose(one, two, atol=1e-3)


# -- the exact limit -------------------------------------------------------------------------


def assert_exact(settings, X, y, T, more=None, at=None):
    """Hold a fit with all earlier rows against the exact GP."""
    more, at = more or {}, at or {}
    model = VecchiaGP(**FIXED | ALL | settings).fit(X, y, **more)
    exact = ExactGP(**FIXED | {k: v for k, v in settings.items() if k != "block_rows"})
    exact.fit(X, y, **more)
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-7)
    for a, b in zip(
        model.predict(T, True, include_noise=bool(at), **at),
        exact.predict(T, True, include_noise=bool(at), **at),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        model.predict(T, return_cov=True)[1], exact.predict(T, return_cov=True)[1], atol=1e-7
    )
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"block_rows": 25},
        {"mean": "linear"},
        {"mean": "constant", "block_rows": 40},
        {"kernel": kernels.Periodic(1.0, 2.0, active_dims=0) * kernels.Matern52(0.7)},
        {"kernel": Own(0.5, 1.4)},
        {"kernel": kernels.RBF(0.6) + kernels.Linear(0.2)},
        {"standardize": False},
        {"dtype": "float32", "kernel": kernels.Matern32(0.5), "standardize": True},
    ],
    ids=str,
)
def test_with_all_earlier_rows_it_is_the_exact_gp(settings):
    X, y = rows(90)
    if settings.get("dtype"):
        X = X.astype(np.float32).astype(np.float64)
        model = VecchiaGP(**FIXED | ALL | settings).fit(X, y)
        exact = ExactGP(**FIXED | settings).fit(X, y)
        np.testing.assert_allclose(model.predict(X), exact.predict(X), atol=1e-3)
        return
    assert_exact(settings, X, y, rows(20, seed=1)[0])


@pytest.mark.parametrize("what", ["y_variance", "sample_weight"])
def test_rows_may_have_noise_of_their_own(what):
    X, y = rows(90)
    each = np.random.default_rng(0).uniform(0.1, 1.0, 90)
    T = rows(15, seed=1)[0]
    at = {what: each[:15]} if what == "y_variance" else {}
    assert_exact({"block_rows": 40}, X, y, T, {what: each}, at)


def test_several_targets():
    X, y = rows(90)
    assert_exact({}, X, np.column_stack([y, 3 - 2 * y]), rows(20, seed=1)[0])


def test_places_on_a_globe():
    X, y = rows(90)
    X = X * [120.0, 50.0] - [180.0, 75.0]
    T = rows(20, seed=1)[0] * [120.0, 50.0] - [180.0, 75.0]
    settings = {"geographic": (0, 1), "kernel": kernels.Matern12(3_000.0), "block_rows": 30}
    assert_exact(settings, X, y, T)


def test_both_sides_of_the_date_line_are_neighbours():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-180, 180, 600), rng.uniform(-60, 60, 600)])
    y = np.cos(np.radians(X[:, 0])) * np.cos(np.radians(X[:, 1]))
    settings = FIXED | {"geographic": (0, 1), "kernel": kernels.Matern32(3_000.0), "block_rows": 60}
    model = VecchiaGP(**settings | {"noise_variance": 1e-4}, n_neighbours=15).fit(X, y)
    lat = np.linspace(-50, 50, 11)
    west, east = (
        model.predict(np.column_stack([np.full(11, lon), lat]), return_std=True)
        for lon in (-179.999, 179.999)
    )
    for a, b in zip(west, east, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


@pytest.mark.parametrize("m", [0, 10])
def test_rows_that_come_and_go_leave_the_exact_gp(m):
    X, y = rows(150)
    T = rows(20, seed=1)[0]
    settings = FIXED | ALL | {"block_rows": 20, "standardize": False, "mean": "zero"}
    if m:
        settings["support"] = X[:m]
    model = VecchiaGP(**settings).fit(X[:60], y[:60])
    for start, stop in ((60, 100), (100, 150)):
        model.update(X[start:stop], y[start:stop])
        assert_as_exact(model, X[:stop], y[:stop], T)
    layout = model.solved_.rows.layout  # whole blocks at an end of the order go
    old = [model.solved_.rows.rows.read(*layout.span(block)) for block in (0, 1)]
    old = tuple(np.concatenate(parts) for parts in zip(*old, strict=True))
    model.forget(*old)
    stay = ~(X[:, None] == old[0]).all(axis=2).any(axis=1)
    assert_as_exact(model, X[stay], y[stay], T)
    model.update(*old)
    assert_as_exact(model, X, y, T)


def assert_as_exact(model, X, y, T):
    plain = FIXED | {"standardize": False, "mean": "zero"}
    exact = ExactGP(**plain).fit(X, y)
    assert model.n_rows_ == len(X)
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-6)
    for a, b in zip(model.predict(T, True), exact.predict(T, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    mean, std = model.loo(X, y)
    wanted = exact.loo(X, y)
    np.testing.assert_allclose(mean, wanted[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std, wanted[1], rtol=1e-4)


def test_new_rows_come_near_a_fit_to_all(table):
    X, y = table
    T = rows(100, seed=1)[0]
    settings = FIXED | {"block_rows": 40, "n_neighbours": 15, "predict_neighbours": 40}
    whole = VecchiaGP(**settings).fit(X, y)
    grown = VecchiaGP(**settings).fit(X[:180], y[:180])
    grown.update(X[180:240], y[180:240]).update(X[240:], y[240:])
    for a, b in zip(grown.predict(T, True), whole.predict(T, True), strict=True):
        np.testing.assert_allclose(a, b, atol=0.05)


# -- bits ------------------------------------------------------------------------------------


def test_a_store_gives_an_updated_model_back(table, tmp_path):
    X, y = table
    T = rows(60, seed=1)[0]
    model = VecchiaGP(**FIXED, n_neighbours=8, block_rows=40)
    model.fit(X[:160], y[:160]).update(X[160:240], y[160:240])
    model.save(tmp_path / "m.zarr")
    found = daskgp.load(tmp_path / "m.zarr")
    assert found.solved_.method == model.solved_.method
    same_bits(found.predict(T, True), model.predict(T, True))
    np.testing.assert_array_equal(found.sample_paths(3)(T), model.sample_paths(3)(T))
    for one in (model, found):
        one.update(X[240:], y[240:])
    assert found.objective_ == model.objective_
    same_bits(found.predict(T, True), model.predict(T, True))


@pytest.mark.slow
def test_chunks_of_the_data_change_no_bit(table, tmp_path):
    X, y = table
    T = rows(60, seed=1)[0]
    wanted = VecchiaGP(**QUICK).fit(X, y)
    for step in (1, 37, 300):
        lazy = da.from_array(X, chunks=(max(step, 7), 2)), da.from_array(y, chunks=max(step, 7))
        for given in (lazy, zarr_rows(tmp_path / f"{step}.zarr", X, y, max(step, 7))):
            found = VecchiaGP(**QUICK).fit(*given)
            assert found.objective_ == wanted.objective_
            assert found.kernel_ == wanted.kernel_
            same_bits(found.predict(T, True), wanted.predict(T, True))
    lazily = wanted.predict(da.from_array(T, chunks=(7, 2)), True)
    for a, b in zip(lazily, wanted.predict(T, True), strict=True):
        np.testing.assert_allclose(a.compute(), b, rtol=1e-9)


@pytest.mark.parametrize("block_rows", [1, 7, 100, 1_000])
def test_blocks_change_what_rounding_changes(block_rows, table):
    T = rows(60, seed=1)[0]
    settings = FIXED | {"n_neighbours": 9, "order": "x0"}
    wanted, found = (VecchiaGP(**settings, block_rows=b).fit(*table) for b in (300, block_rows))
    assert found.objective_ == pytest.approx(wanted.objective_, rel=1e-10)
    for a, b in zip(found.predict(T, True), wanted.predict(T, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


# -- rows of every kind ----------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 12])
@pytest.mark.parametrize(("m", "k"), [(0, 30), (2, 30), (0, 10**6)])
def test_fewer_rows_than_neighbours(n, m, k):
    X, y = rows(n)
    model = VecchiaGP(kernels.Matern32(), n_support=m, n_neighbours=k, progress=False).fit(X, y)
    for moments in (model.predict(X, True), model.predict(X, return_cov=True), model.loo(X, y)):
        assert all(np.isfinite(a).all() for a in moments)


def test_rows_with_missing_values_are_left_out(table, caplog, tmp_path):
    X, y = (a.copy() for a in table)
    X[5, 1], y[7] = np.nan, np.nan
    y[60:120] = np.nan  # whole blocks
    keep = np.isfinite(y) & np.isfinite(X).all(axis=1)
    T = rows(9, seed=1)[0]
    settings = FIXED | ALL | {"n_neighbours": 300, "predict_neighbours": 300}
    wanted = ExactGP(**FIXED).fit(X[keep], y[keep])
    for given in ((X, y), zarr_rows(tmp_path / "t.zarr", X, y, 30)):
        model = VecchiaGP(**settings, block_rows=30, order="x0").fit(*given)
        assert model.n_rows_ == keep.sum()
        assert "62 rows with missing values are left out" in caplog.text
        assert model.objective_ == pytest.approx(wanted.objective_, rel=1e-8)
        np.testing.assert_allclose(model.predict(T), wanted.predict(T), rtol=1e-6, atol=1e-8)


def test_repeated_rows_and_copies_of_one_place():
    X, y = rows(60)
    X, y = np.concatenate([X, X, np.tile(X[:1], (90, 1))]), np.concatenate([y, y + 0.1, y, y[:30]])
    for m in (0, 6):
        model = VecchiaGP(**QUICK, n_support=m).fit(X, y)
        mean, std = model.predict(X, return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()


@pytest.mark.slow
def test_a_users_kernel_is_trained(table):
    X, y = table
    own, known = (
        VecchiaGP(**QUICK | {"kernel": kind(0.5, 1.4)}).fit(X, y)
        for kind in (Own, kernels.Matern32)
    )
    assert own.objective_ == pytest.approx(known.objective_, rel=1e-6)
    np.testing.assert_allclose(own.predict(X), known.predict(X), rtol=1e-4, atol=1e-4)


# -- settings --------------------------------------------------------------------------------


def test_settings_of_lma_that_mean_nothing_here_are_none():
    names = set(VecchiaGP().get_params())
    gone = {"markov_order", "neighbours", "predict_order", "predict_rows", "prediction"}
    gone |= {"train_blocks", "train_support", "train_with"}
    own = {"n_neighbours", "predict_neighbours", "varying", "varying_over", "barriers"}
    assert names == (set(daskgp.LMA().get_params()) - gone) | own
    assert clone(VecchiaGP(n_neighbours=7)).n_neighbours == 7


@pytest.mark.parametrize("where", [[[5.0, 5.0]], [[0.3, 0.1], [0.3, 0.9]]], ids=["far", "a line"])
def test_an_update_keeps_the_units_of_distance(table, where):
    model = VecchiaGP(**QUICK).fit(*table)
    before, X = model.solved_.state.lengths.copy(), table[0][:20]
    wanted = model.predict(X)
    model.update(np.array(where), np.zeros(len(where)))
    assert np.array_equal(model.solved_.state.lengths, before)
    np.testing.assert_allclose(model.predict(X), wanted, atol=0.5 * table[1].std())


@pytest.mark.parametrize(
    ("kernel", "far"),
    [
        (kernels.Linear() + kernels.Matern32(), True),
        (0.5 * kernels.Periodic(1.0, 1.0), True),
        (kernels.Periodic(1.0, 1.0) * kernels.Matern32(), False),
        (kernels.Matern32(), False),
    ],
    ids=["linear", "periodic", "seasonal", "matern"],
)
def test_kernels_that_tie_far_rows_are_warned_of(table, kernel, far, caplog):
    VecchiaGP(kernel, n_neighbours=8, optimizer=None, progress=False).fit(*table)
    assert ("correlates rows that are far apart" in caplog.text) == far


@pytest.mark.parametrize("method", [daskgp.LMA, daskgp.PIC])
def test_blocks_trained_on_a_handful_of_rows_are_refused(method, table):
    settings = {"kernel": KERNEL, "block_rows": 60, "n_support": 8, "train_with": "vecchia"}
    with testing.no_compute(), pytest.raises(SettingError, match="choose at least 30, 'auto'"):
        method(**settings, training_rows=10, progress=False).fit(*table)


def test_all_of_a_handful_of_rows_may_be_trained_on(table):
    X, y = table
    VecchiaGP(**QUICK, training_rows=20).fit(X[:20], y[:20])
    with pytest.raises(SettingError, match="choose at least 20, 'auto', or None for all 20 rows"):
        VecchiaGP(**QUICK, training_rows=10).fit(X[:20], y[:20])


def test_lma_trains_on_the_conditionals_of_rows(table, monkeypatch):
    settings = {"kernel": KERNEL, "block_rows": 60, "progress": False}
    rowwise = VecchiaGP(**settings).fit(*table)
    asked = daskgp.LMA(**settings, n_support=8, train_with="vecchia").fit(*table)
    np.testing.assert_allclose(
        asked.kernel_.log_parameters, rowwise.kernel_.log_parameters, atol=0.05
    )
    on_blocks = daskgp.LMA(**settings, n_support=8).fit(*table)
    assert on_blocks.kernel_ != asked.kernel_
    monkeypatch.setattr("daskgp.fit.training.FEW_ROWS", 100)
    assert daskgp.LMA(**settings, n_support=8).fit(*table).kernel_ == asked.kernel_
    with pytest.raises(SettingError, match="training_rows=200 has no effect with train_with"):
        daskgp.LMA(**settings, train_with="blocks", training_rows=200).fit(*table)
