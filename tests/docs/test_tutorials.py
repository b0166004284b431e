"""The tutorials run, and what their text says of the numbers holds."""

import os
import sys
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest
from docs_text import ROOT, run_cells

matplotlib = pytest.importorskip("matplotlib")
TUTORIALS = ROOT / "docs" / "tutorials"


@pytest.fixture
def tutorial(tmp_path, monkeypatch):
    """Run a tutorial in an empty folder, with the command of this environment on the path."""
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", commands)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.getenv("PYTHONPATH", "")]))
    monkeypatch.setattr(pyplot, "show", lambda: None)
    before = pyplot.get_backend()
    pyplot.switch_backend("agg")
    with matplotlib.rc_context(fname=TUTORIALS / "matplotlibrc"):
        yield lambda name: run_cells((TUTORIALS / f"{name}.md").read_text())
        pyplot.close("all")
    pyplot.switch_backend(before)


@pytest.mark.slow
def test_satellite_has_calibrated_gaps(tutorial):
    names = tutorial("satellite")
    assert float(names["model"].noise_variance_) > 0
    clear, hidden = names["table"].to_numpy()
    assert clear[0] < 0.3 < hidden[0]
    np.testing.assert_allclose([clear[1], hidden[1]], [clear[0], hidden[0]], rtol=0.35)
    assert min(clear[2], hidden[2]) > 0.9


@pytest.mark.slow
def test_cube_is_filled_better_than_by_simple_rules(tutorial):
    pytest.importorskip("iris_sample_data")
    names = tutorial("cube")
    scores = names["scores"]
    rmse, filled, inside = (scores[key] for key in ("RMSE (K)", "filled", "inside 95 %"))
    assert rmse["line, of anomalies"] == pytest.approx(0.71, abs=0.005)
    assert rmse["interpolate, from usual"] == pytest.approx(0.35, abs=0.02)
    assert rmse["interpolate"] < rmse["line, of anomalies"] < rmse["usual for the month"]
    hidden = (names["sea"].notnull() & names["hidden"]).sum()
    assert filled["interpolate"] == filled["interpolate, from usual"] == hidden
    assert 1 - filled["line, of anomalies"] / hidden == pytest.approx(0.25, abs=0.03)
    assert inside["interpolate"] == pytest.approx(0.84, abs=0.03)
    assert inside["interpolate, from usual"] == pytest.approx(0.91, abs=0.03)
    assert names["model"].noise_variance_ < 1e-3


@pytest.mark.slow
def test_stations_are_scored_by_what_is_held_out(tutorial):
    names = tutorial("stations")
    random, stations, blocks = names["scores"]["rmse"]
    assert random < stations < blocks
    assert names["scores"]["coverage_95"].between(0.92, 0.99).all()
    slope = [row.value for row in names["model"].trend_][1]
    assert slope == pytest.approx(-0.0065, rel=0.05)
    assert float((names["error"] ** 2).mean()) < 1


@pytest.mark.slow
def test_samples_are_predicted_better_with_elevation(tutorial):
    if not any(one.name == "scikit-gstat" for one in distributions()):
        pytest.skip("scikit-gstat, whose data the page reads, is not installed")
    names = tutorial("samples")
    told = {
        "nearest": (0.27, 0.31),
        "regression on both": (0.167, 0.171),
        "places": (0.173, 0.212),
        "places, elevation": (0.140, 0.191),
        "places, both": (0.136, 0.159),
        "inside 95 %, both": (0.95, 0.93),
    }
    for name, values in told.items():
        np.testing.assert_allclose(names["scores"].loc[name], values, atol=0.005)
    slope = next(row for row in names["model"].trend_ if row.name == "elev")
    assert slope.value == pytest.approx(-0.107, abs=0.002)
    length = next(row for row in names["model"].hyperparameters_ if row.name == "lengthscale")
    assert length.value == pytest.approx(0.18, abs=0.01)
    assert names["loo"] == pytest.approx(0.136, abs=0.001)
    assert names["within"] == pytest.approx(0.948, abs=0.01)


