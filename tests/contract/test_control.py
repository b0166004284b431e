"""What users say about hyper-parameters holds for every estimator that trains any."""

import numpy as np
import pytest
from scipy.optimize import minimize

import daskgp
from daskgp import kernels
from daskgp.errors import SettingError
from tests.contract.cases import PARTED, SETTINGS, STEPPED, UNTRAINED, kind, make

TRAINED = [name for name in SETTINGS if name not in UNTRAINED]
UNIT = 30.0
"""Standard deviation of the targets, about, and the scale of the inputs."""


def rows(n=150):
    rng = np.random.default_rng(0)
    X = UNIT * rng.uniform(0, 3, (n, 2))
    y = 20 * np.sin(2 * X[:, 0] / UNIT) * np.cos(X[:, 1] / UNIT) + 2 * rng.standard_normal(n)
    return X, y


def open_kernel(name):
    return kernels.RBF() if name == "ssgp" else kernels.Matern32()


def values(model):
    return {row.name: row.value for row in model.hyperparameters_}


@pytest.mark.parametrize("name", TRAINED)
def test_fixed_values_and_limits_are_kept_in_units_of_the_data(name):
    settings = {"fixed": {"noise_variance": 9.0}, "limits": {"lengthscale": (20.0, 21.0)}}
    model = make(name, kernel=open_kernel(name), **settings).fit(*rows())
    found = values(model)
    assert found["noise_variance"] == pytest.approx(9.0)
    assert 20.0 - 1e-6 <= found["lengthscale"] <= 21.0 + 1e-6


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_fixed_without_a_value_stays_where_it_is_given(name):
    kernel = make(name).get_params(deep=False)["kernel"]
    settings = {"noise_variance": 0.07, "fixed": ["noise_variance", "lengthscale"]}
    model = make(name, kernel=kernel, **settings).fit(*rows())
    assert model.noise_variance_ == pytest.approx(0.07)
    # given in standardised units, in which each column has its own lengthscale
    np.testing.assert_allclose(model.kernel_.lengthscale, kernel.lengthscale)


def test_a_column_may_have_a_value_of_its_own():
    X, y = rows()
    lengths = [0.5 + k for k in range(X.shape[1])]
    model = daskgp.ExactGP("rbf(ard=true)", fixed={"lengthscale": lengths}, progress=False)
    found = {one.name: one.value for one in model.fit(X, y).hyperparameters_}
    assert [found[f"lengthscale[{k}]"] for k in range(len(lengths))] == pytest.approx(lengths)
    with pytest.raises(SettingError, match=r"fixed\['lengthscale'\] has 1 values for"):
        daskgp.ExactGP("rbf(ard=true)", fixed={"lengthscale": [1.0]}).fit(X, y)
    with pytest.raises(SettingError, match=r"give a list, array\.tolist\(\)"):
        daskgp.ExactGP("rbf(ard=true)", fixed={"lengthscale": np.array(lengths)}).fit(X, y)
    first = {"lengthscale[0]": 1.0}
    for given in ({"lengthscale": lengths} | first, first | {"lengthscale": 1.0}):
        with pytest.raises(SettingError, match=r"fixed has lengthscale\[0\] twice"):
            daskgp.ExactGP("rbf(ard=true)", fixed=given).fit(X, y)


@pytest.mark.parametrize("name", TRAINED)
def test_a_narrow_prior_decides(name):
    more = {"max_iter": 150, "learning_rate": 0.1} if name in STEPPED else {}
    prior = {"noise_variance": daskgp.priors.LogNormal(25.0, 1e-3)}
    model = make(name, kernel=open_kernel(name), prior=prior, **{"max_iter": 20, **more})
    assert values(model.fit(*rows()))["noise_variance"] == pytest.approx(25.0, rel=0.03)


