"""The command that chooses by itself: its options, what it prints, and its report."""

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr
from commands import Page, invoke, one_line, refused, succeed

import daskgp
from daskgp.cli.settings import build_estimator, seconds_of
from daskgp.errors import SettingError

QUICK = ("--time-budget", "30s", "--set", "candidates=sgpr")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A csv and nothing else."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (250, 2))
    y = np.sin(3 * X[:, 0]) + np.cos(2 * X[:, 1]) + 0.1 * rng.standard_normal(250)
    place = tmp_path_factory.mktemp("auto") / "wells.csv"
    np.savetxt(place, np.column_stack([X, y]), delimiter=",", header="a<b,depth,y", comments="")
    return place


@pytest.fixture(scope="module")
def fitted(table):
    folder = table.parent
    report = folder / "report.html"
    said = succeed(
        "fit", table, folder / "m.zarr", "--target", "y", "--report", report, "--workers", 1, *QUICK
    )
    return said, folder / "m.zarr", report.read_text()


def test_a_fit_without_a_model_chooses_one(fitted):
    said, model, _ = fitted
    assert said["method"] == "sgpr"
    assert (said["likelihood"], said["metric"]) == ("gaussian", "nlpd")
    assert said["trials"] == 2  # the mean, too
    board = daskgp.load(str(model)).leaderboard_
    assert board.best.score == said["score"]
    assert set(zarr.open_group(str(model)).keys()).isdisjoint({"checkpoint", "checkpoint-trials"})


def test_info_shows_what_was_tried(fitted):
    _, model, _ = fitted
    shown = invoke("info", model).stdout
    assert "trials by nlpd of held-out rows" in shown
    assert "mean" in shown


@pytest.mark.parametrize("columns", [80, 150])
def test_info_cuts_no_trial(columns, fitted, monkeypatch):
    said, model, _ = fitted
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = invoke("info", model).stdout
    start = shown.index("chosen of 2 trials")
    board = shown[start : shown.index("└", start)]
    assert "…" not in board
    best = daskgp.load(str(model)).leaderboard_.best
    seconds = str(round(best.seconds, 1))
    for text in (best.label, best.kernel, str(best.rows), f"{said['score']:.4g}", seconds):
        assert text in board
    assert ("MiB" in board) == (columns == 150)


def test_the_report_is_one_whole_page(fitted):
    said, model, text = fitted
    page = Page(text)
    assert not page.open
    names = {tag for tag, _ in page.tags}
    assert {"script", "link", "iframe"}.isdisjoint(names)
    images = [attrs for tag, attrs in page.tags if tag == "img"]
    assert len(images) == 5
    assert all(image["alt"] and image["src"].startswith("data:image/svg") for image in images)
    assert not any(str(v).startswith("http") for _, a in page.tags for v in a.values())
    assert "a<b" in page.text  # escaped in the page
    for title in ("Data", "What was tried", "Calibration", "Where it is unsure", "Settings"):
        assert title in page.text
    assert f"{said['score']:.4g}" in page.text
    assert str(model) in page.text


