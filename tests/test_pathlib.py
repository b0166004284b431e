"""Paths: whatever public function takes one takes a ``pathlib.Path``, too."""

import inspect
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import daskgp
from daskgp import plot
from daskgp.estimators import ESTIMATORS

NAMED = {"path", "url", "store", "checkpoint", "destination", "output", "predictions", "folder"}
NAMED |= {"like", "mask", "barriers", "background", "source", "maps", "coast"}
"""Parameters that are paths, or may be."""
COMPOSED = (daskgp.AutoGP, daskgp.GPClassifier, daskgp.HurdleGP)
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 4, (60, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
AXES = {"y": np.arange(0.0, 4.5, 0.5), "x": np.arange(0.0, 4.5, 0.5)}
SQUARE = [[[0.5, 0.5], [3.5, 0.5], [3.5, 3.5], [0.5, 3.5], [0.5, 0.5]]]
HOLE = [[[1.9, 1.9], [2.1, 1.9], [2.1, 2.1], [1.9, 2.1], [1.9, 1.9]]]


def geojson(path, ring):
    path.write_text(json.dumps({"type": "Polygon", "coordinates": ring}))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a csv, a dataset store, a grid, polygons and a map."""
    folder = tmp_path_factory.mktemp("paths")
    frame = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "t": Y})
    frame.to_csv(folder / "rows.csv", index=False)
    daskgp.convert(str(folder / "rows.csv"), str(folder / "rows.zarr"), "t")
    inside = xr.DataArray(np.ones((9, 9)), AXES)
    grid = xr.Dataset({"inside": inside})
    grid.to_netcdf(folder / "grid.nc")
    inside.rename("first").to_netcdf(folder / "first.nc")
    geojson(folder / "square.json", SQUARE)
    geojson(folder / "hole.json", HOLE)
    return folder


@pytest.fixture(scope="module")
def model(made):
    return daskgp.ExactGP(optimizer=None).fit(made / "rows.csv", "t")


@pytest.fixture(scope="module")
def drawn(model):
    """What figures are of: a check, predictions, a search."""
    board = daskgp.AutoGP(time_budget=10, candidates=["exact"], progress=False).fit(X, Y)
    mean, std = model.predict(X, return_std=True, include_noise=True)
    return daskgp.check(model, X, Y), mean, std, board.leaderboard_


def exact(**settings):
    return daskgp.ExactGP(optimizer=None, progress=False, **settings)


def maps_of(made, **how):
    how = {"target": "t", "method": exact()} | how
    found = daskgp.interpolate(made / "rows.csv", made / "grid.nc", **how)
    assert found["t"].sizes == {"y": 9, "x": 9}
    return found


def labels():
    return np.where(np.median(Y) < Y, 1, 0)


def parts():
    return [exact(kernel="rbf", likelihood=name) for name in ("bernoulli", "lognormal")]


def saved(estimator, folder):
    estimator.save(folder / "model.zarr")
    assert type(daskgp.load(folder / "model.zarr")) is type(estimator)


def auto(**settings):
    own = {"time_budget": 10, "candidates": ["exact"], "progress": False}
    return daskgp.AutoGP(**own | settings)


def of_store(kind, folder):
    """Fit an estimator whose rows lie in a folder, and save it."""
    few = {"n_inducing": 8, "n_support": 8, "n_actions": 4, "max_iter": 2, "progress": False}
    known = inspect.signature(kind).parameters
    model = kind(store=folder / "kept", **{k: v for k, v in few.items() if k in known})
    model.fit(X, Y).save(folder / "model.zarr")
    assert model.get_params()["store"] == folder / "kept"
    daskgp.load(folder / "model.zarr").predict(X[:2])


PREDICTED = {"quantiles": [0.5]}
CASES = {
    "open_dataset.url": lambda made, at: daskgp.open_dataset(made / "rows.zarr"),
    "convert.source": lambda made, at: daskgp.convert(made / "rows.csv", str(at / "a.zarr"), "t"),
    "convert.destination": lambda made, at: daskgp.convert([made / "rows.csv"], at / "a.zarr", "t"),
    "convert.like": lambda made, at: daskgp.convert(
        made / "rows.csv", at / "a.zarr", like=made / "rows.zarr"
    ),
    "convert.mask": lambda made, at: daskgp.convert(
        made / "grid.nc", at / "a.zarr", "inside", ["x", "y"], mask=made / "square.json"
    ),
    "prepare.source": lambda made, at: daskgp.prepare(made / "rows.zarr", str(at / "a.zarr")),
    "prepare.store": lambda made, at: daskgp.prepare(str(made / "rows.zarr"), at / "a.zarr"),
    "interpolate.source": lambda made, at: maps_of(made),
    "interpolate.like": lambda made, at: maps_of(made),
    "interpolate.background": lambda made, at: maps_of(made, background=made / "first.nc"),
    "interpolate.mask": lambda made, at: maps_of(made, mask=made / "square.json"),
    "interpolate.barriers": lambda made, at: maps_of(
        made, method="vecchia", max_iter=2, barriers=made / "hole.json"
    ),
    "load.url": lambda made, at: saved(exact().fit(X, Y), at),
    "GaussianProcess.save.url": lambda made, at: saved(exact().fit(X, Y), at),
    "AutoGP.save.url": lambda made, at: auto().fit(X, Y).save(at / "model.zarr"),
    "GPClassifier.save.url": lambda made, at: saved(
        daskgp.GPClassifier(exact()).fit(X, labels()), at
    ),
    "HurdleGP.save.url": lambda made, at: saved(
        daskgp.HurdleGP(*parts()).fit(X, np.maximum(Y - 2, 0)), at
    ),
    "GaussianProcess.fit.checkpoint": lambda made, at: daskgp.ExactGP(max_iter=2, store=at).fit(
        X, Y, checkpoint=at / "progress.zarr", wait=1.0
    ),
    "GaussianProcess.fit.mask": lambda made, at: exact().fit(
        made / "grid.nc", "inside", features=["x", "y"], mask=made / "square.json"
    ),
    "GaussianProcess.plan.mask": lambda made, at: exact().plan(
        made / "grid.nc", "inside", features=["x", "y"], mask=made / "square.json"
    ),
    "AutoGP.fit.checkpoint": lambda made, at: auto(store=at).fit(
        X, Y, checkpoint=at / "progress.zarr"
    ),
    "AutoGP.fit.mask": lambda made, at: auto().fit(
        made / "grid.nc", "inside", features=["x", "y"], mask=made / "square.json"
    ),
    "AutoGP.plan.mask": lambda made, at: auto().plan(
        made / "grid.nc", "inside", features=["x", "y"], mask=made / "square.json"
    ),
    "AutoGP.store": lambda made, at: auto(store=at).fit(X, Y).save(at / "model.zarr"),
    "VecchiaGP.barriers": lambda made, at: saved(
        daskgp.VecchiaGP(barriers=made / "hole.json", max_iter=2).fit(made / "rows.csv", "t"), at
    ),
    "to_geotiff.path": lambda made, at: daskgp.to_geotiff(xr.Dataset({"m": grid()}), at / "m.tif"),
    "to_geotiff.maps": lambda made, at: daskgp.to_geotiff(made / "grid.nc", at / "m.tif"),
}
CASES |= {
    f"{kind.__name__}.store": lambda made, at, kind=kind: of_store(kind, at)
    for kind in ESTIMATORS.values()
}


def grid():
    return xr.DataArray(np.ones((9, 9)), AXES)


def predicted(model, made, at, **how):
    model.predict_store(made / "grid.nc", at / "map.zarr", **how)
    assert model.is_predicted(made / "grid.nc", at / "map.zarr", **how)
    return xr.open_zarr(at / "map.zarr")


OF_MODEL = {
    "predict_store.source": lambda m, made, at: predicted(m, made, at),
    "predict_store.output": lambda m, made, at: m.predict_store(made / "rows.csv", at / "out.csv"),
    "predict_store.mask": lambda m, made, at: predicted(m, made, at, mask=made / "square.json"),
    "is_predicted.source": lambda m, made, at: m.is_predicted(made / "rows.zarr", at / "p.zarr"),
    "is_predicted.output": lambda m, made, at: m.is_predicted(made / "grid.nc", at / "p.zarr"),
    "is_predicted.mask": lambda m, made, at: predicted(m, made, at, mask=made / "square.json"),
    "needs_cluster.source": lambda m, made, at: m.needs_cluster(made / "rows.zarr", at / "p.zarr"),
    "needs_cluster.output": lambda m, made, at: m.needs_cluster(made / "grid.nc", at / "p.zarr"),
    "needs_cluster.mask": lambda m, made, at: m.needs_cluster(
        made / "grid.nc", at / "p.zarr", mask=made / "square.json"
    ),
    "make_grid.like": lambda m, made, at: m.make_grid(like=made / "grid.nc"),
    "score.mask": lambda m, made, at: (
        exact()
        .fit(X, X[:, 0])
        .score(made / "first.nc", "first", features=["x", "y"], mask=made / "square.json")
    ),
    "check.mask": lambda m, made, at: daskgp.check(
        m, made / "first.nc", "first", features=["x", "y"], mask=made / "square.json"
    ),
    "check.store": lambda m, made, at: daskgp.check(m, made / "rows.csv", "t", store=at),
    "cross_validate.mask": lambda m, made, at: daskgp.cross_validate(
        exact(), made / "first.nc", "first", features=["x", "y"], mask=made / "square.json"
    ),
    "cross_validate.store": lambda m, made, at: daskgp.cross_validate(
        exact(), made / "rows.csv", "t", store=at
    ),
    "cross_validate.predictions": lambda m, made, at: daskgp.cross_validate(
        exact(), X, Y, predictions=at / "held.zarr"
    ),
    "variogram.store": lambda m, made, at: daskgp.variogram(X, Y, store=at),
}
FIGURES = {
    "calibration": lambda c, m, s, b, **at: plot.calibration(Y, m, s**2, **at),
    "pit": lambda c, m, s, b, **at: plot.pit(Y, m, s**2, **at),
    "choice": lambda c, m, s, b, **at: plot.choice(b, **at),
    "distances": lambda c, m, s, b, **at: plot.distances(c, **at),
    "history": lambda c, m, s, b, **at: plot.history([{"objective": 1.0, "evaluations": 1}], **at),
    "posterior_lines": lambda c, m, s, b, **at: plot.posterior_lines(X[:, 0], {"m": (m, s)}, **at),
    "spread": lambda c, m, s, b, **at: plot.spread(X, s, **at),
    "traces": lambda c, m, s, b, **at: plot.traces({"m": {"a": m}}, **at),
    "tradeoff": lambda c, m, s, b, **at: plot.tradeoff([1, 2], {"m": {"a": m[:2]}}, **at),
    "variogram": lambda c, m, s, b, **at: plot.variogram(daskgp.variogram(X, Y), **at),
    "maps": lambda c, m, s, b, **at: plot.maps(X, {"m": m}, **at),
    "posterior_map": lambda c, m, s, b, **at: plot.posterior_map(X, Y, m, s, **at),
    "residuals": lambda c, m, s, b, **at: plot.residuals(X, Y, m, s, **at),
}


def public():
    """Yield public functions, estimators and their methods."""
    for module in (daskgp, plot):
        yield from (own for own in vars(module).values() if inspect.isfunction(own))
    for kind in (*ESTIMATORS.values(), *COMPOSED):
        yield kind
        for name, own in inspect.getmembers(kind, inspect.isfunction):
            if own.__module__.startswith("daskgp") and name[0] != "_":
                yield own


def test_every_parameter_that_is_a_path_is_tried_and_typed():
    """All figures are saved by one function, so that some of them are enough."""
    for name in daskgp.__all__:
        getattr(daskgp, name)
    tried = {*CASES, *(name for name in OF_MODEL), *(f"{name}.path" for name in FIGURES)}
    lacking = {}
    for own in public():
        for parameter in inspect.signature(own).parameters.values():
            if parameter.name in NAMED:
                where = f"{own.__qualname__}.{parameter.name}".removeprefix("FittedGP.")
                if where not in tried and own.__module__.split(".")[1] != "plot":
                    lacking[where] = "no case"
                if not any(
                    w in str(parameter.annotation) for w in ("Path", "Any", "Source", "Coast")
                ):
                    lacking[where] = str(parameter.annotation)
    assert lacking == {}


@pytest.mark.whole
@pytest.mark.parametrize("where", CASES)
def test_a_path_is_taken(where, made, tmp_path):
    CASES[where](made, tmp_path)


@pytest.mark.whole
@pytest.mark.parametrize("where", OF_MODEL)
def test_a_fitted_model_takes_a_path(where, made, model, tmp_path):
    OF_MODEL[where](model, made, tmp_path)


@pytest.mark.whole
@pytest.mark.parametrize("where", FIGURES)
def test_a_figure_takes_a_path(where, drawn, tmp_path):
    FIGURES[where](*drawn, path=tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size


def test_figures_of_a_check_and_a_coast_take_paths(made, drawn, tmp_path):
    assert plot.check(drawn[0], tmp_path / "figures")
    plot.maps(X, {"mean": drawn[1]}, names=("x", "y"), coast=made / "square.json")


@pytest.mark.parametrize("ending", [".zarr", ".nc", ".tif"])
def test_an_output_that_is_a_path_is_written(ending, made, model, tmp_path):
    model.predict_store(made / "grid.nc", tmp_path / f"map{ending}")
    assert Path(tmp_path / f"map{ending}").exists()


def test_a_grid_that_is_a_path_is_its_own_grid(made):
    wanted = daskgp.interpolate(str(made / "first.nc"), method=exact())
    xr.testing.assert_identical(daskgp.interpolate(made / "first.nc", method=exact()), wanted)


def test_a_fit_with_a_path_goes_on_from_the_checkpoint_of_its_text(tmp_path):
    own = {"n_inducing": 10, "max_iter": 2, "progress": False}
    at = tmp_path / "store"
    first, again = (
        daskgp.SGPR(store=store, **own).fit(X, Y, checkpoint=tmp_path / "kept")
        for store in (at, str(at))
    )
    np.testing.assert_array_equal(first.predict(X), again.predict(X))
