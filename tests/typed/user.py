"""A user's script, which type checkers read and nobody runs: every public name, as it is used."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

import dask.array as da
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

import daskgp
from daskgp import errors, kernels, likelihoods, metrics, plot, priors, testing
from daskgp.assess.check import Check
from daskgp.assess.cross_validation import CrossValidation
from daskgp.assess.variogram import Variogram
from daskgp.data.blocks.prepare import Prepared
from daskgp.data.convert.convert import Conversion
from daskgp.data.kinds import Frame
from daskgp.estimators import GaussianProcess
from daskgp.estimators import register as register_estimator
from daskgp.fit.plan import Plan
from daskgp.predict.hyperparameter_table import Table
from daskgp.predict.paths import Paths
from daskgp.xarray import Accessor

Two = tuple[np.ndarray, np.ndarray]

ESTIMATORS: Sequence[GaussianProcess] = [
    daskgp.SGPR("rbf", n_inducing=100, inducing="kmeans", train_inducing=True),
    daskgp.SGPR(inducing=np.zeros((10, 2)), fixed=("noise_variance",), store="rows"),
    daskgp.LMA(kernels.Matern32(ard=True), n_support=64, block_rows=200, varying="auto"),
    daskgp.PIC(order=["time"], mean="linear", calibrate="loo", train_with="blocks"),
    daskgp.VecchiaGP(n_neighbours=20, geographic=("lon", "lat"), likelihood="poisson"),
    daskgp.ExpertsGP(n_experts=8, expert="sparse", aggregation="grbcm"),
    daskgp.OptiComGP(optimizer=None, noise_variance=0.01),
    daskgp.CaGP(n_actions=64, actions="cg", optimizer="adam", learning_rate=0.05),
    daskgp.CGGP(max_iter=20, random_state=None, progress=False),
    daskgp.DecoupledGP(batch_rows=1_000, likelihood="student-t", dtype="float32"),
    daskgp.SVGP(n_inducing=100, device="cpu", validation=0.1),
    daskgp.SparseSpectrumGP(tol=0.01, limits={"lengthscale": (0.1, 10.0)}),
    daskgp.ExactGP(
        mean=["elevation"],
        prior={"lengthscale": priors.LogNormal(100.0, sigma=0.5), "variance": "lognormal(1)"},
        fixed={"noise_variance": 0.1},
        target_transform="log",
        targets="joint",
        fill_values=[-9999.0],
        unseen="new",
    ),
]


def stopped(entry: Mapping[str, Any]) -> bool:
    """Return whether to end training."""
    return bool(entry["objective"] > 10)


def rows_in_memory(X: np.ndarray, y: np.ndarray) -> daskgp.SGPR:
    """Fit and predict arrays."""
    model = daskgp.SGPR(n_inducing=100).fit(X, y, callback=stopped, y_variance=0.1)
    assert_type(model, daskgp.SGPR)
    mean = model.predict(X)
    assert_type(mean, np.ndarray)
    mean, std = model.predict(X, return_std=True)
    assert_type(std, np.ndarray)
    mean, std = model.predict(X, True, include_noise=True, y_variance=np.ones(3))
    mean, cov = model.predict(X, return_cov=True)
    assert_type(cov, np.ndarray)
    mean, quantiles = model.predict(X, quantiles=(0.05, 0.95), include_noise=True)
    assert_type(quantiles, np.ndarray)
    mean, std, quantiles = model.predict(X, return_std=True, quantiles=[0.5])
    assert_type(model.predict([[1.0, 2.0]], trials=2), np.ndarray)
    assert_type(model.predict_exceedance(X, 0.5), np.ndarray)
    assert_type(model.predict_exceedance(X, [0.5, 1], include_noise=True, exposure=1), np.ndarray)
    assert_type(model.loo(X, y), Two)
    print(f"{float(model.predict_average(X)[0]):.2f}")
    assert_type(model.sample_y(X, n_samples=3, random_state=0), np.ndarray)
    paths = model.sample_paths(3)
    assert_type(paths, Paths)
    assert_type(paths(X), np.ndarray)
    assert_type(paths.average(X), np.ndarray)
    assert_type(paths.exceedance(X, 0.5), np.ndarray)
    assert_type(model.score(X, y, sample_weight=np.ones(3)), float)
    assert_type(model.log_marginal_likelihood(), float)
    return model


def data_frames(frame: Frame[np.ndarray], heights: Any) -> None:
    """Fit and predict data frames, which pandas has with its stubs installed."""
    model = daskgp.SGPR().fit(frame, "height", features=["lon", "lat"])
    assert_type(model, daskgp.SGPR)
    assert_type(model.predict(frame), np.ndarray)
    assert_type(model.predict(frame, return_std=True), Two)
    assert_type(daskgp.VecchiaGP().fit(frame, heights).score(frame, heights), float)
    assert_type(daskgp.interpolate(frame, {"lon": np.arange(3)}, target="height"), xr.Dataset)


def lazy_rows(X: da.Array, y: da.Array) -> None:
    """Fit and predict lazy arrays."""
    model = daskgp.VecchiaGP().fit(X, y, checkpoint=Path("progress.zarr"), start=daskgp.SGPR())
    assert_type(model.predict(X), da.Array)
    mean, std = model.predict(X, return_std=True)
    assert_type(std, da.Array)
    assert_type(model.predict(X, quantiles=(0.1,))[1], da.Array)
    assert_type(model.loo(X, y), tuple[da.Array, da.Array])
    assert_type(model.predict_average(X), tuple[da.Array, da.Array])
    assert_type(model.sample_paths(2)(X), da.Array)
    assert_type(metrics.rmse(y, mean), da.Array)
    assert_type(metrics.nlpd(y, mean, std, multioutput="raw_values"), da.Array)


def grids(field: xr.DataArray, fields: xr.Dataset, tree: xr.DataTree) -> None:
    """Fit and predict labelled grids."""
    model = daskgp.LMA().fit(fields, field)
    assert_type(model.predict(fields), xr.DataArray)
    mean, std = model.predict(field, return_std=True)
    assert_type(std, xr.DataArray)
    assert_type(model.predict(tree), xr.DataTree)
    assert_type(model.predict_exceedance(fields, 1.0), xr.DataArray)
    assert_type(model.predict_average(fields), tuple[xr.DataArray, xr.DataArray])
    assert_type(model.sample_paths(2)(fields), xr.DataArray)
    grid = model.make_grid({"lon": 0.25, "lat": 0.25}, {"lon": (5, 11)})
    assert_type(grid, xr.Dataset)
    assert_type(model.predict_store(grid, "map.zarr", quantiles=[0.1], resume=True).rows, int)
    assert_type(model.is_predicted(grid, "map.zarr"), bool)
    assert_type(model.needs_cluster(grid, "map.zarr"), bool)
    assert_type(model.hyperparameter_map(fields), xr.Dataset)
    assert_type(model.hyperparameter_map_, xr.Dataset)


def one_line_maps(fields: xr.Dataset, tree: xr.DataTree) -> None:
    """Interpolate."""
    maps = daskgp.interpolate(fields, {"x": np.arange(3)}, target="t", method="sgpr", max_iter=5)
    assert_type(maps, xr.Dataset)
    maps, model = daskgp.interpolate(fields, fields, kernel="rbf", return_model=True)
    assert_type(model, GaussianProcess)
    assert_type(
        daskgp.interpolate(Path("stations.csv"), Path("grid.nc"), background=Path("first.nc")),
        xr.Dataset,
    )
    assert_type(daskgp.interpolate(tree, target="t"), xr.DataTree)
    trees, models = daskgp.interpolate(tree, target="t", return_model=True)
    assert_type(models, dict[str, GaussianProcess])
    assert_type(Accessor(fields).interpolate(target="t"), xr.Dataset)
    assert_type(Accessor(fields["t"]).interpolate(return_model=True)[1], GaussianProcess)
    daskgp.to_geotiff(maps, "map.tif", bands=["time"], crs="EPSG:4326")


def what_is_learned(model: daskgp.SGPR) -> None:
    """Look at a fit."""
    assert_type(model.n_rows_, int)
    assert_type(model.n_features_in_, int)
    assert_type(model.n_iter_, int)
    assert_type(model.objective_, float | None)
    assert_type(model.feature_names_in_, np.ndarray)
    assert_type(model.history_, list[dict[str, Any]])
    assert_type(model.hyperparameters_, Table)
    assert_type(model.trend_, Table)
    assert_type(model.kernel_, kernels.Kernel | tuple[kernels.Kernel, ...])
    assert_type(model.noise_variance_, float | np.ndarray)
    assert_type(model.likelihood_, likelihoods.Likelihood)
    assert_type(model.parts_, list[daskgp.SGPR])
    assert_type(model.spread_, float)
    assert_type(model.tails_, dict[float, float] | None)
    assert_type(model.set_params(n_inducing=50, kernel__lengthscale=2.0), daskgp.SGPR)
    assert_type(model.get_params(), dict[str, Any])
    assert_type(model.inducing_, np.ndarray)


def rows_come_and_go(model: daskgp.VecchiaGP, X: np.ndarray, y: np.ndarray) -> None:
    """Update and forget."""
    assert_type(model.update(X, y, sample_weight=np.ones(3)), daskgp.VecchiaGP)
    assert_type(model.forget(X, y), daskgp.VecchiaGP)
    assert_type(model.plan(X, y, measure=True), Plan)
    assert_type(daskgp.plan(daskgp.SGPR(), X, y), Plan)


def stores() -> None:
    """Convert, prepare, save and load."""
    converted = daskgp.convert("parts/*.csv", "train.zarr", "height", block_rows=10_000)
    assert_type(converted, Conversion)
    daskgp.convert(
        ["a.csv", "b.csv"], Path("train.zarr"), ["u", "v"], like=Path("old.zarr"), y_std=["a", "b"]
    )
    assert_type(daskgp.prepare("train.zarr", Path("blocks.zarr"), order=["time"]), Prepared)
    X, y = daskgp.open_dataset(Path("blocks.zarr"))
    assert_type(X, da.Array)
    daskgp.SGPR(store=Path("rows")).fit(X, y).save(Path("model.zarr"), wait=10.0)
    model = daskgp.load("model.zarr", device="cpu")
    assert_type(model, GaussianProcess | Any)
    mean, std = model.predict(X, return_std=True)
    assert isinstance(model, daskgp.SGPR)
    assert_type(model.predict(X), da.Array)
    classifier = daskgp.load(Path("classifier.zarr"))
    assert isinstance(classifier, daskgp.GPClassifier)
    assert_type(classifier.classes_, np.ndarray)
    with daskgp.storage_options({"s3://bucket": {"anon": True}}), daskgp.connect(n_workers=2):
        model.predict_store("s3://bucket/test.zarr", "predictions.zarr")


def compositions(X: np.ndarray, y: np.ndarray) -> None:
    """Fit models that are made of others."""
    classifier = daskgp.GPClassifier(daskgp.VecchiaGP(), link="logit").fit(X, y)
    assert_type(classifier, daskgp.GPClassifier)
    assert_type(classifier.predict(X), np.ndarray)
    assert_type(classifier.predict_proba(X), np.ndarray)
    assert_type(classifier.decision_function(X), np.ndarray)
    assert_type(classifier.score(X, y), float)
    assert_type(classifier.scores(X, y), dict[str, float])
    rain = daskgp.HurdleGP(daskgp.SGPR(likelihood="bernoulli")).fit(X, y)
    mean, std = rain.predict(X, return_std=True)
    assert_type(std, np.ndarray)
    assert_type(rain.predict(X, quantiles=[0.9])[1], np.ndarray)
    assert_type(rain.predict_exceedance(X, 1.0), np.ndarray)
    assert_type(rain.predict_proba(X), np.ndarray)
    assert_type(rain.score(X, y), float)
    rain.save("rain.zarr")
    auto = daskgp.AutoGP(time_budget=60, memory="4 GiB", task="forecast", candidates=["sgpr"])
    assert_type(auto.fit(X, y), daskgp.AutoGP)
    assert_type(auto.predict(X), np.ndarray)
    assert_type(auto.predict_proba(X), np.ndarray)
    assert_type(auto.best_, GaussianProcess)
    print(auto.leaderboard_, auto.chosen_.score, auto.findings_)
    auto.save("best.zarr")
    actions = daskgp.CaGP().fit(X, y)
    mean, std, part = actions.predict(X, return_std=True, return_computational=True)
    assert_type(part, np.ndarray)
    assert_type(actions.predict(X, return_std=True), Two)
    assert_type(actions.points_, np.ndarray)
    assert_type(daskgp.SVGP(likelihood="bernoulli").fit(X, y).predict_proba(X), np.ndarray)


def checks(model: daskgp.SGPR, X: np.ndarray, y: np.ndarray) -> None:
    """Check a fit."""
    found = daskgp.check(model, X, y, regions=4)
    assert_type(found, Check)
    crossed = daskgp.cross_validate(model, X, y, blocks=[1.0, 1.0], metrics=["rmse"], folds="loo")
    assert_type(crossed, CrossValidation)
    assert_type(daskgp.variogram(X, y, model, bins=np.linspace(0, 1, 9)), Variogram)
    mean, std = model.predict(X, return_std=True, include_noise=True)
    variance = std**2
    assert_type(metrics.rmse(y, mean), float)
    assert_type(metrics.mae(y, mean, multioutput="raw_values"), np.ndarray)
    assert_type(metrics.nmse(y, mean), float)
    assert_type(metrics.nlpd(y, mean, variance, likelihoods.Poisson()), float)
    assert_type(metrics.crps(y, mean, variance), float)
    assert_type(metrics.coverage(y, mean, variance, 0.9), float)
    assert_type(metrics.interval_score(y, mean, variance, level=0.9), float)
    assert_type(metrics.ranked_probability(y, mean, variance, "poisson"), float)
    assert_type(metrics.brier([0, 1], np.array([0.2, 0.7])), float)
    assert_type(metrics.summary(y, mean, variance), dict[str, float])


def kernels_of_all_kinds(X: np.ndarray) -> kernels.Kernel:
    """Compose kernels."""
    smooth = 2.0 * kernels.RBF(lengthscale=[1.0, 2.0]) + kernels.Constant(0.5)
    assert_type(smooth, kernels.Kernel)
    season = kernels.Periodic(period=1.0) * kernels.Matern52(active_dims=["time"])
    assert_type(kernels.Product((season, smooth)), kernels.Product)
    assert_type(kernels.Sum((season, smooth)), kernels.Sum)
    parts: list[kernels.Kernel] = [
        kernels.Matern12(),
        kernels.Matern32(ard=True),
        kernels.RationalQuadratic(alpha=2.0),
        kernels.Linear(active_dims=(0,)),
        kernels.Rotated(kernels.Matern32(ard=True), columns=("x", "y")),
        kernels.Averaged(kernels.RBF(), "radius"),
        kernels.Coregion("target", rank=2),
        kernels.Categorical("soil", levels=["clay", "sand"]),
        kernels.Numbers(),
    ]
    whole = smooth + season + parts[0] * 2.0 + 1.0
    assert_type(whole(X, X), np.ndarray)
    assert_type(whole.diag(X), np.ndarray)
    K, pull = whole.pullback(X)
    print(K, pull, whole.parameter_names, whole.log_parameters, kernels.REGISTRY)
    assert_type(kernels.parse("rbf(1.0) + linear"), kernels.Kernel)
    assert_type(kernels.from_dict(whole.to_dict()), kernels.Kernel)
    return kernels.with_levels(parts[-2], {"soil": ["clay", "sand"]})


@kernels.register
class Rough(kernels.Matern12):
    """A kernel of one's own."""

    name = "rough"
    pulled: kernels.Pullback
    gradient: kernels.KernelGradient
    of: kernels.Unit
    told: kernels.Derived