@pytest.mark.slow
def test_other_models_have_a_report_too(table, tmp_path):
    report = tmp_path / "r.html"
    options = ("--model", "sgpr", "--set", "n_inducing=20", "--workers", 1)
    succeed("fit", table, tmp_path / "m.zarr", "--target", "y", "--report", report, *options)
    page = Page(report.read_text())
    assert "Hyper-parameters" in page.text
    assert "What was tried" not in page.text
    fit = ("fit", table, "--target", "y", "--report", report, *options)
    line = refused(*fit[:2], tmp_path / "other.zarr", *fit[2:])
    assert f"{report} exists already: remove it or choose another name" in line
    assert not (tmp_path / "other.zarr").exists()
    report.write_text("of the last run")
    again = ("--resume",)
    assert not succeed(*fit[:2], tmp_path / "m.zarr", *fit[2:], *again)["resumed"]
    assert "Hyper-parameters" in report.read_text()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--model", "lma", "--metric", "rmse"], "--metric belongs to --model auto"),
        (["--model", "lma", "--time-budget", "9"], "--time-budget belongs to --model auto"),
        (["--time-budget", "soon"], "--time-budget is 'soon': give seconds"),
        (["--time-budget", "-5"], "'-5': give seconds greater than 0, or a time such as"),
        (["--memory", "lots"], "memory='lots': give bytes"),
        (["--set", "candidates=best"], "candidates have 'best'"),
        (["--set", "n_inducing=5"], "unknown setting 'n_inducing' of model 'auto'"),
        (
            ["--set", "n_induce=5"],
            "'n_inducing' is a setting of single methods: name one, such as --model sgpr",
        ),
        (["--set", "metrc=rmse"], "did you mean 'metric'?"),
        (["--report", "."], "--report . is a folder"),
        (["--report", "nowhere/r.html"], "there is no folder"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(options, says, table, tmp_path):
    line = refused("fit", table, tmp_path / "m.zarr", "--target", "y", "--workers", 1, *options)
    assert says in line
    assert not list(tmp_path.iterdir())


def test_a_target_of_words_is_told_how_to_be_one(table, tmp_path):
    words = tmp_path / "words.csv"
    words.write_text(table.read_text().replace("y", "height", 1) + "1.0,1.0,low\n")
    line = refused("fit", words, tmp_path / "m.zarr", "--target", "height", "--workers", 1)
    assert "column 'height' of" in line
    assert "row 251 holds 'low': a target needs numbers: correct such cells or leave" in line
    assert [path.name for path in tmp_path.iterdir()] == ["words.csv"]


def test_a_forecast_needs_its_times(table, tmp_path):
    result = invoke("fit", table, tmp_path / "m.zarr", "--target", "y", "--task", "forecast")
    assert result.exit_code == 2
    assert "set time= (--set time=NAME) to one of a<b, depth" in result.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_times_are_read():
    assert seconds_of("600") == 600
    assert seconds_of("10min") == 600
    with pytest.raises(SettingError, match="time-budget"):
        seconds_of("-5")


def test_the_model_auto_takes_settings():
    model = build_estimator("auto", ("candidates=sgpr,lma", "task=gaps", "memory=2GiB"))
    assert isinstance(model, daskgp.AutoGP)
    assert model.candidates == ["sgpr", "lma"]
    assert model.task == "gaps"


def test_a_plan_is_of_the_costliest_method_and_the_most_memory(table):
    found = succeed("plan", table, "--target", "y", "--set", "candidates=sgpr,exact", "--json")
    alone = {
        name: succeed("plan", table, "--target", "y", "--model", name, "--json")
        for name in ("sgpr", "exact")
    }
    for name, value in alone[found["method"]].items():
        known = [plan[name] for plan in alone.values()]
        assert found[name] == (max(known) if name.startswith("bytes_") else value)


@pytest.mark.slow
def test_a_killed_search_goes_on(table, tmp_path):
    kill = (
        "import sys, os\n"
        "from daskgp.choose import trials\n"
        "keep = trials.Trials._keep\n"
        "def killed(self, one, rows):\n"
        "    keep(self, one, rows)\n"
        "    if one.trial.method != 'mean': os._exit(9)\n"
        "trials.Trials._keep = killed\n"
        "from daskgp.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    few = tmp_path / "few.csv"
    few.write_text("".join(table.read_text().splitlines(keepends=True)[:61]))
    arguments = ["fit", str(few), str(tmp_path / "m.zarr"), "--target", "y", *QUICK]
    arguments[-3:] = ["300s", "--set", "candidates=exact,sgpr"]  # no deadline on a busy machine
    arguments += ["--workers", "1"]
    done = subprocess.run([sys.executable, "-c", kill, *arguments], capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    assert "trials kept" in invoke("info", tmp_path / "m.zarr").stdout
    again = succeed(*arguments, "--resume")
    whole = succeed(*arguments[:2], tmp_path / "w.zarr", *arguments[3:])
    same = ("method", "kernel", "score", "trials", "objective")
    assert {name: again[name] for name in same} == {name: whole[name] for name in same}


def test_a_script_may_catch_the_line(table, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "daskgp", "fit", str(table), str(tmp_path / "m.zarr")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "--target" in one_line(done.stderr)
    assert json.dumps(done.stdout) == '""'