@pytest.mark.parametrize("name", TRAINED)
def test_a_callback_sees_the_history_and_stops_training(name):
    seen = []

    def callback(entry):
        seen.append(entry)
        return len(seen) == 2

    model = make(name, kernel=open_kernel(name), max_iter=30, tol=1e-9).fit(
        *rows(), callback=callback
    )
    assert 1 <= len(seen) == len(model.history_) <= 2
    assert seen[0]["objective"] == model.history_[0]["objective"]
    assert np.isfinite(model.predict(rows()[0][:3])).all()


@pytest.mark.sampled
@pytest.mark.parametrize("name", TRAINED)
def test_a_saved_model_keeps_what_was_said(tmp_path, name):
    prior = {"lengthscale": daskgp.priors.ShortRange(10.0, 0.1, dims=2)}
    settings = {"fixed": {"noise_variance": 9.0}, "limits": {"variance": (1.0, 1e4)}}
    model = make(name, kernel=open_kernel(name), prior=prior, **settings).fit(*rows())
    model.save(str(tmp_path / "m.zarr"))
    loaded = daskgp.load(str(tmp_path / "m.zarr"))
    assert loaded.fixed == settings["fixed"]
    assert {k: tuple(v) for k, v in loaded.limits.items()} == settings["limits"]
    assert loaded.prior == {"lengthscale": "shortrange(below=10.0, probability=0.1, dims=2)"}
    T = rows()[0][:5]
    np.testing.assert_array_equal(loaded.predict(T), model.predict(T))
    loaded.save(str(tmp_path / "again.zarr"))  # of priors as text
    assert daskgp.load(str(tmp_path / "again.zarr")).prior == loaded.prior


def test_the_largest_posterior_density_is_that_of_a_dense_computation():
    X, y = rows(80)
    prior = {
        "variance": "largedeviation(above=15.0)",
        "lengthscale": "shortrange(below=40.0, dims=2)",
        "noise_variance": "inversegamma(shape=3.0, scale=60.0)",
    }
    settings = {"mean": "zero", "standardize": True, "tol": 1e-8, "progress": False}
    model = daskgp.ExactGP("matern32()", prior=prior, **settings).fit(X, y)
    distances = np.sqrt(((X[:, None] - X[None]) ** 2).sum(-1))
    densities = [daskgp.priors.parse(text) for text in prior.values()]

    def loss(v):
        variance, length, noise = np.exp(v)
        r = np.sqrt(3) * distances / length
        K = variance * (1 + r) * np.exp(-r) + noise * np.eye(len(y))
        value = -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1])
        return -value - sum(p.log_density(one)[0] for p, one in zip(densities, v, strict=True))

    found = list(values(model).values())
    best = minimize(loss, np.log(found), method="Nelder-Mead", options={"xatol": 1e-7})
    np.testing.assert_allclose(found, np.exp(best.x), rtol=1e-3)
    plain = daskgp.ExactGP("matern32()", **settings).fit(X, y)
    assert abs(np.log(list(values(plain).values())[1] / found[1])) > 0.01  # it matters


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"fixed": "noise"},
            "names 'noise', which is not a hyper-parameter: choose among variance",
        ),
        ({"fixed": "lengthscale"}, "whose value the kernel leaves open"),
        ({"fixed": {"variance": -1.0}}, "must be greater than 0"),
        ({"fixed": 3}, "give names of hyper-parameters"),
        ({"limits": {"variance": (2.0, 1.0)}}, "must be less than the second"),
        ({"limits": {"variance": 2.0}}, "give \\(lowest, highest\\)"),
        ({"limits": [("variance", 2.0)]}, "give a mapping"),
        ({"fixed": {"variance": 1.0}, "limits": {"variance": (1, 2)}}, "fixed and has limits"),
        ({"prior": {"variance": 3.0}}, "give one of daskgp.priors"),
        ({"prior": {"variance": "normal(0, 1)"}}, "unknown prior 'normal'"),
        ({"prior": {"variance": "lognormal(median=-1)"}}, "median=-1"),
        ({"prior": {"variance": "lognormal(mean=1)"}}, "it has median, sigma"),
        ({"prior": {"variance": "lognormal"}}, "cannot be read"),
        ({"optimizer": None, "fixed": "variance"}, "has no effect with optimizer=None"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, words):
    with pytest.raises(SettingError, match=words):
        daskgp.SGPR("matern32()", n_inducing=5, **settings).fit(*rows())