@register_estimator
class RoughGP(daskgp.SGPR):
    """A method of one's own."""

    model_name = "rough"


def likelihoods_of_all_kinds(y: np.ndarray) -> list[likelihoods.Likelihood]:
    """Make likelihoods."""
    made: list[likelihoods.Likelihood] = [
        likelihoods.Gaussian(0.1),
        likelihoods.StudentT(0.3, df=4.0),
        likelihoods.Bernoulli("logit"),
        likelihoods.Binomial(),
        likelihoods.Poisson(),
        likelihoods.NegativeBinomial(3.0),
        likelihoods.Gamma(),
        likelihoods.LogNormal(),
        likelihoods.Beta(),
        likelihoods.Ordinal((1.0, 2.0)),
        likelihoods.Censored(0.3),
        likelihoods.by_name("poisson"),
    ]
    print(likelihoods.NAMES, likelihoods.REGISTRY, likelihoods.register)
    print(likelihoods.Expectation, likelihoods.LogDensity)
    assert_type(made[0].log_density(y, y, y), np.ndarray)
    return made


def priors_of_all_kinds() -> list[priors.Prior]:
    """Make priors."""
    return [
        priors.LogNormal(100.0),
        priors.InverseGamma(2.0, 10.0),
        priors.ShortRange(below=10.0),
        priors.LargeDeviation(above=2.0),
        priors.parse("lognormal(100, sigma=0.5)"),
    ]


