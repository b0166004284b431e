"""``daskgp report``: the page of a fitted model, alone and beside other rows."""

import numpy as np
import pandas as pd
import pytest
from commands import Page, refused, succeed

import daskgp


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
    assert len(images) == 4  # calibration, distribution function, map, distances
    assert str(tmp_path / "test.csv") in page.text


def test_several_targets_have_a_map_each(tmp_path):
    model, output = fitted(tmp_path, ["temp", "wind"]), tmp_path / "r.html"
    how = ("--target", "temp,wind", "--output", output)
    succeed("report", model, tmp_path / "test.csv", *how)
    page = Page(output.read_text())
    images = [attrs["alt"] for tag, attrs in page.tags if tag == "img"]
    assert "Map of the residuals of temp" in images
    assert "Map of the residuals of wind" in images


def test_what_cannot_be_is_told_in_one_line(model, tmp_path):
    test = tmp_path / "test.csv"
    before = sorted(tmp_path.iterdir())
    for words, said in (
        ((tmp_path / "no.zarr",), "no model store at"),
        ((model, "--output", tmp_path), "--output " + str(tmp_path) + " is a folder"),
        ((model, "--output", tmp_path / "no" / "r.html"), "there is no folder"),
        ((model, "--target", "temp"), "--target is for the rows of TEST"),
        ((model, "--fill", "-9"), "--fill is for the rows of TEST"),
        ((model, "--workers", 2), "are for the rows of TEST"),
        ((model, test), "--target"),
        ((model, test, "--target", "tmep"), "tmep"),
        ((model, tmp_path / "no.csv", "--target", "temp"), "no.csv"),
    ):
        assert said in refused("report", *words)
    assert sorted(tmp_path.iterdir()) == before
