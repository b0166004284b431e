"""``daskgp report``: the page of a fitted model, alone and beside other rows."""

import numpy as np
import pandas as pd
import pytest
from commands import Page, refused, succeed

import daskgp
from daskgp import plot
from daskgp.cli import pages
from tests.browser import opened


def stations(n, seed):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"lon": rng.uniform(5, 11, n), "lat": rng.uniform(45, 48, n)})
    table["temp"] = np.sin(table.lon) + table.lat + 0.1 * rng.standard_normal(n)
    table["wind"] = np.cos(table.lon) + 0.1 * rng.standard_normal(n)
    return table


@pytest.fixture
def model(tmp_path):
    """A model store of one target, and a csv of other rows."""
    return fitted(tmp_path, "temp")


def fitted(folder, target):
    train, test = stations(150, 0), stations(120, 1)
    test.to_csv(folder / "test.csv", index=False)
    gp = daskgp.SGPR("matern32", n_inducing=20, max_iter=5, progress=False)
    names = ["lon", "lat"]
    gp.fit(train, target, features=names).save(str(folder / "model.zarr"))
    return folder / "model.zarr"


def test_a_model_has_a_report_of_its_own(model, tmp_path):
    said = succeed("report", model)
    assert said["report"] == str(tmp_path / "model.html")
    page = Page((tmp_path / "model.html").read_text())
    assert not page.open
    for text in ("Gaussian process of temp", "SGPR fitted to 150 rows", "Hyper-parameters", "lon"):
        assert text in page.text
    assert "On other rows" not in page.text
    again = succeed("report", model, "--output", tmp_path / "again.html")
    assert again["report"] == str(tmp_path / "again.html")


@pytest.mark.slow
def test_a_report_has_the_check_of_other_rows(model, tmp_path):
    output = tmp_path / "r.html"
    how = ("--target", "temp", "--output", output)
    said = succeed("report", model, tmp_path / "test.csv", *how)
    assert (said["report"], said["skipped"]) == (str(output), 0)
    page = Page(output.read_text())
    assert not page.open
    test = stations(120, 1)
    found = daskgp.check(daskgp.load(model), test[["lon", "lat"]], test.temp)
    assert f"{found.scores['rmse']:.4g}" in page.text
    for title in ("On other rows", "Where it is wrong", "By region", "By distance to the nearest"):
        assert title in page.text
    images = [attrs["alt"] for tag, attrs in page.tags if tag == "img"]
    assert "Map of the residuals" in images
    assert images == [
        "Share of held-out values inside predictive intervals against their level",
        "Shares of values by their predictive distribution function",
        "Map of the residuals",
        "Scores by the distance to the training data",
        "Variogram of rows, and what the model expects of them",
        "Maps of the predictive mean and standard deviation",
    ]
    assert str(tmp_path / "test.csv") in page.text


def test_a_browser_shows_all_of_a_report_without_a_network(model, tmp_path):
    pytest.importorskip("PyQt6.QtWebEngineCore", exc_type=ImportError)
    succeed("report", model)
    widths = "[...document.images].map(image => image.complete && image.naturalWidth)"
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    seen = opened((tmp_path / "model.html").as_uri(), "document.title", widths, wide, wait=0.5)
    assert seen["loaded"]
    title, images, beyond = seen["returned"]
    assert title == "daskgp: temp"
    assert len(images) == 1
    assert min(images) > 300
    assert beyond == 0  # nothing is cut off at the side
    assert (seen["outside"], seen["console"]) == ([], [])
    assert seen["colours"] > 50


def test_residuals_are_mapped_at_the_places_among_other_features(tmp_path, monkeypatch):
    table, seen = stations(120, 0).assign(height=lambda t: 100 * t.lon), []
    gp = daskgp.SGPR(n_inducing=10, max_iter=1, progress=False, geographic=False)
    gp.fit(table, "temp", features=["height", "lat", "lon"])
    found = daskgp.check(gp, table[["height", "lat", "lon"]], table.temp)
    monkeypatch.setattr(plot, "residuals", lambda X, *_, names, path: seen.append((X, names)))
    monkeypatch.setattr(pages, "_figure", lambda draw, *_: str(draw("")))
    pages.residual_maps(found.sample, found.feature_names, None, ("temp",))
    ((X, names),) = seen
    assert names == ("lon (°E)", "lat (°N)")
    np.testing.assert_allclose(np.sort(X, axis=0), np.sort(table[["lon", "lat"]], axis=0))
    assert str(tmp_path / "residuals.png") in plot.check(found, tmp_path)


@pytest.mark.slow
def test_several_targets_have_a_map_each(tmp_path):
    model, output = fitted(tmp_path, ["temp", "wind"]), tmp_path / "r.html"
    how = ("--target", "temp,wind", "--output", output)
    succeed("report", model, tmp_path / "test.csv", *how)
    page = Page(output.read_text())
    images = [attrs["alt"] for tag, attrs in page.tags if tag == "img"]
    assert "Map of the residuals of temp" in images
    assert "Map of the residuals of wind" in images


def drawn(monkeypatch):
    """What is drawn in figures, by their names."""
    seen = {}
    for name in ("maps", "variogram"):
        real = getattr(plot, name)

        def noted(*values, real=real, name=name, **how):
            seen[name] = values[0]
            return real(*values, **how)

        monkeypatch.setattr(plot, name, noted)
    return seen