def figures(model: daskgp.SGPR, X: np.ndarray, y: np.ndarray, ax: Axes) -> None:
    """Draw figures."""
    mean, std = model.predict(X, return_std=True)
    found = daskgp.check(model, X, y)
    assert_type(plot.calibration(y, mean, std**2, ax=ax), Axes)
    assert_type(plot.maps(X, {"mean": mean, "deviation": std}, names=("x", "y")), np.ndarray)
    for drawn in (
        plot.pit(y, mean, std**2),
        plot.ranks(model, X, y),
        plot.reliability(model, X, y),
        plot.residuals(X, y, mean, std),
        plot.history(model.history_),
        plot.variogram(X, y, model, bins=10),
        plot.choice(daskgp.AutoGP().fit(X, y).leaderboard_),
    ):
        assert_type(drawn, Axes)
    for panels in (
        plot.distances(found),
        plot.hyperparameter_map(xr.Dataset()),
        plot.posterior_lines(X[:, 0], {"SGPR": (mean, std)}, points=(X[:, 0], y)),
        plot.posterior_map(X, y, mean, std),
        plot.spread(X, std),
        plot.traces({"RMSE": {"SGPR": mean}}),
        plot.tradeoff([1, 2], {"RMSE": {"SGPR": mean}}, reference={"RMSE": 0.1}),
    ):
        assert_type(panels, np.ndarray)
    plot.explore(xr.Dataset())
    assert_type(plot.check(found, "figures"), list[str])
    plot.pit(y, mean, std**2, path=Path("pit.png"))