@pytest.mark.slow
def test_soundings_are_as_good_as_their_errors_tell(tutorial):
    pytest.importorskip("libpysal")
    names = tutorial("soundings")
    sonar, alike, known = names["scores"].to_numpy()
    assert known[0] < alike[0] < sonar[0]
    assert known[0] == pytest.approx(1.9, abs=0.1)
    assert known[2] > alike[2]
    lead, echo = names["checked"].to_numpy()
    assert lead[0] > 2
    assert echo[0] < 0.5
    np.testing.assert_allclose([lead[1], echo[1]], 1, atol=0.25)
    for model, right in (("alike", False), ("known", True)):
        found = {row.name: row for row in names[model].hyperparameters_}
        near = [
            abs(found[name].value - true) < 2 * found[name].standard_error
            for name, true in (("lengthscale", 1), ("variance", 144))
        ]
        assert all(near) is right
    few, _, many = names["real"]["all alike"]
    assert few == pytest.approx(2.37, abs=0.03)
    assert many == pytest.approx(0.5, abs=0.03)
    np.testing.assert_allclose(names["real"]["own errors"], 1, atol=0.1)
    told = {"own errors": 0.112, "all alike": 0.120}
    for name, value in told.items():
        assert names["errors"][name] == pytest.approx(value, abs=0.001)
    assert names["errors"]["five nearest"] > told["own errors"]
    *_, noise = names["model"].hyperparameters_
    assert noise.value == pytest.approx(0.0026, abs=2e-4)


@pytest.mark.slow
def test_counts_are_predicted_better_from_places_and_people(tutorial):
    pytest.importorskip("libpysal")
    names = tutorial("counts")
    log_score, rmse, inside = (names["scores"][key] for key in names["scores"])
    told = {"place": -4.13, "regression": -3.99, "place and people": -3.94}
    for name, value in told.items():
        assert log_score[name] == pytest.approx(value, abs=0.015)
    assert max(log_score["region"], log_score["five nearest"]) < log_score["place"]
    assert rmse["regression"] < rmse["place and people"] < rmse["place"]
    assert inside["regression"] == pytest.approx(0.9, abs=0.005)
    assert inside["place and people"] == pytest.approx(0.93, abs=0.01)
    place, people, chance = (
        {row.name: row for row in model.hyperparameters_}
        for model in (*names["models"].values(), names["chance"])
    )
    assert place["variance"].value == pytest.approx(0.015, abs=0.001)
    left = people["variance"]
    assert left.value == pytest.approx(0.0006, abs=2e-4)
    assert left.standard_error == pytest.approx(left.value, rel=0.5)
    assert people["size"].value == pytest.approx(450, rel=0.1)
    assert chance["lengthscale"].value == pytest.approx(3.3, abs=0.4)
    assert names["sure"].sum() < 20 < (names["ratio"] > 1.1).sum()


@pytest.mark.slow
def test_table_has_the_smaller_error_and_the_honest_interval(tutorial):
    names = tutorial("table")
    trees, gp = names["scores"].to_numpy()
    assert gp[0] < 1.1 < trees[0]
    assert trees[1] < 0.9 < gp[1]
    assert gp[2] < trees[2]
    trees, gp = names["diabetes"].to_numpy()
    assert gp[0] < trees[0]
    assert gp[1] > 0.9


@pytest.mark.slow  # a dozen commands, each with a cluster of its own
def test_daily_job_survives_a_kill_and_an_overlap(tutorial):
    pytest.importorskip("hvsampledata")
    names = tutorial("daily")
    assert names["record"]["exit"] == 0
    assert names["record"]["skipped"] > 0
    done = sorted(path.name for path in Path("maps").glob("*.zarr"))
    assert done == ["2014-02-27.zarr", "2014-02-28.zarr", "fine.zarr", "noon.zarr"]
    assert not [*Path("inbox").iterdir()]
    for day, gain in (("2014-02-27", 1 / 4), ("2014-02-28", 1 / 3)):
        nearest, plane, map_, inside = names["scores"].loc[day]
        assert map_ < plane < nearest
        assert 1 - map_ / plane == pytest.approx(gain, abs=0.05)
        assert 0.95 < inside < 0.995


def test_every_tutorial_is_linked():
    index = (TUTORIALS / "index.md").read_text()
    for page in TUTORIALS.glob("*.md"):
        assert page.stem == "index" or f":link: {page.stem}\n" in index