# batches and parts of the rows are drawn from other ones where some are left out
@pytest.mark.parametrize("name", [n for n in TRAINED if n not in STEPPED | PARTED])
def test_a_prior_counts_alike_beside_rows_that_are_left_out(name):
    X, y = rows(120)
    missing = np.arange(480) % 4 > 0
    more, values = np.repeat(X, 4, axis=0), np.where(missing, np.nan, np.repeat(y, 4))
    settings = {"prior": {"noise_variance": "lognormal(400, sigma=0.05)"}, "max_iter": 25}
    plain = make(name, kernel=open_kernel(name), **settings).fit(X, y)
    found = make(name, kernel=open_kernel(name), **settings).fit(more, values)
    assert values_near(found, plain)


def values_near(found, wanted):
    pair = [model.hyperparameters_[-1].value for model in (found, wanted)]
    return pair[0] == pytest.approx(pair[1], rel=0.03)


def test_a_loaded_model_is_fitted_again_with_numbers_of_numpy(tmp_path):
    prior = {"variance": daskgp.priors.LogNormal(np.float64(300.0), np.float32(0.5))}
    limits = {"lengthscale": (np.int64(5), np.float32(90.0))}
    settings = {"prior": prior, "limits": limits, "fixed": {"noise_variance"}}
    model = daskgp.ExactGP("matern32()", progress=False, **settings).fit(*rows(60))
    model.save(str(tmp_path / "m.zarr"))
    loaded = daskgp.load(str(tmp_path / "m.zarr")).fit(*rows(60))
    assert loaded.objective_ == pytest.approx(model.objective_, rel=1e-6)


@pytest.mark.parametrize("name", ["exact", "svgp"])
def test_a_comparison_of_numpy_stops_training_too(name):
    seen = []

    def callback(entry):
        seen.append(entry)
        return np.float64(len(seen)) >= 2

    make(name, kernel=open_kernel(name), max_iter=30, tol=1e-9).fit(*rows(), callback=callback)
    assert len(seen) <= 2


@pytest.mark.parametrize("name", ["sgpr", "svgp"])
def test_what_is_fixed_without_a_value_stays_that_of_a_model_to_start_from(name):
    settings = {"kernel": open_kernel(name), "fixed": {"noise_variance": 9.0}}
    model = make(name, **settings).fit(*rows())
    again = make(name, **settings | {"fixed": ["noise_variance"]}).fit(*rows(), start=model)
    assert values(again)["noise_variance"] == pytest.approx(9.0)


def test_nothing_is_warned_of_where_all_is_fixed(caplog):
    fixed = {"variance": 90.0, "lengthscale": 30.0, "noise_variance": 9.0}
    model = kind("exact")("rbf()", fixed=fixed, progress=False).fit(*rows())
    assert {row.name: row.value for row in model.hyperparameters_} == pytest.approx(fixed)
    assert not [line for line in caplog.messages if "training" in line]


def test_a_callback_of_one_fit_is_not_that_of_a_fit_inside_it():
    seen = []

    def callback(entry):
        seen.append(entry)
        daskgp.SGPR("matern32()", n_inducing=5, max_iter=3, progress=False).fit(*rows(60))

    model = daskgp.ExactGP("matern32()", progress=False).fit(*rows(60), callback=callback)
    assert len(seen) == len(model.history_)


def test_experts_trained_in_rounds_have_no_prior():
    model = kind("experts")(training="fedavg", prior={"variance": "lognormal(1)"})
    with pytest.raises(SettingError, match=r"prior=.*has no effect with training='fedavg'"):
        model.fit(*rows())


def test_units_that_targets_do_not_share_are_refused():
    X, y = rows()
    with pytest.raises(SettingError, match="set standardize=False"):
        daskgp.SGPR("matern32()", n_inducing=5, fixed={"variance": 2.0}).fit(
            X, np.stack([y, 5 * y], axis=1)
        )