@testing.parametrize_with_checks([kernels.RBF(0.5)], {"in_other_units": "it has no unit"})
def test_kernels(subject: kernels.Kernel, check: testing.Check) -> None:
    """Test kernels of one's own."""
    check(subject)


def single_checks(X: np.ndarray) -> None:
    """Run checks by hand."""
    testing.check_kernel(kernels.RBF(0.5), X, X)
    assert_type(testing.checks_of(kernels.RBF()), tuple[testing.Check, ...])
    assert_type(testing.central_differences(lambda at: float(at.sum()), X[0]), np.ndarray)
    with testing.no_compute():
        print(testing.check_model, testing.check_additive, testing.check_gradient)
    print(testing.check_exact_limit, testing.check_ensemble, testing.combine_experts)
    print(testing.MethodAt, testing.HeldExperts, testing.rows_of, testing.value_and_gradient)


def caught() -> None:
    """Catch errors by kind."""
    try:
        daskgp.open_dataset("missing.zarr")
    except (errors.StoreError, errors.SettingError, errors.PlanError, errors.DeviceError):
        raise
    except (errors.FullDiskError, errors.DeviceMemoryError, errors.MemoryRunError):
        raise
    except (errors.NumericalError, errors.RunError, errors.InputError, daskgp.InputError):
        raise
    except (errors.DaskgpError, daskgp.DaskgpError) as error:
        print(error, daskgp.__version__)