@pytest.mark.slow
def test_the_map_is_of_predictions_within_the_ranges_of_the_data(model, tmp_path, monkeypatch):
    seen = drawn(monkeypatch)
    succeed("report", model, tmp_path / "test.csv", "--target", "temp")
    gp, train, test = daskgp.load(model), stations(150, 0), stations(120, 1)
    mean, std = seen["maps"].values()
    for name in ("lon", "lat"):
        ends = mean[name].values[[0, -1]]
        np.testing.assert_allclose(ends, [train[name].min(), train[name].max()])
    at = np.array([[mean.lon.values[3], mean.lat.values[7]]])
    wanted = gp.predict(at, return_std=True)
    there = {"lon": at[0, 0], "lat": at[0, 1]}
    np.testing.assert_allclose([mean.sel(there), std.sel(there)], np.ravel(wanted))
    own = daskgp.variogram(test[["lon", "lat"]].to_numpy(), test.temp, gp)
    for name in ("semivariance", "expected", "noise_variance"):
        found = np.squeeze(getattr(seen["variogram"], name))
        np.testing.assert_allclose(found, getattr(own, name))
    assert seen["variogram"].target_names == ("temp",)


SHORT = {"max_iter": 1, "progress": False}
PLACES, PAIR = ["lon", "lat"], ["temp", "wind"]
FIELD = ["mean", "standard deviation"]
FIELDS = [f"{target}: {name}" for name in FIELD for target in PAIR]
KINDS = {
    "one target": ({}, "temp", PLACES, FIELD, True),
    "counts": ({"likelihood": "poisson"}, "count", PLACES, FIELD, False),
    "several": ({}, PAIR, PLACES, FIELDS, True),
    "joint": ({"targets": "joint"}, PAIR, PLACES, FIELDS, False),
    "logarithms": ({"target_transform": "log"}, "temp", PLACES, FIELD, False),
    "errors": ({}, "temp", PLACES, FIELD, False),
    "three features": ({}, "temp", [*PLACES, "height"], [], False),
    "one feature": ({}, "temp", ["lat"], [], False),
    "times": ({}, "temp", ["lat", "day"], [], False),
    "names": ({}, "temp", ["lat", "site"], [], False),
}


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
def test_maps_and_variograms_are_of_models_that_have_them(kind, monkeypatch):
    settings, target, features, maps, has_variogram = KINDS[kind]
    table = stations(120, 0)
    table["count"] = np.random.default_rng(0).poisson(table.lat / 9)
    table["height"], table["site"] = table.lon * 100, np.tile(list("abc"), 40)
    table["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(table.lon, "D")
    table["error"] = 0.01
    errors = {"y_variance": "error"} if kind == "errors" else {}
    gp = daskgp.SGPR(n_inducing=10, **SHORT, **settings)
    gp.fit(table, target, features=features, **errors)
    seen, alts = {}, []
    monkeypatch.setattr(plot, "maps", lambda fields, path: seen.update(fields))
    monkeypatch.setattr(plot, "variogram", lambda found, path: None)
    monkeypatch.setattr(pages, "_figure", lambda draw, alt, _: alts.append(alt) or str(draw("")))
    pages._field(gp)
    assert sorted(seen) == sorted(maps)
    if kind == "counts":  # rather than the logarithm of its rate
        assert seen["mean"].min() > 3
    X, y = table[features], table[target]
    pages._variogram(gp, X, y)
    assert any("Variogram" in alt for alt in alts) == has_variogram


def test_what_cannot_be_is_told_in_one_line(model, tmp_path):
    test = tmp_path / "test.csv"
    before = sorted(tmp_path.iterdir())
    for words, said in (
        ((tmp_path / "no.zarr",), "no model store at"),
        ((model, "--output", tmp_path), "--output " + str(tmp_path) + " is a folder"),
        ((model, "--output", tmp_path / "no" / "r.html"), "there is no folder"),
        ((model, "--output", test), f"{test} exists already: remove it or choose another name"),
        ((model, "--target", "temp"), "--target is for the rows of TEST"),
        ((model, "--fill", "-9"), "--fill is for the rows of TEST"),
        ((model, "--workers", 2), "are for the rows of TEST"),
        ((model, test, "--target", "tmep"), "tmep"),
        ((model, tmp_path / "no.csv", "--target", "temp"), "no.csv"),
    ):
        assert said in refused("report", *words)
    assert sorted(tmp_path.iterdir()) == before


def test_a_report_names_the_rows_that_a_model_has_still(tmp_path):
    for name, seed in (("train", 0), ("wrong", 1)):
        stations(60, seed).to_csv(tmp_path / f"{name}.csv", index=False)
        columns = ("--target", "temp", "--features", "lon,lat")
        succeed("convert", tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", *columns)
    model = tmp_path / "model.zarr"
    how = ("--model", "sgpr", "--set", "n_inducing=10", "--set", "max_iter=2")
    succeed("fit", tmp_path / "train.zarr", model, *how)
    for command, there in (("update", True), ("forget", False)):
        succeed(command, model, tmp_path / "wrong.zarr")
        found = pages.source_of(daskgp.load(model))
        assert "train.zarr" in found
        assert ("wrong.zarr" in found) == there
